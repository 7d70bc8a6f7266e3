"""Checks for suspicious scores: perfect runs, identical runs, missing queries and repeated documents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from ragauge.audits.audit_input import VISIBLE_CHANGE, AuditInput, drop_if_unchanged
from ragauge.audits.chance_level import compute_random_order_mean
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Run
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks
from ragauge.measures.tie_orders import RANK_MEASURES, has_exact_bounds, ideal_ranks, list_means, tie_all_documents
from ragauge.output.numbers import first_few, format_change, format_changes, join_names, pluralise

MIN_QUERIES = 10
"""Minimum number of queries; fewer can be perfect by chance."""
PERFECT_SHARE = 0.999
MAX_SHUFFLED_SHARE = 0.9
"""Share of the oracle's score above which a shuffled run makes a perfect score unsuspicious."""
MIN_ORDERED_PAIRS = 100
"""Minimum number of correctly ordered pairs of judged documents that cannot be due to chance."""


def check_perfect_scores(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for runs with perfect or constant scores, or ordered by grade.

    Only measures that depend on the order are used, over 10 or more queries. A problem if a mean is at least 0.999
    of the oracle's, unless shuffling the documents of the run reaches more than 0.9 of it. A problem if no judged
    document ranks above a better one, in 100 or more pairs of different grades. A problem if a score between 0 and 1
    is the same for every query. Recall and hit rate are left out, because they are often perfect for easy queries.
    """
    measures = [
        measure for measure in audit_input.measures if has_exact_bounds(measure) and measure.spec.name in RANK_MEASURES
    ]
    zero_filled = audit_input.convention.but(missing="zero")
    oracle = score_judged_ranks(ideal_ranks(audit_input.judgments), measures, zero_filled)
    for run in audit_input.runs:
        judged = audit_input.judged(run)
        findings = [
            *_oracle_findings(audit_input, run, measures, list_means(oracle)),
            *_grade_order_findings(run, judged),
            *_constant_score_findings(audit_input, run, measures),
        ]
        yield from findings
        if not findings:
            yield Finding(
                run, "perfect scores", problem=False, count=0, message="not perfect, not ordered by grade, not constant"
            )


def _oracle_findings(
    audit_input: AuditInput, run: str, measures: list[Measure], oracle: list[float]
) -> Iterator[Finding]:
    scores = audit_input.scores(run, measures=measures) if measures else None
    judged = audit_input.judged(run)
    depth = int(judged.retrieved.max(initial=0))
    rows: list[list[str | float | None]] = []
    for measure, best in zip(measures, oracle, strict=True):
        name = str(measure)
        if scores is None or scores.n[name] < MIN_QUERIES or not scores.means[name] >= PERFECT_SHARE * best > 0:
            continue
        easy = compute_random_order_mean(
            tie_all_documents(judged), measure, audit_input.convention.but(missing="zero"), depth
        ).mean
        if easy <= MAX_SHUFFLED_SHARE * best:
            rows.append([name, scores.means[name], best, easy])
    if rows:
        yield Finding(
            run,
            "perfect scores",
            problem=True,
            count=len(rows),
            message=f"equal to the oracle by {join_names([str(row[0]) for row in rows])}: check whether the run has "
            "seen the judgments, or the queries were generated from their answers",
            table=FindingTable(["measure", "run", "oracle", "its documents in random order"], rows),
        )


def _grade_order_findings(run: str, judged: JudgedRanks) -> Iterator[Finding]:
    pairs = queries = 0
    bounds = np.searchsorted(judged.query, np.arange(judged.n + 1)).tolist()
    grade = judged.grade
    for begin, end in itertools.pairwise(bounds):
        query_grades = grade[begin:end]
        if (np.diff(query_grades) > 0).any():
            return
        levels = np.unique(query_grades, return_counts=True)[1]
        different = (int(levels.sum()) ** 2 - int((levels**2).sum())) // 2
        pairs += different
        queries += different > 0
    if pairs >= MIN_ORDERED_PAIRS and queries >= MIN_QUERIES:
        yield Finding(
            run,
            "ordered by grade",
            problem=True,
            count=queries,
            message=f"no judged document ranks above one with a higher grade, in {pairs:,} pairs of different grades "
            f"over {pluralise(queries, 'query')}: the run may have been created from the judgments",
        )


def _constant_score_findings(audit_input: AuditInput, run: str, measures: list[Measure]) -> Iterator[Finding]:
    if not measures:
        return
    scores = audit_input.scores(run, measures=measures)
    for name, values in scores.values.items():
        scored_values = values[~np.isnan(values)]
        if len(scored_values) >= MIN_QUERIES and np.ptp(scored_values) < 1e-12 and 0 < scored_values[0] < 1:
            yield Finding(
                run,
                "constant score",
                problem=True,
                count=len(scored_values),
                message=f"{name} is {scored_values[0]:.4f} for every one of {pluralise(len(scored_values), 'query')}",
            )


def check_identical_runs(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for runs with identical rankings, and for measures with identical scores.

    Identical runs are a problem. Identical measures are a note, since they are correct if each query has one
    relevant document.
    """
    for first, second in itertools.combinations(audit_input.runs, 2):
        if _has_same_ranking(audit_input.runs[first], audit_input.runs[second]):
            yield Finding(
                f"{first}, {second}",
                "same run",
                problem=True,
                count=2,
                message=f"{first} and {second} return the same documents in the same order",
            )
    scores = [audit_input.scores(run) for run in audit_input.runs]
    for a, b in itertools.combinations([str(measure) for measure in audit_input.measures], 2):
        if all(np.allclose(s.values[a], s.values[b], rtol=0, atol=1e-12, equal_nan=True) for s in scores):
            yield Finding(
                "all runs",
                "same measure",
                problem=False,
                count=len(scores),
                message=f"{a} and {b} are equal for every query",
            )


def _has_same_ranking(one: Run, other: Run) -> bool:
    columns = ["query", "doc"]
    if one.table.height != other.table.height or not one.table.height:
        return False
    first, second = (run.table.sort(["query", "score", "doc"], descending=[False, True, True]) for run in (one, other))
    return first.select(columns).equals(second.select(columns))


def check_missing_queries(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for judged queries that are missing from a run or failed.

    Compares the mean with these queries at 0 and without them. A problem if the two differ by 0.001 or more in a
    measure, regardless of the convention.
    """
    names = audit_input.judgments.pool.queries
    measures = [measure for measure in audit_input.measures if not measure.spec.keeps_missing]
    for run, record in audit_input.runs.items():
        judged = audit_input.judged(run)
        failed = _failed_queries(record)
        lacking = np.array([q in failed for q in names], np.bool_) | ~judged.answered
        absent = [q for q, is_missing in zip(names, lacking.tolist(), strict=True) if is_missing]
        empty = int(((judged.retrieved == 0) & ~lacking).sum())
        nothing = f"; {pluralise(empty, 'query')} got no document and score 0" if empty else ""
        if not absent:
            yield Finding(
                run,
                "missing queries",
                problem=False,
                count=0,
                message=f"all {pluralise(len(names), 'judged query')} have a ranking{nothing}",
            )
            continue
        full = score_judged_ranks(audit_input.judged(run), measures, audit_input.convention.but(missing="zero"))
        rows: list[tuple[str, float, float, float]] = []
        gap = 0.0
        for measure in measures:
            values = full.values[str(measure)]
            remaining = values[~lacking & ~np.isnan(values)]
            without = measure.spec.aggregate(remaining) if len(remaining) else math.nan
            zero = full.means[str(measure)]
            gap = max(gap, abs(without - zero) if len(remaining) else math.inf)
            rows.append((str(measure), zero, without, without - zero))
        moved = next(
            (change for name, zero, remaining, _ in rows if (change := format_change(str(name), zero, remaining))), ""
        )
        treatment = "are scored 0" if audit_input.convention.missing == "zero" else "are ignored"
        kinds = f"{len(absent) - len(failed & set(absent))} missing, {len(failed & set(absent))} failed"
        yield Finding(
            run,
            "missing queries",
            gap >= VISIBLE_CHANGE,
            len(absent),
            f"{len(absent)} of {pluralise(len(names), 'judged query')} have no ranking ({kinds}) and {treatment} "
            f"under {audit_input.convention.name}{nothing}",
            first_few(absent),
            f"{moved} without them" if moved else "",
            drop_if_unchanged(FindingTable(["measure", "they score 0", "left out", "difference"], rows), slice(1, 3)),
        )


def _failed_queries(run: Run) -> set[str]:
    """Return the queries that failed in the first trial."""
    if run.timings is None or "status" not in run.timings.columns:
        return set()
    import polars as pl

    tries = run.timings.filter(pl.col("status") != "ok")
    if "repeat" in tries.columns:
        tries = tries.filter(pl.col("repeat") == 0)
    return set(tries["query"].to_list())


def _duplicate_rule_text(audit_input: AuditInput, run: Run) -> str:
    """Describe how the convention scores repeated documents."""
    if run.rows_are_hits:
        return "a document scores once, at its first rank"
    if "duplicates=first" in audit_input.convention.name:  # The audit itself relaxed `duplicates=error`.
        return "`evaluate` rejects the run; here the first rank counts"
    return "the first rank counts" if audit_input.convention.duplicates == "first" else "every rank counts"


def check_repeated_documents(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for documents that occur more than once in a ranking: a problem in a run file.

    trec_eval rejects such a file; other tools count the document once or each time. In a run that ragauge made, k
    counts hits or documents, as the convention says.
    """
    import polars as pl

    judged = audit_input.judgments.frame.select("query").unique()
    for run, record in audit_input.runs.items():
        rows = record.table.join(judged, on="query", how="semi")
        repeated = rows.group_by("query", "doc", maintain_order=True).agg(pl.len().alias("n")).filter(pl.col("n") > 1)
        if not repeated.height:
            yield Finding(
                run, "repeated documents", problem=False, count=0, message="no duplicate documents in rankings"
            )
            continue
        option, values = ("unit", ("hit", "document")) if record.rows_are_hits else ("duplicates", ("first", "count"))
        first, counted = (
            audit_input.scores(run, convention=audit_input.convention.but(**{option: value})) for value in values
        )
        extra = int((repeated["n"] - 1).sum())
        names = [f"{doc} for {query}" for query, doc in repeated.select("query", "doc").head(5).iter_rows()]
        rows_of: list[list[str | float | None]] = [
            [name, value, every_value]
            for name, value, every_value in zip(first.measures, list_means(first), list_means(counted), strict=True)
        ]
        yield Finding(
            run,
            "repeated documents",
            problem=not record.rows_are_hits,
            count=extra,
            message=f"{pluralise(extra, 'document is', 'documents are')} repeated in the ranking of "
            f"{repeated['query'].n_unique()} of {pluralise(judged.height, 'judged query', 'judged queries')}; "
            f"{_duplicate_rule_text(audit_input, record)}",
            examples=first_few(names),
            effect=format_changes(first.measures[:1], list_means(first)[:1], list_means(counted)[:1]),
            table=drop_if_unchanged(
                FindingTable(
                    ["measure", "k counts hits", "k counts documents"]
                    if record.rows_are_hits
                    else ["measure", "first rank counts", "every rank counts"],
                    rows_of,
                ),
                slice(1, 3),
            ),
        )
