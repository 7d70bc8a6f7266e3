"""Embed with any Hugging Face transformers encoder: BERT, T5 and ByT5, CANINE, BART, GPT-2 and similar models."""

from __future__ import annotations

import copy
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import BackendFailed, BadInput, error_summary
from ragauge.core.protocols import Tokenizer, Vectors
from ragauge.core.text import replace_lone_surrogates
from ragauge.core.vectors import to_unit_rows
from ragauge.models.embedders.transformers_models import (
    WeightOptions,
    config_fingerprint_text,
    max_positions,
    open_model,
    padding_rule,
)
from ragauge.models.huggingface import (
    count_parameters,
    load_model,
    model_hash,
    model_label,
    tokenizer_fingerprint_text,
)

Floats = NDArray[np.float64]
POOLINGS = ("mean", "cls", "last", "max")
DEFAULT_TOKEN_LIMIT = 1024
"""Token limit if neither model nor tokenizer has one: the training length of ByT5 and mT5."""
MAX_BATCH_TOKENS = 16_384
"""Maximum number of tokens per batch, including padding: attention memory grows with the square of the text length."""


class TransformersEncoder:
    """Embedder that pools the last hidden states of a text's tokens, including special tokens.

    `pooling` is `mean`, `cls` (the first token), `last` or `max`. `tokens` is the maximum number of tokens read.
    `layers` uses only the first N layers. `untrained` draws all weights from `seed`, with the architecture unchanged.
    Vectors have unit length; a text without tokens has a vector of zeros, and NaN values are kept.
    """

    def __init__(
        self,
        model: str,
        weights: WeightOptions = WeightOptions(),
        *,
        pooling: str = "mean",
        tokens: int | None = None,
        batch: int = 32,
        device: str | None = None,
        prompt: str = "",
    ) -> None:
        if pooling not in POOLINGS:
            raise BadInput(f"unknown pooling `{pooling}`", hint=f"choose one of {', '.join(POOLINGS)}")
        if batch < 1:
            raise BadInput(f"batch must be at least 1, got {batch}")
        self._model = open_model(model, weights)
        if pooling == "cls" and self._model.causal:
            raise BadInput(
                f"the first token of `{model}` does not depend on the text", hint="use pooling=mean or pooling=last"
            )
        self._device = _choose_device(device)
        self._model.body.to(self._device)
        self._pooling, self._prompt, self._batch = pooling, prompt, batch
        self._lock = threading.Lock()  # The tokenizer stores its truncation settings between calls.
        self._typed = "token_type_ids" in inspect.signature(self._model.body.forward).parameters
        self.limit = self._token_limit(tokens)
        """Maximum number of tokens read per text, including special tokens."""
        self.dimension = int(getattr(self._model.config, "hidden_size", 0))
        if not self.dimension:
            raise BadInput(f"`{model}` is not a text encoder: its vector size is unknown")
        self.parameters = count_parameters(self._model.body)
        """Number of parameters used for vectors; for an encoder-decoder, those of the encoder."""
        self.trained = not weights.untrained
        settings = [
            config_fingerprint_text(self._model.config),
            tokenizer_fingerprint_text(self._model.tokenizer),
            pooling,
            str(self.limit),
            prompt,
        ]
        label = [self._model.label]
        label += ["untrained"] if weights.untrained else []
        label += [f"{weights.layers}-layers"] if weights.layers else []
        self.name = "-".join([*label, pooling, str(self.limit), model_hash(self._model.body, *settings)])
        if self._model.language is not None and self._model.tokenizer.eos_token_id is not None:
            self._model.language.to(self._device)
            self.bits = self._compute_bits

    bits: Callable[[Sequence[str]], Floats]
    """Number of bits per text, including its end, given a start token; language models only."""

    @property
    def marks(self) -> int:
        """Number of special tokens around a text, including its prompt."""
        return self.tokens([""])[0]

    @property
    def tokenizer(self) -> Tokenizer:
        from ragauge.models.tokenizers.huggingface import TransformersTokenizer

        return TransformersTokenizer.around(copy.deepcopy(self._model.tokenizer), self._model.label)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, with prompt and special tokens.

        Texts are not truncated.
        """
        return [len(ids) for ids in self._tokenize_texts(texts)["input_ids"]]

    def embed(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self.dimension), np.float32)
        encoded = self._tokenize_texts(texts, truncation=True, max_length=self.limit)
        for rows, width in self._length_batches([len(ids) for ids in encoded["input_ids"]]):
            try:
                out[rows] = self._compute_vectors(
                    {name: [values[i] for i in rows] for name, values in encoded.items()}, width
                )
            except (RuntimeError, IndexError, TypeError, ValueError) as error:
                raise BackendFailed(f"the encoder `{self.name}` failed: {error_summary(error)}") from error
        return to_unit_rows(out)

    def _tokenize_texts(
        self, texts: Sequence[str], prompt: str | None = None, **options: Any
    ) -> dict[str, list[list[int]]]:
        if not texts:
            return {"input_ids": []}
        inputs = [replace_lone_surrogates(f"{self._prompt if prompt is None else prompt}{text}") for text in texts]
        with self._lock:
            encoded = self._model.tokenizer(inputs, padding=False, verbose=False, **options)
        return {name: encoded[name] for name in ("input_ids", "token_type_ids") if name in encoded}

    def _length_batches(self, lengths: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Yield rows of texts of similar length, and their padded length.

        Texts without tokens are skipped.
        """
        stride, min_padding = padding_rule(self._model)
        rows: list[int] = []
        width = 0
        for i in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
            wide = math.ceil((lengths[i] + min_padding) / stride) * stride
            if rows and (len(rows) == self._batch or wide * (len(rows) + 1) > MAX_BATCH_TOKENS):
                yield rows, width
                rows = []
            rows.append(i)
            width = wide
        if rows:
            yield rows, width

    def _compute_vectors(self, encoded: dict[str, list[list[int]]], width: int) -> Vectors:
        import torch

        pad = self._model.tokenizer.pad_token_id
        pad = pad if pad is not None else getattr(self._model.config, "pad_token_id", None) or 0
        lengths = torch.tensor([len(ids) for ids in encoded["input_ids"]], device=self._device)
        mask = torch.arange(width, device=self._device)[None, :] < lengths[:, None]
        inputs = {"input_ids": encoded["input_ids"]}
        if self._typed and "token_type_ids" in encoded:
            inputs["token_type_ids"] = encoded["token_type_ids"]
        feed = {
            name: torch.tensor(
                [ids + [pad if name == "input_ids" else 0] * (width - len(ids)) for ids in rows], device=self._device
            )
            for name, rows in inputs.items()
        }
        with torch.inference_mode():
            states = self._model.body(**feed, attention_mask=mask.long()).last_hidden_state
            pooled = _pool_states(states, mask, lengths, self._pooling)
        return np.asarray(pooled.cpu().numpy(), np.float32)

    def _compute_bits(self, texts: Sequence[str]) -> Floats:
        """Compute the bits of each text.

        NaN if a text exceeds the limit, or cannot be restored from its tokens.
        """
        import torch

        tokenizer = self._model.tokenizer
        begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        bits = np.full(len(texts), np.nan)
        for i, numbers in enumerate(self._tokenize_texts(texts, prompt="", add_special_tokens=False)["input_ids"]):
            same = tokenizer.decode(numbers, clean_up_tokenization_spaces=False) == texts[i]
            if len(numbers) >= self.limit or not same:
                continue
            ids = torch.tensor([begin, *numbers, tokenizer.eos_token_id], device=self._device)
            with torch.inference_mode():
                odds = self._model.language(input_ids=ids[None, :-1]).logits[0].double().log_softmax(-1)
            bits[i] = -float(odds.gather(1, ids[1:, None]).sum()) / math.log(2)
        return bits

    def _token_limit(self, tokens: int | None) -> int:
        max_tokens = max_positions(self._model)
        marks = int(self._model.tokenizer.num_special_tokens_to_add())
        if tokens is not None:
            if not marks < tokens <= (max_tokens or math.inf):
                upper = f" and at most {max_tokens}" if max_tokens else ""
                raise BadInput(
                    f"`{self._model.label}` cannot read {tokens} tokens at once", hint=f"more than {marks}{upper}"
                )
            return tokens
        limits = [int(limit) for limit in (self._model.tokenizer.model_max_length, max_tokens) if limit and limit < 1e9]
        return min(limits, default=DEFAULT_TOKEN_LIMIT)


def _pool_states(states: Any, mask: Any, lengths: Any, pooling: str) -> Any:
    """Pool the states of each text into one vector, without padding."""
    import torch

    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[torch.arange(len(states), device=states.device), lengths - 1]
    if pooling == "max":
        return states.masked_fill(~mask[:, :, None], -math.inf).amax(1)
    return states.masked_fill(~mask[:, :, None], 0).sum(1) / lengths[:, None]


def _choose_device(named: str | None) -> str:
    """Check the given device, or choose the GPU if there is one."""
    import torch

    if named is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=named)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(
            f"the device `{named}` is not available: {error_summary(error)}", hint="use device=cpu"
        ) from None
    return named


byt5 = partial(TransformersEncoder, model="google/byt5-small")
byt5.__doc__ = "ByT5, which reads bytes; weights from a folder (`model=`), from the hub cache, or with `download=true`."
canine = partial(TransformersEncoder, model="google/canine-s")
canine.__doc__ = "CANINE, which reads characters; weights as for `byt5`: `model=FOLDER`, hub cache, or `download=true`."


class SentenceTransformer:
    """Embedder with a sentence-transformers model; a plain encoder gets mean pooling."""

    def __init__(
        self, model: str, *, batch: int = 32, device: str | None = None, prompt: str = "", download: bool = False
    ) -> None:
        self._model: Any = load_model(
            "SentenceTransformer", model, component="the embedder `transformers`", device=device, download=download
        )
        self._batch = batch
        self._prompt = prompt
        self.limit: int | None = self._model.max_seq_length
        """Maximum number of tokens read per text, including special tokens; None if unknown."""
        self.parameters = count_parameters(self._model)
        self.trained = True
        parts = [repr(self._model), tokenizer_fingerprint_text(self._model.tokenizer), str(self.limit), prompt]
        self._label = model_label(model)
        self.name = f"{self._label}-{model_hash(self._model, *parts)}{f' ({prompt!r})' if prompt else ''}"

    @property
    def tokenizer(self) -> Tokenizer:
        from ragauge.models.tokenizers.huggingface import TransformersTokenizer

        return TransformersTokenizer.around(copy.deepcopy(self._model.tokenizer), self._label)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, with prompt and special tokens.

        Texts are not truncated.
        """
        prompted = [f"{self._prompt}{text}" for text in texts]
        return [len(ids) for ids in self._model.tokenizer(prompted, truncation=False, verbose=False)["input_ids"]]

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
