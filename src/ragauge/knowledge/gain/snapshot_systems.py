"""Systems built on snapshots of a corpus to run the same queries on each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Retriever
from ragauge.core.records import Dataset, Judgments
from ragauge.core.specs import Spec, parse_spec
from ragauge.datasets.queries import self_documents
from ragauge.files.workspace import cache_folder
from ragauge.runs.execution import QueryTask, RunSettings, run_queries, run_system
from ragauge.runs.results import QueryResult
from ragauge.systems.adapters import as_retriever
from ragauge.systems.bm25 import BM25
from ragauge.systems.builder import SystemBuilder

SnapshotRanking = tuple[str, ...]
OTHER_WORD = "\0"
"""Placeholder for all words that are not in a query; it is not a word of any text."""


@dataclass(frozen=True)
class SnapshotResults:
    """Rankings of all queries on one snapshot."""

    rankings: Mapping[str, SnapshotRanking]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Errors by query."""
    seconds: float = 0.0
    """Time in seconds to build the system and run the queries."""


@dataclass(frozen=True, eq=False)
class SnapshotRunner:
    """System description and the queries run on every snapshot."""

    system: Any
    """Description, or a function from documents to an object that searches."""
    queries: Mapping[str, str]
    judgments: Judgments
    workers: int = 1
    timeout: float | None = None
    progress: ProgressCallback = no_progress

    def check(self) -> None:
        """Raise for unknown names in the description before anything is built."""
        if isinstance(self.system, str):
            SystemBuilder([]).check(self.system)

    @property
    def spec(self) -> Spec | None:
        """Parsed description; None if the system is a function."""
        return parse_spec(self.system) if isinstance(self.system, str) else None

    @property
    def is_removal_exact(self) -> bool:
        """Whether removing documents from a ranking is exact.

        If so, the result equals that of a system built without them. True if a document's score depends on that
        document alone, and all documents are compared.
        """
        spec = self.spec
        store = spec.options.get("store", "exact") if spec else None
        return (
            spec is not None and spec.name == "dense" and (store.name if isinstance(store, Spec) else store) == "exact"
        )

    def find_self_documents(self, documents: Sequence[Document]) -> frozenset[str]:
        """Return the queries that are documents themselves.

        Each is left out of its own ranking.
        """
        return self_documents(Dataset("", documents, self.queries, self.judgments), self.queries)

    def run_on_snapshot(self, documents: Sequence[Document], k: int, name: str) -> SnapshotResults:
        """Run the queries on the system built on these documents."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Retriever]:
            if not isinstance(self.system, str):
                yield as_retriever(self.system(documents))
                return
            builder = SystemBuilder(documents, cache=cache_folder())
            progress = scoped(self.progress, subject=name, action="embedding documents")
            try:
                async with builder.open(self.system, progress) as retriever:
                    # Queries may run after this context ends, so the system is closed by the caller.
                    yield retriever
            finally:
                closers.append(builder.close)

        closers: list[Callable[[], None]] = []
        try:
            return self._run_queries(opened, self.find_self_documents(documents), k, name)
        finally:
            for close in closers:
                close()

    def run_retriever(self, retriever: Any, documents: Sequence[Document], k: int, name: str) -> SnapshotResults:
        """Run the queries on a retriever given by the user."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Retriever]:
            yield as_retriever(retriever)

        return self._run_queries(opened, self.find_self_documents(documents), k, name)

    def _run_queries(
        self, opened: Callable[[], AbstractAsyncContextManager[Retriever]], self_ids: frozenset[str], k: int, name: str
    ) -> SnapshotResults:
        began = time.perf_counter()
        answers: list[QueryResult] = []

        def keep(answer: QueryResult) -> None:
            answers.append(answer)
            self.progress(Progress("running queries", len(answers), len(jobs), subject=name))

        plan = RunSettings(k=k + bool(self_ids), warmup=0, workers=self.workers, timeout=self.timeout)
        jobs = [QueryTask(query, text, 0) for query, text in self.queries.items()]
        self.progress(Progress("building", subject=name))
        run_system(opened, jobs, plan, [], keep)
        results = collect_rankings(answers, self_ids, k)
        if results.failed and len(results.failed) == len(jobs):
            query, why = next(iter(results.failed.items()))
            raise BackendFailed(f"{name}: every query failed, the first ({query}) with: {why}")
        return replace(results, seconds=time.perf_counter() - began)


def collect_rankings(answers: Sequence[QueryResult], self_ids: frozenset[str], k: int) -> SnapshotResults:
    """Collect rankings without duplicates and without the query itself."""
    rankings, failed = {}, {}
    for query in answers:
        docs = [doc for doc in dict.fromkeys(query.docs) if not (query.query in self_ids and doc == query.query)]
        rankings[query.query] = tuple(docs[:k])
        if query.status != "ok":
            failed[query.query] = query.error
    return SnapshotResults(rankings, failed)


class LeaveOneOutBM25:
    """BM25 over all documents but one, with the scores of a rebuilt index.

    It is faster than a rebuild. A score depends only on document lengths and on the query words. Texts are therefore
    tokenized once, and all other words are replaced by one placeholder. This changes neither lengths nor scores.
    """

    def __init__(self, runner: SnapshotRunner, documents: Sequence[Document], k: int) -> None:
        self._documents = documents
        self._self_ids = runner.find_self_documents(documents)
        self._jobs = [QueryTask(query, text, 0) for query, text in runner.queries.items()]
        self._plan = RunSettings(k=k + bool(self._self_ids), warmup=0)
        self._k = k
        options = dict(runner.spec.options) if runner.spec else {}
        tokenize = BM25([], **options)._words  # tokenized exactly as by the system itself
        query_words = {word for text in runner.queries.values() for word in tokenize(text)}
        words_by_text: dict[str, list[str]] = {text: tokenize(text) for text in runner.queries.values()}
        for document in documents:
            words_by_text[document.whole] = [
                word if word in query_words else OTHER_WORD for word in tokenize(document.whole)
            ]

        class PretokenizedBM25(BM25):
            def _words(self, text: str) -> list[str]:
                return words_by_text[text]

        self._build: Callable[[Sequence[Document]], BM25] = lambda subset: PretokenizedBM25(subset, **options)

    def run_without(self, left_out: str) -> SnapshotResults:
        """Run the queries without this document."""
        retriever = self._build([document for document in self._documents if document.id != left_out])
        answers: list[QueryResult] = []
        run_queries(retriever, self._jobs, self._plan, answers.append)
        return collect_rankings(answers, self._self_ids, self._k)


def leave_one_out(
    runner: SnapshotRunner, documents: Sequence[Document], left_out: Sequence[str], k: int
) -> Iterator[tuple[str, SnapshotResults]]:
    """Yield some documents, each with the results of the system built without it.

    If the system cannot be built or every query fails, all queries are marked as failed.
    """
    leave_one_out_bm25 = (
        LeaveOneOutBM25(runner, documents, k) if runner.spec is not None and runner.spec.name == "bm25" else None
    )
    silent_runner = replace(runner, progress=no_progress)
    for done, name in enumerate(left_out):
        runner.progress(Progress("leaving out each document", done, len(left_out)))
        if leave_one_out_bm25 is not None:
            yield name, leave_one_out_bm25.run_without(name)
            continue
        try:
            results = silent_runner.run_on_snapshot(
                [document for document in documents if document.id != name], k, f"without {name}"
            )
        except BackendFailed as error:
            results = SnapshotResults({}, dict.fromkeys(runner.queries, error.message))
        yield name, results
