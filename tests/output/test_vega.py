"""The cached Vega script: a damaged cache is replaced, and an unwritable cache is ignored."""

from __future__ import annotations

import hashlib

import pytest

from ragauge.output.page_assets import load_vega_script, vega_script


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path))
    load_vega_script.cache_clear()
    yield tmp_path
    load_vega_script.cache_clear()


def test_load_vega_script_is_cached(cache):
    assert load_vega_script() == vega_script()
    (cached,) = cache.iterdir()
    script = "a script of the same length"
    digest = hashlib.sha256(script.encode()).hexdigest()
    cached.write_text(f"{digest}\n{script}")
    load_vega_script.cache_clear()
    assert load_vega_script() == script


@pytest.mark.parametrize("damage", [b"", b"0" * 64 + b"\nalert(1)", b"\xff\xfe", None])
def test_load_vega_script_damaged_cache_is_replaced(cache, damage):
    load_vega_script()
    (cached,) = cache.iterdir()
    cached.write_bytes(cached.read_bytes()[:-100] if damage is None else damage)
    load_vega_script.cache_clear()
    assert load_vega_script() == vega_script()


def test_load_vega_script_unwritable_cache_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "file"))
    load_vega_script.cache_clear()
    assert load_vega_script() == vega_script()
    load_vega_script.cache_clear()
