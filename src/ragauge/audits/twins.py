"""Documents that say the same: found, and treated as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ragauge.audits.effects import regraded, renamed
from ragauge.audits.texts import SHINGLE, normalised, shingles, words
from ragauge.errors import MissingExtra
from ragauge.records import Document, Ints, Judgments, Run

NEAR = 0.8
"""Near-twins share at least this part of all shingles that either of them has."""
BANDS, ROWS = 21, 6
"""A pair at that part is looked at with a chance of 1 - (1 - 0.8^6)^21 = 0.998."""

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
    groups: dict[str, dict[str, None]] = {}
    for document in documents:
        groups.setdefault(normalised(document.whole), {})[document.id] = None
    empty = list(groups.pop("", {}))
    return [list(group) for group in groups.values() if len(group) > 1], empty


def alike(documents: Sequence[Document]) -> list[Alike]:
    """The groups of documents that share NEAR of their shingles with the first of their group.

    Candidates come from MinHash signatures, and each is confirmed on the shingles themselves. Comparing with the first
    of a group only keeps a chain of small changes from joining texts that have nothing in common.
    """
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        raise MissingExtra("looking for near-duplicates", "audit") from None
    texts = [document.whole for document in documents]
    hashed = _hashed(texts)
    known = [place for place, one in enumerate(hashed) if len(one)]
    sketches = MinHash.bulk((hashed[place].tolist() for place in known), num_perm=BANDS * ROWS, hashfunc=int)
    index = MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
    signatures = np.stack([one.hashvalues for one in sketches]) if sketches else np.zeros((0, BANDS * ROWS))
    found: dict[int, dict[int, float]] = {}
    exact: dict[int, frozenset[tuple[str, ...]]] = {}
    for row, place in enumerate(known):
        candidates = np.array(sorted(index.query(sketches[row])), np.int64)
        close = (signatures[candidates] == signatures[row]).mean(axis=1) >= NEAR - 0.15 if len(candidates) else []
        best, leader = 0.0, -1
        for other in candidates[close].tolist():
            for one in (row, other):
                if one not in exact:
                    exact[one] = shingles(texts[known[one]])
            part = len(exact[row] & exact[other]) / len(exact[row] | exact[other])
            if part > best:
                best, leader = part, other
        if best >= NEAR:
            found.setdefault(leader, {})[place] = best
        else:
            index.insert(row, sketches[row], check_duplication=False)
    return [
        Alike([documents[place].id for place in (known[leader], *others)], min(others.values()))
        for leader, others in sorted(found.items())
    ]


def _hashed(texts: Sequence[str]) -> list[Ints]:
    """A number of 32 bits for each shingle of each text; the same in every process, as Python's own hash is not."""
    numbers: dict[str, int] = {}
    found = []
    for text in texts:
        mine = np.array([numbers.setdefault(word, len(numbers) + 1) for word in words(text)], np.uint64)
        if len(mine) < SHINGLE:
            mine = np.concatenate([mine, np.zeros(SHINGLE - len(mine), np.uint64)]) if len(mine) else mine
        mixed = np.zeros(max(0, len(mine) - SHINGLE + 1), np.uint64)
        for start in range(SHINGLE if len(mine) else 0):
            mixed = (mixed ^ mine[start : start + len(mixed)]) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        found.append(np.unique(mixed >> np.uint64(32)).astype(np.int64))
    return found


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
