"""The demo: make three runs of a small search engine that does not exist, then look at them as one would at real ones.

Everything is seeded and offline. What it makes stays in demo/, so that the commands can be tried again by hand.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import ragauge

FOLDER = Path("demo")
QUERIES, DOCUMENTS, DEPTH = 60, 2000, 100
NOISE = {"bm25": 1.0, "dense": 0.9, "hybrid": 0.7}
"""How much each system errs about a document's worth; less is better."""


def make() -> None:
    """Judgments of three grades, and runs that know the truth but for noise; some documents nobody judged."""
    rng = random.Random(7)
    FOLDER.mkdir(exist_ok=True)
    worth = {
        f"q{q:02}": {f"doc{d}": rng.choice([1, 1, 1, 2, 3]) for d in rng.sample(range(DOCUMENTS), 12)}
        for q in range(QUERIES)
    }
    with (FOLDER / "qrels.txt").open("w") as qrels:
        for query, docs in worth.items():
            zeros = {f"doc{d}": 0 for d in rng.sample(range(DOCUMENTS), 30)}
            for doc, grade in {**zeros, **docs}.items():
                qrels.write(f"{query} 0 {doc} {grade}\n")
    for name, noise in NOISE.items():
        with (FOLDER / f"{name}.run").open("w") as run:
            for query, docs in worth.items():
                scores = {f"doc{d}": docs.get(f"doc{d}", 0) + rng.gauss(0, noise) for d in range(DOCUMENTS)}
                best = sorted(scores, key=scores.__getitem__, reverse=True)[:DEPTH]
                for rank, doc in enumerate(best, 1):
                    run.write(f"{query} Q0 {doc} {rank} {scores[doc]:.2f} {name}\n")


def show(*arguments: str) -> None:
    """Run a command as a person would, and show it."""
    print(f"\n$ ragauge {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "ragauge", *arguments], cwd=FOLDER, check=True)


def compare() -> None:
    """Who wins on how many queries, and what the same run scores under other tools' conventions."""
    runs = {name: FOLDER / f"{name}.run" for name in NOISE}
    scores = ragauge.evaluate(FOLDER / "qrels.txt", runs, ["ndcg@10"])
    base = scores["bm25"].per_query["ndcg@10"]
    print("\nAgainst bm25, query by query (ndcg@10):")
    for name in ("dense", "hybrid"):
        mine = scores[name].per_query["ndcg@10"]
        wins, losses = sum(mine[q] > base[q] for q in base), sum(mine[q] < base[q] for q in base)
        change = scores[name].means["ndcg@10"] - scores["bm25"].means["ndcg@10"]
        print(
            f"  {name:<7} {change:+.4f}   {wins} queries better, {losses} worse, {len(base) - wins - losses} the same"
        )
    print("\nThe same run under other conventions (hybrid):")
    for convention in ("default", "trec9", "rig", "ragdbeval-capped", "sklearn"):
        found = ragauge.evaluate(FOLDER / "qrels.txt", FOLDER / "hybrid.run", ["ndcg@10", "recall@10"], convention)
        print(f"  {convention:<18}" + "".join(f"{name:>21} {value:.4f}" for name, value in found.means.items()))


def main() -> None:
    """Make, validate, evaluate, compare."""
    make()
    print(f"Made {QUERIES} judged queries and the runs {', '.join(NOISE)} in {FOLDER}/ (seeded, offline).")
    show("validate", "qrels.txt", "hybrid.run")
    measures = ("ndcg@10", "recall@100", "map", "mrr")
    show("evaluate", "qrels.txt", *(f"{name}.run" for name in NOISE), *(x for m in measures for x in ("-m", m)))
    compare()
    print("\nNext: `cd demo`, then ../.venv/bin/ragauge evaluate qrels.txt hybrid.run --per-query")


if __name__ == "__main__":
    main()
