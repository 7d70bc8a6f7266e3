"""Adapters: results of callables, of framework retrievers and of HTTP services become hits."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import math
import socket
import uuid
from collections import namedtuple
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.documents import Hit
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import Retriever, is_async
from ragauge.systems.adapters import as_retriever, to_hits
from servers import serving

Row = namedtuple("Row", ["id", "text"])


def id_scores(result) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in to_hits(result)]


def check_one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in error.value.message
    return error.value.message


# Return values of callables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [
        ["a", "b"],
        ("a", "b"),
        iter(["a", "b"]),
        [{"id": "a"}, {"_id": "b"}],
        [{"doc_id": "a", "score": None}, {"docid": "b"}],
        [SimpleNamespace(id="a"), SimpleNamespace(document_id="b")],
        [Row("a", "text of a"), Row("b", "text of b")],
        [{"document": {"id": "a"}}, {"document": {"id": "b"}}],
        {"documents": ["a", "b"]},
        {"hits": [{"id": "a"}, {"id": "b"}], "took": 3},
    ],
    ids=lambda result: str(result).partition(" object at ")[0][:40],
)
def test_to_hits_without_scores_uses_reciprocal_ranks(result):
    assert id_scores(result) == [("a", 1.0), ("b", 0.5)]


@pytest.mark.parametrize(
    "result",
    [
        [("a", 0.9), ("b", 0.25)],
        [["a", 0.9], ["b", 0.25]],
        [(0.9, "a"), (0.25, "b")],
        {"a": 0.9, "b": 0.25},
        [{"id": "a", "score": 0.9}, {"id": "b", "score": 0.25}],
        [{"_id": "a", "_score": 0.9, "_source": {}}, {"_id": "b", "_score": 0.25}],
        [SimpleNamespace(id="a", score=0.9), SimpleNamespace(id="b", similarity=0.25)],
        [(SimpleNamespace(id="a"), 0.9), ({"id": "b"}, 0.25)],
        [(0.9, SimpleNamespace(id="a")), (0.25, {"id": "b"})],
        [Hit("a", 0.9), Hit("b", 0.25)],
        [Hit("a", 0.9), ("b", 0.25)],
        [("a", np.float64(0.9)), ("b", np.float64(0.25))],
    ],
    ids=lambda result: str(result).partition(" object at ")[0][:40],
)
def test_to_hits_descending_scores_are_kept(result):
    assert id_scores(result) == [("a", 0.9), ("b", 0.25)]


def test_to_hits_numbers_and_uuids_become_string_ids():
    assert id_scores([7, 3]) == id_scores(np.array([7, 3])) == [("7", 1.0), ("3", 0.5)]
    assert id_scores([(7, 0.5)]) == id_scores([(0.5, 7)]) == [("7", 0.5)]
    assert id_scores([(np.int64(7), np.float32(0.5))]) == id_scores([(np.float32(0.5), np.int64(7))]) == [("7", 0.5)]
    assert id_scores([(7, 3)]) == [("7", 3.0)], "the first of two integers is the id"
    assert id_scores([(3, "a")]) == [("a", 3.0)]
    name = uuid.uuid4()
    assert id_scores([(name, 0.5)]) == [(str(name), 0.5)]


def test_to_hits_non_descending_scores_become_reciprocal_ranks():
    assert id_scores([("near", 0.1), ("far", 0.7), ("farther", 0.9)]) == [
        ("near", 1.0),
        ("far", 0.5),
        ("farther", 1 / 3),
    ]
    assert id_scores([("a", 0.9), ("b", 0.2), ("c", 0.3)]) == [("a", 1.0), ("b", 0.5), ("c", 1 / 3)]


def test_to_hits_nan_score_becomes_reciprocal_ranks():
    assert id_scores([("a", math.nan), ("b", 0.5)]) == [("a", 1.0), ("b", 0.5)]
    assert id_scores([("a", 0.9), ("b", math.nan), ("c", 0.1)]) == [("a", 1.0), ("b", 0.5), ("c", 1 / 3)]


@given(st.lists(st.tuples(st.text(min_size=1), st.floats()), max_size=8))
def test_to_hits_any_scores_keep_input_order(result):
    hits = to_hits(result)
    assert [hit.id for hit in hits] == [name for name, _ in result]
    assert all(hit_before.score >= hit_after.score for hit_before, hit_after in pairwise(hits))


@pytest.mark.parametrize("result", [None, [], (), {}, iter([]), np.array([]), {"hits": []}, {"documents": []}])
def test_to_hits_empty_input_returns_empty_list(result):
    assert to_hits(result) == []


def test_to_hits_keeps_text_and_metadata():
    (hit,) = to_hits([{"id": 1, "content": "words", "meta": {"module": "json"}, "score": 2}])
    assert hit == Hit("1", 2.0, "words", {"module": "json"})
    (hit,) = to_hits([{"id": "chunk", "document": {"id": "whole"}, "text": "part"}])
    assert (hit.id, hit.text) == ("chunk", "part"), "a mapping's own id comes before that of its document"


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ("a string", "returned str"),
        (b"bytes", "returned bytes"),
        (3, "returned int"),
        (object(), "returned object"),
        ([object()], "type object has no id"),
        ([None], "type NoneType has no id"),
        ([0.5], "type float has no id"),
        ([("a", 1, 2)], "type tuple has no id"),
        ([{"text": "no id"}], "type dict has no id"),
        ([("a", "b")], "got 'b'"),
        ([("a", None)], "got None"),
        ([("a", np.ones(100))], "got array"),
        ([(0.5, 0.25)], "type float has no id"),
        ({"hits": None}, "got None"),
        ({"error": "no such index"}, "got 'no such index'"),
        ({"ids": [["a"]], "distances": [[0.1]]}, "got [['a']]"),
    ],
    ids=lambda value: str(value).partition(" object at ")[0][:30],
)
def test_to_hits_invalid_input_raises_one_line_error(result, word):
    with pytest.raises(BadInput) as error:
        to_hits(result)
    assert word in check_one_line(error)


def test_as_retriever_unsupported_object_raises_one_line_error():
    for unsupported in (3, "bm25", None, {"a": 1}):
        with pytest.raises(BadInput) as error:
            as_retriever(unsupported)
        assert "cannot search" in check_one_line(error)


# Sync and async callables -----------------------------------------------------------------------------------------


async def later(query, k):
    return [f"{query}{i}" for i in range(k + 5)]


class AsyncCallable:
    async def __call__(self, query, k):
        return await later(query, k)


class AsyncMethod:
    async def find(self, query, k):
        return await later(query, k)


class AsyncSearch:
    async def search(self, query, k):
        return await later(query, k)


class MarkedAsync:
    asynchronous = True

    def search(self, query, k):
        return later(query, k)


async def with_depth(depth, query, k):
    return await later(query, k)


@pytest.mark.parametrize(
    "search_object",
    [
        later,
        functools.partial(later),
        functools.partial(with_depth, 7),
        functools.partial(functools.partial(with_depth), 7),
        functools.partial(AsyncCallable()),
        AsyncCallable(),
        AsyncMethod().find,
        AsyncSearch(),
        MarkedAsync(),
        as_retriever(later),
    ],
)
def test_as_retriever_async_callable_is_async_and_returns_at_most_k(search_object):
    retriever = as_retriever(search_object)
    assert is_async(retriever)
    assert isinstance(retriever, Retriever)
    assert [hit.id for hit in asyncio.run(retriever.search("q", 2))] == ["q0", "q1"]


class SyncCallable:
    def __call__(self, query, k):
        return ["a", "b", "c"]


class SyncSearch:
    def search(self, query, k):
        return ["a", "b", "c"]


@pytest.mark.parametrize(
    "search_object", [lambda query, k: ["a", "b", "c"], SyncCallable(), functools.partial(SyncCallable()), SyncSearch()]
)
def test_as_retriever_sync_callable_is_not_async(search_object):
    retriever = as_retriever(search_object)
    assert not is_async(retriever)
    assert [hit.id for hit in retriever.search("q", 2)] == ["a", "b"]


def test_as_retriever_sync_wrapper_of_async_function_returns_awaitable():
    @functools.wraps(later)
    def wrapper(query, k):
        return later(query, k)

    retriever = as_retriever(wrapper)
    assert not is_async(retriever), "the wrapper is not marked as async"
    awaitable = retriever.search("q", 1)
    assert inspect.isawaitable(awaitable)

    async def await_hits():
        return await awaitable

    assert [hit.id for hit in asyncio.run(await_hits())] == ["q0"]
    retriever.search("q", 1).close()  # closing avoids a warning that a coroutine was never awaited


def test_as_retriever_class_raises_error():
    class Search:
        def search(self, query, k):
            return []

    with pytest.raises(BadInput, match="Search is a class"):
        as_retriever(Search)


# LangChain --------------------------------------------------------------------------------------------------------


def test_to_hits_langchain_document_reads_id_from_either_field():
    documents = pytest.importorskip("langchain_core.documents")
    result = [
        documents.Document(page_content="first", id="a", metadata={"module": "json"}),
        documents.Document(page_content="second", metadata={"id": "b"}),
        documents.Document(page_content="third", metadata={"source": "c.txt"}),
    ]
    assert to_hits(result) == [
        Hit("a", 1.0, "first", {"module": "json"}),
        Hit("b", 0.5, "second", {"id": "b"}),
        Hit("c.txt", 1 / 3, "third", {"source": "c.txt"}),
    ]
    assert id_scores([(result[0], 0.9), (result[1], 0.1)]) == [("a", 0.9), ("b", 0.1)]
    with pytest.raises(BadInput, match="type Document has no id"):
        to_hits([documents.Document(page_content="nameless")])


def test_as_retriever_langchain_retriever_uses_native_methods():
    retrievers = pytest.importorskip("langchain_core.retrievers")
    from langchain_core.documents import Document

    class Plain(retrievers.BaseRetriever):
        k: int = 4

        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(page_content=query, id=f"d{i}") for i in range(self.k)]

    class NativeAsync(Plain):
        async def _aget_relevant_documents(self, query, *, run_manager):
            await asyncio.sleep(0)
            return [Document(page_content=query, id=f"a{i}") for i in range(self.k)]

    plain = Plain()
    adapted = as_retriever(plain)
    assert not is_async(adapted), "LangChain's default async method runs the sync one in a thread"
    assert [hit.id for hit in adapted.search("q", 6)] == [f"d{i}" for i in range(6)]
    assert plain.k == 4, "the caller's retriever is unchanged"
    async_adapted = as_retriever(NativeAsync())
    assert is_async(async_adapted)
    assert [hit.id for hit in asyncio.run(async_adapted.search("q", 2))] == ["a0", "a1"]


def test_as_retriever_langchain_vector_store_keeps_k_of_concurrent_calls():
    vectorstores = pytest.importorskip("langchain_core.vectorstores")
    pytest.importorskip("numpy")
    from langchain_core.embeddings import DeterministicFakeEmbedding

    store = vectorstores.InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    texts = [f"text {i}" for i in range(30)]
    store.add_texts(texts, ids=[f"d{i}" for i in range(30)])
    native = store.as_retriever(search_kwargs={"k": 3})
    adapted = as_retriever(native)
    assert is_async(adapted)

    async def search_concurrently():
        return await asyncio.gather(*(adapted.search("text 7", k) for k in (1, 20, 5)))

    found = asyncio.run(search_concurrently())
    assert [len(hits) for hits in found] == [1, 20, 5]
    expected = [document.id for document in store.similarity_search("text 7", k=20)]
    assert [hit.id for hit in found[1]] == expected
    assert found[0][0] == Hit("d7", 1.0, "text 7", {})
    assert native.search_kwargs == {"k": 3}


def test_as_retriever_accepts_langchain_runnable():
    runnables = pytest.importorskip("langchain_core.runnables")
    adapted = as_retriever(runnables.RunnableLambda(lambda query: [query, "b"]))
    assert [hit.id for hit in adapted.search("a", 5)] == ["a", "b"]


# LlamaIndex -------------------------------------------------------------------------------------------------------


def test_as_retriever_llama_index_retriever_uses_native_methods():
    pytest.importorskip("llama_index.core")
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    def node(name, score):
        return NodeWithScore(node=TextNode(text=f"text of {name}", id_=name, metadata={"x": 1}), score=score)

    class Plain(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [node("a", 0.75), node("b", 0.5), node("c", 0.25)]

    class NativeAsync(Plain):
        async def _aretrieve(self, query_bundle):
            await asyncio.sleep(0)
            return [node(query_bundle.query_str, None), node("d", None)]

    plain = as_retriever(Plain())
    assert not is_async(plain), "LlamaIndex's default async method calls the sync one"
    assert plain.search("q", 2) == [Hit("a", 0.75, "text of a", {"x": 1}), Hit("b", 0.5, "text of b", {"x": 1})]
    async_adapted = as_retriever(NativeAsync())
    assert is_async(async_adapted)
    assert [(hit.id, hit.score) for hit in asyncio.run(async_adapted.search("q", 5))] == [("q", 1.0), ("d", 0.5)]


def test_as_retriever_llama_index_vector_index_uses_k_of_each_call():
    pytest.importorskip("llama_index.core")
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.schema import TextNode

    class Letters(MockEmbedding):
        def _vector(self, text):
            return [float(text.count(letter)) + 0.01 for letter in "abcd"]

        def _get_text_embedding(self, text):
            return self._vector(text)

        def _get_query_embedding(self, query):
            return self._vector(query)

        async def _aget_query_embedding(self, query):
            return self._vector(query)

    nodes = [TextNode(text=text, id_=f"n{i}") for i, text in enumerate(["aaa", "aab", "abb", "abbbb", "ccc"])]
    native = VectorStoreIndex(nodes, embed_model=Letters(embed_dim=4)).as_retriever(similarity_top_k=2)
    adapted = as_retriever(native)
    found = adapted.search("aaa", 4)
    hits = asyncio.run(found) if inspect.isawaitable(found) else found
    assert [hit.id for hit in hits] == ["n0", "n1", "n2", "n3"]
    assert native.similarity_top_k == 2


# Haystack ---------------------------------------------------------------------------------------------------------


def haystack_store():
    haystack = pytest.importorskip("haystack")
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    texts = ["cats sleep", "dogs and cats play in the garden", "fish swim"]
    store.write_documents([haystack.Document(id=f"h{i}", content=text, meta={"n": i}) for i, text in enumerate(texts)])
    return store


def test_as_retriever_haystack_retriever_matches_native_run():
    store = haystack_store()
    from haystack.components.retrievers import InMemoryBM25Retriever

    native = InMemoryBM25Retriever(store)
    adapted = as_retriever(native)
    found = adapted.search("cats", 2)
    hits = asyncio.run(found) if inspect.isawaitable(found) else found
    expected = native.run(query="cats", top_k=2)["documents"]
    assert [hit.id for hit in hits] == [document.id for document in expected] == ["h0", "h1"]
    assert [hit.score for hit in hits] == [document.score for document in expected]
    assert hits[0].text == "cats sleep"
    assert hits[0].metadata["n"] == 0
    assert len(asyncio.run(as_retriever(native).search("cats", 1))) == 1
    assert to_hits(native.run(query="cats", top_k=2)) == hits


def test_as_retriever_haystack_component_without_query_raises_error():
    store = haystack_store()
    from haystack.components.retrievers import InMemoryEmbeddingRetriever

    with pytest.raises(BadInput, match="does not take `query`") as error:
        as_retriever(InMemoryEmbeddingRetriever(store))
    check_one_line(error)


def test_as_retriever_haystack_component_without_async_run_is_sync():
    class Component:
        def run(self, query, top_k=10):
            return {"documents": [{"id": query, "score": 0.5}] * top_k}

    adapted = as_retriever(Component())
    assert not is_async(adapted)
    assert id_scores(adapted.search("a", 2)) == [("a", 0.5), ("a", 0.5)]


# HTTP -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def service():
    """Run a local HTTP server: `answer` is its next reply, `bodies` has the requests."""
    state = SimpleNamespace(status=200, answer=b"[]", bodies=[])

    def answer(body, headers):
        state.bodies.append(body)
        state.headers = headers
        return state.status, state.answer

    with serving(answer) as url:
        state.url = f"{url}/search"
        yield state


def search_http(url, n_hits=2, **options):
    pytest.importorskip("httpx")
    from ragauge.systems.adapters import HTTPRetriever

    async def open_and_search():
        retriever = read_parameters(HTTPRetriever).call({"url": url, **options})
        try:
            assert is_async(retriever)
            return await retriever.search("how to sort", n_hits)
        finally:
            await retriever.close()

    return asyncio.run(open_and_search())


@pytest.mark.parametrize(
    "answer",
    [
        ["a", "b", "c"],
        [{"id": "a", "score": 1.0}, {"id": "b", "score": 0.5}, {"id": "c", "score": 0.1}],
        [["a", 1.0], ["b", 0.5]],
        {"hits": ["a", "b"], "took": 3},
        {"results": [{"_id": "a", "_score": 1.0}, {"_id": "b", "_score": 0.5}]},
        {"documents": [{"id": "a"}, {"id": "b"}]},
        {"matches": [{"id": "a"}, {"id": "b"}], "namespace": ""},
    ],
    ids=str,
)
def test_http_retriever_reads_hits_from_common_json_shapes(service, answer):
    service.answer = answer
    assert [(hit.id, hit.score) for hit in search_http(service.url)] == [("a", 1.0), ("b", 0.5)]
    assert service.bodies == [{"query": "how to sort", "k": 2}]


def test_http_retriever_path_extra_and_field_names_are_configurable(service):
    service.answer = {"data": {"items": [{"id": "a", "text": "words", "metadata": {"n": 1}}]}}
    options = {"query": "q", "k": "limit", "path": "data.items", "extra": {"index": "docs", "limit": 99}}
    assert search_http(service.url, n_hits=5, **options) == [Hit("a", 1.0, "words", {"n": 1})]
    assert service.bodies == [{"index": "docs", "q": "how to sort", "limit": 5}]


@pytest.mark.parametrize(
    ("status", "answer", "options", "word"),
    [
        (500, b"the index is broken", {}, "answered 500: the index is broken"),
        (404, b"", {}, "answered 404"),
        (302, b"", {}, "answered 302"),
        (200, b"<html>hello</html>", {}, "did not return JSON: '<html>hello</html>'"),
        (200, b"\xff\xfe", {}, "did not return JSON"),
        (200, {"data": []}, {"path": "data.items"}, "has no `data.items`"),
        (200, [], {"path": "data"}, "has no `data`"),
        (200, {"error": 17}, {}, "no list of hits"),
        (200, {"hits": {"hits": []}}, {}, "no list of hits"),
        (200, "text", {}, "no list of hits"),
        (200, b"null", {}, "no list of hits"),
    ],
)
def test_http_retriever_invalid_response_raises_error_with_details(service, status, answer, options, word):
    service.status = status
    service.answer = json.dumps(answer).encode() if isinstance(answer, str) else answer
    with pytest.raises(BackendFailed) as error:
        search_http(service.url, **options)
    assert word in check_one_line(error)
    assert service.url in error.value.message


def test_http_retriever_connection_error_names_url_without_secrets():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        port = taken.getsockname()[1]
        with pytest.raises(BackendFailed) as error:
            search_http(f"http://me:secret@127.0.0.1:{port}/search?token=hidden")
    message = check_one_line(error)
    assert f"127.0.0.1:{port}/search: ConnectError" in message
    assert "secret" not in message
    assert "hidden" not in message


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/x", "", "http://", "http://[::1"])
def test_http_retriever_invalid_url_raises_error(url):
    pytest.importorskip("httpx")
    from ragauge.systems.adapters import HTTPRetriever

    with pytest.raises(BadInput, match="is not an http or https URL"):
        HTTPRetriever(url)


def test_http_retriever_sends_bearer_token_from_environment_and_headers(service, monkeypatch):
    service.answer = ["a"]
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    assert [hit.id for hit in search_http(service.url, bearer="MY_TOKEN", headers={"X-Tenant": "me"})] == ["a"]
    assert (service.headers["Authorization"], service.headers["X-Tenant"]) == ("Bearer s3cret", "me")
    with pytest.raises(BadInput, match="environment variable `NOT_THERE` is not set"):
        search_http(service.url, bearer="NOT_THERE")
