"""Benchmark page in a real browser: charts, escaped names, legend clicks, sorting, and a narrow screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from store_benchmark_builder import make_full_benchmark

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.output.page import render_page
from ragauge.store_benchmarks.report import build_report

HOSTILE_NAME = '</script><img src=x onerror="alert(1)"> ${7*7} {{ 7*7 }} datum.value'

BROKEN_OPTIONS = r"""[...document.querySelectorAll('.grid tbody th small')].filter(label => label.offsetParent)
.flatMap(label => {
  const texts = document.createTreeWalker(label, NodeFilter.SHOW_TEXT), broken = [];
  while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/\w+=\S+/g)) {
    const range = document.createRange();
    range.setStart(texts.currentNode, word.index);
    range.setEnd(texts.currentNode, word.index + word[0].length);
    if (range.getClientRects().length > 1) broken.push(word[0]);
  }
  return broken;
})"""
"""Options that are shown on two lines."""


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """Write the page of a benchmark with all kinds of results and one store with a hostile name."""
    benchmark = make_full_benchmark()
    points = [
        replace(point, configuration=replace(point.configuration, name=HOSTILE_NAME))
        if point.configuration.store == "hnswlib"
        else point
        for point in benchmark.points
    ]
    path = tmp_path_factory.mktemp("sweep") / "report.html"
    result = replace(benchmark, points=points, data=f"<b>toy</b> {HOSTILE_NAME}")
    path.write_text(render_page([build_report(result)]), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bench_page_draws_charts_and_escapes_names(page_path, open_page, scheme):
    page = open_page(page_path, charts=True, scheme=scheme)
    assert page.locator("[data-chart] svg").count() == page.locator("[data-chart]").count() == 14
    assert page.text_content("h1") == f"Vector stores on <b>toy</b> {HOSTILE_NAME}"
    assert f"{HOSTILE_NAME} (ef_search=40) is the fastest" in page.text_content(".headline")
    assert page.locator("main img, main h1 b").count() == 0
    assert "exceeds <b>maximum</b>" in page.text_content("#bench-unmeasured")


def test_bench_page_legend_click_highlights_one_store(page_path, open_page):
    page = open_page(page_path, charts=True)
    lines = "#chart-bench-frontier .mark-line.role-mark path"
    assert set(page.locator(lines).evaluate_all("all => all.map(line => line.getAttribute('opacity'))")) == {"1"}
    page.locator("#chart-bench-frontier .role-legend-label text", has_text="faiss ivf").click(force=True)
    page.wait_for_function(
        f"[...document.querySelectorAll('{lines}')].filter(line => line.getAttribute('opacity') === '1').length === 1"
    )


def test_bench_page_frontier_table_sorts_by_numeric_value(page_path, open_page):
    page = open_page(page_path, charts=True)
    page.locator("#bench-frontier th button:has-text('QPS')").first.click()
    cells = page.locator("#bench-frontier table").first.locator("tbody tr td:nth-child(3)")
    values = cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.order))")
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(1000 / 0.03)


def test_bench_page_on_phone_has_no_horizontal_scrolling(page_path, open_page):
    page = open_page(page_path, charts=True)
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")
    assert page.evaluate(BROKEN_OPTIONS) == []
