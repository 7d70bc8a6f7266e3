"""Judgments of BEIR folders: `qrels/*.tsv` of 3 or 4 columns, with or without a header."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

from ragauge.core.errors import BadInput
from ragauge.files.source import InputFile
from ragauge.files.table_files import (
    check_duplicate_columns,
    integer_grades,
    is_header,
    locate_text_errors,
    select_judgment_columns,
    write_delimited_text,
)

if TYPE_CHECKING:
    import polars as pl


def find_qrels_file(folder: Path, split: str | None = None) -> Path:
    """Find the judgments of a folder: of the split, else test, else the only file."""
    files = sorted((folder / "qrels").glob("*.tsv*")) or sorted(folder.glob("*.tsv*"))
    files = [path for path in files if path.name != "targets.tsv"]
    by_split = {path.name.split(".")[0]: path for path in files}
    for split_name in [split] if split else ["test", "dev", "validation", *(by_split if len(by_split) == 1 else ())]:
        if split_name in by_split:
            return by_split[str(split_name)]
    raise BadInput(
        "no qrels/test.tsv" if split is None else f"no qrels/{split}.tsv",
        file=str(folder),
        hint=f"choose one of {', '.join(by_split)}"
        if by_split
        else "a BEIR folder has qrels/*.tsv, queries.jsonl, corpus.jsonl",
    )


def read_qrels_tsv(source: InputFile) -> pl.DataFrame:
    """Read the columns query, doc, grade of a BEIR judgments file."""
    import polars as pl

    head = source.head()
    if not head:
        raise BadInput("no rows", file=source.label)
    fields = head[0].split("\t")
    if is_header(fields):
        check_duplicate_columns(1, fields, source.label)
        data = source.read()
        with locate_text_errors(data, source.label, separator=b"\t", fields=len(fields)):
            table = pl.read_csv(data, separator="\t", infer_schema=False, quote_char=None)
        return select_judgment_columns(table, source.label)
    names = {3: ["query", "doc", "grade"], 4: ["query", "iteration", "doc", "grade"]}.get(len(fields))
    if names is None:
        raise BadInput(f"expected 3 or 4 columns, found {len(fields)}", file=source.label, line=1)
    schema = dict.fromkeys(names, pl.String)
    data = source.read()
    with locate_text_errors(data, source.label, separator=b"\t", fields=len(fields)):
        table = pl.read_csv(data, separator="\t", has_header=False, schema=schema, quote_char=None)
    return select_judgment_columns(table, source.label)


def write_qrels_tsv(frame: pl.DataFrame, out: IO[bytes]) -> None:
    """Write judgments as BEIR does, with its header."""
    table = integer_grades(frame).rename({"query": "query-id", "doc": "corpus-id", "grade": "score"})
    write_delimited_text(table, out, separator="\t", header=True)
