"""Exact neighbours if the GPU is missing, too small or failing: equal results, and one note that gives the reason.

Tests that need a GPU are skipped without one. A small GPU is simulated: its search runs on the CPU in the same steps.
"""

from __future__ import annotations

import numpy as np
import pytest

import ragauge
from ragauge.core.errors import BackendFailed
from ragauge.store_benchmarks import neighbours_gpu
from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
from ragauge.store_benchmarks.results import VectorSet
from ragauge.stores.nearest_neighbours import find_nearest

torch = pytest.importorskip("torch")
METRICS = ["l2", "cosine", "ip"]


@pytest.fixture
def require_no_gpu():
    if neighbours_gpu.has_gpu():
        pytest.skip("there is a GPU")


@pytest.fixture
def require_gpu():
    if not neighbours_gpu.has_gpu():
        pytest.skip("no GPU")


def make_vectors(n: int = 1500, d: int = 12, m: int = 20, *, grid: bool = False) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    base, queries = (random.integers(1, 4, (rows, d)) if grid else random.standard_normal((rows, d)) for rows in (n, m))
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def assert_equal(first, second) -> None:
    for left, right in zip(first, second, strict=True):
        assert left.tobytes() == right.tobytes()


def simulate_small_gpu(monkeypatch, max_rows: int) -> list[int]:
    """Simulate a GPU with room for `max_rows` rows, and return the list of the batch sizes that were tried."""
    batch_sizes: list[int] = []

    class SmallGpuSearch(neighbours_gpu.GpuSearch):
        def __init__(self, rows, metric, *, half=True):
            batch_sizes.append(len(rows))
            if len(rows) > max_rows:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 PiB.\nmore words")
            super().__init__(rows, metric, half=half)

    monkeypatch.setattr(neighbours_gpu, "GpuSearch", SmallGpuSearch)
    return batch_sizes


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_out_of_memory_halves_batches(monkeypatch, metric, grid):
    base, queries = make_vectors(grid=grid)
    monkeypatch.setattr(neighbours_gpu, "MIN_ROWS_PER_BATCH", 50)
    batch_sizes = simulate_small_gpu(monkeypatch, 400)
    for k in (10, 500):
        batch_sizes.clear()
        assert_equal(
            neighbours_gpu.search_with_torch(base, queries, k, metric, device="cpu"),
            find_nearest(base, queries, k, metric),
        )
        assert batch_sizes == [1500, 750, 375, 375, 375, 375]


def test_search_with_torch_read_only_base_gives_no_warning(recwarn):
    base, queries = make_vectors()
    base.flags.writeable = False
    assert_equal(
        neighbours_gpu.search_with_torch(base, queries, 5, "l2", device="cpu"), find_nearest(base, queries, 5, "l2")
    )
    assert not list(recwarn)


def test_search_with_torch_without_memory_raises_error_with_hint(monkeypatch):
    monkeypatch.setattr(neighbours_gpu, "MIN_ROWS_PER_BATCH", 50)
    batch_sizes = simulate_small_gpu(monkeypatch, 0)
    with pytest.raises(BackendFailed, match=r"Tried to allocate 1 PiB\n[\s\S]*by=numpy"):
        neighbours_gpu.search_with_torch(*make_vectors(), 1, "l2", device="cpu")
    assert batch_sizes == [1500, 750, 375, 187, 93, 46]


def test_find_exact_neighbours_without_gpu_uses_cpu_with_note(require_no_gpu):
    data = VectorSet("random", *make_vectors(), "l2")
    by_numpy = find_exact_neighbours(data, 5, by="numpy")
    by_torch = find_exact_neighbours(data, 5, by="torch")
    assert_equal((by_torch.neighbours, by_torch.distances), (by_numpy.neighbours, by_numpy.distances))
    assert (by_torch.by, list(by_torch.notes)) == ("numpy", ["no GPU: exact neighbours on the CPU"])
    assert (by_numpy.by, list(by_numpy.notes)) == ("numpy", [])


def test_find_exact_neighbours_without_torch_uses_cpu_with_note(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    result = find_exact_neighbours(VectorSet("random", *make_vectors(), "l2"), 5, by="torch")
    assert (result.by, list(result.notes)) == (
        "numpy",
        ["torch is not installed: exact neighbours on the CPU"],
    )


def test_find_exact_neighbours_auto_notes_missing_gpu_for_large_data_only(require_no_gpu, monkeypatch):
    data = VectorSet("random", *make_vectors(), "l2")
    assert list(find_exact_neighbours(data, 5).notes) == []
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MIN_GPU_MULTIPLICATIONS", 1)
    assert list(find_exact_neighbours(data, 5).notes) == ["no GPU: exact neighbours on the CPU"]


@pytest.mark.parametrize("by", ["auto", "torch"])
def test_find_exact_neighbours_gpu_error_uses_cpu_with_note(require_no_gpu, monkeypatch, by):
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MIN_GPU_MULTIPLICATIONS", 1)
    # torch reports a GPU that does not exist, so its own call fails.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    data = VectorSet("random", *make_vectors(), "cosine")
    by_numpy, result = find_exact_neighbours(data, 5, by="numpy"), find_exact_neighbours(data, 5, by=by)
    assert_equal((result.neighbours, result.distances), (by_numpy.neighbours, by_numpy.distances))
    [line] = result.notes
    assert line.startswith("the GPU failed (torch: ")
    assert line.endswith("): exact neighbours on the CPU")
    assert result.by == "numpy"


@pytest.mark.engine
def test_bench_without_gpu_notes_cpu_neighbours(require_no_gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    result = ragauge.bench("clustered:n=300,d=8,queries=20", "exact", repeats=1, truth="torch")
    assert result.truth == "numpy"
    assert "no GPU: exact neighbours on the CPU" in result.notes


@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_on_gpu_in_batches_matches_find_nearest(require_gpu, monkeypatch, metric):
    for grid in (False, True):
        base, queries = make_vectors(20_000, 96, 50, grid=grid)
        exact = find_nearest(base, queries, 100, metric)
        assert_equal(neighbours_gpu.search_with_torch(base, queries, 100, metric), exact)
        with monkeypatch.context() as patch:
            patch.setattr(neighbours_gpu, "_rows_per_batch", lambda *_: 3000)
            assert_equal(neighbours_gpu.search_with_torch(base, queries, 100, metric), exact)


def test_search_with_torch_full_gpu_retries_with_smaller_batches(require_gpu, monkeypatch):
    base, queries = make_vectors(400_000, 128, 50)
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.75 * 1024**3 / total)
    monkeypatch.setattr(neighbours_gpu, "_rows_per_batch", lambda *_: len(base))
    batch_sizes = simulate_small_gpu(monkeypatch, len(base))
    try:
        assert_equal(neighbours_gpu.search_with_torch(base, queries, 10, "l2"), find_nearest(base, queries, 10, "l2"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert batch_sizes[0] == len(base)
    assert len(batch_sizes) > 2


def test_find_exact_neighbours_on_gpu_reports_torch(require_gpu):
    result = find_exact_neighbours(VectorSet("random", *make_vectors(), "l2"), 5, by="torch")
    assert (result.by, list(result.notes)) == ("torch", [])


def make_unequal_lengths(n: int, d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Generate vectors whose lengths span twelve orders of magnitude."""
    random = np.random.default_rng(1)
    base, queries = (random.standard_normal((rows, d)) * 10 ** random.uniform(-6, 6, (rows, 1)) for rows in (n, m))
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def make_narrow_cone(n: int, d: int, m: int, width: float = 3e-7) -> tuple[np.ndarray, np.ndarray]:
    """Generate vectors whose cosines differ by little more than rounding, and one in the opposite direction."""
    random = np.random.default_rng(2)
    axis = random.standard_normal(d)
    base, queries = (axis + width * random.standard_normal((rows, d)) for rows in (n, m))
    base[n // 2] = -axis
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def make_repeated_rows(n: int, d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Generate three different vectors, and repeat each many times."""
    base, queries = make_vectors(3, d, m)
    return np.tile(base, (-(-n // 3), 1))[:n], queries


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("make_data", [make_unequal_lengths, make_narrow_cone, make_repeated_rows])
@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_data_beyond_float16_does_not_use_cpu(monkeypatch, metric, make_data, half):
    base, queries = make_data(6000, 12, 15)
    exact = find_nearest(base, queries, 10, metric)

    def fail_on_cpu(*_):
        raise AssertionError("searched on the CPU")

    monkeypatch.setattr("ragauge.store_benchmarks.neighbours_faiss.find_nearest", fail_on_cpu)
    assert_equal(neighbours_gpu.search_with_torch(base, queries, 10, metric, device="cpu", half=half), exact)


@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_in_blocks_matches_find_nearest(monkeypatch, metric):
    monkeypatch.setattr(neighbours_gpu, "PAIRS_PER_BATCH", 4000)
    monkeypatch.setattr(neighbours_gpu, "MAX_FLOAT16_ROUNDS", 0)
    for grid in (False, True):
        base, queries = make_vectors(grid=grid)
        for k in (1, 10, 700):
            assert_equal(
                neighbours_gpu.search_with_torch(base, queries, k, metric, device="cpu"),
                find_nearest(base, queries, k, metric),
            )
