"""Sorting of rankings, and sums that do not depend on the order of the rankings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import gt

from ragauge.errors import BadInput

Ranking = dict[str, float]
"""Score of each document of one query, best first: the position in the dictionary is the rank."""


def best_first(scores: Mapping[str, float]) -> Ranking:
    """Convert scores to a ranking of finite floats, best first.

    Equal scores are ordered by document id, descending, as in trec_eval.

    >>> best_first({"a": 1, "c": 2, "b": 2})
    {'c': 2.0, 'b': 2.0, 'a': 1.0}
    """
    return in_order(checked(scores))


def checked(scores: Mapping[str, float]) -> Ranking:
    """Copy the scores as floats, in input order.

    Raises `BadInput` if one is not finite.
    """
    plain = set(map(type, scores.values())) <= {float}
    if not plain or not math.isfinite(sum(scores.values())):
        _refuse_odd(scores)
    return dict(scores) if plain else {doc: float(score) for doc, score in scores.items()}


def in_order(ranking: Ranking) -> Ranking:
    """Sort a ranking best first; equal scores by document id, descending."""
    values = list(ranking.values())
    if all(map(gt, values, values[1:])):  # most rankings are sorted already, and this check is cheap
        return ranking
    docs = sorted(ranking, reverse=True)
    docs.sort(key=ranking.__getitem__, reverse=True)  # the sort is stable, so ids decide among equal scores
    return dict(zip(docs, map(ranking.__getitem__, docs), strict=True))


def _refuse_odd(scores: Mapping[str, float]) -> None:
    for doc, score in scores.items():
        try:
            sound = math.isfinite(score)
        except (TypeError, OverflowError):
            sound = False
        if not sound:
            raise BadInput(
                f"the score of document `{doc}` is {score!r}, not a finite number",
                hint="leave documents without a score out of the ranking",
            )


def union(rankings: Iterable[Iterable[str]]) -> list[str]:
    """Return the distinct documents of all rankings."""
    return list(dict.fromkeys(doc for ranking in rankings for doc in ranking))


def gathered(rankings: Sequence[Ranking]) -> dict[str, list[float]]:
    """Collect the scores of each document, in the order of the rankings."""
    found: dict[str, list[float]] = {}
    for ranking in rankings:
        for doc, score in ranking.items():
            if doc in found:
                found[doc].append(score)
            else:
                found[doc] = [score]
    return found


def added(rankings: Sequence[Ranking], weights: Sequence[float] | None = None) -> Ranking:
    """Sum each document's scores, multiplied by the weights if given.

    A sum of two floats does not depend on their order. With three or more rankings `math.fsum` rounds once, so that
    documents with the same scores from different rankings tie exactly, in any order of the rankings.
    """
    if len(rankings) > 2:
        parts = weighted(rankings, weights) if weights else rankings
        return {doc: math.fsum(scores) for doc, scores in gathered(parts).items()}
    total: Ranking = {}
    for ranking, weight in zip(rankings, weights or (1.0, 1.0), strict=False):
        if not total:
            total = {doc: weight * score for doc, score in ranking.items()} if weights else dict(ranking)
            continue
        before = total.get
        for doc, score in ranking.items():
            total[doc] = before(doc, 0.0) + weight * score
    return total


def by_rank(ranking: Ranking, value: Callable[[int], float]) -> Ranking:
    """Map each document to a value of its rank, from 1."""
    return dict(zip(ranking, map(value, range(1, len(ranking) + 1)), strict=True))


def shares(weights: Sequence[float] | None, rankings: Sequence[Ranking]) -> Sequence[float]:
    """Return the weights, or equal weights that sum to 1 if none are given."""
    return weights or [1 / len(rankings)] * len(rankings)


def weighted(rankings: Sequence[Ranking], weights: Sequence[float]) -> list[Ranking]:
    """Multiply every score by the weight of its ranking."""
    return [{doc: w * s for doc, s in ranking.items()} for ranking, w in zip(rankings, weights, strict=True)]


def borda_points(rankings: Sequence[Ranking]) -> list[Ranking]:
    """Compute Borda points of each ranking.

    The first of n documents gets n points, and unranked documents share the rest.

    >>> borda_points([{"a": 9.0, "b": 8.0}, {"c": 5.0}])
    [{'a': 3.0, 'b': 2.0, 'c': 1.0}, {'c': 3.0, 'b': 1.5, 'a': 1.5}]
    """
    candidates = sorted(union(rankings), reverse=True)
    n = len(candidates)
    points = []
    for ranking in rankings:
        mine = by_rank(ranking, lambda rank: float(n - rank + 1))
        rest = (n - len(ranking) + 1) / 2
        points.append(mine | {doc: rest for doc in candidates if doc not in mine})
    return points
