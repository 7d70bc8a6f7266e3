"""Progress displays: bars with rate and remaining time on a terminal, one line per system elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ragauge.core.text import one_line


@contextmanager
def show_status(after: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a status line on a terminal after `after` seconds.

    Nothing is shown elsewhere.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    began = time.monotonic()
    line = Console(stderr=True).status("")

    def tell(what: str) -> None:
        line.update(Text(what))
        if time.monotonic() - began >= after:
            line.start()

    try:
        yield tell
    finally:
        line.stop()


def _build_progress(*more: Any) -> Any:
    """Build a Rich progress display with a bar, a count and additional columns."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    told = TextColumn("{task.description}", markup=False)
    first = (SpinnerColumn(), told, BarColumn(bar_width=12), MofNCompleteColumn())
    return Progress(*first, *more, console=Console(stderr=True), transient=True)


class ExperimentProgress:
    """Progress of an experiment; without a terminal, one line per system."""

    def __init__(self) -> None:
        self._live: Any = None
        self._task: Any = None
        self._began = 0.0
        self._steps = self._shown = 0
        self._built = self._drawn = 0.0
        self.now = ""
        """Current system, for the message after an interruption."""
        if sys.stderr.isatty():
            from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

            rate = TextColumn("{task.fields[rate]}", markup=False)
            self._live = _build_progress(rate, TimeElapsedColumn(), TimeRemainingColumn(compact=True))

    def __enter__(self) -> ExperimentProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, system: str, total: int, done: int) -> None:
        """Report that a system is about to be built and run."""
        system = one_line(system)
        self._began = time.perf_counter()
        self._steps = self._shown = 0
        self.now = system
        if self._live is not None:
            short = system if len(system) <= 24 else f"{system[:14]}…{system[-9:]}"
            self._task = self._live.add_task(short, total=total, completed=done, rate="building")
        elif done < total:
            sys.stderr.write(f"{system}: building\n")

    def building(self, done: int, total: int) -> None:
        """Report the number of documents embedded so far."""
        if self._live is not None:
            self._live.update(self._task, rate=f"embeds {done:,}/{total:,}")

    def step(self) -> None:
        """Report that one query is done; the bar is redrawn at most ten times per second."""
        self._steps += 1
        now = time.perf_counter()
        if self._steps == 1:
            self._built = now - self._began
            self._began = self._drawn = now
        if self._live is None:
            return
        if now - self._drawn > 0.1:
            self._drawn = now
            rate = self._steps / max(now - self._began, 1e-9)
            self._live.update(self._task, advance=self._steps - self._shown, rate=f"{rate:,.0f} q/s")
            self._shown = self._steps

    def end(self, system: str) -> None:
        """Report that a system is done."""
        system = one_line(system)
        seconds = time.perf_counter() - self._began
        if self._live is not None:
            self._live.remove_task(self._task)
        if self._steps:
            line = f"{system}: built in {self._built:.1f} s, {self._steps} queries in {seconds:.1f} s"
            if self._live is not None:
                self._live.console.print(line, style="dim", markup=False, highlight=False)
            else:
                sys.stderr.write(f"{line}\n")


MIN_ESTIMATED_S = 10.0
"""Minimum duration that is worth an estimate."""


def format_duration(seconds: float) -> str:
    """Format a duration for an estimate.

    >>> format_duration(42.3), format_duration(200), format_duration(7300)
    ('42 s', '3 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


MIN_SUBJECT_CHARS = 4
"""Minimum length of a shortened subject."""


def fit_stage(stage: str, room: int = 40) -> str:
    """Shorten a stage to `room` characters; its subject is shortened first.

    >>> fit_stage("pgvector(index=hnsw, ef_search=100) one by one: reading back after kill -9")
    'pgvect…y one: reading back after kill -9'
    """
    if len(stage) <= room:
        return stage
    subject, _, doing = stage.partition(": ")
    left = room - len(doing) - len(": ")
    return (
        f"{_shorten_middle(subject, left)}: {doing}"
        if doing and left >= MIN_SUBJECT_CHARS
        else _shorten_middle(doing or subject, room)
    )


def _shorten_middle(text: str, room: int) -> str:
    """Keep the beginning and the end of a text, with an ellipsis between them."""
    half = (room - 1) // 2
    return text if len(text) <= room else f"{text[: room - 1 - half]}…{text[-half:]}"


class StageProgress:
    """Progress of a sweep: the number of stores done, and the current stage.

    Without a terminal, it prints each configuration and stage when it begins.
    """

    WHOLE = "stores"
    """Name of the stage that counts all others."""

    def __init__(self) -> None:
        self._live: Any = None
        self._tasks: dict[str, Any] = {}
        self._drawn = 0.0
        self._began: float | None = None
        self.now = ""
        """Current stage, for the message after an interruption."""
        if sys.stderr.isatty():
            from rich.progress import TextColumn, TimeElapsedColumn

            self._live = _build_progress(TimeElapsedColumn(), TextColumn("{task.fields[left]}", markup=False))

    def __enter__(self) -> StageProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report the number done of a stage; redrawn at most ten times per second."""
        stage = one_line(stage)  # it may contain a name given by the user
        row = self.WHOLE if stage == self.WHOLE else "stage"
        left = self._format_time_left(done, total) if row == self.WHOLE else ""
        fresh, last = row == "stage" and stage != self.now, self.now
        if row == "stage":
            self.now = stage  # set before printing: an interruption may follow at once
        if self._live is None:
            what, before = (text.partition(": ")[0] for text in (stage, last))
            if fresh and what != before:
                sys.stderr.write(f"{stage}\n")
            elif left and done < total:
                sys.stderr.write(f"{stage}: {done} of {total} done, {left}\n")
        elif fresh or done >= total or time.perf_counter() - self._drawn > 0.1:
            self._drawn = time.perf_counter()
            short = fit_stage(stage)
            if row not in self._tasks:
                self._tasks[row] = self._live.add_task(short, total=total, left="")
            elif fresh:
                self._live.reset(self._tasks[row], description=short, total=total)
            self._live.update(self._tasks[row], description=short, completed=done, total=total, left=left)

    def _format_time_left(self, done: int, total: int) -> str:
        """Format the estimated time left, from the mean duration so far; empty if short."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        seconds = (now - self._began) / done * (total - done) if done else 0.0
        return f"about {format_duration(seconds)} left" if seconds >= MIN_ESTIMATED_S else ""


class CountProgress:
    """Progress of a single count on a terminal, shown after one second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._live: Any = None
        self._task: Any = None
        self._began = self._drawn = time.perf_counter()
        self.done = self.total = 0
        """Counts for the message after an interruption."""

    def __enter__(self) -> CountProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._task, completed=self.done, total=self.total)
            self._live.stop()

    def __call__(self, done: int, total: int) -> None:
        """Report the number done; redrawn at most ten times per second."""
        self.done, self.total = done, total
        now = time.perf_counter()
        if not sys.stderr.isatty() or now - self._began < 1 or now - self._drawn < 0.1:
            return
        self._drawn = now
        if self._live is None:
            from rich.progress import TimeElapsedColumn, TimeRemainingColumn

            self._live = _build_progress(TimeElapsedColumn(), TimeRemainingColumn(compact=True))
            self._task = self._live.add_task(self._what, total=total, completed=done)
            self._live.start()
        self._live.update(self._task, completed=done, total=total)
