"""Samples to be judged, their claims, and the verdicts on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.hashes import hash_text
from ragauge.core.record_types import json_form

ANSWER, REFERENCE = "answer", "reference"
"""The two texts from which claims are extracted; also their names as sources of support."""
CLAIM_ID_PREFIXES = {ANSWER: "a", REFERENCE: "r"}
ALL_CONTEXTS = "k*"
"""Source that stands for all contexts together, if the judge does not say which one it means."""
LEXICAL_JUDGE = "lexical"
"""Name of the judge that compares words and calls no model."""


def claim_id(text: str, number: int) -> str:
    """Return the id of a claim of the answer (a1, a2, …) or of the reference (r1, r2, …)."""
    return f"{CLAIM_ID_PREFIXES[text]}{number}"


def is_claim_of(text: str, claim: str) -> bool:
    """Return whether the id of a claim is that of a claim of this text."""
    return claim.startswith(CLAIM_ID_PREFIXES[text])


def chunk_id(number: int) -> str:
    """Return the id of a chunk (k1, k2, …)."""
    return f"k{number}"


def is_chunk(source: str) -> bool:
    """Return whether a source is a chunk, or all of them together; not the answer or the reference."""
    return source not in (ANSWER, REFERENCE)


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
    labels: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """Human labels from 0 to 1 by measure: `{"faithfulness": 1.0}`."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    @property
    def chunks(self) -> dict[str, str]:
        """Contexts by the ids used in judge tasks: `k1`, `k2`, …, best first."""
        return {chunk_id(number): text for number, text in enumerate(self.contexts or (), 1)}

    @property
    def fingerprint(self) -> str:
        """Short hashes of question and reference; empty for a text that is not given.

        >>> Sample("s", "When?").fingerprint, Sample("s", "When? ", reference="In 1887.").fingerprint
        ('e5d25249-', 'e5d25249-b92f54c5')
        """
        return "-".join(_short_hash(text or "") for text in (self.question, self.reference))


def _short_hash(text: str) -> str:
    normalised = " ".join(text.split())
    return hash_text(normalised, 8) if normalised else ""


def has_same_texts(first: str, second: str) -> bool:
    """Return whether two fingerprints can belong to the same question and reference.

    A hash that only one of them has is ignored.

    >>> has_same_texts("e5d25249-", "e5d25249-b92f54c5"), has_same_texts("e5d25249-", "12345678-")
    (True, False)
    """
    pairs = zip(first.split("-"), second.split("-"), strict=False)
    return all(first_hash == second_hash for first_hash, second_hash in pairs if first_hash and second_hash)


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


class Rating(NamedTuple):
    """Verdict of a step without a type of its own."""

    value: float
    """From 0 to 1."""
    words: str = ""
    probability: float | None = None


class GeneratedQuestion(NamedTuple):
    """A generated question, with its cosine similarity to the original question."""

    text: str
    similarity: float


class Unscored(NamedTuple):
    """Reason for a missing verdict, with the reply of the judge."""

    reason: str
    reply: str = ""


@json_form(optional=("ratings",))
@dataclass(frozen=True)
class Verdicts:
    """All verdicts of a judge on one sample."""

    sample: str
    asked: Sequence[str] = ()
    """Kinds of tasks that were judged, such as `answer`. Without this, an unsupported claim could be one that was
    never checked against a source; so anything that is not listed has no verdict.
    """
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    """Claims of `answer` and `reference`. A text without claims has an empty list; a missing text has no verdict."""
    support: Mapping[str, Support] = field(default_factory=dict)
    """Support by claim id."""
    useful: Mapping[str, Usefulness] = field(default_factory=dict)
    """Usefulness by chunk id."""
    questions: Sequence[GeneratedQuestion] = ()
    refusal: bool | None = None
    """Whether the answer gives no information; None if not judged."""
    unscored: Mapping[str, Unscored] = field(default_factory=dict)
    """Items without a verdict: `claims answer`, `support a3`, `useful k2`, `questions`."""
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Sentences without a claim (refusals, questions, courtesies), by text: `answer` and `reference`."""
    ratings: Mapping[str, Mapping[str, Rating]] = field(default_factory=dict)
    """Verdicts of further steps, by step and item."""


_CITATION_REGEX = re.compile(r"(?:\[\^?|【)\s*(\d{1,3}(?:\s*[-\u2013,;]\s*\d{1,3})*)\s*(?:†[^】]*)?(?:\]|】)")
"""Citation markers: `[1]`, `[1, 2]`, `[2-4]`, `[^1]`, `【1】`, `【1†source】`. Four digits are a year."""


def find_citations(sentence: str) -> tuple[int, ...]:
    """Return the positions of the chunks that a sentence cites, each once.

    >>> (find_citations("Paris is the capital [1][3], and large [1, 2]."), find_citations("Founded in [1999]."),
    ...  find_citations("See 【2†page】."))
    ((1, 3, 2), (), (2,))
    """
    positions: dict[int, None] = {}
    for marker in _CITATION_REGEX.findall(sentence):
        for part in re.split(r"[,;]", marker):
            first, *rest = [int(number) for number in re.split(r"[-\u2013]", part)]
            positions |= dict.fromkeys(range(first, (rest[-1] if rest else first) + 1))
    return tuple(positions)


def remove_citations(sentence: str) -> str:
    """Remove the citation markers from a sentence.

    >>> remove_citations("Paris is the capital [1][3].")
    'Paris is the capital.'
    """
    return re.sub(rf"\s*{_CITATION_REGEX.pattern}", "", sentence)


def citations_by_sentence(sentences: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the cited chunks of each sentence.

    Leading markers belong to the sentence before.

    >>> citations_by_sentence(["It is big.", "[1] It is old [2]."])
    [(1,), (2,)]
    """
    citations: list[tuple[int, ...]] = []
    for sentence in sentences:
        head = re.match(rf"\s*(?:{_CITATION_REGEX.pattern}\s*)+", sentence)
        if head and citations:
            citations[-1] = tuple(dict.fromkeys(citations[-1] + find_citations(head[0])))
            citations.append(find_citations(sentence[head.end() :]))
        else:
            citations.append(find_citations(sentence))
    return citations
