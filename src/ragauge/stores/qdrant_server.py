"""Qdrant server, accessed by its URL."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ragauge.core.errors import MissingExtra
from ragauge.stores.bookkeeping import Matrix
from ragauge.stores.engines import EngineFolder
from ragauge.stores.qdrant import INDEXING_THRESHOLD_KB, QDRANT_DISTANCES, QdrantEngine, QdrantSettings

INDEXING_TIMEOUT_S = 600


class QdrantServerEngine(QdrantEngine):
    """Collection on a Qdrant server.

    `close` drops it if it was created without a name for a store without a folder.
    """

    def __init__(
        self, settings: QdrantSettings, threads: int, url: str, api_key: str | None, collection: str | None
    ) -> None:
        try:
            from qdrant_client import QdrantClient, models
        except ImportError as error:
            raise MissingExtra("a Qdrant server", "qdrant") from error
        super().__init__(settings, threads, models)
        self._client_type: Any = QdrantClient
        self._range_type = models.Range
        self._url, self._api_key, self._collection = url, api_key, collection
        self._client: Any = None
        self._made = False
        """Whether this store created or opened the collection."""

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        """Connect at once, since a wrong URL should fail before vectors are computed."""
        self._keep = not folder.is_temporary or self._collection is not None
        self._collection = self.layout.state.get("collection", self._collection) or f"ragauge_{secrets.token_hex(8)}"
        self._client = self._client_type(url=self._url, api_key=self._api_key, timeout=60, check_compatibility=False)
        self._exists = bool(self._client.collection_exists(self._collection))
        if not fresh:
            self._client.get_collection(self._collection)
            self._made = True

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        pairs = zip(positions, matrix.tolist(), strict=True)
        vectors = [self._library.PointVectors(id=position, vector=vector) for position, vector in pairs]
        self._client.update_vectors(self._collection, vectors)

    def delete(self, positions: list[int]) -> None:
        self._client.delete(self._collection, points_selector=self._library.PointIdsList(points=positions), wait=True)

    def build(self) -> None:
        """Wait until the server has indexed all points.

        Raises TimeoutError if it takes too long.
        """
        end = time.monotonic() + INDEXING_TIMEOUT_S
        while (status := self._client.get_collection(self._collection).status) != "green":
            if time.monotonic() > end:
                raise TimeoutError(f"the collection is still {status} after {INDEXING_TIMEOUT_S} seconds")
            time.sleep(0.1)

    def flush(self) -> dict[str, Any]:
        """Return what another process needs to find the collection; the server has stored what it confirmed."""
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

    def _describe_library(self) -> dict[str, Any]:
        return {"engine": "qdrant server", "version": version("qdrant-client")}

    def _describe_collection(self) -> dict[str, Any]:
        if not self._made:
            return {}
        info = self._client.get_collection(self._collection)
        return {
            "server": self._client.info().version,
            "collection": self._collection,
            "indexed": info.indexed_vectors_count,
            "segments": info.segments_count,
        }

    def _create_collection(self) -> None:
        if self._exists:
            raise ValueError(f"the server has a collection {self._collection} already")
        models = self._library
        self._client.create_collection(
            self._collection,
            vectors_config=models.VectorParams(
                size=self.layout.dimension, distance=models.Distance(QDRANT_DISTANCES[self.layout.metric])
            ),
            hnsw_config=models.HnswConfigDiff(
                m=self.settings.m, ef_construct=self.settings.ef_construction, full_scan_threshold=10
            ),
            optimizers_config=models.OptimizersConfigDiff(indexing_threshold=INDEXING_THRESHOLD_KB),
            quantization_config=self._quantization_config(),
        )
        self._made = True

    def _quantization_config(self) -> Any:
        models = self._library
        if self.settings.quantization == "int8":
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
            return models.ScalarQuantization(scalar=scalar)
        if self.settings.quantization == "binary":
            return models.BinaryQuantization(binary=models.BinaryQuantizationConfig())
        return None

    def _create_payload_index(self, name: str, schema: str) -> None:
        self._client.create_payload_index(self._collection, name, field_schema=schema.lower())

    def _upsert_points(self, points: Sequence[tuple[int, list[float], dict[str, Any] | None]]) -> None:
        records = [self._library.PointStruct(id=key, vector=row, payload=payload) for key, row, payload in points]
        self._client.upsert(self._collection, records, wait=True)

    def _search_points(self, query: Any, k: int, matching: Any) -> Sequence[Any]:
        points: Sequence[Any] = self._client.query_points(
            self._collection,
            query=query.tolist(),
            limit=k,
            search_params=self._parameters,
            query_filter=matching,
            with_payload=False,
        ).points
        return points
