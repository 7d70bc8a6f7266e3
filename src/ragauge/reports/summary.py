"""Summarise an overview in sentences."""

from __future__ import annotations

import math
from typing import NamedTuple

from ragauge.comparison.report import CORRECTION_NAMES, TEST_NAMES
from ragauge.comparison.results import Overview, StratumMeans
from ragauge.core.findings import LEAK_FINDINGS
from ragauge.core.summaries import Mean, Speed
from ragauge.datasets.queries import TAG_MEANINGS
from ragauge.output.numbers import MIN_SHOWN_P, format_number, format_score, pluralise
from ragauge.output.report import Card
from ragauge.output.tables import DOUBT_MARK
from ragauge.reports.overview_tables import find_measure_style
from ragauge.stats.comparisons import Comparison

MIN_STRATUM_QUERIES = 5
"""Minimum number of queries for a stratum to be reported as the weakest."""
MIN_UNJUDGED_SHARE = 0.5
"""Minimum percentage of unjudged documents that is mentioned with the summary."""


def summarise_overview(overview: Overview) -> str:
    """Summarise the best system, its difference, the significance and the cost.

    If the audit found a leak, the summary starts with it. If runs rank by the leak, it contains nothing else.
    """
    leak = _find_worst_leak(overview)
    if leak is None:
        return _summarise_scores(overview)
    why = f"{leak.text}{_other_leaks_text(leak)}"
    if leak.is_used:
        return f"Unreliable: {why}."
    return f"Doubtful: {why}, though no run is known to rank by it. {_summarise_scores(overview)}"


class _LeakSummary(NamedTuple):
    """Worst leak that the audit found."""

    text: str
    is_used: bool
    """Whether a run ranks by the leak."""
    n_other_leaks: int
    """Number of other leaks."""


def _find_worst_leak(overview: Overview) -> _LeakSummary | None:
    """Return the worst leak, preferring one that a run ranks by, or None."""
    problems = [] if overview.audit is None else overview.audit.problems
    leaks = [finding for finding in problems if finding.check in LEAK_FINDINGS]
    if not leaks:
        return None
    used = [finding for finding in leaks if finding.data["ranked_by"]]
    return _LeakSummary((used or leaks)[0].data["leak"], bool(used), len(leaks) - 1)


def _other_leaks_text(leak: _LeakSummary) -> str:
    return f" (and {pluralise(leak.n_other_leaks, 'more leak')})" if leak.n_other_leaks else ""


def _summarise_scores(overview: Overview) -> str:
    ranked = overview.ranked()
    if not ranked:
        return f"No system has a value of {overview.first}."
    if find_measure_style(overview.first) == "count":
        return f"{overview.first} is a count and does not show which system is better."
    best, row = ranked[0], _deciding_comparison(overview)
    score = _format_mean_interval(overview.entries[best].means[overview.first])
    if len(ranked) == 1:
        return f"{best} has {overview.first} {score}{_latency_clause(overview, best, None)}."
    if row is None:
        latency = _latency_clause(overview, best, None)
        if ranked[1] in _find_best_systems(overview, overview.first):
            return f"{best} and {ranked[1]} have the same {overview.first}, {score}{latency}; only means are known."
        return f"{best} has the best {overview.first}, {score}{latency}; only means are known, nothing is tested."
    rival = row.baseline if row.system == best else row.system
    if row.n and not row.wins and not row.losses:
        latency = _latency_clause(overview, best, rival)
        return f"{best} and {rival} have the same {overview.first} on every {overview.nouns[0]}{latency}."
    if row.n and _is_equal(*row.means):
        return (
            f"{best} and {rival} have the same mean {overview.first}, {score}{_latency_clause(overview, best, rival)}."
        )
    if math.isnan(row.p_corrected):
        margin = f"{abs(row.difference):.4f}"
        return (
            f"{best} is ahead of {rival} on {overview.first} by {margin}; {_format_query_number(overview, row.n)} "
            f"cannot be tested."
        )
    gap = f"{overview.first} by {_format_difference(row)}"
    if row.better != (row.system == best) and row.difference:
        return (
            f"{best} has the best {overview.first}, {score}, but is behind {rival} on {gap}, where both have a value."
        )
    if not _is_significant(overview, row):
        role = ", the baseline," if rival == overview.baseline else ""
        if best == overview.baseline:
            return f"No system is better than {best}, the baseline: next is {rival}, behind on {gap}."
        has_few_differing = row.p_corrected < _significance_level(overview)
        differing = (
            f", since only {_format_query_number(overview, row.wins + row.losses)} differ" if has_few_differing else ""
        )
        clause = _latency_clause(overview, best, rival)
        return f"{best} is ahead of {rival}{role} on {gap}, which is not significant{differing}{clause}."
    if best == overview.baseline:
        return f"No system beats {best}, the baseline; it is ahead of {rival}, the next best, on {gap}."
    return f"{best} beats {rival} on {gap}{_latency_clause(overview, best, rival)}."


def build_cards(overview: Overview) -> list[Card]:
    """Build cards for the questions that can be answered, in reading order."""
    ranked = overview.ranked()
    if not ranked or find_measure_style(overview.first) == "count":
        return []
    compared = [] if len(ranked) == 1 else [_difference_card(overview), _significance_card(overview)]
    cost = [] if overview.judge else [_cost_card(overview)]  # Judged answers have no timings.
    return [_best_system_card(overview), *compared, *cost, _failures_card(overview)]


def _deciding_comparison(overview: Overview) -> Comparison | None:
    """Return the comparison that the summary is based on.

    It compares the best system with the baseline or with the second best.
    """
    best = overview.ranked()[0]
    if overview.baseline not in (None, best):
        return overview.difference(best)
    comparison = overview.rival
    if comparison is None or overview.compared is None:
        return comparison
    # Prefer the row of the same pair whose p-value is corrected for all comparisons.
    pair = {comparison.system, comparison.baseline}
    same = (row for row in overview.compared.rows if {row.system, row.baseline} == pair)
    return next((row for row in same if row.measure == overview.first), comparison)


def _is_significant(overview: Overview, row: Comparison) -> bool:
    """Return whether a difference is significant.

    A sign test on the differing queries must be able to reach the level too.
    """
    level = _significance_level(overview)
    return row.p_corrected < level and 2.0 ** (1 - (row.wins + row.losses)) < level


def _significance_level(overview: Overview) -> float:
    return round(1 - overview.confidence, 12)


def _format_difference(row: Comparison) -> str:
    low, high = sorted(round(math.copysign(1, row.difference) * end, 4) + 0.0 for end in row.ci)
    return f"{abs(row.difference):.4f} [{low:.4f}, {high:.4f}], p {_format_p(row.p_corrected)}"


def _format_p(p: float) -> str:
    return f"= {format_number(p, 'p')}" if p >= MIN_SHOWN_P else f"< {MIN_SHOWN_P:g}"


def _format_mean_interval(mean: Mean) -> str:
    has_interval = not math.isnan(mean.low)
    return format_score(mean.value) + (f" [{mean.low:.4f}, {mean.high:.4f}]" if has_interval else "")


def _format_query_number(overview: Overview, n: int) -> str:
    return pluralise(n, *overview.nouns)


def _latency_clause(overview: Overview, best: str, rival: str | None) -> str:
    """Describe the latency of the best system as the end of a sentence."""
    best_ms = _total_p95_ms(overview.entries[best].speed)
    if best_ms is None:
        return ""
    rival_ms = None if rival is None else _total_p95_ms(overview.entries[rival].speed)
    if not rival_ms:
        return f"; its p95 latency is {_format_latency(overview, best_ms, best)}"
    extra_ms = best_ms - rival_ms
    if abs(extra_ms) < 0.05 * rival_ms:
        return f"; it has the same p95 latency ({_format_latency(overview, best_ms, best, str(rival))})"
    extra = _format_latency(overview, abs(extra_ms), best, str(rival))
    ratio = f" ({_format_ratio(best_ms / rival_ms)} as long)" if extra_ms > rival_ms else ""
    return f"; its p95 latency is {extra} {'higher' if extra_ms > 0 else 'lower'}{ratio}"


def _format_latency(overview: Overview, ms: float, *systems: str) -> str:
    """Format a latency or a difference of latencies, marked if the times of one of the systems are unreliable."""
    mark = DOUBT_MARK if any(overview.entries[name].doubts for name in systems) else ""
    return f"{format_number(ms, 'ms')}{mark} ms"


def _compare_latency(ms: float, other_ms: float) -> str:
    """Return how a latency compares with another one, as the start of a phrase that ends with the other system.

    >>> _compare_latency(40, 2), _compare_latency(2, 40), _compare_latency(2, 2.01)
    ('20 times slower than', '20 times faster than', 'as fast as')
    """
    if abs(ms - other_ms) < 0.05 * other_ms:
        return "as fast as"
    ratio = f"{_format_ratio(max(ms, other_ms) / min(ms, other_ms))} " if ms else ""
    return f"{ratio}{'slower' if ms > other_ms else 'faster'} than"


def _format_ratio(ratio: float) -> str:
    return f"{ratio:,.{0 if ratio >= 10 else 1}f} times"


def _total_p95_ms(speed: Speed | None) -> float | None:
    total = None if speed is None else speed.stages.get("total")
    return None if total is None or math.isnan(total.p95) else total.p95


def _total_mean_ms(speed: Speed | None) -> float | None:
    total = None if speed is None else speed.stages.get("total")
    return None if total is None or math.isnan(total.mean) else total.mean


def _best_system_card(overview: Overview) -> Card:
    question = "Which system?"
    ranked = overview.ranked()
    best = ranked[0]
    mean = overview.entries[best].means[overview.first]
    detail = f"{overview.first} {_format_mean_interval(mean)}" + (
        f" over {_format_query_number(overview, mean.n)}" if mean.n else ""
    )
    if len(ranked) == 1:
        return Card("How good is it?", format_score(mean.value), [f"{detail}, for {best}"], "", "systems")
    best_systems = _find_best_systems(overview, overview.first)
    if len(best_systems) > 1:
        return Card(question, " = ".join(best_systems[:3]), [f"each {detail}"], "doubtful", "systems")
    other_measures = [m for m in overview.measures[1:] if best not in _find_best_systems(overview, m)]
    if other_measures:
        named = ", ".join(f"{m}: {_find_best_systems(overview, m)[0]}" for m in other_measures[:3])
        return Card(question, best, [detail, f"best by other measures: {named}"], "", "systems")
    best_by_all = [f"best by all {len(overview.measures)} measures"] if len(overview.measures) > 1 else []
    return Card(question, best, [detail, *best_by_all], "", "systems")


def _find_best_systems(overview: Overview, measure: str) -> list[str]:
    """Return the best systems by a measure, with ties.

    Returns all systems if none has a value.
    """
    ranked = overview.ranked(measure)
    if not ranked:
        return overview.systems
    top = overview.entries[ranked[0]].means[measure].value
    return [name for name in ranked if _is_equal(overview.entries[name].means[measure].value, top)]


def _is_equal(first: float, second: float) -> bool:
    """Return whether two means are equal except for rounding."""
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _difference_card(overview: Overview) -> Card:
    question = "By how much?"
    row, rival = _deciding_comparison(overview), overview.rival
    best, second = overview.ranked()[:2]
    if row is None:
        best_mean, second_mean = (overview.entries[name].means[overview.first].value for name in (best, second))
        gap = "Equal" if _is_equal(best_mean, second_mean) else f"{best_mean - second_mean:+.4f}"
        return Card(question, gap, [f"compared with {second}, the next best", "only means are known"], "", "systems")
    sign = -1.0 if row.system != best else 1.0
    opponent, base = (row.baseline, row.means[0]) if row.system == best else (row.system, row.means[1])
    low, high = sorted(round(sign * end, 4) + 0.0 for end in row.ci)
    difference = sign * row.difference + 0.0
    equal = _is_equal(*row.means)
    percent = f" ({100 * difference / abs(base):+.1f}%)" if base and not equal else ""
    interval = "" if math.isnan(low) else f"[{low:+.4f}, {high:+.4f}] "
    details = [f"{interval}compared with {opponent}{percent}"]
    if rival is not None and {rival.system, rival.baseline} != {row.system, row.baseline}:
        low, high = rival.ci
        details.append(
            f"{rival.difference:+.4f} [{low:+.4f}, {high:+.4f}] compared with {rival.baseline}, the next best "
            f"(p {_format_p(rival.p_t)}, not corrected)"
        )
    return Card(question, "Equal" if equal else f"{difference:+.4f}", details, "", "differences")


def _significance_card(overview: Overview) -> Card:
    question = "Is it significant?"
    row = _deciding_comparison(overview)
    if row is None or overview.compared is None:
        return Card(question, "Not tested", ["only means are known"], "doubtful")
    method = overview.compared.method
    best = overview.ranked()[0]
    if math.isnan(row.p_corrected):
        return Card(question, "Not tested", [f"{_format_query_number(overview, row.n)} cannot be tested"], "doubtful")
    won, lost = (row.wins, row.losses) if row.system == best else (row.losses, row.wins)
    parts = [
        f"{TEST_NAMES[method.test]}, {CORRECTION_NAMES.get(method.correction, 'not corrected')}",
        f"{_format_query_number(overview, won)} better, {lost:,} worse, {row.ties:,} the same",
    ]
    is_bounded = max(abs(mean) for mean in row.means) <= 1
    if is_bounded and row.detectable > 1:
        parts.append(f"{_format_query_number(overview, row.n)} are too few to detect any difference")
    elif not math.isnan(row.detectable) and row.seeds is None:  # With seeds, the detectable difference would be larger.
        queries = _format_query_number(overview, row.n)
        parts.append(f"{queries} detect a difference of {row.detectable:.3f} ({method.power:.0%} power)")
    doubts = _audit_doubts(overview, best)
    is_significant, leak = _is_significant(overview, row), _find_worst_leak(overview)
    p_text = f"p {_format_p(row.p_corrected)}"
    is_uncertain = not is_significant and row.p_corrected < _significance_level(overview)
    if is_uncertain:
        parts.append(f"only {_format_query_number(overview, row.wins + row.losses)} differ, too few for a sign test")
    if leak is not None:
        answer = "No, answers leak" if leak.is_used else "Doubtful"
        details = [f"{leak.text}{_other_leaks_text(leak)}", p_text, *parts, *doubts]
        return Card(question, answer, details, "doubtful", "findings")
    if is_significant and overview.audit is None and not overview.judge:
        parts.append("not audited")
    answer = f"{'Yes' if is_significant else 'Uncertain' if is_uncertain else 'No'}, {p_text}"
    return Card(
        question, answer, parts + doubts, "good" if is_significant and not doubts else "doubtful", "differences"
    )


def _audit_doubts(overview: Overview, best: str) -> list[str]:
    """Return audit findings that weaken the summary."""
    if overview.audit is None:
        return []
    problems = len(overview.audit.problems)
    doubts = [f"the audit found {pluralise(problems, 'problem')}"] if problems else []
    for finding in overview.audit.findings:
        # Judgments that list relevant documents only are not a problem: the share says nothing about the scores.
        is_unjudged = finding.check == "unjudged" and finding.subject == best and finding.problem
        if is_unjudged and finding.data["unjudged"] >= MIN_UNJUDGED_SHARE:
            doubts.append(f"{finding.data['unjudged']:.0%} of the top {finding.data['top']} documents are unjudged")
    return doubts


def _cost_card(overview: Overview) -> Card:
    question = "What does it cost?"
    best = overview.ranked()[0]
    entry = overview.entries[best]
    best_ms = _total_p95_ms(entry.speed)
    average = _total_mean_ms(entry.speed)
    if best_ms is None and average is not None:
        return Card(
            question, f"{_format_latency(overview, average, best)} on average", ["percentiles unknown"], "", "latency"
        )
    if best_ms is None or entry.speed is None:
        return Card(question, "Not timed")
    parts = []
    row, rival = _deciding_comparison(overview), overview.rival
    other_systems = [
        system for pair in (row, rival) if pair is not None for system in (pair.baseline, pair.system) if system != best
    ]
    for other_system in dict.fromkeys(other_systems):
        other_ms = _total_p95_ms(overview.entries[other_system].speed)
        if other_ms:
            latency = _format_latency(overview, other_ms, other_system)
            parts.append(f"{_compare_latency(best_ms, other_ms)} {other_system} ({latency})")
    parts.append(f"{_format_latency(overview, entry.speed.stages['total'].p50, best)} at p50")
    if not math.isnan(entry.speed.throughput):
        parts.append(f"throughput {format_number(entry.speed.throughput, 'qps')} queries/s")
    built = entry.costs.get("build_seconds")
    if entry.is_build_cached:
        parts.append("built with cached vectors")
    elif built is not None:
        parts.append(f"built in {built:,.1f} s")
    return Card(question, f"{_format_latency(overview, best_ms, best)} at p95", parts, "", "latency")


def _failures_card(overview: Overview) -> Card:
    question = "Where does it fail?"
    best = overview.ranked()[0]
    entry = overview.entries[best]
    if not entry.scores:
        return Card(question, "Unknown", ["only means are known"])
    parts = []
    answer = f"See the {overview.nouns[1]}"
    if overview.first not in overview.lower_is_better:
        values = entry.values(overview.first)
        zero = int((values == 0).sum())
        answer = (
            f"{zero:,} of {_format_query_number(overview, len(values))}" if zero else f"No {overview.nouns[0]} scores 0"
        )
        base = overview.entries.get(overview.baseline or "")
        baseline_values = base.values(overview.first) if base is not None and base.scores else None
        of_baseline = (
            f" ({overview.baseline}: {int((baseline_values == 0).sum()):,})"
            if baseline_values is not None and base is not entry
            else ""
        )
        parts += [f"{overview.first} is 0{of_baseline}"] if zero else []
    weakest = _find_weakest_stratum(overview, best)
    if weakest is not None:
        tag, part = weakest
        kind = f"{tag} ({TAG_MEANINGS[tag]})" if tag in TAG_MEANINGS else tag
        parts.append(
            f"weakest where {kind} is {part.value}: {format_score(part.means[best].value)} over "
            f"{_format_query_number(overview, part.n)}"
        )
    if entry.failed:
        parts.append(f"{_format_query_number(overview, len(entry.failed))} ended in an error")
    if overview.failures:
        parts.append(f"not run at all: {', '.join(overview.failures)}")
    is_doubtful = bool(entry.failed or overview.failures)
    return Card(question, answer, parts, "doubtful" if is_doubtful else "", "queries?show=zero")


def _find_weakest_stratum(overview: Overview, system: str) -> tuple[str, StratumMeans] | None:
    """Return the stratum with a system's lowest mean, or None.

    The interval in the stratum must be below the overall mean.
    """
    mean = overview.entries[system].means[overview.first]
    low = [
        (tag, part)
        for tag, parts in overview.strata.items()
        for part in parts
        if part.n >= MIN_STRATUM_QUERIES and system in part.means and part.means[system].high < mean.value
    ]
    if overview.first in overview.lower_is_better or not low:
        return None
    return min(low, key=lambda pair: pair[1].means[system].value)
