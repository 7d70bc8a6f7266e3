"""Every store keeps the same contract, and the same truth: distances in double precision, computed here."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ragauge.errors import BackendFailed, BadInput, MissingExtra, UnknownName
from ragauge.seams import Store
from ragauge.stages import Stopwatch
from ragauge.systems.stores.exact import Exact

METRICS = ["cosine", "l2", "ip"]
EXACT = ["exact", "faiss-flat", "usearch-exact", "pgvector-none"]
APPROXIMATE = [
    "faiss-hnsw",
    "faiss-ivf",
    "usearch",
    "usearch-f16",
    "pgvector-hnsw",
    "pgvector-half",
    "pgvector-ivfflat",
]
STORES = EXACT + APPROXIMATE


@pytest.fixture
def make(request):
    """A function from the name of a store to a new one; all are closed at the end."""
    made = []

    def build(name: str, **options):
        library, _, kind = name.partition("-")
        if library == "exact":
            store = Exact(**options)
        elif library == "faiss":
            pytest.importorskip("faiss")
            from ragauge.systems.stores.faiss_store import Faiss

            generous = {"m": 32, "ef_construction": 200, "ef_search": 200, "nlist": 20, "nprobe": 20}
            if options.pop("small", False):
                generous |= {"nlist": None}
            store = Faiss(kind=kind, **{**generous, **options})
        elif library == "usearch":
            pytest.importorskip("usearch")
            from ragauge.systems.stores.usearch_store import Usearch

            options.pop("small", None)
            dtype = "f16" if kind == "f16" else "f32"
            store = Usearch(exact=kind == "exact", dtype=dtype, m=32, ef_construction=256, ef_search=256, **options)
        else:
            options.pop("small", None)
            from ragauge.systems.stores.pgvector import PgVector

            index = {"half": "hnsw"}.get(kind, kind)
            generous = {"m": 24, "ef_construction": 128, "ef_search": 150, "lists": 10, "probes": 10}
            store = PgVector(
                dsn=request.getfixturevalue("dsn"),
                index=index,
                half=kind == "half",
                force=index != "none",
                **{**generous, **options},
            )
            made.append(store)
        return store

    yield build
    for store in made:
        store.close()


def vectors(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def truth(base: np.ndarray, queries: np.ndarray, metric: str) -> np.ndarray:
    """All distances, in double precision and without any trick."""
    a, b = queries.astype(np.float64)[:, None, :], base.astype(np.float64)[None, :, :]
    if metric == "l2":
        return np.sqrt(((a - b) ** 2).sum(axis=2))
    products = (a * b).sum(axis=2)
    if metric == "ip":
        return -products
    return 1 - products / np.sqrt((a**2).sum(axis=2) * (b**2).sum(axis=2))


def ids_of(n: int) -> list[str]:
    return [f"d{i}" for i in range(n)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", EXACT)
def test_exact_stores_give_the_truth(make, name, metric):
    base, queries = vectors(500, 16, 1), vectors(20, 16, 2)
    store = make(name, metric=metric)
    store.add(ids_of(500), base)
    ids, distances = store.search(queries, 10)
    assert isinstance(store, Store)
    assert ids.shape == distances.shape == (20, 10)
    assert distances.dtype == np.float32
    all_distances = truth(base, queries, metric)
    order = np.argsort(all_distances, axis=1, kind="stable")[:, :10]
    assert ids.tolist() == [[f"d{i}" for i in row] for row in order]
    np.testing.assert_allclose(distances, np.take_along_axis(all_distances, order, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_stores_come_near_the_truth(make, name, metric):
    base, queries = vectors(2000, 32, 3), vectors(50, 32, 4)
    store = make(name, metric=metric)
    store.add(ids_of(2000), base)
    ids, distances = store.search(queries, 10)
    all_distances = truth(base, queries, metric)
    best = np.argsort(all_distances, axis=1, kind="stable")[:, :10]
    found = np.mean([len(set(row) & {f"d{i}" for i in good}) / 10 for row, good in zip(ids, best, strict=True)])
    assert found >= 0.9
    assert (np.diff(distances, axis=1) >= 0).all()
    claimed = [[all_distances[row, int(name[1:])] for name in line] for row, line in enumerate(ids)]
    loose = name in ("usearch-f16", "pgvector-half")
    np.testing.assert_allclose(distances, claimed, rtol=1e-2 if loose else 1e-4, atol=2e-2 if loose else 1e-5)


@pytest.mark.parametrize("name", STORES)
def test_what_is_not_there_is_none_and_infinitely_far(make, name):
    store = make(name, metric="l2", nlist=3, nprobe=3) if name == "faiss-ivf" else make(name, metric="l2")
    ids, distances = store.search(np.zeros((0, 4), np.float32), 3)
    assert ids.shape == distances.shape == (0, 3)
    assert store.search(np.ones((2, 4), np.float32), 3)[0].tolist() == [[None] * 3] * 2
    store.add([], np.zeros((0, 4), np.float32))
    store.add(ids_of(5), vectors(5, 4, 5))
    for many in (1, 3):
        ids, distances = store.search(vectors(many, 4, 6), 9)
        assert ids.shape == (many, 9)
        for row, line in zip(ids.tolist(), distances.tolist(), strict=True):
            assert sorted(row[:5]) == ids_of(5)
            assert row[5:] == [None] * 4
            assert line[5:] == [np.inf] * 4
            assert all(np.isfinite(line[:5]))


@pytest.mark.parametrize("name", STORES)
def test_adding_in_parts_is_adding_at_once_and_goes_on_after_a_search(make, name):
    base = vectors(300, 8, 7)
    options = {"nlist": 4, "nprobe": 4} if name == "faiss-ivf" else {}
    store = make(name, metric="cosine", **options)
    for start in (0, 100):
        store.add(ids_of(300)[start : start + 100], base[start : start + 100])
    assert store.search(base[:50], 1)[0][:, 0].tolist() == ids_of(50)
    store.add(ids_of(300)[200:], base[200:])
    assert len(store) == 300
    ids, _ = store.search(base[200:250], 1)
    assert np.mean(ids[:, 0] == np.array(ids_of(250)[200:], dtype=object)) >= 0.9


@pytest.mark.parametrize("name", STORES)
def test_what_cannot_be_right_is_refused_and_leaves_no_trace(make, name):
    store = make(name, metric="cosine", small=True) if name != "exact" else make(name)
    good = vectors(3, 4, 8)
    store.add(["a", "b", "c"], good)
    with_nan, with_zero = good.copy(), good.copy()
    with_nan[1, 2], with_zero[2] = np.nan, 0
    for ids, wrong, word in (
        (["d", "a", "e"], good, "'a' is added twice"),
        (["d", "d", "e"], good, "'d' is added twice"),
        (["d", "e", "f"], vectors(3, 5, 9), "5 dimensions"),
        (["d", "e"], good, "2 ids for 3 vectors"),
        (["d", 7, "f"], good, "not a text"),
        (["d", "e", "f"], with_nan, "'e' has a NaN"),
        (["d", "e", "f"], with_zero, "'f' is all zeros"),
        (["d"], good[0], "shape"),
        (["d"], [["x", "y", "z", "w"]], "numbers"),
    ):
        with pytest.raises(BadInput, match=word):
            store.add(ids, wrong)
    for query, k, word in (
        (good[:, :2], 3, "2 dimensions"),
        (with_nan, 3, "query vector 1 has a NaN"),
        (with_zero, 3, "query vector 2 is all zeros"),
        (good, 0, "k is 0"),
        (good, 2.5, "whole number"),
    ):
        with pytest.raises(BadInput, match=word):
            store.search(query, k)
    assert len(store) == 3
    assert sorted(store.search(good[:1], 3)[0][0]) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["exact", "faiss-flat", "usearch", "pgvector-hnsw"])
def test_ids_are_any_text(make, name):
    odd = ["a'b\"; DROP TABLE x; --", "", "%s %(k)s", "naïve 文档 🙂", "tab\tline\n\\backslash", "{braces}", "NULL"]
    store = make(name, metric="l2")
    base = vectors(len(odd), 4, 10)
    store.add(odd, base)
    assert store.search(base, 1)[0][:, 0].tolist() == odd


@pytest.mark.parametrize("name", STORES)
def test_a_store_says_what_it_is_and_its_time_is_a_stage(make, name):
    store = make(name, metric="ip", small=True) if name != "exact" else make(name, metric="ip")
    store.add(ids_of(60), vectors(60, 4, 11))
    with Stopwatch() as watch:
        store.search(vectors(1, 4, 12), 5)
    assert list(watch.nanoseconds) == ["retrieve"]
    about = store.describe()
    assert about["metric"] == "ip"
    assert about["size"] == 60
    assert about["dimension"] == 4
    assert about["store"] == name.partition("-")[0]


@pytest.mark.parametrize("name", STORES)
def test_an_array_may_be_used_again_by_its_owner(make, name):
    base = vectors(50, 4, 13)
    store = make(name, metric="l2", small=True) if name != "exact" else make(name, metric="l2")
    given = base.copy()
    store.add(ids_of(50), given)
    given[:] = 0
    assert store.search(base[:5], 1)[0][:, 0].tolist() == ids_of(5)


def test_exact_ties_stand_in_order_of_arrival_over_all_blocks(monkeypatch):
    from ragauge.systems.stores import exact

    monkeypatch.setattr(exact, "VECTORS_AT_ONCE", 7)
    monkeypatch.setattr(exact, "QUERIES_AT_ONCE", 3)
    row = vectors(1, 33, 14)
    base = np.concatenate([np.repeat(row, 20, axis=0), vectors(15, 33, 15), np.repeat(row, 20, axis=0)])
    for metric in METRICS:
        store = Exact(metric=metric)
        store.add(ids_of(len(base)), base)
        same = [i for i in range(len(base)) if (base[i] == row[0]).all()]
        ids, distances = store.search(np.repeat(row, 8, axis=0), 30)
        for line in ids.tolist():
            assert line == [f"d{i}" for i in same[:30]]
        if metric != "ip":
            assert distances.max() <= 1e-7
        assert store.search(row * 2, 50)[0].tolist()[0][:40] == [f"d{i}" for i in same]


def test_exact_is_the_same_whatever_the_blocks(monkeypatch):
    from ragauge.systems.stores import exact

    base, queries = vectors(400, 24, 16), vectors(30, 24, 17)
    for metric in METRICS:
        store = Exact(metric=metric)
        store.add(ids_of(400), base)
        ids, distances = store.search(queries, 25)
        with monkeypatch.context() as patch:
            patch.setattr(exact, "VECTORS_AT_ONCE", 11)
            patch.setattr(exact, "QUERIES_AT_ONCE", 4)
            again, same = store.search(queries, 25)
        assert ids.tolist() == again.tolist()
        assert distances.tolist() == same.tolist()


@pytest.mark.parametrize(
    ("module", "name", "library"),
    [("faiss_store", "Faiss", "faiss"), ("usearch_store", "Usearch", "usearch"), ("pgvector", "PgVector", "psycopg")],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch, module, name, library):
    import importlib

    store = getattr(importlib.import_module(f"ragauge.systems.stores.{module}"), name)
    monkeypatch.setitem(sys.modules, library, None)
    extra = "pgvector" if library == "psycopg" else library
    with pytest.raises(MissingExtra, match=rf"pip install 'ragauge\[{extra}\]'"):
        store()


def test_options_are_checked_before_anything_is_built(make):
    with pytest.raises(UnknownName, match="did you mean `cosine`"):
        Exact(metric="cosin")
    for wrong in ({"kind": "flt"}, {"kind": "hnsw", "metric": "manhattan"}):
        with pytest.raises(UnknownName):
            make("faiss-flat", **wrong) if "kind" not in wrong else _faiss(**wrong)
    for wrong in ({"m": 0}, {"ef_search": 0}, {"nprobe": 1.5}):
        with pytest.raises(BadInput):
            _faiss(**wrong)
    store = _faiss(kind="ivf", nlist=50)
    store.add(ids_of(10), vectors(10, 4, 18))
    with pytest.raises(BadInput, match="more than the 10 vectors"):
        store.search(vectors(1, 4, 19), 1)


def _faiss(**options):
    pytest.importorskip("faiss")
    from ragauge.systems.stores.faiss_store import Faiss

    return Faiss(**options)


def test_pgvector_options_are_checked_too(make):
    pytest.importorskip("psycopg")
    for wrong in ({"m": 101}, {"ef_search": 1001}, {"m": 40, "ef_construction": 64}, {"lists": 0}, {"probes": -1}):
        with pytest.raises(BadInput):
            make("pgvector-hnsw", **wrong)
    for wrong in ("btree", "HNSW; DROP TABLE x"):
        with pytest.raises(UnknownName):
            make(f"pgvector-{wrong}")
    store = make("pgvector-hnsw")
    with pytest.raises(BadInput, match=r"up to 2000 dimensions, not 2001[\s\S]*half=True"):
        store.add(["a"], vectors(1, 2001, 20))


def test_pgvector_filters_explains_and_cleans_up(make, dsn):
    import psycopg

    base = vectors(1500, 16, 21)
    about = [{"part": i % 100} for i in range(1500)]
    for kind in ("none", "hnsw", "half", "ivfflat"):
        store = make(f"pgvector-{kind}", ef_search=20)
        store.add(ids_of(1500), base, about)
        ids, distances = store.search(base[:10], 10, where={"part": 3})
        assert all(int(name[1:]) % 100 == 3 for name in ids.ravel())
        assert (np.diff(distances, axis=1) >= 0).all()
        ids, _ = store.search(base[:1], 40, where={"part": 3})
        assert [name is not None for name in ids[0]] == [True] * 15 + [False] * 25
        assert store.index_used(base[0], 10) is (kind != "none")
        assert "Plan" in store.explain(base[0], 10)
        table = store.table
        store.close()
        store.close()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,)
        with pytest.raises(BackendFailed, match="closed"):
            store.search(base[:1], 1)


def test_pgvector_reaches_beyond_what_one_scan_of_the_graph_gives(make):
    base = vectors(1500, 8, 22)
    store = make("pgvector-hnsw", ef_search=10)
    store.add(ids_of(1500), base)
    for k in (50, 1000, 1400):
        ids, _ = store.search(base[:1], k)
        assert sum(name is not None for name in ids[0]) >= 0.95 * k
