"""Evaluate the retrieval of a database at one or more k, and recommend a k."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.errors import BackendFailed, BadInput, describe_failures
from ragauge.core.findings import Note
from ragauge.core.protocols import Retriever, is_async
from ragauge.core.records import Run, Scores
from ragauge.datasets.query_sets import describe_repeated, list_pairs, parse_ground_truth
from ragauge.evaluation.evaluate import evaluate
from ragauge.evaluation.indicators import measure_range
from ragauge.measures.conventions import Convention
from ragauge.runs.execution import QueryTask, RunSettings, run_queries_async
from ragauge.runs.folder import build_run
from ragauge.runs.results import QueryResult
from ragauge.runs.returned_ids import ID_HINT, ReturnedIds
from ragauge.stats.smallest_k import SmallestK, estimate_tokens, smallest_k
from ragauge.systems.adapters import AdaptedRetriever, as_retriever, check_signature

EVALUATED_MEASURES = ("hit_rate", "mrr", "ndcg", "recall", "precision", "f1", "map")
"""Measures that `RAGEvaluator.evaluate` returns, each at k."""

CountTokens = Callable[[str], float]


class MeasuresAtK(dict[str, float]):
    """Measures by name at one k, with the errors of the queries that failed."""

    def __init__(self, values: Mapping[str, float], failures: Mapping[str, str], notes: Sequence[str] = ()) -> None:
        super().__init__(values)
        self.failures = dict(failures)
        """`{query: error}` of the queries that failed; each counts as an empty ranking."""
        self.notes = list(notes)
        """Limits of the values: ids missing from the ground truth or the database, and repeated queries."""

    def __repr__(self) -> str:
        failed = describe_failures(self.failures, int(self["n"]))
        return "; ".join([repr(dict(self)), *([failed] if failed else []), *self.notes])


class RAGEvaluator:
    """Evaluator of retrieval from a database or any other supported retriever.

    `db` has an async or plain `semantic_search(query, k)`, as `PgVectorDB` has, or another search interface that
    ragauge supports. Ground truth is a list of `(query, id)`; instead of one id, a list of ids or `{id: grade}` is
    accepted. A document that is repeated in a ranking scores once, at its first rank, and later ones keep their rank;
    the convention's option `unit=document` counts distinct documents. `workers` is the number of concurrent queries;
    with more than one, `latency_ms` is measured under load. If every query fails, BackendFailed is raised, unless
    `allow_failures` is set.
    """

    def __init__(
        self,
        db: Any = None,
        *,
        workers: int = 1,
        timeout: float | None = None,
        retries: int = 0,
        convention: str | Convention = "default",
        allow_failures: bool = False,
    ) -> None:
        self._db = db
        self._allow_failures = allow_failures
        self._how = {"workers": workers, "timeout": timeout, "retries": retries}
        self._convention = convention

    async def evaluate(
        self, ground_truth: Any, k: int = 5, retrieval_fn: Callable[..., Any] | None = None
    ) -> MeasuresAtK:
        """Compute the measures at k, with `latency_ms`, `n` and `failed`.

        The measures are `hit_rate`, `mrr`, `ndcg`, `recall`, `precision`, `f1` and `map`. `failures` of the result
        has the errors of the failed queries.
        """
        metrics: MeasuresAtK = (await self.evaluate_k_range(ground_truth, [k], retrieval_fn))[0]["metrics"]
        return metrics

    async def evaluate_k_range(
        self, ground_truth: Any, k_values: Iterable[int], retrieval_fn: Callable[..., Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return `[{"k": …, "retrieved_k": …, "metrics": {…}}]` for each k.

        Each k is retrieved separately, with its own latency. A system or function with `nested_rankings = True` is
        queried once, at the largest k, which is then `retrieved_k`.
        """
        checked_ks = _check_k_values(k_values)
        pairs = list_pairs(ground_truth)
        retrievals = await self._retrieve_for_each_k(pairs, checked_ks, retrieval_fn)
        notes = [*describe_repeated(pairs), *self._describe_missing(retrievals.values())]
        return [
            {"k": k, "retrieved_k": retrievals[k].k, "metrics": self._measures_at_k(retrievals[k], k, notes)}
            for k in checked_ks
        ]

    def _describe_missing(self, retrievals: Iterable[_RetrievalAtK]) -> list[str]:
        """Name the relevant ids that the database lacks, if it supports `id in db`."""
        if not hasattr(type(self._db), "__contains__"):
            return []
        retrieval_list = list(retrievals)
        relevant = {doc: None for docs in retrieval_list[0].grades.values() for doc, grade in docs.items() if grade > 0}
        returned = {doc for retrieval in retrieval_list for answer in retrieval.results for doc in answer.docs}
        missing = [doc for doc in relevant if doc not in returned and doc not in self._db]
        if not missing:
            return []
        verb = "is" if len(missing) == 1 else "are"
        examples = ", ".join(f"`{doc[:80]}`" for doc in missing[:3]) + (", …" if len(missing) > 3 else "")
        return [f"{len(missing):,} of {len(relevant):,} relevant ids {verb} not in the database: {examples}"]

    def _measures_at_k(self, retrieval: _RetrievalAtK, k: int, notes: list[str]) -> MeasuresAtK:
        scores = self._score_rankings(retrieval, [f"{measure}@{k}" for measure in EVALUATED_MEASURES])
        returned = ReturnedIds.count(retrieval.results, [], retrieval.grades)
        notes = [*notes, *([f"{returned.describe()}; {ID_HINT}"] if returned.unknown else [])]
        notes += _list_query_notes(scores)
        if retrieval.k != k:
            notes.append(f"computed from one retrieval at k={retrieval.k}, because the system declares nested rankings")
        about = {"latency_ms": retrieval.milliseconds(), "n": len(retrieval.grades), "failed": len(retrieval.failures)}
        return MeasuresAtK(
            {measure: scores.means[f"{measure}@{k}"] for measure in EVALUATED_MEASURES} | about,
            retrieval.failures,
            notes,
        )

    async def recommend_k(  # noqa: PLR0913 - each is an option
        self,
        ground_truth: Any,
        k_values: Iterable[int] = (1, 3, 5, 10, 20),
        retrieval_fn: Callable[..., Any] | None = None,
        *,
        measure: str = "hit_rate",
        tolerance: float = 0.02,
        confidence: float = 0.95,
        count_tokens: CountTokens | None = None,
        at_least: float | None = None,
        token_price: float | None = None,
    ) -> SmallestK:
        """Find the smallest k that is at most `tolerance` worse than the best k.

        k is sufficient if the upper confidence bound of its loss against the best k is within the tolerance, so few
        queries lead to a larger k. `at_least` also finds the smallest k whose score is at least that. `token_price`
        is in dollars per million tokens. If the measure still rises at
        the largest k, `k` is None. Tokens are counted in the returned texts by `count_tokens`, or estimated as a
        quarter of the bytes. Each k is retrieved separately, unless the system declares nested rankings.
        """
        checked_ks = sorted(_check_k_values(k_values))
        retrievals = await self._retrieve_for_each_k(
            list_pairs(ground_truth), checked_ks, retrieval_fn, count_tokens or estimate_tokens
        )
        names = {k: f"{measure}@{k}" for k in checked_ks}
        scores = {k: self._score_rankings(retrievals[k], [name]) for k, name in names.items()}
        values = {k: scores[k].values[name] for k, name in names.items()}
        tokens = {k: retrievals[k].tokens(k) for k in checked_ks}
        bounds = measure_range(measure, values.values())
        advice = smallest_k(values, measure, tolerance, confidence, tokens, bounds, at_least, token_price)
        failures = {query: error for retrieval in retrievals.values() for query, error in retrieval.failures.items()}
        failed = describe_failures(failures, len(retrievals[checked_ks[0]].grades))
        notes = [*self._describe_missing(retrievals.values()), *_list_query_notes(scores[checked_ks[-1]])]
        return replace(advice, notes=[*([failed] if failed else []), *notes])

    def _score_rankings(self, retrieval: _RetrievalAtK, measures: list[str]) -> Scores:
        scores: Scores = evaluate(retrieval.grades, retrieval.run(), measures, self._convention)
        return scores

    async def _retrieve_for_each_k(
        self,
        ground_truth: Any,
        ks: Sequence[int],
        retrieval_fn: Callable[..., Any] | None,
        count: CountTokens | None = None,
    ) -> dict[int, _RetrievalAtK]:
        """Retrieve for each k, or only at the largest if rankings are nested."""
        searched = self._db if retrieval_fn is None else retrieval_fn
        if getattr(searched, "nested_rankings", False):
            return dict.fromkeys(ks, await self._retrieve_at_k(ground_truth, max(ks), retrieval_fn, count))
        return {k: await self._retrieve_at_k(ground_truth, k, retrieval_fn, count) for k in ks}

    async def _retrieve_at_k(
        self, ground_truth: Any, k: int, retrieval_fn: Callable[..., Any] | None, count: CountTokens | None = None
    ) -> _RetrievalAtK:
        texts, grades = parse_ground_truth(ground_truth)
        retriever = self._resolve_retriever(retrieval_fn)
        retriever.refuse_none = True
        counting_retriever = TokenCountingRetriever(retriever, count)
        retrieval = _RetrievalAtK(k, texts, grades, [], counting_retriever.tokens)
        jobs = [QueryTask(query, text, 0) for query, text in texts.items()]
        await run_queries_async(counting_retriever, jobs, RunSettings(k=k, **self._how), retrieval.results.append)  # type: ignore[arg-type]
        if len(retrieval.failures) == len(jobs) and not self._allow_failures:
            hint = "fix the system, or pass allow_failures=True to RAGEvaluator to score failed queries as 0"
            raise BackendFailed(describe_failures(retrieval.failures, len(jobs), scored=False), hint=hint)
        return retrieval

    def _resolve_retriever(self, retrieval_fn: Callable[..., Any] | None) -> AdaptedRetriever:
        if retrieval_fn is not None:
            return as_retriever(retrieval_fn)
        if self._db is None:
            raise BadInput("no database or retrieval function given", hint="RAGEvaluator(db), or retrieval_fn=…")
        method = getattr(self._db, "semantic_search", None)
        if method is not None:
            check_signature(method, "", options={"k": 1})
        return as_retriever(self._db if method is None else _pass_k_by_keyword(method))


def _pass_k_by_keyword(function: Callable[..., Any]) -> Any:
    """Wrap a search function to pass k by keyword.

    Its second parameter is not always k.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(query: str, k: int) -> Any:
            return await function(query, k=k)

        return later

    @functools.wraps(function)
    def search(query: str, k: int) -> Any:
        return function(query, k=k)

    return search


class TokenCountingRetriever:
    def __init__(self, retriever: Retriever, count: CountTokens | None) -> None:
        self._retriever = retriever
        self._count = count
        self.asynchronous = is_async(retriever)
        self.tokens: dict[str, list[float]] = {}

    def search(self, query: str, k: int) -> Sequence[Hit] | Awaitable[Sequence[Hit]]:
        """Search, and count the tokens of the returned texts."""
        hits = self._retriever.search(query, k)
        if inspect.isawaitable(hits):
            return self._count_tokens_async(query, hits)
        return self._count_tokens(query, hits)

    async def _count_tokens_async(self, query: str, hits: Awaitable[Sequence[Hit]]) -> Sequence[Hit]:
        return self._count_tokens(query, await hits)

    def _count_tokens(self, query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        if self._count is not None:
            self.tokens[query] = [self._count(hit.text) for hit in hits]
        return hits


@dataclass(frozen=True)
class _RetrievalAtK:
    k: int
    """Number of documents requested per query."""
    texts: Mapping[str, str]
    grades: Mapping[str, Mapping[str, float]]
    results: list[QueryResult]
    token_counts: Mapping[str, list[float]]

    @functools.cached_property
    def failures(self) -> dict[str, str]:
        """`{query text: error}` of the queries that failed."""
        return {self.texts[query.query]: query.error for query in self.results if query.status != "ok"}

    def run(self) -> Run:
        """Return the rankings as a run."""
        return build_run("run", self.results, {"plan": {"k": self.k}})

    def milliseconds(self) -> float:
        """Return the mean latency in ms of queries without an error.

        Timeouts are included, errors may return early.
        """
        waited = [query.total for query in self.results if query.status != "error"]
        return float(np.mean(waited)) / 1e6 if waited else math.nan

    def tokens(self, k: int) -> float:
        """Return the mean number of tokens in the first k texts of a query.

        Returns NaN if they were not counted.
        """
        if not self.token_counts:
            return math.nan
        return float(np.mean([sum(tokens[:k]) for tokens in self.token_counts.values()]))


def _list_query_notes(scores: Scores) -> list[str]:
    """Return the notes on queries that count 0 or are left out, and on repeated documents."""
    return [note.text for note in scores.notes if isinstance(note, Note) and note.code]


def _check_k_values(k_values: Iterable[int]) -> list[int]:
    values = [int(k) for k in k_values]
    if not values or min(values) < 1:
        raise BadInput(f"k cannot be {values}", hint="k_values=[1, 3, 5, 10]")
    return values
