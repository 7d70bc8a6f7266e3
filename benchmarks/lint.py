"""What lint costs: seconds of each check, memory, and how many planted near-duplicates are found, up to 100,000 chunks.

Writes LINT.md. The chunks are sentences of Python's own documentation, drawn anew for each, so that no two are alike by
chance; then near-duplicates (a word or two are other ones) and copies are planted. Each size is a process of its own,
because the memory is its peak.
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
PLANTED = 0.05
"""Of the chunks are nearly another, and a tenth of that are another."""


def chunks(n: int) -> tuple[list[str], list[tuple[int, int]]]:
    """Texts of three to eight sentences, and the pairs of them that are nearly the same; the same every time."""
    chance = random.Random(0)
    whole = (one.text for one in load("pydocs").documents)
    sentences = [part for text in whole for part in re.split(r"(?<=[.!?])\s+", text) if len(part) > 30]
    texts = [" ".join(chance.sample(sentences, chance.randint(3, 8))) for _ in range(n)]
    pairs = []
    first, second = chance.sample(range(n // 2), int(n * PLANTED)), chance.sample(range(n // 2, n), int(n * PLANTED))
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        changed = texts[one].split()
        if place % 10:
            for _ in range(chance.randint(1, 2)):
                changed[chance.randrange(len(changed))] = f"word{chance.randrange(10**6)}"
        texts[other] = " ".join(changed)
        mine, theirs = shingles(texts[one]), shingles(texts[other])
        if place % 10 and len(mine & theirs) >= 0.8 * len(mine | theirs):
            pairs.append((one, other))
    return texts, pairs


def measured(n: int, embedder: str | None) -> dict[str, Any]:
    """One lint, with what it found and what it took."""
    from ragauge.datasets import corpus_checks

    texts, pairs = chunks(n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began, work = time.perf_counter(), time.process_time()
    found = lint(texts, embedder=embedder)
    wall, cpu = time.perf_counter() - began, time.process_time() - work
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    groups = {place: i for i, one in enumerate(corpus_checks.find_near_duplicates(texts)) for place in one.positions}
    met = sum(groups.get(one, -1) == groups.get(other, -2) for one, other in pairs)
    return {
        "chunks": n,
        "characters": sum(map(len, texts)) / n,
        "wall": wall,
        "cpu": cpu,
        "seconds": dict(found.seconds),
        "peak": peak,
        "before": before,
        "pairs": len(pairs),
        "met": met,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """All figures as Markdown."""
    facts = provenance()
    machine = facts["machine"]
    head = [f"{one['chunks']:,}" for one in rows]
    lines = [
        "# What lint costs",
        "",
        f"On {machine['cores']} cores ({machine['processor']}), Python {facts['python']}: chunks of "
        f"{rows[-1]['characters']:,.0f} characters on average, in seconds. Tokens are those of minilm.",
        "",
        f"| check | {' | '.join(head)} |",
        f"|---|{'---:|' * len(rows)}",
    ]
    told = {name: [f"{one['seconds'][name]:.2f}" for one in rows] for name in rows[0]["seconds"]}
    told["**all but tokens**"] = [f"{one['wall'] - one['seconds'].get('tokens', 0.0):.1f}" for one in rows]
    told["**all**"] = [f"{one['wall']:.1f}" for one in rows]
    told["of the processor"] = [f"{one['cpu']:.1f}" for one in rows]
    told["peak memory, MB"] = [f"{one['peak']:,.0f}" for one in rows]
    told["of it before lint, MB"] = [f"{one['before']:,.0f}" for one in rows]
    told["planted near-duplicates found"] = [f"{one['met']:,} of {one['pairs']:,}" for one in rows]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in told.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure each size in a process of its own, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="measure one size, and print it as JSON")
    parser.add_argument("--embedder", default="minilm", help="whose tokens are counted; empty for nobody's")
    given = parser.parse_args()
    if given.size:
        sys.stdout.write(json.dumps(measured(given.size, given.embedder or None)))
        return
    rows = []
    for size in SIZES:
        command = [sys.executable, __file__, "--size", str(size), "--embedder", given.embedder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        sys.stderr.write(f"{size:,} chunks: {rows[-1]['wall']:.1f} s\n")
    (HERE / "LINT.md").write_text(table(rows))
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
