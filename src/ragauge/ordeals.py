"""The nouns of a stress test: what a store was put through, what it gave back, and how it broke if it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.records import NOTHING


class Harm(NamedTuple):
    """One document that did not come back as it went in."""

    id: str
    what: str
    """`lost`, `changed`, `swapped` (it has the text of another), `stale` (the one that was replaced), `twice`,
    `unknown` (nobody put it in), `unlisted`."""
    where: str = ""
    """What differs: the field, and the first byte."""
    place: int | None = None
    """Which of the documents it is, from 1; None for one that nobody put in."""


@dataclass(frozen=True)
class ReadBack:
    """What came of reading every document again."""

    when: str
    """`at once`, `reopened`, `kill 1 in the put of document 1,201`, `replaced`, …"""
    expected: int
    """How many the store had promised to keep."""
    whole: int
    """How many of them came back byte for byte."""
    harms: Sequence[Harm] = ()
    """The others, the first so many."""
    harmed: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """How many of each kind."""
    beyond: int = 0
    """Documents that were not promised yet and came back whole nevertheless."""
    keeps: Sequence[str] = ()
    """What of a document the store keeps, and what was therefore compared."""
    seconds: float = float("nan")

    @property
    def sound(self) -> bool:
        """Whether everything came back, and nothing else."""
        return self.whole == self.expected and not any(self.harmed.values())


class Timing(NamedTuple):
    """How long something took: in milliseconds each time, and in seconds in all."""

    n: int
    seconds: float
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float


class Pace(NamedTuple):
    """How long putting took when so many documents were there."""

    documents: int
    milliseconds: float
    """Of a document: the median of a stretch."""


@dataclass(frozen=True)
class Broken:
    """How a store broke: its own words, how far it got, and the least that breaks it."""

    way: str
    """How documents were put in: `one by one`, `in batches`."""
    stage: str
    """What it was doing: `putting`, `committing`, `reading back`, `searching`, `reopening`, `replacing`, …"""
    error: str
    """Verbatim, or what was found where it said nothing."""
    silent: bool
    """Whether it raised no error itself."""
    after: int
    """So many documents had been put in."""
    document: str = ""
    """The document at hand, or the first and the last of a batch."""
    prefix: int | None = None
    """The shortest prefix of the documents that still breaks it; None where none was looked for or found."""
    tried: Sequence[tuple[int, bool]] = ()
    """Prefixes that were tried, in this order, and whether they broke it in the same way."""
    steady: bool | None = None
    """Whether the prefix breaks it every time that it was tried."""
    doubt: str = ""
    """Why there is no prefix, or why it may not be the shortest."""
    reproduced: bool | None = None
    """Whether it broke again in a new store; None if that was not tried."""
    documents_lost: bool = False
    """Whether documents were missing or altered, or the store could not be opened again."""
    reproducer: str = ""
    """The folder with the documents and the command."""
    command: str = ""
    """What is typed to see it again."""

    @property
    def is_shortest(self) -> bool:
        """Whether the prefix with one document less was tried and did not break the store."""
        less = -1 if self.prefix is None else self.prefix - 1
        return self.prefix == 0 or any(n == less and not broke for n, broke in self.tried)


@dataclass(frozen=True)
class Way:
    """One way of putting documents in, and what came of it."""

    name: str
    documents: int
    """How many were put in."""
    put: Timing | None = None
    """Of each call, which has one document or a batch of them."""
    commit: Timing | None = None
    search: Timing | None = None
    pace: Sequence[Pace] = ()
    opening: float = float("nan")
    """Seconds to open it again."""
    bytes_on_disk: int | None = None
    read_back: Sequence[ReadBack] = ()
    measures: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    judged: int = 0
    """How many queries the measures are means over."""
    queries: int = 0
    """How many queries were asked."""
    disorder: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Rankings that are wrong in themselves, by what is wrong with them."""
    agreement: float = float("nan")
    """The part of the true nearest neighbours that its rankings have."""
    moved: int | None = None
    """Rankings that differed after it was opened again; None if they were not compared."""
    broken: Broken | None = None
    not_reproduced: Sequence[Broken] = ()
    """Failures without lost or altered documents that did not occur again; they do not count as failures."""

    @property
    def rate(self) -> float:
        """Documents a second, putting and committing together."""
        seconds = sum(one.seconds for one in (self.put, self.commit) if one is not None)
        return self.documents / seconds if seconds > 0 else float("nan")

    def readings(self, beginning: str) -> list[ReadBack]:
        """The times it was read back that are called so."""
        return [one for one in self.read_back if one.when.startswith(beginning)]


@dataclass(frozen=True)
class Ordeal:
    """A store under stress."""

    store: str
    documents: int
    """How many there were to put in."""
    queries: int
    ways: Sequence[Way]
    about: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """What the store says of itself."""
    source: str = ""
    """Where the documents came from, and what was left out."""
    kinds: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """How many documents of each kind."""
    embedder: str = ""
    k: int = 10
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def broken(self) -> Broken | None:
        """How it broke, the first way in which it did."""
        return next((way.broken for way in self.ways if way.broken is not None), None)

    @property
    def read_back(self) -> dict[str, dict[str, int]]:
        """`{way: {when: documents that came back byte for byte}}`."""
        return {way.name: {one.when: one.whole for one in way.read_back} for way in self.ways}

    @property
    def measures(self) -> dict[str, Mapping[str, float]]:
        """`{way: {measure: mean}}`; nothing of a way in which it broke before it was asked."""
        return {way.name: way.measures for way in self.ways}
