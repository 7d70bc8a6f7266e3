"""Report of judged samples: summaries, tables, notes and formats; undefined values are never shown as numbers."""

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
from judged_builder import (
    FAITHFULNESS,
    PRECISION,
    UNREADABLE,
    make_judged,
    make_lexical_judged,
    make_many_judged,
    scores,
)
from ragauge.core.samples import Claim, Sample, Support, Unscored, Verdicts
from ragauge.files.serialization import read_records, to_json, to_json_data
from ragauge.judging.charts import build_score_charts, histogram_counts
from ragauge.judging.claim_states import (
    decide_claim_state,
    find_claim_states,
    find_unsupported_claims,
    find_worst_samples,
)
from ragauge.judging.report import (
    build_cost_table,
    build_estimate_table,
    build_injection_tables,
    build_report,
    build_unscored_table,
    describe_main_unscored_reason,
    summarise_judged,
)
from ragauge.judging.report_tables import build_claims_table, build_scores_table, build_summary_table
from ragauge.judging.results import CostEstimate, CostStep, JudgedSamples, JudgingEstimate, sum_cost_steps
from ragauge.output.csv import render_csv
from ragauge.output.markdown import render_markdown
from ragauge.output.terminal import render_report, render_table
from ragauge.reports.registry import write_results

HOSTILE_TEXT = "[red]x[/red] \x1b[31m| <script>alert(1)</script> `code` *a*"


def print_to_text(renderables, width=80):
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False, emoji=False)
    for renderable in renderables:
        console.print(renderable)
    return console.file.getvalue()


def show_report(found, width=80):
    """Return the report as printed on a terminal, and the columns dropped for lack of width."""
    renderables, dropped = render_report(build_report(found), width)
    return print_to_text(renderables, width), dropped


def test_report_on_80_columns_shows_all_tables():
    text, dropped = show_report(make_judged())
    assert dropped == ["retries"]
    assert max(map(len, text.splitlines())) <= 80
    assert "faithfulness       0.6667  [0.1000, 1.0000]  2 of 4         2" in text
    assert "context_recall     0.5000                 -  2 of 4         2" in text
    assert "the answer contains no claims" in text
    assert "claims       7       1        1      4,200    800  $0.012     850   1,900" in text
    assert "context                    0          1             1         2" in text
    assert "shout    support  context             absent   absent      supported" in text
    assert re.search(r"q2 +0\.3333 +How high is it\? +contradicted: It is made of wood", text)


def test_report_on_narrow_terminal_drops_columns():
    text, dropped = show_report(make_judged(), 60)
    assert dropped == ["cached", "retries", "p50 ms"]
    assert "p95 ms" in text


def test_lexical_judge_is_marked_as_baseline():
    name = "Judged by lexical, a word-matching baseline without a model."
    found = make_lexical_judged()
    for text in (show_report(found)[0], render_markdown([build_report(found)])):
        assert name in text
    assert "without a model" not in show_report(make_judged())[0]


def test_report_texts_are_escaped():
    found = make_judged(name=HOSTILE_TEXT, stopped=HOSTILE_TEXT)
    text, _ = show_report(found, 200)
    assert "[red]x[/red]" in text
    assert "\x1b" not in text
    page = render_markdown([build_report(found)])
    assert "<script>" not in page
    assert r"\*a\*" in page


def test_unscored_reasons_are_counted_by_measure_and_shared():
    columns = {FAITHFULNESS: [math.nan] * 3, PRECISION: [math.nan, 1.0, math.nan]}
    reasons = {
        (FAITHFULNESS, "a"): "a claim has no verdict: the reply was cut off",
        (FAITHFULNESS, "b"): "a claim has no verdict: the reply was cut off",
        (FAITHFULNESS, "c"): "no answer",
        (PRECISION, "a"): "a chunk has no verdict: the call failed: 429",
        (PRECISION, "c"): "no answer",
    }
    found = make_judged(scores=scores(columns, "abc", reasons))
    assert found.measures[FAITHFULNESS].reasons == {
        "a claim has no verdict: the reply was cut off": 2,
        "no answer": 1,
    }
    assert build_unscored_table(found).rows == [
        ["a claim has no verdict: the reply was cut off", 2, FAITHFULNESS, "a"],
        ["no answer", 1, f"{FAITHFULNESS}, {PRECISION}", "c"],
        ["a chunk has no verdict: the call failed: 429", 1, PRECISION, "a"],
    ]


def test_claim_states_empty_contexts_are_absent():
    claims = {"answer": [Claim("a1", "It is high.", 1), Claim("a2", "It is old.", 2)]}
    unreadable = {"support a2": Unscored("the reply is empty")}
    verdicts = Verdicts("s", asked=("answer",), claims=claims)
    empty, full = Sample("s", contexts=()), Sample("s", contexts=("x",))
    assert [claim.state for claim in find_unsupported_claims(empty, verdicts)] == ["absent", "absent"]
    assert [claim.state for claim in find_claim_states(full, verdicts, "answer")] == ["unscored", "unscored"]
    unscored = replace(verdicts, unscored=unreadable)
    assert [claim.state for claim in find_claim_states(empty, unscored, "answer")] == ["absent", "unscored"]
    found = ragauge.judge(
        [{"id": "s", "question": "How high?", "answer": "It is 38 metres high.", "contexts": []}], ["faithfulness"]
    )
    assert "absent: It is 38 metres high." in show_report(found, 200)[0]
    assert "absent: It is 38 metres high." in render_markdown([build_report(found)])
    assert ",absent," in render_csv(build_claims_table(found))


def test_lexical_judge_hash_is_in_provenance_and_data_only():
    found = ragauge.judge([{"question": "How high?", "answer": "It is high.", "contexts": ["It is high."]}])
    assert re.fullmatch(r"lexical \[[0-9a-f]{8}\]", found.judge)
    assert found.judge_name == "lexical"
    assert found.judge not in show_report(found)[0]
    assert to_json_data(found)["judge"] == found.judge
    assert found.judge.replace("[", "\\[").replace("]", "\\]") in render_markdown([build_report(found)])
    assert found.lexical
    assert not replace(found, identity={"chat": "openai"}).lexical


@pytest.mark.parametrize(
    ("support", "state"),
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
def test_decide_claim_state_depends_on_contexts_not_reference(support, state):
    assert decide_claim_state(support) == state


def test_claim_states_without_context_verdict_are_not_absent():
    verdicts = Verdicts("q", ["cross"], {"answer": [Claim("a1", "x", 1)]}, {"a1": Support(("reference",))})
    assert [claim.state for claim in find_claim_states(Sample("q"), verdicts, "answer")] == ["not asked"]
    assert find_unsupported_claims(Sample("q"), verdicts) == []


def test_find_worst_samples_excludes_perfect_scores():
    found = make_judged().scores
    assert find_worst_samples(found, FAITHFULNESS) == [("q2", pytest.approx(1 / 3))]
    assert find_worst_samples(found, PRECISION) == [("q4", 0.0)]


def test_report_without_any_score_has_no_mean():
    no_scores = make_judged(scores=scores({FAITHFULNESS: [math.nan] * 4}, ["q1", "q2", "q3", "q4"]), intervals={})
    assert summarise_judged(no_scores) == "No sample of 4 has a score."
    assert "faithfulness     -       -  0 of 4         4" in show_report(no_scores)[0]
    assert to_json_data(no_scores)["measures"][FAITHFULNESS]["mean"] is None
    assert build_score_charts(no_scores) == {}
    assert describe_main_unscored_reason(no_scores) == f"{UNREADABLE} (4 samples)"
    assert "no sample has a score for faithfulness" in build_report(no_scores).notes


def test_report_lists_sentences_without_claims():
    found = make_judged()
    assert to_json_data(found)["verdicts"]["q4"]["left_out"] == {"answer": ["I do not know."]}
    assert '1 sentence without a claim was excluded: "I do not know." (q4)' in build_report(found).notes
    assert "| q4 | answer | I do not know. |" in render_markdown([build_report(found)])
    many_sentences = replace(
        found, verdicts={"q4": replace(found.verdicts["q4"], left_out={"answer": ["Thanks!"] * 25})}
    )
    assert (
        '25 sentences without a claim were excluded, e.g. "Thanks!" (q4); '
        "report.html and `left_out` in verdicts.jsonl list all"
    ) in build_report(many_sentences).notes
    assert "5 more are in \\`left_out\\` of the verdicts." in render_markdown([build_report(many_sentences)])


def test_judged_samples_json_has_means_counts_and_no_nan():
    data = json.loads(to_json(make_judged()))
    assert data["schema"] == "ragauge-judged/1"
    assert data["measures"][FAITHFULNESS] == {
        "mean": pytest.approx(2 / 3),
        "n": 2,
        "unscored": 2,
        "interval": [0.1, 1.0],
        "reasons": {"the answer contains no claims": 1, UNREADABLE: 1},
        "lower_is_better": False,
    }
    assert data["total"]["cost"] == pytest.approx(0.0333)
    assert data["total"]["p95"] is None
    assert [attempt["resisted"] for attempt in data["robustness"]] == [True, False, None]
    assert data["scores"]["unscored"][FAITHFULNESS]["q4"] == "the answer contains no claims"
    assert data["samples"][1]["labels"] == {FAITHFULNESS: 0.0}


def test_write_results_judged_samples_round_trip_in_every_format(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    found = make_judged()
    write_results(
        [found], [str(tmp_path / f"judged.{extension}") for extension in ("html", "json", "csv", "md", "tex")]
    )
    (restored,) = read_records(tmp_path / "judged.json")
    assert isinstance(restored, JudgedSamples)
    assert to_json(restored) == to_json(found) == (tmp_path / "judged.json").read_text(encoding="utf-8")
    assert restored.samples == found.samples
    assert render_markdown([build_report(restored)]) == (tmp_path / "judged.md").read_text(encoding="utf-8")
    assert r"faithfulness" in (tmp_path / "judged.tex").read_text(encoding="utf-8")


def test_sum_cost_steps_is_none_if_any_cost_is_unknown():
    step = CostStep("claims", 3, 0, 0, 0, 10, 5, 0, 1.0, 1.0, 2.0, 0.5)
    assert sum_cost_steps([step, step]).cost == 1.0
    assert sum_cost_steps([step, step._replace(cost=None)]).cost is None
    assert sum_cost_steps([step, step._replace(cost=None, calls=0)]).cost == 0.5
    assert sum_cost_steps([]).cost is None


def test_cost_table_omits_columns_without_values():
    free = CostStep("claims", 3, 0, 0, 0, 10, 5, 0, 1.0, 1.0, 2.0, None)
    titles = [column.title for column in build_cost_table(make_judged(ledger=[free])).columns]
    assert titles == ["step", "calls", "tokens in", "out", "p50 ms", "p95 ms"]
    zero_cost_titles = [
        column.title for column in build_cost_table(make_judged(ledger=[free._replace(cost=0.0)])).columns
    ]
    assert "cost" in zero_cost_titles


def test_prompt_injections_are_counted_by_location():
    by_location, successes = build_injection_tables(make_judged().robustness)
    assert by_location.rows == [["answer", 1, 0, 0, 1], ["context", 0, 1, 1, 2]]
    assert successes.rows == [["shout", "support", "context", "absent", "absent", "supported"]]


def test_judging_estimate_totals_have_no_cost_without_price():
    steps = [CostEstimate("claims", 400, 120_000, 30_000, 0.3), CostEstimate("support", 200, 500_000, 30_000, 1.3)]
    assert "all        600    620,000  60,000  $1.60" in print_to_text(
        [render_table(build_estimate_table(steps), 80)[0]]
    )
    free = JudgingEstimate("x", 2, [FAITHFULNESS], [step._replace(cost=None) for step in steps])
    assert to_json_data(free)["total"] == {
        "step": "all",
        "calls": 600,
        "prompt_tokens": 620_000,
        "completion_tokens": 60_000,
        "cost": None,
        "seconds": None,
    }


def test_judged_samples_csv_has_row_per_measure_value_and_claim():
    found = make_judged()
    rows = {row["measure"]: row for row in csv.DictReader(io.StringIO(render_csv(build_summary_table(found))))}
    assert (rows["context_recall"]["low"], rows["context_recall"]["n"]) == ("", "2")
    values = list(csv.DictReader(io.StringIO(render_csv(build_scores_table(found)))))
    assert len(values) == 16
    assert sum(row["value"] == "" for row in values) == sum(row["reason"] != "" for row in values) == 6
    rows = csv.DictReader(io.StringIO(render_csv(build_claims_table(found))))
    claims = {(row["query"], row["claim"]): row for row in rows}
    assert claims["q2", "a2"]["state"] == "contradicted"
    assert claims["q1", "a1"]["by"] == "k1 reference"
    assert (claims["q1", "r1"]["by"], claims["q1", "r1"]["together"]) == ("answer", "k1 k2")
    assert claims["q3", "a1"]["state"] == "unscored"
    assert claims["q3", "a1"]["reason"] == UNREADABLE


def test_histogram_counts_edges_once():
    values = np.array([0.0, 0.1, 0.1000001, 0.3, 0.9, 0.91, 1.0])
    counts, edges = histogram_counts(values)
    assert counts.tolist() == [2, 1, 1, 0, 0, 0, 0, 0, 1, 2]
    assert edges[0] == 0
    assert edges[-1] == 1
    negative_counts, negative_edges = histogram_counts(np.array([-0.25, 0.5]))
    assert negative_counts.sum() == 2
    assert negative_edges[0] == pytest.approx(-0.3)
    for seed in range(5):
        random_values = np.random.default_rng(seed).random(500)
        assert (
            histogram_counts(random_values)[0].tolist()
            == np.histogram(random_values, bins=10, range=(0, 1))[0].tolist()
        )


def test_score_charts_alt_text_describes_values():
    pytest.importorskip("altair")
    chart = build_score_charts(make_many_judged(50))["scores"]
    assert len(chart.panels) == 2
    assert "answer_relevance: mean" in chart.alt
    assert "49 of 50 samples" in chart.alt
