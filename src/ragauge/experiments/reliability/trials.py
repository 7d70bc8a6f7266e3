"""Trials of systems: success of each task in each trial, from runs, run folders, tables and mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.findings import Note
from ragauge.core.records import Floats, Judgments, Run
from ragauge.core.settings import unique_by
from ragauge.evaluation import compute_judged_ranks, judgments_for_measures, parse_measures
from ragauge.files.in_memory import is_dataframe, to_polars
from ragauge.files.source import InputFile
from ragauge.files.table_rows import rows_from_frame
from ragauge.files.trials import (
    TrialCounts,
    check_finite,
    read_trials,
    trials_by_system,
    trials_from_rows,
)
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import MISSING_QUERIES, MeasureFunction, score_judged_ranks
from ragauge.output.numbers import pluralise
from ragauge.runs.input_kinds import InputKind, is_run_folder, resolve_input, split_path_name
from ragauge.runs.inputs import Inputs, open_run
from ragauge.runs.results import Experiment

DEFAULT_MEASURE = "hit_rate@5"
DEFAULT_MIN_SCORE = 1.0
UNNAMED_SYSTEM = "trials"
"""Name of a system whose trials were given without a name."""


@dataclass(frozen=True, eq=False)
class TrialOutcomes:
    """Outcomes of all trials, by system."""

    systems: Mapping[str, TrialCounts]
    success: str
    """Definition of a success."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """`{task: text}`, if known."""
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`{system: notes on its trials}`."""
    are_named: bool = True
    """Whether systems were given by name, even if there is only one."""


class SuccessRule(NamedTuple):
    """What makes a trial a success: the score in a table, or the measure of a ranking, reaches a threshold."""

    measure: str | MeasureFunction = DEFAULT_MEASURE
    threshold: float | None = None
    convention: str | Convention = "default"


def collect_trials(trials: Any, qrels: Any, rule: SuccessRule) -> TrialOutcomes:
    """Read the trials of systems in any form that `reliability` accepts."""
    if qrels is not None:
        by_name = trials if isinstance(trials, Mapping) else {_run_name(trials): trials}
        runs = {str(name): _list_runs(system_runs) for name, system_runs in by_name.items()}
        return replace(outcomes_from_runs(qrels, runs, rule), are_named=isinstance(trials, Mapping))
    if isinstance(trials, Experiment):
        return outcomes_from_runs(trials.dataset.judgments, {name: [run] for name, run in trials.runs.items()}, rule)
    if isinstance(trials, str | Path):
        return _outcomes_from_paths([str(trials)], rule)
    if is_dataframe(trials):
        rows = rows_from_frame(to_polars(trials), "the trials")
        systems = trials_from_rows(rows, UNNAMED_SYSTEM, rule.threshold)
    elif isinstance(trials, Mapping):
        systems = trials_by_system(trials, UNNAMED_SYSTEM, rule.threshold)
    elif isinstance(trials, Sequence) and trials and all(isinstance(path, str | Path) for path in trials):
        return _outcomes_from_paths(list(map(str, trials)), rule)
    else:
        raise BadInput(
            f"trials cannot be read from {type(trials).__name__}",
            hint="{task: [True, False]}, {task: (n, c)}, a table, a run folder; or runs, with qrels=",
        )
    return TrialOutcomes(systems, _describe_success(rule.threshold), are_named=list(systems) != [UNNAMED_SYSTEM])


def _outcomes_from_paths(arguments: Sequence[str], rule: SuccessRule) -> TrialOutcomes:
    """Read trials from `QRELS NAME=RUN…`, run folders or tables of trials."""
    tables = [InputKind.TRIALS]
    inputs = Inputs.resolve(*arguments, tables=tables) if len(arguments) > 1 else _resolve_one(arguments[0])
    if not inputs.tables:
        outcomes = outcomes_from_runs(inputs.qrels, inputs.run_sources, rule)
        is_single_run = len(arguments) == 1 and is_run_folder(split_path_name(arguments[0])[1])
        return replace(outcomes, texts=inputs.query_texts, are_named=not is_single_run)
    systems: list[tuple[str, TrialCounts]] = []
    for table in inputs.tables:
        in_file = read_trials(table.value, rule.threshold)
        if table.name and list(in_file) == [InputFile(table.value).stem]:
            in_file = {table.name: next(iter(in_file.values()))}
        systems += in_file.items()
    by_name = dict(unique_by(systems, itemgetter(0), "system", hint="name each table: `NAME=TABLE`"))
    are_named = list(by_name) != [InputFile(inputs.tables[0].value).stem]
    return TrialOutcomes(by_name, _describe_success(rule.threshold), are_named=are_named)


def _resolve_one(argument: str) -> Inputs:
    """Resolve a single argument: a folder that `run` wrote, or a table of trials in any format."""
    name, path = split_path_name(argument)
    if Path(path).is_dir():
        return Inputs.resolve(argument)
    return Inputs(tables=[replace(resolve_input(path, expected=[InputKind.TRIALS]), name=name)])


def outcomes_from_runs(qrels: Any, runs: Mapping[str, Sequence[Any]], rule: SuccessRule) -> TrialOutcomes:
    """Convert runs to outcomes by query: a trial succeeds if the measure reaches the threshold."""
    convention = find_convention(rule.convention)
    measure = _parse_success_measure(rule.measure, convention)
    threshold = DEFAULT_MIN_SCORE if rule.threshold is None else rule.threshold
    check_finite(threshold)
    if not threshold > 0:
        raise BadInput(
            f"the success threshold must be above 0, or every trial succeeds; got {threshold:g}",
            hint="use `--success-threshold 1`",
        )
    judgments = judgments_for_measures([measure], qrels)
    systems: dict[str, TrialCounts] = {}
    notes: dict[str, Sequence[str]] = {}
    title = ""
    for name, system_runs in runs.items():
        trials = [trial for run in system_runs for trial in _list_trials(run, name)]
        title, scores, limits = _score_trials(trials, name, judgments, measure, convention)
        systems[name] = {
            query: (row[~np.isnan(row)] >= threshold).tolist()
            for query, row in zip(judgments.pool.queries, scores, strict=True)
            if not np.isnan(row).all()
        }
        unscored = len(scores) - len(systems[name])
        if unscored:
            verb = "is" if unscored == 1 else "are"
            limits.append(f"{name}: {pluralise(unscored, 'query')} without a value of {title} {verb} left out")
        notes[name] = limits
    return TrialOutcomes(systems, f"{title} >= {threshold:g}", notes=notes)


def _parse_success_measure(measure: str | MeasureFunction, convention: Convention) -> Measure | MeasureFunction:
    measures = parse_measures(measure, convention)
    if len(measures) != 1:
        raise BadInput(
            f"a success is defined by one measure, got {len(measures)}: `{measure}`", hint=f"use `-m {DEFAULT_MEASURE}`"
        )
    if isinstance(measures[0], Measure) and measures[0].spec.lower_is_better:
        raise BadInput(
            f"{measures[0]} is a lower-is-better measure and cannot define a success",
            hint=f"use a higher-is-better measure, such as `-m {DEFAULT_MEASURE}`",
        )
    return measures[0]


def _score_trials(
    trials: Sequence[Any], name: str, judgments: Judgments, measure: Measure | MeasureFunction, convention: Convention
) -> tuple[str, Floats, list[str]]:
    """Score the trials of one system.

    Return the name of the measure, the scores with a row per query and a column per trial, and notes. Raise
    `MissingEvidence` if no query has a score.
    """
    columns: list[Floats] = []
    notes: dict[str, None] = {}
    for i, trial in enumerate(trials, 1):
        label = name if len(trials) == 1 else f"{name}, trial {i}"
        ranks = compute_judged_ranks(judgments, trial, [measure], convention, name=label)
        scores = score_judged_ranks(ranks, [measure], convention)
        columns.append(scores.values[scores.measures[0]])
        notes |= dict.fromkeys(_rename_subject(note, name) for note in scores.notes)
    title = scores.measures[0]
    values = np.stack(columns, axis=1)
    if np.isnan(values).all():
        reason = next(iter(scores.unscored[title].values()), "")
        message = f"no query of {name} has a value of {title}"
        raise MissingEvidence(f"{message}: {reason}" if reason else message)
    return title, values, list(notes)


def _rename_subject(note: str, name: str) -> str:
    """Name a system instead of one of its trials, unless the note is about queries that this trial lacks."""
    if not isinstance(note, Note) or not note.subjects or note.code == MISSING_QUERIES:
        return note
    return Note(note.text, name, code=note.code)


def _list_trials(run: Any, name: str) -> list[Any]:
    """Return the trials of a run, or the run itself if it has none.

    Raises `MissingEvidence` if the rankings of its trials were not saved.
    """
    if isinstance(run, str | Path) and Path(run).is_dir():
        run = open_run(run)
    if not isinstance(run, Run):
        return [run]
    if run.repeats is None and run.manifest.get("plan", {}).get("repeats", 1) > 1:
        raise MissingEvidence(
            f"only the rankings of the first trial of {name} were saved",
            hint="repeat the same `ragauge run` command: it runs the other trials again and saves their rankings",
        )
    return list(run.trials())


def _describe_success(threshold: float | None) -> str:
    return "as stated in the table" if threshold is None else f"score >= {threshold:g}"


def _list_runs(runs: Any) -> list[Any]:
    """Return runs as a list; a single run becomes a list of one."""
    return list(runs) if isinstance(runs, list | tuple) and not _is_run_rows(runs) else [runs]


def _is_run_rows(rows: Sequence[Any]) -> bool:
    """Return whether a list is one run as rows of query, document and score."""
    return bool(rows) and isinstance(rows[0], tuple)


def _run_name(trials: Any) -> str:
    return trials.name if isinstance(trials, Run) else UNNAMED_SYSTEM
