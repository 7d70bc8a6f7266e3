"""Step that extracts the claims of answer and reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ragauge.core.errors import BadInput
from ragauge.core.samples import (
    ANSWER,
    CLAIM_ID_PREFIXES,
    REFERENCE,
    Claim,
    Sample,
    Verdicts,
    citations_by_sentence,
    claim_id,
    is_claim_of,
    remove_citations,
)
from ragauge.core.text import split_sentences
from ragauge.judging.lexical_text import extract_claims
from ragauge.judging.step import Step, UnreadableReply, check_known, join_words
from ragauge.judging.tasks import JudgeTask, TaskResult
from ragauge.judging.word_matching import PreparedTexts


class ClaimsStep(Step):
    """The items are the sentences of one text; the verdict on each is a list of its claims."""

    name = "claims"
    kinds: ClassVar[Mapping[str, str]] = {
        "answer": "the claims of the answer",
        "reference": "the claims of the reference",
        "cross": "the answer and the reference compared with each other",
    }
    position = 1
    item_kind = "sentence"
    heading = "The sentences"
    reply_list = "sentences"
    repeats_text = True

    def build_tasks(self, sample: Sample, verdicts: Verdicts, kinds: frozenset[str], n: int) -> list[JudgeTask]:
        del verdicts, n
        texts = {ANSWER: sample.answer, REFERENCE: sample.reference}
        is_cross = needs_both_texts(kinds) and None not in texts.values()
        return [
            JudgeTask("claims", sample.id, _number_sentences(text), {}, sample.question, sample.history, text=name)
            for name, text in texts.items()
            if text is not None and ((name in kinds and sample.contexts is not None) or is_cross)
        ]

    def add_result(self, sample: Sample, verdicts: Verdicts, task: JudgeTask, result: TaskResult) -> Verdicts:
        if result.unscored:  # Claims of a text are complete or unscored: a missing claim could raise the score.
            reason = next(iter(result.unscored.values()))
            return replace(verdicts, unscored={**verdicts.unscored, f"claims {task.text}": reason})
        left_out = [sentence for item, sentence in task.items.items() if not result.verdicts[item]]
        claims = {**verdicts.claims, task.text: _number_claims(task, result.verdicts)}
        return replace(
            verdicts,
            asked=[*(claims if sample.contexts is not None else ()), *(["cross"] if len(claims) == 2 else [])],
            claims=claims,
            left_out={**verdicts.left_out, **({task.text: left_out} if left_out else {})},
        )

    def check_verdicts(self, verdicts: Verdicts) -> None:
        check_known("claims", verdicts.claims, (ANSWER, REFERENCE))
        check_known("left_out", verdicts.left_out, (ANSWER, REFERENCE))
        ids: set[str] = set()
        for text, claims in verdicts.claims.items():
            for claim in claims:
                if claim.id in ids:
                    raise BadInput(f"the claim `{claim.id}` of the {text} appears more than once")
                if not is_claim_of(text, claim.id):
                    raise BadInput(f"the claim `{claim.id}` of the {text} must begin with {CLAIM_ID_PREFIXES[text]}")
                if claim.sentence < 1 or any(citation < 1 for citation in claim.cites or ()):
                    raise BadInput(f"the sentence and the citations of the claim `{claim.id}` must be at least 1")
                ids.add(claim.id)

    def judge_lexically(self, task: JudgeTask, item: str, texts: PreparedTexts) -> list[str]:
        del texts
        return extract_claims(remove_citations(task.items[item]))

    def build_placeholder(self, task: JudgeTask, text: str) -> list[str]:
        del task
        return [text]

    def build_instruction(self, task: JudgeTask) -> str:
        return f"List the claims of every one of these sentences: {', '.join(task.items)}."

    def build_entry_fields(self, task: JudgeTask, items: Sequence[str]) -> Mapping[str, Any]:
        del task, items
        return {"claims": {"type": "array", "items": {"type": "string"}}}

    def parse_entry(self, entry: Mapping[str, Any]) -> list[str]:
        claims = [join_words(claim) for claim in entry["claims"]]
        if not all(claims):
            raise UnreadableReply("a claim is empty")
        return list(dict.fromkeys(claims))


def needs_both_texts(kinds: frozenset[str]) -> bool:
    """Return whether the claims of answer and reference are judged together."""
    return "cross" in kinds or {ANSWER, REFERENCE} <= kinds


def _number_sentences(text: str) -> dict[str, str]:
    return {f"s{number}": sentence for number, sentence in enumerate(split_sentences(text), 1)}


def _number_claims(task: JudgeTask, verdicts: Mapping[str, Sequence[str]]) -> list[Claim]:
    """Build the claims of a text, in the order of its sentences."""
    claims: list[Claim] = []
    cites_by_sentence = citations_by_sentence(list(task.items.values()))
    for number, (item, cites) in enumerate(zip(task.items, cites_by_sentence, strict=True), 1):
        for claim in verdicts[item]:
            claims.append(Claim(claim_id(task.text, len(claims) + 1), claim, number, cites))
    return claims
