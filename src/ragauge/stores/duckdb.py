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
from ragauge.core.settings import one_of, whole
from ragauge.core.stages import stage
from ragauge.stores import engines
from ragauge.stores.bookkeeping import Intake, Matrix, folder_of
from ragauge.stores.document_stores import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.stores.engines import Columns, Home, Speaking, preloaded
from ragauge.stores.filter_conditions import Condition, as_sql, values_of

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


FILE = "vectors.duckdb"
FUNCTIONS = {"cosine": "array_cosine_distance", "l2": "array_distance", "ip": "array_negative_inner_product"}
METRICS = {"cosine": "cosine", "l2": "l2sq", "ip": "ip"}
TYPES = {engines.TRUTH: "BOOLEAN", engines.WHOLE: "BIGINT", engines.REAL: "DOUBLE", engines.TEXT: "VARCHAR"}
SCAN = "HNSW_INDEX_SCAN"


class DuckDB:
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
        self._extension = extension_file(Path(duckdb_extension_vss.__file__).parent, duckdb.__version__)
        self._intake = Intake(metric)
        self._columns = Columns()
        self._kind = one_of("index", index, ("hnsw", "none"))
        self._m = whole("m", m, 2)
        self._ef_construction = whole("ef_construction", ef_construction)
        self._threads = whole("threads", threads, 0)
        self._options: dict[str, Any] = {}
        self._set(ef_search, filtered, late_materialization)
        self._path = path
        self._speaking = Speaking("duckdb")
        self._home = Home("duckdb", path)
        there = path is not None and self._intake.read(path, **self._built())
        self._columns.read(self._intake.built.get("columns", {}))
        self._indexed = there
        self._worn = bool(self._intake.built.get("worn"))
        self._file = str(self._home.place(FILE, fresh=not there))
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
            **self._built(),
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
            self._write()
            cursor = self._cursor()
            if self._intake.dimension is None:
                cursor.execute(f"CREATE TABLE vectors (id BIGINT PRIMARY KEY, embedding FLOAT[{matrix.shape[1]:d}])")
            for column in fresh.values():
                cursor.execute(f"ALTER TABLE vectors ADD COLUMN {column.name} {TYPES[column.kind]}")
            self._columns.learn(fresh)
            self._insert(cursor, matrix, metadata)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Build the index, unless `index` is `none` or it is up to date."""
        with self._lock, self._speaking:
            if (self._indexed and not self._worn) or self._intake.dimension is None:
                return
            if self._kind == "hnsw":
                self._write()
                self._cursor().execute("DROP INDEX IF EXISTS nearest")
                self._cursor().execute(
                    f"CREATE INDEX nearest ON vectors USING HNSW (embedding) WITH (metric = "
                    f"'{METRICS[self._intake.metric]}', M = {self._m:d}, ef_construction = {self._ef_construction:d})"
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
        self._set(ef_search, filtered, late_materialization)
        with self._lock, self._speaking:
            self._apply(self._connection)

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
            cursor, statement = self._cursor(), self._statement(wanted)
            for row, query in enumerate(queries):
                vector = query.tolist()
                found = cursor.execute(statement, [vector, k, *values_of(wanted)]).fetchall()
                if self._worn and not wanted and len(found) < min(k, len(self)):
                    with self._counting:
                        self._fallbacks += 1
                    found = cursor.execute(self._statement([], scan=True), [vector, k]).fetchall()
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
            plan = self._cursor().execute(f"EXPLAIN {self._statement(wanted)}", [query, k, *values_of(wanted)])
            return SCAN in str(plan.fetchall())

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        with self._lock, self._speaking:
            self._write()
            for place, row in zip(positions.tolist(), matrix, strict=True):
                self._cursor().execute("UPDATE vectors SET embedding = ? WHERE id = ?", [row.tolist(), place])
            self._worn = self._indexed and self._kind == "hnsw"

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        with self._lock, self._speaking:
            self._write()
            self._cursor().execute("DELETE FROM vectors WHERE list_contains(?, id)", [positions.tolist()])
            self._worn = self._indexed and self._kind == "hnsw"
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path` and reopen the file read-only.

        Other processes can then read it.
        """
        folder = folder_of("duckdb", self._path)
        if not self._indexed:
            self.build()
        if self._intake.dimension is not None:
            with self._lock, self._speaking:
                if self._writing:
                    self._cursor().execute("CHECKPOINT")
                    self._connect(writing=False)
            self._intake.write(folder, **self._built(), columns=self._columns.kept(), worn=self._worn)

    def close(self) -> None:
        """Close the file; a temporary folder is removed."""
        with self._lock, self._speaking:
            self._connection.close()
        self._home.close()

    def _built(self) -> dict[str, Any]:
        graph = {"m": self._m, "ef_construction": self._ef_construction} if self._kind == "hnsw" else {}
        return {"index": self._kind, **graph}

    def _set(self, ef_search: int | None, filtered: str | None, late: bool | None) -> None:
        if ef_search is not None:
            self._options["ef_search"] = whole("ef_search", ef_search)
        if filtered is not None:
            self._options["filtered"] = one_of("way to filter", filtered, ("index", "scan"))
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
        self._apply(self._connection)
        # DuckDB loads modules at the first parameter and the first data frame. Do it now, outside the timings.
        self._connection.execute("SELECT $1", [[0.0]]).fetchall()
        if writing:
            preloaded("polars", "pyarrow.dataset", "pyarrow.pandas_compat")
        self._local = threading.local()
        self._writing = writing

    def _apply(self, connection: Any) -> None:
        connection.execute(f"SET GLOBAL hnsw_ef_search = {self._options['ef_search']:d}")
        off = "" if self._options["late_materialization"] else "late_materialization"
        connection.execute(f"SET GLOBAL disabled_optimizers = '{off}'")

    def _write(self) -> None:
        if not self._writing:
            self._connect(writing=True)

    def _cursor(self) -> Any:
        """Return the connection of this thread.

        A DuckDB connection runs one statement at a time.
        """
        found = getattr(self._local, "cursor", None)
        if found is None:
            found = self._local.cursor = self._connection.cursor()
        return found

    def _statement(self, wanted: Sequence[Condition], *, scan: bool = False) -> str:
        distance = f"{FUNCTIONS[self._intake.metric]}(embedding, $1::FLOAT[{self._intake.dimension or 1:d}])"
        numbers = itertools.count(3)
        conditions = as_sql(wanted, lambda _: f"${next(numbers)}")
        # The planner uses the index only for the exact distance expression, so adding 0 forces a scan.
        scan = scan or (bool(wanted) and self._options["filtered"] == "scan")
        order = f"{distance} + 0" if scan else distance
        return (
            f"SELECT id, {distance} FROM vectors {'WHERE ' if wanted else ''}{conditions} "  # noqa: S608 - own names
            f"ORDER BY {order} LIMIT $2"
        )

    def _insert(self, cursor: Any, matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
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


def extension_file(package: Path, version: str) -> Path:
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


DOCUMENTS_FILE = "documents.duckdb"


class DuckDBDocuments:
    """DuckDB table with the id as primary key.

    `index` is `none` (exact search) or `hnsw`. vss keeps an HNSW index on disk only with its experimental
    persistence, which is switched on. Everything put in before `commit` is one transaction.
    """

    keeps = EVERYTHING
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "none") -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtra("the DuckDB keeper", "duckdb") from error
        self._version = duckdb.__version__
        self._dimension = dimension
        self._index = one_of("index", index, ("none", "hnsw"))
        self._pending = False
        self._speaking = Verbatim("duckdb")
        self._home = Home("duckdb", path)
        with self._speaking:
            self._connection: Any = duckdb.connect()
            if index == "hnsw":
                self._load(duckdb.__version__)
            # Attach the file instead of opening it: the index of a killed process can be read only after vss is loaded.
            self._connection.execute(
                f"ATTACH '{_quoted(self._home.place(DOCUMENTS_FILE, fresh=False))}' AS kept; USE kept"
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
        rows = matrix(documents, vectors, self._dimension)
        with self._speaking:
            if not self._pending:
                self._connection.execute("BEGIN")
                self._pending = True
            for one, row in zip(documents, rows, strict=True):
                self._connection.execute(
                    "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)",
                    [one.id, one.title, one.text, written(one.metadata), row.tolist()],
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
        there = {row[0]: document(*row) for row in found}
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
            asked = query(vector, self._dimension).tolist()
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

    def _load(self, version: str) -> None:
        try:
            import duckdb_extension_vss
        except ImportError as error:
            raise MissingExtra("the HNSW index of DuckDB", "duckdb") from error
        file = extension_file(Path(duckdb_extension_vss.__file__).parent, version)
        self._connection.execute(f"LOAD '{_quoted(file)}'")
        self._connection.execute("SET GLOBAL hnsw_enable_experimental_persistence = true")


def _quoted(file: Path) -> str:
    return str(file).replace("'", "''")
