"""Charts of a calibration: the ROC curves of the raters, and the calibration curve of the judge."""

from __future__ import annotations

import numpy as np

from ragauge.core.records import Floats
from ragauge.judging.calibration.rater_statistics import PERFECT_SCORE_TOLERANCE
from ragauge.judging.calibration.results import WORD_OVERLAP_RATER, Calibration
from ragauge.output.chart_style import NEUTRAL_COLOUR, PALETTE
from ragauge.output.charts import ChartPanel, ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import join_with_and
from ragauge.output.report import Chart

PANEL_HEIGHT_PX = 260


def build_calibration_charts(calibration: Calibration) -> dict[str, Chart]:
    """Build the chart of a calibration; empty without scores of both good and bad samples."""
    chart = _build_chart(calibration)
    return {} if chart is None else {"curves": chart}


def roc_points(scores: Floats, good: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[float, float]]:
    """Return the ROC curve as pairs of false and true positive rate.

    The strictest threshold comes first. Equal scores are one step.

    >>> roc_points(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    [(0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]
    """
    order = np.argsort(-scores, kind="stable")
    hits, alarms = np.cumsum(good[order]), np.cumsum(~good[order])
    last = np.append(np.diff(scores[order]) != 0, True)
    points = zip(alarms[last] / alarms[-1], hits[last] / hits[-1], strict=True)
    return [(0.0, 0.0), *((float(x), float(y)) for x, y in points)]


def _build_chart(calibration: Calibration) -> Chart | None:
    limit = calibration.label_threshold - PERFECT_SCORE_TOLERANCE
    good = np.array([pair.label >= limit for pair in calibration.pairs], np.bool_)
    columns = {
        "verdicts": np.array([pair.score for pair in calibration.pairs]),
        "probability": np.array([pair.soft for pair in calibration.pairs]),
        WORD_OVERLAP_RATER: np.array([pair.overlap for pair in calibration.pairs]),
    }
    rows: ChartRows = []
    for name, scores in columns.items():
        is_scored = ~np.isnan(scores)
        if good[is_scored].any() and not good[is_scored].all():
            rows += [
                {"rater": name, "alarms": round_digits(x), "hits": round_digits(y), "at": at}
                for at, (x, y) in enumerate(roc_points(scores[is_scored], good[is_scored]))
            ]
    names = list(dict.fromkeys(row["rater"] for row in rows))
    if "verdicts" not in names:
        return None
    panels = [_roc_panel(rows, names), *([_curve_panel(calibration)] if calibration.curve else [])]
    areas = [
        f"{rater.name} {rater.statistics['auc'].value:.3f}"
        for rater in calibration.raters
        if rater.kind != "people" and "auc" in rater.statistics and rater.statistics["auc"].defined
    ]
    caption = join_sentence(
        "left: the share of good samples found, by the share of bad samples called good; the dashed line is chance",
        "right: the share of good samples, by mean score; on the dashed line, scores equal the share of good samples"
        if calibration.curve
        else "",
        "vertical lines are confidence intervals" if calibration.curve else "",
    )
    title = "ROC and calibration curves" if calibration.curve else "ROC curve"
    return Chart(title, caption, f"Area under the ROC curve: {join_with_and(areas)}.", panels)


def _roc_panel(rows: ChartRows, names: list[str]) -> ChartPanel:
    alt = import_altair()
    colour = alt.Color("rater:N", scale=alt.Scale(domain=names, range=list(PALETTE[: len(names)])), legend=alt.Legend())
    x = alt.X("alarms:Q", title="bad samples called good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("hits:Q", title="good samples called good", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    lines = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2, interpolate="linear")
    layers = [_diagonal_line("alarms", "hits"), lines.encode(x=x, y=y, color=colour, order="at:Q")]
    return make_panel("ROC curve", layers, PANEL_HEIGHT_PX, wide=False)


def _curve_panel(calibration: Calibration) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {
            "score": round_digits(part.score),
            "share": round_digits(part.share.value),
            "low": round_digits(part.share.low),
            "high": round_digits(part.share.high),
            "n": part.share.n,
        }
        for part in calibration.curve
    ]
    chart = alt.Chart(alt.Data(values=rows))
    x = alt.X("score:Q", title="mean score", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    y = alt.Y("share:Q", title="share of good samples", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("n:Q", title="samples"),
        *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("score", "share", "low", "high")),
    ]
    whiskers = chart.mark_rule(color=PALETTE[0], strokeWidth=1.5)
    dots = chart.mark_point(filled=True, size=60, opacity=1, color=PALETTE[0])
    layers = [
        _diagonal_line("score", "share"),
        whiskers.encode(x=x, y=alt.Y("low:Q", title="share of good samples"), y2="high:Q"),
        dots.encode(x=x, y=y, tooltip=tips),
    ]
    return make_panel("Calibration curve", layers, PANEL_HEIGHT_PX, wide=False)


def _diagonal_line(x: str, y: str) -> object:
    alt = import_altair()
    rows = [{x: 0, y: 0}, {x: 1, y: 1}]
    line = alt.Chart(alt.Data(values=rows)).mark_line(color=NEUTRAL_COLOUR, strokeDash=[4, 4], strokeWidth=1)
    return line.encode(x=alt.X(f"{x}:Q"), y=alt.Y(f"{y}:Q"))
