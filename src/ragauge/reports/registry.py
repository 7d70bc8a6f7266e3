"""Registry of result types: their reports, output formats, and reading them from JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.embedder_study import report as embedder_study_report
from ragauge.embedder_study import tokenizer_report
from ragauge.embedder_study.report import render_long_csv
from ragauge.embedder_study.results import EmbedderStudy, TokenizerStudy
from ragauge.files.json_files import read_json
from ragauge.files.serialization import from_json_data, to_json_data
from ragauge.files.source import InputFile
from ragauge.knowledge.freshness import report
from ragauge.knowledge.freshness.results import Freshness
from ragauge.knowledge.gain import report as gain_report
from ragauge.knowledge.gain.results import Gain
from ragauge.knowledge.graph import report as graph_report
from ragauge.knowledge.graph.results import GraphAnalysis
from ragauge.knowledge.lint import report as lint_report
from ragauge.knowledge.lint.results import Lint
from ragauge.knowledge.novelty import report as novelty_report
from ragauge.knowledge.novelty.results import Novelty
from ragauge.output import report as output_report
from ragauge.output.formats import OutputFormat, format_for_path, write_charts, write_format
from ragauge.output.page import collect_charts, load_vega_script, render_report_page
from ragauge.output.report import Report
from ragauge.reports.layouts import tokenization
from ragauge.store_stress import report as store_stress_report
from ragauge.store_stress.results import StressTest

ReportableResult = Lint | Novelty | Gain | Freshness | StressTest | EmbedderStudy | TokenizerStudy | GraphAnalysis
"""Results that can be reported together with an overview of systems."""


class ReportBuilder(NamedTuple):
    """Result type with the functions that report it."""

    result_type: type[Any]
    build_report: Callable[[Any], Report]
    csv: Callable[[Any], str]
    derived: Sequence[str] = ()
    """Properties that are written to the JSON in addition to the fields."""
    joint: Callable[[Sequence[Any]], Report] | None = None
    """Builder of a report that compares several results of this type."""


REPORT_BUILDERS: Mapping[str, ReportBuilder] = {
    "lint": ReportBuilder(Lint, lint_report.build_report, lint_report.render_csv),
    "novelty": ReportBuilder(Novelty, novelty_report.build_report, novelty_report.render_csv),
    "gain": ReportBuilder(Gain, gain_report.build_report, gain_report.render_csv),
    "freshness": ReportBuilder(
        Freshness, report.build_report, report.render_csv, report.DERIVED_FIELDS, report.build_comparison_report
    ),
    "stress": ReportBuilder(
        StressTest,
        store_stress_report.build_report,
        store_stress_report.render_csv,
        ("read_back", "measures"),
        store_stress_report.build_comparison_report,
    ),
    "embedders": ReportBuilder(EmbedderStudy, embedder_study_report.build_report, embedder_study_report.render_csv),
    "tokenizers": ReportBuilder(TokenizerStudy, tokenizer_report.build_report, tokenizer_report.render_csv),
    "graph": ReportBuilder(GraphAnalysis, graph_report.build_report, graph_report.render_csv),
}
"""Report builders by the command that produces the result."""


def find_command_name(told: Result) -> str:
    """Return the name of the command that produced a result."""
    return next(verb for verb, form in REPORT_BUILDERS.items() if isinstance(told, form.result_type))


def build_report(told: Result) -> Report:
    """Build the report of a result."""
    return REPORT_BUILDERS[find_command_name(told)].build_report(told)


def build_joint_reports(several: Sequence[Result]) -> list[Report]:
    """Build a comparing report for each result type with several results."""
    found = []
    for form in REPORT_BUILDERS.values():
        mine = [one for one in several if isinstance(one, form.result_type)]
        if form.joint is not None and len(mine) > 1:
            found.append(form.joint(mine))
    return found


def build_reports(several: Sequence[Result]) -> list[Report]:
    """Build the reports of results, comparing ones first."""
    return [*build_joint_reports(several), *map(build_report, several)]


ResultT = TypeVar("ResultT")
SCHEMA_TEMPLATE = "ragauge-{}/1"
"""Template of the `schema` field in the JSON of a command's result."""
SCHEMA_PROBE_CHARS = 200
"""Number of leading characters that are searched for the schema of a file."""


def result_to_data(told: Result) -> dict[str, Any]:
    """Convert a result to JSON-serialisable data: schema, fields and derived values."""
    verb = find_command_name(told)
    derived = {name: to_json_data(getattr(told, name)) for name in REPORT_BUILDERS[verb].derived}
    return {"schema": SCHEMA_TEMPLATE.format(verb), **to_json_data(told), **derived}


def results_to_json(told: ReportableResult | Sequence[ReportableResult]) -> str:
    """Return results as JSON text: an object for one result, a list for several."""
    several = _results_list(told)
    data = [result_to_data(one) for one in several]
    return json.dumps(data[0] if len(data) == 1 else data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def results_to_csv(told: ReportableResult | Sequence[ReportableResult]) -> str:
    """Return the main table of results as CSV.

    Raises BadInput if the results are of different types or have different columns.
    """
    several = _results_list(told)
    verbs = sorted({find_command_name(one) for one in several})
    if len(verbs) > 1:
        raise BadInput(f"one table cannot hold {' and '.join(verbs)}", hint="a page (.html) or Markdown (.md) can")
    first, *others = [REPORT_BUILDERS[verbs[0]].csv(one) for one in several]
    header = first.partition("\n")[0]
    if any(one.partition("\n")[0] != header for one in others):
        raise BadInput("these results have different columns", hint="a table for each")
    return "".join([first, *(one.partition("\n")[2] for one in others)])


def _single_result(several: Sequence[ReportableResult], noun: type[ResultT], form: str) -> ResultT:
    """Return the only result, or raise BadInput if the format does not apply to it."""
    found = [one for one in several if isinstance(one, noun)]
    if len(found) != 1 or len(several) != 1:
        raise _wrong_format_error(form, noun)
    return found[0]


def check_format_applies(form: str, noun: type[ReportableResult]) -> None:
    """Raise BadInput if a format exists only for another type of result."""
    wanted = RESULT_TYPE_BY_FORMAT.get(form, noun)
    if wanted is not noun:
        raise _wrong_format_error(form, wanted)


def _wrong_format_error(form: str, noun: type[Any]) -> BadInput:
    verb = next(verb for verb, one in REPORT_BUILDERS.items() if one.result_type is noun)
    return BadInput(f"the form `{form}` is for one result of `{verb}`", hint="--format json, --format csv, …")


RESULT_TYPE_BY_FORMAT: Mapping[str, type[Any]] = {
    "long": EmbedderStudy,
    "tokenization": EmbedderStudy,
    "tokenizer": TokenizerStudy,
}
"""Formats that exist for one type of result only, with that type."""
RESULT_FORMATS: Mapping[str, OutputFormat[Sequence[ReportableResult]]] = {
    "html": OutputFormat(
        ".html",
        "one self-contained page",
        lambda several: render_report_page(build_reports(several), load_vega_script()),
    ),
    "json": OutputFormat(".json", "everything, to be read again", results_to_json),
    "csv": OutputFormat(".csv", "a row for each document, query or finding", results_to_csv),
    "markdown": OutputFormat(
        ".md", "tables for a wiki", lambda several: output_report.render_markdown(build_reports(several))
    ),
    "long": OutputFormat(
        ".csv",
        "of embedders, a row for each figure at each dimension, size and perturbation",
        lambda several: render_long_csv(_single_result(several, EmbedderStudy, "long")),
    ),
    "tokenization": OutputFormat(
        ".csv",
        "of embedders, the tokenization study's table",
        lambda several: tokenization.render_embedder_table(_single_result(several, EmbedderStudy, "tokenization")),
    ),
    "tokenizer": OutputFormat(
        ".csv",
        "of tokenizers, the tokenization study's table",
        lambda several: tokenization.render_tokenizer_table(_single_result(several, TokenizerStudy, "tokenizer")),
    ),
}
"""Output formats by name. If several share a file ending, the ending selects the first."""


def _results_list(told: ReportableResult | Sequence[ReportableResult]) -> Sequence[ReportableResult]:
    return list(told) if isinstance(told, Sequence) else [told]


def write_results(
    told: ReportableResult | Sequence[ReportableResult],
    files: Sequence[str],
    form: str | None = None,
    charts: str | Path | None = None,
) -> None:
    """Write results to files in the format of `form` or of each file ending.

    If `charts` is given, also write every chart to that folder.
    """
    several = _results_list(told)
    kinds = {file: format_for_path(file, form, RESULT_FORMATS) for file in files}
    for file, kind in kinds.items():
        write_format(several, RESULT_FORMATS[kind], file)
    if charts is not None:
        write_charts(collect_charts(build_reports(several)), Path(charts))


def is_result_file(path: str | Path) -> bool:
    """Return whether a file is a JSON result of ragauge.

    Only its first characters are checked.
    """
    place = Path(path)
    if place.suffix != ".json" or not place.is_file():
        return False
    with place.open(encoding="utf-8", errors="replace") as file:
        head = file.read(SCHEMA_PROBE_CHARS)
    return any(f'"{SCHEMA_TEMPLATE.format(verb)}"' in head for verb in REPORT_BUILDERS)


def read_results(path: str | Path) -> list[ReportableResult]:
    """Read the results in a JSON file, usually one.

    Raises BadInput if the file contains anything else.
    """
    data = read_json(InputFile(str(path)))
    found: list[ReportableResult] = []
    for one in data if isinstance(data, list) else [data]:
        schema = one.get("schema") if isinstance(one, dict) else None
        verb = next((verb for verb in REPORT_BUILDERS if schema == SCHEMA_TEMPLATE.format(verb)), None)
        if verb is None:
            raise BadInput(f"this is no result of {', '.join(REPORT_BUILDERS)}", file=str(path))
        found.append(from_json_data(REPORT_BUILDERS[verb].result_type, one, file=str(path)))
    return found
