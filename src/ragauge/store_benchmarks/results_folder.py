"""Results folder of a benchmark: reports, raw results of each build, and the vectors that worker processes read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ragauge.core.structured_text import parse_json
from ragauge.files.serialization import detect_schema, to_json, write_record
from ragauge.files.workspace import atomic_write
from ragauge.runs.folder import format_timestamp, utc_now
from ragauge.store_benchmarks.metadata_filters import metadata_hash
from ragauge.store_benchmarks.results import Matrix, StoreBenchmark, VectorSet

RESULT_FILES: Mapping[str, str] = {
    "json": "benchmark.json",
    "csv": "points.csv",
    "markdown": "report.md",
    "html": "report.html",
    "loads": "loads.csv",
    "filters": "filters.csv",
}
"""Files of the results folder by the name of their format."""


def list_result_files(result: StoreBenchmark) -> dict[str, str]:
    """Return the files that a benchmark has results for, by the name of their format."""
    empty = set()
    if not any(point.loads for point in result.points):
        empty.add("loads")
    if not any(point.filters for point in result.points):
        empty.add("filters")
    return {name: file for name, file in RESULT_FILES.items() if name not in empty}


def find_benchmark_file(path: str | Path) -> str | None:
    """Return the JSON file of a benchmark at a path, which may be a results folder; None if there is none."""
    file = Path(path)
    if file.is_dir():
        file = file / RESULT_FILES["json"]
    return str(file) if detect_schema(file) == "ragauge-benchmark" else None


RawResult = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Details and arrays of one result."""


def write_raw_result(path: Path, details: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write one result: raw arrays, details about them, and the current time."""
    text = to_json({**details, "made": utc_now()}, indent=None).encode("utf-8", "replace")
    with atomic_write(path) as out:
        np.savez_compressed(out, allow_pickle=False, details=np.frombuffer(text, np.uint8), **arrays)


def read_raw_result(path: Path) -> RawResult | None:
    """Read a result as details and arrays; None if it is missing or corrupt."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return parse_json(arrays.pop("details", np.frombuffer(b"{}", np.uint8)).tobytes()), arrays
    except (OSError, ValueError, TypeError, LookupError, EOFError, RuntimeError, BadZipFile, zlib.error):
        return None


class BuildFolder(NamedTuple):
    """Folder of one build: its costs, its raw results, and its store until it is deleted."""

    path: Path

    @property
    def costs_file(self) -> Path:
        """File with the costs, which is written when the build is finished."""
        return self.path / "build.json"

    @property
    def finished_file(self) -> Path:
        """File of a finished benchmark; that of an interrupted one, which is resumed, is missing."""
        return self.path / "finished.json"

    @property
    def store(self) -> Path:
        """Folder of the store itself."""
        return self.path / "store"

    def result_file(self, name: str) -> Path:
        return self.path / f"{name}.npz"

    def read_result(self, name: str) -> RawResult | None:
        """Read a raw result; None if it is missing or corrupt."""
        return read_raw_result(self.result_file(name))

    def read_costs(self) -> dict[str, Any]:
        """Read the costs of the build; empty if it is not finished."""
        try:
            costs: dict[str, Any] = parse_json(self.costs_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return costs

    def has_store(self) -> bool:
        """Return whether the store is finished, saved and still on disk."""
        return bool(self.read_costs().get("kept")) and self.store.exists()

    def creation_time(self, file: Path) -> str:
        """Return when a file was made, or when it was last changed if it does not say."""
        details = self.read_costs() if file == self.costs_file else (read_raw_result(file) or ({}, {}))[0]
        return str(details.get("made") or "") or format_timestamp(file.stat().st_mtime)


def write_vectors(data: VectorSet, folder: Path) -> None:
    """Write the vectors as plain 32-bit floats.

    A process can then read only the rows it needs, without mapping them into its memory.
    """
    shapes = {}
    for name, matrix in (("base", data.base), ("queries", data.queries)):
        path = folder / f"{name}.f32"
        shapes[name] = list(matrix.shape)
        if not path.exists() or path.stat().st_size != matrix.size * 4:
            with atomic_write(path) as out:
                for start in range(0, len(matrix), 65_536):
                    out.write(np.ascontiguousarray(matrix[start : start + 65_536], dtype="<f4").tobytes())
    write_record({"shapes": shapes, "ids": list(data.ids) or None}, folder / "vectors.json")
    if data.metadata:
        write_record(list(data.metadata), folder / f"metadata-{metadata_hash(data.metadata)}.json")


class SavedVectors:
    """Vectors that `write_vectors` has saved; only requested rows are loaded."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        saved = parse_json((self._folder / "vectors.json").read_text(encoding="utf-8"))
        self._shapes: dict[str, list[int]] = saved["shapes"]
        self._ids: list[str] | None = saved["ids"]

    def __len__(self) -> int:
        return self._shapes["base"][0]

    def rows(self, name: str, start: int = 0, count: int = -1) -> Matrix:
        """Return a copy of `count` rows of `base` or `queries` from `start`; -1 means all."""
        n, d = self._shapes[name]
        count = n - start if count < 0 else min(count, n - start)
        flat = np.fromfile(self._folder / f"{name}.f32", dtype="<f4", count=count * d, offset=4 * d * start)
        return flat.reshape(count, d).astype(np.float32, copy=False)

    def ids(self, start: int = 0, count: int = -1) -> list[str]:
        """Return the ids of some rows of the base."""
        count = len(self) - start if count < 0 else min(count, len(self) - start)
        return [str(i) for i in range(start, start + count)] if self._ids is None else self._ids[start : start + count]

    def index(self) -> dict[str, int]:
        """Map each id to its row."""
        return {name: row for row, name in enumerate(self.ids())}

    def metadata(self, which: str) -> list[dict[str, Any]]:
        """Return the metadata of every row by their hash; empty mappings if it is empty."""
        if not which:
            return [{} for _ in range(len(self))]
        rows: list[dict[str, Any]] = json.loads((self._folder / f"metadata-{which}.json").read_text(encoding="utf-8"))
        return rows

    def others(self, n: int, seed: int) -> Matrix:
        """Return warm-up queries: random rows of the base with a little noise."""
        random = np.random.default_rng([seed, 1])
        rows = np.sort(random.choice(len(self), size=min(n, len(self)), replace=False))
        sample = np.concatenate([self.rows("base", int(row), 1) for row in rows])
        spread = float(sample.std()) or 1.0
        moved = sample + random.normal(scale=0.05 * spread, size=sample.shape)
        return np.asarray(moved, dtype=np.float32)
