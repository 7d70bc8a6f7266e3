"""What the harness costs a query, and fusion against ranx; writes benchmarks/LIVE.md.

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
from ragauge.files.workspace import WorkKey
from ragauge.fusion import fuse
from ragauge.runs.execution import QueryTask, RunSettings, run_queries, run_queries_async
from ragauge.runs.journal import Journal

HERE = Path(__file__).resolve().parent
ROUNDS = 5


def median_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def harness() -> list[str]:
    rows = ["| k | plain loop, µs | 4 threads, µs | event loop, 4 at a time, µs |", "|---:|---:|---:|---:|"]
    jobs = [QueryTask(f"query-{i}", "a question of the usual length", 0) for i in range(5000)]
    for k in (10, 100):
        hits = [Hit(f"document-{i}", 1.0 / (i + 1)) for i in range(k)]

        class Nothing:
            def search(self, _query: str, _k: int, hits: list[Hit] = hits) -> list[Hit]:
                return hits

        class NothingLater:
            async def search(self, _query: str, _k: int, hits: list[Hit] = hits) -> list[Hit]:
                return hits

        def timed(work: Callable[[Journal], object]) -> str:
            def once() -> None:
                with tempfile.TemporaryDirectory() as folder:
                    journal = Journal(Path(folder) / "journal.jsonl", WorkKey())
                    work(journal)
                    journal.close()

            return f"{median_seconds(once) / len(jobs) * 1e6:.1f}"

        plain, later = Nothing(), NothingLater()
        cells = (
            timed(lambda journal, r=plain, k=k: run_queries(r, jobs, RunSettings(k=k), journal.append)),  # type: ignore[misc]
            timed(lambda journal, r=plain, k=k: run_queries(r, jobs, RunSettings(k=k, workers=4), journal.append)),  # type: ignore[misc]
            timed(
                lambda journal, r=later, k=k: asyncio.run(
                    run_queries_async(r, jobs, RunSettings(k=k, workers=4), journal.append)
                )  # type: ignore[misc]
            ),
        )
        rows.append(f"| {k} | {' | '.join(cells)} |")
    return rows


def fusions() -> list[str]:
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
        mine = median_seconds(lambda m=method, n=norm, p=parameters: fuse(runs, m, norm=n, **p))  # type: ignore[misc]
        theirs = [RanxRun.from_dict(run) for run in runs]

        def ranx(m: str = method, n: str | None = norm, p: object = parameters) -> None:
            ranx_fuse(theirs, norm=n, method=m, params=p)  # noqa: B023 - called before the next round

        first = median_seconds(ranx, 1)
        rows.append(f"| {method} | {mine:.3f} | {first:.2f} | {median_seconds(ranx):.3f} |")
    return rows


def main() -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "polars", "ranx"))
    lines = [
        "# What running costs",
        "",
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, {versions}.",
        "",
        "## The harness, a query",
        "",
        "A system that does nothing, asked 5,000 queries; every answer is timed, read and written to disk. Medians of "
        f"{ROUNDS} rounds.",
        "",
        *harness(),
        "",
        "## Fusion",
        "",
        "Two runs of 1,000 queries and 100 documents, from dictionaries; ranx works on its own compiled runs.",
        "",
        *fusions(),
        "",
    ]
    text = "\n".join(lines)
    (HERE / "LIVE.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
