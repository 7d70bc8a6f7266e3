"""Text of a benchmark report: summary sentences, labels, and formatted values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.core.text import one_line
from ragauge.output.numbers import count_noun, format_milliseconds, format_qps
from ragauge.output.terminal import format_share
from ragauge.store_benchmarks.acceptance import find_failing_stores, has_extra_stages
from ragauge.store_benchmarks.filter_results import (
    FilterKey,
    best_with_filter,
    list_filters,
    name_filter,
    name_setting,
    operating_points,
    points_with_filter,
    without_filters,
)
from ragauge.store_benchmarks.results import (
    RECALL_MEASURE,
    REFERENCE_RECALL,
    Configuration,
    MeasuredConfiguration,
    QpsAtRecall,
    StoreBenchmark,
    format_option,
    select_representative,
)
from ragauge.store_benchmarks.reused_results import describe_mixture

MAX_SIMILAR_DIFFERENCE, MAX_SIMILAR_DIFFERENCE_ONCE = 0.05, 0.2
"""Maximum relative difference in QPS of stores that are about equally fast, with repeats and without."""
MAX_FILTER_SENTENCES = 2
"""Maximum number of filters that get one sentence each."""


def compare_speeds(head: str, qps: float, second: str, next_qps: float, both: Sequence[MeasuredConfiguration]) -> str:
    """Complete a sentence on the fastest store with its lead over the second."""
    spreads = [one.qps_spread for one in both if math.isfinite(one.qps_spread)]
    doubt = "; these times are doubtful" if any(one.clock.doubts for one in both) else ""
    if spreads and qps <= next_qps * (1 + max(spreads)):
        return (
            f"{head}, but {second} ({format_qps(next_qps)}) is within what one store differs from time to time{doubt}."
        )
    if qps < next_qps * (1 + (MAX_SIMILAR_DIFFERENCE if spreads else MAX_SIMILAR_DIFFERENCE_ONCE)):
        return f"{head}, about as many as {second} ({format_qps(next_qps)}){doubt}."
    return f"{head}, {qps / next_qps:.1f} times as many as {second}{doubt}."


def describe_filters(sweep: StoreBenchmark, stores: Sequence[str]) -> list[str]:
    """Name the fastest store with each filter, in one sentence per filter.

    If there are many filters, one sentence covers all of them. Stores that fail a requested rate or update are not
    recommended, unless all of them do.
    """
    keys = list_filters(sweep)
    others = list(find_failing_stores(without_filters(sweep), stores))
    best = {key: best_with_filter(sweep, key, others) for key in keys}
    if len(keys) <= MAX_FILTER_SENTENCES:
        return [_describe_filter(sweep, key, found, len(stores)) for key, found in best.items()]
    named: dict[str, list[str]] = {}
    for (name, selectivity), found in best.items():
        fastest = found[0].configuration.series if found else ""
        named.setdefault(fastest, []).append(f"`{name}`" if name else format_share(selectivity))
    told = [f"{', '.join(filters)}: {fastest or 'none'}" for fastest, filters in named.items()]
    return [f"Fastest store at recall {REFERENCE_RECALL:g} with the filter {'; '.join(told)}."]


def _describe_filter(
    sweep: StoreBenchmark, key: FilterKey, best: Sequence[MeasuredConfiguration], n_stores: int
) -> str:
    head = f"With {name_filter(key)}"
    if not best:
        nearest = max(operating_points(sweep, key), key=lambda one: one.filters[0].recall)
        result = nearest.filters[0]
        wrong = f" and {count_noun(result.wrong, 'row')} that do not match" if result.wrong else ""
        told = f"{name_setting(nearest)} comes nearest, with recall {result.recall:.3f}{wrong}"
        return (
            f"{head} no store reaches recall {REFERENCE_RECALL:g}{' with matching rows only' if wrong else ''}; {told}."
        )
    first = best[0]
    among = " of those that pass everything else" if len(best) < len(best_with_filter(sweep, key)) else ""
    head += (
        f" {name_setting(first)} is the fastest at recall {REFERENCE_RECALL:g}{among}: "
        f"{format_qps(first.qps)} queries per second"
    )
    if len(best) == 1:
        return f"{head}; no other store gets there." if n_stores > 1 and not among else f"{head}."
    return compare_speeds(head, first.qps, name_setting(best[1]), best[1].qps, best[:2])


NEGLIGIBLE_DIFFERENCE = 0.005
"""Difference of a relevance measure that does not matter in practice."""
MIN_EXACT_RECALL = 0.9995
"""Recall from which neighbours are described as exact."""
DOUBT_MARK = "?"
"""Mark of unreliable times."""
BYTES_PER_MEGABYTE = 1e6


class SufficientRecall(NamedTuple):
    """Recall from which a relevance measure no longer improves."""

    measure: str
    best: float
    """Score at the highest recall."""
    most: float
    """Highest recall."""
    recall: float
    """Lowest recall from which every configuration is within NEGLIGIBLE_DIFFERENCE of `best`."""


def format_options(found: Configuration, but: Mapping[str, Any] | None = None) -> str:
    """Format the options of a configuration as typed, without shared ones.

    >>> format_options(Configuration("x", {"m": 16, "kind": "hnsw"}, {"ef": 40}), {"m": 16, "kind": "hnsw"})
    'ef=40'
    """
    mine = {**found.shown.build, **found.search}
    shared = but or {}
    return " ".join(f"{k}={format_option(v)}" for k, v in mine.items() if k not in shared or shared[k] != v)


def shared_options(points: Sequence[MeasuredConfiguration]) -> dict[str, Any]:
    """Return the options that have the same value in all points."""
    first = points[0].configuration if points else Configuration("")
    every = [{**one.configuration.shown.build, **one.configuration.search} for one in points]
    mine = {**first.shown.build, **first.search}
    return {k: v for k, v in mine.items() if all(k in one and one[k] == v for one in every)}


def points_in_series(sweep: StoreBenchmark, series: str) -> list[MeasuredConfiguration]:
    """Return all points of a series."""
    return [one for one in sweep.points if one.configuration.series == series]


def format_configuration(sweep: StoreBenchmark, point: MeasuredConfiguration) -> str:
    """Format a configuration: its series and the options that differ within it."""
    series = point.configuration.series
    return f"{series} {format_options(point.configuration, shared_options(points_in_series(sweep, series)))}".strip()


def find_qps_at_recall(sweep: StoreBenchmark, series: str, level: float = REFERENCE_RECALL) -> QpsAtRecall | None:
    """Return the speed of a store at a recall level; None if it was not computed."""
    return next((one for one in sweep.reached if one.store == series and math.isclose(one.recall, level)), None)


def rank_stores(sweep: StoreBenchmark) -> list[str]:
    """Return the stores by descending QPS at REFERENCE_RECALL.

    Those that do not reach it come last, by descending recall.
    """
    stores = [one for one in sweep.stores if not any(p.is_floor for p in points_in_series(sweep, one))]

    def order(series: str) -> tuple[float, float]:
        found = find_qps_at_recall(sweep, series)
        return (-(found.qps or 0.0) if found is not None else 0.0, -max_recall(sweep, series))

    return sorted(stores, key=order)


def rank_all_series(sweep: StoreBenchmark) -> list[str]:
    """Return the ranked stores and then the null store, if it was requested.

    The index of a store in this list determines its colour and shape on every chart.
    """
    there = rank_stores(sweep)
    return [*there, *(one for one in sweep.stores if one not in there)]


def max_recall(sweep: StoreBenchmark, series: str) -> float:
    """Return the highest recall of a store in any configuration; -1 if it has none."""
    recalls = [one.quality.get(sweep.recall, math.nan) for one in points_in_series(sweep, series)]
    return max((one for one in recalls if math.isfinite(one)), default=-1.0)


def representative_point(sweep: StoreBenchmark, series: str) -> MeasuredConfiguration | None:
    """Return the configuration that represents a store; None if there is none."""
    return select_representative(points_in_series(sweep, series), sweep.recall)


def null_store_latency(sweep: StoreBenchmark) -> float:
    """Return the median latency of the null store in ms; NaN if it was not measured."""
    own = [one.latency.p50 for one in sweep.points if one.is_floor and not format_options(one.configuration)]
    return own[0] if own else min((one.clock.floor_ms for one in sweep.points), default=math.nan)


def list_doubts(sweep: StoreBenchmark) -> list[tuple[str, str]]:
    """List every result with unreliable times, and the reasons.

    Results are configurations, searches with a filter, and load tests.
    """
    found = [(format_configuration(sweep, one), one.clock.doubts) for one in sweep.points if not one.is_floor]
    for key in list_filters(sweep):
        filtered = points_with_filter(sweep, key)
        found += [(f"{format_configuration(sweep, one)} with {name_filter(key)}", one.clock.doubts) for one in filtered]
    for one in sweep.points:
        for load in one.loads:
            asked = count_noun(load.clients, "client") if load.rate is None else f"{load.rate:,.4g} queries per second"
            found.append((f"{format_configuration(sweep, one)} with {asked}", load.doubts))
    return [(name, "; ".join(reasons)) for name, reasons in found if reasons]


def find_sufficient_recalls(sweep: StoreBenchmark) -> list[SufficientRecall]:
    """Return the sufficient recall for each relevance measure."""
    measures = dict.fromkeys(name for one in sweep.points if not one.is_floor for name in one.relevance)
    return [one for name in measures if (one := _find_sufficient_recall(sweep, name)) is not None]


def _find_sufficient_recall(sweep: StoreBenchmark, measure: str) -> SufficientRecall | None:
    pairs = sorted(
        (one.quality.get(sweep.recall, math.nan), one.relevance.get(measure, math.nan))
        for one in sweep.points
        if not one.is_floor
    )
    pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
    if len(pairs) < 2:
        return None
    most, best = pairs[-1]
    short = [recall for recall, value in pairs if value < best - NEGLIGIBLE_DIFFERENCE]
    least = min((recall for recall, _ in pairs if not short or recall > max(short)), default=most)
    return SufficientRecall(measure, best, most, least)


def describe_sufficient_recall(one: SufficientRecall) -> str:
    """Describe from which recall a relevance measure no longer improves."""
    who = "exact neighbours have" if one.most >= MIN_EXACT_RECALL else f"the most recall, {one.most:.3f}, has"
    if one.recall >= one.most:
        return f"{who} {one.measure} {one.best:.4f}, and less recall has less"
    return (
        f"{who} {one.measure} {one.best:.4f}, and from recall {one.recall:.3f} on every configuration is within "
        f"{NEGLIGIBLE_DIFFERENCE:g} of it, so that more recall buys nothing there"
    )


def describe_benchmark(sweep: StoreBenchmark) -> str:
    """Describe the benchmark in one line."""
    return ", ".join(list_benchmark_facts(sweep))


def list_benchmark_facts(sweep: StoreBenchmark) -> list[str]:
    """List what was measured: vectors, queries, metric, k, threads and trials."""
    cutoffs = f"k = {', '.join(map(str, sweep.scored_at))}"
    return [
        f"{count_noun(sweep.vectors, 'vector')} of {sweep.dimension:,} numbers",
        count_noun(sweep.queries, "query", "queries"),
        sweep.metric,
        cutoffs + f" (one search at k = {sweep.k})" * (len(sweep.scored_at) > 1),
        count_noun(sweep.threads, "thread"),
        _describe_timed_searches(sweep),
    ]


def _describe_timed_searches(sweep: StoreBenchmark) -> str:
    """State the number of trials, and of timed searches per configuration."""
    sizes = sorted({point.latency.n for point in sweep.points if point.latency.n})
    trials = count_noun(sweep.repeats, "trial")
    if not sizes:
        return trials
    searches = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"{trials}, {searches} timed searches per configuration"


def summary_sentences(sweep: StoreBenchmark) -> list[str]:
    """Summarise a benchmark in a few sentences."""
    if not rank_stores(sweep):
        return [
            *([_describe_null_store(one) for one in sweep.points] or ["No store could be measured."]),
            *_describe_unmeasured(sweep),
        ]
    said = [
        *describe_filters(sweep, rank_stores(sweep)),
        _describe_fastest_unfiltered(sweep),
        _describe_failing_stores(sweep),
        _describe_smallest(sweep),
        _describe_unreached(sweep),
        *_describe_relevance(sweep),
    ]
    said += [_describe_doubts(sweep), describe_mixture(sweep), *_describe_unmeasured(sweep)]
    return [one for one in said if one]


def _describe_fastest(sweep: StoreBenchmark) -> str:
    there = [
        (one, found.qps)
        for one in rank_stores(sweep)
        if (found := find_qps_at_recall(sweep, one)) is not None and found.qps
    ]
    if not there:
        best = max(rank_stores(sweep), key=lambda one: max_recall(sweep, one))
        return (
            f"No store reaches recall {REFERENCE_RECALL:g}; {best} comes nearest, with {max_recall(sweep, best):.3f}."
        )
    wrong = find_failing_stores(sweep, rank_stores(sweep))
    fit = [one for one in there if one[0] not in wrong]
    (name, qps), *others = fit or there
    head = f"At recall {REFERENCE_RECALL:g} {name} is the fastest"
    if not fit:
        none = f"No store with recall {REFERENCE_RECALL:g} passes everything that was requested"
        head = f"{none}; by search alone {name} is the fastest"
    elif has_extra_stages(sweep):
        head += " of those that pass everything that was requested"
    head += f": {format_qps(qps)} queries per second"
    if not others:
        return f"{head}; no other store gets there." if len(rank_stores(sweep)) > 1 else f"{head}."
    second, next_qps = others[0]
    both = [one for one in (representative_point(sweep, name), representative_point(sweep, second)) if one is not None]
    return compare_speeds(head, qps, second, next_qps, both)


def _describe_fastest_unfiltered(sweep: StoreBenchmark) -> str:
    if not list_filters(sweep):
        return _describe_fastest(sweep)
    told = _describe_fastest(without_filters(sweep))
    return f"Without a filter, {told[:1].lower()}{told[1:]}"


def _describe_failing_stores(sweep: StoreBenchmark) -> str:
    told = [
        f"{series} ({'; '.join(reasons)})" for series, reasons in find_failing_stores(sweep, rank_stores(sweep)).items()
    ]
    return f"Not everything that was requested is passed by {_join_words(told, 'and')}." if told else ""


def _describe_null_store(point: MeasuredConfiguration) -> str:
    """Describe a benchmark of the null store alone, which can be set to misbehave."""
    told_to = {**point.configuration.build, **point.configuration.search}
    often = f"once in {format_option(told_to['every'])} queries" if "every" in told_to else "now and then"
    orders = [
        f"work for {format_option(told_to['work_ms'])} ms at every query" if told_to.get("work_ms") else "",
        f"stall for {format_option(told_to['stall_ms'])} ms {often}" if told_to.get("stall_ms") else "",
    ]
    said = _join_words([one for one in orders if one], "and")
    what = f"the harness itself, told to {said}" if said else "the harness itself, which does nothing"
    return f"No store was measured: {point.configuration.series} is {what}."


def _describe_smallest(sweep: StoreBenchmark) -> str:
    """Name the stores with the least memory and the shortest build.

    Only stores that reach REFERENCE_RECALL are compared, if any does.
    """
    points = [one for name in rank_stores(sweep) if (one := representative_point(sweep, name)) is not None]
    good = [one for one in points if one.quality[sweep.recall] >= REFERENCE_RECALL - 1e-9] or points
    if len(good) < 2:
        return ""
    quick = min(good, key=lambda one: one.build.seconds).configuration.series
    built = f"is built the fastest ({format_seconds(min(one.build.seconds for one in good))} s)"
    sized = [one for one in good if one.build.memory_bytes]
    said = f"{quick} {built}"
    if len(sized) > 1:
        least = min(sized, key=lambda one: one.build.memory_bytes or 0)
        small, size = least.configuration.series, (least.build.memory_bytes or 0) / BYTES_PER_MEGABYTE
        said = f"{small} takes the least memory ({format_megabytes(size)} MB) and {built if small == quick else said}"
    return f"Of those that get there {said}." if len(good) < len(points) else f"Of all {said}."


def _describe_unreached(sweep: StoreBenchmark) -> str:
    names = [
        f"{one} ({max_recall(sweep, one):.3f})" if max_recall(sweep, one) >= 0 else one
        for one in rank_stores(sweep)
        if (found := find_qps_at_recall(sweep, one)) is None or found.qps is None
    ]
    if not names or len(names) == len(rank_stores(sweep)):
        return ""
    return f"No setting that was tried gets {_join_words(names, 'or')} to {REFERENCE_RECALL:g}."


def _describe_relevance(sweep: StoreBenchmark) -> list[str]:
    """Describe the sufficient recall for the first relevance measure."""
    told = [describe_sufficient_recall(one) for one in find_sufficient_recalls(sweep)[:1]]
    return [f"{one[:1].upper()}{one[1:]}." for one in told]


def _describe_doubts(sweep: StoreBenchmark) -> str:
    results = {
        "configurations": [bool(one.clock.doubts) for one in sweep.points if not one.is_floor],
        "results with a filter": [bool(result.doubts) for one in sweep.points for result in one.filters],
        "results under load": [bool(result.doubts) for one in sweep.points for result in one.loads],
    }
    if not any(map(any, results.values())):
        return ""
    told = [f"{sum(those)} of {len(those)} {name}" for name, those in results.items() if any(those)]
    of = "All times" if all(map(all, results.values())) else f"The times of {_join_words(told, 'and')}"
    return (
        f"{of} are doubtful (marked {DOUBT_MARK}). Measure them again while nothing else runs, with `--remeasure "
        f"doubtful`; "
        "if the repeats differ, with more `--repeats`."
    )


def _describe_unmeasured(sweep: StoreBenchmark) -> list[str]:
    names = list(dict.fromkeys(f"{one.configuration.series} ({one.stage})" for one in sweep.failures))
    return [f"Not measured, or not all of it: {_join_words(names, 'and')}."] if names else []


def _join_words(parts: Sequence[str], joint: str) -> str:
    return f"{', '.join(parts[:-1])} {joint} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def list_failures(sweep: StoreBenchmark) -> list[tuple[str, str, str, str]]:
    """List failures: configuration, stage, original error message and hint."""
    return [
        (_configuration_label(one.configuration), one.stage, one_line(one.message), one_line(one.hint or ""))
        for one in sweep.failures
    ]


def list_unmeasured(sweep: StoreBenchmark) -> list[tuple[str, str, str, str]]:
    """List what was requested but not measured: failures and unsupported operations."""
    unable = [
        (
            format_configuration(sweep, one),
            "load" if what == "load" else what,
            _UNSUPPORTED_REASONS.get(what, f"the store cannot {what}"),
            "",
        )
        for one in sweep.points
        for what in one.unsupported
    ]
    return [*list_failures(sweep), *unable]


_UNSUPPORTED_REASONS = {"load": "the store cannot be opened by another process, so it was not put under load"}


def _configuration_label(found: Configuration) -> str:
    """Return the user's name with the options, or the configuration as typed."""
    return f"{found.name} {format_options(found)}".strip() if found.name else str(found)


def format_megabytes(value: float) -> str:
    """Format megabytes with three significant digits and at most two decimals.

    >>> format_megabytes(5.123), format_megabytes(56.78), format_megabytes(1234.5), format_megabytes(math.nan)
    ('5.12', '56.8', '1,234', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def format_seconds(value: float) -> str:
    """Format seconds with three significant digits.

    >>> format_seconds(0.0123), format_seconds(12.34)
    ('0.012', '12.3')
    """
    return format_milliseconds(value)


def explain_recall(recall: str) -> str:
    """Explain how a recall measure is defined.

    >>> explain_recall("recall(of=k)@10")
    'recall(of=k)@10, against the exact neighbours'
    """
    share = {RECALL_MEASURE: "rounding (a millionth)", "recall(of=eps)": "a thousandth"}.get(recall.partition("@")[0])
    if share is None:
        return f"{recall}, against the exact neighbours"
    return f"{recall}: the share that is no farther than the k-th true neighbour, but for {share}"


def format_recall(value: float) -> str:
    """Format a recall with four decimals; 1.0000 only if it is exactly 1.

    >>> format_recall(0.99999), format_recall(1.0), format_recall(math.nan)
    ('0.9999', '1.0000', '-')
    """
    if math.isnan(value):
        return "-"
    return "0.9999" if 0.99995 <= value < 1 else f"{value:.4f}"
