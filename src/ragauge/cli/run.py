"""`ragauge run EXPERIMENT.toml` or `ragauge run DATASET --system …`: run, time and score systems.

If a file has several datasets, each is a separate experiment, and one table combines them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import (
    DocumentsPerQuery,
    FormatName,
    MaxQueries,
    OptionalConventionName,
    PrintJson,
    Reuse,
    SaveBaseline,
    Split,
    TargetMap,
    Threads,
    baseline_option,
    csv_option,
    measures_option,
    output_option,
)
from ragauge.cli.output import STDOUT, check_outputs, describe_omitted, print_report, split_outputs
from ragauge.cli.progress import show_progress
from ragauge.cli.run_systems import parse_systems, resolve_baseline
from ragauge.comparison.results import DatasetOverviews, Overview
from ragauge.core.errors import BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.core.protocols import Result
from ragauge.core.text import one_line
from ragauge.datasets import load
from ragauge.datasets.folders import dataset_name
from ragauge.experiments.baselines import check_baseline_folder, save_baseline
from ragauge.experiments.experiment_file import Permissions, read_experiment
from ragauge.experiments.run import datasets_by_name, has_only_failures
from ragauge.experiments.run import run as run_systems
from ragauge.files.workspace import folder_name
from ragauge.output.numbers import join_names
from ragauge.output.report import Report, Section
from ragauge.reports import registry
from ragauge.reports.experiment_set import MAX_OPEN_MEASURES, list_measures
from ragauge.reports.overview_report import build_report, describe_tables
from ragauge.reports.overview_tables import build_strata_table
from ragauge.reports.overviews import overview
from ragauge.reports.system_summaries import check_tag, list_tags
from ragauge.runs.folder import is_complete, manifest_value
from ragauge.runs.interruption import command_scope
from ragauge.runs.results import Experiment, canonical_tag


def save_experiment_baseline(experiment: Experiment, folder: Path) -> None:
    """Save the runs of an experiment as a baseline and print the option that uses it."""
    save_baseline(experiment, folder)
    first = shlex.quote(str(folder / folder_name(next(iter(experiment.runs)))))
    names = join_names(list(experiment.runs))
    console.print_notes(
        [f"saved the baseline {folder}{os.sep} ({names}); use it with `ragauge gate RUN --baseline {first} …`"]
    )


def run(  # noqa: PLR0913 - each is an option of the command
    what: Annotated[
        str,
        typer.Argument(metavar="DATASET|FILE.toml", help="Dataset (name, folder or rig JSONL), or experiment file."),
    ],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--system",
            metavar="SYSTEM",
            show_default="those of FILE.toml",
            help="Retrieval system: bm25, dense, 'dense(embedder=minilm)', module:function or module:Class; NAME=… "
            "names it. Can be repeated.",
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "-d",
            "--dataset",
            metavar="DATASET",
            show_default="those of FILE.toml",
            help="Dataset for the systems of an experiment file. Can be repeated.",
        ),
    ] = None,
    measure: Annotated[list[str] | None, measures_option("ndcg@10, recall@10, mrr@10, hit_rate@10")] = None,
    k: DocumentsPerQuery = None,
    baseline: Annotated[str | None, baseline_option("")] = None,
    repeats: Annotated[
        int | None, typer.Option(metavar="N", show_default="1", help="Number of trials per query.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(metavar="N", show_default="5", help="Number of untimed warm-up queries.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", show_default="1", help="Number of concurrent queries.")
    ] = None,
    threads: Threads = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", show_default="no limit", help="Timeout of one attempt in seconds."),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="0", help="Maximum number of repeated attempts per query."),
    ] = None,
    allow_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable that the systems of FILE.toml may send to their services. Can be repeated.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Host to which the systems of FILE.toml may send keys and passwords. Can be repeated.",
        ),
    ] = None,
    convention: OptionalConventionName = None,
    split: Split = None,
    targets: TargetMap = None,
    max_queries: MaxQueries = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="Tag of the queries whose values are reported separately."),
    ] = None,
    out: Annotated[
        list[str] | None,
        output_option(
            "Working folder, which is resumed; {now} is the time (UTC)", "runs/NAME, by the dataset or the file"
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every system again, including finished built-in ones.")
    ] = False,
    reuse: Reuse = False,
    save_to: SaveBaseline = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("value of a system")] = False,
    format_name: FormatName = None,
) -> None:
    """Run retrieval systems on a dataset, then time, score and compare them.

    [dim]ragauge run pydocs -s bm25 -s dense -s 'hybrid(weights=0.7+0.3)' -b bm25[/dim]

    [dim]ragauge run experiment.toml -o runs/nightly -o report.html[/dim]
    """
    if fresh and reuse:
        raise BadInput("--fresh and --reuse are mutually exclusive", hint="leave out one of them")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    files, folder = split_outputs([path.replace("{now}", now) for path in out or []])
    settings: dict[str, Any] = {"convention": "default", "fresh": fresh, "reuse": reuse}
    if what.endswith(".toml"):
        settings.update(read_experiment(what, Permissions(tuple(allow_env or ()), tuple(allow_host or ()))))
    elif dataset:
        raise BadInput(
            "--dataset has no effect without an experiment file",
            hint=f"use `ragauge run {dataset[0]}`, or give FILE.toml",
        )
    elif allow_env or allow_host:
        option = "--allow-env" if allow_env else "--allow-host"
        raise BadInput(f"{option} has no effect without an experiment file", hint=f"remove {option}")
    else:
        settings.update(dataset=what, systems={})
    file_systems = settings["systems"]
    if system:
        settings["systems"] = parse_systems(system, file_systems)
    optional_settings = {
        "measures": measure, "k": k, "baseline": baseline, "repeats": repeats, "warmup": warmup, "workers": workers,
        "timeout": timeout, "retries": retries, "convention": convention, "out": folder, "split": split,
        "targets": targets,
        "max_queries": max_queries, "dataset": dataset or None, "threads": threads,
    }  # fmt: skip
    settings.update({name: value for name, value in optional_settings.items() if value is not None})
    if not settings["systems"]:
        raise BadInput(
            "no system given; expected at least one --system",
            hint="add `--system bm25`; list all with `ragauge systems`",
        )
    resolve_baseline(settings, file_systems, given=baseline is not None)
    if "out" not in settings:
        named = Path(what).stem if what.endswith((".toml", ".jsonl")) else dataset_name(Path(what))
        settings["out"] = Path("runs") / folder_name(named)
    changed_options = ""
    if any("{now}" in str(path) for path in (settings["out"], *(out or []))):
        settings["out"] = str(settings["out"]).replace("{now}", now)
        changed_options = f" with --out {shlex.quote(settings['out'])}"
    if by is not None and isinstance(settings["dataset"], str):
        check_tag(by, load(settings["dataset"], split=settings.get("split")))
    several = isinstance(settings["dataset"], list | dict)
    outputs = RunOutputs(files, as_json=as_json, as_csv=as_csv, format_name=format_name)
    outputs.check(DatasetOverviews if several else Overview)
    if save_to is not None:
        folders = [folder_name(name) for name in datasets_by_name(settings["dataset"])] if several else [""]
        for folder in folders:
            check_baseline_folder(Path(save_to) / folder)
    with command_scope():  # until the report is written
        if several:
            _run_each_dataset(settings, outputs, changed_options=changed_options, by=by, save_to=save_to)
        else:
            experiment = run_with_progress(settings, changed_options=changed_options)
            finish_experiment(experiment, outputs, by=by, save_to=save_to)


@dataclass(frozen=True)
class RunOutputs:
    """Output options of `run` and `demo`, which also write their working folder."""

    files: Sequence[str]
    _: KW_ONLY
    as_json: bool
    as_csv: bool
    format_name: str | None = None

    def check(self, result_type: type[Result]) -> None:
        """Check that results of this type can be written as requested, before any work."""
        check_outputs(
            result_type,
            self.files,
            as_json=self.as_json,
            as_csv=self.as_csv,
            format_name=self.format_name,
            has_folder=True,
        )

    @property
    def written_files(self) -> list[str]:
        """Files to write in addition to the working folder."""
        return [file for file in self.files if file != STDOUT]

    @property
    def printed_format(self) -> str | None:
        """Format that is printed; None for tables."""
        if self.as_json or self.as_csv:
            return "json" if self.as_json else "csv"
        return None if self.written_files else self.format_name

    def write(self, result: Result, compact: Result) -> list[str]:
        """Write the files and print the requested format; return notes on the files.

        `compact` is printed as JSON: the result without its queries.
        """
        registry.write_results([result], self.written_files, self.format_name)
        if self.printed_format is not None:
            printed = compact if self.printed_format == "json" else result
            console.write_data(_format_results(printed, self.printed_format), nl=False)
        return [f"wrote {file}" for file in self.written_files]


def _run_each_dataset(
    settings: dict[str, Any], outputs: RunOutputs, *, changed_options: str, by: str | None, save_to: str | None
) -> None:
    """Run an experiment per dataset, and combine the results.

    A dataset that fails does not stop the others.
    """
    folder = Path(settings["out"])
    named = datasets_by_name(settings["dataset"])
    places = {name: folder_name(name) for name in named}
    overviews: dict[str, Overview] = {}
    failures: list[RagaugeError] = []
    absent: dict[str, str] = {}
    tags: set[str] = set()
    prints_tables = outputs.printed_format is None
    for name, dataset in named.items():
        sys.stderr.write(f"{one_line(name)}\n")
        try:
            experiment = run_with_progress(
                {**settings, "dataset": dataset, "out": folder / places[name]}, changed_options=changed_options
            )
            if overviews and prints_tables:
                console.print_tables("")
            known_tags = list_tags(experiment)
            tags |= known_tags
            if by is not None and canonical_tag(by, known_tags) not in known_tags:
                listed = ", ".join(sorted(known_tags)) or "none"
                note = f"not split by {by}: the queries have no such tag (there are {listed})"
                experiment = replace(experiment, notes=[*experiment.notes, note])
            overviews[name] = _write_and_print_report(
                experiment,
                prints_tables=prints_tables,
                by=by if by and canonical_tag(by, known_tags) in known_tags else None,
                explained=not overviews,
            )
            if save_to is not None and not _failed_systems(experiment):
                save_experiment_baseline(experiment, Path(save_to) / places[name])
        except RagaugeError as error:
            absent[name] = error.message
            failures.append(error.add_prefix(name))
            continue
        failures += [error.add_prefix(name) for error in _failed_systems(experiment)]
    if not overviews:
        raise failures[0]
    if by is not None and canonical_tag(by, tags) not in tags:
        failures.append(UnknownName("tag", by, sorted(tags)))
    study = DatasetOverviews(folder.resolve().name, overviews, absent, {name: places[name] for name in overviews})
    notes = _write_results(study, {"report.md": "markdown", "summary.csv": "csv"}, folder)
    compact = replace(study, datasets={name: result.without_queries() for name, result in overviews.items()})
    notes += outputs.write(study, compact)
    if prints_tables:
        console.print_tables("")
        report = registry.build_reports([study])[0]
        more = list_measures(overviews)[MAX_OPEN_MEASURES:]
        further = [f"summary.csv and report.md also have {', '.join(more)}"] if more else []
        notes = [*report.notes, *describe_omitted(print_report(report), "report.md"), *notes, *further]
    files = "report.md, summary.csv" + ", report.html" * (folder / "report.html").exists()
    console.print_notes([*notes, f"wrote {folder}{os.sep}: {files}, and a folder for each dataset"])
    _exit_with_failures(failures)


def run_with_progress(settings: dict[str, Any], *, changed_options: str = "") -> Experiment:
    """Run systems with a progress display; after Ctrl-C, print the command that resumes, with `changed_options`."""
    changed_options += " without --fresh" if settings["fresh"] else ""
    resume_hint = f"finished queries are saved in {settings['out']}; to resume, run the same command{changed_options}"
    with show_progress(resume_hint, lines=True) as progress:
        return run_systems(**settings, allow_failures=True, progress=progress)


def finish_experiment(
    experiment: Experiment,
    outputs: RunOutputs,
    *,
    by: str | None = None,
    audited: bool = False,
    save_to: str | None = None,
    next_steps: str | None = None,
) -> None:
    """Write the report next to the runs and to the requested files, print it, and save a baseline if requested."""
    prints_tables = outputs.printed_format is None
    result = _write_and_print_report(
        experiment, prints_tables=prints_tables, by=by, audited=audited, next_steps=next_steps
    )
    if save_to is not None and not _failed_systems(experiment):
        save_experiment_baseline(experiment, Path(save_to))
    console.print_notes(outputs.write(result, result.without_queries()))
    _exit_with_failures(_failed_systems(experiment))


def _write_and_print_report(
    experiment: Experiment,
    *,
    prints_tables: bool,
    by: str | None,
    audited: bool = False,
    explained: bool = True,
    next_steps: str | None = None,
) -> Overview:
    """Write the report of an experiment to the folder of its runs, and print it.

    Without `prints_tables`, only notes are printed. Without `explained`, the notes do not explain the tables.
    """
    folder = experiment.folder or Path()
    by = None if by is None else canonical_tag(by, list_tags(experiment))
    result = overview(experiment, by=by or (), audited=audited)
    files = {"report.md": "markdown", "summary.csv": "csv", "scores.csv": "queries"}
    missing_page = _write_results(result, files, folder)
    notes = [
        *experiment.notes,
        *(describe_tables(result) if explained else ()),
    ]
    dropped = print_report(_add_groups(build_report(result), result, by)) if prints_tables else []
    page = ", report.html" * (folder / "report.html").exists()
    if next_steps is None and result.baseline is not None:
        next_steps = f"ragauge compare {shlex.quote(str(folder))} -b {shlex.quote(result.baseline)}"
    console.print_notes(
        [
            *console.limit_notes(notes),
            *describe_omitted(dropped, "report.md"),
            *missing_page,
            f"wrote {folder}{os.sep}: {', '.join(files)}{page}, judgments.parquet, "
            f"queries.parquet, and a folder for each run ({join_names([*map(folder_name, experiment.runs)])})",
            *_describe_other_runs(experiment),
            *([] if next_steps is None else [f"next: {next_steps}"]),
        ]
    )
    return result


def _add_groups(report: Report, result: Overview, by: str | None) -> Report:
    """Add the table of the means by group of queries, if a tag was requested."""
    if by is None:
        return report
    table = build_strata_table(result, by)
    return replace(report, sections=[*report.sections, Section("groups", table.title, [table])])


def _describe_other_runs(experiment: Experiment) -> list[str]:
    """Name similar runs in the folder that the report omits.

    They have the same dataset and settings.
    """
    if experiment.folder is None:
        return []
    own_folders = [folder_name(name) for name in experiment.runs]
    about = next(iter(experiment.runs.values())).manifest
    other_names = []
    for run_folder in sorted(
        path for path in experiment.folder.iterdir() if path.name not in own_folders and is_complete(path)
    ):
        if all(manifest_value(run_folder, key) == about.get(key) for key in ("dataset", "plan")):
            other_names.append(str(manifest_value(run_folder, "system")["name"]))
    if not other_names:
        return []
    folder = experiment.folder
    return [
        f"the report is of {join_names(list(experiment.runs))} alone; {folder} also has {join_names(other_names)}: "
        f"`ragauge report {shlex.quote(str(folder))}` shows all"
    ]


def _write_results(result: Result, formats: Mapping[str, str], folder: Path) -> list[str]:
    """Write a result to files in the named formats, and as HTML page; return a note if that cannot be made."""
    for name, format_name in formats.items():
        registry.write_results([result], [str(folder / name)], format_name)
    try:
        registry.write_results([result], [str(folder / "report.html")])
    except MissingExtra as missing:
        return [f"no report.html: {missing.message} ({missing.hint})"]
    return []


def _format_results(result: Result, format_name: str) -> str:
    return registry.find_formats(type(result))[format_name].write([result])


def _failed_systems(experiment: Experiment) -> list[RagaugeError]:
    """Return the errors of systems that were not built or failed on every query."""
    runs = experiment.runs
    return [error for name, error in experiment.failures.items() if name not in runs or has_only_failures(runs[name])]


def _exit_with_failures(failures: Sequence[RagaugeError]) -> None:
    """Print errors, and exit with the highest of their exit codes."""
    for error in failures:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"error: {one_line(error.message + hint)}\n")
    if failures:
        raise typer.Exit(max(error.exit_code for error in failures))
