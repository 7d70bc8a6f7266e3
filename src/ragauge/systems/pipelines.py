"""Systems made of systems: hybrid fusion, reranking, metadata filters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from ragauge.core.documents import Hit
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import OtherOptions, Part
from ragauge.core.protocols import Reranker, Retriever, describe_parts, is_async
from ragauge.core.stages import stage
from ragauge.fusion.methods import ParameterValue, default_norm
from ragauge.fusion.query_fusion import fuse_query
from ragauge.systems.adapters import to_hits


class HybridRetriever:
    """Retriever that fuses the first `depth` hits of several others, by scores or by ranks.

    `HybridRetriever([dense, bm25], weights=(0.7, 0.3))` is a weighted sum of min-max normalised scores; without weights
    it is reciprocal rank fusion. Every method and normalisation of `ragauge.fusion` can be used.
    """

    def __init__(
        self,
        retrievers: Annotated[Sequence[Retriever], Part("dense+bm25", option="of")],
        *,
        weights: Sequence[float] | None = None,
        method: str | None = None,
        norm: str | None = None,
        depth: int = 100,
        **parameters: ParameterValue,
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
            raise BadInput(f"depth of hybrid must be at least 1, got {depth}")
        self._depth = depth
        self._parameters: dict[str, Any] = {**parameters, **({} if weights is None else {"weights": tuple(weights)})}
        fuse_query([{"a": 1.0} for _ in retrievers], self._method, self._norm, **self._parameters)  # Fails early.
        self.asynchronous = any(map(is_async, retrievers))

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Return the best `k` hits of the fused ranking."""
        depth = max(k, self._depth)
        if self.asynchronous:
            return self._search_async(query, depth, k)
        rankings: list[Any] = [retriever.search(query, depth) for retriever in self._retrievers]
        return self._fuse_rankings(rankings, k)

    async def _search_async(self, query: str, depth: int, k: int) -> list[Hit]:
        rankings = await asyncio.gather(
            *(self._search_retriever(retriever, query, depth) for retriever in self._retrievers)
        )
        return self._fuse_rankings(list(rankings), k)

    @staticmethod
    async def _search_retriever(retriever: Retriever, query: str, depth: int) -> Any:
        if not is_async(retriever):  # It must not block the loop.
            return await asyncio.to_thread(retriever.search, query, depth)
        hits = retriever.search(query, depth)
        return await hits if inspect.isawaitable(hits) else hits

    def evidence(self, query: str, k: int) -> Any:
        """Return the facts that the retrievers report."""
        return describe_parts(self._retrievers, query, max(k, self._depth), later=self.asynchronous)

    def _fuse_rankings(self, rankings: list[Sequence[Hit]], k: int) -> list[Hit]:
        with stage("rerank"):
            hits_by_id = {hit.id: hit for hits in reversed(rankings) for hit in reversed(hits)}
            # Of duplicates in a ranking, the first one counts.
            scores = [{hit.id: hit.score for hit in reversed(hits)} for hits in rankings]
            fused = fuse_query(scores, self._method, self._norm, **self._parameters)
            return [hits_by_id[name]._replace(score=score) for name, score in list(fused.items())[:k]]


RerankFunction = Reranker | Callable[[str, Sequence[Hit]], Sequence[Hit]]


class RerankingPipeline:
    """Retriever that passes `depth` hits through rerankers in turn and returns the first `k`.

    The order that a reranker returns is the ranking. If its scores do not follow it, hits are scored by rank.
    """

    def __init__(
        self,
        retriever: Annotated[Retriever, Part("bm25", option="of")],
        rerankers: Annotated[Sequence[RerankFunction], Part(option="reranker", example="mmr")],
        *,
        depth: int = 50,
    ) -> None:
        if not rerankers:
            raise BadInput("a pipeline needs a reranker", hint="reranker=mmr")
        self._retriever = retriever
        self._rerankers = [reranker.rerank if isinstance(reranker, Reranker) else reranker for reranker in rerankers]
        self._evidence_parts = [retriever, *(reranker for reranker in rerankers if hasattr(reranker, "evidence"))]
        self._depth = depth
        self.asynchronous = is_async(retriever)

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Return the best `k` hits after reranking."""
        hits: Any = self._retriever.search(query, max(k, self._depth))
        return self._rerank_async(query, hits, k) if self.asynchronous else self._rerank_hits(query, hits, k)

    async def _rerank_async(self, query: str, hits: Awaitable[Sequence[Hit]], k: int) -> list[Hit]:
        return await asyncio.to_thread(self._rerank_hits, query, await hits, k)

    def _rerank_hits(self, query: str, hits: Sequence[Hit], k: int) -> list[Hit]:
        with stage("rerank"):
            for rerank in self._rerankers:
                hits = to_hits(rerank(query, hits))
        return list(hits[:k])

    def evidence(self, query: str, k: int) -> Any:
        """Return the facts that the retriever and the rerankers report."""
        return describe_parts(self._evidence_parts, query, max(k, self._depth), later=self.asynchronous)


class FilteredRetriever:
    """Retriever that returns only documents with the given metadata values.

    It filters after searching, and searches deeper until it has `k` hits or has reached `most`. This works with any
    retriever; stores that filter while searching are faster.
    """

    def __init__(
        self,
        retriever: Annotated[Retriever, Part("bm25", option="of")],
        where: Annotated[
            Mapping[str, Any], OtherOptions("NAME=VALUE of the metadata", "filtered(of=bm25, module=json)")
        ],
        *,
        most: int = 100_000,
    ) -> None:
        self._retriever = retriever
        self._where = dict(where)
        self._most = most
        self.asynchronous = is_async(retriever)

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Return the best `k` matching hits."""
        if self.asynchronous:
            return self._search_async(query, k)
        for depth in self._search_depths(k):
            hits: Any = self._retriever.search(query, depth)
            matching = self._matching_hits(hits)
            if len(matching) >= k or len(hits) < depth:
                break
        return matching[:k]

    async def _search_async(self, query: str, k: int) -> list[Hit]:
        for depth in self._search_depths(k):
            hits: Any = await self._retriever.search(query, depth)  # type: ignore[misc]
            matching = self._matching_hits(hits)
            if len(matching) >= k or len(hits) < depth:
                break
        return matching[:k]

    def _search_depths(self, k: int) -> Iterator[int]:
        depth = 2 * k
        while depth < self._most:
            yield depth
            depth *= 4
        yield self._most

    def _matching_hits(self, hits: Sequence[Hit]) -> list[Hit]:
        return [hit for hit in hits if all(hit.metadata.get(name) == value for name, value in self._where.items())]

    def evidence(self, query: str, k: int) -> Any:
        """Return the facts that the retriever reports."""
        return describe_parts([self._retriever], query, 2 * k, later=self.asynchronous)
