"""Chunks of documents, their vectors, and their similarity to known chunks.

Chunks are stored as positions, so that no text is held more than once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, Incomparable, MissingExtra
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.records import Floats, Ints
from ragauge.core.text import WORD_PATTERN, shingles, split_words
from ragauge.knowledge.novelty.results import ChunkSettings
from ragauge.models.embedders.embedding import CheckedEmbedder
from ragauge.stores.nearest_neighbours import find_nearest

DEFAULT_CHUNK_CHARS = 1000
"""Maximum length of a chunk in characters; about 250 tokens of English, within every embedder's limit."""
CHUNK_BATCH_SIZE = 1024
"""Number of documents split, or chunks embedded, at a time."""
MAX_VECTOR_BYTES_IN_MEMORY = 512 << 20
"""Maximum size of vectors in memory, in bytes; larger arrays are memory-mapped files."""
MIN_WINDOW_CHARS = 50_000
"""Minimum number of characters of a document that are split at a time."""
UNCERTAIN_CHUNKS = 2
"""Number of chunks at the end of a window that may differ from those of the whole text."""
LONE_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
"""Lone surrogates: JSON can hold them, but they are not valid text."""


@dataclass(frozen=True, eq=False)
class DocumentChunks:
    documents: Sequence[Document]
    owner: Ints
    """Index of each chunk's document."""
    start: Ints
    end: Ints
    """Start and end of each chunk in the document's title and text."""
    chunking: ChunkSettings

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def counts(self) -> Ints:
        """Number of chunks of each document."""
        return np.bincount(self.owner, minlength=len(self.documents)).astype(np.int64)

    def text(self, index: int) -> str:
        document = self.documents[int(self.owner[index])]
        start, end = int(self.start[index]), int(self.end[index])
        # Slice the text directly: joining title and text for every chunk would be quadratic in long documents.
        lead = len(document.title) + 1 if not document.text.startswith(document.title) else 0
        text = document.text[start - lead : end - lead] if start >= lead else document.whole[start:end]
        return LONE_SURROGATE_PATTERN.sub("\ufffd", text)

    def name(self, index: int) -> str:
        """Return the id of a chunk's document."""
        return self.documents[int(self.owner[index])].id


def document_text(document: Document) -> str:
    """Return title and text, with lone surrogates replaced by U+FFFD."""
    return LONE_SURROGATE_PATTERN.sub("\ufffd", document.whole)


def split_documents(documents: Sequence[Document], size: int = DEFAULT_CHUNK_CHARS, overlap: int = 0) -> DocumentChunks:
    """Split documents into chunks of at most `size` characters.

    Chunks end at paragraphs, sentences or words. White space around chunks and chunks without a word are left out. A
    document without any word has no chunk.

    >>> found = split_documents([Document("a", "One fish. Two fish."), Document("b", " -"), Document("c", "Red.")],
    ...     size=10)
    >>> [(found.name(i), found.text(i)) for i in range(len(found))]
    [('a', 'One fish.'), ('a', 'Two fish.'), ('c', 'Red.')]
    """
    if size < 1 or not 0 <= overlap < size:
        raise BadInput(
            f"the overlap must be below the size of a chunk, got {overlap} and {size} characters",
            hint="--chunk-size 1000 --chunk-overlap 100",
        )
    try:
        from semantic_text_splitter import TextSplitter
    except ImportError:
        raise MissingExtra("splitting documents into chunks", "knowledge") from None
    splitter = TextSplitter(size, overlap=overlap)
    owner, start, end = [], [], []
    for first in range(0, len(documents), CHUNK_BATCH_SIZE):
        texts = [document_text(document) for document in documents[first : first + CHUNK_BATCH_SIZE]]
        window = max(MIN_WINDOW_CHARS, 10 * size)
        short = iter(splitter.chunk_all_indices([text for text in texts if len(text) <= window]))
        for index, whole_text in enumerate(texts, first):
            pieces = next(short) if len(whole_text) <= window else _split_long(splitter, whole_text, window)
            for at, text in pieces:
                if not (WORD_PATTERN.search(text) or split_words(text)):  # some symbols are words after normalisation
                    continue
                owner.append(index)
                start.append(at)
                end.append(at + len(text))
    settings = ChunkSettings(size, overlap, splitter=f"semantic-text-splitter {version('semantic-text-splitter')}")
    whose, begins, ends = (np.array(documents, np.int64) for documents in (owner, start, end))
    return DocumentChunks(documents, whose, begins, ends, settings)


def _split_long(splitter: Any, text: str, window: int) -> list[tuple[int, str]]:
    """Split a long text in windows.

    The splitter takes quadratic time for a text without paragraphs. The last chunks of a window are split again with
    the text that follows, so that the chunks equal those of the whole text.
    """
    chunks: list[tuple[int, str]] = []
    start = 0
    while True:
        part = [(start + at, chunk) for at, chunk in splitter.chunk_indices(text[start : start + window])]
        if start + window >= len(text):
            return chunks + part
        if len(part) <= UNCERTAIN_CHUNKS:  # little but white space
            chunks, start = chunks + part, start + window
        else:
            chunks, start = chunks + part[:-UNCERTAIN_CHUNKS], part[-UNCERTAIN_CHUNKS][0]


def embed_chunks(chunks: DocumentChunks, embedder: Embedder, progress: ProgressCallback = no_progress) -> Vectors:
    """Embed each chunk in batches; large results are memory-mapped."""
    return embed_in_batches(chunks.text, len(chunks), embedder, progress)


def embed_in_batches(
    text: Callable[[int], str], n: int, embedder: Embedder, progress: ProgressCallback = no_progress
) -> Vectors:
    """Embed `n` texts in batches, given a function from index to text.

    BadInput is raised for vectors of a wrong shape or with values that are not finite.
    """
    vectors: Any = None
    checked = CheckedEmbedder(embedder)
    for first in range(0, n, CHUNK_BATCH_SIZE):
        batch = [text(i) for i in range(first, min(first + CHUNK_BATCH_SIZE, n))]
        batch_vectors = np.asarray(checked.embed(batch), np.float32)
        if not np.isfinite(batch_vectors).all():
            raise BadInput(f"the embedder `{embedder.name}` returned a vector that is not finite")
        if vectors is None:
            vectors = _allocate_vectors(n, batch_vectors.shape[1])
        vectors[first : first + len(batch_vectors)] = batch_vectors
        progress(Progress("embedding chunks", first + len(batch_vectors), n))
    return np.zeros((0, 0), np.float32) if vectors is None else vectors


def _allocate_vectors(rows: int, columns: int) -> Vectors:
    if rows * columns * 4 <= MAX_VECTOR_BYTES_IN_MEMORY:
        return np.empty((rows, columns), np.float32)
    # An unnamed file is deleted with the array, also after a crash.
    with TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=(rows, columns))


MAX_OWN_CHUNKS = 64
"""Maximum number of own chunks up to which more neighbours are searched to skip them."""
COSINE_TOLERANCE = 1e-15
"""Cosine distances below this are rounding errors of equal vectors."""


class NearestChunks(NamedTuple):
    """Nearest known chunks of each chunk, one row per chunk, nearest first."""

    positions: Ints
    similarities: Floats
    """Cosines; NaN for a chunk with a zero vector."""


def nearest_known(
    chunks: Vectors, known: Vectors, m: int = 1, progress: ProgressCallback = no_progress
) -> NearestChunks:
    """Find the `m` known chunks with the highest cosine, or all if there are fewer.

    Candidates are found in single precision and ranked in double precision. Known vectors are read in blocks, so that a
    memory-mapped file need not fit in memory. Incomparable is raised if the dimensions differ.

    >>> near = nearest_known(np.array([[1, 0], [0, 0]], np.float32), np.array([[0, 1], [3, 4]], np.float32))
    >>> near.positions.tolist(), near.similarities.round(6).tolist()
    ([[1], [0]], [[0.6], [nan]])
    """
    if not len(chunks) or not len(known):
        return NearestChunks(np.zeros((len(chunks), 0), np.int64), np.zeros((len(chunks), 0)))
    if chunks.shape[1] != known.shape[1]:
        raise Incomparable(
            f"new vectors of {chunks.shape[1]} dimensions cannot be compared with known ones of {known.shape[1]}",
            hint="embed both with the same model: --embedder NAME",
        )
    places, distances = find_nearest(known, chunks, m, "cosine", progress=progress)
    return NearestChunks(places, _to_similarities(chunks, distances))


def nearest_others(known: Vectors, rows: Ints, own_chunks: list[Ints]) -> Floats:
    """Return the highest cosine of known chunks with a chunk not their `own_chunks`.

    NaN if there is none.

    >>> known = np.array([[1, 0], [1, 0], [3, 4]], np.float32)
    >>> nearest_others(known, np.array([0, 2]), [np.array([0, 1]), np.array([2])]).round(6).tolist()
    [0.6, 0.6]
    """
    similarities = np.full(len(rows), np.nan)
    counts = np.array([len(rows) for rows in own_chunks], np.int64)
    # All own chunks may be the nearest: if they are few, more neighbours than own chunks are searched.
    n_neighbours = np.array([1 << count.bit_length() for count in counts.tolist()], np.int64)
    for k in np.unique(n_neighbours[counts <= MAX_OWN_CHUNKS]):
        selected = np.flatnonzero((n_neighbours == k) & (counts <= MAX_OWN_CHUNKS))
        chunks = np.asarray(known[rows[selected]])
        places, distances = find_nearest(known, chunks, int(k), "cosine")
        near_similarities = _to_similarities(chunks, distances)
        for at, row in enumerate(selected.tolist()):
            others = ~np.isin(places[at], own_chunks[row])
            similarities[row] = near_similarities[at][others][0] if others.any() else np.nan
    # That would be quadratic for large documents, so their chunks are compared with other documents only.
    large: dict[bytes, list[int]] = {}
    for row in np.flatnonzero(counts > MAX_OWN_CHUNKS).tolist():
        large.setdefault(own_chunks[row].tobytes(), []).append(row)
    for group in large.values():
        others = np.setdiff1d(np.arange(len(known)), own_chunks[group[0]])
        if len(others):
            chunks = np.asarray(known[rows[group]])
            _, distances = find_nearest(known, chunks, 1, "cosine", allowed=others)
            similarities[group] = _to_similarities(chunks, distances)[:, 0]
    return similarities


def _to_similarities(chunks: Vectors, distances: NDArray[Any]) -> Floats:
    similarities = np.where(distances < COSINE_TOLERANCE, 1.0, 1 - distances)
    similarities[~np.any(chunks, axis=1)] = np.nan
    return similarities


def chunk_novelties(highest: Floats) -> Floats:
    """Return 1 minus the highest cosine of each chunk, clipped to 0 to 1.

    >>> chunk_novelties(np.array([1.0, 0.25, -0.5, np.nan])).tolist()
    [0.0, 0.75, 1.0, nan]
    """
    novelties: Floats = np.clip(1 - highest, 0, 1)
    return novelties


def document_means(values: Floats, owner: Ints, documents: int) -> Floats:
    """Return the mean over the chunks of each document, ignoring NaN.

    NaN if it has none.

    >>> document_means(np.array([0.25, 0.75, np.nan]), np.array([0, 0, 1]), 3).tolist()
    [0.5, nan, nan]
    """
    has_value = ~np.isnan(values)
    n = np.bincount(owner[has_value], minlength=documents)
    totals = np.bincount(owner[has_value], values[has_value], minlength=documents)
    means = np.full(documents, np.nan)
    np.divide(totals, n, out=means, where=n > 0)
    return means


def document_minimums(values: Floats, owner: Ints, documents: int) -> Floats:
    """Return the minimum over the chunks of each document, ignoring NaN.

    NaN if it has none.

    >>> document_minimums(np.array([0.25, 0.75, np.nan]), np.array([0, 0, 1]), 3).tolist()
    [0.25, nan, nan]
    """
    minimums = np.full(documents, np.inf)
    has_value = ~np.isnan(values)
    np.minimum.at(minimums, owner[has_value], values[has_value])
    minimums[np.isinf(minimums)] = np.nan
    return minimums


KNOWN_BATCH_DOCUMENTS = 512
"""Number of known documents compared at a time."""


class ShingleOverlap(NamedTuple):
    """Share of documents' shingles that are known.

    NaN, and no container, for one without words.
    """

    new_share: Floats
    """Share of its shingles that no known document has."""
    highest_share: Floats
    """Largest share of its shingles in a single known document."""
    container: Ints
    """Index of that document; -1 if no known document has any of them."""


def shingle_overlap(
    added: Sequence[Document],
    known: Sequence[Document],
    sample: Ints,
    text_classes: Ints,
    progress: ProgressCallback = no_progress,
) -> tuple[ShingleOverlap, Floats]:
    """Compute the shingle overlap of added documents with the known ones.

    Also returned is, for a `sample` of known documents (indices), the share of shingles that no other known document
    has. The argument after `sample` has a number per known document, equal for documents with the same text. Such
    documents do not count as others.

    >>> known = [Document("a", "to be or not to be"), Document("b", "not to be sneezed at"), Document("c", "to be or")]
    >>> found, own = shingle_overlap([Document("x", "to be or not")], known, np.array([0, 1, 2]), np.array([0, 1, 2]))
    >>> found.new_share.tolist(), found.highest_share.tolist(), found.container.tolist(), own.round(3).tolist()
    ([0.0], [1.0], [0], [0.5, 0.667, 0.0])
    """
    from scipy.sparse import csr_matrix

    ids: dict[tuple[str, ...], int] = {}

    def build_matrix(
        documents: Iterable[Document], position: Callable[[tuple[str, ...]], int | None], columns: int
    ) -> Any:
        rows = [
            [at for shingle in shingles(document_text(document)) if (at := position(shingle)) is not None]
            for document in documents
        ]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        flat = np.fromiter((at for row in rows for at in row), np.int64, int(starts[-1]))
        return csr_matrix((np.ones(len(flat), np.int32), flat, starts), shape=(len(rows), columns or len(ids)))

    compared = [*added, *(known[i] for i in sample.tolist())]
    shingle_matrix = build_matrix(compared, lambda shingle: ids.setdefault(shingle, len(ids)), 0)
    added_matrix = shingle_matrix[: len(added)]
    sizes = np.diff(shingle_matrix.indptr)
    # Number of distinct texts with a shingle: of documents with the same text only the first counts.
    is_first = np.zeros(len(known), bool)
    is_first[np.unique(text_classes, return_index=True)[1]] = True
    n_texts = np.zeros(len(ids), np.int64)
    best, position = np.zeros(len(added), np.int64), np.full(len(added), -1, np.int64)
    for start in range(0, len(known), KNOWN_BATCH_DOCUMENTS):
        block = build_matrix(known[start : start + KNOWN_BATCH_DOCUMENTS], ids.get, len(ids))
        n_texts += np.asarray(block[is_first[start : start + KNOWN_BATCH_DOCUMENTS]].sum(axis=0)).ravel()
        shared = (added_matrix @ block.T).tocsr()
        if shared.nnz:
            highest = shared.max(axis=1).toarray().ravel()
            better = np.flatnonzero(highest > best)
            position[better] = start + np.asarray(shared[better].argmax(axis=1)).ravel()
            best[better] = highest[better]
        progress(Progress("comparing words", min(start + KNOWN_BATCH_DOCUMENTS, len(known)), len(known)))
    n = len(added)
    with np.errstate(invalid="ignore"):
        new = (added_matrix @ (n_texts == 0).astype(np.int64)) / sizes[:n]
        unique_shares = (shingle_matrix[n:] @ (n_texts <= 1).astype(np.int64)) / sizes[n:]
        return ShingleOverlap(new, best / sizes[:n], position), unique_shares


def percentile_ranks(values: Floats, among: Floats) -> Floats:
    """Return the percentile rank, 0 to 100, of each value.

    Ties count half; NaN if `among` is empty.

    >>> percentile_ranks(np.array([0.0, 2.0, 9.0, np.nan]), np.array([1.0, 2.0, 2.0, 3.0])).tolist()
    [0.0, 50.0, 100.0, nan]
    """
    reference = np.sort(among[~np.isnan(among)])
    if not len(reference):
        return np.full(len(values), np.nan)
    below, upto = (np.searchsorted(reference, values, side) for side in ("left", "right"))
    return np.where(np.isnan(values), np.nan, (below + upto) * 50.0 / len(reference))
