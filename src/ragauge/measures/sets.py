"""Measures of the returned set, independent of rank: counts, set precision and recall, utility."""

from __future__ import annotations

import numpy as np

from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranking import hits, ratio
from ragauge.records import Floats


def num_ret(judged: JudgedRanks) -> Floats:
    """Number of documents returned.

    Formula: the length of the ranking.
    Rule: a count; summed over queries.
    Paper: trec_eval, m_num_ret.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["num_ret"]).means
    {'num_ret': 2.0}
    """
    return judged.retrieved.astype(np.float64)


def num_q(judged: JudgedRanks) -> Floats:
    """Number of queries that are scored.

    Formula: 1 for each query.
    Rule: a count; summed over queries.
    Paper: trec_eval, m_num_q.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}, "r": {"b": 1}}, {"q": {"a": 1.0}, "r": {}}, ["num_q"]).means
    {'num_q': 2.0}
    """
    return np.ones(judged.n)


def num_rel(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Number of relevant documents.

    Formula: R, the number of documents graded `rel` or more.
    Rule: a count; summed over queries, including those missing from the run.
    Paper: trec_eval, m_num_rel.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0}}, ["num_rel"]).means
    {'num_rel': 1.0}
    """
    return judged.relevant(rel).total.astype(np.float64)


def num_rel_ret(judged: JudgedRanks, k: int | None = None, *, rel: float = 1) -> Floats:
    """Number of relevant documents returned.

    Formula: |relevant and returned|, with k |relevant in the first k|.
    Rule: a count; summed over queries.
    Paper: trec_eval, m_num_rel_ret.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 1.0}}, ["num_rel_ret"]).means
    {'num_rel_ret': 1.0}
    """
    return hits(judged, k, rel)


def set_precision(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Share of the returned documents that are relevant.

    Formula: |relevant and returned| / returned.
    Rule: 0 if nothing was returned.
    Paper: Cleverdon, Mills and Keen (1966), Factors Determining the Performance of Indexing Systems.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_precision"]).means
    {'set_precision': 0.5}
    """
    return ratio(judged.relevant(rel).found, judged.retrieved)


def set_recall(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Share of the relevant documents that were returned.

    Formula: |relevant and returned| / R.
    Rule: 0 if no document is relevant.
    Paper: Cleverdon, Mills and Keen (1966), Factors Determining the Performance of Indexing Systems.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 1.0}}, ["set_recall"]).means
    {'set_recall': 0.5}
    """
    return ratio(judged.relevant(rel).found, judged.relevant(rel).total)


def set_relative_precision(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Set precision relative to the highest possible for a set of that size.

    Formula: |relevant and returned| / min(returned, R).
    Rule: 0 if nothing was returned or no document is relevant.
    Paper: trec_eval, m_set_rel_P.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_relative_precision"]).means
    {'set_relative_precision': 1.0}
    """
    relevant = judged.relevant(rel)
    return ratio(relevant.found, np.minimum(judged.retrieved, relevant.total))


def set_map(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Set precision times set recall.

    Formula: |relevant and returned|² / (returned x R).
    Rule: 0 if either is 0.
    Paper: trec_eval, m_set_map.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_map"]).means
    {'set_map': 0.5}
    """
    return set_precision(judged, rel=rel) * set_recall(judged, rel=rel)


def set_f(judged: JudgedRanks, *, rel: float = 1, beta: float = 1) -> Floats:
    """Harmonic mean of set precision and set recall, with weight `beta` for recall.

    Formula: (beta + 1) P R / (R + beta P); beta is not squared, as in trec_eval.
    Rule: 0 if no relevant document was returned.
    Paper: van Rijsbergen (1979), Information Retrieval, chapter 7.

    >>> from ragauge import evaluate
    >>> round(evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["set_f"]).means["set_f"], 6)
    0.666667
    """
    p, r = set_precision(judged, rel=rel), set_recall(judged, rel=rel)
    return ratio((beta + 1) * p * r, r + beta * p)


def utility(judged: JudgedRanks, *, rel: float = 1, weights: tuple[float, ...] = (1.0, -1.0, 0.0, 0.0)) -> Floats:
    """Weighted count of relevant and non-relevant documents, returned and missed.

    Formula: w1 x relevant returned + w2 x other returned + w3 x relevant missed + w4 x others missed.
    Rule: the size of the corpus is unknown, so the last count is minus the number of known documents; 0 for queries
    missing from the run.
    Paper: Lewis (1996), The TREC-4 Filtering Track; trec_eval, m_utility.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "y": 1.5, "a": 1.0}}, ["utility"]).means
    {'utility': -1.0}
    """
    a, b, c, d = weights
    relevant, returned = judged.relevant(rel), judged.retrieved
    found, total = relevant.found, relevant.total
    worth = a * found + b * (returned - found) + c * (total - found) + d * (found - returned - total)
    return np.where(judged.answered, worth, 0.0)
