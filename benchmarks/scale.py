"""Measure the evaluation of large runs in one process and on worker processes.

Writes SCALE.md for 1, 10 and 100 million rows of Parquet. A run has 1,000 documents per query out of 8.8 million, in
files of a million rows. Each query has 20 judgments, half of them for retrieved documents. Every evaluation in one
process runs in a new process, whose peak memory the operating system reports. Files are in the cache of the operating
system. The processes of a cluster are started before the timing.

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
ROWS_PER_FILE = 1_000_000
REPEATS = 3


def format_ids(prefix: str, numbers: Any) -> pl.Series:
    return pl.select(pl.lit(prefix) + pl.Series(np.ravel(numbers)).cast(pl.String)).to_series()


def write_collection(rows: int, folder: Path) -> tuple[str, str]:
    """Write judgments and a run, and return their paths.

    The run is a folder of Parquet files with whole queries in each.
    """
    rng = np.random.default_rng(1)
    run, judgments = folder / f"run{rows}", []
    run.mkdir()
    for start in range(0, rows, ROWS_PER_FILE):
        n = min(ROWS_PER_FILE, rows - start) // DEPTH
        queries = np.arange(start // DEPTH, start // DEPTH + n)
        # A stride through the documents yields distinct ones without sorting.
        docs = (rng.integers(0, DOCUMENTS, (n, 1)) + np.arange(DEPTH) * rng.integers(1, 8_000, (n, 1))) % DOCUMENTS
        scores = np.sort(rng.random((n, DEPTH), np.float32), axis=1)[:, ::-1]
        pl.DataFrame(
            {
                "query_id": format_ids("q", np.repeat(queries, DEPTH)),
                "doc_id": format_ids("d", docs),
                "score": np.ascontiguousarray(scores.ravel()),
            }
        ).write_parquet(run / f"part-{start // ROWS_PER_FILE:05}.parquet")
        retrieved = docs[np.arange(n)[:, None], np.argsort(rng.random((n, DEPTH)), axis=1)[:, : JUDGED // 2]]
        missed = rng.integers(DOCUMENTS, 2 * DOCUMENTS, (n, 1)) + np.arange(JUDGED - JUDGED // 2)
        judgments.append(
            pl.DataFrame(
                {
                    "query_id": format_ids("q", np.repeat(queries, JUDGED)),
                    "doc_id": format_ids("d", np.concatenate([retrieved, missed], axis=1)),
                    "grade": rng.integers(0, 3, n * JUDGED),
                }
            )
        )
    qrels = folder / f"qrels{rows}.parquet"
    pl.concat(judgments).write_parquet(qrels)
    return str(qrels), str(run)


def evaluate_once(qrels: str, run: str) -> None:
    """Evaluate in this process; print seconds, peak memory and means as JSON."""
    start = time.perf_counter()
    scores = ragauge.evaluate(qrels, run, MEASURES)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "bytes": peak, "means": scores.means}))


def measure_one_process(qrels: str, run: str) -> dict[str, Any]:
    """Measure evaluations in new processes.

    Returns the result with the median time, and the highest peak memory in bytes.
    """
    command = [sys.executable, __file__, "--once", qrels, run]
    results = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(REPEATS)
    ]
    median = sorted(results, key=lambda result: result["seconds"])[REPEATS // 2]
    return {**median, "bytes": max(result["bytes"] for result in results)}


def measure_workers(qrels: str, run: str, n_workers: int, means: dict[str, float]) -> float:
    """Return the median seconds with worker processes.

    Exits if the scores differ from `means`.
    """
    judgments = ragauge.read_judgments(qrels)
    with ragauge.dask_cluster(f"local:{n_workers}") as executor:
        times = []
        for _ in range(REPEATS + 1):
            start = time.perf_counter()
            scores = ragauge.evaluate(judgments, run, MEASURES, executor=executor)
            times.append(time.perf_counter() - start)
            if scores.means != means:
                raise SystemExit(f"{n_workers} workers: {scores.means}, expected {means}")
    return sorted(times[1:])[REPEATS // 2]


def describe_transfers(qrels: str, run: str) -> str:
    """Describe the amount of data that is sent to the workers of a cluster."""
    part_sizes = [len(pickle.dumps(part)) for part in open_parquet_run(run).parts()]
    judgment_size = len(pickle.dumps(FrameRanker(ragauge.read_judgments(qrels), find_convention("default"))))
    file_size = sum(file.stat().st_size for file in Path(run).glob("*.parquet"))
    return (
        f"Workers are sent only descriptions of the run: {len(part_sizes)} parts, {sum(part_sizes):,} bytes in total. "
        f"The rows of a part are read once, by the worker that scores them ({file_size / 1e6:,.0f} MB of Parquet in "
        f"total). The judgments ({judgment_size / 1e6:,.1f} MB) are sent to each worker once."
    )


def compute_growth_exponent(rows: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of the growth of time with rows; 1 is linear.

    Uses the two largest sizes.
    """
    return math.log(seconds[-1] / seconds[-2]) / math.log(rows[-1] / rows[-2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000], help="numbers of rows of the runs"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[2], help="numbers of worker processes")
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "SCALE.md", help="output file")
    args = parser.parse_args()
    if args.once:
        evaluate_once(*args.once)
        return
    lines = []

    def write_line(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    machine = provenance()["machine"]
    write_line("# Speed and memory of large runs\n")
    write_line(
        f"{', '.join(MEASURES)} of runs in folders of Parquet files, {DEPTH:,} documents and {JUDGED} judgments per "
        f"query, on {os.cpu_count()} cores ({machine['processor']}), Python {platform.python_version()}, polars "
        f"{pl.__version__}. Median wall-clock time of {REPEATS} evaluations, with reading; maximum of their peak "
        "memory.\n"
    )
    write_line("| rows | where | time, s | million rows/s | peak memory, MiB |\n|---:|---|---:|---:|---:|")
    with TemporaryDirectory() as folder:
        times = []
        for rows in args.rows:
            qrels, run = write_collection(rows, Path(folder))
            result = measure_one_process(qrels, run)
            times.append(result["seconds"])
            rate = rows / result["seconds"] / 1e6
            memory = f"{result['bytes'] / 2**20:,.0f}"
            write_line(f"| {rows:,} | one process | {result['seconds']:.2f} | {rate:.1f} | {memory} |")
        for n_workers in args.workers:
            seconds = measure_workers(qrels, run, n_workers, result["means"])
            where = f"local:{n_workers}, identical scores"
            write_line(f"| {rows:,} | {where} | {seconds:.2f} | {rows / seconds / 1e6:.1f} | |")
        if len(times) > 1:
            write_line(
                f"\nFrom {args.rows[-2]:,} to {args.rows[-1]:,} rows, the time grows with the number of rows to the "
                f"power of {compute_growth_exponent(args.rows, times):.2f}."
            )
        write_line(f"\n{describe_transfers(qrels, run)}")
    args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
