"""Tokenizers of Hugging Face's `tokenizers` library, from a file or an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.hashes import hash_text
from ragauge.core.protocols import Tokenizer
from ragauge.core.structured_text import parse_json
from ragauge.core.text import UNKNOWN_PIECE, byte_letters, replace_lone_surrogates, show_invisible, show_invisible_bytes
from ragauge.models.huggingface import model_label, model_load_error, quiet_loading, tokenizer_fingerprint_text

NO_LIMIT = 1_000_000
"""Values from here on mean no limit in Hugging Face's libraries."""
ENCODING_BATCH_SIZE = 512
"""Number of texts per batch, because the library's results are large."""
BYTE_TOKEN_PATTERN = re.compile(r"<0x([0-9A-F]{2})>")
"""Form of a byte token in a vocabulary of characters."""


def read_tokenizer(path: str, *, limit: int | None = None) -> HuggingFaceTokenizer:
    """Read a tokenizer from a tokenizer.json or a model folder.

    `limit` overrides the token limit in the files. The name of the tokenizer includes a hash of its content, because
    two files with one name may differ.
    """
    library = import_tokenizers()
    source = Path(path)
    file = source / "tokenizer.json" if source.is_dir() else source
    if not file.is_file():
        raise BadInput(
            "no tokenizer found", file=str(file), hint="pass a tokenizer.json of Hugging Face, or its folder"
        )
    try:
        library_tokenizer: Any = library.Tokenizer.from_file(str(file))
    except Exception as error:  # The library raises bare exceptions.
        raise BadInput(f"not a tokenizer ({error})", file=str(file)) from None
    label = file.resolve().parent.name if source.is_dir() else file.name
    max_tokens = limit if limit is not None else _find_token_limit(library_tokenizer, file.parent)
    return HuggingFaceTokenizer.around(
        library_tokenizer, f"{label}-{tokenizer_fingerprint(library_tokenizer)}", limit=max_tokens
    )


def import_tokenizers() -> Any:
    """Import the `tokenizers` library, or raise MissingExtra."""
    try:
        import tokenizers
    except ImportError:
        raise MissingExtra("a tokenizer of this kind", "tokenizers") from None
    return tokenizers


def tokenizer_fingerprint(library: Any) -> str:
    """Hash the definition of a tokenizer of the library; eight hexadecimal characters."""
    return hash_text(library.to_str(), 8)


class HuggingFaceTokenizer:
    """Tokenizer of the `tokenizers` library; special tokens are only counted in `marks`."""

    def __init__(self, library: Any, name: str, limit: int | None = None) -> None:
        self.library = library
        """Tokenizer object of the library, without truncation and padding."""
        self.name = name
        self.limit = limit
        """Maximum number of tokens that its model reads, including special tokens; None if unknown."""
        # Some vocabularies have gaps, so that the highest id exceeds the number of tokens.
        self.vocabulary = 1 + max(library.get_vocab(with_added_tokens=True).values(), default=-1)
        self.unknown = _find_unknown_id(library)
        self.marks = int(library.num_special_tokens_to_add(False))
        """Number of special tokens that its model adds to a text."""
        decoder = "" if library.decoder is None else library.decoder.__getstate__().decode("utf-8")
        self._bytewise = '"ByteLevel"' in decoder
        self._spaced = '"Metaspace"' in decoder or "▁" in decoder

    @classmethod
    def around(cls, library: Any, name: str, *, limit: int | None = None) -> HuggingFaceTokenizer:
        """Wrap a copy of a tokenizer object of the library."""
        copy = type(library).from_str(library.to_str())
        copy.no_truncation()
        copy.no_padding()
        return cls(copy, name, limit)

    @classmethod
    def read_from(cls, text: str, name: str, limit: int | None = None) -> HuggingFaceTokenizer:
        """Create a tokenizer from the JSON that the library wrote."""
        return cls.around(import_tokenizers().Tokenizer.from_str(text), name, limit=limit)

    def kept(self) -> dict[str, Any]:
        """Return the state for `restore_tokenizer`."""
        return {"kind": "library", "json": self.library.to_str(), "name": self.name, "limit": self.limit}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without truncation and special tokens."""
        ids: list[list[int]] = []
        for start in range(0, len(texts), ENCODING_BATCH_SIZE):
            batch = [replace_lone_surrogates(text) for text in texts[start : start + ENCODING_BATCH_SIZE]]
            ids += [encoding.ids for encoding in self.library.encode_batch_fast(batch, add_special_tokens=False)]
        return ids

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids, without unknown tokens."""
        known_ids = [n for n in numbers if n != self.unknown]
        return str(self.library.decode(known_ids, skip_special_tokens=False))

    def pieces(self, text: str) -> list[str]:
        """Return the printable pieces of a text.

        Spaces are visible; bytes that form no character are shown as numbers.
        """
        encoding = self.library.encode(replace_lone_surrogates(text), add_special_tokens=False)
        return [
            UNKNOWN_PIECE if number == self.unknown else self._show_piece(piece)
            for number, piece in zip(encoding.ids, encoding.tokens, strict=True)
        ]

    def _show_piece(self, piece: str) -> str:
        letters = byte_letters()
        if self._bytewise and all(letter in letters for letter in piece):
            return show_invisible_bytes(bytes(letters[letter] for letter in piece))
        if byte := BYTE_TOKEN_PATTERN.fullmatch(piece):
            return show_invisible_bytes(bytes([int(byte[1], 16)]))
        return show_invisible(piece.replace("▁", " ") if self._spaced else piece)


def _find_unknown_id(library: Any) -> int | None:
    """Return the id of unknown tokens; None if there is none."""
    model = library.model
    if type(model).__name__ == "Unigram":
        number = json.loads(model.__getstate__()).get("unk_id")
    else:
        token = getattr(model, "unk_token", None)
        number = None if token is None else library.token_to_id(token)
    return None if number is None else int(number)


def _find_token_limit(tokenizer: Any, folder: Path) -> int | None:
    """Return the smallest token limit in the files next to a tokenizer; None if none."""
    cut = tokenizer.truncation
    limits = [*_read_token_limits(folder), *([cut["max_length"]] if cut else [])]
    valid_limits = [int(value) for value in limits if isinstance(value, int | float) and 0 < value < NO_LIMIT]
    return min(valid_limits, default=None)


def _read_token_limits(folder: Path) -> Iterator[Any]:
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        try:
            config = parse_json((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(config, dict):
            yield config.get(key)


TOKENIZERS_WITHOUT_FILES = {"byt5": "ByT5Tokenizer", "canine": "CanineTokenizer"}
"""Classes of tokenizers that need no vocabulary files, by model name."""
UNICODE_SIZE = 0x110000


def open_pretrained(model: str, *, download: bool = False, revision: str | None = None) -> Tokenizer:
    """Open the tokenizer of a model folder, of `byt5` or `canine`, or from the hub.

    The hub needs `download`.
    """
    try:
        import transformers
    except ImportError:
        raise MissingExtra("the tokenizer `transformers`", "transformers") from None
    kind = next(
        (factory for name, factory in TOKENIZERS_WITHOUT_FILES.items() if model.rpartition("/")[2].startswith(name)),
        None,
    )
    if kind is not None and not Path(model).exists():
        return TransformersTokenizer.around(getattr(transformers, kind)(), model.rpartition("/")[2])
    try:
        with quiet_loading(download=download):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                model, revision=revision, local_files_only=not download, trust_remote_code=False
            )
    except Exception as error:  # Libraries may raise any exception for invalid files.
        raise model_load_error(model, error, part="tokenizer of", download=download) from error
    return TransformersTokenizer.around(tokenizer, model_label(model))


def open_byt5() -> Tokenizer:
    """Open the tokenizer of ByT5 (bytes), which needs no files."""
    return open_pretrained("byt5")


def open_canine() -> Tokenizer:
    """Open the tokenizer of CANINE (characters), which needs no files."""
    return open_pretrained("canine")


class TransformersTokenizer:
    """Slow tokenizer of transformers; fast ones are wrapped as `HuggingFaceTokenizer`."""

    def __init__(self, tokenizer: Any, name: str, limit: int | None = None) -> None:
        self._tokenizer = tokenizer
        self.name = name
        self.limit = limit
        """Maximum number of tokens that its model reads, including special tokens; None if unknown."""
        self.vocabulary = _vocabulary_size(tokenizer)
        # ByT5 has an id for unknown tokens but never uses it.
        self.unknown: int | None = tokenizer.unk_token_id
        self.marks = int(tokenizer.num_special_tokens_to_add(pair=False))
        """Number of special tokens that its model adds to a text."""
        self._bytewise = type(tokenizer).__name__ == TOKENIZERS_WITHOUT_FILES["byt5"]

    @classmethod
    def around(cls, tokenizer: Any, name: str) -> Tokenizer:
        """Wrap a tokenizer of transformers, which is not changed.

        The name ends with a hash of its definition, because two folders with one name may differ.
        """
        max_length = getattr(tokenizer, "model_max_length", None)
        limit = int(max_length) if max_length is not None and 0 < max_length < NO_LIMIT else None
        below = getattr(tokenizer, "backend_tokenizer", None)
        known_by = hash_text(tokenizer_fingerprint_text(tokenizer), 8)
        if getattr(tokenizer, "is_fast", False) and below is not None:
            return HuggingFaceTokenizer.around(below, f"{name}-{known_by}", limit=limit)
        return cls(tokenizer, f"{name}-{known_by}", limit)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without truncation and special tokens."""
        if not texts:
            return []
        inputs = [replace_lone_surrogates(text) for text in texts]
        encoded = self._tokenizer(inputs, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return [list(map(int, ids)) for ids in encoded["input_ids"]]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids, without unknown tokens."""
        known_ids = [n for n in numbers if n != self.unknown]
        return str(self._tokenizer.decode(known_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def pieces(self, text: str) -> list[str]:
        (numbers,) = self.encode([text])
        pieces = self._tokenizer.convert_ids_to_tokens(numbers)
        return [
            UNKNOWN_PIECE if number == self.unknown else self._show_piece(str(piece))
            for number, piece in zip(numbers, pieces, strict=True)
        ]

    def _show_piece(self, piece: str) -> str:
        """Return a printable piece; ByT5 writes a byte as the character with its code."""
        if self._bytewise and len(piece) == 1 and ord(piece) < 256:
            return show_invisible_bytes(bytes([ord(piece)]))
        return show_invisible(piece)


def _vocabulary_size(tokenizer: Any) -> int:
    """Return the vocabulary size, including gaps between ids.

    The code points of Unicode are not enumerated.
    """
    size = len(tokenizer)
    return size if size >= UNICODE_SIZE else max([size, *(1 + int(n) for n in tokenizer.get_vocab().values())])
