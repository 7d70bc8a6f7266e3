"""Inputs of commands and functions: judgments, runs, tables of scores and texts, from paths, names and objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.core.settings import unique_by
from ragauge.datasets import judgments_by_name
from ragauge.files import readers
from ragauge.files.in_memory import is_single_run
from ragauge.files.judged_folders import is_judged_folder, list_judged_folders
from ragauge.files.source import InputFile
from ragauge.output.numbers import join_names
from ragauge.runs import folder as runs_folder
from ragauge.runs.experiment_folders import (
    ExperimentMetadata,
    check_run_judgments,
    check_same_dataset,
    read_experiment_metadata,
    read_shared_judgments,
    warn_unfinished_runs,
)
from ragauge.runs.input_kinds import (
    InputKind,
    ResolvedInput,
    describe_invalid_result,
    is_dataset_folder,
    is_experiment_folder,
    is_kind,
    is_run_folder,
    path_exists,
    read_system_name,
    resolve_input,
    split_path_name,
)
from ragauge.runs.results import Experiment
from ragauge.runs.texts import DocumentTexts, find_run_texts, load_dataset_or_corpus, load_texts

TABLE_KINDS = frozenset({InputKind.JUDGED, InputKind.SCORES})
"""Kinds of inputs that have scores or outcomes and need no judgments."""

ARGUMENTS_HINT = "pass judgments and then runs, or a folder that `ragauge run` wrote"


class NamedInput(NamedTuple):
    """An input and the name that the user gave it; empty if none."""

    name: str
    value: Any


@dataclass(frozen=True, eq=False)
class Inputs:
    """Judgments and runs by name, or tables of scores; several runs under one name are repetitions of one system."""

    qrels: Any = None
    """Judgments, in any form that `evaluate` accepts; None if tables are given."""
    run_sources: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Paths or objects of each system."""
    tables: Sequence[ResolvedInput] = ()
    """Tables of scores or trials, and judged folders; only if there are no runs."""
    query_texts: Mapping[str, str] = field(default_factory=dict)
    """Query texts by query id, if stored with the runs."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Tags by query id and tag name, if stored with the runs."""
    dataset_name: str = ""
    """Name of the dataset, if stored with the runs."""
    measures: Sequence[str] = ()
    """Measures that `run` computed, if stored."""
    baseline: str | None = None
    """Baseline that `run` compared with, if stored."""
    requested_baseline: str | None = None
    """Name of the baseline that the caller requested."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Error messages of systems that could not be run, by system."""
    named_inputs: Mapping[str, Any] = field(default_factory=dict)
    """Further inputs by name: `judgments` as given, `documents`, `queries`, `dataset`."""
    split: str | None = None
    targets: Any = None
    """Target map for `dr@k`, if it does not belong to the judgments."""

    @classmethod
    def resolve(
        cls,
        *values: Any,
        named: Mapping[str, Any] = EMPTY_MAPPING,
        split: str | None = None,
        targets: Any = None,
        tables: Collection[InputKind] = (),
        runs_required: bool = True,
    ) -> Inputs:
        """Resolve `QRELS RUN…`, `RUN-FOLDER…`, `EXPERIMENT-FOLDER…`, an Experiment, or objects: judgments, then runs.

        A path may be written `NAME=PATH`. If all values are folders that `run` wrote, the judgments are read from the
        folder next to the runs. An experiment folder stands for all its runs. `named` are `baseline` (a name, or a
        path that is added to the runs), `documents`, `queries` and `dataset`. `tables` are the kinds that are
        accepted instead of judgments and runs. Without `runs_required`, judgments or a dataset are enough.
        """
        if values.count("-") > 1:
            raise BadInput("standard input can be read only once", hint="use - for one file only")
        if not values:
            raise BadInput(
                "no input given; expected QRELS and at least one RUN, or a run folder",
                hint="use `ragauge evaluate qrels.txt bm25.run`",
            )
        present = {name: value for name, value in named.items() if value is not None and name != "baseline"}
        inputs = _resolve_tables(values, tables, named.get("baseline"))
        if inputs is None:
            inputs = _resolve_runs(values, named.get("baseline"), runs_required=runs_required)
        return replace(inputs, named_inputs={"judgments": values[0], **present}, split=split, targets=targets)

    @property
    def single_runs(self) -> dict[str, Any]:
        """One source per name; raises BadInput if a name has several."""
        for name, sources in self.run_sources.items():
            if len(sources) > 1:
                raise BadInput(f"duplicate run name `{name}` ({len(sources)} runs)", hint="give each run its own name")
        return {name: sources[0] for name, sources in self.run_sources.items()}

    @property
    def single_run(self) -> tuple[str, Any]:
        """Name and source of the only run; raises BadInput if there are several."""
        runs = self.single_runs
        if len(runs) != 1:
            raise BadInput(f"expected one run, got {join_names(list(runs))}", hint="pass one of them alone")
        return next(iter(runs.items()))

    def judgments(self) -> Judgments:
        return readers.read_judgments(self.qrels, split=self.split)

    def open_runs(self, *, with_ranks: bool = False) -> dict[str, list[Run]]:
        """Read all runs by system, with their rank column if requested."""
        return {
            name: [open_run(source, name, with_ranks=with_ranks) for source in sources]
            for name, sources in self.run_sources.items()
        }

    def trials(self, name: str) -> list[Any]:
        """Return all runs of a system, and of each all trials if their rankings differ; files are not read."""
        sources = self.run_sources[name]
        return [trial for source in sources for trial in readers.read_differing_trials(source) or [source]]

    def texts(self, runs: Mapping[str, Sequence[Run]] = EMPTY_MAPPING) -> DocumentTexts:
        """Load documents, queries and answers.

        They are the given ones, those of the dataset with the judgments, or those of the dataset that the runs were
        made on. Query texts that are stored with the runs come before those of a dataset.
        """
        documents, queries = self.named_inputs.get("documents"), self.named_inputs.get("queries")
        source = self.named_inputs.get("judgments")
        if "dataset" in self.named_inputs:
            source = load_dataset_or_corpus(self.named_inputs["dataset"], self.split)
        elif isinstance(source, Experiment):
            source = source.dataset
        if queries is None and self.query_texts:
            queries = self.query_texts
        texts = load_texts(source, documents, queries, self.split)
        if not texts.queries:
            texts = replace(texts, queries=None)
        if texts.documents is None and runs:
            manifests = [several[0].manifest for several in runs.values()]
            texts = find_run_texts(manifests, texts, self.dataset_name)
        return texts

    def check_same_dataset(self) -> None:
        """Refuse run folders that were not made on the same queries and documents."""
        paths = [path for sources in self.run_sources.values() for path in sources if isinstance(path, str)]
        datasets = [(path, runs_folder.manifest_value(path, "dataset") or {}) for path in paths if is_run_folder(path)]
        for path, data in datasets[1:]:
            check_same_dataset(datasets[0], (path, data))


def open_run(source: Any, name: str = "", *, with_ranks: bool = False) -> Run:
    """Read a run from a path or an object; a run folder includes its timings and provenance.

    With `with_ranks`, a numeric rank column is read too.
    """
    if isinstance(source, Run):
        return source
    if not isinstance(source, str | Path):
        return readers.read_run(source, name=name or "run")
    if str(source) != "-" and runs_folder.is_complete(Path(source)):
        return runs_folder.read_run_folder(Path(source))
    run = readers.read_run(source, name=name or InputFile(str(source)).stem, with_ranks=with_ranks)
    return replace(run, name=name) if name else run


def _resolve_tables(values: Sequence[Any], kinds: Collection[InputKind], baseline: str | None) -> Inputs | None:
    """Resolve tables and judged folders; None unless all values are such."""
    kinds = TABLE_KINDS & frozenset(kinds)
    if not kinds or not all(isinstance(value, str | Path) for value in values):
        return None
    split = [NamedInput(*split_path_name(str(value))) for value in values]
    if InputKind.JUDGED in kinds:
        split = [part for item in split for part in _expand_judged_folder(item)]
    if not all(is_kind(item.value, *kinds) for item in split):
        return None
    if (
        baseline is not None
        and is_judged_folder(baseline)
        and not any(is_same_path(baseline, item.value) for item in split)
    ):
        split.append(NamedInput("", baseline))
    tables = [resolve_input(item.value, name=item.name, expected=kinds) for item in split]
    return Inputs(
        tables=[replace(table, name=item.name) for table, item in zip(tables, split, strict=True)],
        requested_baseline=baseline,
    )


def _expand_judged_folder(item: NamedInput) -> list[NamedInput]:
    """Return the judged folders in a folder, or the item itself."""
    folder = Path(item.value)
    if item.name or not folder.is_dir() or (folder / runs_folder.JUDGMENTS_FILE).exists():
        return [item]
    return [NamedInput("", path) for path in list_judged_folders(item.value)] or [item]


def is_same_path(first: str | Path, second: str | Path) -> bool:
    """Return whether two paths lead to the same file or folder."""
    return Path(first).resolve() == Path(second).resolve()


def _resolve_runs(values: Sequence[Any], baseline: str | None, *, runs_required: bool) -> Inputs:
    inputs = _resolve_judgments_and_runs(values, runs_required=runs_required)
    if baseline is None or baseline in inputs.run_sources:
        return replace(inputs, requested_baseline=baseline)
    if not split_path_name(baseline)[0] and path_exists(baseline) and _find_run_name(inputs, baseline) is None:
        inputs = _resolve_judgments_and_runs([*values, baseline], runs_required=runs_required)
    return replace(inputs, requested_baseline=_find_run_name(inputs, baseline) or baseline)


def _find_run_name(inputs: Inputs, path: str) -> str | None:
    return next(
        (name for name, sources in inputs.run_sources.items() if any(is_same_path(source, path) for source in sources)),
        None,
    )


def _resolve_judgments_and_runs(values: Sequence[Any], *, runs_required: bool) -> Inputs:
    if not all(isinstance(value, str | Path) for value in values):
        return _resolve_objects(values)
    arguments = list(map(str, values))
    split = [NamedInput(*split_path_name(argument)) for argument in arguments]
    paths = [item.value for item in split]
    are_experiments = [is_experiment_folder(path) for path in paths]
    finished = [is_run_folder(path) for path in paths]
    inside = are_experiments[0] and all(Path(path).resolve().parent == Path(paths[0]).resolve() for path in paths[1:])
    if all(
        is_experiment or is_finished for is_experiment, is_finished in zip(are_experiments, finished, strict=True)
    ) and not (inside and len(paths) > 1):
        runs: list[NamedInput] = []
        for item, experiment in zip(split, are_experiments, strict=True):
            if experiment:
                runs += [NamedInput("", str(run)) for run in runs_folder.find_run_folders(Path(item.value))]
                warn_unfinished_runs(Path(item.value))
            else:
                runs.append(item)
        return _inputs_from_folders(runs)
    if len(arguments) < 2:
        judgments = None if runs_required or arguments[0] == "-" else _judgments_alone(arguments[0])
        if judgments is None:
            raise _single_argument_error(paths[0])
        return Inputs(judgments)
    runs = split[1:]
    if not are_experiments[0]:
        return Inputs(judgments_by_name(arguments[0]), _runs_by_name(runs))
    experiment_folder = Path(paths[0])
    check_run_judgments(runs_folder.find_run_folders(experiment_folder), readers.read_judgments(experiment_folder))
    return _with_metadata(Inputs(paths[0], _runs_by_name(runs)), read_experiment_metadata(experiment_folder))


def _inputs_from_folders(runs: Sequence[NamedInput]) -> Inputs:
    """Resolve run folders whose judgments are next to them."""
    homes = list(dict.fromkeys(Path(run.value).resolve().parent for run in runs))
    qrels = read_shared_judgments([run.value for run in runs], homes)
    metadata = [read_experiment_metadata(home) for home in homes]
    sources = _runs_by_name(runs)
    order = [name for item in metadata for name in item.systems]
    inputs = Inputs(qrels, {name: sources[name] for name in [*order, *sources] if name in sources})
    return _with_metadata(inputs, metadata[0])


def _with_metadata(inputs: Inputs, metadata: ExperimentMetadata) -> Inputs:
    return replace(
        inputs,
        query_texts=metadata.query_texts,
        tags=metadata.tags,
        dataset_name=metadata.dataset_name,
        measures=metadata.measures,
        baseline=metadata.baseline,
        failures=metadata.failures,
    )


def _runs_by_name(runs: Sequence[NamedInput]) -> dict[str, list[Any]]:
    """Return runs by the given name, or by the system or file name, prefixed by the folder if that is ambiguous."""
    unnamed = [run.value for run in runs if not run.name]
    hint = "pass each file once, or `NAME=FILE` for a repetition of a system"
    unique_by(unnamed, str, "run", hint=hint)
    names = [read_system_name(path) or InputFile(path).stem for path in unnamed]
    if len(set(names)) < len(names):
        names = [f"{Path(path).resolve().parent.name}/{name}" for path, name in zip(unnamed, names, strict=True)]
    if len(set(names)) < len(names):
        names = unnamed
    name_of = dict(zip(unnamed, names, strict=True))
    by_name: dict[str, list[Any]] = {}
    for name, path in runs:
        by_name.setdefault(name or name_of[path], []).append(path)
    for paths in by_name.values():
        unique_by(paths, lambda path: Path(path).resolve(), "run", hint=hint)
    return by_name


def _single_argument_error(path: str) -> BadInput:
    """Return the error for a single argument that contains no finished run."""
    if path != "-" and not path_exists(path):
        return BadInput(
            "no such file or folder",
            file=path,
            hint="check the path; `ragauge run` writes to runs/NAME unless -o is given",
        )
    if path == "-" or not Path(path).is_dir():
        reason = describe_invalid_result(path) if path.endswith(".json") else ""
        hint = "write the result again with -o" if reason else f"pass judgments, then runs: `{path} bm25.run`"
        return BadInput(f"no run given; expected QRELS and at least one RUN{reason}", file=path, hint=hint)
    experiments = [str(folder) for folder in sorted(Path(path).glob("*")) if is_experiment_folder(folder)]
    if experiments:
        return BadInput(
            "no run in this folder", file=path, hint=f"pass one of the experiments: {', '.join(experiments)}"
        )
    if any(Path(path).glob(f"*/{runs_folder.JOURNAL_FILE}")):
        return BadInput("no finished run found", file=path, hint="run the same command again to resume")
    if runs_folder.find_run_folders(Path(path)):
        return BadInput("no judgments.parquet found", file=path, hint=ARGUMENTS_HINT)
    return BadInput("no finished run found", file=path, hint=ARGUMENTS_HINT)


def _judgments_alone(argument: str) -> Any:
    """Return the judgments of a file, a dataset folder or the name of a dataset; None for another argument."""
    path = Path(argument)
    if path.is_dir():
        homes = [home for home in (path, path / "beir") if is_dataset_folder(home)]
        plain = homes[-1] / "qrels.txt" if homes else path
        return str(plain if plain.exists() else homes[-1]) if homes else None
    judgments = judgments_by_name(argument)
    return judgments if isinstance(judgments, Judgments) or path.is_file() else None


def _resolve_objects(values: Sequence[Any]) -> Inputs:
    """Resolve an Experiment, or judgments (also a Dataset) and then runs, of which some may be paths."""
    first = values[0]
    if isinstance(first, Experiment) and len(values) == 1:
        scores = next(iter(first.scores.values()))
        judged = first.dataset.judgments if scores.judged is None else scores.judged.judgments
        return Inputs(
            judged,
            {name: [run] for name, run in first.runs.items()},
            query_texts=first.dataset.queries,
            tags=first.dataset.tags,
            dataset_name=first.dataset.name,
            measures=first.measures,
            baseline=first.baseline,
        )
    qrels = judgments_by_name(first) if isinstance(first, str) else first
    qrels = qrels.judgments if isinstance(qrels, Dataset) else qrels
    sources: dict[str, list[Any]] = {}
    for value in values[1:]:
        for name, source in _name_objects(value):
            sources.setdefault(name, []).append(source)
    return Inputs(qrels, sources)


def _name_objects(value: Any) -> list[NamedInput]:
    """Return runs by name: of a mapping, of a list of paths, or one run."""
    if isinstance(value, Mapping) and not is_single_run(value):
        return [NamedInput(str(name), run) for name, run in value.items()]
    if isinstance(value, list | tuple) and value and all(isinstance(item, str | Path) for item in value):
        return [NamedInput(InputFile(str(path)).stem, path) for path in value]
    if isinstance(value, str | Path):
        return [NamedInput(InputFile(str(value)).stem, value)]
    return [NamedInput(value.name if isinstance(value, Run) else "run", value)]
