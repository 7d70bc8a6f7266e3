"""`ragauge reliability QRELS NAME=RUN NAME=RUN…`: compute pass@k and pass^k over repeated trials."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.core.errors import BadInput
from ragauge.experiments import reliability as experiments_reliability
from ragauge.experiments.reliability import DEFAULT_MEASURE, estimate_reliability, outcomes_from_arguments


def reliability(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS NAME=RUN...",
            help="Judgments and runs, where runs of one name are trials of one system; or folders made by `run "
            "--repeats 3`; or tables with the columns task, trial, success (or task, n, c).",
        ),
    ],
    ks: Annotated[
        str | None, typer.Option("-k", help="How many trials, e.g. 1,2,3. [dim]All up to the number of trials[/dim]")
    ] = None,
    measure: Annotated[
        str, typer.Option("-m", "--measure", help="What tells a success, of rankings.")
    ] = DEFAULT_MEASURE,
    success_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            show_default="1 for a measure",
            help="Minimum value of the measure, or of the score in a table, that is a success.",
        ),
    ] = None,
    over: Annotated[
        str | None, typer.Option(help="What intervals speak of: `tasks`, all such ones, or `trials`, of these alone.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    flaky: Annotated[int, typer.Option(help="How many flaky tasks to show.")] = 10,
    convention: Annotated[str, typer.Option("-C", "--convention", help="As in evaluate.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Compute pass@k and pass^k from repeated trials.

    [dim]ragauge reliability qrels.txt rag=1.run rag=2.run rag=3.run -m recall@10 --success-threshold 0.5[/dim]
    """
    if as_json:
        refuse_options(context, ["flaky"], "with --json, which lists every flaky task")
    wanted = None if ks is None else _parse_k_values(ks)
    tried = outcomes_from_arguments(files, measure, success_threshold, convention)
    found = estimate_reliability(tried, wanted, over=over, confidence=confidence)
    if as_json:
        console.write_data(
            json.dumps(
                experiments_reliability.reliability_to_data(found, tried.texts),
                ensure_ascii=False,
                indent=2,
                allow_nan=False,
            )
        )
    else:
        width = console.stdout_console().width
        shaky = experiments_reliability.render_flaky_tasks(found, tried.texts, max(0, flaky), min(width, 120))
        console.print_tables(
            experiments_reliability.render_pass_table(found, width),
            "",
            experiments_reliability.render_stability_table(found, width),
        )
        if shaky is not None:
            console.print_tables("", shaky)
    tasks = len({task for one in found.values() for task in one.flaky})
    first = next(iter(found.values()))
    whose = "all such tasks" if first.over == "tasks" else "these very tasks, tried for ever,"
    console.print_notes(
        [
            f"a success is {tried.success}; between low and high lies the figure of {whose} with "
            f"{100 * confidence:g}% confidence",
            *dict.fromkeys(note for one in found.values() for note in one.notes),
            *([f"{tasks} tasks are flaky; --flaky {tasks} shows them all"] if tasks > flaky and not as_json else []),
        ]
    )


def _parse_k_values(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise BadInput(f"`-k {text}` is no list of numbers", hint="-k 1,2,3") from None
