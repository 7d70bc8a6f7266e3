"""A small LSTM over subwords, trained on the corpus or with random weights."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.hashes import hash_bytes
from ragauge.core.plugin_parameters import Part
from ragauge.core.protocols import Tokenizer, Vectors
from ragauge.core.settings import AtLeast, AtMost, check_settings
from ragauge.core.specs import Spec, parse_spec
from ragauge.models.tokenizers import open_tokenizer

if TYPE_CHECKING:
    import torch

DEFAULT_TOKENIZER = "bpe(vocabulary=4000)"
MAX_VOCABULARY = 65_536
"""Maximum number of token ids, each of which has a row in the table of token vectors."""
TRAINING_BATCH_DOCUMENTS = 128
MAX_LEARNING_RATE = 3e-3
TOKEN_VECTOR_STD = 0.02
"""Standard deviation of the initial token vectors."""
TEMPERATURE = 0.1
"""Divisor of similarities in the contrastive loss."""
MAX_BATCH_TOKENS = 16_384
"""Maximum number of tokens that are embedded at a time, including padding."""
MAX_SPAN_CHARS = 200
"""Maximum number of characters of a training span and of the text that it must match."""
MIN_SPAN_SHARE, MAX_SPAN_SHARE = 0.1, 0.5
"""Shares of the words of a document in a training span."""


@dataclass(frozen=True)
class LSTMSettings:
    """Size and training of the network."""

    dimension: Annotated[int, AtLeast(1), AtMost(8192)] = 128
    layers: Annotated[int, AtLeast(1), AtMost(16)] = 1
    context: Annotated[int, AtLeast(2), AtMost(65_536)] = 512
    """Maximum number of tokens read per text."""
    passes: Annotated[int, AtLeast(1), AtMost(1000)] = 3
    """Number of passes over the corpus in training."""
    trained: bool = True
    """False keeps the random weights."""
    seed: Annotated[int, AtLeast(0), AtMost(2**53)] = 0

    def __post_init__(self) -> None:
        check_settings(self, "lstm: ")


class LSTMEmbedder:
    """Embedder whose vectors are the mean states of an LSTM, with unit length.

    It is trained to match a span of each document with the rest of it, among the documents of a batch. It does not
    compete with large pretrained models. It shows what a tokenizer contributes if everything else is equal, and,
    untrained, what random weights are worth.
    """

    marks = 0
    """Number of special tokens that count for the limit."""

    def __init__(
        self,
        settings: LSTMSettings | None = None,
        *,
        tokenizer: Annotated[Tokenizer | str | Spec | None, Part(is_built=False)] = None,
    ) -> None:
        try:
            import torch  # noqa: F401 - without it, fail before the corpus is read
        except ImportError:
            raise MissingExtra("the embedder `lstm`", "lm") from None
        self._settings = settings or LSTMSettings()
        self._tokenizer_spec: Any = (
            parse_spec(tokenizer) if isinstance(tokenizer, str) else tokenizer or parse_spec(DEFAULT_TOKENIZER)
        )
        open_tokenizer(self._tokenizer_spec)  # report a wrong name before training
        self._network: Network | None = None
        self._tokenizer: Tokenizer | None = None
        self.train_seconds = math.nan

    def fitted(self, texts: Sequence[str], progress: ProgressCallback = no_progress) -> LSTMEmbedder:
        """Return a copy with a tokenizer and a network trained on texts."""
        documents = sorted({text for text in texts if text.strip()})
        if not documents:
            raise BadInput(f"lstm: no text to learn from among {len(texts)} texts", hint="add documents with text")
        model = copy(self)
        model._tokenizer = open_tokenizer(self._tokenizer_spec, documents)
        if model._tokenizer.vocabulary > MAX_VOCABULARY:
            raise BadInput(
                f"lstm: the tokenizer must have at most {MAX_VOCABULARY:,} tokens, got {model._tokenizer.vocabulary:,}",
                hint="use `tokenizer=bpe(vocabulary=4000)` or `tokenizer=bytes`",
            )
        model._network = Network(self._settings, model._tokenizer.vocabulary)
        if self._settings.trained:
            began = time.perf_counter()
            _train(model._network, self._settings, model._tokenizer, documents, progress)
            model.train_seconds = time.perf_counter() - began
        return model

    @property
    def name(self) -> str:
        """Name with tokenizer and size; after fitting it ends with a hash of the weights."""
        tokenizer = self._tokenizer_spec if self._tokenizer is None else self._tokenizer.name
        learned = "trained" if self.trained else "untrained"
        size = f"{self._settings.dimension}x{self._settings.layers}"
        end = "unfitted" if self._network is None else self._network.fingerprint
        return f"lstm-{tokenizer}-{learned}-{size}-{end}"

    @property
    def trained(self) -> bool:
        """Whether the weights are trained."""
        return self._settings.trained

    @property
    def limit(self) -> int:
        """Maximum number of tokens read per text."""
        return self._settings.context

    @property
    def tokenizer(self) -> Tokenizer:
        return self._fitted_parts[0]

    @property
    def parameters(self) -> int:
        return self._fitted_parts[1].parameters

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text without truncation."""
        return [len(ids) for ids in self.tokenizer.encode(texts)]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text; a text without tokens has zeros."""
        import torch

        tokenizer, network = self._fitted_parts
        rows = [ids[: self.limit] for ids in tokenizer.encode(texts)]
        vectors = np.zeros((len(rows), self._settings.dimension), np.float32)
        with torch.inference_mode():
            for group in _group_by_length([len(row) for row in rows]):
                vectors[group] = network.pool([rows[i] for i in group]).numpy()
        return vectors

    @property
    def _fitted_parts(self) -> tuple[Tokenizer, Network]:
        if self._tokenizer is None or self._network is None:
            raise BadInput(f"the embedder `{self.name}` is not fitted", hint="call fitted(texts) first")
        return self._tokenizer, self._network


class Network:
    """Table of token vectors and an LSTM; the initial weights depend only on the seed."""

    def __init__(self, settings: LSTMSettings, vocabulary: int) -> None:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            # Row 0 is for padding, which follows the tokens: it changes no state of theirs.
            self.table = torch.nn.Embedding(vocabulary + 1, settings.dimension)
            # Small vectors, as in GPT-2, change at once; with the default of 1 a short training has no effect.
            torch.nn.init.normal_(self.table.weight, std=TOKEN_VECTOR_STD)
            self.lstm = torch.nn.LSTM(settings.dimension, settings.dimension, settings.layers, batch_first=True)

    @property
    def weights(self) -> list[torch.nn.Parameter]:
        return [*self.table.parameters(), *self.lstm.parameters()]

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.weights)

    @property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return hash_bytes(b"".join(weight.detach().numpy().tobytes() for weight in self.weights), size_bytes=4)

    def pool(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the mean state of each row of token ids, with unit length."""
        import torch

        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for i, row in enumerate(rows):
            padded[i, : len(row)] = torch.tensor(row) + 1
        inputs = self.table(padded)
        states = inputs + self.lstm(inputs)[0]
        is_token = (torch.arange(padded.shape[1]) < lengths[:, None]).to(states.dtype)
        return torch.nn.functional.normalize((states * is_token[:, :, None]).sum(1), dim=1)


def _group_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield positions of texts of similar length, so that there is little padding; empty texts are skipped."""
    group: list[int] = []
    for position in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
        if group and (len(group) + 1) * lengths[position] > MAX_BATCH_TOKENS:
            yield group
            group = []
        group.append(position)
    if group:
        yield group


def _train(
    network: Network,
    settings: LSTMSettings,
    tokenizer: Tokenizer,
    documents: Sequence[str],
    progress: ProgressCallback,
) -> None:
    """Train with AdamW on the contrastive loss: each span must match the rest of its own document."""
    import torch
    import torch.nn.functional as F  # noqa: N812 - its usual name

    rng = np.random.default_rng(settings.seed)
    n_batches = max(1, round(len(documents) / TRAINING_BATCH_DOCUMENTS))
    n_steps = settings.passes * n_batches
    optimizer = torch.optim.AdamW(network.weights)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, MAX_LEARNING_RATE, total_steps=n_steps + 1, pct_start=0.1, cycle_momentum=False
    )
    step = 0
    for _ in range(settings.passes):
        for batch in np.array_split(rng.permutation(len(documents)), n_batches):
            pairs = [split_span(documents[i], rng) for i in batch.tolist()]
            spans, rests = (
                network.pool([ids[: settings.context] or [0] for ids in tokenizer.encode(texts)])
                for texts in zip(*pairs, strict=True)
            )
            similarities = spans @ rests.T / TEMPERATURE
            targets = torch.arange(len(similarities))
            loss = (F.cross_entropy(similarities, targets) + F.cross_entropy(similarities.T, targets)) / 2
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.weights, 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            progress(Progress("training", step, n_steps))


def split_span(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Return a span of a text, and its surroundings with the span or, in half of the cases, without it.

    So the network learns to recognise both the topic and equal words.
    """
    words = [match.span() for match in re.finditer(r"\S+", text)]
    if len(words) < 4:  # also languages without spaces between words
        words = [match.span() for match in re.finditer(r"\S", text)]
    count = max(1, round(rng.uniform(MIN_SPAN_SHARE, MAX_SPAN_SHARE) * len(words)))
    first = int(rng.integers(len(words) - count + 1))
    start = words[first][0]
    stop = min(words[first + count - 1][1], start + MAX_SPAN_CHARS)
    margin = (MAX_SPAN_CHARS - (stop - start)) // 2
    rest = f"{text[:start].rstrip()} {text[stop:].lstrip()}".strip()[:MAX_SPAN_CHARS]
    around = text[max(0, start - margin) : stop + margin]
    return text[start:stop], rest if rest and rng.random() < 0.5 else around
