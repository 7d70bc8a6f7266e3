"""Tables of judged samples as headers and texts, shared by all report formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ragauge.reports.judged_words import confidence, figures, money, reasons, shared, totals
from ragauge.reports.tables import Rows, milliseconds, shown
from ragauge.verdicts import Canary, Estimate, Judged, Step


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
