"""Result types of the embedder and tokenizer comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import UnknownName
from ragauge.core.record_types import TabularResult, record
from ragauge.core.summaries import Latency, Mean


class MeanDifference(NamedTuple):
    """Difference of two means over the same queries, with interval and p-value."""

    difference: float
    low: float
    high: float
    p: float
    """P-value of the paired t-test."""
    p_corrected: float
    """P-value corrected for all comparisons made together."""
    n: int


class EmbedderPair(NamedTuple):
    """Comparison of two embedders by the first measure."""

    one: str
    other: str
    differs: str
    """`rank` for the best two; otherwise the only option in which their descriptions differ, such as `tokenizer`."""
    gap: MeanDifference
    """Difference `one` minus `other`; its p-value is corrected over all pairs."""


class EmbeddingFailure(NamedTuple):
    """Text without a usable vector.

    As a query it counts as a miss; as a document it is not found.
    """

    id: str
    what: str
    """`document` or `query`."""
    why: str
    """`failed`, `nan` (a value is not finite) or `zero` (all values are 0)."""
    error: str = ""
    """Original error message, if embedding failed."""


@dataclass(frozen=True)
class StoreResult:
    """Quality and latency of an embedder with one vector store."""

    store: str
    """Description of the store: `exact`, `pgvector(index=none)`, `pgvector(index=hnsw)`."""
    means: Mapping[str, Mean]
    """Means by measure."""
    stages: Mapping[str, Latency]
    """Latency of `embed`, `retrieve` and `total`, each query by itself."""
    build_seconds: float = math.nan
    """Time in seconds to add the vectors and build the index."""
    index_used: bool | None = None
    """Whether searches used an index; None if the store has none or cannot report it."""
    neighbours: float = math.nan
    """Share of the ten exact neighbours that the store found."""
    note: str = ""
    """Reason why results are missing, or a note on failed queries."""
    unreliable_times: Sequence[str] = ()
    """Reasons why the times are unreliable, decided as in `bench`; empty if they are reliable."""


class CompressionResult(NamedTuple):
    """Quality of the vectors after compression."""

    how: str
    """Reduction method: `pca` (fitted to the documents) or `first` (the first values)."""
    dimension: int
    kind: str
    """Precision of a value: `float32`, `float16`, `int8` or `bit`."""
    bytes: int
    """Size of a vector in bytes."""
    means: Mapping[str, Mean]


class CorpusSizeResult(NamedTuple):
    """Quality over a sample of the corpus with all relevant documents."""

    documents: int
    means: Mapping[str, Mean]


class PerturbationResult(NamedTuple):
    """Quality after a perturbation of the queries."""

    how: str
    """Name of the perturbation, such as `keyboard` or `upper case`."""
    rate: float
    """Share of the words or characters that it may change."""
    changed: float
    """Share of the queries that it changed."""
    mean: Mean
    gap: MeanDifference
    """Difference from the original queries by the first measure; over several seeds if it is random."""
    seeds: int = 1


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
    pieces: int
    times: int
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
    lost: int = 0
    """Number of tokens beyond the limit."""
    longest: Sequence[LongWord] = ()
    """Words with the most tokens."""
    probes: Sequence[Probe] = ()
    texts_per_second: float = math.nan
    trained_on: str = ""
    """Texts that the tokenizer was trained on, if they are from this corpus."""
    marks: int = 0
    """Number of special tokens that the model adds to a text; counted only against the limit."""
    note: str = ""
    learn_seconds: float = math.nan
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
class TokenizerStudy(TabularResult):
    """Comparison of tokenizers on the same texts."""

    corpus: str
    documents: int
    rows: Sequence[TokenizerStats]
    failures: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Reasons by name of tokenizers that failed."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)


@dataclass(frozen=True)
class EmbedderResult:
    """Results of one embedder, or of a system without one (BM25, chance)."""

    name: str
    """Name in reports."""
    description: str
    """Description as requested."""
    kind: str = "embedder"
    """`embedder`, `words` (BM25) or `chance`."""
    model: str = ""
    """Model name reported by the embedder."""
    trained: bool | None = None
    """Whether the weights are trained; None if unknown."""
    dimension: int | None = None
    bytes_per_vector: int | None = None
    parameters: int | None = None
    memory_bytes: int | None = None
    """Peak memory in bytes of a process that loads it and embeds some texts, minus the peak before."""
    load_seconds: float = math.nan
    train_seconds: float = math.nan
    """Training time on this corpus in seconds, also if an earlier training was reused; NaN if it is not trained."""
    documents_per_second: float = math.nan
    """Throughput of embedding in batches, without cached vectors."""
    limit: int | None = None
    """Maximum number of tokens per text."""
    truncated: float = math.nan
    """Share of the documents, already cut to the context, that exceed the limit."""
    tokenizer: TokenizerStats | None = None
    bits_per_byte: float = math.nan
    """Bits per byte of a language model on documents that it was not trained on."""
    means: Mapping[str, Mean] = field(default_factory=lambda: EMPTY_MAPPING)
    """Means by measure over all judged queries, ranked exactly."""
    gaps: Mapping[str, MeanDifference] = field(default_factory=lambda: EMPTY_MAPPING)
    """Differences from the baseline by measure; empty for the baseline itself."""
    shelves: Sequence[StoreResult] = ()
    shrunk: Sequence[CompressionResult] = ()
    grown: Sequence[CorpusSizeResult] = ()
    shaken: Sequence[PerturbationResult] = ()
    faults: Sequence[EmbeddingFailure] = ()
    """First texts without a usable vector."""
    faulty: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of texts without a usable vector, by type and reason: `document failed`, `query zero` and others."""
    notes: Sequence[str] = ()

    def shelf(self, store: str) -> StoreResult | None:
        """Return the results of one store, or None."""
        return next((one for one in self.shelves if one.store == store), None)

    @property
    def milliseconds(self) -> float:
        """Median total latency of a query in ms, in the first store.

        NaN if it was not timed.
        """
        return self.shelves[0].stages["total"].p50 if self.shelves and "total" in self.shelves[0].stages else math.nan


@record("ragauge-embedders", 1)
@dataclass(frozen=True)
class EmbedderStudy(TabularResult):
    """Comparison of embedders on one dataset."""

    dataset: str
    documents: int
    queries: int
    """Number of judged queries that were run."""
    entrants: Sequence[EmbedderResult]
    measures: Sequence[str]
    """Measure names; curves and losses use the first."""
    baseline: str
    convention: str = "default"
    part: str = "whole"
    """Part of a document that was embedded: `whole`, `text` or `title`."""
    context: int | None = None
    """Number of characters after which every text was cut; None if none was cut."""
    cut: float = 0.0
    """Share of the documents that are longer."""
    confidence: float = 0.95
    seed: int = 0
    pairs: Sequence[EmbedderPair] = ()
    """The best two embedders, and those that differ in one option."""
    references: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """Bits per byte of compressors on the held-out documents of language models.

    `xz`, `bz2` and `zlib` start without data, like an untrained model. `xz, primed` has read the training documents, so
    trained models should beat it.
    """
    failures: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Reasons by name of embedders that failed."""
    seconds: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """Measuring time in seconds, by step."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    def find(self, name: str) -> EmbedderResult:
        """Return the result of an embedder by name; raise UnknownName if there is none."""
        found = next((one for one in self.entrants if one.name == name), None)
        if found is None:
            raise UnknownName("embedder", name, [one.name for one in self.entrants])
        return found
