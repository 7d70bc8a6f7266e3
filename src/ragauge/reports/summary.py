"""Summarise an overview in sentences."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ragauge.comparison.report import CORRECTIONS, TESTS
from ragauge.comparison.results import Overview, Stratum
from ragauge.core.findings import FOLLOWED, LEAKS
from ragauge.core.summaries import Mean, Speed
from ragauge.datasets.queries import MEANINGS
from ragauge.output.numbers import count_noun, milliseconds, p_value, rate, shown
from ragauge.stats.comparisons import Comparison

FEWEST = 5
"""Minimum number of queries for a stratum to be reported as the weakest."""
COUNTS = "num_"
UNJUDGED = 50
"""Minimum percentage of unjudged documents that is mentioned with the summary."""


class Answer(NamedTuple):
    """Question of a reader with a short answer and details."""

    question: str
    answer: str
    detail: str
    tone: str = ""
    """`good` or `doubt` if the answer is one of them, else empty."""
    place: str = ""
    """Section of the page with more details."""


def verdict(overview: Overview) -> str:
    """Summarise the best system, its difference, the significance and the cost.

    If the audit found a leak, the summary starts with it. If runs rank by the leak, it contains nothing else.
    """
    leak = _leak(overview)
    if leak is None:
        return _said(overview)
    why = f"{leak.told}{_others(leak)}"
    if leak.used:
        return f"Not to be believed: {why}."
    return f"To be doubted: {why}, though no run is known to rank by it. {_said(overview)}"


class _Leak(NamedTuple):
    """Worst leak that the audit found."""

    told: str
    used: bool
    """Whether a run ranks by the leak."""
    more: int
    """Number of other leaks."""


def _leak(overview: Overview) -> _Leak | None:
    """Return the worst leak, preferring one that a run ranks by, or None."""
    problems = [] if overview.audit is None else overview.audit.problems
    found = [one for one in problems if one.what in LEAKS]
    if not found:
        return None
    used = [one for one in found if one.what == "leaking score" or FOLLOWED in one.message]
    one = (used or found)[0]
    said = re.split(r":? \(?AUC ", one.message)[0]
    told = f"the scores of {one.subject}{said.removeprefix('its scores')}" if one.what == "leaking score" else said
    return _Leak(told, bool(used), len(found) - 1)


def _others(leak: _Leak) -> str:
    return f" (and {count_noun(leak.more, 'more leak')})" if leak.more else ""


def _said(overview: Overview) -> str:
    ranked = overview.ranked()
    if not ranked:
        return f"No system has a value of {overview.first}."
    if overview.first.startswith(COUNTS):
        return f"{overview.first} is a count, and says nothing about which system is better."
    best, row = ranked[0], _against(overview)
    told = _mean(overview.entries[best].means[overview.first])
    if len(ranked) == 1:
        return f"{best} has {overview.first} {told}{_price(overview, best, None)}."
    if row is None:
        price = _price(overview, best, None)
        return f"{best} has the best {overview.first}, {told}{price}; only means are known, so this may be chance."
    other = row.baseline if row.system == best else row.system
    if row.n and not row.wins and not row.losses:
        price = _price(overview, best, other)
        return f"{best} and {other} have the same {overview.first} on every {overview.asked[0]}{price}."
    if row.n and not row.difference:
        return f"{best} and {other} have the same mean {overview.first}, {told}{_price(overview, best, other)}."
    if math.isnan(row.p_corrected):
        by = f"{abs(row.difference):.4f}"
        return f"{best} is ahead of {other} on {overview.first} by {by}; {_asked(overview, row.n)} cannot be tested."
    gap = f"{overview.first} by {_gap(row)}"
    if row.better != (row.system == best) and row.difference:
        return f"{best} has the best {overview.first}, {told}, but is behind {other} on {gap}, where both have a value."
    if not _sure(overview, row):
        role = ", the baseline," if other == overview.baseline else ""
        if best == overview.baseline:
            return f"No system is better than {best}, the baseline: next is {other}, behind on {gap}."
        few = row.p_corrected < _level(overview)
        doubt = f"but only {_asked(overview, row.wins + row.losses)} differ" if few else "that may be chance"
        return f"{best} is ahead of {other}{role} on {gap}: {doubt}{_price(overview, best, other)}."
    if best == overview.baseline:
        return f"No system beats {best}, the baseline; it is ahead of {other}, the next best, on {gap}."
    return f"{best} beats {other} on {gap}{_price(overview, best, other)}."


def answers(overview: Overview) -> list[Answer]:
    """Build cards for the questions that can be answered, in reading order."""
    ranked = overview.ranked()
    if not ranked or overview.first.startswith(COUNTS):
        return []
    compared = [] if len(ranked) == 1 else [_how_much(overview), _real(overview)]
    cost = [] if overview.judge else [_cost(overview)]  # Judged answers have no timings.
    return [_which(overview), *compared, *cost, _fails(overview)]


def _against(overview: Overview) -> Comparison | None:
    """Return the comparison that the summary is based on.

    It compares the best system with the baseline or with the second best.
    """
    best = overview.ranked()[0]
    if overview.baseline not in (None, best):
        return overview.difference(best)
    found = overview.rival
    if found is None or overview.compared is None:
        return found
    # Prefer the row of the same pair whose p-value is corrected for all comparisons.
    pair = {found.system, found.baseline}
    same = (row for row in overview.compared.rows if {row.system, row.baseline} == pair)
    return next((row for row in same if row.measure == overview.first), found)


def _sure(overview: Overview, row: Comparison) -> bool:
    """Return whether a difference is significant.

    A sign test on the differing queries must be able to reach the level too.
    """
    level = _level(overview)
    return row.p_corrected < level and 2.0 ** (1 - (row.wins + row.losses)) < level


def _level(overview: Overview) -> float:
    return round(1 - overview.confidence, 12)


def _gap(row: Comparison) -> str:
    low, high = sorted(round(math.copysign(1, row.difference) * end, 4) + 0.0 for end in row.ci)
    return f"{abs(row.difference):.4f} [{low:.4f}, {high:.4f}], p {_p(row.p_corrected)}"


def _p(p: float) -> str:
    told = p_value(p)
    return told.replace("<", "< ") if told.startswith("<") else f"= {told}"


def _mean(mean: Mean) -> str:
    known = not math.isnan(mean.low)
    return shown(mean.value) + (f" [{mean.low:.4f}, {mean.high:.4f}]" if known else "")


def _asked(overview: Overview, n: int) -> str:
    return count_noun(n, *overview.asked)


def _price(overview: Overview, best: str, other: str | None) -> str:
    """Describe the latency of the best system as the end of a sentence."""
    mine = _p95(overview.entries[best].speed)
    if mine is None:
        return ""
    theirs = None if other is None else _p95(overview.entries[other].speed)
    if not theirs:
        return f"; it takes {milliseconds(mine)} ms at p95"
    more = mine - theirs
    if abs(more) < 0.05 * theirs:
        return f"; it costs nothing more at p95 ({milliseconds(mine)} ms)"
    times = f" ({_times(mine / theirs)} as long)" if more > theirs else ""
    return f"; it costs {milliseconds(abs(more))} ms {'more' if more > 0 else 'less'} at p95{times}"


def _times(ratio: float) -> str:
    return f"{ratio:,.{0 if ratio >= 10 else 1}f} times"


def _p95(speed: Speed | None) -> float | None:
    total = None if speed is None else speed.stages.get("total")
    return None if total is None or math.isnan(total.p95) else total.p95


def _average(speed: Speed | None) -> float | None:
    total = None if speed is None else speed.stages.get("total")
    return None if total is None or math.isnan(total.mean) else total.mean


def _which(overview: Overview) -> Answer:
    question = "Which system?"
    ranked = overview.ranked()
    best = ranked[0]
    mean = overview.entries[best].means[overview.first]
    detail = f"{overview.first} {_mean(mean)}" + (f" over {_asked(overview, mean.n)}" if mean.n else "")
    if len(ranked) == 1:
        return Answer("How good is it?", shown(mean.value), f"{detail}, for {best}", "", "systems")
    level = [name for name in ranked if overview.entries[name].means[overview.first].value == mean.value]
    if len(level) > 1:
        return Answer(question, " = ".join(level[:3]), f"{detail}, all of them", "doubt", "systems")
    elsewhere = [m for m in overview.measures[1:] if best not in _best_by(overview, m)]
    if elsewhere:
        named = ", ".join(f"{m}: {_best_by(overview, m)[0]}" for m in elsewhere[:3])
        return Answer(question, best, f"{detail}; others are best by other measures ({named})", "", "systems")
    best_by_all = f"; none is better by any of {len(overview.measures)} measures" if len(overview.measures) > 1 else ""
    return Answer(question, best, detail + best_by_all, "", "systems")


def _best_by(overview: Overview, measure: str) -> list[str]:
    """Return the best systems by a measure, with ties.

    Returns all systems if none has a value.
    """
    ranked = overview.ranked(measure)
    if not ranked:
        return overview.systems
    top = overview.entries[ranked[0]].means[measure].value
    return [name for name in ranked if overview.entries[name].means[measure].value == top]


def _how_much(overview: Overview) -> Answer:
    question = "By how much?"
    row, rival = _against(overview), overview.rival
    best, second = overview.ranked()[:2]
    if row is None:
        gap = overview.entries[best].means[overview.first].value - overview.entries[second].means[overview.first].value
        return Answer(question, f"{gap:+.4f}", f"against {second}, the next best; only means are known", "", "systems")
    turned = -1.0 if row.system != best else 1.0
    other, base = (row.baseline, row.means[0]) if row.system == best else (row.system, row.means[1])
    low, high = sorted(round(turned * end, 4) + 0.0 for end in row.ci)
    difference = turned * row.difference + 0.0
    percent = f" ({100 * difference / abs(base):+.1f}%)" if base else ""
    detail = f"against {other}{percent}" if math.isnan(low) else f"[{low:+.4f}, {high:+.4f}] against {other}{percent}"
    if rival is not None and {rival.system, rival.baseline} != {row.system, row.baseline}:
        low, high = rival.ci
        detail += (
            f"; {rival.difference:+.4f} [{low:+.4f}, {high:+.4f}] against {rival.baseline}, the next best "
            f"(p {_p(rival.p_t)}, not corrected)"
        )
    return Answer(question, f"{difference:+.4f}", detail, "", "differences")


def _real(overview: Overview) -> Answer:
    question = "Is it real?"
    row = _against(overview)
    if row is None or overview.compared is None:
        return Answer(question, "Not tested", "only means are known", "doubt")
    method = overview.compared.method
    best = overview.ranked()[0]
    if math.isnan(row.p_corrected):
        return Answer(question, "Not tested", f"{_asked(overview, row.n)} cannot be tested", "doubt")
    won, lost = (row.wins, row.losses) if row.system == best else (row.losses, row.wins)
    parts = [
        f"{TESTS[method.test]}, {CORRECTIONS.get(method.correction, 'not corrected')}",
        f"{_asked(overview, won)} better, {lost:,} worse, {row.ties:,} the same",
    ]
    bounded = max(abs(mean) for mean in row.means) <= 1
    if bounded and row.detectable > 1:
        parts.append(f"{_asked(overview, row.n)} are too few to show any difference")
    elif not math.isnan(row.detectable) and row.seeds is None:  # With seeds, the detectable difference would be larger.
        parts.append(f"{row.n:,} can show one of {row.detectable:.3f} ({method.power:.0%} power)")
    doubts = _doubts(overview, best)
    sure, leak = _sure(overview, row), _leak(overview)
    told = f"p {_p(row.p_corrected)}"
    if not sure and row.p_corrected < _level(overview):
        parts.append("too few differ to be sure")
    if leak is not None:
        answer = "No, answers leak" if leak.used else "To be doubted"
        return Answer(
            question, answer, "; ".join([f"{leak.told}{_others(leak)}", told, *parts, *doubts]), "doubt", "findings"
        )
    if sure and overview.audit is None and not overview.judge:
        parts.append("nobody has audited it")
    answer = f"Yes, {told}" if sure else f"Not shown, {told}"
    return Answer(
        question, answer, "; ".join(parts + doubts), "good" if sure and not doubts else "doubt", "differences"
    )


def _doubts(overview: Overview, best: str) -> list[str]:
    """Return audit findings that weaken the summary."""
    if overview.audit is None:
        return []
    problems = len(overview.audit.problems)
    found = [f"the audit found {count_noun(problems, 'problem')}"] if problems else []
    for one in overview.audit.findings:
        share = re.match(r"(\d+)% of the first \d+ documents are unjudged", one.message)
        if one.what == "unjudged" and one.subject == best and share is not None and int(share[1]) >= UNJUDGED:
            found.append(share[0])
    return found


def _cost(overview: Overview) -> Answer:
    question = "What does it cost?"
    best = overview.ranked()[0]
    entry = overview.entries[best]
    mine = _p95(entry.speed)
    average = _average(entry.speed)
    if mine is None and average is not None:
        return Answer(question, f"{milliseconds(average)} ms on average", "percentiles are not known", "", "latency")
    if mine is None or entry.speed is None:
        return Answer(question, "Not timed", "no times are known")
    parts = []
    row, rival = _against(overview), overview.rival
    others = [one for pair in (row, rival) if pair is not None for one in (pair.baseline, pair.system) if one != best]
    for other in dict.fromkeys(others):
        theirs = _p95(overview.entries[other].speed)
        if theirs:
            parts.append(f"{_times(mine / theirs)} {other} ({milliseconds(theirs)} ms)")
    parts.append(f"{milliseconds(entry.speed.stages['total'].p50)} ms at p50")
    if not math.isnan(entry.speed.throughput):
        parts.append(f"throughput {rate(entry.speed.throughput)} queries/s")
    built = entry.costs.get("build_seconds")
    if entry.is_build_cached:
        parts.append("built with cached vectors")
    elif built is not None:
        parts.append(f"built in {built:,.1f} s")
    return Answer(question, f"{milliseconds(mine)} ms at p95", "; ".join(parts), "", "latency")


def _fails(overview: Overview) -> Answer:
    question = "Where does it fail?"
    best = overview.ranked()[0]
    entry = overview.entries[best]
    if not entry.scores:
        return Answer(question, "Not known", "only means are known")
    parts = []
    answer = f"See the {overview.asked[1]}"
    if overview.first not in overview.lower_is_better:
        values = entry.values(overview.first)
        zero = int((values == 0).sum())
        answer = f"{zero:,} of {_asked(overview, len(values))}" if zero else f"No {overview.asked[0]} scores 0"
        base = overview.entries.get(overview.baseline or "")
        theirs = base.values(overview.first) if base is not None and base.scores else None
        beside = (
            f" ({overview.baseline}: {int((theirs == 0).sum()):,})" if theirs is not None and base is not entry else ""
        )
        parts += [f"{overview.first} is 0 there{beside}"] if zero else []
    weakest = _weakest(overview, best)
    if weakest is not None:
        tag, part = weakest
        kind = f"{tag} ({MEANINGS[tag]})" if tag in MEANINGS else tag
        parts.append(
            f"weakest where {kind} is {part.value}: {shown(part.means[best].value)} over {_asked(overview, part.n)}"
        )
    if entry.failed:
        parts.append(f"{_asked(overview, len(entry.failed))} ended in an error")
    if overview.failures:
        parts.append(f"not run at all: {', '.join(overview.failures)}")
    tone = "doubt" if entry.failed or overview.failures else ""
    return Answer(question, answer, "; ".join(parts), tone, "queries")


def _weakest(overview: Overview, system: str) -> tuple[str, Stratum] | None:
    """Return the stratum with a system's lowest mean, or None.

    The interval in the stratum must be below the overall mean.
    """
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
