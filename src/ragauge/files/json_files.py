"""JSON files: judgments and runs of pytrec_eval, ranx, rig and pgVectorDB, target maps, and field names."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from ragauge.core.errors import BadInput, error_summary
from ragauge.core.ids import ID_BLANKS, IdForms, MixedIds, to_id
from ragauge.core.records import Judgments, Run, ScoresByQuery, to_targets
from ragauge.core.structured_text import parse_json
from ragauge.core.text import clean_json, may_have_surrogates, one_line, warn_replaced
from ragauge.files.in_memory import judgments_from_memory, run_from_memory, to_run_table
from ragauge.files.source import InputFile
from ragauge.files.table_files import DOC_COLUMNS, check_no_nulls, find_column, is_header


def read_json(source: InputFile, *, ids: bool = False) -> Any:
    """Read a JSON file. With `ids`, every text in it is an id."""
    data = source.read()
    parsed = parse_json(data, file=source.label)
    if ids and isinstance(parsed, dict) and {"task_name", "scores"} <= parsed.keys():
        hint = "pass the judgments of the task and the rankings that MTEB saved as predictions"
        raise BadInput("scores of a task of MTEB; expected judgments or a run", file=source.label, hint=hint)
    if not may_have_surrogates(data):
        return parsed
    cleaned, replaced = clean_json(parsed, file=source.label, data=data, ids=ids)
    warn_replaced(replaced, source.label)
    return cleaned


def read_json_lines(source: InputFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file with their line numbers."""
    number = replaced = 0
    for block in source.blocks():
        for line in block.splitlines():
            number += 1
            if not line.strip():
                continue
            item = parse_json(line, file=source.label, line=number)
            if may_have_surrogates(line):
                item, count = clean_json(item, file=source.label, line=number)
                replaced += count
            if not isinstance(item, dict):
                raise BadInput("expected an object", file=source.label, line=number)
            yield number, item
    warn_replaced(replaced, source.label)


def is_json_row(first: str) -> bool:
    """Return whether a line is a JSON object that names a query and a document."""
    try:
        item = parse_json(first)
    except ValueError:
        return False
    return isinstance(item, dict) and is_header(list(item))


def is_rig_line(first: str) -> bool:
    """Return whether a line is in the format of rig: it names relevant documents."""
    return '"relevant_docs"' in first


def read_rig(source: InputFile) -> Judgments:
    """Read judgments in the JSONL format of rig.

    Used fields are `query_id` and `relevant_docs`, which has grades by document or is a list.
    """
    grades: dict[str, dict[str, float]] = {}
    query_ids, doc_ids = IdForms("query", file=source.label), IdForms("document", file=source.label)
    for line, item in read_json_lines(source):
        if "query_id" not in item or "relevant_docs" not in item:
            raise BadInput("expected query_id and relevant_docs", file=source.label, line=line)
        query, docs = query_ids.convert(item["query_id"], line), item["relevant_docs"]
        if query in grades:
            raise BadInput(f"query `{query}` appears more than once", file=source.label, line=line)
        if isinstance(docs, list) and all(isinstance(doc, str | int) for doc in docs):
            docs = dict.fromkeys(docs, 1)
        if not isinstance(docs, dict) or not all(isinstance(g, int | float) for g in docs.values()):
            raise BadInput("relevant_docs must be a list, or grades by document", file=source.label, line=line)
        grades[query] = {doc_ids.convert(doc, line): grade for doc, grade in docs.items()}
    if not grades:
        raise BadInput("no judgments", file=source.label)
    return Judgments(grades, source=source.label)


def write_rig(judgments: Judgments, out: IO[bytes]) -> None:
    """Write judgments in the JSONL format of rig, one line per query."""
    for query, docs in judgments.nested.items():
        grades = {doc: int(g) if g == int(g) else g for doc, g in docs.items()}
        line = {"query_id": query, "query": "", "relevant_docs": grades}
        out.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


@contextmanager
def _locate_ids(source: InputFile) -> Iterator[None]:
    """Add file and lines to the error for an id in two forms."""
    try:
        yield
    except MixedIds as error:
        text = source.read().decode("utf-8", "replace")
        first, second = (_find_line(form, text) for form in error.forms)
        raise MixedIds(error.noun, error.forms, (first, second), file=source.label) from None


def _find_line(form: Any, text: str) -> int | None:
    """Find the line of the first text or number of a JSON file that is this id."""
    pattern = re.escape(json.dumps(form, ensure_ascii=False))
    match = re.search(pattern if isinstance(form, str) else rf'(?<![\w."]){pattern}(?![\w."])', text)
    return None if match is None else text.count("\n", 0, match.start()) + 1


def read_json_judgments(source: InputFile) -> Judgments:
    """Read judgments from JSON.

    Supported are `{query: {document: grade}}`, `{query: [document, …]}`, and the dataset of pgVectorDB.
    """
    parsed = read_json(source, ids=True)
    try:
        if isinstance(parsed, dict) and isinstance(parsed.get("ground_truth"), list) and "queries" in parsed:
            parsed = _pair_ground_truth(parsed["queries"], parsed["ground_truth"], source.label)
        with _locate_ids(source):
            return Judgments(judgments_from_memory(parsed).nested, source=source.label)
    except MixedIds:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        hint = "{query: {document: grade}}, {query: [document, …]}, or {queries, ground_truth}"
        raise BadInput(f"not a judgments file ({error_summary(error)})", file=source.label, hint=hint) from None


def _pair_ground_truth(queries: Sequence[Any], ground_truth: Sequence[Any], label: str) -> dict[str, Any]:
    """Pair the queries of pgVectorDB with their relevant documents; raise BadInput for a duplicate query."""
    relevant: dict[str, Any] = {}
    for number, (query, docs) in enumerate(zip(queries, ground_truth, strict=True), 1):
        name = to_id(query, f"query {number}")
        if name in relevant:
            raise BadInput(f"query {number} appears more than once: `{one_line(name, 80)}`", file=label)
        relevant[name] = docs
    return relevant


def read_json_run(source: InputFile) -> Run:
    """Read a run from JSON: `{query: {document: score}}` or `{query: [document, …]}`."""
    parsed = read_json(source, ids=True)
    try:
        with _locate_ids(source):
            table = to_run_table(run_from_memory(parsed, source.stem))
    except MixedIds:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        hint = "{query: {document: score}} or {query: [document, …]}"
        raise BadInput(f"not a run file ({error_summary(error)})", file=source.label, hint=hint) from None
    if not table.height:
        raise BadInput("no rows", file=source.label)
    return Run(check_no_nulls(table, source.label, "score", None), source.stem)


def read_targets(source: InputFile) -> dict[str, list[str]]:
    """Read a target map from a file.

    Supported are JSON `{document: target or [target, …]}`, JSONL with `doc_id` and `targets`, and lines of a document
    and its targets, separated by commas (CSV), tabs (TSV) or blanks.
    """
    targets: dict[str, list[str]] = {}
    if source.ending in (".jsonl", ".ndjson"):
        docs = IdForms("document", file=source.label)
        for line_number, item in read_json_lines(source):
            doc, target_column = find_column(list(item), DOC_COLUMNS), find_column(list(item), ("targets", "target"))
            if doc is None or target_column is None:
                raise BadInput("expected doc_id and targets", file=source.label, line=line_number)
            if isinstance(item[doc], dict | list):
                raise BadInput(f"{doc} must be a text or a number", file=source.label, line=line_number)
            name = docs.convert(item[doc], line_number)
            targets.setdefault(name, []).extend(to_targets({name: item[target_column]})[name])
        return targets
    if source.ending == ".json":
        parsed = read_json(source, ids=True)
        if not isinstance(parsed, dict):
            raise BadInput("expected {document: [target, …]}", file=source.label)
        with _locate_ids(source):
            return to_targets(parsed)
    number = 0
    for block in source.blocks():
        for line in block.decode("utf-8", "replace").split("\n"):
            number += 1
            try:
                parts = [part.strip(ID_BLANKS) for part in _split_target_line(line, source.ending)]
            except csv.Error:
                hint = "a carriage return alone ends no line; `tr '\\r' '\\n'` makes lines of them"
                raise BadInput(
                    "the line contains a carriage return", file=source.label, line=number, hint=hint
                ) from None
            if (
                not parts
                or parts[0].startswith("#")
                or (number == 1 and parts[0].lower() in ("doc", "doc_id", "docid"))
            ):
                continue
            if len(parts) < 2:
                raise BadInput(f"expected a document and its targets, found `{line}`", file=source.label, line=number)
            targets.setdefault(parts[0], []).extend(parts[1:])
    return targets


def _split_target_line(line: str, ending: str) -> list[str]:
    if ending == ".csv":
        return next(csv.reader([line]), [])
    if ending == ".tsv" and "\t" in line:
        return [part for part in map(str.strip, line.split("\t")) if part]
    return line.split()


def write_nested_json(nested: ScoresByQuery, out: IO[bytes]) -> None:
    """Write `{query: {document: number}}` as JSON."""
    out.write(json.dumps({q: dict(docs) for q, docs in nested.items()}, ensure_ascii=False).encode() + b"\n")


DOCUMENT_ID_FIELDS = ("_id", "id", "doc_id", "docid", "docno", "document_id", "chunk_id", "pid")
"""Accepted field names for the id of a document; the first one present is used."""
QUERY_ID_FIELDS = (*DOCUMENT_ID_FIELDS[:5], "query_id", "qid")
"""Accepted field names for the id of a query."""
TEXT_FIELDS = ("text", "contents", "content", "body", "passage", "chunk", "page_content", "document", "abstract")
"""Accepted field names for the text of a document; the first one present is used."""
TITLE_FIELD = "title"


def describe_json_type(value: Any) -> str:
    """Describe the type of a JSON value with its article.

    >>> describe_json_type({}), describe_json_type(None), describe_json_type(2.5)
    ('an object', 'null', 'a number')
    """
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def check_manifest(manifest: Any) -> None:
    """Raise ValueError unless the fields of a run's manifest have the expected types."""
    if not isinstance(manifest, dict):
        raise ValueError(f"the manifest must be an object, got {describe_json_type(manifest)}")
    for name, (kind, article) in MANIFEST_FIELD_TYPES.items():
        value: Any = manifest
        for part in name.split("."):
            value = (value or {}).get(part)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"`{name}` of the manifest must be {article}, got {describe_json_type(value)}")
    if not all(isinstance(note, str) for note in manifest.get("notes") or ()):
        raise ValueError("`notes` of the manifest are not texts")


MANIFEST_FIELD_TYPES: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("system", "dataset", "plan", "machine", "evidence"), (dict, "an object")),
    **dict.fromkeys(("plan.k", "plan.repeats", "plan.workers"), (int, "an integer")),
    **dict.fromkeys(("dataset.documents", "judged_not_asked"), (int, "an integer")),
    **dict.fromkeys(("build_seconds", "cold_ms"), (int | float, "a number")),
    "judgments_hash": (str, "a text"),
    "notes": (list, "a list"),
}
"""Types of the fields of a manifest; a name with a dot is inside an object that is listed before it."""


def canonical_columns(header: Sequence[str], known_names: Iterable[str]) -> list[str]:
    """Replace column names that match known names but for case or blanks.

    >>> canonical_columns(["ID", " Text", "Source"], ["id", "text"])
    ['id', 'text', 'Source']
    """
    cells = [cell.strip() for cell in header]
    unmatched = {name.casefold(): name for name in known_names if name not in cells}
    return [unmatched.pop(cell.casefold(), cell) for cell in cells]
