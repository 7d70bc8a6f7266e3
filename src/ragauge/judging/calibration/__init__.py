"""Calibration of a judge: agreement of its scores with human labels, and its biases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.errors import BadInput, check_count
from ragauge.core.protocols import Chat
from ragauge.core.records import Floats, Ints
from ragauge.core.samples import LEXICAL_JUDGE, Sample
from ragauge.files.workspace import temporary_folder
from ragauge.judging import estimate_cost, judge_unsaved
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
from ragauge.judging.calibration.results import Calibration, CorrectedMean, LabelledScore, OrderBias, Rater
from ragauge.judging.results import CostEstimate, JudgedSamples
from ragauge.judging.tasks import Judge
from ragauge.stats.agreement import proportion
from ragauge.stats.association import auc_difference, calibration_curve
from ragauge.stats.intervals import cluster_ids, design_effect, variance_of_sum
from ragauge.stats.prediction_powered import prediction_powered_mean, rogan_gladen_share

MIN_KAPPA_GAIN = 0.02
"""Minimum gain in kappa for which a better threshold is noted."""
MIN_SAMPLES_COMPARED, MAX_STANDARD_ERRORS = 10, 3.0
"""Minimum number of independent samples per group, and standard errors above which two means differ."""
NO_SWAP_NOTE = "contexts were not turned round: no sample has two, or the measure is about their order"


class _JudgePass(NamedTuple):
    """One pass of the judge over samples."""

    samples: Sequence[Sample]
    replicate: int = 0
    turned: bool = False


def calibrate(  # noqa: PLR0913 - each is an option of the verb
    labelled: Any,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    measure: str | None = None,
    threshold: float | None = None,
    label_threshold: float | None = None,
    replicates: int = 1,
    swap: bool = True,
    labels: int | None = None,
    limit: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    **how: Any,
) -> Calibration:
    """Measure the agreement of a judge with labels, and its biases.

    `labelled` is a file or folder of labelled samples, or a list of samples with labels. A sample is good if its
    label is at least `label_threshold` (default: that of the dataset, or 0.5). For the judge it is good if its score
    is at least `threshold`. Its default is 1 for shares of claims with binary labels, the label threshold for graded
    labels, else 0.5. `replicates` is the number of judge calls per labelled sample. `swap` adds a pass with the
    contexts in reverse order. `labels` limits the labels used for the corrected mean to N random ones; the other
    samples count as unlabelled. `limit` draws N random samples. Further settings are those of `judge`.
    """
    if labels is not None and labels < 1:
        raise BadInput("labels is a number from 1 on")
    given = draw_samples(load_labelled_samples(labelled, measure), limit, seed)
    people_cut = given.label_threshold if label_threshold is None else label_threshold
    cut = given.cut(people_cut) if threshold is None else threshold
    for one in (cut, people_cut):
        if not 0 < one <= 1:
            raise BadInput(f"a threshold of {one:g} would call everything alike", hint="above 0 and at most 1")
    rounds = _plan_passes(given, replicates, swap=swap)
    with _reply_folder(folder, chat) as place:
        judged, *more = _run_passes(given, rounds, {"chat": chat, "folder": place, "name": given.name, **how})
    name, confidence = str(given.measure), judged.confidence
    known = ~np.isnan(given.labels)
    groups = question_groups(given.samples)
    ruler = LabelScale(given.labels[known], people_cut, None if groups is None else groups[known], confidence, seed)
    scores = judged.scores.values[name]
    mine, softly = scores[known], judged.scores.values.get(PROBABILITY_MEASURE, np.full(len(scores), math.nan))[known]
    kind = given.measure.spec.name
    counts = np.array(
        [word_overlap(one, kind) if kind in OVERLAP_TEXTS else math.nan for one in given.known], np.float64
    )
    words = np.array([len((one.answer or "").split()) for one in given.known], np.float64)
    raters, notes = _rate_all(judged, ruler, (mine, softly, counts), cut, votes_by_sample(given.known, kind), kind)
    bins = softly if not np.isnan(softly).all() else mine
    there = ~np.isnan(bins)
    points, error = calibration_curve(bins[there], ruler.good[there], confidence, groups=ruler.of(there).groups)
    reasons = judged.scores.unscored[name]
    again = [mine, *(one.scores.values[name] for one in more[: replicates - 1])]
    turned = _compute_order_bias(given, mine, more[-1], cut, ruler) if rounds[-1].turned else None
    effect = design_effect(ruler.good.astype(np.float64), ruler.groups, confidence)
    steady = (
        judge_consistency(np.stack(again, axis=1), cut, confidence, groups=ruler.groups, seed=seed)
        if replicates > 1
        else None
    )
    return Calibration(
        judge=judged.judge,
        dataset=given.name,
        measure=name,
        samples=len(given.samples),
        labelled=int(known.sum()),
        unscored=dict(Counter(reasons[one.id] for one in given.known if one.id in reasons)),
        threshold=cut,
        label_threshold=people_cut,
        base_rate=proportion(int(ruler.good.sum()), len(ruler.good), confidence, effect=effect),
        raters=raters,
        curve=points,
        calibration_error=error,
        curve_of=PROBABILITY_MEASURE if bins is softly else name,
        consistency=steady,
        swap=turned,
        verbosity=length_bias(mine, ruler.labels, words, confidence, groups=ruler.groups, seed=seed),
        corrected=_correct_mean(given.labels, scores, groups, labels, cut, ruler),
        robustness=judged.robustness,
        stopped=next((one.stopped for one in (judged, *more) if one.stopped), ""),
        people=given.people,
        easy=given.easy,
        about=given.about,
        confidence=confidence,
        notes=[
            *_calibration_notes(given, [judged, *more], ruler),
            *notes,
            *([NO_SWAP_NOTE] if swap and turned is None else []),
        ],
        pairs=[
            LabelledScore(
                one.id, float(row[0]), float(row[1]), float(row[2]), int(row[3]), float(row[4]), reasons.get(one.id, "")
            )
            for one, *row in zip(given.known, ruler.labels, mine, softly, words, counts, strict=True)
        ],
        identity=judged.identity,
    )


def estimate_calibration(
    labelled: Any,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    measure: str | None = None,
    replicates: int = 1,
    swap: bool = True,
    limit: int | None = None,
    seed: int = 0,
    **how: Any,
) -> list[CostEstimate]:
    """Estimate the cost of a calibration by step, without calling the judge."""
    given = draw_samples(load_labelled_samples(labelled, measure), limit, seed)
    found: dict[str, CostEstimate] = {}
    for one in _plan_passes(given, replicates, swap=swap):
        settings = {"chat": chat, **how, "replicate": one.replicate}
        for step in estimate_cost(one.samples, given.measures, **settings):
            before = found.get(step.step, CostEstimate(step.step, 0, 0, 0, 0.0))
            found[step.step] = CostEstimate(
                step.step,
                before.calls + step.calls,
                before.prompt_tokens + step.prompt_tokens,
                before.completion_tokens + step.completion_tokens,
                None if before.cost is None or step.cost is None else before.cost + step.cost,
                None if step.seconds is None else (before.seconds or 0.0) + step.seconds,
            )
    return list(found.values())


def _plan_passes(given: LabelledSamples, replicates: int, *, swap: bool) -> list[_JudgePass]:
    """Plan the passes of the judge.

    First all samples, then labelled samples again, then reversed contexts.
    """
    check_count("replicates", replicates, 1, 1000)
    spec = given.measure.spec
    several = [one for one in given.known if len(one.contexts or ()) > 1]
    rounds = [_JudgePass(given.samples), *(_JudgePass(given.known, turn) for turn in range(1, replicates))]
    if swap and several and "contexts" in spec.needs and not spec.cutoff:  # a cutoff depends on the order of contexts
        turned = [
            replace(one, contexts=tuple(reversed(one.contexts or ())), context_ids=tuple(reversed(one.context_ids)))
            for one in several
        ]
        rounds.append(_JudgePass(turned, turned=True))
    return rounds


@contextmanager
def _reply_folder(folder: str | Path | None, chat: Any) -> Iterator[str | Path | None]:
    """Yield the folder for the replies of all passes.

    A shared folder makes budgets apply to all passes together. Without a given folder, a temporary one is used and
    removed.
    """
    if folder is not None or chat == LEXICAL_JUDGE:
        yield folder
        return
    with temporary_folder("calibrate") as place:
        yield place


def _run_passes(
    given: LabelledSamples, rounds: Sequence[_JudgePass], settings: Mapping[str, Any]
) -> list[JudgedSamples]:
    found = []
    for at, one in enumerate(rounds):
        only_once = {"canaries": False} if at else {}
        found.append(
            judge_unsaved(one.samples, given.measures, **{**settings, **only_once, "replicate": one.replicate})
        )
    return found


def _compute_order_bias(
    given: LabelledSamples, scores: Floats, turned: JudgedSamples, threshold: float, ruler: LabelScale
) -> OrderBias:
    place = {one.id: at for at, one in enumerate(given.known)}
    mine = [place[name] for name in turned.scores.queries]
    groups = None if ruler.groups is None else ruler.groups[mine]
    after = turned.scores.values[str(given.measure)]
    return order_bias(scores[mine], after, threshold, ruler.confidence, groups=groups, seed=ruler.seed)


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
    scores, soft, words = columns
    name = judged.judge.partition(" [")[0]
    raters = [rate(name, "judge", scores, ruler, threshold)]
    notes: list[str] = []
    kappa, cuts = kappa_with_cross_threshold(scores, ruler)
    mine = raters[0].figures["kappa"].value
    if kappa > mine + MIN_KAPPA_GAIN:
        notes.append(
            f"cut at {cuts} its verdicts would agree better: kappa {kappa:.3f} instead of {mine:.3f} (each half of the "
            "samples was cut where the other half agrees best)"
        )
    best = scores
    if not np.isnan(soft).all():
        raters.append(rate_with_cross_threshold(f"{name} by probability", "judge", soft, ruler, "how sure it is"))
        best = soft
    if not np.isnan(words).all():
        raters.append(rate_with_cross_threshold("counting words", "baseline", words, ruler, OVERLAP_TEXTS[measure][2]))
        both = ~np.isnan(best) & ~np.isnan(words)
        held = ruler.of(both)
        gain = auc_difference(best[both], words[both], held.good, ruler.confidence, groups=held.groups)
        raters[0] = replace(raters[0], figures={**raters[0].figures, "over_words": gain})
        if gain.defined and not gain.value > PERFECT_SCORE_TOLERANCE:
            notes.append(f"it orders samples no better than counting words does (AUC {gain.value:+.3f})")
        elif gain.defined and not gain.low > 0:
            notes.append(f"that it beats counting words (AUC {gain.value:+.3f}) may be chance")
    raters.append(constant_rater(ruler))
    person = None if votes is None else human_rater(votes, ruler)
    return [*raters, *([person] if person is not None else [])], notes


def _correct_mean(
    labels: Floats, scores: Floats, groups: Ints | None, wanted: int | None, threshold: float, ruler: LabelScale
) -> CorrectedMean | None:
    """Estimate the mean label from some labels and all scores.

    None if every sample has a label and all are used. A sample without a score counts with the mean score of the
    judge, and as bad. Any fixed rule is valid, only less precise. Leaving such samples out would restrict the result
    to the others.
    """
    labelled = np.flatnonzero(~np.isnan(labels))
    if wanted is not None and wanted < len(labelled):
        rng = np.random.default_rng(ruler.seed)
        order = rng.permutation(len(labels) if groups is None else int(groups.max()) + 1)
        place = order[np.arange(len(labels)) if groups is None else groups]
        used = np.sort(labelled[np.argsort(place[labelled], kind="stable")][:wanted])
    else:
        used = labelled
    rest = np.setdiff1d(np.arange(len(labels)), used)
    known = ~np.isnan(scores)
    scored = scores[known]
    if not len(rest) or not len(scored):
        return None
    filled = np.where(np.isnan(scores), scored.mean(), scores)
    verdicts = np.nan_to_num(scores, nan=-1.0) >= threshold - PERFECT_SCORE_TOLERANCE
    together = None if groups is None else (groups[used], groups[rest])
    mine, level = labels[used], ruler.confidence
    powered, weight = prediction_powered_mean(mine, filled[used], filled[rest], level, groups=together)
    plain, _ = prediction_powered_mean(mine, filled[used], filled[rest], level, weight=0.0, groups=together)
    good = mine >= ruler.threshold - PERFECT_SCORE_TOLERANCE
    effect = design_effect(good.astype(np.float64), None if groups is None else groups[used], level)
    return CorrectedMean(
        labels=len(used),
        judged=len(rest),
        people=plain,
        judge=estimate_mean(scored, level, groups=None if groups is None else groups[known], seed=ruler.seed),
        powered=powered,
        weight=weight,
        rates=rogan_gladen_share(verdicts[used], good, verdicts[rest], level, groups=together),
        share=proportion(int(good.sum()), len(good), level, effect=effect),
        truth=float(ruler.labels.mean()) if len(labelled) == len(labels) else math.nan,
    )


def _calibration_notes(given: LabelledSamples, times: Sequence[JudgedSamples], ruler: LabelScale) -> list[str]:
    """Collect the limitations of a calibration."""
    judged = times[0]
    notes = []
    if not given.people:
        notes.append("the labels are not people's, so this is no agreement with people")
    if given.easy:
        notes.append(f"an easy set: {given.easy}")
    if judged.lexical:
        notes.append("the lexical judge compares words; it is the baseline that a model has to beat")
    if ruler.groups is not None:
        number = len(np.unique(ruler.groups))
        several = (
            f"{number} questions; intervals allow for that" if number > 1 else "one question, and speak of no other"
        )
        notes.append(f"{len(ruler.labels)} samples have {several}")
    if _has_biased_labels(given.labels, judged.scores.values[str(given.measure)], question_groups(given.samples)):
        notes.append(
            "samples without a label score otherwise than those with one: a corrected mean needs a random part"
        )
    return [*notes, *judged.notes]


def _has_biased_labels(labels: Floats, scores: Floats, groups: Ints | None) -> bool:
    """Return whether the labelled samples are not a random subset.

    By a Welch test of the mean scores.
    """
    known = ~np.isnan(scores)
    means, variance = [], 0.0
    for part in (known & ~np.isnan(labels), known & np.isnan(labels)):
        mine, together = scores[part], None if groups is None else groups[part]
        if cluster_ids(len(mine), together) < MIN_SAMPLES_COMPARED:
            return False
        means.append(float(mine.mean()))
        variance += variance_of_sum((mine - means[-1]) / len(mine), together)
    return abs(means[0] - means[1]) > MAX_STANDARD_ERRORS * math.sqrt(variance)
