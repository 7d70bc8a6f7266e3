"""`ragauge fuse RUN…`: fuse several runs into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import allow_only_options, require_any_option
from ragauge.core.errors import BadInput
from ragauge.core.records import ScoresByQuery
from ragauge.files import readers, writers
from ragauge.fusion import build_fused_run, read_runs, tune
from ragauge.fusion.methods import METHODS, FusionMethod, default_norm, find_method
from ragauge.fusion.normalisation import NORMALISATIONS, find_normalisation
from ragauge.fusion.query_fusion import fuse_runs, missing_queries
from ragauge.fusion.tuning import TunedFusion


def fuse(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Runs: TREC, CSV, TSV, JSONL, JSON, Parquet; .gz, .zst; - is stdin."),
    ] = None,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE", help="Output file of the fused run; - is standard output.")
    ] = "-",
    method: Annotated[str, typer.Option("--method", help="How to fuse; [dim]--list shows all[/dim].")] = "rrf",
    norm: Annotated[
        str | None, typer.Option("--norm", help="How scores are scaled: min-max where scores count, else none.")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="One for each run, e.g. 0.7,0.3.")] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="A parameter of the method, e.g. k=60."),
    ] = None,
    qrels: Annotated[
        str | None, typer.Option("--tune", metavar="QRELS", help="Choose parameters by cross-validation.")
    ] = None,
    measure: Annotated[str, typer.Option("-m", "--measure", help="What --tune makes as great as it can.")] = "ndcg@10",
    folds: Annotated[int, typer.Option(help="In how many parts --tune splits the queries.")] = 5,
    seed: Annotated[int, typer.Option(help="By which shuffle.")] = 0,
    depth: Annotated[int, typer.Option("--depth", min=1, help="How many documents a query keeps.")] = 1000,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", show_default="by the ending of the file", help="Format of the fused run."
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the methods and normalisations.")] = False,
) -> None:
    """Fuse several runs into one.

    [dim]ragauge fuse bm25.run dense.run -o hybrid.run --method wsum --weights 0.4,0.6[/dim]
    """
    if show_list:
        allow_only_options(context, ["show_list"], "--list")
        _print_fusion_methods()
        return
    if not runs:
        raise BadInput("there is nothing to fuse", hint="ragauge fuse bm25.run dense.run -o hybrid.run")
    require_any_option(context, {name: ["qrels"] for name in ("measure", "folds", "seed")})
    if [qrels, *runs].count("-") > 1:
        raise BadInput("standard input can be read once", hint="give - for one file only")
    readers.check_format(form)
    how, scale = find_method(method), find_normalisation(norm or default_norm(method)).name
    params = _parse_fusion_params(options or [], weights)
    if qrels is None:
        how.settled(params, len(runs))  # fails before any file is read
    elif params:
        raise BadInput("--tune chooses the parameters itself", hint="leave --weights and --set out")
    found = read_runs(runs)
    lists = list(found.values())
    lines = _describe_fusion(how, scale, {} if qrels else how.settled(params, len(runs)), found)
    if qrels is None:
        fused = fuse_runs(lists, method, scale, depth=depth, **params)
    else:
        tuned = tune(qrels, found, method, scale, measure, folds=folds, seed=seed, depth=depth)
        fused = tuned.run
        lines += _describe_tuning(tuned, measure)
    writers.write_run(build_fused_run(fused, method, found), out, form)
    console.print_notes(lines)


def _parse_fusion_params(options: Sequence[str], weights: str | None) -> dict[str, Any]:
    """Parse fusion parameters by name as numbers, or as lists if there are commas."""
    params: dict[str, Any] = {}
    # System specifications separate values by +, so it is accepted here too.
    given = [] if weights is None else ["weights=" + weights.replace("+", ",")]
    for text in [*options, *given]:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"`--set {text}` sets nothing", hint="--set k=60")
        try:
            numbers = [float(part) for part in value.split(",")]
        except ValueError:
            raise BadInput(f"`{name}` cannot be `{value}`", hint="numbers, with commas between them") from None
        params[name] = numbers if name == "weights" else numbers[0] if len(numbers) == 1 else numbers
    return params


def _describe_fusion(
    how: FusionMethod, norm: str, params: Mapping[str, Any], runs: Mapping[str, ScoresByQuery]
) -> list[str]:
    queries = len({query for run in runs.values() for query in run})
    given = f"({format_params(params)})" if format_params(params) else ""
    lines = [
        f"{how.name}{given}, norm {norm}: {_format_noun_count(len(runs), 'run')}, "
        f"{_format_noun_count(queries, 'query')}"
    ]
    for name, missing in zip(runs, missing_queries(list(runs.values())), strict=True):
        if missing:
            lines.append(
                f"{name} lacks {missing} of {_format_noun_count(queries, 'query')}; the other runs decide there"
            )
    return lines


def _describe_tuning(tuned: TunedFusion, measure: str) -> list[str]:
    lines = [
        f"fold {at}, {_format_noun_count(len(fold.queries), 'query')}: "
        f"{format_params(fold.params) or 'trained on the others'}"
        for at, fold in enumerate(tuned.folds, 1)
    ]
    lines.append(
        f"{measure} out of fold {tuned.mean:.4f}, in sample {tuned.in_sample_mean:.4f}"
        f" ({_format_noun_count(len(tuned.scores), 'judged query')})"
    )
    if tuned.params:
        lines.append(f"all judged queries together choose {format_params(tuned.params)}")
    return lines


def _format_noun_count(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else noun.replace('query', 'querie') + 's'}"


def format_params(params: Mapping[str, Any]) -> str:
    """Format parameters as they are typed.

    >>> format_params({"k": 60, "weights": [0.7, 0.3]})
    'k=60, weights=0.7,0.3'
    """
    return ", ".join(
        f"{name}={f'{value:g}' if isinstance(value, int | float) else ','.join(f'{v:g}' for v in value)}"
        for name, value in params.items()
        if value is not None
    )


def _print_fusion_methods() -> None:
    from rich.table import Table
    from rich.text import Text

    methods = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("method", "parameters", "a document's score"):
        methods.add_column(header, overflow="fold", no_wrap=header == "method")
    for row in METHODS.values():
        given = [name if one.default is None else f"{name}={one.default:g}" for name, one in row.settings.items()]
        methods.add_row(row.name, ", ".join(given), Text(row.says))
    norms = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("normalisation", "what it does"):
        norms.add_column(header, overflow="fold", no_wrap=header == "normalisation")
    for scale in NORMALISATIONS.values():
        norms.add_row(scale.name, Text(scale.says))
    console.print_tables(methods, "", norms)
