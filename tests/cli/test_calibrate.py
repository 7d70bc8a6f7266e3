"""`ragauge calibrate`: standard output, notes, files, and invalid input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from command import run_python
from ragauge.cli.app import build_app
from ragauge.files.json_schemas import json_schema
from ragauge.judging.calibration.results import Calibration

SCHEMA = json_schema(Calibration)
ROWS = [
    {
        "id": f"s{i}",
        "question": f"Who came to house {i}?",
        "answer": "Bob came in May." if i % 3 else "Zoe flew to Oslo in 1987.",
        "contexts": ["Bob came in May.", "Nobody else did."],
        "labels": {"faithfulness": 1.0 if i % 3 else 0.0},
    }
    for i in range(24)
]


@pytest.fixture
def labelled_file(tmp_path):
    path = tmp_path / "people.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def run_calibrate(*arguments):
    done = CliRunner().invoke(build_app(), ["calibrate", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_calibrate_one_dataset_prints_statistics_and_intervals(labelled_file):
    done = run_calibrate(labelled_file)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    header = next(line for line in lines if line.startswith("statistic"))
    assert header.split() == ["statistic", "judge", "95%", "CI", "by", "degree", "words", "always", "good"]
    rows = {line[:20].strip(): line[20:].split() for line in lines if line}
    assert rows["accuracy"][0] == "1.000"
    assert rows["Cohen's kappa"][0] == "1.000"
    assert ["judge:", "good", "16", "0"] in [line.split() for line in lines]
    assert ["judge:", "bad", "0", "8"] in [line.split() for line in lines]
    assert "24 of 24 labelled samples have a verdict; 66.7% are good" in done.stderr
    assert "more notes: add --verbose\n" in done.stderr
    assert any(
        "the lexical judge compares words" in note
        for note in json.loads(run_calibrate(labelled_file, "--json").stdout)["notes"]
    )


def test_calibrate_several_datasets_prints_one_row_each(labelled_file, tmp_path):
    other_file = tmp_path / "others.jsonl"
    other_file.write_text("".join(json.dumps({**row, "labels": {"faithfulness": 1.0}}) + "\n" for row in ROWS))
    done = run_calibrate(labelled_file, str(other_file))
    lines = done.stdout.splitlines()
    assert lines[:2] == ["Calibrations", "lexical on 2 datasets."]
    header, *rows = [line.split() for line in lines[4:]]
    assert header[:4] == ["dataset", "n", "unscored", "good"]
    assert [row[0] for row in rows] == ["people", "others"]
    assert rows[1][header.index("kappa")] == "-"


def test_calibrate_json_matches_schema_without_nan(labelled_file):
    done = run_calibrate(labelled_file, "--json", "--labels", "12", "--replicates", "2", "--canaries")
    data = json.loads(done.stdout, parse_constant=pytest.fail)
    jsonschema.validate(data, SCHEMA)

    assert data["statistics"]["accuracy"]["n"] == 24
    assert data["confusion"] == {"both_good": 16, "only_judge": 0, "only_people": 0, "both_bad": 8}
    assert data["corrected"]["labels"] == 12
    assert data["consistency"]["same"]["value"] == 1.0
    assert data["swap"]["changed"]["n"] == 24
    assert data["robustness"]
    assert len(data["pairs"]) == 24


def test_calibrate_schema_prints_json_schema(labelled_file):
    assert json.loads(run_calibrate("--schema").stdout) == SCHEMA


def test_calibrate_prints_csv_and_markdown(labelled_file):
    rows = list(csv.DictReader(io.StringIO(run_calibrate(labelled_file, "--csv").stdout)))
    assert {row["rater"] for row in rows} == {"lexical", "lexical by probability", "word overlap", "always good"}
    kappa = next(row for row in rows if row["statistic"] == "kappa")
    assert (float(kappa["value"]), kappa["n"]) == (1.0, "24")
    page = run_calibrate(labelled_file, "--format", "markdown").stdout
    assert "| Cohen's kappa | 1.000 |" in page


@pytest.mark.slow
def test_calibrate_writes_files_and_charts(labelled_file, tmp_path):
    pytest.importorskip("vl_convert")
    done = run_calibrate(
        labelled_file, "-o", str(tmp_path / "c.html"), "-o", str(tmp_path / "c.json"), "--charts", str(tmp_path / "x")
    )
    assert done.exit_code == 0, done.output
    assert "chart-calibration-curves" in (tmp_path / "c.html").read_text()
    assert json.loads((tmp_path / "c.json").read_text())["schema"] == "ragauge-calibration/1"
    assert {path.name for path in (tmp_path / "x").iterdir()} == {
        "calibration-curves.svg",
        "calibration-curves.png",
    }


def test_calibrate_output_fits_80_columns(labelled_file, tmp_path):
    """The command runs in a pseudo-terminal."""
    if sys.platform == "win32":
        pytest.skip("no pseudo-terminal")
    import pty

    parent_end, child_end = pty.openpty()
    command = [str(Path(sys.executable).parent / "ragauge"), "calibrate", labelled_file, "--labels", "12", "--canaries"]
    with (
        open(child_end, "wb", closefd=False) as out,
        subprocess.Popen(
            command, stdout=out, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
        ) as process,
    ):
        os.close(child_end)
        text = b""
        while True:
            try:
                chunk = os.read(parent_end, 4096)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
        assert process.wait() == 0
    os.close(parent_end)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode()).splitlines()
    assert len(lines) > 20
    assert max(len(line.rstrip()) for line in lines) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no labelled samples given"),
        (["FILE", "--json", "--csv"], "--json and --csv are mutually exclusive"),
        (["FILE", "--threshold", "0"], "threshold"),
        (["FILE", "-m", "hallucination"], "lower-is-better measure"),
        (["FILE", "--chat-option", "temperature"], "--chat-option has no effect on the lexical judge"),
        (["absent.jsonl"], "absent.jsonl"),
    ],
)
def test_calibrate_invalid_input_prints_one_line_error(labelled_file, arguments, message):
    words = [labelled_file if one == "FILE" else one for one in arguments]
    done = run_python(["-m", "ragauge", "calibrate", *words], Path.cwd())
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_calibrate_without_readable_reply_exits_with_3(labelled_file, chat_server):
    chat_server.queue_faults("nonsense", times=1000)
    folder = str(Path(labelled_file).with_name("kept"))
    done = run_calibrate(labelled_file, "--chat", f"openai:m@{chat_server.url}", "--no-swap", "--out", folder)
    assert done.exit_code == 3
    assert "error: the judge gave no readable reply for people; " in done.stderr
