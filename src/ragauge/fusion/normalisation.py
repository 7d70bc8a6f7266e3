"""Normalisation of retrieval scores per query, and the order of fused documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import gt

from ragauge.core.errors import BadInput, UnknownName

Ranking = dict[str, float]
"""Score of each document of one query, best first: the position in the dictionary is the rank."""


def to_ranking(scores: Mapping[str, float]) -> Ranking:
    """Convert scores to a ranking of finite floats, best first.

    Equal scores are ordered by document id, descending, as in trec_eval.

    >>> to_ranking({"a": 1, "c": 2, "b": 2})
    {'c': 2.0, 'b': 2.0, 'a': 1.0}
    """
    return sort_ranking(check_scores(scores))


SMALLEST_MODERATE_SCORE, LARGEST_MODERATE_SCORE = 1e-140, 1e140
"""Range in which sums of squares of scores are exact enough."""


def check_scores(scores: Mapping[str, float]) -> Ranking:
    """Copy the scores as floats, in input order.

    Raises `BadInput` if one is not finite.
    """
    plain = set(map(type, scores.values())) <= {float}
    if not plain or not math.isfinite(sum(scores.values())):
        _check_finite(scores)
    return dict(scores) if plain else {doc: float(score) for doc, score in scores.items()}


def avoid_overflow(ranking: Ranking) -> Ranking:
    """Multiply extreme scores by a power of two, so that differences and squares neither overflow nor become 0."""
    largest = max(map(abs, ranking.values()), default=0.0)
    if largest == 0 or SMALLEST_MODERATE_SCORE < largest < LARGEST_MODERATE_SCORE:
        return ranking
    exponent = -math.frexp(largest)[1]
    return {doc: math.ldexp(score, exponent) for doc, score in ranking.items()}


def sort_ranking(ranking: Ranking) -> Ranking:
    """Sort a ranking best first; equal scores by document id, descending."""
    values = list(ranking.values())
    if all(map(gt, values, values[1:])):  # most rankings are sorted already, and this check is cheap
        return ranking
    docs = sorted(ranking, reverse=True)
    docs.sort(key=ranking.__getitem__, reverse=True)  # the sort is stable, so ids decide among equal scores
    return dict(zip(docs, map(ranking.__getitem__, docs), strict=True))


def _check_finite(scores: Mapping[str, float]) -> None:
    for doc, score in scores.items():
        try:
            is_finite = math.isfinite(score)
        except (TypeError, OverflowError):
            is_finite = False
        if not is_finite:
            raise BadInput(
                f"the score of document `{doc}` must be a finite number, got {score!r}",
                hint="remove documents without a score from the ranking",
            )


def all_documents(rankings: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(doc for ranking in rankings for doc in ranking))


def scores_by_document(rankings: Sequence[Ranking]) -> dict[str, list[float]]:
    """Collect the scores of each document, in the order of the rankings."""
    scores: dict[str, list[float]] = {}
    for ranking in rankings:
        for doc, score in ranking.items():
            if doc in scores:
                scores[doc].append(score)
            else:
                scores[doc] = [score]
    return scores


def sum_scores(rankings: Sequence[Ranking], weights: Sequence[float] | None = None) -> Ranking:
    """Sum each document's scores, multiplied by the weights if given.

    A sum of two floats does not depend on their order. With three or more rankings `math.fsum` rounds once, so that
    documents with the same scores from different rankings tie exactly, in any order of the rankings.
    """
    if len(rankings) > 2:
        parts = apply_weights(rankings, weights) if weights else rankings
        return {doc: math.fsum(scores) for doc, scores in scores_by_document(parts).items()}
    total: Ranking = {}
    for ranking, weight in zip(rankings, weights or (1.0, 1.0), strict=False):
        if not total:
            total = {doc: weight * score for doc, score in ranking.items()} if weights else dict(ranking)
            continue
        current_score = total.get
        for doc, score in ranking.items():
            total[doc] = current_score(doc, 0.0) + weight * score
    return total


def map_ranks(ranking: Ranking, value: Callable[[int], float]) -> Ranking:
    """Map each document to a value of its rank, from 1."""
    return dict(zip(ranking, map(value, range(1, len(ranking) + 1)), strict=True))


def normalised_weights(weights: Sequence[float] | None, rankings: Sequence[Ranking]) -> Sequence[float]:
    """Return the weights, or equal weights that sum to 1 if none are given."""
    return weights or [1 / len(rankings)] * len(rankings)


def apply_weights(rankings: Sequence[Ranking], weights: Sequence[float]) -> list[Ranking]:
    """Multiply every score by the weight of its ranking."""
    return [{doc: w * s for doc, s in ranking.items()} for ranking, w in zip(rankings, weights, strict=True)]


def borda_points(rankings: Sequence[Ranking]) -> list[Ranking]:
    """Compute Borda points of each ranking.

    The first of n documents gets n points, and unranked documents share the rest.

    >>> borda_points([{"a": 9.0, "b": 8.0}, {"c": 5.0}])
    [{'a': 3.0, 'b': 2.0, 'c': 1.0}, {'c': 3.0, 'b': 1.5, 'a': 1.5}]
    """
    candidates = sorted(all_documents(rankings), reverse=True)
    n = len(candidates)
    points = []
    for ranking in rankings:
        returned_points = map_ranks(ranking, lambda rank: float(n - rank + 1))
        missing_points = (n - len(ranking) + 1) / 2
        points.append(returned_points | {doc: missing_points for doc in candidates if doc not in returned_points})
    return points


Rankings = Sequence[Ranking]


def keep_scores(rankings: Rankings) -> Rankings:
    return rankings


def min_max(rankings: Rankings) -> Rankings:
    """Scale the best score to 1 and the worst to 0; equal scores become 0.

    >>> min_max([{"a": 5.0, "b": 2.0, "c": 1.0}])
    [{'a': 1.0, 'b': 0.25, 'c': 0.0}]
    """
    return [_scale_scores(r, low := min(r.values()), max(r.values()) - low) if r else r for r in rankings]


def min_max_found(rankings: Rankings) -> Rankings:
    """Scale the best score to 1 and the worst to 0.

    If all scores are equal, they become 1.

    >>> min_max_found([{"a": 5.0}, {"a": 2.0, "b": 1.0}])
    [{'a': 1.0}, {'a': 1.0, 'b': 0.0}]
    """
    return [
        scaled if any(scaled.values()) else dict.fromkeys(scaled, 1.0) for scaled in (min_max([r])[0] for r in rankings)
    ]


def min_max_inverted(rankings: Rankings) -> Rankings:
    """Scale the lowest score to 1 and the highest to 0, for distances.

    >>> min_max_inverted([{"far": 5.0, "near": 1.0}])
    [{'near': 1.0, 'far': 0.0}]
    """
    inverted = []
    for ranking in rankings:
        high = max(ranking.values(), default=0.0)
        # Invert before scaling, so that ranks follow the distances even if scaling rounds two of them to one value.
        gaps = sort_ranking({doc: high - score for doc, score in ranking.items()})
        inverted.append(_scale_scores(gaps, 0.0, max(gaps.values(), default=0.0)))
    return inverted


def scale_by_max(rankings: Rankings) -> Rankings:
    """Divide each score by the best one; raises `BadInput` if it is not positive.

    >>> scale_by_max([{"a": 4.0, "b": 1.0}])
    [{'a': 1.0, 'b': 0.25}]
    """
    for ranking in rankings:
        best = max(ranking.values(), default=0.0)
        if best < 0 or (best == 0 and any(ranking.values())):
            raise BadInput(
                f"`max` needs a best score above 0, got {best:g}",
                hint="use min-max, which accepts any scores",
            )
    return [_scale_scores(r, 0.0, max(r.values())) if r else r for r in rankings]


def scale_by_sum(rankings: Rankings) -> Rankings:
    """Shift the worst score to 0 and scale the scores to a sum of 1.

    >>> scale_by_sum([{"a": 4.0, "b": 2.0, "c": 1.0}])
    [{'a': 0.75, 'b': 0.25, 'c': 0.0}]
    """
    scaled = []
    for ranking in rankings:
        low = min(ranking.values(), default=0.0)
        scaled.append(_scale_scores(ranking, low, math.fsum(score - low for score in ranking.values())))
    return scaled


def zmuv(rankings: Rankings) -> Rankings:
    """Scale the scores to zero mean and unit variance.

    >>> zmuv([{"a": 3.0, "b": 1.0}])
    [{'a': 1.0, 'b': -1.0}]
    """
    scaled = []
    for ranking in rankings:
        n = max(len(ranking), 1)
        mean = math.fsum(ranking.values()) / n
        deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in ranking.values()) / n)
        is_constant = len(set(ranking.values())) < 2  # the mean of equal floats may differ from them in the last digit
        scaled.append(_scale_scores(ranking, mean, 0.0 if is_constant else deviation))
    return scaled


def scale_by_rank(rankings: Rankings) -> Rankings:
    """Give the first of n documents 1, and each further one 1/n less.

    >>> scale_by_rank([{"a": 90.0, "b": 2.0}])
    [{'a': 1.0, 'b': 0.5}]
    """
    return [{doc: 1 - position / len(ranking) for position, doc in enumerate(ranking)} for ranking in rankings]


def borda(rankings: Rankings) -> Rankings:
    """Divide Borda points by their maximum.

    Documents missing from a ranking share its remaining points.

    >>> borda([{"a": 9.0, "b": 8.0}, {"b": 5.0}])
    [{'a': 1.0, 'b': 0.5}, {'b': 1.0, 'a': 0.5}]
    """
    points = borda_points(rankings)
    return [{doc: score / len(ranking_points) for doc, score in ranking_points.items()} for ranking_points in points]


def _scale_scores(ranking: Ranking, start: float, unit: float) -> Ranking:
    """Subtract `start` from scores and divide by `unit`; a unit of 0 gives 0."""
    if unit == 0:
        return dict.fromkeys(ranking, 0.0)
    return {doc: (score - start) / unit for doc, score in ranking.items()}


@dataclass(frozen=True)
class Normalisation:
    """Normalisation method with its name and description."""

    name: str
    function: Callable[[Rankings], Rankings]
    description: str
    """One-line description."""
    uses_ranks: bool = False
    """Whether rankings must be sorted best first."""


NORMALISATIONS = {
    row.name: row
    for row in (
        Normalisation("none", keep_scores, "scores stay as they are"),
        Normalisation("min-max", min_max, "best 1, worst 0"),
        Normalisation("min-max-found", min_max_found, "best 1, worst 0; a single document, or all tied, 1"),
        Normalisation("min-max-inverted", min_max_inverted, "lowest 1, highest 0: for distances"),
        Normalisation("max", scale_by_max, "a share of the best score"),
        Normalisation("sum", scale_by_sum, "worst 0, and all sum to 1"),
        Normalisation("zmuv", zmuv, "zero mean, unit variance"),
        Normalisation("rank", scale_by_rank, "first 1, then evenly down to 1/n", uses_ranks=True),
        Normalisation("borda", borda, "Borda points; absent documents share the rest", uses_ranks=True),
    )
}
"""Normalisations by name."""


def find_normalisation(name: str) -> Normalisation:
    """Find a normalisation by name, written with - or _."""
    normalisation = NORMALISATIONS.get(name) or NORMALISATIONS.get(name.strip().lower().replace("_", "-"))
    if normalisation is None:
        raise UnknownName("normalisation", name, NORMALISATIONS)
    return normalisation
