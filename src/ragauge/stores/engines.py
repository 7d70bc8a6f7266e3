"""Adapters of databases: their interface, and the folder and errors that they share."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

from ragauge.core.documents import EMPTY_MAPPING, Hit
from ragauge.core.errors import BackendFailed, RagaugeError
from ragauge.core.protocols import STORE_CAPABILITIES
from ragauge.core.secrets import redact, register_secrets
from ragauge.files.workspace import create_temporary_folder
from ragauge.stores.bookkeeping import Matrix, claim_files
from ragauge.stores.filter_conditions import FilterCondition
from ragauge.stores.metadata_columns import MetadataColumn, MetadataColumns
from ragauge.stores.search_results import DistanceConversions, RawNeighbours
from ragauge.stores.store_settings import StoreSettings


def preload_modules(*modules: str) -> None:
    """Import modules that an engine would import during a measurement."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)


class EngineFolder:
    """Folder of an engine: the given one, or a temporary one that `close` removes."""

    def __init__(self, store: str, path: str | None) -> None:
        self.is_temporary = path is None
        self.folder = create_temporary_folder(store) if path is None else Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)

    def prepare_path(self, name: str, *, fresh: bool) -> Path:
        """Return the path of the engine's files.

        `fresh` deletes what a killed process left there. Raise BadInput if ragauge did not write it.
        """
        path = self.folder / name
        if fresh and not self.is_temporary:
            for leftover in claim_files(self.folder, name):
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()
        return path

    def close(self) -> None:
        """Remove the folder if it is temporary."""
        if self.is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


class ClosedEngine:
    """Placeholder for a closed engine; any use raises BackendFailed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise BackendFailed("the store is closed")


class EngineErrors:
    """Context manager that raises errors of an engine as BackendFailed, with secrets redacted.

    The message is put on one line, or with `verbatim` left as the engine wrote it.
    """

    def __init__(self, engine: str, secrets: Sequence[str] = (), *, verbatim: bool = False) -> None:
        self._engine = engine
        self._verbatim = verbatim
        register_secrets(*secrets)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.translate(error)

    def translate(self, error: BaseException) -> None:
        """Raise BackendFailed for an error of the engine; return for errors of ragauge and interruptions."""
        # Panics of engines in Rust are not subclasses of Exception.
        from_engine = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if isinstance(error, RagaugeError) or not from_engine:
            return
        message = str(error) if self._verbatim else " ".join(str(error).split())
        message = message or type(error).__name__
        public = redact(message)
        # If the message has a secret, the original error is also left out of the traceback.
        raise BackendFailed(f"{self._engine}: {public}") from (error if public == message else None)


@dataclass
class TableLayout:
    """Table of an engine: vectors under positions, or documents under ids."""

    table: Literal["vectors", "documents"]
    metric: str
    dimension: int | None = None
    """None until the first vectors are added."""
    columns: MetadataColumns = field(default_factory=MetadataColumns)
    """Metadata columns next to the vectors."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Result of `VectorEngine.flush` if the table was saved."""
    positions: int = 0
    """Number of positions that the saved table had assigned; the next vector gets this position."""
    rows: int = 0
    """Number of vectors in the saved table."""


class DocumentRow(NamedTuple):
    """Document as a row of an engine."""

    id: str
    text: str
    title: str
    metadata: Any
    """JSON text, empty without metadata, or a mapping if the engine parses it."""


class EngineConnection(ABC):
    """What all adapters of databases share: one database, with one table of a layout.

    An adapter checks nothing and has no ids of its own. The constructor takes the options and opens nothing.
    """

    name: ClassVar[str]
    layout: TableLayout

    @abstractmethod
    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        """Open the database for `self.layout`; `fresh` deletes what a killed process left in the folder."""

    @abstractmethod
    def create(self) -> None:
        """Create the table of the layout, unless it exists."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the version of the engine and its effective parameters."""

    @abstractmethod
    def close(self) -> None:
        """Release the database; uncommitted documents may be lost. May be called more than once."""


class VectorEngine(EngineConnection):
    """Adapter of one database, used by the generic vector store.

    The store calls `open`, `create` with the first vectors, and the methods that take positions.
    """

    capabilities: frozenset[str] = frozenset(STORE_CAPABILITIES)
    """Capabilities of the vector store, a subset of STORE_CAPABILITIES."""
    conversions: ClassVar[DistanceConversions] = EMPTY_MAPPING
    builds_on_save: ClassVar[bool] = False
    """Whether each save builds the index again, with the vectors added since."""
    settings: StoreSettings
    """Build options, which a saved table cannot change, and search options."""

    def tune(self, settings: StoreSettings) -> None:
        """Use settings with other search options; also called before `open`."""
        self.settings = settings

    def add_columns(self, columns: Sequence[MetadataColumn]) -> None:  # noqa: ARG002 - not all have a schema
        """Add metadata columns to an existing table; the layout does not have them yet."""
        return

    @abstractmethod
    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        """Insert vectors, with their metadata by column name."""

    @abstractmethod
    def replace(self, positions: list[int], matrix: Matrix) -> None:
        """Replace vectors; their metadata stay."""

    @abstractmethod
    def delete(self, positions: list[int]) -> None:
        """Delete vectors."""

    def build(self) -> None:
        """Build the index; nothing to do without one."""
        return

    @abstractmethod
    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        """Return up to `k` neighbours of each query."""

    def flush(self) -> dict[str, Any]:
        """Write the vectors to the folder; return the state that `open` needs later."""
        return {}


class DocumentEngine(EngineConnection):
    """Adapter of one database, used by the generic document store.

    The store calls `open` and `create` at once, and the methods that take rows and ids, which reach the database
    unchanged.
    """

    searches: str = "vectors"
    """What the document store searches: `vectors` or `words`."""

    @abstractmethod
    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        """Insert documents; a document with an existing id is replaced."""

    def commit(self) -> None:
        """Make all documents durable; nothing to do if `upsert` does."""
        return

    @abstractmethod
    def fetch(self, ids: Sequence[str]) -> Iterable[DocumentRow]:
        """Return the documents with these ids, in any order; there is at least one id."""

    @abstractmethod
    def ids(self) -> list[str]:
        """Return the ids of all documents."""

    @abstractmethod
    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:
        """Return the `k` best documents for a query; a score is a cosine, or that of the words."""


class Engine(VectorEngine, DocumentEngine):
    """Adapter of one database, used by the generic vector store and the generic document store."""
