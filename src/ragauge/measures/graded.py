"""Measures of graded relevance: discounted gain and its variants, expected reciprocal rank, rank-biased precision.

`gain` converts a grade to gain: linear (the grade), exp (2^grade - 1), binary (1 if the grade is at least `rel`), or a
table such as `1:3/2:9` (other grades stay linear). Unjudged documents and negative grades have no gain. `rel` is an
option only if the gain is binary.
"""

from __future__ import annotations

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.records import Floats, Ints
from ragauge.core.settings import check_number
from ragauge.measures import tie_expectation
from ragauge.measures.binary import safe_divide
from ragauge.measures.judged_ranks import JudgedRanks


def compute_gains(grades: Floats, gain: str, rel: float = 1) -> Floats:
    """Convert grades to gains; only the binary gain uses `rel`.

    >>> compute_gains(np.array([-1.0, 0.0, 1.0, 3.0]), "exp").tolist()
    [0.0, 0.0, 1.0, 7.0]
    """
    if gain == "linear":
        return np.maximum(grades, 0)
    if gain == "exp":
        return np.exp2(np.maximum(grades, 0)) - 1
    if gain == "binary":
        return (grades >= rel).astype(np.float64)
    gains = np.maximum(grades, 0)
    for pair in gain.split("/"):
        grade, _, value = pair.partition(":")
        try:
            gains = np.where(grades == float(grade), check_number("gain", float(value)), gains)
        except (ValueError, BadInput):
            raise BadInput(
                f"`{gain}` is not a gain", hint="use linear, exp, binary, or a table such as 1:3/2:9"
            ) from None
    return gains


def dcg(judged: JudgedRanks, k: int | None = None, *, gain: str = "linear", rel: float = 1) -> Floats:
    """Discounted cumulated gain: sum of the gains, discounted by rank.

    Formula: sum over ranks r <= k of gain(grade) / log2(r + 1).
    Rule: unjudged documents have no gain. The minimum relevant grade is not used, unless gain=binary: grades are gains.
    Paper: Järvelin and Kekäläinen (2002), Cumulated Gain-Based Evaluation of IR Techniques.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 3, "b": 1}}, {"q": {"a": 1.0}}, ["dcg@10"]).means
    {'dcg@10': 3.0}
    """
    rank, query, grade = judged.rank, judged.query, judged.grade
    if judged.averaged:
        depth = k or int(judged.retrieved.max(initial=1))
        discount = 1 / np.log2(np.arange(depth + 1) + 1.0, where=np.arange(depth + 1) > 0, out=np.ones(depth + 1))
        return judged.count(query, compute_gains(grade, gain, rel) * tie_expectation.mean_discount(judged, discount))
    if k is not None:
        within = rank <= k
        rank, query, grade = rank[within], query[within], grade[within]
    return judged.count(query, compute_gains(grade, gain, rel) / np.log2(rank + 1))


def ideal_dcg(judged: JudgedRanks, k: int | None = None, *, gain: str = "linear", rel: float = 1) -> Floats:
    """Discounted cumulated gain of the best possible ranking of the judged documents.

    Formula: dcg of all judged documents, best first, cut at k.
    Rule: judged documents count whether they were retrieved or not. The minimum relevant grade is not used, unless
    gain=binary: grades are gains.
    Paper: Järvelin and Kekäläinen (2002), Cumulated Gain-Based Evaluation of IR Techniques.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 3, "b": 1}}, {"q": {"a": 1.0}}, ["ideal_dcg@1"]).means
    {'ideal_dcg@1': 3.0}
    """
    grade, position = judged.ideal
    owner, gains = judged.pool.owner, compute_gains(grade, gain, rel)
    if ":" in gain:  # gains in a table need not increase with the grade
        order = np.lexsort((-gains, owner))
        gains = gains[order]
    within = gains > 0 if k is None else (gains > 0) & (position < k)
    return judged.count(owner[within], gains[within] / np.log2(position[within] + 2))


def ndcg(judged: JudgedRanks, k: int | None = None, *, gain: str = "linear", rel: float = 1) -> Floats:
    """Discounted cumulated gain relative to the best possible ranking.

    Formula: dcg@k / ideal_dcg@k. Without k the ideal has all judged documents; with k it is cut at k too.
    Rule: 0 if no judged document has gain. The minimum relevant grade is not used, unless gain=binary: grades are
    gains.
    Paper: Järvelin and Kekäläinen (2002); gain=exp is that of Burges et al. (2005), Learning to Rank.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> qrels = {"q": {"d1": 1, "d2": 3, "d3": 2, "d4": 1}}
    >>> run = {"q": {"d1": 5.0, "x": 4.0, "d2": 3.0, "y": 2.0, "d3": 1.0}}
    >>> names = ["ndcg@5", "ndcg(gain=exp)@5", "ndcg(gain=binary)@5"]
    >>> [round(value, 6) for value in evaluate(qrels, run, names).means.values()]
    [0.630464, 0.576228, 0.73659]
    """
    return safe_divide(dcg(judged, k, gain=gain, rel=rel), ideal_dcg(judged, k, gain=gain, rel=rel))


def _gains_by_query(judged: JudgedRanks, gain: str, rel: float) -> list[tuple[Ints, Floats, Floats, int]]:
    """Return gains by query.

    For each query these are the ranks and gains of returned judged documents, the positive ideal gains, and the
    number of documents returned.
    """
    best, _ = judged.ideal
    ideal = compute_gains(best, gain, rel)
    bounds = np.searchsorted(judged.query, np.arange(judged.n + 1))
    gains = compute_gains(judged.grade, gain, rel)
    starts = judged.pool.starts
    out = []
    for i in range(judged.n):
        query_rows = slice(bounds[i], bounds[i + 1])
        perfect = np.sort(ideal[starts[i] : starts[i + 1]])[::-1]
        out.append((judged.rank[query_rows], gains[query_rows], perfect[perfect > 0], int(judged.retrieved[i])))
    return out


def ndcg_at_relevant(judged: JudgedRanks, *, gain: str = "linear", rel: float = 1) -> Floats:
    """Ndcg averaged over the relevant documents, at the rank of each.

    Formula: mean over documents with gain of dcg@r / ideal_dcg@r, r the document's rank, or the end of the ranking
    if it was not returned.
    Rule: 0 if no judged document has gain; trec_eval's ndcg_rel. The minimum relevant grade is not used, unless
    gain=binary: grades are gains.
    Paper: trec_eval, m_ndcg_rel.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["ndcg_rel"]).means
    {'ndcg_rel': 1.0}
    """
    values = np.zeros(judged.n)
    for i, (rank, gains, ideal_gains, _) in enumerate(_gains_by_query(judged, gain, rel)):
        if not len(ideal_gains):
            continue
        ideal_cumulated = np.cumsum(ideal_gains / np.log2(np.arange(len(ideal_gains)) + 2))
        cumulated_gain = np.cumsum(gains / np.log2(rank + 1))
        is_relevant = gains > 0
        ndcg_values = (
            cumulated_gain[is_relevant] / ideal_cumulated[np.minimum(rank[is_relevant], len(ideal_cumulated)) - 1]
        )
        missed_total = (
            (len(ideal_gains) - len(ndcg_values))
            * (cumulated_gain[-1] if len(cumulated_gain) else 0.0)
            / ideal_cumulated[-1]
        )
        values[i] = (ndcg_values.sum() + missed_total) / len(ideal_gains)
    return values


def ndcg_at_levels(judged: JudgedRanks, *, gain: str = "linear", rel: float = 1) -> Floats:
    """Ndcg averaged over the ranks at which the gain of the ideal ranking changes.

    Formula: mean over those ranks r of dcg@r / ideal_dcg@r; the last is the end of the ranking if that is longer.
    Rule: 0 if no document is relevant; trec_eval's Rndcg.
    Paper: trec_eval, m_Rndcg.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["rndcg"]).means
    {'rndcg': 1.0}
    """
    values = np.zeros(judged.n)
    total = judged.relevant(rel).total
    for i, (rank, gains, ideal_gains, retrieved) in enumerate(_gains_by_query(judged, gain, rel)):
        if not len(ideal_gains) or not total[i] or not judged.answered[i]:
            continue
        ideal_cumulated = np.cumsum(ideal_gains / np.log2(np.arange(len(ideal_gains)) + 2))
        change_ranks = [*(np.flatnonzero(ideal_gains[1:] != ideal_gains[:-1]) + 1).tolist(), len(ideal_gains)]
        discounted = gains / np.log2(rank + 1)
        ndcg_values = [discounted[rank <= r].sum() / ideal_cumulated[r - 1] for r in change_ranks]
        if retrieved > len(ideal_gains) + 1:  # the ranking is longer than the ideal: its end is a point of its own
            ndcg_values.append(discounted.sum() / ideal_cumulated[-1])
        values[i] = sum(ndcg_values) / len(ndcg_values)
    return values


def normalised_gain(judged: JudgedRanks, *, gain: str = "linear", rel: float = 1) -> Floats:
    """G: gain discounted by the shortfall from the ideal ranking so far.

    Formula: sum of gain / log2(2 + cost - own) over the documents, divided by the sum of all gains; cost is the gain
    of the ideal ranking up to that rank (at least 1 per rank), own that of this ranking.
    Rule: 0 if no judged document has gain; trec_eval's G. The minimum relevant grade is not used, unless gain=binary:
    grades are gains.
    Paper: trec_eval, m_G.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["g"]).means
    {'g': 1.0}
    """
    values = np.zeros(judged.n)
    for i, (rank, gains, ideal_gains, _) in enumerate(_gains_by_query(judged, gain, rel)):
        if not len(ideal_gains) or not len(rank):
            continue
        cost = np.cumsum(
            np.concatenate([np.maximum(ideal_gains, 1), np.ones(max(0, int(rank[-1]) - len(ideal_gains)))])
        )
        values[i] = (gains / np.log2(2 + cost[rank - 1] - np.cumsum(gains))).sum() / ideal_gains.sum()
    return values


def binary_gain(judged: JudgedRanks, *, rel: float = 1) -> Floats:
    """Binary G: relevant documents discounted by the non-relevant ones above.

    Formula: mean over relevant documents of 1 / log2(2 + non-relevant documents above), 0 for those not returned.
    Rule: unjudged documents are not relevant; trec_eval's binG.
    Paper: trec_eval, m_binG.c.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["bing"]).means
    {'bing': 1.0}
    """
    relevant = judged.relevant(rel)
    discounted_gains = 1 / np.log2(2 + relevant.rank - relevant.nth)
    return safe_divide(judged.count(relevant.query, discounted_gains), relevant.total)


def expected_reciprocal_rank(judged: JudgedRanks, k: int | None = None, *, top: float = 4) -> Floats:
    """Expected reciprocal rank at which a user stops.

    Formula: sum over ranks r <= k of 1/r R(r) prod over s < r of (1 - R(s)), R = (2^grade - 1) / 2^top.
    Rule: `top` is the highest grade of the scale (4 in TREC's gdeval); unjudged documents never satisfy. The minimum
    relevant grade is not used: grades are probabilities.
    Paper: Chapelle, Metzler, Zhang and Grinspan (2009), Expected Reciprocal Rank for Graded Relevance.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 4}}, {"q": {"a": 1.0}}, ["err@10"]).means
    {'err@10': 0.9375}
    """
    stop_probability = compute_gains(judged.grade, "exp") / 2.0**top
    if (stop_probability > 1).any():
        raise BadInput(f"a grade is above {top:g}", hint="err(top=5)@10 sets the highest grade of the scale")
    if k is not None:
        stop_probability = np.where(judged.rank <= k, stop_probability, 0.0)
    # The product over earlier documents of the same query, as a cumulative sum of logarithms.
    with np.errstate(divide="ignore"):
        logs = np.log1p(-stop_probability)
    log_continue = np.cumsum(np.where(np.isfinite(logs), logs, 0.0))
    log_continue = np.concatenate([[0.0], log_continue])
    certain_stops = np.cumsum(np.isinf(logs))
    certain_stops = np.concatenate([[0], certain_stops])
    first_row = np.searchsorted(judged.query, judged.query)
    rows = np.arange(len(stop_probability))
    continue_probability = np.where(
        certain_stops[rows] == certain_stops[first_row], np.exp(log_continue[rows] - log_continue[first_row]), 0.0
    )
    return judged.count(judged.query, continue_probability * stop_probability / judged.rank)


def rank_biased_precision(
    judged: JudgedRanks, k: int | None = None, *, p: float = 0.9, gain: str = "scaled", rel: float = 1
) -> Floats:
    """Expected gain of a user who continues with probability p at each rank.

    Formula: (1 - p) times the sum over ranks r <= k of gain p^(r - 1).
    Rule: `gain=scaled` divides grades by the query's highest if that is above 1 (trec_eval 10); `gain=binary` counts
    relevant documents as 1; `gain=linear` uses the grades (ranx; can exceed 1). The minimum relevant grade is not used,
    unless gain=binary: grades are gains.
    Paper: Moffat and Zobel (2008), Rank-Biased Precision for Measurement of Retrieval Effectiveness.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> round(evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["rbp(p=0.5)"]).means["rbp(p=0.5)"], 6)
    0.25
    """
    gains = compute_gains(judged.grade, "linear" if gain == "scaled" else gain, rel)
    if gain == "scaled":
        highest = np.ones(judged.n)
        np.maximum.at(highest, judged.pool.owner, judged.pool.grades)
        gains = gains / highest[judged.query]
    within = np.ones(len(gains), np.bool_) if k is None else judged.rank <= k
    weights: Floats = gains[within] * np.float64(p) ** (judged.rank[within] - 1)
    return (1 - p) * judged.count(judged.query[within], weights)


def rbp_residual(judged: JudgedRanks, *, p: float = 0.9) -> Floats:
    """Possible increase of rbp if every unjudged document were relevant.

    Formula: p^n + (1 - p) times the sum over unjudged ranks r of p^(r - 1), n the length of the ranking.
    Rule: 0 if every returned document is judged, and for queries missing from the run; trec_eval's rbp_resid. The
    minimum relevant grade is not used: only whether documents are judged counts.
    Paper: Moffat and Zobel (2008), Rank-Biased Precision for Measurement of Retrieval Effectiveness.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> round(evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, ["rbp_resid(p=0.5)"]).means["rbp_resid(p=0.5)"], 6)
    0.75
    """
    query, rank = judged.judged_hits
    weights: Floats = np.float64(p) ** (rank - 1)
    judged_weight = judged.count(query, weights)
    total_weight = (1 - p ** judged.retrieved.astype(np.float64)) / (1 - p)
    n_unjudged = judged.retrieved - judged.count(query)
    return np.where(
        n_unjudged > 0, p ** judged.retrieved.astype(np.float64) + (1 - p) * (total_weight - judged_weight), 0.0
    )
