"""Summaries and cards of overviews: the sentence for each case, and numbers that match the overview."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import ragauge
from command import command_in
from ragauge.cli.report import print_overview
from ragauge.comparison.results import Overview, StratumMeans, SystemSummary
from ragauge.core.findings import Audit, Finding
from ragauge.core.records import Dataset, Judgments, MeasureDict, Run, Scores
from ragauge.core.summaries import Latency, Mean, Speed
from ragauge.reports import overview
from ragauge.reports.summary import build_cards, summarise_overview
from ragauge.runs.results import Experiment
from ragauge.stats import system_pairs
from ragauge.stats.comparisons import Comparison, Comparisons, ComparisonSettings

QUESTIONS = ["Which system?", "By how much?", "Is it significant?", "What does it cost?", "Where does it fail?"]


def compared(system, baseline, difference, p, measure="ndcg@10", **more):
    """Build a comparison over ten queries with a baseline mean of 0.4."""
    half = abs(difference) / 2 + 0.01
    return Comparison(
        measure,
        baseline,
        system,
        10,
        (0.4, 0.4 + difference),
        difference,
        (difference - half, difference + half),
        *(p / 2, p / 2, p / 2, p / 2, p),
        *(0.5, 0.1),
        *(6, 3, 1),
        0.123,
        **more,
    )


def timed(p95):
    return Speed({"total": Latency.of(np.array([p95 / 2, p95, p95, p95]))}, 12.5, 10, 0, 0)


def entry(name, value, p95=None, zeros=2, **more):
    """Build a system summary over ten queries; `zeros` of them have the value 0, the others `value`."""
    values = MeasureDict({"ndcg@10": np.array([0.0] * zeros + [value] * (10 - zeros))}, str)
    nothing: MeasureDict = MeasureDict({"ndcg@10": {}}, str)
    scores = Scores(
        name, "default", [f"q{i}" for i in range(10)], values, MeasureDict({"ndcg@10": value}, str), nothing
    )
    speed = None if p95 is None else timed(p95)
    return SystemSummary(name, {"ndcg@10": Mean(value, 10, value - 0.1, value + 0.1)}, [scores], speed=speed, **more)


def made(entries, baseline=None, rows=(), rival=None, **more):
    known = {one.name: one for one in entries}
    found = Comparisons(list(rows), ComparisonSettings(), baseline, list(known)) if rows else None
    return Overview("made", known, ["ndcg@10"], baseline=baseline, compared=found, rival=rival, **more)


def answer(found, question):
    return next(one for one in build_cards(found) if one.title == question)


def detail_of(card):
    return "; ".join(card.details)


def figures(text):
    return [float(one) for one in re.findall(r"[-+]?\d+(?:\.\d+)?", text)]


# --- summary sentences ---


@pytest.mark.parametrize(
    ("theirs", "mine", "cost"),
    [
        (None, None, ""),
        (2.0, 5.0, "; it costs 3.00 ms more at p95 (2.5 times as long)"),
        (4.0, 5.0, "; it costs 1.00 ms more at p95"),
        (50.0, 5.0, "; it costs 45.0 ms less at p95"),
        (5.0, 5.1, "; it has the same p95 latency (5.10 ms)"),
        (None, 5.0, "; it takes 5.00 ms at p95"),
    ],
)
def test_summary_significant_difference_names_winner_and_cost(theirs, mine, cost):
    row = compared("dense", "bm25", 0.1, 0.0004)
    found = made([entry("bm25", 0.4, theirs), entry("dense", 0.5, mine)], "bm25", [row], row)
    assert summarise_overview(found) == f"dense beats bm25 on ndcg@10 by 0.1000 [0.0400, 0.1600], p < 0.001{cost}."


def test_summary_insignificant_difference_is_doubtful():
    row = compared("dense", "bm25", 0.02, 0.07)
    found = made([entry("bm25", 0.4), entry("dense", 0.42)], "bm25", [row], row)
    told = "dense is ahead of bm25, the baseline, on ndcg@10 by 0.0200 [0.0000, 0.0400], p = 0.070"
    assert summarise_overview(found) == f"{told}, which is not significant."
    assert answer(found, "Is it significant?").value == "No, p = 0.070"
    assert answer(found, "Is it significant?").tone == "doubtful"


@pytest.mark.parametrize("baseline", [None, "bm25"])
def test_summary_means_differing_by_rounding_are_equal(baseline):
    value = 0.1 + 0.2
    row = replace(compared("dense", "bm25", value - 0.3, 0.9), means=(0.3, value))
    found = made([entry("bm25", 0.3), entry("dense", value)], baseline, [row], row)
    assert value > 0.3
    assert summarise_overview(found) == "dense and bm25 have the same mean ndcg@10, 0.3000 [0.2000, 0.4000]."
    assert answer(found, "Which system?").value == "dense = bm25"
    assert answer(found, "By how much?").value == "Equal"
    assert "%" not in detail_of(answer(found, "By how much?"))


def test_summary_means_only_differing_by_rounding_are_equal():
    found = made([entry("bm25", 0.3), entry("dense", 0.1 + 0.2)])
    words = "dense and bm25 have the same ndcg@10, 0.3000 [0.2000, 0.4000]; only means are known."
    assert summarise_overview(found) == words
    assert answer(found, "By how much?").value == "Equal"


def test_mean_difference_of_rounding_is_zero():
    gap = np.array([0.1, 0.2, -0.3])
    assert gap.sum() != 0
    assert system_pairs._mean_difference(gap) == 0
    assert system_pairs._mean_difference(np.array([0.1, 0.1])) == 0.1
    assert math.isnan(system_pairs._mean_difference(np.array([])))


def test_summary_significance_level_follows_confidence():
    row = compared("dense", "bm25", 0.1, 0.03)
    found = made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row)
    assert summarise_overview(found).startswith("dense beats bm25")
    assert "which is not significant" in summarise_overview(replace(found, confidence=0.99))


@pytest.mark.parametrize("p", [0.001, 0.3])
def test_summary_best_baseline_is_compared_with_next_best(p):
    worse, worst = compared("dense", "bm25", -0.05, p), compared("slow", "bm25", -0.2, 0.0001)
    entries = [entry("slow", 0.2), entry("bm25", 0.4), entry("dense", 0.35)]
    rival = compared("bm25", "dense", 0.05, p / 3)
    found = made(entries, "bm25", [worst, worse], rival)
    gap = f"ndcg@10 by 0.0500 [0.0150, 0.0850], p = {p:.3f}"  # the p-value corrected for the family of tests
    if p < 0.05:
        assert (
            summarise_overview(found)
            == f"No system beats bm25, the baseline; it is ahead of dense, the next best, on {gap}."
        )
    else:
        assert (
            summarise_overview(found) == f"No system is better than bm25, the baseline: next is dense, behind on {gap}."
        )
    assert answer(found, "By how much?").value == "+0.0500"
    assert "[+0.0150, +0.0850] compared with dense" in detail_of(answer(found, "By how much?"))
    assert figures(detail_of(answer(found, "Is it significant?")))[:3] == [
        3,
        6,
        1,
    ]  # wins, losses and ties of the baseline


def test_summary_without_baseline_compares_best_with_next_best():
    rows = [compared("b", "a", 0.1, 0.004), compared("c", "a", -0.1, 0.02), compared("c", "b", -0.2, 0.001)]
    found = made([entry("a", 0.4), entry("b", 0.5), entry("c", 0.3)], None, rows, compared("b", "a", 0.1, 0.002))
    assert summarise_overview(found) == "b beats a on ndcg@10 by 0.1000 [0.0400, 0.1600], p = 0.004."
    assert detail_of(answer(found, "By how much?")) == "[+0.0400, +0.1600] compared with a (+25.0%)"


def test_summary_lower_is_better_measure_names_lowest():
    row = compared("dense", "bm25", -0.1, 0.002, lower_is_better=True)
    found = made([entry("bm25", 0.4), entry("dense", 0.3)], "bm25", [row], row, lower_is_better=frozenset({"ndcg@10"}))
    assert summarise_overview(found) == "dense beats bm25 on ndcg@10 by 0.1000 [0.0400, 0.1600], p = 0.002."
    assert answer(found, "By how much?").value == "-0.1000"
    assert answer(found, "Which system?").value == "dense"
    assert answer(found, "Where does it fail?").value == "See the queries"


def test_summary_one_system_has_value_and_cost():
    found = made([entry("only", 0.5, 7.25)])
    assert summarise_overview(found) == "only has ndcg@10 0.5000 [0.4000, 0.6000]; it takes 7.25 ms at p95."
    assert [one.title for one in build_cards(found)] == ["How good is it?", *QUESTIONS[3:]]
    good = answer(found, "How good is it?")
    assert (good.value, detail_of(good)) == ("0.5000", "ndcg@10 0.5000 [0.4000, 0.6000] over 10 queries, for only")


def test_summary_means_only_is_not_tested():
    entries = {
        name: SystemSummary(name, {"ndcg@10": Mean(value, 50)}) for name, value in (("one", 0.25), ("other", 0.5))
    }
    found = Overview("means", entries, ["ndcg@10"], baseline="one")
    assert summarise_overview(found) == "other has the best ndcg@10, 0.5000; only means are known, nothing is tested."
    assert detail_of(answer(found, "Which system?")) == "ndcg@10 0.5000 over 50 queries"
    assert answer(found, "By how much?").value == "+0.2500"
    assert answer(found, "Is it significant?")[1:4] == ("Not tested", ["only means are known"], "doubtful")
    assert answer(found, "Where does it fail?")[1:3] == ("Unknown", ["only means are known"])
    assert [one.title for one in build_cards(found)] == QUESTIONS


def test_summary_equal_scores_on_every_query_names_tie():
    row = replace(compared("dense", "bm25", 0.0, 1.0), wins=0, losses=0, ties=10)
    found = made([entry("bm25", 0.4), entry("dense", 0.4)], "bm25", [row], row)
    assert summarise_overview(found) == "bm25 and dense have the same ndcg@10 on every query."
    assert answer(found, "Which system?").value == "bm25 = dense"


def test_summary_nan_mean_has_no_cards():
    found = made([entry("only", math.nan)])
    assert summarise_overview(found) == "No system has a value of ndcg@10."
    assert build_cards(found) == []


# --- cards ---


def test_difference_card_has_baseline_and_next_best():
    rows = [compared("b", "a", 0.1, 0.004), compared("c", "a", 0.12, 0.002)]
    entries = [entry("a", 0.4), entry("b", 0.5), entry("c", 0.52)]
    found = made(entries, "a", rows, compared("c", "b", 0.02, 0.6))
    detail = detail_of(answer(found, "By how much?"))
    assert detail.startswith(
        "[+0.0500, +0.1900] compared with a (+30.0%); +0.0200 [+0.0000, +0.0400] compared with b, the next best"
    )


def test_best_system_card_names_winners_by_other_measures():
    one, other = (
        replace(entry("a", 0.4), means={"ndcg@10": Mean(0.4, 10, 0.3, 0.5), "mrr": Mean(0.9, 10)}),
        replace(entry("b", 0.5), means={"ndcg@10": Mean(0.5, 10, 0.4, 0.6), "mrr": Mean(0.8, 10)}),
    )
    row = compared("b", "a", 0.1, 0.004)
    found = replace(made([one, other], "a", [row], row), measures=["ndcg@10", "mrr"])
    assert detail_of(answer(found, "Which system?")).endswith("best by other measures: mrr: a")
    same = replace(other, means={**other.means, "mrr": Mean(0.95, 10)})
    assert detail_of(answer(replace(found, entries={"a": one, "b": same}), "Which system?")).endswith(
        "best by all 2 measures"
    )


def test_significance_card_has_test_correction_and_power():
    row = compared("dense", "bm25", 0.1, 0.0004)
    found = made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row)
    real = answer(found, "Is it significant?")
    assert (real.value, real.tone) == ("Yes, p < 0.001", "good")
    assert detail_of(real).startswith("paired t-test, Holm-corrected; ")
    assert figures(detail_of(real))[:3] == [6, 3, 1]
    assert {10, 0.123, 80} <= set(figures(detail_of(real)))


def test_significance_card_audit_problem_is_doubtful():
    row = compared("dense", "bm25", 0.1, 0.0004)
    problem = Finding("judgments", "leak", True, 3, "the answers stand in the questions")
    found = made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row, audit=Audit([problem]))
    real = answer(found, "Is it significant?")
    assert real.tone == "doubtful"
    assert detail_of(real).endswith("; the audit found 1 problem")


FIELD = "metadata `hidden` separates relevant documents from others without using the query"


def leaked(*findings):
    row = compared("dense", "bm25", 0.1, 0.0004)
    return made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row, audit=Audit(list(findings)))


def leaking(what, leak, *ranked_by):
    return Finding("corpus", what, True, 30, f"{leak}: AUC 1", data={"leak": leak, "ranked_by": list(ranked_by)})


@pytest.mark.parametrize(
    ("finding", "why"),
    [
        (leaking("leaking field", FIELD, "dense"), FIELD),
        (
            leaking("leaking score", "dense's scores separate relevant documents from others", "dense"),
            "dense's scores separate relevant documents from others",
        ),
    ],
)
def test_summary_leak_used_by_run_is_unreliable(finding, why):
    found = leaked(Finding("dense", "ties", True, 1, "equal scores"), finding)
    assert summarise_overview(found) == f"Unreliable: {why}."
    real = answer(found, "Is it significant?")
    assert (real.value, real.tone, real.target) == ("No, answers leak", "doubtful", "findings")
    assert detail_of(real).startswith(f"{why}; p < 0.001; ")


def test_summary_leak_not_used_by_any_run_is_doubtful():
    names = leaking("leaking field", "metadata `for` contains the id of the query that a document answers")
    found = leaked(leaking("leaking field", FIELD), names)
    said = summarise_overview(found)
    assert said.startswith(f"Doubtful: {FIELD} (and 1 more leak), though no run is known to rank by it. dense beats ")
    real = answer(found, "Is it significant?")
    assert (real.value, real.tone) == ("Doubtful", "doubtful")
    used = leaking("leaking field", "metadata `b` predicts relevance", "dense")
    assert summarise_overview(leaked(names, used)) == "Unreliable: metadata `b` predicts relevance (and 1 more leak)."


def test_significance_card_without_audit_has_not_audited():
    row = compared("dense", "bm25", 0.1, 0.0004)
    known = [entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row
    assert detail_of(answer(made(*known), "Is it significant?")).endswith("; not audited")
    assert "audited" not in detail_of(answer(made(*known, audit=Audit([])), "Is it significant?"))


@pytest.mark.slow
def test_report_leak_replaces_summary_in_all_outputs(tmp_path, capsys):
    pytest.importorskip("altair")
    systems = {"swarm": "swarm(graph=knn, prior=hidden, prior_weight=20)", "words": "bm25"}
    data = "synthetic:leaky(documents=120, queries=30)"
    ragauge.run(data, systems, measures=["mrr@5"], k=5, baseline="words", out=tmp_path / "leak")
    command_in(tmp_path, "report")("leak", "-o", "page.html", "-o", "page.md")
    said = f"Unreliable: {FIELD}"
    print_overview(overview(tmp_path / "leak"))
    assert said in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "page.html").read_text()
    as_html = re.sub("`([^`]+)`", r"<code>\1</code>", said)
    assert f'<p class="headline">{as_html}' in page
    card = '<div class="answer doubtful"><dt>Is it significant?</dt><dd><strong><a href="#report-findings">'
    assert f"{card}No, answers leak" in page
    assert 'class="answer good"' not in page
    assert (tmp_path / "page.md").read_text().replace("\\", "").split("\n")[2].startswith(said)


def test_cost_card_compares_latency_with_baseline():
    row = compared("dense", "bm25", 0.1, 0.0004)
    best = entry("dense", 0.5, 40.0, costs={"build_seconds": 12.34})
    found = made([entry("bm25", 0.4, 2.0), best], "bm25", [row], row)
    cost = answer(found, "What does it cost?")
    assert cost.value == "40.0 ms at p95"
    assert detail_of(cost).startswith("20 times slower than bm25 (2.00 ms); 40.0 ms at p50; ")
    assert detail_of(cost).endswith("; throughput 12 queries/s; built in 12.3 s")
    assert answer(made([entry("a", 0.4)]), "What does it cost?").value == "Not timed"


def test_failure_card_counts_zeros_errors_and_weakest_stratum():
    strata = {
        "kind": [
            StratumMeans("short", 6, {"only": Mean(0.6, 6, 0.5, 0.7)}),
            StratumMeans("long", 5, {"only": Mean(0.1, 5, 0.0, 0.2)}),
            StratumMeans("rare", 4, {"only": Mean(0.0, 4, 0.0, 0.0)}),  # fewer than 5 queries, so not reported
        ]
    }
    one = entry("only", 0.5, zeros=3, failed={"q1": "down", "q2": "down"})
    found = made([one], strata=strata, failures={"gone": "not installed"})
    fails = answer(found, "Where does it fail?")
    assert fails.value == "3 of 10 queries"
    assert fails.tone == "doubtful"
    assert detail_of(fails) == (
        "ndcg@10 is 0; weakest where kind is long: 0.1000 over 5 queries; "
        "2 queries ended in an error; not run at all: gone"
    )
    calm = {"kind": [StratumMeans("long", 5, {"only": Mean(0.45, 5, 0.3, 0.6)})]}  # includes the overall mean
    assert "weakest" not in detail_of(answer(made([entry("only", 0.5)], strata=calm), "Where does it fail?"))


# --- missing values and ties ---


def test_summary_single_query_has_no_interval_or_p_value():
    row = replace(compared("dense", "bm25", 0.1, math.nan), n=1, ci=(math.nan, math.nan), detectable=math.nan)
    found = made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row)
    told = " ".join([summarise_overview(found), *(f"{one.value} {detail_of(one)}" for one in build_cards(found))])
    assert "nan" not in told
    assert "p = -" not in told


def test_difference_card_equal_systems_has_no_negative_zero():
    row = compared("dense", "bm25", 0.0, 1.0)
    found = made([entry("bm25", 0.4), entry("dense", 0.4)], "bm25", [row], row)
    assert (
        "-0.0" not in answer(found, "By how much?").value + detail_of(answer(found, "By how much?")).partition("(")[2]
    )


def test_failure_card_without_zero_scores_omits_zero_note():
    fails = answer(made([entry("only", 0.5, zeros=0)]), "Where does it fail?")
    assert "is 0" not in detail_of(fails)


def test_summary_best_mean_losing_on_common_queries_is_not_winner():
    row = compared("dense", "bm25", -0.05, 0.001)  # the means cover other queries than the comparison
    found = made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row)
    assert not summarise_overview(found).startswith("dense beats bm25")


def test_summary_p_value_equal_to_level_is_not_significant():
    row = compared("dense", "bm25", 0.1, 0.05)
    found = made([entry("bm25", 0.4), entry("dense", 0.5)], "bm25", [row], row)
    assert "which is not significant" in summarise_overview(found)


# --- real scores ---


def test_summary_numbers_match_overview():
    n = 30
    judgments = Judgments({f"q{i}": {f"d{i}": 1.0} for i in range(n)})

    def run(name, ranks):
        rows = [(f"q{i}", f"x{j}", 20.0 - j) for i, r in enumerate(ranks) for j in range(1, r)]
        rows += [(f"q{i}", f"d{i}", 20.0 - r) for i, r in enumerate(ranks)]
        return Run(pl.DataFrame(rows, ["query", "doc", "score"], orient="row"), name)

    runs = {"a": run("a", [1 + i % 4 for i in range(n)]), "b": run("b", [1 + i % 2 for i in range(n)])}
    scores = {name: ragauge.evaluate(judgments, one, ["mrr@10"]) for name, one in runs.items()}
    data = Dataset("small", [], {f"q{i}": f"text {i}" for i in range(n)}, judgments)
    found = overview(Experiment(data, runs, scores, {}, {}, "a", None, [], {}), audited=False, rounds=500)
    row = found.difference("b")
    figures = [float(one) for one in re.findall(r"-?\d\.\d+", summarise_overview(found))]
    by_hand = [1 / (1 + i % 2) - 1 / (1 + i % 4) for i in range(n)]
    assert row.difference == pytest.approx(np.mean(by_hand))
    assert figures == [*(round(one, 4) for one in (row.difference, *row.ci)), 0.001]
    assert summarise_overview(found).startswith("b beats a on mrr@10 by")
    assert row.p_corrected < 0.001
