"""The process that a store lives in: it reads an order, carries it out, and tells on standard output how far it is."""

from __future__ import annotations

import sys

from ragauge.benches import stages
from ragauge.benches.clocks import pin
from ragauge.benches.orders import Order
from ragauge.errors import RagaugeError
from ragauge.processes import Tell, serve


def carry_out(text: str, tell: Tell) -> int:
    """Do what an order says; 0 when it is done."""
    order = Order.of(text)
    pin(order.plan.threads)

    def progress(stage: str, done: int, total: int) -> None:
        tell({"stage": stage, "done": done, "total": total})

    try:
        stages.TABLE[order.stage](order, progress)
    except RagaugeError as error:
        tell({"error": type(error).__name__, "message": error.message, "hint": error.hint})
        return error.exit_code
    except Exception as error:  # an engine's own exception is no reason to lose what it said
        words = " ".join(f"{type(error).__name__}: {error}".split())
        tell({"error": "BackendFailed", "message": words, "hint": None})
        raise
    tell({"ended": True})
    return 0


if __name__ == "__main__":
    sys.exit(serve(carry_out))
