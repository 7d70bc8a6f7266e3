"""Measurement of BM25 on the same texts and queries as the embedders."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ragauge.benches.observation import Observation
from ragauge.encoding import growth
from ragauge.encoding.ground import Ground, Measured, shaken_of, sizes_of
from ragauge.encoding.timing import Times, stages
from ragauge.encoding.vectors import FAULTS, counts, said_by
from ragauge.lineups import Entrant, Fault, Grown, Shelf
from ragauge.records import Document, Hit, Scores
from ragauge.stages import Stopwatch
from ragauge.systems.bm25 import BM25
from ragauge.systems.building import Workshop
from ragauge.systems.specs import parse
from ragauge.thread_limits import limit_threads

Ranking = dict[str, list[tuple[str, float]]]
"""Documents found for each query, best first, with their scores."""


def measured_words(name: str, described: str, ground: Ground) -> Measured:
    """Measure BM25; the whole latency of a query counts as retrieval."""
    spec = parse(described)
    ground.heard(f"{name}: indexing", 0, 1)
    began = time.perf_counter()
    index = _index(described, ground.view.documents)
    seconds = {"indexing": time.perf_counter() - began}
    began = time.perf_counter()
    ranking, times, faults, doubts = _timed(name, index, ground)
    seconds["asking"] = time.perf_counter() - began
    scores = _scored(ground, ranking, name)
    means = ground.means([scores])[0]

    def answer(texts: Mapping[str, str]) -> Scores:
        return _scored(ground, _found(index, texts, ground), name)

    began = time.perf_counter()
    shaken = shaken_of(ground, name, scores, answer)
    seconds["perturbing queries"] = time.perf_counter() - began
    entrant = Entrant(
        name=name,
        description=described,
        kind="words",
        model=str(spec),
        means=means,
        shelves=[Shelf("bm25", means, stages(times.values()), seconds["indexing"], unreliable_times=doubts)],
        grown=_grown(described, ground, name),
        shaken=shaken,
        truncated=0.0,
        faults=faults[:FAULTS],
        faulty=counts(faults),
    )
    return Measured(entrant, ranking, times, seconds=seconds)


def _index(described: str, documents: Sequence[Document]) -> BM25:
    Workshop(documents).check(described)  # raises a clear error for unknown options
    return BM25(documents, **parse(described).options)


def _timed(name: str, index: BM25, ground: Ground) -> tuple[Ranking, dict[str, Times], list[Fault], Sequence[str]]:
    """Time each query by itself.

    The last item says why the times are unreliable, if they are.
    """
    depth, own = ground.field.k + bool(ground.view.own), ground.view.own
    ranking: Ranking = {}
    times: dict[str, Times] = {}
    faults: list[Fault] = []
    observation = Observation()

    def ask(query: str, text: str) -> None:
        hits: Sequence[Hit] = ()
        with Stopwatch() as watch:
            try:
                hits = index.search(text, depth)
            except Exception as error:  # any error counts as a failed query
                faults.append(Fault(query, "query", "failed", said_by(error)))
        ranking[query] = _kept(query, hits, own, ground.field.k)
        if not faults or faults[-1].id != query:
            times[query] = {"began": watch.began, **watch.nanoseconds, "total": watch.total}

    ground.heard(f"{name}: asking one by one", 0, len(ground.view.queries))
    with limit_threads(ground.plan.threads):
        for text in ground.warm:
            with suppress(Exception):
                index.search(text, depth)
        with observation.observe():
            for query, text in ground.view.queries.items():
                ask(query, text)
    found = observation.assess([[one["total"] for one in times.values()]], in_process=True) if times else None
    return ranking, times, faults, () if found is None else found.doubts


def _found(index: BM25, texts: Mapping[str, str], ground: Ground) -> Ranking:
    depth, own = ground.field.k + bool(ground.view.own), ground.view.own
    found: Ranking = {}
    for query, text in texts.items():
        found[query] = []
        with suppress(Exception):  # failures are reported for the unperturbed queries
            found[query] = _kept(query, index.search(text, depth), own, ground.field.k)
    return found


def _kept(query: str, hits: Sequence[Hit], own: frozenset[str], k: int) -> list[tuple[str, float]]:
    """Return the first `k` hits.

    A query that is a document is left out of its own ranking.
    """
    return [(hit.id, hit.score) for hit in hits if query not in own or hit.id != query][:k]


def _scored(ground: Ground, ranking: Mapping[str, Sequence[tuple[str, float]]], name: str) -> Scores:
    return ground.field.scored({query: [one for one, _ in found] for query, found in ranking.items()}, name=name)


def _grown(described: str, ground: Ground, name: str) -> list[Grown]:
    """Score corpus samples, each with its own index.

    The rarity of a word depends on the corpus.
    """
    sizes = sizes_of(ground)
    if not sizes:
        return []
    scores = []
    rows = growth.parts(ground.field, sizes, ground.plan.seed)
    for size, chosen in rows.items():
        ground.heard(f"{name}: {size:,} documents", 0, 1)
        part = _index(described, [ground.view.documents[row] for row in chosen.tolist()])
        scores.append(_scored(ground, _found(part, ground.view.queries, ground), name))
    return [Grown(size, means) for size, means in zip(rows, ground.means(scores), strict=True)]
