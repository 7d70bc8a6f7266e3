"""Chats: requests to an endpoint, parsed replies, failures, hidden secrets, specs, recordings and scripted chats."""

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
from ragauge.core.secrets import redact, redact_url, register_secrets
from ragauge.models.chats import open_chat
from ragauge.models.chats.openai import OpenAIChat
from ragauge.models.chats.openai_protocol import parse_duration, parse_retry_after, wait_for_limit
from ragauge.models.chats.recorded import Recording, Replay, ScriptedChat
from ragauge.models.chats.reply_parsing import compute_word_probabilities, match_word

MESSAGES = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "Is it so?"}]
WORD = {"enum": ["yes", "no"]}
KEY = "sk-test-4711-very-secret"


@pytest.fixture(autouse=True)
def _no_openai_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def request_schemas(server, *schemas, **options):
    """Return the replies of one chat to several schemas, followed by the chat."""

    async def request_all():
        chat = open_chat(f"openai:test@{server.url}", options)
        try:
            return [*[await chat.complete(MESSAGES, schema) for schema in schemas], chat]
        finally:
            await chat.close()

    return asyncio.run(request_all())


def get_failure(server, fault, **options) -> BackendFailed:
    server.queue_faults(fault)
    with pytest.raises(BackendFailed) as caught:
        request_schemas(server, VERDICTS, **options)
    return caught.value


# Requests.


def test_openai_chat_sends_strict_schema_and_parameters(chat_server):
    reply, chat = request_schemas(chat_server, VERDICTS, seed=7, max_tokens=300, effort="low", extra={"top_p": 0.5})
    (body,) = chat_server.requests
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


def test_openai_chat_without_schema_sends_no_response_format(chat_server):
    reply, _ = request_schemas(chat_server, None)
    assert reply.how == "plain"
    assert "response_format" not in chat_server.requests[0]


@pytest.mark.parametrize(
    ("trait", "how", "n_refused"),
    [("no_json_schema", "json_object", 1), ("no_response_format", "plain", 2)],
)
def test_openai_chat_refused_format_falls_back_with_schema_in_prompt(chat_server, trait, how, n_refused):
    chat_server.traits = {trait}
    first, second, chat = request_schemas(chat_server, VERDICTS, VERDICTS)
    assert (first.how, second.how) == (how, how)
    assert chat_server.calls == 2 + n_refused
    sent_messages = chat_server.requests[-1]["messages"]
    assert sent_messages[0]["content"].startswith("You judge.\n\nReply with JSON")
    assert json.dumps(VERDICTS) in sent_messages[0]["content"]
    assert sent_messages[1:] == MESSAGES[1:]
    assert len(chat.notes) == n_refused


def test_openai_chat_ignored_schema_falls_back_and_counts_both_calls(chat_server):
    chat_server.traits = {"ignores_schema"}
    first, second, chat = request_schemas(chat_server, VERDICTS, VERDICTS)
    assert (first.how, second.how) == ("json_object", "json_object")
    assert chat_server.calls == 3
    assert first.prompt_tokens + second.prompt_tokens == chat_server.prompt_tokens
    assert "the reply is not JSON" in chat.notes[0]


@pytest.mark.parametrize("fault", ["truncated", "empty", "length", "wrong_ids"])
def test_openai_chat_single_bad_reply_keeps_format(chat_server, fault):
    chat_server.queue_faults(fault)
    first, second, _ = request_schemas(chat_server, VERDICTS, VERDICTS)
    assert (first.how, second.how) == ("json_schema", "json_schema")
    assert chat_server.calls == 2


def test_openai_chat_proven_format_is_kept_after_bad_reply(chat_server):
    async def request_three():
        chat = open_chat(f"openai:test@{chat_server.url}")
        try:
            await chat.complete(MESSAGES, VERDICTS)
            chat_server.queue_faults("nonsense")
            bad = await chat.complete(MESSAGES, VERDICTS)
            return bad, await chat.complete(MESSAGES, VERDICTS)
        finally:
            await chat.close()

    bad, good = asyncio.run(request_three())
    assert (bad.text, bad.how, good.how) == ("As far as I can see all is well.", "json_schema", "json_schema")


def test_openai_chat_explicit_structured_option_disables_fallback(chat_server):
    chat_server.traits = {"no_json_schema"}
    with pytest.raises(BackendFailed, match="answered 400"):
        request_schemas(chat_server, VERDICTS, structured="json_schema")
    reply, _ = request_schemas(chat_server, VERDICTS, structured="plain")
    assert reply.how == "plain"


@pytest.mark.parametrize(
    ("trait", "parameter", "note"),
    [("no_temperature", "temperature", "does not accept temperature"), ("no_seed", "seed", "does not accept seed")],
)
def test_openai_chat_unsupported_parameter_is_dropped_with_note(chat_server, trait, parameter, note):
    chat_server.traits = {trait}
    _, _, chat = request_schemas(chat_server, VERDICTS, VERDICTS, seed=1)
    assert parameter not in chat_server.requests[-1]
    assert chat_server.calls == 3
    assert note in chat.notes[0]


def test_openai_chat_invalid_parameter_value_raises(chat_server):
    async def send_request():
        chat = open_chat(f"openai:test@{chat_server.url}", {"temperature": 9})
        try:
            await chat.complete(MESSAGES)
        finally:
            await chat.close()

    chat_server.queue_faults("wrong_value")
    with pytest.raises(BackendFailed, match="temperature must be at most 2"):
        asyncio.run(send_request())
    assert chat_server.calls == 1


def test_openai_chat_falls_back_to_max_completion_tokens(chat_server):
    chat_server.traits = {"no_max_tokens"}
    request_schemas(chat_server, VERDICTS, max_tokens=300)
    assert chat_server.requests[-1]["max_completion_tokens"] == 300
    assert "max_tokens" not in chat_server.requests[-1]


# Replies of one word.


def word_chances(messages, schema):
    return {" Yes": 0.6, "no": 0.2, "Ye": 0.1, "Maybe": 0.1}


def test_openai_chat_enum_reply_has_word_probabilities(chat_server):
    chat_server.answer = word_chances
    reply, _ = request_schemas(chat_server, WORD)
    assert (reply.text, reply.how) == ("yes", "tokens")
    assert reply.probabilities == pytest.approx({"yes": 0.7 / 0.9, "no": 0.2 / 0.9})
    body = chat_server.requests[0]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert body["max_tokens"] < 20
    assert "response_format" not in body


@pytest.mark.parametrize(
    ("trait", "how", "calls"),
    [("no_logprobs", "plain", 2), ("refuses_logprobs", "plain", 3), ("five_logprobs", "tokens", 3)],
)
def test_openai_chat_limited_logprobs_returns_word(chat_server, trait, how, calls):
    chat_server.answer = word_chances
    chat_server.traits = {trait}
    first, second, _ = request_schemas(chat_server, WORD, WORD)
    assert (first.text, first.how, second.how) == ("yes", how, how)
    assert bool(first.probabilities) is (how == "tokens")
    assert chat_server.calls == calls


def test_openai_chat_thinking_model_is_retried_with_more_tokens(chat_server):
    chat_server.answer = word_chances
    chat_server.traits = {"thinks"}
    first, second, _ = request_schemas(chat_server, WORD, WORD)
    assert (first.text, second.text) == ("yes", "yes")
    assert chat_server.calls == 3


def test_openai_chat_grammar_option_sends_grammar_of_enum(chat_server):
    request_schemas(chat_server, WORD, VERDICTS, grammar=True)
    assert chat_server.requests[0]["grammar"] == 'root ::= "yes" | "Yes" | "no" | "No"'
    assert "grammar" not in chat_server.requests[1]


def parse_body(body, schema=None):
    """Parse the body of a response."""
    chat = OpenAIChat("m", url="http://localhost/v1")
    return chat._parse_reply(body, {}, "tokens" if schema else "plain", ["yes", "no"] if schema else [])


@pytest.mark.parametrize(
    ("text", "expected", "finish"),
    [("No, for it", "no", "stop"), ("No", "no", "length"), ("Nobody", "Nobody", "length")],
)
def test_parse_reply_truncated_enum_word_needs_word_end(text, expected, finish):
    tokens = [token("No", 0.9, yes=0.1), token(text[2:])]
    choice = {"message": {"content": text}, "finish_reason": "length", "logprobs": {"content": tokens}}
    reply = parse_body({"choices": [choice]}, WORD)
    assert (reply.text, reply.finish) == (expected, finish)


def test_openai_chat_text_outside_enum_is_unchanged(chat_server):
    chat_server.answer = lambda messages, schema: "It depends"
    assert request_schemas(chat_server, WORD)[0].text == "It depends"


def test_word_probabilities_ambiguous_token_returns_empty():
    top = [{"token": "un", "logprob": -0.1}, {"token": "yes", "logprob": -3.0}]
    words = ["unclear", "unsupported", "yes"]
    assert compute_word_probabilities([{"token": "un", "logprob": -0.1, "top_logprobs": top}], words, "unclear") == {}


def test_word_probabilities_ignore_leading_quote():
    tokens = [{"token": '"', "logprob": -0.01}, {"token": "no", "logprob": 0.0, "top_logprobs": []}]
    assert compute_word_probabilities(tokens, ["yes", "no"], '"no') == {"yes": 0.0, "no": 1.0}


@pytest.mark.parametrize("logprobs", [None, [], [{}], [{"token": "xyz", "logprob": -1.0}], ["odd"]])
def test_word_probabilities_unusable_logprobs_return_empty(logprobs):
    assert compute_word_probabilities(logprobs, ["yes", "no"], "yes") == {}


def token(text, chance=0.999, **others):
    top = [{"token": word, "logprob": math.log(p)} for word, p in others.items()]
    return {"token": text, "logprob": math.log(chance), "top_logprobs": top}


@pytest.mark.parametrize(
    ("tokens", "text", "probability"),
    [
        ([token("Okay", Yes=5e-5, No=1e-5), token("no", 0.9, yes=0.1)], "no", 0.1),
        ([token("<think>", Yes=1e-5), token("no"), token("</think>"), token("yes", 0.8, no=0.2)], "yes", 0.8),
        ([token("No", Yes=1e-3), token(" way"), token("."), token("ĠYes", 0.8, no=0.2), token("<|end|>")], "Yes", 0.8),
        ([token("no", 0.6, yes=0.4), token(","), token(" no")], "No, no", 0.4),
        ([token("no", 0.6, yes=0.4)], "no, it is", 0.4),
    ],
)  # fmt: skip
def test_word_probabilities_are_taken_where_reply_starts(tokens, text, probability):
    assert compute_word_probabilities(tokens, ["yes", "no"], text)["yes"] == pytest.approx(probability, abs=1e-3)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([token("Okay", Yes=1e-5, No=1e-6)], "no"),
        ([token("no", 0.3, yes=0.1)], "no"),  # most of the probability is on neither word
        ([token("now"), token("here")], "nowhere"),
        ([token("yes")], "no"),
        ([{"token": "no", "logprob": "likely"}], "no"),
        ([{"token": "no", "logprob": float("nan"), "top_logprobs": ["no"]}], "no"),
    ],
)
def test_word_probabilities_inconsistent_with_text_return_empty(tokens, text):
    assert compute_word_probabilities(tokens, ["yes", "no"], text) == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [("Yes.", "yes"), ("`no`", "no"), ("**YES**", "yes"), ("yes no", "yes no"), ("yesterday", "yesterday"), ("", "")],
)
def test_match_word_ignores_surrounding_punctuation(text, word):
    assert match_word(text, ["yes", "no"]) == word


# Failures.


@pytest.mark.parametrize("fault", ["unauthorised", "key_echo", "forbidden", "unpaid", "quota", "no_model"])
def test_openai_chat_unrecoverable_errors_are_final(chat_server, fault):
    error = get_failure(chat_server, fault)
    assert (error.fails_all_calls, error.is_temporary) == (True, False)
    assert chat_server.calls == 1


@pytest.mark.parametrize("fault", ["rate_limit", "rate_limit_bare", "overloaded", "error_inside"])
def test_openai_chat_overload_errors_are_busy(chat_server, fault):
    error = get_failure(chat_server, fault)
    assert (error.is_temporary, error.is_overload, error.fails_all_calls) == (True, True, False)


@pytest.mark.parametrize("fault", ["error", "gateway", "cut", "drop", "broken_body"])
def test_openai_chat_transient_errors_are_passing(chat_server, fault):
    error = get_failure(chat_server, fault)
    assert (error.is_temporary, error.is_overload, error.fails_all_calls) == (True, False, False)


@pytest.mark.parametrize("fault", ["too_long", "html", "no_choices"])
def test_openai_chat_request_errors_are_neither_passing_nor_final(chat_server, fault):
    error = get_failure(chat_server, fault)
    assert (error.is_temporary, error.fails_all_calls) == (False, False)


def test_openai_chat_error_message_contains_server_message(chat_server):
    url = chat_server.url
    assert get_failure(chat_server, "error").message == (
        f"{url} answered 500: The server had an error while processing your request"
    )
    assert "RemoteProtocolError" in get_failure(chat_server, "cut").message


@pytest.mark.parametrize("schema", [VERDICTS, WORD, None])
@pytest.mark.parametrize(("fault", "finish"), [("content_filter",) * 2, ("refusal",) * 2, ("tool",) * 2])
def test_openai_chat_refusal_keeps_finish_reason_and_token_counts(chat_server, fault, finish, schema):
    chat_server.queue_faults(fault)
    reply, chat = request_schemas(chat_server, schema)
    assert reply.finish == finish
    assert (reply.prompt_tokens, reply.completion_tokens) == (
        chat_server.prompt_tokens,
        chat_server.completion_tokens,
    )
    assert (chat_server.calls, chat.notes) == (1, [])  # no other format is tried
    if fault == "refusal":
        assert reply.text == "I cannot help with that."
    if fault == "tool":
        assert json.loads(reply.text)[0]["function"]["name"] == "search"


@pytest.mark.parametrize(
    ("given", "finish"),
    [(None, "stop"), ("stop", "stop"), ("eos_token", "stop"), ("MAX_TOKENS", "length"), ("abort", "abort")],
)
def test_openai_chat_finish_reason_is_normalised(given, finish):
    assert parse_body({"choices": [{"message": {"content": "yes"}, "finish_reason": given}]}).finish == finish


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
def test_openai_chat_malformed_usage_keeps_reply(usage, counted):
    reply = parse_body({"choices": [{"message": {"content": "yes"}}], "usage": usage})
    assert reply.text == "yes"
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == counted


@pytest.mark.parametrize("choice", [None, "odd", {"message": "odd"}, {"message": {"content": ["odd"]}}])
def test_openai_chat_malformed_choice_returns_empty_text(choice):
    assert parse_body({"choices": [choice], "usage": {"prompt_tokens": 7}})[:2] == ("", 7)


def test_openai_chat_failure_after_format_probe_has_token_counts(chat_server):
    chat_server.traits = {"ignores_schema"}
    chat_server.queue_faults("exhausted", "error")  # a reply that ignores the schema, then an error
    with pytest.raises(BackendFailed) as caught:
        request_schemas(chat_server, VERDICTS)
    assert chat_server.prompt_tokens > 0
    assert caught.value.prompt_tokens == chat_server.prompt_tokens
    assert caught.value.completion_tokens == chat_server.completion_tokens


def test_openai_chat_connection_error_is_passing():
    with pytest.raises(BackendFailed, match=r"http://127\.0\.0\.1:9: ConnectError") as caught:
        asyncio.run(open_chat("openai:test@http://127.0.0.1:9").complete(MESSAGES))
    assert caught.value.is_temporary


def test_openai_chat_truncated_reply_has_finish_length(chat_server):
    chat_server.queue_faults("length")
    assert request_schemas(chat_server, VERDICTS)[0].finish == "length"


def test_openai_chat_slow_chunked_reply_is_complete(chat_server):
    chat_server.queue_faults("trickle", after=0.002)
    assert json.loads(request_schemas(chat_server, VERDICTS)[0].text)["verdicts"]


def test_openai_chat_think_blocks_are_removed(chat_server):
    chat_server.answer = lambda messages, schema: '<think>\nIs it? {"a": 1}\n</think>\n\n{"verdicts": []}'
    assert request_schemas(chat_server, VERDICTS)[0].text == '{"verdicts": []}'
    chat_server.answer = lambda messages, schema: 'Is it? {"a": 1}\n</think>\n\n{"verdicts": []}'
    assert request_schemas(chat_server, VERDICTS)[0].text == '{"verdicts": []}'


# Retry delays.


@pytest.mark.parametrize("fault", ["rate_limit", "rate_limit_reset"])
def test_openai_chat_rate_limit_error_has_retry_after(chat_server, fault):
    assert get_failure(chat_server, fault).retry_after_s == pytest.approx(0.05)


def test_openai_chat_exhausted_rate_limit_sets_hold(chat_server):
    chat_server.queue_faults("exhausted", after=0.25)
    held, free, _ = request_schemas(chat_server, VERDICTS, VERDICTS)
    assert (held.hold, free.hold) == (pytest.approx(0.25), 0.0)


def test_parse_retry_after_reads_http_date():
    assert 55 < parse_retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 60
    assert parse_retry_after({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0.0
    assert parse_retry_after({"retry-after": "when it suits you"}) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h", 3600), ("12", 12), ("", None), ("1x", None)]
)
def test_parse_duration_reads_units(text, seconds):
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_parse_duration_timestamp_is_relative_to_now():
    assert parse_duration(str(time.time() + 30)) == pytest.approx(30, abs=5)
    assert parse_duration(str(int((time.time() + 30) * 1000))) == pytest.approx(30, abs=5)


def test_wait_for_limit_returns_longest_exhausted_limit():
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}
    assert wait_for_limit({**headers, "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}) == 9.0
    assert wait_for_limit({**headers, "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "9s"}) == 1.0


def test_parse_retry_after_ignores_long_numbers_and_dates():
    digits = "9" * 200_000  # a parser in quadratic time would not end
    for headers in (
        {"retry-after": digits},
        {"retry-after": f"Mon, 01 Jan {digits} 00:00:00 GMT"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": digits},
    ):
        assert parse_retry_after(headers) is None


# API keys and addresses.


def test_openai_chat_api_key_is_sent_and_redacted_elsewhere(chat_server, monkeypatch, tmp_path):
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
    echo_error = get_failure(chat_server, "key_echo")
    shown = [repr(chat), chat.name, repr(chat.identity), *chat.notes, reply.text, str(echo_error), repr(echo_error)]
    assert not [item for item in [*shown, (tmp_path / "replies.jsonl").read_text()] if KEY in item or "4711" in item]
    assert "[redacted]" in echo_error.message
    assert echo_error.__cause__ is None
    assert echo_error.__context__ is None  # its context would include the request with the key in a header


def test_openai_chat_key_option_names_environment_variable(chat_server, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    request_schemas(chat_server, None, key="MY_KEY")
    assert chat_server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_openai_chat_custom_url_needs_no_key(chat_server):
    request_schemas(chat_server, None)
    assert KEY not in chat_server.headers[0]["authorization"]


def test_openai_chat_default_endpoint_without_key_raises_on_request():
    chat = open_chat("openai:gpt")
    with pytest.raises(BackendFailed, match="the environment variable OPENAI_API_KEY") as caught:
        asyncio.run(chat.complete([{"role": "user", "content": "?"}]))
    assert caught.value.fails_all_calls
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
def test_open_chat_missing_provider_raises_with_suggestion(name, hint):
    with pytest.raises((BadInput, UnknownName)) as caught:
        open_chat(name)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("key", [KEY, "gsk_a1B2c3", "AIzaSyA1", "a key", "x" * 80])
@pytest.mark.parametrize("name", ["openai:gpt", "openai:m@http://localhost:1/v1"])
def test_open_chat_key_value_as_variable_name_is_not_shown(name, key):
    with pytest.raises(BadInput, match="`key` must name an environment variable") as caught:
        open_chat(name, {"key": key})
    assert key not in str(caught.value)


def test_openai_chat_identity_hashes_extra_values():
    first, second = (
        open_chat("openai:m@http://h/v1", {"extra": {"api_key": secret, "temperature": 1.0}}).identity
        for secret in ("SECRET-BODY-KEY", "ANOTHER")
    )
    assert "SECRET-BODY-KEY" not in json.dumps(first)
    assert first["extra"]["api_key"] != second["extra"]["api_key"]
    assert first["extra"]["temperature"] == second["extra"]["temperature"]
    assert "temperature" not in first  # the value in `extra` is sent instead
    with pytest.raises(BadInput, match="`odd` of the option `extra` must be a JSON value"):
        open_chat("openai:m@http://h/v1", {"extra": {"odd": object()}})


def test_openai_chat_url_defaults_to_openai_base_url(chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)

    async def send_request():
        chat = open_chat("openai:test")
        try:
            return await chat.complete(MESSAGES), chat.identity["endpoint"]
        finally:
            await chat.close()

    reply, endpoint = asyncio.run(send_request())
    assert (reply.text, endpoint) == ("yes", chat_server.url)


def test_openai_chat_url_password_is_used_and_redacted(chat_server):
    url = chat_server.url.replace("http://", "http://me:hunter22@")
    chat = OpenAIChat("test", url=url)

    async def send_request():
        try:
            await chat.complete(MESSAGES)
            chat_server.queue_faults("error")
            await chat.complete(MESSAGES)
        finally:
            await chat.close()

    with pytest.raises(BackendFailed) as caught:
        asyncio.run(send_request())
    assert chat_server.headers[0]["authorization"].startswith("Basic ")
    for text in (chat.name, str(chat.identity), str(caught.value)):
        assert "hunter22" not in text
        assert "me@" not in text
    assert chat.identity["endpoint"] == chat_server.url


def test_redact_short_key_is_hidden_as_whole_word_only():
    register_secrets("test", "", "a/long/key")
    assert redact("the test key is test.") == "the [redacted] key is [redacted]."
    assert redact("contest") == "contest"
    assert redact("in a link: a%2Flong%2Fkey or a%2flong%2fkey") == "in a link: [redacted] or [redacted]"
    assert redact_url("http://host") == "http://host"


# Specs.


def test_open_chat_spec_sets_name_and_identity(tmp_path):
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
def test_open_chat_spec_splits_model_and_endpoint(name, model, endpoint):
    identity = open_chat(name).identity
    assert (identity["model"], identity["endpoint"]) == (model, endpoint)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
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
def test_open_chat_invalid_spec_raises(name, options, error, message):
    if name.startswith("local"):
        pytest.importorskip("xllamacpp")
    with pytest.raises(error) as caught:
        open_chat(name, options)
    assert message in str(caught.value)


def test_openai_chat_works_in_successive_event_loops(chat_server):
    chat = open_chat(f"openai:test@{chat_server.url}")

    async def send_request():
        try:
            return (await chat.complete(MESSAGES)).text
        finally:
            await chat.close()

    assert [asyncio.run(send_request()), asyncio.run(send_request())] == ["yes", "yes"]


# Recordings and scripted chats.


def fenced_messages(tag: str):
    return [{"role": "user", "content": f"<{tag}>the text</{tag}>"}]


def test_replay_ignores_fence_tags(tmp_path):
    path = tmp_path / "replies.jsonl"

    async def record():
        replies = [Reply("one", 3, 4, 1, "length", "m", {"yes": 0.5}, "tokens", 0.0), "two", "three"]
        recording = Recording(ScriptedChat(replies, name="model"), path)
        await recording.complete(fenced_messages("data-0123456789abcdef"), WORD)
        await recording.complete(fenced_messages("data-ffffffffffffffff"), None)
        await recording.complete(fenced_messages("data-0123456789abcdef"), None)
        await recording.close()

    asyncio.run(record())
    replay = open_chat(f"replay:{path}")
    assert replay.complete(fenced_messages("data-aaaaaaaaaaaaaaaa"), WORD) == Reply(
        "one", 3, 4, 1, "length", "m", {"yes": 0.5}, "tokens", 0.0
    )
    replayed = [replay.complete(fenced_messages("data-aaaaaaaaaaaaaaaa")).text for _ in range(3)]
    assert replayed == ["two", "three", "three"]
    assert replay.identity["of"] == {"chat": "scripted", "name": "model"}


def test_recording_keeps_line_breaks_without_close(tmp_path):
    path = tmp_path / "replies.jsonl"
    text = "one\u2028two\x85three\x0bfour\x1cfive\r\nsix"
    messages = [{"role": "user", "content": text}]
    asyncio.run(Recording(ScriptedChat([text]), path).complete(messages))  # without close()
    assert Replay(str(path)).complete(messages).text == text


def test_replay_missing_reply_raises_with_prompt(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text("")
    with pytest.raises(BackendFailed, match=r"replies\.jsonl has no recorded reply to: <data-0> the text") as caught:
        Replay(str(path)).complete([{"role": "user", "content": "<data-0>\nthe text"}])
    assert not caught.value.is_temporary


@pytest.mark.parametrize("line", ["no json", "{}", '{"messages": [], "schema": null, "reply": {"nothing": 1}}'])
def test_replay_invalid_line_raises_with_line_number(tmp_path, line):
    path = tmp_path / "replies.jsonl"
    path.write_text(f'{{"chat": "m", "identity": {{}}}}\n\n{line}\n')
    with pytest.raises(BadInput, match=r"replies\.jsonl:3: not a recorded reply"):
        Replay(str(path))


def test_recording_appends_to_existing_file(tmp_path):
    path = tmp_path / "replies.jsonl"

    async def record(text, replies):
        recording = Recording(ScriptedChat([replies]), path)
        await recording.complete([{"role": "user", "content": text}])
        await recording.close()

    asyncio.run(record("a", "one"))
    asyncio.run(record("b", "two"))
    replay = Replay(str(path))
    assert [replay.complete([{"role": "user", "content": text}]).text for text in "ab"] == ["one", "two"]
    assert sum("identity" in json.loads(line) for line in path.read_text().splitlines()) == 1


def test_scripted_chat_returns_lines_in_order_and_keeps_requests():
    failing = BackendFailed("now it breaks", is_temporary=True)
    chat = ScriptedChat(["one", Reply("two", finish="length"), failing])
    assert chat.complete(MESSAGES, WORD).text == "one"
    assert chat.complete(MESSAGES).finish == "length"
    with pytest.raises(BackendFailed, match="now it breaks"):
        chat.complete(MESSAGES)
    with pytest.raises(BackendFailed, match="lacks reply number 4"):
        chat.complete(MESSAGES)
    assert chat.asked == [(MESSAGES, WORD), (MESSAGES, None), (MESSAGES, None), (MESSAGES, None)]


def test_scripted_chat_accepts_function():
    chat = ScriptedChat(lambda messages, schema: f"{messages[-1]['content']} {schema}")
    assert chat.complete(MESSAGES).text == "Is it so? None"
