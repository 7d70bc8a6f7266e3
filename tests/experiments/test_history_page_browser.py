"""The page of a history in a real browser: charts, escaped names and sorting, in light and dark mode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragauge.experiments.history import history
from result_folders import DATA, make_run_folder, make_system

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.experiments.history.report import build_report
from ragauge.output.page import render_page

MARKUP = '</script><img src=x onerror="alert(1)"> ${7*7} {{ 7*7 }} datum.value'
GOOD, WORSE = [1] * 15 + [2] * 15, [1] * 5 + [2] * 10 + [4] * 15


@pytest.fixture(scope="module")
def history_page(tmp_path_factory):
    """Write the page of three runs and an incomplete run folder, with markup and code in every name."""
    folder = tmp_path_factory.mktemp("history")
    data = replace(DATA, name=f"<b>data</b> {MARKUP}")
    for day, ranks in enumerate((GOOD, GOOD, WORSE), start=1):
        systems = {MARKUP: make_system(ranks), "steady": make_system(GOOD)}
        make_run_folder(folder / "runs" / f"<i>{day}</i>&amp;${{x}}", systems, day=day, data=data)
    (folder / "runs" / "<u>empty" / "run").mkdir(parents=True)
    for name in ("manifest.json", "run.parquet"):
        (folder / "runs" / "<u>empty" / "run" / name).write_text("{}")
    path = folder / "history.html"
    path.write_text(render_page([build_report(history(folder / "runs"))]), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_history_page_draws_charts_and_escapes_names(history_page, open_page, scheme):
    page = open_page(history_page, charts=True, scheme=scheme)
    assert page.locator("[data-chart] svg").count() == page.locator("[data-chart]").count() == 2
    assert page.locator('[data-chart] .mark-symbol.role-mark:not([class*="guide"]) path').count() == 12
    assert page.text_content(".headline").startswith(f"{MARKUP} lost 0.2917 of mrr@10 [0.")
    assert page.text_content("#history-series tbody tr:first-child th") == MARKUP
    assert page.text_content("h1") == f"History of <b>data</b> {MARKUP}"
    assert "<i>1</i>&amp;${x}" in page.text_content("#history-points")
    assert "<u>empty" in page.text_content("#history-skipped")
    assert page.locator("main img, main b, main i, main u").count() == 0
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 128")
    assert dark == (scheme == "dark")


def test_history_page_table_sorts_by_numeric_value(history_page, open_page):
    page = open_page(history_page, charts=True)
    page.click("#history-series th button:has-text('vs previous')")
    values = page.locator("#history-series tbody tr td:nth-child(7)").evaluate_all(
        "cells => cells.map(cell => Number(cell.dataset.order))"
    )
    assert values == sorted(values) or values == sorted(values, reverse=True)
    assert min(values) == pytest.approx(-7 / 24)
