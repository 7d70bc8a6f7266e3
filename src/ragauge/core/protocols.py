"""Protocols of all plug-ins: retrievers, embedders, tokenizers, stores, rerankers, graph builders and chat models.

Any object with these methods can be used; no base class is needed. A plain function can be a retriever or a
reranker, and retrievers of LangChain, LlamaIndex and Haystack are adapted to these protocols (`adapt_retriever`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragauge.core.documents import EMPTY_MAPPING, Document, Hit
from ragauge.core.graphs import LinkArrays


class Reply(NamedTuple):
    """Reply of a chat model, with its token counts."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Number of prompt tokens cached by the endpoint, which cost less."""
    finish: str = "stop"
    """Finish reason: `stop`, `length` (cut off), `refusal` (by the model), `content_filter` (by the endpoint), `tool`
    (a tool call instead), or another word of the endpoint. Only replies that ended with `stop` are verdicts.
    """
    model: str = ""
    """Name of the model that replied, which may be more exact than the requested one."""
    probabilities: Mapping[str, float] = EMPTY_MAPPING
    """Probabilities of the possible words of a one-word reply, if the endpoint returns them."""
    how: str = ""
    """Requested response format: `json_schema`, `json_object`, `plain` or `tokens`."""
    hold: float = 0.0
    """Seconds to wait before the next call, if the endpoint reports that its rate limit is reached."""


Vectors = NDArray[np.float32]
"""One row per text."""
Neighbours = tuple[NDArray[np.object_], NDArray[np.float32]]
"""Ids and distances, each of shape (queries, k), nearest first; if fewer were found, None and infinity at the end.

Distances are Euclidean for `l2` (not squared), 1 - cosine for `cosine`, and the negative inner product for `ip`.
"""


@runtime_checkable
class Retriever(Protocol):
    """Finds documents for a query.

    A system may set `nested_rankings = True` to declare that its first k documents do not depend on the requested k.
    Then `RAGEvaluator` retrieves once for several k.
    """

    def search(self, query: str, k: int) -> Sequence[Hit] | Awaitable[Sequence[Hit]]:
        """Return the best `k` documents, best first."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    Optional attributes: `limit` (maximum number of tokens per text, None if unlimited) and `tokens(texts)` (number
    of tokens of each text, read or not), from which the share of truncated texts is computed; `tokenizer`; `marks`
    (number of special tokens per text that count for the limit, if it differs from that of the tokenizer);
    `parameters` (number of parameters); and `trained` (whether they were trained, not random). An embedder that must
    see the corpus first has `fitted(texts, progress) -> Embedder`.
    """

    @property
    def name(self) -> str:
        """Name of the model; two embedders with the same name must give the same vectors."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts; return one row per text."""
        ...


@runtime_checkable
class Tokenizer(Protocol):
    """Splits texts into tokens with numeric ids.

    A tokenizer that must see the corpus first has `fitted(texts) -> Tokenizer` and raises an error before. Optional
    attributes: `limit` (maximum number of tokens that its model reads, including special tokens), `marks` (number of
    special tokens per text), and `tokens(texts)`, if other tokens count for the limit too.
    """

    @property
    def name(self) -> str:
        """Name of the tokenizer; two with the same name must split texts the same way."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of token ids, including special and unused ones."""
        ...

    @property
    def unknown(self) -> int | None:
        """Id of unknown tokens; None if it can encode every text."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts completely, without special tokens."""
        ...

    def decode(self, numbers: Sequence[int]) -> str:
        """Decode token ids to a text, which may lack what encoding lost."""
        ...

    def pieces(self, text: str) -> list[str]:
        """Split a text into tokens in readable form."""
        ...


@runtime_checkable
class Store(Protocol):
    """Stores vectors and finds the nearest ones."""

    def add(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Store vectors of shape (n, dimensions), each under its id.

        Called once per batch.
        """
        ...

    def search(self, vectors: Vectors, k: int) -> Neighbours:
        """Return ids and distances of the `k` nearest vectors per query.

        Both have the shape (queries, k).
        """
        ...


@runtime_checkable
class FullStore(Protocol):
    """A vector store with configuration, updates, filters and persistence, as ragauge uses all stores.

    Constructors of its own stores take `metric` (`cosine`, `l2`, `ip`) and `path`, the folder of the store: saved data
    in it is opened. Without a path a store is in memory, or in a temporary folder that `close` removes. A user's
    store is adapted to this protocol where it enters, by `ragauge.stores.store_types`.
    """

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store, a subset of STORE_CAPABILITIES.

        Other operations raise an error.
        """
        ...

    def add(self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Store vectors under their ids, with metadata for filters."""
        ...

    def build(self) -> None:
        """Build the index; otherwise the next search does it."""
        ...

    def tune(self, options: Mapping[str, Any]) -> None:
        """Set options of later searches."""
        ...

    def search(self, vectors: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors per query among those that match a filter.

        Their metadata have all values of `where`.
        """
        ...

    def update(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Replace the vectors of existing ids."""
        ...

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        ...

    def save(self) -> None:
        """Save all data in `path`, so that another process can open it."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the version of the engine and its effective parameters."""
        ...

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool | None:
        """Return whether a search uses the index; None if the store cannot report it."""
        ...

    def pids(self) -> Sequence[int]:
        """Return the ids of the processes that the engine runs in, if they are not this one."""
        ...

    def disk_bytes(self) -> int | None:
        """Return the size of the data that is not in the folder; None if all of it is there."""
        ...

    def remove(self) -> None:
        """Delete the data that is not in the folder."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


STORE_CAPABILITIES = {
    "insert": "vectors can be added after the index is built",
    "update": "a vector can be replaced",
    "delete": "a vector can be removed",
    "filter": "a search can be restricted to vectors whose metadata match",
    "save": "it can be saved to disk and opened again",
    "share": "several processes can open the saved store at the same time",
    "concurrent": "one thread can add while another searches",
}


@runtime_checkable
class DocumentStore(Protocol):
    """Stores whole documents, each with its vector under its id, and returns them unchanged.

    Constructors take `path`, the folder of the store (existing data is opened), `dimension` of the vectors, and
    their own options. Ids are the keys of the engine, and texts are stored in the engine: there are no additional
    files.
    """

    def put(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Store documents; an existing id is replaced."""
        ...

    def commit(self) -> None:
        """Make all stored documents durable: a killed process loses none of them."""
        ...

    def get(self, ids: Sequence[str]) -> Sequence[Document | None]:
        """Return the stored documents in this order; None for an unknown id."""
        ...

    def ids(self) -> Sequence[str]:
        """Return the ids of all stored documents."""
        ...

    def search(self, text: str, vector: Vectors, k: int) -> Sequence[Hit]:
        """Return the best `k` documents for a query, best first.

        The engine uses text, vector or both.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return the version of the engine and its effective parameters."""
        ...

    def close(self) -> None:
        """Release all resources; committed documents stay."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Reorders hits by relevance."""

    def rerank(self, query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits, or fewer, best first and with new scores."""
        ...


@runtime_checkable
class GraphBuilder(Protocol):
    """Finds links between documents: references, shared attributes, or similarity."""

    @property
    def name(self) -> str:
        """Kind of its links, with the options that distinguish it from others of its kind."""
        ...

    def link(self, documents: Sequence[Document], vectors: Vectors) -> LinkArrays:
        """Find links as pairs of document positions.

        `vectors` has one row per document, of length 1 or all zeros.
        """
        ...


Message = Mapping[str, str]
"""`{"role": "system", "content": …}`, as in every chat API."""


@runtime_checkable
class Chat(Protocol):
    """A chat model. One instance has one model and one set of parameters.

    Optional attributes: `concurrency` (parallel calls), `timeout` (seconds per reply), `notes` about parameters that
    the endpoint rejected, and `ready()`, which raises an error before the first call if calls cannot work.
    """

    @property
    def name(self) -> str:
        """Readable name of the model and its endpoint, without keys."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """Endpoint, model and all parameters that affect replies.

        Replies are cached under this key.
        """
        ...

    def complete(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> Reply | Awaitable[Reply]:
        """Return the reply, following a JSON schema if given.

        A schema that is only an `enum` of words requests one of them as plain text; the reply has the probabilities
        of the words if the endpoint returns them. Raise BackendFailed on errors.
        """
        ...


def is_async(retriever: Any) -> bool:
    """Return whether the result of a retriever's search must be awaited."""
    return bool(getattr(retriever, "asynchronous", False)) or inspect.iscoroutinefunction(retriever.search)


def close_if_possible(component: Any) -> Any:
    """Close an object that has a `close` method; the result may have to be awaited."""
    method = getattr(component, "close", None)
    return method() if callable(method) else None


def describe_query(retriever: Any, query: str, k: int) -> Any:
    """Return what a retriever reports about a query, if anything.

    It is the result of its method `evidence(query, k)`. The result may have to be awaited.
    """
    method = getattr(retriever, "evidence", None)
    return method(query, k) if callable(method) else {}


def describe_parts(parts: Sequence[Any], query: str, k: int, *, later: bool) -> Any:
    """Combine what the parts of a system report about a query.

    `index_used` is true only if it is true for all parts that report it. With `later`, the result must be awaited.
    """

    def combine(reports: list[Any]) -> dict[str, Any]:
        uses_index = [report["index_used"] for report in reports if "index_used" in report]
        return {"parts": reports} | ({"index_used": all(uses_index)} if uses_index else {})

    async def await_reports() -> dict[str, Any]:
        reports = [describe_query(part, query, k) for part in parts]
        return combine([await report if inspect.isawaitable(report) else report for report in reports])

    return await_reports() if later else combine([describe_query(part, query, k) for part in parts])


class Result(Protocol):
    """Any result that has a report: `ragauge.reports.registry` finds its report by its type."""
