"""Compare your own retriever with BM25 on the built-in dataset: quality, latency and significance.

python examples/own_system.py
"""

from __future__ import annotations

import ragauge
from ragauge import Hit

data = ragauge.load("pydocs")


def search_titles(query: str, k: int) -> list[Hit]:
    """Return the documents whose ids share most words with the query (a naive retriever)."""
    words = set(query.lower().split())
    with ragauge.stage("retrieve"):
        scored = [
            Hit(document.id, float(len(words & set(document.id.lower().replace("_", ".").split(".")))))
            for document in data.documents
        ]
        return sorted(scored, key=lambda hit: (-hit.score, hit.id))[:k]


if __name__ == "__main__":
    experiment = ragauge.run(data, {"bm25": "bm25", "by title": search_titles}, baseline="bm25")
    for name, scores in experiment.scores.items():
        latency = experiment.speeds[name].stages["total"]
        print(f"{name:<10} nDCG@10 {scores.means['ndcg@10']:.4f}   p95 {latency.p95:.2f} ms")
    comparison = experiment.differences["by title"]
    low, high = comparison.ci
    print(
        f"against bm25: {comparison.difference:+.4f} [{low:+.4f}, {high:+.4f}], "
        f"{comparison.wins} queries better, {comparison.losses} worse"
    )
