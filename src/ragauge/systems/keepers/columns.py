"""Document stores: how they are opened, and what their engine adapters share."""

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
"""Fields returned by a store that keeps whole documents."""


class Verbatim:
    """Context manager that raises errors of an engine as BackendFailed.

    The message is the original one, with secrets redacted.
    """

    def __init__(self, engine: str, secrets: Sequence[str] = ()) -> None:
        self._engine = engine
        register_secrets(*secrets)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Panics of engines in Rust are not subclasses of Exception.
        failed = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if error is None or not failed or isinstance(error, RagaugeError):
            return
        whole = str(error) or type(error).__name__
        words = redact(whole)
        raise BackendFailed(f"{self._engine}: {words}") from (error if words == whole else None)


def written(metadata: Mapping[str, Any]) -> str:
    """Convert metadata to ASCII JSON, which every engine can store; empty if none.

    >>> written({"name": "T1059", "n": [1, None]}), written({})
    ('{"name": "T1059", "n": [1, null]}', '')
    """
    return json.dumps(dict(metadata)) if metadata else ""


def document(name: str, text: Any, title: Any, metadata: Any) -> Document:
    """Build a document from the columns of an engine."""
    about = NOTHING if not metadata else metadata if isinstance(metadata, Mapping) else parse_json(metadata)
    return Document(name, text, title, about)


def matrix(documents: Sequence[Document], vectors: Any, dimension: int) -> Matrix:
    """Convert the vectors of documents to float32 rows.

    Raises BadInput for a wrong shape.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.shape != (len(documents), dimension):
        raise BadInput(f"{len(documents)} documents need as many vectors of {dimension} numbers, not {rows.shape}")
    return rows


def query(vector: Any, dimension: int) -> Matrix:
    """Convert a query vector to one float32 row; raise BadInput for a wrong length."""
    row = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
    if len(row) != dimension:
        raise BadInput(f"the vector of a query has {dimension} numbers, not {len(row)}")
    return row
