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
from ragauge.reports.overviews import overview
from ragauge.reports.summary import build_cards, summarise_overview
from ragauge.runs.results import Experiment
from ragauge.stats import system_pairs
from ragauge.stats.comparisons import Comparison, Comparisons, ComparisonSettings

CARD_TITLES = ["Which system?", "By how much?", "Is it significant?", "What does it cost?", "Where does it fail?"]


def make_comparison(system, baseline, difference, p, measure="ndcg@10", **more):
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


def make_speed(p95):
    return Speed({"total": Latency.of(np.array([p95 / 2, p95, p95, p95]))}, 12.5, 10, 0, 0)


def make_entry(name, value, p95=None, zeros=2, **more):
    """Build a system summary over ten queries; `zeros` of them have the value 0, the others `value`."""
    values = MeasureDict({"ndcg@10": np.array([0.0] * zeros + [value] * (10 - zeros))}, str)
    no_unscored: MeasureDict = MeasureDict({"ndcg@10": {}}, str)
    scores = Scores(
        name, "default", [f"q{i}" for i in range(10)], values, MeasureDict({"ndcg@10": value}, str), no_unscored
    )
    speed = None if p95 is None else make_speed(p95)
    return SystemSummary(name, {"ndcg@10": Mean(value, 10, value - 0.1, value + 0.1)}, [scores], speed=speed, **more)


def make_overview(entries, baseline=None, rows=(), rival=None, **more):
    by_name = {entry.name: entry for entry in entries}
    comparisons = Comparisons(list(rows), ComparisonSettings(), baseline, list(by_name)) if rows else None
    return Overview("made", by_name, ["ndcg@10"], baseline=baseline, compared=comparisons, rival=rival, **more)


def find_card(result, title):
    return next(card for card in build_cards(result) if card.title == title)


def join_details(card):
    return "; ".join(card.details)


def find_numbers(text):
    return [float(number) for number in re.findall(r"[-+]?\d+(?:\.\d+)?", text)]


# --- summary sentences ---


@pytest.mark.parametrize(
    ("baseline_p95", "p95", "cost"),
    [
        (None, None, ""),
        (2.0, 5.0, "; its p95 latency is 3.00 ms higher (2.5 times as long)"),
        (4.0, 5.0, "; its p95 latency is 1.00 ms higher"),
        (50.0, 5.0, "; its p95 latency is 45.0 ms lower"),
        (5.0, 5.1, "; it has the same p95 latency (5.10 ms)"),
        (None, 5.0, "; its p95 latency is 5.00 ms"),
    ],
)
def test_summary_significant_difference_names_winner_and_cost(baseline_p95, p95, cost):
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    result = make_overview([make_entry("bm25", 0.4, baseline_p95), make_entry("dense", 0.5, p95)], "bm25", [row], row)
    assert summarise_overview(result) == f"dense beats bm25 on ndcg@10 by 0.1000 [0.0400, 0.1600], p < 0.001{cost}."


def test_significance_card_few_differing_queries_is_uncertain():
    row = replace(make_comparison("dense", "bm25", 0.02, 0.01), wins=4, losses=0, ties=36)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.42)], "bm25", [row], row)
    card = find_card(result, "Is it significant?")
    assert (card.value, card.tone) == ("Uncertain, p = 0.010", "doubtful")
    assert "only 4 queries differ, too few for a sign test" in card.details


def test_summary_insignificant_difference_is_doubtful():
    row = make_comparison("dense", "bm25", 0.02, 0.07)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.42)], "bm25", [row], row)
    message = "dense is ahead of bm25, the baseline, on ndcg@10 by 0.0200 [0.0000, 0.0400], p = 0.070"
    assert summarise_overview(result) == f"{message}, which is not significant."
    assert find_card(result, "Is it significant?").value == "No, p = 0.070"
    assert find_card(result, "Is it significant?").tone == "doubtful"


def test_summary_unreliable_times_are_marked_as_in_table():
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    doubtful = {"stated_manifest": {"clock": {"doubts": ["other processes had the CPU for 40% of the time"]}}}
    for marked in (0, 1):
        more = [doubtful if i == marked else {} for i in range(2)]
        entries = [make_entry("bm25", 0.4, 7.77, **more[0]), make_entry("dense", 0.5, 5.0, **more[1])]
        result = make_overview(entries, "bm25", [row], row)
        assert "its p95 latency is 2.77? ms lower" in summarise_overview(result)
        cost = find_card(result, "What does it cost?")
        assert ("?" in cost.value, "bm25 (7.77? ms)" in join_details(cost)) == (marked == 1, marked == 0)


@pytest.mark.parametrize("baseline", [None, "bm25"])
def test_summary_means_differing_by_rounding_are_equal(baseline):
    value = 0.1 + 0.2
    row = replace(make_comparison("dense", "bm25", value - 0.3, 0.9), means=(0.3, value))
    result = make_overview([make_entry("bm25", 0.3), make_entry("dense", value)], baseline, [row], row)
    assert value > 0.3
    assert summarise_overview(result) == "dense and bm25 have the same mean ndcg@10, 0.3000 [0.2000, 0.4000]."
    assert find_card(result, "Which system?").value == "dense = bm25"
    assert find_card(result, "By how much?").value == "Equal"
    assert "%" not in join_details(find_card(result, "By how much?"))


def test_summary_means_only_differing_by_rounding_are_equal():
    result = make_overview([make_entry("bm25", 0.3), make_entry("dense", 0.1 + 0.2)])
    sentence = "dense and bm25 have the same ndcg@10, 0.3000 [0.2000, 0.4000]; only means are known."
    assert summarise_overview(result) == sentence
    assert find_card(result, "By how much?").value == "Equal"


def test_mean_difference_of_rounding_is_zero():
    differences = np.array([0.1, 0.2, -0.3])
    assert differences.sum() != 0
    assert system_pairs._mean_difference(differences) == 0
    assert system_pairs._mean_difference(np.array([0.1, 0.1])) == 0.1
    assert math.isnan(system_pairs._mean_difference(np.array([])))


def test_summary_significance_level_follows_confidence():
    row = make_comparison("dense", "bm25", 0.1, 0.03)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row)
    assert summarise_overview(result).startswith("dense beats bm25")
    assert "which is not significant" in summarise_overview(replace(result, confidence=0.99))


@pytest.mark.parametrize("p", [0.001, 0.3])
def test_summary_best_baseline_is_compared_with_next_best(p):
    worse, worst = make_comparison("dense", "bm25", -0.05, p), make_comparison("slow", "bm25", -0.2, 0.0001)
    entries = [make_entry("slow", 0.2), make_entry("bm25", 0.4), make_entry("dense", 0.35)]
    rival = make_comparison("bm25", "dense", 0.05, p / 3)
    result = make_overview(entries, "bm25", [worst, worse], rival)
    ending = f"ndcg@10 by 0.0500 [0.0150, 0.0850], p = {p:.3f}"  # the p-value corrected for the family of tests
    if p < 0.05:
        assert (
            summarise_overview(result)
            == f"No system beats bm25, the baseline; it is ahead of dense, the next best, on {ending}."
        )
    else:
        assert (
            summarise_overview(result)
            == f"No system is better than bm25, the baseline: next is dense, behind on {ending}."
        )
    assert find_card(result, "By how much?").value == "+0.0500"
    assert "[+0.0150, +0.0850] compared with dense" in join_details(find_card(result, "By how much?"))
    assert find_numbers(join_details(find_card(result, "Is it significant?")))[:3] == [
        3,
        6,
        1,
    ]  # wins, losses and ties of the baseline


def test_summary_without_baseline_compares_best_with_next_best():
    rows = [
        make_comparison("b", "a", 0.1, 0.004),
        make_comparison("c", "a", -0.1, 0.02),
        make_comparison("c", "b", -0.2, 0.001),
    ]
    result = make_overview(
        [make_entry("a", 0.4), make_entry("b", 0.5), make_entry("c", 0.3)],
        None,
        rows,
        make_comparison("b", "a", 0.1, 0.002),
    )
    assert summarise_overview(result) == "b beats a on ndcg@10 by 0.1000 [0.0400, 0.1600], p = 0.004."
    assert join_details(find_card(result, "By how much?")) == "[+0.0400, +0.1600] compared with a (+25.0%)"


def test_summary_lower_is_better_measure_names_lowest():
    row = make_comparison("dense", "bm25", -0.1, 0.002, lower_is_better=True)
    result = make_overview(
        [make_entry("bm25", 0.4), make_entry("dense", 0.3)], "bm25", [row], row, lower_is_better=frozenset({"ndcg@10"})
    )
    assert summarise_overview(result) == "dense beats bm25 on ndcg@10 by 0.1000 [0.0400, 0.1600], p = 0.002."
    assert find_card(result, "By how much?").value == "-0.1000"
    assert find_card(result, "Which system?").value == "dense"
    assert find_card(result, "Where does it fail?").value == "See the queries"


def test_summary_one_system_has_value_and_cost():
    result = make_overview([make_entry("only", 0.5, 7.25)])
    assert summarise_overview(result) == "only has ndcg@10 0.5000 [0.4000, 0.6000]; its p95 latency is 7.25 ms."
    assert [card.title for card in build_cards(result)] == ["How good is it?", *CARD_TITLES[3:]]
    value_card = find_card(result, "How good is it?")
    assert (value_card.value, join_details(value_card)) == (
        "0.5000",
        "ndcg@10 0.5000 [0.4000, 0.6000] over 10 queries, for only",
    )


def test_summary_means_only_is_not_tested():
    entries = {
        name: SystemSummary(name, {"ndcg@10": Mean(value, 50)}) for name, value in (("one", 0.25), ("other", 0.5))
    }
    result = Overview("means", entries, ["ndcg@10"], baseline="one")
    assert summarise_overview(result) == "other has the best ndcg@10, 0.5000; only means are known, nothing is tested."
    assert join_details(find_card(result, "Which system?")) == "ndcg@10 0.5000 over 50 queries"
    assert find_card(result, "By how much?").value == "+0.2500"
    assert find_card(result, "Is it significant?")[1:4] == ("Not tested", ["only means are known"], "doubtful")
    assert find_card(result, "Where does it fail?")[1:3] == ("Unknown", ["only means are known"])
    assert [card.title for card in build_cards(result)] == CARD_TITLES


def test_summary_equal_scores_on_every_query_names_tie():
    row = replace(make_comparison("dense", "bm25", 0.0, 1.0), wins=0, losses=0, ties=10)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.4)], "bm25", [row], row)
    assert summarise_overview(result) == "bm25 and dense have the same ndcg@10 on every query."
    assert find_card(result, "Which system?").value == "bm25 = dense"


def test_summary_nan_mean_has_no_cards():
    result = make_overview([make_entry("only", math.nan)])
    assert summarise_overview(result) == "No system has a value of ndcg@10."
    assert build_cards(result) == []


# --- cards ---


def test_difference_card_has_baseline_and_next_best():
    rows = [make_comparison("b", "a", 0.1, 0.004), make_comparison("c", "a", 0.12, 0.002)]
    entries = [make_entry("a", 0.4), make_entry("b", 0.5), make_entry("c", 0.52)]
    result = make_overview(entries, "a", rows, make_comparison("c", "b", 0.02, 0.6))
    detail = join_details(find_card(result, "By how much?"))
    assert detail.startswith(
        "[+0.0500, +0.1900] compared with a (+30.0%); +0.0200 [+0.0000, +0.0400] compared with b, the next best"
    )


def test_best_system_card_names_winners_by_other_measures():
    first, second = (
        replace(make_entry("a", 0.4), means={"ndcg@10": Mean(0.4, 10, 0.3, 0.5), "mrr": Mean(0.9, 10)}),
        replace(make_entry("b", 0.5), means={"ndcg@10": Mean(0.5, 10, 0.4, 0.6), "mrr": Mean(0.8, 10)}),
    )
    row = make_comparison("b", "a", 0.1, 0.004)
    result = replace(make_overview([first, second], "a", [row], row), measures=["ndcg@10", "mrr"])
    assert join_details(find_card(result, "Which system?")).endswith("best by other measures: mrr: a")
    second_better = replace(second, means={**second.means, "mrr": Mean(0.95, 10)})
    assert join_details(find_card(replace(result, entries={"a": first, "b": second_better}), "Which system?")).endswith(
        "best by all 2 measures"
    )


def test_significance_card_has_test_correction_and_power():
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row)
    card = find_card(result, "Is it significant?")
    assert (card.value, card.tone) == ("Yes, p < 0.001", "good")
    assert join_details(card).startswith("paired t-test, Holm-corrected; ")
    assert find_numbers(join_details(card))[:3] == [6, 3, 1]
    assert {10, 0.123, 80} <= set(find_numbers(join_details(card)))


def test_significance_card_audit_problem_is_doubtful():
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    problem = Finding("judgments", "leak", True, 3, "the answers stand in the questions")
    result = make_overview(
        [make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row, audit=Audit([problem])
    )
    card = find_card(result, "Is it significant?")
    assert card.tone == "doubtful"
    assert join_details(card).endswith("; the audit found 1 problem")


@pytest.mark.parametrize(("problem", "tone"), [(True, "doubtful"), (False, "good")])
def test_significance_card_unjudged_share_counts_only_as_a_problem(problem, tone):
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    finding = Finding("dense", "unjudged", problem, 84, "84% are unjudged", data={"unjudged": 0.84, "top": 10})
    result = make_overview(
        [make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row, audit=Audit([finding])
    )
    card = find_card(result, "Is it significant?")
    assert card.tone == tone
    assert ("84% of the top 10 documents are unjudged" in join_details(card)) == problem


FIELD_LEAK = "metadata `hidden` separates relevant documents from others without using the query"


def make_leaked_overview(*findings):
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    return make_overview(
        [make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row, audit=Audit(list(findings))
    )


def make_leak_finding(check, leak, *ranked_by):
    return Finding("corpus", check, True, 30, f"{leak}: AUC 1", data={"leak": leak, "ranked_by": list(ranked_by)})


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        (make_leak_finding("leaking field", FIELD_LEAK, "dense"), FIELD_LEAK),
        (
            make_leak_finding("leaking score", "dense's scores separate relevant documents from others", "dense"),
            "dense's scores separate relevant documents from others",
        ),
    ],
)
def test_summary_leak_used_by_run_is_unreliable(finding, reason):
    result = make_leaked_overview(Finding("dense", "ties", True, 1, "equal scores"), finding)
    assert summarise_overview(result) == f"Unreliable: {reason}."
    card = find_card(result, "Is it significant?")
    assert (card.value, card.tone, card.target) == ("No, answers leak", "doubtful", "findings")
    assert join_details(card).startswith(f"{reason}; p < 0.001; ")


def test_summary_leak_not_used_by_any_run_is_doubtful():
    names = make_leak_finding("leaking field", "metadata `for` contains the id of the query that a document answers")
    result = make_leaked_overview(make_leak_finding("leaking field", FIELD_LEAK), names)
    sentence = summarise_overview(result)
    assert sentence.startswith(
        f"Doubtful: {FIELD_LEAK} (and 1 more leak), though no run is known to rank by it. dense beats "
    )
    card = find_card(result, "Is it significant?")
    assert (card.value, card.tone) == ("Doubtful", "doubtful")
    used = make_leak_finding("leaking field", "metadata `b` predicts relevance", "dense")
    assert (
        summarise_overview(make_leaked_overview(names, used))
        == "Unreliable: metadata `b` predicts relevance (and 1 more leak)."
    )


def test_significance_card_without_audit_has_not_audited():
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    arguments = [make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row
    assert join_details(find_card(make_overview(*arguments), "Is it significant?")).endswith("; not audited")
    assert "audited" not in join_details(find_card(make_overview(*arguments, audit=Audit([])), "Is it significant?"))


@pytest.mark.slow
def test_report_leak_replaces_summary_in_all_outputs(tmp_path, capsys):
    pytest.importorskip("altair")
    systems = {"swarm": "swarm(graph=knn, prior=hidden, prior_weight=20)", "words": "bm25"}
    data = "synthetic:leaky(documents=120, queries=30)"
    ragauge.run(data, systems, measures=["mrr@5"], k=5, baseline="words", out=tmp_path / "leak")
    command_in(tmp_path, "report")("leak", "-o", "page.html", "-o", "page.md")
    sentence = f"Unreliable: {FIELD_LEAK}"
    print_overview(overview(tmp_path / "leak"))
    assert sentence in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "page.html").read_text()
    as_html = re.sub("`([^`]+)`", r"<code>\1</code>", sentence)
    assert f'<p class="headline">{as_html}' in page
    card = '<div class="answer doubtful"><dt>Is it significant?</dt><dd><strong><a href="#report-findings">'
    assert f"{card}No, answers leak" in page
    assert 'class="answer good"' not in page
    assert (tmp_path / "page.md").read_text().replace("\\", "").split("\n")[2].startswith(sentence)


def test_cost_card_compares_latency_with_baseline():
    row = make_comparison("dense", "bm25", 0.1, 0.0004)
    best = make_entry("dense", 0.5, 40.0, costs={"build_seconds": 12.34})
    result = make_overview([make_entry("bm25", 0.4, 2.0), best], "bm25", [row], row)
    cost = find_card(result, "What does it cost?")
    assert cost.value == "40.0 ms at p95"
    assert join_details(cost).startswith("20 times slower than bm25 (2.00 ms); 40.0 ms at p50; ")
    assert join_details(cost).endswith("; throughput 12 queries/s; built in 12.3 s")
    assert find_card(make_overview([make_entry("a", 0.4)]), "What does it cost?").value == "Not timed"


def test_failure_card_counts_zeros_errors_and_weakest_stratum():
    strata = {
        "kind": [
            StratumMeans("short", 6, {"only": Mean(0.6, 6, 0.5, 0.7)}),
            StratumMeans("long", 5, {"only": Mean(0.1, 5, 0.0, 0.2)}),
            StratumMeans("rare", 4, {"only": Mean(0.0, 4, 0.0, 0.0)}),  # fewer than 5 queries, so not reported
        ]
    }
    system = make_entry("only", 0.5, zeros=3, failed={"q1": "down", "q2": "down"})
    result = make_overview([system], strata=strata, failures={"gone": "not installed"})
    card = find_card(result, "Where does it fail?")
    assert card.value == "3 of 10 queries"
    assert card.tone == "doubtful"
    assert join_details(card) == (
        "ndcg@10 is 0; weakest where kind is long: 0.1000 over 5 queries; "
        "2 queries ended in an error; not run at all: gone"
    )
    equal_strata = {"kind": [StratumMeans("long", 5, {"only": Mean(0.45, 5, 0.3, 0.6)})]}  # includes the overall mean
    assert "weakest" not in join_details(
        find_card(make_overview([make_entry("only", 0.5)], strata=equal_strata), "Where does it fail?")
    )


# --- missing values and ties ---


def test_summary_single_query_has_no_interval_or_p_value():
    row = replace(make_comparison("dense", "bm25", 0.1, math.nan), n=1, ci=(math.nan, math.nan), detectable=math.nan)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row)
    text = " ".join(
        [summarise_overview(result), *(f"{card.value} {join_details(card)}" for card in build_cards(result))]
    )
    assert "nan" not in text
    assert "p = -" not in text


def test_difference_card_equal_systems_has_no_negative_zero():
    row = make_comparison("dense", "bm25", 0.0, 1.0)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.4)], "bm25", [row], row)
    assert (
        "-0.0"
        not in find_card(result, "By how much?").value
        + join_details(find_card(result, "By how much?")).partition("(")[2]
    )


def test_failure_card_without_zero_scores_omits_zero_note():
    card = find_card(make_overview([make_entry("only", 0.5, zeros=0)]), "Where does it fail?")
    assert "is 0" not in join_details(card)


def test_summary_best_mean_losing_on_common_queries_is_not_winner():
    row = make_comparison("dense", "bm25", -0.05, 0.001)  # the means cover other queries than the comparison
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row)
    assert not summarise_overview(result).startswith("dense beats bm25")


def test_summary_p_value_equal_to_level_is_not_significant():
    row = make_comparison("dense", "bm25", 0.1, 0.05)
    result = make_overview([make_entry("bm25", 0.4), make_entry("dense", 0.5)], "bm25", [row], row)
    assert "which is not significant" in summarise_overview(result)


# --- real scores ---


def test_summary_numbers_match_overview():
    n = 30
    judgments = Judgments({f"q{i}": {f"d{i}": 1.0} for i in range(n)})

    def make_run(name, ranks):
        rows = [(f"q{i}", f"x{j}", 20.0 - j) for i, r in enumerate(ranks) for j in range(1, r)]
        rows += [(f"q{i}", f"d{i}", 20.0 - r) for i, r in enumerate(ranks)]
        return Run(pl.DataFrame(rows, ["query", "doc", "score"], orient="row"), name)

    runs = {"a": make_run("a", [1 + i % 4 for i in range(n)]), "b": make_run("b", [1 + i % 2 for i in range(n)])}
    scores = {name: ragauge.evaluate(judgments, make_run, ["mrr@10"]) for name, make_run in runs.items()}
    data = Dataset("small", [], {f"q{i}": f"text {i}" for i in range(n)}, judgments)
    result = overview(Experiment(data, runs, scores, {}, {}, "a", None, [], {}), audited=False, rounds=500)
    row = result.difference("b")
    numbers = [float(number) for number in re.findall(r"-?\d\.\d+", summarise_overview(result))]
    expected = [1 / (1 + i % 2) - 1 / (1 + i % 4) for i in range(n)]
    assert row.difference == pytest.approx(np.mean(expected))
    assert numbers == [*(round(number, 4) for number in (row.difference, *row.ci)), 0.001]
    assert summarise_overview(result).startswith("b beats a on mrr@10 by")
    assert row.p_corrected < 0.001
