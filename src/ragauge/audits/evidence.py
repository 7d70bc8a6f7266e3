"""What an audit looks at: judgments, runs, and texts where they are known; and scoring them again, otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ragauge.measures.conventions import Convention
from ragauge.measures.from_frames import judged_ranks
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score
from ragauge.records import ByMeasure, Document, Judgments, Retrieved, Run, Scores

EVERYTHING = 1 << 31


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that is known; a check that needs what is None is skipped and says so."""

    judgments: Judgments
    runs: Mapping[str, Run]
    measures: Sequence[Measure]
    rules: Convention
    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Further runs of the same system over the same queries, by the system's name."""
    undefined: Sequence[Measure] = ()
    """Requested measures that are left out, because their cutoff is deeper than the k of some run."""
    claims: Sequence[tuple[str, str]] = ()
    """Measures and figures from elsewhere that are to be explained, with the digits that were given."""
    _kept: dict[tuple[Any, ...], JudgedRanks] = field(default_factory=dict, repr=False)
    _averages: dict[str, Scores] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Measure:
        """The measure that stands for all where there is room for one."""
        return self.measures[0]

    def judged(
        self,
        run: str | Retrieved,
        *,
        rules: Convention | None = None,
        judgments: Judgments | None = None,
        top: int = 0,
    ) -> JudgedRanks:
        """The judged ranks of a run, by name or given, under other rules or other judgments if so.

        Those of a run by name are counted once for all conventions that rank alike.
        """
        chosen = rules or self.rules
        if not isinstance(run, str) or judgments is not None:
            return self._count(self.runs[run] if isinstance(run, str) else run, chosen, judgments, top, run)
        key = (run, top, *ranking_rules(chosen))
        if key not in self._kept:
            self._kept[key] = self._count(self.runs[run], chosen, None, top, run)
        return self._kept[key]

    def _count(
        self, run: Retrieved, rules: Convention, judgments: Judgments | None, top: int, name: str | Retrieved
    ) -> JudgedRanks:
        found = judged_ranks(judgments or self.judgments, run, rules, top=top)
        timings = getattr(run, "timings", None)
        if timings is not None:  # an empty answer, or a failure, is an answer: it must not leave the mean
            asked = set(timings["query"].to_list())
            known = np.array([query in asked for query in found.pool.queries], np.bool_)
            found = replace(found, answered=found.answered | known)
        return replace(found, name=name) if isinstance(name, str) else found

    def scores(
        self,
        run: str | Retrieved,
        *,
        rules: Convention | None = None,
        judgments: Judgments | None = None,
        measures: Sequence[Measure] | None = None,
    ) -> Scores:
        """The run's scores, counted again."""
        chosen, wanted = rules or self.rules, measures or self.measures
        return score(self.judged(run, rules=chosen, judgments=judgments, top=top_needed(wanted)), wanted, chosen)

    def averages(self, run: str) -> Scores:
        """The run's scores over all times that it was asked; a query that has no value some time has none here."""
        again = self.repeats.get(run) or ()
        if not again:
            return self.scores(run)
        if run not in self._averages:
            times = [self.scores(run), *(self.scores(one) for one in again)]
            first = times[0]
            named = first.values._canonical
            values = {name: np.mean([one.values[name] for one in times], axis=0) for name in first.measures}
            means = {name: float(np.mean([one.means[name] for one in times])) for name in first.measures}
            reasons = {name: {q: w for one in times for q, w in one.unscored[name].items()} for name in first.measures}
            self._averages[run] = replace(
                first,
                values=ByMeasure(values, named),
                means=ByMeasure(means, named),
                unscored=ByMeasure(reasons, named),
                judged=None,
            )
        return self._averages[run]


def ranking_rules(rules: Convention) -> tuple[Any, ...]:
    """The options of a convention that decide at which rank a document stands; the others only count."""
    return (rules.ties, rules.width, rules.own, rules.unjudged, rules.depth, rules.duplicates)


def top_needed(measures: Sequence[Measure]) -> int:
    """How many first documents of each query the measures look at themselves; 0 where judged ranks are enough."""
    options = [dict(one.options) for one in measures]
    deep = [
        int(one.cutoff or 0)
        for one, chosen in zip(measures, options, strict=True)
        if one.spec.needs_top or chosen.get("of") == "eps"
    ]
    # Where repetitions are dropped before the cut, documents from far below it can rise above it.
    return 0 if not deep else EVERYTHING if any(one.get("dedupe") == "before" for one in options) else max(deep)
