"""Stress test of document stores: each injected fault is detected and named, and a sound store passes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ragauge import stress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.files.serialization import read_record
from ragauge.output.csv import render_csv
from ragauge.output.report import Code, Facts, Report
from ragauge.output.tables import Table
from ragauge.reports.overviews import report
from ragauge.store_stress.attempts import error_signature
from ragauge.store_stress.minimal_failure import build_command, describe_confidence, find_minimal_prefix
from ragauge.store_stress.plan import StressSettings, read_documents, write_documents
from ragauge.store_stress.report import (
    build_comparison_report,
    build_report,
    build_value_table,
    describe_outcome,
    summarise_stress_test,
)
from ragauge.store_stress.result_checks import (
    ExactCosines,
    changed_rankings,
    compare_documents,
    count_ranking_errors,
    describe_difference,
    describe_read_back,
)
from ragauge.store_stress.results import ReadBack, Stage, StoreFailure, StressTest

FAULT_POSITION = 7
"""Index of the document that the fault affects."""
DOCUMENTS = [
    Document(f"d{i}", f"Document {i} is about thing{i % 5} and item{i}.", f"Title {i}", {"place": i})
    for i in range(1, 13)
]
EMBEDDER = "words(dimensions=64)"
SETTINGS = {"embedder": EMBEDDER, "batch": 5, "queries": 6, "timeout": 120, "kills": 0, "modes": ["one by one"]}


def faulty_store(fault: str, at: int = FAULT_POSITION, **options: str) -> str:
    suffix = "".join(f", {name}={value}" for name, value in options.items())
    return f"faulty_document_store:Faulty(fault='{fault}', at={at}{suffix})"


def find_failure(fault: str, **settings):
    return stress(faulty_store(fault), DOCUMENTS, **{**SETTINGS, "bisect": False, **settings}).broken


def read_failure_facts(stress_report: Report) -> dict[str, str]:
    """Return the facts of the first failure of a report."""
    (facts,) = (block for block in stress_report.sections[0].blocks if isinstance(block, Facts))
    return dict(facts.facts)


# Faults.

SILENT_FAULTS = {
    "drop": ("reading back", "1 lost of 12 documents: `d7` (document 7) is lost"),
    "flip": ("reading back", "`d7` (document 7) is changed: text: byte 6 of 37 is 0x64, not 0x65"),
    "title": ("reading back", "`d7` (document 7) is changed: title: it continues after byte 7, where it should end"),
    "metadata": ("reading back", "`d7` (document 7) is changed: metadata: byte 11 of 12 is 0x22, not 0x37"),
    "swap": ("reading back", "2 swapped of 12 documents: `d6` (document 6) is swapped: it has the text of d7"),
    "twice": ("reading back", "`d7` (document 7) is listed more than once: it is listed 2 times"),
    "unknown": ("reading back", "`nobody` was never put in"),
    "scores out of order": ("searching", "6 of 6 rankings not in the order of their own scores"),
    "wrong order": ("searching", "6 of 6 rankings not in the order of the true cosines"),
    "hit twice": ("searching", "6 of 6 rankings with duplicate documents"),
    "gives nothing": ("reading back", "it was asked for 1 document and returned 0"),
    "gives a dict": ("reading back", "it returned a dict, not a Document"),
    "no hits": ("searching", "6 of 6 rankings with fewer documents than requested"),
    "few hits": ("searching", "6 of 6 rankings with fewer documents than requested"),
    "another text": ("searching", "6 of 6 rankings with a text that is not the document's"),
    "a hit is a pair": ("searching", "it returned a tuple, not a Hit"),
    "never replaces": ("replacing", "5 stale of 5 documents: `d1` (document 1) is stale: it still has the text"),
    "drop on reopening": ("reading back after reopening", "`d7` (document 7) is lost"),
    "other when reopened": ("searching after reopening", "rankings differ after reopening: neighbour recall"),
    "other words when reopened": (
        "searching after reopening",
        "6 of 6 rankings differ after reopening: share of the earlier hits 80.00%, before 100.00%",
    ),
}


@pytest.mark.parametrize("fault", SILENT_FAULTS)
@pytest.mark.engine
def test_stress_silent_fault_is_detected(fault):
    failure = find_failure(fault)
    stage, message = SILENT_FAULTS[fault]
    assert failure is not None
    assert failure.silent
    assert str(failure.stage) == stage
    assert message in failure.error
    assert failure.after == len(DOCUMENTS)


def test_stress_value_of_other_type_is_a_change():
    documents = [*DOCUMENTS[:2], Document("n", "42"), Document("o", "None")]
    failure = stress(faulty_store("gives a number for a text"), documents, **{**SETTINGS, "bisect": False}).broken
    assert failure is not None
    assert "`n` (document 3) is changed: text: it is of type int, not str" in failure.error
    failure = stress(faulty_store("gives None for a text"), documents, **{**SETTINGS, "bisect": False}).broken
    assert failure is not None
    assert "`o` (document 4) is changed: text: it is of type NoneType, not str" in failure.error


def test_stress_low_neighbour_recall_is_a_failure():
    failure = find_failure("the farthest", k=1)
    assert failure is not None
    assert str(failure.stage) == "searching"
    assert "neighbour recall is 0.0%; expected at least 50%" in failure.error


MANY_DOCUMENTS = [Document(f"d{i}", f"Document {i} is about item{i}.", f"Title {i}") for i in range(1, 61)]


@pytest.mark.parametrize("fault", ["misses when reopened", "misses when replaced"])
@pytest.mark.engine
def test_stress_recall_drop_is_a_failure_only_beyond_tolerance(fault):
    # 50 queries with 10 neighbours each: 25 missed neighbours equal the tolerance of 5 percentage points, 26 exceed it.
    settings = {
        **SETTINGS,
        "embedder": "words(dimensions=512)",
        "queries": 50,
        "bisect": False,
        "modes": ["in batches"],
    }
    at_limit = stress(faulty_store(fault, at=25), MANY_DOCUMENTS, **settings)
    moment = {"misses when reopened": "after reopening", "misses when replaced": "after replacing"}[fault]
    assert at_limit.broken is None
    assert describe_outcome(at_limit) == "passed"
    (note,) = (note for note in at_limit.notes if moment in note)
    assert f"25 of 50 rankings differ {moment}: neighbour recall 95.00%, before 100.00% (not a failure; " in note
    beyond_limit = stress(faulty_store(fault, at=26), MANY_DOCUMENTS, **settings).broken
    assert beyond_limit is not None
    assert str(beyond_limit.stage) == f"searching {moment}"
    assert beyond_limit.error == (
        f"26 of 50 rankings differ {moment}: neighbour recall 94.80%, before 100.00% "
        "(tolerance: a drop of 5 percentage points)"
    )


@pytest.mark.engine
def test_stress_one_missed_neighbour_of_few_queries_is_a_note():
    # 2 queries with 5 neighbours each: one missed neighbour is 10 percentage points, above the usual tolerance of 5.
    one_missed, two_missed = (
        stress(
            faulty_store("misses when reopened", at=missed),
            MANY_DOCUMENTS,
            **{**SETTINGS, "bisect": False, "queries": 2, "k": 5},
        )
        for missed in (1, 2)
    )
    assert one_missed.broken is None
    assert any("1 of 2 rankings differs after reopening: neighbour recall 90.00%" in note for note in one_missed.notes)
    assert two_missed.broken is not None


@pytest.mark.engine
def test_stress_repeated_stage_that_fails_again_is_listed_as_a_try(tmp_path):
    # It fails in the first run and when the stage is repeated; the 4 attempts in between pass.
    store = faulty_store("raise in runs 1 and 6", word=f"'{tmp_path / 'runs'}'")
    result = stress(store, DOCUMENTS, **SETTINGS)
    failure = result.broken
    assert failure is not None
    assert (failure.reproduced, failure.prefix, failure.steady) == (True, None, False)
    assert failure.tried == [(7, False), (12, False), (12, False), (12, False), (12, True)]
    assert failure.doubt == (
        "it failed in 2 of 6 attempts: in the first run and when the stage was repeated (the last attempt), "
        "but not in the other 4 attempts"
    )
    assert (
        read_failure_facts(build_report(result))["prefixes tried"]
        == "7 passed, 12 passed, 12 passed, 12 passed, 12 failed"
    )


@pytest.mark.engine
def test_stress_claims_only_prefixes_that_were_tried(tmp_path):
    # It fails in runs 1 and 4: the prefix of 7 and then all documents pass, then all documents fail.
    result = stress(faulty_store("raise in runs 1 and 4", word=f"'{tmp_path / 'runs'}'"), DOCUMENTS, **SETTINGS)
    failure = result.broken
    assert failure is not None
    assert failure.tried == [(7, False), (12, False), (12, True)]
    assert describe_confidence(failure) == (
        "With 7 documents it did not fail (3 attempts in total). But this prefix failed in 1 of 2 attempts."
    )
    assert not failure.is_shortest
    assert read_failure_facts(build_report(result))["shortest known failing prefix"] == "12 documents"
    failed_with_all = replace(failure, tried=[(12, False), (12, True)])
    assert describe_confidence(failed_with_all).startswith("No shorter prefix was tried (2 attempts in total). But ")
    assert not failed_with_all.is_shortest
    assert replace(failure, prefix=8).is_shortest


@pytest.mark.engine
def test_stress_failure_that_does_not_recur_is_not_reproduced(tmp_path):
    result = stress(faulty_store("raise once", word=f"'{tmp_path / 'failed'}'"), DOCUMENTS, **{**SETTINGS, "kills": 1})
    assert result.broken is None
    assert describe_outcome(result) == "not reproduced: putting"
    (mode,) = result.modes
    (failure,) = mode.not_reproduced
    assert (str(failure.stage), failure.error) == ("putting", "OSError: database is locked")
    assert failure.reproduced is False
    assert failure.tried == [(7, False), (12, False), (12, False), (12, False)]
    assert "A failure one by one while putting was not reproduced in 4 attempts." in summarise_stress_test(result)[-1]
    assert any(
        note.endswith("while putting not reproduced in 4 attempts: OSError: database is locked")
        for note in result.notes
    )
    # The remaining stages were tested nevertheless.
    assert [read_back.when for read_back in mode.read_back][-1] == "replaced, then reopened"
    assert all(read_back.is_intact for read_back in mode.read_back)
    assert [result.store, "one by one", "verdict", "not reproduced: putting"] in build_value_table(result).texts()
    assert build_report(result).sections[0].title == "Not reproduced one by one"


@pytest.mark.crash
def test_stress_failure_after_kills_is_repeated_with_the_kills(tmp_path):
    # Documents are replaced without an error, unless the process of the store was killed while it was filled.
    store = faulty_store("raise when replaced after a kill")
    documents = tmp_path / "documents.jsonl"
    write_documents(documents, DOCUMENTS)
    settings = {**SETTINGS, "kills": 1, "modes": ["in batches"]}
    assert stress(store, documents, **{**settings, "kills": 0}).broken is None
    result = stress(store, documents, **settings, reproducer=tmp_path / "reproducer")
    failure = result.broken
    assert failure is not None
    assert (str(failure.stage), failure.error) == ("replacing", "OSError: invalid frame")
    assert (failure.reproduced, failure.steady, result.not_reproduced) == (True, True, [])
    assert failure.tried[0] == (12, True)
    assert failure.prefix is not None
    assert failure.prefix < 12
    assert f"--kill-at {failure.prefix - 1} " in failure.command
    kill_at = [failure.prefix - 1]
    again = stress(store, failure.reproducer, **{**settings, "kill_at": kill_at, "bisect": False}).broken
    assert again is not None
    assert again.error == failure.error


@pytest.mark.engine
def test_stress_stage_that_fails_in_other_ways_is_a_failure(tmp_path):
    store = faulty_store("raise another error in each run", word=f"'{tmp_path / 'runs'}'")
    result = stress(store, DOCUMENTS, **SETTINGS)
    failure = result.broken
    assert failure is not None
    assert (failure.error, failure.reproduced, failure.documents_lost) == ("OSError: error b", False, False)
    assert failure.doubt == "3 of 4 attempts failed in another way, while putting: OSError: error d"
    assert summarise_stress_test(result) == [
        f"{store} failed one by one while putting, after 6 documents: OSError: error b. "
        f"Not reproduced, but {failure.doubt}."
    ]


def test_build_command_repeats_the_kills_of_the_failure():
    killed = StoreFailure("in batches", Stage("replacing", "replaced"), "full", False, 12, prefix=9)
    settings = StressSettings(kills=5)
    assert build_command("memory", "here", killed, settings, EMBEDDER, is_prefix=True).endswith(
        f"--embedder '{EMBEDDER}' --kill-at 8 --no-bisect"
    )
    assert build_command("memory", "here", killed, settings, EMBEDDER, is_prefix=False).endswith(
        " --kills 5 --no-bisect"
    )
    settings = StressSettings(kill_at=[3, 8])
    assert build_command("memory", "here", killed, settings, EMBEDDER, is_prefix=False).endswith(
        " --kill-at 3 --kill-at 8 --no-bisect"
    )


@pytest.mark.engine
def test_stress_lost_document_is_a_failure_even_if_not_reproduced(tmp_path):
    result = stress(faulty_store("drop once", word=f"'{tmp_path / 'failed'}'"), DOCUMENTS, **SETTINGS)
    assert result.broken is not None
    assert str(result.broken.stage) == "reading back"
    assert (result.broken.reproduced, result.broken.documents_lost) == (False, True)
    assert summarise_stress_test(result)[0].endswith("Not reproduced, but documents were lost or altered.")


def test_ranking_errors_zero_vector_query_may_return_no_hits():
    ids, base = ["a", "b", "c"], np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    truth = ExactCosines(ids, base, np.array([[0, 0], [1, 0.5]], np.float32), 3)
    assert truth.fewest() == [0, 2]
    rankings = [[], [("a", 0.9), ("b", 0.4)]]
    assert count_ranking_errors(rankings, truth.cosines(rankings), frozenset(ids), 3, truth.fewest()) == {}
    assert "with fewer documents than requested" in count_ranking_errors(
        [[], [("a", 0.9)]], None, frozenset(ids), 3, truth.fewest()
    )


LOUD_FAULTS = {
    "raise": ("putting", "OSError: Embedded WAL is corrupted at offset 78007: wal record checksum mismatch", 6, "d7"),
    "exit": ("putting", "the process ended with exit code 134\nfree(): invalid pointer", 6, "d7"),
    "raise in commit": ("committing", "RuntimeError: disk quota exceeded", 12, ""),
    "refuses to reopen": (
        "reopening",
        "RuntimeError: header says 12 records,\n  the table of contents another number",
        12,
        "",
    ),
}


@pytest.mark.parametrize("fault", LOUD_FAULTS)
@pytest.mark.engine
def test_stress_loud_fault_keeps_error_and_position(fault):
    failure = find_failure(fault)
    assert failure is not None
    assert not failure.silent
    assert (str(failure.stage), failure.error, failure.after, failure.document) == LOUD_FAULTS[fault]


@pytest.mark.engine
def test_stress_hanging_store_times_out():
    failure = find_failure("hang", timeout=10)
    assert failure is not None
    assert str(failure.stage) == "putting"
    assert failure.error == "did not respond for 10 seconds"
    assert (failure.after, failure.document) == (6, "d7")


def test_stress_failing_batch_names_its_documents():
    failure = find_failure("raise", modes=["in batches"])
    assert failure is not None
    assert (failure.after, failure.document) == (5, "d6 to d10")


@pytest.mark.parametrize(("fault", "kind"), [("drop when killed", "lost"), ("torn when killed", "changed")])
@pytest.mark.crash
def test_stress_committed_documents_lost_after_kill_are_a_failure(fault, kind):
    result = stress(faulty_store(fault, at=2), DOCUMENTS, **{**SETTINGS, "kills": 1, "kill_at": [11], "bisect": False})
    assert result.broken is not None
    assert str(result.broken.stage) == "reading back after kill -9"
    assert f"`d2` (document 2) is {kind}" in result.broken.error
    (mode,) = result.modes
    assert [read_back.when for read_back in mode.read_back][:2] == ["at once", "reopened"]
    assert mode.read_back[-1].when.startswith("kill 1 ")
    assert mode.read_back[-1].expected >= 10


@pytest.mark.engine
def test_stress_missing_commit_is_detected_with_few_documents():
    settings = {**SETTINGS, "batch": 100, "kills": 1, "bisect": False, "modes": ["in batches"]}
    result = stress(faulty_store("commits when it is closed"), DOCUMENTS[:4], **settings)
    assert result.broken is not None
    assert str(result.broken.stage) == "reading back after kill -9"
    assert "`d1` (document 1) is lost" in result.broken.error
    assert result.modes[0].read_back[-1].expected >= 1


@pytest.mark.crash
def test_stress_documents_put_after_kill_and_lost_are_a_failure():
    failure = find_failure("takes nothing in once killed", kills=1)
    assert failure is not None
    assert str(failure.stage) == "reading back after kill -9"
    assert " lost of 12 documents" in failure.error


@pytest.mark.crash
def test_stress_uncommitted_documents_before_kill_may_remain():
    settings = {**SETTINGS, "batch": 10, "modes": ["in batches"], "kill_at": [7, 5, 5], "queries": 0}
    result = stress(faulty_store("eager and slow"), DOCUMENTS, **settings)
    assert result.broken is None
    assert [read_back.expected for read_back in result.modes[0].select_read_backs("killed")][:2] == [6, 6]


def test_stress_failure_leaves_later_stages_empty():
    result = stress(faulty_store("drop"), DOCUMENTS, **{**SETTINGS, "bisect": False})
    (mode,) = result.modes
    assert mode.put is not None
    assert mode.put.n == 12
    assert mode.search is None
    assert not mode.measures
    assert math.isnan(mode.neighbour_recall)
    assert [read_back.when for read_back in mode.read_back] == ["at once"]
    assert (mode.read_back[0].whole, mode.read_back[0].expected) == (11, 12)


# Stores without faults.


@pytest.mark.engine
def test_stress_sound_store_passes_every_stage():
    queries = {f"q{i}": f"item{i}" for i in range(1, 5)}
    data = Dataset("small", DOCUMENTS, queries, Judgments({f"q{i}": {f"d{i}": 1} for i in range(1, 5)}))
    result = stress(faulty_store(""), data, embedder=EMBEDDER, batch=4, kills=2, k=3, timeout=120)
    assert result.broken is None
    assert describe_outcome(result) == "passed"
    assert [mode.name for mode in result.modes] == ["one by one", "in batches"]
    for mode, calls in zip(result.modes, (12, 3), strict=True):
        assert mode.put is not None
        assert mode.put.n == calls
        assert mode.commit is not None
        assert mode.commit.n == 1
        assert all(read_back.is_intact for read_back in mode.read_back)
        moments = [read_back.when.partition(" in ")[0].partition(" after ")[0] for read_back in mode.read_back]
        killed, replaced = ["kill 1", "kill 2", "killed, then filled to the end"], ["as before", "reopened"]
        assert moments == [
            "at once",
            "reopened",
            *killed,
            "replaced",
            *(f"replaced, then {moment}" for moment in replaced),
        ]
        assert [read_back.whole for read_back in mode.read_back[-4:]] == [12, 5, 12, 12]
        assert all(read_back.expected > 0 for read_back in mode.select_read_backs("killed"))
        assert mode.neighbour_recall == 1.0
        assert mode.changed_rankings == 0
        assert mode.judged_queries == 4
        assert mode.measures["recall@3"] == 1.0
        assert mode.bytes_on_disk is not None
    assert result.description["engine"] == "faulty"


@pytest.mark.engine
def test_stress_accepts_importable_store_class():
    from faulty_document_store import Faulty

    result = stress(Faulty, DOCUMENTS[:3], **SETTINGS)
    assert result.store == "faulty_document_store:Faulty"
    assert result.broken is None
    with pytest.raises(BadInput, match="cannot be imported by another process"):
        stress(type("Inner", (), {"__module__": "__main__"}), DOCUMENTS[:3])


# Shortest failing prefix.


@pytest.mark.parametrize("mode", ["one by one", "in batches"])
@pytest.mark.engine
def test_stress_bisection_finds_prefix_and_writes_reproducer(mode, tmp_path):
    source = tmp_path / "documents.jsonl"
    write_documents(source, DOCUMENTS)
    store = faulty_store("raise on a word", word="item9")
    result = stress(store, source, **{**SETTINGS, "modes": [mode]}, reproducer=tmp_path / "reproducer")
    failure = result.broken
    assert failure is not None
    assert failure.prefix == 9
    assert (9, True) in failure.tried
    assert (8, False) in failure.tried
    assert failure.steady
    assert failure.error == "ValueError: cannot tokenise 'd9':\n\tunexpected  item9"
    reproducer = Path(failure.reproducer)
    assert sorted(path.name for path in reproducer.iterdir()) == ["README.md", "corpus.jsonl"]
    assert failure.command in (reproducer / "README.md").read_text()
    second_result = stress(store, reproducer, **{**SETTINGS, "modes": [mode], "bisect": False})
    assert second_result.documents == 9
    assert second_result.broken is not None
    assert second_result.broken.error == failure.error


@pytest.mark.engine
def test_stress_bisection_finds_prefix_of_late_failure():
    failure = stress(faulty_store("wrong order", at=5), DOCUMENTS, **SETTINGS).broken
    assert failure is not None
    assert failure.prefix == 5
    assert failure.steady


@pytest.mark.parametrize("shortest", [0, 1, 16, 2499, 2500])
def test_find_minimal_prefix_is_exact_for_any_guess(shortest):
    for guess in (None, 0, 1, 16, 2500):
        result = find_minimal_prefix(lambda n: n >= shortest, 2500, guess=guess)
        assert result.prefix == shortest
        assert result.steady
        assert not result.doubt


def test_find_minimal_prefix_unrepeated_failure_is_not_steady():
    outcomes = iter([True])
    result = find_minimal_prefix(lambda n: next(outcomes, False), 1)
    assert result.prefix is not None
    assert result.steady is False
    assert "in 1 of 3 attempts" in result.doubt


def test_find_minimal_prefix_intermittent_failure_is_tried_three_times():
    attempts = iter([False, False, True])
    result = find_minimal_prefix(lambda n: next(attempts), 100)
    assert (result.prefix, result.steady, result.doubt) == (100, False, "this prefix failed in 1 of 3 attempts")
    assert find_minimal_prefix(lambda n: False, 100, guess=40).tried == [
        (40, False),
        (100, False),
        (100, False),
        (100, False),
    ]


def test_find_minimal_prefix_searches_below_passing_prefix():
    result = find_minimal_prefix(lambda n: n in (50, 51) or n >= 100, 200, guess=100)
    assert result.prefix == 50
    assert result.doubt == "some longer prefixes did not fail, and a shorter prefix that was not tried may fail"


# Helper functions.


def test_describe_difference_names_byte_or_type():
    assert describe_difference("abc", "abc") == ""
    assert describe_difference("abc", "abd") == "byte 3 of 3 is 0x64, not 0x63"
    assert describe_difference("\u00e9", "e\u0301") == "byte 1 of 2 is 0x65, not 0xc3"
    assert describe_difference("a\x00b", "a") == "it ends after byte 1 of 3"
    assert describe_difference({"a": 1, "b": 2}, {"b": 2, "a": 1}) == ""
    assert describe_difference({"a": 1}, {"a": 1.0}) == "byte 8 of 8 is 0x2e, not 0x7d"
    assert describe_difference("None", None) == "it is of type NoneType, not str"
    assert describe_difference({"a": "1"}, {"a": Path("1")}) != ""
    assert describe_difference({"1": 2}, {1: 2}) != ""


def test_compare_documents_uncommitted_may_be_missing_but_not_changed():
    documents = DOCUMENTS[:4]
    returned = [(document.id, document) for document in documents[:3]] + [("d4", None)]
    read_back = compare_documents(["d1", "d2", "d3"], returned, documents, n_required=2, n_allowed=4)
    assert read_back.is_intact
    assert (read_back.whole, read_back.uncommitted) == (2, 1)
    torn = [*returned[:2], ("d3", documents[2]._replace(text="half")), ("d4", None)]
    read_back = compare_documents(["d1", "d2", "d3"], torn, documents, n_required=2, n_allowed=4)
    assert not read_back.is_intact
    assert [(corrupt.id, corrupt.kind) for corrupt in read_back.corrupt] == [("d3", "changed")]


def test_compare_documents_found_and_lost_document_is_lost():
    returned = [("d1", DOCUMENTS[0]), ("d1", None)]
    read_back = compare_documents(["d1"], returned, DOCUMENTS[:1], n_required=1, n_allowed=1)
    assert read_back.corrupt_counts == {"lost": 1}
    assert read_back.whole == 0
    assert (
        describe_read_back(read_back)
        == "1 lost of 1 documents: `d1` (document 1) is lost: it is listed but not returned"
    )


def test_compare_documents_ignores_fields_not_kept():
    without_texts = [(document.id, document._replace(text="", title="")) for document in DOCUMENTS[:2]]
    read_back = compare_documents(
        ["d1", "d2"], without_texts, DOCUMENTS[:2], n_required=2, n_allowed=2, keeps=["metadata"]
    )
    assert read_back.is_intact
    assert read_back.keeps == ["metadata"]


def test_count_ranking_errors_ignores_ties_and_rounding():
    cosines = [{"a": 0.9, "b": 0.90005, "c": 0.1}]
    ranking = [("a", 0.9), ("b", 0.9000001), ("c", 0.1)]
    assert count_ranking_errors([ranking], cosines, frozenset("abc"), 3) == {}
    assert count_ranking_errors([ranking], None, frozenset("ab"), 2) == {
        "with more than k documents": 1,
        "with documents that were never put in": 1,
    }
    assert (
        count_ranking_errors([[("a", math.nan)]], None, frozenset("a"), 1)["with a score that is not a finite number"]
        == 1
    )


def test_changed_rankings_ignores_reordered_ties():
    before = [[("a", 0.9), ("b", 0.5), ("c", 0.5)]]
    assert changed_rankings(before, [[("a", 0.9), ("c", 0.5), ("b", 0.5)]]) == []
    assert changed_rankings(before, [[("a", 0.9), ("c", 0.5), ("d", 0.5)]]) == []
    assert changed_rankings(before, [[("d", 0.9), ("b", 0.5), ("c", 0.5)]]) == [0]
    assert changed_rankings(before, [[("a", 0.9), ("b", 0.5)]]) == [0]


def test_neighbour_recall_matches_brute_force():
    rng = np.random.default_rng(3)
    base, queries = rng.normal(size=(50, 8)).astype(np.float32), rng.normal(size=(4, 8)).astype(np.float32)
    ids = [f"d{i}" for i in range(50)]
    cosines = (queries @ base.T) / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(base, axis=1)
    best = np.argsort(-cosines, axis=1)
    truth = ExactCosines(ids, base, queries, 5)
    exact = [[(ids[i], float(cosines[row, i])) for i in best[row, :5]] for row in range(4)]
    assert truth.neighbour_recall(exact) == 1.0
    two_of_five = [
        [*ranking[:2], (ids[best[row, 20]], 0.0), (ids[best[row, 30]], 0.0)] for row, ranking in enumerate(exact)
    ]
    assert truth.neighbour_recall(two_of_five) == pytest.approx(2 / 5)
    assert list(truth.cosines(exact)[0].values()) == pytest.approx([score for _, score in exact[0]], abs=1e-6)


def test_neighbour_recall_ties_are_interchangeable():
    # The cosines are 1, 0.6, 0.6 and 0.6: the nearest three are the first and any two of the others.
    base = np.array([[1, 0], [0.6, 0.8], [0.6, -0.8], [3, 4]], np.float32)
    truth = ExactCosines(list("abcd"), base, np.array([[1, 0]], np.float32), 3)
    assert truth.neighbour_recall([[("a", 1), ("d", 0.6), ("b", 0.6)]]) == 1.0
    assert truth.neighbour_recall([[("b", 0.6), ("c", 0.6), ("d", 0.6)]]) == pytest.approx(2 / 3)
    assert truth.neighbour_recall([[("a", 1)]]) == pytest.approx(1 / 3)


def test_write_documents_round_trips_unusual_texts(tmp_path):
    documents = [Document("a\nb", "nul \x00, lone \ud800, emoji 🦜, \u2028", "<b>'\"", {"deep": [1, None, {"ü": 0.1}]})]
    write_documents(tmp_path / "documents.jsonl", documents)
    assert read_documents(tmp_path) == documents


def test_error_signature_ignores_numbers_and_paths():
    assert error_signature("bad offset 12 in '/tmp/a'") == error_signature("bad offset 78667 in '/tmp/b'")
    assert error_signature("bad offset 12") != error_signature("no space left")


# Reports.


@pytest.fixture(scope="module")
def failed_test():
    return stress(faulty_store("drop"), DOCUMENTS, **{**SETTINGS, "bisect": False})


def test_stress_json_round_trips(failed_test, tmp_path):
    report(failed_test, tmp_path / "stress.json")
    data = json.loads((tmp_path / "stress.json").read_text())
    assert data["schema"] == "ragauge-stress/1"
    assert data["read_back"] == {"one by one": {"at once": 11}}
    assert data["measures"] == {"one by one": {}}
    assert data["modes"][0]["broken"]["stage"] == {"action": "reading back", "state": "new"}
    restored = read_record(tmp_path / "stress.json")
    assert isinstance(restored, StressTest)
    report(restored, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "stress.json").read_text()
    assert build_report(restored).summary == build_report(failed_test).summary


def test_stress_csv_has_a_row_per_value(failed_test):
    lines = render_csv(build_value_table(failed_test)).splitlines()
    assert lines[0] == "store,mode,name,value"
    assert any(line.endswith("one by one,verdict,failed: reading back") for line in lines)
    assert any(line.endswith('one by one,"whole, at once",11.0') for line in lines)


def test_stress_report_begins_with_the_failure(failed_test):
    stress_report = build_report(failed_test)
    assert "failed one by one while reading back, after 12 documents: 1 lost of 12 documents" in stress_report.summary
    assert [section.id for section in stress_report.sections] == [
        "failure-0",
        "read-back",
        "performance",
        "fill-rate",
        "corrupt",
    ]
    assert stress_report.sections[0].title == "Failure one by one"
    assert read_failure_facts(stress_report)["wrong result"] == "1 lost of 12 documents: `d7` (document 7) is lost"
    (read_back,) = (block for block in stress_report.sections[1].blocks if isinstance(block, Table))
    assert read_back.texts() == [["at once", "12", "11", "1 lost", "0"]]
    (corrupt,) = stress_report.sections[-1].blocks
    assert isinstance(corrupt, Table)
    assert corrupt.texts() == [["d7", "one by one", "at once", "lost", ""]]


def test_stress_error_of_several_lines_is_shown_completely(failed_test):
    failure = failed_test.broken and replace(failed_test.broken, error="ValueError: full\n  at block 7\n", silent=False)
    stress_report = build_report(replace(failed_test, modes=[replace(failed_test.modes[0], broken=failure)]))
    assert read_failure_facts(stress_report)["error"] == "ValueError: full"
    assert stress_report.sections[0].blocks[1] == Code("ValueError: full\n  at block 7", "Complete error message")


def test_stress_summary_counts_only_kills_after_a_commit(failed_test):
    killed = ReadBack("kill 1 in the put of document 1", 0, 0, state="killed", kill=1)
    read_backs = [ReadBack("at once", 12, 12), killed]
    mode = replace(failed_test.modes[0], broken=None, read_back=read_backs, neighbour_recall=0.9)
    sentences = summarise_stress_test(replace(failed_test, modes=[mode]))
    assert "kill -9" not in sentences[0]
    assert sentences[-1] == "Its neighbour recall is 90.0%."
    read_backs = [*read_backs, replace(killed, when="kill 2 in the put of document 7", expected=6, whole=6, kill=2)]
    sentences = summarise_stress_test(
        replace(failed_test, modes=[replace(mode, read_back=read_backs, neighbour_recall=0.96)])
    )
    assert [text.endswith("and after kill -9 (1 kill per mode).") for text in sentences] == [True]


def test_stress_comparison_has_a_row_per_store(failed_test):
    (table,) = build_comparison_report([failed_test, failed_test]).sections[0].blocks
    assert isinstance(table, Table)
    titles = [column.title for column in table.columns]
    row = dict(zip(titles, table.texts()[0], strict=True))
    assert (row["at once"], row["reopened"], row["outcome"]) == ("11", "-", "failed: reading back")


def test_read_back_sound_requires_every_document():
    assert ReadBack("at once", 2, 2).is_intact
    assert not ReadBack("at once", 2, 1).is_intact
    assert not ReadBack("at once", 2, 2, corrupt_counts={"unknown": 1}).is_intact


# Invalid input.


def test_stress_invalid_settings_raise():
    with pytest.raises(UnknownName, match="unknown store `sqlite-vek`") as caught:
        stress("sqlite-vek", DOCUMENTS)
    assert "sqlite-vec" in str(caught.value)
    with pytest.raises(BadInput, match="document `d1` appears more than once"):
        stress("memory", [DOCUMENTS[0], DOCUMENTS[0]], embedder=EMBEDDER)
    with pytest.raises(UnknownName, match="unknown argument `batches` of stress"):
        stress("memory", DOCUMENTS, batches=3)
    with pytest.raises(BadInput, match="modes must be one of one by one, in batches, got `backwards`"):
        StressSettings(modes=["backwards"])
    with pytest.raises(BadInput, match=r"batch must be between 1 and .*, got 0"):
        StressSettings(batch=0)
    with pytest.raises(BadInput, match="kill_at must be at least 0, got -5"):
        StressSettings(kill_at=[3, -5])
    with pytest.raises(BadInput, match="max_documents must be at least 1, got -3"):
        stress("memory", DOCUMENTS, embedder=EMBEDDER, max_documents=-3)
    with pytest.raises(BadInput, match="declares an unknown field `texts`"):
        find_failure("keeps what nobody knows")
    with pytest.raises(BadInput, match="declares an unknown search `vector`"):
        find_failure("searches by what nobody knows")
    with pytest.raises(BadInput, match="the document store memory has no option 'speed'"):
        stress("memory(speed=9)", "no-such-documents.jsonl")
