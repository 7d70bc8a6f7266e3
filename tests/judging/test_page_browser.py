"""HTML page of judged samples in a real browser: verdicts with evidence, filters, layout, and escaped texts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hostile_text import HOSTILE
from judged_builder import FAITHFULNESS, MUTE, judged, lexical, many
from ragauge.core.samples import Claim, GeneratedQuestion, Sample, Support, Unscored, Usefulness, Verdicts
from ragauge.judging.results import JudgedSamples

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from ragauge.judging import explorer
from ragauge.judging.report import build_report
from ragauge.output.page import render_page

ROWS = "#explorer-table tbody tr:not(.detail)"
IDS = "rows => rows.map(row => row.querySelector('.id').textContent)"


def written(tmp_path_factory, found, name):
    place = tmp_path_factory.mktemp("judged") / f"{name}.html"
    place.write_text(render_page([build_report(found)]), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return written(tmp_path_factory, judged(), "toy")


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """Page of judged samples in which every text and name is an injection attempt."""
    text = " ".join(HOSTILE)
    samples = [
        Sample(f"{text} {i}", text, text, (text, text), text, (text, "k"), (text,), {FAITHFULNESS: 1.0}, {text: text})
        for i in range(2)
    ]
    said = {
        one.id: Verdicts(
            one.id,
            ("answer", "reference", "useful", "questions"),
            {"answer": [Claim("a1", text, 1), Claim("a2", text, 2)], "reference": [Claim("r1", text, 1)]},
            {"a1": Support((), ("k1",), text, 0.5), "r1": Support(("k2", text))},
            {"k1": Usefulness(True, text)},
            [GeneratedQuestion(text, 0.5)],
            unscored={"support a2": Unscored(text, text), f"useful {text}": Unscored(text, text)},
        )
        for one in samples
    }
    base = judged().scores
    columns = {name: base.values[name][:2] for name in base.measures}
    scored = replace(
        base,
        queries=[one.id for one in samples],
        values=type(base.values)(columns, str),
        unscored=type(base.unscored)({name: {} for name in columns}, str),
    )
    found = JudgedSamples(
        text, text, {text: text}, samples, said, scored, {}, notes=[text], stopped=text, provenance={text: text}
    )
    return written(tmp_path_factory, found, "evil")


def ready(opened, file, view="", **how):
    shown = opened(file, charts=True, view=view, **how)
    shown.wait_for_selector("html[data-explorer=ready]", state="attached")
    return shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_shows_means_with_intervals_and_counts(file, opened, scheme):
    shown = ready(opened, file, scheme=scheme)
    cards = shown.locator(".answer").evaluate_all(
        "all => all.map(one => [...one.querySelectorAll('dt, strong, span')].map(x => x.textContent))"
    )
    assert cards[0] == ["faithfulness", "0.667", "95% CI 0.100 to 1.000", "2 of 4 scored, 2 unscored"]
    assert cards[2] == ["context_recall", "0.500", "no interval", "2 of 4 scored, 2 unscored"]
    assert shown.locator("[data-chart] svg").count() == 4
    assert "the answer contains no claims" in shown.text_content("#judge-unscored")
    assert shown.locator("#judge-cost tbody tr").count() == 3
    assert shown.locator("#judge-robustness tbody tr").count() == 3


def test_page_table_sorts_lowest_first_and_missing_last(file, opened):
    shown = ready(opened, file)
    assert shown.locator(ROWS).evaluate_all(IDS) == ["q2", "q1", "q3", "q4"]
    shown.locator("#explorer-table button:has-text('faithfulness')").click()
    assert shown.locator(ROWS).evaluate_all(IDS) == ["q1", "q2", "q3", "q4"]
    shown.select_option("#explorer-measure", "1")
    assert shown.locator(ROWS).evaluate_all(IDS) == ["q4", "q1", "q2", "q3"]
    shown.select_option("#explorer-measure", "file")
    assert shown.locator(ROWS).evaluate_all(IDS) == ["q1", "q2", "q3", "q4"]


def test_page_search_and_filter_select_samples(file, opened):
    shown = ready(opened, file)
    wanted = {"unscored": ["q3", "q4"], "unread": ["q3"], "unsupported": ["q2"], "contradicted": ["q2"]}
    for what, ids in wanted.items():
        shown.select_option("#explorer-show", what)
        assert shown.locator(ROWS).evaluate_all(IDS) == ids, what
    assert shown.evaluate("location.hash") == "#judge-samples?show=contradicted"
    shown.select_option("#explorer-show", "all")
    shown.fill("#explorer-search", "gustave DID")
    shown.wait_for_selector("#explorer-count:has-text('1 of 4')")
    assert shown.locator(ROWS).evaluate_all(IDS) == ["q3"]
    assert shown.text_content("#explorer-count") == "1 of 4 samples; 1 without faithfulness"


def test_page_sample_details_show_claims_verdicts_and_evidence(file, opened):
    shown = ready(opened, file, "judge-samples?open=q2")
    shown.wait_for_selector(".detail .sample-texts")
    claims = shown.locator(".sample-texts .claim .badge").all_text_contents()
    assert claims == ["✓ supported", "✗ contradicted", "○ absent", "✗ contradicted", "cosine 0.880"]
    second = shown.locator(".claim.contradicted").first
    assert "the chunk says iron" in second.text_content()
    assert not shown.locator(".chunk.lit").count()
    second.locator(".chip").click()
    assert shown.locator(".chunk.lit").text_content() == "✓ usefulk1The tower is 300 m high and made of iron."
    assert "(label: 0)" in shown.text_content(".detail .values")
    assert "topic: height" in shown.text_content(".detail")


def test_page_sample_details_show_chunks_supporting_together(file, opened):
    shown = ready(opened, file, "judge-samples?open=q1")
    shown.wait_for_selector(".detail .sample-texts")
    facts = shown.locator(".claim .facts").all_text_contents()
    assert "supported by the answer · supported together by k1k2" in facts


def test_page_unscored_items_show_reason_and_raw_reply(file, opened):
    shown = ready(opened, file, "judge-samples?open=q3")
    shown.wait_for_selector(".detail .sample-texts")
    lost = shown.locator(".missing .claim").all_text_contents()
    assert lost[0] == f'? support a1{MUTE}{{"verdicts": [{{"id": "a9", "verd'
    assert lost[3].endswith("No reply was saved.")
    assert shown.locator(".chunk .badge").all_text_contents() == ["? unscored"]


def test_page_answer_without_claims_shows_left_out_and_history(file, opened):
    shown = ready(opened, file, "judge-samples?open=q4")
    shown.wait_for_selector(".detail .sample-texts")
    text = shown.text_content(".detail")
    assert "No claims." in text
    assert shown.locator(".left-out li").all_text_contents() == ["I do not know."]
    assert "No context was retrieved." in text
    assert "The answer is noncommittal." in text
    assert "Who built it?\nEiffel." in text


def test_page_keyboard_opens_sample_from_search(file, opened):
    shown = ready(opened, file)
    shown.keyboard.press("/")
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("Enter")
    shown.wait_for_selector(".detail .sample-texts")
    assert shown.evaluate("location.hash") == "#judge-samples?open=q1"


def test_page_lexical_judge_shows_warnings(tmp_path_factory, opened):
    place = written(tmp_path_factory, lexical(stopped="the limit of 3 requests is reached"), "lexical")
    shown = ready(opened, place)
    assert shown.locator("#summary li").all_text_contents() == [
        "Judged by lexical, a word-matching baseline without a model."
    ]
    warnings = shown.locator("p.doubtful").all_text_contents()
    assert warnings[0] == "Judging stopped early: the limit of 3 requests is reached"
    assert warnings[1].startswith("The lexical judge compares words and numbers.")


@pytest.mark.parametrize("size", [(1280, 800), (360, 800)])
def test_page_hostile_text_is_escaped(evil, opened, size):
    shown = ready(opened, evil, size=size)
    for toggle in shown.locator(".open").all():
        toggle.click()
    shown.locator(".sample-texts").nth(1).wait_for()
    for chip in shown.locator(".chip").all():
        chip.click()
    shown.fill("#explorer-search", HOSTILE[0])
    shown.evaluate("new Promise(done => setTimeout(done, 100))")  # resolves after the search, which is delayed by 60 ms
    assert shown.evaluate("window.__x") is None
    assert shown.locator("main img, main script, main svg[onload], main b > b").count() == 0
    assert HOSTILE[1] in shown.text_content("h1")
    assert shown.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_page_embedded_data_is_escaped(evil):
    text = evil.read_text(encoding="utf-8")
    assert "<script>window.__x" not in text
    assert '<img src=x onerror="window' not in text


def test_page_fits_phone_width(file, opened):
    shown = ready(opened, file, "judge-samples?open=q2", size=(360, 800))
    shown.wait_for_selector(".detail .sample-texts")
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360


def test_page_many_samples_are_paginated(tmp_path_factory, opened):
    place = written(tmp_path_factory, many(2000, chunks=2, length=300), "many")
    shown = ready(opened, place)
    assert shown.locator(ROWS).count() == 50
    assert shown.text_content("#explorer-page") == "page 1 of 40"
    assert shown.text_content("#explorer-count") == "2,000 of 2,000 samples; 20 without faithfulness"
    shown.select_option("#explorer-show", "unscored")
    assert shown.locator(ROWS).count() == 20
    shown.locator(".open").first.click()
    shown.wait_for_selector(".missing .reply")
    assert shown.locator(".missing .claim").count() == 1


def test_details_payload_over_limit_drops_chunks_of_best_samples(monkeypatch):
    found = many(40, chunks=1, length=800)
    monkeypatch.setattr(explorer, "MAX_CHUNK_CHARS_TOTAL", 8000)
    packed = explorer.build_details_payload(found)
    assert sum(map(len, packed["texts"])) <= 8000
    kept = [one["chunks"][0][2] >= 0 for one in packed["samples"]]
    values = found.scores.values[FAITHFULNESS].tolist()
    assert any(kept)
    assert not all(kept)
    worst = min(range(40), key=lambda i: values[i])
    best = max(range(40), key=lambda i: values[i])
    assert kept[worst]
    assert not kept[best]
    json.dumps(packed, allow_nan=False)


def test_details_payload_shared_chunk_is_stored_once():
    found = judged()
    samples = [replace(one, contexts=("the same", "the same")) for one in found.samples]
    packed = explorer.build_details_payload(replace(found, samples=samples))
    assert packed["texts"] == ["the same"]
