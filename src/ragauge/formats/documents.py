"""JSON: nested mappings as pytrec_eval and ranx write them, rig's JSONL, pgVectorDB's dataset, target maps."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from ragauge.errors import BadInput
from ragauge.formats.columns import DOC, checked, find, is_header
from ragauge.formats.files import Source
from ragauge.formats.memory import as_table, judgments_of, run_of
from ragauge.formats.unicode_text import clean_json, may_have_surrogates, warn_replaced
from ragauge.records import Judgments, Nested, Run
from ragauge.structured_text import parse_json


def read_json(source: Source, *, ids: bool = False) -> Any:
    """A JSON file; `ids`: every text in it is an id."""
    data = source.read()
    found = parse_json(data, file=source.label)
    if not may_have_surrogates(data):
        return found
    clean, replaced = clean_json(found, file=source.label, data=data, ids=ids)
    warn_replaced(replaced, source.label)
    return clean


def json_lines(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers."""
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


def is_row(first: str) -> bool:
    """Whether a line is a whole object that names a query and a document: a row of JSONL."""
    try:
        item = parse_json(first)
    except ValueError:
        return False
    return isinstance(item, dict) and is_header(list(item))


def is_rig(first: str) -> bool:
    """Whether a line is rig's: it names the relevant documents of a query."""
    return '"relevant_docs"' in first


def read_rig(source: Source) -> Judgments:
    """Rig's JSONL: `query_id`, `query`, `relevant_docs` (grades by document, or a list), `reference_answer`."""
    grades: dict[str, dict[str, float]] = {}
    for line, item in json_lines(source):
        if "query_id" not in item or "relevant_docs" not in item:
            raise BadInput("expected query_id and relevant_docs", file=source.label, line=line)
        query, docs = str(item["query_id"]), item["relevant_docs"]
        if query in grades:
            raise BadInput(f"query `{query}` stands twice", file=source.label, line=line)
        if isinstance(docs, list) and all(isinstance(doc, str | int) for doc in docs):
            docs = dict.fromkeys(docs, 1)
        if not isinstance(docs, dict) or not all(isinstance(g, int | float) for g in docs.values()):
            raise BadInput("relevant_docs is neither a list nor grades by document", file=source.label, line=line)
        grades[query] = {str(doc): grade for doc, grade in docs.items()}
    if not grades:
        raise BadInput("no judgments", file=source.label)
    return Judgments(grades, source=source.label)


def write_rig(judgments: Judgments, out: IO[bytes]) -> None:
    """Rig's JSONL, a query a line."""
    for query, docs in judgments.nested.items():
        whole = {doc: int(g) if g == int(g) else g for doc, g in docs.items()}
        line = {"query_id": query, "query": "", "relevant_docs": whole}
        out.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def json_judgments(source: Source) -> Judgments:
    """Judgments from JSON: `{query: {document: grade}}`, `{query: [document, …]}`, or pgVectorDB's dataset."""
    thing = read_json(source, ids=True)
    try:
        if isinstance(thing, dict) and isinstance(thing.get("ground_truth"), list) and "queries" in thing:
            thing = dict(zip((str(q) for q in thing["queries"]), thing["ground_truth"], strict=True))
        return Judgments(judgments_of(thing).nested, source=source.label)
    except (TypeError, ValueError, AttributeError) as error:
        hint = "{query: {document: grade}}, {query: [document, …]}, or {queries, ground_truth}"
        raise BadInput(f"these are no judgments ({_first_line(error)})", file=source.label, hint=hint) from None


def json_run(source: Source) -> Run:
    """A run from JSON: `{query: {document: score}}`, or `{query: [document, …]}`."""
    thing = read_json(source, ids=True)
    try:
        table = as_table(run_of(thing, source.stem))
    except (TypeError, ValueError, AttributeError) as error:
        hint = "{query: {document: score}} or {query: [document, …]}"
        raise BadInput(f"this is no run ({_first_line(error)})", file=source.label, hint=hint) from None
    if not table.height:
        raise BadInput("no rows", file=source.label)
    return Run(checked(table, source.label, "score", None), source.stem)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def read_targets(source: Source) -> dict[str, list[str]]:
    """A target map: JSON `{document: target or [target, …]}`, or lines of `document target`."""
    targets: dict[str, list[str]] = {}
    if source.ending in (".jsonl", ".ndjson"):
        for at, item in json_lines(source):
            doc, what = find(list(item), DOC), find(list(item), ("targets", "target"))
            if doc is None or what is None:
                raise BadInput("expected doc_id and targets", file=source.label, line=at)
            targets.setdefault(str(item[doc]), []).extend(as_targets({"": item[what]})[""])
        return targets
    if source.ending == ".json":
        thing = read_json(source, ids=True)
        if not isinstance(thing, dict):
            raise BadInput("expected {document: [target, …]}", file=source.label)
        return as_targets(thing)
    number = 0
    for block in source.blocks():
        for line in block.decode("utf-8", "replace").split("\n"):
            number += 1
            try:
                parts = next(csv.reader([line]), []) if source.ending == ".csv" else line.split()
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


def as_targets(thing: Mapping[Any, Any]) -> dict[str, list[str]]:
    """A target map with lists of strings, whatever it was given with.

    >>> as_targets({"d1": "A", 2: ["A", "B"]})
    {'d1': ['A'], '2': ['A', 'B']}
    """
    return {
        str(doc): [str(what)] if isinstance(what, str) or not isinstance(what, Iterable) else [str(t) for t in what]
        for doc, what in thing.items()
    }


def write_json(nested: Nested, out: IO[bytes]) -> None:
    """`{query: {document: number}}`."""
    out.write(json.dumps({q: dict(docs) for q, docs in nested.items()}, ensure_ascii=False).encode() + b"\n")
