"""Import rule: a module imports only its own package, earlier layers, and packages to the left in its own layer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ragauge"
LAYERS = [
    ["core"],
    ["files", "compute", "output"],
    ["measures", "stats", "evaluation", "fusion"],
    ["datasets", "models", "stores", "systems"],
    ["runs"],
    "comparison gates judging audits knowledge experiments store_benchmarks store_stress embedder_study".split(),  # noqa: SIM905
    ["reports", "cli"],
]
ORDER = [package for layer in LAYERS for package in layer]


def imported_packages(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("ragauge."):
            yield from [node.module.split(".")[1]] if node.module != "ragauge" else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ragauge."))


@pytest.mark.parametrize("package", ORDER)
def test_package_imports_only_earlier_packages(package):
    allowed = set(ORDER[: ORDER.index(package) + 1]) | {"__version__"}
    for path in (SOURCE / package).rglob("*.py"):
        assert set(imported_packages(path)) <= allowed, path
