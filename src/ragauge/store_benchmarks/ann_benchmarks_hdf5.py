"""HDF5 files of ann-benchmarks: vectors, queries, exact neighbours and metric, read and written."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.compute.workers import Worker, WorkerDied, WorkerLimits, WorkerTimeout
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.files.source import wrap_library_errors
from ragauge.files.vectors import first_bad_row
from ragauge.store_benchmarks.hdf5_worker import Hdf5Contents, Hdf5Table, Hdf5Task
from ragauge.store_benchmarks.results import VectorSet

HDF5_SUFFIXES = (".hdf5", ".h5")
MAX_SILENCE_S = 60.0
"""Time limit in seconds for libhdf5 to describe a file, or to decompress one block of it.

On some corrupt files libhdf5 never returns, and Python cannot interrupt it.
"""
CORRUPT_HINT = "download or write the file again"


def is_hdf5(path: Path) -> bool:
    """Return whether a file name has an HDF5 suffix."""
    return path.suffix.lower() in HDF5_SUFFIXES


def read_hdf5(
    path: str | Path, *, metric: str | None = None, max_vectors: int | None = None, max_queries: int | None = None
) -> VectorSet:
    """Read vectors, queries and their neighbours from an HDF5 file.

    `max_vectors` and `max_queries` read only the first vectors and queries. Neighbours are dropped if `max_vectors` is
    given, since they refer to all vectors. Files without the attribute `distance` must have it in their name:
    `sift-128-euclidean.hdf5`.
    """
    hdf5_path = Path(path)
    if find_spec("h5py") is None:
        raise MissingExtra("an HDF5 file", "hdf5")
    if not hdf5_path.exists():
        raise BadInput("cannot be read as HDF5 (no such file)", file=str(path))
    with tempfile.TemporaryDirectory(prefix="ragauge-hdf5-") as folder:
        contents = _describe_file(Hdf5Task(str(path), folder, metric, max_vectors, max_queries))
        tables = {name: _read_table(hdf5_path, name, table) for name, table in contents.tables.items()}
    base, query_vectors = (np.ascontiguousarray(tables[name], np.float32) for name in ("train", "test"))
    if base.shape[1] != query_vectors.shape[1]:
        message = f"`train` has {base.shape[1]} dimensions and `test` has {query_vectors.shape[1]}"
        raise BadInput(message, file=str(path))
    neighbours = tables["neighbors"].astype(np.int64) if "neighbors" in tables else None
    return VectorSet(hdf5_path.stem, base, query_vectors, contents.metric, neighbours=neighbours)


def _describe_file(task: Hdf5Task) -> Hdf5Contents:
    """Find the metric of a file and the places of its tables, in a worker process with a time limit."""
    limits, has_started = WorkerLimits(MAX_SILENCE_S, restarts_with_event=True), False
    with Worker("ragauge.store_benchmarks.hdf5_worker:run_task", task, limits) as worker:
        try:
            for _ in worker.events():
                has_started = True
            return worker.result(Hdf5Contents)
        except WorkerTimeout:
            worker.kill()  # a loop of libhdf5 ignores a request to end
            if not has_started:
                raise BackendFailed(
                    f"the process that reads {task.path} did not start within {MAX_SILENCE_S:g} s"
                ) from None
            message = f"is corrupt: libhdf5 gave no answer within {MAX_SILENCE_S:g} s"
            raise BadInput(message, file=task.path, hint=CORRUPT_HINT) from None
        except WorkerDied as error:
            if not has_started:
                raise BackendFailed(f"the process that reads {task.path} {error.end}") from None
            message = f"is corrupt: the process that read it {error.end}"
            raise BadInput(message, file=task.path, hint=CORRUPT_HINT) from None


def _read_table(path: Path, name: str, table: Hdf5Table) -> Any:
    """Read the numbers of a table at the place that the worker process found.

    A copy is mapped instead of read: it stays readable after the temporary folder is deleted.
    """
    kind, shape = np.dtype(table.dtype), (table.rows, table.columns)
    with wrap_library_errors(str(path), problem="cannot be read as HDF5"):
        if table.is_copy:
            rows = np.asarray(np.memmap(table.file, kind, "c", shape=shape))
        else:
            rows = np.fromfile(table.file, kind, table.rows * table.columns, offset=table.offset).reshape(shape)
    if (row := first_bad_row(rows)) is not None:
        raise BadInput(f"row {row} of `{name}` has a NaN or an infinity", file=str(path))
    return rows
