"""Two systems on the same queries: whether chance would make them differ as much. A column for each comparison."""

from __future__ import annotations

import math
import warnings
from concurrent.futures import Executor

import numpy as np

from ragauge.records import Floats
from ragauge.stats.intervals import powers
from ragauge.stats.resampling import flipped_sums

ROUNDS = 10_000
FEW = 13
"""Up to so many queries every pattern of signs is gone through."""


def t_test(gaps: Floats, shift: float = 0.0) -> tuple[Floats, Floats]:
    """Student's paired t-test: for each column the two-sided p-value, and the one-sided for a mean above `shift`.

    Formula: t = (mean - shift) / (s / sqrt(n)), with n - 1 degrees of freedom. Where no query differs from `shift`
    both are 1.

    >>> two, one = t_test(np.array([[1.0], [2.0], [3.0]]))
    >>> round(float(two[0]), 6), round(float(one[0]), 6)
    (0.07418, 0.03709)
    """
    from scipy.special import stdtr

    n = len(gaps)
    mean = gaps.mean(axis=0) - shift
    error = _deviations(gaps) / math.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where((mean == 0) & (error == 0), math.nan, mean / error)
    two = np.where(np.isnan(t), 1.0, 2 * stdtr(n - 1, -np.abs(t)))
    return two, np.where(np.isnan(t), 1.0, stdtr(n - 1, -t))


def randomisation_test(
    gaps: Floats, *, rounds: int = ROUNDS, seed: int = 0, executor: Executor | None = None
) -> Floats:
    """Fisher's randomisation test for paired values, two-sided; exact where 2^n patterns are no more than `rounds`.

    Formula: over sign patterns s, twice the smaller of the shares with sum s_i d_i >= sum d_i and <= sum d_i, at most
    1; where patterns are sampled, a share is (1 + count) / (1 + rounds), so p is never 0.
    Paper: Smucker, Allan and Carterette, CIKM 2007.

    >>> randomisation_test(np.array([[1.0], [2.0], [3.0]])).tolist()
    [0.25]
    """
    sums, exact = flipped_sums(gaps, rounds, seed, executor)
    observed = gaps.sum(axis=0)
    near = 1e-12 * np.abs(gaps).sum(axis=0)  # sums of the same values in another order are the same
    more, less = (sums >= observed - near).sum(axis=0), (sums <= observed + near).sum(axis=0)
    fewer = np.minimum(more, less)
    share: Floats = fewer / len(sums) if exact else (1 + fewer) / (1 + len(sums))
    return np.asarray(np.minimum(1.0, 2 * share))


def wilcoxon_test(gaps: Floats) -> Floats:
    """Wilcoxon's signed-rank test, two-sided, as scipy has it: queries without a difference are left out.

    >>> wilcoxon_test(np.array([[1.0], [2.0], [3.0]])).tolist()
    [0.25]
    """
    from scipy.stats import wilcoxon

    found = np.ones(gaps.shape[1])
    for j, column in enumerate(gaps.T):
        differing = column[column != 0]
        if 0 < len(differing) <= FEW and len(column) <= FEW:
            found[j] = _every_sign(differing)
        elif len(differing):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that few queries make the normal approximation rough: n is shown
                found[j] = wilcoxon(column).pvalue
    return found


def _every_sign(gaps: Floats) -> float:
    """The same by going through every pattern of signs at once, as scipy does one by one where some are tied."""
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(gaps))
    signs = (np.arange(2 ** len(gaps))[:, None] >> np.arange(len(gaps))) & 1
    sums, observed = signs @ ranks, ranks[gaps > 0].sum()
    fewer = min(int((sums >= observed - 1e-9).sum()), int((sums <= observed + 1e-9).sum()))
    return min(1.0, 2 * fewer / len(sums))


def sign_test(gaps: Floats) -> Floats:
    """The sign test, two-sided and exact: of the queries that differ, how many are better.

    Formula: twice the chance that a fair coin shows the rarer side so seldom, at most 1.

    >>> sign_test(np.array([[1.0], [2.0], [3.0], [0.0]])).tolist()
    [0.25]
    """
    from scipy.special import bdtr

    more, less = (gaps > 0).sum(axis=0), (gaps < 0).sum(axis=0)
    return np.asarray(np.minimum(1.0, 2 * bdtr(np.minimum(more, less).astype(float), more + less, 0.5)))


def _deviations(gaps: Floats) -> Floats:
    power = powers(gaps)
    if not power.any():
        return np.asarray(gaps.std(axis=0, ddof=1))
    return np.asarray(np.ldexp(np.ldexp(gaps, power).std(axis=0, ddof=1), -power))


def deviations(gaps: Floats) -> Floats:
    """The standard deviation of each column; 0 where it is nothing but rounding.

    >>> deviations(np.array([[0.1 + 0.2], [0.3]])).tolist()
    [0.0]
    """
    found = _deviations(gaps)
    return np.where(found <= 1e-12 * np.abs(gaps).max(axis=0), 0.0, found)


def cohens_d(gaps: Floats) -> Floats:
    """The mean difference over the deviation of the differences; 0 where nothing differs, infinite where all do alike.

    >>> cohens_d(np.array([[1.0], [2.0], [3.0]])).tolist()
    [2.0]
    """
    mean, deviation = gaps.mean(axis=0), deviations(gaps)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((mean == 0) & (deviation == 0), 0.0, mean / deviation)


def cliffs_delta(mine: Floats, base: Floats) -> Floats:
    """Over all pairs of a value of mine and one of the baseline: the share above minus the share below.

    >>> cliffs_delta(np.array([[1.0], [3.0]]), np.array([[0.0], [2.0]])).tolist()
    [0.5]
    """
    found = np.empty(mine.shape[1])
    for j in range(mine.shape[1]):
        ordered = np.sort(base[:, j])
        below = np.searchsorted(ordered, mine[:, j], side="left").sum()
        above = (len(ordered) - np.searchsorted(ordered, mine[:, j], side="right")).sum()
        found[j] = (below - above) / (len(mine) * len(base))
    return found
