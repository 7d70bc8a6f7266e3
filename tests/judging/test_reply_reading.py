"""Strict parsing of replies: an entry counts only if it was requested, is unique and follows the schema."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.protocols import Reply
from ragauge.core.samples import Support, Usefulness
from ragauge.judging.all_steps import STEPS
from ragauge.judging.step import UnreadableReply, parse_single_object
from ragauge.judging.steps.questions import GeneratedQuestions
from ragauge.judging.tasks import JudgeTask

SUPPORT = JudgeTask(
    "support", "s", {"a1": "x", "a2": "y", "r1": "z"}, {"k1": "p", "k2": "q", "reference": "r", "answer": "a"}
)
USEFUL = JudgeTask("useful", "s", {"k1": "p", "k2": "q"}, {})
CLAIMS = JudgeTask("claims", "s", {"s1": "p", "s2": "q"}, {})
QUESTIONS = JudgeTask("questions", "s", {"answer": "p"}, {}, n=2)


def parse_reply(task, reply, **options):
    return STEPS[task.step].parse_reply(task, reply, **options)


def make_entry(claim, by=(), against=(), reason="so it is", together=()):
    lists = {"supported_by": list(by), "supported_together": list(together), "contradicted_by": list(against)}
    return {"id": claim, "reason": reason, **lists}


def make_reply(value, **more):
    return Reply(value if isinstance(value, str) else json.dumps(value), **more)


def test_parse_reply_reads_complete_reply():
    found = parse_reply(
        SUPPORT,
        make_reply(
            {
                "of_answer": [make_entry("a1", ["reference"], together=["k1", "k2"]), make_entry("a2", [], ["k2"])],
                "of_reference": [make_entry("r1", ["answer"])],
            }
        ),
    )
    assert found.missing == {}
    assert found.verdicts == {
        "a1": Support(("reference",), (), "so it is", together=("k1", "k2")),
        "a2": Support((), ("k2",), "so it is"),
        "r1": Support(("answer",), (), "so it is"),
    }


def test_parse_reply_missing_entries_are_named():
    found = parse_reply(SUPPORT, make_reply({"of_answer": [make_entry("a1", ["k1"])], "of_reference": []}))
    assert list(found.verdicts) == ["a1"]
    assert found.missing == dict.fromkeys(("a2", "r1"), "the reply has no entry for this claim")


def test_parse_reply_missing_list_leaves_claims_unscored():
    found = parse_reply(SUPPORT, make_reply({"of_answer": [make_entry("a1"), make_entry("a2")]}))
    assert found.missing == {"r1": "the reply has no list `of_reference`"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([make_entry("a1"), make_entry("a1", ["k1"])], "several entries for this claim"),
        ([make_entry("a1", ["k9"])], "does not follow the schema"),
        ([make_entry("a1", ["answer"])], "does not follow the schema"),  # the text that the claim is from
        ([make_entry("a1", ["k1"], ["k1"])], "both supports and contradicts"),
        ([make_entry("a1", [], ["k1"], together=["k1", "k2"])], "both supports and contradicts"),
        ([make_entry("a1", ["k2"], together=["k1", "k2"])], "supports it both alone and only together with others"),
        ([make_entry("a1", together=["k1", "k1"])], "only one source supports it together with others"),
        (
            [make_entry("a1", together=["k1", "reference"])],
            "does not follow the schema",
        ),  # only contexts can support together
        ([{"id": "a1", "reason": "", "supported_by": ["k1"], "contradicted_by": []}], "does not follow the schema"),
        (
            [{"id": "a1", "supported_by": ["k1"], "supported_together": [], "contradicted_by": []}],
            "does not follow the schema",
        ),
        ([{**make_entry("a1"), "supported_by": "k1"}], "does not follow the schema"),
        ([{**make_entry("a1"), "supported_by": True}], "does not follow the schema"),
        ([{**make_entry("a1"), "score": 1.0}], "does not follow the schema"),
        ([make_entry("A1", ["k1"])], "no entry for"),
        ([make_entry("claim 1", ["k1"])], "no entry for"),
        (["a1"], "no entry for"),
        ([None], "no entry for"),
        ([{"id": ["a1"]}], "no entry for"),
    ],
)
def test_parse_reply_ignores_invalid_entry(entries, message):
    task = JudgeTask("support", "s", {"a1": "x"}, SUPPORT.sources)
    found = parse_reply(task, make_reply({"of_answer": entries}))
    assert not found.verdicts
    assert message in found.missing["a1"]


def test_parse_reply_ignores_unrequested_entries():
    found = parse_reply(
        USEFUL,
        make_reply({"verdicts": [{"id": f"k{i}", "reason": "", "useful": i < 3} for i in range(1, 5)]}),
    )
    assert found.verdicts == {"k1": Usefulness(True, ""), "k2": Usefulness(True, "")}


@pytest.mark.parametrize("useful", ["true", 1, None, "yes", [True]])
def test_parse_reply_useful_must_be_boolean(useful):
    task = JudgeTask("useful", "s", {"k1": "p"}, {})
    found = parse_reply(task, make_reply({"verdicts": [{"id": "k1", "reason": "", "useful": useful}]}))
    assert not found.verdicts


def test_parse_reply_claims_are_deduplicated_and_not_empty():
    found = parse_reply(
        CLAIMS, make_reply({"sentences": [{"id": "s1", "claims": [" a  b ", "a b"]}, {"id": "s2", "claims": [" "]}]})
    )
    assert found.verdicts == {"s1": ["a b"]}
    assert found.missing == {"s2": "the entry for this sentence is inconsistent: a claim is empty"}


def test_parse_reply_omitted_sentence_is_missing():
    assert parse_reply(CLAIMS, make_reply({"sentences": [{"id": "s1", "claims": []}]})).missing.keys() == {"s2"}


@pytest.mark.parametrize("questions", [["one"], ["one", "two", "three"], ["one", " "], ["one", 2], "one"])
def test_parse_reply_wrong_question_count_is_rejected(questions):
    assert not parse_reply(QUESTIONS, make_reply({"refusal": False, "questions": questions})).verdicts


def test_parse_reply_reads_questions_and_refusal():
    found = parse_reply(QUESTIONS, make_reply({"refusal": True, "questions": ["one?", " two? "]}))
    assert found.verdicts == {"answer": GeneratedQuestions(True, ("one?", "two?"))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("I am sorry, I cannot help with that.", "no JSON object"),
        ('{"verdicts": [{"id": "k1", "reas', "incomplete or invalid"),
        ('{"verdicts": []} {"verdicts": [1]}', "different JSON objects"),
        ('{"verdicts": [], "verdicts": [1]}', "more than once"),
        ("[1, 2]", "no JSON object"),
        ("null", "no JSON object"),
        ("{" * 100_000, "invalid"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
        ('{"verdicts": [], "n": ' + "1" * 5000 + "}", "incomplete or invalid"),
        ('{"a": NaN', "incomplete or invalid"),
    ],
)
def test_parse_reply_unreadable_text_gives_reason(text, message):
    found = parse_reply(USEFUL, make_reply(text))
    assert not found.verdicts
    assert all(message in reason for reason in found.missing.values())


def test_parse_reply_truncated_reply_is_rejected_even_if_complete():
    verdicts = {"verdicts": [{"id": chunk, "reason": "", "useful": True} for chunk in ("k1", "k2")]}
    assert parse_reply(USEFUL, make_reply(verdicts)).verdicts
    assert parse_reply(USEFUL, make_reply(verdicts, finish="length")).missing.keys() == {"k1", "k2"}


@pytest.mark.parametrize(
    ("finish", "message"),
    [
        ("length", "the reply was cut off"),
        ("refusal", "the model refuses to say"),
        ("content_filter", "the reply was filtered by the endpoint"),
        ("tool", "the model called a tool instead of replying"),
        ("abort", "unexpected finish reason of the reply (`abort`)"),
    ],
)
def test_parse_reply_abnormal_finish_reason_is_rejected(finish, message):
    verdicts = {"verdicts": [{"id": chunk, "reason": "", "useful": True} for chunk in ("k1", "k2")]}
    assert parse_reply(USEFUL, make_reply(verdicts, finish=finish)) == ({}, {"k1": message, "k2": message})
    assert parse_reply(JudgeTask("useful", "s", {"k1": "x"}, {}), make_reply("yes", finish=finish), word=True) == (
        {},
        {"k1": message},
    )


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
def test_parse_single_object_ignores_thoughts_and_text_before(text):
    assert parse_single_object(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_parse_single_object_quoted_or_in_thought_raises(text, message):
    with pytest.raises(UnreadableReply, match=message):
        parse_single_object(text)


@pytest.mark.parametrize("tag", ["</think>", "<think>", "<thinking></thinking>"])
def test_parse_single_object_keeps_think_tags_inside_strings(tag):
    assert parse_single_object(f'{{"reason": "the source says {tag}"}}') == {"reason": f"the source says {tag}"}


@pytest.mark.parametrize("depth", [200, 500, 900, 990])
def test_parse_reply_deeply_nested_objects_return_no_verdict(depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    found = parse_reply(USEFUL, make_reply(f"{deep} {deep}"))
    assert not found.verdicts


@given(st.text(max_size=200))
def test_parse_reply_random_text_never_raises(text):
    with contextlib.suppress(UnreadableReply):
        assert isinstance(parse_single_object(text), dict)
    for task in (SUPPORT, USEFUL, CLAIMS, QUESTIONS):
        found = parse_reply(task, make_reply(text))
        assert found.verdicts.keys() | found.missing.keys() == task.items.keys()
        assert not found.verdicts.keys() & found.missing.keys()


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda v: st.lists(v) | st.dictionaries(
    st.sampled_from([*make_entry("a1"), "of_answer", "of_reference"]), v)))  # fmt: skip
@pytest.mark.slow
def test_parse_reply_random_json_covers_every_claim(value):
    found = parse_reply(SUPPORT, make_reply(json.dumps(value)))
    assert found.verdicts.keys() | found.missing.keys() == SUPPORT.items.keys()


@pytest.mark.parametrize(("text", "by"), [("yes", ("k1",)), (" Yes.", ("k1",)), ("no", ()), ("**No**", ())])
def test_parse_word_reply_yes_or_no_is_verdict(text, by):
    task = JudgeTask("support", "s", {"a1": "x"}, {"k1": "p"})
    assert parse_reply(task, make_reply(text), word=True).verdicts == {"a1": Support(by)}


@pytest.mark.parametrize("text", ["", "maybe", "yes and no", "yes, because", "ye"])
def test_parse_word_reply_other_text_is_missing(text):
    task = JudgeTask("useful", "s", {"k1": "x"}, {})
    assert parse_reply(task, make_reply(text), word=True).missing == {"k1": "the reply is neither yes nor no"}


@pytest.mark.parametrize(
    ("word", "probability", "useful"), [("yes", 0.6, True), ("no", 0.1, False), ("yes", 0.5, True)]
)
def test_parse_word_reply_keeps_probability(word, probability, useful):
    task = JudgeTask("useful", "s", {"k1": "x"}, {})
    found = parse_reply(task, make_reply(word, probabilities={"yes": probability, "no": 1 - probability}), word=True)
    assert found.verdicts == {"k1": Usefulness(useful, probability=probability)}


@pytest.mark.parametrize(
    ("word", "probability"), [("yes", 0.4), ("no", 0.73), ("yes", 1.5), ("no", -1), ("no", float("nan"))]
)
def test_parse_word_reply_contradicting_probability_is_rejected(word, probability):
    task = JudgeTask("support", "s", {"a1": "x"}, {"k1": "p"})
    found = parse_reply(task, make_reply(word, probabilities={"yes": probability}), word=True)
    assert found == ({}, {"a1": f"the reply is {word}, and the probability of yes is {probability:.3g}"})


def test_parse_word_reply_ignores_thought_before_word():
    task = JudgeTask("useful", "s", {"k1": "x"}, {})
    assert parse_reply(task, make_reply("<think>yes?</think> no"), word=True).verdicts == {"k1": Usefulness(False)}
    assert not parse_reply(task, make_reply("<think>yes"), word=True).verdicts
