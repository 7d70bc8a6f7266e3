"""milvus-lite: a single-machine substitute for a Milvus server.

It is a separate program in Python over FAISS, accessed with pymilvus.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.systems.stores.engines import Home
from ragauge.systems.stores.intake import one_of

FILE = "milvus.db"
COLLECTION = "documents"
LONGEST = 65_535
"""Largest `max_length` of a VARCHAR field in Milvus."""
PAGE = 1000
COLUMNS = ("title", "text", "metadata")


class MilvusLite:
    """Collection with the id as primary key.

    Id, title, text and metadata (as JSON) are VARCHAR. `index` is `flat` (exact search) or `hnsw`. `commit` calls
    Milvus's `flush`.
    """

    keeps = EVERYTHING
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "flat") -> None:
        try:
            import milvus_lite.server_manager
            import pymilvus
        except ImportError as error:
            raise MissingExtra("the milvus-lite keeper", "milvus-lite") from error
        for name in ("pymilvus", "milvus_lite"):
            # Its log messages would repeat on standard error what the raised error says.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._servers: Any = milvus_lite.server_manager.server_manager_instance
        self._dimension = dimension
        self._index = one_of("index", index, ("flat", "hnsw"))
        self._speaking = Verbatim("milvus-lite")
        self._home = Home("milvus-lite", path)
        self._file = str(self._home.place(FILE, fresh=False))
        with self._speaking:
            self._client: Any = pymilvus.MilvusClient(self._file)
            if not self._client.has_collection(COLLECTION):
                self._make(pymilvus)
            self._client.load_collection(COLLECTION)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = matrix(documents, vectors, self._dimension)
        with self._speaking:
            given = [
                {
                    "id": one.id,
                    "title": one.title,
                    "text": one.text,
                    "metadata": written(one.metadata),
                    "vector": row,
                }
                for one, row in zip(documents, rows, strict=True)
            ]
            self._client.upsert(COLLECTION, given)

    def commit(self) -> None:
        """Flush the collection in Milvus."""
        with self._speaking:
            self._client.flush(COLLECTION)

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        if not len(ids):
            return []
        with self._speaking:
            # pymilvus's `get` does not escape ids, and fails on an id with a quote.
            names = json.dumps(list(dict.fromkeys(ids)), ensure_ascii=False)
            found = self._client.query(COLLECTION, filter=f"id in {names}", output_fields=["id", *COLUMNS])
        there = {row["id"]: document(row["id"], row["text"], row["title"], row["metadata"]) for row in found}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            pages = self._client.query_iterator(COLLECTION, batch_size=PAGE, output_fields=["id"])
            names: list[str] = []
            while page := pages.next():
                names += [str(row["id"]) for row in page]
            pages.close()
        return names

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that the index finds."""
        with self._speaking:
            (found,) = self._client.search(
                COLLECTION,
                data=[query(vector, self._dimension)],
                anns_field="vector",
                limit=k,
                search_params={"metric_type": "COSINE", "params": {}},
                output_fields=["id", "text"],
            )
        return [Hit(hit["id"], hit["distance"], hit["entity"]["text"]) for hit in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = {"version": version("milvus-lite"), "pymilvus": version("pymilvus"), "index": self._index}
        return {"keeper": "milvus-lite", **about, "dimension": self._dimension}

    def close(self) -> None:
        """Close the client and stop the server of this folder."""
        with self._speaking:
            self._client.close()
            self._servers.release_server(self._file)
        self._home.close()

    def _make(self, library: Any) -> None:
        kind = library.DataType
        schema = library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", kind.VARCHAR, is_primary=True, max_length=LONGEST)
        for name in COLUMNS:
            schema.add_field(name, kind.VARCHAR, max_length=LONGEST)
        schema.add_field("vector", kind.FLOAT_VECTOR, dim=self._dimension)
        index = self._client.prepare_index_params()
        index.add_index(field_name="vector", index_type=self._index.upper(), metric_type="COSINE")
        self._client.create_collection(COLLECTION, schema=schema, index_params=index)
