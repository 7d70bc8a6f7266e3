"""Adapt functions, frameworks' retrievers and HTTP services to `Retriever`.

LangChain, LlamaIndex and Haystack are not imported: their retrievers are recognised by their methods.
"""

from __future__ import annotations

import copy
import inspect
import math
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from ragauge.core.documents import EMPTY_MAPPING, Hit
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, error_summary
from ragauge.core.protocols import close_if_possible, is_async
from ragauge.core.secrets import register_fields, register_url
from ragauge.core.specs import redact_spec
from ragauge.core.stages import stage
from ragauge.models.http_client import is_loopback, open_async_client, read_key

ID_FIELDS = ("id", "_id", "doc_id", "docid", "document_id", "id_", "node_id", "docno", "pid", "chunk_id")
TEXT_FIELDS = ("text", "page_content", "content", "document", "body", "passage")
SCORE_FIELDS = ("score", "_score", "similarity", "relevance_score", "rank_score")
HIT_LIST_FIELDS = ("documents", "hits", "results", "matches")
"""Fields of a mapping that may contain the hits: that of Haystack, and those of most endpoints."""


IdSource = str | Callable[[Any], Any]
"""Path of fields of a hit, or function of a hit, that gives the document id."""


class AdaptedRetriever:
    """Retriever made from a function `(query, k)`, whose results are converted to hits."""

    def __init__(self, function: Callable[[str, int], Any], *, asynchronous: bool, id: IdSource = "") -> None:
        self._function = function
        self.asynchronous = asynchronous
        self.id = id
        """Field of a hit with its id, e.g. `metadata.source`, or a function of a hit; empty for the usual fields."""
        self.wrapped: Any = None
        """The object of the user that searches, if `adapt_retriever` wrapped one."""
        self.own_k: int | None = None
        """Number of documents that the object of the user is set to return; `search` requests k instead."""
        self.most_returned = 0
        """Largest number of documents that a search returned."""
        self.refuse_none = False
        """Whether None as a result is an error instead of no hits."""
        self.owned: Any = None
        """Object to close with the retriever; only one that was built for it, not one that a user passed."""

    def search(self, query: str, k: int) -> list[Hit] | Awaitable[list[Hit]]:
        """Search with the function and return at most `k` hits."""
        results = self._function(query, k)
        if self.asynchronous:
            return self._await_hits(results, k)
        return _PendingHits(self, results, k) if inspect.isawaitable(results) else self.cut(results, k)

    async def _await_hits(self, results: Awaitable[Any], k: int) -> list[Hit]:
        return self.cut(await results, k)

    def cut(self, results: Any, k: int) -> list[Hit]:
        """Convert the results of the function and return the first `k` hits."""
        if results is None and self.refuse_none:
            name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
            name = name.rpartition("<locals>.")[2]
            raise BadInput(f"{name} returned None; expected a list of ids, of (id, score) pairs or of hits")
        hits = to_hits(results, self.id)
        self.most_returned = max(self.most_returned, len(hits))
        return hits[:k]

    def evidence(self, query: str, k: int) -> dict[str, Any]:
        """Return the object's own k and the most returned documents, if not `k`."""
        del query
        more = {"most_returned": self.most_returned} if self.most_returned > k else {}
        return more if self.own_k in (None, k) else {"own_k": self.own_k, **more}

    def close(self) -> Any:
        """Close the object that was built for this retriever."""
        return close_if_possible(self.owned)


class _PendingHits:
    """Awaitable hits of a function that is not declared async; closed if they are not awaited."""

    def __init__(self, retriever: AdaptedRetriever, results: Awaitable[Any], k: int) -> None:
        self._retriever = retriever
        self._results = results
        self._k = k

    def __await__(self) -> Generator[Any, Any, list[Hit]]:
        return self._retriever.cut((yield from self._results.__await__()), self._k)

    def close(self) -> None:
        close_if_possible(self._results)


def adapt_retriever(retriever: Any, *, id: IdSource) -> AdaptedRetriever:
    """Wrap a function or retriever to read document ids from a field of its hits.

    `id` is a path such as `metadata.source`, or a function that returns the id of a hit. Use it if a store generates
    ids of its own: chunks of one document then share its id, and the first one counts.

    >>> store = adapt_retriever(lambda query, k: [{"id": "7f3a", "metadata": {"source": "d1"}}], id="metadata.source")
    >>> [hit.id for hit in store.search("?", 10)]
    ['d1']
    """
    if not callable(id) and (not isinstance(id, str) or not all(id.split("."))):
        raise BadInput(
            f"id must be a field, a path of fields or a function of a hit, got {id!r}",
            hint='use id="metadata.source"',
        )
    adapted = as_retriever(retriever)
    adapted.id, adapted.wrapped = id, retriever
    return adapted


def as_retriever(retriever: Any) -> AdaptedRetriever:
    """Make a retriever from a function, an object, or a framework's retriever.

    Supported frameworks are LangChain, LlamaIndex and Haystack.

    >>> [hit.id for hit in as_retriever(lambda query, k: ["a", "b"]).search("?", 10)]
    ['a', 'b']
    """
    if inspect.isclass(retriever):
        raise BadInput(f"{retriever.__name__} is a class", hint="pass an instance, or a function (query, k)")
    method = getattr(retriever, "search", None)
    if callable(method):
        check_signature(method, "", 1)
        return AdaptedRetriever(method, asynchronous=is_async(retriever))
    for name, async_name, make in (
        ("invoke", "ainvoke", _adapt_langchain),
        ("retrieve", "aretrieve", _adapt_llama_index),
        ("run", "run_async", _adapt_haystack),
    ):
        if callable(getattr(retriever, name, None)):
            has_async = _has_own_async_method(retriever, async_name)
            adapted = AdaptedRetriever(make(retriever, async_name if has_async else name), asynchronous=has_async)
            adapted.own_k = _configured_k(retriever)
            return adapted
    if callable(retriever):
        check_signature(retriever, "", 1)
        return AdaptedRetriever(retriever, asynchronous=_is_async_callable(retriever))
    raise BadInput(
        f"{type(retriever).__name__} cannot search",
        hint="pass a function (query, k), an object with search(query, k), or a retriever of LangChain, LlamaIndex "
        "or Haystack",
    )


def check_signature(function: Callable[..., Any], *args: Any, options: Mapping[str, Any] = EMPTY_MAPPING) -> None:
    """Raise BadInput if a function cannot be called with the query and k.

    Functions whose signature is not available are not checked.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise BadInput(
            f"{name}{signature} cannot search: {error}; expected the parameters (query, k)",
            hint="pass a function, e.g. `lambda query, k: search(query, limit=k)`",
        ) from None


def _configured_k(retriever: Any) -> int | None:
    """Return the k that a framework's retriever is set to; None if it is not set."""
    options = getattr(retriever, "search_kwargs", None)
    configured = options.get("k") if isinstance(options, dict) else None
    for name in ("k", "similarity_top_k", "_similarity_top_k", "top_k"):
        configured = configured if configured is not None else getattr(retriever, name, None)
    return configured if isinstance(configured, int) and not isinstance(configured, bool) else None


def _is_async_callable(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def _has_own_async_method(retriever: Any, name: str) -> bool:
    """Return whether a retriever has its own async method.

    The frameworks' default only runs the other method in a thread.
    """
    hidden = {"ainvoke": "_aget_relevant_documents", "aretrieve": "_aretrieve"}.get(name, name)
    method = getattr(type(retriever), hidden, None)
    home = getattr(method, "__module__", "") or ""
    return method is not None and not home.startswith(("langchain_core.retrievers", "llama_index.core.base"))


def _adapt_langchain(retriever: Any, method: str) -> Callable[[str, int], Any]:
    """Return a search function; k is set in `search_kwargs` if present, else in `k`."""

    def with_k(k: int) -> Any:
        options = getattr(retriever, "search_kwargs", None)
        if isinstance(options, dict):
            return _copy_with_attribute(retriever, "search_kwargs", {**options, "k": k})
        return _copy_with_attribute(retriever, "k", k) if hasattr(retriever, "k") else retriever

    return _call_with_k(with_k, method)


def _adapt_llama_index(retriever: Any, method: str) -> Callable[[str, int], Any]:
    def with_k(k: int) -> Any:
        for name in ("similarity_top_k", "_similarity_top_k"):
            if hasattr(retriever, name):
                return _copy_with_attribute(retriever, name, k)
        return retriever

    return _call_with_k(with_k, method)


def _call_with_k(with_k: Callable[[int], Any], method: str) -> Callable[[str, int], Any]:
    """Return a search function that uses one copy of the retriever per k.

    The caller's retriever is not changed, and concurrent queries with different k do not interfere.
    """
    retriever_for = lru_cache(maxsize=16)(with_k)
    return lambda query, k: getattr(retriever_for(k), method)(query)


def _copy_with_attribute(retriever: Any, name: str, value: Any) -> Any:
    if hasattr(retriever, "model_copy"):  # pydantic's copy method, which LangChain's retrievers need.
        return retriever.model_copy(update={name: value})
    copied = copy.copy(retriever)
    setattr(copied, name, value)
    return copied


def _adapt_haystack(retriever: Any, method: str) -> Callable[[str, int], Any]:
    call = getattr(retriever, method)
    try:
        inspect.signature(call).bind(query="", top_k=1)
    except TypeError:
        raise BadInput(
            f"{type(retriever).__name__} cannot search: its `run` does not take `query` and `top_k`",
            hint="pass a function (query, k) that calls it",
        ) from None

    def search(query: str, k: int) -> Any:
        return call(query=query, top_k=k)

    return search


def to_hits(results: Any, id: IdSource = "") -> list[Hit]:
    """Convert ids, `(id, score)` pairs, mappings or objects with an id to hits.

    The order is the ranking. If there are no scores, or if they increase (as distances do), the score of a hit is 1 /
    rank, so that sorting by score keeps the ranking. `id` is the field with the ids, or a function of a hit.
    """
    hits = [result if type(result) is Hit and not id else _to_hit(result, id) for result in _list_results(results)]
    last = math.inf
    for hit in hits:
        if not hit.score <= last:  # NaN too.
            return [hit._replace(score=1.0 / rank) for rank, hit in enumerate(hits, 1)]
        last = hit.score
    return hits


def _list_results(results: Any) -> Iterable[Any]:
    if results is None:
        return []
    if isinstance(results, Mapping):
        for name in HIT_LIST_FIELDS:
            inner = results.get(name)
            if isinstance(inner, Sequence) and not isinstance(inner, str):
                return inner
        return list(results.items())
    if isinstance(results, str | bytes) or not isinstance(results, Iterable):
        raise BadInput(
            f"a retriever returned {type(results).__name__}", hint="ids, (id, score) pairs, or objects with an id"
        )
    return results


def _to_hit(result: Any, id: IdSource = "") -> Hit:
    if isinstance(result, Hit):
        return result._replace(id=_find_id(result, id)) if id else result
    if isinstance(result, str | Integral | UUID):  # NumPy integers are Integral, but not int.
        return Hit(_find_id(result, id) if id else str(result), math.nan)
    if isinstance(result, tuple | list) and len(result) == 2 and _find_field(result, ID_FIELDS) is None:
        item, score = result
        if isinstance(item, Real) and (
            not isinstance(score, Real) or (isinstance(score, Integral) and not isinstance(item, Integral))
        ):
            item, score = score, item
        return _to_hit(item, id)._replace(score=_to_score(score))
    node = (
        None
        if isinstance(result, Mapping) and _find_field(result, ID_FIELDS) is not None
        else _find_field(result, ("node", "document"))
    )
    inner = node if node is not None and _find_field(node, ID_FIELDS) is not None else result
    metadata = _find_field(inner, ("metadata", "meta")) or EMPTY_MAPPING
    name = _find_id(inner, id) if id else _find_field(inner, ID_FIELDS)
    if name is None and isinstance(metadata, Mapping):
        name = _find_field(metadata, (*ID_FIELDS, "source"))
    if name is None:
        raise BadInput(
            f"a hit of type {type(result).__name__} has no id",
            hint=f"return objects with an id, or (id, score) pairs; searched fields: {', '.join(ID_FIELDS)}",
        )
    score = _find_field(result, SCORE_FIELDS)
    text = _find_field(inner, TEXT_FIELDS)
    return Hit(
        str(name),
        math.nan if score is None else _to_score(score),
        text if isinstance(text, str) else "",
        metadata if isinstance(metadata, Mapping) else EMPTY_MAPPING,
    )


def _find_id(hit: Any, path: IdSource) -> str:
    """Return the id of a hit at a path of fields, or by a function; `meta` (Haystack) equals `metadata`."""
    if callable(path):
        return str(path(hit))
    value = hit
    for field in path.split("."):
        value = _find_field(value, ("metadata", "meta") if field in ("metadata", "meta") else (field,))
        if value is None:
            fields_of = hit if isinstance(hit, Mapping) else _find_field(hit, ("metadata", "meta"))
            fields = (
                f", got the fields {', '.join(map(str, fields_of))}"[:200] if isinstance(fields_of, Mapping) else ""
            )
            raise BadInput(f"a hit of type {type(hit).__name__} has no `{path}`; expected an id there{fields}")
    return str(value)


def _to_score(score: Any) -> float:
    try:
        if isinstance(score, Real) or hasattr(score, "__float__"):
            return float(score)
    except (TypeError, ValueError):  # Arrays with several values have __float__ too.
        pass
    quoted_score = " ".join(repr(score).split())[:80]
    raise BadInput(f"the score of a hit must be a number, got {quoted_score}")


def _find_field(source: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None and not callable(value):
            return value
    return None


@dataclass(frozen=True)
class HTTPFields:
    """Names of the fields of a request and of its reply."""

    query: str = "query"
    k: str = "k"
    path: str = ""
    """Place of the hits in the reply (`data.items`)."""
    id: str = ""
    """Field of a hit with its id (`metadata.source`)."""


class HTTPRetriever:
    """Retriever that POSTs `{"query": …, "k": …}` to `url` and reads a list of hits, or one under `hits`.

    `query` and `k` are the names of these fields in the request. `extra` is added to the request. `path` is the place
    of the hits in the reply (`data.items`). `id` is the field of a hit with its id (`metadata.source`). `bearer` names
    an environment variable with a token, which is neither shown nor written. `timeout` is in seconds. Connections are
    kept open, so that latency does not include the handshake.
    """

    asynchronous = True
    is_remote = True

    def __init__(
        self,
        url: str,
        *,
        fields: HTTPFields = HTTPFields(),
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        bearer: str = "",
        timeout: float = 30,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtra("the system `http`", "http") from None
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in ("http", "https") or not address.host:
            raise BadInput(
                f"`{redact_spec(url)}` is not an http or https URL",
                hint="http(url=http://localhost:8000/search)",
            )
        register_url(url)
        register_fields(headers or {})
        self._url = url
        self._shown = str(address.copy_with(username=None, password=None, query=None))
        self._names = (fields.query, fields.k)
        self._path = [field for field in fields.path.split(".") if field]
        self._id = fields.id
        self._extra = dict(extra or {})
        self._failures = (httpx.HTTPError,)
        request_headers = dict(headers or {})
        if bearer:
            if bearer not in os.environ:
                raise BadInput(
                    f"the environment variable `{bearer}` is not set",
                    hint="set bearer to the name of the variable with the token",
                )
            request_headers["Authorization"] = f"Bearer {read_key(bearer)}"
        self._client: Any = open_async_client(
            httpx, timeout=timeout, headers=request_headers, trust_env=not is_loopback(address.host)
        )

    async def search(self, query: str, k: int) -> list[Hit]:
        """Search with the service; raise BackendFailed if the reply is not a list of hits."""
        with stage("retrieve"):
            try:
                reply = await self._client.post(
                    self._url, json={**self._extra, self._names[0]: query, self._names[1]: k}
                )
            except self._failures as error:
                raise BackendFailed(
                    f"{self._shown}: {error_summary(error, with_class=True, all_lines=True)}"
                ) from error
        if not reply.is_success:
            raise BackendFailed(f"{self._shown} answered {reply.status_code}: {reply.text[:300]}")
        try:
            body: Any = reply.json()
        except ValueError:
            raise BackendFailed(f"{self._shown} did not return JSON: {reply.text[:300]!r}") from None
        return to_hits(self._find_hit_list(body), self._id)[:k]

    def _find_hit_list(self, body: Any) -> list[Any]:
        for field in self._path:
            if not isinstance(body, Mapping) or field not in body:
                raise BackendFailed(f"{self._shown}: the reply has no `{'.'.join(self._path)}`")
            body = body[field]
        if isinstance(body, Mapping):
            body = next((body[name] for name in HIT_LIST_FIELDS if isinstance(body.get(name), list)), body)
        # A mapping from ids to scores is not accepted, because a status message looks like one.
        if not isinstance(body, list):
            raise BackendFailed(
                f"{self._shown}: the reply has no list of hits: {str(body)[:300]!r}",
                hint="set path to the place of the list, e.g. path=data.items",
            )
        return body

    async def close(self) -> None:
        await self._client.aclose()
