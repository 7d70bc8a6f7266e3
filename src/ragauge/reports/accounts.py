"""An account: what came of looking at a knowledge base, as sentences, tables and charts, before it has a form."""

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
from ragauge.reports.tables import Rows, cell, drawn, one_line


class Part(NamedTuple):
    """A part of an account. Charts are drawn on pages only; a table that is `long` is folded there."""

    id: str
    title: str
    short: str
    """The title in a word, for the navigation of a page."""
    text: str = ""
    rows: Sequence[Rows] = ()
    charts: Mapping[str, Drawing] = MappingProxyType({})
    long: bool = False
    """Whether it is for pages and Markdown only: a terminal goes without."""


@dataclass(frozen=True)
class Account:
    """What is told of one result."""

    kind: str
    """`lint`, `gain`, …: also what the ids of its parts begin with."""
    title: str
    about: Sequence[str]
    """The circumstances in a few words each."""
    headline: str
    """The result in one sentence."""
    parts: Sequence[Part] = ()
    more: Sequence[str] = ()
    """What else is to be known before anything is read, a sentence each."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def made(self) -> str:
        """When, where that is known."""
        return str(self.circumstances.get("made") or "")


def apart(accounts: Sequence[Account]) -> list[Account]:
    """The same accounts, of which no two share a kind: the second of a kind is `stress-2`, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for one in accounts:
        seen[one.kind] += 1
        found.append(one if seen[one.kind] == 1 else replace(one, kind=f"{one.kind}-{seen[one.kind]}"))
    return found


def tables(account: Account, width: int) -> tuple[list[RenderableType], list[str]]:
    """Everything for a terminal, and the titles of the columns for which it is too narrow."""
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
    """A page of Markdown; of several accounts one below the other."""
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
                lines += [*folded(rows.title or part.title, table), ""] if part.long else [*told, *table, ""]
        lines += ["## Notes", "", *(f"- {safe(one)}" for one in account.notes), ""] if account.notes else []
        facts = [[name, value] for name, value in told_facts(account.circumstances)]
        lines += [*folded("Circumstances", grid(["", ""], facts, numbers=False)), ""] if facts else []
    return "\n".join(lines)


def told_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Circumstances as names and texts; what is not known is left out.

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
