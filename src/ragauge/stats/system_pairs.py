"""Comparison of pairs of systems; pairs with the same queries share their resamples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragauge.core.records import Floats
from ragauge.stats import paired_tests
from ragauge.stats.comparisons import ChangedQuery, Comparison, ComparisonSettings, MarginTest, SeedDifferences
from ragauge.stats.intervals import bca_interval, percentile_interval
from ragauge.stats.margin_tests import margin_p_value, queries_without_difference
from ragauge.stats.paired_tests import correct_p_values
from ragauge.stats.power import detectable_difference, queries_needed
from ragauge.stats.repeated_trials import (
    draw_variances,
    hierarchical_bootstrap_means,
    seed_difference_interval,
    seed_difference_p_value,
    seed_variance_share,
    values_by_seed,
)
from ragauge.stats.resampling import bootstrap_means

QueryMask = NDArray[np.bool_]
MAX_RESAMPLED_VALUES = 20_000_000
"""Maximum number of resampled means in memory; beyond that, columns are processed in blocks with the same resamples."""


@dataclass(frozen=True, eq=False)
class SystemPair:
    """Scores of a system and a baseline by one measure: one row per seed (or one row), one column per query.

    A query with a NaN in any row is left out.
    """

    measure: str
    baseline: str
    system: str
    queries: Sequence[str]
    baseline_scores: Floats
    system_scores: Floats
    seeds: Sequence[str] = ()
    """Labels of the rows, if both systems have the same seeds or one has a single row; otherwise empty."""
    lower_is_better: bool = False
    stratum: str = ""
    max_difference: float = math.inf
    """Largest possible difference of two scores; infinite if it is unknown."""


def compare_pairs(pairs: Sequence[SystemPair], method: ComparisonSettings) -> list[Comparison]:
    """Compare all pairs, with p-values corrected per family.

    Comparisons are in input order.
    """
    masks = [_scored_by_both(pair) for pair in pairs]
    groups: dict[bytes, list[int]] = {}
    for pair_index, mask in enumerate(masks):
        groups.setdefault(mask.tobytes(), []).append(pair_index)
    comparisons: dict[int, Comparison] = {}
    width = max(1, MAX_RESAMPLED_VALUES // method.rounds)
    for members in groups.values():
        for start in range(0, len(members), width):
            block = members[start : start + width]
            rows = _test_pairs([pairs[i] for i in block], masks[block[0]], method)
            comparisons.update(zip(block, rows, strict=True))
    return _correct_families([comparisons[i] for i in range(len(pairs))], method)


def _scored_by_both(pair: SystemPair) -> QueryMask:
    return np.asarray(~(np.isnan(pair.baseline_scores).any(axis=0) | np.isnan(pair.system_scores).any(axis=0)))


def _correct_families(rows: Sequence[Comparison], method: ComparisonSettings) -> list[Comparison]:
    p_values = np.array([getattr(row, f"p_{method.test}") for row in rows], np.float64)
    corrected = p_values.copy()
    families: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        families.setdefault(row.measure if method.family == "measure" else "", []).append(i)
    for members in families.values():
        corrected[members] = correct_p_values(p_values[members], method.correction)
    return [replace(row, p_corrected=float(p)) for row, p in zip(rows, corrected, strict=True)]


def _test_pairs(pairs: Sequence[SystemPair], mask: QueryMask, method: ComparisonSettings) -> list[Comparison]:
    """Test pairs that have the same queries, as columns of one table."""
    baseline = np.stack([pair.baseline_scores[:, mask].mean(axis=0) for pair in pairs], axis=1)
    system = np.stack([pair.system_scores[:, mask].mean(axis=0) for pair in pairs], axis=1)
    gaps = paired_differences(system, baseline)
    n, width = gaps.shape
    undefined = np.full(width, math.nan)
    if n < 2:
        p_t = p_wilcoxon = p_sign = p_randomisation = effect = delta = undefined
        bounds = np.stack([undefined, undefined])
    else:
        p_t, _ = paired_tests.t_test(gaps)
        p_wilcoxon, p_sign = paired_tests.wilcoxon_test(gaps), paired_tests.sign_test(gaps)
        p_randomisation = paired_tests.randomisation_test(gaps, rounds=method.rounds, seed=method.seed)
        effect, delta = paired_tests.cohens_d(gaps), paired_tests.cliffs_delta(system, baseline)
        resampled = bootstrap_means(gaps, method.rounds, method.seed)
        bounds = (
            bca_interval(gaps, resampled, method.confidence)
            if method.interval == "bca"
            else percentile_interval(resampled, method.confidence)
        )
        seeded = [j for j, pair in enumerate(pairs) if len(pair.system_scores) > 1 or len(pair.baseline_scores) > 1]
        if seeded:
            seeded_pairs = [pairs[j] for j in seeded]
            p_t[seeded], bounds[:, seeded] = _test_over_seeds(seeded_pairs, mask, gaps[:, seeded], method)
    queries = [query for query, is_scored in zip(pairs[0].queries, mask.tolist(), strict=True) if is_scored]
    rows = []
    for j, pair in enumerate(pairs):
        query_gaps = gaps[:, j]
        n_above, n_below = int((query_gaps > 0).sum()), int((query_gaps < 0).sum())
        deviation = float(paired_tests.column_deviations(query_gaps[:, None])[0]) if n > 1 else math.nan
        rows.append(
            Comparison(
                measure=pair.measure,
                baseline=pair.baseline,
                system=pair.system,
                n=n,
                means=(_mean_or_nan(baseline[:, j]), _mean_or_nan(system[:, j])),
                difference=_mean_difference(query_gaps),
                ci=(float(bounds[0, j]), float(bounds[1, j])),
                p_t=float(p_t[j]),
                p_wilcoxon=float(p_wilcoxon[j]),
                p_sign=float(p_sign[j]),
                p_randomisation=float(p_randomisation[j]),
                p_corrected=math.nan,
                effect=float(effect[j]),
                cliffs_delta=float(delta[j]),
                wins=n_below if pair.lower_is_better else n_above,
                losses=n_above if pair.lower_is_better else n_below,
                ties=n - n_above - n_below,
                detectable=detectable_difference(deviation, n, alpha=method.alpha, power=method.power),
                queries_needed=_queries_to_detect(deviation, method),
                lower_is_better=pair.lower_is_better,
                stratum=pair.stratum,
                moved=_changed_queries(queries, baseline[:, j], system[:, j], query_gaps),
                margin=_test_margin(query_gaps, pair, method),
                seeds=_seed_differences(pair, mask),
            )
        )
    return rows


def _mean_difference(gap: Floats) -> float:
    """Return the mean of paired differences; 0 if only rounding is left of their sum, NaN without queries."""
    mean = _mean_or_nan(gap)
    return 0.0 if abs(mean) <= 1e-12 * np.abs(gap).max(initial=0.0) else mean


def paired_differences(system: Floats, baseline: Floats) -> Floats:
    """Subtract scores, and remove rounding from equal differences.

    Differences that are equal except for rounding become exactly equal. Ranks, signs and ties must not depend on the
    last digits of a subtraction: 0.3 - 0.2 equals 0.2 - 0.1. Rounding is relative to the two scores of a query, so a
    query with large scores does not affect the others.

    >>> len(set(paired_differences(np.array([[0.3], [0.2]]), np.array([[0.2], [0.1]])).ravel().tolist()))
    1
    """
    gaps = system - baseline
    if not len(gaps):
        return gaps
    tolerance = 1e-12 * np.maximum(np.abs(system), np.abs(baseline))
    sizes = np.where(np.abs(gaps) <= tolerance, 0.0, np.abs(gaps))
    order = np.argsort(sizes, axis=0)
    sizes, tolerance = np.take_along_axis(sizes, order, axis=0), np.take_along_axis(tolerance, order, axis=0)
    steps = np.diff(sizes, axis=0, prepend=0.0) > np.minimum(tolerance, np.roll(tolerance, 1, axis=0))
    first = np.maximum.accumulate(np.where(steps, np.arange(len(gaps))[:, None], -1), axis=0)
    common_size = np.where(first < 0, 0.0, np.take_along_axis(sizes, np.maximum(first, 0), axis=0))
    np.put_along_axis(sizes, order, common_size, axis=0)
    return np.asarray(np.copysign(sizes, gaps) + 0.0)  # removes negative zeros


def _mean_or_nan(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _queries_to_detect(deviation: float, method: ComparisonSettings) -> int | None:
    if method.detect is None or not deviation > 0:  # a deviation of 0 means that it is unknown
        return None
    return queries_needed(deviation, method.detect, alpha=method.alpha, power=method.power)


def _changed_queries(queries: Sequence[str], baseline: Floats, system: Floats, gap: Floats) -> list[ChangedQuery]:
    order = np.argsort(-np.abs(gap), kind="stable")
    return [
        ChangedQuery(queries[i], float(baseline[i]), float(system[i]), float(gap[i]))
        for i in order.tolist()
        if gap[i] != 0
    ]


def _test_margin(gap: Floats, pair: SystemPair, method: ComparisonSettings) -> MarginTest | None:
    """Test non-inferiority and equivalence by two one-sided tests.

    The tests are above minus the margin, and below the margin (Schuirmann 1987).
    """
    if method.margin is None:
        return None
    better = -gap if pair.lower_is_better else gap
    p_above, p_below = (margin_p_value(losses, method.margin, pair.max_difference) for losses in (-better, better))
    needed = queries_without_difference(method.margin, pair.max_difference, method.alpha)
    return MarginTest(method.margin, p_above, max(p_above, p_below), needed)


def _test_over_seeds(
    pairs: Sequence[SystemPair], mask: QueryMask, gaps: Floats, method: ComparisonSettings
) -> tuple[Floats, Floats]:
    """Compute p-values and intervals over queries and seeds."""
    tables_by_pair = [
        values_by_seed(pair.system_scores[:, mask], pair.baseline_scores[:, mask], paired=_has_paired_seeds(pair))
        for pair in pairs
    ]
    resampled = hierarchical_bootstrap_means(tables_by_pair, method.rounds, method.seed)
    rows = []
    for column, tables in enumerate(tables_by_pair):
        difference, variances = _mean_or_nan(gaps[:, column]), draw_variances(tables, method.seed)
        bounds = seed_difference_interval(resampled[:, column], difference, variances, method.confidence)
        values = np.concatenate([pairs[column].system_scores[:, mask], pairs[column].baseline_scores[:, mask]])
        if values.min() >= 0 and values.max() <= 1:  # scores in [0, 1] differ by at most 1, however few the seeds
            bounds = max(-1.0, bounds[0]), min(1.0, bounds[1])
        rows.append((seed_difference_p_value(difference, variances), *bounds))
    p, low, high = np.array(rows).T
    return p, np.stack([low, high])


def _has_paired_seeds(pair: SystemPair) -> bool:
    return bool(pair.seeds) and len(pair.system_scores) == len(pair.baseline_scores)


def _seed_differences(pair: SystemPair, mask: QueryMask) -> SeedDifferences | None:
    if len(pair.system_scores) == len(pair.baseline_scores) == 1 or not mask.any():
        return None
    tables = values_by_seed(pair.system_scores[:, mask], pair.baseline_scores[:, mask], paired=_has_paired_seeds(pair))
    share = seed_variance_share(tables) if mask.sum() > 1 else math.nan
    system, baseline = pair.system_scores[:, mask].mean(axis=1), pair.baseline_scores[:, mask].mean(axis=1)
    if pair.seeds:
        return SeedDifferences(list(pair.seeds), (system - baseline).tolist(), paired=True, share=share)
    labels = [f"{i + 1}/{j + 1}" for i in range(len(system)) for j in range(len(baseline))]
    return SeedDifferences(labels, (system[:, None] - baseline[None, :]).ravel().tolist(), paired=False, share=share)
