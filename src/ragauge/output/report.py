"""Format-independent reports: sentences, tables and charts of a result, rendered for terminals, Markdown and files."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.console import RenderableType
from rich.text import Text

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import MissingExtra
from ragauge.core.text import ZERO_WIDTH_JOINERS, one_line
from ragauge.output.chart_style import PRINT_STYLE, VEGA_CONFIG, legend_columns
from ragauge.output.charts import ChartPanel, replace_invalid_xml
from ragauge.output.markdown import details_block, escape_markdown, render_markdown_table
from ragauge.output.numbers import count_noun
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_table, terminal_cell

PANEL_GAP_PX = 24
MIN_PANEL_WIDTH_PX = 230
"""Minimum width in pixels of a panel that shares its row."""
INDEPENDENT_SCALES = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
"""Each panel has its own legend or none. With shared scales, panels with and without a legend would conflict."""


def combine_panels(title: str, alt: str, panels: Sequence[ChartPanel], width: int = 760) -> dict[str, Any]:
    """Combine all panels of a chart into one specification of fixed width.

    It has a title and a white background.
    """
    if len(panels) == 1:
        alone = {**panels[0].spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        alone["layer"] = [_widen_legend(layer, width) for layer in alone["layer"]]
        return {
            **alone,
            "description": replace_invalid_xml(alt),
            "config": _print_config(),
            "title": _title_spec(title, panels[0].title),
        }
    room = _panels_per_row(len(panels), max(1, min(3, width // MIN_PANEL_WIDTH_PX)))
    rows: list[list[ChartPanel]] = []
    for one in panels:
        if one.wide or not rows or rows[-1][0].wide or len(rows[-1]) == room:
            rows.append([one])
        else:
            rows[-1].append(one)
    most = max(map(len, rows))
    drawn = []
    for row in rows:
        views = [_panel_view(one, _plot_width(one, width, 1 if one.wide else most)) for one in row]
        drawn.append(
            {"hconcat": views, "spacing": PANEL_GAP_PX, "resolve": INDEPENDENT_SCALES} if len(views) > 1 else views[0]
        )
    schema = panels[0].spec["$schema"]
    whole = {"vconcat": drawn, "spacing": PANEL_GAP_PX, "title": _title_spec(title), "resolve": INDEPENDENT_SCALES}
    return {"$schema": schema, "description": replace_invalid_xml(alt), "config": _print_config(), **whole}


def _widen_legend(layer: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Give the legend of a layer the full width; on a page it has to fit a phone."""
    encoding = dict(layer.get("encoding", {}))
    for channel in ("color", "shape"):
        legend = (encoding.get(channel) or {}).get("legend")
        if legend and legend.get("values"):
            across = legend_columns(legend["values"], width - 80)
            encoding[channel] = {**encoding[channel], "legend": {**legend, "columns": across}}
    return {**layer, **({"encoding": encoding} if encoding else {})}


def _panels_per_row(many: int, most: int) -> int:
    """Return the number of panels per row that fills rows evenly.

    Four panels are 2 + 2, not 3 + 1.
    """
    return math.ceil(many / math.ceil(many / most))


def _title_spec(title: str, below: str = "") -> dict[str, Any]:
    under = {"subtitle": replace_invalid_xml(below), "subtitlePadding": 5} if below else {}
    return {"text": replace_invalid_xml(title), "fontSize": 14, "offset": 14, **under}


def _plot_width(one: ChartPanel, width: int, columns: int) -> int:
    """Return the plot width in pixels without names and labels at its sides."""
    return int((width - PANEL_GAP_PX * (columns - 1)) / columns - _margin_width(one.spec))


def _margin_width(spec: Mapping[str, Any]) -> float:
    names = [len(name) for layer in spec["layer"] for name in _domain_names(layer.get("encoding", {}).get("y", {}))]
    left = min(110.0, 6.0 * max(names)) if names else 36.0
    right = max((_end_label_width(layer) for layer in spec["layer"]), default=0.0)
    return left + right + 8


def _domain_names(encoding: Mapping[str, Any]) -> list[str]:
    found = (encoding.get("scale") or {}).get("domain", [])
    return [one for one in found if isinstance(one, str)]


def _end_label_width(layer: Mapping[str, Any]) -> float:
    """Return the width in pixels of names at the ends of lines.

    They are to the right of the plot.
    """
    encoding = layer.get("encoding", {})
    if layer["mark"].get("type") != "text" or encoding.get("text", {}).get("field") != "system":
        return 0.0
    return min(110.0, 6.0 * max(len(row["system"]) for row in layer["data"]["values"])) + 9


def _panel_view(one: ChartPanel, width: int) -> dict[str, Any]:
    """Build the view of a panel in a sheet.

    Layer names are left out, since they would be duplicates.
    """
    spec = {key: value for key, value in one.spec.items() if key not in ("$schema", "config", "width")}
    spec["layer"] = [{key: value for key, value in layer.items() if key != "name"} for layer in spec["layer"]]
    return {**spec, "width": width, **({"title": {"text": replace_invalid_xml(one.title)}} if one.title else {})}


def _print_config() -> dict[str, Any]:
    """Return the Vega-Lite settings for files: dark text on white."""
    text = PRINT_STYLE["text"]
    config = {**VEGA_CONFIG, "background": PRINT_STYLE["background"], "font": PRINT_STYLE["font"], "padding": 12}
    for part in ("axis", "legend"):
        config[part] = {**VEGA_CONFIG[part], "labelColor": text}
    config["axis"] = {**config["axis"], "titleColor": text}
    config["title"] = {**VEGA_CONFIG["title"], "color": text, "subtitleColor": text}
    config["style"] = {
        "words": {**VEGA_CONFIG["style"]["words"], "color": text},
        "guide": {"color": text},
        "halo": {
            **VEGA_CONFIG["style"]["halo"],
            "color": PRINT_STYLE["background"],
            "stroke": PRINT_STYLE["background"],
        },
    }
    return config


def _import_vl_convert() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("writing charts as files", "report") from None
    return vl_convert


def render_svg(spec: Mapping[str, Any]) -> str:
    """Render a specification of fixed width as SVG.

    Its description is included for screen readers.
    """
    svg = _import_vl_convert().vegalite_to_svg(dict(spec), allowed_base_urls=[])
    described = escape(str(spec.get("description", "")))
    return re.sub(r"<svg ([^>]*)>", lambda m: f'<svg {m[1]} role="img"><desc>{described}</desc>', svg, count=1)


def render_png(spec: Mapping[str, Any], scale: float = 2) -> bytes:
    """Render a specification of fixed width as PNG, with `scale` pixels per unit."""
    return bytes(_import_vl_convert().vegalite_to_png(dict(spec), scale=scale, allowed_base_urls=[]))


@dataclass(frozen=True)
class Chart:
    """Chart of panels that are arranged in rows, depending on the available width."""

    title: str
    caption: str
    """Text below the chart that explains how to read it."""
    alt: str
    """Alternative text: what the chart shows, with its values."""
    panels: Sequence[ChartPanel]
    width: int = 760

    def sheet(self, width: int | None = None) -> dict[str, Any]:
        """Combine all panels into one specification of a fixed width in pixels, for files."""
        return combine_panels(self.title, self.alt, self.panels, width or self.width)


class Section(NamedTuple):
    """A section of a report. Charts are rendered only in HTML pages; a table of a `long` section is collapsed there."""

    id: str
    title: str
    short: str
    """Short title for the navigation of a page; empty if the section is not in the navigation."""
    text: str = ""
    rows: Sequence[TextTable] = ()
    charts: Mapping[str, Chart] = MappingProxyType({})
    long: bool = False
    """Whether it is left out in terminals."""


@dataclass(frozen=True)
class Report:
    """Report of one result."""

    kind: str
    """`lint`, `gain`, …; also the prefix of the ids of its sections."""
    title: str
    about: Sequence[str]
    """Provenance in a few words each."""
    headline: str
    """Summary in one sentence."""
    parts: Sequence[Section] = ()
    more: Sequence[str] = ()
    """Further sentences of the summary."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    @property
    def made(self) -> str:
        """Date of the result; empty if unknown."""
        return str(self.circumstances.get("made") or "")


def with_unique_ids(accounts: Sequence[Report]) -> list[Report]:
    """Prepare reports for one page: unique kinds, no control characters.

    Duplicate kinds are numbered: `stress`, `stress-2`.
    """
    seen: Counter[str] = Counter()
    found = []
    for one in accounts:
        seen[one.kind] += 1
        kind = one.kind if seen[one.kind] == 1 else f"{one.kind}-{seen[one.kind]}"
        parts = [
            part._replace(text=_clean_text(part.text), rows=[_clean_table(rows) for rows in part.rows])
            for part in one.parts
        ]
        about, more, notes = (list(map(_clean_text, lines)) for lines in (one.about, one.more, one.notes))
        told = replace(one, kind=kind, parts=parts, about=about, more=more, notes=notes)
        found.append(replace(told, title=_clean_text(one.title), headline=_clean_text(one.headline)))
    return found


def _clean_table(rows: TextTable) -> TextTable:
    return rows._replace(rows=[list(map(_clean_text, row)) for row in rows.rows])


def _clean_text(text: str) -> str:
    """Replace characters that a terminal would act on.

    Line breaks stay, because error messages have some.
    """
    return "".join(c if c.isprintable() or c in f"\n\t{ZERO_WIDTH_JOINERS}" else "\ufffd" for c in text)


def unique_titles(accounts: Sequence[Report]) -> list[str]:
    """Return the titles of reports; duplicates are followed by what they are about.

    >>> gain = Report("gain", "Gain", [], "")
    >>> unique_titles([*(Report("lint", "Lint", [name], "") for name in "ab"), gain])
    ['Lint: a', 'Lint: b', 'Gain']
    """
    seen = Counter(one.title for one in accounts)
    return [f"{one.title}: {one.about[0]}" if seen[one.title] > 1 and one.about else one.title for one in accounts]


def split_shared_provenance(accounts: Sequence[Report]) -> list[tuple[str, dict[str, Any]]]:
    """Split the provenance of reports into shared and individual values.

    >>> one, other = (Report(name, name, [], "", circumstances={"python": "3.13", "seed": name}) for name in "ab")
    >>> split_shared_provenance([one, other])
    [('All of them', {'python': '3.13'}), ('a', {'seed': 'a'}), ('b', {'seed': 'b'})]
    >>> split_shared_provenance([one])
    [('', {'python': '3.13', 'seed': 'a'})]
    """
    if len(accounts) == 1:
        return [("", dict(accounts[0].circumstances))]
    first, *others = (one.circumstances for one in accounts)
    same = {k: v for k, v in first.items() if all(k in facts and facts[k] == v for facts in others)}
    rest = [{k: v for k, v in one.circumstances.items() if k not in same} for one in accounts]
    return [("All of them", same), *zip(unique_titles(accounts), rest, strict=True)]


def render_terminal(account: Report, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render a report for a terminal.

    Also return the columns that did not fit its width.
    """
    pieces: list[RenderableType] = [
        terminal_cell(f"{account.title}: {', '.join(account.about)}", "bold"),
        terminal_cell(account.headline),
        *(terminal_cell(one) for one in account.more),
        Text(""),
    ]
    left: dict[str, None] = {}
    for part in account.parts:
        if part.long or not (part.rows or part.text):
            continue
        pieces.append(terminal_cell(part.title, "bold"))
        if part.text:
            pieces.append(terminal_cell(part.text))
        for rows in part.rows:
            if rows.title and rows.title != part.title:
                pieces.append(terminal_cell(rows.title))
            table, without = render_table(rows, width)
            left.update(dict.fromkeys(without))
            pieces.append(table)
        pieces.append(Text(""))
    return pieces, list(left)


def render_markdown(accounts: Sequence[Report]) -> str:
    """Render reports as one Markdown document."""
    lines: list[str] = []
    for account in accounts:
        lines += [f"# {escape_markdown(account.title)}", "", escape_markdown(account.headline), ""]
        lines += [*(f"- {escape_markdown(one)}" for one in account.more), ""] if account.more else []
        lines += [escape_markdown(f"{', '.join(account.about)}."), ""]
        for part in account.parts:
            if not (part.rows or part.text):
                continue
            lines += [f"## {escape_markdown(part.title)}", ""] + ([escape_markdown(part.text), ""] if part.text else [])
            for rows in part.rows:
                told = [escape_markdown(f"{rows.title}:"), ""] if rows.title and rows.title != part.title else []
                table = render_markdown_table(rows.header, rows.rows, numbers=rows.numbers)
                called = rows.title if rows.title != part.title else ""
                name = called or f"Show {count_noun(len(rows.rows), 'row')}"
                lines += [*details_block(name, table), ""] if part.long else [*told, *table, ""]
        lines += ["## Notes", "", *(f"- {escape_markdown(one)}" for one in account.notes), ""] if account.notes else []
        facts = [[name, value] for name, value in provenance_lines(account.circumstances)]
        lines += (
            [*details_block("Circumstances", render_markdown_table(["", ""], facts, numbers=False)), ""]
            if facts
            else []
        )
    return "\n".join(lines)


def provenance_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format provenance as names and texts; missing values are left out.

    >>> provenance_lines({"seed": 3, "machine": {"cores": 2, "memory": None}, "folder": None})
    [('seed', '3'), ('machine', 'cores 2')]
    """
    return [
        (str(name).replace("_", " "), text)
        for name, value in facts.items()
        if (text := _format_provenance_value(value))
    ]


def _format_provenance_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text}" for key, one in value.items() if (text := _format_provenance_value(one)))
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_format_provenance_value, value)))
    return "" if value is None else one_line(str(value))
