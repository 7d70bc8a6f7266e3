"""Read tables of trials.

They have one row per trial (task, trial, success) or per task (task, n, c).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from ragauge.core.errors import BadInput
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
from ragauge.files.table_rows import TableRows, parse_id, read_rows, rows_from_mappings

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
        held = read_json(source)
        if isinstance(held, Mapping):
            return trials_by_system(held, source.stem, success_threshold, source.label)
        if not isinstance(held, list) or not all(isinstance(row, dict) for row in held):
            raise BadInput("expected objects, or {task: outcomes}", file=source.label)
        rows = rows_from_mappings([], enumerate(held, start=1), source.label, in_lines=False)
        return trials_from_rows(rows, source.stem, success_threshold)
    return trials_from_rows(read_rows(source, form), source.stem, success_threshold)


def check_finite(success_threshold: float | None) -> None:
    """Raise BadInput if a success threshold is not finite."""
    if success_threshold is not None and not math.isfinite(success_threshold):
        raise BadInput(f"a success cannot begin at {success_threshold:g}", hint="--success-threshold 0.5")


def trials_from_rows(rows: TableRows, name: str, success_threshold: float | None = None) -> dict[str, TrialCounts]:
    """Return the trials in a table by system."""
    check_finite(success_threshold)
    names, label = rows.names, rows.label
    if not len(rows):
        raise BadInput("no rows", file=label)
    task, trial, system = (
        find_column(names, TASK_COLUMNS),
        find_column(names, TRIAL_COLUMNS),
        find_column(names, SYSTEM_COLUMNS),
    )
    tried, passed = find_column(names, TRIAL_COUNT_COLUMNS), find_column(names, SUCCESS_COUNT_COLUMNS)
    outcome = find_column(names, SUCCESS_COLUMNS) or find_column(names, SCORE_COLUMNS)
    if task is None or not (outcome or (tried and passed)):
        raise BadInput(
            f"trials need a task and whether it succeeded; found {', '.join(names)}",
            file=label,
            hint="columns task, trial, success; or task, n, c",
        )
    for odd, hint in (("measure", "keep the rows of one"), ("run", "call it trial, or system")):
        if find_column(names, [odd]) and not (odd == "run" and trial and system):
            raise BadInput(f"what the column `{odd}` means for trials is not clear", file=label, hint=hint)
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    outcomes: dict[str, dict[str, dict[tuple[int, Any], bool]]] = {}
    for at in range(len(rows)):
        line, of = rows.line(at), rows.id(task, at, "task")
        who = rows.id(system, at, "system") if system else name
        if tried and passed:
            mine = counts.setdefault(who, {})
            if of in mine:
                raise BadInput(f"task `{of}` has two rows", file=label, line=line)
            mine[of] = _parse_trial_counts(
                rows.columns[tried][at], rows.columns[passed][at], of, success_threshold, label, line
            )
            continue
        so_far = outcomes.setdefault(who, {}).setdefault(of, {})
        which = rows.id(trial, at, "trial") if trial else str(len(so_far) + 1)
        if _trial_sort_key(which) in so_far:
            raise BadInput(f"trial {which} of task `{of}` is there twice", file=label, line=line)
        cell = rows.columns[outcome or ""][at]
        so_far[_trial_sort_key(which)] = is_success(
            cell, success_threshold, f"trial {which} of task `{of}`", label, line
        )
    if tried and passed:
        return dict(counts)
    return {
        who: {of: [tries[key] for key in sorted(tries)] for of, tries in mine.items()} for who, mine in outcomes.items()
    }


def trials_by_system(
    held: Mapping[Any, Any], name: str, success_threshold: float | None = None, label: str | None = None
) -> dict[str, TrialCounts]:
    """Return trials by system from `{system: {task: …}}` or `{task: …}`."""
    if held and all(isinstance(one, Mapping) for one in held.values()):
        named = _unique_by_id(held, "system", label)
        return {system: trials_from_mapping(one, success_threshold, label) for system, one in named.items()}
    return {name: trials_from_mapping(held, success_threshold, label)}


def trials_from_mapping(
    held: Mapping[Any, Any], success_threshold: float | None = None, label: str | None = None
) -> TrialCounts:
    """Return trials by task from outcomes or from `(n, c)`.

    `(n, c)` are n trials with c successes.

    >>> trials_from_mapping({"a": [1, 0, True], "b": (3, 2)})
    {'a': [True, False, True], 'b': (3, 2)}
    """
    check_finite(success_threshold)
    found: dict[str, list[bool] | tuple[int, int]] = {}
    for task, given in _unique_by_id(held, "task", label).items():
        if isinstance(given, tuple) and len(given) == 2 and all(map(_is_integer, given)):
            found[task] = _parse_trial_counts(*given, task, success_threshold, label, None)
            continue
        if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
            raise BadInput(f"the trials of task `{task}` are {given!r}", file=label, hint="[True, False], or (n, c)")
        found[task] = [
            is_success(one, success_threshold, f"trial {at + 1} of task `{task}`", label, None)
            for at, one in enumerate(given)
        ]
        if not found[task]:
            raise BadInput(f"task `{task}` has no trial", file=label)
    return found


def _unique_by_id(held: Mapping[Any, Any], what: str, label: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in held.items():
        name = parse_id(key, f"the name of a {what}", label)
        if name in found:
            raise BadInput(f"{what} `{name}` is there twice", file=label)
        found[name] = one
    return found


def _is_integer(one: Any) -> bool:
    """Return whether a value is an integer, including NumPy's, but not a bool."""
    return isinstance(one, Integral) and not isinstance(one, bool)


def is_success(
    value: Any,
    success_threshold: float | None,
    what: str = "a trial",
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
            raise BadInput(f"{what} came out as `{value}`", file=label, line=line, hint="true or false")
    if math.isnan(number):
        raise BadInput(
            f"{what} has no outcome", file=label, line=line, hint="call it a failure, or leave the trial out"
        )
    if success_threshold is not None:
        return number >= success_threshold
    if number not in (0, 1):
        raise BadInput(
            f"{what} came out as {number:g}, neither 0 nor 1",
            file=label,
            line=line,
            hint="give the minimum value of a success: `--success-threshold 0.5`",
        )
    return number == 1


def _parse_trial_counts(
    n: Any, c: Any, task: str, success_threshold: float | None, label: str | None, line: int | None
) -> tuple[int, int]:
    if success_threshold is not None:
        raise BadInput(
            f"task `{task}` has counts, and no scores of which {success_threshold:g} could be a success",
            file=label,
            line=line,
        )
    try:
        tried, passed = float(n), float(c)
        if tried == int(tried) >= 1 and passed == int(passed) and 0 <= passed <= tried:
            return int(tried), int(passed)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadInput(
        f"task `{task}` has {c} successes in {n} trials", file=label, line=line, hint="n trials, then c of them"
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
    known = {**TABLE_FORMATS, ".json": "json"}
    if source.ending in known:
        return known[source.ending]
    first = (source.head() or [""])[0].lstrip()
    return "jsonl" if first.startswith("{") else "json" if first.startswith("[") else "tsv" if "\t" in first else "csv"
