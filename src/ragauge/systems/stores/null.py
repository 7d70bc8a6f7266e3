"""A store that does nothing, as quickly as it can: the floor below which the harness cannot measure."""

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
    """Takes vectors in as every store does, forgets them, and answers every query with the first ids that it got.

    It can be made to behave badly: every search takes `work_ms` of a processor, and every `every`-th one sleeps for
    `stall_ms` besides, as an engine does that merges its segments now and then.

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
        """What a manifest should say about this store."""
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
        """Take vectors in, each under its id, and forget them."""
        self._intake.remember(ids, self._intake.documents(ids, vectors, metadata), metadata)

    def build(self) -> None:
        """Nothing is left to do."""

    def tune(self, *, work_ms: float = 0.0, stall_ms: float = 0.0, every: int = 100) -> None:
        """Set how badly it behaves from now on."""
        if work_ms < 0 or stall_ms < 0:
            raise BadInput("work_ms and stall_ms are milliseconds, 0 or more")
        self._work, self._stall, self._every = int(work_ms * 1e6), stall_ms / 1e3, whole("every", every)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """The first `k` ids, whatever was asked."""
        queries = self._intake.queries(vectors, k)
        with stage("retrieve"):
            self._dawdle()
            first = self._first(k, where)
            positions = np.broadcast_to(first, (len(queries), len(first)))
            distances = np.zeros(positions.shape, dtype=np.float32)
        return self._intake.answer(positions, distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Take other vectors in, and forget them."""
        self._intake.replacements(ids, vectors)

    def delete(self, ids: Sequence[str]) -> None:
        """Forget ids too."""
        self._intake.forget(ids)

    def save(self) -> None:
        """Keep the ids."""
        if self._path is not None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
            self._intake.write(self._path)

    def close(self) -> None:
        """There is nothing to let go of."""

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
