"""LanceDB: a table of Lance files in a folder, with an IVF or HNSW index or none."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast, OneOf, check_int
from ragauge.stores import metadata_columns
from ragauge.stores.bookkeeping import Matrix, empty_positions
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import ClosedEngine, DocumentRow, Engine, EngineFolder
from ragauge.stores.filter_conditions import FilterCondition, conditions_to_sql
from ragauge.stores.metadata_columns import MetadataColumn
from ragauge.stores.search_results import COMPLEMENT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import StoreSettings, search_option, search_width
from ragauge.stores.vector_store import DatabaseStore

DATABASE_FOLDER = "lance"
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
ARROW_TYPES = {
    metadata_columns.BOOL_KIND: "bool",
    metadata_columns.INT_KIND: "int64",
    metadata_columns.FLOAT_KIND: "float64",
    metadata_columns.TEXT_KIND: "string",
}
MIN_VECTORS_FOR_INDEX = 256
"""Minimum number of vectors to build an index; product quantization cannot be trained on fewer."""


@dataclass(frozen=True)
class LanceDBSettings(StoreSettings):
    """Options of LanceDB; which build options are used depends on the index."""

    index: Annotated[str, OneOf(INDEX_CLASSES)] = "ivf_pq"
    partitions: Annotated[int, AtLeast(1)] | None = None
    sub_vectors: Annotated[int, AtLeast(1)] | None = None
    m: Annotated[int, AtLeast(2)] = 20
    ef_construction: Annotated[int, AtLeast(1)] = 300
    nprobes: Annotated[int, AtLeast(1)] = search_width(20)
    ef_search: Annotated[int, AtLeast(1)] | None = search_width(None)
    refine_factor: Annotated[int, AtLeast(1)] | None = search_option(None)

    @property
    def build_options(self) -> dict[str, Any]:
        names = ["index"] if self.index == "none" else ["index", "partitions"]
        names += ["sub_vectors"] if self.index.endswith("pq") else []
        names += ["m", "ef_construction"] if "hnsw" in self.index else []
        return self.select(*names)

    @property
    def search_values(self) -> dict[str, Any]:
        """Search options that are given, with their values."""
        return {name: value for name, value in super().search_values.items() if value is not None}


class LanceDBEngine(Engine):
    """LanceDB table.

    Upserts of documents use `merge_insert` on the id. Each one creates a version of the table that is on disk when
    the call returns, so `commit` has nothing to do.
    """

    name = "lancedb"
    conversions = COMPLEMENT_DISTANCES
    builds_on_save = True

    settings: LanceDBSettings

    def __init__(self, settings: LanceDBSettings, threads: int = 0) -> None:
        # Both are read once, when the library starts its threads.
        os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")
        if check_int("threads", threads, 0):
            os.environ.setdefault("LANCE_CPU_THREADS", str(threads))
        self._library, _, self._arrow = import_libraries("lancedb", "lancedb", "lancedb.index", "pyarrow")
        self.tune(settings)
        self._lock = threading.Lock()
        self._table: Any = None

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        """Open the folder, and the table if it was saved."""
        self._database: Any = self._library.connect(str(folder.prepare_path(DATABASE_FOLDER, fresh=fresh)))
        if self.layout.table == "vectors" and not fresh:
            self._table = self._database.open_table(self.layout.table)

    def create(self) -> None:
        fields = [("id", "string"), ("title", "string"), ("text", "string"), ("metadata", "string")]
        if self.layout.table == "vectors":
            fields = [("id", "int64"), *((column.name, ARROW_TYPES[column.kind]) for column in self.layout.columns)]
        vector = self._arrow.list_(self._arrow.float32(), self.layout.dimension)
        self._schema = self._arrow.schema([*fields, ("vector", vector)])
        self._table = self._database.create_table(self.layout.table, schema=self._schema, exist_ok=True)

    def add_columns(self, columns: Sequence[MetadataColumn]) -> None:
        with self._lock:
            self._table.add_columns([self._arrow.field(column.name, ARROW_TYPES[column.kind]) for column in columns])

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        columns = self._vector_columns(np.arange(positions.start, positions.stop), matrix)
        for column in self.layout.columns:
            values = [row.get(column.name) for row in rows or [{}] * len(matrix)]
            columns[column.name] = self._arrow.array(values, type=ARROW_TYPES[column.kind])
        with self._lock:
            self._table.add(self._arrow.table(columns))

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        rows = self._arrow.table(self._vector_columns(positions, matrix))
        with self._lock:
            self._table.merge_insert("id").when_matched_update_all().execute(rows)

    def delete(self, positions: list[int]) -> None:
        with self._lock:
            self._table.delete(f"id IN ({', '.join(map(str, positions))})")

    def build(self) -> None:
        """Build the index, or add the new vectors to it."""
        with self._lock:
            if self.settings.index == "none" or self._table.count_rows() < MIN_VECTORS_FOR_INDEX:
                return
            indices = self._table.list_indices()
            if not indices:
                # Merge the files of single inserts and delete old versions. Not afterwards: `optimize` also joins small
                # partitions of an index, so that a search would compare more vectors than `partitions` says.
                self._table.optimize(cleanup_older_than=timedelta(milliseconds=1))
                self._table.create_index("vector", config=self._index_config(), replace=True)
            elif any(index.num_unindexed_rows for index in indices):
                self._table.optimize()

    def tune(self, settings: StoreSettings) -> None:
        super().tune(settings)
        self._search_values = settings.search_values

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        """Return the neighbours that the index finds; filters are applied first."""
        where_sql = conditions_to_sql(conditions, _sql_literal) if conditions else ""
        positions, values = empty_positions(len(queries), k)
        for row, query in enumerate(queries):
            rows = self._build_search(query, k, where_sql).to_arrow()
            positions[row, : len(rows)] = rows["id"].to_numpy()
            values[row, : len(rows)] = rows["_distance"].to_numpy()
        return positions, values

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        records = [{**row._asdict(), "vector": vector} for row, vector in zip(rows, matrix, strict=True)]
        table = self._arrow.Table.from_pylist(records, schema=self._schema)
        self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(table)

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        literals = ", ".join(map(_sql_literal, dict.fromkeys(ids)))
        query = self._table.search().where(f"id IN ({literals})").select(list(DocumentRow._fields))
        return [DocumentRow(**row) for row in query.limit(len(ids)).to_list()]

    def ids(self) -> list[str]:
        rows = self._table.search().select(["id"]).limit(max(1, self._table.count_rows())).to_arrow()
        return [str(key) for key in rows["id"].to_pylist()]

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        query = self._table.search(vector, vector_column_name="vector").distance_type("cosine")
        rows = query.select(["id", "text", "_distance"]).limit(k).to_list()
        return [Hit(row["id"], 1 - row["_distance"], row["text"]) for row in rows]

    def describe(self) -> dict[str, Any]:
        """Return version, parameters, and how many vectors are indexed."""
        description = {"version": version("lancedb"), **self.settings.build_options}
        if self.layout.table == "documents":
            return description
        indices = self._table.list_indices() if self._table is not None else ()
        indexed = sum(int(statistics.num_indexed_rows or 0) for statistics in indices)
        not_indexed = sum(int(statistics.num_unindexed_rows or 0) for statistics in indices)
        return {
            **description,
            **self._search_values,
            "threads": int(os.environ.get("LANCE_CPU_THREADS", "0")),
            "indexed": indexed,
            "index_used": indexed > 0 and not not_indexed,
        }

    def close(self) -> None:
        self._table = self._database = ClosedEngine()

    def _index_config(self) -> Any:
        build_options = self.settings.build_options
        options = {"num_partitions": build_options.pop("partitions"), "distance_type": self._distance_type}
        if "sub_vectors" in build_options:
            parts, dimension = build_options.pop("sub_vectors"), self.layout.dimension or 1
            if parts is not None and dimension % parts:
                raise BadInput(f"sub_vectors is {parts}, which does not divide {dimension} dimensions")
            options["num_sub_vectors"] = parts
        return getattr(self._library.index, INDEX_CLASSES[build_options.pop("index")])(**options, **build_options)

    @property
    def _distance_type(self) -> str:
        return LANCEDB_METRICS[self.layout.metric]

    def _build_search(self, vector: Any, k: int, where: str) -> Any:
        query = self._table.search(vector, vector_column_name="vector", query_type="vector")
        query = query.distance_type(self._distance_type).limit(k).select(["id", "_distance"])
        query = query.nprobes(self._search_values["nprobes"])
        if "ef_search" in self._search_values:
            # LanceDB rejects fewer candidates than are compared in full precision.
            query = query.ef(max(k * self._search_values.get("refine_factor", 1), self._search_values["ef_search"]))
        if "refine_factor" in self._search_values:
            query = query.refine_factor(self._search_values["refine_factor"])
        return query.where(where, prefilter=True) if where else query

    def _vector_columns(self, positions: Any, matrix: Matrix) -> dict[str, Any]:
        values = self._arrow.array(matrix.ravel(), type=self._arrow.float32())
        return {
            "id": self._arrow.array(positions),
            "vector": self._arrow.FixedSizeListArray.from_arrays(values, matrix.shape[1]),
        }


class LanceDBStore(DatabaseStore):
    """LanceDB table with an IVF or HNSW index, or none.

    `index` is none, ivf_flat, ivf_pq, ivf_sq, ivf_hnsw_flat, ivf_hnsw_sq or ivf_hnsw_pq.

    Build options: `partitions` (default: chosen by LanceDB), `sub_vectors` for PQ, `m` and `ef_construction` for
    HNSW. Search options: `nprobes` partitions, `ef_search`, and `refine_factor`, which compares that many times `k`
    candidates in full precision. Filters are applied before the search. Vectors added after `build()` are searched
    by brute force until the next `build()`.
    """

    extra = "lancedb"
    library_modules = ("lancedb",)
    option_grids = (
        {"index": "ivf_pq", "nprobes": [1, 4, 16], "refine_factor": [1, 10]},
        {"index": "ivf_hnsw_sq", "ef_search": [20, 80, 320]},
    )

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: LanceDBSettings = LanceDBSettings(),
        threads: int = 1,
    ) -> None:
        super().__init__(LanceDBEngine(settings, threads), metric, path)


def open_lancedb_documents(*, path: str | None = None, dimension: int) -> EngineDocumentStore:
    """Open documents in a LanceDB table without index: search is exact."""
    return EngineDocumentStore(LanceDBEngine(LanceDBSettings(index="none")), path, dimension)


def _sql_literal(value: Any) -> str:
    """Format a value as an SQL literal, with quotes in texts doubled."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
