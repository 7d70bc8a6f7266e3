"""Tokenizers of Hugging Face's `transformers`, quick or slow: from a folder or, where that is allowed, from the hub."""

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
"""Their vocabulary is arithmetic: the class is enough."""
UNICODE = 0x110000


def open_pretrained(model: str, *, download: bool = False, revision: str | None = None) -> Tokenizer:
    """The tokenizer of a model by its folder; `byt5` and `canine` need none; a name of the hub needs `download`."""
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
    except Exception as error:  # whatever the files hold, many libraries may stumble over it
        raise not_loaded(model, error, of="tokenizer of", download=download) from error
    return Pretrained.around(found, label(model))


def open_byt5() -> Tokenizer:
    """The tokenizer of ByT5: the bytes of a text; it needs no files."""
    return open_pretrained("byt5")


def open_canine() -> Tokenizer:
    """The tokenizer of CANINE: the characters of a text; it needs no files."""
    return open_pretrained("canine")


class Pretrained:
    """A tokenizer of transformers that is written in Python; quick ones are the library's below them."""

    def __init__(self, tokenizer: Any, name: str, limit: int | None = None) -> None:
        self._tokenizer = tokenizer
        self.name = name
        self.limit = limit
        """Tokens of a text that its model reads, the marks among them; None where nobody says."""
        self.vocabulary = _numbers(tokenizer)
        # ByT5 has a number for the unknown and never gives it.
        self.unknown: int | None = tokenizer.unk_token_id
        self.marks = int(tokenizer.num_special_tokens_to_add(pair=False))
        """Tokens that its model has around a text."""
        self._bytewise = type(tokenizer).__name__ == WITHOUT_FILES["byt5"]

    @classmethod
    def around(cls, tokenizer: Any, name: str) -> Tokenizer:
        """A tokenizer around one of transformers, which stays as it is.

        Its name ends with a hash of what it does: two folders of one name may differ.
        """
        most = getattr(tokenizer, "model_max_length", None)
        limit = int(most) if most is not None and 0 < most < UNTOLD else None
        below = getattr(tokenizer, "backend_tokenizer", None)
        known_by = hashlib.sha256(spelled(tokenizer).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        if getattr(tokenizer, "is_fast", False) and below is not None:
            return Library.around(below, f"{name}-{known_by}", limit=limit)
        return cls(tokenizer, f"{name}-{known_by}", limit)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text, all of it, without marks around it."""
        if not texts:
            return []
        given = [sound(text) for text in texts]
        found = self._tokenizer(given, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return [list(map(int, one)) for one in found["input_ids"]]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers, without what is unknown."""
        known = [n for n in numbers if n != self.unknown]
        return str(self._tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, as its class writes them."""
        (numbers,) = self.encode([text])
        pieces = self._tokenizer.convert_ids_to_tokens(numbers)
        return [
            UNKNOWN if number == self.unknown else self._shown(str(piece))
            for number, piece in zip(numbers, pieces, strict=True)
        ]

    def _shown(self, piece: str) -> str:
        """ByT5 writes a byte as the letter that has its number."""
        if self._bytewise and len(piece) == 1 and ord(piece) < 256:
            return visible_bytes(bytes([ord(piece)]))
        return visible(piece)


def _numbers(tokenizer: Any) -> int:
    """One more than the highest number, since some leave numbers out; code points of Unicode are not looked through."""
    size = len(tokenizer)
    return size if size >= UNICODE else max([size, *(1 + int(n) for n in tokenizer.get_vocab().values())])
