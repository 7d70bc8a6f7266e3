"""Mutated files and folders of every format: anything but an error of `ragauge.core.errors` fails."""

from __future__ import annotations

import os
import time

import pytest

from fuzz import TARGETS, fuzz

SEED = int(os.environ.get("FUZZ_SEED", time.time_ns() // 10**9))


@pytest.mark.slow
def test_hostile_files_raise_nothing_but_our_errors():
    failures = fuzz(2000, SEED, processes=2)
    told = "\n".join(
        f"{one.target}: {one.error}\n  python tests/jobs/fuzz.py --again {SEED}:{one.index}\n{one.traceback[-600:]}"
        for one in failures
    )
    assert not failures, f"seed {SEED}: {len(failures)} of 2,000 inputs failed\n{told}"


def test_every_target_is_chosen():
    assert len({target.name for target in TARGETS}) == len(TARGETS) > 150
    assert all(target.weight > 0 for target in TARGETS)
