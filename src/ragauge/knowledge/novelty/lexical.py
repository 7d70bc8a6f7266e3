"""Words in the place of vectors: which stretches of three words of a document are in known ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragauge.knowledge.novelty.chunks import Progress, whole
from ragauge.records import Document, Floats, Ints
from ragauge.texts import shingles

AT_ONCE = 512
"""Known documents that are looked at together."""


class Contained(NamedTuple):
    """What of some documents' shingles is known: all of them NaN (and no place) for a document without words."""

    new: Floats
    """The part of its shingles that no known document has."""
    best: Floats
    """The part that one known document has, of the one that has most."""
    place: Ints
    """Which one that is; -1 where none has any."""


def contained(
    added: Sequence[Document],
    known: Sequence[Document],
    sample: Ints,
    twins: Ints,
    progress: Progress | None = None,
) -> tuple[Contained, Floats]:
    """Of the added documents; and of a `sample` of the known ones, by place, the part that no other known one has.

    `twins` has a number for each known document, the same for those with the same text: such are no others.

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
    # How many different texts have a shingle: of those that say the same only the first counts.
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
