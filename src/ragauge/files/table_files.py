"""Tables with named columns: CSV, TSV, JSONL, Parquet, and pandas or polars frames.

Columns may have the names that many tools use.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from ragauge.core.csv_cells import restore_cell
from ragauge.core.errors import BadInput
from ragauge.core.records import FrameTransform, identity_transform
from ragauge.core.structured_text import parse_json
from ragauge.core.text import check_id, may_have_surrogates
from ragauge.files.parquet import read_parquet, read_parquet_columns
from ragauge.files.source import InputFile, wrap_library_errors

if TYPE_CHECKING:
    import polars as pl


QUERY_COLUMNS = ("query_id", "qid", "query-id", "queryid", "q_id", "topic_id", "query", "topic", "q")
DOC_COLUMNS = (
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
GRADE_COLUMNS = (
    *("grade", "relevance", "rel", "label", "judgment", "judgement", "rating", "relevant", "is_relevant"),
    *("relevance_score", "relevance_grade", "gain", "value", "score"),
)
SCORE_COLUMNS = ("score", "similarity", "sim", "relevance_score")
DISTANCE_COLUMNS = ("distance", "dist")
RANK_COLUMNS = ("rank", "position")
SUBTOPIC_COLUMNS = ("subtopic", "subtopic_id", "intent")
SYSTEM_COLUMNS = ("system", "method", "model", "agent")
TRIAL_COLUMNS = ("trial", "trial_id", "repeat", "attempt", "sample", "sample_id", "seed")
TABLE_FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Format of a table by its file ending."""
ROWS_PER_WRITE = 1 << 20


def find_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Find the first of `names` that is a column, ignoring case."""
    lower = {column.strip().lower(): column for column in columns}
    return next((lower[name] for name in names if name in lower), None)


def is_header(fields: Sequence[str]) -> bool:
    """Return whether a line names a query column and a document column."""
    return find_column(fields, QUERY_COLUMNS) is not None and find_column(fields, DOC_COLUMNS) is not None


def read_header(source: InputFile, form: str) -> list[str]:
    """Read only the column names of a table; empty if the file is not a table."""
    if form == "parquet":
        return read_parquet_columns(source.path, source.label)
    with source.open() as file:
        lines = (line.decode("utf-8", "replace") for line in file)
        try:
            if form == "jsonl":
                first = parse_json(next((line for line in lines if line.strip()), "{}"))
                return list(first) if isinstance(first, dict) else []
            return next((cells for _, cells in numbered_cells(lines, form, source.label)), [])
        except ValueError:
            return []


def numbered_cells(lines: Iterable[str], form: str, label: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows of a CSV or TSV, header first.

    Each comes with the line on which it starts.
    """
    old_limit = csv.field_size_limit(1 << 30)  # cells with transcripts exceed the default limit
    line = 1
    try:
        reader = csv.reader(lines, delimiter="\t" if form == "tsv" else ",", skipinitialspace=True, strict=True)
        for cells in reader:
            restored = [restore_cell(cell.strip()) for cell in cells]
            if any(restored):
                yield line, restored
            line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"the table cannot be read ({error})", file=label, line=line) from None
    finally:
        csv.field_size_limit(old_limit)


def check_duplicate_columns(line: int, names: Sequence[str], label: str) -> None:
    """Raise BadInput for a header with a duplicate name, ignoring case.

    Which of the two columns counts would be undefined.
    """
    keys: set[str] = set()
    for name in names:
        key = name.strip().lower()
        if key and key in keys:
            raise BadInput(
                f"duplicate column `{name[:80]}`", file=label, line=line, hint="give each column its own name"
            )
        keys.add(key)


def select_run_columns(frame: pl.DataFrame | pl.LazyFrame, label: str) -> pl.DataFrame | pl.LazyFrame:
    """Select the columns query, doc, score (and rank), under any of their known names."""
    import polars as pl

    names = frame.collect_schema().names()
    query, doc = find_column(names, QUERY_COLUMNS), find_column(names, DOC_COLUMNS)
    score, distance, rank = (
        find_column(names, SCORE_COLUMNS),
        find_column(names, DISTANCE_COLUMNS),
        find_column(names, RANK_COLUMNS),
    )
    if query is None or doc is None or (score is None and distance is None and rank is None):
        raise BadInput(
            f"a run needs a query, a document, and a score, distance or rank; there is no "
            f"{_missing_columns_text(query, doc)} among "
            f"{', '.join(names)}",
            file=label,
            hint="use columns such as query_id, doc_id, score",
        )
    schema = frame.collect_schema()
    _check_not_nested(schema, [query, doc, *(name for name in (score, distance, rank) if name)], label)
    if score is not None:
        value = pl.col(score).cast(pl.Float64, strict=False)
    else:  # of distances and ranks, lower is better
        value = -pl.col(distance or rank or "").cast(pl.Float64, strict=False)
    expressions = [
        _id_expression(schema, query).alias("query"),
        _id_expression(schema, doc).alias("doc"),
        value.alias("score"),
    ]
    if rank is not None:
        expressions.append(pl.col(rank).cast(pl.Float64, strict=False).alias("rank"))
    return frame.select(expressions)


def _missing_columns_text(query: str | None, doc: str | None) -> str:
    columns = {"query": query, "document": doc}
    return " and no ".join(name for name, column in columns.items() if column is None) or "score"


def select_judgment_columns(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    """Select the columns query, doc, grade (and subtopic).

    Without a grade column every row is relevant.
    """
    import polars as pl

    query, doc, grade = (
        find_column(frame.columns, QUERY_COLUMNS),
        find_column(frame.columns, DOC_COLUMNS),
        find_column(frame.columns, GRADE_COLUMNS),
    )
    if query is None or doc is None:
        raise BadInput(
            f"judgments need a query and a document; found {', '.join(frame.columns)}",
            file=label,
            hint="use columns such as query_id, doc_id, relevance",
        )
    other_columns = [
        c
        for c in frame.columns
        if c not in (query, doc) and find_column([c], (*QUERY_COLUMNS, *SUBTOPIC_COLUMNS, "iteration", "q0")) is None
    ]
    if grade is None and other_columns:
        raise BadInput(
            f"none of the columns {', '.join(other_columns)} is known as a grade",
            file=label,
            hint="name it relevance; with only query and document columns every row is relevant",
        )
    schema, subtopic = frame.collect_schema(), find_column(frame.columns, SUBTOPIC_COLUMNS)
    _check_not_nested(schema, [name for name in (query, doc, grade, subtopic) if name], label)
    value = pl.lit(1.0) if grade is None else pl.col(grade).cast(pl.Float64, strict=False)
    expressions = [
        _id_expression(schema, query).alias("query"),
        _id_expression(schema, doc).alias("doc"),
        value.alias("grade"),
    ]
    if subtopic is not None:
        expressions.append(pl.col(subtopic).cast(pl.String).alias("subtopic"))
    return frame.select(expressions)


def _check_not_nested(schema: pl.Schema, names: Iterable[str], label: str) -> None:
    """Raise BadInput for columns of lists, objects or bytes."""
    import polars as pl

    for name in names:
        if schema[name].is_nested() or schema[name] in (pl.Binary, pl.Object):
            raise BadInput(f"column `{name}` must hold texts or numbers, got {schema[name]}", file=label)


def _id_expression(schema: pl.Schema, name: str) -> pl.Expr:
    """Build an expression for a column of ids.

    Whole floats (pandas makes them of integers) lose their decimal point, texts the blanks around them.
    """
    import polars as pl

    column = pl.col(name)
    if schema[name].is_float():
        is_whole = column == column.round()  # row by row, so that the result does not depend on how a file is split
        return (
            pl.when(is_whole)
            .then(column.cast(pl.Int64, strict=False).cast(pl.String))
            .otherwise(column.cast(pl.String))
        )
    return column.str.strip_chars() if schema[name] == pl.String else column.cast(pl.String)


def check_no_nulls(
    frame: pl.DataFrame, label: str, number: str, first_line: int | None, *, before: int = 0
) -> pl.DataFrame:
    """Return the frame without blank rows; raise BadInput at the first missing value.

    A rank column with gaps is dropped. `first_line` is the line number of the first row, None if unknown. `before`
    is the number of rows of the file in earlier frames.
    """
    import polars as pl

    empty = pl.all_horizontal(pl.col("query", "doc", number).is_null())
    if frame.select(empty.any()).item():
        frame = frame.filter(~empty)
    if "rank" in frame.columns and (frame["rank"].null_count() or frame["rank"].is_nan().any()):
        frame = frame.drop("rank")
    for column in ("query", "doc", number):
        is_invalid = frame[column].is_null()
        if column == number:
            is_invalid = is_invalid | frame[column].is_nan().fill_null(value=True)
        if is_invalid.any():
            row = int(is_invalid.arg_true()[0])
            line = None if first_line is None else first_line + row
            problem = "not a number" if column == number else "missing"
            raise BadInput(f"the {column} of row {before + row + 1} is {problem}", file=label, line=line)
    return frame


def read_table(source: InputFile, form: str) -> pl.DataFrame:
    """Read a whole CSV, TSV, JSONL or Parquet file; columns keep their names.

    Values of CSV and TSV files stay texts.
    """
    import polars as pl

    if form == "parquet":
        with source.open() as file:
            return read_parquet(file.read(), source.label)
    if form == "jsonl":
        return _read_jsonl(source)
    data = source.read()
    lines = io.StringIO(data[: 1 << 20].decode("utf-8", "replace"), newline="")
    check_duplicate_columns(*next(numbered_cells(lines, form, source.label), (1, [])), source.label)
    separator = "\t" if form == "tsv" else ","
    with locate_text_errors(data, source.label):
        # BEIR files have no quoting: a quote is part of an id.
        beir = separator == "\t" and data[:200].lstrip().lower().startswith(b"query-id\tcorpus-id")
        quote = None if beir else '"'
        return pl.read_csv(data, separator=separator, infer_schema=False, null_values=[""], quote_char=quote)


@contextmanager
def locate_text_errors(data: bytes, label: str, *, separator: bytes = b"", fields: int = 0) -> Iterator[None]:
    """Name the line if polars cannot read a text.

    Lines are checked for invalid UTF-8 and, with `fields`, for more fields than that.
    """
    try:
        with wrap_library_errors(label, problem="the table cannot be read"):
            yield
    except BadInput:
        for line, text in enumerate(data.split(b"\n"), 1):
            try:
                text.decode()
            except UnicodeDecodeError:
                raise BadInput("the line is not UTF-8", file=label, line=line) from None
            n_fields = text.count(separator) + 1 if fields and text.strip() else fields
            if n_fields > fields:
                raise BadInput(f"expected {fields} fields, found {n_fields}", file=label, line=line) from None
        raise


def _read_jsonl(source: InputFile) -> pl.DataFrame:
    import polars as pl

    first = parse_json((source.head() or ["{}"])[0], file=source.label, line=1)
    if not isinstance(first, dict):
        raise BadInput("expected an object", file=source.label, line=1)
    flat_columns = [k for k, v in first.items() if not isinstance(v, dict | list)]
    schema: dict[str, Any] = {k: pl.Float64 if isinstance(first[k], float) else pl.String for k in flat_columns}
    data = source.read()
    if may_have_surrogates(data):
        names = [
            name for name in (find_column(flat_columns, QUERY_COLUMNS), find_column(flat_columns, DOC_COLUMNS)) if name
        ]
        for line, text in enumerate(data.splitlines(), 1):
            row = parse_json(text, file=source.label, line=line) if may_have_surrogates(text) else {}
            for name in names if isinstance(row, dict) else ():
                check_id(str(row.get(name)), f"the {name}", file=source.label, line=line)
    try:
        with locate_text_errors(data, source.label):
            frame = pl.read_ndjson(data, schema=schema)
    except BadInput:
        for line, text in enumerate(data.splitlines(), 1):
            if text.strip():
                parse_json(text, file=source.label, line=line)
        raise
    _check_duplicate_keys(data, frame, source.label)
    return frame


def _check_duplicate_keys(data: bytes, table: pl.DataFrame, label: str) -> None:
    """Raise BadInput for a line with a duplicate key.

    polars would take its last value.
    """
    for key in table.columns:
        text = json.dumps(key, ensure_ascii=False).encode()
        if data.count(text) == table.height and not table[key].null_count():
            continue  # every row has a value, so each line has the key once
        if re.search(re.escape(text) + rb"[^\n]*" + re.escape(text), data):
            break
    else:
        if b"\\u" not in data:  # a key may be written with escapes
            return
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            parse_json(line, file=label, line=number)


def integer_grades(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert grades to integers if none has a fraction."""
    import polars as pl

    is_whole = ((frame["grade"] == frame["grade"].round()) & (frame["grade"].abs() < 2**53)).all()
    return frame.with_columns(pl.col("grade").cast(pl.Int64)) if is_whole else frame


def write_delimited_text(
    frame: pl.DataFrame, out: IO[bytes], *, separator: str, header: bool, quoting: bool | None = None
) -> None:
    """Write a frame as text, a million rows at a time.

    With `quoting`, cells are quoted if necessary. Without it, the default for all separators but the comma, ids are
    written unquoted as in TREC and BEIR files, and BadInput is raised for ids with blanks.
    """
    quoted = separator == "," if quoting is None else quoting
    style: Any = "necessary" if quoted else "never"
    if not quoted:
        for name in ("query", "doc", "query_id", "doc_id", "query-id", "corpus-id"):
            if name in frame.columns and frame[name].str.contains(r"\s" if separator == " " else r"[\t\n]").any():
                raise BadInput(f"this format does not support ids with blanks ({name})", hint="write .csv or .json")
    for begin in range(0, max(frame.height, 1), ROWS_PER_WRITE):
        piece = frame.slice(begin, ROWS_PER_WRITE)
        text = piece.write_csv(include_header=header and begin == 0, separator=separator, quote_style=style)
        out.write(text.encode())


@dataclass(frozen=True, eq=False)
class TableRun:
    """A run in a text table with named columns."""

    source: InputFile
    form: str

    @property
    def name(self) -> str:
        """Stem of the file name."""
        return self.source.stem

    def frames(self, prepare: FrameTransform = identity_transform) -> Iterator[pl.DataFrame]:
        """Yield the columns query, doc, score (and rank) as one frame."""
        frame = select_run_columns(read_table(self.source, self.form), self.source.label).lazy().collect()
        frame = check_no_nulls(frame, self.source.label, "score", 1 if self.form == "jsonl" else 2)
        if not frame.height:
            raise BadInput("no rows", file=self.source.label)
        yield prepare(frame)
