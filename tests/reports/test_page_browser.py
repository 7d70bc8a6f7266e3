"""Report pages in a real browser: charts, tables, query explorer, keyboard, phone, print and hostile text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import polars as pl
import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

import ragauge
from hostile_text import HOSTILE, NAMES
from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments, MeasureDict, Run
from ragauge.datasets import synthetic
from ragauge.output.report import clean_texts
from ragauge.reports.overviews import report
from ragauge.runs.results import Experiment

MEASURES = ["ndcg@10", "recall@10", "mrr@10"]
READ_TABLE_SCRIPT = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
MINUS, NO_VALUE = "\u2212", "\u2013"
POINTS = '[data-chart="report-quality_latency-0"] .mark-symbol:not([class*="guide"]) path'


def show_tooltip(page, point, containing=""):
    """Hover over a mark until its tooltip is visible: a busy browser drops events, and equal marks overlap."""
    selector = f"#vg-tooltip-element.visible{containing}"
    for _ in range(40):
        point.hover(force=True)
        for event in ("pointermove", "mousemove"):
            point.dispatch_event(event)
        page.wait_for_timeout(100)
        if page.locator(selector).count():
            return
        page.mouse.move(0, 0)
    page.wait_for_selector(selector)


@dataclass
class ReportPage:
    """The page of an experiment, with its overview and dataset."""

    file: object
    overview: object
    data: Dataset


def find_words(text):
    return set(re.findall(r"\w+", text.lower()))


@pytest.fixture(scope="module")
def report_page(browser, tmp_path_factory):
    """Run an experiment with 120 queries that need two documents each; one system is slow and sometimes fails."""
    data = synthetic.make_synthetic("multihop", documents=400, queries=120, seed=1)
    tags = {query: {"asks": text.split()[0].lower()} for query, text in data.queries.items()}
    texts = [(document.id, find_words(document.text)) for document in data.documents]

    def count_overlap(query, k):
        query_words = find_words(query)
        with ragauge.stage("retrieve"):
            scored = [(doc, float(len(query_words & text_words))) for doc, text_words in texts]
        return sorted(scored, key=lambda hit: -hit[1])[:k]

    def faulty(query, k):
        if query.startswith("How"):
            raise RuntimeError("too <b>heavy</b> & slow")
        with ragauge.stage("embed"):
            time.sleep(0.001)
        return count_overlap(query, k)[::-1]

    systems = {"bm25": "bm25", "overlap": count_overlap, "faulty": faulty}
    result = ragauge.run(
        replace(data, tags=tags), systems, measures=MEASURES, baseline="overlap", k=20, warmup=0, workers=1
    )
    file = tmp_path_factory.mktemp("made") / "report.html"
    return ReportPage(file, report(result, file), data)


# --- expected text, computed from the overview ---


def list_values(overview, measure, system):
    return [round(value, 6) for value in overview.entries[system].scores[0].values[measure].tolist()]


def format_value(value):
    """Format a value like JavaScript's `toFixed(4)`."""
    return str(Decimal(value).quantize(Decimal("0.0001"), ROUND_HALF_UP))


def format_change(value):
    return ("+" if value > 0 else MINUS if value < 0 else "±") + format_value(abs(value))


def compute_rows(
    report_page,
    measure="ndcg@10",
    system="bm25",
    baseline="overlap",
    is_kept=lambda row: True,
    sort_key="sized",
    ascending=False,
):
    """Compute the expected rows of the query list: id, both values and their difference."""
    overview = report_page.overview
    system_values, baseline_values = list_values(overview, measure, system), list_values(overview, measure, baseline)
    rows = [
        {"i": i, "id": query, "baseline": b, "system": m, "change": m - b}
        for i, (query, m, b) in enumerate(
            zip(overview.entries[system].scores[0].queries, system_values, baseline_values, strict=True)
        )
    ]
    keys = {
        "sized": lambda row: abs(row["change"]),
        "query": lambda row: row["i"],
        **{name: lambda row, name=name: row[name] for name in ("baseline", "system", "change")},
    }
    sorted_rows = sorted(
        filter(is_kept, rows), key=keys[sort_key], reverse=not ascending
    )  # stable: ties keep the query order
    return [
        (row["id"], format_value(row["baseline"]), format_value(row["system"]), format_change(row["change"]))
        for row in sorted_rows
    ]


def read_rows(page):
    """Read the rows on the current page of the query list."""
    rows = page.eval_on_selector_all("#explorer-table tbody tr:not(.detail)", READ_TABLE_SCRIPT)
    return [(row[0].split()[-1], *row[1:]) for row in rows]


def read_all_rows(page):
    """Read the rows on all pages of the query list, from the current page on."""
    rows = read_rows(page)
    while page.is_enabled("#explorer-next"):
        page.click("#explorer-next")
        rows += read_rows(page)
    return rows


def select_option(page, box, label):
    page.select_option(f"#explorer-{box}", label=label)


# --- charts ---


@pytest.mark.representative
def test_page_draws_all_charts(report_page, open_page):
    page = open_page(report_page.file, charts=True)
    charts = page.eval_on_selector_all(
        "[data-chart]",
        """all => all.map(one => [one.dataset.chart, one.querySelectorAll('svg').length,
        one.querySelectorAll('svg [class*=mark-] path, svg .mark-rule line, svg .mark-text text').length,
        one.getBoundingClientRect().width > 100, one.textContent.includes('could not be drawn')])""",
    )
    kinds = {name.removeprefix("report-").rpartition("-")[0] for name, *_ in charts}
    assert kinds == {
        *("quality_latency", "measures", "curves", "waterfall", "boxes", "wins", "strata", "latency", "stages")
    }
    for name, pictures, marks, wide, broken in charts:
        assert (name, pictures, wide, broken) == (name, 1, True, False)
        assert marks >= 2, name


def test_chart_hover_shows_tooltip_with_system_name(report_page, open_page):
    page = open_page(report_page.file, charts=True)
    show_tooltip(page, page.locator(POINTS).first)
    page_content = page.text_content("#vg-tooltip-element")
    assert any(name in page_content for name in report_page.overview.systems)


def test_page_first_screen_shows_answers_and_table_top(report_page, open_page):
    page = open_page(report_page.file)
    assert page.text_content(".headline").replace("\u00a0", " ").startswith("bm25 ")
    assert page.locator(".answer dt").all_text_contents() == [
        *("Which system?", "By how much?", "Is it significant?", "What does it cost?", "Where does it fail?")
    ]
    table = "[data-table=systems]"
    for selector in (".headline", ".answer:last-child", f"{table} thead", f"{table} tbody tr:first-child"):
        box = page.locator(selector).bounding_box()
        assert 0 <= box["y"] < box["y"] + box["height"] <= 800, selector
        assert 0 <= box["x"] < box["x"] + box["width"] <= 1280, selector


# --- tables ---


def test_systems_table_sorts_by_each_column_in_both_directions(report_page, open_page):
    page = open_page(report_page.file)
    overview = report_page.overview
    values_by_system = {name: {m: entry.means[m].value for m in MEASURES} for name, entry in overview.entries.items()}
    for name, values in values_by_system.items():
        row = overview.difference(name)
        values["vs overlap"] = -1e9 if row is None else row.difference  # an empty cell sorts before all values
        values["p"] = -1e9 if row is None else row.p_corrected
        values["p95 ms"] = overview.entries[name].speed.stages["total"].p95
        values["system"] = name
    headings = page.locator("[data-table=systems] thead button").all_text_contents()
    assert headings == ["system", *MEASURES, "vs overlap", "p", "p95 ms"]
    for i, heading in enumerate(headings):
        for sort in ("descending", "ascending"):
            page.locator("[data-table=systems] thead button").nth(i).click()
            states = page.eval_on_selector_all(
                "[data-table=systems] th[scope=col]", "all => all.map(one => one.getAttribute('aria-sort'))"
            )
            assert states == ["none"] * i + [sort] + ["none"] * (len(headings) - i - 1)
            rows = page.eval_on_selector_all("[data-table=systems] tbody tr", READ_TABLE_SCRIPT)
            names = [row[0].removesuffix("baseline") for row in rows]
            assert names == sorted(
                values_by_system, key=lambda name: values_by_system[name][heading], reverse=sort == "descending"
            ), heading


def test_explorer_defaults_to_largest_change_and_50_rows_per_page(report_page, open_page):
    page = open_page(report_page.file)
    expected_rows = compute_rows(report_page)
    assert read_rows(page) == expected_rows[:50]
    assert page.text_content("#explorer-page") == "page 1 of 3"
    assert page.is_disabled("#explorer-previous")
    page.click("#explorer-next")
    assert read_rows(page) == expected_rows[50:100]
    page.click("#explorer-next")
    assert read_rows(page) == expected_rows[100:]
    assert page.text_content("#explorer-page") == "page 3 of 3"
    assert page.is_disabled("#explorer-next")
    page.click("#explorer-previous")
    assert read_rows(page) == expected_rows[50:100]


def test_explorer_sorts_by_each_column_in_both_directions(report_page, open_page):
    page = open_page(report_page.file)
    assert page.locator("#explorer-table thead button").all_text_contents() == ["Query", "overlap", "bm25", "Change"]
    for i, key in enumerate(("query", "baseline", "system", "change")):
        page.click("#explorer-table thead button[data-sort=query]")  # resets the sort order
        for _ in range(2):
            page.locator("#explorer-table thead button").nth(i).click()
            states = page.eval_on_selector_all(
                "#explorer-table th[scope=col]", "all => all.map(one => one.getAttribute('aria-sort'))"
            )
            assert states[i] in ("ascending", "descending")
            assert states.count("none") == 3
            assert (
                read_rows(page) == compute_rows(report_page, sort_key=key, ascending=states[i] == "ascending")[:50]
            ), (key, states[i])


def test_explorer_show_filter_lists_and_counts_matching_queries(report_page, open_page):
    page = open_page(report_page.file)
    select_option(page, "system", "faulty")
    failed = set(report_page.overview.entries["faulty"].failed)
    assert failed == {query for query, text in report_page.data.queries.items() if text.startswith("How")} != set()
    filters = {
        "all queries": lambda row: True,
        "better": lambda row: row["change"] > 0,
        "worse": lambda row: row["change"] < 0,
        "equal": lambda row: row["change"] == 0,
        "score 0": lambda row: row["system"] == 0,
        "failed": lambda row: row["id"] in failed,
    }
    assert page.locator("#explorer-show option").all_text_contents() == list(filters)
    for label, is_kept in filters.items():
        select_option(page, "show", label)
        expected_rows = compute_rows(report_page, system="faulty", is_kept=is_kept)
        assert read_all_rows(page) == expected_rows, label
        signs = [row[3][0] for row in expected_rows]
        expected_counts = (len(expected_rows), signs.count("+"), signs.count(MINUS), signs.count("±"))
        actual_counts = re.findall(r"\d+", page.text_content("#explorer-count").replace("of 120 ", ""))
        assert tuple(map(int, actual_counts)) == expected_counts, label


def test_explorer_measure_and_system_selection_updates_rows(report_page, open_page):
    page = open_page(report_page.file)
    for measure in MEASURES:
        select_option(page, "measure", measure)
        for system, baseline in (("bm25", "faulty"), ("overlap", "bm25"), ("faulty", "faulty")):
            select_option(page, "system", system)
            select_option(page, "baseline", baseline)
            assert page.text_content("#explorer-table [data-sort=system]") == system
            assert page.text_content("#explorer-table [data-sort=baseline]") == baseline
            assert read_rows(page) == compute_rows(report_page, measure, system, baseline)[:50]


def test_explorer_tag_and_search_filters_combine(report_page, open_page):
    from playwright.sync_api import expect

    page = open_page(report_page.file)
    texts = report_page.data.queries
    labels = page.locator("#explorer-tag option").all_text_contents()
    assert labels[0] == "any kind"
    assert {"asks: how", "asks: what", "asks: where"} < set(labels)
    select_option(page, "tag", "asks: what")
    what_queries = [query for query, text in texts.items() if text.startswith("What ")]
    assert read_all_rows(page) == compute_rows(report_page, is_kept=lambda row: row["id"] in what_queries)
    page.fill("#explorer-search", "NEIGHBOR color")
    colour_queries = [query for query in what_queries if "color" in texts[query]]
    assert 0 < len(colour_queries) < len(what_queries)
    expect(page.locator("#explorer-count")).to_contain_text(f"{len(colour_queries)} of 120 queries")
    assert read_all_rows(page) == compute_rows(report_page, is_kept=lambda row: row["id"] in colour_queries)
    select_option(page, "tag", "any kind")
    page.fill("#explorer-search", "q007")
    expect(page.locator("#explorer-count")).to_contain_text("1 of 120 queries")
    assert read_rows(page) == compute_rows(report_page, is_kept=lambda row: row["id"] == "q007")
    page.fill("#explorer-search", "there is no such thing")
    expect(page.locator("#explorer-count")).to_contain_text("0 of 120 queries")
    assert read_rows(page) == []
    assert page.text_content("#explorer-page") == "page 1 of 1"


def test_explorer_queries_without_value_sort_last(report_page, open_page, tmp_path):
    from ragauge.output.page import render_page
    from ragauge.reports.overview_report import build_report

    entry = report_page.overview.entries["bm25"]
    scores = entry.scores[0]
    values = scores.values["ndcg@10"].copy()
    values[[0, 60, 119]] = np.nan
    with_nan = replace(scores, values=MeasureDict({**scores.values, "ndcg@10": values}, str))
    result = replace(
        report_page.overview, entries={**report_page.overview.entries, "bm25": replace(entry, scores=[with_nan])}
    )
    file = tmp_path / "holes.html"
    file.write_text(render_page([build_report(result)]), encoding="utf-8")
    page = open_page(file)
    unknown = [scores.queries[i] for i in (0, 60, 119)]
    for heading in (None, "change", "change", "system", "system"):
        if heading:
            page.click(f"#explorer-table [data-sort={heading}]")
        last_rows = read_all_rows(page)[-3:]
        assert [row[0] for row in last_rows] == unknown
        assert {row[2:] for row in last_rows} == {(NO_VALUE, NO_VALUE)}
    expected_rows = compute_rows(report_page, is_kept=lambda row: row["id"] not in unknown)
    signs = [row[3][0] for row in expected_rows]
    better, worse, same = signs.count("+"), signs.count(MINUS), signs.count("±")
    assert page.text_content("#explorer-count").startswith(
        f"120 of 120 queries: {better} better, {worse} worse, {same} equal"
    )


# --- rankings ---

READ_HITS_SCRIPT = """lists => lists.map(list => ({name: list.querySelector('h4').textContent,
hits: [...list.querySelectorAll('.hit')].map(hit => ({rank: hit.querySelector('.rank').textContent,
title: hit.querySelector('.title').textContent, text: hit.querySelector('.text')?.textContent ?? '',
grade: hit.querySelector('.grade').textContent, relevant: hit.classList.contains('relevant'),
score: [...hit.querySelector('.facts').childNodes].filter(one => one.nodeType === 3).map(one => one.data).join(''),
elsewhere: hit.querySelector('.elsewhere')?.textContent ?? ''}))}))"""


def read_ranking(overview, system, query, depth=10):
    """Read the scored ranking from the run; ties are sorted by descending document id, as in trec_eval."""
    rows = overview.entries[system].run.table.filter(pl.col("query") == query).select("doc", "score").rows()
    return sorted(rows, key=lambda row: (row[1], row[0]), reverse=True)[:depth]


@pytest.mark.parametrize("system", ["bm25", "faulty"])
def test_explorer_open_query_shows_both_rankings(report_page, open_page, system):
    page = open_page(report_page.file)
    overview, grades = report_page.overview, report_page.overview.judgments.nested
    select_option(page, "system", system)
    any_missing = False
    for i in (0, 1, 7):
        query = read_rows(page)[i][0]
        button = page.locator("#explorer-table .open").nth(i)
        button.click()
        page.wait_for_selector(".lists")
        assert button.get_attribute("aria-expanded") == "true"
        page_content = page.eval_on_selector_all(".lists > div", READ_HITS_SCRIPT)
        assert [panel["name"] for panel in page_content] == ["overlap", system]
        lists = {name: read_ranking(overview, name, query) for name in ("overlap", system)}
        for panel, other_panel in (page_content, page_content[::-1]):
            ranked, other_docs = lists[panel["name"]], [doc for doc, _ in lists[other_panel["name"]]]
            assert [hit["rank"] for hit in panel["hits"]] == [str(rank + 1) for rank in range(len(ranked))]
            for hit, (doc, score) in zip(panel["hits"], ranked, strict=True):
                grade = grades[query].get(doc)
                assert hit["title"] == doc
                assert hit["text"] == report_page.data.texts[doc]
                assert hit["grade"] == ("unjudged" if grade is None else f"grade {grade:g}")
                assert hit["relevant"] == (grade is not None and grade >= 1)
                assert float(hit["score"]) == float(f"{score:.5g}")
                name = other_panel["name"]
                elsewhere = f"{name}: {other_docs.index(doc) + 1}" if doc in other_docs else f"not in {name}"
                assert hit["elsewhere"] == elsewhere
        returned = {doc for ranked in lists.values() for doc, _ in ranked}
        missed = [doc for doc, grade in grades[query].items() if grade >= 1 and doc not in returned]
        assert set(page.locator(".missing .title").all_text_contents()) == set(missed)
        any_missing = any_missing or bool(missed)
        values = page.text_content(".detail .values")
        for name in overview.systems:
            assert f"{name} {format_value(list_values(overview, 'ndcg@10', name)[list(grades).index(query)])}" in values
        button.click()
        assert page.locator(".detail").count() == 0
        assert button.get_attribute("aria-expanded") == "false"
    assert any_missing


def test_explorer_failed_query_shows_error_message(report_page, open_page):
    page = open_page(report_page.file)
    select_option(page, "system", "faulty")
    select_option(page, "show", "failed")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    assert "faulty failed: RuntimeError: too <b>heavy</b> & slow" in page.text_content(".detail")
    assert "no documents returned" in page.text_content(".lists")
    n_failed = len(report_page.overview.entries["faulty"].failed)
    assert f"Failed queries: faulty: {n_failed}" in page.text_content("#report-failures")


# --- state in the URL ---


def test_explorer_state_is_restored_from_url(report_page, open_page):
    page = open_page(report_page.file)
    select_option(page, "system", "faulty")
    select_option(page, "show", "worse")
    select_option(page, "tag", "asks: what")
    page.fill("#explorer-search", "color")
    page.wait_for_url("**search=color*")
    expected_rows = read_rows(page)
    assert expected_rows
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    page.wait_for_url(f"**open={expected_rows[0][0]}*")
    restored = open_page(report_page.file, view=page.url.partition("#")[2])
    restored.wait_for_selector(".lists")
    assert read_rows(restored) == expected_rows
    assert restored.input_value("#explorer-search") == "color"
    assert restored.text_content("#explorer-table [data-sort=system]") == "faulty"
    assert restored.locator(".open[aria-expanded=true] .id").all_text_contents() == [expected_rows[0][0]]


def test_answer_links_open_filtered_queries_and_sections(report_page, open_page):
    page = open_page(report_page.file)
    page.click(".answer:last-child a")
    page.wait_for_url("**#report-queries?show=zero")
    assert read_all_rows(page) == compute_rows(report_page, is_kept=lambda row: row["system"] == 0)
    for link in page.locator(".answer a").all()[:-1]:
        assert page.locator(link.get_attribute("href")).count() == 1


@pytest.mark.parametrize(
    "view",
    ["report-queries?show=nonsense&open=nobody&system=__proto__", "report-queries?%", "report-queries?search=<b>"],
)
def test_explorer_invalid_url_state_falls_back_to_defaults(report_page, open_page, view):
    page = open_page(report_page.file, view=view)
    assert page.text_content("#explorer-table [data-sort=system]") == "bm25"
    assert page.input_value("#explorer-show") == "all"
    assert page.locator("#explorer-table .open").count() == (0 if "search" in view else 50)


def test_explorer_one_system_hides_baseline(report_page, open_page, tmp_path):
    from ragauge.output.page import render_page
    from ragauge.reports.overview_report import build_report

    one_system = replace(
        report_page.overview,
        entries={"bm25": report_page.overview.entries["bm25"]},
        baseline=None,
        compared=None,
        rival=None,
    )
    file = tmp_path / "alone.html"
    file.write_text(render_page([build_report(one_system)]), encoding="utf-8")
    page = open_page(file)
    rows = page.eval_on_selector_all("#explorer-table tbody tr", READ_TABLE_SCRIPT)
    values = sorted(list_values(report_page.overview, "ndcg@10", "bm25"))
    assert [row[1] for row in rows] == [format_value(value) for value in values[:50]]
    assert not page.is_visible("#explorer-table [data-sort=baseline]")
    assert not page.is_visible("#explorer-baseline")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    assert page.locator(".lists h4").all_text_contents() == ["bm25"]


# --- keyboard ---


def focused_element(page):
    """Return the focused element, and whether its outline is visible."""
    return page.evaluate(
        """() => { const one = document.activeElement, style = getComputedStyle(one);
        const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        return [one.id || one.className || one.tagName, outlined]; }"""
    )


def tab_to(page, control, max_steps=40):
    for _ in range(max_steps):
        page.keyboard.press("Tab")
        name, visible = focused_element(page)
        assert visible, name
        if name == control:
            return
    raise AssertionError(f"{control} cannot be reached")


def test_page_keyboard_navigation_reaches_all_controls(report_page, open_page):
    from playwright.sync_api import expect

    page = open_page(report_page.file)
    page.keyboard.press("Tab")
    assert focused_element(page) == ["skip", True]
    assert page.locator(".skip").bounding_box()["x"] >= 0
    tab_to(page, "scheme")
    page.keyboard.press("Enter")
    assert page.get_attribute("html", "data-scheme") == "light"
    page.keyboard.press("/")
    assert focused_element(page) == ["explorer-search", True]
    page.keyboard.type("color/")
    assert page.input_value("#explorer-search") == "color/"
    page.keyboard.press("Backspace")
    expect(page.locator("#explorer-count")).not_to_contain_text("120 of 120")
    page.keyboard.press("Escape")
    assert page.input_value("#explorer-search") == ""
    expect(page.locator("#explorer-count")).to_contain_text("120 of 120")
    tab_to(page, "open")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lists")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.locator(".lists")).to_have_count(2)
    states = "all => all.map(one => one.getAttribute('aria-expanded'))"
    assert page.eval_on_selector_all(".open", states)[:3] == ["true", "true", "false"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator(".lists")).to_have_count(1)
    assert page.eval_on_selector_all(".open", states)[:3] == ["false", "true", "false"]
    assert focused_element(page) == ["open", True]


# --- contrast, layout and print ---

READ_COLOURS_SCRIPT = """([selector]) => { const one = document.querySelector(selector); if (!one) return null;
let back = one; const clear = 'rgba(0, 0, 0, 0)';
while (back.parentElement && getComputedStyle(back).backgroundColor === clear) back = back.parentElement;
const style = getComputedStyle(one);
return [one.namespaceURI.includes('svg') ? style.fill : style.color, getComputedStyle(back).backgroundColor]; }"""
TEXT_SELECTORS = (
    *("body", ".about", ".headline", ".answer strong", ".answer span", ".answer dt", "nav a", ".legend", "figcaption"),
    *(".grid small", ".grid sup", ".up", ".hit .title", ".hit .text", ".hit.relevant .text", ".hit .rank"),
    *(".hit .grade", ".hit .facts", ".role-axis-label text", ".role-axis-title text", ".role-legend-label text"),
)


def compute_luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def compute_contrast(first, second):
    dark, light = sorted((compute_luminance(first), compute_luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def read_colours(page, *selectors):
    colours = {selector: page.evaluate(READ_COLOURS_SCRIPT, [selector]) for selector in selectors}
    assert None not in colours.values(), [missing for missing, pair in colours.items() if pair is None]
    return colours


def test_page_contrast_is_sufficient_in_both_colour_schemes(report_page, open_page):
    backgrounds = {}
    for scheme in ("light", "dark"):
        page = open_page(report_page.file, charts=True, scheme=scheme)
        page.click("#explorer-table .open >> nth=0")
        page.wait_for_selector(".hit.relevant")
        colours = read_colours(page, *TEXT_SELECTORS)
        select_option(page, "system", "faulty")
        colours |= read_colours(page, ".down")
        for selector, pair in colours.items():
            assert compute_contrast(*pair) >= 4.5, (scheme, selector, pair)
        backgrounds[scheme] = colours["body"][1]
        assert page.get_attribute("html", "data-scheme") == "auto"
    assert compute_luminance(backgrounds["light"]) > 0.9
    assert compute_luminance(backgrounds["dark"]) < 0.1


def test_scheme_button_cycles_light_dark_auto(report_page, open_page):
    page = open_page(report_page.file, scheme="dark")
    automatic = read_colours(page, "body")["body"]
    colours = {}
    for scheme in ("light", "dark", "auto"):
        page.click("#scheme")
        assert page.get_attribute("html", "data-scheme") == scheme
        colours[scheme] = read_colours(page, "body")["body"]
    assert colours["auto"] == colours["dark"] == automatic
    assert colours["light"] == automatic[::-1] or compute_luminance(colours["light"][1]) > 0.9
    assert page.get_attribute("#scheme", "aria-label") == "Colour scheme: automatic"


def test_chart_text_contrast_is_sufficient_in_both_schemes(report_page, open_page):
    for scheme in ("light", "dark"):
        page = open_page(report_page.file, charts=True, scheme=scheme)
        background = read_colours(page, "body")["body"][1]
        fills = page.eval_on_selector_all(
            '[data-chart]:not([data-chart^="report-wins"]) svg text',  # the background of numbers on bars is the bar
            """all => all.filter(one => one.textContent && !one.closest('[class*="halo_"]'))
            .map(one => [one.textContent, getComputedStyle(one).fill])""",
        )
        assert len(fills) > 50
        low_contrast = {fill: text for text, fill in fills if compute_contrast(fill, background) < 4.5}
        assert low_contrast == {}, scheme


def test_page_on_phone_has_no_horizontal_scrolling(report_page, open_page):
    page = open_page(report_page.file, charts=True, size=(360, 740), has_touch=True, is_mobile=True)
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    for details in page.locator("details").all():
        details.locator("summary").first.click()
    assert page.evaluate("[document.scrollingElement.scrollWidth <= innerWidth, innerWidth]") == [True, 360]
    left, right = (panel.bounding_box() for panel in page.locator(".lists > div").all())
    assert right["y"] >= left["y"] + left["height"]  # the lists are stacked


def test_page_print_is_light_without_controls(report_page, open_page, tmp_path):
    page = open_page(report_page.file, charts=True, scheme="dark")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".hit.relevant")
    page.emulate_media(media="print")
    for hidden in (".top", ".controls", ".pager button", ".keys"):
        assert not page.is_visible(hidden)
    assert page.is_visible(".headline")
    result = read_colours(page, "body", ".headline", ".hit.relevant .text", ".answer span", ".role-axis-label text")
    for selector, pair in result.items():
        assert compute_luminance(pair[1]) > 0.6, selector
        assert compute_contrast(*pair) >= 4.5, selector
    verdict = page.text_content(".headline")
    data = page.pdf(path=tmp_path / "report.pdf", format="A4", print_background=True)
    assert data.startswith(b"%PDF-")
    if shutil.which("pdftotext"):
        process = subprocess.run(
            ["pdftotext", tmp_path / "report.pdf", "-"], capture_output=True, text=True, check=True
        ).stdout
        assert " ".join(verdict.split()) in " ".join(process.split())


# --- hostile text ---


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory):
    """Build a page whose queries, documents, systems, tags and errors contain markup and code."""
    folder = tmp_path_factory.mktemp("hostile")
    texts = [f"{text} number{i}" for i, text in enumerate(HOSTILE * 4)]
    documents = [Document(f"d{i}{HOSTILE[i % 6]}", text, HOSTILE[-i % 6]) for i, text in enumerate(texts)]
    queries = {f"q{i}{HOSTILE[i % 6]}": text for i, text in enumerate(texts)}
    judgments = Judgments({query: {documents[i].id: 1, documents[i - 1].id: 2} for i, query in enumerate(queries)})
    tags = {query: {HOSTILE[0]: HOSTILE[i % 2], "__proto__": NAMES[1 + i % 2]} for i, query in enumerate(queries)}
    data = Dataset(f"../{HOSTILE[0]}", documents, queries, judgments, tags=tags)

    def make_search(rank_step):
        def search(query, k):
            number = int(query.rpartition("number")[2])
            time.sleep(0.0005 * 2**rank_step)  # so that marks do not overlap
            if number == rank_step:
                raise RuntimeError(HOSTILE[number % 6])
            return [documents[(number + rank_step * step) % len(documents)].id for step in range(1, 6)]

        return search

    def failing(query, k):
        raise RuntimeError(HOSTILE[1])

    systems = {name: make_search(rank_step) for rank_step, name in enumerate(NAMES)} | {HOSTILE[0]: failing}
    options = {"measures": ["ndcg@5", "mrr"], "baseline": NAMES[0], "warmup": 0, "allow_failures": True}
    result = ragauge.run(data, systems, out=folder / "runs", **options)
    before = {path for path in folder.rglob("*") if "runs" not in path.relative_to(folder).parts[0]}
    overview = report(result, folder / "out" / "report.html", charts=folder / "out" / "charts", title=HOSTILE[1])
    after = {path for path in folder.rglob("*") if "runs" not in path.relative_to(folder).parts[0]}
    return ReportPage(folder / "out" / "report.html", overview, data), folder, after - before


@pytest.mark.slow
def test_report_hostile_system_names_write_only_inside_out_folder(hostile_page):
    _, folder, new_files = hostile_page
    assert {path.relative_to(folder).parts[0] for path in new_files} == {"out"}
    assert {path.name for path in folder.iterdir()} == {"out", "runs"}
    assert {path.name for path in folder.parent.iterdir() if path.name == "x"} == set()
    assert {path.suffix for path in (folder / "out" / "charts").iterdir()} == {".svg", ".png"}


@pytest.mark.representative
def test_page_hostile_data_is_shown_verbatim_and_not_executed(hostile_page, open_page):
    report_page, _, _ = hostile_page
    page = open_page(report_page.file, charts=True)
    assert page.title() == HOSTILE[1]
    assert page.text_content("h1") == HOSTILE[1]
    rows = page.eval_on_selector_all("[data-table=systems] tbody tr", READ_TABLE_SCRIPT)
    systems = [row[0].removesuffix("baseline") for row in rows]
    assert systems == [*NAMES, HOSTILE[0]]
    assert page.locator("#explorer-system option").all_text_contents() == systems
    tags = page.locator("#explorer-tag option").all_text_contents()
    assert {f"{HOSTILE[0]}: {HOSTILE[1]}", f"__proto__: {NAMES[2]}"} <= set(tags)
    for name in systems:
        select_option(page, "system", name)
        assert page.text_content("#explorer-table [data-sort=system]") == name
    texts = page.eval_on_selector_all("#explorer-table .open", "all => all.map(one => one.firstChild.textContent)")
    assert set(texts) == set(report_page.data.queries.values())
    select_option(page, "system", "constructor")
    for i in range(len(texts)):
        page.locator("#explorer-table .open").nth(i).click()
    page.wait_for_selector(f".detail >> nth={len(texts) - 1}")
    titles = set(page.locator(".hit .title").all_text_contents())
    assert titles == set(HOSTILE)
    bodies = " ".join(page.locator(".hit .text").all_text_contents())
    assert all(" ".join(text.split()) in " ".join(bodies.split()) for text in report_page.data.texts.values())
    errors = page.text_content("#report-failures")
    texts = [clean_texts(" ".join(text.split())) for text in HOSTILE[:5]]  # an error is shown on one line
    assert all(f"RuntimeError: {text}" in errors for text in texts)
    assert page.evaluate(
        "[typeof window.__x, document.querySelectorAll('img, iframe, object, svg[onload]').length]"
    ) == [*("undefined", 0)]
    ids = page.eval_on_selector_all("script", "all => all.map(one => one.id)")
    assert sorted(ids) == ["", "", "", "charts", "explorer", "explorer-rankings", "explorer-values"]


def test_chart_tooltip_shows_hostile_system_name(hostile_page, open_page):
    report_page, _, _ = hostile_page
    page = open_page(report_page.file, charts=True)
    points = page.locator(POINTS)
    assert points.count() == len(NAMES)  # the system that always fails has no latency
    for name, point in zip(NAMES, points.all(), strict=True):
        show_tooltip(page, point, f":has-text({json.dumps(name)})")
    assert page.evaluate("typeof window.__x") == "undefined"


def test_charts_hostile_names_are_drawn_with_labels(hostile_page, open_page):
    report_page, _, _ = hostile_page
    page = open_page(report_page.file, charts=True)
    assert page.locator("[data-chart]").count() == page.locator("[data-chart] > svg, [data-chart] svg.marks").count()
    words_in_charts = " ".join(page.locator("[data-chart] svg text").all_text_contents())
    assert all(name in words_in_charts for name in ("../../x", "a\"b'c<b>", "__proto__", "datum.value", "constructor"))


def test_page_lone_surrogates_are_replaced(report_page, open_page, tmp_path):
    from ragauge.output.page import render_page
    from ragauge.reports.overview_report import build_report

    overview = report_page.overview
    query = overview.entries["bm25"].scores[0].queries[0]
    with_surrogates = replace(
        overview, title="half \ud800", queries={**overview.queries, query: "half \udfff of one"}, notes=["\ud83d"]
    )
    file = tmp_path / "half.html"
    file.write_bytes(render_page([build_report(with_surrogates)]).encode("utf-8", "replace"))
    page = open_page(file)
    assert page.title() == "half \ufffd"
    page.fill("#explorer-search", "half")
    page.wait_for_selector("#explorer-count:has-text('1 of 120')")
    assert page.text_content("#explorer-table .open").startswith("half ? of one")


# --- large experiments ---


@pytest.mark.slow
def test_page_10000_queries_by_5_systems_loads_sorts_and_searches(browser, open_page, tmp_path):
    file, overview = make_large_page(tmp_path)
    assert file.stat().st_size < 15e6
    page = open_page(file)
    page.wait_for_selector("html[data-charts=drawn]", state="attached")
    assert page.locator("[data-chart] svg").count() == page.locator("[data-chart]").count() >= 12
    assert page.text_content("#explorer-page") == "page 1 of 200"
    page.click("#explorer-table [data-sort=system]")
    values = list_values(overview, "ndcg@10", "system 4")
    order = sorted(range(10_000), key=lambda i: -values[i])
    assert [row[2] for row in read_rows(page)] == [format_value(values[i]) for i in order[:50]]
    page.fill("#explorer-search", "word77 number 4")
    page.wait_for_selector("#explorer-count:has-text(' of 10,000 queries')")
    expected_rows = [
        query for query, text in overview.queries.items() if "word77" in text and "4" in text.rpartition("number")[2]
    ]
    page.wait_for_selector(f"#explorer-count:has-text('{len(expected_rows):,} of 10,000')")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists .hit")
    assert page.locator(".lists .hit").count() == 20


def make_large_page(folder):
    """Build a page in memory: systems return 10 documents per query, later ones the relevant document more often."""
    n, depth = 10_000, 10
    rng = np.random.default_rng(7)
    queries = {f"q{i}": f"what does word{i % 100} mean in chapter {i // 100}, number {i}" for i in range(n)}
    document_words = rng.choice(
        [f"{a}{b}{c}" for a in "bdfgk" for b in ("arn", "ol", "uris") for c in ("ta", "ment", "y")], (2 * n, 50)
    )
    documents = [Document(f"d{i}", " ".join(text), f"Title {i}") for i, text in enumerate(document_words.tolist())]
    judgments = Judgments({query: {f"d{i}": 1.0} for i, query in enumerate(queries)})
    ids = np.repeat(list(queries), depth)
    runs = {}
    for system in range(5):
        docs = rng.integers(n, 2 * n - depth, n)[:, None] + np.arange(depth)[None, :]
        is_found = rng.random(n) < 0.3 + 0.1 * system
        docs[is_found, rng.integers(0, depth, n)[is_found]] = np.flatnonzero(is_found)
        scores = np.sort(rng.random((n, depth)), axis=1)[:, ::-1]
        table = pl.DataFrame({"query": ids, "doc": [f"d{i}" for i in docs.ravel()], "score": scores.ravel()})
        times = (rng.lognormal(system / 2, 0.5, n) * 1e6).astype(np.int64)
        facts = {"query": list(queries), "repeat": 0, "session": 1, "status": "ok", "error": None}
        timings = pl.DataFrame({**facts, "began_ns": np.cumsum(times), "retrieve_ns": times // 2, "total_ns": times})
        runs[f"system {system}"] = Run(table, f"system {system}", timings)
    data = Dataset(
        "large", documents, queries, judgments, tags={q: {"part": f"{i % 4}"} for i, q in enumerate(queries)}
    )
    scores = {name: ragauge.evaluate(judgments, run, MEASURES) for name, run in runs.items()}
    result = Experiment(data, runs, scores, {}, {}, "system 0", None, [], {})
    file = folder / "large.html"
    return file, report(result, file, rounds=200, audited=False)
