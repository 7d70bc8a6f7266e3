"""Answer measures computed from verdicts on claims, chunks and questions.

Each takes an `AnswerMeasureInput` and returns a score, or raises `MissingVerdict` if a verdict that it needs is
missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragauge.core.samples import ALL_CONTEXTS, ANSWER, REFERENCE, Claim, Sample, Support, Unscored, Verdicts, chunk_id
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
NOT_JUDGED = Unscored("not judged")


class MissingVerdict(Exception):
    """Exception for a sample that cannot be scored, with the reason in `why`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class AnswerMeasureInput:
    """Input of an answer measure: a sample, its verdicts and the convention."""

    sample: Sample
    verdicts: Verdicts
    convention: Convention = PRESETS["default"]

    def has(self, field_name: str) -> bool:
        """Return whether the sample has a field.

        A blank answer counts, a blank question or reference does not.
        """
        value = getattr(self.sample, field_name)
        return bool((value or "").strip()) if field_name in ("question", "reference") else value is not None

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
            raise MissingVerdict(f"the claims of the {text} are unknown: {(without or NOT_JUDGED).reason}")
        return self.verdicts.claims[text]

    def require_claims(self, text: str) -> Sequence[Claim]:
        """Return the claims of a text; raises `MissingVerdict` if there are none."""
        claims = self.claims(text)
        if not claims:
            raise MissingVerdict(f"the {text} contains no claims")
        return claims

    def supports(self, text: str, *, contexts: bool = False, other: bool = False) -> list[Support]:
        """Return the support of each claim of a text.

        Raises `MissingVerdict` if a verdict is missing. The claims must have been checked against the contexts, the
        other text, or both, as requested.
        """
        claims = self.require_claims(text)
        chunks = [chunk for chunk in self.contexts() if chunk in self.sources] if contexts else []
        other_text = OTHER_TEXT[text]
        if other:
            self.claims(other_text)  # a judge compares two texts only after extracting the claims of both
        has_other_text = other and bool(getattr(self.sample, other_text).strip())
        if not chunks and not has_other_text:
            return [Support(())] * len(claims)  # empty sources support nothing, so no verdict is needed
        if chunks and text not in self.verdicts.asked:
            raise MissingVerdict(f"the claims of the {text} were not checked against the contexts")
        if has_other_text and "cross" not in self.verdicts.asked:
            raise MissingVerdict(f"the claims of the {text} were not checked against the {other_text}")
        unscored = {claim.id: self._missing_verdict_reason(claim.id, text) for claim in claims}
        check_all_judged("claim", [reason for reason in unscored.values() if reason is not None])
        return [self.verdicts.support[claim.id] for claim in claims]

    def _missing_verdict_reason(self, claim: str, text: str) -> str | None:
        """Return the reason why a claim has no valid verdict; None if it has one."""
        unscored = self.verdicts.unscored.get(f"support {claim}")
        support = self.verdicts.support.get(claim)
        if unscored is not None or support is None:
            return (unscored or NOT_JUDGED).reason
        supporting, contradicting, joint = set(support.by), set(support.against), set(support.together)
        known_sources = {*self.sources, OTHER_TEXT[text]} | ({ALL_CONTEXTS} if self.sources else set())
        if (supporting | contradicting) - known_sources | joint - self.sources:
            return "the verdict names an unknown source"
        if contradicting & (supporting | joint):
            return "a source both supports and contradicts it"
        if supporting & joint:
            return "a source supports it both alone and only together with others"
        return "only one source supports it together with others" if len(joint) == 1 else None

    def useful(self, first: int | None) -> list[bool]:
        """Return whether each of the first chunks is useful; None means all chunks."""
        chunks = self.contexts()[:first]
        reasons = [
            self.verdicts.unscored.get(f"useful {chunk}", NOT_JUDGED).reason
            for chunk in chunks
            if chunk in self.sources
            and (chunk not in self.verdicts.useful or f"useful {chunk}" in self.verdicts.unscored)
        ]
        check_all_judged("chunk", reasons)
        return [chunk in self.sources and self.verdicts.useful[chunk].useful for chunk in chunks]

    def rating(self, step: str, item: str) -> float:
        """Return the rating of an item by a step of the judge; raises `MissingVerdict` if there is none."""
        ratings = self.verdicts.ratings.get(step, {})
        if item not in ratings:
            raise MissingVerdict(f"no {step}: {self.verdicts.unscored.get(f'{step} {item}', NOT_JUDGED).reason}")
        return ratings[item].value

    def is_supported_by(self, support: Support, chunks: Iterable[str]) -> bool:
        """Return whether the given chunks support a claim, alone or jointly."""
        chunk_ids = set(chunks)
        if chunk_ids >= self.sources:
            return is_supported_by_contexts(support)
        return _has_joint_support(support, chunk_ids) or not chunk_ids.isdisjoint(self.supporting_chunks(support))

    def check_each_chunk(self, support: Support, chunks: Sequence[str]) -> list[bool]:
        """Return for each given chunk whether it supports a claim.

        It may do so alone, or jointly with others given.
        """
        parts = set(support.together) if _has_joint_support(support, set(chunks)) else set()
        return [chunk in parts or self.is_supported_by(support, [chunk]) for chunk in chunks]

    def supporting_chunks(self, support: Support) -> set[str]:
        """Return the chunks that support a claim alone.

        Raises `MissingVerdict` if the judge named only the contexts as a whole and there are several.
        """
        supporting = set(self.sources & set(support.by))
        if ALL_CONTEXTS in support.by and not supporting:
            if len(self.sources) > 1:
                raise MissingVerdict("the judge did not say which chunk supports a claim")
            return set(self.sources)
        return supporting


def is_supported_by_contexts(support: Support) -> bool:
    """Return whether the contexts support a claim, one alone or several jointly."""
    return bool(support.together) or any(source not in (ANSWER, REFERENCE) for source in support.by)


def _has_joint_support(support: Support, chunks: set[str]) -> bool:
    """Return whether all chunks that support a claim jointly are among `chunks`."""
    return bool(support.together) and chunks.issuperset(support.together)


def is_contradicted_by_contexts(support: Support) -> bool:
    """Return whether any context contradicts a claim."""
    return any(source not in (ANSWER, REFERENCE) for source in support.against)


def check_all_judged(item: str, reasons: Sequence[str]) -> None:
    """Raise `MissingVerdict` if any verdict is missing.

    The reason has no numbers, so that equal reasons can be counted.

    >>> check_all_judged("claim", ["the reply was cut off"])
    Traceback (most recent call last):
        …
    ragauge.measures.grounding.MissingVerdict: a claim has no verdict: the reply was cut off
    """
    if reasons:
        raise MissingVerdict(f"a {item} has no verdict: {reasons[0]}")


def _supported_proportion(is_supported: list[bool]) -> float:
    return sum(is_supported) / len(is_supported)


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
        return _supported_proportion([is_supported_by_contexts(support) for support in supports])
    probabilities = [
        support.probability
        for support in supports
        if support.probability is not None and math.isfinite(support.probability)
    ]
    if len(probabilities) < len(supports):
        raise MissingVerdict("the judge returns no probabilities")
    return math.fsum(probabilities) / len(probabilities)


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
    n_useful, precision_sum = 0, 0.0
    for rank, is_useful in enumerate(case.useful(cutoff), 1):
        if is_useful:
            n_useful += 1
            precision_sum += n_useful / rank
    return precision_sum / n_useful if n_useful else 0.0


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
    return _supported_proportion(
        [case.is_supported_by(support, chunks[:cutoff]) if chunks else False for support in supports]
    )


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
        raise MissingVerdict(f"no questions were generated: {verdicts.unscored['questions'].reason}")
    if verdicts.refusal is None and not verdicts.questions:
        raise MissingVerdict("no questions were generated: not judged")
    if verdicts.refusal is None:
        raise MissingVerdict("not judged whether the answer is a refusal")
    if verdicts.refusal:
        if case.convention.refusal == "unscored":
            raise MissingVerdict("the answer is a refusal")
        return 0.0
    similarities = [question.similarity for question in verdicts.questions]
    if not similarities:
        raise MissingVerdict("no questions were generated")
    if not all(math.isfinite(similarity) for similarity in similarities):
        raise MissingVerdict("a question has no similarity")
    return min(max(math.fsum(similarities) / len(similarities), 0.0), 1.0)


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
        [is_contradicted_by_contexts(support) and not is_supported_by_contexts(support) for support in supports]
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
    citations = [is_supporting for claim_citations in _citation_support(case) for is_supporting in claim_citations]
    if not citations:
        raise MissingVerdict("the answer cites nothing")
    return _supported_proportion(citations)


def _citation_support(case: AnswerMeasureInput) -> list[list[bool]]:
    """Return for each claim whether each chunk that it cites supports it."""
    supports = case.supports(ANSWER, contexts=True)
    citation_support = []
    for claim, support in zip(case.claims(ANSWER), supports, strict=True):
        if claim.cites is None:
            raise MissingVerdict("citations were not checked")
        citation_support.append(case.check_each_chunk(support, list(map(chunk_id, claim.cites))))
    return citation_support
