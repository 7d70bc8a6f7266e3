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
    "twins",
    "grid",
    "far from the origin",
    "one outlier",
    "huge",
    "tiny",
    "coming nearer",
    "of all lengths",
]
WAYS = ["numpy", "faiss", "torch"]


def made(kind: str, n: int = 600, d: int = 12, m: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    base, queries = random.standard_normal((n, d)), random.standard_normal((m, d))
    if kind == "twins":
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
    elif kind == "coming nearer":
        base = base[np.argsort(-np.linalg.norm(base - queries[0], axis=1))]
    elif kind == "of all lengths":
        base = base * np.exp(random.normal(0, 4, (n, 1)))
        queries = base[:m] * 1.01
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def brute(base, query, metric):
    """Compute all distances of a query directly, in double precision."""
    a, b = query.astype(np.float64), base.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((a - b) ** 2).sum(axis=1))
    products = (a * b).sum(axis=1)
    return -products if metric == "ip" else 1 - products / np.sqrt((a**2).sum() * (b**2).sum(axis=1))


def agree(base, queries, metric, positions, distances, allowed=None):
    """Check that neighbours are unique, sorted by distance and row, and as near as those found by brute force."""
    for query, near, far in zip(queries, positions, distances, strict=True):
        true = brute(base, query, metric)
        scale = np.abs(true[true < 1e30]).max() if metric != "cosine" else 1.0
        best = np.sort(true if allowed is None else true[allowed])[: len(near)]
        np.testing.assert_allclose(far, best, rtol=1e-9, atol=1e-12 * scale)
        np.testing.assert_allclose(true[near], best, rtol=1e-9, atol=1e-12 * scale)
        assert len(set(near.tolist())) == len(near)
        tied = far[1:] == far[:-1]
        assert (np.diff(near)[tied] > 0).all()
        assert (np.diff(far) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_find_nearest_matches_brute_force(kind, metric):
    base, queries = made(kind)
    for k in (1, 10, 333, 600):
        many = find_nearest(base, queries, k, metric)
        agree(base, queries, metric, *many)
        one = find_nearest(base, queries[3:4], k, metric)
        assert one[0].tolist() == many[0][3:4].tolist()
        assert one[1].tolist() == many[1][3:4].tolist()


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    d=st.integers(1, 5),
    m=st.integers(1, 12),
    k=st.integers(1, 70),
    metric=st.sampled_from(METRICS),
    kind=st.sampled_from(["plain", "twins", "grid"]),
)
def test_find_nearest_small_random_sets_match_brute_force(seed, n, d, m, k, metric, kind):
    base, queries = made(kind, n, d, m, seed)
    positions, distances = find_nearest(base, queries, k, metric)
    assert positions.shape == distances.shape == (m, min(k, n))
    agree(base, queries, metric, positions, distances)


@pytest.mark.parametrize("metric", METRICS)
def test_find_nearest_is_independent_of_block_sizes(metric, monkeypatch):
    base, queries = made("grid", n=900, m=40)
    whole = find_nearest(base, queries, 30, metric)
    for name, value in (
        ("QUERIES_PER_BLOCK", 9),
        ("SCORES_PER_BLOCK", 500),
        ("MIN_SAMPLE_ROWS", 40),
        ("MAX_PENDING_PAIRS", 50),
    ):
        monkeypatch.setattr(nearest_neighbours, name, value)
    monkeypatch.setattr(nearest_neighbours, "TERMS_PER_BLOCK", 64)
    parts = find_nearest(base, queries, 30, metric)
    assert parts[0].tolist() == whole[0].tolist()
    assert parts[1].tolist() == whole[1].tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_pair_distances_are_independent_of_other_pairs(metric):
    base, queries = made("plain", n=40, d=8193, m=1)
    asked, rows = queries.astype(np.float64), np.zeros(40, np.int64)
    company = nearest_neighbours.pair_distances(base, asked, rows, np.arange(40), metric)
    alone = [nearest_neighbours.pair_distances(base, asked, rows[:1], np.array([i]), metric)[0] for i in range(40)]
    assert alone == company.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_find_nearest_allowed_returns_only_allowed_rows(metric):
    base, queries = made("grid")
    mask = np.arange(len(base)) % 7 == 3
    for some in (queries, queries[:1]):
        found = find_nearest(base, some, 10, metric, allowed=mask)
        assert mask[found[0]].all()
        agree(base, some, metric, *found, allowed=mask)
        assert find_nearest(base, some, 10, metric, allowed=np.flatnonzero(mask))[0].tolist() == found[0].tolist()
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
@pytest.mark.parametrize("way", ["faiss", "torch", "torch in 16 bits"])
def test_faiss_and_torch_searches_equal_find_nearest(way, kind, metric):
    pytest.importorskip(way.split()[0])
    base, queries = made(kind, n=1500)
    exact = find_nearest(base, queries, 20, metric)
    if way == "faiss":
        found = neighbours_faiss.search_with_faiss(base, queries, 20, metric)
    else:
        found = neighbours_gpu.search_with_torch(base, queries, 20, metric, device="cpu", half="16" in way)
    assert found[0].tolist() == exact[0].tolist()
    assert found[1].tolist() == exact[1].tolist()


@pytest.mark.parametrize("way", ["faiss", "torch"])
def test_faiss_and_torch_candidates_suffice_except_faiss_with_ties(way, monkeypatch):
    pytest.importorskip(way)
    again = []
    monkeypatch.setattr(
        neighbours_faiss, "find_nearest", lambda *a, **o: again.append(len(a[1])) or find_nearest(*a, **o)
    )
    find = neighbours_faiss.search_with_faiss if way == "faiss" else neighbours_gpu.search_with_torch
    base, queries = made("plain", n=3000, d=32)
    find(base, queries, 10, "l2")
    assert again == []
    base[:] = base[0]
    assert find(base, queries, 10, "l2")[0].tolist() == [list(range(10))] * 20
    assert again == ([20] if way == "faiss" else [])


def test_faiss_and_torch_missing_library_raises_missing_extra(monkeypatch):
    base, queries = made("plain")
    for library, find in (("faiss", neighbours_faiss.search_with_faiss), ("torch", neighbours_gpu.search_with_torch)):
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, library, None)
            with pytest.raises(MissingExtra, match=library):
                find(base, queries, 1, "l2")
            if library == "torch":
                assert neighbours_gpu.has_gpu() is False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "metric"),
    [("ann_bigann10k", "l2"), ("ann_glove50_10k", "l2"), ("ann_glove50_10k", "cosine"), ("ann_glove50_10k", "ip")],
)
@pytest.mark.engine
def test_find_exact_neighbours_matches_published_neighbours(shared, name, metric, way):
    if way != "numpy":
        pytest.importorskip(way)
    data = load_vector_set(shared(name), metric=metric)
    given = data.neighbours
    own = find_exact_neighbours(VectorSet("own", data.base, data.queries, metric), 100, by=way)
    assert own.by == ("numpy" if way == "torch" and not neighbours_gpu.has_gpu() else way)
    assert given.shape == own.neighbours.shape
    for mine, theirs in zip(own.neighbours, given, strict=True):
        assert set(mine.tolist()) == set(theirs.tolist())
    rows = np.repeat(np.arange(len(given)), 100)
    far = nearest_neighbours.pair_distances(data.base, data.queries.astype(np.float64), rows, given.ravel(), metric)
    assert far.reshape(given.shape).tolist() == own.distances.tolist()
    assert find_exact_neighbours(data, 100).by == "given"


def small(metric: str = "l2", **changes) -> VectorSet:
    base, queries = made("plain", n=200, m=8)
    return VectorSet("small", base, queries, metric, **changes)


def test_neighbour_cache_serves_smaller_k_for_same_vectors(tmp_path, monkeypatch):
    data = small()
    deep = find_exact_neighbours(data, 20, cache=tmp_path)
    assert neighbour_cache_path(tmp_path, data, 20).exists()
    with monkeypatch.context() as patch:
        patch.setattr("ragauge.store_benchmarks.exact_neighbours.find_nearest", None)  # any new search fails
        for k in (20, 7):
            again = find_exact_neighbours(small(), k, cache=tmp_path)
            assert again.neighbours.tolist() == deep.neighbours[:, :k].tolist()
            assert again.distances.tolist() == deep.distances[:, :k].tolist()
            assert again.by == "numpy"
    assert len(find_exact_neighbours(data, 21, cache=tmp_path).neighbours[0]) == 21
    other = VectorSet("small", data.base.copy(), data.queries, "l2")
    other.base[3, 3] += 1
    for changed in (other, small("ip")):
        fresh = find_exact_neighbours(changed, 20)
        kept = find_exact_neighbours(changed, 20, cache=tmp_path)
        assert kept.neighbours.tolist() == fresh.neighbours.tolist()
        assert neighbour_cache_path(tmp_path, changed, 20) != neighbour_cache_path(tmp_path, data, 20)


@pytest.mark.parametrize("harm", [b"", b"PK\x03\x04 no archive", None])
def test_neighbour_cache_damaged_file_is_rebuilt(tmp_path, harm):
    data = small()
    right = find_exact_neighbours(data, 5, cache=tmp_path)
    file = neighbour_cache_path(tmp_path, data, 5)
    if harm is None:
        body = bytearray(file.read_bytes())
        body[200] ^= 255
        harm = bytes(body)
    file.write_bytes(harm)
    assert find_exact_neighbours(data, 5, cache=tmp_path).neighbours.tolist() == right.neighbours.tolist()
    assert find_exact_neighbours(data, 5, cache=tmp_path).distances.tolist() == right.distances.tolist()
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_find_exact_neighbours_unwritable_cache_is_ignored(tmp_path):
    (tmp_path / "truth").write_text("a file instead of a folder")
    found = find_exact_neighbours(small(), 5, cache=tmp_path)
    assert found.neighbours.tolist() == find_exact_neighbours(small(), 5).neighbours.tolist()


def test_neighbour_cache_wrong_content_is_rebuilt(tmp_path):
    data = small()
    right = find_exact_neighbours(data, 5, cache=tmp_path)
    file = neighbour_cache_path(tmp_path, data, 5)
    near, far = right.neighbours, right.distances

    def changed(array, row, column, value):
        array = array.copy()
        array[row, column] = value
        return array

    for neighbours, distances, by in (
        (changed(near, 2, 3, 200), far, "numpy"),
        (changed(near, 2, 3, -1), far, "numpy"),
        (changed(near, 2, 3, near[2, 2]), far, "numpy"),
        (changed(near, 2, 3, near[2, 4]), far, "numpy"),
        (near, changed(far, 2, 3, far[2, 3] * (1 + 1e-6)), "numpy"),
        (near, changed(far, 2, 3, np.nan), "numpy"),
        (near[:, ::-1], far[:, ::-1], "numpy"),
        (near, far, "an oracle"),
    ):
        np.savez(file, neighbours=neighbours, distances=distances, by=np.array(by))
        again = find_exact_neighbours(data, 5, cache=tmp_path)
        assert again.neighbours.tolist() == near.tolist()
        assert again.distances.tolist() == far.tolist()
        assert again.by == "numpy"
        with np.load(file) as kept:
            assert kept["neighbours"].tolist() == near.tolist()
    np.savez(file, neighbours=near, distances=far * (1 + 1e-14), by=np.array("torch"))
    assert find_exact_neighbours(data, 5, cache=tmp_path).by == "torch"


def test_published_neighbours_large_data_are_checked_by_sample(monkeypatch):
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MAX_FULL_CHECK_MULTIPLICATIONS", 0)
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.SAMPLED_QUERIES", 3)
    near = find_exact_neighbours(small(), 10).neighbours
    believed = find_exact_neighbours(small(neighbours=near), 10)
    assert believed.by == "given (3 of 8 queries checked)"
    assert believed.neighbours.tolist() == near.tolist()
    # Exact neighbours are computed for queries 0, 3 and 7 only, but invalid rows are found in every query.
    twice, outside = near.copy(), near.copy()
    twice[5, 1], outside[6, 0] = twice[5, 0], 200
    for wrong, words in (
        (twice, r"query 5 contain a row more than once \(so do those of 1 of 8 queries\)"),
        (outside, "query 6 contain row 200, and the base has 200 rows"),
    ):
        with pytest.raises(BadInput, match=words):
            find_exact_neighbours(small(neighbours=wrong), 10)


@pytest.mark.parametrize("in_full", [True, False])
def test_published_neighbours_invalid_raises_error(monkeypatch, in_full):
    if not in_full:
        monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MAX_FULL_CHECK_MULTIPLICATIONS", 0)
    right = find_exact_neighbours(small(), 10)
    assert right.by == "numpy"
    near = right.neighbours
    shuffled = np.random.default_rng(0).permuted(near, axis=1)
    believed = find_exact_neighbours(small(neighbours=shuffled), 10)
    assert believed.by == "given"
    assert believed.neighbours.tolist() == near.tolist()
    assert believed.distances.tolist() == right.distances.tolist()
    farther, twice, outside = near.copy(), near.copy(), near.copy()
    farther[4, 2] = find_exact_neighbours(small(), 200).neighbours[4, 150]
    twice[5, 1] = twice[5, 0]
    outside[6, 0] = 200
    for wrong, words in (
        (farther, "query 4 are not the nearest: that of rank"),
        (twice, "query 5"),
        (outside, "query 6 contain row 200, and the base has 200 rows"),
        (near[:5], "expected published neighbours of 8 queries, got 5"),
    ):
        with pytest.raises(BadInput, match=words):
            find_exact_neighbours(small(neighbours=wrong), 10)
    with pytest.raises(BadInput, match="they are the nearest by ip; use that metric"):
        find_exact_neighbours(small(neighbours=find_exact_neighbours(small("ip"), 10).neighbours), 10)
    assert find_exact_neighbours(small(neighbours=near[:, :5]), 10).by == "numpy"


def test_published_neighbours_tied_within_rounding_are_accepted():
    base = np.array([[1, 0], [1 + 1e-7, 0], [9, 9]], np.float32)
    data = VectorSet("close", base, np.zeros((1, 2), np.float32), "l2", neighbours=np.array([[1]]))
    assert find_exact_neighbours(data, 1).by == "given"


def test_find_exact_neighbours_progress_counts_queries_and_can_abort(monkeypatch):
    monkeypatch.setattr(nearest_neighbours, "QUERIES_PER_BLOCK", 10)
    monkeypatch.setattr(nearest_neighbours, "SCORES_PER_BLOCK", 2000)
    base, queries = made("plain", m=25)
    data, heard = VectorSet("slow", base, queries, "l2"), []
    find_exact_neighbours(data, 5, progress=lambda step: heard.append((step.done, step.total)))
    assert heard == sorted(heard)
    assert heard[-1] == (25, 25)
    assert len(heard) > 3

    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_exact_neighbours(data, 5, progress=stop)


def test_find_exact_neighbours_invalid_arguments_raise_error():
    for data, k, options, error in (
        (small(), 0, {}, BadInput),
        (small(), 5, {"by": "magic"}, UnknownName),
        (small("manhattan"), 5, {}, UnknownName),
        (VectorSet("none", np.empty((0, 3), np.float32), np.empty((1, 3), np.float32), "l2"), 5, {}, BadInput),
    ):
        with pytest.raises(error):
            find_exact_neighbours(data, k, **options)
    assert find_exact_neighbours(small(), 1000).neighbours.shape == (8, 200)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_vectors_with_nan_or_infinity_raise_error_with_row(metric, value):
    random = np.random.default_rng(0)
    # The error names the first of two bad rows; those of the base are in the second block of 65,536 rows.
    base, queries = random.standard_normal((65_600, 3)), random.standard_normal((9, 3))
    for what, rows, places in (("vector", base, (65_590, 65_595)), ("query", queries, (3, 5))):
        before = rows.copy()
        for place in places:
            rows[place, 1] = value
        data = VectorSet("odd", base, queries, metric)
        for ask in (lambda data: find_exact_neighbours(data, 2), load_vector_set):
            with pytest.raises(BadInput, match=f"^odd: {what} {places[0]} has a NaN"):
                ask(data)
        rows[:] = before
    # Vectors beyond `max_vectors` are not checked.
    base[2000:] = np.nan
    assert (
        len(load_vector_set(VectorSet("odd", base.astype(np.float32), queries, metric), max_vectors=2000).base) == 2000
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
    base, queries = made("plain", n=50)[0], made("plain", n=10)[0]
    queries[6] = np.nan
    with pytest.raises(BadInput, match="query 6 has"):
        find_nearest(base, queries, 3, "l2")


def test_exact_store_delete_update_and_reopen_match_find_nearest(tmp_path):
    base, queries = made("twins", n=100)
    ids = [f"d{i}" for i in range(100)]
    store = ExactStore(metric="l2", path=str(tmp_path / "store"))
    store.add(ids[:60], base[:60], [{"even": i % 2 == 0} for i in range(60)])
    store.add(ids[60:], base[60:], [{"even": i % 2 == 0} for i in range(60, 100)])
    assert store.search(base[:3], 2)[0].tolist() == [["d0", "d50"], ["d1", "d51"], ["d2", "d52"]]
    gone = [0, 51, *range(10, 20)]
    for start in range(0, len(gone), 5):
        store.delete([ids[i] for i in gone[start : start + 5]])
    store.update(["d2"], base[:1])
    base = base.copy()
    base[2] = base[0]
    left = np.setdiff1d(np.arange(100), gone)

    def right(some):
        near, far = find_nearest(base, queries, 9, "l2", allowed=left)
        found, distances = some.search(queries, 9)
        assert found.tolist() == [[f"d{i}" for i in row] for row in near]
        np.testing.assert_allclose(distances, far, rtol=1e-6)
        one, _ = some.search(queries[:1], 1000)
        assert [name for name in one[0] if name] == [
            f"d{i}" for i in find_nearest(base, queries, 999, "l2", allowed=left)[0][0]
        ]
        for even in (True, False):
            among = left[(left % 2 == 0) == even]
            near, _ = find_nearest(base, queries, 9, "l2", allowed=among)
            assert some.search(queries, 9, where={"even": even})[0].tolist() == [[f"d{i}" for i in row] for row in near]
        assert len(some) == len(left)

    right(store)
    store.save()
    right(store)
    store.close()
    again = ExactStore(metric="l2", path=str(tmp_path / "store"))
    right(again)
    again.delete([ids[i] for i in left[:50]])
    left = left[50:]
    right(again)
    again.add(["d0"], base[:1])
    assert again.search(base[:1], 1)[0].tolist() == [["d0"]]
    with pytest.raises(BadInput, match="no folder"):
        ExactStore().save()
    (tmp_path / "store" / "vectors.npy").write_bytes(b"no")
    with pytest.raises(BadInput, match="cannot be read"):
        ExactStore(metric="l2", path=str(tmp_path / "store"))


def folder_of(place, **files):
    place.mkdir(exist_ok=True)
    for name, matrix in files.items():
        write_vectors(place / name.replace("__", "."), matrix)
    return place


def test_load_vector_set_folder_reads_neighbours_by_metric(tmp_path, monkeypatch):
    base, queries = made("plain", n=50, m=5)
    near = {metric: find_nearest(base, queries, 10, metric)[0] for metric in METRICS}
    place = folder_of(tmp_path / "set", sift_base__fvecs=base, sift_query__fvecs=queries, sift_learn__fvecs=base)
    assert load_vector_set(place).neighbours is None
    write_vectors(place / "sift_groundtruth.ivecs", near["l2"])
    found = load_vector_set(place)
    assert (found.name, found.metric) == ("set", "l2")
    assert found.neighbours.tolist() == near["l2"].tolist()
    assert load_vector_set(place, metric="cosine").neighbours is None
    write_vectors(place / "groundtruth.cosine.ivecs.gz", near["cosine"])
    assert load_vector_set(place).metric == "cosine"
    assert load_vector_set(place, metric="cosine").neighbours.tolist() == near["cosine"].tolist()
    write_vectors(place / "groundtruth.dot.ivecs", near["ip"])
    with pytest.raises(BadInput, match=r"metrics: cosine, ip[\s\S]*--metric cosine"):
        load_vector_set(place)
    part = load_vector_set(place, metric="ip", max_queries=3)
    assert part.neighbours.tolist() == near["ip"][:3].tolist()
    part = load_vector_set(place, metric="ip", max_vectors=20)
    assert part.neighbours is None
    np.testing.assert_array_equal(part.base, base[:20])
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path))
    assert load_vector_set("set", metric="l2").neighbours.tolist() == near["l2"].tolist()


def test_load_vector_set_inconsistent_folder_raises_error(tmp_path):
    base, queries = made("plain", n=50, m=5)
    place = folder_of(tmp_path / "set", base__fvecs=base, query__fvecs=queries[:, :3])
    with pytest.raises(BadInput, match="12 dimensions, the queries 3"):
        load_vector_set(place)
    folder_of(place, query__fvecs=queries, groundtruth__ivecs=np.zeros((4, 2), int))
    with pytest.raises(BadInput, match="4 rows of int32, not the neighbours of 5 queries"):
        load_vector_set(place)
    folder_of(place, base__npy=base)
    with pytest.raises(BadInput, match=r"several files could be the vectors: base\.fvecs, base\.npy"):
        load_vector_set(place)


def test_load_vector_set_single_file_holds_out_queries(tmp_path):
    base, _ = made("plain", n=100)
    write_vectors(tmp_path / "mine.parquet", base, [f"d{i}" for i in range(100)])
    found = load_vector_set(tmp_path / "mine.parquet", max_queries=15, seed=1)
    assert (found.base.shape, found.queries.shape, found.metric) == ((85, 12), (15, 12), "l2")
    for ids, rows in ((found.ids, found.base), (found.query_ids, found.queries)):
        np.testing.assert_array_equal(rows, base[[int(name[1:]) for name in ids]])
    assert not set(found.ids) & set(found.query_ids)
    assert found.notes == ["15 of 100 rows were held out as queries (seed 1)"]
    assert load_vector_set(tmp_path / "mine.parquet", max_queries=15, seed=2).query_ids != found.query_ids
    assert len(load_vector_set(tmp_path / "mine.parquet").queries) == 10
    part = load_vector_set(tmp_path / "mine.parquet", max_vectors=40, max_queries=5)
    assert (len(part.base), len(part.queries)) == (40, 5)
    with pytest.raises(BadInput, match="too few for 100 queries"):
        load_vector_set(tmp_path / "mine.parquet", max_queries=100)
    with pytest.raises(BadInput, match="no such file"):
        load_vector_set(tmp_path / "nowhere.fvecs")


def test_load_vector_set_reads_hdf5_and_byte_vectors(tmp_path):
    pytest.importorskip("h5py")
    data = small()
    write_hdf5(tmp_path / "a.hdf5", data, find_exact_neighbours(data, 10))
    assert find_exact_neighbours(load_vector_set(tmp_path / "a.hdf5"), 10).by == "given"
    write_vectors(tmp_path / "b.bvecs", np.arange(40).reshape(20, 2))
    found = load_vector_set(tmp_path / "b.bvecs", metric="ip")
    assert found.base.dtype == found.queries.dtype == np.float32
    np.save(tmp_path / "c.npy", np.full((20, 2), 1e300))
    with pytest.raises(BadInput, match="out of the range of float32"):
        load_vector_set(tmp_path / "c.npy")


class Letters:
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
    found = load_vector_set(dataset, embedder=Letters())
    assert found.metric == "cosine"
    assert list(found.ids) == ["d1", "d3", "d4"]
    assert list(found.query_ids) == ["q1", "q2"]
    assert found.base.tolist() == [[2, 1, 0], [0, 0, 3], [0, 2, 0]]
    assert found.judgments is judgments
    assert found.notes == [
        "the vectors are those of letters-for-tests",
        "1 vector is all zeros: without a cosine, left out",
        "1 query is all zeros: without a cosine, left out",
    ]
    few = load_vector_set(dataset, embedder=Letters(), metric="l2", max_vectors=2, max_queries=1)
    assert (list(few.ids), list(few.query_ids)) == (["d1", "d2"], ["q1"])
    assert few.judgments.nested == {"q1": {"d1": 1}}
    assert few.judgments.source == judgments.source
    assert few.notes[1] == "only the first 2 of 4 documents are indexed"
    with pytest.raises(UnknownName, match="unknown embedder"):
        load_vector_set(dataset, embedder="lettres")
    with pytest.raises(UnknownName, match="unknown dataset"):
        load_vector_set("no such set")


def test_load_vector_set_keeps_judgments_of_kept_queries_only():
    base, queries = made("plain", n=50, m=4)
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
    for found, left in (
        (load_vector_set(data), ["q0", "q2", "q3"]),  # q1 is all zeros and has no cosine
        (load_vector_set(data, max_queries=2), ["q0"]),
        (load_vector_set(data, metric="l2", max_queries=3), ["q0", "q1", "q2"]),
    ):
        assert list(found.query_ids) == left
        assert list(found.judgments.nested) == left
        assert list(found.judgments.subtopics) == list(found.judgments.distances) == left
        assert found.judgments.source == "people"
    assert list(data.judgments.nested) == [*names, "elsewhere"]


def test_load_vector_set_clustered_is_reproducible_by_seed():
    found = load_vector_set("clustered:n=500,d=8,clusters=4,queries=30", seed=3)
    assert (found.base.shape, found.queries.shape, found.metric) == ((500, 8), (30, 8), "l2")
    assert found.hash == load_vector_set("clustered:n=500,d=8,clusters=4,queries=30,seed=3").hash
    assert found.hash != load_vector_set("clustered:n=500,d=8,clusters=4,queries=30").hash
    more = load_vector_set("clustered:n=500,d=8,clusters=4", seed=3, max_queries=60)
    np.testing.assert_array_equal(more.base, found.base)
    np.testing.assert_array_equal(
        load_vector_set("clustered:d=8,clusters=4", seed=3, max_vectors=100).base.shape, (100, 8)
    )
    # Clusters are much narrower than the gaps between them, so vectors nearer than 0.1 are in the same cluster.
    # The largest of the 4 has a share of about 1 / (1 + 1/2 + 1/3 + 1/4) = 12/25.
    tight = generate_clustered_vectors(n=2000, d=8, clusters=4, spread=0.001)
    gaps = np.linalg.norm(tight.base[:, None] - tight.base[None, :50], axis=2) < 0.1
    sizes = sorted({int(column.sum()) for column in gaps.T}, reverse=True)
    assert sum(sizes) == 2000
    assert sizes[0] == pytest.approx(2000 * 12 / 25, rel=0.1)
    for wrong in ("clustered:m=3", "clustered:n=x", "clustered:n=0", "clustered:spread=-1"):
        with pytest.raises(BadInput):
            load_vector_set(wrong)


def test_load_vector_set_duplicate_vectors_are_noted():
    base, _ = made("twins", n=60)
    base[5] = base[4]
    base[7, 0] = 0.0
    again = base[7:8].copy()
    again[0, 0] = -0.0
    data = load_vector_set(VectorSet("odd", base, np.concatenate([base[:2], again]), "l2"))
    assert data.notes == [
        "29 vectors are equal to an earlier one: which of them is found is arbitrary",
        "3 queries are also in the base: rank 1 is the query itself",
    ]
    assert load_vector_set(VectorSet("even", base[8:30], base[:8], "l2")).notes == []
    with pytest.raises(BadInput, match="all queries are zeros"):
        load_vector_set(VectorSet("odd", base, base[:1] * 0, "cosine"))
    moved = load_vector_set(VectorSet("odd", base, base[:1], "l2", neighbours=np.zeros((1, 1), int)), metric="cosine")
    assert (moved.metric, moved.neighbours) == ("cosine", None)


def test_load_vector_set_real_collections_have_expected_notes(shared):
    found = load_vector_set(shared("ann_bigann10k"))
    assert found.notes == ["100 queries are also in the base: rank 1 is the query itself"]
    assert find_exact_neighbours(found, 10).neighbours[:, 0].tolist() == list(range(100))
    with pytest.raises(BadInput, match="metrics: cosine, ip, l2"):
        load_vector_set(shared("ann_glove50_10k"))
