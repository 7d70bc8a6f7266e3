"""Answer measures computed from verdicts on claims, chunks and questions.

Each takes an `AnswerMeasureInput` and returns a score, or raises `MissingVerdict` if a verdict that it needs is
missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragauge.core.samples import ALL_CONTEXTS, ANSWER, REFERENCE, Claim, Sample, Support, Unscored, Verdicts
from ragauge.measures.conventions import PRESETS, Convention

OTHER_TEXT = {ANSWER: REFERENCE, REFERENCE: ANSWER}
"""Text that the claims of the answer, or of the reference, are checked against."""
FIELD_NAMES = {"question": "questions", "answer": "answers", "contexts": "contexts", "reference": "reference answers"}
"""Plural names of the sample fields, for messages."""
ABSENT_REASONS = {
    "question": "no question",
    "answer": "no answer",
    "contexts": "no contexts",
    "reference": "no reference answer",
}
"""Reason why a sample without the field is unscored."""
NOT_JUDGED = Unscored("it was not judged")


class MissingVerdict(Exception):
    """Exception for a sample that cannot be scored, with the reason in `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, eq=False)
class AnswerMeasureInput:
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
            raise MissingVerdict(ABSENT_REASONS["contexts"])
        if not self.sample.contexts and self.convention.no_context == "unscored":
            raise MissingVerdict("the context is empty")
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
            raise MissingVerdict(ABSENT_REASONS[text])
        without = self.verdicts.unscored.get(f"claims {text}")
        if without is not None or text not in self.verdicts.claims:
            raise MissingVerdict(f"the claims of the {text} are not known: {(without or NOT_JUDGED).why}")
        return self.verdicts.claims[text]

    def some_claims(self, text: str) -> Sequence[Claim]:
        """Return the claims of a text; raises `MissingVerdict` if there are none."""
        claims = self.claims(text)
        if not claims:
            raise MissingVerdict(f"the {text} claims nothing")
        return claims

    def supports(self, text: str, *, contexts: bool = False, other: bool = False) -> list[Support]:
        """Return the support of each claim of a text.

        Raises `MissingVerdict` if a verdict is missing. The claims must have been checked against the contexts, the
        other text, or both, as requested.
        """
        claims = self.some_claims(text)
        chunks = [one for one in self.contexts() if one in self.sources] if contexts else []
        against = OTHER_TEXT[text]
        if other:
            self.claims(against)  # a judge compares two texts only after extracting the claims of both
        said = other and bool(getattr(self.sample, against).strip())
        if not chunks and not said:
            return [Support(())] * len(claims)  # empty sources support nothing, so no verdict is needed
        if chunks and text not in self.verdicts.asked:
            raise MissingVerdict(f"the claims of the {text} were not held against the contexts")
        if said and "cross" not in self.verdicts.asked:
            raise MissingVerdict(f"the claims of the {text} were not held against the {against}")
        unscored = {claim.id: self._missing_verdict_reason(claim.id, text) for claim in claims}
        check_all_judged("claim", len(claims), [why for why in unscored.values() if why is not None])
        return [self.verdicts.support[claim.id] for claim in claims]

    def _missing_verdict_reason(self, claim: str, text: str) -> str | None:
        """Return the reason why a claim has no valid verdict; None if it has one."""
        without = self.verdicts.unscored.get(f"support {claim}")
        found = self.verdicts.support.get(claim)
        if without is not None or found is None:
            return (without or NOT_JUDGED).why
        by, against, joint = set(found.by), set(found.against), set(found.together)
        every = {*self.sources, OTHER_TEXT[text]} | ({ALL_CONTEXTS} if self.sources else set())
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
        check_all_judged("chunk", len(chunks), untold)
        return [chunk in self.sources and self.verdicts.useful[chunk].useful for chunk in chunks]

    def among(self, support: Support, chunks: Iterable[str]) -> bool:
        """Return whether the given chunks support a claim, alone or jointly."""
        wanted = set(chunks)
        if wanted >= self.sources:
            return is_supported_by_contexts(support)
        return _has_joint_support(support, wanted) or not wanted.isdisjoint(self.told(support))

    def each(self, support: Support, chunks: Sequence[str]) -> list[bool]:
        """Return for each given chunk whether it supports a claim.

        It may do so alone, or jointly with others given.
        """
        parts = set(support.together) if _has_joint_support(support, set(chunks)) else set()
        return [chunk in parts or self.among(support, [chunk]) for chunk in chunks]

    def told(self, support: Support) -> set[str]:
        """Return the chunks that support a claim alone.

        Raises `MissingVerdict` if the judge named only the contexts as a whole and there are several.
        """
        found = set(self.sources & set(support.by))
        if ALL_CONTEXTS in support.by and not found:
            if len(self.sources) > 1:
                raise MissingVerdict("the judge did not say which chunk bears a claim out")
            return set(self.sources)
        return found


def is_supported_by_contexts(support: Support) -> bool:
    """Return whether the contexts support a claim, one alone or several jointly."""
    return bool(support.together) or any(source not in (ANSWER, REFERENCE) for source in support.by)


def _has_joint_support(support: Support, chunks: set[str]) -> bool:
    """Return whether all chunks that support a claim jointly are among `chunks`."""
    return bool(support.together) and chunks.issuperset(support.together)


def is_contradicted_by_contexts(support: Support) -> bool:
    """Return whether any context contradicts a claim."""
    return any(source not in (ANSWER, REFERENCE) for source in support.against)


def check_all_judged(what: str, n: int, untold: Sequence[str]) -> None:
    """Raise `MissingVerdict` if any verdict is missing.

    >>> check_all_judged("claim", 5, ["the reply was cut off"])
    Traceback (most recent call last):
        …
    ragauge.measures.grounding.MissingVerdict: 1 of 5 claims has no verdict: the reply was cut off
    """
    if untold:
        verb = "has" if len(untold) == 1 else "have"
        plural = "s" if n != 1 else ""
        raise MissingVerdict(f"{len(untold)} of {n} {what}{plural} {verb} no verdict: {untold[0]}")


def _supported_proportion(held: list[bool]) -> float:
    return sum(held) / len(held)


def faithfulness(case: AnswerMeasureInput, *, by: str = "verdict") -> float:
    """Share of the answer's claims that the contexts support.

    Formula: claims that some context supports / claims of the answer. With by=probability, the mean of the judge's
    probabilities that the contexts support a claim.

    Rule: an answer without claims is unscored, or 1 (convention no_claims); empty contexts support nothing
    (convention no_context); one claim without a verdict leaves the sample unscored.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887, in Paris.", contexts=("It was begun in 1887.",))
    >>> claims = [Claim("a1", "in 1887", 1), Claim("a2", "in Paris", 1)]
    >>> support = {"a1": Support(("k1",)), "a2": Support(())}
    >>> faithfulness(AnswerMeasureInput(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    case.contexts()
    if not case.claims(ANSWER) and case.convention.no_claims == "one":
        return 1.0
    supports = case.supports(ANSWER, contexts=True)
    if by == "verdict" or not case.sources:
        return _supported_proportion([is_supported_by_contexts(one) for one in supports])
    sure = [one.probability for one in supports if one.probability is not None and math.isfinite(one.probability)]
    if len(sure) < len(supports):
        raise MissingVerdict("the judge gives no probabilities")
    return math.fsum(sure) / len(sure)


def context_precision(case: AnswerMeasureInput, cutoff: int | None) -> float:
    """Average precision of the useful chunks among those retrieved.

    Formula: sum of P@i * useful(i) over ranks i up to k / useful chunks up to k; P@i is the useful share of the
    first i. Without k, over all chunks.

    Rule: 0 if no chunk is useful; empty contexts are 0, or unscored (convention no_context); a chunk without a
    verdict leaves the sample unscored, unless it ranks below k.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024 (its library's
    definition).

    >>> from ragauge.core.samples import Sample, Usefulness, Verdicts
    >>> sample = Sample("s", "When?", contexts=("It was begun in 1887.", "It is big.", "It was begun in spring."))
    >>> useful = {"k1": Usefulness(True), "k2": Usefulness(False), "k3": Usefulness(True)}
    >>> case = AnswerMeasureInput(sample, Verdicts("s", useful=useful))
    >>> round(context_precision(case, None), 4), context_precision(case, 2)  # (1 + 2/3) / 2
    (0.8333, 1.0)
    """
    found, total = 0, 0.0
    for rank, good in enumerate(case.useful(cutoff), 1):
        if good:
            found += 1
            total += found / rank
    return total / found if found else 0.0


def context_recall(case: AnswerMeasureInput, cutoff: int | None) -> float:
    """Share of the reference's claims that the contexts support.

    Formula: claims of the reference that the first k contexts support, alone or jointly / claims of the reference.
    Without k, by any contexts.

    Rule: a reference without claims is unscored; empty contexts are 0, or unscored (convention no_context); one
    claim without a verdict leaves the sample unscored, and so does a cutoff if the judge did not distinguish chunks.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024 (its library's
    definition; claim recall in RAGChecker).

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", reference="In 1887, in Paris.", contexts=("Paris.", "1887."))
    >>> claims = [Claim("r1", "in 1887", 1), Claim("r2", "in Paris", 1)]
    >>> support = {"r1": Support(("k2",)), "r2": Support(("k1",))}
    >>> case = AnswerMeasureInput(sample, Verdicts("s", ["reference"], {"reference": claims}, support))
    >>> context_recall(case, None), context_recall(case, 1)
    (1.0, 0.5)
    """
    chunks = case.contexts()
    supports = case.supports(REFERENCE, contexts=True)
    return _supported_proportion([case.among(one, chunks[:cutoff]) if chunks else False for one in supports])


def answer_relevance(case: AnswerMeasureInput) -> float:
    """Similarity of the question to questions generated from the answer.

    Formula: mean cosine of the question with those that the judge generated from the answer, clipped to 0 .. 1.

    Rule: a refusal is 0, or unscored (convention refusal); unscored without the generated questions, or without a
    verdict on whether the answer is a refusal.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024.

    >>> from ragauge.core.samples import GeneratedQuestion as Question, Sample, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887.")
    >>> asked = [Question("When was it begun?", 0.9), Question("In which year?", 0.5)]
    >>> answer_relevance(AnswerMeasureInput(sample, Verdicts("s", questions=asked, refusal=False)))
    0.7
    """
    verdicts = case.verdicts
    if "questions" in verdicts.unscored:
        raise MissingVerdict(f"no questions were generated: {verdicts.unscored['questions'].why}")
    if verdicts.refusal is None and not verdicts.questions:
        raise MissingVerdict("no questions were generated: it was not judged")
    if verdicts.refusal is None:
        raise MissingVerdict("nobody said whether the answer is a refusal")
    if verdicts.refusal:
        if case.convention.refusal == "unscored":
            raise MissingVerdict("the answer commits itself to nothing")
        return 0.0
    near = [question.similarity for question in verdicts.questions]
    if not near:
        raise MissingVerdict("no questions were generated")
    if not all(math.isfinite(one) for one in near):
        raise MissingVerdict("a question has no similarity")
    return min(max(math.fsum(near) / len(near), 0.0), 1.0)


def contradiction(case: AnswerMeasureInput) -> float:
    """Share of the answer's claims that the contexts contradict.

    Formula: claims that some context contradicts and none supports / claims of the answer.

    Rule: an answer without claims is unscored; empty contexts contradict nothing, or leave the sample unscored
    (convention no_context); one claim without a verdict leaves the sample unscored. Lower is better.

    Paper: Honovich et al., TRUE: Re-evaluating Factual Consistency Evaluation, NAACL 2022.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887, in Rome.", contexts=("It was begun in 1887, in Paris.",))
    >>> claims = [Claim("a1", "in 1887", 1), Claim("a2", "in Rome", 1)]
    >>> support = {"a1": Support(("k1",)), "a2": Support((), against=("k1",))}
    >>> contradiction(AnswerMeasureInput(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    supports = case.supports(ANSWER, contexts=True)
    return _supported_proportion(
        [is_contradicted_by_contexts(one) and not is_supported_by_contexts(one) for one in supports]
    )


def citation_recall(case: AnswerMeasureInput) -> float:
    """Share of the answer's claims that their citations support.

    Formula: claims that the chunks cited in their sentence support, alone or jointly / claims of the answer. A
    citation is [1], [1, 2], [2-4] or similar: the position of a chunk.

    Rule: 0 without any citation; an answer without claims is unscored; empty contexts support nothing (convention
    no_context); unscored if a claim has no verdict, or if the judge did not distinguish chunks.

    Paper: Gao et al., Enabling Large Language Models to Generate Text with Citations, EMNLP 2023 (where cited
    passages are read together).

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887 [1]. In Paris [1].", contexts=("1887.", "Paris."))
    >>> claims = [Claim("a1", "in 1887", 1, (1,)), Claim("a2", "in Paris", 2, (1,))]
    >>> support = {"a1": Support(("k1",)), "a2": Support(("k2",))}
    >>> citation_recall(AnswerMeasureInput(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    return _supported_proportion([any(pairs) for pairs in _citation_support(case)])


def citation_precision(case: AnswerMeasureInput) -> float:
    """Share of the answer's citations that support their claim.

    Formula: pairs of a claim and a chunk cited in its sentence where the chunk supports the claim / all such pairs.

    Rule: chunks that support a claim only jointly count if all of them are cited; unscored without any citation; a
    citation of a chunk that does not exist counts as unsupported; unscored if a claim has no verdict, or if the
    judge did not distinguish chunks.

    Paper: Gao et al., Enabling Large Language Models to Generate Text with Citations, EMNLP 2023.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887 [1][2]. In Paris [2][7].", contexts=("1887.", "Paris."))
    >>> claims = [Claim("a1", "in 1887", 1, (1, 2)), Claim("a2", "in Paris", 2, (2, 7))]
    >>> support = {"a1": Support(("k1",)), "a2": Support(("k2",))}
    >>> citation_precision(AnswerMeasureInput(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    pairs = [held for claim in _citation_support(case) for held in claim]
    if not pairs:
        raise MissingVerdict("the answer cites nothing")
    return _supported_proportion(pairs)


def _citation_support(case: AnswerMeasureInput) -> list[list[bool]]:
    """Return for each claim whether each chunk that it cites supports it."""
    supports = case.supports(ANSWER, contexts=True)
    held = []
    for claim, support in zip(case.claims(ANSWER), supports, strict=True):
        if claim.cites is None:
            raise MissingVerdict("nobody looked for citations")
        held.append(case.each(support, [f"k{place}" for place in claim.cites]))
    return held
