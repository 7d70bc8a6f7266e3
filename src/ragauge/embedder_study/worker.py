"""Worker process that measures the memory and load time of an embedder."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from ragauge.compute.resources import peak_bytes
from ragauge.compute.workers import SendEvent, serve_worker
from ragauge.embedder_study.guarded_embedding import error_summary
from ragauge.models.embedders import open_embedder


def run_footprint_task(text: str, tell: SendEvent) -> int:
    """Measure the embedder of a JSON task; return 0 on success and 1 on failure."""
    order = json.loads(text)
    texts = json.loads(Path(order["texts"]).read_text(encoding="utf-8"))
    before, began = peak_bytes(), time.perf_counter()
    try:
        embedder = open_embedder(order["embedder"], texts if order["learns"] else None)
        embedder.embed(texts[:1])
        seconds = time.perf_counter() - began
        embedder.embed(texts[: order["some"]])
    except Exception as error:  # any error is reported to the parent process
        tell({"error": error_summary(error)})
        return 1
    tell({"bytes": peak_bytes() - before, "seconds": seconds})
    return 0


if __name__ == "__main__":
    sys.exit(serve_worker(run_footprint_task))
