"""Repeated trials per task: pass@k, pass^k, and confidence intervals of their means over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.record_types import json_form
from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import ValueWithInterval


@json_form(derived=("n", "trials", "always", "flaky", "never"), renamed={"n": "tasks", "over": "intervals_over"})
@dataclass(frozen=True, eq=False)
class Reliability:
    """Success rates of a system whose tasks were each tried several times."""

    system: str
    counts: Mapping[str, tuple[int, int]]
    """Trials and successes by task: `{task: (trials, successes)}`."""
    success_rate: ValueWithInterval
    """Mean over tasks of the share of successful trials."""
    pass_at: Mapping[int, ValueWithInterval]
    """Probability that at least one of k trials of a task succeeds (pass@k), by k."""
    pass_all: Mapping[int, ValueWithInterval]
    """Probability that all k trials of a task succeed (pass^k), by k."""
    agreement: float
    """Probability that two trials of a task have the same outcome; NaN if no task has two trials."""
    over: str = "tasks"
    """Population of the intervals: other `tasks` of this kind, or other `trials` of these tasks."""
    confidence: float = 0.95
    success: str = ""
    """Definition of a success."""
    notes: Sequence[str] = ()

    @property
    def n(self) -> int:
        """Number of tasks."""
        return len(self.counts)

    @property
    def trials(self) -> tuple[int, int]:
        """Smallest and largest number of trials of a task."""
        trial_counts = [n for n, _ in self.counts.values()]
        return min(trial_counts), max(trial_counts)

    @property
    def always(self) -> list[str]:
        """Tasks in which every trial succeeded."""
        return [task for task, (n, c) in self.counts.items() if c == n]

    @property
    def never(self) -> list[str]:
        """Tasks in which no trial succeeded."""
        return [task for task, (_, c) in self.counts.items() if c == 0]

    @property
    def flaky(self) -> list[str]:
        """Tasks with successes and failures; success rates closest to 0.5 come first."""
        mixed_tasks = [task for task, (n, c) in self.counts.items() if 0 < c < n]
        return sorted(mixed_tasks, key=lambda task: abs(self.counts[task][1] / self.counts[task][0] - 0.5))

    def __repr__(self) -> str:
        max_k = max(self.pass_at)
        return (
            f"Reliability({self.system!r}, {self.n} tasks: success rate {self.success_rate.value:.4f}, "
            f"pass@{max_k} {self.pass_at[max_k].value:.4f}, pass^{max_k} {self.pass_all[max_k].value:.4f})"
        )


TASK_BOOTSTRAP_ROUNDS = 20_000
RESAMPLED_UNITS = ("tasks", "trials")


def pass_at(n: ArrayLike, c: ArrayLike, k: int) -> Floats:
    """Estimate per task the probability that one of k trials succeeds (pass@k).

    The estimate is unbiased.

    Formula: 1 - C(n - c, k) / C(n, k), for each task, from n trials of which c succeeded.
    Paper: Chen et al., Evaluating Large Language Models Trained on Code, 2021.

    >>> pass_at([3, 3, 10], [2, 1, 3], 2).round(4).tolist()
    [1.0, 0.6667, 0.5333]
    """
    trials, successes = _check_counts(n, c, [k])
    return np.asarray(1 - _combination_ratios(trials, trials - successes, [k])[0])


def pass_all(n: ArrayLike, c: ArrayLike, k: int) -> Floats:
    """Estimate per task the probability that all of k trials succeed (pass^k).

    Unbiased.

    Formula: C(c, k) / C(n, k), for each task, from n trials of which c succeeded.
    Paper: Yao et al., tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains, 2024.

    >>> pass_all([3, 3, 10], [2, 1, 3], 2).round(4).tolist()
    [0.3333, 0.0, 0.0667]
    """
    trials, successes = _check_counts(n, c, [k])
    return np.asarray(_combination_ratios(trials, successes, [k])[0])


def trial_agreement(n: ArrayLike, c: ArrayLike) -> float:
    """Estimate the probability that two trials of a task have the same outcome.

    The mean is over the tasks with at least two trials; NaN if there are none.

    >>> trial_agreement([3, 3], [3, 1])
    0.6666666666666666
    """
    trials, successes = _check_counts(n, c, [1])
    is_repeated = trials > 1
    if not is_repeated.any():
        return float("nan")
    trials, successes = trials[is_repeated], successes[is_repeated]
    return float(
        np.mean(_combination_ratios(trials, successes, [2]) + _combination_ratios(trials, trials - successes, [2]))
    )


def compute_reliability(
    counts: Mapping[str, tuple[int, int]],
    ks: Sequence[int] | None = None,
    *,
    system: str = "",
    over: str | None = None,
    confidence: float = 0.95,
    rounds: int = TASK_BOOTSTRAP_ROUNDS,
    seed: int = 0,
) -> Reliability:
    """Compute success rate, pass@k, pass^k and agreement of one system.

    `counts` is `{task: (trials, successes)}`. Raises `MissingEvidence` if there are no tasks, or a task has fewer
    trials than the largest k.
    """
    if not counts:
        raise MissingEvidence("no tasks", hint="pass at least one task with at least one trial")
    if over is not None and over not in RESAMPLED_UNITS:
        raise UnknownName("interval", over, RESAMPLED_UNITS)
    if not 0.5 <= confidence < 1:
        raise BadInput(f"the confidence must be between 0.5 and 1, got {confidence:g}", hint="use 0.95")
    n, c = (np.array([pair[i] for pair in counts.values()], np.int64) for i in (0, 1))
    requested_ks = default_ks(int(n.min())) if ks is None else sorted(set(ks))
    _check_counts(n, c, requested_ks, list(counts), system)
    over = over or ("tasks" if len(counts) > 1 else "trials")
    values = np.concatenate(
        [c[None] / n, 1 - _combination_ratios(n, n - c, requested_ks), _combination_ratios(n, c, requested_ks)]
    )
    if over == "tasks":
        low, high = interval_over_tasks(values, confidence, rounds=rounds, seed=seed)
    elif len(counts) > 1:
        low, high = interval_over_trials(values, n, [1, *requested_ks, *requested_ks], confidence)
    else:
        low, high = _single_task_interval(int(n[0]), int(c[0]), requested_ks, confidence)
    mean = values.mean(axis=1)
    # An unbiased estimate may be impossible for any single success probability: 0 for pass^3 of 2 in 3.
    rows = zip(mean, np.minimum(low, mean), np.maximum(high, mean), strict=True)
    estimates = [ValueWithInterval(*map(float, row)) for row in rows]
    return Reliability(
        system=system,
        counts=counts,
        success_rate=estimates[0],
        pass_at=dict(zip(requested_ks, estimates[1:], strict=False)),
        pass_all=dict(zip(requested_ks, estimates[1 + len(requested_ks) :], strict=True)),
        agreement=trial_agreement(n, c),
        over=over,
        confidence=confidence,
    )


def interval_over_tasks(
    values: Floats, confidence: float = 0.95, *, rounds: int = TASK_BOOTSTRAP_ROUNDS, seed: int = 0
) -> tuple[Floats, Floats]:
    """Compute intervals for the mean of each row, over a sample of tasks.

    Values are in [0, 1].

    Formula: the lower end is the (1 - confidence) / 2 quantile of the mean of the m values and an additional 0,
    under weights drawn uniformly from all that sum to 1 (Dirichlet); the upper end is its mirror image, with a 1.
    This is a Bayesian bootstrap with an unseen worst task added: m perfect tasks do not prove perfection. For values
    of 0 and 1 it is Clopper and Pearson's interval, which is then used. Coverage at the nominal level for every
    distribution on [0, 1] is conjectured, and no counterexample is known. The value of each task includes the
    variation of its trials, so this is covered too. Resampling trials within tasks would count it twice, and around
    (c/n)^k instead of C(c, k) / C(n, k).
    Paper: Gaffke, Mathematical Methods of Statistics 2005; Learned-Miller and Thomas, arXiv 1905.06208.

    >>> low, high = interval_over_tasks(np.array([[1.0] * 30, [1.0, 0.5] * 15]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.88, 0.63], [1.0, 0.84])
    """
    # Weights of equal tasks add up to a gamma variate, so a thousand tasks of three trials need four draws per round.
    kinds, sizes = np.unique(values.round(12), axis=1, return_counts=True)
    rng = np.random.default_rng(seed)
    low, high = np.empty((2, rounds, len(values)))
    step = max(1, (1 << 22) // len(sizes))
    for start in range(0, rounds, step):
        block = slice(start, min(start + step, rounds))
        weights = rng.standard_gamma(sizes.astype(np.float64), (block.stop - block.start, len(sizes)))
        unseen = rng.standard_exponential((len(weights), 1))
        total = weights.sum(axis=1, keepdims=True) + unseen
        low[block] = weights @ kinds.T / total
        high[block] = 1 - weights @ (1 - kinds.T) / total
    tail = (1 - confidence) / 2
    exact_bounds = _clopper_pearson(kinds @ sizes / sizes.sum(), np.array(values.shape[1]), confidence)
    is_constant = ((kinds == 0) | (kinds == 1)).all(axis=1)
    return (
        np.where(is_constant, exact_bounds[0], np.quantile(low, tail, axis=0)),
        np.where(is_constant, exact_bounds[1], np.quantile(high, 1 - tail, axis=0)),
    )


def interval_over_trials(values: Floats, n: Ints, ks: Sequence[int], confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Compute intervals for the mean of each row, over new trials of the same tasks.

    Formula: Clopper and Pearson's for N trials of which the mean's share succeeded, N = m^2 / (k sum 1/n). The mean
    over the subsets of k trials of a task varies no more than that of n/k independent ones (Hoeffding 1948). Tasks
    with unequal probabilities vary less in total than equal ones (Hoeffding 1956).
    """
    mean = values.mean(axis=1)
    return _clopper_pearson(mean, n.size**2 / (np.array(ks) * (1 / n).sum()), confidence)


def cochran_q_test(outcomes: NDArray[np.bool_]) -> float:
    """Compute the p-value of Cochran's Q over trials (columns) and tasks (rows).

    A small p-value means that trials differ in success.

    Intervals assume that tasks are tried independently. This test detects an effect of one trial on many tasks, such
    as a bad seed.
    Paper: Cochran, Biometrika 1950.

    >>> round(cochran_q_test(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1]], bool)), 4)
    0.1054
    """
    from scipy.special import chdtrc

    successes = outcomes.astype(np.float64)
    trials = successes.shape[1]
    by_task, by_trial = successes.sum(axis=1), successes.sum(axis=0)
    spread = float((by_task * (trials - by_task)).sum())
    if not spread:
        return 1.0
    q = trials * (trials - 1) * float(((by_trial - by_trial.mean()) ** 2).sum()) / spread
    return float(chdtrc(trials - 1, q))


def default_ks(n: int) -> list[int]:
    """List every k up to ten trials; for more trials 1, 2, 5, 10, … and the largest.

    >>> default_ks(3), default_ks(200)
    ([1, 2, 3], [1, 2, 5, 10, 20, 50, 100, 200])
    """
    if n <= 10:
        return list(range(1, n + 1))
    return sorted(
        {n, *(step * 10**power for power in range(len(str(n))) for step in (1, 2, 5) if step * 10**power < n)}
    )


def _single_task_interval(n: int, c: int, ks: Sequence[int], confidence: float) -> tuple[Floats, Floats]:
    """Compute the intervals of a single task.

    Clopper and Pearson's interval of the success probability p is transformed to 1 - (1 - p)^k and p^k.
    """
    powers = np.array(ks)
    low, high = (
        np.concatenate([p, 1 - (1 - p) ** powers, p**powers])
        for p in _clopper_pearson(np.array([c / n]), np.array([n]), confidence)
    )
    return low, high


def _clopper_pearson(share: Floats, n: Floats, confidence: float) -> tuple[Floats, Floats]:
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    n_success, n_failure = n * share, n * (1 - share)
    low = np.where(n_success > 0, betaincinv(np.maximum(n_success, 1e-12), n_failure + 1, tail), 0.0)
    high = np.where(n_failure > 0, betaincinv(n_success + 1, np.maximum(n_failure, 1e-12), 1 - tail), 1.0)
    return low, high


def _combination_ratios(n: Ints, x: Ints, ks: Sequence[int]) -> Floats:
    """Compute C(x, k) / C(n, k), one row per k and one column per task.

    It is a product of ratios, which cannot overflow.
    """
    ratios = np.empty((len(ks), len(n)))
    ratio = np.ones(len(n))
    row_by_k = {k: row for row, k in enumerate(ks)}
    for n_drawn in range(max(ks)):
        ratio = ratio * np.maximum(x - n_drawn, 0) / (n - n_drawn)
        if n_drawn + 1 in row_by_k:
            ratios[row_by_k[n_drawn + 1]] = ratio
    return ratios


def _check_counts(
    n: ArrayLike, c: ArrayLike, ks: Sequence[int], tasks: Sequence[str] = (), system: str = ""
) -> tuple[Ints, Ints]:
    """Return trials and successes as arrays.

    Raises if they are impossible or too few for the largest k.
    """
    trials, successes = np.broadcast_arrays(np.atleast_1d(np.asarray(n)), np.atleast_1d(np.asarray(c)))

    def describe_task(task: int) -> str:
        prefix = f"{system}: " if system else ""
        return prefix + (f"task `{tasks[task]}`" if tasks else "a task")

    for invalid in np.flatnonzero((trials < 1) | (successes < 0) | (successes > trials))[:1].tolist():
        raise BadInput(f"{describe_task(invalid)} has {successes[invalid]} successes in {trials[invalid]} trials")
    if not ks or min(ks) < 1:
        raise BadInput(f"k must be at least 1, got {min(ks, default=0)}")
    short = np.flatnonzero(trials < max(ks))
    if len(short):
        fewest = int(short[np.argmin(trials[short])])
        detail = f" ({len(short)} of {len(trials)} tasks have too few)" if len(short) > 1 else ""
        n = "1 trial" if trials[fewest] == 1 else f"{trials[fewest]} trials"
        raise MissingEvidence(
            f"{describe_task(fewest)} has {n}, but k={max(ks)} needs as many{detail}",
            hint=f"use k up to {trials[fewest]}, or add trials",
        )
    return trials, successes
