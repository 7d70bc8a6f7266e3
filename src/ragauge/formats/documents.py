"""JSON: nested mappings as pytrec_eval and ranx write them, rig's JSONL, pgVectorDB's dataset, target maps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from ragauge.errors import BadInput
from ragauge.formats.files import Source
from ragauge.formats.memory import judgments_of
from ragauge.records import Judgments, Nested


def read_json(source: Source) -> Any:
    """A JSON file."""
    try:
        return json.loads(source.read())
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise BadInput(f"the JSON cannot be read ({error})", file=source.label, line=line) from None


def json_lines(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers."""
    number = 0
    for block in source.blocks():
        for line in block.splitlines():
            number += 1
            if not line.strip():
                continue
            try:
                item = json.loads(line)
            except ValueError as error:
                raise BadInput(f"the JSON cannot be read ({error})", file=source.label, line=number) from None
            if not isinstance(item, dict):
                raise BadInput("expected an object", file=source.label, line=number)
            yield number, item


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
        if isinstance(docs, list):
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
    thing = read_json(source)
    if isinstance(thing, dict) and isinstance(thing.get("ground_truth"), list) and "queries" in thing:
        thing = dict(zip((str(q) for q in thing["queries"]), thing["ground_truth"], strict=True))
    judgments = judgments_of(thing)
    return Judgments(judgments.nested, source=source.label)


def read_targets(source: Source) -> dict[str, list[str]]:
    """A target map: JSON `{document: target or [target, …]}`, or lines of `document target`."""
    targets: dict[str, list[str]] = {}
    if source.ending == ".json":
        thing = read_json(source)
        if not isinstance(thing, dict):
            raise BadInput("expected {document: [target, …]}", file=source.label)
        return as_targets(thing)
    number = 0
    for block in source.blocks():
        for line in block.decode("utf-8", "replace").splitlines():
            number += 1
            parts = line.replace(",", " ").split()
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
        str(doc): [str(t) for t in what] if isinstance(what, Sequence) and not isinstance(what, str) else [str(what)]
        for doc, what in thing.items()
    }


def write_json(nested: Nested, out: IO[bytes]) -> None:
    """`{query: {document: number}}`."""
    out.write(json.dumps({q: dict(docs) for q, docs in nested.items()}, ensure_ascii=False).encode() + b"\n")
