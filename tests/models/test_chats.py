"""Chats: what they ask of an endpoint, what they make of its replies, and what they never show."""

from __future__ import annotations

import asyncio
import json
import math
import time
from email.utils import formatdate

import pytest
from tests.models.test_reply_schemas import VERDICTS

from ragauge.core.errors import BackendFailed, BadInput, UnknownName
from ragauge.core.protocols import Reply
from ragauge.core.secrets import redact_keys, redact_url
from ragauge.models.chats import open_chat
from ragauge.models.chats.openai import OpenAIChat
from ragauge.models.chats.openai_protocol import parse_duration, parse_retry_after, wait_for_limit
from ragauge.models.chats.recorded import Recording, Replay, ScriptedChat
from ragauge.models.chats.reply_parsing import compute_word_probabilities, match_word

MESSAGES = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "Is it so?"}]
WORD = {"enum": ["yes", "no"]}
KEY = "sk-test-4711-very-secret"


@pytest.fixture(autouse=True)
def _no_key_of_the_machine(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def talk(server, *asked, **options):
    """The replies to several schemas in turn, from one chat; the last thing is the chat."""

    async def one():
        chat = open_chat(f"openai:test@{server.url}", options)
        try:
            return [*[await chat.complete(MESSAGES, schema) for schema in asked], chat]
        finally:
            await chat.close()

    return asyncio.run(one())


def failure(server, fault, **options) -> BackendFailed:
    server.misbehave(fault)
    with pytest.raises(BackendFailed) as caught:
        talk(server, VERDICTS, **options)
    return caught.value


# What is asked.


def test_a_schema_is_asked_for_strictly_with_every_parameter(chat_server):
    reply, chat = talk(chat_server, VERDICTS, seed=7, max_tokens=300, effort="low", extra={"top_p": 0.5})
    (body,) = chat_server.asked
    assert body["response_format"]["json_schema"] == {"name": "reply", "strict": True, "schema": VERDICTS}
    names = ("model", "temperature", "seed", "max_tokens", "reasoning_effort", "top_p")
    assert [body[name] for name in names] == ["test", 0.0, 7, 300, "low", 0.5]
    assert body["messages"] == MESSAGES
    assert json.loads(reply.text)["verdicts"][0]["id"] == "a1"
    assert (reply.how, reply.finish, reply.model) == ("json_schema", "stop", "test-2026-01-01")
    assert reply.prompt_tokens == chat_server.prompt_tokens
    assert reply.completion_tokens == chat_server.completion_tokens
    assert reply.cached_tokens == reply.prompt_tokens // 2
    assert chat.notes == []


def test_without_a_schema_nothing_is_said_of_shapes(chat_server):
    reply, _ = talk(chat_server, None)
    assert reply.how == "plain"
    assert "response_format" not in chat_server.asked[0]


@pytest.mark.parametrize(
    ("trait", "how", "refused"),
    [("no_json_schema", "json_object", 1), ("no_response_format", "plain", 2)],
)
def test_a_form_that_is_refused_is_left_for_good_and_the_shape_told_in_words(chat_server, trait, how, refused):
    chat_server.traits = {trait}
    first, second, chat = talk(chat_server, VERDICTS, VERDICTS)
    assert (first.how, second.how) == (how, how)
    assert chat_server.calls == 2 + refused
    told = chat_server.asked[-1]["messages"]
    assert told[0]["content"].startswith("You judge.\n\nReply with JSON")
    assert json.dumps(VERDICTS) in told[0]["content"]
    assert told[1:] == MESSAGES[1:]
    assert len(chat.notes) == refused


def test_a_form_that_is_ignored_is_left_for_good_and_both_calls_are_counted(chat_server):
    chat_server.traits = {"ignores_schema"}
    first, second, chat = talk(chat_server, VERDICTS, VERDICTS)
    assert (first.how, second.how) == ("json_object", "json_object")
    assert chat_server.calls == 3
    assert first.prompt_tokens + second.prompt_tokens == chat_server.prompt_tokens
    assert "the reply is not JSON" in chat.notes[0]


@pytest.mark.parametrize("accident", ["truncated", "empty", "length", "wrong_ids"])
def test_an_accident_is_no_reason_to_leave_a_form(chat_server, accident):
    chat_server.misbehave(accident)
    first, second, _ = talk(chat_server, VERDICTS, VERDICTS)
    assert (first.how, second.how) == ("json_schema", "json_schema")
    assert chat_server.calls == 2


def test_a_form_that_was_obeyed_once_is_not_left_for_one_bad_reply(chat_server):
    async def three():
        chat = open_chat(f"openai:test@{chat_server.url}")
        try:
            await chat.complete(MESSAGES, VERDICTS)
            chat_server.misbehave("nonsense")
            bad = await chat.complete(MESSAGES, VERDICTS)
            return bad, await chat.complete(MESSAGES, VERDICTS)
        finally:
            await chat.close()

    bad, good = asyncio.run(three())
    assert (bad.text, bad.how, good.how) == ("As far as I can see all is well.", "json_schema", "json_schema")


def test_a_form_that_was_chosen_is_never_left(chat_server):
    chat_server.traits = {"no_json_schema"}
    with pytest.raises(BackendFailed, match="answered 400"):
        talk(chat_server, VERDICTS, structured="json_schema")
    reply, _ = talk(chat_server, VERDICTS, structured="plain")
    assert reply.how == "plain"


@pytest.mark.parametrize(
    ("trait", "gone", "note"),
    [("no_temperature", "temperature", "does not accept temperature"), ("no_seed", "seed", "does not accept seed")],
)
def test_parameters_that_a_model_refuses_are_left_out_and_that_is_noted(chat_server, trait, gone, note):
    chat_server.traits = {trait}
    _, _, chat = talk(chat_server, VERDICTS, VERDICTS, seed=1)
    assert gone not in chat_server.asked[-1]
    assert chat_server.calls == 3
    assert note in chat.notes[0]


def test_a_value_that_the_user_got_wrong_is_not_left_out(chat_server):
    async def one():
        chat = open_chat(f"openai:test@{chat_server.url}", {"temperature": 9})
        try:
            await chat.complete(MESSAGES)
        finally:
            await chat.close()

    chat_server.misbehave("wrong_value")
    with pytest.raises(BackendFailed, match="temperature must be at most 2"):
        asyncio.run(one())
    assert chat_server.calls == 1


def test_max_tokens_is_called_otherwise_where_it_has_to_be(chat_server):
    chat_server.traits = {"no_max_tokens"}
    talk(chat_server, VERDICTS, max_tokens=300)
    assert chat_server.asked[-1]["max_completion_tokens"] == 300
    assert "max_tokens" not in chat_server.asked[-1]


# One word.


def chances(messages, schema):
    return {" Yes": 0.6, "no": 0.2, "Ye": 0.1, "Maybe": 0.1}


def test_one_word_comes_with_the_probabilities_of_all_words(chat_server):
    chat_server.answer = chances
    reply, _ = talk(chat_server, WORD)
    assert (reply.text, reply.how) == ("yes", "tokens")
    assert reply.probabilities == pytest.approx({"yes": 0.7 / 0.9, "no": 0.2 / 0.9})
    body = chat_server.asked[0]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert body["max_tokens"] < 20
    assert "response_format" not in body


@pytest.mark.parametrize(
    ("trait", "how", "calls"),
    [("no_logprobs", "plain", 2), ("refuses_logprobs", "plain", 3), ("five_logprobs", "tokens", 3)],
)
def test_where_probabilities_are_not_given_the_word_is_plain(chat_server, trait, how, calls):
    chat_server.answer = chances
    chat_server.traits = {trait}
    first, second, _ = talk(chat_server, WORD, WORD)
    assert (first.text, first.how, second.how) == ("yes", how, how)
    assert bool(first.probabilities) is (how == "tokens")
    assert chat_server.calls == calls


def test_a_model_that_thinks_first_gets_more_room(chat_server):
    chat_server.answer = chances
    chat_server.traits = {"thinks"}
    first, second, _ = talk(chat_server, WORD, WORD)
    assert (first.text, second.text) == ("yes", "yes")
    assert chat_server.calls == 3


def test_a_grammar_holds_a_model_to_the_words(chat_server):
    talk(chat_server, WORD, VERDICTS, grammar=True)
    assert chat_server.asked[0]["grammar"] == 'root ::= "yes" | "Yes" | "no" | "No"'
    assert "grammar" not in chat_server.asked[1]


def one_reply(found, schema=None):
    """What is made of a body that a server sends."""
    chat = OpenAIChat("m", url="http://localhost/v1")
    return chat._parse_reply(found, {}, "tokens" if schema else "plain", ["yes", "no"] if schema else [])


@pytest.mark.parametrize(
    ("text", "said", "finish"), [("No, for it", "no", "stop"), ("No", "no", "length"), ("Nobody", "Nobody", "length")]
)
def test_a_word_is_whole_where_something_comes_after_it(text, said, finish):
    tokens = [token("No", 0.9, yes=0.1), token(text[2:])]
    choice = {"message": {"content": text}, "finish_reason": "length", "logprobs": {"content": tokens}}
    reply = one_reply({"choices": [choice]}, WORD)
    assert (reply.text, reply.finish) == (said, finish)


def test_a_text_that_is_none_of_the_words_stays_as_it_is(chat_server):
    chat_server.answer = lambda messages, schema: "It depends"
    assert talk(chat_server, WORD)[0].text == "It depends"


def test_tokens_that_begin_several_words_are_not_shared_out():
    top = [{"token": "un", "logprob": -0.1}, {"token": "yes", "logprob": -3.0}]
    words = ["unclear", "unsupported", "yes"]
    assert compute_word_probabilities([{"token": "un", "logprob": -0.1, "top_logprobs": top}], words, "unclear") == {}


def test_blanks_and_quotes_before_the_word_are_no_token_of_it():
    tokens = [{"token": '"', "logprob": -0.01}, {"token": "no", "logprob": 0.0, "top_logprobs": []}]
    assert compute_word_probabilities(tokens, ["yes", "no"], '"no') == {"yes": 0.0, "no": 1.0}


@pytest.mark.parametrize("nothing", [None, [], [{}], [{"token": "xyz", "logprob": -1.0}], ["odd"]])
def test_probabilities_of_nothing_are_none(nothing):
    assert compute_word_probabilities(nothing, ["yes", "no"], "yes") == {}


def token(text, chance=0.999, **others):
    top = [{"token": word, "logprob": math.log(p)} for word, p in others.items()]
    return {"token": text, "logprob": math.log(chance), "top_logprobs": top}


@pytest.mark.parametrize(
    ("tokens", "text", "sure"),
    [
        ([token("Okay", Yes=5e-5, No=1e-5), token("no", 0.9, yes=0.1)], "no", 0.1),
        ([token("<think>", Yes=1e-5), token("no"), token("</think>"), token("yes", 0.8, no=0.2)], "yes", 0.8),
        ([token("No", Yes=1e-3), token(" way"), token("."), token("ĠYes", 0.8, no=0.2), token("<|end|>")], "Yes", 0.8),
        ([token("no", 0.6, yes=0.4), token(","), token(" no")], "No, no", 0.4),
        ([token("no", 0.6, yes=0.4)], "no, it is", 0.4),
    ],
)  # fmt: skip
def test_the_probabilities_are_those_of_the_place_where_the_reply_begins(tokens, text, sure):
    assert compute_word_probabilities(tokens, ["yes", "no"], text)["yes"] == pytest.approx(sure, abs=1e-3)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([token("Okay", Yes=1e-5, No=1e-6)], "no"),
        ([token("no", 0.3, yes=0.1)], "no"),  # most of what could have been said is neither
        ([token("now"), token("here")], "nowhere"),
        ([token("yes")], "no"),
        ([{"token": "no", "logprob": "likely"}], "no"),
        ([{"token": "no", "logprob": float("nan"), "top_logprobs": ["no"]}], "no"),
    ],
)
def test_probabilities_that_are_not_those_of_the_reply_are_none(tokens, text):
    assert compute_word_probabilities(tokens, ["yes", "no"], text) == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [("Yes.", "yes"), ("`no`", "no"), ("**YES**", "yes"), ("yes no", "yes no"), ("yesterday", "yesterday"), ("", "")],
)
def test_a_word_is_known_whatever_stands_around_it(text, word):
    assert match_word(text, ["yes", "no"]) == word


# What goes wrong.


@pytest.mark.parametrize("fault", ["unauthorised", "key_echo", "forbidden", "unpaid", "quota", "no_model"])
def test_what_no_other_call_could_help_is_final(chat_server, fault):
    error = failure(chat_server, fault)
    assert (error.final, error.passing) == (True, False)
    assert chat_server.calls == 1


@pytest.mark.parametrize("fault", ["rate_limit", "rate_limit_bare", "overloaded", "error_inside"])
def test_a_server_that_has_too_much_to_do_is_busy(chat_server, fault):
    error = failure(chat_server, fault)
    assert (error.passing, error.busy, error.final) == (True, True, False)


@pytest.mark.parametrize("fault", ["error", "gateway", "cut", "drop", "broken_body"])
def test_what_may_pass_is_passing(chat_server, fault):
    error = failure(chat_server, fault)
    assert (error.passing, error.busy, error.final) == (True, False, False)


@pytest.mark.parametrize("fault", ["too_long", "html", "no_choices"])
def test_what_is_about_this_call_alone_neither_passes_nor_ends_all(chat_server, fault):
    error = failure(chat_server, fault)
    assert (error.passing, error.final) == (False, False)


def test_a_failure_is_told_in_the_words_of_the_server(chat_server):
    where = chat_server.url
    assert failure(chat_server, "error").message == (
        f"{where} answered 500: The server had an error while processing your request"
    )
    assert "RemoteProtocolError" in failure(chat_server, "cut").message


@pytest.mark.parametrize("schema", [VERDICTS, WORD, None])
@pytest.mark.parametrize(("fault", "finish"), [("content_filter",) * 2, ("refusal",) * 2, ("tool",) * 2])
def test_what_is_no_verdict_was_paid_for_and_says_how_it_ended(chat_server, fault, finish, schema):
    chat_server.misbehave(fault)
    reply, chat = talk(chat_server, schema)
    assert reply.finish == finish
    assert (reply.prompt_tokens, reply.completion_tokens) == (
        chat_server.prompt_tokens,
        chat_server.completion_tokens,
    )
    assert (chat_server.calls, chat.notes) == (1, [])  # no reason to ask otherwise
    if fault == "refusal":
        assert reply.text == "I cannot help with that."
    if fault == "tool":
        assert json.loads(reply.text)[0]["function"]["name"] == "search"


@pytest.mark.parametrize(
    ("said", "finish"),
    [(None, "stop"), ("stop", "stop"), ("eos_token", "stop"), ("MAX_TOKENS", "length"), ("abort", "abort")],
)
def test_the_end_of_a_reply_has_many_names(said, finish):
    assert one_reply({"choices": [{"message": {"content": "yes"}, "finish_reason": said}]}).finish == finish


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": "12", "completion_tokens": 3.0}, (12, 3, 0)),
        ({"prompt_tokens": "many", "completion_tokens": 3}, (0, 3, 0)),
        ({"prompt_tokens": -4, "completion_tokens": 10**400, "prompt_tokens_details": [7]}, (0, 0, 0)),
        ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 4}, (5, 0, 4)),
        (["odd"], (0, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_whatever_is_said_of_usage_the_reply_is_not_lost(usage, counted):
    reply = one_reply({"choices": [{"message": {"content": "yes"}}], "usage": usage})
    assert reply.text == "yes"
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == counted


@pytest.mark.parametrize("choice", [None, "odd", {"message": "odd"}, {"message": {"content": ["odd"]}}])
def test_a_choice_that_says_nothing_is_an_empty_reply(choice):
    assert one_reply({"choices": [choice], "usage": {"prompt_tokens": 7}})[:2] == ("", 7)


def test_what_was_spent_on_finding_out_how_to_ask_is_told_where_it_fails_in_the_end(chat_server):
    chat_server.traits = {"ignores_schema"}
    chat_server.misbehave("exhausted", "error")  # a reply that has no shape, and then none
    with pytest.raises(BackendFailed) as caught:
        talk(chat_server, VERDICTS)
    assert chat_server.prompt_tokens > 0
    assert caught.value.prompt_tokens == chat_server.prompt_tokens
    assert caught.value.completion_tokens == chat_server.completion_tokens


def test_nobody_there_may_pass():
    with pytest.raises(BackendFailed, match=r"http://127\.0\.0\.1:9: ConnectError") as caught:
        asyncio.run(open_chat("openai:test@http://127.0.0.1:9").complete(MESSAGES))
    assert caught.value.passing


def test_a_reply_that_was_cut_off_says_so(chat_server):
    chat_server.misbehave("length")
    assert talk(chat_server, VERDICTS)[0].finish == "length"


def test_a_reply_in_a_trickle_is_whole(chat_server):
    chat_server.misbehave("trickle", after=0.002)
    assert json.loads(talk(chat_server, VERDICTS)[0].text)["verdicts"]


def test_thoughts_are_no_part_of_the_reply(chat_server):
    chat_server.answer = lambda messages, schema: '<think>\nIs it? {"a": 1}\n</think>\n\n{"verdicts": []}'
    assert talk(chat_server, VERDICTS)[0].text == '{"verdicts": []}'
    chat_server.answer = lambda messages, schema: 'Is it? {"a": 1}\n</think>\n\n{"verdicts": []}'
    assert talk(chat_server, VERDICTS)[0].text == '{"verdicts": []}'


# How long to wait.


@pytest.mark.parametrize("fault", ["rate_limit", "rate_limit_reset"])
def test_the_time_to_wait_is_the_servers(chat_server, fault):
    assert failure(chat_server, fault).after == pytest.approx(0.05)


def test_a_used_up_limit_holds_the_next_call(chat_server):
    chat_server.misbehave("exhausted", after=0.25)
    held, free, _ = talk(chat_server, VERDICTS, VERDICTS)
    assert (held.hold, free.hold) == (pytest.approx(0.25), 0.0)


def test_a_date_to_try_again_is_understood():
    assert 55 < parse_retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 60
    assert parse_retry_after({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0.0
    assert parse_retry_after({"retry-after": "when it suits you"}) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h", 3600), ("12", 12), ("", None), ("1x", None)]
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_moments_are_durations_from_now():
    assert parse_duration(str(time.time() + 30)) == pytest.approx(30, abs=5)
    assert parse_duration(str(int((time.time() + 30) * 1000))) == pytest.approx(30, abs=5)


def test_the_longest_of_the_used_up_limits_counts():
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}
    assert wait_for_limit({**headers, "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}) == 9.0
    assert wait_for_limit({**headers, "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "9s"}) == 1.0


# Keys.


def test_the_key_is_sent_and_appears_nowhere_else(chat_server, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    chat_server.answer = lambda messages, schema: f"your key is {KEY}"

    async def record():
        chat = open_chat(f"openai:test@{chat_server.url}")
        recording = Recording(chat, tmp_path / "replies.jsonl")
        try:
            return await recording.complete(MESSAGES), chat
        finally:
            await recording.close()

    reply, chat = asyncio.run(record())
    assert chat_server.headers[0]["authorization"] == f"Bearer {KEY}"
    echoed = failure(chat_server, "key_echo")
    shown = [repr(chat), chat.name, repr(chat.identity), *chat.notes, reply.text, str(echoed), repr(echoed)]
    assert not [one for one in [*shown, (tmp_path / "replies.jsonl").read_text()] if KEY in one or "4711" in one]
    assert "[redacted]" in echoed.message
    assert echoed.__cause__ is None
    assert echoed.__context__ is None  # which would have the request, and the key in its headers


def test_the_key_may_have_another_name(chat_server, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    talk(chat_server, None, key="MY_KEY")
    assert chat_server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_a_server_of_ones_own_needs_no_key(chat_server):
    talk(chat_server, None)
    assert KEY not in chat_server.headers[0]["authorization"]


def test_openai_itself_needs_one_once_it_is_asked_something():
    chat = open_chat("openai:gpt")
    with pytest.raises(BackendFailed, match="the environment variable OPENAI_API_KEY") as caught:
        asyncio.run(chat.complete([{"role": "user", "content": "?"}]))
    assert caught.value.final
    assert "openai:gpt@http://localhost:8000/v1" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt-4o-mini", "did you mean `openai:gpt-4o-mini`? Choose one of lexical, openai, local, replay"),
        ("gpt-4.1", "did you mean `openai:gpt-4.1`? Choose one of lexical, openai:MODEL@URL"),
        ("http://me:secret@host:1/v1", "did you mean `openai:MODEL@http://host:1/v1`?"),
        ("opnai:gpt", "did you mean `openai`? Choose one of lexical, openai, local, replay"),
        ("lexicl", "did you mean `lexical`?"),
    ],
)
def test_whoever_forgets_what_serves_the_model_is_told(name, hint):
    with pytest.raises((BadInput, UnknownName)) as caught:
        open_chat(name)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("given", [KEY, "gsk_a1B2c3", "AIzaSyA1", "a key", "x" * 80])
@pytest.mark.parametrize("name", ["openai:gpt", "openai:m@http://localhost:1/v1"])
def test_a_key_that_is_given_for_the_name_of_its_variable_is_not_repeated(name, given):
    with pytest.raises(BadInput, match="`key` must name an environment variable") as caught:
        open_chat(name, {"key": given})
    assert given not in str(caught.value)


def test_what_is_sent_along_is_in_the_identity_by_its_hash():
    one, other = (
        open_chat("openai:m@http://h/v1", {"extra": {"api_key": secret, "temperature": 1.0}}).identity
        for secret in ("SECRET-BODY-KEY", "ANOTHER")
    )
    assert "SECRET-BODY-KEY" not in json.dumps(one)
    assert one["extra"]["api_key"] != other["extra"]["api_key"]
    assert one["extra"]["temperature"] == other["extra"]["temperature"]
    assert "temperature" not in one  # the other is sent
    with pytest.raises(BadInput, match="`odd` of the option `extra` must be a JSON value"):
        open_chat("openai:m@http://h/v1", {"extra": {"odd": object()}})


def test_the_address_may_come_from_the_environment(chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)

    async def one():
        chat = open_chat("openai:test")
        try:
            return await chat.complete(MESSAGES), chat.identity["endpoint"]
        finally:
            await chat.close()

    reply, endpoint = asyncio.run(one())
    assert (reply.text, endpoint) == ("yes", chat_server.url)


def test_a_password_in_the_address_is_used_and_never_shown(chat_server):
    url = chat_server.url.replace("http://", "http://me:hunter22@")
    chat = OpenAIChat("test", url=url)

    async def one():
        try:
            await chat.complete(MESSAGES)
            chat_server.misbehave("error")
            await chat.complete(MESSAGES)
        finally:
            await chat.close()

    with pytest.raises(BackendFailed) as caught:
        asyncio.run(one())
    assert chat_server.headers[0]["authorization"].startswith("Basic ")
    for shown in (chat.name, str(chat.identity), str(caught.value)):
        assert "hunter22" not in shown
        assert "me@" not in shown
    assert chat.identity["endpoint"] == chat_server.url


def test_short_keys_are_hidden_where_they_stand_alone():
    assert redact_keys("the test key is test.", ["test"]) == "the [redacted] key is [redacted]."
    assert redact_keys("contest", ["test"]) == "contest"
    assert redact_keys("as is", ["", "a-long-key"]) == "as is"
    assert redact_keys("in a link: a%2Flong%2Fkey", ["a/long/key"]) == "in a link: [redacted]"
    assert redact_url("http://host") == "http://host"


# Names.


def test_chats_are_known_by_name(tmp_path):
    chat = open_chat("openai:org/model:7b@http://localhost:11434/v1", {"temperature": 0.5, "seed": 1})
    assert chat.name == "openai:org/model:7b@http://localhost:11434/v1"
    assert chat.identity == {
        "chat": "openai",
        "endpoint": "http://localhost:11434/v1",
        "model": "org/model:7b",
        "temperature": 0.5,
        "seed": 1,
        "max_tokens": None,
        "structured": "auto",
    }


@pytest.mark.parametrize(
    ("name", "model", "endpoint"),
    [
        ("openai:@cf/meta/llama@http://h/v1", "@cf/meta/llama", "http://h/v1"),
        ("openai:m@http://me:pass@h/v1", "m", "http://h/v1"),
        ("openai:m@https://h/v1/", "m", "https://h/v1"),
    ],
)
def test_models_and_addresses_are_told_apart(name, model, endpoint):
    identity = open_chat(name).identity
    assert (identity["model"], identity["endpoint"]) == (model, endpoint)


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("opnai:m@http://h/v1", {}, UnknownName, "did you mean `openai`"),
        ("openai", {}, BadInput, "lacks the model or file"),
        ("openai:@http://h/v1", {}, BadInput, "lacks the model or file"),
        ("", {}, BadInput, "unknown chat"),
        ("openai:m@localhost:8000/v1", {}, BadInput, "is not an address"),
        ("openai:m@ftp://h/v1", {}, BadInput, "is not an address"),
        ("openai:m@http://h/v1?route=a", {}, BadInput, "the address http://h/v1 must not have a query"),
        ("openai:m@http://h/v1#a", {}, BadInput, "must not have a query"),
        ("openai:m@http://h/v1", {"temprature": 1}, BadInput, "did you mean `temperature`"),
        ("openai:m@http://h/v1", {"structured": "yaml"}, BadInput, "one of auto, json_schema"),
        ("local:nothing.gguf", {}, BadInput, "no such file"),
        ("replay:nothing.jsonl", {}, BadInput, "no such file"),
    ],
)
def test_what_names_no_chat_is_explained(name, options, error, words):
    if name.startswith("local"):
        pytest.importorskip("xllamacpp")
    with pytest.raises(error) as caught:
        open_chat(name, options)
    assert words in str(caught.value)


def test_a_chat_can_be_used_in_one_loop_after_another(chat_server):
    chat = open_chat(f"openai:test@{chat_server.url}")

    async def one():
        try:
            return (await chat.complete(MESSAGES)).text
        finally:
            await chat.close()

    assert [asyncio.run(one()), asyncio.run(one())] == ["yes", "yes"]


# Recordings and scripts.


def fenced(tag: str):
    return [{"role": "user", "content": f"<{tag}>the text</{tag}>"}]


def test_what_was_recorded_is_replayed_whatever_the_fences_are_called(tmp_path):
    path = tmp_path / "replies.jsonl"

    async def record():
        said = [Reply("one", 3, 4, 1, "length", "m", {"yes": 0.5}, "tokens", 0.0), "two", "three"]
        recording = Recording(ScriptedChat(said, name="model"), path)
        await recording.complete(fenced("data-0123456789abcdef"), WORD)
        await recording.complete(fenced("data-ffffffffffffffff"), None)
        await recording.complete(fenced("data-0123456789abcdef"), None)
        await recording.close()

    asyncio.run(record())
    replay = open_chat(f"replay:{path}")
    assert replay.complete(fenced("data-aaaaaaaaaaaaaaaa"), WORD) == Reply(
        "one", 3, 4, 1, "length", "m", {"yes": 0.5}, "tokens", 0.0
    )
    asked_again = [replay.complete(fenced("data-aaaaaaaaaaaaaaaa")).text for _ in range(3)]
    assert asked_again == ["two", "three", "three"]
    assert replay.identity["of"] == {"chat": "scripted", "name": "model"}


def test_a_recording_keeps_every_kind_of_line_break_and_nothing_open(tmp_path):
    path = tmp_path / "replies.jsonl"
    odd = "one\u2028two\x85three\x0bfour\x1cfive\r\nsix"
    asked = [{"role": "user", "content": odd}]
    asyncio.run(Recording(ScriptedChat([odd]), path).complete(asked))  # and nobody closes it
    assert Replay(str(path)).complete(asked).text == odd


def test_what_was_not_recorded_is_a_failure_that_says_what_was_asked(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text("")
    with pytest.raises(BackendFailed, match=r"replies\.jsonl has no recorded reply to: <data-0> the text") as caught:
        Replay(str(path)).complete([{"role": "user", "content": "<data-0>\nthe text"}])
    assert not caught.value.passing


@pytest.mark.parametrize("line", ["no json", "{}", '{"messages": [], "schema": null, "reply": {"nothing": 1}}'])
def test_a_line_that_is_no_recorded_reply_is_named(tmp_path, line):
    path = tmp_path / "replies.jsonl"
    path.write_text(f'{{"chat": "m", "identity": {{}}}}\n\n{line}\n')
    with pytest.raises(BadInput, match=r"replies\.jsonl:3: not a recorded reply"):
        Replay(str(path))


def test_a_recording_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "replies.jsonl"

    async def record(text, said):
        recording = Recording(ScriptedChat([said]), path)
        await recording.complete([{"role": "user", "content": text}])
        await recording.close()

    asyncio.run(record("a", "one"))
    asyncio.run(record("b", "two"))
    replay = Replay(str(path))
    assert [replay.complete([{"role": "user", "content": text}]).text for text in "ab"] == ["one", "two"]
    assert sum("identity" in json.loads(line) for line in path.read_text().splitlines()) == 1


def test_a_script_says_its_lines_in_turn_and_keeps_what_it_was_asked():
    failing = BackendFailed("now it breaks", passing=True)
    chat = ScriptedChat(["one", Reply("two", finish="length"), failing])
    assert chat.complete(MESSAGES, WORD).text == "one"
    assert chat.complete(MESSAGES).finish == "length"
    with pytest.raises(BackendFailed, match="now it breaks"):
        chat.complete(MESSAGES)
    with pytest.raises(BackendFailed, match="lacks reply number 4"):
        chat.complete(MESSAGES)
    assert chat.asked == [(MESSAGES, WORD), (MESSAGES, None), (MESSAGES, None), (MESSAGES, None)]


def test_a_script_may_be_a_function_of_what_is_asked():
    chat = ScriptedChat(lambda messages, schema: f"{messages[-1]['content']} {schema}")
    assert chat.complete(MESSAGES).text == "Is it so? None"
