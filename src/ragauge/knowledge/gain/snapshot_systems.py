"""Systems built on snapshots of a corpus to run the same queries on each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Retriever
from ragauge.core.records import Dataset, Judgments
from ragauge.datasets.queries import self_documents
from ragauge.files.workspace import cache_folder
from ragauge.knowledge.gain.terms import RankingsByQuery
from ragauge.runs.execution import QueryTask, RunSettings, run_system
from ragauge.runs.results import QueryResult
from ragauge.systems.adapters import as_retriever
from ragauge.systems.builder import SystemBuilder


@dataclass(frozen=True)
class SnapshotResults:
    """Rankings of all queries on one snapshot."""

    rankings: RankingsByQuery
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
            return self._run_queries(opened, documents, k, name)
        finally:
            for close in closers:
                close()

    def run_retriever(self, retriever: Any, documents: Sequence[Document], k: int, name: str) -> SnapshotResults:
        """Run the queries on a retriever given by the user."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Retriever]:
            yield as_retriever(retriever)

        return self._run_queries(opened, documents, k, name)

    def _run_queries(
        self,
        opened: Callable[[], AbstractAsyncContextManager[Retriever]],
        documents: Sequence[Document],
        k: int,
        name: str,
    ) -> SnapshotResults:
        began = time.perf_counter()
        # A query that is a document itself is left out of its own ranking.
        self_ids = self_documents(Dataset("", documents, self.queries, self.judgments), self.queries)
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
