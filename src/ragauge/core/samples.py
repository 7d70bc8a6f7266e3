"""core.samples."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import NOTHING

ANSWER, REFERENCE = "answer", "reference"
"""The two texts from which claims are extracted; also their names as sources of support."""
TOGETHER = "k*"
"""Source that stands for all contexts together, if the judge does not say which one it means."""
ASKS = ("answer", "reference", "cross", "useful", "questions")
"""Kinds of tasks: claims of the answer against the contexts, claims of the reference against the contexts, claims of
both texts against each other, usefulness of chunks, and questions that the answer would answer.
"""
LEXICAL = "lexical"
"""Name of the judge that compares words and calls no model."""
STEPS = ("claims", "support", "useful", "questions")
"""Steps of judging in order: extract claims, check their support, judge the usefulness of chunks, generate questions.
"""


@dataclass(frozen=True)
class Sample:
    """An answer to a question, with the contexts it is based on.

    None means not given; an empty value means empty.
    """

    id: str
    question: str = ""
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    """Retrieved chunks, best first."""
    reference: str | None = None
    """Reference answer."""
    context_ids: tuple[str, ...] = ()
    """Ids of the chunks, if known."""
    history: tuple[str, ...] = ()
    """Earlier turns of the conversation, oldest first."""
    labels: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """Human labels from 0 to 1 by measure: `{"faithfulness": 1.0}`."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def chunks(self) -> dict[str, str]:
        """Contexts by the ids used in judge tasks: `k1`, `k2`, …, best first."""
        return {f"k{place}": text for place, text in enumerate(self.contexts or (), 1)}

    @property
    def fingerprint(self) -> str:
        """Short hashes of question and reference; empty for a text that is not given.

        >>> Sample("s", "When?").fingerprint, Sample("s", "When? ", reference="In 1887.").fingerprint
        ('e5d25249-', 'e5d25249-b92f54c5')
        """
        return "-".join(_short_hash(text or "") for text in (self.question, self.reference))


def _short_hash(text: str) -> str:
    words = " ".join(text.split())
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:8] if words else ""


def same_texts(one: str, other: str) -> bool:
    """Return whether two fingerprints can belong to the same question and reference.

    A hash that only one of them has is ignored.

    >>> same_texts("e5d25249-", "e5d25249-b92f54c5"), same_texts("e5d25249-", "12345678-")
    (True, False)
    """
    pairs = zip(one.split("-"), other.split("-"), strict=False)
    return all(mine == theirs for mine, theirs in pairs if mine and theirs)


class Claim(NamedTuple):
    """One claim of a text: `a1`, `a2`, … of an answer, `r1`, … of a reference."""

    id: str
    text: str
    sentence: int
    """Number of the sentence that it comes from, from 1."""
    cites: tuple[int, ...] | None = None
    """Positions of the chunks that the sentence cites (see `citations_by_sentence`); None if not determined."""


class Support(NamedTuple):
    """Sources that support a claim.

    Chunks (`k1`), the other text (`reference` or `answer`), or `ALL_CONTEXTS`.
    """

    by: tuple[str, ...]
    """Sources that support the claim alone."""
    against: tuple[str, ...] = ()
    """Sources that contradict the claim."""
    words: str = ""
    """Explanation of the judge."""
    probability: float | None = None
    """Probability, according to the judge, that the contexts support the claim; None if not given."""
    together: tuple[str, ...] = ()
    """Chunks that support the claim only together: without one of them it is unsupported."""


class Usefulness(NamedTuple):
    """Whether a chunk contains what is needed to answer the question."""

    useful: bool
    words: str = ""
    probability: float | None = None


class Question(NamedTuple):
    """A generated question, with its cosine similarity to the original question."""

    text: str
    similarity: float


class Unscored(NamedTuple):
    """Reason for a missing verdict, with the reply of the judge."""

    why: str
    reply: str = ""


@dataclass(frozen=True)
class Verdicts:
    """All verdicts of a judge on one sample."""

    sample: str
    asked: Sequence[str] = ()
    """Kinds of tasks that were judged, some of `TASK_KINDS`. Without this, an unsupported claim could be one that was
    never checked against a source; so anything that is not listed has no verdict.
    """
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=lambda: NOTHING)
    """Claims of `answer` and `reference`. A text without claims has an empty list; a missing text has no verdict."""
    support: Mapping[str, Support] = field(default_factory=lambda: NOTHING)
    """Support by claim id."""
    useful: Mapping[str, Usefulness] = field(default_factory=lambda: NOTHING)
    """Usefulness by chunk id."""
    questions: Sequence[Question] = ()
    refusal: bool | None = None
    """Whether the answer gives no information; None if not judged."""
    unscored: Mapping[str, Unscored] = field(default_factory=lambda: NOTHING)
    """Items without a verdict: `claims answer`, `support a3`, `useful k2`, `questions`."""
    left_out: Mapping[str, Sequence[str]] = field(default_factory=lambda: NOTHING)
    """Sentences without a claim (refusals, questions, courtesies), by text: `answer` and `reference`."""


_MARKER = re.compile(r"(?:\[\^?|【)\s*(\d{1,3}(?:\s*[-\u2013,;]\s*\d{1,3})*)\s*(?:†[^】]*)?(?:\]|】)")
"""Citation markers: `[1]`, `[1, 2]`, `[2-4]`, `[^1]`, `【1】`, `【1†source】`. Four digits are a year."""


def cited(sentence: str) -> tuple[int, ...]:
    """Return the positions of the chunks that a sentence cites, each once.

    >>> cited("Paris is the capital [1][3], and large [1, 2]."), cited("Founded in [1999]."), cited("See 【2†page】.")
    ((1, 3, 2), (), (2,))
    """
    found: dict[int, None] = {}
    for marker in _MARKER.findall(sentence):
        for part in re.split(r"[,;]", marker):
            first, *rest = [int(number) for number in re.split(r"[-\u2013]", part)]
            found |= dict.fromkeys(range(first, (rest[-1] if rest else first) + 1))
    return tuple(found)


def uncited(sentence: str) -> str:
    """Remove the citation markers from a sentence.

    >>> uncited("Paris is the capital [1][3].")
    'Paris is the capital.'
    """
    return re.sub(rf"\s*{_MARKER.pattern}", "", sentence)


def cited_by(sentences: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the cited chunks of each sentence.

    Leading markers belong to the sentence before.

    >>> cited_by(["It is big.", "[1] It is old [2]."])
    [(1,), (2,)]
    """
    found: list[tuple[int, ...]] = []
    for sentence in sentences:
        head = re.match(rf"\s*(?:{_MARKER.pattern}\s*)+", sentence)
        if head and found:
            found[-1] = tuple(dict.fromkeys(found[-1] + cited(head[0])))
            found.append(cited(sentence[head.end() :]))
        else:
            found.append(cited(sentence))
    return found
