"""Contract of vector stores: every store is compared with distances that are computed here in double precision.

`-k qdrant` runs the tests of one store. To add a store, add a row to `store_cases.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from command import run_python
from ragauge.compute.resources import thread_limits
from ragauge.core import plugins
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, UnknownName
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import STORE_CAPABILITIES, FullStore, Store
from ragauge.core.stages import StageTimer
from ragauge.store_benchmarks.plan import StoreSpec
from ragauge.stores.bookkeeping import BOOKKEEPING_FILE
from ragauge.stores.filter_conditions import matches_conditions, parse_filter
from ragauge.stores.reference import ExactStore
from store_cases import APPROXIMATE, CASES, EXACT, METRICS

every_store = pytest.mark.parametrize("name", CASES)
SEARCH_SAVED_STORE = """
import json, sys
import numpy as np
from ragauge.store_benchmarks.plan import StoreSpec

arguments = json.loads(sys.argv[1])
store = StoreSpec(arguments["store"], arguments["options"], arguments["metric"], arguments["path"]).open()
ids, distances = store.search(np.array(arguments["queries"], dtype=np.float32), arguments["k"])
print(json.dumps([len(store), ids.tolist(), distances.tolist()]))
store.close()
"""
"""Code that another process runs on a saved store."""
LIST_LATE_IMPORTS = """
import json, sys
import numpy as np
from ragauge.store_benchmarks.plan import StoreSpec

arguments = json.loads(sys.argv[1])
base = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
store = StoreSpec(arguments["store"], arguments["options"], arguments["metric"], None).open()
before = set(sys.modules)
store.add([str(row) for row in range(300)], base, [{"part": row % 3} for row in range(300)])
store.build()
store.search(base[:1], 5)
if arguments["filter"]:
    store.search(base[:1], 5, where={"part": 1})
heavy = {"faiss", "numpy", "pandas", "polars", "pyarrow", "scipy", "sklearn", "torch", arguments["store"]}
late = sorted({name for name in set(sys.modules) - before if name.partition(".")[0] in heavy})
store.close()
print(json.dumps(late))
"""
"""Code that lists the libraries that an open store still imports."""
ADD_TWO_BATCHES = """
import json, sys
import numpy as np
from ragauge.stores.lancedb import LanceDBSettings, LanceDBStore

base = np.random.default_rng(0).normal(size=(9000, 8)).astype(np.float32)
settings = LanceDBSettings(index="ivf_flat", partitions=4, nprobes=4)
store = LanceDBStore(metric="l2", path=sys.argv[1], settings=settings)
for start in (0, 4500):
    store.add([f"d{row}" for row in range(start, start + 4500)], base[start : start + 4500])
store.save()
print(json.dumps([len(store), store.search(base[[0, 8999]], 1)[0][:, 0].tolist()]))
store.close()
"""
"""More vectors than LanceDB writes in two batches."""


@pytest.fixture
def open_store(request):
    """Return a function that opens a new store by the name of its case; all stores are closed at the end."""
    stores = []

    def open_case(name: str, *, metric: str = "cosine", path=None, n: int = 2000, **options):
        store = make_spec(request, name, metric, path, n=n, **options).open()
        stores.append(store)
        return store

    yield open_case
    for store in stores:
        store.close()


def import_libraries(store: str) -> None:
    """Skip the test if a library of a store is not installed."""
    for module in plugins.load_plugin("stores", store).library_modules:
        pytest.importorskip(module)


def make_spec(request, name: str, metric: str, path=None, *, n: int = 2000, **options) -> StoreSpec:
    """Return how to open a case for `n` vectors; skip the test if its metric or library is not available."""
    case = CASES[name]
    if metric not in case.metrics:
        pytest.skip(f"{name} has no metric {metric}")
    import_libraries(case.store)
    fixture_options = {option: request.getfixturevalue(fixture) for option, fixture in case.fixtures.items()}
    all_options = {
        **case.options,
        **fixture_options,
        **(case.tiny_set_options if n < 100 else case.small_set_options if n < 400 else {}),
        **options,
    }
    return StoreSpec(case.store, all_options, metric, None if path is None else str(path))


def make_vectors(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def brute_force_distances(base: np.ndarray, queries: np.ndarray, metric: str) -> np.ndarray:
    """Compute all distances directly, in double precision."""
    a, b = queries.astype(np.float64)[:, None, :], base.astype(np.float64)[None, :, :]
    if metric == "l2":
        return np.sqrt(((a - b) ** 2).sum(axis=2))
    products = (a * b).sum(axis=2)
    if metric == "ip":
        return -products
    return 1 - products / np.sqrt((a**2).sum(axis=2) * (b**2).sum(axis=2))


def make_ids(n: int) -> list[str]:
    return [f"d{i}" for i in range(n)]


def compute_recall(ids: np.ndarray, all_distances: np.ndarray, k: int = 10) -> float:
    nearest = np.argsort(all_distances, axis=1, kind="stable")[:, :k]
    return float(np.mean([len(set(row) & {f"d{i}" for i in rows}) / k for row, rows in zip(ids, nearest, strict=True)]))


def require_ability(store, ability: str):
    """Return the store; skip the test if it lacks the ability. The errors of missing abilities have their own test."""
    if ability not in store.abilities:
        pytest.skip(f"the store cannot {ability}")
    return store


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", EXACT)
def test_exact_store_search_matches_double_precision(open_store, name, metric):
    base, queries = make_vectors(500, 16, 1), make_vectors(20, 16, 2)
    store = open_store(name, metric=metric)
    store.add(make_ids(500), base)
    ids, distances = store.search(queries, 10)
    assert ids.shape == distances.shape == (20, 10)
    assert distances.dtype == np.float32
    all_distances = brute_force_distances(base, queries, metric)
    nearest = np.argsort(all_distances, axis=1, kind="stable")[:, :10]
    assert ids.tolist() == [[f"d{i}" for i in row] for row in nearest]
    np.testing.assert_allclose(distances, np.take_along_axis(all_distances, nearest, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_store_search_reaches_recall(open_store, name, metric):
    base, queries = make_vectors(2000, 32, 3), make_vectors(50, 32, 4)
    store = open_store(name, metric=metric)
    store.add(make_ids(2000), base)
    ids, distances = store.search(queries, 10)
    assert distances.dtype == np.float32
    all_distances = brute_force_distances(base, queries, metric)
    assert compute_recall(ids, all_distances) >= CASES[name].recall
    assert (np.diff(distances, axis=1) >= 0).all()
    expected = [[all_distances[row, int(document_id[1:])] for document_id in line] for row, line in enumerate(ids)]
    # The error of an inner product grows with the length of the query.
    tolerance = CASES[name].atol * (6 if metric == "ip" else 1)
    np.testing.assert_allclose(distances, expected, rtol=CASES[name].rtol, atol=tolerance)
    single_results = [store.search(query[None], 10) for query in queries[:5]]
    assert [result[0].tolist()[0] for result in single_results] == ids[:5].tolist()
    assert [result[1].dtype for result in single_results] == [np.float32] * 5
    np.testing.assert_allclose(
        np.concatenate([result[1] for result in single_results]), distances[:5], rtol=1e-4, atol=1e-5
    )


@every_store
def test_store_search_pads_missing_hits_with_none_and_infinity(open_store, name):
    store = open_store(name, metric=CASES[name].metrics[-1], n=60)
    ids, distances = store.search(np.zeros((0, 4), np.float32), 3)
    assert ids.shape == distances.shape == (0, 3)
    assert store.search(np.ones((2, 4), np.float32), 3)[0].tolist() == [[None] * 3] * 2
    store.add([], np.zeros((0, 4), np.float32))
    store.add(make_ids(5), make_vectors(5, 4, 5))
    for count in (1, 3):
        ids, distances = store.search(make_vectors(count, 4, 6), 9)
        assert ids.shape == (count, 9)
        for row_ids, row_distances in zip(ids.tolist(), distances.tolist(), strict=True):
            assert sorted(row_ids[:5]) == make_ids(5)
            assert row_ids[5:] == [None] * 4
            assert row_distances[5:] == [np.inf] * 4
            assert all(np.isfinite(row_distances[:5]))


@every_store
def test_store_search_finds_all_equal_vectors(open_store, name):
    metric = CASES[name].metrics[-1]
    row = make_vectors(1, 16, 50)
    base = np.concatenate([np.repeat(3 * row, 12, axis=0), make_vectors(300, 16, 51)])
    store = open_store(name, metric=metric, n=300)
    store.add(make_ids(312), base)
    for queries in (3 * row, np.repeat(3 * row, 3, axis=0)):
        ids, distances = store.search(queries, 12)
        for line in ids.tolist():
            assert len(set(line) & set(make_ids(12))) >= 12 * CASES[name].recall
            assert len(set(line)) == 12
        assert np.ptp(distances[:, :6]) <= 2 * CASES[name].atol + 1e-4 * abs(float(distances[0, 0]))


@every_store
def test_store_add_in_batches_finds_all(open_store, name):
    base = make_vectors(300, 8, 7)
    store = open_store(name, n=300)
    for start in (0, 100, 200):
        store.add(make_ids(300)[start : start + 100], base[start : start + 100])
    assert len(store) == 300
    ids, _ = store.search(base, 1)
    assert np.mean(ids[:, 0] == np.array(make_ids(300), dtype=object)) >= CASES[name].recall


@every_store
def test_store_add_after_search_is_found(open_store, name):
    base = make_vectors(300, 8, 7)
    store = require_ability(open_store(name, n=300), "insert")
    store.add(make_ids(260), base[:260])
    store.search(base[:1], 1)
    store.add(make_ids(261)[260:], base[260:261])
    store.add(make_ids(300)[261:], base[261:])
    assert len(store) == 300
    ids, _ = store.search(base[260:], 1)
    assert np.mean(ids[:, 0] == np.array(make_ids(300)[260:], dtype=object)) >= CASES[name].recall


@every_store
def test_store_delete_removes_ids_until_added_again(open_store, name):
    base = make_vectors(300, 8, 30)
    store = require_ability(open_store(name, n=300), "delete")
    store.add(make_ids(300), base)
    deleted = make_ids(60)
    store.delete(deleted[:30])
    store.delete([])
    for deleted_id in deleted[30:]:
        store.delete([deleted_id])
    assert len(store) == 240
    ids, distances = store.search(base[:60], 240)
    for line, row_distances in zip(ids.tolist(), distances.tolist(), strict=True):
        returned = [document_id for document_id in line if document_id is not None]
        assert not set(returned) & set(deleted)
        assert len(returned) >= 240 * CASES[name].recall
        assert all(np.isfinite(row_distances[: len(returned)]))
    with pytest.raises(BadInput, match="'d3' is not in the store"):
        store.delete(["d299", "d3"])
    assert len(store) == 240
    if "insert" in store.abilities:
        store.add(make_ids(6)[3:], base[3:6])
        assert store.search(base[3:6], 1)[0][:, 0].tolist() == make_ids(6)[3:]
        assert len(store) == 243
    store.delete(make_ids(300)[60:])
    remaining = make_ids(6)[3:] if "insert" in store.abilities else []
    assert (
        sorted(document_id for document_id in store.search(base[:1], 9)[0][0] if document_id is not None) == remaining
    )


@every_store
def test_store_update_replaces_vectors(open_store, name):
    base = make_vectors(300, 8, 31)
    # Midpoints of two vectors, because a quantizer clips values outside of its training range.
    updated = (base + np.roll(base, 1, axis=0)) / 2
    metric = CASES[name].metrics[-1]
    store = require_ability(open_store(name, metric=metric, n=300), "update")
    store.add(make_ids(300), base)
    store.search(base[:1], 1)
    store.update(make_ids(20), updated[:20])
    for row in range(20, 25):
        store.update([f"d{row}"], updated[row : row + 1])
    store.update([], np.zeros((0, 8), np.float32))
    current = np.concatenate([updated[:25], base[25:]])
    assert len(store) == 300
    ids, distances = store.search(current, 10)
    all_distances = brute_force_distances(current, current, metric)
    assert compute_recall(ids, all_distances) >= CASES[name].recall - 0.05
    expected = [[all_distances[row, int(document_id[1:])] for document_id in line] for row, line in enumerate(ids)]
    np.testing.assert_allclose(distances, expected, rtol=CASES[name].rtol, atol=CASES[name].atol)
    for invalid_ids, invalid_vectors, word in (
        (["d1", "x"], base[:2], "'x' is not in the store"),
        (["d1", "d1"], base[:2], "duplicate id"),
        (["d1"], base[:2], "got 1 ids and 2 vectors"),
        (["d1"], base[:1, :5], "5 dimensions"),
        (["d1"], np.full((1, 8), np.nan, np.float32), "NaN"),
    ):
        with pytest.raises(BadInput, match=word):
            store.update(invalid_ids, invalid_vectors)
    assert store.search(current[1:2], 10)[0].tolist() == ids[1:2].tolist()


@every_store
def test_store_random_changes_leave_expected_content(open_store, name):
    store = open_store(name, metric=CASES[name].metrics[0], n=300)
    for ability in ("insert", "update", "delete"):
        require_ability(store, ability)
    random = np.random.default_rng(42)
    base = random.uniform(-1, 1, size=(300, 8)).astype(np.float32)
    content = dict(zip(make_ids(300), base, strict=True))
    store.add(make_ids(300), base)
    store.build()
    for step, change in enumerate(random.integers(3, size=90).tolist()):
        vector = random.uniform(-0.9, 0.9, size=(1, 8)).astype(np.float32)
        chosen = f"new{step}" if change == 0 else str(random.choice(list(content)))
        if change == 0:
            store.add([chosen], vector)
        elif change == 1:
            store.update([chosen], vector)
        else:
            store.delete([chosen])
            del content[chosen]
        if change < 2:
            content[chosen] = vector[0]
    assert len(store) == len(content)
    ids, _ = store.search(np.array(list(content.values())), 5)
    assert {document_id for line in ids for document_id in line} <= set(content)
    was_found = [name in line for name, line in zip(content, ids.tolist(), strict=True)]
    assert np.mean(was_found) >= CASES[name].recall


@every_store
def test_store_filter_returns_all_and_only_matches(open_store, name):
    base = make_vectors(300, 8, 33)
    metadata = [{"part": i % 10, "word": "even" if i % 2 == 0 else "odd", "flag": i % 3 == 0} for i in range(300)]
    metadata[7] |= {"size": 0.5}
    store = require_ability(open_store(name, n=300), "filter")
    store.add(make_ids(300), base, metadata)
    for where in ({"part": 3}, {"word": "even"}, {"flag": True}, {"part": 4, "flag": True}, {"size": 0.5}):
        matching = {f"d{i}" for i, entry in enumerate(metadata) if where.items() <= entry.items()}
        for queries in (base[:1], base[:5]):
            ids, distances = store.search(queries, 200, where=where)
            for line, row_distances in zip(ids.tolist(), distances.tolist(), strict=True):
                returned = [document_id for document_id in line if document_id is not None]
                assert set(returned) <= matching
                assert len(set(returned)) == len(returned) >= len(matching) * CASES[name].recall
                assert row_distances == sorted(row_distances)
                assert np.isfinite(row_distances).sum() == len(returned)
    for unmatched in ({"part": 99}, {"nobody": 1}, {"part": "3"}, {"flag": 1}, {"word": "even", "part": 3}):
        assert store.search(base[:2], 5, where=unmatched)[0].tolist() == [[None] * 5] * 2
    assert store.search(base[:5], 1, where={})[0].tolist() == store.search(base[:5], 1)[0].tolist()
    if "insert" in store.abilities:
        store.search(base[:1], 5, where={"part": 3})
        store.add(["new"], base[:1], [{"part": 3}])
        assert store.search(base[:1], 1, where={"part": 3})[0].tolist() == [["new"]]
        assert None not in store.search(base[:1], 5)[0]
        if "delete" in store.abilities:
            store.delete(["new"])
            assert "new" not in store.search(base[:1], 50, where={"part": 3})[0]


@every_store
def test_store_filter_by_sets_ranges_and_several_conditions(open_store, name):
    base = make_vectors(300, 8, 33)
    metadata = [{"part": i % 10, "word": "abc"[i % 3], "size": i / 4, "flag": i % 2 == 0} for i in range(300)]
    store = require_ability(open_store(name, n=300), "filter")
    store.add(make_ids(300), base, metadata)
    filters = {
        '{"part": {"$in": [2, 5, 77]}}': lambda row: row["part"] in (2, 5),
        '{"word": {"$in": ["a", "c"]}}': lambda row: row["word"] in ("a", "c"),
        '{"size": {"$in": [0.25, 12.0]}}': lambda row: row["size"] in (0.25, 12.0),
        '{"flag": {"$in": [true]}}': lambda row: row["flag"],
        '{"part": {"$gte": 3, "$lt": 6}}': lambda row: 3 <= row["part"] < 6,
        '{"part": {"$gt": 2.5, "$lte": 4.5}}': lambda row: row["part"] in (3, 4),
        '{"size": {"$gt": 10, "$lte": 20.25}}': lambda row: 10 < row["size"] <= 20.25,
        '{"part": {"$eq": 4}}': lambda row: row["part"] == 4,
        '{"word": "a", "part": {"$lt": 5}, "flag": true}': lambda row: (
            row["word"] == "a" and row["part"] < 5 and row["flag"]
        ),
    }
    if name == "sqlite-vec":
        with pytest.raises(BadInput, match="cannot filter by several fractions"):
            store.search(base[:1], 5, where={"size": {"$in": [0.25, 12.0]}})
        filters = {text: matches for text, matches in filters.items() if "0.25, 12" not in text}
    for text, matches in filters.items():
        expected = {f"d{i}" for i, row in enumerate(metadata) if matches(row)}
        for line in store.search(base[:3], 300, where=json.loads(text))[0].tolist():
            returned = [document_id for document_id in line if document_id is not None]
            assert set(returned) <= expected, text
            assert len(set(returned)) == len(returned) >= len(expected) * CASES[name].recall, text
    for unmatched in (
        {"part": {"$in": [77, "2"]}},
        {"part": {"$gt": 9}},
        {"word": {"$gte": 1}},
        {"nobody": {"$lt": 3}},
    ):
        assert store.search(base[:2], 5, where=unmatched)[0].tolist() == [[None] * 5] * 2


@every_store
def test_store_range_filter_is_exact_for_large_integers(open_store, name):
    """Integers from 2**53 on are not exact in double precision; a store compares them exactly or refuses."""
    limit = 2**53
    sizes = [sign * (base + step) for base in (limit, 2**62) for step in range(-3, 4) for sign in (1, -1)]
    metadata = [{"size": size} for size in sizes]
    store = require_ability(open_store(name, n=60), "filter")
    store.add(make_ids(len(sizes)), make_vectors(len(sizes), 8, 33), metadata)
    bounds = [sign * bound for bound in (7, 0.5, limit - 1, limit, limit + 1, limit + 2, 2**62 + 1) for sign in (1, -1)]
    for bound in [*bounds, float(limit), float(-limit), float(limit + 2), float(2**62), -float(2**62), 1e16 + 2]:
        for operator in ("$gt", "$gte", "$lt", "$lte", "$eq"):
            where = {"size": {operator: bound}}
            conditions = parse_filter(where)
            expected = {f"d{i}" for i, row in enumerate(metadata) if matches_conditions(row, conditions)}
            if CASES[name].store == "qdrant" and operator != "$eq" and abs(bound) >= limit:
                with pytest.raises(BadInput, match="double precision, which is exact below 9007199254740992 only"):
                    store.search(make_vectors(1, 8, 34), 5, where=where)
                continue
            (line,) = store.search(make_vectors(1, 8, 34), len(sizes), where=where)[0].tolist()
            assert {key for key in line if key is not None} == expected, where


@every_store
def test_store_filter_invalid_condition_raises(open_store, name):
    store = require_ability(open_store(name, n=60), "filter")
    store.add(make_ids(60), make_vectors(60, 8, 1), [{"part": i} for i in range(60)])
    for invalid in ({"part": {"$near": 3}}, {"part": {"$in": []}}, {"part": {"$gt": "x"}}, {"part": [1]}, {"part": {}}):
        with pytest.raises(BadInput, match="the filter"):
            store.search(make_vectors(1, 8, 2), 5, where=invalid)


@every_store
def test_store_add_invalid_metadata_raises(open_store, name):
    store = require_ability(open_store(name, n=60), "filter")
    valid = make_vectors(2, 4, 34)
    for metadata, word in (
        ([{"a": 1}], "got 1 for 2 ids"),
        ([{"a": 1}, {"a": [1]}], "'a' is"),
        ([{"a": 1}, {"a": None}], "'a' is"),
        ([{"a": 1}, {"a": float("nan")}], "'a' is nan"),
    ):
        with pytest.raises(BadInput, match=word):
            store.add(["a", "b"], valid, metadata)
    assert len(store) == 0


@pytest.mark.parametrize("metric", ["cosine", "ip"])
@every_store
def test_store_save_is_read_by_another_process(request, open_store, name, metric, tmp_path):
    base = make_vectors(300, 8, 35)
    names = [*make_ids(298), "an odd one: 'ü'\n\t 🙂", ""]
    spec = make_spec(request, name, metric, tmp_path / "kept", n=300)
    store = require_ability(spec.open(), "save")
    store.add(names[:200], base[:200])
    store.add(names[200:], base[200:], [{"part": 1}] * 100)
    store.build()
    if "delete" in store.abilities:
        store.delete(["d5", "d6"])
    if "update" in store.abilities:
        store.update(["d7"], 2 * base[:1])
    ids, distances = store.search(base[:20], 10)
    store.save()
    size = len(store)
    store.close()
    arguments = json.dumps({**vars(spec), "queries": base[:20].tolist(), "k": 10})
    (tmp_path / "search_saved.py").write_text(SEARCH_SAVED_STORE)
    process = run_python(["search_saved.py", arguments], tmp_path)
    assert process.returncode == 0, process.stderr
    saved_size, saved_ids, saved_distances = json.loads(process.stdout)
    assert saved_size == size
    assert saved_ids == ids.tolist()
    np.testing.assert_allclose(saved_distances, distances, rtol=1e-4, atol=1e-5)
    if metric == "ip":
        return
    for other_metric in set(CASES[name].metrics) - {metric}:
        with pytest.raises(BadInput, match="metric"):
            make_spec(request, name, other_metric, tmp_path / "kept", n=300).open()
    store = open_store(name, metric=metric, path=tmp_path / "kept", n=300)
    if "filter" in store.abilities:
        assert set(store.search(base[:1], 10, where={"part": 1})[0][0]) <= set(names[200:])
    if "insert" in store.abilities:
        store.add(["new"], base[:1] * 3)
        assert "new" in store.search(base[:1], 3)[0]
        store.save()
        store.close()
        assert len(open_store(name, metric=metric, path=tmp_path / "kept", n=300)) == size + 1


@every_store
def test_store_never_replaces_files_of_the_user(request, name, tmp_path):
    metric, base = CASES[name].metrics[0], make_vectors(300, 16, 41)

    def save(folder):
        store = require_ability(make_spec(request, name, metric, folder, n=300).open(), "save")
        try:
            store.add(make_ids(300), base)
            store.save()
        finally:
            store.close()

    save(tmp_path / "kept")
    names = [
        path.name for path in (tmp_path / "kept").iterdir() if path.name[0] != "." and path.name != BOOKKEEPING_FILE
    ]
    own = tmp_path / "own"
    own.mkdir()
    for file in names:
        (own / file).write_text("mine")
    if names and CASES[name].store != "scann":  # its names are random
        with pytest.raises(BadInput, match="which ragauge did not write"):
            save(own)
    assert {path.name: path.read_text() for path in own.iterdir() if path.name in names} == dict.fromkeys(names, "mine")
    (tmp_path / "kept" / BOOKKEEPING_FILE).unlink()  # as a killed process leaves it
    save(tmp_path / "kept")


@every_store
def test_store_reopen_keeps_automatic_options(request, name, tmp_path):
    spec = make_spec(request, name, CASES[name].metrics[0], tmp_path / "kept", n=300)
    parameters = read_parameters(plugins.load_plugin("stores", spec.store)).options
    chosen = {option: value for option, value in spec.options.items() if parameters[option].default is not None}
    chosen |= {option: spec.options[option] for option in CASES[name].fixtures}
    spec = StoreSpec(spec.store, chosen, spec.metric, spec.path)
    base = make_vectors(300, 16, 43)
    store = require_ability(spec.open(), "save")
    store.add(make_ids(300), base)
    store.save()
    ids, _ = store.search(base[:5], 10)
    automatic = {
        option for option, parameter in parameters.items() if parameter.default is None and option in store.describe()
    }
    automatic_values = {key: value for key, value in store.describe().items() if key in automatic}
    store.close()
    reopened = spec.open()
    assert reopened.describe().items() >= automatic_values.items()
    assert reopened.search(base[:5], 10)[0].tolist() == ids.tolist()
    reopened.save()
    reopened.close()
    if not automatic:
        return  # reading with equal options in another process is tested above
    arguments = json.dumps({**vars(spec), "queries": base[:5].tolist(), "k": 10})
    (tmp_path / "search_saved.py").write_text(SEARCH_SAVED_STORE)
    process = run_python(["search_saved.py", arguments], tmp_path)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)[:2] == [300, ids.tolist()]


@pytest.mark.parametrize("name", list({case.store: name for name, case in CASES.items()}.values()))
@pytest.mark.engine
def test_store_loads_no_library_after_open(request, open_store, name):
    spec = make_spec(request, name, CASES[name].metrics[0], n=300)
    abilities = open_store(name, metric=spec.metric, n=300).abilities
    arguments = json.dumps({**vars(spec), "filter": "filter" in abilities})
    process = subprocess.run(
        [sys.executable, "-c", LIST_LATE_IMPORTS, arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == []


@pytest.mark.engine
def test_lancedb_takes_several_batches_on_one_thread(tmp_path):
    pytest.importorskip("lancedb")
    # With too few threads it deadlocks instead of failing, which the timeout detects.
    process = subprocess.run(
        [sys.executable, "-c", ADD_TWO_BATCHES, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **thread_limits(1)},
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == [9000, ["d0", "d8999"]]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.low_recall_options])
def test_store_tune_changes_recall_without_rebuild(open_store, name):
    case = CASES[name]
    base, queries = make_vectors(2000, 32, 3), make_vectors(50, 32, 4)
    metric = case.metrics[-1]
    all_distances = brute_force_distances(base, queries, metric)
    store = open_store(name, metric=metric)
    store.add(make_ids(2000), base)
    store.build()
    high_recall_options = {option: case.options[option] for option in case.low_recall_options}
    before_ids = store.search(queries, 10)[0]
    store.tune(case.low_recall_options)
    low_recall = compute_recall(store.search(queries, 10)[0], all_distances)
    assert store.describe().items() >= case.low_recall_options.items()
    store.tune(high_recall_options)
    after_ids = store.search(queries, 10)[0]
    assert low_recall < compute_recall(after_ids, all_distances)
    assert after_ids.tolist() == before_ids.tolist()
    store.tune({})
    with pytest.raises(BadInput):
        store.tune({next(iter(case.low_recall_options)): 0})
    with pytest.raises(BadInput, match="'nothing_of_this_name' is not a search option of this store"):
        store.tune({"nothing_of_this_name": 3})


@every_store
def test_store_missing_abilities_raise(open_store, name, tmp_path):
    store = open_store(name, path=tmp_path / "kept", n=60)
    base = make_vectors(20, 4, 36)
    assert isinstance(store, Store)
    assert isinstance(store, FullStore)
    assert store.abilities <= set(STORE_CAPABILITIES)
    store.add(make_ids(20), base)
    store.build()
    for ability, attempt in {
        "insert": lambda: store.add(["new"], base[:1]),
        "update": lambda: store.update(["d1"], base[:1]),
        "delete": lambda: store.delete(["d1"]),
        "filter": lambda: store.search(base[:1], 1, where={"part": 1}),
        "save": store.save,
    }.items():
        if ability not in store.abilities:
            with pytest.raises(BadInput, match=r"cannot .*: "):
                attempt()
    assert len(store) == 20
    assert sorted(store.search(base[:1], 20)[0][0]) == sorted(make_ids(20))


@every_store
def test_store_invalid_input_raises_and_keeps_content(open_store, name):
    store = open_store(name, n=60)
    valid = make_vectors(3, 4, 8)
    store.add(["a", "b", "c"], valid)
    with_nan, with_zero = valid.copy(), valid.copy()
    with_nan[1, 2], with_zero[2] = np.nan, 0
    for ids, invalid, word in (
        (["d", "a", "e"], valid, "duplicate id 'a'"),
        (["d", "d", "e"], valid, "duplicate id 'd'"),
        (["d", "e", "f"], make_vectors(3, 5, 9), "5 dimensions"),
        (["d", "e"], valid, "got 2 ids and 3 vectors"),
        (["d", 7, "f"], valid, "must be a text"),
        (["d", "e", "f"], with_nan, "'e' has a NaN"),
        (["d", "e", "f"], with_zero, "'f' is all zeros"),
        (["d"], valid[0], "shape"),
        (["d"], [["x", "y", "z", "w"]], "numbers"),
    ):
        with pytest.raises(BadInput, match=word):
            store.add(ids, invalid)
    for query, k, word in (
        (valid[:, :2], 3, "2 dimensions"),
        (with_nan, 3, "query vector 1 has a NaN"),
        (with_zero, 3, "query vector 2 is all zeros"),
        (with_nan[1:2], 3, "query vector 0 has a NaN"),
        (with_zero[2:3], 3, "query vector 0 is all zeros"),
        (np.full((1, 4), np.inf, np.float32), 3, "query vector 0 has a NaN or an infinity"),
        (valid, 0, "k must be at least 1, got 0"),
        (valid, 2.5, "whole number"),
        (valid, True, "whole number"),
    ):
        with pytest.raises(BadInput, match=word):
            store.search(query, k)
    assert len(store) == 3
    assert sorted(store.search(valid[:1], 3)[0][0]) == ["a", "b", "c"]


@every_store
def test_store_accepts_any_text_as_id(open_store, name):
    unusual_ids = [
        "a'b\"; DROP TABLE x; --",
        "",
        "%s %(k)s",
        "naïve 文档 🙂",
        "tab\tline\n\\backslash",
        "{braces}",
        "NULL",
    ]
    store = open_store(name, metric=CASES[name].metrics[0], n=60)
    base = np.eye(7, dtype=np.float32)
    store.add(unusual_ids, base)
    assert store.search(base, 1)[0][:, 0].tolist() == unusual_ids


@every_store
def test_store_describe_reports_size_and_search_is_timed_stage(open_store, name):
    metric = CASES[name].metrics[-1]
    store = open_store(name, metric=metric, n=60)
    store.add(make_ids(60), make_vectors(60, 4, 11))
    with StageTimer() as timer:
        store.search(make_vectors(1, 4, 12), 5)
    assert list(timer.nanoseconds) == ["retrieve"]
    description = store.describe()
    assert description["metric"] == metric
    assert description["size"] == 60
    assert description["dimension"] == 4
    assert description["store"] == CASES[name].store
    assert description["version"]
    json.dumps(description, allow_nan=False)


@every_store
def test_store_add_copies_vectors(open_store, name):
    base = make_vectors(50, 4, 13)
    store = open_store(name, metric=CASES[name].metrics[0], n=60)
    given = base.copy()
    store.add(make_ids(50), given)
    given[:] = 0
    ids, distances = store.search(base[:5], 50)
    assert set(ids[:, 0]) <= set(make_ids(50))
    true_distances = brute_force_distances(base, base[:5], CASES[name].metrics[0])
    expected = [[true_distances[row, int(document_id[1:])] for document_id in line] for row, line in enumerate(ids)]
    np.testing.assert_allclose(distances, expected, rtol=CASES[name].rtol, atol=CASES[name].atol)


@every_store
def test_store_close_twice_is_allowed(open_store, name):
    store = open_store(name, n=60)
    store.add(make_ids(20), make_vectors(20, 4, 37))
    store.close()
    store.close()


def test_exact_store_ties_keep_insertion_order(monkeypatch):
    from ragauge.stores import nearest_neighbours

    monkeypatch.setattr(nearest_neighbours, "MIN_QUERIES_FOR_BLOCKS", 2)
    monkeypatch.setattr(nearest_neighbours, "SCORES_PER_BLOCK", 21)
    monkeypatch.setattr(nearest_neighbours, "QUERIES_PER_BLOCK", 3)
    row = make_vectors(1, 33, 14)
    base = np.concatenate([np.repeat(row, 20, axis=0), make_vectors(15, 33, 15), np.repeat(row, 20, axis=0)])
    for metric in METRICS:
        store = ExactStore(metric=metric)
        store.add(make_ids(len(base)), base)
        equal_rows = [i for i in range(len(base)) if (base[i] == row[0]).all()]
        ids, distances = store.search(np.repeat(row, 8, axis=0), 30)
        for line in ids.tolist():
            assert line == [f"d{i}" for i in equal_rows[:30]]
        if metric != "ip":
            assert distances.max() <= 1e-7
        assert store.search(row * 2, 50)[0].tolist()[0][:40] == [f"d{i}" for i in equal_rows]


def test_exact_store_search_is_independent_of_block_size(monkeypatch):
    from ragauge.stores import nearest_neighbours

    base, queries = make_vectors(400, 24, 16), make_vectors(30, 24, 17)
    for metric in METRICS:
        store = ExactStore(metric=metric)
        store.add(make_ids(400), base)
        ids, distances = store.search(queries, 25)
        with monkeypatch.context() as patch:
            patch.setattr(nearest_neighbours, "SCORES_PER_BLOCK", 44)
            patch.setattr(nearest_neighbours, "QUERIES_PER_BLOCK", 4)
            block_ids, block_distances = store.search(queries, 25)
        assert ids.tolist() == block_ids.tolist()
        assert distances.tolist() == block_distances.tolist()


@pytest.mark.parametrize(
    ("store", "module"),
    [
        (store, module)
        for store in plugins.BUILTIN_PLUGINS["stores"]
        for module in plugins.load_plugin("stores", store).library_modules
    ],
)
def test_store_missing_library_raises_with_install_hint(monkeypatch, store, module):
    import_libraries(store)
    factory = plugins.load_plugin("stores", store)
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install .*\[{factory.extra}\]'"):
        factory()


@pytest.mark.parametrize("store", ["faiss", "usearch", "hnswlib", "scann"])
def test_store_save_needs_folder_and_reopen_checks_options(store, tmp_path):
    import_libraries(store)
    unsaved = StoreSpec(store, {}, "l2").open()
    unsaved.add(make_ids(50), make_vectors(50, 4, 38))
    with pytest.raises(BadInput, match="no folder to be saved in"):
        unsaved.save()
    saved = StoreSpec(store, {}, "l2", str(tmp_path)).open()
    saved.add(make_ids(50), make_vectors(50, 4, 38))
    saved.save()
    option, value = {"faiss": ("kind", "hnsw"), "scann": ("num_leaves", 3)}.get(store, ("m", 7))
    with pytest.raises(BadInput, match=f"a store with {option} "):
        StoreSpec(store, {option: value}, "l2", str(tmp_path)).open()
    (tmp_path / "intake.json").write_text("{}")
    with pytest.raises(BadInput, match=r"intake\.json: this is not"):
        StoreSpec(store, {}, "l2", str(tmp_path)).open()


def test_usearch_view_is_read_only(tmp_path):
    pytest.importorskip("usearch")
    base = make_vectors(100, 8, 39)
    store = StoreSpec("usearch", {}, "l2", str(tmp_path)).open()
    store.add(make_ids(100), base)
    store.save()
    view = StoreSpec("usearch", {"view": True}, "l2", str(tmp_path)).open()
    assert view.search(base[:9], 3)[0].tolist() == store.search(base[:9], 3)[0].tolist()
    assert view.abilities == {"save", "share"}
    for change in (
        lambda: view.add(["x"], base[:1]),
        lambda: view.update(["d1"], base[:1]),
        lambda: view.delete(["d1"]),
    ):
        with pytest.raises(BadInput, match="read-only view"):
            change()
    view.close()


def test_faiss_refine_returns_exact_distances():
    pytest.importorskip("faiss")
    base, queries = make_vectors(1000, 16, 40), make_vectors(20, 16, 41)
    true_distances = brute_force_distances(base, queries, "l2")
    errors = {}
    for refine in (False, True):
        store = StoreSpec("faiss", {"kind": "sq", "bits": 4, "refine": refine}, "l2").open()
        store.add(make_ids(1000), base)
        ids, distances = store.search(queries, 10)
        expected = np.array(
            [[true_distances[row, int(document_id[1:])] for document_id in line] for row, line in enumerate(ids)]
        )
        errors[refine] = float(np.abs(distances - expected).max())
    assert errors[True] < 1e-4
    assert errors[False] > 0.01


@pytest.mark.parametrize(
    ("store", "options"),
    [
        ("faiss", {"kind": "hnsw", "ef_search": 10}),
        ("hnswlib", {"ef_search": 10}),
        ("usearch", {"ef_search": 10}),
        ("lancedb", {"index": "ivf_flat", "partitions": 50, "nprobes": 2}),
    ],
)
@pytest.mark.engine
def test_store_build_after_batches_equals_one_batch(store, options, tmp_path):
    base, queries = make_vectors(3000, 16, 42), make_vectors(100, 16, 43)
    true_distances, recalls = brute_force_distances(base, queries, "l2"), []
    for batch in (3000, 700):
        path = str(tmp_path / str(batch)) if store == "lancedb" else None
        opened = StoreSpec(store, options, "l2", path).open()
        for start in range(0, 3000, batch):
            opened.add(make_ids(3000)[start : start + batch], base[start : start + batch])
        opened.build()
        if path:
            opened.save()
        recalls.append(compute_recall(opened.search(queries, 10)[0], true_distances))
        opened.close()
    if store == "lancedb":  # its partitions are drawn without a seed
        assert max(recalls) < 0.8
    else:
        assert recalls[0] == recalls[1]


@pytest.mark.engine
def test_duckdb_search_has_the_optimizers_of_a_user(open_store):
    store = open_store("duckdb")
    store.add(make_ids(300), make_vectors(300, 8, 44))
    store.search(make_vectors(1, 8, 45), 5)
    setting = "SELECT current_setting('disabled_optimizers')"
    assert store._engine._thread_cursor().execute(setting).fetchone() == ("",)
    store.tune({"late_materialization": False})
    assert store._engine._thread_cursor().execute(setting).fetchone() == ("late_materialization",)


def test_faiss_hnsw_store_equals_plain_index():
    faiss = pytest.importorskip("faiss")
    base, queries = make_vectors(3000, 16, 42), make_vectors(100, 16, 43)
    plain = faiss.IndexHNSWFlat(16, 16)
    plain.hnsw.efConstruction, plain.hnsw.efSearch = 64, 10
    plain.add(base)
    store = open_faiss(kind="hnsw", ef_search=10, metric="l2")
    for start in range(0, 3000, 700):
        store.add(make_ids(3000)[start : start + 700], base[start : start + 700])
    assert store.search(queries, 10)[0].tolist() == [[f"d{i}" for i in row] for row in plain.search(queries, 10)[1]]


def test_faiss_invalid_options_raise(open_store):
    with pytest.raises(UnknownName, match="did you mean `cosine`"):
        ExactStore(metric="cosin")
    with pytest.raises(BadInput, match="kind must be one of flat, sq, hnsw, ivf, ivfpq, got `flt`"):
        open_faiss(kind="flt")
    with pytest.raises(UnknownName):
        open_faiss(kind="hnsw", metric="manhattan")
    for options in (
        {"m": 0},
        {"ef_search": 0},
        {"nprobe": 1.5},
        {"bits": 5},
        {"pq_bits": 13},
        {"threads": -1},
        {"refine": True},
        {"kind": "hnsw", "rerank": 3},
        {"kind": "sq", "rerank": 3},
    ):
        with pytest.raises(BadInput):
            open_faiss(**options)
    store = open_faiss(kind="ivf", nlist=50)
    store.add(make_ids(10), make_vectors(10, 4, 18))
    with pytest.raises(BadInput, match="more than the 10 training vectors"):
        store.search(make_vectors(1, 4, 19), 1)
    store = open_faiss(kind="ivfpq", nlist=1, pq_m=3)
    with pytest.raises(BadInput, match="does not divide the 4 dimensions"):
        store.add(make_ids(10), make_vectors(10, 4, 18))
    assert len(store) == 0
    store = open_faiss(kind="ivfpq", nlist=1)
    store.add(make_ids(10), make_vectors(10, 4, 18))
    with pytest.raises(BadInput, match="at least 256 training vectors, got 10"):
        store.search(make_vectors(1, 4, 19), 1)
    with pytest.raises(BadInput, match="faiss flat has no nprobe"):
        open_faiss(kind="flat").tune({"nprobe": 3})


def open_faiss(*, metric="cosine", **options):
    pytest.importorskip("faiss")
    return StoreSpec("faiss", options, metric).open()


def test_store_invalid_options_raise():
    for store, options in (
        ("usearch", {"dtype": "f12"}),
        ("scann", {"kind": "leaf"}),
    ):
        pytest.importorskip(store)
        with pytest.raises(BadInput, match="must be one of"):
            StoreSpec(store, options).open()
    with pytest.raises(UnknownName, match="unknown metric `manhattan`"):
        StoreSpec("null", metric="manhattan").open()
    for store, options in (
        ("usearch", {"m": 1}),
        ("usearch", {"dtype": "i8", "metric": "l2"}),
        ("hnswlib", {"ef_construction": 0}),
        ("hnswlib", {"ef_search": 2.5}),
        ("scann", {"num_leaves": 0}),
        ("scann", {"reorder": True}),
    ):
        pytest.importorskip(store)
        with pytest.raises(BadInput):
            StoreSpec(store, options).open()


def test_pgvector_invalid_options_raise(open_store):
    pytest.importorskip("psycopg")
    for options in ({"m": 101}, {"ef_search": 1001}, {"m": 40, "ef_construction": 64}, {"lists": 0}, {"probes": -1}):
        with pytest.raises(BadInput):
            open_store("pgvector-hnsw", **options)
    for index in ("btree", "HNSW; DROP TABLE x"):
        with pytest.raises(BadInput, match="must be one of"):
            open_store("pgvector-hnsw", index=index)
    store = open_store("pgvector-hnsw")
    with pytest.raises(BadInput, match=r"up to 2000 dimensions, got 2001[\s\S]*half=True"):
        store.add(["a"], make_vectors(1, 2001, 20))


def test_pgvector_filter_returns_matches_and_close_drops_table(open_store, dsn):
    import psycopg

    base = make_vectors(1500, 16, 21)
    metadata = [{"part": i % 100} for i in range(1500)]
    for kind in ("none", "hnsw", "half", "ivfflat"):
        store = open_store(f"pgvector-{kind}", ef_search=20)
        store.add(make_ids(1500), base, metadata)
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


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["hnsw", "half", "ivfflat", "binary"])
@pytest.mark.engine
def test_pgvector_search_equals_statement_that_a_user_writes(open_store, dsn, kind, metric):
    import psycopg
    from pgvector import HalfVector
    from pgvector.psycopg import register_vector

    base, queries = make_vectors(1500, 16, 21), make_vectors(20, 16, 22)
    store = open_store(f"pgvector-{kind}", metric=metric, ef_search=20)
    store.add(make_ids(1500), base, [{"part": i % 100} for i in range(1500)])
    ids, distances = store.search(queries, 10)
    operator, candidates = {"cosine": "<=>", "l2": "<->", "ip": "<#>"}[metric], 400
    nearest = f'SELECT id, embedding {operator} %s AS distance FROM "{store.table}" ORDER BY distance LIMIT 10'
    if kind == "binary":
        candidate_rows = (
            f'SELECT id, embedding FROM "{store.table}" ORDER BY binary_quantize(embedding)::bit(16) '
            f"<~> binary_quantize(%s) LIMIT {candidates}"
        )
        nearest = nearest.replace(f'"{store.table}"', f"( {candidate_rows} ) AS candidates")
    assert " ".join(store.describe()["statement"].split()) == nearest
    with psycopg.connect(dsn) as connection:
        register_vector(connection)
        options = {"ivfflat": ("ivfflat.probes", 10), "binary": ("hnsw.ef_search", candidates)}
        name, value = options.get(kind, ("hnsw.ef_search", 20))
        connection.execute(f"SET {name} = {value}; SET enable_seqscan = off")
        for query, row_ids, row_distances in zip(queries, ids, distances, strict=True):
            vector = HalfVector(query) if kind == "half" else query
            rows = sorted(
                connection.execute(nearest, [vector] * nearest.count("%s")).fetchall(), key=lambda row: row[1]
            )
            assert row_ids.tolist() == [key for key, _ in rows]
            assert row_distances.tolist() == np.array([distance for _, distance in rows], np.float32).tolist()


@pytest.mark.engine
def test_pgvector_repeated_search_sends_one_statement_per_query(open_store, monkeypatch):
    """Transactions and settings around each search took longer than a small search."""
    import psycopg

    base = make_vectors(1500, 16, 21)
    for kind in ("hnsw", "half", "ivfflat", "binary", "none"):
        store = open_store(f"pgvector-{kind}", **({} if kind in ("none", "ivfflat") else {"ef_search": 20}))
        store.add(make_ids(1500), base, [{"part": i % 3} for i in range(1500)])
        for k, where in ((10, None), (50, None), (10, {"part": 1})):
            store.search(base[:1], k, where)
            sent, execute = [], psycopg.Connection.execute
            with monkeypatch.context() as patch:
                patch.setattr(
                    psycopg.Connection,
                    "execute",
                    lambda self, query, *rest, sent=sent, execute=execute, **more: (
                        sent.append(query) or execute(self, query, *rest, **more)
                    ),
                )
                store.search(base[:5], k, where)
            assert len(sent) == 5, (kind, k, where, sent[:2])
        # A setting for a filter or for a larger k does not stay for the next search.
        _, narrow = store.search(base[:20], 10)
        store.search(base[:1], 50)
        store.search(base[:1], 10, {"part": 1})
        assert store.search(base[:20], 10)[1].tolist() == narrow.tolist()


@pytest.mark.engine
def test_pgvector_hnsw_k_above_ef_search_returns_enough_hits(open_store):
    base = make_vectors(1500, 8, 22)
    store = open_store("pgvector-hnsw", ef_search=10)
    store.add(make_ids(1500), base)
    for k in (50, 1000, 1400):
        ids, _ = store.search(base[:1], k)
        assert sum(name is not None for name in ids[0]) >= 0.95 * k
