"""Tests and bounds of a mean loss against a margin; without observed losses, rare large ones are not ruled out."""

from __future__ import annotations

import math

import numpy as np

from ragauge.core.records import Floats
from ragauge.stats.paired_tests import t_test

MIN_DIFFERING_QUERIES = 10
"""With fewer differing queries, the variance says little: a loss that was never observed cannot be resampled."""
MAX_EXACT_CELLS = 250_000
"""Maximum number of steps of the exact computation; beyond that, the saddlepoint approximation is used."""


def margin_p_value(losses: Floats, margin: float, max_loss: float) -> float:
    """Compute the one-sided p-value for a mean loss of at least `margin`, from one loss per query.

    It is the larger of that of the paired t-test and of `bounded_p_value`: the t-test takes a small variance for
    certainty, also if large losses are only too rare to be in a small sample. `max_loss` is the largest possible
    loss, infinite for measures without bounds; these have only the t-test, and NaN if fewer than 10 queries differ.
    NaN for fewer than two queries.

    >>> [margin_p_value(np.zeros(n), 0.05, 1.0) < 0.05 for n in (58, 59)]
    [False, True]
    """
    if len(losses) < 2 or (math.isinf(max_loss) and np.count_nonzero(losses) < MIN_DIFFERING_QUERIES):
        return math.nan
    p_t = float(t_test(-losses[:, None], -margin)[1][0])
    return p_t if math.isinf(max_loss) else max(p_t, bounded_p_value(losses, margin, max_loss))


def loss_upper_bound(losses: Floats, confidence: float, max_loss: float) -> float:
    """Compute the smallest margin that `margin_p_value` rules out at level 1 - confidence.

    Infinite if it rules out none.

    >>> round(loss_upper_bound(np.zeros(59), 0.95, 1.0), 4)
    0.0495
    """
    from scipy.special import stdtrit

    n = len(losses)
    if n < 2 or (math.isinf(max_loss) and np.count_nonzero(losses) < MIN_DIFFERING_QUERIES):
        return math.inf
    mean = float(losses.mean())
    t_bound = mean + float(stdtrit(n - 1, confidence)) * float(losses.std(ddof=1)) / math.sqrt(n)
    if math.isinf(max_loss) or t_bound >= max_loss:
        return min(t_bound, max_loss)
    return max(t_bound, bounded_upper_bound(losses, confidence, max_loss))


def bounded_upper_bound(losses: Floats, confidence: float, max_loss: float) -> float:
    """Compute the smallest margin that `bounded_p_value` rules out: Clopper and Pearson's bound for losses of 0 and 1.

    >>> round(bounded_upper_bound(np.array([0.0, 1.0] * 50), 0.975, 1.0), 4)
    0.6017
    """
    from scipy.optimize import brentq

    if losses.min() >= max_loss:
        return max_loss
    return float(
        brentq(
            lambda margin: bounded_p_value(losses, margin, max_loss) - (1 - confidence),
            float(losses.min()),
            max_loss,
            xtol=1e-9 * max_loss,
        )
    )


def queries_without_difference(margin: float, max_loss: float, alpha: float = 0.05) -> int | None:
    """Return the number of queries, none of which differs, that rule out a mean loss of `margin`.

    None if the margin is 0 or the largest possible loss is unknown.

    Formula: the smallest n with (1 - margin / max_loss)^n < alpha: with a share of margin / max_loss of queries that
    lose everything, n queries contain none of them with that probability (Clopper and Pearson 1934).

    >>> [queries_without_difference(margin, 1.0) for margin in (0.05, 0.02, 0.01)]
    [59, 149, 299]
    """
    if margin <= 0 or math.isinf(max_loss):
        return None
    if margin >= max_loss:
        return 1
    return math.floor(math.log(alpha) / math.log1p(-margin / max_loss)) + 1


def queries_to_rule_out(losses: Floats, margin: float, confidence: float, max_loss: float) -> float:
    """Estimate how many queries like these rule out a mean loss of `margin`; infinite if the mean reaches it.

    >>> queries_to_rule_out(np.zeros(20), 0.02, 0.95, 1.0), queries_to_rule_out(np.ones(20), 1.0, 0.95, 1.0)
    (149.0, inf)
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    distance = margin - float(losses.mean())
    if distance <= 1e-12 * max(abs(margin), float(np.abs(losses).max())):
        return math.inf
    needed = (float(ndtri(confidence)) * float(losses.std(ddof=1)) / distance) ** 2
    if math.isfinite(max_loss) and margin < max_loss:
        excess, counts = np.append(losses, max_loss) - margin, np.ones(len(losses) + 1)

        def level_excess(n: float) -> float:
            counts[:-1] = n / len(losses)
            return _saddlepoint_p_value(excess, counts) - (1 - confidence)

        high = 2.0
        while level_excess(high) > 0:
            high *= 2
        needed = max(needed, float(brentq(level_excess, 1.0, high)) if high > 2 else 2.0)
    return float(math.ceil(round(needed, 2)))


def bounded_p_value(losses: Floats, margin: float, max_loss: float) -> float:
    """Compute the p-value for a mean loss of at least `margin` of losses that are at most `max_loss`.

    It assumes nothing else about their distribution.

    Formula: P(sum w_i x_i >= margin) over the n losses and `max_loss`, with weights that are uniform on the simplex.
    With losses of 0 and `max_loss` only, it is the exact binomial test, the inverse of Clopper and Pearson's bound.
    That it keeps its level for every distribution is a conjecture, which our simulations support.
    Papers: Gaffke, Mathematical Methods of Statistics 2005; Learned-Miller and Thomas, arXiv:1905.06208, 2019.

    >>> round(bounded_p_value(np.zeros(10), 0.1, 1.0), 6) == round(0.9**10, 6)
    True
    """
    excess = np.append(losses, max_loss) - margin
    above, below = excess[excess > 0], -excess[excess < 0]
    if not len(above) or not len(below):
        return float(len(below) == 0)
    if len(above) * len(below) > MAX_EXACT_CELLS:
        return _saddlepoint_p_value(excess, np.ones(len(excess)))
    return _exceedance_probability(above, below)


def _exceedance_probability(above: Floats, below: Floats) -> float:
    """Return P(sum a_i E_i > sum b_j E_j) for independent exponential variables E.

    Weights that are uniform on the simplex are exponential variables divided by their sum. The two sums are two
    processes that pass through stages of exponential duration; the one that ends last is larger. By memorylessness,
    of the stages i and j that run, j ends first with probability a_i / (a_i + b_j). All terms are positive, so
    nothing cancels. Cells (i, j) are computed by antidiagonals.
    """
    p, q = len(above), len(below)
    reversed_below = below[::-1]
    last_first = np.zeros(p + 1)  # at i the probability from cell (i, d + 1 - i) on
    for d in range(p + q - 2, -1, -1):
        low, high = max(0, d - q + 1), min(p, d + 1)
        if d >= q - 1:
            last_first[low] = 1.0  # cell (i, q): all stages of `below` have ended
        shares = above[low:high] / (above[low:high] + reversed_below[q - 1 - d + low : q - 1 - d + high])
        last_first[low:high] = shares * last_first[low:high] + (1 - shares) * last_first[low + 1 : high + 1]
    return float(last_first[0])


def _saddlepoint_p_value(excess: Floats, counts: Floats) -> float:
    """Approximate P(sum y_i G_i > 0) for independent gamma variables G with the given shapes.

    A shape of c stands for c exponential variables.

    Paper: Lugannani and Rice, Advances in Applied Probability 1980.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    margin = 1e-9
    low, high = (1 - margin) / excess.min(), (1 - margin) / excess.max()
    t = float(brentq(lambda t: (counts * excess / (1 - t * excess)).sum(), low, high, xtol=1e-14 * (high - low)))
    w = math.copysign(math.sqrt(max(0.0, 2 * float((counts * np.log1p(-t * excess)).sum()))), t)
    u = t * math.sqrt(float((counts * (excess / (1 - t * excess)) ** 2).sum()))
    if abs(w) < 1e-4:  # the mean is at the margin, where the formula divides 0 by 0
        return float(ndtr(-w))
    density = math.exp(-w * w / 2) / math.sqrt(2 * math.pi)
    return float(ndtr(-w) + density * (1 / u - 1 / w))
