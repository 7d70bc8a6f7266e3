"""Command line: one module per command. Data goes to standard output, notes and progress to standard error."""

from __future__ import annotations

import gc
import os
import sys

PROGRAM = "ragauge"
"""Name of the program in usage lines and shell completion, also with `python -m ragauge`."""


def main() -> None:
    """Run a command and exit with its code.

    An error is printed as one line with a hint. The traceback is printed only with `--debug`, and more than three notes
    under a table only with `--verbose`.
    """
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    verbose = "--verbose" in sys.argv
    if verbose:
        sys.argv.remove("--verbose")
    gc.disable()  # Importing creates no garbage, but would trigger many collections; `pass_exceptions` turns them on.
    try:
        code = _run_command(verbose=verbose)
    except BaseException as error:
        from ragauge.cli.failures import end_command

        code = end_command(error, debug=debug)
    finally:
        gc.enable()
    sys.exit(code)


def _run_command(*, verbose: bool) -> int:
    from ragauge.cli.failures import EXIT_INVALID, clean_up_when_terminated, open_streams
    from ragauge.core.errors import BadInput

    open_streams()
    clean_up_when_terminated()
    try:
        os.getcwd()
    except OSError:
        raise BadInput("the working folder no longer exists", hint="cd to a folder that exists") from None
    from typer._click.exceptions import UsageError  # Typer has its own copy of click

    from ragauge.cli.app import build_app
    from ragauge.cli.console import VERBOSE_OPTION, print_warnings_as_notes, set_global_options
    from ragauge.cli.usage_errors import describe_usage_error

    print_warnings_as_notes()
    set_global_options([VERBOSE_OPTION] if verbose else [])
    code: object = 0
    try:
        code = build_app()(prog_name=PROGRAM, standalone_mode=False) or 0
    except SystemExit as stop:
        code = stop.code
    except UsageError as error:
        if len(sys.argv) > 1:
            raise describe_usage_error(error) from None
        code = EXIT_INVALID  # the help was printed
    sys.stdout.flush()
    return code if isinstance(code, int) else int(code is not None)
