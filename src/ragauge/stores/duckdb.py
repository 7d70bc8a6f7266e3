"""DuckDB: a table in a file, with an HNSW index (extension vss) or none."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.errors import BackendFailed, MissingExtra, install_command
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast, check_int
from ragauge.stores import metadata_columns
from ragauge.stores.bookkeeping import Matrix, empty_positions
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import DocumentRow, Engine, EngineFolder, preload_modules
from ragauge.stores.filter_conditions import FilterCondition, condition_values, conditions_to_sql
from ragauge.stores.metadata_columns import MetadataColumn
from ragauge.stores.search_results import DistanceConversions, RawNeighbours, clip_at_zero
from ragauge.stores.store_settings import StoreSettings, search_option, search_width
from ragauge.stores.vector_store import DatabaseStore

DISTANCE_FUNCTIONS = {"cosine": "array_cosine_distance", "l2": "array_distance", "ip": "array_negative_inner_product"}
INDEX_METRICS = {"cosine": "cosine", "l2": "l2sq", "ip": "ip"}
COLUMN_TYPES = {
    metadata_columns.BOOL_KIND: "BOOLEAN",
    metadata_columns.INT_KIND: "BIGINT",
    metadata_columns.FLOAT_KIND: "DOUBLE",
    metadata_columns.TEXT_KIND: "VARCHAR",
}
INDEX_SCAN_OPERATOR = "HNSW_INDEX_SCAN"


@dataclass(frozen=True)
class DuckDBSettings(StoreSettings):
    """Options of DuckDB and its extension vss."""

    index: Literal["hnsw", "none"] = "hnsw"
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 128
    ef_search: Annotated[int, AtLeast(1)] = search_width(64)
    filtered: Literal["index", "scan"] = search_option("index")
    late_materialization: bool = search_option(True)

    @property
    def build_options(self) -> dict[str, Any]:
        return super().build_options if self.index == "hnsw" else {"index": self.index}


class DuckDBEngine(Engine):
    """DuckDB table with the id or the position as primary key.

    vss keeps an HNSW index on disk only with its experimental persistence, which is switched on. A file of vectors is
    opened read-only until something changes. Upserts of documents before `commit` are one transaction.
    """

    name = "duckdb"
    conversions: ClassVar[DistanceConversions] = {"cosine": clip_at_zero}

    settings: DuckDBSettings

    def __init__(self, settings: DuckDBSettings, threads: int) -> None:
        (self._library,) = import_libraries("duckdb", "duckdb")
        self.settings = settings
        self._has_index = settings.index == "hnsw"
        self._threads = check_int("threads", threads, 0)
        self._connection: Any = None
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._local = threading.local()
        self._fallbacks = 0
        self._pending = False
        """Whether a transaction is open."""

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        file = folder.prepare_path(f"{self.layout.table}.duckdb", fresh=fresh)
        self._file = str(file)
        if self.layout.table == "vectors":
            self._built = not fresh
            self._outdated = bool(self.layout.state.get("worn"))
            self._connect(writing=fresh)
            return
        self._connection = self._library.connect()
        if self._has_index:
            self._load_vss()
        # Attach the file instead of opening it: the index of a killed process can be read only after vss is loaded.
        self._connection.execute(f"ATTACH '{_escape_quotes(file)}' AS kept; USE kept")

    def create(self) -> None:
        """Create the table, and the index of documents."""
        vector_type = f"FLOAT[{self.layout.dimension:d}]"
        if self.layout.table == "documents":
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS documents (id VARCHAR PRIMARY KEY, title VARCHAR, text VARCHAR, "
                f"metadata VARCHAR, embedding {vector_type})"
            )
            if self._has_index:
                self._connection.execute(f"CREATE INDEX IF NOT EXISTS {self._index_definition()}")
            return
        columns = "".join(f", {column.name} {COLUMN_TYPES[column.kind]}" for column in self.layout.columns)
        with self._lock:
            self._open_for_writing()
            self._thread_cursor().execute(
                f"CREATE TABLE IF NOT EXISTS vectors (id BIGINT PRIMARY KEY, embedding {vector_type}{columns})"
            )

    def add_columns(self, columns: Sequence[MetadataColumn]) -> None:
        with self._lock:
            self._open_for_writing()
            for column in columns:
                self._thread_cursor().execute(
                    f"ALTER TABLE vectors ADD COLUMN {column.name} {COLUMN_TYPES[column.kind]}"
                )

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        import polars

        columns: dict[str, Any] = {
            "id": np.arange(positions.start, positions.stop),
            "embedding": polars.Series(matrix, dtype=polars.Array(polars.Float32, matrix.shape[1])),
        }
        for column in self.layout.columns:
            columns[column.name] = [row.get(column.name) for row in rows or ()] or [None] * len(matrix)
        names = ", ".join(columns)
        with self._lock:
            self._open_for_writing()
            cursor = self._thread_cursor()
            cursor.register("incoming", polars.DataFrame(columns))
            cursor.execute(f"INSERT INTO vectors ({names}) SELECT {names} FROM incoming")  # noqa: S608 - own names
            cursor.unregister("incoming")

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        with self._lock:
            self._open_for_writing()
            for position, vector in zip(positions, matrix, strict=True):
                self._thread_cursor().execute(
                    "UPDATE vectors SET embedding = ? WHERE id = ?", [vector.tolist(), position]
                )
            self._outdated = self._built and self._has_index

    def delete(self, positions: list[int]) -> None:
        with self._lock:
            self._open_for_writing()
            self._thread_cursor().execute("DELETE FROM vectors WHERE list_contains(?, id)", [positions])
            self._outdated = self._built and self._has_index

    def build(self) -> None:
        """Build the index, unless there is none or it is up to date."""
        with self._lock:
            if self._built and not self._outdated:
                return
            if self._has_index:
                self._open_for_writing()
                self._thread_cursor().execute("DROP INDEX IF EXISTS nearest")
                self._thread_cursor().execute(f"CREATE INDEX {self._index_definition()}")
            self._built, self._outdated = True, False

    def tune(self, settings: StoreSettings) -> None:
        super().tune(settings)
        if self._connection is not None:
            with self._lock:
                self._apply_search_options()

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        """Return the neighbours that the plan finds; all rows are compared if an outdated index gives too few."""
        positions, values = empty_positions(len(queries), k)
        cursor, statement = self._thread_cursor(), self._search_statement(conditions or ())
        bounds = condition_values(conditions) if conditions else ()
        for row, query in enumerate(queries):
            vector = query.tolist()
            rows = cursor.execute(statement, [vector, k, *bounds]).fetchall()
            if self._outdated and not conditions and len(rows) < k:
                with self._counting:
                    self._fallbacks += 1
                rows = cursor.execute(self._search_statement((), scan=True), [vector, k]).fetchall()
            if rows:
                positions[row, : len(rows)], values[row, : len(rows)] = zip(*rows, strict=True)
        return positions, values

    def uses_index(self, query: Matrix, k: int, conditions: Sequence[FilterCondition]) -> bool:
        """Return whether the plan of a search uses the index."""
        plan = self._thread_cursor().execute(
            f"EXPLAIN {self._search_statement(conditions)}", [query.tolist(), k, *condition_values(conditions)]
        )
        return INDEX_SCAN_OPERATOR in str(plan.fetchall())

    def flush(self) -> dict[str, Any]:
        """Reopen the file read-only, so that other processes can read it."""
        with self._lock:
            if self._writing:
                self._thread_cursor().execute("CHECKPOINT")
                self._connect(writing=False)
        return {"worn": self._outdated}

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        """Insert or replace documents in the open transaction."""
        if not self._pending:
            self._connection.execute("BEGIN")
            self._pending = True
        statement = "INSERT OR REPLACE INTO documents (id, text, title, metadata, embedding) VALUES (?, ?, ?, ?, ?)"
        for row, vector in zip(rows, matrix, strict=True):
            self._connection.execute(statement, [*row, vector.tolist()])

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        if self._pending:
            self._pending = False
            self._connection.execute("COMMIT")

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        statement = "SELECT id, text, title, metadata FROM documents WHERE list_contains(?, id)"
        return [DocumentRow(*row) for row in self._connection.execute(statement, [list(ids)]).fetchall()]

    def ids(self) -> list[str]:
        return [key for (key,) in self._connection.execute("SELECT id FROM documents").fetchall()]

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        distance = self._distance_expression()
        statement = f"SELECT id, {distance}, text FROM documents ORDER BY {distance} LIMIT $2"  # noqa: S608 - own names
        rows = self._connection.execute(statement, [vector.tolist(), k]).fetchall()
        return [Hit(key, 1 - distance, text) for key, distance, text in rows]

    def describe(self) -> dict[str, Any]:
        description = {"version": self._library.__version__, **self.settings.build_options}
        if self.layout.table == "documents":
            return description
        return {
            **description,
            **self.settings.search_values,
            "threads": self._threads,
            "exact_fallbacks": self._fallbacks,
        }

    def close(self) -> None:
        """Close the file; an open transaction is rolled back."""
        with self._lock:
            self._connection.close()

    def _connect(self, *, writing: bool) -> None:
        """Open the file read-only, or for writing by this process alone."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._library.connect(self._file, read_only=not writing)
        self._load_vss()
        if self._threads:
            self._connection.execute(f"SET threads = {self._threads:d}")
        self._apply_search_options()
        # DuckDB loads modules at the first parameter and the first data frame. Do it now, outside the timings.
        self._connection.execute("SELECT $1", [[0.0]]).fetchall()
        if writing:
            preload_modules("polars", "pyarrow.dataset", "pyarrow.pandas_compat")
        self._local = threading.local()
        self._writing = writing

    def _load_vss(self) -> None:
        try:
            import duckdb_extension_vss
        except ImportError as error:
            raise MissingExtra("the HNSW index of DuckDB", "duckdb") from error
        file = find_extension_file(Path(duckdb_extension_vss.__file__).parent, self._library.__version__)
        self._connection.execute(f"LOAD '{_escape_quotes(file)}'")
        self._connection.execute("SET GLOBAL hnsw_enable_experimental_persistence = true")

    def _apply_search_options(self) -> None:
        self._connection.execute(f"SET GLOBAL hnsw_ef_search = {self.settings.ef_search:d}")
        disabled = "" if self.settings.late_materialization else "late_materialization"
        self._connection.execute(f"SET GLOBAL disabled_optimizers = '{disabled}'")

    def _open_for_writing(self) -> None:
        if not self._writing:
            self._connect(writing=True)

    def _thread_cursor(self) -> Any:
        """Return the connection of this thread.

        A DuckDB connection runs one statement at a time.
        """
        cursor = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._connection.cursor()
        return cursor

    def _index_definition(self) -> str:
        return (
            f"nearest ON {self.layout.table} USING HNSW (embedding) WITH "
            f"(metric = '{INDEX_METRICS[self.layout.metric]}', M = {self.settings.m:d}, "
            f"ef_construction = {self.settings.ef_construction:d})"
        )

    def _distance_expression(self) -> str:
        return f"{DISTANCE_FUNCTIONS[self.layout.metric]}(embedding, $1::FLOAT[{self.layout.dimension:d}])"

    def _search_statement(self, conditions: Sequence[FilterCondition], *, scan: bool = False) -> str:
        distance = self._distance_expression()
        numbers = itertools.count(3)
        where_sql = conditions_to_sql(conditions, lambda _: f"${next(numbers)}")
        # The planner uses the index only for the exact distance expression, so adding 0 forces a scan.
        scan = scan or (bool(conditions) and self.settings.filtered == "scan")
        order = f"{distance} + 0" if scan else distance
        return (
            f"SELECT id, {distance} FROM vectors {'WHERE ' if conditions else ''}{where_sql} "  # noqa: S608 - own names
            f"ORDER BY {order} LIMIT $2"
        )


class DuckDBStore(DatabaseStore):
    """DuckDB table: `index` is `hnsw` (`m`, `ef_construction`, `ef_search`) or `none`.

    vss applies a filter to the results of the index, so fewer than `k` may remain. This behaviour is measured as it
    is; `filtered="scan"` bypasses the index and compares all matching vectors. With `late_materialization`, DuckDB's
    default, the query plan joins the whole table to the rows found by the index; `late_materialization=false` is
    faster for small k. Deleted or replaced vectors stay in
    the index and displace others: if a search returns too few rows, all vectors are compared (counted in
    `exact_fallbacks`), and the next `build()` rebuilds the index. The file is opened read-only until something
    changes, so that several processes can search it.
    """

    extra = "duckdb"
    library_modules = ("duckdb",)
    option_grids = ({"index": "hnsw", "m": 16, "ef_construction": 100, "ef_search": [10, 40, 160]},)
    _engine: DuckDBEngine

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: DuckDBSettings = DuckDBSettings(),
        threads: int = 1,
    ) -> None:
        super().__init__(DuckDBEngine(settings, threads), metric, path)

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool:
        query = self._bookkeeping.prepare_queries([vector], k)[0]
        conditions = (self._columns.to_conditions(where) if where else []) or []
        with self._errors:
            return self._engine.uses_index(query, k, conditions)

    def _describe_engine(self) -> dict[str, Any]:
        used = bool(len(self)) and self.index_used(np.ones(self._bookkeeping.dimension or 1), 10)
        return {**super()._describe_engine(), "index_used": used}


def open_duckdb_documents(
    *, path: str | None = None, dimension: int, index: Literal["hnsw", "none"] = "none"
) -> EngineDocumentStore:
    """Open documents in a DuckDB table; `index` is `none` (exact search) or `hnsw` with the defaults of vss."""
    return EngineDocumentStore(DuckDBEngine(DuckDBSettings(index=index), threads=0), path, dimension)


def find_extension_file(package: Path, version: str) -> Path:
    """Return the file of the extension vss for a DuckDB version.

    Nothing is downloaded. Raises BackendFailed if vss is installed for another version.
    """
    file = package / "extensions" / f"v{version}" / "vss.duckdb_extension"
    if not file.exists():
        installed = sorted(
            extension_file.parent.name for extension_file in package.glob("extensions/*/vss.duckdb_extension")
        )
        raise BackendFailed(
            f"duckdb: its extension vss is installed for {', '.join(installed) or 'no version'}, and DuckDB is "
            f"v{version}",
            hint=install_command("duckdb"),
        )
    return file


def _escape_quotes(file: Path) -> str:
    return str(file).replace("'", "''")
