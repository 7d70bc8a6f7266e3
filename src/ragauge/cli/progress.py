"""Progress display on a terminal, lines of progress elsewhere, and the message after Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ragauge.cli.failures import EXIT_INTERRUPTED, TerminationSignal
from ragauge.compute.progress import FINISHED, OVERALL, Progress
from ragauge.core.text import one_line

SHOW_AFTER_S = 0.5
"""Time after which the display appears."""
REDRAW_INTERVAL_S = 0.1
MIN_ESTIMATED_S = 10.0
"""Minimum duration that is worth an estimate."""
MAX_STEP_CHARS = 40
MIN_SUBJECT_CHARS = 4
"""Minimum length of a shortened subject."""


@contextmanager
def show_progress(resume_hint: str = "", *, lines: bool = False) -> Iterator[ProgressDisplay]:
    """Show progress on a terminal; after Ctrl-C, print where the command stopped and exit with 130.

    `resume_hint` says what is saved and how to resume. Without a terminal, `lines` prints a line for each subject.
    """
    display = ProgressDisplay(lines=lines)
    try:
        yield display
    except (KeyboardInterrupt, TerminationSignal) as interruption:
        display.close()
        hint = f"; {resume_hint}" if resume_hint else ""
        sys.stderr.write(f"\nstopped at {display.describe_step() or 'the beginning'}{hint}\n")
        if isinstance(interruption, KeyboardInterrupt):
            raise typer.Exit(EXIT_INTERRUPTED) from None
        raise
    finally:
        display.close()


class ProgressDisplay:
    """Callback that shows one row for the whole command and one for the current step."""

    def __init__(self, *, lines: bool = False) -> None:
        self._prints_lines = lines
        self._step = Progress("")
        self._done_before = 0
        self._step_began = self._drawn = time.monotonic()
        self._overall_began: float | None = None
        self._rows: dict[str, Any] = {}
        self._live: Any = None
        self._timer: threading.Timer | None = None
        if sys.stderr.isatty():
            self._live = _build_live_display()
            # A timer, because the first step can take long and reports nothing.
            self._timer = threading.Timer(SHOW_AFTER_S, self._live.start)
            self._timer.daemon = True
            self._timer.start()

    def __call__(self, progress: Progress) -> None:
        """Show a report; the display is redrawn at most ten times per second."""
        if not progress.stage and self._is_too_soon(progress):
            self._step = progress
            return
        # Names may come from the user, with control characters.
        progress = progress._replace(subject=one_line(progress.subject), action=one_line(progress.action))
        if progress.stage == FINISHED:
            self._print_line(f"{progress.subject}: {progress.action}")
        elif progress.stage == OVERALL:
            self._show_overall(progress)
        else:
            self._show_step(progress)

    def describe_step(self) -> str:
        """Describe the current step: subject, action, and how much of it is done."""
        step = self._step
        count = f" ({step.done:,} of {step.total:,})" if step.total > 1 else ""
        return f"{step.subject}: {step.action}{count}" if step.subject else f"{step.action}{count}"

    def close(self) -> None:
        """Remove the display from the terminal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
            self._live.stop()

    def _is_too_soon(self, step: Progress) -> bool:
        """Return whether a report on the same step comes too soon to be drawn; cheap, for each query of a run."""
        if step.action != self._step.action or step.subject != self._step.subject or step.done >= step.total > 0:
            return False
        return self._live is None or time.monotonic() - self._drawn < REDRAW_INTERVAL_S

    def _show_step(self, step: Progress) -> None:
        last, self._step = self._step, step  # set before printing: an interruption may follow at once
        now = time.monotonic()
        is_new = (step.subject, step.action) != (last.subject, last.action)
        if is_new:
            self._step_began, self._done_before = now, step.done
        if self._live is None:
            if self._prints_lines and is_new and (not step.subject or step.subject != last.subject):
                self._print_line(f"{step.subject}: {step.action}" if step.subject else step.action)
        else:
            self._drawn = now
            seconds, done = now - self._step_began, step.done - self._done_before
            rate = f"{done / seconds:,.0f}/s" if done and seconds > 1 else ""
            self._draw_row("step", step, fit_step(step.subject, step.action), rate, restart=is_new)

    def _show_overall(self, progress: Progress) -> None:
        time_left = self._format_time_left(progress)
        if self._live is not None:
            self._draw_row("overall", progress, progress.action, time_left)
        elif self._prints_lines and time_left and progress.done < progress.total:
            self._print_line(f"{progress.action}: {progress.done} of {progress.total} done, {time_left}")

    def _draw_row(self, row: str, progress: Progress, text: str, note: str, *, restart: bool = False) -> None:
        total = progress.total or None
        if row not in self._rows:
            self._rows[row] = self._live.add_task(text, total=total, note=note)
        elif restart:
            self._live.reset(self._rows[row], description=text)
        self._live.update(self._rows[row], description=text, completed=progress.done, total=total, note=note)

    def _print_line(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, style="dim", markup=False, highlight=False)
        elif self._prints_lines:
            sys.stderr.write(f"{text}\n")

    def _format_time_left(self, progress: Progress) -> str:
        """Format the estimated time left, from the mean duration so far; empty if short."""
        now = time.monotonic()
        if self._overall_began is None:
            self._overall_began = now
        n_left = progress.total - progress.done
        seconds = (now - self._overall_began) / progress.done * n_left if progress.done else 0.0
        return f"about {format_duration(seconds)} left" if seconds >= MIN_ESTIMATED_S else ""


def _build_live_display() -> Any:
    """Build a Rich progress display: name, bar, count, time, and a note such as the rate."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as LiveDisplay

    return LiveDisplay(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )


def format_duration(seconds: float) -> str:
    """Format a duration for an estimate.

    >>> format_duration(42.3), format_duration(200), format_duration(7300)
    ('42 s', '3 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def fit_step(subject: str, action: str, max_chars: int = MAX_STEP_CHARS) -> str:
    """Join the subject and the action of a step; the subject is shortened first.

    >>> fit_step("pgvector(index=hnsw, ef_search=100) one by one", "reading back after kill -9")
    'pgvect…y one: reading back after kill -9'
    """
    text = f"{subject}: {action}" if subject else action
    if len(text) <= max_chars:
        return text
    subject_chars = max_chars - len(action) - len(": ")
    if subject and subject_chars >= MIN_SUBJECT_CHARS:
        return f"{_shorten_middle(subject, subject_chars)}: {action}"
    return _shorten_middle(action, max_chars)


def _shorten_middle(text: str, max_chars: int) -> str:
    """Keep the beginning and the end of a text, with an ellipsis between them."""
    half = (max_chars - 1) // 2
    return text if len(text) <= max_chars else f"{text[: max_chars - 1 - half]}…{text[-half:]}"
