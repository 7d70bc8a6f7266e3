"""`ragauge measures [NAME]`: list the measures, or explain one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import PrintCsv, PrintJson
from ragauge.cli.output import print_table, write_table
from ragauge.core.errors import BadInput, UnknownName
from ragauge.measures import answers
from ragauge.measures.answers import ANSWER_MEASURES, AnswerSpec
from ragauge.measures.names import parse_measure
from ragauge.measures.registry import MEASURE_REGISTRY, MeasureSpec, geometric_mean, total
from ragauge.output.tables import Column, Table

COMMON_MEASURES = ("precision", "recall", "hit_rate", "mrr", "map", "ndcg", "f1")
"""Common measures, which are listed first."""


def measures(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Measure to explain, by any of its names.")] = None,
    as_json: PrintJson = False,
    as_csv: PrintCsv = False,
) -> None:
    """List the measures, or explain one.

    [dim]ragauge measures ndcg[/dim]
    """
    console.check_exclusive({"--json": as_json, "--csv": as_csv})
    if name is not None:
        refuse_options(context, ["as_json", "as_csv"], "with a name", hint="list all with `ragauge measures --json`")
        _print_measure_help(_find_measure_spec(name))
        return
    if as_json or as_csv:
        specs: list[MeasureSpec | AnswerSpec] = [*MEASURE_REGISTRY.values(), *ANSWER_MEASURES.values()]
        data = [_describe_spec(spec) for spec in specs]
        columns = [Column("name"), Column("of"), Column("cutoff"), Column("options"), Column("aliases")]
        rows = [
            [*list(row.values())[:3], format_options(spec.options), " ".join(row["aliases"])]
            for row, spec in zip(data, specs, strict=True)
        ]
        write_table(Table("measures", columns, rows), as_json=as_json, as_csv=as_csv, data=data)
        return
    ranking = sorted(MEASURE_REGISTRY.values(), key=lambda spec: spec.name not in COMMON_MEASURES)
    judged = sorted(ANSWER_MEASURES.values(), key=lambda spec: spec.name not in answers.DEFAULT_ANSWER_MEASURES)
    print_table(_measures_table("measure of rankings", ranking))
    console.print_tables("")
    print_table(_measures_table("measure of judged answers", judged))
    console.print_notes(["`ragauge measures NAME` gives formula, rule, paper, options and other names"])


def _measures_table(title: str, specs: Sequence[MeasureSpec | AnswerSpec]) -> Table:
    rows = [[_format_measure_name(spec), _measure_summary(spec)] for spec in specs]
    return Table("measures", [Column(title, "name"), Column("description")], rows)


def _describe_spec(spec: MeasureSpec | AnswerSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "of": "answers" if isinstance(spec, AnswerSpec) else "rankings",
        "cutoff": spec.cutoff,
        "options": spec.options,
        "aliases": _measure_aliases(spec),
    }


def format_options(options: Mapping[str, Any]) -> str:
    """Format options with their defaults.

    >>> format_options({"gain": "linear", "levels": (0.1, 0.2)})
    'gain=linear, levels=0.1/0.2'
    """
    return ", ".join(f"{name}={_format_option_value(value)}" for name, value in options.items())


def _format_option_value(value: Any) -> str:
    return "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)


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
                *(alias for spec in MEASURE_REGISTRY.values() for alias in (spec.name, *spec.aliases)),
            ]
            raise UnknownName("measure", name, aliases, hint="list all with `ragauge measures`") from None
    return parse_measure(name).spec


def _format_measure_name(spec: MeasureSpec | AnswerSpec) -> str:
    return spec.name + {"rank": "@k", "rank?": "[@k]", "level": "@x", "": ""}[spec.cutoff]


def _measure_summary(spec: MeasureSpec | AnswerSpec) -> str:
    aggregate = spec.aggregate if isinstance(spec, MeasureSpec) else None
    kind = " (geometric mean)" if aggregate is geometric_mean else " (summed)" if aggregate is total else ""
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
            choices = f"   one of {', '.join(allowed)}" if allowed else ""
            console.write_data(f"  {option}={_format_option_value(default)}{choices}")
    if isinstance(spec, AnswerSpec):
        console.write_data(f"\nneeds: {', '.join(spec.required_fields)}; counted from verdicts by `ragauge judge`")
        if spec.name == "context_precision":
            console.write_data("in `ragauge evaluate` the name means map(of=found): the same, over judged documents")
    if _measure_aliases(spec):
        console.write_data(f"\nalso known as: {', '.join(_measure_aliases(spec))}")
    if text[1]:
        console.write_data(
            "\nexample:\n" + "\n".join("  " + line for line in (text[1] + text[2]).rstrip().splitlines())
        )
