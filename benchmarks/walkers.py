"""How the walkers' defaults are chosen: twelve settings for each, on seeds that no result is reported on.

The same number of settings, the same data and the same measure for all: the one with the highest mean reciprocal rank,
over both datasets and two trials, is the default.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import ragauge

DATA = "synthetic:graph(documents=500, queries=200, seed={seed})"
SEEDS = (4321, 4322)
MEASURES = ("mrr@20", "recall@20", "dr@20")
SETTINGS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "pagerank": {"temperature": (0.02, 0.05, 0.1, 0.2), "damping": (0.5, 0.7, 0.85)},
    "graphflow": {"temperature": (0.02, 0.05, 0.1, 0.2), "stop": (0.0, 0.2, 0.4)},
    "swarm": {"beta": (1.0, 2.0, 4.0, 8.0), "weight": (0.3, 0.5, 0.7)},
}


def described() -> dict[str, list[str]]:
    """Every setting of every walker."""
    return {
        name: [
            f"{name}({', '.join(f'{option}={value}' for option, value in zip(options, values, strict=True))})"
            for values in itertools.product(*options.values())
        ]
        for name, options in SETTINGS.items()
    }


def measured() -> dict[str, list[float]]:
    """The means of each setting, over both datasets and both trials."""
    systems = ["dense", *(one for mine in described().values() for one in mine)]
    totals: dict[str, list[float]] = {name: [0.0] * len(MEASURES) for name in systems}
    for seed in SEEDS:
        made = ragauge.run(DATA.format(seed=seed), systems, measures=list(MEASURES), repeats=2, k=20, warmup=0)
        for name, entry in ragauge.overview(made, audited=False).entries.items():
            for at, measure in enumerate(MEASURES):
                totals[name][at] += entry.means[measure].value / len(SEEDS)
    return totals


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, default=Path(__file__).with_name("WALKERS.md"))
    told = asked.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found = measured()
    lines = [
        "# How the walkers' defaults are chosen",
        "",
        f"`{DATA.format(seed='…')}`, seeds {SEEDS[0]} and {SEEDS[1]}, the default graph and embedder, two trials; "
        f"{len(next(iter(described().values())))} settings for each walker, the best by {MEASURES[0]} first. No result "
        "is reported on these seeds.",
        "",
        f"| setting | {' | '.join(MEASURES)} |",
        f"|---|{'---:|' * len(MEASURES)}",
        f"| dense | {' | '.join(f'{one:.4f}' for one in found['dense'])} |",
    ]
    for mine in described().values():
        for name in sorted(mine, key=lambda one: -found[one][0]):
            lines.append(f"| {name} | {' | '.join(f'{one:.4f}' for one in found[name])} |")
    told.out.write_text("\n".join(lines) + "\n")
    print(told.out.read_text())


if __name__ == "__main__":
    main()
