"""Indicators that gate rules refer to: measures, latencies, freshness rates and query counts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Floats, MeasureDict, Scores
from ragauge.measures import answers
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure, parse_measure
from ragauge.measures.registry import geometric_mean, mean

FRESHNESS_RATES = ("stale_rate", "stale_query_rate", "conflict_rate", "conflict_query_rate")
"""Names of the freshness rates of a run; lower is better for each."""


UNSCORED_PREFIX = "unscored"
"""Prefix of indicators such as `unscored(faithfulness)`: the number of queries without a value."""


@dataclass(frozen=True)
class Indicator:
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

        >>> Indicator("unscored(recall@5)", "count").measure, Indicator("recall@5").measure
        ('recall@5', 'recall@5')
        >>> Indicator("throughput", "whole").measure
        ''
        """
        if self.source == "measure":
            return self.name
        return self.name[len(UNSCORED_PREFIX) + 1 : -1] if self.name.startswith(f"{UNSCORED_PREFIX}(") else ""


LATENCY_STATISTICS = ("p50", "p90", "p95", "p99", "mean", "max")
LATENCY_PATTERN = re.compile(rf"(?:(?P<stage>.+)_)?(?P<statistic>{'|'.join(LATENCY_STATISTICS)})_ms", re.I)
RUN_INDICATORS = {
    "throughput": Indicator("throughput", "whole", lower_is_better=False, paired=False, splits=False),
    "cold_ms": Indicator("cold_ms", "whole", lower_is_better=True, paired=False, splits=False),
    "build_seconds": Indicator("build_seconds", "whole", lower_is_better=True, paired=False, splits=False),
}
COUNT_INDICATORS = {
    "failed": Indicator("failed", "count", lower_is_better=True, paired=False),
    "missing": Indicator("missing", "count", lower_is_better=True, paired=False),
    "queries": Indicator("queries", "count", lower_is_better=False, paired=False),
}
FRESHNESS_PATTERN = re.compile(rf"(?P<what>stale|conflict|{'|'.join(FRESHNESS_RATES)})(?:@(?P<k>[1-9]\d*))?", re.I)
"""Freshness indicators: `stale_rate@10` over all positions, `stale@10` per query."""
UNSCORED_PATTERN = re.compile(rf"{UNSCORED_PREFIX}\s*\(\s*(.+?)\s*\)", re.I)
TIMING_NAMES = (*(f"{one}_ms" for one in LATENCY_STATISTICS), *RUN_INDICATORS)
INDICATOR_NAMES = (*TIMING_NAMES, *COUNT_INDICATORS, *(f"{one}@10" for one in FRESHNESS_RATES))
TIMING_WORDS_PATTERN = re.compile(
    r"latenc|time|speed|slow|fast|duration|delay|second|throughput|qps|response|per_?sec|_ms$|^ms$"
)
"""Words that suggest a timing but are not the name of one."""


def find_indicator(text: str, convention: Convention, known: Sequence[Scores] = ()) -> Indicator:
    """Find an indicator by name; measure names in the `known` scores take precedence.

    Raises `UnknownName` with a suggestion if there is none.

    >>> from ragauge.measures.conventions import PRESETS
    >>> [find_indicator(name, PRESETS["default"]).name for name in ("nDCG@10", "P95_ms", "embed_p95_ms",
    ...     "total_mean_ms")]
    ['ndcg@10', 'p95_ms', 'embed_p95_ms', 'mean_ms']
    """
    name = text.strip()
    within = UNSCORED_PATTERN.fullmatch(name)
    if within:
        about = find_indicator(within[1], convention, known)
        if about.source not in ("measure", "age"):
            raise BadInput(f"`{name}` is not about a measure", hint=f"`{UNSCORED_PREFIX}(faithfulness)`")
        return Indicator(f"{UNSCORED_PREFIX}({about.name})", "count", lower_is_better=True, paired=False)
    for scores in known:
        if name in scores.values:
            own = name if name in scores.measures else scores.values._canonical(name)
            unknown = own in scores.direction_unstated
            return replace(_measure_indicator(own, own in scores.lower_is_better), direction_known=not unknown)
    if any(scores.judge for scores in known) and answers.is_answer_measure(name):  # not computed yet
        judged = answers.parse_answer_measure(name, convention)
        return _measure_indicator(str(judged), judged.spec.lower_is_better)
    lower = name.lower()
    if lower in RUN_INDICATORS:
        return RUN_INDICATORS[lower]
    if lower in COUNT_INDICATORS:
        return COUNT_INDICATORS[lower]
    timed = LATENCY_PATTERN.fullmatch(name)
    if timed:
        stage = "" if timed["stage"] is None or timed["stage"].lower() == "total" else f"{timed['stage']}_"
        return Indicator(f"{stage}{timed['statistic'].lower()}_ms", "latency", lower_is_better=True)
    aged = FRESHNESS_PATTERN.fullmatch(name)
    if aged:
        return _freshness_indicator(aged["what"].lower(), aged["k"])
    try:
        measure = parse_measure(name, convention)
    except UnknownName:
        measured = [m for scores in known for m in scores.measures]
        if TIMING_WORDS_PATTERN.search(lower) and not difflib.get_close_matches(lower, measured, n=1):
            raise UnknownName("figure", name, (), hint=_suggest_timing(lower)) from None
        own_names = [*INDICATOR_NAMES, *measured]
        if known or difflib.get_close_matches(lower, own_names, n=1):
            hint = f"beside the measures, which `ragauge measures` lists, there are {', '.join(own_names)}"
            raise UnknownName("figure", name, own_names, hint=hint) from None
        raise
    return _measure_indicator(str(measure), measure.spec.lower_is_better)


def _freshness_indicator(what: str, k: str | None) -> Indicator:
    if k is None:
        raise BadInput(f"`{what}` of how many documents?", hint=f"`{what}@10`")
    if what in FRESHNESS_RATES:
        return Indicator(f"{what}@{k}", "age", lower_is_better=True, paired=False)
    return Indicator(f"{what}@{k}", lower_is_better=True)


def freshness_depth(name: str) -> int | None:
    """Return the cutoff of a freshness indicator; None for other indicators.

    >>> freshness_depth("stale_rate@10"), freshness_depth("stale@5"), freshness_depth("recall@5")
    (10, 5, None)
    """
    found = FRESHNESS_PATTERN.fullmatch(name)
    return int(found["k"]) if found and found["k"] else None


def _suggest_timing(lower: str) -> str:
    """Suggest the timing that an unknown name may refer to.

    >>> _suggest_timing("mean latency").partition(" there")[0]
    'did you mean `mean_ms`?'
    """
    statistic = next((one for one in LATENCY_STATISTICS if one in lower), "p95")
    meant = "throughput" if re.search("qps|through|per_?sec", lower) else f"{statistic}_ms"
    return f"did you mean `{meant}`? there are {', '.join(TIMING_NAMES)}"


def _measure_indicator(name: str, lower: bool) -> Indicator:
    how = find_aggregate(name)
    return Indicator(name, lower_is_better=lower, paired=how not in (None, geometric_mean), splits=how is not None)


def find_aggregate(name: str) -> Callable[[Floats], float] | None:
    """Return the function that aggregates per-query values.

    None if the value is not an aggregate of them.
    """
    measure = find_measure(name)
    if measure is None:
        return mean
    return None if dict(measure.options).get("of") == "means" else measure.spec.aggregate


def find_measure(name: str) -> Measure | None:
    """Parse a canonical measure name; None if it is not a known measure."""
    try:
        return parse_measure(name)
    except (BadInput, UnknownName):
        return None


def split_latency_name(figure: Indicator) -> tuple[str, str]:
    """Split the name of a latency indicator into stage and statistic.

    >>> split_latency_name(Indicator("embed_p95_ms", "latency")), split_latency_name(Indicator("max_ms", "latency"))
    (('embed', 'p95'), ('total', 'max'))
    """
    stage, _, statistic = figure.name.removesuffix("_ms").rpartition("_")
    return stage or "total", statistic


def average_trials(trials: Sequence[Scores]) -> Scores:
    """Average the scores of all trials into those of one run.

    A query without a value in any one trial has none. A query counts as returned only if it is in all trials.
    """
    first = trials[0]
    values = {name: np.mean([one.values[name] for one in trials], axis=0) for name in first.measures}
    means = {}
    for name, column in values.items():
        how, scored = find_aggregate(name), ~np.isnan(column)
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
        values=MeasureDict(values, canonical),
        means=MeasureDict(means, canonical),
        unscored=MeasureDict(reasons, canonical),
        notes=[*dict.fromkeys(text for one in trials for text in one.notes), note],
        judged=judged,
    )
