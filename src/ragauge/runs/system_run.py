"""Run one system of an experiment: reuse finished results, run the remaining queries, write the folder."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ragauge.compute.observation import Observation
from ragauge.compute.progress import FINISHED, Progress, ProgressCallback, no_progress, scoped
from ragauge.core.components import is_reproducible
from ragauge.core.documents import Hit
from ragauge.core.errors import BadInput, describe_failures
from ragauge.core.hashes import hash_judgments
from ragauge.core.protocols import Retriever
from ragauge.core.records import Dataset, Run
from ragauge.core.run_dates import RunDate
from ragauge.datasets.queries import self_documents
from ragauge.files.serialization import to_json_data, write_record
from ragauge.files.workspace import hold_folder, temporary_folder
from ragauge.runs import folder as runs_folder
from ragauge.runs.execution import (
    QueryTask,
    RunSettings,
    SystemFacts,
    build_warm_up_queries,
    run_queries,
    run_system,
)
from ragauge.runs.interruption import remove_journal_when_done
from ragauge.runs.journal import Journal, WorkKey
from ragauge.runs.results import QueryResult, iterate_parts
from ragauge.runs.returned_ids import ID_HINT, ReturnedIds
from ragauge.systems.builder import SystemBuilder
from ragauge.systems.graph_links import UNKNOWN_IDS


class _QueryReports:
    """Reports on the queries of one system, with a summary at the end."""

    def __init__(self, progress: ProgressCallback, system: str, done: int, total: int) -> None:
        self._progress, self._system, self._done, self._total = progress, system, done, total
        self._before, self._began, self._first = done, time.perf_counter(), 0.0
        if done < total:
            progress(Progress("building", done, total, system))

    def count_query(self) -> None:
        """Report that a query has its result."""
        if self._done == self._before:
            self._first = time.perf_counter()
        self._done += 1
        self._progress(Progress("running queries", self._done, self._total, self._system))

    def finish(self) -> None:
        """Report the time of building and of the queries, if any was run."""
        queries = self._done - self._before
        if queries:
            built, ran = self._first - self._began, time.perf_counter() - self._first
            summary = f"built in {built:.1f} s, {queries} queries in {ran:.1f} s"
            self._progress(Progress(summary, self._done, self._total, self._system, FINISHED))


@dataclass(frozen=True, eq=False)
class SystemRun:
    """One system, the queries to run on it, and the folder of its results."""

    name: str
    system: Any
    dataset: Dataset
    plan: RunSettings
    fingerprint: Mapping[str, Any]
    """Fingerprint of the dataset; computed once for all systems, because it reads every document."""
    builder: SystemBuilder
    folder: Path | None
    progress: ProgressCallback = no_progress
    n_skipped_queries: int = 0
    """Number of judged queries of the dataset that are not run."""

    @cached_property
    def key(self) -> WorkKey:
        """Dataset, settings and system; a run is resumed or reused if they are equal."""
        return WorkKey(
            {"dataset": dict(self.fingerprint), "plan": asdict(self.plan)},
            {"system": {"name": self.name, **self.builder.identity(self.system)}},
        )

    @cached_property
    def _judgment_entries(self) -> dict[str, Any]:
        """Entries of the manifest that depend on the judgments."""
        return {
            "judgments_hash": hash_judgments(self.dataset.judgments),
            "judged_not_asked": self.n_skipped_queries,
        }

    @cached_property
    def queries_in_corpus(self) -> frozenset[str]:
        """Queries that are documents of the corpus; each is removed from its own ranking."""
        return self_documents(self.dataset, self.dataset.queries)

    def complete(self, *, fresh: bool, reuse: bool = False) -> Run:
        """Return the run: reused from the folder, resumed, or made now.

        A finished run is reused if `reuse` is set, if the command that made it was interrupted later, or if its
        description identifies the system. Any other system may have changed and is run again.
        """
        if self.folder is None:
            return self._run_queries(None)
        with hold_folder(self.folder):
            return self._finish_run(self.folder, fresh=fresh, reuse=reuse)

    def _finish_run(self, folder: Path, *, fresh: bool, reuse: bool) -> Run:
        """Return the run of a folder, which no other process works on."""
        path = folder / runs_folder.JOURNAL_FILE
        if fresh:
            runs_folder.remove_run_files(folder)
            path.unlink(missing_ok=True)
        carried: list[QueryResult] = []
        notes: list[str] = []
        run_date = ""
        if runs_folder.is_complete(folder):
            saved = runs_folder.read_run_folder(folder)
            changes = self.key.check(saved.manifest, folder, "the run")
            reusable = reuse or path.exists() or self.builder.is_reproducible(self.system)
            carried = runs_folder.find_successful_results(saved) if reusable and not changes else []
            missing = len(self.dataset.queries) * self.plan.repeats - len(carried)
            if carried and not missing:
                return self._reuse_run(saved)
            run_date = _run_date(saved) if carried else ""
            notes = [self._describe_rerun(saved, changes, missing if reusable else 0)]
            path.unlink(missing_ok=True)
        journal = Journal(path, self.key, carried)
        # Only now: the results that the journal takes over must be on disk before their files are removed.
        runs_folder.remove_run_files(folder)
        if journal.replaced:
            notes = [f"changed since the interrupted run ({journal.replaced}), so it was run from the start"]
        if journal.corrupt:
            lines = ", ".join(map(str, journal.corrupt[:3])) + ", …" * (len(journal.corrupt) > 3)
            notes.append(f"corrupt lines in {path.name} ({lines}); their queries were run again")
        try:
            run = self._run_queries(journal, run_date)
        except BaseException:
            if not journal.results:  # Nothing to resume, e.g. because the system could not be built.
                path.unlink(missing_ok=True)
            raise
        finally:
            journal.close()
        runs_folder.write_run_folder(run, folder)
        remove_journal_when_done(path)
        return _with_notes(run, before=notes)

    def _describe_rerun(self, saved: Run, changes: str, missing: int) -> str:
        """Describe why a finished run was not reused.

        `missing` is the number of queries run again.
        """
        if changes:
            return f"changed since the last run ({changes}), so it was run again"
        if not missing:
            return f"run again; the results of {_run_date(saved)} were replaced (add --reuse to reuse finished results)"
        unsaved = saved.repeats is None and self.plan.repeats > 1
        return f"{missing} queries {'whose ranking was not saved' if unsaved else 'that had failed'} were run again"

    def _reuse_run(self, saved: Run) -> Run:
        """Return a finished run as it is, marked as reused."""
        note = f"reused; made {_run_date(saved)} (run it again with --fresh)"
        about = {
            **saved.manifest,
            "origin": runs_folder.dataset_origin(self.dataset),
            **self._judgment_entries,
            "reused": True,
        }
        if self.folder is not None:
            if about != saved.manifest:
                write_record(about, self.folder / runs_folder.MANIFEST_FILE)
            remove_journal_when_done(self.folder / runs_folder.JOURNAL_FILE)
        return _with_notes(replace(saved, name=self.name, manifest=about), after=[note])

    def _run_queries(self, journal: Journal | None, run_date: str = "") -> Run:
        """Run the queries without a result.

        `run_date` is the date of results from a finished run.
        """
        began = runs_folder.utc_now()
        results: list[QueryResult] = [] if journal is None else journal.results
        keep = results.append if journal is None else journal.append
        answered = {(result.query, result.repeat) for result in results}
        jobs = [
            QueryTask(query, text, repeat)
            for repeat in range(self.plan.repeats)
            for query, text in self.dataset.queries.items()
            if (query, repeat) not in answered
        ]
        total = len(self.dataset.queries) * self.plan.repeats
        reports = _QueryReports(self.progress, self.name, total - len(jobs), total)
        if journal is not None:
            journal.begin_session(
                {"began": began, "left": len(jobs), "made": run_date or began, "reused": bool(run_date)}
            )

        def keep_result(result: QueryResult) -> None:
            keep(self._without_own_document(result))
            reports.count_query()

        def open_system() -> AbstractAsyncContextManager[Retriever]:
            return self.builder.open(self.system, scoped(self.progress, subject=self.name))

        # Request one more document if queries are documents, because one may be removed.
        plan = replace(self.plan, k=self.plan.k + bool(self.queries_in_corpus))
        warm = build_warm_up_queries(self.dataset.documents, self.dataset.queries, plan.warmup)
        observation = Observation()
        performed = run_system(open_system, jobs, plan, warm, keep_result, observation.observe)
        fresh = [result for result in results if (result.query, result.repeat) not in answered]
        reports.finish()
        returned = ReturnedIds.count(results, self.dataset.documents, self.dataset.judgments.nested)
        if returned.none_known:
            results.clear()  # Removes the journal, so that the command runs all queries again.
            raise BadInput(returned.describe(), hint=ID_HINT)
        sessions = 1 if journal is None else len(journal.sessions)
        cached = self.builder.is_cached(self.system)
        first: Mapping[str, Any] = {} if journal is None else journal.sessions[0]
        about = {
            **self.key.parts,
            "origin": runs_folder.dataset_origin(self.dataset),
            **self._judgment_entries,
            "made": str(first.get("made") or began),
            "reused": bool(first.get("reused")),
            "began": began,
            "finished": runs_folder.utc_now(),
            "build_seconds": round(self.builder.build_seconds(self.system), 6) if jobs and not cached else None,
            **({"build_cached": True} if cached else {}),
            "cold_ms": performed.cold.total / 1e6 if performed.cold and performed.cold.status == "ok" else None,
            "evidence": performed.evidence,
            **({"unknown_ids": {"unknown": returned.unknown, "returned": returned.total}} if returned.unknown else {}),
            "threads": dict(performed.threads),
            "clock": to_json_data(
                observation.assess(_trial_latencies(fresh), in_process=self._is_in_process(performed))
            ),
            "harness_microseconds": _try_measure_overhead(min(self.plan.k, 100)),
            "sessions": sessions,
            "notes": self._run_notes(results, returned, performed, sessions),
            **runs_folder.provenance(),
        }
        return runs_folder.build_run(self.name, results, about)

    def _is_in_process(self, performed: SystemFacts) -> bool:
        """Return whether a system works in this process only, without a server or workers."""
        if self.plan.workers > 1 or self.plan.timeout is not None:
            return False
        servers = any("server" in part for part in iterate_parts(performed.evidence))
        return not servers and is_reproducible("retrievers", self.system)

    def _without_own_document(self, result: QueryResult) -> QueryResult:
        while result.query in self.queries_in_corpus and result.query in result.docs:
            position = result.docs.index(result.query)
            del result.docs[position], result.scores[position]
        del result.docs[self.plan.k :], result.scores[self.plan.k :]
        return result

    def _run_notes(
        self, results: Sequence[QueryResult], returned: ReturnedIds, performed: SystemFacts, sessions: int
    ) -> list[str]:
        first = [result for result in results if result.repeat == 0]
        failed = [result for result in first if result.status != "ok"]
        later = sum(result.status != "ok" for result in results) - len(failed)
        empty = sum(result.status == "ok" and not result.docs for result in first)
        restarts = sum(part.get("server_restarts", 0) for part in iterate_parts(performed.evidence))
        changed = runs_folder.count_changed_rankings(results)
        notes: list[tuple[Any, str]] = [
            (failed, describe_failures({result.query: result.error for result in failed}, len(first))),
            (later, f"{later} queries failed in a later trial; their latencies are excluded"),
            (empty, f"{empty} of {len(first)} queries returned no documents"),
            (returned.unknown, returned.describe()),
            (changed, f"{changed} queries have different rankings in different trials"),
            (
                performed.evidence.get("index_used") is False,
                "the database did not use its index, so this is the speed and recall of an exact scan",
            ),
            (
                any(
                    part.get("build_seeded") is False and part.get("index_used")
                    for part in iterate_parts(performed.evidence)
                ),
                "the index is built with random numbers that cannot be seeded, so that scores differ slightly between "
                "builds; index=none is exact",
            ),
            (sessions > 1, f"run in {sessions} sessions"),
            (
                restarts,
                f"the server died during the run and was restarted ({restarts} x); the queries were run again",
            ),
            *((True, text) for text in _graph_notes(performed.evidence)),
            *((True, text) for text in self._depth_notes(first, performed.evidence)),
            (
                self.plan.repeats == 1
                and any("seed" in part and "steps" in part for part in iterate_parts(performed.evidence)),
                "its results are random; measure their variation with --repeats 5",
            ),
        ]
        return [text for happened, text in notes if happened]

    def _depth_notes(self, results: Sequence[QueryResult], evidence: Mapping[str, Any]) -> list[str]:
        """Return notes on too few or too many returned documents, or an own k."""
        k = self.plan.k
        notes = []
        own_k = next((part["own_k"] for part in iterate_parts(evidence) if part.get("own_k") not in (None, k)), None)
        if own_k is not None:
            notes.append(
                f"{k} documents per query were requested instead of its own k of {own_k} (use -k {own_k} to keep it)"
            )
        expected = min(k, len(self.dataset.documents) or k)
        max_returned = max((len(result.docs) for result in results), default=0)
        if 0 < max_returned < expected and not self.builder.is_reproducible(self.system):  # BM25 returns only matches.
            notes.append(
                f"returned at most {max_returned} document{'s' * (max_returned > 1)} per query; {k} were requested"
            )
        more = max((part["most_returned"] for part in iterate_parts(evidence) if "most_returned" in part), default=0)
        if more > k + bool(self.queries_in_corpus):
            notes.append(f"returned up to {more} documents per query; {k} were requested, and the first {k} are scored")
        return notes


def _run_date(run: Run) -> str:
    """Return the date of the results of a run; "an unknown date" if unknown."""
    date = RunDate.find(run.manifest)
    return "an unknown date" if date is None else date.made


def _with_notes(run: Run, *, before: Sequence[str] = (), after: Sequence[str] = ()) -> Run:
    """Add notes on this command to a run.

    They are not saved, because they apply only once.
    """
    return replace(run, manifest={**run.manifest, "notes": [*before, *run.manifest.get("notes", ()), *after]})


def _trial_latencies(results: Sequence[QueryResult]) -> list[list[int]]:
    """Return latencies in ns of queries that succeeded in every trial.

    There is one row per trial.
    """
    times: dict[int, dict[str, int]] = {}
    for result in results:
        if result.status == "ok":
            times.setdefault(result.repeat, {})[result.query] = result.total
    rows = list(times.values())
    common = [query for query in rows[0] if all(query in row for row in rows)] if rows else []
    return [[row[query] for query in common] for row in rows] if common else []


def _graph_notes(evidence: Mapping[str, Any]) -> list[str]:
    """Return notes on the graphs of a system: links to unknown documents, or no links."""
    notes: dict[str, None] = {}
    for graph in [part["graph"] for part in iterate_parts(evidence) if isinstance(part.get("graph"), Mapping)]:
        kinds, skipped = graph.get("kinds") or {}, graph.get("skipped") or {}
        linking = [kind for kind, links in kinds.items() if links]
        none = [kind for kind, links in kinds.items() if not links]
        for kind, links in kinds.items():
            if unknown := (skipped.get(kind) or {}).get(UNKNOWN_IDS):
                notes[f"{unknown:,} links of the graph lead to no document, {links:,} do"] = None
        if not linking:
            notes["the graph has no links, so walks cannot leave their start"] = None
        elif none:
            notes[f"{', '.join(none)} adds no links; the graph has only those of {', '.join(linking)}"] = None
    return list(notes)


def _try_measure_overhead(k: int) -> float | None:
    """Return the overhead of the harness in µs; None if it cannot be measured."""
    try:
        return _measured_overhead_us(k)
    except (OSError, BadInput):  # The temporary folder is full or read-only.
        return None


@cache
def _measured_overhead_us(k: int) -> float:
    """Measure the overhead of the harness once per process and k, in µs."""
    return round(measure_overhead_us(k), 2)


def measure_overhead_us(k: int = 10, n: int = 500, rounds: int = 5) -> float:
    """Measure the overhead of the harness per query in µs.

    The system does nothing.
    """
    hits = [Hit(f"document-{i}", 1.0 / (i + 1)) for i in range(k)]

    class Nothing:
        def search(self, query: str, k: int) -> list[Hit]:
            del query, k
            return hits

    jobs = [QueryTask(f"query-{i}", "a question of the usual length", 0) for i in range(n)]
    with temporary_folder("overhead") as folder:
        journal = Journal(folder / "journal.jsonl", WorkKey())
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            run_queries(Nothing(), jobs, RunSettings(k=k), journal.append)
            seconds.append(time.perf_counter() - began)
        journal.close()
    return statistics.median(seconds) / n * 1e6
