"""Compute judged ranks from nested dictionaries, in batches of queries.

Judged ids are looked up in each query's dictionary. Only the scores are copied, because a rank is one plus the
number of higher scores. Ids are compared only if a judged document is tied.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from struct import error as struct_error
from struct import pack_into

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.records import Floats, Ints, Judgments, ScoresByQuery
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import (
    SELF_RETRIEVED,
    JudgedMatches,
    JudgedRanks,
    RankWithTies,
    build_judged_ranks,
    find_unjudged_queries,
    first_documents,
    rank_scores,
)

SCORES_PER_BATCH = 1 << 17
"""Number of scores per batch: few enough for the CPU cache, enough to amortise the cost of a call."""
MAX_MATCHES_TO_SCAN = 32
"""Maximum number of tied matches for which scanning for equal scores is faster than sorting the query."""
MAX_QUOTED_CHARS = 80
"""Maximum number of characters of an invalid score in an error message."""
MAX_TIE_GROUP_TO_SCAN = 64
"""Maximum number of equal scores for which comparing ids one by one is faster than sorting them."""


def compute_ranks_from_dicts(
    judgments: Judgments, run: ScoresByQuery, convention: Convention, *, top: int = 0, name: str = "run"
) -> JudgedRanks:
    """Compute the ranks of the judged documents in a run.

    `top` is the number of first documents to return per query in addition.
    """
    pool = judgments.pool
    matches = JudgedMatches.none()
    lengths = np.zeros(len(pool.queries), np.int64)
    answered = np.zeros(len(pool.queries), np.bool_)
    firsts: list[Sequence[str]] = [()] * len(pool.queries)
    first_scores: list[Floats] = [np.zeros(0)] * len(pool.queries)
    for batch in _split_batches(judgments.nested, run):
        queries = np.array(batch.queries)
        sizes = np.array(batch.sizes)
        lengths[queries], answered[queries] = sizes, True
        starts = np.concatenate([[0], np.cumsum(sizes)])
        scores, looked_up = _batch_scores(batch, int(starts[-1]), convention)
        segment, row, score = _returned_judged_documents(batch, looked_up, pool.starts, convention)
        ranks = rank_scores(scores, starts, segment, score)
        tie_position = np.zeros(len(row), np.int64)
        if len(ranks.tied):
            tie_positions = _TiePositions(batch, scores, starts, ranks, convention)
            tie_position[ranks.tied] = tie_positions.count_equal_before(
                segment, row - pool.starts[queries[segment]], score
            )
        matches.add(queries[segment], row, tie_position, ranks)
        if top:
            for i, query in enumerate(batch.queries):
                query_scores = scores[starts[i] : starts[i + 1]]
                firsts[query], first_scores[query] = first_documents(
                    list(batch.docs[i]),
                    query_scores,
                    None,
                    top,
                    convention,
                    query=batch.names[i],
                    judged=batch.grades[i],
                )
    return build_judged_ranks(
        judgments,
        convention,
        matches,
        lengths,
        answered,
        name=name,
        unjudged_queries=find_unjudged_queries(run, judgments) if len(run) > answered.sum() else (),
        top=(firsts, first_scores) if top else None,
    )


@dataclass
class QueryBatch:
    """Batch of judged queries that the run contains."""

    names: list[str] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    docs: list[Mapping[str, float]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Number of documents of each query."""
    grades: list[Mapping[str, float]] = field(default_factory=list)


def _split_batches(judged: ScoresByQuery, run: ScoresByQuery) -> Iterator[QueryBatch]:
    """Yield the judged queries of the run in batches of about SCORES_PER_BATCH scores."""
    batch, size = QueryBatch(), 0
    for index, (query, grades) in enumerate(judged.items()):
        docs = run.get(query)
        if docs is None:
            continue
        batch.names.append(query)
        batch.queries.append(index)
        batch.docs.append(docs)
        batch.grades.append(grades)
        batch.sizes.append(len(docs))
        size += len(docs)
        if size >= SCORES_PER_BATCH:
            yield batch
            batch, size = QueryBatch(), 0
    if batch.names:
        yield batch


def _batch_scores(batch: QueryBatch, total: int, convention: Convention) -> tuple[Floats, list[float]]:
    """Return all scores of a batch, and those of the judged documents.

    The latter are NaN if not returned. Judged documents are looked up while the dictionary of their query is in the
    CPU cache. Raises `BadInput` for a score that is not a number.
    """
    looked_up: list[float] = []
    absent = repeat(math.nan)
    packed, end = bytearray(8 * total), 0
    try:
        for docs, grades, size in zip(batch.docs, batch.grades, batch.sizes, strict=True):
            looked_up.extend(map(docs.get, grades, absent))
            pack_into(f"{size}d", packed, end, *docs.values())
            end += 8 * size
        scores = np.frombuffer(packed)
    except (struct_error, OverflowError):
        scores = np.full(1, np.nan)
    if np.isnan(scores).any():
        for query, docs in zip(batch.names, batch.docs, strict=True):
            for doc, score in docs.items():
                if not _is_number(score):
                    quoted_score = repr(score)[:MAX_QUOTED_CHARS]
                    raise BadInput(
                        f"the score of document `{doc}` for query `{query}` must be a number, got {quoted_score}"
                    )
    return _round_scores(scores, convention), looked_up


def _is_number(score: object) -> bool:
    """Return whether a score is a number that fits double precision."""
    try:
        return isinstance(score, int | float | np.number) and not math.isnan(score)
    except OverflowError:
        return False


def _round_scores(scores: Floats, convention: Convention) -> Floats:
    if convention.width == "double":
        return scores
    with np.errstate(over="ignore"):
        return scores.astype(np.float32).astype(np.float64)


def _returned_judged_documents(
    batch: QueryBatch, looked_up: list[float], pool_starts: Ints, convention: Convention
) -> tuple[Ints, Ints, Floats]:
    """Return the judged documents that were returned.

    Returns the position of the query in the batch, the pool row and the score.
    """
    scores = np.fromiter(looked_up, np.float64, len(looked_up))
    queries = np.array(batch.queries)
    sizes = pool_starts[queries + 1] - pool_starts[queries]
    segment = np.repeat(np.arange(len(sizes)), sizes)
    row = np.arange(len(scores)) + (pool_starts[queries] - (np.cumsum(sizes) - sizes))[segment]
    is_returned = ~np.isnan(scores)
    segment, row, scores = segment[is_returned], row[is_returned], scores[is_returned]
    if convention.own == "dropped":
        self_retrieved = [
            (i, docs[q]) for i, (q, docs) in enumerate(zip(batch.names, batch.docs, strict=True)) if q in docs
        ]
        judged = {(i, list(batch.grades[i]).index(q)) for i, q in enumerate(batch.names) if q in batch.grades[i]}
        offset = row - pool_starts[queries[segment]]
        keep = np.array(
            [(i, j) not in judged for i, j in zip(segment.tolist(), offset.tolist(), strict=True)], np.bool_
        )
        segment = np.concatenate([segment[keep], np.array([i for i, _ in self_retrieved], np.int64)])
        row = np.concatenate([row[keep], np.full(len(self_retrieved), SELF_RETRIEVED)])
        scores = np.concatenate([scores[keep], np.array([s for _, s in self_retrieved], np.float64)])
    return segment, row, _round_scores(scores, convention)


@dataclass
class _TiePositions:
    """Count of the documents with equal scores that precede a judged document."""

    batch: QueryBatch
    scores: Floats
    starts: Ints
    ranks: RankWithTies
    convention: Convention

    def count_equal_before(self, segment: Ints, offset: Ints, score: Floats) -> list[int]:
        """Return the number of equal scores before each tied match."""
        tied, by_id = self.ranks.tied, self.convention.ties != "ranked"
        matches_per_query = np.bincount(segment[tied], minlength=len(self.starts) - 1)
        columns = (segment[tied], offset[tied], self.ranks.n_above[tied], self.ranks.n_at_or_above[tied], score[tied])
        positions: list[int] = []
        current_query, keys, judged, query_scores, groups = -1, [""], [""], None, dict[int, list[str]]()
        places: dict[int, dict[str, int]] = {}
        for query, judged_index, low, high, value in zip(*(column.tolist() for column in columns), strict=True):
            if query != current_query:
                current_query, judged, groups, places = query, list(self.batch.grades[query]), {}, {}
                keys, query_scores = self._ordered_ids(query, int(matches_per_query[query]))
            doc = judged[judged_index] if judged_index >= 0 else self.batch.names[query]
            if (group := groups.get(low)) is None:
                equal = (
                    keys[low:high]
                    if query_scores is None
                    else [keys[i] for i in (query_scores == value).nonzero()[0].tolist()]
                )
                group = groups[low] = sorted(equal) if by_id and high - low > MAX_TIE_GROUP_TO_SCAN else equal
            if not by_id:
                if low not in places:
                    places[low] = {tied_doc: place for place, tied_doc in enumerate(group)}
                positions.append(places[low][doc])
            elif high - low > MAX_TIE_GROUP_TO_SCAN:
                positions.append(high - low - bisect_right(group, doc))
            else:
                n_before = 0
                for tied_doc in group:
                    if tied_doc > doc:
                        n_before += 1
                positions.append(n_before)
        return positions

    def _ordered_ids(self, query: int, n_matches: int) -> tuple[list[str], Floats | None]:
        """Return the ids of a query best first.

        If few are tied, in input order with their scores.
        """
        keys = list(self.batch.docs[query])
        if self.ranks.in_order[query]:
            return keys, None
        query_scores = self.scores[self.starts[query] : self.starts[query + 1]]
        if n_matches <= MAX_MATCHES_TO_SCAN:
            return keys, query_scores
        return [keys[i] for i in np.argsort(-query_scores, kind="stable").tolist()], None
