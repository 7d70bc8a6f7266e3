"""Read and write RAGdbEval's results as JSON and as CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput
from ragauge.core.ids import to_id
from ragauge.core.summaries import Mean, Speed
from ragauge.files.json_files import read_json
from ragauge.files.source import InputFile
from ragauge.output.numbers import pluralise
from ragauge.reports.layouts.cells import (
    LayoutMeasures,
    build_speed,
    find_dataset_name,
    find_latency_ms,
    parse_count,
    parse_finite_number,
    parse_row_numbers,
    read_layout_table,
    to_csv,
    to_json,
    unknown_column_notes,
)
from ragauge.store_benchmarks.results import MeasuredConfiguration, StoreBenchmark

CODE_MEASURES: Mapping[str, str] = {
    "recall@1": "recall(of=capped)@1",
    "recall@10": "recall(of=capped)@10",
    "recall@50": "recall(of=capped)@50",
    "recall@100": "recall(of=capped)@100",
    "precision@1": "precision(of=retrieved)@1",
    "precision@10": "precision(of=retrieved)@10",
    "precision@50": "precision(of=retrieved)@50",
    "precision@100": "precision(of=retrieved)@100",
    "mrr": "mrr@100",
    "ndcg@10": "ndcg@10",
    "ndcg@100": "ndcg@100",
    "map@10": "map(of=capped)@10",
    "map@100": "map(of=capped)@100",
    "hit_rate@1": "hit_rate@1",
    "hit_rate@10": "hit_rate@10",
    "f1@10": "f1(precision_of=retrieved,recall_of=capped)@10",
}
"""Measure behind each column as RAGdbEval's code computes it. Its code writes the files, so this is the default."""
DOCUMENTED_MEASURES: Mapping[str, str] = {
    column: re.sub(r"\(.*\)", "", measure) for column, measure in CODE_MEASURES.items()
}
"""Measure behind each column as RAGdbEval's document defines it: recall / all true neighbours, precision / k."""
CODE_CONVENTION, DOCUMENT_CONVENTION = "ragdbeval-capped", "ragdbeval"
MEASURES_BY_CONVENTION: Mapping[str, Mapping[str, str]] = {
    CODE_CONVENTION: CODE_MEASURES,
    DOCUMENT_CONVENTION: DOCUMENTED_MEASURES,
}
"""Measure behind each column, by convention."""
STATISTIC_BY_LATENCY_COLUMN: Mapping[str, str] = {
    f"latency_{kind}_ms": kind for kind in ("p50", "p90", "p95", "p99", "mean", "std", "min", "max")
}
QPS_COLUMNS = ("qps_single_thread", "qps_max", "qps_at_recall_90", "qps_at_recall_95", "qps_at_recall_99")
PERFORMANCE_COLUMNS = (*STATISTIC_BY_LATENCY_COLUMN, *QPS_COLUMNS, "coldstart_latency_ms", "warmup_time_ms")
BYTES_COLUMN_BY_MB_COLUMN: Mapping[str, str] = {
    "index_size_mb": "index_size_bytes",
    "disk_mb": "disk_bytes",
    "ram_mb_peak": "ram_bytes_peak",
    "ram_mb_steady": "ram_bytes_steady",
}
"""Columns in MiB, with the column that has the same value in bytes."""
RESOURCE_COLUMNS = (
    "index_build_time_sec",
    *(column for mega, plain in BYTES_COLUMN_BY_MB_COLUMN.items() for column in (plain, mega)),
    "bytes_per_vector",
    "cpu_utilization_percent",
)
OPERATION_COLUMNS = (
    "insert_latency_single_ms",
    "insert_throughput_batch",
    "update_latency_ms",
    "update_throughput",
    "delete_latency_ms",
    "delete_throughput",
    "compaction_time_sec",
    "recovery_time_sec",
)
COLUMNS_BY_PREFIX: Mapping[str, tuple[str, ...]] = {
    "quality_": tuple(CODE_MEASURES),
    "perf_": PERFORMANCE_COLUMNS,
    "resource_": RESOURCE_COLUMNS,
    "ops_": OPERATION_COLUMNS,
}
COST_NAME_BY_COLUMN: Mapping[str, str] = {"coldstart_latency_ms": "cold_ms", "index_build_time_sec": "build_seconds"}
"""Columns whose cost has another name in ragauge."""
RESULT_KEYS = (
    *("experiment_name", "timestamp", "database", "dataset", "index_config", "num_runs", "mean_metrics"),
    *("hardware_info", "success", "error_message"),
)
CSV_COLUMNS = ("experiment", "database", "dataset", "num_runs", *CODE_MEASURES, *PERFORMANCE_COLUMNS, *RESOURCE_COLUMNS)
CONVENTION_KEY = "convention"
"""Key in the metadata of the JSON and last column of the CSV; RAGdbEval's own files have neither."""
LAYOUT_MEASURES = LayoutMeasures("ragdbeval", CODE_CONVENTION, tuple(CODE_MEASURES.values()))


def read_ragdbeval_json(path: str) -> Overview:
    """Read the results of each experiment from RAGdbEval's JSON.

    Experiments that failed are listed in `failures`.
    """
    source = InputFile(path)
    data = read_json(source)
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise BadInput(
            "not results of RAGdbEval",
            file=source.label,
            hint='{"metadata": {…}, "results": [{"experiment_name": …, "mean_metrics": {…}}]}',
        )
    metadata = data.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadInput("metadata must be an object", file=source.label)
    convention = _parse_convention(metadata.get(CONVENTION_KEY), source.label)
    count = parse_count(metadata.get("num_results"), "num_results", source.label)
    if count is not None and count != len(results):
        raise BadInput(
            f"num_results is {count}, but the file has {len(results)} results",
            file=source.label,
            hint="check whether the file is complete",
        )
    entries: dict[str, SystemSummary] = {}
    failures: dict[str, str] = {}
    notes: list[str] = []
    unknown_columns: dict[str, None] = {}
    for at, result in enumerate(results, start=1):
        experiment = to_id(result.get("experiment_name"), f"experiment_name of result {at}", source.label)
        index = result.get("index_config")
        same_name = [other for other in results if other.get("experiment_name") == result["experiment_name"]]
        name = f"{experiment} ({index})" if len(same_name) > 1 and index else experiment
        if name in entries or name in failures:
            raise BadInput(f"result {at} repeats the name `{name}`", file=source.label)
        message = result.get("error_message")
        if result.get("success") is False:
            failures[name] = str(message or "failed")
            continue
        notes += [f"{name}: {warning}" for warning in _result_warnings(result)]
        metrics = _parse_mean_metrics(result, f"result {at}", source.label)
        unknown_columns |= dict.fromkeys(
            metric for metric in metrics if metric not in CSV_COLUMNS and metric not in OPERATION_COLUMNS
        )
        entries[name] = _build_system_summary(name, metrics, _result_provenance(result, metadata), convention)
    if unknown_columns:
        notes.append(f"not part of this layout and left out: {', '.join(unknown_columns)}")
    if not entries:
        raise BadInput("no result succeeded" if failures else "no results", file=source.label)
    created = metadata.get("generated_at")
    overview = _build_overview(source, entries, notes, convention)
    return replace(overview, failures=failures, made=created if isinstance(created, str) else "")


def read_ragdbeval_csv(path: str) -> Overview:
    """Read means, speed, costs and provenance of each experiment from RAGdbEval's CSV."""
    source = InputFile(path)
    rows = read_layout_table(path, ("experiment", "database"), CODE_MEASURES, "RAGdbEval")
    entries: dict[str, SystemSummary] = {}
    conventions = dict.fromkeys(rows.columns.get(CONVENTION_KEY, [None]))
    if len(conventions) > 1:
        raise BadInput(
            f"results of several conventions; expected one, got {', '.join(map(str, conventions))}",
            file=source.label,
            hint="split the file by its column `convention`",
        )
    convention = _parse_convention(next(iter(conventions)), source.label)
    for at in range(len(rows)):
        name = rows.id("experiment", at, "experiment")
        if name in entries:
            raise BadInput(f"experiment `{name}` has two rows", file=source.label, line=rows.line(at))
        cells = {column: rows.columns[column][at] for column in CSV_COLUMNS[1:4] if column in rows.columns}
        runs = parse_count(cells.get("num_runs"), "num_runs", source.label, rows.line(at))
        provenance = _result_provenance({"experiment_name": name, **cells, "num_runs": runs}, {})
        entries[name] = _build_system_summary(
            name, parse_row_numbers(rows, at, CSV_COLUMNS[4:]), provenance, convention
        )
    return _build_overview(source, entries, unknown_column_notes(rows, (*CSV_COLUMNS, CONVENTION_KEY)), convention)


def render_ragdbeval_json(overview: Overview) -> str:
    """Format an overview as RAGdbEval's JSON. Unknown values are null.

    A system with results is a success without an error message. What limits its values is in `warnings`.
    """
    convention = _check_convention(overview)
    results: list[dict[str, Any]] = []
    for name, entry in overview.entries.items():
        manifest, values = entry.manifest, values_by_column(entry, convention)
        warnings, success = _result_warnings(manifest) + _failed_query_warnings(entry), _has_results(entry)
        results.append(
            {
                **_experiment_fields(name, entry, overview),
                "timestamp": manifest.get("finished"),
                "index_config": manifest.get("index_config"),
                "mean_metrics": {
                    f"{group}{key}": values.get(key) for group, keys in COLUMNS_BY_PREFIX.items() for key in keys
                },
                "hardware_info": manifest.get("machine"),
                "success": success,
                "error_message": None if success else "; ".join(warnings),
                **({"warnings": warnings} if success and warnings else {}),
            }
        )
    results += [
        {"experiment_name": name, "dataset": overview.dataset or None, "success": False, "error_message": reason}
        for name, reason in overview.failures.items()
    ]
    metadata = {
        "generated_at": overview.made or None,
        "num_results": len(results),
        "random_seed": _shared_manifest_value(overview, "random_seed"),
        "strict_mode": _shared_manifest_value(overview, "strict_mode"),
        CONVENTION_KEY: convention,
    }
    return to_json({"metadata": metadata, "results": [dict.fromkeys(RESULT_KEYS) | result for result in results]})


def render_ragdbeval_csv(overview: Overview) -> str:
    """Format an overview as RAGdbEval's CSV.

    It has no column for failures and warnings.
    """
    convention = _check_convention(overview)
    rows = []
    for name, entry in overview.entries.items():
        fields = _experiment_fields(name, entry, overview)
        values = values_by_column(entry, convention)
        rows.append({"experiment": fields["experiment_name"], **fields, **values, CONVENTION_KEY: convention})
    return to_csv((*CSV_COLUMNS, CONVENTION_KEY), rows)


def values_by_column(entry: SystemSummary, convention: str = CODE_CONVENTION) -> dict[str, float | None]:
    """Return all known values of a system by RAGdbEval's column names.

    `convention` defines the measures behind the quality columns.
    """
    values: dict[str, float | None] = {
        column_name: entry.means[measure].value
        for column_name, measure in MEASURES_BY_CONVENTION[convention].items()
        if measure in entry.means
    }
    values |= {
        column_name: find_latency_ms(entry.speed, "total", kind)
        for column_name, kind in STATISTIC_BY_LATENCY_COLUMN.items()
    }
    mean = values["latency_mean_ms"]
    if mean:
        values["qps_single_thread"] = 1000 / mean  # RAGdbEval's definition: one thread, no pause between queries.
    for column in (*PERFORMANCE_COLUMNS[len(STATISTIC_BY_LATENCY_COLUMN) :], *RESOURCE_COLUMNS, *OPERATION_COLUMNS):
        cost = entry.costs.get(COST_NAME_BY_COLUMN.get(column, column))
        if cost is not None and not math.isnan(cost):  # A cached build has no build time.
            values[column] = cost
    for mb_column, bytes_column in BYTES_COLUMN_BY_MB_COLUMN.items():
        size = values.get(bytes_column)
        if size is not None and mb_column not in values:
            values[mb_column] = size / 2**20
    return {
        column_name: value if value is None or "_bytes" not in column_name else _integer_bytes(value)
        for column_name, value in values.items()
    }


def _integer_bytes(value: float) -> float:
    """Convert an integral number of bytes to an int."""
    return int(value) if math.isfinite(value) and value == int(value) else value


def _experiment_fields(name: str, entry: SystemSummary, overview: Overview) -> dict[str, Any]:
    fields = entry.manifest
    plan = fields.get("plan") or {}
    return {
        "experiment_name": fields.get("experiment_name", name),
        "database": fields.get("database", name),
        "dataset": find_dataset_name(overview, entry),
        "num_runs": plan.get("repeats"),
    }


def _failed_query_warnings(entry: SystemSummary) -> list[str]:
    return [f"{pluralise(len(entry.failed), 'query')} failed"] if entry.failed else []


def _has_results(entry: SystemSummary) -> bool:
    """Return False if every query failed."""
    return not entry.failed or len(entry.failed) < max((mean.n for mean in entry.means.values()), default=0)


def _result_warnings(result: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a successful result, which RAGdbEval writes to `error_message`."""
    warnings = result.get("warnings")
    listed = warnings if isinstance(warnings, list) else [warnings]
    return [str(warning) for warning in (result.get("error_message"), *listed) if warning]


def _check_convention(overview: Overview) -> str:
    """Return the convention that the quality values follow.

    Raises BadInput if it does not fit the layout.
    """
    base = overview.convention.partition(",")[0]
    if base == DOCUMENT_CONVENTION:
        LayoutMeasures("ragdbeval", DOCUMENT_CONVENTION, tuple(DOCUMENTED_MEASURES.values())).check(overview)
        return DOCUMENT_CONVENTION
    LAYOUT_MEASURES.check(overview)
    return CODE_CONVENTION


def _parse_convention(value: Any, label: str) -> str:
    """Return the convention that a file names, or that of RAGdbEval's code."""
    if value in (None, ""):
        return CODE_CONVENTION
    if value not in MEASURES_BY_CONVENTION:
        raise BadInput(
            f"unknown convention; expected one of {', '.join(MEASURES_BY_CONVENTION)}, got `{str(value)[:40]}`",
            file=label,
            hint="correct or delete the field `convention`",
        )
    return str(value)


def _shared_manifest_value(overview: Overview, key: str) -> Any:
    """Return a manifest value that all systems share, else None."""
    values = [entry.manifest.get(key) for entry in overview.entries.values()]
    return values[0] if all(value == values[0] for value in values) else None


def _parse_mean_metrics(result: Mapping[str, Any], subject: str, label: str) -> dict[str, float]:
    """Parse the numbers of a result by column name, without the group prefix."""
    mean_metrics = result.get("mean_metrics")
    if not isinstance(mean_metrics, dict):
        raise BadInput(f"{subject} has no mean_metrics", file=label, hint='"mean_metrics": {"quality_recall@10": 0.98}')
    metrics = {}
    for name, value in mean_metrics.items():
        group = next((prefix for prefix in COLUMNS_BY_PREFIX if name.startswith(prefix)), "")
        number = parse_finite_number(value, f"{name} of {subject}", label)
        if number is not None:
            metrics[name.removeprefix(group)] = number
    return metrics


def _result_provenance(result: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of a result with the keys of a manifest."""
    return {
        "experiment_name": result["experiment_name"],
        "finished": result.get("timestamp"),
        "database": result.get("database"),
        "dataset": {"name": result.get("dataset")},
        "index_config": result.get("index_config"),
        "plan": {"repeats": result.get("num_runs")},
        "machine": result.get("hardware_info"),
        "error_message": result.get("error_message"),
        "warnings": result.get("warnings"),
        "random_seed": about.get("random_seed"),
        "strict_mode": about.get("strict_mode"),
    }


def _build_system_summary(
    name: str, figures: Mapping[str, float], manifest: Mapping[str, Any], convention: str
) -> SystemSummary:
    means = {
        measure: Mean(figures[column], 0)
        for column, measure in MEASURES_BY_CONVENTION[convention].items()
        if column in figures
    }
    latency = {kind: figures[column] for column, kind in STATISTIC_BY_LATENCY_COLUMN.items() if column in figures}
    redundant = {mb_column for mb_column, bytes_column in BYTES_COLUMN_BY_MB_COLUMN.items() if bytes_column in figures}
    costs = {
        COST_NAME_BY_COLUMN.get(column, column): value
        for column, value in figures.items()
        if column in CSV_COLUMNS[len(CODE_MEASURES) + len(STATISTIC_BY_LATENCY_COLUMN) + 4 :] + OPERATION_COLUMNS
        and column not in redundant
    }
    speed = build_speed({"total": latency}, throughput=figures.get("qps_single_thread", math.nan))
    return SystemSummary(name, means, speed=speed, costs=costs, stated_manifest=manifest)


def _build_overview(
    source: InputFile, entries: Mapping[str, SystemSummary], notes: list[str], convention: str
) -> Overview:
    """Build the overview of all results, with notes on their limits."""
    layout_measures = MEASURES_BY_CONVENTION[convention].values()
    measures = [measure for measure in layout_measures if any(measure in entry.means for entry in entries.values())]
    if not measures:
        raise BadInput("no result has a quality measure", file=source.label, hint="add one such as quality_recall@10")
    dataset_names = {str(entry.stated_manifest["dataset"]["name"] or "") for entry in entries.values()}
    if any(value == 0 for entry in entries.values() for value in values_by_column(entry, convention).values()):
        notes = [*notes, "RAGdbEval writes 0 for what it did not measure: a 0 here may mean that"]
    if len(dataset_names) > 1:
        notes = [*notes, f"the results are of {len(dataset_names)} datasets: they are not comparable"]
    dataset = dataset_names.pop() if len(dataset_names) == 1 else ""
    return Overview(source.stem, entries, measures, convention, dataset=dataset, notes=notes)


QPS_COLUMN_BY_RECALL = {0.90: "qps_at_recall_90", 0.95: "qps_at_recall_95", 0.99: "qps_at_recall_99"}


def render_benchmark_json(result: StoreBenchmark, convention: str = CODE_CONVENTION) -> str:
    """Format a store benchmark as RAGdbEval's JSON. Unknown values are null."""
    return render_ragdbeval_json(benchmark_overview(result, convention))


def render_benchmark_csv(result: StoreBenchmark, convention: str = CODE_CONVENTION) -> str:
    """Format a store benchmark as RAGdbEval's CSV, which has no column for failures."""
    return render_ragdbeval_csv(benchmark_overview(result, convention))


def benchmark_overview(result: StoreBenchmark, convention: str = CODE_CONVENTION) -> Overview:
    """Return the overview of a store benchmark that the layout is written from.

    All known exact neighbours of a query (100 unless k is larger) are relevant, as in RAGdbEval. Its document
    divides recall by their number, its code by min(k, their number). Precision is divided by k in the document, and
    by the number of returned documents in the code. `mrr` has depth 100 and is omitted if fewer neighbours were
    searched for.
    """
    entries = {}
    for configuration in (point for point in result.points if not point.is_floor):
        name = (
            f"{configuration.configuration.name}={configuration.configuration}"
            if configuration.configuration.name
            else str(configuration.configuration)
        )
        provenance = _configuration_provenance(result, configuration, name)
        speed = Speed({"total": configuration.latency}, configuration.qps, configuration.latency.n, 0, 0)
        means = _configuration_means(result, configuration, MEASURES_BY_CONVENTION[convention])
        entries[name] = SystemSummary(
            name, means, speed=speed, costs=_configuration_costs(result, configuration), stated_manifest=provenance
        )
    failures = {str(failure.configuration): f"{failure.stage}: {failure.message}" for failure in result.failures}
    created = str(result.provenance.get("made") or "")
    layout_measures = MEASURES_BY_CONVENTION[convention].values()
    measures = [name for name in layout_measures if any(name in entry.means for entry in entries.values())]
    return Overview(result.data, entries, measures, convention, dataset=result.data, failures=failures, made=created)


def _configuration_means(
    result: StoreBenchmark, point: MeasuredConfiguration, measure_by_column: Mapping[str, str]
) -> dict[str, Mean]:
    # k never exceeds the number of known neighbours, so min(k, number of relevant ones) is k.
    quality = {name.replace("precision@", "recall(of=capped)@"): value for name, value in point.quality.items()}
    # If all k are relevant, all k were returned. Benchmarks of earlier versions lack precision(of=retrieved).
    perfect_precision = {
        name: value for name, value in point.quality.items() if name.startswith("precision@") and value == 1
    }
    quality |= {name.replace("@", "(of=retrieved)@"): value for name, value in perfect_precision.items()}
    means = {measure: (quality | dict(point.quality)).get(measure, math.nan) for measure in measure_by_column.values()}
    return {name: Mean(value, result.queries) for name, value in means.items() if math.isfinite(value)}


def _configuration_costs(result: StoreBenchmark, point: MeasuredConfiguration) -> dict[str, float]:
    build, series = point.build, point.series
    unlimited_qps = [load.qps for load in point.loads if load.rate is None]
    costs: dict[str, float | None] = {
        "build_seconds": build.seconds,
        "cold_ms": build.cold_open_ms + build.cold_first_ms,
        "index_size_bytes": build.disk_bytes,
        "disk_bytes": build.disk_bytes,
        "ram_bytes_steady": build.memory_bytes,
        "bytes_per_vector": build.bytes_per_vector,
        "qps_max": max([point.qps, *unlimited_qps]),
        # Some stores only queue inserted vectors and do the work when they index.
        "insert_throughput_batch": build.vectors / build.seconds if build.seconds > 0 else None,
        **{
            QPS_COLUMN_BY_RECALL[level.recall]: level.qps
            for level in result.reached
            if level.store == series and level.recall in QPS_COLUMN_BY_RECALL
        },
    }
    for change in point.changes:
        column = "insert_latency_single_ms" if change.operation == "insert" else f"{change.operation}_latency_ms"
        costs[column] = change.latency.mean
    return {name: float(value) for name, value in costs.items() if value is not None and math.isfinite(value)}


def _configuration_provenance(result: StoreBenchmark, point: MeasuredConfiguration, name: str) -> dict[str, Any]:
    about = result.provenance
    _, _, options = str(point.configuration).partition(":")
    return {
        "experiment_name": name,
        "finished": point.made or about.get("made"),
        "database": point.configuration.store,
        "dataset": {"name": result.data},
        "index_config": options or None,
        "plan": {"repeats": result.repeats},
        "machine": about.get("machine"),
        "warnings": [*point.clock.doubts, *point.notes, *([f"reused; made {point.made}"] if point.reused else [])]
        or None,
        "random_seed": about.get("seed"),
    }
