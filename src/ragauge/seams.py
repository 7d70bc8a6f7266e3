"""Every plug-in contract, on one page.

Anything with these methods fits; nothing has to be inherited. A plain function is a retriever or a reranker too, and
the retrievers of LangChain, LlamaIndex and Haystack are brought to these shapes where they enter
(`ragauge.systems.adapters`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import UnknownName
from ragauge.graphs import Links
from ragauge.records import Document, Hit
from ragauge.verdicts import Reply

Vectors = NDArray[np.float32]
"""One row for each text."""
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
        """The best `k` documents, best first."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    One that knows may also have `limit` (how many tokens of a text it reads, None for all) and `tokens(texts)` (how
    many each has, read or not): `lint` tells from them what is cut off. `tokenizer` is what cuts its texts, `marks` how
    many tokens stand around a text that count for the limit, if not as many as its tokenizer says,
    `parameters` how many numbers it has learned or drawn, `trained` whether they were learned. One that must see the
    corpus first has `fitted(texts, progress) -> Embedder`; a language model has `bits(texts)`: how many each text
    takes, and NaN where it reads only part of one.
    """

    @property
    def name(self) -> str:
        """The model, so exactly that two embedders of one name give the same vectors."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        ...


@runtime_checkable
class Tokenizer(Protocol):
    """Cuts texts into pieces that are known by number.

    One that must see the corpus first has `fitted(texts) -> Tokenizer` and refuses everything else before. One that
    knows may also have `limit` (how many tokens its model reads, marks among them) and `marks` (how many stand around a
    text), or `tokens(texts)`, where more than these count for the limit.
    """

    @property
    def name(self) -> str:
        """What it is, so exactly that two of one name cut alike."""
        ...

    @property
    def vocabulary(self) -> int:
        """How many numbers it can give, marks and unused ones among them."""
        ...

    @property
    def unknown(self) -> int | None:
        """The number of whatever it does not know; None where it knows everything."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text, all of it, without marks around it."""
        ...

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers; where something is lost on the way, without it."""
        ...

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, as people read them."""
        ...


@runtime_checkable
class Store(Protocol):
    """Holds vectors and finds the nearest."""

    def add(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Store vectors of shape (n, dimensions), each under its id; the harness calls it once per batch."""
        ...

    def search(self, vectors: Vectors, k: int) -> Neighbours:
        """Return ids and distances of the `k` nearest vectors of each query: a pair, both of shape (queries, k)."""
        ...


@runtime_checkable
class FullStore(Store, Protocol):
    """A store that can be set, changed, filtered, kept and measured: what every store of this project is.

    Constructors take `metric` (`cosine`, `l2`, `ip`) and `path`, a folder that the store lives in: what was kept there
    is opened again; without one a store is in memory, or in a folder of its own that `close` removes. The keyword
    parameters of `tune` are the options of a search, all others of the constructor those of a build.
    """

    @property
    def abilities(self) -> frozenset[str]:
        """What this very store can do: some of ABILITIES. The rest refuses, and says that the engine cannot."""
        ...

    def add(self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Take vectors in, each under its id, with what searches may be filtered by."""
        ...

    def build(self) -> None:
        """Index what was added; the next search does it otherwise."""
        ...

    def tune(self, **options: Any) -> None:
        """Set options of the searches to come."""
        ...

    def search(self, vectors: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """The `k` nearest of each row, of those whose metadata have all values of `where`."""
        ...

    def update(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Give ids that are there other vectors."""
        ...

    def delete(self, ids: Sequence[str]) -> None:
        """Forget ids that are there."""
        ...

    def save(self) -> None:
        """Keep everything in `path`, so that another process can open it."""
        ...

    def describe(self) -> dict[str, Any]:
        """The engine's version and the parameters that are in force."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


ABILITIES = {
    "insert": "vectors can be added once it is built",
    "update": "a vector can be replaced",
    "delete": "a vector can be removed",
    "filter": "a search can be limited to vectors whose metadata match",
    "save": "it can be kept on disk and opened again",
    "share": "several processes can have what was saved open at once",
    "concurrent": "one thread can add while another searches",
}


@runtime_checkable
class Keeper(Protocol):
    """Keeps documents, each with its vector under its id, and gives them back as they were.

    Constructors take `path`, a folder that it lives in (what is there is opened again), `dimension` of the vectors, and
    options of their own. The ids are the engine's own keys and the texts lie in the engine: nothing is kept beside it.
    """

    def put(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Take documents in, one or many at a time; an id that is there is replaced."""
        ...

    def commit(self) -> None:
        """Make what was put in last: from here on, a killed process loses none of it."""
        ...

    def get(self, ids: Sequence[str]) -> Sequence[Document | None]:
        """The documents as they are kept, in this order; None where there is none."""
        ...

    def ids(self) -> Sequence[str]:
        """The ids of everything that is kept."""
        ...

    def search(self, text: str, vector: Vectors, k: int) -> Sequence[Hit]:
        """The best `k`, best first, for a query and its vector; the engine uses what it can."""
        ...

    def describe(self) -> dict[str, Any]:
        """The engine's version and the parameters that are in force."""
        ...

    def close(self) -> None:
        """Let go of everything; what was committed stays."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Puts hits in a better order."""

    def rerank(self, query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        """The same hits or fewer, best first, with the scores that say so."""
        ...


@runtime_checkable
class Linker(Protocol):
    """Finds what links documents: what stands in them, what they share, or how near they are."""

    @property
    def name(self) -> str:
        """The kind of its links, with whatever sets it apart from another of its kind."""
        ...

    def link(self, documents: Sequence[Document], vectors: Vectors) -> Links:
        """Pairs of documents by their places here; `vectors` has a row for each, at length 1 or all zeros."""
        ...


Message = Mapping[str, str]
"""`{"role": "system", "content": …}`, as every chat has it."""


@runtime_checkable
class Chat(Protocol):
    """A model that replies to messages. One instance has one model and one set of parameters.

    It may have a `concurrency` and a `timeout` of its own (calls at a time, seconds for a reply), `notes` on what the
    endpoint did not take, and a `ready()` that refuses before the first call what cannot work. One that `stays` is
    asked in this process, whatever executor there is: its replies depend on what it was asked before.
    """

    @property
    def name(self) -> str:
        """The model and where it is reached, as people read it; never a key."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """Endpoint, model and every parameter: replies are kept under it, so whatever changes them is in it."""
        ...

    def complete(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> Reply | Awaitable[Reply]:
        """The reply, in the shape of a JSON schema where one is given.

        A schema that is nothing but an `enum` of words asks for one of them, as bare text; where the endpoint gives
        them, the probabilities of the words come with it. Failures are BackendFailed, which says what helps.
        """
        ...


def is_async(retriever: Any) -> bool:
    """Whether what a retriever's search gives must be awaited."""
    return bool(getattr(retriever, "asynchronous", False)) or inspect.iscoroutinefunction(retriever.search)


def abilities(store: Any) -> frozenset[str]:
    """Return what a store declares that it can do, some of ABILITIES; nothing if it declares nothing."""
    declared = getattr(store, "abilities", ())
    for name in declared:
        if name not in ABILITIES:
            raise UnknownName("ability of a store", str(name), ABILITIES, hint=f"choose from {', '.join(ABILITIES)}")
    return frozenset(declared)


def close(thing: Any) -> Any:
    """Close whatever can be closed; what comes back is to be awaited where closing takes its time."""
    method = getattr(thing, "close", None)
    return method() if callable(method) else None


def evidence(retriever: Any, query: str, k: int) -> Any:
    """What a retriever says of itself once it was asked, if it has an `evidence(query, k)`; maybe to be awaited."""
    method = getattr(retriever, "evidence", None)
    return method(query, k) if callable(method) else {}


def evidence_of(parts: Sequence[Any], query: str, k: int, *, later: bool) -> Any:
    """What the parts of a system say of themselves; an index that one of them did not use was not used."""

    def joined(found: list[Any]) -> dict[str, Any]:
        used = [one["index_used"] for one in found if "index_used" in one]
        return {"parts": found} | ({"index_used": all(used)} if used else {})

    async def waited() -> dict[str, Any]:
        found = [evidence(one, query, k) for one in parts]
        return joined([await one if inspect.isawaitable(one) else one for one in found])

    return waited() if later else joined([evidence(one, query, k) for one in parts])
