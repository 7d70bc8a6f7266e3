"""Write files of vectors for tests, in the formats that ragauge reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.files.parquet import write_parquet
from ragauge.files.source import InputFile
from ragauge.files.vectors import BIG_ANN_TYPES, TEXMEX_TYPES
from ragauge.files.workspace import atomic_write
from ragauge.store_benchmarks.results import ExactNeighbours, VectorSet


def write_vectors(path: str | Path, vectors: Any, ids: Sequence[str] = ()) -> None:
    """Write rows in the format of the file ending; ids in Parquet only."""
    import polars as pl

    ending, matrix = InputFile(str(path)).ending, np.ascontiguousarray(vectors)
    with atomic_write(str(path)) as out:
        if ending in TEXMEX_TYPES:
            rows = matrix.astype(TEXMEX_TYPES[ending])
            out.write(b"".join(np.array(rows.shape[1], "<i4").tobytes() + row.tobytes() for row in rows))
        elif ending in BIG_ANN_TYPES:
            out.write(np.array(matrix.shape, "<u4").tobytes() + matrix.astype(BIG_ANN_TYPES[ending]).tobytes())
        elif ending == ".npy":
            # `np.save` bypasses a compressing file object and writes to the underlying file.
            np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(matrix))
            out.write(matrix.data)
        else:
            columns = {"id": list(ids)} if ids else {}
            write_parquet(pl.DataFrame({**columns, "vector": pl.Series(matrix)}), out)


def write_hdf5(path: Path, data: VectorSet, truth: ExactNeighbours) -> None:
    """Write vectors and their neighbours in the layout of ann-benchmarks."""
    import h5py

    with h5py.File(path, "w") as file:
        file.attrs["distance"] = {"l2": "euclidean", "cosine": "angular", "ip": "dot"}[data.metric]
        file.create_dataset("train", data=data.base)
        file.create_dataset("test", data=data.queries)
        file.create_dataset("neighbors", data=truth.neighbours.astype(np.int32))
        file.create_dataset("distances", data=truth.distances.astype(np.float32))


def write_external_hdf5(path: Path, vectors: Any) -> None:
    """Write a file whose tables are in other files: an external link, and external storage."""
    import h5py

    with h5py.File(path, "w") as file:
        file.attrs["distance"] = "euclidean"
        file["train"] = h5py.ExternalLink(str(path.with_name("toy-euclidean.hdf5")), "train")
        file.create_dataset(
            "test", vectors.shape, "f4", external=[(str(path.with_name("qrels.txt")), 0, vectors.nbytes)]
        )
