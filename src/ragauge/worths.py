"""The nouns of what a document is worth: how new it is (`Novelty`), and what it changes (`Gain`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.records import NOTHING

THERE = 0.95
"""A document with this part of its shingles in a single known one is there already."""
NEARER = 5.0
"""Below this percentile a document is nearer to what is known than known documents usually are to each other."""


class Chunking(NamedTuple):
    """How texts were cut before they were embedded."""

    size: int
    """The most that a chunk has, in `unit`s."""
    overlap: int = 0
    unit: str = "characters"
    by: str = ""
    """The library that cut, with its version."""


class Nearest(NamedTuple):
    """A chunk of a document, and the chunk of what is known that is nearest to it."""

    chunk: int
    """Its place in the document, from 0."""
    text: str
    similarity: float
    """Their cosine; NaN where nothing is known."""
    document: str = ""
    """Whose chunk the nearest one is."""
    near: str = ""
    """Its text."""


class Claim(NamedTuple):
    """One thing that a document says, and whether it was known: `new`, `known`, `conflicting`, or unscored."""

    text: str
    state: str
    by: tuple[str, ...] = ()
    """The documents that say it too, or otherwise."""
    why: str = ""
    """Of what is unscored, the reason; else the judge's words, where it has some."""


@dataclass(frozen=True)
class DocumentNovelty:
    """How new a document is. What is NaN could not be told: it has no words, say."""

    id: str
    chunks: int
    mean: float
    """The mean over its chunks of 1 - the highest cosine with a known chunk."""
    least: float
    """1 - the highest cosine of any of its chunks with a known one."""
    lexical: float
    """1 - containment: the part of its shingles that no known document has."""
    percentile: float = float("nan")
    """Where `mean` stands among those of known documents, each held against all others as if it were new: 0 to 100."""
    least_percentile: float = float("nan")
    lexical_percentile: float = float("nan")
    """The same for the other two."""
    contained: float = float("nan")
    """The part of its shingles that a single known document has, of the one that has most."""
    container: str = ""
    """Which one that is."""
    why: str = ""
    """Why something could not be told."""
    nearest: Sequence[Nearest] = ()
    """Chunk by chunk."""
    claims: Sequence[Claim] = ()
    """Where a judge was asked."""

    @property
    def state(self) -> str:
        """`there`, `near` or `new`, by THERE and NEARER; nothing where that cannot be told."""
        if self.contained >= THERE:
            return "there"
        if math.isnan(self.percentile):
            return ""
        return "near" if self.percentile < NEARER else "new"


@dataclass(frozen=True)
class Novelty:
    """How new some documents are to what is known."""

    documents: Sequence[DocumentNovelty]
    known: int
    """How many documents are known."""
    known_chunks: int
    embedder: str
    chunking: Chunking
    compared: int = 0
    """How many known chunks the percentiles are of; where all of them would have been too many, a sample."""
    compared_documents: int = 0
    """Whose chunks these are: whole documents were drawn."""
    own: Mapping[str, Sequence[float]] = field(default_factory=lambda: NOTHING)
    """`mean`, `least` and `lexical` of these, each against all known documents but itself and its exact copies."""
    judge: str = ""
    seconds: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


class Term(NamedTuple):
    """One term of a gain: what changed, and how much it counts."""

    name: str
    """A measure (its mean after minus before, or the other way round if less is better), context_recall or novelty."""
    weight: float
    value: float
    """NaN where it could not be told, and then `why` says why: such a term is not in the sum."""
    low: float = float("nan")
    high: float = float("nan")
    before: float = float("nan")
    after: float = float("nan")
    n: int = 0
    """Of so many queries; of `novelty`, documents."""
    why: str = ""


class QueryChange(NamedTuple):
    """A query that gained or lost."""

    query: str
    text: str
    gain: float
    """What its terms add up to, each by its weight."""
    changes: Mapping[str, float]
    """By term: after minus before; a term that this query has no value of is not here."""
    entered: tuple[str, ...] = ()
    """Added documents that are in its top k now."""
    left: tuple[str, ...] = ()
    """Relevant documents that were in its top k, and are no more."""


@dataclass(frozen=True)
class DocumentWorth:
    """What one added document does."""

    id: str
    causal: float
    """The gain with all that was added minus the gain without this one, where the novelty of the others stays what it
    is: of novelty it has its own divided by how many were added. NaN where nobody looked, or a query failed."""
    labelled: float
    """The sum over queries that it is relevant to of its grade times the query's weighted mean change (what its terms
    add up to, divided by the sum of the sizes of their weights): no cause is looked for."""
    novelty: float
    alone: float = float("nan")
    """Its gain where no other is added, its novelty whole: against what is there afterwards less all that was added,
    which is what was there before unless documents were also removed or changed."""
    changes: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """`causal` by term, before weights; nothing where that is NaN."""
    helped: Sequence[str] = ()
    """Queries that are worse without it."""
    harmed: Sequence[str] = ()
    """Queries that are better without it."""
    relevant: int = 0
    """Judged relevant to so many queries."""
    entered: int = 0
    """In the top k of so many queries."""


class Choice(NamedTuple):
    """One step of the best batch: this document, and what the batch is worth with it."""

    id: str
    marginal: float
    total: float
    changes: Mapping[str, float] = NOTHING
    """`marginal` by term, each by its weight."""


@dataclass(frozen=True)
class Gain:
    """What adding documents did to a knowledge base."""

    total: float
    """The sum of weight times value over the terms that could be told; NaN if none could."""
    low: float
    high: float
    confidence: float
    terms: Sequence[Term]
    k: int
    added: int
    removed: int
    changed: int
    """Documents with the same id and another text."""
    queries: int
    """So many were asked on both sides."""
    moved: Sequence[QueryChange]
    """Queries of which a term changed, the largest gain or loss first; changes may cancel out."""
    documents: Sequence[DocumentWorth] = ()
    """The added ones, worth most first."""
    batch: Sequence[Choice] = ()
    """Greedily chosen, each the best after those before it; it begins with what `alone` is held against."""
    batch_measured: float = float("nan")
    """What is gained where the batch alone is really added to what was there before; NaN where nobody looked, a query
    failed, or documents were also removed or changed."""
    asked: float = float("nan")
    """The part of `total` that queries tell: all terms but novelty."""
    asked_low: float = float("nan")
    asked_high: float = float("nan")
    p: float = float("nan")
    """How often chance alone would change queries as much, either way: a randomisation test over queries."""
    attribution: str = "none"
    """How `causal` was found: `rebuilt` (the system built anew without each document), `dropped` (the document left out
    of a deeper ranking), or `none`."""
    exact: bool = True
    """Whether leaving a document out of a ranking is what this system would have given without it."""
    novelty_of: str = "mean"
    """Which definition of novelty the term has."""
    known: bool = True
    """Whether it is known which documents there are on both sides; else what was added cannot be told."""
    system: str = ""
    dataset: str = ""
    judge: str = ""
    embedder: str = ""
    before: str = ""
    after: str = ""
    """What the two snapshots are called."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def gained(self) -> list[QueryChange]:
        """The queries that are better now."""
        return [one for one in self.moved if one.gain > 0]

    @property
    def lost(self) -> list[QueryChange]:
        """The queries that are worse now."""
        return [one for one in self.moved if one.gain < 0]

    @property
    def even(self) -> list[QueryChange]:
        """The queries that changed and are neither better nor worse: their changes cancel out, or have no weight."""
        return [one for one in self.moved if not one.gain]
