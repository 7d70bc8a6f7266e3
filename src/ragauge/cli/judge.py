"""`ragauge judge SAMPLES`: judge whether retrieved contexts support answers; unreadable replies are unscored."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import MODEL_JUDGE_OPTIONS, allow_only_options, refuse_options
from ragauge.cli.options import (
    ChartsFolder,
    ChatOptions,
    ConventionName,
    DryRun,
    FormatName,
    JudgeWorkers,
    MaxCalls,
    MaxCost,
    PriceFile,
    PrintJson,
    TokenPrice,
    VerdictFormat,
    check_positive,
    csv_option,
    measures_option,
    output_option,
)
from ragauge.cli.output import check_outputs, print_table, split_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.compute.progress import Progress
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.files.samples import samples_name
from ragauge.files.serialization import to_json
from ragauge.files.workspace import folder_name, hold_folder
from ragauge.judging.judge import estimate_cost, find_missing_key, judge_unsaved, rescore
from ragauge.judging.report import build_estimate_table, describe_main_unscored_reason
from ragauge.judging.results import CostEstimate, JudgedSamples, JudgingEstimate
from ragauge.judging.results_folder import read_judged_folder, write_judged_folder
from ragauge.judging.sample_loading import describe_contexts, load_samples
from ragauge.judging.session import LOCAL_TOKENS_PER_SECOND, JudgingOptions
from ragauge.measures.answers import DEFAULT_ANSWER_MEASURES, parse_answer_measures
from ragauge.measures.conventions import find_convention
from ragauge.output.numbers import join_with_and
from ragauge.runs.input_kinds import InputKind, is_kind


def judge(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    samples: Annotated[
        str | None,
        typer.Argument(
            metavar="SAMPLES",
            show_default=False,
            help="File with question, answer, contexts and reference (JSONL, JSON, CSV, Parquet; names of ragas "
            "and DeepEval are accepted), or the folder of a run. Required.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None, measures_option(", ".join(DEFAULT_ANSWER_MEASURES), "Measures, e.g. faithfulness.")
    ] = None,
    chat: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--chat",
            metavar="MODEL",
            show_default="lexical; of a judged folder, its saved verdicts",
            help="Judge: openai:MODEL@URL (any compatible endpoint), local:FILE.gguf, replay:FILE, or lexical, which "
            "compares words and calls no model.",
        ),
    ] = None,
    chat_options: ChatOptions = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            "-e",
            "--embedder",
            metavar="NAME",
            show_default="wordllama; words for lexical",
            help="Embedder that compares questions for answer_relevance.",
        ),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="3", help="Number of questions generated from each answer."),
    ] = None,
    convention: ConventionName = "default",
    k: Annotated[
        int | None,
        typer.Option("-k", metavar="N", show_default="all", help="Maximum number of contexts per sample; the first."),
    ] = None,
    answers: Annotated[
        str | None, typer.Option(metavar="FILE", help="Table with query and answer, for the folder of a run.")
    ] = None,
    max_samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="all",
            callback=check_positive,
            help="Maximum number of samples; the first ones are used.",
        ),
    ] = None,
    workers: JudgeWorkers = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", show_default="60", help="Timeout of one attempt in seconds.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(metavar="N", show_default="5", help="Maximum number of repeated attempts per call.")
    ] = None,
    max_calls: MaxCalls = None,
    max_cost: MaxCost = None,
    prices: PriceFile = None,
    token_price: TokenPrice = None,
    verdict_format: VerdictFormat = None,
    canaries: Annotated[
        bool, typer.Option("--canaries", help="Also test the judge with ten prompt injections.")
    ] = False,
    retry_unscored: Annotated[
        bool, typer.Option("--retry-unscored", help="Repeat the calls whose saved replies gave no verdict.")
    ] = False,
    replicate: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="0", help="Number of this replicate; each has its own replies."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(metavar="LEVEL", show_default="0.95", help="Confidence level of the intervals.")
    ] = None,
    dry_run: DryRun = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("measure")] = False,
    format_name: FormatName = None,
    out: Annotated[
        list[str] | None,
        output_option("Working folder, which is resumed", "judged/ and the name of samples and model"),
    ] = None,
    charts: ChartsFolder = None,
) -> None:
    """Judge generated answers: faithfulness, relevance, context precision and recall.

    [dim]ragauge judge samples.jsonl -m faithfulness,context_recall[/dim]

    [dim]ragauge judge samples.jsonl --chat openai:gpt-4o-mini --dry-run[/dim]
    """
    files, folder_path = split_outputs(out)
    check_outputs(
        JudgedSamples, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, has_folder=True
    )
    output = JudgingOutput(files, as_json, as_csv, format_name, charts)
    if samples is None:
        raise BadInput(
            "no samples given; expected a file or the folder of a run", hint="use `ragauge judge samples.jsonl`"
        )
    if token_price is not None and prices is not None:
        raise BadInput("--token-price and --prices are mutually exclusive", hint="remove one of them")
    optional_settings: dict[str, Any] = {
        "convention": find_convention(convention), "embedder": embedder,
        "questions": questions, "workers": workers, "timeout": timeout, "retries": retries,
        "max_calls": max_calls, "max_cost": max_cost,
        "prices": console.parse_price(token_price) if token_price is not None else prices,
        "verdict_format": verdict_format, "canaries": canaries or None, "retry_unscored": retry_unscored or None,
        "replicate": replicate, "confidence": confidence, "max_samples": max_samples, "k": k, "answers": answers,
        "options": console.parse_name_values(chat_options or []), "name": samples_name(samples),
    }  # fmt: skip
    settings = cast(JudgingOptions, {name: value for name, value in optional_settings.items() if value is not None})
    if chat is None and is_kind(samples, InputKind.JUDGED):
        accepted = ("measure", "convention", "confidence", "out", "as_json", "as_csv", "format_name", "charts")
        hint = "--chat judges again; without it, the saved verdicts are scored again"
        allow_only_options(context, accepted, "a judged folder without --chat", hint=hint)
        _rescore_saved_verdicts(samples, measure, settings, folder_path or samples, output)
        return
    judge_name = chat or LEXICAL_JUDGE
    if judge_name == LEXICAL_JUDGE:
        refuse_options(
            context,
            MODEL_JUDGE_OPTIONS,
            "on the lexical judge, which calls no model",
            hint="add `--chat openai:MODEL@URL`",
        )
    folder = Path(folder_path) if folder_path is not None else _default_judging_folder(samples, judge_name)
    if dry_run:
        no_effect = ["as_csv", "format_name", "charts", "verdict_format", "canaries", "confidence"]
        refuse_options(context, no_effect, "with --dry-run")
        _print_judging_estimate(samples, measure, judge_name, folder, settings, as_json=as_json)
        return
    with hold_folder(folder):
        judged = _judge_with_progress(samples, measure, judge_name, folder, settings)
        _finish_judging(judged, folder, output)


class JudgingOutput(NamedTuple):
    """Where and how results are printed and written."""

    files: Sequence[str]
    as_json: bool
    as_csv: bool
    format_name: str | None
    charts: str | None


def _rescore_saved_verdicts(
    samples: str, measures: list[str] | None, settings: JudgingOptions, folder: str, output: JudgingOutput
) -> None:
    """Compute the scores of a folder again from its saved verdicts."""
    convention = find_convention(settings.get("convention", "default"))
    chosen = None if convention.name == "default" else convention
    before = read_judged_folder(samples)
    judged = rescore(before, measures, convention=chosen, confidence=settings.get("confidence"))
    with hold_folder(folder):
        _finish_judging(replace(judged, stopped=""), Path(folder), output)
    replaced = [measure for measure in before.scores.measures if measure not in judged.scores.measures]
    if replaced and Path(folder).resolve() == Path(samples).resolve():
        options = " ".join(f"-m {shlex.quote(measure)}" for measure in replaced)
        note = (
            f"removed the scores of {join_with_and(replaced)}; add `{options}` to compute them from the saved verdicts"
        )
        console.print_notes([note])


def _default_judging_folder(samples: str, chat: str) -> Path:
    """Return the default output folder, named after the samples and the model, if any.

    >>> (_default_judging_folder("answers.jsonl", "openai:gpt-4o-mini"), _default_judging_folder("answers.jsonl",
    ...  "lexical"))
    (PosixPath('judged/answers-gpt-4o-mini'), PosixPath('judged/answers'))
    """
    source = Path(samples)
    if is_kind(samples, InputKind.JUDGED):
        return source
    name = samples_name(samples)
    if source.is_dir() and (source.parent / "experiment.json").is_file():
        name = f"{source.resolve().parent.name}-{name}"
    model = "" if chat == LEXICAL_JUDGE else chat.partition(":")[2].partition("@")[0]
    return Path("judged") / folder_name(f"{name}-{Path(model).name}" if model else name)


def _print_judging_estimate(
    samples: str, measures: list[str] | None, chat: str, folder: Path, settings: JudgingOptions, *, as_json: bool
) -> None:
    with show_progress() as progress:
        progress(Progress("estimating"))
        loaded = load_samples(samples, answers=settings.pop("answers", None), k=settings.get("k"))
        loaded = loaded[: settings.get("max_samples")]
        steps = estimate_cost(loaded, measures, chat=chat, folder=folder, **settings)
    if as_json:
        names = [str(measure) for measure in parse_answer_measures(measures or DEFAULT_ANSWER_MEASURES)]
        estimate = JudgingEstimate(chat, len(loaded), names, steps)
        console.write_data(to_json(estimate), nl=False)
    elif steps:
        print_table(build_estimate_table(steps))
    if steps:
        lines = describe_estimate(steps, chat, settings.get("options") or {})
    elif chat == LEXICAL_JUDGE:
        lines = ["no request would be sent: the lexical judge uses no model"]
    else:
        lines = [f"no request would be sent: every reply is saved in {folder}{os.sep}"]
    console.print_notes([*lines, *describe_contexts(samples, loaded)])


def describe_estimate(steps: Sequence[CostEstimate], chat: str, options: Mapping[str, Any]) -> list[str]:
    """Describe how an estimate was made, and what is missing for the real calls."""
    lines = ["an estimate, no request was sent: each sentence counts as one claim, four characters as one token"]
    if any(step.cost is None for step in steps):
        lines.append("the price is unknown; give it in US dollars per million tokens: `--token-price IN,OUT`")
    if any(step.seconds is not None for step in steps):
        reads, writes = LOCAL_TOKENS_PER_SECOND
        lines.append(
            f"minutes assume a local server that reads {reads} and writes {writes} tokens per second; "
            "run with `--max-samples 5` to measure yours"
        )
    if variable := find_missing_key(chat, options):
        lines.append(f"no key in {variable}; set it before judging: `export {variable}=…`")
    return lines


def _judge_with_progress(
    samples: str, measures: list[str] | None, chat: str, folder: Path, settings: JudgingOptions
) -> JudgedSamples:
    """Judge the samples with a progress display; after Ctrl-C, say how to resume."""
    with show_progress(f"replies are saved in {shlex.quote(str(folder))}; to resume, run the same command") as progress:
        settings["progress"] = progress
        return judge_unsaved(samples, measures, chat=chat, folder=folder, written=True, **settings)


def _finish_judging(judged: JudgedSamples, folder: Path, output: JudgingOutput) -> None:
    """Write the folder, print and write the report, and say why judging stopped early, if it did."""
    with show_progress() as progress:
        progress(Progress("writing"))
        names, missing = write_judged_folder(judged, folder)
    files, as_json, as_csv, format_name, charts = output
    write_result([judged], files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    console.print_notes([*missing, f"wrote {folder}{os.sep}: {', '.join(names)}"])
    if judged.stopped:
        sys.stderr.write(f"stopped: {judged.stopped}; to resume, run the same command with a higher limit\n")
        raise typer.Exit(3)
    if judged.unreadable:
        sys.stderr.write(f"error: the judge gave no readable reply; {describe_main_unscored_reason(judged)}\n")
        raise typer.Exit(3)
