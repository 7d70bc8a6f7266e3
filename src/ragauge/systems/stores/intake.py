"""What every store does the same way: checking what comes in, and giving answers their one shape."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import BadInput, UnknownName

METRICS = ("cosine", "l2", "ip")
"""1 - cosine, the Euclidean distance (not squared), the negative inner product: for all three, less is nearer."""

Matrix = NDArray[np.float32]


def one_of(kind: str, name: str, known: Collection[str]) -> str:
    """The name, if it is a known one."""
    if name not in known:
        raise UnknownName(kind, str(name), known, hint=f"there are {', '.join(known)}")
    return name


def whole(name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """A whole number in its bounds; libraries answer others with a crash or by quietly taking another one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadInput(f"{name} must be a whole number, not {value!r}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} is {value}; it must be {bounds}")
    return int(value)


class Intake:
    """The ids of a store in the order in which they came, and the shape that its vectors must have."""

    def __init__(self, metric: str) -> None:
        self.metric = one_of("metric", metric, METRICS)
        self.ids: list[str] = []
        self.dimension: int | None = None
        self._known: set[str] = set()

    def __len__(self) -> int:
        return len(self.ids)

    def documents(self, ids: Sequence[str], vectors: Any) -> Matrix:
        """The vectors as a store can take them, if they and their ids are good; nothing is remembered yet."""
        matrix = self._matrix(vectors, "vectors")
        if len(ids) != len(matrix):
            raise BadInput(f"there are {len(ids)} ids for {len(matrix)} vectors")
        new: set[str] = set()
        for name in ids:
            if not isinstance(name, str):
                raise BadInput(f"the id {name!r} is not a text", hint="ids are str: take str(id)")
            if name in new or name in self._known:
                raise BadInput(f"the id {name!r} is added twice", hint="a store holds one vector for each id")
            new.add(name)
        self._refuse(matrix, lambda row: f"the vector of {ids[row]!r}")
        return matrix

    def remember(self, ids: Sequence[str], matrix: Matrix) -> None:
        """Keep the ids: the store has the vectors. A separate step, so that a failed load leaves no trace."""
        if len(ids):
            self.dimension = int(matrix.shape[1])
            self.ids.extend(ids)
            self._known.update(ids)

    def queries(self, vectors: Any, k: int) -> Matrix:
        """The vectors of queries, if they can be compared with those of the store."""
        whole("k", k)
        matrix = self._matrix(vectors, "query vectors")
        self._refuse(matrix, lambda row: f"query vector {row}")
        return matrix

    def _matrix(self, vectors: Any, what: str) -> Matrix:
        try:
            matrix = np.ascontiguousarray(vectors, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"the {what} are not rows of numbers of one length") from error
        if matrix.ndim == 2 and matrix.shape[1] == self.dimension:
            return matrix
        if matrix.size == 0 and matrix.ndim <= 2 and len(matrix) == 0:
            return matrix.reshape(0, self.dimension or 0)
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise BadInput(f"the {what} have the shape {matrix.shape}", hint="one row for each text: shape (n, d)")
        if self.dimension is not None:
            raise BadInput(f"the {what} have {matrix.shape[1]} dimensions, those in the store have {self.dimension}")
        return matrix

    def _refuse(self, matrix: Matrix, name: Any) -> None:
        bad = ~np.isfinite(matrix).all(axis=1)
        if bad.any():
            raise BadInput(f"{name(int(bad.argmax()))} has a NaN or an infinity")
        # Without a direction there is no cosine; the backends answer 0, 1 or NaN, or leave the vector out.
        if self.metric == "cosine" and (zero := ~matrix.any(axis=1)).any():
            hint = "take the metric ip or l2, or leave such texts out"
            raise BadInput(f"{name(int(zero.argmax()))} is all zeros and has no cosine", hint=hint)

    def empty(self, rows: int, k: int) -> tuple[NDArray[np.object_], Matrix]:
        """An answer in which nothing was found: None and infinity everywhere."""
        return np.full((rows, k), None, dtype=object), np.full((rows, k), np.inf, dtype=np.float32)

    def answer(self, positions: NDArray[Any], distances: NDArray[Any], k: int) -> tuple[NDArray[np.object_], Matrix]:
        """Ids and distances from positions in order of arrival (below 0: nothing found), `k` wide."""
        ids, out = self.empty(len(positions), k)
        found = positions >= 0
        width = positions.shape[1]
        ids[:, :width][found] = [self.ids[place] for place in positions[found].tolist()]
        out[:, :width][found] = distances[found]
        return ids, out


def unit(matrix: Matrix) -> Matrix:
    """The rows at length 1, so that an inner product is a cosine."""
    norms = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(matrix / norms, dtype=np.float32)
