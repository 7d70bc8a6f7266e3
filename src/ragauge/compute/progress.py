"""Progress callbacks of long operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

StepCallback = Callable[[int, int], None]
"""Progress callback: number of items done, and total number."""


class RunProgress(Protocol):
    """Progress callback of an experiment."""

    def begin(self, system: str, total: int, done: int) -> None:
        """Report that a system is about to be built and run."""
        ...

    def building(self, done: int, total: int) -> None:
        """Report the number of embedded documents."""
        ...

    def step(self) -> None:
        """Report that a query has its result."""
        ...

    def end(self, system: str) -> None:
        """Report that a system is done."""
        ...


class SilentRunProgress:
    """Progress callback that does nothing."""

    def begin(self, system: str, total: int, done: int) -> None:
        """Do nothing."""

    def building(self, done: int, total: int) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""

    def end(self, system: str) -> None:
        """Do nothing."""


ProgressCallback = Callable[[str, int, int], None]
"""Progress callback: step, number done, total."""


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""
