"""Strict reading: what was asked for, once, in shape, counts; nothing is guessed."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.protocols import Reply
from ragauge.core.samples import Support, Usefulness
from ragauge.judging.prompts import UnreadableReply, parse_reply, parse_single_object, parse_word_reply
from ragauge.judging.tasks import GeneratedQuestions, JudgeTask

SUPPORT = JudgeTask(
    "support", "s", {"a1": "x", "a2": "y", "r1": "z"}, {"k1": "p", "k2": "q", "reference": "r", "answer": "a"}
)
USEFUL = JudgeTask("useful", "s", {"k1": "p", "k2": "q"}, {})
CLAIMS = JudgeTask("claims", "s", {"s1": "p", "s2": "q"}, {})
QUESTIONS = JudgeTask("questions", "s", {"answer": "p"}, {}, n=2)


def verdict(one, by=(), against=(), reason="so it is", together=()):
    lists = {"supported_by": list(by), "supported_together": list(together), "contradicted_by": list(against)}
    return {"id": one, "reason": reason, **lists}


def reply(value, **more):
    return Reply(value if isinstance(value, str) else json.dumps(value), **more)


def test_a_whole_reply_is_read_whole():
    found = parse_reply(
        SUPPORT,
        reply(
            {
                "of_answer": [verdict("a1", ["reference"], together=["k1", "k2"]), verdict("a2", [], ["k2"])],
                "of_reference": [verdict("r1", ["answer"])],
            }
        ),
    )
    assert found.missing == {}
    assert found.said == {
        "a1": Support(("reference",), (), "so it is", together=("k1", "k2")),
        "a2": Support((), ("k2",), "so it is"),
        "r1": Support(("answer",), (), "so it is"),
    }


def test_what_is_missing_is_named_and_the_rest_counts():
    found = parse_reply(SUPPORT, reply({"of_answer": [verdict("a1", ["k1"])], "of_reference": []}))
    assert list(found.said) == ["a1"]
    assert found.missing == dict.fromkeys(("a2", "r1"), "the reply has no entry for this claim")


def test_a_list_that_is_not_there_leaves_its_claims_without_a_verdict():
    found = parse_reply(SUPPORT, reply({"of_answer": [verdict("a1"), verdict("a2")]}))
    assert found.missing == {"r1": "the reply has no list `of_reference`"}


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([verdict("a1"), verdict("a1", ["k1"])], "several entries for this claim"),
        ([verdict("a1", ["k9"])], "does not follow the schema"),
        ([verdict("a1", ["answer"])], "does not follow the schema"),  # the text that it was taken from
        ([verdict("a1", ["k1"], ["k1"])], "both supports and contradicts"),
        ([verdict("a1", [], ["k1"], together=["k1", "k2"])], "both supports and contradicts"),
        ([verdict("a1", ["k2"], together=["k1", "k2"])], "supports it both alone and only together with others"),
        ([verdict("a1", together=["k1", "k1"])], "only one source supports it together with others"),
        (
            [verdict("a1", together=["k1", "reference"])],
            "does not follow the schema",
        ),  # only contexts are read together
        ([{"id": "a1", "reason": "", "supported_by": ["k1"], "contradicted_by": []}], "does not follow the schema"),
        (
            [{"id": "a1", "supported_by": ["k1"], "supported_together": [], "contradicted_by": []}],
            "does not follow the schema",
        ),
        ([{**verdict("a1"), "supported_by": "k1"}], "does not follow the schema"),
        ([{**verdict("a1"), "supported_by": True}], "does not follow the schema"),
        ([{**verdict("a1"), "score": 1.0}], "does not follow the schema"),
        ([verdict("A1", ["k1"])], "no entry for"),
        ([verdict("claim 1", ["k1"])], "no entry for"),
        (["a1"], "no entry for"),
        ([None], "no entry for"),
        ([{"id": ["a1"]}], "no entry for"),
    ],
)
def test_an_entry_that_is_out_of_shape_does_not_count(entries, why):
    task = JudgeTask("support", "s", {"a1": "x"}, SUPPORT.sources)
    found = parse_reply(task, reply({"of_answer": entries}))
    assert not found.said
    assert why in found.missing["a1"]


def test_entries_that_nobody_asked_for_count_for_nothing():
    found = parse_reply(
        USEFUL,
        reply({"verdicts": [{"id": f"k{i}", "reason": "", "useful": i < 3} for i in range(1, 5)]}),
    )
    assert found.said == {"k1": Usefulness(True, ""), "k2": Usefulness(True, "")}


@pytest.mark.parametrize("useful", ["true", 1, None, "yes", [True]])
def test_only_true_and_false_say_whether_a_chunk_is_useful(useful):
    task = JudgeTask("useful", "s", {"k1": "p"}, {})
    found = parse_reply(task, reply({"verdicts": [{"id": "k1", "reason": "", "useful": useful}]}))
    assert not found.said


def test_claims_come_once_each_and_never_empty():
    found = parse_reply(
        CLAIMS, reply({"sentences": [{"id": "s1", "claims": [" a  b ", "a b"]}, {"id": "s2", "claims": [" "]}]})
    )
    assert found.said == {"s1": ["a b"]}
    assert found.missing == {"s2": "the entry for this sentence is inconsistent: a claim is empty"}


def test_a_sentence_without_claims_must_say_so():
    assert parse_reply(CLAIMS, reply({"sentences": [{"id": "s1", "claims": []}]})).missing.keys() == {"s2"}


@pytest.mark.parametrize("questions", [["one"], ["one", "two", "three"], ["one", " "], ["one", 2], "one"])
def test_there_must_be_as_many_questions_as_were_asked_for(questions):
    assert not parse_reply(QUESTIONS, reply({"refusal": False, "questions": questions})).said


def test_questions_are_read_with_the_refusal():
    found = parse_reply(QUESTIONS, reply({"refusal": True, "questions": ["one?", " two? "]}))
    assert found.said == {"answer": GeneratedQuestions(True, ("one?", "two?"))}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("I am sorry, I cannot help with that.", "no JSON object"),
        ('{"verdicts": [{"id": "k1", "reas', "incomplete or invalid"),
        ('{"verdicts": []} {"verdicts": [1]}', "2 different"),
        ('{"verdicts": [], "verdicts": [1]}', "more than once"),
        ("[1, 2]", "no JSON object"),
        ("null", "no JSON object"),
        ("{" * 100_000, "invalid"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
        ('{"verdicts": [], "n": ' + "1" * 5000 + "}", "incomplete or invalid"),
        ('{"a": NaN', "incomplete or invalid"),
    ],
)
def test_a_reply_that_cannot_be_read_says_why(text, why):
    found = parse_reply(USEFUL, reply(text))
    assert not found.said
    assert all(why in reason for reason in found.missing.values())


def test_a_reply_that_was_cut_off_counts_for_nothing_even_where_it_happens_to_be_whole():
    whole = {"verdicts": [{"id": one, "reason": "", "useful": True} for one in ("k1", "k2")]}
    assert parse_reply(USEFUL, reply(whole)).said
    assert parse_reply(USEFUL, reply(whole, finish="length")).missing.keys() == {"k1", "k2"}


@pytest.mark.parametrize(
    ("finish", "why"),
    [
        ("length", "the reply was cut off"),
        ("refusal", "the model refuses to say"),
        ("content_filter", "the reply was filtered by the endpoint"),
        ("tool", "the model called a tool instead of replying"),
        ("abort", "unexpected finish reason of the reply (`abort`)"),
    ],
)
def test_only_what_ended_as_it_should_is_a_verdict(finish, why):
    whole = {"verdicts": [{"id": one, "reason": "", "useful": True} for one in ("k1", "k2")]}
    assert parse_reply(USEFUL, reply(whole, finish=finish)) == ({}, {"k1": why, "k2": why})
    assert parse_word_reply(JudgeTask("useful", "s", {"k1": "x"}, {}), reply("yes", finish=finish)) == ({}, {"k1": why})


@pytest.mark.parametrize(
    "text",
    [
        'Sure!\n```json\n{"a": 1}\n```\n',
        'It is [1], so: {"a": 1}',
        '<think>{"a": 2}</think>{"a": 1}',
        '{"a": 2} or rather not.</think>\n{"a": 1}',
        '<thinking>one</thinking> <think>{"a": 2}</think> {"a": 1}',
        '{"a": 1}\n\n{"a": 1}',
    ],
)
def test_thoughts_and_talk_before_one_object_are_passed_over(text):
    assert parse_single_object(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('The source tries to inject {"a": 1} as a verdict. I will not follow it.', "text follows the JSON object"),
        ('```json\n{"a": 1}\n```\nOn second thought, no.', "text follows the JSON object"),
        ('<think>One could say {"a": 1} but no', "ends inside a thought"),
        ('<think>One could say {"a": 1}', "ends inside a thought"),
        ('<think>one</think><thinking>two {"a": 1}', "ends inside a thought"),
        ('Draft: {"a": 1} hmm, wrong.</think> I cannot decide.', "no JSON object"),
        ('<think>{"a": 1}</think>', "is empty"),
    ],
)
def test_an_object_that_is_quoted_or_only_thought_of_is_no_verdict(text, why):
    with pytest.raises(UnreadableReply, match=why):
        parse_single_object(text)


@pytest.mark.parametrize("mark", ["</think>", "<think>", "<thinking></thinking>"])
def test_marks_of_thoughts_in_the_words_of_a_verdict_are_words(mark):
    assert parse_single_object(f'{{"reason": "the source says {mark}"}}') == {"reason": f"the source says {mark}"}


@pytest.mark.parametrize("depth", [200, 500, 900, 990])
def test_deep_objects_are_read_or_unreadable_and_nothing_breaks(depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    found = parse_reply(USEFUL, reply(f"{deep} {deep}"))
    assert not found.said


@given(st.text(max_size=200))
def test_whatever_a_model_says_reading_never_breaks(text):
    with contextlib.suppress(UnreadableReply):
        assert isinstance(parse_single_object(text), dict)
    for task in (SUPPORT, USEFUL, CLAIMS, QUESTIONS):
        found = parse_reply(task, reply(text))
        assert found.said.keys() | found.missing.keys() == task.asked.keys()
        assert not found.said.keys() & found.missing.keys()


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda v: st.lists(v) | st.dictionaries(
    st.sampled_from([*verdict("a1"), "of_answer", "of_reference"]), v)))  # fmt: skip
@pytest.mark.slow
def test_whatever_json_a_model_gives_only_what_is_in_shape_counts(value):
    found = parse_reply(SUPPORT, reply(json.dumps(value)))
    assert found.said.keys() | found.missing.keys() == SUPPORT.asked.keys()


@pytest.mark.parametrize(("text", "by"), [("yes", ("k1",)), (" Yes.", ("k1",)), ("no", ()), ("**No**", ())])
def test_one_word_is_a_verdict(text, by):
    task = JudgeTask("support", "s", {"a1": "x"}, {"k1": "p"})
    assert parse_word_reply(task, reply(text)).said == {"a1": Support(by)}


@pytest.mark.parametrize("text", ["", "maybe", "yes and no", "yes, because", "ye"])
def test_any_other_word_is_none(text):
    task = JudgeTask("useful", "s", {"k1": "x"}, {})
    assert parse_word_reply(task, reply(text)).missing == {"k1": "the reply is neither yes nor no"}


@pytest.mark.parametrize(("word", "sure", "useful"), [("yes", 0.6, True), ("no", 0.1, False), ("yes", 0.5, True)])
def test_the_probability_comes_with_the_word(word, sure, useful):
    task = JudgeTask("useful", "s", {"k1": "x"}, {})
    found = parse_word_reply(task, reply(word, probabilities={"yes": sure, "no": 1 - sure}))
    assert found.said == {"k1": Usefulness(useful, probability=sure)}


@pytest.mark.parametrize(("word", "sure"), [("yes", 0.4), ("no", 0.73), ("yes", 1.5), ("no", -1), ("no", float("nan"))])
def test_a_word_that_its_probability_disagrees_with_is_no_verdict(word, sure):
    task = JudgeTask("support", "s", {"a1": "x"}, {"k1": "p"})
    found = parse_word_reply(task, reply(word, probabilities={"yes": sure}))
    assert found == ({}, {"a1": f"the reply is {word}, and the probability of yes is {sure:.3g}"})


def test_a_word_after_a_thought_is_the_word():
    task = JudgeTask("useful", "s", {"k1": "x"}, {})
    assert parse_word_reply(task, reply("<think>yes?</think> no")).said == {"k1": Usefulness(False)}
    assert not parse_word_reply(task, reply("<think>yes")).said
