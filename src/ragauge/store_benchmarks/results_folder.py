"""Results folder of a benchmark: the names of its files, and reading it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ragauge.files.serialization import detect_schema
from ragauge.store_benchmarks.results import StoreBenchmark

RESULT_FILES: Mapping[str, str] = {
    "json": "sweep.json",
    "csv": "points.csv",
    "markdown": "report.md",
    "html": "report.html",
    "loads": "loads.csv",
    "filters": "filters.csv",
}
"""Files of the results folder by the name of their format."""


def list_result_files(result: StoreBenchmark) -> dict[str, str]:
    """Return the files that a benchmark has results for, by the name of their format."""
    empty = set()
    if not any(point.loads for point in result.points):
        empty.add("loads")
    if not any(point.filters for point in result.points):
        empty.add("filters")
    return {name: file for name, file in RESULT_FILES.items() if name not in empty}


def find_benchmark_file(path: str | Path) -> str | None:
    """Return the JSON file of a benchmark at a path, which may be a results folder; None if there is none."""
    file = Path(path)
    if file.is_dir():
        file = file / RESULT_FILES["json"]
    return str(file) if detect_schema(file) == "ragauge-sweep" else None
