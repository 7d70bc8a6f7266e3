"""Input of the audit checks, and the effect of a flaw on the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.findings import FindingTable
from ragauge.core.protocols import Embedder
from ragauge.core.records import Judgments, Run, RunFrames, Scores, ScoresByQuery, have_different_rankings
from ragauge.evaluation.evaluate import average_trials
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks, rules_for_rows
from ragauge.measures.judged_ranks_from_frames import compute_ranks_from_frames
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks

UNLIMITED_DEPTH = 1 << 31


@dataclass(frozen=True, eq=False)
class AuditInput:
    """Input of the audit checks.

    A check that requires a field that is None is skipped with a reason.
    """

    judgments: Judgments
    runs: Mapping[str, Run]
    measures: Sequence[Measure]
    convention: Convention
    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    repeats: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Further runs of a system over the same queries, by the name of the system."""
    undefined: Sequence[Measure] = ()
    """Requested measures that are left out because their cutoff exceeds the k of some run."""
    claims: Sequence[tuple[str, str]] = ()
    """Pairs of a measure and a published score to explain, as text with its digits."""
    embedder: Embedder | None = None
    """Embedder whose token limit the documents are compared with."""
    _ranks_cache: dict[tuple[Any, ...], JudgedRanks] = field(default_factory=dict, repr=False)
    _trials_cache: dict[str, Sequence[Run]] = field(default_factory=dict, repr=False)

    @property
    def has_judgments(self) -> bool:
        """Whether there are judgments; otherwise only the corpus is audited."""
        return len(self.judgments) > 0

    @property
    def main_measure(self) -> Measure:
        """The main measure, used where only one can be shown."""
        return self.measures[0]

    def trials(self, run: str) -> Sequence[Run]:
        """Return all trials of a run if their rankings differ, else only the first."""
        if run not in self._trials_cache:
            trials = [self.runs[run], *self.repeats.get(run, ())]
            self._trials_cache[run] = trials if have_different_rankings(trials) else trials[:1]
        return self._trials_cache[run]

    def first_trials(self) -> AuditInput:
        """Return the input with the first trial of each run only, for checks that analyse a single ranking."""
        return replace(self, repeats={}, _trials_cache={})

    def judged(
        self,
        run: str | RunFrames,
        *,
        convention: Convention | None = None,
        judgments: Judgments | None = None,
        top: int = 0,
        trial: int = 0,
    ) -> JudgedRanks:
        """Return the judged ranks of a run, given or by name; of a run with several trials those of one trial.

        Optionally under another convention or with other judgments. Ranks of a named run are cached and shared by
        all conventions that rank documents in the same order.
        """
        chosen_convention = convention or self.convention
        if not isinstance(run, str):
            return self._judge_ranks(run, chosen_convention, judgments, top)
        source = self.trials(run)[trial] if trial else self.runs[run]
        if judgments is not None:
            return replace(self._judge_ranks(source, chosen_convention, judgments, top), name=run)
        key = (run, trial, top, *ranking_options(chosen_convention))
        if key not in self._ranks_cache:
            self._ranks_cache[key] = replace(self._judge_ranks(source, chosen_convention, None, top), name=run)
        return self._ranks_cache[key]

    def _judge_ranks(
        self, run: RunFrames, convention: Convention, judgments: Judgments | None, top: int
    ) -> JudgedRanks:
        judged_ranks = compute_ranks_from_frames(
            judgments or self.judgments, run, rules_for_rows(convention, run), top=top
        )
        timings = run.timings if isinstance(run, Run) else None
        if timings is not None:  # Empty and failed results are results too, and must stay in the mean.
            executed_queries = set(timings["query"].to_list())
            is_executed = np.array([query in executed_queries for query in judged_ranks.pool.queries], np.bool_)
            judged_ranks = replace(judged_ranks, answered=judged_ranks.answered | is_executed)
        return judged_ranks

    def scores(
        self,
        run: str | RunFrames,
        *,
        convention: Convention | None = None,
        judgments: Judgments | None = None,
        measures: Sequence[Measure] | None = None,
        change: Callable[[Run], Run] | None = None,
    ) -> Scores:
        """Score a run, optionally by another convention, judgments or measures, or with its rows changed.

        The scores of a named run are means over its trials.
        """
        chosen_convention, chosen_measures = convention or self.convention, measures or self.measures
        top = top_documents_needed(chosen_measures)
        sources: Sequence[str | RunFrames] = [run]
        if isinstance(run, str):
            trials = self.trials(run)
            sources = [run] * len(trials) if change is None else [change(trial) for trial in trials]
        judged = [
            self.judged(source, convention=convention, judgments=judgments, top=top, trial=trial)
            for trial, source in enumerate(sources)
        ]
        return average_trials([score_judged_ranks(ranks, chosen_measures, chosen_convention) for ranks in judged])


def ranking_options(convention: Convention) -> tuple[Any, ...]:
    """Return the options of a convention that affect the rank of a document."""
    return (
        convention.ties,
        convention.width,
        convention.own,
        convention.unjudged,
        convention.depth,
        convention.duplicates,
        convention.unit,
    )


def top_documents_needed(measures: Sequence[Measure]) -> int:
    """Return how many top documents per query the measures need.

    0 if judged ranks are enough.
    """
    options = [dict(measure.options) for measure in measures]
    deep = [
        int(measure.cutoff or 0)
        for measure, chosen in zip(measures, options, strict=True)
        if measure.spec.needs_top or chosen.get("of") == "eps"
    ]
    # If duplicates are removed before the cutoff, documents far below it can move above it.
    return (
        0 if not deep else UNLIMITED_DEPTH if any(option.get("dedupe") == "before" for option in options) else max(deep)
    )


FixScorers = Mapping[str, Callable[[str], Scores]]
"""Functions that score a run, given its name, with a flaw fixed; keys complete a sentence after "when"."""
VISIBLE_CHANGE = 0.001
"""Smallest change of a mean that counts as visible: the third decimal."""
MAX_RUNS_NAMED = 4
"""Maximum number of runs named in a sentence; the grid lists all of them."""


def describe_effect(audit_input: AuditInput, fixes: FixScorers) -> tuple[str, FindingTable | None]:
    """Describe the effect of fixes on the scores.

    Returns a sentence on the first measure and a grid of all measures. Without runs or fixes, the sentence is empty
    and the grid None. If no score changes, the sentence says so and the grid is None.
    """
    if not audit_input.runs or not fixes:
        return "", None
    before = {run: audit_input.scores(run) for run in audit_input.runs}
    after = {fix: {run: compute_scores(run) for run in audit_input.runs} for fix, compute_scores in fixes.items()}
    measure = str(audit_input.main_measure)
    parts = []
    for fix, scores in after.items():
        if _is_unchanged(before, scores):
            parts.append(f"scores do not change if {fix}")
            continue
        moves = [
            f"of {run} {_change_text(before[run], scores[run], measure)}"
            for run in list(audit_input.runs)[:MAX_RUNS_NAMED]
        ]
        parts.append(f"{measure} {', '.join(moves)}{', …' if len(audit_input.runs) > MAX_RUNS_NAMED else ''} if {fix}")
    if all(_is_unchanged(before, scores) for scores in after.values()):
        return "; ".join(parts), None
    same = all(scores[run].n == before[run].n for scores in after.values() for run in audit_input.runs)
    header, rows = ["run", "measure", "score"], []
    for fix in after:
        header += [fix] if same else ["n", fix]
    for run in audit_input.runs:
        for name in before[run].measures:
            cells: list[str | float | None] = [run, name, none_if_nan(before[run].means[name])]
            was = before[run]
            for scores in after.values():
                cells += [] if same else [was.n[name]]
                cells.append(none_if_nan(scores[run].means[name]))
                was = scores[run]
            rows.append(cells if same else [*cells, was.n[name]])
    return "; ".join(parts), FindingTable(header if same else [*header, "n"], rows)


def _change_text(before: Scores, after: Scores, measure: str) -> str:
    """Describe a change of a mean, with the numbers of queries if they differ."""
    old, new = before.means[measure], after.means[measure]
    if before.n[measure] == after.n[measure]:
        return (
            f"stays {_format_mean(old)}"
            if _format_mean(old) == _format_mean(new)
            else f"{_format_mean(old)} to {_format_mean(new)}"
        )
    return f"{_format_mean(old)} (n={before.n[measure]}) to {_format_mean(new)} (n={after.n[measure]})"


def _is_unchanged(before: Mapping[str, Scores], after: Mapping[str, Scores]) -> bool:
    """Return whether all means and numbers of queries are unchanged.

    Means are compared to four decimals.
    """
    return all(
        scores.n == after[run].n
        and all(_format_mean(scores.means[m]) == _format_mean(after[run].means[m]) for m in scores.measures)
        for run, scores in before.items()
    )


def largest_change(audit_input: AuditInput, compute_scores: Callable[[str], Scores]) -> float:
    """Return the largest absolute change of any mean of any run; NaN if there is none."""
    moves = [math.nan]
    for run in audit_input.runs:
        before, after = audit_input.scores(run), compute_scores(run)
        moves += [abs(after.means[name] - before.means[name]) for name in before.measures]
    return max((move for move in moves if not math.isnan(move)), default=math.nan)


def drop_if_unchanged(grid: FindingTable, columns: slice) -> FindingTable | None:
    """Return a grid, or None if the given columns are equal in every row.

    Numbers are compared to four decimals.

    >>> drop_if_unchanged(FindingTable(["measure", "first", "every"], [["map", 0.5, 0.50001]]), slice(1, 3)) is None
    True
    """
    figures = [
        {cell if isinstance(cell, str | None) else _format_mean(cell) for cell in row[columns]} for row in grid.rows
    ]
    return None if all(len(figure) < 2 for figure in figures) else grid


def _format_mean(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def none_if_nan(value: float) -> float | None:
    """Return the number, or None for NaN."""
    return None if math.isnan(value) else value


def replace_grades(judgments: Judgments, grades: ScoresByQuery) -> Judgments:
    """Replace the grades of judgments; target maps and subtopics are kept."""
    return Judgments(
        grades,
        subtopics=judgments.subtopics,
        targets=judgments.targets,
        distances=judgments.distances,
        source=judgments.source,
    )


def rename_documents(judgments: Judgments, names: Mapping[str, str]) -> Judgments:
    """Rename judged documents.

    If two documents of a query become one, the better grade is kept.
    """
    grades: dict[str, dict[str, float]] = {}
    for query, docs in judgments.nested.items():
        renamed = grades.setdefault(query, {})
        for doc, grade in docs.items():
            name = names.get(doc, doc)
            renamed[name] = max(grade, renamed.get(name, grade))
    return replace_grades(judgments, grades)


def without_documents(judgments: Judgments, documents: Set[str]) -> Judgments | None:
    """Remove documents from the judgments, and queries that are left without any.

    None if no query is left.
    """
    grades = {
        query: {doc: grade for doc, grade in docs.items() if doc not in documents}
        for query, docs in judgments.nested.items()
    }
    remaining = {query: docs for query, docs in grades.items() if docs or not judgments.nested[query]}
    return replace_grades(judgments, remaining) if remaining else None


def without_queries(judgments: Judgments, queries: Set[str]) -> Judgments | None:
    """Remove queries from the judgments; None if no query is left."""
    remaining = {query: docs for query, docs in judgments.nested.items() if query not in queries}
    return replace_grades(judgments, remaining) if remaining else None


def without_pairs(run: Run, pairs: Mapping[str, Set[str]]) -> Run:
    """Remove given documents of given queries from a run."""
    import polars as pl

    rows = [(query, doc) for query, docs in pairs.items() for doc in docs]
    out = pl.DataFrame(rows, schema={"query": pl.String, "doc": pl.String}, orient="row")
    return replace(run, table=run.table.join(out, on=["query", "doc"], how="anti", maintain_order="left"))
