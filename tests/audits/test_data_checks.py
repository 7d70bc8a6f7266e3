"""Data checks of the audit: duplicates, orphans and leaks, with their effect on scores; clean data has no problem."""

from __future__ import annotations

import itertools
import math
import random
import re
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

import ragauge
from ragauge.audits import corpus, leakage, leakage_fields, leakage_predictors
from ragauge.audits.audit_input import AuditInput
from ragauge.audits.checks import AUDIT_CHECKS, run_audit_checks
from ragauge.audits.leakage_fields import WeightedCorpus
from ragauge.core.documents import Document
from ragauge.core.errors import MissingEvidence, MissingExtra
from ragauge.core.records import Judgments, Run
from ragauge.core.text import shingles
from ragauge.datasets import corpus_checks, synthetic
from ragauge.datasets.corpus_checks import find_id_repairs
from ragauge.evaluation.checks import select_checks
from ragauge.measures.conventions import PRESETS
from ragauge.measures.names import parse_measure

CHECKS = (
    corpus.check_duplicates,
    corpus.check_near_duplicates,
    corpus.check_orphans,
    leakage.check_own_documents,
    leakage.check_verbatim_queries,
    leakage.check_predictors,
)


def make_run(scores, name="run"):
    rows = [(query, doc, float(score)) for query, docs in scores.items() for doc, score in docs.items()]
    return Run(
        pl.DataFrame(rows, schema={"query": pl.String, "doc": pl.String, "score": pl.Float64}, orient="row"), name
    )


def make_audit_input(
    grades, runs=None, *, documents=None, queries=None, measures=("ndcg@10", "mrr"), convention="default"
):
    if isinstance(documents, dict):
        documents = [Document(name, text) for name, text in documents.items()]
    return AuditInput(
        grades if isinstance(grades, Judgments) else Judgments(grades),
        {name: run if isinstance(run, Run) else make_run(run, name) for name, run in (runs or {}).items()},
        [parse_measure(name) for name in measures],
        PRESETS[convention],
        documents,
        queries,
    )


def run_bm25(data, k=100):
    """BM25 run of all queries over all documents, best first."""
    index = WeightedCorpus.from_documents(data.documents)
    rows = np.arange(len(data.documents))
    scores = {}
    for query, text in data.queries.items():
        row_scores = index.scores(text, rows)
        best = np.argsort(-row_scores, kind="stable")[:k].tolist()
        scores[query] = {data.documents[i].id: row_scores[i] for i in best if row_scores[i] > 0}
    return make_run(scores, "bm25")


def make_dataset_input(data, **runs):
    return make_audit_input(data.judgments, runs, documents=data.documents, queries=data.queries)


def find_by_check(check, audit_input):
    return {finding.check: finding for finding in check(audit_input)}


def test_weighted_corpus_scores_match_bm25_formula():
    documents = [Document("a", "red fox red"), Document("b", "a red dog"), Document("c", "grey")]
    found = WeightedCorpus.from_documents(documents).scores("Red red fox?", np.array([0, 1, 2]))
    rarity = {"red": math.log(1 + 1.5 / 2.5), "fox": math.log(1 + 2.5 / 1.5)}
    saturated = {count: count / (count + 0.9 * (1 - 0.4 + 0.4 * 3 / (7 / 3))) for count in (1, 2)}
    assert found[0] == pytest.approx(2 * rarity["red"] * saturated[2] + rarity["fox"] * saturated[1])
    assert found[1] == pytest.approx(2 * rarity["red"] * saturated[1])
    assert found[2] == 0


def test_check_duplicates_effect_by_hand():
    documents = {"a": "The  same\nText", "b": "the same text", "c": "another", "e": " \n", "f": ""}
    audit_input = make_audit_input(
        {"q": {"a": 1, "c": 0}}, {"mine": {"q": {"b": 3, "a": 2, "c": 1}}}, documents=documents
    )
    found = find_by_check(corpus.check_duplicates, audit_input)
    duplicates = found["duplicates"]
    assert (duplicates.problem, duplicates.count, list(duplicates.examples)) == (True, 2, ["a = b"])
    # The relevant document a is at rank 2, and its duplicate b at rank 1. If they share judgments or are merged, rank 1
    # is relevant, and both scores are 1.
    assert duplicates.table.header == ["run", "measure", "score", "duplicates share judgments", "duplicates are merged"]
    assert duplicates.table.rows == [
        ["mine", "ndcg@10", pytest.approx(1 / math.log2(3)), 1, 1],
        ["mine", "mrr", 0.5, 1, 1],
    ]
    assert duplicates.effect == (
        "ndcg@10 of mine 0.6309 to 1.0000 if duplicates share judgments; "
        "ndcg@10 of mine 0.6309 to 1.0000 if duplicates are merged"
    )
    assert (found["empty documents"].count, found["empty documents"].problem) == (2, False)
    assert "contradictions" not in found


def test_check_duplicates_with_equal_grades_have_no_problem():
    documents = {"a": "one text", "b": "One text", **{f"d{i}": f"text number {i}" for i in range(100)}}
    found = find_by_check(corpus.check_duplicates, make_audit_input({"q": {"a": 1, "b": 1}}, documents=documents))
    assert (found["duplicates"].count, found["duplicates"].problem, found["duplicates"].effect) == (
        2,
        False,
        corpus.DUPLICATES_EFFECT,
    )


def test_check_duplicates_empty_documents_are_a_problem_if_means_change():
    documents = {"a": "some text", "e": ""}
    changing = make_audit_input({"q": {"a": 1, "e": 1}}, {"r": {"q": {"a": 1}}}, documents=documents)
    finding = find_by_check(corpus.check_duplicates, changing)["empty documents"]
    assert finding.problem
    assert finding.effect == f"ndcg@10 of r {1 / (1 + 1 / math.log2(3)):.4f} to 1.0000 if they are excluded"
    unchanged = make_audit_input({"q": {"a": 1, "e": 1}}, {"r": {"q": {"x": 1}}}, documents=documents)
    finding = find_by_check(corpus.check_duplicates, unchanged)["empty documents"]
    assert (finding.problem, finding.count, finding.table) == (False, 1, None)
    assert finding.effect == "scores do not change if they are excluded"
    without_run = find_by_check(corpus.check_duplicates, make_audit_input({"q": {"a": 1, "e": 1}}, documents=documents))
    assert without_run["empty documents"].problem  # without a run, the effect is unknown


def test_check_duplicates_different_grades_are_contradictions():
    documents = {"a": "one text", "b": "One text", "c": "other"}
    audit_input = make_audit_input(
        {"q": {"a": 2, "b": 0}, "p": {"c": 1}}, {"r": {"q": {"b": 1}, "p": {}}}, documents=documents
    )
    finding = find_by_check(corpus.check_duplicates, audit_input)["contradictions"]
    assert (finding.problem, finding.count, list(finding.examples)) == (True, 1, ["query q: a is 2, b is 0"])
    assert finding.effect == f"ndcg@10 of r 0.0000 to {1 / (1 + 1 / math.log2(3)) / 2:.4f} if the higher grade is used"


def test_data_checks_keep_inputs_unchanged():
    grades = {"q": {"a": 1}, "p": {"nowhere": 1, "c": 1}}
    audit_input = make_audit_input(
        grades,
        {"r": {"q": {"b": 1}, "p": {"c": 1}}},
        documents={"a": "x y", "b": "x y", "c": "z"},
        queries={"q": "x y"},
    )
    table = audit_input.runs["r"].table.clone()
    for check in (
        corpus.check_duplicates,
        corpus.check_near_duplicates,
        corpus.check_orphans,
        leakage.check_own_documents,
        leakage.check_verbatim_queries,
    ):
        assert list(check(audit_input))
    assert grades == {"q": {"a": 1}, "p": {"nowhere": 1, "c": 1}}
    assert audit_input.runs["r"].table.equals(table)


def test_near_duplicate_documents_match_pairwise_jaccard():
    rng = random.Random(0)
    words = [f"w{i}" for i in range(400)]
    texts = [[rng.choice(words) for _ in range(rng.randint(2, 60))] for _ in range(150)]
    for text in list(texts[:60]):  # copies with up to four changed words
        copy = list(text)
        for _ in range(rng.randint(0, 4)):
            copy[rng.randrange(len(copy))] = rng.choice(words)
        texts.append(copy)
    documents = [Document(f"d{i}", " ".join(text)) for i, text in enumerate(texts)]
    sets = {document.id: shingles(document.text) for document in documents}
    near = [
        {a.id, b.id}
        for a, b in itertools.combinations(documents, 2)
        if len(sets[a.id] & sets[b.id]) >= corpus_checks.NEAR_DUPLICATE_JACCARD * len(sets[a.id] | sets[b.id])
    ]
    groups = corpus.find_near_duplicate_documents(documents)
    assert {doc for duplicates in groups for doc in duplicates.group} == set().union(*near)
    assert len(near) > 15
    for duplicates in groups:
        similarities = [
            len(sets[duplicates.group[0]] & sets[doc]) / len(sets[duplicates.group[0]] | sets[doc])
            for doc in duplicates.group[1:]
        ]
        assert duplicates.similarity == min(similarities) >= corpus_checks.NEAR_DUPLICATE_JACCARD
    assert groups == corpus.find_near_duplicate_documents(documents)


def test_check_near_duplicates_ignores_exact_duplicates():
    body = " ".join(f"word{i}" for i in range(40))
    documents = {"a": f"{body} end", "b": f"{body} stop", "c": f"{body} END"} | {f"d{i}": f"text {i}" for i in range(5)}
    finding = find_by_check(corpus.check_near_duplicates, make_audit_input({"q": {"a": 1}}, documents=documents))[
        "near duplicates"
    ]
    assert (finding.problem, finding.count, list(finding.examples)) == (True, 2, ["a ~ b"])
    in_large_corpus = find_by_check(
        corpus.check_near_duplicates,
        make_audit_input({"q": {"d1": 1}}, documents=documents | {str(i): f"t {i}" for i in range(20)}),
    )
    assert not in_large_corpus["near duplicates"].problem


def test_check_near_duplicates_without_rensa_raises_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(MissingExtra) as caught:
        list(corpus.check_near_duplicates(make_audit_input({"q": {"a": 1}}, documents={"a": "x"})))
    assert "[audit]'" in caught.value.hint


@pytest.mark.parametrize(
    ("orphan", "known", "name"),
    [
        ("CACM-756", "CACM-0756", "zero padding"),
        ("0012", "12", "zero padding"),
        ("Doc-A", "doc-a", "case"),
        (" d1", "d1", "white space"),
        ("report.html", "report", "a file ending"),
        ("report", "report.txt.gz", "a file ending"),
        ("corpus/7", "7", "a prefix"),
        ("7", "doc-7", "a prefix"),
        ("DOC-07.txt", "doc7", "all of these"),
    ],
)
def test_find_id_repairs_matches_spelling_variants(orphan, known, name):
    assert [(repair.name, repair.matches) for repair in find_id_repairs([orphan], [known, "other"])] == [
        (name, {orphan: known})
    ]


def test_find_id_repairs_ignores_ambiguous_ids():
    assert find_id_repairs(["a1"], ["a01", "a001"]) == []
    assert find_id_repairs(["a01", "a001"], ["a1"]) == []
    assert find_id_repairs(["3.14", "2024.05"], ["3", "2024"]) == []


def test_check_orphans_documents_effect_by_hand():
    documents = {"d01": "one", "d02": "two", "d03": "three"}
    grades = {"q": {"d1": 1, "d02": 1}, "p": {"gone": 1}}
    runs = {"r": {"q": {"d01": 2, "d02": 1}, "p": {"d03": 1}}}
    finding = find_by_check(
        corpus.check_orphans, make_audit_input(grades, runs, documents=documents, measures=["precision@2", "map"])
    )["orphan documents"]
    assert (finding.problem, finding.count, list(finding.examples)) == (True, 2, ["d1 -> d01", "gone"])
    assert "1 of 2 ids would match if zero padding were ignored" in finding.message
    # Unchanged: q has one of two relevant documents, at rank 2, and p none. Removed: p has no relevant document left
    # and is not scored. Repaired: q has both relevant documents, and p none.
    assert finding.table.rows == [
        ["r", "precision@2", 0.25, 2, 0.5, 1, 0.5, 2],
        ["r", "map", 0.125, 2, 0.5, 1, 0.5, 2],
    ]
    assert finding.effect.startswith("precision@2 of r 0.2500 (n=2) to 0.5000 (n=1) if orphans are removed")


def test_check_orphans_not_relevant_have_no_problem():
    found = find_by_check(
        corpus.check_orphans, make_audit_input({"q": {"a": 1, "gone": 0}}, documents={"a": "x"}, queries={"q": "x"})
    )
    assert not found["orphan documents"].problem
    assert found["orphan documents"].count == 1
    assert (found["orphan queries"].problem, found["orphan queries"].count) == (False, 0)


def test_check_orphans_matches_query_ids():
    audit_input = make_audit_input(
        {"q1": {"a": 1}, "q02": {"a": 1}}, {"r": {"q1": {"a": 1}, "q2": {"a": 1}}}, queries={"q1": "x", "q2": "y"}
    )
    finding = find_by_check(corpus.check_orphans, audit_input)["orphan queries"]
    assert (finding.problem, list(finding.examples)) == (True, ["q02 -> q2"])
    assert finding.table.rows[0] == ["r", "ndcg@10", 0.5, 2, 1, 1, 1, 2]


def test_check_orphans_cacm_corrected_scores_match_evaluate(shared):
    data = ragauge.load(shared("cacm"))
    raw = {
        query: {re.sub(r"-0+", "-", doc): grade for doc, grade in docs.items()}
        for query, docs in data.judgments.nested.items()
    }
    run = run_bm25(data, 30)
    audit_input = make_audit_input(
        raw, {"bm25": run}, documents=data.documents, queries=data.queries, measures=["precision@30", "map"]
    )
    finding = find_by_check(corpus.check_orphans, audit_input)["orphan documents"]
    assert (finding.problem, finding.count) == (True, 55)
    assert "CACM-756 -> CACM-0756" in finding.examples
    correct_means = ragauge.evaluate(data.judgments, run.nested, ["precision@30", "map"]).means
    raw_means = ragauge.evaluate(raw, run.nested, ["precision@30", "map"]).means
    column = finding.table.header.index("ids are corrected")
    assert [row[2] for row in finding.table.rows] == pytest.approx(list(raw_means.values()), abs=1e-12)
    assert [row[column] for row in finding.table.rows] == pytest.approx(list(correct_means.values()), abs=1e-12)
    assert correct_means["precision@30"] > raw_means["precision@30"]


def test_check_duplicates_cranfield_has_two_empty_documents(shared):
    data = ragauge.load(shared("cranfield"))
    found = find_by_check(corpus.check_duplicates, make_audit_input(data.judgments, documents=data.documents))
    assert list(found["empty documents"].examples) == ["471", "995"]
    assert found["empty documents"].problem  # without a run, the effect is unknown
    assert (found["duplicates"].problem, found["duplicates"].count) == (False, 0)


def test_data_checks_arguana_match_known_counts(shared):
    data = ragauge.load(shared("arguana"))
    audit_input = make_audit_input(data.judgments, documents=data.documents, queries=data.queries)
    texts = {" ".join(document.whole.split()).casefold() for document in data.documents}
    assert len(texts) == 8626  # the published number of unique texts
    finding = find_by_check(corpus.check_duplicates, audit_input)["duplicates"]
    assert (finding.problem, finding.count) == (True, 2 * (8674 - 8626))
    assert find_by_check(corpus.check_orphans, audit_input)["orphan documents"].count == 5
    finding = find_by_check(leakage.check_own_documents, audit_input)["own documents"]
    assert finding.count == 1406
    assert "1,298 by their id, 108 under another id" in finding.message


def test_check_own_documents_finds_queries_by_id_and_text():
    documents = {"q1": "is it so that cats sleep all day", "x": "Do dogs  sleep?", "y": "cats", "z": "dogs"}
    queries = {"q1": "is it so that cats sleep all day long", "q2": "do dogs sleep?", "q3": "birds"}
    runs = {"r": {"q1": {"q1": 2, "y": 1}, "q2": {"x": 2, "z": 1}, "q3": {"y": 1}}}
    grades = {"q1": {"y": 1}, "q2": {"z": 1}, "q3": {"y": 1}}
    audit_input = make_audit_input(grades, runs, documents=documents, queries=queries, measures=["mrr"])
    finding = find_by_check(leakage.check_own_documents, audit_input)["own documents"]
    assert (finding.problem, finding.count) == (True, 2)
    assert (
        "1 by their id, 1 under another id; 0 of them are judged relevant to themselves; r returned 2"
        in finding.message
    )
    assert finding.table.rows == [["r", "mrr", pytest.approx(2 / 3), 1]]
    assert finding.remedy == (
        "score with `evaluate -C own=dropped`; 1 under another id must be removed from the rankings"
    )
    by_id = make_audit_input(
        {"q1": {"y": 1}}, runs, documents=documents, queries={"q1": queries["q1"]}, measures=["mrr"]
    )
    (row,) = find_by_check(leakage.check_own_documents, by_id)["own documents"].table.rows
    assert row[3] == by_id.scores("r", convention=by_id.convention.but(own="dropped")).means["mrr"] == 1
    dropped = replace(by_id, convention=by_id.convention.but(own="dropped"))
    assert not find_by_check(leakage.check_own_documents, dropped)["own documents"].problem


def test_check_own_documents_shared_ids_are_a_problem_only_if_dropped():
    documents, queries = (
        {"1": "wings in a slipstream", "2": "heat"},
        {"1": "what is heat transfer", "2": "how do wings work"},
    )
    grades, runs = {"1": {"1": 1}, "2": {"1": 1}}, {"r": {"1": {"1": 1}, "2": {"1": 1}}}
    audit_input = make_audit_input(grades, runs, documents=documents, queries=queries)
    found = find_by_check(leakage.check_own_documents, audit_input)
    assert list(found) == ["shared ids"]
    assert (found["shared ids"].problem, found["shared ids"].count) == (False, 2)
    assert found["shared ids"].effect == "ndcg@10 of r 1.0000 to 0.5000 if own=dropped"
    dropping = replace(audit_input, convention=PRESETS["beir"], _ranks_cache={})
    assert find_by_check(leakage.check_own_documents, dropping)["shared ids"].problem


def make_paragraphs(n, rng):
    words = [f"word{i}" for i in range(300)]
    return {f"d{i}": " ".join(rng.choice(words) for _ in range(40)) for i in range(n)}


def test_check_verbatim_queries_finds_queries_copied_from_answers():
    rng = random.Random(1)
    documents = make_paragraphs(200, rng)
    queries, grades, run = {}, {}, {}
    for i in range(40):
        words = documents[f"d{i}"].split()
        copied = i < 10
        queries[f"q{i}"] = " ".join(words[5:11]) if copied else " ".join(rng.sample(words, 6))
        grades[f"q{i}"] = {f"d{i}": 1}
        run[f"q{i}"] = {f"d{i}": 1.0} if copied else {f"d{i + 1}": 2.0, f"d{i}": 1.0}
    audit_input = make_audit_input(grades, {"r": run}, documents=documents, queries=queries, measures=["mrr"])
    finding = find_by_check(leakage.check_verbatim_queries, audit_input)["verbatim answers"]
    assert (finding.problem, finding.count) == (True, 10)
    assert finding.table.rows == [["r", "mrr", 0.625, 40, 0.5, 30, 1, 10]]
    short_queries = {query: " ".join(text.split()[:3]) for query, text in queries.items()}
    assert (
        find_by_check(leakage.check_verbatim_queries, replace(audit_input, queries=short_queries))[
            "verbatim answers"
        ].count
        == 0
    )


def test_predictor_pairs_auc_matches_scikit_learn():
    rng = np.random.default_rng(0)
    row_by_doc = {f"d{i}": i for i in range(40)}
    grades = {f"q{i}": {f"d{j}": float(rng.integers(0, 2)) for j in rng.choice(40, 8, replace=False)} for i in range(9)}
    grades = {query: docs for query, docs in grades.items() if 1 <= sum(docs.values()) <= 7}
    values = rng.integers(0, 6, 40).astype(float)
    pairs = leakage_predictors.draw_pairs(grades, row_by_doc, 1)
    auc_by_query = pairs.auc(values[pairs.relevant], values[pairs.other])
    for query, auc in zip(pairs.queries, auc_by_query, strict=True):
        # All 40 documents are drawn, so the comparison group is every document that is not relevant.
        labels = [grades[query].get(doc, 0) for doc in row_by_doc]
        assert auc == pytest.approx(roc_auc_score(labels, values))


def add_field(documents, name, values):
    return [
        document._replace(metadata={**document.metadata, name: value})
        for document, value in zip(documents, values, strict=True)
    ]


@pytest.mark.parametrize("name", ["number", "category", "place"])
def test_check_predictors_finds_field_that_separates_relevant(name):
    data = synthetic.make_synthetic("needles", documents=300, queries=60, seed=4)
    relevant = {doc for docs in data.judgments.nested.values() for doc in docs}
    rng = random.Random(0)
    if name == "number":
        documents = add_field(data.documents, "boost", [rng.random() + (one.id in relevant) for one in data.documents])
    elif name == "category":
        kinds = ["gold" if one.id in relevant else rng.choice(["silver", "tin"]) for one in data.documents]
        documents = add_field(data.documents, "origin", kinds)
    else:
        documents = sorted(data.documents, key=lambda one: one.id not in relevant)
    audit_input = make_audit_input(data.judgments, documents=documents, queries=data.queries)
    problems = [one for one in leakage.check_predictors(audit_input) if one.problem]
    assert [one.check for one in problems] == ["leaking field"]
    assert {"number": "`boost`", "category": "`origin`", "place": "position in the corpus"}[name] in problems[0].message


def find_leaks(documents, data, **more):
    audit_input = make_audit_input(data.judgments, documents=documents, queries=data.queries, **more)
    return [finding for finding in leakage.check_predictors(audit_input) if finding.problem]


def list_answered_queries(data):
    """Return for each document the queries that it is relevant to."""
    queries_by_doc = {document.id: [] for document in data.documents}
    for query, docs in data.judgments.nested.items():
        for doc, grade in docs.items():
            if grade > 0:
                queries_by_doc[doc].append(query)
    return queries_by_doc


@pytest.mark.parametrize("kind", ["list", "text", "json", "number", "key", "id", "address"])
def test_check_predictors_finds_field_with_answered_query_ids(kind):
    data = synthetic.make_synthetic("needles", documents=300, queries=60, seed=4)
    if kind == "number":
        names = {query: str(i) for i, query in enumerate(data.queries, 1000)}
        grades = {names[query]: docs for query, docs in data.judgments.nested.items()}
        queries = {names[query]: text for query, text in data.queries.items()}
        data = replace(data, judgments=Judgments(grades), queries=queries)
    answers = list_answered_queries(data)
    all_queries = list(data.queries)
    rng = random.Random(0)
    # Every document names two queries, also documents that are relevant to none.
    query_ids = {doc: [*docs, *rng.sample(all_queries, 2)][:2] for doc, docs in answers.items()}
    values = {
        "list": lambda doc: query_ids[doc],
        "text": lambda doc: ",".join(query_ids[doc]),
        "json": lambda doc: str(query_ids[doc]),
        "number": lambda doc: int(query_ids[doc][0]),
        "key": lambda doc: dict.fromkeys(query_ids[doc], 1),
        "address": lambda doc: f"https://example.org/ask/{query_ids[doc][0]}?page=1",
    }
    if kind == "id":
        new = {doc: f"{query_ids[doc][0]}-{i}" for i, doc in enumerate(answers)}
        grades = {q: {new[doc]: grade for doc, grade in docs.items()} for q, docs in data.judgments.nested.items()}
        documents = [one._replace(id=new[one.id]) for one in data.documents]
        data = replace(data, documents=documents, judgments=Judgments(grades))
    else:
        documents = add_field(data.documents, "for", [values[kind](one.id) for one in data.documents])
    (one,) = find_leaks(documents, data)
    assert (one.check, one.count) == ("leaking field", 60)
    assert (
        f"{'the id' if kind == 'id' else 'metadata `for`'} contains the id of the query that a document answers"
        in one.message
    )
    ranking, score, *_ = one.table.rows[0]
    assert ranking == f"by {'the id' if kind == 'id' else 'metadata `for`'} alone"
    assert one.effect == f"ndcg@10 of a ranking {ranking} {score:.4f}"
    assert score > 0.2


@pytest.mark.parametrize("half", [True, False])
def test_check_predictors_pooled_query_ids_are_a_note(half):
    data = synthetic.make_synthetic("needles", documents=300, queries=60, seed=4)
    query_ids = {one.id: set() for one in data.documents}
    rng = random.Random(0)
    for i, (query, docs) in enumerate(data.judgments.nested.items()):
        if half and i % 2:
            continue
        for doc in docs if half else [*docs, *rng.sample(list(query_ids), 60)]:
            query_ids[doc].add(query)
    documents = add_field(data.documents, "seen", [sorted(query_ids[one.id]) for one in data.documents])
    audit_input = make_audit_input(data.judgments, documents=documents, queries=data.queries)
    found = list(leakage.check_predictors(audit_input))
    assert (
        any("contains the id of the query that a document answers" in one.message for one in found if one.problem)
        == half
    )
    assert (
        "contain the ids of the queries that they answer more often than others: metadata `seen`" in found[-1].message
    )


@pytest.mark.parametrize("kind", ["nested", "id", "address", "host", "list", "tag", "mixed"])
def test_check_predictors_finds_leak_in_structured_field(kind):
    data = synthetic.make_synthetic("needles", documents=300, queries=60, seed=4)
    relevant = {doc for docs in data.judgments.nested.values() for doc in docs}
    rng = random.Random(0)
    values = {
        "nested": lambda doc: {"gold": True} if doc in relevant else {"other": 1},
        "address": lambda doc: f"https://example.org/{doc}" if doc in relevant else None,
        "host": lambda doc: f"https://{'gold' if doc in relevant else 'web'}.example.org/{doc}",
        "list": lambda doc: [rng.random() for _ in range(3 if doc in relevant else 2)],
        "tag": lambda doc: ["gold" if doc in relevant else rng.choice(["web", "book"])],
        "mixed": lambda doc: [doc, f"{doc}x"] if doc in relevant else doc,
    }
    if kind == "id":
        new = {
            one.id: f"{'gold' if one.id in relevant else rng.choice(['web', 'a'])}-{one.id}" for one in data.documents
        }
        grades = {q: {new[doc]: grade for doc, grade in docs.items()} for q, docs in data.judgments.nested.items()}
        data = replace(data, judgments=Judgments(grades))
        documents = [one._replace(id=new[one.id]) for one in data.documents]
    else:
        documents = add_field(data.documents, "m", [values[kind](one.id) for one in data.documents])
    names = {
        "nested": "metadata `m.gold`",
        "id": "beginning of the id",
        "address": "presence of metadata `m`",
        "host": "beginning of metadata `m`",
        "list": "how many metadata `m` has",
        "tag": "metadata `m`",
        "mixed": "how many metadata `m` has",
    }
    assert any(one.message.startswith(f"{names[kind]} separates relevant") for one in find_leaks(documents, data))


@pytest.mark.parametrize("seed", range(3))
def test_check_predictors_random_fields_have_no_problem(seed):
    data = synthetic.make_synthetic("needles", documents=300, queries=60, seed=seed)
    rng = random.Random(seed)
    all_queries = list(data.queries)
    documents = [
        document._replace(
            metadata={
                "for": rng.sample(all_queries, rng.randint(0, 3)),
                "names": ",".join(rng.sample(all_queries, 2)),
                "m": {"gold": True} if rng.random() < 0.2 else {"other": {"deep": rng.choice("abc")}},
                "url": f"https://{rng.choice(['gold', 'web'])}.org/{document.id}" if rng.random() < 0.5 else None,
            }
        )
        for document in data.documents
    ]
    assert find_leaks(documents, data) == []


def test_check_predictors_names_unchecked_and_limits_fields():
    data = synthetic.make_synthetic("needles", documents=200, queries=30)
    titled = add_field(data.documents, "title", [f"{document.id} and more" for document in data.documents])
    audit_input = make_audit_input(data.judgments, documents=titled, queries=data.queries)
    finding = find_by_check(leakage.check_predictors, audit_input)["predictors"]
    assert finding.message.endswith("; not checked value by value: `title`")
    documents = [
        Document(document.id, document.text, metadata={"deep": {f"k{j}": i % (j + 2) for j in range(100)}})
        for i, document in enumerate(data.documents)
    ]
    found, unread = leakage_fields.find_candidate_fields(documents, WeightedCorpus.from_documents(documents))
    assert len(found) == leakage_fields.MAX_FIELDS
    assert len(unread) > 50
    assert "metadata `deep.k99`" in unread


def test_candidate_fields_accept_metadata_of_any_type():
    odd_values = [
        None,
        [],
        {},
        {"x": {}},
        [None],
        {1: 2},
        float("nan"),
        "",
        10**400,
        True,
        {"a": [{"b": 1}]},
        (1, "2"),
        b"x",
    ]
    documents = [Document(f"d{i}", f"text {i}", metadata={"odd": odd_values[i % len(odd_values)]}) for i in range(60)]
    found, _ = leakage_fields.find_candidate_fields(documents, WeightedCorpus.from_documents(documents))
    assert all(len(field.values) == 60 for field in found)
    assert "how many metadata `odd` has" in [field.name for field in found]
    assert leakage_fields.find_query_naming_fields(documents, {"x", "1", "2", "d3"})


def test_check_predictors_finds_leak_of_leaky_dataset():
    data = synthetic.make_synthetic("leaky", documents=500, queries=50)
    numbers = {one.id: one.metadata["hidden"] for one in data.documents}
    by_number = make_run(dict.fromkeys(data.queries, numbers), "by number")
    audit_input = make_dataset_input(data, **{"by number": by_number, "bm25": run_bm25(data)})
    assert audit_input.scores("by number").means["ndcg@10"] == 1
    found = list(leakage.check_predictors(audit_input))
    field, score = (one for one in found if one.problem)
    assert (field.check, score.check, score.subject) == ("leaking field", "leaking score", "by number")
    assert "metadata `hidden`" in field.message
    assert "ranked by it: by number" in field.message
    rows = {row[0]: row for row in field.table.rows}
    assert rows["by metadata `hidden` alone"][1] == rows["by number"][1] == 1
    assert rows["by number"][-1] == pytest.approx(1)
    assert abs(rows["bm25"][-1]) < 0.2
    duplicates = find_by_check(corpus.check_duplicates, audit_input)["duplicates"]
    assert (duplicates.problem, duplicates.count) == (True, 409)


def test_check_predictors_names_runs_with_leaking_prior():
    data = synthetic.make_synthetic("leaky", documents=200, queries=30)
    words_run = run_bm25(data)
    evidence_by_run = {
        "plain": {},
        "flat": {"prior": "hidden"},
        "deep": {"parts": [{}, {"prior": "hidden"}]},
        "odd": {"prior": "x"},
    }
    runs = {
        name: Run(words_run.table, name, manifest={"evidence": evidence}) for name, evidence in evidence_by_run.items()
    }
    field = find_by_check(leakage.check_predictors, make_dataset_input(data, **runs))["leaking field"]
    assert field.message.endswith("; ranked by it: flat, deep")
    assert all(abs(row[-1]) < 0.9 for row in field.table.rows[1:])
    assert re.search(r"the query words have 0\.\d{4} \(p of the difference [\d.e-]+\); ranked", field.message)


def test_run_audit_checks_leak_is_first_and_changes_chance_remedy():
    data = synthetic.make_synthetic("leaky", documents=200, queries=30)
    rng = np.random.default_rng(0)
    names = [one.id for one in data.documents]
    random_run = {q: {names[i]: 20.0 - j for j, i in enumerate(rng.permutation(200)[:20])} for q in data.queries}
    found = run_audit_checks(
        make_dataset_input(data, drawn=random_run),
        select_checks(AUDIT_CHECKS, ["chance", "duplicates", "predictors"]),
    )
    assert [one.check for one in found.problems] == ["leaking field", "chance", "duplicates"]
    assert found.problems[1].remedy.startswith("fix the leak first: if judgments follow a leaking field instead of")
    (chance_finding,) = run_audit_checks(
        make_dataset_input(data, drawn=random_run), select_checks(AUDIT_CHECKS, ["chance"])
    ).problems
    assert chance_finding.remedy.startswith("check for ids that do not match")


def test_check_predictors_weak_field_is_a_note():
    data = synthetic.make_synthetic("needles", documents=300, queries=40)
    relevant = {doc for docs in data.judgments.nested.values() for doc in docs}
    rng = random.Random(0)
    numbers = [rng.gauss(1.0 if one.id in relevant else 0.0, 1.0) for one in data.documents]
    weak_data = replace(data, documents=add_field(data.documents, "weak", numbers))
    (finding,) = leakage.check_predictors(make_dataset_input(weak_data))
    assert not finding.problem
    assert "metadata `weak` (higher, 0." in finding.message
    assert "; this is not a problem: neither significantly better than the query words nor close to" in finding.message


def test_check_predictors_perfect_run_of_foreign_queries_has_no_problem():
    data = synthetic.make_synthetic("needles", documents=200, queries=30)
    foreign = {query: " ".join(word[::-1] for word in text.lower().split()) for query, text in data.queries.items()}
    perfect = make_run(data.judgments.nested, "perfect")
    audit_input = replace(make_dataset_input(data, perfect=perfect), queries=foreign)
    (finding,) = leakage.check_predictors(audit_input)
    rows = {row[0]: row[1] for row in finding.table.rows}
    assert rows["perfect"] == 1
    assert rows["query words"] == pytest.approx(0.5, abs=0.1)
    assert not finding.problem


@pytest.mark.parametrize("seed", range(5))
def test_check_predictors_shuffled_field_has_no_problem(seed):
    data = synthetic.make_synthetic("leaky", documents=500, queries=50, seed=seed)
    numbers = [one.metadata["hidden"] for one in data.documents]
    random.Random(seed).shuffle(numbers)
    clean = replace(data, documents=add_field(data.documents, "hidden", numbers))
    assert not [one for one in leakage.check_predictors(make_dataset_input(clean, bm25=run_bm25(clean))) if one.problem]


def test_make_synthetic_leaky_has_409_duplicates_and_no_targets():
    data = synthetic.make_synthetic("leaky", documents=500, queries=50)
    texts = [one.text for one in data.documents]
    assert sum(texts.count(text) > 1 for text in texts) == 409
    run = run_bm25(data).nested
    scores = ragauge.evaluate(data.judgments, run, ["dr@20", "recall@20"], "swarm")
    assert data.judgments.targets is None
    assert scores.values["dr@20"].tolist() == scores.values["recall@20"].tolist()


def draw_independent_fields(seed):
    """Return document pairs, a numeric field and a categorical field that are independent of each other."""
    rng = np.random.default_rng(seed)
    grades = {f"q{i}": {f"d{j}": 1.0 for j in rng.choice(80, 3, replace=False)} for i in range(15)}
    pairs = leakage_predictors.draw_pairs(grades, {f"d{i}": i for i in range(80)}, 1, seed=seed)
    number = leakage_fields.CandidateField("number", rng.integers(0, 40, 80).astype(float))
    return pairs, number, leakage_fields.CandidateField("category", rng.integers(0, 4, 80).astype(float), 4)


@pytest.mark.simulation
def test_permutation_test_keeps_its_false_positive_rate():
    p_values = [
        [leakage_predictors.permutation_test(pairs, field, seed=seed) for field in fields]
        for seed in range(300)
        for pairs, *fields in [draw_independent_fields(seed)]
    ]
    assert np.min(p_values) > 0
    for level in (0.05, 0.2):
        # Three standard errors of a share of 300 tests.
        margin = 3 * math.sqrt(level * (1 - level) / 300)
        assert np.abs((np.array(p_values) <= level).mean(axis=0) - level).max() < margin


@pytest.mark.simulation
def test_evaluate_predictors_keeps_family_error_rate():
    alarms = 0
    for seed in range(200):
        pairs, *fields = draw_independent_fields(1000 + seed)
        predictors = leakage_predictors.evaluate_predictors(pairs, fields, np.full(len(pairs.queries), 0.5))
        alarms += min(predictor.p for predictor in predictors) <= 0.05
    assert alarms / 200 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


@pytest.mark.parametrize("kind", ["needles", "duplicates", "versions", "multihop"])
def test_data_checks_clean_synthetic_data_has_no_problem(kind):
    for seed in range(4):
        data = synthetic.make_synthetic(kind, documents=400, queries=40, seed=seed)
        audit_input = make_dataset_input(data, bm25=run_bm25(data))
        problems = [
            (finding.check, finding.message) for check in CHECKS for finding in check(audit_input) if finding.problem
        ]
        assert problems == []


@pytest.mark.parametrize("name", ["cacm", "adi", "noveleval"])
def test_data_checks_sound_public_collections_have_no_problem(shared, name):
    data = ragauge.load(shared(name))
    audit_input = make_dataset_input(data, bm25=run_bm25(data))
    assert [finding.check for check in CHECKS for finding in check(audit_input) if finding.problem] == []


def test_candidate_fields_exclude_titles_ids_and_lists():
    documents = [
        Document(f"d{i}", f"text {i}", metadata={"name": f"n{i}", "parts": [i], "year": 1990 + i % 20, "one": "same"})
        for i in range(40)
    ]
    fields, unread = leakage_fields.find_candidate_fields(documents, WeightedCorpus.from_documents(documents))
    assert [field.name for field in fields] == ["length", "position in the corpus", "metadata `year`"]
    assert unread == ["`name`", "`parts`"]
    dates = leakage_fields.build_metadata_field("date", [f"2024-01-{1 + i:02}" for i in range(28)])
    assert dates.values.tolist() == list(range(1, 29))
    assert leakage_fields.build_metadata_field("flag", [True, False] * 5).kinds == 3
    assert leakage_fields.build_metadata_field("mixed", ["nan", "1", "2"]) is None


def test_data_checks_are_deterministic():
    data = synthetic.make_synthetic("leaky", documents=200, queries=20)
    audit_input = make_dataset_input(data, bm25=run_bm25(data))
    for check in CHECKS:
        assert list(check(audit_input)) == list(check(audit_input))


@pytest.mark.parametrize("check", CHECKS)
def test_data_checks_without_evidence_raise_missing_evidence(check):
    with pytest.raises(MissingEvidence):
        list(check(make_audit_input({"q": {"a": 1}})))


@pytest.mark.parametrize("check", CHECKS[:-1])
def test_data_checks_accept_empty_corpus(check):
    found = list(check(make_audit_input({"q": {"a": 1}}, documents=[], queries={"q": "one two three four"})))
    assert all(finding.message for finding in found)
