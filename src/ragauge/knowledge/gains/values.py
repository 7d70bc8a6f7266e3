"""Values of rankings: what the terms of a gain are for a query that was answered so or so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ragauge.knowledge.gains.weights import CONTEXT_RECALL, NOVELTY
from ragauge.measures.names import Measure
from ragauge.records import Floats, Judgments, Nested

Ranking = tuple[str, ...]
"""Ids, best first."""
Rankings = Mapping[str, Ranking]
"""By query."""
Variant = tuple[str, Ranking]
"""A query, and what it might have got."""
Count = Callable[[Judgments, Nested, Sequence[Measure]], Floats]
"""Judgments and a run to the values of some measures: a row for each query, a column for each measure."""
Judge = Callable[[Sequence[tuple[str, tuple[str, ...]]]], Floats]
"""Queries, each with the texts that it got, to their context recalls; NaN where there is none."""


class Values:
    """Tells what rankings are worth, and remembers it: the same ranking of the same query is looked at once."""

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
        """The terms that queries have values of."""
        self.weights = np.array([weights[name] for name in self.names])
        less = {str(one): one.spec.lower_is_better for one in measures}
        self.signs = np.array([-1.0 if less.get(name) else 1.0 for name in self.names])
        """-1 where less is better."""
        cut = [one for one in measures if one.cutoff is not None and one.spec.cutoff != "level"]
        self.depth = max([k, *(int(one.cutoff or 0) for one in cut)])
        """So many documents of a ranking are looked at."""
        self._judgments = judgments
        uncut = [one for one in measures if one not in cut]
        self._groups = [(depth, some) for depth, some in ((self.depth, cut), (k, uncut)) if some]
        """Measures, and how deep they look: those that can have no cutoff as deep as k, whatever the others do."""
        self._count = count
        self._judge = judge
        self._k = k
        self._counted: dict[Variant, Floats] = {}
        self._judged: dict[tuple[str, tuple[str, ...]], float] = {}

    def of(self, variants: Sequence[Variant], texts: Mapping[str, str]) -> Floats:
        """A row for each variant, a column for each term; `texts` are those of the documents at that time."""
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
        """The terms that can be told of a ranking that nobody has seen yet."""
        return [at for at, name in enumerate(self.names) if name != CONTEXT_RECALL or self._judge is not None]

    def without_judge(self) -> Values:
        """The same, but that nobody is asked any more; what was said is known."""
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
