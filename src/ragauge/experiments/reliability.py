"""Estimate pass@k and pass^k from repeated trials, and format the results."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import Floats, Run
from ragauge.core.summaries import ValueWithInterval
from ragauge.core.text import one_line
from ragauge.evaluation import compute_judged_ranks, judgments_for_measures, parse_measures
from ragauge.experiments.reliability_files import (
    TrialCounts,
    check_finite,
    is_trials_file,
    read_trials,
    trials_by_system,
    trials_from_rows,
)
from ragauge.files.in_memory import is_dataframe, to_polars
from ragauge.files.source import InputFile
from ragauge.files.table_rows import rows_from_frame
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import MeasureFunction, score_judged_ranks
from ragauge.output.numbers import format_score
from ragauge.output.terminal import borderless_table
from ragauge.runs import folder
from ragauge.runs.inputs import is_run_folder, resolve_inputs, split_name
from ragauge.runs.results import Experiment
from ragauge.stats.reliability import Reliability, cochran_q_test, compute_reliability


def render_pass_table(found: Mapping[str, Reliability], width: int) -> Table:
    """Render pass@k and pass^k, one row per system and k."""
    table = borderless_table(["system", "k", "pass@k", "pass^k", "tasks", "trials"])
    room = max(8, width - 66)
    for name, one in found.items():
        least, most = one.trials
        tried = str(most) if least == most else f"{least}-{most}"
        for at, k in enumerate(one.pass_at):
            shared = [Text(str(one.n), style="dim"), Text(tried, style="dim")]
            cells = [str(k), format_estimate(one.pass_at[k]), format_estimate(one.pass_all[k])]
            table.add_row(Text("" if at else _truncate_text(name, room)), *map(Text, cells), *shared)
    return table


def render_stability_table(found: Mapping[str, Reliability], width: int) -> Table:
    """Render how many tasks always, sometimes and never succeed.

    The table also has the success rate and the agreement of trials.
    """
    table = borderless_table(["system", "success rate", "always", "sometimes", "never", "agreement"])
    for name, one in found.items():
        numbers = [len(one.always), len(one.flaky), len(one.never)]
        table.add_row(
            Text(_truncate_text(name, max(8, width - 68))),
            format_estimate(one.success_rate),
            *(Text(f"{number} {number / one.n:4.0%}") for number in numbers),
            format_score(one.agreement),
        )
    return table


def render_flaky_tasks(
    found: Mapping[str, Reliability], texts: Mapping[str, str], most: int, width: int
) -> Table | None:
    """Render the flaky tasks, most uncertain first; None if there are none."""
    unsure: dict[str, float] = {}
    for one in found.values():
        for task in one.flaky:
            n, c = one.counts[task]
            unsure[task] = unsure.get(task, 0.0) + c * (n - c) / n**2
    tasks = sorted(unsure, key=lambda task: -unsure[task])[:most]
    if not tasks:
        return None
    several = len(found) > 1
    titles = [_truncate_text(name, 12) for name in found] if several else ["successes"]
    told = any(task in texts for task in tasks)
    table = borderless_table(["flaky task", *titles, *(["text"] if told else [])])
    longest = max(len("flaky task"), min(30, max(map(len, map(one_line, tasks)))))
    room = max(10, width - longest - sum(max(8, len(title)) + 2 for title in titles) - 2)
    if told:
        table.columns[-1].justify = "left"
    for task in tasks:
        counts = [one.counts.get(task) for one in found.values()]
        cells = ["-" if pair is None else f"{pair[1]} of {pair[0]}" for pair in counts]
        words = [Text(_truncate_text(texts.get(task, ""), room))] if told else []
        table.add_row(Text(_truncate_text(task, 30)), *map(Text, cells), *words)
    return table


def format_estimate(figure: ValueWithInterval) -> str:
    """Format an estimate with its interval.

    >>> format_estimate(ValueWithInterval(0.91667, 0.8, 1.0))
    '0.9167 [0.800, 1.000]'
    """
    return f"{figure.value:.4f} [{figure.low:.3f}, {figure.high:.3f}]"


def reliability_to_data(found: Mapping[str, Reliability], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the reliability of all systems as JSON data."""
    first = next(iter(found.values()))
    return {
        "success": first.success,
        "confidence": first.confidence,
        "systems": {name: _system_reliability_data(one, texts) for name, one in found.items()},
    }


def _system_reliability_data(one: Reliability, texts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "tasks": one.n,
        "trials": {"fewest": one.trials[0], "most": one.trials[1]},
        "intervals_over": one.over,
        "success_rate": one.success_rate.value,
        "success_rate_ci": [one.success_rate.low, one.success_rate.high],
        "pass": [
            {
                "k": k,
                "pass_at": one.pass_at[k].value,
                "pass_at_ci": [one.pass_at[k].low, one.pass_at[k].high],
                "pass_all": one.pass_all[k].value,
                "pass_all_ci": [one.pass_all[k].low, one.pass_all[k].high],
            }
            for k in one.pass_at
        ],
        "always": len(one.always),
        "sometimes": len(one.flaky),
        "never": len(one.never),
        "agreement": None if math.isnan(one.agreement) else one.agreement,
        "flaky": [
            {"task": task, "n": one.counts[task][0], "c": one.counts[task][1]}
            | ({"text": texts[task]} if task in texts else {})
            for task in one.flaky
        ],
        "notes": list(one.notes),
    }


def _truncate_text(text: str, room: int) -> str:
    plain = one_line(text)
    return plain if len(plain) <= room else f"{plain[: room - 1]}…"


DEFAULT_MEASURE = "hit_rate@5"
DEFAULT_MIN_SCORE = 1.0
TRIAL_EFFECT_ALPHA = 0.01
"""Significance level of the test for differences between trials."""


@dataclass(frozen=True, eq=False)
class TrialOutcomes:
    """Outcomes of all trials, by system."""

    systems: Mapping[str, TrialCounts]
    success: str
    """Description of what counts as a success."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """`{task: text}`, if known."""
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`{system: notes on its trials}`."""
    several: bool = True
    """Whether systems were given by name, even if there is only one."""


def reliability(  # noqa: PLR0913 - each has a use of its own, and a default
    trials: Any,
    k: int | Iterable[int] | None = None,
    *,
    qrels: Any = None,
    measure: str | MeasureFunction = DEFAULT_MEASURE,
    success_threshold: float | None = None,
    convention: str | Convention = "default",
    over: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Any:
    """Estimate pass@k and pass^k with confidence intervals, and find flaky tasks.

    `trials` is `{task: [True, False, …]}`, `{task: (n, c)}` (n trials, c successes), `{system: one of these}`, or a
    frame or path of such a table. Rankings are trials too: an experiment that was run with `repeats`, its folder or
    the folder of one run, or, with `qrels`, runs in any form that `evaluate` accepts: `[run, run, …]`,
    `{system: [run, run, …]}`. Then every query is a task. It succeeds if `measure` reaches `success_threshold`
    (default: hit_rate@5 of 1). `k` defaults to every number up to the number of trials. Intervals are `over` other
    "tasks" or over other "trials" of these tasks. Systems by name return a dictionary.

    >>> found = reliability({"a": [True, True, True], "b": [True, False, True]}, k=2)
    >>> round(found.pass_at[2].value, 4), round(found.pass_all[2].value, 4), found.flaky
    (1.0, 0.6667, ['b'])
    """
    if qrels is not None:
        given = trials if isinstance(trials, Mapping) else {_run_name(trials): trials}
        runs = {str(name): _list_runs(one) for name, one in given.items()}
        tried = outcomes_from_runs(qrels, runs, measure, success_threshold, convention)
        tried = replace(tried, several=isinstance(trials, Mapping))
    elif isinstance(trials, Experiment):
        runs = {name: [run] for name, run in trials.runs.items()}
        tried = outcomes_from_runs(trials.dataset.judgments, runs, measure, success_threshold, convention)
    elif is_dataframe(trials):
        systems = trials_from_rows(rows_from_frame(to_polars(trials), "the trials"), "trials", success_threshold)
        tried = TrialOutcomes(systems, _describe_success(success_threshold), several=list(systems) != ["trials"])
    elif isinstance(trials, Mapping):
        systems = trials_by_system(trials, "trials", success_threshold)
        tried = TrialOutcomes(systems, _describe_success(success_threshold), several=list(systems) != ["trials"])
    elif isinstance(trials, str | Path):
        tried = outcomes_from_arguments([str(trials)], measure, success_threshold, convention)
    elif isinstance(trials, Sequence) and trials and all(isinstance(one, str | Path) for one in trials):
        tried = outcomes_from_arguments(list(map(str, trials)), measure, success_threshold, convention)
    else:
        raise BadInput(
            f"trials cannot be read from {type(trials).__name__}",
            hint="{task: [True, False]}, {task: (n, c)}, a table, a run folder; or runs, with qrels=",
        )
    found = estimate_reliability(tried, _parse_k_values(k), over=over, confidence=confidence, seed=seed)
    return found if tried.several else next(iter(found.values()))


def estimate_reliability(
    tried: TrialOutcomes,
    ks: Sequence[int] | None = None,
    *,
    over: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Reliability]:
    """Estimate the reliability of each system, with notes on limits."""
    found: dict[str, Reliability] = {}
    for name, tries in tried.systems.items():
        counts = {task: one if isinstance(one, tuple) else (len(one), sum(one)) for task, one in tries.items()}
        one = compute_reliability(
            counts, ks, system=name if tried.several else "", over=over, confidence=confidence, seed=seed
        )
        notes = _reliability_notes(one, tries)
        first = next(iter(found.values()), one)
        if set(first.counts) != set(counts):
            both = len(set(first.counts) & set(counts))
            notes.append(
                f"{name} and {first.system} were not tried on the same tasks ({both} in common): do not compare"
            )
        found[name] = replace(one, system=name, success=tried.success, notes=[*tried.notes.get(name, ()), *notes])
    return found


def outcomes_from_arguments(
    arguments: Sequence[str],
    measure: str | MeasureFunction = DEFAULT_MEASURE,
    success_threshold: float | None = None,
    convention: str | Convention = "default",
) -> TrialOutcomes:
    """Read trials from command-line arguments.

    These are `QRELS NAME=RUN…`, run folders or tables of trials.
    """
    split = [split_name(one) for one in arguments]
    paths = [path for _, path in split]
    if (len(arguments) == 1 and not os.path.isdir(paths[0])) or (arguments and all(map(is_trials_file, paths))):
        systems: dict[str, TrialCounts] = {}
        for name, path in split:
            inside = read_trials(path, success_threshold)
            if name is not None and list(inside) == [InputFile(path).stem]:
                inside = {name: next(iter(inside.values()))}
            for one in inside:
                if one in systems:
                    raise BadInput(f"`{one}` is in two tables", hint="NAME=TABLE gives each a name of its own")
            systems |= inside
        return TrialOutcomes(
            systems, _describe_success(success_threshold), several=list(systems) != [InputFile(paths[0]).stem]
        )
    given = resolve_inputs(arguments)
    tried = outcomes_from_runs(given.qrels, given.runs, measure, success_threshold, convention)
    alone = len(arguments) == 1 and is_run_folder(paths[0])
    return replace(tried, texts=given.texts, several=not alone)


def outcomes_from_runs(
    qrels: Any,
    runs: Mapping[str, Sequence[Any]],
    measure: str | MeasureFunction = DEFAULT_MEASURE,
    success_threshold: float | None = None,
    convention: str | Convention = "default",
) -> TrialOutcomes:
    """Convert runs to outcomes by query.

    A query succeeds in a run if the measure reaches the threshold.
    """
    rules = find_convention(convention)
    wanted = parse_measures(measure, rules)
    if len(wanted) != 1:
        raise BadInput(f"`{measure}` is {len(wanted)} measures, and a success is told by one", hint=DEFAULT_MEASURE)
    if isinstance(wanted[0], Measure) and wanted[0].spec.lower_is_better:
        raise BadInput(
            f"less is better of {wanted[0]}, so reaching a value of it is no success",
            hint=f"a measure of which more is better, such as {DEFAULT_MEASURE}",
        )
    least = DEFAULT_MIN_SCORE if success_threshold is None else success_threshold
    check_finite(least)
    if not least > 0:
        raise BadInput(f"a success from {least:g} on would be every trial", hint="--success-threshold 1")
    judgments = judgments_for_measures(wanted, qrels)
    systems: dict[str, TrialCounts] = {}
    notes: dict[str, list[str]] = {}
    for name, given in runs.items():
        trials = [one for run in given for one in _list_trials(run, name)]
        columns: list[Floats] = []
        told: list[str] = []
        for at, trial in enumerate(trials):
            label = name if len(trials) == 1 else f"{name}, trial {at + 1},"
            scores = score_judged_ranks(
                compute_judged_ranks(judgments, trial, wanted, rules, name=label), wanted, rules
            )
            columns.append(scores.values[scores.measures[0]])
            told += [note.replace(f"{label}: ", f"{name}: ") for note in scores.notes]
        values = np.stack(columns, axis=1)
        tries = {
            query: (row[~np.isnan(row)] >= least).tolist()
            for query, row in zip(judgments.pool.queries, values, strict=True)
            if not np.isnan(row).all()
        }
        if not tries:
            why = next(iter(scores.unscored[scores.measures[0]].values()), "")
            raise MissingEvidence(f"no query of {name} has a value of {wanted[0]}" + (f": {why}" if why else ""))
        if len(tries) < len(values):
            told.append(f"{name}: {len(values) - len(tries)} queries have no value of {wanted[0]} and are left out")
        systems[name], notes[name] = tries, list(dict.fromkeys(told))
    title = str(wanted[0]) if isinstance(wanted[0], Measure) else getattr(wanted[0], "__name__", "own_measure")
    return TrialOutcomes(systems, f"{title} >= {least:g}", notes=notes)


def _list_trials(run: Any, name: str) -> list[Any]:
    """Return the trials of a run, or the run itself if it has none.

    Raises MissingEvidence if the rankings of its trials were not saved.
    """
    if isinstance(run, str | Path) and Path(run).is_dir():
        run = folder.read_run_folder(Path(run))
    if not isinstance(run, Run):
        return [run]
    if run.repeats is None and run.manifest.get("plan", {}).get("repeats", 1) > 1:
        raise MissingEvidence(
            f"{name} was asked more than once, but only its first rankings were kept",
            hint="the same `ragauge run` again asks for the others and keeps them",
        )
    return list(run.trials())


def _reliability_notes(found: Reliability, tries: TrialCounts) -> list[str]:
    """Describe what limits the estimates of a system."""
    who = f"{found.system}: " if found.system else ""
    least, most = found.trials
    notes = []
    if most == 1:
        notes.append(
            f"{who}every task was tried once, so nothing is known about trying again; "
            "give NAME=RUN once more, or `ragauge run --repeats 3`"
        )
    elif least < most:
        few = [task for task, (n, _) in found.counts.items() if n == least]
        notes.append(
            f"{who}tasks have {least} to {most} trials, and k can be no more than the fewest "
            f"(`{few[0]}`{f' and {len(few) - 1} more' if len(few) > 1 else ''})"
        )
    elif not found.flaky:
        notes.append(
            f"{who}no task changed its outcome between trials; if it always answers alike, k trials say what one says"
        )
    if 1 < least == most and not any(isinstance(one, tuple) for one in tries.values()):
        p = cochran_q_test(np.array(list(tries.values()), np.bool_))
        if p < TRIAL_EFFECT_ALPHA:
            notes.append(
                f"{who}some trials went better than others over all tasks (Cochran's Q, p "
                f"{'< 0.001' if p < 0.001 else f'= {p:.3f}'}): tasks share something, and intervals are too narrow"
            )
    if found.n == 1:
        notes.append(f"{who}one task says nothing about others: the intervals are for this one")
    return notes


def _describe_success(success_threshold: float | None) -> str:
    return "what the table calls one" if success_threshold is None else f"score >= {success_threshold:g}"


def _parse_k_values(k: Any) -> list[int] | None:
    """Convert k to a list of integers, including NumPy's; None if not given."""
    if k is None:
        return None
    try:
        return [index(one) for one in ([k] if isinstance(k, Integral) else k)]
    except TypeError:
        raise BadInput(f"k is {k!r}, neither a whole number nor several", hint="k=3, or k=[1, 2, 3]") from None


def _list_runs(given: Any) -> list[Any]:
    """Return runs as a list; a single run becomes a list of one."""
    return list(given) if isinstance(given, list | tuple) and not _is_run_rows(given) else [given]


def _is_run_rows(given: Sequence[Any]) -> bool:
    """Return whether a list is one run as rows of query, document and score."""
    return bool(given) and isinstance(given[0], tuple)


def _run_name(trials: Any) -> str:
    return trials.name if isinstance(trials, Run) else "trials"
