"""Labelled samples for the calibration of a judge: loading, grouping, votes, and the word-overlap baseline."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import Floats, Ints
from ragauge.core.samples import Sample
from ragauge.datasets.labelled_answers import Labelled, load_labelled
from ragauge.files.samples import samples_of
from ragauge.measures.answers import AnswerMeasure, is_known, parse

WORD = re.compile(r"\w+")
Part = Callable[[Sample], Sequence[str]]


def _answer(sample: Sample) -> Sequence[str]:
    return [sample.answer or ""]


def _question(sample: Sample) -> Sequence[str]:
    return [sample.question]


def _reference(sample: Sample) -> Sequence[str]:
    return [sample.reference or ""]


def _contexts(sample: Sample) -> Sequence[str]:
    return sample.contexts or ()


def _told(sample: Sample) -> Sequence[str]:
    return [*(sample.contexts or ()), sample.question, *sample.history]


COUNTED: Mapping[str, tuple[Part, Part, str]] = {
    "faithfulness": (_answer, _told, "the answer's words that contexts or conversation have"),
    "context_recall": (_reference, _contexts, "the reference's words that the contexts have"),
    "context_precision": (_question, _contexts, "the question's words that the contexts have"),
    "answer_relevance": (_question, _answer, "the question's words that the answer has"),
    "claim_precision": (_answer, _reference, "the answer's words that the reference has"),
    "claim_recall": (_reference, _answer, "the reference's words that the answer has"),
}
"""Texts compared for each measure: whose words, in which text, and a description."""


def overlap(sample: Sample, measure: str) -> float:
    """Return the share of words, repetitions included, that are found.

    NaN without words.

    >>> overlap(Sample("1", "Who?", "Ann and Bob.", ("Bob came and went.",)), "faithfulness")
    0.6666666666666666
    """
    of, inside, _ = COUNTED[measure]
    words = _words(of(sample))
    there = set(_words(inside(sample)))
    return sum(word in there for word in words) / len(words) if words else math.nan


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in WORD.findall(text.lower())]


THRESHOLD = 0.5
SHARES = frozenset({"faithfulness", "context_recall", "claim_precision", "claim_recall"})
"""Measures that are shares of claims."""
SOFT = "faithfulness(by=probability)"
VOTES = "votes"
"""Metadata key of the votes of each person: `{"faithfulness": {"ann": 1.0, "bob": 0.5}}`."""


@dataclass(frozen=True)
class Yardstick:
    """Labelled samples to judge, with the provenance of their labels."""

    name: str
    samples: Sequence[Sample]
    measure: AnswerMeasure
    people: bool = True
    easy: str = ""
    about: str = ""
    label_threshold: float = THRESHOLD

    @cached_property
    def labels(self) -> Floats:
        """Label of each sample; NaN if it has none."""
        return np.array([_said(one.labels, self.measure.spec.name) for one in self.samples], np.float64)

    @cached_property
    def known(self) -> list[Sample]:
        """Samples with a label."""
        return [one for one, label in zip(self.samples, self.labels, strict=True) if not math.isnan(label)]

    def cut(self, label_threshold: float) -> float:
        """Return the default threshold of the judge's score.

        With binary labels, one wrong claim makes a whole answer bad, so that measures that are shares of claims use
        1. Graded labels have the scale of the scores and use the same threshold.
        """
        known = self.labels[~np.isnan(self.labels)]
        if not np.isin(known, (0.0, 1.0)).all():
            return label_threshold
        return 1.0 if self.measure.spec.name in SHARES else THRESHOLD

    @property
    def measures(self) -> list[str]:
        """Measures to judge: the measure, and its probability variant if it has one."""
        return [str(self.measure), *([SOFT] if str(self.measure) == "faithfulness" else [])]


def opened(labelled: Any, measure: str | None) -> Yardstick:
    """Load labelled samples and determine the measure that their labels refer to.

    Raises MissingEvidence without labels, and BadInput if the measure is ambiguous or a lower-is-better measure.
    """
    if isinstance(labelled, str | Path):
        labelled = load_labelled(str(labelled))
    known = labelled if isinstance(labelled, Labelled) else Labelled("samples", samples_of(labelled))
    spoken = sorted({str(parse(name)) for one in known.samples for name in one.labels if is_known(name)})
    if not spoken:
        raise MissingEvidence(
            f"no sample of {known.name} has a label", hint='give "labels": {"faithfulness": 1} to some of them'
        )
    wanted = measure or known.measure or (spoken[0] if len(spoken) == 1 else "")
    if not wanted:
        raise BadInput(f"the labels speak of {' and '.join(spoken)}", hint=f"measure {spoken[0]}")
    chosen = parse(wanted)
    if chosen.spec.lower_is_better:
        raise BadInput(f"less is better of {chosen}, and good would be bad", hint="calibrate faithfulness")
    if chosen.spec.name not in spoken:
        raise MissingEvidence(
            f"no sample of {known.name} has a label of {chosen}", hint=f"there is {', '.join(spoken)}"
        )
    return Yardstick(
        known.name,
        known.samples,
        chosen,
        known.people,
        known.easy,
        known.about,
        THRESHOLD if known.threshold is None else known.threshold,
    )


def _said(labels: Mapping[str, float], measure: str) -> float:
    return next((one for name, one in labels.items() if is_known(name) and parse(name).spec.name == measure), math.nan)


def drawn(given: Yardstick, limit: int | None, seed: int) -> Yardstick:
    """Draw `limit` random samples, in their original order."""
    if limit is not None and limit < 1:
        raise BadInput("limit is a number from 1 on")
    if limit is None or limit >= len(given.samples):
        return given
    chosen = np.sort(np.random.default_rng(seed).permutation(len(given.samples))[:limit])
    return replace(given, samples=[given.samples[at] for at in chosen])


def groups_of(samples: Sequence[Sample]) -> Ints | None:
    """Group samples with the same question and conversation.

    None if all groups have one sample.
    """
    keys: dict[Any, int] = {}
    found = []
    for one in samples:
        asked = (one.question, one.history) if one.question.strip() else ("", one.contexts or one.id)
        found.append(keys.setdefault(asked, len(keys)))
    return np.array(found, np.int64) if len(keys) < len(found) else None


def votes_of(samples: Sequence[Sample], measure: str) -> Floats | None:
    """Return the votes as an array, one row per sample and padded with NaN.

    None without votes.
    """
    found = [one.metadata.get(VOTES, {}) for one in samples]
    each = [one.get(measure, ()) if isinstance(one, Mapping) else () for one in found]
    rows = [list(one.values()) if isinstance(one, Mapping) else list(one) for one in each]
    if not any(rows):
        return None
    width = max(map(len, rows))
    return np.array([[*map(float, row), *[math.nan] * (width - len(row))] for row in rows], np.float64)
