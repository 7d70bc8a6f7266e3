"""Tokenizers without a library: bytes, characters and words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.hashes import hash_text
from ragauge.core.text import UNKNOWN_PIECE, replace_lone_surrogates, show_invisible, show_invisible_bytes
from ragauge.models.tokenizers import UntrainedTokenizer

FIRST_BYTE_ID = 3
"""Id of the first byte; ids 0 to 2 of ByT5 are padding, end of text and unknown."""
SENTINEL_COUNT = 125
"""Number of sentinel ids after the bytes, which ByT5 uses in training only."""


class ByteTokenizer:
    r"""Tokenizer of UTF-8 bytes: the id is the byte plus 3; 384 ids, as in google/byt5 models.

    >>> ByteTokenizer().encode(["é"]), ByteTokenizer().pieces("é!")
    ([[198, 172]], ['\\xc3', '\\xa9', '!'])
    """

    name = "bytes"
    vocabulary = FIRST_BYTE_ID + 256 + SENTINEL_COUNT
    unknown = None
    marks = 1
    """Number of special tokens: the end of a text."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        data = (np.frombuffer(replace_lone_surrogates(text).encode(), np.uint8) for text in texts)
        return [(row.astype(np.int64) + FIRST_BYTE_ID).tolist() for row in data]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids; bytes that form no character are dropped."""
        return bytes(n - FIRST_BYTE_ID for n in numbers if FIRST_BYTE_ID <= n < FIRST_BYTE_ID + 256).decode(
            "utf-8", "ignore"
        )

    def pieces(self, text: str) -> list[str]:
        """Return a printable piece for each byte."""
        return [show_invisible_bytes(bytes([byte])) for byte in replace_lone_surrogates(text).encode()]

    def kept(self) -> dict[str, Any]:
        """Return the state for `restore_tokenizer`."""
        return {"kind": "bytes"}


class CharacterTokenizer:
    """Tokenizer of characters: the id is the Unicode code point.

    >>> CharacterTokenizer().encode(["é日"]), CharacterTokenizer().decode([233, 26085])
    ([[233, 26085]], 'é日')
    """

    name = "characters"
    vocabulary = 0x110000
    unknown = None
    marks = 2
    """Number of special tokens of CANINE, before and after a text."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [np.frombuffer(replace_lone_surrogates(text).encode("utf-32-le"), np.uint32).tolist() for text in texts]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids."""
        return "".join(map(chr, numbers))

    def pieces(self, text: str) -> list[str]:
        """Return a printable piece for each character."""
        return [show_invisible(c) for c in replace_lone_surrogates(text)]

    def kept(self) -> dict[str, Any]:
        """Return the state for `restore_tokenizer`."""
        return {"kind": "characters"}


WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
"""Sequence of letters and digits, or a single other mark; white space is not part of a word."""


def build_word_tokenizer(*, vocabulary: int = 30_000, least: int = 1, lower: bool = False) -> UntrainedTokenizer:
    """Create an untrained word tokenizer.

    It has at most `vocabulary - 1` words; id 0 is unknown. A word must occur at least `least` times.

    >>> known = build_word_tokenizer(vocabulary=3).fitted(["to be or not to be", "to do"])
    >>> known.encode(["to be or to do"]), known.pieces("to do")
    ([[1, 2, 0, 1, 0]], ['to', '⟨?⟩'])
    """
    if vocabulary < 2:
        raise BadInput(
            f"words: the vocabulary must have at least 2 entries, got {vocabulary}",
            hint="one entry is for unknown words",
        )

    def learn(texts: Sequence[str]) -> WordTokenizer:
        counts = Counter(chain.from_iterable(WORD_PATTERN.findall(text.lower() if lower else text) for text in texts))
        order = sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - 1]
        return WordTokenizer([word for word in order if counts[word] >= least], lower=lower)

    return UntrainedTokenizer(f"words(vocabulary={vocabulary})", learn)


class WordTokenizer:
    """Tokenizer of known words, with ids from 1."""

    unknown = 0

    def __init__(self, known: Sequence[str], *, lower: bool = False) -> None:
        self._words = ["", *known]
        self._numbers: Mapping[str, int] = {word: number for number, word in enumerate(known, 1)}
        self._lower = lower
        self.vocabulary = len(self._words)
        definition = "\n".join([str(lower), *known])
        self.name = f"words-{self.vocabulary}-{hash_text(definition, 8)}"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        find = self._numbers.get
        return [[find(word, 0) for word in self._split_words(text)] for text in texts]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the words of token ids, separated by spaces, without unknown ones."""
        return " ".join(self._words[n] for n in numbers if n)

    def pieces(self, text: str) -> list[str]:
        """Return a piece for each word and mark."""
        return [word if word in self._numbers else UNKNOWN_PIECE for word in self._split_words(text)]

    def kept(self) -> dict[str, Any]:
        """Return the state for `restore_tokenizer`."""
        return {"kind": "words", "words": self._words[1:], "lower": self._lower}

    def _split_words(self, text: str) -> list[str]:
        return WORD_PATTERN.findall(replace_lone_surrogates(text.lower() if self._lower else text))
