"""memvid: documents in one file, indexed by words, by vectors, or by both."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import check_choice
from ragauge.core.structured_text import parse_json
from ragauge.stores.bookkeeping import Matrix, empty_positions, normalise_rows, unsupported_error
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import ClosedEngine, DocumentRow, Engine, EngineFolder
from ragauge.stores.filter_conditions import FilterCondition
from ragauge.stores.search_results import DistanceConversions, RawNeighbours
from ragauge.stores.store_settings import StoreSettings
from ragauge.stores.vector_store import DatabaseStore

DATABASE_FILE = "memory.mv2"
PAGE_URI_MARKER = "#page-"
"""Marker in the URI of a page; memvid splits a long text into pages."""
MIN_VECTORS_FOR_GRAPH = 1000
"""Number of vectors from which memvid builds an HNSW graph; fewer are searched by brute force."""
MAX_GRAPH_CANDIDATES = 50
"""Candidates that the graph considers; memvid panics if 2 * k exceeds them."""


class MemvidEngine(Engine):
    """memvid file; a vector or a document is a frame.

    memvid has Euclidean distances only, so vectors are normalised to length 1 for the cosine. Vectors are collected
    until `build` and stored in one step: a later write would destroy the graph.

    The URI of a document is its id. Its text is read back from the frame's bytes, or from the pages of a text that
    memvid split. An existing id is removed first; memvid would keep both otherwise. The adapter checks nothing beyond
    what memvid reports: finding silent errors is the purpose of the stress test.
    """

    name = "memvid"
    capabilities = frozenset(("insert", "delete", "save", "share"))
    conversions: ClassVar[DistanceConversions] = {
        "l2": lambda scores: np.maximum(2 - 2 * scores, 0),  # a score is 1 - half the distance
        "cosine": lambda scores: np.square(np.maximum(2 - 2 * scores, 0)) / 2,
    }

    settings = StoreSettings()

    def __init__(self, index: str, *, raw: bool = True) -> None:
        os.environ["MEMVID_TELEMETRY"] = "0"  # read at first use: the library would send usage data
        (self._library,) = import_libraries("memvid", "memvid_sdk")
        self._index = check_choice("index", index, ("both", "lex", "vec"))
        self._raw = raw
        self.searches = "words" if index == "lex" else "vectors"
        self._collected: list[Matrix] = []
        self._n_frames = self._n_vectors = 0

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        file = folder.prepare_path(DATABASE_FILE, fresh=fresh)
        index_options = {"enable_vec": self._index != "lex", "enable_lex": self._index != "vec"}
        self._writes_at_once = file.exists()
        if self._writes_at_once:
            self._memory: Any = self._library.use("basic", str(file), mode="open", **index_options)
        else:
            self._memory = self._library.create(str(file), **index_options)
        # One layer below the public class, which reports every search to memvid.com if a key is in the environment, and
        # which does not pass on the option to keep the bytes of a text.
        self._core: Any = self._memory._core
        self._n_frames, self._n_vectors = self.layout.positions, self.layout.rows

    def create(self) -> None:
        """Do nothing: `open` creates the file."""

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:  # noqa: ARG002 - no metadata
        """Collect vectors, or store them if there is an index already."""
        self._collected.append(normalise_rows(matrix) if self.layout.metric == "cosine" else matrix.copy())
        self._n_frames = positions.stop
        self._n_vectors += len(matrix)
        if self._writes_at_once:
            self.build()

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        """Raise NotImplementedError: the vector of a document can be set only once."""
        raise NotImplementedError

    def delete(self, positions: list[int]) -> None:
        self.build()
        for position in positions:
            self._core.remove(position)
        self._core.commit()
        self._n_vectors -= len(positions)
        self._check_nothing_lost()

    def build(self) -> None:
        """Store the collected vectors in one step."""
        if self._collected:
            matrix, self._collected, self._writes_at_once = np.concatenate(self._collected), [], True
            # A document with text would also be indexed by words, which takes 60 ms each.
            self._memory.put_many([{"title": "", "label": "", "text": ""}] * len(matrix), embeddings=matrix.tolist())
            self._core.commit()
            self._check_nothing_lost()

    @property
    def has_graph(self) -> bool:
        """Whether memvid searches with a graph."""
        return self._n_vectors >= MIN_VECTORS_FOR_GRAPH

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:  # noqa: ARG002 - no filters
        if self.has_graph and 2 * k > MAX_GRAPH_CANDIDATES:
            raise unsupported_error(
                self.name, f"return {k} neighbours", f"its graph returns up to {MAX_GRAPH_CANDIDATES // 2}"
            )
        positions, values = empty_positions(len(queries), k)
        for row, query in enumerate(normalise_rows(queries) if self.layout.metric == "cosine" else queries):
            hits = self._find_vector(query, k)
            positions[row, : len(hits)] = [hit["frame_id"] for hit in hits]
            values[row, : len(hits)] = [hit["score"] for hit in hits]
        return positions, values

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        """Insert documents; an existing id is removed first."""
        requests = [
            {
                "title": row.title,
                "label": "document",
                "labels": ["document"],
                "text": row.text,
                "uri": row.id,
                "metadata": {"metadata": row.metadata},
                "tags": [],
            }
            for row in rows
        ]
        vectors = None if self._index == "lex" else normalise_rows(matrix).tolist()
        for row in rows:
            if (frame := self._find_frame(row.id)) is not None:
                self._core.remove(frame["id"])
        self._core.put_many(requests, vectors, {"no_raw": not self._raw})

    def commit(self) -> None:
        self._core.commit()

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        rows = map(self._read_document, dict.fromkeys(ids))
        return [row for row in rows if row is not None]

    def ids(self) -> list[str]:
        limit = max(1, int(self._core.stats()["frame_count"]))
        return [str(frame["uri"]) for frame in self._memory.timeline(limit=limit)]

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:
        """Return the nearest documents, or the best by words; pages of one document are one hit."""
        if self._index == "lex":
            hits = self._core.find(text, k=k, mode="lex", snippet_chars=0)["hits"]
        else:
            hits = self._find_vector(normalise_rows(vector[None])[0], k)
        best: dict[str, Hit] = {}
        for hit in hits:
            key = str(hit["uri"]).rpartition(PAGE_URI_MARKER)[0] or str(hit["uri"])
            best.setdefault(key, Hit(key, self._to_hit_score(float(hit["score"]))))
        return list(best.values())

    def describe(self) -> dict[str, Any]:
        library = self._library.info()
        versions = {"version": library["sdk_version"], "core": library["native"]["memvid_core_version"]}
        if self.layout.table == "documents":
            return {**versions, "index": self._index, "raw": self._raw}
        return {**versions, "index": "hnsw" if self.has_graph else "none", "index_used": self.has_graph}

    def close(self) -> None:
        if not isinstance(self._core, ClosedEngine):
            self._memory.close()
        self._core = self._memory = ClosedEngine()

    def _find_vector(self, vector: Matrix, k: int) -> Any:
        return self._core.find("", k=k, mode="sem", query_embedding=vector.tolist(), snippet_chars=0)["hits"]

    def _to_hit_score(self, score: float) -> float:
        """Convert a score of memvid to the score of a hit.

        A vector score is 1 - half the Euclidean distance and becomes the cosine; a word score is unchanged.
        """
        return score if self._index == "lex" else 1 - (2 - 2 * score) ** 2 / 2

    def _find_frame(self, uri: str) -> Any:
        try:
            return self._core.frame(uri)
        except self._library.FrameNotFoundError:
            return None

    def _read_document(self, key: str) -> DocumentRow | None:
        frame = self._find_frame(key)
        if frame is None:
            return None
        data, page = bytes(self._core.blob(key)), 1
        while not frame["payload_length"] and self._find_frame(f"{key}{PAGE_URI_MARKER}{page}") is not None:
            data += bytes(self._core.blob(f"{key}{PAGE_URI_MARKER}{page}"))
            page += 1
        metadata = frame.get("extra_metadata", {}).get("metadata")
        return DocumentRow(key, data.decode(), frame["title"] or "", parse_json(metadata) if metadata else "")

    def _check_nothing_lost(self) -> None:
        """Raise BackendFailed if the file has fewer documents or vectors than it was given."""
        stats = self._core.stats()
        n_frames, size_bytes = int(stats["frame_count"]), int(stats["vec_index_bytes"])
        vector_bytes = 4 * (self.layout.dimension or 1)
        if n_frames != self._n_frames or size_bytes < vector_bytes * self._n_vectors:
            raise BackendFailed(
                f"memvid: it has {n_frames} of {self._n_frames} added documents, and its index of {size_bytes} "
                f"bytes has room for {size_bytes // vector_bytes} of their {self._n_vectors} vectors",
                hint="memvid itself reports no error; use at most a few hundred vectors",
            )


class MemvidStore(DatabaseStore):
    """memvid file of documents without text, each with a vector.

    Euclidean distance, or cosine of unit vectors. memvid has no search options. Version 2.0.160 loses documents when
    its journal grows, and all vectors of a graph when anything is written after it, without an error. So after every
    write the number of documents and the size of the index are checked, and a store that lost something fails
    instead of being searched.
    """

    extra = "memvid"
    library_modules = ("memvid_sdk",)
    unsupported: Mapping[str, str] = {
        "update": "the vector of a document can be set only once",
        "filter": "vector search does not support metadata",
    }

    def __init__(self, *, metric: str = "cosine", path: str | None = None) -> None:
        if metric == "ip":
            raise BadInput("memvid cannot rank by inner product: its index has Euclidean distances only")
        super().__init__(MemvidEngine("vec"), metric, path)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store; insert and delete only while it has no graph."""
        return super().abilities - ({"insert", "delete"} if len(self) >= MIN_VECTORS_FOR_GRAPH - 1 else set())


def open_memvid_documents(
    *, path: str | None = None, dimension: int, index: str = "both", raw: bool = True
) -> EngineDocumentStore:
    """Open documents in a memvid file.

    `index` is `both`, `lex` (words only) or `vec` (vectors only). Searches use vectors if there are any. `raw=False` is
    the default of memvid's own `put`, which keeps no bytes of a short text.
    """
    return EngineDocumentStore(MemvidEngine(index, raw=raw), path, dimension)
