"""What is said of something judged: on a terminal, in Markdown, CSV and JSON. Undefined is never a number."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import ragauge
from judged_builder import FAITHFULNESS, MUTE, PRECISION, judged, lexical, many, scores
from ragauge.core.samples import Claim, Support, Unscored, Verdicts
from ragauge.judging.page import histogram_counts, sketch_score_distribution
from ragauge.judging.report import (
    cost_table,
    count_unscored_reasons,
    decide_claim_state,
    find_claim_states,
    find_unsupported_claims,
    find_worst_samples,
    generalise_reason,
    group_shared_reasons,
    robustness_table,
    sum_cost_steps,
    summarise_judged,
)
from ragauge.judging.report_formats import (
    claims_csv,
    estimate_to_dict,
    judged_notes,
    judged_to_dict,
    main_unscored_reason,
    render_estimate_terminal,
    render_judged_markdown,
    render_judged_terminal,
    scores_csv,
    summary_csv,
)
from ragauge.judging.results import CostEstimate, CostStep

EVIL = "[red]x[/red] \x1b[31m| <script>alert(1)</script> `code` *a*"


def printed(pieces, width=80):
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False, emoji=False)
    for one in pieces:
        console.print(one)
    return console.file.getvalue()


def test_a_terminal_of_80_columns_has_everything():
    pieces, left = render_judged_terminal(judged(), 80)
    text = printed(pieces)
    assert left == []
    assert max(map(len, text.splitlines())) <= 80
    assert "faithfulness       0.6667  [0.1000, 1.0000]  2 of 4         2" in text
    assert "context_recall     0.5000                 -  2 of 4         2" in text
    assert "the answer claims nothing" in text
    assert "claims       7     1        2       1      4,200    800  $0.012     850    1900" in text
    assert "context                0      1             1      2" in text
    assert "shout  support  context  absent  absent  supported" in text
    assert "0.3333  q2  How high is it?" in text
    assert "        contradicted: It is made of wood." in text
    assert text.index("contradicted: It is made of wood.") < text.index("absent: It is painted blue.")


def test_a_narrow_terminal_says_what_it_leaves_out():
    text, left = render_judged_terminal(judged(), 60)
    assert left == ["kept", "retries", "p50 ms"]
    assert "p95 ms" in printed(text, 60)


def test_the_word_matching_judge_is_called_what_it_is_everywhere():
    said = "lexical: a word-matching baseline, no model"
    found = lexical()
    assert f"judged by {said}" in printed(render_judged_terminal(found, 80)[0])
    assert said in render_judged_markdown(found)
    assert judged_to_dict(found)["about"] == said
    assert any("understands nothing" in line for line in judged_notes(found))
    assert "no model" not in printed(render_judged_terminal(judged(), 80)[0])


def test_texts_are_never_markup():
    found = judged(name=EVIL, stopped=EVIL)
    text = printed(render_judged_terminal(found, 200)[0], 200)
    assert "[red]x[/red]" in text
    assert "\x1b" not in text
    page = render_judged_markdown(found)
    assert "<script>" not in page
    assert r"\*a\*" in page


def test_reasons_are_counted_without_what_differs_from_sample_to_sample():
    columns = {FAITHFULNESS: [math.nan] * 3, PRECISION: [math.nan, 1.0, math.nan]}
    why = {
        (FAITHFULNESS, "a"): "1 of 3 claims has no verdict: the reply has nothing for `a2`",
        (FAITHFULNESS, "b"): "2 of 9 claims have no verdict: the reply has nothing for `a7`",
        (FAITHFULNESS, "c"): "no answer",
        (PRECISION, "a"): "1 of 1 chunk has no verdict: the call failed: 429",
        (PRECISION, "c"): "1 of 1 chunk has no verdict: the call failed: 500",
    }
    found = [
        (one.measure, one.why, one.many, one.example) for one in count_unscored_reasons(scores(columns, "abc", why))
    ]
    assert found == [
        (FAITHFULNESS, "claims without a verdict: the reply has nothing for a claim", 2, "a"),
        (FAITHFULNESS, "no answer", 1, "c"),
        (PRECISION, "chunks without a verdict: the call failed: 429", 1, "a"),
        (PRECISION, "chunks without a verdict: the call failed: 500", 1, "c"),
    ]
    assert generalise_reason("the reply\nis empty") == "the reply is empty"


def test_ids_in_a_reason_are_called_what_they_are():
    why = "what the reply has for `r12` does not count: `k3` supports it alone and only together with others"
    assert generalise_reason(why) == (
        "what the reply has for a claim does not count: a chunk supports it alone and only together with others"
    )
    assert generalise_reason("the reply has `s2` 3 times") == "the reply has a sentence 3 times"


def test_where_nothing_was_retrieved_every_claim_is_absent_from_it_and_listed():
    claims = {"answer": [Claim("a1", "It is high.", 1), Claim("a2", "It is old.", 2)]}
    unread = {"support a2": Unscored("the reply is empty")}
    said = Verdicts("s", asked=("answer",), claims=claims)
    assert [one.state for one in find_unsupported_claims(said, nothing=True)] == ["absent", "absent"]
    assert [one.state for one in find_claim_states(said, "answer")] == ["unscored", "unscored"]
    kept = replace(said, unscored=unread)
    assert [one.state for one in find_claim_states(kept, "answer", nothing=True)] == ["absent", "unscored"]
    found = ragauge.judge(
        [{"id": "s", "question": "How high?", "answer": "It is 38 metres high.", "contexts": []}], ["faithfulness"]
    )
    assert "absent: It is 38 metres high." in printed(render_judged_terminal(found, 80)[0])
    assert "absent: It is 38 metres high." in render_judged_markdown(found)
    assert ",absent," in claims_csv(found)


def test_a_terminal_says_lexical_without_its_hash_and_files_keep_it():
    found = ragauge.judge([{"question": "How high?", "answer": "It is high.", "contexts": ["It is high."]}])
    assert re.fullmatch(r"lexical \[[0-9a-f]{8}\]", found.judge)
    assert "judged by lexical: a word-matching baseline, no model" in printed(render_judged_terminal(found, 80)[0])
    assert judged_to_dict(found)["judge"] == found.judge
    assert found.judge.replace("[", "\\[").replace("]", "\\]") in render_judged_markdown(found)
    assert found.lexical
    assert not replace(found, identity={"chat": "openai"}).lexical


def test_a_reason_that_measures_share_is_told_once():
    found = {one.why: names for names, one in group_shared_reasons(count_unscored_reasons(judged().scores))}
    assert found[MUTE] == [FAITHFULNESS, "context_recall", "answer_relevance"]


@pytest.mark.parametrize(
    ("support", "wanted"),
    [
        (Support(("k1",)), "supported"),
        (Support(("k*",)), "supported"),
        (Support((), ("k3",), together=("k1", "k2")), "supported"),
        (Support(("k2",), ("k1",)), "supported"),
        (Support(("reference",), ("k1",)), "contradicted"),
        (Support(("reference",)), "absent"),
        (Support((), ("reference",)), "absent"),
        (Support(()), "absent"),
        (None, "unscored"),
    ],
)
def test_a_claim_stands_as_the_contexts_have_it_and_not_the_reference(support, wanted):
    assert decide_claim_state(support) == wanted


def test_a_claim_that_was_never_held_against_the_contexts_is_not_absent():
    said = Verdicts("q", ["cross"], {"answer": [Claim("a1", "x", 1)]}, {"a1": Support(("reference",))})
    assert [one.state for one in find_claim_states(said, "answer")] == ["not asked"]
    assert find_unsupported_claims(said) == []


def test_the_worst_come_first_and_the_best_possible_not_at_all():
    found = judged()
    assert find_worst_samples(found, FAITHFULNESS, 5) == [("q2", pytest.approx(1 / 3))]
    assert find_worst_samples(found, PRECISION, 5) == [("q4", 0.0)]


def test_a_mean_of_nothing_is_said_to_be_none():
    nothing = judged(scores=scores({FAITHFULNESS: [math.nan] * 4}, ["q1", "q2", "q3", "q4"]), intervals={})
    assert summarise_judged(nothing) == "Nothing is scored: no sample of 4 has a value of any measure."
    assert "faithfulness     -             -  0 of 4         4" in printed(render_judged_terminal(nothing, 80)[0])
    assert judged_to_dict(nothing)["measures"][FAITHFULNESS]["mean"] is None
    assert sketch_score_distribution(nothing) is None
    assert main_unscored_reason(nothing) == f"{MUTE} (4 samples)"
    assert "no sample has a value of faithfulness, so that there is no mean" in judged_notes(nothing)


def test_sentences_left_out_are_listed_in_every_report():
    found = judged()
    assert judged_to_dict(found)["left_out"] == {"q4": {"answer": ["I do not know."]}}
    assert '1 sentence was left out because it claims nothing: "I do not know." (q4)' in judged_notes(found)
    assert "| q4 | answer | I do not know. |" in re.sub(" +", " ", render_judged_markdown(found))
    several = replace(found, verdicts={"q4": replace(found.verdicts["q4"], left_out={"answer": ["Thanks!"] * 25})})
    assert (
        '25 sentences were left out because they claim nothing, e.g. "Thanks!" (q4); '
        "report.html and `left_out` in the JSON list all"
    ) in judged_notes(several)
    assert "5 more are in the JSON report." in render_judged_markdown(several)


def test_json_says_mean_n_and_reasons_and_has_no_nan():
    data = judged_to_dict(judged(), per_sample=True)
    text = json.dumps(data, allow_nan=False)
    assert json.loads(text) == data
    assert data["measures"][FAITHFULNESS] == {
        "mean": pytest.approx(2 / 3),
        "n": 2,
        "unscored": 2,
        "interval": [0.1, 1.0],
        "reasons": {"the answer claims nothing": 1, MUTE: 1},
        "lower_is_better": False,
    }
    assert data["total"]["cost"] == pytest.approx(0.0333)
    assert data["total"]["p95"] is None
    assert (data["robustness"]["held"], data["robustness"]["moved"], data["robustness"]["wrong_anyway"]) == (1, 1, 1)
    assert data["per_sample"]["q4"]["unscored"][FAITHFULNESS] == "the answer claims nothing"
    assert judged_to_dict(lexical())["robustness"] is None


def test_the_cost_of_all_steps_is_known_only_if_that_of_each_is():
    one = CostStep("claims", 3, 0, 0, 0, 10, 5, 0, 1.0, 1.0, 2.0, 0.5)
    assert sum_cost_steps([one, one]).cost == 1.0
    assert sum_cost_steps([one, one._replace(cost=None)]).cost is None
    assert sum_cost_steps([one, one._replace(cost=None, calls=0)]).cost == 0.5
    assert sum_cost_steps([]).cost is None


def test_the_ledger_leaves_out_what_is_nothing_everywhere():
    free = CostStep("claims", 3, 0, 0, 0, 10, 5, 0, 1.0, 1.0, 2.0, None)
    assert cost_table(judged(ledger=[free])).header == ["step", "calls", "tokens in", "out", "p50 ms", "p95 ms"]


def test_canaries_are_counted_by_where_they_sat():
    assert robustness_table(judged().robustness).rows == [
        ["answer", "1", "0", "0", "1"],
        ["context", "0", "1", "1", "2"],
    ]


def test_an_estimate_adds_up_and_has_no_cost_without_a_price():
    found = [CostEstimate("claims", 400, 120_000, 30_000, 0.3), CostEstimate("support", 200, 500_000, 30_000, 1.3)]
    assert "all        600    620,000  60,000  $1.60" in printed(render_estimate_terminal(found, 80))
    free = [one._replace(cost=None) for one in found]
    assert estimate_to_dict("x", free, {"samples": 2})["total"] == {
        "calls": 600,
        "prompt_tokens": 620_000,
        "completion_tokens": 60_000,
        "cost": None,
        "seconds": None,
    }


def test_csv_has_a_row_for_each_measure_value_and_claim():
    found = judged()
    rows = {row["measure"]: row for row in csv.DictReader(io.StringIO(summary_csv(found)))}
    assert (rows["context_recall"]["low"], rows["context_recall"]["n"]) == ("", "2")
    values = list(csv.DictReader(io.StringIO(scores_csv(found))))
    assert len(values) == 16
    assert sum(row["value"] == "" for row in values) == sum(row["reason"] != "" for row in values) == 6
    claims = {(row["query"], row["claim"]): row for row in csv.DictReader(io.StringIO(claims_csv(found)))}
    assert claims["q2", "a2"]["standing"] == "contradicted"
    assert claims["q1", "a1"]["by"] == "k1 reference"
    assert (claims["q1", "r1"]["by"], claims["q1", "r1"]["together"]) == ("answer", "k1 k2")
    assert claims["q3", "a1"]["standing"] == "unscored"
    assert claims["q3", "a1"]["reason"] == MUTE


def test_bars_count_every_value_once_also_on_the_edges():
    values = np.array([0.0, 0.1, 0.1000001, 0.3, 0.9, 0.91, 1.0])
    counts, edges = histogram_counts(values)
    assert counts.tolist() == [2, 1, 1, 0, 0, 0, 0, 0, 1, 2]
    assert edges[0] == 0
    assert edges[-1] == 1
    below, ends = histogram_counts(np.array([-0.25, 0.5]))
    assert below.sum() == 2
    assert ends[0] == pytest.approx(-0.3)
    for seed in range(5):
        drawn = np.random.default_rng(seed).random(500)
        assert histogram_counts(drawn)[0].tolist() == np.histogram(drawn, bins=10, range=(0, 1))[0].tolist()


def test_the_chart_tells_in_words_what_it_shows():
    pytest.importorskip("altair")
    sketch = sketch_score_distribution(many(50))
    assert sketch is not None
    assert len(sketch.panels) == 2
    assert "answer_relevance: mean" in sketch.alt
    assert "49 of 50 samples" in sketch.alt
