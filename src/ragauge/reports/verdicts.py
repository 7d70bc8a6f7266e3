"""The verdict in words: which system, by how much, is it real, what does it cost, where does it fail."""

from __future__ import annotations

import math
from typing import NamedTuple

from ragauge.comparisons import Comparison
from ragauge.outcomes import Speed
from ragauge.overviews import Mean, Overview, Stratum
from ragauge.reports.comparisons import CORRECTIONS, TESTS
from ragauge.reports.tables import milliseconds, p_value, shown

FEWEST = 5
"""Queries in a stratum, below which it is not called the weakest."""


class Answer(NamedTuple):
    """A question that a reader has, the answer in a few words, and what to know beside it."""

    question: str
    answer: str
    detail: str
    doubtful: bool = False
    """Whether the reader should hesitate here."""


def verdict(overview: Overview) -> str:
    """One sentence or two: the best system, what it is better than, by how much, how sure, and what that costs."""
    ranked = overview.ranked()
    if not ranked:
        return f"No system has a value of {overview.first}."
    best, row = ranked[0], _against(overview)
    if row is None:
        told = _mean(overview.entries[best].means[overview.first])
        if len(ranked) == 1:
            return f"{best} has {overview.first} {told}{_price(overview, best, None)}."
        return f"{best} has the best {overview.first}, {told}; whether that is more than chance is not known here."
    other = row.baseline if row.system == best else row.system
    gap = f"{overview.first} by {_gap(row)}"
    if not _sure(overview, row):
        role = ", the baseline," if other == overview.baseline else ""
        if best == overview.baseline:
            return f"No system is better than {best}, the baseline: next is {other}, behind on {gap}."
        return f"{best} is ahead of {other}{role} on {gap}: that may be chance{_price(overview, best, other)}."
    if best == overview.baseline:
        return f"No system beats {best}, the baseline; it is ahead of {other}, the next best, on {gap}."
    return f"{best} beats {other} on {gap}{_price(overview, best, other)}."


def answers(overview: Overview) -> list[Answer]:
    """The five questions, in the order in which they are asked."""
    if not overview.ranked():
        return []
    return [_which(overview), _how_much(overview), _real(overview), _cost(overview), _fails(overview)]


def _against(overview: Overview) -> Comparison | None:
    """The comparison that the verdict rests on: the best with the baseline, or with the next best."""
    best = overview.ranked()[0]
    if overview.baseline not in (None, best):
        return overview.difference(best)
    found = overview.rival
    if found is None or overview.compared is None:
        return found
    # The same pair among all those that are corrected for each other, if it is there.
    pair = {found.system, found.baseline}
    same = (row for row in overview.compared.rows if {row.system, row.baseline} == pair)
    return next((row for row in same if row.measure == overview.first), found)


def _sure(overview: Overview, row: Comparison) -> bool:
    return row.p_corrected < 1 - overview.confidence


def _gap(row: Comparison) -> str:
    low, high = sorted(math.copysign(1, row.difference) * end for end in row.ci)
    return f"{abs(row.difference):.4f} [{low:.4f}, {high:.4f}], p {_p(row.p_corrected)}"


def _p(p: float) -> str:
    told = p_value(p)
    return told.replace("<", "< ") if told.startswith("<") else f"= {told}"


def _mean(mean: Mean) -> str:
    known = not math.isnan(mean.low)
    return shown(mean.value) + (f" [{mean.low:.4f}, {mean.high:.4f}]" if known else "")


def _price(overview: Overview, best: str, other: str | None) -> str:
    """What the best one costs, as the end of a sentence."""
    mine = _p95(overview.entries[best].speed)
    if mine is None:
        return ""
    theirs = None if other is None else _p95(overview.entries[other].speed)
    if theirs is None:
        return f"; it takes {milliseconds(mine)} ms at p95"
    more = mine - theirs
    if abs(more) < 0.05 * theirs:
        return f"; it costs nothing more at p95 ({milliseconds(mine)} ms)"
    return f"; it costs {milliseconds(abs(more))} ms {'more' if more > 0 else 'less'} at p95"


def _p95(speed: Speed | None) -> float | None:
    total = None if speed is None else speed.stages.get("total")
    return None if total is None or math.isnan(total.p95) else total.p95


def _which(overview: Overview) -> Answer:
    ranked = overview.ranked()
    best = ranked[0]
    mean = overview.entries[best].means[overview.first]
    detail = f"{overview.first} {_mean(mean)} over {mean.n:,} queries"
    elsewhere = [m for m in overview.measures[1:] if overview.ranked(m)[:1] not in ([], [best])]
    if elsewhere and len(ranked) > 1:
        named = ", ".join(f"{m}: {overview.ranked(m)[0]}" for m in elsewhere[:3])
        return Answer("Which system?", best, f"{detail}; not the best by every measure ({named})", doubtful=True)
    best_by_all = f"; the best by all {len(overview.measures)} measures" if len(overview.measures) > 1 else ""
    return Answer("Which system?", best, detail + (best_by_all if len(ranked) > 1 else ""))


def _how_much(overview: Overview) -> Answer:
    question = "By how much?"
    row = _against(overview)
    if row is None:
        return Answer(question, "-", "there is nothing to compare it with", doubtful=True)
    best = overview.ranked()[0]
    other = row.baseline if row.system == best else row.system
    forward = row if row.system == best else None
    low, high = row.ci if forward else (-row.ci[1], -row.ci[0])
    difference = row.difference if forward else -row.difference
    base = row.means[0] if forward else row.means[1]
    percent = f" ({100 * difference / abs(base):+.1f}%)" if base else ""
    detail = f"[{low:+.4f}, {high:+.4f}] against {other}{percent}"
    rival = overview.rival
    if rival is not None and {rival.system, rival.baseline} != {row.system, row.baseline}:
        sure = "" if _sure(overview, rival) else ", which may be chance"
        detail += f"; {abs(rival.difference):.4f} ahead of {rival.baseline}, the next best{sure}"
    return Answer(question, f"{difference:+.4f}", detail)


def _real(overview: Overview) -> Answer:
    question = "Is it real?"
    row = _against(overview)
    if row is None or overview.compared is None:
        return Answer(question, "not tested", "one system cannot be compared", doubtful=True)
    method = overview.compared.method
    best = overview.ranked()[0]
    won, lost = (row.wins, row.losses) if row.system == best else (row.losses, row.wins)
    correction = CORRECTIONS.get(method.correction, "not corrected")
    detail = (
        f"{TESTS[method.test]}, {correction}; better on {won:,} queries, worse on {lost:,}, "
        f"the same on {row.ties:,}; {row.n:,} queries show a difference of {row.detectable:.3f} or more"
    )
    problems = [] if overview.audit is None else overview.audit.problems
    if problems:
        detail += f"; the audit found {len(problems)} problem{'s' * (len(problems) > 1)}"
    sure = _sure(overview, row)
    told = f"p {_p(row.p_corrected)}"
    return Answer(question, f"Yes, {told}" if sure else f"Not shown, {told}", detail, not sure or bool(problems))


def _cost(overview: Overview) -> Answer:
    question = "What does it cost?"
    best = overview.ranked()[0]
    entry = overview.entries[best]
    mine = _p95(entry.speed)
    if mine is None or entry.speed is None:
        return Answer(question, "not timed", "these runs have no times", doubtful=True)
    total = entry.speed.stages["total"]
    parts = [f"{milliseconds(total.p50)} ms at p50"]
    row = _against(overview)
    other = None if row is None else row.baseline if row.system == best else row.system
    theirs = None if other is None else _p95(overview.entries[other].speed)
    if theirs:
        parts.append(f"{other} takes {milliseconds(theirs)} ms at p95")
    if not math.isnan(entry.speed.qps):
        parts.append(f"{entry.speed.qps:,.{0 if entry.speed.qps >= 10 else 1}f} queries a second")
    built = entry.costs.get("build_seconds")
    if built is not None:
        parts.append(f"built in {built:,.1f} s")
    return Answer(question, f"{milliseconds(mine)} ms at p95", "; ".join(parts))


def _fails(overview: Overview) -> Answer:
    question = "Where does it fail?"
    best = overview.ranked()[0]
    entry = overview.entries[best]
    if not entry.scores:
        return Answer(question, "not known", "only means are known", doubtful=True)
    scores = entry.scores[0]
    values = scores.values[overview.first]
    zero = int((values == 0).sum())
    worst = overview.first in overview.lower_is_better
    told = f"{zero:,} of {len(values):,} queries" if not worst else "see the queries below"
    parts = [] if worst else [f"{overview.first} is 0 there"]
    weakest = _weakest(overview, best)
    if weakest is not None:
        tag, part = weakest
        parts.append(f"weakest where {tag} is {part.value}: {shown(part.means[best].value)} over {part.n:,} queries")
    if entry.failed:
        parts.append(f"{len(entry.failed):,} queries ended in an error")
    if overview.failures:
        parts.append(f"not run at all: {', '.join(overview.failures)}")
    return Answer(question, told, "; ".join(parts), doubtful=bool(entry.failed or overview.failures))


def _weakest(overview: Overview, system: str) -> tuple[str, Stratum] | None:
    """The part of the queries that a system does worst on, if it is more than chance below its mean."""
    mean = overview.entries[system].means[overview.first]
    low = [
        (tag, part)
        for tag, parts in overview.strata.items()
        for part in parts
        if part.n >= FEWEST and system in part.means and part.means[system].high < mean.value
    ]
    if overview.first in overview.lower_is_better or not low:
        return None
    return min(low, key=lambda pair: pair[1].means[system].value)
