"""Indicators that gate rules refer to: measures, latencies and query counts."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.record_types import json_form
from ragauge.core.records import Floats, Scores
from ragauge.measures import answers
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure, parse_measure
from ragauge.measures.registry import geometric_mean, mean, total

UNSCORED_PREFIX = "unscored"
"""Prefix of indicators such as `unscored(faithfulness)`: the number of queries without a value."""


@json_form(omitted=("stage", "statistic", "unscored_measure"))
@dataclass(frozen=True)
class Indicator:
    """An indicator: a named number of a run, to which a rule can refer."""

    name: str
    """Canonical name."""
    source: str = "measure"
    """Source: `measure`, `latency` (a time per query), `count` (of queries), `whole` (of the run), or `corpus`."""
    lower_is_better: bool = False
    direction_known: bool = True
    """Whether the direction is stated or follows from the name; rules about a change need it."""
    paired: bool = True
    """Whether it is an aggregate of one value per query, so that two runs can be tested in pairs."""
    splits: bool = True
    """Whether it can be computed for a subset of the queries."""
    unit: str = ""
    """`ms`, `s`, `queries/s` or `count`; empty for scores and rates."""
    stage: str = ""
    """Stage of a latency; `total` for the whole query."""
    statistic: str = ""
    """Statistic of a latency, one of `LATENCY_STATISTICS`."""
    unscored_measure: str = ""
    """Measure whose queries without a value are counted."""

    @property
    def measure(self) -> str:
        """The measure that it refers to; empty if there is none."""
        return self.name if self.source == "measure" else self.unscored_measure


LATENCY_STATISTICS = ("p50", "p90", "p95", "p99", "mean", "max")
LATENCY_PATTERN = re.compile(rf"(?:(?P<stage>.+)_)?(?P<statistic>{'|'.join(LATENCY_STATISTICS)})_ms", re.I)
RUN_INDICATORS = {
    "throughput": Indicator("throughput", "whole", lower_is_better=False, paired=False, splits=False, unit="queries/s"),
    "cold_ms": Indicator("cold_ms", "whole", lower_is_better=True, paired=False, splits=False, unit="ms"),
    "build_seconds": Indicator("build_seconds", "whole", lower_is_better=True, paired=False, splits=False, unit="s"),
    "documents": Indicator("documents", "corpus", lower_is_better=False, paired=False, splits=False, unit="count"),
}
COUNT_INDICATORS = {
    "failed": Indicator("failed", "count", lower_is_better=True, paired=False, unit="count"),
    "missing": Indicator("missing", "count", lower_is_better=True, paired=False, unit="count"),
    "empty": Indicator("empty", "count", lower_is_better=True, paired=False, unit="count"),
    "queries": Indicator("queries", "count", lower_is_better=False, paired=False, unit="count"),
}
UNSCORED_PATTERN = re.compile(rf"{UNSCORED_PREFIX}\s*\(\s*(.+?)\s*\)", re.I)
TIMING_NAMES = (
    *(f"{statistic}_ms" for statistic in LATENCY_STATISTICS),
    *(name for name, indicator in RUN_INDICATORS.items() if indicator.source == "whole"),
)
INDICATOR_NAMES = (*TIMING_NAMES, "documents", *COUNT_INDICATORS)
TIMING_WORDS_PATTERN = re.compile(
    r"latenc|time|speed|slow|fast|duration|delay|second|throughput|qps|response|per_?sec|_ms$|^ms$"
)
"""Words that suggest a timing but are not the name of one."""


def find_indicator(text: str, convention: Convention, known: Sequence[Scores] = ()) -> Indicator:
    """Find an indicator by name; measure names in the `known` scores take precedence.

    Raises `UnknownName` with a suggestion if there is none.

    >>> from ragauge.measures.conventions import PRESETS
    >>> [find_indicator(name, PRESETS["default"]).name for name in ("nDCG@10", "P95_ms", "total_mean_ms")]
    ['ndcg@10', 'p95_ms', 'mean_ms']
    >>> embedding = find_indicator("embed_p95_ms", PRESETS["default"])
    >>> embedding.stage, embedding.statistic
    ('embed', 'p95')
    """
    name = text.strip()
    unscored_match = UNSCORED_PATTERN.fullmatch(name)
    if unscored_match:
        inner = find_indicator(unscored_match[1], convention, known)
        if inner.source != "measure":
            raise BadInput(f"`{name}` does not name a measure", hint=f"`{UNSCORED_PREFIX}(faithfulness)`")
        return Indicator(
            f"{UNSCORED_PREFIX}({inner.name})",
            "count",
            lower_is_better=True,
            paired=False,
            unit="count",
            unscored_measure=inner.name,
        )
    for scores in known:
        if name in scores.values:
            own_name = name if name in scores.measures else scores.values._canonical(name)
            unknown = own_name in scores.direction_unstated
            return replace(
                _measure_indicator(own_name, own_name in scores.lower_is_better), direction_known=not unknown
            )
    if any(scores.judge for scores in known) and answers.is_answer_measure(name):  # not computed yet
        judged = answers.parse_answer_measure(name, convention)
        return _measure_indicator(str(judged), judged.spec.lower_is_better)
    lower = name.lower()
    if lower in RUN_INDICATORS:
        return RUN_INDICATORS[lower]
    if lower in COUNT_INDICATORS:
        return COUNT_INDICATORS[lower]
    latency_match = LATENCY_PATTERN.fullmatch(name)
    if latency_match:
        return _latency_indicator(latency_match["stage"] or "total", latency_match["statistic"].lower())
    try:
        measure = parse_measure(name, convention)
    except UnknownName:
        measured = [m for scores in known for m in scores.measures]
        if TIMING_WORDS_PATTERN.search(lower) and not difflib.get_close_matches(lower, measured, n=1):
            raise UnknownName("measure", name, (), hint=_suggest_timing(lower)) from None
        own_names = [*INDICATOR_NAMES, *measured]
        if known or difflib.get_close_matches(lower, own_names, n=1):
            hint = f"besides the measures (`ragauge measures`), choose one of {', '.join(own_names)}"
            raise UnknownName("measure", name, own_names, hint=hint) from None
        raise
    return _measure_indicator(str(measure), measure.spec.lower_is_better)


def _latency_indicator(stage: str, statistic: str) -> Indicator:
    stage = "total" if stage.lower() == "total" else stage
    name = f"{statistic}_ms" if stage == "total" else f"{stage}_{statistic}_ms"
    return Indicator(name, "latency", lower_is_better=True, unit="ms", stage=stage, statistic=statistic)


def _suggest_timing(lower: str) -> str:
    """Suggest the timing that an unknown name may refer to.

    >>> _suggest_timing("mean latency").partition(" Choose")[0]
    'did you mean `mean_ms`?'
    """
    statistic = next((name for name in LATENCY_STATISTICS if name in lower), "p95")
    suggestion = "throughput" if re.search("qps|through|per_?sec", lower) else f"{statistic}_ms"
    return f"did you mean `{suggestion}`? Choose one of {', '.join(TIMING_NAMES)}"


def _measure_indicator(name: str, lower_is_better: bool) -> Indicator:
    aggregate = find_aggregate(name)
    return Indicator(
        name,
        lower_is_better=lower_is_better,
        paired=aggregate not in (None, geometric_mean),
        splits=aggregate is not None,
        unit="count" if aggregate is total else "",
    )


def find_aggregate(name: str) -> Callable[[Floats], float] | None:
    """Return the function that aggregates per-query values.

    None if the value is not an aggregate of them.
    """
    measure = find_measure(name)
    if measure is None:
        return mean
    return None if dict(measure.options).get("of") == "means" else measure.spec.aggregate


def measure_range(name: str, known_values: Iterable[Floats] = ()) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a measure.

    Infinite if unknown, or if known values exceed the range: a table of another tool may hold percentages.

    >>> import numpy as np
    >>> measure_range("ndcg@10"), measure_range("dcg@10"), measure_range("ndcg@10", [np.array([38.5])])
    ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    measure, answer_spec = find_measure(name), answers.find_answer_spec(name)
    unbounded = (-math.inf, math.inf)
    low, high = measure.bounds if measure is not None else (0.0, 1.0) if answer_spec is not None else unbounded
    exceeds = any(bool(((values < low) | (values > high)).any()) for values in known_values)
    return unbounded if exceeds else (low, high)


def measure_span(name: str, known_values: Iterable[Floats] = ()) -> float:
    """Return the largest possible difference of two values of a measure; infinity if it is unknown.

    >>> measure_span("ndcg@10"), measure_span("my_measure")
    (1.0, inf)
    """
    low, high = measure_range(name, known_values)
    return high - low


def find_measure(name: str) -> Measure | None:
    """Parse a canonical measure name; None if it is not a known measure."""
    try:
        return parse_measure(name)
    except (BadInput, UnknownName):
        return None
