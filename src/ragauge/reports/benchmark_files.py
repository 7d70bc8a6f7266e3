"""Write a store benchmark in every format, including the layouts of other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ragauge.core.errors import BadInput
from ragauge.output.formats import OutputFormat, format_for_path, write_charts, write_format
from ragauge.reports.layouts import ragdbeval
from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts
from ragauge.store_benchmarks.results import StoreBenchmark
from ragauge.store_benchmarks.results_folder import BENCHMARK_FORMATS

BENCHMARK_LAYOUTS: Mapping[str, OutputFormat[StoreBenchmark]] = {
    "ragdbeval": OutputFormat(".json", "RAGdbEval's results", ragdbeval.render_benchmark_json),
    "ragdbeval-csv": OutputFormat(".csv", "RAGdbEval's table", ragdbeval.render_benchmark_csv),
}
"""Layouts of other tools that a benchmark can be written in."""


def select_formats(convention: str | None, form: str | None) -> Mapping[str, OutputFormat[StoreBenchmark]]:
    """Return the output formats of a benchmark.

    A convention defines the quality columns of RAGdbEval's layout. Raises BadInput if it does not apply.
    """
    if convention is None:
        return {**BENCHMARK_FORMATS, **BENCHMARK_LAYOUTS}
    layouts = {"ragdbeval": ragdbeval.render_benchmark_json, "ragdbeval-csv": ragdbeval.render_benchmark_csv}
    followed = convention.strip().lower().replace("_", "-")
    if form not in layouts or followed not in ragdbeval.MEASURES_BY_CONVENTION:
        raise BadInput(
            f"--convention applies to RAGdbEval's layout of a benchmark only; expected --format {' or '.join(layouts)} "
            f"with {' or '.join(ragdbeval.MEASURES_BY_CONVENTION)}, got --convention {convention}"
            + (f" --format {form}" if form is not None else ""),
            hint=f"--format ragdbeval-csv --convention {ragdbeval.DOCUMENT_CONVENTION}",
        )
    return {
        **BENCHMARK_FORMATS,
        **{
            name: BENCHMARK_LAYOUTS[name]._replace(write=partial(write, convention=followed))
            for name, write in layouts.items()
        },
    }


def describe_convention(sweep: StoreBenchmark, form: str | None, convention: str | None) -> list[str]:
    """Return a note on the convention of the quality columns in RAGdbEval's layout."""
    if form not in ("ragdbeval", "ragdbeval-csv"):
        return []
    known = sweep.true_neighbours or "all"
    if (convention or ragdbeval.CODE_CONVENTION).lower() == ragdbeval.DOCUMENT_CONVENTION:
        return [
            f"convention {ragdbeval.DOCUMENT_CONVENTION} (RAGdbEval's document): recall@k is over {known} exact "
            f"neighbours, "
            f"precision@k over k; --convention {ragdbeval.CODE_CONVENTION} follows its code"
        ]
    return [
        f"convention {ragdbeval.CODE_CONVENTION} (RAGdbEval's code): recall@k is over min(k, {known}) exact "
        f"neighbours, "
        f"precision@k over what was returned; --convention {ragdbeval.DOCUMENT_CONVENTION} follows its document"
    ]


def write_benchmark(
    sweep: StoreBenchmark,
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
    known = select_formats(convention, form)
    kinds = {file: format_for_path(file, form, known) for file in files}
    for file, kind in kinds.items():
        write_format(sweep, known[kind], file)
    if charts is not None:
        write_charts(draw_benchmark_charts(sweep), Path(charts))
