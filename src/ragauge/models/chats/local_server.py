"""Worker process that serves a local model: llama.cpp prints to both output streams and may crash."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from ragauge.compute.worker_process import SendEvent


class LocalModelTask(NamedTuple):
    """Model file to serve, and how."""

    file: str
    name: str
    context: int
    """Maximum number of tokens of a request with its reply."""
    parallel: int
    """Number of concurrent requests."""
    threads: int
    gpu_layers: int
    key: str = ""
    """Key that requests must have: other users of the machine can access the loopback address too."""


def run_task(task: LocalModelTask, send: SendEvent) -> None:
    """Serve a model, send the address of the server, and wait until the process is ended."""
    server = start_server(task)
    send({"address": f"{server.listening_address}/v1"})
    threading.Event().wait()


def start_server(task: LocalModelTask) -> Any:
    """Start a server on a free port of the loopback address."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = task.file
    parameters.model_alias = [task.name]
    parameters.n_ctx = task.context * task.parallel
    parameters.n_parallel = task.parallel
    parameters.cpuparams.n_threads = task.threads
    parameters.cpuparams_batch.n_threads = task.threads
    parameters.n_gpu_layers = task.gpu_layers
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [task.key]
    parameters.ui = False
    parameters.offline = True
    parameters.verbosity = 1
    return xllamacpp.Server(parameters)
