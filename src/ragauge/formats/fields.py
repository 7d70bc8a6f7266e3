"""Names of the fields of documents, and types of JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

IDS = ("_id", "id", "doc_id", "docid", "docno", "document_id", "chunk_id", "pid")
"""Accepted field names for the id of a document; the first one present is used."""
QUERY_IDS = (*IDS[:5], "query_id", "qid")
"""Accepted field names for the id of a query."""
TEXTS = ("text", "contents", "content", "body", "passage", "chunk", "page_content", "document", "abstract")
"""Accepted field names for the text of a document; the first one present is used."""
TITLE = "title"


def kind_of(value: Any) -> str:
    """Describe the type of a JSON value with its article.

    >>> kind_of({}), kind_of(None), kind_of(2.5)
    ('an object', 'null', 'a number')
    """
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def check_manifest(manifest: Any) -> None:
    """Raise ValueError unless the fields of a run's manifest have the expected types."""
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
"""Types of the fields of a manifest; a name with a dot is inside an object that is listed before it."""


def as_known(header: Sequence[str], known: Iterable[str]) -> list[str]:
    """Replace column names that match known names but for case or blanks.

    >>> as_known(["ID", " Text", "Source"], ["id", "text"])
    ['id', 'text', 'Source']
    """
    cells = [cell.strip() for cell in header]
    free = {name.casefold(): name for name in known if name not in cells}
    return [free.pop(cell.casefold(), cell) for cell in cells]
