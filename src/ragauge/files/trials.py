"""Tables of trials: one row per trial (task, trial, success) or per task (task, n, c)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput
from ragauge.core.ids import to_id
from ragauge.files.json_files import read_json
from ragauge.files.source import InputFile
from ragauge.files.table_files import (
    DOC_COLUMNS,
    QUERY_COLUMNS,
    SYSTEM_COLUMNS,
    TABLE_FORMATS,
    TRIAL_COLUMNS,
    find_column,
    read_header,
)
from ragauge.files.table_rows import TableRows, read_rows, rows_from_mappings

TrialCounts = Mapping[str, list[bool] | tuple[int, int]]
"""By task: the outcomes in trial order, or the number of trials and the number of successes."""

TASK_COLUMNS = ("task", "task_id", "problem", "problem_id", "question_id", *QUERY_COLUMNS)
SUCCESS_COLUMNS = ("success", "passed", "pass", "succeeded", "solved", "resolved", "correct", "is_correct", "outcome")
SCORE_COLUMNS = ("score", "reward", "value")
TRIAL_COUNT_COLUMNS = ("n", "trials", "n_trials", "num_trials")
SUCCESS_COUNT_COLUMNS = ("c", "successes", "n_successes", "num_successes", "num_passed", "num_correct")
OUTCOME_BY_WORD = {
    **dict.fromkeys(("true", "yes", "pass", "passed", "success", "correct", "t", "y"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "failure", "incorrect", "wrong", "f", "n"), 0.0),
}


def is_trials_file(path: str) -> bool:
    """Return whether a file is a table of trials, judging by its columns.

    A file with a column of documents is a run or judgments.
    """
    source = InputFile(path)
    if not os.path.isfile(path):
        return False
    form = _detect_table_format(source)
    names = [] if form == "json" else read_header(source, form)
    counted = find_column(names, TRIAL_COUNT_COLUMNS) and find_column(names, SUCCESS_COUNT_COLUMNS)
    return bool(
        find_column(names, TASK_COLUMNS)
        and (counted or find_column(names, (*SUCCESS_COLUMNS, *SCORE_COLUMNS)))
        and not find_column(names, DOC_COLUMNS)
    )


def read_trials(path: str, success_threshold: float | None = None) -> dict[str, TrialCounts]:
    """Read the trials in a file by system.

    Without a column for it, the system is the file's name.
    """
    source = InputFile(path)
    form = _detect_table_format(source)
    if form == "json":
        data = read_json(source)
        if isinstance(data, Mapping):
            return trials_by_system(data, source.stem, success_threshold, source.label)
        if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
            raise BadInput("expected a list of objects, or {task: outcomes}", file=source.label)
        rows = rows_from_mappings([], enumerate(data, start=1), source.label, in_lines=False)
        return trials_from_rows(rows, source.stem, success_threshold)
    return trials_from_rows(read_rows(source, form), source.stem, success_threshold)


def check_finite(success_threshold: float | None) -> None:
    """Raise BadInput if a success threshold is not finite."""
    if success_threshold is not None and not math.isfinite(success_threshold):
        raise BadInput(
            f"the success threshold must be a finite number, got {success_threshold:g}",
            hint="use `--success-threshold 0.5`",
        )


class _TrialColumns(NamedTuple):
    """Names of the columns of a table of trials."""

    task: str
    trial: str | None
    system: str | None
    trial_count: str | None
    success_count: str | None
    outcome: str | None

    @property
    def has_counts(self) -> bool:
        """Whether a row has all trials of a task."""
        return bool(self.trial_count and self.success_count)


def trials_from_rows(rows: TableRows, name: str, success_threshold: float | None = None) -> dict[str, TrialCounts]:
    """Return the trials in a table by system."""
    check_finite(success_threshold)
    if not len(rows):
        raise BadInput("no rows", file=rows.label)
    columns = _find_columns(rows)
    if columns.has_counts:
        return _counts_from_rows(rows, columns, name, success_threshold)
    outcomes: dict[str, dict[str, dict[tuple[int, Any], bool]]] = {}
    for i in range(len(rows)):
        line, task = rows.line(i), rows.id(columns.task, i, "task")
        system = rows.id(columns.system, i, "system") if columns.system else name
        trials = outcomes.setdefault(system, {}).setdefault(task, {})
        trial = rows.id(columns.trial, i, "trial") if columns.trial else str(len(trials) + 1)
        key = _trial_sort_key(trial)
        if key in trials:
            raise BadInput(f"duplicate trial {trial} of task `{task}`", file=rows.label, line=line)
        value = rows.columns[columns.outcome or ""][i]
        trials[key] = is_success(value, success_threshold, f"trial {trial} of task `{task}`", rows.label, line)
    return {
        system: {task: [trials[key] for key in sorted(trials)] for task, trials in tasks.items()}
        for system, tasks in outcomes.items()
    }


def _find_columns(rows: TableRows) -> _TrialColumns:
    """Find the columns of a table of trials; raise BadInput if some are missing or ambiguous."""
    names, label = rows.names, rows.label
    task = find_column(names, TASK_COLUMNS)
    columns = _TrialColumns(
        task or "",
        find_column(names, TRIAL_COLUMNS),
        find_column(names, SYSTEM_COLUMNS),
        find_column(names, TRIAL_COUNT_COLUMNS),
        find_column(names, SUCCESS_COUNT_COLUMNS),
        find_column(names, SUCCESS_COLUMNS) or find_column(names, SCORE_COLUMNS),
    )
    if task is None or not (columns.outcome or columns.has_counts):
        raise BadInput(
            f"expected columns for the task and its success; found {', '.join(names)}",
            file=label,
            hint="use columns task, trial, success; or task, n, c",
        )
    ambiguous = {"measure": "keep the rows of one measure", "run": "rename it to `trial` or `system`"}
    for name, hint in ambiguous.items():
        if find_column(names, [name]) and not (name == "run" and columns.trial and columns.system):
            raise BadInput(f"the column `{name}` is ambiguous in a table of trials", file=label, hint=hint)
    return columns


def _counts_from_rows(
    rows: TableRows, columns: _TrialColumns, name: str, success_threshold: float | None
) -> dict[str, TrialCounts]:
    """Return numbers of trials and successes in a table by system."""
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    for i in range(len(rows)):
        line, task = rows.line(i), rows.id(columns.task, i, "task")
        system = rows.id(columns.system, i, "system") if columns.system else name
        tasks = counts.setdefault(system, {})
        if task in tasks:
            raise BadInput(f"duplicate row of task `{task}`", file=rows.label, line=line)
        n, c = (rows.columns[column or ""][i] for column in (columns.trial_count, columns.success_count))
        tasks[task] = _parse_trial_counts(n, c, task, success_threshold, rows.label, line)
    return dict(counts)


def trials_by_system(
    data: Mapping[Any, Any], name: str, success_threshold: float | None = None, label: str | None = None
) -> dict[str, TrialCounts]:
    """Return trials by system from `{system: {task: …}}` or `{task: …}`."""
    if data and all(isinstance(value, Mapping) for value in data.values()):
        by_name = _unique_by_id(data, "system", label)
        return {system: trials_from_mapping(tasks, success_threshold, label) for system, tasks in by_name.items()}
    return {name: trials_from_mapping(data, success_threshold, label)}


def trials_from_mapping(
    data: Mapping[Any, Any], success_threshold: float | None = None, label: str | None = None
) -> TrialCounts:
    """Return trials by task from outcomes or from `(n, c)`: n trials with c successes.

    >>> trials_from_mapping({"a": [1, 0, True], "b": (3, 2)})
    {'a': [True, False, True], 'b': (3, 2)}
    """
    check_finite(success_threshold)
    trials: dict[str, list[bool] | tuple[int, int]] = {}
    for task, outcomes in _unique_by_id(data, "task", label).items():
        if isinstance(outcomes, tuple) and len(outcomes) == 2 and all(map(_is_integer, outcomes)):
            trials[task] = _parse_trial_counts(*outcomes, task, success_threshold, label, None)
            continue
        if isinstance(outcomes, str | bytes | Mapping) or not isinstance(outcomes, Iterable):
            raise BadInput(
                f"trials of task `{task}` must be a list of outcomes or (n, c), got {outcomes!r}",
                file=label,
                hint="[True, False], or (n, c)",
            )
        trials[task] = [
            is_success(outcome, success_threshold, f"trial {i} of task `{task}`", label, None)
            for i, outcome in enumerate(outcomes, 1)
        ]
        if not trials[task]:
            raise BadInput(f"task `{task}` has no trial", file=label)
    return trials


def _unique_by_id(data: Mapping[Any, Any], noun: str, label: str | None) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in data.items():
        name = to_id(key, f"the name of a {noun}", label)
        if name in unique:
            raise BadInput(f"duplicate {noun} `{name}`", file=label)
        unique[name] = value
    return unique


def _is_integer(value: Any) -> bool:
    """Return whether a value is an integer, including NumPy's, but not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_success(
    value: Any,
    success_threshold: float | None,
    noun: str = "a trial",
    label: str | None = None,
    line: int | None = None,
) -> bool:
    """Return whether an outcome is a success.

    Accepts words such as yes, failed or true, 1 or 0, or a score that is compared with `success_threshold`.

    >>> is_success("True", None), is_success(0, None), is_success("0.8", 0.5)
    (True, False, True)
    """
    number = math.nan
    if value is not None:
        word = str(value).strip().lower()
        try:
            number = OUTCOME_BY_WORD[word] if word in OUTCOME_BY_WORD else float(word)
        except ValueError:
            number = math.inf
        if math.isinf(number):
            raise BadInput(
                f"the outcome of {noun} must be true or false, got `{value}`",
                file=label,
                line=line,
                hint="true or false",
            )
    if math.isnan(number):
        raise BadInput(
            f"{noun} has no outcome", file=label, line=line, hint="mark it as a failure, or remove the trial"
        )
    if success_threshold is not None:
        return number >= success_threshold
    if number not in (0, 1):
        raise BadInput(
            f"the outcome of {noun} must be 0 or 1, got {number:g}",
            file=label,
            line=line,
            hint="for scores, give the minimum value of a success: `--success-threshold 0.5`",
        )
    return number == 1


def _parse_trial_counts(
    n: Any, c: Any, task: str, success_threshold: float | None, label: str | None, line: int | None
) -> tuple[int, int]:
    if success_threshold is not None:
        raise BadInput(
            f"the success threshold {success_threshold:g} applies to scores, but task `{task}` has counts",
            file=label,
            line=line,
            hint="remove --success-threshold",
        )
    try:
        trials, successes = float(n), float(c)
        if trials == int(trials) >= 1 and successes == int(successes) and 0 <= successes <= trials:
            return int(trials), int(successes)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadInput(
        f"task `{task}` has {c} successes in {n} trials",
        file=label,
        line=line,
        hint="n is the number of trials, c the number of successes among them",
    )


def _trial_sort_key(trial: str) -> tuple[int, Any]:
    """Return a sort key for trials: numbers by value, before texts."""
    try:
        number = float(trial)
    except ValueError:
        return (1, trial)
    return (0, number) if math.isfinite(number) else (1, trial)


def _detect_table_format(source: InputFile) -> str:
    """Return the format of a file, judging by its ending or its first line."""
    formats = {**TABLE_FORMATS, ".json": "json"}
    if source.ending in formats:
        return formats[source.ending]
    first = (source.head() or [""])[0].lstrip()
    return "jsonl" if first.startswith("{") else "json" if first.startswith("[") else "tsv" if "\t" in first else "csv"
