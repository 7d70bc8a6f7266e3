"""What all entrants stand on, and what is asked of every one of them, whatever answers."""

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
    """What all entrants stand on: the same texts, the same queries, the same rules."""

    view: View
    field: Field
    plan: Plan
    cache: Path | None
    heard: Callable[[str, int, int], None]
    """What is being done, and how much of how much is done."""

    @cached_property
    def texts(self) -> dict[str, str]:
        """The documents' texts by id."""
        return self.view.texts

    @cached_property
    def warm(self) -> list[str]:
        """Texts to warm up on."""
        return warm_up_queries(self.view.documents, self.view.queries, self.plan.warmup, self.plan.seed)

    @cached_property
    def rarity(self) -> dict[str, int]:
        """In how many documents each word stands."""
        return robustness.rarity_of(self.texts.values())

    def share(self, what: str) -> Callable[[float], None]:
        """Whoever looks on hears which part of it is done."""
        return lambda part: self.heard(what, round(100 * part), 100)

    def means(self, several: Sequence[Scores]) -> list[dict[str, Mean]]:
        """Means with intervals."""
        return all_means(several, self.plan.confidence, self.plan.seed)


@dataclass(frozen=True, eq=False)
class Measured:
    """An entrant, and what is kept beside it."""

    entrant: Entrant
    """Without its gaps: those need the others."""
    ranking: Mapping[str, Sequence[tuple[str, float]]]
    """For each query the documents that were found, best first, and their scores."""
    times: Mapping[str, Times] = field(default_factory=dict)
    """Of the queries that were timed through the first store."""
    references: Mapping[str, float] = field(default_factory=dict)
    """Bits per byte by compressors, where it is a language model."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What measuring took, by what was done."""


def sizes_of(ground: Ground) -> list[int]:
    """The parts of the corpus that are looked at, and all of it; nothing where there is no part."""
    whole, relevant = len(ground.view.documents), len(ground.field.relevant)
    wanted = growth.SIZES if ground.plan.sizes is None else ground.plan.sizes
    fit = sorted({one for one in wanted if relevant <= one < whole})
    return [*fit, whole] if fit else []


def shaken_of(ground: Ground, name: str, clean: Scores, answer: Callable[[Mapping[str, str]], Scores]) -> list[Shaken]:
    """What is left when the queries are written in another way, for whatever answers."""
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
