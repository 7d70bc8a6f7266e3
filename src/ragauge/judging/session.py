"""Session of judging: its settings, and the resources that it opens (judge, reply cache, costs, embedder)."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ragauge.compute.event_loops import Room, each
from ragauge.compute.executors import AHEAD, Errands, itself, lanes
from ragauge.core import protocols
from ragauge.core.errors import BackendFailed, BadInput, check_count
from ragauge.core.protocols import Chat, Embedder
from ragauge.core.samples import LEXICAL, STEPS, Question, Sample, Support, Unscored, Usefulness, Verdicts
from ragauge.judging.costs import Ledger, Limits, Price, as_prices, price_of
from ragauge.judging.lexical_judge import Lexical
from ragauge.judging.model_judge import Manner, Model
from ragauge.judging.prompts import read, read_word
from ragauge.judging.remote_calls import Elsewhere
from ragauge.judging.reply_cache import Replies, key_of
from ragauge.judging.results import Estimate
from ragauge.judging.tasks import Judge, Reading, Session, Task, Thought, verdicts_of
from ragauge.measures.conventions import Convention
from ragauge.models.chats import open_chat
from ragauge.models.chats.calls import Caller, check_identity
from ragauge.models.embedders import open_embedder

LOCAL_RATES = (500, 20)
"""Tokens per second that a local server is assumed to read and to write: a small model on a CPU."""


class Estimating:
    """A judge that calls no model, but counts the calls without a cached reply.

    A `local` server is free unless it has a price; its time is estimated instead.
    """

    def __init__(self, model: Model, price: Price | None, *, local: bool = False) -> None:
        self._model = model
        self._price = Price(0.0, 0.0) if local and price is None else price
        self._local = local
        self._counts: dict[str, list[int]] = {step: [0, 0, 0] for step in STEPS}
        self._seen: set[str] = set()

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """Identity of the model judge."""
        return self._model.identity

    async def answer(self, task: Task) -> Reading:
        """Return cached verdicts, and placeholders of the right type for the rest."""
        said = {name: _stand_in(task, text) for name, text in task.asked.items()}
        for ask in self._model.first_asks(task):
            kept = self._model.kept(ask)
            if kept is not None:
                found = (read_word if ask.word else read)(ask.task, kept.reply)
                said |= {name: verdict for name, verdict in found.said.items() if task.step == "claims"}
            elif ask.key not in self._seen:
                self._seen.add(ask.key)
                counts = self._counts[task.step]
                for at, more in enumerate((1, *ask.size())):
                    counts[at] += more
        return Reading(said, {})

    def estimates(self) -> list[Estimate]:
        """Return one row per step with uncached calls."""
        found = []
        for step, (calls, prompt, completion) in self._counts.items():
            cost = None if self._price is None else self._price.of(prompt, completion)
            reads, writes = LOCAL_RATES
            seconds = prompt / reads + completion / writes if self._local else None
            found += [Estimate(step, calls, prompt, completion, cost, seconds)] if calls else []
        return found


def _stand_in(task: Task, text: str) -> Any:
    said: dict[str, Any] = {
        "claims": [text],
        "support": Support(()),
        "useful": Usefulness(useful=False),
        "questions": Thought(refusal=False, questions=(text,) * task.n),
    }
    return said[task.step]


TIMEOUT = 60.0
DEFAULT_EMBEDDER = "wordllama"
PART = 64
"""Maximum number of samples that a worker judges per task."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Judging:
    """Settings of judging.

    A field that is None uses the default of the chat model, or no limit.
    """

    convention: str | Convention = "default"
    embedder: str | Embedder | None = None
    """Embedder that compares the question with those generated from the answer; default `wordllama`."""
    questions: int = 3
    """Number of questions that a model generates for each answer."""
    verdicts: str = "json"
    batch: int = 20
    replicate: int = 0
    concurrency: int = 16
    """Maximum number of concurrent calls; reduced if the endpoint is overloaded."""
    timeout: float | None = None
    """Timeout of one attempt in seconds; default 60, or that of the chat model."""
    patience: float = 600.0
    """Timeout of one call with all its attempts, in seconds."""
    retries: int = 5
    max_calls: int | None = None
    """Maximum number of requests of this folder, over all sessions; probes and retries count."""
    max_cost: float | None = None
    """Maximum cost of this folder, over all sessions."""
    prices: Any = None
    """Prices per million tokens, `{model: (input, output)}`, or a TOML file."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the chat model: `temperature`, `seed`, …"""
    answers: str | None = None
    """Table with query and answer, for the samples of a run folder."""
    k: int | None = None
    """Maximum number of contexts per sample."""
    limit: int | None = None
    """Maximum number of samples; the first ones are used."""
    confidence: float = 0.95
    again: bool = False
    """Whether to retry items without a verdict."""
    canaries: bool = False
    """Whether to run prompt-injection tests."""
    name: str | None = None
    """Name of the judged system, for reports."""
    progress: Progress | None = None
    executor: Executor | None = None
    """Executor that calls the chat model or runs the lexical judge; None uses this process."""

    def __post_init__(self) -> None:
        ranges = {"questions": (1, 1000), "concurrency": (1, 10_000), "retries": (0, 1000), "limit": (1, 10**9)}
        for name, (low, high) in ranges.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), low, high)
        for name in ("timeout", "patience"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise BadInput(f"{name} is {seconds:g} seconds")
        if not 0 < self.confidence < 1:
            raise BadInput(f"the confidence is {self.confidence:g}", hint="a share, such as 0.95")


class Office:
    """Resources of judging, opened and closed together."""

    def __init__(self, chat: str | Chat | Judge, folder: str | Path | None, settings: Judging) -> None:
        self._settings = settings
        self.chat = chat
        self._folder = None if folder is None else Path(folder)
        self._embedder: Embedder | None = None
        self._at_a_time = settings.concurrency

    async def __aenter__(self) -> Office:
        settings, chat = self._settings, self.chat
        manner = Manner(settings.verdicts, settings.batch, replicate=settings.replicate, anew=settings.again)
        limits = Limits(settings.max_calls, settings.max_cost)
        prices = as_prices(settings.prices)
        self.price: Price | None = None
        self.judge: Judge
        self._own: list[Any] = []
        if chat == LEXICAL:
            if settings.options or settings.verdicts != "json":
                raise BadInput(
                    "the lexical judge has no options", hint="these are for a model: --chat openai:MODEL@URL"
                )
            self.judge, self.ledger = Lexical(), Ledger()
            self._replies = Replies()
            return self
        if not isinstance(chat, str) and hasattr(chat, "answer"):
            check_identity(chat)
            self.judge, self.ledger = cast(Judge, chat), Ledger()
            self._replies = Replies(self._folder)
            return self
        opening: Callable[[], Chat] = partial(itself, cast(Chat, chat))
        if isinstance(chat, str):
            opening = partial(open_chat, chat, dict(settings.options))
            chat = opening()
            self._own = [chat]
        elif settings.options:
            raise BadInput("options are for a chat that is named", hint="give them to the object itself")
        if not hasattr(chat, "complete"):
            raise BadInput(f"{chat!r} is no chat: it has no `complete`")
        check_identity(chat)
        self.chat = chat
        self.price = price_of(str(chat.identity.get("model", chat.name)), prices)
        Ledger(self.price, limits)  # Reject an unenforceable budget before anything is opened.
        self._replies = Replies(self._folder)
        self.ledger = Ledger(self.price, limits, self._replies.spent())
        timeout: float | None = settings.timeout or getattr(chat, "timeout", TIMEOUT)
        patience = max(settings.patience, getattr(chat, "timeout", 0.0))
        if settings.executor is not None and not getattr(chat, "stays", False):
            self.chat = chat = Elsewhere(
                chat,
                opening,
                settings.executor,
                concurrency=settings.concurrency,
                timeout=timeout or TIMEOUT,
                borrowed=not self._own,
            )
            self._own = [chat, *self._own]
            timeout = None  # the worker's timeout starts with the call
        # A local model handles one call after the other, and each takes its time.
        self._at_a_time = min(settings.concurrency, getattr(chat, "concurrency", settings.concurrency))
        caller = Caller(chat, concurrency=self._at_a_time, timeout=timeout, patience=patience, retries=settings.retries)
        self.judge = Model(caller, self._replies, self.ledger, manner)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._replies.close()
        for one in self._own:
            if inspect.isawaitable(closing := protocols.close(one)):
                await closing

    @property
    def local(self) -> bool:
        """Whether the chat model runs on this machine."""
        return bool(getattr(self.chat, "local", False))

    @property
    def notes(self) -> list[str]:
        """Notes of the chat model, and a note if token counts are estimated."""
        unknown = "the endpoint does not say how many tokens its calls took: they are guessed from their characters"
        return [*getattr(self.chat, "notes", ()), *([unknown] if getattr(self.judge, "guessed", False) else [])]

    @property
    def embedder(self) -> Embedder:
        """Embedder that compares questions, opened on first use."""
        if self._embedder is None:
            self._embedder = open_embedder(self._settings.embedder or DEFAULT_EMBEDDER)
        return self._embedder

    def identity(self, wanted: frozenset[str]) -> dict[str, Any]:
        """Return everything that could change a verdict if these tasks are judged."""
        if isinstance(self.judge, Lexical):
            return dict(self.judge.identity)
        found = {**self.judge.identity, "embedder": self._compares(), "questions": self._settings.questions}
        if isinstance(self.judge, Model):  # the model sees the claims with other sources then
            both = "cross" in wanted or {"answer", "reference"} <= wanted
            found["asked"] = "answer and reference together" if both else "one text at a time"
        return found

    def _compares(self) -> str:
        """Return the name of the embedder.

        Part of the judge's identity even if no task needs it.
        """
        given = self._settings.embedder
        return (given or DEFAULT_EMBEDDER) if given is None or isinstance(given, str) else given.name

    async def verdicts(self, samples: Sequence[Sample], wanted: frozenset[str]) -> dict[str, Verdicts]:
        """Judge samples and return their verdicts by sample id."""
        getattr(self.chat, "ready", lambda: None)()
        if "questions" in wanted and not isinstance(self.judge, Lexical):
            _ = self.embedder  # Find missing dependencies before any paid call.
        return await self._compared(samples, await self._asked(samples, wanted))

    async def _asked(self, samples: Sequence[Sample], wanted: frozenset[str]) -> dict[str, Verdicts]:
        found: dict[str, Verdicts] = {}

        async def one(sample: Sample) -> None:
            found[sample.id] = await verdicts_of(sample, self.judge, wanted, self._settings.questions)
            if self._settings.progress is not None:
                self._settings.progress(len(found), len(samples))

        if self._settings.executor is not None and not isinstance(self.judge, Model):
            return await self._heard(samples, wanted, self._settings.executor)
        try:
            await each(samples, one, self._workers())
        except BackendFailed as failure:
            if self._folder is not None and failure.final:
                kept = "what was said so far is kept: the same command goes on there"
                failure.hint = f"{failure.hint}; {kept}" if failure.hint else kept
            raise
        return {sample.id: found[sample.id] for sample in samples}

    async def _heard(
        self, samples: Sequence[Sample], wanted: frozenset[str], executor: Executor
    ) -> dict[str, Verdicts]:
        """Judge samples with one judge per worker of an executor."""
        opening: Callable[[], Judge] = Lexical if isinstance(self.judge, Lexical) else partial(itself, self.judge)
        room = Room(opening)
        session = Session(room, wanted, self._settings.questions, self._workers())
        errands: Errands[Sequence[Sample], list[Verdicts]] = Errands(executor, session, heavy=True)
        among = lanes(executor)
        size = min(PART, math.ceil(len(samples) / (AHEAD * among)))
        found: dict[str, Verdicts] = {}

        async def one(start: int) -> None:
            part = samples[start : start + size]
            # Labels and metadata must not reach a judge.
            told = await errands([replace(sample, labels={}, metadata={}) for sample in part])
            found.update((verdicts.sample, verdicts) for verdicts in told)
            if self._settings.progress is not None:
                self._settings.progress(len(found), len(samples))

        try:
            await each(range(0, len(samples), size), one, AHEAD * among)
        finally:
            await room.close()
        return {sample.id: found[sample.id] for sample in samples}

    def _workers(self) -> int:
        """Return the number of concurrent samples.

        Few under a budget, so that it pays for complete samples.
        """
        limited = self._settings.max_calls is not None or self._settings.max_cost is not None
        return max(1, self._at_a_time // 4) if limited else 2 * self._at_a_time

    async def _compared(self, samples: Sequence[Sample], found: Mapping[str, Verdicts]) -> dict[str, Verdicts]:
        """Add the similarity of each generated question to the original question."""
        asked = {sample.id: sample.question for sample in samples}
        texts = {text for name, one in found.items() if one.questions for text in (asked[name], *_texts(one))}
        if not texts:
            return dict(found)
        vectors = await self._vectors(sorted(texts))
        return {name: _with_cosines(one, asked[name], vectors) for name, one in found.items()}

    async def _vectors(self, texts: Sequence[str]) -> dict[str, Any]:
        keys = {text: key_of(self.embedder.name, text) for text in texts}
        kept = self._replies.vectors(list(keys.values()))
        left = [text for text in texts if keys[text] not in kept]
        if left:
            rows = await asyncio.to_thread(self.embedder.embed, left)
            fresh = {keys[text]: row for text, row in zip(left, rows, strict=True)}
            self._replies.keep_vectors(fresh)
            kept |= {key: np.asarray(row, np.float64) for key, row in fresh.items()}
        return {text: kept[key] for text, key in keys.items()}


def _texts(verdicts: Verdicts) -> list[str]:
    return [question.text for question in verdicts.questions]


def _with_cosines(verdicts: Verdicts, asked: str, vectors: Mapping[str, Any]) -> Verdicts:
    """Add similarities to verdicts; the questions are unscored if a vector is zero."""
    if not verdicts.questions:
        return verdicts
    cosines = [_cosine(vectors[asked], vectors[one.text]) for one in verdicts.questions]
    if any(map(math.isnan, cosines)):
        why = Unscored(
            "a question has no cosine: the embedder gives it a vector of zeros", json.dumps(_texts(verdicts))
        )
        return replace(verdicts, questions=(), unscored={**verdicts.unscored, "questions": why})
    questions = [Question(one.text, cosine) for one, cosine in zip(verdicts.questions, cosines, strict=True)]
    return replace(verdicts, questions=questions)


def _cosine(one: Any, other: Any) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths > 0 else math.nan
