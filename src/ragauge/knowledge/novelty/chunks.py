"""Chunks of documents, their vectors, and their similarity to known chunks.

Chunks are stored as positions, so that no text is held more than once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from ragauge.errors import BadInput, MissingExtra
from ragauge.records import Document, Ints
from ragauge.seams import Embedder, Vectors
from ragauge.texts import WORD, words
from ragauge.worths import Chunking

SIZE = 1000
"""Maximum length of a chunk in characters; about 250 tokens of English, within every embedder's limit."""
AT_ONCE = 1024
"""Number of documents split, or chunks embedded, at a time."""
IN_MEMORY = 512 << 20
"""Maximum size of vectors in memory, in bytes; larger arrays are memory-mapped files."""
WINDOW = 50_000
"""Minimum number of characters of a document that are split at a time."""
UNSURE = 2
"""Number of chunks at the end of a window that may differ from those of the whole text."""
LONE = re.compile("[\ud800-\udfff]")
"""Lone surrogates: JSON can hold them, but they are not valid text."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks of documents, in document order."""

    documents: Sequence[Document]
    owner: Ints
    """Index of each chunk's document."""
    start: Ints
    end: Ints
    """Start and end of each chunk in the document's title and text."""
    chunking: Chunking

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def counts(self) -> Ints:
        """Number of chunks of each document."""
        return np.bincount(self.owner, minlength=len(self.documents)).astype(np.int64)

    def text(self, place: int) -> str:
        """Return the text of a chunk."""
        document = self.documents[int(self.owner[place])]
        start, end = int(self.start[place]), int(self.end[place])
        # Slice the text directly: joining title and text for every chunk would be quadratic in long documents.
        lead = len(document.title) + 1 if not document.text.startswith(document.title) else 0
        text = document.text[start - lead : end - lead] if start >= lead else document.whole[start:end]
        return LONE.sub("\ufffd", text)

    def name(self, place: int) -> str:
        """Return the id of a chunk's document."""
        return self.documents[int(self.owner[place])].id


def whole(document: Document) -> str:
    """Return title and text, with lone surrogates replaced by U+FFFD."""
    return LONE.sub("\ufffd", document.whole)


def cut(documents: Sequence[Document], size: int = SIZE, overlap: int = 0) -> Chunks:
    """Split documents into chunks of at most `size` characters.

    Chunks end at paragraphs, sentences or words. White space around chunks and chunks without a word are left out. A
    document without any word has no chunk.

    >>> found = cut([Document("a", "One fish. Two fish."), Document("b", " -"), Document("c", "Red.")], size=10)
    >>> [(found.name(i), found.text(i)) for i in range(len(found))]
    [('a', 'One fish.'), ('a', 'Two fish.'), ('c', 'Red.')]
    """
    if size < 1 or not 0 <= overlap < size:
        raise BadInput(f"chunks of {size} characters that share {overlap}", hint="at least 1, and share fewer")
    try:
        from semantic_text_splitter import TextSplitter
    except ImportError:
        raise MissingExtra("cutting documents into chunks", "knowledge") from None
    splitter = TextSplitter(size, overlap=overlap)
    owner, start, end = [], [], []
    for first in range(0, len(documents), AT_ONCE):
        texts = [whole(one) for one in documents[first : first + AT_ONCE]]
        window = max(WINDOW, 10 * size)
        short = iter(splitter.chunk_all_indices([text for text in texts if len(text) <= window]))
        for place, whole_text in enumerate(texts, first):
            found = next(short) if len(whole_text) <= window else _split_long(splitter, whole_text, window)
            for at, text in found:
                if not (WORD.search(text) or words(text)):  # some symbols are words after normalisation
                    continue
                owner.append(place)
                start.append(at)
                end.append(at + len(text))
    told = Chunking(size, overlap, by=f"semantic-text-splitter {version('semantic-text-splitter')}")
    whose, begins, ends = (np.array(one, np.int64) for one in (owner, start, end))
    return Chunks(documents, whose, begins, ends, told)


def _split_long(splitter: Any, text: str, window: int) -> list[tuple[int, str]]:
    """Split a long text in windows.

    The splitter takes quadratic time for a text without paragraphs. The last chunks of a window are split again with
    the text that follows, so that the chunks equal those of the whole text.
    """
    found: list[tuple[int, str]] = []
    start = 0
    while True:
        part = [(start + at, chunk) for at, chunk in splitter.chunk_indices(text[start : start + window])]
        if start + window >= len(text):
            return found + part
        if len(part) <= UNSURE:  # little but white space
            found, start = found + part, start + window
        else:
            found, start = found + part[:-UNSURE], part[-UNSURE][0]


def embedded(chunks: Chunks, embedder: Embedder, progress: Progress | None = None) -> Vectors:
    """Embed each chunk in batches; large results are memory-mapped."""
    return embed(chunks.text, len(chunks), embedder, progress)


def embed(text: Callable[[int], str], n: int, embedder: Embedder, progress: Progress | None = None) -> Vectors:
    """Embed `n` texts in batches, given a function from index to text.

    BadInput is raised for vectors of a wrong shape or with values that are not finite.
    """
    found: Any = None
    for first in range(0, n, AT_ONCE):
        part = np.asarray(embedder.embed([text(i) for i in range(first, min(first + AT_ONCE, n))]), np.float32)
        if part.ndim != 2 or len(part) != min(AT_ONCE, n - first):
            raise BadInput(f"the embedder `{embedder.name}` gave an array of {part.shape} for {n - first} texts")
        if not np.isfinite(part).all():
            raise BadInput(f"the embedder `{embedder.name}` gave a vector that is not finite")
        if found is None:
            found = _room(n, part.shape[1])
        if part.shape[1] != found.shape[1]:
            raise BadInput(f"the embedder `{embedder.name}` gives vectors of {found.shape[1]} and {part.shape[1]}")
        found[first : first + len(part)] = part
        if progress is not None:
            progress(first + len(part), n)
    return np.zeros((0, 0), np.float32) if found is None else found


def _room(rows: int, columns: int) -> Vectors:
    if rows * columns * 4 <= IN_MEMORY:
        return np.empty((rows, columns), np.float32)
    # An unnamed file is deleted with the array, also after a crash.
    with TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=(rows, columns))
