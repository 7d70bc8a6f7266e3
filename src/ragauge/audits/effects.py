"""Effect of a flaw on the scores: every run is scored again as if the flaw were fixed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from ragauge.audits.evidence import Evidence
from ragauge.findings import Grid
from ragauge.records import Judgments, Nested, Run, Scores

Mended = Mapping[str, Callable[[str], Scores]]
"""Functions that score a run, given its name, with a flaw fixed; keys complete a sentence after "when"."""
VISIBLE = 0.001
"""Smallest change of a mean that counts as visible: the third decimal."""
NAMED = 4
"""Maximum number of runs named in a sentence; the grid lists all of them."""


def effect(evidence: Evidence, mended: Mended) -> tuple[str, Grid | None]:
    """Describe the effect of fixes on the scores.

    Returns a sentence on the first measure and a grid of all measures. Without runs or fixes, the sentence is empty
    and the grid None. If no score changes, the sentence says so and the grid is None.
    """
    if not evidence.runs or not mended:
        return "", None
    before = {run: evidence.scores(run) for run in evidence.runs}
    after = {way: {run: count(run) for run in evidence.runs} for way, count in mended.items()}
    measure = str(evidence.first)
    parts = []
    for way, scores in after.items():
        if _still(before, scores):
            parts.append(f"no score changes when {way}")
            continue
        moves = [f"of {run} {_move(before[run], scores[run], measure)}" for run in list(evidence.runs)[:NAMED]]
        parts.append(f"{measure} {', '.join(moves)}{', …' if len(evidence.runs) > NAMED else ''} when {way}")
    if all(_still(before, scores) for scores in after.values()):
        return "; ".join(parts), None
    same = all(scores[run].n == before[run].n for scores in after.values() for run in evidence.runs)
    header, rows = ["run", "measure", "as it is"], []
    for way in after:
        header += [way] if same else ["n", way]
    for run in evidence.runs:
        for name in before[run].measures:
            cells: list[str | float | None] = [run, name, number(before[run].means[name])]
            was = before[run]
            for scores in after.values():
                cells += [] if same else [was.n[name]]
                cells.append(number(scores[run].means[name]))
                was = scores[run]
            rows.append(cells if same else [*cells, was.n[name]])
    return "; ".join(parts), Grid(header if same else [*header, "n"], rows)


def _move(before: Scores, after: Scores, measure: str) -> str:
    """Describe a change of a mean, with the numbers of queries if they differ."""
    old, new = before.means[measure], after.means[measure]
    if before.n[measure] == after.n[measure]:
        return f"stays {_shown(old)}" if _shown(old) == _shown(new) else f"{_shown(old)} to {_shown(new)}"
    return f"{_shown(old)} (n={before.n[measure]}) to {_shown(new)} (n={after.n[measure]})"


def _still(before: Mapping[str, Scores], after: Mapping[str, Scores]) -> bool:
    """Return whether all means and numbers of queries are unchanged.

    Means are compared to four decimals.
    """
    return all(
        one.n == after[run].n and all(_shown(one.means[m]) == _shown(after[run].means[m]) for m in one.measures)
        for run, one in before.items()
    )


def largest_move(evidence: Evidence, count: Callable[[str], Scores]) -> float:
    """Return the largest absolute change of any mean of any run; NaN if there is none."""
    moves = [math.nan]
    for run in evidence.runs:
        before, after = evidence.scores(run), count(run)
        moves += [abs(after.means[name] - before.means[name]) for name in before.measures]
    return max((one for one in moves if not math.isnan(one)), default=math.nan)


def unless_still(grid: Grid, columns: slice) -> Grid | None:
    """Return a grid, or None if the given columns are equal in every row.

    Numbers are compared to four decimals.

    >>> unless_still(Grid(["measure", "first", "every"], [["map", 0.5, 0.50001]]), slice(1, 3)) is None
    True
    """
    figures = [{cell if isinstance(cell, str | None) else _shown(cell) for cell in row[columns]} for row in grid.rows]
    return None if all(len(one) < 2 for one in figures) else grid


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def number(value: float) -> float | None:
    """Return the number, or None for NaN."""
    return None if math.isnan(value) else value


def regraded(judgments: Judgments, grades: Nested) -> Judgments:
    """Replace the grades of judgments; target maps and subtopics are kept."""
    return Judgments(
        grades,
        subtopics=judgments.subtopics,
        targets=judgments.targets,
        distances=judgments.distances,
        source=judgments.source,
    )


def renamed(judgments: Judgments, names: Mapping[str, str]) -> Judgments:
    """Rename judged documents.

    If two documents of a query become one, the better grade is kept.
    """
    grades: dict[str, dict[str, float]] = {}
    for query, docs in judgments.nested.items():
        mine = grades.setdefault(query, {})
        for doc, grade in docs.items():
            name = names.get(doc, doc)
            mine[name] = max(grade, mine.get(name, grade))
    return regraded(judgments, grades)


def without_documents(judgments: Judgments, documents: Set[str]) -> Judgments | None:
    """Remove documents from the judgments, and queries that are left without any.

    None if no query is left.
    """
    grades = {
        query: {doc: grade for doc, grade in docs.items() if doc not in documents}
        for query, docs in judgments.nested.items()
    }
    kept = {query: docs for query, docs in grades.items() if docs or not judgments.nested[query]}
    return regraded(judgments, kept) if kept else None


def without_queries(judgments: Judgments, queries: Set[str]) -> Judgments | None:
    """Remove queries from the judgments; None if no query is left."""
    kept = {query: docs for query, docs in judgments.nested.items() if query not in queries}
    return regraded(judgments, kept) if kept else None


def without_pairs(run: Run, pairs: Mapping[str, Set[str]]) -> Run:
    """Remove given documents of given queries from a run."""
    import polars as pl

    rows = [(query, doc) for query, docs in pairs.items() for doc in docs]
    out = pl.DataFrame(rows, schema={"query": pl.String, "doc": pl.String}, orient="row")
    return replace(run, table=run.table.join(out, on=["query", "doc"], how="anti", maintain_order="left"))
