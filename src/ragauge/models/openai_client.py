"""Open endpoints with OpenAI's protocol, for chats and embedders: address, key and guarded clients."""

from __future__ import annotations

import os
import re
from importlib import import_module
from json import JSONDecodeError
from typing import Any
from urllib.parse import urlsplit

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.secrets import redact_url, register_secrets, register_url
from ragauge.models.http_client import find_failure, is_loopback, open_async_client, open_client, read_key

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY_VARIABLE = "OPENAI_API_KEY"
OPENAI_URL_VARIABLE = "OPENAI_BASE_URL"
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
"""Form of a variable name. Other values of `key` may be the key itself and must not be shown."""


class OpenAIEndpoint:
    """Endpoint at `url`, at OPENAI_BASE_URL, or at OpenAI.

    The API key is read from the environment variable named by `key` and is neither shown nor written. An endpoint that
    is given by its address needs none. `what` names the component in messages, and `example` is a valid description.
    """

    def __init__(self, component: str, url: str | None, *, key: str = OPENAI_KEY_VARIABLE, example: str = "") -> None:
        try:
            import openai
        except ImportError:
            raise MissingExtra(component, "openai") from None
        address = url or os.environ.get(OPENAI_URL_VARIABLE)
        self.url = address or OPENAI_URL
        parts = urlsplit(self.url)
        self.shown = redact_url(self.url)
        """Address without credentials."""
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"`{self.shown}` is not an address", hint=example or None)
        if "?" in self.url or "#" in self.url:
            raise BadInput(f"the address {self.shown} must not have a query or a fragment", hint=example or None)
        secret = read_key(key)
        if key and key not in os.environ and not VARIABLE_NAME.fullmatch(key):
            raise BadInput(
                "the option `key` must name an environment variable",
                hint="store the key in OPENAI_API_KEY, or name another variable",
            )
        self.sdk: Any = openai
        self.http: Any = import_module(type(openai.DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])
        """The HTTP library that the SDK brings."""
        self.is_given = bool(address)
        self.is_local = is_loopback(parts.hostname)
        self._what = component
        self._key = secret or ("none" if address else "")
        self._variable = key
        register_url(self.url)

    @property
    def missing_key(self) -> str:
        """Environment variable of a required key that is missing; empty if none is."""
        return "" if self._key else self._variable

    def use_key(self, secret: str) -> None:
        """Set the key directly instead of by a variable."""
        self._key = secret
        register_secrets(secret)

    def check_key(self, example: str) -> None:
        """Raise BackendFailed if a required key is missing; `example` describes a server that needs none."""
        if not self._key:
            raise BackendFailed(
                f"{self._what} needs an API key in the environment variable {self._variable}",
                hint=f"set {self._variable}, or pass the address of your own server: {example}",
                fails_all_calls=True,
            )

    def open_client(self) -> Any:
        limits, timeout = self.sdk.DEFAULT_CONNECTION_LIMITS, self.sdk.DEFAULT_TIMEOUT
        guarded = open_client(self.http, limits=limits, timeout=timeout, trust_env=not self.is_local)
        return self.sdk.OpenAI(api_key=self._key, base_url=self.url, http_client=guarded)

    def open_async_client(self, timeout_s: float) -> Any:
        """Open an asynchronous client of the SDK without a limit on connections, and without retries."""
        limits = self.http.Limits(max_connections=None, max_keepalive_connections=None)
        timeout = self.sdk.Timeout(timeout_s, connect=10.0)
        guarded = open_async_client(self.http, limits=limits, timeout=timeout, trust_env=not self.is_local)
        return self.sdk.AsyncOpenAI(
            api_key=self._key, base_url=self.url, max_retries=0, timeout=timeout, http_client=guarded
        )

    def to_failure(self, error: Exception, action: str) -> BackendFailed:
        """Convert an error of the SDK to BackendFailed.

        Other errors are raised unchanged.
        """
        failure = find_failure(error)
        if failure is not None:
            return failure
        if isinstance(error, JSONDecodeError | UnicodeError):  # the SDK lets them pass
            return BackendFailed(f"{action} returned an invalid reply ({error})")
        if not isinstance(error, self.sdk.OpenAIError):
            raise error
        return BackendFailed(f"{action} failed: {error}")
