"""Build the tables and texts of the sections of an overview page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.comparison.report import CORRECTION_NAMES, TEST_NAMES
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.stages import STAGES
from ragauge.core.summaries import Mean
from ragauge.files.serialization import replace_nan
from ragauge.output.numbers import format_number, format_score, pluralise
from ragauge.output.terminal import best_mean
from ragauge.output.text_page import TextPageCell, TextPageTable
from ragauge.reports.systems_tables import (
    CACHED_BUILD_TEXT,
    build_trials_rows,
    describe_trials,
    describe_unreliable_timings,
    has_varying_trials,
    is_cached_build,
)
from ragauge.stats.comparisons import Comparison
from ragauge.store_benchmarks.report_text import DOUBT_MARK

MAX_FAILURES_LISTED = 200
MAX_SYSTEMS_TABLE_MEASURES = 4
"""Number of measures in the table of systems. The others have a separate table."""
OTHER_MEASURES_TITLE = "Other measures"


def describe_overview(overview: Overview) -> list[str]:
    """Describe the overview in a line: sizes, convention, judge and dates."""
    n = max((mean.n for entry in overview.entries.values() for mean in entry.means.values()), default=0)
    queries = len(next((e.scores[0].queries for e in overview.entries.values() if e.scores), ())) or n
    parts = [pluralise(len(overview.entries), "system")]
    if queries:
        parts.append(pluralise(queries, *overview.asked))
    if overview.documents_known is not None:
        parts.append(f"{overview.documents_known:,} documents")
    if overview.convention:
        parts.append(f"convention {overview.convention}")
    if overview.judge:
        parts.append(f"judged by {overview.judge}")
    if _has_mean_interval(overview):
        parts.append(f"{100 * overview.confidence:g}% intervals")
    dates = overview.answers.values()
    days = sorted({date.made[:10] for date in dates})
    if not days:
        return [*parts, overview.made[:10]] if overview.made else parts
    reused = [name for name, date in overview.answers.items() if date.reused]
    parts.append(f"answers made {' to '.join(dict.fromkeys([days[0], days[-1]]))}")
    return [*parts, f"reused: {', '.join(reused)}"] if reused else parts


def _has_mean_interval(overview: Overview) -> bool:
    return any(not math.isnan(mean.low) for entry in overview.entries.values() for mean in entry.means.values())


def build_systems_table(overview: Overview) -> TextPageTable:
    """Build the table of systems with means, differences and latency."""
    timed = _known_latency_statistic(overview)
    base = overview.baseline
    gaps = base is not None and overview.compared is not None
    measures = overview.measures[:MAX_SYSTEMS_TABLE_MEASURES]
    header = ["system", *measures]
    header += [f"vs {base}", "p"] if gaps else []
    header += [f"{timed} ms"] if timed else []
    rows = _system_mean_rows(overview, measures)
    for row, (name, entry) in zip(rows, overview.entries.items(), strict=True):
        if gaps:
            row.extend(_difference_cells(overview.difference(name)))
        if timed:
            row.append(_latency_cell(entry, timed))
    return TextPageTable(header, rows, sortable=len(rows) > 1, legend=_systems_legend(overview))


def build_other_measures_tables(overview: Overview) -> list[TextPageTable]:
    """Build the table of the measures that the table of systems leaves out."""
    measures = overview.measures[MAX_SYSTEMS_TABLE_MEASURES:]
    rows = _system_mean_rows(overview, measures)
    return (
        [TextPageTable(["system", *measures], rows, OTHER_MEASURES_TITLE, sortable=len(rows) > 1, folded=True)]
        if measures
        else []
    )


def _system_mean_rows(overview: Overview, measures: Sequence[str]) -> list[list[str | TextPageCell]]:
    """Return a row per system with its name and means."""
    best = {
        m: best_mean(
            [e.means[m].value for e in overview.entries.values() if m in e.means], lower=m in overview.lower_is_better
        )
        for m in measures
    }
    many = len(overview.entries) > 1
    rows: list[list[str | TextPageCell]] = []
    for name, entry in overview.entries.items():
        row: list[str | TextPageCell] = [TextPageCell(name, "baseline" if name == overview.baseline else "")]
        row += [
            _mean_cell(entry.means.get(m), m, best[m] if many else math.nan, overview.difference(name, m))
            for m in measures
        ]
        rows.append(row)
    return rows


def _mean_cell(mean: Mean | None, measure: str, best: float, gap: Comparison | None) -> TextPageCell:
    if mean is None:
        return TextPageCell("-")
    stars = "" if gap is None else gap.stars.replace("ns", "")
    about = (
        "" if gap is None else f"{gap.difference:+.4f} against {gap.baseline}, p {format_number(gap.p_corrected, 'p')}"
    )
    interval = "" if math.isnan(mean.low) else f"[{mean.low:.3f}, {mean.high:.3f}]"
    order = None if math.isnan(mean.value) else mean.value
    return TextPageCell(format_score(mean.value, measure), interval, mean.value == best, stars, about, order)


def _difference_cells(row: Comparison | None) -> list[TextPageCell]:
    if row is None:
        return [TextPageCell(""), TextPageCell("")]
    return [
        TextPageCell(f"{row.difference:+.4f}", f"[{row.ci[0]:+.3f}, {row.ci[1]:+.3f}]", order=row.difference),
        TextPageCell(format_number(row.p_corrected, "p"), f"{row.wins}/{row.losses}/{row.ties}", order=row.p_corrected),
    ]


def _known_latency_statistic(overview: Overview) -> str:
    """Return the known statistic of the total latency: p95, else the mean, else ""."""
    totals = [entry.speed.stages["total"] for entry in overview.entries.values() if entry.speed is not None]
    known = [name for name in ("p95", "mean") if any(not math.isnan(getattr(one, name)) for one in totals)]
    return known[0] if known else ""


def _latency_cell(entry: SystemSummary, figure: str) -> TextPageCell:
    value = math.nan if entry.speed is None else float(getattr(entry.speed.stages["total"], figure))
    mark = DOUBT_MARK if entry.doubts else ""
    return TextPageCell("-") if math.isnan(value) else TextPageCell(f"{format_number(value, 'ms')}{mark}", order=value)


def _systems_legend(overview: Overview) -> str:
    parts = []
    if _has_mean_interval(overview):
        both = (
            f"; hierarchical, over {overview.asked[1]} and trials, where trials differ"
            if has_varying_trials(overview)
            else ""
        )
        level = f"{100 * overview.confidence:g}%"
        parts.append(f"In brackets: {level} intervals, BCa bootstrap over {overview.asked[1]}{both}.")
    if len(overview.entries) > 1:
        parts.append("Bold: the best.")
    if overview.compared is not None and overview.baseline is not None:
        method = overview.compared.method
        correction = CORRECTION_NAMES.get(method.correction, "not corrected")
        rows = [row for row in overview.compared.rows if method.family == "all" or row.measure == overview.first]
        family = f" for {pluralise(len(rows), 'comparison')}" if method.correction != "none" else ""
        parts.append(
            f"vs {overview.baseline}: difference in {overview.first}. p: {TEST_NAMES[method.test]}, "
            f"{correction}{family}; "
            f"below it {overview.asked[1]} won/lost/tied; intervals are each for itself, and not corrected. Stars: "
            "that p-value, by each measure (*** p < 0.001, ** p < 0.01, * p < 0.05)."
        )
    if left := overview.measures[MAX_SYSTEMS_TABLE_MEASURES:]:
        parts.append(f"Not in this table: {', '.join(left)}; they are below, under {OTHER_MEASURES_TITLE}.")
    return " ".join(parts)


def build_trials_tables(overview: Overview) -> list[TextPageTable]:
    """Build a table of the variation over trials per measure, the first one open.

    Empty if no trials differ.
    """
    if not has_varying_trials(overview):
        return []
    sheets: list[TextPageTable] = []
    for measure in overview.measures:
        _, (_, *header), rows, *_ = build_trials_rows(overview, measure)
        told = " ".join(f"{line[:1].upper()}{line[1:]}." for line in describe_trials(overview)) if not sheets else ""
        sheets.append(
            TextPageTable(["system", *header], rows, f"{measure} over trials", legend=told, folded=bool(sheets))
        )
    return sheets


def build_strata_table(overview: Overview) -> TextPageTable | None:
    """Build a table of differences by stratum for the systems of the summary.

    Returns None without strata.
    """
    rows = [] if overview.compared is None else list(overview.compared.strata)
    if not rows or not overview.strata:
        return None
    table: list[list[str | TextPageCell]] = []
    for row in rows:
        tag, _, value = row.stratum.partition("=")
        table.append(
            [
                TextPageCell(value or tag, tag if value else ""),
                f"{row.n:,}",
                format_score(row.means[0]),
                format_score(row.means[1]),
                TextPageCell(f"{row.difference:+.4f}", f"[{row.ci[0]:+.3f}, {row.ci[1]:+.3f}]"),
                TextPageCell(
                    format_number(row.p_corrected, "p"),
                    f"{row.wins}/{row.losses}/{row.ties}",
                    stars=row.stars.replace("ns", ""),
                ),
            ]
        )
    system, base = rows[0].system, rows[0].baseline
    title = f"{system} against {base}, {overview.first}"
    one, many = overview.asked
    legend = f"Paired differences; p corrected for the kinds of one tag, and below it {many} won/lost/tied."
    return TextPageTable([f"kind of {one}", "n", base, system, "difference", "p"], table, title, legend=legend)


def build_stages_table(overview: Overview) -> TextPageTable | None:
    """Build a table of latency percentiles by stage, or return None without timings."""
    rows: list[list[str | TextPageCell]] = []
    for name, entry in overview.entries.items():
        if entry.speed is None:
            continue
        order = [*(s for s in STAGES if s in entry.speed.stages), *(s for s in entry.speed.stages if s not in STAGES)]
        for stage in order:
            one = entry.speed.stages[stage]
            figures = (one.p50, one.p90, one.p95, one.p99, one.mean, one.std, one.min, one.max)
            mark = DOUBT_MARK if entry.doubts else ""
            rows.append([name, stage, *(f"{format_number(one, 'ms')}{mark}" for one in figures), f"{one.n:,}"])
    header = ["system", "stage", "p50", "p90", "p95", "p99", "mean", "deviation", "least", "most", "n"]
    legend = "Milliseconds. Percentiles by linear interpolation; queries that failed are in none of them."
    legend += "".join(f" {one}." for one in describe_unreliable_timings(overview))
    return TextPageTable(header, rows, "Every stage and percentile", legend=legend, folded=True) if rows else None


def _cost_text(entry: SystemSummary, cost: str) -> str:
    if is_cached_build(entry, cost):
        return CACHED_BUILD_TEXT
    return f"{entry.costs[cost]:,.3g}" if cost in entry.costs else "-"


def build_costs_table(overview: Overview) -> TextPageTable | None:
    """Build a table of throughput and costs, or return None if none are known."""
    names = list(dict.fromkeys(name for entry in overview.entries.values() for name in entry.costs))
    timed = any(entry.speed is not None for entry in overview.entries.values())
    if not names and not timed:
        return None
    rows: list[list[str | TextPageCell]] = []
    for name, entry in overview.entries.items():
        row: list[str | TextPageCell] = [name]
        if timed:
            throughput = math.nan if entry.speed is None else entry.speed.throughput
            row.append(f"{format_number(throughput, 'qps')}{DOUBT_MARK if entry.doubts else ''}")
        rows.append([*row, *(_cost_text(entry, one) for one in names)])
    header = ["system", *(["throughput (queries/s)"] if timed else []), *(name.replace("_", " ") for name in names)]
    return TextPageTable(header, rows, "Throughput, building, starting")


def build_findings(overview: Overview) -> dict[str, Any] | None:
    """Return the findings of the audit, or None if there was no audit."""
    found = overview.audit
    if found is None:
        return None
    problems = found.problems
    others: dict[str, list[str]] = {}
    for one in found.findings:
        if not one.problem:
            told = f"{one.subject}: {one.message}"
            mine = others.setdefault(one.what, [])
            mine.append(told if not one.effect or one.effect in told else f"{told}; {one.effect}")
    summary = f"{pluralise(len(problems), 'problem')} found" if problems else "No problem found"
    left = len(found.skipped)
    return {
        "summary": f"{summary}." if not left else f"{summary}; {pluralise(left, 'check')} could not be made.",
        "problems": problems,
        "others": others,
        "skipped": found.skipped,
    }


def build_failures(overview: Overview) -> dict[str, Any]:
    """Return the queries that failed, and the systems without a run."""
    every = [(name, query, why) for name, e in overview.entries.items() for query, why in e.failed.items()]
    rows: list[list[str | TextPageCell]] = [
        [name, query, overview.queries.get(query, ""), why] for name, query, why in every[:MAX_FAILURES_LISTED]
    ]
    counted = ", ".join(f"{name}: {len(e.failed):,}" for name, e in overview.entries.items() if e.failed)
    more = f" The first {MAX_FAILURES_LISTED} are below." if len(every) > MAX_FAILURES_LISTED else ""
    known = any(entry.speed is not None for entry in overview.entries.values())
    often = " at least once" if any(len(entry.scores) > 1 for entry in overview.entries.values()) else ""
    return {
        "systems": overview.failures,
        "rows": rows,
        "none": "Every query was answered." if known else "These runs do not tell whether queries failed.",
        "summary": f"{len(every):,} queries failed{often} ({counted}); an answer that failed is an empty ranking, "
        f"and stays in the mean.{more}",
        "grid": TextPageTable(["system", "query", "text", "what went wrong"], rows, numbers=False),
    }


def build_provenance_tables(overview: Overview) -> list[TextPageTable]:
    """Build tables of the provenance: data, settings, machine and systems."""
    manifests = {name: entry.manifest for name, entry in overview.entries.items() if entry.manifest}
    facts: list[tuple[str, Any]] = [("convention", overview.convention), ("judge", overview.judge)]
    if overview.compared is not None:
        method = overview.compared.method
        facts.append(
            (
                "statistics",
                f"{TEST_NAMES[method.test]}, {CORRECTION_NAMES.get(method.correction, 'not corrected')}; "
                f"{method.rounds:,} resamples, seed {method.seed}",
            )
        )
    first = next(iter(manifests.values()), {})
    data, plan, machine = (first.get(key) or {} for key in ("dataset", "plan", "machine"))
    facts += [
        ("dataset", data.get("name") or overview.dataset),
        ("documents", _size_and_hash_text(data, "documents")),
        ("queries", _size_and_hash_text(data, "queries")),
        ("judgments", overview.judgments_hash and f"hash {overview.judgments_hash}"),
        ("plan", ", ".join(f"{key} {value}" for key, value in plan.items() if value is not None)),
        ("machine", ", ".join(str(machine[key]) for key in ("processor", "system") if machine.get(key))),
        ("cores", machine.get("cores")),
        ("memory", f"{machine['memory_bytes'] / 2**30:.0f} GiB" if machine.get("memory_bytes") else None),
        ("python", first.get("python")),
        ("versions", ", ".join(f"{name} {one}" for name, one in (first.get("versions") or {}).items())),
    ]
    rows: list[list[str | TextPageCell]] = [[name, str(value)] for name, value in facts if value]
    sheets = [TextPageTable(["", ""], rows, title="Circumstances", numbers=False)]
    dates = overview.answers
    if manifests:
        described: list[list[str | TextPageCell]] = [
            [
                name,
                str((one.get("system") or {}).get("description", "")),
                "" if name not in dates else dates[name].made + ", reused" * dates[name].reused,
                str((one.get("dataset") or {}).get("documents_hash", ""))[:12],
            ]
            for name, one in manifests.items()
        ]
        sheets.append(
            TextPageTable(["system", "description", "answers made", "documents"], described, "Systems", numbers=False)
        )
    return sheets


def _size_and_hash_text(data: Mapping[str, Any], what: str) -> str:
    known = data.get(what)
    return "" if known is None else f"{known:,}, hash {data.get(f'{what}_hash', '')}"


def format_manifests(overview: Overview) -> dict[str, str]:
    """Return each run's manifest as JSON text."""
    return {
        name: json.dumps(replace_nan(dict(entry.manifest)), indent=2, ensure_ascii=False, default=str)
        for name, entry in overview.entries.items()
        if entry.manifest
    }
