"""The process that a store lives in: it reads an order, carries it out, and tells on standard output how far it is.

Whatever a library prints goes to standard error, so that nothing can be taken for a word of ours.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import IO

from ragauge.benches import stages
from ragauge.benches.clocks import pin
from ragauge.benches.orders import Order
from ragauge.benches.processes import LAST_SECONDS
from ragauge.errors import RagaugeError


def main() -> int:
    """Carry out the order on standard input; 0 when it is done."""
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as out:
        os.dup2(2, 1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is to be done at the end is done
        order = Order.of(sys.stdin.readline())
        threading.Thread(target=_die_with_the_parent, daemon=True).start()
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
    """Whoever gave the order may be killed; then nobody wants it carried out, and the next may want the same folder.

    Standard input stays open as long as there is somebody, and waiting for its end costs nothing.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _tell(out: IO[str], what: dict[str, object]) -> None:
    out.write(json.dumps(what) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
