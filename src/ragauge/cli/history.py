"""`ragauge history FOLDER…`: show measures over time, from the folders that `run` wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.options import (
    ChartsFolder,
    FormatName,
    OptionalConventionName,
    OutputFiles,
    PrintJson,
    csv_option,
    measures_option,
)
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.experiments.history import history as build_history
from ragauge.experiments.history.report import MAX_SPARKLINE_POINTS, build_report
from ragauge.experiments.history.results import History

NARROW_TERMINAL_CHARS = 120
NARROW_SPARKLINE_POINTS = 8
"""Number of points of a trend on a narrow terminal."""


def history(  # noqa: PLR0913 - each is an option of the command
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FOLDER...]", show_default="runs", help="Folders with results of `run`, at any depth."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        measures_option(
            "the measures that each run was scored by",
            "Measures, e.g. ndcg@10, or times: p50_ms, p95_ms, embed_p95_ms, throughput.",
        ),
    ] = None,
    system: Annotated[
        list[str] | None, typer.Option("-s", "--system", metavar="NAME", help="Only this system. Can be repeated.")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("-d", "--dataset", metavar="NAME", help="Only results on this dataset. Can be repeated."),
    ] = None,
    convention: OptionalConventionName = None,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="LEVEL", help="Confidence level of the intervals; the significance level is 1 - confidence."
        ),
    ] = 0.95,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("point")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
) -> None:
    """Show measures of saved runs over time.

    [dim]ragauge history runs -m ndcg@10 -m p95_ms[/dim]
    """
    check_outputs(History, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    with show_progress() as progress:
        result = build_history(
            folders or ["runs"],
            measures=measure,
            systems=system,
            datasets=dataset,
            convention=convention,
            confidence=confidence,
            progress=progress,
        )
    is_wide = console.stdout_console().width > NARROW_TERMINAL_CHARS
    write_result(
        [result],
        out or [],
        as_json=as_json,
        as_csv=as_csv,
        format_name=format_name,
        charts=charts,
        report=build_report(result, sparkline_points=MAX_SPARKLINE_POINTS if is_wide else NARROW_SPARKLINE_POINTS),
    )
