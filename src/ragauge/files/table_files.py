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

from ragauge.core.csv_cells import allow_long_cells, restore_cell
from ragauge.core.errors import BadInput
from ragauge.core.ids import ID_BLANKS, IdForms, MixedIds
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
    allow_long_cells()
    line = 1
    try:
        reader = csv.reader(lines, delimiter="\t" if form == "tsv" else ",", skipinitialspace=True, strict=True)
        for cells in reader:
            restored = [restore_cell(cell.strip(ID_BLANKS)) for cell in cells]
            if any(restored):
                yield line, restored
            line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"the table cannot be read ({error})", file=label, line=line) from None


def check_duplicate_columns(line: int | None, names: Sequence[str], label: str) -> None:
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
    names = frame.collect_schema().names()
    check_duplicate_columns(None, names, label)
    query, doc = find_column(names, QUERY_COLUMNS), find_column(names, DOC_COLUMNS)
    score, distance, rank = (
        find_column(names, SCORE_COLUMNS),
        find_column(names, DISTANCE_COLUMNS),
        find_column(names, RANK_COLUMNS),
    )
    if query is None or doc is None or (score is None and distance is None and rank is None):
        raise BadInput(
            f"a run needs a query, a document, and a score, distance or rank; there is no "
            f"{_missing_columns_text(query, doc)} among the columns {', '.join(names) or '(none)'}",
            file=label,
            hint="use columns such as query_id, doc_id, score",
        )
    schema = frame.collect_schema()
    _check_not_nested(schema, [query, doc, *(name for name in (score, distance, rank) if name)], label)
    if score is not None:
        value = _number_expression(schema, score, label)
    else:  # of distances and ranks, lower is better
        value = -_number_expression(schema, distance or rank or "", label)
    expressions = [
        _id_expression(schema, query).alias("query"),
        _id_expression(schema, doc).alias("doc"),
        value.alias("score"),
    ]
    if rank is not None:
        expressions.append(_number_expression(schema, rank, label).alias("rank"))
    return frame.select(expressions)


def _missing_columns_text(query: str | None, doc: str | None) -> str:
    columns = {"query": query, "document": doc}
    return " and no ".join(name for name, column in columns.items() if column is None) or "score"


def select_judgment_columns(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    """Select the columns query, doc, grade (and subtopic).

    Without a grade column every row is relevant.
    """
    import polars as pl

    check_duplicate_columns(None, frame.columns, label)
    query, doc, grade = (
        find_column(frame.columns, QUERY_COLUMNS),
        find_column(frame.columns, DOC_COLUMNS),
        find_column(frame.columns, GRADE_COLUMNS),
    )
    if query is None or doc is None:
        raise BadInput(
            f"judgments need a query and a document; found "
            f"{', '.join(frame.columns) or 'no column of texts or numbers'}",
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
    value = pl.lit(1.0) if grade is None else _number_expression(schema, grade, label)
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


def _number_expression(schema: pl.Schema, name: str, label: str) -> pl.Expr:
    """Build an expression for a column of numbers, which may be texts or categories; null if it is not a number."""
    import polars as pl

    if schema[name].is_temporal():
        raise BadInput(f"column `{name}` must hold numbers, got {schema[name]}", file=label)
    column = pl.col(name)
    texts = column.cast(pl.String) if schema[name] in (pl.Categorical, pl.Enum) else column
    return texts.cast(pl.Float64, strict=False)


def _id_expression(schema: pl.Schema, name: str) -> pl.Expr:
    """Build an expression for a column of ids as texts.

    Whole floats (pandas makes them of integers) lose their decimal point. `check_no_nulls` removes blanks.
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
    return column.cast(pl.String)


def check_no_nulls(
    frame: pl.DataFrame, label: str, number: str, first_line: int | None, *, before: int = 0
) -> pl.DataFrame:
    """Return the frame without blank rows and blanks around ids; raise BadInput at the first missing value.

    A rank column with gaps is dropped. `first_line` is the line number of the first row, None if unknown. `before`
    is the number of rows of the file in earlier frames.
    """
    import polars as pl

    first_row, unit = (before + 1, "row") if first_line is None else (first_line, "line")
    for column, noun in (("query", "query"), ("doc", "document")):
        frame = frame.with_columns(strip_ids(frame[column], noun, label, first_row, unit))
    columns = [name for name in ("query", "doc", number, "subtopic") if name in frame.columns]
    is_empty = frame.select(pl.all_horizontal(pl.col(columns).is_null())).to_series()
    for column in columns:
        is_invalid = frame[column].is_null()
        if column == number:
            is_invalid = is_invalid | frame[column].is_nan().fill_null(value=True)
        is_invalid &= ~is_empty
        if is_invalid.any():
            row = int(is_invalid.arg_true()[0])
            line = None if first_line is None else first_line + row
            problem = "not a number" if column == number else "missing"
            raise BadInput(f"the {column} of row {before + row + 1} is {problem}", file=label, line=line)
    if is_empty.any():
        frame = frame.filter(~is_empty)
    if "rank" in frame.columns and (frame["rank"].null_count() or frame["rank"].is_nan().any()):
        frame = frame.drop("rank")
    return frame


def strip_ids(ids: pl.Series, noun: str, label: str, first_row: int, unit: str) -> pl.Series:
    """Remove blanks around ids; a blank id becomes null.

    Raise BadInput for an id in two forms. `first_row` is the number of the first row, counted in `unit`.
    """
    import polars as pl

    stripped = ids.str.strip_chars(ID_BLANKS)
    if not stripped.ne_missing(ids).any():
        return ids if not (ids == "").any() else ids.set(ids == "", None)
    forms = pl.DataFrame({"form": ids, "id": stripped}).with_row_index("row").drop_nulls()
    forms = forms.filter(pl.col("id") != "").unique(["form", "id"], keep="first").sort("row")
    mixed = forms.filter(pl.col("id").is_duplicated())
    if mixed.height:
        first, second = mixed.filter(pl.col("id") == mixed["id"][0]).head(2).iter_rows(named=True)
        rows = first_row + first["row"], first_row + second["row"]
        raise MixedIds(noun, (first["form"], second["form"]), rows, file=label, unit=unit)
    return stripped.set(stripped == "", None)


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
    ids = {name: noun for noun, aliases in _ID_NAMES.items() if (name := find_column(flat_columns, aliases))}
    if may_have_surrogates(data):
        for line, text in enumerate(data.splitlines(), 1):
            row = parse_json(text, file=source.label, line=line) if may_have_surrogates(text) else {}
            for name in ids if isinstance(row, dict) else ():
                check_id(str(row.get(name)), f"the {name}", file=source.label, line=line)
    mixed = {name: noun for name, noun in ids.items() if _has_other_form(data, name, first[name])}
    if mixed:
        schema |= dict.fromkeys(mixed, pl.String)
    try:
        with locate_text_errors(data, source.label):
            frame = pl.read_ndjson(data, schema=schema)
    except BadInput:
        for _ in _json_rows(data, source.label):
            pass
        raise
    _check_duplicate_keys(data, frame, source.label)
    is_partial = bool(ids) and frame.select(pl.any_horizontal(pl.col(list(ids)).is_null()).any()).item()
    if is_partial or (len(ids) == 2 and any(f'"{name}"'.encode() in data for name in SUBTOPIC_COLUMNS)):
        _check_row_names(data, list(first), source.label)
    for name, noun in mixed.items():
        forms = IdForms(noun, file=source.label)
        values = ((line, row.get(name)) for line, row in _json_rows(data, source.label))
        column = [None if value is None or value == "" else forms.convert(value, line) for line, value in values]
        frame = frame.with_columns(pl.Series(name, column, pl.String))
    return frame


_ID_NAMES = {"query": QUERY_COLUMNS, "document": DOC_COLUMNS, "subtopic": SUBTOPIC_COLUMNS}
"""Names of the columns of ids."""


def _json_rows(data: bytes, label: str) -> Iterator[tuple[int, Any]]:
    """Parse the lines that are not blank, with their numbers."""
    for line, text in enumerate(data.splitlines(), 1):
        if text.strip():
            yield line, parse_json(text, file=label, line=line)


def _has_other_form(data: bytes, name: str, value: Any) -> bool:
    """Return whether a column of ids has texts and numbers, or integers and other numbers."""
    other = rb"[-\d]" if isinstance(value, str) else rb'(?:"|-?\d+[.eE])' if isinstance(value, int) else rb'"'
    return re.search(re.escape(json.dumps(name, ensure_ascii=False).encode()) + rb"\s*:\s*" + other, data) is not None


def _check_row_names(data: bytes, first: Sequence[str], label: str) -> None:
    """Raise BadInput for a row whose ids have other names than those of the first row: they would be left out."""
    expected = {noun: find_column(list(first), names) for noun, names in _ID_NAMES.items()}
    for line, row in _json_rows(data, label):
        filled = [name for name, value in row.items() if value is not None]
        found = {noun: find_column(filled, names) for noun, names in _ID_NAMES.items()}
        if (filled and not any(found.values())) or any(found[noun] not in (None, expected[noun]) for noun in found):
            raise BadInput(
                f"the columns differ from those of the first row: expected {', '.join(first)}, got {', '.join(row)}",
                file=label,
                line=line,
                hint="use the same column names in every row",
            )


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
