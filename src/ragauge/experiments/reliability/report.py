"""Report of reliability: pass@k and pass^k, how many tasks always, sometimes and never succeed, and flaky tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ragauge.core.summaries import Estimate, ValueWithInterval
from ragauge.core.text import one_line
from ragauge.experiments.reliability.charts import build_pass_charts
from ragauge.experiments.reliability.results import ReliabilityBySystem
from ragauge.output.numbers import format_number, join_names, join_with_and, pluralise
from ragauge.output.report import FILES_ONLY, Block, Charts, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table, format_value
from ragauge.stats.reliability import Reliability

TERMINAL_ONLY = frozenset({"terminal"})
MAX_FLAKY_TASKS = 10
"""Number of flaky tasks that a terminal shows by default."""
MAX_OPEN_ROWS = 20
"""Largest table of flaky tasks that a page shows without a click."""
MAX_TEXT_CHARS = 100
POPULATIONS = {"tasks": "all tasks of this kind", "trials": "further trials of these tasks"}
"""What the intervals are over, in words."""


def build_report(result: ReliabilityBySystem, *, max_flaky_tasks: int = MAX_FLAKY_TASKS) -> Report:
    """Build the report of reliability. A terminal shows at most `max_flaky_tasks` flaky tasks."""
    tasks = rank_flaky_tasks(result)
    first_tasks = tasks[:max_flaky_tasks]
    n_tasks = len({task for estimate in result.values() for task in estimate.counts})
    short_title = (
        "Flaky tasks" if len(tasks) == len(first_tasks) else f"Flaky tasks ({len(first_tasks)} of {len(tasks)})"
    )
    short_table, full_table = (_flaky_table(result, selection) for selection in (first_tasks, tasks))
    pass_blocks: list[Block] = [_pass_table(result), Charts(lambda: build_pass_charts(result))]
    sections = [
        Section("pass", "pass@k and pass^k", pass_blocks, "pass@k"),
        Section("stability", "Stability", [_stability_table(result)], "Stability"),
        Section(
            "first-flaky",
            short_title,
            [replace(short_table, collapsed=False)] if first_tasks else [],
            formats=TERMINAL_ONLY,
        ),
        Section("flaky", "Flaky tasks", [full_table] if tasks else [], "Flaky tasks", FILES_ONLY),
    ]
    populations = dict.fromkeys(POPULATIONS[estimate.over] for estimate in result.values())
    method = f"{100 * result.confidence:g}% confidence intervals over {' or '.join(populations)}"
    return Report(
        "reliability",
        "Reliability",
        summarise_reliability(result),
        [section for section in sections if section.blocks],
        [join_names(list(result)), pluralise(n_tasks, "task")],
        notes=[*result.notes, f"success: {result.success}; {method}"],
        provenance=result.provenance,
    )


def summarise_reliability(result: ReliabilityBySystem) -> str:
    """Summarise the probability that all trials of a task succeed, for the largest k of all systems."""
    k = min(max(estimate.pass_all) for estimate in result.values())
    values = [
        f"{format_estimate(estimate.pass_all[k])}{f' for {name}' if len(result) > 1 else ''}"
        for name, estimate in list(result.items())[:3]
    ]
    more = f" ({len(result) - 3} more systems below)" if len(result) > 3 else ""
    trials = "A trial succeeds" if k == 1 else f"All {k} trials of a task succeed"
    return f"{trials} with probability {join_with_and(values)}{more}."


def format_estimate(value: ValueWithInterval) -> str:
    """Format a probability with its interval.

    >>> format_estimate(ValueWithInterval(0.91667, 0.8, 1.0))
    '0.9167 [0.8000, 1.0000]'
    """
    return format_value(_estimate(value), "score")


def _estimate(value: ValueWithInterval) -> Estimate:
    return Estimate(value.value, value.low, value.high)


def _pass_table(result: ReliabilityBySystem) -> Table:
    columns = [
        Column("system", "name"),
        Column("k", "count"),
        Column("pass@k", "score", legend="probability that at least one of k trials of a task succeeds"),
        Column("pass^k", "score", legend="probability that all k trials of a task succeed"),
        Column("tasks", "count", drop_order=2),
        Column("trials", "count", drop_order=1, legend="number of trials per task"),
    ]
    rows: list[Row] = [
        [
            name,
            k,
            _estimate(estimate.pass_at[k]),
            _estimate(estimate.pass_all[k]),
            estimate.n,
            _trials_cell(estimate),
        ]
        for name, estimate in result.items()
        for k in estimate.pass_at
    ]
    return Table("pass", columns, rows, group_by=0)


def _trials_cell(estimate: Reliability) -> Cell:
    min_trials, max_trials = estimate.trials
    return Cell(min_trials, text="" if min_trials == max_trials else f"{min_trials}-{max_trials}")


def _stability_table(result: ReliabilityBySystem) -> Table:
    """Build the table of how many tasks always, sometimes and never succeed."""
    columns = [
        Column("system", "name"),
        Column("success rate", "score", better=1, legend="mean share of successful trials; equals pass@1 and pass^1"),
        Column("always", "count", better=1, legend="tasks in which every trial succeeds"),
        Column("sometimes", "count", better=-1, legend="flaky tasks"),
        Column("never", "count", better=-1),
        Column(
            "agreement", "score", drop_order=1, legend="probability that two trials of a task have the same outcome"
        ),
    ]
    rows: list[Row] = []
    for name, estimate in result.items():
        groups = [estimate.always, estimate.flaky, estimate.never]
        counts = [Cell(len(tasks), detail=format_number(len(tasks) / estimate.n, "share")) for tasks in groups]
        rows.append([name, _estimate(estimate.success_rate), *counts, estimate.agreement])
    return Table("stability", columns, rows).mark_best()


def rank_flaky_tasks(result: ReliabilityBySystem) -> list[str]:
    """List the flaky tasks of all systems, those with the most uncertain outcomes first."""
    variances: dict[str, float] = {}
    for estimate in result.values():
        for task in estimate.flaky:
            n, c = estimate.counts[task]
            variances[task] = variances.get(task, 0.0) + c * (n - c) / n**2
    return sorted(variances, key=lambda task: -variances[task])


def _flaky_table(result: ReliabilityBySystem, tasks: Sequence[str]) -> Table:
    """Build the table of successes in these tasks, with a column per system."""
    has_texts = any(task in result.texts for task in tasks)
    names = list(result) if len(result) > 1 else ["successes"]
    columns = [Column("flaky task", "name"), *(Column(name, "share") for name in names)]
    rows: list[Row] = []
    for task in tasks:
        counts = [estimate.counts.get(task) for estimate in result.values()]
        cells = [
            Cell(None) if count is None else Cell(count[1] / count[0], text=_format_counts(*count)) for count in counts
        ]
        rows.append([task, *cells, *([_shorten_text(result.texts.get(task, ""))] if has_texts else [])])
    columns += [Column("text")] if has_texts else []
    return Table("flaky", columns, rows, collapsed=len(rows) > MAX_OPEN_ROWS)


def _format_counts(trials: int, successes: int) -> str:
    return f"{successes} of {trials}"


def _shorten_text(text: str) -> str:
    plain = one_line(text)
    return plain if len(plain) <= MAX_TEXT_CHARS else f"{plain[: MAX_TEXT_CHARS - 1]}…"


def build_pass_table(result: ReliabilityBySystem) -> Table:
    """Build the table with one row per system and k."""
    names = [*_interval_names("pass_at"), *_interval_names("pass_all"), *_interval_names("success_rate")]
    columns = [Column(name) for name in ("system", "k", *names, "agreement", "tasks", "trials_min", "trials_max")]
    rows: list[Row] = [
        [
            name,
            k,
            *estimate.pass_at[k],
            *estimate.pass_all[k],
            *estimate.success_rate,
            estimate.agreement,
            estimate.n,
            *estimate.trials,
        ]
        for name, estimate in result.items()
        for k in estimate.pass_at
    ]
    return Table("pass", columns, rows)


def _interval_names(name: str) -> Iterator[str]:
    yield from (name, f"{name}_low", f"{name}_high")


def build_task_table(result: ReliabilityBySystem) -> Table:
    """Build the table with one row per system and task."""
    rows: list[Row] = [
        [name, task, n, c, result.texts.get(task, "")]
        for name, estimate in result.items()
        for task, (n, c) in estimate.counts.items()
    ]
    return Table("tasks", [Column(name) for name in ("system", "task", "n", "c", "text")], rows)


REPORTER = ResultReporter(
    build_report,
    {
        "csv": TableBuilder("one row per system and k", build_pass_table),
        "tasks": TableBuilder("one row per system and task: trials and successes", build_task_table),
    },
)
