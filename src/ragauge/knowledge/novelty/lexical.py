"""Overlap of 3-word shingles between new and known documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragauge.knowledge.novelty.chunks import Progress, whole
from ragauge.records import Document, Floats, Ints
from ragauge.texts import shingles

AT_ONCE = 512
"""Number of known documents compared at a time."""


class Contained(NamedTuple):
    """Share of documents' shingles that are known.

    NaN, and no container, for one without words.
    """

    new: Floats
    """Share of its shingles that no known document has."""
    best: Floats
    """Largest share of its shingles in a single known document."""
    place: Ints
    """Index of that document; -1 if no known document has any of them."""


def contained(
    added: Sequence[Document],
    known: Sequence[Document],
    sample: Ints,
    twins: Ints,
    progress: Progress | None = None,
) -> tuple[Contained, Floats]:
    """Compute the shingle overlap of added documents with the known ones.

    Also returned is, for a `sample` of known documents (indices), the share of shingles that no other known document
    has. The argument after `sample` has a number per known document, equal for documents with the same text. Such
    documents do not count as others.

    >>> known = [Document("a", "to be or not to be"), Document("b", "not to be sneezed at"), Document("c", "to be or")]
    >>> found, own = contained([Document("x", "to be or not")], known, np.array([0, 1, 2]), np.array([0, 1, 2]))
    >>> found.new.tolist(), found.best.tolist(), found.place.tolist(), own.round(3).tolist()
    ([0.0], [1.0], [0], [0.5, 0.667, 0.0])
    """
    from scipy.sparse import csr_matrix

    ids: dict[tuple[str, ...], int] = {}

    def matrix(documents: Iterable[Document], place: Callable[[tuple[str, ...]], int | None], columns: int) -> Any:
        rows = [[at for one in shingles(whole(each)) if (at := place(one)) is not None] for each in documents]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        flat = np.fromiter((at for row in rows for at in row), np.int64, int(starts[-1]))
        return csr_matrix((np.ones(len(flat), np.int32), flat, starts), shape=(len(rows), columns or len(ids)))

    asked = [*added, *(known[i] for i in sample.tolist())]
    wanted = matrix(asked, lambda one: ids.setdefault(one, len(ids)), 0)
    ours = wanted[: len(added)]
    sizes = np.diff(wanted.indptr)
    # Number of distinct texts with a shingle: of documents with the same text only the first counts.
    first = np.zeros(len(known), bool)
    first[np.unique(twins, return_index=True)[1]] = True
    often = np.zeros(len(ids), np.int64)
    best, place = np.zeros(len(added), np.int64), np.full(len(added), -1, np.int64)
    for start in range(0, len(known), AT_ONCE):
        block = matrix(known[start : start + AT_ONCE], ids.get, len(ids))
        often += np.asarray(block[first[start : start + AT_ONCE]].sum(axis=0)).ravel()
        shared = (ours @ block.T).tocsr()
        if shared.nnz:
            most = shared.max(axis=1).toarray().ravel()
            better = np.flatnonzero(most > best)
            place[better] = start + np.asarray(shared[better].argmax(axis=1)).ravel()
            best[better] = most[better]
        if progress is not None:
            progress(min(start + AT_ONCE, len(known)), len(known))
    n = len(added)
    with np.errstate(invalid="ignore"):
        new = (ours @ (often == 0).astype(np.int64)) / sizes[:n]
        own = (wanted[n:] @ (often <= 1).astype(np.int64)) / sizes[n:]
        return Contained(new, best / sizes[:n], place), own
