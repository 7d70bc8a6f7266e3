"""Report of a benchmark on a terminal: tables, summary, and notes on unreliable results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ragauge.reports.sweeps_provenance import describe_reuse
from ragauge.reports.sweeps_rows import frontier, parts
from ragauge.reports.sweeps_tables import Figure, Part
from ragauge.reports.sweeps_words import DOUBT, about, doubts, failed, floor, named, verdict
from ragauge.reports.tables import cell, counted, fitting, milliseconds, plain_table, shortened
from ragauge.sweeps import Sweep

MOST = 4


def tables(sweep: Sweep, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render all tables for a terminal, and list the columns that do not fit."""
    pieces: list[RenderableType] = [cell(f"{sweep.data}: {about(sweep)}", "bold"), Text("")]
    left: dict[str, None] = {}
    for part in parts(sweep, brief=True):
        flat = _grouped(part)
        kept = fitting(flat.header, flat.texts, width, flat.goes)
        left.update({flat.header[i]: None for i in range(len(flat.header)) if i not in kept and flat.header[i]})
        pieces += [cell(part.title, "bold"), _table(flat, kept, width), Text("")]
    pieces += [cell(line) for line in verdict(sweep)]
    return pieces, list(left)


def legends(sweep: Sweep, width: int) -> list[str]:
    """List the legends of the columns that fit a terminal.

    A last line says how many frontier configurations are omitted.
    """
    told = {part.title: [line for line in part.legend if _of(line, part, width)] for part in parts(sweep, brief=True)}
    lines = [f"{title.rstrip('?')}: {'; '.join(legend)}" for title, legend in told.items() if legend]
    shown, known = (len(frontier(sweep, brief=brief).rows) for brief in (True, False))
    left = f"{known - shown} more settings are worth having; the page and the tables in files have them"
    return [*lines, left] if shown < known else lines


def _of(line: str, part: Part, width: int) -> bool:
    """Return whether a legend line refers to a displayed column.

    A line such as `cold is …` is omitted without the column `cold ms`.
    """
    flat = _grouped(part)
    kept = fitting(flat.header, flat.texts, width, flat.goes)
    gone = [title.split()[0] for i, title in enumerate(flat.header) if i not in kept and title]
    return not any(line.startswith((f"{word} is ", f"{word}: ")) for word in gone)


def notes(sweep: Sweep) -> list[str]:
    """List notes on the results, and on which of them are not reliable."""
    lines = []
    least = floor(sweep)
    if math.isfinite(least):
        but = " but your own" if any(":" in one.configuration.store for one in sweep.points) else ""
        lines.append(
            f"a store of ours that does nothing takes {milliseconds(least)} ms a query (checks and ids): the floor of "
            f"every store here{but}"
        )
    if reuse := describe_reuse(sweep):
        lines.append(reuse)
    found = doubts(sweep)
    if found:
        told = ", ".join(f"{name} ({why})" for name, why in found[:MOST])
        more = f", and {len(found) - MOST} more" if len(found) > MOST else ""
        lines.append(f"{DOUBT} marks doubtful times: {told}{more}; measure them again with --remeasure doubtful")
    said: dict[str, list[str]] = {}
    for one in sweep.points:
        for note in () if one.is_floor else one.notes:
            said.setdefault(note, []).append(named(sweep, one))
    for note, who in said.items():
        more = f" and {counted(len(who) - 1, 'other configuration')}" if len(who) > 1 else ""
        lines.append(f"{who[0]}{more}: {note}")
    return [*dict.fromkeys([*lines, *sweep.notes])]


def broken(sweep: Sweep) -> list[str]:
    """Describe what could not be measured, with the original error messages."""
    return [f"{who}, {stage}: {why}" + (f" ({hint})" if hint else "") for who, stage, why, hint in failed(sweep)]


def _grouped(part: Part) -> Part:
    """Add a heading row per store above its configurations.

    If a store has only one row, its name is put in that row.
    """
    if not part.groups:
        return Part(part.id, part.title, part.header, _once(part.rows), part.legend, part.goes)
    rows: list[Sequence[Figure]] = []
    before = ""
    for name, row in zip(part.groups, part.rows, strict=True):
        if part.groups.count(name) == 1:
            rows.append([Figure(f"{name} {row[0].text}".strip()), *row[1:]])
            continue
        if name != before:
            rows.append([Figure(name), *(Figure("") for _ in row[1:])])
        rows.append([Figure(f"  {row[0].text}"), *row[1:]])
        before = name
    return Part(part.id, part.title, part.header, rows, part.legend, part.goes)


def _once(rows: Sequence[Sequence[Figure]]) -> list[Sequence[Figure]]:
    found: list[Sequence[Figure]] = []
    before = None
    for row in rows:
        found.append([Figure(""), *row[1:]] if row[0].text == before else row)
        before = row[0].text
    return found


def _table(part: Part, kept: Sequence[int], width: int) -> Table:
    table = plain_table([part.header[i] for i in kept])
    for column, i in zip(table.columns, kept, strict=True):
        if part.header[i] == "store":
            column.justify = "left"
    for name, row in zip(shortened(part.header, part.texts, kept, width), part.rows, strict=True):
        head = not row[0].text.startswith(" ") and not any(one.text for one in row[1:])
        cells = [cell(row[i].text, "bold" if row[i].best else "") for i in kept if i]
        table.add_row(cell(name, "bold" if head else ""), *cells)
    return table


def summary(sweep: Sweep) -> str:
    """Summarise the number of configurations and stores in a phrase."""
    real = sum(not one.is_floor for one in sweep.points)
    return (
        f"{counted(real, 'configuration')} of {counted(len(sweep.frontiers), 'store')}" if real else "the harness alone"
    )
