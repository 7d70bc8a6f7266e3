"""Call a chat model with timeouts, retries and a limit on concurrent requests."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from ragauge.compute.event_loops import run_in_thread
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError, error_summary
from ragauge.core.protocols import Chat, Message, Reply, close_if_possible
from ragauge.core.secrets import redact, redact_data
from ragauge.core.settings import Above, AtLeast, check_int, check_number

MAX_CHAT_ERROR_CHARS = 500
"""Maximum number of characters of an error message of a user-supplied chat model."""


class AdaptedChat:
    """A chat model with all optional attributes of `Chat`, those that it does not have by their defaults."""

    def __init__(self, chat: Any) -> None:
        if not callable(getattr(chat, "complete", None)):
            raise BadInput(f"not a chat model: {chat!r} has no `complete`")
        self.chat: Chat = chat
        self.timeout_s: float | None = getattr(chat, "timeout", None)
        """Seconds per reply; None: those of the caller."""
        self.concurrency: int | None = getattr(chat, "concurrency", None)
        """Maximum number of parallel calls; None: that of the caller."""
        self.is_local = bool(getattr(chat, "local", False))
        """Whether the model runs on this machine."""
        self._is_async = bool(getattr(chat, "asynchronous", False)) or inspect.iscoroutinefunction(chat.complete)

    @property
    def name(self) -> str:
        return self.chat.name

    @property
    def notes(self) -> list[str]:
        """Requested features that the endpoint does not support."""
        return list(getattr(self.chat, "notes", ()))

    @property
    def missing_key(self) -> str:
        """Environment variable of a required key that is missing; empty if none is."""
        return str(getattr(self.chat, "missing_key", ""))

    def ready(self) -> None:
        """Raise an error if calls cannot work."""
        getattr(self.chat, "ready", lambda: None)()

    async def request(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
        """Send one request and return the reply."""
        return await self._finish(self.start_request(messages, schema))

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
        """Return the reply of `complete`, which may make several requests."""
        return await self._finish(self._start(self.chat.complete, messages, schema))

    async def close(self) -> None:
        """Close the chat model if it has a `close` method."""
        if inspect.isawaitable(closing := close_if_possible(self.chat)):
            await closing

    def start_request(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Any:
        """Start one request; the reply is what remains after awaiting as long as possible.

        `complete` of some chat models makes several requests, to find the format that an endpoint accepts. They also
        have `request`, which makes one request and raises BackendFailed with `needs_other_format` if another one is
        needed. It is used if available, because limits count requests.
        """
        return self._start(getattr(self.chat, "request", self.chat.complete), messages, schema)

    def check_reply(self, reply: Any) -> Reply:
        """Return a reply without secrets; raises BackendFailed if it is not a Reply."""
        if not isinstance(reply, Reply):
            raise BackendFailed(f"the chat `{self.name}` must return a Reply, got {type(reply).__name__}")
        return reply._replace(text=redact_data(reply.text), finish=redact(reply.finish), model=redact(reply.model))

    def _start(self, call: Callable[..., Any], *request: Any) -> Any:
        return call(*request) if self._is_async else run_in_thread(call, *request)

    async def _finish(self, response: Any) -> Reply:
        while inspect.isawaitable(response):
            response = await response
        return self.check_reply(response)


@asynccontextmanager
async def limit_request(limit: float) -> AsyncIterator[None]:
    """Limit the time of a request to `limit` seconds.

    Any error of the chat model is raised as BackendFailed, with the original message.
    """
    scope = asyncio.timeout(limit)
    try:
        async with scope:
            yield
    except RagaugeError:
        raise
    except TimeoutError as error:
        message = f"no reply within {limit:.3g} s" if scope.expired() else f"TimeoutError: {error}"
        failure = BackendFailed(message, is_temporary=True, has_unknown_cost=True)
    except Exception as error:  # A user-supplied chat model may raise any exception.
        message = error_summary(error, with_class=True, all_lines=True, max_chars=MAX_CHAT_ERROR_CHARS)
        failure = BackendFailed(message, is_temporary=isinstance(error, OSError))
    else:
        return
    raise failure from None


class BudgetReached(Exception):
    """Raised when a budget set by the user is reached.

    The remaining requests are not made.
    """


MAX_PAUSE_S = 60.0
"""Maximum pause in seconds, if the endpoint does not say how long to wait."""
RandomSource = Callable[[], float]
"""Function that returns a random number between 0 and 1."""


class AdaptiveConcurrency:
    """Slots for concurrent calls in one event loop, in order of arrival; retries go first."""

    def __init__(self, max_slots: int, *, pause: float = 0.5, random_source: RandomSource = random.random) -> None:
        self.max_slots = max_slots
        self.limit = float(max_slots)
        """Number of calls allowed at a time now; at least 1."""
        self.n_active = 0
        """Number of calls in progress."""
        self._pause = pause
        self._random_source = random_source
        self._paused_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._n_slow_downs = 0
        """Number of slow-downs. Failures of calls that began before the last slow-down are ignored."""
        self._n_consecutive_slow_downs = 0
        self._make_closed_error: Callable[[], Exception] | None = None
        """Returns the exception for new and waiting calls once the slots are closed."""

    async def enter(self, *, is_retry: bool = False) -> int:
        """Wait for a slot and return the number of slow-downs, for `record_overload`."""
        loop = asyncio.get_running_loop()
        if (closed_error := self._closed_error()) is not None:
            raise closed_error
        if self._can_start(loop) and (is_retry or not self._waiting):
            self.n_active += 1
            return self._n_slow_downs
        slot: asyncio.Future[None] = loop.create_future()
        if is_retry:
            self._waiting.appendleft(slot)
        else:
            self._waiting.append(slot)
        self._start_waiting()
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():  # The slot was assigned before the cancellation.
                self.leave()
            raise
        if (closed_error := self._closed_error()) is not None:
            self.leave()
            raise closed_error
        return self._n_slow_downs

    def leave(self) -> None:
        """Release the slot."""
        self.n_active -= 1
        self._start_waiting()

    def close(self, make_error: Callable[[], Exception]) -> None:
        """Refuse all waiting and future calls with the exception that `make_error` returns."""
        self._make_closed_error = make_error
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                self.n_active += 1  # Released by enter(), which raises.
                slot.set_result(None)

    def record_success(self) -> None:
        """Record a successful reply; a full round of them raises the limit by one."""
        self._n_consecutive_slow_downs = 0
        if self.limit < self.max_slots:
            self.limit = min(float(self.max_slots), self.limit + 1 / self.limit)
            self._start_waiting()

    def record_overload(self, n_slow_downs_at_entry: int, retry_after_s: float | None) -> None:
        """Record an overload: halve the limit and pause for `retry_after_s` or random seconds.

        `n_slow_downs_at_entry` is what `enter` returned for the call.
        """
        if n_slow_downs_at_entry == self._n_slow_downs:
            self._n_slow_downs += 1
            self._n_consecutive_slow_downs += 1
            self.limit = max(1.0, self.limit / 2)
            if retry_after_s is None:
                longest = min(MAX_PAUSE_S, self._pause * 2.0 ** (self._n_consecutive_slow_downs - 1))
                self.pause(longest * (0.5 + 0.5 * self._random_source()))
        if retry_after_s is not None:
            # Other clients were probably given the same time: add a random part.
            self.pause(retry_after_s + self._pause * self._random_source())

    def pause(self, seconds: float) -> None:
        """Start no calls for a number of seconds."""
        if seconds > 0:
            self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + seconds)

    def _closed_error(self) -> Exception | None:
        return None if self._make_closed_error is None else self._make_closed_error()

    def _can_start(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self.n_active < int(self.limit) and loop.time() >= self._paused_until

    def _start_waiting(self) -> None:
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        while self._waiting and self._can_start(loop):
            slot = self._waiting.popleft()
            if not slot.done():  # The waiting call may have been cancelled.
                self.n_active += 1
                slot.set_result(None)
        if self._waiting and loop.time() < self._paused_until:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(self._paused_until, self._start_after_pause)

    def _start_after_pause(self) -> None:
        self._timer = None
        self._start_waiting()


MAX_REFUSED_FORMATS = 12
"""Maximum number of requests per call in formats that the endpoint does not accept."""


class ChatCallResult(NamedTuple):
    """Reply to a call, with the time and the requests that it took."""

    reply: Reply
    """Reply, with the token counts of its own request only."""
    seconds: float
    """Duration of all attempts, in seconds, without pauses and without waiting for a free slot."""
    attempts: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Number of completion tokens of the failed requests before the reply; `prompt_tokens` counts their prompt tokens.
    """


class RequestCounter(Protocol):
    def begin(self) -> None:
        """Count a request before it is made.

        Raise `BudgetReached` if a limit does not allow it.
        """

    def fail(self, failure: BackendFailed) -> None:
        """Record that the request failed."""


class UnlimitedRequests:
    """Request counter without a limit."""

    def begin(self) -> None:
        """Allow the request."""

    def fail(self, failure: BackendFailed) -> None:
        """Record nothing."""


class _RequestTotals(NamedTuple):
    """Number of requests of a call so far, and the tokens of those that failed."""

    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def and_spent(self, failure: BackendFailed) -> _RequestTotals:
        return self._replace(
            prompt_tokens=self.prompt_tokens + failure.prompt_tokens,
            completion_tokens=self.completion_tokens + failure.completion_tokens,
        )


class ChatCaller:
    """Sends calls to a chat model, at most `concurrency` at a time, in one event loop.

    An attempt may take `timeout` seconds. A call may take `patience` seconds from its first attempt, pauses included.
    Temporary failures are retried up to `retries` times, after a random pause that starts at up to `pause` seconds and
    doubles its limit each time. If the server reports overload, all calls slow down; these attempts are limited by
    `patience` only. A server that asks for a longer wait than `patience` allows is a final failure.
    """

    def __init__(
        self,
        chat: Chat | AdaptedChat,
        *,
        concurrency: int = 16,
        timeout: float | None = 60.0,
        patience: float = 600.0,
        retries: int = 5,
        pause: float = 0.5,
        random_source: RandomSource = random.random,
    ) -> None:
        check_int("concurrency", concurrency)
        check_int("retries", retries, 0)
        if timeout is not None:
            check_number("timeout", timeout, Above(0))
        check_number("patience", patience, Above(0))
        check_number("pause", pause, AtLeast(0))
        self._adapted = chat if isinstance(chat, AdaptedChat) else AdaptedChat(chat)
        self.chat = self._adapted.chat
        self.slots = AdaptiveConcurrency(concurrency, pause=pause, random_source=random_source)
        self._timeout = math.inf if timeout is None else timeout
        self._patience = patience
        self._retries = retries
        self._pause = pause
        self._random_source = random_source

    async def call(
        self,
        messages: Sequence[Message],
        schema: Mapping[str, Any] | None = None,
        counter: RequestCounter | None = None,
    ) -> ChatCallResult:
        """Call the chat model and return the reply with its time and attempts.

        BackendFailed is raised if there is none; `fails_all_calls` means that every other call will fail too. Each
        request is counted by `counter`: those in formats that the endpoint refuses, and retries. If a limit allows no
        first request, `BudgetReached` is raised; if it allows no retry, the last failure.
        """
        counter = counter or UnlimitedRequests()
        failure: BackendFailed | None = None
        loop = asyncio.get_running_loop()
        entered = await self.slots.enter()
        deadline = loop.time() + self._patience
        seconds, counted, formats = 0.0, 0, 0
        totals = _RequestTotals()
        while True:
            began = loop.time()
            try:
                counter.begin()
                totals = totals._replace(attempts=totals.attempts + 1)
                async with limit_request(min(self._timeout, deadline - began)):
                    response = self._adapted.start_request(messages, schema)
                    while inspect.isawaitable(response):
                        response = await response
                    reply = self._adapted.check_reply(response)
                self.slots.record_success()
                # A longer pause would block all calls without a message; the next reply reports the limit again.
                self.slots.pause(min(reply.hold, self._patience))
                return ChatCallResult(reply, seconds + loop.time() - began, *totals)
            except BudgetReached as limit:
                if failure is None:
                    raise
                raise _build_last_failure(failure, totals, str(limit)) from None
            except BackendFailed as error:
                failure = error
                counter.fail(failure)
                totals = totals.and_spent(failure)
                if failure.fails_all_calls or self._is_wait_too_long(failure, deadline - loop.time()):
                    # Close before the slot is released: the waiting calls would fail in the same way.
                    self.slots.close(partial(_build_last_failure, failure, _RequestTotals(), fails_all_calls=True))
                elif failure.is_temporary and failure.is_overload:
                    self.slots.record_overload(entered, failure.retry_after_s)
            finally:
                self.slots.leave()
            seconds += loop.time() - began
            formats += failure.needs_other_format
            counted += not failure.is_overload and not failure.needs_other_format
            time_left = deadline - loop.time()
            if self._is_wait_too_long(failure, time_left):
                raise _build_last_failure(
                    failure, totals, f"the server asks to wait {failure.retry_after_s:.0f} s", fails_all_calls=True
                )
            can_retry = failure.is_temporary or failure.needs_other_format
            if (
                not can_retry
                or failure.fails_all_calls
                or counted > self._retries
                or formats > MAX_REFUSED_FORMATS
                or time_left <= 0
            ):
                raise _build_last_failure(failure, totals)
            try:
                async with asyncio.timeout(time_left):
                    if not failure.is_overload and not failure.needs_other_format:
                        await asyncio.sleep(self._retry_delay(failure, counted))
                    entered = await self.slots.enter(is_retry=True)
            except TimeoutError:
                raise _build_last_failure(failure, totals, f"within {self._patience:g} s") from None

    def _is_wait_too_long(self, failure: BackendFailed, time_left: float) -> bool:
        return failure.is_temporary and failure.retry_after_s is not None and failure.retry_after_s > time_left

    def _retry_delay(self, failure: BackendFailed, counted: int) -> float:
        """Return a random pause in seconds.

        Its upper limit doubles with each retry, so that calls that failed together are not repeated together.
        """
        if failure.retry_after_s is not None:
            return failure.retry_after_s + self._pause * self._random_source()
        return min(MAX_PAUSE_S, self._pause * 2.0 ** (counted - 1)) * self._random_source()

    async def close(self) -> None:
        """Close the chat model if it has a `close` method."""
        await self._adapted.close()


def _build_last_failure(
    failure: BackendFailed, totals: _RequestTotals, reason: str = "", *, fails_all_calls: bool = False
) -> BackendFailed:
    """Return the last failure with the number of attempts."""
    attempts_text = f"{totals.attempts} attempts" if totals.attempts > 1 else ""
    details = ", ".join(filter(None, [attempts_text, reason]))
    last = BackendFailed(
        f"{failure.message} ({details})" if details else failure.message,
        hint=failure.hint,
        is_temporary=failure.is_temporary,
        retry_after_s=failure.retry_after_s,
        fails_all_calls=fails_all_calls or failure.fails_all_calls,
        is_overload=failure.is_overload,
    )
    last.attempts, last.prompt_tokens, last.completion_tokens = totals
    return last


def check_identity(component: Any) -> None:
    """Refuse a chat model or judge whose identity cannot be written as JSON."""
    try:
        json.dumps(dict(component.identity), sort_keys=True, allow_nan=False)
        _ = component.name
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInput(
            f"{component!r} needs a name, and an identity that JSON can represent ({error})",
            hint="return a mapping of strings and numbers with everything that changes a reply",
        ) from None
