"""Everything raised on purpose.

    RagaugeError
    ├── BadInput         also a ValueError    what was given cannot be read: file, line, what was expected
    ├── UnknownName      also a LookupError   no measure, convention or format has that name
    ├── MissingEvidence  also a ValueError    a number was asked for that this data cannot give
    ├── MissingExtra     also an ImportError  an optional library is not installed
    ├── BackendFailed    also a RuntimeError  a server or library behind a seam failed; its own words
    ├── Incomparable     also a ValueError    two results differ in more than the system; what differs is named
    └── CheckFailed      also an AssertionError  a gate did not pass; each rule that failed, with its figures

A message is one sentence. A hint says what to do next. `exit_code` is what the command line returns.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class RagaugeError(Exception):
    """The root of everything that ragauge raises on purpose."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # An error that another process raised arrives as it was, whatever its constructor asks for.
        return _raised_elsewhere, (type(self), self.args, self.__dict__)


def words_of(error: BaseException) -> str:
    r"""The first line of what somebody else's error says; its name where it says nothing.

    >>> words_of(OSError("no such file\nor folder")), words_of(TimeoutError())
    ('no such file', 'TimeoutError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _raised_elsewhere(kind: type[RagaugeError], args: tuple[Any, ...], state: dict[str, Any]) -> RagaugeError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class BadInput(RagaugeError, ValueError):
    """What was given cannot be read; the message starts with `file:line` where there is one."""

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        where = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(where + message, hint=hint)
        self.file = file
        self.line = line


class UnknownName(RagaugeError, LookupError):
    """No measure, convention or format has that name; the nearest one is in the hint."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
        guess = f"did you mean `{near[0]}`?" if near else ""
        super().__init__(f"no {kind} is named `{name}`", hint=" ".join(filter(None, [guess, hint])) or None)
        self.name = name


class MissingEvidence(RagaugeError, ValueError):
    """A number was asked for that these judgments or this run cannot give."""


class MissingExtra(RagaugeError, ImportError):
    """An optional library is not installed; the hint is the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional library", hint=f"pip install 'ragauge[{extra}]'")


class BackendFailed(RagaugeError, RuntimeError):
    """A server or library behind a seam failed; the message has its own words, never a password."""

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        passing: bool = False,
        after: float | None = None,
        final: bool = False,
        busy: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing
        """Whether it may help to try again."""
        self.after = after
        """Seconds to wait before that, where the server says so."""
        self.final = final
        """Whether nothing else will work either: a wrong key, an empty account."""
        self.busy = busy
        """Whether it had too much to do, so that everybody should ask it less."""
        self.attempts = 1
        """How often it was tried."""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        """What was spent nevertheless, on replies that led to it."""


class Incomparable(RagaugeError, ValueError):
    """Two results are not of the same queries, data, convention or judge; the message names what differs."""

    exit_code = 4


class CheckFailed(RagaugeError, AssertionError):
    """A gate did not pass; the message lists the rules that failed."""

    exit_code = 1
