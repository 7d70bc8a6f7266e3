"""Reports of an audit for a terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ragauge.core.findings import Audit, Finding, FindingTable
from ragauge.core.text import one_line
from ragauge.files.serialization import replace_nan
from ragauge.output.markdown import escape_markdown, render_markdown_table
from ragauge.output.text_report import format_grid_cells

EXPECTED_FINDING = "expected"
"""Name of findings on expected scores: they come first, problem or not."""
FINDINGS_WITH_TABLE = ("conventions", EXPECTED_FINDING)
"""Findings whose table is shown even without a problem."""
TABLE_FOOTNOTES = {"conventions": "presets are described in CONVENTIONS.md"}
"""Notes below the table of a finding, by the name of the finding."""
NAME_COLUMN_CHARS = 16
"""Width of the column of finding names, in characters."""


def render_audit_terminal(audit: Audit, *, full: bool = False) -> list[RenderableType]:
    """Render an audit for a terminal.

    Expected scores come first, then problems by subject, other findings and skipped checks.
    """
    out: list[RenderableType] = []
    asked, problems, quiet = _group_findings(audit)
    if asked:
        out.append(Text("expected scores", style="bold"))
        for one in asked:
            out.extend(
                _render_finding("!" if one.problem else "·", "bold red" if one.problem else "dim", one, grid=True)
            )
        out.append(Text())
    for subject in dict.fromkeys(one.subject for one in problems):
        out.append(Text(one_line(subject), style="bold", overflow="fold"))
        for one in problems:
            if one.subject == subject:
                out.extend(_render_finding("!", "bold red", one, grid=True))
        out.append(Text())
    if quiet:
        out.append(Text("passed and notes", style="bold"))
        out.extend(_render_minor_findings(quiet, audit.runs, full=full))
        out.append(Text())
    if audit.skipped:
        out.append(Text("skipped", style="bold"))
        why: dict[str, list[str]] = {}
        for name, reason in audit.skipped.items():
            why.setdefault(reason, []).append(name)
        for reason, names in why.items():
            text = Text(f"{', '.join(names)}: {one_line(reason)}", style="dim", overflow="fold")
            out.append(_render_line(("-", "dim"), [text]))
        out.append(Text())
    return out[:-1]


def _group_findings(audit: Audit) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Group findings into those on expected scores, problems, and others."""
    others = [one for one in audit.findings if one.what != EXPECTED_FINDING]
    return (
        [one for one in audit.findings if one.what == EXPECTED_FINDING],
        [one for one in others if one.problem],
        [one for one in others if not one.problem],
    )


def summarise_audit(audit: Audit) -> str:
    """Return the numbers of problems and of skipped checks in a sentence.

    >>> summarise_audit(Audit([Finding("run", "ties", True, 1, "…")], {"orphans": "no corpus"}))
    '1 problem found, 1 check skipped'
    """
    found, left = len(audit.problems), len(audit.skipped)
    text = f"{found} problem{'s' * (found != 1)} found"
    return f"{text}, {left} check{'s' * (left != 1)} skipped" if left else text


def _render_minor_findings(findings: Sequence[Finding], runs: Sequence[str], *, full: bool) -> list[RenderableType]:
    """Render findings that are not problems, one line each.

    Unless `full`, checks without a problem in three or more subjects share a line. Tables are shown only if always
    required.
    """
    out: list[RenderableType] = []
    shared: dict[tuple[str, ...], list[str]] = {}
    for what in dict.fromkeys(one.what for one in findings):
        mine = [one for one in findings if one.what == what]
        if not full and len(mine) > 2 and what not in FINDINGS_WITH_TABLE:
            shared.setdefault(tuple(one.subject for one in mine), []).append(what)
            continue
        for one in mine:
            unclear = len({other.subject for other in mine}) > 1 or (one.subject in runs and len(runs) > 1)
            lead = f"{one.subject}: " if unclear and not one.message.startswith(one.subject) else ""
            out.extend(_render_finding("·", "dim", one, grid=full or what in FINDINGS_WITH_TABLE, lead=lead))
    for subjects, names in shared.items():
        text = f"no problem in {one_line(', '.join(subjects))}: {', '.join(names)} (--full shows each)"
        out.append(_render_line(("·", "dim"), [Text(text, overflow="fold")]))
    return out


def _render_line(mark: tuple[str, str], columns: Sequence[RenderableType]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    for _ in columns[:-1]:
        table.add_column(width=NAME_COLUMN_CHARS, overflow="fold")
    table.add_column(overflow="fold")
    table.add_row(Text(*mark), *columns)
    return table


def _render_finding(mark: str, style: str, one: Finding, *, grid: bool, lead: str = "") -> Iterator[RenderableType]:
    names = [one_line(example) for example in one.examples]
    more = ", …" if one.count > len(names) else ""
    examples = f" ({', '.join(names)}{more})" if names else ""
    text = [Text(one_line(f"{lead}{one.message}{examples}"), overflow="fold")]
    if one.effect and (one.problem or grid):
        text.append(Text(f"effect: {one_line(one.effect)}", style="italic", overflow="fold"))
    if one.remedy:
        text.append(Text(f"do: {one_line(one.remedy)}", overflow="fold"))
    yield _render_line((mark, style), [Text(one.what), Group(*text)])
    if grid and one.grid is not None and one.grid.rows:
        yield Padding(_render_grid(one.grid), (0, 0, 0, 4))
        if one.what in TABLE_FOOTNOTES:
            yield Padding(Text(TABLE_FOOTNOTES[one.what], style="dim"), (0, 0, 0, 4))


def _render_grid(grid: FindingTable) -> Table:
    rows = format_grid_cells(grid)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, title in enumerate(grid.header):
        numbers = any(not isinstance(row[i], str) for row in grid.rows) or all(_is_numeric_cell(row[i]) for row in rows)
        longest = max(len(row[i]) for row in rows)
        table.add_column(
            Text(one_line(title), overflow="fold"),
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=False,
            min_width=min(longest, 9 if numbers else 12),
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _is_numeric_cell(text: str) -> bool:
    return text in ("-", "refused") or text[:1] in "+-0123456789<" or text.endswith("%")


def audit_to_dict(audit: Audit) -> dict[str, Any]:
    """Convert an audit to JSON data.

    `{"problems": n, "findings": […], "skipped": {check: reason}, "notes": […]}`.
    """
    found: dict[str, Any] = {
        "problems": len(audit.problems),
        "findings": [_finding_to_dict(one) for one in audit.findings],
        "skipped": dict(audit.skipped),
        "notes": list(audit.notes),
    }
    return dict(replace_nan(found))


def audit_to_json(audit: Audit) -> str:
    """Return an audit as JSON text."""
    return json.dumps(audit_to_dict(audit), ensure_ascii=False, indent=2, allow_nan=False)


def _finding_to_dict(one: Finding) -> dict[str, Any]:
    found = {**asdict(one), "examples": list(one.examples)}
    if one.grid is not None:
        found["grid"] = {"header": list(one.grid.header), "rows": [list(row) for row in one.grid.rows]}
    return found


def render_audit_markdown(audit: Audit) -> str:
    """Render an audit as a Markdown page."""
    lines = ["# Audit", "", *(f"{escape_markdown(note)}." for note in audit.notes), ""]
    lines += [f"{summarise_audit(audit)}.", ""]
    titles = ("Expected scores", "Problems", "Passed and notes")
    for title, findings in zip(titles, _group_findings(audit), strict=True):
        if findings:
            lines += [f"## {title}", ""]
        for one in findings:
            examples = f" ({', '.join(map(escape_markdown, one.examples))})" if one.examples else ""
            lines += [f"**{escape_markdown(one.subject)}: {one.what}.** {escape_markdown(one.message)}{examples}.", ""]
            if one.effect:
                lines += [f"Effect: {escape_markdown(one.effect)}.", ""]
            if one.remedy:
                lines += [f"Do: {escape_markdown(one.remedy)}.", ""]
            if one.grid is not None and one.grid.rows:
                lines += [*render_markdown_table(one.grid.header, format_grid_cells(one.grid)), ""]
                lines += [escape_markdown(TABLE_FOOTNOTES[one.what]) + ".", ""] if one.what in TABLE_FOOTNOTES else []
    if audit.skipped:
        lines += [
            "## Skipped",
            "",
            *(f"- {name}: {escape_markdown(why)}" for name, why in audit.skipped.items()),
            "",
        ]
    return "\n".join(lines)
