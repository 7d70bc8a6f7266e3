"""Step that judges whether a chunk is useful for the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ragauge.core.samples import Sample, Unscored, Usefulness, Verdicts
from ragauge.judging.step import Step, check_probabilities, join_words
from ragauge.judging.tasks import JudgeTask
from ragauge.judging.word_matching import PreparedTexts, list_missing_words

MIN_USEFUL_DEGREE = 0.5
"""Minimum degree at which the lexical judge finds a chunk useful."""


class UsefulStep(Step):
    """The items are chunks; the verdict on each is a Usefulness."""

    name = "useful"
    kinds: ClassVar[Mapping[str, str]] = {"useful": "the usefulness of the contexts"}
    position = 3
    item_kind = "chunk"
    heading = "The passages"
    word_heading = "The passage"

    def build_tasks(self, sample: Sample, verdicts: Verdicts, kinds: frozenset[str], n: int) -> list[JudgeTask]:
        del verdicts, n
        chunks = {name: text for name, text in sample.chunks.items() if text.strip()}
        is_needed = "useful" in kinds and chunks
        return [JudgeTask("useful", sample.id, chunks, {}, sample.question, sample.history)] if is_needed else []

    def store_verdicts(self, verdicts: Verdicts, by_item: Mapping[str, Usefulness]) -> Verdicts:
        return replace(verdicts, useful=by_item)

    def check_verdicts(self, verdicts: Verdicts) -> None:
        check_probabilities(verdicts.useful)

    def judge_lexically(self, task: JudgeTask, item: str, texts: PreparedTexts) -> Usefulness | Unscored:
        question_words = [word for word in texts.words(task.question) if word.is_content]
        if not question_words:
            return Unscored("the question has no words to compare")
        weights = {word.key: word.weight for word in question_words}
        source = texts.source(task.items[item])
        best = max(
            (sum(weights.get(key, 0.0) for key in {w.key for w in sentence}) for sentence in source.sentences),
            default=0.0,
        )
        matched = sum(weight for key, weight in weights.items() if key in source.sentences_by_word)
        degree = (matched + best) / (2 * sum(weights.values()))
        missing = list_missing_words("not in it", question_words, source.sentences_by_word)
        return Usefulness(degree >= MIN_USEFUL_DEGREE, missing, degree)

    def build_placeholder(self, task: JudgeTask, text: str) -> Usefulness:
        del task, text
        return Usefulness(useful=False)

    def build_instruction(self, task: JudgeTask) -> str:
        return f"Judge every one of these passages: {', '.join(task.items)}."

    def build_entry_fields(self, task: JudgeTask, items: Sequence[str]) -> Mapping[str, Any]:
        del task, items
        return {"reason": {"type": "string"}, "useful": {"type": "boolean"}}

    def parse_entry(self, entry: Mapping[str, Any]) -> Usefulness:
        return Usefulness(entry["useful"], join_words(entry["reason"]))

    def build_word_verdict(self, task: JudgeTask, word: str, probability: float | None) -> Usefulness:
        del task
        return Usefulness(word == "yes", probability=probability)
