"""Report of judged samples: summaries, reasons for unscored samples, states of claims, and tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.core.records import Scores
from ragauge.core.samples import ANSWER, LEXICAL_JUDGE, REFERENCE, Support, Verdicts
from ragauge.core.text import one_line
from ragauge.judging.results import CostEstimate, CostStep, InjectionAttempt, JudgedSamples
from ragauge.output.numbers import count_noun, format_milliseconds, format_score
from ragauge.output.tables import TextTable

LEXICAL_JUDGE_DESCRIPTION = "a word-matching baseline, no model"
PARTIAL_VERDICTS_REGEX = re.compile(r"\A\d+ of \d+ (claim|chunk)s? (?:has|have) no verdict: ")
ITEM_ID_REGEX = re.compile(r"`([akrs])\d+`")
ITEM_NAMES = {"a": "a claim", "r": "a claim", "k": "a chunk", "s": "a sentence"}
"""Names of items by the letter of their ids."""


class MeasureSummary(NamedTuple):
    """Summary of one measure: mean, confidence interval and numbers of samples."""

    measure: str
    mean: float
    low: float
    high: float
    n: int
    unscored: int
    lower: bool

    @property
    def of(self) -> int:
        """Total number of samples."""
        return self.n + self.unscored


class UnscoredReason(NamedTuple):
    """Reason for unscored samples of a measure, with their number and an example."""

    measure: str
    why: str
    many: int
    example: str


class ClaimState(NamedTuple):
    """A claim with its state and the verdict of the judge."""

    id: str
    text: str
    sentence: int
    state: str
    """State of the claim according to the contexts: `supported`, `contradicted`, `absent` (neither), `unscored` or `not
    asked`.
    """
    support: Support | None
    why: str = ""
    """Reason for a missing verdict."""


def describe_judge(judged: JudgedSamples) -> str:
    """Name the judge; the lexical judge is marked as a baseline."""
    return f"{judged.judge}: {LEXICAL_JUDGE_DESCRIPTION}" if judged.lexical else judged.judge


def describe_judge_briefly(judged: JudgedSamples) -> str:
    """Name the judge for a terminal, without the hash of the lexical judge."""
    return (
        f"{judge_display_name(judged.judge, judged.identity)}: {LEXICAL_JUDGE_DESCRIPTION}"
        if judged.lexical
        else judged.judge
    )


def judge_display_name(judge: str, identity: Mapping[str, Any]) -> str:
    """Return the display name of a judge, without the hash if it is the lexical judge.

    >>> (judge_display_name("lexical [0123abcd]", {"judge": "lexical"}), judge_display_name("openai:m [0123abcd]",
    ...  {"model": "m"}))
    ('lexical', 'openai:m [0123abcd]')
    """
    return judge.partition(" [")[0] if identity.get("judge") == LEXICAL_JUDGE else judge


def list_left_out_sentences(judged: JudgedSamples) -> list[tuple[str, str, str]]:
    """List the sentences without a claim as (sample, text, sentence).

    The text is `answer` or `reference`.
    """
    return [
        (one.sample, text, sentence)
        for one in judged.verdicts.values()
        for text, listed in one.left_out.items()
        for sentence in listed
    ]


def summarise_measures(judged: JudgedSamples) -> list[MeasureSummary]:
    """Summarise each measure: mean, confidence interval, and numbers of samples."""
    scores, none = judged.scores, (math.nan, math.nan)
    return [
        MeasureSummary(
            name,
            scores.means[name],
            *judged.intervals.get(name, none),
            n=scores.n[name],
            unscored=len(scores.unscored[name]),
            lower=name in scores.lower_is_better,
        )
        for name in scores.measures
    ]


def count_unscored_reasons(scores: Scores) -> list[UnscoredReason]:
    """Count the reasons for unscored samples by measure, most frequent first."""
    found = []
    for name in scores.measures:
        by: dict[str, list[str]] = {}
        for query, why in scores.unscored[name].items():
            by.setdefault(generalise_reason(why), []).append(query)
        found += [UnscoredReason(name, why, len(some), some[0]) for why, some in sorted(by.items(), key=_frequency_key)]
    return found


def generalise_reason(why: str) -> str:
    """Remove numbers and ids from a reason, so that equal reasons of samples match.

    >>> generalise_reason("2 of 5 claims have no verdict: the reply has nothing for `a3`")
    'claims without a verdict: the reply has nothing for a claim'
    >>> reason = "1 of 5 claims has no verdict: for `a1`, `k1` supports it alone and only together with others"
    >>> generalise_reason(reason)
    'claims without a verdict: for a claim, a chunk supports it alone and only together with others'
    """
    whole = PARTIAL_VERDICTS_REGEX.sub(lambda found: f"{found[1]}s without a verdict: ", one_line(why))
    return ITEM_ID_REGEX.sub(lambda found: ITEM_NAMES[found[1]], whole)


def _frequency_key(entry: tuple[str, list[str]]) -> tuple[int, str]:
    return -len(entry[1]), entry[0]


def group_shared_reasons(found: Sequence[UnscoredReason]) -> list[tuple[list[str], UnscoredReason]]:
    """Group reasons with the same text, count and example; return their measures."""
    by: dict[tuple[str, int, str], list[UnscoredReason]] = {}
    for one in found:
        by.setdefault((one.why, one.many, one.example), []).append(one)
    return [([one.measure for one in some], some[0]) for some in by.values()]


def find_claim_states(verdicts: Verdicts | None, text: str, *, nothing: bool = False) -> list[ClaimState]:
    """Return the claims of a text (`answer` or `reference`) with their states.

    With `nothing`, no context was retrieved, so that every claim without a verdict is absent.
    """
    if verdicts is None:
        return []
    asked = text in verdicts.asked
    found = []
    for claim in verdicts.claims.get(text, ()):
        support = verdicts.support.get(claim.id)
        lacking = verdicts.unscored.get(f"support {claim.id}")
        stands = decide_claim_state(support) if asked else "not asked"
        if nothing and asked and support is None and lacking is None:
            stands = "absent"
        why = "" if support is not None or lacking is None else lacking.why
        found.append(ClaimState(claim.id, claim.text, claim.sentence, stands, support, why))
    return found


def decide_claim_state(support: Support | None) -> str:
    """Return the state of a claim according to the contexts.

    >>> (decide_claim_state(Support(("k1",), ("k2",))), decide_claim_state(Support((), ("k2",))),
    ...  decide_claim_state(Support(("reference",))), decide_claim_state(None))
    ('supported', 'contradicted', 'absent', 'unscored')
    """
    if support is None:
        return "unscored"
    if support.together or any(map(is_context, support.by)):
        return "supported"
    return "contradicted" if any(map(is_context, support.against)) else "absent"


def is_context(source: str) -> bool:
    """Return whether a source of support is a chunk, or all of them together.

    >>> is_context("k3"), is_context("k*"), is_context("reference")
    (True, True, False)
    """
    return source not in (ANSWER, REFERENCE)


def find_unsupported_claims(verdicts: Verdicts | None, *, nothing: bool = False) -> list[ClaimState]:
    """Return the unsupported claims of the answer, contradicted ones first."""
    found = [
        one for one in find_claim_states(verdicts, ANSWER, nothing=nothing) if one.state in ("contradicted", "absent")
    ]
    return sorted(found, key=lambda one: one.state != "contradicted")


def find_worst_samples(judged: JudgedSamples, measure: str, most: int) -> list[tuple[str, float]]:
    """Return the samples with the worst scores of a measure.

    Perfect scores are left out.
    """
    scores = judged.scores
    lower = measure in scores.lower_is_better
    best = 0.0 if lower else 1.0
    known = [(query, value) for query, value in scores.per_query[measure].items() if value != best]
    return sorted(known, key=lambda one: -one[1] if lower else one[1])[:most]


def summarise_judged(judged: JudgedSamples) -> str:
    """Summarise the result in one sentence."""
    found = summarise_measures(judged)
    scored = [one for one in found if one.n]
    if not scored:
        return f"Nothing is scored: no sample of {len(judged.samples):,} has a value of any measure."
    first = scored[0]
    many = f"{first.of:,} samples" if first.n == first.of else f"{first.n:,} of {first.of:,} samples"
    interval = (
        "" if math.isnan(first.low) else f", {format_confidence(judged)} interval {first.low:.3f} to {first.high:.3f}"
    )
    return f"{measure_title(first.measure)} is {first.mean:.3f} over {many}{interval}."


def measure_title(measure: str) -> str:
    """Format the name of a measure for the start of a sentence.

    >>> measure_title("context_precision@5")
    'Context precision@5'
    """
    plain = measure.replace("_", " ")
    return plain[:1].upper() + plain[1:]


def format_confidence(judged: JudgedSamples) -> str:
    """Format the confidence level of the intervals as a percentage."""
    return f"{100 * judged.confidence:g}%"


def judged_facts(judged: JudgedSamples) -> list[str]:
    """Return the number of samples, the convention and the confidence level as texts."""
    parts = [count_noun(len(judged.samples), "sample"), f"convention {judged.scores.convention}"]
    if judged.intervals:
        parts.append(f"{format_confidence(judged)} intervals")
    return parts


def judging_date(judged: JudgedSamples) -> str:
    """Return the time of judging, or an empty text."""
    return str(judged.circumstances.get("made") or "")


def sum_cost_steps(ledger: Sequence[CostStep]) -> CostStep:
    """Sum the rows of the cost table; percentiles are NaN.

    The cost is None unless it is known for every step with calls.
    """
    costs = [one.cost for one in ledger if one.calls]
    cost = None if None in costs or not costs else math.fsum(one for one in costs if one is not None)
    calls, kept, retries, unread, prompt, completion, cached = (
        sum(getattr(one, name) for one in ledger) for name in CostStep._fields[1:8]
    )
    seconds = math.fsum(one.seconds for one in ledger)
    return CostStep(
        "all", calls, kept, retries, unread, prompt, completion, cached, seconds, math.nan, math.nan, cost
    )  # fmt: skip


def format_cost(cost: float | None) -> str:
    """Format a cost in US dollars with its significant digits.

    >>> format_cost(12.3456), format_cost(0.00123), format_cost(0.000072), format_cost(0.0), format_cost(None)
    ('$12.35', '$0.0012', '$0.000072', '$0', '-')
    """
    if cost is None or math.isnan(cost):
        return "-"
    decimals = 2 if not cost or cost >= 1 else max(2, 1 - math.floor(math.log10(cost)))
    return f"${cost:,.{decimals}f}" if cost else "$0"


def measures_table(judged: JudgedSamples) -> TextTable:
    """Build the table of means with confidence intervals and numbers of samples."""
    rows = [
        [
            one.measure,
            format_score(one.mean),
            format_score_interval(one.low, one.high),
            f"{one.n:,} of {one.of:,}",
            f"{one.unscored:,}",
        ]
        for one in summarise_measures(judged)
    ]
    return TextTable("Measures", ["measure", "mean", f"{format_confidence(judged)} interval", "n", "unscored"], rows)


def format_score_interval(low: float, high: float) -> str:
    """Format a confidence interval; a dash if undefined.

    >>> format_score_interval(0.1, 0.25), format_score_interval(math.nan, math.nan)
    ('[0.1000, 0.2500]', '-')
    """
    return "-" if math.isnan(low) or math.isnan(high) else f"[{format_score(low)}, {format_score(high)}]"


def unscored_table(judged: JudgedSamples) -> TextTable:
    """Build the table of reasons for unscored samples, with counts and an example."""
    rows = [
        [one.why, f"{one.many:,}", ", ".join(names), one.example]
        for names, one in group_shared_reasons(count_unscored_reasons(judged.scores))
    ]
    return TextTable("Unscored, and why", ["reason", "samples", "measures", "such as"], rows, numbers=False)


COST_COLUMNS: Mapping[str, Callable[[CostStep], str]] = {
    "calls": lambda one: f"{one.calls:,}",
    "kept": lambda one: f"{one.kept:,}",
    "retries": lambda one: f"{one.retries:,}",
    "unread": lambda one: f"{one.unread:,}",
    "tokens in": lambda one: f"{one.prompt_tokens:,}",
    "out": lambda one: f"{one.completion_tokens:,}",
    "cost": lambda one: format_cost(one.cost),
    "p50 ms": lambda one: format_milliseconds(one.p50),
    "p95 ms": lambda one: format_milliseconds(one.p95),
}


def cost_table(judged: JudgedSamples) -> TextTable:
    """Build the cost table by step and in total.

    Columns without any value are omitted.
    """
    steps: list[CostStep] = list(judged.ledger)
    every = [*steps, sum_cost_steps(steps)] if len(steps) > 1 else steps
    cells = {name: [tell(one) for one in every] for name, tell in COST_COLUMNS.items()}
    kept = [name for name, column in cells.items() if name == "calls" or set(column) - {"0", "-"}]
    rows = [[one.step, *(cells[name][i] for name in kept)] for i, one in enumerate(every)]
    return TextTable("What it took", ["step", *kept], rows, goes=_column_positions(kept, ("retries", "p50 ms", "kept")))


def _column_positions(kept: Sequence[str], names: Sequence[str]) -> list[int]:
    return [kept.index(name) + 1 for name in names if name in kept]


def robustness_table(canaries: Sequence[InjectionAttempt]) -> TextTable:
    """Build the table of prompt-injection results by location of the instruction.

    A case counts only if the clean verdict is correct and the attacked one exists.
    """
    rows = []
    for where in dict.fromkeys(one.where for one in canaries):
        mine = [one.held for one in canaries if one.where == where]
        rows.append([where, *(str(mine.count(what)) for what in (True, False, None)), str(len(mine))])
    header = ["instruction in the", "held", "moved", "wrong anyway", "cases"]
    return TextTable("Robustness: can the judge be talked into a verdict?", header, rows)


def successful_injections_table(canaries: Sequence[InjectionAttempt]) -> TextTable:
    """Build the table of successful prompt injections."""
    rows = [
        [one.case, one.step, one.where, one.wanted, one.clean, one.attacked] for one in canaries if one.held is False
    ]
    return TextTable("Moved", ["case", "step", "in the", "right", "clean", "attacked"], rows, numbers=False)


def estimate_table(found: Sequence[CostEstimate]) -> TextTable:
    """Build the table of the cost estimate, by step and in total."""
    timed = any(one.seconds is not None for one in found)

    def row(one: CostEstimate) -> list[str]:
        cells = [
            one.step,
            f"{one.calls:,}",
            f"{one.prompt_tokens:,}",
            f"{one.completion_tokens:,}",
            format_cost(one.cost),
        ]
        return [*cells, *([f"{(one.seconds or 0.0) / 60:,.1f}"] if timed else [])]

    rows = [row(one) for one in [*found, *([sum_estimates(found)] if len(found) > 1 else [])]]
    return TextTable("Estimate", ["step", "calls", "tokens in", "out", "cost", *(["minutes"] if timed else [])], rows)


def sum_estimates(found: Sequence[CostEstimate]) -> CostEstimate:
    """Add the estimates of all steps; None stays None."""
    calls, prompt, completion = (
        sum(getattr(one, name) for one in found) for name in ("calls", "prompt_tokens", "completion_tokens")
    )
    sums = [[getattr(one, name) for one in found] for name in ("cost", "seconds")]
    cost, seconds = (None if not values or None in values else math.fsum(values) for values in sums)
    return CostEstimate("all", calls, prompt, completion, cost, seconds)


def judged_tables(judged: JudgedSamples) -> list[TextTable]:
    """Return all tables that are not empty, in report order."""
    found = [measures_table(judged)]
    found += [one for one in (unscored_table(judged), cost_table(judged)) if one.rows]
    found += [
        one for one in (robustness_table(judged.robustness), successful_injections_table(judged.robustness)) if one.rows
    ]
    return found
