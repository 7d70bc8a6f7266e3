"""Session of judging: its settings, and the resources that it opens (judge, reply cache, costs, embedder)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, cast

import numpy as np

from ragauge.compute.event_loops import map_async
from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core import protocols
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.hashes import content_key
from ragauge.core.protocols import Chat, Embedder
from ragauge.core.samples import LEXICAL_JUDGE, Sample, Verdicts
from ragauge.core.settings import Above, AtLeast, AtMost, Below, check_settings
from ragauge.judging.all_steps import STEPS, judge_sample, steps_of
from ragauge.judging.costs import Budget, CostLedger, Price, find_price, parse_prices
from ragauge.judging.lexical_judge import LexicalJudge
from ragauge.judging.model_judge import ModelJudge, PromptSettings
from ragauge.judging.reply_cache import ReplyCache
from ragauge.judging.results import CostEstimate
from ragauge.judging.steps.claims import needs_both_texts
from ragauge.judging.tasks import Judge, JudgeTask, TaskResult
from ragauge.measures.conventions import Convention
from ragauge.models.chats import open_chat
from ragauge.models.chats.calls import AdaptedChat, ChatCaller, check_identity
from ragauge.models.embedders import open_embedder

LOCAL_TOKENS_PER_SECOND = (500, 20)
"""Tokens per second that a local server is assumed to read and to write: a small model on a CPU."""


class DryRunJudge:
    """A judge that calls no model, but counts the calls without a cached reply.

    A `local` server is free unless it has a price; its time is estimated instead.
    """

    def __init__(self, model: ModelJudge, price: Price | None, *, local: bool = False) -> None:
        self._model = model
        self._price = Price(0.0, 0.0) if local and price is None else price
        self._local = local
        self._counts: dict[str, list[int]] = {step: [0, 0, 0] for step in STEPS}
        self._seen: set[str] = set()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """Identity of the model judge."""
        return self._model.identity

    async def answer(self, task: JudgeTask) -> TaskResult:
        """Return placeholders of the right type, and the cached verdicts that later tasks are built from."""
        step = STEPS[task.step]
        verdicts = {name: step.build_placeholder(task, text) for name, text in task.items.items()}
        for call in self._model.first_calls(task):
            cached_reply = self._model.find_cached_reply(call)
            if cached_reply is not None:
                is_followed = any(other.follows == step.name for other in STEPS.values())
                verdicts |= call.parse(cached_reply.reply).verdicts if is_followed else {}
            elif call.key not in self._seen:
                self._seen.add(call.key)
                counts = self._counts[task.step]
                for at, amount in enumerate((1, *call.size())):
                    counts[at] += amount
        return TaskResult(verdicts, {})

    def estimates(self) -> list[CostEstimate]:
        """Return one row per step with uncached calls."""
        estimates = []
        for step, (calls, prompt, completion) in self._counts.items():
            cost = None if self._price is None else self._price.of(prompt, completion)
            reads, writes = LOCAL_TOKENS_PER_SECOND
            seconds = prompt / reads + completion / writes if self._local else None
            estimates += [CostEstimate(step, calls, prompt, completion, cost, seconds)] if calls else []
        return estimates


DEFAULT_TIMEOUT_S = 60.0
DEFAULT_EMBEDDER = "wordllama"


@dataclass(frozen=True)
class JudgingSettings:
    """Settings of judging.

    A field that is None uses the default of the chat model, or no limit.
    """

    convention: str | Convention = "default"
    embedder: str | Embedder | None = None
    """Embedder that compares the question with those generated from the answer; default `wordllama`."""
    questions: Annotated[int, AtLeast(1), AtMost(1000)] = 3
    """Number of questions that a model generates for each answer."""
    verdict_format: Literal["json", "tokens"] = "json"
    batch: Annotated[int, AtLeast(1)] = 20
    replicate: Annotated[int, AtLeast(0)] = 0
    workers: Annotated[int, AtLeast(1), AtMost(10_000)] = 16
    """Maximum number of concurrent calls; reduced if the endpoint is overloaded."""
    timeout: Annotated[float, Above(0)] | None = None
    """Timeout of one attempt in seconds; default 60, or that of the chat model."""
    patience: Annotated[float, Above(0)] = 600.0
    """Timeout of one call with all its attempts, in seconds."""
    retries: Annotated[int, AtLeast(0), AtMost(1000)] = 5
    max_calls: Annotated[int, AtLeast(0)] | None = None
    """Maximum number of requests of this folder, over all sessions; probes and retries count."""
    max_cost: Annotated[float, AtLeast(0)] | None = None
    """Maximum cost of this folder, over all sessions."""
    prices: Any = None
    """Prices per million tokens, `{model: (input, output)}`, or a TOML file."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the chat model: `temperature`, `seed`, …"""
    answers: str | None = None
    """Table with query and answer, for the samples of a run folder."""
    k: int | None = None
    """Maximum number of contexts per sample."""
    max_samples: Annotated[int, AtLeast(1)] | None = None
    """Maximum number of samples; the first ones are used."""
    confidence: Annotated[float, Above(0), Below(1)] = 0.95
    retry_unscored: bool = False
    """Whether to retry items without a verdict."""
    canaries: bool = False
    """Whether to run prompt-injection tests."""
    name: str | None = None
    """Name of the judged system, for reports."""
    progress: ProgressCallback = no_progress

    def __post_init__(self) -> None:
        check_settings(self)


class JudgingOptions(TypedDict, total=False):
    """Keyword arguments of judging: the fields of `JudgingSettings`."""

    convention: str | Convention
    embedder: str | Embedder | None
    questions: int
    verdict_format: Literal["json", "tokens"]
    batch: int
    replicate: int
    workers: int
    timeout: float | None
    patience: float
    retries: int
    max_calls: int | None
    max_cost: float | None
    prices: Any
    options: Mapping[str, Any]
    answers: str | None
    k: int | None
    max_samples: int | None
    confidence: float
    retry_unscored: bool
    canaries: bool
    name: str | None
    progress: ProgressCallback


class JudgingSession:
    """Resources of judging, opened and closed together."""

    def __init__(self, chat: str | Chat | Judge, folder: str | Path | None, settings: JudgingSettings) -> None:
        self._settings = settings
        self._chat = chat
        self._adapted: AdaptedChat | None = None
        self._folder = None if folder is None else Path(folder)
        self._embedder: Embedder | None = None
        self._concurrency = settings.workers

    async def __aenter__(self) -> JudgingSession:
        self.price: Price | None = None
        self.judge: Judge
        self._owned: list[Any] = []
        prices = parse_prices(self._settings.prices)  # Reject invalid prices for every kind of judge.
        if self._chat == LEXICAL_JUDGE:
            self._open_lexical()
        elif not isinstance(self._chat, str) and hasattr(self._chat, "answer"):
            self._open_custom(cast(Judge, self._chat))
        else:
            self._open_model(self._chat, prices)
        return self

    def _open_lexical(self) -> None:
        if self._settings.options or self._settings.verdict_format != "json":
            raise BadInput("the lexical judge has no options", hint="use a model: --chat openai:MODEL@URL")
        self.judge, self.ledger = LexicalJudge(), CostLedger()
        self._replies = ReplyCache()

    def _open_custom(self, judge: Judge) -> None:
        """Use a judge of the caller."""
        check_identity(judge)
        self.judge, self.ledger = judge, CostLedger()
        self._replies = ReplyCache(self._folder)

    def _open_model(self, chat: str | Chat, prices: Mapping[str, Price]) -> None:
        """Open a judge that calls a chat model."""
        settings = self._settings
        prompt_settings = PromptSettings(
            settings.verdict_format,
            settings.batch,
            replicate=settings.replicate,
            retry_unscored=settings.retry_unscored,
        )
        limits = Budget(settings.max_calls, settings.max_cost)
        if isinstance(chat, str):
            chat = open_chat(chat, dict(settings.options))
            self._owned = [chat]
        elif settings.options:
            raise BadInput("options require a chat model given by name", hint="set the options on the object")
        adapted = self._adapted = AdaptedChat(chat)
        chat = adapted.chat
        check_identity(chat)
        self.price = find_price(str(chat.identity.get("model", chat.name)), prices)
        CostLedger(self.price, limits)  # Reject an unenforceable budget before anything is opened.
        self._replies = ReplyCache(self._folder)
        self.ledger = CostLedger(self.price, limits, self._replies.total_usage())
        timeout = settings.timeout or (DEFAULT_TIMEOUT_S if adapted.timeout_s is None else adapted.timeout_s)
        patience = max(settings.patience, adapted.timeout_s or 0.0)
        # A local model handles one call after the other, and each takes its time.
        self._concurrency = min(settings.workers, adapted.concurrency or settings.workers)
        caller = ChatCaller(
            adapted, concurrency=self._concurrency, timeout=timeout, patience=patience, retries=settings.retries
        )
        self.judge = ModelJudge(caller, self._replies, self.ledger, prompt_settings)

    async def __aexit__(self, *_: object) -> None:
        self._replies.close()
        for resource in self._owned:
            if inspect.isawaitable(closing := protocols.close_if_possible(resource)):
                await closing

    @property
    def local(self) -> bool:
        """Whether the chat model runs on this machine."""
        return self._adapted is not None and self._adapted.is_local

    @property
    def notes(self) -> list[str]:
        """Notes of the chat model, and a note if token counts are estimated."""
        unknown = "the endpoint does not report token counts; they are estimated from the number of characters"
        notes = [] if self._adapted is None else self._adapted.notes
        return [*notes, *([unknown] if isinstance(self.judge, ModelJudge) and self.judge.has_estimated_tokens else [])]

    @property
    def stopped(self) -> str:
        """Limit at which a model judge stopped; empty if none was reached."""
        return self.judge.budget_note if isinstance(self.judge, ModelJudge) else ""

    def check_ready(self) -> None:
        """Raise an error if calls of the chat model cannot work."""
        if self._adapted is not None:
            self._adapted.ready()

    @property
    def embedder(self) -> Embedder:
        """Embedder that compares questions, opened on first use."""
        if self._embedder is None:
            self._embedder = open_embedder(self._settings.embedder or DEFAULT_EMBEDDER)
        return self._embedder

    def identity(self, tasks: frozenset[str]) -> dict[str, Any]:
        """Return everything that could change a verdict if these tasks are judged."""
        if isinstance(self.judge, LexicalJudge):
            return dict(self.judge.identity)
        judge_identity = {
            **self.judge.identity,
            "embedder": self._embedder_name(),
            "questions": self._settings.questions,
        }
        if isinstance(self.judge, ModelJudge):  # the model sees the claims with other sources then
            judge_identity["asked"] = (
                "answer and reference together" if needs_both_texts(tasks) else "one text at a time"
            )
        return judge_identity

    def _embedder_name(self) -> str:
        """Return the name of the embedder.

        Part of the judge's identity even if no task needs it.
        """
        embedder = self._settings.embedder
        return (embedder or DEFAULT_EMBEDDER) if embedder is None or isinstance(embedder, str) else embedder.name

    async def verdicts(self, samples: Sequence[Sample], tasks: frozenset[str]) -> dict[str, Verdicts]:
        """Judge samples and return their verdicts by sample id."""
        self.check_ready()
        if not isinstance(self.judge, LexicalJudge) and any(step.needs_embedder for step in steps_of(tasks)):
            _ = self.embedder  # Find missing dependencies before any paid call.
        return await self._use_vectors(samples, await self._collect_verdicts(samples, tasks))

    async def _collect_verdicts(self, samples: Sequence[Sample], tasks: frozenset[str]) -> dict[str, Verdicts]:
        verdicts: dict[str, Verdicts] = {}

        async def judge_and_report(sample: Sample) -> None:
            verdicts[sample.id] = await judge_sample(sample, self.judge, tasks, self._settings.questions)
            self._settings.progress(Progress("judging samples", len(verdicts), len(samples)))

        try:
            await map_async(samples, judge_and_report, self._concurrent_samples())
        except BackendFailed as failure:
            if self._folder is not None and failure.fails_all_calls:
                resume_hint = "replies so far are saved; run the same command again to resume"
                failure.hint = f"{failure.hint}; {resume_hint}" if failure.hint else resume_hint
            raise
        return {sample.id: verdicts[sample.id] for sample in samples}

    def _concurrent_samples(self) -> int:
        """Return the number of concurrent samples.

        Few under a budget, so that it pays for complete samples.
        """
        limited = self._settings.max_calls is not None or self._settings.max_cost is not None
        return max(1, self._concurrency // 4) if limited else 2 * self._concurrency

    async def _use_vectors(self, samples: Sequence[Sample], verdicts: dict[str, Verdicts]) -> dict[str, Verdicts]:
        """Complete verdicts that need vectors of texts."""
        pairs = [(sample, step) for sample in samples for step in STEPS.values()]
        texts = {text for sample, step in pairs for text in step.list_texts_to_embed(sample, verdicts[sample.id])}
        if texts:
            vectors = await self._embed_texts(sorted(texts))
            for sample, step in pairs:
                verdicts[sample.id] = step.use_vectors(sample, verdicts[sample.id], vectors)
        return verdicts

    async def _embed_texts(self, texts: Sequence[str]) -> dict[str, Any]:
        keys = {text: content_key(self.embedder.name, text) for text in texts}
        vectors = self._replies.find_vectors(list(keys.values()))
        missing = [text for text in texts if keys[text] not in vectors]
        if missing:
            rows = await asyncio.to_thread(self.embedder.embed, missing)
            new_vectors = {keys[text]: row for text, row in zip(missing, rows, strict=True)}
            self._replies.save_vectors(new_vectors)
            vectors |= {key: np.asarray(row, np.float64) for key, row in new_vectors.items()}
        return {text: vectors[key] for text, key in keys.items()}
