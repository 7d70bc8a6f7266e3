"""Reading and writing of document versions and freshness results.

A versions table has one row per document, as written by rig: `doc_id`, and optionally `version_key`,
`effective_timestamp` and `superseded_by`. Times are seconds since 1970 or ISO 8601 dates, but not both in one file.
Times without a zone are UTC.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.ids import to_id
from ragauge.files.in_memory import is_dataframe, to_polars
from ragauge.files.json_files import read_json, read_json_lines
from ragauge.files.parquet import write_parquet
from ragauge.files.serialization import from_json_data
from ragauge.files.source import InputFile
from ragauge.files.table_files import DOC_COLUMNS, TABLE_FORMATS, VERSION_COLUMNS, find_column
from ragauge.files.table_rows import TableRows, read_rows, rows_from_frame, rows_from_mappings
from ragauge.files.workspace import FORMAT_BY_ENDING, atomic_write
from ragauge.knowledge.freshness.results import DocumentVersion, Freshness

EFFECTIVE_FIELD = VERSION_COLUMNS[2]
MAX_TIME_S = 1e11
"""Largest time in seconds (year 5138); a larger value is taken for milliseconds."""
SECONDS_PATTERN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
DATE_LIKE_PATTERN = re.compile(r"(1[89]|2[01])\d\d((0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]))?", re.ASCII)
"""A year, or a date without hyphens. Read as seconds, it would be a day in 1970."""


def read_versions(versions: Any) -> list[DocumentVersion]:
    """Read versions from a JSONL, CSV, TSV or Parquet file, a frame, or a list.

    A list holds DocumentVersions or mappings.

    >>> read_versions([{"doc_id": "a", "version_key": "vat", "effective_timestamp": "1970-01-02"}])
    [DocumentVersion(doc='a', key='vat', effective=86400.0, superseded_by=None)]
    """
    if isinstance(versions, str | Path):
        source = InputFile(str(versions))
        kind = TABLE_FORMATS.get(source.ending) or _guess_format(source)
        if kind == "jsonl":  # line by line, so that every key is checked and duplicate keys are found
            rows = rows_from_mappings(
                [], _check_cells(read_json_lines(source), source.label), source.label, in_lines=True
            )
        else:
            rows = read_rows(source, kind)
        return _parse_versions(rows)
    if is_dataframe(versions):
        return _parse_versions(rows_from_frame(to_polars(versions), "the versions"))
    if isinstance(versions, str | bytes | Mapping) or not isinstance(versions, Iterable):
        raise BadInput(
            f"versions cannot be read from {type(versions).__name__}",
            hint="give a path, a frame, or a list of {doc_id, version_key, effective_timestamp, superseded_by}",
        )
    numbered_fields = ((number, _version_fields(version, number)) for number, version in enumerate(versions, start=1))
    return _parse_versions(
        rows_from_mappings([], _check_cells(numbered_fields, "the versions"), "the versions", in_lines=False)
    )


def _guess_format(source: InputFile) -> str:
    first = (source.head() or [""])[0].lstrip()
    return "jsonl" if first.startswith("{") else "tsv" if "\t" in first else "csv"


def _check_cells(lines: Iterable[tuple[int, Mapping[str, Any]]], label: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, item in lines:
        invalid_field = next((name for name, value in item.items() if isinstance(value, dict | list | bool)), None)
        if invalid_field is not None:
            raise BadInput(
                f"{invalid_field} is {json.dumps(item[invalid_field])}",
                file=label,
                line=line,
                hint="use a text or a number",
            )
        doc = VERSION_COLUMNS[0] if VERSION_COLUMNS[0] in item else find_column(list(item), DOC_COLUMNS)
        if doc is None or item[doc] is None or not str(item[doc]).strip():
            raise BadInput("a document is missing", file=label, line=line, hint='{"doc_id": …}')
        yield line, item


def _version_fields(version: Any, at: int) -> Mapping[str, Any]:
    if isinstance(version, DocumentVersion):
        return dict(zip(VERSION_COLUMNS, version, strict=True))
    if not isinstance(version, Mapping):
        raise BadInput(f"version {at} is {version!r}", hint="{doc_id, version_key, effective_timestamp, superseded_by}")
    return version


def _parse_versions(rows: TableRows) -> list[DocumentVersion]:
    """Convert rows to versions; raise BadInput with the line of the first invalid one."""
    doc = find_column(rows.names, DOC_COLUMNS)
    if not len(rows):
        raise BadInput("no versions", file=rows.label)
    if doc is None:
        raise BadInput(f"a document column is missing; found {', '.join(rows.names)}", file=rows.label, hint="doc_id")
    fields = {name: find_column(rows.names, (name,)) for name in VERSION_COLUMNS[1:]}
    for name in rows.names:
        if name not in (doc, *fields.values()):
            first_row = next(i for i, cell in enumerate((*rows.columns[name], "")) if cell is not None)
            where = f":{rows.line(first_row)}" if first_row < len(rows) and rows.line(first_row) else ""
            error = UnknownName("field", name, VERSION_COLUMNS, of="a version")
            raise BadInput(f"{rows.label}{where}: {error.message}", hint=error.hint)
    row_by_doc: dict[str, int] = {}
    kinds: dict[bool, int] = {}
    versions: list[DocumentVersion] = []
    for row in range(len(rows)):
        doc_id = rows.id(doc, row, "document")
        line = rows.line(row)
        if doc_id in row_by_doc:
            before = f"line {rows.line(row_by_doc[doc_id])}" if line else f"row {rows.row_numbers[row_by_doc[doc_id]]}"
            raise BadInput(f"document `{doc_id}` already has a version on {before}", file=rows.label, line=line)
        row_by_doc[doc_id] = row
        key, time, successor = (None if name is None else rows.columns[name][row] for name in fields.values())
        newer = None if successor is None else to_id(successor, "what it is superseded by", rows.label, line)
        if newer == doc_id:
            raise BadInput(f"document `{doc_id}` is superseded by itself", file=rows.label, line=line)
        if time is not None:
            kinds.setdefault(_is_number(time), row)
        versions.append(
            DocumentVersion(
                doc_id,
                None if key is None else to_id(key, "the key", rows.label, line),
                None if time is None else parse_time(time, f"{EFFECTIVE_FIELD} of `{doc_id}`", rows.label, line),
                newer,
            )
        )
    if len(kinds) == 2:
        row = max(kinds.values())
        raise BadInput(
            f"{EFFECTIVE_FIELD} is {rows.columns[str(fields[EFFECTIVE_FIELD])][row]}, and "
            f"{rows.columns[str(fields[EFFECTIVE_FIELD])][min(kinds.values())]} elsewhere: numbers and dates are mixed",
            file=rows.label,
            line=rows.line(row),
            hint="use seconds since 1970 throughout, or dates throughout",
        )
    _check_cycles(versions, rows, row_by_doc)
    return versions


def _check_cycles(versions: Sequence[DocumentVersion], rows: TableRows, places: Mapping[str, int]) -> None:
    """Raise BadInput if documents supersede each other in a cycle."""
    successors = {version.doc: version.superseded_by for version in versions if version.superseded_by is not None}
    done: set[str] = set()
    for first in successors:
        path: dict[str, None] = {}
        doc: str | None = first
        while doc is not None and doc not in done:
            if doc in path:
                cycle = list(path)[list(path).index(doc) :]
                cycle_text = " -> ".join([*cycle[:5], *(["…"] if len(cycle) > 5 else []), doc])
                raise BadInput(
                    f"documents supersede each other in a cycle: {cycle_text}",
                    file=rows.label,
                    line=rows.line(places[doc]),
                    hint="remove superseded_by from the newest document",
                )
            path[doc] = None
            doc = successors.get(doc)
        done.update(path)


def parse_time(value: Any, subject: str = "the time", label: str | None = None, line: int | None = None) -> float:
    """Parse seconds since 1970 from a number or an ISO 8601 date.

    Without a zone it is UTC. BadInput is raised for a whole number that could also be a year or a date without hyphens
    (2024, 20240531).

    >>> parse_time(86400), parse_time("1970-01-02"), parse_time("1970-01-02T01:00:00+01:00"), parse_time("86400.5")
    (86400.0, 86400.0, 86400.0, 86400.5)
    """
    hint = "seconds since 1970, or a date: 2024-05-31, 2024-05-31T12:00:00+02:00"
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if hasattr(value, "isoformat"):  # a date
        value = value.isoformat()
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if DATE_LIKE_PATTERN.fullmatch(text):
        day = f"{text[:4]}-{text[4:6] or '01'}-{text[6:] or '01'}"
        raise BadInput(
            f"{subject} is {text}: a date, or seconds?", file=label, line=line, hint=f"{day}, or {text}.0 for seconds"
        )
    seconds = math.nan
    try:
        if _is_number(value):
            seconds = float(value)
        elif text.isascii():
            date = datetime.fromisoformat(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise BadInput(f"{subject} is `{value}`, not a time", file=label, line=line, hint=hint)
    if abs(seconds) > MAX_TIME_S:
        raise BadInput(
            f"{subject} is {value}, which is too large for seconds",
            file=label,
            line=line,
            hint="divide milliseconds by 1000",
        )
    return seconds


def _is_number(value: Any) -> bool:
    """Return whether a time is given as a number, in ASCII digits if it is text."""
    if isinstance(value, str):
        return SECONDS_PATTERN.fullmatch(value.strip()) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def write_versions(versions: Sequence[DocumentVersion], path: str) -> None:
    """Write versions as JSONL, CSV, TSV or Parquet, by the ending of the path.

    JSONL leaves out unknown fields.
    """
    kind = FORMAT_BY_ENDING.get(InputFile(path).ending, "jsonl")
    if kind not in ("jsonl", "csv", "tsv", "parquet"):
        raise BadInput("versions are written as .jsonl, .csv, .tsv or .parquet", file=path)
    with atomic_write(path) as file:
        if kind == "jsonl":
            for version in versions:
                fields = {name: value for name, value in _version_fields(version, 0).items() if value is not None}
                if version.effective is not None and version.effective.is_integer():
                    seconds = int(version.effective)  # rig writes integers
                    fields[EFFECTIVE_FIELD] = (
                        version.effective if DATE_LIKE_PATTERN.fullmatch(str(seconds)) else seconds
                    )
                file.write(json.dumps(fields, ensure_ascii=False).encode() + b"\n")
            return
        import polars as pl

        schema = {name: pl.Float64 if name == EFFECTIVE_FIELD else pl.String for name in VERSION_COLUMNS}
        table = pl.DataFrame([tuple(version) for version in versions], schema=schema, orient="row")
        if kind == "parquet":
            write_parquet(table, file)
        else:
            table.write_csv(file, separator="\t" if kind == "tsv" else ",")


def read_freshness(path: str | Path) -> Freshness:
    """Read a freshness result from JSON.

    Raise BadInput for missing fields or duplicate queries. Nothing is filled in, because a gate could pass on it.
    """
    data = read_json(InputFile(str(path)))
    if isinstance(data, list) and len(data) > 1:
        raise BadInput(
            f"the file contains {len(data)} results; expected 1", file=str(path), hint="write each run to its own file"
        )
    data = data[0] if isinstance(data, list) and data else data
    lacks = [name for name in ("k", "queries", "unscored") if not isinstance(data, dict) or data.get(name) is None]
    hint = "write the file again with `ragauge freshness … -o`"
    if lacks:
        raise BadInput(f"missing {', '.join(lacks)}", file=str(path), hint=hint)
    result = from_json_data(Freshness, data, source=str(path))
    if isinstance(result.k, bool) or result.k < 1:
        raise BadInput(f"k must be an integer of at least 1, got {json.dumps(data['k'])}", file=str(path), hint=hint)
    names = [query.query for query in result.queries]
    twice = next((name for name in names if name in result.unscored), None)
    if twice is not None or len({*names}) < len(names):
        twice = twice or next(name for name in names if names.count(name) > 1)
        raise BadInput(f"query `{twice}` appears more than once", file=str(path), hint=hint)
    deep = next((query.query for query in result.queries if query.considered > result.k), None)
    if deep is not None:
        raise BadInput(f"query `{deep}` has more than k = {result.k} checked documents", file=str(path), hint=hint)
    return result
