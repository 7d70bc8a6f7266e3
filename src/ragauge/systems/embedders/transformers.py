"""Any model of sentence-transformers or Hugging Face, from a folder or, where that is allowed, from the hub."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.seams import Tokenizer, Vectors
from ragauge.systems.model_folders import digest, label, load, parameters, spelled


class SentenceTransformer:
    """A sentence-transformers model; a plain Hugging Face encoder gets mean pooling, as that library does it."""

    def __init__(
        self, model: str, *, batch: int = 32, device: str | None = None, prompt: str = "", download: bool = False
    ) -> None:
        what = "the embedder `transformers`"
        self._model: Any = load("SentenceTransformer", model, what=what, device=device, download=download)
        self._batch = batch
        self._prompt = prompt
        self.limit: int | None = self._model.max_seq_length
        """Tokens of a text that are read, the marks around it among them; None where the model does not say."""
        self.parameters = parameters(self._model)
        self.trained = True
        said = [repr(self._model), spelled(self._model.tokenizer), str(self.limit), prompt]
        self._label = label(model)
        self.name = f"{self._label}-{digest(self._model, *said)}{f' ({prompt!r})' if prompt else ''}"

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts its texts."""
        from ragauge.systems.tokenizers.pretrained import Pretrained

        return Pretrained.around(copy.deepcopy(self._model.tokenizer), self._label)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has with its prompt and the marks around it, whatever is read of it."""
        told = [f"{self._prompt}{text}" for text in texts]
        return [len(ids) for ids in self._model.tokenizer(told, truncation=False, verbose=False)["input_ids"]]

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
