"""What the fields of a document may be called, and what a field of JSON holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def as_known(header: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names of columns, those that are known but for their case as they are known.

    >>> as_known(["ID", " Text", "Source"], ["id", "text"])
    ['id', 'text', 'Source']
    """
    cells = [cell.strip() for cell in header]
    free = {name.casefold(): name for name in known if name not in cells}
    return [free.pop(cell.casefold(), cell) for cell in cells]
