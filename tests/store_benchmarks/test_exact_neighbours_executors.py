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
from worker_tasks import working

METRICS = ["l2", "cosine", "ip"]


def made(n: int, d: int, m: int, metric: str, seed: int = 0, *, grid: bool = False) -> VectorSet:
    """Generate random vectors; on a grid many are equal or equally near, also across the borders of shards."""
    random = np.random.default_rng(seed)
    base, queries = (random.integers(1, 4, (rows, d)) if grid else random.standard_normal((rows, d)) for rows in (n, m))
    return VectorSet("made", np.asarray(base, np.float32), np.asarray(queries, np.float32), metric)


def equal(one, other) -> None:
    assert one.neighbours.tolist() == other.neighbours.tolist()
    assert one.distances.tobytes() == other.distances.tobytes()


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
    data = made(n, d, m, metric, seed, grid=grid)
    alone = find_exact_neighbours(data, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_neighbours, "MAX_SENT_SHARD_BYTES", rows * d * 4)
        patch.setattr(exact_neighbours, "MIN_SHARD_QUERIES", 3)
        equal(find_exact_neighbours(data, k, executor=threads), alone)


@pytest.mark.parametrize("way", ["numpy", "faiss"])
@pytest.mark.parametrize("metric", METRICS)
def test_find_exact_neighbours_shards_use_requested_library(threads, monkeypatch, way, metric):
    if way != "numpy":
        pytest.importorskip(way)
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = made(1500, 12, 20, metric, grid=True)
    there = find_exact_neighbours(data, 15, by=way, executor=threads)
    equal(there, find_exact_neighbours(data, 15))
    assert there.by == way


@pytest.mark.parametrize("metric", METRICS)
def test_find_exact_neighbours_on_executor_non_finite_vector_raises_error(threads, metric):
    data = made(101, 6, 9, metric)
    for what, rows, place in (("vector", data.base, 7), ("query", data.queries, 3)):
        before = rows[place].copy()
        rows[place] = np.inf
        with pytest.raises(BadInput, match=f"made: {what} {place} has a NaN, an infinity"):
            find_exact_neighbours(data, 5, executor=threads)
        rows[place] = before


def test_find_exact_neighbours_splits_larger_of_base_and_queries(threads, monkeypatch):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 25)
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_QUERIES", 25)
    given: list[tuple[str, list[int]]] = []

    def noted(executor, work, parts, **options):
        parts = list(parts)
        given.append((type(work).__name__, [len(getattr(part, "rows", part)) for part in parts]))
        return spread(executor, work, parts, **options)

    spread = executors.map_ordered
    monkeypatch.setattr(exact_neighbours, "map_ordered", noted)
    heard: list[tuple[int, int]] = []
    for n, m in ((400, 30), (30, 400)):
        data = made(n, 6, m, "l2")
        heard.clear()
        equal(
            find_exact_neighbours(
                data, 7, executor=threads, progress=lambda step: heard.append((step.done, step.total))
            ),
            find_exact_neighbours(data, 7),
        )
        assert heard == sorted(heard)
        assert heard[-1] == (m, m)
        assert len(set(heard)) == 4
    assert given == [("RowShardSearch", [100] * 4), ("QueryShardSearch", [100] * 4)]


@pytest.mark.parametrize(("n", "m"), [(900, 40), (40, 900)])
@pytest.mark.cluster
def test_find_exact_neighbours_on_processes_equals_single_process(monkeypatch, n, m):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = made(n, 12, m, "cosine")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        equal(find_exact_neighbours(data, 9, executor=pool), find_exact_neighbours(data, 9))


@pytest.mark.parametrize("metric", METRICS)
def test_find_exact_neighbours_on_cluster_equals_single_process(workers, monkeypatch, metric):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = made(2000, 16, 30, metric, grid=True)
    equal(find_exact_neighbours(data, 600, executor=workers.executor), find_exact_neighbours(data, 600))


def mapped(path, matrix) -> np.ndarray:
    np.save(path, matrix)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("victims", [1, 2])
@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.crash
def test_find_exact_neighbours_killed_workers_do_not_change_result(tmp_path, monkeypatch, victims, sent):
    pytest.importorskip("distributed")
    for most in ("MAX_READ_SHARD_BYTES", "MAX_SENT_SHARD_BYTES"):
        monkeypatch.setattr(exact_neighbours, most, 1000 * 32 * 4)
    data, killed = made(40_000, 32, 400, "l2"), []
    base = data.base if sent else mapped(tmp_path / "base.npy", data.base)

    def kill_once(step: Progress) -> None:
        if not killed:
            assert step.done < step.total
            killed.append(workers.kill(victims))

    # Each test has its own cluster, because a cluster does not always recover from a second kill.
    with working() as workers:
        there = find_exact_neighbours(replace(data, base=base), 20, executor=workers.executor, progress=kill_once)
    equal(there, find_exact_neighbours(data, 20))
    assert killed == [victims]


@pytest.mark.cluster
def test_find_exact_neighbours_memory_mapped_base_sends_file_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    whole = made(1000, 12, 15, "l2", grid=True)
    big = mapped(tmp_path / "base.npy", whole.base)
    (tmp_path / "set").mkdir()
    write_vectors(tmp_path / "set" / "base.fbin", whole.base)
    write_vectors(tmp_path / "set" / "query.fbin", whole.queries)
    bytewise = mapped(tmp_path / "small.npy", whole.base.astype(np.uint8))
    travelled: list[str] = []

    def noted(executor, work, parts, **options):
        def each():
            for part in parts:
                travelled.append(type(part).__name__)
                yield part

        return spread(executor, work, each(), **options)

    spread = executors.map_ordered
    monkeypatch.setattr(exact_neighbours, "map_ordered", noted)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for base in (big, big[200:], big[3:900].view(np.ndarray), bytewise, load_vector_set(tmp_path / "set").base):
            data = VectorSet("mapped", base, whole.queries, "l2")
            equal(find_exact_neighbours(data, 30, executor=pool), find_exact_neighbours(data, 30))
            assert set(travelled) == {"FileShard"}
            travelled.clear()
        # Selected columns are not rows of the file, and a copy-on-write map may differ from it, so the rows are sent.
        for base in (big[:, :6], np.load(tmp_path / "base.npy", mmap_mode="c")):
            data = VectorSet("mapped", base, whole.queries[:, : base.shape[1]], "l2")
            equal(find_exact_neighbours(data, 30, executor=pool), find_exact_neighbours(data, 30))
            assert set(travelled) == {"RowShard"}
            travelled.clear()


@pytest.mark.parametrize("harm", ["gone", "longer", "other"])
def test_find_exact_neighbours_missing_file_on_worker_sends_rows(tmp_path, threads, monkeypatch, harm):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    monkeypatch.setattr(exact_neighbours, "MAX_SENT_SHARD_BYTES", 60 * 12 * 4)
    data = made(1000, 12, 15, "l2")
    path = tmp_path / "base.npy"
    big = VectorSet("mapped", mapped(path, data.base), data.queries, "l2")
    there = tmp_path / "there.npy"
    content = path.read_bytes()
    if harm != "gone":
        there.write_bytes(content + b"x" if harm == "longer" else content[:-4] + b"else")
    read, seen = exact_neighbours.FileShard.read, []
    # Workers read another file, as if they had their own disk.
    monkeypatch.setattr(
        exact_neighbours.FileShard, "read", lambda self: seen.append(read(replace(self, path=str(there)))) or seen[-1]
    )
    equal(find_exact_neighbours(big, 30, executor=threads), find_exact_neighbours(data, 30))
    assert len(seen) == 4
    assert sum(rows is None for rows in seen) == (1 if harm == "other" else 4)


def test_find_exact_neighbours_workers_without_gpu_give_one_note(threads, monkeypatch):
    if neighbours_gpu.has_gpu():
        pytest.skip("there is a graphics card")
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    data = made(1000, 12, 15, "l2")
    there = find_exact_neighbours(data, 5, by="torch", executor=threads)
    equal(there, find_exact_neighbours(data, 5))
    assert (there.by, len(there.notes)) == ("numpy", 1)
    assert there.notes[0].endswith(": exact neighbours on the CPU")


def test_find_exact_neighbours_on_executor_checks_published_neighbours(threads, monkeypatch):
    monkeypatch.setattr(exact_neighbours, "MIN_SHARD_ROWS", 100)
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MAX_FULL_CHECK_MULTIPLICATIONS", 0)
    data = made(1000, 12, 15, "l2")
    right = find_exact_neighbours(data, 5)
    for near, wrong in ((right.neighbours, False), (right.neighbours[::-1], True)):
        told = VectorSet("told", data.base, data.queries, "l2", neighbours=near)
        if wrong:
            with pytest.raises(BadInput, match="are not the nearest"):
                find_exact_neighbours(told, 5, executor=threads)
        else:
            equal(find_exact_neighbours(told, 5, executor=threads), right)


@pytest.mark.cluster
def test_bench_executor_computes_exact_neighbours(threads, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    found = ragauge.bench("clustered:n=500,d=8,queries=20", "exact", repeats=1, executor=threads, truth="numpy")
    assert found.truth == "numpy"
    assert found.points[0].quality["recall(of=k)@10"] == 1.0


def test_bench_command_cluster_option_uses_cluster(workers, tmp_path):
    bench = command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "c"))
    small = (
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
    assert bench(*small, "--cluster", workers.address).stdout.startswith("series,store,")
    assert os.listdir(tmp_path / "c" / "truth")
    assert "`nowhere` is not a cluster address" in bench(*small, "--cluster", "nowhere", code=2).stderr
    shown = " ".join(bench("bench", "--help").stdout.replace("│", " ").split())
    assert "Stores are measured on this machine." in shown
