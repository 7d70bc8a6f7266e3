"""10,000 new chunks against 1,000,000 known ones, exactly: how long, and in how much memory.

The known vectors lie in a file that is mapped into memory, as `ragauge novelty --known vectors.npy` has them. Beside it
one plain product after the other with a running maximum, which does not decide ties, and faiss' IndexFlatIP where it is
installed, which needs all vectors in memory; those two on fewer new chunks, told as if they were all.

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

BLOCK = 65_536
SOME = 1_000


def made(path: Path, rows: int, dimensions: int) -> None:
    """Clustered vectors of length 1 in a file, a block at a time."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, dimensions), dtype=np.float32)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dimensions))
    for start in range(0, rows, BLOCK):
        n = min(BLOCK, rows - start)
        block = centres[rng.integers(0, 1000, n)] + rng.standard_normal((n, dimensions), dtype=np.float32)
        out[start : start + n] = block / np.linalg.norm(block, axis=1, keepdims=True)
    out.flush()


def asked(n: int, dimensions: int) -> np.ndarray:
    """New chunks of the same kind."""
    rng = np.random.default_rng(1)
    centres = np.random.default_rng(0).standard_normal((1000, dimensions), dtype=np.float32)
    rows = centres[rng.integers(0, 1000, n)] + rng.standard_normal((n, dimensions), dtype=np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def ours(path: Path, queries: np.ndarray) -> np.ndarray:
    """What `novelty` does."""
    from ragauge.knowledge.novelty.chunks import nearest_known

    return nearest_known(queries, np.load(path, mmap_mode="r")).positions[:, 0]


def plain(path: Path, queries: np.ndarray) -> np.ndarray:
    """A product and a running maximum."""
    known = np.load(path, mmap_mode="r")
    best, place = np.full(len(queries), -2, np.float32), np.zeros(len(queries), np.int64)
    for start in range(0, len(known), 4096):
        scores = queries @ known[start : start + 4096].T
        at = scores.argmax(axis=1)
        value = scores[np.arange(len(queries)), at]
        better = value > best
        best[better], place[better] = value[better], at[better] + start
    return place


def faiss_flat(path: Path, queries: np.ndarray) -> np.ndarray:
    """All vectors in memory."""
    import faiss

    known = np.load(path)
    index = faiss.IndexFlatIP(known.shape[1])
    index.add(known)
    del known
    return index.search(queries, 1)[1][:, 0]


def measured(way: str, path: Path, queries: np.ndarray, out: Any) -> None:
    """Seconds, peaks of memory in kilobytes, and what was found; in a process of its own."""
    seen: list[int] = [own()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(own())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    found = globals()[way](path, queries)
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    out.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, max(seen), found))


def own() -> int:
    """Kilobytes that are the process's own: pages of a mapped file can be dropped at any time."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def main() -> None:
    """A line for each way."""
    n, rows, dimensions = map(int, [*sys.argv[1:], *("10000", "1000000", "256")[len(sys.argv) - 1 :]])
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "known.npy"
        made(path, rows, dimensions)
        print(f"{n:,} new chunks against {rows:,} known ones of {dimensions} dimensions")
        print(f"{'way':12} {'chunks':>7} {'seconds':>8} {'of all':>8} {'peak MB':>8} {'own MB':>7}  same")
        first: np.ndarray | None = None
        queries = asked(n, dimensions)
        for way, many in (("ours", n), ("plain", min(n, SOME)), ("faiss_flat", min(n, SOME))):
            out = spawn.Queue()
            worker = spawn.Process(target=measured, args=(way, path, queries[:many], out))
            worker.start()
            try:
                seconds, peak, kept, found = out.get(timeout=3600)
            finally:
                worker.join()
            first = found if first is None else first
            same = (found == first[: len(found)]).mean()
            told = f"{many:7,} {seconds:8.1f} {seconds * n / many:8.1f} {peak / 1024:8.0f} {kept / 1024:7.0f}"
            print(f"{way:12} {told}  {same:.4f}", flush=True)


if __name__ == "__main__":
    main()
