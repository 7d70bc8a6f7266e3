"""Render the page of a history."""

from __future__ import annotations

import math
from dataclasses import replace

from ragauge.histories import Change, History, Point
from ragauge.reports import histories as reports
from ragauge.reports import histories_words as words
from ragauge.reports.charts import trend
from ragauge.reports.page import Section, document
from ragauge.reports.page.sections import Cell, Sheet
from ragauge.reports.tables import counted, p_value

AGAINST = ("before", "first", "best")
DRAWN = 200
"""Maximum number of points drawn per series: the last ones. More would not be legible."""
LISTED = 5_000
"""Maximum number of points listed: the last ones. The CSV contains all."""


def page(found: History, made: str = "", vega: str | None = None) -> str:
    """Render the page of a history. `made` is the creation time in ISO 8601."""
    recent, left = _recent(found)
    chart = trend(recent)
    said = _said(found)
    names = [one for one in found.datasets if one]
    title = "History" + (f" of {', '.join(names[:3])}{', …' if len(names) > 3 else ''}" if names else "")
    parts = {
        "title": title,
        "kind": "history",
        "made": made,
        "sections": [
            Section("series", "The last run", "The last run"),
            *([Section("trend", "Over time", "Over time")] if chart is not None else []),
            Section("breaks", "Not compared", "Not compared"),
            Section("points", "Every point", "Every point"),
        ],
        "about": _about(found),
        "headline": said[0],
        "more": said[1:],
        "chart": chart,
        "shortened": f"The last {DRAWN} points of each series; {left:,} earlier ones are not drawn." if left else "",
        "series": [_series(found, dataset) for dataset in found.datasets],
        "legend": _legend(found),
        "breaks": _breaks(found),
        "skipped": found.skipped,
        "notes": found.notes,
        "points": _points(found),
    }
    return document("history.html", parts, {} if chart is None else {"trend": chart}, vega=vega)


def _said(found: History) -> list[str]:
    """Return sentences on the significant changes, worst first."""
    lines = []
    for what, changes in words.sure(found).items():
        lines += [f"{words.sentence(found, one)}." for one in changes[: words.MOST]]
        more = len(changes) - words.MOST
        lines += [f"{more} more {'is' if more == 1 else 'are'} {what}."] if more > 0 else []
    calm = words.calm(found)
    if calm:
        lines.append(f"{calm[0].upper()}{calm[1:]}.")
    return [one.replace("p = ", "p\u00a0=\u00a0").replace("p < ", "p\u00a0<\u00a0") for one in lines] or [
        _nothing(found)
    ]


def _nothing(found: History) -> str:
    """Explain why nothing was tested."""
    if len(found.folders) < 2:
        return "One result so far: the next one begins the history."
    if any(one.changed for one in found.points):
        return "The last results cannot be compared with the ones before: something else than the systems changed."
    return "Nothing could be tested."


def _legend(found: History) -> list[str]:
    return [f"{line}." for line in words.explained(found, AGAINST)] or ["Nothing can be compared yet."]


def _about(found: History) -> list[str]:
    return [
        counted(len(found.folders), "folder"),
        counted(len(found.systems), "system"),
        words.span(found),
        f"{100 * found.confidence:g}% intervals",
    ]


def _recent(found: History) -> tuple[History, int]:
    """Return the last points of each series, and the number of points left out."""
    kept: list[Point] = []
    seen: dict[tuple[str, str, str], int] = {}
    for one in reversed(found.points):
        key = (one.dataset, one.system, one.measure)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= DRAWN:
            kept.append(one)
    return replace(found, points=kept[::-1]), len(found.points) - len(kept)


def _series(found: History, dataset: str) -> Sheet:
    mine = found.of(dataset)
    style = words.moments(found)
    moved: list[list[str | Cell]] = []
    still: list[list[str | Cell]] = []
    for system in mine.systems:
        for measure in mine.measures:
            points = mine.series(system, measure)
            if not points:
                continue
            alike = found.comparable.get((dataset, system, measure), 1)
            changes = {one: mine.change(system, measure, against=one) for one in AGAINST}
            first = changes["first"]
            row: list[str | Cell] = [
                Cell(system),
                measure,
                reports.trend(points),
                f"{alike}" if alike == len(points) else f"{alike} of {len(points)}",
                Cell("-") if first is None else _mean(first.since, style),
                _mean(points[-1], style),
                *(_change(one, found.confidence) for one in changes.values()),
            ]
            (still if words.is_still(mine, points) else moved).append(row)
    header = ["system", "measure", "trend", "runs", "first", "last", *(words.COLUMNS[one] for one in AGAINST)]
    return Sheet(header, [*moved, *still], title=dataset or "runs", sortable=len(moved) + len(still) > 1)


def _mean(point: Point, style: str = "") -> Cell:
    mean, measure = point.mean, point.measure
    ends = [words.figure(end, measure) for end in (mean.low, mean.high)]
    known = "" if math.isnan(mean.low) and math.isnan(mean.high) else f"[{ends[0]}, {ends[1]}]"
    order = None if math.isnan(mean.value) else mean.value
    return Cell(words.figure(mean.value, measure), f"{known} {point.when.strftime(style)}".strip(), order=order)


def _change(change: Change | None, confidence: float) -> Cell:
    if change is None:
        return Cell("-")
    sure = change.p < 1 - confidence
    below = "" if math.isnan(change.p) else f"p {p_value(change.p)}"
    return Cell(words.difference(change.difference, change.last.measure), below, sure, order=change.difference)


def _breaks(found: History) -> Sheet | None:
    known: dict[tuple[Point, str], dict[str, None]] = {}
    firsts: dict[tuple[str, str], Point] = {}
    for one in found.points:
        if one.changed:
            first = firsts.setdefault((one.folder, one.changed), one)
            known.setdefault((first, one.changed), {})[one.system] = None
    rows = [
        [f"{one.when:%Y-%m-%d %H:%M}", one.folder, ", ".join(systems), changed]
        for (one, changed), systems in reversed(known.items())
    ]
    return Sheet(["when", "folder", "systems", "what else changed"], rows, numbers=False) if rows else None


def _points(found: History) -> Sheet:
    rows: list[list[str | Cell]] = [
        [
            *(f"{one.when:%Y-%m-%d %H:%M:%S}", one.folder, one.system, one.measure),
            _mean(one),
            *(str(one.mean.n), one.changed),
        ]
        for one in reversed(found.points[-LISTED:])
    ]
    left = len(found.points) - len(rows)
    title = f"{len(found.points):,} points" + (f", the last {LISTED:,} here" if left else "")
    header = ["when (UTC)", "folder", "system", "measure", "mean", "queries", "what else changed"]
    return Sheet(header, rows, title=title, sortable=len(rows) > 1, folded=True)
