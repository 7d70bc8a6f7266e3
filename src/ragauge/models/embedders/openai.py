"""Embed with an OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, text-embeddings-inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Vectors
from ragauge.core.specs import redact_spec
from ragauge.models.openai_client import OpenAIEndpoint

EMBEDDER_EXAMPLE = "openai(model=NAME, url=http://localhost:8000/v1)"


class OpenAIEmbedder:
    """Embedder at an endpoint; the API key is read from OPENAI_API_KEY and never shown or written."""

    is_remote = True

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        url: str | None = None,
        dimensions: int | None = None,
        batch: int = 128,
    ) -> None:
        self._endpoint = OpenAIEndpoint("the embedder `openai`", url, example=EMBEDDER_EXAMPLE)
        self._endpoint.check_key(EMBEDDER_EXAMPLE)
        self._client: Any = self._endpoint.open_client()
        self._model = model
        self._options = {"dimensions": dimensions} if dimensions else {}
        self._batch = batch
        self.name = f"{model}{f'-{dimensions}' if dimensions else ''}{f' at {redact_spec(url)}' if url else ''}"

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
            rows.extend(item.embedding for item in sorted(embeddings, key=lambda item: item.index))
        if len({len(row) for row in rows}) > 1:
            raise BackendFailed("the embeddings endpoint returned vectors of different lengths")
        return np.asarray(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 0)
