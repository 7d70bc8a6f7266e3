"""The nouns of comparing embedders (`Lineup`) and tokenizers (`Tokenizers`): same data, retriever and context."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.errors import UnknownName
from ragauge.outcomes import Latency, Mean
from ragauge.records import NOTHING


class Gap(NamedTuple):
    """How a mean differs from another over the same queries, and how sure that is."""

    difference: float
    low: float
    high: float
    p: float
    """Of the paired t-test."""
    p_corrected: float
    """The same, corrected for all comparisons that are read together."""
    n: int


class Pair(NamedTuple):
    """Two entrants against each other by the first measure."""

    one: str
    other: str
    differs: str
    """`rank` for the best and the next best; else the one option in which their descriptions differ: `tokenizer` …"""
    gap: Gap
    """Of the one less the other; corrected over all pairs."""


class Fault(NamedTuple):
    """A text that has no vector. As a query it finds nothing and counts as a miss; as a document it is not found."""

    id: str
    what: str
    """`document` or `query`."""
    why: str
    """`failed`, `nan` (a number in it is none), `zero` (it has no direction)."""
    error: str = ""
    """Of what failed, its own words."""


@dataclass(frozen=True)
class Shelf:
    """What an embedder's vectors give in one store."""

    store: str
    """As it is described: `exact`, `pgvector(index=none)`, `pgvector(index=hnsw)`."""
    means: Mapping[str, Mean]
    """By measure."""
    stages: Mapping[str, Latency]
    """`embed`, `retrieve` and `total`, each query by itself."""
    build_seconds: float = math.nan
    """To take the vectors in and index them."""
    index_used: bool | None = None
    """Whether searches walked an index; None where there is none to walk."""
    neighbours: float = math.nan
    """The part of the true nearest ten that it found."""
    note: str = ""
    """Why there is nothing, where something failed."""
    unreliable_times: Sequence[str] = ()
    """Reasons why the times are unreliable, decided as in `bench`; empty if they are reliable."""


class Shrunk(NamedTuple):
    """The same vectors made smaller, and what that leaves of them."""

    how: str
    """`pca` (fitted to the documents), `first` (the first so many numbers)."""
    dimension: int
    kind: str
    """What a number is kept as: `float32`, `float16`, `int8`, `bit`."""
    bytes: int
    """Of a vector."""
    means: Mapping[str, Mean]


class Grown(NamedTuple):
    """The same queries over a part of the corpus: all relevant documents, and some of the others."""

    documents: int
    means: Mapping[str, Mean]


class Shaken(NamedTuple):
    """What is left when the queries are written in another way."""

    how: str
    """The name of the perturbation: `keyboard`, `upper case`, …"""
    rate: float
    """The part of the words or characters that it may touch."""
    changed: float
    """The part of the queries that are not what they were."""
    mean: Mean
    gap: Gap
    """Against the queries as they were, by the first measure; over several seeds where it draws."""
    seeds: int = 1


class Probe(NamedTuple):
    """A short text of one kind, and what a tokenizer makes of it."""

    kind: str
    """`plain text`, `numbers`, `code`, …"""
    text: str
    pieces: Sequence[str]
    unknown: int = 0


class LongWord(NamedTuple):
    """A word that a tokenizer takes many pieces for."""

    word: str
    pieces: int
    times: int
    """How often it stands in the corpus."""


@dataclass(frozen=True)
class Tokens:
    """What a tokenizer makes of a corpus."""

    tokenizer: str
    vocabulary: int
    """How many tokens it knows."""
    used: int
    """How many of them occur."""
    documents: int
    tokens: int
    """Of all documents together, without marks around them."""
    words: int
    characters: int
    bytes: int
    """Of the texts, as UTF-8."""
    per_document: Mapping[str, float]
    """`mean`, `p50`, `p95`, `max` …"""
    unknown: int = 0
    """Tokens that stand for something which it does not know."""
    unknown_documents: int = 0
    lossless: bool | None = None
    """Whether every text comes back from its tokens as it was; None where nobody can tell."""
    limit: int | None = None
    """How many tokens its model reads."""
    truncated: int = 0
    """How many documents have more than that."""
    lost: int = 0
    """Tokens beyond it."""
    longest: Sequence[LongWord] = ()
    """The words that take most pieces."""
    probes: Sequence[Probe] = ()
    texts_per_second: float = math.nan
    trained_on: str = ""
    """What its pieces were learned from, where that was this corpus."""
    marks: int = 0
    """Tokens that its model puts around a text; in no other figure but the limit's."""
    note: str = ""
    learn_seconds: float = math.nan
    """To learn its pieces, where it did."""

    @property
    def used_share(self) -> float:
        """The part of the vocabulary that occurs."""
        return self.used / self.vocabulary if self.vocabulary else math.nan

    @property
    def per_word(self) -> float:
        """Tokens for a word (fertility)."""
        return self.tokens / self.words if self.words else math.nan

    @property
    def per_character(self) -> float:
        """Tokens for a character."""
        return self.tokens / self.characters if self.characters else math.nan

    @property
    def per_byte(self) -> float:
        """Tokens for a byte."""
        return self.tokens / self.bytes if self.bytes else math.nan

    @property
    def compression(self) -> float:
        """Bytes for a token."""
        return self.bytes / self.tokens if self.tokens else math.nan

    @property
    def unknown_rate(self) -> float:
        """The part of the tokens that are unknown."""
        return self.unknown / self.tokens if self.tokens else math.nan


@dataclass(frozen=True)
class Tokenizers:
    """Tokenizers side by side on the same texts."""

    corpus: str
    documents: int
    rows: Sequence[Tokens]
    failures: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Tokenizers that could not be opened, and why."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True)
class Entrant:
    """One embedder (or a system without one: BM25, chance), and all that was measured of it."""

    name: str
    """What reports call it."""
    description: str
    """As it was asked for."""
    kind: str = "embedder"
    """`embedder`, `words` (BM25: no vectors), `chance`."""
    model: str = ""
    """The embedder's own name."""
    trained: bool | None = None
    """Whether its weights were learned from anything; None where nobody says."""
    dimension: int | None = None
    bytes_per_vector: int | None = None
    parameters: int | None = None
    memory_bytes: int | None = None
    """What a process that loads it and embeds some texts takes at most, above one that does not."""
    load_seconds: float = math.nan
    train_seconds: float = math.nan
    """To learn from this corpus, where it does; also if that was done before and kept."""
    documents_per_second: float = math.nan
    """Embedded in batches, really computed and not remembered."""
    limit: int | None = None
    """Tokens that it reads."""
    truncated: float = math.nan
    """The part of the documents of which it does not read all, after everybody's were cut alike."""
    tokenizer: Tokens | None = None
    bits_per_byte: float = math.nan
    """Of a language model, on documents that it did not learn from."""
    means: Mapping[str, Mean] = field(default_factory=lambda: NOTHING)
    """By measure, over all judged queries, ranked exactly."""
    gaps: Mapping[str, Gap] = field(default_factory=lambda: NOTHING)
    """By measure, against the baseline; none of the baseline itself."""
    shelves: Sequence[Shelf] = ()
    shrunk: Sequence[Shrunk] = ()
    grown: Sequence[Grown] = ()
    shaken: Sequence[Shaken] = ()
    faults: Sequence[Fault] = ()
    """The first so many texts without a vector."""
    faulty: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """How many there are: by what and why, `document failed`, `query zero`, …"""
    notes: Sequence[str] = ()

    def shelf(self, store: str) -> Shelf | None:
        """What came of one store."""
        return next((one for one in self.shelves if one.store == store), None)

    @property
    def milliseconds(self) -> float:
        """The median time of a query in all, in the first store."""
        return self.shelves[0].stages["total"].p50 if self.shelves and "total" in self.shelves[0].stages else math.nan


@dataclass(frozen=True)
class Lineup:
    """Embedders side by side."""

    dataset: str
    documents: int
    queries: int
    """How many were asked and are judged."""
    entrants: Sequence[Entrant]
    measures: Sequence[str]
    """The first is the one that curves and losses are of."""
    baseline: str
    convention: str = "default"
    part: str = "whole"
    """What of a document was embedded: `whole`, `text`, `title`."""
    context: int | None = None
    """Every text was cut after so many characters; None where none was cut."""
    cut: float = 0.0
    """The part of the documents that are longer."""
    confidence: float = 0.95
    seed: int = 0
    pairs: Sequence[Pair] = ()
    """Those whose difference is due to one thing, and the best against the next best."""
    references: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """Bits per byte of the documents that language models are asked about, by compressors.

    `xz`, `bz2` and `zlib` have read nothing before, as an untrained model; `xz, primed` has read the documents that the
    trained ones learn from, and is what these must beat.
    """
    failures: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Embedders that could not be opened, and why."""
    seconds: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """By what was done."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def find(self, name: str) -> Entrant:
        """An entrant by its name."""
        found = next((one for one in self.entrants if one.name == name), None)
        if found is None:
            raise UnknownName("embedder", name, [one.name for one in self.entrants])
        return found
