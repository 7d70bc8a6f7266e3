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
def no_card():
    if neighbours_gpu.has_gpu():
        pytest.skip("there is a graphics card")


@pytest.fixture
def card():
    if not neighbours_gpu.has_gpu():
        pytest.skip("there is no GPU")


def made(n: int = 1500, d: int = 12, m: int = 20, *, grid: bool = False) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    base, queries = (random.integers(1, 4, (rows, d)) if grid else random.standard_normal((rows, d)) for rows in (n, m))
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def equal(one, other) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert mine.tobytes() == theirs.tobytes()


def small_card(monkeypatch, most: int) -> list[int]:
    """Simulate a GPU with room for `most` rows, and return the list of the batch sizes that were tried."""
    seen: list[int] = []

    class Small(neighbours_gpu.GpuSearch):
        def __init__(self, there, metric, *, half=True):
            seen.append(len(there))
            if len(there) > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 PiB.\nmore words")
            super().__init__(there, metric, half=half)

    monkeypatch.setattr(neighbours_gpu, "GpuSearch", Small)
    return seen


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_out_of_memory_halves_batches(monkeypatch, metric, grid):
    base, queries = made(grid=grid)
    monkeypatch.setattr(neighbours_gpu, "MIN_ROWS_PER_BATCH", 50)
    seen = small_card(monkeypatch, 400)
    for k in (10, 500):
        seen.clear()
        equal(
            neighbours_gpu.search_with_torch(base, queries, k, metric, device="cpu"),
            find_nearest(base, queries, k, metric),
        )
        assert seen == [1500, 750, 375, 375, 375, 375]


def test_search_with_torch_read_only_base_gives_no_warning(recwarn):
    base, queries = made()
    base.flags.writeable = False
    equal(neighbours_gpu.search_with_torch(base, queries, 5, "l2", device="cpu"), find_nearest(base, queries, 5, "l2"))
    assert not list(recwarn)


def test_search_with_torch_without_memory_raises_error_with_hint(monkeypatch):
    monkeypatch.setattr(neighbours_gpu, "MIN_ROWS_PER_BATCH", 50)
    seen = small_card(monkeypatch, 0)
    with pytest.raises(BackendFailed, match=r"Tried to allocate 1 PiB\n[\s\S]*by=numpy"):
        neighbours_gpu.search_with_torch(*made(), 1, "l2", device="cpu")
    assert seen == [1500, 750, 375, 187, 93, 46]


def test_find_exact_neighbours_without_gpu_uses_cpu_with_note(no_card):
    data = VectorSet("made", *made(), "l2")
    here = find_exact_neighbours(data, 5, by="numpy")
    there = find_exact_neighbours(data, 5, by="torch")
    equal((there.neighbours, there.distances), (here.neighbours, here.distances))
    assert (there.by, list(there.notes)) == ("numpy", ["no GPU: exact neighbours on the CPU"])
    assert (here.by, list(here.notes)) == ("numpy", [])


def test_find_exact_neighbours_without_torch_uses_cpu_with_note(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    found = find_exact_neighbours(VectorSet("made", *made(), "l2"), 5, by="torch")
    assert (found.by, list(found.notes)) == (
        "numpy",
        ["torch is not installed: exact neighbours on the CPU"],
    )


def test_find_exact_neighbours_auto_notes_missing_gpu_for_large_data_only(no_card, monkeypatch):
    data = VectorSet("made", *made(), "l2")
    assert list(find_exact_neighbours(data, 5).notes) == []
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MIN_GPU_MULTIPLICATIONS", 1)
    assert list(find_exact_neighbours(data, 5).notes) == ["no GPU: exact neighbours on the CPU"]


@pytest.mark.parametrize("by", ["auto", "torch"])
def test_find_exact_neighbours_gpu_error_uses_cpu_with_note(no_card, monkeypatch, by):
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache.MIN_GPU_MULTIPLICATIONS", 1)
    # torch reports a GPU that does not exist, so its own call fails.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    data = VectorSet("made", *made(), "cosine")
    here, there = find_exact_neighbours(data, 5, by="numpy"), find_exact_neighbours(data, 5, by=by)
    equal((there.neighbours, there.distances), (here.neighbours, here.distances))
    [line] = there.notes
    assert line.startswith("the GPU failed (torch: ")
    assert line.endswith("): exact neighbours on the CPU")
    assert there.by == "numpy"


@pytest.mark.engine
def test_bench_without_gpu_notes_cpu_neighbours(no_card, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    found = ragauge.bench("clustered:n=300,d=8,queries=20", "exact", repeats=1, truth="torch")
    assert found.truth == "numpy"
    assert "no GPU: exact neighbours on the CPU" in found.notes


@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_on_gpu_in_batches_matches_find_nearest(card, monkeypatch, metric):
    for grid in (False, True):
        base, queries = made(20_000, 96, 50, grid=grid)
        exact = find_nearest(base, queries, 100, metric)
        equal(neighbours_gpu.search_with_torch(base, queries, 100, metric), exact)
        with monkeypatch.context() as patch:
            patch.setattr(neighbours_gpu, "_rows_per_batch", lambda *_: 3000)
            equal(neighbours_gpu.search_with_torch(base, queries, 100, metric), exact)


def test_search_with_torch_full_gpu_retries_with_smaller_batches(card, monkeypatch):
    base, queries = made(400_000, 128, 50)
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.75 * 1024**3 / total)
    monkeypatch.setattr(neighbours_gpu, "_rows_per_batch", lambda *_: len(base))
    seen = small_card(monkeypatch, len(base))
    try:
        equal(neighbours_gpu.search_with_torch(base, queries, 10, "l2"), find_nearest(base, queries, 10, "l2"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert seen[0] == len(base)
    assert len(seen) > 2


def test_find_exact_neighbours_on_gpu_reports_torch(card):
    found = find_exact_neighbours(VectorSet("made", *made(), "l2"), 5, by="torch")
    assert (found.by, list(found.notes)) == ("torch", [])


def unlike_lengths(n: int, d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Generate vectors whose lengths span twelve orders of magnitude."""
    random = np.random.default_rng(1)
    base, queries = (random.standard_normal((rows, d)) * 10 ** random.uniform(-6, 6, (rows, 1)) for rows in (n, m))
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def narrow_cone(n: int, d: int, m: int, width: float = 3e-7) -> tuple[np.ndarray, np.ndarray]:
    """Generate vectors whose cosines differ by little more than rounding, and one in the opposite direction."""
    random = np.random.default_rng(2)
    axis = random.standard_normal(d)
    base, queries = (axis + width * random.standard_normal((rows, d)) for rows in (n, m))
    base[n // 2] = -axis
    return np.asarray(base, np.float32), np.asarray(queries, np.float32)


def repeated_rows(n: int, d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Generate three different vectors, and repeat each many times."""
    base, queries = made(3, d, m)
    return np.tile(base, (-(-n // 3), 1))[:n], queries


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("data", [unlike_lengths, narrow_cone, repeated_rows])
@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_data_beyond_float16_does_not_use_cpu(monkeypatch, metric, data, half):
    base, queries = data(6000, 12, 15)
    exact = find_nearest(base, queries, 10, metric)

    def refuse(*_):
        raise AssertionError("searched on the CPU")

    monkeypatch.setattr("ragauge.store_benchmarks.neighbours_faiss.find_nearest", refuse)
    equal(neighbours_gpu.search_with_torch(base, queries, 10, metric, device="cpu", half=half), exact)


@pytest.mark.parametrize("metric", METRICS)
def test_search_with_torch_in_blocks_matches_find_nearest(monkeypatch, metric):
    monkeypatch.setattr(neighbours_gpu, "PAIRS_PER_BATCH", 4000)
    monkeypatch.setattr(neighbours_gpu, "MAX_FLOAT16_ROUNDS", 0)
    for grid in (False, True):
        base, queries = made(grid=grid)
        for k in (1, 10, 700):
            equal(
                neighbours_gpu.search_with_torch(base, queries, k, metric, device="cpu"),
                find_nearest(base, queries, k, metric),
            )
