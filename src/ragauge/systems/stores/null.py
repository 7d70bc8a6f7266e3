"""Reference stores: exact search by brute force, and a store that does nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.seams import ABILITIES
from ragauge.stages import stage
from ragauge.systems.stores.intake import Intake, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragauge.seams import Neighbours


class Null:
    """Store that discards vectors and answers every query with the first ids.

    It measures the overhead of the benchmark itself. It can simulate a slow engine: each search uses `work_ms` of
    CPU time, and every `every`-th search also sleeps for `stall_ms`, like an engine that merges segments.

    >>> store = Null(metric="l2")
    >>> store.add(["a", "b"], [[0.0, 0.0], [3.0, 4.0]])
    >>> store.search([[3.0, 4.0]], 3)[0].tolist()
    [['a', 'b', None]]
    """

    abilities = frozenset(ABILITIES)

    def __init__(
        self,
        *,
        metric: str = "l2",
        path: str | None = None,
        work_ms: float = 0.0,
        stall_ms: float = 0.0,
        every: int = 100,
    ) -> None:
        self._intake = Intake(metric)
        self._path = path
        self._searches = 0
        self.tune(work_ms=work_ms, stall_ms=stall_ms, every=every)
        if path is not None:
            self._intake.read(path)

    def __len__(self) -> int:
        return len(self._intake)

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "null",
            "metric": self._intake.metric,
            "work_ms": self._work / 1e6,
            "stall_ms": self._stall * 1e3,
            "every": self._every,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Register ids and metadata; discard the vectors."""
        self._intake.remember(ids, self._intake.documents(ids, vectors, metadata), metadata)

    def build(self) -> None:
        """Do nothing: there is no index."""

    def tune(self, *, work_ms: float = 0.0, stall_ms: float = 0.0, every: int = 100) -> None:
        """Set the simulated latency of later searches."""
        if work_ms < 0 or stall_ms < 0:
            raise BadInput("work_ms and stall_ms are milliseconds, 0 or more")
        self._work, self._stall, self._every = int(work_ms * 1e6), stall_ms / 1e3, whole("every", every)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the first `k` ids that match the filter, regardless of the query."""
        queries = self._intake.queries(vectors, k)
        with stage("retrieve"):
            self._dawdle()
            first = self._first(k, where)
            positions = np.broadcast_to(first, (len(queries), len(first)))
            distances = np.zeros(positions.shape, dtype=np.float32)
        return self._intake.answer(positions, distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Check the new vectors and discard them."""
        self._intake.replacements(ids, vectors)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the ids in `path`, if there is one."""
        if self._path is not None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
            self._intake.write(self._path)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _first(self, k: int, where: Mapping[str, Any] | None) -> NDArray[np.int64]:
        if where is None and len(self._intake) == self._intake.places:
            return np.arange(min(k, len(self)))
        return np.flatnonzero(self._intake.living if where is None else self._intake.allowed(where))[:k]

    def _dawdle(self) -> None:
        self._searches += 1
        if self._work:
            until = time.perf_counter_ns() + self._work
            while time.perf_counter_ns() < until:
                pass
        if self._stall and self._searches % self._every == 0:
            time.sleep(self._stall)
