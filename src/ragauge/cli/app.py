"""Table of commands. A command's module is imported only if that command runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from ragauge import __version__
from ragauge.cli.command_help import PanelCommand, arrange_options
from ragauge.cli.failures import pass_exceptions
from ragauge.core.errors import UnknownName
from ragauge.core.record_types import RESULT_MODULES


class CommandEntry(NamedTuple):
    """A row of the list that `ragauge --help` prints."""

    panel: str
    summary: str
    """First sentence of the command's help."""


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
SCORE, COMPARE, REPORT = "Run and score", "Compare and check", "Report"
BENCHMARK, CORPUS, REFERENCE = "Benchmark", "Corpus", "Reference"

COMMANDS: Mapping[str, CommandEntry] = {
    "run": CommandEntry(SCORE, "Run retrieval systems on a dataset, then time, score and compare them."),
    "evaluate": CommandEntry(SCORE, "Score runs against judgments."),
    "judge": CommandEntry(SCORE, "Judge generated answers: faithfulness, relevance, context precision and recall."),
    "k-range": CommandEntry(SCORE, "Score runs over a range of k and recommend the smallest sufficient k."),
    "fuse": CommandEntry(SCORE, "Fuse several runs into one."),
    "demo": CommandEntry(SCORE, "Evaluate retrieval systems on Python's documentation, offline."),
    "compare": CommandEntry(COMPARE, "Compare systems query by query, with significance tests and intervals."),
    "gate": CommandEntry(COMPARE, "Check a run against rules; exit with 1 if a rule fails or cannot be evaluated."),
    "audit": CommandEntry(COMPARE, "Check judgments, runs and corpus for problems that make scores unreliable."),
    "calibrate": CommandEntry(COMPARE, "Measure the agreement of a judge with human labels, and its biases."),
    "validate": CommandEntry(COMPARE, "Check the format of judgments, runs or samples."),
    "report": CommandEntry(REPORT, "Write a report of results: page, tables, charts, JSON, CSV, LaTeX."),
    "convert": CommandEntry(REPORT, "Convert judgments, runs or samples between formats."),
    "bench": CommandEntry(BENCHMARK, "Benchmark vector stores: recall, latency, throughput, build time, memory."),
    "stress": CommandEntry(BENCHMARK, "Stress-test a document store; exit with 3 if documents are lost or altered."),
    "embedders": CommandEntry(BENCHMARK, "Compare embedders on the same dataset."),
    "tokenizers": CommandEntry(BENCHMARK, "Compare tokenizers on the same texts: token counts, coverage, losses."),
    "novelty": CommandEntry(CORPUS, "Measure how much new information documents add to a corpus."),
    "gain": CommandEntry(CORPUS, "Measure how added documents change retrieval quality."),
    "datasets": CommandEntry(REFERENCE, "List the datasets, or show one."),
    "systems": CommandEntry(REFERENCE, "List the plug-ins: retrievers, embedders, stores and more; or explain one."),
    "measures": CommandEntry(REFERENCE, "List the measures, or explain one."),
}
"""Commands in the order in which `ragauge --help` lists them."""
STORED_RESULTS = {modules.command: schema for schema, modules in RESULT_MODULES.items()}
"""Schema of the JSON that a command writes, by command."""


class LazyGroup(TyperGroup):
    """Group that lists its commands by the table, and imports a command's module when the command runs."""

    def get_params(self, ctx: Any) -> list[Any]:  # Typer has its own copy of click's types
        """Return the options of the group; flags show no Python type in the help."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if parameter.is_flag:
                parameter.metavar = ""
        return parameters

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name, and load it."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UnknownName("command", args[0], COMMANDS, hint="list all with `ragauge --help`")
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name is not None and name in COMMANDS else command, rest


def load_command(name: str) -> Any:
    """Import the module of a command and return the command.

    >>> load_command("k-range").name
    'k-range'
    """
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings=HELP_OPTIONS,
    )
    function = name.replace("-", "_")
    app.command(name, cls=PanelCommand)(pass_exceptions(getattr(import_module(f"ragauge.cli.{function}"), function)))
    command = typer.main.get_command(app)
    if command.name in STORED_RESULTS and "schema" not in {parameter.name for parameter in command.params}:
        command.params.append(_build_schema_option(STORED_RESULTS[command.name]))
    arrange_options(command)
    return command


def _build_schema_option(schema: str) -> Any:
    """Build the option `--schema` of a command that writes such records as JSON."""

    def print_schema(is_requested: bool) -> None:
        if is_requested:
            from ragauge.files.json_schemas import json_schema_of

            typer.echo(json.dumps(json_schema_of(schema), indent=1, ensure_ascii=False))
            raise typer.Exit

    option = typer.Option(
        False, "--schema", callback=print_schema, is_eager=True, help="Print the JSON Schema of --json."
    )

    def declare(schema: bool = option) -> None:
        del schema

    app = typer.Typer(add_completion=False)
    app.command()(declare)
    parameter = typer.main.get_command(app).params[0]
    parameter.expose_value = False
    return parameter


def build_app() -> typer.Typer:
    """Build the application from the table of commands."""
    app = typer.Typer(
        name="ragauge",
        cls=LazyGroup,
        help="Evaluate retrieval and RAG: ranking quality, latency, answers, and statistical significance.",
        epilog="Exit codes: 1 gate failed, 2 invalid usage or input, 3 backend failure, 4 not comparable, "
        "70 unexpected error, 130 interrupted. --debug anywhere shows the traceback, --verbose all notes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings=HELP_OPTIONS,
    )
    app.callback()(root)
    for name, entry in COMMANDS.items():
        app.command(name, help=entry.summary, rich_help_panel=entry.panel)(_list_only)
    return app


def _list_only() -> None:
    """Stand for a command whose module is not imported."""


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"ragauge {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Evaluate retrieval and RAG."""
    del version
