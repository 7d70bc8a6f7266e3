"""Result types of a stress test: read-backs, latency and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.record_types import TabularResult, record

StoreState = Literal["new", "reopened", "killed", "replaced"]
"""State of a store: just filled, closed and reopened, killed while it was filled, or with replaced documents."""
STATE_SUFFIXES: Mapping[StoreState, str] = {
    "new": "",
    "reopened": " after reopening",
    "killed": " after kill -9",
    "replaced": " after replacing",
}
"""Text that follows an action, by the state of the store."""


class Stage(NamedTuple):
    """What a worker did with a store, and the state of the store."""

    action: str
    """`opening`, `putting`, `committing`, `reading back`, `searching`, `replacing` or `closing`."""
    state: StoreState = "new"

    def __str__(self) -> str:
        """Return the stage as text.

        >>> str(Stage("putting")), str(Stage("putting", "killed")), str(Stage("opening", "reopened"))
        ('putting', 'putting after kill -9', 'reopening')
        """
        if self.action == "opening" and self.state in ("reopened", "replaced"):
            return "reopening"
        if self == ("replacing", "replaced"):
            return self.action
        return f"{self.action}{STATE_SUFFIXES[self.state]}"


class CorruptDocument(NamedTuple):
    """Document that was not read back as it was put in."""

    id: str
    kind: str
    """Kind of corruption.

    `lost`, `changed`, `swapped` (it has the text or id of another document), `stale` (it has the replaced text),
    `twice` (listed more than once), `unknown` (it was never put in), `unlisted`.
    """
    difference: str = ""
    """What differs: the field and the first byte."""
    position: int | None = None
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
    corrupt: Sequence[CorruptDocument] = ()
    """The first corrupt documents."""
    corrupt_counts: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of corrupt documents by kind."""
    uncommitted: int = 0
    """Number of uncommitted documents that were read back intact."""
    keeps: Sequence[str] = ()
    """Fields of a document that the store keeps and that were compared."""
    seconds: float = float("nan")
    state: StoreState = "new"
    kill: int | None = None
    """Number of the kill that preceded, from 1; None if the store was filled to the end before it was read."""

    @property
    def is_intact(self) -> bool:
        """Whether all committed documents were read back intact, and nothing else."""
        return self.whole == self.expected and not any(self.corrupt_counts.values())


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

    mode: str
    """Ingestion mode: `one by one` or `in batches`."""
    stage: Stage
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
        shorter = -1 if self.prefix is None else self.prefix - 1
        return self.prefix == 0 or any(n == shorter and not failed for n, failed in self.tried)


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
    fill_rates: Sequence[FillRate] = ()
    opening_seconds: float = float("nan")
    """Time to reopen the store, in seconds."""
    bytes_on_disk: int | None = None
    """Size of the store; None if it is not in its folder."""
    read_back: Sequence[ReadBack] = ()
    measures: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    judged_queries: int = 0
    """Number of queries that the measures average."""
    queries: int = 0
    """Number of queries run."""
    ranking_errors: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of invalid rankings by kind of error."""
    neighbour_recall: float = float("nan")
    """Share of the exact nearest neighbours in the rankings; NaN if not measured."""
    changed_rankings: int | None = None
    """Number of rankings that differed after reopening; None if not compared."""
    broken: StoreFailure | None = None
    not_reproduced: Sequence[StoreFailure] = ()
    """Failures without lost or altered documents that did not occur again; they do not count as failures."""

    @property
    def documents_per_second(self) -> float:
        """Documents ingested per second, including commits; NaN without timings."""
        seconds = sum(timing.seconds for timing in (self.put, self.commit) if timing is not None)
        return self.documents / seconds if seconds > 0 else float("nan")

    def select_read_backs(self, state: StoreState) -> list[ReadBack]:
        """Return the read-backs of the store in a state."""
        return [read_back for read_back in self.read_back if read_back.state == state]


@record("ragauge-stress", 1, derived=("read_back", "measures"))
@dataclass(frozen=True)
class StressTest(TabularResult, report="ragauge.store_stress.report"):
    """Result of a stress test of one store."""

    store: str
    documents: int
    """Number of documents to put in."""
    queries: int
    modes: Sequence[IngestionResult]
    """Results by ingestion mode."""
    description: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """The store's description of itself."""
    source: str = ""
    """Source of the documents."""
    document_types: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of documents by type."""
    embedder: str = ""
    k: int = 10
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Time, versions, machine, hash of the documents, and settings."""

    @property
    def broken(self) -> StoreFailure | None:
        """The first failure over all ingestion modes; None if there is none."""
        return next(iter(self.failures), None)

    @property
    def failures(self) -> list[StoreFailure]:
        """The failures of all ingestion modes."""
        return [mode.broken for mode in self.modes if mode.broken is not None]

    @property
    def not_reproduced(self) -> list[StoreFailure]:
        """The failures of all ingestion modes that did not occur again."""
        return [failure for mode in self.modes for failure in mode.not_reproduced]

    @property
    def read_back(self) -> dict[str, dict[str, int]]:
        """Number of documents read back byte for byte: `{mode: {when: number}}`."""
        return {mode.name: {read_back.when: read_back.whole for read_back in mode.read_back} for mode in self.modes}

    @property
    def measures(self) -> dict[str, Mapping[str, float]]:
        """Mean measures: `{mode: {measure: mean}}`.

        Empty for a mode that failed before searching.
        """
        return {mode.name: mode.measures for mode in self.modes}
