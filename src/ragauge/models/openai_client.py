"""Open the OpenAI SDK's client with guards, for embedders and rerankers that call OpenAI-compatible endpoints."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ragauge.core.errors import BackendFailed, MissingExtra
from ragauge.core.secrets import register_secrets, register_url
from ragauge.models.http_client import find_failure, open_client


def open_openai_client(what: str, url: str | None, **settings: Any) -> Any:
    """Open a client of the OpenAI SDK for `url`.

    The API key is read from OPENAI_API_KEY. `what` names the component in the error if the SDK is not installed.
    """
    try:
        import openai
    except ImportError:
        raise MissingExtra(what, "openai") from None
    library = import_module(type(openai.DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])
    guarded = open_client(library, limits=openai.DEFAULT_CONNECTION_LIMITS, timeout=openai.DEFAULT_TIMEOUT)
    try:
        client: Any = openai.OpenAI(base_url=url, http_client=guarded, **settings)
    except openai.OpenAIError as error:
        raise BackendFailed(str(error), hint="set OPENAI_API_KEY; a local server takes any value") from error
    register_secrets(client.api_key)
    register_url(str(client.base_url))
    return client


def to_failure(error: Exception, what: str) -> BackendFailed:
    """Convert an error of the OpenAI SDK to BackendFailed.

    Other errors are raised unchanged.
    """
    import openai

    failure = find_failure(error)
    if failure is not None:
        return failure
    if not isinstance(error, openai.OpenAIError):
        raise error
    return BackendFailed(f"{what} failed: {error}")
