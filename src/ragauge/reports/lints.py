"""Report of a lint, as sections, terminal output and CSV."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ragauge.findings import Finding, Grid, Lint
from ragauge.reports.accounts import Account, Part
from ragauge.reports.audits import cells
from ragauge.reports.charts.lints import languages, lengths
from ragauge.reports.tables import Rows, cell, counted, csv_text, one_line

NAMES = 22
"""Width of the column of check names, in characters."""
SHOWN = 3
"""Maximum number of examples per problem on a terminal."""
FIGURES = ("n", "min", "p5", "p50", "mean", "p95", "max", "total")
"""Statistics shown for text lengths."""


def headline(told: Lint) -> str:
    """Summarise the result in one sentence.

    >>> headline(Lint("docs", 3, [Finding("docs", "empty", True, 1, "…")], {"orphans": "no judgments"}))
    '1 problem in 3 documents: empty (1). 1 check was not made.'
    """
    found = told.problems
    left = f" {counted(len(told.skipped), 'check was', 'checks were')} not made." if told.skipped else ""
    if not found:
        return f"No problem in {counted(told.documents, 'document')}.{left}"
    named = ", ".join(f"{one.what} ({one.count:,})" if one.count else one.what for one in found)
    return f"{counted(len(found), 'problem')} in {counted(told.documents, 'document')}: {named}.{left}"


def account(told: Lint) -> Account:
    """Build the report of a lint."""
    about = [told.corpus, counted(told.documents, "document")]
    if told.embedder:
        about.append(f"tokens of {told.embedder}" + (f", {told.limit:,} read" if told.limit is not None else ""))
    return Account(
        "lint",
        "Lint",
        about,
        headline(told),
        [*_problems(told), *_quiet(told), *_lengths(told), *_languages(told), *_skipped(told), *_time(told)],
        [],
        told.notes,
        {**told.circumstances, "rules": told.thresholds},
    )


def _problems(told: Lint) -> list[Part]:
    if not told.problems:
        return []
    rows = [[_called(one, told), f"{one.count:,}", one.message, one.effect, one.remedy] for one in told.problems]
    table = Rows("", ["what", "n", "found", "effect", "do"], rows, numbers=False, goes=(3, 4))
    sheets = [table]
    for one in told.problems:
        if one.grid is not None:
            sheets.append(Rows(one.what, one.grid.header, _cells(one.grid)))
    examples = [[_called(one, told), text] for one in told.problems for text in one.examples]
    parts = [Part("problems", "Problems", "Problems", rows=sheets)]
    if examples:
        shown = Rows("Where they stand", ["what", "for example"], examples, numbers=False)
        parts.append(Part("examples", "Examples", "Examples", rows=[shown], long=True))
    return parts


def _cells(grid: Grid) -> list[list[str]]:
    """Format the cells of a grid, integers with thousands separators."""
    rows = [[f"{one:,.0f}" if isinstance(one, float) and one.is_integer() else one for one in row] for row in grid.rows]
    return cells(Grid(grid.header, rows))


def _called(one: Finding, told: Lint) -> str:
    """Return the name of a finding, with its file if that is ambiguous.

    >>> files = [Finding(f"qrels/{name}.tsv", "orphans", False, 0, "…") for name in ("test", "train")]
    >>> _called(files[0], Lint("docs", 3, files)), _called(files[0], Lint("docs", 3, files[:1]))
    ('orphans (test.tsv)', 'orphans')
    """
    several = len({other.subject for other in told.findings if other.what == one.what}) > 1
    return f"{one.what} ({one.subject.rpartition('/')[2]})" if several and one.subject != told.corpus else one.what


def _quiet(told: Lint) -> list[Part]:
    rows = [[_called(one, told), one.message, "; ".join(one.examples)] for one in told.findings if not one.problem]
    table = Rows("", ["what", "found", "for example"], rows, numbers=False, goes=(2,))
    return [Part("quiet", "In order, or only to know", "In order", rows=[table])] if rows else []


def _lengths(told: Lint) -> list[Part]:
    known = {unit: one for unit, one in told.lengths.items() if one.get("n")}
    if not known:
        return []
    rows = [[unit, *(f"{one[name]:,.0f}" for name in FIGURES)] for unit, one in known.items()]
    text = ""
    if told.lost.get("of"):
        share = told.lost["tokens"] / told.lost["of"]
        text = (
            f"{told.embedder} reads {told.limit or 0:,} tokens of a text: {told.lost['documents']:,} of "
            f"{counted(told.documents, 'document')} are cut off, and {told.lost['tokens']:,} of "
            f"{told.lost['of']:,} tokens ({share:.1%}) are lost."
        )
    drawing = lengths(told)
    charts = {"lengths": drawing} if drawing is not None else {}
    table = Rows("", ["of a document", *FIGURES], rows, goes=(3, 8, 5, 1))
    return [Part("lengths", "Lengths", "Lengths", text, [table], charts)]


def _languages(told: Lint) -> list[Part]:
    if len(told.languages) < 2:
        return []
    rows = [[name, f"{count:,}", f"{count / max(1, told.documents):.1%}"] for name, count in told.languages.items()]
    drawing = languages(told)
    text = "? is what is too short or too mixed to tell." if "?" in told.languages else ""
    charts = {"languages": drawing} if drawing is not None else {}
    table = Rows("", ["language", "documents", "share"], rows)
    return [Part("languages", "Languages", "Languages", text, [table], charts)]


def _skipped(told: Lint) -> list[Part]:
    rows = [[name, why] for name, why in told.skipped.items()]
    table = Rows("", ["check", "why"], rows, numbers=False)
    return [Part("skipped", "Not looked at", "Not looked at", rows=[table])] if rows else []


def _time(told: Lint) -> list[Part]:
    rows = [[name, f"{seconds:.2f}"] for name, seconds in told.seconds.items()]
    table = Rows("Seconds of each check", ["check", "seconds"], rows)
    return [Part("time", "Time", "Time", rows=[table], long=True)] if rows else []


def rendered(told: Lint, *, full: bool = False) -> list[RenderableType]:
    """Render a lint for a terminal: problems, other findings and skipped checks.

    Problems come with examples, effect and remedy. `full` shows all examples and all findings.
    """
    out: list[RenderableType] = [cell(f"Lint: {', '.join(account(told).about)}", "bold"), cell(headline(told)), Text()]
    for one in told.problems:
        out.append(_entry(("!", "bold red"), _called(one, told), one, SHOWN if not full else len(one.examples)))
    notes = [one for one in told.findings if not one.problem and (one.count or full)]
    clean = list(dict.fromkeys(one.what for one in told.findings if not one.problem and not one.count and not full))
    if told.problems and (notes or clean):
        out.append(Text())
    for one in notes:
        out.append(_entry(("·", "dim"), _called(one, told), one, 1 if not full else len(one.examples)))
    if clean:
        out.append(_line(("·", "dim"), "in order", [Text(", ".join(clean), overflow="fold")]))
    for name, why in told.skipped.items():
        out.append(_line(("-", "dim"), name, [Text(f"not looked at: {one_line(why)}", style="dim", overflow="fold")]))
    return [*out, Text()]


def _entry(mark: tuple[str, str], name: str, one: Finding, examples: int) -> Table:
    text: list[RenderableType] = [Text(one_line(one.message), overflow="fold")]
    more = one.count - examples
    for example in one.examples[:examples]:
        text.append(Padding(Text(one_line(example), style="dim", overflow="fold"), (0, 0, 0, 2)))
    if examples and one.examples and more > 0 and len(one.examples) >= examples and one.problem:
        text.append(Text("  …", style="dim"))
    if one.problem and one.effect:
        text.append(Text(f"effect: {one_line(one.effect)}", style="italic", overflow="fold"))
    if one.remedy:
        text.append(Text(f"do: {one_line(one.remedy)}", overflow="fold"))
    return _line(mark, name, text)


def _line(mark: tuple[str, str], name: str, text: Sequence[RenderableType]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(width=NAMES, overflow="fold")
    table.add_column(overflow="fold")
    table.add_row(Text(*mark), Text(name), Group(*text))
    return table


def csv(told: Lint) -> str:
    """Render one CSV row per finding; examples are separated by ` | `."""
    rows = (
        [
            one.subject,
            one.what,
            str(int(one.problem)),
            str(one.count),
            one.message,
            one.effect,
            one.remedy,
            " | ".join(one.examples),
        ]
        for one in told.findings
    )
    header = ["corpus", "what", "problem", "count", "message", "effect", "remedy", "examples"]
    return csv_text(header, rows)
