"""Chat calls: time-outs, patience, retries, pauses and concurrency, in simulated time and with a local server."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fast_event_loop import run_without_waiting
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.protocols import Reply
from ragauge.models.chats import open_chat
from ragauge.models.chats.calls import AdaptedChat, ChatCaller, check_identity
from ragauge.models.chats.recorded import ScriptedChat
from waiting import PATIENCE_S

MESSAGES = [{"role": "user", "content": "Is it so?"}]
PASSING = BackendFailed("it broke", is_temporary=True)


class DelayedChat:
    """Chat with delays; each line is a delay in seconds and the reply or exception after it."""

    name, identity = "slow", {"chat": "slow"}

    def __init__(self, *lines) -> None:
        self.lines = list(lines)
        self.began: list[float] = []
        self.cancelled = 0

    async def complete(self, messages, schema=None):
        self.began.append(asyncio.get_running_loop().time())
        seconds, line = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else Reply(line)


def call_once(chat, **options):
    """Return the result or the failure of one call, and its simulated duration in seconds."""

    async def call_chat():
        try:
            return await ChatCaller(chat, **{"random_source": lambda: 1.0, **options}).call(MESSAGES)
        except BackendFailed as error:
            return error

    return run_without_waiting(call_chat())


def test_chat_caller_success_returns_seconds_and_one_attempt():
    called, _ = call_once(DelayedChat((2.0, "yes")))
    assert (called.reply.text, called.attempts) == ("yes", 1)
    assert called.seconds == pytest.approx(2.0)


def test_chat_caller_retries_passing_failure_with_doubling_pauses():
    chat = DelayedChat((1.0, PASSING), (1.0, PASSING), (1.0, PASSING), (1.0, "yes"))
    called, _ = call_once(chat, pause=0.5)
    assert called.attempts == 4
    assert called.seconds == pytest.approx(4.0)  # without the pauses
    assert chat.began == pytest.approx([0, 1.5, 3.5, 6.5])


def test_chat_caller_pause_is_scaled_by_jitter():
    chat = DelayedChat((0.0, PASSING), (0.0, PASSING), (0.0, "yes"))
    call_once(chat, pause=8.0, random_source=iter([0.25, 0.5]).__next__)
    assert chat.began == pytest.approx([0, 2.0, 2.0 + 8.0])


def test_chat_caller_exhausted_retries_raises_with_attempt_count():
    error, _ = call_once(DelayedChat((0.0, PASSING)), retries=2)
    assert error.message == "it broke (3 attempts)"
    assert (error.attempts, error.is_temporary, error.fails_all_calls) == (3, True, False)


def test_chat_caller_permanent_failure_is_not_retried():
    chat = DelayedChat((0.0, BackendFailed("no such thing")), (0.0, "yes"))
    error, _ = call_once(chat)
    assert (error.message, error.attempts, len(chat.began)) == ("no such thing", 1, 1)


def test_chat_caller_final_failure_keeps_flag_and_hint():
    error, _ = call_once(DelayedChat((0.0, BackendFailed("wrong key", hint="set it", fails_all_calls=True))))
    assert (error.fails_all_calls, error.hint) == (True, "set it")


@pytest.mark.parametrize(
    "final_failure",
    [
        BackendFailed("wrong key", fails_all_calls=True),
        BackendFailed("come back tomorrow", is_temporary=True, is_overload=True, retry_after_s=86_400.0),
    ],
)
def test_chat_caller_final_failure_prevents_further_calls(final_failure):
    chat = DelayedChat((1.0, final_failure), (5.0, "late"))

    async def call_many():
        caller = ChatCaller(chat, concurrency=2)
        outcomes = await asyncio.gather(*(caller.call(MESSAGES) for _ in range(9)), return_exceptions=True)
        with pytest.raises(BackendFailed, match=final_failure.message):
            await caller.call(MESSAGES)
        return caller.slots.n_active, outcomes

    (busy, outcomes), _ = run_without_waiting(call_many())
    assert chat.began == [0, 0]
    assert busy == 0
    assert [outcome.fails_all_calls for outcome in outcomes if isinstance(outcome, BackendFailed)] == [True] * 8
    assert [outcome.attempts for outcome in outcomes] == [1, 1] + [0] * 7


def failure_with_tokens(message, prompt, completion, **options):
    failure = BackendFailed(message, **options)
    failure.prompt_tokens, failure.completion_tokens = prompt, completion
    return failure


def test_chat_caller_counts_tokens_of_failed_attempts():
    lines = [
        (0.0, failure_with_tokens("it broke", 10, 2, is_temporary=True)),
        (0.0, failure_with_tokens("it broke", 5, 1, is_temporary=True)),
    ]
    called, _ = call_once(DelayedChat(*lines, (0.0, Reply("yes", 100, 20))), pause=0)
    assert (called.reply.prompt_tokens, called.reply.completion_tokens) == (100, 20)
    assert (called.prompt_tokens, called.completion_tokens) == (15, 3)
    error, _ = call_once(DelayedChat(*lines, (0.0, failure_with_tokens("refused", 1, 1))), pause=0)
    assert (error.prompt_tokens, error.completion_tokens, error.attempts) == (16, 4, 3)


@pytest.mark.parametrize("identity", [{"model": object()}, {"top_p": float("nan")}, 7, {"a": 1, 2: "b"}])
def test_check_identity_without_json_representation_raises(identity):
    chat = ScriptedChat(["yes"])
    chat.identity = identity
    with pytest.raises(BadInput, match="identity that JSON can represent"):
        check_identity(chat)
    with pytest.raises(BadInput, match="no attribute 'identity'"):
        check_identity(object())
    check_identity(ScriptedChat(["yes"]))


def test_chat_caller_timeout_cancels_and_retries_attempt():
    chat = DelayedChat((100.0, "late"), (1.0, "yes"))
    called, _ = call_once(chat, timeout=5.0, pause=0)
    assert (called.reply.text, called.attempts, chat.cancelled) == ("yes", 2, 1)
    assert called.seconds == pytest.approx(6.0)


def test_chat_caller_repeated_timeouts_raise():
    error, seconds = call_once(DelayedChat((100.0, "late")), timeout=5.0, retries=1, pause=0)
    assert error.message == "no reply within 5 s (2 attempts)"
    assert seconds == pytest.approx(10.0)


def test_chat_caller_patience_ends_running_attempt():
    error, seconds = call_once(DelayedChat((8.0, PASSING)), timeout=None, patience=20.0, retries=99, pause=0)
    assert seconds == pytest.approx(20.0)
    assert error.is_temporary
    assert error.attempts == 3


def test_chat_caller_patience_ends_pause():
    error, seconds = call_once(DelayedChat((0.0, PASSING)), patience=5.0, pause=4.0)
    assert seconds == pytest.approx(5.0)
    assert error.message == "it broke (2 attempts, within 5 s)"


def test_chat_caller_busy_failures_do_not_use_up_retries():
    chat = DelayedChat(
        *[(0.0, BackendFailed("later", is_temporary=True, is_overload=True, retry_after_s=7.0))] * 9, (0.0, "yes")
    )
    called, _ = call_once(chat, retries=0, pause=0)
    assert called.attempts == 10
    assert chat.began == pytest.approx([7.0 * n for n in range(10)])


def test_chat_caller_retry_waits_for_retry_after():
    chat = DelayedChat((0.0, BackendFailed("restarting", is_temporary=True, retry_after_s=7.0)), (0.0, "yes"))
    call_once(chat, pause=0)
    assert chat.began == pytest.approx([0, 7.0])


def test_chat_caller_retry_after_beyond_patience_is_final():
    chat = DelayedChat(
        (0.0, BackendFailed("come back tomorrow", is_temporary=True, is_overload=True, retry_after_s=86_400.0))
    )
    error, seconds = call_once(chat, patience=600)
    assert error.fails_all_calls
    assert error.message == "come back tomorrow (the server asks to wait 86400 s)"
    assert seconds == 0


def test_chat_caller_retry_after_delays_all_calls():
    chat = DelayedChat(
        (0.0, BackendFailed("later", is_temporary=True, is_overload=True, retry_after_s=30.0)), (1.0, "yes")
    )

    async def call_twice():
        caller = ChatCaller(chat, concurrency=1, pause=0)
        return await asyncio.gather(caller.call(MESSAGES), caller.call(MESSAGES))

    called, seconds = run_without_waiting(call_twice())
    assert [outcome.attempts for outcome in called] == [2, 1]
    assert seconds == pytest.approx(32.0)


def test_chat_caller_reply_with_hold_delays_next_call():
    chat = DelayedChat((0.0, Reply("yes", hold=12.0)), (0.0, "yes"))

    async def call_twice():
        caller = ChatCaller(chat)
        await caller.call(MESSAGES)
        await caller.call(MESSAGES)

    run_without_waiting(call_twice())
    assert chat.began == pytest.approx([0, 12.0])


def test_chat_caller_runs_calls_concurrently():
    chat = DelayedChat((1.0, "yes"))

    async def call_many():
        caller = ChatCaller(chat, concurrency=8)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(80)))

    called, seconds = run_without_waiting(call_many())
    assert len(called) == 80
    assert seconds == pytest.approx(10.0)


def test_chat_caller_seconds_exclude_queue_time():
    async def call_many():
        caller = ChatCaller(DelayedChat((1.0, "yes")), concurrency=1, timeout=1.5, patience=2.0)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(20)))

    called, _ = run_without_waiting(call_many())
    assert [outcome.seconds for outcome in called] == pytest.approx([1.0] * 20)


def test_chat_caller_cancelled_calls_release_slots():
    chat = DelayedChat((1000.0, "never"))

    async def cancel_calls():
        caller = ChatCaller(chat, concurrency=2, timeout=None, patience=10_000)
        tasks = [asyncio.create_task(caller.call(MESSAGES)) for _ in range(5)]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        return caller.slots.n_active, outcomes

    (busy, outcomes), seconds = run_without_waiting(cancel_calls())
    assert busy == 0
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert chat.cancelled == 2
    assert seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("raised", "attempts", "message"),
    [
        (ConnectionResetError("gone"), 2, "ConnectionResetError: gone"),
        (TimeoutError("own"), 2, "TimeoutError: own"),
        (KeyError("choices"), 1, "KeyError: 'choices'"),
    ],
)
def test_chat_caller_exception_of_custom_chat_becomes_backend_failure(raised, attempts, message):
    error, _ = call_once(DelayedChat((0.0, raised)), retries=1, pause=0)
    assert error.message.startswith(message)
    assert error.attempts == attempts


def test_chat_caller_user_error_is_reraised_unchanged():
    async def call_chat():
        caller = ChatCaller(DelayedChat((0.0, MissingExtra("the chat", "openai"))))
        with pytest.raises(MissingExtra):
            await caller.call(MESSAGES)
        return caller.slots.n_active

    assert run_without_waiting(call_chat())[0] == 0


def test_chat_caller_invalid_reply_type_raises():
    class TextChat(ScriptedChat):
        def complete(self, messages, schema=None):
            return "just text"

    with pytest.raises(BackendFailed, match="must return a Reply, got str"):
        asyncio.run(ChatCaller(TextChat([])).call(MESSAGES))


@pytest.mark.parametrize(
    "settings", [{"concurrency": 0}, {"retries": -1}, {"timeout": 0}, {"patience": -1}, {"pause": -0.1}]
)
def test_chat_caller_invalid_settings_raise(settings):
    with pytest.raises(BadInput):
        ChatCaller(ScriptedChat([]), **settings)


def test_chat_caller_sync_chats_run_in_parallel_threads():
    barrier = threading.Barrier(4, timeout=PATIENCE_S)

    def answer(messages, schema):
        barrier.wait()  # returns only if four threads wait at once
        return "yes"

    async def call_many():
        caller = ChatCaller(ScriptedChat(answer), concurrency=4)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(8)))

    assert [outcome.reply.text for outcome in asyncio.run(call_many())] == ["yes"] * 8


@pytest.mark.slow
def test_chat_caller_hanging_sync_chat_times_out_and_is_retried():
    release = threading.Event()
    is_first_call = iter([True])

    def answer(messages, schema):
        if next(is_first_call, False):
            release.wait(PATIENCE_S)
        return "yes"

    called = asyncio.run(ChatCaller(ScriptedChat(answer), concurrency=1, timeout=2.0, pause=0).call(MESSAGES))
    release.set()
    assert (called.reply.text, called.attempts) == ("yes", 2)


def test_adapted_chat_exception_of_sync_chat_is_raised():
    with pytest.raises(BackendFailed, match="lacks reply number 1"):
        asyncio.run(AdaptedChat(ScriptedChat([])).request(MESSAGES, None))


def test_adapted_chat_awaits_coroutine_from_sync_function():
    class Wrapped:
        name, identity = "wrapped", {}

        def complete(self, messages, schema=None):
            async def reply_later():
                return Reply("yes")

            return reply_later()

    assert asyncio.run(AdaptedChat(Wrapped()).request(MESSAGES, None)).text == "yes"


@pytest.mark.slow
def test_chat_caller_passing_server_faults_all_calls_succeed(chat_server):
    chat_server.answer = lambda messages, schema: "yes"
    passing = ("rate_limit", "rate_limit_bare", "rate_limit_reset", "exhausted", "error", "overloaded", "gateway")
    chat_server.queue_faults(*passing, "cut", "drop", "broken_body", "error_inside", times=2, after=0.02)
    chat_server.queue_faults("stall", after=3600.0)

    async def call_many():
        caller = ChatCaller(open_chat(f"openai:test@{chat_server.url}"), concurrency=8, timeout=3.0, pause=0.02)
        try:
            return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(60)))
        finally:
            await caller.close()

    called = asyncio.run(call_many())
    assert [outcome.reply.text for outcome in called] == ["yes"] * 60
    assert sum(outcome.attempts for outcome in called) == chat_server.calls
    assert chat_server.counts["rate_limit"] == 2
    assert chat_server.max_busy <= 8


def test_chat_caller_unauthorised_raises_after_one_request(chat_server):
    chat_server.queue_faults("unauthorised", times=50)

    async def call_chat():
        caller = ChatCaller(open_chat(f"openai:test@{chat_server.url}"))
        try:
            await caller.call(MESSAGES)
        finally:
            await caller.close()

    with pytest.raises(BackendFailed) as caught:
        asyncio.run(call_chat())
    assert caught.value.fails_all_calls
    assert chat_server.calls == 1
