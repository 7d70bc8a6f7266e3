"""Typer application of all commands."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from ragauge import __version__
from ragauge.cli.failures import pass_exceptions

COMMANDS = (
    "run",
    "evaluate",
    "judge",
    "compare",
    "report",
    "gate",
    "audit",
    "reliability",
    "calibrate",
    "history",
    "bench",
    "embedders",
    "gain",
    "novelty",
    "freshness",
    "lint",
    "stress",
    "tokenizers",
    "graph",
    "k-range",
    "fuse",
    "validate",
    "convert",
    "datasets",
    "systems",
    "measures",
    "demo",
)
"""Command names in the order of the help; each command is in the module of its name."""


def build_app(*verbs: str) -> typer.Typer:
    """Build the application with the given commands, or with all.

    With a command name, the modules of the others are not imported.

    >>> [one.name for one in build_app("k-range").registered_commands]
    ['k-range']
    """
    app = typer.Typer(
        name="ragauge",
        help="One gauge for retrieval: run systems, time them, score them, and know whether to believe it.",
        epilog="Exit codes: 1 gate failed, 2 invalid usage or input, 3 backend failure, 4 not comparable, "
        "70 unexpected error, 130 interrupted. --debug anywhere shows the traceback.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for verb in verbs or COMMANDS:
        name = verb.replace("-", "_")
        app.command(verb)(pass_exceptions(getattr(import_module(f"ragauge.cli.{name}"), name)))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ragauge {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One gauge for retrieval: run systems, time them, score them, and know whether to believe it."""
    del version
