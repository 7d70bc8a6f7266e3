"""Render reports and tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from ragauge.core.findings import Finding
from ragauge.core.text import one_line
from ragauge.output.report import Block, Cards, Code, Facts, Findings, Paragraph, Report
from ragauge.output.tables import COLUMN_GAP_CHARS, Table, shorten_names, table_of_facts

FINDING_NAME_CHARS = 22
"""Width of the column of check names, in characters."""
TONE_STYLES = {"": "", "good": "green", "bad": "bold red"}
"""Style of a cell by its tone."""


def best_mean(values: Sequence[float], *, lower: bool) -> float:
    """Return the best of several means; NaN values are ignored.

    >>> best_mean([0.2, math.nan, 0.1], lower=True), best_mean([0.2, 0.1], lower=False)
    (0.1, 0.2)
    """
    known_values = [value for value in values if not math.isnan(value)]
    return math.nan if not known_values else min(known_values) if lower else max(known_values)


def terminal_cell(text: str, style: str = "") -> Text:
    """Build a one-line cell of a terminal table, without control characters."""
    return Text(one_line(text) if not text.isprintable() else text, style=style)


def render_report(report: Report, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render a report for a terminal; also return the titles of columns that do not fit its width."""
    subject = f": {', '.join(report.subject)}" if report.subject else ""
    pieces: list[RenderableType] = [
        terminal_cell(f"{report.title}{subject}", "bold"),
        *(terminal_cell(sentence) for sentence in (report.summary, *report.details) if sentence),
        Text(""),
    ]
    dropped: dict[str, None] = {}
    for section in report.select_sections("terminal"):
        rendered = [render_block(block, section.title, width) for block in section.blocks]
        if not any(parts for parts, _ in rendered):
            continue
        pieces += [terminal_cell(section.title, "bold")] if section.title else []
        is_first = True
        for block, (parts, hidden_columns) in zip(section.blocks, rendered, strict=True):
            if isinstance(block, Table) and block.title not in ("", section.title) and parts and not is_first:
                pieces.append(Text(""))
            pieces += parts
            dropped.update(dict.fromkeys(hidden_columns))
            is_first = is_first and not parts
        pieces.append(Text(""))
    return pieces[:-1], list(dropped)


def render_block(block: Block, title: str, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render a block of a section with this title; charts and explorers are shown on pages only."""
    match block:
        case Paragraph(text):
            return [terminal_cell(text)], []
        case Table():
            if block.collapsed or not block.rows:
                return [], []
            table, dropped = render_table(block, width)
            heading = [terminal_cell(block.title)] if block.title not in ("", title) else []
            return [*heading, table], dropped
        case Facts(facts, facts_title):
            return render_block(table_of_facts(facts, facts_title), title, width)
        case Cards(cards):
            rows = [[card.title, "; ".join([card.value, *card.details])] for card in cards]
            return render_block(table_of_facts(dict(rows)), title, width)
        case Findings():
            return _render_findings(block), []
        case Code(text, code_title):
            return [*([terminal_cell(f"{code_title}:")] if code_title else []), Text(text)], []
        case _:
            return [], []


def render_table(table: Table, width: int) -> tuple[RichTable, list[str]]:
    """Render a table for a terminal width; also return the titles of the columns that did not fit."""
    table, dropped = table.fit(width)
    texts = table.aligned_texts()
    if table.columns[0].style == "name" and table.has_numbers:
        other_widths = sum(
            max(len(column.title), *(len(row[i]) for row in texts), 0) + COLUMN_GAP_CHARS
            for i, column in enumerate(table.columns)
            if i
        )
        names = shorten_names([row[0] for row in texts], width - other_widths)
        texts = [[name, *row[1:]] for name, row in zip(names, texts, strict=True)]
    titles = any(column.title for column in table.columns)
    rich = RichTable(box=None, pad_edge=False, header_style="bold", show_header=titles)
    for i, column in enumerate(table.columns):
        title = terminal_cell(column.title)
        title.justify = "left" if column.is_text else "right"
        # Rich strips blanks at the end of right-aligned texts, so that numbers before stars would not be aligned.
        texts = [row if column.is_text else [*row[:i], row[i].rjust(len(column.title)), *row[i + 1 :]] for row in texts]
        rich.add_column(title, no_wrap=column.style != "text", overflow="fold")
    group = None
    for row, cells in zip(texts, table.cells(), strict=True):
        styles = [TONE_STYLES[cell.tone] or ("bold" if cell.is_strong else "") for cell in cells]
        if table.group_by is not None:
            row[table.group_by], group = (
                ("" if row[table.group_by] == group else row[table.group_by]),
                row[table.group_by],
            )
        rich.add_row(*map(terminal_cell, row, styles))
    return rich, dropped


def _render_findings(block: Findings) -> list[RenderableType]:
    """Render problems with examples, effect and remedy, then other results, then skipped checks."""
    lines: list[RenderableType] = [
        _finding_line(("!", "bold red"), finding, block.max_examples) for finding in block.findings if finding.problem
    ]
    other_findings = [finding for finding in block.findings if not finding.problem and finding.count]
    clean_checks = list(dict.fromkeys(f.check for f in block.findings if not f.problem and not f.count))
    lines += [_finding_line(("·", "dim"), finding, min(1, block.max_examples)) for finding in other_findings]
    if clean_checks:
        lines.append(_marked_line(("·", "dim"), "no problem", [Text(", ".join(clean_checks), overflow="fold")]))
    for check, reason in block.skipped.items():
        lines.append(_marked_line(("-", "dim"), check, [_dim_text(f"skipped: {one_line(reason)}")]))
    return lines


def _finding_line(mark: tuple[str, str], finding: Finding, max_examples: int) -> RichTable:
    subject = f"{finding.subject}: " if finding.subject else ""
    text: list[RenderableType] = [Text(one_line(f"{subject}{finding.message}"), overflow="fold")]
    text += [Padding(_dim_text(one_line(example)), (0, 0, 0, 2)) for example in finding.examples[:max_examples]]
    if finding.problem and finding.count > max_examples and len(finding.examples) > max_examples:
        text.append(_dim_text("  …"))
    if finding.problem and finding.effect:
        text.append(Text(f"effect: {one_line(finding.effect)}", style="italic", overflow="fold"))
    if finding.remedy:
        text.append(Text(f"remedy: {one_line(finding.remedy)}", overflow="fold"))
    return _marked_line(mark, finding.check, text)


def _dim_text(text: str) -> Text:
    return Text(text, style="dim", overflow="fold")


def _marked_line(mark: tuple[str, str], name: str, text: Sequence[RenderableType]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(width=FINDING_NAME_CHARS, overflow="fold")
    table.add_column(overflow="fold")
    table.add_row(Text(*mark), Text(name), Group(*text))
    return table
