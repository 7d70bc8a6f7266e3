"""Indicators that gate rules refer to: measures, latencies, freshness rates and query counts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import ByMeasure, Floats, Scores
from ragauge.measures import answers
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure, parse
from ragauge.measures.registry import geometric_mean, mean

RATES = ("stale_rate", "stale_query_rate", "conflict_rate", "conflict_query_rate")
"""Names of the freshness rates of a run; lower is better for each."""


UNSCORED = "unscored"
"""Prefix of indicators such as `unscored(faithfulness)`: the number of queries without a value."""


@dataclass(frozen=True)
class Figure:
    """An indicator: a named number of a run, to which a rule can refer."""

    name: str
    """Canonical name."""
    source: str = "measure"
    """Source: `measure`, `latency` (a time per query), `count` (of queries), `whole` (of the run) or `age` (staleness).
    """
    lower_is_better: bool = False
    direction_known: bool = True
    """Whether the direction is stated or follows from the name; rules about a change need it."""
    paired: bool = True
    """Whether it is an aggregate of one value per query, so that two runs can be tested in pairs."""
    splits: bool = True
    """Whether it can be computed for a subset of the queries."""

    @property
    def measure(self) -> str:
        """The measure that it refers to.

        Itself, or the name in brackets, as in `unscored(faithfulness)`. Empty if it refers to no measure.

        >>> Figure("unscored(recall@5)", "count").measure, Figure("recall@5").measure
        ('recall@5', 'recall@5')
        >>> Figure("throughput", "whole").measure
        ''
        """
        if self.source == "measure":
            return self.name
        return self.name[len(UNSCORED) + 1 : -1] if self.name.startswith(f"{UNSCORED}(") else ""


STATISTICS = ("p50", "p90", "p95", "p99", "mean", "max")
LATENCY = re.compile(rf"(?:(?P<stage>.+)_)?(?P<statistic>{'|'.join(STATISTICS)})_ms", re.I)
WHOLE = {
    "throughput": Figure("throughput", "whole", lower_is_better=False, paired=False, splits=False),
    "cold_ms": Figure("cold_ms", "whole", lower_is_better=True, paired=False, splits=False),
    "build_seconds": Figure("build_seconds", "whole", lower_is_better=True, paired=False, splits=False),
}
COUNTS = {
    "failed": Figure("failed", "count", lower_is_better=True, paired=False),
    "missing": Figure("missing", "count", lower_is_better=True, paired=False),
    "queries": Figure("queries", "count", lower_is_better=False, paired=False),
}
AGE = re.compile(rf"(?P<what>stale|conflict|{'|'.join(RATES)})(?:@(?P<k>[1-9]\d*))?", re.I)
"""Freshness indicators: `stale_rate@10` over all positions, `stale@10` per query."""
LACKING = re.compile(rf"{UNSCORED}\s*\(\s*(.+?)\s*\)", re.I)
TIMES = (*(f"{one}_ms" for one in STATISTICS), *WHOLE)
NAMES = (*TIMES, *COUNTS, *(f"{one}@10" for one in RATES))
QUICK = re.compile(r"latenc|time|speed|slow|fast|duration|delay|second|throughput|qps|response|per_?sec|_ms$|^ms$")
"""Words that suggest a timing but are not the name of one."""


def find(text: str, convention: Convention, known: Sequence[Scores] = ()) -> Figure:
    """Find an indicator by name; measure names in the `known` scores take precedence.

    Raises `UnknownName` with a suggestion if there is none.

    >>> from ragauge.measures.conventions import PRESETS
    >>> [find(name, PRESETS["default"]).name for name in ("nDCG@10", "P95_ms", "embed_p95_ms", "total_mean_ms")]
    ['ndcg@10', 'p95_ms', 'embed_p95_ms', 'mean_ms']
    """
    name = text.strip()
    within = LACKING.fullmatch(name)
    if within:
        about = find(within[1], convention, known)
        if about.source not in ("measure", "age"):
            raise BadInput(f"`{name}` is not about a measure", hint=f"`{UNSCORED}(faithfulness)`")
        return Figure(f"{UNSCORED}({about.name})", "count", lower_is_better=True, paired=False)
    for scores in known:
        if name in scores.values:
            own = name if name in scores.measures else scores.values._canonical(name)
            unknown = own in scores.direction_unstated
            return replace(_of_measure(own, own in scores.lower_is_better), direction_known=not unknown)
    if any(scores.judge for scores in known) and answers.is_known(name):  # not computed yet
        judged = answers.parse(name, convention)
        return _of_measure(str(judged), judged.spec.lower_is_better)
    lower = name.lower()
    if lower in WHOLE:
        return WHOLE[lower]
    if lower in COUNTS:
        return COUNTS[lower]
    timed = LATENCY.fullmatch(name)
    if timed:
        stage = "" if timed["stage"] is None or timed["stage"].lower() == "total" else f"{timed['stage']}_"
        return Figure(f"{stage}{timed['statistic'].lower()}_ms", "latency", lower_is_better=True)
    aged = AGE.fullmatch(name)
    if aged:
        return _of_age(aged["what"].lower(), aged["k"])
    try:
        measure = parse(name, convention)
    except UnknownName:
        measured = [m for scores in known for m in scores.measures]
        if QUICK.search(lower) and not difflib.get_close_matches(lower, measured, n=1):
            raise UnknownName("figure", name, (), hint=_time_like(lower)) from None
        own_names = [*NAMES, *measured]
        if known or difflib.get_close_matches(lower, own_names, n=1):
            hint = f"beside the measures, which `ragauge measures` lists, there are {', '.join(own_names)}"
            raise UnknownName("figure", name, own_names, hint=hint) from None
        raise
    return _of_measure(str(measure), measure.spec.lower_is_better)


def _of_age(what: str, k: str | None) -> Figure:
    if k is None:
        raise BadInput(f"`{what}` of how many documents?", hint=f"`{what}@10`")
    if what in RATES:
        return Figure(f"{what}@{k}", "age", lower_is_better=True, paired=False)
    return Figure(f"{what}@{k}", lower_is_better=True)


def depth_of_age(name: str) -> int | None:
    """Return the cutoff of a freshness indicator; None for other indicators.

    >>> depth_of_age("stale_rate@10"), depth_of_age("stale@5"), depth_of_age("recall@5")
    (10, 5, None)
    """
    found = AGE.fullmatch(name)
    return int(found["k"]) if found and found["k"] else None


def _time_like(lower: str) -> str:
    """Suggest the timing that an unknown name may refer to.

    >>> _time_like("mean latency").partition(" there")[0]
    'did you mean `mean_ms`?'
    """
    statistic = next((one for one in STATISTICS if one in lower), "p95")
    meant = "throughput" if re.search("qps|through|per_?sec", lower) else f"{statistic}_ms"
    return f"did you mean `{meant}`? there are {', '.join(TIMES)}"


def _of_measure(name: str, lower: bool) -> Figure:
    how = aggregate_of(name)
    return Figure(name, lower_is_better=lower, paired=how not in (None, geometric_mean), splits=how is not None)


def aggregate_of(name: str) -> Callable[[Floats], float] | None:
    """Return the function that aggregates per-query values.

    None if the value is not an aggregate of them.
    """
    measure = measure_of(name)
    if measure is None:
        return mean
    return None if dict(measure.options).get("of") == "means" else measure.spec.aggregate


def measure_of(name: str) -> Measure | None:
    """Parse a canonical measure name; None if it is not a known measure."""
    try:
        return parse(name)
    except (BadInput, UnknownName):
        return None


def stage_of(figure: Figure) -> tuple[str, str]:
    """Split the name of a latency indicator into stage and statistic.

    >>> stage_of(Figure("embed_p95_ms", "latency")), stage_of(Figure("max_ms", "latency"))
    (('embed', 'p95'), ('total', 'max'))
    """
    stage, _, statistic = figure.name.removesuffix("_ms").rpartition("_")
    return stage or "total", statistic


def averaged(trials: Sequence[Scores]) -> Scores:
    """Average the scores of all trials into those of one run.

    A query without a value in any one trial has none. A query counts as returned only if it is in all trials.
    """
    first = trials[0]
    values = {name: np.mean([one.values[name] for one in trials], axis=0) for name in first.measures}
    means = {}
    for name, column in values.items():
        how, scored = aggregate_of(name), ~np.isnan(column)
        if how is None or not scored.any():  # the measure is not an aggregate of per-query values
            means[name] = float(np.mean([one.means[name] for one in trials]))
        else:
            means[name] = float(how(column[scored]))
    reasons = {name: {q: why for one in reversed(trials) for q, why in one.unscored[name].items()} for name in values}
    every = [one.judged for one in trials]
    judged = replace(
        first.judged,
        answered=np.all([one.answered for one in every], axis=0),
        retrieved=np.max([one.retrieved for one in every], axis=0),
    )
    note = f"the rankings of {first.run} differ between {len(trials)} repeats: a query counts with its mean over them"
    canonical = first.values._canonical
    return replace(
        first,
        values=ByMeasure(values, canonical),
        means=ByMeasure(means, canonical),
        unscored=ByMeasure(reasons, canonical),
        notes=[*dict.fromkeys(text for one in trials for text in one.notes), note],
        judged=judged,
    )
