"""`ragauge.judge` with every kind of chat: scores, unscored samples, saved replies, limits, faults and secrets."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

import chat_server as chat_server_module
import literal_judge
import ragauge
from ragauge.core.errors import BackendFailed, BadInput, MissingEvidence
from ragauge.core.protocols import Reply
from ragauge.core.samples import Sample, Support
from ragauge.judging.lexical_judge import LexicalJudge
from ragauge.models.chats.recorded import Recording, ScriptedChat
from waiting import wait_while_running

SAMPLE = Sample(
    "s1",
    question="Where is the tower?",
    answer="the tower is in varn and it is red. it is high.",
    contexts=("we know that the tower is in varn", "it is not high, they say", "ships come and go"),
    reference="the tower is in varn and it is white",
)
OTHER_SAMPLE = Sample("s2", "Where is the tower?", "it is high.", ("it is high", "the tower"), "it is high")
LITERAL_CHAT = ScriptedChat(literal_judge.answer)


def judge_samples(samples=(SAMPLE,), measures=("faithfulness", "context_recall"), **more):
    return ragauge.judge(list(samples), measures, **{"chat": ScriptedChat(literal_judge.answer), **more})


def round_means(result):
    return {name: round(value, 6) for name, value in result.scores.means.items()}


# Scores of SAMPLE, computed by hand from the rules of the literal judge.
# Claims of the answer: in varn (supported by k1 and the reference), red (unsupported), high (contradicted by k2).
# Claims of the reference: in varn (supported by k1 and the answer), white (unsupported).
# A chunk is useful if it contains "tower", so only k1 is. Every generated question repeats the answer.
EXPECTED_SCORES = {
    "faithfulness": 1 / 3,
    "context_precision": 1.0,
    "context_recall": 1 / 2,
    "claim_precision": 1 / 3,
    "claim_recall": 1 / 2,
    "claim_f1": 2 / 5,
    "context_utilisation": 1.0,
    "noise_sensitivity": 0.0,
    "hallucination": 2 / 3,
    "contradiction": 1 / 3,
}


def test_judge_measures_match_by_hand():
    found = judge_samples(measures=list(EXPECTED_SCORES))
    assert round_means(found) == {name: pytest.approx(value, abs=1e-6) for name, value in EXPECTED_SCORES.items()}
    verdicts = found.verdicts["s1"]
    assert [claim.text for claim in verdicts.claims["answer"]] == ["the tower is in varn", "it is red", "it is high"]
    assert verdicts.support["a1"] == Support(("k1", "reference"), (), "read")
    assert verdicts.support["a3"] == Support((), ("k2",), "read")
    assert verdicts.support["r1"].by == ("k1", "answer")
    assert [verdicts.useful[one].useful for one in ("k1", "k2", "k3")] == [True, False, False]


def test_judge_polite_words_in_a_claim_lower_faithfulness():
    def score_answer(answer):
        sample = {"id": "s", "question": "How?", "answer": answer, "contexts": ["Sourdough bread rises by wild yeast."]}
        found = ragauge.judge([sample], ["faithfulness"])
        return found.scores.means["faithfulness"], found.verdicts["s"].left_out

    supported = "Sourdough bread rises by wild yeast."
    assert score_answer(f"{supported} It was invented on Mars by Elon Musk.") == (0.5, {})
    assert score_answer(f"{supported} It was invented on Mars thanks to Elon Musk.") == (0.5, {})
    assert score_answer(f"{supported} Let me know if you need more!") == (
        1.0,
        {"answer": ["Let me know if you need more!"]},
    )


def test_judge_blank_chunk_is_not_sent():
    prompts = []

    def answer(messages, schema):
        prompts.append(messages[1]["content"])
        return literal_judge.answer(messages, schema)

    blank = replace(SAMPLE, contexts=(SAMPLE.contexts[0], " \n", *SAMPLE.contexts[1:]))
    found = judge_samples([blank], list(EXPECTED_SCORES), chat=ScriptedChat(answer))
    assert round_means(found) == {name: pytest.approx(value, abs=1e-6) for name, value in EXPECTED_SCORES.items()}
    assert not any('id="k2"' in text for text in prompts)
    assert any('id="k3"' in text for text in prompts)
    assert list(found.verdicts["s1"].useful) == ["k1", "k3", "k4"]


def test_judge_folder_with_other_question_raises(tmp_path):
    judge_samples(folder=tmp_path / "a")
    judge_samples(folder=tmp_path / "a")
    judge_samples([replace(SAMPLE, answer="it is high.")], folder=tmp_path / "a")
    with pytest.raises(BadInput, match="`s1` has another question or reference"):
        judge_samples([replace(SAMPLE, question="Which tower?")], folder=tmp_path / "a")
    assert ragauge.judge([SAMPLE], chat="lexical").scores.fingerprints == {"s1": SAMPLE.fingerprint}


@pytest.mark.parametrize(
    "traits", [(), ("no_json_schema",), ("no_response_format",)], ids=["schema", "object", "plain"]
)
def test_judge_measures_through_server_match_by_hand(traits, chat_server):
    chat_server.answer, chat_server.traits = literal_judge.answer, set(traits)
    found = judge_samples(measures=list(EXPECTED_SCORES), chat=f"openai:small@{chat_server.url}")
    assert round_means(found) == {name: pytest.approx(value, abs=1e-6) for name, value in EXPECTED_SCORES.items()}


def test_judge_measures_from_replay_match_by_hand(tmp_path):
    file = tmp_path / "replies.jsonl"
    judge_samples(measures=list(EXPECTED_SCORES), chat=Recording(ScriptedChat(literal_judge.answer), file))
    found = judge_samples(measures=list(EXPECTED_SCORES), chat=f"replay:{file}")
    assert round_means(found) == {name: pytest.approx(value, abs=1e-6) for name, value in EXPECTED_SCORES.items()}


def test_judge_makes_one_call_per_text_and_step():
    found = judge_samples(
        measures=["faithfulness", "context_precision", "context_recall", "answer_relevance"], embedder="words"
    )
    assert {row.step: row.calls for row in found.ledger} == {"claims": 2, "support": 1, "useful": 1, "questions": 1}


def test_judge_extra_measures_reuse_verdicts():
    few_measures = judge_samples(measures=["faithfulness", "context_recall"])
    many_measures = judge_samples(
        measures=["faithfulness", "context_recall", "claim_f1", "hallucination", "citation_recall"]
    )
    assert sum(row.calls for row in few_measures.ledger) == sum(row.calls for row in many_measures.ledger) == 3


def test_answer_relevance_equals_mean_cosine_with_question():
    same = Sample("same", "it is high?", "it is high.", ("x",))
    other = Sample("other", "where?", "it is high.", ("x",))
    found = judge_samples([same, other], ["answer_relevance"], embedder="words")
    assert found.scores.per_query["answer_relevance"] == {"same": pytest.approx(1.0), "other": pytest.approx(0.0)}
    assert [round(one.similarity, 6) for one in found.verdicts["same"].questions] == [1.0, 1.0, 1.0]


def test_answer_relevance_of_refusal_is_zero():
    found = judge_samples(
        [Sample("s", "I do not know?", "I do not know.", ("x",))], ["answer_relevance"], embedder="words"
    )
    assert found.verdicts["s"].refusal is True
    assert found.scores.means["answer_relevance"] == 0


def test_judge_token_verdicts_match_by_hand():
    measures = ["faithfulness", "context_precision", "context_recall", "claim_f1"]
    found = judge_samples(measures=measures, verdict_format="tokens")
    assert round_means(found) == {name: pytest.approx(EXPECTED_SCORES[name], abs=1e-6) for name in measures}
    assert {row.step: row.calls for row in found.ledger} == {"claims": 2, "support": 10, "useful": 3}


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot do that.",
        "{}",
        '{"of_answer": []}',
        '{"of_answer": [{"id": "a1"}]}',
        "null",
        "yes",
        '{"score": 1.0}',
    ],
)
def test_judge_unreadable_reply_leaves_sample_unscored(reply):
    def answer_badly(messages, schema):
        return reply if "Check every one" in messages[1]["content"] else literal_judge.answer(messages, schema)

    found = judge_samples(measures=["faithfulness"], chat=ScriptedChat(answer_badly))
    assert math.isnan(found.scores.means["faithfulness"])
    assert found.scores.n["faithfulness"] == 0
    failure = found.verdicts["s1"].unscored["support a1"]
    assert failure.reason
    assert failure.reply == reply


def test_judge_requests_only_missing_entries_again():
    requested_ids = []

    def omit_entries(messages, schema):
        data = json.loads(literal_judge.answer(messages, schema))
        if "of_answer" in data:
            requested_ids.append([entry["id"] for entry in data["of_answer"]])
            if len(requested_ids) == 1:
                data["of_answer"] = data["of_answer"][:1]
        return json.dumps(data)

    found = judge_samples(measures=["faithfulness"], chat=ScriptedChat(omit_entries))
    assert requested_ids == [["a1", "a2", "a3"], ["a2"], ["a3"]]
    assert found.scores.means["faithfulness"] == pytest.approx(1 / 3)
    assert next(row for row in found.ledger if row.step == "support").unreadable_replies == 1


def test_judge_claim_without_verdict_leaves_sample_unscored():
    def omit_a2_unless_alone(messages, schema):
        data = json.loads(literal_judge.answer(messages, schema))
        data["of_answer"] = [entry for entry in data.get("of_answer", []) if entry["id"] != "a2"] or data.get(
            "of_answer"
        )
        return json.dumps({name: value for name, value in data.items() if value is not None})

    def omit_a2(messages, schema):
        data = json.loads(omit_a2_unless_alone(messages, schema))
        if "of_answer" in data:
            data["of_answer"] = [entry for entry in data["of_answer"] if entry["id"] != "a2"]
        return json.dumps(data)

    found = judge_samples([SAMPLE, OTHER_SAMPLE], ["faithfulness"], chat=ScriptedChat(omit_a2))
    assert found.scores.per_query["faithfulness"] == {"s2": 1.0}
    assert found.verdicts["s1"].unscored["support a2"].reason == "the reply has no entry for this claim"
    assert found.scores.n["faithfulness"] == 1


def test_judge_sentence_without_reply_leaves_answer_unscored():
    def answer_first_entry(messages, schema):
        data = json.loads(literal_judge.answer(messages, schema))
        data["sentences"] = data.get("sentences", [])[:1]
        return json.dumps(data)

    def answer_first_sentence(messages, schema):
        if "List the claims" in messages[1]["content"]:
            data = json.loads(literal_judge.answer(messages, schema))
            data["sentences"] = [entry for entry in data["sentences"] if entry["id"] == "s1"]
            return json.dumps(data)
        return literal_judge.answer(messages, schema)

    found = judge_samples(measures=["faithfulness"], chat=ScriptedChat(answer_first_sentence))
    assert "claims answer" in found.verdicts["s1"].unscored
    assert math.isnan(found.scores.means["faithfulness"])


def test_judge_failed_call_leaves_only_its_sample_unscored():
    def fail_for_ships(messages, schema):
        if "ships" in messages[1]["content"] and "Check" in messages[1]["content"]:
            raise BackendFailed("the context is too long")
        return literal_judge.answer(messages, schema)

    found = judge_samples([SAMPLE, OTHER_SAMPLE], ["faithfulness"], chat=ScriptedChat(fail_for_ships))
    assert found.scores.per_query["faithfulness"] == {"s2": 1.0}
    assert found.verdicts["s1"].unscored["support a1"].reason == "the call failed: the context is too long"


def test_judge_final_failure_stops_all_calls(tmp_path):
    calls = []

    def reject_key(messages, schema):
        calls.append(1)
        raise BackendFailed("401: no such key", fails_all_calls=True)

    samples = [Sample(f"s{i}", "q", "it is high.", (f"context {i}",)) for i in range(50)]
    with pytest.raises(BackendFailed, match="no such key") as failure:
        judge_samples(samples, ["faithfulness"], chat=ScriptedChat(reject_key), folder=tmp_path, workers=2)
    assert len(calls) <= 4
    assert "run the same command again to resume" in str(failure.value.hint)


def test_judge_resumes_from_folder_without_calls(tmp_path):
    first = ScriptedChat(literal_judge.answer)
    one = judge_samples([SAMPLE, OTHER_SAMPLE], chat=first, folder=tmp_path)
    second = ScriptedChat(literal_judge.answer)
    two = judge_samples([SAMPLE, OTHER_SAMPLE], chat=second, folder=tmp_path)
    assert len(first.asked) > 0
    assert second.asked == []
    assert two.verdicts == one.verdicts
    assert {row.step: row.cached_calls for row in two.ledger} == {row.step: row.calls for row in one.ledger}


def test_judge_equal_answers_share_claims_call():
    chat = ScriptedChat(literal_judge.answer)
    samples = [Sample(f"s{i}", "q", "it is high.", (f"context {i}",)) for i in range(20)]
    found = judge_samples(samples, ["faithfulness"], chat=chat, workers=4)
    assert {row.step: row.calls for row in found.ledger}["claims"] == 1
    assert len(chat.asked) == 21


def test_judge_other_replicate_makes_new_calls(tmp_path):
    judge_samples([OTHER_SAMPLE], folder=tmp_path)
    chat = ScriptedChat(literal_judge.answer)
    judge_samples([OTHER_SAMPLE], folder=tmp_path, chat=chat, replicate=1)
    assert chat.asked


def test_judge_again_retries_unscored_items(tmp_path):
    found = judge_samples([OTHER_SAMPLE], ["faithfulness"], chat=ScriptedChat(lambda m, s: "nonsense"), folder=tmp_path)
    assert found.scores.n["faithfulness"] == 0
    working_chat = ScriptedChat(literal_judge.answer)
    assert (
        judge_samples([OTHER_SAMPLE], ["faithfulness"], chat=working_chat, folder=tmp_path).scores.n["faithfulness"]
        == 0
    )
    assert working_chat.asked == []
    retried = judge_samples([OTHER_SAMPLE], ["faithfulness"], chat=working_chat, folder=tmp_path, retry_unscored=True)
    assert retried.scores.means["faithfulness"] == 1.0


def test_judge_again_keeps_existing_verdicts(tmp_path):
    request_counts = {}

    def omit_entries(messages, schema):
        data = json.loads(literal_judge.answer(messages, schema))
        for name in ("of_answer", "verdicts"):
            for entry in data.get(name, []):
                request_counts[entry["id"]] = request_counts.get(entry["id"], 0) + 1
        # a1 gets a verdict in the first request, a2 in the second, and a3 in the fourth, so not in the first session
        data["of_answer"] = [
            item
            for item in data.get("of_answer", [])
            if request_counts[item["id"]] > {"a1": 0, "a2": 1, "a3": 3}[item["id"]]
        ]
        return json.dumps({name: value for name, value in data.items() if value})

    chat = ScriptedChat(omit_entries)
    first = judge_samples([SAMPLE], ["faithfulness"], chat=chat, folder=tmp_path)
    assert first.scores.n["faithfulness"] == 0
    assert request_counts == {"a1": 1, "a2": 2, "a3": 3}
    retried = judge_samples([SAMPLE], ["faithfulness"], chat=chat, folder=tmp_path, retry_unscored=True)
    assert retried.scores.means["faithfulness"] == pytest.approx(1 / 3)
    assert request_counts == {"a1": 1, "a2": 2, "a3": 4}
    n_calls = len(chat.asked)
    reread = judge_samples([SAMPLE], ["faithfulness"], chat=chat, folder=tmp_path)
    assert reread.verdicts == retried.verdicts
    assert len(chat.asked) == n_calls


def test_judge_max_calls_counts_all_calls_of_folder(tmp_path):
    chat = ScriptedChat(literal_judge.answer)
    judge_samples([OTHER_SAMPLE], ["faithfulness"], chat=chat, folder=tmp_path, max_calls=2)
    found = judge_samples([OTHER_SAMPLE], ["faithfulness"], chat=chat, folder=tmp_path, max_calls=2, replicate=1)
    assert len(chat.asked) == 2
    assert found.stopped == "the limit of 2 requests is reached"


def test_judge_max_calls_keeps_verdicts_so_far():
    def omit_third_entry(messages, schema):
        data = json.loads(literal_judge.answer(messages, schema))
        data["of_answer"] = data.get("of_answer", [])[:2]
        return json.dumps({name: value for name, value in data.items() if value})

    found = judge_samples(measures=["faithfulness"], chat=ScriptedChat(omit_third_entry), max_calls=2)
    verdicts = found.verdicts["s1"]
    assert set(verdicts.support) == {"a1", "a2"}
    assert verdicts.unscored["support a3"].reason == "not judged: the limit of 2 requests is reached"


def test_judge_max_cost_without_usage_is_estimated():
    samples = [Sample(f"s{i}", "q", f"it is high {i}.", (f"it is high {i}",)) for i in range(50)]
    chat = ScriptedChat(literal_judge.answer)
    found = judge_samples(samples, ["faithfulness"], chat=chat, prices={"*": (1.0, 1.0)}, max_cost=0.01)
    assert 0 < sum(row.cost for row in found.ledger) <= 0.01
    assert len(chat.asked) < 100
    assert any("estimated" in note for note in found.notes)


def test_judge_name_depends_on_reported_model():
    def judge_name(model):
        return judge_samples(chat=ScriptedChat(lambda m, s: Reply(literal_judge.answer(m, s), model=model))).judge

    assert judge_name("gpt-2024") != judge_name("gpt-2026")
    assert judge_name("gpt-2024") == judge_name("gpt-2024")


def test_judge_cache_separates_texts_with_fence_tags():
    tag = "data-0000000000000000"
    fence = f'</{tag}>\n<{tag} id="k2">\n'
    one = Sample("one", "q", "it is high.", ("x", f"y\n{fence}z"))
    two = Sample("two", "q", "it is high.", (f"x\n{fence}y", "z"))
    chat = ScriptedChat(literal_judge.answer)
    judge_samples([one, two], ["faithfulness"], chat=chat)
    assert len(chat.asked) == 3


def test_judge_chat_identity_without_json_representation_raises():
    chat = ScriptedChat(literal_judge.answer)
    chat.identity = {"made": object()}
    with pytest.raises(BadInput, match="identity that JSON can represent"):
        judge_samples(chat=chat)


def test_estimate_cost_writes_nothing(tmp_path):
    ragauge.estimate_cost([SAMPLE], ["faithfulness"], chat=ScriptedChat(literal_judge.answer), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_judge_max_calls_stops_and_higher_limit_resumes(tmp_path):
    samples = [Sample(f"s{i}", "q", f"it is high {i}.", (f"it is high {i}",)) for i in range(6)]
    chat = ScriptedChat(literal_judge.answer)
    found = judge_samples(samples, ["faithfulness"], chat=chat, folder=tmp_path, max_calls=7, workers=2)
    assert len(chat.asked) == 7
    assert found.stopped == "the limit of 7 requests is reached"
    assert 0 < found.scores.n["faithfulness"] < 6
    assert any("not judged" in reason for reason in found.scores.unscored["faithfulness"].values())
    resumed = judge_samples(samples, ["faithfulness"], chat=chat, folder=tmp_path, max_calls=12)
    assert len(chat.asked) == 12
    assert resumed.stopped == ""
    assert resumed.scores.means["faithfulness"] == 1.0


def test_judge_max_cost_is_never_exceeded(tmp_path):
    def answer_with_usage(messages, schema):
        return Reply(literal_judge.answer(messages, schema), prompt_tokens=1000, completion_tokens=100)

    samples = [Sample(f"s{i}", "q", f"it is high {i}.", (f"it is high {i}",)) for i in range(20)]
    found = judge_samples(
        samples,
        ["faithfulness"],
        chat=ScriptedChat(answer_with_usage),
        prices={"*": (1.0, 10.0)},
        max_cost=0.02,
        folder=tmp_path,
    )
    cost = sum(row.cost for row in found.ledger)
    assert 0 < cost <= 0.02
    assert "limit of 0.02 is reached" in found.stopped


def test_estimate_cost_makes_no_calls_and_excludes_cached(tmp_path):
    chat = ScriptedChat(literal_judge.answer)
    measures = ["faithfulness", "context_precision"]
    rows = ragauge.estimate_cost(
        [SAMPLE, OTHER_SAMPLE], measures, chat=chat, folder=tmp_path / "none", prices={"*": (1, 2)}
    )
    assert chat.asked == []
    assert not (tmp_path / "none").exists()
    assert {row.step: row.calls for row in rows} == {"claims": 2, "support": 2, "useful": 2}
    assert all(row.cost == pytest.approx((row.prompt_tokens + 2 * row.completion_tokens) / 1e6) for row in rows)
    judge_samples([SAMPLE], measures, chat=chat, folder=tmp_path)
    rows = ragauge.estimate_cost([SAMPLE, OTHER_SAMPLE], measures, chat=chat, folder=tmp_path)
    assert {row.step: row.calls for row in rows} == {"claims": 1, "support": 1, "useful": 1}


def test_estimate_cost_matches_number_of_calls():
    chat = ScriptedChat(literal_judge.answer)
    measures = ["faithfulness", "context_precision", "context_recall", "answer_relevance"]
    rows = ragauge.estimate_cost([SAMPLE, OTHER_SAMPLE], measures, chat=chat)
    ragauge.judge([SAMPLE, OTHER_SAMPLE], measures, chat=chat, embedder="words")
    assert sum(row.calls for row in rows) == len(chat.asked)


def test_lexical_judge_makes_no_calls():
    assert ragauge.estimate_cost([SAMPLE]) == []
    found = ragauge.judge([SAMPLE])
    assert found.ledger == []
    assert found.judge.startswith("lexical")
    assert found.scores.n["faithfulness"] == 1


def test_judge_name_depends_on_settings():
    default_name = judge_samples().judge
    assert judge_samples(chat=ScriptedChat(literal_judge.answer), verdict_format="tokens").judge != default_name
    assert (
        judge_samples(measures=["faithfulness"]).judge != default_name
    )  # without context_recall, the reference is not a source
    assert judge_samples().judge == default_name


def test_compare_scores_of_different_judges_raises():
    one, two = (
        judge_samples([SAMPLE, OTHER_SAMPLE]).scores,
        ragauge.judge([SAMPLE, OTHER_SAMPLE], ["faithfulness"]).scores,
    )
    with pytest.raises(ragauge.Incomparable, match="judge"):
        ragauge.compare({"one": one, "two": two}, measures=["faithfulness"])


def test_judge_works_inside_running_event_loop():
    async def judge_in_loop():
        return judge_samples(), await ragauge.judge_async(
            [SAMPLE], ["faithfulness"], chat=ScriptedChat(literal_judge.answer)
        )

    sync_result, async_result = asyncio.run(judge_in_loop())
    assert sync_result.scores.means["faithfulness"] == async_result.scores.means["faithfulness"]


class QueueingJudge:
    """Judge with an asyncio lock, which is bound to the event loop of its first use."""

    name = "queueing"
    identity = {"judge": "queueing"}  # noqa: RUF012 - as a user would write it

    def __init__(self):
        self.turn = asyncio.Lock()

    async def answer(self, task):
        async with self.turn:
            await asyncio.sleep(0.001)
            return LexicalJudge().judge_task(task)


def test_judge_lock_of_other_event_loop_raises():
    samples, judge = [replace(SAMPLE, id=f"s{place}") for place in range(4)], QueueingJudge()
    judge_samples(samples, chat=judge)
    with pytest.raises(BackendFailed, match="the judge queueing uses an object of another event loop") as caught:
        judge_samples(samples, chat=judge)
    assert "a new judge for every call of `judge`" in str(caught.value.hint)


def test_judge_without_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judge_samples()
    ragauge.judge([SAMPLE])
    assert list(tmp_path.iterdir()) == []


def test_judge_empty_contexts_score_zero_without_calls():
    chat = ScriptedChat(literal_judge.answer)
    found = judge_samples([Sample("s", "q?", "it is high.", ())], ["faithfulness", "context_precision"], chat=chat)
    assert [row.step for row in found.ledger] == ["claims"]
    assert round_means(found) == {"faithfulness": 0, "context_precision": 0}


def test_faithfulness_without_claims_depends_on_convention():
    def return_no_claims(messages, schema):
        return json.dumps({"sentences": [{"id": "s1", "claims": []}]})

    found = judge_samples(
        [Sample("s", "q?", "Good morning.", ())], ["faithfulness"], chat=ScriptedChat(return_no_claims)
    )
    assert found.scores.n["faithfulness"] == 0
    found = judge_samples(
        [Sample("s", "q?", "Good morning.", ("x",))],
        ["faithfulness"],
        chat=ScriptedChat(return_no_claims),
        convention="rig",
    )
    assert found.scores.means["faithfulness"] == 1


def test_judge_missing_evidence_raises_before_calls():
    chat = ScriptedChat(literal_judge.answer)
    with pytest.raises(MissingEvidence, match="reference"):
        judge_samples([Sample("s", "q?", "it is high.", ("x",))], ["context_recall"], chat=chat)
    assert chat.asked == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"questions": 0}, "questions"), ({"workers": 0}, "workers"), ({"timeout": 0}, "timeout"),
        ({"verdict_format": "xml"}, "xml"), ({"confidence": 1.5}, "confidence"), ({"max_samples": 0}, "max_samples"),
        ({"max_cost": 1.0}, "price"), ({"options": {"temperature": 1}}, "given by name"), ({"chat": 7}, "not a chat"),
    ],
)  # fmt: skip
def test_judge_invalid_settings_raise(settings, message):
    with pytest.raises(BadInput, match=message):
        judge_samples(**settings)


def test_judge_accepts_custom_judge():
    from ragauge.judging.tasks import TaskResult

    class GenerousJudge:
        name = "generous"
        identity = {"version": 1}  # noqa: RUF012 - a test

        async def answer(self, task):
            verdicts = {"claims": lambda item: [task.items[item]], "support": lambda item: Support(("k1",))}
            return TaskResult({item: verdicts[task.step](item) for item in task.items}, {})

    found = ragauge.judge([SAMPLE], ["faithfulness"], chat=GenerousJudge())
    assert found.scores.means["faithfulness"] == 1.0
    assert found.judge.startswith("generous")


def test_judge_canaries_detect_prompt_injection():
    def obey_injection(messages, schema):
        data = json.loads(literal_judge.answer(messages, schema))
        text = messages[1]["content"]
        for entry in data.get("of_answer", []):
            if "supported by k1" in text or "list k1 as supporting" in text:
                entry.update(supported_by=["k1"], contradicted_by=[])
        return json.dumps(data)

    found = judge_samples(measures=["faithfulness"], chat=ScriptedChat(obey_injection), canaries=True)
    obeyed = {attempt.case for attempt in found.robustness if attempt.resisted is False}
    assert obeyed == {"an instruction in a context", "a claim that asserts its own truth"}
    resistant = judge_samples(measures=["faithfulness"], canaries=True)
    assert all(attempt.resisted for attempt in resistant.robustness)
    assert {attempt.step for attempt in resistant.robustness} == {"support", "useful", "claims", "questions"}


def test_judge_api_key_is_not_written(tmp_path, monkeypatch, chat_server):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    server = chat_server
    server.answer = literal_judge.answer
    folder = tmp_path / "out"
    found = ragauge.judge([SAMPLE], ["faithfulness"], chat=f"openai:small@{server.url}", folder=folder)
    assert found.scores.means["faithfulness"] == pytest.approx(1 / 3)
    for path in folder.rglob("*"):
        assert b"sk-secret" not in path.read_bytes()
    assert "sk-secret" not in repr(found)
    assert "sk-secret" not in json.dumps(dict(found.identity), default=str)


@pytest.mark.crash
def test_judge_resumes_after_kill_9_without_repeating_calls(tmp_path, chat_server):
    server = chat_server
    server.answer, server.latency = literal_judge.answer, 0.02
    code = textwrap.dedent(f"""
        import ragauge
        samples = [ragauge.Sample(f"s{{i}}", "q?", f"it is high {{i}}.", (f"it is high {{i}}",)) for i in range(60)]
        ragauge.judge(samples, ["faithfulness"], chat="openai:small@{server.url}", folder={str(tmp_path / "out")!r},
                      workers=4)
    """)
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "OPENAI_API_KEY": "x"})
    wait_while_running(process, lambda: server.calls >= 30, "30 calls")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = server.calls
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "OPENAI_API_KEY": "x"}, check=True)
    assert 120 <= server.calls <= 120 + 4
    assert server.calls - before < 120


FINAL_FAULTS = {"too_long", "wrong_value", "content_filter", "refusal", "tool", "html", "no_choices"}
STOPPING_FAULTS = {"unauthorised", "key_echo", "forbidden", "unpaid", "quota", "no_model"}


@pytest.mark.parametrize("fault", [*chat_server_module.FAULTS])
@pytest.mark.slow
def test_judge_single_server_fault_gives_correct_or_no_score(fault, chat_server):
    chat_server.answer = literal_judge.answer
    chat_server.queue_faults(fault, after=0.01)
    chat = f"openai:small@{chat_server.url}"
    if fault in STOPPING_FAULTS:
        with pytest.raises(BackendFailed):
            ragauge.judge([SAMPLE], ["faithfulness"], chat=chat, timeout=5)
        return
    found = ragauge.judge([SAMPLE], ["faithfulness"], chat=chat, timeout=5)
    value = found.scores.per_query["faithfulness"].get("s1")
    assert value is None or value == pytest.approx(1 / 3)
    if fault not in FINAL_FAULTS:
        assert value is not None


@pytest.mark.parametrize(
    "fault", ["nonsense", "empty", "truncated", "length", "wrong_ids", "missing_ids", "refusal", "too_long"]
)
@pytest.mark.slow
def test_judge_persistent_server_fault_scores_nothing(fault, chat_server):
    chat_server.answer = literal_judge.answer
    chat_server.queue_faults(fault, times=100)
    found = ragauge.judge(
        [SAMPLE, OTHER_SAMPLE], ["faithfulness", "context_precision"], chat=f"openai:small@{chat_server.url}"
    )
    assert found.scores.n == {"faithfulness": 0, "context_precision": 0}
    assert all(math.isnan(mean) for mean in found.scores.means.values())
    assert all(failure.reason for verdicts in found.verdicts.values() for failure in verdicts.unscored.values())


@pytest.mark.parametrize("trait", [*chat_server_module.TRAITS])
@pytest.mark.slow
def test_judge_server_trait_gives_correct_or_no_score(trait, chat_server):
    chat_server.answer = literal_judge.answer
    chat_server.traits = {trait}
    found = ragauge.judge([SAMPLE], ["faithfulness"], chat=f"openai:small@{chat_server.url}", options={"seed": 1})
    value = found.scores.per_query["faithfulness"].get("s1")
    assert value is None or value == pytest.approx(1 / 3)
    if trait != "ignores_schema":
        assert value is not None


def test_rescore_reuses_verdicts_without_calls(tmp_path):
    chat = ScriptedChat(literal_judge.answer)
    measures = ["faithfulness", "context_recall", "context_precision"]
    before = judge_samples([SAMPLE, OTHER_SAMPLE], measures, chat=chat, folder=tmp_path)
    n_calls = len(chat.asked)
    rescored = ragauge.rescore(tmp_path, ["hallucination", "context_recall@1", "claim_f1"])
    assert len(chat.asked) == n_calls
    assert rescored.scores.means["hallucination"] == pytest.approx(1 / 3)
    assert rescored.judge == before.judge
    assert ragauge.rescore(before).scores.means == before.scores.means
    with pytest.raises(
        MissingEvidence, match="answer_relevance needs verdicts on questions generated from the answer, which"
    ):
        ragauge.rescore(before, ["answer_relevance"])


def test_judge_default_measures_depend_on_samples():
    found = ragauge.judge([Sample("s", "q?", "it is high.", ("it is high",))])
    assert found.scores.measures == ["faithfulness", "context_precision"]
    assert "context_recall is left out: there are no reference answers" in found.notes
    assert "answer_relevance is left out: it needs a model that generates questions (--chat)" in found.notes
    relevance = ragauge.judge([Sample("s", "q?", "it is high.", ("it is high",))], ["answer_relevance"])
    assert relevance.scores.n == {"answer_relevance": 0}
    assert "the lexical judge generates no questions" in relevance.scores.unscored["answer_relevance"]["s"]
    with_model = ragauge.judge(
        [Sample("s", "q?", "it is high.", ("it is high",))], chat=ScriptedChat(literal_judge.answer)
    )
    assert with_model.scores.measures == ["faithfulness", "context_precision", "answer_relevance"]


def test_judge_max_calls_finishes_whole_samples(tmp_path):
    samples = [Sample(f"s{i}", "q", f"it is high {i}.", (f"it is high {i}",), f"it is {i}") for i in range(60)]
    found = judge_samples(samples, ["faithfulness", "context_recall"], max_calls=60, workers=16)
    assert found.scores.n["faithfulness"] >= 15  # 3 calls per sample; at most 4 (16 // 4) are unfinished


def test_judge_unreachable_endpoint_stops_early():
    calls = []

    def fail_connection(messages, schema):
        calls.append(1)
        raise BackendFailed("no connection", is_temporary=True)

    samples = [Sample(f"s{i}", "q", f"it is high {i}.", ("x",)) for i in range(100)]
    with pytest.raises(BackendFailed, match="no connection"):
        judge_samples(samples, ["faithfulness"], chat=ScriptedChat(fail_connection), workers=2, retries=0)
    assert len(calls) <= 8


def test_judge_few_or_equal_values_have_no_interval():
    assert judge_samples([SAMPLE, OTHER_SAMPLE]).intervals == {}
    samples = [Sample(f"s{i}", "q", f"it is high {i}.", (f"it is high {i}",)) for i in range(6)]
    assert judge_samples(samples, ["faithfulness"]).intervals == {}
    mixed = [*samples, Sample("bad", "q", "it is low.", ("x",))]
    low, high = judge_samples(mixed, ["faithfulness"]).intervals["faithfulness"]
    assert 0 < low < 6 / 7 < high <= 1


def test_injection_attempt_resisted_is_none_if_wrong_before():
    from ragauge.judging.results import InjectionAttempt

    assert InjectionAttempt("c", "useful", "context", "not useful", "useful", "not useful").resisted is None
    assert InjectionAttempt("c", "useful", "context", "not useful", "not useful", "useful").resisted is False
    assert InjectionAttempt("c", "useful", "context", "not useful", "not useful", "not useful").resisted is True
    assert InjectionAttempt("c", "useful", "context", "not useful", "not useful", "unscored").resisted is None
