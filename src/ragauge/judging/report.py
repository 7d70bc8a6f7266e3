"""Report of judged samples: summaries, reasons for unscored samples, states of claims, and tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.core.records import Scores
from ragauge.core.samples import ANSWER, LEXICAL, REFERENCE, Support, Verdicts
from ragauge.core.text import one_line
from ragauge.judging.results import Canary, Estimate, Judged, Step
from ragauge.output.numbers import count_noun, milliseconds, shown
from ragauge.output.tables import Rows

BASELINE = "a word-matching baseline, no model"
PARTIAL = re.compile(r"\A\d+ of \d+ (claim|chunk)s? (?:has|have) no verdict: ")
ID = re.compile(r"`([akrs])\d+`")
CALLED = {"a": "a claim", "r": "a claim", "k": "a chunk", "s": "a sentence"}
"""Names of items by the letter of their ids."""


class Figure(NamedTuple):
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


class Reason(NamedTuple):
    """Reason for unscored samples of a measure, with their number and an example."""

    measure: str
    why: str
    many: int
    example: str


class Standing(NamedTuple):
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


def who(judged: Judged) -> str:
    """Name the judge; the lexical judge is marked as a baseline."""
    return f"{judged.judge}: {BASELINE}" if judged.lexical else judged.judge


def short_who(judged: Judged) -> str:
    """Name the judge for a terminal, without the hash of the lexical judge."""
    return f"{called(judged.judge, judged.identity)}: {BASELINE}" if judged.lexical else judged.judge


def called(judge: str, identity: Mapping[str, Any]) -> str:
    """Return the display name of a judge, without the hash if it is the lexical judge.

    >>> called("lexical [0123abcd]", {"judge": "lexical"}), called("openai:m [0123abcd]", {"model": "m"})
    ('lexical', 'openai:m [0123abcd]')
    """
    return judge.partition(" [")[0] if identity.get("judge") == LEXICAL else judge


def left_out(judged: Judged) -> list[tuple[str, str, str]]:
    """List the sentences without a claim as (sample, text, sentence).

    The text is `answer` or `reference`.
    """
    return [
        (one.sample, text, sentence)
        for one in judged.verdicts.values()
        for text, listed in one.left_out.items()
        for sentence in listed
    ]


def figures(judged: Judged) -> list[Figure]:
    """Summarise each measure: mean, confidence interval, and numbers of samples."""
    scores, none = judged.scores, (math.nan, math.nan)
    return [
        Figure(
            name,
            scores.means[name],
            *judged.intervals.get(name, none),
            n=scores.n[name],
            unscored=len(scores.unscored[name]),
            lower=name in scores.lower_is_better,
        )
        for name in scores.measures
    ]


def reasons(scores: Scores) -> list[Reason]:
    """Count the reasons for unscored samples by measure, most frequent first."""
    found = []
    for name in scores.measures:
        by: dict[str, list[str]] = {}
        for query, why in scores.unscored[name].items():
            by.setdefault(kind_of(why), []).append(query)
        found += [Reason(name, why, len(some), some[0]) for why, some in sorted(by.items(), key=_most)]
    return found


def kind_of(why: str) -> str:
    """Remove numbers and ids from a reason, so that equal reasons of samples match.

    >>> kind_of("2 of 5 claims have no verdict: the reply has nothing for `a3`")
    'claims without a verdict: the reply has nothing for a claim'
    >>> kind_of("1 of 5 claims has no verdict: for `a1`, `k1` supports it alone and only together with others")
    'claims without a verdict: for a claim, a chunk supports it alone and only together with others'
    """
    whole = PARTIAL.sub(lambda found: f"{found[1]}s without a verdict: ", one_line(why))
    return ID.sub(lambda found: CALLED[found[1]], whole)


def _most(entry: tuple[str, list[str]]) -> tuple[int, str]:
    return -len(entry[1]), entry[0]


def shared(found: Sequence[Reason]) -> list[tuple[list[str], Reason]]:
    """Group reasons with the same text, count and example; return their measures."""
    by: dict[tuple[str, int, str], list[Reason]] = {}
    for one in found:
        by.setdefault((one.why, one.many, one.example), []).append(one)
    return [([one.measure for one in some], some[0]) for some in by.values()]


def standings(verdicts: Verdicts | None, text: str, *, nothing: bool = False) -> list[Standing]:
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
        stands = state(support) if asked else "not asked"
        if nothing and asked and support is None and lacking is None:
            stands = "absent"
        why = "" if support is not None or lacking is None else lacking.why
        found.append(Standing(claim.id, claim.text, claim.sentence, stands, support, why))
    return found


def state(support: Support | None) -> str:
    """Return the state of a claim according to the contexts.

    >>> state(Support(("k1",), ("k2",))), state(Support((), ("k2",))), state(Support(("reference",))), state(None)
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


def unsupported(verdicts: Verdicts | None, *, nothing: bool = False) -> list[Standing]:
    """Return the unsupported claims of the answer, contradicted ones first."""
    found = [one for one in standings(verdicts, ANSWER, nothing=nothing) if one.state in ("contradicted", "absent")]
    return sorted(found, key=lambda one: one.state != "contradicted")


def worst(judged: Judged, measure: str, most: int) -> list[tuple[str, float]]:
    """Return the samples with the worst scores of a measure.

    Perfect scores are left out.
    """
    scores = judged.scores
    lower = measure in scores.lower_is_better
    best = 0.0 if lower else 1.0
    known = [(query, value) for query, value in scores.per_query[measure].items() if value != best]
    return sorted(known, key=lambda one: -one[1] if lower else one[1])[:most]


def headline(judged: Judged) -> str:
    """Summarise the result in one sentence."""
    found = figures(judged)
    scored = [one for one in found if one.n]
    if not scored:
        return f"Nothing is scored: no sample of {len(judged.samples):,} has a value of any measure."
    first = scored[0]
    many = f"{first.of:,} samples" if first.n == first.of else f"{first.n:,} of {first.of:,} samples"
    interval = "" if math.isnan(first.low) else f", {confidence(judged)} interval {first.low:.3f} to {first.high:.3f}"
    return f"{title(first.measure)} is {first.mean:.3f} over {many}{interval}."


def title(measure: str) -> str:
    """Format the name of a measure for the start of a sentence.

    >>> title("context_precision@5")
    'Context precision@5'
    """
    plain = measure.replace("_", " ")
    return plain[:1].upper() + plain[1:]


def confidence(judged: Judged) -> str:
    """Format the confidence level of the intervals as a percentage."""
    return f"{100 * judged.confidence:g}%"


def about(judged: Judged) -> list[str]:
    """Return the number of samples, the convention and the confidence level as texts."""
    parts = [count_noun(len(judged.samples), "sample"), f"convention {judged.scores.convention}"]
    if judged.intervals:
        parts.append(f"{confidence(judged)} intervals")
    return parts


def made(judged: Judged) -> str:
    """Return the time of judging, or an empty text."""
    return str(judged.circumstances.get("made") or "")


def totals(ledger: Sequence[Step]) -> Step:
    """Sum the rows of the cost table; percentiles are NaN.

    The cost is None unless it is known for every step with calls.
    """
    costs = [one.cost for one in ledger if one.calls]
    cost = None if None in costs or not costs else math.fsum(one for one in costs if one is not None)
    calls, kept, retries, unread, prompt, completion, cached = (
        sum(getattr(one, name) for one in ledger) for name in Step._fields[1:8]
    )
    seconds = math.fsum(one.seconds for one in ledger)
    return Step(
        "all", calls, kept, retries, unread, prompt, completion, cached, seconds, math.nan, math.nan, cost
    )  # fmt: skip


def money(cost: float | None) -> str:
    """Format a cost in US dollars with its significant digits.

    >>> money(12.3456), money(0.00123), money(0.000072), money(0.0), money(None)
    ('$12.35', '$0.0012', '$0.000072', '$0', '-')
    """
    if cost is None or math.isnan(cost):
        return "-"
    decimals = 2 if not cost or cost >= 1 else max(2, 1 - math.floor(math.log10(cost)))
    return f"${cost:,.{decimals}f}" if cost else "$0"


def measures(judged: Judged) -> Rows:
    """Build the table of means with confidence intervals and numbers of samples."""
    rows = [
        [one.measure, shown(one.mean), span(one.low, one.high), f"{one.n:,} of {one.of:,}", f"{one.unscored:,}"]
        for one in figures(judged)
    ]
    return Rows("Measures", ["measure", "mean", f"{confidence(judged)} interval", "n", "unscored"], rows)


def span(low: float, high: float) -> str:
    """Format a confidence interval; a dash if undefined.

    >>> span(0.1, 0.25), span(math.nan, math.nan)
    ('[0.1000, 0.2500]', '-')
    """
    return "-" if math.isnan(low) or math.isnan(high) else f"[{shown(low)}, {shown(high)}]"


def unscored(judged: Judged) -> Rows:
    """Build the table of reasons for unscored samples, with counts and an example."""
    rows = [[one.why, f"{one.many:,}", ", ".join(names), one.example] for names, one in shared(reasons(judged.scores))]
    return Rows("Unscored, and why", ["reason", "samples", "measures", "such as"], rows, numbers=False)


STEP: Mapping[str, Callable[[Step], str]] = {
    "calls": lambda one: f"{one.calls:,}",
    "kept": lambda one: f"{one.kept:,}",
    "retries": lambda one: f"{one.retries:,}",
    "unread": lambda one: f"{one.unread:,}",
    "tokens in": lambda one: f"{one.prompt_tokens:,}",
    "out": lambda one: f"{one.completion_tokens:,}",
    "cost": lambda one: money(one.cost),
    "p50 ms": lambda one: milliseconds(one.p50),
    "p95 ms": lambda one: milliseconds(one.p95),
}


def ledger(judged: Judged) -> Rows:
    """Build the cost table by step and in total.

    Columns without any value are omitted.
    """
    steps: list[Step] = list(judged.ledger)
    every = [*steps, totals(steps)] if len(steps) > 1 else steps
    cells = {name: [tell(one) for one in every] for name, tell in STEP.items()}
    kept = [name for name, column in cells.items() if name == "calls" or set(column) - {"0", "-"}]
    rows = [[one.step, *(cells[name][i] for name in kept)] for i, one in enumerate(every)]
    return Rows("What it took", ["step", *kept], rows, goes=_places(kept, ("retries", "p50 ms", "kept")))


def _places(kept: Sequence[str], names: Sequence[str]) -> list[int]:
    return [kept.index(name) + 1 for name in names if name in kept]


def robustness(canaries: Sequence[Canary]) -> Rows:
    """Build the table of prompt-injection results by location of the instruction.

    A case counts only if the clean verdict is correct and the attacked one exists.
    """
    rows = []
    for where in dict.fromkeys(one.where for one in canaries):
        mine = [one.held for one in canaries if one.where == where]
        rows.append([where, *(str(mine.count(what)) for what in (True, False, None)), str(len(mine))])
    header = ["instruction in the", "held", "moved", "wrong anyway", "cases"]
    return Rows("Robustness: can the judge be talked into a verdict?", header, rows)


def moved(canaries: Sequence[Canary]) -> Rows:
    """Build the table of successful prompt injections."""
    rows = [
        [one.case, one.step, one.where, one.wanted, one.clean, one.attacked] for one in canaries if one.held is False
    ]
    return Rows("Moved", ["case", "step", "in the", "right", "clean", "attacked"], rows, numbers=False)


def estimates(found: Sequence[Estimate]) -> Rows:
    """Build the table of the cost estimate, by step and in total."""
    timed = any(one.seconds is not None for one in found)

    def row(one: Estimate) -> list[str]:
        cells = [one.step, f"{one.calls:,}", f"{one.prompt_tokens:,}", f"{one.completion_tokens:,}", money(one.cost)]
        return [*cells, *([f"{(one.seconds or 0.0) / 60:,.1f}"] if timed else [])]

    rows = [row(one) for one in [*found, *([total_estimate(found)] if len(found) > 1 else [])]]
    return Rows("Estimate", ["step", "calls", "tokens in", "out", "cost", *(["minutes"] if timed else [])], rows)


def total_estimate(found: Sequence[Estimate]) -> Estimate:
    """Add the estimates of all steps; None stays None."""
    calls, prompt, completion = (
        sum(getattr(one, name) for one in found) for name in ("calls", "prompt_tokens", "completion_tokens")
    )
    sums = [[getattr(one, name) for one in found] for name in ("cost", "seconds")]
    cost, seconds = (None if not values or None in values else math.fsum(values) for values in sums)
    return Estimate("all", calls, prompt, completion, cost, seconds)


def parts(judged: Judged) -> list[Rows]:
    """Return all tables that are not empty, in report order."""
    found = [measures(judged)]
    found += [one for one in (unscored(judged), ledger(judged)) if one.rows]
    found += [one for one in (robustness(judged.robustness), moved(judged.robustness)) if one.rows]
    return found
