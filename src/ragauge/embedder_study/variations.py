"""Quality with fewer dimensions or bits, smaller corpora and perturbed queries.

All vectors are first normalised to length 1, since only their direction matters. `pca` rotates them onto the right
singular vectors of the document matrix, largest first. Nothing is centred: a shift changes cosines, while a rotation
does not. With all dimensions the ranking is therefore the embedder's own. `first` takes the first values, as intended
by embedders with Matryoshka training. Both are fitted to the documents, applied to documents and queries, and followed
by normalisation.

A value is stored as `float32`, `float16`, `int8` or `bit`. `int8` has 127 steps up to the largest absolute value of the
dimension among the documents; larger query values are clipped. `bit` is whether the value is above the documents' mean,
ranked by the number of equal bits. Documents and queries are ranked by the stored values. Scales and means are stored
once for all vectors and are not part of a vector's bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.records import Floats, Ints, Scores
from ragauge.core.summaries import Mean
from ragauge.core.text import split_words
from ragauge.datasets.perturbations import DEFAULT_RATE, DocumentFrequencies, Perturbation, find_perturbation, perturb
from ragauge.embedder_study.results import CompressionResult, CorpusSizeResult, MeanDifference, PerturbationResult
from ragauge.embedder_study.scoring import (
    RankingTask,
    all_means_with_intervals,
    build_score_pair,
    to_mean_difference,
    usable_rows,
)
from ragauge.stats.comparisons import ComparisonSettings
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.system_pairs import compare_pairs

CORPUS_SIZES = (750, 1500, 3000, 6000, 12_000, 25_000, 50_000, 100_000)


def draw_corpus_samples(task: RankingTask, sizes: Sequence[int] | None = None, seed: int = 0) -> dict[int, Ints]:
    """Draw nested samples of the corpus.

    Return ascending document rows by sample size. The full corpus is always the last. Every sample has all relevant
    documents, so each query can still find them. The others are drawn with the seed, and a smaller sample is a subset
    of a larger one. `sizes` defaults to the CORPUS_SIZES between the number of relevant documents and the corpus size.
    If none fits, the relevant documents alone and a size halfway are used. BadInput is raised if a given size cannot
    hold the relevant documents.
    """
    n_documents, needed = len(task.documents), len(task.relevant)
    if sizes is None:
        smaller = [size for size in CORPUS_SIZES if needed <= size < n_documents] or [
            max(needed, 1),
            (needed + n_documents) // 2,
        ]
    else:
        smaller = [size for size in sizes if size < n_documents]
        if smaller and min(smaller) < max(needed, 1):
            raise BadInput(
                f"a corpus of {min(smaller)} documents is too small: {needed} documents are relevant to the queries",
                hint=f"use at least {max(needed, 1)} documents, or fewer queries",
            )
    other_rows = np.setdiff1d(np.arange(n_documents), task.relevant)
    shuffled = np.random.default_rng(seed).permutation(other_rows)
    return {
        size: np.sort(np.concatenate([task.relevant, shuffled[: size - needed]]))
        for size in sorted({size for size in (*smaller, n_documents) if size <= n_documents})
    }


def evaluate_corpus_sizes(
    task: RankingTask,
    query_vectors: Any,
    document_vectors: Any,
    sizes: Sequence[int] | None = None,
    seed: int = 0,
    *,
    confidence: float = 0.95,
    progress: ProgressCallback = no_progress,
) -> list[CorpusSizeResult]:
    """Score the queries over each sample of the corpus, smallest first."""
    corpus_samples = draw_corpus_samples(task, sizes, seed)
    scores = []
    for number, (size, rows) in enumerate(corpus_samples.items()):
        scores.append(task.scores(query_vectors, document_vectors, name=f"{size} documents", among=rows))
        progress(Progress("sampling the corpus", number + 1, len(corpus_samples)))
    means = all_means_with_intervals(scores, confidence, seed)
    return [CorpusSizeResult(size, mean) for size, mean in zip(corpus_samples, means, strict=True)]


DEFAULT_PERTURBATIONS = (
    *("keyboard", "swap", "drop", "rare word", "common word"),
    *("upper case", "random case", "accents added", "look alikes", "zero width"),
    *("joined words", "split words", "double spaces", "no punctuation"),
)
"""Perturbations evaluated by default."""
PerturbedQueryScorer = Callable[[Mapping[str, str]], Scores]
"""Function from query texts by id to the scores of their rankings."""


class _PerturbedScores(NamedTuple):
    """Scores of all queries after one perturbation, one row per seed."""

    name: str
    kind: Perturbation
    values: Floats
    changed: float


@dataclass(frozen=True)
class PerturbationOptions:
    """How queries are perturbed, and which measure shows the loss."""

    kinds: Sequence[str] | None = None
    """Names of the perturbations; None for `DEFAULT_PERTURBATIONS`."""
    rate: float = DEFAULT_RATE
    """Probability that a word is changed."""
    seeds: int = 3
    """Number of repetitions of a random perturbation."""
    rarity: DocumentFrequencies | None = None
    context: int | None = None
    """Number of characters kept of a query, also if a perturbation makes it longer."""
    measure: str | None = None
    """Measure of the loss; None for the first."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise BadInput(f"seeds must be at least 1, got {self.seeds}")


def evaluate_perturbations(
    texts: Mapping[str, str],
    clean: Scores,
    answer: PerturbedQueryScorer,
    options: PerturbationOptions = PerturbationOptions(),
    *,
    confidence: float = 0.95,
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> list[PerturbationResult]:
    """Score each perturbation of the queries and its loss.

    `answer` scores the system under test. A query has the mean of its values over all seeds. The paired test and
    the interval are over queries only. Each query draws independently, so that the variance of the draws is part of
    the variance between queries. P-values are corrected over all perturbations that changed a query. The loss is
    NaN if no query changed. An unchanged query keeps its score.
    """
    chosen = dict(find_perturbation(kind) for kind in options.kinds or DEFAULT_PERTURBATIONS)
    column = clean.values[options.measure or clean.measures[0]]
    results = []
    for number, (name, kind) in enumerate(chosen.items()):
        rows, parts = [], []
        for draw in range(seed, seed + (options.seeds if kind.draws else 1)):
            full_texts = perturb(texts, name, rate=options.rate, seed=draw, rarity=options.rarity)
            perturbed = {query: text[: options.context] for query, text in full_texts.items()}
            changed = {query for query, text in texts.items() if perturbed[query] != text}
            parts.append(len(changed) / len(texts) if texts else 0.0)
            rows.append(
                _perturbed_values(answer(perturbed), clean, column, changed, options.measure) if changed else column
            )
        results.append(_PerturbedScores(name, kind, np.stack(rows), float(np.mean(parts))))
        progress(Progress("perturbing queries", number + 1, len(chosen)))
    return _to_perturbation_results(
        results, column, clean.queries, options.rate, ComparisonSettings(confidence=confidence, seed=seed)
    )


def document_frequencies(texts: Iterable[str]) -> dict[str, int]:
    """Count the texts that contain each word.

    >>> document_frequencies(["The box", "the BOX, the lid"])
    {'box': 2, 'lid': 1, 'the': 2}
    """
    counter = Counter(word for text in texts for word in set(split_words(text)))
    return dict(sorted(counter.items()))


def _perturbed_values(scores: Scores, clean: Scores, column: Floats, changed: set[str], measure: str | None) -> Floats:
    """Return the new values of changed queries and the original values of the others."""
    if scores.queries != clean.queries:
        raise BadInput("the scores of perturbed and original queries cover different queries")
    is_changed = np.fromiter((query in changed for query in clean.queries), np.bool_, len(column))
    return np.where(is_changed, scores.values[measure or scores.measures[0]], column)


def _to_perturbation_results(
    perturbations: Sequence[_PerturbedScores],
    clean: Floats,
    queries: Sequence[str],
    rate: float,
    method: ComparisonSettings,
) -> list[PerturbationResult]:
    changed = [item for item in perturbations if item.changed]
    pairs = [build_score_pair("", item.name, [item.values.mean(axis=0)], clean, queries) for item in changed]
    gaps = {row.system: to_mean_difference(row) for row in compare_pairs(pairs, method)} if pairs else {}
    columns = (
        np.column_stack([item.values.mean(axis=0) for item in perturbations])
        if perturbations
        else np.empty((len(clean), 0))
    )
    ends = mean_intervals(columns, method.confidence, rounds=method.rounds, seed=method.seed)
    results = []
    for perturbed, values, low, high in zip(perturbations, columns.T, *ends.tolist(), strict=True):
        finite = values[~np.isnan(values)]
        mean = Mean(float(finite.mean()) if len(finite) else math.nan, len(finite), low, high)
        touched = {"words": rate, "text": 1.0}.get(perturbed.kind.reach, math.nan)
        unknown = MeanDifference(math.nan, math.nan, math.nan, math.nan, math.nan, len(finite))
        results.append(
            PerturbationResult(
                perturbed.name,
                touched,
                perturbed.changed,
                mean,
                gaps.get(perturbed.name, unknown),
                len(perturbed.values),
            )
        )
    return results


VectorMatrix = NDArray[np.float32]
REDUCTION_METHODS = ("pca", "first")
MIN_DIMENSIONS = 8
"""Smallest number of dimensions tried by default; it is then doubled."""
INT8_STEPS = 127


class VectorPrecision(NamedTuple):
    """Precision in which a vector's values are stored."""

    bits: int
    quantise: Callable[[VectorMatrix, VectorMatrix], VectorMatrix]
    """Function from vectors and document vectors (to fit scales) to the values that are ranked."""


@dataclass(frozen=True)
class CompressionOptions:
    """Which sizes of vectors to try."""

    dimensions: Sequence[int] | None = None
    """None for 8, 16, 32 and so on; the full dimension is always tried, and larger ones are left out."""
    methods: Sequence[str] = REDUCTION_METHODS
    precisions: Sequence[str] | None = None
    """None for all."""


def evaluate_compression(
    task: RankingTask,
    query_vectors: Any,
    document_vectors: Any,
    options: CompressionOptions = CompressionOptions(),
    *,
    confidence: float = 0.95,
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> list[CompressionResult]:
    """Score vectors for each reduction method, dimension and precision."""
    queries, documents = normalise_vectors(query_vectors), normalise_vectors(document_vectors)
    full_dimension = documents.shape[1]
    variants = [
        (method, size, precision)
        for method in options.methods
        for size in dimensions_to_try(full_dimension, options.dimensions)
        for precision in options.precisions or PRECISIONS
    ]
    for option_name, names, known in (
        ("reduction method", options.methods, REDUCTION_METHODS),
        ("precision", options.precisions or (), PRECISIONS),
    ):
        for name in names:
            if name not in known:
                raise UnknownName(option_name, name, known)
    reduced_vectors: dict[str, tuple[VectorMatrix, VectorMatrix]] = {"first": (queries, documents)}
    if "pca" in options.methods:
        directions = principal_directions(documents).astype(np.float32)
        reduced_vectors["pca"] = queries @ directions, documents @ directions
    scores: list[Scores] = []
    for number, (reduction, size, kind) in enumerate(variants):
        reduced_queries, reduced_documents = (
            normalise_vectors(matrix[:, :size]) for matrix in reduced_vectors[reduction]
        )
        quantise = PRECISIONS[kind].quantise
        scores.append(
            task.scores(
                quantise(reduced_queries, reduced_documents),
                quantise(reduced_documents, reduced_documents),
                name=f"{reduction} {size} {kind}",
            )
        )
        progress(Progress("compressing vectors", number + 1, len(variants)))
    means = all_means_with_intervals(scores, confidence, seed)
    return [
        CompressionResult(reduction, size, kind, vector_bytes(size, kind), mean)
        for (reduction, size, kind), mean in zip(variants, means, strict=True)
    ]


def dimensions_to_try(full_dimension: int, dimensions: Sequence[int] | None = None) -> list[int]:
    """Return the numbers of dimensions to try, the full dimension last.

    >>> dimensions_to_try(100), dimensions_to_try(100, [50, 200]), dimensions_to_try(6)
    ([8, 16, 32, 64, 100], [50, 100], [6])
    """
    if dimensions is not None and any(dimension < 1 for dimension in dimensions):
        raise BadInput(f"dimensions must be at least 1, got {min(dimensions)}")
    candidates = (
        (MIN_DIMENSIONS << step for step in range(full_dimension.bit_length())) if dimensions is None else dimensions
    )
    return sorted({dimension for dimension in candidates if dimension < full_dimension} | {full_dimension})


def vector_bytes(dimension: int, kind: str) -> int:
    """Return the size of a vector in bytes.

    >>> [vector_bytes(100, kind) for kind in PRECISIONS]
    [400, 200, 100, 13]
    """
    return -(-dimension * PRECISIONS[kind].bits // 8)


def normalise_vectors(vectors: Any) -> VectorMatrix:
    """Normalise the vectors to length 1; a row that is not a vector becomes NaN."""
    with np.errstate(over="ignore"):
        matrix = np.asarray(vectors, np.float32)
    is_usable = usable_rows(matrix)
    out = np.full(matrix.shape, np.nan, np.float32)
    # First divide by the maximum: squares of very small or large values underflow or overflow.
    rows = matrix[is_usable] / np.abs(matrix[is_usable]).max(axis=1, keepdims=True, initial=0)
    out[is_usable] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return out


def principal_directions(documents: NDArray[Any]) -> Floats:
    """Return the principal directions of the documents as columns, largest first.

    They are the right singular vectors of the document matrix, computed in double precision as eigenvectors of its Gram
    matrix. Nothing is centred. Rows with NaN are ignored.
    """
    rows = documents[usable_rows(documents)].astype(np.float64)
    _, vectors = np.linalg.eigh(rows.T @ rows)
    return np.ascontiguousarray(vectors[:, ::-1])


def _to_float16(vectors: VectorMatrix, _: VectorMatrix) -> VectorMatrix:
    return vectors.astype(np.float16).astype(np.float32)


def _to_int8(vectors: VectorMatrix, documents: VectorMatrix) -> VectorMatrix:
    """Quantise to integers from -127 to 127 and return the values that they represent."""
    usable = documents[usable_rows(documents)]
    scale = np.abs(usable).max(axis=0, initial=0) / np.float32(INT8_STEPS)
    steps = np.clip(np.rint(vectors / np.where(scale > 0, scale, 1)), -INT8_STEPS, INT8_STEPS)
    return np.asarray(steps * scale, np.float32)


def _to_bits(vectors: VectorMatrix, documents: VectorMatrix) -> VectorMatrix:
    """Return 1 above the mean and -1 otherwise.

    The cosine is 1 minus twice the share of differing bits.
    """
    usable = documents[usable_rows(documents)]
    middle = usable.mean(axis=0, dtype=np.float64).astype(np.float32) if len(usable) else np.float32(0)
    signs = np.where(vectors > middle, np.float32(1), np.float32(-1))
    return np.where(np.isnan(vectors), vectors, signs)


PRECISIONS: Mapping[str, VectorPrecision] = {
    "float32": VectorPrecision(32, lambda vectors, _: vectors),
    "float16": VectorPrecision(16, _to_float16),
    "int8": VectorPrecision(8, _to_int8),
    "bit": VectorPrecision(1, _to_bits),
}
