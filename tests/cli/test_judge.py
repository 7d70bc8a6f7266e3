"""`ragauge judge`: output, folders, limits and errors, and gate, compare and report of the folders it writes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from chat_server import serving_chat
from command import run_python
from judged_builder import make_judged
from ragauge.cli import progress
from ragauge.compute.progress import Progress
from ragauge.files.judged_folders import MANIFEST_FILE
from ragauge.judging.results_folder import read_judged_folder, write_judged_folder
from ragauge.reports.overviews import overview
from waiting import PATIENCE_S, wait_while_running

RAGAUGE = Path(sys.executable).parent / "ragauge"
SAMPLES = [
    {
        "id": "s1",
        "question": "Where is the tower?",
        "answer": "The tower is in Paris. It was built in 1889.",
        "contexts": ["The Eiffel tower is in Paris, France.", "It was built in 1889 by his company."],
        "reference": "The tower is in Paris.",
        "metadata": {"topic": "place"},
    },
    {
        "id": "s2",
        "question": "How high is the tower?",
        "answer": "The tower is 330 m high. The tower is made of cheese.",
        "contexts": ["The tower is 330 m high and made of iron."],
        "reference": "The tower is 330 m high.",
        "metadata": {"topic": "size"},
    },
    {
        "id": "s3",
        "question": "Who painted it?",
        "answer": "I do not know.",
        "contexts": ["His company built it."],
        "metadata": {"topic": "people"},
    },
]


def run_ragauge(folder, *arguments, **more):
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **more}
    return run_python([str(RAGAUGE), *map(str, arguments)], folder, environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with three samples that the lexical judge has judged."""
    folder = tmp_path_factory.mktemp("judge")
    (folder / "toy.jsonl").write_text("".join(json.dumps(one) + "\n" for one in SAMPLES), encoding="utf-8")
    done = run_ragauge(folder, "judge", "toy.jsonl")
    assert done.returncode == 0, done.stderr
    (folder / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    (folder / "stderr.txt").write_text(done.stderr, encoding="utf-8")
    return folder


def test_judge_prints_judge_means_and_unscored_samples(folder):
    text = (folder / "stdout.txt").read_text(encoding="utf-8")
    assert text.startswith("toy: 3 samples, convention default")
    assert "Judged by lexical, a word-matching baseline without a model." in text
    assert "faithfulness       0.7500" in text
    assert re.search(r"the answer contains no claims +1 +faithfulness +s3", text)
    assert "absent: The tower is made of cheese." in text
    notes = (folder / "stderr.txt").read_text(encoding="utf-8")
    assert (
        "note: wrote judged/toy/: judge.json, samples.jsonl, verdicts.jsonl, scores.csv, report.md, report.html"
        in notes
    )


def test_judge_json_has_mean_n_and_unscored_of_each_measure(folder):
    done = run_ragauge(folder, "judge", "toy.jsonl", "--json", "-o", "as_json")
    data = json.loads(done.stdout)
    assert data["judge"].startswith("lexical")
    faithfulness = data["measures"]["faithfulness"]
    assert (faithfulness["mean"], faithfulness["n"], faithfulness["unscored"]) == (0.75, 2, 1)
    assert faithfulness["reasons"] == {"the answer contains no claims": 1}
    assert json.loads((folder / "as_json" / MANIFEST_FILE).read_text(encoding="utf-8"))["measures"] == data["measures"]


def test_judge_prints_csv_and_schema(folder):
    done = run_ragauge(folder, "judge", "toy.jsonl", "-m", "faithfulness", "--csv", "-o", "as_csv")
    assert done.stdout.splitlines()[1].startswith("faithfulness,0.75,")
    assert json.loads(run_ragauge(folder, "judge", "--schema").stdout)["title"] == "ragauge-judged/1"


def test_judge_writes_files_next_to_the_folder(folder):
    pytest.importorskip("vl_convert")
    done = run_ragauge(
        folder, "judge", "toy.jsonl", "-o", "with_files", "-o", "toy.html", "-o", "toy.tex", "--format", "claims"
    )
    assert done.returncode == 2  # --format applies to one file
    done = run_ragauge(
        folder, "judge", "toy.jsonl", "-o", "with_files", "-o", "toy.html", "-o", "toy.tex", "--charts", "charts"
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "with_files" / MANIFEST_FILE).exists()
    assert "data-explorer" in (folder / "toy.html").read_text(encoding="utf-8")
    assert r"\begin{tabular}" in (folder / "toy.tex").read_text(encoding="utf-8")
    assert {path.suffix for path in (folder / "charts").iterdir()} == {".svg", ".png"}
    claims = run_ragauge(folder, "judge", "toy.jsonl", "-o", "with_files", "--format", "claims")
    assert claims.stdout.startswith("query,of,claim,text,state")


def test_judge_repeated_command_keeps_scores(folder):
    before = (folder / "judged" / "toy" / "scores.csv").read_bytes()
    assert run_ragauge(folder, "judge", "toy.jsonl").returncode == 0
    assert (folder / "judged" / "toy" / "scores.csv").read_bytes() == before


def test_judge_accepts_judged_folder_with_other_convention(folder):
    done = run_ragauge(
        folder, "judge", "judged/toy", "-C", "default,no_claims=one", "-m", "faithfulness", "--json", "-o", "counted"
    )
    data = json.loads(done.stdout)
    assert data["convention"] == "default, no_claims=one"
    assert (data["measures"]["faithfulness"]["mean"], data["measures"]["faithfulness"]["n"]) == (2.5 / 3, 3)


def test_judge_measure_without_references_is_skipped_or_rejected(folder):
    rows = [{name: sample[name] for name in ("id", "question", "answer", "contexts")} for sample in SAMPLES]
    (folder / "bare.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in rows), encoding="utf-8")
    done = run_ragauge(folder, "judge", "bare.jsonl", "--json")
    assert "context_recall" not in json.loads(done.stdout)["measures"]
    assert "context_recall is left out: there are no reference answers" in json.loads(done.stdout)["notes"]
    refused = run_ragauge(folder, "judge", "bare.jsonl", "-m", "context_recall", "-o", "refused")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: context_recall needs reference answers, and no sample has any")
    assert not (folder / "refused").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["judge"], "no samples given"),
        (
            ["judge", "toy.jsonl", "--token-price", "cheap"],
            "--token-price must be IN,OUT in US dollars per million tokens, got `cheap`",
        ),
        (
            ["judge", "toy.jsonl", "--token-price", "1,2", "--prices", "p.toml"],
            "--token-price and --prices are mutually exclusive",
        ),
        (["judge", "toy.jsonl", "--chat-option", "temperature"], "--chat-option must be NAME=VALUE, got `temperature`"),
        (["judge", "toy.jsonl", "--answers", "a.csv"], "an answers file requires the folder of a run"),
        (["judge", "toy.jsonl", "-k", "0"], "k must be at least 1, got 0"),
        (["judge", "toy.jsonl", "-m", "faithfulnes"], "unknown answer measure `faithfulnes`"),
        (["judge", "toy.jsonl", "--json", "--csv"], "--json and --csv are mutually exclusive"),
        (["judge", "none.jsonl"], "none.jsonl"),
    ],
)
def test_judge_invalid_input_prints_one_line_error(folder, arguments, message):
    done = run_ragauge(folder, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_judge_folder_with_other_samples_is_rejected(folder):
    for version, question in (("v1", "Where is the tower?"), ("v2", "Where is the bridge?")):
        line = json.dumps(SAMPLES[0] | {"question": question}) + "\n"
        (folder / f"answers.{version}.jsonl").write_text(line, encoding="utf-8")
        assert run_ragauge(folder, "judge", f"answers.{version}.jsonl", "-m", "faithfulness").returncode == 0
    first, second = (read_judged_folder(folder / "judged" / f"answers.{version}") for version in ("v1", "v2"))
    assert (first.name, second.name) == ("answers.v1", "answers.v2")
    assert first.samples[0].question != second.samples[0].question
    refused = run_ragauge(folder, "judge", "answers.v2.jsonl", "-o", "judged/answers.v1")
    assert refused.returncode == 2
    assert "holds results of other samples: `s1` has another question or reference" in refused.stderr
    assert "-o" in refused.stderr
    assert read_judged_folder(folder / "judged" / "answers.v1").samples == first.samples


def test_judge_k_limits_contexts(folder):
    done = run_ragauge(
        folder, "judge", "toy.jsonl", "-m", "faithfulness", "-k", "1", "--max-samples", "1", "--json", "-o", "k1"
    )
    assert json.loads(done.stdout)["measures"]["faithfulness"]["mean"] == 0.5


def test_judge_dry_run_of_lexical_judge_writes_nothing(folder):
    done = run_ragauge(folder, "judge", "toy.jsonl", "--dry-run", "-o", "dry")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no request would be sent: the lexical judge uses no model" in done.stderr
    assert not (folder / "dry").exists()


@pytest.mark.slow
def test_judge_dry_run_of_model_prints_calls_tokens_and_price(folder):
    pytest.importorskip("openai")
    model = "openai:m@http://127.0.0.1:9/v1"
    done = run_ragauge(
        folder, "judge", "toy.jsonl", "-c", model, "--token-price", "1,4", "--dry-run", "--json", "-o", "dry"
    )
    data = json.loads(done.stdout)
    assert data["samples"] == 3
    total = data["total"]
    assert total["calls"] == sum(one["calls"] for one in data["estimate"]) > 0
    assert total["cost"] == pytest.approx((total["prompt_tokens"] + 4 * total["completion_tokens"]) / 1e6)
    table = run_ragauge(
        folder, "judge", "toy.jsonl", "-c", "openai:gpt-4o-mini", "--dry-run", "-o", "dry", OPENAI_BASE_URL=""
    )
    assert table.stdout.split()[:5] == ["step", "calls", "tokens", "in", "out"]
    assert "the price is unknown; give it in US dollars per million tokens: `--token-price IN,OUT`" in table.stderr
    assert not (folder / "dry").exists()


def test_judge_dry_run_of_local_server_prints_zero_cost_and_minutes(folder):
    pytest.importorskip("openai")
    model = "openai:m@http://127.0.0.1:9/v1"
    no_key = {"OPENAI_API_KEY": ""}
    data = json.loads(
        run_ragauge(folder, "judge", "toy.jsonl", "-c", model, "--dry-run", "--json", "-o", "dry", **no_key).stdout
    )
    total = data["total"]
    assert total["cost"] == 0
    assert total["seconds"] == pytest.approx(total["prompt_tokens"] / 500 + total["completion_tokens"] / 20)
    table = run_ragauge(folder, "judge", "toy.jsonl", "-c", model, "--dry-run", "-o", "dry", **no_key)
    assert table.stdout.splitlines()[0].split()[-2:] == ["cost", "minutes"]
    assert table.stdout.splitlines()[-1].split()[-2] == "$0"
    assert "minutes assume a local server that reads 500 and writes 20 tokens per second" in table.stderr
    assert "price is unknown" not in table.stderr
    assert "no key" not in table.stderr


@pytest.mark.slow
def test_judge_missing_api_key_fails_except_in_dry_run(folder):
    pytest.importorskip("openai")
    no_key = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}
    dry = run_ragauge(folder, "judge", "toy.jsonl", "-c", "openai:gpt-4o-mini", "--dry-run", **no_key)
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.startswith("step")
    assert "no key in OPENAI_API_KEY; set it before judging: `export OPENAI_API_KEY=…`" in dry.stderr
    priced = run_ragauge(
        folder, "judge", "toy.jsonl", "-c", "openai:m", "--dry-run", "--token-price", "1,4", OPENAI_API_KEY="k"
    )
    assert "no key" not in priced.stderr
    assert priced.stdout.splitlines()[-1].split()[-1].startswith("$0.")
    done = run_ragauge(folder, "judge", "toy.jsonl", "-c", "openai:gpt-4o-mini", "-o", "keyless", **no_key)
    assert done.returncode == 3
    assert done.stderr.startswith(
        "error: the chat `openai` needs an API key in the environment variable OPENAI_API_KEY"
    )
    assert "is kept" not in done.stderr


def test_judge_unread_field_names_are_noted_if_a_field_is_missing(folder):
    row = {"query": "How high?", "response": "It is high.", "retrieved": ["It is high."], "ground_truth": "High."}
    (folder / "misnamed.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    expected = "not read: retrieved; contexts may be called contexts, retrieved_contexts, "
    done = run_ragauge(folder, "judge", "misnamed.jsonl", "-o", "misnamed", "--json")
    assert any(note.startswith(expected) for note in json.loads(done.stdout)["notes"])
    refused = run_ragauge(folder, "judge", "misnamed.jsonl", "-m", "faithfulness", "-o", "misnamed")
    assert expected in refused.stderr
    assert not any("not read" in note for note in read_judged_folder(folder / "judged" / "toy").notes)


def test_validate_judged_folder_counts_its_samples(folder):
    done = run_ragauge(folder, "validate", "judged/toy")
    assert done.returncode == 0
    assert "samples: 3, questions: 3, answers: 3, contexts: 3, references: 2" in done.stdout
    assert "unknown fields, read as metadata: topic" in done.stdout


def test_compare_and_report_read_folder_of_judged_folders(folder, tmp_path):
    for name, k in (("all", "9"), ("one", "1")):
        run_ragauge(folder, "judge", "toy.jsonl", "-k", k, "-o", str(tmp_path / "judged" / name))
    done = run_ragauge(tmp_path, "compare", "judged", "-b", "one", "-m", "context_precision", "--json")
    assert [one["system"] for one in json.loads(done.stdout)["comparisons"]] == ["all"]
    table = run_ragauge(tmp_path, "report", "judged", "-m", "context_precision")
    assert [line.split()[0] for line in table.stdout.splitlines()[-2:]] == ["all", "one"]
    assert "2 systems, 3 samples, convention default" in " ".join(table.stdout.split())
    assert "judged by lexical [" in " ".join(table.stdout.split())
    (tmp_path / "judged" / "one").rename(tmp_path / "one")
    single = run_ragauge(tmp_path, "report", "judged")
    assert single.stdout.startswith("toy: 3 samples")


def test_report_page_of_judged_folders_names_judge_and_samples(folder, tmp_path):
    pytest.importorskip("vl_convert")
    for name, k in (("all", "9"), ("one", "1")):
        run_ragauge(folder, "judge", "toy.jsonl", "-k", k, "-o", str(tmp_path / "judged" / name))
    done = run_ragauge(tmp_path, "report", "judged", "-m", "context_precision", "-o", "page.html", "-o", "page.md")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8").partition("<script")[0]
    assert "judged by lexical [" in page
    assert "<h2>Samples</h2>" in page
    assert "3 samples" in page
    for absent in ("Audit", "Failures", "Not timed", "rankings behind", "<h2>Queries</h2>"):
        assert absent not in page
    assert "3 samples" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert overview([tmp_path / "judged"], audited=False).queries["s1"] == "Where is the tower?"


def test_show_progress_draws_final_count(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    with progress.show_progress() as report:
        for done in (1, 2, 3):
            report(Progress("judging samples", done, 3))
    assert "3/3" in sys.stderr.getvalue()


def test_report_reads_judged_folder(folder):
    shown = run_ragauge(folder, "report", "judged/toy")
    assert shown.stdout == (folder / "stdout.txt").read_text(encoding="utf-8")
    done = run_ragauge(folder, "report", "judged/toy", "-o", "page.html", "-o", "page.md", "-o", "page.json")
    assert done.returncode == 0
    assert "judged by lexical" in (folder / "page.md").read_text(encoding="utf-8").lower()
    assert json.loads((folder / "page.json").read_text(encoding="utf-8"))["scores"]["unscored"]["faithfulness"]["s3"]
    claims = run_ragauge(folder, "report", "judged/toy", "--format", "claims")
    assert claims.stdout.startswith("query,of,claim,text,state")
    refused = run_ragauge(folder, "report", "judged/toy", "-o", "judged/toy/judge.json")
    assert refused.returncode == 2
    assert "this file is read" in refused.stderr


def test_gate_unscored_samples_fail_without_unscored_rule(folder):
    failed = run_ragauge(folder, "gate", "judged/toy", "-r", "faithfulness >= 0.7")
    assert failed.returncode == 1
    assert "1 query has no faithfulness (s3): the answer contains no claims" in failed.stdout
    assert "`unscored(faithfulness) <= 5%`" in failed.stderr
    allowed = run_ragauge(
        folder, "gate", "judged/toy", "-r", "faithfulness >= 0.7", "-r", "unscored(faithfulness) <= 40%"
    )
    assert allowed.returncode == 0, allowed.stdout
    assert "pass  faithfulness >= 0.7            0.7500  0.7000  2" in allowed.stdout
    strict = run_ragauge(
        folder, "gate", "judged/toy", "-r", "faithfulness >= 0.7", "-r", "unscored(faithfulness) <= 5%"
    )
    assert strict.returncode == 1
    assert [line[:4] for line in strict.stdout.splitlines()].count("FAIL") == 2


def test_gate_groups_samples_by_metadata(folder):
    done = run_ragauge(folder, "gate", "judged/toy", "-r", "context_precision >= 0.9 by topic")
    assert done.returncode == 1
    assert "pass  context_precision >= 0.9 in topic=place" in done.stdout
    assert "FAIL  context_precision >= 0.9 in topic=people" in done.stdout


def test_compare_judged_folders_of_different_judges_exits_with_4(folder):
    run_ragauge(folder, "judge", "toy.jsonl", "-k", "1", "-o", "judged/one")
    done = run_ragauge(folder, "compare", "judged/toy", "judged/one", "-b", "one", "-m", "faithfulness", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["comparisons"]
    assert row["difference"] == pytest.approx(0.25)
    write_judged_folder(make_judged(), folder / "judged" / "model")
    other = run_ragauge(folder, "compare", "judged/toy", "judged/model")
    assert other.returncode == 4
    assert "is judged by" in other.stderr
    gate = run_ragauge(folder, "gate", "judged/toy", "-b", "judged/model", "-r", "faithfulness drop <= 0.1")
    assert gate.returncode == 4


def test_read_judged_folder_reads_folder_of_judge(folder):
    judged_folder = read_judged_folder(folder / "judged" / "toy")
    assert judged_folder.scores.per_query["faithfulness"] == {"s1": 1.0, "s2": 0.5}
    assert [sample.id for sample in judged_folder.samples] == ["s1", "s2", "s3"]


def judge_with_server(folder, server, *more, out):
    """Judge with a chat model behind a real server, with the secret API key `sk-secret`."""
    model = f"openai:m@{server.url}"
    return run_ragauge(
        folder, "judge", "toy.jsonl", "-c", model, "-m", "faithfulness", "--retries", "0", "-o", out, *more,
        OPENAI_API_KEY="sk-secret",
    )  # fmt: skip


def test_judge_max_calls_exits_with_3_and_resumes(folder, chat_server):
    stopped = judge_with_server(folder, chat_server, "--max-calls", "2", out="limited")
    assert stopped.returncode == 3, stopped.stderr
    last_line = stopped.stderr.splitlines()[-1]
    assert (
        last_line == "stopped: the limit of 2 requests is reached; to resume, run the same command with a higher limit"
    )
    assert len(chat_server.requests) == 2
    manifest = json.loads((folder / "limited" / MANIFEST_FILE).read_text(encoding="utf-8"))
    assert manifest["stopped"] == "the limit of 2 requests is reached"
    assert manifest["measures"]["faithfulness"]["unscored"] > 0
    resumed = judge_with_server(folder, chat_server, "--max-calls", "50", "--json", out="limited")
    assert resumed.returncode == 0, resumed.stderr
    data = json.loads(resumed.stdout)
    assert data["stopped"] == ""
    assert data["total"]["cached_calls"] == 2
    assert len(chat_server.requests) == data["total"]["calls"]


def test_judge_unreadable_replies_exit_with_3(folder, chat_server):
    chat_server.queue_faults("nonsense", times=100)
    done = judge_with_server(folder, chat_server, "--json", out="nonsense")
    assert done.returncode == 3
    faithfulness = json.loads(done.stdout)["measures"]["faithfulness"]
    assert (faithfulness["mean"], faithfulness["n"], faithfulness["unscored"]) == (None, 0, 3)
    assert "error: the judge gave no readable reply; " in done.stderr
    gate = run_ragauge(folder, "gate", "nonsense", "-r", "faithfulness >= 0.1", "-r", "unscored(faithfulness) <= 3")
    assert gate.returncode == 1


def test_judge_without_readable_reply_exits_with_3_even_if_a_value_exists(folder, chat_server):
    rows = [json.loads(line) for line in (folder / "toy.jsonl").read_text(encoding="utf-8").splitlines()]
    rows.append({"id": "empty", "question": "Q?", "answer": "A.", "contexts": [], "reference": "A."})
    (folder / "partly.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    chat_server.queue_faults("nonsense", times=200)
    done = run_ragauge(
        folder, "judge", "partly.jsonl", "-c", f"openai:m@{chat_server.url}", "-m", "context_precision", "-m",
        "faithfulness", "--json", "-o", "partly", OPENAI_API_KEY="sk-secret",
    )  # fmt: skip
    precision = json.loads(done.stdout)["measures"]["context_precision"]
    assert (precision["mean"], precision["n"]) == (0.0, 1)  # no contexts: computed without the judge
    assert done.returncode == 3
    assert "error: the judge gave no readable reply; " in done.stderr
    assert "the judge gave no readable reply; the scores need none" in done.stdout


def test_judge_api_key_is_not_written(folder, chat_server):
    done = judge_with_server(folder, chat_server, out="keyed")
    assert done.returncode == 0, done.stderr
    for path in (folder / "keyed").iterdir():
        assert b"sk-secret" not in path.read_bytes(), path.name
    assert "sk-secret" not in done.stdout + done.stderr


@pytest.mark.slow
def test_judge_interrupted_prints_how_to_resume(folder):
    with serving_chat(latency=0.4) as server:
        process = subprocess.Popen(
            [RAGAUGE, "judge", "toy.jsonl", "-c", f"openai:m@{server.url}", "--workers", "1", "-o", "halted"],
            cwd=folder, env={**os.environ, "OPENAI_API_KEY": "x"}, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        wait_while_running(process, lambda: len(server.requests) >= 2, "two requests")
        process.send_signal(signal.SIGINT)
        _, error_output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "; replies are saved in halted; to resume, run the same command" in error_output
    assert "Traceback" not in error_output


def test_rescoring_in_place_names_removed_scores(tmp_path):
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in SAMPLES))
    measures = ["-m", "faithfulness", "-m", "context_recall"]
    run_python(["-m", "ragauge", "judge", "answers.jsonl", *measures, "-o", "judged"], tmp_path)
    process = run_python(["-m", "ragauge", "judge", "judged", "-m", "faithfulness"], tmp_path)
    assert process.returncode == 0
    note = "removed the scores of context_recall; add `-m context_recall` to compute them from the saved verdicts"
    assert note in process.stderr
    copied = run_python(["-m", "ragauge", "judge", "judged", "-m", "faithfulness", "-o", "copy"], tmp_path)
    assert "removed the scores" not in copied.stderr
