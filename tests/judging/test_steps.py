"""A step of a judge that only defines its task and its prompt: its ratings are judged, scored, saved and read."""

from __future__ import annotations

import json

import pytest

import ragauge
from ragauge.core.samples import Rating, Sample, Unscored
from ragauge.judging.all_steps import STEPS
from ragauge.judging.results_folder import read_judged_folder
from ragauge.judging.step import Step
from ragauge.judging.tasks import JudgeTask
from ragauge.measures import answers
from ragauge.measures.answers import AnswerSpec
from ragauge.models.chats.recorded import ScriptedChat


class ToneStep(Step):
    name = "tone"
    kinds = {"tone": "the tone of the answer"}  # noqa: RUF012
    item_kind = "answer"
    heading = "The answer"
    word_heading = "The answer"

    def build_tasks(self, sample, verdicts, kinds, n):
        return [JudgeTask("tone", sample.id, {"answer": sample.answer}, {}, sample.question)] if "tone" in kinds else []

    def build_instruction(self, task):
        return "Rate the tone."

    @classmethod
    def read_rubric(cls, *, word=False):
        return "Rate whether an answer is polite."


@pytest.fixture(autouse=True)
def _tone_measure(monkeypatch):
    spec = AnswerSpec("politeness", lambda case: case.rating("tone", "answer"), ("answer",), ("tone",))
    monkeypatch.setitem(STEPS, "tone", ToneStep())
    monkeypatch.setitem(answers.ANSWER_MEASURES, "politeness", spec)
    monkeypatch.setitem(answers.ANSWER_ALIASES, "politeness", "politeness")


def reply_with_ratings(messages, schema):
    if "enum" in schema:
        return "yes"
    assert schema["properties"]["verdicts"]["items"]["properties"]["id"]["enum"] == ["answer"]
    rating = 2.0 if "rude" in messages[1]["content"] else 0.75
    return json.dumps({"verdicts": [{"id": "answer", "reason": "polite  words", "rating": rating}]})


SAMPLES = [Sample("s1", "Why?", "Thank you, because."), Sample("s2", "Why?", "Some rude words.")]


def test_rating_step_is_scored_saved_and_read(tmp_path):
    judged = ragauge.judge(SAMPLES, ["politeness"], chat=ScriptedChat(reply_with_ratings), folder=tmp_path)
    assert judged.verdicts["s1"].ratings == {"tone": {"answer": Rating(0.75, "polite words")}}
    assert judged.scores.means["politeness"] == 0.75
    reason = "the entry for this answer is inconsistent: the rating is not between 0 and 1"
    assert judged.scores.unscored["politeness"] == {"s2": f"no tone: {reason}"}
    assert [row.step for row in judged.ledger] == ["tone"]
    saved = read_judged_folder(tmp_path).verdicts
    assert [saved[name].ratings for name in saved] == [judged.verdicts[name].ratings for name in saved]


def test_rating_step_one_word_reply_is_rating():
    chat = ScriptedChat(reply_with_ratings)
    judged = ragauge.judge(SAMPLES[:1], ["politeness"], chat=chat, verdict_format="tokens")
    assert judged.verdicts["s1"].ratings == {"tone": {"answer": Rating(1.0)}}


def test_rating_step_lexical_judge_is_unscored():
    judged = ragauge.judge(SAMPLES[:1], ["politeness"])
    assert judged.verdicts["s1"].unscored == {
        "tone answer": Unscored("the lexical judge has no rule for it, which needs a model (--chat)")
    }


def test_rating_step_dry_run_counts_its_calls():
    estimate = ragauge.estimate_cost(SAMPLES, ["politeness"], chat=ScriptedChat(reply_with_ratings))
    assert [(row.step, row.calls) for row in estimate] == [("tone", 2)]
