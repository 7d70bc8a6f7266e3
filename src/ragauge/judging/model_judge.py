"""Judge that calls a chat model: builds prompts, parses replies strictly and retries missing items."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple

from ragauge.compute.event_loops import gather_or_cancel
from ragauge.core.errors import BackendFailed
from ragauge.core.hashes import content_key
from ragauge.core.protocols import Chat, Message, Reply
from ragauge.core.samples import TASK_STEPS, Support, Unscored, is_chunk
from ragauge.core.settings import AtLeast, check_settings
from ragauge.judging import prompts
from ragauge.judging.costs import CostLedger, estimate_tokens
from ragauge.judging.prompts import ParsedReply
from ragauge.judging.reply_cache import CachedReply, ReplyCache
from ragauge.judging.tasks import JudgeTask, TaskResult
from ragauge.models.chats.calls import BudgetReached, ChatCaller

FINAL_FINISH_REASONS = ("refusal", "content_filter", "tool")
"""Finish reasons for which a retry would end the same way."""
_REPLY_TOKENS_PER_ITEM = {"claims": 40, "support": 55, "useful": 40, "questions": 80}
"""Approximate number of reply tokens per item."""


@dataclass(frozen=True)
class PromptSettings:
    """Settings of the prompts and calls of a model judge."""

    verdicts: Literal["json", "tokens"] = "json"
    """`json`: all claims of a sample in one call, with reasons; `tokens`: one word per claim, with its probability."""
    batch: Annotated[int, AtLeast(1)] = 20
    """Maximum number of claims, sentences or chunks per call."""
    item_retries: Annotated[int, AtLeast(0)] = 2
    """Number of retries for items missing from a reply."""
    retry_unscored: bool = False
    """Whether to retry items that are still without a verdict, with new calls."""
    replicate: Annotated[int, AtLeast(0)] = 0
    """Number of the replicate; each has its own cached replies."""

    def __post_init__(self) -> None:
        check_settings(self)


class JudgeCall(NamedTuple):
    """One call of the judge, with the cache key of its reply."""

    task: JudgeTask
    is_single_word: bool
    schema: Mapping[str, Any]
    key: str

    def messages(self) -> list[Message]:
        """Build the messages with a new random tag."""
        return prompts.build_messages(self.task, prompts.new_tag(self.task), word=self.is_single_word)

    def size(self) -> tuple[int, int]:
        """Estimate the numbers of prompt and completion tokens."""
        text = "".join(
            message["content"]
            for message in prompts.build_messages(self.task, prompts.CANONICAL_TAG, word=self.is_single_word)
        )
        if self.is_single_word:
            return estimate_tokens(text), 1
        text_tokens = sum(map(estimate_tokens, self.task.items.values())) if self.task.step == "claims" else 0
        return estimate_tokens(text), text_tokens + _REPLY_TOKENS_PER_ITEM[self.task.step] * len(self.task.items)


class _CallOutcome(NamedTuple):
    result: TaskResult
    is_final: bool
    """Whether retrying the missing items is useless."""


class ModelJudge:
    """Judge that calls a chat model.

    Cached replies are reused, and equal calls in flight are shared.
    """

    def __init__(
        self, caller: ChatCaller, replies: ReplyCache, ledger: CostLedger, prompt_settings: PromptSettings
    ) -> None:
        self._caller = caller
        self._chat: Chat = caller.chat
        self._replies = replies
        self._ledger = ledger
        self._prompt_settings = prompt_settings
        self._first = asyncio.Lock()
        self._in_flight: dict[str, asyncio.Future[CachedReply]] = {}
        self.models: set[str] = set()
        """Names of the models that replied."""
        self.budget_note = ""
        """Description of the budget that was reached; empty if none was."""
        self.has_estimated_tokens = False
        """Whether token counts are estimated, because an endpoint did not report them."""

    @property
    def name(self) -> str:
        """Name of the chat model."""
        return self._chat.name

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the chat model, with the rubrics and the prompt settings."""
        used = [f"{step}_word" if self._uses_single_word(step) else step for step in TASK_STEPS]
        return {
            "chat": dict(self._chat.identity),
            "rubrics": {name: prompts.rubric_hash(name) for name in used},
            "verdicts": self._prompt_settings.verdicts,
            "batch": self._prompt_settings.batch,
            "replied": sorted(self.models),
        }

    async def answer(self, task: JudgeTask) -> TaskResult:
        """Return a verdict on every item of a task, or the reason for a missing one."""
        if not task.items:
            return TaskResult({}, {})
        if self._uses_single_word(task.step):
            return await self._judge_by_words(task)
        return _merge_results(
            await gather_or_cancel(
                self._judge_until_complete(part) for part in split_task(task, self._prompt_settings.batch)
            )
        )

    def first_calls(self, task: JudgeTask) -> list[JudgeCall]:
        """Return the first calls of a task, for cost estimates."""
        if self._uses_single_word(task.step):
            return [self._build_call(task, 0, word=True) for task in split_task_by_item(task)]
        return [self._build_call(task, 0) for task in split_task(task, self._prompt_settings.batch)]

    def _uses_single_word(self, step: str) -> bool:
        return self._prompt_settings.verdicts == "tokens" and step in ("support", "useful")

    def find_cached_reply(self, call: JudgeCall) -> CachedReply | None:
        """Return the cached reply to a call, if any."""
        return self._replies.find(call.key)

    async def _judge_until_complete(self, task: JudgeTask, *, word: bool = False) -> TaskResult:
        """Judge the items of a task, and retry missing items.

        Several missing items are retried in two halves. Cached replies are always read in the same order, however
        many there are, so that a final verdict is not requested again. When the budget is reached, the verdicts so
        far are returned.
        """
        verdicts: dict[str, Any] = {}
        reasons: dict[str, Unscored] = {}
        final_items: set[str] = set()
        """Items for which a retry is useless."""
        parts, extra_attempts = (
            [task],
            self._prompt_settings.item_retries + 1 if self._prompt_settings.retry_unscored else 0,
        )
        for attempt in count():
            calls = [self._build_call(part, attempt, word=word) for part in parts]
            if attempt > self._prompt_settings.item_retries:
                cached_calls = [call for call in calls if self._replies.find(call.key) is not None]
                if len(cached_calls) < len(calls) and extra_attempts:
                    extra_attempts -= 1
                else:
                    calls = cached_calls
            if not calls:
                break
            for outcome in await gather_or_cancel(map(self._run_call, calls)):
                verdicts |= outcome.result.verdicts
                reasons |= outcome.result.unscored
                final_items |= outcome.result.unscored.keys() if outcome.is_final else set()
            remaining = [name for name in task.items if name not in verdicts and name not in final_items]
            half = (len(remaining) + 1) // 2
            parts = [_restrict_task(task, names) for names in (remaining[:half], remaining[half:]) if names]
        return TaskResult(verdicts, {name: reasons[name] for name in task.items if name not in verdicts})

    async def _judge_by_words(self, task: JudgeTask) -> TaskResult:
        """Judge each item in a call of its own.

        For claims, contexts and the other text are separate calls.
        """
        parts = split_task_by_item(task)
        results = await gather_or_cancel(self._judge_until_complete(part, word=True) for part in parts)
        verdicts: dict[str, Any] = {}
        reasons: dict[str, Unscored] = {}
        for part, result in zip(parts, results, strict=True):
            reasons |= result.unscored
            for name, verdict in result.verdicts.items():
                verdicts[name] = _merge_verdicts(verdicts.get(name), verdict, chunks=any(map(is_chunk, part.sources)))
        return TaskResult({name: verdict for name, verdict in verdicts.items() if name not in reasons}, reasons)

    async def _run_call(self, call: JudgeCall) -> _CallOutcome:
        items = call.task.items
        try:
            cached_reply = await self._get_reply(call)
        except BudgetReached as limit:
            self.budget_note = self.budget_note or str(limit)
            return _CallOutcome(TaskResult({}, dict.fromkeys(items, Unscored(f"not judged: {limit}"))), is_final=True)
        except BackendFailed as failure:
            if failure.fails_all_calls or (failure.is_temporary and not self.models):
                # Not one reply has arrived and retries did not help, so the other calls would fail as well.
                failure.fails_all_calls = True
                raise
            reason = Unscored(f"the call failed: {failure.message}")
            return _CallOutcome(TaskResult({}, dict.fromkeys(items, reason)), is_final=True)
        reply = cached_reply.reply
        self.models.add(reply.model)
        parsed_reply: ParsedReply = (
            prompts.parse_word_reply(call.task, reply) if call.is_single_word else prompts.parse_reply(call.task, reply)
        )
        if parsed_reply.missing:
            self._ledger.record_unreadable(call.task.step, call.key)
        missing = {name: Unscored(reason, reply.text) for name, reason in parsed_reply.missing.items()}
        return _CallOutcome(TaskResult(parsed_reply.verdicts, missing), is_final=reply.finish in FINAL_FINISH_REASONS)

    def _build_call(self, task: JudgeTask, attempt: int, *, word: bool = False) -> JudgeCall:
        schema = prompts.WORD_SCHEMA if word else prompts.build_reply_schema(task)
        plain = prompts.build_messages(task, prompts.CANONICAL_TAG, word=word)
        # Include the texts themselves: one of them could contain the canonical tag and look like two.
        texts = [list(task.items.items()), list(task.sources.items()), task.question, list(task.history)]
        key = content_key(dict(self._chat.identity), plain, texts, schema, self._prompt_settings.replicate, attempt)
        return JudgeCall(task, word, schema, key)

    async def _get_reply(self, call: JudgeCall) -> CachedReply:
        """Return the reply to a call: cached, in flight, or new."""
        cached_reply = self._replies.find(call.key)
        if cached_reply is not None:
            self._ledger.record_reply(call.task.step, call.key, cached_reply, fresh=False)
            return cached_reply
        if call.key in self._in_flight:
            return await asyncio.shield(self._in_flight[call.key])
        future: asyncio.Future[CachedReply] = asyncio.get_running_loop().create_future()
        self._in_flight[call.key] = future
        try:
            cached_reply = await self._request_reply(call)
        except BaseException as error:
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                future.exception()  # retrieved, since there may be no other waiter
            raise
        else:
            future.set_result(cached_reply)
        finally:
            del self._in_flight[call.key]
        return cached_reply

    async def _request_reply(self, call: JudgeCall) -> CachedReply:
        """Request a reply.

        The first request runs alone, so that the cost of the next ones is known.
        """
        if self._ledger.has_unknown_cost:
            async with self._first:
                if self._ledger.has_unknown_cost:
                    return await self._request_reply_now(call)
        return await self._request_reply_now(call)

    async def _request_reply_now(self, call: JudgeCall) -> CachedReply:
        step = call.task.step
        account = _RequestAccount(call, self._ledger, self._replies)
        try:
            result = await self._caller.call(call.messages(), call.schema, account)
        except BackendFailed as error:
            if error.attempts:
                self._ledger.record_failure(step, error.attempts - 1)
            if account.limit:
                self.budget_note = self.budget_note or account.limit
            raise
        last_reply = result.reply
        if not last_reply.prompt_tokens and not last_reply.completion_tokens:
            self.has_estimated_tokens = True
            last_reply = last_reply._replace(
                prompt_tokens=call.size()[0], completion_tokens=estimate_tokens(last_reply.text)
            )
        reply = last_reply._replace(
            prompt_tokens=last_reply.prompt_tokens + result.prompt_tokens,
            completion_tokens=last_reply.completion_tokens + result.completion_tokens,
        )
        cached_reply = CachedReply(reply, result.seconds, result.attempts)
        self._replies.save(call.key, step, call.task.sample, cached_reply, last_reply, account.number)
        self._ledger.settle(account.reserved, last_reply)
        self._ledger.record_reply(step, call.key, cached_reply, fresh=True)
        return cached_reply


class _RequestAccount:
    """Recorder of the requests of one call in the ledger and the reply cache."""

    def __init__(self, call: JudgeCall, ledger: CostLedger, replies: ReplyCache) -> None:
        self._call = call
        self._ledger = ledger
        self._replies = replies
        self.reserved = 0.0
        self.number: int | None = None
        """Number of the last request in the reply cache."""
        self.limit = ""
        """Description of the budget that prevented a request."""

    def begin(self) -> None:
        """Reserve a request and its expected cost, and save it, so that it counts if it is interrupted.

        Raises `BudgetReached` if the budget is spent.
        """
        try:
            self.reserved = self._ledger.reserve(self._call.size)
        except BudgetReached as limit:
            self.limit = str(limit)
            raise
        self.number = self._replies.begin_call(self._call.task.step, Reply("", *self._call.size()))

    def fail(self, failure: BackendFailed) -> None:
        """Record a failed request.

        Without a response, its expected cost counts, as it may be billed.
        """
        tokens = (failure.prompt_tokens, failure.completion_tokens)
        spent = Reply("", *(self._call.size() if failure.has_unknown_cost and not any(tokens) else tokens))
        self._ledger.settle(self.reserved, spent)
        self._replies.save_failure(self._call.task.step, failure.message, spent, self.number)


def split_task(task: JudgeTask, max_items: int) -> list[JudgeTask]:
    """Split a task into parts of at most `max_items` items.

    >>> task = JudgeTask("useful", "s1", {"k1": "a", "k2": "b", "k3": "c"}, {})
    >>> [list(part.items) for part in split_task(task, 2)]
    [['k1', 'k2'], ['k3']]
    """
    names = list(task.items)
    return [_restrict_task(task, names[at : at + max_items]) for at in range(0, len(names), max_items)]


def split_task_by_item(task: JudgeTask) -> list[JudgeTask]:
    """Split a task into single items.

    For claims, chunks and the other text are separate tasks.
    """
    parts: list[JudgeTask] = []
    for name in task.items:
        judge_task = _restrict_task(task, [name])
        if task.step == "useful":
            parts.append(judge_task)
            continue
        choices = task.choices(name)
        groups = ([c for c in choices if is_chunk(c)], [c for c in choices if not is_chunk(c)])
        parts += [replace(judge_task, sources={c: task.sources[c] for c in group}) for group in groups if group]
    return parts


def _restrict_task(task: JudgeTask, names: Sequence[str]) -> JudgeTask:
    return replace(task, items={name: task.items[name] for name in names})


def _merge_verdicts(first: Any, second: Any, *, chunks: bool) -> Any:
    """Merge two verdicts on one claim by different sources.

    The probability is that of the contexts.
    """
    if not isinstance(second, Support):
        return second
    second = second if chunks else second._replace(probability=None)
    if first is None:
        return second
    probability = first.probability if first.probability is not None else second.probability
    return Support((*first.by, *second.by), (*first.against, *second.against), probability=probability)


def _merge_results(parts: Sequence[TaskResult]) -> TaskResult:
    results: dict[str, Any] = {}
    unscored: dict[str, Unscored] = {}
    for part in parts:
        results |= part.verdicts
        unscored |= part.unscored
    return TaskResult(results, unscored)
