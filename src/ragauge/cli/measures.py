"""`ragauge measures [NAME]`: list the measures, or explain one."""

from __future__ import annotations

import inspect
import json
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.core.errors import BadInput, UnknownName
from ragauge.measures import answers
from ragauge.measures.answers import ANSWER_MEASURES, AnswerSpec
from ragauge.measures.names import parse_measure
from ragauge.measures.registry import MEASURE_REGISTRY, MeasureSpec, geometric_mean, total

COMMON_MEASURES = ("precision", "recall", "hit_rate", "mrr", "map", "ndcg", "f1")
"""Common measures, which are listed first."""


def measures(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A measure, by any of its names.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """List the measures, or explain one.

    [dim]ragauge measures ndcg[/dim]
    """
    if name is not None:
        refuse_options(context, ["as_json"], "with a name", hint="ragauge measures --json lists all measures")
        _print_measure_help(_find_measure_spec(name))
        return
    if as_json:
        specs: list[MeasureSpec | AnswerSpec] = [*MEASURE_REGISTRY.values(), *ANSWER_MEASURES.values()]
        rows = [
            {
                "name": spec.name,
                "of": "answers" if isinstance(spec, AnswerSpec) else "rankings",
                "cutoff": spec.cutoff,
                "options": spec.options,
                "aliases": _measure_aliases(spec),
            }
            for spec in specs
        ]
        console.write_data(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("measure", no_wrap=True)
    table.add_column("what it says", overflow="fold")
    for spec in sorted(MEASURE_REGISTRY.values(), key=lambda s: s.name not in COMMON_MEASURES):
        table.add_row(_format_measure_name(spec), _measure_summary(spec))
    table.add_row("", "")
    table.add_row("of answers, judged", "", style="bold")
    for judged in sorted(ANSWER_MEASURES.values(), key=lambda s: s.name not in answers.DEFAULT_ANSWER_MEASURES):
        table.add_row(_format_measure_name(judged), _measure_summary(judged))
    console.print_tables(table)
    console.print_notes(["`ragauge measures NAME` gives formula, rule, paper, options and other names"])


def _find_measure_spec(name: str) -> MeasureSpec | AnswerSpec:
    bare = MEASURE_REGISTRY.get(name.lower())
    if bare is not None:
        return bare
    if answers.is_answer_measure(name):
        return answers.parse_answer_measure(name).spec
    for text in (name, f"{name}@10", f"{name}@0.5"):
        try:
            return parse_measure(text).spec
        except BadInput:
            continue
        except LookupError:
            aliases = [
                *answers.ANSWER_ALIASES,
                *(alias for one in MEASURE_REGISTRY.values() for alias in (one.name, *one.aliases)),
            ]
            raise UnknownName("measure", name, aliases, hint="`ragauge measures` lists them all") from None
    return parse_measure(name).spec


def _format_measure_name(spec: MeasureSpec | AnswerSpec) -> str:
    return spec.name + {"rank": "@k", "rank?": "[@k]", "level": "@x", "": ""}[spec.cutoff]


def _measure_summary(spec: MeasureSpec | AnswerSpec) -> str:
    together = getattr(spec, "aggregate", None)
    kind = " (geometric mean)" if together is geometric_mean else " (summed)" if together is total else ""
    return (inspect.getdoc(spec.function) or "").partition("\n")[0].removesuffix(".") + kind + "."


def _measure_aliases(spec: MeasureSpec | AnswerSpec) -> list[str]:
    if isinstance(spec, AnswerSpec):
        return list(spec.aliases)
    return list(dict.fromkeys([*([spec.trec] if spec.trec and spec.trec != spec.name else []), *spec.aliases]))


def _print_measure_help(spec: MeasureSpec | AnswerSpec) -> None:
    console.write_data(_format_measure_name(spec))
    console.write_data()
    text = (inspect.getdoc(spec.function) or "").partition(">>>")
    console.write_data(text[0].rstrip())
    if spec.options:
        console.write_data("\noptions:")
        for option, default in spec.options.items():
            allowed = spec.choices.get(option)
            shown = "/".join(f"{v:g}" for v in default) if isinstance(default, tuple) else default
            console.write_data(f"  {option}={shown}" + (f"   one of {', '.join(allowed)}" if allowed else ""))
    if isinstance(spec, AnswerSpec):
        console.write_data(f"\nneeds: {', '.join(spec.needs)}; counted from verdicts by `ragauge judge`")
        if spec.name == "context_precision":
            console.write_data("in `ragauge evaluate` the name means map(of=found): the same, over judged documents")
    if _measure_aliases(spec):
        console.write_data(f"\nalso known as: {', '.join(_measure_aliases(spec))}")
    if text[1]:
        console.write_data(
            "\nexample:\n" + "\n".join("  " + line for line in (text[1] + text[2]).rstrip().splitlines())
        )
