"""SQL statements of `PgVectorDB`: documents, vectors and words in one table.

Keywords are joined by OR, because a document rarely contains all words of a query. With PostgreSQL's
`websearch_to_tsquery`, which joins by AND, 274 of 300 SciFact queries have no result. The words are normalised by the
same dictionary as the documents, which removes stop words and suffixes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragauge.systems.stores.embedded import TEMPORARY
from ragauge.systems.stores.intake import one_of
from ragauge.systems.stores.vector_index import VectorIndex

if TYPE_CHECKING:
    from psycopg import sql

RANKS = ("ts_rank_cd", "ts_rank")
"""Rank functions, divided by 1 + the logarithm of the document length (normalisation 1) against a bias to long ones.

`ts_rank_cd` (cover density) adds up occurrences. `ts_rank` gives less for each repetition, and so more to documents
with different words of the query. For words joined by OR that is better and several times as fast: nDCG@10 of `ts_rank`
and `ts_rank_cd` is 0.60 and 0.40 on SciFact, 0.34 and 0.30 on Cranfield, 0.33 and 0.28 on CACM, 0.36 and 0.26 on
Vaswani.
"""
FUSIONS = ("minmax", "rrf")

# A lexeme is quoted by the rules of tsquery, which differ from those of SQL strings: ' and \ are doubled.
WORDS = r"""(SELECT string_agg('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery
  FROM unnest(to_tsvector({language}, %(query)s)))"""

SEMANTIC = """WITH near AS MATERIALIZED (
  SELECT id, embedding <=> %(vector)s::{type} AS distance, text, metadata FROM {table}
  WHERE embedding IS NOT NULL {filter} ORDER BY distance LIMIT %(k)s
) SELECT id, 1 - distance, text, metadata FROM near ORDER BY distance + 0, id COLLATE "C" """

KEYWORD = """SELECT id, {rank}({weights}, fts, words, 1)::float8 AS score, text, metadata
FROM {table}, (SELECT {words} AS words) AS asked
WHERE fts @@ words {filter} ORDER BY score DESC, id COLLATE "C" LIMIT %(k)s"""

HYBRID = """WITH asked AS MATERIALIZED (SELECT {words} AS words),
semantic AS MATERIALIZED (
  SELECT id, 1 - (embedding <=> %(vector)s::{type}) AS score FROM {table}
  WHERE embedding IS NOT NULL {filter} ORDER BY embedding <=> %(vector)s::{type} LIMIT %(near)s
), keyword AS MATERIALIZED (
  SELECT id, {rank}({weights}, fts, words, 1)::float8 AS score FROM {table}, asked
  WHERE fts @@ words {filter} ORDER BY score DESC, id COLLATE "C" LIMIT %(depth)s
), fused AS (
  SELECT id, %(semantic)s::float8 * coalesce(s.part, 0) + %(keyword)s::float8 * coalesce(k.part, 0) AS score
  FROM (SELECT id, {part} AS part FROM semantic) AS s FULL JOIN (SELECT id, {part} AS part FROM keyword) AS k USING (id)
  ORDER BY score DESC, id COLLATE "C" LIMIT %(k)s
) SELECT id, score, text, metadata FROM fused JOIN {table} USING (id) ORDER BY score DESC, id COLLATE "C" """

PARTS = {
    # If all scores are equal, or there is only one, a hit gets the full score.
    "minmax": """CASE WHEN max(score) OVER () > min(score) OVER ()
      THEN (score - min(score) OVER ()) / (max(score) OVER () - min(score) OVER ()) ELSE 1 END""",
    "rrf": """1.0::float8 / (60 + row_number() OVER (ORDER BY score DESC, id COLLATE "C"))""",
}


@dataclass(frozen=True)
class Statements:
    """SQL statements for one table."""

    table: str
    index: VectorIndex
    language: str
    rank: str

    def __post_init__(self) -> None:
        one_of("rank", self.rank, RANKS)

    def creation(self, dimension: int, *, keep: bool) -> list[sql.Composed]:
        """Return the statements that create the table.

        Titles have twice the weight of texts.
        """
        from psycopg import sql

        made = [
            self._filled(
                """CREATE TABLE {table} (id text PRIMARY KEY, title text NOT NULL, text text NOT NULL,
                metadata jsonb NOT NULL, embedding {type}({dimension}), fts tsvector GENERATED ALWAYS AS (
                setweight(to_tsvector({language}, title), 'A') || setweight(to_tsvector({language}, text), 'D')
                ) STORED)""",
                dimension=sql.Literal(dimension),
            )
        ]
        if not keep:
            made.append(self._filled("COMMENT ON TABLE {table} IS {comment}", comment=sql.Literal(TEMPORARY)))
        return made

    def indexes(self) -> list[sql.Composed]:
        """Return the statements that create the indexes.

        They run after loading, because that is faster and an IVFFlat index is trained on the rows.
        """
        vectors = self.index.creation(self.table)
        return [self._filled("CREATE INDEX ON {table} USING gin (fts)"), *([vectors] if vectors else [])]

    def plain(self, text: str) -> sql.Composed:
        """Return a statement whose only placeholder is the table."""
        return self._filled(text)

    def semantic(self, *, filtered: bool, explained: bool = False) -> sql.Composed:
        """Return the statement for the nearest vectors, sorted twice.

        Index scans return rows only approximately in order: those of a halfvec index, whose distances are less precise,
        and iterative IVFFlat scans. Without the `+ 0`, PostgreSQL 17 and newer would skip the second sort.
        """
        return self._filled(("EXPLAIN (FORMAT JSON) " if explained else "") + SEMANTIC, filtered)

    def keyword(self, *, filtered: bool) -> sql.Composed:
        """Return the statement for documents with any of the words, by rank."""
        return self._filled(KEYWORD, filtered)

    def hybrid(self, fusion: str, *, filtered: bool, explained: bool = False) -> sql.Composed:
        """Return the statement that adds the weighted scores of both searches.

        A document that is missing in one of them gets 0 for it.
        """
        from psycopg import sql

        text = ("EXPLAIN (FORMAT JSON) " if explained else "") + HYBRID
        return self._filled(text, filtered, part=sql.SQL(PARTS[one_of("fusion", fusion, FUSIONS)]))

    def _filled(self, text: str, filtered: bool = False, **more: Any) -> sql.Composed:
        from psycopg import sql

        language = sql.SQL("{}::regconfig").format(sql.Literal(self.language))
        return sql.SQL(text).format(
            table=sql.Identifier(self.table),
            type=sql.Identifier(self.index.type),
            rank=sql.Identifier(self.rank),
            weights=sql.SQL("'{{0.5, 0.5, 0.5, 1}}'::float4[]").format(),
            language=language,
            words=sql.SQL(WORDS).format(language=language),
            filter=sql.SQL("AND metadata @> %(where)s" if filtered else ""),
            **more,
        )
