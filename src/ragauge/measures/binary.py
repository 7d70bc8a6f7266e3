"""Binary measures of ranks: precision, recall, reciprocal rank, average precision and variants.

Every function takes judged ranks and returns one value per judged query. `rel` is the minimum relevant grade.
Unjudged documents are not relevant. Ties were ordered when the ranks were computed. A query without relevant
documents gets 0 here; the convention's `none` is applied afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import Floats, Ints
from ragauge.measures import tie_expectation
from ragauge.measures.judged_ranks import JudgedRanks

DISTANCE_SLACK = 1e-12
"""Absolute tolerance for distances; a relative one has no effect if the k-th exact neighbour is at distance 0."""


def relevant_retrieved(judged: JudgedRanks, k: int | None, rel: float) -> Floats:
    """Count the relevant documents in the first k of each query."""
    relevant = judged.relevant(rel)
    if k is None:
        return relevant.n_returned.astype(np.float64)
    if judged.averaged:
        is_relevant = judged.grade >= rel
        return judged.count(
            judged.query[is_relevant], tie_expectation.mean_discount(judged, np.ones(k + 1))[is_relevant]
        )
    return judged.count(relevant.query[relevant.rank <= k])


def safe_divide(numerator: Floats | Ints, denominator: Floats | Ints) -> Floats:
    """Divide element by element; 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=np.asarray(denominator) != 0)


def precision(judged: JudgedRanks, k: int | None = None, *, of: str = "k", rel: float = 1) -> Floats:
    """Share of the first k documents that are relevant.

    Formula: |relevant in the first k| / k. Without k, and with `of=retrieved`, over what was retrieved.
    Rule: in a ranking shorter than k, the empty ranks count as not relevant. At k = 0 it is 0.
    Paper: Cleverdon, Mills and Keen (1966), Factors Determining the Performance of Indexing Systems.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 2.0, "x": 1.0}}, ["precision@2", "precision@4"]).means
    {'precision@2': 0.5, 'precision@4': 0.25}
    """
    n_relevant = relevant_retrieved(judged, k, rel)
    if k is None:
        return safe_divide(n_relevant, judged.retrieved)
    return safe_divide(n_relevant, np.full(judged.n, k) if of == "k" else np.minimum(judged.retrieved, k))


def recall(
    judged: JudgedRanks, k: int | None = None, *, of: str = "relevant", rel: float = 1, eps: float = 0.001
) -> Floats:
    """Share of the relevant documents that are in the first k.

    Formula: |relevant in the first k| / R. `of=capped` divides by min(k, R); `of=k` counts only the k best judged
    documents (best grade first, then in input order: the exact neighbours) and divides by k; `of=eps` counts
    documents whose distance is within (1 + eps) of the k-th exact one (and 1e-12, which matters only near 0) and
    divides by k: `eps=1e-06` allows only for ties and rounding.
    Rule: 0 if no document is relevant. `of=eps` needs exact distances, and run scores that are negative distances; the
    minimum relevant grade is not used: distances decide.
    Paper: Cleverdon, Mills and Keen (1966); Aumüller, Bernhardsson and Faithfull (2020), ANN-Benchmarks.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> qrels, run = {"q": {d: 1 for d in "abcde"}}, {"q": {"a": 3.0, "b": 2.0, "x": 1.0}}
    >>> evaluate(qrels, run, ["recall@2", "recall(of=capped)@2"]).means
    {'recall@2': 0.4, 'recall(of=capped)@2': 1.0}
    """
    if of in ("k", "eps"):
        if k is None:
            raise BadInput(f"recall(of={of}) needs a cutoff", hint=f"use recall(of={of})@10")
        if of == "eps":
            return _recall_within_epsilon(judged, k, eps)
        is_true_neighbour = (judged.pool_position[judged.row] < k) & (judged.grade >= rel)
        if judged.averaged:
            return (
                judged.count(
                    judged.query[is_true_neighbour],
                    tie_expectation.mean_discount(judged, np.ones(k + 1))[is_true_neighbour],
                )
                / k
            )
        return judged.count(judged.query[is_true_neighbour & (judged.rank <= k)]) / k
    total = judged.relevant(rel).total
    return safe_divide(
        relevant_retrieved(judged, k, rel), total if of == "relevant" or k is None else np.minimum(total, k)
    )


def _recall_within_epsilon(judged: JudgedRanks, k: int, eps: float) -> Floats:
    values = np.zeros(judged.n)
    for i, (exact_distances, distances) in enumerate(true_and_returned_distances(judged, k, "recall(of=eps)")):
        if len(exact_distances):
            values[i] = np.count_nonzero(distances <= within_epsilon(exact_distances[-1], eps)) / k
    return values


def within_epsilon(bar: Floats, eps: float) -> Floats:
    """Return the largest distance within a factor of (1 + eps) of a distance.

    Inner products as distances are negative; the limit is always above the distance.

    >>> within_epsilon(np.array([2.0, -2.0, 0.0, -np.inf]), 0.1).round(9).tolist()
    [2.2, -1.8, 0.0, -inf]
    """
    return np.asarray(bar + eps * np.abs(np.where(np.isfinite(bar), bar, 0.0)) + DISTANCE_SLACK)


def true_and_returned_distances(judged: JudgedRanks, k: int, measure: str) -> Iterator[tuple[Floats, Floats]]:
    """Yield the distances of the k exact and the first k returned neighbours.

    There is one pair of arrays per query. Duplicate documents are counted once. Raises `MissingEvidence` without
    exact distances.
    """
    if judged.judgments.distances is None or judged.top is None:
        raise MissingEvidence(
            f"{measure} needs the distances of the true neighbours",
            hint="make the judgments with ragauge.judgments_from_neighbours(ids, distances)",
        )
    for query, ids, scores in zip(judged.pool.queries, judged.top.ids, judged.top.scores, strict=True):
        distance_by_doc = {doc: -score for doc, score in reversed(list(zip(ids[:k], scores[:k].tolist(), strict=True)))}
        true_distances = np.asarray(judged.judgments.distances[query][:k], np.float64)
        yield true_distances, np.sort(np.fromiter(distance_by_doc.values(), np.float64, len(distance_by_doc)))


def hit_rate(judged: JudgedRanks, k: int | None = None, *, rel: float = 1) -> Floats:
    """Share of queries with a relevant document in the first k.

    Formula: 1 if |relevant in the first k| > 0, else 0. trec_eval calls it success.
    Rule: a query without relevant documents is 0.
    Paper: Craswell and Hawking (2004), Overview of the TREC Web Track, as success@n.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["hit_rate@1", "hit_rate@2"]).means
    {'hit_rate@1': 0.0, 'hit_rate@2': 1.0}
    """
    if judged.averaged and k is not None:
        return tie_expectation.hit_rate(judged, k, rel)
    return (relevant_retrieved(judged, k, rel) > 0).astype(np.float64)


def reciprocal_rank(judged: JudgedRanks, k: int | None = None, *, rel: float = 1) -> Floats:
    """Reciprocal of the rank of the first relevant document; 0 if none is returned.

    Formula: 1 / rank of the first document graded `rel` or more; with k, 0 if that rank is beyond k.
    Rule: only the first relevant document counts. The depth is part of the name.
    Paper: Voorhees (1999), The TREC-8 Question Answering Track Report.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 3.0, "y": 2.0, "a": 1.0}}, ["mrr@2", "mrr@4"]).per_query["mrr@4"]["q"]
    0.3333333333333333
    """
    if judged.averaged:
        return tie_expectation.reciprocal_rank(judged, k, rel)
    relevant = judged.relevant(rel)
    first = relevant.nth == 1
    if k is not None:
        first &= relevant.rank <= k
    values = np.zeros(judged.n)
    values[relevant.query[first]] = 1 / relevant.rank[first]
    return values


def average_precision(judged: JudgedRanks, k: int | None = None, *, of: str = "relevant", rel: float = 1) -> Floats:
    """Mean of the precisions at the ranks of the relevant documents.

    Formula: sum over relevant ranks r <= k of precision@r, divided by R; `of=capped` by min(k, R); `of=found` by the
    number of relevant documents in the first k (RAGAS context precision, torchmetrics).
    Rule: all relevant documents count in the denominator unless `of` says otherwise.
    Paper: Buckley and Voorhees (2000), Evaluating Evaluation Measure Stability.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 3.0, "x": 2.0, "b": 1.0}}, ["map"]).means
    {'map': 0.8333333333333333}
    """
    relevant = judged.relevant(rel)
    within = np.ones(len(relevant.rank), np.bool_) if k is None else relevant.rank <= k
    if judged.averaged and of == "found" and k is not None:
        return tie_expectation.precision_of_found(judged, k, rel)
    if judged.averaged:
        total = tie_expectation.precision_sum(judged, k, rel)
    else:
        total = judged.count(relevant.query[within], relevant.nth[within] / relevant.rank[within])
    if of == "found":
        return safe_divide(total, relevant_retrieved(judged, k, rel))
    n_possible = relevant.total if of == "relevant" or k is None else np.minimum(relevant.total, k)
    return safe_divide(total, n_possible)


def f1(
    judged: JudgedRanks,
    k: int | None = None,
    *,
    of: str = "queries",
    precision_of: str = "k",
    recall_of: str = "relevant",
    rel: float = 1,
) -> Floats:
    """Harmonic mean of precision and recall at k.

    Formula: 2PR / (P + R) per query; `of=means` uses mean precision and mean recall; `precision_of` and `recall_of`
    are the options `of` of precision and recall.
    Rule: 0 if both are 0.
    Paper: van Rijsbergen (1979), Information Retrieval, chapter 7.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 2.0, "x": 1.0}}, ["f1@2"]).means
    {'f1@2': 0.5}
    """
    del of  # used for the aggregation over queries in measures.scoring
    p, r = precision(judged, k, of=precision_of, rel=rel), recall(judged, k, of=recall_of, rel=rel)
    return safe_divide(2 * p * r, p + r)


def r_precision(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Precision at R, the number of relevant documents.

    Formula: |relevant in the first R| / R.
    Rule: each query has its own cutoff.
    Paper: Buckley and Voorhees (2005), Retrieval System Evaluation, in: TREC, MIT Press.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 3.0, "x": 2.0, "b": 1.0}}, ["r_precision"]).means
    {'r_precision': 0.5}
    """
    return r_precision_mult(judged, 1.0, rel=rel, up=0.0)


def r_precision_mult(judged: JudgedRanks, k: float, *, rel: float = 1, up: float = 0.9) -> Floats:
    """Precision at a multiple of R, the number of relevant documents.

    Formula: |relevant in the first c| / c with c = floor(k R + 0.9), as trec_eval's Rprec_mult.
    Rule: 0 if the cutoff is 0.
    Paper: trec_eval, m_Rprec_mult.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 3.0, "x": 2.0, "b": 1.0}}, ["rprec_mult@2"]).means
    {'rprec_mult@2': 0.5}
    """
    relevant = judged.relevant(rel)
    cutoffs = np.floor(k * relevant.total + up)
    return safe_divide(judged.count(relevant.query[relevant.rank <= cutoffs[relevant.query]]), cutoffs)


def relative_precision(judged: JudgedRanks, k: int, *, rel: float = 1) -> Floats:
    """Precision at k relative to the highest possible precision at k.

    Formula: |relevant in the first k| / min(k, R).
    Rule: equal to recall(of=capped)@k; trec_eval's relative_P.
    Paper: trec_eval, m_relative_P.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["relative_precision@5"]).means
    {'relative_precision@5': 1.0}
    """
    return recall(judged, k, of="capped", rel=rel)


def interpolated_precision(judged: JudgedRanks, k: float, *, rel: float = 1, points: str = "round") -> Floats:
    """Highest precision at any rank with a recall of at least k.

    Formula: max of precision@r over the ranks r with at least c relevant documents, c = round(k R).
    Rule: 0 if fewer than c relevant documents are returned. `points=up` uses c = floor(k R + 0.9), as trec_eval did
    up to version 9.
    Paper: Salton and McGill (1983), Introduction to Modern Information Retrieval.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 3.0, "x": 2.0, "b": 1.0}}, ["iprec_at_recall@1"]).means
    {'iprec_at_recall@1': 0.6666666666666666}
    """
    relevant = judged.relevant(rel)
    exact_count = k * relevant.total
    # A half rounds away from zero, as C's lround does.
    required = np.floor(exact_count + 0.5) if points == "round" else np.floor(exact_count + 0.9)
    values = np.zeros(judged.n)
    if len(relevant.rank):
        is_reached = relevant.nth >= required[relevant.query]
        np.maximum.at(values, relevant.query[is_reached], relevant.nth[is_reached] / relevant.rank[is_reached])
    return np.where(relevant.n_returned >= np.maximum(required, 1), values, 0.0)


ELEVEN_RECALL_LEVELS = tuple(level / 10 for level in range(11))


def eleven_point_average(
    judged: JudgedRanks, *, rel: float = 1, points: str = "round", levels: tuple[float, ...] = ELEVEN_RECALL_LEVELS
) -> Floats:
    """Mean of the interpolated precisions at recall 0, 0.1, … 1.

    Formula: mean of iprec_at_recall over the levels (others can be given: `11pt_avg(levels=0.2/0.5/0.8)`).
    Rule: a level counts 0 if too few relevant documents are returned to reach it.
    Paper: Salton and McGill (1983), Introduction to Modern Information Retrieval.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["11pt_avg"]).means
    {'11pt_avg': 1.0}
    """
    precisions = [interpolated_precision(judged, level, rel=rel, points=points) for level in levels]
    total: Floats = np.sum(precisions, axis=0)
    return total / len(levels)


def yaap(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Yet another average precision: average precision as log odds.

    Formula: log((1 + s) / (1 + R - s)) with s the sum of the precisions at the relevant ranks.
    Rule: 0 if no document is relevant.
    Paper: Robertson (2012), On Smoothing Average Precision, ECIR.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> round(evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["yaap"]).means["yaap"], 6)
    0.693147
    """
    relevant = judged.relevant(rel)
    total = judged.count(relevant.query, relevant.nth / relevant.rank)
    return np.log((1 + total) / (1 + relevant.total - total))


def relative_distance_error(judged: JudgedRanks, k: int) -> Floats:
    """Relative increase in distance of the neighbours found over the exact ones.

    Formula: mean over ranks r <= k of found distance / true distance - 1.
    Rule: lower is better; a query missing from the run is unscored, since 0 would be perfect. A true distance of 0
    is left out; unfilled ranks count as the largest found (or true) distance. The minimum relevant grade is not used:
    distances decide.
    Paper: Patella and Ciaccia (2008), The Many Facets of Approximate Similarity Search.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> from ragauge.files.in_memory import judgments_from_neighbours as neighbours
    >>> truth = neighbours([["a", "b"]], [[1.0, 2.0]], queries=["q"])
    >>> evaluate(truth, {"q": {"a": -1.0, "c": -3.0}}, ["relative_distance_error@2"]).means
    {'relative_distance_error@2': 0.25}
    """
    values = np.full(judged.n, np.nan)
    for i, (exact_distances, returned_distances) in enumerate(
        true_and_returned_distances(judged, k, "relative_distance_error")
    ):
        is_positive = exact_distances > 0
        if judged.answered[i] and len(exact_distances):
            worst = max([*returned_distances.tolist(), exact_distances[-1]])
            padded_distances = np.concatenate(
                [returned_distances, np.full(max(0, len(exact_distances) - len(returned_distances)), worst)]
            )[: len(exact_distances)]
            values[i] = (
                (padded_distances[is_positive] / exact_distances[is_positive] - 1).mean() if is_positive.any() else 0.0
            )
    return values
