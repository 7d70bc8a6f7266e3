"""Measure lint on up to 100,000 chunks.

Measures the time of each check, memory, and how many planted near-duplicates are found. Writes LINT.md. Chunks are
random sentences of the Python documentation, so that no two are similar by chance. Then near-duplicates (one or two
words replaced) and copies are planted. Each size runs in a separate process, because the peak memory is that of a
process.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ragauge.core.text import shingles
from ragauge.datasets import load
from ragauge.knowledge.lint import lint
from ragauge.runs.folder import provenance

HERE = Path(__file__).parent
SIZES = (25_000, 50_000, 100_000)
PLANTED_SHARE = 0.05
"""Share of chunks that become near-duplicates; a tenth of them are copies."""


def generate_chunks(n: int) -> tuple[list[str], list[tuple[int, int]]]:
    """Generate texts and the pairs of planted near-duplicates from a fixed seed.

    Each text has three to eight sentences.
    """
    rng = random.Random(0)
    documents = (document.text for document in load("pydocs").documents)
    sentences = [part for text in documents for part in re.split(r"(?<=[.!?])\s+", text) if len(part) > 30]
    texts = [" ".join(rng.sample(sentences, rng.randint(3, 8))) for _ in range(n)]
    pairs = []
    n_planted = int(n * PLANTED_SHARE)
    originals, duplicates = rng.sample(range(n // 2), n_planted), rng.sample(range(n // 2, n), n_planted)
    for i, (original, duplicate) in enumerate(zip(originals, duplicates, strict=True)):
        words = texts[original].split()
        if i % 10:
            for _ in range(rng.randint(1, 2)):
                words[rng.randrange(len(words))] = f"word{rng.randrange(10**6)}"
        texts[duplicate] = " ".join(words)
        a, b = shingles(texts[original]), shingles(texts[duplicate])
        if i % 10 and len(a & b) >= 0.8 * len(a | b):
            pairs.append((original, duplicate))
    return texts, pairs


def measure_lint(n: int, embedder: str | None) -> dict[str, Any]:
    """Run lint once on `n` chunks; return times, memory and planted pairs found."""
    from ragauge.datasets import corpus_checks

    texts, pairs = generate_chunks(n)
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, cpu_start = time.perf_counter(), time.process_time()
    result = lint(texts, embedder=embedder)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    group_of = {
        position: i for i, group in enumerate(corpus_checks.find_near_duplicates(texts)) for position in group.positions
    }
    n_found = sum(group_of.get(original, -1) == group_of.get(duplicate, -2) for original, duplicate in pairs)
    return {
        "chunks": n,
        "characters": sum(map(len, texts)) / n,
        "wall": wall,
        "cpu": cpu,
        "seconds": dict(result.seconds),
        "peak": peak,
        "before": memory_before,
        "pairs": len(pairs),
        "found": n_found,
    }


def build_table(results: list[dict[str, Any]]) -> str:
    """Return the results of all sizes as Markdown."""
    facts = provenance()
    machine = facts["machine"]
    sizes = [f"{result['chunks']:,} chunks" for result in results]
    lines = [
        "# Cost of lint",
        "",
        f"On {machine['cores']} cores ({machine['processor']}), Python {facts['python']}: seconds per check, for "
        f"chunks of {results[-1]['characters']:,.0f} characters on average. Tokens are those of minilm.",
        "",
        f"| check | {' | '.join(sizes)} |",
        f"|---|{'---:|' * len(results)}",
    ]
    rows = {name: [f"{result['seconds'][name]:.2f}" for result in results] for name in results[0]["seconds"]}
    rows["**total without tokens**"] = [f"{r['wall'] - r['seconds'].get('tokens', 0.0):.1f}" for r in results]
    rows["**total**"] = [f"{result['wall']:.1f}" for result in results]
    rows["CPU time"] = [f"{result['cpu']:.1f}" for result in results]
    rows["peak memory, MB"] = [f"{result['peak']:,.0f}" for result in results]
    rows["memory before lint, MB"] = [f"{result['before']:,.0f}" for result in results]
    rows["planted near-duplicates found"] = [f"{result['found']:,} of {result['pairs']:,}" for result in results]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="measure only this number of chunks, and print the result as JSON")
    parser.add_argument("--embedder", default="minilm", help="embedder whose tokens are counted; empty for none")
    args = parser.parse_args()
    if args.size:
        sys.stdout.write(json.dumps(measure_lint(args.size, args.embedder or None)))
        return
    results = []
    for size in SIZES:
        command = [sys.executable, __file__, "--size", str(size), "--embedder", args.embedder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
        sys.stderr.write(f"{size:,} chunks: {results[-1]['wall']:.1f} s\n")
    text = build_table(results)
    (HERE / "LINT.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
