"""Judged samples as data for JSON, described by `judged.schema.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.reports.judged_rows import total_estimate
from ragauge.reports.judged_words import figures, headline, reasons, totals, who
from ragauge.reports.overviews_data import plain
from ragauge.reports.tables import without_nan
from ragauge.verdicts import Canary, Estimate, Judged, Step

SCHEMA = "ragauge-judged/1"
"""Schema version; it changes if a field is removed or changes its meaning."""


def as_data(judged: Judged, *, per_sample: bool = False) -> dict[str, Any]:
    """Convert judged samples to JSON data: judge, measures and cost; NaN becomes None.

    `per_sample` includes the scores of each sample.
    """
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "name": judged.name,
        "judge": judged.judge,
        "about": who(judged),
        "verdict": headline(judged),
        "convention": judged.scores.convention,
        "confidence": judged.confidence,
        "samples": len(judged.samples),
        "measures": _measures(judged),
        "stopped": judged.stopped or None,
        "ledger": [step_data(one) for one in judged.ledger],
        "total": step_data(totals(judged.ledger)) if judged.ledger else None,
        "left_out": {
            one.sample: {text: list(listed) for text, listed in one.left_out.items()}
            for one in judged.verdicts.values()
            if one.left_out
        },
        "robustness": robustness_data(judged.robustness),
        "notes": [*dict.fromkeys([*judged.scores.notes, *judged.notes])],
        "identity": judged.identity,
        "circumstances": judged.circumstances,
    }
    if per_sample:
        data["per_sample"] = _per_sample(judged)
    return dict(without_nan(plain(data)))


def _measures(judged: Judged) -> dict[str, Any]:
    why: dict[str, dict[str, int]] = {}
    for one in reasons(judged.scores):
        why.setdefault(one.measure, {})[one.why] = one.many
    return {
        one.measure: {
            "mean": one.mean,
            "n": one.n,
            "unscored": one.unscored,
            "interval": None if math.isnan(one.low) else [one.low, one.high],
            "reasons": why.get(one.measure, {}),
            "lower_is_better": one.lower,
        }
        for one in figures(judged)
    }


def _per_sample(judged: Judged) -> dict[str, Any]:
    scores = judged.scores
    columns = {name: scores.values[name].tolist() for name in scores.measures}
    found: dict[str, Any] = {}
    for i, query in enumerate(scores.queries):
        lacking = {name: scores.unscored[name][query] for name in columns if query in scores.unscored[name]}
        found[query] = {"values": {name: column[i] for name, column in columns.items()}, "unscored": lacking}
    return found


def step_data(step: Step) -> dict[str, Any]:
    """Convert a row of the cost table to JSON data."""
    return step._asdict()


def robustness_data(canaries: Sequence[Canary]) -> dict[str, Any] | None:
    """Convert the results of prompt-injection attempts to JSON data.

    None without attempts.
    """
    if not canaries:
        return None
    held = [one.held for one in canaries]
    return {
        "held": held.count(True),
        "moved": held.count(False),
        "wrong_anyway": held.count(None),
        "cases": [{**one._asdict(), "held": one.held} for one in canaries],
    }


def estimate_data(judge: str, found: Sequence[Estimate], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a cost estimate to JSON data."""
    steps = [one._asdict() for one in found]
    whole = {name: value for name, value in total_estimate(found)._asdict().items() if name != "step"}
    return dict(without_nan(plain({"judge": judge, **facts, "estimate": steps, "total": whole})))
