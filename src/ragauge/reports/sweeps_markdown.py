"""Markdown report of a benchmark: summary, tables, failures, notes and provenance."""

from __future__ import annotations

import json

from ragauge.reports.markdown import folded, grid, safe
from ragauge.reports.sweeps import notes
from ragauge.reports.sweeps_rows import filters, frontier, parts
from ragauge.reports.sweeps_tables import Part
from ragauge.reports.sweeps_words import about, unmeasured, verdict
from ragauge.reports.tables import without_nan
from ragauge.sweeps import Sweep


def markdown(sweep: Sweep) -> str:
    """Render the report as Markdown."""
    lines = [f"# {safe(sweep.data)}", "", safe(f"{about(sweep)}."), "", safe(" ".join(verdict(sweep))), ""]
    for part in parts(sweep):
        lines += [f"## {safe(part.title)}", "", *_grid(part), "", *_legend(part)]
    lines += [*folded("Every configuration", _grid(frontier(sweep, every=True))), ""]
    tried = filters(sweep, every=True)
    lines += [*folded(tried.title, _grid(tried)), ""] if tried.rows else []
    missing = unmeasured(sweep)
    if missing:
        header = ["store", "stage", "reason", "remedy"]
        lines += ["## Not measured", "", *grid(header, missing, numbers=False), ""]
    said = notes(sweep)
    lines += ["## Notes", "", *(f"- {safe(line)}" for line in said), ""] if said else []
    kept = json.dumps(without_nan(dict(sweep.circumstances)), indent=2, ensure_ascii=False, default=str)
    fence = "~" * (3 + kept.count("~~~"))
    lines += [*folded("Circumstances", [f"{fence}json", *kept.splitlines(), fence]), ""]
    return "\n".join(lines)


def _grid(part: Part) -> list[str]:
    cells = part.texts
    for row, name in zip(cells, part.groups, strict=False):
        row[0] = f"{name} {row[0]}".strip()
    strong = {(at, i) for at, row in enumerate(part.rows) for i, one in enumerate(row) if one.best}
    return grid(part.header, cells, strong=strong)


def _legend(part: Part) -> list[str]:
    said = "; ".join(part.legend)
    return [safe(f"{said[:1].upper()}{said[1:]}."), ""] if said else []
