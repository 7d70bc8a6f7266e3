"""Command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
