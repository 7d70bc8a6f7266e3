"""One judged sample, as measures of answers look at it. Whatever has no verdict stops the counting, with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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

    @cached_property
    def sources(self) -> frozenset[str]:
        """The chunks that say something. A blank one bears nothing out and is not useful: nobody is asked about it."""
        return frozenset(chunk for chunk, text in self.sample.chunks.items() if text.strip())

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
        chunks = [one for one in self.contexts() if one in self.sources] if contexts else []
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
        by, against, joint = set(found.by), set(found.against), set(found.together)
        every = {*self.sources, OTHER[text]} | ({TOGETHER} if self.sources else set())
        if strange := (by | against) - every | joint - self.sources:
            return f"it names {min(strange)}, which is no source of it"
        if twice := by & against | by & joint | against & joint:
            return f"it names {min(twice)} both {'for' if twice & against else 'alone'} and " + (
                "against it" if twice & against else "only together with others"
            )
        return "it names one source together with nothing" if len(joint) == 1 else None

    def useful(self, first: int | None) -> list[bool]:
        """Whether each of the first chunks is useful."""
        chunks = self.contexts()[:first]
        untold = [
            self.verdicts.unscored.get(f"useful {chunk}", NOT_JUDGED).why
            for chunk in chunks
            if chunk in self.sources
            and (chunk not in self.verdicts.useful or f"useful {chunk}" in self.verdicts.unscored)
        ]
        refuse("chunk", len(chunks), untold)
        return [chunk in self.sources and self.verdicts.useful[chunk].useful for chunk in chunks]

    def among(self, support: Support, chunks: Iterable[str]) -> bool:
        """Whether some chunks bear a claim out: one of them alone, or all that it takes together."""
        wanted = set(chunks)
        if wanted >= self.sources:
            return by_contexts(support)
        return _joint(support, wanted) or not wanted.isdisjoint(self.told(support))

    def each(self, support: Support, chunks: Sequence[str]) -> list[bool]:
        """Whether each of some chunks bears a claim out, alone or as a part of what does among them."""
        parts = set(support.together) if _joint(support, set(chunks)) else set()
        return [chunk in parts or self.among(support, [chunk]) for chunk in chunks]

    def told(self, support: Support) -> set[str]:
        """The chunks that bear a claim out alone; refused where the judge did not tell them apart."""
        found = set(self.sources & set(support.by))
        if TOGETHER in support.by and not found:
            if len(self.sources) > 1:
                raise NoVerdict("the judge did not say which chunk bears a claim out")
            return set(self.sources)
        return found


def by_contexts(support: Support) -> bool:
    """Whether the contexts bear a claim out, one of them alone or several together."""
    return bool(support.together) or any(source not in (ANSWER, REFERENCE) for source in support.by)


def _joint(support: Support, chunks: set[str]) -> bool:
    """Whether all are there that bear a claim out together."""
    return bool(support.together) and chunks.issuperset(support.together)


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
