"""`RAGEvaluator(db)`: how good a database's retrieval is, at one k or at many, and which k is enough."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.measures.conventions import Convention
from ragauge.outcomes import Advice
from ragauge.records import Hit, Scores
from ragauge.runs.execute import Answer, Job, Plan, ask_async
from ragauge.seams import Retriever, is_async
from ragauge.stats.enough import enough, quarter_of_bytes
from ragauge.systems.adapters import as_retriever
from ragauge.verbs import evaluate

MEASURES = ("hit_rate", "mrr", "ndcg", "recall", "precision", "f1", "map")
"""What `evaluate` gives, each at k."""

Metrics = dict[str, float]
CountTokens = Callable[[str], float]


class RAGEvaluator:
    """Evaluates retrieval from a database, or from anything that searches.

    `db` has an async or plain `semantic_search(query, k)`, as `PgVectorDB` has, or searches some other way that
    ragauge understands. Ground truth is a list of `(query, id)`; instead of one id there may be several, or
    `{id: grade}`. A document that comes again in one ranking keeps its place and earns nothing. `workers` queries are
    asked at a time; with more than one, `latency_ms` is that under load.
    """

    def __init__(
        self,
        db: Any = None,
        *,
        workers: int = 1,
        timeout: float | None = None,
        retries: int = 0,
        convention: str | Convention = "default",
    ) -> None:
        self._db = db
        self._how = {"workers": workers, "timeout": timeout, "retries": retries}
        self._convention = convention

    async def evaluate(self, ground_truth: Any, k: int = 5, retrieval_fn: Callable[..., Any] | None = None) -> Metrics:
        """`hit_rate`, `mrr`, `ndcg`, `recall`, `precision`, `f1`, `map` at k; `latency_ms`, `n` and `failed`."""
        metrics: Metrics = (await self.evaluate_k_range(ground_truth, [k], retrieval_fn))[0]["metrics"]
        return metrics

    async def evaluate_k_range(
        self, ground_truth: Any, k_values: Iterable[int], retrieval_fn: Callable[..., Any] | None = None
    ) -> list[dict[str, Any]]:
        """`[{"k": …, "metrics": {…}}]` for each k, from one retrieval at the largest."""
        wanted = _sound(k_values)
        asked = await self._ask(ground_truth, max(wanted), retrieval_fn)
        scores = self._scores(asked, [f"{measure}@{k}" for k in wanted for measure in MEASURES])
        about = {
            "latency_ms": asked.milliseconds(),
            "n": len(asked.grades),
            "failed": sum(one.status != "ok" for one in asked.answers),
        }
        return [
            {"k": k, "metrics": {measure: scores.means[f"{measure}@{k}"] for measure in MEASURES} | about}
            for k in wanted
        ]

    async def recommend_k(
        self,
        ground_truth: Any,
        k_values: Iterable[int] = (1, 3, 5, 10, 20),
        retrieval_fn: Callable[..., Any] | None = None,
        *,
        measure: str = "hit_rate",
        tolerance: float = 0.02,
        confidence: float = 0.95,
        count_tokens: CountTokens | None = None,
    ) -> Advice:
        """The smallest k that is not worse than the best k by more than `tolerance`, with confidence.

        For each k the loss against the best is bootstrapped over queries; k is enough when the upper end of the
        one-sided interval is within the tolerance. With few queries that asks for more documents, not for fewer. Tokens
        are counted in the texts that come back: by `count_tokens`, else a quarter of the bytes.
        """
        wanted = sorted(_sound(k_values))
        asked = await self._ask(ground_truth, max(wanted), retrieval_fn, count_tokens or quarter_of_bytes)
        scores = self._scores(asked, [f"{measure}@{k}" for k in wanted])
        values = {k: scores.values[f"{measure}@{k}"] for k in wanted}
        return enough(values, measure, tolerance, confidence, {k: asked.tokens(k) for k in wanted})

    def _scores(self, asked: _Asked, measures: list[str]) -> Scores:
        scores: Scores = evaluate(asked.grades, asked.rankings(), measures, self._convention)
        return scores

    async def _ask(
        self, ground_truth: Any, k: int, retrieval_fn: Callable[..., Any] | None, count: CountTokens | None = None
    ) -> _Asked:
        texts, grades = read_ground_truth(ground_truth)
        retriever = self._retriever(retrieval_fn)
        listening = _Listening(retriever, count)
        asked = _Asked(grades, [], listening.tokens)
        jobs = [Job(query, text, 0) for query, text in texts.items()]
        await ask_async(listening, jobs, Plan(k=k, **self._how), asked.answers.append)  # type: ignore[arg-type]
        return asked

    def _retriever(self, retrieval_fn: Callable[..., Any] | None) -> Retriever:
        if retrieval_fn is not None:
            return as_retriever(retrieval_fn)
        if self._db is None:
            raise BadInput("there is nothing to search", hint="RAGEvaluator(db), or retrieval_fn=…")
        method = getattr(self._db, "semantic_search", None)
        return as_retriever(self._db if method is None else _with_k(method))


def _with_k(function: Callable[..., Any]) -> Any:
    """The function called as `(query, k=k)`: the second parameter of a database's search is not always k."""
    if inspect.iscoroutinefunction(function):

        async def later(query: str, k: int) -> Any:
            return await function(query, k=k)

        return later
    return lambda query, k: function(query, k=k)


class _Listening:
    """A retriever that is listened to: how many tokens each returned text has."""

    def __init__(self, retriever: Retriever, count: CountTokens | None) -> None:
        self._retriever = retriever
        self._count = count
        self.asynchronous = is_async(retriever)
        self.tokens: dict[str, list[float]] = {}

    def search(self, query: str, k: int) -> Sequence[Hit] | Awaitable[Sequence[Hit]]:
        found = self._retriever.search(query, k)
        if inspect.isawaitable(found):
            return self._later(query, found)
        return self._heard(query, found)

    async def _later(self, query: str, found: Awaitable[Sequence[Hit]]) -> Sequence[Hit]:
        return self._heard(query, await found)

    def _heard(self, query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        if self._count is not None:
            self.tokens[query] = [self._count(hit.text) for hit in hits]
        return hits


@dataclass(frozen=True)
class _Asked:
    grades: Mapping[str, Mapping[str, float]]
    answers: list[Answer]
    counted: Mapping[str, list[float]]

    def rankings(self) -> dict[str, dict[str, float]]:
        """The order of return as scores; a document that comes again holds its place under a name of its own."""
        runs: dict[str, dict[str, float]] = {query: {} for query in self.grades}
        for one in self.answers:
            ranked = runs[one.query]
            for place, doc in enumerate(one.docs, 1):
                ranked[doc if doc not in ranked else f"{doc}\0again {place}"] = -float(place)
        return runs

    def milliseconds(self) -> float:
        """The mean time of the queries that somebody waited for; an error that comes at once is not fast."""
        waited = [one.total for one in self.answers if one.status != "error"]
        return float(np.mean(waited)) / 1e6 if waited else math.nan

    def tokens(self, k: int) -> float:
        """The mean number of tokens of the first k texts."""
        if not self.counted:
            return math.nan
        return float(np.mean([sum(tokens[:k]) for tokens in self.counted.values()]))


def read_ground_truth(ground_truth: Any) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    """Texts and grades of queries from `[(query, id)]`, `[(query, [ids])]`, `[(query, {id: grade})]` or a mapping.

    The same question twice is one question with both answers.

    >>> read_ground_truth([("How?", "a"), ("How?", "b"), ("Why?", {"c": 2})])[1]
    {'q1': {'a': 1.0, 'b': 1.0}, 'q2': {'c': 2.0}}
    """
    pairs = list(ground_truth.items()) if isinstance(ground_truth, Mapping) else list(ground_truth)
    names: dict[str, str] = {}
    grades: dict[str, dict[str, float]] = {}
    for at, pair in enumerate(pairs, 1):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadInput(f"ground truth {at} is {pair!r}", hint='("How do I reset my password?", "doc_12")')
        text, right = pair
        mine = grades.setdefault(names.setdefault(text, f"q{len(names) + 1}"), {})
        graded = (
            right
            if isinstance(right, Mapping)
            else dict.fromkeys([right] if isinstance(right, str | int) else right, 1.0)
        )
        for doc, grade in graded.items():
            mine[str(doc)] = max(float(grade), mine.get(str(doc), float(grade)))
    if not grades:
        raise BadInput("the ground truth is empty", hint='[("How do I reset my password?", "doc_12")]')
    return {name: text for text, name in names.items()}, grades


def _sound(k_values: Iterable[int]) -> list[int]:
    wanted = [int(k) for k in k_values]
    if not wanted or min(wanted) < 1:
        raise BadInput(f"k cannot be {wanted}", hint="k_values=[1, 3, 5, 10]")
    return wanted
