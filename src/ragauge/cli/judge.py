"""`ragauge judge SAMPLES`: judge whether retrieved contexts support answers; unreadable replies are unscored."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files as packaged
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.evaluate import parse_convention_options
from ragauge.cli.option_checks import MODEL_JUDGE_OPTIONS, allow_only_options, refuse_options
from ragauge.cli.options import ChatOptions, JudgeWorkers, TokenPrice, VerdictFormat, check_positive
from ragauge.cli.progress import CountProgress, show_status
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.files.judged_folders import is_judged_folder
from ragauge.files.samples import samples_name
from ragauge.files.workspace import folder_name, hold_folder
from ragauge.judging import estimate_cost, find_missing_key, judge_unsaved, recount, report_formats
from ragauge.judging.report_formats import estimate_to_dict, judged_to_dict, summary_csv
from ragauge.judging.results import CostEstimate, JudgedSamples
from ragauge.judging.results_folder import check_same_samples, write_judged_folder
from ragauge.judging.sample_loading import load_samples
from ragauge.judging.session import LOCAL_TOKENS_PER_SECOND
from ragauge.measures.answers import DEFAULT_ANSWER_MEASURES, parse_answer_measures


def judge(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    samples: Annotated[
        str | None,
        typer.Argument(
            metavar="SAMPLES",
            show_default=False,
            help="A file with question, answer, contexts and reference (JSONL, JSON, CSV, Parquet; ragas' and "
            "DeepEval's names too), or the folder of a run with its answers.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            help="Measures, separated by commas. Can be repeated.  "
            f"[dim]default {', '.join(DEFAULT_ANSWER_MEASURES)}[/dim]",
        ),
    ] = None,
    chat: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--chat",
            metavar="WHO",
            help="Who judges: openai:MODEL@URL (any such server), local:FILE.gguf, replay:FILE, or lexical, which "
            "matches words and asks nobody.  [dim]default lexical; of a folder that was judged, nobody: it is counted "
            "again[/dim]",
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
        int | None, typer.Option(help="Think up so many for each answer.  [dim]default 3[/dim]")
    ] = None,
    convention: Annotated[
        str,
        typer.Option(
            "-C",
            "--convention",
            metavar="NAME[,OPTION=VALUE…]",
            help="How verdicts are counted: default,no_claims=one.",
        ),
    ] = "default",
    k: Annotated[int | None, typer.Option("-k", help="The first so many contexts of each sample only.")] = None,
    answers: Annotated[
        str | None, typer.Option(metavar="FILE", help="Of a run's folder: a table with query and answer.")
    ] = None,
    max_samples: Annotated[
        int | None,
        typer.Option(metavar="N", callback=check_positive, help="Maximum number of samples; the first ones are used."),
    ] = None,
    workers: JudgeWorkers = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for an attempt.  [dim]default 60[/dim]")] = None,
    retries: Annotated[int | None, typer.Option(help="Try again so often.  [dim]default 5[/dim]")] = None,
    max_calls: Annotated[
        int | None, typer.Option(help="Maximum number of requests of all sessions; probes and retries count.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Maximum cost of all sessions in US dollars; probes and retries count.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(metavar="FILE.toml", help="US dollars per million tokens, by model.")
    ] = None,
    token_price: TokenPrice = None,
    verdict_format: VerdictFormat = None,
    canaries: Annotated[
        bool, typer.Option("--canaries", help="Also try to talk the judge into verdicts, and see whether it can be.")
    ] = False,
    retry_unscored: Annotated[
        bool, typer.Option("--retry-unscored", help="Repeat the calls whose saved replies gave no verdict.")
    ] = False,
    replicate: Annotated[
        int | None, typer.Option(help="Ask everything anew, as the so-many-th time.  [dim]default 0[/dim]")
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of the intervals.  [dim]default 0.95[/dim]")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many calls and tokens it would take, and ask nothing.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", metavar="FOLDER", help="[dim]default judged/ and the name of samples and model[/dim]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each measure.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON's schema, and do nothing else.")] = False,
) -> None:
    """Judge generated answers: faithfulness, relevance, context precision and recall.

    [dim]ragauge judge samples.jsonl --chat openai:llama3@http://localhost:11434/v1 --dry-run[/dim]

    [dim]ragauge judge samples.jsonl -m faithfulness -c openai:gpt-4o-mini --token-price 0.15,0.6 --max-cost 2[/dim]

    What the judge does not say, or says unreadably, is unscored with its reason: nothing has a default. Every reply is
    kept at once: after Ctrl-C, a crash or a limit the same command goes on, and pays for nothing twice.
    """
    if schema:
        allow_only_options(context, ["schema"], "--schema")
        console.write_data((packaged("ragauge.judging") / "judged.schema.json").read_text(encoding="utf-8"), nl=False)
        return
    console.check_exclusive({"--json": as_json, "--csv": as_csv})
    if samples is None:
        raise BadInput("there is nothing to judge", hint="ragauge judge samples.jsonl")
    if token_price is not None and prices is not None:
        raise BadInput("--token-price and --prices are mutually exclusive", hint="remove one of them")
    name, *rules = convention.split(",")
    settings: dict[str, Any] = {
        "convention": parse_convention_options(name, [one.strip() for one in rules], None, None), "embedder": embedder,
        "questions": questions, "concurrency": workers, "timeout": timeout, "retries": retries,
        "max_calls": max_calls, "max_cost": max_cost,
        "prices": console.parse_price(token_price) if token_price is not None else prices,
        "verdicts": verdict_format, "canaries": canaries or None, "again": retry_unscored or None,
        "replicate": replicate, "confidence": confidence, "limit": max_samples, "k": k, "answers": answers,
        "options": console.parse_name_values(chat_options or []), "name": samples_name(samples),
    }  # fmt: skip
    how = {key: value for key, value in settings.items() if value is not None}
    if chat is None and is_judged_folder(samples):
        kept = ("measure", "convention", "confidence", "out", "as_json", "as_csv")
        hint = "--chat judges again; without it the stored verdicts are scored again"
        allow_only_options(context, kept, "verdicts that are stored already", hint=hint)
        _rescore_stored_verdicts(samples, measure, how, out, as_json=as_json, as_csv=as_csv)
        return
    who = chat or LEXICAL_JUDGE
    if who == LEXICAL_JUDGE:
        refuse_options(
            context, MODEL_JUDGE_OPTIONS, "on the lexical judge, which calls no model", hint="--chat openai:MODEL@URL"
        )
    folder = Path(out) if out is not None else _default_judging_folder(samples, who)
    if dry_run:
        refuse_options(context, ["as_csv", "verdict_format", "canaries", "confidence"], "with --dry-run")
        _print_judging_estimate(samples, measure, who, folder, how, as_json=as_json)
        return
    with hold_folder(folder):
        check_same_samples(folder, load_samples(samples, answers=answers, k=k)[:max_samples])
        found = _judge_with_progress(samples, measure, who, folder, how)
        _finish_judging(found, folder, as_json=as_json, as_csv=as_csv)


def _rescore_stored_verdicts(
    samples: str, measures: list[str] | None, how: dict[str, Any], out: str | None, *, as_json: bool, as_csv: bool
) -> None:
    """Compute the scores of a folder again from its stored verdicts."""
    rules = how["convention"] if "convention" in how and how["convention"].name != "default" else None
    found = recount(samples, measures, convention=rules, confidence=how.get("confidence"))
    folder = Path(out or samples)
    with hold_folder(folder):
        _finish_judging(replace(found, stopped=""), folder, as_json=as_json, as_csv=as_csv)


def _default_judging_folder(samples: str, chat: str) -> Path:
    """Return the default output folder, named after the samples and the model, if any.

    >>> (_default_judging_folder("answers.jsonl", "openai:gpt-4o-mini"), _default_judging_folder("answers.jsonl",
    ...  "lexical"))
    (PosixPath('judged/answers-gpt-4o-mini'), PosixPath('judged/answers'))
    """
    source = Path(samples)
    if is_judged_folder(samples):
        return source
    name = samples_name(samples)
    if source.is_dir() and (source.parent / "experiment.json").is_file():
        name = f"{source.resolve().parent.name}-{name}"
    model = "" if chat == LEXICAL_JUDGE else chat.partition(":")[2].partition("@")[0]
    return Path("judged") / folder_name(f"{name}-{Path(model).name}" if model else name)


def _print_judging_estimate(
    samples: str, measures: list[str] | None, chat: str, folder: Path, how: dict[str, Any], *, as_json: bool
) -> None:
    with show_status(after=0.5) as tell:
        tell("counting")
        found = estimate_cost(samples, measures, chat=chat, folder=folder, **how)
    if as_json:
        there = load_samples(samples, answers=how.get("answers"), k=how.get("k"))
        names = [str(one) for one in parse_answer_measures(measures or DEFAULT_ANSWER_MEASURES)]
        facts = {"samples": len(there[: how.get("limit")]), "measures": names}
        console.write_data(
            json.dumps(estimate_to_dict(chat, found, facts), indent=2, ensure_ascii=False, allow_nan=False)
        )
    elif found:
        console.print_tables(*report_formats.render_estimate_terminal(found, console.stdout_console().width))
    lines = (
        describe_estimate(found, chat, how.get("options") or {})
        if found
        else [
            "no request would be sent: "
            + (
                "the lexical judge uses no model"
                if chat == LEXICAL_JUDGE
                else f"every reply is kept in {folder}{os.sep}"
            )
        ]
    )
    console.print_notes([*lines, "nothing was asked"])


def describe_estimate(found: Sequence[CostEstimate], chat: str, options: Mapping[str, Any]) -> list[str]:
    """Describe how an estimate was made, and what is missing for the real calls."""
    lines = ["an estimate: each sentence counts as one claim, and four characters as one token"]
    if any(one.cost is None for one in found):
        lines.append("the price is unknown; give it in US dollars per million tokens: `--token-price IN,OUT`")
    if any(one.seconds is not None for one in found):
        reads, writes = LOCAL_TOKENS_PER_SECOND
        lines.append(
            f"minutes assume a local server that reads {reads} and writes {writes} tokens per second; "
            "run with `--max-samples 5` to measure yours"
        )
    if variable := find_missing_key(chat, options):
        lines.append(f"no key in {variable}; set it before judging: `export {variable}=…`")
    return lines


def _judge_with_progress(
    samples: str, measures: list[str] | None, chat: str, folder: Path, how: dict[str, Any]
) -> JudgedSamples:
    """Judge the samples with a progress display; after Ctrl-C, say how to resume."""
    with CountProgress("judging") as watch:
        try:
            return judge_unsaved(samples, measures, chat=chat, folder=folder, progress=watch, **how)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"\nstopped after {watch.done} of {watch.total or 'all'} samples; every reply is kept in "
                f"{shlex.quote(str(folder))}, and the same command goes on from there\n"
            )
            raise typer.Exit(130) from None


def _finish_judging(found: JudgedSamples, folder: Path, *, as_json: bool, as_csv: bool) -> None:
    """Print the tables, write the files, and say why judging stopped early, if it did."""
    left: list[str] = []
    if as_json:
        console.write_data(json.dumps(judged_to_dict(found), indent=2, ensure_ascii=False, allow_nan=False))
    elif as_csv:
        console.write_data(summary_csv(found), nl=False)
    else:
        pieces, left = report_formats.render_judged_terminal(found, console.stdout_console().width)
        console.print_tables(*pieces)
    with show_status(after=0.5) as tell:
        tell("writing")
        files, missing = write_judged_folder(found, folder)
    console.print_notes(
        [
            *(report_formats.judged_notes(found) if not as_json and not as_csv else []),
            *([f"not shown, for want of room: {', '.join(left)}; report.md has them"] if left else []),
            *missing,
            f"wrote {folder}{os.sep}: {', '.join(files)}",
        ]
    )
    if found.stopped:
        sys.stderr.write(f"stopped: {found.stopped}; the same command with a higher limit goes on\n")
        raise typer.Exit(3)
    if found.unreadable:
        sys.stderr.write(f"error: the judge gave no readable reply; {report_formats.main_unscored_reason(found)}\n")
        raise typer.Exit(3)
