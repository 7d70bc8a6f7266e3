"""Text of a benchmark report: summary sentences, notes, and labels of configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.specs import Spec, parse_spec
from ragauge.core.text import one_line
from ragauge.measures.names import parse_measure
from ragauge.output.numbers import format_number, join_with_and, pluralise
from ragauge.output.tables import DOUBT_MARK
from ragauge.store_benchmarks.acceptance import find_failing_stores, has_extra_stages
from ragauge.store_benchmarks.filter_results import (
    FilterKey,
    best_with_filter,
    list_filters,
    operating_points,
    points_with_filter,
    without_filters,
)
from ragauge.store_benchmarks.frontiers import (
    NEGLIGIBLE_DIFFERENCE,
    REFERENCE_RECALL,
    QpsAtRecall,
    SufficientRecall,
    reaches,
    select_representative,
)
from ragauge.store_benchmarks.results import (
    SERVER_LABEL,
    Configuration,
    MeasuredConfiguration,
    StoreBenchmark,
    format_option,
)
from ragauge.store_benchmarks.reused_results import describe_mixture, describe_reuse

MAX_SIMILAR_DIFFERENCE, MAX_SIMILAR_DIFFERENCE_ONCE = 0.05, 0.2
"""Maximum relative difference in QPS of stores that are about equally fast, with repeats and without."""
MAX_FILTER_SENTENCES = 2
"""Maximum number of filters that get one sentence each."""
MIN_EXACT_RECALL = 0.9995
"""Recall from which neighbours are described as exact."""
MAX_DOUBTS_SHOWN = 4
UNSUPPORTED_REASONS = {"load": "the store cannot be opened by another process, so it was not load-tested"}


def format_options(configuration: Configuration, shared: Mapping[str, Any] | None = None) -> str:
    """Format the options of a configuration as typed, without shared ones.

    >>> format_options(Configuration("x", {"m": 16, "kind": "hnsw"}, {"ef": 40}), {"m": 16, "kind": "hnsw"})
    'ef=40'
    """
    options, shared = {**configuration.shown.build, **configuration.search}, shared or {}
    return " ".join(
        f"{name}={format_option(value)}"
        for name, value in options.items()
        if name not in shared or shared[name] != value
    )


def shared_options(points: Sequence[MeasuredConfiguration]) -> dict[str, Any]:
    """Return the options that have the same value in all points."""
    options = [{**point.configuration.shown.build, **point.configuration.search} for point in points]
    first = options[0] if options else {}
    return {name: value for name, value in first.items() if all(o.get(name, math.nan) == value for o in options)}


def points_in_series(result: StoreBenchmark, series: str) -> list[MeasuredConfiguration]:
    return [point for point in result.points if point.series == series]


def format_distinct_options(result: StoreBenchmark, point: MeasuredConfiguration) -> str:
    """Format the options of a configuration that differ within its series."""
    return format_options(point.configuration, shared_options(points_in_series(result, point.series)))


def format_configuration(result: StoreBenchmark, point: MeasuredConfiguration) -> str:
    """Format a configuration: its series and the options that differ within it."""
    return f"{point.series} {format_distinct_options(result, point)}".strip()


def format_searched_store(point: MeasuredConfiguration) -> str:
    """Format a store with its search options, which differ between filters."""
    options = " ".join(f"{name}={format_option(value)}" for name, value in point.configuration.search.items())
    return f"{point.series} ({options})" if options else point.series


def format_system(result: StoreBenchmark, point: MeasuredConfiguration) -> str:
    """Format a configuration as a system for `ragauge run`; a user's class, which no system can name, as a store.

    The address of a server is left out.
    """
    configuration = point.configuration
    if ":" in configuration.store:
        return str(configuration)
    options = {**configuration.build, **configuration.search}
    options |= {} if result.metric == "cosine" else {"metric": result.metric}
    store = Spec(configuration.store, {name: value for name, value in options.items() if name != SERVER_LABEL})
    embedder = result.provenance.get("embedder")
    return str(Spec("dense", {**({"embedder": parse_spec(embedder)} if embedder else {}), "store": store}))


def format_filter(key: FilterKey) -> str:
    """Format a filter as a label: as it is typed, or its selectivity."""
    name, selectivity = key
    return name or format_number(selectivity, "selectivity")


def describe_filter(key: FilterKey) -> str:
    """Describe a filter in a sentence.

    >>> describe_filter(("", 0.01)), describe_filter(("lang=de", 0.25))
    ('a filter that matches 1% of the vectors', 'the filter `lang=de` (25% of the vectors)')
    """
    name, selectivity = key
    share = format_number(selectivity, "selectivity")
    return f"the filter `{name}` ({share} of the vectors)" if name else f"a filter that matches {share} of the vectors"


def find_qps_at_recall(result: StoreBenchmark, series: str, level: float = REFERENCE_RECALL) -> QpsAtRecall | None:
    """Return the speed of a store at a recall level; None if it was not computed."""
    return next((at for at in result.reached if at.store == series and math.isclose(at.recall, level)), None)


def rank_stores(result: StoreBenchmark) -> list[str]:
    """Return the stores by descending QPS at REFERENCE_RECALL.

    Those that do not reach it come last, by descending recall.
    """
    stores = [name for name in result.stores if not any(point.is_floor for point in points_in_series(result, name))]

    def order(series: str) -> tuple[float, float]:
        speed = find_qps_at_recall(result, series)
        return (-(speed.qps or 0.0) if speed is not None else 0.0, -max_recall(result, series))

    return sorted(stores, key=order)


def rank_all_series(result: StoreBenchmark) -> list[str]:
    """Return the ranked stores and then the null store, if it was requested.

    The index of a store in this list determines its colour and shape on every chart.
    """
    ranked = rank_stores(result)
    return [*ranked, *(name for name in result.stores if name not in ranked)]


def max_recall(result: StoreBenchmark, series: str) -> float:
    """Return the highest recall of a store in any configuration; -1 if it has none."""
    recalls = [point.quality.get(result.recall, math.nan) for point in points_in_series(result, series)]
    return max((recall for recall in recalls if math.isfinite(recall)), default=-1.0)


def representative_point(result: StoreBenchmark, series: str) -> MeasuredConfiguration | None:
    """Return the configuration that represents a store; None if there is none."""
    return select_representative(points_in_series(result, series), result.recall)


def null_store_latency(result: StoreBenchmark) -> float:
    """Return the median latency of the null store in ms; NaN if it was not measured."""
    latencies = [
        point.latency.p50 for point in result.points if point.is_floor and not format_options(point.configuration)
    ]
    return latencies[0] if latencies else min((point.clock.floor_ms for point in result.points), default=math.nan)


def explain_recall(recall: str) -> str:
    """Explain how a recall measure is defined.

    >>> explain_recall("recall(of=k)@10")
    'recall(of=k)@10, compared with the exact neighbours'
    """
    options = dict(parse_measure(recall).options)
    if options["of"] != "eps":
        return f"{recall}, compared with the exact neighbours"
    tolerance = f"with a relative tolerance of {options['eps']:g}"
    return f"{recall}: share of results no farther than the k-th exact neighbour, {tolerance}"


def list_benchmark_facts(result: StoreBenchmark) -> list[str]:
    """List what was measured: vectors, queries, metric, k, threads and trials."""
    cutoffs = f"k = {', '.join(map(str, result.scored_at))}"
    sizes = sorted({point.latency.n for point in result.points if point.latency.n})
    trials = pluralise(result.repeats, "trial")
    if sizes:
        searches = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
        trials += f", {searches} timed searches per configuration"
    return [
        f"{pluralise(result.vectors, 'vector')} of {pluralise(result.dimension, 'dimension')}",
        pluralise(result.queries, "query", "queries"),
        result.metric,
        cutoffs + f" (one search at k = {result.k})" * (len(result.scored_at) > 1),
        pluralise(result.threads, "thread"),
        trials,
    ]


def list_doubts(result: StoreBenchmark) -> list[tuple[str, str]]:
    """List every result with unreliable times, and the reasons.

    Results are configurations, searches with a filter, and load tests.
    """
    reasons = [
        (format_configuration(result, point), point.clock.doubts) for point in result.points if not point.is_floor
    ]
    for key in list_filters(result):
        for point in points_with_filter(result, key):
            label = f"{format_configuration(result, point)} with {describe_filter(key)}"
            reasons.append((label, point.clock.doubts))
    for point in result.points:
        for load in point.loads:
            target = pluralise(load.clients, "client") if load.rate is None else f"{load.rate:,.4g} queries per second"
            reasons.append((f"{format_configuration(result, point)} with {target}", load.doubts))
    return [(label, "; ".join(doubts)) for label, doubts in reasons if doubts]


def list_unmeasured(result: StoreBenchmark) -> list[tuple[str, str, str, str]]:
    """List what was requested but not measured: configuration, stage, reason and remedy."""
    failures = [
        (
            _configuration_label(failure.configuration),
            failure.stage,
            one_line(failure.message),
            one_line(failure.hint or ""),
        )
        for failure in result.failures
    ]
    unsupported = [
        (
            format_configuration(result, point),
            operation,
            UNSUPPORTED_REASONS.get(operation, f"the store cannot {operation}"),
            "",
        )
        for point in result.points
        for operation in point.unsupported
    ]
    return [*failures, *unsupported]


def describe_failures(result: StoreBenchmark) -> list[str]:
    """Describe what could not be measured, with the original error messages."""
    rows = list_unmeasured(result)[: len(result.failures)]
    return [f"{name}, {stage}: {reason}" + (f" ({hint})" if hint else "") for name, stage, reason, hint in rows]


def _configuration_label(configuration: Configuration) -> str:
    """Return the user's name with the options, or the configuration as typed."""
    if not configuration.name:
        return str(configuration)
    return f"{configuration.name} {format_options(configuration)}".strip()


def list_store_notes(result: StoreBenchmark) -> list[tuple[str, str]]:
    """List the notes on configurations; a note on several is listed once."""
    labels: dict[str, list[str]] = {}
    for point in result.points:
        for note in () if point.is_floor else point.notes:
            labels.setdefault(note, []).append(format_configuration(result, point))
    return [
        (names[0] + (f" and {pluralise(len(names) - 1, 'other configuration')}" if len(names) > 1 else ""), note)
        for note, names in labels.items()
    ]


def list_benchmark_notes(result: StoreBenchmark) -> list[str]:
    """List notes: unreliable times, reused results, the overhead of the harness, and notes on the data."""
    notes = []
    doubts = list_doubts(result)
    if doubts:
        listed = ", ".join(f"{name} ({why})" for name, why in doubts[:MAX_DOUBTS_SHOWN])
        more = f", and {len(doubts) - MAX_DOUBTS_SHOWN} more" if len(doubts) > MAX_DOUBTS_SHOWN else ""
        notes.append(f"{DOUBT_MARK} marks doubtful times: {listed}{more}; measure them again with --remeasure doubtful")
    notes.append(describe_reuse(result))
    floor = null_store_latency(result)
    if math.isfinite(floor):
        stores = " of built-in stores" if any(":" in point.configuration.store for point in result.points) else ""
        overhead = f"{format_number(floor, 'ms')} ms per query"
        notes.append(f"latency{stores} includes the overhead of the harness (checks and ids), {overhead}")
    statements: dict[str, str] = {}
    for point in result.points:
        if statement := point.build.about.get("statement"):
            series = point.configuration.series
            statements.setdefault(series, f"{series} sends: {one_line(str(statement))}")
    return list(dict.fromkeys(note for note in (*notes, *result.notes, *statements.values()) if note))


def summarise_benchmark(result: StoreBenchmark) -> list[str]:
    """Summarise a benchmark in a few sentences, the most important first."""
    stores = rank_stores(result)
    if not stores:
        null_stores = [_describe_null_store(point) for point in result.points]
        return [*(null_stores or ["No store could be measured."]), *_describe_unmeasured(result)]
    sentences = [
        *_describe_filters(result, stores),
        _describe_fastest_unfiltered(result),
        _describe_failing_stores(result),
        _describe_smallest(result),
        _describe_unreached(result),
        *(f"{text[:1].upper()}{text[1:]}." for text in map(describe_sufficient_recall, result.sufficient_recalls[:1])),
        _describe_doubts(result),
        describe_mixture(result),
        *_describe_unmeasured(result),
    ]
    return list(filter(None, sentences))


def describe_sufficient_recall(sufficient: SufficientRecall) -> str:
    """Describe from which recall a relevance measure no longer improves."""
    score = f"{sufficient.measure} {sufficient.score:.4f}"
    highest = sufficient.highest_recall
    subject = "exact neighbours have" if highest >= MIN_EXACT_RECALL else f"the highest recall, {highest:.3f}, has"
    if sufficient.recall >= highest:
        return f"{subject} {score}, and configurations with lower recall have lower scores"
    return (
        f"{subject} {score}, and from recall {sufficient.recall:.3f} on every configuration is within "
        f"{NEGLIGIBLE_DIFFERENCE:g} of it, so more recall does not improve it"
    )


def _describe_filters(result: StoreBenchmark, stores: Sequence[str]) -> list[str]:
    """Name the fastest store with each filter, in one sentence per filter.

    If there are many filters, one sentence covers all of them. Stores that fail a requested rate or update are not
    recommended, unless all of them do.
    """
    keys = list_filters(result)
    failing = list(find_failing_stores(without_filters(result), stores))
    best = {key: best_with_filter(result, key, failing) for key in keys}
    if len(keys) <= MAX_FILTER_SENTENCES:
        return [_describe_best_with_filter(result, key, points, len(stores)) for key, points in best.items()]
    filters_by_store: dict[str, list[str]] = {}
    for key, points in best.items():
        label = f"`{key[0]}`" if key[0] else format_filter(key)
        filters_by_store.setdefault(points[0].series if points else "", []).append(label)
    parts = [f"{store or 'none'} ({', '.join(filters)})" for store, filters in filters_by_store.items()]
    return [f"Fastest store at recall {REFERENCE_RECALL:g} by filter: {', '.join(parts)}."]


def _describe_best_with_filter(
    result: StoreBenchmark, key: FilterKey, best: Sequence[MeasuredConfiguration], n_stores: int
) -> str:
    head = f"With {describe_filter(key)}"
    if not best:
        nearest = max(operating_points(result, key), key=lambda point: point.filters[0].recall)
        search = nearest.filters[0]
        wrong = f" and {pluralise(search.wrong, 'row')} that do not match" if search.wrong else ""
        matching = " with matching rows only" if wrong else ""
        closest = f"{format_searched_store(nearest)} is closest, with recall {search.recall:.3f}{wrong}"
        return f"{head} no store reaches recall {REFERENCE_RECALL:g}{matching}; {closest}."
    first = best[0]
    among = " among the stores that meet all other requirements" * (len(best) < len(best_with_filter(result, key)))
    head += (
        f" {format_searched_store(first)} is the fastest at recall {REFERENCE_RECALL:g}{among}: "
        f"{format_number(first.qps, 'qps')} queries per second"
    )
    if len(best) == 1:
        return f"{head}; no other store reaches it." if n_stores > 1 and not among else f"{head}."
    return _compare_speeds(head, first.qps, format_searched_store(best[1]), best[1].qps, best[:2])


def _compare_speeds(head: str, qps: float, second: str, next_qps: float, pair: Sequence[MeasuredConfiguration]) -> str:
    """Complete a sentence on the fastest store with its lead over the second."""
    spreads = [point.qps_spread for point in pair if math.isfinite(point.qps_spread)]
    doubt = "; these times are doubtful" if any(point.clock.doubts for point in pair) else ""
    runner_up = f"{second} ({format_number(next_qps, 'qps')})"
    if spreads and qps <= next_qps * (1 + max(spreads)):
        return f"{head}, but {runner_up} is within the variation between repeats{doubt}."
    if qps < next_qps * (1 + (MAX_SIMILAR_DIFFERENCE if spreads else MAX_SIMILAR_DIFFERENCE_ONCE)):
        return f"{head}, about as many as {runner_up}{doubt}."
    return f"{head}, {qps / next_qps:.1f} times as many as {second}{doubt}."


def _describe_fastest(result: StoreBenchmark) -> str:
    stores = rank_stores(result)
    representatives = [point for name in stores if (point := representative_point(result, name)) is not None]
    # Measured settings only: between two builds there may be no setting with the interpolated speed.
    points = sorted(
        (point for point in representatives if reaches(point.quality[result.recall])), key=lambda point: -point.qps
    )
    if not points:
        nearest = max(stores, key=lambda name: max_recall(result, name))
        closest = f"{nearest} is closest, with {max_recall(result, nearest):.3f}"
        return f"No store reaches recall {REFERENCE_RECALL:g}; {closest}."
    failing = find_failing_stores(result, stores)
    passing = [point for point in points if point.series not in failing]
    best, *others = passing or points
    head = f"At recall {REFERENCE_RECALL:g} {best.series} is the fastest"
    if not passing:
        none = f"No store with recall {REFERENCE_RECALL:g} meets all requirements"
        head = f"{none}; by search speed alone {best.series} is the fastest"
    elif has_extra_stages(result):
        head += " among the stores that meet all requirements"
    recall = format_number(best.quality[result.recall], "recall")
    head += f", with `{format_system(result, best)}` (recall {recall})"
    head += f": {format_number(best.qps, 'qps')} queries per second"
    if not others:
        return f"{head}; no other store reaches it." if len(stores) > 1 else f"{head}."
    return _compare_speeds(head, best.qps, others[0].series, others[0].qps, [best, others[0]])


def _describe_fastest_unfiltered(result: StoreBenchmark) -> str:
    if not list_filters(result):
        return _describe_fastest(result)
    sentence = _describe_fastest(without_filters(result))
    return f"Without a filter, {sentence[:1].lower()}{sentence[1:]}"


def _describe_failing_stores(result: StoreBenchmark) -> str:
    failing = find_failing_stores(result, rank_stores(result))
    stores = [f"{series} ({'; '.join(reasons)})" for series, reasons in failing.items()]
    return f"Requirements are not met by {join_with_and(stores)}." if stores else ""


def _describe_null_store(point: MeasuredConfiguration) -> str:
    """Describe a benchmark of the null store alone, which can be configured to stall."""
    options = {**point.configuration.build, **point.configuration.search}
    often = f"once in {format_option(options['every'])} queries" if "every" in options else "at times"
    orders = [
        f"work for {format_option(options['work_ms'])} ms per query" if options.get("work_ms") else "",
        f"stall for {format_option(options['stall_ms'])} ms {often}" if options.get("stall_ms") else "",
    ]
    configured = join_with_and(list(filter(None, orders)))
    suffix = f", configured to {configured}" if configured else ", which does nothing"
    return f"No store was measured: {point.series} is the harness itself{suffix}."


def _describe_smallest(result: StoreBenchmark) -> str:
    """Name the stores with the least memory and the shortest build.

    Only stores that reach REFERENCE_RECALL are compared, if any does.
    """
    points = [point for name in rank_stores(result) if (point := representative_point(result, name)) is not None]
    sufficient = [point for point in points if reaches(point.quality[result.recall])] or points
    if len(sufficient) < 2:
        return ""
    quickest = min(sufficient, key=lambda point: point.build.build_seconds)
    text = f"is built fastest ({format_number(quickest.build.build_seconds, 'seconds')} s)"
    sized = [(point, point.build.memory_bytes) for point in sufficient if point.build.memory_bytes]
    if len(sized) > 1:
        smallest, size = min(sized, key=lambda pair: pair[1])
        builder = "" if smallest.series == quickest.series else f"{quickest.series} "
        unknown = [point.series for point in sufficient if point.build.memory_bytes is None]
        known = f"; unknown for {join_with_and(unknown)}" if unknown else ""
        text = f"{smallest.series} uses the least memory ({format_number(size, 'bytes')}{known}) and {builder}{text}"
    else:
        text = f"{quickest.series} {text}"
    stores = f"the stores with recall {REFERENCE_RECALL:g}" if len(sufficient) < len(points) else "all stores"
    return f"Of {stores}, {text}."


def _describe_unreached(result: StoreBenchmark) -> str:
    stores = rank_stores(result)
    unreached = [name for name in stores if (at := find_qps_at_recall(result, name)) is None or at.qps is None]
    if not unreached or len(unreached) == len(stores):
        return ""
    names = [f"{name} ({recall:.3f})" if (recall := max_recall(result, name)) >= 0 else name for name in unreached]
    verb = "does" if len(names) == 1 else "do"
    return f"{join_with_and(names)} {verb} not reach recall {REFERENCE_RECALL:g} in any configuration."


def _describe_doubts(result: StoreBenchmark) -> str:
    results = {
        "configurations": [bool(point.clock.doubts) for point in result.points if not point.is_floor],
        "results with a filter": [bool(search.doubts) for point in result.points for search in point.filters],
        "results under load": [bool(load.doubts) for point in result.points for load in point.loads],
    }
    if not any(map(any, results.values())):
        return ""
    counts = [f"{sum(doubts)} of {len(doubts)} {name}" for name, doubts in results.items() if any(doubts)]
    subject = "All times" if all(map(all, results.values())) else f"The times of {join_with_and(counts)}"
    return (
        f"{subject} are doubtful (marked {DOUBT_MARK}). Measure them again on an idle machine with "
        "`--remeasure doubtful`; if the repeats differ, with more `--repeats`."
    )


def _describe_unmeasured(result: StoreBenchmark) -> list[str]:
    names = list(dict.fromkeys(f"{failure.configuration.series} ({failure.stage})" for failure in result.failures))
    return [f"Not measured, or only in part: {join_with_and(names)}."] if names else []
