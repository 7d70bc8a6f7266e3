"""The nouns of measuring vector stores: what is searched, what a store was set to, and all that was measured of it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.outcomes import Latency
from ragauge.records import Floats, Ints, Judgments

Matrix = NDArray[np.float32]
PLACES = ("path", "url", "dsn", "table", "collection", "api_key")
"""Options that say where a store is, not what it is like."""
FORCE, FORCED = "force", "forced"
"""The option that makes an engine use its index against its planner's choice, and the label of such configurations."""
REMOTE = frozenset({"url", "dsn"})
"""Options that name a server."""
FLOOR = "null"
"""The store that does nothing: what is measured of it is the harness itself."""
RECALL = "recall(of=eps,eps=1e-06)"
"""What stores are placed by, before its @k: what is no farther than the k-th true neighbour, but for rounding."""


@dataclass(frozen=True, eq=False)
class VectorSet:
    """Vectors to search in, and vectors to search for."""

    name: str
    base: Matrix
    """A row for each vector of the store."""
    queries: Matrix
    metric: str
    """`l2`, `cosine` or `ip`."""
    neighbours: Ints | None = None
    """Rows of `base` for each query, nearest first, where somebody has published the exact ones."""
    ids: Sequence[str] = ()
    """The documents that the rows stand for; without any, rows are known by their place: "0", "1", …"""
    query_ids: Sequence[str] = ()
    judgments: Judgments | None = None
    """What people found relevant, where the vectors are those of a judged collection."""
    notes: Sequence[str] = ()
    metadata: Sequence[Mapping[str, Any]] = ()
    """Fields of each row of `base` that searches can be filtered by; empty if there are none."""

    @cached_property
    def hash(self) -> str:
        """What the vectors are, by every byte of them: two sets of one size are not the same set."""
        digest = hashlib.sha256()
        for part in (self.base, self.queries):
            digest.update(f"{part.shape}{part.dtype}".encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Truth:
    """The exact neighbours of every query, nearest first; equally near ones in the order of their rows."""

    neighbours: Ints
    distances: Floats
    metric: str
    by: str
    """What really found them: `numpy`, `faiss`, `torch`, two of them where workers differ, or `given`, with how many
    were checked where not all were."""
    notes: Sequence[str] = ()
    """Why it was not what was asked for."""


@dataclass(frozen=True)
class Configuration:
    """A store with its options: those that it is built with, and those that may change from search to search."""

    store: str
    build: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """What the user calls it, if anything."""

    @property
    def series(self) -> str:
        """Label of the configurations that share a line on a chart: the store, its kind, and whether it is forced."""
        kinds = (key if value is True else value for key, value in self.shown.build.items() if key != FORCE)
        label = self.name or " ".join([self.store, *(kind for kind in kinds if isinstance(kind, str))])
        return f"{label} {FORCED}" if {**self.build, **self.search}.get(FORCE) is True else label

    @property
    def shown(self) -> Configuration:
        """The same as it may be written down: where a server is, and the key to it, are nobody's business."""
        build = {key: value for key, value in self.build.items() if key not in PLACES}
        away = {"at": "server"} if REMOTE & self.build.keys() else {}
        return Configuration(self.store, {**away, **build}, self.search, self.name)

    def __str__(self) -> str:
        inside = ",".join(f"{name}={told(value)}" for name, value in (*self.shown.build.items(), *self.search.items()))
        return f"{self.store}:{inside}" if inside else self.store


@dataclass(frozen=True)
class Build:
    """What it took to get the vectors into a store."""

    vectors: int
    insert_seconds: float
    index_seconds: float
    disk_bytes: int | None
    """None where nothing is kept on disk."""
    memory_bytes: int | None
    """What the process, its children and its server have more of it than before the first vector."""
    cold_open_ms: float = math.nan
    """Opening what was kept, in a new process; NaN where a store cannot be reopened."""
    cold_first_ms: float = math.nan
    """The first search after that."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the store says of itself: version, the parameters that are in force."""

    @property
    def seconds(self) -> float:
        """Inserting and indexing."""
        return self.insert_seconds + self.index_seconds

    @property
    def bytes_per_vector(self) -> float:
        """Of memory; of the disk where memory is not known."""
        taken = self.memory_bytes if self.memory_bytes is not None else self.disk_bytes
        return math.nan if taken is None or not self.vectors else taken / self.vectors


@dataclass(frozen=True)
class Clock:
    """Whether the machine let a measurement alone."""

    floor_ms: float
    """The median of a store that does nothing, in the same process at the same time."""
    switches: int
    """How often the process was put aside for another."""
    steal: float
    """The share of processor time that the host took away."""
    doubts: Sequence[str] = ()
    """Why the times are doubtful; empty if nothing is known against them."""


@dataclass(frozen=True)
class Load:
    """Several clients at once: as fast as they can, or at a fixed rate."""

    clients: int
    rate: float | None
    """Queries per second that were asked for; None where every client asked as soon as it had its answer."""
    qps: float
    """Answers per second of wall-clock time."""
    latency: Latency
    """From the moment at which a query was due: a stall counts for all who had to wait."""
    service: Latency
    """From the moment at which it was sent: what a closed loop would have said."""
    late: float = 0.0
    """The share of queries that were sent more than a millisecond after they were due."""
    note: str = ""
    doubts: Sequence[str] = ()
    """Why the times are doubtful; empty if nothing is known against them."""
    made: str = ""
    """When it was measured, the oldest part counts: ISO 8601, UTC."""
    reused: bool = False
    """Whether an earlier call measured it, or a part of it."""

    @property
    def kept_up(self) -> bool:
        """Whether the store answered as fast as it was asked."""
        return self.rate is None or self.qps >= 0.95 * self.rate


@dataclass(frozen=True)
class Change:
    """One kind of change: `insert`, `update` or `delete`, one vector at a time."""

    operation: str
    latency: Latency
    next_search: Latency
    """The search right after: a store that puts its work off does it then."""
    visible: float
    """The share of changes that this search saw."""
    made: str = ""
    """When it was measured, the oldest part counts: ISO 8601, UTC."""
    reused: bool = False
    """Whether an earlier call measured it, or a part of it."""


@dataclass(frozen=True)
class Filtered:
    """Search among the vectors that match a filter."""

    selectivity: float
    """The share of the vectors that match."""
    matching: int
    """How many vectors that is."""
    returned: float
    """Rows that came back, of min(k, matching) that should: the mean share over queries."""
    recall: float
    """Against the exact neighbours among those that match, ties allowed."""
    wrong: int
    """Rows that came back though they do not match."""
    latency: Latency
    name: str = ""
    """The user's own filter as it is typed; empty for one of random vectors."""
    repeats: int = 1
    """How often every query was run with this setting and filter."""
    qps_spread: float = math.nan
    """Largest minus smallest QPS of the repeats, as a share of the median; NaN for one repeat."""
    doubts: Sequence[str] = ()
    """Why the times are not reliable; empty if nothing speaks against them."""
    made: str = ""
    """When it was measured, the oldest part counts: ISO 8601, UTC."""
    reused: bool = False
    """Whether an earlier call measured it, or a part of it."""

    @property
    def qps(self) -> float:
        """Queries per second of one client: 1000 / mean milliseconds."""
        return 1000 / self.latency.mean if self.latency.mean else math.nan


@dataclass(frozen=True)
class Mixed:
    """Search while vectors come in."""

    inserted: int
    inserts_per_second: float
    together: bool
    """Whether the engine takes both at once; otherwise they took turns."""
    recall: float
    """Each search against the exact neighbours of what was in the store when it began, ties allowed."""
    latency: Latency
    """From the moment at which a search was due."""
    alone: Latency
    """The same searches without anything coming in."""
    made: str = ""
    """When it was measured, the oldest part counts: ISO 8601, UTC."""
    reused: bool = False
    """Whether an earlier call measured it, or a part of it."""


@dataclass(frozen=True)
class Point:
    """One configuration, measured."""

    configuration: Configuration
    build: Build
    quality: Mapping[str, float]
    """Means by canonical name: recall(of=eps,eps=1e-06)@10, recall(of=k)@10, recall@10, precision@10, mrr@10 …"""
    latency: Latency
    """One client, one query after the other."""
    clock: Clock
    qps_spread: float = math.nan
    """The largest less the smallest QPS of the repeats, as a share of the middle one."""
    relevance: Mapping[str, float] = field(default_factory=dict)
    """Means by canonical name against the judgments of people."""
    loads: Sequence[Load] = ()
    changes: Sequence[Change] = ()
    filters: Sequence[Filtered] = ()
    mixed: Mixed | None = None
    cost_per_million: float = math.nan
    """Money for a million queries on one such thread, where a price was given."""
    notes: Sequence[str] = ()
    unsupported: Sequence[str] = ()
    """What was requested and the store cannot do: `load`, `filter`, `insert`, `update`, `delete`."""
    made: str = ""
    """When it was measured, the oldest part counts: ISO 8601, UTC."""
    reused: bool = False
    """Whether an earlier call measured it, or a part of it."""

    @property
    def qps(self) -> float:
        """Queries per second of one client: 1000 / mean milliseconds."""
        return 1000 / self.latency.mean if self.latency.mean else math.nan

    @property
    def is_floor(self) -> bool:
        """Whether it is the harness that was measured, and no store."""
        return self.configuration.store == FLOOR


@dataclass(frozen=True)
class Failure:
    """What could not be measured, and why, in the store's own words."""

    configuration: Configuration
    stage: str
    message: str
    hint: str | None = None
    exit_code: int = 3


@dataclass(frozen=True)
class Reached:
    """How fast a store is at a recall, between its two nearest points; None where it never gets there."""

    store: str
    recall: float
    qps: float | None
    p50_ms: float | None
    by: str = ""
    """The configuration that comes nearest above it."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """All that was measured."""

    data: str
    vectors: int
    dimension: int
    queries: int
    metric: str
    k: int
    """Number of neighbours per search."""
    points: Sequence[Point]
    recall: str = f"{RECALL}@10"
    """The canonical name of the quality that stores are placed by."""
    failures: Sequence[Failure] = ()
    frontiers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each series the places in `points` that none of its others beats in both recall and speed, by recall."""
    frontier: Sequence[int] = ()
    """The same over all stores."""
    reached: Sequence[Reached] = ()
    truth: str = ""
    """Where the exact neighbours came from."""
    threads: int = 1
    repeats: int = 1
    cutoffs: Sequence[int] = ()
    """The k at which the searches are scored, ascending; empty if only at `k`."""
    true_neighbours: int = 0
    """Number of exact neighbours per query, all of which count as relevant in recall@k; 0 if unknown."""
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    """Versions, machine, hashes."""
    notes: Sequence[str] = ()

    @property
    def scored_at(self) -> list[int]:
        """Every k that the points have quality figures for, ascending."""
        return list(self.cutoffs) or [self.k]

    @property
    def stores(self) -> list[str]:
        """In the order in which they were asked for."""
        return list(dict.fromkeys(point.configuration.series for point in self.points))

    def __repr__(self) -> str:
        failed = f"; {len(self.failures)} failed, first: {self.failures[0].message}" if self.failures else ""
        return f"Sweep({self.data!r}, {len(self.points)} points of {', '.join(self.stores)}{failed})"


def told(value: Any) -> str:
    """An option as it is typed."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


LEVEL = 0.95
"""The recall at which stores are compared, put under load, filtered and changed."""


def representative(points: Sequence[Point], recall: str) -> Point | None:
    """Which of a store's points stands for it: the fastest that has the level, else the one with the most recall."""
    recalls = [one.quality.get(recall, math.nan) for one in points]
    line = [points[i] for i in unbeaten(recalls, [one.qps for one in points])]
    good = [one for one in line if one.quality[recall] >= LEVEL - 1e-9]
    return good[0] if good else line[-1] if line else None


def unbeaten(recalls: Sequence[float], speeds: Sequence[float]) -> list[int]:
    """The places that no other beats: as much recall and as much speed, and more of one; by recall, the least first.

    Of several that are equal the first stays; what is no number is nowhere.

    >>> unbeaten([0.9, 0.8, 0.95, 0.9], [100, 90, 50, 100])
    [0, 2]
    """
    known = [i for i, pair in enumerate(zip(recalls, speeds, strict=True)) if all(map(math.isfinite, pair))]
    kept: list[int] = []
    for i in sorted(known, key=lambda i: (-recalls[i], -speeds[i], i)):
        if not kept or speeds[i] > speeds[kept[-1]]:
            kept.append(i)
    return kept[::-1]


def points_around(points: Sequence[Point], speeds: Sequence[float], recall: str, level: float) -> list[Point]:
    """Return the one or two points of a frontier that the speed at a recall is computed from; the last reaches it."""
    line = [points[i] for i in unbeaten([one.quality.get(recall, math.nan) for one in points], speeds)]
    above = next((i for i, one in enumerate(line) if one.quality[recall] >= level - 1e-9), None)
    if above is None:
        return []
    return (
        line[above : above + 1] if line[above].quality[recall] <= level + 1e-9 else line[max(above - 1, 0) : above + 1]
    )
