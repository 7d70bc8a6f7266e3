"""Layouts of RAGdbEval that a store benchmark can be written in, by convention of their quality columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.output.formats import OutputFormat, only_result
from ragauge.reports.layouts import ragdbeval
from ragauge.store_benchmarks.results import StoreBenchmark


def build_layouts(convention: str) -> dict[str, OutputFormat[Sequence[Result]]]:
    """Return the layouts with quality columns of a convention."""

    def write_json(results: Sequence[Result]) -> str:
        return ragdbeval.render_benchmark_json(only_result(results, StoreBenchmark), convention)

    def write_csv(results: Sequence[Result]) -> str:
        return ragdbeval.render_benchmark_csv(only_result(results, StoreBenchmark), convention)

    return {
        "ragdbeval": OutputFormat(".json", "RAGdbEval's results", write_json),
        "ragdbeval-csv": OutputFormat(".csv", "RAGdbEval's table", write_csv),
    }


BENCHMARK_LAYOUTS: Mapping[str, OutputFormat[Sequence[Result]]] = build_layouts(ragdbeval.CODE_CONVENTION)


def select_layouts(convention: str | None, format_name: str | None) -> Mapping[str, OutputFormat[Sequence[Result]]]:
    """Return the layouts that a convention applies to.

    Raises BadInput if the convention is not one of RAGdbEval, or the format is not one of its layouts.
    """
    if convention is None:
        return BENCHMARK_LAYOUTS
    followed = convention.strip().lower().replace("_", "-")
    if format_name not in BENCHMARK_LAYOUTS or followed not in ragdbeval.MEASURES_BY_CONVENTION:
        raise BadInput(
            f"--convention applies to RAGdbEval's layout of a benchmark only; expected --format "
            f"{' or '.join(BENCHMARK_LAYOUTS)} with {' or '.join(ragdbeval.MEASURES_BY_CONVENTION)}, got --convention "
            f"{convention}" + (f" --format {format_name}" if format_name is not None else ""),
            hint=f"--format ragdbeval-csv --convention {ragdbeval.DOCUMENT_CONVENTION}",
        )
    return build_layouts(followed)


def describe_convention(result: Result, format_name: str | None, convention: str | None) -> list[str]:
    """Return a note on the convention of the quality columns in RAGdbEval's layout."""
    if not isinstance(result, StoreBenchmark) or format_name not in BENCHMARK_LAYOUTS:
        return []
    neighbours = result.true_neighbours or "all"
    if (convention or ragdbeval.CODE_CONVENTION).lower() == ragdbeval.DOCUMENT_CONVENTION:
        return [
            f"convention {ragdbeval.DOCUMENT_CONVENTION} (RAGdbEval's document): recall@k is over {neighbours} exact "
            f"neighbours, precision@k over k; --convention {ragdbeval.CODE_CONVENTION} follows its code"
        ]
    return [
        f"convention {ragdbeval.CODE_CONVENTION} (RAGdbEval's code): recall@k is over min(k, {neighbours}) exact "
        f"neighbours, precision@k over what was returned; --convention {ragdbeval.DOCUMENT_CONVENTION} follows its "
        "document"
    ]
