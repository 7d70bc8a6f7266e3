"""What the fields of a document may be called, and what a field of JSON holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

IDS = ("_id", "id", "doc_id", "docid", "docno", "document_id", "chunk_id", "pid")
"""What the id of a document may be called; the first that is there counts."""
QUERY_IDS = (*IDS[:5], "query_id", "qid")
"""And that of a query."""
TEXTS = ("text", "contents", "content", "body", "passage", "chunk", "page_content", "document", "abstract")
"""What the text of a document may be called, likewise."""
TITLE = "title"


def kind_of(value: Any) -> str:
    """What a value of JSON is.

    >>> kind_of({}), kind_of(None), kind_of(2.5)
    ('an object', 'null', 'a number')
    """
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def check_manifest(manifest: Any) -> None:
    """Raise ValueError unless the parts of a run's manifest are of the kinds that readers rely on."""
    if not isinstance(manifest, dict):
        raise ValueError(f"the manifest is {kind_of(manifest)}, not an object")
    for name, (kind, article) in MANIFEST_KINDS.items():
        found: Any = manifest
        for part in name.split("."):
            found = (found or {}).get(part)
        if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
            raise ValueError(f"`{name}` of the manifest is {kind_of(found)}, not {article}")
    if not all(isinstance(note, str) for note in manifest.get("notes") or ()):
        raise ValueError("`notes` of the manifest are not texts")


MANIFEST_KINDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("system", "dataset", "plan", "machine", "evidence"), (dict, "an object")),
    **dict.fromkeys(("plan.k", "plan.repeats", "plan.workers"), (int, "an integer")),
    **dict.fromkeys(("dataset.documents", "judged_not_asked"), (int, "an integer")),
    **dict.fromkeys(("build_seconds", "cold_ms"), (int | float, "a number")),
    "judgments_hash": (str, "a text"),
    "notes": (list, "a list"),
}
"""The kinds of the parts of a manifest; a part with a dot is within another that is listed before it."""


def as_known(header: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names of columns, those that are known but for their case as they are known.

    >>> as_known(["ID", " Text", "Source"], ["id", "text"])
    ['id', 'text', 'Source']
    """
    cells = [cell.strip() for cell in header]
    free = {name.casefold(): name for name in known if name not in cells}
    return [free.pop(cell.casefold(), cell) for cell in cells]
