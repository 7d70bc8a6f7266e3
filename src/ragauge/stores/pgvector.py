"""Vectors in a PostgreSQL table with pgvector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.protocols import STORE_CAPABILITIES
from ragauge.core.settings import AtLeast, check_int
from ragauge.core.stages import stage
from ragauge.stores.bookkeeping import METRICS, Matrix, Positions
from ragauge.stores.pgvector_engine import PostgresVectorTable
from ragauge.stores.pgvector_index import VectorIndex, uses_vector_index
from ragauge.stores.postgres import choose_table_name
from ragauge.stores.search_results import RawNeighbours
from ragauge.stores.store_settings import StoreSettings, search_option, search_width
from ragauge.stores.vector_store import VectorStore

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


@dataclass(frozen=True)
class PgVectorSettings(StoreSettings):
    """Options of pgvector; their limits are those of `VectorIndex`."""

    index: Literal["hnsw", "ivfflat", "binary", "none"] = "hnsw"
    half: bool = False
    m: int = 16
    ef_construction: int = 64
    ef_search: int = search_width(40)
    lists: int | None = None
    probes: int | None = search_width(None)
    rerank: Annotated[int, AtLeast(1)] = search_option(4)
    force: bool = search_option(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.vector_index(METRICS[0])

    @property
    def build_options(self) -> dict[str, Any]:
        sizes = {"none": (), "ivfflat": ("lists",)}.get(self.index, ("m", "ef_construction"))
        return self.select("index", "half", *sizes)

    def vector_index(self, metric: str) -> VectorIndex:
        """Return the index with these options; raise BadInput for options beyond its limits."""
        options = self.select("half", "m", "ef_construction", "ef_search", "lists", "probes", "force")
        is_binary = self.index == "binary"
        return VectorIndex("hnsw" if is_binary else self.index, metric, **options, binary=is_binary)


class PgVectorStore(VectorStore):
    """Vectors in a PostgreSQL table, with an HNSW, binary or IVFFlat index or none.

    `close()` drops the table unless `keep=True` or it was saved. The ids of the store are the keys of the table.

    Vectors are loaded by binary COPY. `build()` or the first search builds the index and analyses the table, so that
    build time and search time can be measured separately. The planner decides whether to use the index (it reads a
    small table faster as a whole): `index_used` reports its choice, `force=True` overrides it.

    `index` is hnsw, ivfflat, none, or binary: an HNSW graph over the signs of the values, whose best `rerank` times
    `k` candidates are compared in full precision. A `path` stores the name of the table, never the server.

    If a search returns too few rows because of a filter, or after updates and deletions, all rows are compared. Such
    a result is exact but slow, regardless of the index; `exact_fallbacks` in `describe()` counts them.
    """

    name = "pgvector"
    capabilities = frozenset(STORE_CAPABILITIES)
    remembers_metadata = False
    has_server = True
    has_outside_data = True
    extra = "pgvector"
    library_modules = ("pgvector", "psycopg")
    option_grids = (
        {"index": "hnsw", "half": [False, True], "ef_construction": 100, "ef_search": [10, 40, 160]},
        {"index": "ivfflat", "probes": [1, 4, 16]},
        {"index": "binary", "ef_construction": 100, "ef_search": [40, 160], "rerank": [4, 16]},
    )
    _settings: PgVectorSettings

    def __init__(
        self,
        *,
        dsn: str | None = None,
        table: str | None = None,
        keep: bool = False,
        path: str | None = None,
        metric: str = "cosine",
        settings: PgVectorSettings = PgVectorSettings(),
        threads: int = 1,
    ) -> None:
        check_int("threads", threads, 0)
        super().__init__(metric, path, settings)
        table = choose_table_name(self._bookkeeping.built.get("table", table))
        vector_index = settings.vector_index(metric)
        self._engine = PostgresVectorTable(vector_index, settings.rerank, dsn, table=table, threads=threads)
        self._engine.is_kept = keep
        if self._saved:
            self._engine.open_saved(
                self._bookkeeping.dimension or 0, self._bookkeeping.built.get("chosen_lists"), len(self)
            )
        self._ready = self._saved

    def __enter__(self) -> PgVectorStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def table(self) -> str:
        return self._engine.table

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter. BackendRestarted is raised if the server
        died during the search and accepts connections again. The table has the ids, so none are looked up by position.
        """
        queries = self._bookkeeping.prepare_queries(vectors, k)
        ids, distances = self._bookkeeping.empty_neighbours(len(queries), k)
        if not len(self) or not len(queries):
            return ids, distances
        if not self._ready:
            self.build()
        with stage("retrieve"):
            for row, neighbours in enumerate(self._engine.search(queries, k, len(self), where)):
                found = len(neighbours)
                if found:
                    ids[row, :found], distances[row, :found] = zip(*neighbours, strict=True)
        return ids, distances

    def explain(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> Any:
        """Return the plan of a search as PostgreSQL's JSON."""
        query = self._bookkeeping.prepare_queries([vector], k)[0]
        if not len(self):
            raise BadInput("an empty store has no query plan")
        self.build()
        return self._engine.explain(query, k, where)

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool:
        return uses_vector_index(self.explain(vector, k, where))

    def save(self) -> None:
        """Keep the table and save its name in `path`.

        Another process can then open it on the same server.
        """
        super().save()
        if self._path is not None and self._bookkeeping.dimension is not None:
            self._engine.keep(Path(self._path))

    def remove(self) -> None:
        """Drop the table even if it was to be kept.

        It is the part of the store outside its folder.
        """
        self._engine.drop()

    def pids(self) -> list[int]:
        """Return the process ids of a server on this machine, main process first.

        Empty for a remote server.
        """
        return self._engine.server_pids()

    def disk_bytes(self) -> int | None:
        """Return the size of the table and its indexes on the server's disk, in bytes.

        None before the first `add`.
        """
        return self._engine.disk_bytes()

    def _describe_engine(self) -> dict[str, Any]:
        about = self._engine.describe()
        if len(self) and self._engine.exists:
            about["index_used"] = self.index_used(np.ones(self._bookkeeping.dimension or 1), 10)
        return about

    def _apply_search_options(self) -> None:
        self._engine.tune(self._settings.vector_index(self._bookkeeping.metric), self._settings.rerank)

    def _add(
        self,
        ids: Sequence[str],
        positions: range,  # noqa: ARG002 - the ids are the keys
        matrix: Matrix,
        metadata: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self._engine.insert(ids, matrix, metadata)

    def _build(self) -> None:
        self._engine.build(len(self))

    def _search(self, queries: Matrix, k: int, selection: Any) -> RawNeighbours:
        raise NotImplementedError  # `search` returns the ids that the table has

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        self._engine.replace(self._bookkeeping.ids_at(positions), matrix)

    def _remove(self, positions: Positions) -> None:
        self._engine.delete(self._bookkeeping.ids_at(positions))

    def _flush(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 - the table is on the server
        self.build()
        return {"table": self.table, "chosen_lists": self._engine.index.lists}

    def _close(self) -> None:
        self._engine.close()
