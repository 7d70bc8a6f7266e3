"""Qdrant server, accessed by its URL."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.errors import MissingExtra
from ragauge.stores.filter_conditions import ONE_OF, QDRANT_BOUNDS, FilterCondition

INDEXING_TIMEOUT_S = 600
INDEXING_THRESHOLD_KB = 1


class QdrantServer:
    """Collection on a Qdrant server.

    `close` drops it if it was created for a store without a folder.
    """

    name = "qdrant server"

    def __init__(self, url: str, api_key: str | None, collection: str | None, *, keep: bool) -> None:
        try:
            from qdrant_client import QdrantClient, models
        except ImportError as error:
            raise MissingExtra("a Qdrant server", "qdrant") from error

        self._models: Any = models
        self._keep = keep or collection is not None
        self._collection = collection or f"ragauge_{secrets.token_hex(8)}"
        self._made = False
        self._client: Any = QdrantClient(url=url, api_key=api_key, timeout=60, check_compatibility=False)
        # Check at once: a wrong URL should fail before vectors are computed.
        self._there = bool(self._client.collection_exists(self._collection))

    def open(self) -> None:
        """Open the existing collection."""
        self._client.get_collection(self._collection)
        self._made = True

    def make(self, dimension: int, distance: str, built: Mapping[str, Any]) -> None:
        """Create the collection; raise ValueError if it exists."""
        if self._there:
            raise ValueError(f"the server has a collection {self._collection} already")
        models = self._models
        quantized: Any = None
        if built["quantization"] == "int8":
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
            quantized = models.ScalarQuantization(scalar=scalar)
        elif built["quantization"] == "binary":
            quantized = models.BinaryQuantization(binary=models.BinaryQuantizationConfig())
        self._client.create_collection(
            self._collection,
            vectors_config=models.VectorParams(size=dimension, distance=models.Distance(distance)),
            hnsw_config=models.HnswConfigDiff(
                m=built["m"], ef_construct=built["ef_construction"], full_scan_threshold=10
            ),
            optimizers_config=models.OptimizersConfigDiff(indexing_threshold=INDEXING_THRESHOLD_KB),
            quantization_config=quantized,
        )
        self._made = True

    def index_column(self, name: str, schema: str) -> None:
        """Create a payload index, which speeds up filters on a field."""
        self._client.create_payload_index(self._collection, name, field_schema=schema.lower())

    def upsert(self, positions: Sequence[int], rows: list[list[float]], payloads: list[dict[str, Any]] | None) -> None:
        """Insert or replace points."""
        points = [
            self._models.PointStruct(id=place, vector=row, payload=payloads[i] if payloads else None)
            for i, (place, row) in enumerate(zip(positions, rows, strict=True))
        ]
        self._client.upsert(self._collection, points, wait=True)

    def replace(self, positions: list[int], rows: list[list[float]]) -> None:
        """Replace the vectors of points."""
        points = [self._models.PointVectors(id=p, vector=row) for p, row in zip(positions, rows, strict=True)]
        self._client.update_vectors(self._collection, points)

    def delete(self, positions: list[int]) -> None:
        """Delete points."""
        self._client.delete(self._collection, points_selector=self._models.PointIdsList(points=positions), wait=True)

    def build(self) -> None:
        """Wait until the server has indexed all points.

        Raises TimeoutError if it takes too long.
        """
        end = time.monotonic() + INDEXING_TIMEOUT_S
        while (status := self._client.get_collection(self._collection).status) != "green":
            if time.monotonic() > end:
                raise TimeoutError(f"the collection is still {status} after {INDEXING_TIMEOUT_S} seconds")
            time.sleep(0.1)

    def parameters(self, options: Mapping[str, Any]) -> Any:
        """Convert search options to the server's parameters."""
        rescoring = None
        if "oversampling" in options:
            rescoring = self._models.QuantizationSearchParams(
                rescore=options["rescore"], oversampling=options["oversampling"]
            )
        return self._models.SearchParams(hnsw_ef=options["ef_search"], exact=options["exact"], quantization=rescoring)

    def condition(self, wanted: Sequence[FilterCondition]) -> Any:
        """Convert filter conditions to the server's filter."""
        models = self._models

        def ranged(name: str, **bounds: float) -> Any:
            return models.FieldCondition(key=name, range=models.Range(**bounds))

        must: list[Any] = []
        for name, operator, value in wanted:
            if operator in QDRANT_BOUNDS:
                must.append(ranged(name, **{QDRANT_BOUNDS[operator]: float(value)}))
            elif operator == ONE_OF and isinstance(value[0], float):
                must.append(models.Filter(should=[ranged(name, gte=one, lte=one) for one in value]))
            elif operator == ONE_OF:
                must.append(models.FieldCondition(key=name, match=models.MatchAny(any=list(value))))
            elif isinstance(value, float):
                must.append(ranged(name, gte=value, lte=value))
            else:
                must.append(models.FieldCondition(key=name, match=models.MatchValue(value=value)))
        return models.Filter(must=must)

    def search(self, query: Any, k: int, parameters: Any, condition: Any) -> Any:
        """Return the nearest points."""
        return self._client.query_points(
            self._collection,
            query=query.tolist(),
            limit=k,
            search_params=parameters,
            query_filter=condition,
            with_payload=False,
        ).points

    def about(self) -> dict[str, Any]:
        """Return the server version and how much of the collection is indexed."""
        info = self._client.get_collection(self._collection)
        server = self._client.info().version
        return {
            "server": server,
            "collection": self._collection,
            "indexed": info.indexed_vectors_count,
            "segments": info.segments_count,
        }

    def flush(self) -> None:
        """Do nothing: the server has stored what it confirmed."""

    def kept(self) -> dict[str, Any]:
        """Return what another process needs to find the collection."""
        return {"collection": self._collection}

    def remove(self) -> None:
        """Drop the collection, if this store created or opened it."""
        if self._made:
            self._client.delete_collection(self._collection)
            self._made = False

    def close(self) -> None:
        """Drop the collection unless it is kept, and close the client."""
        if not self._keep:
            self.remove()
        self._client.close()
