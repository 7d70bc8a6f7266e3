"""Hybrid retrieval: fuse the rankings of several retrievers for each query."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from typing import Any

from ragauge.errors import BadInput
from ragauge.fusion import default_norm, fuse_query
from ragauge.records import Hit
from ragauge.seams import Retriever, evidence_of, is_async
from ragauge.stages import stage


class Hybrid:
    """Retriever that fuses the first `depth` hits of several others, by scores or by ranks.

    `HybridRetriever([dense, bm25], weights=(0.7, 0.3))` is a weighted sum of min-max normalised scores; without weights
    it is reciprocal rank fusion. Every method and normalisation of `ragauge.fusion` can be used.
    """

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        *,
        weights: Sequence[float] | None = None,
        method: str | None = None,
        norm: str | None = None,
        depth: int = 100,
        **parameters: Any,
    ) -> None:
        if len(retrievers) < 2:
            raise BadInput("a hybrid needs at least two retrievers", hint="of=bm25+dense")
        if weights is not None and len(weights) != len(retrievers):
            raise BadInput(f"a hybrid of {len(retrievers)} retrievers has {len(weights)} weights")
        self._retrievers = list(retrievers)
        self._method = method or ("rrf" if weights is None else "wsum")
        usual = default_norm(self._method)
        # For a single hit, min-max as in the fusion of files would give the score 0.
        self._norm = norm or ("min-max-found" if usual == "min-max" else usual)
        if depth < 1:
            raise BadInput(f"the depth of a hybrid is {depth}, not at least 1")
        self._depth = depth
        self._parameters = {**parameters, **({} if weights is None else {"weights": tuple(weights)})}
        fuse_query([{"a": 1.0} for _ in retrievers], self._method, self._norm, **self._parameters)  # Fails early.
        self.asynchronous = any(map(is_async, retrievers))

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Return the best `k` hits of the fused ranking."""
        depth = max(k, self._depth)
        if self.asynchronous:
            return self._later(query, depth, k)
        found: list[Any] = [one.search(query, depth) for one in self._retrievers]
        return self._fused(found, k)

    async def _later(self, query: str, depth: int, k: int) -> list[Hit]:
        found = await asyncio.gather(*(self._arrived(one, query, depth) for one in self._retrievers))
        return self._fused(list(found), k)

    @staticmethod
    async def _arrived(retriever: Retriever, query: str, depth: int) -> Any:
        if not is_async(retriever):  # It must not block the loop.
            return await asyncio.to_thread(retriever.search, query, depth)
        found = retriever.search(query, depth)
        return await found if inspect.isawaitable(found) else found

    def evidence(self, query: str, k: int) -> Any:
        """Return the facts that the retrievers report."""
        return evidence_of(self._retrievers, query, max(k, self._depth), later=self.asynchronous)

    def _fused(self, rankings: list[Sequence[Hit]], k: int) -> list[Hit]:
        with stage("rerank"):
            known = {hit.id: hit for hits in reversed(rankings) for hit in reversed(hits)}
            # Of duplicates in a ranking, the first one counts.
            scores = [{hit.id: hit.score for hit in reversed(hits)} for hits in rankings]
            fused = fuse_query(scores, self._method, self._norm, **self._parameters)
            return [known[name]._replace(score=score) for name, score in list(fused.items())[:k]]
