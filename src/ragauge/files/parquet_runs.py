"""Runs in Parquet, in one file or a folder of many.

They are read one row group at a time and can be split into parts of whole queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ragauge.core.errors import BadInput
from ragauge.core.ids import ID_BLANKS
from ragauge.core.records import FrameTransform, identity_transform
from ragauge.files.parquet import scan_parquet
from ragauge.files.source import InputFile, map_in_order, wrap_library_errors
from ragauge.files.table_files import (
    DISTANCE_COLUMNS,
    RANK_COLUMNS,
    SCORE_COLUMNS,
    check_no_nulls,
    find_column,
    read_header,
    select_run_columns,
)

if TYPE_CHECKING:
    import polars as pl


ROWS_PER_GROUP = 1 << 20
"""Maximum number of rows per group: enough for fast reading, few enough for bounded memory."""
SINGLE_GROUP_BYTES = 4 << 20
"""Maximum size in bytes of a file that is one group, without counting its rows first."""
GROUPS_PER_PART = 2
"""Number of full row groups per part."""
ORDER_COLUMNS = {"score": SCORE_COLUMNS, "distance": DISTANCE_COLUMNS, "rank": RANK_COLUMNS}
"""Columns that order the documents; the first kind that a file has is used."""
MISSING_PARTITION_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Folder value that means a missing value, as Hive writes it."""
FIRST_ROWS_READ = 1 << 12
"""Number of rows that are read first to find the end of a query; most queries end within them."""


class RowGroup(NamedTuple):
    """A range of rows of a Parquet file."""

    path: str
    begin: int = 0
    rows: int | None = None
    """Number of rows; None for all."""
    values: tuple[tuple[str, str | None], ...] = ()
    """Columns given by the names of folders, such as `query_id=q7`."""
    share: float = 1.0
    """Size relative to a full row group."""

    @property
    def label(self) -> str:
        """Name of the file in messages."""
        return InputFile(self.path).label

    def read(self) -> pl.DataFrame:
        """Read the columns query, doc, score, and rank if present."""
        with _wrap_read_errors(self.path):
            table = select_run_columns(self._scan_rows(), self.label).lazy().collect()
        return check_no_nulls(table, self.label, "score", None, before=self.begin)

    def queries(self) -> pl.Series:
        """Read the query of each row."""
        with _wrap_read_errors(self.path):
            queries = select_run_columns(self._scan_rows(), self.label).lazy().select("query").collect()["query"]
        return queries.str.strip_chars(ID_BLANKS)

    def cut(self, n_first: int) -> tuple[RowGroup, RowGroup]:
        """Split into the first `n_first` rows and the rest."""
        remaining = self.height - n_first
        return self._replace(rows=n_first), self._replace(begin=self.begin + n_first, rows=remaining)

    @property
    def height(self) -> int:
        """Number of rows."""
        return _count_rows(self.path) if self.rows is None else self.rows

    def _scan_rows(self) -> pl.LazyFrame:
        import polars as pl

        table = scan_parquet(self.path, self.label)
        existing = {name.strip().lower() for name in table.collect_schema().names()}
        constants = [
            pl.lit(value, pl.String).alias(name) for name, value in self.values if name.lower() not in existing
        ]
        return table.with_columns(constants).slice(self.begin, self.rows)


@dataclass(frozen=True, eq=False)
class ParquetRun:
    """A run in row groups, or a part of a run with whole queries only."""

    name: str
    pieces: Sequence[RowGroup]

    def frames(self, prepare: FrameTransform = identity_transform) -> Iterator[pl.DataFrame]:
        """Yield the columns query, doc, score (and rank) of each row group.

        Threads read ahead.
        """
        yield from map_in_order(lambda _, piece: prepare(piece.read()), iter(self.pieces))

    def parts(self) -> Iterator[ParquetRun]:
        """Split the run into parts between queries.

        Only the queries around each split are read for that.
        """
        part: list[RowGroup] = []
        size = 0.0
        for piece in self.pieces:
            remaining = piece
            if size >= GROUPS_PER_PART and (
                last_group := next((candidate for candidate in reversed(part) if candidate.height), None)
            ):
                n_continued = _count_continued_rows(last_group.cut(last_group.height - 1)[1].queries()[0], piece)
                continued, remaining = piece.cut(n_continued)
                part += [continued] if n_continued else []
                if not remaining.height:
                    continue
                yield self._make_part(part)
                part, size = [], 0.0
            part.append(remaining)
            size += piece.share
        if part:
            yield self._make_part(part)

    def _make_part(self, pieces: Sequence[RowGroup]) -> ParquetRun:
        """Build a part with absolute paths: a worker may run in another folder."""
        return ParquetRun(self.name, [group._replace(path=str(Path(group.path).absolute())) for group in pieces])


def open_parquet_run(path: str) -> ParquetRun:
    """Open the run in a Parquet file, or in all files of a folder.

    Files are read in the order of their names.
    """
    location = Path(path)
    if not location.is_dir():
        return ParquetRun(InputFile(path).stem, _split_into_row_groups(location, ()))
    if (unread := find_unread_folder(location)) is not None:
        raise BadInput(
            f"the Parquet files in {unread.relative_to(location)}/ are not read; expected the files of one run in one "
            f"folder, or in folders named column=value",
            file=path,
            hint=f"move the files of the run into {path}",
        )
    pieces = [
        piece
        for file in _find_parquet_files(location)
        for piece in _split_into_row_groups(file, _partition_values(file.relative_to(location)))
    ]
    _check_same_order_column(path, pieces)
    return ParquetRun(InputFile(path).stem, pieces)


def is_multi_file_run(folder: Path) -> bool:
    """Return whether a folder is one run in several files.

    Dask, Spark and polars write such folders. The files are in the folder itself or in folders named `column=value`.
    Files of `ragauge run` do not count.
    """
    return not (folder / "manifest.json").exists() and next(_find_parquet_files(folder), None) is not None


def _find_parquet_files(folder: Path) -> Iterator[Path]:
    entries = [entry for entry in sorted(folder.iterdir()) if not _is_metadata(entry)]
    own_names = ("repeats.parquet", "timings.parquet", "judgments.parquet", "queries.parquet")
    files = {entry.name for entry in entries if _is_parquet(entry)}.difference(own_names)
    if files == {"run.parquet"} or (folder / "timings.parquet").exists():
        files.discard("run.parquet")  # a run folder without its manifest
    for entry in entries:
        if entry.name in files:
            yield entry
        elif entry.is_dir() and "=" in entry.name:
            yield from _find_parquet_files(entry)


def _is_metadata(entry: Path) -> bool:
    """Return whether a file or folder has metadata of a writer."""
    return entry.name.startswith(("_", "."))


def _is_parquet(entry: Path) -> bool:
    return entry.suffix.lower() == ".parquet" and not entry.is_dir()


def find_unread_folder(folder: Path) -> Path | None:
    """Find a sub-folder with Parquet files whose name is not `column=value`, so that they are not read."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not _is_metadata(entry):
            if "=" in entry.name:
                if (inner := find_unread_folder(entry)) is not None:
                    return inner
            elif any(_is_parquet(file) for file in entry.rglob("*")):
                return entry
    return None


def _partition_values(file: Path) -> tuple[tuple[str, str | None], ...]:
    """Parse the column values in folder names; a missing value becomes None.

    >>> _partition_values(Path("query_id=q%207/part-0.parquet"))
    (('query_id', 'q 7'),)
    """
    parts = (name.partition("=") for name in file.parts[:-1])
    return tuple((name, None if value in ("", MISSING_PARTITION_VALUE) else unquote(value)) for name, _, value in parts)


def _check_same_order_column(path: str, pieces: Sequence[RowGroup]) -> None:
    """Raise BadInput if some files have scores and others distances or ranks.

    Such values cannot be compared.
    """
    first: tuple[str, str] | None = None
    for file in dict.fromkeys(piece.path for piece in pieces):
        names = read_header(InputFile(file), "parquet")
        kind = next((kind for kind, aliases in ORDER_COLUMNS.items() if find_column(names, aliases) is not None), "")
        if first is not None and kind and kind != first[0]:
            raise BadInput(
                f"has {kind}s, and {first[1]} has {first[0]}s",
                file=InputFile(file).label,
                hint=f"are the files in {path} of one run?",
            )
        first = first or ((kind, Path(file).name) if kind else None)


def _split_into_row_groups(file: Path, values: tuple[tuple[str, str | None], ...]) -> list[RowGroup]:
    path = str(file)
    size = file.stat().st_size if path != "-" and file.is_file() else SINGLE_GROUP_BYTES + 1
    if size <= SINGLE_GROUP_BYTES:
        return [RowGroup(path, values=values, share=size / SINGLE_GROUP_BYTES)]
    total = _count_rows(path)
    return [
        RowGroup(path, begin, min(ROWS_PER_GROUP, total - begin), values) for begin in range(0, total, ROWS_PER_GROUP)
    ]


def _count_rows(path: str) -> int:
    import polars as pl

    with _wrap_read_errors(path):
        return int(scan_parquet(path, InputFile(path).label).select(pl.len()).collect().item())


def _count_continued_rows(query: str, piece: RowGroup) -> int:
    """Count the leading rows of a row group that belong to a query."""
    n_rows = FIRST_ROWS_READ
    while True:
        first, remaining = piece.cut(min(n_rows, piece.height))
        is_other_query = first.queries().ne_missing(query)
        if is_other_query.any():
            return int(is_other_query.arg_max() or 0)
        if not remaining.height:
            return piece.height
        n_rows *= 16


def _wrap_read_errors(path: str) -> AbstractContextManager[None]:
    """Raise BadInput with the file name if it cannot be read."""
    hint = None if Path(path).exists() else "workers read files under the same path: are they there for all of them?"
    return wrap_library_errors(InputFile(path).label, hint=hint)
