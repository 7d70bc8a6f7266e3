"""Tables of an embedder study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ragauge.core.summaries import Estimate, Mean
from ragauge.core.text import one_line
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy, MeanDifference, StoreResult
from ragauge.embedder_study.selections import (
    REDUCTION_TITLES,
    REFERENCE_PRECISION,
    PerturbationKey,
    TradeOffPoint,
    describe_training,
    find_latency,
    finite_values,
    first_store,
    is_significant,
    main_mean,
    perturbation_key,
    perturbation_label,
    sort_bits_per_byte,
    sort_embedders,
    sort_perturbations,
    store_names,
    vector_embedders,
)
from ragauge.output.numbers import MISSING, format_number
from ragauge.output.tables import Cell, Column, Row, Table, Value
from ragauge.stats.comparisons import significance_stars
from ragauge.store_benchmarks.report_text import DOUBT_MARK

EMBEDDER_COLUMN = Column("embedder", "name")
MAX_FAILED_TEXTS_NAMED = 3
"""Maximum number of failed texts named in a cell."""


def build_quality_table(result: EmbedderStudy) -> Table:
    """Build the table of means, with the difference from the baseline by the first measure."""
    main, *other_measures = result.measures
    level = f"{result.confidence:.0%}"
    columns = [
        EMBEDDER_COLUMN,
        Column(main, "score", 1, legend=f"mean with {level} confidence interval"),
        Column(
            f"vs {result.baseline}",
            "signed",
            legend=f"difference in {main}; *** p < 0.001, ** p < 0.01, * p < 0.05, ns not significant",
        ),
        *(Column(measure, "score", 1, len(other_measures) - i + 1) for i, measure in enumerate(other_measures)),
        Column("n", "count", drop_order=1, legend="number of queries"),
    ]
    rows: list[Row] = [
        [
            embedder.name,
            _to_estimate(embedder.means.get(main)),
            _baseline_cell(result, embedder, main),
            *(_mean_value(embedder.means.get(measure)) for measure in other_measures),
            main_mean(result, embedder).n or None,
        ]
        for embedder in sort_embedders(result)
    ]
    note = ""
    if any(embedder.kind == "chance" for embedder in result.embedders):
        note = "chance ranks by random vectors: the lower bound of all embedders (--no-baselines leaves it out)."
    return Table("quality", columns, rows, note=note).mark_best()


def _baseline_cell(result: EmbedderStudy, embedder: EmbedderResult, measure: str) -> Cell:
    if embedder.name == result.baseline:
        return Cell(None, text="baseline")
    return _difference_cell(embedder.differences.get(measure))


def _difference_cell(difference: MeanDifference | None, *, with_interval: bool = False) -> Cell:
    """Return a difference with the stars of its corrected p-value."""
    if difference is None or math.isnan(difference.value):
        return Cell(None)
    stars = "" if math.isnan(difference.p_corrected) else significance_stars(difference.p_corrected)
    value: Value = difference.value
    if with_interval:
        value = Estimate(difference.value, difference.low, difference.high, difference.n)
    return Cell(value, "signed", stars=stars)


def _to_estimate(mean: Mean | None) -> Estimate | None:
    return None if mean is None else Estimate(mean.value, mean.low, mean.high, mean.n)


def _mean_value(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value


def build_measure_table(result: EmbedderStudy) -> Table:
    """Build a table of means and tests, one row per embedder and measure."""
    columns = [
        EMBEDDER_COLUMN,
        Column("measure", "name"),
        Column("mean", "score"),
        Column("n", "count"),
        Column(f"vs {result.baseline}", "signed"),
        Column("p", "p"),
        Column("p (Holm)", "p"),
    ]
    rows: list[Row] = []
    for embedder in sort_embedders(result):
        for measure, mean in embedder.means.items():
            difference = embedder.differences.get(measure)
            p, p_corrected = (None, None) if difference is None else (difference.p, difference.p_corrected)
            cell = _difference_cell(difference, with_interval=True)
            rows.append([embedder.name, measure, _to_estimate(mean), mean.n, cell, p, p_corrected])
    return Table("tests", columns, rows, "All measures with their tests", collapsed=True)


def build_pair_table(result: EmbedderStudy) -> Table:
    """Build the table of compared pairs and the option in which they differ."""
    columns = [
        Column("better", "name"),
        Column("worse", "name"),
        Column("differing option", "name"),
        Column("difference", "signed", legend=f"in {result.measures[0]}, with {result.confidence:.0%} CI"),
        Column("p", "p", drop_order=2, legend="paired t-test, corrected over all pairs of this table"),
        Column("n", "count", drop_order=1),
    ]
    rows: list[Row] = [
        [
            pair.better,
            pair.worse,
            pair.option or "best two",
            _difference_cell(pair.difference, with_interval=True),
            pair.difference.p_corrected,
            pair.difference.n,
        ]
        for pair in result.pairs
    ]
    return Table("pairs", columns, rows)


def build_property_table(result: EmbedderStudy) -> Table:
    """Build the table of properties in which embedders differ."""
    columns = [
        EMBEDDER_COLUMN,
        Column("trained", "name"),
        Column("parameters", "large"),
        Column("dimensions", "count", drop_order=2),
        Column("max tokens", "count", drop_order=1, legend="number of tokens that the embedder reads per text"),
        Column("truncated", "share", legend="share of the documents that are longer than that"),
        Column("tokenizer", "name"),
    ]
    rows: list[Row] = [
        [
            embedder.name,
            describe_training(embedder) or MISSING,
            embedder.parameters,
            embedder.dimension,
            embedder.limit,
            embedder.truncated,
            MISSING if embedder.tokenizer is None else embedder.tokenizer.tokenizer,
        ]
        for embedder in sort_embedders(result)
    ]
    return Table("properties", columns, rows)


def build_cost_table(result: EmbedderStudy) -> Table:
    """Build the table of latency in the first store, throughput, size and memory."""
    columns = [
        EMBEDDER_COLUMN,
        Column("p50 ms", "ms", legend="median latency of a query, from its text to its hits"),
        Column("p95 ms", "ms"),
        Column("p99 ms", "ms", drop_order=2),
        Column("embed ms", "ms", drop_order=4, legend="median latency of embedding the query"),
        Column("retrieve ms", "ms", drop_order=3, legend="median latency of the search"),
        Column("docs/s", "qps", legend="documents embedded per second, in batches, with all threads"),
        Column("dimensions", "count"),
        Column("vector", "bytes", drop_order=5, legend="size of a vector"),
        Column("parameters", "large"),
        Column("memory", "bytes", drop_order=7, legend="memory of a process with the embedder, minus one without it"),
        Column("load s", "seconds", drop_order=1),
        Column("train s", "seconds", drop_order=6),
    ]
    rows: list[Row] = [
        [
            embedder.name,
            *(_latency_cell(first_store(embedder), "total", statistic) for statistic in ("p50", "p95", "p99")),
            _latency_cell(first_store(embedder), "embed", "p50"),
            _latency_cell(first_store(embedder), "retrieve", "p50"),
            embedder.documents_per_second,
            embedder.dimension,
            embedder.bytes_per_vector,
            embedder.parameters,
            embedder.memory_bytes,
            embedder.load_seconds,
            embedder.train_seconds,
        ]
        for embedder in sort_embedders(result)
    ]
    return _without_empty_columns(Table("costs", columns, rows))


def _without_empty_columns(table: Table) -> Table:
    """Leave out the columns of numbers without any value, and all rows if only the names are left."""
    cells = table.cells()
    columns = [i for i, column in enumerate(table.columns) if column.is_text or any(_is_known(row[i]) for row in cells)]
    rows = [[row[i] for i in columns] for row in cells] if len(columns) > 1 else []
    return replace(table, columns=[table.columns[i] for i in columns], rows=rows)


def _is_known(cell: Cell) -> bool:
    return cell.value is not None and not (isinstance(cell.value, float) and math.isnan(cell.value))


def _latency_cell(store: StoreResult | None, stage: str, statistic: str) -> Cell:
    latency = find_latency(store, stage)
    if store is None or latency is None:
        return Cell(None)
    value = {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99}[statistic]
    return Cell(value, mark=DOUBT_MARK if store.unreliable_times else "")


def build_embedder_store_table(result: EmbedderStudy) -> Table:
    main = result.measures[0]
    timed = [(stage, statistic) for stage in ("retrieve", "total") for statistic in ("p50", "p95", "p99")]
    columns = [
        EMBEDDER_COLUMN,
        Column("store", "name"),
        Column(main, "score"),
        Column("recall", "share"),
        Column("index", "name"),
        Column("embed p50 ms", "ms"),
        *(Column(f"{stage} {statistic} ms", "ms") for stage, statistic in timed),
        Column("build s", "seconds"),
        Column("note"),
    ]
    rows: list[Row] = [
        [
            embedder.name,
            store.store,
            _to_estimate(store.means.get(main)),
            store.neighbours,
            MISSING if store.index_used is None else "used" if store.index_used else "not used",
            _latency_cell(store, "embed", "p50"),
            *(_latency_cell(store, stage, statistic) for stage, statistic in timed),
            store.build_seconds,
            store.note,
        ]
        for embedder in sort_embedders(result)
        for store in embedder.stores
    ]
    return Table("store-results", columns, rows, "All embedders in all stores", group_by=0, collapsed=True)


def build_store_table(result: EmbedderStudy) -> Table:
    """Build a table with one row per store, over all embedders with vectors."""
    main = result.measures[0]
    columns = [
        Column("store", "name"),
        Column("embedders", "count", drop_order=2),
        Column(f"max loss of {main}", "score", legend="largest loss of an embedder compared with exact ranking"),
        Column("min recall", "share", legend="smallest share of the ten exact neighbours that was found"),
        Column("p50 ms", "ms", legend="latency of the search: range over the embedders"),
        Column("p95 ms", "ms", drop_order=1),
        Column("index", "name"),
    ]
    rows: list[Row] = []
    for name in store_names(result):
        pairs = [(embedder, embedder.find_store(name)) for embedder in vector_embedders(result)]
        stores = [(embedder, store) for embedder, store in pairs if store is not None and store.stages]
        if not stores:
            continue
        losses = [
            main_mean(result, embedder).value - store.means[main].value
            for embedder, store in stores
            if main in store.means
        ]
        latencies = [store.stages["retrieve"] for _, store in stores if "retrieve" in store.stages]
        rows.append(
            [
                name,
                len(stores),
                max(losses, default=None),
                min(finite_values(store.neighbours for _, store in stores), default=None),
                _range_cell([latency.p50 for latency in latencies]),
                _range_cell([latency.p95 for latency in latencies]),
                _describe_index_use([store.index_used for _, store in stores]),
            ]
        )
    return Table("stores", columns, rows)


def _describe_index_use(used: Sequence[bool | None]) -> str:
    values = set(used) - {None}
    return MISSING if not values else "used" if values == {True} else "not always used"


def _range_cell(values: Sequence[float]) -> Cell:
    finite = finite_values(values)
    if not finite:
        return Cell(None)
    low, high = format_number(min(finite), "ms"), format_number(max(finite), "ms")
    return Cell(max(finite), text=low if low == high else f"{low} to {high}")


def build_dimension_table(result: EmbedderStudy, method: str) -> Table:
    """Build the table of the first measure at the dimensions that all embedders have."""
    main = result.measures[0]
    embedders = [embedder for embedder in vector_embedders(result) if embedder.compressed]
    means = {
        (embedder.name, item.dimension): item.means.get(main)
        for embedder in embedders
        for item in embedder.compressed
        if (item.method, item.precision) == (method, REFERENCE_PRECISION)
    }
    every = sorted({size for _, size in means})
    common = [size for size in every if all((embedder.name, size) in means for embedder in embedders)]
    sizes = common if len(common) > 1 else every
    columns = [
        EMBEDDER_COLUMN,
        Column("dimensions", "count", drop_order=1),
        Column("full", "score", drop_order=2, legend=f"{main} with all dimensions"),
        *(Column(f"{size:,} d", "score", 1, {0: 3, 2: 4, 4: 5, 6: 6}.get(i, 0)) for i, size in enumerate(sizes)),
    ]
    rows: list[Row] = [
        [
            embedder.name,
            embedder.dimension,
            main_mean(result, embedder).value,
            *(_mean_value(means.get((embedder.name, size))) for size in sizes),
        ]
        for embedder in (embedders if sizes else ())
    ]
    return Table(f"dimensions-{method}", columns, rows, REDUCTION_TITLES.get(method, method)).mark_best()


def build_trade_off_table(result: EmbedderStudy, points: Sequence[TradeOffPoint]) -> Table:
    """Build the table of the best vectors by size."""
    columns = [
        Column("embedder", "name"),
        Column("bytes", "count", legend="size of a vector"),
        Column("vector", "name", legend="reduction method, dimensions and precision"),
        Column(result.measures[0], "score", legend=f"mean with {result.confidence:.0%} confidence interval"),
    ]
    rows: list[Row] = [[point.name, point.cost, point.vectors, _to_estimate(point.mean)] for point in points]
    return Table("bytes", columns, rows, collapsed=True)


def build_corpus_size_table(result: EmbedderStudy) -> Table:
    """Build the table of the first measure by corpus size."""
    main = result.measures[0]
    embedders = [embedder for embedder in sort_embedders(result) if embedder.corpus_sizes]
    means = {
        (embedder.name, item.documents): item.means.get(main)
        for embedder in embedders
        for item in embedder.corpus_sizes
    }
    sizes = sorted({size for _, size in means})
    columns = [EMBEDDER_COLUMN, *(Column(f"{size:,} documents", "score", 1) for size in sizes)]
    rows: list[Row] = [
        [embedder.name, *(_mean_value(means.get((embedder.name, size))) for size in sizes)] for embedder in embedders
    ]
    return Table("sizes", columns, rows, collapsed=True).mark_best()


def build_robustness_table(result: EmbedderStudy) -> Table:
    """Build the table of changes by perturbation and embedder, largest mean loss first."""
    keys = sort_perturbations(result)
    columns = [
        EMBEDDER_COLUMN,
        Column("unchanged", "score", legend=f"{result.measures[0]} of the original queries"),
        Column("retained", "share", legend="mean share of it that is left after a perturbation"),
        *(
            Column(perturbation_label(result, key), "signed", drop_order=max(0, len(keys) - i) if i > 1 else 0)
            for i, key in enumerate(keys)
        ),
    ]
    rows: list[Row] = []
    for embedder in sort_embedders(result):
        if embedder.perturbed:
            differences = {perturbation_key(item): item.difference for item in embedder.perturbed}
            unperturbed = main_mean(result, embedder).value
            cells = [_loss_cell(result, differences, key) for key in keys]
            rows.append([embedder.name, unperturbed, _retained_share(embedder, unperturbed), *cells])
    return Table("robustness", columns, rows)


def _loss_cell(
    result: EmbedderStudy, differences: Mapping[PerturbationKey, MeanDifference], key: PerturbationKey
) -> Cell:
    difference = differences.get(key)
    if difference is None or math.isnan(difference.value):
        return Cell(None)
    significant = is_significant(result, difference.p_corrected)
    return Cell(difference.value, stars="*" if significant else "")


def _retained_share(embedder: EmbedderResult, unperturbed: float) -> float | None:
    shares = finite_values(1 + item.difference.value / unperturbed for item in embedder.perturbed if unperturbed > 0)
    return sum(shares) / len(shares) if shares else None


def build_perturbation_table(result: EmbedderStudy) -> Table:
    """Build a table with one row per embedder and perturbation."""
    columns = [
        EMBEDDER_COLUMN,
        Column("perturbation", "name"),
        Column("rate", "number"),
        Column("queries changed", "share"),
        Column(result.measures[0], "score"),
        Column("change", "signed"),
        Column("p", "p"),
        Column("p (Holm)", "p"),
        Column("seeds", "count"),
    ]
    rows: list[Row] = [
        [
            embedder.name,
            item.name,
            item.rate,
            item.changed,
            _to_estimate(item.mean),
            Estimate(item.difference.value, item.difference.low, item.difference.high, item.difference.n),
            item.difference.p,
            item.difference.p_corrected,
            item.seeds,
        ]
        for embedder in sort_embedders(result)
        for item in embedder.perturbed
    ]
    return Table("perturbations", columns, rows, "All perturbations with their intervals", group_by=0, collapsed=True)


def build_bits_table(result: EmbedderStudy) -> Table:
    """Build the table of bits per byte, fewest first."""
    columns = [Column("model", "name"), Column("bits per byte", "statistic"), Column("trained", "name")]
    rows: list[Row] = [
        [item.name, item.bits, (describe_training(item.model) if item.model is not None else "") or MISSING]
        for item in sort_bits_per_byte(result)
    ]
    return Table("bits", columns, rows)


def build_failure_count_table(result: EmbedderStudy) -> Table:
    """Build the table of texts without a vector, by embedder, kind and reason."""
    columns = [EMBEDDER_COLUMN, Column("kind", "name"), Column("reason", "name"), Column("texts", "count")]
    columns.append(Column("examples"))
    rows: list[Row] = []
    for embedder in result.embedders:
        for kind, reason, n in embedder.failure_counts:
            ids = [text.id for text in embedder.failed_texts if (text.kind, text.reason) == (kind, reason)]
            more = ", …" if n > MAX_FAILED_TEXTS_NAMED else ""
            rows.append([embedder.name, kind, reason, n, ", ".join(ids[:MAX_FAILED_TEXTS_NAMED]) + more])
    return Table("failed-texts", columns, rows)


def build_failed_text_table(result: EmbedderStudy) -> Table:
    """Build a table with one row per listed text without a vector."""
    columns = [Column(title) for title in ("embedder", "kind", "id", "reason", "error")]
    rows: list[Row] = [
        [embedder.name, text.kind, text.id, text.reason, one_line(text.error) or MISSING]
        for embedder in result.embedders
        for text in embedder.failed_texts
    ]
    return Table("failed-text-list", columns, rows, "The texts", collapsed=True)


def build_failed_embedder_table(result: EmbedderStudy) -> Table:
    rows: list[Row] = [[name, one_line(reason)] for name, reason in result.failures.items()]
    return Table("failures", [Column("embedder"), Column("reason")], rows)
