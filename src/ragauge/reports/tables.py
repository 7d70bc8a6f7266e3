"""Tables for terminals, and scores as a table, JSON and CSV."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ragauge.csv_cells import neutralise_cell
from ragauge.records import Scores


def shown(value: float, measure: str = "") -> str:
    """Format a score: four decimals, integers for counts, and a dash for NaN.

    >>> shown(0.5), shown(3.0, "num_ret"), shown(math.nan)
    ('0.5000', '3', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if measure.startswith("num_") else f"{value:.4f}"


def counted(number: int, one: str, several: str = "") -> str:
    """Format a count with its noun in singular or plural.

    >>> counted(1, "query", "queries"), counted(1200, "document")
    ('1 query', '1,200 documents')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


JOINERS = "\u200c\u200d"
"""Zero-width joiners. They are invisible and harmless, but Persian words and many emoji change without them."""


def one_line(text: str) -> str:
    r"""Remove line breaks and control characters from a text.

    >>> one_line("a \n b\x1b[31m"), len(one_line("\U0001f469\u200d\U0001f680"))
    ('a b�[31m', 3)
    """
    return " ".join("".join(c if c.isprintable() or c.isspace() or c in JOINERS else "\ufffd" for c in text).split())


def score_table(scores: Mapping[str, Scores], width: int) -> Table:
    """Build a table of mean scores, with the best of each measure in bold.

    Runs are rows if they fit the width, else measures are.
    """
    runs = list(scores)
    measures = list(dict.fromkeys(m for s in scores.values() for m in s.measures))
    best = {m: best_of([s.means[m] for s in scores.values()], lower=_lower(scores, m)) for m in measures}
    cells = {(r, m): _cell(scores[r], m, best[m], many=len(runs) > 1) for r in runs for m in measures}
    counts = [[scores[r].n[m] for m in measures] for r in runs]
    if len(runs) > 1 and max(map(len, runs)) + sum(max(len(m), 6) + 2 for m in measures) + 10 <= width:
        table = plain_table(["run", *measures, "n"])
        for r, n in zip(runs, counts, strict=True):
            table.add_row(cell(r), *(cells[r, m] for m in measures), _counts(n))
        return table
    table = plain_table(["measure", *runs, "n"])
    for i, m in enumerate(measures):
        table.add_row(cell(m), *(cells[r, m] for r in runs), _counts([n[i] for n in counts]))
    return table


def _lower(scores: Mapping[str, Scores], measure: str) -> bool:
    return any(measure in one.lower_is_better for one in scores.values())


def best_of(values: Sequence[float], *, lower: bool) -> float:
    """Return the best of several means; NaN values are ignored.

    >>> best_of([0.2, math.nan, 0.1], lower=True), best_of([0.2, 0.1], lower=False)
    (0.1, 0.2)
    """
    known = [value for value in values if not math.isnan(value)]
    return math.nan if not known else min(known) if lower else max(known)


def plain_table(headers: Sequence[str], *, numbers: bool = True) -> Table:
    """Build an empty table without borders.

    The first column is for names. With `numbers`, the others are right-aligned.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headers))
    for i, header in enumerate(headers):
        table.add_column(cell(header), justify="right" if i and numbers else "left", no_wrap=i == 0, overflow="fold")
    return table


def _counts(counts: list[int]) -> Text:
    return Text(str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}", style="dim")


def _cell(scores: Scores, measure: str, best: float, *, many: bool) -> Text:
    value = scores.means[measure]
    leads = many and value == best and not measure.startswith("num_")
    return Text(shown(value, measure), style="bold" if leads else "")


def query_table(scores: Mapping[str, Scores], width: int) -> Table:
    """Build a table with one row per run and query.

    If that does not fit the width, it has one row per score.
    """
    first = next(iter(scores.values()))
    several = len(scores) > 1
    longest = max([len(q) for q in first.queries]) + (max(map(len, scores)) + 2 if several else 0)
    if longest + sum(max(len(m), 6) + 2 for m in first.measures) > width:
        table = plain_table(["query", *(["run"] if several else []), "measure", "value"])
        for name, one in scores.items():
            for m in one.measures:
                for query, value in zip(one.queries, one.values[m].tolist(), strict=True):
                    table.add_row(cell(query), *([cell(name)] if several else []), cell(m), shown(value, m))
        return table
    table = plain_table(["query", *(["run"] if several else []), *first.measures])
    for name, one in scores.items():
        for i, query in enumerate(one.queries):
            lead = [cell(query), *([cell(name)] if several else [])]
            table.add_row(*lead, *(shown(float(one.values[m][i]), m) for m in one.measures))
    return table


def as_json(scores: Mapping[str, Scores], *, per_query: bool) -> str:
    """Render scores as JSON; a missing mean is null.

    The shape is `{"convention": …, "runs": {run: {measure: {"mean": …, "n": …, "unscored": …}}}}`.
    """
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
    """Render scores as CSV in long form.

    The columns are `run,measure,mean,n,unscored`, or with `per_query` `run,query,measure,value,lower_is_better`. The
    value of an unscored query is empty.
    """
    if per_query:
        long = (
            [name, query, m, number(value), direction(one, m)]
            for name, one in scores.items()
            for m in one.measures
            for query, value in zip(one.queries, one.values[m].tolist(), strict=True)
        )
        return csv_text(["run", "query", "measure", "value", "lower_is_better"], long)
    means = (
        [name, m, number(one.means[m]), str(one.n[m]), str(len(one.unscored[m]))]
        for name, one in scores.items()
        for m in one.measures
    )
    return csv_text(["run", "measure", "mean", "n", "unscored"], means)


def direction(scores: Scores, measure: str) -> str:
    """Format the direction of a measure as in a column `lower_is_better`.

    Return an empty string if it is not stated.
    """
    lower = scores.is_lower_better(measure)
    return "" if lower is None else str(lower).lower()


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render rows as CSV with quotes if necessary.

    A cell that a spreadsheet would run as a formula gets an apostrophe.

    >>> csv_text(["query", "text"], [["1", "a, b"]]).splitlines()
    ['query,text', '1,"a, b"']
    """

    def field(text: str) -> str:
        text = neutralise_cell(text)
        quoted = any(mark in text for mark in ',"\r\n')
        return '"' + text.replace('"', '""') + '"' if quoted else text

    return "".join(",".join(map(field, row)) + "\n" for row in (header, *rows))


def number(value: float | None) -> str:
    """Format a number with all its digits, for machines; empty for None and NaN."""
    return "" if value is None or math.isnan(value) else repr(value)


def p_value(p: float) -> str:
    """Format a p-value with three decimals, small ones as `<0.001`.

    >>> p_value(0.0004), p_value(0.03)
    ('<0.001', '0.030')
    """
    return "-" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def rate(qps: float) -> str:
    """Format queries per second.

    Numbers below 10 have one decimal, and NaN is a dash.

    >>> rate(4133.2), rate(2.51), rate(math.nan)
    ('4,133', '2.5', '-')
    """
    return "-" if math.isnan(qps) else f"{qps:,.0f}" if qps >= 10 else f"{qps:.1f}"


def milliseconds(value: float | None) -> str:
    """Format milliseconds with about three significant digits.

    None and NaN are a dash.

    >>> milliseconds(0.0123), milliseconds(1.5), milliseconds(250.0), milliseconds(None)
    ('0.012', '1.50', '250', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    decimals = 3 - sum(value >= bound for bound in (1, 10, 100))
    return f"{value:.{decimals}f}"


def format_share(share: float) -> str:
    """Format a share as a percentage with three significant digits.

    100% and 0% are shown only if exact.

    >>> format_share(0.0100025), format_share(0.5), format_share(0.99999), format_share(1.0), format_share(0.00012345)
    ('1%', '50%', '>99.9%', '100%', '0.0123%')
    """
    if math.isnan(share):
        return "-"
    return ">99.9%" if 0.9995 <= share < 1 else f"{100 * share:.3g}%"


def fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, goes: Sequence[int]) -> list[int]:
    """Return the columns that fit the width; those in `goes` are dropped one by one."""
    wide = {i: max(len(title), *(len(row[i]) for row in rows)) + 2 for i, title in enumerate(header)}
    for column in goes:
        if sum(wide.values()) - 2 <= width:
            break
        wide.pop(column, None)
    return list(wide)


def cell(text: str, style: str = "") -> Text:
    """Build a one-line cell of a terminal table, without control characters."""
    return Text(one_line(text) if not text.isprintable() else text, style=style)


def shortened(header: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int], width: int) -> list[str]:
    """Shorten the names of the first column so that the other columns fit.

    They are cut in the middle.
    """
    others = sum(max(len(header[i]), *(len(row[i]) for row in rows)) + 2 for i in kept if i)
    room = max(12, width - others)
    return [
        name if len(name) <= room else f"{name[: (room - 1) // 2]}…{name[-((room - 2) // 2) :]}"
        for name in (row[0] for row in rows)
    ]


def plain(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Build a terminal table from header and rows."""
    kept = list(range(len(header)))
    table = plain_table(header)
    for name, row in zip(shortened(header, rows, kept, width), rows, strict=True):
        table.add_row(cell(name), *map(cell, row[1:]))
    return table


class Rows(NamedTuple):
    """A table before it is rendered; `goes` are the columns that a narrow terminal drops, in this order."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    """Whether all columns but the first are numbers; otherwise texts are wrapped."""
    goes: Sequence[int] = ()
    links: Sequence[str] = ()
    """Link of each row's name on an HTML page; empty for none."""


def drawn(part: Rows, width: int) -> tuple[Table, list[str]]:
    """Render a table for a terminal width; also return the columns that did not fit."""
    kept = fitting(part.header, part.rows, width, part.goes)
    table = plain_table([part.header[i] for i in kept], numbers=part.numbers)
    names = shortened(part.header, part.rows, kept, width) if part.numbers else [row[0] for row in part.rows]
    if not part.numbers:
        for column in table.columns:
            column.no_wrap = False
    for name, row in zip(names, part.rows, strict=True):
        table.add_row(cell(name), *(cell(row[i]) for i in kept if i))
    return table, [name for i, name in enumerate(part.header) if i not in kept]


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity by None, since JSON lacks them."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
