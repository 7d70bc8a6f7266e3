"""Errors about missing libraries: each names a declared extra, and one module writes the install command."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from ragauge.core.errors import MissingExtra
from ragauge.core.plugins import REQUIRED_LIBRARIES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ragauge"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
OTHER_INSTALL_HINTS = {"core/errors.py"}
"""The mechanism itself."""


def find_missing_extras():
    """Yield the file and the extra of every `MissingExtra(…)` with a literal extra."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_error = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MissingExtra"
            if is_error and isinstance(node.args[1], ast.Constant):
                yield path.relative_to(SOURCE).as_posix(), node.args[1].value


def test_missing_extra_errors_name_declared_extras():
    found = dict(find_missing_extras())
    assert len(found) > 20
    assert set(found.values()) <= EXTRAS
    declared = {extra for plugins in REQUIRED_LIBRARIES.values() for extra, *_ in plugins.values() if extra}
    assert declared <= EXTRAS


def test_install_commands_are_written_in_one_module():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "pip install" in path.read_text(encoding="utf-8")
    }
    assert found <= OTHER_INSTALL_HINTS


@pytest.mark.parametrize("extra", ["report", "bench,audit"])
def test_missing_extra_hint_is_pip_command(extra):
    hint = MissingExtra("x", extra).hint
    assert hint.startswith("pip install ")
    assert hint.endswith(f"[{extra}]'")
