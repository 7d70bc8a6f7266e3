"""Exceptions that ragauge raises on purpose.

    RagaugeError
    ├── BadInput         also a ValueError    an input is invalid: file, line, what was expected
    ├── UnknownName      also a LookupError   no measure, convention or format has that name
    ├── MissingEvidence  also a ValueError    a score cannot be computed from this data
    ├── MissingExtra     also an ImportError  an optional library is not installed
    ├── BackendFailed    also a RuntimeError  a server or library failed; with its error message
    │   └── BackendRestarted                  a server died and was restarted; the query can be run again
    ├── Incomparable     also a ValueError    two results differ in more than the system; what differs is named
    └── CheckFailed      also an AssertionError  a gate failed; the rules that failed, with their values

A message is one sentence. A hint says what to do next. `exit_code` is the exit code of the command line.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from ragauge.core.secrets import redact

if TYPE_CHECKING:
    import polars as pl


MAX_QUOTED_CHARS = 80
"""Maximum number of characters of a value that a message quotes."""
_LONG_VALUE = re.compile(
    rf"(?<![^\s(])(?:(`)([^`]{{{MAX_QUOTED_CHARS}}})[^`]+`|(')([^']{{{MAX_QUOTED_CHARS}}})[^']+'|(\")([^\"]{{{MAX_QUOTED_CHARS}}})[^\"]+\")"
    rf"|([^\s/]{{{4 * MAX_QUOTED_CHARS}}})[^\s/]+"
)
"""A quoted value longer than MAX_QUOTED_CHARS, or a very long word that is not part of a path."""


def excerpt(text: str, length: int = MAX_QUOTED_CHARS) -> str:
    """Cut a text to at most `length` characters.

    >>> excerpt("word " * 100, 12)
    'word word w…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _shorten_match(match: re.Match[str]) -> str:
    mark, text = [group for group in match.groups() if group] if match[7] is None else ("", match[7])
    return f"{mark}{excerpt(text + ' ')}{mark}"


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt name most likely means, if any is plausible.

    It differs in at most a third of its characters, or continues the given name. A prefix such as `synthetic:` can be
    left out.

    >>> suggest_name("ndgc", ["ndcg", "recall"]), suggest_name("faithful", ["faithfulness"])
    ('ndcg', 'faithfulness')
    >>> suggest_name("generate", ["gate"]), suggest_name("pinecone", ["pgvector"])
    (None, None)
    >>> suggest_name("needle", ["synthetic:needles"])
    'synthetic:needles'
    """
    name = name[:MAX_QUOTED_CHARS]
    names = list(known)
    full_names = {full_name.rpartition(":")[2]: full_name for full_name in names if ":" not in name} | {
        full_name: full_name for full_name in names
    }
    for candidate in difflib.get_close_matches(name, full_names, n=3, cutoff=0.5):
        if _edit_distance(name.lower(), candidate.lower()) <= max(1, max(len(name), len(candidate)) // 3):
            return full_names[candidate]
    continuations = (
        full_name for candidate, full_name in full_names.items() if candidate.lower().startswith(name.lower())
    )
    return next(continuations, None) if len(name) > 2 else None


def add_suggestion(suggestion: str | None, hint: str) -> str:
    """Precede a hint by the name that was probably meant, if there is one.

    >>> add_suggestion("ndcg@10", "list all with `ragauge measures`")
    'did you mean `ndcg@10`? List all with `ragauge measures`'
    """
    return f"did you mean `{suggestion}`? {hint[:1].upper()}{hint[1:]}".rstrip() if suggestion else hint


def _edit_distance(first: str, second: str) -> int:
    """Return the number of edits between two texts: inserted, deleted, replaced or swapped characters.

    >>> _edit_distance("ndgc", "ndcg"), _edit_distance("generate", "gate")
    (1, 4)
    """
    earlier_row: list[int] = []
    last_row = list(range(len(second) + 1))
    for i, first_letter in enumerate(first, 1):
        row = [i]
        for j, second_letter in enumerate(second, 1):
            row.append(min(last_row[j] + 1, row[-1] + 1, last_row[j - 1] + (first_letter != second_letter)))
            if i > 1 and j > 1 and first_letter == second[j - 2] and first[i - 2] == second_letter:
                row[-1] = min(row[-1], earlier_row[j - 2] + 1)
        earlier_row, last_row = last_row, row
    return last_row[-1]


class RagaugeError(Exception):
    """Base class of all exceptions that ragauge raises on purpose. Long values quoted in the message are cut."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _clean_message(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else redact(hint)

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def add_prefix(self, name: str) -> Self:
        """Name the system or dataset at the start of the message."""
        self.message = f"{name}: {self.message}"
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickle without calling the constructor, whose parameters differ between the classes.
        return rebuild_error, (type(self), self.args, self.__dict__)


def _clean_message(text: str) -> str:
    """Redact secrets, which a quoted service or library may repeat, and cut long quoted values."""
    return _LONG_VALUE.sub(_shorten_match, redact(text))


def error_summary(
    error: BaseException, *, with_class: bool = False, all_lines: bool = False, max_chars: int = 0
) -> str:
    r"""Return the first line of an exception's message, or the name of its class if the message is empty.

    `with_class` puts the name of the class first, `all_lines` joins all lines, and `max_chars` cuts the text unless 0.

    >>> error_summary(OSError("no such file\nor folder")), error_summary(TimeoutError())
    ('no such file', 'TimeoutError')
    >>> error_summary(OSError("no such file\nor folder"), with_class=True, all_lines=True)
    'OSError: no such file or folder'
    """
    name, message = type(error).__name__, str(error).strip()
    text = (f"{name}: {message}" if with_class else message) if message else name
    line = redact(" ".join(text.split()) if all_lines else text.splitlines()[0])
    return line[:max_chars] if max_chars else line


def failed_queries(timings: pl.DataFrame | None) -> dict[str, str]:
    """Find `{query: error}` for the rows of a run's timings whose status is not `ok`."""
    error_by_query: dict[str, str] = {}
    if timings is not None and "status" in timings.columns:
        failed = timings.filter(timings["status"] != "ok")
        errors = failed["error"] if "error" in failed.columns else failed["status"]
        for query, status, error in zip(failed["query"], failed["status"], errors, strict=True):
            error_by_query.setdefault(query, error or status)
    return error_by_query


def describe_failures(failures: Mapping[str, str], n: int, *, scored: bool = True) -> str:
    """Describe how many of `n` queries failed, their scoring, and the first error.

    Return an empty string if none failed.

    >>> describe_failures({"q2": "KeyError: 'x'"}, 5)
    "1 of 5 queries failed and count as empty rankings; first: q2: KeyError: 'x'"
    """
    if not failures:
        return ""
    query, error = next(iter(failures.items()))
    fate = " and count as empty rankings" if scored else ""
    return f"{len(failures):,} of {n:,} queries failed{fate}; first: {query}: {error}"


def rebuild_error(kind: type[RagaugeError], args: tuple[Any, ...], state: Mapping[str, Any]) -> RagaugeError:
    """Build an error from its class, arguments and attributes; other processes send these."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class BadInput(RagaugeError, ValueError):
    """An input that cannot be read or used; the message starts with `file:line` if they are known.

    `setting` is the name of an invalid setting, which the message is about.

    >>> error = BadInput("must be at least 1, got 0", setting="k")
    >>> error.name_setting("-k")
    >>> print(error)
    -k must be at least 1, got 0
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
        setting: str | None = None,
    ) -> None:
        location = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(location + (f"{setting} {message}" if setting else message), hint=hint)
        self.file = file
        self.line = line
        self.setting = setting
        self._problem = message

    def name_setting(self, option: str) -> None:
        """Replace the name of the setting in the message, e.g. by that of a command-line option."""
        self.message = _clean_message(f"{option} {self._problem}")


class UnknownName(RagaugeError, LookupError):
    """An unknown name of a measure, convention or format; the hint has the closest known one.

    Without `hint`, it lists the known names.

    >>> print(UnknownName("option", "gian", ["gain", "rel"], of="ndcg"))
    unknown option `gian` of ndcg
    hint: did you mean `gain`? Choose one of gain, rel
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], *, of: str = "", hint: str | None = None) -> None:
        known_names = sorted(known) if isinstance(known, set | frozenset) else list(known)
        if hint is None:
            hint = f"choose one of {', '.join(known_names)}" if known_names else "none is available"
        hint = add_suggestion(suggest_name(name, known_names), hint)
        super().__init__(f"unknown {kind} `{name}`{of and f' of {of}'}", hint=hint or None)
        self.name = name


class MissingEvidence(RagaugeError, ValueError):
    """A score that these judgments or this run do not allow to compute."""


class MissingExtra(RagaugeError, ImportError):
    """A missing optional library; the hint is the command that installs it.

    If raised while an ImportError is handled, the message quotes it, because an installed library may be broken.
    """

    def __init__(self, what: str, extra: str) -> None:
        cause = sys.exception()
        reason = f" ({error_summary(cause)})" if isinstance(cause, ImportError) else ""
        super().__init__(f"{what} needs an optional library{reason}", hint=install_command(extra))


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    It names the clone if ragauge was installed from a folder that still exists: pip writes its path to the metadata.
    Otherwise it names the package, whose extras pip finds in the installed metadata.
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
        return f"pip install {shlex.quote(f'ragauge[{extra}]')}"
    folder = "." if clone == Path.cwd() else str(clone)
    return f"pip install {'-e ' if editable else ''}{shlex.quote(f'{folder}[{extra}]')}"


class BackendFailed(RagaugeError, RuntimeError):
    """A failed server or library; the message quotes its error without passwords."""

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        is_temporary: bool = False,
        retry_after_s: float | None = None,
        fails_all_calls: bool = False,
        is_overload: bool = False,
        needs_other_format: bool = False,
        has_unknown_cost: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_temporary = is_temporary
        """Whether a retry may succeed."""
        self.retry_after_s = retry_after_s
        """Seconds to wait before a retry, if the server says so."""
        self.fails_all_calls = fails_all_calls
        """Whether all further requests will fail too, e.g. after a wrong key or with an empty account."""
        self.is_overload = is_overload
        """Whether the server is overloaded, so that all callers should reduce their rate."""
        self.needs_other_format = needs_other_format
        """Whether the next request will have another format, so that an immediate retry is useful."""
        self.has_unknown_cost = has_unknown_cost
        """Whether no reply came, so that the cost of the request is unknown."""
        self.attempts = 1
        """Number of requests."""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        """Tokens billed for replies that led to this error; `prompt_tokens` are those of the prompts."""


class BackendRestarted(BackendFailed):
    """A server that died during a query and was restarted: the query can be run again, but its latency is invalid."""


class Incomparable(RagaugeError, ValueError):
    """Two results with different queries, data, convention or judge; the message names what differs."""

    exit_code = 4


class CheckFailed(RagaugeError, AssertionError):
    """A failed gate; the message lists the rules that failed."""

    exit_code = 1


class InputWarning(UserWarning):
    """Part of an input was changed or left out; the command line prints the message as a note."""
