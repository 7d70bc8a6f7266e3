"""Report of a lint, as sections, terminal output and CSV."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ragauge.core.findings import Bar, Finding, Grid
from ragauge.core.text import one_line
from ragauge.knowledge.lint.results import Lint
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartRows, Panel, altair, listed, panel, powers, sentence, ticked
from ragauge.output.numbers import count_noun
from ragauge.output.report import Account, Drawing, Part
from ragauge.output.tables import Rows, cells
from ragauge.output.terminal import cell, csv_text

HEIGHT = 160
ROW = 22
"""Height of a horizontal bar, in pixels."""
MOST = 12
"""Maximum number of languages drawn."""


def lengths(told: Lint) -> Drawing | None:
    """Build histograms of characters and, if counted, tokens.

    None if there are no texts.
    """
    panels, said = [], []
    for unit, bars in told.bars.items():
        if not bars:
            continue
        marks = _marks(told, unit)
        panels.append(_panel(unit, bars, marks))
        figures = told.lengths[unit]
        said.append(f"{unit}: half of the texts have {figures['p50']:,.0f} or fewer, the longest {figures['max']:,.0f}")
    if not panels:
        return None
    lines = [name for unit, bars in told.bars.items() for name in _inside(_marks(told, unit), bars)]
    caption = sentence(
        "bars count the documents of a length, on a logarithmic axis",
        f"broken lines: {listed(lines)}" if lines else "",
    )
    return Drawing("How long texts are", caption, f"Lengths in {'; '.join(said)}.", panels)


def _marks(told: Lint, unit: str) -> dict[str, float]:
    if unit == "tokens":
        return {} if told.limit is None else {"the embedder's limit": told.limit}
    return {name: float(told.thresholds[name]) for name in ("tiny", "giant") if told.thresholds.get(name)}


def _ends(bars: Sequence[Bar]) -> tuple[float, float]:
    return ticked(float(bars[0].low), float(bars[-1].high))


def _inside(marks: dict[str, float], bars: Sequence[Bar]) -> dict[str, float]:
    """Return the marks within the axis range."""
    low, high = _ends(bars) if bars else (1.0, 0.0)
    return {name: value for name, value in marks.items() if low <= value <= high}


def _panel(unit: str, bars: Sequence[Bar], marks: dict[str, float]) -> Panel:
    alt = altair()
    low, high = _ends(bars)
    inside = _inside(marks, bars)
    rows: ChartRows = [{"from": one.low, "to": one.high, "count": one.n} for one in bars if one.n]
    most = max(one.n for one in bars)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X("from:Q", title=unit, scale=scale, axis=alt.Axis(values=powers(low, high), format=",d", grid=False))
    tall = alt.Axis(values=sorted({0, round(most / 2), most}), format=",d")
    y = alt.Y("count:Q", title="documents", axis=tall, scale=alt.Scale(domain=[0, most], nice=False), stack=None)
    tips = [
        alt.Tooltip("from:Q", title="from", format=","),
        alt.Tooltip("to:Q", title="below", format=","),
        alt.Tooltip("count:Q", title="documents", format=","),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_rect(color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1).encode(
            x=x, x2="to:Q", y=y, y2=alt.datum(0), tooltip=tips
        )
    ]
    if inside:
        at = alt.Chart(alt.Data(values=[{"at": value, "name": name} for name, value in inside.items()]))
        tip = [alt.Tooltip("name:N", title="line"), alt.Tooltip("at:Q", title=unit, format=",")]
        layers.append(
            at.mark_rule(style="guide", strokeWidth=2, strokeDash=[4, 3]).encode(
                x=alt.X("at:Q", title=unit), tooltip=tip
            )
        )
    return panel(f"{unit} of a document", layers, HEIGHT, wide=False)


def languages(told: Lint) -> Drawing | None:
    """Build the chart of documents by language; None if there is only one."""
    known = list(told.languages.items())[:MOST]
    if len(known) < 2:
        return None
    alt = altair()
    rows: ChartRows = [{"language": _name(one), "documents": count} for one, count in known]
    order = [str(row["language"]) for row in rows]
    y = alt.Y("language:N", title=None, sort=order, axis=alt.Axis(ticks=False))
    x = alt.X("documents:Q", title="documents", axis=alt.Axis(format=",d", grid=False, tickCount=4))
    tips = [alt.Tooltip("language:N"), alt.Tooltip("documents:Q", format=",")]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(color=PALETTE[0], opacity=0.75).encode(x=x, y=y, tooltip=tips)
    said = ", ".join(f"{row['language']} {row['documents']:,}" for row in rows)
    caption = "Bars count documents; those that are too short or too mixed to tell have a bar of their own."
    drawing = panel("documents by language", [bars], ROW * len(rows), wide=False)
    return Drawing("Languages", caption, f"Documents by language: {said}.", [drawing])


def _name(language: str) -> str:
    return "cannot be told" if language == "?" else language


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
    left = f" {count_noun(len(told.skipped), 'check was', 'checks were')} not made." if told.skipped else ""
    if not found:
        return f"No problem in {count_noun(told.documents, 'document')}.{left}"
    named = ", ".join(f"{one.what} ({one.count:,})" if one.count else one.what for one in found)
    return f"{count_noun(len(found), 'problem')} in {count_noun(told.documents, 'document')}: {named}.{left}"


def account(told: Lint) -> Account:
    """Build the report of a lint."""
    about = [told.corpus, count_noun(told.documents, "document")]
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
            f"{count_noun(told.documents, 'document')} are cut off, and {told.lost['tokens']:,} of "
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
