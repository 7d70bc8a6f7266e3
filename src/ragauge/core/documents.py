"""Documents, hits, and the types from which documents can be made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput
from ragauge.core.ids import IdForms, has_plain_ids

EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})
"""Empty read-only mapping."""
DOCUMENT_HINT = 'pass Document("d1", "text"), ("d1", "text") or {"id": "d1", "text": "text"}'


class Document(NamedTuple):
    """One document of a corpus."""

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = EMPTY_MAPPING

    @property
    def whole(self) -> str:
        """Title and text, or the text alone if it starts with the title."""
        return self.text if not self.title or self.text.startswith(self.title) else f"{self.title} {self.text}"


class Hit(NamedTuple):
    """One document that a system returned; a higher score is better."""

    id: str
    score: float
    text: str = ""
    metadata: Mapping[str, Any] = EMPTY_MAPPING


Documents = Iterable[Document] | Iterable[tuple[str, str]] | Iterable[Mapping[str, Any]] | Mapping[str, str]
"""Documents, `(id, text)` pairs, mappings with `id` (or `_id`), `text`, `title` and `metadata`, or `{id: text}`."""


def to_documents(documents: Any) -> Sequence[Document]:
    """Convert pairs, mappings or `{id: text}` to documents.

    A sequence of documents is returned unchanged.

    >>> to_documents({"d1": "bees"}) == to_documents([("d1", "bees")]) == to_documents([{"id": "d1", "text": "bees"}])
    True
    """
    if isinstance(documents, str) or not isinstance(documents, Iterable):
        raise BadInput(f"documents must be a list or a mapping, got {type(documents).__name__}", hint=DOCUMENT_HINT)
    if isinstance(documents, Sequence) and not isinstance(documents, list | tuple):
        return documents
    items = documents.items() if isinstance(documents, Mapping) else documents
    listed = items if isinstance(items, list | tuple) else list(items)
    if all(type(document) is Document for document in listed) and has_plain_ids([[item.id for item in listed]]):
        return listed
    ids = IdForms("document")
    return [to_document(item, ids) for item in listed]


def to_document(item: Any, ids: IdForms) -> Document:
    """Convert a pair, or a mapping with id and text, to a document."""
    if isinstance(item, Document):
        return item if item.id == "" else item._replace(id=ids.convert(item.id))  # only lenient readers leave it empty
    fields: Mapping[str, Any] = {}
    if isinstance(item, Mapping):
        fields = {"id": item.get("_id"), **item}
    elif isinstance(item, tuple | list) and len(item) == 2:
        fields = {"id": item[0], "text": item[1]}
    name, text, metadata = fields.get("id"), fields.get("text"), fields.get("metadata") or EMPTY_MAPPING
    if name is None or not isinstance(text, str):
        raise BadInput(f"not a document: {str(item)[:60]!r}; expected an id and a text", hint=DOCUMENT_HINT)
    if not isinstance(metadata, Mapping):
        raise BadInput(f"metadata of document `{name}` must be a mapping, got {str(metadata)[:60]!r}")
    return Document(ids.convert(name), text, str(fields.get("title") or ""), metadata)
