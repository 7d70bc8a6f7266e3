"""The verb `audit`, in Python and on the command line: what it takes, what it goes on with, and what it shows."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ragauge import PRESETS, Document, Run, evaluate, load, run
from ragauge.auditing import audit, audit_files
from ragauge.audits.checks import CHECKS
from ragauge.errors import BadInput, UnknownName
from ragauge.findings import Audit, Finding, Grid
from ragauge.reports import audits
from strategies import judgments, runs

QRELS = {f"q{i}": {"a": 2, "b": 1, "c": 0, "d": 0} for i in range(12)}
RUN = {q: {"b": 4.0, "a": 3.0, "c": 2.0, "x": 1.0} for q in QRELS}
SEVERAL = [
    "ndcg@10", "recall@2", "recall@100", "map", "mrr", "precision@3", "rbp", "bpref", "map(of=found)@3", "hit_rate@1",
    "unjudged@5", "num_ret", "f1@2", "err@5", "dr(targets=identity)@3", "unique_ratio@3", "infap", "gm_map", "utility",
]  # fmt: skip


def trec(nested):
    return "".join(
        f"{q} Q0 {d} {rank} {score} tag\n"
        for q, docs in nested.items()
        for rank, (d, score) in enumerate(docs.items(), 1)
    )


@pytest.fixture
def folder(tmp_path):
    """Judgments, two runs, and a corpus with queries."""
    (tmp_path / "qrels.txt").write_text(
        "".join(f"{q} 0 {d} {g}\n" for q, docs in QRELS.items() for d, g in docs.items())
    )
    (tmp_path / "one.run").write_text(trec(RUN))
    (tmp_path / "other.run").write_text(trec({q: dict(zip("axyz", (4, 3, 2, 1), strict=True)) for q in QRELS}))
    texts = {"a": "the red fox", "b": "a brown dog", "c": "a grey cat", "d": "old news", "x": "the red fox"}
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"_id": d, "text": t}) + "\n" for d, t in texts.items()))
    (tmp_path / "queries.tsv").write_text("".join(f"{q}\twhat is number {i}\n" for i, q in enumerate(QRELS)))
    return tmp_path


def names(found):
    return {one.what for one in found.findings}


@settings(max_examples=25)
@given(
    judgments(low=-1),
    runs(),
    runs(),
    st.sampled_from([name for name, rules in PRESETS.items() if rules.ties != "expected"]),
    st.lists(st.sampled_from(SEVERAL), min_size=1, max_size=4, unique=True),
)
def test_whatever_can_be_evaluated_can_be_audited_and_shown(qrels, one, other, convention, measures):
    found = audit(
        qrels,
        {"one": one, "other": other},
        convention=convention,
        measures=measures,
        expect={"ndcg@10": "0.1234"},
        repeats={"one": [other]},
    )
    assert names(found) >= {"conventions", "expected", "repetitions"}
    data = json.loads(audits.as_json(found))
    assert data["problems"] == len(found.problems)
    assert audits.markdown(found).startswith("# Audit")


def test_runs_come_as_in_evaluate(folder):
    by_dict = audit(QRELS, RUN, checks="conventions")
    by_path = audit(folder / "qrels.txt", str(folder / "one.run"), checks="conventions")
    by_name = audit(QRELS, {"mine": pl.DataFrame({"query": ["q0"], "doc": ["a"], "score": [1.0]})}, checks=["depth"])
    assert by_dict.findings[0].grid == by_path.findings[0].grid
    assert [one.subject for one in (by_dict.findings[0], by_path.findings[0], by_name.findings[0])] == [
        "run",
        "one",
        "mine",
    ]
    two = audit(QRELS, [folder / "one.run", folder / "other.run"], checks="repetitions")
    assert [one.subject for one in two.findings] == ["one", "other"]


def test_the_rank_column_of_a_file_settles_ties_as_evaluate_does(folder):
    lines = "".join(f"{q} Q0 {d} {rank} 1.0 t\n" for q in QRELS for d, rank in (("c", 3), ("a", 1), ("b", 2)))
    (folder / "tied.run").write_text(lines)
    found = audit(folder / "qrels.txt", folder / "tied.run", checks="conventions", measures="mrr")
    rows = {name: row[1] for row in found.findings[0].grid.rows for name in row[0].split(", ")}
    assert rows["ranx"] == evaluate(folder / "qrels.txt", folder / "tied.run", ["mrr"], "ranx").means["mrr"] == 1.0
    (folder / "odd.run").write_text(lines.replace(" 1 1.0", " - 1.0"))
    assert audit(folder / "qrels.txt", folder / "odd.run", checks="ties").problems


def test_checks_without_their_evidence_are_listed_with_the_reason():
    found = audit(QRELS, RUN)
    assert set(found.skipped) >= {"expect", "repeats", "duplicates", "near-duplicates", "verbatim", "predictors"}
    assert "--corpus" in found.skipped["duplicates"]
    assert "--expect" in found.skipped["expect"]
    alone = audit(QRELS)
    assert alone.skipped["ties"] == "no run is given"
    assert names(alone) == {"ground truth", "few queries"}
    assert alone.notes == ["12 judged queries, 0 runs, convention default"]


def test_texts_come_from_a_dataset_a_list_a_folder_or_files(folder):
    data = load("synthetic:needles(documents=60, queries=12)")
    ranking = {q: {d.id: -float(i) for i, d in enumerate(data.documents[:20])} for q in data.queries}
    whole = audit(data, ranking, checks=["duplicates", "own-documents", "orphans"])
    assert whole.skipped == {}
    listed = audit(data.judgments, ranking, documents=data.documents, checks=["duplicates", "own-documents"])
    assert list(listed.skipped) == ["own-documents"]
    both = audit(data.judgments, ranking, documents=data, checks=["own-documents"])
    assert both.skipped == {}
    files = audit_files(
        [str(folder / "qrels.txt"), str(folder / "one.run")],
        corpus=str(folder / "corpus.jsonl"),
        queries=str(folder / "queries.tsv"),
        checks=["duplicates", "own-documents", "orphans"],
    )
    assert files.skipped == {}
    twins = next(one for one in files.findings if one.what == "duplicates")
    assert twins.count == 2


def test_a_beir_folder_brings_its_texts(folder):
    (folder / "qrels").mkdir()
    rows = "".join(f"{q}\t{d}\t{g}\n" for q, docs in QRELS.items() for d, g in docs.items())
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    found = audit_files([str(folder), str(folder / "one.run")], checks=["duplicates", "own-documents"])
    assert found.skipped == {}
    assert audit(folder, folder / "one.run", checks="duplicates").skipped == {}


def test_what_evaluate_refuses_is_still_looked_at(folder):
    again = trec(RUN) + "q0 Q0 b 5 0.5 tag\n"
    (folder / "again.run").write_text(again)
    with pytest.raises(BadInput, match="stands twice"):
        evaluate(folder / "qrels.txt", folder / "again.run")
    found = audit(folder / "qrels.txt", folder / "again.run")
    problem = next(one for one in found.problems if one.what == "repetitions")
    assert (problem.count, list(problem.examples)) == (1, ["b for q0"])
    assert found.notes[0].endswith("convention default, duplicates=first")
    some = {q: docs for q, docs in RUN.items() if q not in ("q1", "q2")}
    with pytest.raises(BadInput, match="has no ranking"):
        evaluate(QRELS, some, convention="trec10")
    found = audit(QRELS, some, convention="trec10")
    assert next(one for one in found.problems if one.what == "survivorship").count == 2


def test_mistakes_are_named():
    with pytest.raises(UnknownName, match="no check is named `tie`"):
        audit(QRELS, RUN, checks="tie")
    with pytest.raises(BadInput, match="function of your own"):
        audit(QRELS, RUN, measures=lambda query: 1.0)
    with pytest.raises(BadInput, match="expects nothing"):
        audit(QRELS, RUN, expect=["ndcg@10"])
    with pytest.raises(BadInput, match="is not a number"):
        audit(QRELS, RUN, expect={"ndcg@10": "high"})
    with pytest.raises(UnknownName, match="no measure"):
        audit(QRELS, RUN, expect={"nothing": "0.5"})


def test_numbers_are_expected_as_texts_or_as_floats():
    value = evaluate(QRELS, RUN, ["ndcg@10"]).means["ndcg@10"]
    for figure in (round(value, 4), f"{value:.3f}", f"{100 * value:.2f}"):
        found = audit(QRELS, RUN, expect={"nDCG@10": figure}, checks="expect")
        assert "is as counted here" in found.findings[0].message


def flaky(query, k):
    flaky.asked += 1
    if flaky.asked % 7 == 0:
        raise RuntimeError("no answer")
    return [f"d{(flaky.asked * 37 + i) % 60:05}" for i in range(k)]


def test_run_folders_know_judgments_texts_failures_and_repeats(tmp_path):
    flaky.asked = 0
    run(
        "synthetic:needles(documents=60, queries=12)",
        {"flaky": flaky, "steady": lambda q, k: [f"d{i:05}" for i in range(k)]},
        k=10,
        repeats=2,
        warmup=0,
        out=tmp_path / "made",
    )
    found = audit_files([str(tmp_path / "made")], measures=["ndcg@10"])
    assert set(found.skipped) == {"expect"}
    assert found.notes == ["12 judged queries, 2 runs, convention default"]
    kinds = {(one.subject, one.what): one for one in found.findings}
    assert kinds["flaky", "survivorship"].count >= 1
    assert "failed" in kinds["flaky", "survivorship"].message
    assert kinds["flaky", "repeats"].count == 12
    assert not kinds["steady", "repeats"].problem
    assert kinds["steady", "repeats"].message == "2 times the same rankings"


def test_the_same_name_again_is_the_same_system_asked_again(folder):
    found = audit_files(
        [str(folder / "qrels.txt"), f"mine={folder / 'one.run'}", f"mine={folder / 'other.run'}"], checks=["repeats"]
    )
    assert [one.subject for one in found.problems] == ["mine"]


def test_texts_that_are_not_those_of_the_run_are_not_used(tmp_path, monkeypatch):
    made = tmp_path / "made"
    run("synthetic:needles(documents=60, queries=12)", {"bm25": lambda q, k: ["d00001"]}, k=5, warmup=0, out=made)
    manifest = made / "bm25" / "manifest.json"
    kept = manifest.read_text()
    data = json.loads(kept)
    data["dataset"]["documents_hash"] = "another"
    manifest.write_text(json.dumps(data))
    found = audit_files([str(made)], checks=["duplicates"])
    assert "are not those that the runs were made on" in found.skipped["duplicates"]
    data["dataset"]["name"] = "gone"
    manifest.write_text(json.dumps(data))
    found = audit_files([str(made)], checks=["duplicates"])
    assert "the dataset gone cannot be loaded" in found.skipped["duplicates"]
    found = audit_files([str(made)], checks=["duplicates"], dataset="synthetic:needles(documents=60, queries=12)")
    assert found.skipped == {}


# the command line


@pytest.fixture
def ragauge(folder):
    def command(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, "-c", "from ragauge.cli import main; main()", "audit", *arguments],
            capture_output=True,
            text=True,
            cwd=folder,
            check=False,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"},
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return command


def test_the_command_shows_problems_first_and_fits_eighty_columns(ragauge, folder):
    done = ragauge("qrels.txt", "one.run", "other.run", "--corpus", "corpus.jsonl", "--expect", "ndcg@10=0.9999")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    where = [lines.index(title) for title in ("in order, or only to know", "not looked at")]
    assert where == sorted(where)
    assert all(line.startswith("!") is False for line in lines[where[0] :])
    assert any(line.startswith("! expected") for line in lines[: where[0]])
    assert "problems found" in done.stderr
    assert "12 judged queries, 2 runs, convention default" in done.stderr


def test_json_has_every_finding_and_no_nan(ragauge):
    done = ragauge("qrels.txt", "one.run", "--json")
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert set(found) == {"problems", "findings", "skipped", "notes"}
    assert set(found["findings"][0]) == {"subject", "what", "problem", "count", "message", "examples", "effect", "grid"}
    grid = next(one["grid"] for one in found["findings"] if one["what"] == "conventions")
    assert grid["header"][0] == "convention"
    assert all(len(row) == len(grid["header"]) for row in grid["rows"])


def test_strict_exits_with_one_where_there_is_a_problem(ragauge):
    ragauge("qrels.txt", "one.run", "--check", "ties", "--strict")
    ragauge("qrels.txt", "one.run", "--check", "expect", "--expect", "map=0.123456", "--strict", code=1)


def test_the_checks_are_listed_and_mistakes_get_a_hint(ragauge):
    done = ragauge("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(CHECKS)
    assert "nothing is given" in ragauge(code=2).stderr
    assert "did you mean `ties`?" in ragauge("qrels.txt", "one.run", "--check", "tise", code=2).stderr


def test_a_page_of_markdown_is_written(ragauge, folder):
    ragauge("qrels.txt", "one.run", "--markdown", "audit.md", "--check", "conventions", "--check", "ties")
    page = (folder / "audit.md").read_text()
    assert page.startswith("# Audit\n\n12 judged queries, 1 run, convention default.\n\n0 problems.\n")
    assert "| convention | ndcg@10 |" in page


def test_full_shows_the_tables_of_what_is_in_order(ragauge):
    short, full = (ragauge("qrels.txt", "one.run", "--check", "chance", *more).stdout for more in ([], ["--full"]))
    assert "of the way" in full.splitlines()[2] + full.splitlines()[3] + full.splitlines()[4]
    assert len(full.splitlines()) > len(short.splitlines())


def test_data_is_never_markup():
    odd = Finding(
        "[red]run[/red]",
        "ties",
        True,
        1,
        "a *bold* | claim",
        ["[link=x]q[/link]", "a\x1b[31mb"],
        "",
        Grid(["a|b"], [["[b]x[/b]"]]),
    )
    found = Audit([odd], {"check": "a `reason`"})
    console = Console(width=80, record=True, file=io.StringIO())
    for part in audits.rendered(found):
        console.print(part)
    text = console.export_text()
    assert "[red]run[/red]" in text
    assert "[link=x]q[/link]" in text
    assert "\x1b" not in text
    page = audits.markdown(found)
    assert "a \\*bold\\* \\| claim" in page
    assert "\x1b" not in page


def test_runs_without_a_number_and_counts_are_shown_as_such():
    grid = Grid(["what", "n", "score"], [["a", 3, 0.5], ["b", 4.0, float("nan")], ["c", None, 1.0]])
    assert audits.cells(grid) == [["a", "3", "0.5000"], ["b", "4", "-"], ["c", "-", "1.0000"]]


def test_a_large_run_drawn_at_random_is_called_so():
    rng = np.random.default_rng(0)
    queries, documents = np.repeat(np.arange(1000), 300), np.tile(np.arange(300), 1000) * 7 % 3001
    table = pl.DataFrame(
        {
            "query": [f"q{q}" for q in queries],
            "doc": [f"d{d}" for d in documents],
            "score": rng.random(len(queries)),
        }
    )
    qrels = {f"q{q}": {f"d{d}": 1 for d in rng.integers(0, 3001, 5)} for q in range(1000)}
    found = audit(
        qrels, {"big": Run(table, "big")}, documents=[Document(f"d{d}", "") for d in range(3001)], checks="chance"
    )
    assert "is no better than documents drawn at random" in found.problems[0].message
