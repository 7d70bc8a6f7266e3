"""Render reliability for the terminal and as data: pass@k, pass^k and flaky tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from ragauge.outcomes import Estimate, Reliability
from ragauge.reports.tables import one_line, plain_table, shown


def pass_table(found: Mapping[str, Reliability], width: int) -> Table:
    """Render pass@k and pass^k, one row per system and k."""
    table = plain_table(["system", "k", "pass@k", "pass^k", "tasks", "trials"])
    room = max(8, width - 66)
    for name, one in found.items():
        least, most = one.trials
        tried = str(most) if least == most else f"{least}-{most}"
        for at, k in enumerate(one.pass_at):
            shared = [Text(str(one.n), style="dim"), Text(tried, style="dim")]
            cells = [str(k), with_interval(one.pass_at[k]), with_interval(one.pass_all[k])]
            table.add_row(Text("" if at else _cut(name, room)), *map(Text, cells), *shared)
    return table


def steady_table(found: Mapping[str, Reliability], width: int) -> Table:
    """Render how many tasks always, sometimes and never succeed.

    The table also has the success rate and the agreement of trials.
    """
    table = plain_table(["system", "success rate", "always", "sometimes", "never", "agreement"])
    for name, one in found.items():
        numbers = [len(one.always), len(one.flaky), len(one.never)]
        table.add_row(
            Text(_cut(name, max(8, width - 68))),
            with_interval(one.success_rate),
            *(Text(f"{number} {number / one.n:4.0%}") for number in numbers),
            shown(one.agreement),
        )
    return table


def flaky_table(found: Mapping[str, Reliability], texts: Mapping[str, str], most: int, width: int) -> Table | None:
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
    titles = [_cut(name, 12) for name in found] if several else ["successes"]
    told = any(task in texts for task in tasks)
    table = plain_table(["flaky task", *titles, *(["text"] if told else [])])
    longest = max(len("flaky task"), min(30, max(map(len, map(one_line, tasks)))))
    room = max(10, width - longest - sum(max(8, len(title)) + 2 for title in titles) - 2)
    if told:
        table.columns[-1].justify = "left"
    for task in tasks:
        counts = [one.counts.get(task) for one in found.values()]
        cells = ["-" if pair is None else f"{pair[1]} of {pair[0]}" for pair in counts]
        words = [Text(_cut(texts.get(task, ""), room))] if told else []
        table.add_row(Text(_cut(task, 30)), *map(Text, cells), *words)
    return table


def with_interval(figure: Estimate) -> str:
    """Format an estimate with its interval.

    >>> with_interval(Estimate(0.91667, 0.8, 1.0))
    '0.9167 [0.800, 1.000]'
    """
    return f"{figure.value:.4f} [{figure.low:.3f}, {figure.high:.3f}]"


def as_data(found: Mapping[str, Reliability], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the reliability of all systems as JSON data."""
    first = next(iter(found.values()))
    return {
        "success": first.success,
        "confidence": first.confidence,
        "systems": {name: _one(one, texts) for name, one in found.items()},
    }


def _one(one: Reliability, texts: Mapping[str, str]) -> dict[str, Any]:
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


def _cut(text: str, room: int) -> str:
    plain = one_line(text)
    return plain if len(plain) <= room else f"{plain[: room - 1]}…"
