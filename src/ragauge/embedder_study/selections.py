"""Orders and selections of an embedder study that its text, tables and charts share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragauge.core.summaries import Latency, Mean
from ragauge.embedder_study.results import (
    EmbedderResult,
    EmbedderStudy,
    PerturbationResult,
    StoreResult,
    TokenizerStats,
)

REFERENCE_PRECISION = "float32"
"""Precision at which numbers of dimensions are compared."""
REDUCTION_TITLES = {"pca": "Principal components (PCA)", "first": "First components"}
"""Titles of the reduction methods."""


def sort_embedders(result: EmbedderStudy) -> list[EmbedderResult]:
    """Sort the embedders by the first measure, best first; those without a value last."""
    return sorted(result.embedders, key=lambda item: (math.isnan(value := main_mean(result, item).value), -value))


def vector_embedders(result: EmbedderStudy) -> list[EmbedderResult]:
    """Return the embedders with vectors, best first: neither BM25 nor chance."""
    return [embedder for embedder in sort_embedders(result) if embedder.kind == "embedder"]


def main_mean(result: EmbedderStudy, embedder: EmbedderResult) -> Mean:
    """Return an embedder's mean of the first measure."""
    unknown = Mean(math.nan, 0)
    return embedder.means.get(result.measures[0], unknown) if result.measures else unknown


def store_names(result: EmbedderStudy) -> list[str]:
    """Return the stores that hold vectors; BM25 has its own."""
    return list(dict.fromkeys(store.store for embedder in vector_embedders(result) for store in embedder.stores))


def first_store(embedder: EmbedderResult) -> StoreResult | None:
    """Return the result in the first store, through which queries are timed from text to hits."""
    return embedder.stores[0] if embedder.stores else None


def find_latency(store: StoreResult | None, stage: str) -> Latency | None:
    """Return the latency of a stage in a store; None if it was not timed."""
    return None if store is None else store.stages.get(stage)


def describe_training(embedder: EmbedderResult) -> str:
    """Describe where the weights were trained; empty if unknown."""
    if embedder.trained is None:
        return ""
    if not embedder.trained:
        return "untrained"
    return "elsewhere" if math.isnan(embedder.train_seconds) else "on this corpus"


def is_significant(result: EmbedderStudy, p: float) -> bool:
    """Return whether a corrected p-value is below 1 minus the confidence level."""
    return p < round(1 - result.confidence, 12)


class PerturbationKey(NamedTuple):
    """Name and rate of a perturbation; the rate is -1 if it has none, because NaN is not equal to itself."""

    name: str
    rate: float


def perturbation_key(perturbed: PerturbationResult) -> PerturbationKey:
    return PerturbationKey(perturbed.name, -1.0 if math.isnan(perturbed.rate) else perturbed.rate)


def sort_perturbations(result: EmbedderStudy) -> list[PerturbationKey]:
    """Return the perturbations, largest mean loss first."""
    losses: dict[PerturbationKey, list[float]] = {}
    for embedder in result.embedders:
        for perturbed in embedder.perturbed:
            losses.setdefault(perturbation_key(perturbed), []).append(perturbed.difference.value)
    means = {key: sum(finite) / len(finite) for key, values in losses.items() if (finite := finite_values(values))}
    return sorted(losses, key=lambda key: means.get(key, math.inf))


def perturbation_label(result: EmbedderStudy, key: PerturbationKey) -> str:
    """Return the name of a perturbation, with its rate if there are several."""
    rates = {perturbation.rate for perturbation in sort_perturbations(result) if perturbation.name == key.name}
    return key.name if len(rates) == 1 or key.rate < 0 else f"{key.name} {key.rate:g}"


def finite_values(values: Iterable[float]) -> list[float]:
    """Return the values that are not NaN."""
    return [value for value in values if not math.isnan(value)]


def distinct_tokenizers(result: EmbedderStudy) -> list[TokenizerStats]:
    """Return the tokenizers of the embedders without duplicates."""
    tokenizers = [embedder.tokenizer for embedder in sort_embedders(result) if embedder.tokenizer is not None]
    return list({(tokenizer.tokenizer, tokenizer.limit): tokenizer for tokenizer in tokenizers}.values())


def select_equally_probed(tokenizers: Sequence[TokenizerStats]) -> list[TokenizerStats]:
    """Return the tokenizers with the same probe texts as the first that has any."""
    texts = next(([probe.text for probe in item.probes] for item in tokenizers if item.probes), [])
    return [item for item in tokenizers if texts and [probe.text for probe in item.probes] == texts]


class BitsPerByte(NamedTuple):
    """Bits per byte of a language model or of a compressor."""

    name: str
    bits: float
    model: EmbedderResult | None
    """None for a compressor."""


def sort_bits_per_byte(result: EmbedderStudy) -> list[BitsPerByte]:
    """Return language models and compressors, fewest bits first; empty if there is no language model."""
    models = [
        BitsPerByte(embedder.name, embedder.bits_per_byte, embedder)
        for embedder in result.embedders
        if not math.isnan(embedder.bits_per_byte)
    ]
    compressors = [BitsPerByte(f"{name} (compressor)", bits, None) for name, bits in result.compressors.items()]
    return sorted([*models, *compressors], key=lambda item: item.bits) if models else []


class TradeOffPoint(NamedTuple):
    """Quality of an embedder at a cost."""

    name: str
    cost: float
    mean: Mean
    vectors: str = ""
    """The vectors, such as `full` or `pca 64 float32`; empty for latency."""


def trade_offs_by_bytes(result: EmbedderStudy) -> list[TradeOffPoint]:
    """Return all vectors of all embedders with their size in bytes as cost."""
    main = result.measures[0]
    points = []
    for embedder in vector_embedders(result):
        size = embedder.bytes_per_vector
        if size and main in embedder.means:
            points.append(TradeOffPoint(embedder.name, float(size), embedder.means[main], "full"))
        for item in embedder.compressed:
            if main in item.means and not (item.bytes == size and item.precision == REFERENCE_PRECISION):
                vectors = f"{item.method} {item.dimension} {item.precision}"
                points.append(TradeOffPoint(embedder.name, float(item.bytes), item.means[main], vectors))
    return [point for point in points if not math.isnan(point.mean.value)]


def trade_offs_by_latency(result: EmbedderStudy) -> list[TradeOffPoint]:
    """Return all embedders with their p95 total latency in ms in the first store as cost."""
    main = result.measures[0]
    timed = [
        (embedder, find_latency(first_store(embedder), "total"))
        for embedder in result.embedders
        if main in embedder.means
    ]
    points = [TradeOffPoint(item.name, total.p95, item.means[main]) for item, total in timed if total is not None]
    return [point for point in points if point.cost > 0 and not math.isnan(point.mean.value)]


def pareto_frontier(points: Sequence[TradeOffPoint]) -> list[TradeOffPoint]:
    """Return the points that no other is better than in cost and quality, cheapest first.

    >>> values = (("a", 1, 0.3), ("b", 2, 0.4), ("c", 3, 0.2))
    >>> cheap, good, bad = (TradeOffPoint(name, cost, Mean(value, 9)) for name, cost, value in values)
    >>> [point.name for point in pareto_frontier([bad, good, cheap])]
    ['a', 'b']
    """
    frontier: list[TradeOffPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.mean.value)):
        if not frontier or point.mean.value > frontier[-1].mean.value:
            frontier.append(point)
    return frontier
