"""Report of an overview: systems, differences, latency, queries, audit findings and provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ragauge.comparison.charts import CHART_DEFINITIONS, draw_charts
from ragauge.comparison.report import CORRECTION_NAMES, TEST_NAMES
from ragauge.comparison.results import Overview
from ragauge.files.serialization import to_json_data
from ragauge.output.numbers import join_names, pluralise
from ragauge.output.report import (
    ALL_FORMATS,
    FILES_ONLY,
    PAGE_ONLY,
    Block,
    Charts,
    Code,
    Findings,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
    select_charts,
)
from ragauge.output.tables import Table
from ragauge.reports.latency_tables import (
    build_embedders_table,
    build_latency_table,
    build_stages_table,
    count_failures,
    describe_timings,
    describe_unreliable_timings,
)
from ragauge.reports.overview_explorer import build_explorer
from ragauge.reports.overview_exports import (
    build_queries_table,
    build_query_values_table,
    build_values_table,
    build_wide_table,
)
from ragauge.reports.overview_tables import (
    MAX_FAILURES_LISTED,
    build_curve_table,
    build_descriptions_table,
    build_differences_table,
    build_failures_table,
    build_other_measures_table,
    build_paper_table,
    build_quality_table,
    build_recommendations_table,
    build_strata_table,
    build_trials_table,
    count_queries,
    describe_differences,
    describe_level,
    describe_trials,
    has_intervals,
    has_varying_trials,
)
from ragauge.reports.registry import build_reports
from ragauge.reports.summary import build_cards, summarise_overview

TEXT_ONLY = ALL_FORMATS - {"html", "latex"}
TERMINAL_ONLY = frozenset({"terminal"})
TABLES_IN_FILES = FILES_ONLY - {"latex"}
MARKDOWN_ONLY = frozenset({"markdown"})
LATEX_ONLY = frozenset({"latex"})
TRIALS_TITLE = "Variation between trials"


def build_report(overview: Overview) -> Report:
    draw = cache(lambda: draw_charts(overview))

    def charts(section: str, *, in_pairs: bool = False) -> Charts:
        names = [name for name, chart in CHART_DEFINITIONS.items() if chart.section == section]
        return Charts(select_charts(draw, *names), in_pairs)

    singular, plural = overview.nouns
    compared = overview.compared
    differences = build_differences_table(overview, compared.rows if compared else ())
    groups = build_differences_table(overview, compared.strata if compared else (), by_stratum=True)
    sections = [
        Section("paper", "", [build_paper_table(overview)], formats=LATEX_ONLY),
        Section("systems", "Systems", [build_quality_table(overview)], formats=TERMINAL_ONLY),
        Section(
            "systems",
            "Systems",
            [build_quality_table(overview, intervals=True), charts("systems"), build_other_measures_table(overview)],
            "Systems",
            TABLES_IN_FILES,
            "split",
        ),
        Section("panels", "Overview of measures", [charts("panels")], "Panels", PAGE_ONLY),
        Section("measures", "Measures", [charts("measures")], "Measures", PAGE_ONLY),
        Section("latency", "Latency", [build_latency_table(overview)], formats=TEXT_ONLY),
        *_embedder_sections(overview),
        Section(
            "over-k",
            "Sufficient number of documents",
            [charts("over-k"), *_curve_tables(overview)],
            "Over k",
            TABLES_IN_FILES,
        ),
        Section(
            "differences",
            f"Differences by {singular}",
            [charts("differences", in_pairs=True), _collapse(differences, "Differences by measure")],
            "Differences",
            TABLES_IN_FILES,
        ),
        Section("trials", TRIALS_TITLE, _trials_blocks(overview), "Trials", ALL_FORMATS - LATEX_ONLY),
        Section(
            "strata",
            f"Groups of {plural}",
            [charts("strata"), *_strata_tables(overview, groups)],
            "Groups",
            TABLES_IN_FILES,
        ),
        Section(
            "latency",
            "Latency",
            [charts("latency"), build_latency_table(overview), build_stages_table(overview)],
            "Latency",
            PAGE_ONLY,
        ),
        Section("queries", plural.capitalize(), _explorer_blocks(overview), plural.capitalize(), PAGE_ONLY),
        *_run_sections(overview),
        Section("runs", "Runs", [build_descriptions_table(overview)], formats=MARKDOWN_ONLY),
        Section("runs", "Runs", [build_descriptions_table(overview), *_manifests(overview)], "Runs", PAGE_ONLY),
    ]
    return Report(
        "report",
        overview.title,
        summarise_overview(overview),
        [section for section in sections if any(_has_content(block) for block in section.blocks)],
        describe_overview(overview),
        cards=build_cards(overview),
        notes=[*describe_unreliable_timings(overview), *overview.notes],
        provenance=collect_provenance(overview),
        joined=build_reports(overview.joined),
    )


def _has_content(block: Block) -> bool:
    return not isinstance(block, Table) or bool(block.rows)


def _collapse(table: Table, title: str) -> Table:
    return replace(table, title=title, collapsed=True)


def _curve_tables(overview: Overview) -> list[Table]:
    recommendations = build_recommendations_table(overview.curves)
    return [*map(build_curve_table, overview.curves), *([recommendations] if recommendations.rows else [])]


def _strata_tables(overview: Overview, groups: Table) -> Iterator[Table]:
    """Yield the comparison of two systems by group, then the means of all systems by group."""
    strata = [] if overview.compared is None else overview.compared.strata
    if strata and overview.strata:
        yield replace(groups, title=f"{strata[0].system} compared with {strata[0].baseline}, {overview.first}")
    for tag in overview.strata:
        table = build_strata_table(overview, tag)
        yield _collapse(table, table.title)


def _trials_blocks(overview: Overview) -> list[Block]:
    if not has_varying_trials(overview):
        return []
    tables = [build_trials_table(overview, m, collapsed=i > 0) for i, m in enumerate(overview.measures)]
    note = " ".join(f"{line[:1].upper()}{line[1:]}." for line in describe_trials(overview))
    return [replace(tables[0], note=note), *tables[1:]]


def _explorer_blocks(overview: Overview) -> list[Block]:
    explorer = build_explorer(overview)
    return [] if explorer is None else [explorer]


def _embedder_sections(overview: Overview) -> list[Section]:
    table = build_embedders_table(overview)
    return [Section("embedders", "Embedders", [table], "Embedders")] if table.rows else []


def _run_sections(overview: Overview) -> Iterator[Section]:
    """Yield audit and failures. Judged answers have neither, because they are not rankings."""
    if overview.judge:
        return
    summary = Paragraph(_describe_audit(overview))
    if overview.audit is None:
        yield Section("findings", "Audit", [summary], "Audit", PAGE_ONLY)
    else:
        problems, skipped = overview.audit.problems, overview.audit.skipped
        yield Section("findings", "Audit", [summary, Findings(problems, skipped)], formats=MARKDOWN_ONLY)
        yield Section("findings", "Audit", [summary, Findings(overview.audit.findings, skipped)], "Audit", PAGE_ONLY)
    yield Section("failures", "Failures", _failure_blocks(overview), "Failures", TABLES_IN_FILES)


def describe_tables(overview: Overview) -> list[str]:
    """Describe how the numbers in the tables of a terminal were computed, in one note per table."""
    notes = [
        " ".join(describe_differences(overview)),
        *describe_trials(overview),
        "; ".join(describe_timings(overview)),
    ]
    return [note.removesuffix(".") for note in notes if note]


def _describe_audit(overview: Overview) -> str:
    audit = overview.audit
    if audit is None:
        if not any(entry.run is not None for entry in overview.entries.values()):
            return "Not audited: an audit needs judgments and runs."
        return "Not audited. Run `ragauge report` without --no-audit, or `ragauge audit`."
    problems = pluralise(len(audit.problems), "problem") if audit.problems else "No problem"
    skipped = f"; {pluralise(len(audit.skipped), 'check')} skipped" if audit.skipped else ""
    return f"{problems} found{skipped}."


def _failure_blocks(overview: Overview) -> list[Block]:
    blocks: list[Block] = [Paragraph(f"{name} was not run: {why}", True) for name, why in overview.failures.items()]
    failed = {name: count_failures(entry) for name, entry in overview.entries.items() if count_failures(entry)}
    if failed:
        n_queries = sum(len(entry.failed) for entry in overview.entries.values())
        counts = ", ".join(f"{name}: {n:,}" for name, n in failed.items())
        listed = f" The first {MAX_FAILURES_LISTED} are listed." if n_queries > MAX_FAILURES_LISTED else ""
        blocks.append(Paragraph(f"Failed queries: {counts}. Each counts as an empty ranking in the mean.{listed}"))
        blocks.append(build_failures_table(overview))
    if not blocks:
        is_known = any(entry.speed is not None for entry in overview.entries.values())
        blocks.append(Paragraph("No query failed." if is_known else "Unknown whether queries failed."))
    return blocks


def _manifests(overview: Overview) -> Iterator[Code]:
    for name, entry in overview.entries.items():
        if entry.manifest:
            text = json.dumps(to_json_data(entry.manifest), indent=2, ensure_ascii=False)
            yield Code(text, f"Manifest of {name}")


def describe_overview(overview: Overview) -> list[str]:
    """Describe the overview in a few words each: sizes, convention, judge, intervals and dates."""
    parts = [pluralise(len(overview.entries), "system")]
    n_queries = count_queries(overview)
    parts += [pluralise(n_queries, *overview.nouns)] if n_queries else []
    parts += [] if overview.documents_known is None else [pluralise(overview.documents_known, "document")]
    parts += [f"convention {overview.convention}"] if overview.convention else []
    parts += [f"judged by {overview.judge}"] if overview.judge else []
    parts += [describe_level(overview)] if has_intervals(overview) else []
    days = sorted({date.made[:10] for date in overview.run_dates.values()})
    if not days:
        return [*parts, overview.made[:10]] if overview.made else parts
    parts.append(f"runs of {' to '.join(dict.fromkeys([days[0], days[-1]]))}")
    reused = [name for name, date in overview.run_dates.items() if date.reused]
    return [*parts, f"reused: {join_names(reused)}"] if reused else parts


def collect_provenance(overview: Overview) -> dict[str, Any]:
    """Collect the data, settings, machine and versions that are needed to reproduce the results."""
    manifest = overview.first_manifest
    data, plan, machine = (manifest.get(key) or {} for key in ("dataset", "plan", "machine"))
    facts: dict[str, Any] = {
        "made": overview.made or None,
        "convention": overview.convention or None,
        "judge": overview.judge or None,
        "statistics": _describe_statistics(overview),
        "dataset": data.get("name") or overview.dataset or None,
        "documents": _describe_size(data, "documents"),
        "queries": _describe_size(data, "queries"),
        "judgments_hash": overview.judgments_hash or None,
        "origin": manifest.get("origin"),
        "plan": plan,
        "machine": {key: machine.get(key) for key in ("processor", "system", "cores")},
        "memory": f"{machine['memory_bytes'] / 2**30:.0f} GiB" if machine.get("memory_bytes") else None,
        "python": manifest.get("python"),
        "versions": manifest.get("versions"),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _describe_statistics(overview: Overview) -> str | None:
    if overview.compared is None:
        return None
    method = overview.compared.method
    correction = CORRECTION_NAMES.get(method.correction, "uncorrected")
    return f"{TEST_NAMES[method.test]}, {correction}; {method.rounds:,} resamples, seed {method.seed}"


def _describe_size(data: Mapping[str, Any], name: str) -> str | None:
    if data.get(name) is None:
        return None
    return f"{data[name]:,}, hash {data.get(f'{name}_hash', '')}"


REPORTER = ResultReporter(
    build_report,
    {
        "csv": TableBuilder("one row per system and value, with its interval", build_values_table),
        "wide": TableBuilder("one row per system, one column per value", build_wide_table),
        "queries": TableBuilder("one row per system, query and measure", build_query_values_table),
        "queries-wide": TableBuilder("one row per system and query, one column per measure", build_queries_table),
    },
)
