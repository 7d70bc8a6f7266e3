"""Paired significance tests and effect sizes for two systems on the same queries; one column per comparison."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np

from ragauge.core.records import Floats
from ragauge.stats.intervals import percentile_interval, scaling_exponents
from ragauge.stats.resampling import rounds_per_block, sign_flipped_sums


def correct_p_values(p_values: Floats, correction: str) -> Floats:
    """Correct p-values for multiple comparisons.

    NaN is not counted as a test and stays NaN. `bonferroni`: times m. `holm`: the smallest times m, the next times m
    - 1, made non-decreasing. Both keep the probability of any false positive below the level. `bh` (Benjamini and
    Hochberg): the i-th smallest times m / i, made non-increasing from the largest down; it keeps the expected share
    of false positives below the level. `none`: unchanged.

    >>> [correct_p_values(np.array([0.01, 0.04, 0.03]), how).tolist() for how in ("bonferroni", "holm", "bh")]
    [[0.03, 0.12, 0.09], [0.03, 0.06, 0.06], [0.03, 0.04, 0.04]]
    """
    out = p_values.astype(np.float64).copy()
    defined = np.flatnonzero(~np.isnan(out))
    m = len(defined)
    if not m or correction == "none":
        return out
    order = defined[np.argsort(out[defined], kind="stable")]
    p = out[order]
    if correction == "bonferroni":
        p = p * m
    elif correction == "holm":
        p = np.maximum.accumulate(p * np.arange(m, 0, -1))
    else:
        p = np.minimum.accumulate((p * m / np.arange(1, m + 1))[::-1])[::-1]
    out[order] = np.minimum(1.0, p)
    return out


RANDOMISATION_ROUNDS = 10_000
MAX_QUERIES_FOR_EXACT_TEST = 13
"""Maximum number of queries for which all sign patterns are enumerated."""


def t_test(gaps: Floats, shift: float = 0.0) -> tuple[Floats, Floats]:
    """Compute Student's paired t-test.

    Returns two-sided p-values, and one-sided ones for a mean above `shift`.

    Formula: t = (mean - shift) / (s / sqrt(n)), with n - 1 degrees of freedom. Both are 1 if no query differs from
    `shift`.

    >>> two, one = t_test(np.array([[1.0], [2.0], [3.0]]))
    >>> round(float(two[0]), 6), round(float(one[0]), 6)
    (0.07418, 0.03709)
    """
    from scipy.special import stdtr

    n = len(gaps)
    mean = gaps.mean(axis=0) - shift
    error = _scaled_deviations(gaps) / math.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where((mean == 0) & (error == 0), math.nan, mean / error)
    two_sided = np.where(np.isnan(t), 1.0, 2 * stdtr(n - 1, -np.abs(t)))
    return two_sided, np.where(np.isnan(t), 1.0, stdtr(n - 1, -t))


def randomisation_test(gaps: Floats, *, rounds: int = RANDOMISATION_ROUNDS, seed: int = 0) -> Floats:
    """Compute Fisher's paired randomisation test, two-sided; exact if 2^n <= `rounds`.

    Formula: over sign patterns s, twice the smaller of the shares with sum s_i d_i >= sum d_i and <= sum d_i, at
    most 1; if patterns are sampled, a share is (1 + count) / (1 + rounds), so p is never 0.
    Paper: Smucker, Allan and Carterette, CIKM 2007.

    >>> randomisation_test(np.array([[1.0], [2.0], [3.0]])).tolist()
    [0.25]
    """
    sums, is_exact = sign_flipped_sums(gaps, rounds, seed)
    observed = gaps.sum(axis=0)
    tolerance = 1e-12 * np.abs(gaps).sum(axis=0)  # tolerance for sums of equal values in another order
    n_above, n_below = (sums >= observed - tolerance).sum(axis=0), (sums <= observed + tolerance).sum(axis=0)
    n_extreme = np.minimum(n_above, n_below)
    share: Floats = n_extreme / len(sums) if is_exact else (1 + n_extreme) / (1 + len(sums))
    return np.asarray(np.minimum(1.0, 2 * share))


def wilcoxon_test(gaps: Floats) -> Floats:
    """Compute Wilcoxon's signed-rank test, two-sided, as in scipy.

    Zero differences are left out.

    >>> wilcoxon_test(np.array([[1.0], [2.0], [3.0]])).tolist()
    [0.25]
    """
    from scipy.stats import wilcoxon

    p_values = np.ones(gaps.shape[1])
    for j, column in enumerate(gaps.T):
        differing = column[column != 0]
        if 0 < len(differing) <= MAX_QUERIES_FOR_EXACT_TEST and len(column) <= MAX_QUERIES_FOR_EXACT_TEST:
            p_values[j] = _exact_wilcoxon(differing)
        elif len(differing):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the normal approximation is rough for few queries; reports show n
                p_values[j] = wilcoxon(column).pvalue
    return p_values


def _exact_wilcoxon(gaps: Floats) -> float:
    """Compute the exact p-value of Wilcoxon's test from all sign patterns.

    Faster than scipy, which enumerates them one by one if there are ties.
    """
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(gaps))
    signs = (np.arange(2 ** len(gaps))[:, None] >> np.arange(len(gaps))) & 1
    sums, observed = signs @ ranks, ranks[gaps > 0].sum()
    fewer = min(int((sums >= observed - 1e-9).sum()), int((sums <= observed + 1e-9).sum()))
    return min(1.0, 2 * fewer / len(sums))


def sign_test(gaps: Floats) -> Floats:
    """Compute the exact two-sided sign test on the queries that differ.

    Formula: twice the probability that a fair coin shows the rarer side at most that often, at most 1.

    >>> sign_test(np.array([[1.0], [2.0], [3.0], [0.0]])).tolist()
    [0.25]
    """
    from scipy.special import bdtr

    n_above, n_below = (gaps > 0).sum(axis=0), (gaps < 0).sum(axis=0)
    return np.asarray(np.minimum(1.0, 2 * bdtr(np.minimum(n_above, n_below).astype(float), n_above + n_below, 0.5)))


def _scaled_deviations(gaps: Floats) -> Floats:
    power = scaling_exponents(gaps)
    if not power.any():
        return np.asarray(gaps.std(axis=0, ddof=1))
    return np.asarray(np.ldexp(np.ldexp(gaps, power).std(axis=0, ddof=1), -power))


def column_deviations(gaps: Floats) -> Floats:
    """Compute the standard deviation of each column; 0 if it is only rounding error.

    >>> column_deviations(np.array([[0.1 + 0.2], [0.3]])).tolist()
    [0.0]
    """
    deviations = _scaled_deviations(gaps)
    return np.where(deviations <= 1e-12 * np.abs(gaps).max(axis=0), 0.0, deviations)


def cohens_d(gaps: Floats) -> Floats:
    """Compute Cohen's d for pairs.

    It is the mean difference divided by the standard deviation of the differences. 0 if all differences are 0,
    infinite if they are equal and not 0.

    >>> cohens_d(np.array([[1.0], [2.0], [3.0]])).tolist()
    [2.0]
    """
    mean, deviation = gaps.mean(axis=0), column_deviations(gaps)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((mean == 0) & (deviation == 0), 0.0, mean / deviation)


def cliffs_delta(system: Floats, baseline: Floats) -> Floats:
    """Compute Cliff's delta: share of pairs (system, baseline) above minus share below.

    >>> cliffs_delta(np.array([[1.0], [3.0]]), np.array([[0.0], [2.0]])).tolist()
    [0.5]
    """
    deltas = np.empty(system.shape[1])
    for j in range(system.shape[1]):
        ordered = np.sort(baseline[:, j])
        n_below = np.searchsorted(ordered, system[:, j], side="left").sum()
        n_above = (len(ordered) - np.searchsorted(ordered, system[:, j], side="right")).sum()
        deltas[j] = (n_below - n_above) / (len(system) * len(baseline))
    return deltas


PERMUTATION_ROUNDS = 9_999
MAX_PERMUTED_VALUES = 50_000_000
"""Maximum number of values processed in all rounds, to limit the run time; there are at least 999 rounds."""

RowStatistic = Callable[[Floats], Floats]
"""Function from one row of values per round to one statistic per round."""


def permutation_rounds(values: int) -> int:
    """Return the number of rounds for a number of values.

    >>> permutation_rounds(100), permutation_rounds(10_000), permutation_rounds(1_000_000)
    (9999, 5000, 999)
    """
    return int(np.clip(MAX_PERMUTED_VALUES // max(1, values), 999, PERMUTATION_ROUNDS))


def paired_permutation_test(
    system: Floats, baseline: Floats, statistic: RowStatistic, seed: int = 0
) -> tuple[float, float]:
    """Test by permutation whether a statistic differs from the baseline's.

    Returns both one-sided p-values. `system` and `baseline` have one row per query and one column per trial. If the
    systems are equal, the values of a query are exchangeable: they are swapped at random, query by query, and the
    statistic of both is computed again. A p-value is (1 + count) / (1 + rounds), so it is never 0.

    >>> system, baseline = np.arange(10.0)[:, None] + 1, np.arange(10.0)[:, None]
    >>> higher, lower = paired_permutation_test(system, baseline, lambda rows: rows.mean(axis=1))
    >>> higher < 0.01, lower
    (True, 1.0)
    """
    observed = float(statistic(system.reshape(1, -1))[0] - statistic(baseline.reshape(1, -1))[0])
    tolerance = 1e-12 * float(max(np.abs(system).max(), np.abs(baseline).max()))
    rounds = permutation_rounds(system.size)
    rng = np.random.default_rng(seed)
    n_above = n_below = 0
    for rows in _round_blocks(rounds, system.size):
        swapped = rng.random((rows, len(system), 1)) < 0.5
        swapped_statistic = statistic(np.where(swapped, baseline, system).reshape(rows, -1))
        gaps = swapped_statistic - statistic(np.where(swapped, system, baseline).reshape(rows, -1))
        n_above += int((gaps >= observed - tolerance).sum())
        n_below += int((gaps <= observed + tolerance).sum())
    return (1 + n_above) / (1 + rounds), (1 + n_below) / (1 + rounds)


def bootstrap_difference(
    system: Floats, baseline: Floats, statistic: RowStatistic, confidence: float, seed: int = 0
) -> tuple[float, float]:
    """Compute a percentile bootstrap interval of the difference of a statistic.

    Resamples whole queries.

    >>> bootstrap_difference(np.ones((5, 1)), np.zeros((5, 1)), lambda rows: rows.max(axis=1), 0.9)
    (1.0, 1.0)
    """
    rounds = permutation_rounds(system.size)
    rng = np.random.default_rng(seed)
    gaps = []
    for rows in _round_blocks(rounds, system.size):
        resampled_rows = rng.integers(0, len(system), (rows, len(system)))
        gaps.append(
            statistic(system[resampled_rows].reshape(rows, -1)) - statistic(baseline[resampled_rows].reshape(rows, -1))
        )
    low, high = percentile_interval(np.concatenate(gaps)[:, None], confidence)[:, 0].tolist()
    return low, high


def _round_blocks(rounds: int, values: int) -> list[int]:
    step = rounds_per_block(values)
    return [min(step, rounds - start) for start in range(0, rounds, step)]
