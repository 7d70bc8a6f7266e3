"""What small language models cost to train and encoders to run, on this machine: processor or graphics card.

Writes EMBEDDERS.md, or EMBEDDERS_CARD.md where there is a card. The models learn from the documents of `pydocs`, cut
after 512 characters, each from nothing; the published shapes of ByT5 and CANINE have random weights, which take as long
as learned ones.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.datasets import load
from ragauge.embedder_study.measure_embedder import bits_per_byte
from ragauge.models.embedders import open_embedder
from ragauge.runs.folder import provenance

HERE = Path(__file__).parent
CONTEXT = 512
KINDS = ("lstm", "transformer")
TOKENIZERS = ("bpe", "bytes")
SHAPES = ("byt5-small", "canine-s")
TIMED = 50


def medians(embedder: Any, queries: list[str]) -> tuple[float, float]:
    """Milliseconds of one query by itself: median and p95."""
    for text in queries[:3]:
        embedder.embed([text])
    times = []
    for text in queries:
        began = time.perf_counter()
        embedder.embed([text])
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times)), float(np.percentile(times, 95))


def rate(embedder: Any, texts: list[str], seconds: float) -> float:
    """Texts per second in batches, over as many as fit into some seconds."""
    done, began = 0, time.perf_counter()
    for start in range(0, len(texts), 64):
        embedder.embed(texts[start : start + 64])
        done = min(start + 64, len(texts))
        if time.perf_counter() - began > seconds:
            break
    return done / (time.perf_counter() - began)


def main() -> None:
    """Measure, print, write."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=None, help="where the figures go")
    arguments.add_argument("--dimension", type=int, nargs="+", default=[128], help="of the language models")
    arguments.add_argument("--passes", type=int, nargs="+", default=[2], help="over the documents")
    given = arguments.parse_args()
    import torch

    card = torch.cuda.is_available()
    data = load("pydocs")
    texts = [one.whole[:CONTEXT] for one in data.documents]
    queries = list(data.queries.values())[:TIMED]
    where = torch.cuda.get_device_name() if card else f"{torch.get_num_threads()} threads of the processor"
    lines = [
        f"# Training and embedding on {where}",
        "",
        f"{len(texts):,} documents of pydocs cut after {CONTEXT} characters; made by `python benchmarks/embedders.py`.",
        "",
        "| model | parameters | training s | bits per byte | query ms p50 | p95 | documents/s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    rows: list[tuple[str, str]] = [
        (
            f"{kind}, {tokenizer}, {wide} numbers, {passes} passes",
            f"lm(kind={kind}, tokenizer={tokenizer}, dimension={wide}, passes={passes}, cache=false)",
        )
        for passes, wide, kind, tokenizer in itertools.product(given.passes, given.dimension, KINDS, TOKENIZERS)
    ]
    rows += [(f"{shape}, random weights", f"encoder(model={shape}, untrained=true)") for shape in SHAPES]
    for name, described in rows:
        model: Any = open_embedder(described, texts)
        bits = bits_per_byte(model, texts).per_byte
        p50, p95 = medians(model, queries)
        speed = rate(model, texts, 20.0)
        trained = getattr(model, "train_seconds", float("nan"))
        figures = [
            f"{model.parameters:,}",
            f"{trained:.1f}",
            f"{bits:.3f}",
            f"{p50:.2f}",
            f"{p95:.2f}",
            f"{speed:,.0f}",
        ]
        lines.append(f"| {name} | {' | '.join('' if one == 'nan' else one for one in figures)} |")
        print(lines[-1], flush=True)
    facts = provenance()
    lines += ["", ", ".join(f"{key} {value}" for key, value in facts.items() if isinstance(value, str | int | float))]
    (given.out or HERE / ("EMBEDDERS_CARD.md" if card else "EMBEDDERS.md")).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
