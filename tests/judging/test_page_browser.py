"""HTML page of judged samples in a real browser: verdicts with evidence, filters, layout, and escaped texts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hostile_text import HOSTILE
from judged_builder import FAITHFULNESS, UNREADABLE, make_judged, make_lexical_judged, make_many_judged
from ragauge.core.samples import Claim, GeneratedQuestion, Sample, Support, Unscored, Usefulness, Verdicts
from ragauge.judging.results import JudgedSamples

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.judging import explorer
from ragauge.judging.report import build_report
from ragauge.output.page import render_page

ROWS = "#explorer-table tbody tr:not(.detail)"
IDS = "rows => rows.map(row => row.querySelector('.id').textContent)"


def write_page(tmp_path_factory, found, name):
    path = tmp_path_factory.mktemp("judged") / f"{name}.html"
    path.write_text(render_page([build_report(found)]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_page(tmp_path_factory, make_judged(), "toy")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory):
    """Page of judged samples in which every text and name is an injection attempt."""
    text = " ".join(HOSTILE)
    samples = [
        Sample(f"{text} {i}", text, text, (text, text), text, (text, "k"), (text,), {FAITHFULNESS: 1.0}, {text: text})
        for i in range(2)
    ]
    verdicts = {
        sample.id: Verdicts(
            sample.id,
            ("answer", "reference", "useful", "questions"),
            {"answer": [Claim("a1", text, 1), Claim("a2", text, 2)], "reference": [Claim("r1", text, 1)]},
            {"a1": Support((), ("k1",), text, 0.5), "r1": Support(("k2", text))},
            {"k1": Usefulness(True, text)},
            [GeneratedQuestion(text, 0.5)],
            unscored={"support a2": Unscored(text, text), f"useful {text}": Unscored(text, text)},
        )
        for sample in samples
    }
    base = make_judged().scores
    columns = {name: base.values[name][:2] for name in base.measures}
    scored = replace(
        base,
        queries=[sample.id for sample in samples],
        values=type(base.values)(columns, str),
        unscored=type(base.unscored)({name: {} for name in columns}, str),
    )
    found = JudgedSamples(
        text, text, {text: text}, samples, verdicts, scored, {}, notes=[text], stopped=text, provenance={text: text}
    )
    return write_page(tmp_path_factory, found, "evil")


def open_explorer(open_page, file, view="", **how):
    page = open_page(file, charts=True, view=view, **how)
    page.wait_for_selector("html[data-explorer=ready]", state="attached")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_shows_means_with_intervals_and_counts(file, open_page, scheme):
    page = open_explorer(open_page, file, scheme=scheme)
    cards = page.locator(".answer").evaluate_all(
        "all => all.map(one => [...one.querySelectorAll('dt, strong, span')].map(x => x.textContent))"
    )
    assert cards[0] == ["faithfulness", "0.667", "95% CI 0.100 to 1.000", "2 of 4 scored, 2 unscored"]
    assert cards[2] == ["context_recall", "0.500", "no interval", "2 of 4 scored, 2 unscored"]
    assert page.locator("[data-chart] svg").count() == 4
    assert "the answer contains no claims" in page.text_content("#judge-unscored")
    assert page.locator("#judge-cost tbody tr").count() == 3
    assert page.locator("#judge-robustness tbody tr").count() == 3


def test_page_table_sorts_lowest_first_and_missing_last(file, open_page):
    page = open_explorer(open_page, file)
    assert page.locator(ROWS).evaluate_all(IDS) == ["q2", "q1", "q3", "q4"]
    page.locator("#explorer-table button:has-text('faithfulness')").click()
    assert page.locator(ROWS).evaluate_all(IDS) == ["q1", "q2", "q3", "q4"]
    page.select_option("#explorer-measure", "1")
    assert page.locator(ROWS).evaluate_all(IDS) == ["q4", "q1", "q2", "q3"]
    page.select_option("#explorer-measure", "file")
    assert page.locator(ROWS).evaluate_all(IDS) == ["q1", "q2", "q3", "q4"]


def test_page_search_and_filter_select_samples(file, open_page):
    page = open_explorer(open_page, file)
    ids_by_filter = {"unscored": ["q3", "q4"], "unread": ["q3"], "unsupported": ["q2"], "contradicted": ["q2"]}
    for filter_name, ids in ids_by_filter.items():
        page.select_option("#explorer-show", filter_name)
        assert page.locator(ROWS).evaluate_all(IDS) == ids, filter_name
    assert page.evaluate("location.hash") == "#judge-samples?show=contradicted"
    page.select_option("#explorer-show", "all")
    page.fill("#explorer-search", "gustave DID")
    page.wait_for_selector("#explorer-count:has-text('1 of 4')")
    assert page.locator(ROWS).evaluate_all(IDS) == ["q3"]
    assert page.text_content("#explorer-count") == "1 of 4 samples; 1 without faithfulness"


def test_page_sample_details_show_claims_verdicts_and_evidence(file, open_page):
    page = open_explorer(open_page, file, "judge-samples?open=q2")
    page.wait_for_selector(".detail .sample-texts")
    claims = page.locator(".sample-texts .claim .badge").all_text_contents()
    assert claims == ["✓ supported", "✗ contradicted", "○ absent", "✗ contradicted", "cosine 0.880"]
    second = page.locator(".claim.contradicted").first
    assert "the chunk says iron" in second.text_content()
    assert not page.locator(".chunk.lit").count()
    second.locator(".chip").click()
    assert page.locator(".chunk.lit").text_content() == "✓ usefulk1The tower is 300 m high and made of iron."
    assert "(label: 0)" in page.text_content(".detail .values")
    assert "topic: height" in page.text_content(".detail")


def test_page_sample_details_show_chunks_supporting_together(file, open_page):
    page = open_explorer(open_page, file, "judge-samples?open=q1")
    page.wait_for_selector(".detail .sample-texts")
    facts = page.locator(".claim .facts").all_text_contents()
    assert "supported by the answer · supported together by k1k2" in facts


def test_page_unscored_items_show_reason_and_raw_reply(file, open_page):
    page = open_explorer(open_page, file, "judge-samples?open=q3")
    page.wait_for_selector(".detail .sample-texts")
    unscored = page.locator(".missing .claim").all_text_contents()
    assert unscored[0] == f'? support a1{UNREADABLE}{{"verdicts": [{{"id": "a9", "verd'
    assert unscored[3].endswith("No reply was saved.")
    assert page.locator(".chunk .badge").all_text_contents() == ["? unscored"]


def test_page_answer_without_claims_shows_left_out_and_history(file, open_page):
    page = open_explorer(open_page, file, "judge-samples?open=q4")
    page.wait_for_selector(".detail .sample-texts")
    text = page.text_content(".detail")
    assert "No claims." in text
    assert page.locator(".left-out li").all_text_contents() == ["I do not know."]
    assert "No context was retrieved." in text
    assert "The answer is noncommittal." in text
    assert "Who built it?\nEiffel." in text


def test_page_keyboard_opens_sample_from_search(file, open_page):
    page = open_explorer(open_page, file)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".detail .sample-texts")
    assert page.evaluate("location.hash") == "#judge-samples?open=q1"


def test_page_lexical_judge_shows_warnings(tmp_path_factory, open_page):
    path = write_page(tmp_path_factory, make_lexical_judged(stopped="the limit of 3 requests is reached"), "lexical")
    page = open_explorer(open_page, path)
    assert page.locator("#summary li").all_text_contents() == [
        "Judged by lexical, a word-matching baseline without a model."
    ]
    warnings = page.locator("p.doubtful").all_text_contents()
    assert warnings[0] == "Judging stopped early: the limit of 3 requests is reached"
    assert warnings[1].startswith("The lexical judge compares words and numbers.")


@pytest.mark.parametrize("size", [(1280, 800), (360, 800)])
def test_page_hostile_text_is_escaped(hostile_page, open_page, size):
    page = open_explorer(open_page, hostile_page, size=size)
    for toggle in page.locator(".open").all():
        toggle.click()
    page.locator(".sample-texts").nth(1).wait_for()
    for chip in page.locator(".chip").all():
        chip.click()
    page.fill("#explorer-search", HOSTILE[0])
    page.evaluate("new Promise(done => setTimeout(done, 100))")  # resolves after the search, which is delayed by 60 ms
    assert page.evaluate("window.__x") is None
    assert page.locator("main img, main script, main svg[onload], main b > b").count() == 0
    assert HOSTILE[1] in page.text_content("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_page_embedded_data_is_escaped(hostile_page):
    text = hostile_page.read_text(encoding="utf-8")
    assert "<script>window.__x" not in text
    assert '<img src=x onerror="window' not in text


def test_page_fits_phone_width(file, open_page):
    page = open_explorer(open_page, file, "judge-samples?open=q2", size=(360, 800))
    page.wait_for_selector(".detail .sample-texts")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_page_many_samples_are_paginated(tmp_path_factory, open_page):
    path = write_page(tmp_path_factory, make_many_judged(2000, chunks=2, length=300), "many")
    page = open_explorer(open_page, path)
    assert page.locator(ROWS).count() == 50
    assert page.text_content("#explorer-page") == "page 1 of 40"
    assert page.text_content("#explorer-count") == "2,000 of 2,000 samples; 20 without faithfulness"
    page.select_option("#explorer-show", "unscored")
    assert page.locator(ROWS).count() == 20
    page.locator(".open").first.click()
    page.wait_for_selector(".missing .reply")
    assert page.locator(".missing .claim").count() == 1


def test_details_payload_over_limit_drops_chunks_of_best_samples(monkeypatch):
    found = make_many_judged(40, chunks=1, length=800)
    monkeypatch.setattr(explorer, "MAX_CHUNK_CHARS_TOTAL", 8000)
    payload = explorer.build_details_payload(found)
    assert sum(map(len, payload["texts"])) <= 8000
    with_chunks = [sample["chunks"][0][2] >= 0 for sample in payload["samples"]]
    values = found.scores.values[FAITHFULNESS].tolist()
    assert any(with_chunks)
    assert not all(with_chunks)
    worst = min(range(40), key=lambda i: values[i])
    best = max(range(40), key=lambda i: values[i])
    assert with_chunks[worst]
    assert not with_chunks[best]
    json.dumps(payload, allow_nan=False)


def test_details_payload_shared_chunk_is_stored_once():
    found = make_judged()
    samples = [replace(sample, contexts=("the same", "the same")) for sample in found.samples]
    payload = explorer.build_details_payload(replace(found, samples=samples))
    assert payload["texts"] == ["the same"]
