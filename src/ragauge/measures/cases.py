"""Input of answer measures: one sample with its verdicts. A missing verdict stops the computation with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragauge.measures.conventions import PRESETS, Convention
from ragauge.verdicts import ANSWER, REFERENCE, TOGETHER, Claim, Sample, Support, Unscored, Verdicts

OTHER = {ANSWER: REFERENCE, REFERENCE: ANSWER}
"""Text that the claims of the answer, or of the reference, are checked against."""
GIVEN = {"question": "questions", "answer": "answers", "contexts": "contexts", "reference": "reference answers"}
"""Plural names of the sample fields, for messages."""
ABSENT = {
    "question": "no question",
    "answer": "no answer",
    "contexts": "no contexts",
    "reference": "no reference answer",
}
"""Reason why a sample without the field is unscored."""
NOT_JUDGED = Unscored("it was not judged")


class NoVerdict(Exception):
    """Exception for a sample that cannot be scored, with the reason in `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, eq=False)
class Case:
    """Input of an answer measure: a sample, its verdicts and the convention."""

    sample: Sample
    verdicts: Verdicts
    convention: Convention = PRESETS["default"]

    def has(self, what: str) -> bool:
        """Return whether the sample has a field.

        A blank answer counts, a blank question or reference does not.
        """
        value = getattr(self.sample, what)
        return bool((value or "").strip()) if what in ("question", "reference") else value is not None

    def contexts(self) -> list[str]:
        """Return the chunk ids, best first; raises `MissingVerdict` without contexts.

        Empty contexts raise it too if the convention has no_context=unscored.
        """
        if self.sample.contexts is None:
            raise NoVerdict(ABSENT["contexts"])
        if not self.sample.contexts and self.convention.no_context == "unscored":
            raise NoVerdict("the context is empty")
        return list(self.sample.chunks)

    @cached_property
    def sources(self) -> frozenset[str]:
        """Ids of the chunks that are not blank.

        A blank chunk supports nothing, is not useful, and is not judged.
        """
        return frozenset(chunk for chunk, text in self.sample.chunks.items() if text.strip())

    def claims(self, text: str) -> Sequence[Claim]:
        """Return the claims of the answer or the reference.

        Raises `MissingVerdict` if they are unknown.
        """
        if getattr(self.sample, text) is None:
            raise NoVerdict(ABSENT[text])
        without = self.verdicts.unscored.get(f"claims {text}")
        if without is not None or text not in self.verdicts.claims:
            raise NoVerdict(f"the claims of the {text} are not known: {(without or NOT_JUDGED).why}")
        return self.verdicts.claims[text]

    def some_claims(self, text: str) -> Sequence[Claim]:
        """Return the claims of a text; raises `MissingVerdict` if there are none."""
        claims = self.claims(text)
        if not claims:
            raise NoVerdict(f"the {text} claims nothing")
        return claims

    def supports(self, text: str, *, contexts: bool = False, other: bool = False) -> list[Support]:
        """Return the support of each claim of a text.

        Raises `MissingVerdict` if a verdict is missing. The claims must have been checked against the contexts, the
        other text, or both, as requested.
        """
        claims = self.some_claims(text)
        chunks = [one for one in self.contexts() if one in self.sources] if contexts else []
        against = OTHER[text]
        if other:
            self.claims(against)  # a judge compares two texts only after extracting the claims of both
        said = other and bool(getattr(self.sample, against).strip())
        if not chunks and not said:
            return [Support(())] * len(claims)  # empty sources support nothing, so no verdict is needed
        if chunks and text not in self.verdicts.asked:
            raise NoVerdict(f"the claims of the {text} were not held against the contexts")
        if said and "cross" not in self.verdicts.asked:
            raise NoVerdict(f"the claims of the {text} were not held against the {against}")
        unscored = {claim.id: self._untold(claim.id, text) for claim in claims}
        refuse("claim", len(claims), [why for why in unscored.values() if why is not None])
        return [self.verdicts.support[claim.id] for claim in claims]

    def _untold(self, claim: str, text: str) -> str | None:
        """Return the reason why a claim has no valid verdict; None if it has one."""
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
        """Return whether each of the first chunks is useful; None means all chunks."""
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
        """Return whether the given chunks support a claim, alone or jointly."""
        wanted = set(chunks)
        if wanted >= self.sources:
            return by_contexts(support)
        return _joint(support, wanted) or not wanted.isdisjoint(self.told(support))

    def each(self, support: Support, chunks: Sequence[str]) -> list[bool]:
        """Return for each given chunk whether it supports a claim.

        It may do so alone, or jointly with others given.
        """
        parts = set(support.together) if _joint(support, set(chunks)) else set()
        return [chunk in parts or self.among(support, [chunk]) for chunk in chunks]

    def told(self, support: Support) -> set[str]:
        """Return the chunks that support a claim alone.

        Raises `MissingVerdict` if the judge named only the contexts as a whole and there are several.
        """
        found = set(self.sources & set(support.by))
        if TOGETHER in support.by and not found:
            if len(self.sources) > 1:
                raise NoVerdict("the judge did not say which chunk bears a claim out")
            return set(self.sources)
        return found


def by_contexts(support: Support) -> bool:
    """Return whether the contexts support a claim, one alone or several jointly."""
    return bool(support.together) or any(source not in (ANSWER, REFERENCE) for source in support.by)


def _joint(support: Support, chunks: set[str]) -> bool:
    """Return whether all chunks that support a claim jointly are among `chunks`."""
    return bool(support.together) and chunks.issuperset(support.together)


def against_contexts(support: Support) -> bool:
    """Return whether any context contradicts a claim."""
    return any(source not in (ANSWER, REFERENCE) for source in support.against)


def refuse(what: str, n: int, untold: Sequence[str]) -> None:
    """Raise `MissingVerdict` if any verdict is missing.

    >>> refuse("claim", 5, ["the reply was cut off"])
    Traceback (most recent call last):
        …
    ragauge.measures.cases.NoVerdict: 1 of 5 claims has no verdict: the reply was cut off
    """
    if untold:
        verb = "has" if len(untold) == 1 else "have"
        plural = "s" if n != 1 else ""
        raise NoVerdict(f"{len(untold)} of {n} {what}{plural} {verb} no verdict: {untold[0]}")
