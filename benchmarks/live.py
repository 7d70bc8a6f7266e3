"""Measure the overhead of the harness per query, and the speed of fusion.

Fusion is compared with ranx. Writes LIVE.md.

    python benchmarks/live.py
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np

from ragauge.core.documents import Hit
from ragauge.fusion.fuse import fuse
from ragauge.runs.execution import QueryTask, RunSettings, run_queries, run_queries_async
from ragauge.runs.journal import Journal, WorkKey

HERE = Path(__file__).resolve().parent
ROUNDS = 5


def median_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_overhead() -> list[str]:
    """Measure the overhead per query with a system that returns constant hits."""
    rows = [
        "| k | one thread, µs | 4 threads, µs | event loop, 4 concurrent queries, µs |",
        "|---:|---:|---:|---:|",
    ]
    tasks = [QueryTask(f"query-{i}", "a question of the usual length", 0) for i in range(5000)]
    for k in (10, 100):
        hits = [Hit(f"document-{i}", 1.0 / (i + 1)) for i in range(k)]

        class ConstantSystem:
            def search(self, _query: str, _k: int, hits: list[Hit] = hits) -> list[Hit]:
                return hits

        class AsyncConstantSystem:
            async def search(self, _query: str, _k: int, hits: list[Hit] = hits) -> list[Hit]:
                return hits

        def measure(work: Callable[[Journal], object]) -> str:
            def run_once() -> None:
                with tempfile.TemporaryDirectory() as folder:
                    journal = Journal(Path(folder) / "journal.jsonl", WorkKey())
                    work(journal)
                    journal.close()

            return f"{median_seconds(run_once) / len(tasks) * 1e6:.1f}"

        system, async_system = ConstantSystem(), AsyncConstantSystem()
        cells = (
            measure(lambda journal, r=system, k=k: run_queries(r, tasks, RunSettings(k=k), journal.append)),  # type: ignore[misc]
            measure(lambda journal, r=system, k=k: run_queries(r, tasks, RunSettings(k=k, workers=4), journal.append)),  # type: ignore[misc]
            measure(
                lambda journal, r=async_system, k=k: asyncio.run(
                    run_queries_async(r, tasks, RunSettings(k=k, workers=4), journal.append)
                )  # type: ignore[misc]
            ),
        )
        rows.append(f"| {k} | {' | '.join(cells)} |")
    return rows


def measure_fusion() -> list[str]:
    """Measure the time to fuse two runs with each method."""
    from ranx import Run as RanxRun
    from ranx import fuse as ranx_fuse

    rng = np.random.default_rng(0)
    runs = []
    for _ in range(2):
        run = {}
        for q in range(1000):
            docs = rng.choice(5000, 100, replace=False).tolist()
            run[f"q{q}"] = dict(zip((f"d{d}" for d in docs), np.sort(rng.random(100))[::-1].tolist(), strict=True))
        runs.append(run)
    rows = ["| method | ragauge, s | ranx first call, s | ranx, s |", "|---|---:|---:|---:|"]
    for method, norm, parameters in (
        ("rrf", None, {"k": 60}),
        ("wsum", "min-max", {"weights": (0.7, 0.3)}),
        ("mnz", "min-max", {}),
        ("bordafuse", None, {}),
    ):
        ragauge_seconds = median_seconds(lambda m=method, n=norm, p=parameters: fuse(runs, m, norm=n, **p))  # type: ignore[misc]
        ranx_runs = [RanxRun.from_dict(run) for run in runs]

        def fuse_with_ranx(m: str = method, n: str | None = norm, p: object = parameters) -> None:
            ranx_fuse(ranx_runs, norm=n, method=m, params=p)  # noqa: B023 - called before the next round

        first = median_seconds(fuse_with_ranx, 1)
        rows.append(f"| {method} | {ragauge_seconds:.3f} | {first:.2f} | {median_seconds(fuse_with_ranx):.3f} |")
    return rows


def main() -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "polars", "ranx"))
    lines = [
        "# Overhead of the harness, and speed of fusion",
        "",
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, {versions}.",
        "",
        "## Overhead of the harness per query",
        "",
        "5,000 queries to a system that does nothing; every ranking is timed, parsed and saved to disk. Median of "
        f"{ROUNDS} rounds.",
        "",
        *measure_overhead(),
        "",
        "## Fusion",
        "",
        "Two runs of 1,000 queries, 100 documents per query. ragauge gets dictionaries, ranx its own compiled runs.",
        "",
        *measure_fusion(),
        "",
    ]
    text = "\n".join(lines)
    (HERE / "LIVE.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
