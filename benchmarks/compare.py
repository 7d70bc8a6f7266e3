"""Measure the time of a comparison, and of the same resampling with scipy.

10,000 resamples of 1,000 queries for 10 measures, on one core. Writes COMPARE.md.
"""

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


def measure_seconds(work: Callable[[], object]) -> float:
    """Return the median time of REPEATS calls, in seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    rng = np.random.default_rng(0)
    baseline, system = rng.random((2, QUERIES, MEASURES))
    differences = system - baseline
    queries = [str(i) for i in range(QUERIES)]
    pairs = [SystemPair(f"m{j}", "a", "b", queries, baseline[None, :, j], system[None, :, j]) for j in range(MEASURES)]
    rows = [
        (
            "all of `compare`: interval, four tests, effect sizes, power",
            measure_seconds(lambda: compare_pairs(pairs, ComparisonSettings())),
            None,
        ),
        (
            "BCa intervals",
            measure_seconds(lambda: bca_interval(differences, bootstrap_means(differences, ROUNDS), 0.95)),
            measure_seconds(lambda: stats.bootstrap((differences,), np.mean, n_resamples=ROUNDS, batch=100, rng=0)),
        ),
        (
            "randomisation tests",
            measure_seconds(lambda: randomisation_test(differences, rounds=ROUNDS)),
            measure_seconds(
                lambda: stats.permutation_test(
                    (system, baseline), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
                    n_resamples=ROUNDS, vectorized=True, batch=100, axis=0, rng=0,
                )
            ),
        ),
    ]  # fmt: skip
    machine = provenance()["machine"]
    lines = [
        "# Cost of a comparison",
        "",
        f"{ROUNDS:,} resamples, {QUERIES:,} queries, {MEASURES} measures, one core ({machine['processor']}), Python "
        f"{platform.python_version()}, NumPy {np.__version__}, scipy {scipy.__version__}. Median of {REPEATS}.",
        "",
        "| computation | ragauge, s | scipy, s | ratio |",
        "|---|---:|---:|---:|",
    ]
    for computation, ragauge_seconds, scipy_seconds in rows:
        cells = " | |" if scipy_seconds is None else f" {scipy_seconds:.2f} | {scipy_seconds / ragauge_seconds:.0f}x |"
        lines.append(f"| {computation} | {ragauge_seconds:.2f} |{cells}")
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "COMPARE.md").write_text(text)


if __name__ == "__main__":
    main()
