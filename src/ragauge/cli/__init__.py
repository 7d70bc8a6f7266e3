"""The command line: one short file per verb. Data goes to standard output, talk to standard error."""

from __future__ import annotations

import io
import os
import sys

from ragauge.errors import RagaugeError


def main() -> None:
    """Run a command; a user's mistake gets one sentence and a hint, never a traceback."""
    from ragauge.cli.app import VERBS, command_line

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character still gets the rest
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        command_line(*(verb for verb in sys.argv[1:2] if verb in VERBS))()
    except RagaugeError as error:
        if debug:
            raise
        told = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(error))  # it may quote a file
        sys.stderr.write(f"error: {told}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
