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
from ragauge.core.samples import LEXICAL, Sample
from ragauge.files.workspace import temporary_folder
from ragauge.judging import estimate, judge_only
from ragauge.judging.calibration.labelled_data import (
    COUNTED,
    SOFT,
    Yardstick,
    drawn,
    groups_of,
    opened,
    overlap,
    votes_of,
)
from ragauge.judging.calibration.rater_statistics import (
    EDGE,
    Ruler,
    always,
    among_people,
    consistency,
    kappa_by_cut,
    mean_figure,
    rated,
    rated_by_cut,
    swapped,
    verbosity,
)
from ragauge.judging.calibration.results import Calibration, Corrected, Pair, Rater, Swap
from ragauge.judging.results import Estimate, Judged
from ragauge.judging.tasks import Judge
from ragauge.stats.agreement import share
from ragauge.stats.association import auc_difference, curve
from ragauge.stats.intervals import design_effect, separate, variance_of_sum
from ragauge.stats.prediction_powered import powered_mean, share_from_rates

BETTER = 0.02
"""Minimum gain in kappa for which a better threshold is noted."""
SEVERAL, FAR = 10, 3.0
"""Minimum number of independent samples per group, and standard errors above which two means differ."""
UNTURNED = "contexts were not turned round: no sample has two, or the measure is about their order"


class _Round(NamedTuple):
    """One pass of the judge over samples."""

    samples: Sequence[Sample]
    replicate: int = 0
    turned: bool = False


def calibrate(  # noqa: PLR0913 - each is an option of the verb
    labelled: Any,
    *,
    chat: str | Chat | Judge = LEXICAL,
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
    given = drawn(opened(labelled, measure), limit, seed)
    people_cut = given.label_threshold if label_threshold is None else label_threshold
    cut = given.cut(people_cut) if threshold is None else threshold
    for one in (cut, people_cut):
        if not 0 < one <= 1:
            raise BadInput(f"a threshold of {one:g} would call everything alike", hint="above 0 and at most 1")
    rounds = _rounds(given, replicates, swap=swap)
    with _kept(folder, chat) as place:
        judged, *more = _asked(given, rounds, {"chat": chat, "folder": place, "name": given.name, **how})
    name, confidence = str(given.measure), judged.confidence
    known = ~np.isnan(given.labels)
    groups = groups_of(given.samples)
    ruler = Ruler(given.labels[known], people_cut, None if groups is None else groups[known], confidence, seed)
    scores = judged.scores.values[name]
    mine, softly = scores[known], judged.scores.values.get(SOFT, np.full(len(scores), math.nan))[known]
    kind = given.measure.spec.name
    counts = np.array([overlap(one, kind) if kind in COUNTED else math.nan for one in given.known], np.float64)
    words = np.array([len((one.answer or "").split()) for one in given.known], np.float64)
    raters, notes = _raters(judged, ruler, (mine, softly, counts), cut, votes_of(given.known, kind), kind)
    bins = softly if not np.isnan(softly).all() else mine
    there = ~np.isnan(bins)
    points, error = curve(bins[there], ruler.good[there], confidence, groups=ruler.of(there).groups)
    reasons = judged.scores.unscored[name]
    again = [mine, *(one.scores.values[name] for one in more[: replicates - 1])]
    turned = _swapped(given, mine, more[-1], cut, ruler) if rounds[-1].turned else None
    effect = design_effect(ruler.good.astype(np.float64), ruler.groups, confidence)
    steady = (
        consistency(np.stack(again, axis=1), cut, confidence, groups=ruler.groups, seed=seed)
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
        base_rate=share(int(ruler.good.sum()), len(ruler.good), confidence, effect=effect),
        raters=raters,
        curve=points,
        calibration_error=error,
        curve_of=SOFT if bins is softly else name,
        consistency=steady,
        swap=turned,
        verbosity=verbosity(mine, ruler.labels, words, confidence, groups=ruler.groups, seed=seed),
        corrected=_corrected(given.labels, scores, groups, labels, cut, ruler),
        robustness=judged.robustness,
        stopped=next((one.stopped for one in (judged, *more) if one.stopped), ""),
        people=given.people,
        easy=given.easy,
        about=given.about,
        confidence=confidence,
        notes=[
            *_notes(given, [judged, *more], ruler),
            *notes,
            *([UNTURNED] if swap and turned is None else []),
        ],
        pairs=[
            Pair(
                one.id, float(row[0]), float(row[1]), float(row[2]), int(row[3]), float(row[4]), reasons.get(one.id, "")
            )
            for one, *row in zip(given.known, ruler.labels, mine, softly, words, counts, strict=True)
        ],
        identity=judged.identity,
    )


def estimate_calibration(
    labelled: Any,
    *,
    chat: str | Chat | Judge = LEXICAL,
    measure: str | None = None,
    replicates: int = 1,
    swap: bool = True,
    limit: int | None = None,
    seed: int = 0,
    **how: Any,
) -> list[Estimate]:
    """Estimate the cost of a calibration by step, without calling the judge."""
    given = drawn(opened(labelled, measure), limit, seed)
    found: dict[str, Estimate] = {}
    for one in _rounds(given, replicates, swap=swap):
        settings = {"chat": chat, **how, "replicate": one.replicate}
        for step in estimate(one.samples, given.measures, **settings):
            before = found.get(step.step, Estimate(step.step, 0, 0, 0, 0.0))
            found[step.step] = Estimate(
                step.step,
                before.calls + step.calls,
                before.prompt_tokens + step.prompt_tokens,
                before.completion_tokens + step.completion_tokens,
                None if before.cost is None or step.cost is None else before.cost + step.cost,
                None if step.seconds is None else (before.seconds or 0.0) + step.seconds,
            )
    return list(found.values())


def _rounds(given: Yardstick, replicates: int, *, swap: bool) -> list[_Round]:
    """Plan the passes of the judge.

    First all samples, then labelled samples again, then reversed contexts.
    """
    check_count("replicates", replicates, 1, 1000)
    spec = given.measure.spec
    several = [one for one in given.known if len(one.contexts or ()) > 1]
    rounds = [_Round(given.samples), *(_Round(given.known, turn) for turn in range(1, replicates))]
    if swap and several and "contexts" in spec.needs and not spec.cutoff:  # a cutoff depends on the order of contexts
        turned = [
            replace(one, contexts=tuple(reversed(one.contexts or ())), context_ids=tuple(reversed(one.context_ids)))
            for one in several
        ]
        rounds.append(_Round(turned, turned=True))
    return rounds


@contextmanager
def _kept(folder: str | Path | None, chat: Any) -> Iterator[str | Path | None]:
    """Yield the folder for the replies of all passes.

    A shared folder makes budgets apply to all passes together. Without a given folder, a temporary one is used and
    removed.
    """
    if folder is not None or chat == LEXICAL:
        yield folder
        return
    with temporary_folder("calibrate") as place:
        yield place


def _asked(given: Yardstick, rounds: Sequence[_Round], settings: Mapping[str, Any]) -> list[Judged]:
    found = []
    for at, one in enumerate(rounds):
        only_once = {"canaries": False} if at else {}
        found.append(judge_only(one.samples, given.measures, **{**settings, **only_once, "replicate": one.replicate}))
    return found


def _swapped(given: Yardstick, scores: Floats, turned: Judged, threshold: float, ruler: Ruler) -> Swap:
    place = {one.id: at for at, one in enumerate(given.known)}
    mine = [place[name] for name in turned.scores.queries]
    groups = None if ruler.groups is None else ruler.groups[mine]
    after = turned.scores.values[str(given.measure)]
    return swapped(scores[mine], after, threshold, ruler.confidence, groups=groups, seed=ruler.seed)


def _raters(
    judged: Judged,
    ruler: Ruler,
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
    raters = [rated(name, "judge", scores, ruler, threshold)]
    notes: list[str] = []
    kappa, cuts = kappa_by_cut(scores, ruler)
    mine = raters[0].figures["kappa"].value
    if kappa > mine + BETTER:
        notes.append(
            f"cut at {cuts} its verdicts would agree better: kappa {kappa:.3f} instead of {mine:.3f} (each half of the "
            "samples was cut where the other half agrees best)"
        )
    best = scores
    if not np.isnan(soft).all():
        raters.append(rated_by_cut(f"{name} by probability", "judge", soft, ruler, "how sure it is"))
        best = soft
    if not np.isnan(words).all():
        raters.append(rated_by_cut("counting words", "baseline", words, ruler, COUNTED[measure][2]))
        both = ~np.isnan(best) & ~np.isnan(words)
        held = ruler.of(both)
        gain = auc_difference(best[both], words[both], held.good, ruler.confidence, groups=held.groups)
        raters[0] = replace(raters[0], figures={**raters[0].figures, "over_words": gain})
        if gain.defined and not gain.value > EDGE:
            notes.append(f"it orders samples no better than counting words does (AUC {gain.value:+.3f})")
        elif gain.defined and not gain.low > 0:
            notes.append(f"that it beats counting words (AUC {gain.value:+.3f}) may be chance")
    raters.append(always(ruler))
    person = None if votes is None else among_people(votes, ruler)
    return [*raters, *([person] if person is not None else [])], notes


def _corrected(
    labels: Floats, scores: Floats, groups: Ints | None, wanted: int | None, threshold: float, ruler: Ruler
) -> Corrected | None:
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
    verdicts = np.nan_to_num(scores, nan=-1.0) >= threshold - EDGE
    together = None if groups is None else (groups[used], groups[rest])
    mine, level = labels[used], ruler.confidence
    powered, weight = powered_mean(mine, filled[used], filled[rest], level, groups=together)
    plain, _ = powered_mean(mine, filled[used], filled[rest], level, weight=0.0, groups=together)
    good = mine >= ruler.threshold - EDGE
    effect = design_effect(good.astype(np.float64), None if groups is None else groups[used], level)
    return Corrected(
        labels=len(used),
        judged=len(rest),
        people=plain,
        judge=mean_figure(scored, level, groups=None if groups is None else groups[known], seed=ruler.seed),
        powered=powered,
        weight=weight,
        rates=share_from_rates(verdicts[used], good, verdicts[rest], level, groups=together),
        share=share(int(good.sum()), len(good), level, effect=effect),
        truth=float(ruler.labels.mean()) if len(labelled) == len(labels) else math.nan,
    )


def _notes(given: Yardstick, times: Sequence[Judged], ruler: Ruler) -> list[str]:
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
    if _drawn_otherwise(given.labels, judged.scores.values[str(given.measure)], groups_of(given.samples)):
        notes.append(
            "samples without a label score otherwise than those with one: a corrected mean needs a random part"
        )
    return [*notes, *judged.notes]


def _drawn_otherwise(labels: Floats, scores: Floats, groups: Ints | None) -> bool:
    """Return whether the labelled samples are not a random subset.

    By a Welch test of the mean scores.
    """
    known = ~np.isnan(scores)
    means, variance = [], 0.0
    for part in (known & ~np.isnan(labels), known & np.isnan(labels)):
        mine, together = scores[part], None if groups is None else groups[part]
        if separate(len(mine), together) < SEVERAL:
            return False
        means.append(float(mine.mean()))
        variance += variance_of_sum((mine - means[-1]) / len(mine), together)
    return abs(means[0] - means[1]) > FAR * math.sqrt(variance)
