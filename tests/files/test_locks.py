"""Locks of working folders: every command that writes into a folder holds its lock, `--fresh` included."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ragauge.core.errors import BadInput
from ragauge.experiments.run import run
from ragauge.files.workspace import LOCK_FILE, hold_folder
from ragauge.judging.judge import judge
from result_folders import DATA, make_system

BUSY = "another process is working in this folder"
GOOD = make_system([1] * 30)
HOLD = """
import sys
from ragauge.files.workspace import hold_folder
with hold_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process():
    """Return a function that starts and returns a process that holds the lock of a folder until it is killed."""
    started = []

    def hold(folder):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def test_hold_folder_refuses_a_second_process_until_the_first_is_killed(tmp_path, other_process):
    process = other_process(tmp_path / "F")
    with pytest.raises(BadInput, match=BUSY), hold_folder(tmp_path / "F"):
        pass
    process.kill()
    process.wait()
    with hold_folder(tmp_path / "F"):
        assert (tmp_path / "F" / LOCK_FILE).exists()
    assert not (tmp_path / "F" / LOCK_FILE).exists()


def test_hold_folder_shared_excludes_only_exclusive_holders(tmp_path):
    with hold_folder(tmp_path, shared=True):
        with hold_folder(tmp_path, shared=True):
            pass
        with pytest.raises(BadInput, match=BUSY), hold_folder(tmp_path):
            pass
    with hold_folder(tmp_path), pytest.raises(BadInput, match=BUSY), hold_folder(tmp_path, shared=True):
        pass
    assert list(tmp_path.iterdir()) == []


def test_hold_folder_removes_a_folder_that_stays_empty(tmp_path):
    with hold_folder(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()


def test_run_fresh_respects_the_lock_of_another_process(tmp_path, other_process):
    journal_folder = tmp_path / "good"
    journal_folder.mkdir()
    (journal_folder / "journal.jsonl").write_text('{"purpose": {}}\n')
    other_process(journal_folder)
    for fresh in (True, False):
        with pytest.raises(BadInput, match=BUSY):
            run(DATA, {"good": GOOD}, out=tmp_path, warmup=0, fresh=fresh)
    assert (journal_folder / "journal.jsonl").read_text() == '{"purpose": {}}\n'
    result = run(DATA, {"other": GOOD}, out=tmp_path, warmup=0)  # another system can still be run
    assert list(result.scores) == ["other"]


def test_run_respects_the_lock_of_another_process(tmp_path, other_process):
    other_process(tmp_path)
    with pytest.raises(BadInput, match=BUSY):
        run(DATA, {"good": GOOD}, out=tmp_path, warmup=0)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_judge_respects_the_lock_of_another_process(tmp_path, other_process):
    other_process(tmp_path / "F")
    samples = [{"id": "s1", "question": "How high?", "answer": "330 m.", "contexts": ["It is 330 m high."]}]
    with pytest.raises(BadInput, match=BUSY):
        judge(samples, ["faithfulness"], folder=tmp_path / "F")
