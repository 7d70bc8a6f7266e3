"""Benchmark page in a real browser: charts, escaped names, legend clicks, sorting, and a narrow screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from store_benchmark_builder import whole

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.output.page import render_page
from ragauge.store_benchmarks.report import build_report

EVIL = '</script><img src=x onerror="alert(1)"> ${7*7} {{ 7*7 }} datum.value'

BROKEN = r"""[...document.querySelectorAll('.grid tbody th small')].filter(one => one.offsetParent).flatMap(one => {
  const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/\w+=\S+/g)) {
    const range = document.createRange();
    range.setStart(texts.currentNode, word.index);
    range.setEnd(texts.currentNode, word.index + word[0].length);
    if (range.getClientRects().length > 1) found.push(word[0]);
  }
  return found;
})"""
"""Options that are shown on two lines."""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write the page of a benchmark with all kinds of results and one store with a hostile name."""
    found = whole()
    points = [
        replace(one, configuration=replace(one.configuration, name=EVIL))
        if one.configuration.store == "hnswlib"
        else one
        for one in found.points
    ]
    place = tmp_path_factory.mktemp("sweep") / "report.html"
    result = replace(found, points=points, data=f"<b>toy</b> {EVIL}")
    place.write_text(render_page([build_report(result)]), encoding="utf-8")
    return place


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bench_page_draws_charts_and_escapes_names(file, opened, scheme):
    shown = opened(file, charts=True, scheme=scheme)
    assert shown.locator("[data-chart] svg").count() == shown.locator("[data-chart]").count() == 14
    assert shown.text_content("h1") == f"Vector stores on <b>toy</b> {EVIL}"
    assert f"{EVIL} (ef_search=40) is the fastest" in shown.text_content(".headline")
    assert shown.locator("main img, main h1 b").count() == 0
    assert "exceeds <b>maximum</b>" in shown.text_content("#bench-unmeasured")


def test_bench_page_legend_click_highlights_one_store(file, opened):
    shown = opened(file, charts=True)
    lines = "#chart-bench-frontier .mark-line.role-mark path"
    assert set(shown.locator(lines).evaluate_all("all => all.map(one => one.getAttribute('opacity'))")) == {"1"}
    shown.locator("#chart-bench-frontier .role-legend-label text", has_text="faiss ivf").click(force=True)
    shown.wait_for_function(
        f"[...document.querySelectorAll('{lines}')].filter(one => one.getAttribute('opacity') === '1').length === 1"
    )


def test_bench_page_frontier_table_sorts_by_numeric_value(file, opened):
    shown = opened(file, charts=True)
    shown.locator("#bench-frontier th button:has-text('QPS')").first.click()
    values = shown.locator("#bench-frontier table").first.locator("tbody tr td:nth-child(3)")
    figures = values.evaluate_all("cells => cells.map(cell => Number(cell.dataset.order))")
    assert figures == sorted(figures, reverse=True)
    assert figures[0] == pytest.approx(1000 / 0.03)


def test_bench_page_on_phone_has_no_horizontal_scrolling(file, opened):
    shown = opened(file, charts=True)
    shown.set_viewport_size({"width": 360, "height": 800})
    shown.wait_for_function("document.documentElement.scrollWidth <= 360")
    assert shown.evaluate(BROKEN) == []
