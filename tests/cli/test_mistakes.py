"""Typical mistakes on the command line: one sentence, a hint that works, exit code 2, and no file written."""

from __future__ import annotations

import shlex

import pytest

from command import command_in

QRELS = "q1 0 a 1\nq1 0 b 0\nq2 0 c 1\n"
RUN = "q1 Q0 a 1 2.0 x\nq1 Q0 b 2 1.0 x\nq2 Q0 c 1 1.0 x\n"
FILES = {
    "qrels.txt": QRELS,
    "bm25.run": RUN,
    "dense.run": RUN.replace("2.0", "0.5"),
    "empty.txt": "",
    "score.run": "q1 Q0 a 1 abc x\n",
    "header.run": "query Q0 document rank score tag\n",
    "comma.run": "q1 Q0 a 1 0,9 x\n",
    "grade.txt": "q1 0 a one\n",
    "columns.csv": "query,doc,other\nq1,a,1\n",
    "corpus.jsonl": '{"id": "a", "text": "Cats sleep"}\n{"id": "b", "text": "Dogs run"}\n',
    "samples.jsonl": '{"id": "s1", "question": "Why?", "answer": "So.", "contexts": ["So."]}\n',
}


@pytest.fixture
def ragauge(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.csv").mkdir()
    return command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("generate", "unknown command `generate`", "list all with `ragauge --help`"),
        ("evalute qrels.txt bm25.run", "unknown command `evalute`", "did you mean `evaluate`?"),
        ("evaluate", "missing argument QRELS RUN...", "`ragauge evaluate qrels.txt bm25.run"),
        ("convert bm25.run", "missing argument OUT", "`ragauge convert bm25.run bm25.parquet`"),
        ("novelty corpus.jsonl", "missing option --known", "add `--known KB`"),
        ("evaluate qrels.txt bm25.run --josn", "unknown option --josn", "did you mean `--json`?"),
        (
            "evaluate qrels.txt bm25.run --nosuch",
            "unknown option --nosuch",
            "list all options with `ragauge evaluate --help`",
        ),
        ("evaluate qrels.txt bm25.run -k 10", "unknown option -k", "a cutoff is part of a measure: `-m ndcg@10`"),
        (
            "evaluate qrels.txt bm25.run --top-k 5",
            "unknown option --top-k",
            "a cutoff is part of a measure: `-m ndcg@10`",
        ),
        ("evaluate qrels.txt bm25.run --metric mrr", "unknown option --metric", "use `--measure`"),
        ("judge samples.jsonl --metrics faithfulness", "unknown option --metrics", "use `--measure`"),
        ("run pydocs -s bm25 --top-k 5", "unknown option --top-k", "use `-k`"),
        ("evaluate qrels.txt bm25.run -o folder.csv", "folder.csv: a folder with this name exists", "name of a file"),
        ("evaluate qrels.txt header.run", "header.run:1: the score must be a number", "remove the header line"),
        ("evaluate qrels.txt comma.run", "comma.run:1: the score must be a number", "write 0.9"),
        ("evaluate qrels.txt score.run", "score.run:1: the score must be a number", "check the order of the columns"),
        ("evaluate qrels.txt bm25.run --depth x", "--depth must be a whole number", "see `ragauge evaluate --help`"),
        ("evaluate qrels.txt bm25.run --rel x", "--rel must be a number", "see `ragauge evaluate --help`"),
        ("evaluate qrels.txt bm25.run --depth 0", "--depth must be at least 1, got 0", "use `--depth 1`"),
        ("evaluate qrels.txt bm25.run -m ndgc@10", "unknown measure `ndgc@10`", "did you mean `ndcg@10`?"),
        ("evaluate qrels.txt bm25.run -m ndcg@0", "at least 1, got 0", "use ndcg@10"),
        ("evaluate qrels.txt bm25.run -C trec9,tie=ranked", "unknown option `tie`", "did you mean `ties`?"),
        ("evaluate qrels.txt bm25.rnu", "bm25.rnu: no such file", "did you mean bm25.run?"),
        ("evaluate bm25.run qrels.txt", "bm25.run:1: expected 4 fields", "judgments come first, then runs"),
        ("evaluate qrels.txt empty.txt", "empty.txt: no rows", "a TREC run has"),
        ("evaluate qrels.txt empty", "empty: no run is in this folder", "a run folder has manifest.json"),
        ("evaluate qrels.txt", "qrels.txt: no run given", "qrels.txt bm25.run"),
        ("evaluate qrels.txt bm25.run bm25.run", "appears more than once", "NAME=FILE"),
        (
            "evaluate qrels.txt columns.csv",
            "there is no score among the columns query, doc, other",
            "query_id, doc_id, score",
        ),
        ("evaluate qrels.txt score.run", "score.run:1: the score must be a number, got `abc`", ""),
        ("evaluate grade.txt bm25.run", "grade.txt:1: the grade must be a number, got `one`", ""),
        ("evaluate qrels.txt bm25.run --format yaml", "unknown output format `yaml`", "choose one of html, json"),
        ("evaluate qrels.txt bm25.run --json --csv", "--json and --csv are mutually exclusive", "use one of --json"),
        ("fuse bm25.run dense.run --weights 1", "expected 2 weights, one per run, got 1", "`--weights 1,1`"),
        ("fuse bm25.run dense.run --method rff", "unknown fusion method `rff`", "did you mean `rrf`?"),
        ("fuse bm25.run dense.run -o x.foo", "x.foo: expected a file that ends in .run", "--format"),
        ("convert bm25.run x.foo", "x.foo: expected a file that ends in .run", "--format"),
        ("bench --store pinecone", "unknown store `pinecone`", "or pass your own class as `module:Class`"),
        ("bench --qps abc", "--qps must be numbers separated by commas, got `abc`", "use `--qps 1,2`"),
        ("bench -k 0", "-k must be whole numbers of at least 1, got 0", "use `-k 1,10`"),
        ("run pydocs -s 'dense(store=pinecone)' -o runs/x", "unknown store `pinecone`", "group `ragauge.stores`"),
        ("compare qrels.txt bm25.run dense.run --rounds 50", "--rounds must be between 100 and 1,000,000, got 50", ""),
        ("run pydocs -s bm25 -k 10 -m ndcg@100", "ndcg@100 needs 100 documents per query, but -k is 10", "`-k 100`"),
        ("gate qrels.txt bm25.run -r 'ndcg@10 > 40%'", "a percentage needs a change", "write `ndcg@10 > 0.4`"),
        ("stress --store pinecone --corpus corpus.jsonl", "unknown store `pinecone`", "`module:Class`"),
        ("run pydocs -s bm26", "unknown retriever `bm26`", "did you mean `bm25`?"),
        ("audit corpus.jsonl --check foo", "unknown check `foo`", "hoose one of expect"),
        ("judge samples.jsonl -m faithfull", "unknown answer measure `faithfull`", "did you mean `faithfulness`?"),
        ("judge samples.jsonl --token-price 1", "--token-price must be IN,OUT", "use `--token-price 0.15,0.6`"),
        ("novelty corpus.jsonl --known nofile", "unknown dataset `nofile`", "list all with `ragauge datasets`"),
        ("datasets pydcos", "unknown dataset `pydcos`", "did you mean `pydocs`?"),
        ("k-range qrels.txt bm25.run -k a", "-k must be integers separated by commas, got `a`", "`-k 1,3,5,10`"),
    ],
)
def test_cli_invalid_input_prints_one_line_error_with_hint(ragauge, line, message, hint):
    done = ragauge(*shlex.split(line), code=2)
    error, _, hint_line = done.stderr.partition("\n")
    assert error.startswith("error: ")
    assert message in error
    assert hint in hint_line
    assert "pgvector`?" not in hint_line
    assert done.stdout == ""


def test_cli_without_arguments_prints_help_once(ragauge):
    done = ragauge(code=2)
    assert (done.stdout + done.stderr).count("Usage: ragauge [OPTIONS] COMMAND [ARGS]...") == 1


WRITE_FILES = {
    "evaluate": "qrels.txt bm25.run",
    "stress": "--store memory --corpus corpus.jsonl",
    "tokenizers": "corpus.jsonl",
}
"""Commands that write files, with arguments."""
WRITE_A_FOLDER = {
    "judge": "samples.jsonl",
    "calibrate": "samples.jsonl",
    "novelty": "corpus.jsonl --known corpus.jsonl",
    "gain": "--before corpus.jsonl --add corpus.jsonl",
    "run": "synthetic:needles -s bm25",
    "demo": "--quick",
    "bench": "--quick",
}
"""Commands that also have a working folder, with arguments."""


@pytest.mark.parametrize(("command", "arguments"), (WRITE_FILES | WRITE_A_FOLDER).items())
def test_out_unknown_extension_lists_supported_extensions(ragauge, tmp_path, command, arguments):
    error = ragauge(command, *arguments.split(), "-o", "out.xyz", code=2).stderr
    assert "error: out.xyz: expected a file that ends in .html, .json, .md, .tex, .csv, got `.xyz`" in error
    assert "hint: use `-o out.html`" in error
    assert not (tmp_path / "out.xyz").exists()


@pytest.mark.parametrize(("command", "arguments"), WRITE_FILES.items())
def test_out_folder_is_rejected_by_commands_without_working_folder(ragauge, tmp_path, command, arguments):
    for folder in ("made/", "made", "empty"):
        error = ragauge(command, *arguments.split(), "-o", folder, code=2).stderr
        assert f"error: {folder}: expected a file that ends in .html" in error
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("command", "arguments"), WRITE_A_FOLDER.items())
def test_out_accepts_one_working_folder(ragauge, command, arguments):
    error = ragauge(command, *arguments.split(), "-o", "one", "-o", "two/", "-o", "report.html", code=2).stderr
    assert "error: -o accepts one folder, got one and two/" in error


@pytest.mark.parametrize(("command", "arguments"), (WRITE_FILES | WRITE_A_FOLDER).items())
def test_out_dash_needs_a_format(ragauge, command, arguments):
    error = ragauge(command, *arguments.split(), "-o", "-", code=2).stderr
    assert "error: no format given for standard output" in error


def test_out_writes_several_files_and_standard_output(ragauge, tmp_path):
    done = ragauge("evaluate", "qrels.txt", "bm25.run", "-o", "a.md", "-o", "b.csv")
    assert "note: wrote a.md\nnote: wrote b.csv" in done.stderr
    assert (tmp_path / "a.md").read_text().startswith("# ")
    assert (tmp_path / "b.csv").read_text().startswith("run,measure,mean")
    printed = ragauge("evaluate", "qrels.txt", "bm25.run", "-o", "-", "--format", "csv").stdout
    assert printed == (tmp_path / "b.csv").read_text()


@pytest.mark.parametrize(
    "measure_options", [["-m", "ndcg@10", "-m", "map(rel=2)"], ["-m", "nDCG@10,AP(rel=2)"], ["-m", "nDCG@10 AP(rel=2)"]]
)
@pytest.mark.parametrize(
    ("command", "option"), [("evaluate", "--csv"), ("compare", "--csv"), ("report", "--format=csv")]
)
def test_measure_option_accepts_repetition_or_list(ragauge, command, option, measure_options):
    done = ragauge(command, "qrels.txt", "bm25.run", "dense.run", *measure_options, option)
    assert "ndcg@10" in done.stdout
    assert "map(rel=2)" in done.stdout


def test_run_writes_its_folder_and_files(ragauge, tmp_path):
    data = "synthetic:needles(documents=30, queries=6)"
    done = ragauge("run", data, "-s", "bm25", "-m", "nDCG@5 AP", "-o", "runs/x", "-o", "r.json", "-o", "s.csv", "--csv")
    assert (tmp_path / "runs/x/queries.parquet").exists()
    assert (tmp_path / "s.csv").read_text() == done.stdout
    assert "bm25,ndcg@5," in done.stdout
    assert "bm25,map," in done.stdout
    assert (tmp_path / "r.json").exists()


@pytest.mark.parametrize("command", ["k-range", "validate"])
def test_command_with_a_table_writes_json_and_csv(ragauge, tmp_path, command):
    printed = ragauge(command, "qrels.txt", "bm25.run", "-o", "t.csv", "-o", "t.json", "--csv").stdout
    assert (tmp_path / "t.csv").read_text() == printed
    assert (tmp_path / "t.json").exists()
    assert (
        "t/: expected a file that ends in .json, .csv"
        in ragauge(command, "qrels.txt", "bm25.run", "-o", "t/", code=2).stderr
    )
