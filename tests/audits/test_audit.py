"""`audit` in Python and on the command line: accepted inputs, skipped checks, findings and output."""

from __future__ import annotations

import ast
import io
import json
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from command import command_in
from ragauge import PRESETS, Dataset, Document, Judgments, Run, evaluate, load, run
from ragauge import report as report_result
from ragauge.audits import checks, report
from ragauge.audits.audit import audit, audit_files
from ragauge.audits.checks import AUDIT_CHECKS, REMEDIES
from ragauge.audits.corpus_texts import CHARACTER_KINDS
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.findings import Audit, Finding, FindingTable
from ragauge.files.serialization import to_json_data
from ragauge.output.tables import table_of_finding
from ragauge.output.terminal import render_report
from ragauge.reports.registry import read_results
from strategies import judgments, runs
from written_results import format_results

QRELS = {f"q{i}": {"a": 2, "b": 1, "c": 0, "d": 0} for i in range(12)}
RUN = {q: {"b": 4.0, "a": 3.0, "c": 2.0, "x": 1.0} for q in QRELS}
MIXED_MEASURES = [
    "ndcg@10", "recall@2", "recall@100", "map", "mrr", "precision@3", "rbp", "bpref", "map(of=found)@3", "hit_rate@1",
    "unjudged@5", "num_ret", "f1@2", "err@5", "dr(targets=identity)@3", "unique_ratio@3", "infap", "gm_map", "utility",
]  # fmt: skip


def to_trec(nested):
    return "".join(
        f"{q} Q0 {d} {rank} {score} tag\n"
        for q, docs in nested.items()
        for rank, (d, score) in enumerate(docs.items(), 1)
    )


@pytest.fixture
def folder(tmp_path):
    """Folder with judgments, two runs, a corpus and queries."""
    (tmp_path / "qrels.txt").write_text(
        "".join(f"{q} 0 {d} {g}\n" for q, docs in QRELS.items() for d, g in docs.items())
    )
    (tmp_path / "one.run").write_text(to_trec(RUN))
    (tmp_path / "other.run").write_text(to_trec({q: dict(zip("axyz", (4, 3, 2, 1), strict=True)) for q in QRELS}))
    texts = {"a": "the red fox", "b": "a brown dog", "c": "a grey cat", "d": "old news", "x": "the red fox"}
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"_id": d, "text": t}) + "\n" for d, t in texts.items()))
    (tmp_path / "queries.tsv").write_text("".join(f"{q}\twhat is number {i}\n" for i, q in enumerate(QRELS)))
    return tmp_path


def list_checks(found):
    return {finding.check for finding in found.findings}


@settings(max_examples=25)
@given(
    judgments(low=-1),
    runs(),
    runs(),
    st.sampled_from([name for name, convention in PRESETS.items() if convention.ties != "expected"]),
    st.lists(st.sampled_from(MIXED_MEASURES), min_size=1, max_size=4, unique=True),
)
@pytest.mark.slow
def test_audit_random_inputs_renders_json_and_markdown(qrels, first_run, second_run, convention, measures):
    found = audit(
        qrels,
        {"one": first_run, "other": second_run},
        convention=convention,
        measures=measures,
        expect={"ndcg@10": "0.1234"},
        repeats={"one": [second_run]},
    )
    assert list_checks(found) >= {"conventions", "expected", "repeated documents"}
    data = json.loads(format_results(found, "json"))
    assert data["problem_count"] == len(found.problems)
    assert format_results(found, "markdown").startswith("# Audit")


def test_audit_accepts_runs_as_dict_path_frame_and_list(folder):
    by_dict = audit(QRELS, RUN, checks="conventions")
    by_path = audit(folder / "qrels.txt", str(folder / "one.run"), checks="conventions")
    by_frame = audit(QRELS, {"mine": pl.DataFrame({"query": ["q0"], "doc": ["a"], "score": [1.0]})}, checks=["depth"])
    assert by_dict.findings[0].table == by_path.findings[0].table
    assert [finding.subject for finding in (by_dict.findings[0], by_path.findings[0], by_frame.findings[0])] == [
        "run",
        "one",
        "mine",
    ]
    by_list = audit(QRELS, [folder / "one.run", folder / "other.run"], checks="repeated-documents")
    assert [finding.subject for finding in by_list.findings] == ["one", "other"]


def test_audit_graded_judgments_get_a_convention_row_for_rel_2():
    def find_rows(qrels, *measures):
        found = audit(qrels, RUN, checks="conventions", measures=list(measures))
        return {row[0]: row[1:] for row in found.findings[0].table.rows}

    scored = evaluate(QRELS, RUN, ["mrr", "ndcg@10"], PRESETS["default"].but(rel=2)).means
    assert find_rows(QRELS, "mrr", "ndcg@10")["default, rel=2"] == list(scored.values()) != [1.0, 1.0]
    assert "default, rel=2" not in find_rows(QRELS, "ndcg@10")
    assert "default, rel=2" not in find_rows({q: {"a": 1, "b": 0} for q in QRELS}, "mrr")


def test_audit_ties_use_rank_column_of_file_like_evaluate(folder):
    lines = "".join(f"{q} Q0 {d} {rank} 1.0 t\n" for q in QRELS for d, rank in (("c", 3), ("a", 1), ("b", 2)))
    (folder / "tied.run").write_text(lines)
    found = audit(folder / "qrels.txt", folder / "tied.run", checks="conventions", measures="mrr")
    rows = {name: row[1] for row in found.findings[0].table.rows for name in row[0].split(", ")}
    assert rows["ranx"] == evaluate(folder / "qrels.txt", folder / "tied.run", ["mrr"], "ranx").means["mrr"] == 1.0
    (folder / "odd.run").write_text(lines.replace(" 1 1.0", " - 1.0"))
    assert audit(folder / "qrels.txt", folder / "odd.run", checks="ties").problems


def test_audit_checks_without_evidence_are_skipped_with_reason():
    found = audit(QRELS, RUN)
    assert set(found.skipped) >= {"expect", "trials", "duplicates", "near-duplicates", "verbatim", "predictors"}
    assert "--corpus (documents=)" in found.skipped["duplicates"]
    assert "--queries (queries=)" in found.skipped["verbatim"]
    assert "--expect ndcg@10=0.7439 (expect=)" in found.skipped["expect"]
    assert "NAME=FILE again (repeats=)" in found.skipped["trials"]
    alone = audit(QRELS)
    assert alone.skipped["ties"] == "no run given"
    assert list_checks(alone) == {"truncated judgments", "few queries"}
    assert alone.notes == ["12 judged queries, 0 runs, convention default"]


def test_audit_reads_texts_from_dataset_list_or_files(folder):
    data = load("synthetic:needles(documents=60, queries=12)")
    ranking = {q: {d.id: -float(i) for i, d in enumerate(data.documents[:20])} for q in data.queries}
    from_dataset = audit(data, ranking, checks=["duplicates", "own-documents", "orphans"])
    assert from_dataset.skipped == {}
    from_list = audit(data.judgments, ranking, documents=data.documents, checks=["duplicates", "own-documents"])
    assert list(from_list.skipped) == ["own-documents"]
    from_dataset_texts = audit(data.judgments, ranking, documents=data, checks=["own-documents"])
    assert from_dataset_texts.skipped == {}
    from_files = audit_files(
        [str(folder / "qrels.txt"), str(folder / "one.run")],
        corpus=str(folder / "corpus.jsonl"),
        queries=str(folder / "queries.tsv"),
        checks=["duplicates", "own-documents", "orphans"],
    )
    assert from_files.skipped == {}
    duplicates = next(finding for finding in from_files.findings if finding.check == "duplicates")
    assert duplicates.count == 2


def test_audit_beir_folder_provides_texts(folder):
    (folder / "qrels").mkdir()
    rows = "".join(f"{q}\t{d}\t{g}\n" for q, docs in QRELS.items() for d, g in docs.items())
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    found = audit_files([str(folder), str(folder / "one.run")], checks=["duplicates", "own-documents"])
    assert found.skipped == {}
    assert audit(folder, folder / "one.run", checks="duplicates").skipped == {}


def test_audit_accepts_runs_that_evaluate_rejects(folder):
    repeated_rows = to_trec(RUN) + "q0 Q0 b 5 0.5 tag\n"
    (folder / "again.run").write_text(repeated_rows)
    with pytest.raises(BadInput, match="appears more than once"):
        evaluate(folder / "qrels.txt", folder / "again.run")
    found = audit(folder / "qrels.txt", folder / "again.run")
    problem = next(finding for finding in found.problems if finding.check == "repeated documents")
    assert (problem.count, list(problem.examples)) == (1, ["b for q0"])
    assert found.notes[0].endswith("convention default, duplicates=first")
    incomplete_run = {q: docs for q, docs in RUN.items() if q not in ("q1", "q2")}
    with pytest.raises(BadInput, match="has no ranking"):
        evaluate(QRELS, incomplete_run, convention="trec10")
    found = audit(QRELS, incomplete_run, convention="trec10")
    assert next(finding for finding in found.problems if finding.check == "missing queries").count == 2


def test_audit_invalid_arguments_raise_error():
    with pytest.raises(UnknownName, match="unknown check `tie`"):
        audit(QRELS, RUN, checks="tie")
    with pytest.raises(BadInput, match="a measure that is a function"):
        audit(QRELS, RUN, measures=lambda query: 1.0)
    with pytest.raises(BadInput, match="expected MEASURE=VALUE"):
        audit(QRELS, RUN, expect=["ndcg@10"])
    with pytest.raises(BadInput, match="is not a number"):
        audit(QRELS, RUN, expect={"ndcg@10": "high"})
    with pytest.raises(UnknownName, match="unknown measure"):
        audit(QRELS, RUN, expect={"nothing": "0.5"})


def test_audit_expect_accepts_text_float_and_percent():
    value = evaluate(QRELS, RUN, ["ndcg@10"]).means["ndcg@10"]
    for figure in (round(value, 4), f"{value:.3f}", f"{100 * value:.2f}"):
        found = audit(QRELS, RUN, expect={"nDCG@10": figure}, checks="expect")
        assert "is as scored here" in found.findings[0].message


def flaky(query, k):
    flaky.n_calls += 1
    if flaky.n_calls % 7 == 0:
        raise RuntimeError("no answer")
    return [f"d{(flaky.n_calls * 37 + i) % 60:05}" for i in range(k)]


def test_audit_run_folder_provides_all_evidence(tmp_path):
    flaky.n_calls = 0
    run(
        "synthetic:needles(documents=60, queries=12)",
        {"flaky": flaky, "steady": lambda q, k: [f"d{i:05}" for i in range(k)]},
        k=10,
        repeats=2,
        warmup=0,
        out=tmp_path / "made",
    )
    found = audit_files([str(tmp_path / "made")], measures=["ndcg@10"])
    assert set(found.skipped) == {"expect", "token-limit"}
    assert found.notes[0] == "12 judged queries, 2 runs, convention default"
    assert found.notes[1].startswith("flaky: mean over 2 trials, whose rankings differ (ndcg@10 ")
    kinds = {(finding.subject, finding.check): finding for finding in found.findings}
    assert kinds["flaky", "missing queries"].count >= 1
    assert "failed" in kinds["flaky", "missing queries"].message
    assert kinds["flaky", "trials"].count == 12
    assert not kinds["steady", "trials"].problem
    assert kinds["steady", "trials"].message == "steady returned the same rankings in all 2 trials"


def describe_findings(found):
    """Return all findings, without subjects that are not runs: the name of judgments depends on their source."""
    return [
        (
            finding.subject if finding.subject in found.runs else "",
            finding.check,
            finding.problem,
            finding.message,
            finding.effect,
            finding.table,
        )
        for finding in found.findings
    ]


def test_audit_experiment_in_memory_equals_its_folder(tmp_path):
    data = "synthetic:leaky(documents=120, queries=30)"
    systems = {"swarm": "swarm(graph=knn, prior=hidden, prior_weight=20)", "words": "bm25"}
    experiment = run(
        data, systems, measures=["mrr@5", "hit_rate@5"], k=5, repeats=3, max_queries=20, out=tmp_path / "made"
    )
    expected = audit_files([str(tmp_path / "made")])
    assert "leaking field" in list_checks(expected)
    assert set(expected.skipped) == {"expect", "token-limit"}
    assert expected.notes[0] == "20 judged queries, 2 runs, convention default"
    for found in (audit(tmp_path / "made"), audit(str(tmp_path / "made")), audit(experiment)):
        assert describe_findings(found) == describe_findings(expected)
        assert (found.skipped, found.notes) == (expected.skipped, expected.notes)
    single_run = audit(tmp_path / "made" / "swarm", checks="predictors")
    assert single_run.runs == ["swarm"]
    assert [finding.check for finding in single_run.problems] == ["leaking field"]
    with_convention = audit(experiment, measures=["ndcg@3"], convention="trec10", checks="conventions")
    assert with_convention.findings[0].table.header[0] == "ndcg@3 of"
    assert with_convention.notes[0] == "20 judged queries, 2 runs, convention trec10, missing=zero"


def test_audit_experiment_defaults_to_its_convention():
    experiment = run(
        "synthetic:needles(documents=60, queries=12)", {"words": "bm25"}, k=5, measures=["mrr"], convention="beir"
    )
    assert audit(experiment, checks="truncated-judgments").notes == ["12 judged queries, 1 run, convention beir"]


def test_audit_files_same_run_name_twice_is_a_repeat(folder):
    found = audit_files(
        [str(folder / "qrels.txt"), f"mine={folder / 'one.run'}", f"mine={folder / 'other.run'}"], checks=["trials"]
    )
    assert [finding.subject for finding in found.problems] == ["mine"]


def test_audit_files_changed_or_missing_dataset_skips_text_checks(tmp_path, monkeypatch):
    out = tmp_path / "made"
    run("synthetic:needles(documents=60, queries=12)", {"bm25": lambda q, k: ["d00001"]}, k=5, warmup=0, out=out)
    manifest = out / "bm25" / "manifest.json"
    original = manifest.read_text()
    data = json.loads(original)
    data["dataset"]["documents_hash"] = "another"
    manifest.write_text(json.dumps(data))
    found = audit_files([str(out)], checks=["duplicates"])
    assert "are not those that the runs were made on" in found.skipped["duplicates"]
    data["dataset"]["name"] = data["origin"] = "gone"
    manifest.write_text(json.dumps(data))
    found = audit_files([str(out)], checks=["duplicates"])
    assert "the dataset gone cannot be loaded" in found.skipped["duplicates"]
    found = audit_files([str(out)], checks=["duplicates"], dataset="synthetic:needles(documents=60, queries=12)")
    assert found.skipped == {}


def test_audit_files_finds_relative_or_moved_dataset_folder(folder, monkeypatch):
    data_folder = folder / "data"
    (data_folder / "qrels").mkdir(parents=True)
    rows = "".join(f"{q}\t{d}\t{g}\n" for q, docs in QRELS.items() for d, g in docs.items())
    (data_folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    for name in ("corpus.jsonl", "queries.tsv"):
        (folder / name).rename(data_folder / name)
    monkeypatch.chdir(folder)
    out = folder / "made"

    def rerun():
        return run("data", {"mine": lambda q, k: ["a", "b"]}, k=5, warmup=0, out=out, split="dev", reuse=True)

    rerun()
    manifest = out / "mine" / "manifest.json"
    assert json.loads(manifest.read_text())["origin"] == str(data_folder)
    monkeypatch.chdir("/")
    text_checks = ["duplicates", "own-documents", "verbatim"]
    assert audit_files([str(out)], checks=text_checks).skipped == {}
    (folder / "qrels.txt").rename(folder / "judged.txt")
    assert audit_files([str(folder / "judged.txt"), str(out / "mine")], checks=text_checks).skipped == {}
    (folder / "elsewhere").mkdir()
    data_folder.rename(folder / "elsewhere" / "data")
    found = audit_files([str(out)], checks=text_checks)
    assert set(found.skipped.values()) == {f"{data_folder} no longer exists; pass its path with --dataset"}
    monkeypatch.setenv("RAGAUGE_DATA", str(folder / "elsewhere"))
    assert audit_files([str(out)], checks=text_checks).skipped == {}
    monkeypatch.delenv("RAGAUGE_DATA")
    monkeypatch.chdir(folder / "elsewhere")
    assert "reused; made" in rerun().notes[-1]  # accepted as the moved dataset
    assert json.loads(manifest.read_text())["origin"] == str(folder / "elsewhere" / "data")
    assert "reused; made" not in manifest.read_text()
    assert audit_files([str(out)], checks=text_checks).skipped == {}
    with (folder / "elsewhere" / "data" / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "text": "new"}\n')
    found = audit_files([str(out)], checks=text_checks)
    assert "are not those that the runs were made on" in found.skipped["duplicates"]


# Command line


@pytest.fixture
def ragauge(folder):
    return command_in(folder, "audit")


@pytest.mark.slow
def test_cli_audit_prints_problems_first_within_80_columns(ragauge, folder):
    done = ragauge("qrels.txt", "one.run", "other.run", "--corpus", "corpus.jsonl", "--expect", "ndcg@10=0.9999")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Audit: one, other"
    assert lines[3:5] == ["Expected scores", lines[4]]
    assert lines[4].startswith("! expected")
    title_lines = [lines.index(title) for title in ("Problems of one", "Conventions", "No problem", "Skipped checks")]
    assert title_lines == sorted(title_lines)
    assert all(line.startswith("!") is False for line in lines[title_lines[1] :])
    problems = sum(line.startswith("! ") for line in lines)
    assert sum(line.lstrip().startswith("remedy: ") for line in lines) == problems
    assert lines[1] == f"{problems} problems found, 6 checks skipped."
    assert "12 judged queries, 2 runs, convention default" in done.stderr


def test_cli_audit_expected_scores_are_printed_first(ragauge, folder):
    value = evaluate(QRELS, RUN, ["ndcg@10"], "rig").means["ndcg(gain=exp)@10"]
    options = ["--expect", f"ndcg@10={value:.6f}", "--check", "expect", "--check", "conventions"]
    done = ragauge("qrels.txt", "one.run", *options, "-o", "page.md")
    lines = done.stdout.splitlines()
    assert lines[3] == "Expected scores"
    assert lines[4].startswith("· expected")
    assert "Conventions" in lines
    assert "`ragauge evaluate … -m ndcg@10 -C gain=exp`" in " ".join(done.stdout.split())
    page = (folder / "page.md").read_text()
    assert page.index("## Expected scores") < page.index("## Conventions")
    assert "`ragauge evaluate … -m ndcg@10 -C gain=exp` reproduces it" in page.replace("\\", "")


def test_audit_every_problem_kind_has_a_remedy():
    kinds = set()
    for path in Path(checks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                check_name, problem = node.args[1], keywords.get("problem") or node.args[2]
                if isinstance(check_name, ast.Constant) and not (
                    isinstance(problem, ast.Constant) and not problem.value
                ):
                    kinds.add(check_name.value)
    kinds |= {kind.name for kind in CHARACTER_KINDS} | {"mojibake"}  # named by a variable
    assert kinds == set(REMEDIES)
    found = audit({"q": {"a": 1}}, {"q": {"a": 1.0, "b": 1.0}})
    assert {finding.check: finding.remedy for finding in found.problems} == {
        "ties": REMEDIES["ties"],
        "few queries": REMEDIES["few queries"],
        "depth": "create a run of depth 100, or report ndcg@2, recall@2, precision@2",
    }


def test_audit_report_lists_runs_without_problem():
    tied = {q: dict.fromkeys("abcd", 1.0) for q in QRELS}
    lines = render_lines(audit(QRELS, {"one": RUN, "two": tied}, checks=["ties"]))
    assert "ties  no two documents of a query have the same score" in lines
    three_runs = {"one": RUN, "two": {**RUN, "q0": {"a": 1.0}}, "three": {**RUN, "q0": {"b": 1.0}}}
    lines = render_lines(audit(QRELS, three_runs, checks=["ties", "repeated-documents"]))
    assert "repeated documents, ties  no problem in one, two, three" in lines
    assert report.summarise_audit(Audit([], {"a": "b", "c": "d"})) == "0 problems found, 2 checks skipped."


def render_lines(found):
    console = Console(width=100, record=True, file=io.StringIO())
    for part in render_report(report.build_report(found), 100)[0]:
        console.print(part)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_cli_audit_json_has_every_finding_and_no_nan(ragauge):
    done = ragauge("qrels.txt", "one.run", "--json")
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert set(found) == {"schema", "problem_count", "findings", "skipped", "notes", "runs"}
    assert set(found["findings"][0]) == {
        "subject",
        "check",
        "problem",
        "count",
        "message",
        "examples",
        "effect",
        "table",
        "data",
        "remedy",
    }
    grid = next(finding["table"] for finding in found["findings"] if finding["check"] == "conventions")
    assert grid["header"][0] == "convention"
    assert all(len(row) == len(grid["header"]) for row in grid["rows"])


def test_audit_rel_sets_the_minimum_relevant_grade(ragauge, folder):
    (folder / "graded.txt").write_text("q1 0 d1 2\nq1 0 d2 1\nq2 0 d1 1\nq2 0 d3 2\n")
    (folder / "graded.run").write_text("q1 Q0 d2 1 3 a\nq1 Q0 d1 2 2 a\nq2 Q0 d1 1 3 a\nq2 Q0 d3 2 2 a\n")
    done = ragauge("graded.txt", "graded.run", "-m", "mrr", "-l", "2", "--json")
    found = next(finding for finding in json.loads(done.stdout)["findings"] if finding["check"] == "conventions")
    assert found["table"]["header"] == ["convention", "mrr(rel=2)"]
    assert {row[1] for row in found["table"]["rows"]} == {0.5}
    assert "convention default, rel=2" in done.stderr


def test_cli_audit_strict_exits_with_1_on_problem(ragauge):
    ragauge("qrels.txt", "one.run", "--check", "ties", "--strict")
    ragauge("qrels.txt", "one.run", "--check", "expect", "--expect", "map=0.123456", "--strict", code=1)


def test_cli_audit_list_prints_checks_and_errors_have_hints(ragauge):
    done = ragauge("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(AUDIT_CHECKS)
    assert "no input given" in ragauge(code=2).stderr
    assert "did you mean `ties`?" in ragauge("qrels.txt", "one.run", "--check", "tise", code=2).stderr


def test_cli_audit_writes_markdown(ragauge, folder):
    ragauge("qrels.txt", "one.run", "-o", "audit.md", "--check", "conventions", "--check", "ties")
    page = (folder / "audit.md").read_text()
    assert page.startswith("# Audit\n\n0 problems found.\n\none.\n")
    assert "| convention | ndcg@10 |" in page
    assert "The presets are described in CONVENTIONS.md" in page
    assert "- 12 judged queries, 1 run, convention default" in page


def test_cli_audit_full_prints_tables_of_passed_checks(ragauge):
    short, full = (
        ragauge("qrels.txt", "one.run", "--check", "chance", *options).stdout for options in ([], ["--full"])
    )
    assert "share of the distance" in full
    assert len(full.splitlines()) > len(short.splitlines())


def test_audit_report_markup_in_data_is_escaped():
    finding = Finding(
        "[red]run[/red]",
        "ties",
        True,
        1,
        "a *bold* | claim",
        ["[link=x]q[/link]", "a\x1b[31mb"],
        "",
        FindingTable(["a|b"], [["[b]x[/b]"]]),
    )
    found = Audit([finding], {"check": "a `reason`"})
    text = "\n".join(render_lines(found))
    assert "[red]run[/red]" in text
    assert "[link=x]q[/link]" in text
    assert "\x1b" not in text
    page = format_results(found, "markdown")
    assert "a \\*bold\\* \\| claim" in page
    assert "\x1b" not in page


def test_table_of_finding_formats_missing_numbers_and_counts():
    grid = FindingTable(["what", "n", "score"], [["a", 3, 0.5], ["b", 4.0, float("nan")], ["c", None, 1.0]])
    assert table_of_finding(grid).texts() == [["a", "3", "0.5000"], ["b", "4", "-"], ["c", "-", "1.0000"]]
    with_formats = FindingTable(["what", "share"], [["a", 0.25], ["b", None]], ["name", "share"])
    assert table_of_finding(with_formats).texts() == [["a", "25.0%"], ["b", "-"]]


def test_audit_json_round_trips(tmp_path):
    found = audit(QRELS, {"one": RUN}, expect={"ndcg@10": "0.1234"})
    report_result(found, tmp_path / "audit.json")
    (restored,) = read_results(tmp_path / "audit.json")
    assert to_json_data(restored) == to_json_data(found)
    assert len(restored.problems) == len(found.problems) > 0


@pytest.mark.slow
def test_audit_large_random_run_is_not_better_than_chance():
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
    assert "is not better than random documents" in found.problems[0].message


def test_audit_files_accepts_dataset_without_run(tmp_path):
    found = audit_files(["synthetic:leaky(documents=200, queries=20)"])
    assert {finding.check for finding in found.problems} >= {"duplicates", "leaking field"}
    assert found.skipped["ties"] == "no run given"
    (tmp_path / "qrels.txt").write_text("".join(f"q{i} 0 d{j} 1\n" for i in range(20) for j in range(12)))
    (finding, *_) = audit_files(
        [str(tmp_path / "qrels.txt")], checks=["truncated-judgments"], measures=["recall@10"]
    ).findings
    assert "exactly 12 relevant documents" in finding.message


def test_audit_expect_reads_scientific_notation():
    qrels = {f"q{i}": {"a": 1} for i in range(20)}
    run = {query: {"b": 2.0, "a": 1.0} for query in qrels}
    found = audit(qrels, run, measures=["mrr"], expect={"mrr": "1e-3"}, checks=["expect"])
    assert found.findings[0].problem
    found = audit(qrels, run, measures=["mrr"], expect={"mrr": "5.0e-1"}, checks=["expect"])
    assert not found.findings[0].problem


def test_audit_repeats_changes_with_equal_mean_are_a_problem():
    qrels = {f"q{i}": {"a": 1} for i in range(20)}
    first_run = {f"q{i}": {"a": 2.0 if i % 2 else 1.0, "b": 1.5} for i in range(20)}
    second_run = {f"q{i}": {"a": 1.0 if i % 2 else 2.0, "b": 1.5} for i in range(20)}
    found = audit(qrels, {"x": first_run}, repeats={"x": [second_run]}, measures=["mrr"], checks=["trials"])
    (finding,) = found.problems
    assert finding.count == 20
    assert list(finding.examples) == [f"q{i}" for i in range(len(finding.examples))]


def test_audit_run_without_documents_is_a_problem():
    qrels = {f"q{i}": {"a": 1} for i in range(12)}
    data = Dataset("x", [Document("a", "text")], {q: q for q in qrels}, Judgments(qrels))
    empty = run(data, {"none": lambda q, k: []}).runs["none"]
    found = audit(qrels, {"none": empty}, measures=["ndcg@10", "precision@10"])
    assert "the run returned no document for any query" in [finding.message for finding in found.problems]


def test_audit_judgments_truncated_at_small_cap_are_a_problem():
    rng = random.Random(0)
    full = {f"q{i}": rng.randrange(1, 25) for i in range(100)}
    qrels = {query: {f"d{j}": 1 for j in range(min(6, n))} for query, n in full.items()}
    found = audit(qrels, checks=["truncated-judgments"], measures=["mrr"])
    assert any("capped" in finding.message for finding in found.problems)
    honest = {f"q{i}": {f"d{j}": 1 for j in range(min(6, 1 + int(rng.expovariate(0.9))))} for i in range(100)}
    assert not audit(honest, checks=["truncated-judgments"], measures=["mrr"]).problems
