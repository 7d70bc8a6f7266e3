"""Note on tied scores that `evaluate`, `compare` and `report` print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragauge.audits.tie_orders import arranged, is_ordered
from ragauge.core.records import Scores
from ragauge.experiments.history.rescoring import rules_of
from ragauge.measures.names import parse_all
from ragauge.measures.scoring import score
from ragauge.output.numbers import shown


class _Span(NamedTuple):
    """Means of a measure in the worst and in the best order of tied scores."""

    run: str
    measure: str
    low: float
    high: float


Trials = Scores | Sequence[Scores] | Mapping[str, Scores]
"""Scores of a system, or of each of its trials."""


def describe_ties(systems: Iterable[Trials]) -> list[str]:
    """Return a note if the order of tied scores changes a printed digit of a mean."""
    trials = [one for system in systems for one in _list_trials(system)]
    spans = [span for one in trials for span in _spans(one) if shown(span.low) != shown(span.high)]
    if not spans:
        return []
    widest = max(spans, key=lambda span: span.high - span.low)
    runs = dict.fromkeys(span.run for span in spans)
    others = f" ({len(runs)} runs have such ties)" if len(runs) > 1 else ""
    return [
        f"ties: {widest.measure} of {widest.run} is between {shown(widest.low)} and {shown(widest.high)}, depending on "
        f"the order of documents with equal scores{others}; `ragauge audit` shows every measure"
    ]


def _list_trials(system: Trials) -> list[Scores]:
    return [system] if isinstance(system, Scores) else list(system.values() if isinstance(system, Mapping) else system)


def _spans(scores: Scores) -> list[_Span]:
    judged, rules = scores.judged, rules_of(scores.convention)
    if judged is None or rules is None or judged.tie_span is None:
        return []
    first, last = judged.tie_span
    if not (last > first).any():
        return []
    measures = [one for name in scores.measures for one in parse_all([name]) if is_ordered(one)]
    undecided = replace(judged, tie_first=first, tie_last=last, _relevant={})
    worst, best = (score(arranged(undecided, best=best), measures, rules).means for best in (False, True))
    return [_Span(scores.run, name, worst[name], best[name]) for name in map(str, measures)]
