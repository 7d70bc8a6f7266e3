"""Latency of single queries in every store, and the memory of an embedder.

Through the first store that opens, a query is embedded and searched in one go, and the total covers both. The other
stores search with the same vectors. There the total of a query is its embedding time plus the retrieval time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.compute.observation import Observation
from ragauge.compute.progress import Progress, ProgressCallback
from ragauge.compute.thread_limits import limit_threads
from ragauge.compute.workers import WorkerLimits, WorkerTimeout, call_worker
from ragauge.core.components import build_component, load_factory
from ragauge.core.errors import BackendFailed, MissingExtra, RagaugeError, UnknownName
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import Embedder, FullStore, Vectors
from ragauge.core.specs import Spec, parse_spec, redact_spec
from ragauge.core.stages import StageTimer, stage
from ragauge.core.summaries import Latency
from ragauge.embedder_study.results import EmbeddingFailure
from ragauge.embedder_study.scoring import usable_rows
from ragauge.embedder_study.text_vectors import embed_by_id, list_failures
from ragauge.embedder_study.worker import Footprint, FootprintTask
from ragauge.files.workspace import temporary_folder
from ragauge.models.embedders.embedding import CheckedEmbedder, raises_for_all, summarise_error
from ragauge.models.optional_attributes import EmbedderAttributes
from ragauge.stores.store_types import complete_store

StageTimes = dict[str, int]
"""Nanoseconds by stage, including `total`, and the start time `began`."""
PROGRESS_INTERVAL_QUERIES = 20
"""Number of queries between two progress reports."""


@dataclass(eq=False)
class StoreSearchResults:
    store: str
    rankings: dict[str, list[str]] = field(default_factory=dict)
    times: dict[str, StageTimes] = field(default_factory=dict)
    """Times of each query that was searched by itself."""
    build_seconds: float = float("nan")
    index_used: bool | None = None
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons by query, for queries that have a vector but whose search failed."""
    note: str = ""
    doubts: Sequence[str] = ()
    """Reasons why the times are unreliable."""

    @property
    def stages(self) -> dict[str, Latency]:
        """Latency percentiles of each stage, in ms."""
        return stage_latencies(self.times.values())


@dataclass(frozen=True)
class QueryWorkload:
    """Queries to run on every store, and how to time them."""

    queries: Mapping[str, str]
    k: int
    queries_in_corpus: frozenset[str] = frozenset()
    """Queries that are documents; each is left out of its own ranking."""
    warmup_texts: Sequence[str] = ()
    """Texts for untimed warm-up queries."""
    n_timed: int | None = None
    """Number of queries timed one by one; the others are embedded in batches and not timed. None for all."""
    threads: int = 1
    """Threads of numeric libraries while queries are timed."""
    in_process: bool = False
    """Whether the embedder runs in this process instead of on a server."""

    @property
    def timed_queries(self) -> list[str]:
        """Ids of the queries that are timed one by one, evenly spaced."""
        names = list(self.queries)
        if self.n_timed is None or self.n_timed >= len(names):
            return names
        places = np.linspace(0, len(names) - 1, self.n_timed).astype(int).tolist()
        return [names[at] for at in dict.fromkeys(places)]


@dataclass(frozen=True, eq=False)
class StoreContents:
    """Documents and vectors to add to stores; only documents with a usable vector."""

    ids: Sequence[str]
    vectors: Vectors


@dataclass(frozen=True, eq=False)
class TimedSearchResults:
    """Query vectors and the results of each store."""

    vectors: Vectors
    failed_texts: list[EmbeddingFailure]
    stores: list[StoreSearchResults]
    embedding_times: dict[str, StageTimes]
    """Embedding times by query."""


def run_timed_queries(
    embedder: Embedder,
    questions: QueryWorkload,
    documents: StoreContents,
    stores: Sequence[str],
    progress: ProgressCallback,
) -> TimedSearchResults:
    """Run the queries on every store.

    A store that cannot be opened or filled has the reason in its note, and the others are still measured.
    """
    runner = _QueryRunner(embedder, questions, progress)
    all_results: list[StoreSearchResults] = []
    for spec in stores:
        results = StoreSearchResults(
            _store_label(spec, [store_search_results.store for store_search_results in all_results])
        )
        all_results.append(results)
        progress(Progress(f"filling {results.store}"))
        store = _fill_store(spec, results, documents)
        if store is None:
            continue
        try:
            if runner.done:
                runner.again(store, results, documents)
            else:
                runner.run_queries(store, results)
            _record_index_use(store, results, runner)
        finally:
            store.close()
    if not runner.done:
        runner.run_queries(None, StoreSearchResults(""))
    return TimedSearchResults(runner.vectors, runner.failed_texts, all_results, runner.alone)


def stage_latencies(several: Iterable[StageTimes]) -> dict[str, Latency]:
    """Compute the latency percentiles of each stage over queries, in ms."""
    rows = list(several)
    names = [name for name in ("embed", "retrieve", "total") if any(name in row for row in rows)]
    return {name: Latency.of(np.array([row[name] for row in rows if name in row], np.float64) / 1e6) for name in names}


def _store_label(spec: str, used_labels: Sequence[str]) -> str:
    """Return the store's description without secrets, numbered if it is taken.

    >>> _store_label("pgvector(dsn='password=abc', index=none)", ["pgvector(dsn=…, index=none)"])
    'pgvector(dsn=…, index=none) 2'
    """
    label = str(redact_spec(parse_spec(spec)))
    numbered_labels = (f"{label} {number}" for number in count(2))
    return (
        label
        if label not in used_labels
        else next(candidate for candidate in numbered_labels if candidate not in used_labels)
    )


def _fill_store(spec: str, results: StoreSearchResults, documents: StoreContents) -> FullStore | None:
    """Open a store, add all vectors and build its index.

    None if that fails, with the reason in the note.
    """
    store: FullStore | None = None
    try:
        store = complete_store(build_component("stores", spec))
        began = time.perf_counter()
        store.add(documents.ids, documents.vectors)
        store.build()  # otherwise the first query would include the index build
        results.build_seconds = time.perf_counter() - began
    except UnknownName:
        raise
    except Exception as error:  # the other stores may still work
        hint = f" ({error.hint})" if isinstance(error, MissingExtra) else ""
        results.note = f"{summarise_error(error)}{hint}"
        if store is not None:
            with suppress(Exception):
                store.close()
        return None
    return store


def _record_index_use(store: FullStore, results: StoreSearchResults, runner: _QueryRunner) -> None:
    """Record whether searches used an index, and note failed queries.

    Not every store can report index use.
    """
    usable = np.flatnonzero(usable_rows(runner.vectors))
    if len(usable) and store.describe().get("index") != "none":
        try:
            results.index_used = store.index_used(runner.vectors[usable[0]], runner.k)
        except Exception as error:
            results.note = f"index use is unknown: {summarise_error(error)}"
    if results.failed:
        query, reason = next(iter(results.failed.items()))
        results.note = f"{len(results.failed)} queries failed and count as misses; the first, {query}: {reason}"


class _QueryRunner:
    """Queries run through an embedder and then a store."""

    def __init__(self, embedder: Embedder, questions: QueryWorkload, progress: ProgressCallback) -> None:
        self._embedder = CheckedEmbedder(embedder)
        self._questions = questions
        self._progress = progress
        self._rows: dict[str, Vectors] = {}
        self._failed: dict[str, str] = {}
        self.alone: dict[str, StageTimes] = {}
        self.failed_texts: list[EmbeddingFailure] = []
        self.vectors: Vectors = np.empty((0, 0), np.float32)
        self.done = False
        self.k = questions.k + bool(questions.queries_in_corpus)

    def run_queries(self, store: FullStore | None, results: StoreSearchResults) -> None:
        """Embed each query and search for it in the store."""
        singly = self._questions.timed_queries
        with limit_threads(self._questions.threads) as limit:
            self._warm_up(store)
            limit.apply()  # also limit libraries that the first queries loaded
            observation = Observation()
            with observation.observe():
                for number, query in enumerate(singly):
                    if number % PROGRESS_INTERVAL_QUERIES == 0:
                        self._progress(Progress("running single queries", number, len(singly)))
                    self._run_query(query, store, results)
        self._assess_timings(observation, store, results)
        if self._failed and not self._rows:
            why = next(iter(self._failed.values()))
            raise BackendFailed(f"the embedder `{self._embedder.name}` failed on every query: {why}")
        self._embed_untimed()
        self._collect_vectors()
        if store is not None:
            self._search_untimed(
                store, results, [query for query in self._questions.queries if query not in self.alone]
            )
        self.done = True

    def again(self, store: FullStore, results: StoreSearchResults, documents: StoreContents) -> None:
        """Run the queries on another store with the vectors already computed."""
        observation = Observation()
        with limit_threads(self._questions.threads) as limit:
            for row in documents.vectors[: len(self._questions.warmup_texts)]:
                with suppress(Exception):
                    store.search(row[None], self.k)
            limit.apply()
            with observation.observe():
                for number, (query, embed) in enumerate(self.alone.items()):
                    if number % PROGRESS_INTERVAL_QUERIES == 0:
                        self._progress(Progress(f"searching {results.store}", number, len(self.alone)))
                    self._search_again(store, results, query, embed)
        self._assess_timings(observation, store, results)
        self._search_untimed(store, results, [query for query in self._questions.queries if query not in self.alone])

    def _search_again(self, store: FullStore, results: StoreSearchResults, query: str, embed: StageTimes) -> None:
        vector = self._rows[query][None]
        if not usable_rows(vector)[0]:
            results.rankings[query] = []
            return
        with StageTimer() as watch:
            ids = self._search_store(store, vector, query, results)
        if query not in results.failed:
            results.times[query] = {
                "began": watch.began,
                "embed": embed["embed"],
                "retrieve": watch.nanoseconds.get("retrieve", watch.total),
                "total": embed["embed"] + watch.total,
            }
        results.rankings[query] = self._without_self(query, ids)

    def _assess_timings(self, observation: Observation, store: FullStore | None, results: StoreSearchResults) -> None:
        has_server = store is not None and "server" in store.describe()
        in_process = self._questions.in_process and not has_server
        check = observation.assess([[time["total"] for time in results.times.values()]], in_process=in_process)
        results.doubts = () if check is None or not results.times else check.doubts

    def _run_query(self, query: str, store: FullStore | None, results: StoreSearchResults) -> None:
        text = self._questions.queries[query]
        ids: list[str] = []
        with StageTimer() as watch:
            try:
                with stage("embed"):
                    vector = np.asarray(self._embedder.embed([text]), np.float32)
            except Exception as error:  # any other error counts as a failed query
                if raises_for_all(error):
                    raise
                self._failed[query] = summarise_error(error)
                vector = None
            is_usable = vector is not None and bool(usable_rows(vector)[0])
            if is_usable and store is not None:
                ids = self._search_store(store, vector, query, results)
        if vector is not None:
            self._rows[query] = vector[0]
            self.alone[query] = {"began": watch.began, **watch.nanoseconds, "total": watch.total}
        if is_usable and store is not None and query not in results.failed:
            results.times[query] = self.alone[query]
        results.rankings[query] = self._without_self(query, ids)

    def _search_store(self, store: FullStore, vector: Any, query: str, results: StoreSearchResults) -> list[str]:
        try:
            with stage("retrieve"):
                ids, _ = store.search(vector, self.k)
            return [doc for doc in ids[0].tolist() if doc is not None]
        except Exception as error:  # a failed search has no results
            results.failed[query] = summarise_error(error)
            return []

    def _without_self(self, query: str, ids: Sequence[str]) -> list[str]:
        self_id = query if query in self._questions.queries_in_corpus else None
        return [doc for doc in ids if doc != self_id][: self._questions.k]

    def _warm_up(self, store: FullStore | None) -> None:
        for text in self._questions.warmup_texts:
            with suppress(Exception):
                vector = self._embedder.embed([text])
                if store is not None:
                    store.search(vector, self.k)

    def _embed_untimed(self) -> None:
        """Embed the queries that are not timed."""
        untimed = {
            name: text for name, text in self._questions.queries.items() if name not in self._questions.timed_queries
        }
        if untimed:
            self._progress(Progress("embedding the other queries", 0, len(untimed)))
            vectors = embed_by_id(self._embedder, untimed, kind="query")
            self._rows.update(zip(untimed, vectors.vectors, strict=True))
            self._failed.update(
                {
                    failed_text.id: failed_text.error
                    for failed_text in vectors.failed_texts
                    if failed_text.reason == "failed"
                }
            )

    def _collect_vectors(self) -> None:
        """Collect the vectors in query order, and the failures."""
        names = list(self._questions.queries)
        dimension = len(next(iter(self._rows.values())))
        self.vectors = np.full((len(names), dimension), np.nan, np.float32)
        for at, name in enumerate(names):
            if name in self._rows:
                self.vectors[at] = self._rows[name]
        places = {at: self._failed[name] for at, name in enumerate(names) if name in self._failed}
        self.failed_texts = list_failures(names, self.vectors, "query", places)

    def _search_untimed(self, store: FullStore, results: StoreSearchResults, queries: Sequence[str]) -> None:
        """Search for queries that are not timed."""
        for query in queries:
            vector = self._rows.get(query)
            ids: list[str] = []
            if vector is not None and usable_rows(vector[None])[0]:
                ids = self._search_store(store, vector[None], query, results)
            results.rankings[query] = self._without_self(query, ids)


SAMPLE_TEXTS = 32
"""Number of texts embedded in the process."""
LOAD_TIMEOUT_S = 300.0
"""Time limit of the process, in seconds."""

RUNTIME_OPTIONS = ("device", "threads")
"""Options of a trained embedder that are not part of what it learned."""


class ProcessFootprint(NamedTuple):
    """Memory and load time of an embedder in a separate process."""

    memory_bytes: int | None = None
    """Peak memory in bytes, minus the peak before the embedder was opened; None if unknown."""
    load_seconds: float = math.nan
    """Time in seconds until the first text was embedded, imports and lazy loading included."""
    note: str = ""


def measure_footprint(
    description: str, documents: Sequence[str], *, learned: Embedder | None = None, timeout: float = LOAD_TIMEOUT_S
) -> ProcessFootprint:
    """Measure the memory and load time of an embedder, given its description.

    An embedder that has `learned` from the corpus is saved and loaded from there, so that training is not included. If
    it cannot be saved it is trained again, and a note says so.
    """
    spec = parse_spec(description)
    if read_parameters(load_factory("embedders", spec)).is_remote:  # Every call costs money.
        return ProcessFootprint()
    with temporary_folder("memory") as folder:
        keep = EmbedderAttributes(learned).keep
        learns = learned is not None and keep is None
        if keep is not None:
            try:
                keep(Path(folder) / "model")
            except (RagaugeError, OSError) as error:
                return ProcessFootprint(note=f"memory is unknown: {summarise_error(error)}")
            running = {name: value for name, value in spec.options.items() if name in RUNTIME_OPTIONS}
            spec = Spec(spec.name, {**running, "folder": str(Path(folder) / "model")})
        corpus = Path(folder) / "texts.json"
        corpus.write_text(json.dumps(list(documents) if learns else list(documents[:SAMPLE_TEXTS])), encoding="utf-8")
        task = FootprintTask(str(spec), str(corpus), learns, SAMPLE_TEXTS)
        try:
            measured = call_worker("ragauge.embedder_study.worker:run_task", task, Footprint, WorkerLimits(timeout))
        except WorkerTimeout:
            return ProcessFootprint(note=f"memory is unknown: it was not loaded within {timeout:g} s")
        except RagaugeError as error:
            return ProcessFootprint(note=f"memory is unknown: {summarise_error(error)}")
        note = "memory and load time include training again" if learns else ""
        return ProcessFootprint(measured.memory_bytes, measured.load_seconds, note)
