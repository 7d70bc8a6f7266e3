"""LanceDB: a table of Lance files in a folder, with an IVF or HNSW index or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.systems.stores.engines import Gone, Home

FOLDER = "lance"
TABLE = "documents"


class LanceDB:
    """LanceDB table without index: search is exact.

    Upserts use `merge_insert` on the id. Each one creates a version of the table that is on disk when the call
    returns, so `commit` has nothing to do.
    """

    keeps = EVERYTHING
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int) -> None:
        try:
            import lancedb
            import pyarrow as pa
        except ImportError as error:
            raise MissingExtra("the LanceDB keeper", "lancedb") from error
        self._version = lancedb.__version__
        self._dimension = dimension
        self._speaking = Verbatim("lancedb")
        self._home = Home("lancedb", path)
        names = ("id", "title", "text", "metadata")
        self._arrow: Any = pa
        self._schema = pa.schema(
            [*((name, pa.string()) for name in names), ("vector", pa.list_(pa.float32(), dimension))]
        )
        with self._speaking:
            self._database: Any = lancedb.connect(str(self._home.place(FOLDER, fresh=False)))
            self._table: Any = self._database.create_table(TABLE, schema=self._schema, exist_ok=True)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = matrix(documents, vectors, self._dimension)
        with self._speaking:
            table = self._arrow.Table.from_pylist(
                [
                    {
                        "id": one.id,
                        "title": one.title,
                        "text": one.text,
                        "metadata": written(one.metadata),
                        "vector": row,
                    }
                    for one, row in zip(documents, rows, strict=True)
                ],
                schema=self._schema,
            )
            merging = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merging.execute(table)

    def commit(self) -> None:
        """Do nothing: each put is already on disk."""

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        if not len(ids):
            return []
        some = ", ".join("'" + name.replace("'", "''") + "'" for name in dict.fromkeys(ids))
        with self._speaking:
            wanted = self._table.search().where(f"id IN ({some})").select(["id", "text", "title", "metadata"])
            found = wanted.limit(len(ids)).to_list()
        there = {row["id"]: document(row["id"], row["text"], row["title"], row["metadata"]) for row in found}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            rows = self._table.search().select(["id"]).limit(max(1, self._table.count_rows())).to_arrow()
            return [str(name) for name in rows["id"].to_pylist()]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity, by brute force."""
        with self._speaking:
            asked = self._table.search(query(vector, self._dimension), vector_column_name="vector")
            found = asked.distance_type("cosine").select(["id", "text", "_distance"]).limit(k).to_list()
        return [Hit(row["id"], 1 - row["_distance"], row["text"]) for row in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {"keeper": "lancedb", "version": self._version, "index": "none", "dimension": self._dimension}

    def close(self) -> None:
        """Close the engine; a temporary folder is removed."""
        self._table = self._database = Gone()
        self._home.close()
