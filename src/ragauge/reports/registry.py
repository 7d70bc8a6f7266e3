"""Registry of reports: how every type of result is shown and written, found by the schema of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ragauge.comparison.results import Overview
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.core.record_types import RESULT_MODULES, ResultModules, import_reporter, record_type_of
from ragauge.files.serialization import detect_schema, read_records, to_json, to_json_data
from ragauge.output.chart_files import write_charts
from ragauge.output.csv import csv_header, render_csv
from ragauge.output.formats import OutputFormat, format_for_path, write_format
from ragauge.output.latex import render_latex
from ragauge.output.markdown import render_markdown
from ragauge.output.numbers import join_with_and
from ragauge.output.page import render_page
from ragauge.output.page_assets import load_vega_script
from ragauge.output.report import Report, ResultReporter, TableBuilder, collect_charts

Results = Sequence[Result]
STORED_RESULT_COMMANDS = tuple(modules.command for modules in RESULT_MODULES.values())
"""Commands whose JSON `ragauge report` reads."""


def find_result_modules(result_type: type[Any]) -> ResultModules:
    """Return the modules of a result type.

    Raises `TypeError` if the type is not registered.
    """
    record_type = record_type_of(result_type)
    if record_type is None or record_type.schema not in RESULT_MODULES:
        raise TypeError(f"{result_type.__name__} is not in ragauge.core.record_types.RESULT_MODULES")
    return RESULT_MODULES[record_type.schema]


def load_reporter(result_type: type[Any]) -> ResultReporter:
    """Import the module that reports results of this type, and return its reporter."""
    reporter = import_reporter(result_type)
    if not isinstance(reporter, ResultReporter):
        raise TypeError(f"the reporter of {result_type.__name__} is not a ResultReporter")
    return reporter


def build_reports(results: Results) -> list[Report]:
    """Build the reports of results, after reports that compare several of one type."""
    by_type: dict[type[Any], list[Result]] = {}
    for result in results:
        by_type.setdefault(type(result), []).append(result)
    comparisons = []
    for result_type, several in by_type.items():
        build_comparison = load_reporter(result_type).build_comparison
        if build_comparison is not None and len(several) > 1:
            comparisons.append(build_comparison(several))
    return [*comparisons, *(load_reporter(type(result)).build_report(result) for result in results)]


def find_formats(result_type: type[Any]) -> dict[str, OutputFormat[Results]]:
    """Return the formats in which results of this type can be written, by name.

    If several share a file ending, the ending selects the first.
    """
    tables = {
        name: OutputFormat(".csv", table.about, partial(_tables_to_csv, name))
        for name, table in load_reporter(result_type).tables.items()
    }
    return {**REPORT_FORMATS, **tables}


def _tables_to_csv(name: str, results: Results) -> str:
    """Return one table of several results of one type as CSV."""
    commands = sorted({find_result_modules(type(result)).command for result in results})
    if len(commands) > 1:
        raise BadInput(
            f"one table cannot contain results of {join_with_and(commands)}", hint="write .html or .md instead"
        )
    builders: list[TableBuilder] = [load_reporter(type(result)).tables[name] for result in results]
    tables = [builder.build(result) for builder, result in zip(builders, results, strict=True)]
    if any(csv_header(table) != csv_header(tables[0]) for table in tables):
        raise BadInput("these results have different columns", hint="write a table for each")
    return render_csv(replace(tables[0], rows=[row for table in tables for row in table.rows]))


def _results_to_json(results: Results) -> str:
    """Return results as JSON; those that are joined to an overview follow it in a list."""
    parts = [part for result in results for part in (result, *_joined_results(result))]
    if len(parts) == 1:
        return to_json(parts[0], _supply_texts(parts[0]))
    return to_json([to_json_data(part, _supply_texts(part)) for part in parts])


def _joined_results(result: Result) -> Results:
    return result.joined if isinstance(result, Overview) else ()


def _supply_texts(result: Result) -> Mapping[str, Any]:
    """Return the texts of a record that are not its fields: its summary."""
    record_type = record_type_of(type(result))
    if record_type is None or "summary" not in record_type.supplied:
        return {}
    return {"summary": load_reporter(type(result)).build_report(result).summary}


def _results_to_page(results: Results) -> str:
    return render_page(build_reports(results), load_vega_script)


def _render_reports(render: Callable[[Sequence[Report]], str], results: Results) -> str:
    return render(build_reports(results))


REPORT_FORMATS: Mapping[str, OutputFormat[Results]] = {
    "html": OutputFormat(".html", "one self-contained page", _results_to_page),
    "json": OutputFormat(".json", "everything, to be read again", _results_to_json),
    "markdown": OutputFormat(".md", "tables for a wiki or a pull request", partial(_render_reports, render_markdown)),
    "latex": OutputFormat(".tex", "tables for a paper (booktabs)", partial(_render_reports, render_latex)),
}
"""Formats of every result; each type has tables for CSV in addition."""


def write_results(
    results: Results,
    files: Sequence[str],
    format_name: str | None = None,
    charts: str | Path | None = None,
) -> None:
    """Write results to files in the named format, or in that of each file's ending.

    `charts` is a folder for every chart as SVG and PNG.
    """
    formats = find_formats(type(results[0]))
    for file, name in {file: format_for_path(file, format_name, formats) for file in files}.items():
        write_format(results, formats[name], file)
    if charts is not None:
        write_charts(collect_charts(build_reports(results)), Path(charts))


def is_result(value: Any) -> bool:
    """Return whether a value is of a result type that has a report."""
    record_type = record_type_of(type(value))
    return record_type is not None and record_type.schema in RESULT_MODULES


def is_result_file(path: str | Path) -> bool:
    """Return whether a file is JSON of a result; only its first bytes are read."""
    return detect_schema(path) is not None


def read_results(path: str | Path) -> list[Result]:
    """Read the results in a JSON file, usually one. Those after an overview are joined to it."""
    first_result, *other_results = read_records(path)
    return (
        [replace(first_result, joined=other_results)]
        if isinstance(first_result, Overview)
        else [first_result, *other_results]
    )
