"""Queries that were asked several times: a query's value is the mean of what it got each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ragauge.records import ByMeasure, Scores
from ragauge.rules.figures import aggregate_of


def averaged(trials: Sequence[Scores]) -> Scores:
    """The scores of all trials as those of one run.

    A query that has no value in one of them has none, and one that is not in all of them is missing.
    """
    first = trials[0]
    values = {name: np.mean([one.values[name] for one in trials], axis=0) for name in first.measures}
    means = {}
    for name, column in values.items():
        how, scored = aggregate_of(name), ~np.isnan(column)
        if how is None or not scored.any():  # a figure of the whole run, and no sum of its queries
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
