"""Exit codes, one-line messages for errors that ragauge did not raise itself, and reports of unexpected errors."""

from __future__ import annotations

import errno
import gc
import io
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ragauge.core.errors import BadInput, RagaugeError, error_summary, excerpt
from ragauge.core.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Callable


EXIT_UNEXPECTED = 70
"""Exit code of an error in ragauge itself."""
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
"""Exit code after the reader of the output closed the pipe, as the shell reports it for other programs."""
EXIT_INVALID = 2
MAX_COUNT = 2**31 - 1
"""Maximum value of an option that counts something."""
MAX_SEED = 2**63 - 1
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OS_ERROR_HINTS = {
    **dict.fromkeys(DISK_FULL_ERRNOS, "free some space, or set TMPDIR and RAGAUGE_CACHE to folders on another disk"),
    errno.EACCES: "check the permissions of this path",
    errno.EPERM: "check the permissions of this path",
    errno.EROFS: "choose a path that can be written, e.g. with -o, or set RAGAUGE_CACHE",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
}
"""Hints by errno for errors of the file system."""

P = ParamSpec("P")
R = TypeVar("R")


class CarriedException(Exception):
    """Exception that carries its cause past Typer, which would exit with 1 for it."""


def pass_exceptions(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that Typer does not turn its exceptions into exit codes."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        if not gc.isenabled():  # `ragauge.cli.main` turned it off
            gc.freeze()  # What was imported is never garbage, so no collection needs to look at it.
            gc.enable()
        try:
            for name, value in options.items():
                check_whole_numbers(name, value)
            return command(*arguments, **options)
        except BadInput as error:
            if error.setting is not None and options.get(error.setting) is not None:
                error.name_setting(spell_option(error.setting))
            raise
        except (EOFError, OSError, SystemExit, KeyboardInterrupt) as error:
            raise CarriedException from error

    return run


class TerminationSignal(SystemExit):
    """Exception raised by a termination signal; its code is that of the signal."""


def clean_up_when_terminated() -> None:
    """Make SIGTERM and SIGHUP unwind the stack.

    This removes temporary files and stops servers. A second signal kills the process.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
        raise TerminationSignal(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, stop)


def check_whole_numbers(name: str, value: object) -> None:
    """Raise BadInput for integers that are negative or too large for any option.

    >>> check_whole_numbers("k", 10**20)
    Traceback (most recent call last):
    ragauge.core.errors.BadInput: -k must be at most 2,147,483,647, got 100000000000000000000
    """
    for number in value if isinstance(value, list | tuple) else (value,):
        limit = MAX_SEED if name == "seed" else MAX_COUNT
        if isinstance(number, int) and not isinstance(number, bool) and not 0 <= number <= limit:
            raise BadInput(
                f"{spell_option(name)} must be {'at least 0' if number < 0 else f'at most {limit:,}'}, got {number}"
            )


def spell_option(name: str) -> str:
    """Return an option as it is typed, by the name of its parameter.

    >>> spell_option("k"), spell_option("max_queries")
    ('-k', '--max-queries')
    """
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def open_streams() -> None:
    """Open closed standard streams on the null device; replace unencodable characters.

    Without this, the next opened file would get the descriptor of a closed stream and receive its output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            # PYTHONUNBUFFERED: a write to a raw file may write only a part, without an error.
            encoding, raw = stream.encoding, stream.detach()
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), encoding, line_buffering=True))
        if isinstance(getattr(sys, name), io.TextIOWrapper):
            getattr(sys, name).reconfigure(errors="replace")  # characters that the terminal lacks are replaced


def end_command(error: BaseException, *, debug: bool) -> int:
    """Print why a command ended, and return its exit code."""
    code = _print_failure(error, debug=debug)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # e.g. a full disk: Python would flush again at exit, and change the exit code
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _print_failure(error: BaseException, *, debug: bool) -> int:
    if isinstance(error, CarriedException) and error.__cause__ is not None:
        error = error.__cause__
    if any(isinstance(exception, KeyboardInterrupt) for exception in _exception_chain(error)):
        return EXIT_INTERRUPTED
    if terminated := [exception for exception in _exception_chain(error) if isinstance(exception, TerminationSignal)]:
        return int(str(terminated[0].code))
    if (
        any(isinstance(exception, BrokenPipeError) for exception in _exception_chain(error))
        and _is_output_pipe_closed()
    ):
        return EXIT_CLOSED_PIPE
    if debug:
        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    if isinstance(error, RagaugeError):
        _print_error(str(error))
        return error.exit_code
    if isinstance(error, OSError) and (message := describe_os_error(error)):
        _print_error(message)
        return EXIT_INVALID
    # The message of a foreign error may quote its input; the report has all of it.
    description = f"{type(error).__name__}: {excerpt(error_summary(error))}"
    _print_error(
        f"unexpected error in ragauge ({description}); {'' if debug else save_report(error)}".removesuffix("; ")
    )
    return EXIT_UNEXPECTED


def describe_os_error(error: OSError) -> str | None:
    """Describe an error of the file system.

    None if it is of another kind, such as a closed connection.
    """
    if error.errno is None or (error.filename is None and error.errno not in OS_ERROR_HINTS):
        return None
    prefix = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    hint = OS_ERROR_HINTS.get(error.errno)
    return f"{prefix}{(error.strerror or error_summary(error)).lower()}" + (f"\nhint: {hint}" if hint else "")


def save_report(error: BaseException) -> str:
    """Save a traceback with versions in the temporary folder, and return where.

    The home and working folders are tried next. The arguments of the command are not saved, since they can have
    passwords.
    """
    import platform

    from ragauge import __version__

    lines = [
        f"ragauge {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"command: {' '.join(word for word in sys.argv[1:2] if word.isascii())}\n\n",
        *traceback.format_exception(error),
    ]
    for folder in _report_folders():
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", errors="backslashreplace", prefix="ragauge-error-", suffix=".txt",
                dir=folder, delete=False,
            ) as file:  # fmt: skip
                file.writelines(map(redact, lines))
        except OSError:
            continue
        return f"report saved to {file.name}"
    return "the report could not be saved; add --debug to print it"


def _report_folders() -> Iterator[str]:
    with suppress(OSError):
        yield tempfile.gettempdir()
    yield from (str(Path.home()), ".")


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and those during whose handling it was raised."""
    seen_ids: set[int] = set()
    while error is not None and id(error) not in seen_ids:
        seen_ids.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_output_pipe_closed() -> bool:
    """Return whether a standard stream is a pipe without a reader.

    Further output of such a stream goes to the null device.
    """
    is_closed = False
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            number = stream.fileno()
            poll = select.poll()
            poll.register(number, select.POLLOUT)
            if any(events & select.POLLERR for _, events in poll.poll(0)):
                is_closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return is_closed


def _print_error(message: str) -> None:
    text = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in message)  # it may quote a file
    with suppress(OSError):
        sys.stderr.write(f"error: {text}\n")
        sys.stderr.flush()
