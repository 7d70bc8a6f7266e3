"""The page of an experiment set: chart, measures per dataset, shared provenance and links to reports."""

from __future__ import annotations

import pytest

pytest.importorskip("altair")


from ragauge.comparison.results import DatasetOverviews, Overview, SystemSummary
from ragauge.core.summaries import Mean
from ragauge.output.page import render_page
from ragauge.reports.experiment_set import build_report

MEASURES = ["mrr@20", "dr@20", "hit_rate@1", "recall@20"]
MARKUP_NAME = "<b>odd</b>"
MANIFEST = {"python": "3.13", "plan": {"k": 20, "repeats": 5, "timeout": None}, "versions": {"numpy": "2"}}


def make_overview(value, manifest=MANIFEST):
    """Build an overview of three systems; system i exceeds the first by 0.1 i on each measure."""
    entries = {
        name: SystemSummary(
            name,
            {m: Mean(value + 0.1 * i, 20, value + 0.1 * i - 0.05, value + 0.1 * i + 0.05) for m in MEASURES},
            stated_manifest={**manifest, "system": {"name": name, "description": what}},
        )
        for i, (name, what) in enumerate({"walks": "graphflow(seeds=3)", "swarm": "swarm", MARKUP_NAME: "bm25"}.items())
    }
    return Overview("t", entries, MEASURES, baseline="walks", convention="default", made="2026-01-02")


OVERVIEWS = {"hard(seed=1)": make_overview(0.2), "easy": make_overview(0.6)}
FOLDERS = {"hard(seed=1)": "hard_seed=1", "easy": "easy"}


def make_report(overviews=OVERVIEWS, failures=None):
    return build_report(DatasetOverviews("study", overviews, failures or {}, FOLDERS))


def draw_charts(report):
    (section,) = (section for section in report.sections if section.id == "first" and "html" in section.formats)
    return section.blocks[0].draw()


def test_experiment_set_chart_has_first_measure_with_intervals():
    (chart,) = draw_charts(make_report()).values()
    rows = next(
        spec["data"]["values"] for spec in (chart.panels[0].spec, *chart.panels[0].spec["layer"]) if "data" in spec
    )
    marks = {(row["group"], row["system"]): (row["value"], row["low"], row["high"]) for row in rows}
    assert len(marks) == 2 * 3
    assert marks["hard", "swarm"] == pytest.approx((0.3, 0.25, 0.35))
    assert marks["easy", MARKUP_NAME] == pytest.approx((0.8, 0.75, 0.85))
    assert chart.alt.startswith("Mean mrr@20. hard: walks 0.200, swarm 0.300")


def test_experiment_set_chart_omits_datasets_without_values():
    none = Overview("t", {"walks": SystemSummary("walks", {"mrr@20": Mean(float("nan"), 0)})}, ["mrr@20"])
    (chart,) = draw_charts(make_report({"hard(seed=1)": make_overview(0.2), "easy": none})).values()
    assert "easy" not in chart.alt
    assert draw_charts(make_report({"easy": none})) == {}


def test_experiment_set_page_collapses_measures_after_second():
    report = make_report()
    titles = [section.title for section in report.select_sections("html")]
    assert titles == ["mrr@20", "dr@20", "Other measures", "Datasets"]
    text = render_page([report])
    assert "Show 3 rows" not in text
    assert all(f"<summary>{name}</summary>" in text for name in ("hit_rate@1", "recall@20"))


def test_experiment_set_provenance_keeps_values_shared_by_all_datasets():
    assert make_report().provenance == {
        "made": "2026-01-02",
        "convention": "default",
        "systems": ["walks: graphflow(seeds=3)", "swarm", f"{MARKUP_NAME}: bm25"],
        "plan": MANIFEST["plan"],
        "python": "3.13",
        "versions": {"numpy": "2"},
    }
    other = make_report({**OVERVIEWS, "easy": make_overview(0.6, {**MANIFEST, "python": "3.12"})})
    assert "python" not in other.provenance


def test_experiment_set_page_escapes_names_and_draws_chart(open_page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_page([make_report(failures={"gone": "unknown dataset `gone`"})]), encoding="utf-8")
    page = open_page(path, charts=True, size=(390, 800))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator('[data-chart="study-datasets-0"] .mark-symbol path').count() >= 6
    assert page.locator("#study-first th", has_text=MARKUP_NAME).count() == 1
    names = page.locator("#provenance tbody th", has_text="convention")
    assert names.evaluate("one => one.getClientRects()[0].height < 2 * parseFloat(getComputedStyle(one).lineHeight)")


def test_experiment_set_page_links_reports_except_failed_datasets(open_page, tmp_path):
    markup = 'a "b"<c>'
    overviews = {markup: make_overview(0.2), "easy": make_overview(0.6)}
    folders = {markup: "javascript:alert(1)&", "easy": "easy"}
    study = DatasetOverviews("study", overviews, {"gone": "unknown dataset `gone`"}, folders)
    text = render_page([build_report(study)])
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page = open_page(path, charts=True)
    links = page.locator("#study-datasets a")
    assert [links.nth(i).inner_text() for i in range(links.count())] == [markup, "easy"]
    assert links.nth(0).evaluate("one => one.href").startswith("file:")
    assert links.nth(1).evaluate("one => one.href") == (tmp_path / "easy" / "report.html").as_uri()
    rows = page.locator("#study-datasets tbody tr")
    assert rows.nth(2).inner_text().split("\t") == ["gone", "failed: unknown dataset `gone`"]
    assert "20 queries" in rows.nth(1).inner_text()
