"""Worker process of a store: runs one task, and reports progress and errors on standard output."""

from __future__ import annotations

import inspect
import sys
import traceback
from pathlib import Path

from ragauge.benches import stages
from ragauge.benches.clocks import pin
from ragauge.benches.opening import found
from ragauge.benches.orders import Order
from ragauge.errors import RagaugeError
from ragauge.processes import Tell, serve


def carry_out(text: str, tell: Tell) -> int:
    """Run a task, report its outcome, and return the exit code."""
    order = Order.of(text)
    pin(order.plan.threads)

    def progress(stage: str, done: int, total: int) -> None:
        tell({"stage": stage, "done": done, "total": total})

    try:
        stages.TABLE[order.stage](order, progress)
    except RagaugeError as error:
        tell({"error": type(error).__name__, "message": error.message, "hint": error.hint})
        return error.exit_code
    except Exception as error:  # a store may raise anything; its message is reported
        words = " ".join(f"{type(error).__name__}: {error}{_locate(error, order.store)}".split())
        tell({"error": "BackendFailed", "message": words, "hint": None})
        raise
    tell({"ended": True})
    return 0


def _locate(error: Exception, store: str) -> str:
    """Return the method of the user's store that raised an error, with file and line.

    Empty for other stores.
    """
    if ":" not in store:
        return ""
    home = inspect.getsourcefile(inspect.unwrap(found(store)))
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == home]
    return f" (in `{inside[0].name}`, {Path(inside[-1].filename).name}:{inside[-1].lineno})" if inside else ""


if __name__ == "__main__":
    sys.exit(serve(carry_out))
