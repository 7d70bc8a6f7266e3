"""The verbs, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge import __version__
from ragauge.cli.audit import audit
from ragauge.cli.bench import bench
from ragauge.cli.calibrate import calibrate
from ragauge.cli.compare import compare
from ragauge.cli.convert import convert
from ragauge.cli.datasets import datasets
from ragauge.cli.demo import demo
from ragauge.cli.embedders import embedders
from ragauge.cli.evaluate import evaluate
from ragauge.cli.freshness import freshness
from ragauge.cli.fuse import fuse
from ragauge.cli.gain import gain
from ragauge.cli.gate import gate
from ragauge.cli.graph import graph
from ragauge.cli.history import history
from ragauge.cli.judge import judge
from ragauge.cli.k_range import k_range
from ragauge.cli.lint import lint
from ragauge.cli.measures import measures
from ragauge.cli.novelty import novelty
from ragauge.cli.reliability import reliability
from ragauge.cli.report import report
from ragauge.cli.run import run
from ragauge.cli.stress import stress
from ragauge.cli.systems import systems
from ragauge.cli.tokenizers import tokenizers
from ragauge.cli.validate import validate

app = typer.Typer(
    name="ragauge",
    help="One gauge for retrieval: run systems, time them, score them, and know whether to believe it.",
    epilog="Exit codes: 1 a gate failed, 2 a mistake, 3 a backend broke, 4 not comparable, 130 interrupted. "
    "--debug anywhere shows the traceback.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(evaluate)
app.command()(judge)
app.command()(compare)
app.command()(report)
app.command()(gate)
app.command()(audit)
app.command()(reliability)
app.command()(calibrate)
app.command()(history)
app.command()(bench)
app.command()(embedders)
app.command()(gain)
app.command()(novelty)
app.command()(freshness)
app.command()(lint)
app.command()(stress)
app.command()(tokenizers)
app.command()(graph)
app.command("k-range")(k_range)
app.command()(fuse)
app.command()(validate)
app.command()(convert)
app.command()(datasets)
app.command()(systems)
app.command()(measures)
app.command()(demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ragauge {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One gauge for retrieval: run systems, time them, score them, and know whether to believe it."""
    del version
