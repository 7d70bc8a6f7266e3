"""`ragauge measures [NAME]`: what there is, and what it means."""

from __future__ import annotations

import inspect
import json
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.measures.names import parse
from ragauge.measures.table import TABLE, Spec, geometric_mean, total

COMMON = ("precision", "recall", "hit_rate", "mrr", "map", "ndcg", "f1")
"""What most people look for, listed first."""


def measures(
    name: Annotated[str | None, typer.Argument(help="A measure, by any of its names.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """List the measures, or explain one.

    [dim]ragauge measures ndcg[/dim]
    """
    if name is not None:
        _explain(_spec(name))
        return
    if as_json:
        rows = [
            {"name": s.name, "cutoff": s.cutoff, "options": s.options, "aliases": _aliases(s)} for s in TABLE.values()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("measure", no_wrap=True)
    table.add_column("what it says", overflow="fold")
    for spec in sorted(TABLE.values(), key=lambda s: s.name not in COMMON):
        table.add_row(_shape(spec), _idea(spec))
    console.show(table)
    console.talk(["`ragauge measures NAME` gives formula, rule, paper, options and other names"])


def _spec(name: str) -> Spec:
    bare = TABLE.get(name.lower())
    if bare is not None:
        return bare
    from ragauge.errors import BadInput

    for text in (name, f"{name}@10", f"{name}@0.5"):
        try:
            return parse(text).spec
        except BadInput:
            continue
    return parse(name).spec


def _shape(spec: Spec) -> str:
    return spec.name + {"rank": "@k", "rank?": "[@k]", "level": "@x", "": ""}[spec.cutoff]


def _idea(spec: Spec) -> str:
    kind = " (geometric mean)" if spec.aggregate is geometric_mean else " (summed)" if spec.aggregate is total else ""
    return (inspect.getdoc(spec.function) or "").partition("\n")[0].removesuffix(".") + kind + "."


def _aliases(spec: Spec) -> list[str]:
    return list(dict.fromkeys([*([spec.trec] if spec.trec and spec.trec != spec.name else []), *spec.aliases]))


def _explain(spec: Spec) -> None:
    typer.echo(spec.name + {"rank": "@k", "rank?": "[@k]", "level": "@x", "": ""}[spec.cutoff])
    typer.echo()
    text = (inspect.getdoc(spec.function) or "").partition(">>>")
    typer.echo(text[0].rstrip())
    if spec.options:
        typer.echo("\noptions:")
        for option, default in spec.options.items():
            allowed = spec.choices.get(option)
            shown = "/".join(f"{v:g}" for v in default) if isinstance(default, tuple) else default
            typer.echo(f"  {option}={shown}" + (f"   one of {', '.join(allowed)}" if allowed else ""))
    if _aliases(spec):
        typer.echo(f"\nalso known as: {', '.join(_aliases(spec))}")
    if text[1]:
        typer.echo("\nexample:\n" + "\n".join("  " + line for line in (text[1] + text[2]).rstrip().splitlines()))
