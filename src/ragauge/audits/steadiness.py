"""Whether the same system says the same again, and whether the queries are enough to tell two systems apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ragauge.audits.evidence import Evidence
from ragauge.audits.orders import means
from ragauge.audits.wording import change, counted, some
from ragauge.findings import Finding, Grid
from ragauge.measures.conventions import Convention
from ragauge.records import Run, Scores
from ragauge.stats.power import detectable, queries_needed

VISIBLE = 0.001
FEW = 25
"""Buckley and Voorhees (2000), Evaluating Evaluation Measure Stability: 25 topics at the least, 50 are better."""
TOO_FEW = 10


def repeats(evidence: Evidence) -> Iterator[Finding]:
    """Systems that were asked more than once: queries whose ranking changed, how high up, and what the mean does.

    A problem where a mean moves by 0.001 or more from one time to another.
    """
    for run, again in evidence.repeats.items():
        if run not in evidence.runs or not again:
            continue
        times = [evidence.runs[run], *again]
        names = set(evidence.judgments.pool.queries)
        ranked = [_rankings(one, evidence.rules) for one in times]
        changed: dict[str, int] = {}
        for other in ranked[1:]:
            for query in names & (set(ranked[0]) | set(other)):
                at = _first_difference(ranked[0].get(query, []), other.get(query, []))
                if at:
                    changed[query] = min(at, changed.get(query, at))
        scores = [evidence.scores(run), *(evidence.scores(one) for one in again)]
        rows: list[list[str | float | None]] = []
        for i, name in enumerate(scores[0].measures):
            each = [means(one)[i] for one in scores]
            rows.append([name, *(each if len(each) <= 4 else [min(each), max(each)]), max(each) - min(each)])
        header = [str(time) for time in range(1, len(times) + 1)] if len(times) <= 4 else ["lowest", "highest"]
        if not changed:
            yield Finding(run, "repeats", False, 0, f"{len(times)} times the same rankings")
            continue
        top = sum(at <= 10 for at in changed.values())
        first_row = [float(value or 0) for value in rows[0][1:-1]]
        yield Finding(
            run,
            "repeats",
            max(float(row[-1] or 0) for row in rows) >= VISIBLE,
            len(changed),
            f"{len(changed)} of {counted(len(names), 'judged query')} got another ranking when they were asked "
            f"{len(times)} times, {top} of them within the first 10, from rank {min(changed.values())} on",
            some(sorted(changed, key=lambda query: changed[query])),
            change(str(rows[0][0]), min(first_row), max(first_row)),
            Grid(["measure", *header, "spread"], rows),
        )


def _rankings(run: Run, rules: Convention) -> dict[str, list[str]]:
    """The documents of each query, best first by the tie rule."""
    table = run.table
    if rules.ties == "ranked" and "rank" in table.columns:
        ordered = table.sort(["query", "score", "rank"], descending=[False, True, False], maintain_order=True)
    elif rules.ties == "ranked":
        ordered = table.sort(["query", "score"], descending=[False, True], maintain_order=True)
    else:
        ordered = table.sort(["query", "score", "doc"], descending=[False, True, True])
    grouped = ordered.group_by("query", maintain_order=True).agg("doc")
    return dict(zip(grouped["query"].to_list(), grouped["doc"].to_list(), strict=True))


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    """The first rank at which two rankings differ; 0 where they do not."""
    for rank, (a, b) in enumerate(zip(one, other, strict=False), 1):
        if a != b:
            return rank
    return 0 if len(one) == len(other) else min(len(one), len(other)) + 1


def enough(evidence: Evidence) -> Iterator[Finding]:
    """Whether the judged queries are enough: in number, and for the differences between the runs.

    Fewer than 25 queries are worth a word, fewer than 10 a problem. Of two runs, a difference that is smaller than what
    so many queries would find in four of five tries (paired t-test, 0.05) is a problem; of more, the best run is
    compared with each other one by the first measure.
    """
    scores = {run: evidence.scores(run) for run in evidence.runs}
    n = len(evidence.judgments)
    if n < FEW:
        yield Finding(
            evidence.judgments.source,
            "few queries",
            n < TOO_FEW,
            n,
            f"{counted(n, 'judged query')}: fewer than {FEW} seldom tell one system from another",
        )
    if len(scores) < 2:
        return
    first = str(evidence.first)
    better = -1 if evidence.first.spec.lower_is_better else 1
    best = max(scores, key=lambda run: better * _or_worst(scores[run].means[first], better))
    others = [run for run in scores if run != best]
    named = next(iter(scores.values())).measures if len(scores) == 2 else [first]
    rows = [(run, name, _told(scores[best], scores[run], name)) for run in others for name in named]
    small = [run for run, name, told in rows if name == first and told.is_small]
    two = len(scores) == 2
    header = ["measure" if two else f"{best} against", "difference", "p", f"{n} queries find", "it needs"]
    grid = Grid(header, [[name if two else run, *told.shown()] for run, name, told in rows])
    if small:
        whom = ", ".join(small)
        message = (
            f"{first} puts {best} before {whom}, by less than {n} queries can be relied on to find"
            if len(small) < 4
            else f"{first} puts {best} before {len(small)} runs by less than {n} queries can be relied on to find"
        )
    else:
        message = f"{n} queries are enough for the differences of {best} from the others by {first}"
    yield Finding(best, "enough queries", bool(small), len(small), message, grid=grid)


def _or_worst(value: float, better: int) -> float:
    return -math.inf * better if math.isnan(value) else value


class Told(NamedTuple):
    """What so many queries can tell of one difference."""

    difference: float = math.nan
    p: float = math.nan
    least: float = math.nan
    """The smallest difference that they find in four of five tries."""
    needed: int | None = None
    """How many queries would find this one so."""

    @property
    def is_small(self) -> bool:
        """Whether there is a difference, and too small a one."""
        return 0 < abs(self.difference) < self.least

    def shown(self) -> list[str | float | None]:
        """The cells of a table."""
        if math.isnan(self.difference):
            return [None, None, None, None]
        p = "-" if math.isnan(self.p) else "<0.001" if self.p < 0.001 else f"{self.p:.3f}"
        return [f"{self.difference:+.4f}", p, self.least, "-" if self.needed is None else f"{self.needed:,}"]


def _told(best: Scores, other: Scores, name: str) -> Told:
    from scipy.special import stdtr

    gap = best.values[name] - other.values[name]
    gap = gap[~np.isnan(gap)]
    if len(gap) < 2:
        return Told()
    mean, spread = float(gap.mean()), float(gap.std(ddof=1))
    if spread < 1e-15:
        return Told(mean, least=0.0)
    p = float(2 * stdtr(len(gap) - 1, -abs(mean) / (spread / math.sqrt(len(gap)))))
    needed = queries_needed(spread, mean) if abs(mean) > 1e-12 else None
    return Told(mean, p, detectable(spread, len(gap)), needed)
