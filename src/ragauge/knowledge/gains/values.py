"""Terms of a gain: their weights, and their values for rankings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ragauge.knowledge.gains.weights import CONTEXT_RECALL, NOVELTY
from ragauge.measures.names import Measure
from ragauge.records import Floats, Judgments, Nested

Ranking = tuple[str, ...]
"""Document ids, best first."""
Rankings = Mapping[str, Ranking]
"""Rankings by query."""
Variant = tuple[str, Ranking]
"""A query and a possible ranking of it."""
Count = Callable[[Judgments, Nested, Sequence[Measure]], Floats]
"""Function from judgments, a run and measures to values: one row per query, one column per measure."""
Judge = Callable[[Sequence[tuple[str, tuple[str, ...]]]], Floats]
"""Function from queries with their retrieved texts to context recalls; NaN if unscored."""


class Values:
    """Scorer of rankings by the terms of a gain.

    Each ranking of a query is scored once and cached.
    """

    def __init__(
        self,
        judgments: Judgments,
        weights: Mapping[str, float],
        measures: Sequence[Measure],
        count: Count,
        *,
        k: int,
        judge: Judge | None = None,
    ) -> None:
        self.names = [name for name in weights if name != NOVELTY]
        """Names of the terms that have a value per query."""
        self.weights = np.array([weights[name] for name in self.names])
        less = {str(one): one.spec.lower_is_better for one in measures}
        self.signs = np.array([-1.0 if less.get(name) else 1.0 for name in self.names])
        """-1 for terms with lower-is-better measures, 1 for the others."""
        cut = [one for one in measures if one.cutoff is not None and one.spec.cutoff != "level"]
        self.depth = max([k, *(int(one.cutoff or 0) for one in cut)])
        """Number of documents used of a ranking."""
        self._judgments = judgments
        uncut = [one for one in measures if one not in cut]
        self._groups = [(depth, some) for depth, some in ((self.depth, cut), (k, uncut)) if some]
        """Depths and their measures; measures that cannot have a cutoff are computed at depth k."""
        self._count = count
        self._judge = judge
        self._k = k
        self._counted: dict[Variant, Floats] = {}
        self._judged: dict[tuple[str, tuple[str, ...]], float] = {}

    def of(self, variants: Sequence[Variant], texts: Mapping[str, str]) -> Floats:
        """Score variants: one row per variant, one column per term.

        `texts` are the document texts of that snapshot.
        """
        found = np.full((len(variants), len(self.names)), math.nan)
        cut = [(query, ranking[: self.depth]) for query, ranking in variants]
        if not cut:
            return found
        if self._groups:
            self._count_new([one for one in dict.fromkeys(cut) if one not in self._counted])
            columns = [self.names.index(str(one)) for _, some in self._groups for one in some]
            found[:, columns] = [self._counted[one] for one in cut]
        if self._judge is not None and CONTEXT_RECALL in self.names:
            got = [(query, tuple(texts.get(one, "") for one in ranking[: self._k])) for query, ranking in cut]
            fresh = [one for one in dict.fromkeys(got) if one not in self._judged]
            if fresh:
                self._judged.update(zip(fresh, self._judge(fresh).tolist(), strict=True))
            found[:, self.names.index(CONTEXT_RECALL)] = [self._judged[one] for one in got]
        return found

    @property
    def told(self) -> list[int]:
        """Indices of the terms that can be computed for a new ranking."""
        return [at for at, name in enumerate(self.names) if name != CONTEXT_RECALL or self._judge is not None]

    def without_judge(self) -> Values:
        """Return a copy that no longer calls the judge but keeps its cached scores."""
        other = object.__new__(Values)
        other.__dict__.update(self.__dict__, _judge=None)
        return other

    def _count_new(self, variants: Sequence[Variant]) -> None:
        if not variants:
            return
        mine = self._judgments
        places = {str(place): variant for place, variant in enumerate(variants)}
        grades = mine.nested
        judgments = Judgments(
            {place: grades.get(query, {}) for place, (query, _) in places.items()},
            subtopics=mine.subtopics and {place: mine.subtopics.get(query, {}) for place, (query, _) in places.items()},
            targets=mine.targets,
            source=mine.source,
        )
        columns = [
            self._count(judgments, {place: _scored(ranking[:depth]) for place, (_, ranking) in places.items()}, some)
            for depth, some in self._groups
        ]
        self._counted.update(zip(variants, np.hstack(columns), strict=True))


def _scored(ranking: Ranking) -> dict[str, float]:
    return {doc: float(len(ranking) - rank) for rank, doc in enumerate(ranking)}
