"""What a comparison costs: 10,000 resamples of 1,000 queries for 10 measures, beside scipy doing the same."""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # one core, before NumPy loads

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
from scipy import stats

from ragauge.runs.folder import provenance
from ragauge.stats.comparisons import ComparisonSettings
from ragauge.stats.intervals import bca_interval
from ragauge.stats.paired_tests import randomisation_test
from ragauge.stats.resampling import bootstrap_means
from ragauge.stats.system_pairs import SystemPair, compare_pairs

QUERIES, MEASURES, ROUNDS, REPEATS = 1000, 10, 10_000, 5


def seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    rng = np.random.default_rng(0)
    base, mine = rng.random((2, QUERIES, MEASURES))
    gaps = mine - base
    queries = [str(i) for i in range(QUERIES)]
    pairs = [SystemPair(f"m{j}", "a", "b", queries, base[None, :, j], mine[None, :, j]) for j in range(MEASURES)]
    rows = [
        (
            "all of `compare`: interval, four tests, effects, power",
            seconds(lambda: compare_pairs(pairs, ComparisonSettings())),
            None,
        ),
        (
            "BCa intervals",
            seconds(lambda: bca_interval(gaps, bootstrap_means(gaps, ROUNDS), 0.95)),
            seconds(lambda: stats.bootstrap((gaps,), np.mean, n_resamples=ROUNDS, batch=100, rng=0)),
        ),
        (
            "randomisation tests",
            seconds(lambda: randomisation_test(gaps, rounds=ROUNDS)),
            seconds(
                lambda: stats.permutation_test(
                    (mine, base), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
                    n_resamples=ROUNDS, vectorized=True, batch=100, axis=0, rng=0,
                )
            ),
        ),
    ]  # fmt: skip
    machine = provenance()["machine"]
    lines = [
        "# What a comparison costs",
        "",
        f"{ROUNDS:,} resamples, {QUERIES:,} queries, {MEASURES} measures, one core ({machine['processor']}), Python "
        f"{platform.python_version()}, NumPy {np.__version__}, scipy {scipy.__version__}. Median of {REPEATS}.",
        "",
        "| what | ragauge, s | scipy, s | ratio |",
        "|---|---:|---:|---:|",
    ]
    for what, ours, theirs in rows:
        rest = " | |" if theirs is None else f" {theirs:.2f} | {theirs / ours:.0f}x |"
        lines.append(f"| {what} | {ours:.2f} |{rest}")
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "COMPARE.md").write_text(text)


if __name__ == "__main__":
    main()
