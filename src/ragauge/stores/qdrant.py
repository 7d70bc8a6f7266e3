"""Qdrant: points with an HNSW graph, in its in-process engine (qdrant-edge) or on a server."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Literal

from ragauge.core.documents import Hit
from ragauge.core.plugins import import_libraries
from ragauge.core.protocols import STORE_CAPABILITIES
from ragauge.core.settings import AtLeast, check_int
from ragauge.stores import metadata_columns
from ragauge.stores.bookkeeping import Matrix, empty_positions, unsupported_error
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import ClosedEngine, DocumentRow, Engine, EngineFolder, VectorEngine
from ragauge.stores.filter_conditions import MAX_EXACT_INTEGER, ONE_OF, FilterCondition
from ragauge.stores.metadata_columns import MetadataColumn
from ragauge.stores.search_results import PRODUCT_DISTANCES, DistanceConversions, RawNeighbours
from ragauge.stores.store_settings import GRAPH_SEARCH_WIDTHS, StoreSettings, search_option, search_width
from ragauge.stores.vector_store import DatabaseStore

SHARD_FOLDER = "qdrant"
UPSERT_BATCH_POINTS = 1000
QDRANT_DISTANCES = {"cosine": "Cosine", "l2": "Euclid", "ip": "Dot"}
QDRANT_BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
"""Qdrant's names of range bounds."""
PAYLOAD_SCHEMAS = {
    metadata_columns.BOOL_KIND: "Integer",
    metadata_columns.INT_KIND: "Integer",
    metadata_columns.FLOAT_KIND: "Float",
    metadata_columns.TEXT_KIND: "Keyword",
}
INDEXING_THRESHOLD_KB = 1
"""Size of the vectors in kilobytes above which Qdrant builds and uses a graph.

With Qdrant's default of 10,000, small data would be searched by brute force, whose recall of 1 says nothing about
the graph.
"""
UUID_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
IDS_PER_PAGE = 1000


@dataclass(frozen=True)
class QdrantSettings(StoreSettings):
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(4)] = 100
    quantization: Literal["none", "int8", "binary"] = "none"
    ef_search: Annotated[int, AtLeast(1)] = search_width(64)
    exact: bool = search_option(False)
    oversampling: float = search_option(2.0)
    rescore: bool = search_option(True)

    @property
    def search_values(self) -> dict[str, Any]:
        return self.select("ef_search", "exact") if self.quantization == "none" else super().search_values


class QdrantEngine(VectorEngine):
    """Points of Qdrant: the position is the id, metadata are the payload.

    The in-process engine and the client of a server name most types equally, so what needs only those is here.
    """

    name = "qdrant"
    conversions: ClassVar[DistanceConversions] = {metric: PRODUCT_DISTANCES[metric] for metric in ("cosine", "ip")}
    _range_type: Any
    """Type of a range of numbers, whose name differs."""

    settings: QdrantSettings

    def __init__(self, settings: QdrantSettings, threads: int, library: Any) -> None:
        self._library: Any = library
        self._threads = check_int("threads", threads, 0)
        self.tune(settings)

    def create(self) -> None:
        """Create the collection, and a payload index of each metadata column."""
        self._create_collection()
        self.add_columns(list(self.layout.columns))

    def add_columns(self, columns: Sequence[MetadataColumn]) -> None:
        for column in columns:
            self._create_payload_index(column.name, PAYLOAD_SCHEMAS[column.kind])

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        for start in range(0, len(matrix), UPSERT_BATCH_POINTS):
            part = slice(start, start + UPSERT_BATCH_POINTS)
            payloads = [None] * len(matrix[part]) if rows is None else [_bools_to_ints(row) for row in rows[part]]
            self._upsert_points(list(zip(positions[part], matrix[part].tolist(), payloads, strict=True)))

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        positions, values = empty_positions(len(queries), k)
        matching = self._build_filter(conditions) if conditions else None
        for row, query in enumerate(queries):
            points = self._search_points(query, k, matching)
            positions[row, : len(points)] = [point.id for point in points]
            values[row, : len(points)] = [point.score for point in points]
        return positions, values

    def tune(self, settings: StoreSettings) -> None:
        super().tune(settings)
        library, rescoring = self._library, None
        if self.settings.quantization != "none":
            rescoring = library.QuantizationSearchParams(
                rescore=self.settings.rescore, oversampling=float(self.settings.oversampling)
            )
        self._parameters = library.SearchParams(
            hnsw_ef=self.settings.ef_search, exact=self.settings.exact, quantization=rescoring
        )

    def describe(self) -> dict[str, Any]:
        """Return version and parameters, and how many vectors are indexed."""
        if self.layout.table == "documents":
            return {**self._describe_library(), "exact": self.settings.exact}
        options = {**self.settings.build_options, **self.settings.search_values, "threads": self._threads}
        return {**self._describe_library(), **options, **self._describe_collection()}

    def remove(self) -> None:
        """Delete what is stored outside the folder; nothing here."""
        return

    def _build_filter(self, conditions: Sequence[FilterCondition]) -> Any:
        library = self._library
        must: list[Any] = []
        for name, operator, bound in conditions:
            values = [
                int(item) if isinstance(item, bool) else item for item in (bound if operator == ONE_OF else [bound])
            ]
            if operator in QDRANT_BOUNDS:
                if isinstance(bound, int) and abs(bound) >= MAX_EXACT_INTEGER:
                    raise unsupported_error(
                        self.name,
                        f"filter by `{operator} {bound}`",
                        f"its ranges are in double precision, which is exact below {MAX_EXACT_INTEGER} only",
                    )
                must.append(self._range_condition(name, **{QDRANT_BOUNDS[operator]: float(bound)}))
            elif isinstance(values[0], float):
                ranges = [self._range_condition(name, gte=value, lte=value) for value in values]
                must.append(library.Filter(should=ranges) if operator == ONE_OF else ranges[0])
            else:
                match = library.MatchAny(any=values) if operator == ONE_OF else library.MatchValue(value=values[0])
                must.append(library.FieldCondition(key=name, match=match))
        return library.Filter(must=must)

    def _range_condition(self, name: str, **bounds: float) -> Any:
        return self._library.FieldCondition(key=name, range=self._range_type(**bounds))

    @abstractmethod
    def _describe_library(self) -> dict[str, Any]:
        """Return the engine and the version of its library."""

    @abstractmethod
    def _describe_collection(self) -> dict[str, Any]:
        """Return how many vectors are indexed; empty if nothing is stored."""

    @abstractmethod
    def _create_collection(self) -> None:
        """Create the collection."""

    @abstractmethod
    def _create_payload_index(self, name: str, schema: str) -> None:
        """Create an index of a metadata column, which speeds up filters."""

    @abstractmethod
    def _upsert_points(self, points: Sequence[tuple[int, list[float], dict[str, Any] | None]]) -> None:
        """Insert points, given as position, vector and payload."""

    @abstractmethod
    def _search_points(self, query: Any, k: int, matching: Any) -> Sequence[Any]:
        """Return the nearest points that match a filter."""


class QdrantEdgeEngine(QdrantEngine, Engine):
    """Shard of Qdrant's in-process engine, which belongs to one process at a time.

    Id, text, title and metadata (as JSON) of a document are the payload of a point. Qdrant identifies points by
    integers or UUIDs: the key is a version 5 UUID of the id, as Qdrant's documentation recommends. Qdrant normalises
    vectors for its cosine distance. Documents have a graph with Qdrant's own options.
    """

    capabilities = frozenset(STORE_CAPABILITIES) - {"share"}

    def __init__(self, settings: QdrantSettings, threads: int = 0) -> None:
        (library,) = import_libraries("qdrant", "qdrant_edge")
        super().__init__(settings, threads, library)
        self._range_type = library.RangeFloat
        self._shard: Any = None

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        self._folder = folder.prepare_path(SHARD_FOLDER, fresh=fresh)
        if self._folder.exists():
            self._shard = self._library.EdgeShard.load(str(self._folder))

    def create(self) -> None:
        if self._shard is None:
            super().create()

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        vectors = [self._library.PointVectors(*pair) for pair in zip(positions, matrix.tolist(), strict=True)]
        self._shard.update(self._library.UpdateOperation.update_vectors(vectors))

    def delete(self, positions: list[int]) -> None:
        self._shard.update(self._library.UpdateOperation.delete_points(positions))

    def build(self) -> None:
        self._shard.optimize()

    def flush(self) -> dict[str, Any]:
        """Write the shard to its folder."""
        self._shard.flush()
        return {}

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        points = [
            self._library.Point(_uuid_for_id(row.id), vector.tolist(), row._asdict())
            for row, vector in zip(rows, matrix, strict=True)
        ]
        self._shard.update(self._library.UpdateOperation.upsert_points(points))

    def commit(self) -> None:
        self._shard.flush()

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        points = self._shard.retrieve([_uuid_for_id(key) for key in ids], True, False)
        return [DocumentRow(**point.payload) for point in points]

    def ids(self) -> list[str]:
        keys: list[str] = []
        offset: Any = None
        while True:
            request = self._library.ScrollRequest(
                offset=offset, limit=IDS_PER_PAGE, with_payload=["id"], with_vector=False
            )
            points, offset = self._shard.scroll(request)
            keys += [str(point.payload["id"]) for point in points]
            if offset is None:
                return keys

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        library = self._library
        request = library.SearchRequest(
            query=library.Query.Nearest(vector),
            limit=k,
            params=library.SearchParams(exact=self.settings.exact),
            with_payload=["id", "text"],
        )
        points = self._shard.search(request)
        return [Hit(point.payload["id"], point.score, point.payload["text"]) for point in points]

    def close(self) -> None:
        if self._shard is not None and not isinstance(self._shard, ClosedEngine):
            self._shard.close()
        self._shard = ClosedEngine()

    def _describe_library(self) -> dict[str, Any]:
        return {"engine": "qdrant-edge", "version": version("qdrant-edge-py")}

    def _describe_collection(self) -> dict[str, Any]:
        if self._shard is None:
            return {}
        info = self._shard.info()
        return {"indexed": info.indexed_vectors_count, "segments": info.segments_count}

    def _create_collection(self) -> None:
        library = self._library
        distance = getattr(library.Distance, QDRANT_DISTANCES[self.layout.metric])
        vectors = library.EdgeVectorParams(size=self.layout.dimension, distance=distance)
        config = library.EdgeConfig(vectors=vectors)
        if self.layout.table == "vectors":
            config = library.EdgeConfig(
                vectors=vectors,
                hnsw_config=library.HnswIndexConfig(
                    m=self.settings.m,
                    ef_construct=self.settings.ef_construction,
                    full_scan_threshold=INDEXING_THRESHOLD_KB,
                    max_indexing_threads=self._threads,
                ),
                quantization_config=self._quantization_config(),
                optimizers=library.EdgeOptimizersConfig(
                    indexing_threshold=INDEXING_THRESHOLD_KB, default_segment_number=1
                ),
                max_search_threads=self._threads or None,
            )
        self._folder.mkdir(parents=True)
        self._shard = library.EdgeShard.create(str(self._folder), config)

    def _quantization_config(self) -> Any:
        if self.settings.quantization == "int8":
            return self._library.ScalarQuantizationConfig(self._library.ScalarType.Int8)
        return None if self.settings.quantization == "none" else self._library.BinaryQuantizationConfig()

    def _create_payload_index(self, name: str, schema: str) -> None:
        kind = getattr(self._library.PayloadSchemaType, schema)
        self._shard.update(self._library.UpdateOperation.create_field_index(name, kind))

    def _upsert_points(self, points: Sequence[tuple[int, list[float], dict[str, Any] | None]]) -> None:
        operation = self._library.UpdateOperation.upsert_points([self._library.Point(*point) for point in points])
        self._shard.update(operation)

    def _search_points(self, query: Any, k: int, matching: Any) -> Sequence[Any]:
        library = self._library
        request = library.SearchRequest(
            query=library.Query.Nearest(query), limit=k, filter=matching, params=self._parameters
        )
        points: Sequence[Any] = self._shard.search(request)
        return points


class QdrantStore(DatabaseStore):
    """Qdrant HNSW graph: `m` links per node, `ef_construction`, `ef_search`.

    `exact` searches by brute force. The engine is Qdrant's own (qdrant-edge-py) in this process or, with `url`, the
    collection `collection` of a server. `quantization` also stores int8 or binary vectors. They select
    `oversampling` times `k` candidates, which are compared in full precision unless `rescore=False`. Vectors added
    after `build()` are searched by brute force until the next `build()`; a server indexes by itself.
    """

    has_outside_data = True
    extra = "qdrant"
    library_modules = ("qdrant_edge",)
    option_grids = ({"m": 16, "ef_construction": 100, "ef_search": GRAPH_SEARCH_WIDTHS},)
    _engine: QdrantEngine

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
        collection: str | None = None,
        settings: QdrantSettings = QdrantSettings(),
        threads: int = 1,
    ) -> None:
        engine: QdrantEngine
        if url is None:
            engine = QdrantEdgeEngine(settings, threads)
        else:
            from ragauge.stores.qdrant_server import QdrantServerEngine

            engine = QdrantServerEngine(settings, threads, url, api_key, collection)
        super().__init__(engine, metric, path, (api_key or "",))

    def remove(self) -> None:
        """Drop a server's collection even if it was to be kept.

        It is the part of the store outside its folder.
        """
        with self._errors:
            self._engine.remove()

    def _describe_engine(self) -> dict[str, Any]:
        about = super()._describe_engine()
        used = 0 < len(self) <= int(about.get("indexed") or 0) and not about["exact"]
        return {**about, "index_used": used}


def open_qdrant_documents(*, path: str | None = None, dimension: int, exact: bool = False) -> EngineDocumentStore:
    """Open documents in a Qdrant shard; `exact` searches by brute force instead of the graph."""
    return EngineDocumentStore(QdrantEdgeEngine(QdrantSettings(exact=exact)), path, dimension)


def _bools_to_ints(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert booleans to 0 and 1.

    In a filter the library converts True to 1, which would match no boolean.
    """
    return {name: int(value) if isinstance(value, bool) else value for name, value in row.items()}


def _uuid_for_id(document_id: str) -> uuid.UUID:
    return uuid.uuid5(UUID_NAMESPACE, document_id)
