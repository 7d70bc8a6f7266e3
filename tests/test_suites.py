"""Test suites of the Makefile: each test runs in exactly one of `make test` and `make test-rest`."""

from __future__ import annotations

import pytest

from suites import COLLECTED, ROOT, is_selected, read_expressions, read_markers


def test_makefile_expensive_markers_match_registered_markers():
    assert set(read_expressions()["EXPENSIVE"].split(" or ")) == read_markers() - {"representative"}


def test_suites_select_every_collected_test_once(request):
    expressions, known = read_expressions(), read_markers()
    for name, markers in request.config.stash[COLLECTED].items():
        suites = [suite for suite in ("CONTRIBUTOR", "REST") if is_selected(expressions[suite], markers, known)]
        assert len(suites) == 1, (name, suites)


def test_representatives_cover_every_expensive_marker(request):
    collected = request.config.stash[COLLECTED]
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    if not files <= {name.partition("::")[0] for name in collected}:
        pytest.skip("only a part of the tests was collected")
    chosen = set().union(*(markers for markers in collected.values() if "representative" in markers))
    assert read_markers() - {"slow"} <= chosen


def test_representatives_are_expensive(request):
    expensive = read_expressions()["EXPENSIVE"].split(" or ")
    for name, markers in request.config.stash[COLLECTED].items():
        assert "representative" not in markers or markers.intersection(expensive), name
