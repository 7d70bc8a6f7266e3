"""Embed with an OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, text-embeddings-inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.core.errors import BackendFailed, excerpt
from ragauge.core.protocols import Vectors
from ragauge.models.openai_client import OpenAIEndpoint

EMBEDDER_EXAMPLE = "openai(model=NAME, url=http://localhost:8000/v1)"


class OpenAIEmbedder:
    """Embedder at an endpoint; the API key is read from OPENAI_API_KEY and never shown or written.

    Two endpoints may serve different models under one name, so the name has the endpoint. `probe` is a text that is
    embedded again before cached vectors are used: they must come from the same model.
    """

    is_remote = True

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        url: str | None = None,
        dimensions: int | None = None,
        batch: int = 128,
        probe: str = "",
    ) -> None:
        self._endpoint = OpenAIEndpoint("the embedder `openai`", url, example=EMBEDDER_EXAMPLE)
        self._endpoint.check_key(EMBEDDER_EXAMPLE)
        self._client: Any = self._endpoint.open_client()
        self._model = model
        self._options = {"dimensions": dimensions} if dimensions else {}
        self._batch = batch
        self.probe = probe
        address = f" at {self._endpoint.shown}" if self._endpoint.is_given else ""
        self.name = f"{model}{f'-{dimensions}' if dimensions else ''}{address}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text, in the order of the texts."""
        rows: list[Any] = []
        for start in range(0, len(texts), self._batch):
            part = list(texts[start : start + self._batch])
            try:
                reply = self._client.embeddings.create(
                    model=self._model, input=part, encoding_format="float", **self._options
                )
            except Exception as error:
                raise self._endpoint.to_failure(error, "the embeddings endpoint") from None
            embeddings = (
                getattr(reply, "data", None) or ()
            )  # An endpoint with another protocol returns text or nothing.
            if len(embeddings) != len(part):
                raise BackendFailed(f"the embeddings endpoint returned {len(embeddings)} vectors for {len(part)} texts")
            rows.extend(_order_by_index(embeddings))
        if len({len(row) for row in rows}) > 1:
            raise BackendFailed("the embeddings endpoint returned vectors of different lengths")
        try:
            return np.asarray(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 0)
        except (TypeError, ValueError) as error:
            raise BackendFailed(f"the embeddings endpoint returned values that are not numbers ({error})") from None


def _order_by_index(embeddings: Sequence[Any]) -> list[Any]:
    """Return the vectors in the order of their texts; raise BackendFailed unless each text has one."""
    indexes = [getattr(item, "index", None) for item in embeddings]
    by_index = {index: item for index, item in zip(indexes, embeddings, strict=True) if type(index) is int}
    if set(by_index) != set(range(len(embeddings))):
        raise BackendFailed(
            f"the embeddings endpoint returned vectors with the indexes {excerpt(repr(indexes))}; "
            f"expected the integers 0 to {len(embeddings) - 1}, each once"
        )
    vectors = [getattr(by_index[index], "embedding", None) for index in range(len(embeddings))]
    if not all(isinstance(vector, list) for vector in vectors):
        raise BackendFailed("the embeddings endpoint returned a vector that is not a list of numbers")
    return vectors
