"""Render tables as HTML, and reports as the fragments that a notebook shows; a page uses the same tables."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ragauge.output.numbers import pluralise
from ragauge.output.report import Block, Facts, Findings, Paragraph, Report, clean_texts
from ragauge.output.tables import Column, Table, format_cell, sort_key, table_of_facts

MAX_FRAGMENT_ROWS = 30
"""Maximum number of rows of a table that a notebook shows."""
FRAGMENT_STYLE = (
    "<style>.ragauge-result .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".ragauge-result small{opacity:.75;margin-left:.4em}.ragauge-result caption{text-align:left;font-weight:600}"
    ".ragauge-result thead th{text-align:left}.ragauge-result tbody th{text-align:left;font-weight:400}"
    ".ragauge-result .scroll{overflow-x:auto}</style>"
)
"""Style of the fragment only; colours are those of the notebook."""


class PageCell(NamedTuple):
    """Cell of a table as HTML shows it."""

    text: str
    detail: str = ""
    best: bool = False
    stars: str = ""
    tooltip: str = ""
    link: str = ""
    order: float | None = None
    """Number by which the column is sorted; None to sort by the text."""


class PageTable(NamedTuple):
    """Table as HTML shows it."""

    id: str
    title: str
    header: Sequence[str]
    numeric: Sequence[bool]
    """Whether each column is right-aligned."""
    rows: Sequence[Sequence[PageCell]]
    legends: Sequence[str]
    note: str
    collapsed: bool
    sortable: bool
    stacked: bool
    """Whether a phone shows the cells of a row below each other."""


def prepare_table(table: Table, title: str | None = None) -> PageTable:
    """Format the cells of a table for HTML."""
    title = table.title if title is None else title
    if table.collapsed and not title:
        title = f"Show {pluralise(len(table.rows), 'row')}"
    header = [column.title for column in table.columns]
    rows = [
        [
            PageCell(
                format_cell(cell._replace(stars=""), column, with_detail=False),
                cell.detail,
                cell.is_strong,
                cell.stars,
                cell.tooltip,
                cell.link,
                None if column.is_text else sort_key(cell),
            )
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.cells()
    ]
    numeric = [not column.is_text for column in table.columns]
    stacked = not any(numeric) and len(header) > 1 and any(header)
    sortable = len(rows) > 1 and any(header)
    return PageTable(
        table.id, title, header, numeric, rows, table.legends, table.note, table.collapsed, sortable, stacked
    )


def escape_html(text: str) -> str:
    """Escape a text for an element or a quoted attribute, with the entities that the templates use.

    >>> escape_html('<a b="c">')
    '&lt;a b=&#34;c&#34;&gt;'
    """
    return html.escape(text, quote=False).replace('"', "&#34;").replace("'", "&#39;")


def mark_code(text: str) -> str:
    """Escape a text for HTML, and format text between backticks as code.

    >>> mark_code("run `a --b` & <i>")
    'run <code>a --b</code> &amp; &lt;i&gt;'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape_html(text))


def render_html_table(table: PageTable, label: str = "Table", css_class: str = "grid") -> str:
    """Render a table with its title, legends and note; `label` names a table without a title for screen readers."""
    title = escape_html(table.title)
    stacked = " said" if table.stacked else ""
    name = f' data-table="{escape_html(table.id)}"' if table.id else ""
    caption = f"<caption>{title}</caption>" if table.title and not table.collapsed else ""
    header = "".join(_render_head(table, column) for column in range(len(table.header)))
    rows = "\n".join(
        f"<tr>{''.join(_render_cell(table, column, cell) for column, cell in enumerate(row))}</tr>"
        for row in table.rows
    )
    grid = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title or escape_html(label)}">'
        f'<table class="{css_class}{stacked}"{name}>{caption}\n<thead><tr>{header}</tr></thead>\n'
        f"<tbody>{rows}</tbody>\n</table></div>"
    )
    legends = [text for text in ("; ".join(table.legends), table.note) if text]
    notes_html = "".join(f'<p class="legend">{mark_code(text)}</p>' for text in legends)
    if table.collapsed:
        return f"<details><summary>{title}</summary>{grid}{notes_html}</details>\n"
    return f"{grid}{notes_html}\n"


def _render_head(table: PageTable, column: int) -> str:
    text = escape_html(table.header[column])
    content = f'<button type="button" data-column="{column}">{text}</button>' if table.sortable else text
    numeric = ' class="n"' if column and table.numeric[column] else ""
    order = ' aria-sort="none"' if table.sortable else ""
    return f'<th scope="col"{numeric}{order}>{content}</th>'


def _render_cell(table: PageTable, column: int, cell: PageCell) -> str:
    text = escape_html(cell.text)
    if cell.best:
        text = f"<strong>{text}</strong>"
    elif cell.link:
        text = f'<a href="{escape_html(cell.link)}">{text}</a>'
    if cell.stars:
        text += f'<sup title="{escape_html(cell.tooltip)}">{escape_html(cell.stars)}</sup>'
    if cell.detail:
        text += f"<small>{escape_html(cell.detail)}</small>"
    if column == 0:
        return f'<th scope="row">{text}</th>'
    attributes = ' class="n"' if table.numeric[column] else ""
    if table.stacked and not attributes:
        attributes = f' data-name="{escape_html(table.header[column])}"'
    order = "" if cell.order is None else f' data-order="{cell.order}"'
    return f"<td{attributes}{order}>{text}</td>"


def render_fragment(report: Report) -> str:
    """Render the summary, the tables and the first notes of a report as a fragment of HTML, without any script."""
    report = clean_texts(report)
    parts = [f"<p><strong>{escape_html(report.title)}.</strong> {mark_code(report.summary)}</p>"]
    for section in report.select_sections("terminal"):
        parts += [
            _render_fragment_table(table, section.title)
            for block in section.blocks
            for table in _tables_of_block(block)
            if table.rows and not table.collapsed
        ]
        parts += [f"<p>{mark_code(block.text)}</p>" for block in section.blocks if isinstance(block, Paragraph)]
    if report.notes:
        notes = "".join(f"<li>{mark_code(note)}</li>" for note in report.notes)
        parts.append(f"<ul>{notes}</ul>")
    return "\n".join([f'<div class="ragauge-result">{FRAGMENT_STYLE}', *parts, "</div>"])


def _tables_of_block(block: Block) -> list[Table]:
    """Return the tables of a block; facts and findings are one each, charts and explorers none."""
    if isinstance(block, Table):
        return [block]
    if isinstance(block, Facts):
        return [table_of_facts(block.facts, block.title)]
    if isinstance(block, Findings):
        columns = [Column("check", "name"), Column("subject", "name"), Column("finding"), Column("remedy")]
        problems = [finding for finding in block.findings if finding.problem]
        return [
            Table(
                "findings",
                columns,
                [[finding.check, finding.subject, finding.message, finding.remedy] for finding in problems],
            )
        ]
    return []


def _render_fragment_table(table: Table, title: str) -> str:
    """Render a table without buttons, limited to its first rows."""
    rows = table.rows[:MAX_FRAGMENT_ROWS]
    note = table.note
    if len(rows) < len(table.rows):
        row_note = f"The first {len(rows)} of {len(table.rows):,} rows; `to_polars()` has all."
        note = f"{note} {row_note}" if note else row_note
    prepared = prepare_table(replace(table, rows=rows, note=note), table.title or title)
    return render_html_table(prepared._replace(sortable=False), css_class="ragauge-table")
