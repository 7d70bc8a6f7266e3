"""HTML pages of one or several reports, their sections, and the Vega script that pages embed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.files.workspace import atomic_write, cache_folder
from ragauge.output.chart_style import PAGE_STYLESHEET
from ragauge.output.numbers import count_noun
from ragauge.output.report import (
    Chart,
    Report,
    provenance_lines,
    split_shared_provenance,
    unique_titles,
    with_unique_ids,
)
from ragauge.output.tables import TextTable


def to_script_json(thing: Any) -> str:
    """Return JSON for a script element, without characters that HTML would interpret."""
    text = json.dumps(thing, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def compress_json(thing: Any) -> str:
    """Return JSON compressed with gzip and encoded in Base64."""
    raw = json.dumps(thing, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = gzip.compress(raw.encode("utf-8", "replace"), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode("ascii")


class Cell(NamedTuple):
    """Table cell with a text, a small text below it, and its marks."""

    text: str
    below: str = ""
    best: bool = False
    stars: str = ""
    about: str = ""
    order: float | None = None
    """Sort key, if it is not the text."""
    link: str = ""
    """Target of the link on the text."""


@dataclass(frozen=True)
class PageTable:
    """Table of a page."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    numbers: bool = True
    sortable: bool = False
    legend: str = ""
    folded: bool = False
    """Whether the table is initially collapsed."""


PAGE_TEMPLATES = files("ragauge.output") / "templates"


class PageSection(NamedTuple):
    """Section of a page with charts and tables."""

    id: str
    title: str
    short: str
    charts: Mapping[str, Chart] = MappingProxyType({})
    grids: Sequence[PageTable] = ()
    text: str = ""
    layout: str = ""


def render_page(
    template: str,
    parts: Mapping[str, Any],
    drawings: Mapping[str, Chart],
    data: Mapping[str, Any] | None = None,
    packed: Mapping[str, str] | None = None,
    *,
    vega: str | None = None,
    own: str = "",
) -> str:
    """Render a page from a template with its parts, charts, data and scripts.

    `own` names a style sheet and a script for this kind of page only. The template escapes its parts. The content
    security policy allows scripts only by hash, so that injected scripts do not run.
    """
    from markupsafe import Markup

    scripts = [vega or vega_script(), _read_template("page.js"), *([_read_template(f"{own}.js")] if own else [])]
    style = _read_template("page.css") + PAGE_STYLESHEET + (_read_template(f"{own}.css") if own else "")
    specs = {f"{name}-{i}": one.spec for name, chart in drawings.items() for i, one in enumerate(chart.panels)}
    blocks = {**(data or {}), "charts": specs}
    text: str = (
        _jinja_environment()
        .get_template(template)
        .render(
            **parts,
            version=version("ragauge"),
            style=Markup(style),  # noqa: S704 - written here, not data
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - likewise
            script_hashes=Markup(" ".join(map(_csp_hash, scripts))),  # noqa: S704 - letters and digits
            data={name: Markup(to_script_json(one)) for name, one in blocks.items()},  # noqa: S704 - escaped for scripts
            packed=packed or {},
        )
    )
    return text


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _read_template(name: str) -> str:
    return (PAGE_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def vega_script() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed.

    It is taken from vl-convert.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("a page with charts", "report") from None
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


@cache
def _jinja_environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("a page", "report") from None
    environment = Environment(
        loader=PackageLoader("ragauge.output"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _mark_code
    return environment


def _mark_code(text: str) -> Any:
    """Escape a text for HTML, and format text between backticks as code.

    >>> str(_mark_code("run `a --b` & <i>"))
    'run <code>a --b</code> &amp; &lt;i&gt;'
    """
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def render_report_page(accounts: Sequence[Report], vega: str | None = None) -> str:
    """Render reports as one HTML page.

    `vega` is the result of `vega_script`, if available.
    """
    accounts = with_unique_ids(accounts)
    one = accounts[0]
    alone = len(accounts) == 1
    middle = [section for account in accounts for section in page_sections(account, headed=not alone)]
    again = PageSection(f"{one.kind}-again", "Circumstances", "Circumstances")
    # One navigation entry per report, or the bar would be wider than the page.
    entries = middle if alone else _navigation_entries(accounts)
    return render_page(
        "account.html",
        {
            "title": one.title if alone else "Knowledge base",
            "kind": one.kind if alone else "report",
            "made": max((account.made for account in accounts), default=""),
            "sections": [*entries, again],
            "about": one.about if alone else [account.title for account in accounts],
            "headline": one.headline if alone else "",
            "more": one.more if alone else [account.headline for account in accounts],
            "chart_sections": middle,
            "again": again.id,
            "circumstances": [
                PageTable(["", ""], provenance_lines(facts), title, numbers=False)
                for title, facts in split_shared_provenance(accounts)
                if facts
            ],
            "notes": list(dict.fromkeys(note for account in accounts for note in account.notes)),
        },
        collect_charts(accounts),
        vega=vega,
    )


def page_sections(account: Report, *, headed: bool) -> Iterator[PageSection]:
    """Yield the sections of a report.

    With `headed`, for a page of several reports, titles are prefixed and the first section has the summary.
    """
    parts = [part for part in account.parts if part.rows or part.text or part.charts]
    for place, part in enumerate(parts):
        text = part.text
        if headed and not place:
            text = " ".join(filter(None, [account.headline, *account.more, text]))
        sheets = [_page_table(rows, part.title, long=part.long) for rows in part.rows]
        title = f"{account.title}: {part.title}" if headed else part.title
        mine = {f"{account.kind}-{name}": one for name, one in part.charts.items()}
        yield PageSection(f"{account.kind}-{part.id}", title, part.short, mine, sheets, text)


def _navigation_entries(accounts: Sequence[Report]) -> list[PageSection]:
    """Return the first section of each report, titled for the navigation."""
    firsts = (next(page_sections(account, headed=True), None) for account in accounts)
    named = zip(firsts, unique_titles(accounts), strict=True)
    return [first._replace(short=title) for first, title in named if first is not None]


def collect_charts(accounts: Sequence[Report]) -> dict[str, Chart]:
    """Collect the charts of all reports by their name on the page."""
    return {
        f"{account.kind}-{name}": one
        for account in accounts
        for part in account.parts
        for name, one in part.charts.items()
    }


def _page_table(rows: TextTable, title: str, *, long: bool) -> PageTable:
    called = "" if rows.title == title else rows.title
    if long and not called:
        called = f"Show {count_noun(len(rows.rows), 'row')}"
    cells: Sequence[Sequence[str | Cell]] = _with_sort_keys(rows) if rows.numbers else rows.rows
    if rows.links:
        named = zip(cells, rows.rows, rows.links, strict=True)
        cells = [[Cell(texts[0], link=link), *row[1:]] for row, texts, link in named]
    return PageTable(rows.header, cells, called, numbers=rows.numbers, sortable=len(rows.rows) > 1, folded=long)


NUMBER_PATTERN = re.compile(r"[•<>]?([+-]?[\d,]*\.?\d+)([kMG%]?)(?: .*)?")
UNIT_FACTORS = {"k": 1e3, "M": 1e6, "G": 1e9}


def _with_sort_keys(rows: TextTable) -> list[list[str | Cell]]:
    """Add sort keys to columns that have only numbers: 9 before 1,472 before 22.7M."""
    found = []
    for row in rows.rows:
        cells: list[str | Cell] = list(row)
        found.append(cells)
    for column in range(1, len(rows.header)):
        read = [NUMBER_PATTERN.fullmatch(row[column]) for row in rows.rows]
        if any(one is None and row[column] not in ("-", "") for one, row in zip(read, rows.rows, strict=True)):
            continue
        for cells, row, one in zip(found, rows.rows, read, strict=True):
            if one is not None:
                value = float(one[1].replace(",", "")) * UNIT_FACTORS.get(one[2], 1.0)
                cells[column] = Cell(row[column], best=row[column].startswith("•"), order=value)
    return found


@cache
def load_vega_script() -> str:
    """Load the Vega script from the cache, or bundle and cache it.

    A cached script is used if it is complete and of the installed version.
    """
    try:
        path = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    except PackageNotFoundError:
        return vega_script()
    kept = _read_cached_script(path)
    if kept is not None:
        return kept
    script = vega_script()
    with suppress(OSError, BadInput), atomic_write(str(path)) as file:  # the cache is optional
        file.write(f"{_script_hash(script)}\n{script}".encode())
    return script


def _read_cached_script(path: Path) -> str | None:
    try:
        told, _, script = path.read_bytes().decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if told == _script_hash(script) else None


def _script_hash(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()
