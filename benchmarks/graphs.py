"""What walking costs: milliseconds of a query by retriever, on 500, 5,000 and 50,000 documents, beside the peers.

Writes GRAPHS.md. Documents are random vectors in groups of about 25, each linked to some of its group and to a few from
anywhere. To embed a query is to look its vector up, so that nothing but the search is timed. networkx and rustworkx
compute the same personalised PageRank from the same seeds, with the graph made before the clock starts.

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
PATIENCE = 20.0
"""Seconds after which a retriever is asked no more queries."""


class Known:
    """Texts are the numbers of vectors."""

    name = "known"

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._vectors[[int(text) for text in texts]]


class Drawn:
    """Six links of each document within its group, and two to anywhere."""

    name = "drawn"

    def __init__(self, groups: Any) -> None:
        self._groups = groups

    def link(self, documents: Sequence[Document], vectors: Vectors) -> LinkArrays:  # noqa: ARG002 - not by nearness
        rng, n = np.random.default_rng(1), len(documents)
        order = np.argsort(self._groups[:n], kind="stable")
        near = order[(np.argsort(order)[:, None] + rng.integers(1, 12, (n, 6))) % n]
        others = np.concatenate([near, rng.integers(0, n, (n, 2))], axis=1)
        return LinkArrays(np.repeat(np.arange(n), 8), others.ravel(), rng.uniform(0.2, 1.0, 8 * n))


def terrain(n: int) -> LinkedCorpus:
    """Documents by number; the queries come after them."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, n // 25, n + QUERIES)
    centres = rng.standard_normal((n // 25, DIMENSIONS), dtype=np.float32)
    vectors = centres[groups] + rng.standard_normal((n + QUERIES, DIMENSIONS), dtype=np.float32)
    return LinkedCorpus([Document(f"d{i}", str(i)) for i in range(n)], Known(vectors), [Drawn(groups)])


def retrievers(ground: LinkedCorpus) -> dict[str, Callable[[str], Any]]:
    """What is measured, by name."""
    dense = DenseRetriever(ground.documents, ground.embedder, ExactStore())
    ours: dict[str, Any] = {
        "dense": dense,
        "pagerank": PageRank(ground),
        "graphflow": GraphFlow(ground),
        "swarm": Swarm(ground),
        "swarm(leap=0.2)": Swarm(ground, colony=AntColony(leap=0.2)),
        "swarm(router=true)": Swarm(ground, settings=SwarmSettings(router=True)),
        "dense + swarm reranker, depth 50": RerankingPipeline(dense, [SwarmReranker(ground)]),
        "the same with bridges": RerankingPipeline(dense, [SwarmReranker(ground, bridges=True)]),
    }
    return {name: partial(one.search, k=K) for name, one in ours.items()} | peers(ground)


def peers(ground: LinkedCorpus) -> dict[str, Callable[[str], Any]]:
    """PageRank by others, from the ten documents most like the query."""
    import networkx
    import rustworkx

    theirs, directed = ground.graph.to_networkx(), ground.graph.to_rustworkx().to_directed()

    def seeds(query: str) -> dict[int, float]:
        likeness = ground.similarities(query)
        rows = find_top_k(likeness, 10)
        starts = np.exp((likeness[rows] - likeness[rows[0]]) / 0.05)
        return dict(zip(rows.tolist(), (starts / starts.sum()).tolist(), strict=True))

    names = ground.graph.ids
    enough = 1e-8 / len(names)  # both multiply it with the number of nodes; ours does not

    def by_networkx(query: str) -> Any:
        starts = {names[row]: one for row, one in seeds(query).items()}
        return networkx.pagerank(theirs, personalization=starts, tol=enough, max_iter=200)

    def by_rustworkx(query: str) -> Any:
        starts = seeds(query)
        return rustworkx.pagerank(directed, weight_fn=float, personalization=starts, tol=enough, max_iter=200)

    return {"peer: networkx pagerank": by_networkx, "peer: rustworkx pagerank": by_rustworkx}


def timed(ask: Callable[[str], Any], n: int) -> tuple[float, float, int]:
    """Milliseconds, median and p95, and of how many queries."""
    for number in range(n, n + 3):
        ask(str(number))
    times: list[float] = []
    began = time.perf_counter()
    for number in range(n, n + QUERIES):
        start = time.perf_counter()
        ask(str(number))
        times.append(1e3 * (time.perf_counter() - start))
        if time.perf_counter() - began > PATIENCE:
            break
    return float(np.median(times)), float(np.percentile(times, 95)), len(times)


def main() -> None:
    """Measure, print, write."""
    sizes = [int(one) for one in sys.argv[1:]] or SIZES
    facts = provenance()
    machine = facts["machine"]
    rows: dict[str, list[str]] = {}
    links, fewer = [], False
    for n in sizes:
        ground = terrain(n)
        links.append(f"{ground.graph.links:,}")
        for name, ask in retrievers(ground).items():
            p50, p95, asked = timed(ask, n)
            fewer |= asked < QUERIES
            rows.setdefault(name, []).append(f"{p50:.2f} | {p95:.2f}" + (f" ({asked})" if asked < QUERIES else ""))
            print(f"{n:,} {name}: {rows[name][-1]}", flush=True)
    lines = [
        "# What walking costs",
        "",
        f"On {machine['cores']} cores ({machine['processor']}), Python {facts['python']}, one query at a time: "
        f"milliseconds of {QUERIES} queries for {K} documents, of {DIMENSIONS} dimensions, "
        f"over {', '.join(links[:-1])}{' and ' if links[1:] else ''}{links[-1]} links. Made by "
        "`python benchmarks/graphs.py`. Budgets are the defaults: 800 moves a query for graphflow and every swarm.",
        "",
        f"| retriever | {' | '.join(f'{n:,}: p50 | p95' for n in sizes)} |",
        f"|---|{'---:|---:|' * len(sizes)}",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
    ]
    if fewer:
        lines += ["", f"In brackets: of so many queries, where {PATIENCE:g} seconds did not do for all."]
    (HERE / "GRAPHS.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
