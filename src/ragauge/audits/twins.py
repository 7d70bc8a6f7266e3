"""Groups of duplicate documents: find them and treat each as one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragauge import twins
from ragauge.audits.effects import regraded, renamed
from ragauge.records import Document, Judgments, Run
from ragauge.twins import NEAR

__all__ = ["NEAR", "Alike", "Group", "Split", "alike", "collapsed", "collapsed_run", "same", "shared", "splits"]

Group = Sequence[str]
"""Ids of duplicate documents, in corpus order."""


class Alike(NamedTuple):
    """Ids of a group of near-duplicate documents, with their similarity."""

    group: Group
    part: float
    """Lowest share of shingles that a document of the group shares with the first one."""


class Split(NamedTuple):
    """Query with inconsistent judgments of a duplicate group.

    One document is relevant, another is less relevant or unjudged.
    """

    query: str
    group: Group
    grades: dict[str, float]
    """Grades of the documents of the group that are judged for the query."""

    @property
    def contradicts(self) -> bool:
        """Return whether two documents of the group have different grades."""
        return len(set(self.grades.values())) > 1


def same(documents: Sequence[Document]) -> tuple[list[Group], list[str]]:
    """Return groups of documents with equal texts, and ids of empty documents.

    Title and text are compared after normalisation.
    """
    groups, empty = twins.same([document.whole for document in documents])
    return [[documents[place].id for place in group] for group in groups], [documents[place].id for place in empty]


def alike(documents: Sequence[Document]) -> list[Alike]:
    """Return groups of near-duplicate documents.

    Each shares at least `NEAR` of its shingles with the first one of the group.
    """
    found = twins.alike([document.whole for document in documents])
    return [Alike([documents[place].id for place in one.group], one.part) for one in found]


def splits(judgments: Judgments, groups: Sequence[Group], rel: float) -> Iterator[Split]:
    """Find queries with inconsistent judgments of a group.

    One document is relevant; others are graded differently or unjudged.
    """
    at = {doc: group for group in groups for doc in group}
    for query, docs in judgments.nested.items():
        seen = {id(at[doc]): at[doc] for doc, grade in docs.items() if doc in at and grade >= rel}
        for group in seen.values():
            grades = {doc: docs[doc] for doc in group if doc in docs}
            if len(grades) < len(group) or len(set(grades.values())) > 1:
                yield Split(query, group, grades)


def shared(judgments: Judgments, found: Sequence[Split], *, judged_only: bool = False) -> Judgments:
    """Give all documents of each group its best grade, or only the judged ones."""
    grades = {query: dict(docs) for query, docs in judgments.nested.items()}
    for one in found:
        best = max(one.grades.values())
        for doc in one.grades if judged_only else one.group:
            grades[one.query][doc] = best
    return regraded(judgments, grades)


def collapsed(judgments: Judgments, groups: Sequence[Group]) -> Judgments:
    """Replace each group by its first document, with the best grade of the group."""
    return renamed(judgments, {doc: group[0] for group in groups for doc in group})


def collapsed_run(run: Run, groups: Sequence[Group]) -> Run:
    """Replace each group in a run by its first document, at its best position."""
    import polars as pl

    first = {doc: group[0] for group in groups for doc in group}
    table = run.table.with_columns(pl.col("doc").replace(first))
    best = table.filter(pl.col("score") == pl.col("score").max().over("query", "doc"))
    return replace(run, table=best.unique(["query", "doc"], keep="first", maintain_order=True))
