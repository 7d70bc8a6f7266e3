"""Result types of a stress test: read-backs, latency and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING


class CorruptDocument(NamedTuple):
    """Document that was not read back as it was put in."""

    id: str
    what: str
    """Kind of corruption.

    `lost`, `changed`, `swapped` (it has the text or id of another document), `stale` (it has the replaced text),
    `twice` (listed more than once), `unknown` (it was never put in), `unlisted`.
    """
    where: str = ""
    """What differs: the field and the first byte."""
    place: int | None = None
    """Number of the document, from 1; None for one that was never put in."""


@dataclass(frozen=True)
class ReadBack:
    """Result of reading all documents back."""

    when: str
    """When the documents were read: `at once`, `reopened`, `kill 1 in the put of document 1,201`, `replaced`, …"""
    expected: int
    """Number of documents that the store had committed."""
    whole: int
    """Number of committed documents that were read back byte for byte."""
    harms: Sequence[CorruptDocument] = ()
    """The first corrupt documents."""
    harmed: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of corrupt documents by kind."""
    beyond: int = 0
    """Number of uncommitted documents that were read back intact."""
    keeps: Sequence[str] = ()
    """Fields of a document that the store keeps and that were compared."""
    seconds: float = float("nan")

    @property
    def sound(self) -> bool:
        """Whether all committed documents were read back intact, and nothing else."""
        return self.whole == self.expected and not any(self.harmed.values())


class OperationTiming(NamedTuple):
    """Latency of repeated calls in milliseconds; `seconds` is the total."""

    n: int
    seconds: float
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float


class FillRate(NamedTuple):
    """Time per put document at one point of filling a store."""

    documents: int
    milliseconds: float
    """Median time per document over a group of puts, in milliseconds."""


@dataclass(frozen=True)
class StoreFailure:
    """Failure of a store, with the progress made and the shortest failing prefix."""

    way: str
    """Ingestion mode: `one by one` or `in batches`."""
    stage: str
    """Stage of the failure: `putting`, `committing`, `reading back`, `searching`, `reopening`, `replacing`, …"""
    error: str
    """Original error message, or the finding if the store reported none."""
    silent: bool
    """Whether the store raised no error itself."""
    after: int
    """Number of documents put in before the failure."""
    document: str = ""
    """Id of the document being put, or the first and last id of a batch."""
    prefix: int | None = None
    """Length of the shortest failing prefix of the documents; None if not searched for or not found."""
    tried: Sequence[tuple[int, bool]] = ()
    """Prefix lengths tried, in order, and whether the same failure occurred."""
    steady: bool | None = None
    """Whether the prefix failed every time it was tried."""
    doubt: str = ""
    """Why there is no prefix, or why it may not be the shortest."""
    reproduced: bool | None = None
    """Whether the failure occurred again in a new store; None if not tried."""
    documents_lost: bool = False
    """Whether documents were missing or altered, or the store could not be reopened."""
    reproducer: str = ""
    """Folder with the documents and the command."""
    command: str = ""
    """Command that repeats the failure."""

    @property
    def is_shortest(self) -> bool:
        """Whether the prefix with one document less was tried and did not fail."""
        less = -1 if self.prefix is None else self.prefix - 1
        return self.prefix == 0 or any(n == less and not broke for n, broke in self.tried)


@dataclass(frozen=True)
class IngestionResult:
    """Result of one ingestion mode."""

    name: str
    documents: int
    """Number of documents put in."""
    put: OperationTiming | None = None
    """Latency per call; a call puts one document or a batch."""
    commit: OperationTiming | None = None
    search: OperationTiming | None = None
    pace: Sequence[FillRate] = ()
    opening: float = float("nan")
    """Time to reopen the store, in seconds."""
    bytes_on_disk: int | None = None
    read_back: Sequence[ReadBack] = ()
    measures: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    judged: int = 0
    """Number of queries that the measures average."""
    queries: int = 0
    """Number of queries run."""
    disorder: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of invalid rankings by kind of error."""
    agreement: float = float("nan")
    """Neighbour recall: share of the exact nearest neighbours in the rankings; NaN if not measured."""
    moved: int | None = None
    """Number of rankings that differed after reopening; None if not compared."""
    broken: StoreFailure | None = None
    not_reproduced: Sequence[StoreFailure] = ()
    """Failures without lost or altered documents that did not occur again; they do not count as failures."""

    @property
    def rate(self) -> float:
        """Documents ingested per second, including commits; NaN without timings."""
        seconds = sum(one.seconds for one in (self.put, self.commit) if one is not None)
        return self.documents / seconds if seconds > 0 else float("nan")

    def readings(self, beginning: str) -> list[ReadBack]:
        """Return the read-backs whose `when` starts with a text."""
        return [one for one in self.read_back if one.when.startswith(beginning)]


@dataclass(frozen=True)
class StressTest:
    """Result of a stress test of one store."""

    store: str
    documents: int
    """Number of documents to put in."""
    queries: int
    ways: Sequence[IngestionResult]
    about: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """The store's description of itself."""
    source: str = ""
    """Source of the documents."""
    kinds: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of documents by type."""
    embedder: str = ""
    k: int = 10
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    @property
    def broken(self) -> StoreFailure | None:
        """The first failure over all ingestion modes; None if there is none."""
        return next((way.broken for way in self.ways if way.broken is not None), None)

    @property
    def read_back(self) -> dict[str, dict[str, int]]:
        """Number of documents read back byte for byte: `{mode: {when: number}}`."""
        return {way.name: {one.when: one.whole for one in way.read_back} for way in self.ways}

    @property
    def measures(self) -> dict[str, Mapping[str, float]]:
        """Mean measures: `{mode: {measure: mean}}`.

        Empty for a mode that failed before searching.
        """
        return {way.name: way.measures for way in self.ways}
