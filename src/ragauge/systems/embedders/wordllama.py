"""Static word embeddings, averaged: weak beside a transformer, but thousands of texts a second, offline, 19 MB."""

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
    """The `wordllama` package's own weights: 256 dimensions, unit length; an empty text has a vector of zeros."""

    def __init__(self, *, dimensions: int = 256) -> None:
        with _logging_left_alone():
            try:
                import wordllama
            except ImportError:
                raise MissingExtra("the embedder `wordllama`", "wordllama") from None
        if dimensions not in (64, 128, 256):
            raise BadInput(f"wordllama has no vectors of {dimensions} dimensions", hint="64, 128 or 256")
        # The package looks for its tokenizer in the cache folder only; that its own folder is one keeps it offline.
        folder = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(
            cache_dir=folder, trunc_dim=None if dimensions == 256 else dimensions, disable_download=True
        )
        self.limit = None
        """The mean is over all tokens of a text."""
        self.parameters = int(self._model.embedding.size)
        """A vector for each token, and nothing else."""
        self.trained = True
        self.name = f"wordllama-l2-supercat-{dimensions}"

    @property
    def tokenizer(self) -> Tokenizer:
        """That of Llama 2."""
        from ragauge.systems.tokenizers.files import Library

        return Library.around(self._model.tokenizer, "wordllama-l2-supercat")

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has."""
        return [sum(one.attention_mask) for text in texts for one in self._model.tokenize([text])]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        vectors = np.asarray(self._model.embed(list(texts), norm=False), np.float32)
        # Not left to the package, which divides the empty text's zeros by their length of 0.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Importing the package turns on logging for the whole process; it is put back as it was."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
