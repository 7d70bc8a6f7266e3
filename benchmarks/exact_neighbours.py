"""Measure the search for exact neighbours.

Compares one thread of the CPU, a baseline, faiss, a GPU and worker processes. Writes EXACT_NEIGHBOURS.md, or
EXACT_NEIGHBOURS_GPU.md if torch finds a GPU. CPU time is that of one thread on one core.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # one core, before NumPy loads

# The OpenBLAS in the wheel of faiss does not recognise recent CPUs, and uses its slowest code for them.
if os.path.exists("/proc/cpuinfo") and "avx512f" in open("/proc/cpuinfo").read():  # noqa: SIM115
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ragauge.compute.dask_cluster import dask_cluster
from ragauge.runs.folder import provenance
from ragauge.store_benchmarks import neighbours_gpu
from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
from ragauge.store_benchmarks.results import VectorSet
from ragauge.stores.nearest_neighbours import find_nearest, pair_distances

DIMENSIONS, QUERIES, K = 128, 1000, 100
CHECKED_QUERIES, CHECKED_QUERIES_BRIEF = 10, 3
"""Number of queries compared with brute force, in full and in brief measurements."""
METRICS = ("l2", "ip", "cosine")


def search_with_partition(base: Any, queries: Any, k: int, metric: str) -> Any:
    """Find the nearest rows by a partition of all scores of each block (baseline).

    Scores are in single precision.
    """
    squares = np.einsum("ij,ij->i", base, base)
    values, positions = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    for start in range(0, len(base), 16_384):
        block = base[start : start + 16_384]
        scores = -(queries @ block.T)
        if metric == "l2":
            scores = 2 * scores + squares[start : start + len(block)]
        nearest = np.argpartition(scores, min(k, len(block) - 1), axis=1)[:, :k]
        values = np.concatenate([values, np.take_along_axis(scores, nearest, 1)], axis=1)
        positions = np.concatenate([positions, nearest + start], axis=1)
        kept = np.argpartition(values, k - 1, axis=1)[:, :k]
        values, positions = np.take_along_axis(values, kept, 1), np.take_along_axis(positions, kept, 1)
    return positions, values


def search_with_faiss(base: Any, queries: Any, k: int, metric: str) -> Any:
    """Find the nearest rows with IndexFlat of faiss, in single precision."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlat(base.shape[1], faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
    index.add(base)
    return index.search(queries, k)[::-1]


def search_by_brute_force(base: Any, query: Any, k: int, metric: str) -> Any:
    """Find the nearest rows of one query by all distances in double precision."""
    rows = np.arange(len(base))
    distances = pair_distances(base, query[None].astype(np.float64), np.zeros_like(rows), rows, metric)
    return np.argsort(distances, kind="stable")[:k]


def measure_seconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> tuple[float, Any]:
    """Return the median time of `repeats` calls, and the result of the last one."""
    times, result = [], None
    for _ in range(repeats):
        start = clock()
        result = work()
        times.append(clock() - start)
    return statistics.median(times), result


def format_check(is_equal: bool) -> str:
    return "equal" if is_equal else "NOT EQUAL"


def measure_methods(count: int, metric: str, repeats: int, *, full: bool = True) -> list[str]:
    """Measure all methods on `count` random vectors; return rows of a table."""
    n_checked = CHECKED_QUERIES if full else CHECKED_QUERIES_BRIEF
    rng = np.random.default_rng(0)
    base = rng.standard_normal((count, DIMENSIONS), dtype=np.float32)
    queries = rng.standard_normal((QUERIES, DIMENSIONS), dtype=np.float32)
    methods: list[tuple[str, Callable[..., Any], Callable[[], float]]] = [
        ("ragauge, CPU", find_nearest, time.process_time)
    ]
    if metric != "cosine":
        if full:
            methods.append(("baseline: partition of each block", search_with_partition, time.process_time))
        if is_installed("faiss"):
            methods.append(("faiss IndexFlat", search_with_faiss, time.process_time))
    if neighbours_gpu.has_gpu():
        # The first search on a GPU includes its initialisation, which is not measured.
        neighbours_gpu.search_with_torch(base[:1000], queries[:2], K, metric)
        methods.append(("ragauge, GPU (wall-clock time)", neighbours_gpu.search_with_torch, time.perf_counter))
    exact, rows = None, []
    for name, search, clock in methods:
        seconds, found = measure_seconds(partial(search, base, queries, K, metric), repeats, clock)
        if exact is None:
            exact, ragauge_seconds = found, seconds
            is_equal = all(
                (search_by_brute_force(base, queries[i], K, metric) == exact[0][i]).all() for i in range(n_checked)
            )
            check = f"brute force in double precision, {n_checked} queries: {format_check(is_equal)}"
        elif name.startswith("ragauge, GPU"):
            is_equal = np.array_equal(found[0], exact[0]) and np.array_equal(found[1], exact[1])
            check = f"ragauge, CPU, neighbours and distances of all queries: {format_check(is_equal)}"
        else:
            recall = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(found[0], exact[0], strict=True)])
            check = f"ragauge, CPU: {recall:.4%} of the neighbours"
        rows.append(f"| {count:,} | {metric} | {name} | {seconds:.2f} | {seconds / ragauge_seconds:.2f} | {check} |")
        print(rows[-1], flush=True)
    return rows


def measure_in_gpu_memory(count: int, metric: str, *, ragauge_only: bool = False) -> list[str]:
    """Measure 10,000 queries with all vectors in GPU memory; return rows of a table.

    ragauge is compared with a float32 baseline, and with the matrix products and the copying alone.
    """
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    gpu_base = torch.randn(count, DIMENSIONS, device="cuda", generator=generator)
    gpu_queries = torch.randn(10_000, DIMENSIONS, device="cuda", generator=generator)
    queries = gpu_queries.double().cpu().numpy()

    def search_with_topk() -> Any:
        rows = gpu_base / gpu_base.norm(dim=1, keepdim=True) if metric == "cosine" else gpu_base
        halves = rows.square().sum(dim=1) / 2 if metric == "l2" else torch.zeros(count, device="cuda")
        values, positions = (
            torch.empty((10_000, 0), device="cuda", dtype=dtype) for dtype in (torch.float32, torch.int64)
        )
        for start in range(0, count, 200_000):
            block = slice(start, start + 200_000)
            nearest, columns = (gpu_queries @ rows[block].T - halves[block]).topk(K, dim=1)
            values, positions = torch.cat([values, nearest], dim=1), torch.cat([positions, columns + start], dim=1)
            values, kept = values.topk(K, dim=1)
            positions = positions.gather(1, kept)
        return positions.cpu().numpy()

    def search_with_ragauge() -> Any:
        return neighbours_gpu.GpuSearch(gpu_base, metric).candidates(queries, K)

    def measure_products(dtype: Any, tf32: bool = False) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right, out = gpu_queries.to(dtype), gpu_base[:200_000].to(dtype).T, None
        out = left @ right

        def multiply() -> None:
            for _ in range(count // 200_000):
                torch.matmul(left, right, out=out)
            torch.cuda.synchronize()

        multiply()
        seconds, _ = measure_seconds(multiply, 3, time.perf_counter)
        torch.backends.cuda.matmul.allow_tf32 = False
        return seconds

    search_with_ragauge()  # untimed: initialises the GPU and selects kernels
    ragauge_seconds, found = measure_seconds(search_with_ragauge, 3, time.perf_counter)
    checked = range(0, 10_000, 500)
    n_wrong = 0
    for i in checked:
        query = gpu_queries[i].double()
        parts = (gpu_base[start : start + 1_000_000] for start in range(0, count, 1_000_000))
        distances = torch.cat([compute_distances(part, query, metric) for part in parts])
        exact = distances.topk(K, largest=False).indices.cpu().numpy()
        n_wrong += len(np.setxor1d(exact, found.positions[found.rows == i]))
    ragauge_row = (
        f"| {count:,} | {metric} | ragauge | {ragauge_seconds:.3f} | brute force in double precision, {len(checked)} "
        f"queries: {'equal' if not n_wrong else f'{n_wrong} NOT EQUAL'}; "
        f"{int(np.isinf(found.min_other_distance).sum())} queries compared with every row |"
    )
    if ragauge_only:
        print(ragauge_row, flush=True)
        return [ragauge_row]
    search_with_topk()
    topk_seconds, topk = measure_seconds(search_with_topk, 3, time.perf_counter)
    recall = float(np.mean([len(np.intersect1d(found.positions[found.rows == i], topk[i])) / K for i in checked]))
    copied = gpu_base.clone()

    def copy() -> None:
        copied.copy_(gpu_base)
        torch.cuda.synchronize()

    copy_seconds, _ = measure_seconds(copy, 3, time.perf_counter)
    product_seconds = {"float32": measure_products(torch.float32), "tf32": measure_products(torch.float32, tf32=True)}
    product_seconds |= {"float16": measure_products(torch.float16)}
    rows = [
        f"| {count:,} | {metric} | baseline: float32 products and topk | {topk_seconds:.3f} | "
        f"ragauge: {recall:.4%} of the neighbours |",
        ragauge_row,
        *(
            f"| {count:,} | {metric} | {name} products alone | {seconds:.3f} | |"
            for name, seconds in product_seconds.items()
        ),
        f"| {count:,} | {metric} | copying the vectors in GPU memory | {copy_seconds:.3f} | "
        f"{2 * gpu_base.nbytes / copy_seconds / 1e12:.2f} TB/s |",
    ]
    print("\n".join(rows), flush=True)
    return rows


def measure_difficult_data(count: int = 300_000, dimensions: int = 96, n_queries: int = 200, k: int = 10) -> list[str]:
    """Measure data that 16 bits cannot resolve; return rows of a table.

    The data sets have near-equal cosines, very different lengths, or repeated vectors.
    """
    rng = np.random.default_rng(0)
    axis = rng.standard_normal(dimensions)
    normal = [rng.standard_normal((rows, dimensions)) for rows in (count, n_queries)]
    cone = [axis + 1e-5 * part for part in normal]
    outliers = [axis + 1e-4 * part for part in normal]
    outliers[0][::1000] = normal[0][::1000]
    datasets = {
        "normally distributed": normal,
        "near-equal cosines": cone,
        "near-equal cosines, 0.1% outliers": outliers,
        "lengths from 1e-6 to 1e6": [part * 10 ** rng.uniform(-6, 6, (len(part), 1)) for part in normal],
        "three vectors, repeated": [np.tile(normal[0][:3], (count // 3, 1)), normal[1]],
    }
    rows = []
    for name, arrays in datasets.items():
        base, queries = (np.asarray(array, np.float32) for array in arrays)
        for metric in ("l2", "cosine"):
            search = partial(neighbours_gpu.search_with_torch, base, queries, k, metric)
            search()
            seconds, found = measure_seconds(search, 3, time.perf_counter)
            checked = slice(0, n_queries, n_queries // 10)
            exact = find_nearest(base, queries[checked], k, metric)
            is_equal = all(np.array_equal(gpu[checked], cpu) for gpu, cpu in zip(found, exact, strict=True))
            rows.append(
                f"| {name} | {metric} | {seconds:.3f} | ragauge, CPU, neighbours and distances of 10 queries: "
                f"{format_check(is_equal)} |"
            )
            print(rows[-1], flush=True)
    return rows


def measure_workers(count: int = 200_000) -> list[str]:
    """Measure one process and two worker processes; return rows of a table.

    Workers are sent the vectors, or read them from a file.
    """
    rng = np.random.default_rng(0)
    base = rng.standard_normal((count, DIMENSIONS), dtype=np.float32)
    queries = rng.standard_normal((QUERIES, DIMENSIONS), dtype=np.float32)
    rows, exact, one_process_seconds = [], None, 0.0
    shards = [base[start : start + count // 4] for start in range(0, count, count // 4)]
    one_shard, _ = measure_seconds(lambda: find_nearest(base, queries, K, "l2"), 1, time.process_time)
    four_shards, _ = measure_seconds(
        lambda: [find_nearest(shard, queries, K, "l2") for shard in shards], 1, time.process_time
    )
    for name, seconds in (("one shard", one_shard), ("four shards", four_shards)):
        rows.append(
            f"| {count:,} | l2 | one process, {name} (CPU time) | {seconds:.2f} | {seconds / one_shard:.2f} | |"
        )
        print(rows[-1], flush=True)
    with TemporaryDirectory() as folder, dask_cluster("local:2") as cluster:
        np.save(Path(folder) / "base.npy", base)
        mapped = np.load(Path(folder) / "base.npy", mmap_mode="r")
        # The first search includes the import of NumPy on the workers, which is not measured.
        find_exact_neighbours(VectorSet("random", base, queries, "l2"), K, by="numpy", executor=cluster)
        for name, vectors, executor in (
            ("one process", base, None),
            ("local:2, vectors sent", base, cluster),
            ("local:2, vectors in a file", mapped, cluster),
        ):
            data = VectorSet("random", vectors, queries, "l2")
            seconds, found = measure_seconds(
                partial(find_exact_neighbours, data, K, by="numpy", executor=executor), 3, time.perf_counter
            )
            if exact is None:
                exact, one_process_seconds = found, seconds
            is_equal = all(
                np.array_equal(getattr(found, part), getattr(exact, part)) for part in ("neighbours", "distances")
            )
            check = f"one process, neighbours and distances of all queries: {format_check(is_equal)}"
            rows.append(
                f"| {count:,} | l2 | {name} | {seconds:.2f} | {seconds / one_process_seconds:.2f} | "
                f"{'' if executor is None else check} |"
            )
            print(rows[-1], flush=True)
    return rows


def compute_distances(rows: Any, query: Any, metric: str) -> Any:
    """Compute all distances in double precision on the GPU."""
    if metric == "l2":
        return (rows.double() - query).square().sum(dim=1)
    return -(rows.double() @ query) / rows.double().norm(dim=1)


def is_installed(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def package_version(name: str) -> str:
    return str(__import__(name).__version__) if is_installed(name) else "not installed"


def gpu_name() -> str:
    import torch

    return str(torch.cuda.get_device_name())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="measure all metrics and methods on a million vectors")
    parser.add_argument("--gpu", action="store_true", help="measure only vectors in GPU memory")
    default_out = "EXACT_NEIGHBOURS_GPU.md" if neighbours_gpu.has_gpu() else "EXACT_NEIGHBOURS.md"
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / default_out, help="output file")
    args = parser.parse_args()
    rows = []
    for metric in () if args.gpu else METRICS:
        rows += measure_methods(100_000, metric, 3, full=args.full or metric == "l2")
    for metric in () if args.gpu else METRICS if args.full else ("l2",):
        rows += measure_methods(1_000_000, metric, 1, full=args.full)
    worker_rows = [] if args.gpu or not is_installed("distributed") else measure_workers()
    torch = f", torch {package_version('torch')} on {gpu_name()}" if neighbours_gpu.has_gpu() else ""
    coretype = f", OPENBLAS_CORETYPE={os.environ['OPENBLAS_CORETYPE']}" if "OPENBLAS_CORETYPE" in os.environ else ""
    machine = provenance()["machine"]
    lines = [
        "# Speed of exact neighbours",
        "",
        f"{QUERIES:,} queries, {DIMENSIONS} dimensions, k = {K}, normally distributed vectors; CPU time in seconds on "
        f"one thread ({machine['processor']}), Python {platform.python_version()}, NumPy {np.__version__}, "
        f"faiss {package_version('faiss')}{torch}{coretype}. Median of 3 for 100,000 vectors, one measurement for "
        "1,000,000. Results of ragauge are exact in double precision; those of the baseline and of faiss are in single "
        "precision.",
        "",
        "| vectors | metric | method | time, s | relative to ragauge, CPU | compared with |",
        "|---:|---|---|---:|---:|---|",
        *rows,
    ]
    if worker_rows:
        lines += [
            "",
            "## Two worker processes",
            "",
            f"{QUERIES:,} queries, {DIMENSIONS} dimensions, k = {K}; one thread per process, {os.cpu_count()} cores, "
            f"load average of the last minute {os.getloadavg()[0]:.1f}; wall-clock time unless stated, median of 3. "
            "Processes are started and the file is written before the timing.",
            "",
            "| vectors | metric | method | time, s | relative to one process | compared with |",
            "|---:|---|---|---:|---:|---|",
            *worker_rows,
        ]
    if reason := neighbours_gpu.gpu_unavailable_reason():
        lines += ["", f"Not measured on a GPU ({reason})."]
        print(lines[-1], flush=True)
    else:
        gpu_rows = [
            row
            for count in (1_000_000, 10_000_000)
            for metric in ("l2", "cosine")
            for row in measure_in_gpu_memory(count, metric)
        ]
        gpu_rows += measure_in_gpu_memory(100_000_000, "l2", ragauge_only=True)
        lines += [
            "",
            "## Vectors in GPU memory",
            "",
            f"10,000 queries, {DIMENSIONS} dimensions, k = {K}; vectors are in GPU memory before the timing, "
            "neighbours in main memory after it; median of 3, wall-clock time. Each search by ragauge includes the "
            "conversion of the vectors to 16 bits.",
            "",
            "| vectors | metric | method | time, s | compared with |",
            "|---:|---|---|---:|---|",
            *gpu_rows,
            "",
            "## Data that 16 bits cannot resolve",
            "",
            "300,000 vectors, 200 queries, 96 dimensions, k = 10, from and to main memory; median of 3, wall-clock "
            "time. Queries that 16 bits cannot decide are compared with every vector in double precision on the GPU.",
            "",
            "| data | metric | time, s | compared with |",
            "|---|---|---:|---|",
            *measure_difficult_data(),
        ]
    args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
