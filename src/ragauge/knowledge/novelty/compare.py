"""Exact similarity of chunks to known ones.

Memory use does not depend on the corpus size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import Incomparable
from ragauge.records import Floats, Ints
from ragauge.seams import Vectors
from ragauge.systems.stores.nearest import nearest

MAX_OWN = 64
"""Maximum number of own chunks up to which more neighbours are searched to skip them."""
ROUNDING = 1e-15
"""Cosine distances below this are rounding errors of equal vectors."""


class Near(NamedTuple):
    """Nearest known chunks of each chunk, one row per chunk, nearest first."""

    places: Ints
    similarities: Floats
    """Cosines; NaN for a chunk with a zero vector."""


def nearest_known(chunks: Vectors, known: Vectors, m: int = 1, progress: Callable[[float], None] | None = None) -> Near:
    """Find the `m` known chunks with the highest cosine, or all if there are fewer.

    Candidates are found in single precision and ranked in double precision. Known vectors are read in blocks, so that a
    memory-mapped file need not fit in memory. Incomparable is raised if the dimensions differ.

    >>> near = nearest_known(np.array([[1, 0], [0, 0]], np.float32), np.array([[0, 1], [3, 4]], np.float32))
    >>> near.places.tolist(), near.similarities.round(6).tolist()
    ([[1], [0]], [[0.6], [nan]])
    """
    if not len(chunks) or not len(known):
        return Near(np.zeros((len(chunks), 0), np.int64), np.zeros((len(chunks), 0)))
    if chunks.shape[1] != known.shape[1]:
        raise Incomparable(
            f"vectors of {chunks.shape[1]} dimensions are held against known ones of {known.shape[1]}",
            hint="embed both with the same model: --embedder NAME",
        )
    places, distances = nearest(known, chunks, m, "cosine", progress=progress)
    return Near(places, _similarities(chunks, distances))


def nearest_others(known: Vectors, rows: Ints, own: list[Ints]) -> Floats:
    """Return the highest cosine of known chunks with a chunk not their `own`.

    NaN if there is none.

    >>> known = np.array([[1, 0], [1, 0], [3, 4]], np.float32)
    >>> nearest_others(known, np.array([0, 2]), [np.array([0, 1]), np.array([2])]).round(6).tolist()
    [0.6, 0.6]
    """
    found = np.full(len(rows), np.nan)
    counts = np.array([len(one) for one in own], np.int64)
    # All own chunks may be the nearest: if they are few, more neighbours than own chunks are searched.
    wanted = np.array([1 << count.bit_length() for count in counts.tolist()], np.int64)
    for k in np.unique(wanted[counts <= MAX_OWN]):
        asked = np.flatnonzero((wanted == k) & (counts <= MAX_OWN))
        chunks = np.asarray(known[rows[asked]])
        places, distances = nearest(known, chunks, int(k), "cosine")
        near = _similarities(chunks, distances)
        for at, row in enumerate(asked.tolist()):
            others = ~np.isin(places[at], own[row])
            found[row] = near[at][others][0] if others.any() else np.nan
    # That would be quadratic for large documents, so their chunks are compared with other documents only.
    large: dict[bytes, list[int]] = {}
    for row in np.flatnonzero(counts > MAX_OWN).tolist():
        large.setdefault(own[row].tobytes(), []).append(row)
    for group in large.values():
        others = np.setdiff1d(np.arange(len(known)), own[group[0]])
        if len(others):
            chunks = np.asarray(known[rows[group]])
            _, distances = nearest(known, chunks, 1, "cosine", allowed=others)
            found[group] = _similarities(chunks, distances)[:, 0]
    return found


def _similarities(chunks: Vectors, distances: NDArray[Any]) -> Floats:
    near = np.where(distances < ROUNDING, 1.0, 1 - distances)
    near[~np.any(chunks, axis=1)] = np.nan
    return near


def novelties(highest: Floats) -> Floats:
    """Return 1 minus the highest cosine of each chunk, clipped to 0 to 1.

    >>> novelties(np.array([1.0, 0.25, -0.5, np.nan])).tolist()
    [0.0, 0.75, 1.0, nan]
    """
    found: Floats = np.clip(1 - highest, 0, 1)
    return found


def means(values: Floats, owner: Ints, documents: int) -> Floats:
    """Return the mean over the chunks of each document, ignoring NaN.

    NaN if it has none.

    >>> means(np.array([0.25, 0.75, np.nan]), np.array([0, 0, 1]), 3).tolist()
    [0.5, nan, nan]
    """
    there = ~np.isnan(values)
    n = np.bincount(owner[there], minlength=documents)
    totals = np.bincount(owner[there], values[there], minlength=documents)
    found = np.full(documents, np.nan)
    np.divide(totals, n, out=found, where=n > 0)
    return found


def least(values: Floats, owner: Ints, documents: int) -> Floats:
    """Return the minimum over the chunks of each document, ignoring NaN.

    NaN if it has none.

    >>> least(np.array([0.25, 0.75, np.nan]), np.array([0, 0, 1]), 3).tolist()
    [0.25, nan, nan]
    """
    found = np.full(documents, np.inf)
    there = ~np.isnan(values)
    np.minimum.at(found, owner[there], values[there])
    found[np.isinf(found)] = np.nan
    return found


def raised(highest: Floats, chunks: Vectors, more: Vectors) -> Floats:
    """Update the highest cosines after `more` chunks became known.

    >>> raised(np.array([0.0, 0.9]), np.array([[1, 0], [0, 1]], np.float32), np.array([[3, 4]], np.float32)).round(6)
    array([0.6, 0.9])
    """
    near = nearest_known(chunks, more).similarities
    return np.fmax(highest, near[:, 0]) if near.shape[1] else highest
