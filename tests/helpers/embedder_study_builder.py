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


def mean(value, wide=0.03, n=QUERIES):
    return Mean(value, n, max(0.0, value - wide), min(1.0, value + 1.1 * wide))


def means(first):
    """Return the mean of each measure: `first` times its factor in SCALE, at most 1."""
    return {name: mean(min(1.0, first * share)) for name, share in SCALE.items()}


def gap(difference, wide=0.02, p=0.0001, n=QUERIES):
    return MeanDifference(difference, difference - wide, difference + wide, p, min(1.0, 3 * p), n)


def latency(p50, n=QUERIES):
    """Return a latency distribution in ms with a few slow queries; every value is a multiple of `p50`."""
    return Latency(n, 1.1 * p50, p50, 1.5 * p50, 1.8 * p50, 3 * p50, 0.3 * p50, 0.6 * p50, 5 * p50)


def stages(embed, retrieve):
    total = latency(embed + retrieve)
    return {**({"embed": latency(embed)} if embed else {}), "retrieve": latency(retrieve), "total": total}


def shelves(first, embed, size):
    """Return results of exact search, pgvector without an index, and pgvector with a faster, less exact index."""
    flat = 0.4 + size / 500
    return [
        StoreResult(STORES[0], means(first), stages(embed, flat), 0.02, None, 1.0),
        StoreResult(STORES[1], means(first), stages(embed, 6 + size / 100), 2.4, None, 1.0),
        StoreResult(STORES[2], means(0.99 * first), stages(embed, 1.9 + size / 900), 5.1, True, 0.981),
    ]


def shrunk(first, dimension):
    """Return results of PCA and truncation to each power of two below `dimension`, and of smaller number types."""
    found = []
    for size in [one for one in (8, 16, 32, 64, 128, 256, 512, 1024) if one < dimension]:
        kept = 1 - math.exp(-size / 40)
        found.append(CompressionResult("pca", size, "float32", 4 * size, means(first * kept)))
        found.append(CompressionResult("first", size, "float32", 4 * size, means(0.8 * first * kept)))
    whole = [("float32", 4 * dimension, 1.0), ("float16", 2 * dimension, 0.999), ("int8", dimension, 0.99)]
    whole.append(("bit", math.ceil(dimension / 8), 0.85))
    found += [CompressionResult("pca", dimension, kind, size, means(first * share)) for kind, size, share in whole]
    return found


def grown(first):
    return [
        CorpusSizeResult(n, means(min(1.0, first * (1 + 0.1 * math.log(DOCUMENTS / n)))))
        for n in (750, 1500, 3000, DOCUMENTS)
    ]


LOSSES = {
    "keyboard": 1.0, "swap": 0.9, "drop": 0.8, "upper case": 0.3, "diacritics": 0.5, "confusables": 1.3,
    "rare words": 0.2, "white space": 0.0,
}  # fmt: skip


def shaken(first, brittle):
    return [
        PerturbationResult(how, math.nan if how == "rare words" else 0.2, 0.97 if share else 0.0,
               mean(first * (1 - share * brittle)), gap(-first * share * brittle, p=0.001 if share else 1.0),
               3 if share > 0.7 else 1)
        for how, share in LOSSES.items()
    ]  # fmt: skip


PROBES = [
    Probe("plain text", "The quick brown fox", ["The", "␣quick", "␣brown", "␣fox"]),
    Probe("numbers", "3.14159 2026", ["3", ".", "14", "15", "9", "␣20", "26"]),
    Probe("Unicode", "naïve 東京", ["na", "ï", "ve", "␣", "�", "�"], 2),
]


def tokens(name, *, vocabulary=8000, per_word=1.4, limit=None, truncated=0, unknown=0, lossless=True, **more):
    """Return statistics of a tokenizer on a corpus with a fixed number of words and characters."""
    words, characters = 210_000, 1_300_000
    count = round(per_word * words)
    figures = {"mean": count / DOCUMENTS, "p50": 0.7 * count / DOCUMENTS, "p95": 3 * count / DOCUMENTS, "max": 512.0}
    return TokenizerStats(
        name, vocabulary, round(0.86 * vocabulary), DOCUMENTS, count, words, characters, characters + 4000, figures,
        unknown=unknown, unknown_documents=min(unknown, 12), lossless=lossless, limit=limit, truncated=truncated,
        truncated_tokens=40 * truncated, longest=[LongWord("ZoneInfoNotFoundError", 9, 4)], probes=PROBES,
        texts_per_second=21_000.0, **more,
    )  # fmt: skip


def entrant(name, first, *, dimension=384, embed=8.0, brittle=0.2, baseline=0.41, **more):
    """Return an embedder result with all parts filled in; `first` is the mean of its first measure."""
    known = {
        "description": name, "model": name, "trained": True, "dimension": dimension, "bytes_per_vector": 4 * dimension,
        "means": means(first), "differences": {m: gap(share * (first - baseline)) for m, share in SCALE.items()},
        "stores": shelves(first, embed, dimension), "compressed": shrunk(first, dimension),
        "corpus_sizes": grown(first), "perturbed": shaken(first, brittle), "documents_per_second": 900 / embed,
        "load_seconds": 0.8,
        "memory_bytes": 180_000_000,
    }  # fmt: skip
    return EmbedderResult(name, **{**known, **more})


def whole():
    """Return a study of nine systems and two that could not be opened.

    `byt5-small` has embedding failures, and one store of `wordllama` failed. `bm25` and `chance` have no vectors. Two
    language models, `lstm-bpe` and `lstm-bytes`, were trained on the corpus; `untrained` has random weights.
    """
    faults = [
        EmbeddingFailure("q17", "query", "failed", "RuntimeError: index out of range in self"),
        EmbeddingFailure("d4", "document", "nan"),
        EmbeddingFailure("d9", "document", "zero"),
    ]
    counts = [FailureCount(*one) for one in (("query", "failed", 1), ("document", "nan", 1), ("document", "zero", 2))]
    lm = {"trained": True, "limit": 512, "train_seconds": 48.0, "parameters": 2_300_000, "load_seconds": 0.1}
    entrants = [
        entrant("minilm", 0.462, embed=5.2, limit=256, truncated=0.0, parameters=22_700_000, brittle=0.25,
                tokenizer=tokens("minilm", vocabulary=30_522, per_word=1.3, limit=256, unknown=31, lossless=False)),
        entrant("minilm-float32", 0.465, description="encoder(model=all-MiniLM-L6-v2)", embed=11.0, limit=256,
                truncated=0.0, parameters=22_713_216, brittle=0.25, memory_bytes=310_000_000,
                differences={m: gap(share * 0.055) for m, share in SCALE.items()}),
        entrant("wordllama", 0.395, dimension=256, embed=0.05, parameters=32_000_000, brittle=0.3,
                differences={m: gap(-0.015 * share, p=0.2) for m, share in SCALE.items()}),
        entrant("lstm-bpe", 0.121, dimension=256, embed=2.0, description="lm(kind=lstm)", bits_per_byte=2.61,
                tokenizer=tokens("bpe(vocabulary=4000)", vocabulary=4000, per_word=1.6, limit=512, truncated=25,
                                 trained_on="pydocs"), truncated=25 / DOCUMENTS, brittle=0.5, **lm),
        entrant("lstm-bytes", 0.093, dimension=256, embed=6.1, description="lm(kind=lstm, tokenizer=bytes)",
                bits_per_byte=2.94, tokenizer=tokens("bytes", vocabulary=384, per_word=6.2, limit=512, truncated=900),
                truncated=900 / DOCUMENTS, brittle=0.15, **lm),
        entrant("untrained", 0.052, dimension=256, embed=2.0, description="lm(kind=lstm, trained=false)",
                brittle=0.6, **{**lm, "trained": False, "train_seconds": math.nan}, bits_per_byte=8.4),
        entrant("byt5-small", 0.031, dimension=1472, embed=140.0, description="encoder(model=byt5, untrained=true)",
                trained=False, limit=512, truncated=0.18, parameters=217_000_000, memory_bytes=1_400_000_000,
                brittle=0.1, failed_texts=faults, failure_counts=counts,
                notes=["the weights are random: only the shape is ByT5's"]),
        EmbedderResult("bm25", "bm25", "lexical", "bm25", means=means(0.41), corpus_sizes=grown(0.41),
                perturbed=shaken(0.41, 0.6),
                stores=[StoreResult("bm25", means(0.41), stages(0.0, 0.31), 0.2)]),
        EmbedderResult("chance", "chance", "chance", "chance", means=means(0.004), corpus_sizes=grown(0.004),
                differences={m: gap(-0.406 * share) for m, share in SCALE.items()}),
    ]  # fmt: skip
    broken = replace(entrants[2].stores[2], means={}, stages={}, note="pgvector is not installed", neighbours=math.nan)
    entrants[2] = replace(entrants[2], stores=[*entrants[2].stores[:2], broken])
    return EmbedderStudy(
        "pydocs", DOCUMENTS, QUERIES, entrants, MEASURES, "bm25", context=512, truncated=0.142,
        pairs=[
            EmbedderPair("minilm-float32", "minilm", "", gap(0.003, p=0.31)),
            EmbedderPair("lstm-bpe", "lstm-bytes", "tokenizer", gap(0.028, p=0.002)),
            EmbedderPair("lstm-bpe", "untrained", "trained", gap(0.069)),
        ],
        compressors={"xz": 2.2, "zlib": 2.75, "bz2": 2.31},
        failures={"canine": "canine needs an optional library", "gone": "there is no folder /nowhere"},
        seconds={"embed": 120.0, "stores": 60.0}, notes=["the machine was busy"],
        provenance={"made": "2027-02-15T12:00:00+00:00", "seed": 0, "machine": {"cores": 2}},
    )  # fmt: skip


def bare(*names, **more):
    """Return a study of embedders that have names but no results; the first is the baseline."""
    return EmbedderStudy(
        "toy", 3, 2, [EmbedderResult(name, name) for name in names], ["ndcg@10"], names[0] if names else "", **more
    )


def sheet():
    """Return a tokenizer study with three results and one failure."""
    rows = [
        tokens("bytes", vocabulary=384, per_word=6.2),
        tokens("bpe(vocabulary=8000)", trained_on="pydocs"),
        tokens("minilm", vocabulary=30_522, per_word=1.3, limit=256, truncated=3, unknown=31, lossless=None),
    ]
    return TokenizerStudy("pydocs", DOCUMENTS, rows, {"gone": "there is no file gone.json"}, ["counted on all of it"])
