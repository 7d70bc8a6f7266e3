"""Document stores: how they are opened, and what their engine adapters share."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np

from ragauge.core import plugins
from ragauge.core.documents import EMPTY_MAPPING, Document, Hit
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import OtherOptions, PluginParameters, read_parameters
from ragauge.core.protocols import DocumentStore
from ragauge.core.specs import Spec, parse_spec
from ragauge.core.structured_text import parse_json
from ragauge.stores.bookkeeping import Matrix, normalise_rows
from ragauge.stores.engines import DocumentEngine, DocumentRow, EngineErrors, EngineFolder, TableLayout
from ragauge.stores.store_types import load_store_type
from ragauge.stores.vector_store import VectorStore


def open_document_store(described: str | Callable[..., Any], path: str | Path | None, dimension: int) -> DocumentStore:
    """Open a document store in a folder.

    It is given by name (`pgvector(index=hnsw)`), as `module:Class`, or as a class.

    >>> from ragauge.core.documents import Document
    >>> keeper = open_document_store("memory", None, 2)
    >>> keeper.put([Document("a", "text")], [[1.0, 0.0]])
    >>> keeper.get(["a", "b"])[0].text
    'text'
    """
    parameters, options = check_document_store_options(described)
    context = {"path": None if path is None else str(path), "dimension": dimension}
    accepted = {name: value for name, value in context.items() if parameters.accepts_any or name in parameters.options}
    store: DocumentStore = parameters.call({**accepted, **options})
    return store


def check_document_store_options(described: str | Callable[..., Any]) -> tuple[PluginParameters, dict[str, Any]]:
    """Return the parameters of a document store, and its options.

    Raises BadInput for an option that it does not have. The store is not opened.
    """
    factory, options, name = _document_store_class(described)
    parameters = read_parameters(factory)
    unknown = sorted(options.keys() - parameters.options.keys())
    if unknown and not parameters.accepts_any and parameters.other_options is None:
        option_names = ", ".join(name for name in parameters.options if name not in ("path", "dimension")) or "none"
        raise BadInput(f"the document store {name} has no option {unknown[0]!r}", hint=f"its options: {option_names}")
    return parameters, options


def _document_store_class(described: str | Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any], str]:
    if callable(described):
        return described, {}, getattr(described, "__name__", type(described).__name__)
    spec = parse_spec(described)
    if ":" in spec.name:
        return plugins.import_user_object(spec.name), _plain_options(spec), spec.name
    return plugins.load_plugin("document_stores", spec.name, accepts_class=True), _plain_options(spec), spec.name


def _plain_options(spec: Spec) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Spec) else value for key, value in spec.options.items()}


ALL_FIELDS = frozenset(("text", "title", "metadata"))
"""Fields returned by a store that keeps whole documents."""


def metadata_to_json(metadata: Mapping[str, Any]) -> str:
    """Convert metadata to ASCII JSON, which every engine can store; empty if none.

    >>> metadata_to_json({"name": "T1059", "n": [1, None]}), metadata_to_json({})
    ('{"name": "T1059", "n": [1, null]}', '')
    """
    return json.dumps(dict(metadata)) if metadata else ""


def document_from_columns(name: str, text: Any, title: Any, metadata: Any) -> Document:
    """Build a document from the columns of an engine."""
    parsed = EMPTY_MAPPING if not metadata else metadata if isinstance(metadata, Mapping) else parse_json(metadata)
    return Document(name, text, title, parsed)


def to_document_matrix(documents: Sequence[Document], vectors: Any, dimension: int) -> Matrix:
    """Convert the vectors of documents to float32 rows.

    Raises BadInput for a wrong shape.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.shape != (len(documents), dimension):
        raise BadInput(
            f"expected one vector of {dimension} dimensions per document, "
            f"got shape {rows.shape} for {len(documents)} documents"
        )
    return rows


def to_query_vector(vector: Any, dimension: int) -> Matrix:
    """Convert a query vector to one float32 row; raise BadInput for a wrong length."""
    row = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
    if len(row) != dimension:
        raise BadInput(f"the vector of a query must have {dimension} dimensions, got {len(row)}")
    return row


JOURNAL_FILE = "journal.jsonl"


class MemoryDocumentStore:
    """Reference document store: a dictionary, searched by exact cosine similarity.

    With a folder, each document is also written as a line of a journal, which `commit` flushes to disk and the next
    opening reads. An incomplete last line, left by a killed process, was not committed and is cut off.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int) -> None:
        self._dimension = dimension
        self._documents: dict[str, Document] = {}
        self._vectors: dict[str, Matrix] = {}
        self._journal: IO[bytes] | None = None
        if path is not None:
            Path(path).mkdir(parents=True, exist_ok=True)
            self._journal = (Path(path) / JOURNAL_FILE).open("ab+")
            self._replay_journal(self._journal)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        for document, vector in zip(documents, to_document_matrix(documents, vectors, self._dimension), strict=True):
            self._documents[document.id], self._vectors[document.id] = document, vector.copy()
            if self._journal is not None:
                row = [
                    document.id,
                    document.text,
                    document.title,
                    metadata_to_json(document.metadata),
                    base64.b64encode(vector.tobytes()).decode(),
                ]
                self._journal.write(json.dumps(row).encode() + b"\n")

    def commit(self) -> None:
        """Flush the journal to disk."""
        if self._journal is not None:
            self._journal.flush()
            os.fsync(self._journal.fileno())

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        return [self._documents.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        return list(self._documents)

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity, by brute force."""
        query = normalise_rows(to_query_vector(vector, self._dimension)[None])[0].astype(np.float64)
        if not self._vectors:
            return []
        names = list(self._vectors)
        cosines = normalise_rows(np.stack([self._vectors[name] for name in names])).astype(np.float64) @ query
        best = np.argsort(-cosines, kind="stable")[:k]
        return [
            Hit(names[position], float(cosines[position]), self._documents[names[position]].text) for position in best
        ]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {"keeper": "memory", "index": "none", "size": len(self._documents), "dimension": self._dimension}

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _replay_journal(self, journal: IO[bytes]) -> None:
        journal.seek(0)
        n_valid_bytes = 0
        for line in journal:
            if not line.endswith(b"\n"):
                break
            name, text, title, about, vector = parse_json(line)
            self._documents[name] = document_from_columns(name, text, title, about)
            self._vectors[name] = np.frombuffer(base64.b64decode(vector), dtype=np.float32)
            n_valid_bytes += len(line)
        journal.truncate(n_valid_bytes)


class EngineDocumentStore:
    """Document store over a database: ids are its keys and documents its rows, both unchanged.

    Nothing is checked but the shape of vectors: finding what the database changes or loses is the purpose of the
    stress test.
    """

    keeps = ALL_FIELDS

    def __init__(self, engine: DocumentEngine, path: str | None, dimension: int, secrets: Sequence[str] = ()) -> None:
        self._engine = engine
        self._dimension = dimension
        self._errors = EngineErrors(engine.name, secrets, verbatim=True)
        self._home = EngineFolder(engine.name, path)
        engine.layout = TableLayout("documents", "cosine", dimension)
        try:
            with self._errors:
                engine.open(self._home, fresh=False)
                engine.create()
        except BaseException:
            self._home.close()
            raise

    @property
    def searches(self) -> str:
        """What the store searches: `vectors` or `words`."""
        return self._engine.searches

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        matrix = to_document_matrix(documents, vectors, self._dimension)
        with self._errors:
            rows = [
                DocumentRow(document.id, document.text, document.title, metadata_to_json(document.metadata))
                for document in documents
            ]
            self._engine.upsert(rows, matrix)

    def commit(self) -> None:
        """Make all stored documents durable."""
        with self._errors:
            self._engine.commit()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        if not len(ids):
            return []
        with self._errors:
            by_id = {row.id: document_from_columns(*row) for row in self._engine.fetch(ids)}
        return [by_id.get(document_id) for document_id in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._errors:
            return self._engine.ids()

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:
        """Return the `k` best documents that the database finds."""
        query = to_query_vector(vector, self._dimension)
        with self._errors:
            return self._engine.search_documents(text, query, k)

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        with self._errors:
            return {"keeper": self._engine.name, **self._engine.describe(), "dimension": self._dimension}

    def close(self) -> None:
        """Close the database; a temporary folder is removed."""
        with self._errors:
            self._engine.close()
        self._home.close()


STORE_OPTIONS = OtherOptions("OPTION=VALUE of the store", is_required=False)


class VectorsOnlyDocumentStore:
    """Vector store as a document store without texts: `vectors(store=faiss)`.

    Other options are those of the vector store.

    A document is returned with its id only, and `keeps` is empty. These libraries identify vectors by position;
    ragauge writes the ids to a file next to the index on `commit`.
    """

    keeps: frozenset[str] = frozenset()
    searches = "vectors"

    def __init__(
        self,
        *,
        path: str | None = None,
        dimension: int,
        store: str = "faiss",
        options: Annotated[Mapping[str, Any], STORE_OPTIONS] = EMPTY_MAPPING,
    ) -> None:
        opened = load_store_type(store).open(options, {"metric": "cosine", "path": path})
        if not isinstance(opened, VectorStore):
            raise BadInput(f"the document store vectors needs a store of ragauge, got {store}")
        self._dimension = dimension
        self._path = path
        self._store = opened

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store the vectors of documents; an existing id gets the new vector."""
        rows = to_document_matrix(documents, vectors, self._dimension)
        stored_ids = set(self.ids())
        old_positions = [position for position, document in enumerate(documents) if document.id in stored_ids]
        new_positions = [position for position, document in enumerate(documents) if document.id not in stored_ids]
        if old_positions:
            self._store.update([documents[position].id for position in old_positions], rows[old_positions])
        if new_positions:
            self._store.add([documents[position].id for position in new_positions], rows[new_positions])

    def commit(self) -> None:
        """Write the whole store to its folder, if it has one."""
        if self._path is not None:
            self._store.save()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return an empty document for a known id, None for an unknown one."""
        stored_ids = set(self.ids())
        return [Document(name, "") if name in stored_ids else None for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored vectors."""
        return self._store.ids

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that the vector store finds."""
        names, distances = self._store.search(to_query_vector(vector, self._dimension)[None], k)
        pairs = zip(names[0].tolist(), distances[0].tolist(), strict=True)
        return [Hit(name, 1 - distance) for name, distance in pairs if name is not None]

    def describe(self) -> dict[str, Any]:
        """Return the description of the vector store."""
        return {"keeper": "vectors", **self._store.describe()}

    def close(self) -> None:
        """Close the vector store."""
        self._store.close()
