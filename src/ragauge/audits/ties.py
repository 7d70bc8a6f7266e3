"""Check of tied scores: the range of scores over all orders of the ties in a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ragauge.audits.audit_input import VISIBLE_CHANGE, AuditInput
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Run, Scores
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks
from ragauge.measures.tie_orders import (
    RANDOM_ORDERS,
    RandomOrderMean,
    compute_expected_means,
    has_exact_bounds,
    list_means,
    order_ties,
    rows_kept,
    truncate_ranks,
    with_undecided_ties,
)
from ragauge.output.numbers import first_few, format_changes, format_number, pluralise

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class TieSensitivity:
    """Scores of a run over all orders of its ties."""

    tied: int
    """Number of rows whose score occurs in an earlier row of the query, after the convention removed rows."""
    rows: int
    """Total number of rows, after the convention removed rows."""
    measures: Sequence[Measure]
    """Measures with exact bounds."""
    worst: Scores
    best: Scores
    expected: Sequence[RandomOrderMean]

    @property
    def spread(self) -> list[float]:
        """Difference between the best and the worst mean of each measure."""
        return [high - low for low, high in zip(list_means(self.worst), list_means(self.best), strict=True)]

    @property
    def queries(self) -> list[str]:
        """Queries whose score depends on the order of ties."""
        moved = np.zeros(len(self.worst.queries), np.bool_)
        for name in self.worst.values:
            moved |= self.best.values[name] > self.worst.values[name] + 1e-12
        return [query for query, has_moved in zip(self.worst.queries, moved.tolist(), strict=True) if has_moved]

    def grid(self, **columns: Sequence[float]) -> FindingTable:
        """Build a grid of the worst, expected and best means, with further columns."""
        middle = [mean.mean for mean in self.expected]
        figures = zip(list_means(self.worst), middle, list_means(self.best), *columns.values(), strict=True)
        names = [name.replace("_", " ") for name in columns]
        rows = [[str(measure), *row] for measure, row in zip(self.measures, figures, strict=True)]
        return FindingTable(["measure", "worst order", "expected", "best order", *names], rows)


def compute_tie_sensitivity(
    audit_input: AuditInput, name: str, table: pl.DataFrame, convention: Convention
) -> TieSensitivity:
    """Compute bounds and means over all orders of the ties in a table of a run.

    Rows that the convention removes (the query's own document, unjudged ones, those below a depth) are removed
    first. If a tie crosses the depth, its order must be decided before that, and the mean is over random orders.
    """
    measures = [measure for measure in audit_input.measures if has_exact_bounds(measure)]
    run = audit_input.runs[name]
    kept_table, across = rows_kept(table, audit_input.judgments, convention)
    same = kept_table is run.table
    judged = audit_input.judged(
        name if same else replace(run, table=kept_table), convention=with_undecided_ties(convention)
    )
    judged = replace(judged, answered=audit_input.judged(name).answered)  # stays answered without rows
    finish = partial(truncate_ranks, convention=convention) if across else None
    worst, best = (order_ties(judged, best=best) for best in (False, True))
    if finish is not None:
        worst, best = finish(worst), finish(best)
    middle = compute_expected_means(judged, measures, convention, finish)
    return TieSensitivity(
        count_tied_rows(kept_table),
        kept_table.height,
        measures,
        score_judged_ranks(worst, measures, convention),
        score_judged_ranks(best, measures, convention),
        middle,
    )


def check_ties(audit_input: AuditInput) -> Iterator[Finding]:
    """Check the best, worst and expected score of each run over its tie orders.

    Scores are compared at the width of the convention; doubles one representable step apart are equal too. A problem
    if the best and the worst mean of a measure differ by 0.001 or more. A run made by ragauge keeps the order of
    return by 32-bit steps: its ties are not a problem, since that order is what the system returned. For scores of
    other runs that are equal only as 32-bit floats, the difference is reported, and a problem if it is 0.001 or more.
    """
    for name, run in audit_input.runs.items():
        table = run.table
        if audit_input.convention.width == "double":
            table = merge_adjacent_scores(table, single=_has_provenance(run))
        yield _tie_order_finding(audit_input, name, table)
        yield from _score_width_findings(audit_input, name, table)


def _has_provenance(run: Run) -> bool:
    return run.timings is not None or bool(run.manifest)


def merge_adjacent_scores(table: pl.DataFrame, *, single: bool = False) -> pl.DataFrame:
    """Merge scores that are one representable step apart into the first of them; with `single` also a 32-bit step.

    >>> import math, polars as pl
    >>> scores = [0.5, math.nextafter(0.5, 0), 0.25]
    >>> merge_adjacent_scores(pl.DataFrame({"query": ["q"] * 3, "doc": ["a", "b", "c"],
    ...     "score": scores}))["score"].to_list()
    [0.5, 0.5, 0.25]
    """
    in_order = table.sort("query", "score", descending=[False, True], maintain_order=True)
    scores, queries = in_order["score"].to_numpy(), in_order["query"]
    if not len(scores):
        return table
    first = np.ones(len(scores), np.bool_)
    first[1:] = (queries.slice(1) != queries.slice(0, len(scores) - 1)).to_numpy()
    is_apart = scores[1:] != np.nextafter(scores[:-1], -np.inf)
    if single:
        with np.errstate(over="ignore"):
            is_apart &= scores[1:] != np.nextafter(scores[:-1].astype(np.float32), np.float32(-np.inf))
    first[1:] |= is_apart
    if first.all():
        return table
    return in_order.with_columns(score=scores[first][np.cumsum(first) - 1])


def _tie_order_finding(audit_input: AuditInput, name: str, table: pl.DataFrame) -> Finding:
    convention, run = audit_input.convention, audit_input.runs[name]
    sensitivity = compute_tie_sensitivity(audit_input, name, table, convention)
    if not sensitivity.tied:
        return Finding(name, "ties", problem=False, count=0, message="no two documents of a query have the same score")
    tied = format_number(sensitivity.tied / sensitivity.rows, "share")
    share = f"{tied} of the scores are tied ({sensitivity.tied:,} of {sensitivity.rows:,})"
    more = sensitivity.tied - count_tied_rows(
        rows_kept(run.table, audit_input.judgments, convention.but(width="double"))[0]
    )
    returned = more == sensitivity.tied and _has_provenance(run) and convention.width == "double"
    if returned:
        share += " as returned by the system; the run folder preserves the order of return by minimal score steps"
    elif more > 0:
        condition = (
            "only as 32-bit floats" if convention.width == "float32" else "except for the smallest step of a double"
        )
        share += f", {more:,} of them {condition}"
    omitted = [str(measure) for measure in audit_input.measures if measure not in sensitivity.measures]
    without = f"; not computed for {', '.join(omitted)}" if omitted else ""
    queries = sensitivity.queries
    if not queries:
        return Finding(
            name,
            "ties",
            problem=False,
            count=sensitivity.tied,
            message=f"{share}, and no query's score depends on their order{without}",
        )
    sampled = [
        str(measure)
        for measure, guess in zip(sensitivity.measures, sensitivity.expected, strict=True)
        if not guess.exact
    ]
    about = f"; expected {', '.join(sampled)} is the mean of {RANDOM_ORDERS} random orders" if sampled else ""
    moved = format_changes(
        [str(sensitivity.measures[0])], list_means(sensitivity.worst)[:1], list_means(sensitivity.best)[:1]
    )
    decides = f"; their order decides the score of {pluralise(len(queries), 'query')}"
    if returned:
        decides = f"; another order would change the score of {pluralise(len(queries), 'query')}"
        decides += f" ({moved}, worst to best)" if moved else ""
    return Finding(
        name,
        "ties",
        max(sensitivity.spread) >= VISIBLE_CHANGE and not returned,
        len(queries),
        f"{share}{decides}{without}{about}",
        first_few(queries),
        moved,
        sensitivity.grid(as_counted=list_means(audit_input.scores(name, measures=sensitivity.measures))),
    )


def _score_width_findings(audit_input: AuditInput, name: str, table: pl.DataFrame) -> Iterator[Finding]:
    """Yield a finding if scores differ as doubles but are equal as 32-bit floats.

    trec_eval 9 and its wrappers treat them as ties. Not reported if the convention uses 32-bit floats. Doubles one
    step apart already count as ties.
    """
    if audit_input.convention.width == "float32":
        return
    narrow = audit_input.convention.but(width="float32")
    wide, cast = (
        rows_kept(table, audit_input.judgments, convention)[0] for convention in (audit_input.convention, narrow)
    )
    more = count_tied_rows(cast) - count_tied_rows(wide)
    if more <= 0:
        return
    run = audit_input.runs[name]
    run_input = name if table is run.table else replace(run, table=table)
    before, after = audit_input.scores(run_input), audit_input.scores(run_input, convention=narrow)
    gap = max(abs(a - b) for a, b in zip(list_means(before), list_means(after), strict=True))
    sensitivity = compute_tie_sensitivity(audit_input, name, table, narrow)
    chosen = [str(measure) for measure in sensitivity.measures]
    yield Finding(
        name,
        "score width",
        gap >= VISIBLE_CHANGE,
        more,
        f"{pluralise(more, 'score')} that differ as doubles are tied as 32-bit floats (trec_eval 9, pytrec_eval, BEIR)",
        effect=format_changes(before.measures, list_means(before), list_means(after)),
        table=sensitivity.grid(
            as_doubles=[before.means[measure] for measure in chosen],
            as_32_bit=[after.means[measure] for measure in chosen],
        ),
    )


def count_tied_rows(table: pl.DataFrame) -> int:
    """Count the rows of a run whose score occurs in an earlier row of the same query."""
    return table.height - table.select("query", "score").unique().height
