"""Multi-stage retrieval: rerank the hits of a retriever, or filter them by metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from ragauge.errors import BadInput
from ragauge.records import Hit
from ragauge.seams import Reranker, Retriever, evidence_of, is_async
from ragauge.stages import stage
from ragauge.systems.adapters import hits_of

Rerank = Reranker | Callable[[str, Sequence[Hit]], Sequence[Hit]]


class Pipeline:
    """Retriever that passes `depth` hits through rerankers in turn and returns the first `k`.

    The order that a reranker returns is the ranking. If its scores do not follow it, hits are scored by rank.
    """

    def __init__(self, retriever: Retriever, rerankers: Sequence[Rerank], *, depth: int = 50) -> None:
        if not rerankers:
            raise BadInput("a pipeline needs a reranker", hint="reranker=mmr")
        self._retriever = retriever
        self._rerankers = [one.rerank if isinstance(one, Reranker) else one for one in rerankers]
        self._telling = [retriever, *(one for one in rerankers if hasattr(one, "evidence"))]
        self._depth = depth
        self.asynchronous = is_async(retriever)

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Return the best `k` hits after reranking."""
        found: Any = self._retriever.search(query, max(k, self._depth))
        return self._later(query, found, k) if self.asynchronous else self._reranked(query, found, k)

    async def _later(self, query: str, found: Awaitable[Sequence[Hit]], k: int) -> list[Hit]:
        return await asyncio.to_thread(self._reranked, query, await found, k)

    def _reranked(self, query: str, hits: Sequence[Hit], k: int) -> list[Hit]:
        with stage("rerank"):
            for rerank in self._rerankers:
                hits = hits_of(rerank(query, hits))
        return list(hits[:k])

    def evidence(self, query: str, k: int) -> Any:
        """Return the facts that the retriever and the rerankers report."""
        return evidence_of(self._telling, query, max(k, self._depth), later=self.asynchronous)


class Filtered:
    """Retriever that returns only documents with the given metadata values.

    It filters after searching, and searches deeper until it has `k` hits or has reached `most`. This works with any
    retriever; stores that filter while searching are faster.
    """

    def __init__(self, retriever: Retriever, where: Mapping[str, Any], *, most: int = 100_000) -> None:
        self._retriever = retriever
        self._where = dict(where)
        self._most = most
        self.asynchronous = is_async(retriever)

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Return the best `k` matching hits."""
        if self.asynchronous:
            return self._later(query, k)
        for depth in self._depths(k):
            found: Any = self._retriever.search(query, depth)
            kept = self._kept(found)
            if len(kept) >= k or len(found) < depth:
                break
        return kept[:k]

    async def _later(self, query: str, k: int) -> list[Hit]:
        for depth in self._depths(k):
            found: Any = await self._retriever.search(query, depth)  # type: ignore[misc]
            kept = self._kept(found)
            if len(kept) >= k or len(found) < depth:
                break
        return kept[:k]

    def _depths(self, k: int) -> Iterator[int]:
        depth = 2 * k
        while depth < self._most:
            yield depth
            depth *= 4
        yield self._most

    def _kept(self, hits: Sequence[Hit]) -> list[Hit]:
        return [hit for hit in hits if all(hit.metadata.get(name) == value for name, value in self._where.items())]

    def evidence(self, query: str, k: int) -> Any:
        """Return the facts that the retriever reports."""
        return evidence_of([self._retriever], query, 2 * k, later=self.asynchronous)
