"""Resampling: exact sums, independence of order and BLAS threads, and the same random draws as scipy."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragauge.stats.repeated_trials import hierarchical_bootstrap_means
from ragauge.stats.resampling import ExactSums, bootstrap_means, sign_flipped_sums

RNG = np.random.default_rng(7)


@given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=1, max_size=40), st.integers(0, 999))
def test_exact_sums_match_fsum(values, seed):
    drawn = np.random.default_rng(seed).integers(0, len(values), len(values))
    counts = np.bincount(drawn, minlength=len(values)).astype(float)
    result = ExactSums.of(np.array(values)[:, None]).weighted_sums(counts[None, :])
    assert result.tolist() == [[math.fsum(values[i] for i in drawn)]]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e12])
def test_exact_sums_of_any_scale_match_fsum(scale):
    columns = RNG.normal(size=(999, 3)) * scale
    columns[:, 1] = 0.0
    counts = np.bincount(RNG.integers(0, 999, 999), minlength=999)
    result = ExactSums.of(columns).weighted_sums(counts[None, :].astype(float))[0]
    for column, value in zip(columns.T, result, strict=True):
        exact = math.fsum(np.repeat(column, counts))
        assert abs(value - exact) <= math.ulp(exact)


@pytest.mark.parametrize("n", [2, 385, 1001, 50_000])
def test_exact_sums_are_independent_of_order(n):
    columns, counts = RNG.normal(size=(n, 3)), RNG.integers(0, 2, (40, n)).astype(float)
    order = RNG.permutation(n)
    here = ExactSums.of(columns).weighted_sums(counts)
    assert np.array_equal(here, ExactSums.of(columns[order]).weighted_sums(counts[:, order]))
    assert np.array_equal(here[7], ExactSums.of(columns).weighted_sums(counts[7:8])[0])
    assert np.array_equal(here[:, 1], ExactSums.of(columns[:, 1:2]).weighted_sums(counts)[:, 0])


def test_resampling_is_independent_of_blas_threads():
    code = (
        "import hashlib, numpy as np\n"
        "from ragauge.stats.resampling import bootstrap_means, sign_flipped_sums\n"
        "columns = np.random.default_rng(3).normal(size=(1001, 3))\n"
        "for found in (bootstrap_means(columns, 3000), sign_flipped_sums(columns[:, :1], 3000)[0]):\n"
        "    print(hashlib.sha256(found.tobytes()).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OPENBLAS_NUM_THREADS": n, "OMP_NUM_THREADS": n},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in ("1", "2")
    }
    assert len(found) == 1


def test_bootstrap_means_match_scipy():
    differences = RNG.normal(size=3001)
    expected = stats.bootstrap((differences,), np.mean, n_resamples=3000, batch=100, rng=np.random.default_rng(3))
    result = bootstrap_means(differences[:, None], 3000, 3)
    assert result[:, 0] == pytest.approx(expected.bootstrap_distribution, abs=1e-12)


def test_sign_flipped_sums_match_generator_bits():
    gaps, rng = RNG.normal(size=300_001), np.random.default_rng(9)
    expected = []
    for rows in (6, 6, 6, 6, 1):  # rounds per block
        bits = np.unpackbits(np.frombuffer(rng.bytes(rows * 37_501), np.uint8).reshape(rows, -1), axis=1)
        expected += [math.fsum(np.where(row[:300_001], -gaps, gaps)) for row in bits]
    result, exact = sign_flipped_sums(gaps[:, None], 25, 9)
    assert result[:, 0] == pytest.approx(expected, abs=1e-9)
    assert not exact


def test_sign_flipped_sums_of_few_rows_enumerate_all_patterns():
    result, exact = sign_flipped_sums(np.array([[1.0], [2.0]]), 4)
    assert exact
    assert sorted(result[:, 0].tolist()) == [-3.0, -1.0, 1.0, 3.0]


@pytest.mark.parametrize("n", [2, 60, 40_001])
def test_hierarchical_bootstrap_means_of_one_trial_equal_bootstrap_means(n):
    values = RNG.normal(size=(1, n))
    result = hierarchical_bootstrap_means([[values]], 301, 2)
    assert np.array_equal(result, bootstrap_means(values.T, 301, 2))
    assert hierarchical_bootstrap_means([[values, RNG.normal(size=(3, n))], [values]], 31, 2).shape == (31, 2)
