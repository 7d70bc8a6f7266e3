"""Judge that calls a chat model: builds prompts, parses replies strictly and retries missing items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from ragauge.compute.event_loops import gather_or_cancel
from ragauge.core.errors import BackendFailed
from ragauge.core.hashes import content_key, hash_text
from ragauge.core.protocols import Chat, Message, Reply
from ragauge.core.samples import Unscored
from ragauge.core.settings import AtLeast, check_settings
from ragauge.judging.all_steps import STEPS
from ragauge.judging.costs import CostLedger, estimate_tokens
from ragauge.judging.reply_cache import CachedReply, ReplyCache
from ragauge.judging.step import CANONICAL_TAG, WORD_SCHEMA, Step, new_tag
from ragauge.judging.tasks import JudgeTask, TaskResult, restrict_task, split_task
from ragauge.models.chats.calls import BudgetReached, ChatCaller, ChatCallResult

FINAL_FINISH_REASONS = ("refusal", "content_filter", "tool")
"""Finish reasons for which a retry would end the same way."""


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

    step: Step
    task: JudgeTask
    is_single_word: bool
    schema: Mapping[str, Any]
    key: str

    def messages(self, tag: str = CANONICAL_TAG) -> list[Message]:
        """Build the messages with a tag around the data."""
        return self.step.build_messages(self.task, tag, word=self.is_single_word)

    def size(self) -> tuple[int, int]:
        """Estimate the numbers of prompt and completion tokens."""
        prompt = estimate_tokens("".join(message["content"] for message in self.messages()))
        if self.is_single_word:
            return prompt, 1
        items = self.task.items
        text_tokens = sum(map(estimate_tokens, items.values())) if self.step.repeats_text else 0
        return prompt, text_tokens + self.step.reply_tokens * len(items)

    def parse(self, reply: Reply) -> TaskResult:
        """Parse the verdicts of a reply, and the reasons for missing ones."""
        verdicts, missing = self.step.parse_reply(self.task, reply, word=self.is_single_word)
        return TaskResult(verdicts, {item: Unscored(reason, reply.text) for item, reason in missing.items()})


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
        self._settings = prompt_settings
        self._first = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks of the calls in flight, so that equal calls share one reply."""
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
        words = {name: self._uses_single_word(step) for name, step in STEPS.items()}
        rubrics = {f"{name}_word" if word else name: STEPS[name].read_rubric(word=word) for name, word in words.items()}
        return {
            "chat": dict(self._chat.identity),
            "rubrics": {name: hash_text(rubric, 12) for name, rubric in rubrics.items()},
            "verdicts": self._settings.verdicts,
            "batch": self._settings.batch,
            "replied": sorted(self.models),
        }

    async def answer(self, task: JudgeTask) -> TaskResult:
        """Return a verdict on every item of a task, or the reason for a missing one."""
        step = STEPS[task.step]
        parts = self._split_task(task)
        results = await gather_or_cancel(map(self._judge_part, parts))
        verdicts: dict[str, Any] = {}
        unscored: dict[str, Unscored] = {}
        for part, result in zip(parts, results, strict=True):
            unscored |= result.unscored
            for item, verdict in result.verdicts.items():
                verdicts[item] = step.merge_verdicts(verdicts.get(item), verdict, part)
        return TaskResult({item: verdict for item, verdict in verdicts.items() if item not in unscored}, unscored)

    def first_calls(self, task: JudgeTask) -> list[JudgeCall]:
        """Return the first calls of a task, for cost estimates."""
        return [self._build_call(part, 0) for part in self._split_task(task)]

    def _split_task(self, task: JudgeTask) -> list[JudgeTask]:
        step = STEPS[task.step]
        return step.split_for_words(task) if self._uses_single_word(step) else split_task(task, self._settings.batch)

    def _uses_single_word(self, step: Step) -> bool:
        return self._settings.verdicts == "tokens" and bool(step.word_heading)

    def find_cached_reply(self, call: JudgeCall) -> CachedReply | None:
        """Return the cached reply to a call, if any."""
        return self._replies.find(call.key)

    async def _judge_part(self, task: JudgeTask) -> TaskResult:
        """Judge the items of a task, and retry missing items.

        Several missing items are retried in two halves. Cached replies are always read in the same order, however
        many there are, so that a final verdict is not requested again. When the budget is reached, the verdicts so
        far are returned.
        """
        verdicts: dict[str, Any] = {}
        reasons: dict[str, Unscored] = {}
        final_items: set[str] = set()
        """Items for which a retry is useless."""
        parts, extra_attempts = [task], self._settings.item_retries + 1 if self._settings.retry_unscored else 0
        for attempt in count():
            calls = [self._build_call(part, attempt) for part in parts]
            if attempt > self._settings.item_retries:
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
            parts = [restrict_task(task, names) for names in (remaining[:half], remaining[half:]) if names]
        return TaskResult(verdicts, {name: reasons[name] for name in task.items if name not in verdicts})

    async def _run_call(self, call: JudgeCall) -> _CallOutcome:
        """Return the verdicts of a call, whose reply is cached, in flight, or new."""
        step, items = call.step.name, call.task.items
        cached_reply, account = self._replies.find(call.key), _RequestAccount(call, self._ledger, self._replies)
        is_cached = cached_reply is not None
        try:
            if cached_reply is None:
                async with self._locks.setdefault(call.key, asyncio.Lock()), self._first_request_alone():
                    cached_reply = self._replies.find(call.key) or account.save(
                        await self._caller.call(call.messages(new_tag(call.task)), call.schema, account)
                    )
        except BudgetReached as limit:
            self.budget_note = self.budget_note or account.limit
            return _CallOutcome(TaskResult({}, dict.fromkeys(items, Unscored(f"not judged: {limit}"))), is_final=True)
        except BackendFailed as failure:
            self.budget_note = self.budget_note or account.limit
            if failure.attempts:
                self._ledger.record_failure(step, failure.attempts - 1)
            if failure.fails_all_calls or (failure.is_temporary and not self.models):
                # Not one reply has arrived and retries did not help, so the other calls would fail as well.
                failure.fails_all_calls = True
                raise
            reason = Unscored(f"the call failed: {failure.message}")
            return _CallOutcome(TaskResult({}, dict.fromkeys(items, reason)), is_final=True)
        self._ledger.record_reply(step, call.key, cached_reply, fresh=not is_cached)
        self.has_estimated_tokens |= account.has_estimated_tokens
        reply = cached_reply.reply
        self.models.add(reply.model)
        result = call.parse(reply)
        if result.unscored:
            self._ledger.record_unreadable(step, call.key)
        return _CallOutcome(result, is_final=reply.finish in FINAL_FINISH_REASONS)

    @asynccontextmanager
    async def _first_request_alone(self) -> AsyncIterator[None]:
        """Let the first request run alone, so that the cost of the next ones is known."""
        if self._ledger.has_unknown_cost:
            async with self._first:
                if self._ledger.has_unknown_cost:
                    yield
                    return
        yield

    def _build_call(self, task: JudgeTask, attempt: int) -> JudgeCall:
        step = STEPS[task.step]
        word = self._uses_single_word(step)
        schema = WORD_SCHEMA if word else step.build_reply_schema(task)
        plain = step.build_messages(task, CANONICAL_TAG, word=word)
        # Include the texts themselves: one of them could contain the canonical tag and look like two.
        texts = [list(task.items.items()), list(task.sources.items()), task.question, list(task.history)]
        key = content_key(dict(self._chat.identity), plain, texts, schema, self._settings.replicate, attempt)
        return JudgeCall(step, task, word, schema, key)


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
        self.has_estimated_tokens = False

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

    def save(self, result: ChatCallResult) -> CachedReply:
        """Save the reply, with the tokens of all requests of the call."""
        last_reply = result.reply
        if not last_reply.prompt_tokens and not last_reply.completion_tokens:
            self.has_estimated_tokens = True
            completion_tokens = estimate_tokens(last_reply.text)
            last_reply = last_reply._replace(prompt_tokens=self._call.size()[0], completion_tokens=completion_tokens)
        reply = last_reply._replace(
            prompt_tokens=last_reply.prompt_tokens + result.prompt_tokens,
            completion_tokens=last_reply.completion_tokens + result.completion_tokens,
        )
        saved = CachedReply(reply, result.seconds, result.attempts)
        task = self._call.task
        self._replies.save(self._call.key, task.step, task.sample, saved, last_reply, self.number)
        self._ledger.settle(self.reserved, last_reply)
        return saved
