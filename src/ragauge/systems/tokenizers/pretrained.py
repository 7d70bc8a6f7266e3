"""Tokenizers of Hugging Face's `transformers`, fast or slow, from a folder or, if allowed, from the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.seams import Tokenizer
from ragauge.systems.model_folders import label, loading, not_loaded, spelled
from ragauge.systems.tokenizers.files import UNTOLD, Library
from ragauge.systems.tokenizers.showing import UNKNOWN, sound, visible, visible_bytes

WITHOUT_FILES = {"byt5": "ByT5Tokenizer", "canine": "CanineTokenizer"}
"""Classes of tokenizers that need no vocabulary files, by model name."""
UNICODE = 0x110000


def open_pretrained(model: str, *, download: bool = False, revision: str | None = None) -> Tokenizer:
    """Open the tokenizer of a model folder, of `byt5` or `canine`, or from the hub.

    The hub needs `download`.
    """
    try:
        import transformers
    except ImportError:
        raise MissingExtra("the tokenizer `transformers`", "transformers") from None
    kind = next((one for name, one in WITHOUT_FILES.items() if model.rpartition("/")[2].startswith(name)), None)
    if kind is not None and not Path(model).exists():
        return Pretrained.around(getattr(transformers, kind)(), model.rpartition("/")[2])
    try:
        with loading(download=download):
            found = transformers.AutoTokenizer.from_pretrained(
                model, revision=revision, local_files_only=not download, trust_remote_code=False
            )
    except Exception as error:  # Libraries may raise any exception for invalid files.
        raise not_loaded(model, error, of="tokenizer of", download=download) from error
    return Pretrained.around(found, label(model))


def open_byt5() -> Tokenizer:
    """Open the tokenizer of ByT5 (bytes), which needs no files."""
    return open_pretrained("byt5")


def open_canine() -> Tokenizer:
    """Open the tokenizer of CANINE (characters), which needs no files."""
    return open_pretrained("canine")


class Pretrained:
    """Slow tokenizer of transformers; fast ones are wrapped as `HuggingFaceTokenizer`."""

    def __init__(self, tokenizer: Any, name: str, limit: int | None = None) -> None:
        self._tokenizer = tokenizer
        self.name = name
        self.limit = limit
        """Maximum number of tokens that its model reads, including special tokens; None if unknown."""
        self.vocabulary = _numbers(tokenizer)
        # ByT5 has an id for unknown tokens but never uses it.
        self.unknown: int | None = tokenizer.unk_token_id
        self.marks = int(tokenizer.num_special_tokens_to_add(pair=False))
        """Number of special tokens that its model adds to a text."""
        self._bytewise = type(tokenizer).__name__ == WITHOUT_FILES["byt5"]

    @classmethod
    def around(cls, tokenizer: Any, name: str) -> Tokenizer:
        """Wrap a tokenizer of transformers, which is not changed.

        The name ends with a hash of its definition, because two folders with one name may differ.
        """
        most = getattr(tokenizer, "model_max_length", None)
        limit = int(most) if most is not None and 0 < most < UNTOLD else None
        below = getattr(tokenizer, "backend_tokenizer", None)
        known_by = hashlib.sha256(spelled(tokenizer).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        if getattr(tokenizer, "is_fast", False) and below is not None:
            return Library.around(below, f"{name}-{known_by}", limit=limit)
        return cls(tokenizer, f"{name}-{known_by}", limit)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without truncation and special tokens."""
        if not texts:
            return []
        given = [sound(text) for text in texts]
        found = self._tokenizer(given, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return [list(map(int, one)) for one in found["input_ids"]]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids, without unknown tokens."""
        known = [n for n in numbers if n != self.unknown]
        return str(self._tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def pieces(self, text: str) -> list[str]:
        """Return the printable pieces of a text."""
        (numbers,) = self.encode([text])
        pieces = self._tokenizer.convert_ids_to_tokens(numbers)
        return [
            UNKNOWN if number == self.unknown else self._shown(str(piece))
            for number, piece in zip(numbers, pieces, strict=True)
        ]

    def _shown(self, piece: str) -> str:
        """Return a printable piece; ByT5 writes a byte as the character with its code."""
        if self._bytewise and len(piece) == 1 and ord(piece) < 256:
            return visible_bytes(bytes([ord(piece)]))
        return visible(piece)


def _numbers(tokenizer: Any) -> int:
    """Return the vocabulary size, including gaps between ids.

    The code points of Unicode are not enumerated.
    """
    size = len(tokenizer)
    return size if size >= UNICODE else max([size, *(1 + int(n) for n in tokenizer.get_vocab().values())])
