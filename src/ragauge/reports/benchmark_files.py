"""reports.benchmark_files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ragauge.core.errors import BadInput
from ragauge.output.formats import Kind, kind_of, write_charts, written
from ragauge.reports.layouts import ragdbeval
from ragauge.store_benchmarks.load_and_cost_charts import drawn
from ragauge.store_benchmarks.results import Sweep
from ragauge.store_benchmarks.results_folder import KINDS

LAYOUTS: Mapping[str, Kind[Sweep]] = {
    "ragdbeval": Kind(".json", "RAGdbEval's results", ragdbeval.write_benchmark),
    "ragdbeval-csv": Kind(".csv", "RAGdbEval's table", ragdbeval.write_benchmark_csv),
}
"""Layouts of other tools that a benchmark can be written in."""


def kinds_for(convention: str | None, form: str | None) -> Mapping[str, Kind[Sweep]]:
    """Return the output formats of a benchmark.

    A convention defines the quality columns of RAGdbEval's layout. Raises BadInput if it does not apply.
    """
    if convention is None:
        return {**KINDS, **LAYOUTS}
    layouts = {"ragdbeval": ragdbeval.write_benchmark, "ragdbeval-csv": ragdbeval.write_benchmark_csv}
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
        **{name: LAYOUTS[name]._replace(write=partial(write, convention=followed)) for name, write in layouts.items()},
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
