"""Shared bookkeeping of vector stores: ids, metadata, input checks and results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import BadInput
from ragauge.core.settings import check_choice, check_int
from ragauge.core.structured_text import parse_json
from ragauge.files.workspace import replace_file
from ragauge.stores.filter_conditions import matches_conditions, parse_filter

METRICS = ("cosine", "l2", "ip")
"""Distances: 1 - cosine, Euclidean (not squared), negative inner product. Lower is nearer for all three."""
BOOKKEEPING_FILE = "intake.json"
"""File with the content list of a store's folder; written last, so an incomplete folder has none."""

Matrix = NDArray[np.float32]
Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


def unsupported_error(store: str, operation: str, reason: str) -> BadInput:
    """Return the error for an operation that an engine does not support."""
    return BadInput(f"{store} cannot {operation}: {reason}")


class StoreBookkeeping:
    """Ids of a store, their metadata, and the required shape of its vectors.

    Each added vector gets the next position, which is never reused: 0, 1, 2, … in order of insertion. Engines
    identify vectors by position. A deleted id loses its position and gets a new one if it is added again; an updated
    id keeps it.
    """

    def __init__(self, metric: str) -> None:
        self.metric = check_choice("metric", metric, METRICS)
        self.dimension: int | None = None
        self.position_count = 0
        """Number of positions assigned, including those of deleted ids; the next position."""
        self.position_by_id: dict[str, int] = {}
        """Position of each id in the store, in order of insertion."""
        # Always longer than its content: the last entry is None, which position -1 refers to.
        self._names: NDArray[np.object_] = np.full(16, None, dtype=object)
        self._metadata: list[Mapping[str, Any]] = []
        self._last_filter: tuple[dict[str, Any], Mask] | None = None
        self.built: dict[str, Any] = {}
        """Build options of the index that was read from a folder."""

    def __len__(self) -> int:
        return len(self.position_by_id)

    def __contains__(self, id: object) -> bool:
        return id in self.position_by_id

    @property
    def ids(self) -> list[str]:
        """Ids in the store, in order of insertion."""
        return list(self.position_by_id)

    def prepare_insertion(
        self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> Matrix:
        """Check ids, vectors and metadata, reserve the names, and return the vectors as float32.

        The names are reserved for concurrent searches. `register_ids` makes the vectors findable by id.
        """
        matrix = self._to_matrix(vectors, "vectors")
        _check_id_count(ids, matrix)
        new: set[str] = set()
        for name in ids:
            if not isinstance(name, str):
                raise BadInput(f"the id {name!r} must be a text", hint="use str(id)")
            if name in new or name in self.position_by_id:
                raise BadInput(f"duplicate id {name!r}", hint="add one vector per id")
            new.add(name)
        if metadata is not None:
            if len(metadata) != len(ids):
                raise BadInput(f"expected one metadata mapping per id, got {len(metadata)} for {len(ids)} ids")
            for name, entry in zip(ids, metadata, strict=True):
                _check_metadata(entry, f"the metadata of {name!r}")
        self._check_vector_values(matrix, lambda row: f"the vector of {ids[row]!r}")
        # Assign the names before the engine has the vectors: a concurrent search may return them.
        end = self.position_count + len(ids)
        if end >= len(self._names):
            free_slots = np.full(max(2 * len(self._names), end + 1) - len(self._names), None, dtype=object)
            self._names = np.concatenate([self._names, free_slots])
        self._names[self.position_count : end] = ids
        return matrix

    def register_ids(
        self, ids: Sequence[str], matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Register ids after the engine stored their vectors.

        A separate step, so that a failed insertion leaves no trace.
        """
        if not len(ids):
            return
        self.dimension = int(matrix.shape[1])
        self.position_by_id.update(zip(ids, range(self.position_count, self.position_count + len(ids)), strict=True))
        if metadata is None:
            self._metadata.extend([{}] * len(ids))
        else:
            self._metadata.extend(_check_metadata(entry, "the metadata") for entry in metadata)
        self.position_count += len(ids)

    def prepare_update(self, ids: Sequence[str], vectors: Any) -> tuple[Positions, Matrix]:
        """Check ids and vectors to update, and return the positions and the matrix."""
        matrix = self._to_matrix(vectors, "vectors")
        _check_id_count(ids, matrix)
        positions = self.positions(ids)
        self._check_vector_values(matrix, lambda row: f"the vector of {ids[row]!r}")
        return positions, matrix

    def position(self, name: str) -> int:
        """Return the position of an id; raise BadInput if it is unknown."""
        index = self.position_by_id.get(name)
        if index is None:
            raise BadInput(f"the id {name!r} is not in the store", hint="change only ids that were added")
        return index

    def positions(self, ids: Sequence[str]) -> Positions:
        """Return the positions of ids; raise BadInput if one is unknown or repeated."""
        positions = np.fromiter((self.position(name) for name in ids), dtype=np.int64, count=len(ids))
        if len(set(ids)) < len(ids):
            duplicate = next(name for row, name in enumerate(ids) if name in ids[:row])
            raise BadInput(f"duplicate id {duplicate!r}")
        return positions

    def ids_at(self, positions: Positions) -> list[str]:
        ids: list[str] = self._names[positions].tolist()
        return ids

    def remove(self, ids: Sequence[str]) -> None:
        """Remove ids; their positions are not reused."""
        positions = self.positions(ids)
        for name, position in zip(ids, positions.tolist(), strict=True):
            del self.position_by_id[name]
            self._metadata[position] = {}
        if self._last_filter is not None:
            where, mask = self._last_filter
            in_mask = positions[positions < len(mask)]
            mask = mask.copy()
            mask[in_mask] = False
            self._last_filter = where, mask

    @property
    def live_positions(self) -> Mask:
        """Mask of the positions that have an id."""
        mask = np.zeros(self.position_count, dtype=np.bool_)
        mask[np.fromiter(self.position_by_id.values(), dtype=np.int64, count=len(self.position_by_id))] = True
        return mask

    def filter_mask(self, where: Mapping[str, Any]) -> Mask:
        """Return the mask of positions that have an id and match a filter.

        While neither changes, the same array is returned, so a store can test with `is` whether a cached filter is
        still valid.
        """
        last_filter = self._last_filter
        if (
            last_filter is not None
            and last_filter[0] == where
            and len(last_filter[1]) == self.position_count
            and _has_same_types(last_filter[0], where)
        ):
            return last_filter[1]
        conditions = parse_filter(where)
        where_copy = dict(where)
        cached_mask = (
            last_filter[1]
            if last_filter is not None and last_filter[0] == where_copy and _has_same_types(last_filter[0], where_copy)
            else None
        )
        start = 0 if cached_mask is None else len(cached_mask)
        new_mask = np.zeros(self.position_count - start, dtype=np.bool_)
        alive = None if len(self) == self.position_count else self.live_positions
        for offset, metadata in enumerate(self._metadata[start:]):
            if matches_conditions(metadata, conditions):
                new_mask[offset] = alive is None or alive[start + offset]
        mask = new_mask if cached_mask is None else np.concatenate([cached_mask, new_mask])
        self._last_filter = where_copy, mask
        return mask

    def prepare_queries(self, vectors: Any, k: int) -> Matrix:
        """Check query vectors and `k`, and return the vectors as a float32 matrix."""
        if type(k) is not int or k < 1:
            check_int("k", k)
        matrix = self._to_matrix(vectors, "query vectors")
        if len(matrix) == 1:
            # One product instead of four passes detects non-finite values and all zeros; `vdot` does not warn of
            # overflow.
            row = matrix[0]
            square = float(np.vdot(row, row))
            if 0.0 < square < math.inf:
                return matrix
        self._check_vector_values(matrix, lambda row: f"query vector {row}")
        return matrix

    def _to_matrix(self, vectors: Any, noun: str) -> Matrix:
        try:
            matrix = np.ascontiguousarray(vectors, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"the {noun} must be rows of numbers with equal lengths") from error
        if matrix.ndim == 2 and matrix.shape[1] == self.dimension:
            return matrix
        if matrix.size == 0 and matrix.ndim <= 2 and len(matrix) == 0:
            return matrix.reshape(0, self.dimension or 0)
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise BadInput(f"the {noun} have the shape {matrix.shape}", hint="pass one row per text: shape (n, d)")
        if self.dimension is not None:
            raise BadInput(f"the {noun} have {matrix.shape[1]} dimensions, those in the store have {self.dimension}")
        return matrix

    def _check_vector_values(self, matrix: Matrix, name: Any) -> None:
        is_invalid = ~np.isfinite(matrix).all(axis=1)
        if is_invalid.any():
            raise BadInput(f"{name(int(is_invalid.argmax()))} has a NaN or an infinity")
        # A zero vector has no cosine; engines return 0, 1 or NaN, or leave the vector out.
        if self.metric == "cosine" and (zero := ~matrix.any(axis=1)).any():
            hint = "use the metric ip or l2, or remove such texts"
            raise BadInput(f"{name(int(zero.argmax()))} is all zeros and has no cosine", hint=hint)

    def empty_neighbours(self, rows: int, k: int) -> tuple[NDArray[np.object_], Matrix]:
        """Return a result without neighbours: None and infinity everywhere."""
        ids = np.empty((rows, k), dtype=object)  # NumPy fills it with None
        distances = np.empty((rows, k), dtype=np.float32)
        distances.fill(np.inf)  # faster than `np.full` for one row
        return ids, distances

    def to_neighbours(
        self, positions: NDArray[Any], distances: NDArray[Any], k: int
    ) -> tuple[NDArray[np.object_], Matrix]:
        """Convert positions and distances to `k` columns of ids and distances.

        A position below 0 means that nothing was found there or after it.
        """
        rows, width = positions.shape
        if width == k and (positions[0, -1] >= 0 if rows == 1 else rows and positions[:, -1].min() >= 0):
            return self._names[positions], distances.astype(np.float32, copy=False)
        ids, out = self.empty_neighbours(rows, k)
        is_found = positions >= 0
        ids[:, :width][is_found] = self._names[positions[is_found]]
        out[:, :width][is_found] = distances[is_found]
        return ids, out

    def write(self, folder: str | Path, built: Mapping[str, Any]) -> None:
        """Write ids, metadata and the build options of the index to a folder."""
        content = {
            "metric": self.metric,
            "dimension": self.dimension,
            "built": dict(built),
            "places": self.position_count,
            "ids": list(self.position_by_id),
            # Stores without deleted ids need no list of positions.
            "positions": None if len(self) == self.position_count else list(self.position_by_id.values()),
            "metadata": self._metadata if any(self._metadata) else None,
        }
        with replace_file(Path(folder) / BOOKKEEPING_FILE) as file:
            file.write_text(json.dumps(content), encoding="ascii")

    def read(self, folder: str | Path, options: Mapping[str, Any]) -> bool:
        """Read ids and metadata from a folder; return whether there were any.

        Raises BadInput if the store was built with other options.
        """
        file = Path(folder) / BOOKKEEPING_FILE
        try:
            content = parse_json(file.read_text(encoding="ascii"))
            metric, dimension, position_count, ids = (
                content[part] for part in ("metric", "dimension", "places", "ids")
            )
            positions = list(range(position_count)) if content["positions"] is None else content["positions"]
            metadata, built = content["metadata"] or [{}] * position_count, dict(content["built"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BadInput("this is not a content list of a store", file=str(file)) from error
        for option, requested in {"metric": self.metric, **options}.items():
            stored = metric if option == "metric" else built.get(option, requested)
            if requested != stored:
                raise BadInput(
                    f"{folder} contains a store with {option} {stored}, expected {requested}", hint="use another folder"
                )
        self.dimension, self.position_count, self._metadata, self._last_filter = (
            dimension,
            position_count,
            metadata,
            None,
        )
        self.built = built
        self.position_by_id = dict(zip(ids, positions, strict=True))
        self._names = np.full(position_count + 1 + position_count // 4, None, dtype=object)
        for name, position in self.position_by_id.items():
            self._names[position] = name
        return True


def empty_positions(rows: int, k: int) -> tuple[Positions, Matrix]:
    """Return positions and values to fill in: -1 and infinity everywhere."""
    positions, values = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
    positions.fill(-1)  # faster than `np.full` for one row
    values.fill(np.inf)
    return positions, values


def claim_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a folder whose names start with `name`, which the caller replaces.

    An empty file marks them as files of ragauge. Raise BadInput if there are files without it: they are the user's.
    """
    marker = folder / f".{name}.ragauge"
    files = list(folder.glob(f"{name}*"))
    if files and not marker.exists() and not (folder / BOOKKEEPING_FILE).exists():
        raise BadInput(
            f"has {min(files).name}, which ragauge did not write", file=str(folder), hint="use another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return files


def require_folder(store: str, path: str | Path | None) -> Path:
    """Return the folder of a store; raise BadInput if it has none."""
    if path is None:
        raise BadInput(f"this {store} store has no folder to be saved in", hint="open it with path=…")
    return Path(path)


def largest_supported_k(search: Callable[[int], Any], width: int, error_type: type[Exception]) -> tuple[int, Any]:
    """Find the largest width for which `search` succeeds, and its result.

    The result is None for width 0. Some engines return all requested neighbours or raise an error.
    """
    low, answer = 0, None
    while low < width:
        middle = (low + width + 1) // 2
        try:
            answer = search(middle)
            low = middle
        except error_type:
            width = middle - 1
    return low, answer


def normalise_rows(matrix: Matrix) -> Matrix:
    """Scale rows to length 1, so that their inner product is the cosine."""
    if len(matrix) == 1:
        row = matrix[0]
        square = float(np.vdot(row, row))
        if 1e-30 < square < 1e30:
            return np.asarray(matrix * np.float32(1 / math.sqrt(square)), dtype=np.float32)
    norms = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(matrix / norms, dtype=np.float32)


def _check_id_count(ids: Sequence[str], matrix: Matrix) -> None:
    if len(ids) != len(matrix):
        raise BadInput(f"expected one id per vector, got {len(ids)} ids and {len(matrix)} vectors")


def _check_metadata(metadata: Mapping[str, Any], noun: str) -> dict[str, Any]:
    """Return metadata as plain Python values.

    Raises BadInput unless all are text, numbers or booleans.
    """
    if not isinstance(metadata, Mapping):
        raise BadInput(f"{noun} must map names to values, got {metadata!r}")
    out: dict[str, Any] = {}
    for key, raw in metadata.items():
        value = raw.item() if isinstance(raw, np.generic) else raw
        if not isinstance(key, str) or not isinstance(value, str | int | float):
            raise BadInput(f"{noun}: {key!r} is {value!r}", hint="use a text, a number, true or false")
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{noun}: {key!r} is {value}", hint="use a text, a number, true or false")
        out[key] = value
    return out


def _has_same_types(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether no boolean is compared with a number: in Python, True equals 1."""
    return all(
        repr(left[key]) == repr(value)
        if isinstance(value, Mapping)
        else (type(left[key]) is bool) is (type(value) is bool)
        for key, value in right.items()
    )
