"""Results of a search: values of an engine as distances, and checks of what `search` of a store returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import BackendFailed

HINT = 'return ids and distances, one row per query, nearest first; see "Your own store" in docs/bench.md'


def check_neighbours(answer: Any, n_queries: int, k: int) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
    """Return the rows of ids and of distances that `search` returned.

    Rows may be shorter than k. Raises BackendFailed for a wrong shape or type.

    >>> check_neighbours((["a", "b"], [0.1, 0.2]), 1, 2)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    BackendFailed: `search` returned ids of the wrong shape; expected 1 row with up to 2 ids each
    >>> check_neighbours(([["a", "b"]], [[0.1, 0.2]]), 1, 2)
    ([['a', 'b']], [[0.1, 0.2]])
    """
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise BackendFailed(
            f"`search` returned a wrong result; expected a pair (ids, distances), got {describe_value(answer)}",
            hint=HINT,
        )
    ids, distances = (_to_rows(part, name, n_queries, k) for part, name in zip(answer, RESULT_PARTS, strict=True))
    for row, row_distances in zip(ids, distances, strict=True):
        if len(row) != len(row_distances):
            raise BackendFailed(
                "`search` returned ids and distances of different lengths; expected one distance per id, got "
                f"{len(row)} ids and {len(row_distances)} distances",
                hint=HINT,
            )
        if wrong := [name for name in row if not isinstance(name, str) and name is not None]:
            raise BackendFailed(
                "`search` returned ids of the wrong type; expected the texts that `add` was given, or None, got "
                f"{type(wrong[0]).__name__} {wrong[0]!r}",
                hint="return the ids that `add` was given, not row numbers; the ids come first, then the distances",
            )
    return ids, distances


RESULT_PARTS = ("ids", "distances")
"""Names of the two arrays that `search` returns, in order."""


def describe_value(value: Any) -> str:
    """Describe a value by type and shape.

    >>> describe_value(np.zeros((2, 3))), describe_value([1, 2]), describe_value(None)
    ('an array of shape (2, 3)', 'a list of 2 items', 'None')
    """
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)} items"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _to_rows(part: Any, name: str, n_queries: int, k: int) -> list[Sequence[Any]]:
    """Return one sequence per query.

    Raises BackendFailed that names the expected and the actual shape.
    """
    rows = list(part) if isinstance(part, list | tuple) or (isinstance(part, np.ndarray) and part.ndim > 0) else []
    if len(rows) != n_queries or not all(isinstance(row, np.ndarray | list | tuple) for row in rows):
        expected = "1 row" if n_queries == 1 else f"{n_queries} rows"
        raise BackendFailed(
            f"`search` returned {name} of the wrong shape; expected {expected} with up to {k} {name} each, got "
            f"{describe_value(part)}",
            hint=HINT,
        )
    if any(isinstance(row, np.ndarray) and row.ndim != 1 for row in rows):
        raise BackendFailed(
            f"`search` returned {name} of the wrong shape; expected two dimensions (queries, {k}), got "
            f"{describe_value(np.asarray(part))}",
            hint=HINT,
        )
    if (longest := max(map(len, rows), default=0)) > k:
        raise BackendFailed(
            f"`search` returned too many {name}; expected up to {k} {name} per query, got {longest}",
            hint=f"return the {k} nearest per query, as `k` requests",
        )
    return rows


RawNeighbours = tuple[NDArray[Any], NDArray[Any]]
"""Positions and values as the engine reports them, one row per query; position -1 if nothing was found."""
DistanceConversions = Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]]
"""By metric, how a value of the engine becomes a distance; a missing metric needs no conversion."""


def _root(values: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.sqrt(np.maximum(values, 0)))


def clip_at_zero(values: NDArray[Any]) -> NDArray[Any]:
    """Replace distances below 0, which rounding causes."""
    return np.asarray(np.maximum(values, 0))


COMPLEMENT_DISTANCES: DistanceConversions = {
    "l2": _root,
    "ip": lambda values: values - 1,
    "cosine": clip_at_zero,
}
"""Conversion of values that are squared distances, and 1 - the product."""
PRODUCT_DISTANCES: DistanceConversions = {
    "l2": _root,
    "ip": lambda values: -values,
    "cosine": lambda values: np.maximum(1 - values, 0),
}
"""Conversion of values that are squared distances, and products."""
