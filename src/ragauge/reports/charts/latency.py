"""Draw latency distributions and mean times by stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ragauge.outcomes import Latency
from ragauge.overviews import Entry, Overview
from ragauge.reports.charts.looks import PALETTE, Cast
from ragauge.reports.charts.looks import STAGES as COLOURS
from ragauge.reports.charts.sketches import (
    Panel,
    Rows,
    Sketch,
    altair,
    figure,
    listed,
    panel,
    powers,
    sentence,
    shown,
    ticked,
)
from ragauge.stages import STAGES

MOST = 120
"""Maximum number of points per line."""
MARKED = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def latency(overview: Overview) -> Sketch | None:
    """Draw the cumulative latency distribution of `total` and each stage."""
    known = _stages(overview)
    cast = Cast(overview.systems, overview.baseline)
    timed = [name for name, entry in overview.entries.items() if entry.times or entry.speed is not None]
    panels: list[Panel] = []
    for stage in known:
        made = _distribution(overview, stage, cast, [] if panels else timed)
        panels += [made] if made is not None else []
    if not panels:
        return None
    said = []
    for name, entry in overview.entries.items():
        if entry.speed is not None and "total" in entry.speed.stages:
            total = entry.speed.stages["total"]
            said.append(f"{name} {', '.join(f'{one} {shown(getattr(total, one))}' for one in MARKED)}")
    caption = sentence(
        "a line shows which share of the queries took at most so long",
        "marks are the 50th, 90th, 95th and 99th percentile",
        "fusing counts as rerank" if any(one.title == "rerank" for one in panels) else "",
    )
    return Sketch(panels, f"Milliseconds in total: {'; '.join(said)}." if said else "Milliseconds by stage.", caption)


def _stages(overview: Overview) -> list[str]:
    """Return `total`, the standard stages, then custom stages sorted by name."""
    found = {
        stage
        for entry in overview.entries.values()
        for stage in (*entry.times, *(entry.speed.stages if entry.speed is not None else ()))
    }
    usual = [stage for stage in ("total", *STAGES) if stage in found]
    return [*usual, *sorted(found - set(usual))]


def _line(entry: Entry, stage: str) -> tuple[list[float], list[float]]:
    """Return latencies in ms and cumulative shares of queries.

    They are computed from the latencies of all queries, or else from known percentiles.
    """
    times = np.asarray(entry.times.get(stage, ()), dtype=np.float64)
    times = np.sort(times[np.isfinite(times)])
    if len(times):
        places = np.unique(np.linspace(0, len(times) - 1, min(len(times), MOST)).round().astype(int))
        return times[places].tolist(), ((places + 1) / len(times)).tolist()
    found = None if entry.speed is None else entry.speed.stages.get(stage)
    if found is None:
        return [], []
    shares = {0.0: found.min, **{share: getattr(found, one) for one, share in MARKED.items()}, 1.0: found.max}
    known = {share: ms for share, ms in shares.items() if math.isfinite(ms)}
    return list(known.values()), list(known)


def _marks(entry: Entry, stage: str) -> dict[str, float]:
    found: Latency | None = None if entry.speed is None else entry.speed.stages.get(stage)
    if found is not None:
        return {one: getattr(found, one) for one in MARKED}
    times = entry.times.get(stage, ())
    return {one: float(np.percentile(times, 100 * share)) for one, share in MARKED.items()} if len(times) else {}


def _distribution(overview: Overview, stage: str, cast: Cast, key: Sequence[str]) -> Panel | None:
    alt = altair()
    rows: Rows = []
    marks: Rows = []
    every: list[float] = []
    for name, entry in overview.entries.items():
        # A logarithmic axis cannot show 0.
        points = [(ms, share) for ms, share in zip(*_line(entry, stage), strict=True) if ms > 0]
        if not points:
            continue
        every += [ms for ms, _ in points]
        times, shares = zip(*points, strict=True)
        rows.append(
            {
                "system": name,
                "dash": cast.dashes[name],
                "ms": [figure(t, 4) for t in times],
                "share": [figure(100 * s, 4) for s in shares],
            }
        )
        marks += [
            {"system": name, "what": one, "ms": figure(ms, 4), "share": 100 * MARKED[one]}
            for one, ms in _marks(entry, stage).items()
            if 0 < ms < math.inf
        ]
    if not every:
        return None
    low, high = ticked(min(every) / 1.15, max(every) * 1.15)
    scale = alt.Scale(type="log", domain=[figure(low), figure(high)])
    axis = alt.Axis(values=powers(low, high), format="~g", labelOverlap="greedy")
    x = alt.X("ms:Q", title="ms (log scale)", scale=scale, axis=axis)
    y = alt.Y("share:Q", title="% of queries", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(values=[0, 50, 90, 100]))
    colour, dash, shape = cast.colour(alt, key), cast.dash(alt), cast.shape(alt, key)
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("what:N", title="percentile"),
        alt.Tooltip("ms:Q", title="ms", format=".4~g"),
    ]
    lines = alt.Chart(alt.Data(values=rows)).transform_flatten(["ms", "share"])
    layers = [lines.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=colour, strokeDash=dash)]
    if marks:
        dots = alt.Chart(alt.Data(values=marks)).mark_point(filled=True, size=40, opacity=1)
        layers.append(dots.encode(x=x, y=y, color=colour, shape=shape, tooltip=tips))
    return panel(stage, layers, 190, wide=False)


def stages(overview: Overview) -> Sketch | None:
    """Draw the mean time of a query by stage, one bar per system."""
    parts = {name: _parts(entry) for name, entry in overview.entries.items()}
    parts = {name: mine for name, mine in parts.items() if mine}
    if not parts:
        return None
    alt = altair()
    cast = Cast(overview.systems, overview.baseline)
    kinds = [one for one in (*STAGES, *_others(parts), "other") if any(one in mine for mine in parts.values())]
    spare = [one for one in PALETTE if one not in COLOURS.values()]
    fresh = {kind: spare[i % len(spare)] for i, kind in enumerate(k for k in kinds if k not in COLOURS)}
    rows: Rows = []
    totals: Rows = []
    for name, mine in parts.items():
        begin = 0.0
        for kind in kinds:
            if kind in mine:
                end = begin + mine[kind]
                rows.append(
                    {
                        "system": name,
                        "stage": kind,
                        "ms": figure(mine[kind]),
                        "begin": figure(begin),
                        "end": figure(end),
                    }
                )
                begin = end
        totals.append({"system": name, "end": figure(begin), "label": f"{shown(begin)} ms"})
    scale = alt.Scale(domain=[0, figure(1.22 * max(row["end"] for row in totals))], nice=False)
    x = alt.X("begin:Q", title="mean ms of a query", scale=scale, axis=alt.Axis(tickCount=5))
    y = cast.rows(alt, list(parts))
    key = alt.Scale(domain=kinds, range=[COLOURS.get(kind) or fresh[kind] for kind in kinds])
    colour = alt.Color("stage:N", scale=key, legend=alt.Legend(title=None, orient="bottom", columns=4))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("stage:N", title="stage"),
        alt.Tooltip("ms:Q", title="mean ms", format=".4~g"),
    ]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(height=16)
    words = alt.Chart(alt.Data(values=totals)).mark_text(style="words", align="left", dx=5)
    layers = [
        bars.encode(x=x, x2="end:Q", y=y, color=colour, tooltip=tips),
        words.encode(x=alt.X("end:Q", title="mean ms of a query", scale=scale), y=y, text="label:N"),
    ]
    said = [f"{name} {listed([f'{kind} {shown(ms)}' for kind, ms in mine.items()])}" for name, mine in parts.items()]
    caption = sentence(
        "mean milliseconds of a query, by the stage in which they were spent",
        "other is time that no stage claimed" if "other" in kinds else "",
    )
    return Sketch([panel("", layers, 24 * len(parts) + 4)], f"Mean milliseconds by stage: {'; '.join(said)}.", caption)


def _others(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    return sorted({kind for mine in parts.values() for kind in mine} - {*STAGES, "other"})


def _parts(entry: Entry) -> dict[str, float]:
    """Return the mean time in ms per query by stage, averaged over all queries.

    A stage that only some queries have is weighted by their number. `other` is the remaining time.
    """
    if entry.speed is None or "total" not in entry.speed.stages:
        return {}
    total = entry.speed.stages["total"]
    if not total.n or not math.isfinite(total.mean):
        return {}
    parts = {
        stage: one.mean * one.n / total.n
        for stage, one in entry.speed.stages.items()
        if stage != "total" and math.isfinite(one.mean)
    }
    rest = total.mean - sum(parts.values())
    return {**parts, "other": rest} if rest > 1e-9 else parts
