"""Write judgments, runs and queries in every format that can be read."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ragauge.core.errors import BadInput, InputWarning
from ragauge.core.records import Judgments, Run
from ragauge.files import beir, json_files, trec
from ragauge.files.parquet import write_parquet
from ragauge.files.readers import FORMATS
from ragauge.files.source import InputFile
from ragauge.files.table_files import integer_grades, write_delimited_text
from ragauge.files.workspace import FORMAT_BY_ENDING, atomic_write

if TYPE_CHECKING:
    import polars as pl

TREC_ENDINGS = ("", ".run", ".qrels", ".txt", ".trec")
"""Endings of files in TREC's format."""


def format_from_path(path: str) -> str:
    """Return the format for a path by its ending; TREC without one, and for standard output.

    Raises BadInput for an ending of no format.
    """
    if path.endswith(os.sep):
        return "beir"
    ending = InputFile(path).ending
    if ending in FORMAT_BY_ENDING or path == "-" or ending in TREC_ENDINGS:
        return FORMAT_BY_ENDING.get(ending, "trec")
    raise BadInput(
        f"expected a file that ends in {', '.join([*TREC_ENDINGS[1:], *FORMAT_BY_ENDING])}, got `{ending}`",
        file=path,
        hint="choose the format with --format",
    )


def write_judgments(judgments: Judgments, path: str, format: str | None = None) -> None:
    """Write judgments; the default format is that of the file ending."""
    kind = format or format_from_path(path)
    if kind == "beir" and (path.endswith(os.sep) or Path(path).is_dir()):
        path = str(Path(path) / "qrels" / "test.tsv")
    with atomic_write(path) as out:
        if kind == "trec":
            trec.write_qrels(judgments.frame, out)
        elif kind == "subtopics":
            write_delimited_text(_subtopic_frame(judgments), out, separator=" ", header=False)
        elif kind == "beir":
            beir.write_qrels_tsv(judgments.frame, out)
        elif kind == "rig":
            json_files.write_rig(judgments, out)
        elif kind == "json":
            json_files.write_nested_json(judgments.nested, out)
        else:
            frame = judgments.frame if judgments.subtopics is None else _subtopic_frame(judgments)
            _write_frame(frame.rename({"query": "query_id", "doc": "doc_id", "grade": "relevance"}), out, kind)


def _subtopic_frame(judgments: Judgments) -> pl.DataFrame:
    import polars as pl

    if judgments.subtopics is None:
        raise BadInput("these judgments have no subtopics", file=judgments.source)
    rows = [(q, *key.split("\t", 1), grade) for q, docs in judgments.subtopics.items() for key, grade in docs.items()]
    return integer_grades(pl.DataFrame(rows, schema=["query", "subtopic", "doc", "grade"], orient="row"))


def write_queries(queries: Mapping[str, str], tags: Mapping[str, Mapping[str, str]], path: str) -> None:
    """Write queries as Parquet: `query`, `text`, and `tags` as JSON."""
    import polars as pl

    rows = [
        (query, text.encode("utf-8", "replace").decode(), json.dumps(dict(tags.get(query, {}))))
        for query, text in queries.items()
    ]
    with atomic_write(path) as out:
        write_parquet(pl.DataFrame(rows, schema=dict.fromkeys(("query", "text", "tags"), pl.String), orient="row"), out)


def write_run(run: Run, path: str, format: str | None = None) -> None:
    """Write a run; the default format is that of the file ending.

    Files cannot repeat a document. In a run that ragauge made, repeated hits are written under ids of their own, so
    that later documents keep their rank in every tool; an `InputWarning` says so.
    """
    kind = format or format_from_path(path)
    if kind in ("beir", "rig", "subtopics"):
        raise BadInput(f"a run cannot be written as {kind}", hint=f"one of {', '.join(FORMATS)}")
    if run.rows_are_hits:
        run = replace(run, table=_name_repeated_hits(run.table))
    with atomic_write(path) as out:
        if kind == "trec":
            trec.write_run(run.frames(), out, run.name)
        elif kind == "json":
            json_files.write_nested_json(run.nested, out)
        else:
            _write_frame(run.table.rename({"query": "query_id", "doc": "doc_id"}), out, kind)


def _name_repeated_hits(table: pl.DataFrame) -> pl.DataFrame:
    """Give each hit that repeats a document an id of its own: `d1~repeat2` is the second hit of d1."""
    import polars as pl

    nth = pl.int_range(1, pl.len() + 1).over("query", "doc")
    n_repeated = table.height - table.select(pl.struct("query", "doc").n_unique()).item()
    if not n_repeated:
        return table
    warnings.warn(
        f"repeated hits ({n_repeated:,}) are written as `ID~repeatN`, an id without judgments, so that later documents "
        "keep their rank",
        InputWarning,
        stacklevel=3,
    )
    return table.with_columns(doc=pl.when(nth == 1).then("doc").otherwise(pl.format("{}~repeat{}", "doc", nth)))


def _write_frame(table: pl.DataFrame, out: IO[bytes], kind: str) -> None:
    if kind == "parquet":
        write_parquet(table, out)
    elif kind == "jsonl":
        out.write(table.write_ndjson().encode())
    else:
        write_delimited_text(table, out, separator="\t" if kind == "tsv" else ",", header=True, quoting=True)
