"""The six-panel chart: drawn if its measures are available, with the values of the overview and any system names."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.comparison.test_charts import UNUSUAL_NAMES

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.comparison.charts import draw_charts
from ragauge.comparison.results import Overview, StratumMeans, SystemSummary
from ragauge.core.summaries import Latency, Mean, Speed
from ragauge.output.chart_files import chart_specification, render_png, render_svg
from ragauge.output.page import render_page
from ragauge.reports.overview_report import build_report
from ragauge.stats.comparisons import Comparison, Comparisons, ComparisonSettings

MEASURES = ["mrr", *(f"hit_rate@{k}" for k in (1, 5, 20)), "recall@5", "recall@20", "dr@20"]
MEASURES += ["diversity_count@20", "unique_ratio@20"]


def make_speed(p50, p95):
    return Speed({"total": Latency(40, p50, p50, p95, p95, p95, 0.0, p50, p95)}, 10.0, 40, 0, 0)


def make_overview(names=("walks", "swarm", "dense"), measures=MEASURES, baseline="walks", **more):
    """Build an overview; system i exceeds the first by 0.1 i on each measure and has 10 times the previous latency."""
    entries = {
        name: SystemSummary(
            name,
            {
                m: Mean(0.2 + 0.1 * i + place / 100, 40, 0.1 + 0.1 * i, 0.4 + 0.1 * i)
                for place, m in enumerate(measures)
            },
            speed=make_speed(10.0**i, 3 * 10.0**i),
        )
        for i, name in enumerate(names)
    }
    differences = {"n": 40, "means": (0.2, 0.3), "difference": 0.1, "ci": (0.05, 0.15)}
    p_values = dict.fromkeys(("p_t", "p_wilcoxon", "p_sign", "p_randomisation", "p_corrected"), 0.004)
    statistics = {"effect": 0.5, "cliffs_delta": 0.2, "wins": 20, "losses": 5, "ties": 15, "detectable": 0.02}
    rows = [
        Comparison(m, names[0], name, **differences, **p_values, **statistics) for m in measures for name in names[1:]
    ]
    strata = {
        "topic": [StratumMeans("files", 40, {name: Mean(0.9, 40) for name in names})],
        "complexity": [
            StratumMeans(kind, n, {name: Mean(0.1 * (i + 1), n, 0.05, 0.6) for i, name in enumerate(names)})
            for kind, n in (("simple", 30), ("complex", 10))
        ],
    }
    compared = Comparisons(rows, ComparisonSettings(), names[0], list(names))
    settings = {"baseline": baseline, "compared": compared, "strata": strata, **more}
    return Overview("t", entries, list(measures), **settings)


def find_rows(panel, *fields):
    tables = [layer["data"]["values"] for layer in panel.spec["layer"] if "data" in layer]
    tables += [panel.spec["data"]["values"]] if "data" in panel.spec else []
    return next(rows for rows in tables if rows and set(fields) <= set(rows[0]))


@pytest.fixture(scope="module")
def drawing():
    return draw_charts(make_overview())["panels"]


def test_panels_chart_has_six_panels_in_order(drawing):
    assert [panel.title for panel in drawing.panels] == [
        "hit_rate@k",
        "mrr",
        "recall@20 and dr@20",
        "mrr by complexity",
        "diversity_count@20 (unique_ratio@20)",
        "total ms, p50 to p95 (log scale, lower is better)",
    ]
    assert not any(panel.wide for panel in drawing.panels)
    assert len({panel.spec["height"] for panel in drawing.panels}) == 1


def test_hit_rate_panel_has_every_cutoff_and_system(drawing):
    rows = find_rows(drawing.panels[0], "group", "low")
    assert [(row["group"], row["system"], row["value"]) for row in rows[:4]] == [
        ("@1", "walks", 0.21),
        ("@1", "swarm", 0.31),
        ("@1", "dense", 0.41),
        ("@5", "walks", 0.22),
    ]
    assert len(rows) == 9
    assert (rows[0]["low"], rows[0]["high"], rows[0]["n"]) == (0.1, 0.4, 40)


def test_mrr_panel_has_stars_against_baseline(drawing):
    rows = find_rows(drawing.panels[1], "label")
    assert [row["label"] for row in rows] == ["0.200", "0.300 **", "0.400 **"]
    assert "stars are the corrected p-value of the test against walks" in drawing.caption


def test_recall_panel_has_recall_and_distinct_recall(drawing):
    rows = find_rows(drawing.panels[2], "measure")
    assert [(row["system"], row["measure"], row["value"]) for row in rows[::3]] == [
        ("walks", "recall@20", 0.25),
        ("walks", "dr@20", 0.26),
    ]
    labels = [row["label"] for row in find_rows(drawing.panels[2], "label")]
    assert labels == ["0.250 / 0.260", "0.350 ** / 0.360 **", "0.450 ** / 0.460 **"]


def test_strata_panel_prefers_complexity_tag(drawing):
    rows = find_rows(drawing.panels[3], "group")
    assert [row["group"] for row in rows] == ["simple (30)"] * 3 + ["complex (10)"] * 3
    without_complexity = make_overview(strata={"topic": [StratumMeans("files", 40, {"walks": Mean(0.9, 40)})]})
    assert "mrr by topic" in [panel.title for panel in draw_charts(without_complexity)["panels"].panels]


def test_strata_panel_has_axis_title_and_legend(drawing):
    (panel,) = [panel for panel in drawing.panels if panel.title == "mrr by complexity"]
    marks = panel.spec["layer"][-1]["encoding"]
    assert marks["x"]["title"] == "complexity (number of queries)"
    assert marks["color"]["legend"]["values"] == ["walks", "swarm", "dense"]


def test_diversity_panel_label_has_unique_ratio(drawing):
    assert find_rows(drawing.panels[4], "label")[1]["label"] == "0.370 (0.380) **"


def test_latency_panel_spans_p50_to_p95(drawing):
    rows = find_rows(drawing.panels[5], "p95")
    assert [(row["system"], row["p50"], row["p95"], row["label"]) for row in rows] == [
        ("walks", 1.0, 3.0, "1.00 to 3.00"),
        ("swarm", 10.0, 30.0, "10.0 to 30.0"),
        ("dense", 100.0, 300.0, "100.0 to 300.0"),
    ]


def test_panels_chart_alt_text_has_best_and_worst(drawing):
    assert "mrr: best dense 0.400, worst walks 0.200" in drawing.alt
    assert drawing.alt.endswith(".")


@pytest.mark.parametrize(
    "measures",
    [
        ["ndcg@10", "recall@10", "mrr@10", "hit_rate@10"],
        [measure for measure in MEASURES if not measure.startswith(("dr", "diversity"))],
        [measure for measure in MEASURES if measure != "mrr"],
        [measure for measure in MEASURES if measure not in ("hit_rate@1", "hit_rate@5")],
    ],
)
def test_panels_chart_without_enough_measures_is_not_drawn(measures):
    assert "panels" not in draw_charts(make_overview(measures=measures))


def test_panels_chart_accepts_other_cutoffs_and_options():
    names = ["hit_rate@2", "hit_rate@30", "mrr@30", "recall@30", "dr(targets=identity)@30"]
    names += ["diversity_count(targets=identity)@30"]
    chart = draw_charts(make_overview(measures=names))["panels"]
    assert [panel.title for panel in chart.panels[:3]] == [
        "hit_rate@k",
        "mrr@30",
        "recall@30 and dr(targets=identity)@30",
    ]
    assert "in brackets unique" not in chart.caption


def test_panels_chart_omits_unknown_values():
    complete = make_overview()
    untimed = {name: replace(entry, speed=None) for name, entry in complete.entries.items()}
    chart = draw_charts(replace(complete, entries=untimed, strata={}))["panels"]
    assert len(chart.panels) == 4
    assert "p95" not in chart.caption
    without_means = {**complete.entries, "swarm": SystemSummary("swarm", {"mrr": Mean(math.nan, 0)})}
    assert len(find_rows(draw_charts(replace(complete, entries=without_means))["panels"].panels[0], "group")) == 6


def test_panels_chart_eight_long_names_fit_png_size():
    names = [f"a system with a long name, number {i}" for i in range(8)]
    spec = chart_specification(draw_charts(make_overview(names, baseline=names[0]))["panels"])
    png = render_png(spec, 1)
    width, height = struct.unpack(">II", png[16:24])
    assert 1000 < width < 1400
    assert 400 < height < 800


def vega_expressions(value, key=""):
    """Yield the strings that Vega evaluates as code."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from vega_expressions(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from vega_expressions(item, key)
    elif isinstance(value, str) and key in ("expr", "signal", "update", "test", "init", "events", "field", "as"):
        yield value


def test_panels_chart_names_are_text_and_not_in_expressions():
    import vl_convert

    names = ["walks", *UNUSUAL_NAMES]
    strata = [
        StratumMeans(f"kind {kind}", 9, {name: Mean(0.5, 9, 0.4, 0.6) for name in names}) for kind in UNUSUAL_NAMES[:4]
    ]
    spec = chart_specification(draw_charts(make_overview(names, strata={"complexity": strata}))["panels"])
    code = "\n".join(vega_expressions(vl_convert.vegalite_to_vega(spec)))
    svg = render_svg(spec)
    nodes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    svg_text = "\n".join(node.text or "" for node in nodes).replace("\u200b", "")
    for name in UNUSUAL_NAMES:
        assert name not in code
        assert json.dumps(name)[1:-1] not in code
        assert name.replace("\x01", "\ufffd")[:12] in svg_text
    assert "kind" not in code
    assert "<script>" not in svg


@pytest.mark.slow
def test_page_has_panels_section():
    text = render_page([build_report(make_overview())], lambda: "")
    assert '<section id="report-panels">' in text
    assert 'data-chart="report-panels-5"' in text
