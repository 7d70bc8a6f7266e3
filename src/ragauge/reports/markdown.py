"""Render an overview as Markdown, with details in collapsed sections."""

from __future__ import annotations

import math
from itertools import islice

from ragauge.comparison.report import build_report, describe_test
from ragauge.comparison.results import Overview
from ragauge.core.protocols import Result
from ragauge.core.run_dates import describe_run_dates
from ragauge.output.markdown import details_block, escape_markdown, render_markdown, render_markdown_table, render_table
from ragauge.output.numbers import format_score, pluralise
from ragauge.output.tables import Table
from ragauge.reports.registry import build_reports
from ragauge.reports.summary import summarise_overview
from ragauge.reports.systems_tables import (
    TRIALS_TITLE,
    UNKNOWN_MEAN,
    build_mean_rows,
    build_quality_rows,
    build_speed_rows,
    build_strata_rows,
    build_trials_rows,
    count_failures,
    count_queries,
    describe_resampled_units,
    describe_timings,
    describe_trials,
    find_best_mean,
    find_first_manifest,
    has_intervals,
    has_varying_trials,
)

MAX_FAILURES_SHOWN = 5
"""Maximum number of failed queries shown per system."""
MARKDOWN_STARS_LEGEND = "`***` below 0.001, `**` below 0.01, `*` below 0.05"


def render_overview_markdown(overview: Overview) -> str:
    """Render an overview as a Markdown page."""
    parts = [
        [f"# {escape_markdown(overview.title)}", "", escape_markdown(summarise_overview(overview))],
        _quality_section(overview),
        _speed_section(overview),
        _failures_section(overview),
        _intervals_section(overview),
        _trials_section(overview),
        _comparisons_section(overview),
        _curves_section(overview),
        *(_strata_section(overview, tag) for tag in overview.strata),
        _audit_section(overview),
        *(_result_section(one) for one in overview.beside),
        _systems_section(overview),
        _provenance_section(overview),
        details_block("Notes", [f"- {escape_markdown(note)}" for note in overview.notes]) if overview.notes else [],
    ]
    return "\n".join(line for part in parts if part for line in (*part, ""))


def _result_section(one: Result) -> list[str]:
    """Render the report of another result, with headings one level lower."""
    lines = render_markdown(build_reports([one])).splitlines()
    return [f"#{line}" if line.startswith("#") else line for line in lines]


def _quality_section(overview: Overview) -> list[str]:
    """Render means, best in bold, and differences from the baseline."""
    header, rows = build_quality_rows(overview, interval=True)
    best = [find_best_mean(overview, m) for m in overview.measures]
    strong = {
        (row, column + 1)
        for row, entry in enumerate(overview.entries.values())
        for column, measure in enumerate(overview.measures)
        if entry.means.get(measure, UNKNOWN_MEAN).value == best[column]
    }
    over = f" over {pluralise(count_queries(overview), *overview.asked)}" if count_queries(overview) else ""
    of = f" of {overview.dataset}" if overview.dataset else ""
    by = f", convention {overview.convention}" if overview.convention else ""
    by += f", judged by {overview.judge}" if overview.judge else ""
    said = escape_markdown(f"Means{over}{of}{by}" + ("; the best of each measure in bold." if strong else "."))
    found = overview.compared
    if found is not None and overview.baseline is not None:
        confidence = f"{100 * found.method.confidence:g}%"
        told = f"vs {overview.baseline}: difference in {overview.first} with its {confidence} interval"
        said += (
            f" {escape_markdown(told)}; p: {escape_markdown(describe_test(found))} "
            f"({MARKDOWN_STARS_LEGEND}); better/worse: on how many {overview.asked[1]}."
        )
    dates = [f"{line[:1].upper()}{line[1:]}." for line in describe_run_dates(overview.answers)]
    return [*render_markdown_table(header, rows, strong=strong), "", " ".join([said, *map(escape_markdown, dates)])]


def _speed_section(overview: Overview) -> list[str]:
    header, rows = build_speed_rows(overview, every_stage=True)
    said = "; ".join(describe_timings(overview))
    return [*render_markdown_table(header, rows), "", f"{said[:1].upper()}{said[1:]}."] if rows else []


def _intervals_section(overview: Overview) -> list[str]:
    if not has_intervals(overview):
        return []
    said = (
        f"In brackets {100 * overview.confidence:g}% intervals of the means, over n "
        f"{describe_resampled_units(overview)}."
    )
    return details_block("How good, with intervals", [*render_markdown_table(*build_mean_rows(overview)), "", said])


def _trials_section(overview: Overview) -> list[str]:
    if not has_varying_trials(overview):
        return []
    lines: list[str] = []
    for measure in overview.measures:
        found = build_trials_rows(overview, measure)
        lines += [*render_markdown_table(found.header, found.rows), ""]
    return details_block(TRIALS_TITLE, [*lines, *(f"- {escape_markdown(line)}" for line in describe_trials(overview))])


def _comparisons_section(overview: Overview) -> list[str]:
    if overview.compared is None:
        return []
    report = build_report(overview.compared, changed_queries=0)
    lines: list[str] = []
    for section in report.select_sections("markdown"):
        for block in section.blocks:
            if isinstance(block, Table):
                lines += [f"### {escape_markdown(block.title or section.title)}", "", *render_table(block), ""]
    notes = [*report.notes, report.summary, *report.details]
    return details_block("How sure, by each measure", [*lines, *(f"- {escape_markdown(note)}" for note in notes)])


def _curves_section(overview: Overview) -> list[str]:
    lines: list[str] = []
    enough: list[list[str]] = []
    for curve in overview.curves:
        header = [f"{curve.measure} at k", *curve.values]
        rows = [
            [str(k), *(format_score(values[i]) for values in curve.values.values())] for i, k in enumerate(curve.ks)
        ]
        lines += [*render_markdown_table(header, rows), ""]
        for name, one in curve.enough.items():
            value = next((row["value"] for row in one.table if row["k"] == one.k), math.nan)
            enough.append([name, curve.measure, str(one.k or "none"), format_score(value), f"{one.tolerance:g}"])
    if enough:
        lines += [
            *render_markdown_table(["system", "measure", "k that is enough", "value there", "tolerated loss"], enough),
            "",
        ]
    return details_block("Over k", lines[:-1]) if lines else []


def _strata_section(overview: Overview, tag: str) -> list[str]:
    (title, *others), rows = build_strata_rows(overview, tag)
    return details_block(title, render_markdown_table([tag, *others], rows))


def _failures_section(overview: Overview) -> list[str]:
    lines = [
        f"- {escape_markdown(name)} could not be run: {escape_markdown(why)}" for name, why in overview.failures.items()
    ]
    for name, entry in overview.entries.items():
        if count_failures(entry):
            answers = f"{pluralise(count_failures(entry), 'answer')} failed"
            lines.append(f"- {escape_markdown(name)}: {answers}; each counts as an empty ranking")
        for query, why in islice(entry.failed.items(), MAX_FAILURES_SHOWN):
            lines.append(f"  - {escape_markdown(query)}: {escape_markdown(why)}")
        if len(entry.failed) > MAX_FAILURES_SHOWN:
            lines.append(f"  - and {pluralise(len(entry.failed) - MAX_FAILURES_SHOWN, 'more query', 'more queries')}")
    return ["## What failed", "", *lines] if lines else []


def _audit_section(overview: Overview) -> list[str]:
    if overview.audit is None:
        return []
    lines = []
    for one in overview.audit.problems:
        said = [f"- **{escape_markdown(one.subject)}: {escape_markdown(one.what)}.** {escape_markdown(one.message)}."]
        said += [f"Effect: {escape_markdown(one.effect)}."] if one.effect else []
        lines.append(" ".join([*said, *([f"Do: {escape_markdown(one.remedy)}."] if one.remedy else [])]))
    left = [
        f"- not looked at: {escape_markdown(name)}, {escape_markdown(why)}"
        for name, why in overview.audit.skipped.items()
    ]
    found = pluralise(len(lines), "problem") if lines else "no problem"
    return details_block(
        f"What the audit found: {found}", [*(lines or ["No problem."]), *(["", *left] if left else [])]
    )


def _systems_section(overview: Overview) -> list[str]:
    rows = []
    for name, entry in overview.entries.items():
        system = entry.manifest.get("system") or {}
        made = "" if entry.answered is None else entry.answered.made + ", reused" * entry.answered.reused
        rows.append([name, str(system.get("description", "")), made])
    if not any(row[1] or row[2] for row in rows):
        return []
    return details_block(
        "What the systems are", render_markdown_table(["system", "description", "answers made"], rows, numbers=False)
    )


def _provenance_section(overview: Overview) -> list[str]:
    """Render the plan, machine, data hashes and versions to reproduce results."""
    about = find_first_manifest(overview)
    plan, machine = about.get("plan") or {}, about.get("machine") or {}
    size = [] if overview.documents_known is None else [pluralise(overview.documents_known, "document")]
    size += [pluralise(count_queries(overview), *overview.asked)] if count_queries(overview) else []
    planned = [f"k = {plan['k']}"] if "k" in plan else []
    words = {"repeats": ("repeat",), "workers": ("worker",), "warmup": ("warm-up query", "warm-up queries")}
    planned += [pluralise(plan[key], *word) for key, word in words.items() if isinstance(plan.get(key), int)]
    cores = f", {pluralise(machine['cores'], 'core')}" if isinstance(machine.get("cores"), int) else ""
    known = {
        "dataset": ": ".join(filter(None, [overview.dataset, ", ".join(size)])),
        "convention": overview.convention,
        "judge": overview.judge,
        "plan": ", ".join(planned),
        "machine": f"{machine['processor']}{cores}" if "processor" in machine else "",
        "Python": str(about.get("python") or ""),
    }
    hashes = {str(key): value for key, value in (about.get("dataset") or {}).items() if key.endswith("_hash")}
    told = {"judgments_hash": overview.judgments_hash, "origin": about.get("origin")}
    hashes |= {key: value for key, value in told.items() if value}
    rows = [[key, value] for key, value in known.items() if value]
    rows += [[key.replace("_", " "), str(value)] for key, value in hashes.items()]
    versions = ", ".join(f"{name} {version}" for name, version in (about.get("versions") or {}).items())
    rows += [["versions", versions]] if versions else []
    rows += [["put together", overview.made]] if overview.made else []
    return (
        details_block("To do it again", render_markdown_table(["what", "which"], rows, numbers=False)) if rows else []
    )
