"""Answer measures computed from verdicts on claims, chunks and questions.

Each takes an `AnswerMeasureInput` and returns a score, or raises `MissingVerdict` if a verdict that it needs is
missing.
"""

from __future__ import annotations

import math

from ragauge.measures.cases import Case, NoVerdict, against_contexts, by_contexts
from ragauge.verdicts import ANSWER, REFERENCE


def _share(held: list[bool]) -> float:
    return sum(held) / len(held)


def faithfulness(case: Case, *, by: str = "verdict") -> float:
    """Share of the answer's claims that the contexts support.

    Formula: claims that some context supports / claims of the answer. With by=probability, the mean of the judge's
    probabilities that the contexts support a claim.

    Rule: an answer without claims is unscored, or 1 (convention no_claims); empty contexts support nothing
    (convention no_context); one claim without a verdict leaves the sample unscored.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024.

    >>> from ragauge.verdicts import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887, in Paris.", contexts=("It was begun in 1887.",))
    >>> claims = [Claim("a1", "in 1887", 1), Claim("a2", "in Paris", 1)]
    >>> support = {"a1": Support(("k1",)), "a2": Support(())}
    >>> faithfulness(Case(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    case.contexts()
    if not case.claims(ANSWER) and case.convention.no_claims == "one":
        return 1.0
    supports = case.supports(ANSWER, contexts=True)
    if by == "verdict" or not case.sources:
        return _share([by_contexts(one) for one in supports])
    sure = [one.probability for one in supports if one.probability is not None and math.isfinite(one.probability)]
    if len(sure) < len(supports):
        raise NoVerdict("the judge gives no probabilities")
    return math.fsum(sure) / len(sure)


def context_precision(case: Case, cutoff: int | None) -> float:
    """Average precision of the useful chunks among those retrieved.

    Formula: sum of P@i * useful(i) over ranks i up to k / useful chunks up to k; P@i is the useful share of the
    first i. Without k, over all chunks.

    Rule: 0 if no chunk is useful; empty contexts are 0, or unscored (convention no_context); a chunk without a
    verdict leaves the sample unscored, unless it ranks below k.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024 (its library's
    definition).

    >>> from ragauge.verdicts import Sample, Usefulness, Verdicts
    >>> sample = Sample("s", "When?", contexts=("It was begun in 1887.", "It is big.", "It was begun in spring."))
    >>> useful = {"k1": Usefulness(True), "k2": Usefulness(False), "k3": Usefulness(True)}
    >>> case = Case(sample, Verdicts("s", useful=useful))
    >>> round(context_precision(case, None), 4), context_precision(case, 2)  # (1 + 2/3) / 2
    (0.8333, 1.0)
    """
    found, total = 0, 0.0
    for rank, good in enumerate(case.useful(cutoff), 1):
        if good:
            found += 1
            total += found / rank
    return total / found if found else 0.0


def context_recall(case: Case, cutoff: int | None) -> float:
    """Share of the reference's claims that the contexts support.

    Formula: claims of the reference that the first k contexts support, alone or jointly / claims of the reference.
    Without k, by any contexts.

    Rule: a reference without claims is unscored; empty contexts are 0, or unscored (convention no_context); one
    claim without a verdict leaves the sample unscored, and so does a cutoff if the judge did not distinguish chunks.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024 (its library's
    definition; claim recall in RAGChecker).

    >>> from ragauge.verdicts import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", reference="In 1887, in Paris.", contexts=("Paris.", "1887."))
    >>> claims = [Claim("r1", "in 1887", 1), Claim("r2", "in Paris", 1)]
    >>> support = {"r1": Support(("k2",)), "r2": Support(("k1",))}
    >>> case = Case(sample, Verdicts("s", ["reference"], {"reference": claims}, support))
    >>> context_recall(case, None), context_recall(case, 1)
    (1.0, 0.5)
    """
    chunks = case.contexts()
    supports = case.supports(REFERENCE, contexts=True)
    return _share([case.among(one, chunks[:cutoff]) if chunks else False for one in supports])


def answer_relevance(case: Case) -> float:
    """Similarity of the question to questions generated from the answer.

    Formula: mean cosine of the question with those that the judge generated from the answer, clipped to 0 .. 1.

    Rule: a refusal is 0, or unscored (convention refusal); unscored without the generated questions, or without a
    verdict on whether the answer is a refusal.

    Paper: Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, EACL 2024.

    >>> from ragauge.verdicts import Question, Sample, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887.")
    >>> asked = [Question("When was it begun?", 0.9), Question("In which year?", 0.5)]
    >>> answer_relevance(Case(sample, Verdicts("s", questions=asked, refusal=False)))
    0.7
    """
    verdicts = case.verdicts
    if "questions" in verdicts.unscored:
        raise NoVerdict(f"no questions were generated: {verdicts.unscored['questions'].why}")
    if verdicts.refusal is None and not verdicts.questions:
        raise NoVerdict("no questions were generated: it was not judged")
    if verdicts.refusal is None:
        raise NoVerdict("nobody said whether the answer is a refusal")
    if verdicts.refusal:
        if case.convention.refusal == "unscored":
            raise NoVerdict("the answer commits itself to nothing")
        return 0.0
    near = [question.similarity for question in verdicts.questions]
    if not near:
        raise NoVerdict("no questions were generated")
    if not all(math.isfinite(one) for one in near):
        raise NoVerdict("a question has no similarity")
    return min(max(math.fsum(near) / len(near), 0.0), 1.0)


def contradiction(case: Case) -> float:
    """Share of the answer's claims that the contexts contradict.

    Formula: claims that some context contradicts and none supports / claims of the answer.

    Rule: an answer without claims is unscored; empty contexts contradict nothing, or leave the sample unscored
    (convention no_context); one claim without a verdict leaves the sample unscored. Lower is better.

    Paper: Honovich et al., TRUE: Re-evaluating Factual Consistency Evaluation, NAACL 2022.

    >>> from ragauge.verdicts import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887, in Rome.", contexts=("It was begun in 1887, in Paris.",))
    >>> claims = [Claim("a1", "in 1887", 1), Claim("a2", "in Rome", 1)]
    >>> support = {"a1": Support(("k1",)), "a2": Support((), against=("k1",))}
    >>> contradiction(Case(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    supports = case.supports(ANSWER, contexts=True)
    return _share([against_contexts(one) and not by_contexts(one) for one in supports])


def citation_recall(case: Case) -> float:
    """Share of the answer's claims that their citations support.

    Formula: claims that the chunks cited in their sentence support, alone or jointly / claims of the answer. A
    citation is [1], [1, 2], [2-4] or similar: the position of a chunk.

    Rule: 0 without any citation; an answer without claims is unscored; empty contexts support nothing (convention
    no_context); unscored if a claim has no verdict, or if the judge did not distinguish chunks.

    Paper: Gao et al., Enabling Large Language Models to Generate Text with Citations, EMNLP 2023 (where cited
    passages are read together).

    >>> from ragauge.verdicts import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887 [1]. In Paris [1].", contexts=("1887.", "Paris."))
    >>> claims = [Claim("a1", "in 1887", 1, (1,)), Claim("a2", "in Paris", 2, (1,))]
    >>> support = {"a1": Support(("k1",)), "a2": Support(("k2",))}
    >>> citation_recall(Case(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    return _share([any(pairs) for pairs in _citations(case)])


def citation_precision(case: Case) -> float:
    """Share of the answer's citations that support their claim.

    Formula: pairs of a claim and a chunk cited in its sentence where the chunk supports the claim / all such pairs.

    Rule: chunks that support a claim only jointly count if all of them are cited; unscored without any citation; a
    citation of a chunk that does not exist counts as unsupported; unscored if a claim has no verdict, or if the
    judge did not distinguish chunks.

    Paper: Gao et al., Enabling Large Language Models to Generate Text with Citations, EMNLP 2023.

    >>> from ragauge.verdicts import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887 [1][2]. In Paris [2][7].", contexts=("1887.", "Paris."))
    >>> claims = [Claim("a1", "in 1887", 1, (1, 2)), Claim("a2", "in Paris", 2, (2, 7))]
    >>> support = {"a1": Support(("k1",)), "a2": Support(("k2",))}
    >>> citation_precision(Case(sample, Verdicts("s", ["answer"], {"answer": claims}, support)))
    0.5
    """
    pairs = [held for claim in _citations(case) for held in claim]
    if not pairs:
        raise NoVerdict("the answer cites nothing")
    return _share(pairs)


def _citations(case: Case) -> list[list[bool]]:
    """Return for each claim whether each chunk that it cites supports it."""
    supports = case.supports(ANSWER, contexts=True)
    held = []
    for claim, support in zip(case.claims(ANSWER), supports, strict=True):
        if claim.cites is None:
            raise NoVerdict("nobody looked for citations")
        held.append(case.each(support, [f"k{place}" for place in claim.cites]))
    return held
