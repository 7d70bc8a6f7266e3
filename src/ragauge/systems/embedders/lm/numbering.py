"""Map the token ids of a tokenizer to rows of a network's token table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ragauge.seams import Tokenizer

MARK = 0
"""Row of the boundary token, before the first token of a text and after the last."""
OTHER = 1
"""Row of all tokens without a row of their own, if not every token id has one."""
WHOLE = 65_536
"""Maximum vocabulary in which every id has a row; of larger ones (characters: a million) only ids seen in training."""

Numbers = NDArray[np.int64]


class Numbering:
    """Tokenizer with the table row of each of its token ids."""

    def __init__(self, tokenizer: Tokenizer, seen: Sequence[int] | None = None) -> None:
        self.tokenizer = tokenizer
        self.seen = None if seen is None else np.asarray(sorted(seen), np.int64)
        """Token ids with a row; None if all have one."""
        self.rows = tokenizer.vocabulary + 1 if self.seen is None else len(self.seen) + 2
        """Number of rows."""

    @classmethod
    def learned(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Numbering:
        """Create the map for a tokenizer from the training texts."""
        if tokenizer.vocabulary <= WHOLE:
            return cls(tokenizer)
        return cls(tokenizer, sorted(set(chain.from_iterable(tokenizer.encode(texts)))))

    def encode(self, texts: Sequence[str]) -> list[Numbers]:
        """Return the rows of each text, without boundary tokens."""
        return [self._rows(one) for one in self.tokenizer.encode(texts)]

    def lost(self, texts: Sequence[str], encoded: Iterable[Numbers]) -> list[bool]:
        """Return which texts cannot be restored from their rows."""
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
