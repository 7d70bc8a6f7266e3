"""Result types of vector store benchmarks: vectors, configurations, and everything measured for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.observation import ClockCheck
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.findings import append_notes
from ragauge.core.hashes import hash_vectors
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.records import Floats, Ints, Judgments
from ragauge.core.summaries import Latency
from ragauge.store_benchmarks.filter_results import FilterComparison, compare_filters
from ragauge.store_benchmarks.frontiers import (
    QpsAtRecall,
    SufficientRecall,
    compute_qps_at_recall,
    find_frontier,
    find_series_frontiers,
    find_sufficient_recalls,
)

Matrix = NDArray[np.float32]
LOCATION_OPTIONS = ("path", "url", "dsn", "table", "collection", "api_key")
"""Options that locate a store and do not affect its behaviour."""
FORCE_OPTION, FORCED_LABEL = "force", "forced"
"""Option that makes an engine use its index against the choice of its planner, and the label of such configurations."""
SERVER_OPTIONS = frozenset({"url", "dsn"})
SERVER_LABEL = "at"
"""Option that is shown instead of the address of a server."""
NULL_STORE = "null"
"""Name of the store that does nothing, which measures the overhead of the benchmark itself."""
RECALL_MEASURE = "recall(of=eps,eps=1e-06)"
"""Recall measure that stores are compared by, without its @k.

A result counts if it is no farther than the k-th exact neighbour, within a relative tolerance for rounding.
"""


@dataclass(frozen=True, eq=False)
class VectorSet:
    """Vectors to insert into a store, and query vectors."""

    name: str
    base: Matrix
    """Vectors in the store, one per row."""
    queries: Matrix
    metric: str
    """`l2`, `cosine` or `ip`."""
    neighbours: Ints | None = None
    """Published exact neighbours as rows of `base`, one row per query, nearest first; None if not published."""
    ids: Sequence[str] = ()
    """Document ids of the rows of `base`; if empty, the ids are the row numbers "0", "1", …"""
    query_ids: Sequence[str] = ()
    judgments: Judgments | None = None
    """Relevance judgments if the vectors come from a judged dataset, else None."""
    notes: Sequence[str] = ()
    metadata: Sequence[Mapping[str, Any]] = ()
    """Metadata of each row of `base` that searches can filter by; empty if there is none."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the shapes and bytes of both matrices."""
        return hash_vectors(self.base, self.queries)


@dataclass(frozen=True, eq=False)
class ExactNeighbours:
    """Exact neighbours of every query, nearest first; ties in the order of their rows."""

    neighbours: Ints
    distances: Floats
    metric: str
    by: str
    """Backend that found them: `numpy`, `faiss`, `torch`, several if workers differ, or `given` (published neighbours).

    If only some of the published neighbours were checked, their number is included.
    """
    notes: Sequence[str] = ()
    """Reasons why another backend than the requested one was used."""


@dataclass(frozen=True)
class Configuration:
    """A store with its build options and its search options."""

    store: str
    build: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Name given by the user; empty if none."""

    @property
    def series(self) -> str:
        """Label of the line that a configuration belongs to on a chart.

        It is the name given by the user, or the store with its kind, and says whether the index is forced.
        """
        kinds = (key if value is True else value for key, value in self.shown.build.items() if key != FORCE_OPTION)
        label = self.name or " ".join([self.store, *(kind for kind in kinds if isinstance(kind, str))])
        return f"{label} {FORCED_LABEL}" if {**self.build, **self.search}.get(FORCE_OPTION) is True else label

    @property
    def shown(self) -> Configuration:
        """Copy without the location and the API key of the store, safe to print and save."""
        build = {key: value for key, value in self.build.items() if key not in LOCATION_OPTIONS}
        away = {SERVER_LABEL: "server"} if SERVER_OPTIONS & self.build.keys() else {}
        return Configuration(self.store, {**away, **build}, self.search, self.name)

    def __str__(self) -> str:
        inside = ",".join(
            f"{name}={format_option(value)}" for name, value in (*self.shown.build.items(), *self.search.items())
        )
        return f"{self.store}:{inside}" if inside else self.store


@json_form(derived=("build_seconds",))
@dataclass(frozen=True)
class BuildCost:
    """Time, disk space and memory that it took to build a store."""

    vectors: int
    insert_seconds: float
    index_seconds: float
    disk_bytes: int | None
    """None if the store saves nothing on disk, or if it is in a server that does not report it."""
    memory_bytes: int | None
    """Growth in memory of the process, its children and its server since before the first insert.

    None if unknown, as for a server whose processes are unknown.
    """
    cold_open_ms: float = math.nan
    """Time to open the saved store in a new process, in ms; NaN if the store cannot be reopened."""
    cold_first_ms: float = math.nan
    """Time of the first search after that, in ms."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Description by the store itself: version and effective parameters."""

    @property
    def build_seconds(self) -> float:
        """Time to insert and to index all vectors, in seconds."""
        return self.insert_seconds + self.index_seconds

    @property
    def bytes_per_vector(self) -> float:
        """Bytes of memory per vector, or of disk space if memory is unknown.

        NaN if both are unknown.
        """
        n_bytes = self.memory_bytes if self.memory_bytes is not None else self.disk_bytes
        return math.nan if n_bytes is None or not self.vectors else n_bytes / self.vectors


@dataclass(frozen=True)
class Backlog:
    """Delay between the scheduled and the actual send time of queries, and its growth over a load test."""

    growth: float
    """Growth of the delay in ms per second; NaN with fewer than three queries."""
    growth_low: float
    """Lower end of its 95% interval."""
    growth_high: float
    """Upper end of its 95% interval."""
    last_ms: float
    """Median delay in the last tenth of the queries."""
    max_last_ms: float
    """Largest such delay of a rate that counts as sustained."""
    grows: bool
    """Whether the delay grows, or is too long at the end."""


@json_form(derived=("kept_up",))
@dataclass(frozen=True)
class LoadResult:
    """Result of a load test with several clients, closed loop or at a target rate."""

    clients: int
    rate: float | None
    """Target rate in queries per second; None for a closed loop."""
    qps: float
    """Completed queries per second of wall-clock time."""
    latency: Latency
    """Latency from the scheduled send time, so that a stall counts for every query that had to wait."""
    service: Latency
    """Latency from the actual send time, as a closed loop would measure it."""
    late: float = 0.0
    """Share of the queries that were sent more than 1 ms after their scheduled time."""
    backlog: Backlog | None = None
    """None for a closed loop."""
    note: str = ""
    doubts: Sequence[str] = ()
    """Reasons why the times are not reliable; empty if none."""
    made: str = ""
    """Time of the oldest measurement it depends on, ISO 8601 in UTC."""
    reused: bool = False
    """Whether an earlier call measured it or a part of it."""

    @property
    def kept_up(self) -> bool:
        """Whether the store sustained the target rate: its backlog did not grow."""
        return self.backlog is None or not self.backlog.grows


@dataclass(frozen=True)
class OperationLatency:
    """Latency of one operation (`insert`, `update` or `delete`), one vector at a time."""

    operation: str
    latency: Latency
    next_search: Latency
    """Latency of the search right after the operation, which includes work that a store defers."""
    visible: float
    """Share of the operations whose effect this search returned."""
    made: str = ""
    """Time of the oldest measurement it depends on, ISO 8601 in UTC."""
    reused: bool = False
    """Whether an earlier call measured it or a part of it."""


@json_form(derived=("qps",))
@dataclass(frozen=True)
class FilteredSearch:
    """Result of searching with a filter."""

    selectivity: float
    """Share of the vectors that match the filter."""
    matching: int
    """Number of vectors that match the filter."""
    returned: float
    """Returned rows as a share of min(k, matching), averaged over queries."""
    recall: float
    """Recall against the exact neighbours among the matching vectors, ties allowed."""
    wrong: int
    """Number of returned rows that do not match the filter."""
    latency: Latency
    name: str = ""
    """The user's filter as it is typed; empty for a filter on random vectors."""
    repeats: int = 1
    """Number of times each query was run with this configuration and filter."""
    qps_spread: float = math.nan
    """Largest minus smallest QPS of the repeats, as a share of the median; NaN for one repeat."""
    doubts: Sequence[str] = ()
    """Reasons why the times are not reliable; empty if none."""
    made: str = ""
    """Time of the oldest measurement it depends on, ISO 8601 in UTC."""
    reused: bool = False
    """Whether an earlier call measured it or a part of it."""

    @property
    def qps(self) -> float:
        """Queries per second of one client: 1000 / mean latency in ms."""
        return 1000 / self.latency.mean if self.latency.mean else math.nan


@dataclass(frozen=True)
class MixedWorkload:
    """Result of searching while vectors are inserted."""

    inserted: int
    inserts_per_second: float
    together: bool
    """Whether the engine inserts and searches concurrently; otherwise the operations alternate."""
    recall: float
    """Recall of each search against the exact neighbours among the vectors stored when it began, ties allowed."""
    latency: Latency
    """Latency from the scheduled time of each search."""
    alone: Latency
    """Latency of searches without concurrent inserts."""
    made: str = ""
    """Time of the oldest measurement it depends on, ISO 8601 in UTC."""
    reused: bool = False
    """Whether an earlier call measured it or a part of it."""


@json_form(derived=("series", "qps"))
@dataclass(frozen=True)
class MeasuredConfiguration:
    """Everything measured for one configuration."""

    configuration: Configuration
    build: BuildCost
    quality: Mapping[str, float]
    """Mean scores by canonical name: recall(of=eps,eps=1e-06)@10, recall(of=k)@10, recall@10, precision@10, mrr@10 …"""
    latency: Latency
    """Latency of one client that runs one query at a time."""
    clock: ClockCheck
    qps_spread: float = math.nan
    """Largest minus smallest QPS of the repeats, as a share of the median; NaN for one repeat."""
    relevance: Mapping[str, float] = field(default_factory=dict)
    """Mean scores against the relevance judgments, by canonical name."""
    loads: Sequence[LoadResult] = ()
    changes: Sequence[OperationLatency] = ()
    filters: Sequence[FilteredSearch] = ()
    mixed: MixedWorkload | None = None
    cost_per_million: float = math.nan
    """Cost of a million queries on one thread; NaN if no price was given."""
    notes: Sequence[str] = ()
    unsupported: Sequence[str] = ()
    """Requested operations that the store does not support: `load`, `filter`, `insert`, `update`, `delete`."""
    made: str = ""
    """Time of the oldest measurement it depends on, ISO 8601 in UTC."""
    reused: bool = False
    """Whether an earlier call measured it or a part of it."""

    @property
    def series(self) -> str:
        """Label of the line that the configuration belongs to on a chart."""
        return self.configuration.series

    @property
    def qps(self) -> float:
        """Queries per second of one client: 1000 / mean latency in ms."""
        return 1000 / self.latency.mean if self.latency.mean else math.nan

    @property
    def is_floor(self) -> bool:
        """Whether this is the null store, which measures the benchmark itself."""
        return self.configuration.store == NULL_STORE


@dataclass(frozen=True)
class FailedConfiguration:
    """A configuration that could not be measured, with the error message of the store."""

    configuration: Configuration
    stage: str
    message: str
    hint: str | None = None
    exit_code: int = 3


@record("ragauge-benchmark", 1, derived=("frontiers", "frontier", "reached", "sufficient_recalls", "with_filter"))
@dataclass(frozen=True, eq=False)
class StoreBenchmark(TabularResult, report="ragauge.store_benchmarks.report"):
    """Result of a vector store benchmark."""

    data: str
    vectors: int
    dimension: int
    queries: int
    metric: str
    k: int
    """Number of neighbours per search."""
    points: Sequence[MeasuredConfiguration]
    recall: str = f"{RECALL_MEASURE}@10"
    """Canonical name of the recall measure that stores are compared by."""
    failures: Sequence[FailedConfiguration] = ()
    truth: str = ""
    """Method that found the exact neighbours."""
    threads: int = 1
    repeats: int = 1
    cutoffs: Sequence[int] = ()
    """Values of k at which the searches are scored, ascending; empty if only `k`."""
    true_neighbours: int = 0
    """Number of exact neighbours per query, all of which count as relevant in recall@k; 0 if unknown."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Time, versions, machine, hash of the vectors, seed."""
    notes: Sequence[str] = ()

    @cached_property
    def frontiers(self) -> dict[str, list[int]]:
        """Indices in `points` of the Pareto frontier of each series (recall and QPS), by ascending recall."""
        return find_series_frontiers(self.points, self.recall)

    @cached_property
    def frontier(self) -> list[int]:
        """Indices in `points` of the Pareto frontier over all stores, by ascending recall."""
        return find_frontier(self.points, self.recall)

    @cached_property
    def reached(self) -> list[QpsAtRecall]:
        """Speed of each store at each recall level."""
        return compute_qps_at_recall(self.points, self.recall)

    @cached_property
    def sufficient_recalls(self) -> list[SufficientRecall]:
        """Recall from which each relevance measure no longer improves."""
        return find_sufficient_recalls(self.points, self.recall)

    @cached_property
    def with_filter(self) -> list[FilterComparison]:
        """Operating points of the stores with each filter."""
        return compare_filters(self)

    @property
    def scored_at(self) -> list[int]:
        """All values of k at which the configurations are scored, ascending."""
        return list(self.cutoffs) or [self.k]

    @property
    def stores(self) -> list[str]:
        """Series labels in the order of `points`."""
        return list(dict.fromkeys(point.series for point in self.points))

    def __repr__(self) -> str:
        failed = f"; {len(self.failures)} failed, first: {self.failures[0].message}" if self.failures else ""
        text = f"StoreBenchmark({self.data!r}, {len(self.points)} points of {', '.join(self.stores)}{failed})"
        return append_notes(text, self.notes)


def format_option(value: Any) -> str:
    """Format an option value as it is typed."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
