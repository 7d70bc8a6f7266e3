"""Variants of scoring the same run: changes of one option or input at a time."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ragauge.audits.conventions import restated
from ragauge.audits.evidence import Evidence, ranking_rules, top_needed
from ragauge.errors import RagaugeError
from ragauge.measures.conventions import CHOICES, Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score
from ragauge.records import Judgments, Run

CUTOFFS = (1, 3, 5, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
DEPTHS = (10, 20, 50, 100, 1000)
WORDS = {
    ("ties", "trec"): "equal scores by document id, down",
    ("ties", "ranked"): "equal scores in the order given",
    ("ties", "expected"): "the mean over all orders of equal scores",
    ("width", "float32"): "scores as 32-bit floats",
    ("own", "dropped"): "documents that are the query itself taken out",
    ("unjudged", "condensed"): "unjudged documents taken out",
    ("missing", "skip"): "only queries that the run has",
    ("none", "skip"): "only queries with a relevant document",
    ("none", "one"): "queries without a relevant document count 1",
    ("none", "recall-one"): "queries without a relevant document have a recall of 1",
    ("duplicates", "count"): "a document counts each time it comes",
    ("duplicates", "first"): "a document counts where it comes first",
}
"""Explanations of convention options whose names are not clear alone."""


@dataclass(frozen=True)
class Case:
    """One way to score: convention, measure, and the names of changed inputs."""

    rules: Convention
    measure: Measure
    judgments: str = ""
    run: str = ""


@dataclass(frozen=True)
class Departure:
    """One change relative to the audit's scoring.

    Two changes of one kind exclude each other.
    """

    kind: str
    label: str
    step: Callable[[Case], Case | None]
    how: str = ""
    """Options of `evaluate` that score this way; empty if the data must be changed instead."""


@dataclass(eq=False)
class Counting:
    """Scores variants of one measure of one run, and caches judged ranks and scores."""

    evidence: Evidence
    run: str
    measure: Measure
    _judged: dict[tuple[Any, ...], JudgedRanks] = field(default_factory=dict)
    _made: dict[str, Judgments | Run] = field(default_factory=dict)
    _values: dict[Case, tuple[float, int] | None] = field(default_factory=dict)

    def count(self, case: Case) -> tuple[float, int] | None:
        """Return the mean and the number of queries of a variant.

        None if it cannot be scored.
        """
        if case not in self._values:
            self._values[case] = self._count(case)
        return self._values[case]

    def _count(self, case: Case) -> tuple[float, int] | None:
        evidence, top = self.evidence, top_needed([case.measure])
        try:
            key = (*ranking_rules(case.rules), case.judgments, case.run, top)
            if key not in self._judged:
                judgments: Any = self._made[case.judgments] if case.judgments else None
                run: Any = self._made[case.run] if case.run else self.run
                self._judged[key] = evidence.judged(run, rules=case.rules, judgments=judgments, top=top)
            found = score(self._judged[key], [case.measure], case.rules)
        except RagaugeError:
            return None
        mean, n = next(iter(found.means.values())), next(iter(found.n.values()))
        return None if math.isnan(mean) else (mean, n)

    @property
    def base(self) -> Case:
        """The variant that the audit itself uses."""
        return Case(self.evidence.rules, self.measure)

    def departures(self) -> list[Departure]:
        """Return every single change that can affect this measure and run."""
        rules, measure = self.evidence.rules, self.measure
        steps = [
            _option(name, value)
            for name, values in _choices(self.evidence, measure).items()
            for value in values
            if value != getattr(rules, name)
        ]
        deepest = int(self.evidence.judged(self.run).retrieved.max(initial=0))
        steps += [_option("depth", k) for k in DEPTHS if k < deepest]
        cutoffs = [k for k in CUTOFFS if k <= max(deepest, 10)] if measure.spec.cutoff in ("rank", "rank?") else []
        if measure.spec.cutoff == "rank?":
            cutoffs = [*cutoffs, 0]
        steps += [_cutoff(measure, k or None) for k in cutoffs if (k or None) != measure.cutoff]
        return [*(one for one in steps if one.step(self.base) is not None), *self._other_data()]

    def _other_data(self) -> Iterator[Departure]:
        """Yield changes of the data.

        These are: no orphans, low grades as 0, or the rank column instead of the scores.
        """
        evidence = self.evidence
        frame = evidence.judgments.frame
        if evidence.documents is not None:
            known = {one.id for one in evidence.documents}
            inside = frame["doc"].is_in(list(known))
            if not inside.all():
                self._made["orphans"] = Judgments(frame.filter(inside))
                yield _data("judgments", "orphans", "judged documents that are not in the corpus left out")
        if "rel" not in self.measure.spec.options:
            import polars as pl

            levels = sorted({float(g) for g in frame["grade"].unique() if g > 0})[1:4]
            for level in levels:
                name = f"grades below {level:g} count 0"
                keep = pl.when(pl.col("grade") < level).then(pl.min_horizontal("grade", 0.0)).otherwise(pl.col("grade"))
                self._made[name] = Judgments(frame.with_columns(keep.cast(pl.Float64).alias("grade")))
                yield _data("judgments", name, name)
        run = evidence.runs[self.run]
        if "rank" in run.table.columns:
            by_rank = run.table.with_columns((-run.table["rank"].cast(float)).alias("score"))
            changed = run.table.select(
                rises=(run.table["score"].diff().fill_null(0) > 0)
                & (run.table["query"] == run.table["query"].shift())
                & (run.table["rank"].diff().fill_null(0) > 0)
            )["rises"].any()
            if changed:
                self._made["by rank"] = replace(run, table=by_rank)
                yield _data("run", "by rank", "ordered by the rank column, scores ignored")


def _choices(evidence: Evidence, measure: Measure) -> dict[str, Sequence[Any]]:
    """Return the values to try for each option of a convention.

    Options that do not affect the measure are dropped later.
    """
    grades = sorted({float(g) for g in np.unique(evidence.judgments.pool.grades) if g > 0})
    found: dict[str, Sequence[Any]] = dict(CHOICES)
    del found["missing"], found["duplicates"]
    found["missing"] = ("zero", "skip")
    if measure.spec.name not in ("recall", "set_recall"):  # For other measures, `recall-one` equals `zero`.
        found["none"] = ("zero", "skip", "one")
    if evidence.rules.duplicates != "error":  # The run has duplicate documents.
        found["duplicates"] = ("first", "count")
    found["gain"] = ("linear", "exp", "binary")
    found["rel"] = tuple(dict.fromkeys([1.0, *grades[:4]])) if "rel" in measure.spec.options else ()
    return found


def _option(name: str, value: Any) -> Departure:
    def step(case: Case) -> Case | None:
        try:
            other = case.rules.but(**{name: value})
            measure = restated(case.measure, case.rules, other)
        except RagaugeError:
            return None
        counts = name in ("missing", "none") or ranking_rules(other) != ranking_rules(case.rules)
        return replace(case, rules=other, measure=measure) if counts or measure != case.measure else None

    shown = f"{value:g}" if isinstance(value, float) else str(value)
    words = WORDS.get((name, value))
    return Departure(name, f"{name}={shown}" + (f" ({words})" if words else ""), step, f"--set {name}={shown}")


def _cutoff(measure: Measure, k: int | None) -> Departure:
    other = Measure(measure.spec, k, measure.options)

    def step(case: Case) -> Case | None:
        return replace(case, measure=Measure(case.measure.spec, k, case.measure.options))

    return Departure("cutoff", f"the measure is {other}", step, f"-m {shlex.quote(str(other))}")


def _data(what: str, name: str, label: str) -> Departure:
    def step(case: Case) -> Case | None:
        return replace(case, judgments=name) if what == "judgments" else replace(case, run=name)

    return Departure(what, label, step)
