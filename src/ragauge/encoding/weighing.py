"""Peak memory and load time of an embedder, measured in a separate process."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ragauge.encoding.vectors import said_by
from ragauge.errors import RagaugeError
from ragauge.processes import Child, OutOfTime
from ragauge.seams import Embedder
from ragauge.systems.specs import Spec, parse
from ragauge.temporary_files import temporary_folder

TEXTS = 32
"""Number of texts embedded in the process."""
SECONDS = 300.0
"""Time limit of the process, in seconds."""
ELSEWHERE = ("openai",)
"""Embedders that run on other machines: they use no local memory, and every call costs money."""

RUNNING = ("device", "threads")
"""Options of a trained embedder that are not part of what it learned."""


class Weight(NamedTuple):
    """Memory and load time of an embedder in a separate process."""

    memory_bytes: int | None = None
    """Peak memory in bytes, minus the peak before the embedder was opened; None if unknown."""
    load_seconds: float = math.nan
    """Time in seconds until the first text was embedded, imports and lazy loading included."""
    note: str = ""


def weight(
    described: str, documents: Sequence[str], *, learned: Embedder | None = None, timeout: float = SECONDS
) -> Weight:
    """Measure the memory and load time of a described embedder.

    An embedder that has `learned` from the corpus is saved and loaded from there, so that training is not included. If
    it cannot be saved it is trained again, and a note says so.
    """
    spec = parse(described)
    if spec.name in ELSEWHERE:
        return Weight()
    with temporary_folder("memory") as folder:
        keep = getattr(learned, "keep", None)
        learns = learned is not None and not callable(keep)
        if callable(keep):
            try:
                keep(Path(folder) / "model")
            except (RagaugeError, OSError) as error:
                return Weight(note=f"its memory is not known: {said_by(error)}")
            running = {name: value for name, value in spec.options.items() if name in RUNNING}
            spec = Spec(spec.name, {**running, "folder": str(Path(folder) / "model")})
        corpus = Path(folder) / "texts.json"
        corpus.write_text(json.dumps(list(documents) if learns else list(documents[:TEXTS])), encoding="utf-8")
        order = json.dumps({"embedder": str(spec), "texts": str(corpus), "learns": learns, "some": TEXTS})
        said: dict[str, object] = {}
        try:
            with Child("ragauge.encoding.worker", order, log=Path(folder) / "log", timeout=timeout) as child:
                for word in child.words():
                    said.update(word)
        except OutOfTime:
            return Weight(note=f"its memory is not known: it was not loaded within {timeout:g} s")
        if "bytes" not in said:
            why = said.get("error") or child.fate()
            return Weight(note=f"its memory is not known: {why}")
        note = "its memory and the time to load it are those of learning again" if learns else ""
        return Weight(int(str(said["bytes"])), float(str(said["seconds"])), note)


def peak_bytes() -> int:
    """Return the peak resident memory of this process, in bytes.

    Uses /proc if available: on Linux, a child process inherits `ru_maxrss` from its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource
    import sys

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
