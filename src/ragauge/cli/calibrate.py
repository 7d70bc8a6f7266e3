"""`ragauge calibrate LABELLED…`: compare a judge with human labels."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import MODEL_JUDGE_OPTIONS, refuse_options
from ragauge.cli.options import (
    ChartsFolder,
    ChatOptions,
    Confidence,
    DryRun,
    FormatName,
    JudgeWorkers,
    OutputFilesAndReplies,
    PriceFile,
    PrintJson,
    TokenPrice,
    VerdictFormat,
    check_positive,
    csv_option,
)
from ragauge.cli.output import check_outputs, print_table, split_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.files.samples import samples_name
from ragauge.files.workspace import folder_name
from ragauge.judging.calibration.results import Calibration
from ragauge.judging.calibration.settings import CalibrationOptions


def calibrate(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    labelled: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LABELLED",
            show_default=False,
            help="Samples with labels (JSONL with question, answer, contexts, labels), or files and folders of BEGIN, "
            "HaluEval, CLAP NQ or MTRAG. Several are compared in one table. Required.",
        ),
    ] = None,
    chat: Annotated[
        str,
        typer.Option(
            "-c", "--chat", metavar="MODEL", help="Judge: lexical, openai:MODEL@URL, local:FILE.gguf or replay:FILE."
        ),
    ] = "lexical",
    measure: Annotated[
        str | None,
        typer.Option("-m", "--measure", metavar="NAME", show_default="that of the labels", help="Measure to judge."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE",
            show_default="1 for shares of claims with binary labels, --label-threshold for graded labels, else 0.5",
            help="Minimum score of a good sample.",
        ),
    ] = None,
    label_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="LABEL", show_default="that of the dataset, or 0.5", help="Minimum label of a good sample."
        ),
    ] = None,
    replicates: Annotated[int, typer.Option(metavar="N", help="Number of judge calls per labelled sample.")] = 1,
    swap: Annotated[
        bool, typer.Option("--swap/--no-swap", help="Judge again with the contexts in reverse order.")
    ] = True,
    labels: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="all",
            help="Number of labels for the corrected mean; the other samples count as unlabelled.",
        ),
    ] = None,
    canaries: Annotated[
        bool, typer.Option("--canaries", help="Also test the judge with ten prompt injections.")
    ] = False,
    max_samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="all",
            callback=check_positive,
            help="Maximum number of samples, drawn at random.",
        ),
    ] = None,
    chat_options: ChatOptions = None,
    workers: JudgeWorkers = None,
    max_calls: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="no limit",
            help="Maximum number of requests per dataset; probes and retries count.",
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            metavar="USD",
            show_default="no limit",
            help="Maximum cost per dataset in US dollars; probes and retries count.",
        ),
    ] = None,
    prices: PriceFile = None,
    token_price: TokenPrice = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", show_default="60", help="Timeout of one attempt in seconds.")
    ] = None,
    verdict_format: VerdictFormat = None,
    dry_run: DryRun = False,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of samples, labels and intervals.")] = 0,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("rater and statistic")] = False,
    format_name: FormatName = None,
    out: OutputFilesAndReplies = None,
    charts: ChartsFolder = None,
) -> None:
    """Measure the agreement of a judge with human labels, and its biases.

    [dim]ragauge calibrate labelled.jsonl[/dim]

    [dim]ragauge calibrate labelled.jsonl --chat openai:gpt-4o-mini --replicates 3 --dry-run[/dim]
    """
    files, reply_folder = split_outputs(out)
    check_outputs(
        Calibration, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, has_folder=True
    )
    if token_price is not None and prices is not None:
        raise BadInput("--token-price and --prices are mutually exclusive", hint="remove one of them")
    if chat == LEXICAL_JUDGE:
        refuse_options(
            context,
            MODEL_JUDGE_OPTIONS,
            "on the lexical judge, which calls no model",
            hint="add `--chat openai:MODEL@URL`",
        )
    if dry_run:
        refuse_options(context, ["charts", "as_json", "as_csv", "format_name", "confidence"], "with --dry-run")
    if not labelled:
        raise BadInput("no labelled samples given; expected a file", hint="use `ragauge calibrate labelled.jsonl`")
    from ragauge.judging.calibration.calibrate import calibrate

    optional_settings: dict[str, Any] = {
        "measure": measure, "replicates": replicates, "swap": swap, "max_samples": max_samples, "seed": seed,
        "threshold": threshold, "label_threshold": label_threshold, "labels": labels,
        "options": console.parse_name_values(chat_options or []), "workers": workers, "max_calls": max_calls,
        "max_cost": max_cost, "prices": console.parse_price(token_price) if token_price is not None else prices,
        "timeout": timeout, "verdict_format": verdict_format, "confidence": confidence, "canaries": canaries or None,
    }  # fmt: skip
    settings = cast(CalibrationOptions, {name: value for name, value in optional_settings.items() if value is not None})
    parent = Path(reply_folder or "calibrated")
    folders = {path: None if chat == LEXICAL_JUDGE else parent / folder_name(samples_name(path)) for path in labelled}
    if dry_run:
        _print_calibration_estimate(folders, chat, settings)
        return
    saved = f"replies are saved in {shlex.quote(str(parent))}; to resume, run the same command"
    with show_progress("" if chat == LEXICAL_JUDGE else saved) as progress:
        settings["progress"] = progress
        calibrations = [calibrate(path, chat=chat, folder=folder, **settings) for path, folder in folders.items()]
    write_result(calibrations, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    if stopped := next((calibration.stopped for calibration in calibrations if calibration.stopped), ""):
        sys.stderr.write(f"stopped: {stopped}; to resume, run the same command with a higher limit\n")
        raise typer.Exit(3)
    silent = [calibration for calibration in calibrations if calibration.unscored and not calibration.scored]
    if silent and chat != LEXICAL_JUDGE:
        reason = next(iter(silent[0].unscored))
        sys.stderr.write(f"error: the judge gave no readable reply for {silent[0].dataset}; {reason}\n")
        raise typer.Exit(3)


def _print_calibration_estimate(folders: Mapping[str, Path | None], chat: str, settings: CalibrationOptions) -> None:
    """Print the estimated cost for each labelled dataset."""
    from ragauge.cli.judge import describe_estimate
    from ragauge.judging.calibration.calibrate import estimate_calibration
    from ragauge.judging.report import build_estimate_table

    notes: list[str] = []
    for path, folder in folders.items():
        steps = estimate_calibration(path, chat=chat, folder=folder, **settings)
        if steps:
            print_table(build_estimate_table(steps))
            notes = describe_estimate(steps, chat, settings.get("options") or {})
        console.print_notes([f"{path}: an estimate" if steps else f"{path}: no request would be sent"])
    console.print_notes(notes)
