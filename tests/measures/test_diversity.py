"""Diversity measures: published ndeval scores, agreement with pyndeval on random topics, and target maps."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import PRESETS, MissingEvidence, evaluate, judgments_from_subtopics, read_judgments

NAMES = {"alpha_ndcg": "alpha-nDCG", "err_ia": "ERR-IA", "subtopic_recall": "strec"}


def test_diversity_measures_match_published_ndeval_scores(shared):
    folder = shared("trec_web_diversity")
    expected = json.loads((folder / "ndeval.wt13.json").read_text())
    measures = {f"{ours}@{k}": f"{theirs}@{k}" for ours, theirs in NAMES.items() for k in (5, 10, 20)}
    found = evaluate(folder / "qrels.web.201-250.ndeval.txt.gz", folder / "cedr.test.wt13.run.gz", list(measures))
    for ours, theirs in measures.items():
        assert found.means[ours] == pytest.approx(expected["mean"][theirs], abs=1e-6)
        for query, values in expected["per_query"].items():
            assert found.per_query[ours][query] == pytest.approx(values[theirs], abs=2e-6), (ours, query)


ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["1", "2"]), st.sampled_from("123"), st.sampled_from("abcdef")),
    st.integers(0, 2),
    min_size=1,
    max_size=20,
)
RUNS = st.dictionaries(
    st.sampled_from(["1", "2"]), st.dictionaries(st.sampled_from("abcdefxy"), st.integers(0, 4).map(float), min_size=1)
)


@given(ROWS, RUNS, st.sampled_from([1, 2]))
def test_diversity_measures_match_pyndeval_on_random_topics(rows, run, rel):
    import pyndeval

    qrels = [pyndeval.SubtopicQrel(q, s, d, int(g >= rel)) for (q, s, d), g in rows.items()]
    docs = [pyndeval.ScoredDoc(q, d, score) for q, ds in run.items() for d, score in ds.items()]
    judged = {q for (q, _, _), g in rows.items() if g >= rel}
    measures = {f"{ours}@{k}": f"{theirs}@{k}" for ours, theirs in NAMES.items() for k in (5, 10)}
    theirs = pyndeval.ndeval(qrels, docs, measures=list(measures.values())) if docs else {}
    topics = judgments_from_subtopics([(q, s, d, g) for (q, s, d), g in rows.items()])
    ours = evaluate(topics, run, list(measures), PRESETS["default"].but(rel=rel)).per_query
    canonical = {measure: measure.replace("@", f"(rel={rel})@") if rel > 1 else measure for measure in measures}
    for query in judged & run.keys():
        for measure, ndeval_name in measures.items():
            assert ours[canonical[measure]][query] == pytest.approx(theirs[query][ndeval_name], abs=1e-6), (
                measure,
                query,
            )


TARGETS = {"a": ["A"], "a2": ["A"], "b": ["B", "C"], "n": ["A"]}


def test_dr_counts_targets_instead_of_documents():
    qrels = {"q": {"a": 1, "a2": 1, "b": 1}}
    run = {"q": ["a", "n", "a2", "b"]}
    found = evaluate(qrels, run, ["dr@3", "dr@4", "dr(dedupe=before)@2", "recall@3"], targets=TARGETS).means
    assert found == pytest.approx({"dr@3": 1 / 3, "dr@4": 1.0, "dr(dedupe=before)@2": 1.0, "recall@3": 2 / 3})


def test_dr_without_target_map_raises_error_with_hint():
    with pytest.raises(MissingEvidence, match="needs a target map") as error:
        evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["dr@5"])
    assert "--targets" in str(error.value)
    assert evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["dr(targets=identity)@5"]).means["dr(targets=identity)@5"] == 1.0


def test_unique_ratio_falls_with_duplicates_but_diversity_count_does_not():
    qrels, run = {"q": {"a": 1, "b": 1}}, {"q": ["a", "a", "b", "x"]}
    found = evaluate(qrels, run, ["unique_ratio@4", "diversity_count@4", "dr@4"], "graphflow").means
    assert list(found.values()) == [0.75, 2.0, 1.0]


def test_alpha_ndcg_without_subtopics_raises_error():
    with pytest.raises(MissingEvidence, match="subtopic judgments"):
        evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["alpha_ndcg@5"])


def test_read_judgments_subtopics_use_best_grade(tmp_path):
    (tmp_path / "q.txt").write_text("1 1 a 1\n1 2 a 3\n1 2 b 0\n")
    judged = read_judgments(tmp_path / "q.txt", format="subtopics")
    assert judged.nested == {"1": {"a": 3.0, "b": 0.0}}
    with pytest.raises(ValueError, match="has the grades 1, 3") as error:
        read_judgments(tmp_path / "q.txt")
    assert "--qrels-format subtopics" in str(error.value)
