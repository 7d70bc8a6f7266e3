"""Estimate pass@k and pass^k from repeated trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Integral
from operator import index
from typing import Any, TypedDict, Unpack

import numpy as np

from ragauge import __version__
from ragauge.core.errors import BadInput
from ragauge.experiments.reliability.results import ReliabilityBySystem
from ragauge.experiments.reliability.trials import DEFAULT_MEASURE, SuccessRule, TrialOutcomes, collect_trials
from ragauge.files.trials import TrialCounts
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.scoring import MeasureFunction
from ragauge.output.numbers import format_number
from ragauge.runs.folder import utc_now
from ragauge.stats.reliability import Reliability, cochran_q_test, compute_reliability

TRIAL_EFFECT_ALPHA = 0.01
"""Significance level of the test for differences between trials."""


class IntervalOptions(TypedDict, total=False):
    over: str | None
    """Population: other `tasks` of this kind, or other `trials` of these tasks; default tasks, if there are several."""
    confidence: float
    seed: int


def reliability(
    trials: Any,
    k: int | Iterable[int] | None = None,
    *,
    qrels: Any = None,
    measure: str | MeasureFunction = DEFAULT_MEASURE,
    success_threshold: float | None = None,
    convention: str | Convention = "default",
    **intervals: Unpack[IntervalOptions],
) -> ReliabilityBySystem:
    """Estimate pass@k and pass^k with confidence intervals, and find flaky tasks.

    `trials` is `{task: [True, False, …]}`, `{task: (n, c)}` (n trials, c successes), `{system: one of these}`, or a
    frame or path of such a table. Rankings are trials too: an experiment that was run with `repeats`, its folder or
    the folder of one run, or, with `qrels`, runs in any form that `evaluate` accepts: `[run, run, …]`,
    `{system: [run, run, …]}`. Then every query is a task. It succeeds if `measure` reaches `success_threshold`
    (default: hit_rate@5 of 1). `k` defaults to every number up to the number of trials. The intervals have a
    `confidence` of 0.95, and are `over` other "tasks" or over other "trials" of these tasks. The result is a mapping
    by system; with one system, it has the attributes of its value too.

    >>> result = reliability({"a": [True, True, True], "b": [True, False, True]}, k=2)
    >>> round(result.pass_at[2].value, 4), round(result.pass_all[2].value, 4), result.flaky
    (1.0, 0.6667, ['b'])
    """
    outcomes = collect_trials(trials, qrels, SuccessRule(measure, success_threshold, convention))
    return ReliabilityBySystem(
        _estimate_each(outcomes, _parse_k_values(k), intervals),
        outcomes.texts,
        {
            "made": utc_now(),
            "ragauge": __version__,
            "convention": find_convention(convention).name,
            "seed": intervals.get("seed", 0),
        },
    )


def _estimate_each(
    outcomes: TrialOutcomes, ks: Sequence[int] | None, intervals: IntervalOptions
) -> dict[str, Reliability]:
    """Estimate the reliability of each system, with notes on limits."""
    estimates: dict[str, Reliability] = {}
    for name, tasks in outcomes.systems.items():
        counts = {
            task: outcome if isinstance(outcome, tuple) else (len(outcome), sum(outcome))
            for task, outcome in tasks.items()
        }
        label = name if outcomes.are_named else ""
        estimate = compute_reliability(counts, ks, system=label, **intervals)
        notes = [f"{label}: {note}" if label else note for note in _describe_limits(estimate, tasks)]
        first = next(iter(estimates.values()), estimate)
        if set(first.counts) != set(counts):
            shared = len(set(first.counts) & set(counts))
            notes.append(
                f"{name} and {first.system} were tried on different tasks ({shared} in common): not comparable"
            )
        estimates[name] = replace(
            estimate, system=name, success=outcomes.success, notes=[*outcomes.notes.get(name, ()), *notes]
        )
    return estimates


def _describe_limits(estimate: Reliability, tasks: TrialCounts) -> list[str]:
    """Describe what limits the estimates of a system."""
    min_trials, max_trials = estimate.trials
    notes = []
    if max_trials == 1:
        notes.append("one trial per task; more are needed: add runs of the same name, or use `ragauge run --repeats 3`")
    elif min_trials < max_trials:
        short = [task for task, (n, _) in estimate.counts.items() if n == min_trials]
        others_text = f" and {len(short) - 1} more" if len(short) > 1 else ""
        notes.append(
            f"tasks have {min_trials} to {max_trials} trials, so k is at most {min_trials} (`{short[0]}`{others_text})"
        )
    elif not estimate.flaky:
        notes.append(
            "no task changed its outcome between trials; if the system is deterministic, more trials add no evidence"
        )
    if 1 < min_trials == max_trials and not any(isinstance(outcome, tuple) for outcome in tasks.values()):
        p = cochran_q_test(np.array(list(tasks.values()), np.bool_))
        if p < TRIAL_EFFECT_ALPHA:
            p_text = "p < 0.001" if p < 0.001 else f"p = {format_number(p, 'p')}"
            notes.append(
                f"success rates differ between trials (Cochran's Q, {p_text}): outcomes of tasks are not "
                "independent, and the intervals are too narrow"
            )
    if estimate.n == 1:
        notes.append("1 task only: the intervals are over its trials and do not cover other tasks")
    return notes


def _parse_k_values(k: Any) -> list[int] | None:
    """Convert k to a list of integers, including NumPy's; None if not given."""
    if k is None:
        return None
    try:
        return [index(value) for value in ([k] if isinstance(k, Integral) else k)]
    except TypeError:
        raise BadInput(f"k must be an integer or several, got {k!r}", hint="k=3, or k=[1, 2, 3]") from None
