"""Commands as a user runs them: each is a process of its own in a given folder, at 80 columns and without colour.

A fork server loads the libraries once. Every command is a fork of it and need not load them again.
"""

from __future__ import annotations

import atexit
import io
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path

Done = subprocess.CompletedProcess[str]

GOLDENS = Path(__file__).parents[1] / "goldens"
PROGRAM = Path(sys.executable).parent / "ragauge"
PRELOADED = [
    *(f"ragauge.cli.{file.stem}" for file in sorted((Path(__file__).parents[2] / "src/ragauge/cli").glob("[a-z]*.py"))),
    "altair", "bm25s", "jinja2", "numpy", "polars", "rich.progress", "rich.table", "scipy.stats", "typer.rich_utils",
]  # fmt: skip
"""Modules that are imported before the fork. None of them starts a thread, so no fork inherits a held lock."""
forks = get_context("forkserver")
forks.set_forkserver_preload(PRELOADED)


def run_python(words: list[str], cwd: Path, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Done:
    """Run `python` with `words` in a fork: a script or `-m` and a module, then arguments."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("in", "out", "err")]
        files[0].write_text(stdin or "", encoding="utf-8")
        process = forks.Process(
            target=_run_in_fork, args=(words, str(cwd), dict(os.environ if env is None else env), files)
        )
        process.start()
        process.join()
        outputs = [file.read_text(encoding="utf-8") if file.exists() else "" for file in files[1:]]
        code = process.exitcode
        process.close()
    return subprocess.CompletedProcess(words, code, *outputs)


def _run_in_fork(words: list[str], cwd: str, env: dict[str, str], files: list[Path]) -> None:
    for number, file in enumerate(files):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), encoding)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding, "backslashreplace", line_buffering=True
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    # Like `python -P`: the current folder holds data and is not searched for modules. The folder of the golden cases
    # has the originals of the modules that are copied to the current folder.
    sys.path[:] = [folder for folder in sys.path if folder != str(GOLDENS)]
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()


def run_shell(line: str, cwd: Path, env: Mapping[str, str]) -> Done:
    """Run a shell command; a plain call of `ragauge` runs in a fork, without a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    program, *arguments = words
    if program == "ragauge" and not any(set(word) <= set("();<>|&") for word in arguments):
        return run_python([str(PROGRAM), *arguments], cwd, env)
    env = {**env, "PATH": f"{PROGRAM.parent}:{env['PATH']}"}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=cwd, check=False, env=env)


def command_in(folder: Path, *prefix: str, **environment: str) -> Callable[..., Done]:
    """Return a function that runs `ragauge` in a folder, with `prefix` before its own arguments.

    The function fails if the exit code is not `code` or if standard error contains a traceback.
    """

    def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Done:
        done = run_python(
            ["-m", "ragauge", *prefix, *map(str, arguments)],
            folder,
            {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", **environment},
            stdin,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run
