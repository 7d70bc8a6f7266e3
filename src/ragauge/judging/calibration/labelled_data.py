"""Labelled samples for the calibration of a judge: loading, grouping, votes, and the word-overlap baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import Floats, Ints
from ragauge.core.samples import Sample
from ragauge.core.text import split_words
from ragauge.datasets.labelled_answers import LabelledDataset, load_labelled
from ragauge.files.samples import samples_from
from ragauge.measures.answers import AnswerMeasure, is_answer_measure, parse_answer_measure

TextSelector = Callable[[Sample], Sequence[str]]


def _answer_texts(sample: Sample) -> Sequence[str]:
    return [sample.answer or ""]


def _question_texts(sample: Sample) -> Sequence[str]:
    return [sample.question]


def _reference_texts(sample: Sample) -> Sequence[str]:
    return [sample.reference or ""]


def _context_texts(sample: Sample) -> Sequence[str]:
    return sample.contexts or ()


def _known_texts(sample: Sample) -> Sequence[str]:
    return [*(sample.contexts or ()), sample.question, *sample.history]


OVERLAP_TEXTS: Mapping[str, tuple[TextSelector, TextSelector, str]] = {
    "faithfulness": (_answer_texts, _known_texts, "share of the answer's words in contexts or conversation"),
    "context_recall": (_reference_texts, _context_texts, "share of the reference's words in the contexts"),
    "context_precision": (_question_texts, _context_texts, "share of the question's words in the contexts"),
    "answer_relevance": (_question_texts, _answer_texts, "share of the question's words in the answer"),
    "claim_precision": (_answer_texts, _reference_texts, "share of the answer's words in the reference"),
    "claim_recall": (_reference_texts, _answer_texts, "share of the reference's words in the answer"),
}
"""Texts compared for each measure: whose words, in which text, and a description."""


def word_overlap(sample: Sample, measure: str) -> float:
    """Return the share of words, repetitions included, that are found.

    NaN without words.

    >>> word_overlap(Sample("1", "Who?", "Ann and Bob.", ("Bob came and went.",)), "faithfulness")
    0.6666666666666666
    """
    get_text, get_source, _ = OVERLAP_TEXTS[measure]
    words = _split_words(get_text(sample))
    source_words = set(_split_words(get_source(sample)))
    return sum(word in source_words for word in words) / len(words) if words else math.nan


def _split_words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in split_words(text, fold="lower")]


DEFAULT_THRESHOLD = 0.5
CLAIM_SHARE_MEASURES = frozenset({"faithfulness", "context_recall", "claim_precision", "claim_recall"})
"""Measures that are shares of claims."""
PROBABILITY_MEASURE = "faithfulness(by=probability)"
VOTES_KEY = "votes"
"""Metadata key of the votes of each person: `{"faithfulness": {"ann": 1.0, "bob": 0.5}}`."""


@dataclass(frozen=True)
class LabelledSamples:
    """Labelled samples to judge, with the provenance of their labels."""

    name: str
    samples: Sequence[Sample]
    measure: AnswerMeasure
    has_human_labels: bool = True
    easy: str = ""
    about: str = ""
    label_threshold: float = DEFAULT_THRESHOLD

    @cached_property
    def labels(self) -> Floats:
        """Label of each sample; NaN if it has none."""
        return np.array([_find_label(sample.labels, self.measure.spec.name) for sample in self.samples], np.float64)

    @cached_property
    def labelled_samples(self) -> list[Sample]:
        return [sample for sample, label in zip(self.samples, self.labels, strict=True) if not math.isnan(label)]

    def cut(self, label_threshold: float) -> float:
        """Return the default threshold of the judge's score.

        With binary labels, one wrong claim makes a whole answer bad, so that measures that are shares of claims use
        1. Graded labels have the scale of the scores and use the same threshold.
        """
        labels = self.labels[~np.isnan(self.labels)]
        if not np.isin(labels, (0.0, 1.0)).all():
            return label_threshold
        return 1.0 if self.measure.spec.name in CLAIM_SHARE_MEASURES else DEFAULT_THRESHOLD

    @property
    def measures(self) -> list[str]:
        """Measures to judge: the measure, and its probability variant if it has one."""
        return [str(self.measure), *([PROBABILITY_MEASURE] if str(self.measure) == "faithfulness" else [])]


def load_labelled_samples(labelled: Any, measure: str | None) -> LabelledSamples:
    """Load labelled samples and determine the measure that their labels refer to.

    Raises MissingEvidence without labels, and BadInput if the measure is ambiguous or a lower-is-better measure.
    """
    if isinstance(labelled, str | Path):
        labelled = load_labelled(str(labelled))
    dataset = labelled if isinstance(labelled, LabelledDataset) else LabelledDataset("samples", samples_from(labelled))
    labelled_measures = sorted(
        {
            str(parse_answer_measure(name))
            for sample in dataset.samples
            for name in sample.labels
            if is_answer_measure(name)
        }
    )
    if not labelled_measures:
        raise MissingEvidence(
            f"no sample of {dataset.name} has a label",
            hint='add a label to some samples, e.g. "labels": {"faithfulness": 1}',
        )
    measure_name = measure or dataset.measure or (labelled_measures[0] if len(labelled_measures) == 1 else "")
    if not measure_name:
        raise BadInput(f"the labels speak of {' and '.join(labelled_measures)}", hint=f"measure {labelled_measures[0]}")
    chosen = parse_answer_measure(measure_name)
    if chosen.spec.lower_is_better:
        raise BadInput(
            f"{chosen} is a lower-is-better measure and cannot be calibrated",
            hint="use a higher-is-better measure, such as faithfulness",
        )
    if chosen.spec.name not in labelled_measures:
        raise MissingEvidence(
            f"no sample of {dataset.name} has a label of {chosen}", hint=f"there is {', '.join(labelled_measures)}"
        )
    return LabelledSamples(
        dataset.name,
        dataset.samples,
        chosen,
        dataset.people,
        dataset.easy,
        dataset.about,
        DEFAULT_THRESHOLD if dataset.threshold is None else dataset.threshold,
    )


def _find_label(labels: Mapping[str, float], measure: str) -> float:
    return next(
        (
            value
            for name, value in labels.items()
            if is_answer_measure(name) and parse_answer_measure(name).spec.name == measure
        ),
        math.nan,
    )


def draw_samples(samples: LabelledSamples, max_samples: int | None, seed: int) -> LabelledSamples:
    """Draw `max_samples` random samples, in their original order."""
    if max_samples is not None and max_samples < 1:
        raise BadInput(f"max_samples must be at least 1, got {max_samples}")
    if max_samples is None or max_samples >= len(samples.samples):
        return samples
    chosen = np.sort(np.random.default_rng(seed).permutation(len(samples.samples))[:max_samples])
    return replace(samples, samples=[samples.samples[at] for at in chosen])


def question_groups(samples: Sequence[Sample]) -> Ints | None:
    """Group samples with the same question and conversation.

    None if all groups have one sample.
    """
    keys: dict[Any, int] = {}
    groups = []
    for sample in samples:
        key = (sample.question, sample.history) if sample.question.strip() else ("", sample.contexts or sample.id)
        groups.append(keys.setdefault(key, len(keys)))
    return np.array(groups, np.int64) if len(keys) < len(groups) else None


def votes_by_sample(samples: Sequence[Sample], measure: str) -> Floats | None:
    """Return the votes as an array, one row per sample and padded with NaN.

    None without votes.
    """
    all_votes = [sample.metadata.get(VOTES_KEY, {}) for sample in samples]
    measure_votes = [votes.get(measure, ()) if isinstance(votes, Mapping) else () for votes in all_votes]
    rows = [list(votes.values()) if isinstance(votes, Mapping) else list(votes) for votes in measure_votes]
    if not any(rows):
        return None
    width = max(map(len, rows))
    return np.array([[*map(float, row), *[math.nan] * (width - len(row))] for row in rows], np.float64)
