"""Tables of an embedder study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ragauge.core.summaries import Mean
from ragauge.embedder_study.results import CompressionResult, EmbedderResult, EmbedderStudy, MeanDifference, StoreResult
from ragauge.output.numbers import format_number
from ragauge.output.text_report import TextTable
from ragauge.stats.comparisons import significance_stars
from ragauge.store_benchmarks.report_text import DOUBT_MARK

MISSING_VALUE = "-"
BEST_MARK = "•"
"""Mark before the best value of a column."""
REFERENCE_PRECISION = "float32"
"""Precision at which numbers of dimensions are compared."""
REDUCTION_TITLES = {
    "pca": "The strongest directions among the documents (PCA)",
    "first": "The first numbers of a vector",
}
RANK_PAIR = "rank"
"""Label of the pair of the best and the second-best embedder."""


def sort_embedders(found: EmbedderStudy) -> list[EmbedderResult]:
    """Sort the embedders by the first measure, best first; those without a value last."""
    return sorted(found.entrants, key=lambda one: (math.isnan(value := main_mean(found, one).value), -value))


def vector_embedders(found: EmbedderStudy) -> list[EmbedderResult]:
    """Return the embedders with vectors, best first: neither BM25 nor chance."""
    return [one for one in sort_embedders(found) if one.kind == "embedder"]


def main_mean(found: EmbedderStudy, one: EmbedderResult) -> Mean:
    """Return an embedder's mean of the first measure."""
    return one.means.get(found.measures[0], Mean(math.nan, 0)) if found.measures else Mean(math.nan, 0)


def quality_table(found: EmbedderStudy) -> TextTable:
    """Build the table of means, with the difference from the baseline.

    The difference is that of the first measure.
    """
    main, *others = found.measures
    header = ["embedder", main, f"{found.confidence:.0%}", f"vs {found.baseline}", *others, "n"]
    best = {name: _best_value(one.means.get(name) for one in found.entrants) for name in found.measures}
    rows = [
        [
            one.name,
            _mean_cell(one.means.get(main), best[main]),
            format_interval(main_mean(found, one)),
            format_difference_with_stars(one.gaps.get(main)) if one.name != found.baseline else "baseline",
            *(_mean_cell(one.means.get(name), best[name]) for name in others),
            f"{n:,}" if (n := main_mean(found, one).n) else MISSING_VALUE,
        ]
        for one in sort_embedders(found)
    ]
    return TextTable("", header, rows, goes=(len(header) - 1, *range(len(header) - 2, 3, -1)))


def _best_value(means: Iterable[Mean | None]) -> float:
    known = [one.value for one in means if one is not None and not math.isnan(one.value)]
    return max(known, default=math.nan) if len(known) > 1 else math.nan


def _mean_cell(mean: Mean | None, best: float) -> str:
    if mean is None or math.isnan(mean.value):
        return MISSING_VALUE
    return f"{BEST_MARK if mean.value == best else ''}{mean.value:.4f}"


def measure_table(found: EmbedderStudy) -> TextTable:
    """Build a table of means and tests, one row per embedder and measure."""
    sure = f"{found.confidence:.0%}"
    header = ["embedder", "measure", "mean", sure, "n", f"vs {found.baseline}", f"{sure} of it", "p", "corrected"]
    rows = []
    for one in sort_embedders(found):
        for name, mean in one.means.items():
            gap = one.gaps.get(name)
            told = (
                [MISSING_VALUE] * 4
                if gap is None
                else [
                    format_difference_with_stars(gap),
                    _difference_interval(gap),
                    format_number(gap.p, "p"),
                    format_number(gap.p_corrected, "p"),
                ]
            )
            rows.append([one.name, name, format_value(mean.value), format_interval(mean), f"{mean.n:,}", *told])
    return TextTable("", header, rows)


def cost_table(found: EmbedderStudy) -> TextTable:
    """Build the table of latency in the first store, throughput, size and memory."""
    kinds: dict[str, Callable[[EmbedderResult], str]] = {
        "ms p50": lambda one: _latency_cell(_first_store_result(one), "total", "p50"),
        "p95": lambda one: _latency_cell(_first_store_result(one), "total", "p95"),
        "p99": lambda one: _latency_cell(_first_store_result(one), "total", "p99"),
        "embed": lambda one: _latency_cell(_first_store_result(one), "embed", "p50"),
        "retrieve": lambda one: _latency_cell(_first_store_result(one), "retrieve", "p50"),
        "docs/s": lambda one: format_number(one.documents_per_second, "qps"),
        "dim": lambda one: format_count(one.dimension),
        "bytes": lambda one: format_count(one.bytes_per_vector),
        "params": lambda one: format_large_number(one.parameters),
        "MB": lambda one: format_megabytes(one.memory_bytes),
        "load s": lambda one: format_seconds(one.load_seconds),
        "learn s": lambda one: format_seconds(one.train_seconds),
    }
    return _table_without_empty_columns(
        "", {name: kinds[name] for name in kinds}, sort_embedders(found), (11, 3, 5, 4, 8, 12, 10)
    )


def _table_without_empty_columns(
    title: str,
    kinds: dict[str, Callable[[EmbedderResult], str]],
    several: Sequence[EmbedderResult],
    goes: Sequence[int] = (),
) -> TextTable:
    """Build a table of the columns that have values; `goes` counts the empty ones too."""
    cells = {name: [kind(one) for one in several] for name, kind in kinds.items()}
    kept = [name for name, column in cells.items() if set(column) - {MISSING_VALUE}]
    rows = [[one.name, *(cells[name][i] for name in kept)] for i, one in enumerate(several)] if kept else []
    places = {list(kinds).index(name) + 1: place for place, name in enumerate(kept, 1)}
    return TextTable(title, ["embedder", *kept], rows, goes=tuple(places[one] for one in goes if one in places))


def embedder_store_table(found: EmbedderStudy) -> TextTable:
    """Build a table with one row per embedder and store."""
    main = found.measures[0]
    header = ["embedder", "store", main, f"{found.confidence:.0%}", "neighbours", "index", "embed p50"]
    header += ["retrieve p50", "p95", "p99", "total p50", "p95", "p99", "built in s", "note"]
    rows = []
    for one in sort_embedders(found):
        for shelf in one.shelves:
            mean = shelf.means.get(main, Mean(math.nan, 0))
            times = [_latency_cell(shelf, "embed", "p50")]
            times += [
                _latency_cell(shelf, stage, kind) for stage in ("retrieve", "total") for kind in ("p50", "p95", "p99")
            ]
            used = MISSING_VALUE if shelf.index_used is None else "used" if shelf.index_used else "not used"
            near = format_share(shelf.neighbours)
            told = [
                format_value(mean.value),
                format_interval(mean),
                near,
                used,
                *times,
                format_seconds(shelf.build_seconds),
                shelf.note,
            ]
            rows.append([one.name, shelf.store, *told])
    return TextTable("", header, rows)


def store_table(found: EmbedderStudy) -> TextTable:
    """Build a table with one row per store, over all embedders with vectors."""
    main = found.measures[0]
    header = ["store", "embedders", f"{main} lost", "neighbours", "ms p50", "p95", "index"]
    rows = []
    for store in store_names(found):
        shelves = [
            (one, shelf) for one in vector_embedders(found) if (shelf := one.shelf(store)) is not None and shelf.stages
        ]
        if not shelves:
            continue
        pairs = [(main_mean(found, one).value, shelf.means.get(main)) for one, shelf in shelves]
        lost = [exact - mean.value for exact, mean in pairs if mean is not None]
        known = [shelf.neighbours for _, shelf in shelves if not math.isnan(shelf.neighbours)]
        used = {shelf.index_used for _, shelf in shelves}
        rows.append(
            [
                store,
                f"{len(shelves):,}",
                format_value(max(lost, default=math.nan)),
                format_share(min(known, default=math.nan)),
                _format_latency_range(
                    [shelf.stages["retrieve"].p50 for _, shelf in shelves if "retrieve" in shelf.stages]
                ),
                _format_latency_range(
                    [shelf.stages["retrieve"].p95 for _, shelf in shelves if "retrieve" in shelf.stages]
                ),
                MISSING_VALUE if used == {None} else "used" if used <= {True, None} else "not always used",
            ]
        )
    return TextTable("", header, rows, goes=(5, 1))


def store_names(found: EmbedderStudy) -> list[str]:
    """Return the stores that hold vectors; BM25 has its own."""
    return list(dict.fromkeys(shelf.store for one in vector_embedders(found) for shelf in one.shelves))


def dimension_table(found: EmbedderStudy, how: str) -> TextTable | None:
    """Build the table of the first measure at the dimensions that all embedders have.

    None if no reduction was measured.
    """
    main = found.measures[0]
    several = [one for one in vector_embedders(found) if one.shrunk]
    cells = {
        (one.name, small.dimension): small for one in several for small in one.shrunk if _is_plain_reduction(small, how)
    }
    every = sorted({size for _, size in cells})
    common = [size for size in every if all((one.name, size) in cells for one in several)]
    sizes = common if len(common) > 1 else every
    if not sizes:
        return None
    header = ["embedder", "as it is", *(f"{size:,} d" for size in sizes)]
    best = {size: _best_value(cells[key].means.get(main) for key in cells if key[1] == size) for size in sizes}
    rows = []
    for one in several:
        own = f"{format_value(main_mean(found, one).value)} ({format_count(one.dimension)})"
        small = [cells.get((one.name, size)) for size in sizes]
        marks = [MISSING_VALUE if it is None else _mean_cell(it.means.get(main), best[it.dimension]) for it in small]
        rows.append([one.name, own, *marks])
    return TextTable(REDUCTION_TITLES.get(how, how), header, rows, goes=(2, 4, 6, 8))


def _is_plain_reduction(small: CompressionResult, how: str) -> bool:
    return small.how == how and small.kind == REFERENCE_PRECISION


class TradeOffPoint(NamedTuple):
    """Quality of an embedder at a cost."""

    name: str
    price: float
    mean: Mean
    how: str = ""
    """Compression, such as `as it is` or `pca 64 float32`."""


def trade_offs_by_bytes(found: EmbedderStudy) -> list[TradeOffPoint]:
    """Return all vectors of all embedders with their size in bytes as cost."""
    main = found.measures[0]
    offers = []
    for one in vector_embedders(found):
        if one.bytes_per_vector and main in one.means:
            offers.append(TradeOffPoint(one.name, float(one.bytes_per_vector), one.means[main], "as it is"))
        for small in one.shrunk:
            if main in small.means and not (small.bytes == one.bytes_per_vector and small.kind == REFERENCE_PRECISION):
                how = f"{small.how} {small.dimension} {small.kind}"
                offers.append(TradeOffPoint(one.name, float(small.bytes), small.means[main], how))
    return [one for one in offers if not math.isnan(one.mean.value)]


def trade_offs_by_latency(found: EmbedderStudy) -> list[TradeOffPoint]:
    """Return all embedders with their p95 total latency in ms as cost.

    The latency is that in the first store.
    """
    main = found.measures[0]
    timed = [(one, one.shelves[0].stages.get("total")) for one in found.entrants if one.shelves and main in one.means]
    offers = [TradeOffPoint(one.name, total.p95, one.means[main]) for one, total in timed if total is not None]
    return [one for one in offers if one.price > 0 and not math.isnan(one.mean.value)]


def pareto_frontier(offers: Sequence[TradeOffPoint]) -> list[TradeOffPoint]:
    """Return the points that no other beats in cost and quality, cheapest first.

    >>> cheap, dear, bad = (TradeOffPoint(name, price, Mean(value, 9)) for name, price, value in (("a", 1, .3), ("b",
    ...     2, .4),
    ...     ("c", 3, .2)))
    >>> [one.name for one in pareto_frontier([bad, dear, cheap])]
    ['a', 'b']
    """
    found: list[TradeOffPoint] = []
    for one in sorted(offers, key=lambda one: (one.price, -one.mean.value)):
        if not found or one.mean.value > found[-1].mean.value:
            found.append(one)
    return found


def trade_off_table(found: EmbedderStudy, several: Sequence[TradeOffPoint], price: str) -> TextTable:
    """Build the table of costs and quality."""
    header = [price, "embedder", "how", found.measures[0], f"{found.confidence:.0%}"]
    style = "ms" if price == "ms" else "count"
    rows = [
        [
            format_number(one.price, style),
            one.name,
            one.how or MISSING_VALUE,
            format_value(one.mean.value),
            format_interval(one.mean),
        ]
        for one in several
    ]
    return TextTable("", header, rows)


def corpus_size_table(found: EmbedderStudy) -> TextTable | None:
    """Build the table of the first measure by corpus size.

    None if it was not measured.
    """
    main = found.measures[0]
    several = [one for one in sort_embedders(found) if one.grown]
    counts = sorted({part.documents for one in several for part in one.grown})
    if not counts:
        return None
    cells = {(one.name, part.documents): part.means.get(main) for one in several for part in one.grown}
    best = {count: _best_value(cells.get((one.name, count)) for one in several) for count in counts}
    rows = [[one.name, *(_mean_cell(cells.get((one.name, n)), best[n]) for n in counts)] for one in several]
    return TextTable("", ["documents", *(f"{count:,}" for count in counts)], rows)


def pair_table(found: EmbedderStudy) -> TextTable:
    """Build the table of compared pairs and the option in which they differ."""
    header = ["one", "the other", "differ in", "difference", f"{found.confidence:.0%}", "p", "n"]
    rows = [
        [
            one.one,
            one.other,
            "(best and next)" if one.differs == RANK_PAIR else one.differs,
            format_difference_with_stars(one.gap),
            _difference_interval(one.gap),
            format_number(one.gap.p_corrected, "p"),
            f"{one.gap.n:,}",
        ]
        for one in found.pairs
    ]
    return TextTable("", header, rows, goes=(6, 5, 4))


def _first_store_result(one: EmbedderResult) -> StoreResult | None:
    return one.shelves[0] if one.shelves else None


def _latency_cell(shelf: StoreResult | None, stage: str, kind: str) -> str:
    latency = None if shelf is None else shelf.stages.get(stage)
    doubt = DOUBT_MARK if shelf is not None and shelf.unreliable_times else ""
    return MISSING_VALUE if latency is None else f"{format_number(getattr(latency, kind), 'ms')}{doubt}"


def _format_latency_range(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return MISSING_VALUE
    low, high = format_number(min(known), "ms"), format_number(max(known), "ms")
    return low if low == high else f"{low} to {high}"


def _difference_interval(gap: MeanDifference) -> str:
    return MISSING_VALUE if math.isnan(gap.low) else f"{gap.low:+.3f} to {gap.high:+.3f}"


def format_interval(mean: Mean) -> str:
    """Format a confidence interval.

    >>> format_interval(Mean(0.5, 9, 0.4, 0.6)), format_interval(Mean(0.5, 1))
    ('0.400 to 0.600', '-')
    """
    return MISSING_VALUE if math.isnan(mean.low) else f"{mean.low:.3f} to {mean.high:.3f}"


def format_difference_with_stars(gap: MeanDifference | None) -> str:
    """Format a difference with its significance stars.

    >>> (format_difference_with_stars(MeanDifference(0.05, 0.03, 0.07, 0.0001, 0.0004, 9)),
    ...  format_difference_with_stars(MeanDifference(0.0, -1, 1, 1.0, 1.0, 9)), format_difference_with_stars(None))
    ('+0.0500 ***', '+0.0000 ns', '-')
    """
    if gap is None or math.isnan(gap.difference):
        return MISSING_VALUE
    told = "" if math.isnan(gap.p_corrected) else f" {significance_stars(gap.p_corrected)}"
    return f"{format_difference(gap.difference)}{told}"


def format_difference(value: float, digits: int = 4) -> str:
    """Format a difference; one that rounds to 0 has no minus sign.

    >>> format_difference(0.05), format_difference(-0.00001), format_difference(math.nan)
    ('+0.0500', '+0.0000', '-')
    """
    return MISSING_VALUE if math.isnan(value) else f"{round(value, digits) + 0.0:+.{digits}f}"


def format_value(value: float) -> str:
    """Format a value with four decimals; a dash for NaN."""
    return MISSING_VALUE if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


def format_share(value: float) -> str:
    """Format a share as percent; a dash for NaN.

    >>> format_share(0.981), format_share(math.nan), format_share(0.00004), format_share(1.0), format_share(0.99999)
    ('98.1%', '-', '<0.1%', '100%', '>99.9%')
    """
    if math.isnan(value):
        return MISSING_VALUE
    if value in (0.0, 1.0):
        return f"{value:.0%}"
    return "<0.1%" if value < 0.0005 else ">99.9%" if value > 0.9995 else f"{value:.1%}"


def format_count(value: int | None) -> str:
    """Format a count; a dash for None."""
    return MISSING_VALUE if value is None else f"{value:,}"


def format_large_number(value: int | None) -> str:
    """Format a large number with a unit prefix.

    >>> (format_large_number(22_713_216), format_large_number(512_000), format_large_number(980),
    ...  format_large_number(2_340_000_000), format_large_number(None))
    ('22.7M', '512k', '980', '2.3G', '-')
    """
    if value is None:
        return MISSING_VALUE
    for size, name in ((10**9, "G"), (10**6, "M")):
        if value >= size:
            return f"{value / size:.1f}{name}"
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:,}"


def format_megabytes(value: int | None) -> str:
    """Format bytes as whole megabytes; a dash for None."""
    return MISSING_VALUE if value is None else f"{value / 1e6:,.0f}"


def format_seconds(value: float) -> str:
    """Format seconds with three significant digits; a dash for NaN."""
    return MISSING_VALUE if math.isnan(value) else format_number(value, "ms")
