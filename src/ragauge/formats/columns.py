"""Tables with named columns: CSV, TSV, JSONL, Parquet, and pandas or polars frames; names of many tools understood."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from ragauge.errors import BadInput, words_of
from ragauge.formats.files import Source
from ragauge.records import Prepare, as_it_is

if TYPE_CHECKING:
    import polars as pl

QUERY = ("query_id", "qid", "query-id", "queryid", "q_id", "topic_id", "query", "topic", "q")
DOC = (
    "doc_id",
    "docid",
    "docno",
    "corpus-id",
    "corpus_id",
    "document_id",
    "document",
    "doc",
    "pid",
    "passage_id",
    "did",
)
GRADE = (
    *("grade", "relevance", "rel", "label", "judgment", "judgement", "rating", "relevant", "is_relevant"),
    *("relevance_score", "relevance_grade", "gain", "value", "score"),
)
SCORE = ("score", "similarity", "sim", "relevance_score")
DISTANCE = ("distance", "dist")
RANK = ("rank", "position")
SUBTOPIC = ("subtopic", "subtopic_id", "intent")
SYSTEM = ("system", "method", "model", "agent")
TRIAL = ("trial", "trial_id", "repeat", "attempt", "sample", "sample_id", "seed")
TABLES = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Which ending is which kind of table."""
ROWS = 1 << 20


def find(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of `names` that is a column, case ignored."""
    lower = {column.strip().lower(): column for column in columns}
    return next((lower[name] for name in names if name in lower), None)


def is_header(fields: Sequence[str]) -> bool:
    """Whether a line names columns: a query column and a document column."""
    return find(fields, QUERY) is not None and find(fields, DOC) is not None


def header(source: Source, form: str) -> list[str]:
    """What the columns of a table are called, without reading the rest; of what is no table, nothing."""
    if form == "parquet":
        import polars as pl

        try:
            return list(pl.read_parquet_schema(source.path))
        except (OSError, pl.exceptions.PolarsError) as error:
            raise BadInput(f"cannot be read ({words_of(error)})", file=source.label) from None
    with source.open() as file:
        lines = (line.decode("utf-8", "replace") for line in file)
        try:
            if form == "jsonl":
                first = json.loads(next((line for line in lines if line.strip()), "{}"))
                return list(first) if isinstance(first, dict) else []
            return next((cells for _, cells in numbered_cells(lines, form, source.label)), [])
        except ValueError:
            return []


def numbered_cells(lines: Iterable[str], form: str, label: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV or TSV that hold anything, each with the line that it begins on; the header is the first."""
    usual = csv.field_size_limit(1 << 30)  # a transcript in a cell is longer than what the library expects
    line = 1
    try:
        reader = csv.reader(lines, delimiter="\t" if form == "tsv" else ",", skipinitialspace=True, strict=True)
        for cells in reader:
            plain = [cell.strip() for cell in cells]
            if any(plain):
                yield line, plain
            line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"the table cannot be read ({error})", file=label, line=line) from None
    finally:
        csv.field_size_limit(usual)


def run_columns(frame: pl.DataFrame | pl.LazyFrame, label: str) -> pl.DataFrame | pl.LazyFrame:
    """The columns query, doc, score (and rank), whatever the table calls them."""
    import polars as pl

    names = frame.collect_schema().names()
    query, doc = find(names, QUERY), find(names, DOC)
    score, distance, rank = find(names, SCORE), find(names, DISTANCE), find(names, RANK)
    if query is None or doc is None or (score is None and distance is None and rank is None):
        raise BadInput(
            f"a run needs a query, a document, and a score, distance or rank; there is no {_lacking(query, doc)} among "
            f"{', '.join(names)}",
            file=label,
            hint="columns such as query_id, doc_id, score",
        )
    if score is not None:
        value = pl.col(score).cast(pl.Float64, strict=False)
    else:  # a distance or a rank is better the smaller it is
        value = -pl.col(distance or rank or "").cast(pl.Float64, strict=False)
    schema = frame.collect_schema()
    chosen = [_id(schema, query).alias("query"), _id(schema, doc).alias("doc"), value.alias("score")]
    if rank is not None:
        chosen.append(pl.col(rank).cast(pl.Float64, strict=False).alias("rank"))
    return frame.select(chosen)


def _lacking(query: str | None, doc: str | None) -> str:
    found = {"query": query, "document": doc}
    return " and no ".join(name for name, column in found.items() if column is None) or "score"


def judgment_columns(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    """The columns query, doc, grade (and subtopic); without a grade column every row is relevant."""
    import polars as pl

    query, doc, grade = find(frame.columns, QUERY), find(frame.columns, DOC), find(frame.columns, GRADE)
    if query is None or doc is None:
        raise BadInput(
            f"judgments need a query and a document; found {', '.join(frame.columns)}",
            file=label,
            hint="columns such as query_id, doc_id, relevance",
        )
    rest = [
        c for c in frame.columns if c not in (query, doc) and find([c], (*QUERY, *SUBTOPIC, "iteration", "q0")) is None
    ]
    if grade is None and rest:
        raise BadInput(
            f"none of the columns {', '.join(rest)} is known as a grade",
            file=label,
            hint="name it relevance; with only query and document columns every row is relevant",
        )
    value = pl.lit(1.0) if grade is None else pl.col(grade).cast(pl.Float64, strict=False)
    schema = frame.collect_schema()
    chosen = [_id(schema, query).alias("query"), _id(schema, doc).alias("doc"), value.alias("grade")]
    subtopic = find(frame.columns, SUBTOPIC)
    if subtopic is not None:
        chosen.append(pl.col(subtopic).cast(pl.String).alias("subtopic"))
    return frame.select(chosen)


def _id(schema: pl.Schema, name: str) -> pl.Expr:
    """A column as ids: whole floats (pandas makes them of integers) without their point, texts without blanks."""
    import polars as pl

    column = pl.col(name)
    if schema[name].is_float():
        whole = column == column.round()  # each by itself: what else is in a piece of a file must not matter
        return (
            pl.when(whole).then(column.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(column.cast(pl.String))
        )
    return column.str.strip_chars() if schema[name] == pl.String else column.cast(pl.String)


def checked(frame: pl.DataFrame, label: str, number: str, first_line: int | None, *, before: int = 0) -> pl.DataFrame:
    """The same frame, once it is sure that nothing in it is missing; otherwise the line that is wrong is named.

    Rows with nothing in them (blank lines) are left out, and so is a rank column with gaps. So many rows of the file
    as `before` says are in other frames.
    """
    import polars as pl

    empty = pl.all_horizontal(pl.col("query", "doc", number).is_null())
    if frame.select(empty.any()).item():
        frame = frame.filter(~empty)
    if "rank" in frame.columns and (frame["rank"].null_count() or frame["rank"].is_nan().any()):
        frame = frame.drop("rank")
    for column in ("query", "doc", number):
        bad = frame[column].is_null()
        if column == number:
            bad = bad | frame[column].is_nan().fill_null(value=True)
        if bad.any():
            at = int(bad.arg_true()[0])
            line = None if first_line is None else first_line + at
            what = "not a number" if column == number else "missing"
            raise BadInput(f"the {column} of row {before + at + 1} is {what}", file=label, line=line)
    return frame


def read_table(source: Source, form: str) -> pl.DataFrame:
    """A whole CSV, TSV, JSONL or Parquet file, columns as they are named there, texts and numbers unread."""
    import polars as pl

    try:
        if form == "parquet":
            with source.open() as file:
                return pl.read_parquet(file.read())
        if form == "jsonl":
            return _read_jsonl(source)
        separator = "\t" if form == "tsv" else ","
        return pl.read_csv(source.read(), separator=separator, infer_schema=False, null_values=[""])
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"the table cannot be read ({words_of(error)})", file=source.label) from None


def _read_jsonl(source: Source) -> pl.DataFrame:
    import polars as pl

    try:
        first = json.loads((source.head() or ["{}"])[0])
    except ValueError as error:
        raise BadInput(f"the JSON cannot be read ({error})", file=source.label, line=1) from None
    if not isinstance(first, dict):
        raise BadInput("expected an object", file=source.label, line=1)
    plain = [k for k, v in first.items() if not isinstance(v, dict | list)]
    schema: dict[str, Any] = {k: pl.Float64 if isinstance(first[k], float) else pl.String for k in plain}
    return pl.read_ndjson(source.read(), schema=schema)


def whole_grades(frame: pl.DataFrame) -> pl.DataFrame:
    """Grades without a decimal point, where none has a fraction."""
    import polars as pl

    whole = ((frame["grade"] == frame["grade"].round()) & (frame["grade"].abs() < 2**53)).all()
    return frame.with_columns(pl.col("grade").cast(pl.Int64)) if whole else frame


def write_text(frame: pl.DataFrame, out: IO[bytes], *, separator: str, header: bool) -> None:
    """Write a frame as text, a million rows at a time; ids are written as they are, unquoted but for commas."""
    style: Any = "necessary" if separator == "," else "never"
    if separator != ",":
        for name in ("query", "doc", "query_id", "doc_id", "query-id", "corpus-id"):
            if name in frame.columns and frame[name].str.contains(r"\s" if separator == " " else r"[\t\n]").any():
                raise BadInput(
                    f"an id has blanks in it, which this format cannot hold ({name})", hint="write .csv or .json"
                )
    for begin in range(0, max(frame.height, 1), ROWS):
        piece = frame.slice(begin, ROWS)
        text = piece.write_csv(include_header=header and begin == 0, separator=separator, quote_style=style)
        out.write(text.encode())


@dataclass(frozen=True, eq=False)
class TableRun:
    """A run in a text table with named columns."""

    source: Source
    form: str

    @property
    def name(self) -> str:
        """The file's stem."""
        return self.source.stem

    def frames(self, prepare: Prepare = as_it_is) -> Iterator[pl.DataFrame]:
        """The columns query, doc, score (and rank), whole."""
        frame = run_columns(read_table(self.source, self.form), self.source.label).lazy().collect()
        frame = checked(frame, self.source.label, "score", 1 if self.form == "jsonl" else 2)
        if not frame.height:
            raise BadInput("no rows", file=self.source.label)
        yield prepare(frame)
