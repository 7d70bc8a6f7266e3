"""Step that checks which sources support or contradict a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ragauge.core.samples import (
    ALL_CONTEXTS,
    ANSWER,
    REFERENCE,
    Sample,
    Support,
    Unscored,
    Verdicts,
    is_chunk,
    is_claim_of,
)
from ragauge.judging.lexical_text import Word
from ragauge.judging.step import Step, UnreadableReply, check_probabilities, join_words, source_schema
from ragauge.judging.tasks import JudgeTask, restrict_task
from ragauge.judging.word_matching import (
    PreparedTexts,
    find_needed_sources,
    is_contradicted,
    list_missing_words,
    support_degree,
)

OTHER_TEXT = {ANSWER: REFERENCE, REFERENCE: ANSWER}
MIN_SUPPORT_DEGREE = 0.7
"""Minimum degree at which the lexical judge finds a claim supported by a source."""


class SupportStep(Step):
    """The items are claims, the sources are chunks and the other text; the verdict on each claim is a Support."""

    name = "support"
    kinds: ClassVar[Mapping[str, str]] = {}  # those of the claims
    position = 2
    follows = "claims"
    item_kind = "claim"
    heading = "The claims"
    word_heading = "The claim"
    shows_question = False
    reply_tokens = 55

    def build_tasks(self, sample: Sample, verdicts: Verdicts, kinds: frozenset[str], n: int) -> list[JudgeTask]:
        """Build the task that checks the support of all claims.

        Sources are the chunks, and the other text if claims of both texts are known. Claims without any source are left
        out; the measures handle them by convention.
        """
        del kinds, n
        sources = {name: text for name, text in sample.chunks.items() if text.strip()}
        if len(verdicts.claims) == 2:
            texts = {REFERENCE: sample.reference or "", ANSWER: sample.answer or ""}
            sources |= {
                name: text for name, text in texts.items() if text.strip() and verdicts.claims[OTHER_TEXT[name]]
            }
        claims = {claim.id: claim.text for text_claims in verdicts.claims.values() for claim in text_claims}
        task = JudgeTask("support", sample.id, claims, sources, sample.question, sample.history)
        task = restrict_task(task, [name for name in claims if task.choices(name)])
        return [task] if task.items else []

    def store_verdicts(self, verdicts: Verdicts, by_item: Mapping[str, Support]) -> Verdicts:
        return replace(verdicts, support=by_item)

    def check_verdicts(self, verdicts: Verdicts) -> None:
        check_probabilities(verdicts.support)

    def judge_lexically(self, task: JudgeTask, item: str, texts: PreparedTexts) -> Support | Unscored:
        claim = texts.words(task.items[item])
        if all(word.kind == "stop" for word in claim):
            return Unscored("it has no words to compare")
        known_keys = texts.known((task.question, *task.history))
        sources = {choice: texts.source(task.sources[choice]) for choice in task.choices(item)}
        chunks = {source: sources[source] for source in sources if is_chunk(source)}
        everything = texts.together(tuple(task.sources[chunk] for chunk in chunks)) if chunks else None
        content_keys = [word.key for word in claim if word.is_content]
        candidates = [
            source for source in sources if any(key in sources[source].sentences_by_word for key in content_keys)
        ]
        supporting = [
            source
            for source in candidates
            if support_degree(claim, sources[source].sentences_by_word, known_keys) >= MIN_SUPPORT_DEGREE
        ]
        degree = support_degree(claim, everything.sentences_by_word, known_keys) if everything else None
        joint: list[str] = []
        if degree is not None and degree >= MIN_SUPPORT_DEGREE and not any(source in chunks for source in supporting):
            joint = find_needed_sources(
                claim, {chunk: chunks[chunk] for chunk in chunks if chunk in candidates}, known_keys, MIN_SUPPORT_DEGREE
            )
        against = tuple(
            source for source in sources if source in (*supporting, *joint) and is_contradicted(claim, sources[source])
        )
        supporting = [source for source in sources if source in supporting and source not in against]
        together = (
            () if any(source in against for source in joint) else tuple(source for source in sources if source in joint)
        )
        if against and not together and not any(source in chunks for source in supporting) and degree is not None:
            degree = 1 - degree if any(source in chunks for source in against) else degree
        present = (
            everything.sentences_by_word
            if everything
            else {key: 1 for source_words in sources.values() for key in source_words.sentences_by_word}
        )
        return Support(
            tuple(supporting), against, _explain_verdict(claim, present, against, bool(chunks)), degree, together
        )

    def build_placeholder(self, task: JudgeTask, text: str) -> Support:
        del task, text
        return Support(())

    def build_instruction(self, task: JudgeTask) -> str:
        lists = [f"{name}: {', '.join(ids)}" for name, ids in self.group_items(task).items()]
        return f"Check every one of these claims. {'; '.join(lists)}."

    def split_for_words(self, task: JudgeTask) -> list[JudgeTask]:
        """Split a task into single claims, and their sources into the chunks and the other text."""
        parts: list[JudgeTask] = []
        for name in task.items:
            choices = task.choices(name)
            groups = ([c for c in choices if is_chunk(c)], [c for c in choices if not is_chunk(c)])
            parts += [
                replace(restrict_task(task, [name]), sources={c: task.sources[c] for c in group})
                for group in groups
                if group
            ]
        return parts

    def group_items(self, task: JudgeTask) -> dict[str, list[str]]:
        """Group the claims by the text that they come from, answer or reference."""
        claims: dict[str, list[str]] = {}
        for name in task.items:
            claims.setdefault("of_answer" if is_claim_of(ANSWER, name) else "of_reference", []).append(name)
        return claims

    def build_entry_fields(self, task: JudgeTask, items: Sequence[str]) -> Mapping[str, Any]:
        choices = task.choices(items[0])
        return {
            "reason": {"type": "string"},
            "supported_by": source_schema(choices),
            "supported_together": source_schema(list(filter(is_chunk, choices)) or choices),
            "contradicted_by": source_schema(choices),
        }

    def parse_entry(self, entry: Mapping[str, Any]) -> Support:
        names = ("supported_by", "supported_together", "contradicted_by")
        single, together, against = (tuple(dict.fromkeys(entry[name])) for name in names)
        for source in (*single, *together):
            if source in against:
                raise UnreadableReply("a source both supports and contradicts it")
            if source in single and source in together:
                raise UnreadableReply("a source supports it both alone and only together with others")
        if len(together) == 1:
            raise UnreadableReply("only one source supports it together with others")
        return Support(single, against, join_words(entry["reason"]), together=together)

    def build_word_verdict(self, task: JudgeTask, word: str, probability: float | None) -> Support:
        (source,) = task.sources if len(task.sources) == 1 else (ALL_CONTEXTS,)
        return Support((source,) if word == "yes" else (), probability=probability)

    def merge_verdicts(self, first: Support | None, second: Support, part: JudgeTask) -> Support:
        """Merge two verdicts on one claim by different sources.

        The probability is that of the contexts.
        """
        second = second if any(map(is_chunk, part.sources)) else second._replace(probability=None)
        if first is None:
            return second
        probability = first.probability if first.probability is not None else second.probability
        return Support((*first.by, *second.by), (*first.against, *second.against), probability=probability)


def _explain_verdict(claim: Sequence[Word], have: Mapping[str, int], against: Sequence[str], contexts: bool) -> str:
    """Explain a verdict of the lexical judge in one sentence."""
    if against:
        return f"{', '.join(against)}: the same words, but a negation on one side only"
    return list_missing_words("not in any context" if contexts else "not in the source", claim, have)
