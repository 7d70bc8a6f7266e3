"""Run checks of the audit: values by brute force, by hand and of public runs; sound runs have no problem."""

from __future__ import annotations

import csv
import itertools
import math
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ragauge import PRESETS, Judgments, Run, audit, evaluate, judgments_from_neighbours, load
from ragauge.audits import (
    chance_level,
    comparability,
    judgment_coverage,
    score_explanation,
    stability,
    suspicious_scores,
    ties,
)
from ragauge.audits.audit_input import AuditInput
from ragauge.audits.checks import AUDIT_CHECKS, run_audit_checks
from ragauge.files.readers import read_judgments, read_run
from ragauge.measures import tie_orders
from ragauge.measures.conventions import find_convention
from ragauge.measures.names import parse_measure, parse_measure_names
from ragauge.measures.scoring import score_judged_ranks
from ragauge.stats.power import detectable_difference, queries_needed
from strategies import judgments, runs

DEFAULT_MEASURES = ("ndcg@10", "recall@100", "map", "mrr", "precision@10")


def make_run(nested, name="run"):
    rows = [(q, d, float(s)) for q, docs in nested.items() for d, s in docs.items()]
    return Run(pl.DataFrame(rows, schema=["query", "doc", "score"], orient="row"), name)


def make_audit_input(qrels, nested, measures=DEFAULT_MEASURES, convention="default", **more):
    """Evidence of one run called `run`, or of several by name."""
    has_names = isinstance(next(iter(next(iter(nested.values())).values())), dict)
    runs_by_name = nested if has_names else {"run": nested}
    convention = PRESETS[convention] if isinstance(convention, str) else convention
    return AuditInput(
        qrels if isinstance(qrels, Judgments) else Judgments(qrels),
        {name: make_run(ranking, name) for name, ranking in runs_by_name.items()},
        parse_measure_names(measures, convention),
        convention,
        **more,
    )


def draw_collection(seed=0, queries=50, documents=400, relevant=15, skill=1.0, depth=100, judged=60):
    """Return pooled judgments with grades 0 to 3, and a run scored by `skill` times the grade plus normal noise."""
    rng = np.random.default_rng(seed)
    qrels, ranking = {}, {}
    for q in range(queries):
        grades = np.zeros(documents)
        n = int(rng.integers(3, 2 * relevant))
        grades[rng.choice(documents, n, replace=False)] = rng.integers(1, 4, n)
        scores = skill * grades + rng.normal(0, 1, documents)
        best = np.argsort(-scores)[:depth]
        pool = sorted({*best[:judged].tolist(), *np.flatnonzero(grades).tolist()})
        qrels[f"q{q}"] = {f"d{d}": float(grades[d]) for d in pool}
        ranking[f"q{q}"] = {f"d{d}": float(scores[d]) for d in best.tolist()}
    return qrels, ranking


def get_only(items):
    (item,) = items
    return item


def test_run_audit_checks_sound_run_has_no_problem():
    for seed in range(5):
        qrels, ranking = draw_collection(seed, judged=90)
        found = run_audit_checks(make_audit_input(qrels, ranking), AUDIT_CHECKS.values())
        assert found.problems == []
        assert {finding.check for finding in found.findings} >= {
            "ties",
            "chance",
            "unjudged",
            "perfect scores",
            "missing queries",
        }


# Ties

ORDER_MEASURES = [
    "map", "map@2", "map(rel=2)", "gm_map", "r_precision", "rprec_mult@0.6", "bpref", "bpref(rel=2)", "mrr", "mrr@3",
    "iprec_at_recall@0.5", "11pt_avg", "precision@2", "precision(of=retrieved)@2", "relative_precision@2", "hit_rate@1",
    "recall@2", "recall(rel=2)@1", "recall(of=capped)@2", "recall(of=k)@2", "num_rel_ret@2", "f1@2", "bing", "yaap",
    "ndcg", "ndcg@3", "ndcg(gain=exp)@2", "rndcg", "dcg@2", "rbp", "rbp(gain=binary)", "err@3",
]  # fmt: skip


def list_orders(scores):
    """Yield every ranking that the scores allow."""
    levels = sorted(set(scores.values()), reverse=True)
    groups = [[doc for doc, score in scores.items() if score == level] for level in levels]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [doc for part in parts for doc in part]


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(-1, 3), min_size=1).filter(lambda g: max(g.values()) >= 0),
    st.dictionaries(st.sampled_from("abcdxy"), st.integers(0, 1).map(float), min_size=1, max_size=5),
)
@pytest.mark.slow
def test_order_ties_bounds_match_all_orders(grades, scores):
    measures = parse_measure_names(ORDER_MEASURES)
    assert all(tie_orders.has_exact_bounds(measure) for measure in measures)
    audit_input = make_audit_input({"q": grades}, {"q": scores}, ORDER_MEASURES)
    judged = audit_input.judged("run", convention=PRESETS["default"].but(ties="expected"))
    worst, best = (
        score_judged_ranks(tie_orders.order_ties(judged, best=best), measures, audit_input.convention)
        for best in (False, True)
    )
    orders = {str(i): order for i, order in enumerate(list_orders(scores))}
    ranked = {name: {d: -float(i) for i, d in enumerate(order)} for name, order in orders.items()}
    scores_by_order = evaluate(dict.fromkeys(orders, grades), ranked, ORDER_MEASURES)
    values_by_measure = np.transpose([scores_by_order.values[str(measure)] for measure in measures])
    assert [values[0] for values in worst.values.values()] == pytest.approx(np.min(values_by_measure, axis=0))
    assert [values[0] for values in best.values.values()] == pytest.approx(np.max(values_by_measure, axis=0))
    averaged = [
        measure for measure in measures if measure.spec.averages_ties and measure.spec.name != "f1"
    ]  # f1 uses expected values
    expected = [measure.mean for measure in tie_orders.compute_expected_means(judged, averaged, audit_input.convention)]
    assert expected == pytest.approx([scores_by_order.values[str(measure)].mean() for measure in averaged])


def test_has_exact_bounds_rejects_measures_without_known_bounds():
    for name in ("map(of=found)@5", "ndcg(gain=1:3/2:1)@5", "infap", "judged@5", "recall(of=eps)@5", "dr@5"):
        assert not tie_orders.has_exact_bounds(parse_measure(name))


def test_check_ties_by_hand():
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 1}}
    tied = {"q1": {"a": 1.0, "b": 1.0, "x": 1.0}, "q2": {"c": 2.0, "y": 1.0}}
    found = get_only(ties.check_ties(make_audit_input(qrels, tied, ["mrr"])))
    assert found.problem
    assert (found.count, list(found.examples)) == (1, ["q1"])
    assert "40.0% of the scores are tied (2 of 5)" in found.message
    assert found.effect == "mrr 0.6667 to 1.0000"
    worst, expected, best = (1 / 3 + 1) / 2, ((1 + 1 / 2 + 1 / 3) / 3 + 1) / 2, 1.0
    assert found.table.rows[0][1:] == pytest.approx([worst, expected, best, worst])


def test_check_ties_without_effect_have_no_problem():
    found = get_only(ties.check_ties(make_audit_input({"q": {"a": 1}}, {"q": {"a": 2.0, "x": 1.0, "y": 1.0}}, ["mrr"])))
    assert not found.problem
    assert "no query's score depends" in found.message


def test_check_ties_difference_below_32_bit_is_reported():
    near_ties = {f"q{i}": {"x": 1.0 + 1e-12, "a": 1.0} for i in range(3)}
    found = list(ties.check_ties(make_audit_input({f"q{i}": {"a": 1} for i in range(3)}, near_ties, ["mrr"])))
    width = get_only([finding for finding in found if finding.check == "score width"])
    assert (width.count, width.problem) == (3, False)  # ties are broken by descending id: x stays first
    near_ties = {q: {"a": 1.0 + 1e-12, "x": 1.0} for q in near_ties}
    found = list(ties.check_ties(make_audit_input({q: {"a": 1} for q in near_ties}, near_ties, ["mrr"])))
    width = get_only([finding for finding in found if finding.check == "score width"])
    assert (width.problem, width.effect) == (True, "mrr 1.0000 to 0.5000")


def read_public_evidence(shared, collection, runs, measures=DEFAULT_MEASURES, **more):
    qrels = {"dl19": "qrels.dl19-passage.txt", "covid": "qrels.beir-v1.0.0-trec-covid.test.txt.gz"}[collection]
    folder = shared("trec_dl_runs")
    named = {name: read_run(folder / "runs" / f"{collection}.{name}.txt.gz") for name in runs}
    truth = read_judgments(folder / "qrels" / qrels)
    return AuditInput(truth, named, parse_measure_names(measures), PRESETS["default"], **more)


def test_check_ties_public_run_has_known_bounds(shared):
    audit_input = read_public_evidence(shared, "dl19", ["REP_LLAMA", "BM25"], ["ndcg@10"])
    rounded, exact = ties.check_ties(audit_input)
    assert (rounded.problem, rounded.count) == (True, 29)
    assert "93.0% of the scores are tied (40,001 of 43,000)" in rounded.message
    assert [round(x, 4) for x in rounded.table.rows[0][1:]] == [0.7340, 0.7419, 0.7505, 0.7384]
    assert not exact.problem


# Conventions


def test_check_conventions_merges_equal_rows_and_explains_refusals():
    qrels = {"q1": {"a": 3, "b": 1}, "q2": {"c": 1}}
    ranking = {"q1": {"b": 2.0, "a": 1.0}}
    found = get_only(comparability.check_conventions(make_audit_input(qrels, ranking, ["ndcg@10", "rbp"])))
    rows = {name: row[1:] for row in found.table.rows for name in row[0].split(", ")}
    assert set(rows) == set(PRESETS)
    one = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    assert rows["default"][0] == pytest.approx(one / 2)
    assert rows["trec9"][0] == pytest.approx(one)
    assert rows["rig"][0] == pytest.approx((1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3)) / 2)
    assert rows["pgvectordb"] == rows["trec10"] == rows["ranx"] == ["refused", "refused"]
    assert rows["sklearn"][1] == "refused"
    assert not found.problem
    assert "trec10, ranx, pgvectordb (run has no ranking for 1 of 2 judged queries (`q2`))" in found.message
    assert "torchmetrics, sklearn (rbp is not defined as a mean over the orders of ties)" in found.message


def test_check_conventions_several_runs_use_first_measure(shared):
    audit_input = read_public_evidence(shared, "dl19", ["BM25", "REP_LLAMA"])
    found = get_only(comparability.check_conventions(audit_input))
    assert found.table.header == ["ndcg@10 of", "default", "ranx", "torchmetrics", "pgvectordb", "rig"]
    assert [round(x, 4) for x in found.table.rows[1][1:]] == [0.7384, 0.7439, 0.7419, 0.8648, 0.6796]
    assert "default = trec10 = trec9 = beir, ranx = ann" in found.message


@pytest.mark.parametrize(
    ("name", "source", "target", "restated"),
    [
        ("recall@10", "default", "ragdbeval-capped", "recall(of=capped)@10"),
        ("recall(of=capped)@10", "default", "ann", "recall(of=capped)@10"),
        ("recall(of=capped)@10", "ragdbeval-capped", "default", "recall@10"),
        ("mrr", "swarm", "default", "mrr"),
        ("mrr", "default", "tokenization", "mrr@15"),
        ("map(rel=2)", "default", "ragas", "map(of=found,rel=2)"),
    ],
)
def test_restate_measure_changes_only_options_of_the_convention(name, source, target, restated):
    measure = parse_measure(name, PRESETS[source])
    assert str(comparability.restate_measure(measure, PRESETS[source], PRESETS[target])) == restated


# Published scores


def draw_irregular_collection(seed=3):
    """Return judgments and a run with ties, own documents, missing queries and a query without relevant documents."""
    qrels, ranking = draw_collection(seed, queries=30, documents=300)
    ranking = {q: {d: round(s, 1) for d, s in docs.items()} for q, docs in ranking.items()}
    qrels = {q: {**grades, q: 0.0} for q, grades in qrels.items()}
    for i, (q, docs) in enumerate(ranking.items()):
        if i % 2:
            docs[q] = 9.0  # document with the id of the query
    del ranking["q7"], ranking["q8"]
    qrels["q9"] = dict.fromkeys(qrels["q9"], 0.0)
    return qrels, ranking


@pytest.mark.parametrize(
    ("measure", "options", "label"),
    [
        ("ndcg@10", {"ties": "ranked"}, "ties=ranked"),
        ("ndcg@10", {"ties": "expected"}, "ties=expected"),
        ("ndcg@10", {"gain": "exp"}, "gain=exp"),
        ("ndcg@10", {"gain": "binary"}, "gain=binary"),
        ("map", {"rel": 2}, "rel=2"),
        ("map", {"map_of": "found"}, "map_of=found"),
        ("recall@10", {"recall_of": "capped"}, "recall_of=capped"),
        ("ndcg@10", {"missing": "skip"}, "missing=skip"),
        ("ndcg@10", {"none": "skip"}, "none=skip"),
        ("ndcg@10", {"own": "dropped"}, "own=dropped"),
        ("map", {"unjudged": "condensed"}, "unjudged=condensed"),
        ("map", {"depth": 20}, "depth=20"),
        ("map", {"rel": 3, "ties": "ranked"}, "ties=ranked"),
        ("ndcg@10", {"gain": "exp", "missing": "skip"}, "missing=skip"),
    ],
)
def test_check_published_scores_finds_differing_options(measure, options, label):
    qrels, ranking = draw_irregular_collection()
    convention = PRESETS["default"].but(**options)
    value = next(iter(evaluate(Judgments(qrels), make_run(ranking), [measure], convention).means.values()))
    claims = [(measure, f"{value:.8f}")]
    found = get_only(score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=claims)))
    assert not found.problem
    assert found.check == "expected"
    labels = [row[0] for row in found.table.rows]
    expected_parts = [f"{k}={v}" for k, v in options.items()]
    assert any(all(part in text for part in expected_parts) for text in labels)
    assert any(label in text for text in labels)
    assert len(labels[0].split("; ")) == len(options)
    assert ("two departures out of" in found.message) == (len(options) == 2)
    assert ("may be a coincidence" in found.message) == (len(options) == 2)
    command = found.remedy.partition("`")[2].partition("`")[0].removeprefix("ragauge evaluate … ").split()
    convention = find_convention(command[command.index("-C") + 1])
    assert command[:2] == ["-m", measure]
    assert next(iter(evaluate(Judgments(qrels), make_run(ranking), [measure], convention).means.values())) == value


@pytest.mark.slow
def test_check_published_scores_random_numbers_get_a_caveat():
    qrels, ranking = draw_irregular_collection()
    rng = np.random.default_rng(7)
    n_explained = 0
    claims = [("ndcg@10", f"{value:.3f}") for value in rng.uniform(0.2, 0.6, 25)]
    findings = list(score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=claims)))
    assert len(findings) == 25
    for finding in findings:
        if "explained by" in finding.message and "not explained" not in finding.message:
            n_explained += 1
            assert finding.problem or "two departures out of" in finding.message
            assert "to three digits" in finding.message
    assert n_explained


def test_check_published_scores_finds_other_cutoff_and_own_scoring():
    qrels, ranking = draw_irregular_collection()
    value = evaluate(qrels, ranking, ["ndcg@20"]).means["ndcg@20"]
    found = get_only(
        score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=[("ndcg@10", f"{value:.6f}")]))
    )
    assert found.table.rows[0][0] == "the measure is ndcg@20"
    found = get_only(
        score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=[("ndcg@20", f"{value:.4f}")]))
    )
    assert (found.problem, found.effect) == (False, "")
    assert "is as scored here (default) (1 way of scoring tried)" in found.message
    found = get_only(
        score_explanation.check_published_scores(
            make_audit_input(qrels, ranking, claims=[("ndcg@20", f"{100 * value:.2f}")])
        )
    )
    assert "as scored here" in found.message


def test_check_published_scores_unexplained_score_lists_nearest():
    qrels, ranking = draw_irregular_collection()
    found = get_only(
        score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=[("ndcg@10", "0.98765432")]))
    )
    assert found.problem
    assert "is not explained by any of" in found.message
    assert len(found.table.rows) == 3
    gaps = [abs(row[1] - 0.98765432) for row in found.table.rows]
    assert gaps == sorted(gaps)


def test_check_published_scores_two_digits_may_match_by_chance():
    qrels, ranking = draw_irregular_collection()
    value = evaluate(Judgments(qrels), make_run(ranking), ["map"], PRESETS["default"].but(rel=2, depth=50)).means[
        "map(rel=2)"
    ]
    found = get_only(
        score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=[("map", f"{value:.2f}")]))
    )
    assert found.problem
    assert "is explained by convention beir" in found.message
    assert "would match by chance" in found.message


def test_check_published_scores_finds_changed_judgments():
    from ragauge import Document

    qrels, ranking = draw_collection(1, queries=20)
    documents = [Document(f"d{i}", "") for i in range(300)]
    in_corpus = {q: {d: g for d, g in docs.items() if int(d[1:]) < 300} for q, docs in qrels.items()}
    value = evaluate(in_corpus, ranking, ["ndcg@10"]).means["ndcg@10"]
    claims = [("ndcg@10", f"{value:.7f}")]
    found = get_only(
        score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=claims, documents=documents))
    )
    assert found.table.rows[0][0] == "judged documents that are not in the corpus removed"
    high = {q: {d: g if g >= 2 else 0.0 for d, g in docs.items()} for q, docs in qrels.items()}
    value = evaluate(high, ranking, ["ndcg@10"]).means["ndcg@10"]
    found = get_only(
        score_explanation.check_published_scores(make_audit_input(qrels, ranking, claims=[("ndcg@10", f"{value:.7f}")]))
    )
    assert found.table.rows[0][0] == "grades below 2 count 0"


def test_check_published_scores_finds_order_by_rank_column():
    qrels, ranking = draw_collection(2, queries=20)
    distances = {q: {d: float(i) for i, d in enumerate(docs)} for q, docs in ranking.items()}  # distances
    table = make_run(distances).table.with_columns((pl.col("score") + 1).alias("rank"))
    value = evaluate(qrels, ranking, ["ndcg@10"]).means["ndcg@10"]
    audit_input = make_audit_input(qrels, distances, claims=[("ndcg@10", f"{value:.7f}")])
    audit_input.runs["run"] = Run(table, "run")
    assert (
        get_only(score_explanation.check_published_scores(audit_input)).table.rows[0][0]
        == "ordered by the rank column, scores ignored"
    )


def test_check_published_scores_names_the_matching_run(shared):
    claims = [("ndcg@10", "0.7439"), ("ndcg@10", "0.7384"), ("ndcg@10", "0.5058"), ("ndcg@10", "0.7205")]
    ranked, scored, other, unexplained = score_explanation.check_published_scores(
        read_public_evidence(shared, "dl19", ["BM25", "REP_LLAMA"], claims=claims)
    )
    assert ranked.table.rows[0][:2] == ["REP_LLAMA", "ties=ranked (equal scores in file order)"]
    assert ranked.effect == "ndcg@10 0.7384 to 0.7439"
    assert "0.7384 of REP_LLAMA is as scored here" in scored.message
    assert "0.5058 of BM25 is as scored here" in other.message
    assert unexplained.problem  # computed with other judgments


def test_check_published_scores_finds_rel_2_of_public_run(shared):
    audit_input = read_public_evidence(shared, "dl19", ["BM25"], ["map(rel=2)", "recall(rel=2)@100"])
    high = audit_input.scores("BM25").means
    claims = [("map", f"{high['map(rel=2)']:.4f}"), ("recall@100", f"{high['recall(rel=2)@100']:.4f}")]
    for found in score_explanation.check_published_scores(
        read_public_evidence(shared, "dl19", ["BM25"], claims=claims)
    ):
        assert "is explained by rel=2" in found.message


def test_check_published_scores_match_public_runs(shared):
    folder = shared("trec_dl_runs")
    with open(folder / "published_scores.csv") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        collection, name = row["run"].split(".", 1)
        audit_input = read_public_evidence(shared, collection, [name], claims=[(row["measure"], row["published"])])
        assert "is as scored here" in get_only(score_explanation.check_published_scores(audit_input)).message


@pytest.mark.parametrize(
    ("text", "value", "digits"),
    [("0.7439", 0.7439, 4), (".74", 0.74, 2), ("74.39", 0.7439, 4), ("74%", 0.74, 2), ("1", 1.0, 0)],
)
def test_published_score_reads_value_and_digits(text, value, digits):
    claim = score_explanation.PublishedScore.parse("ndcg@10", text, PRESETS["default"])
    assert (claim.value, claim.digits) == (pytest.approx(value), digits)


# Ground truth and depth


def test_check_truncated_judgments_100_neighbours_limit_recall_to_a_tenth():
    rng = np.random.default_rng(0)
    truth = judgments_from_neighbours([rng.permutation(1000)[:100].tolist() for _ in range(20)])
    found_ids = {q: {d: -float(i) for i, d in enumerate(list(docs)[:10])} for q, docs in truth.nested.items()}
    same, ceiling = judgment_coverage.check_truncated_judgments(make_audit_input(truth, found_ids, ["recall@10"]))
    assert (same.problem, same.count) == (True, 20)
    assert "100% of the queries have exactly 100 relevant documents" in same.message
    assert (ceiling.problem, ceiling.count) == (True, 20)
    assert "recall@10 cannot exceed 0.1000" in ceiling.message
    assert ceiling.table.rows == [["run", pytest.approx(0.1), pytest.approx(1.0)]]
    described = get_only(
        judgment_coverage.check_truncated_judgments(make_audit_input(truth, found_ids, ["recall@10"], "ann"))
    )
    assert not described.problem


def test_check_truncated_judgments_finds_cap_but_not_tail():
    rng = np.random.default_rng(1)
    sizes = np.minimum(rng.geometric(0.03, 200), 40)
    capped = {f"q{i}": {f"d{j}": 1 for j in range(n)} for i, n in enumerate(sizes.tolist())}
    found = next(judgment_coverage.check_truncated_judgments(make_audit_input(capped, {"q0": {"d0": 1.0}}, ["map"])))
    assert (found.problem, found.count) == (True, int((sizes == 40).sum()))
    assert "none has more" in found.message
    uncapped = {f"q{i}": {f"d{j}": 1 for j in range(n)} for i, n in enumerate(rng.geometric(0.03, 200).tolist())}
    assert not next(
        judgment_coverage.check_truncated_judgments(make_audit_input(uncapped, {"q0": {"d0": 1.0}}, ["map"]))
    ).problem


def test_check_truncated_judgments_ceiling_by_hand():
    qrels = {"q1": dict.fromkeys(["a", "b", "c", "d"], 1), "q2": {"a": 1}}
    audit_input = make_audit_input(
        qrels, {"q1": {"a": 1.0}, "q2": {"a": 1.0}}, ["recall@2", "recall(of=capped)@2", "recall@3"]
    )
    _, at_two, at_three = judgment_coverage.check_truncated_judgments(audit_input)
    assert "cannot exceed 0.7500" in at_two.message
    assert "cannot exceed 0.8750" in at_three.message
    assert list(at_two.examples) == ["q1"]
    mostly_single = {f"q{i}": {"a": 1} for i in range(30)} | {"many": dict.fromkeys("abc", 1)}
    assert not any(
        finding.problem
        for finding in judgment_coverage.check_truncated_judgments(
            make_audit_input(mostly_single, {"q0": {"a": 1.0}}, ["recall@2"])
        )
    )


def test_check_depth_run_shallower_than_cutoff_is_a_problem():
    qrels, ranking = draw_collection(depth=20)
    found = get_only(judgment_coverage.check_depth(make_audit_input(qrels, ranking, ["ndcg@10", "recall@100"])))
    assert (found.problem, found.count) == (True, 1)
    value = evaluate(qrels, ranking, ["recall@20"]).means["recall@20"]
    assert found.table.rows == [["recall@100", pytest.approx(value), "recall@20", pytest.approx(value)]]
    two_measures = get_only(
        judgment_coverage.check_depth(make_audit_input(qrels, ranking, ["recall@50", "recall@100"]))
    )
    assert [row[2] for row in two_measures.table.rows] == ["recall@20", "recall@20"]
    varying_depth = {q: dict(list(docs.items())[: 3 + i % 17]) for i, (q, docs) in enumerate(ranking.items())}
    found = get_only(judgment_coverage.check_depth(make_audit_input(qrels, varying_depth, ["ndcg@10", "recall@100"])))
    assert not found.problem  # the number of results differs between queries
    assert "3 to 19 documents per query" in found.message


# Unjudged documents


@settings(max_examples=60)
@given(judgments(low=-1), runs(tied=False), st.integers(1, 4), st.integers(1, 3))
def test_fill_unjudged_equals_evaluate_with_judged_documents(qrels, ranking, k, grade):
    audit_input = make_audit_input(qrels, ranking, ["ndcg@3", "map", "recall@2", "rbp", "num_rel_ret"])
    best = {q: sorted(docs, key=lambda d: -docs[d])[:k] for q, docs in ranking.items()}
    filled = {
        q: {**docs, **{d: float(grade) for d in best.get(q, ()) if docs.get(d, -1) < 0}} for q, docs in qrels.items()
    }
    found = score_judged_ranks(
        judgment_coverage.fill_unjudged(audit_input.judged("run"), k, grade),
        audit_input.measures,
        audit_input.convention,
    )
    expected = evaluate(filled, ranking, [str(measure) for measure in audit_input.measures])
    assert list(found.means.values()) == pytest.approx(list(expected.means.values()))


def test_check_unjudged_by_hand():
    qrels = {f"q{i}": {"a": 2, "b": 0, "c": 0} for i in range(4)}
    ranking = {q: {"x": 3.0, "a": 2.0, "b": 1.0} for q in qrels}
    found = get_only(judgment_coverage.check_unjudged(make_audit_input(qrels, ranking, ["mrr@2", "precision@10"])))
    assert (found.problem, found.count) == (True, 4)
    assert "33.3% of the top 10 documents are unjudged" in found.message
    assert found.table.rows[0] == ["mrr@2", "2", "50.0%", 0.5, 1.0, 1.0]
    assert found.table.rows[1] == [
        "precision@10",
        "10",
        "33.3%",
        pytest.approx(0.1),
        pytest.approx(0.1),
        pytest.approx(0.2),
    ]
    assert found.effect == "mrr@2 0.5000 to 1.0000 if the unjudged documents in its top 2 were relevant (grade 2)"
    answers = {q: {"a": 2} for q in qrels}
    found = get_only(judgment_coverage.check_unjudged(make_audit_input(answers, ranking, ["mrr@2"])))
    assert not found.problem
    assert "they list relevant documents only" in found.message


def test_check_unjudged_uses_depth_of_each_measure():
    qrels, ranking = draw_collection(judged=52)
    shallow = get_only(judgment_coverage.check_unjudged(make_audit_input(qrels, ranking, ["ndcg@10"])))
    assert (shallow.problem, shallow.data["unjudged"]) == (False, 0.0)
    deep = get_only(judgment_coverage.check_unjudged(make_audit_input(qrels, ranking, ["ndcg@10", "recall@100"])))
    assert deep.problem
    assert re.search(r"^0% of the top 10 documents are unjudged \(4\d\.\d% of the top 100\)", deep.message)
    half = {q: dict(list(docs.items())[:50]) for q, docs in ranking.items()}
    found = list(
        judgment_coverage.check_unjudged(make_audit_input(qrels, {"deep": ranking, "half": half}, ["recall@100"]))
    )
    assert "of its top 100 documents are unjudged, but 0% of half's" in found[-1].message


@pytest.mark.parametrize("rel", [1, 2])
@pytest.mark.parametrize("name", ["synthetic:needles(documents=60,queries=12)", "synthetic:graph(documents=100)"])
def test_check_unjudged_lists_of_relevant_documents_are_exempt(name, rel):
    data = load(name)
    ranking = {q: {d.id: -float(i) for i, d in enumerate(data.documents)} for q in data.judgments.nested}
    convention = PRESETS["default"].but(rel=rel)
    finding = next(judgment_coverage.check_unjudged(make_audit_input(data.judgments, ranking, ["mrr@50"], convention)))
    assert not finding.problem
    assert finding.data["unjudged"] > 0.5


def test_check_unjudged_condensed_reports_removed_documents():
    qrels = {f"q{i}": {"a": 2, "b": 0, "c": 0} for i in range(4)}
    ranking = {q: {"x": 3.0, "a": 2.0, "b": 1.0} for q in qrels}
    convention = PRESETS["default"].but(unjudged="condensed")
    found = get_only(judgment_coverage.check_unjudged(make_audit_input(qrels, ranking, ["mrr@10"], convention)))
    assert (found.problem, found.message) == (False, "33.3% of the top 10 documents are unjudged and are removed")
    assert found.table.rows[0][3:5] == [1.0, 1.0]


def test_check_unjudged_run_of_judged_documents_only_is_a_problem(shared):
    qrels, ranking = draw_collection(judged=100)
    found = list(judgment_coverage.check_unjudged(make_audit_input(qrels, ranking, ["ndcg@10"])))
    assert [(one.check, one.problem) for one in found] == [("unjudged", False), ("judged only", True)]
    assert found[1].count == 50 * 100
    folder = shared("trec_web_diversity")
    truth = read_judgments(folder / "qrels.web.201-250.ndeval.txt.gz", format="subtopics")
    reranked = {"cedr": read_run(folder / "cedr.test.wt13.run.gz")}
    audit_input = AuditInput(truth, reranked, parse_measure_names(["ndcg@10"]), PRESETS["default"])
    assert [one.count for one in judgment_coverage.check_unjudged(audit_input) if one.check == "judged only"] == [4921]
    assert get_only(chance_level.check_chance_level(audit_input)).message.startswith(
        "ndcg@10 0.2570 is not better than its own documents in random order"
    )


def test_check_unjudged_pool_bias_is_a_problem():
    qrels, ranking = draw_collection(judged=100)
    stranger = {
        q: {f"new {d}" if i % 3 == 0 else d: s for i, (d, s) in enumerate(docs.items())} for q, docs in ranking.items()
    }
    found = list(
        judgment_coverage.check_unjudged(make_audit_input(qrels, {"known": ranking, "stranger": stranger}, ["ndcg@10"]))
    )
    assert [one.subject for one in found if one.problem] == ["known", "stranger", "stranger"]
    assert found[-1].check == "pool bias"
    assert "40.0% of its top 10 documents are unjudged, but 0% of known's" in found[-1].message


# Chance level and oracle scores


def score_all_orders(grades, documents, depth, names):
    """Return the scores of every order of the documents, cut at a depth."""
    return [
        list(evaluate({"q": grades}, {"q": {d: -float(i) for i, d in enumerate(order[:depth])}}, names).means.values())
        for order in itertools.permutations(documents)
    ]


def test_random_order_mean_matches_all_permutations():
    grades, documents, depth = {"a": 2, "b": 1, "c": 0}, list("abcde"), 3
    names = [
        "ndcg@2",
        "ndcg",
        "map",
        "mrr",
        "mrr@2",
        "recall@2",
        "recall(of=capped)@2",
        "precision@2",
        "hit_rate@2",
        "dcg",
    ]
    audit_input = make_audit_input({"q": grades}, {"q": {"a": 1.0}}, names)
    tied_corpus = tie_orders.tie_whole_corpus(audit_input.judgments, len(documents), np.array([depth]))
    scores_by_order = score_all_orders(grades, documents, depth, names)
    means = [
        chance_level.compute_random_order_mean(tied_corpus, one, audit_input.convention, depth)
        for one in audit_input.measures
    ]
    assert [one.mean for one in means] == pytest.approx(np.mean(scores_by_order, axis=0).tolist())
    assert all(one.exact for one in means)


def test_random_order_mean_without_closed_form_is_sampled():
    grades, documents, depth = {"a": 2, "b": 1, "c": 0}, list("abcde"), 3
    names = ["bpref", "rbp", "err", "recall@4"]
    audit_input = make_audit_input({"q": grades}, {"q": {"a": 1.0}}, names)
    tied_corpus = tie_orders.tie_whole_corpus(audit_input.judgments, len(documents), np.array([depth]))
    scores_by_order = score_all_orders(grades, documents, depth, names)
    means = [
        chance_level.compute_random_order_mean(tied_corpus, one, audit_input.convention, depth)
        for one in audit_input.measures
    ]
    assert not any(one.exact for one in means)
    assert [one.mean for one in means] == pytest.approx(np.mean(scores_by_order, axis=0).tolist(), abs=0.06)


@settings(max_examples=40)
@given(judgments(low=0), runs(), st.integers(1, 12))
def test_random_order_mean_matches_expected_means_of_ties(qrels, ranking, k):
    audit_input = make_audit_input(qrels, ranking, [f"mrr@{k}", f"map@{k}", "map", f"map(of=capped)@{k}", "map(rel=2)"])
    tied_run = tie_orders.tie_all_documents(audit_input.judged("run"))
    for measure, exact in zip(
        audit_input.measures,
        tie_orders.compute_expected_means(tied_run, audit_input.measures, audit_input.convention),
        strict=True,
    ):
        assert chance_level.compute_random_order_mean(
            tied_run, measure, audit_input.convention, 100
        ).values == pytest.approx(exact.values)


def test_check_chance_level_oracle_scores_by_hand():
    qrels = {"q1": dict.fromkeys("abcd", 1) | {"n": 0}, "q2": {"a": 3, "b": 1}}
    audit_input = make_audit_input(
        qrels, {"q1": {"a": 1.0}, "q2": {"b": 1.0}}, ["ndcg@2", "recall@2", "precision@4", "map"]
    )
    found = get_only(chance_level.check_chance_level(audit_input))
    assert [row[4] for row in found.table.rows] == pytest.approx([1, 0.75, 0.75, 1])


@pytest.mark.slow
def test_check_chance_level_separates_random_from_sound_runs():
    n_flagged = 0
    for seed in range(30):
        qrels, _ = draw_collection(seed, queries=20, documents=200, judged=0)
        rng = np.random.default_rng(1000 + seed)
        random_run = {q: {f"d{d}": -float(i) for i, d in enumerate(rng.permutation(200)[:50])} for q in qrels}
        found = get_only(chance_level.check_chance_level(make_audit_input(qrels, random_run, ["ndcg@10"])))
        n_flagged += found.problem and "random documents" in found.message
    assert n_flagged >= 24  # 28 or 29 are expected at a level of 0.05; fewer than 24 have a probability below 0.001
    for seed in range(10):
        qrels, ranking = draw_collection(seed, queries=25)
        assert not get_only(chance_level.check_chance_level(make_audit_input(qrels, ranking, DEFAULT_MEASURES))).problem


def test_check_chance_level_shuffled_run_is_random_order_of_own_documents():
    qrels, ranking = draw_collection(4, skill=3.0)
    rng = np.random.default_rng(4)
    shuffled = {
        q: dict(zip(docs, rng.permutation(len(docs)).astype(float).tolist(), strict=True))
        for q, docs in ranking.items()
    }
    found = get_only(chance_level.check_chance_level(make_audit_input(qrels, shuffled, ["ndcg@10"])))
    assert found.problem
    assert "its own documents in random order" in found.message
    assert "drawn at random" not in found.message


def test_check_chance_level_rare_hits_are_above_chance():
    qrels = {f"q{i}": {"a": 1} for i in range(100)}
    others = [f"x{i}" for i in range(9)]
    rare_hits = {
        q: {d: -float(r) for r, d in enumerate((["a"] if i < 2 else []) + others)} for i, q in enumerate(qrels)
    }
    from ragauge import Document

    documents = [Document(str(i), "") for i in range(100_000)]
    audit_input = make_audit_input(qrels, rare_hits, ["recall@10"], documents=documents)
    differences = np.array([1.0] * 2 + [0.0] * 98) - 1e-4
    assert stats.ttest_1samp(differences, 0, alternative="greater").pvalue > 0.05  # not significant by a t-test
    assert "drawn at random" not in get_only(chance_level.check_chance_level(audit_input)).message


# Perfect scores


def test_check_perfect_scores_run_from_judgments_is_a_problem():
    qrels, _ = draw_collection(5)
    oracle_run = {q: {d: g + 0.001 * i for i, (d, g) in enumerate(docs.items())} for q, docs in qrels.items()}
    found = list(suspicious_scores.check_perfect_scores(make_audit_input(qrels, oracle_run)))
    assert {finding.check for finding in found if finding.problem} == {"perfect scores", "ordered by grade"}
    assert "ndcg@10, map, mrr" in found[0].message


def test_check_perfect_scores_easy_queries_have_no_problem():
    few_queries = {f"q{i}": {"a": 1, "b": 0} for i in range(9)}
    assert not get_only(
        suspicious_scores.check_perfect_scores(
            make_audit_input(few_queries, {q: {"a": 2.0, "b": 1.0} for q in few_queries})
        )
    ).problem
    one_relevant = {f"q{i}": {"a": 1} for i in range(50)}
    assert not get_only(
        suspicious_scores.check_perfect_scores(make_audit_input(one_relevant, {q: {"a": 1.0} for q in one_relevant}))
    ).problem
    perfect_run = {q: {"a": 2.0, **{f"x{i}": -float(i) for i in range(20)}} for q in one_relevant}
    found = get_only(
        suspicious_scores.check_perfect_scores(
            make_audit_input(one_relevant, perfect_run, ["recall@100", "hit_rate@5"])
        )
    )
    assert not found.problem  # perfect scores are plausible on easy queries


def test_check_perfect_scores_constant_score_is_reported_unless_zero():
    qrels = {f"q{i}": {"a": 1} for i in range(20)}
    always_second = {q: {"x": 2.0, "a": 1.0, "y": 0.5} for q in qrels}
    found = list(
        suspicious_scores.check_perfect_scores(make_audit_input(qrels, always_second, ["mrr", "precision@10"]))
    )
    assert [(finding.check, finding.message) for finding in found] == [
        ("constant score", "mrr is 0.5000 for every one of 20 queries")
    ]
    no_hits = {q: {"x": 2.0} for q in qrels}
    assert not get_only(suspicious_scores.check_perfect_scores(make_audit_input(qrels, no_hits, ["mrr"]))).problem


def test_check_identical_runs_finds_equal_runs_and_measures():
    qrels, ranking = draw_collection(6)
    scaled = {q: {d: 10 * s for d, s in docs.items()} for q, docs in ranking.items()}
    found = list(
        suspicious_scores.check_identical_runs(
            make_audit_input(qrels, {"one": ranking, "other": scaled}, ["ndcg@10", "map"])
        )
    )
    assert [(finding.check, finding.problem) for finding in found] == [("same run", True)]
    one_relevant = {f"q{i}": {"a": 1} for i in range(3)}
    found = get_only(
        suspicious_scores.check_identical_runs(
            make_audit_input(one_relevant, {q: {"x": 2.0, "a": 1.0} for q in one_relevant}, ["map", "mrr"])
        )
    )
    assert (found.problem, found.message) == (False, "map and mrr are equal for every query")


# Missing queries and repeated documents


@pytest.mark.parametrize("convention", ["default", "trec9"])
def test_check_missing_queries_reports_increase_of_mean(convention):
    qrels = {f"q{i}": {"a": 1} for i in range(4)}
    ranking = {"q0": {"a": 1.0}, "q1": {"x": 2.0, "a": 1.0}}
    found = get_only(suspicious_scores.check_missing_queries(make_audit_input(qrels, ranking, ["mrr"], convention)))
    assert (found.problem, found.count, list(found.examples)) == (True, 2, ["q2", "q3"])
    assert found.table.rows == [("mrr", 0.375, 0.75, 0.375)]
    assert found.effect == "mrr 0.3750 to 0.7500 without them"
    assert ("are scored 0" if convention == "default" else "are ignored") in found.message


def test_check_missing_queries_counts_failed_but_not_empty():
    qrels = {f"q{i}": {"a": 1} for i in range(4)}
    audit_input = make_audit_input(qrels, {"q0": {"a": 1.0}, "q1": {"a": 1.0}}, ["mrr"], "trec9")
    timings = pl.DataFrame(
        {"query": ["q0", "q1", "q2", "q3"], "repeat": [0, 0, 0, 0], "status": ["ok", "ok", "failed", "ok"]}
    )
    audit_input.runs["run"] = Run(audit_input.runs["run"].table, "run", timings)
    assert audit_input.scores("run").means["mrr"] == 0.5  # q2 failed and q3 is empty, but both count in the mean
    found = get_only(suspicious_scores.check_missing_queries(audit_input))
    assert (found.count, list(found.examples)) == (1, ["q2"])
    assert "0 missing, 1 failed" in found.message
    assert "1 query got no document" in found.message
    assert found.table.rows == [("mrr", 0.5, pytest.approx(2 / 3), pytest.approx(2 / 3 - 0.5))]


def test_check_repeated_documents_scores_both_ways():
    table = pl.DataFrame(
        {"query": ["q"] * 4, "doc": ["d1", "d1", "d1", "d2"], "score": [4.0, 3.0, 2.0, 1.0], "rank": [1, 2, 3, 4]}
    )
    convention = PRESETS["default"].but(duplicates="first")
    audit_input = make_audit_input({"q": {"d1": 1, "d2": 1}}, {"q": {"d1": 1.0}}, ["recall@4", "map@4"], convention)
    audit_input.runs["run"] = Run(table, "run")
    found = get_only(suspicious_scores.check_repeated_documents(audit_input))
    assert (found.problem, found.count, list(found.examples)) == (True, 2, ["d1 for q"])
    assert found.table.rows == [["recall@4", 1.0, 2.0], ["map@4", 0.75, 2.0]]


# Repeats and number of queries


def test_check_trials_counts_changed_rankings_and_depth():
    qrels = {f"q{i}": {"a": 1} for i in range(3)}
    first = {q: {"a": 3.0, "b": 2.0, "c": 1.0} for q in qrels}
    changed = {**first, "q0": {"b": 3.0, "a": 2.0, "c": 1.0}, "q1": {"a": 3.0, "c": 2.0, "b": 1.0}}
    audit_input = make_audit_input(qrels, first, ["mrr"], repeats={"run": [make_run(changed), make_run(first)]})
    found = get_only(stability.check_trials(audit_input))
    assert (found.problem, found.count, list(found.examples)) == (True, 2, ["q0", "q1"])
    assert "in 3 trials, 2 of them within the first 10, from rank 1 on" in found.message
    assert found.table.header == ["measure", "1", "2", "3", "spread"]
    assert found.table.rows[0][1:] == pytest.approx([1.0, 2.5 / 3, 1.0, 0.5 / 3])
    unchanged = get_only(
        stability.check_trials(make_audit_input(qrels, first, ["mrr"], repeats={"run": [make_run(first)]}))
    )
    assert (unchanged.problem, unchanged.message) == (False, "run returned the same rankings in all 2 trials")


def make_repeated_run(rankings, name="run"):
    """Run with one trial per mapping of `rankings`."""
    first, *others = (make_run(ranking, name).table for ranking in rankings)
    tables = [ranking.with_columns(pl.lit(trial).alias("repeat")) for trial, ranking in enumerate(others, 1)]
    return Run(first, name, repeats=pl.concat(tables))


@pytest.mark.parametrize(("n_trials", "problem"), [(2, True), (3, False)])
def test_check_trials_three_or_more_trials_are_a_note(n_trials, problem):
    qrels = {f"q{i}": {"a": 1} for i in range(3)}
    good, bad = (dict.fromkeys(qrels, docs) for docs in ({"a": 2.0, "b": 1.0}, {"b": 2.0, "a": 1.0}))
    run = make_repeated_run([good, bad, good][:n_trials])
    found = audit(qrels, {"run": run}, measures=["mrr"], checks="trials")
    (finding,) = found.findings
    assert (finding.problem, finding.count, finding.effect) == (problem, 3, "mrr 0.5000 to 1.0000")
    assert finding.message.endswith("; comparisons and reports use all trials") is not problem
    assert bool(finding.remedy) is problem


def test_check_query_count_uses_mean_over_trials():
    good, bad = {"a": 2.0, "b": 1.0}, {"b": 2.0, "a": 1.0}  # mrr 1 and 1/2
    qrels = {f"q{i}": {"a": 1} for i in range(40)}

    def make_ranking(good_queries):
        return {q: good if i in good_queries else bad for i, q in enumerate(qrels)}

    # In the first trial, `lucky` has mrr 1 on 30 queries and `steady` on 28. Over three trials, `lucky` has mrr 1 on 70
    # of 120 queries and `steady` on 84.
    lucky = make_repeated_run([make_ranking(range(30)), make_ranking(range(20)), make_ranking(range(20))], "lucky")
    steady = make_repeated_run(
        [make_ranking(range(12, 40)), make_ranking(range(12, 40)), make_ranking(range(12, 40))], "steady"
    )
    found = audit(qrels, {"lucky": lucky, "steady": steady}, measures=["mrr"], checks="query-count")
    (finding,) = found.findings
    differences = np.array([0.5 * (i >= 12) - 0.5 * ((i < 30) + 2 * (i < 20)) / 3 for i in range(40)])
    assert differences.mean() == pytest.approx((84 - 70) / 120 / 2)
    assert (finding.subject, finding.problem) == ("steady", True)
    p = stats.ttest_1samp(differences, 0).pvalue
    assert finding.table.rows == [
        ["mrr", pytest.approx(differences.mean()), pytest.approx(p), *finding.table.rows[0][3:]]
    ]


def test_scores_query_unscored_in_one_trial_is_unscored():
    audit_input = make_audit_input(
        {"q1": {"a": 1}, "q2": {"a": 1}},
        {"q1": {"a": 1.0}, "q2": {"b": 2.0, "a": 1.0}},
        ["mrr"],
        PRESETS["default"].but(missing="skip"),
        repeats={"run": [make_run({"q1": {"b": 2.0, "a": 1.0}})]},
    )
    found = audit_input.scores("run")
    assert found.values["mrr"].tolist() == pytest.approx([0.75, math.nan], nan_ok=True)
    assert list(found.unscored["mrr"]) == ["q2"]
    assert found.means["mrr"] == pytest.approx((0.75 + 0.5) / 2)  # mean over the means per trial, as in a report


def test_check_trials_reordered_ties_differ_only_if_ranked():
    qrels = {"q": {"a": 1}}
    one, other = {"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 1.0, "a": 1.0}}
    assert not get_only(
        stability.check_trials(make_audit_input(qrels, one, ["mrr"], repeats={"run": [make_run(other)]}))
    ).problem
    ranked = PRESETS["default"].but(ties="ranked")
    assert get_only(
        stability.check_trials(make_audit_input(qrels, one, ["mrr"], ranked, repeats={"run": [make_run(other)]}))
    ).problem


def test_check_query_count_reports_detectable_difference(shared):
    audit_input = read_public_evidence(shared, "dl19", ["BM25", "REP_LLAMA", "SPLADE_P_P_ENSEMBLE_DISTIL"])
    found = get_only(stability.check_query_count(audit_input))
    assert (found.problem, found.count, found.subject) == (True, 1, "REP_LLAMA")
    assert (
        "ranks REP_LLAMA above SPLADE_P_P_ENSEMBLE_DISTIL (+0.0076, p 0.654), but the difference is not significant"
        in found.message
    )
    assert "the order of the runs is not established" in found.message
    differences = (
        audit_input.scores("REP_LLAMA").values["ndcg@10"]
        - audit_input.scores("SPLADE_P_P_ENSEMBLE_DISTIL").values["ndcg@10"]
    )
    row = found.table.rows[1]
    assert row[1] == pytest.approx(differences.mean())
    assert row[2] == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert row[3] == pytest.approx(detectable_difference(differences.std(ddof=1), 43))
    assert row[4] == queries_needed(differences.std(ddof=1), differences.mean())
    two_runs = get_only(stability.check_query_count(read_public_evidence(shared, "dl19", ["BM25", "REP_LLAMA"])))
    assert not two_runs.problem
    assert [row[0] for row in two_runs.table.rows] == list(DEFAULT_MEASURES)


def make_run_pair(n, better, worse):
    """Two runs with mrr 1 and 1/2 on `better` queries, 1/2 and 1 on `worse` queries, and 1 on all others."""
    good, bad = {"a": 2.0, "b": 1.0}, {"b": 2.0, "a": 1.0}
    qrels = {f"q{i}": {"a": 1} for i in range(n)}
    one = {f"q{i}": bad if better <= i < better + worse else good for i in range(n)}
    other = {f"q{i}": bad if i < better else good for i in range(n)}
    return AuditInput(
        Judgments(qrels),
        {"one": make_run(one, "one"), "other": make_run(other, "other")},
        [parse_measure("mrr")],
        PRESETS["default"],
    )


def test_check_query_count_significant_low_power_difference_is_a_note():
    differences = np.array([0.5] * 8 + [-0.5] + [0.0] * 51)
    p, detectable = stats.ttest_1samp(differences, 0).pvalue, detectable_difference(differences.std(ddof=1), 60)
    assert p < 0.05
    assert differences.mean() < detectable
    found = get_only(stability.check_query_count(make_run_pair(60, 8, 1)))
    assert (found.problem, found.count) == (False, 1)
    assert found.message == (
        f"one is better than other (+0.0583, p {p:.3f}) by mrr, but the difference is smaller than what 60 queries "
        f"detect with 80% power ({detectable:.4f}): its size is uncertain; "
        f"{queries_needed(differences.std(ddof=1), differences.mean())} queries would detect it"
    )


def test_check_query_count_insignificant_difference_is_a_problem():
    differences = np.array([0.5] * 5 + [-0.5] * 2 + [0.0] * 53)
    p = stats.ttest_1samp(differences, 0).pvalue
    assert p > 0.05
    found = get_only(stability.check_query_count(make_run_pair(60, 5, 2)))
    assert (found.problem, found.count) == (True, 1)
    assert f"mrr ranks one above other (+0.0250, p {p:.3f}), but the difference is not significant" in found.message
    needed = f"{queries_needed(differences.std(ddof=1), differences.mean()):,}"
    assert found.remedy == f"report no significant difference, or judge more: {needed} queries detect it with 80% power"


@pytest.mark.parametrize(("n", "is_reported", "problem"), [(5, True, True), (15, True, False), (25, False, False)])
def test_check_query_count_few_queries_is_a_note_or_problem(n, is_reported, problem):
    qrels, ranking = draw_collection(queries=n)
    found = list(stability.check_query_count(make_audit_input(qrels, ranking)))
    assert [finding.problem for finding in found] == ([problem] if is_reported else [])
