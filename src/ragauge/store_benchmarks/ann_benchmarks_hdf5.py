"""HDF5 files of ann-benchmarks: vectors, queries, exact neighbours and metric, read and written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.files.source import wrap_library_errors
from ragauge.files.vectors import first_bad_row
from ragauge.store_benchmarks.results import VectorSet

HDF5_SUFFIXES = (".hdf5", ".h5")
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


def is_hdf5(path: Path) -> bool:
    """Return whether a file name has an HDF5 suffix."""
    return path.suffix.lower() in HDF5_SUFFIXES


def read_hdf5(
    path: str | Path, *, metric: str | None = None, limit: int | None = None, queries: int | None = None
) -> VectorSet:
    """Read vectors, queries and their neighbours from an HDF5 file.

    `limit` and `queries` read only the first vectors and queries. Neighbours are dropped if `limit` is given, since
    they refer to all vectors. Files without the attribute `distance` must have it in their name:
    `sift-128-euclidean.hdf5`.
    """
    place = Path(path)
    with _open_hdf5(place) as file:
        said = file.attrs.get("distance")
        told = said.decode() if isinstance(said, bytes) else said if isinstance(said, str) else None
        told = told or next((word for word in METRICS_BY_NAME if place.stem.lower().endswith(f"-{word}")), None)
        if told is not None and told.lower() not in METRICS_BY_NAME:
            raise BadInput(f"its distance is {told!r}", file=str(path), hint=f"known are {', '.join(METRICS_BY_NAME)}")
        known = metric or (METRICS_BY_NAME[told.lower()] if told else None)
        if known is None:
            raise BadInput("does not say its distance", file=str(path), hint="name the metric: l2, cosine or ip")
        base = _read_hdf5_rows(file, "train", limit, place)
        asked = _read_hdf5_rows(file, "test", queries, place)
        if base.shape[1] != asked.shape[1]:
            what = f"`train` has {base.shape[1]} dimensions and `test` has {asked.shape[1]}"
            raise BadInput(what, file=str(path))
        # Neighbours by one metric are not valid for another.
        ours = "neighbors" in file and told is not None and METRICS_BY_NAME[told.lower()] == known
        near = _read_hdf5_rows(file, "neighbors", queries, place).astype(np.int64) if ours and limit is None else None
    return VectorSet(place.stem, base, asked, known, neighbours=near)


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtra("an HDF5 file", "hdf5") from None
    return h5py


@contextmanager
def _open_hdf5(path: Path) -> Iterator[Any]:
    h5py = _import_h5py()
    if not path.exists():
        raise BadInput("cannot be read as HDF5 (no such file)", file=str(path))
    with wrap_library_errors(str(path), what="cannot be read as HDF5"), h5py.File(path, "r") as file:
        yield file


def _read_hdf5_rows(file: Any, name: str, limit: int | None, path: Path) -> Any:
    h5py = _import_h5py()
    if name not in file:
        there = ", ".join(sorted(file)) or "nothing"
        hint = "files of ann-benchmarks have `train`, `test`, `neighbors` and `distances`"
        raise BadInput(f"has no `{name}`, but {there}", file=str(path), hint=hint)
    found = file[name]
    if not isinstance(found, h5py.Dataset) or found.ndim != 2 or found.dtype.kind not in "fiu" or not all(found.shape):
        raise BadInput(f"`{name}` is no table of numbers", file=str(path), hint="sparse and ragged sets are not read")
    rows = found[:limit]
    if (row := first_bad_row(rows)) is not None:
        raise BadInput(f"row {row} of `{name}` has a NaN or an infinity", file=str(path))
    return rows if name == "neighbors" else np.ascontiguousarray(rows, np.float32)
