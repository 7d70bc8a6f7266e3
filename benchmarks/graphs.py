"""Measure the latency of graph retrievers, and of PageRank in other libraries.

Writes GRAPHS.md for 500, 5,000 and 50,000 documents. Documents are random vectors in groups of about 25; each is linked
to some of its group and to a few random documents. The embedder only looks up the vector of a query, so that only the
search is timed. networkx and rustworkx compute the same personalised PageRank from the same seeds, on graphs that are
built before the timing starts.

    python benchmarks/graphs.py [sizes]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.graphs import LinkArrays
from ragauge.core.protocols import Vectors
from ragauge.runs.folder import provenance
from ragauge.stores.reference import ExactStore
from ragauge.systems.bm25 import find_top_k
from ragauge.systems.dense import DenseRetriever
from ragauge.systems.graph_corpus import LinkedCorpus
from ragauge.systems.graph_swarm import AntColony, Swarm, SwarmReranker, SwarmSettings
from ragauge.systems.graph_walkers import GraphFlow, PageRank
from ragauge.systems.pipelines import RerankingPipeline

HERE = Path(__file__).parent
SIZES = (500, 5_000, 50_000)
DIMENSIONS = 256
QUERIES = 100
K = 20
MAX_SECONDS = 20.0
"""Time in seconds after which a retriever gets no further queries."""


class LookupEmbedder:
    """Embedder of texts that are row numbers of given vectors."""

    name = "lookup"

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._vectors[[int(text) for text in texts]]


class RandomLinker:
    """Linker of each document to six of its group and two random ones."""

    name = "random"

    def __init__(self, groups: Any) -> None:
        self._groups = groups

    def link(self, documents: Sequence[Document], vectors: Vectors) -> LinkArrays:  # noqa: ARG002 - not by similarity
        rng, n = np.random.default_rng(1), len(documents)
        order = np.argsort(self._groups[:n], kind="stable")
        near = order[(np.argsort(order)[:, None] + rng.integers(1, 12, (n, 6))) % n]
        targets = np.concatenate([near, rng.integers(0, n, (n, 2))], axis=1)
        return LinkArrays(np.repeat(np.arange(n), 8), targets.ravel(), rng.uniform(0.2, 1.0, 8 * n))


def generate_corpus(n: int) -> LinkedCorpus:
    """Generate n documents; texts are row numbers, and queries are the next rows."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, n // 25, n + QUERIES)
    centres = rng.standard_normal((n // 25, DIMENSIONS), dtype=np.float32)
    vectors = centres[groups] + rng.standard_normal((n + QUERIES, DIMENSIONS), dtype=np.float32)
    return LinkedCorpus([Document(f"d{i}", str(i)) for i in range(n)], LookupEmbedder(vectors), [RandomLinker(groups)])


def build_retrievers(corpus: LinkedCorpus) -> dict[str, Callable[[str], Any]]:
    """Return the search functions to be measured, by name."""
    dense = DenseRetriever(corpus.documents, corpus.embedder, ExactStore())
    retrievers: dict[str, Any] = {
        "dense": dense,
        "pagerank": PageRank(corpus),
        "graphflow": GraphFlow(corpus),
        "swarm": Swarm(corpus),
        "swarm(leap=0.2)": Swarm(corpus, colony=AntColony(leap=0.2)),
        "swarm(router=true)": Swarm(corpus, settings=SwarmSettings(router=True)),
        "dense + swarm reranker, depth 50": RerankingPipeline(dense, [SwarmReranker(corpus)]),
        "dense + swarm reranker with bridges, depth 50": RerankingPipeline(
            dense, [SwarmReranker(corpus, bridges=True)]
        ),
    }
    searches = {name: partial(retriever.search, k=K) for name, retriever in retrievers.items()}
    return searches | build_peers(corpus)


def build_peers(corpus: LinkedCorpus) -> dict[str, Callable[[str], Any]]:
    """Return the PageRank functions of other libraries.

    Seeds are the ten documents most similar to the query.
    """
    import networkx
    import rustworkx

    networkx_graph, rustworkx_graph = corpus.graph.to_networkx(), corpus.graph.to_rustworkx().to_directed()

    def find_seeds(query: str) -> dict[int, float]:
        similarities = corpus.similarities(query)
        rows = find_top_k(similarities, 10)
        weights = np.exp((similarities[rows] - similarities[rows[0]]) / 0.05)
        return dict(zip(rows.tolist(), (weights / weights.sum()).tolist(), strict=True))

    names = corpus.graph.ids
    tolerance = 1e-8 / len(names)  # both libraries multiply it by the number of nodes; ragauge does not

    def search_with_networkx(query: str) -> Any:
        seeds = {names[row]: weight for row, weight in find_seeds(query).items()}
        return networkx.pagerank(networkx_graph, personalization=seeds, tol=tolerance, max_iter=200)

    def search_with_rustworkx(query: str) -> Any:
        seeds = find_seeds(query)
        return rustworkx.pagerank(rustworkx_graph, weight_fn=float, personalization=seeds, tol=tolerance, max_iter=200)

    return {"networkx pagerank": search_with_networkx, "rustworkx pagerank": search_with_rustworkx}


def measure_latency(search: Callable[[str], Any], n: int) -> tuple[float, float, int]:
    """Return the median and p95 latency in milliseconds, and the number of queries.

    `n` is the row of the first query.
    """
    for row in range(n, n + 3):
        search(str(row))
    times: list[float] = []
    began = time.perf_counter()
    for row in range(n, n + QUERIES):
        start = time.perf_counter()
        search(str(row))
        times.append(1e3 * (time.perf_counter() - start))
        if time.perf_counter() - began > MAX_SECONDS:
            break
    return float(np.median(times)), float(np.percentile(times, 95)), len(times)


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or SIZES
    facts = provenance()
    machine = facts["machine"]
    rows: dict[str, list[str]] = {}
    links, is_incomplete = [], False
    for n in sizes:
        corpus = generate_corpus(n)
        links.append(f"{corpus.graph.links:,}")
        for name, search in build_retrievers(corpus).items():
            p50, p95, n_queries = measure_latency(search, n)
            is_incomplete |= n_queries < QUERIES
            cells = f"{p50:.2f} | {p95:.2f}" + (f" ({n_queries})" if n_queries < QUERIES else "")
            rows.setdefault(name, []).append(cells)
            print(f"{n:,} {name}: {cells}", flush=True)
    lines = [
        "# Latency of graph retrievers",
        "",
        f"On {machine['cores']} cores ({machine['processor']}), Python {facts['python']}, one query at a time: latency "
        f"in milliseconds over {QUERIES} queries, {K} documents per query, {DIMENSIONS} dimensions, "
        f"{', '.join(links[:-1])}{' and ' if links[1:] else ''}{links[-1]} links. Generated by "
        "`python benchmarks/graphs.py`. Budgets are the defaults: 800 moves per query for graphflow and every swarm.",
        "",
        f"| retriever | {' | '.join(f'{n:,} documents: p50 | p95' for n in sizes)} |",
        f"|---|{'---:|---:|' * len(sizes)}",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
    ]
    if is_incomplete:
        lines += ["", f"In brackets: number of queries completed in {MAX_SECONDS:g} seconds, if not all."]
    (HERE / "GRAPHS.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
