"""Gain of added documents: values computed by hand, and by other commands."""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import literal_judge
import ragauge
from command import command_in
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, BadInput, UnknownName
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.files.serialization import to_json_data
from ragauge.judging.session import JudgingSettings
from ragauge.knowledge.gain import report as gain_report
from ragauge.knowledge.gain.changes import SnapshotChanges
from ragauge.knowledge.gain.gain import gain
from ragauge.knowledge.gain.results import Gain
from ragauge.models.chats.recorded import ScriptedChat
from ragauge.output.csv import render_csv
from ragauge.output.tables import Table
from ragauge.output.terminal import render_report
from ragauge.reports.registry import read_results, write_results

WEIGHTS = {"recall@10": 0.5, "mrr": 0.5}


class OverlapRetriever:
    """Retriever that scores a document by the words it shares with the query, independently of other documents."""

    def __init__(self, documents):
        self.documents = documents

    def search(self, query, k):
        query_words = set(query.lower().split())
        hits = [
            Hit(document.id, len(query_words & set(document.whole.lower().split())) + 0.0, document.text)
            for document in self.documents
        ]
        return sorted((hit for hit in hits if hit.score), key=lambda hit: (-hit.score, hit.id))[:k]


class ExhaustiveRetriever(OverlapRetriever):
    """Overlap retriever that also returns documents without shared words, after all others."""

    def search(self, query, k):
        hits = super().search(query, k)
        return [
            *hits,
            *(Hit(document.id, 0.0) for document in self.documents if document.id not in {hit.id for hit in hits}),
        ][:k]


def write_run(path, retriever, queries=None, k=10):
    lines = [
        f"{query} Q0 {hit.id} {rank} {k - rank} mine"
        for query, text in (queries or QUERIES).items()
        for rank, hit in enumerate(retriever.search(text, k), 1)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def make_dataset(documents, queries, grades, answers=None):
    return Dataset("made", documents, queries, Judgments(grades), answers or {})


KNOWN = [
    Document("old1", "red apples grow on trees"),
    Document("old2", "green pears grow on trees"),
    Document("old3", "boats float on water"),
]
NEW = [
    Document("new1", "red apples taste sweet"),
    Document("new2", "boats sail on water with wind"),
    Document("new3", "nothing of interest"),
]
QUERIES = {"apples": "red apples taste", "boats": "boats sail wind", "pears": "green pears"}
GRADES = {"apples": {"new1": 1, "old1": 1}, "boats": {"new2": 2}, "pears": {"old2": 1}}
DATA = make_dataset(KNOWN, QUERIES, GRADES, {"boats": "Boats sail with wind.", "apples": "Red apples taste sweet."})


def run_gain(**options):
    return gain(KNOWN, **{"add": NEW, "weights": WEIGHTS, "system": OverlapRetriever, "dataset": DATA, **options})


def test_gain_half_recall_and_full_mrr_is_three_quarters():
    data = make_dataset([], {"q": "?"}, {"q": {"a": 1, "b": 1}})
    found = gain(lambda query, k: ["x"], lambda query, k: ["a"], dataset=data, weights=WEIGHTS)
    assert [(one.name, one.value, one.before, one.after, one.n) for one in found.terms] == [
        ("recall@10", 0.5, 0.0, 0.5, 1),
        ("mrr@10", 1.0, 0.0, 1.0, 1),
    ]
    assert found.total == found.query_gain == 0.75
    assert [one.gain for one in found.changed_queries] == [0.75]
    assert math.isnan(found.low), "a single query has no interval"


def test_gain_terms_queries_and_documents_by_hand():
    found = run_gain()
    # apples: new1 joins old1, and a relevant document stays first: recall 1/2 -> 1, mrr 1 -> 1.
    # boats: new2 is returned first, after no relevant document before: recall 0 -> 1, mrr 0 -> 1.
    assert [(one.name, one.before, one.after) for one in found.terms] == [
        ("recall@10", pytest.approx(0.5), pytest.approx(1.0)),
        ("mrr@10", pytest.approx(2 / 3), pytest.approx(1.0)),
    ]
    assert found.total == pytest.approx(0.5 * 0.5 + 0.5 / 3)
    assert [(one.query, one.gain, one.entered, one.pushed_out) for one in found.changed_queries] == [
        ("boats", 1.0, ("new2",), ()),
        ("apples", 0.25, ("new1",), ()),
    ]
    assert (found.added, found.removed, found.changed, found.queries) == (3, 0, 0, 3)
    assert [(one.id, one.relevant, one.entered) for one in found.documents] == [
        ("new1", 1, 1),
        ("new2", 1, 1),
        ("new3", 0, 0),
    ]
    assert all(math.isnan(one.novelty) for one in found.documents), "no term needs novelty"


def test_gain_of_parts_gives_contribution_of_each_document():
    total = run_gain().total
    without = {one.id: run_gain(add=[other for other in NEW if other is not one]).total for one in NEW}
    assert {name: total - rest for name, rest in without.items()} == {
        "new1": pytest.approx(0.25 / 3),
        "new2": pytest.approx(1 / 3),
        "new3": 0.0,
    }


def test_gain_document_that_displaces_relevant_one_is_named():
    data = make_dataset(KNOWN, {"apples": "red apples"}, {"apples": {"old1": 1}})
    added = [Document("loud", "red apples and more red apples"), Document("Loud", "red apples apples")]
    first = gain(
        KNOWN, add=added, dataset=data, weights={"recall@1": 1}, k=1, system=lambda docs: OverlapRetriever(docs[::-1])
    )
    assert first.total == -1.0
    assert first.lost[0].pushed_out == ("old1",)
    assert first.lost[0].entered == ("Loud",)
    assert "none of the added documents is judged" in first.notes[0]
    assert [(one.id, one.relevant, one.entered) for one in first.documents] == [("Loud", 0, 1), ("loud", 0, 0)]


def test_gain_undefined_term_is_left_out_with_reason():
    no_answers = replace(DATA, answers={})
    found = gain(KNOWN, add=NEW, dataset=no_answers, system=OverlapRetriever, embedder="words")
    recall, context, novelty = found.terms
    assert (context.name, context.reason) == ("context_recall", "no query has a reference answer")
    assert math.isnan(context.value)
    assert found.total == pytest.approx((recall.value + novelty.value) / 3)
    assert any("context_recall is undefined" in note and "not counted as 0" in note for note in found.notes)


def test_gain_context_recall_rises_when_answer_text_is_added():
    found = run_gain(weights={"context_recall": 1})
    (term,) = found.terms
    assert term.n == 2, "one query has no reference answer"
    assert term.before < term.after == 1.0
    assert found.judge.startswith("lexical")


def test_gain_novelty_is_mean_over_added_documents():
    found = run_gain(weights={"recall@10": 0.5, "novelty": 0.5}, embedder="words")
    novelty = found.terms[1]
    assert novelty.value == pytest.approx(np.mean([one.novelty for one in found.documents]))
    assert (novelty.n, novelty.low) == (3, pytest.approx(math.nan, nan_ok=True))
    assert found.total == pytest.approx(found.query_gain + 0.5 * novelty.value)


@pytest.mark.parametrize("definition", ["mean", "least", "lexical"])
def test_gain_novelty_definitions_match_novelty(definition):
    found = run_gain(weights={"novelty": 1}, novelty=definition, embedder="words")
    expected = {one.id: getattr(one, definition) for one in ragauge.novelty(NEW, KNOWN, embedder="words").documents}
    assert {one.id: one.novelty for one in found.documents} == pytest.approx(expected)


@settings(max_examples=20)
@given(st.floats(0.01, 100), st.permutations(NEW))
@pytest.mark.slow
def test_gain_scales_with_weights_and_ignores_document_order(factor, order):
    plain = run_gain()
    scaled = run_gain(weights={name: factor * weight for name, weight in WEIGHTS.items()}, add=list(order))
    assert scaled.total == pytest.approx(factor * plain.total)
    assert [one.id for one in scaled.documents] == [one.id for one in plain.documents]


def test_gain_nothing_added_is_zero():
    found = gain(KNOWN, KNOWN, dataset=DATA, system=OverlapRetriever)
    assert found.total == 0
    assert (found.changed_queries, found.documents) == ([], [])
    assert found.terms[2].reason == "no documents were added"
    assert "no document was added, changed or removed" in found.notes


def test_gain_removed_and_changed_documents_are_counted():
    after = [Document("old1", "another text"), KNOWN[1], NEW[0]]
    found = gain(KNOWN, after, dataset=DATA, weights=WEIGHTS, system=OverlapRetriever)
    assert (found.added, found.removed, found.changed) == (1, 1, 1)
    assert any("1 document removed and 1 changed: " in note for note in found.notes)


def test_gain_keeps_input_folders_unchanged(tmp_path):
    for name, documents in (("kb", KNOWN), ("after", [*KNOWN, *NEW])):
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        rows = [json.dumps({"_id": one.id, "text": one.text}) for one in documents]
        (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
        query_rows = [json.dumps({"_id": query, "text": text}) for query, text in QUERIES.items()]
        (folder / "queries.jsonl").write_text("\n".join(query_rows) + "\n")
        lines = [f"{query}\t{doc}\t{grade}" for query, docs in GRADES.items() for doc, grade in docs.items()]
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")

    def hash_files():
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        return {str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}

    before = hash_files()
    for path in [*tmp_path.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        found = gain(str(tmp_path / "kb"), str(tmp_path / "after"), weights=WEIGHTS)
        assert hash_files() == before
    finally:
        for path in [tmp_path / "kb", tmp_path / "after", *tmp_path.rglob("qrels")]:
            path.chmod(0o755)
    assert found.dataset == "after"
    assert (found.added, len(found.gained)) == (3, 2)


def test_gain_run_files_match_built_system(tmp_path):
    built = run_gain()
    for name, documents in (("before", KNOWN), ("after", [*KNOWN, *NEW])):
        write_run(tmp_path / f"{name}.run", ExhaustiveRetriever(documents))
    files = {f"{name}_run": str(tmp_path / f"{name}.run") for name in ("before", "after")}
    found = gain(dataset=DATA, weights=WEIGHTS, **files)
    assert found.total == pytest.approx(built.total)
    assert found.documents == [], "run files do not contain the added documents"
    assert not found.documents_known
    assert not any("no document was added" in note for note in found.notes), "the number of added documents is unknown"
    assert "documents added" not in ", ".join(gain_report.build_report(found).subject)
    with_documents = gain(KNOWN, add=NEW, dataset=DATA, weights=WEIGHTS, **files)
    assert [one.id for one in with_documents.documents] == [one.id for one in built.documents]
    assert with_documents.total == pytest.approx(built.total)


def test_gain_query_that_fails_on_one_side_is_left_out():
    def fail_on_boats(query, k):
        if "boats" in query:
            raise RuntimeError("out of water")
        return OverlapRetriever([*KNOWN, *NEW]).search(query, k)

    found = gain(OverlapRetriever(KNOWN), fail_on_boats, dataset=DATA, weights=WEIGHTS)
    assert (found.queries, [one.query for one in found.changed_queries]) == (2, ["apples"])
    assert any("1 query failed before or after" in note and "out of water" in note for note in found.notes)

    def fail_always(query, k):
        raise RuntimeError("gone")

    with pytest.raises(BackendFailed, match=r"every query failed.*gone"):
        gain(OverlapRetriever(KNOWN), fail_always, dataset=DATA, weights=WEIGHTS)


def test_gain_retrieves_as_many_documents_as_terms_need():
    depths = set()

    def search(query, k):
        depths.add(k)
        return []

    for weights, depth in ((WEIGHTS, 10), ({"recall@20": 1}, 20)):
        depths.clear()
        gain(search, search, dataset=DATA, weights=weights)
        assert depths == {depth}


def test_gain_lower_is_better_measure_has_reversed_sign():
    found = run_gain(weights={"rbp_resid": 1.0})
    (term,) = found.terms
    assert term.value == pytest.approx(term.before - term.after)


def test_snapshot_changes_interval_contains_total_with_missing_values():
    after = np.array([[1.0, math.nan], [0.0, 1.0], [0.5, math.nan], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    changes = SnapshotChanges(list("abcdef"), ["x", "y"], np.array([0.5, 0.25]), np.ones(2), np.zeros((6, 2)), after)
    total = changes.total
    assert total == pytest.approx(0.5 * 2.5 / 6 + 0.25 * 2 / 4)
    assert changes.query_contributions.mean() == pytest.approx(total)
    low, high = changes.interval(0.95)
    assert low < total < high
    plain = replace(changes, after=np.nan_to_num(after))
    assert plain.query_contributions == pytest.approx(plain.query_gains)


def test_gain_invalid_settings_raise_one_line_errors():
    for options, message in (
        ({"weights": {}}, "no term has a weight"),
        ({"weights": {"gm_map": 1}}, "is not a mean over queries"),
        ({"weights": {"context_recall@5": 1}}, "first k documents"),
        ({"weights": {"recall@10": math.nan}}, "must be a number, got nan"),
        ({"weights": {"Recall@10": 1, "recall@10": 1}}, "two weights"),
        ({"novelty": "total"}, "novelty must be one of .*, got `total`"),
        ({"k": 0}, "k must be between 1 and .*, got 0"),
        ({"k": 1.5}, r"k must be a whole number .*, got 1\.5"),
        ({"k": math.nan}, "k must be a whole number .*, got nan"),
        ({"k": "3"}, "k must be a whole number .*, got '3'"),
        ({"k": True}, "k must be a whole number .*, got True"),
        ({"max_queries": "all"}, "max_queries must be a whole number .*, got 'all'"),
        ({"confidence": "95%"}, "confidence must be a number above 0 and below 1, got '95%'"),
        ({"weights": {"recall@10": 1e308}}, "the weight of recall@10 must be at most 1,000,000,000"),
        ({"weights": {"recall@10": -(10**400)}}, "the weight of recall@10 must be at most"),
        ({"weights": {"recall@10": math.inf}}, "the weight of recall@10 must be at most"),
    ):
        with pytest.raises(BadInput, match=message):
            run_gain(**options)
    with pytest.raises(UnknownName, match="bm26"):
        run_gain(system="bm26")
    with pytest.raises(BadInput, match="no added documents"):
        gain(KNOWN, dataset=DATA)
    with pytest.raises(BadInput, match="mutually exclusive"):
        gain(KNOWN, KNOWN, add=NEW, dataset=DATA)
    with pytest.raises(BadInput, match="no queries given"):
        gain(KNOWN, add=NEW)
    with pytest.raises(BadInput, match="appears more than once"):
        gain([*KNOWN, KNOWN[0]], add=NEW, dataset=DATA)


def test_gain_result_round_trip_and_other_formats(tmp_path):
    found = run_gain(weights={"recall@10": 1, "context_recall": 1, "novelty": 1}, embedder="words")
    files = [str(tmp_path / f"gain.{extension}") for extension in ("json", "csv", "md", "html", "tex")]
    write_results([found], files)
    (restored,) = read_results(files[0])
    assert isinstance(restored, Gain)
    assert to_json_data(restored) == to_json_data(found)
    assert (restored.total, list(restored.documents)) == (found.total, found.documents)
    text = (tmp_path / "gain.md").read_text()
    assert "# Gain" in text
    assert "## Added documents" in text
    page = (tmp_path / "gain.html").read_text()
    assert "gain-queries" in page
    rows = (tmp_path / "gain.csv").read_text().splitlines()
    assert rows[0] == "query,gain,gain_recall@10,gain_context_recall,entered,pushed_out,text"
    assert [row.split(",")[0] for row in rows[1:]] == [query.query for query in found.changed_queries]


def test_gain_report_sections_have_short_titles():
    added = [*NEW, *(Document(f"n{i:02}", "bread and butter") for i in range(20))]
    report = gain_report.build_report(run_gain(add=added))
    assert [section.short for section in report.sections] == ["Terms", "Queries", "Documents"]
    tables = [block for block in report.sections[2].blocks if isinstance(block, Table)]
    assert [(len(table.rows), table.collapsed) for table in tables] == [(8, False), (23, True)]


def test_gain_queries_with_cancelling_changes_are_listed_as_changed():
    data = make_dataset([], {"a": "?", "b": "?"}, {"a": {"x": 1}, "b": {"y": 1}})
    # For query a, x falls from rank 1 to 2: mrr by 0.5, hit_rate@1 by 1. The weights 1 and -0.5 cancel these changes.
    weights = {"mrr": 1.0, "hit_rate@1": -0.5}
    found = gain(lambda q, k: ["x", "z"], lambda q, k: ["z", "x"], dataset=data, weights=weights)
    assert (len(found.changed_queries), found.gained, found.lost) == (1, [], [])
    assert [one.query for one in found.even] == ["a"]
    report = gain_report.build_report(found)
    assert report.summary == (
        "Gain +0.0000: 0 queries gained, 0 lost, 1 changed without gain or loss, 1 did not change."
    )
    queries_section = next(section for section in report.sections if section.id == "queries")
    assert [row[0] for row in queries_section.blocks[0].rows] == ["a"]
    assert (
        render_csv(gain_report.build_rows_table(found)).splitlines()[0]
        == "query,gain,gain_mrr@10,gain_hit_rate@1,entered,pushed_out,text"
    )


def make_unreadable_judge(words):
    """Return a literal judge that gives an unreadable reply to prompts with one of these words."""

    def reply(messages, schema):
        return "hm" if any(word in messages[1]["content"] for word in words) else literal_judge.answer(messages, schema)

    return ScriptedChat(reply)


def test_gain_unreadable_judge_replies_raise_or_are_unscored():
    options = {"weights": {"recall@10": 0.5, "context_recall": 0.5}, "judging": JudgingSettings(retries=0)}
    with pytest.raises(BackendFailed, match=r"the judge scored none of 2 queries on both sides: .+") as failure:
        run_gain(chat=make_unreadable_judge(["List the claims"]), **options)
    assert failure.value.exit_code == 3
    partial = run_gain(chat=make_unreadable_judge(["Boats sail with wind"]), **options)
    assert [one.n for one in partial.terms] == [3, 1]
    (note,) = [one for one in partial.notes if "unscored by the judge" in one]
    assert note.startswith("1 of 2 queries are unscored by the judge: ")
    assert len(note) > len("1 of 2 queries are unscored by the judge: ")


def test_gain_lexical_judge_without_scores_has_reason():
    data = replace(DATA, answers={"boats": "!", "apples": "?"})
    found = run_gain(dataset=data, weights={"recall@10": 0.5, "context_recall": 0.5})
    assert found.terms[1].reason.startswith("the judge scored no query on both sides: ")
    assert found.total == pytest.approx(0.5 * found.terms[0].value)


@pytest.mark.parametrize("side", ["before", "after"])
def test_gain_query_missing_in_one_run_is_left_out(tmp_path, side):
    without_pears = {name: text for name, text in QUERIES.items() if name != "pears"}
    retrievers = {"before": ExhaustiveRetriever(KNOWN), "after": ExhaustiveRetriever([*KNOWN, *NEW])}
    files = {
        f"{name}_run": write_run(tmp_path / f"{name}.run", one, without_pears if name == side else QUERIES)
        for name, one in retrievers.items()
    }
    found = gain(dataset=DATA, weights=WEIGHTS, **files)
    assert found.queries == 2
    assert [one.n for one in found.terms] == [2, 2]
    assert (len(found.gained), found.lost) == (2, [])
    assert any(
        "1 query failed before or after" in one and f"pears: the run {side} does not have it" in one
        for one in found.notes
    )


def test_gain_measures_without_cutoff_use_k():
    data = make_dataset([], {"q": "?"}, {"q": {"x": 1}})
    retrievers = (lambda q, k: list("abcdefgh")[:k], lambda q, k: list("abcdefgx")[:k])
    for extra_weights in ({}, {"recall@8": 1.0}):
        found = gain(*retrievers, dataset=data, weights={"mrr": 1.0, "set_recall": 1.0, **extra_weights}, k=5)
        assert [(one.name, one.value) for one in found.terms[:2]] == [("mrr@5", 0.0), ("set_recall", 0.0)]
        assert (
            "set_recall: computed on the first 5 documents."
            in gain_report.build_report(found).sections[0].blocks[0].text
        )
    assert found.terms[2].value == 1.0
    with_cutoff = gain(*retrievers, dataset=data, weights={"mrr@8": 1.0}, k=5)
    assert with_cutoff.terms[0].value == 1 / 8


def test_gain_retrievers_without_documents_report_no_added_documents():
    found = gain(OverlapRetriever(KNOWN), OverlapRetriever([*KNOWN, *NEW]), dataset=DATA, weights=WEIGHTS)
    assert not found.documents_known
    assert not any("added" in note for note in found.notes)
    assert not any("added" in one for one in gain_report.build_report(found).subject)


def test_gain_report_summary_fits_80_columns():
    report = gain_report.build_report(run_gain())
    assert report.summary == "Gain +0.4167: 2 queries gained, 0 lost, 1 did not change."
    renderables, _ = render_report(report, 80)
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as text:
        for renderable in renderables:
            console.print(renderable)
    assert max(map(len, text.get().splitlines())) <= 80
    assert "Changed queries" in text.get()


@pytest.fixture
def run_command(tmp_path):
    for name, documents in (("kb", KNOWN), ("new", NEW)):
        rows = [json.dumps({"_id": one.id, "text": one.text}) for one in documents]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    dataset_folder = tmp_path / "asked"
    (dataset_folder / "qrels").mkdir(parents=True)
    (dataset_folder / "corpus.jsonl").write_text((tmp_path / "kb.jsonl").read_text())
    rows = [json.dumps({"_id": query, "text": text}) for query, text in QUERIES.items()]
    (dataset_folder / "queries.jsonl").write_text("\n".join(rows) + "\n")
    lines = [f"{query}\t{doc}\t{grade}" for query, docs in GRADES.items() for doc, grade in docs.items()]
    (dataset_folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")

    return command_in(tmp_path, "gain")


@pytest.mark.slow
def test_cli_gain_prints_tables_json_and_csv(run_command, tmp_path):
    arguments = ["--before", "kb.jsonl", "--add", "new.jsonl", "-d", "asked", "-w", "recall@10=0.5", "-w", "mrr=0.5"]
    process = run_command(*arguments, "-o", "gain.json", "-o", "gain.html")
    assert "\nGain +0.4167: 2 queries gained, 0 lost" in process.stdout
    assert "note: wrote gain.json" in process.stderr
    assert (tmp_path / "gain.html").exists()
    data = json.loads(run_command(*arguments, "--json").stdout)
    assert data["schema"] == "ragauge-gain/1"
    assert data["total"] == pytest.approx(5 / 12)
    assert data["low"] is None
    assert json.loads((tmp_path / "gain.json").read_text())["total"] == data["total"]
    assert len(run_command(*arguments, "--csv").stdout.splitlines()) == 3


def test_cli_gain_invalid_input_exits_with_2(run_command):
    assert (
        "must be TERM=WEIGHT, got `recall`"
        in run_command("--before", "kb.jsonl", "--add", "new.jsonl", "-w", "recall", code=2).stderr
    )
    assert "no such file" in run_command("--before", "none.jsonl", "--add", "new.jsonl", "-d", "asked", code=2).stderr
    assert "no queries given" in run_command("--before", "kb.jsonl", "--add", "new.jsonl", code=2).stderr
    done = run_command("--before", "kb.jsonl", "--add", "new.jsonl", "-d", "asked", "--json", "--csv", code=2)
    assert "are mutually exclusive" in done.stderr
    arguments = ["--before", "kb.jsonl", "--add", "new.jsonl", "-d", "asked"]
    assert "the lexical judge has no replies to save" in run_command(*arguments, "-o", "replies", code=2).stderr
    assert "-o accepts one folder" in run_command(*arguments, "-o", "replies", "-o", "more/", code=2).stderr


@pytest.mark.slow
def test_gain_scifact_finds_hidden_relevant_documents(shared):
    data = ragauge.load(shared("scifact"))
    rng = random.Random(1)
    relevant = sorted({doc for docs in data.judgments.nested.values() for doc, grade in docs.items() if grade > 0})
    others = sorted({one.id for one in data.documents} - set(relevant))
    hidden = {*rng.sample(relevant, 20), *rng.sample(others, 20)}
    before = [one for one in data.documents if one.id not in hidden]
    added = [one for one in data.documents if one.id in hidden]
    options = {"add": added, "dataset": data, "weights": {"recall@10": 1}}
    found = gain(before, **options)
    assert found.total == pytest.approx(0.0594, abs=1e-4)
    assert (len(found.gained), len(found.lost)) == (20, 1)
    assert found.low > 0
    assert found.p < 0.001


def test_gain_accepts_runs_in_memory():
    import polars as pl

    def make_run(documents):
        rows = [
            (q, hit.id, hit.score)
            for q, text in QUERIES.items()
            for hit in OverlapRetriever(documents).search(text, 10)
        ]
        return Run(pl.DataFrame(rows, schema=["query", "doc", "score"], orient="row"), "mine")

    found = gain(dataset=DATA, weights=WEIGHTS, before_run=make_run(KNOWN), after_run=make_run([*KNOWN, *NEW]))
    assert found.query_gain == pytest.approx(run_gain().query_gain)
    assert len(found.gained) == 2


def test_gain_chat_judges_both_sides_by_same_claims():
    requests = []

    def answer_literally(messages, schema):
        requests.append(messages)
        return literal_judge.answer(messages, schema)

    found = run_gain(weights={"recall@10": 0.5, "context_recall": 0.5}, chat=ScriptedChat(answer_literally))
    calls = len(requests)
    claims = [messages_of_call for messages_of_call in requests if "List the claims" in messages_of_call[1]["content"]]
    assert len(claims) == 2, "the claims of a reference are extracted once, not on both sides"
    assert run_gain(weights={"context_recall": 1}, chat=ScriptedChat(answer_literally)).terms[0].n == 2
    assert len(requests) == 2 * calls
    context = found.terms[1]
    assert (context.before, context.after) == (0.0, 0.5), "the literal judge requires the exact words"


def test_gain_empty_corpus_before_gains_everything():
    found = gain([], add=[*KNOWN, *NEW], dataset=DATA, weights={"recall@10": 0.5, "novelty": 0.5}, embedder="words")
    assert [one.value for one in found.terms] == [1.0, 1.0]
    assert found.total == 1.0
