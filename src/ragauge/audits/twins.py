"""Documents that say the same: found, and treated as one."""

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
"""The ids of documents that say the same, in the order of the corpus."""


class Alike(NamedTuple):
    """A group of near-twins."""

    group: Group
    part: float
    """The least part of their shingles that one of them shares with the first."""


class Split(NamedTuple):
    """A query that treats the documents of a group differently: one is relevant, another is not known to be as good."""

    query: str
    group: Group
    grades: dict[str, float]
    """Of the documents of the group that the query has judged."""

    @property
    def contradicts(self) -> bool:
        """Whether two of them were judged, and differently."""
        return len(set(self.grades.values())) > 1


def same(documents: Sequence[Document]) -> tuple[list[Group], list[str]]:
    """The groups of documents with the same title and text, normalised; and the documents that have neither."""
    groups, empty = twins.same([document.whole for document in documents])
    return [[documents[place].id for place in group] for group in groups], [documents[place].id for place in empty]


def alike(documents: Sequence[Document]) -> list[Alike]:
    """The groups of documents that share NEAR of their shingles with the first of their group."""
    found = twins.alike([document.whole for document in documents])
    return [Alike([documents[place].id for place in one.group], one.part) for one in found]


def splits(judgments: Judgments, groups: Sequence[Group], rel: float) -> Iterator[Split]:
    """The queries that do not treat all documents of a group alike, where that matters: one of them is relevant."""
    at = {doc: group for group in groups for doc in group}
    for query, docs in judgments.nested.items():
        seen = {id(at[doc]): at[doc] for doc, grade in docs.items() if doc in at and grade >= rel}
        for group in seen.values():
            grades = {doc: docs[doc] for doc in group if doc in docs}
            if len(grades) < len(group) or len(set(grades.values())) > 1:
                yield Split(query, group, grades)


def shared(judgments: Judgments, found: Sequence[Split], *, judged_only: bool = False) -> Judgments:
    """The judgments where all documents of a split group have its best grade, or only those that have one."""
    grades = {query: dict(docs) for query, docs in judgments.nested.items()}
    for one in found:
        best = max(one.grades.values())
        for doc in one.grades if judged_only else one.group:
            grades[one.query][doc] = best
    return regraded(judgments, grades)


def collapsed(judgments: Judgments, groups: Sequence[Group]) -> Judgments:
    """The judgments where each group is its first document, with its best grade."""
    return renamed(judgments, {doc: group[0] for group in groups for doc in group})


def collapsed_run(run: Run, groups: Sequence[Group]) -> Run:
    """The run where each group is its first document, at the best place that one of them had."""
    import polars as pl

    first = {doc: group[0] for group in groups for doc in group}
    table = run.table.with_columns(pl.col("doc").replace(first))
    best = table.filter(pl.col("score") == pl.col("score").max().over("query", "doc"))
    return replace(run, table=best.unique(["query", "doc"], keep="first", maintain_order=True))
