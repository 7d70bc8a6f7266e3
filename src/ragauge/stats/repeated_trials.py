"""Repeated runs with several seeds: tests and intervals of a difference over queries and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ragauge.core.record_types import json_form
from ragauge.core.records import Floats
from ragauge.stats.resampling import ExactSums, draw_counts


class VarianceComponents(NamedTuple):
    """Variance split into queries, trials and the residual (one query in one trial)."""

    queries: float
    trials: float
    rest: float


@json_form(derived=("estimates", "variances", "shares", "of_mean", "error", "by_queries", "by_trials"))
@dataclass(frozen=True)
class Variation:
    """Variance components of one system's values of a measure over queries and trials.

    Two-way random-effects model with every query in every trial: each value is the mean plus effects of its query,
    its trial and their interaction. The variances are estimated from the mean squares (method of moments).
    """

    trials: int
    n: int
    """Number of queries with a value in every trial."""
    squares: VarianceComponents
    """Mean squares of the analysis of variance."""
    unstable: int
    """Number of queries whose value differs between trials."""
    left_out: int = 0
    """Number of queries without a value in some trial."""

    @property
    def estimates(self) -> VarianceComponents:
        """Unbiased variance estimates. Estimates of a variance of 0 can be negative."""
        queries, trials, residual = self.squares
        return VarianceComponents((queries - residual) / self.trials, (trials - residual) / self.n, residual)

    @property
    def variances(self) -> VarianceComponents:
        """Variance estimates, with negative ones set to 0."""
        return VarianceComponents(*(max(0.0, estimate) for estimate in self.estimates))

    @property
    def below(self) -> list[str]:
        """Names of the components with a negative estimate."""
        return [name for name, estimate in self.estimates._asdict().items() if estimate < 0]

    @property
    def shares(self) -> VarianceComponents:
        """Share of each component in the variance of a single value.

        NaN if the values do not vary.
        """
        total = sum(self.variances)
        return VarianceComponents(*(variance / total if total else math.nan for variance in self.variances))

    @property
    def of_mean(self) -> VarianceComponents:
        """Contribution of each component to the variance of the mean.

        More queries reduce the first and the last, more trials the second and the last.
        """
        queries, trials, residual = self.variances
        return VarianceComponents(queries / self.n, trials / self.trials, residual / (self.n * self.trials))

    @property
    def error(self) -> float:
        """Standard error of the mean over queries and trials."""
        return math.sqrt(sum(self.of_mean))

    @property
    def by_queries(self) -> float:
        """Share of the mean's variance that infinitely many queries would remove.

        NaN if there is no variance.
        """
        return self._share_of_mean_variance(self.of_mean.queries + self.of_mean.rest)

    @property
    def by_trials(self) -> float:
        """Share of the mean's variance that infinitely many trials would remove.

        NaN if there is no variance.
        """
        return self._share_of_mean_variance(self.of_mean.trials + self.of_mean.rest)

    def _share_of_mean_variance(self, variance: float) -> float:
        total = sum(self.of_mean)
        return variance / total if total else math.nan

    def enough(self, share: float = 0.1) -> int | None:
        """Return the number of trials that reduces `by_trials` to at most `share`.

        Returns None if queries have no variance, because no number of trials suffices.
        """
        queries, trials, residual = self.variances
        chance = trials + residual / self.n
        if not chance:
            return 1
        return math.ceil(round(chance * (1 - share) / share / (queries / self.n), 9)) or 1 if queries else None


def mean_squares(table: Floats) -> VarianceComponents:
    """Compute the mean squares between queries, between trials, and of the residual.

    `table` has one row per trial and one column per query, at least two of each. Formula: with n queries and T
    trials, T times the variance of the query means, n times that of the trial means, and the sum of (value - query
    mean - trial mean + mean)^2 over (n - 1)(T - 1).

    >>> mean_squares(np.array([[1.0, 2.0], [3.0, 8.0]]))
    VarianceComponents(queries=9.0, trials=16.0, rest=4.0)
    """
    count, n = table.shape
    queries, trials = table.mean(axis=0), table.mean(axis=1)
    residual = table - queries - trials[:, None] + table.mean()
    return VarianceComponents(
        count * float(queries.var(ddof=1)),
        n * float(trials.var(ddof=1)),
        float((residual**2).sum()) / ((count - 1) * (n - 1)),
    )


def analyse_variation(table: Floats) -> Variation | None:
    """Analyse how the scores of a system vary.

    None for one trial, or fewer than two complete queries. A query without a value in some trial is left out,
    because the estimates from mean squares need a complete table.

    >>> found = analyse_variation(np.array([[1.0, 2.0], [3.0, 8.0]]))
    >>> found.estimates, found.unstable
    (VarianceComponents(queries=2.5, trials=6.0, rest=4.0), 2)
    """
    scored = table[:, ~np.isnan(table).any(axis=0)]
    count, n = scored.shape
    if count < 2 or n < 2:
        return None
    unstable = int((scored != scored[0]).any(axis=0).sum())
    if not unstable:  # exactly 0, without rounding errors
        return Variation(
            count, n, VarianceComponents(count * float(scored[0].var(ddof=1)), 0.0, 0.0), 0, table.shape[1] - n
        )
    return Variation(count, n, mean_squares(scored), unstable, table.shape[1] - n)


VARIANCE_DRAWS = 10_000


def values_by_seed(system: Floats, baseline: Floats, *, paired: bool) -> list[Floats]:
    """Return the values that vary by seed, one row per seed.

    These are the differences if seeds are paired or one system has a single row, otherwise both. The baseline's
    values are negated, so that the mean difference is the sum of the means.
    """
    return [system - baseline] if paired or 1 in (len(system), len(baseline)) else [system, -baseline]


def draw_variances(tables: Sequence[Floats], seed: int = 0) -> Floats:
    """Draw the variance of the mean difference from a generalized pivotal quantity.

    Queries and seeds are crossed. The variance is that of the query means over n, plus for each element of `tables`
    that of the seed means over S, minus the residual (query by seed) in it. Each is estimated from few values, so
    each is drawn as its estimate times its degrees of freedom over a chi-squared variate.
    Paper: Weerahandi, Generalized Confidence Intervals, JASA 1993.
    """
    rng = np.random.default_rng(seed)
    n = tables[0].shape[1]
    query_means = np.sum([table.mean(axis=0) for table in tables], axis=0)
    total = float(query_means.var(ddof=1)) / n * (n - 1) / rng.chisquare(n - 1, VARIANCE_DRAWS)
    for table in tables:
        count = len(table)
        if count > 1:
            _, seeds, residual = (mean_square / (count * n) for mean_square in mean_squares(table))
            degrees_of_freedom = (count - 1) * (n - 1)
            total += seeds * (count - 1) / rng.chisquare(
                count - 1, VARIANCE_DRAWS
            ) - residual * degrees_of_freedom / rng.chisquare(degrees_of_freedom, VARIANCE_DRAWS)
    return np.asarray(np.maximum(total, 0.0))


def seed_variance_share(tables: Sequence[Floats]) -> float:
    """Estimate the share of variance that more seeds would remove.

    This is the variance of the mean difference. NaN if nothing varies. `Variation.by_trials` is the equivalent for
    one system. Negative estimates count as 0.

    >>> seed_variance_share([np.array([[0.0, 2.0], [2.0, 4.0]])])
    0.5
    """
    n = tables[0].shape[1]
    queries = float(np.sum([table.mean(axis=0) for table in tables], axis=0).var(ddof=1)) / n
    seed_variance = 0.0
    for table in tables:
        if len(table) > 1:
            _, seeds, residual = (mean_square / table.size for mean_square in mean_squares(table))
            seed_variance += max(0.0, seeds - residual) + residual
            queries -= residual
    total = max(0.0, queries) + seed_variance
    return seed_variance / total if total else math.nan


def seed_difference_p_value(difference: float, variances: Floats) -> float:
    """Compute the two-sided p-value of a mean difference.

    It is averaged over draws of the variance. 1 if the difference is 0.

    >>> seed_difference_p_value(1.96, np.ones(5)) == 2 * 0.024997895148220435
    True
    """
    from scipy.special import ndtr

    if not difference:
        return 1.0
    with np.errstate(divide="ignore"):
        return float(np.mean(2 * ndtr(-abs(difference) / np.sqrt(variances))))


def seed_difference_interval(
    resampled: Floats, difference: float, variances: Floats, confidence: float
) -> tuple[float, float]:
    """Compute the interval of a mean difference over queries and seeds.

    It is the hierarchical bootstrap interval, scaled to the width at which `seed_difference_p_value` is at its
    level. The unscaled bootstrap counts the interaction of query and seed twice, and treats few seeds as the whole
    population.
    """
    from scipy.optimize import brentq

    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail]).tolist()
    max_deviation = math.sqrt(float(variances.max()))
    min_deviation = 1e-9 * max_deviation
    # If only rounding varies, most variances are 0, and no width can be found.
    if not max_deviation or low == high or seed_difference_p_value(min_deviation, variances) <= 1 - confidence:
        return difference, difference
    half = float(
        brentq(
            lambda width: seed_difference_p_value(width, variances) - (1 - confidence),
            min_deviation,
            40 * max_deviation,
        )
    )
    scale = half / ((high - low) / 2)
    return difference - scale * (difference - low), difference + scale * (high - difference)


def trial_intervals(
    tables: Sequence[Floats], confidence: float, *, rounds: int = VARIANCE_DRAWS, seed: int = 0
) -> list[tuple[float, float]]:
    """Compute an interval of the mean of each table of trials by queries.

    The interval is over queries and trials. All tables have the same queries. It is the interval of a difference
    from a baseline of 0; see `seed_difference_interval`.
    """
    resampled = hierarchical_bootstrap_means([[table] for table in tables], rounds, seed)
    intervals = []
    for column, table in enumerate(tables):
        bounds = seed_difference_interval(
            resampled[:, column], float(table.mean()), draw_variances([table], seed), confidence
        )
        if table.min() >= 0 and table.max() <= 1:  # a mean of scores in [0, 1] is in [0, 1], however few the trials
            bounds = max(0.0, bounds[0]), min(1.0, bounds[1])
        intervals.append(bounds)
    return intervals


def hierarchical_bootstrap_means(pairs: Sequence[Sequence[Floats]], rounds: int, seed: int = 0) -> Floats:
    """Compute mean differences over resamples of queries, and of the seeds of each system.

    The result has one row per round and one column per pair. Of S seeds S - 1 are drawn (Rao and Wu 1988): drawing S
    would make the seed variance too small by 1/S.
    """
    columns = ExactSums.of(np.concatenate([table for tables in pairs for table in tables]).T)
    n = len(columns)
    rng = np.random.default_rng(seed)
    blocks = []
    for counts in draw_counts(n, rounds, rng):
        means = columns.weighted_sums(counts) / n
        differences = np.zeros((len(counts), len(pairs)))
        first_column = 0
        for column, tables in enumerate(pairs):
            for table in tables:
                seed_means = means[:, first_column : first_column + len(table)]
                first_column += len(table)
                differences[:, column] += (
                    seed_means[:, 0] if len(table) == 1 else _mean_over_drawn_seeds(seed_means, rng)
                )
        blocks.append(differences)
    return np.concatenate(blocks)


def _mean_over_drawn_seeds(means: Floats, rng: np.random.Generator) -> Floats:
    rounds, seeds = means.shape
    seed_counts = np.concatenate(list(draw_counts(seeds, rounds, rng, seeds - 1)))
    return np.asarray((means * seed_counts).sum(axis=1) / (seeds - 1))
