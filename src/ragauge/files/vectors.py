"""Vector files, read and written: fvecs, ivecs, bvecs, fbin, ibin, u8bin, i8bin, npy and Parquet, plain or as .gz.

TEXMEX files (`.fvecs` …) have the dimension as a 32-bit integer before every row. Files of the big-ann benchmarks
(`.fbin` …) begin with the number of rows and the dimension; their neighbour lists end with the distances. All are
little-endian. With a row limit, only these rows are read.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import BadInput, UnknownName
from ragauge.files.parquet import scan_parquet
from ragauge.files.source import BoundedReader, InputFile, wrap_library_errors

Array = NDArray[Any]

TEXMEX_TYPES = {".fvecs": "<f4", ".ivecs": "<i4", ".bvecs": "u1"}
BIG_ANN_TYPES = {".fbin": "<f4", ".ibin": "<i4", ".u8bin": "u1", ".i8bin": "i1"}
VECTOR_FILE_ENDINGS = (*TEXMEX_TYPES, *BIG_ANN_TYPES, ".npy", ".parquet")
MAX_DIMENSIONS = 1 << 20
"""Maximum dimension; a larger number at the start of a file means that the format is another one."""
ROWS_PER_BLOCK = 65_536
ID_COLUMNS = ("id", "_id", "doc_id", "docid", "row_id")
VECTOR_COLUMNS = ("vector", "embedding", "embeddings", "emb", "values")


class VectorFile(NamedTuple):
    """Rows of a vector file in their stored type, and their ids if the file has any."""

    vectors: Array
    ids: Sequence[str] = ()


def read_vectors(path: str | Path, *, max_rows: int | None = None, column: str | None = None) -> VectorFile:
    """Read the first `max_rows` rows of a vector file, or all, in their stored type.

    `column` selects the vector column of a Parquet file if several are possible.
    """
    source = InputFile(str(path))
    if max_rows is not None and max_rows < 1:
        raise BadInput(f"max_rows must be at least 1, got {max_rows}")
    if not Path(path).is_file():
        with source.open():
            raise BadInput("is not a vector file", file=source.label)
    if source.ending in TEXMEX_TYPES:
        file = VectorFile(_read_texmex(source, TEXMEX_TYPES[source.ending], max_rows))
    elif source.ending in BIG_ANN_TYPES:
        file = VectorFile(_read_big_ann(source, BIG_ANN_TYPES[source.ending], max_rows))
    elif source.ending == ".npy":
        file = VectorFile(_read_npy(source, max_rows))
    elif source.ending == ".parquet":
        file = _read_vector_parquet(source, max_rows, column)
    else:
        raise _unknown_format_error(source)
    if (row := first_bad_row(file.vectors)) is not None:
        raise BadInput(f"row {row} has a NaN or an infinity", file=source.label)
    return file


def first_bad_row(vectors: Array, kind: Any = None) -> int | None:
    """Find the first row with a NaN or infinity; None if there is none.

    With `kind`, values count after conversion to that type.

    >>> (first_bad_row(np.array([[1.0, 2.0], [3.0, np.inf]])), first_bad_row(np.array([[1e300]])),
    ...  first_bad_row(np.array([[1e300]]), "f4"))
    (1, None, 0)
    """
    if vectors.dtype.kind != "f":
        return None
    # In blocks, because a memory-mapped file may be larger than memory.
    for start in range(0, len(vectors), ROWS_PER_BLOCK):
        part = vectors[start : start + ROWS_PER_BLOCK]
        with np.errstate(over="ignore"):
            is_bad = ~np.isfinite(part if kind is None else part.astype(kind, copy=False)).all(axis=1)
        if is_bad.any():
            return start + int(is_bad.argmax())
    return None


def is_vector_file(path: Path) -> bool:
    """Return whether a file has an ending of vector files."""
    return InputFile(str(path)).ending in VECTOR_FILE_ENDINGS


def has_vectors(path: Path) -> bool:
    """Return whether a file is one of vectors. A Parquet file may have texts instead."""
    if InputFile(str(path)).ending != ".parquet" or not path.is_file():
        return is_vector_file(path)
    with wrap_library_errors(str(path)):
        schema = scan_parquet(path).collect_schema()
    return any(_is_numeric_list(kind) for kind in schema.values())


def _unknown_format_error(source: InputFile) -> UnknownName:
    return UnknownName(
        "vector format",
        source.ending or source.stem,
        VECTOR_FILE_ENDINGS,
    )


@contextmanager
def _open_bytes(source: InputFile) -> Iterator[IO[bytes]]:
    """Open all decompressed bytes.

    What looks like a byte order mark may be a number here.
    """
    try:
        with Path(source.path).open("rb") as raw:
            if not _is_gzip(source):
                yield raw
                return
            with gzip.open(raw) as unzipped:
                # Read only available bytes: the first rows of a truncated file stay readable.
                yield io.BufferedReader(BoundedReader(unzipped.readinto1, raw, source.label))
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput(f"cannot be read to its end ({error})", file=source.label) from None


def _is_gzip(source: InputFile) -> bool:
    with Path(source.path).open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _read_body(source: InputFile, max_rows: int | None, size: int) -> NDArray[np.uint8]:
    """Read the bytes of `max_rows` rows; a plain file is memory-mapped."""
    if _is_gzip(source):
        with _open_bytes(source) as file:
            return np.frombuffer(file.read() if max_rows is None else file.read(max_rows * size), np.uint8)
    if not Path(source.path).stat().st_size:
        return np.empty(0, np.uint8)
    mapped: NDArray[np.uint8] = np.memmap(source.path, np.uint8, mode="r")
    return mapped if max_rows is None else mapped[: max_rows * size]


def _read_texmex(source: InputFile, kind: str, max_rows: int | None) -> Array:
    with _open_bytes(source) as file:
        first = file.read(4)
    if not first:
        raise BadInput("is empty", file=source.label)
    dimension = int.from_bytes(first, "little", signed=True)
    if len(first) < 4 or not 0 < dimension <= MAX_DIMENSIONS:
        raise BadInput(
            f"does not begin like a file of vectors: its first row would have {dimension} dimensions",
            file=source.label,
            hint=f"a {source.ending} file has the dimension before every row, as a 32-bit integer",
        )
    size = 4 + dimension * np.dtype(kind).itemsize
    body = _read_body(source, max_rows, size)
    rows = len(body) // size
    table = body[: rows * size].reshape(rows, size)
    dimensions = np.ascontiguousarray(table[:, :4]).view("<i4").ravel()
    # After a row of another length all rows are misaligned, so the first one is named.
    if (is_different := dimensions != dimension).any():
        row = int(is_different.argmax())
        message = f"row {row} (byte {row * size}) has {dimensions[row]} dimensions, the first has {dimension}"
        raise BadInput(message, file=source.label)
    if len(body) % size:
        raise BadInput(f"ends in the middle of row {rows} (byte {len(body)})", file=source.label)
    return _to_native_order(np.ascontiguousarray(table[:, 4:]).view(kind))


def _read_big_ann(source: InputFile, kind: str, max_rows: int | None) -> Array:
    with _open_bytes(source) as file:
        first = file.read(8)
    if len(first) < 8:
        raise BadInput(f"ends in its header (byte {len(first)})", file=source.label)
    rows, dimension = np.frombuffer(first, "<u4").tolist()
    if not 0 < dimension <= MAX_DIMENSIONS:
        raise BadInput(
            f"does not begin like a file of vectors: its header says {rows} rows of {dimension} dimensions",
            file=source.label,
            hint=f"a {source.ending} file begins with two 32-bit integers: rows and dimension",
        )
    size = dimension * np.dtype(kind).itemsize
    n_rows = rows if max_rows is None else min(rows, max_rows)
    is_cut = max_rows is not None and max_rows < rows
    # Without `max_rows`, map all bytes, to detect extra ones after the last row.
    body = _read_body(source, None if not is_cut else 1, 8 + n_rows * size)[8:]
    if len(body) < n_rows * size:
        message = f"ends in row {len(body) // size} (byte {len(body) + 8}) of {rows}, the number in its header"
        raise BadInput(message, file=source.label)
    extra = len(body) - n_rows * size
    if not is_cut and extra and not (source.ending == ".ibin" and extra == n_rows * size):
        raise BadInput(f"{extra} extra bytes after the last row (row {rows - 1})", file=source.label)
    return _to_native_order(body[: n_rows * size].view(kind).reshape(n_rows, dimension))


def _read_npy(source: InputFile, max_rows: int | None) -> Array:
    with _open_bytes(source) as file:
        if file.read(6) != b"\x93NUMPY":
            raise BadInput("does not begin like an .npy file", file=source.label)
    with wrap_library_errors(source.label, problem="cannot be read as an .npy file"):
        if _is_gzip(source):
            with _open_bytes(source) as file:
                array = np.load(io.BytesIO(file.read()), allow_pickle=False)
        else:
            array = np.load(source.path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        raise BadInput(
            f"holds an array of shape {array.shape} and type {array.dtype}",
            file=source.label,
            hint="expected one row of numbers per vector: shape (n, d)",
        )
    rows: Array = array if max_rows is None else array[:max_rows]
    return rows


def _read_vector_parquet(source: InputFile, max_rows: int | None, column: str | None) -> VectorFile:
    import polars as pl

    with wrap_library_errors(source.label, problem="cannot be read as Parquet"):
        table = scan_parquet(source.path, source.label)
        schema = table.collect_schema()
        name = _find_vector_column(schema, column, source.label)
        id_column = next((name for name in ID_COLUMNS if name in schema and not schema[name].is_nested()), None)
        table = table.select(name, *([id_column] if id_column else []))
        frame = (table if max_rows is None else table.head(max_rows)).collect()
    if not len(frame):
        raise BadInput("has no rows", file=source.label)
    values = frame[name]
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    sizes = values.list.len()
    dimension = sizes[0] or 0
    if not (sizes == dimension).fill_null(value=False).all() or not dimension:
        row = int((sizes != dimension).fill_null(value=True).arg_max() or 0)
        problem = "nothing" if not sizes[row] else f"{sizes[row]} dimensions, the first has {dimension}"
        raise BadInput(f"row {row} of the column {name!r} has {problem}", file=source.label)
    flat = values.explode()
    if flat.null_count():
        row = int(flat.is_null().arg_max() or 0) // dimension
        raise BadInput(f"row {row} of the column {name!r} has an empty value", file=source.label)
    matrix = np.ascontiguousarray(flat.to_numpy()).reshape(len(frame), dimension)
    if not id_column:
        return VectorFile(matrix)
    ids = frame[id_column].cast(pl.String)
    if ids.null_count():
        raise BadInput(f"row {ids.is_null().arg_max()} has no {id_column}", file=source.label)
    if ids.n_unique() < len(ids):
        repeated = int(ids.is_first_distinct().not_().arg_max() or 0)
        raise BadInput(f"row {repeated} has the {id_column} {ids[repeated]!r} of an earlier row", file=source.label)
    return VectorFile(matrix, ids.to_list())


def _is_numeric_list(kind: Any) -> bool:
    import polars as pl

    return isinstance(kind, pl.List | pl.Array) and bool(kind.inner.is_numeric())


def _find_vector_column(schema: Any, column: str | None, label: str) -> str:
    candidates: list[str] = [name for name, kind in schema.items() if _is_numeric_list(kind)]
    if column is not None:
        if column not in candidates:
            raise BadInput(
                f"the column {column!r} contains no vectors",
                file=label,
                hint=f"columns with vectors: {_quote_names(candidates)}",
            )
        return column
    usual_names = [name for name in candidates if name.lower() in VECTOR_COLUMNS]
    if len(candidates) == 1 or len(usual_names) == 1:
        return (usual_names or candidates)[0]
    if candidates:
        raise BadInput(
            f"several columns contain vectors: {_quote_names(candidates)}", file=label, hint="name one of them"
        )
    raise BadInput("no column contains lists of numbers", file=label, hint=f"it has {_quote_names(list(schema))}")


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _to_native_order(array: Array) -> Array:
    """Convert to the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
