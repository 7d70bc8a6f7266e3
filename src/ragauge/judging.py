"""judge: samples in, verdicts out, and what they count to. Asking is apart from counting, which costs nothing."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ragauge import seams
from ragauge.errors import BackendFailed, BadInput
from ragauge.formats.samples import samples_of
from ragauge.formats.settings import as_record
from ragauge.judged_files import write_folder
from ragauge.judges.calls import Caller
from ragauge.judges.canaries import attempts
from ragauge.judges.chats.naming import open_chat
from ragauge.judges.estimating import Estimating
from ragauge.judges.hearing import verdicts_of
from ragauge.judges.ledger import Ledger, Limits, Price, price_of
from ragauge.judges.lexical import Lexical
from ragauge.judges.model import Manner, Model
from ragauge.judges.prices import as_prices
from ragauge.judges.replies import FILE, Replies, key_of
from ragauge.judges.tasks import Judge
from ragauge.judges.together import each
from ragauge.measures.answers import MAIN, asks, check_evidence, parse_all, score
from ragauge.measures.conventions import Convention, convention
from ragauge.records import Scores
from ragauge.runs.manifest import circumstances, now
from ragauge.runs.perform import in_a_loop
from ragauge.seams import Chat, Embedder
from ragauge.stats.intervals import mean_intervals
from ragauge.systems.building import open_embedder
from ragauge.verdicts import Estimate, Judged, Question, Sample, Unscored, Verdicts

LEXICAL = "lexical"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Judging:
    """How samples are judged. What is None is left to the chat, or to nobody."""

    convention: str | Convention = "default"
    embedder: str | Embedder | None = None
    """What compares questions: `wordllama` where a model thinks them up, `words` beside the lexical judge."""
    questions: int = 3
    """So many are thought up for each answer."""
    verdicts: str = "json"
    batch: int = 20
    replicate: int = 0
    concurrency: int = 16
    """The most calls at a time; fewer where the endpoint says that it is too much."""
    timeout: float = 60.0
    """Seconds for one attempt."""
    patience: float = 600.0
    """Seconds for one call with all its attempts."""
    retries: int = 5
    max_calls: int | None = None
    max_cost: float | None = None
    """The most that this folder may come to, over all sessions."""
    prices: Any = None
    """`{model: (input, output)}` for a million tokens, or a TOML file that says so."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the chat: `temperature`, `seed`, …"""
    limit: int | None = None
    """The first so many samples only."""
    confidence: float = 0.95
    again: bool = False
    """Ask again for what has no verdict."""
    canaries: bool = False
    """Also try to talk the judge into verdicts, and see whether it can be."""
    name: str | None = None
    """What is judged, for reports."""
    progress: Progress | None = None

    def __post_init__(self) -> None:
        for name, least in (("questions", 1), ("concurrency", 1), ("retries", 0), ("limit", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadInput(f"{name} is {value}, not at least {least}")
        for name in ("timeout", "patience"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} is {getattr(self, name):g} seconds")
        if not 0 < self.confidence < 1:
            raise BadInput(f"the confidence is {self.confidence:g}", hint="a share, such as 0.95")


def judge(
    samples: Any,
    measures: Sequence[str] = MAIN,
    *,
    chat: str | Chat | Judge = LEXICAL,
    folder: str | Path | None = None,
    **how: Any,
) -> Judged:
    """Judge answers and count the verdicts.

    `samples` is a file, a list of Samples or mappings, or what ragas and deepeval have. `chat` is `lexical`,
    `openai:MODEL@URL`, `local:FILE.gguf`, `replay:FILE`, or an object with `complete`. With a `folder` every reply is
    kept there at once, so that the same call goes on where the last one stopped, and verdicts, scores and a report are
    written at the end. Further settings are those of `Judging`. Inside a running event loop it works too; `judge_async`
    is for those who would rather await it.
    """
    return in_a_loop(judge_async(samples, measures, chat=chat, folder=folder, **how))


async def judge_async(
    samples: Any,
    measures: Sequence[str] = MAIN,
    *,
    chat: str | Chat | Judge = LEXICAL,
    folder: str | Path | None = None,
    **how: Any,
) -> Judged:
    """The same, to be awaited."""
    found = await heard(samples, measures, chat=chat, folder=folder, **how)
    if folder is None:
        return found
    _, missing = await asyncio.to_thread(write_folder, found, folder)
    return replace(found, notes=[*found.notes, *missing])


def hear(samples: Any, measures: Sequence[str] = MAIN, **how: Any) -> Judged:
    """The same as `judge`, but that nothing is written besides replies: for whoever has another use for the rest."""
    return in_a_loop(heard(samples, measures, **how))


async def heard(
    samples: Any,
    measures: Sequence[str] = MAIN,
    *,
    chat: str | Chat | Judge = LEXICAL,
    folder: str | Path | None = None,
    **how: Any,
) -> Judged:
    """The same, to be awaited."""
    settings = as_record(Judging, how)
    rules = convention(settings.convention)
    chosen = parse_all(measures, rules)
    given = _samples(samples, settings)
    check_evidence(chosen, given)
    async with _Office(chat, folder, settings) as office:
        verdicts = await office.verdicts(given, asks(chosen))
        canaries = await attempts(office.judge, settings.questions) if settings.canaries else ()
        identity = office.identity(chosen)
        name = f"{office.judge.name} [{key_of(identity)[:8]}]"
        scores = score(given, verdicts, chosen, rules, run=settings.name or _name_of(samples), judge=name)
        return Judged(
            name=scores.run,
            judge=name,
            identity=identity,
            samples=given,
            verdicts=verdicts,
            scores=scores,
            intervals=_intervals(scores, settings.confidence),
            confidence=settings.confidence,
            ledger=office.ledger.steps(),
            robustness=canaries,
            stopped=getattr(office.judge, "stopped", ""),
            notes=[*scores.notes, *office.notes, *_fewer(samples, given)],
            circumstances={"made": now(), **circumstances()},
            folder=None if folder is None else Path(folder),
        )


def estimate(
    samples: Any,
    measures: Sequence[str] = MAIN,
    *,
    chat: str | Chat | Judge = LEXICAL,
    folder: str | Path | None = None,
    **how: Any,
) -> list[Estimate]:
    """What judging would take: calls, tokens and cost of each step, less what is kept already. Nothing is asked.

    Claims are not known before they are asked for, so each sentence counts as one; a token is a quarter of a word's
    characters. The lexical judge makes no calls.
    """
    settings = as_record(Judging, how)
    chosen = parse_all(measures, convention(settings.convention))
    given = _samples(samples, settings)
    check_evidence(chosen, given)
    there = folder if folder is not None and (Path(folder) / FILE).is_file() else None

    async def work() -> list[Estimate]:
        async with _Office(chat, there, settings) as office:
            if not isinstance(office.judge, Model):
                return []
            counting = Estimating(office.judge, office.price)
            for sample in given:
                await verdicts_of(sample, counting, asks(chosen), settings.questions)
            return counting.estimates()

    return in_a_loop(work())


class _Office:
    """Everything that judging needs, opened together and closed together."""

    def __init__(self, chat: str | Chat | Judge, folder: str | Path | None, settings: Judging) -> None:
        self._settings = settings
        self.chat = chat
        self._folder = None if folder is None else Path(folder)
        self._embedder: Embedder | None = None

    async def __aenter__(self) -> _Office:
        settings, chat = self._settings, self.chat
        manner = Manner(settings.verdicts, settings.batch, replicate=settings.replicate, anew=settings.again)
        limits = Limits(settings.max_calls, settings.max_cost)
        prices = as_prices(settings.prices)
        self.price: Price | None = None
        self.judge: Judge
        self._own: Any = None
        if chat == LEXICAL:
            self.judge, self.ledger = Lexical(), Ledger(self.price, Limits(settings.max_calls))
            self._replies = Replies()
            return self
        if not isinstance(chat, str) and hasattr(chat, "answer"):
            self.judge, self.ledger = cast(Judge, chat), Ledger()
            self._replies = Replies(self._folder)
            return self
        if isinstance(chat, str):
            # Tokens need their probabilities; a chat that cannot give any says so by its options.
            wants = {"logprobs": True} if settings.verdicts == "tokens" and chat.startswith(("openai", "local")) else {}
            self._own = self.chat = chat = open_chat(chat, {**wants, **settings.options})
        elif settings.options:
            raise BadInput("options are for a chat that is named", hint="give them to the object itself")
        if not hasattr(chat, "complete"):
            raise BadInput(f"{chat!r} is no chat: it has no `complete`")
        try:
            key_of(dict(chat.identity))
        except (TypeError, ValueError) as error:
            raise BadInput(f"the identity of `{chat.name}` is no JSON: {error}", hint="texts and numbers") from None
        self.price = price_of(str(chat.identity.get("model", chat.name)), prices)
        Ledger(self.price, limits)  # refuses what cannot be limited before anything is opened
        self._replies = Replies(self._folder)
        self.ledger = Ledger(self.price, limits, self._replies.spent())
        caller = Caller(
            chat,
            concurrency=settings.concurrency,
            timeout=settings.timeout,
            patience=settings.patience,
            retries=settings.retries,
        )
        self.judge = Model(caller, self._replies, self.ledger, manner)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._replies.close()
        closing = seams.close(self._own)
        if inspect.isawaitable(closing):
            await closing

    @property
    def notes(self) -> list[str]:
        """What the chat has to say, and what is not known of it."""
        unknown = "the endpoint does not say how many tokens its calls took: they are guessed from their characters"
        return [*getattr(self.chat, "notes", ()), *([unknown] if getattr(self.judge, "guessed", False) else [])]

    @property
    def embedder(self) -> Embedder:
        """What compares questions."""
        if self._embedder is None:
            self._embedder = open_embedder(self._settings.embedder or self._default_embedder)
        return self._embedder

    @property
    def _default_embedder(self) -> str:
        return "words" if isinstance(self.judge, Lexical) else "wordllama"

    def identity(self, chosen: Sequence[Any]) -> dict[str, Any]:
        """Whatever could change a verdict, for these measures."""
        wanted = asks(chosen)
        found = {**self.judge.identity, "embedder": self._compares(), "questions": self._settings.questions}
        if isinstance(self.judge, Model):  # a model sees the same claims beside other sources then
            both = "cross" in wanted or {"answer", "reference"} <= wanted
            found["asked"] = "answer and reference together" if both else "one text at a time"
        return found

    def _compares(self) -> str:
        """What compares questions, by name: whether it was needed or not, the judge is the same."""
        given = self._settings.embedder
        return (given or self._default_embedder) if given is None or isinstance(given, str) else given.name

    async def verdicts(self, samples: Sequence[Sample], wanted: frozenset[str]) -> dict[str, Verdicts]:
        """What the judge says of each sample."""
        if "questions" in wanted:
            _ = self.embedder  # what is missing is found before anything is paid for
        return await self._compared(samples, await self._asked(samples, wanted))

    async def _asked(self, samples: Sequence[Sample], wanted: frozenset[str]) -> dict[str, Verdicts]:
        found: dict[str, Verdicts] = {}

        async def one(sample: Sample) -> None:
            found[sample.id] = await verdicts_of(sample, self.judge, wanted, self._settings.questions)
            if self._settings.progress is not None:
                self._settings.progress(len(found), len(samples))

        try:
            await each(samples, one, 2 * self._settings.concurrency)
        except BackendFailed as failure:
            if self._folder is not None and failure.final:
                kept = "what was said so far is kept: the same command goes on there"
                failure.hint = f"{failure.hint}; {kept}" if failure.hint else kept
            raise
        return {sample.id: found[sample.id] for sample in samples}

    async def _compared(self, samples: Sequence[Sample], found: Mapping[str, Verdicts]) -> dict[str, Verdicts]:
        """The same with the cosine of each question that was thought up and the one that was asked."""
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
    """The same with cosines; a text that has no direction has no cosine, and the sample no verdict."""
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


def _intervals(scores: Scores, confidence: float) -> dict[str, tuple[float, float]]:
    lows, highs = mean_intervals(np.column_stack(list(scores.values.values())), confidence).tolist()
    ends = zip(scores.values, lows, highs, strict=True)
    return {name: (low, high) for name, low, high in ends if not math.isnan(low)}


def _samples(samples: Any, settings: Judging) -> list[Sample]:
    given = samples_of(samples)
    if not given:
        raise BadInput("there are no samples")
    return given[: settings.limit]


def _fewer(samples: Any, given: Sequence[Sample]) -> list[str]:
    """That not all samples were judged, where only some were wanted."""
    there = len(samples_of(samples))
    return [f"only the first {len(given):,} of {there:,} samples were judged"] if len(given) < there else []


def _name_of(samples: Any) -> str:
    return Path(samples).name.partition(".")[0] if isinstance(samples, str | Path) else "answers"
