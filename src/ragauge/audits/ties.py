"""Equal scores: between which scores a run lies when nobody knows the order of its ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragauge.audits.evidence import Evidence
from ragauge.audits.orders import ROUNDS, Guess, arranged, averaging, expected, is_ordered, means
from ragauge.audits.wording import changes, counted, percent, some
from ragauge.findings import Finding, Grid
from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score
from ragauge.records import Scores

if TYPE_CHECKING:
    import polars as pl

VISIBLE = 0.001
"""A score that ties can move by so much changes in the third decimal, in which papers differ."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The scores of a run over all orders of its equal scores."""

    measures: Sequence[Measure]
    """Those of which the bounds are exact."""
    worst: Scores
    best: Scores
    expected: Sequence[Guess]

    @property
    def spread(self) -> list[float]:
        """From the worst to the best mean of each measure."""
        return [high - low for low, high in zip(means(self.worst), means(self.best), strict=True)]


def sensitivity(judged: JudgedRanks, measures: Sequence[Measure], rules: Convention) -> Sensitivity:
    """Bounds and mean over all orders of ties; `judged` is counted with ties undecided."""
    wanted = [one for one in measures if is_ordered(one)]
    middle = expected(judged, wanted, rules)
    return Sensitivity(
        wanted,
        score(arranged(judged, best=False), wanted, rules),
        score(arranged(judged, best=True), wanted, rules),
        middle,
    )


def ties(evidence: Evidence) -> Iterator[Finding]:
    """For each run the exact best, worst and expected score over all orders of its equal scores.

    It is a problem where a measure's best and worst order are 0.001 or more apart.
    """
    for run in evidence.runs:
        yield from _of_orders(evidence, run)
        yield from _of_width(evidence, run)


def _of_orders(evidence: Evidence, run: str) -> Iterator[Finding]:
    table = evidence.runs[run].table
    tied = tied_rows(table)
    if not tied:
        yield Finding(run, "ties", False, 0, "no two documents of a query have the same score")
        return
    rules = averaging(evidence.rules)
    found = sensitivity(evidence.judged(run, rules=rules), evidence.measures, evidence.rules)
    now = means(evidence.scores(run, measures=found.measures)) if found.measures else []
    moved = np.zeros(len(found.worst.queries), np.bool_)
    for name in found.worst.values:
        moved |= found.best.values[name] > found.worst.values[name] + 1e-12
    queries = [query for query, one in zip(found.worst.queries, moved.tolist(), strict=True) if one]
    share = f"{percent(tied / table.height)} of the scores repeat another ({tied:,} of {table.height:,})"
    left = [str(one) for one in evidence.measures if one not in found.measures]
    without = f"; not told of {', '.join(left)}" if left else ""
    names = [str(one) for one in found.measures]
    middle = [one.mean for one in found.expected]
    rows = zip(names, found.worst.means.values(), middle, found.best.means.values(), now, strict=True)
    grid = Grid(["measure", "worst order", "expected", "best order", "as counted"], [list(row) for row in rows])
    if not queries:
        yield Finding(run, "ties", False, tied, f"{share}, and no query's score depends on their order{without}")
        return
    drawn = [name for name, one in zip(names, found.expected, strict=True) if not one.exact]
    about = f"; expected {', '.join(drawn)} is the mean of {ROUNDS} orders drawn at random" if drawn else ""
    yield Finding(
        run,
        "ties",
        max(found.spread) >= VISIBLE,
        len(queries),
        f"{share}; their order decides the score of {counted(len(queries), 'query')}{without}{about}",
        some(queries),
        changes(names[:1], means(found.worst)[:1], means(found.best)[:1]),
        grid,
    )


def _of_width(evidence: Evidence, run: str) -> Iterator[Finding]:
    """Scores that are different doubles and the same 32-bit float: trec_eval 9 and all that wraps it tie them."""
    import polars as pl

    table = evidence.runs[run].table
    narrow = table.with_columns(pl.col("score").cast(pl.Float32))
    more = tied_rows(narrow) - tied_rows(table)
    if not more:
        return
    others = {"double": "float32", "float32": "double"}
    before = evidence.scores(run)
    after = evidence.scores(run, rules=evidence.rules.but(width=others[evidence.rules.width]))
    gap = max(abs(a - b) for a, b in zip(means(before), means(after), strict=True))
    yield Finding(
        run,
        "score width",
        gap >= VISIBLE,
        more,
        f"{counted(more, 'score')} that differ as doubles are tied as 32-bit floats (trec_eval 9, pytrec_eval, BEIR)",
        effect=changes(before.measures, means(before), means(after)),
    )


def tied_rows(table: pl.DataFrame) -> int:
    """How many rows of a run have a score that another row of their query had before."""
    return table.height - table.select("query", "score").unique().height
