"""An overview on a terminal: how good, how sure, how fast. Beside it stand the same as Markdown, CSV and plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ragauge.comparisons import Comparison
from ragauge.overviews import Entry, Mean, Overview
from ragauge.reports.tables import (
    best_of,
    cell,
    fitting,
    milliseconds,
    one_line,
    p_value,
    plain_table,
    shortened,
    shown,
)
from ragauge.stages import STAGES

Rows = tuple[list[str], list[list[str]]]
"""Header and rows; the first column holds names."""
UNKNOWN = Mean(math.nan, 0)
DROPPED = ("mean", "p90", "cold ms", "p99", "build s", "rerank", "embed", "retrieve")
"""The columns of the speed table that a narrow terminal does without, the first first."""


def tables(overview: Overview, width: int) -> list[Table]:
    """Quality, and speed where it is known; the best of each measure in bold. A narrow terminal has fewer columns."""
    found = [quality_table(overview, width)]
    header, rows = speed_rows(overview)
    if rows:
        goes = [header.index(title) for title in DROPPED if title in header]
        found.append(_table(header, rows, width, goes))
    return found


def quality_rows(overview: Overview, *, intervals: bool = False) -> Rows:
    """Each system's means; its difference from the baseline by the first measure, p, better and worse queries."""
    counts = {overview.entries[name].means.get(m, UNKNOWN).n for name in overview.systems for m in overview.measures}
    header = ["system", *overview.measures, *(["n"] if intervals or len(counts) > 1 else [])]
    gaps = {name: overview.difference(name) for name in overview.systems}
    if any(gaps.values()):
        header += [f"vs {overview.baseline}", "     p", "better/worse"]
    rows = []
    for name, entry in overview.entries.items():
        row = [name, *(mean_text(entry, m, interval=intervals) for m in overview.measures)]
        if intervals or len(counts) > 1:
            row.append(count_text([entry.means.get(m, UNKNOWN) for m in overview.measures]))
        gap = gaps[name]
        if gap is not None:
            row += [_signed(gap.difference), p_text(gap), f"{gap.wins}/{gap.losses}"]
        rows.append(row + [""] * (len(header) - len(row)))
    return header, rows


def mean_text(entry: Entry, measure: str, *, interval: bool = False) -> str:
    """A mean, and how far it may be off where that is asked for and known; a dash where there is none."""
    mean = entry.means.get(measure, UNKNOWN)
    text = shown(mean.value, measure)
    return text if not interval or math.isnan(mean.low) else f"{text} [{mean.low:.4f}, {mean.high:.4f}]"


def known_n(mean: Mean) -> int | None:
    """Over how many queries a mean is; None where a file told the mean and not that."""
    return None if mean.n == 0 and not math.isnan(mean.value) else mean.n


def count_text(means: Sequence[Mean]) -> str:
    """Over how many queries some means are.

    >>> count_text([Mean(0.5, 5), Mean(0.7, 5)]), count_text([Mean(0.5, 3), Mean(0.7, 5)]), count_text([Mean(0.5, 0)])
    ('5', '3-5', '-')
    """
    counts = [n for n in map(known_n, means) if n is not None]
    if not counts:
        return "-"
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}"


def p_text(gap: Comparison) -> str:
    """The p-value to decide by, and its stars; figures stand under each other where the column begins at its left."""
    found = gap.corrected_stars.replace("ns", "")
    return f"{p_value(gap.p_corrected):>6} {found}".rstrip()


def leading(overview: Overview, measure: str) -> float:
    """The best mean of a measure; NaN where there is nobody to be better than, or nothing to be better in."""
    if len(overview.entries) < 2 or measure.startswith("num_"):
        return math.nan
    values = [entry.means.get(measure, UNKNOWN).value for entry in overview.entries.values()]
    return best_of(values, lower=measure in overview.lower_is_better)


def quality_table(overview: Overview, width: int) -> Table:
    """Systems against measures, and the difference from the baseline."""
    header, rows = quality_rows(overview)
    measures = len(overview.measures)
    compared = header[-1] == "better/worse" and len(header) > measures + 1
    goes = [len(header) - 1] if compared else []
    kept = fitting(header, rows, width, [*goes, *range(measures, 1, -1)])
    best = [leading(overview, m) for m in overview.measures]
    table = plain_table([header[i] for i in kept])
    if compared:
        table.columns[kept.index(len(header) - 2)].justify = "left"
    names = shortened(header, rows, kept, width)
    for short, row, (name, entry) in zip(names, rows, overview.entries.items(), strict=True):
        gap = overview.difference(name)
        sure = gap is not None and overview.compared is not None and overview.compared.sure(gap)
        cells = [cell(short)]
        for i in kept[1:]:
            if i <= measures:
                bold = entry.means.get(overview.measures[i - 1], UNKNOWN).value == best[i - 1]
            else:
                bold = compared and i == len(header) - 2 and sure
            cells.append(Text(row[i], style="bold" if bold else ""))
        table.add_row(*cells)
    return table


def speed_rows(overview: Overview, *, every_stage: bool = False) -> Rows:
    """The median of each stage, percentiles of the total, queries per second, and what else is known in costs."""
    timed = {name: entry for name, entry in overview.entries.items() if entry.speed is not None}
    marked = dict.fromkeys(s for entry in timed.values() for s in (entry.speed.stages if entry.speed else ()))
    stages = [s for s in STAGES if s in marked]
    if every_stage:
        stages += [s for s in marked if s not in (*STAGES, "total")]
    others = list(dict.fromkeys(cost for entry in timed.values() for cost in entry.costs))
    titles = {"cold_ms": "cold ms", "build_seconds": "build s"}
    costs = [cost for cost in titles if cost in others]
    if every_stage:
        costs += [cost for cost in others if cost not in costs]
    failed = any(failures(entry) for entry in timed.values())
    header = ["system", *stages, "p50 ms", "p90", "p95", "p99", "mean", "QPS"]
    header += [*(titles.get(cost, cost) for cost in costs), *(["failed"] if failed else [])]
    rows = []
    for name, entry in timed.items():
        if entry.speed is None:
            continue
        known, total = entry.speed.stages, entry.speed.stages.get("total")
        row = [name, *(milliseconds(known[s].p50) if s in known else "" for s in stages)]
        figures = ("p50", "p90", "p95", "p99", "mean")
        row += [milliseconds(None if total is None else getattr(total, figure)) for figure in figures]
        row += [rate(entry.speed.qps), *(_cost(entry, cost) for cost in costs)]
        rows.append([*row, *([str(failures(entry))] if failed else [])])
    return header, rows


def failures(entry: Entry) -> int:
    """How many of a system's answers failed or were given up."""
    return len(entry.failed) if entry.speed is None else entry.speed.failed + entry.speed.timed_out


def rate(qps: float) -> str:
    """Queries per second with the digits that matter.

    >>> rate(4133.2), rate(2.51), rate(math.nan)
    ('4,133', '2.5', '-')
    """
    return "-" if math.isnan(qps) else f"{qps:,.0f}" if qps >= 10 else f"{qps:.1f}"


def _cost(entry: Entry, cost: str) -> str:
    value = entry.costs.get(cost, math.nan)
    if math.isnan(value):
        return "-"
    if cost.endswith("_ms"):
        return milliseconds(value)
    return f"{value:,.0f}" if cost.endswith("_bytes") else f"{value:.2f}"


def strata_rows(overview: Overview, tag: str) -> Rows:
    """The mean of the first measure in each stratum, for each system."""
    rows = [
        [
            one.value,
            str(one.n),
            *(shown(one.means.get(name, UNKNOWN).value, overview.first) for name in overview.systems),
        ]
        for one in overview.strata[tag]
    ]
    return [f"{overview.first} by {tag}", "n", *overview.systems], rows


def strata_table(overview: Overview, tag: str, width: int) -> Table:
    """The same on a terminal, the best of each in bold; a narrow one has it turned over, or a row for each mean."""
    header, rows = strata_rows(overview, tag)
    lower = overview.first in overview.lower_is_better
    styles = []
    for one in overview.strata[tag]:
        values = [one.means.get(name, UNKNOWN).value for name in overview.systems]
        best = best_of(values, lower=lower) if len(values) > 1 else math.nan
        styles.append(["bold" if value == best else "" for value in values])
    marked = [
        [cell(text, style) for text, style in zip(row[2:], mine, strict=True)]
        for row, mine in zip(rows, styles, strict=True)
    ]
    if _fits(header, rows, width):
        table = plain_table(header)
        for row, cells in zip(rows, marked, strict=True):
            table.add_row(cell(row[0]), cell(row[1], "dim"), *cells)
        return table
    turned = [header[0], *(f"{row[0]} ({row[1]})" for row in rows)]
    if _fits(turned, [[name, *(row[i] for row in rows)] for i, name in enumerate(header[2:], 2)], width):
        table = plain_table(turned)
        for i, name in enumerate(overview.systems):
            table.add_row(cell(name), *(cells[i] for cells in marked))
        return table
    table = plain_table([header[0], "system", "mean", "n"])
    for row, cells in zip(rows, marked, strict=True):
        for i, name in enumerate(overview.systems):
            table.add_row(cell("" if i else row[0]), cell(name), cells[i], cell("" if i else row[1], "dim"))
    return table


def _fits(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    return sum(max(len(line[i]) for line in (header, *rows)) + 2 for i in range(len(header))) - 2 <= width


def _table(header: list[str], rows: list[list[str]], width: int, goes: Sequence[int]) -> Table:
    kept = fitting(header, rows, width, goes)
    table = plain_table([header[i] for i in kept])
    for short, row in zip(shortened(header, rows, kept, width), rows, strict=True):
        table.add_row(cell(short), *(Text(one_line(row[i])) for i in kept[1:]))
    return table


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.4f}"
