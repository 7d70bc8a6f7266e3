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
    "ignores_schema": "a response_format is accepted, but the reply is prose",
    "no_logprobs": "log-probabilities are missing from replies",
    "refuses_logprobs": "log-probabilities are refused",
    "five_logprobs": "more than five top_logprobs are refused",
    "no_temperature": "a temperature is refused",
    "no_max_tokens": "max_tokens is refused in favour of max_completion_tokens",
    "no_seed": "a seed is refused",
    "thinks": "reasoning uses up small token limits, so that the text is empty",
}
"""Permanent properties of the server, by name."""

FAULTS = {
    "rate_limit": "429 with Retry-After",
    "rate_limit_bare": "429 without Retry-After",
    "rate_limit_date": "429 with Retry-After as a date",
    "rate_limit_reset": "429 with x-ratelimit-reset-requests",
    "exhausted": "a good reply with x-ratelimit-remaining-requests: 0",
    "error": "500",
    "overloaded": "503",
    "gateway": "502 with a page of HTML",
    "stall": "no response before the connection is closed",
    "cut": "the connection is cut in the middle of the body",
    "drop": "the connection is closed without a response",
    "trickle": "the body is sent a few bytes at a time",
    "truncated": "the text ends in the middle of its JSON, with finish_reason stop",
    "length": "the text ends in the middle, with finish_reason length",
    "wrong_ids": "every id in the reply is unknown",
    "missing_ids": "the last entry of every list is missing",
    "prose": "prose around the JSON",
    "nonsense": "no JSON",
    "empty": "empty text",
    "broken_body": "200 with a body that is not JSON",
    "html": "200 with a page of HTML",
    "no_choices": "200 without choices",
    "error_inside": "200 with an error object",
    "unauthorised": "401",
    "key_echo": "401 that repeats the key",
    "forbidden": "403",
    "unpaid": "402",
    "quota": "429 insufficient_quota",
    "no_model": "404",
    "too_long": "400 context_length_exceeded",
    "wrong_value": "400 for an invalid temperature",
    "content_filter": "the reply was filtered",
    "refusal": "the model refuses",
    "tool": "the model calls a tool",
    "key_run": "500 with 60 KB that look like the starts of keys",
    "long_reset": "429 with x-ratelimit-reset-requests of 20,000 digits",
    "many_objects": "20,000 different JSON objects",
}
"""Faults of single requests, by name."""


class Fault(NamedTuple):
    name: str
    after: float = 0.05
    """Seconds to wait after a 429, and length of a stall in seconds."""


Response = tuple[int, dict[str, str], bytes, Fault]
"""Status, headers, body, and the fault that decides how they are sent."""


class ChatServer:
    """Chat server whose settings can be changed at any time; `queue_faults` queues faults, one per future request."""

    def __init__(self, answer=None, *, latency: float = 0.0, traits=(), record_requests: bool = True) -> None:
        self.answer = answer or answer_by_schema
        """(messages, schema) -> a text, or a mapping from words to probabilities, one of which becomes the first token.
        """
        self.latency = latency
        self.traits = set(traits)
        self.record_requests = record_requests
        """Whether requests are recorded in `requests`."""
        self.url = ""
        self.faults: deque[Fault] = deque()
        self.reset()

    def reset(self) -> None:
        """Reset all counts and recorded requests."""
        self.calls = self.prompt_tokens = self.completion_tokens = self.embedded = 0
        self.busy = self.max_busy = 0
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.counts: Counter[str] = Counter()
        """Number of occurrences of each fault and trait."""

    def queue_faults(self, *names: str, times: int = 1, after: float = 0.05) -> None:
        for name in names:
            if name not in FAULTS:
                raise LookupError(name)
        self.faults.extend(Fault(name, after) for name in names for _ in range(times))

    def stats(self) -> dict[str, Any]:
        names = ("calls", "prompt_tokens", "completion_tokens", "embedded", "max_busy")
        return {name: getattr(self, name) for name in names} | {"counts": dict(self.counts)}

    def respond(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Response:
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
        if self.record_requests:
            self.requests.append(body)
            self.headers.append(headers)
        try:
            fault = self.faults.popleft()
            self.counts[fault.name] += 1
        except IndexError:
            fault = Fault("")
        if refusal := self._make_refusal(body):
            return 400, {}, refusal, Fault("")
        response = make_fault_response(fault, headers)
        return response if response else self._completion(body, fault)

    def _make_refusal(self, body: dict[str, Any]) -> bytes | None:
        form = body.get("response_format", {}).get("type", "")
        trait, message, parameter = "", "", ""
        if form and "no_response_format" in self.traits:
            trait, message = "no_response_format", "Unrecognized request argument supplied: response_format"
            parameter = "response_format"
        elif form == "json_schema" and "no_json_schema" in self.traits:
            trait, parameter = "no_json_schema", "response_format"
            message = "Invalid parameter: 'response_format' of type 'json_schema' is not supported"
        elif body.get("logprobs") and "refuses_logprobs" in self.traits:
            trait, message, parameter = "refuses_logprobs", "logprobs is not supported with this model", "logprobs"
        elif body.get("top_logprobs", 0) > 5 and "five_logprobs" in self.traits:
            trait, message, parameter = "five_logprobs", "top_logprobs must be at most 5", "top_logprobs"
        elif "temperature" in body and "no_temperature" in self.traits:
            trait = parameter = "no_temperature"
            message = "Unsupported value: 'temperature' does not support 0.0 with this model."
        elif "max_tokens" in body and "no_max_tokens" in self.traits:
            trait, parameter = "no_max_tokens", "max_tokens"
            message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
        elif "seed" in body and "no_seed" in self.traits:
            trait, message, parameter = "no_seed", "seed: Extra inputs are not permitted", "seed"
        if not trait:
            return None
        self.counts[trait] += 1
        return _error(message, "unsupported_parameter", parameter=parameter)

    def _completion(self, body: dict[str, Any], fault: Fault) -> Response:
        messages = body.get("messages", [])
        form = body.get("response_format", {})
        schema = form.get("json_schema", {}).get("schema") if form.get("type") == "json_schema" else None
        tool = next((entry["function"] for entry in body.get("tools", ()) if "function" in entry), None)
        reply_text = self.answer(messages, schema or (tool or {}).get("parameters"))
        chances = reply_text if isinstance(reply_text, dict) else {}
        text = max(chances, key=chances.__getitem__) if chances else str(reply_text)
        if form and "ignores_schema" in self.traits:
            self.counts["ignores_schema"] += 1
            text = "I would say that most of it is right, although it is hard to tell."
        text = corrupt_text(text, fault.name)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        finish = {"length": "length", "content_filter": "content_filter", "tool": "tool_calls"}.get(fault.name, "stop")
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        if "thinks" in self.traits:
            self.counts["thinks"] += 1
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
            choice["logprobs"] = {"content": [_make_token(chances or {text: 0.9}, body.get("top_logprobs", 0))]}
        prompt = sum(count_tokens(entry.get("content") or "") for entry in messages)
        self.prompt_tokens += prompt
        self.completion_tokens += count_tokens(text)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": count_tokens(text),
            "total_tokens": prompt + count_tokens(text),
        }
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

    def _embeddings(self, body: dict[str, Any]) -> Response:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.embedded += len(texts)
        rows = [{"object": "embedding", "index": i, "embedding": bag_of_words(text)} for i, text in enumerate(texts)]
        count = sum(map(count_tokens, map(str, texts)))
        usage = {"prompt_tokens": count, "total_tokens": count}
        reply = {"object": "list", "data": rows, "model": body.get("model", ""), "usage": usage}
        if body.get("encoding_format") == "base64":
            import base64
            import struct

            for row in rows:
                row["embedding"] = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *row["embedding"])).decode()
        return 200, {}, json.dumps(reply).encode(), Fault("")


def make_fault_response(fault: Fault, headers: dict[str, str]) -> Response | None:
    """Return the complete response of a fault, or None if the fault has none of its own."""
    key = headers.get("authorization", "").removeprefix("Bearer ")
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
    rate_limited = _error("Rate limit reached for requests", "rate_limit_exceeded", kind="requests")
    responses: dict[str, tuple[int, dict[str, str], bytes]] = {
        "rate_limit": (429, {"retry-after": f"{fault.after:g}"}, rate_limited),
        "rate_limit_bare": (429, {}, rate_limited),
        "rate_limit_date": (429, {"retry-after": later}, rate_limited),
        "rate_limit_reset": (
            429,
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{fault.after * 1000:.0f}ms"},
            rate_limited,
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
        "key_run": (500, {}, _error("sk-" * 20_000, "server_error")),
        "long_reset": (
            429,
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9" * 20_000},
            _error("Rate limit reached", "rate_limit_exceeded"),
        ),
        "too_long": (
            400,
            {},
            _error("The maximum context length is 128 tokens", "context_length_exceeded", parameter="messages"),
        ),
    }
    return (*responses[fault.name], fault) if fault.name in responses else None


def corrupt_text(text: str, fault: str) -> str:
    """Return a valid text with the change that a fault makes."""
    if fault in ("truncated", "length"):
        return text[: max(1, len(text) * 2 // 3)]
    if fault == "prose":
        return f"Certainly! Here is the JSON that you asked for:\n\n```json\n{text}\n```\n\nLet me know if that helps."
    if fault == "nonsense":
        return "As far as I can see all is well."
    if fault == "empty":
        return ""
    if fault == "many_objects":
        return " ".join(f'{{"n": {number}}}' for number in range(20_000))
    if fault in ("wrong_ids", "missing_ids"):
        try:
            return json.dumps(_change_ids(json.loads(text), fault))
        except ValueError:
            return text
    return text


def _change_ids(value: Any, fault: str) -> Any:
    if isinstance(value, dict):
        if fault == "wrong_ids" and "id" in value:
            return value | {"id": "zz99"}
        if fault == "wrong_ids" and value and all(re.fullmatch(r"[a-z]\d+", key) for key in value):
            return {f"zz{n}": entry for n, entry in enumerate(value.values())}
        return {key: _change_ids(entry, fault) for key, entry in value.items()}
    if isinstance(value, list):
        short = fault == "missing_ids" and any(isinstance(entry, dict) for entry in value)
        return [_change_ids(entry, fault) for entry in (value[:-1] if short else value)]
    return value


def _error(message: str, code: str, *, kind: str = "invalid_request_error", parameter: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": parameter, "code": code}}).encode()


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _make_token(chances: dict[str, float], top: int) -> dict[str, Any]:
    ranked = sorted(chances.items(), key=lambda pair: -pair[1])
    tokens = [{"token": word, "logprob": math.log(max(p, 1e-9)), "bytes": None} for word, p in ranked]
    return {**tokens[0], "top_logprobs": tokens[:top]}


def count_tokens(text: Any) -> int:
    """Estimate the number of tokens of a text: one per four characters, rounded down, plus 1."""
    return len(text) // 4 + 1 if isinstance(text, str) else sum(count_tokens(str(part)) for part in text)


DIMENSIONS = 256


def bag_of_words(text: Any) -> list[float]:
    """Return a unit vector of word counts by hash; a text without words is the first basis vector."""
    row = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", str(text).lower()) or [""]:
        row[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % DIMENSIONS if word else 0] += 1.0
    norm = math.sqrt(sum(value * value for value in row))
    return [value / norm for value in row]


def answer_by_schema(messages: list[dict[str, Any]], schema: dict[str, Any] | None) -> str:
    """Return a reply that satisfies the schema of the request or, if it has none, the last schema in the messages.

    Without any schema the reply is "yes". Equal messages get equal replies.
    """
    prompt = "\n".join(_content_text(message.get("content")) for message in messages)
    schema = schema or _find_schema(prompt)
    if schema is None:
        return "yes"
    rng = random.Random(hashlib.blake2b(prompt.encode(), digest_size=8).digest())
    words = re.findall(r"[A-Za-z]{3,}", _content_text(messages[-1].get("content"))) if messages else []
    return json.dumps(
        _make_value(schema, schema.get("$defs", schema.get("definitions", {})), rng, words or ["word"], 0)
    )


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _find_schema(text: str) -> dict[str, Any] | None:
    """Return the last JSON schema in a text, or None."""
    decoder = json.JSONDecoder()
    schema, place = None, text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except ValueError:
            end, value = place + 1, None
        if isinstance(value, dict) and ("properties" in value or "$ref" in value):
            schema = value
        place = text.find("{", end)
    return schema


def _make_value(
    schema: dict[str, Any], definitions: dict[str, Any], rng: random.Random, words: list[str], place: int
) -> Any:
    if "$ref" in schema:
        return _make_value(definitions[schema["$ref"].rpartition("/")[2]], definitions, rng, words, place)
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return _make_value(schema[several][0], definitions, rng, words, place)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        # Items of a list take the values in order, so that each id of a closed vocabulary appears once.
        return schema["enum"][place] if 0 <= place < len(schema["enum"]) else rng.choice(schema["enum"])
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        members = {}
        for name, inner in schema.get("properties", {}).items():
            at = place if name in ("id", "key", "name") and "enum" in inner else -1
            members[name] = _make_value(inner, definitions, rng, words, at)
            if name in ("supported_together", "contradicted_by"):  # a source may be in only one list
                members[name] = []
            elif name == "claims" and "id" in members:  # one claim per sentence
                members[name] = members[name][:1]
        return members
    if kind == "array":
        items = schema.get("items", {"type": "string"})
        vocabulary = items.get("properties", {}).get("id", {}).get("enum", ())
        n = max(schema.get("minItems", 0), min(schema.get("maxItems", 10**9), len(vocabulary) or 3))
        if "enum" in items:
            n = max(schema.get("minItems", 0), min(n, len(items["enum"]), 1))
        return [_make_value(items, definitions, rng, words, i) for i in range(n)]
    if kind == "string":
        return " ".join(rng.choice(words) for _ in range(6))
    if kind == "integer":
        return min(schema.get("maximum", 1), max(schema.get("minimum", 0), 1))
    return {"number": 0.5, "boolean": rng.random() < 0.8, "null": None}.get(kind)


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
        server.max_busy = max(server.max_busy, server.busy)
        status, extra, reply, fault = server.respond(path, headers, body)
        loop = asyncio.get_running_loop()
        if fault.name in ("stall", "trickle", "cut", "drop"):
            task = loop.create_task(self._send_faulty(reply, fault))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(self._end_request)
        elif server.latency and not path.startswith("/stats"):
            loop.call_later(server.latency, self._send, status, extra, reply)
        else:
            self._send(status, extra, reply)

    def _end_request(self, _: Any = None) -> None:
        self._server.busy -= 1

    def _send(self, status: int, extra: dict[str, str], reply: bytes) -> None:
        self._end_request()
        if not self._transport.is_closing():
            self._transport.write(_head(status, extra, len(reply)) + reply)

    async def _send_faulty(self, reply: bytes, fault: Fault) -> None:
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
    options = parser.parse_args()
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    run(_serve(ChatServer(latency=options.latency, traits=options.trait, record_requests=False), options.port))
