"""Exact neighbours: equal results of all backends, published neighbours, the cache, and loading of vector sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingExtra, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.store_benchmarks import neighbours_faiss, neighbours_gpu
from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours, neighbour_cache_path
from ragauge.store_benchmarks.results import VectorSet
from ragauge.store_benchmarks.vector_sets import generate_clustered_vectors, load_vector_set
from ragauge.stores import nearest_neighbours
from ragauge.stores.nearest_neighbours import find_nearest
from ragauge.stores.reference import ExactStore
from vector_file_writers import write_hdf5, write_vectors

METRICS = ["l2", "cosine", "ip"]
KINDS = [
    "plain",
    "duplicates",
    "grid",
    "far from the origin",
    "one outlier",
    "huge",
    "tiny",
    "sorted by distance",
    "unequal lengths",
]
BACKENDS = ["numpy", "faiss", "torch"]


def make_vectors(kind: str, n: int = 600, d: int = 12, m: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    base, queries = random.standard_normal((n, d)), random.standard_normal((m, d))
    if kind == "duplicates":
        base[n // 2 :] = base[: n - n // 2]
    elif kind == "grid":
        base, queries = random.integers(1, 4, (n, d)), random.integers(1, 4, (m, d))
    elif kind == "far from the origin":
        base, queries = base + 1000, queries + 1000
    elif kind == "one outlier":
        base[7] *= 1e9
    elif kind == "huge":
        base, queries = base * 1e18, queries * 1e18
    elif kind == "tiny":
        base, queries = base * 1e-21, queries * 1e-21
    elif kind == "sorted by distance":
        base = base[np.argsort(-np.linalg.norm(base - queries[0], axis=1))]
    elif kind == "unequal lengths":
        base = base * np.exp(random.normal(0, 4, (n, 1)))
        queries = base[:m] * 1.01
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def brute_force_distances(base, query, metric):
    """Compute all distances of a query directly, in double precision."""
    a, b = query.astype(np.float64), base.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((a - b) ** 2).sum(axis=1))
    products = (a * b).sum(axis=1)
    return -products if metric == "ip" else 1 - products / np.sqrt((a**2).sum() * (b**2).sum(axis=1))


def check_neighbours(base, queries, metric, positions, distances, allowed=None):
    """Check that neighbours are unique, sorted by distance and row, and as near as those found by brute force."""
    for query, rows, reported in zip(queries, positions, distances, strict=True):
        true_distances = brute_force_distances(base, query, metric)
        scale = np.abs(true_distances[true_distances < 1e30]).max() if metric != "cosine" else 1.0
        best = np.sort(true_distances if allowed is None else true_distances[allowed])[: len(rows)]
        np.testing.assert_allclose(reported, best, rtol=1e-9, atol=1e-12 * scale)
        np.testing.assert_allclose(true_distances[rows], best, rtol=1e-9, atol=1e-12 * scale)
        assert len(set(rows.tolist())) == len(rows)
        tied = reported[1:] == reported[:-1]
        assert (np.diff(rows)[tied] > 0).all()
        assert (np.diff(reported) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_find_nearest_matches_brute_force(kind, metric):
    base, queries = make_vectors(kind)
    for k in (1, 10, 333, 600):
        result = find_nearest(base, queries, k, metric)
        check_neighbours(base, queries, metric, *result)
        single = find_nearest(base, queries[3:4], k, metric)
        assert single[0].tolist() == result[0][3:4].tolist()
        assert single[1].tolist() == result[1][3:4].tolist()


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    d=st.integers(1, 5),
    m=st.integers(1, 12),
    k=st.integers(1, 70),
    metric=st.sampled_from(METRICS),
    kind=st.sampled_from(["plain", "duplicates", "grid"]),
)
def test_find_nearest_small_random_sets_match_brute_force(seed, n, d, m, k, metric, kind):
    base, queries = make_vectors(kind, n, d, m, seed)
    positions, distances = find_nearest(base, queries, k, metric)
    assert positions.shape == distances.shape == (m, min(k, n))
    check_neighbours(base, queries, metric, positions, distances)


@pytest.mark.parametrize("metric", METRICS)
def test_find_nearest_is_independent_of_block_sizes(metric, monkeypatch):
    base, queries = make_vectors("grid", n=900, m=40)
    result = find_nearest(base, queries, 30, metric)
    for name, value in (
        ("QUERIES_PER_BLOCK", 9),
        ("SCORES_PER_BLOCK", 500),
        ("MIN_SAMPLE_ROWS", 40),
        ("MAX_PENDING_PAIRS", 50),
    ):
        monkeypatch.setattr(nearest_neighbours, name, value)
    monkeypatch.setattr(nearest_neighbours, "TERMS_PER_BLOCK", 64)
    by_blocks = find_nearest(base, queries, 30, metric)
    assert by_blocks[0].tolist() == result[0].tolist()
    assert by_blocks[1].tolist() == result[1].tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_pair_distances_are_independent_of_other_pairs(metric):
    base, queries = make_vectors("plain", n=40, d=8193, m=1)
    query, rows = queries.astype(np.float64), np.zeros(40, np.int64)
    together = nearest_neighbours.pair_distances(base, query, rows, np.arange(40), metric)
    alone = [nearest_neighbours.pair_distances(base, query, rows[:1], np.array([i]), metric)[0] for i in range(40)]
    assert alone == together.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_find_nearest_allowed_returns_only_allowed_rows(metric):
    base, queries = make_vectors("grid")
    mask = np.arange(len(base)) % 7 == 3
    for some_queries in (queries, queries[:1]):
        result = find_nearest(base, some_queries, 10, metric, allowed=mask)
        assert mask[result[0]].all()
        check_neighbours(base, some_queries, metric, *result, allowed=mask)
        assert (
            find_nearest(base, some_queries, 10, metric, allowed=np.flatnonzero(mask))[0].tolist() == result[0].tolist()
        )
    assert find_nearest(base, queries, 10, metric, allowed=np.zeros(len(base), bool))[0].shape == (20, 0)
    assert find_nearest(base, queries, 900, metric, allowed=mask)[0].shape == (20, mask.sum())


def test_find_nearest_cosine_zero_vector_has_distance_one():
    base = np.array([[0, 0], [1, 0], [-1, 0]], np.float32)
    for count in (1, 20):
        positions, distances = find_nearest(base, np.repeat(base[1:2], count, axis=0), 3, "cosine")
        assert positions.tolist() == [[1, 0, 2]] * count
        assert distances.tolist() == [[0, 1, 2]] * count


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["faiss", "torch", "torch in 16 bits"])
def test_faiss_and_torch_searches_equal_find_nearest(backend, kind, metric):
    pytest.importorskip(backend.split()[0])
    base, queries = make_vectors(kind, n=1500)
    exact = find_nearest(base, queries, 20, metric)
    if backend == "faiss":
        result = neighbours_faiss.search_with_faiss(base, queries, 20, metric)
    else:
        result = neighbours_gpu.search_with_torch(base, queries, 20, metric, device="cpu", half="16" in backend)
    assert result[0].tolist() == exact[0].tolist()
    assert result[1].tolist() == exact[1].tolist()


@pytest.mark.parametrize("backend", ["faiss", "torch"])
def test_faiss_and_torch_candidates_suffice_except_faiss_with_ties(backend, monkeypatch):
    pytest.importorskip(backend)
    exact_searches = []
    monkeypatch.setattr(
        neighbours_faiss, "find_nearest", lambda *a, **o: exact_searches.append(len(a[1])) or find_nearest(*a, **o)
    )
    search = neighbours_faiss.search_with_faiss if backend == "faiss" else neighbours_gpu.search_with_torch
    base, queries = make_vectors("plain", n=3000, d=32)
    search(base, queries, 10, "l2")
    assert exact_searches == []
    base[:] = base[0]
    assert search(base, queries, 10, "l2")[0].tolist() == [list(range(10))] * 20
    assert exact_searches == ([20] if backend == "faiss" else [])


def test_faiss_and_torch_missing_library_raises_missing_extra(monkeypatch):
    base, queries = make_vectors("plain")
    for library, search in (("faiss", neighbours_faiss.search_with_faiss), ("torch", neighbours_gpu.search_with_torch)):
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, library, None)
            with pytest.raises(MissingExtra, match=library):
                search(base, queries, 1, "l2")
            if library == "torch":
                assert neighbours_gpu.has_gpu() is False


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "metric"),
    [("ann_bigann10k", "l2"), ("ann_glove50_10k", "l2"), ("ann_glove50_10k", "cosine"), ("ann_glove50_10k", "ip")],
)
@pytest.mark.engine
def test_find_exact_neighbours_matches_published_neighbours(shared, name, metric, backend):
    if backend != "numpy":
        pytest.importorskip(backend)
    data = load_vector_set(shared(name), metric=metric)
    published = data.neighbours
    computed = find_exact_neighbours(VectorSet("own", data.base, data.queries, metric), 100, by=backend)
    assert computed.by == ("numpy" if backend == "torch" and not neighbours_gpu.has_gpu() else backend)
    assert published.shape == computed.neighbours.shape
    for actual, expected in zip(computed.neighbours, published, strict=True):
        assert set(actual.tolist()) == set(expected.tolist())
    rows = np.repeat(np.arange(len(published)), 100)
    distances = nearest_neighbours.pair_distances(
        data.base, data.queries.astype(np.float64), rows, published.ravel(), metric
    )
    assert distances.reshape(published.shape).tolist() == computed.distances.tolist()
    assert find_exact_neighbours(data, 100).by == "given"


def make_small_set(metric: str = "l2", **changes) -> VectorSet:
    base, queries = make_vectors("plain", n=200, m=8)
    return VectorSet("small", base, queries, metric, **changes)


def test_neighbour_cache_serves_smaller_k_for_same_vectors(tmp_path, monkeypatch):
    data = make_small_set()
    stored = find_exact_neighbours(data, 20, cache=tmp_path)
    assert neighbour_cache_path(tmp_path, data, 20).exists()
    with monkeypatch.context() as patch:
        patch.setattr("ragauge.store_benchmarks.exact_neighbours.find_nearest", None)  # any new search fails
        for k in (20, 7):
            cached = find_exact_neighbours(make_small_set(), k, cache=tmp_path)
            assert cached.neighbours.tolist() == stored.neighbours[:, :k].tolist()
            assert cached.distances.tolist() == stored.distances[:, :k].tolist()
            assert cached.by == "numpy"
    assert len(find_exact_neighbours(data, 21, cache=tmp_path).neighbours[0]) == 21
    other = VectorSet("small", data.base.copy(), data.queries, "l2")
    other.base[3, 3] += 1
    for changed in (other, make_small_set("ip")):
        computed = find_exact_neighbours(changed, 20)
        cached = find_exact_neighbours(changed, 20, cache=tmp_path)
        assert cached.neighbours.tolist() == computed.neighbours.tolist()
        assert neighbour_cache_path(tmp_path, changed, 20) != neighbour_cache_path(tmp_path, data, 20)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", None])
def test_neighbour_cache_damaged_file_is_rebuilt(tmp_path, content):
    data = make_small_set()
    exact = find_exact_neighbours(data, 5, cache=tmp_path)
    cache_path = neighbour_cache_path(tmp_path, data, 5)
    if content is None:
        body = bytearray(cache_path.read_bytes())
        body[200] ^= 255
        content = bytes(body)
    cache_path.write_bytes(content)
    assert find_exact_neighbours(data, 5, cache=tmp_path).neighbours.tolist() == exact.neighbours.tolist()
    assert find_exact_neighbours(data, 5, cache=tmp_path).distances.tolist() == exact.distances.tolist()
    assert [path.name for path in cache_path.parent.iterdir()] == [cache_path.name]


def test_find_exact_neighbours_unwritable_cache_is_ignored(tmp_path):
    (tmp_path / "truth").write_text("a file instead of a folder")
    result = find_exact_neighbours(make_small_set(), 5, cache=tmp_path)
    assert result.neighbours.tolist() == find_exact_neighbours(make_small_set(), 5).neighbours.tolist()


def test_neighbour_cache_wrong_content_is_rebuilt(tmp_path):
    data = make_small_set()
    exact = find_exact_neighbours(data, 5, cache=tmp_path)
    cache_path = neighbour_cache_path(tmp_path, data, 5)
    rows, distances = exact.neighbours, exact.distances

    def with_value(array, row, column, value):
        array = array.copy()
        array[row, column] = value
        return array

    for wrong_rows, wrong_distances, by in (
        (with_value(rows, 2, 3, 200), distances, "numpy"),
        (with_value(rows, 2, 3, -1), distances, "numpy"),
        (with_value(rows, 2, 3, rows[2, 2]), distances, "numpy"),
        (with_value(rows, 2, 3, rows[2, 4]), distances, "numpy"),
        (rows, with_value(distances, 2, 3, distances[2, 3] * (1 + 1e-6)), "numpy"),
        (rows, with_value(distances, 2, 3, np.nan), "numpy"),
        (rows[:, ::-1], distances[:, ::-1], "numpy"),
        (rows, distances, "an oracle"),
    ):
        np.savez(cache_path, neighbours=wrong_rows, distances=wrong_distances, by=np.array(by))
        rebuilt = find_exact_neighbours(data, 5, cache=tmp_path)
        assert rebuilt.neighbours.tolist() == rows.tolist()
        assert rebuilt.distances.tolist() == distances.tolist()
        assert rebuilt.by == "numpy"
        with np.load(cache_path) as stored:
            assert stored["neighbours"].tolist() == rows.tolist()
    np.savez(cache_path, neighbours=rows, distances=distances * (1 + 1e-14), by=np.array("torch"))
    assert find_exact_neighbours(data, 5, cache=tmp_path).by == "torch"


def test_published_neighbours_large_data_are_checked_by_sample(monkeypatch):
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MAX_FULL_CHECK_MULTIPLICATIONS", 0)
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.SAMPLED_QUERIES", 3)
    rows = find_exact_neighbours(make_small_set(), 10).neighbours
    accepted = find_exact_neighbours(make_small_set(neighbours=rows), 10)
    assert accepted.by == "given (3 of 8 queries checked)"
    assert accepted.neighbours.tolist() == rows.tolist()
    # Exact neighbours are computed for queries 0, 3 and 7 only, but invalid rows are found in every query.
    repeated, outside = rows.copy(), rows.copy()
    repeated[5, 1], outside[6, 0] = repeated[5, 0], 200
    for invalid, message in (
        (repeated, r"query 5 contain a row more than once \(so do those of 1 of 8 queries\)"),
        (outside, "query 6 contain row 200, and the base has 200 rows"),
    ):
        with pytest.raises(BadInput, match=message):
            find_exact_neighbours(make_small_set(neighbours=invalid), 10)


@pytest.mark.parametrize("in_full", [True, False])
def test_published_neighbours_invalid_raises_error(monkeypatch, in_full):
    if not in_full:
        monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MAX_FULL_CHECK_MULTIPLICATIONS", 0)
    exact = find_exact_neighbours(make_small_set(), 10)
    assert exact.by == "numpy"
    rows = exact.neighbours
    shuffled = np.random.default_rng(0).permuted(rows, axis=1)
    accepted = find_exact_neighbours(make_small_set(neighbours=shuffled), 10)
    assert accepted.by == "given"
    assert accepted.neighbours.tolist() == rows.tolist()
    assert accepted.distances.tolist() == exact.distances.tolist()
    farther, repeated, outside = rows.copy(), rows.copy(), rows.copy()
    farther[4, 2] = find_exact_neighbours(make_small_set(), 200).neighbours[4, 150]
    repeated[5, 1] = repeated[5, 0]
    outside[6, 0] = 200
    for invalid, message in (
        (farther, "query 4 are not the nearest: that of rank"),
        (repeated, "query 5"),
        (outside, "query 6 contain row 200, and the base has 200 rows"),
        (rows[:5], "expected published neighbours of 8 queries, got 5"),
    ):
        with pytest.raises(BadInput, match=message):
            find_exact_neighbours(make_small_set(neighbours=invalid), 10)
    with pytest.raises(BadInput, match="they are the nearest by ip; use that metric"):
        find_exact_neighbours(make_small_set(neighbours=find_exact_neighbours(make_small_set("ip"), 10).neighbours), 10)
    assert find_exact_neighbours(make_small_set(neighbours=rows[:, :5]), 10).by == "numpy"


def test_published_neighbours_tied_within_rounding_are_accepted():
    base = np.array([[1, 0], [1 + 1e-7, 0], [9, 9]], np.float32)
    data = VectorSet("close", base, np.zeros((1, 2), np.float32), "l2", neighbours=np.array([[1]]))
    assert find_exact_neighbours(data, 1).by == "given"


def test_find_exact_neighbours_progress_counts_queries_and_can_abort(monkeypatch):
    monkeypatch.setattr(nearest_neighbours, "QUERIES_PER_BLOCK", 10)
    monkeypatch.setattr(nearest_neighbours, "SCORES_PER_BLOCK", 2000)
    base, queries = make_vectors("plain", m=25)
    data, reports = VectorSet("slow", base, queries, "l2"), []
    find_exact_neighbours(data, 5, progress=lambda step: reports.append((step.done, step.total)))
    assert reports == sorted(reports)
    assert reports[-1] == (25, 25)
    assert len(reports) > 3

    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_exact_neighbours(data, 5, progress=interrupt)


def test_find_exact_neighbours_invalid_arguments_raise_error():
    for data, k, options, error in (
        (make_small_set(), 0, {}, BadInput),
        (make_small_set(), 5, {"by": "magic"}, UnknownName),
        (make_small_set("manhattan"), 5, {}, UnknownName),
        (VectorSet("none", np.empty((0, 3), np.float32), np.empty((1, 3), np.float32), "l2"), 5, {}, BadInput),
    ):
        with pytest.raises(error):
            find_exact_neighbours(data, k, **options)
    assert find_exact_neighbours(make_small_set(), 1000).neighbours.shape == (8, 200)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_vectors_with_nan_or_infinity_raise_error_with_row(metric, value):
    random = np.random.default_rng(0)
    # The error names the first of two bad rows; those of the base are in the second block of 65,536 rows.
    base, queries = random.standard_normal((65_600, 3)), random.standard_normal((9, 3))
    for kind, matrix, bad_rows in (("vector", base, (65_590, 65_595)), ("query", queries, (3, 5))):
        original = matrix.copy()
        for row in bad_rows:
            matrix[row, 1] = value
        data = VectorSet("random", base, queries, metric)
        for check in (lambda data: find_exact_neighbours(data, 2), load_vector_set):
            with pytest.raises(BadInput, match=f"^random: {kind} {bad_rows[0]} has a NaN"):
                check(data)
        matrix[:] = original
    # Vectors beyond `max_vectors` are not checked.
    base[2000:] = np.nan
    assert (
        len(load_vector_set(VectorSet("random", base.astype(np.float32), queries, metric), max_vectors=2000).base)
        == 2000
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("m", [4, 9])
def test_find_nearest_nan_query_raises_error(metric, m):
    random = np.random.default_rng(0)
    base, queries = random.standard_normal((101, 6)).astype(np.float32), random.standard_normal((m, 6))
    queries[3, 0] = np.nan
    with pytest.raises(BadInput, match="query 3 has no finite distance to 5 vectors"):
        find_nearest(base, queries, 5, metric)


def test_find_nearest_nan_query_error_has_overall_index(monkeypatch):
    monkeypatch.setattr(nearest_neighbours, "QUERIES_PER_BLOCK", 4)
    base, queries = make_vectors("plain", n=50)[0], make_vectors("plain", n=10)[0]
    queries[6] = np.nan
    with pytest.raises(BadInput, match="query 6 has"):
        find_nearest(base, queries, 3, "l2")


def test_exact_store_delete_update_and_reopen_match_find_nearest(tmp_path):
    base, queries = make_vectors("duplicates", n=100)
    ids = [f"d{i}" for i in range(100)]
    store = ExactStore(metric="l2", path=str(tmp_path / "store"))
    store.add(ids[:60], base[:60], [{"even": i % 2 == 0} for i in range(60)])
    store.add(ids[60:], base[60:], [{"even": i % 2 == 0} for i in range(60, 100)])
    assert store.search(base[:3], 2)[0].tolist() == [["d0", "d50"], ["d1", "d51"], ["d2", "d52"]]
    deleted = [0, 51, *range(10, 20)]
    for start in range(0, len(deleted), 5):
        store.delete([ids[i] for i in deleted[start : start + 5]])
    store.update(["d2"], base[:1])
    base = base.copy()
    base[2] = base[0]
    remaining = np.setdiff1d(np.arange(100), deleted)

    def check_store(checked_store):
        rows, true_distances = find_nearest(base, queries, 9, "l2", allowed=remaining)
        returned, distances = checked_store.search(queries, 9)
        assert returned.tolist() == [[f"d{i}" for i in row] for row in rows]
        np.testing.assert_allclose(distances, true_distances, rtol=1e-6)
        single, _ = checked_store.search(queries[:1], 1000)
        assert [name for name in single[0] if name] == [
            f"d{i}" for i in find_nearest(base, queries, 999, "l2", allowed=remaining)[0][0]
        ]
        for even in (True, False):
            matching = remaining[(remaining % 2 == 0) == even]
            rows, _ = find_nearest(base, queries, 9, "l2", allowed=matching)
            assert checked_store.search(queries, 9, where={"even": even})[0].tolist() == [
                [f"d{i}" for i in row] for row in rows
            ]
        assert len(checked_store) == len(remaining)

    check_store(store)
    store.save()
    check_store(store)
    store.close()
    reopened = ExactStore(metric="l2", path=str(tmp_path / "store"))
    check_store(reopened)
    reopened.delete([ids[i] for i in remaining[:50]])
    remaining = remaining[50:]
    check_store(reopened)
    reopened.add(["d0"], base[:1])
    assert reopened.search(base[:1], 1)[0].tolist() == [["d0"]]
    with pytest.raises(BadInput, match="no folder"):
        ExactStore().save()
    (tmp_path / "store" / "vectors.npy").write_bytes(b"no")
    with pytest.raises(BadInput, match="cannot be read"):
        ExactStore(metric="l2", path=str(tmp_path / "store"))


def write_folder(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, matrix in files.items():
        write_vectors(folder / name.replace("__", "."), matrix)
    return folder


def test_load_vector_set_folder_reads_neighbours_by_metric(tmp_path, monkeypatch):
    base, queries = make_vectors("plain", n=50, m=5)
    neighbours = {metric: find_nearest(base, queries, 10, metric)[0] for metric in METRICS}
    folder = write_folder(tmp_path / "set", sift_base__fvecs=base, sift_query__fvecs=queries, sift_learn__fvecs=base)
    assert load_vector_set(folder).neighbours is None
    write_vectors(folder / "sift_groundtruth.ivecs", neighbours["l2"])
    data = load_vector_set(folder)
    assert (data.name, data.metric) == ("set", "l2")
    assert data.neighbours.tolist() == neighbours["l2"].tolist()
    assert load_vector_set(folder, metric="cosine").neighbours is None
    write_vectors(folder / "groundtruth.cosine.ivecs.gz", neighbours["cosine"])
    assert load_vector_set(folder).metric == "cosine"
    assert load_vector_set(folder, metric="cosine").neighbours.tolist() == neighbours["cosine"].tolist()
    write_vectors(folder / "groundtruth.dot.ivecs", neighbours["ip"])
    with pytest.raises(BadInput, match=r"metrics: cosine, ip[\s\S]*--metric cosine"):
        load_vector_set(folder)
    part = load_vector_set(folder, metric="ip", max_queries=3)
    assert part.neighbours.tolist() == neighbours["ip"][:3].tolist()
    part = load_vector_set(folder, metric="ip", max_vectors=20)
    assert part.neighbours is None
    np.testing.assert_array_equal(part.base, base[:20])
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path))
    assert load_vector_set("set", metric="l2").neighbours.tolist() == neighbours["l2"].tolist()


def test_load_vector_set_inconsistent_folder_raises_error(tmp_path):
    base, queries = make_vectors("plain", n=50, m=5)
    folder = write_folder(tmp_path / "set", base__fvecs=base, query__fvecs=queries[:, :3])
    with pytest.raises(BadInput, match="12 dimensions, the queries 3"):
        load_vector_set(folder)
    write_folder(folder, query__fvecs=queries, groundtruth__ivecs=np.zeros((4, 2), int))
    with pytest.raises(BadInput, match="4 rows of int32, not the neighbours of 5 queries"):
        load_vector_set(folder)
    write_folder(folder, base__npy=base)
    with pytest.raises(BadInput, match=r"several files could be the vectors: base\.fvecs, base\.npy"):
        load_vector_set(folder)


def test_load_vector_set_single_file_holds_out_queries(tmp_path):
    base, _ = make_vectors("plain", n=100)
    write_vectors(tmp_path / "vectors.parquet", base, [f"d{i}" for i in range(100)])
    data = load_vector_set(tmp_path / "vectors.parquet", max_queries=15, seed=1)
    assert (data.base.shape, data.queries.shape, data.metric) == ((85, 12), (15, 12), "l2")
    for ids, rows in ((data.ids, data.base), (data.query_ids, data.queries)):
        np.testing.assert_array_equal(rows, base[[int(name[1:]) for name in ids]])
    assert not set(data.ids) & set(data.query_ids)
    assert data.notes == ["15 of 100 rows were held out as queries (seed 1)"]
    assert load_vector_set(tmp_path / "vectors.parquet", max_queries=15, seed=2).query_ids != data.query_ids
    assert len(load_vector_set(tmp_path / "vectors.parquet").queries) == 10
    part = load_vector_set(tmp_path / "vectors.parquet", max_vectors=40, max_queries=5)
    assert (len(part.base), len(part.queries)) == (40, 5)
    with pytest.raises(BadInput, match="too few for 100 queries"):
        load_vector_set(tmp_path / "vectors.parquet", max_queries=100)
    with pytest.raises(BadInput, match="no such file"):
        load_vector_set(tmp_path / "nowhere.fvecs")


def test_load_vector_set_reads_hdf5_and_byte_vectors(tmp_path):
    pytest.importorskip("h5py")
    data = make_small_set()
    write_hdf5(tmp_path / "a.hdf5", data, find_exact_neighbours(data, 10))
    assert find_exact_neighbours(load_vector_set(tmp_path / "a.hdf5"), 10).by == "given"
    write_vectors(tmp_path / "b.bvecs", np.arange(40).reshape(20, 2))
    byte_data = load_vector_set(tmp_path / "b.bvecs", metric="ip")
    assert byte_data.base.dtype == byte_data.queries.dtype == np.float32
    np.save(tmp_path / "c.npy", np.full((20, 2), 1e300))
    with pytest.raises(BadInput, match="out of the range of float32"):
        load_vector_set(tmp_path / "c.npy")


class LetterEmbedder:
    """Embedder that counts the letters a, b and c, so that its vectors can be worked out by hand."""

    name = "letters-for-tests"

    def embed(self, texts):
        return np.array([[text.count(letter) for letter in "abc"] for text in texts], np.float32).reshape(-1, 3)


def test_load_vector_set_embeds_dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    texts = {"d1": "aab", "d2": "zzz", "d3": "ccc", "d4": "bb"}
    documents = [Document(name, text) for name, text in texts.items()]
    judgments = Judgments({"q1": {"d1": 1}, "q2": {"d3": 1}})
    dataset = Dataset("letters", documents, {"q1": "a", "q2": "c", "q3": "?"}, judgments)
    data = load_vector_set(dataset, embedder=LetterEmbedder())
    assert data.metric == "cosine"
    assert list(data.ids) == ["d1", "d3", "d4"]
    assert list(data.query_ids) == ["q1", "q2"]
    assert data.base.tolist() == [[2, 1, 0], [0, 0, 3], [0, 2, 0]]
    assert data.judgments is judgments
    assert data.notes == [
        "the vectors are those of letters-for-tests",
        "1 vector is all zeros: without a cosine, left out",
        "1 query is all zeros: without a cosine, left out",
    ]
    limited = load_vector_set(dataset, embedder=LetterEmbedder(), metric="l2", max_vectors=2, max_queries=1)
    assert (list(limited.ids), list(limited.query_ids)) == (["d1", "d2"], ["q1"])
    assert limited.judgments.nested == {"q1": {"d1": 1}}
    assert limited.judgments.source == judgments.source
    assert limited.notes[1] == "only the first 2 of 4 documents are indexed"
    with pytest.raises(UnknownName, match="unknown embedder"):
        load_vector_set(dataset, embedder="lettres")
    with pytest.raises(UnknownName, match="unknown dataset"):
        load_vector_set("no such set")


def test_load_vector_set_keeps_judgments_of_kept_queries_only():
    base, queries = make_vectors("plain", n=50, m=4)
    queries[1] = 0
    names = ["q0", "q1", "q2", "q3"]
    judgments = Judgments(
        {name: {"d1": 1} for name in [*names, "elsewhere"]},
        subtopics={name: {"1\td1": 1} for name in names},
        distances={name: [0.5] for name in names},
        source="people",
    )
    ids = [f"d{i}" for i in range(50)]
    data = VectorSet("judged", base, queries, "cosine", ids=ids, query_ids=names, judgments=judgments)
    for loaded, kept in (
        (load_vector_set(data), ["q0", "q2", "q3"]),  # q1 is all zeros and has no cosine
        (load_vector_set(data, max_queries=2), ["q0"]),
        (load_vector_set(data, metric="l2", max_queries=3), ["q0", "q1", "q2"]),
    ):
        assert list(loaded.query_ids) == kept
        assert list(loaded.judgments.nested) == kept
        assert list(loaded.judgments.subtopics) == list(loaded.judgments.distances) == kept
        assert loaded.judgments.source == "people"
    assert list(data.judgments.nested) == [*names, "elsewhere"]


def test_load_vector_set_clustered_is_reproducible_by_seed():
    data = load_vector_set("clustered:n=500,d=8,clusters=4,queries=30", seed=3)
    assert (data.base.shape, data.queries.shape, data.metric) == ((500, 8), (30, 8), "l2")
    assert data.hash == load_vector_set("clustered:n=500,d=8,clusters=4,queries=30,seed=3").hash
    assert data.hash != load_vector_set("clustered:n=500,d=8,clusters=4,queries=30").hash
    larger = load_vector_set("clustered:n=500,d=8,clusters=4", seed=3, max_queries=60)
    np.testing.assert_array_equal(larger.base, data.base)
    np.testing.assert_array_equal(
        load_vector_set("clustered:d=8,clusters=4", seed=3, max_vectors=100).base.shape, (100, 8)
    )
    # Clusters are much narrower than the gaps between them, so vectors nearer than 0.1 are in the same cluster.
    # The largest of the 4 has a share of about 1 / (1 + 1/2 + 1/3 + 1/4) = 12/25.
    tight = generate_clustered_vectors(n=2000, d=8, clusters=4, spread=0.001)
    is_near = np.linalg.norm(tight.base[:, None] - tight.base[None, :50], axis=2) < 0.1
    sizes = sorted({int(column.sum()) for column in is_near.T}, reverse=True)
    assert sum(sizes) == 2000
    assert sizes[0] == pytest.approx(2000 * 12 / 25, rel=0.1)
    for invalid in ("clustered:m=3", "clustered:n=x", "clustered:n=0", "clustered:spread=-1"):
        with pytest.raises(BadInput):
            load_vector_set(invalid)


def test_load_vector_set_duplicate_vectors_are_noted():
    base, _ = make_vectors("duplicates", n=60)
    base[5] = base[4]
    base[7, 0] = 0.0
    with_negative_zero = base[7:8].copy()
    with_negative_zero[0, 0] = -0.0
    data = load_vector_set(VectorSet("random", base, np.concatenate([base[:2], with_negative_zero]), "l2"))
    assert data.notes == [
        "29 vectors are equal to an earlier one: which of them is found is arbitrary",
        "3 queries are also in the base: rank 1 is the query itself",
    ]
    assert load_vector_set(VectorSet("random", base[8:30], base[:8], "l2")).notes == []
    with pytest.raises(BadInput, match="all queries are zeros"):
        load_vector_set(VectorSet("random", base, base[:1] * 0, "cosine"))
    converted = load_vector_set(
        VectorSet("random", base, base[:1], "l2", neighbours=np.zeros((1, 1), int)), metric="cosine"
    )
    assert (converted.metric, converted.neighbours) == ("cosine", None)


def test_load_vector_set_real_collections_have_expected_notes(shared):
    data = load_vector_set(shared("ann_bigann10k"))
    assert data.notes == ["100 queries are also in the base: rank 1 is the query itself"]
    assert find_exact_neighbours(data, 10).neighbours[:, 0].tolist() == list(range(100))
    with pytest.raises(BadInput, match="metrics: cosine, ip, l2"):
        load_vector_set(shared("ann_glove50_10k"))
