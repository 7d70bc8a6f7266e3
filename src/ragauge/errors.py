"""Everything raised on purpose.

    RagaugeError
    ├── BadInput         also a ValueError    what was given cannot be read: file, line, what was expected
    ├── UnknownName      also a LookupError   no measure, convention or format has that name
    ├── MissingEvidence  also a ValueError    a number was asked for that this data cannot give
    ├── MissingExtra     also an ImportError  an optional library is not installed
    ├── BackendFailed    also a RuntimeError  a server or library behind a seam failed; its own words
    │   └── BackendRestarted                  a server died and was restarted; the query can be run again
    ├── Incomparable     also a ValueError    two results differ in more than the system; what differs is named
    └── CheckFailed      also an AssertionError  a gate did not pass; each rule that failed, with its figures

A message is one sentence. A hint says what to do next. `exit_code` is what the command line returns.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from ragauge.keys import redact

if TYPE_CHECKING:
    import polars as pl

QUOTED = 80
"""Maximum number of characters of a value that a message quotes."""
_LONG = re.compile(
    rf"(?<![^\s(])(?:(`)([^`]{{{QUOTED}}})[^`]+`|(')([^']{{{QUOTED}}})[^']+'|(\")([^\"]{{{QUOTED}}})[^\"]+\")"
    rf"|([^\s/]{{{4 * QUOTED}}})[^\s/]+"
)
"""A quoted value, or a word that is not part of a path, of more characters."""


def excerpt(text: str, length: int = QUOTED) -> str:
    """Cut a text that a message quotes.

    >>> excerpt("word " * 100, 12)
    'word word w…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _shorten(match: re.Match[str]) -> str:
    mark, text = [group for group in match.groups() if group] if match[7] is None else ("", match[7])
    return f"{mark}{excerpt(text + ' ')}{mark}"


class RagaugeError(Exception):
    """The root of everything that ragauge raises on purpose. Values that its message quotes are cut."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        # Most messages quote a service or a library, which may repeat a password.
        message = _LONG.sub(_shorten, redact(message))
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else redact(hint)

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
    return redact((str(error).strip() or type(error).__name__).splitlines()[0])


def failed_queries(timings: pl.DataFrame | None) -> dict[str, str]:
    """Return `{query: error}` of the rows of a run's timings that have a status other than `ok`."""
    found: dict[str, str] = {}
    if timings is not None and "status" in timings.columns:
        failed = timings.filter(timings["status"] != "ok")
        errors = failed["error"] if "error" in failed.columns else failed["status"]
        for query, status, error in zip(failed["query"], failed["status"], errors, strict=True):
            found.setdefault(query, error or status)
    return found


def describe_failures(failures: Mapping[str, str], n: int, *, scored: bool = True) -> str:
    """Return how many of `n` queries failed, how they are scored, and the first error; empty if none failed.

    >>> describe_failures({"q2": "KeyError: 'x'"}, 5)
    "1 of 5 queries failed and count as empty rankings; first: q2: KeyError: 'x'"
    """
    if not failures:
        return ""
    query, error = next(iter(failures.items()))
    fate = " and count as empty rankings" if scored else ""
    return f"{len(failures):,} of {n:,} queries failed{fate}; first: {query}: {error}"


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


def check_count(name: str, value: Any, low: int, high: int = 1_000_000) -> None:
    """Raise BadInput unless `value` is a whole number from `low` to `high`.

    >>> check_count("repeats", 10**20, 1, 100_000)
    Traceback (most recent call last):
    ragauge.errors.BadInput: repeats must be between 1 and 100,000, got 100,000,000,000,000,000,000
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise BadInput(f"{name} must be a whole number between {low:,} and {high:,}, got {value!r}")
    if not low <= int(value) <= high:
        raise BadInput(f"{name} must be between {low:,} and {high:,}, got {int(value):,}")


class UnknownName(RagaugeError, LookupError):
    """No measure, convention or format has that name; the nearest one is in the hint."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        near = difflib.get_close_matches(name[:QUOTED], list(known), n=1, cutoff=0.5)
        guess = f"did you mean `{near[0]}`?" if near else ""
        super().__init__(f"no {kind} is named `{name}`", hint=" ".join(filter(None, [guess, hint])) or None)
        self.name = name


class MissingEvidence(RagaugeError, ValueError):
    """A number was asked for that these judgments or this run cannot give."""


class MissingExtra(RagaugeError, ImportError):
    """An optional library is not installed; the hint is the command that installs it.

    Raised while an ImportError is handled, its message has the text of that error: a library may be broken, too.
    """

    def __init__(self, what: str, extra: str) -> None:
        cause = sys.exception()
        told = f" ({words_of(cause)})" if isinstance(cause, ImportError) else ""
        super().__init__(f"{what} needs an optional library{told}", hint=install_command(extra))


def install_command(extra: str) -> str:
    """Return the command that installs an extra; ragauge is not on PyPI, so it names the clone.

    The path of the clone is in the metadata that pip writes when it installs from a folder.
    """
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("ragauge").read_text("direct_url.json") or "{}")
        clone = Path(url2pathname(urlsplit(origin["url"]).path))
        editable = origin.get("dir_info", {}).get("editable", False)
    except (PackageNotFoundError, OSError, ValueError, KeyError):
        clone, editable = Path(), False
    if not (clone / "pyproject.toml").exists() or clone == Path():
        return f"in a clone of ragauge, run `pip install '.[{extra}]'`"
    folder = "." if clone == Path.cwd() else str(clone)
    return f"pip install {'-e ' if editable else ''}{shlex.quote(f'{folder}[{extra}]')}"


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
        self.adapted = False
        """Whether the next request will have another format, so that it is worth sending at once."""
        self.unanswered = False
        """Whether no answer came, so that the cost of the request is unknown."""
        self.attempts = 1
        """Number of requests."""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        """What was spent nevertheless, on replies that led to it."""


class BackendRestarted(BackendFailed):
    """A server died during a query and runs again: the query can be run again, and its time is not meaningful."""


class Incomparable(RagaugeError, ValueError):
    """Two results are not of the same queries, data, convention or judge; the message names what differs."""

    exit_code = 4


class CheckFailed(RagaugeError, AssertionError):
    """A gate did not pass; the message lists the rules that failed."""

    exit_code = 1


class InputWarning(UserWarning):
    """Part of an input was changed or left out; the command line prints the message as a note."""
