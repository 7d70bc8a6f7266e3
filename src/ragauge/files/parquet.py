"""Parquet files, read after a check of their structure, because a corrupt one can abort the process.

polars allocates what the headers of a file ask for. A page that claims a negative number of values makes it ask for
2^61 bytes, and the process ends with SIGABRT. So the footer and the page headers are read first, and their sizes are
compared with those of the file. Any error of polars after that names the file.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput
from ragauge.files.source import wrap_library_errors

if TYPE_CHECKING:
    import polars as pl


PARQUET_MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 16 << 20
"""Maximum size in bytes of a footer that is checked. A larger one takes too long, and only polars checks it."""
PAGE_HEADER_BYTES = 1 << 10
"""Number of bytes that are read first of a page header; most are shorter."""
MAX_NESTING = 32
"""Maximum number of nested structures in a footer."""
HASH_BLOCK_BYTES = 1 << 20
CHECKSUM_KEY, BLANK_CHECKSUM = "ragauge.blake2b", b"0" * 32
"""Key of the checksum in a footer, and the placeholder of its value while it is computed."""
_VERIFIED_FILES: set[tuple[int, int, int, int]] = set()
"""Files whose checksum was correct: device, inode, size and modification time."""


def read_parquet(
    source: str | Path | bytes,
    label: str | None = None,
    *,
    columns: Mapping[str, str] = EMPTY_MAPPING,
    rows: int | None = None,
) -> pl.DataFrame:
    """Read a Parquet file from a path or from its bytes.

    `columns` maps required columns to their type, `text` or `number`. `rows` is the maximum number of rows to read.
    """
    import polars as pl

    name = label or ("<bytes>" if isinstance(source, bytes) else str(source))
    check_structure(source, name)
    with wrap_library_errors(name):
        data = io.BytesIO(source) if isinstance(source, bytes) else source
        table = pl.read_parquet(data, n_rows=rows, glob=False)
    check_column_types(table, columns, name)
    return table


def check_column_types(table: pl.DataFrame, columns: Mapping[str, str], label: str, *, complete: bool = True) -> None:
    """Raise BadInput if a column is missing or has another type.

    Types are `text` and `number`. With `complete`, also if a value is missing.
    """
    import polars as pl

    for column, kind in columns.items():
        if column not in table.columns:
            names = ", ".join(table.columns) or "none"
            raise BadInput(f"has no column `{column}`; its columns: {names}", file=label)
        dtype = table[column].dtype
        if not (dtype.is_numeric() if kind == "number" else dtype == pl.String):
            raise BadInput(f"column `{column}` must hold {kind}s, got {dtype}", file=label)
        if complete and table[column].null_count():
            raise BadInput(f"column `{column}` lacks values", file=label)


def scan_parquet(path: str | Path, label: str | None = None) -> pl.LazyFrame:
    """Open a Parquet file lazily after a check of its structure.

    Call `collect` within `wrap_library_errors`.
    """
    import polars as pl

    check_structure(path, label or str(path))
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def read_parquet_columns(path: str | Path, label: str | None = None) -> list[str]:
    """Read the column names of a Parquet file."""
    with wrap_library_errors(label or str(path)):
        return scan_parquet(path, label).collect_schema().names()


def check_structure(source: str | Path | bytes, label: str) -> None:
    """Raise BadInput for a Parquet file whose headers do not fit its size.

    Files that are not Parquet at all pass: polars refuses them.
    """
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            tail = file.read(8)
            length = int.from_bytes(tail[:4], "little")
            if tail[4:] != PARQUET_MAGIC or length > MAX_FOOTER_BYTES:
                return
            if length + 12 > size:
                raise _CorruptParquet("its footer is longer than the file")
            file.seek(size - 8 - length)
            footer = file.read(length)
            _check_footer(_ThriftReader(footer).structure(), file, size - 8 - length)
            _check_checksum(file, footer, size - 8 - length, source)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror or error})", file=label) from None
    except _CorruptParquet as error:
        raise BadInput(f"the Parquet file is corrupt or incomplete ({error})", file=label) from None


def write_parquet(table: pl.DataFrame, out: IO[bytes]) -> None:
    """Write a table as Parquet, with a checksum of the whole file in its footer.

    All readers of this module verify the checksum.
    """
    buffer = io.BytesIO()
    table.write_parquet(buffer, metadata={CHECKSUM_KEY: BLANK_CHECKSUM.decode()})
    data = buffer.getbuffer()
    position = bytes(data[-MAX_FOOTER_BYTES:]).rfind(BLANK_CHECKSUM) + max(0, len(data) - MAX_FOOTER_BYTES)
    data[position : position + len(BLANK_CHECKSUM)] = _compute_checksum(buffer, position)
    out.write(data)


def _compute_checksum(file: IO[bytes], position: int) -> bytes:
    """Compute the checksum of a file.

    `position` is the position of the checksum, which counts as the placeholder.
    """
    checksum = hashlib.blake2b(digest_size=len(BLANK_CHECKSUM) // 2)
    file.seek(0)
    remaining = position
    while remaining and (block := file.read(min(HASH_BLOCK_BYTES, remaining))):
        checksum.update(block)
        remaining -= len(block)
    checksum.update(BLANK_CHECKSUM)
    file.seek(position + len(BLANK_CHECKSUM))
    while block := file.read(HASH_BLOCK_BYTES):
        checksum.update(block)
    return checksum.hexdigest().encode()


def _check_checksum(file: IO[bytes], footer: bytes, begin: int, source: str | Path | bytes) -> None:
    """Raise _CorruptParquet if a file does not match its checksum.

    A file without a checksum passes.
    """
    match = re.search(re.escape(CHECKSUM_KEY.encode()) + rb"\x18\x20([0-9a-f]{32})", footer)
    if match is None:
        return
    status = None if isinstance(source, bytes) else os.fstat(file.fileno())
    key = None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if key in _VERIFIED_FILES:
        return
    if _compute_checksum(file, begin + match.start(1)) != match[1]:
        raise _CorruptParquet("its checksum does not match")
    if key is not None:
        _VERIFIED_FILES.add(key)


class _CorruptParquet(Exception):
    """An invalid header."""


def _check_footer(footer: Any, file: IO[bytes], end: int) -> None:
    groups = _list_field(footer, 4)
    rows = [_count_field(group, 3, "rows of a row group") for group in groups]
    if _count_field(footer, 3, "rows") != sum(rows):
        raise _CorruptParquet("the numbers of rows do not add up")
    for group in groups:
        for column in _list_field(group, 1):
            column_metadata = column.get(3) if isinstance(column, dict) else None
            if not isinstance(column_metadata, dict):
                raise _CorruptParquet("a column has no description")
            values, size = (
                _count_field(column_metadata, 5, "values of a column"),
                _count_field(column_metadata, 7, "bytes of a column"),
            )
            begin = _count_field(column_metadata, 9, "first byte of a column")
            if column_metadata.get(11):
                begin = min(begin, _count_field(column_metadata, 11, "first byte of a dictionary"))
            if values and (begin < len(PARQUET_MAGIC) or begin + size > end):
                raise _CorruptParquet("a column is outside of the file")
            _check_pages(file, begin, end, values)


def _check_pages(file: IO[bytes], begin: int, end: int, values: int) -> None:
    """Walk the pages of a column from header to header until its values are complete."""
    n_read = 0
    while n_read < values:
        header, length = _read_page_header(file, begin, end)
        size = _count_field(header, 3, "bytes of a page")
        _count_field(header, 2, "bytes of a page")
        for part in (5, 7, 8):
            page = header.get(part)
            if page is not None:
                number = _count_field(page, 1, "values of a page")
                n_read += number if part != 7 else 0
                for detail in (2, 3, 5, 6) if part == 8 else ():
                    _count_field(page, detail, "sizes of a page")
        begin += length + size
        if begin > end or n_read > values:
            raise _CorruptParquet("the pages of a column do not fit")
        if not length + size:
            raise _CorruptParquet("a page is empty")


def _read_page_header(file: IO[bytes], begin: int, end: int) -> tuple[dict[int, Any], int]:
    size = PAGE_HEADER_BYTES
    while True:
        file.seek(begin)
        data = file.read(min(size, max(0, end - begin)))
        reader = _ThriftReader(data)
        try:
            return reader.structure(), reader.at
        except _CorruptParquet:
            if len(data) < size:
                raise
            size *= 16


def _list_field(structure: Any, field: int) -> list[Any]:
    items = structure.get(field) if isinstance(structure, dict) else None
    if not isinstance(items, list):
        raise _CorruptParquet("a list is missing")
    return items


def _count_field(structure: Any, field: int, noun: str) -> int:
    count = structure.get(field) if isinstance(structure, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise _CorruptParquet(f"the number of {noun} is {'missing' if count is None else count}")
    return count


class _ThriftReader:
    """A reader of Thrift's compact protocol: structures as dictionaries by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def structure(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._read_byte():
            number = number + (head >> 4) if head >> 4 else self._read_signed()
            fields[number] = self._read_value(head & 15, depth, inside=False)
        return fields

    def _read_byte(self) -> int:
        if self.at >= len(self._data):
            raise _CorruptParquet("a header ends too early")
        self.at += 1
        return self._data[self.at - 1]

    def _read_unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise _CorruptParquet("a number is too long")

    def _read_signed(self) -> int:
        value = self._read_unsigned()
        return (value >> 1) ^ -(value & 1)

    def _read_bytes(self, size: int) -> bytes:
        begin, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise _CorruptParquet("a header ends too early")
        return self._data[begin : self.at]

    def _read_value(self, kind: int, depth: int, *, inside: bool) -> Any:
        if depth > MAX_NESTING:
            raise _CorruptParquet("too many nested structures")
        if kind in (1, 2):
            return self._read_byte() == 1 if inside else kind == 1
        if kind == 3:
            return self._read_byte()
        if kind in (4, 5, 6):
            return self._read_signed()
        if kind == 7:
            return self._read_bytes(8)
        if kind == 8:
            return self._read_bytes(self._read_unsigned())
        if kind in (9, 10):
            head = self._read_byte()
            size = head >> 4 if head >> 4 != 15 else self._read_unsigned()
            if size > len(self._data):
                raise _CorruptParquet("a list is longer than its header")
            return [self._read_value(head & 15, depth + 1, inside=True) for _ in range(size)]
        if kind == 12:
            return self.structure(depth + 1)
        raise _CorruptParquet(f"unknown type {kind}")
