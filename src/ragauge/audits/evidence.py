"""Input of the audit checks: judgments, runs and known texts, and functions to score them again."""

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
    """Input of the audit checks.

    A check that requires a field that is None is skipped with a reason.
    """

    judgments: Judgments
    runs: Mapping[str, Run]
    measures: Sequence[Measure]
    rules: Convention
    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Further runs of a system over the same queries, by the name of the system."""
    undefined: Sequence[Measure] = ()
    """Requested measures that are left out because their cutoff exceeds the k of some run."""
    claims: Sequence[tuple[str, str]] = ()
    """Pairs of a measure and a published score to explain, as text with its digits."""
    _kept: dict[tuple[Any, ...], JudgedRanks] = field(default_factory=dict, repr=False)
    _averages: dict[str, Scores] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Measure:
        """The main measure, used where only one can be shown."""
        return self.measures[0]

    def judged(
        self,
        run: str | Retrieved,
        *,
        rules: Convention | None = None,
        judgments: Judgments | None = None,
        top: int = 0,
    ) -> JudgedRanks:
        """Return the judged ranks of a run, given or by name.

        Optionally under another convention or with other judgments. Ranks of a named run are cached and shared by
        all conventions that rank documents in the same order.
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
        if timings is not None:  # Empty and failed results are results too, and must stay in the mean.
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
        """Score a run, optionally by another convention, judgments or measures."""
        chosen, wanted = rules or self.rules, measures or self.measures
        return score(self.judged(run, rules=chosen, judgments=judgments, top=top_needed(wanted)), wanted, chosen)

    def averages(self, run: str) -> Scores:
        """Return the scores of a run averaged over its repeats.

        A query is NaN if it is NaN in any repeat.
        """
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
    """Return the options of a convention that affect the rank of a document."""
    return (rules.ties, rules.width, rules.own, rules.unjudged, rules.depth, rules.duplicates)


def top_needed(measures: Sequence[Measure]) -> int:
    """Return how many top documents per query the measures need.

    0 if judged ranks are enough.
    """
    options = [dict(one.options) for one in measures]
    deep = [
        int(one.cutoff or 0)
        for one, chosen in zip(measures, options, strict=True)
        if one.spec.needs_top or chosen.get("of") == "eps"
    ]
    # If duplicates are removed before the cutoff, documents far below it can move above it.
    return 0 if not deep else EVERYTHING if any(one.get("dedupe") == "before" for one in options) else max(deep)
