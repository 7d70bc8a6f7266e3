"""Benchmark stages in worker processes: tasks, their result files, and which saved results are reused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragauge.benches.clocks import environment
from ragauge.benches.orders import Order
from ragauge.errors import BackendFailed, BadInput, MissingExtra, RagaugeError
from ragauge.processes import Child, OutOfTime

Progress = Callable[[str, int, int], None]
"""Progress callback: stage, number done, total."""
KINDS: dict[str, type[RagaugeError]] = {"BadInput": BadInput, "MissingExtra": MissingExtra}


def carry_out(order: Order, progress: Progress | None = None) -> None:
    """Run a task in a new worker process.

    Raises the error that the worker reports, or BackendFailed if it dies or exceeds the time limit.
    """
    log = Path(order.folder) / f"{order.stage}.log"
    with Child(
        "ragauge.benches.worker",
        order.text(),
        log=log,
        timeout=order.plan.timeout,
        environment=environment(order.plan.threads),
    ) as child:
        said = _listen(child, order, progress)
    if "error" in said:
        raise _error(said)
    if "ended" not in said:
        raise BackendFailed(f"the process {child.fate(f' while {_doing(order)}')}")
    log.unlink(missing_ok=True)


def _listen(child: Child, order: Order, progress: Progress | None) -> dict[str, Any]:
    """Report the progress of a worker until it ends, and return its last message."""
    stage = order.stage
    said: dict[str, Any] = {}
    try:
        for said in child.words():
            if "stage" in said:
                stage = said["stage"]
                if progress is not None:
                    progress(stage, said["done"], said["total"])
    except OutOfTime:
        raise BackendFailed(
            f"gave up after {order.plan.timeout:g} seconds while {_doing(order, stage)}",
            hint="--timeout gives it longer",
        ) from None
    return said


def _doing(order: Order, stage: str = "") -> str:
    words = {"build": "building", "cold": "opening it again", "load": "under load", "filters": "filtering"}
    return {**words, "changes": "changing it", "insert": "inserting", "index": "indexing", "search": "searching"}.get(
        stage or order.stage, stage or order.stage
    )


def _error(said: dict[str, Any]) -> RagaugeError:
    if said["error"] == "MissingExtra":
        missing = MissingExtra(said["message"], "")
        missing.message, missing.hint = said["message"], said["hint"]
        return missing
    return KINDS.get(said["error"], BackendFailed)(said["message"], hint=said["hint"])
