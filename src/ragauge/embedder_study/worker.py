"""Worker process that measures the memory and load time of an embedder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

from ragauge.compute.resources import peak_bytes
from ragauge.compute.worker_process import SendEvent
from ragauge.models.embedders import open_embedder


class FootprintTask(NamedTuple):
    """Embedder to measure, and texts to embed with it."""

    embedder: str
    """Description of the embedder."""
    texts: str
    """JSON file with texts."""
    trains: bool
    """Whether the embedder is trained on all texts."""
    sample_texts: int
    """Number of texts to embed."""


class Footprint(NamedTuple):
    """Memory and load time of an embedder."""

    memory_bytes: int
    load_seconds: float


def run_task(task: FootprintTask, _send: SendEvent) -> Footprint:
    """Measure an embedder."""
    texts = json.loads(Path(task.texts).read_text(encoding="utf-8"))
    before, began = peak_bytes(), time.perf_counter()
    embedder = open_embedder(task.embedder, texts if task.trains else None)
    embedder.embed(texts[:1])
    seconds = time.perf_counter() - began
    embedder.embed(texts[: task.sample_texts])
    return Footprint(peak_bytes() - before, seconds)
