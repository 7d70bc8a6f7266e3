"""Describe histories in sentences: changes, breaks, skipped folders and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from ragauge.experiments.history.results import History, HistoryChange, HistoryPoint
from ragauge.output.numbers import format_milliseconds, format_p_value, format_score

MAX_SENTENCES = 5
"""Maximum number of sentences of one kind."""
COLUMN_TITLES = {"before": "vs previous", "first": "vs first", "best": "vs best"}
"""Column titles by the run that the last one is compared with."""


def format_value(value: float, measure: str) -> str:
    """Format a value: four decimals for a measure, three digits for a timing.

    >>> (format_value(0.27738, "ndcg@10"), format_value(12.345, "p95_ms"), format_value(1486.7, "throughput"),
    ...  format_value(math.nan, "mrr"))
    ('0.2774', '12.3', '1,487', '-')
    """
    if math.isnan(value):
        return "-"
    if measure == "throughput":
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
    if is_timing(measure):
        sign = "-" if value < 0 else ""
        return f"{sign}{format_milliseconds(abs(value))}"
    return format_score(value, measure)


def is_timing(measure: str) -> bool:
    """Return whether a name is that of a timing or of the throughput.

    >>> [is_timing(name) for name in ("p95_ms", "throughput", "build_seconds", "ndcg@10")]
    [True, True, True, False]
    """
    return measure == "throughput" or measure.endswith(("_ms", "_seconds"))


def format_difference(value: float, measure: str) -> str:
    """Format a difference with its sign, in the format of the measure."""
    if math.isnan(value):
        return "-"
    return f"+{format_value(value, measure)}" if value >= 0 else format_value(value, measure)


def find_time_format(found: History, *, narrow: bool = False) -> str:
    """Return the strftime format for the points of a history.

    It is a date, or a time with seconds if needed when all points are of one day. `narrow` omits what all points
    share.
    """
    days = {one.when.date() for one in found.points}
    if len(days) > 1:
        return "%m-%d" if narrow and len({day.year for day in days}) < 2 else "%Y-%m-%d"
    minutes = [(one.dataset, one.system, one.measure, f"{one.when:%H:%M}") for one in found.points]
    clock = "%H:%M" if len(set(minutes)) == len(minutes) else "%H:%M:%S"
    return clock if narrow else f"%Y-%m-%d {clock}"


def format_time_span(found: History) -> str:
    """Format the time of the first and of the last point."""
    first, last = found.points[0].when, found.points[-1].when
    style = find_time_format(found)
    if "%H" not in style:
        return f"{first.strftime(style)} to {last.strftime(style)}"
    clock = style.partition(" ")[2]
    ends = list(dict.fromkeys(one.strftime(clock) for one in (first, last)))
    return f"{first:%Y-%m-%d} {' to '.join(ends)} UTC"


def _format_start_time(since: datetime, last: datetime) -> str:
    """Format the start of a change as a date.

    The time is added if both points are of one day.
    """
    if since.date() != last.date():
        return f"{since:%Y-%m-%d}"
    return f"{since:%Y-%m-%d %H:%M}" if f"{since:%H:%M}" != f"{last:%H:%M}" else f"{since:%Y-%m-%d %H:%M:%S}"


def describe_change(found: History, change: HistoryChange) -> str:
    """Describe a significant change and since when, without a full stop."""
    measure, row = change.last.measure, change.comparison
    amount = format_value(abs(change.difference), measure)
    when = _format_start_time(change.since.when, change.last.when)
    ends = (
        ""
        if row is None or math.isnan(row.ci[0])
        else f" {_format_change_interval(row.ci, change.difference, measure)}"
    )
    p = "" if math.isnan(change.p) else ", p < 0.001" if change.p < 0.001 else f", p = {format_p_value(change.p)}"
    who = change.last.system + (f" on {change.last.dataset}" if len(found.datasets) > 1 else "")
    if change.lower_is_better:
        than = f"than its best, {when}, by" if change.against == "best" else "by"
        since = "" if change.against == "best" else f" since {when}"
        word = "better" if change.better else "worse"
        return f"{who} is {word} {than} {amount} in {measure}{ends}{since}{p}"
    if change.against == "best":
        return f"{who} is {amount} of {measure}{ends} below its best, {when}{p}"
    return f"{who} {'gained' if change.better else 'lost'} {amount} of {measure}{ends} since {when}{p}"


def _format_change_interval(ends: tuple[float, float], difference: float, measure: str) -> str:
    """Format the interval of the absolute change."""
    low, high = ends if difference >= 0 else (-ends[1], -ends[0])
    return f"[{format_value(low, measure)}, {format_value(high, measure)}]"


def find_significant_changes(found: History) -> dict[str, list[HistoryChange]]:
    """Return the significant changes by kind, worst kind first.

    Each change is listed once.
    """
    alpha = 1 - found.confidence
    beyond = [one for one in found.changes if one.p < alpha]
    told = {id(one.last) for one in beyond if one.against == "before"}
    since = {(id(one.since), id(one.last)) for one in beyond if one.against == "before"}
    kinds: dict[str, list[HistoryChange]] = {
        "worse than in the run before": [],
        "worse than their best": [],
        "worse than in the first run": [],
        "better than in the run before": [],
        "better than in the first run": [],
    }
    for one in beyond:
        if one.against == "before":
            kinds[f"{'better' if one.better else 'worse'} than in the run before"].append(one)
        elif one.against == "best" and not one.better and (id(one.since), id(one.last)) not in since:
            kinds["worse than their best"].append(one)
            since.add((id(one.since), id(one.last)))
    for one in beyond:
        if one.against == "first" and id(one.last) not in told and (id(one.since), id(one.last)) not in since:
            kinds[f"{'better' if one.better else 'worse'} than in the first run"].append(one)
    return kinds


def describe_no_change(found: History) -> str:
    """Describe that the last run has no significant change.

    Empty if it has one, or if nothing was tested.
    """
    before = [one for one in found.changes if one.against == "before"]
    tested = [one for one in before if not math.isnan(one.p)]
    if not tested or any(one.p < 1 - found.confidence for one in tested):
        return ""
    many = len(found.folders)
    where = (
        f"the last of {many:,} runs" if len(found.datasets) < 2 else f"the last runs of {len(found.datasets)} datasets"
    )
    compared = {(one.last.dataset, one.last.system, one.last.measure) for one in before}
    alone = sum(key not in compared for key, n in count_series_points(found).items() if n > 1)
    rest = f"; {alone} series cannot be compared with the {'run' if alone == 1 else 'runs'} before" if alone else ""
    return f"nothing has changed beyond chance in {where}{rest}"


def count_series_points(found: History) -> dict[tuple[str, str, str], int]:
    """Count the points by dataset, system and measure."""
    known: dict[tuple[str, str, str], int] = {}
    for one in found.points:
        key = (one.dataset, one.system, one.measure)
        known[key] = known.get(key, 0) + 1
    return known


def is_unchanged(found: History, points: Sequence[HistoryPoint]) -> bool:
    """Return whether a series never changed.

    All points are comparable, have the same value, and no query changed.
    """
    last = points[-1]
    key = (last.dataset, last.system, last.measure)
    if len(points) < 2 or found.comparable.get(key) != len(points) or len({one.mean[:2] for one in points}) > 1:
        return False
    rows = [one.comparison for one in found.changes if one.last is last]
    return all(row is None or row.wins == row.losses == 0 for row in rows)


def summarise_changes(found: History) -> list[str]:
    """Describe the significant changes since the previous, first and best run."""
    lines = []
    for what, changes in find_significant_changes(found).items():
        lines += limit_lines([f"{describe_change(found, one)} ({one.since.folder})" for one in changes], what)
    return [*lines, *filter(None, [describe_no_change(found)])]


def limit_lines(lines: Sequence[str], what: str) -> list[str]:
    """Return the first lines, and a line that counts the rest."""
    more = len(lines) - MAX_SENTENCES
    return [
        *lines[:MAX_SENTENCES],
        *([f"{more} more {'is' if more == 1 else 'are'} {what}; --json has them"] if more > 0 else []),
    ]


def describe_breaks(found: History) -> list[str]:
    """Describe where series are interrupted, by folder and reason, latest first."""
    known: dict[tuple[str, str], list[HistoryPoint]] = {}
    for one in found.points:
        if one.changed:
            known.setdefault((one.folder, one.changed), []).append(one)
    lines = []
    for (folder, changed), points in reversed(known.items()):
        who = ", ".join(dict.fromkeys(one.system for one in points))
        lines.append(f"{points[0].when:%Y-%m-%d} ({folder}): {changed}; {who}: not compared with the run before")
    return limit_lines(lines, "not compared with the run before")


COLUMN_EXPLANATIONS = {
    "before": "the last run against the latest before it that it can be compared with",
    "first": "against the first such",
    "best": "against the best such",
}


def describe_columns(found: History, against: Sequence[str] = ("before", "first")) -> list[str]:
    """Describe the columns of the table."""
    lines = []
    if found.changes:
        lines.append("; ".join(f"{COLUMN_TITLES[one]}: {COLUMN_EXPLANATIONS[one]}" for one in against))
    tested = [one for one in found.changes if one.against == "before" and not math.isnan(one.p)]
    if tested:
        many = f"{len(tested)} series" if len(tested) > 1 else "one series"
        lines.append(f"p: paired t-test over queries, Holm-corrected for {many}")
    if any(is_timing(one.measure) for one in found.points):
        lines.append("times are not tested: what makes them differ from run to run is not in the queries")
    return lines


def is_first_always_previous(found: History) -> bool:
    """Return whether the first comparable run is always the previous one.

    Then one column suffices.
    """
    since = {(one.against, id(one.last)): one.since for one in found.changes}
    return all(since["first", id(one.last)] is since["before", id(one.last)] for one in found.changes)


def describe_skipped(found: History) -> list[str]:
    """Describe which folders could not be read, and why."""
    skipped = [why if folder in why else f"{folder}: {why}" for folder, why in found.skipped.items()]
    return limit_lines([f"not read: {one}" for one in skipped], "not read")


def describe_history(found: History, against: Sequence[str] = ("before", "first")) -> list[str]:
    """Describe columns, notes, breaks, skipped folders and significant changes."""
    return [
        *describe_columns(found, against),
        *found.notes,
        *describe_breaks(found),
        *describe_skipped(found),
        *summarise_changes(found),
    ]
