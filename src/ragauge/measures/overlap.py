"""Word overlap of two texts: the baseline that a judge of answers has to beat."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from ragauge.verdicts import Sample

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
