"""Report of a lint, as sections, terminal output and CSV."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ragauge.core.findings import Finding, FindingTable, HistogramBin
from ragauge.core.text import one_line
from ragauge.knowledge.lint.results import Lint
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import (
    ChartPanel,
    ChartRows,
    import_altair,
    join_sentence,
    join_with_and,
    log_range,
    log_ticks,
    make_panel,
)
from ragauge.output.numbers import count_noun
from ragauge.output.report import Chart, Report, Section
from ragauge.output.tables import TextTable, format_grid_cells
from ragauge.output.terminal import render_csv_rows, terminal_cell

LENGTH_CHART_HEIGHT_PX = 160
LANGUAGE_BAR_HEIGHT_PX = 22
"""Height of a horizontal bar, in pixels."""
MAX_LANGUAGES_DRAWN = 12
"""Maximum number of languages drawn."""


def build_length_chart(told: Lint) -> Chart | None:
    """Build histograms of characters and, if counted, tokens.

    None if there are no texts.
    """
    panels, said = [], []
    for unit, bars in told.bars.items():
        if not bars:
            continue
        marks = _threshold_marks(told, unit)
        panels.append(_length_panel(unit, bars, marks))
        figures = told.lengths[unit]
        said.append(f"{unit}: half of the texts have {figures['p50']:,.0f} or fewer, the longest {figures['max']:,.0f}")
    if not panels:
        return None
    lines = [name for unit, bars in told.bars.items() for name in _visible_marks(_threshold_marks(told, unit), bars)]
    caption = join_sentence(
        "bars count the documents of a length, on a logarithmic axis",
        f"broken lines: {join_with_and(lines)}" if lines else "",
    )
    return Chart("How long texts are", caption, f"Lengths in {'; '.join(said)}.", panels)


def _threshold_marks(told: Lint, unit: str) -> dict[str, float]:
    if unit == "tokens":
        return {} if told.limit is None else {"the embedder's limit": told.limit}
    return {name: float(told.thresholds[name]) for name in ("tiny", "giant") if told.thresholds.get(name)}


def _axis_range(bars: Sequence[HistogramBin]) -> tuple[float, float]:
    return log_range(float(bars[0].low), float(bars[-1].high))


def _visible_marks(marks: dict[str, float], bars: Sequence[HistogramBin]) -> dict[str, float]:
    """Return the marks within the axis range."""
    low, high = _axis_range(bars) if bars else (1.0, 0.0)
    return {name: value for name, value in marks.items() if low <= value <= high}


def _length_panel(unit: str, bars: Sequence[HistogramBin], marks: dict[str, float]) -> ChartPanel:
    alt = import_altair()
    low, high = _axis_range(bars)
    inside = _visible_marks(marks, bars)
    rows: ChartRows = [{"from": one.low, "to": one.high, "count": one.n} for one in bars if one.n]
    most = max(one.n for one in bars)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X("from:Q", title=unit, scale=scale, axis=alt.Axis(values=log_ticks(low, high), format=",d", grid=False))
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
    return make_panel(f"{unit} of a document", layers, LENGTH_CHART_HEIGHT_PX, wide=False)


def build_language_chart(told: Lint) -> Chart | None:
    """Build the chart of documents by language; None if there is only one."""
    known = list(told.languages.items())[:MAX_LANGUAGES_DRAWN]
    if len(known) < 2:
        return None
    alt = import_altair()
    rows: ChartRows = [{"language": _language_label(one), "documents": count} for one, count in known]
    order = [str(row["language"]) for row in rows]
    y = alt.Y("language:N", title=None, sort=order, axis=alt.Axis(ticks=False))
    x = alt.X("documents:Q", title="documents", axis=alt.Axis(format=",d", grid=False, tickCount=4))
    tips = [alt.Tooltip("language:N"), alt.Tooltip("documents:Q", format=",")]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(color=PALETTE[0], opacity=0.75).encode(x=x, y=y, tooltip=tips)
    said = ", ".join(f"{row['language']} {row['documents']:,}" for row in rows)
    caption = "Bars count documents; those that are too short or too mixed to tell have a bar of their own."
    drawing = make_panel("documents by language", [bars], LANGUAGE_BAR_HEIGHT_PX * len(rows), wide=False)
    return Chart("Languages", caption, f"Documents by language: {said}.", [drawing])


def _language_label(language: str) -> str:
    return "cannot be told" if language == "?" else language


NAME_COLUMN_WIDTH = 22
"""Width of the column of check names, in characters."""
MAX_EXAMPLES_SHOWN = 3
"""Maximum number of examples per problem on a terminal."""
LENGTH_STATISTICS = ("n", "min", "p5", "p50", "mean", "p95", "max", "total")
"""Statistics shown for text lengths."""


def summarise_lint(told: Lint) -> str:
    """Summarise the result in one sentence.

    >>> summarise_lint(Lint("docs", 3, [Finding("docs", "empty", True, 1, "…")], {"orphans": "no judgments"}))
    '1 problem in 3 documents: empty (1). 1 check was not made.'
    """
    found = told.problems
    left = f" {count_noun(len(told.skipped), 'check was', 'checks were')} not made." if told.skipped else ""
    if not found:
        return f"No problem in {count_noun(told.documents, 'document')}.{left}"
    named = ", ".join(f"{one.what} ({one.count:,})" if one.count else one.what for one in found)
    return f"{count_noun(len(found), 'problem')} in {count_noun(told.documents, 'document')}: {named}.{left}"


def build_report(told: Lint) -> Report:
    """Build the report of a lint."""
    about = [told.corpus, count_noun(told.documents, "document")]
    if told.embedder:
        about.append(f"tokens of {told.embedder}" + (f", {told.limit:,} read" if told.limit is not None else ""))
    return Report(
        "lint",
        "Lint",
        about,
        summarise_lint(told),
        [
            *_problem_sections(told),
            *_passed_sections(told),
            *_length_sections(told),
            *_language_sections(told),
            *_skipped_sections(told),
            *_time_sections(told),
        ],
        [],
        told.notes,
        {**told.circumstances, "rules": told.thresholds},
    )


def _problem_sections(told: Lint) -> list[Section]:
    if not told.problems:
        return []
    rows = [[_finding_label(one, told), f"{one.count:,}", one.message, one.effect, one.remedy] for one in told.problems]
    table = TextTable("", ["what", "n", "found", "effect", "do"], rows, numbers=False, goes=(3, 4))
    sheets = [table]
    for one in told.problems:
        if one.grid is not None:
            sheets.append(TextTable(one.what, one.grid.header, _grid_cells(one.grid)))
    examples = [[_finding_label(one, told), text] for one in told.problems for text in one.examples]
    parts = [Section("problems", "Problems", "Problems", rows=sheets)]
    if examples:
        shown = TextTable("Where they stand", ["what", "for example"], examples, numbers=False)
        parts.append(Section("examples", "Examples", "Examples", rows=[shown], long=True))
    return parts


def _grid_cells(grid: FindingTable) -> list[list[str]]:
    """Format the cells of a grid, integers with thousands separators."""
    rows = [[f"{one:,.0f}" if isinstance(one, float) and one.is_integer() else one for one in row] for row in grid.rows]
    return format_grid_cells(FindingTable(grid.header, rows))


def _finding_label(one: Finding, told: Lint) -> str:
    """Return the name of a finding, with its file if that is ambiguous.

    >>> files = [Finding(f"qrels/{name}.tsv", "orphans", False, 0, "…") for name in ("test", "train")]
    >>> _finding_label(files[0], Lint("docs", 3, files)), _finding_label(files[0], Lint("docs", 3, files[:1]))
    ('orphans (test.tsv)', 'orphans')
    """
    several = len({other.subject for other in told.findings if other.what == one.what}) > 1
    return f"{one.what} ({one.subject.rpartition('/')[2]})" if several and one.subject != told.corpus else one.what


def _passed_sections(told: Lint) -> list[Section]:
    rows = [
        [_finding_label(one, told), one.message, "; ".join(one.examples)] for one in told.findings if not one.problem
    ]
    table = TextTable("", ["what", "found", "for example"], rows, numbers=False, goes=(2,))
    return [Section("quiet", "In order, or only to know", "In order", rows=[table])] if rows else []


def _length_sections(told: Lint) -> list[Section]:
    known = {unit: one for unit, one in told.lengths.items() if one.get("n")}
    if not known:
        return []
    rows = [[unit, *(f"{one[name]:,.0f}" for name in LENGTH_STATISTICS)] for unit, one in known.items()]
    text = ""
    if told.lost.get("of"):
        share = told.lost["tokens"] / told.lost["of"]
        text = (
            f"{told.embedder} reads {told.limit or 0:,} tokens of a text: {told.lost['documents']:,} of "
            f"{count_noun(told.documents, 'document')} are cut off, and {told.lost['tokens']:,} of "
            f"{told.lost['of']:,} tokens ({share:.1%}) are lost."
        )
    drawing = build_length_chart(told)
    charts = {"lengths": drawing} if drawing is not None else {}
    table = TextTable("", ["of a document", *LENGTH_STATISTICS], rows, goes=(3, 8, 5, 1))
    return [Section("lengths", "Lengths", "Lengths", text, [table], charts)]


def _language_sections(told: Lint) -> list[Section]:
    if len(told.languages) < 2:
        return []
    rows = [[name, f"{count:,}", f"{count / max(1, told.documents):.1%}"] for name, count in told.languages.items()]
    drawing = build_language_chart(told)
    text = "? is what is too short or too mixed to tell." if "?" in told.languages else ""
    charts = {"languages": drawing} if drawing is not None else {}
    table = TextTable("", ["language", "documents", "share"], rows)
    return [Section("languages", "Languages", "Languages", text, [table], charts)]


def _skipped_sections(told: Lint) -> list[Section]:
    rows = [[name, why] for name, why in told.skipped.items()]
    table = TextTable("", ["check", "why"], rows, numbers=False)
    return [Section("skipped", "Not looked at", "Not looked at", rows=[table])] if rows else []


def _time_sections(told: Lint) -> list[Section]:
    rows = [[name, f"{seconds:.2f}"] for name, seconds in told.seconds.items()]
    table = TextTable("Seconds of each check", ["check", "seconds"], rows)
    return [Section("time", "Time", "Time", rows=[table], long=True)] if rows else []


def render_terminal(told: Lint, *, full: bool = False) -> list[RenderableType]:
    """Render a lint for a terminal: problems, other findings and skipped checks.

    Problems come with examples, effect and remedy. `full` shows all examples and all findings.
    """
    out: list[RenderableType] = [
        terminal_cell(f"Lint: {', '.join(build_report(told).about)}", "bold"),
        terminal_cell(summarise_lint(told)),
        Text(),
    ]
    for one in told.problems:
        out.append(
            _finding_entry(
                ("!", "bold red"), _finding_label(one, told), one, MAX_EXAMPLES_SHOWN if not full else len(one.examples)
            )
        )
    notes = [one for one in told.findings if not one.problem and (one.count or full)]
    clean = list(dict.fromkeys(one.what for one in told.findings if not one.problem and not one.count and not full))
    if told.problems and (notes or clean):
        out.append(Text())
    for one in notes:
        out.append(_finding_entry(("·", "dim"), _finding_label(one, told), one, 1 if not full else len(one.examples)))
    if clean:
        out.append(_entry_line(("·", "dim"), "in order", [Text(", ".join(clean), overflow="fold")]))
    for name, why in told.skipped.items():
        out.append(
            _entry_line(("-", "dim"), name, [Text(f"not looked at: {one_line(why)}", style="dim", overflow="fold")])
        )
    return [*out, Text()]


def _finding_entry(mark: tuple[str, str], name: str, one: Finding, examples: int) -> Table:
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
    return _entry_line(mark, name, text)


def _entry_line(mark: tuple[str, str], name: str, text: Sequence[RenderableType]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(width=NAME_COLUMN_WIDTH, overflow="fold")
    table.add_column(overflow="fold")
    table.add_row(Text(*mark), Text(name), Group(*text))
    return table


def render_csv(told: Lint) -> str:
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
    return render_csv_rows(header, rows)
