"""Inputs shared by all embedders of a study, and the measurements made on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ragauge.encoding import growth, robustness
from ragauge.encoding.plan import Plan
from ragauge.encoding.ranking import Field, all_means
from ragauge.encoding.timing import Times
from ragauge.encoding.view import View
from ragauge.lineups import Entrant, Shaken
from ragauge.outcomes import Mean
from ragauge.records import Scores
from ragauge.runs.perform import warm_up_queries


@dataclass(frozen=True, eq=False)
class Ground:
    """Shared inputs of a study: texts, queries, ranking task and settings."""

    view: View
    field: Field
    plan: Plan
    cache: Path | None
    heard: Callable[[str, int, int], None]
    """Progress callback: stage, number done, total."""

    @cached_property
    def texts(self) -> dict[str, str]:
        """Document texts by id."""
        return self.view.texts

    @cached_property
    def warm(self) -> list[str]:
        """Texts for warm-up queries."""
        return warm_up_queries(self.view.documents, self.view.queries, self.plan.warmup, self.plan.seed)

    @cached_property
    def rarity(self) -> dict[str, int]:
        """Document frequency of each word."""
        return robustness.rarity_of(self.texts.values())

    def share(self, what: str) -> Callable[[float], None]:
        """Return a callback that reports a share from 0 to 1 as percent of a stage."""
        return lambda part: self.heard(what, round(100 * part), 100)

    def means(self, several: Sequence[Scores]) -> list[dict[str, Mean]]:
        """Compute the means of several scores with confidence intervals."""
        return all_means(several, self.plan.confidence, self.plan.seed)


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured embedder with its ranking, times and references."""

    entrant: Entrant
    """Result without differences from the baseline, which need the other embedders."""
    ranking: Mapping[str, Sequence[tuple[str, float]]]
    """Documents found for each query, best first, with their scores."""
    times: Mapping[str, Times] = field(default_factory=dict)
    """Times of the queries that were timed through the first store."""
    references: Mapping[str, float] = field(default_factory=dict)
    """Bits per byte of compressors, if the embedder is a language model."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Measuring time in seconds, by step."""


def sizes_of(ground: Ground) -> list[int]:
    """Return the corpus sizes to evaluate, the full corpus last.

    Empty if no smaller size fits.
    """
    whole, relevant = len(ground.view.documents), len(ground.field.relevant)
    wanted = growth.SIZES if ground.plan.sizes is None else ground.plan.sizes
    fit = sorted({one for one in wanted if relevant <= one < whole})
    return [*fit, whole] if fit else []


def shaken_of(ground: Ground, name: str, clean: Scores, answer: Callable[[Mapping[str, str]], Scores]) -> list[Shaken]:
    """Measure the effect of query perturbations on a system that `answer` scores."""
    plan = ground.plan
    if plan.perturbations is not None and not plan.perturbations:
        return []
    return robustness.shaken(
        ground.view.queries,
        clean,
        answer,
        kinds=plan.perturbations,
        rate=plan.rate,
        seeds=plan.seeds,
        rarity=ground.rarity,
        context=ground.view.context,
        confidence=plan.confidence,
        seed=plan.seed,
        progress=ground.share(f"{name}: perturbing queries"),
    )
