"""Progress reports of long operations, and the callback that receives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

OVERALL = "overall"
"""Stage of a report that counts the systems, stores or datasets of the whole operation."""
FINISHED = "finished"
"""Stage of the last report on a subject; its action is a summary."""


class Progress(NamedTuple):
    """Report on a long operation."""

    action: str
    """Current step, e.g. `embedding documents`."""
    done: int = 0
    """Number of items done."""
    total: int = 0
    """Number of items; 0 if it is unknown, or if the step has no items."""
    subject: str = ""
    """System, store or file that the step works on."""
    stage: str = ""
    """`OVERALL`, `FINISHED`, or empty for a step."""


ProgressCallback = Callable[[Progress], None]
"""Function that receives reports on a long operation."""


def no_progress(progress: Progress) -> None:
    """Ignore a report."""


def scoped(callback: ProgressCallback, *, subject: str = "", action: str = "") -> ProgressCallback:
    """Return a callback that sets the subject or the action of each report.

    >>> scoped(print, subject="dense", action="embedding documents")(Progress("embedding", 2, 5))
    Progress(action='embedding documents', done=2, total=5, subject='dense', stage='')
    """

    def report(progress: Progress) -> None:
        callback(progress._replace(subject=subject or progress.subject, action=action or progress.action))

    return no_progress if callback is no_progress else report


def track(items: Sequence[T], callback: ProgressCallback, action: str) -> Iterator[T]:
    """Yield the items, and report the number done before each and after the last.

    >>> for item in track(["a", "b"], lambda progress: print(progress.done, progress.total), "reading"):
    ...     print(item)
    0 2
    a
    1 2
    b
    2 2
    """
    for done, item in enumerate(items):
        callback(Progress(action, done, len(items)))
        yield item
    callback(Progress(action, len(items), len(items)))
