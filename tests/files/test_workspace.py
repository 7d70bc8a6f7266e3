"""Atomic replacement of files under concurrent writers and kills, and removal of orphaned temporary files."""

from __future__ import annotations

import gzip
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ragauge.core.errors import BadInput
from ragauge.files import workspace
from ragauge.files.source import InputFile
from ragauge.files.workspace import (
    atomic_write,
    create_temporary_folder,
    replace_file,
    replace_folder,
    temporary_folder,
)

WRITERS = 20
WRITER = """
import sys
from ragauge.files.workspace import atomic_write

path, letter = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    with atomic_write(path) as out:
        for _ in range(100):
            out.write(letter.encode() * 1000)
            out.flush()
"""
KILLED = """
import os, signal, sys
from ragauge.files.workspace import create_temporary_folder, replace_file
from pathlib import Path

print(create_temporary_folder("test"), flush=True)
with replace_file(Path(sys.argv[1])) as path:
    path.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start_process(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", ["result.txt", "result.txt.gz"])
@pytest.mark.slow
def test_atomic_write_20_concurrent_writers_leave_one_whole_file(tmp_path, name):
    path = tmp_path / name
    writers = [start_process(WRITER, path, chr(ord("a") + number)) for number in range(WRITERS)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    ends = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert ends == [("", 0)] * WRITERS
    content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    assert len(content) == 100_000
    assert len(set(content)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_replace_file_failure_keeps_old_file_and_no_temporary(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError), replace_file(path) as temporary:  # noqa: PT012
        temporary.write_text("new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_replace_file_has_permissions_of_ordinary_file(tmp_path):
    before = os.umask(0o027)
    try:
        with replace_file(tmp_path / "a") as temporary:
            temporary.write_text("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_replace_file_accepts_longest_file_name(tmp_path):
    path = tmp_path / ("é" * 127)
    with replace_file(path) as temporary:
        temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def test_temporary_files_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    path = tmp_path / "out" / "a"
    killed = start_process(KILLED, path)
    out, _ = killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    folder = Path(out.strip())
    assert folder.is_dir()
    (orphan,) = path.parent.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    workspace._remove_orphans.cache_clear()
    with replace_file(path) as temporary:
        temporary.write_text("whole")
    assert not orphan.exists()
    with temporary_folder("test") as new_folder:
        assert not folder.exists()
        assert new_folder.is_dir()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(path.parent.iterdir()) == [path]


def test_temporary_files_of_live_processes_and_other_hosts_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own_folder = create_temporary_folder("test")
    other_host = tmp_path / "ragauge-test-000000-999999999-01234567"
    other_host.mkdir()
    (tmp_path / "ragauge-test").mkdir()
    workspace._remove_orphans.cache_clear()
    with temporary_folder("test"):
        assert {path.name for path in tmp_path.iterdir()} >= {own_folder.name, other_host.name, "ragauge-test"}


def test_atomic_write_to_pipe_keeps_the_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    with atomic_write(str(pipe)) as out:
        out.write(b"through the pipe")
    assert reader.communicate()[0] == b"through the pipe"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_atomic_write_folder_raises_error(tmp_path):
    with pytest.raises(BadInput, match="is a folder"), atomic_write(str(tmp_path)):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_cli_terminated_command_removes_temporary_folder(tmp_path, number):
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    # Under nohup SIGHUP is ignored, and child processes inherit that.
    code = f"import signal; signal.signal({int(number)}, signal.SIG_DFL); from ragauge.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "stress",
        "--store",
        "sqlite-vec",
        "--corpus",
        "pydocs",
        "--mode",
        "one by one",
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "tmp").glob("ragauge-stress-*/work")):
        pass
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_atomic_write_nested_writers_each_write_whole_file(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"
    with atomic_write(path) as outer:
        outer.write(b"first half, ")
        with atomic_write(path) as inner:
            inner.write(b"inner\n")
        assert InputFile(str(path)).read() == b"inner\n"
        outer.write(b"second half\n")
    assert InputFile(str(path)).read() == b"first half, second half\n"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_syncs_file_before_rename(tmp_path, monkeypatch):
    calls = []

    def record_sync(file):
        calls.append(("fsync", os.fstat(file).st_size))

    def record_replace(source, target):
        calls.append(("replace", Path(source).stat().st_size))

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    with atomic_write(tmp_path / "a") as out:
        out.write(b"x" * 5)
    assert calls == [("fsync", 5), ("replace", 5)]


def test_replace_folder_replaces_old_folder_only_when_complete(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(RuntimeError), replace_folder(target):
        raise RuntimeError
    assert [path.name for path in target.iterdir()] == ["old"]
    with replace_folder(target) as partial_folder:
        (partial_folder / "new").touch()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_write_to_terminal_has_no_escape_sequences(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdout", open(os.dup(1), "w"))  # noqa: SIM115 - closed below
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda shown=is_terminal: shown)
        with atomic_write("-") as out:
            out.write("q1\t\x1b]0;é\x07\n".encode())
        sys.stdout.flush()
    sys.stdout.close()
    assert capfd.readouterr().out == "q1\t\ufffd]0;é\ufffd\nq1\t\x1b]0;é\x07\n"
