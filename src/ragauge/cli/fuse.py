"""`ragauge fuse RUN…`: fuse several runs into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import allow_only_options, require_any_option
from ragauge.cli.options import RUN_FILES_HELP, MinRelevantGrade, TargetMap, check_positive, resolve_convention
from ragauge.cli.output import STDOUT, is_folder_path, print_table
from ragauge.core.errors import BadInput
from ragauge.core.records import ScoresByQuery
from ragauge.core.specs import parse_spec
from ragauge.files import readers, writers
from ragauge.fusion.fuse import build_fused_run, read_runs, tune
from ragauge.fusion.methods import METHODS, FusionMethod, default_norm, find_method
from ragauge.fusion.normalisation import NORMALISATIONS, find_normalisation
from ragauge.fusion.query_fusion import fuse_runs, missing_queries
from ragauge.fusion.tuning import TunedFusion
from ragauge.output.formats import unknown_ending
from ragauge.output.numbers import join_names, pluralise
from ragauge.output.tables import Column, Table

RUN_ENDINGS = (".run", ".txt", ".csv", ".tsv", ".jsonl", ".json", ".parquet")
"""Endings of files with a run."""


def fuse(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help=f"{RUN_FILES_HELP}; or folders of `run`. Required without --list."),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            show_default="-",
            help="Output file of the fused run, e.g. hybrid.run or hybrid.parquet; - is standard output. Can be "
            "repeated.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Fusion method with its parameters, e.g. rrf(k=60); --list shows all.",
        ),
    ] = "rrf",
    norm: Annotated[
        str | None,
        typer.Option(
            "--norm",
            metavar="NAME",
            show_default="min-max, or none if the method uses only ranks",
            help="Normalisation of the scores; --list shows all.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="N,…", help="Weight of each run, e.g. 0.7,0.3."),
    ] = None,
    tuned: Annotated[
        bool, typer.Option("--tune", help="Choose the parameters by cross-validation on the judgments of --qrels.")
    ] = False,
    qrels: Annotated[str | None, typer.Option(metavar="FILE", help="Judgments for --tune.")] = None,
    target_map: TargetMap = None,
    measure: Annotated[
        str,
        typer.Option("-m", "--measure", metavar="NAME", help="Measure that --tune maximises."),
    ] = "ndcg@10",
    rel: MinRelevantGrade = None,
    folds: Annotated[int, typer.Option(metavar="N", help="Number of folds of --tune.")] = 5,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the assignment of queries to folds.")] = 0,
    depth: Annotated[
        int,
        typer.Option(
            "--depth", metavar="N", callback=check_positive, help="Maximum number of documents per query of the output."
        ),
    ] = 1000,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", show_default="by the ending of the file", help="Format of the fused run."
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the methods and normalisations.")] = False,
) -> None:
    """Fuse several runs into one.

    [dim]ragauge fuse bm25.run dense.run -o hybrid.run[/dim]

    [dim]ragauge fuse bm25.run dense.run -o hybrid.run --method wsum --weights 0.4,0.6[/dim]
    """
    if show_list:
        allow_only_options(context, ["show_list"], "--list")
        _print_fusion_methods()
        return
    if not runs:
        raise BadInput(
            "no run given; expected at least one RUN", hint="use `ragauge fuse bm25.run dense.run -o hybrid.run`"
        )
    tuning_options = ("qrels", "target_map", "measure", "rel", "folds", "seed")
    require_any_option(context, {name: ["tuned"] for name in tuning_options})
    if tuned and qrels is None:
        raise BadInput("--tune needs judgments", hint="add `--qrels qrels.txt`")
    if [qrels, *runs].count("-") > 1:
        raise BadInput("standard input can be read only once", hint="give - for one file only")
    readers.check_format(form)
    targets = out or [STDOUT]
    for target in targets:
        if target != STDOUT and is_folder_path(target) and (form is None or target.endswith("/")):
            raise unknown_ending(target, RUN_ENDINGS)
        if form is None:
            writers.format_from_path(target)  # fails before any file is read
    spec = parse_spec(method, "fusion method")
    fusion_method = find_method(spec.name)
    norm = find_normalisation(norm or default_norm(fusion_method.name)).name
    params = _merge_weights(spec.options, weights)
    if qrels is None:
        fusion_method.resolve_parameters(params, len(runs))  # fails before any file is read
    elif params:
        raise BadInput(
            "--tune chooses the parameters itself", hint=f"remove --weights, and write `--method {fusion_method.name}`"
        )
    runs_by_name = read_runs(runs)
    lists = list(runs_by_name.values())
    lines = _describe_fusion(
        fusion_method, norm, {} if qrels else fusion_method.resolve_parameters(params, len(runs)), runs_by_name
    )
    if qrels is None:
        fused = fuse_runs(lists, fusion_method.name, norm, depth=depth, **params)
    else:
        rules = resolve_convention("default", rel=rel)
        judgments = readers.read_judgments(qrels)
        chosen = tune(
            judgments, runs_by_name, fusion_method.name, norm, measure, rules,
            folds=folds, seed=seed, depth=depth, targets=target_map,
        )  # fmt: skip
        fused = chosen.run
        tuning_lines = _describe_shared_queries(judgments.nested, lists) + _describe_tuning(chosen, measure)
        lines = [lines[0], *tuning_lines[:2], *lines[1:], *tuning_lines[2:]]
    fused_run = build_fused_run(fused, fusion_method.name, runs_by_name)
    for target in targets:
        writers.write_run(fused_run, target, form)
    console.print_notes(console.limit_notes(lines))


def _merge_weights(params: Mapping[str, Any], weights: str | None) -> dict[str, Any]:
    """Add the weights of `--weights` to the parameters of the method; a single weight is a list, too."""
    parameters = {
        name: [value] if name == "weights" and isinstance(value, int | float) else value
        for name, value in params.items()
    }
    if weights is None:
        return parameters
    if "weights" in parameters:
        raise BadInput("--weights and the weights of --method are mutually exclusive", hint="remove one of them")
    try:
        # System specifications separate values by +, so it is accepted here too.
        return {**parameters, "weights": [float(part) for part in weights.replace("+", ",").split(",")]}
    except ValueError:
        raise BadInput(
            f"--weights must be numbers separated by commas, got `{weights}`", hint="use `--weights 0.7,0.3`"
        ) from None


def _describe_fusion(
    method: FusionMethod, norm: str, params: Mapping[str, Any], runs: Mapping[str, ScoresByQuery]
) -> list[str]:
    queries = len({query for run in runs.values() for query in run})
    params_text = f"({format_params(params)})" if format_params(params) else ""
    lines = [f"{method.name}{params_text}, norm {norm}: {pluralise(len(runs), 'run')}, {pluralise(queries, 'query')}"]
    for name, missing in zip(runs, missing_queries(list(runs.values())), strict=True):
        if missing:
            lines.append(
                f"{name} lacks {missing} of {pluralise(queries, 'query')}; these are fused from the other runs"
            )
    return lines


def _describe_tuning(tuned: TunedFusion, measure: str) -> list[str]:
    chosen = f"; parameters chosen on all of them: {format_params(tuned.params)}" if tuned.params else ""
    folds = [
        f"fold {at}, {pluralise(len(fold.queries), 'query')}: {format_params(fold.params) or 'trained on the others'}"
        for at, fold in enumerate(tuned.folds, 1)
    ]
    return [
        f"{measure} out of fold {tuned.mean:.4f}, in sample {tuned.in_sample_mean:.4f}"
        f" ({pluralise(len(tuned.scores), 'judged query')}){chosen}",
        *folds,
    ]


def _describe_shared_queries(judged: ScoresByQuery, runs: Sequence[ScoresByQuery]) -> list[str]:
    """Describe judged queries that are in no run, and queries of the runs without judgments."""
    run_queries = {query: None for run in runs for query in run}
    missing = [query for query in judged if query not in run_queries]
    unjudged = [query for query in run_queries if query not in judged]
    parts = []
    if missing:
        parts.append(
            f"judged queries in no run, which score 0: {len(missing)} of {len(judged)} ({join_names(missing)})"
        )
    if unjudged:
        parts.append(f"queries without judgments: {len(unjudged)} of {len(run_queries)} ({join_names(unjudged)})")
    return ["; ".join(parts)] if parts else []


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
    methods = [
        [
            method.name,
            ", ".join(
                name if parameter.default is None else f"{name}={parameter.default:g}"
                for name, parameter in method.parameters.items()
            ),
            method.description,
        ]
        for method in METHODS.values()
    ]
    norms = [[norm.name, norm.description] for norm in NORMALISATIONS.values()]
    columns = [Column("method", "name"), Column("parameters"), Column("score of a document")]
    print_table(Table("methods", columns, methods))
    console.print_tables("")
    print_table(Table("normalisations", [Column("normalisation", "name"), Column("effect")], norms))
