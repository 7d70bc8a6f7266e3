"""The verb `run`: systems answer the queries of a dataset, and what comes of it is measured and kept."""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ragauge.datasets.loading import load
from ragauge.errors import BadInput, UnknownName
from ragauge.formats.writing import write_judgments
from ragauge.measures.conventions import Convention
from ragauge.measures.conventions import convention as find_convention
from ragauge.measures.scoring import score
from ragauge.measures.speed import speed
from ragauge.outcomes import Experiment
from ragauge.records import Dataset, Hit, Run
from ragauge.runs import archive, manifest
from ragauge.runs.execute import Answer, Job, Plan, ask
from ragauge.runs.journal import Journal
from ragauge.runs.perform import perform, warm_up_queries
from ragauge.seams import Retriever
from ragauge.stats.paired import differences
from ragauge.systems.building import Workshop
from ragauge.systems.cache import cache_folder
from ragauge.verbs import Measures, count, judgments_for, read_measures


class Watch(Protocol):
    """Somebody who looks on while an experiment runs."""

    def begin(self, system: str, total: int, done: int) -> None:
        """A system is about to be built and asked."""
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

    def step(self) -> None:
        """Nothing."""

    def end(self, system: str) -> None:
        """Nothing."""


def run(  # noqa: PLR0913 - each has a use of its own, and a default
    dataset: str | Path | Dataset,
    systems: Any,
    *,
    measures: Measures | None = None,
    baseline: str | None = None,
    convention: str | Convention = "default",
    out: str | Path | None = None,
    fresh: bool = False,
    split: str | None = None,
    watch: Watch | None = None,
    **how: Any,
) -> Experiment:
    """Let systems answer the queries of a dataset; time, score and compare them.

    `systems` is a mapping from names to descriptions (`"bm25"`, `"dense(embedder=minilm)"`), functions `(query, k)`,
    sync or async, or retrievers; a list of descriptions names itself. `how` is k, repeats, warmup, workers, timeout and
    retries; `split` is which judgments of a BEIR folder. With `out`, every answer is on disk at once, and the same call
    goes on where the last one stopped.
    """
    plan = _plan(how)
    data = load(dataset, split=split)
    named = _named(systems)
    if baseline is not None and baseline not in named:
        raise UnknownName("system", baseline, named, hint="the baseline is one of the systems")
    rules, notes = _rules(data, find_convention(convention))
    k = plan.k
    wanted = read_measures(measures or (f"ndcg@{k}", f"recall@{k}", f"mrr@{k}", f"hit_rate@{k}"), rules)
    judgments = judgments_for(wanted, data.judgments)
    folder = None if out is None else Path(out)
    workshop = Workshop(data.documents, named, cache=cache_folder())
    for system in named.values():
        workshop.check(system)
    runs: dict[str, Run] = {}
    try:
        for name, system in named.items():
            place = None if folder is None else folder / _slug(name)
            job = _Work(data, plan, workshop, place, watch or Unwatched())
            runs[name] = job.done_before(name, system, fresh=fresh) or job.do(name, system)
    finally:
        workshop.close()
    scores = {name: score(count(judgments, one, wanted, rules, name=name), wanted, rules) for name, one in runs.items()}
    speeds = {name: speed(one.timings) for name, one in runs.items() if one.timings is not None}
    compared = next(iter(scores.values())).measures[0]
    gaps = differences(scores, baseline, compared) if baseline is not None and len(scores) > 1 else {}
    notes += [note for one in runs.values() for note in one.manifest.get("notes", ())]
    if folder is not None:
        write_judgments(data.judgments, str(folder / "judgments.parquet"))
    return Experiment(data, runs, scores, speeds, gaps, baseline, folder, notes)


def _plan(how: dict[str, Any]) -> Plan:
    known = list(Plan.__dataclass_fields__)
    for name in how:
        if name not in known:
            raise UnknownName("setting", name, known, hint=f"there are {', '.join(known)}")
    return Plan(**{name: value for name, value in how.items() if value is not None})


def _named(systems: Any) -> dict[str, Any]:
    if isinstance(systems, str):
        systems = [systems]
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    elif isinstance(systems, Iterable):
        named = {}
        for one in systems:
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            if name in named:
                raise BadInput(f"two systems are called `{name}`", hint="give a mapping from names to systems")
            named[name] = one
    else:
        raise BadInput(f"systems cannot be read from {type(systems).__name__}", hint='{"bm25": "bm25", "mine": search}')
    if not named:
        raise BadInput("there is no system to run", hint="--system bm25")
    slugs: dict[str, str] = {}
    for name in named:
        other = slugs.setdefault(_slug(name), name)
        if other != name:
            raise BadInput(f"`{name}` and `{other}` would share a folder", hint="name them apart")
    return named


def _slug(name: str) -> str:
    """A name as a folder: nothing that leads elsewhere."""
    return re.sub(r"[^\w.+=-]+", "_", name).strip("._") or "system"


def _rules(data: Dataset, rules: Convention) -> tuple[Convention, list[str]]:
    """Where queries are documents themselves, finding oneself is no success: such hits are dropped, as BEIR does."""
    own = len({document.id for document in data.documents} & set(data.queries))
    if not own or rules.own == "dropped":
        return rules, []
    note = f"{own} queries are themselves documents: each is dropped from its own ranking (own=dropped)"
    return rules.but(own="dropped"), [note]


@dataclass(frozen=True, eq=False)
class _Work:
    """One system's share of an experiment."""

    data: Dataset
    plan: Plan
    workshop: Workshop
    folder: Path | None
    watch: Watch

    def purpose(self, name: str, system: Any) -> dict[str, Any]:
        """What must be the same for going on, or for believing that it was done."""
        return {
            "system": {"name": name, "description": self.workshop.describe(system)},
            "dataset": manifest.fingerprint(self.data),
            "plan": asdict(self.plan),
        }

    def done_before(self, name: str, system: Any, *, fresh: bool) -> Run | None:
        """The finished run of this very work, if it is there."""
        if self.folder is None or not self.folder.exists():
            return None
        if fresh:
            for file in ("manifest.json", "run.parquet", "timings.parquet", "journal.jsonl"):
                (self.folder / file).unlink(missing_ok=True)
            return None
        if not archive.is_complete(self.folder):
            return None
        found = archive.read(self.folder)
        wanted = self.purpose(name, system)
        different = [part for part, value in wanted.items() if found.manifest.get(part) != value]
        if different:
            raise BadInput(
                f"holds a run with another {' and '.join(different)}",
                file=str(self.folder),
                hint="give another --out, or --fresh to run it again",
            )
        self.watch.begin(name, len(self.data.queries), len(self.data.queries))
        self.watch.end(name)
        note = f"{name}: done before, at {found.manifest.get('finished')}; --fresh runs it again"
        return Run(found.table, name, found.timings, {**found.manifest, "notes": [note]})

    def do(self, name: str, system: Any) -> Run:
        """Build, ask, write down."""
        began = manifest.now()
        # Where queries are documents, one place more is asked for, since one may be dropped.
        own = any(document.id in self.data.queries for document in self.data.documents)
        plan = Plan(**{**asdict(self.plan), "k": self.plan.k + own})
        jobs = [Job(query, text, repeat) for repeat in range(plan.repeats) for query, text in self.data.queries.items()]
        purpose = self.purpose(name, system)
        journal = None if self.folder is None else Journal(self.folder / "journal.jsonl", purpose)
        answers: list[Answer] = [] if journal is None else journal.answers
        keep = answers.append if journal is None else journal.keep
        asked = {(one.query, one.repeat) for one in answers}
        left = [job for job in jobs if (job.query, job.repeat) not in asked]
        self.watch.begin(name, len(jobs), len(jobs) - len(left))
        if journal is not None:
            journal.begin({"began": began, "left": len(left)})

        def kept(answer: Answer) -> None:
            keep(answer)
            self.watch.step()

        def opened() -> AbstractAsyncContextManager[Retriever]:
            return self.workshop.opened(system)

        warm = warm_up_queries(self.data.documents, self.data.queries, plan.warmup)
        try:
            performed = perform(opened, left, plan, warm, kept)
        finally:
            if journal is not None:
                journal.close()
        self.watch.end(name)
        about = {
            **purpose,
            "began": began,
            "finished": manifest.now(),
            "build_seconds": round(self.workshop.seconds(system), 6),
            "cold_ms": None if performed.cold is None else performed.cold.total / 1e6,
            "evidence": performed.evidence,
            "harness_microseconds": round(overhead(plan.k), 2),
            "sessions": 1 if journal is None else len(journal.sessions),
            "notes": _notes(name, answers, performed.evidence, 1 if journal is None else len(journal.sessions)),
            **manifest.circumstances(),
        }
        done = archive.as_run(name, answers, about)
        if journal is not None and self.folder is not None:
            archive.write(done, self.folder)
            journal.path.unlink()
        return done


def _notes(name: str, answers: Sequence[Answer], evidence: Mapping[str, Any], sessions: int) -> list[str]:
    failed = [one for one in answers if one.status != "ok"]
    notes = []
    if failed:
        notes.append(
            f"{name}: {len(failed)} of {len(answers)} queries failed and count as empty rankings; "
            f"the first: {failed[0].query}: {failed[0].error}"
        )
    changed = archive.changed_rankings(answers)
    if changed:
        notes.append(f"{name}: {changed} queries got another ranking when they were asked again")
    if evidence.get("index_used") is False:
        notes.append(f"{name}: the database did not use its index, so this is the speed and recall of an exact scan")
    if sessions > 1:
        notes.append(f"{name}: run in {sessions} sessions")
    return notes


def overhead(k: int = 10, n: int = 500, rounds: int = 5) -> float:
    """Microseconds that the harness itself spends on a query: a system that does nothing, asked the same way."""
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
