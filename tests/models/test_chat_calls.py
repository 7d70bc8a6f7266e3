"""Calls that get through: time-outs, patience, back-off, a shared pace; on a clock that leaps, and on a real server."""

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
    """A chat that takes its time; each line is seconds and what comes of it."""

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
    """What comes of one call, and when it came."""

    async def one():
        try:
            return await ChatCaller(chat, **{"chance": lambda: 1.0, **how}).call(MESSAGES)
        except BackendFailed as error:
            return error

    return leaping(one())


def test_a_good_reply_comes_with_its_time_and_one_attempt():
    called, _ = call(Slow((2.0, "yes")))
    assert (called.reply.text, called.attempts) == ("yes", 1)
    assert called.seconds == pytest.approx(2.0)


def test_what_may_pass_is_tried_again_after_pauses_that_double():
    chat = Slow((1.0, PASSING), (1.0, PASSING), (1.0, PASSING), (1.0, "yes"))
    called, _ = call(chat, pause=0.5)
    assert called.attempts == 4
    assert called.seconds == pytest.approx(4.0)  # the pauses are nobody's work
    assert chat.began == pytest.approx([0, 1.5, 3.5, 6.5])


def test_the_pause_is_anything_up_to_its_longest():
    chat = Slow((0.0, PASSING), (0.0, PASSING), (0.0, "yes"))
    call(chat, pause=8.0, chance=iter([0.25, 0.5]).__next__)
    assert chat.began == pytest.approx([0, 2.0, 2.0 + 8.0])


def test_after_so_many_retries_the_last_failure_is_told_with_their_number():
    error, _ = call(Slow((0.0, PASSING)), retries=2)
    assert error.message == "it broke (3 attempts)"
    assert (error.attempts, error.passing, error.final) == (3, True, False)


def test_what_does_not_pass_is_not_tried_again():
    chat = Slow((0.0, BackendFailed("no such thing")), (0.0, "yes"))
    error, _ = call(chat)
    assert (error.message, error.attempts, len(chat.began)) == ("no such thing", 1, 1)


def test_what_is_final_is_said_to_be():
    error, _ = call(Slow((0.0, BackendFailed("wrong key", hint="set it", final=True))))
    assert (error.final, error.hint) == (True, "set it")


@pytest.mark.parametrize(
    "end",
    [
        BackendFailed("wrong key", final=True),
        BackendFailed("come back tomorrow", passing=True, busy=True, after=86_400.0),
    ],
)
def test_after_a_final_failure_no_other_call_begins(end):
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


def test_what_failed_attempts_spent_is_counted_with_the_reply_or_with_the_failure():
    lines = [(0.0, spent("it broke", 10, 2, passing=True)), (0.0, spent("it broke", 5, 1, passing=True))]
    called, _ = call(Slow(*lines, (0.0, Reply("yes", 100, 20))), pause=0)
    assert (called.reply.prompt_tokens, called.reply.completion_tokens) == (100, 20)
    assert (called.prompt_tokens, called.completion_tokens) == (15, 3)
    error, _ = call(Slow(*lines, (0.0, spent("refused", 1, 1))), pause=0)
    assert (error.prompt_tokens, error.completion_tokens, error.attempts) == (16, 4, 3)


@pytest.mark.parametrize("identity", [{"model": object()}, {"top_p": float("nan")}, 7, {"a": 1, 2: "b"}])
def test_an_identity_that_cannot_be_written_down_is_refused(identity):
    chat = ScriptedChat(["yes"])
    chat.identity = identity
    with pytest.raises(BadInput, match="identity that JSON can represent"):
        check_identity(chat)
    with pytest.raises(BadInput, match="no attribute 'identity'"):
        check_identity(object())
    check_identity(ScriptedChat(["yes"]))


def test_an_attempt_that_takes_too_long_is_given_up_and_made_again():
    chat = Slow((100.0, "late"), (1.0, "yes"))
    called, _ = call(chat, timeout=5.0, pause=0)
    assert (called.reply.text, called.attempts, chat.cancelled) == ("yes", 2, 1)
    assert called.seconds == pytest.approx(6.0)


def test_time_outs_without_end_are_a_failure_that_says_so():
    error, seconds = call(Slow((100.0, "late")), timeout=5.0, retries=1, pause=0)
    assert error.message == "no reply within 5 s (2 attempts)"
    assert seconds == pytest.approx(10.0)


def test_patience_ends_everything_even_in_the_middle_of_an_attempt():
    error, seconds = call(Slow((8.0, PASSING)), timeout=None, patience=20.0, retries=99, pause=0)
    assert seconds == pytest.approx(20.0)
    assert error.passing
    assert error.attempts == 3


def test_patience_ends_a_pause_too():
    error, seconds = call(Slow((0.0, PASSING)), patience=5.0, pause=4.0)
    assert seconds == pytest.approx(5.0)
    assert error.message == "it broke (2 attempts, within 5 s)"


def test_a_busy_server_is_waited_for_however_often_it_says_so():
    chat = Slow(*[(0.0, BackendFailed("later", passing=True, busy=True, after=7.0))] * 9, (0.0, "yes"))
    called, _ = call(chat, retries=0, pause=0)
    assert called.attempts == 10
    assert chat.began == pytest.approx([7.0 * n for n in range(10)])


def test_a_failure_that_names_a_time_is_not_tried_before_it():
    chat = Slow((0.0, BackendFailed("restarting", passing=True, after=7.0)), (0.0, "yes"))
    call(chat, pause=0)
    assert chat.began == pytest.approx([0, 7.0])


def test_a_server_that_asks_for_more_patience_than_there_is_is_final():
    chat = Slow((0.0, BackendFailed("come back tomorrow", passing=True, busy=True, after=86_400.0)))
    error, seconds = call(chat, patience=600)
    assert error.final
    assert error.message == "come back tomorrow (the server asks to wait 86400 s)"
    assert seconds == 0


def test_all_calls_wait_where_one_was_told_to():
    chat = Slow((0.0, BackendFailed("later", passing=True, busy=True, after=30.0)), (1.0, "yes"))

    async def two():
        caller = ChatCaller(chat, concurrency=1, pause=0)
        return await asyncio.gather(caller.call(MESSAGES), caller.call(MESSAGES))

    called, seconds = leaping(two())
    assert [one.attempts for one in called] == [2, 1]
    assert seconds == pytest.approx(32.0)


def test_a_reply_that_used_a_limit_up_holds_the_next_call():
    chat = Slow((0.0, Reply("yes", hold=12.0)), (0.0, "yes"))

    async def two():
        caller = ChatCaller(chat)
        await caller.call(MESSAGES)
        await caller.call(MESSAGES)

    leaping(two())
    assert chat.began == pytest.approx([0, 12.0])


def test_many_calls_run_side_by_side():
    chat = Slow((1.0, "yes"))

    async def many():
        caller = ChatCaller(chat, concurrency=8)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(80)))

    called, seconds = leaping(many())
    assert len(called) == 80
    assert seconds == pytest.approx(10.0)


def test_time_in_the_queue_is_no_time_of_the_call():
    async def many():
        caller = ChatCaller(Slow((1.0, "yes")), concurrency=1, timeout=1.5, patience=2.0)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(20)))

    called, _ = leaping(many())
    assert [one.seconds for one in called] == pytest.approx([1.0] * 20)


def test_a_cancelled_call_gives_its_place_back():
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
def test_whatever_a_chat_of_somebodys_own_raises_is_a_failure_in_its_words(raised, attempts, words):
    error, _ = call(Slow((0.0, raised)), retries=1, pause=0)
    assert error.message.startswith(words)
    assert error.attempts == attempts


def test_a_mistake_of_the_user_is_passed_on_as_it_is():
    async def one():
        caller = ChatCaller(Slow((0.0, MissingExtra("the chat", "openai"))))
        with pytest.raises(MissingExtra):
            await caller.call(MESSAGES)
        return caller.pace.busy

    assert leaping(one())[0] == 0


def test_what_is_no_reply_is_refused():
    class Wrong(ScriptedChat):
        def complete(self, messages, schema=None):
            return "just text"

    with pytest.raises(BackendFailed, match="must return a Reply, got str"):
        asyncio.run(ChatCaller(Wrong([])).call(MESSAGES))


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"retries": -1}, {"timeout": 0}, {"patience": -1}, {"pause": -0.1}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput):
        ChatCaller(ScriptedChat([]), **wrong)


def test_plain_chats_run_in_threads_side_by_side_and_leave_the_loop_free():
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def answer(messages, schema):
        together.wait()  # passes only where four are here at once
        return "yes"

    async def many():
        caller = ChatCaller(ScriptedChat(answer), concurrency=4)
        return await asyncio.gather(*(caller.call(MESSAGES) for _ in range(8)))

    assert [one.reply.text for one in asyncio.run(many())] == ["yes"] * 8


@pytest.mark.slow
def test_a_plain_chat_that_hangs_is_left_behind():
    hanging = threading.Event()
    first = iter([True])

    def answer(messages, schema):
        if next(first, False):
            hanging.wait(PATIENCE_S)
        return "yes"

    called = asyncio.run(ChatCaller(ScriptedChat(answer), concurrency=1, timeout=2.0, pause=0).call(MESSAGES))
    hanging.set()
    assert (called.reply.text, called.attempts) == ("yes", 2)


def test_what_a_plain_chat_raises_comes_out_of_its_thread():
    with pytest.raises(BackendFailed, match="lacks reply number 1"):
        asyncio.run(AdaptedChat(ScriptedChat([])).request(MESSAGES, None))


def test_a_plain_function_that_gives_a_coroutine_is_awaited():
    class Wrapped:
        name, identity = "wrapped", {}

        def complete(self, messages, schema=None):
            async def later():
                return Reply("yes")

            return later()

    assert asyncio.run(AdaptedChat(Wrapped()).request(MESSAGES, None)).text == "yes"


@pytest.mark.slow
def test_every_call_gets_through_a_server_that_misbehaves_in_every_passing_way(chat_server):
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


def test_a_wrong_key_stops_at_once(chat_server):
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
