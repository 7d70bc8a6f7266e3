"""More nouns: what was found when data and runs were looked at, and what it does to the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LEAKS = ("leaking field", "leaking score")
"""Problems that leave nothing to believe: what is right could be known without the query."""
FOLLOWED = "; ranked by it: "
"""In the message of a leaking field, what stands before the runs that go by it."""


class Grid(NamedTuple):
    """A small table; a cell is a text, a number, or None where there is none."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True)
class Finding:
    """One thing to know about the data."""

    subject: str
    """The file or the run."""
    what: str
    """A short name of what was looked for."""
    problem: bool
    """Whether it is something to mend; otherwise it only describes."""
    count: int
    """How many rows, documents or queries it concerns."""
    message: str
    """One sentence."""
    examples: Sequence[str] = field(default=())
    effect: str = ""
    """What it does to the score, in one sentence with figures; empty where that is not known or nothing."""
    grid: Grid | None = None
    """The evidence as a table, where it has more than one figure."""
    remedy: str = ""
    """What to do about it, in the imperative; every problem that an audit finds has one."""


@dataclass(frozen=True, eq=False)
class Audit:
    """All findings of an audit, and the checks that could not be made."""

    findings: Sequence[Finding]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{check: why it was not made}`: what was not looked at is not clean."""
    notes: Sequence[str] = ()
    """What was looked at, and by which convention."""
    runs: Sequence[str] = ()
    """The names of the runs that were looked at."""

    @property
    def problems(self) -> list[Finding]:
        """The findings that are something to mend."""
        return [one for one in self.findings if one.problem]


class Bar(NamedTuple):
    """A bar of a histogram."""

    low: int
    high: int
    """The first value that is not in it; the last bar has its own, too."""
    n: int


@dataclass(frozen=True)
class Lint:
    """What is wrong with a corpus, before anybody pays for its vectors."""

    corpus: str
    documents: int
    findings: Sequence[Finding]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{check: why it was not made}`."""
    lengths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`{"characters": {"n": …, "min": …, "p50": …, …}, "tokens": …}`."""
    bars: Mapping[str, Sequence[Bar]] = field(default_factory=dict)
    """The same as histograms; texts without any length are in no bar."""
    languages: Mapping[str, int] = field(default_factory=dict)
    """`{"en": 4812, …}`: documents by language; `?` where nobody can tell."""
    embedder: str = ""
    limit: int | None = None
    """How many tokens of a text the embedder reads; None for all, and where nobody counted."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """`{"documents": those that are cut off, "tokens": what is lost, "of": all tokens}`, where there is a limit."""
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    """What was too little, too much and too many."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long each check took."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> list[Finding]:
        """The findings that are something to mend."""
        return [one for one in self.findings if one.problem]
