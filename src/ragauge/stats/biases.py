"""Biases of a judge: inconsistency between replicates, order of contexts, and length of answers."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from ragauge.calibrations import Consistency, Figure, Swap, Verbosity
from ragauge.records import Floats, Ints
from ragauge.stats.agreement import alpha, share
from ragauge.stats.association import correlations, length_slope
from ragauge.stats.clusters import design_effect
from ragauge.stats.raters import EDGE, mean_figure
from ragauge.stats.reliability import over_tasks


def consistency(
    columns: Floats, threshold: float, confidence: float = 0.95, *, groups: Ints | None = None, seed: int = 0
) -> Consistency:
    """Measure the agreement of replicates (columns) of the same samples (rows).

    A sample with a verdict in one replicate and none (NaN) in another counts as changed. Samples without any verdict
    are left out.

    >>> found = consistency(np.array([[1.0, 0.9], [0.2, 0.8], [np.nan, 0.7], [0.1, 0.3]]), 0.5)
    >>> found.same.value, found.pairwise.value, round(found.spread.value, 4)
    (0.5, 0.5, 0.2121)
    """
    heard = ~np.isnan(columns).all(axis=1)
    columns, groups = columns[heard], None if groups is None else groups[heard]
    said = verdict_codes(columns, threshold)
    same = (said == said[:, :1]).all(axis=1)
    pairs = [said[:, i] == said[:, j] for i, j in combinations(range(said.shape[1]), 2)]
    several = (~np.isnan(columns)).sum(axis=1) > 1
    mine = columns[several]
    spread = np.nanstd(mine, axis=1, ddof=1) if several.any() else np.array([])
    return Consistency(
        replicates=columns.shape[1],
        same=_share(same.astype(np.float64), confidence, groups),
        pairwise=_bounded(np.mean(pairs, axis=0), confidence, groups, seed),
        alpha=alpha(np.where(said < 0, math.nan, said), confidence, groups=groups, seed=seed),
        spread=mean_figure(spread, confidence, groups=None if groups is None else groups[several], seed=seed),
    )


def _share(hits: Floats, confidence: float, groups: Ints | None) -> Figure:
    """Estimate a share, or conservatively a mean of values between 0 and 1."""
    return share(float(hits.sum()), len(hits), confidence, effect=design_effect(hits, groups, confidence))


def _bounded(values: Floats, confidence: float, groups: Ints | None, seed: int) -> Figure:
    """Estimate a mean of values between 0 and 1.

    The interval has a width even if all values are 1.
    """
    if groups is not None or not len(values):
        return _share(values, confidence, groups)
    low, high = over_tasks(values[None], confidence, seed=seed)
    return Figure(float(values.mean()), float(low[0]), float(high[0]), len(values))


def verdict_codes(scores: Floats, threshold: float) -> Floats:
    """Encode verdicts: 1 for good, 0 for bad, -1 for no verdict.

    >>> verdict_codes(np.array([0.9, 0.1, np.nan]), 0.5).tolist()
    [1.0, 0.0, -1.0]
    """
    return np.where(np.isnan(scores), -1.0, np.where(scores >= threshold - EDGE, 1.0, 0.0))


def swapped(
    given: Floats,
    turned: Floats,
    threshold: float,
    confidence: float = 0.95,
    *,
    groups: Ints | None = None,
    seed: int = 0,
) -> Swap:
    """Measure the effect of reversing the contexts.

    Samples without a verdict in both orders are left out.
    """
    heard = ~(np.isnan(given) & np.isnan(turned))
    given, turned, groups = given[heard], turned[heard], None if groups is None else groups[heard]
    changed = verdict_codes(given, threshold) != verdict_codes(turned, threshold)
    both = ~np.isnan(turned - given)
    shift, mine = (turned - given)[both], None if groups is None else groups[both]
    return Swap(
        changed=_share(changed.astype(np.float64), confidence, groups),
        shift=mean_figure(shift, confidence, groups=mine, seed=seed),
        moved=mean_figure(np.abs(shift), confidence, groups=mine, seed=seed),
    )


def verbosity(
    scores: Floats,
    labels: Floats,
    words: Floats,
    confidence: float = 0.95,
    *,
    groups: Ints | None = None,
    seed: int = 0,
) -> Verbosity:
    """Measure whether the error of the judge grows with the length of answers."""
    known = ~np.isnan(scores)
    mine = None if groups is None else groups[known]
    error, length = scores[known] - labels[known], words[known]
    found = correlations(error, length, confidence, groups=mine, seed=seed)["spearman"]
    reasons = {"all scores are the same": "all errors are the same", "all labels are the same": "all are as long"}
    return Verbosity(
        correlation=Figure(*found[:4], reasons.get(found.why, found.why)),
        slope=length_slope(scores[known], labels[known], length, confidence, groups=mine),
    )
