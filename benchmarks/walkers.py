"""Tune the defaults of the walkers, on seeds without reported results.

All walkers have twelve configurations, the same data and the same measure. The configuration with the highest mean
reciprocal rank over both datasets and two trials is the default. Writes WALKERS.md.
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
OPTIONS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "pagerank": {"temperature": (0.02, 0.05, 0.1, 0.2), "damping": (0.5, 0.7, 0.85)},
    "graphflow": {"temperature": (0.02, 0.05, 0.1, 0.2), "stop": (0.0, 0.2, 0.4)},
    "swarm": {"beta": (1.0, 2.0, 4.0, 8.0), "weight": (0.3, 0.5, 0.7)},
}


def list_configurations() -> dict[str, list[str]]:
    """Return the configurations of each walker, as typed."""
    return {
        walker: [
            f"{walker}({', '.join(f'{option}={value}' for option, value in zip(options, values, strict=True))})"
            for values in itertools.product(*options.values())
        ]
        for walker, options in OPTIONS.items()
    }


def compute_means() -> dict[str, list[float]]:
    """Return the means of each configuration over both datasets and both trials."""
    walkers = list_configurations().values()
    systems = ["dense", *(configuration for configurations in walkers for configuration in configurations)]
    means: dict[str, list[float]] = {name: [0.0] * len(MEASURES) for name in systems}
    for seed in SEEDS:
        result = ragauge.run(DATA.format(seed=seed), systems, measures=list(MEASURES), repeats=2, k=20, warmup=0)
        for name, entry in ragauge.overview(result, audited=False).entries.items():
            for i, measure in enumerate(MEASURES):
                means[name][i] += entry.means[measure].value / len(SEEDS)
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("WALKERS.md"), help="output file")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    means = compute_means()
    lines = [
        "# Tuning of the walkers' defaults",
        "",
        f"`{DATA.format(seed='…')}`, seeds {SEEDS[0]} and {SEEDS[1]}, default graph and embedder, two trials; "
        f"{len(next(iter(list_configurations().values())))} configurations per walker, by descending {MEASURES[0]}. No "
        "result is reported on these seeds.",
        "",
        f"| configuration | {' | '.join(MEASURES)} |",
        f"|---|{'---:|' * len(MEASURES)}",
        f"| dense | {' | '.join(f'{mean:.4f}' for mean in means['dense'])} |",
    ]
    for configurations in list_configurations().values():
        for name in sorted(configurations, key=lambda name: -means[name][0]):
            lines.append(f"| {name} | {' | '.join(f'{mean:.4f}' for mean in means[name])} |")
    args.out.write_text("\n".join(lines) + "\n")
    print(args.out.read_text())


if __name__ == "__main__":
    main()
