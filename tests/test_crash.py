"""A few kills per command, at random moments: `make crash N=20` makes more."""

from __future__ import annotations

import random

import pytest

from crash import JOBS, crash

KILLS = 2


@pytest.mark.slow
@pytest.mark.parametrize("command", JOBS)
def test_command_killed_at_random_ends_with_the_uninterrupted_result(command, tmp_path_factory):
    seed = random.SystemRandom().randrange(10**6)
    folder = tmp_path_factory.mktemp("crash")
    for outcome in crash(command, KILLS, seed, folder):
        again = f"python tests/jobs/crash.py {KILLS} --seed {seed} --only {command}"
        assert outcome.problems == [], (outcome.kills, again, str(folder))
