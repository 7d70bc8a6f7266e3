"""Any model of sentence-transformers or Hugging Face, from a folder or, where that is allowed, from the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.errors import BackendFailed, MissingExtra
from ragauge.seams import Vectors
from ragauge.systems.model_folders import refuse_code


class SentenceTransformer:
    """A sentence-transformers model; a plain Hugging Face encoder gets mean pooling, as that library does it."""

    def __init__(
        self, model: str, *, batch: int = 32, device: str | None = None, prompt: str = "", download: bool = False
    ) -> None:
        try:
            import sentence_transformers
        except ImportError:
            raise MissingExtra("the embedder `transformers`", "transformers") from None
        refuse_code(model)
        try:
            self._model: Any = sentence_transformers.SentenceTransformer(
                model, device=device, local_files_only=not download, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise BackendFailed(
                f"the model `{model}` cannot be loaded: {(str(error).splitlines() or [''])[0]}",
                hint="give a folder with the model, or download=true to fetch it from the hub",
            ) from error
        self._batch = batch
        self._prompt = prompt
        self.name = f"{model}{f' ({prompt!r})' if prompt else ''}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text, unit length."""
        if not texts:
            return np.empty((0, 0), np.float32)  # the library gives no rows at all then, but one empty one
        vectors: Vectors = self._model.encode(
            list(texts),
            batch_size=self._batch,
            normalize_embeddings=True,
            show_progress_bar=False,
            prompt=self._prompt or None,
        )
        return vectors
