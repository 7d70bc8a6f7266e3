"""milvus-lite: a single-machine substitute for a Milvus server.

It is a separate program in Python over FAISS, accessed with pymilvus.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.stores.bookkeeping import StoreBookkeeping, require_folder
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import EngineErrors, EngineFolder, MetadataColumns, preload_modules
from ragauge.stores.filter_conditions import EQUAL, FilterCondition

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


DOCUMENT_FILE = "milvus.db"
DOCUMENT_COLLECTION = "documents"
MAX_VARCHAR_LENGTH = 65_535
"""Largest `max_length` of a VARCHAR field in Milvus."""
IDS_PER_PAGE = 1000
DOCUMENT_COLUMNS = ("title", "text", "metadata")


class MilvusLiteDocumentStore:
    """Collection with the id as primary key.

    Id, title, text and metadata (as JSON) are VARCHAR. `index` is `flat` (exact search) or `hnsw`. `commit` calls
    Milvus's `flush`.
    """

    keeps = ALL_FIELDS
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
        self._index = check_choice("index", index, ("flat", "hnsw"))
        self._speaking = VerbatimEngineErrors("milvus-lite")
        self._home = EngineFolder("milvus-lite", path)
        self._file = str(self._home.place(DOCUMENT_FILE, fresh=False))
        with self._speaking:
            self._client: Any = pymilvus.MilvusClient(self._file)
            if not self._client.has_collection(DOCUMENT_COLLECTION):
                self._create_collection(pymilvus)
            self._client.load_collection(DOCUMENT_COLLECTION)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = to_document_matrix(documents, vectors, self._dimension)
        with self._speaking:
            given = [
                {
                    "id": one.id,
                    "title": one.title,
                    "text": one.text,
                    "metadata": metadata_to_json(one.metadata),
                    "vector": row,
                }
                for one, row in zip(documents, rows, strict=True)
            ]
            self._client.upsert(DOCUMENT_COLLECTION, given)

    def commit(self) -> None:
        """Flush the collection in Milvus."""
        with self._speaking:
            self._client.flush(DOCUMENT_COLLECTION)

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        if not len(ids):
            return []
        with self._speaking:
            # pymilvus's `get` does not escape ids, and fails on an id with a quote.
            names = json.dumps(list(dict.fromkeys(ids)), ensure_ascii=False)
            found = self._client.query(
                DOCUMENT_COLLECTION, filter=f"id in {names}", output_fields=["id", *DOCUMENT_COLUMNS]
            )
        there = {
            row["id"]: document_from_columns(row["id"], row["text"], row["title"], row["metadata"]) for row in found
        }
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            pages = self._client.query_iterator(DOCUMENT_COLLECTION, batch_size=IDS_PER_PAGE, output_fields=["id"])
            names: list[str] = []
            while page := pages.next():
                names += [str(row["id"]) for row in page]
            pages.close()
        return names

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that the index finds."""
        with self._speaking:
            (found,) = self._client.search(
                DOCUMENT_COLLECTION,
                data=[to_query_vector(vector, self._dimension)],
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

    def _create_collection(self, library: Any) -> None:
        kind = library.DataType
        schema = library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", kind.VARCHAR, is_primary=True, max_length=MAX_VARCHAR_LENGTH)
        for name in DOCUMENT_COLUMNS:
            schema.add_field(name, kind.VARCHAR, max_length=MAX_VARCHAR_LENGTH)
        schema.add_field("vector", kind.FLOAT_VECTOR, dim=self._dimension)
        index = self._client.prepare_index_params()
        index.add_index(field_name="vector", index_type=self._index.upper(), metric_type="COSINE")
        self._client.create_collection(DOCUMENT_COLLECTION, schema=schema, index_params=index)


VECTOR_FILE = "milvus.db"
VECTOR_COLLECTION = "vectors"
MILVUS_METRICS = {"cosine": "COSINE", "l2": "L2", "ip": "IP"}
INSERT_BATCH_ROWS = 2000
INDEX_TYPES = {"flat": "FLAT", "hnsw": "HNSW", "hnsw_sq": "HNSW_SQ", "ivf_flat": "IVF_FLAT", "ivf_sq8": "IVF_SQ8"}
"""Index types of milvus-lite 3: FLAT uses NumPy, the others FAISS, with one index per segment."""
LAZY_MODULES = (
    "milvus_lite.search.filter.cache",
    "milvus_lite.search.indexed_filter",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "scipy.sparse",
)
"""Modules that pymilvus and milvus-lite import during the first insert, flush and search."""


class MilvusLiteStore:
    """milvus-lite collection, accessed with pymilvus over gRPC like a Milvus server.

    `index` is flat, hnsw or hnsw_sq (`m`, `ef_construction`; `ef_search`), ivf_flat or ivf_sq8 (`nlist`; `nprobe`).
    Vectors added after `build()` are searched by brute force until they fill a segment. Results do not apply to
    Milvus itself.
    """

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        index: str = "hnsw",
        m: int = 16,
        ef_construction: int = 100,
        nlist: int = 64,
        ef_search: int = 64,
        nprobe: int = 8,
    ) -> None:
        try:
            import milvus_lite.server_manager
            import pymilvus
        except ImportError as error:
            raise MissingExtra("the milvus-lite store", "milvus-lite") from error
        preload_modules(*LAZY_MODULES)
        for name in ("pymilvus", "milvus_lite"):
            # Its log messages would repeat on standard error what the raised error says.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._library: Any = pymilvus
        self._servers: Any = milvus_lite.server_manager.server_manager_instance
        self._intake = StoreBookkeeping(metric)
        self._columns = MetadataColumns()
        self._kind = check_choice("index", index, tuple(INDEX_TYPES))
        self._m = check_int("m", m, 2)
        self._ef_construction = check_int("ef_construction", ef_construction)
        self._nlist = check_int("nlist", nlist)
        self._options: dict[str, int] = {}
        self.tune(ef_search=ef_search, nprobe=nprobe)
        self._path = path
        self._speaking = EngineErrors("milvus-lite")
        self._home = EngineFolder("milvus-lite", path)
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self._columns.read(self._intake.built.get("columns", {}))
        self._file = str(self._home.place(VECTOR_FILE, fresh=not there))
        self._ready = there
        with self._speaking:
            self._client: Any = pymilvus.MilvusClient(self._file)
            if there:
                self._client.load_collection(VECTOR_COLLECTION)

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all but sharing.

        A folder belongs to one process at a time.
        """
        return frozenset(("insert", "update", "delete", "filter", "save", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "milvus-lite",
            "version": version("milvus-lite"),
            "pymilvus": version("pymilvus"),
            "engine": "NumPy" if self._kind == "flat" else f"FAISS {version('faiss-cpu')}",
            "metric": self._intake.metric,
            **self._build_time_options(),
            **self._options,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        self._columns.learn(self._columns.new(ids, metadata))
        with self._speaking:
            if self._intake.dimension is None:
                self._create_collection(matrix.shape[1])
            for start in range(0, len(matrix), INSERT_BATCH_ROWS):
                rows = [
                    {"id": self._intake.places + number, "vector": matrix[number]}
                    | (self._columns.named(metadata[number]) if metadata else {})
                    for number in range(start, min(start + INSERT_BATCH_ROWS, len(matrix)))
                ]
                self._client.insert(VECTOR_COLLECTION, rows)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Build the index over the added vectors."""
        if self._intake.dimension is None:
            return
        with self._speaking:
            self._client.flush(VECTOR_COLLECTION)
            if not self._client.list_indexes(VECTOR_COLLECTION):
                asked = self._client.prepare_index_params()
                asked.add_index(
                    field_name="vector",
                    index_type=INDEX_TYPES[self._kind],
                    metric_type=MILVUS_METRICS[self._intake.metric],
                    # pymilvus flattens `params`, but milvus-lite looks for a key `params`: without this nesting it
                    # would silently use its defaults.
                    params={"params": self._milvus_index_parameters()},
                )
                self._client.create_index(VECTOR_COLLECTION, asked)
            self._client.load_collection(VECTOR_COLLECTION)
        self._ready = True

    def tune(self, *, ef_search: int | None = None, nprobe: int | None = None) -> None:
        """Set search options."""
        for name, value in (("ef_search", ef_search), ("nprobe", nprobe)):
            if value is not None and name == ("ef_search" if "hnsw" in self._kind else "nprobe"):
                self._options[name] = check_int(name, value)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        if not self._ready:
            self.build()
        wanted = self._columns.wanted(where) if where else []
        if not len(self) or not len(queries) or wanted is None:
            return self._intake.empty(len(queries), k)
        condition = " and ".join(map(_filter_expression, wanted))
        options = {"ef": max(k, self._options["ef_search"])} if "ef_search" in self._options else dict(self._options)
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        values = np.full((len(queries), k), np.inf, dtype=np.float32)
        with self._speaking, stage("retrieve"):
            found = self._client.search(
                VECTOR_COLLECTION,
                data=list(queries),
                anns_field="vector",
                limit=min(k, len(self)),
                filter=condition,
                search_params={"metric_type": MILVUS_METRICS[self._intake.metric], "params": options},
                output_fields=["id"],
            )
            for row, hits in enumerate(found):
                positions[row, : len(hits)] = [hit["id"] for hit in hits]
                values[row, : len(hits)] = [hit["distance"] for hit in hits]
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = -values
        else:
            # Vectors in and outside the index differ in the last digit, so round to what single precision supports.
            values = np.maximum(1 - values, 0).round(6)
        values = np.where(positions < 0, np.inf, values)
        # The order of equal distances changes when the collection is reopened.
        order = np.lexsort((positions, values), axis=1)
        positions, values = np.take_along_axis(positions, order, axis=1), np.take_along_axis(values, order, axis=1)
        return self._intake.answer(positions, values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids; their metadata are read and written again."""
        positions, matrix = self._intake.replacements(ids, vectors)
        if not len(ids):
            return
        with self._speaking:
            names = [column.name for column in self._columns]
            there = self._client.get(VECTOR_COLLECTION, ids=positions.tolist(), output_fields=names) if names else []
            known = {row["id"]: {name: row[name] for name in names if row.get(name) is not None} for row in there}
            rows = [
                {"id": place, "vector": row, **known.get(place, {})}
                for place, row in zip(positions.tolist(), matrix, strict=True)
            ]
            self._client.upsert(VECTOR_COLLECTION, rows)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        if len(ids):
            with self._speaking:
                self._client.delete(VECTOR_COLLECTION, ids=positions.tolist())
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("milvus-lite", self._path)
        self.build()
        if self._intake.dimension is not None:
            self._intake.write(folder, **self._build_time_options(), columns=self._columns.kept())

    def close(self) -> None:
        """Close the client and stop the server of this folder."""
        with self._speaking:
            self._client.close()
            self._servers.release_server(self._file)
        self._home.close()

    def _build_time_options(self) -> dict[str, Any]:
        return {"index": self._kind, **self._index_sizes()}

    def _index_sizes(self) -> dict[str, int]:
        if "hnsw" in self._kind:
            return {"m": self._m, "ef_construction": self._ef_construction}
        return {"nlist": self._nlist} if "ivf" in self._kind else {}

    def _milvus_index_parameters(self) -> dict[str, int]:
        theirs = {"m": "M", "ef_construction": "efConstruction"}
        return {theirs.get(name, name): value for name, value in self._index_sizes().items()}

    def _create_collection(self, dimension: int) -> None:
        kind = self._library.DataType
        schema = self._library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("id", kind.INT64, is_primary=True)
        schema.add_field("vector", kind.FLOAT_VECTOR, dim=dimension)
        self._client.create_collection(VECTOR_COLLECTION, schema=schema)


def _filter_expression(condition: FilterCondition) -> str:
    """Format a condition as a Milvus filter expression."""
    field, operator, value = condition
    return f"{field} {'==' if operator == EQUAL else operator} {_expression_literal(value)}"


def _expression_literal(value: Any) -> str:
    """Format a value as a literal of a filter expression, escaped as in JSON."""
    return json.dumps(value, ensure_ascii=False)
