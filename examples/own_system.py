"""Your own retriever beside BM25, on the dataset that ships: quality, speed, and whether the difference is chance.

python examples/own_system.py
"""

from __future__ import annotations

import ragauge
from ragauge import Hit

data = ragauge.load("pydocs")


def by_title(query: str, k: int) -> list[Hit]:
    """A naive one: documents whose name shares most words with the question."""
    words = set(query.lower().split())
    with ragauge.stage("retrieve"):
        scored = [
            Hit(document.id, float(len(words & set(document.id.lower().replace("_", ".").split(".")))))
            for document in data.documents
        ]
        return sorted(scored, key=lambda hit: (-hit.score, hit.id))[:k]


if __name__ == "__main__":
    found = ragauge.run(data, {"bm25": "bm25", "by title": by_title}, baseline="bm25")
    for name, scores in found.scores.items():
        speed = found.speeds[name]
        print(f"{name:<10} nDCG@10 {scores.means['ndcg@10']:.4f}   p95 {speed.stages['total'].p95:.2f} ms")
    gap = found.differences["by title"]
    low, high = gap.ci
    print(
        f"against bm25: {gap.difference:+.4f} [{low:+.4f}, {high:+.4f}], {gap.wins} queries better, {gap.losses} worse"
    )
