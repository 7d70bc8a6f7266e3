"""Agreement of people among themselves: an approximate upper limit for a judge."""

from __future__ import annotations

import numpy as np

from ragauge.calibrations import Figure
from ragauge.records import Floats, Ints
from ragauge.stats.agreement import alpha, verdict_figures
from ragauge.stats.association import auc, correlations


def left_out(votes: Floats) -> tuple[Floats, Floats, Ints]:
    """Pair each vote with the mean of the other votes on its sample.

    Returns votes, means of the others, and sample positions. Samples with one vote are left out.

    >>> vote, others, sample = left_out(np.array([[1.0, 0.0, 1.0], [0.5, np.nan, np.nan]]))
    >>> vote.tolist(), others.tolist(), sample.tolist()
    ([1.0, 0.0, 1.0], [0.5, 1.0, 0.5], [0, 0, 0])
    """
    known = ~np.isnan(votes)
    number = known.sum(axis=1, keepdims=True)
    total = np.where(known, votes, 0.0).sum(axis=1, keepdims=True)
    used = known & (number > 1)
    others = (total - np.where(known, votes, 0.0)) / np.maximum(number - 1, 1)
    return votes[used], others[used], np.nonzero(used)[0]


def people_figures(
    votes: Floats, threshold: float, confidence: float = 0.95, *, groups: Ints | None = None, seed: int = 0
) -> dict[str, Figure]:
    """Compute the statistics of a person: each vote against the mean of the others.

    The votes on one sample are correlated, and so are the samples of one group. Alpha is that of all votes.
    """
    vote, others, sample = left_out(votes)
    together = sample if groups is None else groups[sample]
    good, really = vote >= threshold - 1e-9, others >= threshold - 1e-9
    figures = verdict_figures(good, really, confidence, groups=together, seed=seed)
    figures["auc"] = auc(vote, really, confidence, groups=together)
    figures |= correlations(vote, others, confidence, groups=together, seed=seed)
    figures["alpha"] = alpha(votes, confidence, groups=groups, seed=seed)
    del figures["accuracy_all"]
    return figures
