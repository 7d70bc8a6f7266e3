"""Average the scores of repeated trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ragauge.records import ByMeasure, Scores
from ragauge.rules.figures import aggregate_of


def averaged(trials: Sequence[Scores]) -> Scores:
    """Average the scores of all trials into those of one run.

    A query without a value in any one trial has none. A query counts as returned only if it is in all trials.
    """
    first = trials[0]
    values = {name: np.mean([one.values[name] for one in trials], axis=0) for name in first.measures}
    means = {}
    for name, column in values.items():
        how, scored = aggregate_of(name), ~np.isnan(column)
        if how is None or not scored.any():  # the measure is not an aggregate of per-query values
            means[name] = float(np.mean([one.means[name] for one in trials]))
        else:
            means[name] = float(how(column[scored]))
    reasons = {name: {q: why for one in reversed(trials) for q, why in one.unscored[name].items()} for name in values}
    every = [one.judged for one in trials]
    judged = replace(
        first.judged,
        answered=np.all([one.answered for one in every], axis=0),
        retrieved=np.max([one.retrieved for one in every], axis=0),
    )
    note = f"the rankings of {first.run} differ between {len(trials)} repeats: a query counts with its mean over them"
    canonical = first.values._canonical
    return replace(
        first,
        values=ByMeasure(values, canonical),
        means=ByMeasure(means, canonical),
        unscored=ByMeasure(reasons, canonical),
        notes=[*dict.fromkeys(text for one in trials for text in one.notes), note],
        judged=judged,
    )
