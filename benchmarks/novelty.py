"""Measure time and memory of the comparison of new chunks with known ones.

10,000 new chunks are compared exactly with 1,000,000 known ones. The known vectors are in a memory-mapped file, as with
`ragauge novelty --known vectors.npy`. For comparison: a baseline of matrix products with a running maximum, which does
not resolve ties, and IndexFlatIP of faiss, which needs all vectors in memory. These two are timed on fewer new chunks,
and extrapolated to all.

    python benchmarks/novelty.py [new chunks] [known chunks] [dimensions]
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS_PER_BLOCK = 65_536
MAX_PEER_QUERIES = 1_000
"""Maximum number of new chunks on which the baseline and faiss are timed."""


def write_known_vectors(path: Path, rows: int, dimensions: int) -> None:
    """Write clustered vectors of length 1 to a file, block by block."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, dimensions), dtype=np.float32)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dimensions))
    for start in range(0, rows, ROWS_PER_BLOCK):
        n = min(ROWS_PER_BLOCK, rows - start)
        block = centres[rng.integers(0, 1000, n)] + rng.standard_normal((n, dimensions), dtype=np.float32)
        out[start : start + n] = block / np.linalg.norm(block, axis=1, keepdims=True)
    out.flush()


def generate_new_vectors(n: int, dimensions: int) -> np.ndarray:
    """Generate new vectors around the centres of the known ones."""
    rng = np.random.default_rng(1)
    centres = np.random.default_rng(0).standard_normal((1000, dimensions), dtype=np.float32)
    rows = centres[rng.integers(0, 1000, n)] + rng.standard_normal((n, dimensions), dtype=np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def search_with_ragauge(path: Path, queries: np.ndarray) -> np.ndarray:
    """Return the nearest known row of each query, as `novelty` computes it."""
    from ragauge.knowledge.novelty.chunks import nearest_known

    return nearest_known(queries, np.load(path, mmap_mode="r")).positions[:, 0]


def search_with_baseline(path: Path, queries: np.ndarray) -> np.ndarray:
    """Return the nearest known row of each query by a running maximum of products."""
    known = np.load(path, mmap_mode="r")
    best_scores, best_rows = np.full(len(queries), -2, np.float32), np.zeros(len(queries), np.int64)
    for start in range(0, len(known), 4096):
        scores = queries @ known[start : start + 4096].T
        columns = scores.argmax(axis=1)
        block_scores = scores[np.arange(len(queries)), columns]
        better = block_scores > best_scores
        best_scores[better], best_rows[better] = block_scores[better], columns[better] + start
    return best_rows


def search_with_faiss(path: Path, queries: np.ndarray) -> np.ndarray:
    """Return the nearest known row of each query, with all vectors in memory."""
    import faiss

    known = np.load(path)
    index = faiss.IndexFlatIP(known.shape[1])
    index.add(known)
    del known
    return index.search(queries, 1)[1][:, 0]


METHODS = {"ragauge": search_with_ragauge, "baseline": search_with_baseline, "faiss_flat": search_with_faiss}


def measure_method(method: str, path: Path, queries: np.ndarray, out: Any) -> None:
    """Put seconds, peak memory and peak anonymous memory in kB, and rows into `out`."""
    samples: list[int] = [read_anonymous_memory()]
    done = threading.Event()

    def sample_memory() -> None:
        while not done.wait(0.02):
            samples.append(read_anonymous_memory())

    sampler = threading.Thread(target=sample_memory)
    sampler.start()
    start = time.perf_counter()
    rows = METHODS[method](path, queries)
    seconds = time.perf_counter() - start
    done.set()
    sampler.join()
    out.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, max(samples), rows))


def read_anonymous_memory() -> int:
    """Return the memory of this process in kB without mapped files.

    Pages of a mapped file can be dropped at any time.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def main() -> None:
    n, rows, dimensions = map(int, [*sys.argv[1:], *("10000", "1000000", "256")[len(sys.argv) - 1 :]])
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "known.npy"
        write_known_vectors(path, rows, dimensions)
        print(f"{n:,} new chunks compared with {rows:,} known chunks of {dimensions} dimensions")
        print(f"{'method':12} {'chunks':>7} {'time, s':>8} {'all, s':>8} {'peak MB':>8} {'anon MB':>8}  same")
        expected: np.ndarray | None = None
        queries = generate_new_vectors(n, dimensions)
        for method in METHODS:
            n_queries = n if method == "ragauge" else min(n, MAX_PEER_QUERIES)
            out = spawn.Queue()
            worker = spawn.Process(target=measure_method, args=(method, path, queries[:n_queries], out))
            worker.start()
            try:
                seconds, peak, anonymous, found = out.get(timeout=3600)
            finally:
                worker.join()
            expected = found if expected is None else expected
            same = (found == expected[: len(found)]).mean()
            print(
                f"{method:12} {n_queries:7,} {seconds:8.1f} {seconds * n / n_queries:8.1f} {peak / 1024:8.0f} "
                f"{anonymous / 1024:8.0f}  {same:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
