"""JavaScript of Vega for HTML pages, cached between runs because bundling it is slow."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ragauge.errors import BadInput
from ragauge.formats.writing import whole_file
from ragauge.reports.page import bundle
from ragauge.systems.cache import cache_folder


@cache
def vega() -> str:
    """Load the Vega script from the cache, or bundle and cache it.

    A cached script is used if it is complete and of the installed version.
    """
    try:
        path = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    except PackageNotFoundError:
        return bundle()
    kept = _kept(path)
    if kept is not None:
        return kept
    script = bundle()
    with suppress(OSError, BadInput), whole_file(str(path)) as file:  # the cache is optional
        file.write(f"{_hash(script)}\n{script}".encode())
    return script


def _kept(path: Path) -> str | None:
    try:
        told, _, script = path.read_bytes().decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if told == _hash(script) else None


def _hash(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()
