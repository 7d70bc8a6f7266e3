"""`ragauge evaluate QRELS RUN…`: score runs against judgments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.console import ClusterAddress
from ragauge.cli.options import MinRelevantGrade
from ragauge.cli.progress import show_status
from ragauge.cli.tie_notes import describe_ties
from ragauge.compute import dask_cluster
from ragauge.core.errors import BadInput
from ragauge.core.records import Scores
from ragauge.evaluation import (
    compute_judged_ranks_by_name,
    default_measures,
    judgments_for_measures,
    parse_measures,
    report,
)
from ragauge.files.neighbour_arrays import check_row_counts
from ragauge.measures.conventions import ANSWER_OPTIONS, Convention, find_convention
from ragauge.measures.scoring import score_judged_ranks
from ragauge.runs.inputs import resolve_inputs


def evaluate(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help="Judgments (TREC, BEIR folder or TSV, rig JSONL, CSV, JSON, Parquet), then runs (TREC, CSV, TSV, "
            "JSONL, JSON, Parquet or a folder of it), plain, .gz or .zst; - is stdin. Or exact and found neighbours "
            "(.ivecs, .ibin, .npy). Folders that `run` wrote know their judgments.",
        ),
    ],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            help="Measures, e.g. ndcg@10,map. Can be repeated. [dim]`ragauge measures` lists them[/dim]",
        ),
    ] = None,
    convention: Annotated[
        str, typer.Option("-C", "--convention", help="default, trec9, beir, ranx, rig, ann, … (CONVENTIONS.md)")
    ] = "default",
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Set one option of the convention, e.g. ties=ranked."),
    ] = None,
    rel: MinRelevantGrade = None,
    depth: Annotated[int | None, typer.Option("-M", "--depth", help="Look at so many documents a query.")] = None,
    per_query: Annotated[bool, typer.Option("-q", "--per-query", help="Each query, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output.")] = False,
    output: Annotated[
        str, typer.Option("--format", help="table, json, csv, or trec_eval (its three columns).")
    ] = "table",
    targets: Annotated[str | None, typer.Option(help="A target map (document target) for dr@k.")] = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder: test, train, dev.")] = None,
    qrels_format: Annotated[str | None, typer.Option(help="What the judgments are, e.g. trec or subtopics.")] = None,
    run_format: Annotated[str | None, typer.Option(help="What the runs are, e.g. trec or csv.")] = None,
    cluster: ClusterAddress = None,
) -> None:
    """Score runs against judgments.

    [dim]ragauge evaluate qrels.txt bm25.run dense.run -m ndcg@10 -m recall@100[/dim]
    """
    rules = parse_convention_options(convention, options or [], rel, depth)
    said_twice = output in ("table", "json" if as_json else "csv" if as_csv else "table")
    console.check_exclusive({"--json": as_json, "--csv": as_csv, "--format": not said_twice})
    shape = "json" if as_json else "csv" if as_csv else output
    if shape not in ("table", "json", "csv", "trec_eval"):
        raise BadInput(f"there is no output format `{shape}`", hint="table, json, csv, trec_eval")
    given = resolve_inputs(files)
    check_row_counts(given.qrels, given.singles.values())
    usual = default_measures(given.qrels, given.singles.values())
    trec = shape == "trec_eval"
    wanted = parse_measures(
        report.select_measure_names(measure or ["official"]) if trec else measure or usual, rules, trec=trec
    )
    judgments = judgments_for_measures(wanted, given.qrels, form=qrels_format, targets=targets, split=split)
    with dask_cluster.dask_cluster(cluster) as executor, show_status(after=1.0) as tell:
        counted = compute_judged_ranks_by_name(
            judgments,
            given.singles,
            wanted,
            rules,
            form=run_format,
            executor=executor,
            watch=lambda name, rows: tell(f"{name}: {rows:,} rows"),
        )
    scores = {name: score_judged_ranks(judged, wanted, rules) for name, judged in counted.items()}
    if trec:
        for one in scores.values():
            lines = report.render_trec_eval(one, wanted, measure or ["official"], rules, per_query=per_query)
            console.write_data(lines, nl=False)
        return
    if shape == "json":
        console.write_data(report.render_scores_json(scores, per_query=per_query))
    elif shape == "csv":
        console.write_data(report.render_scores_csv(scores, per_query=per_query), nl=False)
    else:
        width = console.stdout_console().width
        if per_query:
            console.print_tables(report.query_table(scores, width), "")
        console.print_tables(report.score_table(scores, width))
        _print_convention_note(scores, rules)
        console.print_notes(describe_ties(scores.values()))


def _print_convention_note(scores: dict[str, Scores], rules: Convention) -> None:
    """Print the convention of the scores, and notes on them."""
    queries = len(next(iter(scores.values())).queries)
    named = ", ".join(f"{k}={v}" for k, v in rules.departures().items() if k not in ANSWER_OPTIONS)
    console.print_notes(
        [
            f"{queries:,} judged queries, convention {rules.name}"
            + (f" ({named})" if named and "," not in rules.name else "")
        ]
    )
    console.print_notes(console.merge_notes((note for one in scores.values() for note in one.notes), scores))


def parse_convention_options(name: str, options: Sequence[str], rel: float | None, depth: int | None) -> Convention:
    """Return a convention by name, with options set on the command line."""
    chosen: dict[str, Any] = {}
    types = {f.name: f.type for f in fields(Convention)}
    for text in options:
        option, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"`--set {text}` sets nothing", hint="--set ties=ranked")
        try:
            chosen[option] = (
                float(value) if option == "rel" else int(value) if "int" in str(types.get(option)) else value
            )
        except ValueError:
            raise BadInput(f"`{option}` cannot be `{value}`", hint="it is a number") from None
    if rel is not None:
        chosen["rel"] = rel
    if depth is not None:
        chosen["depth"] = depth
    return find_convention(name).but(**chosen)
