"""Base classes of vector stores: everything that does not depend on the engine.

The store of a library implements the methods that start with an underscore. They get positions instead of ids, and
need no checks. Its constructor checks its options, calls the constructor of its base class, and opens saved data if
`self._saved` is true. The store of a database is `DatabaseStore` over a `VectorEngine`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import (
    Matrix,
    Positions,
    StoreBookkeeping,
    claim_files,
    require_folder,
    unsupported_error,
)
from ragauge.stores.engines import EngineErrors, EngineFolder, TableLayout, VectorEngine
from ragauge.stores.filter_conditions import FilterCondition
from ragauge.stores.metadata_columns import MetadataColumns
from ragauge.stores.search_results import DistanceConversions, RawNeighbours
from ragauge.stores.store_settings import StoreSettings

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


class VectorStore(ABC):
    """Vector store: checks input, assigns positions to ids, and converts results of the engine."""

    name: str
    capabilities: frozenset[str]
    """Capabilities of the engine, a subset of STORE_CAPABILITIES."""
    unsupported: Mapping[str, str] = {}
    """Reasons why this store cannot insert, update, delete or filter."""
    conversions: DistanceConversions = EMPTY_MAPPING
    remembers_metadata: ClassVar[bool] = True
    """Whether filters are evaluated here, not by the engine."""
    has_server: ClassVar[bool] = False
    """Whether the engine runs in processes of its own."""
    has_outside_data: ClassVar[bool] = False
    """Whether the store may have data outside its folder, which `remove` deletes."""
    extra: ClassVar[str] = ""
    """Extra of ragauge that installs the libraries; empty if none is needed."""
    library_modules: ClassVar[tuple[str, ...]] = ()
    """Modules that must be importable; libraries that only some options need are checked in the constructor."""
    option_grids: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Grids of options that `bench` sweeps: one mapping per kind of index, with a list for each option to vary."""

    def __init__(self, metric: str, path: str | None, settings: StoreSettings) -> None:
        self._bookkeeping = StoreBookkeeping(metric)
        self._path = path
        self._settings = settings
        self._build_options = settings.build_options
        self._saved = path is not None and self._bookkeeping.read(path, self._build_options)
        """Whether the folder has a saved store."""
        self._ready = True
        """Whether the index is built; otherwise the next search builds it."""
        self._to_distances = self.conversions.get(metric)
        self._errors: AbstractContextManager[None] = nullcontext()

    def __len__(self) -> int:
        return len(self._bookkeeping)

    @property
    def ids(self) -> list[str]:
        """Ids in the store, in order of insertion."""
        return self._bookkeeping.ids

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store."""
        return self.capabilities - self.unsupported.keys()

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": self.name,
            "metric": self._bookkeeping.metric,
            **self._describe_engine(),
            "size": len(self),
            "dimension": self._bookkeeping.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        self._check_supported("insert")
        matrix = self._bookkeeping.prepare_insertion(ids, vectors, metadata)
        if len(matrix):
            with self._errors:
                self._add(
                    ids,
                    range(self._bookkeeping.position_count, self._bookkeeping.position_count + len(matrix)),
                    matrix,
                    metadata,
                )
        self._bookkeeping.register_ids(ids, matrix, metadata if self.remembers_metadata else None)

    def build(self) -> None:
        """Index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        if self._bookkeeping.dimension is not None:
            with self._errors:
                self._build()
            self._ready = True

    def tune(self, options: Mapping[str, Any]) -> None:
        """Set search options."""
        self._settings = self._settings.tuned(options)
        with self._errors:
            self._apply_search_options()

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        bookkeeping = self._bookkeeping
        queries = bookkeeping.prepare_queries(vectors, k)
        selection = None
        if where:
            self._check_supported("filter")
            selection = self._select(where)
            if selection is None:
                return bookkeeping.empty_neighbours(len(queries), k)
        if not self._ready:
            self.build()
        size = len(bookkeeping.position_by_id)
        if not size or not len(queries):
            return self._search_nothing(len(queries), k)
        with stage("retrieve"):
            positions, values = self._search(queries, k if k < size else size, selection)
        if self._to_distances is not None:
            values = self._to_distances(values)
        return bookkeeping.to_neighbours(positions, values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        self._check_supported("update")
        positions, matrix = self._bookkeeping.prepare_update(ids, vectors)
        if len(ids):
            with self._errors:
                self._replace(positions, matrix)

    def delete(self, ids: Sequence[str]) -> None:
        self._check_supported("delete")
        positions = self._bookkeeping.positions(ids)
        if len(ids):
            with self._errors:
                self._remove(positions)
            self._bookkeeping.remove(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder(self.name, self._path)
        if self._bookkeeping.dimension is not None:
            with self._errors:
                state = self._flush(folder)
            self._bookkeeping.write(folder, {**self._build_options, **state})

    def index_used(
        self,
        vector: Any,  # noqa: ARG002 - used by engines with a planner
        k: int,  # noqa: ARG002
        where: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> bool | None:
        """Return whether a search uses the index; None if the store cannot report it."""
        return None

    def pids(self) -> Sequence[int]:
        """Return the ids of the processes that the engine runs in, if they are not this one."""
        return ()

    def disk_bytes(self) -> int | None:
        """Return the size of the data that is not in the folder; None if all of it is there."""
        return None

    def remove(self) -> None:
        """Delete the data that is not in the folder."""
        return

    def close(self) -> None:
        """Release all resources."""
        with self._errors:
            self._close()

    def _check_supported(self, operation: str) -> None:
        if operation in self.unsupported:
            raise unsupported_error(self.name, operation, self.unsupported[operation])

    def _select(self, where: Mapping[str, Any]) -> Any:
        """Return what a filter selects, in the form that `_search` takes; None if nothing can match.

        Here it is a mask of the positions, and the same array while neither filter nor ids change.
        """
        return self._bookkeeping.filter_mask(where)

    def _apply_search_options(self) -> None:
        """Pass the search options of the settings to the engine."""
        return

    def _describe_engine(self) -> dict[str, Any]:
        """Return the version and the effective parameters of the engine."""
        return {**self._settings.build_options, **self._settings.search_values}

    @abstractmethod
    def _add(
        self, ids: Sequence[str], positions: range, matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Store vectors under their positions."""

    def _build(self) -> None:
        """Build the index; nothing to do without one."""
        return

    @abstractmethod
    def _search(self, queries: Matrix, k: int, selection: Any) -> RawNeighbours:
        """Return up to `k` neighbours of each query; `selection` is the result of `_select`, None without a filter."""

    def _search_nothing(self, n_queries: int, k: int) -> Neighbours:
        """Return the result if there are no vectors or no queries, without a call to the engine."""
        return self._bookkeeping.empty_neighbours(n_queries, k)

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        raise NotImplementedError

    def _remove(self, positions: Positions) -> None:
        """Delete vectors."""
        raise NotImplementedError

    def _flush(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 - used by most engines
        """Write everything to the folder; return what the engine needs to open it again."""
        return {}

    def _close(self) -> None:
        """Release the engine; called more than once if the store is closed more than once."""
        return


class LibraryStore(VectorStore):
    """Vector store over a library that has its index in memory and writes it to one file.

    Vectors are collected until `build` or the first search creates the index.
    """

    index_file: ClassVar[str]

    def __init__(self, metric: str, path: str | None, settings: StoreSettings) -> None:
        super().__init__(metric, path, settings)
        self._index: Any = None
        self._waiting: list[Matrix] = []
        self._lock = threading.Lock()

    def build(self) -> None:
        """Index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        with self._lock:
            if not self._waiting:
                return
            # In one call, as in the examples of the libraries: the graph of FAISS depends on the sizes of the batches.
            self._waiting = [np.concatenate(self._waiting)]
            if self._index is None:
                self._index = self._create_index(self._waiting)
            (matrix,) = self._waiting
            end = self._bookkeeping.position_count
            self._insert(range(end - len(matrix), end), matrix)
            self._waiting = []
            self._ready = True

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        self.build()
        super().update(ids, vectors)

    def delete(self, ids: Sequence[str]) -> None:
        self.build()
        super().delete(ids)

    def _saved_file(self) -> str:
        return str(require_folder(self.name, self._path) / self.index_file)

    def _add(
        self,
        ids: Sequence[str],  # noqa: ARG002 - used by databases
        positions: range,
        matrix: Matrix,
        metadata: Sequence[Mapping[str, Any]] | None,  # noqa: ARG002 - used by databases
    ) -> None:
        prepared = self._prepare(matrix)
        if self._index is None:
            self._waiting.append(prepared.copy() if prepared is matrix else prepared)
            self._ready = False
        else:
            self._insert(positions, prepared)

    def _prepare(self, matrix: Matrix) -> Matrix:
        """Return vectors as the library takes them; raise BadInput if it cannot hold them."""
        return matrix

    @abstractmethod
    def _create_index(self, parts: Sequence[Matrix]) -> Any:
        """Create the index, and train it with the collected vectors, which are inserted later."""

    @abstractmethod
    def _insert(self, positions: range, matrix: Matrix) -> None:
        """Insert vectors into the index."""

    @abstractmethod
    def _write_index(self, file: str) -> None:
        """Write the index to a file."""

    def _flush(self, folder: Path) -> dict[str, Any]:
        self.build()
        claim_files(folder, self.index_file)
        with replace_file(folder / self.index_file) as file:
            self._write_index(str(file))
        return {}

    def _close(self) -> None:
        self._index = None
        self._waiting = []
        self._bookkeeping = StoreBookkeeping(self._bookkeeping.metric)


class DatabaseStore(VectorStore):
    """Vector store over a database: positions are the keys, and the database filters by metadata columns."""

    remembers_metadata = False

    def __init__(self, engine: VectorEngine, metric: str, path: str | None, secrets: Sequence[str] = ()) -> None:
        self.name, self.capabilities, self.conversions = engine.name, engine.capabilities, engine.conversions
        super().__init__(metric, path, engine.settings)
        self._ready = self._saved
        self._errors: EngineErrors = EngineErrors(engine.name, secrets)
        self._columns = MetadataColumns()
        self._columns.read(self._bookkeeping.built.get("columns", {}))
        self._home = EngineFolder(engine.name, path)
        self._engine = engine
        engine.layout = TableLayout(
            "vectors",
            metric,
            self._bookkeeping.dimension,
            self._columns,
            self._bookkeeping.built,
            positions=self._bookkeeping.position_count,
            rows=len(self._bookkeeping),
        )
        try:
            with self._errors:
                engine.open(self._home, fresh=not self._saved)
        except BaseException:
            self._home.close()
            raise

    def save(self) -> None:
        """Save the ids in `path`; the database has its own files there."""
        if self._path is not None and (not self._ready or self._engine.builds_on_save):
            self.build()
        super().save()

    def close(self) -> None:
        """Close the database; a temporary folder is removed."""
        super().close()
        self._home.close()

    def _apply_search_options(self) -> None:
        self._engine.tune(self._settings)

    def _select(self, where: Mapping[str, Any]) -> Any:
        return self._columns.to_conditions(where)

    def _describe_engine(self) -> dict[str, Any]:
        with self._errors:
            return self._engine.describe()

    def _add(
        self, ids: Sequence[str], positions: range, matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None
    ) -> None:
        new_columns = self._columns.new(ids, metadata)
        if self._bookkeeping.dimension is None:
            self._engine.layout.dimension = matrix.shape[1]
            self._columns.learn(new_columns)
            self._engine.create()
        elif new_columns:
            self._engine.add_columns(list(new_columns.values()))
            self._columns.learn(new_columns)
        rows = None if metadata is None else [self._columns.row_by_name(values) for values in metadata]
        self._engine.insert(positions, matrix, rows)

    def _build(self) -> None:
        self._engine.build()

    def _search(self, queries: Matrix, k: int, selection: Sequence[FilterCondition] | None) -> RawNeighbours:
        # Without an error this is faster than a context manager.
        try:
            return self._engine.search(queries, k, selection)
        except BaseException as error:
            self._errors.translate(error)
            raise

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        self._engine.replace(positions.tolist(), matrix)

    def _remove(self, positions: Positions) -> None:
        self._engine.delete(positions.tolist())

    def _flush(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 - the engine knows its folder
        return {"columns": self._columns.to_json(), **self._engine.flush()}

    def _close(self) -> None:
        self._engine.close()
