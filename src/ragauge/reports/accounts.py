"""Format-independent reports: sentences, tables and charts of a result, rendered for terminals, Markdown and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from ragauge.records import NOTHING
from ragauge.reports.charts import Drawing
from ragauge.reports.markdown import folded, grid, safe
from ragauge.reports.tables import JOINERS, Rows, cell, counted, drawn, one_line


class Part(NamedTuple):
    """A section of a report. Charts are rendered only in HTML pages; a table of a `long` section is collapsed there."""

    id: str
    title: str
    short: str
    """Short title for the navigation of a page; empty if the section is not in the navigation."""
    text: str = ""
    rows: Sequence[Rows] = ()
    charts: Mapping[str, Drawing] = MappingProxyType({})
    long: bool = False
    """Whether it is left out in terminals."""


@dataclass(frozen=True)
class Account:
    """Report of one result."""

    kind: str
    """`lint`, `gain`, …; also the prefix of the ids of its sections."""
    title: str
    about: Sequence[str]
    """Provenance in a few words each."""
    headline: str
    """Summary in one sentence."""
    parts: Sequence[Part] = ()
    more: Sequence[str] = ()
    """Further sentences of the summary."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def made(self) -> str:
        """Date of the result; empty if unknown."""
        return str(self.circumstances.get("made") or "")


def apart(accounts: Sequence[Account]) -> list[Account]:
    """Prepare reports for one page: unique kinds, no control characters.

    Duplicate kinds are numbered: `stress`, `stress-2`.
    """
    seen: Counter[str] = Counter()
    found = []
    for one in accounts:
        seen[one.kind] += 1
        kind = one.kind if seen[one.kind] == 1 else f"{one.kind}-{seen[one.kind]}"
        parts = [part._replace(text=_text(part.text), rows=[_texts(rows) for rows in part.rows]) for part in one.parts]
        about, more, notes = (list(map(_text, lines)) for lines in (one.about, one.more, one.notes))
        told = replace(one, kind=kind, parts=parts, about=about, more=more, notes=notes)
        found.append(replace(told, title=_text(one.title), headline=_text(one.headline)))
    return found


def _texts(rows: Rows) -> Rows:
    return rows._replace(rows=[list(map(_text, row)) for row in rows.rows])


def _text(text: str) -> str:
    """Replace characters that a terminal would act on.

    Line breaks stay, because error messages have some.
    """
    return "".join(c if c.isprintable() or c in f"\n\t{JOINERS}" else "\ufffd" for c in text)


def titles(accounts: Sequence[Account]) -> list[str]:
    """Return the titles of reports; duplicates are followed by what they are about.

    >>> gain = Account("gain", "Gain", [], "")
    >>> titles([*(Account("lint", "Lint", [name], "") for name in "ab"), gain])
    ['Lint: a', 'Lint: b', 'Gain']
    """
    seen = Counter(one.title for one in accounts)
    return [f"{one.title}: {one.about[0]}" if seen[one.title] > 1 and one.about else one.title for one in accounts]


def shared(accounts: Sequence[Account]) -> list[tuple[str, dict[str, Any]]]:
    """Split the provenance of reports into shared and individual values.

    >>> one, other = (Account(name, name, [], "", circumstances={"python": "3.13", "seed": name}) for name in "ab")
    >>> shared([one, other])
    [('All of them', {'python': '3.13'}), ('a', {'seed': 'a'}), ('b', {'seed': 'b'})]
    >>> shared([one])
    [('', {'python': '3.13', 'seed': 'a'})]
    """
    if len(accounts) == 1:
        return [("", dict(accounts[0].circumstances))]
    first, *others = (one.circumstances for one in accounts)
    same = {k: v for k, v in first.items() if all(k in facts and facts[k] == v for facts in others)}
    rest = [{k: v for k, v in one.circumstances.items() if k not in same} for one in accounts]
    return [("All of them", same), *zip(titles(accounts), rest, strict=True)]


def tables(account: Account, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render a report for a terminal.

    Also return the columns that did not fit its width.
    """
    pieces: list[RenderableType] = [
        cell(f"{account.title}: {', '.join(account.about)}", "bold"),
        cell(account.headline),
        *(cell(one) for one in account.more),
        Text(""),
    ]
    left: dict[str, None] = {}
    for part in account.parts:
        if part.long or not (part.rows or part.text):
            continue
        pieces.append(cell(part.title, "bold"))
        if part.text:
            pieces.append(cell(part.text))
        for rows in part.rows:
            if rows.title and rows.title != part.title:
                pieces.append(cell(rows.title))
            table, without = drawn(rows, width)
            left.update(dict.fromkeys(without))
            pieces.append(table)
        pieces.append(Text(""))
    return pieces, list(left)


def markdown(accounts: Sequence[Account]) -> str:
    """Render reports as one Markdown document."""
    lines: list[str] = []
    for account in accounts:
        lines += [f"# {safe(account.title)}", "", safe(account.headline), ""]
        lines += [*(f"- {safe(one)}" for one in account.more), ""] if account.more else []
        lines += [safe(f"{', '.join(account.about)}."), ""]
        for part in account.parts:
            if not (part.rows or part.text):
                continue
            lines += [f"## {safe(part.title)}", ""] + ([safe(part.text), ""] if part.text else [])
            for rows in part.rows:
                told = [safe(f"{rows.title}:"), ""] if rows.title and rows.title != part.title else []
                table = grid(rows.header, rows.rows, numbers=rows.numbers)
                called = rows.title if rows.title != part.title else ""
                name = called or f"Show {counted(len(rows.rows), 'row')}"
                lines += [*folded(name, table), ""] if part.long else [*told, *table, ""]
        lines += ["## Notes", "", *(f"- {safe(one)}" for one in account.notes), ""] if account.notes else []
        facts = [[name, value] for name, value in told_facts(account.circumstances)]
        lines += [*folded("Circumstances", grid(["", ""], facts, numbers=False)), ""] if facts else []
    return "\n".join(lines)


def told_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format provenance as names and texts; missing values are left out.

    >>> told_facts({"seed": 3, "machine": {"cores": 2, "memory": None}, "folder": None})
    [('seed', '3'), ('machine', 'cores 2')]
    """
    return [(str(name).replace("_", " "), text) for name, value in facts.items() if (text := _told(value))]


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text}" for key, one in value.items() if (text := _told(one)))
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_told, value)))
    return "" if value is None else one_line(str(value))
