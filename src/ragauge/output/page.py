"""Render reports as one self-contained HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.output.html_tables import prepare_table
from ragauge.output.page_assets import compress_json, render_template, vega_script
from ragauge.output.report import (
    Chart,
    Charts,
    Explorer,
    Facts,
    Findings,
    Report,
    Section,
    clean_texts,
    flatten_reports,
    format_provenance,
    split_shared_provenance,
    unique_titles,
    with_unique_kinds,
)
from ragauge.output.tables import Table, table_of_facts

PROVENANCE_SECTION = "provenance"


class PageBlock(NamedTuple):
    """Block as the template shows it."""

    kind: str
    content: Any


class PageExplorer(NamedTuple):
    """Explorer as the template and `explorer.js` show it."""

    name: str
    """Id of the element with the settings; payloads are in elements `<name>-<payload>`."""
    settings: Mapping[str, Any]
    payloads: Mapping[str, Any]
    about: str = ""


class PageSection(NamedTuple):
    """Section as the template shows it."""

    id: str
    title: str
    short: str
    blocks: Sequence[PageBlock]
    is_split: bool = False
    """Whether charts are next to the first block on a wide page."""


def render_page(reports: Sequence[Report], load_vega: Callable[[], str] = vega_script) -> str:
    """Render reports as one HTML page.

    `load_vega` returns the script that draws charts; it is called if there are any.
    """
    is_single = len(reports) == 1
    reports = with_unique_kinds([clean_texts(report) for report in flatten_reports(reports)])
    first = reports[0]
    charts: dict[str, Chart] = {}
    explorers: list[PageExplorer] = []
    grouped = [
        _page_sections(report, charts, explorers, headed=i > 0 or not is_single) for i, report in enumerate(reports)
    ]
    sections = [section for group in grouped for section in group]
    # One navigation entry per further report, or the bar would be wider than the page.
    section_entries = list(grouped[0]) if is_single else []
    entries = [
        *section_entries,
        *_navigation_entries(reports[len(section_entries) > 0 :], grouped[len(section_entries) > 0 :]),
    ]
    provenance = [
        prepare_table(table_of_facts(format_provenance(facts), title))
        for title, facts in split_shared_provenance(reports)
        if facts
    ]
    notes = list(dict.fromkeys(note for report in reports for note in report.notes))
    closing_sections = [PageSection(PROVENANCE_SECTION, "Provenance", "Provenance", [])] if provenance or notes else []
    return render_template(
        {
            "title": first.title if is_single else "Reports",
            "kind": first.kind if is_single else "report",
            "made": max((report.created for report in reports), default=""),
            "subject": first.subject if is_single else [report.title for report in reports],
            "summary": first.summary if is_single else "",
            "details": first.details if is_single else [report.summary for report in reports],
            "cards": first.cards if is_single else [],
            "navigation": [*entries, *closing_sections],
            "targets": {section.id for section in (*sections, *closing_sections)},
            "prefix": f"{first.kind}-",
            "sections": sections,
            "provenance": provenance,
            "notes": notes,
        },
        charts,
        {explorer.name: explorer.settings for explorer in explorers},
        {key: text for explorer in explorers for key, text in compress_payloads(explorer).items()},
        vega=load_vega() if charts else "",
        scripts=["explorer.js"] if explorers else [],
    )


def compress_payloads(explorer: PageExplorer) -> dict[str, str]:
    """Return the compressed data of an explorer by the id of its element."""
    return {f"{explorer.name}-{name}": compress_json(data) for name, data in explorer.payloads.items()}


def _page_sections(
    report: Report, charts: dict[str, Chart], explorers: list[PageExplorer], *, headed: bool
) -> list[PageSection]:
    """Prepare the sections of a report, and collect the charts and explorers that they show.

    With `headed`, for a page of several reports, titles are prefixed and the first section has the summary.
    """
    sections: list[PageSection] = []
    for section in report.select_sections("html"):
        blocks = [block for block in _page_blocks(report, section, charts, explorers) if block.content]
        if not blocks:
            continue
        if headed and not sections:
            summary = " ".join([report.summary, *report.details])
            blocks.insert(0, PageBlock("paragraph", {"text": summary, "warning": False}))
        title = f"{report.title}: {section.title}" if headed else section.title
        is_split = section.layout == "split" and [block.kind for block in blocks[1:2]] == ["charts"]
        sections.append(PageSection(f"{report.kind}-{section.id}", title, section.short, blocks, is_split))
    return sections


def _page_blocks(
    report: Report, section: Section, charts: dict[str, Chart], explorers: list[PageExplorer]
) -> list[PageBlock]:
    blocks = []
    for block in section.blocks:
        content: Any = block
        if isinstance(block, Table) and not block.rows:
            continue
        if isinstance(block, Table):
            title = "" if block.title == section.title else block.title
            content = prepare_table(block, title)
        elif isinstance(block, Charts):
            chart_by_name = {f"{report.kind}-{name}": chart for name, chart in block.draw().items()}
            charts.update(chart_by_name)
            content = {"charts": chart_by_name, "in_pairs": block.in_pairs} if chart_by_name else None
        elif isinstance(block, Facts):
            content = prepare_table(table_of_facts(block.facts, block.title))
        elif isinstance(block, Findings):
            content = _page_findings(block)
        elif isinstance(block, Explorer):
            content = page_explorer(block, len(explorers))
            explorers.append(content)
        blocks.append(PageBlock(type(block).__name__.lower(), content))
    return blocks


def page_explorer(block: Explorer, position: int = 0) -> PageExplorer:
    """Prepare the explorer at a place among those of a page."""
    name = "explorer" if position == 0 else f"explorer-{position + 1}"
    return PageExplorer(name, {"kind": block.kind, **block.settings}, block.payloads(), block.about)


def _page_findings(block: Findings) -> Mapping[str, Any]:
    """Prepare findings: problems, then other results by check."""
    messages_by_check: dict[str, list[str]] = {}
    for finding in block.findings:
        if not finding.problem:
            message = f"{finding.subject}: {finding.message}" if finding.subject else finding.message
            effect = f"; {finding.effect}" if finding.effect and finding.effect not in message else ""
            messages_by_check.setdefault(finding.check, []).append(message + effect)
    return {
        "problems": [finding for finding in block.findings if finding.problem],
        "others": messages_by_check,
        "skipped": block.skipped,
        "max_examples": block.max_examples,
    }


def _navigation_entries(reports: Sequence[Report], grouped: Sequence[Sequence[PageSection]]) -> list[PageSection]:
    """Return the first section of each report, titled for the navigation."""
    titled_groups = zip(grouped, unique_titles(reports), strict=True)
    return [sections[0]._replace(short=title) for sections, title in titled_groups if sections]
