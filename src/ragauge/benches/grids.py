"""Default option values of each store, with one grid per kind of index.

The values of a list are swept; a string selects the kind of index that a grid is for. Options given by the user
replace those of the grid.
"""

from __future__ import annotations

from typing import Any

WIDTHS = [10, 20, 40, 80, 160, 320]
"""Search widths of graph indexes."""
PROBES = [1, 2, 4, 8, 16, 32]
"""Number of cells that are searched."""

SEARCH_WIDTHS = ("ef_search", "nprobe", "nprobes", "probes")
"""Options that set how much of an index is searched; a search with a filter needs larger values."""
WITHOUT_FILTERS = frozenset({"usearch", "voyager", "annoy", "scann", "memvid"})
"""Stores whose engine does not support filters; time estimates skip filters for them."""
WIDEST = 1_000
"""Largest search width that is tried."""

GRIDS: dict[str, list[dict[str, Any]]] = {
    "exact": [{}],
    "null": [{}],
    "faiss": [
        {"kind": "flat"},
        {"kind": "hnsw", "m": [16, 32], "ef_construction": 100, "ef_search": WIDTHS},
        {"kind": "ivf", "nprobe": PROBES},
        {"kind": "ivfpq", "refine": True, "nprobe": PROBES, "rerank": [1, 10]},
        {"kind": "sq", "refine": True, "rerank": [1, 4]},
    ],
    "usearch": [{"m": [16, 32], "ef_construction": 100, "ef_search": WIDTHS}],
    "hnswlib": [{"m": [16, 32], "ef_construction": 100, "ef_search": WIDTHS}],
    "voyager": [{"m": [16, 32], "ef_construction": 100, "ef_search": WIDTHS}],
    "annoy": [{"n_trees": [10, 50], "search_k": [100, 400, 1600, 6400]}],
    "scann": [{"kind": "tree", "leaves_to_search": PROBES, "reorder": [30, 100]}],
    "qdrant": [{"m": 16, "ef_construction": 100, "ef_search": WIDTHS}],
    "chroma": [{"m": 16, "ef_construction": 100, "ef_search": WIDTHS}],
    "lancedb": [
        {"index": "ivf_pq", "nprobes": [1, 4, 16], "refine_factor": [1, 10]},
        {"index": "ivf_hnsw_sq", "ef_search": [20, 80, 320]},
    ],
    "milvus-lite": [
        {"index": "hnsw", "m": 16, "ef_construction": 100, "ef_search": [10, 40, 160]},
        {"index": "ivf_flat", "nprobe": [1, 4, 16]},
    ],
    "sqlite-vec": [{}],
    "duckdb": [{"index": "hnsw", "m": 16, "ef_construction": 100, "ef_search": [10, 40, 160]}],
    "pgvector": [
        {"index": "hnsw", "half": [False, True], "ef_construction": 100, "ef_search": [10, 40, 160]},
        {"index": "ivfflat", "probes": [1, 4, 16]},
        {"index": "binary", "ef_construction": 100, "ef_search": [40, 160], "rerank": [4, 16]},
    ],
    "memvid": [{}],
}


def widen(values: list[int]) -> list[int]:
    """Extend a list of widths by two steps of its last ratio, up to MAX_SEARCH_WIDTH.

    >>> widen([4, 8, 16, 32]), widen([10, 40, 160])
    ([4, 8, 16, 32, 64, 128], [10, 40, 160, 640])
    """
    ratio = values[-1] // values[-2] if len(values) > 1 else 2
    return [*values, *(wider for step in (1, 2) if (wider := values[-1] * ratio**step) <= WIDEST)]
