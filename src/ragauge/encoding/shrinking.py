"""Quality of vectors with fewer dimensions or fewer bits per value.

All vectors are first normalised to length 1, since only their direction matters. `pca` rotates them onto the right
singular vectors of the document matrix, largest first. Nothing is centred: a shift changes cosines, while a rotation
does not. With all dimensions the ranking is therefore the embedder's own. `first` takes the first values, as intended
by embedders with Matryoshka training. Both are fitted to the documents, applied to documents and queries, and followed
by normalisation.

A value is stored as `float32`, `float16`, `int8` or `bit`. `int8` has 127 steps up to the largest absolute value of the
dimension among the documents; larger query values are clipped. `bit` is whether the value is above the documents' mean,
ranked by the number of equal bits. Documents and queries are ranked by the stored values. Scales and means are stored
once for all vectors and are not part of a vector's bytes.
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
"""Smallest number of dimensions tried by default; it is then doubled."""
STEPS = 127


class Kept(NamedTuple):
    """Precision in which a vector's values are stored."""

    bits: int
    keep: Callable[[Matrix, Matrix], Matrix]
    """Function from vectors and document vectors (to fit scales) to the values that are ranked."""


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
    """Score vectors for each reduction method, dimension and precision.

    `dimensions` defaults to 8, 16, 32 and so on, and the full dimension. Larger ones than the vectors have are left
    out.
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
    """Return the numbers of dimensions to try, the full dimension last.

    >>> sizes(100), sizes(100, [50, 200]), sizes(6)
    ([8, 16, 32, 64, 100], [50, 100], [6])
    """
    if dimensions is not None and any(one < 1 for one in dimensions):
        raise BadInput(f"vectors cannot have {min(dimensions)} dimensions", hint="at least 1")
    tried = (LEAST << step for step in range(own.bit_length())) if dimensions is None else dimensions
    return sorted({one for one in tried if one < own} | {own})


def width(dimension: int, kind: str) -> int:
    """Return the size of a vector in bytes.

    >>> [width(100, kind) for kind in KINDS]
    [400, 200, 100, 13]
    """
    return -(-dimension * KINDS[kind].bits // 8)


def unit(vectors: Any) -> Matrix:
    """Normalise the vectors to length 1; a row that is not a vector becomes NaN."""
    with np.errstate(over="ignore"):
        matrix = np.asarray(vectors, np.float32)
    fit = usable(matrix)
    out = np.full(matrix.shape, np.nan, np.float32)
    # First divide by the maximum: squares of very small or large values underflow or overflow.
    rows = matrix[fit] / np.abs(matrix[fit]).max(axis=1, keepdims=True, initial=0)
    out[fit] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return out


def principal(documents: NDArray[Any]) -> Floats:
    """Return the principal directions of the documents as columns, largest first.

    They are the right singular vectors of the document matrix, computed in double precision as eigenvectors of its Gram
    matrix. Nothing is centred. Rows with NaN are ignored.
    """
    rows = documents[usable(documents)].astype(np.float64)
    _, vectors = np.linalg.eigh(rows.T @ rows)
    return np.ascontiguousarray(vectors[:, ::-1])


def _float16(vectors: Matrix, _: Matrix) -> Matrix:
    return vectors.astype(np.float16).astype(np.float32)


def _int8(vectors: Matrix, documents: Matrix) -> Matrix:
    """Quantise to integers from -127 to 127 and return the values that they represent."""
    known = documents[usable(documents)]
    scale = np.abs(known).max(axis=0, initial=0) / np.float32(STEPS)
    steps = np.clip(np.rint(vectors / np.where(scale > 0, scale, 1)), -STEPS, STEPS)
    return np.asarray(steps * scale, np.float32)


def _bit(vectors: Matrix, documents: Matrix) -> Matrix:
    """Return 1 above the mean and -1 otherwise.

    The cosine is 1 minus twice the share of differing bits.
    """
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
