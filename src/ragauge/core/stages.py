"""Timing of the stages of a query: `with stage("embed"): …` inside a system.

The code that runs a query opens a `StageTimer`. A system marks its stages and need not know whether it is timed.
Time in a nested stage counts only for the inner stage, so that stages add up to at most the total.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from time import perf_counter_ns
from types import TracebackType

STAGES = ("embed", "retrieve", "walk", "rerank")
"""Stages that have a column in reports; other names are recorded too."""


class StageTimer:
    """Time of one query by stage, in nanoseconds.

    >>> with StageTimer() as watch:
    ...     with stage("retrieve"):
    ...         with stage("embed"):
    ...             pass
    >>> sorted(watch.nanoseconds), watch.total >= sum(watch.nanoseconds.values())
    (['embed', 'retrieve'], True)
    """

    __slots__ = ("_inner", "_token", "began", "nanoseconds", "total")

    def __init__(self) -> None:
        self.nanoseconds: dict[str, int] = {}
        self.began = self.total = self._inner = 0

    def __enter__(self) -> StageTimer:
        self._token: Token[StageTimer | stage | None] = _current_stage.set(self)
        self.began = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.total = perf_counter_ns() - self.began
        _current_stage.reset(self._token)


class stage:  # noqa: N801 - it reads as a verb: `with stage("embed"):`
    """Context manager that counts the time of its block as one stage of the timed query; overhead about 2 µs."""

    __slots__ = ("_began", "_inner", "_name", "_outer", "_token")

    def __init__(self, name: str) -> None:
        self._name = name
        self._inner = 0

    def __enter__(self) -> None:
        self._outer = _current_stage.get()
        self._token: Token[StageTimer | stage | None] = _current_stage.set(self)
        self._began = perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed_ns = perf_counter_ns() - self._began
        _current_stage.reset(self._token)
        outer = self._outer
        if outer is None:
            return
        outer._inner += elapsed_ns
        while isinstance(outer, stage):
            outer = outer._outer
        if outer is not None:
            # Concurrent tasks inside a stage may take longer in total than the stage itself.
            own_ns = max(0, elapsed_ns - self._inner)
            outer.nanoseconds[self._name] = outer.nanoseconds.get(self._name, 0) + own_ns


_current_stage: ContextVar[StageTimer | stage | None] = ContextVar("ragauge_stage", default=None)
"""Innermost stage of this thread or task; a context variable, so that concurrent queries do not mix."""
