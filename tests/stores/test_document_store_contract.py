"""Contract of document stores: unchanged documents under their own ids, and hits in the order of exact cosines.

`-k qdrant` runs the tests of one document store. To add a document store, add a row to CASES.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from ragauge.core import plugins
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed, BadInput, UnknownName
from ragauge.core.protocols import DocumentStore
from ragauge.stores.document_stores import MemoryDocumentStore, open_document_store


@dataclass(frozen=True)
class Case:
    """Document store with its options, and the limits of its engine."""

    described: str
    library: str | None = None
    """Module that must be installed; the tests of the store are skipped without it."""
    refuses: frozenset[str] = frozenset()
    """Unusual documents that the engine rejects with an error."""
    changes: frozenset[str] = frozenset()
    """Unusual documents that the engine changes, or takes minutes to store."""
    rolls_back: bool = False
    """Whether closing the store rolls back uncommitted documents."""
    finds_replaced: bool = True
    """Whether vector search still works after a document was replaced; memvid 2.0.160 then finds nothing."""


NUL, LONG, LONE = "nul", "long", "lone surrogate"
CASES = {
    "memory": Case("memory"),
    "sqlite-vec": Case("sqlite-vec", "sqlite_vec", frozenset({LONE}), rolls_back=True),
    "chroma": Case("chroma", "chromadb", frozenset({LONE})),
    "lancedb": Case("lancedb", "lancedb", frozenset({LONE})),
    "duckdb": Case("duckdb", "duckdb", frozenset({LONE}), rolls_back=True),
    "duckdb-hnsw": Case("duckdb(index=hnsw)", "duckdb_extension_vss", frozenset({LONE}), rolls_back=True),
    "qdrant": Case("qdrant", "qdrant_edge", frozenset({LONE})),
    "pgvector": Case("pgvector", "psycopg", frozenset({LONE, NUL}), rolls_back=True),
    "pgvector-hnsw": Case("pgvector(index=hnsw)", "psycopg", frozenset({LONE, NUL}), rolls_back=True),
    "milvus-lite": Case("milvus-lite", "milvus_lite", frozenset({LONE, LONG})),
    "memvid": Case("memvid", "memvid_sdk", frozenset({LONE}), frozenset({LONG}), finds_replaced=False),
}
NASTY = {
    "plain": Document("plain", "A text.", "A title", {"type": "malware", "n": 3}),
    "empty": Document("empty", ""),
    "emoji": Document("emoji", "\U0001f40d caf\u00e9 cafe\u0301 \ufb01 \u202e\u2028 \ufeff", "\U0001f40d"),
    "blanks": Document("blanks", "  two  blanks\r\n\ttab\n\n", " title "),
    "quotes": Document('it\'s "quoted"; DROP TABLE documents; -- 100% {x} \\', "'; -- \" \\ %s $1 ?", "'"),
    "unicode id": Document("\u00fcber/\u65e5\u672c\u8a9e #1?a=b", "slashes and signs in the id"),
    "long id": Document("id" * 1000, "an id of 2,000 letters"),
    "metadata": Document(
        "metadata",
        "x",
        "",
        {
            "b": 1,
            "a": {"list": [1.5, None, True, "\u00e9", 10**15], "none": None, "nested": [{"k": []}]},
            "f": 1e20,
            "nul": "\x00",
        },
    ),
    "markup": Document("markup", '<b>[red]{"json": [1]}</b>\n# head\n```', "<title>"),
    NUL: Document(NUL, "before \x00 after", "t\x00"),
    LONG: Document(LONG, "A sentence of some words. " * 40_000),
    LONE: Document(LONE, "half \ud800 a pair"),
}
DIMENSION = 8
every_keeper = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def keep(request, tmp_path):
    """Return a function that opens a case in a folder; all document stores are closed at the end."""
    opened = []

    def build(name: str, folder: str = "kept"):
        case = CASES[name]
        if case.library:
            pytest.importorskip(case.library)
        described = case.described
        if described.startswith("pgvector"):
            dsn = request.getfixturevalue("dsn")
            inside = described.removeprefix("pgvector").strip("()")
            described = f'pgvector(dsn="{dsn}"' + (f", {inside})" if inside else ")")
        keeper = open_document_store(described, tmp_path / folder, DIMENSION)
        opened.append(keeper)
        return keeper

    yield build
    for keeper in opened:
        keeper.close()


def vectors(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, DIMENSION)).astype(np.float32)


def numbered(n: int) -> list[Document]:
    return [Document(f"d{i}", f"text number {i}", f"title {i}", {"n": i}) for i in range(n)]


def same(left, right) -> bool:
    """Return whether two documents are equal; metadata are compared as JSON."""
    return left[:3] == right[:3] and json.dumps(dict(left.metadata), sort_keys=True) == json.dumps(
        dict(right.metadata), sort_keys=True
    )


@every_keeper
def test_document_store_unusual_documents_round_trip(keep, name):
    case = CASES[name]
    good = [one for kind, one in NASTY.items() if kind not in case.refuses | case.changes]
    keeper = keep(name)
    for one, vector in zip(good, vectors(len(good)), strict=True):
        keeper.put([one], vector[None])
    keeper.commit()
    for moment in ("at once", "reopened"):
        found = keeper.get([one.id for one in good])
        for one, back in zip(good, found, strict=True):
            assert back is not None, (moment, one.id[:20])
            assert same(one, back), (moment, one.id[:20])
        assert sorted(keeper.ids()) == sorted(one.id for one in good)
        keeper.close()
        keeper = keep(name)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in CASES for kind in sorted(CASES[name].refuses)])
def test_document_store_unsupported_document_raises_engine_error(keep, name, kind):
    keeper = keep(name)
    keeper.put(numbered(1), vectors(1))
    with pytest.raises(BackendFailed) as failed:
        keeper.put([NASTY[kind]], vectors(1))
    engine = CASES[name].described.partition("(")[0]
    assert str(failed.value).startswith(f"{engine}: ")
    assert len(str(failed.value)) > len(engine) + 10
    keeper.commit()
    assert keeper.ids() == ["d0"]


@every_keeper
def test_document_store_single_and_batch_put_are_equal(keep, name):
    documents, rows = numbered(8), vectors(8)
    single, batch = keep(name, "single"), keep(name, "batch")
    for place in range(8):
        single.put(documents[place : place + 1], rows[place : place + 1])
    batch.put(documents[:5], rows[:5])
    batch.put(documents[5:], rows[5:])
    for keeper in (single, batch):
        keeper.commit()
        assert sorted(keeper.ids()) == sorted(one.id for one in documents)
        assert all(map(same, documents, keeper.get([one.id for one in documents])))


@every_keeper
def test_document_store_put_replaces_existing_id(keep, name):
    keeper = keep(name)
    keeper.put(numbered(3), vectors(3))
    keeper.commit()
    new = Document("d1", "another text", "another title", {"other": [1]})
    keeper.put([new], -vectors(3)[1:2])
    keeper.commit()
    assert sorted(keeper.ids()) == ["d0", "d1", "d2"]
    assert same(keeper.get(["d1"])[0], new)
    assert same(keeper.get(["d2"])[0], numbered(3)[2])
    if CASES[name].finds_replaced:
        assert [hit.id for hit in keeper.search("another", -vectors(3)[1], 1)] == ["d1"]


@every_keeper
def test_document_store_get_keeps_order_and_returns_none_if_missing(keep, name):
    keeper = keep(name)
    assert keeper.get(["nobody"]) == [None]
    assert list(keeper.ids()) == []
    keeper.put(numbered(4), vectors(4))
    keeper.commit()
    found = keeper.get(["d3", "nobody", "d0", "d3"])
    assert [one and one.id for one in found] == ["d3", None, "d0", "d3"]
    assert list(keeper.get([])) == []


@every_keeper
def test_document_store_empty_search_finds_nothing(keep, name):
    keeper, asked = keep(name), vectors(1)[0]
    if name == "memvid":
        with pytest.raises(BackendFailed, match="memvid: MV011: Vector index is not enabled"):
            keeper.search("anything", asked, 3)
    else:
        assert list(keeper.search("anything", asked, 3)) == []


@every_keeper
def test_document_store_search_matches_exact_cosines(keep, name):
    keeper, base, asked = keep(name), vectors(20), vectors(10, seed=1)
    keeper.put(numbered(20), base)
    keeper.commit()
    unit = base.astype(np.float64) / np.linalg.norm(base.astype(np.float64), axis=1, keepdims=True)
    for query in asked:
        true = unit @ (query.astype(np.float64) / np.linalg.norm(query.astype(np.float64)))
        hits = keeper.search("text", query, 5)
        assert [hit.id for hit in hits] == [f"d{place}" for place in np.argsort(-true)[:5]]
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(true)[::-1][:5], atol=1e-5)


@every_keeper
def test_document_store_k_above_size_returns_all(keep, name):
    keeper = keep(name)
    keeper.put(numbered(3), vectors(3))
    keeper.commit()
    assert sorted(hit.id for hit in keeper.search("text", vectors(1)[0], 10)) == ["d0", "d1", "d2"]


@every_keeper
def test_document_store_close_keeps_committed_and_rolls_back_rest(keep, name):
    keeper = keep(name)
    keeper.put(numbered(2), vectors(2))
    keeper.commit()
    keeper.put(numbered(3)[2:], vectors(3)[2:])
    keeper.close()
    there = sorted(keep(name).ids())
    assert there[:2] == ["d0", "d1"]
    if CASES[name].rolls_back:
        assert there == ["d0", "d1"]


@every_keeper
def test_document_store_describe_returns_name_and_dimension(keep, name):
    keeper = keep(name)
    assert isinstance(keeper, DocumentStore)
    about = keeper.describe()
    assert about["keeper"] == CASES[name].described.partition("(")[0]
    assert about["dimension"] == DIMENSION
    assert json.loads(json.dumps(about)) == about
    assert keeper.keeps == {"text", "title", "metadata"}
    assert keeper.searches == "vectors"


@every_keeper
def test_document_store_wrong_vector_shape_raises(keep, name):
    keeper = keep(name)
    with pytest.raises(BadInput, match="expected one vector of 8 dimensions per document"):
        keeper.put(numbered(2), vectors(1))
    with pytest.raises(BadInput, match="expected one vector of 8 dimensions per document"):
        keeper.put(numbered(1), np.ones((1, 3), np.float32))
    with pytest.raises(BadInput, match="must have 8 dimensions, got 3"):
        keeper.search("text", np.ones(3, np.float32), 1)


def test_contract_covers_every_builtin_document_store():
    tested = {case.described.partition("(")[0] for case in CASES.values()}
    assert tested | {"vectors"} == set(plugins.BUILTIN_PLUGINS["document_stores"])


@pytest.mark.parametrize("store", ["exact", "faiss", "usearch", "hnswlib", "voyager"])
def test_vectors_document_store_keeps_ids_without_texts(tmp_path, store):
    if store != "exact":
        pytest.importorskip(store)
    keeper = open_document_store(f"vectors(store={store})", tmp_path, DIMENSION)
    assert isinstance(keeper, DocumentStore)
    assert keeper.keeps == frozenset()
    keeper.put(numbered(4), vectors(4))
    keeper.put(numbered(2)[1:], vectors(4)[3:])  # replaces the vector of d1
    keeper.commit()
    keeper.close()
    again = open_document_store(f"vectors(store={store})", tmp_path, DIMENSION)
    assert sorted(again.ids()) == ["d0", "d1", "d2", "d3"]
    assert again.get(["d2", "nobody"]) == [Document("d2", ""), None]
    assert {hit.id for hit in again.search("", vectors(4)[3], 2)} == {"d1", "d3"}
    assert again.describe()["store"] == store
    again.close()


def test_memvid_lexical_index_searches_words(tmp_path):
    pytest.importorskip("memvid_sdk")
    keeper = open_document_store("memvid(index=lex)", tmp_path, DIMENSION)
    keeper.put([Document("a", "snakes and ladders"), Document("b", "cats and dogs")], vectors(2))
    keeper.commit()
    assert keeper.searches == "words"
    assert [hit.id for hit in keeper.search("snakes", vectors(1)[0], 5)] == ["a"]
    keeper.close()


def test_memvid_default_changes_long_and_non_raw_texts(tmp_path):
    memvid = pytest.importorskip("memvid_sdk")
    if memvid.info()["sdk_version"] != "2.0.160":
        pytest.skip("what was found in memvid-sdk 2.0.160")
    long = "A  sentence of some words.\n\n" * 200
    for raw, short in (("true", "short  text\n"), ("false", "")):
        keeper = open_document_store(f"memvid(raw={raw})", tmp_path / raw, DIMENSION)
        keeper.put([Document("short", "short  text\n"), Document("long", long)], vectors(2))
        keeper.commit()
        first, second = keeper.get(["short", "long"])
        assert first.text == short
        assert second.text != long
        assert second.text.split() == long.split()
        keeper.close()


def test_memory_document_store_ignores_partial_journal_line(tmp_path):
    keeper = MemoryDocumentStore(path=str(tmp_path), dimension=DIMENSION)
    keeper.put(numbered(2), vectors(2))
    keeper.commit()
    keeper.close()
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'["d9", "half a li')
    again = MemoryDocumentStore(path=str(tmp_path), dimension=DIMENSION)
    assert again.ids() == ["d0", "d1"]
    again.put(numbered(3)[2:], vectors(3)[2:])
    again.commit()
    again.close()
    third = MemoryDocumentStore(path=str(tmp_path), dimension=DIMENSION)
    assert third.ids() == ["d0", "d1", "d2"]
    third.close()


KILLED = """
import os, signal, sys
import numpy as np
from ragauge.core.documents import Document
from ragauge.stores.document_stores import open_document_store

keeper = open_document_store(sys.argv[1], sys.argv[2], 8)
keeper.put([Document("a", "committed")], np.ones((1, 8), np.float32))
keeper.commit()
keeper.put([Document("b", "not committed")], np.ones((1, 8), np.float32))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["memory", "sqlite-vec", "duckdb", "qdrant", "lancedb"])
def test_document_store_keeps_committed_data_after_kill_9(keep, name, tmp_path):
    if CASES[name].library:
        pytest.importorskip(CASES[name].library)
    order = [sys.executable, "-c", KILLED, CASES[name].described, str(tmp_path / "kept")]
    assert subprocess.run(order, capture_output=True, check=False).returncode == -9
    keeper = keep(name)
    assert keeper.get(["a"]) == [Document("a", "committed")]
    assert set(keeper.ids()) <= {"a", "b"}


def test_open_document_store_accepts_class_or_module_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "our_keeper.py").write_text(
        "from ragauge.stores.document_stores import MemoryDocumentStore as Memory\n"
        "class Loud(Memory):\n"
        "    def __init__(self, *, path=None, dimension, volume=1):\n"
        "        super().__init__(path=path, dimension=dimension)\n"
        "        self.volume = volume\n"
    )
    assert open_document_store("our_keeper:Loud(volume=11)", None, DIMENSION).volume == 11
    assert isinstance(open_document_store(MemoryDocumentStore, None, DIMENSION), MemoryDocumentStore)


def test_open_document_store_unknown_name_or_option_raises_with_hint():
    with pytest.raises(UnknownName, match="did you mean `chroma`"):
        open_document_store("chrome", None, DIMENSION)
    with pytest.raises(BadInput, match="the document store duckdb has no option 'indx'") as wrong:
        open_document_store("duckdb(indx=hnsw)", None, DIMENSION)
    assert "its options: index" in str(wrong.value)
    with pytest.raises(BadInput, match="index must be one of hnsw, none, got `ivf`"):
        open_document_store("duckdb(index=ivf)", None, DIMENSION)


def test_vectors_document_store_passes_options_to_vector_store(tmp_path):
    keeper = open_document_store("vectors(store=null, stall_ms=2, every=3)", tmp_path, DIMENSION)
    assert keeper.describe().items() >= {"store": "null", "stall_ms": 2, "every": 3}.items()
    keeper.close()
    with pytest.raises(BadInput, match="the store null has no option 'kind'"):
        open_document_store("vectors(store=null, kind=flat)", None, DIMENSION)
