"""What an embedder takes: the memory of a process that loads it and embeds some texts, and how long loading takes."""

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
"""So many texts are embedded."""
SECONDS = 300.0
"""A process that takes longer is given up."""
ELSEWHERE = ("openai",)
"""Embedders that live on other machines: their memory is not here, and every call costs somebody something."""

RUNNING = ("device", "threads")
"""Options of one that has learned which are no part of what it learned."""


class Weight(NamedTuple):
    """What a process of its own told."""

    memory_bytes: int | None = None
    """At its peak, above what it took before it opened the embedder."""
    load_seconds: float = math.nan
    """Until the first text was embedded: libraries, weights, and whatever is loaded late."""
    note: str = ""


def weight(
    described: str, documents: Sequence[str], *, learned: Embedder | None = None, timeout: float = SECONDS
) -> Weight:
    """Weigh an embedder that is described in words.

    One that has `learned` from the corpus is written down, and opened from there: what learning takes is another
    question. Where it cannot be written down it learns again, and a note says that this was weighed.
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
    """The most resident memory that this process ever had.

    Not `ru_maxrss` where there is better: on Linux a child inherits the peak of whoever started it.
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
