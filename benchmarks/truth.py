"""What exact neighbours cost: the running bound beside faiss and a partition for each block, on one thread of one core.

`--full` takes all metrics and ways at a million vectors; where torch sees a graphics card, it is measured too. Then two
processes of a cluster on this machine, beside this one alone.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # one core, before NumPy loads

# The OpenBLAS in faiss's wheel knows no newer processor, and takes the slowest code there is for it.
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

DIMENSION, QUERIES, K = 128, 1000, 100
CHECKED, FEW = 10, 3
METRICS = ("l2", "ip", "cosine")


def partitioned(base: Any, queries: Any, k: int, metric: str) -> Any:
    """The plain way: the nearest of each block by a partition of all of its scores, in single precision."""
    squares = np.einsum("ij,ij->i", base, base)
    values, places = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    for start in range(0, len(base), 16_384):
        block = base[start : start + 16_384]
        scores = -(queries @ block.T)
        if metric == "l2":
            scores = 2 * scores + squares[start : start + len(block)]
        best = np.argpartition(scores, min(k, len(block) - 1), axis=1)[:, :k]
        values = np.concatenate([values, np.take_along_axis(scores, best, 1)], axis=1)
        places = np.concatenate([places, best + start], axis=1)
        kept = np.argpartition(values, k - 1, axis=1)[:, :k]
        values, places = np.take_along_axis(values, kept, 1), np.take_along_axis(places, kept, 1)
    return places, values


def flat(base: Any, queries: Any, k: int, metric: str) -> Any:
    """faiss as it comes, in single precision."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlat(base.shape[1], faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
    index.add(base)
    return index.search(queries, k)[::-1]


def brute(base: Any, query: Any, k: int, metric: str) -> Any:
    """All distances in double precision, without any trick."""
    every = np.arange(len(base))
    far = pair_distances(base, query[None].astype(np.float64), np.zeros_like(every), every, metric)
    return np.argsort(far, kind="stable")[:k]


def seconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> tuple[float, Any]:
    taken, made = [], None
    for _ in range(repeats):
        began = clock()
        made = work()
        taken.append(clock() - began)
    return statistics.median(taken), made


def measured(count: int, metric: str, repeats: int, *, full: bool = True) -> list[str]:
    checked = CHECKED if full else FEW
    rng = np.random.default_rng(0)
    base = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    queries = rng.standard_normal((QUERIES, DIMENSION), dtype=np.float32)
    ways: list[tuple[str, Callable[..., Any], Callable[[], float]]] = [
        ("running bound", find_nearest, time.process_time)
    ]
    if metric != "cosine":
        if full:
            ways.append(("partition for each block", partitioned, time.process_time))
        if importable("faiss"):
            ways.append(("faiss IndexFlat", flat, time.process_time))
    card = neighbours_gpu.has_gpu()
    if card:
        neighbours_gpu.search_with_torch(
            base[:1000], queries[:2], K, metric
        )  # waking the card is not finding neighbours
        ways.append(("torch on a card (wall clock)", neighbours_gpu.search_with_torch, time.perf_counter))
    exact, rows = None, []
    for name, way, clock in ways:
        took, found = seconds(partial(way, base, queries, K, metric), repeats, clock)
        if exact is None:
            exact, own = found, took
            same = all((brute(base, queries[i], K, metric) == exact[0][i]).all() for i in range(checked))
            what = f"double precision, {checked} queries: {'equal' if same else 'NOT EQUAL'}"
        elif name.startswith("torch"):
            same = np.array_equal(found[0], exact[0]) and np.array_equal(found[1], exact[1])
            what = f"running bound, all queries, distances too: {'equal' if same else 'NOT EQUAL'}"
        else:
            shared = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(found[0], exact[0], strict=True)])
            what = f"running bound: {shared:.4%} of the neighbours"
        rows.append(f"| {count:,} | {metric} | {name} | {took:.2f} | {took / own:.2f} | {what} |")
        print(rows[-1], flush=True)
    return rows


def on_a_card(count: int, metric: str, *, alone: bool = False) -> list[str]:
    """10,000 queries with everything on the card: the plain way, ours, what the card can do at best; or ours alone."""
    import torch

    drawn = torch.Generator(device="cuda").manual_seed(0)
    there = torch.randn(count, DIMENSION, device="cuda", generator=drawn)
    asked = torch.randn(10_000, DIMENSION, device="cuda", generator=drawn)
    queries = asked.double().cpu().numpy()

    def plainly() -> Any:
        rows = there / there.norm(dim=1, keepdim=True) if metric == "cosine" else there
        halves = rows.square().sum(dim=1) / 2 if metric == "l2" else torch.zeros(count, device="cuda")
        values, places = (torch.empty((10_000, 0), device="cuda", dtype=kind) for kind in (torch.float32, torch.int64))
        for start in range(0, count, 200_000):
            block = slice(start, start + 200_000)
            best, columns = (asked @ rows[block].T - halves[block]).topk(K, dim=1)
            values, places = torch.cat([values, best], dim=1), torch.cat([places, columns + start], dim=1)
            values, which = values.topk(K, dim=1)
            places = places.gather(1, which)
        return places.cpu().numpy()

    def ours() -> Any:
        return neighbours_gpu.GpuSearch(there, metric).candidates(queries, K)

    def product(kind: Any, tf32: bool = False) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right, out = asked.to(kind), there[:200_000].to(kind).T, None
        out = left @ right

        def work() -> None:
            for _ in range(count // 200_000):
                torch.matmul(left, right, out=out)
            torch.cuda.synchronize()

        work()
        took, _ = seconds(work, 3, time.perf_counter)
        torch.backends.cuda.matmul.allow_tf32 = False
        return took

    ours()  # waking the card, and choosing among kernels, is not finding neighbours
    mine, found = seconds(ours, 3, time.perf_counter)
    some = range(0, 10_000, 500)
    wrong = 0
    for at in some:
        query = asked[at].double()
        parts = (there[start : start + 1_000_000] for start in range(0, count, 1_000_000))
        far = torch.cat([double_precision(part, query, metric) for part in parts])
        exact = far.topk(K, largest=False).indices.cpu().numpy()
        wrong += len(np.setxor1d(exact, found.positions[found.rows == at]))
    own = (
        f"| {count:,} | {metric} | ours | {mine:.3f} | double precision, {len(some)} queries: "
        f"{'equal' if not wrong else f'{wrong} NOT EQUAL'}; "
        f"{int(np.isinf(found.rest).sum())} queries compared with every row |"
    )
    if alone:
        print(own, flush=True)
        return [own]
    plainly()
    took, single = seconds(plainly, 3, time.perf_counter)
    same = float(np.mean([len(np.intersect1d(found.positions[found.rows == at], single[at])) / K for at in some]))
    copied = there.clone()

    def copy() -> None:
        copied.copy_(there)
        torch.cuda.synchronize()

    copying, _ = seconds(copy, 3, time.perf_counter)
    products = {"float32": product(torch.float32), "tf32": product(torch.float32, tf32=True)}
    products |= {"float16": product(torch.float16)}
    rows = [
        f"| {count:,} | {metric} | float32 products and topk | {took:.3f} | {same:.4%} of the neighbours below |",
        own,
        *(f"| {count:,} | {metric} | {name} products alone | {one:.3f} | |" for name, one in products.items()),
        f"| {count:,} | {metric} | copying the vectors on the card | {copying:.3f} | "
        f"{2 * there.nbytes / copying / 1e12:.2f} TB/s |",
    ]
    print("\n".join(rows), flush=True)
    return rows


def unusual(count: int = 300_000, dimension: int = 96, many: int = 200, k: int = 10) -> list[str]:
    """Measure data on which 16 bits decide nothing: near-equal cosines, very different lengths, repeated vectors."""
    rng = np.random.default_rng(0)
    axis = rng.standard_normal(dimension)
    normal = [rng.standard_normal((rows, dimension)) for rows in (count, many)]
    cone = [axis + 1e-5 * part for part in normal]
    outliers = [axis + 1e-4 * part for part in normal]
    outliers[0][::1000] = normal[0][::1000]
    sets = {
        "normally distributed": normal,
        "near-equal cosines": cone,
        "near-equal cosines, 0.1% outliers": outliers,
        "lengths from 1e-6 to 1e6": [part * 10 ** rng.uniform(-6, 6, (len(part), 1)) for part in normal],
        "three vectors, repeated": [np.tile(normal[0][:3], (count // 3, 1)), normal[1]],
    }
    rows = []
    for name, (base, queries) in sets.items():
        single, asked = np.asarray(base, np.float32), np.asarray(queries, np.float32)
        for metric in ("l2", "cosine"):
            neighbours_gpu.search_with_torch(single, asked, k, metric)
            took, found = seconds(
                partial(neighbours_gpu.search_with_torch, single, asked, k, metric), 3, time.perf_counter
            )
            some = slice(0, many, many // 10)
            exact = find_nearest(single, asked[some], k, metric)
            same = all(np.array_equal(mine[some], other) for mine, other in zip(found, exact, strict=True))
            rows.append(
                f"| {name} | {metric} | {took:.3f} | the CPU, 10 queries, distances too: "
                f"{'equal' if same else 'NOT EQUAL'} |"
            )
            print(rows[-1], flush=True)
    return rows


def elsewhere(count: int = 200_000) -> list[str]:
    """The same neighbours here and by two processes, to which the vectors are sent or which read them from a file."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    queries = rng.standard_normal((QUERIES, DIMENSION), dtype=np.float32)
    rows, exact, own = [], None, 0.0
    quarters = [base[start : start + count // 4] for start in range(0, count, count // 4)]
    whole, _ = seconds(lambda: find_nearest(base, queries, K, "l2"), 1, time.process_time)
    apart, _ = seconds(lambda: [find_nearest(some, queries, K, "l2") for some in quarters], 1, time.process_time)
    for name, took in (("one piece", whole), ("four shards", apart)):
        rows.append(f"| {count:,} | l2 | here, {name} (processor time) | {took:.2f} | {took / whole:.2f} | |")
        print(rows[-1], flush=True)
    with TemporaryDirectory() as folder, dask_cluster("local:2") as two:
        np.save(Path(folder) / "base.npy", base)
        read = np.load(Path(folder) / "base.npy", mmap_mode="r")
        # Processes that load NumPy do not find neighbours meanwhile.
        find_exact_neighbours(VectorSet("drawn", base, queries, "l2"), K, by="numpy", executor=two)
        for name, given, executor in (
            ("here", base, None),
            ("local:2, vectors sent", base, two),
            ("local:2, vectors in a file", read, two),
        ):
            data = VectorSet("drawn", given, queries, "l2")
            took, found = seconds(
                partial(find_exact_neighbours, data, K, by="numpy", executor=executor), 3, time.perf_counter
            )
            if exact is None:
                exact, own = found, took
            same = all(
                np.array_equal(getattr(found, part), getattr(exact, part)) for part in ("neighbours", "distances")
            )
            what = "" if executor is None else f"here, all queries, distances too: {'equal' if same else 'NOT EQUAL'}"
            rows.append(f"| {count:,} | l2 | {name} | {took:.2f} | {took / own:.2f} | {what} |")
            print(rows[-1], flush=True)
    return rows


def double_precision(rows: Any, query: Any, metric: str) -> Any:
    """All distances, without any trick."""
    if metric == "l2":
        return (rows.double() - query).square().sum(dim=1)
    return -(rows.double() @ query) / rows.double().norm(dim=1)


def importable(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def version(name: str) -> str:
    return str(__import__(name).__version__) if importable(name) else "not there"


def card_name() -> str:
    import torch

    return str(torch.cuda.get_device_name())


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--full", action="store_true")
    asked.add_argument("--card", action="store_true", help="only what lies on a card")
    place = Path(__file__).parent / ("TRUTH_CARD.md" if neighbours_gpu.has_gpu() else "TRUTH.md")
    asked.add_argument("--out", type=Path, default=place)
    told = asked.parse_args()
    rows = []
    for metric in () if told.card else METRICS:
        rows += measured(100_000, metric, 3, full=told.full or metric == "l2")
    for metric in () if told.card else METRICS if told.full else ("l2",):
        rows += measured(1_000_000, metric, 1, full=told.full)
    both = [] if told.card or not importable("distributed") else elsewhere()
    torch = f", torch {version('torch')} on {card_name()}" if neighbours_gpu.has_gpu() else ""
    cores = f", OPENBLAS_CORETYPE={os.environ['OPENBLAS_CORETYPE']}" if "OPENBLAS_CORETYPE" in os.environ else ""
    machine = provenance()["machine"]
    lines = [
        "# What exact neighbours cost",
        "",
        f"{QUERIES:,} queries, {DIMENSION} dimensions, k = {K}, normally distributed vectors; seconds of processor "
        f"time on one thread ({machine['processor']}), Python {platform.python_version()}, NumPy {np.__version__}, "
        f"faiss {version('faiss')}{torch}{cores}. Median of 3 for 100,000 vectors, one run for 1,000,000. The running "
        "bound and torch decide in double precision; the two others answer in single precision.",
        "",
        "| vectors | metric | way | seconds | to the running bound | compared with |",
        "|---:|---|---|---:|---:|---|",
        *rows,
    ]
    if both:
        lines += [
            "",
            "## By two processes",
            "",
            f"{QUERIES:,} queries, {DIMENSION} dimensions, k = {K}; one thread in each process, {os.cpu_count()} "
            f"cores, on which {os.getloadavg()[0]:.1f} processes wanted to run in the last minute; seconds by the "
            "clock, median of 3. Processes have started and the file is written before.",
            "",
            "| vectors | metric | way | seconds | to here | compared with |",
            "|---:|---|---|---:|---:|---|",
            *both,
        ]
    if why := neighbours_gpu.gpu_unavailable_reason():
        lines += ["", f"On a graphics card: not measured here ({why})."]
        print(lines[-1], flush=True)
    else:
        large = [
            line
            for count in (1_000_000, 10_000_000)
            for metric in ("l2", "cosine")
            for line in on_a_card(count, metric)
        ]
        large += on_a_card(100_000_000, "l2", alone=True)
        lines += [
            "",
            "## With everything on the card",
            "",
            f"10,000 queries, {DIMENSION} dimensions, k = {K}, vectors in the card's memory before and neighbours in "
            "the host's after; median of 3, seconds by the clock. Ours brings the rows to 16 bits anew each time.",
            "",
            "| vectors | metric | way | seconds | compared with |",
            "|---:|---|---|---:|---|",
            *large,
            "",
            "## Data beyond 16 bits",
            "",
            "300,000 vectors, 200 queries, 96 dimensions, k = 10, from the host's memory and back; median of 3, "
            "seconds by the clock. Queries that 16 bits cannot settle are compared with every vector in double "
            "precision on the GPU.",
            "",
            "| data | metric | seconds | compared with |",
            "|---|---|---:|---|",
            *unusual(),
        ]
    told.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
