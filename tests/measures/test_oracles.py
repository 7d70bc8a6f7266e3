"""Agreement with other tools and formulas on random inputs: ties, negative grades, missing queries and empty runs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from ragauge import PRESETS, evaluate
from ragauge.evaluation.ir_measures_provider import provider
from ragauge.measures.names import parse_measure_names
from strategies import judgments, runs

TREC_MEASURES = {"map", "gm_map", "Rprec", "bpref", "recip_rank", "iprec_at_recall", "P", "recall", "infAP", "gm_bpref"}
TREC_MEASURES |= {"Rprec_mult", "utility", "11pt_avg", "binG", "G", "ndcg", "ndcg_rel", "Rndcg", "ndcg_cut", "map_cut"}
TREC_MEASURES |= {"relative_P", "success", "set_P", "set_relative_P", "set_recall", "set_map", "set_F"}
TREC_MEASURES |= {"num_nonrel_judged_ret", "num_ret", "num_rel", "num_rel_ret"}


@given(judgments(low=-1), runs(), st.sampled_from([1, 2]))
@pytest.mark.slow
def test_evaluate_matches_trec_eval_for_every_measure_and_query(qrels, run, rel):
    oracle = pytrec_eval.RelevanceEvaluator(qrels, TREC_MEASURES, relevance_level=rel).evaluate(run)
    rules = PRESETS["trec9"].but(rel=rel)
    found = evaluate(qrels, run, ["all_trec"], rules).per_query
    for measure in parse_measure_names(["all_trec"], rules):
        for query, values in oracle.items():
            if measure.trec_name not in values:
                assert measure.trec_name.startswith(("rbp", "unj")), measure
                continue
            theirs, ours = values[measure.trec_name], found[str(measure)][query]
            if measure.trec_name.startswith("gm_"):  # pytrec_eval returns the logarithm
                theirs, ours = math.exp(theirs), max(ours, 0.00001)
            if measure.trec_name in ("ndcg_rel", "Rndcg") and math.isnan(theirs):
                theirs = 0.0  # pytrec_eval divides by an ideal score of 0
            assert ours == pytest.approx(theirs, abs=1e-12), (measure.trec_name, query)


@given(judgments(), runs())
def test_ir_measures_provider_matches_ir_measures(qrels, run):
    from ir_measures import (
        AP,
        RR,
        Bpref,
        IPrec,
        Judged,
        NumRel,
        NumRet,
        P,
        R,
        Rprec,
        SetAP,
        SetF,
        SetP,
        SetR,
        Success,
        infAP,
        nDCG,
    )

    trec = [P @ 3, P(rel=2) @ 5, RR, RR(rel=2), Rprec, AP, AP(rel=2) @ 3, AP(judged_only=True), nDCG, nDCG @ 3]
    trec += [nDCG(gains={1: 3, 2: 9}) @ 5, R @ 3, R(rel=2) @ 5, Bpref, NumRet, NumRel, SetAP, SetF, SetF(beta=2.0)]
    trec += [SetP, SetP(relative=True), SetR, Success @ 2, IPrec @ 0.5, infAP, P(judged_only=True) @ 3]
    theirs = {(m.query_id, str(m.measure)): m.value for m in ir_measures.pytrec_eval.iter_calc(trec, qrels, run)}
    theirs |= {(m.query_id, str(m.measure)): m.value for m in ir_measures.judged.iter_calc([Judged @ 3], qrels, run)}
    ours = {(m.query_id, str(m.measure)): m.value for m in provider.iter_calc([*trec, Judged @ 3], qrels, run)}
    differ = {k for k in ours if k[1] == "Judged@3" and has_ties(run.get(k[0], {}))}  # Judged orders ties in reverse
    assert {k: v for k, v in ours.items() if k not in differ} == pytest.approx(
        {k: v for k, v in theirs.items() if k not in differ}, abs=1e-12
    )


def has_ties(docs):
    return len(set(docs.values())) < len(docs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # numba warns while it compiles
@given(judgments(), runs(tied=False))
def test_evaluate_untied_runs_match_ranx(qrels, run):
    import ranx

    run = {query: run.get(query, {"none": 1.0}) for query in qrels}
    measures = [
        "precision@3",
        "recall@3",
        "f1@3",
        "mrr",
        "mrr@2",
        "map",
        "map@3",
        "ndcg@3",
        "ndcg_burges@3",
        "hit_rate@3",
        "hits@3",
        "hits",
    ]
    measures += ["r_precision"]
    names = [m.replace("r_precision", "r-precision") for m in measures]
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), names, return_mean=False)
    ours = evaluate(qrels, run, measures, "ranx")
    order = list(ranx.Run(run).keys())
    for measure, name in zip(measures, names, strict=True):
        scores = [ours.per_query[measure][query] for query in order]
        assert scores == pytest.approx(list(np.atleast_1d(theirs[name])), abs=1e-9), measure
        assert ours.means[measure] == pytest.approx(np.mean(theirs[name]), abs=1e-9), measure


@given(judgments(), runs(docs=5, tied=True))
def test_evaluate_averaged_ties_match_mean_over_all_orders(qrels, run):
    """The expected value is the mean over all orders of the tied documents, each evaluated as a ranked list."""
    measures = ["precision@2", "recall@2", "recall(of=capped)@3", "f1@3", "hit_rate@2", "mrr", "mrr@2"]
    measures += ["hits@2", "map", "map@3", "ndcg", "ndcg@2", "dcg@3"]
    found = evaluate(qrels, run, measures, "sklearn").per_query
    for query in qrels.keys() & run.keys():
        groups = {
            s: [d for d in run[query] if run[query][d] == s] for s in sorted(set(run[query].values()), reverse=True)
        }
        orders = itertools.product(*(itertools.permutations(g) for g in groups.values()))
        lists = [list(itertools.chain.from_iterable(order)) for order in orders]
        all_orders = evaluate(
            {str(i): qrels[query] for i in range(len(lists))}, {str(i): ids for i, ids in enumerate(lists)}, measures
        ).means
        for measure in measures:
            assert found[measure][query] == pytest.approx(all_orders[measure], abs=1e-9), (measure, query)


@given(st.integers(1, 60), st.data())
def test_evaluate_averaged_ties_match_exact_fractions(size, data):
    n_relevant, k = data.draw(st.integers(1, size)), data.draw(st.integers(1, size))
    qrels = {"q": {f"d{i:02}": 1 for i in range(n_relevant)}}
    run = {"q": {f"d{i:02}": 1.0 for i in range(size)}}
    arrangements = math.comb(size, n_relevant)
    first_at = [Fraction(math.comb(size - i - 1, n_relevant - 1), arrangements) for i in range(size)]
    found = Fraction(0)
    for x in range(max(1, k - size + n_relevant), min(n_relevant, k) + 1):
        share = Fraction(math.comb(n_relevant, x) * math.comb(size - n_relevant, k - x), math.comb(size, k))
        found += (
            share * sum(Fraction(1, i) * (1 + Fraction((i - 1) * (x - 1), max(k - 1, 1))) for i in range(1, k + 1)) / k
        )
    expected = {
        f"hit_rate@{k}": sum(first_at[:k]),
        f"mrr@{k}": sum(p / (i + 1) for i, p in enumerate(first_at[:k])),
        f"map(of=found)@{k}": found,
    }
    means = evaluate(qrels, run, list(expected), "sklearn").means
    assert means == pytest.approx({name: float(value) for name, value in expected.items()}, abs=1e-12)


@pytest.mark.parametrize("ties", ["ranked", "expected"])
def test_evaluate_forty_thousand_ties_match_closed_forms(ties):
    n = 40_000
    qrels = {"q": {f"d{i}": i % 2 for i in range(n)}}
    run = {"q": {f"d{i}": 1.0 for i in range(n)}}
    found = evaluate(qrels, run, ["mrr", "hit_rate@1", f"map(of=found)@{n // 2}"], f"ties={ties}").means
    # In the order of the run every second document is relevant; in a random order the first is at rank r with 2^-r.
    expected = (0.5, 0.0, 0.5) if ties == "ranked" else (math.log(2), 0.5, 0.5)
    assert list(found.values()) == pytest.approx(expected, abs=1e-3)


@given(judgments(), runs(docs=8))
def test_evaluate_averaged_ndcg_matches_scikit_learn(qrels, run):
    from sklearn.metrics import ndcg_score

    found = evaluate(qrels, run, ["ndcg@3"], "sklearn").per_query["ndcg@3"]
    for query in qrels.keys() & run.keys():
        docs = list(run[query])
        truth = [qrels[query].get(d, 0) for d in docs]
        if len(docs) > 1 and set(qrels[query]) <= set(docs) and any(truth):  # its ideal has only returned documents
            assert found[query] == pytest.approx(ndcg_score([truth], [list(run[query].values())], k=3), abs=1e-9)


@given(judgments(), runs())
def test_rbp_matches_formula(qrels, run):
    found = evaluate(qrels, run, ["rbp(p=0.8)", "rbp_resid(p=0.8)"], "default").per_query
    for query in qrels.keys() & run.keys():
        ranked = sorted(run[query], key=lambda d: (run[query][d], d), reverse=True)
        top = max(1, *qrels[query].values())
        gains = [max(0, qrels[query].get(d, 0)) / top for d in ranked]
        assert found["rbp(p=0.8)"][query] == pytest.approx(0.2 * sum(g * 0.8**i for i, g in enumerate(gains)))
        unjudged = [i for i, d in enumerate(ranked) if d not in qrels[query]]
        residual = 0.8 ** len(ranked) + 0.2 * sum(0.8**i for i in unjudged) if unjudged else 0.0
        assert found["rbp_resid(p=0.8)"][query] == pytest.approx(residual)


@given(judgments(), runs(), st.sampled_from([None, 1, 2, 5]))
def test_err_matches_formula(qrels, run, k):
    name = "err" if k is None else f"err@{k}"
    found = evaluate(qrels, run, [name]).per_query[name]
    for query in qrels.keys() & run.keys():
        ranked = sorted(run[query], key=lambda d: (run[query][d], d), reverse=True)[:k]
        continue_probability, value = 1.0, 0.0
        for rank, doc in enumerate(ranked, 1):
            stop_probability = (2 ** qrels[query].get(doc, 0) - 1) / 16
            value += continue_probability * stop_probability / rank
            continue_probability *= 1 - stop_probability
        assert found[query] == pytest.approx(value)


def test_err_certain_stop_ends_ranking():
    qrels = {"q": {"a": 1, "b": 1}}
    assert evaluate(qrels, {"q": {"a": 2.0, "b": 1.0}}, ["err(top=0)"]).means["err(top=0)"] == pytest.approx(1.0)


@pytest.mark.parametrize("run", [{}, {"other": {"d": 1.0}}, {"q": {}}])
def test_evaluate_empty_run_scores_zero_and_counts_in_mean(run):
    found = evaluate({"q": {"a": 1}}, run, ["ndcg@10", "map", "bpref", "rbp", "err", "infap", "11pt_avg", "judged@5"])
    assert set(found.means.values()) == {0.0}
    assert set(found.n.values()) == {1}
