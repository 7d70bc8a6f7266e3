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
from ragauge.reports import report
from ragauge.runs.results import Experiment

MEASURES = ["ndcg@10", "recall@10", "mrr@10"]
TABLE = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
MINUS, NONE = "\u2212", "\u2013"
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
class Made:
    """The page of an experiment, with its overview and dataset."""

    file: object
    overview: object
    data: Dataset


def words(text):
    return set(re.findall(r"\w+", text.lower()))


@pytest.fixture(scope="module")
def made(browser, tmp_path_factory):
    """Run an experiment with 120 queries that need two documents each; one system is slow and sometimes fails."""
    data = synthetic.make_synthetic("multihop", documents=400, queries=120, seed=1)
    kinds = {query: {"asks": text.split()[0].lower()} for query, text in data.queries.items()}
    texts = [(document.id, words(document.text)) for document in data.documents]

    def overlap(query, k):
        asked = words(query)
        with ragauge.stage("retrieve"):
            scored = [(doc, float(len(asked & known))) for doc, known in texts]
        return sorted(scored, key=lambda hit: -hit[1])[:k]

    def faulty(query, k):
        if query.startswith("How"):
            raise RuntimeError("too <b>heavy</b> & slow")
        with ragauge.stage("embed"):
            time.sleep(0.001)
        return overlap(query, k)[::-1]

    systems = {"bm25": "bm25", "overlap": overlap, "faulty": faulty}
    found = ragauge.run(
        replace(data, tags=kinds), systems, measures=MEASURES, baseline="overlap", k=20, warmup=0, workers=1
    )
    file = tmp_path_factory.mktemp("made") / "report.html"
    return Made(file, report(found, file), data)


# --- expected text, computed from the overview ---


def column(overview, measure, system):
    return [round(value, 6) for value in overview.entries[system].scores[0].values[measure].tolist()]


def told(value):
    """Format a value like JavaScript's `toFixed(4)`."""
    return str(Decimal(value).quantize(Decimal("0.0001"), ROUND_HALF_UP))


def signed(value):
    return ("+" if value > 0 else MINUS if value < 0 else "±") + told(abs(value))


def expected(made, measure="ndcg@10", system="bm25", base="overlap", keep=lambda one: True, by="sized", up=False):
    """Compute the expected rows of the query list: id, both values and their difference."""
    overview = made.overview
    mine, other = column(overview, measure, system), column(overview, measure, base)
    rows = [
        {"i": i, "id": query, "baseline": b, "system": m, "change": m - b}
        for i, (query, m, b) in enumerate(zip(overview.entries[system].scores[0].queries, mine, other, strict=True))
    ]
    keys = {
        "sized": lambda row: abs(row["change"]),
        "query": lambda row: row["i"],
        **{name: lambda row, name=name: row[name] for name in ("baseline", "system", "change")},
    }
    kept = sorted(filter(keep, rows), key=keys[by], reverse=not up)  # stable: ties keep the query order
    return [(row["id"], told(row["baseline"]), told(row["system"]), signed(row["change"])) for row in kept]


def listed(page):
    """Read the rows on the current page of the query list."""
    rows = page.eval_on_selector_all("#explorer-table tbody tr:not(.detail)", TABLE)
    return [(row[0].split()[-1], *row[1:]) for row in rows]


def every(page):
    """Read the rows on all pages of the query list, from the current page on."""
    rows = listed(page)
    while page.is_enabled("#explorer-next"):
        page.click("#explorer-next")
        rows += listed(page)
    return rows


def choose(page, box, label):
    page.select_option(f"#explorer-{box}", label=label)


# --- charts ---


@pytest.mark.representative
def test_page_draws_all_charts(made, opened):
    page = opened(made.file, charts=True)
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


def test_chart_hover_shows_tooltip_with_system_name(made, opened):
    page = opened(made.file, charts=True)
    show_tooltip(page, page.locator(POINTS).first)
    shown = page.text_content("#vg-tooltip-element")
    assert any(name in shown for name in made.overview.systems)


def test_page_first_screen_shows_answers_and_table_top(made, opened):
    page = opened(made.file)
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


def test_systems_table_sorts_by_each_column_in_both_directions(made, opened):
    page = opened(made.file)
    overview = made.overview
    known = {name: {m: entry.means[m].value for m in MEASURES} for name, entry in overview.entries.items()}
    for name, figures in known.items():
        row = overview.difference(name)
        figures["vs overlap"] = -1e9 if row is None else row.difference  # an empty cell sorts before all values
        figures["p"] = -1e9 if row is None else row.p_corrected
        figures["p95 ms"] = overview.entries[name].speed.stages["total"].p95
        figures["system"] = name
    headings = page.locator("[data-table=systems] thead button").all_text_contents()
    assert headings == ["system", *MEASURES, "vs overlap", "p", "p95 ms"]
    for i, heading in enumerate(headings):
        for sort in ("descending", "ascending"):
            page.locator("[data-table=systems] thead button").nth(i).click()
            states = page.eval_on_selector_all(
                "[data-table=systems] th[scope=col]", "all => all.map(one => one.getAttribute('aria-sort'))"
            )
            assert states == ["none"] * i + [sort] + ["none"] * (len(headings) - i - 1)
            rows = page.eval_on_selector_all("[data-table=systems] tbody tr", TABLE)
            names = [row[0].removesuffix("baseline") for row in rows]
            assert names == sorted(known, key=lambda name: known[name][heading], reverse=sort == "descending"), heading


def test_explorer_defaults_to_largest_change_and_50_rows_per_page(made, opened):
    page = opened(made.file)
    wanted = expected(made)
    assert listed(page) == wanted[:50]
    assert page.text_content("#explorer-page") == "page 1 of 3"
    assert page.is_disabled("#explorer-previous")
    page.click("#explorer-next")
    assert listed(page) == wanted[50:100]
    page.click("#explorer-next")
    assert listed(page) == wanted[100:]
    assert page.text_content("#explorer-page") == "page 3 of 3"
    assert page.is_disabled("#explorer-next")
    page.click("#explorer-previous")
    assert listed(page) == wanted[50:100]


def test_explorer_sorts_by_each_column_in_both_directions(made, opened):
    page = opened(made.file)
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
            assert listed(page) == expected(made, by=key, up=states[i] == "ascending")[:50], (key, states[i])


def test_explorer_show_filter_lists_and_counts_matching_queries(made, opened):
    page = opened(made.file)
    choose(page, "system", "faulty")
    failed = set(made.overview.entries["faulty"].failed)
    assert failed == {query for query, text in made.data.queries.items() if text.startswith("How")} != set()
    kinds = {
        "all queries": lambda row: True,
        "better": lambda row: row["change"] > 0,
        "worse": lambda row: row["change"] < 0,
        "equal": lambda row: row["change"] == 0,
        "score 0": lambda row: row["system"] == 0,
        "failed": lambda row: row["id"] in failed,
    }
    assert page.locator("#explorer-show option").all_text_contents() == list(kinds)
    for label, keep in kinds.items():
        choose(page, "show", label)
        wanted = expected(made, system="faulty", keep=keep)
        assert every(page) == wanted, label
        signs = [row[3][0] for row in wanted]
        counted = (len(wanted), signs.count("+"), signs.count(MINUS), signs.count("±"))
        told_them = re.findall(r"\d+", page.text_content("#explorer-count").replace("of 120 ", ""))
        assert tuple(map(int, told_them)) == counted, label


def test_explorer_measure_and_system_selection_updates_rows(made, opened):
    page = opened(made.file)
    for measure in MEASURES:
        choose(page, "measure", measure)
        for system, base in (("bm25", "faulty"), ("overlap", "bm25"), ("faulty", "faulty")):
            choose(page, "system", system)
            choose(page, "baseline", base)
            assert page.text_content("#explorer-table [data-sort=system]") == system
            assert page.text_content("#explorer-table [data-sort=baseline]") == base
            assert listed(page) == expected(made, measure, system, base)[:50]


def test_explorer_tag_and_search_filters_combine(made, opened):
    from playwright.sync_api import expect

    page = opened(made.file)
    texts = made.data.queries
    labels = page.locator("#explorer-tag option").all_text_contents()
    assert labels[0] == "any kind"
    assert {"asks: how", "asks: what", "asks: where"} < set(labels)
    choose(page, "tag", "asks: what")
    what = [query for query, text in texts.items() if text.startswith("What ")]
    assert every(page) == expected(made, keep=lambda row: row["id"] in what)
    page.fill("#explorer-search", "NEIGHBOR color")
    both = [query for query in what if "color" in texts[query]]
    assert 0 < len(both) < len(what)
    expect(page.locator("#explorer-count")).to_contain_text(f"{len(both)} of 120 queries")
    assert every(page) == expected(made, keep=lambda row: row["id"] in both)
    choose(page, "tag", "any kind")
    page.fill("#explorer-search", "q007")
    expect(page.locator("#explorer-count")).to_contain_text("1 of 120 queries")
    assert listed(page) == expected(made, keep=lambda row: row["id"] == "q007")
    page.fill("#explorer-search", "there is no such thing")
    expect(page.locator("#explorer-count")).to_contain_text("0 of 120 queries")
    assert listed(page) == []
    assert page.text_content("#explorer-page") == "page 1 of 1"


def test_explorer_queries_without_value_sort_last(made, opened, tmp_path):
    from ragauge.output.page import render_page
    from ragauge.reports.overview_report import build_report

    entry = made.overview.entries["bm25"]
    scores = entry.scores[0]
    holes = scores.values["ndcg@10"].copy()
    holes[[0, 60, 119]] = np.nan
    odd = replace(scores, values=MeasureDict({**scores.values, "ndcg@10": holes}, str))
    found = replace(made.overview, entries={**made.overview.entries, "bm25": replace(entry, scores=[odd])})
    file = tmp_path / "holes.html"
    file.write_text(render_page([build_report(found)]), encoding="utf-8")
    page = opened(file)
    unknown = [scores.queries[i] for i in (0, 60, 119)]
    for heading in (None, "change", "change", "system", "system"):
        if heading:
            page.click(f"#explorer-table [data-sort={heading}]")
        last = every(page)[-3:]
        assert [row[0] for row in last] == unknown
        assert {row[2:] for row in last} == {(NONE, NONE)}
    wanted = expected(made, keep=lambda row: row["id"] not in unknown)
    signs = [row[3][0] for row in wanted]
    better, worse, same = signs.count("+"), signs.count(MINUS), signs.count("±")
    assert page.text_content("#explorer-count").startswith(
        f"120 of 120 queries: {better} better, {worse} worse, {same} equal"
    )


# --- rankings ---

HITS = """lists => lists.map(list => ({name: list.querySelector('h4').textContent,
hits: [...list.querySelectorAll('.hit')].map(hit => ({rank: hit.querySelector('.rank').textContent,
title: hit.querySelector('.title').textContent, text: hit.querySelector('.text')?.textContent ?? '',
grade: hit.querySelector('.grade').textContent, relevant: hit.classList.contains('relevant'),
score: [...hit.querySelector('.facts').childNodes].filter(one => one.nodeType === 3).map(one => one.data).join(''),
elsewhere: hit.querySelector('.elsewhere')?.textContent ?? ''}))}))"""


def ranking(overview, system, query, depth=10):
    """Read the scored ranking from the run; ties are sorted by descending document id, as in trec_eval."""
    rows = overview.entries[system].run.table.filter(pl.col("query") == query).select("doc", "score").rows()
    return sorted(rows, key=lambda row: (row[1], row[0]), reverse=True)[:depth]


@pytest.mark.parametrize("system", ["bm25", "faulty"])
def test_explorer_open_query_shows_both_rankings(made, opened, system):
    page = opened(made.file)
    overview, grades = made.overview, made.overview.judgments.nested
    choose(page, "system", system)
    seen_missing = False
    for i in (0, 1, 7):
        query = listed(page)[i][0]
        button = page.locator("#explorer-table .open").nth(i)
        button.click()
        page.wait_for_selector(".lists")
        assert button.get_attribute("aria-expanded") == "true"
        shown = page.eval_on_selector_all(".lists > div", HITS)
        assert [one["name"] for one in shown] == ["overlap", system]
        lists = {name: ranking(overview, name, query) for name in ("overlap", system)}
        for one, other in (shown, shown[::-1]):
            mine, theirs = lists[one["name"]], [doc for doc, _ in lists[other["name"]]]
            assert [hit["rank"] for hit in one["hits"]] == [str(rank + 1) for rank in range(len(mine))]
            for hit, (doc, score) in zip(one["hits"], mine, strict=True):
                grade = grades[query].get(doc)
                assert hit["title"] == doc
                assert hit["text"] == made.data.texts[doc]
                assert hit["grade"] == ("unjudged" if grade is None else f"grade {grade:g}")
                assert hit["relevant"] == (grade is not None and grade >= 1)
                assert float(hit["score"]) == float(f"{score:.5g}")
                name = other["name"]
                there = f"{name}: {theirs.index(doc) + 1}" if doc in theirs else f"not in {name}"
                assert hit["elsewhere"] == there
        first = {doc for mine in lists.values() for doc, _ in mine}
        missed = [doc for doc, grade in grades[query].items() if grade >= 1 and doc not in first]
        assert set(page.locator(".missing .title").all_text_contents()) == set(missed)
        seen_missing = seen_missing or bool(missed)
        values = page.text_content(".detail .values")
        for name in overview.systems:
            assert f"{name} {told(column(overview, 'ndcg@10', name)[list(grades).index(query)])}" in values
        button.click()
        assert page.locator(".detail").count() == 0
        assert button.get_attribute("aria-expanded") == "false"
    assert seen_missing


def test_explorer_failed_query_shows_error_message(made, opened):
    page = opened(made.file)
    choose(page, "system", "faulty")
    choose(page, "show", "failed")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    assert "faulty failed: RuntimeError: too <b>heavy</b> & slow" in page.text_content(".detail")
    assert "no documents returned" in page.text_content(".lists")
    n_failed = len(made.overview.entries["faulty"].failed)
    assert f"Failed queries: faulty: {n_failed}" in page.text_content("#report-failures")


# --- state in the URL ---


def test_explorer_state_is_restored_from_url(made, opened):
    page = opened(made.file)
    choose(page, "system", "faulty")
    choose(page, "show", "worse")
    choose(page, "tag", "asks: what")
    page.fill("#explorer-search", "color")
    page.wait_for_url("**search=color*")
    wanted = listed(page)
    assert wanted
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    page.wait_for_url(f"**open={wanted[0][0]}*")
    again = opened(made.file, view=page.url.partition("#")[2])
    again.wait_for_selector(".lists")
    assert listed(again) == wanted
    assert again.input_value("#explorer-search") == "color"
    assert again.text_content("#explorer-table [data-sort=system]") == "faulty"
    assert again.locator(".open[aria-expanded=true] .id").all_text_contents() == [wanted[0][0]]


def test_answer_links_open_filtered_queries_and_sections(made, opened):
    page = opened(made.file)
    page.click(".answer:last-child a")
    page.wait_for_url("**#report-queries?show=zero")
    assert every(page) == expected(made, keep=lambda row: row["system"] == 0)
    for link in page.locator(".answer a").all()[:-1]:
        assert page.locator(link.get_attribute("href")).count() == 1


@pytest.mark.parametrize(
    "view",
    ["report-queries?show=nonsense&open=nobody&system=__proto__", "report-queries?%", "report-queries?search=<b>"],
)
def test_explorer_invalid_url_state_falls_back_to_defaults(made, opened, view):
    page = opened(made.file, view=view)
    assert page.text_content("#explorer-table [data-sort=system]") == "bm25"
    assert page.input_value("#explorer-show") == "all"
    assert page.locator("#explorer-table .open").count() == (0 if "search" in view else 50)


def test_explorer_one_system_hides_baseline(made, opened, tmp_path):
    from ragauge.output.page import render_page
    from ragauge.reports.overview_report import build_report

    only = replace(
        made.overview, entries={"bm25": made.overview.entries["bm25"]}, baseline=None, compared=None, rival=None
    )
    file = tmp_path / "alone.html"
    file.write_text(render_page([build_report(only)]), encoding="utf-8")
    page = opened(file)
    rows = page.eval_on_selector_all("#explorer-table tbody tr", TABLE)
    values = sorted(column(made.overview, "ndcg@10", "bm25"))
    assert [row[1] for row in rows] == [told(value) for value in values[:50]]
    assert not page.is_visible("#explorer-table [data-sort=baseline]")
    assert not page.is_visible("#explorer-baseline")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    assert page.locator(".lists h4").all_text_contents() == ["bm25"]


# --- keyboard ---


def focus(page):
    """Return the focused element, and whether its outline is visible."""
    return page.evaluate(
        """() => { const one = document.activeElement, style = getComputedStyle(one);
        const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        return [one.id || one.className || one.tagName, outlined]; }"""
    )


def tab_to(page, wanted, most=40):
    for _ in range(most):
        page.keyboard.press("Tab")
        name, visible = focus(page)
        assert visible, name
        if name == wanted:
            return
    raise AssertionError(f"{wanted} cannot be reached")


def test_page_keyboard_navigation_reaches_all_controls(made, opened):
    from playwright.sync_api import expect

    page = opened(made.file)
    page.keyboard.press("Tab")
    assert focus(page) == ["skip", True]
    assert page.locator(".skip").bounding_box()["x"] >= 0
    tab_to(page, "scheme")
    page.keyboard.press("Enter")
    assert page.get_attribute("html", "data-scheme") == "light"
    page.keyboard.press("/")
    assert focus(page) == ["explorer-search", True]
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
    assert focus(page) == ["open", True]


# --- contrast, layout and print ---

COLOURS = """([selector]) => { const one = document.querySelector(selector); if (!one) return null;
let back = one; const clear = 'rgba(0, 0, 0, 0)';
while (back.parentElement && getComputedStyle(back).backgroundColor === clear) back = back.parentElement;
const style = getComputedStyle(one);
return [one.namespaceURI.includes('svg') ? style.fill : style.color, getComputedStyle(back).backgroundColor]; }"""
READ = (
    *("body", ".about", ".headline", ".answer strong", ".answer span", ".answer dt", "nav a", ".legend", "figcaption"),
    *(".grid small", ".grid sup", ".up", ".hit .title", ".hit .text", ".hit.relevant .text", ".hit .rank"),
    *(".hit .grade", ".hit .facts", ".role-axis-label text", ".role-axis-title text", ".role-legend-label text"),
)


def brightness(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((brightness(one), brightness(other)))
    return (light + 0.05) / (dark + 0.05)


def colours(page, *selectors):
    found = {one: page.evaluate(COLOURS, [one]) for one in selectors}
    assert None not in found.values(), [one for one, pair in found.items() if pair is None]
    return found


def test_page_contrast_is_sufficient_in_both_colour_schemes(made, opened):
    backs = {}
    for scheme in ("light", "dark"):
        page = opened(made.file, charts=True, scheme=scheme)
        page.click("#explorer-table .open >> nth=0")
        page.wait_for_selector(".hit.relevant")
        found = colours(page, *READ)
        choose(page, "system", "faulty")
        found |= colours(page, ".down")
        for selector, pair in found.items():
            assert contrast(*pair) >= 4.5, (scheme, selector, pair)
        backs[scheme] = found["body"][1]
        assert page.get_attribute("html", "data-scheme") == "auto"
    assert brightness(backs["light"]) > 0.9
    assert brightness(backs["dark"]) < 0.1


def test_scheme_button_cycles_light_dark_auto(made, opened):
    page = opened(made.file, scheme="dark")
    automatic = colours(page, "body")["body"]
    found = {}
    for scheme in ("light", "dark", "auto"):
        page.click("#scheme")
        assert page.get_attribute("html", "data-scheme") == scheme
        found[scheme] = colours(page, "body")["body"]
    assert found["auto"] == found["dark"] == automatic
    assert found["light"] == automatic[::-1] or brightness(found["light"][1]) > 0.9
    assert page.get_attribute("#scheme", "aria-label") == "Colour scheme: automatic"


def test_chart_text_contrast_is_sufficient_in_both_schemes(made, opened):
    for scheme in ("light", "dark"):
        page = opened(made.file, charts=True, scheme=scheme)
        back = colours(page, "body")["body"][1]
        fills = page.eval_on_selector_all(
            '[data-chart]:not([data-chart^="report-wins"]) svg text',  # the background of numbers on bars is the bar
            """all => all.filter(one => one.textContent && !one.closest('[class*="halo_"]'))
            .map(one => [one.textContent, getComputedStyle(one).fill])""",
        )
        assert len(fills) > 50
        weak = {fill: text for text, fill in fills if contrast(fill, back) < 4.5}
        assert weak == {}, scheme


def test_page_on_phone_has_no_horizontal_scrolling(made, opened):
    page = opened(made.file, charts=True, size=(360, 740), has_touch=True, is_mobile=True)
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists")
    for details in page.locator("details").all():
        details.locator("summary").first.click()
    assert page.evaluate("[document.scrollingElement.scrollWidth <= innerWidth, innerWidth]") == [True, 360]
    left, right = (one.bounding_box() for one in page.locator(".lists > div").all())
    assert right["y"] >= left["y"] + left["height"]  # the lists are stacked


def test_page_print_is_light_without_controls(made, opened, tmp_path):
    page = opened(made.file, charts=True, scheme="dark")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".hit.relevant")
    page.emulate_media(media="print")
    for hidden in (".top", ".controls", ".pager button", ".keys"):
        assert not page.is_visible(hidden)
    assert page.is_visible(".headline")
    found = colours(page, "body", ".headline", ".hit.relevant .text", ".answer span", ".role-axis-label text")
    for selector, pair in found.items():
        assert brightness(pair[1]) > 0.6, selector
        assert contrast(*pair) >= 4.5, selector
    verdict = page.text_content(".headline")
    data = page.pdf(path=tmp_path / "report.pdf", format="A4", print_background=True)
    assert data.startswith(b"%PDF-")
    if shutil.which("pdftotext"):
        done = subprocess.run(
            ["pdftotext", tmp_path / "report.pdf", "-"], capture_output=True, text=True, check=True
        ).stdout
        assert " ".join(verdict.split()) in " ".join(done.split())


# --- hostile text ---


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Build a page whose queries, documents, systems, tags and errors contain markup and code."""
    folder = tmp_path_factory.mktemp("hostile")
    texts = [f"{text} number{i}" for i, text in enumerate(HOSTILE * 4)]
    documents = [Document(f"d{i}{HOSTILE[i % 6]}", text, HOSTILE[-i % 6]) for i, text in enumerate(texts)]
    queries = {f"q{i}{HOSTILE[i % 6]}": text for i, text in enumerate(texts)}
    judgments = Judgments({query: {documents[i].id: 1, documents[i - 1].id: 2} for i, query in enumerate(queries)})
    tags = {query: {HOSTILE[0]: HOSTILE[i % 2], "__proto__": NAMES[1 + i % 2]} for i, query in enumerate(queries)}
    data = Dataset(f"../{HOSTILE[0]}", documents, queries, judgments, tags=tags)

    def answers(turn):
        def search(query, k):
            place = int(query.rpartition("number")[2])
            time.sleep(0.0005 * 2**turn)  # so that marks do not overlap
            if place == turn:
                raise RuntimeError(HOSTILE[place % 6])
            return [documents[(place + turn * step) % len(documents)].id for step in range(1, 6)]

        return search

    def broken(query, k):
        raise RuntimeError(HOSTILE[1])

    systems = {name: answers(turn) for turn, name in enumerate(NAMES)} | {HOSTILE[0]: broken}
    how = {"measures": ["ndcg@5", "mrr"], "baseline": NAMES[0], "warmup": 0, "allow_failures": True}
    found = ragauge.run(data, systems, out=folder / "runs", **how)
    before = {path for path in folder.rglob("*") if "runs" not in path.relative_to(folder).parts[0]}
    overview = report(found, folder / "out" / "report.html", charts=folder / "out" / "charts", title=HOSTILE[1])
    after = {path for path in folder.rglob("*") if "runs" not in path.relative_to(folder).parts[0]}
    return Made(folder / "out" / "report.html", overview, data), folder, after - before


@pytest.mark.slow
def test_report_hostile_system_names_write_only_inside_out_folder(hostile):
    _, folder, written = hostile
    assert {path.relative_to(folder).parts[0] for path in written} == {"out"}
    assert {path.name for path in folder.iterdir()} == {"out", "runs"}
    assert {path.name for path in folder.parent.iterdir() if path.name == "x"} == set()
    assert {path.suffix for path in (folder / "out" / "charts").iterdir()} == {".svg", ".png"}


@pytest.mark.representative
def test_page_hostile_data_is_shown_verbatim_and_not_executed(hostile, opened):
    made, _, _ = hostile
    page = opened(made.file, charts=True)
    assert page.title() == HOSTILE[1]
    assert page.text_content("h1") == HOSTILE[1]
    rows = page.eval_on_selector_all("[data-table=systems] tbody tr", TABLE)
    systems = [row[0].removesuffix("baseline") for row in rows]
    assert systems == [*NAMES, HOSTILE[0]]
    assert page.locator("#explorer-system option").all_text_contents() == systems
    tags = page.locator("#explorer-tag option").all_text_contents()
    assert {f"{HOSTILE[0]}: {HOSTILE[1]}", f"__proto__: {NAMES[2]}"} <= set(tags)
    for name in systems:
        choose(page, "system", name)
        assert page.text_content("#explorer-table [data-sort=system]") == name
    shown = page.eval_on_selector_all("#explorer-table .open", "all => all.map(one => one.firstChild.textContent)")
    assert set(shown) == set(made.data.queries.values())
    choose(page, "system", "constructor")
    for i in range(len(shown)):
        page.locator("#explorer-table .open").nth(i).click()
    page.wait_for_selector(f".detail >> nth={len(shown) - 1}")
    seen = set(page.locator(".hit .title").all_text_contents())
    assert seen == set(HOSTILE)
    bodies = " ".join(page.locator(".hit .text").all_text_contents())
    assert all(" ".join(text.split()) in " ".join(bodies.split()) for text in made.data.texts.values())
    errors = page.text_content("#report-failures")
    shown = [clean_texts(" ".join(text.split())) for text in HOSTILE[:5]]  # an error is shown on one line
    assert all(f"RuntimeError: {text}" in errors for text in shown)
    assert page.evaluate(
        "[typeof window.__x, document.querySelectorAll('img, iframe, object, svg[onload]').length]"
    ) == [*("undefined", 0)]
    ids = page.eval_on_selector_all("script", "all => all.map(one => one.id)")
    assert sorted(ids) == ["", "", "", "charts", "explorer", "explorer-rankings", "explorer-values"]


def test_chart_tooltip_shows_hostile_system_name(hostile, opened):
    made, _, _ = hostile
    page = opened(made.file, charts=True)
    points = page.locator(POINTS)
    assert points.count() == len(NAMES)  # the system that always fails has no latency
    for name, point in zip(NAMES, points.all(), strict=True):
        show_tooltip(page, point, f":has-text({json.dumps(name)})")
    assert page.evaluate("typeof window.__x") == "undefined"


def test_charts_hostile_names_are_drawn_with_labels(hostile, opened):
    made, _, _ = hostile
    page = opened(made.file, charts=True)
    assert page.locator("[data-chart]").count() == page.locator("[data-chart] > svg, [data-chart] svg.marks").count()
    words_in_charts = " ".join(page.locator("[data-chart] svg text").all_text_contents())
    assert all(name in words_in_charts for name in ("../../x", "a\"b'c<b>", "__proto__", "datum.value", "constructor"))


def test_page_lone_surrogates_are_replaced(made, opened, tmp_path):
    from ragauge.output.page import render_page
    from ragauge.reports.overview_report import build_report

    overview = made.overview
    query = overview.entries["bm25"].scores[0].queries[0]
    odd = replace(
        overview, title="half \ud800", queries={**overview.queries, query: "half \udfff of one"}, notes=["\ud83d"]
    )
    file = tmp_path / "half.html"
    file.write_bytes(render_page([build_report(odd)]).encode("utf-8", "replace"))
    page = opened(file)
    assert page.title() == "half \ufffd"
    page.fill("#explorer-search", "half")
    page.wait_for_selector("#explorer-count:has-text('1 of 120')")
    assert page.text_content("#explorer-table .open").startswith("half ? of one")


# --- large experiments ---


@pytest.mark.slow
def test_page_10000_queries_by_5_systems_loads_sorts_and_searches(browser, opened, tmp_path):
    file, overview = large(tmp_path)
    assert file.stat().st_size < 15e6
    page = opened(file)
    page.wait_for_selector("html[data-charts=drawn]", state="attached")
    assert page.locator("[data-chart] svg").count() == page.locator("[data-chart]").count() >= 12
    assert page.text_content("#explorer-page") == "page 1 of 200"
    page.click("#explorer-table [data-sort=system]")
    values = column(overview, "ndcg@10", "system 4")
    order = sorted(range(10_000), key=lambda i: -values[i])
    assert [row[2] for row in listed(page)] == [told(values[i]) for i in order[:50]]
    page.fill("#explorer-search", "word77 number 4")
    page.wait_for_selector("#explorer-count:has-text(' of 10,000 queries')")
    wanted = [
        query for query, text in overview.queries.items() if "word77" in text and "4" in text.rpartition("number")[2]
    ]
    page.wait_for_selector(f"#explorer-count:has-text('{len(wanted):,} of 10,000')")
    page.click("#explorer-table .open >> nth=0")
    page.wait_for_selector(".lists .hit")
    assert page.locator(".lists .hit").count() == 20


def large(folder):
    """Build a page in memory: systems return 10 documents per query, later ones the relevant document more often."""
    n, depth = 10_000, 10
    rng = np.random.default_rng(7)
    queries = {f"q{i}": f"what does word{i % 100} mean in chapter {i // 100}, number {i}" for i in range(n)}
    said = rng.choice(
        [f"{a}{b}{c}" for a in "bdfgk" for b in ("arn", "ol", "uris") for c in ("ta", "ment", "y")], (2 * n, 50)
    )
    documents = [Document(f"d{i}", " ".join(text), f"Title {i}") for i, text in enumerate(said.tolist())]
    judgments = Judgments({query: {f"d{i}": 1.0} for i, query in enumerate(queries)})
    ids = np.repeat(list(queries), depth)
    runs = {}
    for system in range(5):
        docs = rng.integers(n, 2 * n - depth, n)[:, None] + np.arange(depth)[None, :]
        right = rng.random(n) < 0.3 + 0.1 * system
        docs[right, rng.integers(0, depth, n)[right]] = np.flatnonzero(right)
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
    found = Experiment(data, runs, scores, {}, {}, "system 0", None, [], {})
    file = folder / "large.html"
    return file, report(found, file, rounds=200, audited=False)
