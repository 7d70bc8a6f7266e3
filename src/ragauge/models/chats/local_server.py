"""Serve a local model in a process of its own, until standard input is closed.

llama.cpp prints to both output streams and may crash, so it does not run in the user's process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any


def start_server(order: dict[str, Any]) -> Any:
    """Start a server on a free port of the loopback address."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = order["file"]
    parameters.model_alias = [order["name"]]
    parameters.n_ctx = order["context"] * order["parallel"]
    parameters.n_parallel = order["parallel"]
    parameters.cpuparams.n_threads = order["threads"]
    parameters.cpuparams_batch.n_threads = order["threads"]
    parameters.n_gpu_layers = order["gpu_layers"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [order["key"]]
    parameters.ui = False
    parameters.offline = True
    parameters.verbosity = 1
    return xllamacpp.Server(parameters)


def main() -> int:
    """Serve the model that the first line of standard input describes, until its end."""
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as out:
        os.dup2(2, 1)  # Output of the library must not be mistaken for this protocol.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        order = json.loads(sys.stdin.readline())
        try:
            server = start_server(order)
        except Exception as error:  # The parent process reports any error.
            out.write(json.dumps({"error": " ".join(f"{type(error).__name__}: {error}".split())}) + "\n")
            return 1
        out.write(json.dumps({"url": server.listening_address + "/v1"}) + "\n")
    while os.read(0, 1):  # The parent process keeps standard input open.
        pass
    os._exit(0)  # A normal exit would wait for a reply in progress.


if __name__ == "__main__":
    raise SystemExit(main())
