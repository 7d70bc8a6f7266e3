"""The process that a store lives in: it reads an order, carries it out, and tells on standard output how far it is.

Whatever a library prints goes to standard error, so that nothing can be taken for a word of ours.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from ragauge.benches import stages
from ragauge.benches.clocks import pin
from ragauge.benches.orders import Order
from ragauge.errors import RagaugeError

PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when its parent is gone. Elsewhere its next word goes nowhere and ends it."""


def main(path: str) -> int:
    """Carry out the order in a file; 0 when it is done."""
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as out:
        os.dup2(2, 1)
        _die_with_the_parent()
        order = Order.read(Path(path))
        pin(order.plan.threads)

        def progress(stage: str, done: int, total: int) -> None:
            _tell(out, {"stage": stage, "done": done, "total": total})

        try:
            stages.TABLE[order.stage](order, progress)
        except RagaugeError as error:
            _tell(out, {"error": type(error).__name__, "message": error.message, "hint": error.hint})
            return error.exit_code
        except Exception as error:  # an engine's own exception is no reason to lose what it said
            words = " ".join(f"{type(error).__name__}: {error}".split())
            _tell(out, {"error": "BackendFailed", "message": words, "hint": None})
            raise
        _tell(out, {"ended": True})
    return 0


def _die_with_the_parent() -> None:
    """Whoever gave the order may be killed; then nobody wants it carried out, and the next may want the same folder."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _tell(out: IO[str], what: dict[str, object]) -> None:
    out.write(json.dumps(what) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
