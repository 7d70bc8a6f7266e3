"""Resume interrupted commands: journals of finished runs are kept until the whole command is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class _CommandState:
    """Journals of the runs that a command has finished so far, and whether it was interrupted."""

    journals: list[Path] = field(default_factory=list)
    interrupted: bool = False


_CURRENT_COMMAND: ContextVar[_CommandState | None] = ContextVar("command", default=None)


@contextmanager
def command_scope() -> Iterator[None]:
    """Remove the journals of finished runs at the end, unless interrupted.

    This happens when the outermost scope ends. A journal next to a finished run means that a later part of the command
    was interrupted: the next command resumes there and reuses the run.
    """
    outer = _CURRENT_COMMAND.get()
    command = outer or _CommandState()
    token = _CURRENT_COMMAND.set(command)
    try:
        yield
    except Exception:
        raise
    except BaseException:  # Ctrl-C
        command.interrupted = True
        raise
    finally:
        _CURRENT_COMMAND.reset(token)
        if outer is None and not command.interrupted:
            for journal in command.journals:
                journal.unlink(missing_ok=True)


def remove_journal_when_done(journal: Path) -> None:
    """Remove the journal of a finished run when the command ends.

    It is removed now if no command is active.
    """
    command = _CURRENT_COMMAND.get()
    if command is None:
        journal.unlink(missing_ok=True)
    else:
        command.journals.append(journal)
