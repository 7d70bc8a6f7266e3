"""One judged sample, as measures of answers look at it. Whatever has no verdict stops the counting, with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragauge.measures.conventions import PRESETS, Convention
from ragauge.verdicts import ANSWER, REFERENCE, TOGETHER, Claim, Sample, Support, Unscored, Verdicts

OTHER = {ANSWER: REFERENCE, REFERENCE: ANSWER}
"""The text that the claims of a text are held against."""
GIVEN = {"question": "questions", "answer": "answers", "contexts": "contexts", "reference": "reference answers"}
"""What samples may be given with."""
ABSENT = {
    "question": "no question",
    "answer": "no answer",
    "contexts": "no contexts",
    "reference": "no reference answer",
}
"""What is said of one that was given without it."""
NOT_JUDGED = Unscored("it was not judged")


class NoVerdict(Exception):
    """A sample has no value, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, eq=False)
class Case:
    """A sample, what a judge said of it, and the convention to count by."""

    sample: Sample
    verdicts: Verdicts
    convention: Convention = PRESETS["default"]

    def has(self, what: str) -> bool:
        """Whether the sample was given with something. A blank answer is one; a blank question or reference is none."""
        value = getattr(self.sample, what)
        return bool((value or "").strip()) if what in ("question", "reference") else value is not None

    def contexts(self) -> list[str]:
        """The ids of the chunks, best first; where there is none the convention may say that nothing is counted."""
        if self.sample.contexts is None:
            raise NoVerdict(ABSENT["contexts"])
        if not self.sample.contexts and self.convention.no_context == "unscored":
            raise NoVerdict("the context is empty")
        return list(self.sample.chunks)

    def claims(self, text: str) -> Sequence[Claim]:
        """What the answer, or the reference, claims."""
        if getattr(self.sample, text) is None:
            raise NoVerdict(ABSENT[text])
        without = self.verdicts.unscored.get(f"claims {text}")
        if without is not None or text not in self.verdicts.claims:
            raise NoVerdict(f"the claims of the {text} are not known: {(without or NOT_JUDGED).why}")
        return self.verdicts.claims[text]

    def some_claims(self, text: str) -> Sequence[Claim]:
        """The same, of a text that claims something."""
        claims = self.claims(text)
        if not claims:
            raise NoVerdict(f"the {text} claims nothing")
        return claims

    def supports(self, text: str, *, contexts: bool = False, other: bool = False) -> list[Support]:
        """What bears each claim of a text out, once it is sure that all were held against the sources that count."""
        claims = self.some_claims(text)
        chunks = self.contexts() if contexts else []
        against = OTHER[text]
        if other:
            self.claims(against)  # a judge holds two texts against each other once it knows what both of them claim
        said = other and bool(getattr(self.sample, against).strip())
        if not chunks and not said:
            return [Support(())] * len(claims)  # what is empty bears nothing out: nobody has to be asked
        if chunks and text not in self.verdicts.asked:
            raise NoVerdict(f"the claims of the {text} were not held against the contexts")
        if said and "cross" not in self.verdicts.asked:
            raise NoVerdict(f"the claims of the {text} were not held against the {against}")
        unscored = {claim.id: self._untold(claim.id, text) for claim in claims}
        refuse("claim", len(claims), [why for why in unscored.values() if why is not None])
        return [self.verdicts.support[claim.id] for claim in claims]

    def _untold(self, claim: str, text: str) -> str | None:
        """Why a claim has no verdict, if it has none."""
        without = self.verdicts.unscored.get(f"support {claim}")
        found = self.verdicts.support.get(claim)
        if without is not None or found is None:
            return (without or NOT_JUDGED).why
        chunks = self.sample.chunks
        strange = {*found.by, *found.against} - {*chunks, OTHER[text]} - ({TOGETHER} if chunks else set())
        return f"it names {min(strange)}, which is no source of it" if strange else None

    def useful(self, first: int | None) -> list[bool]:
        """Whether each of the first chunks is useful."""
        chunks = self.contexts()[:first]
        untold = [
            self.verdicts.unscored.get(f"useful {chunk}", NOT_JUDGED).why
            for chunk in chunks
            if chunk not in self.verdicts.useful or f"useful {chunk}" in self.verdicts.unscored
        ]
        refuse("chunk", len(chunks), untold)
        return [self.verdicts.useful[chunk].useful for chunk in chunks]

    def among(self, support: Support, chunks: Iterable[str]) -> bool:
        """Whether any of some chunks bears a claim out."""
        wanted = set(chunks)
        return by_contexts(support) if wanted >= set(self.sample.chunks) else not wanted.isdisjoint(self.told(support))

    def told(self, support: Support) -> set[str]:
        """The chunks that bear a claim out; refused where the judge did not tell them apart."""
        chunks = set(self.sample.chunks)
        found = chunks & set(support.by)
        if TOGETHER in support.by and not found:
            if len(chunks) > 1:
                raise NoVerdict("the judge did not say which chunk bears a claim out")
            return chunks
        return found


def by_contexts(support: Support) -> bool:
    """Whether any context bears a claim out."""
    return any(source not in (ANSWER, REFERENCE) for source in support.by)


def against_contexts(support: Support) -> bool:
    """Whether any context says otherwise."""
    return any(source not in (ANSWER, REFERENCE) for source in support.against)


def refuse(what: str, n: int, untold: Sequence[str]) -> None:
    """Refuse to count where anything has no verdict.

    >>> refuse("claim", 5, ["the reply was cut off"])
    Traceback (most recent call last):
        …
    ragauge.measures.cases.NoVerdict: 1 of 5 claims has no verdict: the reply was cut off
    """
    if untold:
        verb = "has" if len(untold) == 1 else "have"
        plural = "s" if n != 1 else ""
        raise NoVerdict(f"{len(untold)} of {n} {what}{plural} {verb} no verdict: {untold[0]}")
