"""Render the tables of a report in LaTeX, and escape texts for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragauge.core.text import one_line
from ragauge.output.report import Facts, Report, flatten_reports
from ragauge.output.sparklines import SPARKLINE_BLOCKS
from ragauge.output.tables import Cell, Column, Table, format_cell, table_of_facts

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "`": r"{\char96}",
    "\ufffd": "?",
    **{mark: f"\\{mark}" for mark in "_&%#${}"},
    **{mark: rf"\rule{{.4em}}{{.{i}em}}" for i, mark in enumerate(SPARKLINE_BLOCKS, 1)},
}
"""LaTeX code for characters that LaTeX would interpret or typeset differently."""
MAX_NARROW_MARK_CHARS = 3
"""Maximum number of raised characters that fit between two columns."""


def escape_latex(text: str) -> str:
    r"""Escape a text for LaTeX, as one line.

    >>> escape_latex("50% of a_b & {c}\nüber"), escape_latex("▂")
    ('50\\% of a\\_b \\& \\{c\\} über', '\\rule{.4em}{.2em}')
    """
    escaped = "".join(LATEX_ESCAPES.get(mark, mark) for mark in one_line(text))
    return escaped.replace("--", "-{}-").replace(
        "''", "'{}'"
    )  # LaTeX would join pairs into a dash or a quotation mark.


def render_latex(reports: Sequence[Report]) -> str:
    """Render all tables of reports with booktabs, after their notes as comments.

    The best values are bold, the second best underlined, stars and letters raised.
    """
    blocks: list[str] = [r"% \usepackage{booktabs}"]
    for report in flatten_reports(reports):
        blocks += [f"% {one_line(note)}" for note in report.notes]
        for section in report.select_sections("latex"):
            for block in section.blocks:
                table = table_of_facts(block.facts, block.title) if isinstance(block, Facts) else block
                if isinstance(table, Table) and table.rows and not table.collapsed:
                    parts = [table.title or section.title, *table.legends, table.note.removesuffix(".")]
                    caption = ". ".join(filter(None, parts))
                    label = "-".join(dict.fromkeys((report.kind, section.id, table.id)))
                    blocks.append(render_table(table, caption, label))
    return "\n".join([*blocks, ""])


def render_table(table: Table, caption: str, label: str) -> str:
    header = [escape_latex(column.title) for column in table.columns]
    rows = [
        [_format_latex_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.cells()
    ]
    for row in rows:  # At the start of a row, LaTeX would read a bracket or a star as an option of the previous row.
        row[0] = f"{{}}{row[0]}" if row[0][:1] in ("[", "*") else row[0]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(map(str.ljust, cells, widths)).rstrip() + r" \\"

    cells = zip(*table.cells(), strict=True)
    alignment = "".join(
        _column_format(column_cells, column) for column_cells, column in zip(cells, table.columns, strict=True)
    )
    key = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "table"
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{escape_latex(caption)}.}}",
            rf"  \label{{tab:{key}}}",
            rf"  \begin{{tabular}}{{{alignment}}}",
            r"    \toprule",
            line(header),
            r"    \midrule",
            *map(line, rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def _format_latex_cell(cell: Cell, column: Column) -> str:
    text = escape_latex(format_cell(cell._replace(stars="", letters=()), column))
    text = "--" if text == "-" else text
    if cell.is_strong:
        text = rf"\textbf{{{text}}}"
    elif cell.second_best:
        text = rf"\underline{{{text}}}"
    marks = _raised_marks(cell)
    if marks:
        only_stars = set(marks) == {"*"}
        superscript = f"$^{{{marks}}}$" if only_stars else rf"\textsuperscript{{{escape_latex(marks)}}}"
        text = rf"{text}\rlap{{{superscript}}}"
    return text


def _raised_marks(cell: Cell) -> str:
    """Return the stars or letters of a cell; numbers are separated by commas."""
    return cell.stars or ("" if all(map(str.isalpha, cell.letters)) else ",").join(cell.letters)


def _column_format(cells: Sequence[Cell], column: Column) -> str:
    """Return the column specification, with space for raised marks that do not fit between two columns."""
    if column.is_text:
        return "l"
    longest = max(len(_raised_marks(cell)) for cell in cells)
    return "r" if longest <= MAX_NARROW_MARK_CHARS else rf"r@{{\hspace{{{0.4 * longest + 0.6:.1f}em}}}}"
