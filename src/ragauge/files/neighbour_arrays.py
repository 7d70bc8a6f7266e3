"""Arrays of neighbour ids, one row per query, nearest first: exact neighbours as judgments, found ones as a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import BadInput
from ragauge.core.records import Judgments, Run
from ragauge.files.in_memory import judgments_from_neighbours, run_from_arrays
from ragauge.files.source import InputFile

NEIGHBOUR_FILE_ENDINGS = (".ivecs", ".ibin", ".npy")
DEFAULT_CUTOFFS = (1, 10, 100)
"""Cutoffs k of the default measures of neighbours, as far as the arrays have that many columns."""


def is_neighbour_array(value: Any) -> bool:
    """Return whether an object is an array of ids, or a file with such an ending."""
    if isinstance(value, str | Path):
        return str(value) != "-" and InputFile(str(value)).ending in NEIGHBOUR_FILE_ENDINGS
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "iuUO"


def read_neighbour_ids(source: Any) -> NDArray[Any]:
    """Read the ids of a file or an array; raise BadInput if a file has no integers."""
    if isinstance(source, np.ndarray):
        return source
    from ragauge.files.vectors import read_vectors  # it also writes vectors, and so depends on this package

    array = read_vectors(source).vectors
    if array.dtype.kind not in "iu":
        raise BadInput(
            f"holds vectors, not neighbours; expected whole numbers, got {array.dtype}",
            file=InputFile(str(source)).label,
            hint="`ragauge bench` computes the exact neighbours of vectors",
        )
    return array


def read_true_neighbours(source: Any) -> Judgments:
    """Read exact neighbours as judgments.

    Every neighbour is relevant, and their order defines the k nearest.
    """
    return judgments_from_neighbours(read_neighbour_ids(source))


def read_found_neighbours(source: Any, name: str) -> Run:
    """Read found neighbours as a run, ranked as given.

    -1 and None mean that there is no further hit.
    """
    ids = read_neighbour_ids(source)
    if not ids.shape[1]:
        raise BadInput("the rows of neighbours are empty", hint="one row per query: shape (queries, k)")
    if ids.dtype.kind == "O":
        ids = np.array([["-1" if neighbour is None else str(neighbour) for neighbour in row] for row in ids.tolist()])
    if ids.dtype.kind == "U":
        # Replace the ids by numbers, so that "-1" is dropped like the -1 of a store.
        unique_ids, positions = np.unique(ids, return_inverse=True)
        positions = np.where(ids == "-1", -1, positions.reshape(ids.shape))
        return _with_document_ids(run_from_arrays(positions, _rank_scores(ids.shape)), unique_ids, name)
    return run_from_arrays(ids, _rank_scores(ids.shape), name=name)


def check_row_counts(qrels: Any, runs: Iterable[Any]) -> None:
    """Raise BadInput if found and exact neighbours have different numbers of queries."""
    if not is_neighbour_array(qrels):
        return
    expected = len(read_neighbour_ids(qrels))
    for run in runs:
        if is_neighbour_array(run) and (rows := len(read_neighbour_ids(run))) != expected:
            raise BadInput(
                f"the found neighbours must have a row for each row of the exact ones; expected {expected:,} rows, "
                f"got {rows:,}",
                file=str(run) if isinstance(run, str | Path) else None,
                hint="search for the same queries in the same order",
            )


def neighbour_array_measures(qrels: Any, runs: Iterable[Any]) -> tuple[str, ...]:
    """Return recall(of=k) at 1, 10 and 100, as far as all arrays have k columns.

    Return an empty tuple for other inputs.
    """
    inputs = [qrels, *runs]
    if not all(map(is_neighbour_array, inputs)):
        return ()
    depth = min(read_neighbour_ids(value).shape[1] for value in inputs)
    return tuple(
        f"recall(of=k)@{k}"
        for k in sorted({*(k for k in DEFAULT_CUTOFFS if k <= depth), min(depth, DEFAULT_CUTOFFS[-1])})
    )


def _rank_scores(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.broadcast_to(-np.arange(1.0, shape[1] + 1), shape)


def _with_document_ids(run: Run, ids: NDArray[Any], name: str) -> Run:
    """Replace document numbers of a run by their ids."""
    import polars as pl

    table = run.table.with_columns(pl.Series("doc", ids[run.table["doc"].cast(pl.Int64).to_numpy()]))
    return Run(table, name)
