"""From judged ranks to scores: the measures are counted, then the convention says what becomes of odd queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ragauge.errors import BadInput
from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedQuery, JudgedRanks
from ragauge.measures.names import Measure, make, parse
from ragauge.measures.table import TABLE, mean
from ragauge.records import ByMeasure, Floats, Scores

OwnMeasure = Callable[[JudgedQuery], float]
"""A measure of your own: a function from one judged query to a number (NaN for none)."""

MISSING = "the run does not have the query"
NONE = "no document is relevant"
NO_VALUE = "the measure gave no number"


def score(judged: JudgedRanks, measures: Sequence[Measure | OwnMeasure], convention: Convention) -> Scores:
    """A value per query for each measure, their means, and why some queries have none."""
    _check_missing(judged, convention)
    values: dict[str, Floats] = {}
    means: dict[str, float] = {}
    unscored: dict[str, Mapping[str, str]] = {}
    for measure in measures:
        name = str(measure) if isinstance(measure, Measure) else getattr(measure, "__name__", "own_measure")
        if name in values:
            raise BadInput(f"two measures are named `{name}`", hint="a function of your own goes by its __name__")
        column, without, average = _one(judged, measure, convention)
        values[name], means[name], unscored[name] = column, average, without
    canonical = partial(_canonical, convention)
    return Scores(
        run=judged.name,
        convention=convention.name,
        queries=judged.pool.queries,
        values=ByMeasure(values, canonical),
        means=ByMeasure(means, canonical),
        unscored=ByMeasure(unscored, canonical),
        notes=_notes(judged, convention),
        rel=convention.rel,
        lower_is_better=frozenset(str(m) for m in measures if isinstance(m, Measure) and m.spec.lower_is_better),
        judged=judged,
    )


def _canonical(convention: Convention, name: str) -> str:
    """The canonical name of a measure; whatever is none stays as it is."""
    try:
        return str(parse(name, convention))
    except (BadInput, LookupError):
        return name


def _one(
    judged: JudgedRanks, measure: Measure | OwnMeasure, convention: Convention
) -> tuple[Floats, dict[str, str], float]:
    """The values, the reasons of those without one, and the mean."""
    column, no_relevant, keeps, aggregate = _counted(judged, measure, convention)
    missing = ~judged.answered
    out: dict[int, str] = {}
    if convention.none == "one":
        column = np.where(no_relevant, 1.0, column)
    elif convention.none == "skip":
        out.update(dict.fromkeys(np.flatnonzero(no_relevant).tolist(), NONE))
    if convention.missing == "skip":
        out.update(dict.fromkeys(np.flatnonzero(missing).tolist(), MISSING))
    elif not keeps:
        column = np.where(missing & ~(no_relevant & (convention.none == "one")), 0.0, column)
    for at in np.flatnonzero(np.isnan(column)).tolist():
        out.setdefault(at, NO_VALUE)
    scored = np.ones(judged.n, np.bool_)
    scored[list(out)] = False
    column = np.where(scored, column, math.nan)
    if not scored.any():
        average = math.nan
    elif isinstance(measure, Measure) and dict(measure.options).get("of") == "means":
        average = _f1_of_means(judged, measure, convention)
    else:
        average = aggregate(column[scored])
    queries = judged.pool.queries
    return column, {queries[at]: reason for at, reason in sorted(out.items())}, average


def _counted(
    judged: JudgedRanks, measure: Measure | OwnMeasure, convention: Convention
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.bool_]], bool, Callable[[Floats], float]]:
    """The bare values, the queries that `none` is for, whether missing queries keep theirs, and the mean's kind."""
    nobody = np.zeros(judged.n, np.bool_)
    if not isinstance(measure, Measure):
        column = np.fromiter((measure(query) for query in judged.each()), np.float64, judged.n)
        return column, nobody, False, mean
    spec = measure.spec
    if judged.averaged and not spec.averages_ties:
        raise BadInput(
            f"{spec.name} is not defined as a mean over the orders of ties",
            hint="another convention, or ties=trec, settles ties by a rule",
        )
    options = dict(measure.options)
    column = spec(judged, measure.cutoff, options)
    kept = convention.none == "zero" or (convention.none == "one" and spec.name in ("precision", "set_precision"))
    if spec.needs_relevant and not kept:
        # Measures of gain know no least relevant grade: any grade above 0 is worth something to them.
        pool = judged.pool
        good = pool.grades >= options["rel"] if "rel" in options else pool.grades > 0
        nobody = np.bincount(pool.owner[good], minlength=judged.n) == 0
    return column, nobody, spec.keeps_missing, spec.aggregate


def _f1_of_means(judged: JudgedRanks, measure: Measure, convention: Convention) -> float:
    options = dict(measure.options)
    parts = [("precision", options["precision_of"]), ("recall", options["recall_of"])]
    means = [
        _one(judged, make(TABLE[name], measure.cutoff, {"of": of, "rel": options["rel"]}, convention), convention)[2]
        for name, of in parts
    ]
    return 2 * means[0] * means[1] / sum(means) if sum(means) else 0.0


def _check_missing(judged: JudgedRanks, convention: Convention) -> None:
    if convention.missing == "error" and not judged.answered.all():
        absent = np.flatnonzero(~judged.answered)
        first = ", ".join(f"`{judged.pool.queries[i]}`" for i in absent[:3].tolist())
        more = ", …" if len(absent) > 3 else ""
        raise BadInput(
            f"{judged.name} has no ranking for {len(absent)} of {judged.n} judged queries ({first}{more})",
            hint="`--set missing=zero` counts them 0, `--set missing=skip` leaves them out",
        )


def _notes(judged: JudgedRanks, convention: Convention) -> list[str]:
    notes = []
    absent = int((~judged.answered).sum())
    if absent:
        fate = "count 0" if convention.missing == "zero" else "are left out"
        notes.append(f"{judged.name} does not have {absent:,} of {judged.n:,} judged queries: they {fate}")
    if judged.extra_queries:
        notes.append(f"{judged.name} has {judged.extra_queries:,} queries that nobody judged: they are not scored")
    grades = judged.pool.grades
    if len(grades) and (grades != np.floor(grades)).any():
        notes.append(f"grades are fractions: gain={convention.gain}, and relevant from {convention.rel:g} on")
    return notes
