"""`ragauge systems`: list the components that can be used by name, and their options."""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Any

import typer
from rich.text import Text

from ragauge.cli import console
from ragauge.core import plugins
from ragauge.core.errors import UnknownName
from ragauge.output.terminal import borderless_table

INJECTED_PARAMETERS = (
    "documents",
    "retrievers",
    "retriever",
    "rerankers",
    "embedder",
    "store",
    "document_embedder",
    "database",
    "terrain",
    "cls",
)
"""Parameters that are passed when a system is built, and are not options."""
GRAPH_WALK_OPTIONS = "embedder=wordllama, graph=links+knn"
COMPONENT_OPTIONS = {
    "dense": "embedder=wordllama, store=exact",
    "hybrid": "of=dense+bm25",
    "pipeline": "of=bm25, reranker",
    "filtered": "of=bm25, NAME=VALUE of the metadata",
    "pgvector": "embedder=wordllama, index=hnsw, m=16, ef_construction=64, ef_search=40, half=false, dsn",
    "pagerank": GRAPH_WALK_OPTIONS,
    "graphflow": GRAPH_WALK_OPTIONS,
    "swarm": GRAPH_WALK_OPTIONS,
    "mmr": "embedder=wordllama",
    "embedding": "embedder=wordllama",
    "vectors": "store=faiss, and its options",
}
"""Options that are specifications themselves, or are passed on."""


def systems(
    name: Annotated[str | None, typer.Argument(help="Explain this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """List the plug-ins: retrievers, embedders, stores and more; or explain one.

    [dim]ragauge systems hybrid[/dim]
    """
    rows = [
        (family, one)
        for family in plugins.BUILTIN_PLUGINS
        for one in plugins.plugin_names(family)
        if name in (None, one)
    ]
    if not rows:
        known = [one for family in plugins.BUILTIN_PLUGINS for one in plugins.plugin_names(family)]
        raise UnknownName("system", str(name), known, hint="`ragauge systems` lists them")
    if as_json:
        console.write_data(
            json.dumps([{"family": f, "name": n, "options": _format_system_options(f, n)} for f, n in rows], indent=2)
        )
        return
    if name is None:
        table = borderless_table(["kind", "name", "options"], numbers=False)
        for family, one in rows:
            table.add_row(
                Text(family.removesuffix("s"), style="dim"),
                Text(one, style="bold"),
                Text(_format_system_options(family, one)),
            )
        console.print_tables(table)
        console.print_notes(
            [
                "written as dense(embedder=minilm, store=faiss(kind=hnsw)); several values are joined by +",
                "chats are written as openai:MODEL@URL, local:FILE.gguf, replay:FILE",
            ]
        )
        return
    for family, one in rows:
        factory = plugins.load_plugin(family, one)
        console.print_tables(
            Text(f"{one} ({family.removesuffix('s')})", style="bold"), inspect.getdoc(factory) or "", ""
        )
        console.print_tables(Text(f"options: {_format_system_options(family, one) or 'none'}"))


def _format_system_options(family: str, name: str) -> str:
    given = (*INJECTED_PARAMETERS, "path", "dimension") if family == "keepers" else INJECTED_PARAMETERS
    own = [
        parameter.name
        + ("" if parameter.default in (parameter.empty, None, "") else f"={_format_default(parameter.default)}")
        for parameter in inspect.signature(plugins.load_plugin(family, name)).parameters.values()
        if parameter.name not in given and parameter.kind is not parameter.VAR_KEYWORD
    ]
    parts = COMPONENT_OPTIONS.get(name) if not (family in ("stores", "keepers") and name == "pgvector") else None
    return ", ".join([*([parts] if parts else []), *own])


def _format_default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
