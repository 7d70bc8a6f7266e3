"""Thread limits of the numeric libraries of this process while work is timed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TOKENIZERS_VARIABLE = "TOKENIZERS_PARALLELISM"
"""Environment variable that the library tokenizers reads at every call."""
_active_limit: ThreadLimit | None = None
_planned_count: int | None = None


class ThreadLimit:
    """Number of threads that each worker may use in BLAS, OpenMP (also FAISS), torch, ONNX Runtime and tokenizers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._limited: list[Any] = []
        self._torch: int | None = None
        self._parallelism = os.environ.get(TOKENIZERS_VARIABLE)
        self._others: dict[str, int] = {}

    def apply(self) -> None:
        """Limit the libraries that are loaded now; call it again after loading others."""
        from threadpoolctl import ThreadpoolController

        self._limited.append(ThreadpoolController().limit(limits=self.count))
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "set_num_threads"):
            self._torch = torch.get_num_threads() if self._torch is None else self._torch
            torch.set_num_threads(self.count)
        if self.count == 1:
            os.environ[TOKENIZERS_VARIABLE] = "false"

    def apply_to_thread(self) -> None:
        """Limit the calling thread: OpenMP stores a number of threads per thread."""
        for limited in self._limited[-1:]:
            limited._controller.limit(limits=self.count)

    def restore(self) -> None:
        """Restore the number of threads of every library."""
        for limited in reversed(self._limited):
            limited.restore_original_limits()
        self._limited.clear()
        if self._torch is not None:
            sys.modules["torch"].set_num_threads(self._torch)
        if self._parallelism is None:
            os.environ.pop(TOKENIZERS_VARIABLE, None)
        else:
            os.environ[TOKENIZERS_VARIABLE] = self._parallelism

    def record(self, library: str, threads: int) -> None:
        """Record the number of threads of a library that takes it as an argument."""
        self._others[library] = threads

    def describe(self) -> dict[str, Any]:
        """Describe the limit for the manifest: threads per worker and per library."""
        from threadpoolctl import threadpool_info

        counts: dict[str, int] = {}
        for library in threadpool_info():
            counts[library["internal_api"]] = max(library["num_threads"], counts.get(library["internal_api"], 0))
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_num_threads"):
            counts["torch"] = torch.get_num_threads()
        return {"per_worker": self.count, "libraries": dict(sorted({**counts, **self._others}.items()))}


@contextmanager
def limit_threads(count: int) -> Iterator[ThreadLimit]:
    """Limit the numeric libraries of this process to `count` threads per worker.

    The previous numbers are restored at the end.
    """
    global _active_limit  # noqa: PLW0603 - libraries are limited for the whole process
    old_limit, limit = _active_limit, ThreadLimit(count)
    limit.apply()
    _active_limit = limit
    try:
        yield limit
    finally:
        _active_limit = old_limit
        limit.restore()


@contextmanager
def plan_threads(count: int) -> Iterator[None]:
    """Announce a later limit while systems are built, so that they can prepare for it."""
    global _planned_count  # noqa: PLW0603 - as the limit itself
    before, _planned_count = _planned_count, count
    try:
        yield
    finally:
        _planned_count = before


def planned_threads() -> int | None:
    """Return the announced number of threads per worker; None if none is announced."""
    return _planned_count


def limit_this_thread() -> None:
    """Apply the limit in force, if any, to a thread that was started under it."""
    if _active_limit is not None:
        _active_limit.apply_to_thread()


def threads_for(library: str, chosen: int = 0) -> int:
    """Return the number of threads for a library that takes it as an argument.

    0 leaves it to the library. A number that the user chose is kept.
    """
    if _active_limit is None:
        return chosen
    threads = chosen or _active_limit.count
    _active_limit.record(library, threads)
    return threads
