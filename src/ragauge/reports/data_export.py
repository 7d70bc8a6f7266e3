"""Export an overview as CSV and as JSON.

Unknown values are empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ragauge.comparison.report import fallen_queries, risen_queries, summarise_comparisons
from ragauge.comparison.results import MeasureCurve, Overview, SystemSummary
from ragauge.core.findings import Audit
from ragauge.core.records import Scores
from ragauge.core.summaries import Mean, Speed
from ragauge.files.serialization import replace_nan, to_json_data, to_plain_data
from ragauge.output.csv import render_csv_rows
from ragauge.output.numbers import format_exact
from ragauge.output.terminal import format_direction
from ragauge.reports.summary import summarise_overview
from ragauge.reports.systems_tables import (
    CACHED_BUILD_TEXT,
    UNKNOWN_MEAN,
    count_failures,
    count_queries,
    count_unknown_ids,
    find_first_manifest,
    find_query_count,
    is_cached_build,
)
from ragauge.stats.comparisons import Comparison, Comparisons, comparison_fields
from ragauge.stats.repeated_trials import Variation

if TYPE_CHECKING:
    import polars as pl


LATENCY_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "min", "max")
"""Latency statistics that are exported."""
DATE_COLUMNS = ("made", "reused")
"""Columns with the date of a system's results."""


def overview_to_long_csv(overview: Overview) -> str:
    """Format an overview as long CSV, one row per system and value."""
    rows = (
        [*row, *_date_cells(entry)]
        for entry in overview.entries.values()
        for row in _system_value_rows(overview, entry)
    )
    return render_csv_rows(["system", "figure", "value", "low", "high", "n", *DATE_COLUMNS], rows)


def _date_cells(entry: SystemSummary) -> list[str]:
    """Return cells with the date of a system's results and whether reused.

    They are empty if unknown.
    """
    date = entry.answered
    return ["", ""] if date is None else [date.made, str(date.reused).lower()]


def _system_value_rows(overview: Overview, entry: SystemSummary) -> Iterator[list[str]]:
    name = entry.name
    for m in overview.measures:
        mean = entry.means.get(m, UNKNOWN_MEAN)
        yield [
            name,
            m,
            format_exact(mean.value),
            format_exact(mean.low),
            format_exact(mean.high),
            format_exact(find_query_count(mean)),
        ]
    for m, found in entry.variation.items():
        parts = {f"variance_{part}": value for part, value in found.variances._asdict().items()}
        parts |= {"standard_error": found.error, "by_trials": found.by_trials, "unstable": found.unstable / found.n}
        for figure, value in {"trials": found.trials, **parts}.items():
            yield [name, f"{figure}({m})", format_exact(value), "", "", str(found.n)]
    for row in () if overview.compared is None else overview.compared.rows:
        if row.system == name:
            pair = f"({row.measure}, {row.baseline})"
            yield [name, f"difference{pair}", format_exact(row.difference), *map(format_exact, row.ci), str(row.n)]
            yield [name, f"p_corrected{pair}", format_exact(row.p_corrected), "", "", str(row.n)]
    if entry.speed is not None:
        for stage, one in entry.speed.stages.items():
            for figure in LATENCY_STATISTICS:
                yield [name, f"{stage}_{figure}_ms", format_exact(getattr(one, figure)), "", "", str(one.n)]
        yield [name, "throughput", format_exact(entry.speed.throughput), "", "", str(entry.speed.asked)]
    if entry.doubts:
        yield [name, "unreliable_times", "; ".join(entry.doubts), "", "", "1"]
    for cost, value in entry.costs.items():
        yield [name, cost, CACHED_BUILD_TEXT if is_cached_build(entry, cost) else format_exact(value), "", "", "1"]
    if entry.speed is not None:
        yield [name, "failed", str(count_failures(entry)), "", "", str(entry.speed.asked)]
    if count_unknown_ids(entry):
        yield [
            name,
            "unknown_ids",
            str(count_unknown_ids(entry)),
            "",
            "",
            str(entry.manifest["unknown_ids"]["returned"]),
        ]


def overview_to_wide_csv(overview: Overview) -> str:
    """Format an overview as wide CSV, one row per system.

    It contains each measure with interval and n, percentiles of each stage, throughput and costs.
    """
    entries = overview.entries.values()
    stages = list(dict.fromkeys(s for one in entries if one.speed is not None for s in one.speed.stages))
    costs = list(dict.fromkeys(cost for one in entries for cost in one.costs))
    header = ["system", *(f"{m}{end}" for m in overview.measures for end in ("", "_low", "_high", "_n"))]
    header += [f"{stage}_{figure}_ms" for stage in stages for figure in LATENCY_STATISTICS]
    header += ["throughput", "asked", "failed", *costs, *DATE_COLUMNS]
    rows = []
    for entry in entries:
        row = [entry.name]
        for m in overview.measures:
            mean = entry.means.get(m, UNKNOWN_MEAN)
            row += [
                format_exact(mean.value),
                format_exact(mean.low),
                format_exact(mean.high),
                format_exact(find_query_count(mean)),
            ]
        known = {} if entry.speed is None else entry.speed.stages
        for stage in stages:
            row += [
                format_exact(getattr(known[stage], figure)) if stage in known else "" for figure in LATENCY_STATISTICS
            ]
        row += ["", "", str(len(entry.failed)) if entry.failed else ""]
        if entry.speed is not None:
            row[-3:] = [format_exact(entry.speed.throughput), str(entry.speed.asked), str(count_failures(entry))]
        told = [
            CACHED_BUILD_TEXT if is_cached_build(entry, cost) else format_exact(entry.costs.get(cost)) for cost in costs
        ]
        rows.append([*row, *told, *_date_cells(entry)])
    return render_csv_rows(header, rows)


@dataclass(frozen=True)
class QueryTrial:
    """Result of one query in one trial of one system."""

    system: str
    trial: int
    query: str
    values: dict[str, float]
    """Values by measure; NaN if unscored."""
    total_ms: float = math.nan
    status: str = ""
    """`ok`, `error` or `timeout`; empty if unknown."""


def iter_query_trials(entry: SystemSummary) -> Iterator[QueryTrial]:
    """Yield the result of every query in every scored trial of a system."""
    timings = None if entry.run is None else entry.run.timings
    for trial, scores in enumerate(entry.scores):
        times = _query_timings(timings, trial)
        columns = {m: values.tolist() for m, values in scores.values.items()}
        for i, query in enumerate(scores.queries):
            values = {m: column[i] for m, column in columns.items()}
            yield QueryTrial(entry.name, trial, query, values, *times.get(query, (math.nan, "")))


def _query_timings(timings: pl.DataFrame | None, trial: int) -> dict[str, tuple[float, str]]:
    """Return the latency in ms and the status by query in one trial."""
    if timings is None:
        return {}
    if "repeat" in timings.columns:
        timings = timings.filter(timings["repeat"] == trial)
    rows = timings.select("query", "total_ns", "status").iter_rows()
    return {query: (math.nan if total is None else total / 1e6, status or "") for query, total, status in rows}


def _has_several_trials(overview: Overview) -> bool:
    return any(len(entry.scores) > 1 for entry in overview.entries.values())


def queries_to_long_csv(overview: Overview) -> str:
    """Format scores as long CSV, one row per system, query and measure.

    If there are several trials, each has its own rows.
    """
    several = _has_several_trials(overview)

    def rows() -> Iterator[list[str]]:
        for entry in overview.entries.values():
            for trial, scores in enumerate(entry.scores):
                for m in _scored_measures(overview, scores):
                    for query, value in zip(scores.queries, scores.values[m].tolist(), strict=True):
                        lead = [entry.name, *([str(trial)] if several else [])]
                        yield [*lead, query, m, format_exact(value), format_direction(scores, m)]

    return render_csv_rows(
        ["run", *(["trial"] if several else []), "query", "measure", "value", "lower_is_better"], rows()
    )


def _scored_measures(overview: Overview, scores: Scores) -> list[str]:
    return [m for m in overview.measures if m in scores.values]


def queries_to_wide_csv(overview: Overview) -> str:
    """Format scores as wide CSV, one row per system, trial and query.

    It contains the query text, if known, each measure, the latency in ms and the status.
    """
    several, told = _has_several_trials(overview), bool(overview.queries)
    header = ["run", *(["trial"] if several else []), "query", *(["text"] if told else [])]
    rows = (
        [
            *([one.system, str(one.trial)] if several else [one.system]),
            *([one.query, overview.queries.get(one.query, "")] if told else [one.query]),
            *(format_exact(one.values.get(m)) for m in overview.measures),
            format_exact(one.total_ms),
            one.status,
        ]
        for entry in overview.entries.values()
        for one in iter_query_trials(entry)
    )
    return render_csv_rows([*header, *overview.measures, "total_ms", "status"], rows)


REPORT_SCHEMA = "ragauge-report/2"
"""Schema name and version. A new version means that fields were removed or redefined."""


def overview_to_data(overview: Overview, *, per_query: bool = False, moved: int = 3) -> dict[str, Any]:
    """Return an overview as JSON data without rankings; NaN becomes None.

    `per_query` adds every query of each system. `moved` is the number of queries listed with each comparison, for
    those that rose most and for those that fell most.
    """
    about = find_first_manifest(overview)
    hashes = {**(about.get("dataset") or {}), "judgments_hash": overview.judgments_hash or None}
    data = {
        "schema": REPORT_SCHEMA,
        "title": overview.title,
        "made": overview.made or None,
        "verdict": summarise_overview(overview),
        "dataset": {
            "name": overview.dataset or None,
            "documents": overview.documents_known,
            "queries": count_queries(overview),
            **{name: hashes.get(name) for name in ("documents_hash", "queries_hash", "judgments_hash")},
        },
        "convention": overview.convention or None,
        "confidence": overview.confidence,
        "measures": [{"name": m, "lower_is_better": m in overview.lower_is_better} for m in overview.measures],
        "baseline": overview.baseline,
        "systems": {
            name: _system_to_data(overview, entry, per_query=per_query) for name, entry in overview.entries.items()
        },
        "comparisons": None if overview.compared is None else _comparisons_to_data(overview.compared, moved),
        "rival": None if overview.rival is None else _comparison_to_data(overview.rival, moved, overview.queries),
        "curves": [_curve_to_data(one) for one in overview.curves],
        "strata": {
            tag: [
                {
                    "value": one.value,
                    "n": one.n,
                    "means": {name: _mean_to_data(mean) for name, mean in one.means.items()},
                }
                for one in several
            ]
            for tag, several in overview.strata.items()
        },
        "audit": None if overview.audit is None else _audit_to_data(overview.audit),
        "failures": dict(overview.failures),
        "notes": list(overview.notes),
    }
    return dict(replace_nan(to_plain_data(data)))


def _audit_to_data(audit: Audit) -> dict[str, Any]:
    """Return an audit as data, without what its own JSON has in addition."""
    found: dict[str, Any] = to_json_data(audit)
    for finding in found["findings"]:
        if finding["grid"] is not None:
            finding["grid"].pop("styles", None)
    return {name: found[name] for name in ("problems", "findings", "skipped", "notes")}


def _mean_to_data(mean: Mean) -> dict[str, Any]:
    return {"mean": mean.value, "n": find_query_count(mean), "low": mean.low, "high": mean.high}


def _system_to_data(overview: Overview, entry: SystemSummary, *, per_query: bool) -> dict[str, Any]:
    system = entry.manifest.get("system") or {}
    found: dict[str, Any] = {
        "description": system.get("description"),
        "measures": {
            m: _mean_to_data(entry.means.get(m, UNKNOWN_MEAN)) | {"unscored": _unscored_in_all_trials(entry, m)}
            for m in overview.measures
        },
        "made": None if entry.answered is None else entry.answered.made,
        "reused": entry.answered is not None and entry.answered.reused,
        "trials": len(entry.scores),
        "speed": None if entry.speed is None else _speed_to_data(entry.speed),
        "costs": dict(entry.costs),
        "failed": dict(entry.failed),
        "manifest": dict(entry.manifest) or None,
    }
    if entry.variation:
        found["variation"] = {m: _variation_to_data(entry, m, one) for m, one in entry.variation.items()}
    if per_query:
        found["queries"] = [
            {
                "query": one.query,
                "trial": one.trial,
                "values": {m: one.values.get(m, math.nan) for m in overview.measures},
                "total_ms": one.total_ms,
                "status": one.status or None,
            }
            for one in iter_query_trials(entry)
        ]
    return found


def _variation_to_data(entry: SystemSummary, measure: str, one: Variation) -> dict[str, Any]:
    return {
        "trials": one.trials,
        "n": one.n,
        "left_out": one.left_out,
        "unstable": one.unstable,
        "means": [scores.means[measure] for scores in entry.scores],
        "mean_squares": one.squares._asdict(),
        **{name: getattr(one, name)._asdict() for name in ("estimates", "variances", "shares", "of_mean")},
        "error": one.error,
        "by_queries": one.by_queries,
        "by_trials": one.by_trials,
        "trials_enough": one.enough(),
    }


def _speed_to_data(speed: Speed) -> dict[str, Any]:
    return {
        "stages": {stage: asdict(one) for stage, one in speed.stages.items()},
        "throughput": speed.throughput,
        "asked": speed.asked,
        "failed": speed.failed,
        "timed_out": speed.timed_out,
    }


def _unscored_in_all_trials(entry: SystemSummary, measure: str) -> dict[str, str]:
    """Return the queries without a value in any trial, with the reason."""
    lacking = [one.unscored.get(measure, {}) for one in entry.scores if measure in one.values]
    return {query: why for query, why in lacking[0].items() if all(query in one for one in lacking)} if lacking else {}


def _curve_to_data(curve: MeasureCurve) -> dict[str, Any]:
    return {
        "measure": curve.measure,
        "k": list(curve.ks),
        "values": {name: list(values) for name, values in curve.values.items()},
        "enough": {
            name: {"k": one.k, "tolerance": one.tolerance, "confidence": one.confidence}
            for name, one in curve.enough.items()
        },
    }


def _comparisons_to_data(found: Comparisons, moved: int) -> dict[str, Any]:
    """Return all comparisons as JSON data; NaN becomes None."""
    data = {
        "comparisons": [_comparison_to_data(row, moved, found.texts) for row in found.rows],
        "strata": [_comparison_to_data(row, moved, found.texts) for row in found.strata],
        "baseline": found.baseline,
        "systems": list(found.systems),
        "dataset": found.dataset or None,
        "convention": found.convention or None,
        "answers": {name: date._asdict() for name, date in found.answers.items()},
        "method": {name: value for name, value in asdict(found.method).items() if not name.endswith("_is_better")},
        "notes": list(found.notes),
        "verdicts": summarise_comparisons(found),
    }
    return dict(replace_nan(data))


def _comparison_to_data(row: Comparison, moved: int, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return one comparison as data.

    `moved` is the number of queries that rose most, and that fell most.
    """
    held = ("ci_low", "ci_high", "seeds_share")  # These are in `ci` and `seeds`.
    flat: dict[str, Any] = {name: value for name, value in comparison_fields(row).items() if name not in held}
    flat["ci"] = list(row.ci)
    flat["lower_is_better"] = row.lower_is_better
    flat["seeds"] = None if row.seeds is None else asdict(row.seeds)
    flat["moved"] = [
        {**one._asdict(), **({"text": texts[one.query]} if one.query in texts else {})}
        for one in [*risen_queries(row, moved), *fallen_queries(row, moved)]
    ]
    return flat
