"""`ragauge compare QRELS RUN… --baseline NAME`: test differences between systems for significance."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    CommonQueries,
    ConventionName,
    HigherIsBetter,
    LowerIsBetter,
    MinRelevantGrade,
    resolve_convention,
)
from ragauge.cli.tie_notes import describe_ties
from ragauge.comparison import compare as compare_scores
from ragauge.comparison import report
from ragauge.comparison.latex import render_comparisons_latex
from ragauge.comparison.scored_files import DEFAULT_MEASURES, score_runs
from ragauge.core.errors import BadInput
from ragauge.core.run_dates import describe_run_dates
from ragauge.files.table_rows import read_tags


def compare(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help="As in evaluate, or folders that `run` wrote, without QRELS; NAME=RUN names a run, and the same name "
            "again is the same system again (seeds). Or folders that `judge` wrote, or tables of scores: run, query, "
            "measure, value.",
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("-b", "--baseline", help="Compare with this one, by name or file.  [dim]default every pair[/dim]"),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            help=f"A measure; again for more.  [dim]default the run's, or {' '.join(DEFAULT_MEASURES)}[/dim]",
        ),
    ] = None,
    test: Annotated[str, typer.Option(help="Whose p is corrected: t, wilcoxon, sign, randomisation.")] = "t",
    correction: Annotated[str, typer.Option(help="holm, bonferroni, bh, none.")] = "holm",
    family: Annotated[str, typer.Option(help="Corrected for the comparisons of each measure, or for all.")] = "measure",
    confidence: Annotated[float, typer.Option(help="Of the interval; the tests' level is the rest.")] = 0.95,
    interval: Annotated[str, typer.Option(help="bca or percentile bootstrap.")] = "bca",
    rounds: Annotated[int, typer.Option(help="Resamples.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    margin: Annotated[
        float | None, typer.Option(help="Test non-inferiority and equivalence within this margin.")
    ] = None,
    detect: Annotated[float | None, typer.Option(help="How many queries would this difference need?")] = None,
    power: Annotated[float, typer.Option(help="With which chance it is to be found.")] = 0.8,
    by: Annotated[str | None, typer.Option(help="Also within strata: complexity, or a tag of the queries.")] = None,
    tags: Annotated[str | None, typer.Option(help="A table with a query column: its other columns are tags.")] = None,
    common_queries: CommonQueries = False,
    count_missing: Annotated[
        bool, typer.Option("--count-missing", help="A query that a run lacks counts 0, as in evaluate.")
    ] = False,
    moved: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Show so many queries that rose and that fell most.  [dim]default 3 where two are compared[/dim]",
        ),
    ] = None,
    convention: ConventionName = "default",
    rel: MinRelevantGrade = None,
    depth: Annotated[int | None, typer.Option("-M", "--depth", help="Look at so many documents a query.")] = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder.")] = None,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on standard output.")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="A LaTeX table (booktabs) on standard output.")] = False,
) -> None:
    """Compare systems query by query, with significance tests and intervals.

    [dim]ragauge compare qrels.txt bm25.run dense.run -b bm25 -m ndcg@10 -m recall@100[/dim]

    [dim]ragauge compare runs/pydocs -b bm25 --by complexity[/dim]
    """
    console.check_exclusive({"--json": as_json, "--csv": as_csv, "--markdown": as_markdown, "--latex": as_latex})
    if as_csv or as_latex:
        refuse_options(context, ["moved"], "with --csv and --latex, which do not list queries")
    found = score_runs(files, baseline, measure, resolve_convention(convention, rel=rel, depth=depth), split=split)
    tagged = {query: dict(values) for query, values in found.tags.items()}
    if tags is not None:
        if by is None:
            raise BadInput("--tags does nothing without --by", hint="--by COLUMN")
        for query, values in read_tags(tags).items():
            tagged.setdefault(query, {}).update(values)
    compared = compare_scores(
        found, baseline=found.baseline, by=by, tags=tagged, common_queries=common_queries, count_missing=count_missing,
        test=test, correction=correction, family=family, confidence=confidence,
        interval=interval, rounds=rounds, seed=seed, margin=margin, detect=detect, power=power,
        lower_is_better=lower_is_better, higher_is_better=higher_is_better,
    )  # fmt: skip
    shown = 3 if moved is None else moved
    if as_json:
        console.write_data(
            json.dumps(report.comparisons_to_data(compared, shown), indent=2, ensure_ascii=False, allow_nan=False)
        )
    elif as_csv:
        console.write_data(report.comparisons_to_csv(compared), nl=False)
        console.print_notes(describe_run_dates(compared.answers))
    elif as_markdown:
        console.write_data(
            report.render_comparisons_markdown(compared, 0 if moved is None and len(compared.systems) > 2 else shown),
            nl=False,
        )
    elif as_latex:
        console.write_data(render_comparisons_latex(compared), nl=False)
    else:
        many = moved is None and len(compared.systems) > 2  # otherwise these tables would outnumber the rest
        tables, left = report.render_comparison_tables(
            compared, console.stdout_console().width, 0 if many else shown, console.sparkline_marks()
        )
        console.print_tables(*tables)
        console.print_notes(console.merge_notes(report.describe_comparisons(compared), compared.systems))
        console.print_notes(describe_ties(found.scores.values()))
        if left:
            console.print_notes([f"not shown, for want of room: {', '.join(left)}; --csv has them"])
        if many:
            console.print_notes(["--moved 3 shows the queries that rose and fell most"])
