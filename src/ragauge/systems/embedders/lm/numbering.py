"""From texts to rows of a network's table: the numbers of a tokenizer, and a mark where texts begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ragauge.seams import Tokenizer

MARK = 0
"""Between texts: whatever comes first has it before it, and whoever says it says that the text is over."""
OTHER = 1
"""Whatever has no row of its own, where not all numbers of a tokenizer have one."""
WHOLE = 65_536
"""Up to so many numbers each has a row; of more (characters: a million) only those that were seen in training."""

Numbers = NDArray[np.int64]


class Numbering:
    """A tokenizer, and the row of each of its numbers."""

    def __init__(self, tokenizer: Tokenizer, seen: Sequence[int] | None = None) -> None:
        self.tokenizer = tokenizer
        self.seen = None if seen is None else np.asarray(sorted(seen), np.int64)
        """Numbers that have a row; None where all have one."""
        self.rows = tokenizer.vocabulary + 1 if self.seen is None else len(self.seen) + 2
        """How many rows there are."""

    @classmethod
    def learned(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Numbering:
        """The numbering for a tokenizer after these texts."""
        if tokenizer.vocabulary <= WHOLE:
            return cls(tokenizer)
        return cls(tokenizer, sorted(set(chain.from_iterable(tokenizer.encode(texts)))))

    def encode(self, texts: Sequence[str]) -> list[Numbers]:
        """The rows of each text, without marks."""
        return [self._rows(one) for one in self.tokenizer.encode(texts)]

    def lost(self, texts: Sequence[str], encoded: Iterable[Numbers]) -> list[bool]:
        """Whether a text cannot be had back from its rows: then they say less than the text does."""
        found = []
        for text, rows, numbers in zip(texts, encoded, self.tokenizer.encode(texts), strict=True):
            gone = self.seen is not None and bool((rows == OTHER).any())
            found.append(gone or self.tokenizer.decode(numbers) != text)
        return found

    def _rows(self, numbers: Sequence[int]) -> Numbers:
        found = np.asarray(numbers, np.int64)
        if self.seen is None:
            return found + 1
        places = np.minimum(np.searchsorted(self.seen, found), max(0, len(self.seen) - 1))
        known = self.seen[places] == found if len(self.seen) else np.zeros(len(found), np.bool_)
        return np.where(known, places + 2, OTHER)
