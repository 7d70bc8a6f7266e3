"""A document as the columns of an engine, what an engine says when it fails, and the vectors that it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ragauge.errors import BackendFailed, BadInput, RagaugeError
from ragauge.keys import redact, register_secrets
from ragauge.records import NOTHING, Document
from ragauge.structured_text import parse_json
from ragauge.systems.stores.intake import Matrix

EVERYTHING = frozenset(("text", "title", "metadata"))
"""What a keeper that keeps documents gives back."""


class Verbatim:
    """What an engine refuses inside becomes an error of ours with its own words, to the letter, but for secrets."""

    def __init__(self, engine: str, secrets: Sequence[str] = ()) -> None:
        self._engine = engine
        register_secrets(*secrets)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Engines in Rust that panic raise what is no Exception.
        failed = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if error is None or not failed or isinstance(error, RagaugeError):
            return
        whole = str(error) or type(error).__name__
        words = redact(whole)
        raise BackendFailed(f"{self._engine}: {words}") from (error if words == whole else None)


def written(metadata: Mapping[str, Any]) -> str:
    """Metadata as JSON, in ASCII, so that every engine can keep it; nothing where there is none.

    >>> written({"name": "T1059", "n": [1, None]}), written({})
    ('{"name": "T1059", "n": [1, null]}', '')
    """
    return json.dumps(dict(metadata)) if metadata else ""


def document(name: str, text: Any, title: Any, metadata: Any) -> Document:
    """The document that stands in these columns."""
    about = NOTHING if not metadata else metadata if isinstance(metadata, Mapping) else parse_json(metadata)
    return Document(name, text, title, about)


def matrix(documents: Sequence[Document], vectors: Any, dimension: int) -> Matrix:
    """The vectors of documents as rows of single precision, if there is one of the right length for each."""
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.shape != (len(documents), dimension):
        raise BadInput(f"{len(documents)} documents need as many vectors of {dimension} numbers, not {rows.shape}")
    return rows


def query(vector: Any, dimension: int) -> Matrix:
    """The vector of a query as one row."""
    row = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
    if len(row) != dimension:
        raise BadInput(f"the vector of a query has {dimension} numbers, not {len(row)}")
    return row
