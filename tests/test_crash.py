"""Crash safety: each command is killed twice at moments of a fixed seed; `make crash N=20` uses new seeds."""

from __future__ import annotations

import pytest

from crash import JOBS, crash

KILLS = 2
SEED = 7


@pytest.mark.crash
@pytest.mark.parametrize("command", JOBS)
def test_command_killed_at_random_resumes_to_uninterrupted_result(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("crash")
    for outcome in crash(command, KILLS, SEED, folder):
        repeat_command = f"python tests/jobs/crash.py {KILLS} --seed {SEED} --only {command}"
        assert outcome.problems == [], (outcome.kills, repeat_command, str(folder))
