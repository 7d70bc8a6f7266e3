"""The command line as a user has it: a process in a folder, at 80 columns and without colour."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def command_in(folder: Path, *first: str, **environment: str) -> Callable[..., Done]:
    """A function that runs `ragauge`, `first` before whatever it is given; it must end with `code`, and tidily."""

    def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "ragauge", *first, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=folder,
            check=False,
            input=stdin,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", **environment},
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run
