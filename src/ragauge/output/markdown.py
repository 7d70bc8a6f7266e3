"""Render reports as Markdown, and its elements: escaped texts, tables, and collapsible blocks."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from ragauge.core.findings import Finding
from ragauge.core.text import one_line
from ragauge.output.numbers import pluralise
from ragauge.output.report import (
    Block,
    Card,
    Cards,
    Code,
    Facts,
    Findings,
    Paragraph,
    Report,
    format_provenance,
)
from ragauge.output.tables import Table, format_cell, table_of_facts

TAG_START = re.compile(r"<(?!\s|=\s|\d+(?:\.\d+)?(?:\s|$))")
"""A bracket that may open a tag or a link; before a blank or a number it cannot."""


def escape_markdown(text: str) -> str:
    r"""Escape a text for Markdown and HTML.

    Line breaks and control characters are removed.

    >>> print(escape_markdown("p < 0.001 for <b>, *a* & b|c"))
    p < 0.001 for &lt;b>, \*a\* &amp; b\|c
    """
    escaped = TAG_START.sub("&lt;", one_line(text).replace("&", "&amp;"))
    return re.sub(r"([\\`*\[\]|#!$~])", r"\\\1", escaped)


def details_block(title: str, lines: Sequence[str]) -> list[str]:
    """Render lines as a collapsed block with a title.

    Blank lines around them enable tables.
    """
    return [f"<details><summary>{html.escape(one_line(title))}</summary>", "", *lines, "", "</details>"]


def render_markdown(reports: Sequence[Report]) -> str:
    return "\n".join(_render_reports(reports, "#"))


def _render_reports(reports: Sequence[Report], heading: str) -> list[str]:
    """Render reports as lines, with a number of `#` for their titles; titles of joined reports are one level lower."""
    lines: list[str] = []
    for report in reports:
        lines += [f"{heading} {escape_markdown(report.title)}", "", escape_markdown(report.summary), ""]
        lines += [*(f"- {escape_markdown(sentence)}" for sentence in report.details), ""] if report.details else []
        lines += [*_render_cards(report.cards), ""] if report.cards else []
        lines += [escape_markdown(f"{', '.join(report.subject)}."), ""] if report.subject else []
        for section in report.select_sections("markdown"):
            rendered = [line for block in section.blocks for line in _render_block(block, section.title)]
            if rendered:
                lines += [f"{heading}# {escape_markdown(section.title)}", "", *rendered] if section.title else rendered
        lines += _render_reports(report.joined, f"{heading}#")
        lines += (
            [f"{heading}# Notes", "", *(f"- {escape_markdown(note)}" for note in report.notes), ""]
            if report.notes
            else []
        )
        facts = format_provenance(report.provenance)
        if facts:
            lines += [*details_block("Provenance", render_table(table_of_facts(facts))), ""]
    return lines


def _render_block(block: Block, title: str) -> list[str]:
    """Render a block of a section with this title; charts and explorers are shown on pages only."""
    match block:
        case Paragraph(text):
            return [escape_markdown(text), ""]
        case Table():
            if not block.rows:
                return []
            heading = block.title if block.title != title else ""
            if block.collapsed:
                return [*details_block(heading or f"Show {pluralise(len(block.rows), 'row')}", render_table(block)), ""]
            return [*([escape_markdown(f"{heading}:"), ""] if heading else []), *render_table(block), ""]
        case Facts(facts, facts_title):
            return _render_block(table_of_facts(facts, facts_title), title)
        case Cards(cards):
            return [*_render_cards(cards), ""]
        case Findings():
            return _render_findings(block)
        case Code(text, code_title):
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            return [*details_block(code_title, [fence, *text.splitlines(), fence]), ""]
        case _:
            return []


def _render_cards(cards: Sequence[Card]) -> list[str]:
    return [
        f"- **{escape_markdown(card.title)}** {escape_markdown('; '.join([card.value, *card.details]))}"
        for card in cards
    ]


def _render_findings(block: Findings) -> list[str]:
    lines = []
    for finding in block.findings:
        if not finding.problem:
            continue
        lines.append(f"- **{escape_markdown(finding.check)}**{_subject(finding)}: {escape_markdown(finding.message)}")
        if finding.examples:
            lines.append(f"  Examples: {escape_markdown('; '.join(finding.examples[: block.max_examples]))}")
        lines += [f"  Effect: {escape_markdown(finding.effect)}"] if finding.effect else []
        lines += [f"  Remedy: {escape_markdown(finding.remedy)}"] if finding.remedy else []
    lines += [
        f"- {escape_markdown(finding.check)}{_subject(finding)}: {escape_markdown(finding.message)}"
        for finding in block.findings
        if not finding.problem
    ]
    lines += [
        f"- {escape_markdown(check)}: skipped, {escape_markdown(reason)}" for check, reason in block.skipped.items()
    ]
    return [*lines, ""] if lines else []


def _subject(finding: Finding) -> str:
    return f" ({escape_markdown(finding.subject)})" if finding.subject else ""


def render_table(table: Table) -> list[str]:
    """Render a table as lines of Markdown: numbers right-aligned, best values and significant differences in bold."""
    rule = "|" + "|".join("---" if column.is_text else "---:" for column in table.columns) + "|"
    lines = [f"| {' | '.join(escape_markdown(column.title) for column in table.columns)} |", rule]
    note = ["", escape_markdown(table.note)] if table.note else []
    for row in table.cells():
        texts = []
        for cell, column in zip(row, table.columns, strict=True):
            text = escape_markdown(format_cell(cell, column))
            linked = f"[{text}]({cell.link})" if cell.link else text
            texts.append(f"**{linked}**" if text and cell.is_strong else linked)
        lines.append(f"| {' | '.join(texts)} |")
    return [*lines, *note]
