"""Exact neighbours on an executor: identical on threads, processes and a cluster, also if workers are killed."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragauge
from command import command_in
from ragauge.compute import executors
from ragauge.compute.progress import Progress
from ragauge.core.errors import BadInput
from ragauge.store_benchmarks import exact_neighbours, neighbours_gpu
from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
from ragauge.store_benchmarks.results import VectorSet
from ragauge.store_benchmarks.vector_sets import load_vector_set
from vector_file_writers import write_vectors
from worker_tasks import start_cluster

METRICS = ["l2", "cosine", "ip"]


def make_vector_set(n: int, d: int, m: int, metric: str, seed: int = 0, *, grid: bool = False) -> VectorSet:
    """Generate random vectors; on a grid many are equal or equally near, also across the borders of shards."""
    random = np.random.default_rng(seed)
    base, queries = (random.integers(1, 4, (rows, d)) if grid else random.standard_normal((rows, d)) for rows in (n, m))
    return VectorSet("random", np.asarray(base, np.float32), np.asarray(queries, np.float32), metric)


def assert_equal(first, second) -> None:
    assert first.neighbours.tolist() == second.neighbours.tolist()
    assert first.distances.tobytes() == second.distances.tobytes()


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    m=st.integers(1, 30),
    d=st.integers(1, 5),
    k=st.integers(1, 70),
    rows=st.integers(1, 30),
    metric=st.sampled_from(METRICS),
    grid=st.booleans(),
)
def test_find_exact_neighbours_random_shards_equal_single_search(threads, seed, n, m, d, k, rows, metric, grid):
    data = make_vector_set(n, d, m, metric, seed, grid=grid)
    alone = find_exact_neighbours(data, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_neighbours, "MAX_SENT_SHARD_BYTES", rows * d * 4)
        patch.setattr(exact_neighbours, "MIN_SHARD_QUERIES", 3)
        assert_equal(find_exact_neighbours(data, k, executor=threads), alone)


@pytest.mark.parametrize("backend", ["numpy", "faiss"])
@pytest.mark.parametrize("metric", METRICS)
def test_find_exact_neighbours_shards_use_requested_library(threads, monkeypatch, backend, metric):
    if backend != "numpy":
        pytest.importorskip(backend)
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = make_vector_set(1500, 12, 20, metric, grid=True)
    result = find_exact_neighbours(data, 15, by=backend, executor=threads)
    assert_equal(result, find_exact_neighbours(data, 15))
    assert result.by == backend


@pytest.mark.parametrize("metric", METRICS)
def test_find_exact_neighbours_on_executor_non_finite_vector_raises_error(threads, metric):
    data = make_vector_set(101, 6, 9, metric)
    for kind, rows, row in (("vector", data.base, 7), ("query", data.queries, 3)):
        original = rows[row].copy()
        rows[row] = np.inf
        with pytest.raises(BadInput, match=f"random: {kind} {row} has a NaN, an infinity"):
            find_exact_neighbours(data, 5, executor=threads)
        rows[row] = original


def test_find_exact_neighbours_splits_larger_of_base_and_queries(threads, monkeypatch):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 25)
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_QUERIES", 25)
    shard_sizes: list[tuple[str, list[int]]] = []

    def note_shards(executor, work, parts, **options):
        parts = list(parts)
        shard_sizes.append((type(work).__name__, [len(getattr(part, "rows", part)) for part in parts]))
        return map_ordered(executor, work, parts, **options)

    map_ordered = executors.map_ordered
    monkeypatch.setattr(exact_neighbours, "map_ordered", note_shards)
    reports: list[tuple[int, int]] = []
    for n, m in ((400, 30), (30, 400)):
        data = make_vector_set(n, 6, m, "l2")
        reports.clear()
        assert_equal(
            find_exact_neighbours(
                data, 7, executor=threads, progress=lambda step: reports.append((step.done, step.total))
            ),
            find_exact_neighbours(data, 7),
        )
        assert reports == sorted(reports)
        assert reports[-1] == (m, m)
        assert len(set(reports)) == 4
    assert shard_sizes == [("RowShardSearch", [100] * 4), ("QueryShardSearch", [100] * 4)]


@pytest.mark.parametrize(("n", "m"), [(900, 40), (40, 900)])
@pytest.mark.cluster
def test_find_exact_neighbours_on_processes_equals_single_process(monkeypatch, n, m):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = make_vector_set(n, 12, m, "cosine")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert_equal(find_exact_neighbours(data, 9, executor=pool), find_exact_neighbours(data, 9))


@pytest.mark.parametrize("metric", METRICS)
def test_find_exact_neighbours_on_cluster_equals_single_process(workers, monkeypatch, metric):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = make_vector_set(2000, 16, 30, metric, grid=True)
    assert_equal(find_exact_neighbours(data, 600, executor=workers.executor), find_exact_neighbours(data, 600))


def memory_map(path, matrix) -> np.ndarray:
    np.save(path, matrix)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("victims", [1, 2])
@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.crash
def test_find_exact_neighbours_killed_workers_do_not_change_result(tmp_path, monkeypatch, victims, is_sent):
    pytest.importorskip("distributed")
    for limit in ("MAX_READ_SHARD_BYTES", "MAX_SENT_SHARD_BYTES"):
        monkeypatch.setattr(exact_neighbours, limit, 1000 * 32 * 4)
    data, kills = make_vector_set(40_000, 32, 400, "l2"), []
    base = data.base if is_sent else memory_map(tmp_path / "base.npy", data.base)

    def kill_once(step: Progress) -> None:
        if not kills:
            assert step.done < step.total
            kills.append(workers.kill(victims))

    # Each test has its own cluster, because a cluster does not always recover from a second kill.
    with start_cluster() as workers:
        result = find_exact_neighbours(replace(data, base=base), 20, executor=workers.executor, progress=kill_once)
    assert_equal(result, find_exact_neighbours(data, 20))
    assert kills == [victims]


@pytest.mark.cluster
def test_find_exact_neighbours_memory_mapped_base_sends_file_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = make_vector_set(1000, 12, 15, "l2", grid=True)
    mapped = memory_map(tmp_path / "base.npy", data.base)
    (tmp_path / "set").mkdir()
    write_vectors(tmp_path / "set" / "base.fbin", data.base)
    write_vectors(tmp_path / "set" / "query.fbin", data.queries)
    mapped_bytes = memory_map(tmp_path / "small.npy", data.base.astype(np.uint8))
    shard_types: list[str] = []

    def note_types(executor, work, parts, **options):
        def iterate_parts():
            for part in parts:
                shard_types.append(type(part).__name__)
                yield part

        return map_ordered(executor, work, iterate_parts(), **options)

    map_ordered = executors.map_ordered
    monkeypatch.setattr(exact_neighbours, "map_ordered", note_types)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for base in (
            mapped,
            mapped[200:],
            mapped[3:900].view(np.ndarray),
            mapped_bytes,
            load_vector_set(tmp_path / "set").base,
        ):
            vector_set = VectorSet("mapped", base, data.queries, "l2")
            assert_equal(find_exact_neighbours(vector_set, 30, executor=pool), find_exact_neighbours(vector_set, 30))
            assert set(shard_types) == {"FileShard"}
            shard_types.clear()
        # Selected columns are not rows of the file, and a copy-on-write map may differ from it, so the rows are sent.
        for base in (mapped[:, :6], np.load(tmp_path / "base.npy", mmap_mode="c")):
            vector_set = VectorSet("mapped", base, data.queries[:, : base.shape[1]], "l2")
            assert_equal(find_exact_neighbours(vector_set, 30, executor=pool), find_exact_neighbours(vector_set, 30))
            assert set(shard_types) == {"RowShard"}
            shard_types.clear()


@pytest.mark.parametrize("change", ["gone", "longer", "other"])
def test_find_exact_neighbours_missing_file_on_worker_sends_rows(tmp_path, threads, monkeypatch, change):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    monkeypatch.setattr(exact_neighbours, "MAX_SENT_SHARD_BYTES", 60 * 12 * 4)
    data = make_vector_set(1000, 12, 15, "l2")
    path = tmp_path / "base.npy"
    mapped = VectorSet("mapped", memory_map(path, data.base), data.queries, "l2")
    other_path = tmp_path / "there.npy"
    content = path.read_bytes()
    if change != "gone":
        other_path.write_bytes(content + b"x" if change == "longer" else content[:-4] + b"else")
    read_shard, read_shards = exact_neighbours.FileShard.read, []
    # Workers read another file, as if they had their own disk.
    monkeypatch.setattr(
        exact_neighbours.FileShard,
        "read",
        lambda self: read_shards.append(read_shard(replace(self, path=str(other_path)))) or read_shards[-1],
    )
    assert_equal(find_exact_neighbours(mapped, 30, executor=threads), find_exact_neighbours(data, 30))
    assert len(read_shards) == 4
    assert sum(rows is None for rows in read_shards) == (1 if change == "other" else 4)


def test_find_exact_neighbours_workers_without_gpu_give_one_note(threads, monkeypatch):
    if neighbours_gpu.has_gpu():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = make_vector_set(1000, 12, 15, "l2")
    result = find_exact_neighbours(data, 5, by="torch", executor=threads)
    assert_equal(result, find_exact_neighbours(data, 5))
    assert (result.by, len(result.notes)) == ("numpy", 1)
    assert result.notes[0].endswith(": exact neighbours on the CPU")


def test_find_exact_neighbours_on_executor_checks_published_neighbours(threads, monkeypatch):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MAX_FULL_CHECK_MULTIPLICATIONS", 0)
    data = make_vector_set(1000, 12, 15, "l2")
    exact = find_exact_neighbours(data, 5)
    for published, is_wrong in ((exact.neighbours, False), (exact.neighbours[::-1], True)):
        data_set = VectorSet("published", data.base, data.queries, "l2", neighbours=published)
        if is_wrong:
            with pytest.raises(BadInput, match="are not the nearest"):
                find_exact_neighbours(data_set, 5, executor=threads)
        else:
            assert_equal(find_exact_neighbours(data_set, 5, executor=threads), exact)


@pytest.mark.cluster
def test_bench_executor_computes_exact_neighbours(threads, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    result = ragauge.bench("clustered:n=500,d=8,queries=20", "exact", repeats=1, executor=threads, truth="numpy")
    assert result.truth == "numpy"
    assert result.points[0].quality["recall(of=k)@10"] == 1.0


def test_bench_command_cluster_option_uses_cluster(workers, tmp_path):
    bench = command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "c"))
    arguments = (
        "bench",
        "clustered",
        "--max-vectors",
        "400",
        "--max-queries",
        "20",
        "--repeats",
        "1",
        "--store",
        "exact",
        "--csv",
    )
    assert bench(*arguments, "--cluster", workers.address).stdout.startswith("series,store,")
    assert os.listdir(tmp_path / "c" / "truth")
    assert "`nowhere` is not a cluster address" in bench(*arguments, "--cluster", "nowhere", code=2).stderr
    help_text = " ".join(bench("bench", "--help").stdout.replace("│", " ").split())
    assert "Stores are measured on this machine." in help_text
