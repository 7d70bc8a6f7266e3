"""Vega's script, kept between runs."""

from __future__ import annotations

import hashlib

import pytest

from ragauge.output.page import bundle, vega


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    vega.cache_clear()
    yield tmp_path
    vega.cache_clear()


def test_it_is_made_once_and_then_kept(cache):
    assert vega() == bundle()
    (kept,) = cache.iterdir()
    other = "a script of the same length"
    told = hashlib.sha256(other.encode()).hexdigest()
    kept.write_text(f"{told}\n{other}")
    vega.cache_clear()
    assert vega() == other


@pytest.mark.parametrize("damage", [b"", b"0" * 64 + b"\nalert(1)", b"\xff\xfe", None])
def test_what_is_not_whole_is_made_again(cache, damage):
    vega()
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100] if damage is None else damage)
    vega.cache_clear()
    assert vega() == bundle()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "file"))
    vega.cache_clear()
    assert vega() == bundle()
    vega.cache_clear()
