"""memvid: documents in one file, indexed by words, by vectors, or by both."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.settings import check_choice
from ragauge.core.stages import stage
from ragauge.core.structured_text import parse_json
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, normalise_rows, require_folder, unsupported_error
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import ClosedEngine, EngineErrors, EngineFolder

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


DOCUMENT_FILE = "memory.mv2"
PAGE_URI_MARKER = "#page-"
"""Marker in the URI of a page; memvid splits a long text into pages."""


class MemvidDocumentStore:
    """memvid file; each document is a frame whose URI is the id.

    The text is read back from the frame's bytes.

    `index` is `both`, `lex` (words only) or `vec` (vectors only). Searches use vectors if there are any. memvid has
    Euclidean distances only, so vectors are normalised to length 1. A text that memvid split into pages is read from
    the pages. `raw=False` is the default of memvid's own `put`, which keeps no bytes of a short text. The adapter
    checks nothing beyond what memvid reports: finding silent errors is the purpose of the stress test.
    """

    keeps = ALL_FIELDS

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "both", raw: bool = True) -> None:
        os.environ["MEMVID_TELEMETRY"] = "0"  # read at first use: the library would send usage data
        try:
            import memvid_sdk
        except ImportError as error:
            raise MissingExtra("the memvid keeper", "memvid") from error
        self._library: Any = memvid_sdk
        self._dimension, self._raw = dimension, raw
        self._index = check_choice("index", index, ("both", "lex", "vec"))
        self._speaking = VerbatimEngineErrors("memvid")
        self._home = EngineFolder("memvid", path)
        file = self._home.place(DOCUMENT_FILE, fresh=False)
        kinds = {"enable_vec": index != "lex", "enable_lex": index != "vec"}
        with self._speaking:
            if file.exists():
                self._memory: Any = memvid_sdk.use("basic", str(file), mode="open", **kinds)
            else:
                self._memory = memvid_sdk.create(str(file), **kinds)
        # One layer below the public class, which reports every search to memvid.com if a key is in the environment, and
        # which does not pass on the option to keep the bytes of a text.
        self._engine: Any = self._memory._core

    @property
    def searches(self) -> str:
        """What the store searches by: `vectors` or `words`."""
        return "words" if self._index == "lex" else "vectors"

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; an existing id is removed first.

        memvid would keep both otherwise.
        """
        rows = normalise_rows(to_document_matrix(documents, vectors, self._dimension))
        requests = [
            {
                "title": one.title,
                "label": "document",
                "labels": ["document"],
                "text": one.text,
                "uri": one.id,
                "metadata": {"metadata": metadata_to_json(one.metadata)},
                "tags": [],
            }
            for one in documents
        ]
        with self._speaking:
            for one in documents:
                if (frame := self._find_frame(one.id)) is not None:
                    self._engine.remove(frame["id"])
            self._engine.put_many(requests, None if self._index == "lex" else rows.tolist(), {"no_raw": not self._raw})

    def commit(self) -> None:
        """Commit in memvid."""
        with self._speaking:
            self._engine.commit()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        with self._speaking:
            return [self._read_document(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            most = max(1, int(self._engine.stats()["frame_count"]))
            return [str(one["uri"]) for one in self._memory.timeline(limit=most)]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:
        """Return the `k` nearest documents, or the `k` best by words.

        Pages of one document are one hit.
        """
        with self._speaking:
            if self._index == "lex":
                found = self._engine.find(text, k=k, mode="lex", snippet_chars=0)["hits"]
            else:
                asked = normalise_rows(to_query_vector(vector, self._dimension)[None])[0].tolist()
                found = self._engine.find("", k=k, mode="sem", query_embedding=asked, snippet_chars=0)["hits"]
        best: dict[str, Hit] = {}
        for hit in found:
            name = str(hit["uri"]).rpartition(PAGE_URI_MARKER)[0] or str(hit["uri"])
            best.setdefault(name, Hit(name, self._to_hit_score(float(hit["score"]))))
        return list(best.values())

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = self._library.info()
        return {
            "keeper": "memvid",
            "version": about["sdk_version"],
            "core": about["native"]["memvid_core_version"],
            "index": self._index,
            "raw": self._raw,
            "dimension": self._dimension,
        }

    def close(self) -> None:
        """Close the file; a temporary folder is removed."""
        if not isinstance(self._engine, ClosedEngine):
            with self._speaking:
                self._memory.close()
        self._engine = ClosedEngine()
        self._home.close()

    def _to_hit_score(self, score: float) -> float:
        """Convert a score of memvid to the score of a hit.

        A vector score is 1 - half the Euclidean distance and becomes the cosine; a word score is unchanged.
        """
        return score if self._index == "lex" else 1 - (2 - 2 * score) ** 2 / 2

    def _find_frame(self, uri: str) -> Any:
        try:
            return self._engine.frame(uri)
        except self._library.FrameNotFoundError:
            return None

    def _read_document(self, name: str) -> Document | None:
        frame = self._find_frame(name)
        if frame is None:
            return None
        data, page = bytes(self._engine.blob(name)), 1
        while not frame["payload_length"] and self._find_frame(f"{name}{PAGE_URI_MARKER}{page}") is not None:
            data += bytes(self._engine.blob(f"{name}{PAGE_URI_MARKER}{page}"))
            page += 1
        about = frame.get("extra_metadata", {}).get("metadata")
        return document_from_columns(name, data.decode(), frame["title"] or "", parse_json(about) if about else "")


VECTOR_FILE = "memory.mv2"
MIN_VECTORS_FOR_GRAPH = 1000
"""Number of vectors from which memvid builds an HNSW graph; fewer are searched by brute force."""
MAX_GRAPH_CANDIDATES = 50
"""Candidates that the graph considers; memvid panics if 2 * k exceeds them."""


class MemvidStore:
    """memvid file of documents without text, each with a vector.

    Euclidean distance, or cosine of unit vectors. memvid has no search options. Version 2.0.160 loses documents when
    its journal grows, and all vectors of a graph when anything is written after it, without an error. So after every
    write the number of documents and the size of the index are checked, and a store that lost something fails
    instead of being searched.
    """

    def __init__(self, *, metric: str = "cosine", path: str | None = None) -> None:
        os.environ["MEMVID_TELEMETRY"] = "0"  # read at first use: the library would send usage data
        try:
            import memvid_sdk
        except ImportError as error:
            raise MissingExtra("the memvid store", "memvid") from error
        self._library: Any = memvid_sdk
        self._intake = StoreBookkeeping(metric)
        if metric == "ip":
            raise BadInput("memvid cannot rank by inner product: its index has Euclidean distances only")
        self._path = path
        self._speaking = EngineErrors("memvid")
        self._waiting: list[Matrix] = []
        self._home = EngineFolder("memvid", path)
        there = path is not None and self._intake.read(path)
        file = str(self._home.place(VECTOR_FILE, fresh=not there))
        with self._speaking:
            if there:
                self._memory = memvid_sdk.use("basic", file, mode="open", enable_vec=True, enable_lex=False)
            else:
                self._memory = memvid_sdk.create(file, enable_vec=True, enable_lex=False)
        # One layer below the public class, which reports every search to memvid.com if a key is in the environment.
        self._engine: Any = self._memory._core

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: saving and sharing.

        Insert and delete are available only while it has no graph.
        """
        return frozenset(("save", "share", *(("insert", "delete") if len(self) < MIN_VECTORS_FOR_GRAPH - 1 else ())))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = self._library.info()
        return {
            "store": "memvid",
            "version": about["sdk_version"],
            "core": about["native"]["memvid_core_version"],
            "metric": self._intake.metric,
            "index": "hnsw" if self._has_graph else "none",
            "index_used": self._has_graph,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids; until the first search they are only collected."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        rows = normalise_rows(matrix) if self._intake.metric == "cosine" else matrix.copy()
        started = self._intake.dimension is not None and not self._waiting
        self._intake.remember(ids, matrix)
        if started:
            self._put_vectors(rows)
        else:
            self._waiting.append(rows)

    def build(self) -> None:
        """Store the collected vectors in one step: a later write would destroy the graph."""
        if self._waiting:
            rows, self._waiting = np.concatenate(self._waiting), []
            self._put_vectors(rows)

    def tune(self) -> None:
        """Do nothing: the engine has no search options."""

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        Raises BadInput if `where` is given: filters are not supported.
        """
        queries = self._intake.queries(vectors, k)
        if where:
            raise unsupported_error("memvid", "filter", "a vector search knows no metadata")
        self.build()
        width = min(k, len(self))
        if not width or not len(queries):
            return self._intake.empty(len(queries), k)
        if self._has_graph and 2 * width > MAX_GRAPH_CANDIDATES:
            raise unsupported_error(
                "memvid", f"give {width} neighbours", f"its graph gives up to {MAX_GRAPH_CANDIDATES // 2}"
            )
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        values = np.full((len(queries), k), np.inf, dtype=np.float32)
        asked = normalise_rows(queries) if self._intake.metric == "cosine" else queries
        with self._speaking, stage("retrieve"):
            for row, query in enumerate(asked):
                found = self._engine.find("", k=width, mode="sem", query_embedding=query.tolist(), snippet_chars=0)
                hits = found["hits"]
                positions[row, : len(hits)] = [hit["frame_id"] for hit in hits]
                values[row, : len(hits)] = [hit["score"] for hit in hits]
        distances = np.maximum(2 - 2 * values, 0)  # a score is 1 - half the distance
        if self._intake.metric == "cosine":
            distances = np.square(distances) / 2
        return self._intake.answer(positions, distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:  # noqa: ARG002 - the contract's
        """Raise BadInput: memvid cannot change the vector of a document."""
        raise unsupported_error("memvid", "update", "the vector of a document is given once")

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        self.build()
        with self._speaking:
            for place in positions.tolist():
                self._engine.remove(place)
            self._engine.commit()
        self._intake.forget(ids)
        self._check_nothing_lost()

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("memvid", self._path)
        self.build()
        if self._intake.dimension is not None:
            self._intake.write(folder)

    def close(self) -> None:
        """Close the file; a temporary folder is removed."""
        with self._speaking:
            self._memory.close()
        self._engine = ClosedEngine()
        self._home.close()

    @property
    def _has_graph(self) -> bool:
        return len(self) >= MIN_VECTORS_FOR_GRAPH

    def _put_vectors(self, rows: Matrix) -> None:
        # A document with text would also be indexed by words, which takes 60 ms each.
        nothing = [{"title": "", "label": "", "text": ""}] * len(rows)
        with self._speaking:
            self._memory.put_many(nothing, embeddings=rows.tolist())
            self._engine.commit()
        self._check_nothing_lost()

    def _check_nothing_lost(self) -> None:
        with self._speaking:
            stats = self._engine.stats()
        frames, taken = int(stats["frame_count"]), int(stats["vec_index_bytes"])
        dimension = self._intake.dimension or 1
        if frames != self._intake.places or taken < 4 * dimension * len(self):
            raise BackendFailed(
                f"memvid: of {self._intake.places} documents that it took it has {frames}, and its index of {taken} "
                f"bytes has room for {taken // (4 * dimension)} of their {len(self)} vectors",
                hint="memvid itself reports no error; a few hundred vectors it mostly keeps",
            )
