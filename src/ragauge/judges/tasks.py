"""What a judge is asked at a time, what it may say, and the contract of whoever answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ragauge.verdicts import Unscored

CONTEXTS = "k"
"""The ids of chunks begin with it: k1, k2, …"""


@dataclass(frozen=True)
class Task:
    """One thing to ask: everything in `asked` wants a verdict, and nothing else may have one.

    | step | `asked` | `sources` | what is said of each |
    |---|---|---|---|
    | claims | sentences s1, s2, … of one text | | the claims in it: a list of texts |
    | support | claims a1, …, r1, … | chunks, `reference`, `answer` | a Support |
    | useful | chunks k1, k2, … | | a Usefulness |
    | questions | `answer` | | a Thought |
    """

    step: str
    sample: str
    asked: Mapping[str, str]
    sources: Mapping[str, str]
    question: str = ""
    history: Sequence[str] = ()
    n: int = 0
    """How many questions are to be thought up."""
    text: str = ""
    """Whose claims are wanted: `answer` or `reference`."""

    def choices(self, claim: str) -> list[str]:
        """The sources that may bear a claim out: never the text that it was taken from."""
        own = "answer" if claim.startswith("a") else "reference"
        return [source for source in self.sources if source != own]


class Thought(NamedTuple):
    """What an answer would be the answer to."""

    refusal: bool
    """Whether it commits itself to nothing."""
    questions: tuple[str, ...]


class Reading(NamedTuple):
    """What was said of each thing asked, and why of some nothing was. Together they are exactly what was asked."""

    said: dict[str, Any]
    unscored: dict[str, Unscored]


class Judge(Protocol):
    """Whoever answers tasks."""

    @property
    def name(self) -> str:
        """Who it is, in a few words."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """The same in full: whatever could change a verdict is in it."""
        ...

    async def answer(self, task: Task) -> Reading:
        """A verdict on everything that is asked, or the reason why there is none."""
        ...
