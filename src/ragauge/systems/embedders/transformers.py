"""Embed with sentence-transformers or Hugging Face models, from a folder or, if allowed, from the hub."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.seams import Tokenizer, Vectors
from ragauge.systems.model_folders import digest, label, load, parameters, spelled


class SentenceTransformer:
    """Embedder with a sentence-transformers model; a plain encoder gets mean pooling."""

    def __init__(
        self, model: str, *, batch: int = 32, device: str | None = None, prompt: str = "", download: bool = False
    ) -> None:
        what = "the embedder `transformers`"
        self._model: Any = load("SentenceTransformer", model, what=what, device=device, download=download)
        self._batch = batch
        self._prompt = prompt
        self.limit: int | None = self._model.max_seq_length
        """Maximum number of tokens read per text, including special tokens; None if unknown."""
        self.parameters = parameters(self._model)
        self.trained = True
        said = [repr(self._model), spelled(self._model.tokenizer), str(self.limit), prompt]
        self._label = label(model)
        self.name = f"{self._label}-{digest(self._model, *said)}{f' ({prompt!r})' if prompt else ''}"

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model."""
        from ragauge.systems.tokenizers.pretrained import Pretrained

        return Pretrained.around(copy.deepcopy(self._model.tokenizer), self._label)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, with prompt and special tokens.

        Texts are not truncated.
        """
        told = [f"{self._prompt}{text}" for text in texts]
        return [len(ids) for ids in self._model.tokenizer(told, truncation=False, verbose=False)["input_ids"]]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row of unit length per text."""
        if not texts:
            return np.empty((0, 0), np.float32)  # The library would return one empty row.
        vectors: Vectors = self._model.encode(
            list(texts),
            batch_size=self._batch,
            normalize_embeddings=True,
            show_progress_bar=False,
            prompt=self._prompt or None,
        )
        return vectors
