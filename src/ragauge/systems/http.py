"""Search a service over HTTP: POST a JSON body and read hits from the JSON reply."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ragauge.errors import BackendFailed, BadInput, MissingExtra
from ragauge.http_client import open_async_client
from ragauge.keys import register_fields, register_secrets, register_url
from ragauge.records import Hit
from ragauge.stages import stage
from ragauge.systems.adapters import LISTS, hits_of
from ragauge.systems.specs import without_secrets


class HTTP:
    """Retriever that POSTs `{"query": …, "k": …}` to `url` and reads a list of hits, or one under `hits`.

    `query` and `k` are the names of these fields in the request. `extra` is added to the request. `path` is the place
    of the hits in the reply (`data.items`). `id` is the field of a hit with its id (`metadata.source`). `bearer` names
    an environment variable with a token, which is neither shown nor written. `timeout` is in seconds. Connections are
    kept open, so that latency does not include the handshake.
    """

    asynchronous = True

    def __init__(  # noqa: PLR0913 - each is an option of the description
        self,
        url: str,
        *,
        query: str = "query",
        k: str = "k",
        path: str = "",
        id: str = "",
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
                f"`{without_secrets(url)}` is not an http or https address",
                hint="http(url=http://localhost:8000/search)",
            )
        register_url(url)
        register_fields(headers or {})
        self._url = url
        self._shown = str(address.copy_with(username=None, password=None, query=None))
        self._names = (query, k)
        self._path = [part for part in path.split(".") if part]
        self._id = id
        self._extra = dict(extra or {})
        self._failures = (httpx.HTTPError,)
        sent = dict(headers or {})
        if bearer:
            if bearer not in os.environ:
                raise BadInput(
                    f"there is no environment variable `{bearer}`", hint="bearer names the one with the token"
                )
            register_secrets(os.environ[bearer])
            sent["Authorization"] = f"Bearer {os.environ[bearer]}"
        self._client: Any = open_async_client(httpx, timeout=timeout, headers=sent)

    async def search(self, query: str, k: int) -> list[Hit]:
        """Search with the service; raise BackendFailed if the reply is not a list of hits."""
        with stage("retrieve"):
            try:
                reply = await self._client.post(
                    self._url, json={**self._extra, self._names[0]: query, self._names[1]: k}
                )
            except self._failures as error:
                raise BackendFailed(f"{self._shown}: {type(error).__name__} {error}") from error
        if not reply.is_success:
            raise BackendFailed(f"{self._shown} answered {reply.status_code}: {reply.text[:300]}")
        try:
            body: Any = reply.json()
        except ValueError:
            raise BackendFailed(f"{self._shown} answered no JSON: {reply.text[:300]!r}") from None
        return hits_of(self._listed(body), self._id)[:k]

    def _listed(self, body: Any) -> list[Any]:
        for part in self._path:
            if not isinstance(body, Mapping) or part not in body:
                raise BackendFailed(f"{self._shown}: the reply has no `{'.'.join(self._path)}`")
            body = body[part]
        if isinstance(body, Mapping):
            body = next((body[name] for name in LISTS if isinstance(body.get(name), list)), body)
        # A mapping from ids to scores is not accepted, because a status message looks like one.
        if not isinstance(body, list):
            raise BackendFailed(
                f"{self._shown}: the reply has no list of hits: {str(body)[:300]!r}", hint="path=data.items says where"
            )
        return body

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
