"""Scores as a table for a terminal, as JSON, and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ragauge.records import Scores


def shown(value: float, measure: str = "") -> str:
    """Four decimals; whole numbers for counts; a dash for nothing.

    >>> shown(0.5), shown(3.0, "num_ret"), shown(math.nan)
    ('0.5000', '3', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if measure.startswith("num_") else f"{value:.4f}"


def one_line(text: str) -> str:
    """A text without line breaks and control characters: it may hold what a server had to say."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())


def score_table(scores: Mapping[str, Scores], width: int) -> Table:
    """Runs against measures where that fits the width, else measures against runs; the best of each in bold."""
    runs = list(scores)
    measures = list(dict.fromkeys(m for s in scores.values() for m in s.measures))
    best = {m: max((s.means[m] for s in scores.values()), default=math.nan) for m in measures}
    cells = {(r, m): _cell(scores[r], m, best[m], many=len(runs) > 1) for r in runs for m in measures}
    counts = [[scores[r].n[m] for m in measures] for r in runs]
    if len(runs) > 1 and max(map(len, runs)) + sum(max(len(m), 6) + 2 for m in measures) + 10 <= width:
        table = plain_table(["run", *measures, "n"])
        for r, n in zip(runs, counts, strict=True):
            table.add_row(Text(r), *(cells[r, m] for m in measures), _counts(n))
        return table
    table = plain_table(["measure", *runs, "n"])
    for i, m in enumerate(measures):
        table.add_row(Text(m), *(cells[r, m] for r in runs), _counts([n[i] for n in counts]))
    return table


def plain_table(headers: Sequence[str], *, numbers: bool = True) -> Table:
    """A table without lines; the first column holds names, the others numbers, unless they do not."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headers))
    for i, header in enumerate(headers):
        table.add_column(Text(header), justify="right" if i and numbers else "left", no_wrap=i == 0, overflow="fold")
    return table


def _counts(counts: list[int]) -> Text:
    return Text(str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}", style="dim")


def _cell(scores: Scores, measure: str, best: float, *, many: bool) -> Text:
    value = scores.means[measure]
    leads = many and value == best and not measure.startswith("num_")
    return Text(shown(value, measure), style="bold" if leads else "")


def query_table(scores: Mapping[str, Scores], width: int) -> Table:
    """A row for each run and query where that fits the width, else a row for each value."""
    first = next(iter(scores.values()))
    several = len(scores) > 1
    longest = max([len(q) for q in first.queries]) + (max(map(len, scores)) + 2 if several else 0)
    if longest + sum(max(len(m), 6) + 2 for m in first.measures) > width:
        table = plain_table(["query", *(["run"] if several else []), "measure", "value"])
        for name, one in scores.items():
            for m in one.measures:
                for query, value in zip(one.queries, one.values[m].tolist(), strict=True):
                    table.add_row(Text(query), *([Text(name)] if several else []), Text(m), shown(value, m))
        return table
    table = plain_table(["query", *(["run"] if several else []), *first.measures])
    for name, one in scores.items():
        for i, query in enumerate(one.queries):
            lead = [Text(query), *([Text(name)] if several else [])]
            table.add_row(*lead, *(shown(float(one.values[m][i]), m) for m in one.measures))
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
