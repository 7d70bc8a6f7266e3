"""`ragauge reliability QRELS NAME=RUN NAME=RUN…`: compute pass@k and pass^k over repeated trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ragauge.cli.console import MAX_NOTES
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    QRELS_HELP,
    ChartsFolder,
    Confidence,
    ConventionName,
    FormatName,
    OutputFiles,
    PrintJson,
    csv_option,
)
from ragauge.cli.output import check_outputs, write_result
from ragauge.core.errors import BadInput
from ragauge.experiments.reliability import reliability as estimate_reliability
from ragauge.experiments.reliability.report import MAX_FLAKY_TASKS, build_report, rank_flaky_tasks
from ragauge.experiments.reliability.results import ReliabilityBySystem
from ragauge.experiments.reliability.trials import DEFAULT_MEASURE


def reliability(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS NAME=RUN...",
            help=f"{QRELS_HELP}, then runs as NAME=FILE, where runs of one name are trials of one system; or folders "
            "made by `run --repeats 3`; or tables with the columns task, trial, success (or task, n, c).",
        ),
    ],
    ks: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="N,…",
            show_default="all up to the number of trials",
            help="Numbers of trials, e.g. 1,2,3.",
        ),
    ] = None,
    measure: Annotated[
        str, typer.Option("-m", "--measure", metavar="NAME", help="Measure of a ranking that defines a success.")
    ] = DEFAULT_MEASURE,
    success_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE",
            show_default="1 for a measure",
            help="Minimum value of the measure, or of the score in a table, that is a success.",
        ),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            show_default="tasks",
            help="Population of the intervals: `tasks` of this kind, or further `trials` of these tasks.",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the bootstrap intervals.")] = 0,
    flaky: Annotated[
        int, typer.Option(metavar="N", min=0, help="Maximum number of flaky tasks to print.")
    ] = MAX_FLAKY_TASKS,
    convention: ConventionName = "default",
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("system and k")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
) -> None:
    """Compute pass@k and pass^k from repeated trials.

    [dim]ragauge reliability qrels.txt rag=1.run rag=2.run rag=3.run -m hit_rate@5[/dim]
    """
    check_outputs(
        ReliabilityBySystem, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts
    )
    is_data = as_json or as_csv or (format_name is not None and not out)
    if is_data:
        refuse_options(context, ["flaky"], "with --json, --csv and --format, which include all tasks")
    result = estimate_reliability(
        files,
        None if ks is None else _parse_k_values(ks),
        measure=measure,
        success_threshold=success_threshold,
        convention=convention,
        over=over,
        confidence=confidence,
        seed=seed,
    )
    n_flaky = len(rank_flaky_tasks(result))
    more = [f"`--flaky {n_flaky}` shows all flaky tasks"] if n_flaky > flaky and not is_data else []
    report = build_report(result, max_flaky_tasks=flaky)
    write_result(
        [result],
        out or [],
        as_json=as_json,
        as_csv=as_csv,
        format_name=format_name,
        charts=charts,
        report=replace(report, notes=[*report.notes[: MAX_NOTES - 1], *more, *report.notes[MAX_NOTES - 1 :]]),
    )


def _parse_k_values(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise BadInput(f"-k must be integers separated by commas, got `{text}`", hint="use `-k 1,2,3`") from None
