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

    spec: str
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


NUL, LONG, LONE_SURROGATE = "nul", "long", "lone surrogate"
CASES = {
    "memory": Case("memory"),
    "sqlite-vec": Case("sqlite-vec", "sqlite_vec", frozenset({LONE_SURROGATE}), rolls_back=True),
    "chroma": Case("chroma", "chromadb", frozenset({LONE_SURROGATE})),
    "lancedb": Case("lancedb", "lancedb", frozenset({LONE_SURROGATE})),
    "duckdb": Case("duckdb", "duckdb", frozenset({LONE_SURROGATE}), rolls_back=True),
    "duckdb-hnsw": Case("duckdb(index=hnsw)", "duckdb_extension_vss", frozenset({LONE_SURROGATE}), rolls_back=True),
    "qdrant": Case("qdrant", "qdrant_edge", frozenset({LONE_SURROGATE})),
    "pgvector": Case("pgvector", "psycopg", frozenset({LONE_SURROGATE, NUL}), rolls_back=True),
    "pgvector-hnsw": Case("pgvector(index=hnsw)", "psycopg", frozenset({LONE_SURROGATE, NUL}), rolls_back=True),
    "milvus-lite": Case("milvus-lite", "milvus_lite", frozenset({LONE_SURROGATE, LONG})),
    "memvid": Case("memvid", "memvid_sdk", frozenset({LONE_SURROGATE}), frozenset({LONG}), finds_replaced=False),
}
UNUSUAL_DOCUMENTS = {
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
    LONE_SURROGATE: Document(LONE_SURROGATE, "half \ud800 a pair"),
}
DIMENSION = 8
every_store = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def open_store(request, tmp_path):
    """Return a function that opens a case in a folder; all document stores are closed at the end."""
    opened_stores = []

    def open_case(name: str, folder: str = "kept"):
        case = CASES[name]
        if case.library:
            pytest.importorskip(case.library)
        spec = case.spec
        if spec.startswith("pgvector"):
            dsn = request.getfixturevalue("dsn")
            options = spec.removeprefix("pgvector").strip("()")
            spec = f'pgvector(dsn="{dsn}"' + (f", {options})" if options else ")")
        store = open_document_store(spec, tmp_path / folder, DIMENSION)
        opened_stores.append(store)
        return store

    yield open_case
    for store in opened_stores:
        store.close()


def make_vectors(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, DIMENSION)).astype(np.float32)


def make_documents(n: int) -> list[Document]:
    return [Document(f"d{i}", f"text number {i}", f"title {i}", {"n": i}) for i in range(n)]


def are_equal(first, second) -> bool:
    """Return whether two documents are equal; metadata are compared as JSON."""
    return first[:3] == second[:3] and json.dumps(dict(first.metadata), sort_keys=True) == json.dumps(
        dict(second.metadata), sort_keys=True
    )


@every_store
def test_document_store_unusual_documents_round_trip(open_store, name):
    case = CASES[name]
    documents = [document for kind, document in UNUSUAL_DOCUMENTS.items() if kind not in case.refuses | case.changes]
    store = open_store(name)
    for document, vector in zip(documents, make_vectors(len(documents)), strict=True):
        store.put([document], vector[None])
    store.commit()
    for moment in ("at once", "reopened"):
        stored = store.get([document.id for document in documents])
        for document, returned in zip(documents, stored, strict=True):
            assert returned is not None, (moment, document.id[:20])
            assert are_equal(document, returned), (moment, document.id[:20])
        assert sorted(store.ids()) == sorted(document.id for document in documents)
        store.close()
        store = open_store(name)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in CASES for kind in sorted(CASES[name].refuses)])
def test_document_store_unsupported_document_raises_engine_error(open_store, name, kind):
    store = open_store(name)
    store.put(make_documents(1), make_vectors(1))
    with pytest.raises(BackendFailed) as caught:
        store.put([UNUSUAL_DOCUMENTS[kind]], make_vectors(1))
    engine = CASES[name].spec.partition("(")[0]
    assert str(caught.value).startswith(f"{engine}: ")
    assert len(str(caught.value)) > len(engine) + 10
    store.commit()
    assert store.ids() == ["d0"]


@every_store
def test_document_store_single_and_batch_put_are_equal(open_store, name):
    documents, rows = make_documents(8), make_vectors(8)
    single, batch = open_store(name, "single"), open_store(name, "batch")
    for i in range(8):
        single.put(documents[i : i + 1], rows[i : i + 1])
    batch.put(documents[:5], rows[:5])
    batch.put(documents[5:], rows[5:])
    for store in (single, batch):
        store.commit()
        assert sorted(store.ids()) == sorted(document.id for document in documents)
        assert all(map(are_equal, documents, store.get([document.id for document in documents])))


@every_store
def test_document_store_put_replaces_existing_id(open_store, name):
    store = open_store(name)
    store.put(make_documents(3), make_vectors(3))
    store.commit()
    new = Document("d1", "another text", "another title", {"other": [1]})
    store.put([new], -make_vectors(3)[1:2])
    store.commit()
    assert sorted(store.ids()) == ["d0", "d1", "d2"]
    assert are_equal(store.get(["d1"])[0], new)
    assert are_equal(store.get(["d2"])[0], make_documents(3)[2])
    if CASES[name].finds_replaced:
        assert [hit.id for hit in store.search("another", -make_vectors(3)[1], 1)] == ["d1"]


@every_store
def test_document_store_get_keeps_order_and_returns_none_if_missing(open_store, name):
    store = open_store(name)
    assert store.get(["nobody"]) == [None]
    assert list(store.ids()) == []
    store.put(make_documents(4), make_vectors(4))
    store.commit()
    documents = store.get(["d3", "nobody", "d0", "d3"])
    assert [document and document.id for document in documents] == ["d3", None, "d0", "d3"]
    assert list(store.get([])) == []


@every_store
def test_document_store_empty_search_finds_nothing(open_store, name):
    store, query = open_store(name), make_vectors(1)[0]
    if name == "memvid":
        with pytest.raises(BackendFailed, match="memvid: MV011: Vector index is not enabled"):
            store.search("anything", query, 3)
    else:
        assert list(store.search("anything", query, 3)) == []


@every_store
def test_document_store_search_matches_exact_cosines(open_store, name):
    store, base, queries = open_store(name), make_vectors(20), make_vectors(10, seed=1)
    store.put(make_documents(20), base)
    store.commit()
    unit = base.astype(np.float64) / np.linalg.norm(base.astype(np.float64), axis=1, keepdims=True)
    for query in queries:
        cosines = unit @ (query.astype(np.float64) / np.linalg.norm(query.astype(np.float64)))
        hits = store.search("text", query, 5)
        assert [hit.id for hit in hits] == [f"d{i}" for i in np.argsort(-cosines)[:5]]
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1][:5], atol=1e-5)


@every_store
def test_document_store_k_above_size_returns_all(open_store, name):
    store = open_store(name)
    store.put(make_documents(3), make_vectors(3))
    store.commit()
    assert sorted(hit.id for hit in store.search("text", make_vectors(1)[0], 10)) == ["d0", "d1", "d2"]


@every_store
def test_document_store_close_keeps_committed_and_rolls_back_rest(open_store, name):
    store = open_store(name)
    store.put(make_documents(2), make_vectors(2))
    store.commit()
    store.put(make_documents(3)[2:], make_vectors(3)[2:])
    store.close()
    ids = sorted(open_store(name).ids())
    assert ids[:2] == ["d0", "d1"]
    if CASES[name].rolls_back:
        assert ids == ["d0", "d1"]


@every_store
def test_document_store_describe_returns_name_and_dimension(open_store, name):
    store = open_store(name)
    assert isinstance(store, DocumentStore)
    description = store.describe()
    assert description["keeper"] == CASES[name].spec.partition("(")[0]
    assert description["dimension"] == DIMENSION
    assert json.loads(json.dumps(description)) == description
    assert store.keeps == {"text", "title", "metadata"}
    assert store.searches == "vectors"


@every_store
def test_document_store_wrong_vector_shape_raises(open_store, name):
    store = open_store(name)
    with pytest.raises(BadInput, match="expected one vector of 8 dimensions per document"):
        store.put(make_documents(2), make_vectors(1))
    with pytest.raises(BadInput, match="expected one vector of 8 dimensions per document"):
        store.put(make_documents(1), np.ones((1, 3), np.float32))
    with pytest.raises(BadInput, match="must have 8 dimensions, got 3"):
        store.search("text", np.ones(3, np.float32), 1)


def test_contract_covers_every_builtin_document_store():
    tested = {case.spec.partition("(")[0] for case in CASES.values()}
    assert tested | {"vectors"} == set(plugins.BUILTIN_PLUGINS["document_stores"])


@pytest.mark.parametrize("vector_store", ["exact", "faiss", "usearch", "hnswlib"])
def test_vectors_document_store_keeps_ids_without_texts(tmp_path, vector_store):
    if vector_store != "exact":
        pytest.importorskip(vector_store)
    store = open_document_store(f"vectors(store={vector_store})", tmp_path, DIMENSION)
    assert isinstance(store, DocumentStore)
    assert store.keeps == frozenset()
    store.put(make_documents(4), make_vectors(4))
    store.put(make_documents(2)[1:], make_vectors(4)[3:])  # replaces the vector of d1
    store.commit()
    store.close()
    reopened = open_document_store(f"vectors(store={vector_store})", tmp_path, DIMENSION)
    assert sorted(reopened.ids()) == ["d0", "d1", "d2", "d3"]
    assert reopened.get(["d2", "nobody"]) == [Document("d2", ""), None]
    assert {hit.id for hit in reopened.search("", make_vectors(4)[3], 2)} == {"d1", "d3"}
    assert reopened.describe()["store"] == vector_store
    reopened.close()


def test_memvid_lexical_index_searches_words(tmp_path):
    pytest.importorskip("memvid_sdk")
    store = open_document_store("memvid(index=lex)", tmp_path, DIMENSION)
    store.put([Document("a", "snakes and ladders"), Document("b", "cats and dogs")], make_vectors(2))
    store.commit()
    assert store.searches == "words"
    assert [hit.id for hit in store.search("snakes", make_vectors(1)[0], 5)] == ["a"]
    store.close()


def test_memvid_default_changes_long_and_non_raw_texts(tmp_path):
    memvid = pytest.importorskip("memvid_sdk")
    if memvid.info()["sdk_version"] != "2.0.160":
        pytest.skip("checks the behaviour of memvid-sdk 2.0.160")
    long = "A  sentence of some words.\n\n" * 200
    for raw, expected in (("true", "short  text\n"), ("false", "")):
        store = open_document_store(f"memvid(raw={raw})", tmp_path / raw, DIMENSION)
        store.put([Document("short", "short  text\n"), Document("long", long)], make_vectors(2))
        store.commit()
        first, second = store.get(["short", "long"])
        assert first.text == expected
        assert second.text != long
        assert second.text.split() == long.split()
        store.close()


def test_memory_document_store_ignores_partial_journal_line(tmp_path):
    store = MemoryDocumentStore(path=str(tmp_path), dimension=DIMENSION)
    store.put(make_documents(2), make_vectors(2))
    store.commit()
    store.close()
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'["d9", "half a li')
    reopened = MemoryDocumentStore(path=str(tmp_path), dimension=DIMENSION)
    assert reopened.ids() == ["d0", "d1"]
    reopened.put(make_documents(3)[2:], make_vectors(3)[2:])
    reopened.commit()
    reopened.close()
    third = MemoryDocumentStore(path=str(tmp_path), dimension=DIMENSION)
    assert third.ids() == ["d0", "d1", "d2"]
    third.close()


WRITE_AND_KILL = """
import os, signal, sys
import numpy as np
from ragauge.core.documents import Document
from ragauge.stores.document_stores import open_document_store

store = open_document_store(sys.argv[1], sys.argv[2], 8)
store.put([Document("a", "committed")], np.ones((1, 8), np.float32))
store.commit()
store.put([Document("b", "not committed")], np.ones((1, 8), np.float32))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["memory", "sqlite-vec", "duckdb", "qdrant", "lancedb"])
def test_document_store_keeps_committed_data_after_kill_9(open_store, name, tmp_path):
    if CASES[name].library:
        pytest.importorskip(CASES[name].library)
    command = [sys.executable, "-c", WRITE_AND_KILL, CASES[name].spec, str(tmp_path / "kept")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    store = open_store(name)
    assert store.get(["a"]) == [Document("a", "committed")]
    assert set(store.ids()) <= {"a", "b"}


def test_open_document_store_accepts_class_or_module_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "our_store.py").write_text(
        "from ragauge.stores.document_stores import MemoryDocumentStore as Memory\n"
        "class StoreWithVolume(Memory):\n"
        "    def __init__(self, *, path=None, dimension, volume=1):\n"
        "        super().__init__(path=path, dimension=dimension)\n"
        "        self.volume = volume\n"
    )
    assert open_document_store("our_store:StoreWithVolume(volume=11)", None, DIMENSION).volume == 11
    assert isinstance(open_document_store(MemoryDocumentStore, None, DIMENSION), MemoryDocumentStore)


def test_open_document_store_unknown_name_or_option_raises_with_hint():
    with pytest.raises(UnknownName, match="did you mean `chroma`"):
        open_document_store("chrome", None, DIMENSION)
    with pytest.raises(BadInput, match="the document store duckdb has no option 'indx'") as caught:
        open_document_store("duckdb(indx=hnsw)", None, DIMENSION)
    assert "its options: index" in str(caught.value)
    with pytest.raises(BadInput, match="index must be one of hnsw, none, got `ivf`"):
        open_document_store("duckdb(index=ivf)", None, DIMENSION)


def test_vectors_document_store_passes_options_to_vector_store(tmp_path):
    store = open_document_store("vectors(store=null, stall_ms=2, every=3)", tmp_path, DIMENSION)
    assert store.describe().items() >= {"store": "null", "stall_ms": 2, "every": 3}.items()
    store.close()
    with pytest.raises(BadInput, match="the store null has no option 'kind'"):
        open_document_store("vectors(store=null, kind=flat)", None, DIMENSION)
