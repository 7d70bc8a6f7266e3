"""Novelty of documents that decreases as similar documents are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ragauge.knowledge.novelty.chunks import Chunks
from ragauge.knowledge.novelty.compare import least, means, novelties, raised
from ragauge.records import Document, Floats
from ragauge.seams import Vectors
from ragauge.texts import shingles


class ByChunks:
    """Novelty by the similarity of chunks to the nearest known or taken chunk."""

    def __init__(self, chunks: Chunks, vectors: Vectors, highest: Floats, definition: str) -> None:
        self._ids = [one.id for one in chunks.documents]
        self._owner = chunks.owner
        self._vectors = vectors
        self._highest = highest
        self._definition = least if definition == "least" else means

    def now(self) -> Mapping[str, float]:
        """Return the current novelty of each document."""
        found = self._definition(novelties(self._highest), self._owner, len(self._ids))
        return dict(zip(self._ids, found.tolist(), strict=True))

    def take(self, doc: str) -> None:
        """Add a document to those that are known."""
        mine = self._vectors[self._owner == self._ids.index(doc)]
        if len(mine):
            self._highest = raised(self._highest, self._vectors, mine)


class ByWords:
    """Novelty by the share of 3-word shingles that are not yet known.

    >>> fading = ByWords([Document("a", "to be or not"), Document("b", "be or not")], [])
    >>> fading.take("a")
    >>> dict(fading.now())["b"]
    0.0
    """

    def __init__(self, added: Sequence[Document], known: Sequence[Document]) -> None:
        self._all = {one.id: shingles(one.whole) for one in added}
        asked = frozenset().union(*self._all.values()) if self._all else frozenset()
        self._known = {one for document in known for one in shingles(document.whole) if one in asked}

    def now(self) -> Mapping[str, float]:
        """Return the share of each document that is new; NaN if it has no words."""
        return {name: len(mine - self._known) / len(mine) if mine else math.nan for name, mine in self._all.items()}

    def take(self, doc: str) -> None:
        """Add a document to those that are known."""
        self._known |= self._all[doc]
