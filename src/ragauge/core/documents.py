"""Documents, hits, and the types from which documents can be made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput

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


def to_documents(given: Any) -> Sequence[Document]:
    """Convert pairs, mappings or `{id: text}` to documents.

    A sequence of documents is returned unchanged.

    >>> to_documents({"d1": "bees"}) == to_documents([("d1", "bees")]) == to_documents([{"id": "d1", "text": "bees"}])
    True
    """
    if isinstance(given, Mapping):
        return [to_document(pair) for pair in given.items()]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadInput(f"documents must be a list or a mapping, got {type(given).__name__}", hint=DOCUMENT_HINT)
    if isinstance(given, Sequence) and not isinstance(given, list | tuple):
        return given
    listed = given if isinstance(given, list | tuple) else list(given)
    return listed if all(type(one) is Document for one in listed) else [to_document(one) for one in listed]


def to_document(given: Any) -> Document:
    """Convert a pair, or a mapping with id and text, to a document."""
    if isinstance(given, Document):
        return given
    fields: Mapping[str, Any] = {}
    if isinstance(given, Mapping):
        fields = {"id": given.get("_id"), **given}
    elif isinstance(given, tuple | list) and len(given) == 2:
        fields = {"id": given[0], "text": given[1]}
    name, text, metadata = fields.get("id"), fields.get("text"), fields.get("metadata") or EMPTY_MAPPING
    if name is None or not isinstance(text, str):
        raise BadInput(f"not a document: {str(given)[:60]!r}; expected an id and a text", hint=DOCUMENT_HINT)
    if not isinstance(metadata, Mapping):
        raise BadInput(f"metadata of document `{name}` must be a mapping, got {str(metadata)[:60]!r}")
    return Document(str(name), text, str(fields.get("title") or ""), metadata)
