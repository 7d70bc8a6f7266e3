"""The process that a local model lives in: it reads an order, loads the model, and serves until nobody is there.

llama.cpp prints to both streams and may take its process down with it, so that process is not the user's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any


def serve(order: dict[str, Any]) -> Any:
    """A server on a free port of the loopback address."""
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
    """Serve what the first line of standard input says; its end is ours."""
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as out:
        os.dup2(2, 1)  # whatever the library prints must not be taken for a word of ours
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        order = json.loads(sys.stdin.readline())
        try:
            server = serve(order)
        except Exception as error:  # it is told to whoever waits for the address
            out.write(json.dumps({"error": " ".join(f"{type(error).__name__}: {error}".split())}) + "\n")
            return 1
        out.write(json.dumps({"url": server.listening_address + "/v1"}) + "\n")
    while os.read(0, 1):  # it stays open for as long as there is somebody
        pass
    os._exit(0)  # a server in the middle of a reply would be waited for otherwise


if __name__ == "__main__":
    raise SystemExit(main())
