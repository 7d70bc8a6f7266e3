"""HTTP clients with guards: bounded replies, no redirects to other hosts, and no secrets in what services return.

All HTTP requests of ragauge use one of these clients. The HTTP library is an argument, because the OpenAI SDK brings
its own copy.
"""

from __future__ import annotations

import os
import warnings
import zlib
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from types import ModuleType
from typing import Any

from ragauge.core.errors import BackendFailed, InputWarning
from ragauge.core.limits import BYTES_PER_MB, REPLY_LIMIT
from ragauge.core.secrets import MIN_DISTINCTIVE_CHARS, is_distinctive, redact, redact_bytes, register_secrets

MAX_REDIRECTS = 5
ACCEPTED_ENCODINGS = "gzip, deflate"
"""Accepted compressions: those whose decompressed size can be limited."""
_DROPPED_HEADERS = ("content-encoding", "content-length", "transfer-encoding")


def is_loopback(host: str | None) -> bool:
    """Return whether a host of a URL is this machine: only local processes can answer there.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost.example.org")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


def read_key(variable: str) -> str:
    """Return the key in an environment variable, registered for redaction; empty if it is not set."""
    key = os.environ.get(variable, "")
    register_secrets(key)
    if key and not is_distinctive(key):
        _warn_short_key(variable)
    return key


@cache
def _warn_short_key(variable: str) -> None:
    """Warn once that a key is not redacted in data."""
    warnings.warn(
        f"the key in {variable} is not redacted in texts and replies, because it may be a word; it has fewer than "
        f"{MIN_DISTINCTIVE_CHARS} characters, or not both letters and digits",
        InputWarning,
        stacklevel=4,
    )


def open_async_client(library: ModuleType, **options: Any) -> Any:
    """Return an `AsyncClient` of an HTTP library (httpx or a copy of it) with guards."""
    return _client_classes(library)[0](**options)


def open_client(library: ModuleType, **options: Any) -> Any:
    """Return a `Client` of an HTTP library (httpx or a copy of it) with guards."""
    return _client_classes(library)[1](**options)


def find_failure(error: BaseException | None) -> BackendFailed | None:
    """Return the guard's own error from the causes of a library's error, if any."""
    while error is not None and not isinstance(error, BackendFailed):
        error = error.__cause__
    return error


class ReplyBody:
    """The body of a reply, decompressed while it arrives and refused as soon as it exceeds the limit."""

    def __init__(self, response: Any) -> None:
        self._host = _host(response.request.url)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise BackendFailed(
                f"{self._host}: the reply has an unknown compression; expected {ACCEPTED_ENCODINGS}, got "
                f"{encoding[:80]}"
            )
        # 32: the header says whether it is gzip or zlib.
        self._decompressor = None if encoding in ("", "identity") else zlib.decompressobj(32 + zlib.MAX_WBITS)
        self._parts: list[bytes] = []
        self._size = 0
        self._limit = REPLY_LIMIT.n_bytes

    def add(self, data: bytes) -> None:
        """Add bytes as they came over the network."""
        if self._decompressor is not None:
            try:
                data = self._decompressor.decompress(data, self._limit - self._size + 1)
            except zlib.error as error:
                raise BackendFailed(
                    f"{self._host}: the reply cannot be decompressed ({error})", is_temporary=True
                ) from None
        self._size += len(data)
        if self._size > self._limit:
            raise BackendFailed(
                f"{self._host}: the reply is larger than {self._limit // BYTES_PER_MB} MB", hint=REPLY_LIMIT.hint
            )
        self._parts.append(data)

    def read(self) -> bytes:
        """Return all bytes, without registered secrets."""
        if self._decompressor is not None and self._parts and not self._decompressor.eof:
            raise BackendFailed(f"{self._host}: the compressed reply ends early", is_temporary=True)
        return redact_bytes(b"".join(self._parts))


def check_redirect(request: Any, target: Any) -> Any:
    """Return the request to the target of a redirect; refuse another host or port.

    From http to https of the same host is allowed.
    """
    before, after = request.url, target.url
    upgraded = (before.scheme, after.scheme) == ("http", "https") and before.port is None and after.port is None
    if before.host != after.host or (_port(before) != _port(after) and not upgraded):
        raise BackendFailed(
            f"{_host(before)} redirects to {_host(after)}, which is another host",
            hint=f"if you trust {_host(after)}, use its address instead",
            fails_all_calls=True,
        )
    return target


@cache
def _client_classes(library: Any) -> tuple[Any, Any]:
    class GuardedAsyncClient(library.AsyncClient):  # type: ignore[misc]
        async def send(self, request: Any, **settings: Any) -> Any:
            settings |= {"stream": True, "follow_redirects": False}
            for _ in range(MAX_REDIRECTS):
                request.headers["accept-encoding"] = ACCEPTED_ENCODINGS
                response = await super().send(request, **settings)
                try:
                    if response.next_request is None:
                        body = ReplyBody(response)
                        async for data in response.aiter_raw():
                            body.add(data)
                        return _buffer_response(library, response, body)
                    request = check_redirect(request, response.next_request)
                finally:
                    await response.aclose()
            raise _redirect_limit_error(request)

    class GuardedClient(library.Client):  # type: ignore[misc]
        def send(self, request: Any, **settings: Any) -> Any:
            settings |= {"stream": True, "follow_redirects": False}
            for _ in range(MAX_REDIRECTS):
                request.headers["accept-encoding"] = ACCEPTED_ENCODINGS
                response = super().send(request, **settings)
                try:
                    if response.next_request is None:
                        body = ReplyBody(response)
                        for data in response.iter_raw():
                            body.add(data)
                        return _buffer_response(library, response, body)
                    request = check_redirect(request, response.next_request)
                finally:
                    response.close()
            raise _redirect_limit_error(request)

        def __del__(self) -> None:
            # Embedders and rerankers have no close(); the SDK's own client does the same.
            with suppress(Exception):
                self.close()

    return GuardedAsyncClient, GuardedClient


def _buffer_response(library: Any, response: Any, body: ReplyBody) -> Any:
    """Return the response with its whole body in memory, decompressed and redacted."""
    headers = [
        (name.encode(), redact(value).encode())  # as bytes, because a header may hold any characters
        for name, value in response.headers.items()
        if name.lower() not in _DROPPED_HEADERS
    ]
    return library.Response(
        response.status_code,
        headers=headers,
        content=body.read(),
        request=response.request,
        extensions={key: value for key, value in response.extensions.items() if key != "network_stream"},
    )


def _redirect_limit_error(request: Any) -> BackendFailed:
    return BackendFailed(f"{_host(request.url)} redirects more than {MAX_REDIRECTS} times", fails_all_calls=True)


def _port(url: Any) -> int:
    return url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


def _host(url: Any) -> str:
    return f"{url.host}:{url.port}" if url.port else str(url.host)
