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
    base: Floats
    mine: Floats
    seeds: Sequence[str] = ()
    """Labels of the rows, if both systems have the same seeds or one has a single row; otherwise empty."""
    lower_is_better: bool = False
    stratum: str = ""


def compare_pairs(pairs: Sequence[SystemPair], method: ComparisonSettings) -> list[Comparison]:
    """Compare all pairs, with p-values corrected per family.

    Comparisons are in input order.
    """
    kept = [_scored_by_both(one) for one in pairs]
    groups: dict[bytes, list[int]] = {}
    for place, mask in enumerate(kept):
        groups.setdefault(mask.tobytes(), []).append(place)
    found: dict[int, Comparison] = {}
    width = max(1, MAX_RESAMPLED_VALUES // method.rounds)
    for whole in groups.values():
        for start in range(0, len(whole), width):
            places = whole[start : start + width]
            rows = _test_pairs([pairs[i] for i in places], kept[places[0]], method)
            found.update(zip(places, rows, strict=True))
    return _correct_families([found[i] for i in range(len(pairs))], method)


def _scored_by_both(pair: SystemPair) -> QueryMask:
    return np.asarray(~(np.isnan(pair.base).any(axis=0) | np.isnan(pair.mine).any(axis=0)))


def _correct_families(rows: Sequence[Comparison], method: ComparisonSettings) -> list[Comparison]:
    chosen = np.array([getattr(row, f"p_{method.test}") for row in rows], np.float64)
    after = chosen.copy()
    families: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        families.setdefault(row.measure if method.family == "measure" else "", []).append(place)
    for places in families.values():
        after[places] = correct_p_values(chosen[places], method.correction)
    return [replace(row, p_corrected=float(p)) for row, p in zip(rows, after, strict=True)]


def _test_pairs(pairs: Sequence[SystemPair], mask: QueryMask, method: ComparisonSettings) -> list[Comparison]:
    """Test pairs that have the same queries, as columns of one table."""
    base = np.stack([one.base[:, mask].mean(axis=0) for one in pairs], axis=1)
    mine = np.stack([one.mine[:, mask].mean(axis=0) for one in pairs], axis=1)
    gaps = paired_differences(mine, base)
    n, width = gaps.shape
    nothing = np.full(width, math.nan)
    if n < 2:
        p_t = p_wilcoxon = p_sign = p_randomisation = effect = delta = nothing
        ends = np.stack([nothing, nothing])
    else:
        p_t, _ = paired_tests.t_test(gaps)
        p_wilcoxon, p_sign = paired_tests.wilcoxon_test(gaps), paired_tests.sign_test(gaps)
        p_randomisation = paired_tests.randomisation_test(gaps, rounds=method.rounds, seed=method.seed)
        effect, delta = paired_tests.cohens_d(gaps), paired_tests.cliffs_delta(mine, base)
        resampled = bootstrap_means(gaps, method.rounds, method.seed)
        ends = (
            bca_interval(gaps, resampled, method.confidence)
            if method.interval == "bca"
            else percentile_interval(resampled, method.confidence)
        )
        several = [j for j, one in enumerate(pairs) if len(one.mine) > 1 or len(one.base) > 1]
        if several:
            some = [pairs[j] for j in several]
            p_t[several], ends[:, several] = _test_over_seeds(some, mask, gaps[:, several], method)
    queries = [query for query, there in zip(pairs[0].queries, mask.tolist(), strict=True) if there]
    rows = []
    for j, one in enumerate(pairs):
        gap = gaps[:, j]
        up, down = int((gap > 0).sum()), int((gap < 0).sum())
        deviation = float(paired_tests.column_deviations(gap[:, None])[0]) if n > 1 else math.nan
        rows.append(
            Comparison(
                measure=one.measure,
                baseline=one.baseline,
                system=one.system,
                n=n,
                means=(_mean_or_nan(base[:, j]), _mean_or_nan(mine[:, j])),
                difference=_mean_difference(gap),
                ci=(float(ends[0, j]), float(ends[1, j])),
                p_t=float(p_t[j]),
                p_wilcoxon=float(p_wilcoxon[j]),
                p_sign=float(p_sign[j]),
                p_randomisation=float(p_randomisation[j]),
                p_corrected=math.nan,
                effect=float(effect[j]),
                cliffs_delta=float(delta[j]),
                wins=down if one.lower_is_better else up,
                losses=up if one.lower_is_better else down,
                ties=n - up - down,
                detectable=detectable_difference(deviation, n, alpha=method.alpha, power=method.power),
                needed=_queries_to_detect(deviation, method),
                lower_is_better=one.lower_is_better,
                stratum=one.stratum,
                moved=_changed_queries(queries, base[:, j], mine[:, j], gap),
                margin=_test_margin(gap, one, method),
                seeds=_seed_differences(one, mask),
            )
        )
    return rows


def _mean_difference(gap: Floats) -> float:
    """Return the mean of paired differences; 0 if only rounding is left of their sum, NaN without queries."""
    mean = _mean_or_nan(gap)
    return 0.0 if abs(mean) <= 1e-12 * np.abs(gap).max(initial=0.0) else mean


def paired_differences(mine: Floats, base: Floats) -> Floats:
    """Subtract scores, and remove rounding from equal differences.

    Differences that are equal except for rounding become exactly equal. Ranks, signs and ties must not depend on the
    last digits of a subtraction: 0.3 - 0.2 equals 0.2 - 0.1.

    >>> len(set(paired_differences(np.array([[0.3], [0.2]]), np.array([[0.2], [0.1]])).ravel().tolist()))
    1
    """
    gaps = mine - base
    if not len(gaps):
        return gaps
    near = 1e-12 * np.maximum(np.abs(mine), np.abs(base)).max(axis=0)
    order = np.argsort(np.abs(gaps), axis=0)
    sizes = np.take_along_axis(np.abs(gaps), order, axis=0)
    steps = np.diff(sizes, axis=0, prepend=0.0) > near
    first = np.maximum.accumulate(np.where(steps, np.arange(len(gaps))[:, None], -1), axis=0)
    same = np.where(first < 0, 0.0, np.take_along_axis(sizes, np.maximum(first, 0), axis=0))
    np.put_along_axis(sizes, order, same, axis=0)
    return np.asarray(np.copysign(sizes, gaps) + 0.0)  # removes negative zeros


def _mean_or_nan(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _queries_to_detect(deviation: float, method: ComparisonSettings) -> int | None:
    if method.detect is None or not deviation > 0:  # a deviation of 0 means that it is unknown
        return None
    return queries_needed(deviation, method.detect, alpha=method.alpha, power=method.power)


def _changed_queries(queries: Sequence[str], base: Floats, mine: Floats, gap: Floats) -> list[ChangedQuery]:
    order = np.argsort(-np.abs(gap), kind="stable")
    return [
        ChangedQuery(queries[i], float(base[i]), float(mine[i]), float(gap[i])) for i in order.tolist() if gap[i] != 0
    ]


def _test_margin(gap: Floats, pair: SystemPair, method: ComparisonSettings) -> MarginTest | None:
    """Test non-inferiority and equivalence by two one-sided t-tests.

    The tests are above minus the margin, and below the margin (Schuirmann 1987).
    """
    if method.margin is None:
        return None
    if len(gap) < 2:
        return MarginTest(method.margin, math.nan, math.nan)
    better = -gap if pair.lower_is_better else gap
    above = float(paired_tests.t_test(better[:, None], -method.margin)[1][0])
    below = float(paired_tests.t_test(-better[:, None], -method.margin)[1][0])
    return MarginTest(method.margin, above, max(above, below))


def _test_over_seeds(
    pairs: Sequence[SystemPair], mask: QueryMask, gaps: Floats, method: ComparisonSettings
) -> tuple[Floats, Floats]:
    """Compute p-values and intervals over queries and seeds."""
    sides = [values_by_seed(one.mine[:, mask], one.base[:, mask], paired=_has_paired_seeds(one)) for one in pairs]
    resampled = hierarchical_bootstrap_means(sides, method.rounds, method.seed)
    found = []
    for column, mine in enumerate(sides):
        difference, known = _mean_or_nan(gaps[:, column]), draw_variances(mine, method.seed)
        ends = seed_difference_interval(resampled[:, column], difference, known, method.confidence)
        values = np.concatenate([pairs[column].mine[:, mask], pairs[column].base[:, mask]])
        if values.min() >= 0 and values.max() <= 1:  # scores in [0, 1] differ by at most 1, however few the seeds
            ends = max(-1.0, ends[0]), min(1.0, ends[1])
        found.append((seed_difference_p_value(difference, known), *ends))
    p, low, high = np.array(found).T
    return p, np.stack([low, high])


def _has_paired_seeds(pair: SystemPair) -> bool:
    return bool(pair.seeds) and len(pair.mine) == len(pair.base)


def _seed_differences(pair: SystemPair, mask: QueryMask) -> SeedDifferences | None:
    if len(pair.mine) == len(pair.base) == 1 or not mask.any():
        return None
    sides = values_by_seed(pair.mine[:, mask], pair.base[:, mask], paired=_has_paired_seeds(pair))
    share = seed_variance_share(sides) if mask.sum() > 1 else math.nan
    mine, base = pair.mine[:, mask].mean(axis=1), pair.base[:, mask].mean(axis=1)
    if pair.seeds:
        return SeedDifferences(list(pair.seeds), (mine - base).tolist(), paired=True, share=share)
    labels = [f"{i + 1}/{j + 1}" for i in range(len(mine)) for j in range(len(base))]
    return SeedDifferences(labels, (mine[:, None] - base[None, :]).ravel().tolist(), paired=False, share=share)
