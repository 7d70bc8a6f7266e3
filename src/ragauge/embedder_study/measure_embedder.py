"""Measurement of one embedder, or of BM25, from opening it to its last score."""

from __future__ import annotations

import bz2
import lzma
import math
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, scoped
from ragauge.compute.thread_limits import plan_threads
from ragauge.core.components import is_reproducible
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.records import Scores
from ragauge.core.specs import parse_spec, redact_spec
from ragauge.embedder_study import tokenizer_counts, variations
from ragauge.embedder_study.bm25_baseline import measure_bm25
from ragauge.embedder_study.plan import EmbedderMeasurement, StudyContext, corpus_sizes, perturbation_results
from ragauge.embedder_study.results import (
    CompressionResult,
    CorpusSizeResult,
    EmbedderResult,
    PerturbationResult,
    StoreResult,
    TokenizerStats,
)
from ragauge.embedder_study.scoring import RankingTask, usable_rows
from ragauge.embedder_study.text_vectors import (
    MAX_FAILURES_LISTED,
    TextVectors,
    count_failures,
    embed_by_id,
    measure_speed,
)
from ragauge.embedder_study.timing_and_memory import (
    ProcessFootprint,
    QueryWorkload,
    StoreContents,
    StoreSearchResults,
    TimedSearchResults,
    measure_footprint,
    run_timed_queries,
)
from ragauge.models.embedders import fit, open_embedder
from ragauge.models.optional_attributes import EmbedderAttributes
from ragauge.models.tokenizers import EmbedderTokenizer

PRIMED_XZ_NAME = "xz, primed"
XZ_WINDOW_BYTES = 64 * 2**20
"""Window of xz in bytes; earlier bytes do not help compression."""


class BitsPerByteResult(NamedTuple):
    """Bits per byte of a language model on held-out documents; NaN if it has none."""

    per_byte: float = math.nan
    compressors: Mapping[str, float] = EMPTY_MAPPING
    """Bits per byte of compressors on the same texts, by name; see `compressor_bits_per_byte`."""
    note: str = ""


def bits_per_byte(embedder: Any, texts: Sequence[str]) -> BitsPerByteResult:
    """Compute the bits of all held-out documents over their UTF-8 bytes.

    The result is empty if the embedder is not a language model. A text that its tokens cannot restore has no bits. Such
    a text is left out for the model and for the compressors.
    """
    attributes = EmbedderAttributes(embedder)
    if attributes.bits is None or attributes.held_out is None:
        return BitsPerByteResult()
    are_held_out = attributes.held_out(list(texts))
    held_out = [text for text, is_held_out in zip(texts, are_held_out, strict=True) if is_held_out and text]
    if not held_out:
        return BitsPerByteResult(note="bits per byte are unknown: no document was held out")
    bits = np.asarray(attributes.bits(held_out), np.float64)
    sizes = np.array([len(_to_utf8(text)) for text in held_out], np.float64)
    has_bits = np.isfinite(bits)
    unknown = int((~has_bits).sum())
    note = f"{unknown} of {len(held_out)} held-out documents have no bits per byte and are left out" if unknown else ""
    if not has_bits.any():
        return BitsPerByteResult(note=note)
    measured = [text for text, is_known in zip(held_out, has_bits.tolist(), strict=True) if is_known]
    learned = [text for text, is_held_out in zip(texts, are_held_out, strict=True) if not is_held_out and text]
    return BitsPerByteResult(
        float(bits[has_bits].sum() / sizes[has_bits].sum()), compressor_bits_per_byte(measured, learned), note
    )


def compressor_bits_per_byte(texts: Sequence[str], learned: Sequence[str] = ()) -> dict[str, float]:
    """Compute the bits per byte of compressors on concatenated texts.

    Compressors run at their highest level. `xz`, `bz2` and `zlib` start without data. `xz, primed` first compresses the
    texts that models `learned` from; only the additional bytes count. A line end separates texts, as an end mark does
    for a model. It costs bits but is not counted as a byte of any text.

    >>> sorted(compressor_bits_per_byte(["the same again, "] * 500)) == ["bz2", "xz", "zlib"]
    True
    >>> max(compressor_bits_per_byte(["the same again, "] * 500).values()) < 0.2
    True
    """
    content = _to_utf8("\n".join(texts))
    size = sum(len(_to_utf8(text)) for text in texts)
    compressed_sizes = {
        "xz": len(_compress_xz(content)),
        "bz2": len(bz2.compress(content, 9)),
        "zlib": len(zlib.compress(content, 9)),
    }
    if learned:
        before = _to_utf8("\n".join([*learned, ""]))[-XZ_WINDOW_BYTES:]
        compressed_sizes = {
            PRIMED_XZ_NAME: len(_compress_xz(before + content)) - len(_compress_xz(before)),
            **compressed_sizes,
        }
    return {name: 8 * bits / size for name, bits in compressed_sizes.items()} if size else {}


def _compress_xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def _to_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


CHANCE_NAME = "chance"
FULL_PRECISION = "float32"
"""Precision of vectors that are not compressed."""


def measure_embedder(name: str, spec: Any, context: StudyContext) -> EmbedderMeasurement:
    """Measure `bm25` or an embedder, given as a description or an object."""
    if isinstance(spec, str) and parse_spec(spec).name == "bm25":
        return measure_bm25(name, spec, context)
    return _EmbedderMeasurer(name, spec, context).run()


class _EmbedderMeasurer:
    """Measurement of one embedder in steps, with the time of each step."""

    def __init__(self, name: str, spec: Any, context: StudyContext) -> None:
        self._name, self._spec, self._context = name, spec, context
        self._is_spec = isinstance(spec, str)
        self._is_chance_baseline = self._is_spec and parse_spec(spec).name == CHANCE_NAME
        self._seconds: dict[str, float] = {}
        self._notes: list[str] = []

    def run(self) -> EmbedderMeasurement:
        context, settings, name = self._context, self._context.settings, self._name
        texts = list(context.texts.values())
        with self._timed_step("opening"):
            with plan_threads(settings.threads):
                raw = open_embedder(self._spec)
            began = time.perf_counter()
            learns = EmbedderAttributes(raw).fitted is not None
            embedder = fit(raw, texts, self._step_progress("learning from the documents")) if learns else raw
            fit_seconds = time.perf_counter() - began if learns else math.nan
        documents = self._embed_documents(embedder)
        is_usable = usable_rows(documents.vectors)
        stores = (list(settings.stores)[:1] if self._is_chance_baseline else settings.stores) if is_usable.any() else ()
        with self._timed_step("running queries"):
            query_results = self._run_queries(embedder, documents.vectors, is_usable, stores)
        failures = [*documents.failed_texts, *query_results.failed_texts]
        scores = context.task.scores(query_results.vectors, documents.vectors, name=name)
        ranking = self._exact_ranking(query_results.vectors, documents.vectors)
        store_results = self._store_results(query_results, ranking, documents.vectors)
        with self._timed_step("reducing dimensions and corpus size"):
            compressed = self._compression_results(query_results.vectors, documents.vectors)
            by_corpus_size = self._corpus_size_results(query_results.vectors, documents.vectors)
        perturbed = self._perturbation_results(embedder, scores, query_results.vectors, documents.vectors)
        with self._timed_step("tokens"):
            truncated, limit = self._truncated_share(embedder, texts)
            tokenizer_stats = self._tokenizer_stats(embedder, texts, limit)
            bits_per_byte_result = bits_per_byte(embedder, texts)
        footprint = self._process_footprint(texts, embedder if learns else None)
        speed = measure_speed(embedder, texts, documents)
        self._notes += [note for note in (bits_per_byte_result.note, footprint.note, speed.note) if note]
        dimension = documents.vectors.shape[1] or None
        attributes = EmbedderAttributes(embedder)
        train_seconds = attributes.train_seconds if attributes.train_seconds is not None else fit_seconds
        result = EmbedderResult(
            name=name,
            description=str(redact_spec(parse_spec(self._spec))) if self._is_spec else embedder.name,
            kind=CHANCE_NAME if self._is_chance_baseline else "embedder",
            model=embedder.name,
            trained=attributes.trained,
            dimension=dimension,
            bytes_per_vector=dimension and 4 * dimension,
            parameters=attributes.parameters,
            memory_bytes=footprint.memory_bytes,
            load_seconds=footprint.load_seconds,
            train_seconds=train_seconds,
            documents_per_second=speed.per_second,
            limit=limit,
            truncated=truncated,
            tokenizer=tokenizer_stats,
            bits_per_byte=bits_per_byte_result.per_byte,
            means=context.means([scores])[0],
            stores=store_results,
            compressed=compressed,
            corpus_sizes=by_corpus_size,
            perturbed=perturbed,
            failed_texts=failures[:MAX_FAILURES_LISTED],
            failure_counts=count_failures(failures),
            notes=self._notes,
        )
        times = next((results.times for results in query_results.stores if results.times), {})
        return EmbedderMeasurement(result, ranking, times, bits_per_byte_result.compressors, self._seconds)

    def _step_progress(self, action: str = "") -> ProgressCallback:
        return scoped(self._context.progress, subject=self._name, action=action)

    @contextmanager
    def _timed_step(self, step: str) -> Iterator[None]:
        """Report progress on a step and record its duration in seconds."""
        self._context.progress(Progress(step, subject=self._name))
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[step] = time.perf_counter() - began

    def _embed_documents(self, embedder: Embedder) -> TextVectors:
        # The vectors of a user's object may change while its name stays the same, so they are not cached.
        cache = self._context.cache if self._is_spec else None
        with self._timed_step("embedding documents"):
            return embed_by_id(
                embedder, self._context.texts, cache=cache, progress=self._step_progress("embedding documents")
            )

    def _run_queries(
        self, embedder: Embedder, vectors: Vectors, is_usable: Any, stores: Sequence[str]
    ) -> TimedSearchResults:
        view, settings = self._context.view, self._context.settings
        rows = np.flatnonzero(is_usable).tolist()
        documents = StoreContents([view.documents[row].id for row in rows], vectors[is_usable])
        workload = QueryWorkload(
            view.queries,
            self._context.task.k,
            view.queries_in_corpus,
            self._context.warmup_texts,
            settings.timed,
            settings.threads,
            in_process=self._is_spec and is_reproducible("embedders", self._spec, files_hashed=True),
        )
        return run_timed_queries(embedder, workload, documents, stores, self._step_progress())

    def _exact_ranking(self, vectors: Vectors, documents: Vectors) -> dict[str, list[tuple[str, float]]]:
        task = self._context.task
        positions, cosines = task.rankings(vectors, documents)
        return {
            query: [
                (task.documents[position], cosine)
                for position, cosine in zip(row, row_cosines, strict=True)
                if position >= 0
            ]
            for query, row, row_cosines in zip(task.queries, positions.tolist(), cosines.tolist(), strict=True)
        }

    def _store_results(
        self, query_results: TimedSearchResults, ranking: Mapping[str, Sequence[tuple[str, float]]], documents: Vectors
    ) -> list[StoreResult]:
        task = self._context.task
        with_rankings = [results for results in query_results.stores if results.rankings]
        scored = [task.scored(results.rankings, name=results.store) for results in with_rankings]
        means = dict(zip((results.store for results in with_rankings), self._context.means(scored), strict=True))
        neighbour_recall = _NeighbourRecall(task, query_results.vectors, documents)
        is_single_store = len(self._context.settings.stores) == 1  # with several stores, the table of stores shows this
        if is_single_store and any(results.index_used is False for results in query_results.stores):
            self._notes.append(f"{query_results.stores[0].store} did not use its index: this is an exact scan")
        return [
            StoreResult(
                results.store,
                means.get(results.store, {}),
                results.stages,
                results.build_seconds,
                results.index_used,
                neighbour_recall.share(results, ranking),
                results.note,
                results.doubts,
            )
            for results in query_results.stores
        ]

    def _compression_results(self, vectors: Vectors, documents: Vectors) -> list[CompressionResult]:
        settings = self._context.settings
        if (
            (settings.dimensions is not None and not settings.dimensions)
            or self._is_chance_baseline
            or not usable_rows(documents).any()
        ):
            return []
        task = self._context.task
        evaluate = partial(variations.evaluate_compression, confidence=settings.confidence, seed=settings.seed)
        full = variations.CompressionOptions(settings.dimensions, precisions=[FULL_PRECISION])
        results = evaluate(task, vectors, documents, full, progress=self._step_progress())
        # Other precisions only at full dimensions: at every dimension it would take four times as long.
        lower_precisions = [precision for precision in variations.PRECISIONS if precision != FULL_PRECISION]
        compressed = variations.CompressionOptions([documents.shape[1]], ["first"], lower_precisions)
        return results + evaluate(task, vectors, documents, compressed)

    def _corpus_size_results(self, vectors: Vectors, documents: Vectors) -> list[CorpusSizeResult]:
        settings, sizes = self._context.settings, corpus_sizes(self._context)
        if not sizes or not usable_rows(documents).any():
            return []
        progress = self._step_progress()
        return variations.evaluate_corpus_sizes(
            self._context.task,
            vectors,
            documents,
            sizes,
            settings.seed,
            confidence=settings.confidence,
            progress=progress,
        )

    def _perturbation_results(
        self, embedder: Embedder, clean: Scores, query_vectors: Vectors, documents: Vectors
    ) -> list[PerturbationResult]:
        queries = self._context.view.queries
        # Unchanged queries reuse their vectors.
        vectors_by_text = dict(zip(queries.values(), query_vectors, strict=True))
        clear = {
            query for query, is_usable in zip(queries, usable_rows(query_vectors).tolist(), strict=True) if is_usable
        }
        missed: set[str] = set()

        def answer(texts: Mapping[str, str]) -> Scores:
            new = {text: text for text in texts.values() if text not in vectors_by_text}
            if new:
                vectors_by_text.update(zip(new, embed_by_id(embedder, new, kind="query").vectors, strict=True))
            vectors = np.stack([vectors_by_text[text] for text in texts.values()])
            missed.update(
                query for query, is_usable in zip(texts, usable_rows(vectors).tolist(), strict=True) if not is_usable
            )
            return self._context.task.scores(vectors, documents, name=self._name)

        if self._is_chance_baseline:
            return []
        with self._timed_step("perturbing queries"):
            results = perturbation_results(self._context, self._name, clean, answer)
        if lost := missed & clear:  # queries without a vector before the perturbation are reported already
            self._notes.append(
                f"{len(lost)} of {len(clear)} queries have no vector after some perturbation and count as misses there"
            )
        return results

    def _truncated_share(self, embedder: Embedder, texts: Sequence[str]) -> tuple[float, int | None]:
        """Return the share of documents beyond the token limit, and the limit."""
        attributes = EmbedderAttributes(embedder)
        limit = attributes.limit
        if limit is None:
            return (0.0 if attributes.has_limit else math.nan), None
        if attributes.tokens is None:
            return math.nan, limit
        return float(np.mean(np.asarray(attributes.tokens(list(texts))) > limit)), limit

    def _tokenizer_stats(self, embedder: Embedder, texts: Sequence[str], limit: int | None) -> TokenizerStats | None:
        if not self._context.settings.tokens or EmbedderAttributes(embedder).tokenizer is None:
            return None
        try:
            return tokenizer_counts.count_tokens(EmbedderTokenizer(embedder), texts, token_limit=limit)
        except BackendFailed as error:
            self._notes.append(error.message)
            return None

    def _process_footprint(self, texts: Sequence[str], learned: Embedder | None) -> ProcessFootprint:
        if not self._context.settings.memory or not self._is_spec:
            return ProcessFootprint()
        with self._timed_step("measuring memory"):
            return measure_footprint(self._spec, texts, learned=learned)


class _NeighbourRecall:
    """Recall of a store against the exact nearest neighbours."""

    K = 10
    COSINE_TOLERANCE = 1e-5
    """Tolerance for the rounding of a cosine."""

    def __init__(self, task: RankingTask, queries: Vectors, documents: Vectors) -> None:
        self._rows = {name: row for row, name in enumerate(task.documents)}
        self._query_vectors = dict(zip(task.queries, variations.normalise_vectors(queries), strict=True))
        self._documents = variations.normalise_vectors(documents)

    def share(self, results: StoreSearchResults, ranking: Mapping[str, Sequence[tuple[str, float]]]) -> float:
        """Return the share of the ten exact neighbours found.

        Documents as near as the tenth count as found.
        """
        shares = []
        for query, true in ranking.items():
            nearest = true[: self.K]
            if not nearest or query not in results.rankings:
                continue
            rows = [self._rows[doc] for doc in results.rankings[query][: self.K]]
            cosines = self._documents[rows] @ self._query_vectors[query] if rows else np.empty(0)
            shares.append(min(1.0, float((cosines >= nearest[-1][1] - self.COSINE_TOLERANCE).sum()) / len(nearest)))
        return float(np.mean(shares)) if shares else math.nan
