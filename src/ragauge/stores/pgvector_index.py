"""Index of pgvector: operators, options, and whether a query used it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from ragauge.core.errors import BadInput
from ragauge.core.settings import AtLeast, AtMost, OneOf, check_settings
from ragauge.stores.bookkeeping import METRICS

if TYPE_CHECKING:
    from psycopg import sql


DISTANCE_OPERATORS = {"cosine": "<=>", "l2": "<->", "ip": "<#>"}
MAX_EF_SEARCH = 1000
"""Largest `hnsw.ef_search`."""
EXACT_SCAN_SETTINGS = (("enable_indexscan", "off"), ("enable_seqscan", "on"))
"""Settings for an exact search: vector indexes are used only in index scans, so without those every row is compared."""

NEAREST_SQL = "SELECT id, embedding {operator} %s AS distance FROM {table}{filter} ORDER BY distance LIMIT {k}"
"""Search statement, as pgvector's documentation writes it."""
BINARY_QUANTIZED_SQL = """SELECT id, embedding {operator} %s AS distance FROM (
  SELECT id, embedding FROM {table}{filter}
  ORDER BY binary_quantize(embedding)::bit({dimension}) <~> binary_quantize(%s) LIMIT {candidates}
) AS candidates ORDER BY distance LIMIT {k}"""


@dataclass(frozen=True)
class VectorIndex:
    """pgvector index: `none`, `hnsw` or `ivfflat`, with pgvector's names and limits.

    Defaults of `lists` and `probes` follow pgvector's documentation: one list per thousand rows (the square root
    above a million rows), and the square root of the lists as probes.

    The planner reads the whole table if it estimates that to be cheaper, already with `ef_search=200` over 5,000
    rows. The result is then exact regardless of the index. `force=True` prevents it, so that the index is measured.
    """

    kind: Annotated[str, OneOf(("none", "hnsw", "ivfflat"))] = "hnsw"
    metric: Annotated[str, OneOf(METRICS)] = "cosine"
    half: bool = False
    m: Annotated[int, AtLeast(2), AtMost(100)] = 16
    ef_construction: Annotated[int, AtLeast(4), AtMost(1000)] = 64
    ef_search: Annotated[int, AtLeast(1), AtMost(MAX_EF_SEARCH)] = 40
    lists: Annotated[int, AtLeast(1), AtMost(32_768)] | None = None
    probes: Annotated[int, AtLeast(1), AtMost(32_768)] | None = None
    force: bool = False
    binary: bool = False
    """Whether to index only the signs of the values.

    Candidates are then found by Hamming distance and compared in full precision.
    """

    def __post_init__(self) -> None:
        check_settings(self)
        if self.kind == "hnsw" and self.ef_construction < 2 * self.m:
            raise BadInput(f"ef_construction must be at least 2 * m = {2 * self.m}, got {self.ef_construction}")

    @property
    def type(self) -> str:
        """PostgreSQL type of the column."""
        return "halfvec" if self.half else "vector"

    @property
    def operator(self) -> str:
        """SQL operator of the distance."""
        return DISTANCE_OPERATORS[self.metric]

    def check(self, dimension: int) -> None:
        """Raise BadInput for vectors with too many dimensions for the index."""
        max_dimensions = 16_000 if self.kind == "none" or self.binary else 4_000 if self.half else 2_000
        if dimension > max_dimensions:
            hint = (
                "use half=True for up to 4000 dimensions"
                if dimension <= 4_000
                else "use index=none for up to 16000 dimensions"
            )
            raise BadInput(
                f"{self.kind} of {self.type} supports up to {max_dimensions} dimensions, got {dimension}", hint=hint
            )

    def for_rows(self, rows: int) -> VectorIndex:
        """Return the index with lists and probes chosen for a number of rows."""
        lists = self.lists or max(1, rows // 1000 if rows <= 1_000_000 else round(rows**0.5))
        return replace(self, lists=lists, probes=self.probes or max(1, round(lists**0.5)))

    def creation(self, table: str, dimension: int = 0) -> sql.Composed | None:
        """Return the statement that creates the index on the column `embedding`.

        None without index. Only a binary index needs the dimension.
        """
        from psycopg import sql

        numbers: dict[str, int | None] = {"m": self.m, "ef_construction": self.ef_construction}
        if self.kind == "none":
            return None
        if self.kind == "ivfflat":
            numbers = {"lists": self.lists}
        options = [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(n)) for name, n in numbers.items()]
        signs = sql.SQL("(binary_quantize(embedding)::bit({}))").format(sql.Literal(dimension))
        return sql.SQL("CREATE INDEX ON {} USING {} ({} {}) WITH ({})").format(
            sql.Identifier(table),
            sql.Identifier(self.kind),
            signs if self.binary else sql.SQL("embedding"),
            sql.Identifier("bit_hamming_ops" if self.binary else f"{self.type}_{self.metric}_ops"),
            sql.SQL(", ").join(options),
        )

    def search(self, table: str, dimension: int, k: int, candidates: int, *, filtered: str) -> sql.Composed:
        """Compose the statement of a search.

        `filtered` is a condition with placeholders, or empty. `candidates` are those of a binary index.
        """
        from psycopg import sql

        return sql.SQL(BINARY_QUANTIZED_SQL if self.binary else NEAREST_SQL).format(
            operator=sql.SQL(self.operator),
            table=sql.Identifier(table),
            filter=sql.SQL(f" WHERE {filtered}" if filtered else ""),
            dimension=sql.Literal(dimension),
            k=sql.Literal(k),
            candidates=sql.Literal(candidates),
        )

    def settings(self) -> list[tuple[str, str]]:
        session_settings = [("enable_seqscan", "off")] if self.force else []
        if self.kind == "hnsw":
            session_settings.append(("hnsw.ef_search", str(self.ef_search)))
        elif self.kind == "ivfflat":
            session_settings.append(("ivfflat.probes", str(self.probes or 1)))
        return session_settings

    def search_settings(self, k: int, *, filtered: bool) -> list[tuple[str, str]]:
        """Return additional settings of one search.

        An index scan returns at most `ef_search` rows, from which a filter removes some. Iterative scans keep the
        order for HNSW; for IVFFlat the order is relaxed, and the statement sorts again.
        """
        session_settings: list[tuple[str, str]] = []
        if self.kind == "hnsw":
            if k > self.ef_search:
                session_settings.append(("hnsw.ef_search", str(min(k, MAX_EF_SEARCH))))
            if filtered or k > MAX_EF_SEARCH:
                session_settings.append(("hnsw.iterative_scan", "strict_order"))
        elif self.kind == "ivfflat" and filtered:
            session_settings.append(("ivfflat.iterative_scan", "relaxed_order"))
        return session_settings

    def describe(self) -> dict[str, Any]:
        """Return the effective parameters for manifests."""
        kind = "binary" if self.binary else self.kind
        description: dict[str, Any] = {"index": kind, "metric": self.metric, "type": self.type}
        if self.kind == "hnsw":
            description |= {"m": self.m, "ef_construction": self.ef_construction, "ef_search": self.ef_search}
        if self.kind == "ivfflat":
            description |= {"lists": self.lists, "probes": self.probes}
        if self.kind != "none":
            description["force"] = self.force
            description["build_seeded"] = False  # pgvector draws HNSW levels and IVFFlat centres without a seed
        return description


def uses_vector_index(plan: Any) -> bool:
    """Return whether a plan of EXPLAIN (FORMAT JSON) uses a vector index.

    Only vector indexes are scanned in order of a distance.
    """
    return any(node.get("Node Type") == "Index Scan" and "Order By" in node for node in _plan_nodes(plan))


def _plan_nodes(plan: Any) -> Iterator[dict[str, Any]]:
    if isinstance(plan, dict):
        yield plan
        for value in plan.values():
            yield from _plan_nodes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _plan_nodes(value)
