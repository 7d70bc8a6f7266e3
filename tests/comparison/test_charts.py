"""Charts: plotted values, captions, contrast and files, for any number of systems with any names."""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.comparison.charts import CHART_DEFINITIONS, draw_charts
from ragauge.comparison.quality_charts import MAX_LABELLED_SYSTEMS
from ragauge.comparison.results import MeasureCurve, Overview, StratumMeans, SystemSummary
from ragauge.core.errors import MissingExtra
from ragauge.core.summaries import Latency, Mean, Speed
from ragauge.experiments.history.charts import build_trend_chart
from ragauge.experiments.history.results import History, HistoryPoint
from ragauge.output.chart_files import chart_specification, render_png, render_svg
from ragauge.output.chart_style import (
    LOSS_COLOUR,
    NEUTRAL_COLOUR,
    PAGE_STYLESHEET,
    PALETTE,
    STAGE_COLOURS,
    TIE_COLOUR,
    WIN_COLOUR,
    SystemStyles,
)
from ragauge.output.charts import ChartDraft, LabelledMark, PlotBox, place_labels
from ragauge.stats.comparisons import ChangedQuery, Comparison, Comparisons, ComparisonSettings
from ragauge.stats.smallest_k import SmallestK

UNUSUAL_NAMES = (
    "a.b[0]",
    "<script>alert(1)</script>",
    "datum.x",
    'it\'s "quoted"',
    "constructor",
    "__proto__",
    "\\u0041 \x01",
)


def make_latency(*times: float) -> Latency:
    values = np.array(times)
    percentiles = (float(percentile) for percentile in np.percentile(values, [50, 90, 95, 99]))
    return Latency(len(times), float(values.mean()), *percentiles, 0.0, min(times), max(times))


def make_comparison(system, differences, measure="ndcg@10", p=0.0004, baseline="bm25", **more) -> Comparison:
    changes = [ChangedQuery(f"q{i}", 0.5, 0.5 + d, d) for i, d in enumerate(differences) if d]
    gains = [-d for d in differences] if more.get("lower_is_better") else differences
    mean = sum(differences) / len(differences)
    return Comparison(
        measure,
        baseline,
        system,
        len(differences),
        (0.5, 0.5 + mean),
        mean,
        (mean - 0.05, mean + 0.05),
        p,
        *(p, p, p, p),
        *(0.0, 0.0),
        sum(d > 0 for d in gains),
        sum(d < 0 for d in gains),
        sum(d == 0 for d in gains),
        0.1,
        moved=changes,
        **more,
    )


def make_entry(name, value, times, **means) -> SystemSummary:
    speed = Speed({"embed": make_latency(*(t / 4 for t in times)), "total": make_latency(*times)}, 10.0, 4, 0, 0)
    stages = {"embed": np.array(times) / 4, "total": np.array(times)}
    means_by_name = {"ndcg@10": Mean(value, 4, value - 0.1, value + 0.1), **means}
    return SystemSummary(name, means_by_name, speed=speed, times=stages)


def make_small_overview(names=("bm25", "dense", "slow"), baseline="bm25") -> Overview:
    """Build an overview: the first system is fast, the second good, the third worse and slower than the second."""
    values, times = (0.5, 0.65, 0.6), ((1.0, 1.0, 2.0, 2.0), (4.0, 4.0, 8.0, 8.0), (100.0, 100.0, 300.0, 300.0))
    errors = {"err@10": Mean(0.25, 4), "diversity@20": Mean(7.5, 4, 7.0, 8.0)}
    entries = {name: make_entry(name, v, t, **errors) for name, v, t in zip(names, values, times, strict=True)}
    first, second, third = names
    rows = [
        make_comparison(second, [0.5, 0.2, 0.0, -0.1], baseline=first),
        make_comparison(third, [0.0, 0.4, 0.0, 0.0], p=0.2, baseline=first),
        make_comparison(second, [0.0, 0.0, 0.0, 0.1], "diversity@20", p=0.03, baseline=first),
    ]
    advice = {name: SmallestK(5, "hit_rate@10", 0.01, 0.95, ()) for name in names}
    curve = MeasureCurve(
        "hit_rate", [1, 5, 10], {name: [0.2 * (i + 1), 0.7, 0.9] for i, name in enumerate(names)}, advice
    )
    stratum = [
        StratumMeans("long", 3, {name: Mean(v, 3, v - 0.2, v + 0.2) for name, v in zip(names, values, strict=True)}),
        StratumMeans("short", 1, {name: Mean(v, 1) for name, v in zip(names, values, strict=True)}),
    ]
    return Overview(
        "small",
        entries,
        ["ndcg@10", "diversity@20", "err@10"],
        lower_is_better=frozenset({"err@10"}),
        baseline=baseline,
        compared=Comparisons(rows, ComparisonSettings(), baseline, list(names)),
        curves=[curve],
        strata={"length": stratum},
    )


@pytest.fixture(scope="module")
def drawings():
    return draw_charts(make_small_overview())


def make_large_overview(names, n=40) -> Overview:
    rng = np.random.default_rng(0)
    entries, rows = {}, []
    for i, name in enumerate(names):
        times = rng.lognormal(i / 4, 0.5, n)
        stages = {"embed": times / 4, "retrieve": times / 4, "rerank": times / 4, "total": times}
        speed = Speed({stage: make_latency(*values.tolist()) for stage, values in stages.items()}, 1.0, n, 0, 0)
        entries[name] = SystemSummary(name, {"ndcg@10": Mean(0.4 + i / 50, n, 0.3, 0.7)}, speed=speed, times=stages)
        if i:
            differences = np.where(rng.random(n) < 0.3, 0.0, rng.normal(0.05, 0.3, n)).tolist()
            rows.append(make_comparison(name, differences, baseline=names[0]))
    curve = MeasureCurve("recall", [1, 10, 100], {name: [0.1, 0.5, 0.9] for name in names})
    return Overview(
        "many",
        entries,
        ["ndcg@10"],
        baseline=names[0],
        compared=Comparisons(rows, ComparisonSettings(), names[0], names),
        curves=[curve],
        strata={"tag": [StratumMeans("x", n, {name: Mean(0.5, n, 0.4, 0.6) for name in names})]},
    )


def find_rows(panel, *fields):
    """Return the rows of the first layer of a panel that has these fields."""
    tables = [layer["data"]["values"] for layer in panel.spec["layer"] if "data" in layer]
    tables += [panel.spec["data"]["values"]] if "data" in panel.spec else []
    return next(rows for rows in tables if rows and set(fields) <= set(rows[0]))


def svg_texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


# Plotted values


def test_draw_charts_complete_overview_draws_all_charts(drawings):
    # The panels chart needs other measures.
    assert list(drawings) == [name for name in CHART_DEFINITIONS if name != "panels"]
    for drawing in drawings.values():
        assert drawing.title
        assert drawing.caption.endswith(".")
        assert "{" not in drawing.caption
        assert drawing.alt.endswith(".")


def test_quality_latency_chart_has_p95_and_frontier(drawings):
    drawing = drawings["quality_latency"]
    rows = find_rows(drawing.panels[0], "low")
    assert [(row["system"], row["ms"], row["value"], row["low"], row["high"]) for row in rows] == [
        ("bm25", 2.0, 0.5, 0.4, 0.6),
        ("dense", 8.0, 0.65, 0.55, 0.75),
        ("slow", 300.0, 0.6, 0.5, 0.7),
    ]
    assert drawing.panels[0].spec["layer"][0]["data"]["values"] == [
        {"ms": 2.0, "value": 0.5},
        {"ms": 8.0, "value": 0.65},
    ]
    assert "dense 0.650 at 8.00 ms" in drawing.alt
    assert drawing.alt.endswith("Not beaten in both: bm25 and dense.")


def test_quality_latency_chart_lower_is_better_reverses_axis():
    overview = replace(make_small_overview(), lower_is_better=frozenset({"ndcg@10"}))
    drawing = CHART_DEFINITIONS["quality_latency"].draw(overview)
    assert drawing.alt.endswith("Not beaten in both: bm25.")
    scales = [layer["encoding"]["y"].get("scale", {}) for layer in drawing.panels[0].spec["layer"]]
    assert any(scale.get("reverse") for scale in scales)


def test_measures_chart_has_bars_intervals_stars_and_baseline(drawings):
    panels = drawings["measures"].panels
    assert [panel.title for panel in panels] == [
        "ndcg@10",
        "diversity@20",
        "err@10 (lower is better)",
        "p95 ms (log scale, lower is better)",
    ]
    rows = find_rows(panels[0], "label")
    assert [row["label"] for row in rows] == ["0.500", "0.650 ***", "0.600 ns"]
    assert [(row["value"], row["low"], row["high"], row["n"]) for row in rows][1] == (0.65, 0.55, 0.75, 4)
    assert [row["label"] for row in find_rows(panels[1], "label")] == ["7.50", "7.50 *", "7.50"]
    guides = [layer for layer in panels[0].spec["layer"] if layer["mark"].get("strokeDash")]
    assert [layer["data"]["values"] for layer in guides] == [[{"value": 0.5}]]
    assert [row["value"] for row in find_rows(panels[3], "label")] == [2.0, 8.0, 300.0]
    axis = panels[3].spec["layer"][0]["encoding"]["x"]
    assert (axis["scale"]["domain"], axis["axis"]["values"]) == ([1, 500], [1, 10, 100])


def test_measures_chart_similar_times_use_linear_axis_from_zero():
    overview = make_small_overview()
    similar = {name: overview.entries[name] for name in ("bm25", "dense")}
    panel = CHART_DEFINITIONS["measures"].draw(replace(overview, entries=similar)).panels[-1]
    assert panel.title == "p95 ms (lower is better)"
    assert panel.spec["layer"][0]["encoding"]["x"]["scale"]["domain"][0] == 0


def test_measures_chart_nan_mean_is_labelled_none():
    overview = make_small_overview()
    without_mean = replace(overview.entries["slow"], means={"ndcg@10": Mean(math.nan, 0)})
    panels = (
        CHART_DEFINITIONS["measures"].draw(replace(overview, entries={**overview.entries, "slow": without_mean})).panels
    )
    row = find_rows(panels[0], "label")[2]
    assert (row["value"], row["n"], row["label"]) == (None, None, "none ns")


def test_curves_chart_has_means_and_sufficient_k(drawings):
    panel = drawings["curves"].panels[0]
    assert panel.title == "hit_rate@k"
    rows = find_rows(panel, "k", "dash")
    assert [(row["k"], row["value"]) for row in rows if row["system"] == "dense"] == [(1, 0.4), (5, 0.7), (10, 0.9)]
    assert [(row["k"], row["system"], row["label"]) for row in find_rows(panel, "label")] == [
        (5, "dense", "dense: k = 5 is enough")
    ]
    assert "for dense k = 5 is enough" in drawings["curves"].alt
    assert "right of the dashed line, more documents add at most 0.01" in drawings["curves"].caption


def draw_curve(values, enough) -> ChartDraft:
    overview = make_small_overview()
    curve = replace(overview.curves[0], values={**overview.curves[0].values, **values}, enough=enough)
    return CHART_DEFINITIONS["curves"].draw(replace(overview, curves=[curve]))


def make_smallest_k(k: int) -> SmallestK:
    return SmallestK(k, "hit_rate@10", 0.01, 0.95, ())


def test_curves_chart_largest_k_is_not_sufficient():
    chart = draw_curve({}, {"dense": make_smallest_k(10), "bm25": make_smallest_k(1)})
    assert "for dense no k below 10 is enough" in chart.alt
    assert "dense: no k below 10 is enough" in svg_texts(render_svg({**chart.panels[0].spec, "width": 300}))
    assert "dashed" not in chart.caption
    assert "may still lose more than 0.01 at every smaller k" in chart.caption
    assert not [layer for layer in chart.panels[0].spec["layer"] if layer["mark"]["type"] == "rule"]


def test_curves_chart_without_advice_for_best_uses_baseline():
    chart = draw_curve({}, {"slow": make_smallest_k(1), "bm25": make_smallest_k(5)})
    assert "for bm25 k = 5 is enough" in chart.alt
    assert draw_curve({}, {"slow": make_smallest_k(1)}).caption == "Each line is a system's mean over k."


def test_curves_chart_line_ends_at_run_depth():
    chart = draw_curve({"dense": [0.4, 0.7, math.nan]}, {"dense": make_smallest_k(5)})
    rows = [row for row in find_rows(chart.panels[0], "k", "dash") if row["system"] == "dense"]
    assert [row["k"] for row in rows] == [1, 5]
    assert "dense 0.700 at 5" in chart.alt
    assert "for dense no k below 5 is enough" in chart.alt
    label = next(row for row in find_rows(chart.panels[0], "align") if row["system"] == "dense")
    assert (label["k"], label["value"]) == (5, 0.7)


def test_curves_chart_long_name_is_truncated_in_label():
    overview = make_small_overview(("bm25", "a-name-of-more-than-thirty-letters", "slow"))
    row = find_rows(CHART_DEFINITIONS["curves"].draw(overview).panels[0], "label")[0]
    assert row["label"] == "a-name-of-more-than-t…: k = 5 is enough"
    assert row["system"] == "a-name-of-more-than-thirty-letters"


def test_curves_chart_line_labels_do_not_overlap(drawings):
    panel = drawings["curves"].panels[0]
    ends = next(layer for layer in panel.spec["layer"] if layer["encoding"].get("text", {}).get("field") == "system")
    heights = sorted(row["value"] for row in ends["data"]["values"])
    assert min(b - a for a, b in itertools.pairwise(heights)) > 0.03
    assert np.mean(heights) == pytest.approx(0.9)


def test_waterfall_chart_sorts_differences_best_first(drawings):
    panel = drawings["waterfall"].panels[0]
    first, second = find_rows(panel, "share", "dash")
    assert (first["system"], first["difference"], first["share"]) == (
        "dense",
        [0.5, 0.2, 0, -0.1],
        [12.5, 37.5, 62.5, 87.5],
    )
    assert second["difference"] == [0.4, 0, 0, 0]
    counts = [(row["what"], row["count"], row["share"]) for row in find_rows(panel, "what") if row["system"] == "dense"]
    assert counts == [("won", 2, 50.0), ("lost", 1, 75.0)]
    assert "dense wins 2, ties 1 and loses 1 of 4" in drawings["waterfall"].alt


def test_waterfall_chart_lower_is_better_sorts_ascending():
    row = make_comparison("dense", [0.5, 0.2, 0.0, -0.1], lower_is_better=True)
    overview = make_small_overview()
    chart = CHART_DEFINITIONS["waterfall"].draw(replace(overview, compared=replace(overview.compared, rows=[row])))
    assert find_rows(chart.panels[0], "share", "dash")[0]["difference"] == [-0.1, 0, 0.2, 0.5]
    assert "dense wins 1, ties 1 and loses 2 of 4" in chart.alt


def test_waterfall_chart_without_baseline_uses_first_pair():
    overview = replace(make_small_overview(), baseline=None)
    chart = CHART_DEFINITIONS["waterfall"].draw(overview)
    assert [row["system"] for row in find_rows(chart.panels[0], "share", "dash")] == ["dense"]
    assert "against bm25" in chart.alt
    assert [row["label"] for row in find_rows(CHART_DEFINITIONS["measures"].draw(overview).panels[0], "label")] == [
        "0.500",
        "0.650",
        "0.600",
    ]


def test_boxes_chart_has_quartiles_percentiles_and_interval(drawings):
    row = find_rows(drawings["boxes"].panels[0], "q1")[0]
    assert row == {
        "system": "dense",
        "p5": -0.085,
        "q1": -0.025,
        "median": 0.1,
        "q3": 0.275,
        "p95": 0.455,
        "mean": 0.15,
        "low": 0.1,
        "high": 0.2,
        "n": 4,
    }
    assert "dense +0.1500 from +0.1000 to +0.2000" in drawings["boxes"].alt


def test_wins_chart_counts_fill_bar(drawings):
    rows = [row for row in find_rows(drawings["wins"].panels[0], "begin") if row["system"] == "dense"]
    assert [(row["what"], row["count"], row["begin"], row["end"]) for row in rows] == [
        ("won", 2, 0, 50),
        ("tied", 1, 50, 75),
        ("lost", 1, 75, 100),
    ]


def test_strata_chart_has_n_and_means(drawings):
    panel = drawings["strata"].panels[0]
    rows = find_rows(panel, "stratum")
    assert panel.title == "length"
    assert (rows[1]["stratum"], rows[1]["system"], rows[1]["value"], rows[1]["low"]) == (
        "long (n=3)",
        "dense",
        0.65,
        0.45,
    )
    assert [row["low"] for row in rows[3:]] == [None, None, None]
    assert "short (n=1) best dense 0.650" in drawings["strata"].alt


def test_strata_chart_several_panels_share_one_legend():
    overview = make_small_overview()
    two_tags = {"length": overview.strata["length"], "also": overview.strata["length"]}
    drawing = draw_charts(replace(overview, strata=two_tags))["strata"]
    assert [svg_texts(render_svg({**panel.spec, "width": 300})).count("dense") for panel in drawing.panels] == [1, 0]
    assert svg_texts(render_svg(chart_specification(drawing))).count("dense") == 1


def test_strata_chart_many_values_keeps_first_20():
    overview = make_small_overview()
    strata = [StratumMeans(str(i), 1, {"bm25": Mean(0.5, 1)}) for i in range(50)]
    panel = CHART_DEFINITIONS["strata"].draw(replace(overview, strata={"id": strata})).panels[0]
    assert panel.title == "id (20 of 50 values)"
    assert len(find_rows(panel, "stratum")) == 20


def test_latency_chart_has_cumulative_share_and_percentiles(drawings):
    panels = drawings["latency"].panels
    assert [(panel.title, panel.wide) for panel in panels] == [("total", False), ("embed", False)]
    assert "rerank" not in drawings["latency"].caption
    line = find_rows(panels[0], "ms", "dash")[0]
    assert (line["ms"], line["share"]) == ([1.0, 1.0, 2.0, 2.0], [25, 50, 75, 100])
    marks = [(row["what"], row["ms"], row["share"]) for row in find_rows(panels[0], "what") if row["system"] == "bm25"]
    assert marks == [("p50", 1.5, 50), ("p90", 2.0, 90), ("p95", 2.0, 95), ("p99", 2.0, 99)]


def test_latency_chart_without_times_uses_percentiles():
    entries = {name: replace(entry, times={}) for name, entry in make_small_overview().entries.items()}
    line = find_rows(
        CHART_DEFINITIONS["latency"].draw(replace(make_small_overview(), entries=entries)).panels[0], "ms", "dash"
    )[0]
    assert (line["ms"], line["share"]) == ([1, 1.5, 2, 2, 2, 2], [0, 50, 90, 95, 99, 100])


def test_latency_chart_ignores_zero_times():
    entry = replace(make_small_overview().entries["bm25"], times={"total": np.array([0.0, 1.0, 2.0, 4.0])})
    panel = CHART_DEFINITIONS["latency"].draw(replace(make_small_overview(), entries={"bm25": entry})).panels[0]
    assert find_rows(panel, "ms", "dash")[0]["ms"] == [1.0, 2.0, 4.0]


def test_stages_chart_sums_to_total_mean(drawings):
    rows = [row for row in find_rows(drawings["stages"].panels[0], "stage") if row["system"] == "dense"]
    assert [(row["stage"], row["ms"], row["end"]) for row in rows] == [("embed", 1.5, 1.5), ("other", 4.5, 6.0)]


def test_stages_chart_partial_stage_is_weighted_by_queries():
    speed = Speed({"rerank": make_latency(8.0), "total": make_latency(2.0, 2.0, 2.0, 10.0)}, 1.0, 4, 0, 0)
    overview = replace(
        make_small_overview(), entries={"bm25": replace(make_small_overview().entries["bm25"], speed=speed)}
    )
    rows = find_rows(CHART_DEFINITIONS["stages"].draw(overview).panels[0], "stage")
    assert [(row["stage"], row["ms"]) for row in rows] == [("rerank", 2.0), ("other", 2.0)]


def make_history(*, changed: str = "") -> History:
    days = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 3, 5)]
    points = [
        HistoryPoint(day, f"runs/{i}", name, "ndcg@10", Mean(0.5 + i / 10, 10, 0.4, 0.9), changed * (i == 2))
        for i, day in enumerate(days)
        for name in ("bm25", UNUSUAL_NAMES[1])
    ]
    return History(points)


def test_trend_chart_change_breaks_line_with_label():
    drawing = build_trend_chart(make_history(changed="5 queries more"))["trend"]
    panel = drawing.panels[0]
    rows = [row for row in find_rows(panel, "part") if row["system"] == "bm25"]
    assert [(row["run"], row["at"], row["value"], row["part"]) for row in rows] == [
        (0, "2026-01-01 12:00:00", 0.5, 0),
        (1, "2026-01-03 12:00:00", 0.6, 0),
        (2, "2026-01-05 12:00:00", 0.7, 1),
    ]
    assert find_rows(panel, "changed") == [{"run": 1.5, "changed": "5 queries more"}]
    assert "lines break" in drawing.caption
    assert "bm25 0.700 on 2026-01-05, 0.500 on 2026-01-01, not comparable across 1 break" in drawing.alt
    assert UNUSUAL_NAMES[1] in svg_texts(render_svg(chart_specification(drawing)))


def test_trend_chart_without_change_has_one_line():
    drawing = build_trend_chart(make_history())["trend"]
    assert {row["part"] for row in find_rows(drawing.panels[0], "part")} == {0}
    assert "lines break" not in drawing.caption
    assert build_trend_chart(History([])) == {}


EVENING = datetime(2026, 11, 15, 18, 42, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ([EVENING + timedelta(seconds=5 * i) for i in range(4)], ["18:42"]),
        ([EVENING, EVENING + timedelta(minutes=7), EVENING + timedelta(hours=3)], ["18:42", "18:49", "21:42"]),
        ([EVENING, EVENING + timedelta(seconds=4), EVENING + timedelta(days=3)], ["2026-11-15", "2026-11-18"]),
        (
            [EVENING.astimezone(timezone(timedelta(hours=9))), EVENING.replace(tzinfo=None, minute=50)],
            ["18:42", "18:50"],
        ),
    ],
    ids=["seconds", "one day", "days", "zones"],
)
def test_trend_chart_labels_runs_by_day_or_utc_time(times, labels):
    points = [HistoryPoint(when, str(i), "bm25", "ndcg@10", Mean(0.5, 9)) for i, when in enumerate(times)]
    drawing = build_trend_chart(History(points[::-1]))["trend"]
    rows = find_rows(drawing.panels[0], "run")
    assert sorted((row["run"], row["folder"]) for row in rows) == [(i, str(i)) for i in range(len(times))]
    words = svg_texts(render_svg(chart_specification(drawing)))
    assert [word for word in words if re.fullmatch(r"\d\d:\d\d(:\d\d)?|:\d\d|\d{4}-\d\d-\d\d", word)] == [
        *labels,
        *(["2026-11-15"] if ":" in labels[0] else []),
    ]
    assert "interval" not in drawing.caption


def test_trend_chart_systems_of_one_run_share_step():
    points = [
        HistoryPoint(EVENING + timedelta(minutes=i), "a", name, "ndcg@10", Mean(0.5, 9)) for i, name in enumerate("xyz")
    ]
    assert {row["run"] for row in find_rows(build_trend_chart(History(points))["trend"].panels[0], "run")} == {0}


# Missing values


def test_draw_charts_means_only_draws_measures_chart():
    overview = make_small_overview()
    entries = {name: SystemSummary(name, entry.means) for name, entry in overview.entries.items()}
    assert list(draw_charts(Overview("means", entries, overview.measures))) == ["measures"]


# Captions


def test_captions_name_intervals_stars_and_baseline(drawings):
    caption = drawings["measures"].caption
    assert "bars are means with 95% intervals" in caption.lower()
    assert "the dashed line is bm25, the baseline" in caption
    assert "*** below 0.001" in caption
    assert "stepped line" in drawings["quality_latency"].caption
    assert "with its 95% interval" in drawings["strata"].caption
    assert "with its 95% interval" in drawings["boxes"].caption
    assert "`other` is the remaining time" in drawings["stages"].caption


def test_captions_omit_missing_elements():
    overview = make_small_overview()
    entries = {
        name: SystemSummary(name, {m: Mean(mean.value, mean.n) for m, mean in entry.means.items()}, speed=entry.speed)
        for name, entry in overview.entries.items()
    }
    strata = {"length": [StratumMeans("long", 3, {name: Mean(0.5, 3) for name in entries})]}
    charts = draw_charts(Overview("means", entries, overview.measures, strata=strata))
    assert charts["measures"].caption == "Bars are means."
    for drawing in charts.values():
        assert not re.search("interval|star|dashed|baseline", drawing.caption), drawing.title
    single_system = draw_charts(Overview("one", {"bm25": overview.entries["bm25"]}, ["ndcg@10"], baseline="bm25"))
    assert single_system["measures"].caption == "Bars are means with 95% intervals."
    assert not [layer for layer in single_system["measures"].panels[0].spec["layer"] if layer["mark"].get("strokeDash")]
    assert "stepped" not in single_system["quality_latency"].caption


def test_waterfall_caption_follows_lower_is_better(drawings):
    assert "a line is above 0 the system is better than bm25" in drawings["waterfall"].caption
    overview = make_small_overview()
    row = make_comparison("dense", [0.5, 0.2, 0.0, -0.1], lower_is_better=True)
    chart = CHART_DEFINITIONS["waterfall"].draw(replace(overview, compared=replace(overview.compared, rows=[row])))
    assert "a line is below 0 the system is better than bm25" in chart.caption


def test_latency_caption_rerank_stage_includes_fusion():
    assert "rerank includes fusion" in CHART_DEFINITIONS["latency"].draw(make_large_overview(["bm25", "dense"])).caption


def test_measures_chart_limits_panels_and_names_rest():
    overview = make_small_overview()
    names = [f"m@{k}" for k in range(1, 15)]
    entries = {name: replace(entry, means={m: Mean(0.5, 4) for m in names}) for name, entry in overview.entries.items()}
    chart = CHART_DEFINITIONS["measures"].draw(replace(overview, entries=entries, measures=names))
    assert [panel.title for panel in chart.panels] == [*names[:11], "p95 ms (log scale, lower is better)"]
    assert chart.caption.endswith("not drawn: m@12, m@13 and m@14.")
    untimed = {name: replace(entry, speed=None) for name, entry in entries.items()}
    assert len(CHART_DEFINITIONS["measures"].draw(replace(overview, entries=untimed, measures=names[:12])).panels) == 12


def test_draw_charts_empty_overview_returns_empty():
    assert draw_charts(Overview("nothing", {}, [])) == {}
    assert draw_charts(Overview("nothing", {}, ["ndcg@10"])) == {}


def test_draw_charts_without_query_differences_omits_waterfall():
    overview = make_small_overview()
    rows = [replace(row, moved=()) for row in overview.compared]
    charts = draw_charts(replace(overview, compared=replace(overview.compared, rows=rows)))
    assert "wins" in charts
    assert not {"waterfall", "boxes"} & set(charts)


@pytest.mark.parametrize("library", ["altair", "vl_convert"])
def test_charts_missing_library_raises_missing_extra(library, monkeypatch, drawings):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[report\]"):
        draw_charts(make_small_overview()) if library == "altair" else render_svg(chart_specification(drawings["wins"]))


# Escaping of names


@pytest.mark.parametrize(
    "overview",
    [make_small_overview(("bm25", UNUSUAL_NAMES[1], UNUSUAL_NAMES[3])), make_large_overview(["bm25", *UNUSUAL_NAMES])],
    ids=["3 systems", "8 systems"],
)
def test_charts_system_names_are_text_and_not_in_expressions(overview):
    import vl_convert

    charts = draw_charts(overview)
    assert set(charts) == set(CHART_DEFINITIONS) - {"panels"}
    names = [name for name in overview.systems if name != "bm25"]
    for chart_name, drawing in charts.items():
        spec = chart_specification(drawing)
        code = "\n".join(vega_expressions(vl_convert.vegalite_to_vega(spec)))
        assert "datum" in code
        svg_text = "\n".join(svg_texts(render_svg(spec))).replace("\u200b", "")
        for name in names:
            assert name not in code, chart_name
            assert json.dumps(name)[1:-1] not in code, chart_name
            assert name.replace("\x01", "\ufffd")[:12] in svg_text, chart_name


def vega_expressions(value, key=""):
    if isinstance(value, dict):
        for name, item in value.items():
            yield from vega_expressions(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from vega_expressions(item, key)
    elif isinstance(value, str) and key in ("expr", "signal", "update", "test", "init", "events", "field", "as"):
        yield value


def test_chart_specifications_are_json_without_nan_or_urls(drawings):
    for drawing in [*drawings.values(), build_trend_chart(make_history())["trend"]]:
        for spec in [*(panel.spec for panel in drawing.panels), chart_specification(drawing)]:
            text = json.dumps({key: value for key, value in spec.items() if key != "$schema"}, allow_nan=False)
            assert "://" not in text
            assert '"url"' not in text
            assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/v6")


# Colours and labels


def compute_luminance(colour: str) -> float:
    """Compute the relative luminance of an sRGB colour as in WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def compute_contrast(first: str, second: str) -> float:
    light, dark = sorted((compute_luminance(first), compute_luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    "colour", sorted({*PALETTE, NEUTRAL_COLOUR, WIN_COLOUR, TIE_COLOUR, LOSS_COLOUR, *STAGE_COLOURS.values()})
)
def test_palette_colours_contrast_with_white_and_dark(colour):
    assert compute_contrast(colour, "#ffffff") >= 3
    assert compute_contrast(colour, "#16181d") >= 3


def test_win_tie_loss_colours_contrast_with_white_text():
    assert compute_contrast("#000000", "#ffffff") == pytest.approx(21)
    assert min(compute_contrast(colour, "#ffffff") for colour in (WIN_COLOUR, TIE_COLOUR, LOSS_COLOUR)) >= 4.5


@pytest.mark.parametrize(
    "overview", [make_small_overview(), make_large_overview(["bm25", "dense"])], ids=["3 systems", "2 systems"]
)
def test_chart_text_uses_text_colour_with_sufficient_contrast(overview):
    drawings = draw_charts(overview)
    styles = {
        (layer["mark"].get("style"), layer["mark"].get("color"), "color" in layer["encoding"])
        for drawing in drawings.values()
        for panel in drawing.panels
        for layer in panel.spec["layer"]
        if layer["mark"]["type"] == "text"
    }
    # White text is on the coloured bars of the wins chart.
    assert styles == {("words", None, False), ("halo", None, False), (None, "#ffffff", False)}
    style = (files("ragauge.output") / "templates" / "page.css").read_text()
    inks, papers = (re.findall(rf"{name}: (#[0-9a-f]{{6}})", style) for name in ("--ink", "--paper"))
    assert len(set(papers)) == 2  # light and dark mode
    assert all(compute_contrast(ink, paper) >= 4.5 for ink, paper in zip(inks, papers, strict=False))
    config = chart_specification(drawings["curves"])["config"]
    assert compute_contrast(config["style"]["words"]["color"], config["background"]) >= 4.5
    assert config["style"]["halo"]["stroke"] == config["background"]


def test_place_labels_avoids_marks_lines_and_labels():
    marks = [
        LabelledMark("bm25 (baseline)", 30, 150, 110, 190),
        LabelledMark("dense", 60, 170, 125, 215),
        LabelledMark("best", 240, 40, 10, 70),
    ]
    lines = [PlotBox(30, 148, 240, 152), PlotBox(238, 40, 242, 150)]
    boxes = [position.box(mark) for mark, position in zip(marks, place_labels(marks, lines, 260, 300), strict=True)]
    for (own_mark, box), (_, other) in itertools.permutations(zip(marks, boxes, strict=True), 2):
        assert not box.meets(other), own_mark.name
    for i, box in enumerate(boxes):
        others = [obstacle for mark in (*marks[:i], *marks[i + 1 :]) for obstacle, _ in mark.boxes]
        assert not any(box.meets(obstacle) for obstacle in [*lines, *others]), marks[i].name
        assert 0 <= box.left < box.right <= 260


def test_axis_end_labels_are_centred_on_ticks(drawings):
    svg = render_svg(chart_specification(drawings["waterfall"]))
    ends = [node for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text") if node.text == "100"]
    assert [node.get("text-anchor") for node in ends] == ["middle"]


@pytest.mark.parametrize(
    "overview",
    [make_small_overview(), make_large_overview([f"system {i}" for i in range(9)])],
    ids=["3 systems", "9 systems"],
)
@pytest.mark.slow
def test_chart_specifications_give_no_vega_lite_warnings(overview, capfd):
    import altair
    import vl_convert

    for drawing in [
        *draw_charts(overview).values(),
        build_trend_chart(make_history(changed="5 queries more"))["trend"],
    ]:
        for panel in drawing.panels:
            assert altair.LayerChart.from_dict(panel.spec, validate=True)
        for spec in [*({**panel.spec, "width": 300} for panel in drawing.panels), chart_specification(drawing)]:
            assert vl_convert.vegalite_to_vega(spec, show_warnings=True)["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_system_styles_are_distinct_for_30_systems():
    names = [str(i) for i in range(30)]
    styles = SystemStyles(names, "0")
    assert styles.colours[0] == NEUTRAL_COLOUR
    assert len(set(styles.colours[:12])) == 12
    assert len(set(zip(styles.colours, styles.shapes, styles.dashes.values(), strict=True))) == 30


def test_charts_use_same_colour_per_system(drawings):
    scales = [
        layer["encoding"]["color"]["scale"]
        for drawing in drawings.values()
        for panel in drawing.panels
        for layer in panel.spec["layer"]
        if layer["encoding"].get("color", {}).get("field") == "system"
    ]
    assert len(scales) > 10
    assert {json.dumps(scale) for scale in scales} == {
        json.dumps({"domain": ["bm25", "dense", "slow"], "range": [NEUTRAL_COLOUR, *PALETTE[:2]]})
    }


def test_panels_have_container_width_and_transparent_background(drawings):
    for panel in (panel for drawing in drawings.values() for panel in drawing.panels):
        assert panel.spec["width"] == "container"
        assert panel.spec["config"]["background"] == "transparent"
        assert "title" not in panel.spec


def test_page_stylesheet_matches_svg_classes(drawings):
    import vl_convert

    panel = drawings["measures"].panels[0]
    svg = vl_convert.vegalite_to_svg({**panel.spec, "width": 300})
    for part in ("words_", "guide_"):
        assert f'[class*="{part}"]' in PAGE_STYLESHEET
        assert f" {part}" in svg
    assert 'class="mark-text role-axis-label"' in svg


# Files


def test_render_svg_has_title_names_stars_and_description(drawings):
    drawing = drawings["measures"]
    svg = render_svg(chart_specification(drawing))
    words = svg_texts(svg)
    assert {"Measure by measure", "ndcg@10", "bm25", "dense", "slow", "0.650 ***", "0.600 ns"} <= set(words)
    root = ElementTree.fromstring(svg)
    assert root.find("{http://www.w3.org/2000/svg}desc").text == drawing.alt
    assert root.find("{http://www.w3.org/2000/svg}rect").get("fill") == "#ffffff"


@pytest.mark.parametrize("width", [360, 760])
def test_render_png_has_requested_width(width, drawings):
    for name, drawing in drawings.items():
        actual, _ = struct.unpack(">II", render_png(chart_specification(drawing, width), scale=1)[16:24])
        assert actual <= width + 40, name
    assert render_png(chart_specification(drawings["wins"]), scale=2)[:8] == b"\x89PNG\r\n\x1a\n"


def test_draw_charts_one_system_draws_five_charts():
    entries = {"bm25": make_small_overview().entries["bm25"]}
    overview = Overview("one", entries, ["ndcg@10"], curves=make_small_overview().curves)
    charts = draw_charts(overview)
    assert list(charts) == ["quality_latency", "measures", "curves", "latency", "stages"]
    for name, drawing in charts.items():
        assert "bm25" in "".join(svg_texts(render_svg(chart_specification(drawing)))), name


def test_draw_charts_twelve_systems_are_named_in_svg():
    overview = make_large_overview([f"system {i}" for i in range(12)])
    assert len(overview.systems) > MAX_LABELLED_SYSTEMS
    for name, drawing in draw_charts(overview).items():
        words = svg_texts(render_svg(chart_specification(drawing)))
        assert {f"system {i}" for i in range(1, 12)} <= set(words), name


def test_draw_charts_10000_queries_are_downsampled_with_extremes():
    overview = make_large_overview([f"system {i}" for i in range(5)], 10_000)
    charts = draw_charts(overview)
    size = sum(len(json.dumps(panel.spec)) for drawing in charts.values() for panel in drawing.panels)
    assert size < 200_000
    line = find_rows(charts["waterfall"].panels[0], "share", "dash")[0]
    differences = [change.difference for change in overview.compared.rows[0].moved]
    assert len(line["share"]) == 400
    assert line["difference"][0] == pytest.approx(max(differences), rel=1e-3)
    assert line["difference"][-1] == pytest.approx(min(differences), rel=1e-3)
    for panel in charts["latency"].panels:
        assert max(len(row["ms"]) for row in find_rows(panel, "ms", "dash")) == 120
