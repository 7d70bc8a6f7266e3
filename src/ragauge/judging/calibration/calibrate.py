"""Calibration of a judge: agreement of its scores with human labels, and its biases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack, cast

import numpy as np

from ragauge.core.protocols import Chat
from ragauge.core.records import Floats, Ints
from ragauge.core.samples import LEXICAL_JUDGE, Sample
from ragauge.files.serialization import settings_from
from ragauge.files.workspace import temporary_folder
from ragauge.judging.calibration.labelled_data import (
    OVERLAP_TEXTS,
    PROBABILITY_MEASURE,
    LabelledSamples,
    draw_samples,
    load_labelled_samples,
    question_groups,
    votes_by_sample,
    word_overlap,
)
from ragauge.judging.calibration.rater_statistics import (
    PERFECT_SCORE_TOLERANCE,
    LabelScale,
    constant_rater,
    estimate_mean,
    human_rater,
    judge_consistency,
    kappa_with_cross_threshold,
    length_bias,
    order_bias,
    rate,
    rate_with_cross_threshold,
)
from ragauge.judging.calibration.results import (
    WORD_OVERLAP_RATER,
    Calibration,
    CorrectedMean,
    LabelledScore,
    OrderBias,
    Rater,
)
from ragauge.judging.calibration.settings import CalibrationOptions, CalibrationSettings
from ragauge.judging.judge import estimate_cost, judge_unsaved
from ragauge.judging.results import CostEstimate, JudgedSamples, sum_estimates
from ragauge.judging.session import JudgingOptions
from ragauge.judging.tasks import Judge
from ragauge.output.numbers import pluralise
from ragauge.stats.agreement import proportion
from ragauge.stats.association import auc_difference, calibration_curve
from ragauge.stats.intervals import cluster_ids, design_effect, variance_of_sum
from ragauge.stats.prediction_powered import prediction_powered_mean, rogan_gladen_share

MIN_KAPPA_GAIN = 0.02
"""Minimum gain in kappa for which a better threshold is noted."""
MIN_SAMPLES_COMPARED, MAX_STANDARD_ERRORS = 10, 3.0
"""Minimum number of independent samples per group, and standard errors above which two means differ."""
NO_SWAP_NOTE = "contexts were not reversed: no sample has two, or the measure depends on their order"


class _JudgePass(NamedTuple):
    """One pass of the judge over samples."""

    samples: Sequence[Sample]
    replicate: int = 0
    is_swapped: bool = False


def calibrate(
    labelled: Any,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    folder: str | Path | None = None,
    **settings: Unpack[CalibrationOptions],
) -> Calibration:
    """Measure the agreement of a judge with labels, and its biases.

    `labelled` is a file or folder of labelled samples, or a list of samples with labels. A sample is good if its
    label is at least `label_threshold` (default: that of the dataset, or 0.5). For the judge it is good if its score
    is at least `threshold`. Its default is 1 for shares of claims with binary labels, the label threshold for graded
    labels, else 0.5. `replicates` is the number of judge calls per labelled sample. `swap` adds a pass with the
    contexts in reverse order. `labels` limits the labels used for the corrected mean to N random ones; the other
    samples count as unlabelled. `max_samples` draws N random samples. Further settings are those of `judge`.
    """
    plan, judging = _split_settings(settings)
    samples = draw_samples(load_labelled_samples(labelled, plan.measure), plan.max_samples, plan.seed)
    label_threshold = samples.label_threshold if plan.label_threshold is None else plan.label_threshold
    threshold = samples.cut(label_threshold) if plan.threshold is None else plan.threshold
    passes = _plan_passes(samples, plan)
    judging = {"name": samples.name, **judging}
    with _reply_folder(folder, chat) as reply_folder:
        judged, *repeated = _run_passes(samples, passes, chat, reply_folder, judging)
    name, confidence = str(samples.measure), judged.confidence
    is_labelled = ~np.isnan(samples.labels)
    groups = question_groups(samples.samples)
    scale = LabelScale(
        samples.labels[is_labelled],
        label_threshold,
        None if groups is None else groups[is_labelled],
        confidence,
        plan.seed,
    )
    scores = judged.scores.values[name]
    known_scores = scores[is_labelled]
    probabilities = judged.scores.values.get(PROBABILITY_MEASURE, np.full(len(scores), math.nan))[is_labelled]
    kind = samples.measure.spec.name
    overlaps = np.array(
        [word_overlap(sample, kind) if kind in OVERLAP_TEXTS else math.nan for sample in samples.labelled_samples],
        np.float64,
    )
    answer_lengths = np.array([len((sample.answer or "").split()) for sample in samples.labelled_samples], np.float64)
    columns = (known_scores, probabilities, overlaps)
    raters, notes = _rate_all(judged, scale, columns, threshold, votes_by_sample(samples.labelled_samples, kind), kind)
    binned = probabilities if not np.isnan(probabilities).all() else known_scores
    is_binned = ~np.isnan(binned)
    curve, error = calibration_curve(
        binned[is_binned], scale.is_good[is_binned], confidence, groups=scale.of(is_binned).groups
    )
    reasons = judged.scores.unscored[name]
    replicates = [
        known_scores,
        *(judged_samples.scores.values[name] for judged_samples in repeated[: plan.replicates - 1]),
    ]
    order_effect = (
        _compute_order_bias(samples, known_scores, repeated[-1], threshold, scale) if passes[-1].is_swapped else None
    )
    effect = design_effect(scale.is_good.astype(np.float64), scale.groups, confidence)
    consistency = (
        judge_consistency(np.stack(replicates, axis=1), threshold, confidence, groups=scale.groups, seed=plan.seed)
        if plan.replicates > 1
        else None
    )
    return Calibration(
        judge=judged.judge,
        dataset=samples.name,
        measure=name,
        samples=len(samples.samples),
        labelled=int(is_labelled.sum()),
        unscored=dict(Counter(reasons[sample.id] for sample in samples.labelled_samples if sample.id in reasons)),
        threshold=threshold,
        label_threshold=label_threshold,
        base_rate=proportion(int(scale.is_good.sum()), len(scale.is_good), confidence, effect=effect),
        raters=raters,
        curve=curve,
        calibration_error=error,
        curve_of=PROBABILITY_MEASURE if binned is probabilities else name,
        consistency=consistency,
        swap=order_effect,
        verbosity=length_bias(
            known_scores, scale.labels, answer_lengths, confidence, groups=scale.groups, seed=plan.seed
        ),
        corrected=_correct_mean(samples.labels, scores, groups, plan.labels, threshold, scale),
        robustness=judged.robustness,
        stopped=next((judged_samples.stopped for judged_samples in (judged, *repeated) if judged_samples.stopped), ""),
        people=samples.has_human_labels,
        easy=samples.easy,
        about=samples.about,
        confidence=confidence,
        notes=[
            *_calibration_notes(samples, [judged, *repeated], scale),
            *notes,
            *([NO_SWAP_NOTE] if plan.swap and order_effect is None else []),
        ],
        pairs=[
            LabelledScore(
                sample.id,
                float(row[0]),
                float(row[1]),
                float(row[2]),
                int(row[3]),
                float(row[4]),
                reasons.get(sample.id, ""),
            )
            for sample, *row in zip(
                samples.labelled_samples, scale.labels, *columns[:2], answer_lengths, overlaps, strict=True
            )
        ],
        identity=judged.identity,
        provenance=judged.provenance,
    )


def estimate_calibration(
    labelled: Any,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    folder: str | Path | None = None,
    **settings: Unpack[CalibrationOptions],
) -> list[CostEstimate]:
    """Estimate the cost of a calibration by step, without calling the judge."""
    plan, judging = _split_settings(settings)
    samples = draw_samples(load_labelled_samples(labelled, plan.measure), plan.max_samples, plan.seed)
    total: dict[str, CostEstimate] = {}
    for judge_pass in _plan_passes(samples, plan):
        options: JudgingOptions = {**judging, "replicate": judge_pass.replicate}
        for step in estimate_cost(judge_pass.samples, samples.measures, chat=chat, folder=folder, **options):
            before = total.get(step.step)
            total[step.step] = step if before is None else sum_estimates([before, step])._replace(step=step.step)
    return list(total.values())


def _split_settings(settings: CalibrationOptions) -> tuple[CalibrationSettings, JudgingOptions]:
    """Separate the settings of a calibration from those of judging."""
    names = {field.name for field in fields(CalibrationSettings)}
    plan = settings_from(CalibrationSettings, {name: value for name, value in settings.items() if name in names})
    return plan, cast(JudgingOptions, {name: value for name, value in settings.items() if name not in names})


def _plan_passes(samples: LabelledSamples, plan: CalibrationSettings) -> list[_JudgePass]:
    """Plan the passes of the judge.

    First all samples, then labelled samples again, then reversed contexts.
    """
    spec = samples.measure.spec
    several = [sample for sample in samples.labelled_samples if len(sample.contexts or ()) > 1]
    passes = [
        _JudgePass(samples.samples),
        *(_JudgePass(samples.labelled_samples, turn) for turn in range(1, plan.replicates)),
    ]
    if (
        plan.swap and several and "contexts" in spec.required_fields and not spec.cutoff
    ):  # a cutoff depends on the order
        turned = [
            replace(
                sample,
                contexts=tuple(reversed(sample.contexts or ())),
                context_ids=tuple(reversed(sample.context_ids)),
            )
            for sample in several
        ]
        passes.append(_JudgePass(turned, is_swapped=True))
    return passes


@contextmanager
def _reply_folder(folder: str | Path | None, chat: Any) -> Iterator[str | Path | None]:
    """Yield the folder for the replies of all passes.

    A shared folder makes budgets apply to all passes together. Without a given folder, a temporary one is used and
    removed.
    """
    if folder is not None or chat == LEXICAL_JUDGE:
        yield folder
        return
    with temporary_folder("calibrate") as temporary_path:
        yield temporary_path


def _run_passes(
    samples: LabelledSamples,
    passes: Sequence[_JudgePass],
    chat: str | Chat | Judge,
    folder: str | Path | None,
    judging: JudgingOptions,
) -> list[JudgedSamples]:
    judged = []
    for index, judge_pass in enumerate(passes):
        options: JudgingOptions = {**judging, "replicate": judge_pass.replicate}
        if index:
            options["canaries"] = False
        judged.append(judge_unsaved(judge_pass.samples, samples.measures, chat=chat, folder=folder, **options))
    return judged


def _compute_order_bias(
    samples: LabelledSamples, scores: Floats, turned: JudgedSamples, threshold: float, ruler: LabelScale
) -> OrderBias:
    positions = {sample.id: at for at, sample in enumerate(samples.labelled_samples)}
    rows = [positions[name] for name in turned.scores.queries]
    groups = None if ruler.groups is None else ruler.groups[rows]
    turned_scores = turned.scores.values[str(samples.measure)]
    return order_bias(scores[rows], turned_scores, threshold, ruler.confidence, groups=groups, seed=ruler.seed)


def _rate_all(
    judged: JudgedSamples,
    ruler: LabelScale,
    columns: tuple[Floats, Floats, Floats],
    threshold: float,
    votes: Floats | None,
    measure: str,
) -> tuple[list[Rater], list[str]]:
    """Rate the judge, baselines and people.

    The notes say whether the judge beats word overlap.
    """
    scores, probabilities, overlaps = columns
    name = judged.judge_name
    raters = [rate(name, "judge", scores, ruler, threshold)]
    notes: list[str] = []
    kappa, cuts = kappa_with_cross_threshold(scores, ruler)
    own_kappa = raters[0].statistics["kappa"].value
    if kappa > own_kappa + MIN_KAPPA_GAIN:
        notes.append(
            f"with the threshold {cuts} its verdicts would agree better: kappa {kappa:.3f} instead of {own_kappa:.3f} "
            "(cross-validated on two halves of the samples)"
        )
    best_scores = scores
    if not np.isnan(probabilities).all():
        raters.append(
            rate_with_cross_threshold(f"{name} by probability", "judge", probabilities, ruler, "its probability")
        )
        best_scores = probabilities
    if not np.isnan(overlaps).all():
        raters.append(
            rate_with_cross_threshold(WORD_OVERLAP_RATER, "baseline", overlaps, ruler, OVERLAP_TEXTS[measure][2])
        )
        has_both = ~np.isnan(best_scores) & ~np.isnan(overlaps)
        scale = ruler.of(has_both)
        gain = auc_difference(
            best_scores[has_both], overlaps[has_both], scale.is_good, ruler.confidence, groups=scale.groups
        )
        raters[0] = replace(raters[0], statistics={**raters[0].statistics, "over_words": gain})
        if gain.defined and not gain.value > PERFECT_SCORE_TOLERANCE:
            difference = f"{-gain.value:.3f} lower" if gain.value < 0 else "equal"
            notes.append(f"it orders samples no better than word overlap does (its AUC is {difference})")
        elif gain.defined and not gain.low > 0:
            notes.append(
                "it does not order samples significantly better than word overlap does "
                f"(its AUC is {gain.value:.3f} higher)"
            )
    raters.append(constant_rater(ruler))
    person = None if votes is None else human_rater(votes, ruler)
    return [*raters, *([person] if person is not None else [])], notes


def _correct_mean(
    labels: Floats, scores: Floats, groups: Ints | None, max_labels: int | None, threshold: float, ruler: LabelScale
) -> CorrectedMean | None:
    """Estimate the mean label from some labels and all scores.

    None if every sample has a label and all are used. A sample without a score counts with the mean score of the
    judge, and as bad. Any fixed rule is valid, only less precise. Leaving such samples out would restrict the result
    to the others.
    """
    labelled = np.flatnonzero(~np.isnan(labels))
    if max_labels is not None and max_labels < len(labelled):
        rng = np.random.default_rng(ruler.seed)
        order = rng.permutation(len(labels) if groups is None else int(groups.max()) + 1)
        ranks = order[np.arange(len(labels)) if groups is None else groups]
        used = np.sort(labelled[np.argsort(ranks[labelled], kind="stable")][:max_labels])
    else:
        used = labelled
    rest = np.setdiff1d(np.arange(len(labels)), used)
    is_scored = ~np.isnan(scores)
    scored = scores[is_scored]
    if not len(rest) or not len(scored):
        return None
    filled = np.where(np.isnan(scores), scored.mean(), scores)
    verdicts = np.nan_to_num(scores, nan=-1.0) >= threshold - PERFECT_SCORE_TOLERANCE
    split_groups = None if groups is None else (groups[used], groups[rest])
    used_labels, level = labels[used], ruler.confidence
    powered, weight = prediction_powered_mean(used_labels, filled[used], filled[rest], level, groups=split_groups)
    plain, _ = prediction_powered_mean(used_labels, filled[used], filled[rest], level, weight=0.0, groups=split_groups)
    good = used_labels >= ruler.threshold - PERFECT_SCORE_TOLERANCE
    effect = design_effect(good.astype(np.float64), None if groups is None else groups[used], level)
    return CorrectedMean(
        labels=len(used),
        judged=len(rest),
        people=plain,
        judge=estimate_mean(scored, level, groups=None if groups is None else groups[is_scored], seed=ruler.seed),
        powered=powered,
        weight=weight,
        rates=rogan_gladen_share(verdicts[used], good, verdicts[rest], level, groups=split_groups),
        share=proportion(int(good.sum()), len(good), level, effect=effect),
        truth=float(ruler.labels.mean()) if len(labelled) == len(labels) else math.nan,
    )


def _calibration_notes(
    labelled_samples: LabelledSamples, times: Sequence[JudgedSamples], ruler: LabelScale
) -> list[str]:
    """Collect the limitations of a calibration."""
    judged = times[0]
    notes = []
    if not labelled_samples.has_human_labels:
        notes.append("the labels were not given by people: the results are not agreement with people")
    if labelled_samples.easy:
        notes.append(f"an easy dataset: {labelled_samples.easy}")
    if judged.lexical:
        notes.append("the lexical judge compares words: it is a baseline for models")
    if ruler.groups is not None:
        number = len(np.unique(ruler.groups))
        samples = pluralise(len(ruler.labels), "sample")
        notes.append(
            f"{samples} with {number} questions: the intervals account for equal questions"
            if number > 1
            else f"{samples} with the same question: the results do not apply to other questions"
        )
    if _has_biased_labels(
        labelled_samples.labels,
        judged.scores.values[str(labelled_samples.measure)],
        question_groups(labelled_samples.samples),
    ):
        notes.append(
            "samples without a label have other scores than those with one: the corrected mean needs labels of random "
            "samples"
        )
    return [*notes, *judged.notes]


def _has_biased_labels(labels: Floats, scores: Floats, groups: Ints | None) -> bool:
    """Return whether the labelled samples are not a random subset.

    By a Welch test of the mean scores.
    """
    is_scored = ~np.isnan(scores)
    means, variance = [], 0.0
    for part in (is_scored & ~np.isnan(labels), is_scored & np.isnan(labels)):
        part_scores, part_groups = scores[part], None if groups is None else groups[part]
        if cluster_ids(len(part_scores), part_groups) < MIN_SAMPLES_COMPARED:
            return False
        means.append(float(part_scores.mean()))
        variance += variance_of_sum((part_scores - means[-1]) / len(part_scores), part_groups)
    return abs(means[0] - means[1]) > MAX_STANDARD_ERRORS * math.sqrt(variance)
