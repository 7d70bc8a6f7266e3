"""Result types of the tokenizer comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.record_types import TabularResult, record


class Probe(NamedTuple):
    """Short text of one kind and its tokens."""

    kind: str
    """Kind of text, such as `plain text`, `numbers` or `code`."""
    text: str
    pieces: Sequence[str]
    unknown: int = 0


class LongWord(NamedTuple):
    """Word that a tokenizer splits into many tokens."""

    word: str
    tokens: int
    occurrences: int
    """Number of occurrences in the corpus."""


@dataclass(frozen=True)
class TokenizerStats:
    """Token counts of one tokenizer on a corpus."""

    tokenizer: str
    vocabulary: int
    """Number of tokens in the vocabulary."""
    used: int
    """Number of distinct tokens that occur."""
    documents: int
    tokens: int
    """Number of tokens in all documents, without special tokens."""
    words: int
    characters: int
    bytes: int
    """Size of the texts in UTF-8 bytes."""
    per_document: Mapping[str, float]
    """Tokens per document: `mean`, `min`, `max` and percentiles such as `p50` and `p95`."""
    unknown: int = 0
    """Number of unknown tokens."""
    unknown_documents: int = 0
    lossless: bool | None = None
    """Whether decoding restores every text; None if there are no documents."""
    limit: int | None = None
    """Maximum number of tokens that the model reads."""
    truncated: int = 0
    """Number of documents longer than the limit."""
    truncated_tokens: int = 0
    """Number of tokens beyond the limit."""
    longest: Sequence[LongWord] = ()
    """Words with the most tokens."""
    probes: Sequence[Probe] = ()
    texts_per_second: float = math.nan
    trained_on: str = ""
    """Texts that the tokenizer was trained on, if they are from this corpus."""
    special_tokens: int = 0
    """Number of special tokens that the model adds to a text; counted only for the limit."""
    first_change: str = ""
    """The first place where a decoded text differs from the original, in words; empty if it is lossless."""
    train_seconds: float = math.nan
    """Training time of the tokenizer in seconds; NaN if it was not trained here."""

    @property
    def used_share(self) -> float:
        """Share of the vocabulary that occurs."""
        return self.used / self.vocabulary if self.vocabulary else math.nan

    @property
    def per_word(self) -> float:
        """Tokens per word (fertility)."""
        return self.tokens / self.words if self.words else math.nan

    @property
    def per_character(self) -> float:
        """Tokens per character."""
        return self.tokens / self.characters if self.characters else math.nan

    @property
    def per_byte(self) -> float:
        """Tokens per byte."""
        return self.tokens / self.bytes if self.bytes else math.nan

    @property
    def compression(self) -> float:
        """Bytes per token."""
        return self.bytes / self.tokens if self.tokens else math.nan

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown."""
        return self.unknown / self.tokens if self.tokens else math.nan


@record("ragauge-tokenizers", 1)
@dataclass(frozen=True)
class TokenizerStudy(TabularResult, report="ragauge.embedder_study.tokenizer_report"):
    """Comparison of tokenizers on the same texts."""

    corpus: str
    documents: int
    tokenizers: Sequence[TokenizerStats]
    failures: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Reasons by name of tokenizers that failed."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
