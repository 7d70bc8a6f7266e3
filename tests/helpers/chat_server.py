"""HTTP server on the loopback address with OpenAI's chat protocol and deliberate faults.

`python tests/helpers/chat_server.py --latency 0.05` prints its address and serves until it is stopped. `GET /stats`
returns counts of requests and tokens. The server needs only small parts of the standard library, because it must be
faster than the client that a benchmark measures.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import random
import re
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager
from typing import Any, NamedTuple

TRAITS = {
    "no_json_schema": "a response_format of json_schema is refused",
    "no_response_format": "any response_format is refused",
    "ignores_schema": "a response_format is taken, and prose comes back",
    "no_logprobs": "log-probabilities are not given",
    "refuses_logprobs": "log-probabilities are refused",
    "five_logprobs": "more than five top_logprobs are refused",
    "no_temperature": "a temperature is refused",
    "no_max_tokens": "max_tokens is refused: it is called max_completion_tokens",
    "no_seed": "a seed is refused",
    "thinks": "a reply begins with thoughts, which use up small limits",
}
"""Permanent properties of the server, by name."""

FAULTS = {
    "rate_limit": "429 with Retry-After",
    "rate_limit_bare": "429 that does not say for how long",
    "rate_limit_date": "429 with Retry-After as a date",
    "rate_limit_reset": "429 with x-ratelimit-reset-requests",
    "exhausted": "a good reply that was the last one for a while, says x-ratelimit-remaining-requests",
    "error": "500",
    "overloaded": "503",
    "gateway": "502 with a page of HTML",
    "stall": "nothing comes",
    "cut": "the connection is cut in the middle of the body",
    "drop": "the connection is closed without a word",
    "trickle": "the body comes a few bytes at a time",
    "truncated": "the text ends in the middle of its JSON, and says it is whole",
    "length": "the text ends in the middle, and says so",
    "wrong_ids": "every id in the reply is one that nobody asked about",
    "missing_ids": "of every list of entries the last one is gone",
    "prose": "friendly words around the JSON",
    "nonsense": "no JSON at all",
    "empty": "no text at all",
    "broken_body": "200 with a body that is no JSON",
    "html": "200 with a page of HTML",
    "no_choices": "200 without a reply in it",
    "error_inside": "200 with an error in it",
    "unauthorised": "401",
    "key_echo": "401 that repeats the key",
    "forbidden": "403",
    "unpaid": "402",
    "quota": "429 insufficient_quota",
    "no_model": "404",
    "too_long": "400 context_length_exceeded",
    "wrong_value": "400 for a temperature that there is not",
    "content_filter": "the reply was filtered",
    "refusal": "the model refuses",
    "tool": "the model calls a tool",
}
"""Faults of single requests, by name."""


class Fault(NamedTuple):
    name: str
    after: float = 0.05
    """Seconds to wait after a 429, and length of a stall in seconds."""


Sent = tuple[int, dict[str, str], bytes, Fault]
"""Status, headers, body, and the fault that decides how they are sent."""


class ChatServer:
    """Chat server whose settings can be changed at any time; `misbehave` queues faults, one per future request."""

    def __init__(self, answer=None, *, latency: float = 0.0, traits=(), keep: bool = True) -> None:
        self.answer = answer or obliging
        """(messages, schema) -> a text, or a mapping from words to probabilities, one of which becomes the first token.
        """
        self.latency = latency
        self.traits = set(traits)
        self.keep = keep
        """Whether requests are recorded in `asked`."""
        self.url = ""
        self.faults: deque[Fault] = deque()
        self.forget()

    def forget(self) -> None:
        """Reset all counts and recorded requests."""
        self.calls = self.prompt_tokens = self.completion_tokens = self.embedded = 0
        self.busy = self.most = 0
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.did: Counter[str] = Counter()
        """Number of occurrences of each fault and trait."""

    def misbehave(self, *names: str, times: int = 1, after: float = 0.05) -> None:
        for name in names:
            if name not in FAULTS:
                raise LookupError(name)
        self.faults.extend(Fault(name, after) for name in names for _ in range(times))

    def stats(self) -> dict[str, Any]:
        names = ("calls", "prompt_tokens", "completion_tokens", "embedded", "most")
        return {name: getattr(self, name) for name in names} | {"did": dict(self.did)}

    def respond(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Sent:
        """Return status, headers, body, and the fault that determines how they are sent."""
        if path.startswith("/stats"):
            return 200, {}, json.dumps(self.stats()).encode(), Fault("")
        if path.endswith("/models"):
            return 200, {}, b'{"object":"list","data":[{"id":"test","object":"model"}]}', Fault("")
        if path.endswith("/embeddings"):
            return self._embeddings(body)
        if not path.endswith("/chat/completions"):
            return 404, {}, _error("no such page", "not_found"), Fault("")
        self.calls += 1
        if self.keep:
            self.asked.append(body)
            self.headers.append(headers)
        try:
            fault = self.faults.popleft()
            self.did[fault.name] += 1
        except IndexError:
            fault = Fault("")
        if refused := self._refused(body):
            return 400, {}, refused, Fault("")
        failed = failure(fault, headers)
        return failed if failed else self._completion(body, fault)

    def _refused(self, body: dict[str, Any]) -> bytes | None:
        form = body.get("response_format", {}).get("type", "")
        trait, words, parameter = "", "", ""
        if form and "no_response_format" in self.traits:
            trait, words = "no_response_format", "Unrecognized request argument supplied: response_format"
            parameter = "response_format"
        elif form == "json_schema" and "no_json_schema" in self.traits:
            trait, parameter = "no_json_schema", "response_format"
            words = "Invalid parameter: 'response_format' of type 'json_schema' is not supported"
        elif body.get("logprobs") and "refuses_logprobs" in self.traits:
            trait, words, parameter = "refuses_logprobs", "logprobs is not supported with this model", "logprobs"
        elif body.get("top_logprobs", 0) > 5 and "five_logprobs" in self.traits:
            trait, words, parameter = "five_logprobs", "top_logprobs must be at most 5", "top_logprobs"
        elif "temperature" in body and "no_temperature" in self.traits:
            trait = parameter = "no_temperature"
            words = "Unsupported value: 'temperature' does not support 0.0 with this model."
        elif "max_tokens" in body and "no_max_tokens" in self.traits:
            trait, parameter = "no_max_tokens", "max_tokens"
            words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
        elif "seed" in body and "no_seed" in self.traits:
            trait, words, parameter = "no_seed", "seed: Extra inputs are not permitted", "seed"
        if not trait:
            return None
        self.did[trait] += 1
        return _error(words, "unsupported_parameter", parameter=parameter)

    def _completion(self, body: dict[str, Any], fault: Fault) -> Sent:
        messages = body.get("messages", [])
        form = body.get("response_format", {})
        schema = form.get("json_schema", {}).get("schema") if form.get("type") == "json_schema" else None
        tool = next((one["function"] for one in body.get("tools", ()) if "function" in one), None)
        said = self.answer(messages, schema or (tool or {}).get("parameters"))
        chances = said if isinstance(said, dict) else {}
        text = max(chances, key=chances.__getitem__) if chances else str(said)
        if form and "ignores_schema" in self.traits:
            self.did["ignores_schema"] += 1
            text = "I would say that most of it is right, although it is hard to tell."
        text = spoilt(text, fault.name)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        finish = {"length": "length", "content_filter": "content_filter", "tool": "tool_calls"}.get(fault.name, "stop")
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        if "thinks" in self.traits:
            self.did["thinks"] += 1
            if limit and limit < 100:
                message["content"], finish = "", "length"
        if fault.name == "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        elif fault.name == "tool":
            message |= {"content": None, "tool_calls": [_call("search", "{}")]}
        elif tool is not None and schema is None:
            message |= {"content": None, "tool_calls": [_call(tool["name"], text)]}
            finish = "tool_calls"
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
        if body.get("logprobs") and "no_logprobs" not in self.traits:
            choice["logprobs"] = {"content": [_token(chances or {text: 0.9}, body.get("top_logprobs", 0))]}
        prompt = sum(tokens(one.get("content") or "") for one in messages)
        self.prompt_tokens += prompt
        self.completion_tokens += tokens(text)
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens(text), "total_tokens": prompt + tokens(text)}
        reply = {
            "id": f"chatcmpl-{self.calls}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": f"{body.get('model', 'test')}-2026-01-01",
            "choices": [choice],
            "usage": usage | {"prompt_tokens_details": {"cached_tokens": prompt // 2}},
        }
        headers = {}
        if fault.name == "exhausted":
            headers = {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": f"{fault.after * 1000:.0f}ms",
                "x-ratelimit-remaining-tokens": "100000",
                "x-ratelimit-reset-tokens": "6m0s",
            }
        return 200, headers, json.dumps(reply).encode(), fault

    def _embeddings(self, body: dict[str, Any]) -> Sent:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.embedded += len(texts)
        rows = [{"object": "embedding", "index": i, "embedding": bag_of_words(one)} for i, one in enumerate(texts)]
        count = sum(map(tokens, map(str, texts)))
        usage = {"prompt_tokens": count, "total_tokens": count}
        reply = {"object": "list", "data": rows, "model": body.get("model", ""), "usage": usage}
        if body.get("encoding_format") == "base64":
            import base64
            import struct

            for row in rows:
                row["embedding"] = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *row["embedding"])).decode()
        return 200, {}, json.dumps(reply).encode(), Fault("")


def failure(fault: Fault, headers: dict[str, str]) -> Sent | None:
    """Return the complete response of a fault, or None if the fault has none of its own."""
    key = headers.get("authorization", "").removeprefix("Bearer ")
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
    slow = _error("Rate limit reached for requests", "rate_limit_exceeded", kind="requests")
    plain: dict[str, tuple[int, dict[str, str], bytes]] = {
        "rate_limit": (429, {"retry-after": f"{fault.after:g}"}, slow),
        "rate_limit_bare": (429, {}, slow),
        "rate_limit_date": (429, {"retry-after": later}, slow),
        "rate_limit_reset": (
            429,
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{fault.after * 1000:.0f}ms"},
            slow,
        ),
        "error": (500, {}, _error("The server had an error while processing your request", "server_error")),
        "overloaded": (503, {}, _error("The engine is currently overloaded", "overloaded")),
        "gateway": (502, {"content-type": "text/html"}, b"<html><body>Bad gateway</body></html>"),
        "broken_body": (200, {}, b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess'),
        "html": (200, {"content-type": "text/html"}, b"<!doctype html><html>Welcome to the control panel</html>"),
        "no_choices": (200, {}, b'{"id": "chatcmpl-1", "object": "chat.completion", "choices": []}'),
        "error_inside": (200, {}, b'{"error": {"code": 429, "message": "The provider is rate-limited upstream"}}'),
        "unauthorised": (401, {}, _error("Incorrect API key provided", "invalid_api_key")),
        "key_echo": (401, {}, _error(f"Incorrect API key provided: {key}.", "invalid_api_key")),
        "forbidden": (403, {}, _error("Country, region, or territory not supported", "unsupported_country")),
        "unpaid": (402, {}, _error("Insufficient Balance", "insufficient_balance")),
        "quota": (429, {}, _error("You exceeded your current quota", "insufficient_quota", kind="insufficient_quota")),
        "no_model": (404, {}, _error("The model `test` does not exist", "model_not_found")),
        "wrong_value": (400, {}, _error("temperature must be at most 2", "invalid_value", parameter="temperature")),
        "too_long": (
            400,
            {},
            _error("The maximum context length is 128 tokens", "context_length_exceeded", parameter="messages"),
        ),
    }
    return (*plain[fault.name], fault) if fault.name in plain else None


def spoilt(text: str, fault: str) -> str:
    """Return a valid text with the change that a fault makes."""
    if fault in ("truncated", "length"):
        return text[: max(1, len(text) * 2 // 3)]
    if fault == "prose":
        return f"Certainly! Here is the JSON that you asked for:\n\n```json\n{text}\n```\n\nLet me know if that helps."
    if fault == "nonsense":
        return "As far as I can see all is well."
    if fault == "empty":
        return ""
    if fault in ("wrong_ids", "missing_ids"):
        try:
            return json.dumps(_changed(json.loads(text), fault))
        except ValueError:
            return text
    return text


def _changed(value: Any, fault: str) -> Any:
    if isinstance(value, dict):
        if fault == "wrong_ids" and "id" in value:
            return value | {"id": "zz99"}
        if fault == "wrong_ids" and value and all(re.fullmatch(r"[a-z]\d+", key) for key in value):
            return {f"zz{n}": one for n, one in enumerate(value.values())}
        return {key: _changed(one, fault) for key, one in value.items()}
    if isinstance(value, list):
        short = fault == "missing_ids" and any(isinstance(one, dict) for one in value)
        return [_changed(one, fault) for one in (value[:-1] if short else value)]
    return value


def _error(words: str, code: str, *, kind: str = "invalid_request_error", parameter: str | None = None) -> bytes:
    return json.dumps({"error": {"message": words, "type": kind, "param": parameter, "code": code}}).encode()


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _token(chances: dict[str, float], top: int) -> dict[str, Any]:
    ranked = sorted(chances.items(), key=lambda one: -one[1])
    found = [{"token": word, "logprob": math.log(max(p, 1e-9)), "bytes": None} for word, p in ranked]
    return {**found[0], "top_logprobs": found[:top]}


def tokens(text: Any) -> int:
    """Estimate the number of tokens of a text: one per four characters, rounded down, plus 1."""
    return len(text) // 4 + 1 if isinstance(text, str) else sum(tokens(str(part)) for part in text)


DIMENSIONS = 256


def bag_of_words(text: Any) -> list[float]:
    """Return a unit vector of word counts by hash; a text without words is the first basis vector."""
    row = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", str(text).lower()) or [""]:
        row[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % DIMENSIONS if word else 0] += 1.0
    norm = math.sqrt(sum(value * value for value in row))
    return [value / norm for value in row]


def obliging(messages: list[dict[str, Any]], schema: dict[str, Any] | None) -> str:
    """Return a reply that satisfies the schema of the request or, if it has none, the last schema in the messages.

    Without any schema the reply is "yes". Equal messages get equal replies.
    """
    asked = "\n".join(_text(one.get("content")) for one in messages)
    schema = schema or _schema_in(asked)
    if schema is None:
        return "yes"
    chance = random.Random(hashlib.blake2b(asked.encode(), digest_size=8).digest())
    words = re.findall(r"[A-Za-z]{3,}", _text(messages[-1].get("content"))) if messages else []
    return json.dumps(_made(schema, schema.get("$defs", schema.get("definitions", {})), chance, words or ["word"], 0))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _schema_in(text: str) -> dict[str, Any] | None:
    """Return the last JSON schema in a text, or None."""
    decoder = json.JSONDecoder()
    found, place = None, text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except ValueError:
            end, value = place + 1, None
        if isinstance(value, dict) and ("properties" in value or "$ref" in value):
            found = value
        place = text.find("{", end)
    return found


def _made(
    schema: dict[str, Any], definitions: dict[str, Any], chance: random.Random, words: list[str], place: int
) -> Any:
    if "$ref" in schema:
        return _made(definitions[schema["$ref"].rpartition("/")[2]], definitions, chance, words, place)
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return _made(schema[several][0], definitions, chance, words, place)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        # Items of a list take the values in order, so that each id of a closed vocabulary appears once.
        return schema["enum"][place] if 0 <= place < len(schema["enum"]) else chance.choice(schema["enum"])
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        made = {}
        for name, inner in schema.get("properties", {}).items():
            at = place if name in ("id", "key", "name") and "enum" in inner else -1
            made[name] = _made(inner, definitions, chance, words, at)
            if name in ("supported_together", "contradicted_by"):  # a source may be in only one list
                made[name] = []
            elif name == "claims" and "id" in made:  # one claim per sentence
                made[name] = made[name][:1]
        return made
    if kind == "array":
        items = schema.get("items", {"type": "string"})
        vocabulary = items.get("properties", {}).get("id", {}).get("enum", ())
        n = max(schema.get("minItems", 0), min(schema.get("maxItems", 10**9), len(vocabulary) or 3))
        if "enum" in items:
            n = max(schema.get("minItems", 0), min(n, len(items["enum"]), 1))
        return [_made(items, definitions, chance, words, i) for i in range(n)]
    if kind == "string":
        return " ".join(chance.choice(words) for _ in range(6))
    if kind == "integer":
        return min(schema.get("maximum", 1), max(schema.get("minimum", 0), 1))
    return {"number": 0.5, "boolean": chance.random() < 0.8, "null": None}.get(kind)


MAX_CLOSE_SECONDS = 10
"""Seconds after which a server is closed even if it has connections."""


class _Connection(asyncio.Protocol):
    """HTTP/1.1 connection with keep-alive: one request at a time, each with a Content-Length."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self._bytes = b""
        self._transport: Any = None
        self._tasks: set[Any] = set()
        self.is_open = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.is_open = True

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while (end := self._bytes.find(b"\r\n\r\n")) >= 0:
            lines = self._bytes[:end].decode("latin-1").split("\r\n")
            method_and_path = lines[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            length = int(headers.get("content-length", 0))
            if len(self._bytes) < end + 4 + length:
                return
            body = self._bytes[end + 4 : end + 4 + length]
            self._bytes = self._bytes[end + 4 + length :]
            self._handle(method_and_path[1], headers, json.loads(body) if body else {})

    def _handle(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        server = self._server
        server.busy += 1
        server.most = max(server.most, server.busy)
        status, extra, reply, fault = server.respond(path, headers, body)
        loop = asyncio.get_running_loop()
        if fault.name in ("stall", "trickle", "cut", "drop"):
            task = loop.create_task(self._badly(reply, fault))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(self._done)
        elif server.latency and not path.startswith("/stats"):
            loop.call_later(server.latency, self._send, status, extra, reply)
        else:
            self._send(status, extra, reply)

    def _done(self, _: Any = None) -> None:
        self._server.busy -= 1

    def _send(self, status: int, extra: dict[str, str], reply: bytes) -> None:
        self._done()
        if not self._transport.is_closing():
            self._transport.write(_head(status, extra, len(reply)) + reply)

    async def _badly(self, reply: bytes, fault: Fault) -> None:
        transport = self._transport
        if fault.name == "stall":
            await asyncio.sleep(fault.after)
        elif fault.name == "trickle":
            transport.write(_head(200, {}, len(reply)))
            for start in range(0, len(reply), 40):
                transport.write(reply[start : start + 40])
                await asyncio.sleep(fault.after)
            return
        elif fault.name == "cut":
            transport.write(_head(200, {}, len(reply)) + reply[: len(reply) // 2])
            await asyncio.sleep(0)
        transport.close()


def _head(status: int, extra: dict[str, str], length: int) -> bytes:
    headers = {"content-type": "application/json", "content-length": str(length), **extra}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode("latin-1")


@contextmanager
def serving_chat(answer=None, **settings: Any):
    """Run a ChatServer in its own thread until the end of the block."""
    server = ChatServer(answer, **settings)
    loop = asyncio.new_event_loop()
    connections: list[_Connection] = []

    def connection() -> _Connection:
        connections.append(_Connection(server))
        return connections[-1]

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opening = loop.create_server(connection, "127.0.0.1", 0)
    listening = asyncio.run_coroutine_threadsafe(opening, loop).result()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"

    async def stop() -> None:
        # A socket that is open when the loop closes causes a warning in the test that runs at that time. A connection
        # that is being accepted is a task: if the server is closed first, the task fails and its socket stays open
        # (Python 3.11). An aborted connection is closed in a later iteration of the loop.
        for listener in listening.sockets:
            loop.remove_reader(listener.fileno())
        deadline = loop.time() + MAX_CLOSE_SECONDS
        while loop.time() < deadline:
            await asyncio.sleep(0.001)
            still_open = [connection for connection in connections if connection.is_open]
            for connection in still_open:
                connection.abort()
            if not still_open and asyncio.all_tasks() == {asyncio.current_task()}:
                break
        listening.close()

    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(server: ChatServer, port: int) -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Connection(server), "127.0.0.1", port, backlog=1024)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    print(server.url, flush=True)  # noqa: T201 - the process that started the server reads it
    await listening.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--trait", action="append", default=[], choices=sorted(TRAITS))
    given = parser.parse_args()
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    run(_serve(ChatServer(latency=given.latency, traits=given.trait, keep=False), given.port))
