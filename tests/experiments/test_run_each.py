"""One experiment over several datasets: one folder each, a joint table, and failures that do not stop the others."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import shlex
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy.stats import rankdata
from typer.testing import CliRunner

import ragauge
from ragauge.cli.app import build_app
from ragauge.comparison.results import compute_mean_ranks, compute_ranks
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments.experiment_file import read_experiment
from ragauge.experiments.run import datasets_by_name, run, run_each
from ragauge.reports import experiment_set
from ragauge.reports.overviews import overview
from ragauge.runs.results import ExperimentSet
from ragauge.systems.builder import SystemBuilder
from waiting import PATIENCE_S, count_lines, wait_while_running

SMALL = "synthetic:needles(documents=60, queries=12)"
HOPS = "synthetic:graph(documents=60, queries=12)"
OTHER = "synthetic:duplicates(documents=80, queries=20)"
TOML = f"""
dataset = ["{SMALL}", "nothere", "{OTHER}"]
measures = ["mrr", "recall@5"]
baseline = "words"

[systems.words]
kind = "bm25"

[systems.short]
kind = "bm25"
b = 0.0

[systems.flat]
kind = "bm25"
k1 = 0.0
"""
FOLDERS = {SMALL: "synthetic_needles_documents=60_queries=12", OTHER: "synthetic_duplicates_documents=80_queries=20"}


def run_cli(*arguments, cwd):
    """Run a command in this process, where all modules are loaded; errors are raised."""
    with contextlib.chdir(cwd):
        result = CliRunner().invoke(build_app(), list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def make_dataset(name, n_found, n=6):
    """Build a dataset of n queries; `found_by_word` finds the relevant document of the first `n_found` ones."""
    documents = [Document(f"d{i}", f"word{i}") for i in range(n)]
    queries = {f"q{i}": f"word{i}" for i in range(n)}
    grades = {f"q{i}": {f"d{i if i < n_found else (i + 1) % n}": 1} for i in range(n)}
    return Dataset(name, documents, queries, Judgments(grades))


def found_by_word(query, k):
    return [f"d{query.removeprefix('word')}"]


def nothing_found(query, k):
    return []


# Python function


def test_run_each_returns_one_experiment_per_dataset(tmp_path):
    study = run_each(
        [make_dataset("one", 6), make_dataset("two", 3)],
        {"mine": found_by_word, "none": nothing_found},
        measures=["recall@1"],
        baseline="none",
        out=tmp_path,
    )
    assert isinstance(study, ExperimentSet)
    means = {
        name: {system: s.means["recall@1"] for system, s in e.scores.items()} for name, e in study.experiments.items()
    }
    assert means == {"one": {"mine": 1.0, "none": 0.0}, "two": {"mine": 0.5, "none": 0.0}}
    assert study.experiments["two"].differences["mine"].wins == 3
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}
    scores = ragauge.evaluate(tmp_path / "two", tmp_path / "two" / "mine", ["recall@1"])
    assert scores.means["recall@1"] == 0.5


def test_run_each_scores_and_overview_are_means_over_trials():
    calls = Counter()

    def first_time_right(query, k):
        calls[query] += 1
        return found_by_word(query, k) if calls[query] == 1 else []

    study = run_each([make_dataset("one", 6)], {"mine": first_time_right}, measures=["recall@1"], repeats=4, warmup=0)
    assert study.experiments["one"].scores["mine"].means == {"recall@1": 0.25}
    assert overview(study.experiments["one"]).entries["mine"].means["recall@1"].value == 0.25


def test_run_each_unloadable_dataset_fails_alone_when_allowed(tmp_path):
    datasets = {"good": make_dataset("one", 6), "bad": "nothere"}
    with pytest.raises(UnknownName, match=r"^bad: unknown dataset `nothere`"):
        run_each(datasets, {"mine": found_by_word})
    study = run_each(datasets, {"mine": found_by_word}, out=tmp_path, allow_failures=True)
    assert "bad: not run: bad: unknown dataset `nothere`" in repr(study)
    assert list(study.experiments) == ["good"]
    assert study.failures["bad"].message == "bad: unknown dataset `nothere`"
    with pytest.raises(UnknownName, match=r"^nothere: unknown dataset `nothere`"):
        run_each(["nothere", "nowhere"], {"mine": found_by_word})


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ([], "no dataset given"),
        (["pydocs", "pydocs"], "dataset `pydocs` appears more than once"),
        (["a/x", "b/x"], "dataset `x` appears more than once"),
        ({"a b": "pydocs", "a/b": "pydocs"}, "would share a folder"),
        (["report.md"], "a dataset cannot be named `report.md`"),
    ],
)
def test_datasets_by_name_ambiguous_names_raise_error(datasets, message):
    with pytest.raises(BadInput, match=message):
        datasets_by_name(datasets)


def test_datasets_by_name_uses_dataset_and_folder_names(tmp_path):
    (tmp_path / "mine" / "beir").mkdir(parents=True)
    datasets = ["pydocs", SMALL, tmp_path / "mine" / "beir", make_dataset("one", 6)]
    assert list(datasets_by_name(datasets)) == ["pydocs", SMALL, "beir", "one"]
    assert list(datasets_by_name("pydocs")) == ["pydocs"]


# Measures that a dataset does not support


def test_run_unsupported_measures_are_omitted_before_any_query():
    calls = []

    def search(query, k):
        calls.append(query)
        return found_by_word(query, k)

    result = run(make_dataset("one", 6), {"mine": search}, measures=["dr@5", "mrr", "alpha_ndcg@5"], warmup=0)
    assert result.measures == ["mrr"]
    assert result.notes[:2] == [
        "dr@5 is left out: dr needs a target map from documents to the answers that they contain",
        "alpha_ndcg@5 is left out: this measure needs subtopic judgments (topic subtopic document grade)",
    ]
    calls.clear()
    with pytest.raises(MissingEvidence, match=r"^dr needs a target map"):
        run(make_dataset("one", 6), {"mine": search}, measures=["dr@5"])
    assert calls == []


@pytest.mark.parametrize("convention", ["default", "trec10", "sklearn", "rig"])
def test_run_supported_measures_are_kept_under_every_convention(convention):
    result = run(make_dataset("one", 6), {"mine": found_by_word}, measures=["recall@5", "mrr"], convention=convention)
    assert len(result.measures) == 2
    assert not any("left out" in note for note in result.notes)


def test_run_folder_keeps_target_map(tmp_path):
    data = make_dataset("one", 6)
    targets = {f"d{i}": ["low" if i < 3 else "high"] for i in range(6)}
    grades = {query: {f"d{i}": 1 for i in range(6)} for query in data.queries}
    with_targets = Dataset("mapped", data.documents, data.queries, Judgments(grades, targets=targets))
    result = run(with_targets, {"mine": found_by_word}, measures=["dr@5", "recall@5"], out=tmp_path)
    assert result.scores["mine"].means == {"dr@5": 0.5, "recall@5": pytest.approx(1 / 6)}
    later = ragauge.evaluate(tmp_path, tmp_path / "mine", ["dr@5"])
    assert later.means["dr@5"] == 0.5
    assert overview([tmp_path]).entries["mine"].means["dr@5"].value == 0.5
    assert ragauge.read_judgments(tmp_path).targets == targets
    run(make_dataset("one", 6), {"mine": found_by_word}, out=tmp_path, fresh=True)
    assert not (tmp_path / "targets.json").exists()


# Joint table


def column_titles(table):
    return [column.title for column in table.columns]


def make_overviews(**scores_by_dataset):
    """Build an overview per dataset from `{system: recall@1 of each query}`."""
    overviews = {}
    for name, systems in scores_by_dataset.items():
        n = len(next(iter(systems.values())))
        data = make_dataset(name, n, n)
        functions = {
            system: lambda query, k, successes=successes: (
                found_by_word(query, k) if successes[int(query.removeprefix("word"))] else []
            )
            for system, successes in systems.items()
        }
        overviews[name] = overview(
            run(data, functions, measures=["recall@1"], baseline=next(iter(systems))), audited=False
        )
    return overviews


def test_compute_mean_ranks_matches_scipy_rankdata():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.integers(0, 4, 5).tolist()
        assert compute_ranks(values, lower=True) == rankdata(values).tolist()
        assert compute_ranks(values, lower=False) == rankdata([-value for value in values]).tolist()
    overviews = make_overviews(
        one={"a": [1, 1, 0, 0], "b": [1, 0, 0, 0], "c": [1, 1, 1, 1]},
        two={"a": [1, 1, 0, 0], "b": [0, 1, 0, 1], "c": [0, 0, 0, 0]},
    )
    # Computed by hand: the order is c, a, b in `one`; in `two`, a and b share ranks 1 and 2.
    assert compute_mean_ranks(overviews, "recall@1") == {"a": 1.75, "b": 2.25, "c": 2.0}
    result = experiment_set.build_measure_table(overviews, "recall@1")
    assert column_titles(result) == ["recall@1", "one", "two", "mean rank"]
    assert result.texts() == [
        ["a", "0.5000", "0.5000", "1.75"],
        ["b", "0.2500", "0.5000", "2.25"],
        ["c", "1.0000", "0.0000", "2.00"],
    ]
    best = {(i, j) for i, row in enumerate(result.cells()) for j, cell in enumerate(row) if cell.best}
    assert best == {(2, 1), (0, 2), (1, 2), (0, 3)}
    assert experiment_set.summarise_experiments(overviews) == (
        "a has the best mean rank by recall@1, 1.75; it is first on 1 of 2 datasets. "
        "None of 4 differences from a is significant."
    )
    right, wrong = [1] * 30, [0] * 25 + [1] * 5
    significant = make_overviews(one={"a": wrong, "b": right}, two={"a": wrong, "b": wrong})
    assert experiment_set.summarise_experiments(significant) == (
        "b has the best mean rank by recall@1, 1.25; it is first on 1 of 2 datasets. "
        "1 of 2 differences from a is significant."
    )


def test_measure_table_missing_system_has_dash_and_no_rank():
    overviews = make_overviews(one={"a": [1, 1], "b": [1, 0]}, two={"a": [1, 0]}, three={"a": [0, 0], "b": [0, 1]})
    result = experiment_set.build_measure_table(overviews, "recall@1")
    assert result.texts() == [["a", "1.0000", "0.5000", "0.0000", "1.50"], ["b", "0.5000", "-", "0.5000", "1.50"]]
    assert compute_mean_ranks({"one": overviews["one"], "two": overviews["two"]}, "recall@1") == {}
    without_common_system = make_overviews(one={"a": [1, 1]}, two={"b": [1, 0]})
    assert compute_mean_ranks(without_common_system, "recall@1") == {}
    assert column_titles(experiment_set.build_measure_table(without_common_system, "recall@1")) == [
        "recall@1",
        "one",
        "two",
    ]


def test_measure_table_stars_match_compare():
    right, wrong = [1] * 30, [0] * 25 + [1] * 5
    overviews = make_overviews(one={"base": wrong, "far": right, "same": wrong})
    row = ragauge.compare(
        {name: overviews["one"].entries[name].scores[0] for name in ("base", "far", "same")}, "base"
    ).find("far")
    assert row.stars == "***"
    result = experiment_set.build_measure_table(overviews, "recall@1")
    assert [cells[1] for cells in result.texts()] == ["0.1667", "1.0000 ***", "0.1667"]


def test_list_measures_puts_measures_of_all_datasets_first():
    plain = run(make_dataset("plain", 6), {"mine": found_by_word}, measures=["dr@5", "recall@5", "dr@1", "mrr"])
    data = make_dataset("mapped", 6)
    mapped = Dataset("mapped", data.documents, data.queries, data.judgments.with_targets({"d0": ["x"]}))
    mapped_run = run(mapped, {"mine": found_by_word}, measures=["dr@5", "recall@5", "dr@1", "mrr"])
    overviews = {"plain": overview(plain, audited=False), "mapped": overview(mapped_run, audited=False)}
    assert experiment_set.list_measures(overviews) == ["recall@5", "dr@5", "dr@1", "mrr"]
    assert experiment_set.build_measure_table(overviews, "dr@5").texts() == [["mine", "-", "1.0000"]]


def test_measure_table_narrow_width_drops_last_datasets():
    overviews = make_overviews(**{f"a-dataset-with-a-long-name-{i}": {"a": [1, 0], "b": [1, 1]} for i in range(5)})
    table, dropped = experiment_set.build_measure_table(overviews, "recall@1").fit(80)
    assert column_titles(table) == ["recall@1", *list(overviews)[:2], "mean rank"]
    assert sorted(dropped) == list(overviews)[2:]


# Command line


@pytest.fixture(scope="module")
def study_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("each")
    (folder / "study.toml").write_text(TOML)
    return folder, run_cli("run", "study.toml", cwd=folder)


def test_cli_run_several_datasets_writes_folder_for_each_and_one_table(study_run):
    study_folder, result = study_run
    out = study_folder / "runs" / "study"
    assert {path.name for path in out.iterdir()} == {"report.md", "report.html", "summary.csv", *FOLDERS.values()}
    for folder in FOLDERS.values():
        assert {"report.html", "report.md", "summary.csv", "scores.csv", "words", "short", "flat"} <= {
            path.name for path in (out / folder).iterdir()
        }
    lines = [line.split() for line in result.stdout.splitlines()]
    headers = [study_folder for study_folder, line in enumerate(lines) if line[-2:] == ["mean", "rank"]]
    assert [lines[study_folder][:3] for study_folder in headers] == [
        ["mrr", "synthetic:needles", "synthetic:duplicates"],
        ["recall@5", "synthetic:needles", "synthetic:duplicates"],
    ]
    for name, folder in FOLDERS.items():
        expected = ragauge.evaluate(out / folder, out / folder / "flat", ["mrr"]).means["mrr"]
        column = 1 + list(FOLDERS).index(name)
        cells = [word for word in lines[headers[0] + 3] if not set(word) <= {"*"}]
        assert cells[0] == "flat"
        assert cells[column] == f"{expected:.4f}"


def test_cli_run_unknown_dataset_prints_error_last_and_runs_others(study_run):
    _, result = study_run
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: nothere: unknown dataset `nothere`")
    assert "Traceback" not in result.stderr


def test_cli_run_summary_csv_has_every_difference_and_rank(study_run):
    study_folder, _ = study_run
    rows = list(csv.DictReader((study_folder / "runs" / "study" / "summary.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3 * 2
    for folder, name in ((folder, name) for name, folder in FOLDERS.items()):
        result = ragauge.overview([study_folder / "runs" / "study" / folder], audited=False)
        for row in (row for row in rows if row["dataset"] == name):
            mean = result.entries[row["system"]].means[row["measure"]]
            assert (float(row["value"]), int(row["n"])) == (mean.value, mean.n)
            difference = result.difference(row["system"], row["measure"])
            assert (row["difference"] == "") is (row["system"] == "words")
            if difference is not None:
                assert float(row["difference"]) == difference.difference
                assert math.isclose(float(row["p_corrected"]), difference.p_corrected)
        for measure in ("mrr", "recall@5"):
            measure_rows = [row for row in rows if (row["dataset"], row["measure"]) == (name, measure)]
            expected = rankdata([-float(measure_row["value"]) for measure_row in measure_rows]).tolist()
            assert [float(measure_row["rank"]) for measure_row in measure_rows] == expected


def test_cli_run_markdown_report_links_to_datasets(study_run):
    study_folder, _ = study_run
    text = (study_folder / "runs" / "study" / "report.md").read_text()
    for name, folder in FOLDERS.items():
        assert f"| [{name}]({folder}/report.md) |" in text
    assert "| nothere | failed: unknown dataset" in text
    assert "mean rank" in (study_folder / "runs" / "study" / "report.html").read_text()


def test_cli_run_again_reuses_results_and_json_lists_all(study_run):
    study_folder, _ = study_run
    result = run_cli("run", "study.toml", "--json", cwd=study_folder)
    data = json.loads(result.stdout)
    assert data["schema"] == "ragauge-experiments/1"
    assert list(data["datasets"]) == list(FOLDERS)
    assert list(data["failures"]) == ["nothere"]
    reused = [line.partition(": reused; made ")[0] for line in result.stderr.splitlines() if ": reused; made " in line]
    names = sorted(name for line in reused for name in line.removeprefix("note: ").split(", "))
    assert names == sorted(2 * ["words", "short", "flat"])


def test_cli_run_dataset_option_replaces_datasets_of_file(study_run):
    study_folder, _ = study_run
    result = run_cli("run", "study.toml", "-d", SMALL, "-o", "one", "-s", "words", cwd=study_folder)
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in (study_folder / "one").iterdir() if path.is_dir()} == {FOLDERS[SMALL]}
    with pytest.raises(BadInput, match="--dataset has no effect without an experiment file"):
        run_cli("run", "pydocs", "-d", SMALL, "-s", "bm25", cwd=study_folder)


def test_cli_run_missing_field_fails_only_for_affected_dataset(tmp_path):
    system = "pagerank(graph=field(field=entity))"
    (tmp_path / "names.toml").write_text(
        f'systems = ["bm25", "{system}"]\n[dataset]\na = "{SMALL}"\nb = "synthetic:nothing"\nc = "{HOPS}"\n'
    )
    result = run_cli("run", "names.toml", "-m", "mrr", cwd=tmp_path)
    assert result.exit_code == 2
    assert (tmp_path / "runs" / "names" / "c" / "report.md").exists()
    failed = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert [line[:50] for line in failed] == [
        f"error: a: {system}: no document has a value"[:50],
        "error: b: unknown synthetic dataset `nothing` (choose one of"[:50],
        f"error: c: {system}: no document has a value"[:50],
    ]


def test_cli_run_by_missing_tag_adds_note_for_that_dataset(tmp_path):
    (tmp_path / "tags.toml").write_text(f'systems = ["bm25"]\n[dataset]\na = "{SMALL}"\nb = "{HOPS}"\n')
    result = run_cli("run", "tags.toml", "-m", "mrr", "--by", "hops", cwd=tmp_path)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("mrr by hops") == 1
    note = "not split by hops: the queries have no such tag (there are answers, complexity"
    assert result.stderr.count(f"note: {note}") == 1
    reports = {name: (tmp_path / "runs" / "tags" / name / "report.md").read_text() for name in "ab"}
    assert {name: note in text for name, text in reports.items()} == {"a": True, "b": False}
    assert "mrr by hops" in reports["b"]


def test_cli_run_by_unknown_tag_exits_with_2(tmp_path):
    (tmp_path / "tags.toml").write_text(f'systems = ["bm25"]\n[dataset]\na = "{SMALL}"\nb = "{HOPS}"\n')
    result = run_cli("run", "tags.toml", "-m", "mrr", "--by", "hop", cwd=tmp_path)
    assert result.exit_code == 2
    last_line = result.stderr.splitlines()[-1]
    assert last_line.startswith(
        "error: unknown tag `hop` (did you mean `hops`? Choose one of answers, complexity, hops"
    )
    assert (tmp_path / "runs" / "tags" / "a" / "report.md").exists()


def test_cli_run_next_command_is_shell_quoted(tmp_path):
    result = run_cli(
        "run", SMALL, "-s", "bm25", "-s", "bm25(b=0)", "-b", "bm25(b=0)", "-o", "my runs/it's", cwd=tmp_path
    )
    (line,) = [line for line in result.stderr.splitlines() if "next: " in line]
    command = shlex.split(line.partition("next: ")[2])
    assert command == ["ragauge", "compare", "my runs/it's", "-b", "bm25(b=0)"]
    next_result = run_cli(*command[1:], cwd=tmp_path)
    assert next_result.exit_code == 0, next_result.stderr
    unquoted = run_cli("run", SMALL, "-s", "bm25", "-s", "flat=bm25(b=0)", "-b", "bm25", "-o", "out", cwd=tmp_path)
    assert "next: ragauge compare out -b bm25\n" in unquoted.stderr


def test_cli_run_no_loadable_dataset_raises_first_error(tmp_path):
    (tmp_path / "none.toml").write_text('systems = ["bm25"]\ndataset = ["synthetic:nothing", "nothere"]\n')
    with pytest.raises(UnknownName, match=r"^synthetic:nothing: unknown synthetic dataset"):
        run_cli("run", "none.toml", cwd=tmp_path)


@pytest.mark.slow
def test_cli_run_sigint_in_second_dataset_resumes(tmp_path, monkeypatch):
    journal = tmp_path / "runs" / "study" / FOLDERS[OTHER] / "own" / "journal.jsonl"
    (tmp_path / "hang").touch()
    (tmp_path / "mine.py").write_text(
        f"import os, time\nJOURNAL = {str(journal)!r}\n"
        "def search(query, k):\n"
        "    with open('log', 'a') as log:\n"
        "        log.write(query + '\\n')\n"
        "    if os.path.exists('hang') and os.path.exists(JOURNAL) and open(JOURNAL, 'rb').read().count(b'\\n') >= 4:\n"
        "        time.sleep(3600)  # until it is interrupted\n"
        "    return ['d00001']\n"
    )
    (tmp_path / "study.toml").write_text(TOML.replace('"nothere", ', "") + "[systems.own]\nkind = 'bm25'\n")
    arguments = ["run", "study.toml", "-s", "own=mine:search", "-b", "own"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ragauge", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    wait_while_running(process, lambda: count_lines(journal) >= 4, "four lines of the journal")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    (tmp_path / "hang").unlink()
    assert process.returncode == 130
    assert "to resume, run the same command" in stderr
    assert (tmp_path / "runs" / "study" / FOLDERS[SMALL] / "report.md").exists()
    monkeypatch.syspath_prepend(tmp_path)
    result = run_cli(*arguments, cwd=tmp_path)
    assert result.exit_code == 0, result.stderr
    n_calls = len((tmp_path / "log").read_text().splitlines())
    # 12 and 20 queries, 5 warm-up queries for each of 3 starts with queries to run, and at most one repeated query.
    assert n_calls in (12 + 20 + 3 * 5, 12 + 20 + 3 * 5 + 1)
    assert (tmp_path / "runs" / "study" / "summary.csv").exists()


# Experiment files


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("3", "`dataset` must be str or list or dict, got 3"),
        ('["pydocs", 3]', "`dataset` must be a list of names, got ['pydocs', 3]"),
        ("{ a = 3 }", "`dataset` must be a list of names, got {'a': 3}"),
    ],
)
def test_read_experiment_invalid_datasets_raise_error(tmp_path, dataset, message):
    path = tmp_path / "x.toml"
    path.write_text(f'dataset = {dataset}\nsystems = ["bm25"]')
    with pytest.raises(BadInput) as caught:
        read_experiment(str(path))
    assert caught.value.message == f"{path}: {message}"


def test_read_experiment_resolves_folder_relative_to_file(tmp_path):
    (tmp_path / "mine").mkdir()
    path = tmp_path / "x.toml"
    path.write_text('dataset = ["mine", "pydocs"]\nsystems = ["bm25"]')
    assert read_experiment(str(path))["dataset"] == [str(tmp_path / "mine"), "pydocs"]
    path.write_text('systems = ["bm25"]\n[dataset]\na = "mine"\nb = "pydocs"')
    assert read_experiment(str(path))["dataset"] == {"a": str(tmp_path / "mine"), "b": "pydocs"}


NESTED = """
dataset = "synthetic:multihop(documents=60, queries=6)"

[systems.walk]
kind = "swarm"
embedder = { kind = "wordllama", dimensions = 64 }
graph = ["links", { kind = "knn", neighbours = 4 }]
agents = 5

[systems.plain]
kind = "dense"

[systems.reranked]
kind = "pipeline"
of = { kind = "dense", store = { kind = "exact" } }
reranker = { kind = "swarm", graph = ["knn"], agents = 5 }
depth = 20

[systems.named]
kind = "pipeline"
of = "plain"
reranker = { kind = "swarm", graph = "knn", agents = 5 }
"""


def test_read_experiment_accepts_nested_tables_lists_and_references(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(NESTED)
    systems = read_experiment(str(path))["systems"]
    builder = SystemBuilder([], systems)
    descriptions = {name: builder.identity(name)["description"] for name in systems}
    assert descriptions == {
        "walk": "swarm(embedder=wordllama(dimensions=64), graph=links+knn(neighbours=4), agents=5)",
        "plain": "dense",
        "reranked": "pipeline(of=dense(store=exact), reranker=swarm(graph=knn, agents=5), depth=20)",
        "named": "pipeline(of=dense, reranker=swarm(graph=knn, agents=5))",
    }
    for name in systems:
        builder.check(name)
    result = run(read_experiment(str(path))["dataset"], systems, measures=["recall@10"])
    assert list(result.runs) == list(systems)
    parts = result.runs["named"].manifest["evidence"]["parts"]
    assert list(parts[1]["graph"]["kinds"]) == ["knn(neighbours=8)"]
