"""Files of a benchmark: all output formats, the results folder of `bench`, and reading it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ragauge.benches.frontier import placed
from ragauge.errors import BadInput, MissingExtra
from ragauge.formats.documents import read_json
from ragauge.formats.files import Source
from ragauge.formats.layouts import ragdbeval, ragdbeval_sweeps
from ragauge.formats.nouns import from_data as noun_from_data
from ragauge.forms import Kind, kind_of, write_charts, written
from ragauge.reports.charts.sweeps import drawn
from ragauge.reports.page.sweep import page
from ragauge.reports.sweeps_csv import filters_csv, loads_csv, points_csv
from ragauge.reports.sweeps_data import SCHEMA, as_data
from ragauge.reports.sweeps_latex import latex
from ragauge.reports.sweeps_markdown import markdown
from ragauge.sweeps import Sweep
from ragauge.vega import vega

KEPT = "sweep.json"
"""Name of the file in the results folder that contains everything."""
HEAD = 200
"""Number of characters at the start of a file that are searched for the schema."""


def _json(sweep: Sweep) -> str:
    return json.dumps(as_data(sweep), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


KINDS: Mapping[str, Kind[Sweep]] = {
    "html": Kind(".html", "one self-contained page", lambda found: page(found, vega())),
    "json": Kind(".json", "everything, by a published schema", _json),
    "csv": Kind(".csv", "a row for each configuration", points_csv),
    "loads": Kind(".csv", "a row for each load of each configuration", loads_csv),
    "filters": Kind(".csv", "a row for each filter of each configuration", filters_csv),
    "markdown": Kind(".md", "tables for a wiki or a pull request", markdown),
    "latex": Kind(".tex", "a table for a paper: booktabs, best in bold", latex),
    "ragdbeval": Kind(".json", "RAGdbEval's results", ragdbeval_sweeps.write),
    "ragdbeval-csv": Kind(".csv", "RAGdbEval's table", ragdbeval_sweeps.write_csv),
}
"""Output formats by name; an ending selects the first format with it."""


def kinds_for(convention: str | None, form: str | None) -> Mapping[str, Kind[Sweep]]:
    """Return the output formats of a benchmark.

    A convention defines the quality columns of RAGdbEval's layout. Raises BadInput if it does not apply.
    """
    if convention is None:
        return KINDS
    layouts = {"ragdbeval": ragdbeval_sweeps.write, "ragdbeval-csv": ragdbeval_sweeps.write_csv}
    followed = convention.strip().lower().replace("_", "-")
    if form not in layouts or followed not in ragdbeval.MEASURES:
        raise BadInput(
            f"--convention applies to RAGdbEval's layout of a benchmark only; expected --as {' or '.join(layouts)} "
            f"with {' or '.join(ragdbeval.MEASURES)}, got --convention {convention}"
            + (f" --as {form}" if form is not None else ""),
            hint=f"--as ragdbeval-csv --convention {ragdbeval.DOCUMENT}",
        )
    return {
        **KINDS,
        **{name: KINDS[name]._replace(write=partial(write, convention=followed)) for name, write in layouts.items()},
    }


def describe_convention(sweep: Sweep, form: str | None, convention: str | None) -> list[str]:
    """Return a note on the convention of the quality columns in RAGdbEval's layout."""
    if form not in ("ragdbeval", "ragdbeval-csv"):
        return []
    known = sweep.true_neighbours or "all"
    if (convention or ragdbeval.CODE).lower() == ragdbeval.DOCUMENT:
        return [
            f"convention {ragdbeval.DOCUMENT} (RAGdbEval's document): recall@k is over {known} exact neighbours, "
            f"precision@k over k; --convention {ragdbeval.CODE} follows its code"
        ]
    return [
        f"convention {ragdbeval.CODE} (RAGdbEval's code): recall@k is over min(k, {known}) exact neighbours, "
        f"precision@k over what was returned; --convention {ragdbeval.DOCUMENT} follows its document"
    ]


def write(
    sweep: Sweep,
    files: Sequence[str],
    form: str | None = None,
    charts: str | Path | None = None,
    *,
    convention: str | None = None,
) -> None:
    """Write a benchmark to files, and its charts to a folder.

    The format of a file is `form`, or is chosen by its ending. `convention` defines the quality columns of RAGdbEval's
    layout: `ragdbeval-capped` (its code, the default) or `ragdbeval` (its document).
    """
    known = kinds_for(convention, form)
    kinds = {file: kind_of(file, form, known) for file in files}
    for file, kind in kinds.items():
        written(sweep, known[kind], file)
    if charts is not None:
        write_charts(drawn(sweep), Path(charts))


def write_folder(sweep: Sweep, folder: Path) -> tuple[list[str], list[str]]:
    """Write all files of the results folder.

    Returns the names of the files, and notes on those that could not be written.
    """
    wanted = {"json": KEPT, "csv": "points.csv", "markdown": "report.md", "html": "report.html"}
    if any(one.loads for one in sweep.points):
        wanted["loads"] = "loads.csv"
    if any(one.filters for one in sweep.points):
        wanted["filters"] = "filters.csv"
    files, notes = [], []
    for kind, name in wanted.items():
        try:
            written(sweep, KINDS[kind], folder / name)
            files.append(name)
        except MissingExtra as missing:
            notes.append(f"no {name}: {missing.message} ({missing.hint})")
    return files, notes


def found_in(path: str) -> str | None:
    """Return the benchmark file at a path, which may be a results folder.

    None if there is none.
    """
    place = Path(path)
    if place.is_dir():
        place = place / KEPT
    if place.suffix != ".json" or not place.is_file():
        return None
    with place.open(encoding="utf-8", errors="replace") as file:
        return str(place) if f'"{SCHEMA.partition("/")[0]}/' in file.read(HEAD) else None


def read_sweep(path: str) -> Sweep:
    """Read a benchmark, and compute its frontiers again.

    Earlier versions labelled some series differently.
    """
    return placed(from_data(read_json(Source(path)), file=path))


def from_data(data: Any, file: str | None = None) -> Sweep:
    """Build a benchmark from its JSON data; derived values are computed again."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        told = data.get("schema") if isinstance(data, Mapping) else None
        raise BadInput(
            f"this is not a benchmark; expected the schema {SCHEMA!r}, got {told!r}",
            file=file,
            hint="sweep.json of `ragauge bench`",
        )
    return noun_from_data(Sweep, data, file=file or "sweep.json")
