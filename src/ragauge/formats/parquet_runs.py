"""Runs in Parquet, one file or a folder of many: read a piece at a time, and given away in parts of whole queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ragauge.errors import BadInput
from ragauge.formats.columns import DISTANCE, RANK, SCORE, checked, find, header, run_columns
from ragauge.formats.files import Source, in_order, library_errors
from ragauge.formats.parquet import scan_parquet
from ragauge.records import Prepare, as_it_is

if TYPE_CHECKING:
    import polars as pl

ROWS = 1 << 20
"""The rows of a piece: enough for the reader's speed, few enough for bounded memory."""
SMALL = 4 << 20
"""A file of so few bytes is one piece, and nobody asks beforehand how many rows it has."""
PIECES = 2
"""The pieces of a part."""
KINDS = {"score": SCORE, "distance": DISTANCE, "rank": RANK}
"""What documents are ordered by: the first of these that a file has."""
MISSING = "__HIVE_DEFAULT_PARTITION__"
"""The name of a folder whose rows have no value."""
FEW = 1 << 12
"""The rows that are read first where the end of a query is looked for; most end within them."""


class Piece(NamedTuple):
    """Some rows of a file."""

    path: str
    begin: int = 0
    rows: int | None = None
    """None for all."""
    values: tuple[tuple[str, str | None], ...] = ()
    """Columns that the names of its folders tell: `query_id=q7`."""
    share: float = 1.0
    """How much of a usual piece it is."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return Source(self.path).label

    def read(self) -> pl.DataFrame:
        """The columns query, doc, score, and rank where there is one."""
        with _told(self.path):
            table = run_columns(self._table(), self.label).lazy().collect()
        return checked(table, self.label, "score", None, before=self.begin)

    def queries(self) -> pl.Series:
        """The query of each row."""
        with _told(self.path):
            return run_columns(self._table(), self.label).lazy().select("query").collect()["query"]

    def cut(self, at: int) -> tuple[Piece, Piece]:
        """The first so many rows, and the rest."""
        left = self.height - at
        return self._replace(rows=at), self._replace(begin=self.begin + at, rows=left)

    @property
    def height(self) -> int:
        """How many rows it has."""
        return _rows(self.path) if self.rows is None else self.rows

    def _table(self) -> pl.LazyFrame:
        import polars as pl

        table = scan_parquet(self.path, self.label)
        there = {name.strip().lower() for name in table.collect_schema().names()}
        told = [pl.lit(value, pl.String).alias(name) for name, value in self.values if name.lower() not in there]
        return table.with_columns(told).slice(self.begin, self.rows)


@dataclass(frozen=True, eq=False)
class ParquetRun:
    """A run in pieces, or a part of one that has whole queries only."""

    name: str
    pieces: Sequence[Piece]

    def frames(self, prepare: Prepare = as_it_is) -> Iterator[pl.DataFrame]:
        """The columns query, doc, score (and rank), a piece at a time, read ahead on threads."""
        yield from in_order(lambda _, piece: prepare(piece.read()), iter(self.pieces))

    def parts(self) -> Iterator[ParquetRun]:
        """The run in parts, cut between queries; nothing is read for that but the queries around each cut."""
        part: list[Piece] = []
        size = 0.0
        for piece in self.pieces:
            rest = piece
            if size >= PIECES and (last := next((one for one in reversed(part) if one.height), None)):
                goes_on = _going_on(last.cut(last.height - 1)[1].queries()[0], piece)
                own, rest = piece.cut(goes_on)
                part += [own] if goes_on else []
                if not rest.height:
                    continue
                yield self._part(part)
                part, size = [], 0.0
            part.append(rest)
            size += piece.share
        if part:
            yield self._part(part)

    def _part(self, pieces: Sequence[Piece]) -> ParquetRun:
        """Whoever gets a part need not be in this folder."""
        return ParquetRun(self.name, [one._replace(path=str(Path(one.path).absolute())) for one in pieces])


def parquet_run(path: str) -> ParquetRun:
    """The run in a Parquet file, or in all those of a folder, in the order of their names."""
    place = Path(path)
    if not place.is_dir():
        return ParquetRun(Source(path).stem, _pieces(place, ()))
    pieces = [piece for file in _files(place) for piece in _pieces(file, _told_by_folders(file.relative_to(place)))]
    _refuse_other_scores(path, pieces)
    return ParquetRun(Source(path).stem, pieces)


def is_parted(folder: Path) -> bool:
    """Whether a folder is one run in several Parquet files, as Dask, Spark and polars write them.

    They are in the folder itself, or in folders named `column=value`; a file of `ragauge run` is not one of them.
    """
    return not (folder / "manifest.json").exists() and next(_files(folder), None) is not None


def _files(folder: Path) -> Iterator[Path]:
    own = ("run.parquet", "repeats.parquet", "timings.parquet", "judgments.parquet")
    for one in sorted(folder.iterdir()):
        if one.name.startswith(("_", ".")):  # notes that writers leave beside their files
            continue
        if one.is_dir() and "=" in one.name:
            yield from _files(one)
        elif one.suffix == ".parquet" and one.name not in own:
            yield one


def _told_by_folders(file: Path) -> tuple[tuple[str, str | None], ...]:
    """What the names of folders say; a value that is missing has a name of its own.

    >>> _told_by_folders(Path("query_id=q%207/part-0.parquet"))
    (('query_id', 'q 7'),)
    """
    parts = (name.partition("=") for name in file.parts[:-1])
    return tuple((name, None if value in ("", MISSING) else unquote(value)) for name, _, value in parts)


def _refuse_other_scores(path: str, pieces: Sequence[Piece]) -> None:
    """Refuse files of one run of which some have scores and others distances or ranks: they cannot be compared."""
    first: tuple[str, str] | None = None
    for file in dict.fromkeys(piece.path for piece in pieces):
        names = header(Source(file), "parquet")
        kind = next((kind for kind, known in KINDS.items() if find(names, known) is not None), "")
        if first is not None and kind and kind != first[0]:
            raise BadInput(
                f"has {kind}s, and {first[1]} has {first[0]}s",
                file=Source(file).label,
                hint=f"are the files in {path} of one run?",
            )
        first = first or ((kind, Path(file).name) if kind else None)


def _pieces(file: Path, values: tuple[tuple[str, str | None], ...]) -> list[Piece]:
    path = str(file)
    size = file.stat().st_size if path != "-" and file.is_file() else SMALL + 1
    if size <= SMALL:
        return [Piece(path, values=values, share=size / SMALL)]
    total = _rows(path)
    return [Piece(path, begin, min(ROWS, total - begin), values) for begin in range(0, total, ROWS)]


def _rows(path: str) -> int:
    import polars as pl

    with _told(path):
        return int(scan_parquet(path, Source(path).label).select(pl.len()).collect().item())


def _going_on(query: str, piece: Piece) -> int:
    """With how many rows of a piece a query goes on that the rows before it end with."""
    few = FEW
    while True:
        first, rest = piece.cut(min(few, piece.height))
        other = first.queries().ne_missing(query)
        if other.any():
            return int(other.arg_max() or 0)
        if not rest.height:
            return piece.height
        few *= 16


def _told(path: str) -> AbstractContextManager[None]:
    """Say which file cannot be read, and why."""
    hint = None if Path(path).exists() else "workers read files under the same path: are they there for all of them?"
    return library_errors(Source(path).label, hint=hint)
