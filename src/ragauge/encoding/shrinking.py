"""Smaller vectors: fewer dimensions, fewer bits for a number, and what that leaves of their quality.

Everything is done to vectors of length 1, since only their direction is compared. `pca` turns them so that the
documents lie along the first directions as far as they can (the singular vectors of their matrix, best first); nothing
is centred, because a cosine is an angle at the origin: a shift would make another retriever of it, while a turn changes
no angle, so that with all dimensions the ranking is the embedder's own. `first` takes the first numbers as they come,
which is what embedders that were trained for it are made for. Both are fitted to documents only and done to queries
alike, and what is left is brought to length 1 again.

A number is kept as `float32`, `float16`, `int8` (127 steps up to the largest size that the dimension has among the
documents; a query beyond that is cut) or `bit` (whether it is above the documents' mean; ranked by how many bits are
the same). Ranked is what is really kept, queries too. The scales and means, one for each dimension, are kept once for
all vectors and are in no vector's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.encoding.ranking import Field, all_means, usable
from ragauge.errors import BadInput, UnknownName
from ragauge.lineups import Shrunk
from ragauge.records import Floats, Scores

Matrix = NDArray[np.float32]
HOWS = ("pca", "first")
LEAST = 8
"""The fewest dimensions that are tried unless others are named; then twice as many each time."""
STEPS = 127


class Kept(NamedTuple):
    """What a number is kept as."""

    bits: int
    keep: Callable[[Matrix, Matrix], Matrix]
    """From vectors, and the documents' that scales are fitted to, to the numbers that are compared in their place."""


def shrunk(  # noqa: PLR0913 - each has a use of its own, and a default
    field: Field,
    query_vectors: Any,
    document_vectors: Any,
    dimensions: Sequence[int] | None = None,
    *,
    hows: Sequence[str] = HOWS,
    kinds: Sequence[str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[Shrunk]:
    """The quality of these vectors at each number of dimensions, in each way, with each kind of number.

    `dimensions` are 8, 16, 32 … and all unless they are named; those that the vectors do not have are left out.
    """
    queries, documents = unit(query_vectors), unit(document_vectors)
    own = documents.shape[1]
    wanted = [(how, size, kind) for how in hows for size in sizes(own, dimensions) for kind in kinds or KINDS]
    for what, names, known in (("way to shrink vectors", hows, HOWS), ("kind of number", kinds or (), KINDS)):
        for name in names:
            if name not in known:
                raise UnknownName(what, name, known, hint=f"there are {', '.join(known)}")
    turned: dict[str, tuple[Matrix, Matrix]] = {"first": (queries, documents)}
    if "pca" in hows:
        directions = principal(documents).astype(np.float32)
        turned["pca"] = queries @ directions, documents @ directions
    found: list[Scores] = []
    for done, (how, size, kind) in enumerate(wanted):
        asked, base = (unit(side[:, :size]) for side in turned[how])
        keep = KINDS[kind].keep
        found.append(field.scores(keep(asked, base), keep(base, base), name=f"{how} {size} {kind}"))
        if progress is not None:
            progress((done + 1) / len(wanted))
    means = all_means(found, confidence, seed)
    return [
        Shrunk(how, size, kind, width(size, kind), mean) for (how, size, kind), mean in zip(wanted, means, strict=True)
    ]


def sizes(own: int, dimensions: Sequence[int] | None = None) -> list[int]:
    """The numbers of dimensions to try, all of them last.

    >>> sizes(100), sizes(100, [50, 200]), sizes(6)
    ([8, 16, 32, 64, 100], [50, 100], [6])
    """
    if dimensions is not None and any(one < 1 for one in dimensions):
        raise BadInput(f"vectors cannot have {min(dimensions)} dimensions", hint="at least 1")
    tried = (LEAST << step for step in range(own.bit_length())) if dimensions is None else dimensions
    return sorted({one for one in tried if one < own} | {own})


def width(dimension: int, kind: str) -> int:
    """The bytes of a vector.

    >>> [width(100, kind) for kind in KINDS]
    [400, 200, 100, 13]
    """
    return -(-dimension * KINDS[kind].bits // 8)


def unit(vectors: Any) -> Matrix:
    """The vectors at length 1; a row that is none is all NaN, and stays so whatever is done to it."""
    with np.errstate(over="ignore"):
        matrix = np.asarray(vectors, np.float32)
    fit = usable(matrix)
    out = np.full(matrix.shape, np.nan, np.float32)
    # Twice, since squares of very small or large numbers leave all bounds.
    rows = matrix[fit] / np.abs(matrix[fit]).max(axis=1, keepdims=True, initial=0)
    out[fit] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return out


def principal(documents: NDArray[Any]) -> Floats:
    """The directions along which the documents lie, a column for each, the most important first; rows with NaN apart.

    They are the right singular vectors of the matrix, by the eigenvectors of its square, in double precision.
    """
    rows = documents[usable(documents)].astype(np.float64)
    _, vectors = np.linalg.eigh(rows.T @ rows)
    return np.ascontiguousarray(vectors[:, ::-1])


def _float16(vectors: Matrix, _: Matrix) -> Matrix:
    return vectors.astype(np.float16).astype(np.float32)


def _int8(vectors: Matrix, documents: Matrix) -> Matrix:
    """The values that the whole numbers from -127 to 127 stand for."""
    known = documents[usable(documents)]
    scale = np.abs(known).max(axis=0, initial=0) / np.float32(STEPS)
    steps = np.clip(np.rint(vectors / np.where(scale > 0, scale, 1)), -STEPS, STEPS)
    return np.asarray(steps * scale, np.float32)


def _bit(vectors: Matrix, documents: Matrix) -> Matrix:
    """1 above the mean and -1 elsewhere: their cosine is 1 less twice the part of the bits that differ."""
    known = documents[usable(documents)]
    middle = known.mean(axis=0, dtype=np.float64).astype(np.float32) if len(known) else np.float32(0)
    signs = np.where(vectors > middle, np.float32(1), np.float32(-1))
    return np.where(np.isnan(vectors), vectors, signs)


KINDS: Mapping[str, Kept] = {
    "float32": Kept(32, lambda vectors, _: vectors),
    "float16": Kept(16, _float16),
    "int8": Kept(8, _int8),
    "bit": Kept(1, _bit),
}
