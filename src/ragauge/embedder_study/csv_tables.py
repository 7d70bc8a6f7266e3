"""CSV tables of an embedder study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ragauge.core.summaries import Latency, Mean
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy, MeanDifference, TokenizerStats
from ragauge.output.tables import Column, Row, Table, Value

LATENCY_STAGES = ("embed", "retrieve", "total")
LATENCY_STATISTICS = ("mean", "p50", "p95", "p99")
LONG_COLUMNS = ("embedder", "table", "how", "at", "measure", "value", "low", "high", "n")


def build_wide_table(result: EmbedderStudy) -> Table:
    """Build a table with one row per embedder and all its values in columns."""
    stores = list(dict.fromkeys(store.store for embedder in result.embedders for store in embedder.stores))
    rows = [_embedder_values(result, embedder, stores) for embedder in result.embedders]
    names = list(rows[0]) if rows else ["embedder"]
    return Table("embedders", [Column(name) for name in names], [[row[name] for name in names] for row in rows])


def _embedder_values(result: EmbedderStudy, embedder: EmbedderResult, stores: list[str]) -> dict[str, Value]:
    values: dict[str, Value] = {
        "embedder": embedder.name,
        "kind": embedder.kind,
        "description": embedder.description,
        "model": embedder.model,
        "trained": embedder.trained,
        "dimension": embedder.dimension,
        "bytes_per_vector": embedder.bytes_per_vector,
        "parameters": embedder.parameters,
        "memory_bytes": embedder.memory_bytes,
        "load_seconds": embedder.load_seconds,
        "train_seconds": embedder.train_seconds,
        "documents_per_second": embedder.documents_per_second,
        "limit": embedder.limit,
        "truncated": embedder.truncated,
        "bits_per_byte": embedder.bits_per_byte,
    }
    for measure in result.measures:
        values |= _mean_values(measure, embedder.means.get(measure))
        differences = _difference_values(embedder.differences.get(measure))
        values |= {f"{measure} vs {result.baseline} {name}": value for name, value in differences.items()}
    for name in stores:
        values |= _store_values(result, embedder, name)
    values |= _tokenizer_values(embedder.tokenizer)
    for kind, name in (("document", "faulty_documents"), ("query", "faulty_queries")):
        values[name] = sum(count.n for count in embedder.failure_counts if count.kind == kind)
    return values


def _mean_values(name: str, mean: Mean | None) -> dict[str, Value]:
    value, n, low, high = (None, None, None, None) if mean is None else mean
    return {name: value, f"{name} low": low, f"{name} high": high, f"{name} n": n}


def _difference_values(difference: MeanDifference | None) -> dict[str, Value]:
    names = ("difference", "low", "high", "p", "p_corrected")
    values = (None,) * len(names) if difference is None else difference[: len(names)]
    return dict(zip(names, values, strict=True))


def _store_values(result: EmbedderStudy, embedder: EmbedderResult, name: str) -> dict[str, Value]:
    store = embedder.find_store(name)
    values: dict[str, Value] = {}
    for stage in LATENCY_STAGES:
        latency = None if store is None else store.stages.get(stage)
        statistics = dict.fromkeys(LATENCY_STATISTICS) if latency is None else _latency_values(latency)
        values |= {f"{name} {stage}_{statistic}_ms": value for statistic, value in statistics.items()}
    values[f"{name} build_seconds"] = None if store is None else store.build_seconds
    values[f"{name} unreliable_times"] = None if store is None else "; ".join(store.unreliable_times)
    values[f"{name} neighbours"] = None if store is None else store.neighbours
    values[f"{name} index_used"] = None if store is None else store.index_used
    main = result.measures[0]
    return values | _mean_values(f"{name} {main}", None if store is None else store.means.get(main))


def _latency_values(latency: Latency) -> Mapping[str, float]:
    return {"mean": latency.mean, "p50": latency.p50, "p95": latency.p95, "p99": latency.p99}


def _tokenizer_values(tokenizer: TokenizerStats | None) -> dict[str, Value]:
    names = ("vocabulary", "used", "tokens", "used_share", "per_word", "per_character", "per_byte", "compression")
    if tokenizer is None:
        return {"tokenizer": None, **{f"tokenizer {name}": None for name in (*names, "unknown_rate")}}
    return {
        "tokenizer": tokenizer.tokenizer,
        "tokenizer vocabulary": tokenizer.vocabulary,
        "tokenizer used": tokenizer.used,
        "tokenizer tokens": tokenizer.tokens,
        "tokenizer used_share": tokenizer.used_share,
        "tokenizer per_word": tokenizer.per_word,
        "tokenizer per_character": tokenizer.per_character,
        "tokenizer per_byte": tokenizer.per_byte,
        "tokenizer compression": tokenizer.compression,
        "tokenizer unknown_rate": tokenizer.unknown_rate,
    }


def build_long_table(result: EmbedderStudy) -> Table:
    """Build a table with one row per value.

    `table` is one of `quality`, `gap` (difference from the baseline), `store`, `dimension` (`how` is the method and
    precision, `at` the number of dimensions), `size` (`at` is the number of documents), `robustness` and `loss` (`how`
    is the perturbation, `at` its rate), `milliseconds` (`how` is store and stage) and `pair` (`how` is the differing
    option, or `rank` for the best two, and the other embedder).
    """
    rows = [row for embedder in result.embedders for row in _long_rows(result, embedder)]
    main = result.measures[0] if result.measures else ""
    for pair in result.pairs:
        how = f"{pair.option or 'rank'}: {pair.worse}"
        rows.append([pair.better, "pair", how, "", main, *_interval_values(pair.difference)])
    return Table("values", [Column(name) for name in LONG_COLUMNS], rows)


def _long_rows(result: EmbedderStudy, embedder: EmbedderResult) -> Iterator[Row]:
    name = embedder.name
    for measure, mean in embedder.means.items():
        yield [name, "quality", "", "", measure, *_interval_values(mean)]
    for measure, difference in embedder.differences.items():
        yield [name, "gap", result.baseline, "", measure, *_interval_values(difference)]
    for store in embedder.stores:
        for measure, mean in store.means.items():
            yield [name, "store", store.store, "", measure, *_interval_values(mean)]
        for stage, latency in store.stages.items():
            for statistic, value in _latency_values(latency).items():
                yield [name, "milliseconds", f"{store.store} {stage}", "", statistic, value, "", "", latency.n]
    for small in embedder.compressed:
        for measure, mean in small.means.items():
            how = f"{small.method} {small.precision}"
            yield [name, "dimension", how, small.dimension, measure, *_interval_values(mean)]
    for size in embedder.corpus_sizes:
        for measure, mean in size.means.items():
            yield [name, "size", "", size.documents, measure, *_interval_values(mean)]
    for item in embedder.perturbed:
        main = result.measures[0]
        yield [name, "robustness", item.name, item.rate, main, *_interval_values(item.mean)]
        yield [name, "loss", item.name, item.rate, main, *_interval_values(item.difference)]


def _interval_values(item: Mean | MeanDifference) -> list[Value]:
    return [item.value, item.low, item.high, item.n]
