"""Format-independent report of a result: sections of texts, tables, charts and explorers. It imports no renderer.

A capability builds a `Report` from its result in its `report.py`; the modules next to this one render it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.findings import Finding
from ragauge.core.text import ZERO_WIDTH_JOINERS, one_line
from ragauge.output.tables import Table

if TYPE_CHECKING:
    import polars as pl

    from ragauge.output.charts import ChartPanel

ALL_FORMATS = frozenset({"terminal", "markdown", "html", "latex"})
"""Formats that render sections; LaTeX only their tables. CSV has one table of a result (`ResultReporter.tables`)."""
FILES_ONLY = ALL_FORMATS - {"terminal"}
PAGE_ONLY = frozenset({"html"})


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
    """Total width in pixels as a file."""


ChartDrawer = Callable[[], Mapping[str, Chart]]
"""Function that draws charts by name. Only renderers that show charts call it, because drawing needs a library."""


def select_charts(draw: ChartDrawer, *names: str) -> ChartDrawer:
    """Return a function that draws the named charts only, if they exist."""
    return lambda: {name: chart for name, chart in draw().items() if name in names}


class Charts(NamedTuple):
    """Charts that are drawn when a renderer shows them."""

    draw: ChartDrawer
    in_pairs: bool = False
    """Whether two charts share a row on a wide page."""


class Paragraph(NamedTuple):
    """A paragraph; text between backticks is code."""

    text: str
    warning: bool = False


class Facts(NamedTuple):
    """Names and texts."""

    facts: Mapping[str, str]
    title: str = ""


class Card(NamedTuple):
    """One answer of the summary: a question, the answer, and its evidence."""

    title: str
    value: str
    details: Sequence[str] = ()
    tone: Literal["", "good", "bad", "doubtful"] = ""
    target: str = ""
    """Section with the details; empty for none."""


class Cards(NamedTuple):
    """Cards next to each other."""

    cards: Sequence[Card]


class Findings(NamedTuple):
    """Findings: problems with effect and remedy, then other results, then skipped checks."""

    findings: Sequence[Finding]
    skipped: Mapping[str, str] = EMPTY_MAPPING
    """`{check: reason}` of checks that were not run."""
    max_examples: int = 3


class Code(NamedTuple):
    """Preformatted text, such as a manifest."""

    text: str
    title: str = ""


class Explorer(NamedTuple):
    """List of queries or samples to search, filter and open. Only a page shows it."""

    kind: Literal["rankings", "verdicts"]
    settings: Mapping[str, Any]
    """`noun`, `plural`, `measures` and `lower_is_better` (a flag per measure). Rankings: also `systems`, the indices
    `system` and `baseline` of the first choice, and `unavailable`, the text for a query whose rankings are left out."""
    payloads: Callable[[], Mapping[str, Any]]
    """Data by name, compressed into the page. `values` is read at first (`ids`, then a column per measure); the other
    one, `rankings` or `details`, when a row is opened."""
    about: str = ""


Block = Paragraph | Table | Charts | Facts | Cards | Findings | Code | Explorer


class Section(NamedTuple):
    """A section of a report."""

    id: str
    title: str
    blocks: Sequence[Block]
    short: str = ""
    """Short title for the navigation of a page; empty to leave the section out of it."""
    formats: frozenset[str] = ALL_FORMATS
    layout: Literal["", "split"] = ""
    """`split` puts the second block next to the first one on a wide page."""


@dataclass(frozen=True)
class Report:
    """Report of one result."""

    kind: str
    """`audit`, `gain`, …; also the prefix of the ids of its sections."""
    title: str
    summary: str
    """The result in one sentence."""
    sections: Sequence[Section] = ()
    subject: Sequence[str] = ()
    """What was evaluated, in a few words each."""
    details: Sequence[str] = ()
    """Further sentences of the summary."""
    cards: Sequence[Card] = ()
    notes: Sequence[str] = ()
    """Why numbers are unreliable, then how they were computed, then what to run next."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    joined: Sequence[Report] = ()
    """Reports of other results on the same page, after the sections of this one."""

    @property
    def created(self) -> str:
        """Date of the result; empty if unknown."""
        return str(self.provenance.get("made") or "")

    def select_sections(self, format_name: str) -> list[Section]:
        """Return the sections that a format shows, without blocks that are empty in it."""
        return [section for section in self.sections if format_name in section.formats and section.blocks]


class TableBuilder(NamedTuple):
    """A table of a result that can be written as CSV."""

    about: str
    build: Callable[[Any], Table]


@dataclass(frozen=True)
class ResultReporter:
    """How results of one type are reported. Every `report.py` defines one, and the result class names it."""

    build_report: Callable[[Any], Report]
    tables: Mapping[str, TableBuilder]
    """Tables for CSV by the name of their format; the first is `csv`."""
    build_comparison: Callable[[Sequence[Any]], Report] | None = None
    """Builder of a report that compares several results of this type."""

    def render_fragment(self, result: Any) -> str:
        """Render the report of a result as a fragment of HTML for a notebook."""
        from ragauge.output.html_tables import render_fragment

        return render_fragment(self.build_report(result))

    def build_frame(self, result: Any) -> pl.DataFrame:
        """Convert the first table of a result to a polars frame."""
        return next(iter(self.tables.values())).build(result).to_polars()


def flatten_reports(reports: Sequence[Report]) -> list[Report]:
    """Return reports, each followed by those that are joined to it."""
    return [part for report in reports for part in (replace(report, joined=()), *flatten_reports(report.joined))]


def collect_charts(reports: Sequence[Report]) -> dict[str, Chart]:
    """Draw the charts of all reports, by the name that they have on a page."""
    return {
        f"{report.kind}-{name}": chart
        for report in flatten_reports(reports)
        for section in report.sections
        for block in section.blocks
        if isinstance(block, Charts)
        for name, chart in block.draw().items()
    }


def with_unique_kinds(reports: Sequence[Report]) -> list[Report]:
    """Number the kinds of reports that share one, so that ids on a page are unique: `stress`, `stress-2`."""
    counts: Counter[str] = Counter()
    numbered = []
    for report in reports:
        counts[report.kind] += 1
        kind = report.kind if counts[report.kind] == 1 else f"{report.kind}-{counts[report.kind]}"
        numbered.append(replace(report, kind=kind))
    return numbered


def unique_titles(reports: Sequence[Report]) -> list[str]:
    """Return the titles of reports; duplicates are followed by their subject.

    >>> gain = Report("gain", "Gain", "")
    >>> unique_titles([*(Report("novelty", "Novelty", "", subject=[name]) for name in "ab"), gain])
    ['Novelty: a', 'Novelty: b', 'Gain']
    """
    counts = Counter(report.title for report in reports)
    return [
        f"{report.title}: {report.subject[0]}" if counts[report.title] > 1 and report.subject else report.title
        for report in reports
    ]


def clean_texts(value: Any) -> Any:
    """Replace characters that a terminal would act on in all texts of a report or a part of it.

    Line breaks stay, because error messages have some.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        return "".join(c if c.isprintable() or c in f"\n\t{ZERO_WIDTH_JOINERS}" else "\ufffd" for c in value)
    if isinstance(value, Mapping):
        return {clean_texts(name): clean_texts(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(clean_texts, value))
    if isinstance(value, list | tuple):
        return list(map(clean_texts, value))
    if isinstance(value, Report | Table | Finding):
        return replace(value, **{field.name: clean_texts(getattr(value, field.name)) for field in fields(value)})
    return value


def split_shared_provenance(reports: Sequence[Report]) -> list[tuple[str, dict[str, Any]]]:
    """Split the provenance of reports into shared and individual values; reports without any are left out.

    >>> one, other = (Report(name, name, "", provenance={"python": "3.13", "seed": name}) for name in "ab")
    >>> split_shared_provenance([one, other])
    [('All reports', {'python': '3.13'}), ('a', {'seed': 'a'}), ('b', {'seed': 'b'})]
    >>> split_shared_provenance([one])
    [('', {'python': '3.13', 'seed': 'a'})]
    """
    reports = [report for report in reports if report.provenance]
    if len(reports) < 2:
        return [("", dict(report.provenance)) for report in reports]
    first_facts, *other_facts = (report.provenance for report in reports)
    shared = {k: v for k, v in first_facts.items() if all(k in facts and facts[k] == v for facts in other_facts)}
    individual = [{k: v for k, v in report.provenance.items() if k not in shared} for report in reports]
    return [("All reports", shared), *zip(unique_titles(reports), individual, strict=True)]


def format_provenance(facts: Mapping[str, Any]) -> dict[str, str]:
    """Format provenance as names and texts; missing values are left out.

    >>> format_provenance({"seed": 3, "machine": {"cores": 2, "memory": None}, "folder": None})
    {'seed': '3', 'machine': 'cores 2'}
    """
    return {str(name).replace("_", " "): text for name, value in facts.items() if (text := _format_fact(value))}


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, fact in value.items() if (text := _format_fact(fact)))
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_format_fact, value)))
    return "" if value is None else one_line(str(value))
