"""Run systems on the queries of a dataset, then time, score and compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, Unpack

from ragauge.comparison.compare import compare
from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.errors import BackendFailed, BadInput, MissingEvidence, RagaugeError, UnknownName, describe_failures
from ragauge.core.findings import Note, merge_notes
from ragauge.core.plugins import check_installed
from ragauge.core.records import Dataset, Judgments, Run, Scores
from ragauge.core.settings import unique_by
from ragauge.datasets import load
from ragauge.datasets.folders import dataset_name
from ragauge.datasets.queries import (
    describe_missing_documents,
    describe_self_documents,
    restrict_queries,
    self_documents,
)
from ragauge.datasets.query_sets import describe_repeated, list_pairs
from ragauge.evaluation.evaluate import (
    Measures,
    average_trials,
    compute_judged_ranks,
    default_run_measures,
    judgments_for_measures,
    parse_measures,
    score_trials,
    with_target_map,
)
from ragauge.experiments.output_folder import (
    check_folder_matches,
    check_folder_names,
    lock_out_folder,
    write_experiment,
)
from ragauge.files.readers import read_targets
from ragauge.files.serialization import settings_from
from ragauge.files.workspace import cache_folder, folder_name
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.latency import summarise_timings
from ragauge.measures.names import Measure
from ragauge.measures.scoring import MeasureFunction, score_judged_ranks
from ragauge.runs.execution import ExecutionOptions, RunSettings
from ragauge.runs.folder import dataset_fingerprint
from ragauge.runs.interruption import command_scope
from ragauge.runs.results import Experiment, ExperimentSet
from ragauge.runs.system_run import SystemRun
from ragauge.stats.comparisons import Comparison
from ragauge.systems.builder import SystemBuilder

ALLOW_FAILURES_HINT = "fix the system, or pass allow_failures=True to record the failure and continue"


class ExperimentOptions(ExecutionOptions, total=False):
    """Further keyword arguments of `run`: the fields of `RunSettings`, and which queries and systems are run."""

    fresh: bool
    """Run everything again."""
    reuse: bool
    """Reuse finished runs also of functions, objects, plug-ins and services, which may have changed."""
    split: str | None
    """Judgments of a BEIR folder."""
    targets: Any
    """Target map for `dr@k`, if the dataset has none."""
    max_queries: int | None
    """Maximum number of queries."""
    allow_failures: bool
    """Record systems that fail, instead of raising their error."""


class RunEachOptions(ExperimentOptions, total=False):
    """Further keyword arguments of `run_each`: all those of `run` for each dataset."""

    measures: Measures | None
    baseline: str | None
    convention: str | Convention
    progress: ProgressCallback


@lock_out_folder
@command_scope()
def run(
    dataset: Any,
    systems: Any,
    *,
    measures: Measures | None = None,
    baseline: str | None = None,
    convention: str | Convention = "default",
    out: str | Path | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[ExperimentOptions],
) -> Experiment:
    """Run systems on the queries of a dataset, then time, score and compare them.

    `dataset` is a name, a folder, rig's JSONL, a `Dataset`, or a list of `(query, id)`. A dataset without a corpus
    requires systems with their own index. `systems` is a mapping from names to descriptions (`"bm25"`,
    `"dense(embedder=minilm)"`), functions `(query, k)`, sync or async, or retrievers. In a list, each description is
    also the name; a single system needs no list. `options` are k, repeats, warmup, workers, timeout, retries and
    threads (of numeric libraries, per worker), and fresh, reuse, split, max_queries and allow_failures. k is the number
    of documents requested per query: by default the largest cutoff of the measures, at least 10. A retriever's own k is
    not used. `split` selects the judgments of a BEIR folder, `max_queries` is the maximum number of queries to run.

    With `out`, every result is saved as it arrives, and the same call resumes where the last one was interrupted. A
    finished run of a built-in system is reused: the corpus and the options identify it. Functions, objects, plug-ins
    and services may have changed and are run again, unless `reuse` is set. `fresh` runs everything again.

    A system that cannot be built, or that fails on every query, raises its error. With `allow_failures` the error is
    recorded in `failures` and the other systems run; if no system can be built, the first error is raised.
    """
    fresh, reuse = options.pop("fresh", False), options.pop("reuse", False)
    split, max_queries = options.pop("split", None), options.pop("max_queries", None)
    targets, allow_failures = options.pop("targets", None), options.pop("allow_failures", False)
    if fresh and reuse:
        raise BadInput("fresh and reuse are mutually exclusive", hint="leave out one of them")
    if not isinstance(dataset, str | Path | Dataset):
        dataset = list_pairs(dataset)
    full_dataset = load(dataset, split=split)
    if targets is not None:
        full_dataset = replace(full_dataset, targets=read_targets(targets))
    data, notes = restrict_queries(full_dataset, max_queries)
    notes += describe_repeated(dataset) if isinstance(dataset, list) else []
    n_unused_judgments = len(full_dataset.judgments) - len(data.judgments)
    convention = with_target_map(find_convention(convention), data.judgments)
    notes += describe_missing_documents(data, convention.rel)
    settings, requested_measures = _resolve_run_settings(options, measures, convention)
    named = _systems_by_name(systems)
    if baseline is not None and baseline not in named:
        raise UnknownName("system", baseline, named)
    judgments = judgments_for_measures(requested_measures, data.judgments)
    supported, omitted = _select_supported_measures(requested_measures, judgments, convention)
    notes += omitted
    folder = None if out is None else Path(out)
    builder = SystemBuilder(data.documents, named, cache=cache_folder())
    for name, system in named.items():
        builder.check(system)
        if not data.documents:
            _check_own_index(name, builder.list_corpus_plugins(system), data)
    check_installed(part for system in named.values() for part in builder.list_plugins(system))
    fingerprint = dataset_fingerprint(data)
    folders = {folder_name(name) for name in named}
    if folder is not None:
        check_folder_matches(folder, data, fingerprint, folders, fresh=fresh)
    runs: dict[str, Run] = {}
    failures: dict[str, RagaugeError] = {}
    try:
        for name, system in named.items():
            system_folder = folder and folder / folder_name(name)
            work = SystemRun(
                name, system, data, settings, fingerprint, builder, system_folder, progress, n_unused_judgments
            )
            try:
                runs[name] = work.complete(fresh=fresh, reuse=reuse)
                failed = _failed_queries_error(runs[name])
                if failed is not None:
                    failures[name] = failed
            except RagaugeError as error:
                failures[name] = error.add_prefix(name)
            if name in failures and not allow_failures and (name not in runs or has_only_failures(runs[name])):
                failures[name].hint = failures[name].hint or ALLOW_FAILURES_HINT
                raise failures[name]
    finally:
        builder.close()
    if not runs:
        raise next(iter(failures.values()))
    notes += describe_self_documents(self_documents(data, data.queries))
    notes += merge_notes(note for result in runs.values() for note in result.notes)
    trials = {
        name: score_trials(judgments, result.differing() or [result], supported, convention, name=name)
        for name, result in runs.items()
    }
    # The other notes on scores repeat those of the runs. These are first, since a terminal shows only the first notes.
    score_notes = [note for scores in trials.values() for note in scores[0].notes]
    notes = [*merge_notes(note for note in score_notes if isinstance(note, Note) and note.code), *notes]
    if folder is not None:  # it may have changed
        check_folder_matches(folder, data, fingerprint, folders, fresh=fresh)
    experiment = Experiment(
        data,
        runs,
        {name: average_trials(scores) for name, scores in trials.items()},
        {name: summarise_timings(result.timings) for name, result in runs.items() if result.timings is not None},
        _compare_with_baseline(trials, baseline),
        baseline,
        folder,
        notes,
        failures,
        {name: scores for name, scores in trials.items() if len(scores) > 1},
    )
    if folder is not None:
        write_experiment(experiment, folder)
    return experiment


def _compare_with_baseline(trials: Mapping[str, Sequence[Scores]], baseline: str | None) -> dict[str, Comparison]:
    """Compare each other system with the baseline by the first measure; empty without a baseline."""
    if baseline is None or baseline not in trials or len(trials) < 2:
        return {}
    measure = trials[baseline][0].measures[0]
    scores = {name: scores if len(scores) > 1 else scores[0] for name, scores in trials.items()}
    compared = compare(scores, baseline, measures=measure, count_missing=True)
    return {row.system: row for row in compared}


def _failed_queries_error(run: Run) -> BackendFailed | None:
    """Return the failed queries of a run as one error, or None if there are none."""
    if not run.failures or run.timings is None:
        return None
    failures = describe_failures(run.failures, run.timings["query"].n_unique(), scored=False)
    return BackendFailed(f"{run.name}: {failures}")


def has_only_failures(run: Run) -> bool:
    """Return whether a system failed on every query, in every trial."""
    return run.timings is not None and len(run.timings) > 0 and not (run.timings["status"] == "ok").any()


@command_scope()
def run_each(
    datasets: Any, systems: Any, *, out: str | Path | None = None, **options: Unpack[RunEachOptions]
) -> ExperimentSet:
    """Run systems on several datasets, each as a separate experiment.

    `datasets` are names, folders or datasets, or a mapping from names to these; `options` are the other arguments of
    `run`. With `out`, each dataset has its own subfolder. A dataset that cannot be run raises its error; with
    `allow_failures` it is left out and recorded in `failures`, and the first error is raised if no dataset can be
    run.
    """
    experiments: dict[str, Experiment] = {}
    failures: dict[str, RagaugeError] = {}
    for name, dataset in datasets_by_name(datasets).items():
        folder = None if out is None else Path(out) / folder_name(name)
        try:
            experiments[name] = run(dataset, systems, out=folder, **options)
        except RagaugeError as error:
            failures[name] = error.add_prefix(name)
            if not options.get("allow_failures"):
                raise
    if not experiments:
        raise next(iter(failures.values()))
    return ExperimentSet(experiments, failures, None if out is None else Path(out))


def datasets_by_name(datasets: Any) -> dict[str, Any]:
    """Return datasets by name. Raises BadInput if two of them would share a folder."""
    if isinstance(datasets, Mapping):
        named = {str(name): dataset for name, dataset in datasets.items()}
    else:
        sources = [datasets] if isinstance(datasets, str | Path | Dataset) else list(datasets)
        names = [source.name if isinstance(source, Dataset) else dataset_name(Path(source)) for source in sources]
        named = dict(zip(unique_by(names, str, "dataset", hint="name each once"), sources, strict=True))
    if not named:
        raise BadInput("no dataset given", hint='dataset = ["pydocs", "synthetic:needles"]')
    check_folder_names(named, "dataset")
    return named


def _check_own_index(name: str, over_corpus: Sequence[str], data: Dataset) -> None:
    """Raise BadInput if parts of a system are built over a corpus and the dataset has none."""
    if over_corpus:
        raise BadInput(
            f"{name}: `{over_corpus[0]}` is built over a corpus, and the dataset {data.name} has none",
            hint="give a folder with corpus.jsonl, or a system with its own index: a function (query, k), a retriever, "
            "http(url=…)",
        )


def _select_supported_measures(
    measures: list[Measure | MeasureFunction], judgments: Judgments, convention: Convention
) -> tuple[list[Measure | MeasureFunction], list[str]]:
    """Select the measures that the judgments support, before any system runs.

    Returns the measures and a note for each one left out. Raises MissingEvidence if none is left.
    """
    empty_run: dict[str, dict[str, float]] = {query: {} for query in judgments.nested}
    lenient = convention.but(missing="zero")
    supported: list[Measure | MeasureFunction] = []
    refused: dict[str, MissingEvidence] = {}
    for measure in measures:
        try:
            if isinstance(measure, Measure):
                ranks = compute_judged_ranks(judgments, empty_run, [measure], lenient)
                score_judged_ranks(ranks, [measure], lenient)
            supported.append(measure)
        except MissingEvidence as error:
            refused[str(measure)] = error
    if not supported:
        raise next(iter(refused.values()))
    return supported, [f"{name} is left out: {error.message}" for name, error in refused.items()]


def _resolve_run_settings(
    options: ExecutionOptions, measures: Measures | None, convention: Convention
) -> tuple[RunSettings, list[Measure | MeasureFunction]]:
    """Return the run settings and the measures.

    Without a given k, the largest cutoff is used.
    """
    k = settings_from(RunSettings, options).k
    parsed = parse_measures(measures or default_run_measures(k), convention)
    cutoffs = {str(measure): int(measure.cutoff or 0) for measure in parsed if isinstance(measure, Measure)}
    deepest = max(cutoffs.values(), default=0)
    if options.get("k") is not None and deepest > k:
        name = next(name for name, cutoff in cutoffs.items() if cutoff == deepest)
        raise BadInput(
            f"{name} needs {deepest} documents per query, but -k is {k}",
            hint=f"use `-k {deepest}`, or a cutoff of at most {k}",
        )
    return settings_from(RunSettings, {**options, "k": max(k, deepest)}), parsed


def _systems_by_name(systems: Any) -> dict[str, Any]:
    if isinstance(systems, str) or callable(systems) or not isinstance(systems, Iterable):
        systems = [systems]
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    else:
        system_list = list(systems)
        names = list(map(_default_name, system_list))
        hint = "give a mapping from names to systems"
        named = dict(zip(unique_by(names, str, "system", hint=hint), system_list, strict=True))
    if not named:
        raise BadInput("no system given", hint="add `--system bm25`")
    check_folder_names(named, "system")
    return named


def _default_name(system: Any) -> str:
    """Return the name of a system in a list: its description, or the name of its function or class."""
    if isinstance(system, str):
        return system
    return system.__name__ if isinstance(system, type | FunctionType) else type(system).__name__
