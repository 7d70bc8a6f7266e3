"""Note on tied scores that `evaluate`, `compare` and `report` print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragauge.core.records import Scores
from ragauge.measures.conventions import parse_convention
from ragauge.measures.names import parse_measure_names
from ragauge.measures.scoring import score_judged_ranks
from ragauge.output.numbers import format_score


class _TieSpan(NamedTuple):
    """Means of a measure in the worst and in the best order of tied scores."""

    run: str
    measure: str
    low: float
    high: float
    is_single: bool
    """Whether some scores are equal only in single precision."""


TrialScores = Scores | Sequence[Scores] | Mapping[str, Scores]
"""Scores of a system, or of each of its trials."""


def describe_ties(systems: Iterable[TrialScores]) -> list[str]:
    """Return a note if the order of tied scores changes a printed digit of a mean."""
    trials = [trial for system in systems for trial in _list_trials(system)]
    spans = [
        span for trial in trials for span in _tie_spans(trial) if format_score(span.low) != format_score(span.high)
    ]
    if not spans:
        return []
    widest = max(spans, key=lambda span: span.high - span.low)
    precision = " in single precision" if any(span.is_single for span in spans) else ""
    runs = dict.fromkeys(span.run for span in spans)
    runs_text = f" ({len(runs)} runs have such ties)" if len(runs) > 1 else ""
    return [
        f"ties: {widest.measure} of {widest.run} is between {format_score(widest.low)} and "
        f"{format_score(widest.high)}, depending on "
        f"the order of documents with equal scores{precision}{runs_text}; {_describe_trec_order(trials, spans)}, and "
        "`ragauge audit` shows every measure"
    ]


def _describe_trec_order(trials: Sequence[Scores], spans: Sequence[_TieSpan]) -> str:
    """Return which convention orders ties as trec_eval does, whose version 9 reads scores in single precision."""
    rules = parse_convention(trials[0].convention)
    if rules is None or rules.ties != "trec":
        return "`-C trec9` orders them as trec_eval"
    if any(span.is_single for span in spans):
        return "`-C width=float32` orders them as trec_eval 9"
    return "they are ordered by id, as by trec_eval"


def _list_trials(system: TrialScores) -> list[Scores]:
    return [system] if isinstance(system, Scores) else list(system.values() if isinstance(system, Mapping) else system)


def _tie_spans(scores: Scores) -> list[_TieSpan]:
    judged, rules = scores.judged, parse_convention(scores.convention)
    if judged is None or rules is None or judged.tie_span is None:
        return []
    if (
        judged.depth is not None and rules.width == "double"
    ):  # ragauge made the run; its scores keep the order of return
        return []
    first, last = judged.tie_span
    if not (last > first).any():
        return []
    from ragauge.measures.tie_orders import has_exact_bounds, order_ties  # only runs with ties need it

    measures = [
        measure for name in scores.measures for measure in parse_measure_names([name]) if has_exact_bounds(measure)
    ]
    undecided = replace(judged, tie_first=first, tie_last=last, _relevant={})
    worst, best = (
        score_judged_ranks(order_ties(undecided, best=best), measures, rules).means for best in (False, True)
    )
    return [_TieSpan(scores.run, name, worst[name], best[name], judged.has_single_ties) for name in map(str, measures)]
