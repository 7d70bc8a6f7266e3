"""Hashes of data, files and code: cache keys, and identities that are compared and shown."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragauge.core.documents import Document
    from ragauge.core.records import Judgments

HASHED_TYPES = (str, int, float, bool, type(None))
"""Types of attributes that `hash_source` includes."""


def digest(parts: Iterable[str], *, size_bytes: int = 16) -> str:
    """Hash texts in order.

    >>> digest(["ab", "c"]) != digest(["a", "bc"])
    True
    """
    state = hashlib.blake2b(digest_size=size_bytes)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little"))  # The length makes ("ab", "c") differ from ("a", "bc").
        state.update(data)
    return state.hexdigest()


def content_key(*parts: Any, compact: bool = True) -> str:
    """Hash values that a cached item depends on, as canonical JSON.

    Judges and replies are identified by compact JSON, stored benchmarks by JSON with blanks: neither may change.

    >>> content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    True
    """
    if not compact:
        return hash_text(json.dumps(parts, sort_keys=True, default=str))
    return hash_text(json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str))


def hash_text(text: str, length: int = 64) -> str:
    """Return the first hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def hash_bytes(data: bytes, *, size_bytes: int = 16) -> str:
    """Hash bytes, e.g. to detect identical files."""
    return hashlib.blake2b(data, digest_size=size_bytes).hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, which is read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_vectors(*matrices: Any) -> str:
    """Return the SHA-256 of the shapes, types and values of matrices."""
    import numpy as np

    state = hashlib.sha256()
    for matrix in matrices:
        state.update(f"{matrix.shape}{matrix.dtype}".encode())
        state.update(np.ascontiguousarray(matrix).data)
    return state.hexdigest()


def hash_documents(documents: Iterable[Document]) -> str:
    """Hash ids, titles, texts and metadata of documents, in order."""
    return digest(
        part
        for document in documents
        for part in (document.id, document.title, document.text, repr(dict(document.metadata)))
    )


def hash_judgments(judgments: Judgments) -> str:
    """Hash judgments regardless of their order.

    This is separate from the queries, because rankings stay valid if judgments change.
    """
    rows = sorted(_grade_rows(judgments.nested))
    subtopics = [] if judgments.subtopics is None else sorted(_grade_rows(judgments.subtopics))
    return digest(part for row in [*rows, *subtopics] for part in row)


def _grade_rows(grades: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str, str]]:
    return [(query, doc, f"{grade:g}") for query, docs in grades.items() for doc, grade in docs.items()]


def hash_source(implementation: Any) -> str:
    """Hash the source file of a function or class, and simple attributes.

    Changes in other files that it uses, or in a server, are not detected.
    """
    state = hashlib.blake2b(digest_size=12)
    unwrapped = inspect.unwrap(implementation) if callable(implementation) else implementation
    definition = unwrapped if inspect.isroutine(unwrapped) or inspect.isclass(unwrapped) else type(unwrapped)
    code = getattr(definition, "__code__", None)
    try:
        state.update(Path(inspect.getfile(definition)).read_bytes())
    except (TypeError, OSError):  # defined interactively, or built in
        state.update(b"" if code is None else code.co_code + repr(code.co_consts).encode("utf-8", "replace"))
    attributes = getattr(unwrapped, "__dict__", {}) if not inspect.isclass(unwrapped) else {}
    for name, value in sorted(attributes.items()):
        if isinstance(value, HASHED_TYPES):
            state.update(f"{name}={value!r};".encode("utf-8", "replace"))
    return state.hexdigest()
