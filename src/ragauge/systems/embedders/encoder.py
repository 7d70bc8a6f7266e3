"""Any encoder of Hugging Face's transformers: BERT and its likes, ByT5 and T5, CANINE, BART, GPT-2 and its likes."""

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

from ragauge.errors import BackendFailed, BadInput
from ragauge.seams import Tokenizer, Vectors
from ragauge.systems.embedders.encoder_models import Wanted, filling, open_model, positions, shape_of
from ragauge.systems.model_folders import digest, first_line, parameters, spelled
from ragauge.systems.tokenizers.showing import sound

Floats = NDArray[np.float64]
POOLINGS = ("mean", "cls", "last", "max")
UNBOUNDED = 1024
"""Tokens that are read where neither model nor tokenizer says how many: ByT5 and mT5 were trained on so many."""
TOKENS_AT_ONCE = 16_384
"""In a batch, padding among them: attention takes memory by the square of a text's length."""


class Encoder:
    """The last layer's states of a text's tokens, the marks around it among them, made one: unit length.

    `pooling` is `mean`, `cls` (the first token), `last` or `max`. `tokens` is how many of them are read. `layers`
    takes only the first so many; `untrained` draws all weights by `seed`, the same shape without anything learned.
    A text of no tokens is all zeros; numbers that are none stay what they are.
    """

    def __init__(  # noqa: PLR0913 -- the options of a description
        self,
        model: str,
        *,
        pooling: str = "mean",
        tokens: int | None = None,
        batch: int = 32,
        device: str | None = None,
        download: bool = False,
        revision: str | None = None,
        prompt: str = "",
        untrained: bool = False,
        layers: int | None = None,
        seed: int = 0,
    ) -> None:
        if pooling not in POOLINGS:
            raise BadInput(f"there is no pooling `{pooling}`", hint=f"one of {', '.join(POOLINGS)}")
        if batch < 1:
            raise BadInput(f"a batch of {batch} texts is none")
        self._model = open_model(Wanted(model, download, revision, untrained, layers, seed))
        if pooling == "cls" and self._model.causal:
            raise BadInput(
                f"the first token of `{model}` sees nothing of the text", hint="pooling=mean or pooling=last"
            )
        self._device = _device(device)
        self._model.body.to(self._device)
        self._pooling, self._prompt, self._batch = pooling, prompt, batch
        self._lock = threading.Lock()  # the tokenizer remembers between calls what it cuts
        self._typed = "token_type_ids" in inspect.signature(self._model.body.forward).parameters
        self.limit = self._limit(tokens)
        """Tokens of a text that are read, the marks around it among them."""
        self.dimension = int(getattr(self._model.config, "hidden_size", 0))
        if not self.dimension:
            raise BadInput(f"`{model}` is no encoder of texts: it does not say how long its vectors are")
        self.parameters = parameters(self._model.body)
        """Of the part that makes vectors: of an encoder-decoder, the encoder."""
        self.trained = not untrained
        said = [shape_of(self._model.config), spelled(self._model.tokenizer), pooling, str(self.limit), prompt]
        of = [self._model.label, *(["untrained"] if untrained else []), *([f"{layers}-layers"] if layers else [])]
        self.name = "-".join([*of, pooling, str(self.limit), digest(self._model.body, *said)])
        if self._model.language is not None and self._model.tokenizer.eos_token_id is not None:
            self._model.language.to(self._device)
            self.bits = self._bits

    bits: Callable[[Sequence[str]], Floats]
    """Only of language models: how many bits each text takes, its end among them, once a beginning is given."""

    @property
    def marks(self) -> int:
        """Tokens around a text, its prompt among them."""
        return self.tokens([""])[0]

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts its texts."""
        from ragauge.systems.tokenizers.pretrained import Pretrained

        return Pretrained.around(copy.deepcopy(self._model.tokenizer), self._model.label)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has with its prompt and the marks around it, whatever is read of it."""
        return [len(one) for one in self._encoded(texts)["input_ids"]]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        out = np.zeros((len(texts), self.dimension), np.float32)
        encoded = self._encoded(texts, truncation=True, max_length=self.limit)
        for rows, width in self._batches([len(one) for one in encoded["input_ids"]]):
            try:
                out[rows] = self._read({name: [of[i] for i in rows] for name, of in encoded.items()}, width)
            except (RuntimeError, IndexError, TypeError, ValueError) as error:
                raise BackendFailed(f"the encoder `{self.name}` failed: {first_line(error)}") from error
        lengths = np.linalg.norm(out, axis=1, keepdims=True)
        return np.asarray(out / np.where(lengths > 0, lengths, 1), np.float32)

    def _encoded(self, texts: Sequence[str], prompt: str | None = None, **options: Any) -> dict[str, list[list[int]]]:
        if not texts:
            return {"input_ids": []}
        told = [sound(f"{self._prompt if prompt is None else prompt}{text}") for text in texts]
        with self._lock:
            found = self._model.tokenizer(told, padding=False, verbose=False, **options)
        return {name: found[name] for name in ("input_ids", "token_type_ids") if name in found}

    def _batches(self, lengths: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Rows of texts of like length, and what they are filled up to; texts of no tokens are in none."""
        stride, rest = filling(self._model)
        rows: list[int] = []
        width = 0
        for i in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
            wide = math.ceil((lengths[i] + rest) / stride) * stride
            if rows and (len(rows) == self._batch or wide * (len(rows) + 1) > TOKENS_AT_ONCE):
                yield rows, width
                rows = []
            rows.append(i)
            width = wide
        if rows:
            yield rows, width

    def _read(self, encoded: dict[str, list[list[int]]], width: int) -> Vectors:
        import torch

        pad = self._model.tokenizer.pad_token_id
        pad = pad if pad is not None else getattr(self._model.config, "pad_token_id", None) or 0
        lengths = torch.tensor([len(one) for one in encoded["input_ids"]], device=self._device)
        mask = torch.arange(width, device=self._device)[None, :] < lengths[:, None]
        given = {"input_ids": encoded["input_ids"]}
        if self._typed and "token_type_ids" in encoded:
            given["token_type_ids"] = encoded["token_type_ids"]
        feed = {
            name: torch.tensor(
                [one + [pad if name == "input_ids" else 0] * (width - len(one)) for one in rows], device=self._device
            )
            for name, rows in given.items()
        }
        with torch.inference_mode():
            states = self._model.body(**feed, attention_mask=mask.long()).last_hidden_state
            pooled = _pooled(states, mask, lengths, self._pooling)
        return np.asarray(pooled.cpu().numpy(), np.float32)

    def _bits(self, texts: Sequence[str]) -> Floats:
        """How many bits each text takes, its end among them; NaN where not all of it is read, or not as it stands."""
        import torch

        tokenizer = self._model.tokenizer
        begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        found = np.full(len(texts), np.nan)
        for i, numbers in enumerate(self._encoded(texts, prompt="", add_special_tokens=False)["input_ids"]):
            same = tokenizer.decode(numbers, clean_up_tokenization_spaces=False) == texts[i]
            if len(numbers) >= self.limit or not same:
                continue
            ids = torch.tensor([begin, *numbers, tokenizer.eos_token_id], device=self._device)
            with torch.inference_mode():
                odds = self._model.language(input_ids=ids[None, :-1]).logits[0].double().log_softmax(-1)
            found[i] = -float(odds.gather(1, ids[1:, None]).sum()) / math.log(2)
        return found

    def _limit(self, tokens: int | None) -> int:
        most = positions(self._model)
        marks = int(self._model.tokenizer.num_special_tokens_to_add())
        if tokens is not None:
            if not marks < tokens <= (most or math.inf):
                upper = f" and at most {most}" if most else ""
                raise BadInput(
                    f"`{self._model.label}` cannot read {tokens} tokens at once", hint=f"more than {marks}{upper}"
                )
            return tokens
        said = [int(one) for one in (self._model.tokenizer.model_max_length, most) if one and one < 1e9]
        return min(said, default=UNBOUNDED)


def _pooled(states: Any, mask: Any, lengths: Any, how: str) -> Any:
    """One row for each text; what was filled up has no part in it."""
    import torch

    if how == "cls":
        return states[:, 0]
    if how == "last":
        return states[torch.arange(len(states), device=states.device), lengths - 1]
    if how == "max":
        return states.masked_fill(~mask[:, :, None], -math.inf).amax(1)
    return states.masked_fill(~mask[:, :, None], 0).sum(1) / lengths[:, None]


def _device(named: str | None) -> str:
    """The one that was asked for; else the card where there is one."""
    import torch

    if named is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=named)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(f"there is no device `{named}` here: {first_line(error)}", hint="device=cpu") from None
    return named


byt5 = partial(Encoder, model="google/byt5-small")
byt5.__doc__ = "ByT5, which reads bytes; weights from a folder (`model=`), from the hub cache, or with `download=true`."
canine = partial(Encoder, model="google/canine-s")
canine.__doc__ = "CANINE, which reads characters; weights as for `byt5`: `model=FOLDER`, hub cache, or `download=true`."
