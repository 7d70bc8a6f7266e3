"""Calibration: judges with known verdicts against labels; agreement, biases, corrected means, notes and costs."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
import sklearn.metrics as sk

import literal_judge
import ragauge
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.samples import Sample, Support, Unscored
from ragauge.datasets.labelled_answers import LabelledDataset
from ragauge.files.json_schemas import json_schema
from ragauge.files.serialization import read_records, to_json
from ragauge.judging.calibration.calibrate import calibrate, estimate_calibration
from ragauge.judging.calibration.charts import build_calibration_charts, roc_points
from ragauge.judging.calibration.labelled_data import word_overlap
from ragauge.judging.calibration.report import build_comparison, build_report
from ragauge.judging.calibration.results import Calibration
from ragauge.judging.tasks import TaskResult
from ragauge.models.chats.recorded import ScriptedChat
from ragauge.output.markdown import render_markdown
from ragauge.output.tables import Table
from ragauge.reports.registry import write_results
from ragauge.stats.agreement import ConfusionMatrix

SCHEMA = json_schema(Calibration)


class FunctionJudge:
    """Judge that supports a claim if a function of sample, claim and sources is true; None leaves it unscored."""

    def __init__(self, decide):
        self.name = "known"
        self.identity = {"judge": "known"}
        self.decide = decide

    async def answer(self, task):
        if task.step == "claims":
            return TaskResult({item: [text] for item, text in task.items.items()}, {})
        verdicts, unscored = {}, {}
        for claim, text in task.items.items():
            verdict = self.decide(task.sample, text, task.sources)
            if verdict is None:
                unscored[claim] = Unscored("no reply could be read", "gibberish")
            else:
                verdicts[claim] = Support(("k1",) if verdict else ())
        return TaskResult(verdicts, unscored)


def make_sample(name, label=None, answer="It is so.", contexts=("It is so.",), question=None, **more):
    labels = {} if label is None else {"faithfulness": label}
    return Sample(name, question or f"What is {name}?", answer, contexts, labels=labels, **more)


def support_by_name(task_sample, text, sources):
    """Support the claims of samples whose name begins with g, reject those of b, and give no verdict for n."""
    return {"g": True, "b": False, "n": None}[task_sample[0]]


SAMPLES = [
    *(make_sample(f"g{i}", 1) for i in range(6)),
    *(make_sample(f"g{i + 6}", 0) for i in range(2)),
    *(make_sample(f"b{i}", 1) for i in range(1)),
    *(make_sample(f"b{i + 1}", 0) for i in range(3)),
    *(make_sample(f"n{i}", 1) for i in range(3)),
]


def test_calibrate_confusion_matches_known_verdicts():
    found = calibrate(SAMPLES, chat=FunctionJudge(support_by_name))
    assert found.confusion == ConfusionMatrix(6, 2, 1, 3)
    assert (found.labelled, found.scored, found.samples) == (15, 12, 15)
    assert found.statistics["accuracy"][0] == 9 / 12
    assert found.statistics["sensitivity"][0] == 6 / 7
    assert found.statistics["specificity"][0] == 3 / 5
    assert found.base_rate.value == 10 / 15
    assert found.measure == "faithfulness"


def test_calibrate_unscored_samples_count_as_wrong_in_accuracy_all():
    found = calibrate(SAMPLES, chat=FunctionJudge(support_by_name))
    assert sum(found.unscored.values()) == 3
    assert (found.statistics["accuracy_all"].value, found.statistics["accuracy_all"].n) == (9 / 15, 15)
    assert "12 of 15 labelled samples have a verdict, 3 are unscored" in " ".join(build_report(found).notes)
    tables = [block for section in build_report(found).sections for block in section.blocks if isinstance(block, Table)]
    rows = {row[0]: row[1:] for table in tables for row in table.texts()}
    assert rows["no verdict"] == ["3", "0"]
    assert "accuracy, all" in rows
    assert [pair.sample for pair in found.pairs if pair.reason] == ["n0", "n1", "n2"]


def test_calibrate_without_verdicts_has_undefined_figures():
    found = calibrate(SAMPLES, chat=FunctionJudge(lambda *_: None))
    assert found.scored == 0
    assert not any(found.statistics[name].defined for name in ("accuracy", "kappa", "auc", "spearman", "bias"))
    assert found.statistics["accuracy_all"].value == 0.0
    data = json.loads(to_json(found))
    jsonschema.validate(data, SCHEMA)
    assert data["statistics"]["kappa"]["value"] is None
    assert build_report(found).summary == "No labelled sample of 15 has a verdict."


def test_calibrate_includes_baseline_raters():
    found = calibrate(SAMPLES, chat=FunctionJudge(support_by_name))
    names = [rater.name for rater in found.raters]
    assert names == ["known", "word overlap", "always good"]
    assert found.raters[-1].statistics["accuracy"].value == 10 / 15
    assert found.raters[-1].statistics["kappa"].value == 0.0


def test_word_overlap_by_hand():
    sample = make_sample("a", 1, "Paris is big.", ("Big it is.",), question="Paris?")
    assert word_overlap(sample, "faithfulness") == 1.0
    assert word_overlap(replace(sample, question="Rome?"), "faithfulness") == pytest.approx(2 / 3)
    assert word_overlap(replace(sample, question="Rome?", history=("We spoke of Paris.",)), "faithfulness") == 1.0
    assert math.isnan(word_overlap(replace(sample, answer=""), "faithfulness"))
    assert word_overlap(replace(sample, reference="Big Paris"), "context_recall") == 0.5
    assert word_overlap(sample, "context_precision") == 0.0
    assert word_overlap(sample, "answer_relevance") == 1.0


def test_calibrate_judge_below_word_overlap_adds_note():
    samples = [
        make_sample(
            f"{'gb'[i % 2]}{i}", 1.0 if i % 4 < 2 else 0.0, "It is so." if i % 4 < 2 else "Something else entirely."
        )
        for i in range(40)
    ]
    found = calibrate(samples, chat=FunctionJudge(support_by_name))
    overlap = next(rater for rater in found.raters if rater.name == "word overlap")
    assert overlap.statistics["auc"].value == 1.0
    assert found.statistics["auc"].value == 0.5
    assert found.statistics["over_words"].value == pytest.approx(-0.5)
    assert any("no better than word overlap does (its AUC is 0.500 lower)" in note for note in found.notes)


def test_calibrate_thresholds_apply_to_scores_and_labels():
    """One of two sentences per answer is supported, so every score is 0.5.

    The judge finds the sample good at a threshold of 0.5, but not at 0.6, nor at 1, the default for binary labels.
    """
    samples = [make_sample(f"s{i}", 2 / 3, "Yes it is. No it is not.") for i in range(4)]
    judge = FunctionJudge(lambda name, text, sources: text.startswith("Yes"))
    assert calibrate(samples, chat=judge).confusion == ConfusionMatrix(4, 0, 0, 0)
    assert calibrate(samples, chat=judge, threshold=0.6).confusion == ConfusionMatrix(0, 0, 4, 0)
    assert calibrate(samples, chat=judge, threshold=0.5, label_threshold=0.7).confusion == ConfusionMatrix(0, 4, 0, 0)
    assert calibrate(samples, chat=judge, label_threshold=2 / 3, threshold=0.5).confusion == ConfusionMatrix(4, 0, 0, 0)
    assert calibrate(samples, chat=judge, label_threshold=0.6).threshold == 0.6
    binary = [replace(one, labels={"faithfulness": 1.0}) for one in samples]
    assert calibrate(binary, chat=judge).confusion == ConfusionMatrix(0, 0, 4, 0)
    for threshold in (0.0, 1.5, -1.0):
        with pytest.raises(BadInput, match="threshold"):
            calibrate(samples, chat=judge, threshold=threshold)


def test_calibrate_swap_detects_position_bias():
    contexts = ("It is so.", "Nothing here.")
    samples = [make_sample(f"s{i}", 1, contexts=contexts if i < 6 else contexts[:1]) for i in range(10)]
    first_chunk_judge = FunctionJudge(lambda name, text, sources: "so" in next(iter(sources.values())))
    found = calibrate(samples, chat=first_chunk_judge)
    assert (found.swap.changed.value, found.swap.changed.n) == (1.0, 6)
    assert found.swap.shift.value == -1.0
    unbiased = calibrate(
        samples, chat=FunctionJudge(lambda name, text, sources: any("so" in one for one in sources.values()))
    )
    assert (unbiased.swap.changed.value, unbiased.swap.moved.value) == (0.0, 0.0)
    assert calibrate(samples, chat=first_chunk_judge, swap=False).swap is None
    single_context = calibrate(SAMPLES, chat=FunctionJudge(support_by_name))
    assert single_context.swap is None
    assert any("contexts were not reversed" in note for note in single_context.notes)


def test_calibrate_replicates_measure_consistency():
    calls: dict[str, int] = {}

    def decide_inconsistently(name, text, sources):
        calls[name] = calls.get(name, 0) + 1
        return name not in ("s0", "s1") or calls[name] == 2

    found = calibrate(
        [make_sample(f"s{i}", 1) for i in range(8)], chat=FunctionJudge(decide_inconsistently), replicates=3
    )
    assert found.consistency.replicates == 3
    assert found.consistency.same.value == 6 / 8
    assert found.consistency.pairwise.value == pytest.approx((6 + 2 / 3) / 8)
    assert calibrate(SAMPLES, chat=FunctionJudge(support_by_name)).consistency is None


def test_calibrate_lost_verdict_counts_as_inconsistent():
    calls: dict[str, int] = {}

    def lose_second_verdict(name, text, sources):
        calls[name] = calls.get(name, 0) + 1
        return None if name == "s0" and calls[name] == 2 else True

    found = calibrate(
        [make_sample(f"s{i}", 1) for i in range(4)], chat=FunctionJudge(lose_second_verdict), replicates=2
    )
    assert found.consistency.same.value == 3 / 4


def test_calibrate_detects_verbosity_bias():
    samples = [make_sample(f"s{i}", i % 2, "Word " * (5 + 7 * (i % 10)) + "end.") for i in range(60)]
    found = calibrate(samples, chat=FunctionJudge(lambda name, text, sources: len(text.split()) > 40))
    assert found.verbosity.slope.low > 0
    assert found.verbosity.correlation.value > 0.5
    unbiased = calibrate(samples, chat=FunctionJudge(lambda name, text, sources: int(name[1:]) % 2 == 1))
    assert abs(unbiased.verbosity.slope.value) < 1e-9


@pytest.mark.simulation
def test_calibrate_corrected_mean_covers_truth():
    rng = np.random.default_rng(3)
    truth = rng.random(400) < 0.6
    errors = rng.random(400) < 0.05
    samples = [
        make_sample(f"{'g' if t != w else 'b'}{i}", float(t))
        for i, (t, w) in enumerate(zip(truth, errors, strict=True))
    ]
    found = calibrate(samples, chat=FunctionJudge(support_by_name), labels=60).corrected
    assert (found.labels, found.judged) == (60, 340)
    assert found.truth == pytest.approx(truth.mean())
    assert found.powered.low <= found.truth <= found.powered.high
    assert found.powered.high - found.powered.low < 0.75 * (found.people.high - found.people.low)
    assert found.rates.low <= found.truth <= found.rates.high
    other = calibrate(samples, chat=FunctionJudge(support_by_name), labels=60, seed=1).corrected
    assert other.people.value != found.people.value
    assert calibrate(samples, chat=FunctionJudge(support_by_name)).corrected is None


def test_calibrate_unlabelled_samples_enter_corrected_mean():
    samples = [*SAMPLES[:12], *(make_sample(f"g{i + 50}") for i in range(20))]
    found = calibrate(samples, chat=FunctionJudge(support_by_name))
    assert (found.samples, found.labelled) == (32, 12)
    assert (found.corrected.labels, found.corrected.judged) == (12, 20)
    assert math.isnan(found.corrected.truth)
    assert found.corrected.people.value == pytest.approx(7 / 12)
    assert found.corrected.judge.value == pytest.approx(28 / 32)


def test_calibrate_non_random_labels_add_note():
    """The judge finds half of the 12 labelled samples good; of 40 unlabelled samples all (note) or half (no note)."""
    labelled = [make_sample(f"{'gb'[i % 2]}{i}", float(i % 3 > 0)) for i in range(12)]
    expected = "the corrected mean needs labels of random samples"
    all_supported = [make_sample(f"g{i + 50}") for i in range(40)]
    half_supported = [make_sample(f"{'gb'[i % 2]}{i + 50}") for i in range(40)]
    assert any(
        expected in note for note in calibrate([*labelled, *all_supported], chat=FunctionJudge(support_by_name)).notes
    )
    assert not any(
        expected in note for note in calibrate([*labelled, *half_supported], chat=FunctionJudge(support_by_name)).notes
    )


def test_calibrate_votes_add_person_rater():
    votes = [[1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]
    samples = [
        make_sample(
            f"g{i}", float(np.mean(row)), metadata={"votes": {"faithfulness": dict(zip("abc", row, strict=True))}}
        )
        for i, row in enumerate(votes)
    ]
    person = calibrate(samples, chat=FunctionJudge(support_by_name)).raters[-1]
    assert (person.name, person.kind) == ("a person", "people")
    assert person.statistics["accuracy"].value == pytest.approx(11 / 12)


def test_calibrate_equal_questions_widen_accuracy_interval():
    samples = [make_sample(f"{'gb'[i % 2]}{i}", float(i % 4 < 2)) for i in range(40)]
    grouped = [replace(sample, question=f"What is {i // 4}?") for i, sample in enumerate(samples)]
    clustered = [
        replace(sample, labels={"faithfulness": float("gb"[i // 4 % 2] == sample.id[0])})
        for i, sample in enumerate(grouped)
    ]
    clustered_ci = calibrate(clustered, chat=FunctionJudge(support_by_name)).statistics["accuracy"]
    independent_ci = calibrate(
        [replace(sample, question=sample.id) for sample in clustered], chat=FunctionJudge(support_by_name)
    ).statistics["accuracy"]
    assert clustered_ci.value == independent_ci.value
    assert clustered_ci.high - clustered_ci.low > 1.3 * (independent_ci.high - independent_ci.low)


@pytest.mark.simulation
def test_calibrate_equal_questions_widen_every_interval():
    """Errors, inconsistency and order bias of the judge depend on the question: 40 questions with ten answers each."""
    rng = np.random.default_rng(6)
    wrong, order_biased, inconsistent, good = (rng.random(40) < share for share in (0.3, 0.3, 0.3, 0.6))
    contexts = ("First.", "Second.")
    calls: Counter[str] = Counter()

    def decide(name, text, sources):
        question = int(name) // 10
        calls[name] += 1
        verdict = bool(good[question] != wrong[question])
        is_flipped = order_biased[question] and next(iter(sources.values())) != "First."
        return verdict != (is_flipped or (inconsistent[question] and calls[name] == 2))

    samples = [
        make_sample(
            str(i), float(good[i // 10]), "Word " * int(rng.integers(3, 60)) + "end.", contexts, f"Question {i // 10}?"
        )
        for i in range(400)
    ]
    found = []
    for variant in (samples, [replace(one, question=f"{one.question} {one.id}") for one in samples]):
        calls.clear()
        one = calibrate(variant, chat=FunctionJudge(decide), replicates=2, labels=200)
        found.append(
            {
                **{name: one.statistics[name] for name in ("accuracy", "kappa", "bias")},
                "same": one.consistency.same,
                "pairwise": one.consistency.pairwise,
                "repeated": one.consistency.alpha,
                "spread": one.consistency.spread,
                "changed": one.swap.changed,
                "shift": one.swap.shift,
                "moved": one.swap.moved,
                "base rate": one.base_rate,
                "bin": one.curve[0].share,
                "judge": one.corrected.judge,
                "powered": one.corrected.powered,
                "rates": one.corrected.rates,
            }
        )
    assert any(
        "400 samples with 40 questions: the intervals account for equal questions" in note
        for note in calibrate(samples).notes
    )
    for name, figure in found[0].items():
        assert figure.high - figure.low > 1.7 * (found[1][name].high - found[1][name].low), name


def test_calibrate_single_question_adds_note():
    samples = [make_sample(f"{'gb'[i % 2]}{i}", float(i % 4 < 2), question="What?") for i in range(40)]
    found = calibrate(samples, chat=FunctionJudge(support_by_name))
    assert "40 samples with the same question: the results do not apply to other questions" in found.notes
    assert math.isnan(found.statistics["bias"].low)


def test_calibrate_easy_or_synthetic_dataset_adds_note():
    dataset = LabelledDataset(
        name="toy", samples=SAMPLES, measure="faithfulness", about="", people=False, easy="words tell all"
    )
    found = calibrate(dataset, chat=FunctionJudge(support_by_name))
    assert not found.people
    notes = " ".join(build_report(found).notes)
    assert "an easy dataset: words tell all" in notes
    assert "the labels were not given by people" in notes


def test_calibrate_max_samples_draw_depends_on_seed():
    first, repeated, reseeded = (
        [
            pair.sample
            for pair in calibrate(SAMPLES, chat=FunctionJudge(support_by_name), max_samples=6, seed=seed).pairs
        ]
        for seed in (1, 1, 2)
    )
    assert first == repeated != reseeded
    assert len(first) == 6


def test_calibrate_invalid_input_raises():
    with pytest.raises(MissingEvidence, match="has a label"):
        calibrate([make_sample("g1")], chat=FunctionJudge(support_by_name))
    with pytest.raises(MissingEvidence, match="has a label of context_recall"):
        calibrate(SAMPLES, chat=FunctionJudge(support_by_name), measure="context_recall")
    with pytest.raises(BadInput, match="lower-is-better"):
        calibrate(SAMPLES, chat=FunctionJudge(support_by_name), measure="hallucination")
    two_labels = [replace(SAMPLES[0], labels={"faithfulness": 1.0, "answer_relevance": 1.0})]
    with pytest.raises(BadInput, match="answer_relevance and faithfulness"):
        calibrate(two_labels, chat=FunctionJudge(support_by_name))
    for settings in ({"replicates": 0}, {"labels": 0}, {"max_samples": 0}):
        with pytest.raises(BadInput, match=r"must be (at least 1|between 1 and)|from 1 on"):
            calibrate(SAMPLES, chat=FunctionJudge(support_by_name), **settings)


def test_calibrate_lexical_judge_adds_probability_rater():
    samples = [
        make_sample(f"s{i}", float(i % 2), "Bob came in May." if i % 2 else "Ann left in June.", ("Bob came in May.",))
        for i in range(20)
    ]
    found = ragauge.calibrate(samples)
    assert found.judge.startswith("lexical")
    assert found.curve_of == "faithfulness(by=probability)"
    assert sum(one.share.n for one in found.curve) == 20
    assert [rater.name for rater in found.raters][:2] == ["lexical", "lexical by probability"]
    assert found.statistics["auc"].value == 1.0
    assert any("compares words" in note for note in found.notes)
    assert "on 'samples': accuracy 1.000, kappa 1.000, auc 1.000; 20 of 20 scored" in repr(found)


def test_write_results_calibrations_round_trip_in_every_format(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    calibrations = [
        calibrate(SAMPLES, chat=FunctionJudge(support_by_name), labels=8, replicates=2),
        calibrate(SAMPLES, chat=FunctionJudge(support_by_name)),
    ]
    write_results(
        calibrations, [str(tmp_path / f"found.{extension}") for extension in ("html", "json", "csv", "md", "tex")]
    )
    restored = read_records(tmp_path / "found.json")
    assert to_json(restored) == to_json(calibrations) == (tmp_path / "found.json").read_text()
    for record in json.loads(to_json(calibrations)):
        jsonschema.validate(record, SCHEMA)
    assert build_report(restored[0]).notes == build_report(calibrations[0]).notes
    lines = (tmp_path / "found.csv").read_text().splitlines()
    assert lines[0] == "set,judge,measure,rater,statistic,value,low,high,n,reason"
    assert sum(",known,kappa," in line for line in lines) == 2
    page = (tmp_path / "found.md").read_text()
    assert page.startswith("# Calibrations")
    assert "| Cohen's kappa |" in page
    assert 'id="calibration-2-agreement"' in (tmp_path / "found.html").read_text()
    assert build_comparison(calibrations).notes


def test_calibration_report_texts_are_escaped():
    dataset = LabelledDataset("[bold]x[/bold] | y", [*SAMPLES], "faithfulness", "", True, "<script>")
    page = render_markdown([build_report(calibrate(dataset, chat=FunctionJudge(support_by_name)))])
    assert "<script>" not in page
    assert "\\[bold\\]" in page


@pytest.mark.parametrize(("name", "auc"), [("begin_dev_wow", 0.85), ("begin_dev_cmu", 0.85), ("begin_dev_tc", 0.8)])
@pytest.mark.simulation
def test_calibrate_begin_labels_kappa_matches_sklearn(shared, name, auc):
    found = calibrate(str(shared("rag_begin") / f"{name}.tsv.gz"), labels=100)
    probability_figures = found.raters[1].statistics
    assert probability_figures["auc"].value > auc
    assert found.scored + sum(found.unscored.values()) == found.labelled
    scored = [pair for pair in found.pairs if not math.isnan(pair.score)]
    labels, verdicts = [pair.label >= 0.5 for pair in scored], [pair.score >= 1 - 1e-9 for pair in scored]
    assert found.statistics["kappa"].value == pytest.approx(sk.cohen_kappa_score(labels, verdicts))
    assert found.corrected.powered.low < found.corrected.truth < found.corrected.powered.high


def make_tower_sample(name, label, answer, *contexts):
    return Sample(name, "Which tower is it?", answer, contexts, labels={"faithfulness": label})


TOWER_SAMPLES = [
    make_tower_sample("1", 1, "The tower is white.", "The tower is white.", "It is old."),
    make_tower_sample("2", 0, "The tower is red.", "The tower is white.", "It is old."),
    make_tower_sample("3", 0, "The tower is white and it sank.", "The tower is white.", "It is old."),
]


def test_calibrate_replicates_make_new_calls_and_are_cached(tmp_path):
    """Each pass needs two calls per sample (claims, support); the pass with reversed contexts needs only the second."""
    chat = ScriptedChat(literal_judge.answer)
    found = calibrate(TOWER_SAMPLES, chat=chat, replicates=2, folder=tmp_path / "kept", threshold=1)
    assert found.confusion == ConfusionMatrix(1, 0, 0, 2)
    assert [pair.score for pair in found.pairs] == [1.0, 0.0, 0.5]
    assert found.consistency.same.value == 1.0
    assert found.swap.changed.value == 0.0
    calls = len(chat.asked)
    assert calls == 3 * 2 + 3 * 2 + 3  # claims do not depend on the order of contexts
    repeated = calibrate(TOWER_SAMPLES, chat=chat, replicates=2, folder=tmp_path / "kept", threshold=1)
    assert len(chat.asked) == calls
    assert repeated.statistics == found.statistics


def test_estimate_calibration_makes_no_calls():
    chat = ScriptedChat(literal_judge.answer)
    single, replicated = (
        {row.step: row.calls for row in estimate_calibration(TOWER_SAMPLES, chat=chat, replicates=n, swap=n > 1)}
        for n in (1, 3)
    )
    assert chat.asked == []
    assert single == {"claims": 3, "support": 3}
    assert replicated["support"] == 12


def test_calibrate_unreadable_replies_leave_samples_unscored():
    found = calibrate(TOWER_SAMPLES, chat=ScriptedChat(lambda messages, schema: "I would rather not say."))
    assert found.scored == 0
    assert sum(found.unscored.values()) == 3
    assert found.statistics["accuracy_all"].value == 0.0


def test_calibrate_max_calls_stops_with_reason():
    found = calibrate(TOWER_SAMPLES, chat=ScriptedChat(literal_judge.answer), max_calls=2, swap=False)
    assert found.scored < 3
    assert found.stopped == "the limit of 2 requests is reached"


def test_calibration_charts_show_roc_and_calibration_curves():
    pytest.importorskip("altair")
    found = build_calibration_charts(calibrate(SAMPLES, chat=FunctionJudge(support_by_name)))["curves"]
    assert [panel.title for panel in found.panels] == ["ROC curve", "Calibration curve"]
    assert "Area under the ROC curve: known" in found.alt
    assert build_calibration_charts(calibrate(SAMPLES[:6], chat=FunctionJudge(support_by_name))) == {}
    points = np.array(roc_points(np.array([3.0, 2.0, 2.0, 1.0, 0.0]), np.array([True, False, True, True, False])))
    expected = sk.roc_curve([1, 0, 1, 1, 0], [3, 2, 2, 1, 0], drop_intermediate=False)
    assert points[:, 0] == pytest.approx(expected[0])
    assert points[:, 1] == pytest.approx(expected[1])


@pytest.mark.parametrize("labels", [[1.0], [1.0, 1.0], [0.0, 1.0], [0.3, 0.6, 0.9]])
def test_calibrate_few_samples_give_value_or_reason(labels):
    found = calibrate(
        [make_sample(f"g{i}", label) for i, label in enumerate(labels)],
        chat=FunctionJudge(support_by_name),
        replicates=2,
    )
    jsonschema.validate(json.loads(to_json(found)), SCHEMA)
    assert found.statistics["accuracy"].n == len(labels)
    assert all(figure.defined or figure.reason for figure in found.statistics.values())
    assert build_report(found).notes


def test_calibrate_without_verdicts_has_undefined_consistency(tmp_path):
    labelled = [
        Sample(f"s{i}", "q?", "it is high.", ("it is high", "x"), labels={"faithfulness": i % 2}) for i in range(12)
    ]
    found = ragauge.calibrate(labelled, chat=ScriptedChat(lambda messages, schema: "nonsense"), replicates=2)
    assert found.consistency is not None
    assert found.swap is not None
    assert found.consistency.same.n == found.swap.changed.n == 0
    assert math.isnan(found.consistency.same.value)
    assert math.isnan(found.swap.changed.value)


def test_calibrate_max_calls_spans_replicates():
    chat = ScriptedChat(literal_judge.answer)
    labelled = [
        Sample(f"s{i}", "q?", f"it is high {i}.", (f"it is high {i}", "x"), labels={"faithfulness": 1})
        for i in range(12)
    ]
    found = ragauge.calibrate(labelled, chat=chat, replicates=3, max_calls=10)
    assert len(chat.asked) == 10
    assert found.stopped == "the limit of 10 requests is reached"
