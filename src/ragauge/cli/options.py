"""Command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.core.errors import BadInput


def check_positive(parameter: typer.CallbackParam, value: int | None) -> int | None:
    """Raise BadInput if the value of an option is below 1."""
    if value is not None and value < 1:
        option = max(parameter.opts, key=len)
        raise BadInput(f"{option} must be at least 1, got {value}", hint=f"use `{option} 1` or a larger number")
    return value


MinRelevantGrade = Annotated[
    float | None,
    typer.Option("-l", "--rel", metavar="GRADE", help="Minimum grade that counts as relevant. [dim]default 1[/dim]"),
]
LowerIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        "--lower-is-better",
        metavar="MEASURE",
        help="A measure of unknown direction for which lower values are better. Can be repeated.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads per worker of BLAS, OpenMP, torch and ONNX Runtime while queries are timed.  [dim]default 1[/dim]"
    ),
]
HigherIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        "--higher-is-better",
        metavar="MEASURE",
        help="A measure of unknown direction for which higher values are better. Can be repeated.",
    ),
]
DocumentsPerQuery = Annotated[
    int | None,
    typer.Option(
        "-k", help="Documents requested per query.  [dim]default the deepest cutoff of the measures, at least 10[/dim]"
    ),
]
MaxQueries = Annotated[
    int | None,
    typer.Option(
        "--max-queries",
        metavar="N",
        callback=check_positive,
        help="Maximum number of queries; the first ones are used.",
    ),
]
ChatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-option", metavar="NAME=VALUE", help="Option of the chat model, e.g. temperature=0. Can be repeated."
    ),
]
TokenPrice = Annotated[
    str | None,
    typer.Option("--token-price", metavar="IN,OUT", help="US dollars per million input and output tokens."),
]
JudgeWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", callback=check_positive, show_default="16", help="Maximum number of concurrent calls."
    ),
]
VerdictFormat = Annotated[
    str | None,
    typer.Option(
        "--verdict-format",
        metavar="NAME",
        show_default="json",
        help="Format of the verdicts: json, or tokens (one word per claim or chunk, with its probability).",
    ),
]
CommonQueries = Annotated[
    bool, typer.Option("--common-queries", help="Compare only the queries that all systems have.")
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse",
        help="Reuse finished results of your own functions, plug-ins and services instead of running them again.",
    ),
]
SaveBaseline = Annotated[
    str | None,
    typer.Option(
        "--save-baseline",
        metavar="FOLDER",
        help="Also save the runs with their judgments as a small baseline folder for `ragauge gate`.",
    ),
]
