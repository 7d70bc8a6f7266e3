"""The nouns of judging: what was answered (`Sample`), what a judge said of it (`Verdicts`), what that cost (`Step`).

A judge says things of parts: of each claim which sources bear it out, of each chunk whether it helps, and which
questions an answer would answer. What it did not say is `Unscored`, with its own words kept; nothing has a default.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.records import NOTHING, Scores

ANSWER, REFERENCE = "answer", "reference"
"""The two texts that claims are taken from. As sources of support they have these names too."""
TOGETHER = "k*"
"""A source that stands for all contexts at once, where a judge does not say which of them it means."""
ASKS = ("answer", "reference", "cross", "useful", "questions")
"""What can be judged of a sample: the claims of its answer against the contexts, those of its reference against the
contexts, the claims of both texts against each other, which chunks are useful, which questions it answers."""
LEXICAL = "lexical"
"""The judge that compares words and asks no model, by its name."""
STEPS = ("claims", "support", "useful", "questions")
"""What a judge is asked, in this order: what a text claims, what bears each claim out, which chunks help, what an
answer would be the answer to."""


@dataclass(frozen=True)
class Sample:
    """One answer to one question, and what it was made from. What is None was not given; what is empty is empty."""

    id: str
    question: str = ""
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    """The chunks that were retrieved, best first."""
    reference: str | None = None
    """What a good answer says, by somebody who knows."""
    context_ids: tuple[str, ...] = ()
    """The names of the chunks, where they have some."""
    history: tuple[str, ...] = ()
    """Earlier turns of the conversation, oldest first."""
    labels: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """`{"faithfulness": 1.0}`: what people said, between 0 and 1, by measure."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def chunks(self) -> dict[str, str]:
        """The contexts by the ids that judges know them by: `k1`, `k2`, …, best first."""
        return {f"k{place}": text for place, text in enumerate(self.contexts or (), 1)}

    @property
    def fingerprint(self) -> str:
        """What was asked and what a good answer says, as two short hashes; of what is not given there is none.

        >>> Sample("s", "When?").fingerprint, Sample("s", "When? ", reference="In 1887.").fingerprint
        ('e5d25249-', 'e5d25249-b92f54c5')
        """
        return "-".join(_short_hash(text or "") for text in (self.question, self.reference))


def _short_hash(text: str) -> str:
    words = " ".join(text.split())
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:8] if words else ""


def same_texts(one: str, other: str) -> bool:
    """Whether two fingerprints can be of the same question and reference: what only one of them has tells nothing.

    >>> same_texts("e5d25249-", "e5d25249-b92f54c5"), same_texts("e5d25249-", "12345678-")
    (True, False)
    """
    pairs = zip(one.split("-"), other.split("-"), strict=False)
    return all(mine == theirs for mine, theirs in pairs if mine and theirs)


class Claim(NamedTuple):
    """One thing that a text says: `a1`, `a2`, … of an answer, `r1`, … of a reference."""

    id: str
    text: str
    sentence: int
    """The sentence of the text that it was taken from, counted from 1."""
    cites: tuple[int, ...] | None = None
    """The chunks that this sentence names as its sources, by place (see `cited_by`); None where nobody looked."""


class Support(NamedTuple):
    """Which sources bear a claim out: chunks (`k1`), the other text (`reference` or `answer`), or TOGETHER."""

    by: tuple[str, ...]
    """Those that do so alone."""
    against: tuple[str, ...] = ()
    """The sources that say otherwise."""
    words: str = ""
    """The judge's own."""
    probability: float | None = None
    """How sure the judge is that the contexts bear it out, where it says."""
    together: tuple[str, ...] = ()
    """The chunks that bear it out only all together: without one of them it is not borne out."""


class Usefulness(NamedTuple):
    """Whether a chunk holds what is needed to answer the question."""

    useful: bool
    words: str = ""
    probability: float | None = None


class Question(NamedTuple):
    """A question that the judge thought up, and how near it is to the one that was asked (their cosine)."""

    text: str
    similarity: float


class Unscored(NamedTuple):
    """Why there is no verdict, and the judge's reply as it came."""

    why: str
    reply: str = ""


@dataclass(frozen=True)
class Verdicts:
    """All that a judge said of one sample."""

    sample: str
    asked: Sequence[str] = ()
    """Which of ASKS were put to the judge. Without it, a claim that no source bears out could be one that was never
    held against that source; so what is not here has no verdict."""
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=lambda: NOTHING)
    """Of `answer` and `reference`. A text that claims nothing has an empty list; one that is absent has no verdict."""
    support: Mapping[str, Support] = field(default_factory=lambda: NOTHING)
    """By claim."""
    useful: Mapping[str, Usefulness] = field(default_factory=lambda: NOTHING)
    """By chunk."""
    questions: Sequence[Question] = ()
    refusal: bool | None = None
    """Whether the answer commits itself to nothing; None where that was not asked."""
    unscored: Mapping[str, Unscored] = field(default_factory=lambda: NOTHING)
    """What has no verdict, by what it is: `claims answer`, `support a3`, `useful k2`, `questions`."""
    left_out: Mapping[str, Sequence[str]] = field(default_factory=lambda: NOTHING)
    """Sentences without a claim (refusals, questions, courtesies), by text: `answer` and `reference`."""


_MARKER = re.compile(r"(?:\[\^?|【)\s*(\d{1,3}(?:\s*[-\u2013,;]\s*\d{1,3})*)\s*(?:†[^】]*)?(?:\]|】)")
"""`[1]`, `[1, 2]`, `[2-4]`, `[^1]`, `【1】`, `【1†source】`. Four digits are a year."""


def cited(sentence: str) -> tuple[int, ...]:
    """The chunks that a sentence names as its sources, by place, each once.

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
    """A sentence without the markers of its sources.

    >>> uncited("Paris is the capital [1][3].")
    'Paris is the capital.'
    """
    return re.sub(rf"\s*{_MARKER.pattern}", "", sentence)


def cited_by(sentences: Sequence[str]) -> list[tuple[int, ...]]:
    """The same of each sentence of a text. Markers that a sentence begins with belong to the one before.

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


class Reply(NamedTuple):
    """What a model said, and what it took."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompt that the endpoint had kept and charges less for."""
    finish: str = "stop"
    """Why it ended: `stop`, or `length` where it was cut off, `refusal` where the model will not say, `content_filter`
    where the endpoint will not, `tool` where a tool was called instead; or another word of the endpoint's own. Only
    what ended by `stop` is a verdict."""
    model: str = ""
    """The model by its own name, which may be more exact than the one that was asked for."""
    probabilities: Mapping[str, float] = NOTHING
    """Of the words that a one-word reply chose from, where the endpoint gives them."""
    how: str = ""
    """How the shape of the reply was asked for: `json_schema`, `json_object`, `plain`, `tokens`."""
    hold: float = 0.0
    """Seconds to wait before the next call, where the endpoint says that its limit is reached."""


class Step(NamedTuple):
    """What one step of judging took: a row of the ledger."""

    step: str
    calls: int
    """Replies that were paid for, over all sessions."""
    kept: int
    """Calls that this session did not make, because their replies were there."""
    retries: int
    """Attempts that failed and were made again."""
    unread: int
    """Replies that could not be read, or not whole."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    """Of all its calls together, one after the other."""
    p50: float
    p95: float
    """Milliseconds of a call."""
    cost: float | None
    """In US dollars; None if the model has no price."""


class Estimate(NamedTuple):
    """What a step would take, before anything is asked. Claims are not known yet: their number is that of sentences."""

    step: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    """In US dollars; 0 on a local server, None if the model has no price."""
    seconds: float | None = None
    """On a local server of assumed speed; None for other endpoints."""


class Canary(NamedTuple):
    """One attempt to talk the judge into a verdict, and what came of it."""

    case: str
    step: str
    where: str
    """What held the instruction: an `answer`, a `context`, a `question`."""
    wanted: str
    """The right verdict."""
    clean: str
    """The verdict without the attempt."""
    attacked: str
    """The verdict with it."""

    @property
    def held(self) -> bool | None:
        """Whether the judge was not talked out of the right verdict; None where it did not have it to begin with."""
        return None if self.clean != self.wanted or self.attacked == "unscored" else self.attacked == self.wanted


@dataclass(frozen=True, eq=False)
class Judged:
    """Everything that came of judging: what was said, what it counts to, what it took."""

    name: str
    """What was judged."""
    judge: str
    """Who judged, in words that are the same only for the same judge."""
    identity: Mapping[str, Any]
    """The same in full: model, endpoint, parameters, hashes of the rubrics, embedder."""
    samples: Sequence[Sample]
    verdicts: Mapping[str, Verdicts]
    """By sample."""
    scores: Scores
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=lambda: NOTHING)
    """By measure, of its mean."""
    confidence: float = 0.95
    ledger: Sequence[Step] = ()
    robustness: Sequence[Canary] = ()
    stopped: str = ""
    """Why judging ended before everything was asked, where it did."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    """When, on which machine, with which versions."""
    folder: Path | None = None

    @property
    def lexical(self) -> bool:
        """Whether no model judged, but words were compared."""
        return self.identity.get("judge") == LEXICAL

    @property
    def unreadable(self) -> bool:
        """Whether a model was asked and gave no verdict at all, although some values may be computed without it."""
        read = any(
            one.support or one.useful or one.questions or one.refusal is not None or any(one.claims.values())
            for one in self.verdicts.values()
        )
        return not self.lexical and not read and any(one.unscored for one in self.verdicts.values())

    def __repr__(self) -> str:
        return f"Judged({self.name!r} by {self.judge}: {self.scores!r})"
