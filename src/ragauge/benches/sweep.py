"""Carrying a plan out: every build in its own process, every result in a file, and nothing done twice."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.benches.opening import found
from ragauge.benches.orders import Order, read_piece, standing, told_of, write_vectors
from ragauge.benches.plan import Job, Plan, build_key, search_key, stage_key
from ragauge.benches.processes import carry_out
from ragauge.errors import BadInput, MissingExtra, RagaugeError
from ragauge.sweeps import Configuration, Failure, VectorSet

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and of how much."""
Piece = tuple[dict[str, Any], dict[str, Any]]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else works in a folder at the same time; what somebody killed has left does not count."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"another bench works in {folder}", hint="wait for it, or take another folder") from None
        yield


@dataclass
class Sweeping:
    """A folder of results that are wanted, and of those that are there."""

    data: VectorSet
    plan: Plan
    folder: Path
    progress: Progress
    failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._vectors = self.folder / "vectors" / self.data.hash[:16]
        self._missing: set[str] = set()
        write_vectors(self.data, self._vectors)

    def built(self, job: Job) -> None:
        """Build and search, unless all of it is there."""
        if job.configuration.store in self._missing:
            return
        files = {search_key(one, self.plan): one for one in job.searches}
        left = {name: one for name, one in files.items() if read_piece(self._place(job) / f"{name}.npz") is None}
        if left:
            self._done(job, "build", list(left.values()), list(left))
        cold = stage_key("cold", job.searches[0], self.plan)
        if self.kept(job) and read_piece(self._place(job) / f"{cold}.npz") is None and self._standing(job):
            self._done(job, "cold", [job.searches[0]], [cold])

    def more(self, job: Job, search: Mapping[str, Any], stage: str) -> Piece | None:
        """A load, filters or changes of one setting: what came of it, done now unless it is there."""
        name = stage_key(stage, search, self.plan)
        place = self._place(job) / f"{name}.npz"
        piece = read_piece(place)
        if piece is None and (stage != "load" or self._standing(job)) and self._done(job, stage, [search], [name]):
            piece = read_piece(place)
        return piece

    def about(self, job: Job) -> dict[str, Any]:
        """What building took; nothing where it failed."""
        return told_of(self._place(job))

    def kept(self, job: Job) -> bool:
        """Whether such a store can be opened again."""
        return bool(self.about(job).get("kept"))

    def searched(self, job: Job, search: Mapping[str, Any]) -> Piece | None:
        """The raw figures of one setting."""
        return read_piece(self._place(job) / f"{search_key(search, self.plan)}.npz")

    def opened_cold(self, job: Job) -> Piece | None:
        """What opening it again took."""
        return read_piece(self._place(job) / f"{stage_key('cold', job.searches[0], self.plan)}.npz")

    def clear(self, jobs: Sequence[Job]) -> None:
        """Take the stores away, and leave the figures."""
        for job in jobs:
            place = self._place(job) / "store"
            if place.exists() and hasattr(found(job.configuration.store), "remove"):
                with suppress(RagaugeError):
                    carry_out(self._order(job, "remove", job.searches[:1], []), None)
            shutil.rmtree(place, ignore_errors=True)

    def _standing(self, job: Job) -> bool:
        """See to it that the store is there to be opened, though its figures were taken before; whether it is."""
        return standing(self._place(job)) or self._done(job, "build", [job.searches[0]], [])

    def _place(self, job: Job) -> Path:
        return self.folder / "builds" / build_key(self.data, job, self.plan)

    def _order(self, job: Job, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Order:
        place = self._place(job)
        place.mkdir(parents=True, exist_ok=True)
        one = job.configuration
        return Order(
            stage,
            one.store,
            one.build,
            list(searches),
            [str((place / f"{name}.npz").absolute()) for name in names],
            self.data.metric,
            str(place.absolute()),
            str(self._vectors.absolute()),
            self.plan,
        )

    def _done(self, job: Job, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
        """Have it done; whether it was."""
        told = job.configuration.shown

        def progress(what: str, done: int, total: int) -> None:
            self.progress(f"{told}: {what}", done, total)

        try:
            carry_out(self._order(job, stage, searches, names), progress)
        except RagaugeError as error:
            if isinstance(error, MissingExtra):
                self._missing.add(told.store)
                told = Configuration(told.store)
            elif stage != "build":
                told = Configuration(told.store, told.build, searches[0], told.name)
            self.failures.append(Failure(told, stage, error.message, error.hint, error.exit_code))
            return False
        return True
