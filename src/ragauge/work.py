"""One system's share of an experiment: what is there already, what is left to ask, and the folder that comes of it."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ragauge.datasets.asking import themselves
from ragauge.records import Dataset, Hit, Run, every_part
from ragauge.runs import archive, manifest
from ragauge.runs.execute import Answer, Job, Plan, ask
from ragauge.runs.journal import Journal, changes, refuse_unless_system, told
from ragauge.runs.perform import Performed, perform, warm_up_queries
from ragauge.seams import Retriever
from ragauge.systems.building import Workshop
from ragauge.systems.graphs.linkers import UNKNOWN

JOURNAL = "journal.jsonl"
FINISHED = ("manifest.json", "run.parquet", "repeats.parquet", "timings.parquet")


class Watch(Protocol):
    """Somebody who looks on while an experiment runs."""

    def begin(self, system: str, total: int, done: int) -> None:
        """A system is about to be built and asked."""
        ...

    def building(self, done: int, total: int) -> None:
        """So many of the documents are embedded."""
        ...

    def step(self) -> None:
        """One query has its answer."""
        ...

    def end(self, system: str) -> None:
        """A system is done."""
        ...


class Unwatched:
    """Nobody looks on."""

    def begin(self, system: str, total: int, done: int) -> None:
        """Nothing."""

    def building(self, done: int, total: int) -> None:
        """Nothing."""

    def step(self) -> None:
        """Nothing."""

    def end(self, system: str) -> None:
        """Nothing."""


@dataclass(frozen=True, eq=False)
class Work:
    """One system, the queries it is to answer, and where that is kept."""

    name: str
    system: Any
    data: Dataset
    plan: Plan
    fingerprint: Mapping[str, Any]
    """What the dataset is; taken once for all systems, since it reads every document."""
    workshop: Workshop
    folder: Path | None
    watch: Watch
    not_asked: int = 0
    """How many judged queries of the dataset are left out."""

    @cached_property
    def purpose(self) -> dict[str, Any]:
        """What must be the same for going on, or for believing that it was done."""
        return {
            "system": {"name": self.name, **self.workshop.identity(self.system)},
            "dataset": dict(self.fingerprint),
            "plan": asdict(self.plan),
        }

    @cached_property
    def own(self) -> frozenset[str]:
        """Queries that are themselves documents: each is left out of its own ranking."""
        return themselves(self.data, self.data.queries)

    def done(self, *, fresh: bool) -> Run:
        """The run: as it is there, or after asking what is left."""
        if self.folder is None:
            return self._ask(None, [])
        if fresh:
            self._remove(*FINISHED, JOURNAL)
        carried: list[Answer] = []
        notes: list[str] = []
        if archive.is_complete(self.folder):
            found = archive.read(self.folder)
            other = changes(found.manifest, self.purpose)
            refuse_unless_system(other, self.folder, "the run")
            carried = [] if other else archive.good_answers(found)
            missing = len(self.data.queries) * self.plan.repeats - len(carried)
            if not other and not missing:
                return self._kept(found)
            unkept = found.repeats is None and self.plan.repeats > 1
            why = "whose ranking was not kept" if unkept else "that had failed"
            notes = [
                f"{self.name}: another system than last time ({told(other)}), so it was run again"
                if other
                else f"{self.name}: {missing} queries {why} were asked again"
            ]
            self._remove(JOURNAL)  # of this finished run, if its process died before it could do so itself
        journal = Journal(self.folder / JOURNAL, self.purpose, carried)
        # Only now: what the journal carries over is on disk before the files that it came from are gone.
        self._remove(*FINISHED)
        if journal.replaced:
            notes = [f"{self.name}: another system than last time ({journal.replaced}), so it was begun anew"]
        try:
            run = self._ask(journal, notes)
        except BaseException:
            if not journal.answers:  # nothing to go on from, as where it could not be built
                journal.path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # something else is in it
                    self.folder.rmdir()
            raise
        finally:
            journal.close()
        archive.write(run, self.folder)
        journal.path.unlink(missing_ok=True)
        return run

    def _remove(self, *files: str) -> None:
        for file in files:
            if self.folder is not None:
                (self.folder / file).unlink(missing_ok=True)

    def _kept(self, found: Run) -> Run:
        total = len(self.data.queries) * self.plan.repeats
        self.watch.begin(self.name, total, total)
        self.watch.end(self.name)
        note = f"{self.name}: kept from {found.manifest.get('finished')}, not run again (--fresh does)"
        notes = [*found.manifest.get("notes", ()), note]
        about = {**found.manifest, "origin": manifest.origin(self.data)}
        if about != found.manifest and self.folder is not None:  # the dataset has moved, and is known to be the same
            archive.write_json(about, self.folder / "manifest.json")
        return replace(found, name=self.name, manifest={**about, "notes": notes})

    def _ask(self, journal: Journal | None, notes: list[str]) -> Run:
        began = manifest.now()
        answers: list[Answer] = [] if journal is None else journal.answers
        keep = answers.append if journal is None else journal.keep
        asked = {(one.query, one.repeat) for one in answers}
        jobs = [
            Job(query, text, repeat)
            for repeat in range(self.plan.repeats)
            for query, text in self.data.queries.items()
            if (query, repeat) not in asked
        ]
        total = len(self.data.queries) * self.plan.repeats
        self.watch.begin(self.name, total, total - len(jobs))
        if journal is not None:
            journal.begin({"began": began, "left": len(jobs)})

        def kept(answer: Answer) -> None:
            keep(self._without_itself(answer))
            self.watch.step()

        def opened() -> AbstractAsyncContextManager[Retriever]:
            return self.workshop.opened(self.system)

        # One place more where queries are documents, since one may be dropped.
        plan = replace(self.plan, k=self.plan.k + bool(self.own))
        performed = perform(
            opened, jobs, plan, warm_up_queries(self.data.documents, self.data.queries, plan.warmup), kept
        )
        self.watch.end(self.name)
        sessions = 1 if journal is None else len(journal.sessions)
        about = {
            **self.purpose,
            "origin": manifest.origin(self.data),
            "judgments_hash": manifest.judgments_hash(self.data.judgments),
            "judged_not_asked": self.not_asked,
            "began": began,
            "finished": manifest.now(),
            "build_seconds": round(self.workshop.seconds(self.system), 6) if jobs else None,
            "cold_ms": performed.cold.total / 1e6 if performed.cold and performed.cold.status == "ok" else None,
            "evidence": performed.evidence,
            "harness_microseconds": round(overhead(min(self.plan.k, 100)), 2),
            "sessions": sessions,
            "notes": [*notes, *self._notes(answers, performed, sessions)],
            **manifest.circumstances(),
        }
        return archive.as_run(self.name, answers, about)

    def _without_itself(self, answer: Answer) -> Answer:
        if answer.query in self.own and answer.query in answer.docs:
            place = answer.docs.index(answer.query)
            del answer.docs[place], answer.scores[place]
        del answer.docs[self.plan.k :], answer.scores[self.plan.k :]
        return answer

    def _notes(self, answers: Sequence[Answer], performed: Performed, sessions: int) -> list[str]:
        first = [one for one in answers if one.repeat == 0]
        failed = [one for one in first if one.status != "ok"]
        later = sum(one.status != "ok" for one in answers) - len(failed)
        empty = sum(one.status == "ok" and not one.docs for one in first)
        known = {document.id for document in self.data.documents}
        docs = [doc for one in first for doc in one.docs]
        strange = [doc for doc in docs if doc not in known] if known else []
        again, changed = archive.repeated(answers), archive.changed_rankings(answers)
        said: list[tuple[Any, str]] = [
            (failed, f"{len(failed)} of {len(first)} queries failed and count as empty rankings"),
            (failed, "the first: " + "".join(f"{one.query}: {one.error}" for one in failed[:1])),
            (later, f"{later} queries failed when they were asked again; their times are left out"),
            (empty, f"{empty} of {len(first)} queries got no documents"),
            (strange, f"{len(strange)} of {len(docs)} returned ids are not in the collection, such as {strange[:1]}"),
            (again, f"{again} documents came again in a ranking; their first place counts"),
            (changed, f"{changed} queries got another ranking when they were asked again"),
            (
                performed.evidence.get("index_used") is False,
                "the database did not use its index, so this is the speed and recall of an exact scan",
            ),
            (sessions > 1, f"run in {sessions} sessions"),
            *((True, text) for text in _doubts(performed.evidence)),
            (
                self.plan.repeats == 1
                and any("seed" in one and "steps" in one for one in every_part(performed.evidence)),
                "chance has a part in it, and one trial does not say how much (--repeats 5)",
            ),
        ]
        return [f"{self.name}: {text}" for happened, text in said if happened]


def _doubts(evidence: Mapping[str, Any]) -> list[str]:
    """What is wrong with the graphs that a system walks on: links that lead nowhere, or none at all."""
    said: dict[str, None] = {}
    for graph in [one["graph"] for one in every_part(evidence) if isinstance(one.get("graph"), Mapping)]:
        kinds, skipped = graph.get("kinds") or {}, graph.get("skipped") or {}
        some = [kind for kind, links in kinds.items() if links]
        none = [kind for kind, links in kinds.items() if not links]
        for kind, links in kinds.items():
            if unknown := (skipped.get(kind) or {}).get(UNKNOWN):
                said[f"{unknown:,} links of the graph name no document, {links:,} do; `ragauge graph` says more"] = None
        if not some:
            said["the graph has no links, so that walks go nowhere; `ragauge graph` says more"] = None
        elif none:
            said[f"{', '.join(none)} links nothing here: the graph is of {', '.join(some)} alone"] = None
    return list(said)


def overhead(k: int = 10, n: int = 500, rounds: int = 5) -> float:
    """Microseconds that the harness itself spends on a query in its plain loop: a system that does nothing."""
    hits = [Hit(f"document-{i}", 1.0 / (i + 1)) for i in range(k)]

    class Nothing:
        def search(self, query: str, k: int) -> list[Hit]:
            del query, k
            return hits

    jobs = [Job(f"query-{i}", "a question of the usual length", 0) for i in range(n)]
    folder = Path(tempfile.mkdtemp())
    try:
        journal = Journal(folder / "journal.jsonl", {})
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            ask(Nothing(), jobs, Plan(k=k), journal.keep)
            seconds.append(time.perf_counter() - began)
        journal.close()
    finally:
        shutil.rmtree(folder)
    return statistics.median(seconds) / n * 1e6
