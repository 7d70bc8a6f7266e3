"""Every recorded output is what the present code computes, and every recorded folder still opens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "goldens"))

from cases import CASES
from record import compare_case, output_file, reason_to_skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recorded_output_is_reproduced(case):
    if why := reason_to_skip(case):
        pytest.skip(why)
    found = compare_case(case)
    assert not found, "\n".join(found[:20])


def test_every_recorded_output_has_a_case():
    recorded = {path.name for path in output_file(CASES[0]).parent.glob("*.json")}
    assert recorded == {output_file(case).name for case in CASES}
