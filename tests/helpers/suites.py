"""Test suites: the markers of expensive tests, derived from the fixtures and stores that a test uses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURE_CAUSES = {"browser": "browser", "workers": "cluster", "dsn": "server"}
"""Marker of every test that uses a fixture."""
STORE_CONTRACTS = {"test_store_contract.py", "test_document_store_contract.py"}
CHEAP_STORES = {"exact", "memory"}
"""Stores without an engine, which stay in the contributor's suite with every test."""
REPRESENTATIVE_STORES = {"faiss-hnsw", "sqlite-vec"}
"""A library and a database that run the whole contract in the contributor's suite."""
COLLECTED = pytest.StashKey[dict[str, set[str]]]()
"""Markers of every collected test by its id, before any is deselected."""


def mark_expensive(item: pytest.Item) -> None:
    """Add the markers that follow from the fixtures and the store of a test."""
    for fixture in getattr(item, "fixturenames", ()):
        if fixture in FIXTURE_CAUSES:
            item.add_marker(FIXTURE_CAUSES[fixture])
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.path.name not in STORE_CONTRACTS:
        return
    store = callspec.params.get("name")
    if isinstance(store, str) and store not in CHEAP_STORES:
        item.add_marker("engine")
        if store in REPRESENTATIVE_STORES:
            item.add_marker("representative")


def read_markers() -> set[str]:
    """Read the names of the registered markers."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        registered = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    return {line.partition(":")[0] for line in registered}


def read_expressions() -> dict[str, str]:
    """Read the marker expressions of the Makefile, with their variables replaced."""
    expressions: dict[str, str] = {}
    for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"(EXPENSIVE|CONTRIBUTOR|REST) := (.+)", line):
            expressions[match[1]] = re.sub(r"\$\((\w+)\)", lambda name: expressions[name[1]], match[2])
    return expressions


def is_selected(expression: str, markers: set[str], known: set[str]) -> bool:
    """Evaluate a marker expression as `pytest -m` does."""
    return bool(eval(expression, {"__builtins__": {}}, {name: name in markers for name in known}))
