"""Describe histories in sentences: significant changes, breaks, and how changes were tested."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from ragauge.experiments.history.results import History, HistoryChange, HistoryPoint, SeriesKey
from ragauge.output.numbers import format_interval, format_number, pluralise

MAX_SENTENCES = 5
"""Maximum number of sentences of one kind."""
UNIT_STYLES: Mapping[str, str] = {"": "score", "count": "count", "ms": "ms", "s": "seconds", "queries/s": "qps"}
"""Number style of a value by its unit."""
DIFFERENCE_STYLES: Mapping[str, str] = {
    "": "signed",
    "count": "signed count",
    "ms": "signed ms",
    "s": "signed seconds",
    "queries/s": "signed qps",
}
"""Number style of a difference by its unit."""


def format_value(point: HistoryPoint) -> str:
    """Format the mean of a point in the style of its unit."""
    return format_number(point.mean.value, UNIT_STYLES[point.unit])


def find_time_format(history: History, *, narrow: bool = False) -> str:
    """Return the strftime format for the points of a history.

    It is a date, or a time with seconds if needed when all points are of one day. `narrow` omits what all points
    share.
    """
    days = {point.when.date() for point in history.points}
    if len(days) > 1:
        return "%m-%d" if narrow and len({day.year for day in days}) < 2 else "%Y-%m-%d"
    minutes = [(point.series, f"{point.when:%H:%M}") for point in history.points]
    clock = "%H:%M" if len(set(minutes)) == len(minutes) else "%H:%M:%S"
    return clock if narrow else f"%Y-%m-%d {clock}"


def format_time_span(history: History) -> str:
    """Format the time of the first and of the last point."""
    first, last = history.points[0].when, history.points[-1].when
    style = find_time_format(history)
    if "%H" not in style:
        return f"{first.strftime(style)} to {last.strftime(style)}"
    clock = style.partition(" ")[2]
    ends = list(dict.fromkeys(time.strftime(clock) for time in (first, last)))
    return f"{first:%Y-%m-%d} {' to '.join(ends)} UTC"


def _format_start_time(since: datetime, last: datetime) -> str:
    """Format the start of a change as a date.

    The time is added if both points are of one day.
    """
    if since.date() != last.date():
        return f"{since:%Y-%m-%d}"
    return f"{since:%Y-%m-%d %H:%M}" if f"{since:%H:%M}" != f"{last:%H:%M}" else f"{since:%Y-%m-%d %H:%M:%S}"


def describe_change(history: History, change: HistoryChange) -> str:
    """Describe a significant change, and the date and folder since when, as a sentence."""
    style, comparison = UNIT_STYLES[change.last.unit], change.comparison
    amount = format_number(abs(change.difference), style)
    interval = ""
    if comparison is not None and not math.isnan(comparison.ci[0]):
        low, high = comparison.ci if change.difference >= 0 else (-comparison.ci[1], -comparison.ci[0])
        interval = f" {format_interval(low, high, style)}"
    p = "" if math.isnan(change.p) else ", p < 0.001" if change.p < 0.001 else f", p = {format_number(change.p, 'p')}"
    system = change.system + (f" on {change.dataset}" if len(history.datasets) > 1 else "")
    since = f"{_format_start_time(change.since.when, change.last.when)} ({change.since.folder})"
    if change.lower_is_better:
        direction = "better" if change.better else "worse"
        reference = f"than its best of {since}" if change.against == "best" else f"since {since}"
        return f"{system} is {direction} by {amount} in {change.measure}{interval} {reference}{p}."
    if change.against == "best":
        return f"{system} is {amount} of {change.measure}{interval} below its best of {since}{p}."
    verb = "gained" if change.better else "lost"
    return f"{system} {verb} {amount} of {change.measure}{interval} since {since}{p}."


def find_significant_changes(history: History) -> dict[str, list[HistoryChange]]:
    """Return the significant changes by kind, worst kind first.

    Each change is listed once.
    """
    significant = [change for change in history.changes if change.p < history.alpha]
    from_previous = [change for change in significant if change.against == "before"]
    series_listed = {change.last.series for change in from_previous}
    listed = {(change.since, change.last) for change in from_previous}
    kinds: dict[str, list[HistoryChange]] = {
        "worse than in the previous run": [],
        "worse than their best": [],
        "worse than in the first run": [],
        "better than in the previous run": [],
        "better than in the first run": [],
    }
    for change in from_previous:
        kinds[f"{_direction(change)} than in the previous run"].append(change)
    for change in significant:
        if change.against == "best" and not change.better and (change.since, change.last) not in listed:
            kinds["worse than their best"].append(change)
            listed.add((change.since, change.last))
    for change in significant:
        is_new = change.last.series not in series_listed and (change.since, change.last) not in listed
        if change.against == "first" and is_new:
            kinds[f"{_direction(change)} than in the first run"].append(change)
    return kinds


def _direction(change: HistoryChange) -> str:
    return "better" if change.better else "worse"


def summarise_history(history: History) -> list[str]:
    """Describe the significant changes since the previous, first and best run, or why there is none.

    The first sentence is the summary.
    """
    sentences = []
    for kind, changes in find_significant_changes(history).items():
        sentences += [describe_change(history, change) for change in changes[:MAX_SENTENCES]]
        more = len(changes) - MAX_SENTENCES
        sentences += [f"{more} more {'is' if more == 1 else 'are'} {kind}."] if more > 0 else []
    return [*sentences, *filter(None, [_describe_no_change(history)])] or [_describe_untested(history)]


def _describe_no_change(history: History) -> str:
    """Describe that the last run has no significant change.

    Empty if it has one, or if nothing was tested.
    """
    from_previous = [change for change in history.changes if change.against == "before"]
    tested = [change for change in from_previous if not math.isnan(change.p)]
    if not tested or any(change.p < history.alpha for change in tested):
        return ""
    n_datasets = len(history.datasets)
    runs = f"last of {pluralise(len(history.folders), 'run')}"
    if n_datasets > 1:
        runs = f"last runs of {pluralise(n_datasets, 'dataset')}"
    compared = {change.last.series for change in from_previous}
    n_points: Counter[SeriesKey] = Counter(point.series for point in history.points)
    n_broken = sum(series not in compared for series, n in n_points.items() if n > 1)
    suffix = f"; {n_broken} series cannot be compared with the previous run" if n_broken else ""
    return f"No significant change in the {runs}{suffix}."


def _describe_untested(history: History) -> str:
    """Explain why nothing was tested."""
    if len(history.folders) < 2:
        return "One run so far; changes are shown from the second run on."
    if any(point.changed for point in history.points):
        return "The last run is not comparable with earlier ones, because not only the systems changed."
    return "No change could be tested."


def is_unchanged(history: History, points: Sequence[HistoryPoint]) -> bool:
    """Return whether a series never changed.

    All points are comparable, have the same value, and no query changed.
    """
    last = points[-1]
    if len(points) < 2 or not all(point.comparable for point in points):
        return False
    if len({point.mean[:2] for point in points}) > 1:
        return False
    comparisons = [change.comparison for change in history.changes if change.last.series == last.series]
    return all(comparison is None or comparison.wins == comparison.losses == 0 for comparison in comparisons)


def is_first_always_previous(history: History) -> bool:
    """Return whether the first comparable run is always the previous one.

    Then one column suffices.
    """
    since = {(change.against, change.last.series): change.since for change in history.changes}
    return all(since["first", series] == since["before", series] for _, series in since)


def describe_method(history: History) -> list[str]:
    """Describe how changes were tested; empty if there is none."""
    compared = [change for change in history.changes if change.against == "before"]
    n_tested = sum(not math.isnan(change.p) for change in compared)
    parts = [f"p: paired t-test over queries, Holm-corrected for {n_tested} series"] if n_tested else []
    parts += ["times are not tested"] if any(change.last.is_timing for change in compared) else []
    return ["; ".join(parts)] if parts else []


def describe_skipped(history: History) -> list[str]:
    """Describe which folders could not be read, and why."""
    reasons = [reason if folder in reason else f"{folder}: {reason}" for folder, reason in history.skipped.items()]
    more = len(reasons) - MAX_SENTENCES
    return [
        *(f"not read: {reason}" for reason in reasons[:MAX_SENTENCES]),
        *([f"not read: {pluralise(more, 'more folder')}"] if more > 0 else []),
    ]
