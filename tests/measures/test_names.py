"""Names of measures: aliases, canonical forms, groups, and errors for unknown names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import PRESETS, BadInput, UnknownName, evaluate
from ragauge.measures.names import _NAMES_BY_ALIAS, parse_measure, parse_measure_names
from ragauge.measures.registry import MEASURE_REGISTRY


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("MRR", "mrr"),
        ("Hit@5", "hit_rate@5"),
        ("P_10", "precision@10"),
        ("P@10", "precision@10"),
        ("ndcg_cut_10", "ndcg@10"),
        ("ndcg_cut.10", "ndcg@10"),
        ("nDCG@10", "ndcg@10"),
        ("NDCG@10", "ndcg@10"),
        ("map_cut_100", "map@100"),
        ("recip_rank", "mrr"),
        ("success_1", "hit_rate@1"),
        ("iprec_at_recall_0.10", "iprec_at_recall@0.1"),
        ("IPrec@0.1", "iprec_at_recall@0.1"),
        ("Rprec", "r_precision"),
        ("r-precision", "r_precision"),
        ("Rprec_mult_0.20", "rprec_mult@0.2"),
        ("AP(rel=2)@100", "map(rel=2)@100"),
        ("nDCG(dcg='exp-log2')@10", "ndcg(gain=exp)@10"),
        ("ndcg_burges@5", "ndcg(gain=exp)@5"),
        ("map@100-l2", "map(rel=2)@100"),
        ("rbp.95", "rbp(p=0.95)"),
        ("RBP(p=0.8)", "rbp(p=0.8)"),
        ("rbp(0.8)", "rbp(p=0.8)"),
        ("Hit Rate@3", "hit_rate@3"),
        ("DR@20", "dr@20"),
        ("Diversity_Count@20", "diversity_count@20"),
        ("alpha_nDCG@20", "alpha_ndcg@20"),
        ("StRecall@10", "subtopic_recall@10"),
        ("ERR_IA@20", "err_ia@20"),
        ("11pt_avg", "11pt_avg"),
        ("set_F", "set_f"),
        ("SetP", "set_precision"),
        ("unj_5", "unjudged@5"),
        ("recall(of=capped, rel=2)@10", "recall(of=capped,rel=2)@10"),
        ("recall(of=relevant)@10", "recall@10"),
        ("context_precision@5", "map(of=found)@5"),
        ("utility(weights=2/-1/0/0)", "utility(weights=2/-1/0/0)"),
    ],
)
def test_parse_measure_returns_canonical_name(name, canonical):
    assert str(parse_measure(name)) == canonical


@given(st.sampled_from(sorted(MEASURE_REGISTRY)), st.integers(1, 2000))
def test_parse_measure_canonical_name_round_trips(name, k):
    spec = MEASURE_REGISTRY[name]
    text = name + {"rank": f"@{k}", "rank?": f"@{k}", "level": "@0.5", "": ""}[spec.cutoff]
    assert str(parse_measure(text)) == text
    assert parse_measure(str(parse_measure(text))) == parse_measure(text)


def test_measure_registry_aliases_are_unique():
    owners: dict[str, set[str]] = {}
    for spec in MEASURE_REGISTRY.values():
        for alias in {spec.name, *spec.aliases, spec.trec.lower()} - {""}:
            owners.setdefault(alias, set()).add(spec.name)
    assert {a: o for a, o in owners.items() if len(o) > 1} == {}
    assert set(_NAMES_BY_ALIAS) == set(owners)


def test_parse_measure_convention_is_part_of_name():
    assert str(parse_measure("ndcg@10", PRESETS["rig"])) == "ndcg(gain=exp)@10"
    assert str(parse_measure("recall@10", PRESETS["ann"])) == "recall(of=k)@10"
    assert str(parse_measure("mrr", PRESETS["swarm"])) == "mrr@20"
    assert str(parse_measure("mrr@5", PRESETS["swarm"])) == "mrr@5"
    assert str(parse_measure("ndcg(gain=linear)@10", PRESETS["rig"])) == "ndcg@10"


def test_parse_measure_unknown_name_suggests_nearest():
    with pytest.raises(UnknownName) as error:
        parse_measure("ndgc@10")
    assert str(error.value) == (
        "unknown measure `ndgc@10`\nhint: did you mean `ndcg@10`? List all with `ragauge measures`"
    )
    assert isinstance(error.value, LookupError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("judged", "judged needs a cutoff"),
        ("bpref@10", "bpref has no cutoff"),
        ("ndcg@0", "the cutoff of ndcg must be a whole number of at least 1, got 0"),
        ("ndcg@2.5", "the cutoff of ndcg must be a whole number of at least 1, got 2.5"),
        ("recall(of=most)@10", "`of` of recall cannot be `most`"),
        ("rbp(p=high)", "`high` in `rbp\\(p=high\\)` is not a number"),
        ("recall(rel=nan)", "`rel` of recall must be a finite number, got nan"),
        ("err(top=inf)", "`top` of err must be a finite number, got inf"),
        ("utility(weights=nan/1/1/1)", "`weights` of utility must be a finite number, got nan/1/1/1"),
    ],
)
def test_parse_measure_invalid_cutoff_or_option_raises_error(name, message):
    with pytest.raises(BadInput, match=message):
        parse_measure(name)


def test_evaluate_gain_table_without_finite_numbers_raises_error():
    with pytest.raises(BadInput, match="`1:nan` is not a gain"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["ndcg(gain=1:nan)"])


def test_parse_measure_unknown_option_suggests_nearest():
    with pytest.raises(UnknownName, match="unknown option `gian` of ndcg") as error:
        parse_measure("ndcg(gian=exp)@10")
    assert "did you mean `gain`?" in str(error.value)


def test_parse_measure_names_expands_groups_and_removes_duplicates():
    assert [str(m) for m in parse_measure_names(["P.5,10", "P_5", "ndcg_cut.10", "map"])] == [
        "precision@5",
        "precision@10",
        "ndcg@10",
        "map",
    ]
    assert len(parse_measure_names(["official"])) == 8 + 11 + 9


def test_parse_measure_and_evaluate_accept_swarm_and_trec_eval_names():
    assert str(parse_measure("Diversity Count")) == str(parse_measure("diversity_count")) == "diversity_count@20"
    assert str(parse_measure("Diversity Count@5")) == "diversity_count@5"
    qrels, run = {"q": {"a": 1}, "r": {"b": 1}}, {"q": {"a": 1.0}}
    scores = evaluate(qrels, run, "num_q")
    assert (scores.means["num_q"], scores.n["num_q"]) == (2.0, 2)
    assert evaluate(qrels, run, "num_q", "trec9").means["num_q"] == 1.0, "a query missing from the run is excluded"


@pytest.mark.parametrize(
    ("text", "measures"),
    [
        ("ndcg@10,map", ["ndcg@10", "map"]),
        ("nDCG@10 AP(rel=2)", ["ndcg@10", "map(rel=2)"]),
        ("recall@5,10,100", ["recall@5", "recall@10", "recall@100"]),
        ("ndcg(gain=exp)@10, recall(of=capped)@10", ["ndcg(gain=exp)@10", "recall(of=capped)@10"]),
        ("Hit Rate@5, P_5 P_10", ["hit_rate@5", "precision@5", "precision@10"]),
        ("Hit Rate@5", ["hit_rate@5"]),
        ("ndcg_cut.5,10", ["ndcg@5", "ndcg@10"]),
    ],
)
def test_parse_measure_names_splits_outside_parentheses(text, measures):
    assert [str(one) for one in parse_measure_names([text])] == measures


def test_parse_measure_names_unknown_part_raises_error():
    with pytest.raises(UnknownName, match="unknown measure `ndgc@10`"):
        parse_measure_names(["map,ndgc@10"])
