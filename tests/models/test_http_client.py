"""HTTP clients: replies are bounded, and redirects to other hosts are refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from urllib.parse import urlsplit

import httpx
import pytest

from command import command_in
from ragauge.core.documents import Hit
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.limits import REPLY_LIMIT
from ragauge.models.chats.calls import ChatCaller
from ragauge.models.chats.openai import OpenAIChat
from ragauge.models.embedders.openai import OpenAIEmbedder
from ragauge.systems.adapters import HTTPRetriever
from ragauge.systems.rerankers import LLMReranker
from servers import serving

MESSAGES = [{"role": "user", "content": "Is it so?"}]


@pytest.fixture(autouse=True)
def _api_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-4711")


def search(url: str) -> list[Hit]:
    async def search_and_close():
        system = HTTPRetriever(f"{url}/search")
        try:
            return await system.search("what", 3)
        finally:
            await system.close()

    return asyncio.run(search_and_close())


def chat(url: str) -> str:
    async def request_and_close():
        model = OpenAIChat("m", url=f"{url}/v1")
        try:
            return (await ChatCaller(model, timeout=30, retries=0).call(MESSAGES)).reply.text
        finally:
            await model.close()

    return asyncio.run(request_and_close())


def embed(url: str) -> int:
    return len(OpenAIEmbedder("m", url=f"{url}/v1").embed(["text"]))


def rerank(url: str) -> list[Hit]:
    reranker = LLMReranker("m", url=f"{url}/v1")
    try:
        return reranker.rerank("q", [Hit("a", 1.0, "text"), Hit("b", 0.5, "text")])
    finally:
        reranker.close()


CLIENTS = {"http": search, "chat": chat, "embedder": embed, "reranker": rerank}


def reply_to_client(body, _headers):
    """Reply to each of the clients."""
    if "query" in body:
        return 200, {"hits": [{"id": "d1", "score": 1.0}]}
    if "input" in body:
        return 200, {"data": [{"index": 0, "embedding": [1.0, 2.0]}]}
    return 200, {"model": "m", "choices": [{"message": {"content": '{"order": [2, 1]}'}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_http_client_redirect_to_other_host_raises_naming_both(client, status):
    requests = []

    def record_request(body, headers):
        requests.append(body)
        return reply_to_client(body, headers)

    with serving(record_request) as other:
        other_host = other.replace("127.0.0.1", "localhost")
        redirect = (status, b"", {"Location": f"{other_host}/v1/chat/completions"})
        with serving(lambda *_: redirect) as url, pytest.raises(BackendFailed, match="redirects to") as caught:
            client(url)
    assert caught.value.message == (
        f"{urlsplit(url).netloc} redirects to {urlsplit(other_host).netloc}, which is another host"
    )
    assert requests == []


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_http_client_redirect_on_same_host_is_followed(client):
    requests = []

    def redirect_once(body, headers):
        requests.append(body)
        return (308, b"", {"Location": "/elsewhere"}) if len(requests) == 1 else reply_to_client(body, headers)

    with serving(redirect_once) as url:
        assert client(url)
    assert len(requests) == 2
    assert requests[0] == requests[1]


def test_http_client_redirect_loop_raises():
    with serving(lambda *_: (308, b"", {"Location": "/again"})) as url, pytest.raises(BackendFailed, match="5 times"):
        search(url)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.slow
def test_http_client_reply_above_limit_raises(client, compressed, monkeypatch):
    monkeypatch.setenv(REPLY_LIMIT.variable, "1")
    body = b'{"hits": [' + b" " * 20_000_000 + b"]}"
    headers = {"Content-Encoding": "gzip"} if compressed else {}
    data = gzip.compress(body) if compressed else body
    with serving(lambda *_: (200, data, headers)) as url, pytest.raises(BackendFailed) as caught:
        client(url)
    assert caught.value.message == f"{urlsplit(url).netloc}: the reply is larger than 1 MB"
    assert caught.value.hint == "if this is expected, raise the limit (megabytes): export RAGAUGE_MAX_REPLY_MB=4"


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_http_client_reads_compressed_reply_within_limit(compress):
    def answer(body, headers):
        status, reply = reply_to_client(body, headers)
        return status, compress(json.dumps(reply).encode()), {"Content-Encoding": "gzip"}

    with serving(answer) as url:
        assert [hit.id for hit in search(url)] == ["d1"]


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (b"no gzip at all", "gzip", "the reply cannot be decompressed"),
        (gzip.compress(b"[]" * 99, mtime=0)[:-9], "gzip", "the compressed reply ends early"),
        (b"[]", "br", "unknown compression; expected gzip, deflate, got br"),
    ],
    ids=["not compressed", "truncated", "unknown"],
)
def test_http_client_broken_compression_raises(data, encoding, message):
    with (
        serving(lambda *_: (200, data, {"Content-Encoding": encoding})) as url,
        pytest.raises(BackendFailed, match=message),
    ):
        search(url)


def test_http_client_invalid_reply_limit_raises(monkeypatch):
    monkeypatch.setenv(REPLY_LIMIT.variable, "lots")
    with serving(reply_to_client) as url, pytest.raises(BadInput, match="expected a number of megabytes, got `lots`"):
        search(url)


@pytest.mark.slow
def test_judge_redirected_server_stops_with_exit_code_3(tmp_path, chat_server):
    (tmp_path / "toy.jsonl").write_text('{"id": "s", "question": "Q?", "answer": "A.", "contexts": ["A."]}\n')
    other_host = chat_server.url.replace("127.0.0.1", "localhost")
    with serving(lambda *_: (307, b"", {"Location": f"{other_host}/chat/completions"})) as url:
        done = command_in(tmp_path)("judge", "toy.jsonl", "-c", f"openai:m@{url}/v1", "-o", "out", code=3)
    assert f"{urlsplit(url).netloc} redirects to {urlsplit(other_host).netloc}, which is another host" in done.stderr
    assert chat_server.calls == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_use_no_proxy_for_this_machine(monkeypatch, client):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(reply_to_client) as url:
        assert CLIENTS[client](url)


def test_http_retriever_uses_proxy_from_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    system = HTTPRetriever("http://example.org/search")
    assert isinstance(system._client, httpx.AsyncClient)
    with pytest.raises(BackendFailed, match=r"example\.org/search: ConnectError"):
        asyncio.run(system.search("what", 1))
