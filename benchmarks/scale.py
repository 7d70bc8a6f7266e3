"""Large runs: rows a second and the most memory at 1, 10 and 100 million rows of Parquet, here and by worker processes.

Writes SCALE.md. A run has 1,000 documents a query out of 8.8 million, in files of a million rows, and each query has 20
judgments, half of them of documents that it got. Every evaluation has a process of its own, of which the system says
the most memory that it had; files are in the system's cache. A cluster's processes are up before the clock starts.

    python benchmarks/scale.py [--rows 1000000 10000000 100000000] [--workers 2]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import ragauge
from ragauge.files.parquet_runs import open_parquet_run
from ragauge.measures.conventions import find_convention
from ragauge.measures.judged_ranks_from_frames import FrameRanker
from ragauge.runs.folder import provenance

MEASURES = ["ndcg@10", "map", "mrr", "recall@100"]
DEPTH, JUDGED, DOCUMENTS = 1_000, 20, 8_800_000
FILE = 1_000_000
REPEATS = 3


def named(letter: str, numbers: Any) -> pl.Series:
    return pl.select(pl.lit(letter) + pl.Series(np.ravel(numbers)).cast(pl.String)).to_series()


def collection(rows: int, folder: Path) -> tuple[str, str]:
    """A run as a folder of Parquet files, whole queries in each, and its judgments."""
    rng = np.random.default_rng(1)
    run, judgments = folder / f"run{rows}", []
    run.mkdir()
    for place in range(0, rows, FILE):
        n = min(FILE, rows - place) // DEPTH
        queries = np.arange(place // DEPTH, place // DEPTH + n)
        # A stride through the documents gives none twice, and costs no sorting.
        docs = (rng.integers(0, DOCUMENTS, (n, 1)) + np.arange(DEPTH) * rng.integers(1, 8_000, (n, 1))) % DOCUMENTS
        scores = np.sort(rng.random((n, DEPTH), np.float32), axis=1)[:, ::-1]
        pl.DataFrame(
            {
                "query_id": named("q", np.repeat(queries, DEPTH)),
                "doc_id": named("d", docs),
                "score": np.ascontiguousarray(scores.ravel()),
            }
        ).write_parquet(run / f"part-{place // FILE:05}.parquet")
        got = docs[np.arange(n)[:, None], np.argsort(rng.random((n, DEPTH)), axis=1)[:, : JUDGED // 2]]
        other = rng.integers(DOCUMENTS, 2 * DOCUMENTS, (n, 1)) + np.arange(JUDGED - JUDGED // 2)
        judgments.append(
            pl.DataFrame(
                {
                    "query_id": named("q", np.repeat(queries, JUDGED)),
                    "doc_id": named("d", np.concatenate([got, other], axis=1)),
                    "grade": rng.integers(0, 3, n * JUDGED),
                }
            )
        )
    qrels = folder / f"qrels{rows}.parquet"
    pl.concat(judgments).write_parquet(qrels)
    return str(qrels), str(run)


def once(qrels: str, run: str) -> None:
    """One evaluation, for a process of its own: seconds, the most memory, and the means."""
    began = time.perf_counter()
    scores = ragauge.evaluate(qrels, run, MEASURES)
    took = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": took, "bytes": most, "means": scores.means}))


def here(qrels: str, run: str) -> dict[str, Any]:
    words = [sys.executable, __file__, "--once", qrels, run]
    found = [
        json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout) for _ in range(REPEATS)
    ]
    return {**sorted(found, key=lambda one: one["seconds"])[REPEATS // 2], "bytes": max(one["bytes"] for one in found)}


def there(qrels: str, run: str, workers: int, means: dict[str, float]) -> float:
    """The same by worker processes; refused where a number differs."""
    judgments = ragauge.read_judgments(qrels)
    with ragauge.dask_cluster(f"local:{workers}") as executor:
        taken = []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            found = ragauge.evaluate(judgments, run, MEASURES, executor=executor)
            taken.append(time.perf_counter() - began)
            if found.means != means:
                raise SystemExit(f"{workers} workers: {found.means}, not {means}")
    return sorted(taken[1:])[REPEATS // 2]


def travels(qrels: str, run: str) -> str:
    """What a cluster is sent for all of this."""
    parts = [len(pickle.dumps(part)) for part in open_parquet_run(run).parts()]
    work = len(pickle.dumps(FrameRanker(ragauge.read_judgments(qrels), find_convention("default"))))
    files = sum(file.stat().st_size for file in Path(run).glob("*.parquet"))
    return (
        f"Of the run only descriptions travel: {len(parts)} parts, {sum(parts):,} bytes in all; a part's rows are read "
        f"once, by the worker that counts them ({files / 1e6:,.0f} MB of Parquet in all). The judgments "
        f"({work / 1e6:,.1f} MB) go to each worker once."
    )


def exponent(rows: Sequence[int], taken: Sequence[float]) -> float:
    """How seconds grow with rows, between the two largest: 1 is in proportion."""
    return math.log(taken[-1] / taken[-2]) / math.log(rows[-1] / rows[-2])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    asked.add_argument("--workers", type=int, nargs="*", default=[2])
    asked.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    asked.add_argument("--out", type=Path, default=Path(__file__).parent / "SCALE.md")
    told = asked.parse_args()
    if told.once:
        once(*told.once)
        return
    lines = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    machine = provenance()["machine"]
    say("# What large runs cost\n")
    say(
        f"{', '.join(MEASURES)} of runs in folders of Parquet, {DEPTH:,} documents and {JUDGED} judgments a query, on "
        f"{os.cpu_count()} cores ({machine['processor']}), Python {platform.python_version()}, polars "
        f"{pl.__version__}. Median of {REPEATS} by the clock, reading included; the most memory of any.\n"
    )
    say("| rows | where | seconds | million rows a second | most memory, MiB |\n|---:|---|---:|---:|---:|")
    with TemporaryDirectory() as folder:
        taken = []
        for rows in told.rows:
            qrels, run = collection(rows, Path(folder))
            found = here(qrels, run)
            taken.append(found["seconds"])
            rate = rows / found["seconds"] / 1e6
            say(f"| {rows:,} | here | {found['seconds']:.2f} | {rate:.1f} | {found['bytes'] / 2**20:,.0f} |")
        for workers in told.workers:
            took = there(qrels, run, workers, found["means"])
            say(f"| {rows:,} | local:{workers}, the same numbers | {took:.2f} | {rows / took / 1e6:.1f} | |")
        slope = exponent(told.rows, taken) if len(taken) > 1 else math.nan
        say(f"\nFrom {told.rows[-2]:,} to {told.rows[-1]:,} rows seconds grow as rows to the power of {slope:.2f}.")
        say(f"\n{travels(qrels, run)}")
    told.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
