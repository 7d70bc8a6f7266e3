"""Scores as a table for a terminal, as JSON, and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ragauge.records import Scores

if TYPE_CHECKING:
    from rich.table import Table


def shown(value: float, measure: str = "") -> str:
    """Four decimals; whole numbers for counts; a dash for nothing.

    >>> shown(0.5), shown(3.0, "num_ret"), shown(math.nan)
    ('0.5000', '3', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if measure.startswith("num_") else f"{value:.4f}"


def score_table(scores: Mapping[str, Scores]) -> Table:
    """Runs against measures (or measures against runs, where there are many), the best of each measure in bold."""
    from rich.table import Table

    runs = list(scores)
    measures = list(dict.fromkeys(m for s in scores.values() for m in s.measures))
    best = {m: max((s.means.get(m, math.nan) for s in scores.values()), default=math.nan) for m in measures}
    cells = {(r, m): _cell(scores[r], m, best[m], many=len(runs) > 1) for r in runs for m in measures}
    table = Table(box=None, pad_edge=False, header_style="bold")
    if len(runs) > 1 and len(measures) <= 6:
        table.add_column("run", overflow="fold")
        for m in measures:
            table.add_column(m, justify="right")
        for r in runs:
            table.add_row(r, *(cells[r, m] for m in measures))
        return table
    table.add_column("measure", no_wrap=True)
    for r in runs:
        table.add_column(r, justify="right", overflow="fold")
    table.add_column("n", justify="right", style="dim")
    for m in measures:
        table.add_row(m, *(cells[r, m] for r in runs), _counts([s.n[m] for s in scores.values()]))
    return table


def _counts(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}"


def _cell(scores: Scores, measure: str, best: float, *, many: bool) -> str:
    value = scores.means.get(measure, math.nan)
    text = shown(value, measure)
    return f"[bold]{text}[/bold]" if many and value == best and not measure.startswith("num_") else text


def query_table(scores: Mapping[str, Scores]) -> Table:
    """A row for each run and query."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    first = next(iter(scores.values()))
    if len(scores) > 1:
        table.add_column("run")
    table.add_column("query")
    for measure in first.measures:
        table.add_column(measure, justify="right")
    for name, one in scores.items():
        lead = [name] if len(scores) > 1 else []
        for i, query in enumerate(one.queries):
            table.add_row(*lead, query, *(shown(float(one.values[m][i]), m) for m in one.measures))
    return table


def as_json(scores: Mapping[str, Scores], *, per_query: bool) -> str:
    """`{"convention": …, "runs": {run: {measure: {"mean": …, "n": …, "unscored": …}}}}`; a mean of nothing is null."""
    runs: dict[str, Any] = {}
    for name, one in scores.items():
        runs[name] = {}
        for m in one.measures:
            entry: dict[str, Any] = {
                "mean": None if math.isnan(one.means[m]) else one.means[m],
                "n": one.n[m],
                "unscored": len(one.unscored[m]),
            }
            if one.unscored[m]:
                entry["reasons"] = dict(one.unscored[m])
            if per_query:
                entry["per_query"] = one.per_query[m]
            runs[name][m] = entry
    convention = next(iter(scores.values())).convention
    return json.dumps({"convention": convention, "runs": runs}, ensure_ascii=False, indent=2)


def as_csv(scores: Mapping[str, Scores], *, per_query: bool) -> str:
    """Long: `run,measure,mean,n,unscored`, or `run,query,measure,value` (empty where unscored)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "query", "measure", "value"] if per_query else ["run", "measure", "mean", "n", "unscored"])
    for name, one in scores.items():
        for m in one.measures:
            if per_query:
                for query, value in zip(one.queries, one.values[m].tolist(), strict=True):
                    writer.writerow([name, query, m, "" if math.isnan(value) else repr(value)])
            else:
                mean = one.means[m]
                writer.writerow([name, m, "" if math.isnan(mean) else repr(mean), one.n[m], len(one.unscored[m])])
    return out.getvalue()
