"""Run systems on the queries of a dataset, then time, score and compare them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ragauge.comparison import compare
from ragauge.compute.progress import RunProgress, SilentRunProgress
from ragauge.core.errors import BackendFailed, BadInput, MissingEvidence, RagaugeError, UnknownName, describe_failures
from ragauge.core.plugins import check_installed
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.core.specs import Spec, parse_spec, spec_from_toml
from ragauge.datasets import load
from ragauge.datasets.folders import dataset_name
from ragauge.datasets.queries import restrict_queries
from ragauge.datasets.query_sets import describe_repeated, list_pairs
from ragauge.evaluation import (
    Measures,
    compute_judged_ranks,
    default_run_measures,
    judgments_for_measures,
    parse_measures,
)
from ragauge.files.readers import read_judgments
from ragauge.files.serialization import read_settings, settings_from
from ragauge.files.workspace import cache_folder, folder_name, hold_folder
from ragauge.files.writers import write_judgments, write_queries
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.latency import summarise_timings
from ragauge.measures.names import Measure
from ragauge.measures.scoring import MeasureFunction, score_judged_ranks
from ragauge.runs import folder as runs_folder
from ragauge.runs.execution import RunSettings
from ragauge.runs.folder import DATASET_HASHES, dataset_fingerprint, judgments_hash
from ragauge.runs.interruption import command_scope
from ragauge.runs.results import Experiment, ExperimentSet
from ragauge.runs.system_run import SystemRun
from ragauge.stats.comparisons import Comparison
from ragauge.systems.builder import SystemBuilder

SETTING_TYPES: dict[str, tuple[type, ...]] = {
    "dataset": (str, list, dict),
    "split": (str,),
    "measures": (list,),
    "baseline": (str,),
    "convention": (str,),
    "out": (str,),
    "systems": (dict, list),
    "limit": (int,),
    "k": (int,),
    "repeats": (int,),
    "warmup": (int,),
    "workers": (int,),
    "timeout": (int, float),
    "retries": (int,),
    "threads": (int,),
    "pause": (int, float),
}


def read_experiment(path: str) -> dict[str, Any]:
    """Read the arguments of `run` from a TOML file.

    If `dataset` is a list or a table of names, they are arguments of `run_each`. A dataset can be a folder relative
    to the file. Raises BadInput for unknown keys or invalid values.
    """
    data = read_settings(path, SETTING_TYPES)
    for key in ("measures", "dataset"):
        given = data.get(key)
        several = list(given.values()) if isinstance(given, dict) else given
        if isinstance(several, list) and not all(isinstance(name, str) for name in several):
            raise BadInput(f"`{key}` is {given!r}, not a list of names", file=path)
    for key in ("dataset", "systems"):
        if key not in data:
            raise BadInput(f"there is no `{key}`", file=path, hint='dataset = "pydocs", and a table [systems.bm25]')
    RunSettings(
        **{key: value for key, value in data.items() if key in RunSettings.__dataclass_fields__}
    )  # raises if out of range
    data["dataset"] = _resolve_dataset_folders(data["dataset"], path)
    data["systems"] = _parse_systems(data["systems"], path)
    return data


def _resolve_dataset_folders(dataset: Any, path: str) -> Any:
    """Replace each dataset by the folder of that name next to the file, if it exists."""
    if isinstance(dataset, dict):
        return {name: _resolve_dataset_folders(one, path) for name, one in dataset.items()}
    if isinstance(dataset, list):
        return [_resolve_dataset_folders(one, path) for one in dataset]
    beside = Path(path).parent / dataset
    return str(beside) if beside.is_dir() else dataset


def _parse_systems(systems: Any, path: str) -> dict[str, Spec]:
    if isinstance(systems, list):
        named = {str(one): parse_spec(str(one)) for one in systems}
        if len(named) < len(systems):
            raise BadInput("a system is listed twice", file=path, hint='[systems.other] kind = "bm25"')
        return named
    found: dict[str, Spec] = {}
    for name, table in systems.items():
        if not isinstance(table, dict | str):
            raise BadInput(
                f"the system `{name}` is {table!r}, not a table", file=path, hint=f'[systems.{name}] kind = "bm25"'
            )
        found[name] = parse_spec(table) if isinstance(table, str) else spec_from_toml(name, table)
    return found


P = ParamSpec("P")
T = TypeVar("T")

RESERVED_NAMES = (
    *("report.html", "report.md", "summary.csv", "scores.csv", "charts"),
    *("judgments.parquet", "queries.parquet", "targets.json", runs_folder.EXPERIMENT_FILE),
)
"""File names that cannot be used for the folder of a run."""


COMPONENTS_NEEDING_CORPUS = frozenset(
    {"bm25", "dense", "pgvector", "pagerank", "graphflow", "swarm", "embedding", "mmr"}
)
"""Retrievers and rerankers that are built over the documents of a dataset."""
ALLOW_FAILURES_HINT = "fix the system, or pass allow_failures=True to record the failure and continue"


def _lock_out_folder(function: Callable[P, T]) -> Callable[P, T]:
    """Hold a shared lock on the folder `out` during a call.

    Other systems can run in the folder at the same time.
    """

    @wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> T:
        out = kwargs.get("out")
        with contextlib.nullcontext() if out is None else hold_folder(str(out), shared=True):
            return function(*args, **kwargs)

    return held


@_lock_out_folder
@command_scope()
def run(  # noqa: PLR0913 - each has a use of its own, and a default
    dataset: Any,
    systems: Any,
    *,
    measures: Measures | None = None,
    baseline: str | None = None,
    convention: str | Convention = "default",
    out: str | Path | None = None,
    fresh: bool = False,
    reuse: bool = False,
    split: str | None = None,
    limit: int | None = None,
    allow_failures: bool = False,
    watch: RunProgress | None = None,
    **how: Any,
) -> Experiment:
    """Run systems on the queries of a dataset, then time, score and compare them.

    `dataset` is a name, a folder, rig's JSONL, a `Dataset`, or a list of `(query, id)`. A dataset without a corpus
    requires systems with their own index. `systems` is a mapping from names to descriptions (`"bm25"`,
    `"dense(embedder=minilm)"`), functions `(query, k)`, sync or async, or retrievers. In a list, each description is
    also the name. `how` is k, repeats, warmup, workers, timeout, retries and threads (of numeric libraries, per
    worker). k is the number of documents requested per query: by default the deepest cutoff of the measures, at
    least 10. A retriever's own k is not used. `split` selects the judgments of a BEIR folder, `limit` is the number
    of queries to run.

    With `out`, every result is saved as it arrives, and the same call resumes where the last one was interrupted. A
    finished run of a built-in system is reused: the corpus and the options identify it. Functions, objects, plug-ins
    and services may have changed and are run again, unless `reuse` is set. `fresh` runs everything again.

    A system that cannot be built, or that fails on every query, raises its error. With `allow_failures` the error is
    recorded in `failures` and the other systems run; if no system can be built, the first error is raised.
    """
    if fresh and reuse:
        raise BadInput("fresh and reuse are mutually exclusive", hint="leave out one of them")
    if not isinstance(dataset, str | Path | Dataset):
        dataset = list_pairs(dataset)
    whole = load(dataset, split=split)
    data, notes = restrict_queries(whole, limit)
    notes += describe_repeated(dataset) if isinstance(dataset, list) else []
    not_asked = len(whole.judgments) - len(data.judgments)
    rules = find_convention(convention)
    plan, wanted = _resolve_run_settings(how, measures, rules)
    named = _systems_by_name(systems)
    if baseline is not None and baseline not in named:
        raise UnknownName("system", baseline, named, hint="the baseline is one of the systems")
    judgments = judgments_for_measures(wanted, data.judgments)
    wanted, lacking = _select_supported_measures(wanted, judgments, rules)
    notes += lacking
    folder = None if out is None else Path(out)
    look = watch or SilentRunProgress()
    workshop = SystemBuilder(data.documents, named, cache=cache_folder(), progress=look.building)
    for name, system in named.items():
        workshop.check(system)
        if not data.documents:
            _check_own_index(name, workshop.identity(system), data)
    check_installed(part for system in named.values() for part in workshop.parts(system))
    known = dataset_fingerprint(data)
    if folder is not None:
        _check_folder_matches(folder, data, known, {folder_name(name) for name in named}, fresh=fresh)
    runs: dict[str, Run] = {}
    failures: dict[str, RagaugeError] = {}
    try:
        for name, system in named.items():
            place = folder and folder / folder_name(name)
            work = SystemRun(name, system, data, plan, known, workshop, place, look, not_asked)
            try:
                runs[name] = work.done(fresh=fresh, reuse=reuse)
                failed = _failed_queries_error(runs[name])
                if failed is not None:
                    failures[name] = failed
            except RagaugeError as error:
                if not error.message.startswith(f"`{name}`"):
                    error.message = f"{name}: {error.message}"
                failures[name] = error
            if name in failures and not allow_failures and (name not in runs or has_only_failures(runs[name])):
                failures[name].hint = failures[name].hint or ALLOW_FAILURES_HINT
                raise failures[name]
            own = work.own
    finally:
        workshop.close()
    if not runs:
        raise next(iter(failures.values()))
    if own:
        notes.append(f"{len(own)} queries are themselves documents: each is left out of its own ranking")
    every = {
        name: [
            score_judged_ranks(compute_judged_ranks(judgments, one, wanted, rules, name=name), wanted, rules)
            for one in run.differing() or [run]
        ]
        for name, run in runs.items()
    }
    scores = {name: trials[0] for name, trials in every.items()}
    several = {name: trials for name, trials in every.items() if len(trials) > 1}
    speeds = {name: summarise_timings(one.timings) for name, one in runs.items() if one.timings is not None}
    compared = next(iter(scores.values())).measures[0]
    gaps: dict[str, Comparison] = {}
    if baseline in scores and len(scores) > 1:
        found = compare({**scores, **several}, baseline, measures=compared, count_missing=True)
        gaps = {row.system: row for row in found}
    notes += [note for one in runs.values() for note in one.manifest.get("notes", ())]
    if folder is not None:
        _check_folder_matches(
            folder, data, known, {folder_name(name) for name in named}, fresh=fresh
        )  # it may have changed
    experiment = Experiment(data, runs, scores, speeds, gaps, baseline, folder, notes, failures, several)
    if folder is not None:
        write_experiment(experiment, folder)
    return experiment


def write_experiment(experiment: Experiment, folder: Path) -> None:
    """Write the judgments, queries and scoring settings that runs share."""
    data, runs, first = experiment.dataset, experiment.runs, next(iter(experiment.scores.values()))
    write_judgments(data.judgments, str(folder / "judgments.parquet"))
    _write_targets(data.judgments, folder / "targets.json")
    write_queries(data.queries, data.tags, str(folder / "queries.parquet"))
    about = {
        "systems": list(dict.fromkeys([*runs, *experiment.failures])),
        "baseline": experiment.baseline,
        "convention": first.convention,
        "measures": first.measures,
        "failures": {name: error.message for name, error in experiment.failures.items() if name not in runs},
    }
    runs_folder.write_json(about, folder / runs_folder.EXPERIMENT_FILE)


def _check_folder_matches(
    folder: Path, data: Dataset, known: Mapping[str, Any], mine: set[str], *, fresh: bool
) -> None:
    """Raise BadInput if runs in the folder have other queries or judgments.

    Runs that `fresh` replaces are not checked.
    """
    hint = "give another --out"
    judged = judgments_hash(data.judgments)
    for run in runs_folder.find_run_folders(folder):
        if run.name in mine and fresh:
            continue
        theirs = runs_folder.manifest_value(run, "dataset")
        for key, what in DATASET_HASHES.items():
            if isinstance(theirs, Mapping) and theirs.get(key) not in (None, known[key]):
                raise BadInput(
                    f"holds a finished run of other {what}; expected {known[what]} {what} of `{data.name}`, "
                    f"got {theirs.get(what)} of `{theirs.get('name')}`",
                    file=str(run),
                    hint=hint + (", or --fresh to replace the run" if run.name in mine else ""),
                )
        if run.name not in mine and runs_folder.manifest_value(run, "judgments_hash") not in (None, judged):
            raise BadInput(
                f"holds a finished run with other judgments than those of `{data.name}`",
                file=str(run),
                hint=f"{hint}, or run `{runs_folder.manifest_value(run, 'system')['name']}` again in the same command",
            )
    kept = folder / "judgments.parquet"
    if fresh or not kept.exists() or not runs_folder.find_run_folders(folder):
        return
    before, now = read_judgments(folder).nested, data.judgments.nested
    lost = [query for query in before if query not in now]
    if lost:
        raise BadInput(
            f"has judgments of {len(before)} queries, {len(lost)} of which `{data.name}` lacks (such as `{lost[0]}`)",
            file=str(kept),
            hint=f"{hint}, or --fresh to replace the runs",
        )


def _failed_queries_error(run: Run) -> BackendFailed | None:
    """Return the failed queries of a run as one error, or None if there are none."""
    if not run.failures or run.timings is None:
        return None
    told = describe_failures(run.failures, run.timings["query"].n_unique(), scored=False)
    return BackendFailed(f"{run.name}: {told}")


def has_only_failures(run: Run) -> bool:
    """Return whether a system failed on every query, in every trial."""
    return run.timings is not None and len(run.timings) > 0 and not (run.timings["status"] == "ok").any()


@command_scope()
def run_each(datasets: Any, systems: Any, *, out: str | Path | None = None, **how: Any) -> ExperimentSet:
    """Run systems on several datasets, each as a separate experiment.

    `datasets` are names, folders or datasets, or a mapping from names to these; `how` are the other arguments of
    `run`. With `out`, each dataset has its own subfolder. A dataset that cannot be run raises its error; with
    `allow_failures` it is left out and recorded in `failures`, and the first error is raised if no dataset can be
    run.
    """
    experiments: dict[str, Experiment] = {}
    failures: dict[str, RagaugeError] = {}
    for name, dataset in datasets_by_name(datasets).items():
        try:
            experiments[name] = run(dataset, systems, out=None if out is None else Path(out) / folder_name(name), **how)
        except RagaugeError as error:
            error.message = f"{name}: {error.message}"
            if not how.get("allow_failures"):
                raise
            failures[name] = error
    if not experiments:
        raise next(iter(failures.values()))
    return ExperimentSet(experiments, failures, None if out is None else Path(out))


def datasets_by_name(datasets: Any) -> dict[str, Any]:
    """Return datasets by name. Raises BadInput if two of them would share a folder."""
    if isinstance(datasets, Mapping):
        named = {str(name): one for name, one in datasets.items()}
    else:
        named = {}
        for one in [datasets] if isinstance(datasets, str | Path | Dataset) else datasets:
            name = one.name if isinstance(one, Dataset) else dataset_name(Path(one))
            if name in named:
                raise BadInput(f"two datasets are called `{name}`", hint="name each once")
            named[name] = one
    if not named:
        raise BadInput("there is no dataset to run on", hint='dataset = ["pydocs", "synthetic:needles"]')
    _check_folder_names(named, "dataset")
    return named


def _check_own_index(name: str, identity: Mapping[str, str], data: Dataset) -> None:
    """Raise BadInput if a system is built over a corpus and the dataset has none."""
    needing = (
        []
        if "code" in identity
        else [one for one in _component_names(identity["description"]) if one in COMPONENTS_NEEDING_CORPUS]
    )
    if needing:
        raise BadInput(
            f"{name}: `{needing[0]}` is built over a corpus, and the dataset {data.name} has none",
            hint="give a folder with corpus.jsonl, or a system with its own index: a function (query, k), a retriever, "
            "http(url=…)",
        )


def _component_names(described: Any) -> Iterator[str]:
    """Yield the names of a system and of its retrievers and rerankers."""
    spec = parse_spec(described) if isinstance(described, str) else described
    if isinstance(spec, Spec):
        yield spec.name
        for option in ("of", "retriever", "reranker", "rerankers"):
            held = spec.options.get(option)
            for part in held if isinstance(held, list) else [held]:
                yield from () if part is None else _component_names(part)


def _select_supported_measures(
    measures: list[Measure | MeasureFunction], judgments: Judgments, rules: Convention
) -> tuple[list[Measure | MeasureFunction], list[str]]:
    """Select the measures that the judgments support, before any system runs.

    Returns the measures and a note for each one left out. Raises MissingEvidence if none is left.
    """
    nothing: dict[str, dict[str, float]] = {query: {} for query in judgments.nested}
    lenient = rules.but(missing="zero")
    kept: list[Measure | MeasureFunction] = []
    refused: dict[str, MissingEvidence] = {}
    for one in measures:
        try:
            if isinstance(one, Measure):
                score_judged_ranks(compute_judged_ranks(judgments, nothing, [one], lenient), [one], lenient)
            kept.append(one)
        except MissingEvidence as error:
            refused[str(one)] = error
    if not kept:
        raise next(iter(refused.values()))
    return kept, [f"{name} is left out: {error.message}" for name, error in refused.items()]


def _write_targets(judgments: Judgments, path: Path) -> None:
    """Write the target map as JSON, or remove the file if the judgments have none."""
    if judgments.targets is None:
        path.unlink(missing_ok=True)
    else:
        runs_folder.write_json({doc: list(targets) for doc, targets in judgments.targets.items()}, path)


def _resolve_run_settings(
    how: dict[str, Any], measures: Measures | None, rules: Convention
) -> tuple[RunSettings, list[Measure | MeasureFunction]]:
    """Return the run settings and the measures.

    Without a given k, the largest cutoff is used.
    """
    k = settings_from(RunSettings, how).k
    wanted = parse_measures(measures or default_run_measures(k), rules)
    deepest = max([int(one.cutoff or 0) for one in wanted if isinstance(one, Measure)], default=0)
    if how.get("k") is not None and deepest > k:
        name = next(str(one) for one in wanted if isinstance(one, Measure) and int(one.cutoff or 0) == deepest)
        raise BadInput(
            f"{name} needs {deepest} documents per query, but k is {k}",
            hint=f"use `-k {deepest}`, or a cutoff of at most {k}",
        )
    return settings_from(RunSettings, {**how, "k": max(k, deepest)}), wanted


def _systems_by_name(systems: Any) -> dict[str, Any]:
    if isinstance(systems, str):
        systems = [systems]
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    elif isinstance(systems, Iterable):
        named = {}
        for one in systems:
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            if name in named:
                raise BadInput(f"two systems are called `{name}`", hint="give a mapping from names to systems")
            named[name] = one
    else:
        raise BadInput(f"systems cannot be read from {type(systems).__name__}", hint='{"bm25": "bm25", "mine": search}')
    if not named:
        raise BadInput("there is no system to run", hint="--system bm25")
    _check_folder_names(named, "system")
    return named


def _check_folder_names(names: Iterable[str], what: str) -> None:
    """Raise BadInput if two names map to one folder, or a name to a reserved file."""
    slugs: dict[str, str] = {}
    for name in names:
        other = slugs.setdefault(folder_name(name), name)
        if other != name:
            raise BadInput(f"`{name}` and `{other}` would share a folder", hint="name them apart")
        if folder_name(name) in RESERVED_NAMES:
            raise BadInput(f"a {what} cannot be called `{name}`: that file stands beside the runs")
