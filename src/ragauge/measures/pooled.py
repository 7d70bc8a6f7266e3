"""Measures that depend on which documents were judged: preferences, inferred AP, share of judged documents.

A negative grade means pooled but unjudged, as in trec_eval.
"""

from __future__ import annotations

import numpy as np

from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranking import ratio
from ragauge.records import Floats, Ints


def _running(judged: JudgedRanks, chosen: Floats) -> Floats:
    """Count for each judged document the chosen ones above it in its query."""
    before = np.cumsum(chosen) - chosen
    return before - before[np.searchsorted(judged.query, judged.query)] if len(chosen) else before


def bpref(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Share of relevant documents ranked above judged non-relevant ones.

    Formula: mean over relevant documents of 1 - min(non-relevant above, R) / min(N, R); those not returned count 0.
    Rule: only judged documents count; a relevant document without judged non-relevant ones above it counts 1.
    Paper: Buckley and Voorhees (2004), Retrieval Evaluation with Incomplete Information.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1, "n": 0}}, {"q": {"n": 2.0, "a": 1.0}}, ["bpref"]).means
    {'bpref': 0.0}
    """
    relevant = judged.relevant(rel)
    wrong = (judged.grade >= 0) & (judged.grade < rel)
    above = _running(judged, wrong.astype(np.float64))
    good = judged.grade >= rel
    query = judged.query[good]
    pool = judged.pool
    nonrelevant = np.bincount(pool.owner[(pool.grades >= 0) & (pool.grades < rel)], minlength=judged.n)
    worst = np.minimum(nonrelevant, relevant.total)[query]
    each = 1 - ratio(np.minimum(above[good], relevant.total[query]), worst)
    return ratio(judged.count(query, each), relevant.total)


EPSILON = 0.00001


def inferred_ap(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Average precision estimated from a judged sample of the pool.

    Formula: mean over relevant documents at rank r of 1/r + (r-1)/r * (pooled above / (r-1)) * (relevant above + e) /
    (relevant above + non-relevant above + 2e), e = 0.00001; those not returned count 0.
    Rule: pooled but unjudged documents (negative grades) count as pooled; documents outside the pool as not relevant.
    Paper: Yilmaz and Aslam (2006), Estimating Average Precision with Incomplete and Imperfect Judgments.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["infap"]).means
    {'infap': 1.0}
    """
    good = judged.grade >= rel
    wrong = (judged.grade >= 0) & (judged.grade < rel)
    right_above = _running(judged, good.astype(np.float64))[good]
    wrong_above = _running(judged, wrong.astype(np.float64))[good]
    pooled_above = _running(judged, np.ones(len(good)))[good]
    rank = judged.rank[good].astype(np.float64)
    share = (right_above + EPSILON) / (right_above + wrong_above + 2 * EPSILON)
    each = np.where(rank == 1, 1.0, 1 / rank + pooled_above / rank * share)
    return ratio(judged.count(judged.query[good], each), judged.relevant(rel).total)


def judged_share(judged: JudgedRanks, k: int) -> Floats:
    """Share of the first k documents that are judged.

    Formula: |judged in the first k| / min(k, retrieved), as ir_measures' Judged@k.
    Rule: a negative grade is unjudged; 0 if nothing was returned.
    Paper: Lu, Moffat and Culpepper (2016), The Effect of Pooling and Evaluation Depth on IR Metrics.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["judged@10"]).means
    {'judged@10': 0.5}
    """
    return ratio(_judged_in(judged, k), np.minimum(judged.retrieved, k))


def unjudged_share(judged: JudgedRanks, k: int) -> Floats:
    """Share of the first k ranks that hold an unjudged document.

    Formula: |unjudged in the first k| / k.
    Rule: empty ranks are not unjudged; trec_eval's unj.
    Paper: trec_eval, m_unjudged.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["unjudged@10"]).means
    {'unjudged@10': 0.1}
    """
    return (np.minimum(judged.retrieved, k) - _judged_in(judged, k)) / k


def _judged_in(judged: JudgedRanks, k: int) -> Floats:
    return judged.count(judged.query[(judged.grade >= 0) & (judged.rank <= k)])


def judged_nonrelevant_retrieved(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Number of returned documents that are judged not relevant.

    Formula: |returned and graded 0 or more, below `rel`|.
    Rule: a count; summed over queries.
    Paper: trec_eval, m_num_nonrel_judged_ret.c.

    >>> from ragauge import evaluate
    >>> evaluate({"q": {"a": 1, "n": 0}}, {"q": {"n": 2.0, "a": 1.0}}, ["num_nonrel_judged_ret"]).means
    {'num_nonrel_judged_ret': 1.0}
    """
    wrong: Ints = judged.query[(judged.grade >= 0) & (judged.grade < rel)]
    return judged.count(wrong)
