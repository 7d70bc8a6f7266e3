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

    value: float
    low: float
    high: float
    p: float
    """P-value of the paired t-test."""
    p_corrected: float
    """P-value corrected for all comparisons made together."""
    n: int


class EmbedderPair(NamedTuple):
    """Comparison of two embedders by the first measure."""

    better: str
    worse: str
    option: str
    """The only option in which their descriptions differ, such as `tokenizer`; empty for the best two embedders."""
    difference: MeanDifference
    """Difference `better` minus `worse`; its p-value is corrected over all pairs."""


class EmbeddingFailure(NamedTuple):
    """Text without a usable vector.

    As a query it counts as a miss; as a document it is not found.
    """

    id: str
    kind: str
    """`document` or `query`."""
    reason: str
    """`failed`, `nan` (a value is not finite) or `zero` (all values are 0)."""
    error: str = ""
    """Original error message, if embedding failed."""


class FailureCount(NamedTuple):
    """Number of texts of one kind without a usable vector, for one reason."""

    kind: str
    """`document` or `query`."""
    reason: str
    """`failed`, `nan` or `zero`, as in `EmbeddingFailure`."""
    n: int


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

    method: str
    """Reduction method: `pca` (fitted to the documents) or `first` (the first values)."""
    dimension: int
    precision: str
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

    name: str
    """Name of the perturbation, such as `keyboard` or `upper case`."""
    rate: float
    """Share of the words or characters that it may change."""
    changed: float
    """Share of the queries that it changed."""
    mean: Mean
    difference: MeanDifference
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


EARLIER_KEYS: Mapping[str, str] = {
    "circumstances": "provenance",
    "cut": "truncated",
    "differs": "option",
    "entrants": "embedders",
    "faults": "failed_texts",
    "gap": "difference",
    "gaps": "differences",
    "grown": "corpus_sizes",
    "learn_seconds": "train_seconds",
    "lost": "truncated_tokens",
    "marks": "special_tokens",
    "references": "compressors",
    "rows": "tokenizers",
    "shaken": "perturbed",
    "shelves": "stores",
    "shrunk": "compressed",
}
"""Keys of version 1 that have another name now, and the same meaning in every object."""
KEYS_WITH_NAMES = frozenset(
    {"circumstances", "failures", "gaps", "means", "per_document", "references", "seconds", "stages"}
)
"""Keys of version 1 whose objects have names of embedders, measures or steps as keys."""


def upgrade_result(data: Any) -> Any:
    """Convert JSON data of version 1 of a study, or of one embedder in it, to the present names."""
    if isinstance(data, list):
        return [upgrade_result(item) for item in data]
    if not isinstance(data, dict):
        return data
    keys = {**EARLIER_KEYS, **_renamed_keys(data)}
    upgraded = {
        keys.get(key, key): value if key in KEYS_WITH_NAMES else upgrade_result(value) for key, value in data.items()
    }
    if "gaps" in data:  # by measure
        upgraded["differences"] = {measure: upgrade_result(value) for measure, value in data["gaps"].items()}
    if "faulty" in data:
        counts = ((*text.partition(" ")[::2], n) for text, n in upgraded.pop("faulty").items())
        upgraded["failure_counts"] = [{"kind": kind, "reason": reason, "n": n} for kind, reason, n in counts]
    if data.get("kind") == "words":
        upgraded["kind"] = "lexical"
    if data.get("differs") == "rank":
        upgraded["option"] = ""
    return upgraded


def _renamed_keys(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the keys of version 1 whose present name depends on the object."""
    if "p_corrected" in data:  # a difference of means
        return {"difference": "value"}
    if "differs" in data:  # a pair of embedders
        return {"one": "better", "other": "worse"}
    if "shelves" in data:  # an embedder, whose means by measure are not renamed
        return {}
    if "why" in data:  # a text without a vector
        return {"what": "kind", "why": "reason"}
    if "times" in data:  # a long word
        return {"pieces": "tokens", "times": "occurrences"}
    if "lossless" in data:  # a tokenizer
        return {"note": "first_change"}
    if "how" in data:  # smaller vectors, or perturbed queries
        return {"how": "method", "kind": "precision"} if "dimension" in data else {"how": "name"}
    return {}


def _upgrade_study(version: int, data: dict[str, Any]) -> dict[str, Any]:
    """Convert the JSON of version 1."""
    del version
    upgraded: dict[str, Any] = upgrade_result(data)
    return upgraded


@record("ragauge-tokenizers", 2, upgrade=_upgrade_study)
@dataclass(frozen=True)
class TokenizerStudy(TabularResult):
    """Comparison of tokenizers on the same texts."""

    corpus: str
    documents: int
    tokenizers: Sequence[TokenizerStats]
    failures: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Reasons by name of tokenizers that failed."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)


@dataclass(frozen=True)
class EmbedderResult:
    """Results of one embedder, or of a system without one (BM25, chance)."""

    name: str
    """Name in reports."""
    description: str
    """Description as requested."""
    kind: str = "embedder"
    """`embedder`, `lexical` (BM25) or `chance`."""
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
    differences: Mapping[str, MeanDifference] = field(default_factory=lambda: EMPTY_MAPPING)
    """Differences from the baseline by measure; empty for the baseline itself."""
    stores: Sequence[StoreResult] = ()
    compressed: Sequence[CompressionResult] = ()
    corpus_sizes: Sequence[CorpusSizeResult] = ()
    perturbed: Sequence[PerturbationResult] = ()
    failed_texts: Sequence[EmbeddingFailure] = ()
    """First texts without a usable vector."""
    failure_counts: Sequence[FailureCount] = ()
    """Numbers of texts without a usable vector."""
    notes: Sequence[str] = ()

    def find_store(self, store: str) -> StoreResult | None:
        """Return the results of one store, or None."""
        return next((result for result in self.stores if result.store == store), None)


@record("ragauge-embedders", 2, upgrade=_upgrade_study)
@dataclass(frozen=True)
class EmbedderStudy(TabularResult):
    """Comparison of embedders on one dataset."""

    dataset: str
    documents: int
    queries: int
    """Number of judged queries that were run."""
    embedders: Sequence[EmbedderResult]
    measures: Sequence[str]
    """Measure names; curves and losses use the first."""
    baseline: str
    convention: str = "default"
    part: str = "whole"
    """Part of a document that was embedded: `whole`, `text` or `title`."""
    context: int | None = None
    """Number of characters after which every text was cut; None if none was cut."""
    truncated: float = 0.0
    """Share of the documents that are longer."""
    confidence: float = 0.95
    seed: int = 0
    pairs: Sequence[EmbedderPair] = ()
    """The best two embedders, and those that differ in one option."""
    compressors: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """Bits per byte of compressors on the held-out documents of language models.

    `xz`, `bz2` and `zlib` start without data, like an untrained model. `xz, primed` has read the training documents, so
    trained models should beat it.
    """
    failures: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Reasons by name of embedders that failed."""
    seconds: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """Measuring time in seconds, by step."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    def find(self, name: str) -> EmbedderResult:
        """Return the result of an embedder by name; raise UnknownName if there is none."""
        result = next((embedder for embedder in self.embedders if embedder.name == name), None)
        if result is None:
            raise UnknownName("embedder", name, [embedder.name for embedder in self.embedders])
        return result
