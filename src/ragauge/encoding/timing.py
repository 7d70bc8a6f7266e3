"""Each query by itself: how long embedding it and searching with it take, in every store alike.

Through the first store that opens, a query goes as a user's would: it is embedded and searched for in one go, and the
total is measured around both. The other stores are asked with the vector at hand; there the total of a query is what
its own embedding took, and this retrieval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from ragauge import seams
from ragauge.benches.observation import Observation
from ragauge.encoding.ranking import usable
from ragauge.encoding.vectors import Broken, Watched, embedded, said_by, unranked
from ragauge.errors import BackendFailed, MissingExtra, UnknownName
from ragauge.lineups import Fault
from ragauge.measures.speed import latency
from ragauge.outcomes import Latency
from ragauge.seams import Embedder, Store, Vectors
from ragauge.stages import Stopwatch, stage
from ragauge.systems.building import made
from ragauge.systems.specs import parse, without_secrets
from ragauge.thread_limits import limit_threads

Times = dict[str, int]
"""Nanoseconds by stage, `total` among them, and when it `began`."""
Heard = Callable[[str, int, int], None]
EVERY = 20
"""So many queries pass between two words on how far it is."""


@dataclass(eq=False)
class Asked:
    """What one store answered."""

    store: str
    rankings: dict[str, list[str]] = field(default_factory=dict)
    times: dict[str, Times] = field(default_factory=dict)
    """Of each query that was answered by itself."""
    build_seconds: float = float("nan")
    index_used: bool | None = None
    failed: dict[str, str] = field(default_factory=dict)
    """Queries that have a vector and got no answer, and why."""
    note: str = ""
    doubts: Sequence[str] = ()
    """Reasons why the times are unreliable."""

    @property
    def stages(self) -> dict[str, Latency]:
        """Percentiles of each stage."""
        return stages(self.times.values())


@dataclass(frozen=True)
class Questions:
    """What is asked of every store."""

    queries: Mapping[str, str]
    k: int
    own: frozenset[str] = frozenset()
    """Queries that are documents: each is left out of its own ranking."""
    warm: Sequence[str] = ()
    """Texts to warm up on; none of them is measured."""
    timed: int | None = None
    """How many queries go one by one; the rest is done in batches, and no time of it counts."""
    threads: int = 1
    """Threads that numeric libraries may use while queries are timed."""
    in_process: bool = False
    """Whether the embedder works in this process, instead of waiting for a server."""

    @property
    def singly(self) -> list[str]:
        """The ids of the queries that go one by one, evenly over all."""
        names = list(self.queries)
        if self.timed is None or self.timed >= len(names):
            return names
        places = np.linspace(0, len(names) - 1, self.timed).astype(int).tolist()
        return [names[at] for at in dict.fromkeys(places)]


@dataclass(frozen=True, eq=False)
class Shelved:
    """Documents with their vectors, as stores get them: those only that have a direction."""

    ids: Sequence[str]
    vectors: Vectors


@dataclass(frozen=True, eq=False)
class Answers:
    """The queries' vectors, and what each store made of them."""

    vectors: Vectors
    faults: list[Fault]
    stores: list[Asked]
    alone: dict[str, Times]
    """What embedding took, by query."""


def answers(
    embedder: Embedder, questions: Questions, documents: Shelved, stores: Sequence[str], heard: Heard
) -> Answers:
    """Ask every store; one that cannot be opened or filled says so in its note, and the others go on."""
    live = _Live(embedder, questions, heard)
    found: list[Asked] = []
    for described in stores:
        asked = Asked(_shown(described, [one.store for one in found]))
        found.append(asked)
        heard(f"filling {asked.store}", 0, 1)
        store = _filled(described, asked, documents)
        if store is None:
            continue
        try:
            if live.done:
                live.again(store, asked, documents)
            else:
                live.ask(store, asked)
            _look(store, asked, live)
        finally:
            seams.close(store)
    if not live.done:
        live.ask(None, Asked(""))
    return Answers(live.vectors, live.faults, found, live.alone)


def stages(several: Iterable[Times]) -> dict[str, Latency]:
    """Percentiles of each stage over queries; in milliseconds."""
    rows = list(several)
    names = [name for name in ("embed", "retrieve", "total") if any(name in one for one in rows)]
    return {name: latency(np.array([one[name] for one in rows if name in one], np.float64) / 1e6) for name in names}


def _shown(described: str, taken: Sequence[str]) -> str:
    """What a store is called on the screen and in files: its description without secrets, numbered where it is taken.

    >>> _shown("pgvector(dsn='password=abc', index=none)", ["pgvector(dsn=…, index=none)"])
    'pgvector(dsn=…, index=none) 2'
    """
    shown = str(without_secrets(parse(described)))
    again = (f"{shown} {number}" for number in count(2))
    return shown if shown not in taken else next(one for one in again if one not in taken)


def _filled(described: str, asked: Asked, documents: Shelved) -> Store | None:
    """A store with all vectors in it and its index built; None where that cannot be, and the note says why."""
    store: Store | None = None
    try:
        store = made("stores", described)
        began = time.perf_counter()
        store.add(documents.ids, documents.vectors)
        build = getattr(store, "build", None)
        if callable(build):
            build()  # else the first query would pay for the index
        asked.build_seconds = time.perf_counter() - began
    except UnknownName:
        raise
    except Exception as error:  # whatever an engine says to this, the others may do better
        hint = f" ({error.hint})" if isinstance(error, MissingExtra) else ""
        asked.note = f"{said_by(error)}{hint}"
        if store is not None:
            with suppress(Exception):
                seams.close(store)
        return None
    return store


def _look(store: Store, asked: Asked, live: _Live) -> None:
    """Whether searches walked an index, where the store can tell; and a note on what failed."""
    uses, describe = getattr(store, "index_used", None), getattr(store, "describe", None)
    fit = np.flatnonzero(usable(live.vectors))
    if callable(uses) and len(fit) and (not callable(describe) or describe().get("index") != "none"):
        try:
            asked.index_used = bool(uses(live.vectors[fit[0]], live.k))
        except Exception as error:
            asked.note = f"whether its index was used is not known: {said_by(error)}"
    if asked.failed:
        query, why = next(iter(asked.failed.items()))
        asked.note = f"{len(asked.failed)} queries failed and count as misses; the first, {query}: {why}"


class _Live:
    """Queries on their way through an embedder and a store."""

    def __init__(self, embedder: Embedder, questions: Questions, heard: Heard) -> None:
        self._embedder = Watched(embedder)
        self._questions = questions
        self._heard = heard
        self._rows: dict[str, Vectors] = {}
        self._failed: dict[str, str] = {}
        self.alone: dict[str, Times] = {}
        self.faults: list[Fault] = []
        self.vectors: Vectors = np.empty((0, 0), np.float32)
        self.done = False
        self.k = questions.k + bool(questions.own)

    def ask(self, store: Store | None, asked: Asked) -> None:
        """Every query as it comes: embedded, and searched for."""
        singly = self._questions.singly
        with limit_threads(self._questions.threads) as limit:
            self._warm_up(store)
            limit.apply()  # libraries that the first queries loaded
            observation = Observation()
            with observation.observe():
                for number, query in enumerate(singly):
                    if number % EVERY == 0:
                        self._heard("asking one by one", number, len(singly))
                    self._one(query, store, asked)
        self._assess(observation, store, asked)
        if self._failed and not self._rows:
            why = next(iter(self._failed.values()))
            raise BackendFailed(f"the embedder `{self._embedder.name}` failed on every query: {why}")
        self._rest()
        self._settle()
        if store is not None:
            self._together(store, asked, [query for query in self._questions.queries if query not in self.alone])
        self.done = True

    def again(self, store: Store, asked: Asked, documents: Shelved) -> None:
        """The same queries of another store, by the vectors at hand."""
        observation = Observation()
        with limit_threads(self._questions.threads) as limit:
            for row in documents.vectors[: len(self._questions.warm)]:
                with suppress(Exception):
                    store.search(row[None], self.k)
            limit.apply()
            with observation.observe():
                for number, (query, embed) in enumerate(self.alone.items()):
                    if number % EVERY == 0:
                        self._heard(f"asking {asked.store}", number, len(self.alone))
                    self._search_again(store, asked, query, embed)
        self._assess(observation, store, asked)
        self._together(store, asked, [query for query in self._questions.queries if query not in self.alone])

    def _search_again(self, store: Store, asked: Asked, query: str, embed: Times) -> None:
        vector = self._rows[query][None]
        if not usable(vector)[0]:
            asked.rankings[query] = []
            return
        with Stopwatch() as watch:
            ids = self._searched(store, vector, query, asked)
        if query not in asked.failed:
            asked.times[query] = {
                "began": watch.began,
                "embed": embed["embed"],
                "retrieve": watch.nanoseconds.get("retrieve", watch.total),
                "total": embed["embed"] + watch.total,
            }
        asked.rankings[query] = self._kept(query, ids)

    def _assess(self, observation: Observation, store: Store | None, asked: Asked) -> None:
        describe = getattr(store, "describe", None)
        in_process = self._questions.in_process and not (callable(describe) and "server" in describe())
        found = observation.assess([[one["total"] for one in asked.times.values()]], in_process=in_process)
        asked.doubts = () if found is None or not asked.times else found.doubts

    def _one(self, query: str, store: Store | None, asked: Asked) -> None:
        text = self._questions.queries[query]
        ids: list[str] = []
        with Stopwatch() as watch:
            try:
                with stage("embed"):
                    vector = self._embedder.embed([text])
            except (Broken, MissingExtra):
                raise
            except Exception as error:  # whatever an embedder raises is its answer to this query
                if getattr(error, "final", False):
                    raise
                self._failed[query] = said_by(error)
                vector = None
            fit = vector is not None and bool(usable(vector)[0])
            if fit and store is not None:
                ids = self._searched(store, vector, query, asked)
        if vector is not None:
            self._rows[query] = vector[0]
            self.alone[query] = {"began": watch.began, **watch.nanoseconds, "total": watch.total}
        if fit and store is not None and query not in asked.failed:
            asked.times[query] = self.alone[query]
        asked.rankings[query] = self._kept(query, ids)

    def _searched(self, store: Store, vector: Any, query: str, asked: Asked) -> list[str]:
        try:
            with stage("retrieve"):
                ids, _ = store.search(vector, self.k)
            return [one for one in ids[0].tolist() if one is not None]
        except Exception as error:  # a store that fails on a query has not found anything
            asked.failed[query] = said_by(error)
            return []

    def _kept(self, query: str, ids: Sequence[str]) -> list[str]:
        own = query if query in self._questions.own else None
        return [one for one in ids if one != own][: self._questions.k]

    def _warm_up(self, store: Store | None) -> None:
        for text in self._questions.warm:
            with suppress(Exception):
                vector = self._embedder.embed([text])
                if store is not None:
                    store.search(vector, self.k)

    def _rest(self) -> None:
        """The queries that nobody times."""
        rest = {name: text for name, text in self._questions.queries.items() if name not in self._questions.singly}
        if rest:
            self._heard("embedding the other queries", 0, len(rest))
            found = embedded(self._embedder, rest, what="query")
            self._rows.update(zip(rest, found.vectors, strict=True))
            self._failed.update({one.id: one.error for one in found.faults if one.why == "failed"})

    def _settle(self) -> None:
        """A row for each query, in their order, and why some have none."""
        names = list(self._questions.queries)
        dimension = len(next(iter(self._rows.values())))
        self.vectors = np.full((len(names), dimension), np.nan, np.float32)
        for at, name in enumerate(names):
            if name in self._rows:
                self.vectors[at] = self._rows[name]
        places = {at: self._failed[name] for at, name in enumerate(names) if name in self._failed}
        self.faults = [Fault(names[at], "query", "failed", why) for at, why in places.items()]
        self.faults += unranked(names, self.vectors, "query", known=places)

    def _together(self, store: Store, asked: Asked, queries: Sequence[str]) -> None:
        """Queries that are not timed."""
        for query in queries:
            vector = self._rows.get(query)
            ids: list[str] = []
            if vector is not None and usable(vector[None])[0]:
                ids = self._searched(store, vector[None], query, asked)
            asked.rankings[query] = self._kept(query, ids)
