"""LanceDB: a table of Lance files in a folder, with an IVF or HNSW index or none."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.stores import engines
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, require_folder
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import ClosedEngine, EngineErrors, EngineFolder, MetadataColumns
from ragauge.stores.filter_conditions import conditions_to_sql

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


DOCUMENT_FOLDER = "lance"
DOCUMENT_TABLE = "documents"


class LanceDBDocumentStore:
    """LanceDB table without index: search is exact.

    Upserts use `merge_insert` on the id. Each one creates a version of the table that is on disk when the call
    returns, so `commit` has nothing to do.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int) -> None:
        try:
            import lancedb
            import pyarrow as pa
        except ImportError as error:
            raise MissingExtra("the LanceDB keeper", "lancedb") from error
        self._version = lancedb.__version__
        self._dimension = dimension
        self._speaking = VerbatimEngineErrors("lancedb")
        self._home = EngineFolder("lancedb", path)
        names = ("id", "title", "text", "metadata")
        self._arrow: Any = pa
        self._schema = pa.schema(
            [*((name, pa.string()) for name in names), ("vector", pa.list_(pa.float32(), dimension))]
        )
        with self._speaking:
            self._database: Any = lancedb.connect(str(self._home.place(DOCUMENT_FOLDER, fresh=False)))
            self._table: Any = self._database.create_table(DOCUMENT_TABLE, schema=self._schema, exist_ok=True)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = to_document_matrix(documents, vectors, self._dimension)
        with self._speaking:
            table = self._arrow.Table.from_pylist(
                [
                    {
                        "id": one.id,
                        "title": one.title,
                        "text": one.text,
                        "metadata": metadata_to_json(one.metadata),
                        "vector": row,
                    }
                    for one, row in zip(documents, rows, strict=True)
                ],
                schema=self._schema,
            )
            merging = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merging.execute(table)

    def commit(self) -> None:
        """Do nothing: each put is already on disk."""

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        if not len(ids):
            return []
        some = ", ".join("'" + name.replace("'", "''") + "'" for name in dict.fromkeys(ids))
        with self._speaking:
            wanted = self._table.search().where(f"id IN ({some})").select(["id", "text", "title", "metadata"])
            found = wanted.limit(len(ids)).to_list()
        there = {
            row["id"]: document_from_columns(row["id"], row["text"], row["title"], row["metadata"]) for row in found
        }
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            rows = self._table.search().select(["id"]).limit(max(1, self._table.count_rows())).to_arrow()
            return [str(name) for name in rows["id"].to_pylist()]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity, by brute force."""
        with self._speaking:
            asked = self._table.search(to_query_vector(vector, self._dimension), vector_column_name="vector")
            found = asked.distance_type("cosine").select(["id", "text", "_distance"]).limit(k).to_list()
        return [Hit(row["id"], 1 - row["_distance"], row["text"]) for row in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {"keeper": "lancedb", "version": self._version, "index": "none", "dimension": self._dimension}

    def close(self) -> None:
        """Close the engine; a temporary folder is removed."""
        self._table = self._database = ClosedEngine()
        self._home.close()


VECTOR_FOLDER = "lance"
VECTOR_TABLE = "vectors"
LANCEDB_METRICS = {"cosine": "cosine", "l2": "l2", "ip": "dot"}
INDEX_CLASSES = {
    "none": "",
    "ivf_flat": "IvfFlat",
    "ivf_pq": "IvfPq",
    "ivf_sq": "IvfSq",
    "ivf_hnsw_flat": "HnswFlat",
    "ivf_hnsw_sq": "HnswSq",
    "ivf_hnsw_pq": "HnswPq",
}
MIN_VECTORS_FOR_INDEX = 256
"""Minimum number of vectors to build an index; product quantization cannot be trained on fewer."""


class LanceDBStore:
    """LanceDB table with an IVF or HNSW index, or none.

    `index` is none, ivf_flat, ivf_pq, ivf_sq, ivf_hnsw_flat, ivf_hnsw_sq or ivf_hnsw_pq.

    Build options: `partitions` (default: chosen by LanceDB), `sub_vectors` for PQ, `m` and `ef_construction` for
    HNSW. Search options: `nprobes` partitions, `ef_search`, and `refine_factor`, which compares that many times `k`
    candidates in full precision. Filters are applied before the search. Vectors added after `build()` are searched
    by brute force until the next `build()`.
    """

    def __init__(  # noqa: PLR0913 - the parameters of LanceDB's indexes
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        index: str = "ivf_pq",
        partitions: int | None = None,
        sub_vectors: int | None = None,
        m: int = 20,
        ef_construction: int = 300,
        nprobes: int = 20,
        ef_search: int | None = None,
        refine_factor: int | None = None,
        threads: int = 1,
    ) -> None:
        self._threads = check_int("threads", threads, 0)
        # Both are read once, when the library starts its threads.
        os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")
        if self._threads:
            os.environ.setdefault("LANCE_CPU_THREADS", str(self._threads))
        try:
            import lancedb
            import lancedb.index
        except ImportError as error:
            raise MissingExtra("the LanceDB store", "lancedb") from error
        self._library: Any = lancedb
        self._intake = StoreBookkeeping(metric)
        self._columns = MetadataColumns()
        self._kind = check_choice("index", index, tuple(INDEX_CLASSES))
        self._partitions = None if partitions is None else check_int("partitions", partitions)
        self._sub_vectors = None if sub_vectors is None else check_int("sub_vectors", sub_vectors)
        self._m = check_int("m", m, 2)
        self._ef_construction = check_int("ef_construction", ef_construction)
        self._options: dict[str, int] = {}
        self.tune(nprobes=nprobes, ef_search=ef_search, refine_factor=refine_factor)
        self._path = path
        self._speaking = EngineErrors("lancedb")
        self._lock = threading.Lock()
        self._home = EngineFolder("lancedb", path)
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self._columns.read(self._intake.built.get("columns", {}))
        self._ready = there
        self._table: Any = None
        with self._speaking:
            self._database: Any = lancedb.connect(str(self._home.place(VECTOR_FOLDER, fresh=not there)))
            if there:
                self._table = self._database.open_table(VECTOR_TABLE)

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all."""
        return frozenset(("insert", "update", "delete", "filter", "save", "share", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        with self._speaking:
            made = self._table.list_indices() if self._table is not None else ()
        indexed = sum(int(one.num_indexed_rows or 0) for one in made)
        left = sum(int(one.num_unindexed_rows or 0) for one in made)
        return {
            "store": "lancedb",
            "version": version("lancedb"),
            "metric": self._intake.metric,
            **self._build_time_options(),
            **self._options,
            "threads": int(os.environ.get("LANCE_CPU_THREADS", "0")),
            "indexed": indexed,
            "index_used": indexed > 0 and not left,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        fresh = self._columns.new(ids, metadata)
        places = np.arange(self._intake.places, self._intake.places + len(ids))
        with self._speaking, self._lock:
            if self._table is not None and fresh:
                import pyarrow

                self._table.add_columns([pyarrow.field(one.name, _arrow_type(one.kind)) for one in fresh.values()])
            self._columns.learn(fresh)
            rows = self._to_arrow_table(places, matrix, [self._columns.row(one) for one in metadata or [{}] * len(ids)])
            if self._table is None:
                self._table = self._database.create_table(VECTOR_TABLE, rows)
            else:
                self._table.add(rows)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Build the index, or add the new vectors to it."""
        with self._speaking, self._lock:
            if self._table is not None and self._kind != "none" and len(self) >= MIN_VECTORS_FOR_INDEX:
                if self._table.list_indices():
                    self._table.optimize()
                else:
                    self._table.create_index("vector", config=self._index_config(), replace=True)
                    # Merge the files of single inserts and delete old versions.
                    self._table.optimize(cleanup_older_than=timedelta(milliseconds=1))
            self._ready = True

    def tune(
        self, *, nprobes: int | None = None, ef_search: int | None = None, refine_factor: int | None = None
    ) -> None:
        """Set search options."""
        for name, value in (("nprobes", nprobes), ("ef_search", ef_search), ("refine_factor", refine_factor)):
            if value is not None:
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
        condition = conditions_to_sql(wanted, _sql_literal)
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        values = np.full((len(queries), k), np.inf, dtype=np.float32)
        with self._speaking, stage("retrieve"):
            for row, query in enumerate(queries):
                found = self._build_search(query, k, condition).to_arrow()
                positions[row, : len(found)] = found["id"].to_numpy()
                values[row, : len(found)] = found["_distance"].to_numpy()
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = values - 1  # LanceDB returns 1 - the inner product
        else:
            values = np.maximum(values, 0)
        return self._intake.answer(positions, values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        if len(ids):
            with self._speaking, self._lock:
                rows = self._to_arrow_table(positions, matrix, None)
                self._table.merge_insert("id").when_matched_update_all().execute(rows)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        if len(ids):
            with self._speaking, self._lock:
                self._table.delete(f"id IN ({', '.join(str(place) for place in positions.tolist())})")
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the ids in `path`; LanceDB has already stored the rest there."""
        folder = require_folder("lancedb", self._path)
        self.build()
        if self._table is not None:
            self._intake.write(folder, **self._build_time_options(), columns=self._columns.kept())

    def close(self) -> None:
        """Close the engine; a temporary folder is removed."""
        self._table = self._database = ClosedEngine()
        self._home.close()

    def _build_time_options(self) -> dict[str, Any]:
        built: dict[str, Any] = {"index": self._kind}
        if self._kind != "none":
            built["partitions"] = self._partitions
        if self._kind.endswith("pq"):
            built["sub_vectors"] = self._sub_vectors
        if "hnsw" in self._kind:
            built |= {"m": self._m, "ef_construction": self._ef_construction}
        return built

    def _index_config(self) -> Any:
        options = {"num_partitions": self._partitions, "distance_type": LANCEDB_METRICS[self._intake.metric]}
        if self._kind.endswith("pq"):
            options["num_sub_vectors"] = self._sub_vectors
            dimension = self._intake.dimension or 1
            if self._sub_vectors is not None and dimension % self._sub_vectors:
                raise BadInput(f"sub_vectors is {self._sub_vectors}, which does not divide {dimension} dimensions")
        if "hnsw" in self._kind:
            options |= {"m": self._m, "ef_construction": self._ef_construction}
        return getattr(self._library.index, INDEX_CLASSES[self._kind])(**options)

    def _build_search(self, query: Any, k: int, condition: str) -> Any:
        asked = self._table.search(query, vector_column_name="vector", query_type="vector")
        asked = asked.distance_type(LANCEDB_METRICS[self._intake.metric]).limit(k).select(["id", "_distance"])
        asked = asked.nprobes(self._options["nprobes"])
        if "ef_search" in self._options:
            # LanceDB rejects fewer candidates than are compared in full precision.
            asked = asked.ef(max(k * self._options.get("refine_factor", 1), self._options["ef_search"]))
        if "refine_factor" in self._options:
            asked = asked.refine_factor(self._options["refine_factor"])
        return asked.where(condition, prefilter=True) if condition else asked

    def _to_arrow_table(self, places: Any, matrix: Matrix, about: list[list[Any]] | None) -> Any:
        import pyarrow

        flat = pyarrow.array(matrix.ravel(), type=pyarrow.float32())
        rows = {"id": pyarrow.array(places), "vector": pyarrow.FixedSizeListArray.from_arrays(flat, matrix.shape[1])}
        if about is not None:
            for number, column in enumerate(self._columns):
                rows[column.name] = pyarrow.array([row[number] for row in about], type=_arrow_type(column.kind))
        return pyarrow.table(rows)


def _arrow_type(kind: str) -> Any:
    import pyarrow

    names = {
        engines.BOOL_KIND: "bool_",
        engines.INT_KIND: "int64",
        engines.FLOAT_KIND: "float64",
        engines.TEXT_KIND: "string",
    }
    return getattr(pyarrow, names[kind])()


def _sql_literal(value: Any) -> str:
    """Format a value as an SQL literal, with quotes in texts doubled."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
