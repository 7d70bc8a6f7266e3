"""BM25 as the baseline of an embedder study: built, timed and scored like an embedder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ragauge.compute.observation import Observation
from ragauge.compute.progress import Progress
from ragauge.compute.thread_limits import limit_threads
from ragauge.core.documents import Document, Hit
from ragauge.core.records import Scores
from ragauge.core.specs import parse_spec
from ragauge.core.stages import StageTimer
from ragauge.embedder_study import variations
from ragauge.embedder_study.plan import EmbedderMeasurement, StudyContext, corpus_sizes, perturbation_results
from ragauge.embedder_study.results import CorpusSizeResult, EmbedderResult, EmbeddingFailure, StoreResult
from ragauge.embedder_study.text_vectors import MAX_FAILURES_LISTED, count_failures
from ragauge.embedder_study.timing_and_memory import StageTimes, stage_latencies
from ragauge.models.embedders.embedding import summarise_error
from ragauge.systems.bm25 import BM25
from ragauge.systems.builder import SystemBuilder

ScoredRankings = dict[str, list[tuple[str, float]]]
"""Documents found for each query, best first, with their scores."""


def measure_bm25(name: str, spec: str, context: StudyContext) -> EmbedderMeasurement:
    """Measure BM25; the whole latency of a query counts as retrieval."""
    parsed = parse_spec(spec)
    context.progress(Progress("indexing", subject=name))
    began = time.perf_counter()
    index = _build_bm25(spec, context.view.documents)
    seconds = {"indexing": time.perf_counter() - began}
    began = time.perf_counter()
    ranking, times, failures, doubts = _time_bm25(name, index, context)
    seconds["running queries"] = time.perf_counter() - began
    scores = _score_ranking(context, ranking, name)
    means = context.means([scores])[0]

    def answer(texts: Mapping[str, str]) -> Scores:
        return _score_ranking(context, _search_bm25(index, texts, context), name)

    began = time.perf_counter()
    perturbed = perturbation_results(context, name, scores, answer)
    seconds["perturbing queries"] = time.perf_counter() - began
    result = EmbedderResult(
        name=name,
        description=spec,
        kind="lexical",
        model=str(parsed),
        means=means,
        stores=[
            StoreResult("bm25", means, stage_latencies(times.values()), seconds["indexing"], unreliable_times=doubts)
        ],
        corpus_sizes=_bm25_corpus_size_results(spec, context, name),
        perturbed=perturbed,
        truncated=0.0,
        failed_texts=failures[:MAX_FAILURES_LISTED],
        failure_counts=count_failures(failures),
    )
    return EmbedderMeasurement(result, ranking, times, seconds=seconds)


def _build_bm25(spec: str, documents: Sequence[Document]) -> BM25:
    SystemBuilder(documents).check(spec)  # raises a clear error for unknown options
    return BM25(documents, **parse_spec(spec).options)


def _time_bm25(
    name: str, index: BM25, context: StudyContext
) -> tuple[ScoredRankings, dict[str, StageTimes], list[EmbeddingFailure], Sequence[str]]:
    """Time each query by itself.

    The last item says why the times are unreliable, if they are.
    """
    depth, self_queries = context.task.k + bool(context.view.queries_in_corpus), context.view.queries_in_corpus
    ranking: ScoredRankings = {}
    times: dict[str, StageTimes] = {}
    failures: list[EmbeddingFailure] = []
    observation = Observation()

    def time_query(query: str, text: str) -> None:
        hits: Sequence[Hit] = ()
        with StageTimer() as watch:
            try:
                hits = index.search(text, depth)
            except Exception as error:  # any error counts as a failed query
                failures.append(EmbeddingFailure(query, "query", "failed", summarise_error(error)))
        ranking[query] = _without_self(query, hits, self_queries, context.task.k)
        if not failures or failures[-1].id != query:
            times[query] = {"began": watch.began, **watch.nanoseconds, "total": watch.total}

    context.progress(Progress("running single queries", 0, len(context.view.queries), name))
    with limit_threads(context.settings.threads):
        for text in context.warmup_texts:
            with suppress(Exception):
                index.search(text, depth)
        with observation.observe():
            for query, text in context.view.queries.items():
                time_query(query, text)
    check = observation.assess([[time["total"] for time in times.values()]], in_process=True) if times else None
    return ranking, times, failures, () if check is None else check.doubts


def _search_bm25(index: BM25, texts: Mapping[str, str], context: StudyContext) -> ScoredRankings:
    depth, self_queries = context.task.k + bool(context.view.queries_in_corpus), context.view.queries_in_corpus
    rankings: ScoredRankings = {}
    for query, text in texts.items():
        rankings[query] = []
        with suppress(Exception):  # failures are reported for the unperturbed queries
            rankings[query] = _without_self(query, index.search(text, depth), self_queries, context.task.k)
    return rankings


def _without_self(query: str, hits: Sequence[Hit], self_queries: frozenset[str], k: int) -> list[tuple[str, float]]:
    """Return the first `k` hits.

    A query that is a document is left out of its own ranking.
    """
    return [(hit.id, hit.score) for hit in hits if query not in self_queries or hit.id != query][:k]


def _score_ranking(context: StudyContext, ranking: Mapping[str, Sequence[tuple[str, float]]], name: str) -> Scores:
    return context.task.scored({query: [doc for doc, _ in hits] for query, hits in ranking.items()}, name=name)


def _bm25_corpus_size_results(spec: str, context: StudyContext, name: str) -> list[CorpusSizeResult]:
    """Score corpus samples, each with its own index.

    The rarity of a word depends on the corpus.
    """
    sizes = corpus_sizes(context)
    if not sizes:
        return []
    scores = []
    rows = variations.draw_corpus_samples(context.task, sizes, context.settings.seed)
    for size, chosen in rows.items():
        context.progress(Progress(f"searching {size:,} documents", subject=name))
        part = _build_bm25(spec, [context.view.documents[row] for row in chosen.tolist()])
        scores.append(_score_ranking(context, _search_bm25(part, context.view.queries, context), name))
    return [CorpusSizeResult(size, means) for size, means in zip(rows, context.means(scores), strict=True)]
