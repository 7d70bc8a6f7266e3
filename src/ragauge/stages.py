"""Where the time of a query goes: `with stage("embed"): …` inside a system, one clock for all.

Whoever runs the query opens a `Stopwatch`; the system marks its stages without knowing whether anybody is looking. What
is marked inside another stage counts for the inner one only, so that stages add up to no more than the total.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from time import perf_counter_ns
from types import TracebackType

STAGES = ("embed", "retrieve", "walk", "rerank")
"""The stages that reports have columns for; any other name is kept as well."""


class Stopwatch:
    """Nanoseconds by stage of one query.

    >>> with Stopwatch() as watch:
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

    def __enter__(self) -> Stopwatch:
        self._token: Token[Stopwatch | stage | None] = _inside.set(self)
        self.began = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.total = perf_counter_ns() - self.began
        _inside.reset(self._token)


class stage:  # noqa: N801 - it reads as a verb: `with stage("embed"):`
    """Marks what happens inside it as one stage of the query that is being timed; costs two microseconds."""

    __slots__ = ("_began", "_inner", "_name", "_outer", "_token")

    def __init__(self, name: str) -> None:
        self._name = name
        self._inner = 0

    def __enter__(self) -> None:
        self._outer = _inside.get()
        self._token: Token[Stopwatch | stage | None] = _inside.set(self)
        self._began = perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed = perf_counter_ns() - self._began
        _inside.reset(self._token)
        outer = self._outer
        if outer is None:
            return
        outer._inner += elapsed
        while isinstance(outer, stage):
            outer = outer._outer
        if outer is not None:
            # Tasks that run at the same time may use up more than the stage around them; never less than nothing.
            mine = max(0, elapsed - self._inner)
            outer.nanoseconds[self._name] = outer.nanoseconds.get(self._name, 0) + mine


_inside: ContextVar[Stopwatch | stage | None] = ContextVar("ragauge_stage", default=None)
"""The innermost stage of this thread or task; a context variable, so that concurrent queries do not mix."""
