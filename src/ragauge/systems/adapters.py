"""The edge: whatever searches becomes a `Retriever`, whatever it returns becomes hits; inside there is one shape.

Nothing here imports LangChain, LlamaIndex or Haystack: their retrievers are known by the methods they have.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from ragauge.errors import BadInput
from ragauge.records import NOTHING, Hit
from ragauge.seams import close, is_async

IDS = ("id", "_id", "doc_id", "docid", "document_id", "id_", "node_id", "docno", "pid", "chunk_id")
TEXTS = ("text", "page_content", "content", "document", "body", "passage")
SCORES = ("score", "_score", "similarity", "relevance_score", "rank_score")
LISTS = ("documents", "hits", "results", "matches")
"""Where a mapping has its hits: Haystack's word, and those of most endpoints."""


class Adapted:
    """A retriever made of a function `(query, k)`; what it returns is brought to hits."""

    def __init__(self, function: Callable[[str, int], Any], *, asynchronous: bool) -> None:
        self._function = function
        self.asynchronous = asynchronous
        self.owned: Any = None
        """What is to be closed with it: something that was built for it, and nothing that a user passed."""

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """What the function finds, at most `k`."""
        found = self._function(query, k)
        if self.asynchronous:
            return self._later(found, k)
        return _Later(found, k) if inspect.isawaitable(found) else hits_of(found)[:k]

    async def _later(self, found: Awaitable[Any], k: int) -> list[Hit]:
        return hits_of(await found)[:k]

    def close(self) -> Any:
        """Close what was built for it."""
        return close(self.owned)


class _Later:
    """Hits that unexpectedly are still to come; closing it closes what they come from, where nobody awaits it."""

    def __init__(self, found: Awaitable[Any], k: int) -> None:
        self._found = found
        self._k = k

    def __await__(self) -> Generator[Any, Any, list[Hit]]:
        return (hits_of((yield from self._found.__await__())))[: self._k]

    def close(self) -> None:
        close(self._found)


def as_retriever(thing: Any) -> Adapted:
    """A retriever from one, from a function `(query, k)`, or from a retriever of LangChain, LlamaIndex or Haystack.

    >>> [hit.id for hit in as_retriever(lambda query, k: ["a", "b"]).search("?", 10)]
    ['a', 'b']
    """
    if inspect.isclass(thing):
        raise BadInput(f"{thing.__name__} is a class", hint="give an object of it, or a function (query, k)")
    method = getattr(thing, "search", None)
    if callable(method):
        return Adapted(method, asynchronous=is_async(thing))
    for name, later, make in (
        ("invoke", "ainvoke", _langchain),
        ("retrieve", "aretrieve", _llama_index),
        ("run", "run_async", _haystack),
    ):
        if callable(getattr(thing, name, None)):
            own = _own_async(thing, later)
            return Adapted(make(thing, later if own else name), asynchronous=own)
    if callable(thing):
        return Adapted(thing, asynchronous=_is_async_call(thing))
    raise BadInput(
        f"{type(thing).__name__} cannot search",
        hint="a function (query, k), a thing with search(query, k), a retriever of LangChain, LlamaIndex or Haystack",
    )


def _is_async_call(thing: Any) -> bool:
    while isinstance(thing, partial):
        thing = thing.func
    return inspect.iscoroutinefunction(thing) or inspect.iscoroutinefunction(thing.__call__)


def _own_async(thing: Any, name: str) -> bool:
    """Whether a retriever has an async way of its own: the frameworks' default one only calls the other in a thread."""
    hidden = {"ainvoke": "_aget_relevant_documents", "aretrieve": "_aretrieve"}.get(name, name)
    method = getattr(type(thing), hidden, None)
    home = getattr(method, "__module__", "") or ""
    return method is not None and not home.startswith(("langchain_core.retrievers", "llama_index.core.base"))


def _langchain(thing: Any, method: str) -> Callable[[str, int], Any]:
    """LangChain has no k in the call: it goes to `search_kwargs`, where there are any, or to `k`."""

    def with_k(k: int) -> Any:
        options = getattr(thing, "search_kwargs", None)
        if isinstance(options, dict):
            return _changed(thing, "search_kwargs", {**options, "k": k})
        return _changed(thing, "k", k) if hasattr(thing, "k") else thing

    return _calling(with_k, method)


def _llama_index(thing: Any, method: str) -> Callable[[str, int], Any]:
    def with_k(k: int) -> Any:
        for name in ("similarity_top_k", "_similarity_top_k"):
            if hasattr(thing, name):
                return _changed(thing, name, k)
        return thing

    return _calling(with_k, method)


def _calling(with_k: Callable[[int], Any], method: str) -> Callable[[str, int], Any]:
    """One copy for each k: the caller's retriever stays as it is, and queries of different k at a time do not mix."""
    known = lru_cache(maxsize=16)(with_k)
    return lambda query, k: getattr(known(k), method)(query)


def _changed(thing: Any, name: str, value: Any) -> Any:
    if hasattr(thing, "model_copy"):  # pydantic's way, which LangChain's retrievers need
        return thing.model_copy(update={name: value})
    other = copy.copy(thing)
    setattr(other, name, value)
    return other


def _haystack(thing: Any, method: str) -> Callable[[str, int], Any]:
    call = getattr(thing, method)
    try:
        inspect.signature(call).bind(query="", top_k=1)
    except TypeError:
        raise BadInput(
            f"{type(thing).__name__} cannot search: its `run` does not take `query` and `top_k`",
            hint="give a function (query, k) that calls it",
        ) from None

    def search(query: str, k: int) -> Any:
        return call(query=query, top_k=k)

    return search


def hits_of(found: Any) -> list[Hit]:
    """Hits from ids, `(id, score)` pairs, mappings, or objects with an id, in the order in which they came.

    The order is the ranking. Where no scores came, or where they rise on the way down (distances do), a hit's score is
    one over its place, so that nobody who sorts by score turns the ranking round.
    """
    hits = [one if type(one) is Hit else _hit(one) for one in _listed(found)]
    last = math.inf
    for hit in hits:
        if not hit.score <= last:  # NaN comes here too
            return [hit._replace(score=1.0 / place) for place, hit in enumerate(hits, 1)]
        last = hit.score
    return hits


def _listed(found: Any) -> Iterable[Any]:
    if found is None:
        return []
    if isinstance(found, Mapping):
        for name in LISTS:
            inner = found.get(name)
            if isinstance(inner, Sequence) and not isinstance(inner, str):
                return inner
        return list(found.items())
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise BadInput(
            f"a retriever returned {type(found).__name__}", hint="ids, (id, score) pairs, or objects with an id"
        )
    return found


def _hit(one: Any) -> Hit:
    if isinstance(one, Hit):
        return one
    if isinstance(one, str | Integral | UUID):  # NumPy's whole numbers are Integral, but not int
        return Hit(str(one), math.nan)
    if isinstance(one, tuple | list) and len(one) == 2 and _get(one, IDS) is None:
        thing, score = one
        if isinstance(thing, Real) and (
            not isinstance(score, Real) or (isinstance(score, Integral) and not isinstance(thing, Integral))
        ):
            thing, score = score, thing
        return _hit(thing)._replace(score=_number(score))
    node = None if isinstance(one, Mapping) and _get(one, IDS) is not None else _get(one, ("node", "document"))
    inner = node if node is not None and _get(node, IDS) is not None else one
    metadata = _get(inner, ("metadata", "meta")) or NOTHING
    name = _get(inner, IDS)
    if name is None and isinstance(metadata, Mapping):
        name = _get(metadata, (*IDS, "source"))
    if name is None:
        raise BadInput(
            f"a hit of type {type(one).__name__} has no id",
            hint=f"give it an id, or return (id, score) pairs; looked for {', '.join(IDS)}",
        )
    score = _get(one, SCORES)
    text = _get(inner, TEXTS)
    return Hit(
        str(name),
        math.nan if score is None else _number(score),
        text if isinstance(text, str) else "",
        metadata if isinstance(metadata, Mapping) else NOTHING,
    )


def _number(score: Any) -> float:
    try:
        if isinstance(score, Real) or hasattr(score, "__float__"):
            return float(score)
    except (TypeError, ValueError):  # an array of several has __float__ too
        pass
    shown = " ".join(repr(score).split())[:80]
    raise BadInput(f"a hit has the score {shown}, not a number")


def _get(thing: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
        if value is not None and not callable(value):
            return value
    return None
