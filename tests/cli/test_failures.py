"""Top-level error handler: exit codes and messages for unexpected errors, interrupts and unusable streams."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

import ragauge
from command import command_in
from ragauge.cli.failures import end_command, pass_exceptions
from ragauge.core.errors import BackendFailed, BadInput

PROGRAM = [sys.executable, "-c", "from ragauge.cli import main; main()"]


def run_in_shell(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `$RAGAUGE` stands for the ragauge command."""
    env = {**os.environ, "RAGAUGE": f"{sys.executable} -c 'from ragauge.cli import main; main()'", **environment}
    line = line.replace("$RAGAUGE", env["RAGAUGE"])
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=cwd, check=False, env=env)


def raise_and_catch(error: BaseException) -> BaseException:
    """Return the exception with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_end_command_unexpected_exception_exits_with_70_and_saves_report(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert end_command(raise_and_catch(KeyError("secret-free detail")), debug=False) == 70
    error_output = capsys.readouterr().err
    assert len(error_output.splitlines()) == 1
    assert error_output.startswith(
        "error: unexpected error in ragauge (KeyError: 'secret-free detail'); report saved to "
    )
    report = Path(error_output.rstrip("\n").partition("report saved to ")[2]).read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in report
    assert "test_failures.py" in report
    assert "Python" in report


def test_end_command_unsaved_report_is_mentioned(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert end_command(raise_and_catch(TypeError("x")), debug=False) == 70
    assert capsys.readouterr().err == (
        "error: unexpected error in ragauge (TypeError: x); the report could not be saved; add --debug to print it\n"
    )


def test_end_command_long_message_is_truncated(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert end_command(raise_and_catch(RuntimeError("x" * 100_000)), debug=False) == 70
    assert len(capsys.readouterr().err) < 300


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadInput("no rows", file="a.txt"), 2, "error: a.txt: no rows\n"),
        (BackendFailed("gone"), 3, "error: gone\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "error: no space left on device\nhint: free some space",
        ),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), 2, "error: a/b: read-only file system\nhint: choose"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "n" * 9), 2, "error: nnnnnnnnn: file name too long\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_end_command_known_errors_print_one_line(error, code, message, capsys):
    assert end_command(raise_and_catch(error), debug=False) == code
    error_output = capsys.readouterr().err
    assert error_output.startswith(message)
    assert "Traceback" not in error_output


def test_end_command_error_caused_by_interrupt_exits_with_130(capsys):
    error = ImportError("cannot import name")
    error.__context__ = KeyboardInterrupt()
    assert end_command(raise_and_catch(error), debug=False) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [EOFError("x"), OSError("x"), BrokenPipeError(errno.EPIPE, "x"), SystemExit(1)])
def test_pass_exceptions_no_exception_exits_with_1(error, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    app = typer.Typer(pretty_exceptions_enable=False)

    def fail() -> None:
        raise error

    app.command()(pass_exceptions(fail))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any exception, but not SystemExit
        app([], standalone_mode=True)
    assert end_command(caught.value, debug=False) == 70
    assert "report saved to" in capsys.readouterr().err


def test_cli_debug_prints_traceback_and_keeps_exit_code(tmp_path):
    done = run_in_shell("$RAGAUGE evaluate no no --debug", tmp_path)
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_cli_closed_standard_output_is_accepted(tmp_path):
    done = run_in_shell("$RAGAUGE measures >&-", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\n")
    done = run_in_shell("$RAGAUGE convert qrels.txt out.csv --kind qrels >&- 2>&- <&-", tmp_path)
    assert done.returncode in (0, 2)  # either code, but no stream output may end up in the file
    if done.returncode == 0:
        assert (tmp_path / "out.csv").read_text().startswith("query_id,doc_id,relevance")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_cli_full_standard_output_prints_one_line_error(tmp_path):
    done = run_in_shell("$RAGAUGE measures > /dev/full", tmp_path)
    assert done.returncode == 2
    assert "error: no space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_cli_closed_pipe_exits_with_141(tmp_path, unbuffered):
    (tmp_path / "big.txt").write_text("".join(f"q{i} 0 d{i} 1\n" for i in range(200_000)))
    done = run_in_shell(
        "set -o pipefail; $RAGAUGE convert big.txt - --format csv | head -1", tmp_path, PYTHONUNBUFFERED=unbuffered
    )
    assert done.returncode == 141
    assert "Traceback" not in done.stderr


def test_cli_deleted_working_folder_prints_one_line_error(tmp_path):
    done = run_in_shell("mkdir gone && cd gone && rmdir ../gone && $RAGAUGE measures", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: the working folder no longer exists\nhint: cd to a folder that exists\n"


@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
def test_cli_early_interrupt_exits_with_130(delay_s, tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\n")
    # Wait until Python has started: a program cannot catch an earlier interrupt.
    code = "import os; os.write(1, b'.'); from ragauge.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "evaluate", "qrels.txt", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    error_output = process.communicate()[1].decode()
    assert process.returncode == 130, error_output
    assert not re.search("Traceback|Error", error_output)


@pytest.mark.parametrize(
    "command",
    [
        "evaluate qrels.txt a.run -M 99999999999999999999",
        "compare qrels.txt a.run b.run --rounds -1",
        "compare qrels.txt a.run b.run --seed -1",
        "compare qrels.txt a.run b.run --rounds 99999999999999999999",
        "run kb -s bm25 -k 99999999999999999999",
        "judge samples.jsonl --questions -1",
        "bench --seed -5",
    ],
)
def test_cli_integer_out_of_range_prints_error(command, tmp_path):
    done = command_in(tmp_path)(*command.split(), code=2)
    option, value = command.split()[-2:]
    minimum = 1 if option == "-M" else 0
    limit = f"least {minimum}" if value.startswith("-") else "most 2,147,483,647"
    assert f"error: {option.replace('-M', '--depth')} must be at {limit}, got {value}\n" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("format_name", ["parquet", "csv", "json", "trec", "jsonl"])
def test_convert_full_disk_prints_one_line_error(format_name, tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\n")
    done = command_in(tmp_path)("convert", "qrels.txt", "/dev/full", "--format", format_name, code=2)
    assert done.stderr.startswith("error: /dev/full: cannot be written (No space left on device")


def test_run_unwritable_temporary_folder_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    data = ragauge.load("synthetic:needles(documents=20, queries=3)")
    result = ragauge.run(data, {"mine": lambda query, k: ["d00001"]}, measures=["mrr"], warmup=0, out=tmp_path / "out")
    assert result.scores["mine"].means["mrr"] >= 0
    assert (tmp_path / "out" / "mine" / "manifest.json").exists()
