"""`ragauge calibrate LABELLED…`: compare a judge with human labels."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from importlib.resources import files as packaged
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import (
    MODEL_JUDGE_OPTIONS,
    allow_only_options,
    check_output_libraries,
    refuse_options,
    require_any_option,
)
from ragauge.cli.options import ChatOptions, JudgeWorkers, TokenPrice, VerdictFormat, check_positive
from ragauge.cli.progress import CountProgress
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.files.samples import samples_name
from ragauge.judging.calibration import report
from ragauge.judging.calibration.report import calibrations_to_csv, calibrations_to_dict
from ragauge.output.terminal import render_table


def calibrate(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    labelled: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LABELLED",
            show_default=False,
            help="Samples with labels (JSONL with question, answer, contexts, labels), or files and folders of BEGIN, "
            "HaluEval, CLAP NQ, MTRAG; several give a row each.",
        ),
    ] = None,
    chat: Annotated[
        str,
        typer.Option("-c", "--chat", help="Who judges: lexical, openai:MODEL@URL, local:FILE.gguf, replay:FILE."),
    ] = "lexical",
    measure: Annotated[
        str | None, typer.Option("-m", "--measure", help="What is judged.  [dim]default what labels speak of[/dim]")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="A score from here on is good.  [dim]default 1 of shares of claims where labels are yes or no, the "
            "labels' threshold where they are grades, else 0.5[/dim]"
        ),
    ] = None,
    label_threshold: Annotated[
        float | None, typer.Option(help="A label from here on is good.  [dim]default the set's, or 0.5[/dim]")
    ] = None,
    replicates: Annotated[int, typer.Option(help="Ask the judge so often, and see whether it says the same.")] = 1,
    swap: Annotated[bool, typer.Option(help="Ask once more with the contexts in the other order.")] = True,
    labels: Annotated[
        int | None,
        typer.Option(help="Correct the mean with so many labels only, as if the other samples had none."),
    ] = None,
    canaries: Annotated[bool, typer.Option("--canaries", help="Also try to talk the judge into verdicts.")] = False,
    max_samples: Annotated[
        int | None,
        typer.Option(metavar="N", callback=check_positive, help="Maximum number of samples, drawn at random."),
    ] = None,
    chat_options: ChatOptions = None,
    workers: JudgeWorkers = None,
    max_calls: Annotated[
        int | None, typer.Option(help="Maximum number of requests per set; probes and retries count.")
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="Maximum cost per set; probes and retries count.")] = None,
    prices: Annotated[str | None, typer.Option(metavar="FILE.toml", help="What models cost.")] = None,
    token_price: TokenPrice = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for an attempt.  [dim]default 60[/dim]")] = None,
    verdict_format: VerdictFormat = None,
    folder: Annotated[
        str | None,
        typer.Option("-o", "--out", metavar="FOLDER", help="Keep replies there.  [dim]default calibrated/[/dim]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many calls and tokens it would take, and ask nothing.")
    ] = False,
    charts: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Draw the ROC curve and what scores promise, as SVG and PNG.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    per_sample: Annotated[bool, typer.Option("--per-sample", help="With --json: every sample too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each figure.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on standard output.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of --json, and stop.")] = False,
) -> None:
    """Measure the agreement of a judge with human labels, and its biases.

    [dim]ragauge calibrate labelled.jsonl --chat openai:gpt-4o-mini --replicates 3 --labels 100[/dim]
    """
    if schema:
        allow_only_options(context, ["schema"], "--schema")
        console.write_data(
            (packaged("ragauge.judging.calibration") / "calibration.schema.json").read_text(encoding="utf-8"), nl=False
        )
        return
    console.check_exclusive({"--json": as_json, "--csv": csv, "--markdown": markdown})
    require_any_option(context, {"per_sample": ["as_json"]})
    if token_price is not None and prices is not None:
        raise BadInput("--token-price and --prices are mutually exclusive", hint="remove one of them")
    if chat == LEXICAL_JUDGE:
        refuse_options(
            context, MODEL_JUDGE_OPTIONS, "on the lexical judge, which calls no model", hint="--chat openai:MODEL@URL"
        )
    if dry_run:
        refuse_options(context, ["charts", "per_sample", "as_json", "csv", "markdown", "confidence"], "with --dry-run")
    check_output_libraries([], charts)
    if not labelled:
        raise BadInput("there is nothing to calibrate on", hint="ragauge calibrate labelled.jsonl")
    from ragauge.files.workspace import folder_name
    from ragauge.judging.calibration import calibrate
    from ragauge.judging.calibration.report import draw_calibrations
    from ragauge.output.formats import write_charts

    asked: dict[str, Any] = {
        "chat": chat, "measure": measure, "replicates": replicates, "swap": swap, "limit": max_samples, "seed": seed,
        "options": console.parse_name_values(chat_options or []), "concurrency": workers, "max_calls": max_calls,
        "max_cost": max_cost, "prices": console.parse_price(token_price) if token_price is not None else prices,
        "timeout": timeout, "verdicts": verdict_format,
    }  # fmt: skip
    kept = Path(folder or "calibrated")
    places = {path: None if chat == LEXICAL_JUDGE else kept / folder_name(samples_name(path)) for path in labelled}
    if dry_run:
        _print_calibration_estimate(places, asked)
        return
    more = {"threshold": threshold, "label_threshold": label_threshold, "labels": labels}
    found = []
    with CountProgress("judging") as watch:
        try:
            for path, place in places.items():
                how = {**asked, **more, "folder": place, "confidence": confidence, "canaries": canaries}
                found.append(calibrate(path, **how, progress=watch))
        except KeyboardInterrupt:
            where = f"; every reply is kept in {shlex.quote(str(kept))}, and the same command goes on from there"
            sys.stderr.write(f"\nstopped{'' if chat == LEXICAL_JUDGE else where}\n")
            raise typer.Exit(130) from None
    if charts is not None:
        Path(charts).mkdir(parents=True, exist_ok=True)
        write_charts(draw_calibrations({folder_name(one.dataset): one for one in found}), Path(charts))
    if as_json:
        console.write_data(
            json.dumps(
                calibrations_to_dict(found, per_sample=per_sample), ensure_ascii=False, indent=2, allow_nan=False
            )
        )
    elif csv:
        console.write_data(calibrations_to_csv(found), nl=False)
    elif markdown:
        console.write_data(report.render_calibrations_markdown(found), nl=False)
    else:
        parts = report.calibration_tables(found[0]) if len(found) == 1 else [report.overview_table(found)]
        tables = [render_table(rows, console.stdout_console().width) for rows in parts]
        console.print_tables(*[piece for table, _ in tables for piece in (table, "")][:-1])
        left = [name for _, without in tables for name in without]
        console.print_notes([f"not shown, for want of room: {', '.join(left)}; --markdown has them"] if left else [])
    if not markdown:
        console.print_notes(
            report.calibration_notes(found[0]) if len(found) == 1 else report.shared_calibration_notes(found)
        )
    if stopped := next((one.stopped for one in found if one.stopped), ""):
        sys.stderr.write(f"stopped: {stopped}; the same command with a higher limit goes on\n")
        raise typer.Exit(3)
    silent = [one for one in found if one.unscored and not one.scored]
    if silent and chat != LEXICAL_JUDGE:
        why = next(iter(silent[0].unscored))
        sys.stderr.write(f"error: the judge gave no readable reply for {silent[0].dataset}; {why}\n")
        raise typer.Exit(3)


def _print_calibration_estimate(places: Mapping[str, Path | None], asked: dict[str, Any]) -> None:
    """Print the estimated cost for each labelled dataset."""
    from ragauge.cli.judge import describe_estimate
    from ragauge.judging.calibration import estimate_calibration
    from ragauge.judging.report_formats import render_estimate_terminal

    more: list[str] = []
    for path, place in places.items():
        found = estimate_calibration(path, **asked, folder=place)
        if found:
            console.print_tables(*render_estimate_terminal(found, console.stdout_console().width))
            more = describe_estimate(found, asked["chat"], asked.get("options") or {})
        console.print_notes([f"{path}: an estimate" if found else f"{path}: no request would be sent"])
    console.print_notes([*more, "nothing was asked"])
