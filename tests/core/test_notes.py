"""Notes: sentences with the name of the system that they describe, and merging of equal notes."""

from __future__ import annotations

import copy
import pickle

import pytest

from ragauge import evaluate, evaluate_runs
from ragauge.core.findings import Note, has_code, merge_notes
from ragauge.core.run_dates import RunDate, describe_run_dates
from ragauge.files.serialization import to_json_data


@pytest.mark.parametrize("copy_note", [copy.deepcopy, lambda note: pickle.loads(pickle.dumps(note))])
def test_note_copied_keeps_fields(copy_note):
    note = copy_note(Note("is slow", "bm25", code="slow"))
    assert (note, note.subjects, note.text, has_code(note, "slow")) == ("bm25: is slow", ("bm25",), "is slow", True)


def test_note_as_json_is_its_sentence():
    assert to_json_data([Note("is slow", "bm25"), Note("done")]) == ["bm25: is slow", "done"]


def test_merge_notes_same_text_lists_subjects_once():
    notes = ["done", Note("is slow", "a"), Note("is slow", "b"), Note("is slow", "a"), "done", "a: is slow"]
    merged = merge_notes(notes)
    assert merged == ["done", "a, b: is slow", "a: is slow"]
    assert merge_notes(merged) == merged
    assert merge_notes([*merged, *merge_notes(notes)]) == merged


def test_evaluate_runs_notes_name_runs_once():
    qrels, run = {"q1": {"d1": 1}, "q2": {"d9": 1}}, {"q1": {"d1": 1.0}, "q2": {"d2": 1.0}}
    single = evaluate(qrels, run, ["recall@10"]).notes
    assert len(single) == 1
    assert single[0].startswith("run: at most 1 document per query")
    merged = evaluate_runs(qrels, {"bm25": run, "dense": run}, ["recall@10"]).notes
    assert merged == [single[0].replace("run: ", "bm25, dense: ", 1)]


def test_merge_notes_many_subjects_names_first_few_and_count():
    (note,) = merge_notes(Note("is slow", f"run{i}") for i in range(63))
    assert note == "run0, run1, run2, run3, run4 and 58 more: is slow"
    assert len(note.subjects) == 63
    assert merge_notes([note]) == [note]


def test_describe_run_dates_many_runs_names_first_few_and_count():
    (note,) = describe_run_dates({f"run{i}": RunDate("2026-11-19") for i in range(7)})
    assert note.endswith("; run4 2026-11-19 and 2 more")
