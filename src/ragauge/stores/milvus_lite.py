"""milvus-lite: a single-machine substitute for a Milvus server.

It is a separate program in Python over FAISS, accessed with pymilvus.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.plugins import import_libraries
from ragauge.core.protocols import STORE_CAPABILITIES
from ragauge.core.settings import AtLeast, OneOf, check_choice
from ragauge.stores.bookkeeping import Matrix, empty_positions
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import DocumentRow, Engine, EngineFolder, preload_modules
from ragauge.stores.filter_conditions import EQUAL, FilterCondition
from ragauge.stores.search_results import RawNeighbours
from ragauge.stores.store_settings import StoreSettings, search_width
from ragauge.stores.vector_store import DatabaseStore

DATABASE_FILE = "milvus.db"
MILVUS_METRICS = {"cosine": "COSINE", "l2": "L2", "ip": "IP"}
INDEX_TYPES = {"flat": "FLAT", "hnsw": "HNSW", "hnsw_sq": "HNSW_SQ", "ivf_flat": "IVF_FLAT", "ivf_sq8": "IVF_SQ8"}
"""Index types of milvus-lite 3: FLAT uses NumPy, the others FAISS, with one index per segment."""
PARAMETER_NAMES = {"m": "M", "ef_construction": "efConstruction", "ef_search": "ef"}
"""Milvus's names of options, where they differ."""
INSERT_BATCH_ROWS = 2000
MAX_VARCHAR_LENGTH = 65_535
"""Largest `max_length` of a VARCHAR field in Milvus."""
IDS_PER_PAGE = 1000
LAZY_MODULES = (
    "milvus_lite.search.filter.cache",
    "milvus_lite.search.indexed_filter",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "scipy.sparse",
)
"""Modules that pymilvus and milvus-lite import during the first insert, flush and search."""


@dataclass(frozen=True)
class MilvusLiteSettings(StoreSettings):
    """Options of milvus-lite; which of them are used depends on the index."""

    index: Annotated[str, OneOf(INDEX_TYPES)] = "hnsw"
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 100
    nlist: Annotated[int, AtLeast(1)] = 64
    ef_search: Annotated[int, AtLeast(1)] = search_width(64)
    nprobe: Annotated[int, AtLeast(1)] = search_width(8)

    @property
    def index_options(self) -> dict[str, int]:
        """Build options of this index, without its name."""
        if "hnsw" in self.index:
            return self.select("m", "ef_construction")
        return self.select("nlist") if "ivf" in self.index else {}

    @property
    def build_options(self) -> dict[str, Any]:
        return {"index": self.index, **self.index_options}

    @property
    def search_values(self) -> dict[str, Any]:
        """Search option of this index, with its value."""
        return self.select("ef_search" if "hnsw" in self.index else "nprobe")


class MilvusLiteEngine(Engine):
    """milvus-lite collection, which belongs to one process at a time.

    Id, title, text and metadata (as JSON) of a document are VARCHAR; the id is the primary key. `commit` calls Milvus's
    `flush`. An index of documents has Milvus's own parameters.
    """

    name = "milvus-lite"
    capabilities = frozenset(STORE_CAPABILITIES) - {"share"}
    builds_on_save = True
    settings: MilvusLiteSettings
    _client: Any

    def __init__(self, settings: MilvusLiteSettings) -> None:
        manager, self._library = import_libraries("milvus-lite", "milvus_lite.server_manager", "pymilvus")
        self._servers = manager.server_manager_instance
        for name in ("pymilvus", "milvus_lite"):
            # Its log messages would repeat on standard error what the raised error says.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.tune(settings)

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        """Open the file, and load the collection if it was saved."""
        self._file = str(folder.prepare_path(DATABASE_FILE, fresh=fresh))
        self._client = self._library.MilvusClient(self._file)
        if self.layout.table == "vectors" and not fresh:
            self._client.load_collection(self.layout.table)

    def create(self) -> None:
        if self.layout.table == "vectors":
            # Metadata of vectors are dynamic fields.
            schema = self._create_schema(self._library.DataType.INT64, dynamic=True)
            self._client.create_collection(self.layout.table, schema=schema)
            return
        if not self._client.has_collection(self.layout.table):
            varchar = self._library.DataType.VARCHAR
            schema = self._create_schema(varchar, max_length=MAX_VARCHAR_LENGTH)
            for name in ("text", "title", "metadata"):
                schema.add_field(name, varchar, max_length=MAX_VARCHAR_LENGTH)
            index = self._index_parameters({})
            self._client.create_collection(self.layout.table, schema=schema, index_params=index)
        self._client.load_collection(self.layout.table)

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        for start in range(0, len(matrix), INSERT_BATCH_ROWS):
            records = [
                {"id": positions[number], "vector": matrix[number], **(rows[number] if rows else {})}
                for number in range(start, min(start + INSERT_BATCH_ROWS, len(matrix)))
            ]
            self._client.insert(self.layout.table, records)

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        """Replace vectors; their metadata are read and written again."""
        names = [column.name for column in self.layout.columns]
        rows = self._client.get(self.layout.table, ids=positions, output_fields=names) if names else []
        metadata = {row["id"]: {name: row[name] for name in names if row.get(name) is not None} for row in rows}
        records = [
            {"id": position, "vector": vector, **metadata.get(position, {})}
            for position, vector in zip(positions, matrix, strict=True)
        ]
        self._client.upsert(self.layout.table, records)

    def delete(self, positions: list[int]) -> None:
        self._client.delete(self.layout.table, ids=positions)

    def build(self) -> None:
        """Write the added vectors to segments, and build the index if there is none."""
        self._client.flush(self.layout.table)
        if not self._client.list_indexes(self.layout.table):
            options = {PARAMETER_NAMES.get(name, name): value for name, value in self.settings.index_options.items()}
            # pymilvus flattens `params`, but milvus-lite looks for a key `params`: without this nesting it would
            # silently use its defaults.
            self._client.create_index(self.layout.table, self._index_parameters({"params": {"params": options}}))
        self._client.load_collection(self.layout.table)

    def tune(self, settings: StoreSettings) -> None:
        super().tune(settings)
        self._search_values = {PARAMETER_NAMES.get(name, name): n for name, n in settings.search_values.items()}

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        """Return the neighbours that the index finds, with distances."""
        options = dict(self._search_values)
        if "ef" in options:
            options["ef"] = max(k, options["ef"])
        positions, values = empty_positions(len(queries), k)
        results = self._client.search(
            self.layout.table,
            data=list(queries),
            anns_field="vector",
            limit=k,
            filter=" and ".join(map(_filter_expression, conditions or ())),
            search_params={"metric_type": MILVUS_METRICS[self.layout.metric], "params": options},
            output_fields=["id"],
        )
        for row, hits in enumerate(results):
            positions[row, : len(hits)] = [hit["id"] for hit in hits]
            values[row, : len(hits)] = [hit["distance"] for hit in hits]
        if self.layout.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self.layout.metric == "ip":
            values = -values
        else:
            # Vectors in and outside the index differ in the last digit, so round to what single precision supports.
            values = np.maximum(1 - values, 0).round(6)
        values = np.where(positions < 0, np.inf, values)
        # The order of equal distances changes when the collection is reopened.
        order = np.lexsort((positions, values), axis=1)
        return np.take_along_axis(positions, order, axis=1), np.take_along_axis(values, order, axis=1)

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        records = [{**row._asdict(), "vector": vector} for row, vector in zip(rows, matrix, strict=True)]
        self._client.upsert(self.layout.table, records)

    def commit(self) -> None:
        self._client.flush(self.layout.table)

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        # pymilvus's `get` does not escape ids, and fails on an id with a quote.
        names = json.dumps(list(dict.fromkeys(ids)), ensure_ascii=False)
        fields = list(DocumentRow._fields)
        rows = self._client.query(self.layout.table, filter=f"id in {names}", output_fields=fields)
        return [DocumentRow(**{name: row[name] for name in fields}) for row in rows]

    def ids(self) -> list[str]:
        pages = self._client.query_iterator(self.layout.table, batch_size=IDS_PER_PAGE, output_fields=["id"])
        keys: list[str] = []
        while page := pages.next():
            keys += [str(row["id"]) for row in page]
        pages.close()
        return keys

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        (hits,) = self._client.search(
            self.layout.table,
            data=[vector],
            anns_field="vector",
            limit=k,
            search_params={"metric_type": "COSINE", "params": {}},
            output_fields=["id", "text"],
        )
        return [Hit(hit["id"], hit["distance"], hit["entity"]["text"]) for hit in hits]

    def describe(self) -> dict[str, Any]:
        versions = {"version": version("milvus-lite"), "pymilvus": version("pymilvus")}
        if self.layout.table == "documents":
            return {**versions, "index": self.settings.index}
        library = "NumPy" if self.settings.index == "flat" else f"FAISS {version('faiss-cpu')}"
        return {**versions, "engine": library, **self.settings.build_options, **self.settings.search_values}

    def close(self) -> None:
        """Close the client and stop the server of this folder."""
        self._client.close()
        self._servers.release_server(self._file)

    def _create_schema(self, id_type: Any, *, dynamic: bool = False, max_length: int | None = None) -> Any:
        """Return a schema of ids and vectors."""
        length = {} if max_length is None else {"max_length": max_length}
        schema = self._library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=dynamic)
        schema.add_field("id", id_type, is_primary=True, **length)
        schema.add_field("vector", self._library.DataType.FLOAT_VECTOR, dim=self.layout.dimension)
        return schema

    def _index_parameters(self, options: Mapping[str, Any]) -> Any:
        parameters = self._client.prepare_index_params()
        parameters.add_index(
            field_name="vector",
            index_type=INDEX_TYPES[self.settings.index],
            metric_type=MILVUS_METRICS[self.layout.metric],
            **options,
        )
        return parameters


class MilvusLiteStore(DatabaseStore):
    """milvus-lite collection, accessed with pymilvus over gRPC like a Milvus server.

    `index` is flat, hnsw or hnsw_sq (`m`, `ef_construction`; `ef_search`), ivf_flat or ivf_sq8 (`nlist`; `nprobe`).
    Vectors added after `build()` are searched by brute force until they fill a segment. Results do not apply to
    Milvus itself.
    """

    extra = "milvus-lite"
    library_modules = ("milvus_lite", "pymilvus")
    option_grids = (
        {"index": "hnsw", "m": 16, "ef_construction": 100, "ef_search": [10, 40, 160]},
        {"index": "ivf_flat", "nprobe": [1, 4, 16]},
    )

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: MilvusLiteSettings = MilvusLiteSettings(),
    ) -> None:
        engine = MilvusLiteEngine(settings)
        preload_modules(*LAZY_MODULES)
        super().__init__(engine, metric, path)


def open_milvus_lite_documents(*, path: str | None = None, dimension: int, index: str = "flat") -> EngineDocumentStore:
    """Open documents in a milvus-lite collection; `index` is `flat` (exact search) or `hnsw`."""
    check_choice("index", index, ("flat", "hnsw"))
    return EngineDocumentStore(MilvusLiteEngine(MilvusLiteSettings(index=index)), path, dimension)


def _filter_expression(condition: FilterCondition) -> str:
    """Format a condition as a Milvus filter expression; its value is escaped as in JSON."""
    field, operator, value = condition
    return f"{field} {'==' if operator == EQUAL else operator} {json.dumps(value, ensure_ascii=False)}"
