"""Vector stores of the contract tests, each with options that make it find nearly all true neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

METRICS = ("cosine", "l2", "ip")


@dataclass(frozen=True)
class Case:
    """One vector store with one set of options."""

    store: str
    """Name of the store in the table of plug-ins."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options with which the store reaches a high recall."""
    exact: bool = False
    """Whether the store finds the exact neighbours in their order."""
    rtol: float = 1e-4
    atol: float = 1e-5
    """Maximum relative error of the distances, which depends on the precision of the stored vectors."""
    recall: float = 0.9
    """Minimum recall@10."""
    metrics: tuple[str, ...] = METRICS
    small_set_options: Mapping[str, Any] = field(default_factory=dict)
    """Different options for 300 vectors of 8 or 16 dimensions."""
    tiny_set_options: Mapping[str, Any] = field(default_factory=dict)
    """Different options for a handful of vectors."""
    low_recall_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `tune` that lower the recall; empty if the store has none."""
    fixtures: Mapping[str, str] = field(default_factory=dict)
    """Options whose values are fixtures: name of the option to name of the fixture."""


GRAPH = {"m": 32, "ef_construction": 200, "ef_search": 400}

CASES: dict[str, Case] = {
    "exact": Case("exact", exact=True),
    "faiss-flat": Case("faiss", {"kind": "flat"}, exact=True),
    "faiss-sq": Case("faiss", {"kind": "sq", "bits": 8}, rtol=2e-2, atol=5e-2),
    "faiss-sq-fp16": Case("faiss", {"kind": "sq", "bits": 16}, rtol=2e-3, atol=1e-2),
    "faiss-sq-refined": Case(
        "faiss", {"kind": "sq", "bits": 4, "refine": True, "rerank": 10}, low_recall_options={"rerank": 1}
    ),
    "faiss-ivf": Case(
        "faiss",
        {"kind": "ivf", "nlist": 20, "nprobe": 20},
        tiny_set_options={"nlist": None},
        low_recall_options={"nprobe": 1},
    ),
    "faiss-ivfpq": Case(
        "faiss",
        {"kind": "ivfpq", "nlist": 4, "nprobe": 4, "pq_m": 16, "pq_bits": 8},
        rtol=0.1,
        atol=0.5,
        recall=0.75,
        small_set_options={"pq_m": 8},
        tiny_set_options={"nlist": None, "pq_m": None, "pq_bits": 1, "refine": True, "rerank": 60},
        low_recall_options={"nprobe": 1},
    ),
    "faiss-ivfpq-refined": Case(
        "faiss",
        {"kind": "ivfpq", "nlist": 4, "nprobe": 4, "pq_m": 16, "pq_bits": 6, "refine": True, "rerank": 30},
        small_set_options={"pq_m": 8},
        tiny_set_options={"nlist": None, "pq_m": None, "pq_bits": 1},
        low_recall_options={"rerank": 1},
    ),
    "faiss-hnsw": Case("faiss", {"kind": "hnsw", **GRAPH}, low_recall_options={"ef_search": 10}),
    "usearch": Case("usearch", GRAPH, low_recall_options={"ef_search": 10}),
    "usearch-exact": Case("usearch", {"exact": True}, exact=True),
    "usearch-f16": Case(
        "usearch", {"dtype": "f16", **GRAPH}, rtol=1e-2, atol=2e-2, low_recall_options={"ef_search": 10}
    ),
    "hnswlib": Case("hnswlib", GRAPH, low_recall_options={"ef_search": 10}),
    "hnswlib-replacing": Case("hnswlib", {"replace_deleted": True, **GRAPH}, low_recall_options={"ef_search": 10}),
    "scann": Case(
        "scann",
        {"num_leaves": 20, "leaves_to_search": 20, "reorder": 200},
        tiny_set_options={"num_leaves": 1},
        low_recall_options={"leaves_to_search": 1},
    ),
    "scann-brute": Case("scann", {"kind": "brute"}, exact=True),
    "pgvector-none": Case("pgvector", {"index": "none"}, exact=True, fixtures={"dsn": "dsn"}),
    "pgvector-hnsw": Case(
        "pgvector",
        {"index": "hnsw", "m": 24, "ef_construction": 128, "ef_search": 150, "force": True},
        low_recall_options={"ef_search": 10},
        fixtures={"dsn": "dsn"},
    ),
    "pgvector-half": Case(
        "pgvector",
        {"index": "hnsw", "half": True, "m": 24, "ef_construction": 128, "ef_search": 150, "force": True},
        rtol=1e-2,
        atol=2e-2,
        low_recall_options={"ef_search": 10},
        fixtures={"dsn": "dsn"},
    ),
    "pgvector-ivfflat": Case(
        "pgvector",
        {"index": "ivfflat", "lists": 10, "probes": 10, "force": True},
        low_recall_options={"probes": 1},
        fixtures={"dsn": "dsn"},
    ),
    "pgvector-binary": Case(
        "pgvector",
        {"index": "binary", "m": 24, "ef_construction": 128, "ef_search": 400, "rerank": 40, "force": True},
        recall=0.8,
        small_set_options={"rerank": 30},
        low_recall_options={"rerank": 1},
        fixtures={"dsn": "dsn"},
    ),
    "qdrant": Case("qdrant", GRAPH, low_recall_options={"ef_search": 10}),
    "qdrant-exact": Case("qdrant", {"exact": True}, exact=True),
    "qdrant-int8": Case(
        "qdrant",
        {"quantization": "int8", "oversampling": 4.0, **GRAPH},
        low_recall_options={"ef_search": 10},
    ),
    "chroma": Case("chroma", GRAPH, low_recall_options={"ef_search": 10}),
    "lancedb-none": Case("lancedb", {"index": "none"}, exact=True),
    "lancedb-ivf_flat": Case("lancedb", {"index": "ivf_flat", "partitions": 10, "nprobes": 10}),
    "lancedb-ivf_pq": Case(
        "lancedb",
        {"index": "ivf_pq", "partitions": 4, "sub_vectors": 8, "nprobes": 4, "refine_factor": 30},
        low_recall_options={"refine_factor": 1},
    ),
    "lancedb-ivf_hnsw_sq": Case(
        "lancedb",
        {"index": "ivf_hnsw_sq", "partitions": 1, "ef_search": 400, "refine_factor": 4},
        low_recall_options={"refine_factor": 1},
    ),
    "milvus-lite": Case("milvus-lite", GRAPH, low_recall_options={"ef_search": 10}),
    "milvus-lite-flat": Case("milvus-lite", {"index": "flat"}, exact=True),
    "milvus-lite-ivf_flat": Case(
        "milvus-lite",
        {"index": "ivf_flat", "nlist": 16, "nprobe": 16},
        tiny_set_options={"nlist": 1},
        low_recall_options={"nprobe": 1},
    ),
    "sqlite-vec": Case("sqlite-vec", {}, exact=True, metrics=("cosine", "l2")),
    "duckdb": Case("duckdb", {"filtered": "scan", **GRAPH}, low_recall_options={"ef_search": 10}),
    "duckdb-none": Case("duckdb", {"index": "none"}, exact=True),
}
EXACT = [name for name, case in CASES.items() if case.exact]
APPROXIMATE = [name for name, case in CASES.items() if not case.exact]
