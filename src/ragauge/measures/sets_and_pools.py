"""Measures of the returned set and of judged pools: set precision, bpref, infAP."""

from __future__ import annotations

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.measures.binary import relevant_retrieved, safe_divide
from ragauge.measures.judged_ranks import JudgedRanks


def _count_above(judged: JudgedRanks, counted: Floats) -> Floats:
    """Count for each judged document the chosen ones above it in its query."""
    n_above = np.cumsum(counted) - counted
    return n_above - n_above[np.searchsorted(judged.query, judged.query)] if len(counted) else n_above


def bpref(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Share of relevant documents ranked above judged non-relevant ones.

    Formula: mean over relevant documents of 1 - min(non-relevant above, R) / min(N, R); those not returned count 0.
    Rule: only judged documents count; a relevant document without judged non-relevant ones above it counts 1.
    Paper: Buckley and Voorhees (2004), Retrieval Evaluation with Incomplete Information.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "n": 0}}, {"q": {"n": 2.0, "a": 1.0}}, ["bpref"]).means
    {'bpref': 0.0}
    """
    relevant = judged.relevant(rel)
    is_nonrelevant = (judged.grade >= 0) & (judged.grade < rel)
    n_above = _count_above(judged, is_nonrelevant.astype(np.float64))
    is_relevant = judged.grade >= rel
    query = judged.query[is_relevant]
    pool = judged.pool
    nonrelevant = np.bincount(pool.owner[(pool.grades >= 0) & (pool.grades < rel)], minlength=judged.n)
    max_above = np.minimum(nonrelevant, relevant.total)[query]
    document_scores = 1 - safe_divide(np.minimum(n_above[is_relevant], relevant.total[query]), max_above)
    return safe_divide(judged.count(query, document_scores), relevant.total)


INFAP_EPSILON = 0.00001


def inferred_ap(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Average precision estimated from a judged sample of the pool.

    Formula: mean over relevant documents at rank r of 1/r + (r-1)/r * (pooled above / (r-1)) * (relevant above + e) /
    (relevant above + non-relevant above + 2e), e = 0.00001; those not returned count 0.
    Rule: pooled but unjudged documents (negative grades) count as pooled; documents outside the pool as not relevant.
    Paper: Yilmaz and Aslam (2006), Estimating Average Precision with Incomplete and Imperfect Judgments.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["infap"]).means
    {'infap': 1.0}
    """
    is_relevant = judged.grade >= rel
    is_nonrelevant = (judged.grade >= 0) & (judged.grade < rel)
    relevant_above = _count_above(judged, is_relevant.astype(np.float64))[is_relevant]
    nonrelevant_above = _count_above(judged, is_nonrelevant.astype(np.float64))[is_relevant]
    pooled_above = _count_above(judged, np.ones(len(is_relevant)))[is_relevant]
    rank = judged.rank[is_relevant].astype(np.float64)
    share = (relevant_above + INFAP_EPSILON) / (relevant_above + nonrelevant_above + 2 * INFAP_EPSILON)
    document_scores = np.where(rank == 1, 1.0, 1 / rank + pooled_above / rank * share)
    return safe_divide(judged.count(judged.query[is_relevant], document_scores), judged.relevant(rel).total)


def judged_share(judged: JudgedRanks, k: int) -> Floats:
    """Share of the first k documents that are judged.

    Formula: |judged in the first k| / min(k, retrieved), as ir_measures' Judged@k.
    Rule: a negative grade is unjudged; 0 if nothing was returned. The minimum relevant grade is not used: only whether
    documents are judged counts.
    Paper: Lu, Moffat and Culpepper (2016), The Effect of Pooling and Evaluation Depth on IR Metrics.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["judged@10"]).means
    {'judged@10': 0.5}
    """
    return safe_divide(_count_judged(judged, k), np.minimum(judged.retrieved, k))


def unjudged_share(judged: JudgedRanks, k: int) -> Floats:
    """Share of the first k ranks that hold an unjudged document.

    Formula: |unjudged in the first k| / k.
    Rule: empty ranks are not unjudged; trec_eval's unj. The minimum relevant grade is not used: only whether documents
    are judged counts.
    Paper: trec_eval, m_unjudged.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["unjudged@10"]).means
    {'unjudged@10': 0.1}
    """
    return (np.minimum(judged.retrieved, k) - _count_judged(judged, k)) / k


def _count_judged(judged: JudgedRanks, k: int) -> Floats:
    query, rank = judged.judged_hits
    return judged.count(query[rank <= k])


def judged_nonrelevant_retrieved(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Number of returned documents that are judged not relevant.

    Formula: |returned and graded 0 or more, below `rel`|.
    Rule: a count; summed over queries.
    Paper: trec_eval, m_num_nonrel_judged_ret.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "n": 0}}, {"q": {"n": 2.0, "a": 1.0}}, ["num_nonrel_judged_ret"]).means
    {'num_nonrel_judged_ret': 1.0}
    """
    nonrelevant_queries: Ints = judged.query[(judged.grade >= 0) & (judged.grade < rel)]
    return judged.count(nonrelevant_queries)


def num_ret(judged: JudgedRanks) -> Floats:
    """Number of documents returned.

    Formula: the length of the ranking.
    Rule: a count; summed over queries. The minimum relevant grade is not used: every document counts.
    Paper: trec_eval, m_num_ret.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["num_ret"]).means
    {'num_ret': 2.0}
    """
    return judged.retrieved.astype(np.float64)


def num_q(judged: JudgedRanks) -> Floats:
    """Number of queries that are scored.

    Formula: 1 for each query.
    Rule: a count; summed over queries. The minimum relevant grade is not used: every query counts.
    Paper: trec_eval, m_num_q.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}, "r": {"b": 1}}, {"q": {"a": 1.0}, "r": {}}, ["num_q"]).means
    {'num_q': 2.0}
    """
    return np.ones(judged.n)


def num_rel(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Number of relevant documents.

    Formula: R, the number of documents graded `rel` or more.
    Rule: a count; summed over queries, including those missing from the run.
    Paper: trec_eval, m_num_rel.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0}}, ["num_rel"]).means
    {'num_rel': 1.0}
    """
    return judged.relevant(rel).total.astype(np.float64)


def num_rel_ret(judged: JudgedRanks, k: int | None = None, *, rel: float = 1) -> Floats:
    """Number of relevant documents returned.

    Formula: |relevant and returned|, with k |relevant in the first k|.
    Rule: a count; summed over queries.
    Paper: trec_eval, m_num_rel_ret.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 1.0}}, ["num_rel_ret"]).means
    {'num_rel_ret': 1.0}
    """
    return relevant_retrieved(judged, k, rel)


def hits(judged: JudgedRanks, k: int | None = None, *, rel: float = 1) -> Floats:
    """Mean number of relevant documents returned.

    Formula: |relevant and returned|, with k |relevant in the first k|.
    Rule: averaged over queries, as in ranx; num_rel_ret is the sum.
    Paper: Bassani (2022), ranx: A Blazing-Fast Python Library for Ranking Evaluation, ECIR.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}, "r": {"b": 1}}, {"q": {"a": 1.0}, "r": {"x": 1.0}}, ["hits@10"]).means
    {'hits@10': 0.5}
    """
    return relevant_retrieved(judged, k, rel)


def set_precision(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Share of the returned documents that are relevant.

    Formula: |relevant and returned| / returned.
    Rule: 0 if nothing was returned.
    Paper: Cleverdon, Mills and Keen (1966), Factors Determining the Performance of Indexing Systems.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_precision"]).means
    {'set_precision': 0.5}
    """
    return safe_divide(judged.relevant(rel).n_returned, judged.retrieved)


def set_recall(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Share of the relevant documents that were returned.

    Formula: |relevant and returned| / R.
    Rule: 0 if no document is relevant.
    Paper: Cleverdon, Mills and Keen (1966), Factors Determining the Performance of Indexing Systems.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 1.0}}, ["set_recall"]).means
    {'set_recall': 0.5}
    """
    return safe_divide(judged.relevant(rel).n_returned, judged.relevant(rel).total)


def set_relative_precision(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Set precision relative to the highest possible for a set of that size.

    Formula: |relevant and returned| / min(returned, R).
    Rule: 0 if nothing was returned or no document is relevant.
    Paper: trec_eval, m_set_rel_P.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_relative_precision"]).means
    {'set_relative_precision': 1.0}
    """
    relevant = judged.relevant(rel)
    return safe_divide(relevant.n_returned, np.minimum(judged.retrieved, relevant.total))


def set_map(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Set precision times set recall.

    Formula: |relevant and returned|² / (returned x R).
    Rule: 0 if either is 0.
    Paper: trec_eval, m_set_map.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_map"]).means
    {'set_map': 0.5}
    """
    return set_precision(judged, rel=rel) * set_recall(judged, rel=rel)


def set_f(judged: JudgedRanks, *, rel: float = 1, beta: float = 1) -> Floats:
    """Harmonic mean of set precision and set recall, with weight `beta` for recall.

    Formula: (beta + 1) P R / (R + beta P); beta is not squared, as in trec_eval.
    Rule: 0 if no relevant document was returned.
    Paper: van Rijsbergen (1979), Information Retrieval, chapter 7.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> round(evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_f"]).means["set_f"], 6)
    0.666667
    """
    p, r = set_precision(judged, rel=rel), set_recall(judged, rel=rel)
    return safe_divide((beta + 1) * p * r, r + beta * p)


def utility(judged: JudgedRanks, *, rel: float = 1, weights: tuple[float, ...] = (1.0, -1.0, 0.0, 0.0)) -> Floats:
    """Weighted count of relevant and non-relevant documents, returned and missed.

    Formula: w1 x relevant returned + w2 x other returned + w3 x relevant missed + w4 x others missed.
    Rule: the size of the corpus is unknown, so the last count is minus the number of known documents; 0 for queries
    missing from the run.
    Paper: Lewis (1996), The TREC-4 Filtering Track; trec_eval, m_utility.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "y": 1.5, "a": 1.0}}, ["utility"]).means
    {'utility': -1.0}
    """
    a, b, c, d = weights
    relevant, returned = judged.relevant(rel), judged.retrieved
    n_relevant, total = relevant.n_returned, relevant.total
    utilities = (
        a * n_relevant + b * (returned - n_relevant) + c * (total - n_relevant) + d * (n_relevant - returned - total)
    )
    return np.where(judged.answered, utilities, 0.0)
