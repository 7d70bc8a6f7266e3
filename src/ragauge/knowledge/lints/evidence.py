"""Evidence for the corpus checks: documents, judgments and thresholds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ragauge.formats.tolerant import Reading
from ragauge.knowledge.lints.identification import identify
from ragauge.records import Ints
from ragauge.twins import NEAR, same

EXAMPLES = 5
"""Maximum number of examples per finding."""
BATCH = 1024
"""Number of texts whose tokens are counted at a time."""
CUT = 60
"""Maximum number of characters of a text shown."""


class Thresholds(NamedTuple):
    """Thresholds of the corpus checks."""

    tiny: int = 32
    """Texts with fewer characters are tiny."""
    giant: int = 4096
    """Texts with more characters are giant."""
    near: float = NEAR
    """Minimum share of 3-word shingles that near-duplicates have in common."""
    share: float = 0.01
    """Share of the documents from which an otherwise tolerated finding is a problem."""
    languages: tuple[str, ...] = ()
    """Allowed languages; if empty, the most frequent language of the corpus."""


class Judged(NamedTuple):
    """Rows of a judgments file: query, document, grade."""

    source: str
    rows: Sequence[tuple[str, str, float]]


class Tokens(NamedTuple):
    """Token counter with the limit of its model."""

    name: str
    limit: int | None
    """Maximum number of tokens that the model reads; None for no limit."""
    counts: Callable[[Sequence[str]], Sequence[int]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """All data for the corpus checks; expensive values are computed on first use."""

    reading: Reading
    thresholds: Thresholds = field(default_factory=Thresholds)
    judged: Sequence[Judged] = ()
    tokens: Tokens | None = None
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)

    @cached_property
    def lengths(self) -> Ints:
        """Length of each stripped text, in characters."""
        return np.fromiter((len(text.strip()) for text in self.reading.texts), np.int64, len(self.reading))

    @cached_property
    def copies(self) -> tuple[list[list[int]], list[int]]:
        """Groups of documents with the same text, and the documents without text."""
        return same(self.reading.texts)

    @cached_property
    def languages(self) -> list[str]:
        """Language of each document; `?` if unknown."""
        return identify(self.reading.texts, self.progress)

    @cached_property
    def by_language(self) -> dict[str, int]:
        """Number of documents by language, most frequent first."""
        return dict(Counter(self.languages).most_common())

    @cached_property
    def token_counts(self) -> Ints:
        """Number of tokens of each text, regardless of the limit; empty without a counter."""
        if self.tokens is None:
            return np.zeros(0, np.int64)
        found: list[int] = []
        total = len(self.reading)
        for start in range(0, total, BATCH):
            part = self.reading.texts[start : start + BATCH]
            # Lone surrogates cannot be encoded as UTF-8, and libraries fail on them.
            found += self.tokens.counts([t if t.isascii() else t.encode("utf-8", "replace").decode() for t in part])
            if self.progress is not None:
                self.progress(min(start + BATCH, total), total)
        return np.array(found, np.int64)

    def many(self, count: int) -> bool:
        """Return whether a number of documents reaches the share that makes a problem."""
        return count > 0 and count >= self.thresholds.share * len(self.reading)

    def some(self, places: Sequence[int]) -> tuple[str, ...]:
        """Return the first few documents as text, for messages."""
        return tuple(shown(self.reading.called(place)) for place in places[:EXAMPLES])


def part(count: int, total: int) -> str:
    """Format a share as percent; a positive share is never 0%.

    >>> part(1, 3), part(1, 20_000), part(12, 1000)
    ('33%', 'under 0.1%', '1.2%')
    """
    share = count / total
    return "under 0.1%" if 0 < share < 0.0005 else f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def shown(text: str, most: int | None = None) -> str:
    r"""Format a text in one printable line, cut to `most` characters if given.

    >>> shown("one\ntwo"), shown("a\x00b\ud800"), shown("abcdef", 4)
    ('one two', 'a�b�', 'abc…')
    """
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"
