"""Judgments and runs from objects in memory: nested dictionaries, tuples, ranked lists, frames, and arrays."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, excerpt
from ragauge.core.ids import IdForms, format_id, to_id, with_text_ids
from ragauge.core.records import Judgments, Run, ScoresByQuery
from ragauge.core.text import check_id
from ragauge.files.sample_fields import FIELD_BY_ALIAS, is_sample_header
from ragauge.files.source import wrap_library_errors
from ragauge.files.table_files import (
    DOC_COLUMNS,
    QUERY_COLUMNS,
    check_duplicate_columns,
    check_no_nulls,
    find_column,
    select_judgment_columns,
    select_run_columns,
)

if TYPE_CHECKING:
    import polars as pl


ORDER_HINT = "judgments come first, then runs: `evaluate(qrels, run)`"


def is_dataframe(value: Any) -> bool:
    """Return whether an object is a polars or pandas frame or a pyarrow table, without importing any of them."""
    name, library = type(value).__name__, type(value).__module__.split(".")[0]
    return (name in ("DataFrame", "LazyFrame") and library in ("polars", "pandas")) or _is_arrow_table(value)


def _is_arrow_table(value: Any) -> bool:
    return type(value).__name__ == "Table" and type(value).__module__.split(".")[0] == "pyarrow"


def frame_columns(frame: Any) -> list[str]:
    """Return the column names of a frame."""
    import polars as pl

    if _is_arrow_table(frame):
        return list(frame.column_names)
    return list(frame.collect_schema() if isinstance(frame, pl.LazyFrame) else frame.columns)


def to_polars(frame: Any) -> pl.DataFrame:
    """Convert a polars or pandas frame or a pyarrow table to a polars data frame."""
    import polars as pl

    if _is_arrow_table(frame):
        check_duplicate_columns(None, frame.column_names, "the table")
        with wrap_library_errors("the table", problem="cannot be converted"):
            return pl.DataFrame(frame)

    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    check_duplicate_columns(None, list(map(str, frame.columns)), "the frame")
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        converted: pl.DataFrame = pl.from_pandas(frame)
        return converted
    # Columns of objects may mix types, which polars does not convert.
    texts = {name: _to_texts(name, frame[name].tolist()) for name in frame.columns if frame[name].dtype == object}
    with wrap_library_errors("the frame", problem="cannot be converted"):
        converted = pl.from_pandas(frame.assign(**texts))
        return converted  # noqa: RET504 - pandas has no types


def _to_texts(name: Any, values: Sequence[Any]) -> list[str | None]:
    """Convert the values of a column to texts; raise BadInput for other objects, and for an id in two forms."""
    is_id = find_column([str(name)], (*QUERY_COLUMNS, *DOC_COLUMNS)) is not None
    ids = IdForms("query" if find_column([str(name)], QUERY_COLUMNS) else "document")
    texts: list[str | None] = []
    for value in values:
        if not (value is None or isinstance(value, str | Number | np.generic)):
            raise BadInput(f"column `{name}` must hold texts or numbers, got {type(value).__name__}")
        text = value if isinstance(value, str) else format_id(value)
        if is_id and format_id(text):
            ids.convert(value)
        texts.append(text or None)
    return texts


def is_single_run(run: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is one run, not several runs by name.

    A run maps queries to documents.
    """
    value = next((v for v in run.values() if not isinstance(v, Sequence | Mapping) or len(v)), None)
    if value is None:
        return True
    if isinstance(value, Mapping):
        return not isinstance(next(iter(value.values())), Mapping | list)
    if isinstance(value, str | bytes) or not isinstance(value, list | tuple | np.ndarray):
        return False
    first = value[0]
    return isinstance(first, str | int | np.integer | Mapping) or (isinstance(first, list | tuple) and len(first) == 2)


def judgments_from_memory(value: Any) -> Judgments:
    """Convert an object in memory to judgments."""
    if isinstance(value, Judgments):
        return value
    columns = frame_columns(value) if is_dataframe(value) else getattr(value, "column_names", None)  # Hugging Face
    if columns and find_column(columns, DOC_COLUMNS) is None and is_sample_header(columns):
        raise _samples_error()
    if isinstance(value, Run) or (type(value).__module__.startswith("ranx.") and type(value).__name__ == "Run"):
        raise BadInput("a run was given as judgments", hint=ORDER_HINT)
    if is_dataframe(value):
        table = select_judgment_columns(to_polars(value), "the judgments")
        return judgments_from_table(check_no_nulls(table, "the judgments", "grade", None), "a frame")
    if hasattr(value, "to_dict"):  # ranx's Qrels
        value = value.to_dict()
    if isinstance(value, Mapping):
        return Judgments(_to_nested_grades(value), source="a mapping")
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return _judgments_from_tuples(value)
    raise BadInput(
        f"judgments cannot be read from {type(value).__name__}",
        hint="pass a path, {query: {document: grade}}, a frame, or [(query, document), …]",
    )


def check_grades(judgments: Judgments) -> Judgments:
    """Return the judgments; raise BadInput for a grade that is not a finite number."""
    documents = judgments.nested.values() if "nested" in judgments.__dict__ else ()
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        total = sum(map(sum, (docs.values() for docs in documents)))  # unlike an array, a sum refuses texts
        if np.isfinite(total) and np.isfinite(judgments.pool.grades).all():
            return judgments
    for query, docs in judgments.nested.items():
        for doc, grade in docs.items():
            number: Any = grade
            if not isinstance(number, Real) or not _is_finite(number):
                message = (
                    f"the grade of document `{doc}` for query `{query}` must be a number, got {excerpt(repr(grade))}"
                )
                raise BadInput(message, file=judgments.source)
    return judgments


def _is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _to_score(score: Any, doc: str, query: str) -> float:
    """Convert a score to a float; raise BadInput if that is impossible."""
    try:
        return float(score)
    except (TypeError, ValueError, OverflowError):
        message = f"the score of document `{doc}` for query `{query}` must be a number, got {excerpt(repr(score))}"
        raise BadInput(message) from None


def _to_nested_grades(judgments: Mapping[Any, Any]) -> ScoresByQuery:
    if _is_nested(judgments):
        return judgments  # `Judgments` converts its ids
    queries = IdForms("query")
    rows = []
    for query, docs in judgments.items():
        # Relevant documents, or pairs of document and grade; a single text is one document.
        for doc in [docs] if isinstance(docs, str) else docs.items() if isinstance(docs, Mapping) else docs:
            if isinstance(doc, list | tuple) and len(doc) != 2:
                raise BadInput(
                    f"the judgments of query `{query}` have {doc!r}", hint="a document, or (document, grade)"
                )
            rows.append((query, *doc) if isinstance(doc, list | tuple) else (query, doc))
    grades = _judgments_from_tuples(rows).nested
    return {name: grades.get(name, {}) for name in map(queries.convert, judgments)}


def _is_nested(mapping: Mapping[Any, Any]) -> bool:
    # A set of types, because checking a hundred thousand dictionaries one by one is slow.
    return all(issubclass(kind, Mapping) for kind in set(map(type, mapping.values())))


def _judgments_from_tuples(rows: Iterable[Any]) -> Judgments:
    grades: dict[str, dict[str, float]] = {}
    queries, docs = IdForms("query"), IdForms("document")
    for number, row in enumerate(rows, 1):
        if hasattr(row, "relevance"):  # ir_measures' Qrel
            query, doc, grade = row.query_id, row.doc_id, row.relevance
        elif hasattr(row, "query_id") and hasattr(row, "score"):  # its ScoredDoc
            raise BadInput("a run was given as judgments", hint=ORDER_HINT)
        elif isinstance(row, list | tuple) and len(row) in (2, 3, 4):
            query, doc, grade = (*row, 1)[:3] if len(row) < 4 else (row[0], row[2], row[3])
        elif is_sample_header(list(row) if isinstance(row, Mapping) else _sample_attributes(row)):
            raise _samples_error()
        else:
            raise BadInput(f"judgment {number} is {row!r}", hint="(query, document) or (query, document, grade)")
        query_id, doc_id = queries.convert(query), docs.convert(doc)
        grade_by_doc = grades.setdefault(query_id, {})
        if grade_by_doc.setdefault(doc_id, grade) != grade:
            raise BadInput(f"document `{doc_id}` of query `{query_id}` has the grades {grade_by_doc[doc_id]}, {grade}")
    return Judgments(grades, source="a list")


def _sample_attributes(row: Any) -> list[str]:
    """Return the fields of a sample that an object of ragauge, ragas or DeepEval has."""
    return [name for name in FIELD_BY_ALIAS if hasattr(row, name)]


def _samples_error() -> BadInput:
    return BadInput("expected judgments, got samples", hint="answers are scored by `ragauge.judge(samples)`")


def judgments_from_table(table: pl.DataFrame, source: str) -> Judgments:
    """Build judgments from the columns query, doc, grade (and subtopic).

    Duplicate rows count once. Raise BadInput for two different grades of one document.
    """
    import polars as pl

    if "subtopic" in table.columns:
        return judgments_from_subtopics(table.select("query", "subtopic", "doc", "grade").iter_rows(), source)
    unique = table.unique(["query", "doc", "grade"], keep="first", maintain_order=True)
    duplicates = unique.filter(pl.struct("query", "doc").is_duplicated())
    if duplicates.height:
        query, doc = duplicates["query"][0], duplicates["doc"][0]
        grades = duplicates.filter((pl.col("query") == query) & (pl.col("doc") == doc))["grade"].to_list()
        raise BadInput(
            f"document `{doc}` of query `{query}` has the grades {', '.join(f'{g:g}' for g in grades)}",
            file=source,
            hint="`ragauge validate` lists all such contradictions; "
            "judgments of subtopics are read with --qrels-format subtopics",
        )
    order = unique.select(pl.col("query").unique(maintain_order=True)).with_row_index("at")
    together = unique.join(order, on="query", how="left", maintain_order="left").sort("at", maintain_order=True)
    return Judgments(together.select("query", "doc", "grade").rechunk(), source=source)


def judgments_from_subtopics(rows: Iterable[tuple[Any, Any, Any, Any]], source: str = "a list") -> Judgments:
    """Build judgments from (topic, subtopic, document, grade).

    The overall grade of a document is its highest over the subtopics.

    >>> judgments_from_subtopics([("q", "1", "a", 1), ("q", "2", "a", 3)]).nested
    {'q': {'a': 3.0}}
    """
    best: dict[str, dict[str, float]] = {}
    subtopics: dict[str, dict[str, float]] = {}
    queries, docs = IdForms("query"), IdForms("document")
    for raw_query, raw_subtopic, raw_doc, grade in rows:
        query, subtopic, doc = queries.convert(raw_query), to_id(raw_subtopic, "a subtopic"), docs.convert(raw_doc)
        grade_by_doc = best.setdefault(query, {})
        grade_by_doc[doc] = max(float(grade), grade_by_doc.get(doc, float(grade)))
        earlier_grade = subtopics.setdefault(query, {}).setdefault(f"{subtopic}\t{doc}", float(grade))
        if earlier_grade != float(grade):
            grades = f"{earlier_grade:g}, {grade:g}"
            message = f"document `{doc}` of subtopic `{subtopic}` of query `{query}` has the grades {grades}"
            raise BadInput(message, file=source)
    return Judgments(best, subtopics=subtopics, source=source)


def run_from_memory(value: Any, name: str = "run") -> Run | ScoresByQuery:
    """Convert an object in memory to a run; nested dictionaries stay dictionaries."""
    if isinstance(value, Run):
        return value
    if isinstance(value, Judgments) or (type(value).__module__.startswith("ranx.") and type(value).__name__ == "Qrels"):
        raise BadInput("judgments were given as a run", hint=ORDER_HINT)
    if is_dataframe(value):
        table = select_run_columns(to_polars(value), "the run").lazy().collect()
        return Run(check_no_nulls(table, "the run", "score", None), name)
    if hasattr(value, "to_dict"):  # ranx's Run
        value = value.to_dict()
    if isinstance(value, Mapping):
        if _is_nested(value):
            return with_text_ids(value)
        return _run_from_ranked_lists(value, name)
    if isinstance(value, tuple) and len(value) in (2, 3) and all(np.ndim(part) == 2 for part in value[:2]):
        return run_from_arrays(*value, name=name)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return _run_from_tuples(value)
    raise BadInput(
        f"a run cannot be read from {type(value).__name__}",
        hint="pass a path, {query: {document: score}}, a frame, (ids, scores) arrays, or [(query, document, score), …]",
    )


def _run_from_tuples(rows: Iterable[Any]) -> ScoresByQuery:
    scores: dict[str, dict[str, float]] = {}
    queries, docs = IdForms("query"), IdForms("document")
    for number, row in enumerate(rows, 1):
        if hasattr(row, "score"):  # ir_measures' ScoredDoc
            query, doc, score = row.query_id, row.doc_id, row.score
        elif hasattr(row, "query_id") and hasattr(row, "relevance"):  # its Qrel
            raise BadInput("judgments were given as a run", hint=ORDER_HINT)
        elif isinstance(row, list | tuple) and len(row) == 3:
            query, doc, score = row
        else:
            raise BadInput(f"row {number} of the run is {row!r}", hint="(query, document, score)")
        query_id, doc_id = queries.convert(query), docs.convert(doc)
        score_by_doc = scores.setdefault(query_id, {})
        if doc_id in score_by_doc:
            raise BadInput(f"document `{doc_id}` appears more than once in the ranking of query `{query_id}`")
        score_by_doc[doc_id] = score
    return scores


def _run_from_ranked_lists(rankings: Mapping[Any, Any], name: str) -> Run:
    """Build a run from ranked lists, best first.

    Items are ids, (id, score) pairs, or objects with id and score.
    """
    rows: list[tuple[str, str, float]] = []
    queries, docs = IdForms("query"), IdForms("document")
    for query, ranked in rankings.items():
        query_id = queries.convert(query)
        for position, item in enumerate(ranked.items() if isinstance(ranked, Mapping) else ranked):
            if isinstance(item, Mapping):
                doc, score = item.get("id", item.get("doc_id")), item.get("score", -float(position))
            else:
                doc, score = item if isinstance(item, list | tuple) else (item, -float(position))
            if doc is None or isinstance(doc, list | Mapping):
                raise BadInput(f"the ranking of query `{query}` has {item!r}", hint="an id, or (id, score)")
            doc_id = docs.convert(doc)
            rows.append((query_id, doc_id, _to_score(score, doc_id, query_id)))
    return Run(check_no_nulls(_build_run_table(rows), "the run", "score", None), name)


def to_run_table(run: Run | ScoresByQuery) -> pl.DataFrame:
    """Convert a run in memory to a table with the columns query, doc, score."""
    if isinstance(run, Run):
        return run.table
    return _build_run_table([(q, d, _to_score(s, d, q)) for q, docs in run.items() for d, s in docs.items()])


def _build_run_table(rows: list[tuple[str, str, float]]) -> pl.DataFrame:
    import polars as pl

    schema = {"query": pl.String, "doc": pl.String, "score": pl.Float64}
    try:
        return pl.DataFrame(rows, schema=schema, orient="row")
    except UnicodeEncodeError:
        for query, doc, _ in rows:
            check_id(query, "the query")
            check_id(doc, "the document")
        raise


def run_from_arrays(ids: Any, scores: Any, queries: Sequence[str] | None = None, *, name: str = "run") -> Run:
    """Build a run from the (ids, scores) arrays of a vector store, one row per query.

    Rows are ordered best first. An id of -1 means that there is no further hit. Queries are numbered from 0 unless
    named. Raise BadInput for scores that increase along every row, as distances do: pass `-distances` instead.

    >>> run_from_arrays([[7, 3]], [[0.9, 0.5]]).nested
    {'0': {'7': 0.9, '3': 0.5}}
    """
    import polars as pl

    names, id_array, values = (
        np.asarray(queries if queries is not None else np.arange(len(ids))),
        np.asarray(ids),
        np.asarray(scores, np.float64),
    )
    if id_array.shape != values.shape or id_array.ndim != 2 or len(names) != len(id_array):
        raise BadInput(f"ids of shape {id_array.shape} and scores of shape {values.shape} for {len(names)} queries")
    if id_array.dtype.kind == "f" and (id_array == np.round(id_array)).all():
        id_array = id_array.astype(np.int64)
    steps = np.diff(values, axis=1)
    if steps.size and (steps >= 0).all() and (steps > 0).any():
        raise BadInput("the scores rise down every list, as distances do", hint="pass -distances as the scores")
    keep = id_array != -1 if id_array.dtype.kind in "iu" else np.ones(id_array.shape, np.bool_)
    table = pl.DataFrame(
        {
            "query": np.repeat(names.astype(np.str_), id_array.shape[1])[keep.ravel()],
            "doc": id_array.astype(np.str_).ravel()[keep.ravel()],
            "score": values.ravel()[keep.ravel()],
        }
    )
    return Run(check_no_nulls(table, "the run", "score", None), name)


def judgments_from_neighbours(ids: Any, distances: Any = None, queries: Sequence[str] | None = None) -> Judgments:
    """Build judgments from exact neighbours, one row per query, nearest first.

    `distances` are needed only by measures that use them.

    >>> judgments_from_neighbours([[7, 3]]).nested
    {'0': {'7': 1, '3': 1}}
    """
    names = [to_id(query, "a query id") for query in (queries if queries is not None else range(len(ids)))]
    if len(ids) != len(names):
        raise BadInput(f"{len(ids)} rows of neighbours for {len(names)} queries")
    id_rows = [[doc for doc in map(to_id, row) if doc != "-1"] for row in ids]
    true = {name: dict.fromkeys(row, 1) for name, row in zip(names, id_rows, strict=True)}
    distances_by_query = (
        None if distances is None else {n: [float(d) for d in row] for n, row in zip(names, distances, strict=True)}
    )
    return Judgments(true, distances=distances_by_query, source="exact neighbours")
