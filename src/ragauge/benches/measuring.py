"""From the raw figures that processes left to the nouns: everything is counted here, and can be counted again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.benches.changes import OPERATIONS
from ragauge.benches.filters import ladder
from ragauge.benches.loops import Raw
from ragauge.benches.plan import Job, Plan
from ragauge.benches.sweep import Piece, Sweeping
from ragauge.measures import stores as measures
from ragauge.records import NOTHING, Ints
from ragauge.sweeps import RECALL, Build, Change, Configuration, Filtered, Load, Mixed, Point, Truth, VectorSet
from ragauge.systems.stores.nearest import nearest

Relevance = Callable[[Ints], Mapping[str, float]]
"""What found rows are worth to people, by measure."""


@dataclass(frozen=True)
class Measuring:
    """What is needed to tell how good an answer is."""

    data: VectorSet
    truth: Truth
    plan: Plan
    relevance: Relevance | None = None

    @property
    def recall(self) -> str:
        """What stores are placed by: neighbours as near as the true ones count, whichever of equal ones came back."""
        return f"{RECALL}@{self.plan.k}"

    def points(self, jobs: Sequence[Job], work: Sweeping) -> Iterator[tuple[Job, Point]]:
        """The configurations that were measured."""
        pieces = [(job, one, work.searched(job, one.search)) for job in jobs for one in job.points if work.about(job)]
        floors = [piece[1]["floor_ns"].min() for _, _, piece in pieces if piece is not None]
        least = float(min(floors, default=math.inf))
        for job, configuration, piece in pieces:
            if piece is not None:
                cold, _ = work.opened_cold(job) or (NOTHING, NOTHING)
                build = _build(work.about(job), cold, piece[0]["about"])
                yield job, self._point(configuration, build, piece[1], least)

    def loads(self, piece: Piece | None) -> list[Load]:
        """What came of the clients."""
        told, arrays = piece or ({"notes": []}, {})
        return [measures.load(_of(arrays, f"{place}_"), note) for place, note in enumerate(told["notes"])]

    def filters(self, piece: Piece | None) -> list[Filtered]:
        """What came of the conditions."""
        if piece is None:
            return []
        _, arrays = piece
        found = []
        for rung, mask in ladder(len(self.data.base), self.plan.filters, seed=self.plan.seed).items():
            true, _ = nearest(self.data.base, self.data.queries, self.plan.k, self.data.metric, allowed=mask)
            found.append(measures.filtered(_of(arrays, f"{rung}_"), mask, self.data, self.plan.k, true))
        return found

    def changes(self, piece: Piece | None) -> list[Change]:
        """What came of inserts, updates and deletes."""
        _, arrays = piece or ({}, {})
        return [measures.change(one, _of(arrays, f"{one}_")) for one in OPERATIONS if f"{one}_ns" in arrays]

    def mixed(self, piece: Piece | None) -> Mixed | None:
        """What came of searching while vectors came in."""
        _, arrays = piece or ({}, {})
        raw = _of(arrays, "mixed_")
        return measures.mixed(raw, self.truth, self.data, self.plan.k) if raw else None

    def _point(self, configuration: Configuration, build: Build, raw: Raw, least_floor_ns: float) -> Point:
        found = raw["positions"]
        notes = measures.lies(found, raw["distances"], self.data)
        if (changed := int(raw["changed"].max(initial=0))) and configuration.store != "null":
            notes.append(f"{changed} of {len(found)} queries were answered otherwise when asked again")
        if build.about.get("index_used") is False:
            notes.append("the engine did not use its index, and looked at every vector")
        return Point(
            configuration=configuration.shown,
            build=build,
            quality=measures.quality(self.truth, found, self.data, self.plan.k),
            latency=measures.latency_of(raw["nanoseconds"]),
            clock=measures.clock(raw, in_process="server" not in build.about, least_floor_ns=least_floor_ns),
            qps_spread=measures.qps_spread(raw["nanoseconds"]),
            relevance=NOTHING if self.relevance is None else self.relevance(found),
            notes=notes,
        )


def _build(told: Mapping[str, Any], cold: Mapping[str, Any], about: Mapping[str, Any]) -> Build:
    return Build(
        vectors=told["vectors"],
        insert_seconds=told["insert_seconds"],
        index_seconds=told["index_seconds"],
        disk_bytes=told["disk_bytes"],
        memory_bytes=told["memory_bytes"],
        cold_open_ms=cold.get("open_ms", math.nan),
        cold_first_ms=cold.get("first_ms", math.nan),
        about=about,
    )


def _of(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays of one part, by their own names."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
