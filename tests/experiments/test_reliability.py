"""Reliability over repeated trials: golden values, enumerated subsets, simulated coverage and saved rankings."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import ragauge
from ragauge.cli.app import build_app
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments import run
from ragauge.experiments.reliability import reliability
from ragauge.experiments.reliability.report import build_report
from ragauge.files.serialization import read_record, to_json
from ragauge.files.trials import read_trials
from ragauge.output.tables import Table
from ragauge.runs import folder as runs_folder
from ragauge.stats.reliability import (
    cochran_q_test,
    compute_reliability,
    default_ks,
    interval_over_tasks,
    interval_over_trials,
    pass_all,
    pass_at,
    trial_agreement,
)

DOCUMENTS = [Document(f"d{i}", f"word{i} and word{i + 1}") for i in range(30)]
QUERIES = {f"q{i}": f"word{i}" for i in range(12)}
DATA = Dataset("small", DOCUMENTS, QUERIES, Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}))


class UnstableSearch:
    """A search that finds the document of query `wordN` in call 1 and in calls that divide N.

    It raises an error once for each (N, call) pair in `fails`.
    """

    def __init__(self, fails=()):
        self.asked: dict[str, int] = {}
        self.fails = set(fails)

    def __call__(self, query, k):
        call = self.asked[query] = self.asked.get(query, 0) + 1
        number = int(query.removeprefix("word"))
        if (number, call) in self.fails:
            self.fails.remove((number, call))
            raise RuntimeError("down")
        return [f"d{number}", f"d{20 + call}"] if call == 1 or number % call == 0 else [f"d{20 + call}"]


# Pass rates


@pytest.mark.parametrize(
    ("n", "c", "k", "expected_at", "expected_all"),
    [(3, 2, 2, 1.0, 1 / 3), (3, 1, 2, 2 / 3, 0.0), (10, 3, 5, 0.9167, 0.0), (5, 5, 5, 1.0, 1.0), (4, 0, 2, 0.0, 0.0)],
)
def test_pass_at_and_pass_all_return_golden_values(n, c, k, expected_at, expected_all):
    assert pass_at(n, c, k)[0] == pytest.approx(expected_at, abs=5e-5)
    assert pass_all(n, c, k)[0] == pytest.approx(expected_all, abs=1e-12)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_and_pass_all_match_enumeration_of_subsets(outcomes, data):
    k = data.draw(st.integers(1, len(outcomes)))
    subsets = list(combinations(outcomes, k))
    n, c = len(outcomes), sum(outcomes)
    assert pass_at(n, c, k)[0] == pytest.approx(np.mean([any(subset) for subset in subsets]), abs=1e-12)
    assert pass_all(n, c, k)[0] == pytest.approx(np.mean([all(subset) for subset in subsets]), abs=1e-12)
    if n > 1:
        agreements = [first == second for first, second in combinations(outcomes, 2)]
        assert trial_agreement(n, c) == pytest.approx(np.mean(agreements), abs=1e-12)


def test_pass_at_and_pass_all_are_exact_for_large_numbers():
    exact = [Fraction(math.comb(1900, k), math.comb(2000, k)) for k in (1, 100, 1000)]
    for k, share in zip((1, 100, 1000), exact, strict=True):
        assert pass_all(2000, 1900, k)[0] == pytest.approx(float(share), rel=1e-12)
        assert pass_at(2000, 100, k)[0] == pytest.approx(float(1 - share), abs=1e-12)
    assert pass_at(10**9, 3, 2)[0] == pytest.approx(6e-9, rel=1e-6)


def test_compute_reliability_accepts_unequal_trial_counts():
    result = compute_reliability({"a": (3, 2), "b": (4, 1)}, [2])
    assert result.pass_at[2].value == pytest.approx((1 + 1 / 2) / 2)
    assert result.pass_all[2].value == pytest.approx((1 / 3 + 0) / 2)
    assert result.trials == (3, 4)


def test_reliability_k_above_number_of_trials_raises_error():
    with pytest.raises(MissingEvidence, match="a: task `few` has 2 trials, but k=3 needs as many") as error:
        reliability({"a": {"many": (5, 1), "few": (2, 1)}}, k=3)
    assert error.value.hint == "use k up to 2, or add trials"
    with pytest.raises(BadInput, match="k must be at least 1, got 0"):
        reliability({"a": [True]}, k=0)


def test_default_ks_lists_every_k_up_to_ten():
    assert default_ks(1) == [1]
    assert default_ks(10) == list(range(1, 11))
    assert default_ks(11) == [1, 2, 5, 10, 11]
    assert list(reliability({"a": (4, 2), "b": (3, 2)}).pass_at) == [1, 2, 3]


def test_reliability_always_flaky_and_never_by_hand():
    result = reliability({"a": [True] * 4, "b": [True, False, True, True], "c": [False] * 4, "d": [True, False] * 2})
    assert (result.always, result.flaky, result.never) == (["a"], ["d", "b"], ["c"])
    assert result.success_rate.value == pytest.approx((1 + 3 / 4 + 0 + 1 / 2) / 4)
    assert result.agreement == pytest.approx((1 + 1 / 2 + 1 + 1 / 3) / 4)
    assert math.isnan(reliability({"a": [True], "b": [False]}).agreement)


# Intervals


@pytest.mark.parametrize(("m", "passed"), [(30, 30), (30, 0), (30, 17), (8, 7), (200, 199)])
def test_interval_over_tasks_binary_values_match_clopper_pearson(m, passed):
    exact = stats.binomtest(passed, m).proportion_ci(0.95)
    values = np.array([[1.0] * passed + [0.0] * (m - passed)])
    low, high = interval_over_tasks(values)
    assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), abs=1e-9)
    low, high = interval_over_tasks(values * (1 - 1e-9))  # not binary, so the Bayesian bootstrap draws weights
    assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), abs=0.01)


def test_reliability_perfect_tasks_have_lower_bound_below_one():
    result = reliability({f"t{i}": (3, 3) for i in range(40)})
    for k in (1, 2, 3):
        assert (result.pass_all[k].value, result.pass_all[k].high) == (1.0, 1.0)
        assert result.pass_all[k].low == pytest.approx(0.025 ** (1 / 40), abs=0.003)
    over_trials = reliability({f"t{i}": (3, 3) for i in range(40)}, over="trials")
    assert over_trials.pass_all[1].low == pytest.approx(0.025 ** (1 / 120), abs=1e-9)
    assert over_trials.pass_all[3].low == pytest.approx(0.025 ** (1 / 40), abs=1e-9)


def mostly_perfect(rng, m):
    return np.where(rng.random(m) < 0.97, 1.0, 0.5)


def skewed(rng, m):
    return rng.beta(2.0, 1.0, m)


def bimodal(rng, m):
    return rng.beta(0.3, 0.3, m)


EXPECTED_POWERS = {
    mostly_perfect: lambda k: 0.97 + 0.03 * 0.5**k,
    skewed: lambda k: 2 / (2 + k),
    bimodal: lambda k: math.prod((0.3 + i) / (0.6 + i) for i in range(k)),
}
"""Expected value of p^k, the moments of the beta distribution."""


@pytest.mark.parametrize("population", EXPECTED_POWERS)
def test_interval_over_tasks_covers_at_nominal_level(population):
    """Simulate 400 sets of 30 tasks with 3 to 5 trials each.

    Nominal coverage is 380 sets (95%); the bound of 370 is lower by 2.3 standard deviations of the simulation.
    """
    rng = np.random.default_rng(11)
    ks = (1, 2, 3)
    covered = dict.fromkeys(ks, 0)
    for seed in range(400):
        n = rng.integers(3, 6, 30)
        c = rng.binomial(n, population(rng, 30))
        low, high = interval_over_tasks(np.stack([pass_all(n, c, k) for k in ks]), rounds=2000, seed=seed)
        for i, k in enumerate(ks):
            covered[k] += low[i] <= EXPECTED_POWERS[population](k) <= high[i]
    assert min(covered.values()) >= 370


def test_interval_over_tasks_covers_where_plain_bootstrap_fails():
    rng = np.random.default_rng(12)
    plain = bayesian = 0
    for seed in range(200):
        values = pass_all(3, rng.binomial(3, mostly_perfect(rng, 30)), 3)[None]
        resampled = values[0][rng.integers(0, 30, (1000, 30))].mean(axis=1)
        plain += np.quantile(resampled, 0.025) <= EXPECTED_POWERS[mostly_perfect](3) <= np.quantile(resampled, 0.975)
        low, high = interval_over_tasks(values, rounds=2000, seed=seed)
        bayesian += bool(low[0] <= EXPECTED_POWERS[mostly_perfect](3) <= high[0])
    assert plain < 130
    assert bayesian > 185


@pytest.mark.parametrize("population", EXPECTED_POWERS)
def test_interval_over_trials_covers_at_nominal_level(population):
    rng = np.random.default_rng(13)
    probabilities, n, ks = population(rng, 20), rng.integers(3, 7, 20), (1, 2, 3)
    covered = np.zeros((2, 3))
    for _ in range(400):
        c = rng.binomial(n, probabilities)
        for row, (values, truth) in enumerate(
            (
                ([pass_at(n, c, k) for k in ks], [np.mean(1 - (1 - probabilities) ** k) for k in ks]),
                ([pass_all(n, c, k) for k in ks], [np.mean(probabilities**k) for k in ks]),
            )
        ):
            low, high = interval_over_trials(np.stack(values), n, ks)
            covered[row] += (low <= np.array(truth) + 1e-12) & (np.array(truth) <= high + 1e-12)
    assert covered.min() >= 370


def test_interval_over_trials_is_narrower_for_differing_tasks():
    counts = {f"t{i}": (5, 5 if i < 50 else 0) for i in range(100)}
    tasks, trials = (compute_reliability(counts, [1], over=over).pass_at[1] for over in ("tasks", "trials"))
    assert trials.high - trials.low < 0.6 * (tasks.high - tasks.low)


def test_pass_all_redrawn_trials_have_biased_mean():
    """A bootstrap of trials within tasks is biased: for 2 of 3 successes it gives 8/27, but pass^3 is 0."""
    redrawn = np.random.default_rng(0).binomial(3, 2 / 3, 100_000)
    assert pass_all(3, redrawn, 3).mean() == pytest.approx(8 / 27, abs=0.01)
    assert pass_all(3, 2, 3)[0] == 0.0


def test_reliability_single_task_interval_matches_clopper_pearson():
    result = reliability({"only": (10, 3)})
    exact = stats.binomtest(3, 10).proportion_ci(0.95)
    assert result.over == "trials"
    assert result.pass_at[5][1:] == pytest.approx((1 - (1 - exact.low) ** 5, 1 - (1 - exact.high) ** 5), abs=1e-9)
    assert result.pass_all[2][1:] == pytest.approx((exact.low**2, exact.high**2), abs=1e-9)
    assert "do not cover other tasks" in result.notes[-1]


@given(
    st.lists(st.tuples(st.integers(3, 6), st.integers(0, 3)), min_size=1, max_size=6),
    st.sampled_from(["tasks", "trials"]),
)
def test_reliability_values_lie_within_intervals(pairs, over):
    result = compute_reliability({str(i): pair for i, pair in enumerate(pairs)}, over=over, rounds=500)
    for pass_rates in (result.pass_at, result.pass_all):
        for figure in pass_rates.values():
            assert 0 <= figure.low <= figure.value <= figure.high <= 1
    assert [estimate.value for estimate in result.pass_at.values()] == sorted(
        estimate.value for estimate in result.pass_at.values()
    )
    assert result.pass_at[1] == pytest.approx(result.pass_all[1], abs=1e-9)


def test_reliability_shared_bad_trial_adds_cochran_q_note():
    assert cochran_q_test(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1]], bool)) == pytest.approx(
        math.exp(-4.5 / 2)
    )
    assert cochran_q_test(np.ones((5, 3), bool)) == 1.0
    rng = np.random.default_rng(3)
    independent = {f"t{i}": (rng.random(3) < 0.7).tolist() for i in range(60)}
    with_bad_trial = {task: [*outcomes[:2], False] for task, outcomes in independent.items()}
    assert reliability(independent).notes == []
    assert "Cochran's Q, p < 0.001" in reliability(with_bad_trial).notes[0]


def test_cochran_q_test_false_alarm_rate_matches_level():
    rng = np.random.default_rng(4)
    alarms = sum(cochran_q_test(rng.random((40, 3)) < 0.6) < 0.05 for _ in range(400))
    assert 8 <= alarms <= 33


def test_reliability_invalid_arguments_raise_error():
    with pytest.raises(UnknownName, match="unknown interval `task`"):
        reliability({"a": [True]}, over="task")
    with pytest.raises(BadInput, match=r"the confidence must be between 0\.5 and 1, got 95"):
        reliability({"a": [True]}, confidence=95)
    with pytest.raises(BadInput, match="cannot be read from int"):
        reliability(3)
    with pytest.raises(BadInput, match="has 6 successes in 3 trials"):
        reliability({"a": (3, 6)})
    with pytest.raises(BadInput, match="task `a` has no trial"):
        reliability({"a": []})
    with pytest.raises(BadInput, match="trial 2 of task `a` has no outcome"):
        reliability({"a": [True, None]})
    with pytest.raises(MissingEvidence, match="no tasks"):
        reliability({})


# Inputs

B_PASSED = '{"task_id":"b","passed":true}\n'
B_TWICE = '{"task":"b","reward":1,"trial":0},{"task":"b","reward":1,"trial":1}]'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "task,trial,success\na,2,no\na,1,yes\nb,1,True\nb,2,pass\n"),
        ("t.tsv", "Query_ID\tseed\tpassed\na\t7\t1\na\t8\t0\nb\t7\t1\nb\t8\t1.0\n"),
        ("t.jsonl", '{"task_id":"a","passed":true,"x":[1]}\n{"task_id":"a","passed":false}\n' + 2 * B_PASSED),
        ("t.json", '[{"task":"a","trial":0,"reward":1.0,"info":{}},{"task":"a","trial":1,"reward":0},' + B_TWICE),
        ("t.json", '{"a": [1, 0], "b": [true, true]}'),
        ("t", "task,success\na,1\na,0\nb,1\nb,1\n"),
    ],
)  # fmt: skip
def test_read_trials_accepts_common_column_names_and_formats(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_trials(str(tmp_path / name)) == {"t": {"a": [True, False], "b": [True, True]}}


def test_reliability_accepts_frames_parquet_and_counts(tmp_path):
    frame = pl.DataFrame({"system": ["x", "x", "y"], "task": [1, 2, 1], "n": [3, 4, 3], "c": [2, 4, 1]})
    frame.write_parquet(tmp_path / "t.parquet")
    for trials in (frame, frame.to_pandas(), tmp_path / "t.parquet"):
        result = reliability(trials, k=2)
        assert {name: dict(entry.counts) for name, entry in result.items()} == {
            "x": {"1": (3, 2), "2": (4, 4)},
            "y": {"1": (3, 1)},
        }
        assert "were tried on different tasks (1 in common)" in result["y"].notes[-1]


def test_reliability_scores_require_threshold(tmp_path):
    (tmp_path / "t.csv").write_text("task,score\na,0.4\na,0.9\n")
    with pytest.raises(BadInput, match=r"t\.csv:2: the outcome of trial 1 of task `a` must be 0 or 1, got 0\.4"):
        reliability(tmp_path / "t.csv")
    assert reliability(tmp_path / "t.csv", success_threshold=0.5).counts == {"a": (2, 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,trial,success\na,1,1\na,1,0\n", "t.csv:3: duplicate trial 1 of task `a`"),
        ("task,success\na,maybe\n", "t.csv:2: the outcome of trial 1 of task `a` must be true or false, got `maybe`"),
        ("task,success\na,1\n,1\n", "t.csv:3: the task is missing"),
        ("task,success\na,1\n\n   ,1\n", "t.csv:4: the task is missing"),
        ("task,agent,success\na,,1\n", "t.csv:2: the system is missing"),
        ("task,trial,success\na,1,1\na,,1\n", "t.csv:3: the trial is missing"),
        (
            'task,said,success\na,"x\ny",1\na,z,maybe\n',
            "t.csv:4: the outcome of trial 2 of task `a` must be true or false, got `maybe`",
        ),
        ("task,score\na,inf\n", "t.csv:2: the outcome of trial 1 of task `a` must be true or false, got `inf`"),
        ("task,n,c\na,3,4\n", "t.csv:2: task `a` has 4 successes in 3 trials"),
        ("task,n,c\na,3,1\na,3,1\n", "t.csv:3: duplicate row of task `a`"),
        ("a,b\n1,2\n", "expected columns for the task and its success; found a, b"),
        ("run,query,measure,value\nx,q,ndcg,1\n", "the column `measure` is ambiguous in a table of trials"),
        ("run,query,success\nx,q,1\n", "the column `run` is ambiguous in a table of trials"),
        ("task,success\n", "no rows"),
    ],
)
def test_reliability_invalid_table_error_names_line(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInput) as error:
        reliability(tmp_path / "t.csv")
    assert message in str(error.value)


def test_reliability_invalid_json_row_error_names_line_or_row(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"task": "a", "success": 1}\n\n{"task": "", "success": 1}\n')
    with pytest.raises(BadInput, match=r"t\.jsonl:3: the task is missing"):
        reliability(tmp_path / "t.jsonl")
    (tmp_path / "t.json").write_text('[{"task": "a", "success": 1}, {"task": null, "success": 1}]')
    with pytest.raises(BadInput, match=r"t\.json: the task of row 2 is missing"):
        reliability(tmp_path / "t.json")
    with pytest.raises(BadInput, match="the trials: the task of row 2 is missing"):
        reliability(pl.DataFrame({"task": ["a", None], "success": [1, 0]}))


def test_reliability_csv_ignores_blank_lines_and_splits_systems(tmp_path):
    (tmp_path / "t.csv").write_text('"task","method","success"\n\na,x,1\n,,\na,y,0\n\n')
    result = reliability(tmp_path / "t.csv")
    assert {name: entry.counts for name, entry in result.items()} == {"x": {"a": (1, 1)}, "y": {"a": (1, 0)}}


def test_reliability_duplicate_task_or_system_key_raises_error():
    with pytest.raises(BadInput, match="duplicate task `1`"):
        reliability({1: [True], "1": [False]})
    with pytest.raises(BadInput, match="duplicate system `1`"):
        reliability({1: {"a": [True]}, "1": {"a": [False]}})


@pytest.mark.parametrize("threshold", ["nan", "inf", "-inf"])
def test_reliability_non_finite_threshold_raises_error(tmp_path, threshold):
    (tmp_path / "t.csv").write_text("task,score\na,0.4\na,0.9\n")
    number = float(threshold)
    run_of_a = {"q1": {"a": 1.0}}
    for call in (
        lambda: reliability(tmp_path / "t.csv", success_threshold=number),
        lambda: reliability({"a": [0.4, 0.9]}, success_threshold=number),
        lambda: reliability(pl.DataFrame({"task": ["a"], "score": [0.4]}), success_threshold=number),
        lambda: reliability([run_of_a, run_of_a], qrels={"q1": {"a": 1}}, success_threshold=number),
    ):
        with pytest.raises(BadInput, match=f"must be a finite number, got {threshold}"):
            call()
    assert isinstance(run_reliability(tmp_path / "t.csv", f"--success-threshold={threshold}").exception, BadInput)


def test_reliability_threshold_with_counts_raises_error():
    assert reliability({"a": (3, 2)}).success == "as stated in the table"
    with pytest.raises(BadInput, match="applies to scores, but task `a` has counts"):
        reliability({"a": (3, 2)}, success_threshold=0.5)


def test_reliability_accepts_numpy_integers():
    for pair in ((3, 2), (np.int64(3), np.int64(2)), (np.int32(3), 2)):
        assert reliability({"a": pair}).counts == {"a": (3, 2)}
    assert reliability({"a": (np.int64(1), np.int64(0))}).counts == reliability({"a": (1, 0)}).counts == {"a": (1, 0)}
    for pair in ((True, False), (np.True_, np.False_), [1, 0], np.array([1, 0])):
        assert reliability({"a": pair}).counts == {"a": (2, 1)}
    for k in (2, np.int64(2), [2], np.array([2])):
        assert list(reliability({"a": (3, 2)}, k=k).pass_at) == [2]
    for k in (1.5, "2", [1.5]):
        with pytest.raises(BadInput, match="k must be an integer or several"):
            reliability({"a": (3, 2)}, k=k)


def test_reliability_threshold_on_lower_is_better_measure_raises_error():
    runs = [{"q1": {"a": 1.0}}, {"q1": {"b": 1.0}}]
    for measure in ("unjudged@10", "rbp_resid"):
        with pytest.raises(BadInput, match="is a lower-is-better measure") as error:
            reliability(runs, qrels={"q1": {"a": 1}}, measure=measure, success_threshold=0.5)
        assert error.value.hint == "use a higher-is-better measure, such as `-m hit_rate@5`"
    assert reliability(runs, qrels={"q1": {"a": 1}}, measure="judged@1").counts == {"q1": (2, 1)}


def test_reliability_runs_are_trials_of_queries():
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    good, bad = {"q1": {"a": 2.0}, "q2": {"b": 2.0}}, {"q1": {"a": 2.0}, "q2": {"x": 2.0}}
    result = reliability({"sure": [good, good], "unsure": [good, bad]}, qrels=qrels)
    assert dict(result["unsure"].counts) == {"q1": (2, 2), "q2": (2, 1)}
    assert result["sure"].success == "hit_rate@5 >= 1"
    assert any("no task changed its outcome" in note for note in result["sure"].notes)
    by_mrr = reliability([good, bad], qrels=qrels, measure="mrr", success_threshold=0.5)
    assert (by_mrr.counts["q2"], by_mrr.success) == ((2, 1), "mrr >= 0.5")
    with pytest.raises(BadInput, match="must be above 0, or every trial succeeds; got 0"):
        reliability([good, bad], qrels=qrels, success_threshold=0)


def test_reliability_missing_queries_count_as_failures_and_are_noted():
    result = ragauge.reliability(
        [{"q1": {"a": 1.0}}, {"q1": {"a": 1.0}, "q2": {"b": 1.0}}], qrels={"q1": ["a"], "q2": ["b"]}
    )
    assert result.counts["q2"] == (2, 1)
    assert "trials, trial 1: lacks 1 of 2 judged queries (q2), which count 0" in result.notes


def test_reliability_queries_without_value_are_omitted_and_noted(tmp_path):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 b 0\n")
    for name in "12":
        (tmp_path / f"{name}.run").write_text("q1 Q0 a 1 1.0 x\nq2 Q0 b 1 1.0 x\n")
    skipping = ragauge.Convention(none="skip")
    runs = [tmp_path / "1.run", tmp_path / "2.run"]
    result = reliability(runs, qrels=tmp_path / "qrels", measure="recall@5", convention=skipping)
    assert result.counts == {"q1": (2, 2)}
    assert "trials: 1 query without a value of recall@5 is left out" in result.notes
    with pytest.raises(MissingEvidence, match="no query of trials has a value of recall@5"):
        reliability(runs, qrels={"q2": {"b": 0}}, measure="recall@5", convention=skipping)


# Saved rankings of repeats


def list_rankings(run):
    return [{query: tuple(docs) for query, docs in trial.nested.items()} for trial in run.trials()]


def test_run_repeats_rankings_are_saved(tmp_path):
    result = run(DATA, {"w": UnstableSearch()}, repeats=3, warmup=0, out=tmp_path, measures=["recall@10"]).runs["w"]
    assert result.repeats.columns == ["query", "repeat", "doc", "rank", "score"]
    assert result.repeats["repeat"].unique().sort().to_list() == [1, 2]
    first, second, third = list_rankings(runs_folder.read_run_folder(tmp_path / "w"))
    assert first["q4"] == ("d4", "d21")
    assert (second["q4"], third["q4"]) == (("d4", "d22"), ("d23",))
    assert (second["q3"], third["q3"]) == (("d22",), ("d3", "d23"))
    reused = run(DATA, {"w": UnstableSearch()}, repeats=3, warmup=0, out=tmp_path, measures=["recall@10"], reuse=True)
    assert any("reused; made" in note for note in reused.notes)
    assert list_rankings(reused.runs["w"]) == [first, second, third]


def test_run_single_repeat_writes_no_repeats_file(tmp_path):
    result = run(DATA, {"w": UnstableSearch()}, warmup=0, out=tmp_path, measures=["recall@10"]).runs["w"]
    assert result.repeats is None
    assert result.trials() == [result]
    assert not (tmp_path / "w" / "repeats.parquet").exists()


def test_reliability_failed_repeat_counts_as_failure(tmp_path):
    run(
        DATA, {"w": UnstableSearch(fails=[(6, 1), (6, 2), (8, 2)])}, repeats=2, warmup=0, out=tmp_path, measures=["mrr"]
    )
    first = runs_folder.read_run_folder(tmp_path / "w").trials()[0]
    assert "q6" not in first.nested
    assert first.timings.filter(pl.col("query") == "q6")["status"].to_list() == ["error"]
    result = reliability(tmp_path / "w")
    assert (result.counts["q6"], result.counts["q8"], result.counts["q2"]) == ((2, 0), (2, 1), (2, 2))
    assert result.n == 12
    all_calls = [(i, call) for i in range(12) for call in (1, 2)]
    options = {"repeats": 2, "warmup": 0, "measures": ["mrr"], "allow_failures": True}
    run(DATA, {"v": UnstableSearch(fails=all_calls)}, out=tmp_path, **options)
    assert reliability(tmp_path / "v").never == list(QUERIES)


def test_run_retrying_failed_queries_keeps_other_repeats(tmp_path):
    system = UnstableSearch(fails=[(6, 2), (8, 1)])
    before = list_rankings(run(DATA, {"w": system}, repeats=3, warmup=0, out=tmp_path, measures=["mrr"]).runs["w"])
    retried = run(DATA, {"w": system}, repeats=3, warmup=0, out=tmp_path, measures=["mrr"], reuse=True)
    assert "w: 2 queries that had failed were run again" in retried.notes
    after = list_rankings(runs_folder.read_run_folder(tmp_path / "w"))
    assert list_rankings(retried.runs["w"]) == after
    assert after[1].pop("q6") == ("d24",)  # the fourth call for this query
    assert after[0].pop("q8") == ("d8", "d24")
    assert after == before


def test_run_interrupted_repeat_resumes_with_saved_rankings(tmp_path):
    expected = list_rankings(run(DATA, {"w": UnstableSearch()}, repeats=3, warmup=0, measures=["mrr"]).runs["w"])
    system = UnstableSearch()
    calls = iter(range(100))

    def interrupted(query, k):
        if next(calls) == 20:
            raise KeyboardInterrupt
        return system(query, k)

    with pytest.raises(KeyboardInterrupt):
        run(DATA, {"w": interrupted}, repeats=3, warmup=0, out=tmp_path, measures=["mrr"])
    run(DATA, {"w": interrupted}, repeats=3, warmup=0, out=tmp_path, measures=["mrr"])
    assert [dict(sorted(trial.items())) for trial in list_rankings(runs_folder.read_run_folder(tmp_path / "w"))] == [
        dict(sorted(trial.items())) for trial in expected
    ]


def test_run_reuse_restores_missing_repeats(tmp_path):
    run(DATA, {"w": UnstableSearch()}, repeats=2, warmup=0, out=tmp_path, measures=["mrr"])
    (tmp_path / "w" / "repeats.parquet").unlink()
    with pytest.raises(MissingEvidence, match="only the rankings of the first trial of w were saved"):
        reliability(tmp_path / "w")
    reused = run(DATA, {"w": UnstableSearch()}, repeats=2, warmup=0, out=tmp_path, measures=["mrr"], reuse=True)
    assert "w: 12 queries whose ranking was not saved were run again" in reused.notes
    assert len(runs_folder.read_run_folder(tmp_path / "w").trials()) == 2


def test_reliability_accepts_experiment():
    result = run(
        DATA, {"w": UnstableSearch(), "sure": lambda q, k: [f"d{q.removeprefix('word')}"]}, repeats=3, warmup=0
    )
    reliabilities = reliability(result)
    assert reliabilities["sure"].pass_all[3].value == 1.0
    assert reliabilities["w"].always == ["q0", "q6"]
    assert reliabilities["w"].pass_at[1].value == pytest.approx((12 + 6 + 4) / 36)


def test_reliability_measure_beyond_k_raises_error_with_reason(tmp_path):
    run(DATA, {"w": UnstableSearch()}, repeats=2, warmup=0, out=tmp_path, k=1, measures=["mrr@1"])
    reason = "no query of w has a value of hit_rate@5: hit_rate@5 is undefined: the run was made with k=1"
    with pytest.raises(MissingEvidence, match=reason):
        reliability(tmp_path / "w")


def test_reliability_real_collection_matches_enumeration(shared, tmp_path):
    folder = shared("cranfield") / "beir"
    data = ragauge.load(folder)
    rng = np.random.default_rng(7)
    ids = [document.id for document in data.documents]
    grades = data.judgments.nested
    by_text = {text: query for query, text in data.queries.items()}

    def lossy(query, k):
        relevant = [doc for doc, grade in grades[by_text[query]].items() if grade > 0 and rng.random() > 0.8]
        return (rng.choice(ids, 4).tolist() + relevant)[:k]

    run(data, {"lossy": lossy}, repeats=4, warmup=0, out=tmp_path)
    result = reliability(tmp_path / "lossy")
    hits = dict.fromkeys(data.queries, 0)
    for trial in runs_folder.read_run_folder(tmp_path / "lossy").trials():
        table = trial.table.filter(pl.col("rank") <= 5)
        for query in data.queries:
            docs = table.filter(pl.col("query") == query)["doc"].to_list()
            hits[query] += any(grades[query].get(doc, 0) > 0 for doc in docs)
    assert {query: c for query, (_, c) in result.counts.items()} == hits
    subsets = [list(combinations([True] * c + [False] * (4 - c), 3)) for c in hits.values()]
    assert result.pass_all[3].value == pytest.approx(
        np.mean([np.mean([all(one) for one in triples]) for triples in subsets])
    )
    assert result.pass_at[3].value == pytest.approx(
        np.mean([np.mean([any(one) for one in triples]) for triples in subsets])
    )


# Report

TRIALS = {
    "agent": {"book": [True, False, True], "cancel": [True, True, True], "<b>pay</b>": [False, False, False]},
    "copy": {"book": (3, 3), "cancel": (3, 3), "<b>pay</b>": (3, 0)},
}


def read_cells(table):
    return [[cell.strip() for cell in row] for row in table.texts()]


def test_reliability_report_shows_pass_rates_stability_and_flaky_tasks():
    content = build_report(reliability(TRIALS, k=[1, 3]), max_flaky_tasks=0)
    assert content.summary == (
        "All 3 trials of a task succeed with probability 0.3333 [0.0084, 0.9057] for agent and 0.6667 [0.0943, 0.9916] "
        "for copy."
    )
    assert [section.id for section in content.select_sections("html")] == ["pass", "stability", "flaky"]
    tables = {block.id: block for section in content.sections for block in section.blocks if isinstance(block, Table)}
    assert read_cells(tables["pass"])[1] == [
        "agent",
        "3",
        "0.6667 [0.0943, 0.9916]",
        "0.3333 [0.0084, 0.9057]",
        "3",
        "3",
    ]
    assert [row[2:5] for row in read_cells(tables["stability"])] == [
        ["1 33.3%", "1 33.3%", "1 33.3%"],
        ["2 66.7%", "0 0%", "1 33.3%"],
    ]
    assert read_cells(tables["flaky"]) == [["book", "2 of 3", "3 of 3"]]
    assert content.notes == [
        "copy: no task changed its outcome between trials; if the system is deterministic, more trials add no evidence",
        "success: as stated in the table; 95% confidence intervals over all tasks of this kind",
    ]


def test_reliability_report_writes_every_format_and_json_round_trips(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    result = reliability(TRIALS)
    files = [tmp_path / f"r.{ending}" for ending in ("html", "json", "csv", "md", "tex")]
    ragauge.report(result, files)
    page, data, rows, markdown, latex = (path.read_text() for path in files)
    assert "&lt;b&gt;pay" not in page  # it is never flaky, so no table lists it
    assert 'id="chart-reliability-pass"' in page
    assert to_json(read_record(files[1])) == to_json(result) == data
    assert rows.splitlines()[0].startswith("system,k,pass_at,pass_at_low,pass_at_high,pass_all,")
    assert len(rows.splitlines()) == 1 + 2 * 3
    assert "| agent | 3 |" in markdown
    assert r"\label{tab:reliability-pass}" in latex
    ragauge.report(result, tmp_path / "tasks.csv", format="tasks")
    assert (tmp_path / "tasks.csv").read_text().splitlines()[3] == "agent,<b>pay</b>,3,0,"


def test_reliability_result_of_several_systems_requires_name():
    result = reliability(TRIALS)
    assert result["copy"].pass_all[3].value == pytest.approx(2 / 3)
    with pytest.raises(BadInput, match="results of 2 systems"):
        _ = result.pass_all


# Command line


def run_reliability(*arguments):
    return CliRunner().invoke(build_app(), ["reliability", *map(str, arguments)])


def test_cli_reliability_run_folders_print_one_table(tmp_path):
    perfect = lambda q, k: [f"d{q.removeprefix('word')}"]  # noqa: E731
    run(DATA, {"w": UnstableSearch(), "sure": perfect}, repeats=3, warmup=0, out=tmp_path, measures=["mrr"])
    process = run_reliability(tmp_path)
    assert process.exit_code == 0
    rows = [line.split() for line in process.stdout.splitlines()]
    header = rows.index(["system", "k", "pass@k", "pass^k", "tasks", "trials"])
    assert rows[header + 1][:3] == ["w", "1", "0.6111"]
    assert rows[header + 4][:2] == ["sure", "1"]
    assert ["q4", "2", "of", "3", "3", "of", "3", "word4"] in rows
    assert "success: hit_rate@5 >= 1; 95% confidence intervals over all tasks of this kind" in process.stderr
    assert "--flaky" not in process.stderr
    assert "`--flaky 10` shows all flaky tasks" in run_reliability(tmp_path, "--flaky", 2).stderr


def test_cli_reliability_runs_with_equal_name_are_trials(tmp_path):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 b 1\n")
    (tmp_path / "1.run").write_text("q1 Q0 a 1 1.0 x\nq2 Q0 b 1 1.0 x\n")
    (tmp_path / "2.run").write_text("q1 Q0 a 1 1.0 x\n")
    files = [tmp_path / "qrels", f"s={tmp_path / '1.run'}", f"s={tmp_path / '2.run'}"]
    process = run_reliability(*files, "--json", "-k", "2")
    result = json.loads(process.stdout)
    assert result["success"] == "hit_rate@5 >= 1"
    assert result["systems"]["s"]["pass_all"]["2"]["value"] == 0.5
    assert result["systems"]["s"]["flaky"] == ["q2"]
    assert result["systems"]["s"]["counts"] == {"q1": [2, 2], "q2": [2, 1]}
    note = "s, trial 2: lacks 1 of 2 judged queries (q2), which count 0"
    assert note in process.stderr
    assert note in result["systems"]["s"]["notes"]
    with_duplicate = run_reliability(files[0], files[1], files[1])
    assert (with_duplicate.exit_code, isinstance(with_duplicate.exception, BadInput)) == (1, True)
    assert "appears more than once" in str(with_duplicate.exception)
    single_run = run_reliability(files[0], files[1], "--json")
    assert json.loads(single_run.stdout)["systems"]["s"]["agreement"] is None
    assert "s: one trial per task" in single_run.stderr


def test_cli_reliability_tables_are_separate_systems(tmp_path):
    (tmp_path / "a.csv").write_text("task,success\nx,1\nx,0\n")
    (tmp_path / "b.csv").write_text("task,n,c\nx,2,2\n")
    result = json.loads(run_reliability(f"first={tmp_path / 'a.csv'}", tmp_path / "b.csv", "--json").stdout)["systems"]
    assert {name: entry["success_rate"]["value"] for name, entry in result.items()} == {"first": 0.5, "b": 1.0}


def test_cli_reliability_table_fits_80_columns_and_escapes_text(tmp_path, monkeypatch):
    name = "dense(embedder=minilm,store=faiss(kind=hnsw))"
    texts = dict.fromkeys(QUERIES, "[bold]why[/bold]\x1b[31m " + "so " * 40)
    data = Dataset("small", DOCUMENTS, texts, DATA.judgments)
    calls = iter(range(36))

    def half(query, k):
        del query
        return [document.id for document in DOCUMENTS[:k]] if next(calls) % 5 < 3 else []

    run(data, {name: half}, repeats=3, warmup=0, workers=1, k=30, out=tmp_path)
    from rich.console import Console

    from ragauge.cli import console

    monkeypatch.setattr(
        console, "stdout_console", lambda: Console(width=80, highlight=False, markup=False, emoji=False)
    )
    process = run_reliability(tmp_path)
    assert max(map(len, process.stdout.splitlines())) <= 80
    assert "[bold]why[/bold]\ufffd[31m so" in process.stdout


def test_cli_reliability_removes_control_characters_from_names(tmp_path):
    rows = [
        "task,system,success",
        *(f'"t\x1b[2J{i}","s\x1b]0;x\x07{j}",{(i + j) % 2}' for i in (1, 2, 2) for j in (1, 2)),
    ]
    (tmp_path / "t.csv").write_text("\n".join([*rows, '"t\x1b[2J1","s\x1b]0;x\x071",1']) + "\n")
    process = run_reliability(tmp_path / "t.csv")
    assert process.exit_code == 0, process.exception
    assert "t\ufffd[2J1" in process.stdout
    assert "s\ufffd]0;x\ufffd1" in process.stdout
    assert not {"\x1b", "\x07"} & set(process.stdout + process.stderr)
