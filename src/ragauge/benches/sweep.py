"""Benchmark runner: every build in its own process, every result in a file, and reuse of saved results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.benches.opening import found
from ragauge.benches.orders import BUILD, Order, made_at, read_piece, standing, told_of, write_json, write_vectors
from ragauge.benches.plan import Job, Plan, build_key, filter_key, search_key, stage_key
from ragauge.benches.processes import carry_out
from ragauge.errors import MissingExtra, RagaugeError
from ragauge.runs.manifest import now
from ragauge.sweeps import REMOTE, Configuration, Failure, VectorSet
from ragauge.systems.composition import is_reproducible
from ragauge.systems.specs import Spec

Progress = Callable[[str, int, int], None]
"""Progress callback: stage, number done, total."""
Piece = tuple[dict[str, Any], dict[str, Any]]
FilterPiece = tuple[Piece, dict[str, Any]] | None
"""Result with a filter, and its provenance (`made`, `reused`); None if it could not be measured."""
FINISHED = "finished.json"
"""Name of the file that marks a build whose benchmark finished; an interrupted one lacks it, and is resumed."""


@dataclass
class Sweeping:
    """Runner that measures missing results of a benchmark and reads saved ones."""

    data: VectorSet
    plan: Plan
    folder: Path
    progress: Progress
    failures: list[Failure] = field(default_factory=list)
    remeasures_doubtful: bool = False
    """Whether saved results with unreliable times are measured again."""

    def __post_init__(self) -> None:
        self._vectors = self.folder / "vectors" / self.data.hash[:16]
        self._missing: set[str] = set()
        self._made: set[Path] = set()
        write_vectors(self.data, self._vectors)

    def discard(self, jobs: Sequence[Job], *, all_results: bool) -> None:
        """Remove saved results that may be out of date, so that they are measured again.

        Without `all_results` these are finished results of stores that ragauge cannot identify: the user's own classes,
        plug-ins of other packages, and servers. Results of an interrupted benchmark stay, and it is resumed.
        """
        for job in jobs:
            place = self._place(job)
            if place.exists() and (all_results or (not _is_reproducible(job) and (place / FINISHED).exists())):
                self.clear([job])
                shutil.rmtree(place)

    def remove(self, job: Job, search: Mapping[str, Any], stage: str | None = None) -> None:
        """Remove the saved result of one setting: its search, or one of the other stages."""
        name = search_key(search, self.plan) if stage is None else stage_key(stage, search, self.plan)
        (self._place(job) / f"{name}.npz").unlink(missing_ok=True)

    def remove_filtered(self, job: Job, search: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
        """Remove the saved result of one setting with one of the requested filters."""
        (self._place(job) / f"{filter_key(search, requested, self.plan)}.npz").unlink(missing_ok=True)

    def finish(self, jobs: Sequence[Job]) -> None:
        """Mark the builds as finished."""
        for job in jobs:
            if self._place(job).exists():
                write_json({"made": now()}, self._place(job) / FINISHED)

    def provenance(self, job: Job, search: Mapping[str, Any], stage: str | None = None) -> dict[str, Any]:
        """Return when a result was made and whether it was reused.

        `made` is the time of its oldest part; `reused` is true if an earlier call made any part. Without a stage, the
        result is the search with its build.
        """
        place = self._place(job)
        name = search_key(search, self.plan) if stage is None else stage_key(stage, search, self.plan)
        return self._dated([place / f"{name}.npz", *([place / BUILD] if stage is None else [])])

    def _dated(self, files: Sequence[Path]) -> dict[str, Any]:
        return {"made": min(map(made_at, files)), "reused": any(file not in self._made for file in files)}

    def built(self, job: Job) -> None:
        """Build a store and time its searches, unless all results are saved."""
        if job.configuration.store in self._missing:
            return
        files = {search_key(one, self.plan): one for one in job.searches}
        left = {name: one for name, one in files.items() if read_piece(self._place(job) / f"{name}.npz") is None}
        if left:
            self._done(job, "build", list(left.values()), list(left))
        cold = stage_key("cold", job.searches[0], self.plan)
        if self._place(job) / BUILD in self._made:  # the saved time to reopen belongs to an earlier build
            (self._place(job) / f"{cold}.npz").unlink(missing_ok=True)
        if self.kept(job) and read_piece(self._place(job) / f"{cold}.npz") is None and self._standing(job):
            self._done(job, "cold", [job.searches[0]], [cold])

    def more(self, job: Job, search: Mapping[str, Any], stage: str) -> Piece | None:
        """Return the result of a load test or of updates; measured now unless it is saved."""
        name = stage_key(stage, search, self.plan)
        place = self._place(job) / f"{name}.npz"
        piece = read_piece(place)
        if piece is None and (stage != "load" or self._standing(job)) and self._done(job, stage, [search], [name]):
            piece = read_piece(place)
        return piece

    def filtered(self, job: Job, searches: Sequence[Mapping[str, Any]]) -> list[list[FilterPiece]]:
        """Return the results of each setting with each filter, and measure missing ones.

        Each result has its provenance. It is saved when its filter is done, so that an interrupted sweep resumes with
        the next filter.
        """
        place, requested = self._place(job), self.plan.requested_filters
        names = [[filter_key(search, one, self.plan) for search in searches] for one in requested]
        left = [name if read_piece(place / f"{name}.npz") is None else "" for row in names for name in row]
        if any(left):
            self._done(job, "filters", searches, left)
            self._made |= {place / f"{name}.npz" for name in left if name}
        found: list[list[FilterPiece]] = [[] for _ in searches]
        for row in names:
            for mine, file in zip(found, (place / f"{name}.npz" for name in row), strict=True):
                piece = read_piece(file)
                mine.append((piece, self._dated([file])) if piece is not None else None)
        return found

    def about(self, job: Job) -> dict[str, Any]:
        """Return the costs of a build; empty if it failed."""
        return told_of(self._place(job))

    def kept(self, job: Job) -> bool:
        """Return whether the store of a build can be reopened."""
        return bool(self.about(job).get("kept"))

    def searched(self, job: Job, search: Mapping[str, Any]) -> Piece | None:
        """Return the raw measurements of one search setting; None if missing."""
        return read_piece(self._place(job) / f"{search_key(search, self.plan)}.npz")

    def opened_cold(self, job: Job) -> Piece | None:
        """Return the times to reopen the store; None if missing."""
        return read_piece(self._place(job) / f"{stage_key('cold', job.searches[0], self.plan)}.npz")

    def clear(self, jobs: Sequence[Job]) -> None:
        """Delete the stores, and keep the results."""
        for job in jobs:
            place = self._place(job) / "store"
            if place.exists() and hasattr(found(job.configuration.store), "remove"):
                with suppress(RagaugeError):
                    carry_out(self._order(job, "remove", job.searches[:1], []), None)
            shutil.rmtree(place, ignore_errors=True)

    def _standing(self, job: Job) -> bool:
        """Rebuild the store if it is missing; return whether it can be opened."""
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
            [str((place / f"{name}.npz").absolute()) if name else "" for name in names],
            self.data.metric,
            str(place.absolute()),
            str(self._vectors.absolute()),
            self.plan,
        )

    def _done(self, job: Job, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
        """Run a stage in a worker, record a failure, and return whether it succeeded."""
        told = job.configuration.shown
        order = self._order(job, stage, searches, names)
        building = stage == "build" and not standing(Path(order.folder))

        def progress(what: str, done: int, total: int) -> None:
            self.progress(f"{told}: {what}", done, total)

        try:
            carry_out(order, progress)
        except RagaugeError as error:
            if isinstance(error, MissingExtra):
                self._missing.add(told.store)
                told = Configuration(told.store)
            elif stage != "build":
                told = Configuration(told.store, told.build, searches[0], told.name)
            self.failures.append(Failure(told, stage, error.message, error.hint, error.exit_code))
            return False
        self._made |= {self._place(job) / f"{name}.npz" for name in names if name}
        self._made |= {self._place(job) / BUILD} if building else set()
        return True


def _is_reproducible(job: Job) -> bool:
    """Return whether options and versions identify a saved result.

    This holds for built-in engines on this machine.
    """
    one = job.configuration
    server = REMOTE & one.build.keys() or (one.store == "pgvector" and "RAGAUGE_DSN" in os.environ)
    return not server and is_reproducible("stores", Spec(one.store, one.build))
