"""Chat calls: time-outs, patience, retries, pauses and concurrency, in simulated time and with a local server."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fast_event_loop import leaping
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.protocols import Reply
from ragauge.models.chats import open_chat
from ragauge.models.chats.calls import AdaptedChat, ChatCaller, check_identity
from ragauge.models.chats.recorded import ScriptedChat
from waiting import PATIENCE_S

MESSAGES = [{"role": "user", "content": "Is it so?"}]
PASSING = BackendFailed("it broke", passing=True)


class Slow:
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


def call(chat, **how):
    """Return the result or the failure of one call, and its simulated duration in seconds."""

    async def one():
        try:
            return await ChatCaller(chat, **{"chance": lambda: 1.0, **how}).call(MESSAGES)
        except BackendFailed as error:
            return error

    return leaping(one())


def test_chat_caller_success_returns_seconds_and_one_attempt():
    called, _ = call(Slow((2.0, "yes")))
    assert (called.reply.text, called.attempts) == ("yes", 1)
    assert called.seconds == pytest.approx(2.0)


def test_chat_caller_retries_passing_failure_with_doubling_pauses():
    chat = Slow((1.0, PASSING), (1.0, PASSING), (1.0, PASSING), (1.0, "yes"))
    called, _ = call(chat, pause=0.5)
    assert called.attempts == 4
    assert called.seconds == pytest.approx(4.0)  # without the pauses
    assert chat.began == pytest.approx([0, 1.5, 3.5, 6.5])


def test_chat_caller_pause_is_scaled_by_jitter():
    chat = Slow((0.0, PASSING), (0.0, PASSING), (0.0, "yes"))
    call(chat, pause=8.0, chance=iter([0.25, 0.5]).__next__)
    assert chat.began == pytest.approx([0, 2.0, 2.0 + 8.0])


def test_chat_caller_exhausted_retries_raises_with_attempt_count():
    error, _ = call(Slow((0.0, PASSING)), retries=2)
    assert error.message == "it broke (3 attempts)"
    assert (error.attempts, error.passing, error.final) == (3, True, False)


def test_chat_caller_permanent_failure_is_not_retried():
    chat = Slow((0.0, BackendFailed("no such thing")), (0.0, "yes"))
    error, _ = call(chat)
    assert (error.message, error.attempts, len(chat.began)) == ("no such thing", 1, 1)


def test_chat_caller_final_failure_keeps_flag_and_hint():
    error, _ = call(Slow((0.0, BackendFailed("wrong key", hint="set it", final=True))))
    assert (error.final, error.hint) == (True, "set it")


@pytest.mark.parametrize(
    "end",
    [
        BackendFailed("wrong key", final=True),
        BackendFailed("come back tomorrow", passing=True, busy=True, after=86_400.0),
    ],
)
def test_chat_caller_final_failure_prevents_further_calls(end):
    chat = Slow((1.0, end), (5.0, "late"))

    async def many():
        caller = ChatCaller(chat, concurrency=2)
        found = await asyncio.gather(*(caller.call(MESSAGES) for _ in range(9)), return_exceptions=True)
        with pytest.raises(BackendFailed, match=end.message):
            await caller.call(MESSAGES)
        return caller.pace.busy, found

    (busy, found), _ = leaping(many())
    assert chat.began == [0, 0]
    assert busy == 0
    assert [one.final for one in found if isinstance(one, BackendFailed)] == [True] * 8
    assert [one.attempts for one in found] == [1, 1] + [0] * 7


def spent(words, prompt, completion, **how):
    failure = BackendFailed(words, **how)
    failure.prompt_tokens, failure.completion_tokens = prompt, completion
    return failure


def test_chat_caller_counts_tokens_of_failed_attempts():
    lines = [(0.0, spent("it broke", 10, 2, passing=True)), (0.0, spent("it broke", 5, 1, passing=True))]
    called, _ = call(Slow(*lines, (0.0, Reply("yes", 100, 20))), pause=0)
    assert (called.reply.prompt_tokens, called.reply.completion_tokens) == (100, 20)
    assert (called.prompt_tokens, called.completion_tokens) == (15, 3)
    error, _ = call(Slow(*lines, (0.0, spent("refused", 1, 1))), pause=0)
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
    chat = Slow((100.0, "late"), (1.0, "yes"))
    called, _ = call(chat, timeout=5.0, pause=0)
    assert (called.reply.text, called.attempts, chat.cancelled) == ("yes", 2, 1)
    assert called.seconds == pytest.approx(6.0)


def test_chat_caller_repeated_timeouts_raise():
    error, seconds = call(Slow((100.0, "late")), timeout=5.0, retries=1, pause=0)
    assert error.message == "no reply within 5 s (2 attempts)"
    assert seconds == pytest.approx(10.0)


def test_chat_caller_patience_ends_running_attempt():
    error, seconds = call(Slow((8.0, PASSING)), timeout=None, patience=20.0, retries=99, pause=0)
    assert seconds == pytest.approx(20.0)
    assert error.passing
    assert error.attempts == 3


def test_chat_caller_patience_ends_pause():
    error, seconds = call(Slow((0.0, PASSING)), patience=5.0, pause=4.0)
    assert seconds == pytest.approx(5.0)
    assert error.message == "it broke (2 attempts, within 5 s)"


def test_chat_caller_busy_failures_do_not_use_up_retries():
    chat = Slow(*[(0.0, BackendFailed("later", passing=True, busy=True, after=7.0))] * 9, (0.0, "yes"))
    called, _ = call(chat, retries=0, pause=0)
    assert called.attempts == 10
    assert chat.began == pytest.approx([7.0 * n for n in range(10)])


def test_chat_caller_retry_waits_for_retry_after():
    chat = Slow((0.0, BackendFailed("restarting", passing=True, after=7.0)), (0.0, "yes"))
    call(chat, pause=0)
    assert chat.began == pytest.approx([0, 7.0])


def test_chat_caller_retry_after_beyond_patience_is_final():
    chat = Slow((0.0, BackendFailed("come back tomorrow", passing=True, busy=True, after=86_400.0)))
    error, seconds = call(chat, patience=600)
    assert error.final
    assert error.message == "come back tomorrow (the server asks to wait 86400 s)"
    assert seconds == 0


def test_chat_caller_retry_after_delays_all_calls():
    chat = Slow((0.0, BackendFailed("later", passing=True, busy=True, after=30.0)), (1.0, "yes"))

    async def two():
        caller = ChatCaller(chat, concurrency=1, pause=0)
        return await asyncio.gather(caller.call(MESSAGES), caller.call(MESSAGES))

    called, seconds = leaping(two())
    assert [one.attempts for one in called] == [2, 1]
    assert seconds == pytest.approx(32.0)


def test_chat_caller_reply_with_hold_delays_next_call():
    chat = Slow((0.0, Reply("yes", hold=12.0)), (0.0, "yes"))

    async def two():
        caller = ChatCaller(chat)
        await caller.call(MESSAGES)
        await caller.call(MESSAGES)

    leaping(two())
    assert chat.began == pytest.approx([0, 12.0])


def test_chat_caller_runs_calls_concurrently():
    chat = Slow((1.0, "yes"))

    async def many():
        caller = ChatCaller(chat, concurrency=8)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(80)))

    called, seconds = leaping(many())
    assert len(called) == 80
    assert seconds == pytest.approx(10.0)


def test_chat_caller_seconds_exclude_queue_time():
    async def many():
        caller = ChatCaller(Slow((1.0, "yes")), concurrency=1, timeout=1.5, patience=2.0)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(20)))

    called, _ = leaping(many())
    assert [one.seconds for one in called] == pytest.approx([1.0] * 20)


def test_chat_caller_cancelled_calls_release_slots():
    chat = Slow((1000.0, "never"))

    async def cancelled():
        caller = ChatCaller(chat, concurrency=2, timeout=None, patience=10_000)
        tasks = [asyncio.create_task(caller.call(MESSAGES)) for _ in range(5)]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return caller.pace.busy, found

    (busy, found), seconds = leaping(cancelled())
    assert busy == 0
    assert all(isinstance(one, asyncio.CancelledError) for one in found)
    assert chat.cancelled == 2
    assert seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("raised", "attempts", "words"),
    [
        (ConnectionResetError("gone"), 2, "ConnectionResetError: gone"),
        (TimeoutError("own"), 2, "TimeoutError: own"),
        (KeyError("choices"), 1, "KeyError: 'choices'"),
    ],
)
def test_chat_caller_exception_of_custom_chat_becomes_backend_failure(raised, attempts, words):
    error, _ = call(Slow((0.0, raised)), retries=1, pause=0)
    assert error.message.startswith(words)
    assert error.attempts == attempts


def test_chat_caller_user_error_is_reraised_unchanged():
    async def one():
        caller = ChatCaller(Slow((0.0, MissingExtra("the chat", "openai"))))
        with pytest.raises(MissingExtra):
            await caller.call(MESSAGES)
        return caller.pace.busy

    assert leaping(one())[0] == 0


def test_chat_caller_invalid_reply_type_raises():
    class Wrong(ScriptedChat):
        def complete(self, messages, schema=None):
            return "just text"

    with pytest.raises(BackendFailed, match="must return a Reply, got str"):
        asyncio.run(ChatCaller(Wrong([])).call(MESSAGES))


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"retries": -1}, {"timeout": 0}, {"patience": -1}, {"pause": -0.1}]
)
def test_chat_caller_invalid_settings_raise(wrong):
    with pytest.raises(BadInput):
        ChatCaller(ScriptedChat([]), **wrong)


def test_chat_caller_sync_chats_run_in_parallel_threads():
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def answer(messages, schema):
        together.wait()  # returns only if four threads wait at once
        return "yes"

    async def many():
        caller = ChatCaller(ScriptedChat(answer), concurrency=4)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(8)))

    assert [one.reply.text for one in asyncio.run(many())] == ["yes"] * 8


@pytest.mark.slow
def test_chat_caller_hanging_sync_chat_times_out_and_is_retried():
    hanging = threading.Event()
    first = iter([True])

    def answer(messages, schema):
        if next(first, False):
            hanging.wait(PATIENCE_S)
        return "yes"

    called = asyncio.run(ChatCaller(ScriptedChat(answer), concurrency=1, timeout=2.0, pause=0).call(MESSAGES))
    hanging.set()
    assert (called.reply.text, called.attempts) == ("yes", 2)


def test_adapted_chat_exception_of_sync_chat_is_raised():
    with pytest.raises(BackendFailed, match="lacks reply number 1"):
        asyncio.run(AdaptedChat(ScriptedChat([])).request(MESSAGES, None))


def test_adapted_chat_awaits_coroutine_from_sync_function():
    class Wrapped:
        name, identity = "wrapped", {}

        def complete(self, messages, schema=None):
            async def later():
                return Reply("yes")

            return later()

    assert asyncio.run(AdaptedChat(Wrapped()).request(MESSAGES, None)).text == "yes"


@pytest.mark.slow
def test_chat_caller_passing_server_faults_all_calls_succeed(chat_server):
    chat_server.answer = lambda messages, schema: "yes"
    passing = ("rate_limit", "rate_limit_bare", "rate_limit_reset", "exhausted", "error", "overloaded", "gateway")
    chat_server.misbehave(*passing, "cut", "drop", "broken_body", "error_inside", times=2, after=0.02)
    chat_server.misbehave("stall", after=3600.0)

    async def many():
        caller = ChatCaller(open_chat(f"openai:test@{chat_server.url}"), concurrency=8, timeout=3.0, pause=0.02)
        try:
            return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(60)))
        finally:
            await caller.close()

    called = asyncio.run(many())
    assert [one.reply.text for one in called] == ["yes"] * 60
    assert sum(one.attempts for one in called) == chat_server.calls
    assert chat_server.did["rate_limit"] == 2
    assert chat_server.most <= 8


def test_chat_caller_unauthorised_raises_after_one_request(chat_server):
    chat_server.misbehave("unauthorised", times=50)

    async def one():
        caller = ChatCaller(open_chat(f"openai:test@{chat_server.url}"))
        try:
            await caller.call(MESSAGES)
        finally:
            await caller.close()

    with pytest.raises(BackendFailed) as caught:
        asyncio.run(one())
    assert caught.value.final
    assert chat_server.calls == 1
