"""Data types of judging: samples (`Sample`), verdicts on them (`Verdicts`), and costs (`CostStep`).

A judge decides on parts of a sample: which sources support each claim, whether each chunk is useful, and which
questions an answer would answer. A missing verdict is `Unscored`, with the reply of the judge; there are no
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.records import Scores
from ragauge.core.samples import LEXICAL_JUDGE, Sample, Verdicts


class CostStep(NamedTuple):
    """Cost of one step of judging: a row of the cost table."""

    step: str
    calls: int
    """Number of paid replies, over all sessions."""
    kept: int
    """Number of calls that this session saved by cached replies."""
    retries: int
    """Number of failed attempts that were repeated."""
    unread: int
    """Number of replies that could not be parsed completely."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    """Total duration of all calls in seconds."""
    p50: float
    p95: float
    """Latency percentiles of a call in ms."""
    cost: float | None
    """Cost in US dollars; None if the model has no price."""


class CostEstimate(NamedTuple):
    """Estimated cost of a step, before judging.

    The number of claims is that of the sentences.
    """

    step: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    """Cost in US dollars; 0 on a local server, None if the model has no price."""
    seconds: float | None = None
    """Duration in seconds on a local server of assumed speed; None for other endpoints."""


class InjectionAttempt(NamedTuple):
    """One prompt-injection attempt and its result."""

    case: str
    step: str
    where: str
    """Text that contains the instruction: an `answer`, a `context` or a `claim`."""
    wanted: str
    """Correct verdict."""
    clean: str
    """Verdict without the instruction."""
    attacked: str
    """Verdict with the instruction."""

    @property
    def held(self) -> bool | None:
        """Whether the judge resisted.

        None if the clean verdict is wrong or the attacked one is missing.
        """
        return None if self.clean != self.wanted or self.attacked == "unscored" else self.attacked == self.wanted


@dataclass(frozen=True, eq=False)
class JudgedSamples:
    """Results of judging: samples, verdicts, scores and costs."""

    name: str
    """Name of the judged system."""
    judge: str
    """Name of the judge, unique for its identity."""
    identity: Mapping[str, Any]
    """Full identity of the judge: model, endpoint, parameters, hashes of the rubrics, embedder."""
    samples: Sequence[Sample]
    verdicts: Mapping[str, Verdicts]
    """Verdicts by sample id."""
    scores: Scores
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=lambda: EMPTY_MAPPING)
    """Confidence interval of the mean by measure."""
    confidence: float = 0.95
    ledger: Sequence[CostStep] = ()
    robustness: Sequence[InjectionAttempt] = ()
    stopped: str = ""
    """Reason why judging stopped early; empty if it did not."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    """Provenance: time, machine and versions."""
    folder: Path | None = None

    @property
    def lexical(self) -> bool:
        """Whether the lexical judge was used instead of a model."""
        return self.identity.get("judge") == LEXICAL_JUDGE

    @property
    def unreadable(self) -> bool:
        """Whether a model gave no verdict at all.

        Some scores may be computed without one.
        """
        read = any(
            one.support or one.useful or one.questions or one.refusal is not None or any(one.claims.values())
            for one in self.verdicts.values()
        )
        return not self.lexical and not read and any(one.unscored for one in self.verdicts.values())

    def __repr__(self) -> str:
        return f"Judged({self.name!r} by {self.judge}: {self.scores!r})"
