"""Vectors in Qdrant: its in-process engine (qdrant-edge) or a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.stores import engines
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, require_folder
from ragauge.stores.engines import ClosedEngine, EngineErrors, EngineFolder, MetadataColumns
from ragauge.stores.filter_conditions import ONE_OF, QDRANT_BOUNDS, FilterCondition

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


SHARD_FOLDER = "qdrant"
UPSERT_BATCH_POINTS = 1000
QDRANT_DISTANCES = {"cosine": "Cosine", "l2": "Euclid", "ip": "Dot"}
PAYLOAD_SCHEMAS = {
    engines.BOOL_KIND: "Integer",
    engines.INT_KIND: "Integer",
    engines.FLOAT_KIND: "Float",
    engines.TEXT_KIND: "Keyword",
}
INDEXING_THRESHOLD_KB = 1
"""Size of the vectors in kilobytes above which Qdrant builds and uses a graph.

With Qdrant's default of 10,000, small data would be searched by brute force, whose recall of 1 says nothing about
the graph.
"""


class QdrantStore:
    """Qdrant HNSW graph: `m` links per node, `ef_construction`, `ef_search`.

    `exact` searches by brute force. The engine is Qdrant's own (qdrant-edge-py) in this process or, with `url`, the
    collection `collection` of a server. `quantization` also stores int8 or binary vectors. They select
    `oversampling` times `k` candidates, which are compared in full precision unless `rescore=False`. Vectors added
    after `build()` are searched by brute force until the next `build()`; a server indexes by itself.
    """

    def __init__(  # noqa: PLR0913 - the parameters of Qdrant, by the names that all graphs have here
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
        collection: str | None = None,
        m: int = 16,
        ef_construction: int = 100,
        quantization: str = "none",
        ef_search: int = 64,
        exact: bool = False,
        oversampling: float = 2.0,
        rescore: bool = True,
        threads: int = 1,
    ) -> None:
        try:
            import qdrant_edge
        except ImportError as error:
            raise MissingExtra("the Qdrant store", "qdrant") from error
        self._intake = StoreBookkeeping(metric)
        self._columns = MetadataColumns()
        self._m = check_int("m", m, 2)
        self._ef_construction = check_int("ef_construction", ef_construction, 4)
        self._quantization = check_choice("quantization", quantization, ("none", "int8", "binary"))
        self._threads = check_int("threads", threads, 0)
        self._path, self._url = path, url
        self._speaking = EngineErrors("qdrant", (api_key or "",))
        self._ready = False
        self._home = EngineFolder("qdrant", path)
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self._columns.read(self._intake.built.get("columns", {}))
        collection = self._intake.built.get("collection", collection)
        try:
            with self._speaking:
                if url is None:
                    self._engine: Any = _EdgeEngine(
                        qdrant_edge, self._home.place(SHARD_FOLDER, fresh=not there), self._threads
                    )
                else:
                    from ragauge.stores.qdrant_server import QdrantServer

                    self._engine = QdrantServer(url, api_key, collection, keep=path is not None)
                if there:
                    self._engine.open()
                    self._ready = True
            self.tune(ef_search=ef_search, exact=exact, oversampling=oversampling, rescore=rescore)
        except BaseException:
            self._home.close()
            raise

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all, but sharing only with a server.

        A folder belongs to one process at a time.
        """
        own = {"insert", "update", "delete", "filter", "save", "concurrent"}
        return frozenset(own if self._url is None else own | {"share"})

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        with self._speaking:
            about = self._engine.about() if self._intake.dimension else {}
        return {
            "store": "qdrant",
            "engine": self._engine.name,
            "version": version("qdrant-edge-py" if self._url is None else "qdrant-client"),
            "metric": self._intake.metric,
            **self._build_time_options(),
            **self._options,
            "threads": self._threads,
            **about,
            "index_used": 0 < len(self) <= int(about.get("indexed") or 0) and not self._options["exact"],
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        fresh = self._columns.new(ids, metadata)
        with self._speaking:
            if self._intake.dimension is None:
                self._engine.make(matrix.shape[1], QDRANT_DISTANCES[self._intake.metric], self._build_time_options())
            self._columns.learn(fresh)
            for column in fresh.values():
                self._engine.index_column(column.name, PAYLOAD_SCHEMAS[column.kind])
            payloads = None if metadata is None else [_bools_to_ints(self._columns.named(about)) for about in metadata]
            self._upsert_batches(range(self._intake.places, self._intake.places + len(ids)), matrix, payloads)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Build the graph over the added vectors."""
        if len(self):
            with self._speaking:
                self._engine.build()
        self._ready = True

    def tune(
        self,
        *,
        ef_search: int | None = None,
        exact: bool | None = None,
        oversampling: float | None = None,
        rescore: bool | None = None,
    ) -> None:
        """Set search options."""
        options = getattr(self, "_options", {})
        if ef_search is not None:
            options |= {"ef_search": check_int("ef_search", ef_search)}
        if exact is not None:
            options |= {"exact": bool(exact)}
        if self._quantization != "none":
            options |= {} if oversampling is None else {"oversampling": float(oversampling)}
            options |= {} if rescore is None else {"rescore": bool(rescore)}
        self._options: dict[str, Any] = options
        self._parameters = self._engine.parameters(options)

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
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), np.inf, dtype=np.float32)
        with self._speaking, stage("retrieve"):
            condition = self._engine.condition(_conditions_with_ints(wanted)) if wanted else None
            for row, query in enumerate(queries):
                found = self._engine.search(query, k, self._parameters, condition)
                positions[row, : len(found)] = [point.id for point in found]
                scores[row, : len(found)] = [point.score for point in found]
        if self._intake.metric == "cosine":
            scores = np.maximum(1 - scores, 0)
        elif self._intake.metric == "ip":
            scores = -scores
        return self._intake.answer(positions, scores, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        if len(ids):
            with self._speaking:
                self._engine.replace(positions.tolist(), matrix.tolist())

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        if len(ids):
            with self._speaking:
                self._engine.delete(positions.tolist())
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`; for a server, only the collection name and the ids."""
        folder = require_folder("qdrant", self._path)
        if self._intake.dimension is not None:
            with self._speaking:
                self._engine.flush()
            self._intake.write(
                folder, **self._build_time_options(), columns=self._columns.kept(), **self._engine.kept()
            )

    def remove(self) -> None:
        """Drop a server's collection even if it was to be kept.

        It is the part of the store outside its folder.
        """
        with self._speaking:
            self._engine.remove()

    def close(self) -> None:
        """Close the engine; a server's collection is dropped unless it is kept."""
        with self._speaking:
            self._engine.close()
        self._home.close()

    def _build_time_options(self) -> dict[str, Any]:
        return {"m": self._m, "ef_construction": self._ef_construction, "quantization": self._quantization}

    def _upsert_batches(self, positions: range, matrix: Matrix, payloads: list[dict[str, Any]] | None) -> None:
        for start in range(0, len(matrix), UPSERT_BATCH_POINTS):
            part = slice(start, start + UPSERT_BATCH_POINTS)
            some = None if payloads is None else payloads[part]
            self._engine.upsert(positions[part], matrix[part].tolist(), some)


def _bools_to_ints(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert booleans to 0 and 1.

    In a filter the library converts True to 1, which would match no boolean.
    """
    return {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}


def _conditions_with_ints(conditions: Sequence[FilterCondition]) -> list[FilterCondition]:
    """Convert booleans in conditions to 0 and 1."""
    return [
        one._replace(value=tuple(int(value) if isinstance(value, bool) else value for value in one.value))
        if one.operator == ONE_OF
        else one._replace(value=_bools_to_ints({one.field: one.value})[one.field])
        for one in conditions
    ]


class _EdgeEngine:
    """Qdrant's in-process engine, with the interface of `QdrantServer`."""

    name = "qdrant-edge"

    def __init__(self, library: Any, folder: Path, threads: int) -> None:
        self._edge = library
        self._folder = folder
        self._threads = threads
        self._shard: Any = None

    def open(self) -> None:
        self._shard = self._edge.EdgeShard.load(str(self._folder))

    def make(self, dimension: int, distance: str, built: Mapping[str, Any]) -> None:
        edge = self._edge
        quantized: Any = None
        if built["quantization"] == "int8":
            quantized = edge.ScalarQuantizationConfig(edge.ScalarType.Int8)
        elif built["quantization"] == "binary":
            quantized = edge.BinaryQuantizationConfig()
        graph = edge.HnswIndexConfig(
            m=built["m"],
            ef_construct=built["ef_construction"],
            full_scan_threshold=INDEXING_THRESHOLD_KB,
            max_indexing_threads=self._threads,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._shard = edge.EdgeShard.create(
            str(self._folder),
            edge.EdgeConfig(
                vectors=edge.EdgeVectorParams(size=dimension, distance=getattr(edge.Distance, distance)),
                hnsw_config=graph,
                quantization_config=quantized,
                optimizers=edge.EdgeOptimizersConfig(
                    indexing_threshold=INDEXING_THRESHOLD_KB, default_segment_number=1
                ),
                max_search_threads=self._threads or None,
            ),
        )

    def index_column(self, name: str, schema: str) -> None:
        self._shard.update(
            self._edge.UpdateOperation.create_field_index(name, getattr(self._edge.PayloadSchemaType, schema))
        )

    def upsert(self, positions: Sequence[int], rows: list[list[float]], payloads: list[dict[str, Any]] | None) -> None:
        point = self._edge.Point
        points = [
            point(place, row, payloads[i] if payloads else None)
            for i, (place, row) in enumerate(zip(positions, rows, strict=True))
        ]
        self._shard.update(self._edge.UpdateOperation.upsert_points(points))

    def replace(self, positions: list[int], rows: list[list[float]]) -> None:
        pairs = [self._edge.PointVectors(place, row) for place, row in zip(positions, rows, strict=True)]
        self._shard.update(self._edge.UpdateOperation.update_vectors(pairs))

    def delete(self, positions: list[int]) -> None:
        self._shard.update(self._edge.UpdateOperation.delete_points(positions))

    def build(self) -> None:
        self._shard.optimize()

    def parameters(self, options: Mapping[str, Any]) -> Any:
        rescoring = None
        if "oversampling" in options:
            rescoring = self._edge.QuantizationSearchParams(
                rescore=options["rescore"], oversampling=options["oversampling"]
            )
        return self._edge.SearchParams(hnsw_ef=options["ef_search"], exact=options["exact"], quantization=rescoring)

    def condition(self, wanted: Sequence[FilterCondition]) -> Any:
        edge = self._edge

        def ranged(name: str, **bounds: float) -> Any:
            return edge.FieldCondition(name, range=edge.RangeFloat(**bounds))

        must = []
        for name, operator, value in wanted:
            if operator in QDRANT_BOUNDS:
                must.append(ranged(name, **{QDRANT_BOUNDS[operator]: float(value)}))
            elif operator == ONE_OF and isinstance(value[0], float):
                must.append(edge.Filter(should=[ranged(name, gte=one, lte=one) for one in value]))
            elif operator == ONE_OF:
                must.append(edge.FieldCondition(name, match=edge.MatchAny(list(value))))
            elif isinstance(value, float):
                must.append(ranged(name, gte=value, lte=value))
            else:
                must.append(edge.FieldCondition(name, match=edge.MatchValue(value)))
        return edge.Filter(must=must)

    def search(self, query: Any, k: int, parameters: Any, condition: Any) -> Any:
        edge = self._edge
        request = edge.SearchRequest(query=edge.Query.Nearest(query), limit=k, filter=condition, params=parameters)
        return self._shard.search(request)

    def about(self) -> dict[str, Any]:
        info = self._shard.info()
        return {"indexed": info.indexed_vectors_count, "segments": info.segments_count}

    def flush(self) -> None:
        self._shard.flush()

    def kept(self) -> dict[str, Any]:
        return {}

    def remove(self) -> None:
        """Do nothing: the folder contains everything."""

    def close(self) -> None:
        if self._shard is not None and not isinstance(self._shard, ClosedEngine):
            self._shard.close()
        self._shard = ClosedEngine()
