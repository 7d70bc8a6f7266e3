"""What the checks look at: the documents as they were read, the judgments, and the thresholds."""

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
"""So many are shown."""
BATCH = 1024
"""Texts whose tokens are counted at a time."""
CUT = 60
"""Characters of a text that is shown."""


class Thresholds(NamedTuple):
    """What is too little, too much, and too many."""

    tiny: int = 32
    """A text with fewer characters says next to nothing."""
    giant: int = 4096
    """A text with more characters speaks of more than one thing."""
    near: float = NEAR
    """Near-duplicates share at least this part of their three-word stretches."""
    share: float = 0.01
    """So large a part of the documents makes what a few may have (tiny, giant, another language …) a problem."""
    languages: tuple[str, ...] = ()
    """The languages that documents may be in; where none is named, that of most of them."""


class Judged(NamedTuple):
    """The rows of a file of judgments: query, document, grade."""

    source: str
    rows: Sequence[tuple[str, str, float]]


class Tokens(NamedTuple):
    """Who counts tokens."""

    name: str
    limit: int | None
    """How many of a text are read; None for all."""
    counts: Callable[[Sequence[str]], Sequence[int]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that is known of a corpus; what takes time is found when it is first asked for."""

    reading: Reading
    thresholds: Thresholds = field(default_factory=Thresholds)
    judged: Sequence[Judged] = ()
    tokens: Tokens | None = None
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)

    @cached_property
    def lengths(self) -> Ints:
        """Characters of each text, without the white space around it."""
        return np.fromiter((len(text.strip()) for text in self.reading.texts), np.int64, len(self.reading))

    @cached_property
    def copies(self) -> tuple[list[list[int]], list[int]]:
        """The groups of documents with the same text, and the documents without one."""
        return same(self.reading.texts)

    @cached_property
    def languages(self) -> list[str]:
        """The language of each document, `?` where it cannot be told."""
        return identify(self.reading.texts, self.progress)

    @cached_property
    def by_language(self) -> dict[str, int]:
        """Documents by language, most first."""
        return dict(Counter(self.languages).most_common())

    @cached_property
    def token_counts(self) -> Ints:
        """Tokens of each text, whatever the limit."""
        if self.tokens is None:
            return np.zeros(0, np.int64)
        found: list[int] = []
        total = len(self.reading)
        for start in range(0, total, BATCH):
            part = self.reading.texts[start : start + BATCH]
            # A lone half of a pair cannot be written in UTF-8, and libraries stop at it.
            found += self.tokens.counts([t if t.isascii() else t.encode("utf-8", "replace").decode() for t in part])
            if self.progress is not None:
                self.progress(min(start + BATCH, total), total)
        return np.array(found, np.int64)

    def many(self, count: int) -> bool:
        """Whether so many documents are no exception any more."""
        return count > 0 and count >= self.thresholds.share * len(self.reading)

    def some(self, places: Sequence[int]) -> tuple[str, ...]:
        """The first few documents, for messages."""
        return tuple(shown(self.reading.called(place)) for place in places[:EXAMPLES])


def part(count: int, total: int) -> str:
    """A part in per cent; what is there is never 0%.

    >>> part(1, 3), part(1, 20_000), part(12, 1000)
    ('33%', 'under 0.1%', '1.2%')
    """
    share = count / total
    return "under 0.1%" if 0 < share < 0.0005 else f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def shown(text: str, most: int | None = None) -> str:
    r"""A text from a corpus in one line that can be written anywhere; a longer one is cut.

    >>> shown("one\ntwo"), shown("a\x00b\ud800"), shown("abcdef", 4)
    ('one two', 'a�b�', 'abc…')
    """
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"
