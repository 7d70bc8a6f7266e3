"""Embed with averaged static word vectors: weaker than a transformer, but fast, offline and 19 MB."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import BadInput, MissingExtra
from ragauge.seams import Tokenizer, Vectors


class WordLlama:
    """Embedder with the weights of the package `wordllama`: unit length, zeros for an empty text."""

    def __init__(self, *, dimensions: int = 256) -> None:
        with _logging_left_alone():
            try:
                import wordllama
            except ImportError:
                raise MissingExtra("the embedder `wordllama`", "wordllama") from None
        if dimensions not in (64, 128, 256):
            raise BadInput(f"wordllama has no vectors of {dimensions} dimensions", hint="64, 128 or 256")
        # The package looks for its tokenizer in the cache folder only; with its own folder as cache it stays offline.
        folder = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(
            cache_dir=folder, trunc_dim=None if dimensions == 256 else dimensions, disable_download=True
        )
        self.limit = None
        """No token limit: the mean is over all tokens of a text."""
        self.parameters = int(self._model.embedding.size)
        """Number of weights: one vector per token."""
        self.trained = True
        self.name = f"wordllama-l2-supercat-{dimensions}"

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of Llama 2."""
        from ragauge.systems.tokenizers.files import Library

        return Library.around(self._model.tokenizer, "wordllama-l2-supercat")

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text."""
        return [sum(one.attention_mask) for text in texts for one in self._model.tokenize([text])]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        vectors = np.asarray(self._model.embed(list(texts), norm=False), np.float32)
        # Not left to the package, which would divide by the length 0 of an empty text.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Restore the logging settings, which importing the package changes."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
