"""Answer measures that need a reference: correct claims, and sources of incorrect ones.

With contexts and a reference, each claim of an answer is in one of four classes: supported by both, by the contexts
alone (noise), by the reference alone (knowledge of the model), or by neither (hallucination).
"""

from __future__ import annotations

from ragauge.core.samples import ANSWER, REFERENCE
from ragauge.measures.grounding import AnswerMeasureInput, MissingVerdict, is_supported_by_contexts


def _claim_proportion(is_supported: list[bool]) -> float:
    return sum(is_supported) / len(is_supported)


def claim_precision(case: AnswerMeasureInput) -> float:
    """Share of the answer's claims that the reference supports.

    Formula: claims of the answer that the reference supports / claims of the answer.

    Rule: an answer without claims is unscored; one claim without a verdict leaves the sample unscored.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024 (its precision).

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887, in Rome.", reference="In 1887.")
    >>> claims = {"answer": [Claim("a1", "in 1887", 1), Claim("a2", "in Rome", 1)], "reference": []}
    >>> support = {"a1": Support(("reference",)), "a2": Support(())}
    >>> claim_precision(AnswerMeasureInput(sample, Verdicts("s", ["cross"], claims, support)))
    0.5
    """
    return _claim_proportion([REFERENCE in support.by for support in case.supports(ANSWER, other=True)])


def claim_recall(case: AnswerMeasureInput) -> float:
    """Share of the reference's claims that the answer supports.

    Formula: claims of the reference that the answer supports / claims of the reference.

    Rule: a reference without claims is unscored; one claim without a verdict leaves the sample unscored.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024 (its recall; its claim recall is context_recall here).

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887.", reference="In 1887, in Paris.")
    >>> claims = {"answer": [], "reference": [Claim("r1", "in 1887", 1), Claim("r2", "in Paris", 1)]}
    >>> support = {"r1": Support(("answer",)), "r2": Support(())}
    >>> claim_recall(AnswerMeasureInput(sample, Verdicts("s", ["cross"], claims, support)))
    0.5
    """
    return _claim_proportion([ANSWER in support.by for support in case.supports(REFERENCE, other=True)])


def claim_f1(case: AnswerMeasureInput) -> float:
    """Harmonic mean of claim precision and claim recall.

    Formula: 2 * P * R / (P + R) of claim_precision P and claim_recall R.

    Rule: 0 if both are 0; unscored if one of them is.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887.", reference="In 1887, in Paris.")
    >>> claims = {"answer": [Claim("a1", "in 1887", 1)], "reference": [Claim("r1", "1887", 1), Claim("r2", "Paris", 1)]}
    >>> support = {"a1": Support(("reference",)), "r1": Support(("answer",)), "r2": Support(())}
    >>> round(claim_f1(AnswerMeasureInput(sample, Verdicts("s", ["cross"], claims, support))), 4)  # P 1, R 1/2
    0.6667
    """
    precision, recall = claim_precision(case), claim_recall(case)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def context_utilisation(case: AnswerMeasureInput) -> float:
    """Share of the supported reference claims that the answer uses.

    Formula: claims of the reference that contexts and answer support / claims of the reference that contexts
    support.

    Rule: unscored if the contexts support no claim of the reference, which includes empty contexts; one claim
    without a verdict leaves the sample unscored.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024 (the ragas library uses the name for another measure: context precision judged by the answer).

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="In 1887.", contexts=("1887, Paris.",), reference="In 1887, in Paris.")
    >>> claims = {"answer": [], "reference": [Claim("r1", "in 1887", 1), Claim("r2", "in Paris", 1)]}
    >>> support = {"r1": Support(("k1", "answer")), "r2": Support(("k1",))}
    >>> context_utilisation(AnswerMeasureInput(sample, Verdicts("s", ["reference", "cross"], claims, support)))
    0.5
    """
    supported = [
        support for support in case.supports(REFERENCE, contexts=True, other=True) if is_supported_by_contexts(support)
    ]
    if not supported:
        raise MissingVerdict("the contexts support no claim of the reference")
    return _claim_proportion([ANSWER in support.by for support in supported])


def noise_sensitivity(case: AnswerMeasureInput, *, chunks: str = "any") -> float:
    """Share of the answer's claims that are incorrect and supported by a context.

    Formula: claims of the answer that some context supports and the reference does not / claims of the answer. With
    chunks=relevant only contexts that support a claim of the reference, alone or jointly, count. With
    chunks=irrelevant the other contexts count, for claims that the relevant ones do not support. The two add up to
    chunks=any.

    Rule: an answer without claims is unscored; one claim without a verdict leaves the sample unscored. Lower is
    better.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="1887, Rome.", contexts=("1887.", "Rome."), reference="In 1887.")
    >>> claims = {"answer": [Claim("a1", "in 1887", 1), Claim("a2", "in Rome", 1)], "reference": []}
    >>> support = {"a1": Support(("k1", "reference")), "a2": Support(("k2",))}
    >>> noise_sensitivity(AnswerMeasureInput(sample, Verdicts("s", ["answer", "cross"], claims, support)))
    0.5
    """
    supports = case.supports(ANSWER, contexts=True, other=True)
    wrong_claims = [is_supported_by_contexts(support) and REFERENCE not in support.by for support in supports]
    if chunks == "any" or not case.contexts():
        return _claim_proportion(wrong_claims)
    reference_supports = case.supports(REFERENCE, contexts=True)
    relevant = {
        chunk for support in reference_supports for chunk in (*case.supporting_chunks(support), *support.together)
    }
    by_relevant = [
        is_wrong and case.is_supported_by(support, relevant)
        for is_wrong, support in zip(wrong_claims, supports, strict=True)
    ]
    if chunks == "relevant":
        return _claim_proportion(by_relevant)
    return _claim_proportion(
        [is_wrong and not is_relevant for is_wrong, is_relevant in zip(wrong_claims, by_relevant, strict=True)]
    )


def hallucination(case: AnswerMeasureInput) -> float:
    """Share of the answer's claims that neither a context nor the reference supports.

    Formula: claims of the answer that neither a context nor the reference supports / claims of the answer.

    Rule: an answer without claims is unscored; empty contexts support nothing, or leave the sample unscored
    (convention no_context); one claim without a verdict leaves the sample unscored. Lower is better.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="1887, Rome.", contexts=("1887.",), reference="In 1887.")
    >>> claims = {"answer": [Claim("a1", "in 1887", 1), Claim("a2", "in Rome", 1)], "reference": []}
    >>> support = {"a1": Support(("k1", "reference")), "a2": Support(())}
    >>> hallucination(AnswerMeasureInput(sample, Verdicts("s", ["answer", "cross"], claims, support)))
    0.5
    """
    supports = case.supports(ANSWER, contexts=True, other=True)
    return _claim_proportion(
        [not is_supported_by_contexts(support) and REFERENCE not in support.by for support in supports]
    )


def self_knowledge(case: AnswerMeasureInput) -> float:
    """Share of the answer's claims that the reference supports and no context does.

    Formula: claims of the answer that the reference supports and no context does / claims of the answer.

    Rule: an answer without claims is unscored; empty contexts support nothing, or leave the sample unscored
    (convention no_context); one claim without a verdict leaves the sample unscored. Neither direction is better by
    itself, but a system that should answer from its contexts alone should have a low value.

    Paper: Ru et al., RAGChecker: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation, NeurIPS
    2024.

    >>> from ragauge.core.samples import Claim, Sample, Support, Verdicts
    >>> sample = Sample("s", "When?", answer="1887, Paris.", contexts=("1887.",), reference="In 1887, in Paris.")
    >>> claims = {"answer": [Claim("a1", "in 1887", 1), Claim("a2", "in Paris", 1)], "reference": []}
    >>> support = {"a1": Support(("k1", "reference")), "a2": Support(("reference",))}
    >>> self_knowledge(AnswerMeasureInput(sample, Verdicts("s", ["answer", "cross"], claims, support)))
    0.5
    """
    supports = case.supports(ANSWER, contexts=True, other=True)
    return _claim_proportion(
        [not is_supported_by_contexts(support) and REFERENCE in support.by for support in supports]
    )
