"""Data types of judging: the result (`JudgedSamples`), its summary by measure, and costs (`CostStep`).

A judge decides on parts of a sample: which sources support each claim, whether each chunk is useful, and which
questions an answer would answer. A missing verdict is `Unscored`, with the reply of the judge; there are no
defaults.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.findings import append_notes
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.records import Scores
from ragauge.core.samples import LEXICAL_JUDGE, Sample, Verdicts


class CostStep(NamedTuple):
    """Cost of one step of judging: a row of the cost table."""

    step: str
    calls: int
    """Number of paid replies, over all sessions."""
    cached_calls: int
    """Number of calls that this session saved by cached replies."""
    retries: int
    """Number of failed attempts that were repeated."""
    unreadable_replies: int
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


def sum_cost_steps(steps: Sequence[CostStep]) -> CostStep:
    """Sum the rows of the cost table; percentiles are NaN.

    The cost is None unless it is known for every step with calls.
    """
    costs = [step.cost for step in steps if step.calls]
    return CostStep(
        step="all",
        calls=sum(step.calls for step in steps),
        cached_calls=sum(step.cached_calls for step in steps),
        retries=sum(step.retries for step in steps),
        unreadable_replies=sum(step.unreadable_replies for step in steps),
        prompt_tokens=sum(step.prompt_tokens for step in steps),
        completion_tokens=sum(step.completion_tokens for step in steps),
        cached_tokens=sum(step.cached_tokens for step in steps),
        seconds=math.fsum(step.seconds for step in steps),
        p50=math.nan,
        p95=math.nan,
        cost=None if None in costs or not costs else math.fsum(cost for cost in costs if cost is not None),
    )


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


def sum_estimates(steps: Sequence[CostEstimate]) -> CostEstimate:
    """Add the estimates of all steps; None stays None."""
    cost, seconds = (
        None if not values or None in values else math.fsum(value for value in values if value is not None)
        for values in ([step.cost for step in steps], [step.seconds for step in steps])
    )
    return CostEstimate(
        "all",
        sum(step.calls for step in steps),
        sum(step.prompt_tokens for step in steps),
        sum(step.completion_tokens for step in steps),
        cost,
        seconds,
    )


@json_form(derived=("total",))
@dataclass(frozen=True)
class JudgingEstimate:
    """Estimate of a dry run, with what would be judged."""

    judge: str
    samples: int
    measures: Sequence[str]
    estimate: Sequence[CostEstimate]

    @property
    def total(self) -> CostEstimate:
        """Sum of all steps."""
        return sum_estimates(self.estimate)


@json_form(derived=("resisted",))
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
    def resisted(self) -> bool | None:
        """Whether the judge resisted. None if the clean verdict is wrong or the attacked one is missing."""
        return None if self.clean != self.wanted or self.attacked == "unscored" else self.attacked == self.wanted


class MeasureSummary(NamedTuple):
    """Mean of one measure, and the samples without a score."""

    mean: float
    """NaN if no sample has a score."""
    n: int
    """Number of samples with a score."""
    unscored: int
    """Number of samples without a score."""
    interval: tuple[float, float] | None
    """Confidence interval of the mean; None for few or equal scores."""
    reasons: Mapping[str, int]
    """Reasons for missing scores with the number of samples, most frequent first."""
    lower_is_better: bool

    @property
    def samples(self) -> int:
        """Number of all samples."""
        return self.n + self.unscored


@record("ragauge-judged", 1, derived=("convention", "measures", "total"))
@json_form(omitted=("folder",))
@dataclass(frozen=True, eq=False)
class JudgedSamples(TabularResult, report="ragauge.judging.report"):
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
    """Confidence level of the intervals."""
    ledger: Sequence[CostStep] = ()
    """Calls, tokens and costs by step; empty if no model was called."""
    robustness: Sequence[InjectionAttempt] = ()
    """Prompt-injection attempts; empty if none were made."""
    stopped: str = ""
    """Reason why judging stopped early; empty if it did not."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Time, machine and versions."""
    judge_name: str = ""
    """Name of the judge without the hash of its identity; empty if unknown."""
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
        has_verdict = any(
            verdicts.support
            or verdicts.useful
            or verdicts.questions
            or verdicts.refusal is not None
            or any(verdicts.ratings.values())
            or any(verdicts.claims.values())
            for verdicts in self.verdicts.values()
        )
        return not self.lexical and not has_verdict and any(verdicts.unscored for verdicts in self.verdicts.values())

    @property
    def convention(self) -> str:
        """Convention with which the scores were computed."""
        return self.scores.convention

    @cached_property
    def measures(self) -> dict[str, MeasureSummary]:
        """Mean, confidence interval and numbers of samples by measure."""
        scores = self.scores
        return {
            name: MeasureSummary(
                scores.means[name],
                scores.n[name],
                len(scores.unscored[name]),
                self.intervals.get(name),
                dict(sorted(Counter(scores.unscored[name].values()).items(), key=lambda item: (-item[1], item[0]))),
                name in scores.lower_is_better,
            )
            for name in scores.measures
        }

    @property
    def total(self) -> CostStep | None:
        """Sum of the cost table; None if no model was called."""
        return sum_cost_steps(self.ledger) if self.ledger else None

    def __repr__(self) -> str:
        text = f"JudgedSamples({self.name!r} by {self.judge}: {self.scores._describe()})"
        return append_notes(text, self.notes)
