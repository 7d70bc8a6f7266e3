"""A sweep as files: in every form that it can be written in, and read again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragauge.errors import MissingExtra
from ragauge.formats.documents import read_json
from ragauge.formats.files import Source
from ragauge.formats.layouts import ragdbeval_sweeps
from ragauge.forms import Kind, kind_of, write_charts, written
from ragauge.reports.charts.sweeps import drawn
from ragauge.reports.page.sweep import page
from ragauge.reports.sweeps_csv import loads_csv, points_csv
from ragauge.reports.sweeps_data import SCHEMA, as_data, from_data
from ragauge.reports.sweeps_latex import latex
from ragauge.reports.sweeps_markdown import markdown
from ragauge.sweeps import Sweep
from ragauge.vega import vega

KEPT = "sweep.json"
"""The file in a folder of `bench` that has everything."""
HEAD = 200
"""So many characters tell what a file is."""


def _json(sweep: Sweep) -> str:
    return json.dumps(as_data(sweep), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


KINDS: Mapping[str, Kind[Sweep]] = {
    "html": Kind(".html", "one self-contained page", lambda found: page(found, vega())),
    "json": Kind(".json", "everything, by a published schema", _json),
    "csv": Kind(".csv", "a row for each configuration", points_csv),
    "loads": Kind(".csv", "a row for each load of each configuration", loads_csv),
    "markdown": Kind(".md", "tables for a wiki or a pull request", markdown),
    "latex": Kind(".tex", "a table for a paper: booktabs, best in bold", latex),
    "ragdbeval": Kind(".json", "RAGdbEval's results", ragdbeval_sweeps.write),
    "ragdbeval-csv": Kind(".csv", "RAGdbEval's table", ragdbeval_sweeps.write_csv),
}
"""By name; of several with the same ending, that ending means the first."""


def write(sweep: Sweep, files: Sequence[str], form: str | None = None, charts: str | Path | None = None) -> None:
    """Write files, each in the form that its ending or `form` says, and every chart into a folder."""
    kinds = {file: kind_of(file, form, KINDS) for file in files}
    for file, kind in kinds.items():
        written(sweep, KINDS[kind], file)
    if charts is not None:
        write_charts(drawn(sweep), Path(charts))


def write_folder(sweep: Sweep, folder: Path) -> tuple[list[str], list[str]]:
    """Everything that `bench` leaves; the names of the files, and notes on those that could not be made."""
    wanted = {"json": KEPT, "csv": "points.csv", "markdown": "report.md", "html": "report.html"}
    if any(one.loads for one in sweep.points):
        wanted["loads"] = "loads.csv"
    files, notes = [], []
    for kind, name in wanted.items():
        try:
            written(sweep, KINDS[kind], folder / name)
            files.append(name)
        except MissingExtra as missing:
            notes.append(f"no {name}: {missing.message} ({missing.hint})")
    return files, notes


def found_in(path: str) -> str | None:
    """The file of a sweep that a path leads to: a folder of `bench`, or the file itself; None where it is neither."""
    place = Path(path)
    if place.is_dir():
        place = place / KEPT
    if place.suffix != ".json" or not place.is_file():
        return None
    with place.open(encoding="utf-8", errors="replace") as file:
        return str(place) if f'"{SCHEMA.partition("/")[0]}/' in file.read(HEAD) else None


def read_sweep(path: str) -> Sweep:
    """The sweep of a file."""
    return from_data(read_json(Source(path)), file=path)
