"""Builder of embedder studies for tests: all values are invented, none was measured."""

from __future__ import annotations

import math
from dataclasses import replace

from ragauge.core.summaries import Latency, Mean
from ragauge.embedder_study.results import (
    CompressionResult,
    CorpusSizeResult,
    EmbedderPair,
    EmbedderResult,
    EmbedderStudy,
    EmbeddingFailure,
    FailureCount,
    LongWord,
    MeanDifference,
    PerturbationResult,
    Probe,
    StoreResult,
    TokenizerStats,
    TokenizerStudy,
)

MEASURES = ("ndcg@10", "mrr@15", "recall@1", "recall@5", "recall@10", "precision@1", "precision@5", "precision@10")
QUERIES, DOCUMENTS = 391, 4937
STORES = ("exact", "pgvector(index=none)", "pgvector(index=hnsw)")
SCALE = dict(zip(MEASURES, (1.0, 1.2, 0.35, 0.8, 1.05, 1.0, 0.55, 0.38), strict=True))
"""Ratio of each other measure to the first one."""


def make_mean(value, half_width=0.03, n=QUERIES):
    return Mean(value, n, max(0.0, value - half_width), min(1.0, value + 1.1 * half_width))


def make_means(first):
    """Return the mean of each measure: `first` times its factor in SCALE, at most 1."""
    return {name: make_mean(min(1.0, first * share)) for name, share in SCALE.items()}


def make_difference(difference, half_width=0.02, p=0.0001, n=QUERIES):
    return MeanDifference(difference, difference - half_width, difference + half_width, p, min(1.0, 3 * p), n)


def make_latency(p50, n=QUERIES):
    """Return a latency distribution in ms with a few slow queries; every value is a multiple of `p50`."""
    return Latency(n, 1.1 * p50, p50, 1.5 * p50, 1.8 * p50, 3 * p50, 0.3 * p50, 0.6 * p50, 5 * p50)


def make_stages(embed, retrieve):
    total = make_latency(embed + retrieve)
    return {**({"embed": make_latency(embed)} if embed else {}), "retrieve": make_latency(retrieve), "total": total}


def make_store_results(first, embed, size):
    """Return results of exact search, pgvector without an index, and pgvector with a faster, less exact index."""
    exact_ms = 0.4 + size / 500
    return [
        StoreResult(STORES[0], make_means(first), make_stages(embed, exact_ms), 0.02, None, 1.0),
        StoreResult(STORES[1], make_means(first), make_stages(embed, 6 + size / 100), 2.4, None, 1.0),
        StoreResult(STORES[2], make_means(0.99 * first), make_stages(embed, 1.9 + size / 900), 5.1, True, 0.981),
    ]


def make_compression(first, dimension):
    """Return results of PCA and truncation to each power of two below `dimension`, and of smaller number types."""
    results = []
    for size in [candidate for candidate in (8, 16, 32, 64, 128, 256, 512, 1024) if candidate < dimension]:
        retained = 1 - math.exp(-size / 40)
        results.append(CompressionResult("pca", size, "float32", 4 * size, make_means(first * retained)))
        results.append(CompressionResult("first", size, "float32", 4 * size, make_means(0.8 * first * retained)))
    precisions = [("float32", 4 * dimension, 1.0), ("float16", 2 * dimension, 0.999), ("int8", dimension, 0.99)]
    precisions.append(("bit", math.ceil(dimension / 8), 0.85))
    results += [
        CompressionResult("pca", dimension, kind, size, make_means(first * share)) for kind, size, share in precisions
    ]
    return results


def make_corpus_sizes(first):
    return [
        CorpusSizeResult(n, make_means(min(1.0, first * (1 + 0.1 * math.log(DOCUMENTS / n)))))
        for n in (750, 1500, 3000, DOCUMENTS)
    ]


LOSSES = {
    "keyboard": 1.0, "swap": 0.9, "drop": 0.8, "upper case": 0.3, "diacritics": 0.5, "confusables": 1.3,
    "rare words": 0.2, "white space": 0.0,
}  # fmt: skip


def make_perturbed(first, brittle):
    return [
        PerturbationResult(kind, math.nan if kind == "rare words" else 0.2, 0.97 if share else 0.0,
                           make_mean(first * (1 - share * brittle)),
                           make_difference(-first * share * brittle, p=0.001 if share else 1.0),
                           3 if share > 0.7 else 1)
        for kind, share in LOSSES.items()
    ]  # fmt: skip


PROBES = [
    Probe("plain text", "The quick brown fox", ["The", "␣quick", "␣brown", "␣fox"]),
    Probe("numbers", "3.14159 2026", ["3", ".", "14", "15", "9", "␣20", "26"]),
    Probe("Unicode", "naïve 東京", ["na", "ï", "ve", "␣", "�", "�"], 2),
]


def make_tokenizer(name, *, vocabulary=8000, per_word=1.4, limit=None, truncated=0, unknown=0, lossless=True, **more):
    """Return statistics of a tokenizer on a corpus with a fixed number of words and characters."""
    words, characters = 210_000, 1_300_000
    count = round(per_word * words)
    statistics = {"mean": count / DOCUMENTS, "p50": 0.7 * count / DOCUMENTS, "p95": 3 * count / DOCUMENTS, "max": 512.0}
    return TokenizerStats(
        name, vocabulary, round(0.86 * vocabulary), DOCUMENTS, count, words, characters, characters + 4000, statistics,
        unknown=unknown, unknown_documents=min(unknown, 12), lossless=lossless, limit=limit, truncated=truncated,
        truncated_tokens=40 * truncated, longest=[LongWord("ZoneInfoNotFoundError", 9, 4)], probes=PROBES,
        texts_per_second=21_000.0, **more,
    )  # fmt: skip


def make_embedder(name, first, *, dimension=384, embed=8.0, brittle=0.2, baseline=0.41, **more):
    """Return an embedder result with all parts filled in; `first` is the mean of its first measure."""
    fields = {
        "description": name, "model": name, "trained": True, "dimension": dimension, "bytes_per_vector": 4 * dimension,
        "means": make_means(first),
        "differences": {m: make_difference(share * (first - baseline)) for m, share in SCALE.items()},
        "stores": make_store_results(first, embed, dimension), "compressed": make_compression(first, dimension),
        "corpus_sizes": make_corpus_sizes(first), "perturbed": make_perturbed(first, brittle),
        "documents_per_second": 900 / embed, "load_seconds": 0.8, "memory_bytes": 180_000_000,
    }  # fmt: skip
    return EmbedderResult(name, **{**fields, **more})


def make_full_study():
    """Return a study of nine systems and two that could not be opened.

    `byt5-small` has embedding failures, and one store of `wordllama` failed. `bm25` and `chance` have no vectors. Two
    language models, `lstm-bpe` and `lstm-bytes`, were trained on the corpus; `untrained` has random weights.
    """
    failed_texts = [
        EmbeddingFailure("q17", "query", "failed", "RuntimeError: index out of range in self"),
        EmbeddingFailure("d4", "document", "nan"),
        EmbeddingFailure("d9", "document", "zero"),
    ]
    counts = [
        FailureCount(*entry) for entry in (("query", "failed", 1), ("document", "nan", 1), ("document", "zero", 2))
    ]
    lm = {"trained": True, "limit": 512, "train_seconds": 48.0, "parameters": 2_300_000, "load_seconds": 0.1}
    embedders = [
        make_embedder("minilm", 0.462, embed=5.2, limit=256, truncated=0.0, parameters=22_700_000, brittle=0.25,
                tokenizer=make_tokenizer("minilm", vocabulary=30_522, per_word=1.3, limit=256, unknown=31,
                                         lossless=False)),
        make_embedder("minilm-float32", 0.465, description="encoder(model=all-MiniLM-L6-v2)", embed=11.0, limit=256,
                truncated=0.0, parameters=22_713_216, brittle=0.25, memory_bytes=310_000_000,
                differences={m: make_difference(share * 0.055) for m, share in SCALE.items()}),
        make_embedder("wordllama", 0.395, dimension=256, embed=0.05, parameters=32_000_000, brittle=0.3,
                differences={m: make_difference(-0.015 * share, p=0.2) for m, share in SCALE.items()}),
        make_embedder("lstm-bpe", 0.121, dimension=256, embed=2.0, description="lm(kind=lstm)", bits_per_byte=2.61,
                tokenizer=make_tokenizer("bpe(vocabulary=4000)", vocabulary=4000, per_word=1.6, limit=512,
                                         truncated=25, trained_on="pydocs"),
                truncated=25 / DOCUMENTS, brittle=0.5, **lm),
        make_embedder("lstm-bytes", 0.093, dimension=256, embed=6.1, description="lm(kind=lstm, tokenizer=bytes)",
                bits_per_byte=2.94,
                tokenizer=make_tokenizer("bytes", vocabulary=384, per_word=6.2, limit=512, truncated=900),
                truncated=900 / DOCUMENTS, brittle=0.15, **lm),
        make_embedder("untrained", 0.052, dimension=256, embed=2.0, description="lm(kind=lstm, trained=false)",
                brittle=0.6, **{**lm, "trained": False, "train_seconds": math.nan}, bits_per_byte=8.4),
        make_embedder("byt5-small", 0.031, dimension=1472, embed=140.0,
                description="encoder(model=byt5, untrained=true)", trained=False, limit=512, truncated=0.18,
                parameters=217_000_000, memory_bytes=1_400_000_000,
                brittle=0.1, failed_texts=failed_texts, failure_counts=counts,
                notes=["the weights are random: only the shape is ByT5's"]),
        EmbedderResult("bm25", "bm25", "lexical", "bm25", means=make_means(0.41), corpus_sizes=make_corpus_sizes(0.41),
                perturbed=make_perturbed(0.41, 0.6),
                stores=[StoreResult("bm25", make_means(0.41), make_stages(0.0, 0.31), 0.2)]),
        EmbedderResult("chance", "chance", "chance", "chance", means=make_means(0.004),
                corpus_sizes=make_corpus_sizes(0.004),
                differences={m: make_difference(-0.406 * share) for m, share in SCALE.items()}),
    ]  # fmt: skip
    failed_store = replace(
        embedders[2].stores[2], means={}, stages={}, note="pgvector is not installed", neighbours=math.nan
    )
    embedders[2] = replace(embedders[2], stores=[*embedders[2].stores[:2], failed_store])
    return EmbedderStudy(
        "pydocs", DOCUMENTS, QUERIES, embedders, MEASURES, "bm25", context=512, truncated=0.142,
        pairs=[
            EmbedderPair("minilm-float32", "minilm", "", make_difference(0.003, p=0.31)),
            EmbedderPair("lstm-bpe", "lstm-bytes", "tokenizer", make_difference(0.028, p=0.002)),
            EmbedderPair("lstm-bpe", "untrained", "trained", make_difference(0.069)),
        ],
        compressors={"xz": 2.2, "zlib": 2.75, "bz2": 2.31},
        failures={"canine": "canine needs an optional library", "gone": "there is no folder /nowhere"},
        seconds={"embed": 120.0, "stores": 60.0}, notes=["the machine was busy"],
        provenance={"made": "2027-02-15T12:00:00+00:00", "seed": 0, "machine": {"cores": 2}},
    )  # fmt: skip


def make_empty_study(*names, **more):
    """Return a study of embedders that have names but no results; the first is the baseline."""
    return EmbedderStudy(
        "toy", 3, 2, [EmbedderResult(name, name) for name in names], ["ndcg@10"], names[0] if names else "", **more
    )


def make_tokenizer_study():
    """Return a tokenizer study with three results and one failure."""
    rows = [
        make_tokenizer("bytes", vocabulary=384, per_word=6.2),
        make_tokenizer("bpe(vocabulary=8000)", trained_on="pydocs"),
        make_tokenizer("minilm", vocabulary=30_522, per_word=1.3, limit=256, truncated=3, unknown=31, lossless=None),
    ]
    return TokenizerStudy("pydocs", DOCUMENTS, rows, {"gone": "there is no file gone.json"}, ["counted on all of it"])
