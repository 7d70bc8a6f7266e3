"""Worker process that opens an HDF5 file: on a corrupt file, libhdf5 can loop forever or crash.

It returns where the numbers of each table are, so that the parent process reads them without libhdf5. Tables that are
stored in chunks are copied to a temporary folder first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.compute.worker_process import SendEvent
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.limits import BYTES_PER_MB, DECOMPRESSED_LIMIT, MAX_DECOMPRESSION_RATIO
from ragauge.files.source import wrap_library_errors

METRICS_BY_NAME = {
    "euclidean": "l2",
    "l2": "l2",
    "angular": "cosine",
    "cosine": "cosine",
    "dot": "ip",
    "ip": "ip",
    "inner_product": "ip",
}
"""Metric for each value of the attribute `distance`."""
BLOCK_BYTES = 16 << 20
"""Bytes per copied block, or one row of chunks if that is more. The parent gets an event after each block."""


class Hdf5Task(NamedTuple):
    """File to describe, and how much of it is needed."""

    path: str
    folder: str
    """Folder for copies of the tables that cannot be read at their place."""
    metric: str | None
    max_vectors: int | None
    """Maximum number of vectors; None for all."""
    max_queries: int | None
    """Maximum number of queries; None for all."""


class Hdf5Table(NamedTuple):
    """Place of the numbers of a table."""

    file: str
    offset: int
    """Position of the first number, in bytes."""
    dtype: str
    rows: int
    columns: int
    is_copy: bool
    """Whether the file is a copy in the temporary folder."""


class Hdf5Contents(NamedTuple):
    """Metric and tables of a file."""

    metric: str
    tables: Mapping[str, Hdf5Table]


def run_task(task: Hdf5Task, send: SendEvent) -> Hdf5Contents:
    """Find the metric and the tables of a file."""
    path = Path(task.path)
    rows = {"train": task.max_vectors, "test": task.max_queries, "neighbors": task.max_queries}
    h5py = import_h5py()
    send({"started": True})
    with wrap_library_errors(str(path), problem="cannot be read as HDF5"), h5py.File(path, "r") as file:
        metric, with_neighbours = _read_metric(file, path, task.metric)
        names = ["train", "test"]
        if with_neighbours and task.max_vectors is None and file.id.links.exists(b"neighbors"):
            names.append("neighbors")
        tables = {
            name: _locate_table(_find_table(file, name, path), rows[name], path, Path(task.folder), send)
            for name in names
        }
    return Hdf5Contents(metric, tables)


def import_h5py() -> Any:
    """Import h5py, which is optional."""
    try:
        import h5py
    except ImportError:
        raise MissingExtra("an HDF5 file", "hdf5") from None
    return h5py


def _read_metric(file: Any, path: Path, metric: str | None) -> tuple[str, bool]:
    """Return the metric to use, and whether the neighbours in the file are those of this metric."""
    attribute = file.attrs.get("distance")
    distance = attribute.decode() if isinstance(attribute, bytes) else attribute if isinstance(attribute, str) else None
    distance = distance or next((word for word in METRICS_BY_NAME if path.stem.lower().endswith(f"-{word}")), None)
    if distance is not None and distance.lower() not in METRICS_BY_NAME:
        hint = f"choose one of {', '.join(METRICS_BY_NAME)}"
        raise BadInput(f"unknown distance {distance!r}", file=str(path), hint=hint)
    stored = METRICS_BY_NAME[distance.lower()] if distance else None
    used = metric or stored
    if used is None:
        raise BadInput("the attribute `distance` is missing", file=str(path), hint="name the metric: l2, cosine or ip")
    return used, used == stored


def _find_table(file: Any, name: str, path: Path) -> Any:
    """Return a table of numbers that is stored in the file itself.

    Links, external storage and virtual datasets can name any other file of this machine, and are refused.
    """
    h5py, links = import_h5py(), file.id.links
    if not links.exists(name.encode()):
        table_names = ", ".join(sorted(file)) or "nothing"
        hint = "files of ann-benchmarks have `train`, `test`, `neighbors` and `distances`"
        raise BadInput(f"`{name}` is missing; found {table_names}", file=str(path), hint=hint)
    is_link = links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD
    table: Any = None if is_link else file[name]
    is_dataset = isinstance(table, h5py.Dataset)
    layout = table.id.get_create_plist() if is_dataset else None
    if is_link or (layout and (layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL)):
        raise BadInput(f"`{name}` is not stored in the file itself", file=str(path), hint="use a file without links")
    if not is_dataset or table.ndim != 2 or table.dtype.kind not in "fiu" or not all(table.shape):
        raise BadInput(f"`{name}` is not a table of numbers", file=str(path), hint="use a dense set")
    return table


def _locate_table(table: Any, max_rows: int | None, path: Path, folder: Path, send: SendEvent) -> Hdf5Table:
    """Return the file, the offset in bytes, the type and the shape of the first `max_rows` rows of a table."""
    rows, columns = table.shape if max_rows is None else (min(max_rows, table.shape[0]), table.shape[1])
    dtype = table.dtype.str
    size, file_size = rows * columns * table.dtype.itemsize, path.stat().st_size
    if _is_plain_array(table):
        offset = table.id.get_offset()
        if offset + size > file_size:
            message = (
                f"is corrupt or incomplete: `{_short_name(table)}` ends at byte {offset + size:,} of {file_size:,}"
            )
            raise BadInput(message, file=str(path))
        return Hdf5Table(str(path), offset, dtype, rows, columns, is_copy=False)
    if size > DECOMPRESSED_LIMIT.n_bytes and size > MAX_DECOMPRESSION_RATIO * file_size:
        megabytes = f"{size // BYTES_PER_MB:,} MB"
        message = f"`{_short_name(table)}` has {megabytes}, more than {MAX_DECOMPRESSION_RATIO} times the file"
        raise BadInput(message, file=str(path), hint=DECOMPRESSED_LIMIT.hint)
    copy = folder / _short_name(table)
    _copy_rows(table, rows, path, copy, send)
    return Hdf5Table(str(copy), 0, dtype, rows, columns, is_copy=True)


def _is_plain_array(table: Any) -> bool:
    """Return whether the rows of a table are in the file one after the other, in a type that NumPy has."""
    h5py = import_h5py()
    layout = table.id.get_create_plist()
    return (
        layout.get_layout() == h5py.h5d.CONTIGUOUS
        and table.id.get_offset() is not None
        and bool(table.id.get_type().equal(h5py.h5t.py_create(table.dtype)))
    )


def _copy_rows(table: Any, rows: int, path: Path, copy: Path, send: SendEvent) -> None:
    """Write the first rows of a table to a file, in whole rows of chunks."""
    chunk_rows = table.chunks[0] if table.chunks else 1
    step = chunk_rows * max(1, BLOCK_BYTES // (chunk_rows * math.prod(table.shape[1:]) * table.dtype.itemsize))
    with copy.open("wb") as out:
        for start in range(0, rows, step):
            block = table[start : min(start + step, rows)]
            try:
                out.write(block.data)
            except OSError as error:
                message = f"`{_short_name(table)}` cannot be decompressed to {copy.parent} ({error.strerror})"
                raise BadInput(message, file=str(path), hint="set TMPDIR to a folder with more space") from None
            send({"rows": start + len(block)})


def _short_name(table: Any) -> str:
    return str(table.name).rpartition("/")[2]
