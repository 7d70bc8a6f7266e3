"""Recorded outputs: the current code computes the same values and opens every recorded folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "goldens"))

from cases import CASES
from record import compare_case, find_skip_reason, output_path

SLOW_COMMANDS = {"audit", "embedders", "gain", "report", "run"}
"""Commands whose cases take more than two seconds each; the small ones of `report` are in the contributor's suite."""


def case_parameter(case):
    is_slow = case.name.partition("-")[0] in SLOW_COMMANDS and not case.name.startswith("report-toy")
    return pytest.param(case, id=case.name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("case", [case_parameter(case) for case in CASES])
def test_golden_case_matches_recorded_output(case):
    if reason := find_skip_reason(case):
        pytest.skip(reason)
    differences = compare_case(case)
    assert not differences, "\n".join(differences[:20])


def test_golden_files_match_cases():
    recorded = {path.name for path in output_path(CASES[0]).parent.glob("*.json")}
    assert recorded == {output_path(case).name for case in CASES}
