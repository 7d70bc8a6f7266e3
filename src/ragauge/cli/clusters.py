"""The `--cluster` option, shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        show_default=False,
        help="Work on a Dask cluster: tcp://HOST:8786, or local:N for N processes here.",
    ),
]
