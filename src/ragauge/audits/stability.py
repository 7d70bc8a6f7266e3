"""Checks of stability: rankings that change between repeats, and too few queries to compare systems."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ragauge.audits.audit_input import VISIBLE_CHANGE, AuditInput, drop_if_unchanged, none_if_nan
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Run, Scores
from ragauge.measures.conventions import Convention
from ragauge.measures.tie_orders import list_means
from ragauge.output.numbers import first_few, format_change, format_number, join_names, pluralise
from ragauge.stats.power import detectable_difference, queries_needed

RECOMMENDED_MIN_QUERIES = 25
"""Recommended minimum number of queries.

Buckley and Voorhees (2000), Evaluating Evaluation Measure Stability: at least 25 topics, 50 are better.
"""
MIN_QUERIES = 10
SIGNIFICANCE_LEVEL = 0.05
MIN_TRIALS_AVERAGED = 3
"""Minimum number of trials in a run at which changes between them are averaged over and not a problem."""
MAX_RUNS_NAMED = 3
"""Maximum number of runs named in a sentence; the grid lists all of them."""


def check_trials(audit_input: AuditInput) -> Iterator[Finding]:
    """Check for rankings that change between repeats, and the effect on the means.

    A problem if a mean changes by 0.001 or more between repeats, or the score of a query does on average, since
    opposite changes cancel out in the mean. A note if the run itself has three or more trials: comparisons and
    reports then average over them.
    """
    for run, repeat_runs in audit_input.repeats.items():
        if run not in audit_input.runs or not repeat_runs:
            continue
        trials = [audit_input.runs[run], *repeat_runs]
        names = audit_input.judgments.pool.queries
        ranked = [_rankings_by_query(run, audit_input.convention) for run in trials]
        changed: dict[str, int] = {}
        for rankings in ranked[1:]:
            for query in (name for name in names if name in ranked[0] or name in rankings):
                rank = _first_differing_rank(ranked[0].get(query, []), rankings.get(query, []))
                if rank:
                    changed[query] = min(rank, changed.get(query, rank))
        scores = [audit_input.first_trials().scores(run), *(audit_input.scores(trial) for trial in repeat_runs)]
        rows: list[list[str | float | None]] = []
        for i, name in enumerate(scores[0].measures):
            means = [list_means(scores)[i] for scores in scores]
            rows.append([name, *(means if len(means) <= 4 else [min(means), max(means)]), max(means) - min(means)])
        header = [str(time) for time in range(1, len(trials) + 1)] if len(trials) <= 4 else ["lowest", "highest"]
        if not changed:
            yield Finding(
                run,
                "trials",
                problem=False,
                count=0,
                message=f"{run} returned the same rankings in all {len(trials)} trials",
            )
            continue
        top = sum(rank <= 10 for rank in changed.values())
        first_row = [float(value or 0) for value in rows[0][1:-1]]
        moves = (
            max(float(row[-1] or 0) for row in rows) >= VISIBLE_CHANGE
            or _largest_query_spread(scores) >= VISIBLE_CHANGE
        )
        is_averaged = len(audit_input.runs[run].trials()) >= MIN_TRIALS_AVERAGED
        yield Finding(
            run,
            "trials",
            moves and not is_averaged,
            len(changed),
            f"{len(changed)} of {pluralise(len(names), 'judged query')} have different rankings in {len(trials)} "
            f"trials, {top} of them within the first 10, from rank {min(changed.values())} on"
            + "; comparisons and reports use all trials"
            * is_averaged,
            first_few(sorted(changed, key=lambda query: changed[query])),
            format_change(str(rows[0][0]), min(first_row), max(first_row)),
            drop_if_unchanged(FindingTable(["measure", *header, "spread"], rows), slice(1, -1)),
        )


def _largest_query_spread(scores: Sequence[Scores]) -> float:
    """Return the mean range of query scores between repeats, largest over measures."""
    spreads = [0.0]
    for name in scores[0].measures:
        scores_by_trial = np.stack([scores.values[name] for scores in scores])
        spread = scores_by_trial.max(axis=0) - scores_by_trial.min(axis=0)
        if not np.isnan(spread).all():
            spreads.append(float(np.nanmean(spread)))
    return max(spreads)


def _rankings_by_query(run: Run, convention: Convention) -> dict[str, list[str]]:
    """Return the documents of each query, best first, by the tie rule."""
    table = run.table
    if convention.ties == "ranked" and "rank" in table.columns:
        ordered = table.sort(["query", "score", "rank"], descending=[False, True, False], maintain_order=True)
    elif convention.ties == "ranked":
        ordered = table.sort(["query", "score"], descending=[False, True], maintain_order=True)
    else:
        ordered = table.sort(["query", "score", "doc"], descending=[False, True, True])
    grouped = ordered.group_by("query", maintain_order=True).agg("doc")
    return dict(zip(grouped["query"].to_list(), grouped["doc"].to_list(), strict=True))


def _first_differing_rank(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the first rank at which two rankings differ; 0 if they are equal."""
    for rank, (a, b) in enumerate(zip(first, second, strict=False), 1):
        if a != b:
            return rank
    return 0 if len(first) == len(second) else min(len(first), len(second)) + 1


def check_query_count(audit_input: AuditInput) -> Iterator[Finding]:
    """Check whether the judged queries are enough to compare the runs.

    Fewer than 25 queries are a note, fewer than 10 a problem. The best run by the first measure is compared with
    every other one by a paired t-test (0.05). A difference that is not significant is a problem, because the order
    of the runs is not supported. A significant difference below the one detectable with 80% power is a note: its
    size tends to be overestimated. Each pair is tested alone; `compare` corrects for multiple comparisons. Runs with
    several trials use the mean score of each query.
    """
    scores = {run: audit_input.scores(run) for run in audit_input.runs}
    n = len(audit_input.judgments)
    if n < RECOMMENDED_MIN_QUERIES:
        yield Finding(
            audit_input.judgments.source,
            "few queries",
            n < MIN_QUERIES,
            n,
            f"{pluralise(n, 'judged query')}: fewer than {RECOMMENDED_MIN_QUERIES} rarely distinguish two systems",
        )
    if len(scores) < 2:
        return
    first = str(audit_input.main_measure)
    better = -1 if audit_input.main_measure.spec.lower_is_better else 1
    best = max(scores, key=lambda run: better * _nan_as_worst(scores[run].means[first], better))
    other_runs = [run for run in scores if run != best]
    named = next(iter(scores.values())).measures if len(scores) == 2 else [first]
    rows = [(run, name, _estimate_power(scores[best], scores[run], name)) for run in other_runs for name in named]
    small = {run: estimate for run, name, estimate in rows if name == first and estimate.is_small}
    undetected = {run: estimate for run, estimate in small.items() if not estimate.is_significant}
    detected = {run: estimate for run, estimate in small.items() if estimate.is_significant}
    two = len(scores) == 2
    header = ["measure" if two else f"{best} against", "difference", "p", f"{n} queries find", "it needs"]
    grid = FindingTable(
        header,
        [[name if two else run, *estimate.shown()] for run, name, estimate in rows],
        ["name", "signed", "p", "score", "count"],
    )
    if undetected:
        message = (
            f"{first} ranks {best} above {_runs_text(undetected)}, but the difference is not significant in a "
            f"paired test on {pluralise(n, 'query')} at {SIGNIFICANCE_LEVEL:g}: the order of the runs is not "
            f"established"
        )
        yield Finding(
            best,
            "query count",
            problem=True,
            count=len(undetected),
            message=message,
            table=grid,
            remedy=_power_remedy(undetected),
        )
    if detected:
        minimum, needed = (
            _range_text(values, template)
            for values, template in (
                ([estimate.detectable for estimate in detected.values()], "{:.4f}"),
                ([estimate.needed_queries for estimate in detected.values()], "{:,}"),
            )
        )
        message = (
            f"{best} is better than {_runs_text(detected)} by {first}, but {'the' if len(detected) == 1 else 'each'} "
            f"difference is smaller than what {pluralise(n, 'query')} detect with 80% power ({minimum}): its size is "
            f"uncertain; {needed} queries would detect it"
        )
        yield Finding(best, "query count", problem=False, count=len(detected), message=message, table=grid)
    if not small:
        message = f"{n} queries are enough to detect the differences between {best} and the others by {first}"
        yield Finding(best, "query count", problem=False, count=0, message=message, table=grid)


def _runs_text(estimates: Mapping[str, PowerEstimate]) -> str:
    """List the first few runs, with the difference and its p-value."""
    return join_names(
        [
            f"{run} ({format_number(estimate.difference, 'signed')}, p {format_number(estimate.p, 'p')})"
            for run, estimate in estimates.items()
        ],
        MAX_RUNS_NAMED,
    )


def _range_text(values: Sequence[float | None], template: str) -> str:
    known_values = [value for value in values if value is not None]
    if not known_values:
        return "more than ten million"
    low, high = template.format(min(known_values)), template.format(max(known_values))
    return low if low == high else f"{low} to {high}"


def _power_remedy(unseen: Mapping[str, PowerEstimate]) -> str:
    needed = _range_text([estimate.needed_queries for estimate in unseen.values()], "{:,}")
    return f"report no significant difference, or judge more: {needed} queries detect it with 80% power"


def _nan_as_worst(value: float, better: int) -> float:
    return -math.inf * better if math.isnan(value) else value


class PowerEstimate(NamedTuple):
    """Power of a paired test for one difference."""

    difference: float = math.nan
    p: float = math.nan
    detectable: float = math.nan
    """Smallest difference detected with 80% power."""
    needed_queries: int | None = None
    """Number of queries needed to detect this difference with 80% power; None if unknown."""

    @property
    def is_small(self) -> bool:
        """Whether the difference is not zero but below the detectable one."""
        return 0 < abs(self.difference) < self.detectable

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant."""
        return self.p < SIGNIFICANCE_LEVEL

    def shown(self) -> list[str | float | None]:
        """Return the cells of a row: difference, p-value, detectable one, queries needed."""
        if math.isnan(self.difference):
            return [None, None, None, None]
        return [self.difference, none_if_nan(self.p), none_if_nan(self.detectable), self.needed_queries]


def _estimate_power(best: Scores, other: Scores, name: str) -> PowerEstimate:
    from scipy.special import stdtr

    gap = best.values[name] - other.values[name]
    gap = gap[~np.isnan(gap)]
    if len(gap) < 2:
        return PowerEstimate()
    mean, spread = float(gap.mean()), float(gap.std(ddof=1))
    if spread < 1e-15:
        return PowerEstimate(mean, detectable=0.0)
    p = float(2 * stdtr(len(gap) - 1, -abs(mean) / (spread / math.sqrt(len(gap)))))
    needed = queries_needed(spread, mean) if abs(mean) > 1e-12 else None
    return PowerEstimate(mean, p, detectable_difference(spread, len(gap)), needed)
