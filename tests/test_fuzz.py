"""Fuzzing: mutated files and folders of every format raise only errors of `ragauge.core.errors`.

The seed is fixed, so that the test is reproducible; `make fuzz` uses a new seed each time.
"""

from __future__ import annotations

import pytest

from fuzz import TARGETS, fuzz

SEED = 2620


@pytest.mark.slow
def test_fuzz_mutated_files_raise_only_ragauge_errors():
    failures = fuzz(2000, SEED, processes=2)
    details = "\n".join(
        f"{failure.target}: {failure.error}\n"
        f"  python tests/jobs/fuzz.py --again {SEED}:{failure.index}\n{failure.traceback[-600:]}"
        for failure in failures
    )
    assert not failures, f"seed {SEED}: {len(failures)} of 2,000 inputs failed\n{details}"


def test_fuzz_targets_are_unique_and_have_weights():
    assert len({target.name for target in TARGETS}) == len(TARGETS) > 150
    assert all(target.weight > 0 for target in TARGETS)
