"""The note on tied scores: printed once, and only if their order changes a printed digit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import command_in
from ragauge import Run, evaluate
from ragauge.evaluation.tie_notes import describe_ties
from ragauge.files.in_memory import to_run_table
from ragauge.output.numbers import format_score
from strategies import judgments, names

QRELS = "q1 0 a 1\nq1 0 z 0\nq2 0 b 1\n"
TIED = "q1 Q0 a 1 1.0 t\nq1 Q0 z 2 1.0 t\nq2 Q0 b 1 2.0 t\n"
CLOSE = "q1 Q0 a 1 1.00000001 t\nq1 Q0 z 2 1.0 t\nq2 Q0 b 1 2.0 t\n"
CLEAR = "q1 Q0 a 1 2.0 t\nq1 Q0 z 2 1.0 t\nq2 Q0 b 1 2.0 t\n"


@pytest.fixture
def ragauge(tmp_path):
    for name, text in (("qrels.txt", QRELS), ("tied.run", TIED), ("close.run", CLOSE), ("clear.run", CLEAR)):
        (tmp_path / name).write_text(text)
    return command_in(tmp_path)


@pytest.mark.parametrize("command", ["evaluate", "compare", "report"])
def test_ties_that_change_a_printed_digit_are_noted_once(ragauge, command):
    notes = ragauge(command, "qrels.txt", "tied.run", "clear.run", "-m", "mrr").stderr
    assert notes.count("note: ties: ") == 1
    assert "mrr of tied is between 0.7500 and 1.0000, depending on the order of documents with equal scores" in notes


@pytest.mark.parametrize(
    ("run", "convention", "note"),
    [
        ("tied.run", "default", "equal scores; they are ordered by id, as by trec_eval, and"),
        ("tied.run", "ties=ranked", "equal scores; `-C trec9` orders them as trec_eval, and"),
        (
            "close.run",
            "default",
            "equal scores in single precision; `-C width=float32` orders them as trec_eval 9, and",
        ),
        ("close.run", "width=float32", "equal scores; they are ordered by id, as by trec_eval, and"),
    ],
)
def test_tie_note_names_the_convention_of_trec_eval(ragauge, run, convention, note):
    assert note in ragauge("evaluate", "qrels.txt", run, "-m", "mrr", "-C", convention).stderr


SCORES = st.integers(0, 2).flatmap(lambda group: st.integers(0, 2).map(lambda step: group + step * 1e-9))


@settings(max_examples=40)
@given(judgments(), st.dictionaries(names("q", 3), st.dictionaries(names("d", 12), SCORES, min_size=1), min_size=1))
def test_scores_that_differ_in_single_precision_are_noted(qrels, run):
    measures = ["mrr", "ndcg@3", "precision@2"]
    for form in (run, Run(to_run_table(run))):
        double = evaluate(qrels, form, measures)
        single = evaluate(qrels, form, measures, "width=float32")
        if [format_score(v) for v in double.means.values()] != [format_score(v) for v in single.means.values()]:
            (note,) = describe_ties([double])
            assert "`-C width=float32` orders them as trec_eval 9" in note


@pytest.mark.parametrize(("measure", "run"), [("recall@2", "tied.run"), ("mrr", "clear.run"), ("mrr", "expected")])
def test_ties_without_effect_are_not_noted(ragauge, measure, run):
    options = ["-C", "ties=expected"] if run == "expected" else []
    file = "tied.run" if run == "expected" else run
    assert "ties: " not in ragauge("evaluate", "qrels.txt", file, "-m", measure, *options).stderr


def test_tie_note_of_public_run_has_known_bounds(ragauge, shared):
    folder = shared("trec_dl_runs")
    runs = [folder / f"runs/dl19.{name}.txt.gz" for name in ("REP_LLAMA", "BM25")]
    notes = ragauge("evaluate", folder / "qrels/qrels.dl19-passage.txt", *runs, "-m", "ndcg@10").stderr
    assert "ndcg@10 of dl19.REP_LLAMA is between 0.7340 and 0.7505" in notes
