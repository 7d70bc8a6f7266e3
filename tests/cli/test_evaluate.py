"""`ragauge evaluate`, `convert`, `validate` and `measures`: output, notes, formats, errors and exit codes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest

from command import command_in
from ragauge.files.serialization import read_record, to_json

QRELS = "q1 0 a 2\nq1 0 b 1\nq2 0 c 1\n"
RUN = "q1 Q0 a 1 3 first\nq1 Q0 x 2 2 first\nq2 Q0 x 1 2 first\nq2 Q0 c 2 1 first\n"
OTHER_RUN = "q1 Q0 x 1 3 other\nq2 Q0 c 1 2 other\n"


@pytest.fixture
def ragauge(tmp_path):
    """Run the command in a folder with judgments and two runs."""
    (tmp_path / "qrels.txt").write_text(QRELS)
    (tmp_path / "first.run").write_text(RUN)
    (tmp_path / "other.run").write_text(OTHER_RUN)

    return command_in(tmp_path)


def test_evaluate_json_has_documented_structure(ragauge):
    done = ragauge("evaluate", "qrels.txt", "first.run", "other.run", "-m", "mrr", "-m", "P_1", "--json")
    data = json.loads(done.stdout)
    assert (data.pop("schema"), len(data.pop("notes")), set(data.pop("provenance"))) == (
        "ragauge-scores/1",
        1,
        {"made", "ragauge"},
    )
    assert data == {
        "convention": "default",
        "runs": {
            "first": {
                "mrr": {"mean": 0.75, "n": 2, "unscored": 0},
                "precision@1": {"mean": 0.5, "n": 2, "unscored": 0},
            },
            "other": {
                "mrr": {"mean": 0.5, "n": 2, "unscored": 0},
                "precision@1": {"mean": 0.5, "n": 2, "unscored": 0},
            },
        },
    }


def test_evaluate_json_unscored_query_has_reason_and_null_mean(ragauge, tmp_path):
    (tmp_path / "none.txt").write_text("q1 0 a 0\n")
    done = ragauge("evaluate", "none.txt", "first.run", "-m", "map", "-C", "none=skip", "--json", "-q")
    assert json.loads(done.stdout)["runs"]["first"]["map"] == {
        "mean": None,
        "n": 0,
        "unscored": 1,
        "reasons": {"q1": "no document is relevant"},
    }


def test_evaluate_csv_has_row_per_measure_or_query(ragauge):
    rows = list(csv.reader(io.StringIO(ragauge("evaluate", "qrels.txt", "first.run", "-m", "mrr", "--csv").stdout)))
    assert rows == [["run", "measure", "mean", "n", "unscored"], ["first", "mrr", "0.75", "2", "0"]]
    rows = list(
        csv.reader(io.StringIO(ragauge("evaluate", "qrels.txt", "first.run", "-m", "mrr", "--csv", "-q").stdout))
    )
    assert rows[1:] == [["first", "q1", "mrr", "1.0", "false"], ["first", "q2", "mrr", "0.5", "false"]]


def test_evaluate_prints_table_and_notes(ragauge):
    done = ragauge("evaluate", "qrels.txt", "first.run", "other.run", "-m", "mrr", "-m", "recall@5")
    assert done.stdout.splitlines() == [
        "run       mrr  recall@5  n",
        "first  0.7500    0.7500  2",
        "other  0.5000    0.5000  2",
    ]
    notes = [
        "note: 2 judged queries, convention default",
        "note: grades go up to 2, and mrr, recall@5 count grade 1 as relevant; `--rel 2` counts from grade 2",
        "note: first: at most 2 documents per query, so recall@5 is computed at depth 2",
        "note: other: at most 1 document per query, so recall@5 is computed at depth 1",
    ]
    assert done.stderr.splitlines() == [*notes[:3], "note: 1 more note: add --verbose"]
    verbose = ragauge("evaluate", "qrels.txt", "first.run", "other.run", "-m", "mrr", "-m", "recall@5", "--verbose")
    assert verbose.stderr.splitlines() == notes


def test_evaluate_prints_convention_and_its_options(ragauge):
    done = ragauge("evaluate", "qrels.txt", "first.run", "-m", "ndcg@5", "-C", "rig")
    assert "ndcg(gain=exp)@5" in done.stdout
    assert "convention rig (gain=exp, min_cutoff=0, none=recall-one, duplicates=count, ties=ranked)" in done.stderr
    done = ragauge("evaluate", "qrels.txt", "first.run", "-m", "map", "-C", "ties=ranked", "-l", "2", "-M", "1")
    assert "map(rel=2)" in done.stdout
    assert "convention default, ties=ranked, rel=2.0, depth=1" in done.stderr


def test_evaluate_writes_every_format_and_reads_its_json_again(ragauge, tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    names = ["s.html", "s.json", "s.csv", "s.md", "s.tex"]
    files = [word for name in names for word in ("-o", name)]
    arguments = ["evaluate", "qrels.txt", "first.run", "other.run", "-m", "mrr", "-q"]
    assert ragauge(*arguments, *files).stderr.splitlines()[-5:] == [f"note: wrote {name}" for name in names]
    page, data, rows, markdown, latex = ((tmp_path / name).read_text() for name in names)
    assert 'id="chart-scores-means"' in page
    assert to_json(read_record(tmp_path / "s.json")) == data
    assert rows.splitlines()[1] == "first,q1,mrr,1.0,false"
    assert "| first | **0.7500** | 2 |" in markdown
    assert r"\textbf{0.7500}" in latex
    assert ragauge("report", "s.json", "--format", "csv").stdout == rows
    refused = ragauge(*arguments, "--format", "trec_eval", "-o", "s.txt", code=2)
    assert "--format trec_eval is printed and has no file" in refused.stderr


def test_evaluate_table_output_imports_no_page_modules(ragauge, tmp_path):
    ragauge("--version")  # the fixture writes the input files
    code = (
        "import sys; from ragauge.cli.app import load_command\n"
        "load_command('evaluate').main(['qrels.txt', 'first.run'], standalone_mode=False)\n"
        "print(sorted({'altair', 'jinja2', 'ragauge.reports.registry', 'ragauge.output.page'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"


def test_evaluate_reads_one_file_from_standard_input(ragauge):
    done = ragauge("evaluate", "qrels.txt", "-", "-m", "mrr", "--json", stdin=RUN)
    assert json.loads(done.stdout)["runs"]["stdin"]["mrr"]["mean"] == 0.75
    assert "standard input can be read only once" in ragauge("evaluate", "-", "-", code=2, stdin=RUN).stderr


def test_evaluate_duplicate_file_names_include_folder(ragauge, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.txt").write_text(RUN)
    done = ragauge("evaluate", "qrels.txt", "one/run.txt", "two/run.txt", "-m", "mrr", "--json")
    assert list(json.loads(done.stdout)["runs"]) == ["one/run", "two/run"]


def test_evaluate_unknown_measure_prints_error_and_hint(ragauge):
    done = ragauge("evaluate", "qrels.txt", "first.run", "-m", "ndgc@10", code=2)
    assert done.stdout == ""
    assert done.stderr == (
        "error: unknown measure `ndgc@10`\nhint: did you mean `ndcg@10`? List all with `ragauge measures`\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "absent.txt", "first.run"), "error: absent.txt: no such file"),
        (("evaluate", "qrels.txt", "first.run", "-C", "trek9"), "error: unknown convention `trek9`"),
        (
            ("evaluate", "qrels.txt", "first.run", "-C", "default,ties"),
            "error: an option of a convention must be OPTION=VALUE, got `ties`",
        ),
        (("evaluate", "qrels.txt", "first.run", "-C", "depth=deep"), "error: `depth` must be a number, got `deep`"),
        (("evaluate", "qrels.txt", "first.run", "--format", "xml"), "error: unknown output format `xml`"),
        (("evaluate", "first.run", "qrels.txt"), "error: first.run:1: expected 4 fields"),
        (("convert", "first.run", "out.rig", "--format", "rigg"), "error: unknown format `rigg`"),
        (("measures", "nothing"), "error: unknown measure `nothing`"),
    ],
)
def test_cli_invalid_input_prints_one_line_error(ragauge, arguments, message):
    assert ragauge(*arguments, code=2).stderr.splitlines()[0].startswith(message)


def test_evaluate_debug_prints_traceback(tmp_path):
    code = "from ragauge.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "evaluate", "no", "no", "--debug"], capture_output=True, text=True, check=False
    )
    assert "Traceback" in done.stderr


def test_measures_closed_pipe_prints_no_traceback(ragauge, tmp_path):
    command = f"{sys.executable} -c 'from ragauge.cli import main; main()' measures | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("measure")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_convert_chooses_format_by_extension_and_keeps_scores(ragauge, tmp_path):
    for name in ("run.parquet", "run.csv", "run.jsonl", "run.json", "run.tsv.gz", "run.trec.zst"):
        ragauge("convert", "first.run", name)
        done = ragauge("evaluate", "qrels.txt", name, "-m", "mrr", "--json")
        assert json.loads(done.stdout)["runs"]["run"]["mrr"]["mean"] == 0.75, name
    for name in ("q.parquet", "q.csv", "q.json", "folder/", "q.tsv"):
        ragauge("convert", "qrels.txt", name)
        done = ragauge("evaluate", name, "first.run", "-m", "num_rel", "--json")
        assert json.loads(done.stdout)["runs"]["first"]["num_rel"]["mean"] == 3, name
    ragauge("convert", "qrels.txt", "q.jsonl", "--format", "rig")
    assert json.loads((tmp_path / "q.jsonl").read_text().splitlines()[0])["relevant_docs"] == {"a": 2, "b": 1}
    assert ragauge("convert", "q.csv", "-", "--format", "trec").stdout == QRELS


def test_validate_lists_problems_and_strict_exits_with_1(ragauge, tmp_path):
    (tmp_path / "bad.txt").write_text("q1 0 a 1\nq1 0 a 1\nq1 0 b 0\nq1 0 b 1\nq3 0 zz 0\n")
    (tmp_path / "bad.run").write_text("q1 Q0 a 1 2 t\nq1 Q0 x 2 2 t\nq1 Q0 a 3 1 t\nq9 Q0 x 1 1 t\n")
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a"}\n{"_id": "b"}\n')
    done = ragauge("validate", "bad.txt", "bad.run", "--corpus", "corpus.jsonl", "--json")
    problem_counts = {(f["subject"], f["what"]): f["count"] for f in json.loads(done.stdout) if f["problem"]}
    assert problem_counts == {
        ("bad.txt", "duplicate rows"): 1,
        ("bad.txt", "conflicting grades"): 1,
        ("bad.txt", "no relevant"): 1,
        ("bad.txt", "orphan ids"): 1,
        ("bad.run", "missing queries"): 1,
        ("bad.run", "unjudged queries"): 1,
        ("bad.run", "duplicate documents"): 1,
        ("bad.run", "ties"): 1,
        ("bad.run", "orphan ids"): 2,
    }
    ragauge("validate", "bad.txt", "bad.run", "--strict", code=1)
    clean = ragauge("validate", "qrels.txt", "first.run", "--strict")
    assert clean.stderr == "note: 0 problems found\n"
    assert "grades: 1: 2, 2: 1" in clean.stdout


def test_validate_unreadable_file_is_reported_and_others_are_read(ragauge, tmp_path):
    (tmp_path / "nan.run").write_text("q1 Q0 a 1 nan t\n")
    done = ragauge("validate", "qrels.txt", "nan.run", "first.run", "--strict", code=1)
    assert "nan.run:1: the score must be a number, got `nan`" in done.stdout
    assert "queries: 2, rows: 4" in done.stdout


def test_validate_cacm_counts_orphan_ids(shared, tmp_path):
    """CACM's raw judgments have 55 ids without the leading zero of its document ids; the test removes it again."""
    from ragauge.evaluation import validation

    folder = shared("cacm/beir")
    assert not [f for f in validation.validate_files(str(folder), corpus=str(folder)) if f.check == "orphan ids"]
    lines = (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]
    raw = [line.replace("CACM-0", "CACM-") for line in lines]
    n_shortened = sum("CACM-0" in line for line in lines)
    (tmp_path / "raw.tsv").write_text("\n".join(raw))
    findings = validation.validate_files(str(tmp_path / "raw.tsv"), corpus=str(folder))
    assert [f.count for f in findings if f.check == "orphan ids"] == [n_shortened]
    assert n_shortened == 55


def test_measures_prints_list_and_details(ragauge):
    assert "ndcg[@k]" in ragauge("measures").stdout
    text = ragauge("measures", "nDCG@10").stdout
    for part in ("ndcg[@k]", "Formula:", "Rule:", "Paper:", "options:", "gain=linear", "also known as:", "example:"):
        assert part in text
    assert {"name", "cutoff", "options", "aliases"} <= json.loads(ragauge("measures", "--json").stdout)[0].keys()


def test_cli_version_and_help_fit_80_columns(ragauge):
    import ragauge as package

    assert ragauge("--version").stdout == f"ragauge {package.__version__}\n"
    for command in ("evaluate", "validate", "convert", "measures"):
        assert command in ragauge("--help").stdout
        assert max(map(len, ragauge(command, "--help").stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["run", "synthetic:needles", "-s", "bm25", "--repeats", "100000000000000000000"], "repeats"),
        (["bench", "clustered", "--store", "exact", "--repeats", "100000000000000000000"], "repeats"),
        (["calibrate", "labelled.jsonl", "--replicates", "2147483648"], "replicates"),
        (["stress", "--store", "memory", "--corpus", "synthetic:needles", "--kills", "2147483648"], "kills"),
        (["run", "synthetic:needles", "-s", "bm25", "--workers", "2147483648"], "workers"),
    ],
)
def test_cli_count_too_large_prints_error(tmp_path, arguments, name):
    rows = [{"question": "q", "answer": f"a{n}", "contexts": ["c"], "labels": {"faithfulness": n}} for n in (0, 1)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command_in(tmp_path)(*arguments, code=2)
    assert f"{name} must be " in done.stderr


def test_evaluate_accepts_run_names_with_spaces_and_parentheses(ragauge, tmp_path):
    done = ragauge("evaluate", "qrels.txt", "TAS-B (ours)=first.run", "bm25(k1=0.9)=other.run", "-m", "mrr,recall@2")
    assert [line.rsplit(maxsplit=3)[0] for line in done.stdout.splitlines()[1:]] == ["TAS-B (ours)", "bm25(k1=0.9)"]
    assert done.stdout.split()[1:3] == ["mrr", "recall@2"]


def test_run_accepts_system_names_with_spaces_and_parentheses(ragauge):
    data = "synthetic:needles(documents=30, queries=6)"
    done = ragauge("run", data, "-s", "TAS-B (ours)=bm25", "-s", "bm25(k1=1.2)", "-m", "mrr@5", "-o", "named")
    table = done.stdout.partition("Systems\n")[2].splitlines()
    assert [line.split("  ")[0] for line in table[1:3]] == ["TAS-B (ours)", "bm25(k1=1.2)"]
