"""Charts of a calibration: the ROC curve, and the calibration curve."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ragauge.calibrations import Calibration
from ragauge.records import Floats
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import NEUTRAL, PALETTE
from ragauge.reports.charts.sketches import Panel, Rows, altair, figure, listed, panel, sentence

HEIGHT = 260


def drawn(several: Mapping[str, Calibration]) -> dict[str, Drawing]:
    """Draw each calibration that has scores of both good and bad samples."""
    found = {}
    for name, one in several.items():
        drawing = _drawing(one)
        if drawing is not None:
            found[name] = drawing
    return found


def roc(scores: Floats, good: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[float, float]]:
    """Return the ROC curve as pairs of false and true positive rate.

    The strictest threshold comes first. Equal scores are one step.

    >>> roc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    [(0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]
    """
    order = np.argsort(-scores, kind="stable")
    hits, alarms = np.cumsum(good[order]), np.cumsum(~good[order])
    last = np.append(np.diff(scores[order]) != 0, True)
    points = zip(alarms[last] / alarms[-1], hits[last] / hits[-1], strict=True)
    return [(0.0, 0.0), *((float(x), float(y)) for x, y in points)]


def _drawing(one: Calibration) -> Drawing | None:
    good = np.array([pair.label >= one.label_threshold - 1e-9 for pair in one.pairs], np.bool_)
    columns = {
        "verdicts": np.array([pair.score for pair in one.pairs]),
        "by degree": np.array([pair.soft for pair in one.pairs]),
        "counting words": np.array([pair.overlap for pair in one.pairs]),
    }
    rows: Rows = []
    for name, scores in columns.items():
        known = ~np.isnan(scores)
        if good[known].any() and not good[known].all():
            rows += [
                {"who": name, "alarms": figure(x), "hits": figure(y), "at": at}
                for at, (x, y) in enumerate(roc(scores[known], good[known]))
            ]
    names = list(dict.fromkeys(row["who"] for row in rows))
    if "verdicts" not in names:
        return None
    panels = [_roc_panel(rows, names), *([_curve_panel(one)] if one.curve else [])]
    areas = [
        f"{rater.name} {rater.figures['auc'].value:.3f}"
        for rater in one.raters
        if rater.kind != "people" and "auc" in rater.figures and not math.isnan(rater.figures["auc"].value)
    ]
    caption = sentence(
        "left, what share of good samples is found at what share of false alarms, the dashed line being a guess",
        "right, samples of about the same score: dots on the dashed line mean what they say" if one.curve else "",
        "lines at the dots are intervals" if one.curve else "",
    )
    return Drawing(f"{one.judge} on {one.dataset}", caption, f"Area under the curve: {listed(areas)}.", panels)


def _roc_panel(rows: Rows, names: list[str]) -> Panel:
    alt = altair()
    colour = alt.Color("who:N", scale=alt.Scale(domain=names, range=list(PALETTE[: len(names)])), legend=alt.Legend())
    x = alt.X("alarms:Q", title="bad samples called good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("hits:Q", title="good samples called good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    lines = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2, interpolate="linear")
    layers = [_diagonal("alarms", "hits"), lines.encode(x=x, y=y, color=colour, order="at:Q")]
    return panel("Telling good from bad", layers, HEIGHT, wide=False)


def _curve_panel(one: Calibration) -> Panel:
    alt = altair()
    rows: Rows = [
        {
            "score": figure(b.score),
            "share": figure(b.share.value),
            "low": figure(b.share.low),
            "high": figure(b.share.high),
            "n": b.share.n,
        }
        for b in one.curve
    ]
    chart = alt.Chart(alt.Data(values=rows))
    x = alt.X("score:Q", title="mean score", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("share:Q", title="share that is good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("n:Q", title="samples"),
        *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("score", "share", "low", "high")),
    ]
    whiskers = chart.mark_rule(color=PALETTE[0], strokeWidth=1.5)
    dots = chart.mark_point(filled=True, size=60, opacity=1, color=PALETTE[0])
    layers = [
        _diagonal("score", "share"),
        whiskers.encode(x=x, y=alt.Y("low:Q", title="share that is good"), y2="high:Q"),
        dots.encode(x=x, y=y, tooltip=tips),
    ]
    return panel("What scores promise", layers, HEIGHT, wide=False)


def _diagonal(x: str, y: str) -> object:
    alt = altair()
    rows = [{x: 0, y: 0}, {x: 1, y: 1}]
    line = alt.Chart(alt.Data(values=rows)).mark_line(color=NEUTRAL, strokeDash=[4, 4], strokeWidth=1)
    return line.encode(x=alt.X(f"{x}:Q"), y=alt.Y(f"{y}:Q"))
