"""DuckDB: a table in a file, with an HNSW index (extension vss) or none."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, MissingExtra, install_command
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.stores import engines
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, require_folder
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import EngineErrors, EngineFolder, MetadataColumns, preload_modules
from ragauge.stores.filter_conditions import FilterCondition, condition_values, conditions_to_sql

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


VECTOR_FILE = "vectors.duckdb"
DISTANCE_FUNCTIONS = {"cosine": "array_cosine_distance", "l2": "array_distance", "ip": "array_negative_inner_product"}
INDEX_METRICS = {"cosine": "cosine", "l2": "l2sq", "ip": "ip"}
COLUMN_TYPES = {
    engines.BOOL_KIND: "BOOLEAN",
    engines.INT_KIND: "BIGINT",
    engines.FLOAT_KIND: "DOUBLE",
    engines.TEXT_KIND: "VARCHAR",
}
INDEX_SCAN_OPERATOR = "HNSW_INDEX_SCAN"


class DuckDBStore:
    """DuckDB table: `index` is `hnsw` (`m`, `ef_construction`, `ef_search`) or `none`.

    vss applies a filter to the results of the index, so fewer than `k` may remain. This behaviour is measured as it
    is; `filtered="scan"` bypasses the index and compares all matching vectors. With `late_materialization`, DuckDB's
    default, the query plan joins the whole table to the rows found by the index. Deleted or replaced vectors stay in
    the index and displace others: if a search returns too few rows, all vectors are compared (counted in
    `exact_fallbacks`), and the next `build()` rebuilds the index. The file is opened read-only until something
    changes, so that several processes can search it.
    """

    def __init__(  # noqa: PLR0913 - the parameters of vss, by the names that all graphs have here
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        index: str = "hnsw",
        m: int = 16,
        ef_construction: int = 128,
        ef_search: int = 64,
        filtered: str = "index",
        late_materialization: bool = False,
        threads: int = 1,
    ) -> None:
        try:
            import duckdb
            import duckdb_extension_vss
        except ImportError as error:
            raise MissingExtra("the DuckDB store", "duckdb") from error
        self._duckdb: Any = duckdb
        self._extension = find_extension_file(Path(duckdb_extension_vss.__file__).parent, duckdb.__version__)
        self._intake = StoreBookkeeping(metric)
        self._columns = MetadataColumns()
        self._kind = check_choice("index", index, ("hnsw", "none"))
        self._m = check_int("m", m, 2)
        self._ef_construction = check_int("ef_construction", ef_construction)
        self._threads = check_int("threads", threads, 0)
        self._options: dict[str, Any] = {}
        self._set_search_options(ef_search, filtered, late_materialization)
        self._path = path
        self._speaking = EngineErrors("duckdb")
        self._home = EngineFolder("duckdb", path)
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self._columns.read(self._intake.built.get("columns", {}))
        self._indexed = there
        self._worn = bool(self._intake.built.get("worn"))
        self._file = str(self._home.place(VECTOR_FILE, fresh=not there))
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._fallbacks = 0
        self._local = threading.local()
        with self._speaking:
            self._connect(writing=not there)

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all.

        Processes can share a file that none of them changes.
        """
        return frozenset(("insert", "update", "delete", "filter", "save", "share", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "duckdb",
            "version": self._duckdb.__version__,
            "metric": self._intake.metric,
            **self._build_time_options(),
            **self._options,
            "threads": self._threads,
            "exact_fallbacks": self._fallbacks,
            "index_used": bool(len(self)) and self.index_used(np.ones(self._intake.dimension or 1), 10),
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        fresh = self._columns.new(ids, metadata)
        with self._lock, self._speaking:
            self._open_for_writing()
            cursor = self._thread_cursor()
            if self._intake.dimension is None:
                cursor.execute(f"CREATE TABLE vectors (id BIGINT PRIMARY KEY, embedding FLOAT[{matrix.shape[1]:d}])")
            for column in fresh.values():
                cursor.execute(f"ALTER TABLE vectors ADD COLUMN {column.name} {COLUMN_TYPES[column.kind]}")
            self._columns.learn(fresh)
            self._insert_vectors(cursor, matrix, metadata)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Build the index, unless `index` is `none` or it is up to date."""
        with self._lock, self._speaking:
            if (self._indexed and not self._worn) or self._intake.dimension is None:
                return
            if self._kind == "hnsw":
                self._open_for_writing()
                self._thread_cursor().execute("DROP INDEX IF EXISTS nearest")
                self._thread_cursor().execute(
                    f"CREATE INDEX nearest ON vectors USING HNSW (embedding) WITH (metric = "
                    f"'{INDEX_METRICS[self._intake.metric]}', M = {self._m:d}, ef_construction = "
                    f"{self._ef_construction:d})"
                )
            self._indexed, self._worn = True, False

    def tune(
        self,
        *,
        ef_search: int | None = None,
        filtered: str | None = None,
        late_materialization: bool | None = None,
    ) -> None:
        """Set search options."""
        self._set_search_options(ef_search, filtered, late_materialization)
        with self._lock, self._speaking:
            self._apply_search_options(self._connection)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        if not self._indexed:
            self.build()
        wanted = self._columns.wanted(where) if where else []
        if not len(self) or not len(queries) or wanted is None:
            return self._intake.empty(len(queries), k)
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        distances = np.full((len(queries), k), np.inf, dtype=np.float32)
        with self._speaking, stage("retrieve"):
            cursor, statement = self._thread_cursor(), self._search_statement(wanted)
            for row, query in enumerate(queries):
                vector = query.tolist()
                found = cursor.execute(statement, [vector, k, *condition_values(wanted)]).fetchall()
                if self._worn and not wanted and len(found) < min(k, len(self)):
                    with self._counting:
                        self._fallbacks += 1
                    found = cursor.execute(self._search_statement([], scan=True), [vector, k]).fetchall()
                if found:
                    places, values = zip(*found, strict=True)
                    positions[row, : len(found)], distances[row, : len(found)] = places, values
        if self._intake.metric == "cosine":
            distances = np.maximum(distances, 0)
        return self._intake.answer(positions, distances, k)

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool:
        """Return whether the plan of a search uses the index."""
        query = self._intake.queries([vector], k)[0].tolist()
        wanted = (self._columns.wanted(where) if where else []) or []
        with self._speaking:
            plan = self._thread_cursor().execute(
                f"EXPLAIN {self._search_statement(wanted)}", [query, k, *condition_values(wanted)]
            )
            return INDEX_SCAN_OPERATOR in str(plan.fetchall())

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        with self._lock, self._speaking:
            self._open_for_writing()
            for place, row in zip(positions.tolist(), matrix, strict=True):
                self._thread_cursor().execute("UPDATE vectors SET embedding = ? WHERE id = ?", [row.tolist(), place])
            self._worn = self._indexed and self._kind == "hnsw"

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        with self._lock, self._speaking:
            self._open_for_writing()
            self._thread_cursor().execute("DELETE FROM vectors WHERE list_contains(?, id)", [positions.tolist()])
            self._worn = self._indexed and self._kind == "hnsw"
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path` and reopen the file read-only.

        Other processes can then read it.
        """
        folder = require_folder("duckdb", self._path)
        if not self._indexed:
            self.build()
        if self._intake.dimension is not None:
            with self._lock, self._speaking:
                if self._writing:
                    self._thread_cursor().execute("CHECKPOINT")
                    self._connect(writing=False)
            self._intake.write(folder, **self._build_time_options(), columns=self._columns.kept(), worn=self._worn)

    def close(self) -> None:
        """Close the file; a temporary folder is removed."""
        with self._lock, self._speaking:
            self._connection.close()
        self._home.close()

    def _build_time_options(self) -> dict[str, Any]:
        graph = {"m": self._m, "ef_construction": self._ef_construction} if self._kind == "hnsw" else {}
        return {"index": self._kind, **graph}

    def _set_search_options(self, ef_search: int | None, filtered: str | None, late: bool | None) -> None:
        if ef_search is not None:
            self._options["ef_search"] = check_int("ef_search", ef_search)
        if filtered is not None:
            self._options["filtered"] = check_choice("way to filter", filtered, ("index", "scan"))
        if late is not None:
            self._options["late_materialization"] = bool(late)

    def _connect(self, *, writing: bool) -> None:
        """Open the file read-only, or for writing by this process alone."""
        if hasattr(self, "_connection"):
            self._connection.close()
        self._connection: Any = self._duckdb.connect(self._file, read_only=not writing)
        self._connection.execute(f"LOAD '{str(self._extension).replace(chr(39), chr(39) * 2)}'")
        self._connection.execute("SET GLOBAL hnsw_enable_experimental_persistence = true")
        if self._threads:
            self._connection.execute(f"SET threads = {self._threads:d}")
        self._apply_search_options(self._connection)
        # DuckDB loads modules at the first parameter and the first data frame. Do it now, outside the timings.
        self._connection.execute("SELECT $1", [[0.0]]).fetchall()
        if writing:
            preload_modules("polars", "pyarrow.dataset", "pyarrow.pandas_compat")
        self._local = threading.local()
        self._writing = writing

    def _apply_search_options(self, connection: Any) -> None:
        connection.execute(f"SET GLOBAL hnsw_ef_search = {self._options['ef_search']:d}")
        off = "" if self._options["late_materialization"] else "late_materialization"
        connection.execute(f"SET GLOBAL disabled_optimizers = '{off}'")

    def _open_for_writing(self) -> None:
        if not self._writing:
            self._connect(writing=True)

    def _thread_cursor(self) -> Any:
        """Return the connection of this thread.

        A DuckDB connection runs one statement at a time.
        """
        found = getattr(self._local, "cursor", None)
        if found is None:
            found = self._local.cursor = self._connection.cursor()
        return found

    def _search_statement(self, wanted: Sequence[FilterCondition], *, scan: bool = False) -> str:
        distance = f"{DISTANCE_FUNCTIONS[self._intake.metric]}(embedding, $1::FLOAT[{self._intake.dimension or 1:d}])"
        numbers = itertools.count(3)
        conditions = conditions_to_sql(wanted, lambda _: f"${next(numbers)}")
        # The planner uses the index only for the exact distance expression, so adding 0 forces a scan.
        scan = scan or (bool(wanted) and self._options["filtered"] == "scan")
        order = f"{distance} + 0" if scan else distance
        return (
            f"SELECT id, {distance} FROM vectors {'WHERE ' if wanted else ''}{conditions} "  # noqa: S608 - own names
            f"ORDER BY {order} LIMIT $2"
        )

    def _insert_vectors(self, cursor: Any, matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        import polars

        frame = {
            "id": np.arange(self._intake.places, self._intake.places + len(matrix)),
            "embedding": polars.Series(matrix, dtype=polars.Array(polars.Float32, matrix.shape[1])),
        }
        rows = [self._columns.row(about) for about in metadata or ()]
        for number, column in enumerate(self._columns):
            frame[column.name] = [row[number] for row in rows] or [None] * len(matrix)
        cursor.register("incoming", polars.DataFrame(frame))
        names = ", ".join(frame)
        cursor.execute(f"INSERT INTO vectors ({names}) SELECT {names} FROM incoming")  # noqa: S608 - own names
        cursor.unregister("incoming")


def find_extension_file(package: Path, version: str) -> Path:
    """Return the file of the extension vss for a DuckDB version.

    Nothing is downloaded. Raises BackendFailed if vss is installed for another version.
    """
    file = package / "extensions" / f"v{version}" / "vss.duckdb_extension"
    if not file.exists():
        there = ", ".join(sorted(found.parent.name for found in package.glob("extensions/*/vss.duckdb_extension")))
        raise BackendFailed(
            f"duckdb: its extension vss is installed for {there or 'no version'}, and DuckDB is v{version}",
            hint=install_command("duckdb"),
        )
    return file


DOCUMENT_FILE = "documents.duckdb"


class DuckDBDocumentStore:
    """DuckDB table with the id as primary key.

    `index` is `none` (exact search) or `hnsw`. vss keeps an HNSW index on disk only with its experimental
    persistence, which is switched on. Everything put in before `commit` is one transaction.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "none") -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtra("the DuckDB keeper", "duckdb") from error
        self._version = duckdb.__version__
        self._dimension = dimension
        self._index = check_choice("index", index, ("none", "hnsw"))
        self._pending = False
        self._speaking = VerbatimEngineErrors("duckdb")
        self._home = EngineFolder("duckdb", path)
        with self._speaking:
            self._connection: Any = duckdb.connect()
            if index == "hnsw":
                self._load_vss(duckdb.__version__)
            # Attach the file instead of opening it: the index of a killed process can be read only after vss is loaded.
            self._connection.execute(
                f"ATTACH '{_escape_quotes(self._home.place(DOCUMENT_FILE, fresh=False))}' AS kept; USE kept"
            )
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS documents (id VARCHAR PRIMARY KEY, title VARCHAR, text VARCHAR, "
                f"metadata VARCHAR, embedding FLOAT[{dimension:d}])"
            )
            if index == "hnsw":
                self._connection.execute(
                    "CREATE INDEX IF NOT EXISTS nearest ON documents USING HNSW (embedding) WITH (metric = 'cosine')"
                )

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = to_document_matrix(documents, vectors, self._dimension)
        with self._speaking:
            if not self._pending:
                self._connection.execute("BEGIN")
                self._pending = True
            for one, row in zip(documents, rows, strict=True):
                self._connection.execute(
                    "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)",
                    [one.id, one.title, one.text, metadata_to_json(one.metadata), row.tolist()],
                )

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        with self._speaking:
            if self._pending:
                self._pending = False
                self._connection.execute("COMMIT")

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        statement = "SELECT id, text, title, metadata FROM documents WHERE list_contains(?, id)"
        with self._speaking:
            found = self._connection.execute(statement, [list(ids)]).fetchall() if len(ids) else []
        there = {row[0]: document_from_columns(*row) for row in found}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            return [name for (name,) in self._connection.execute("SELECT id FROM documents").fetchall()]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity that DuckDB finds."""
        distance = f"array_cosine_distance(embedding, $1::FLOAT[{self._dimension:d}])"
        statement = f"SELECT id, {distance}, text FROM documents ORDER BY {distance} LIMIT $2"  # noqa: S608 - own names
        with self._speaking:
            asked = to_query_vector(vector, self._dimension).tolist()
            found = self._connection.execute(statement, [asked, k]).fetchall()
        return [Hit(name, 1 - distance, text) for name, distance, text in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {"keeper": "duckdb", "version": self._version, "index": self._index, "dimension": self._dimension}

    def close(self) -> None:
        """Close the file; uncommitted changes are rolled back."""
        with self._speaking:
            self._connection.close()
        self._home.close()

    def _load_vss(self, version: str) -> None:
        try:
            import duckdb_extension_vss
        except ImportError as error:
            raise MissingExtra("the HNSW index of DuckDB", "duckdb") from error
        file = find_extension_file(Path(duckdb_extension_vss.__file__).parent, version)
        self._connection.execute(f"LOAD '{_escape_quotes(file)}'")
        self._connection.execute("SET GLOBAL hnsw_enable_experimental_persistence = true")


def _escape_quotes(file: Path) -> str:
    return str(file).replace("'", "''")
