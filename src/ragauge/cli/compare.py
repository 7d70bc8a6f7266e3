"""`ragauge compare QRELS RUN… --baseline NAME`: test differences between systems for significance."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    CommonQueries,
    ConventionName,
    FormatName,
    HigherIsBetter,
    LowerIsBetter,
    MinRelevantGrade,
    OutputFiles,
    PrintJson,
    resolve_convention,
)
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.tie_notes import describe_ties
from ragauge.comparison import compare as compare_scores
from ragauge.comparison.report import build_report, keep_changed_queries
from ragauge.comparison.scored_files import DEFAULT_MEASURES, score_runs
from ragauge.core.errors import BadInput
from ragauge.files.table_rows import read_tags
from ragauge.stats.comparisons import Comparisons

DEFAULT_CHANGED_QUERIES = 3


def compare(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help="Judgments and runs; or, without QRELS, folders written by `run` or `judge`, or tables of scores "
            "(run, query, measure, value). NAME=RUN names a run; several runs with one name are seeds of that system.",
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("-b", "--baseline", metavar="RUN", show_default="every pair", help="Baseline: name or file."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            metavar="NAME",
            show_default=f"those of the run folder, or {' '.join(DEFAULT_MEASURES)}",
            help="Measure. Can be repeated.",
        ),
    ] = None,
    test: Annotated[str, typer.Option(help="Test that decides: t, wilcoxon, sign or randomisation.")] = "t",
    correction: Annotated[
        str, typer.Option(help="Correction for several tests: holm, bonferroni, bh or none.")
    ] = "holm",
    family: Annotated[
        str, typer.Option(help="Comparisons that are corrected together: those of one measure, or all.")
    ] = "measure",
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the intervals; the level of the tests is 1 minus it.")
    ] = 0.95,
    interval: Annotated[str, typer.Option(help="Bootstrap interval: bca or percentile.")] = "bca",
    rounds: Annotated[int, typer.Option(help="Number of resamples.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed of the resampling.")] = 0,
    margin: Annotated[
        float | None, typer.Option(help="Test non-inferiority and equivalence within this margin.")
    ] = None,
    detect: Annotated[
        float | None, typer.Option(help="Difference for which the required number of queries is shown.")
    ] = None,
    power: Annotated[float, typer.Option(help="Probability of detecting it.")] = 0.8,
    by: Annotated[
        str | None, typer.Option(metavar="TAG", help="Also compare within strata: complexity, or a tag of the queries.")
    ] = None,
    tags: Annotated[
        str | None, typer.Option(metavar="FILE", help="Table with a query column; its other columns are tags.")
    ] = None,
    common_queries: CommonQueries = False,
    count_missing: Annotated[
        bool, typer.Option("--count-missing", help="Score queries that a run lacks as 0.")
    ] = False,
    moved: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            show_default="3 if two systems are compared",
            help="Number of queries to list that rose most, and that fell most.",
        ),
    ] = None,
    convention: ConventionName = "default",
    rel: MinRelevantGrade = None,
    depth: Annotated[
        int | None, typer.Option("-M", "--depth", metavar="N", help="Number of top documents per query to score.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Judgments of a BEIR folder: test, train or dev.")] = None,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: one row per comparison and stratum.")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
) -> None:
    """Compare systems query by query, with significance tests and intervals.

    [dim]ragauge compare qrels.txt bm25.run dense.run -b bm25 -m ndcg@10 -m recall@100[/dim]

    [dim]ragauge compare runs/pydocs -b bm25 --by complexity[/dim]
    """
    check_outputs(Comparisons, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name)
    if as_csv or (format_name in ("csv", "latex") and not out):
        refuse_options(context, ["moved"], "with CSV and LaTeX, which do not list queries")
    found = score_runs(files, baseline, measure, resolve_convention(convention, rel=rel, depth=depth), split=split)
    tagged = {query: dict(values) for query, values in found.tags.items()}
    if tags is not None:
        if by is None:
            raise BadInput("--tags has no effect without --by", hint="add `--by COLUMN`")
        for query, values in read_tags(tags).items():
            tagged.setdefault(query, {}).update(values)
    compared = compare_scores(
        found, baseline=found.baseline, by=by, tags=tagged, common_queries=common_queries, count_missing=count_missing,
        test=test, correction=correction, family=family, confidence=confidence,
        interval=interval, rounds=rounds, seed=seed, margin=margin, detect=detect, power=power,
        lower_is_better=lower_is_better, higher_is_better=higher_is_better,
    )  # fmt: skip
    is_hidden = moved is None and len(compared.systems) > 2  # These tables would outnumber the others.
    count = DEFAULT_CHANGED_QUERIES if moved is None else moved
    report = build_report(compared, changed_queries=0 if is_hidden else count)
    notes = [*describe_ties(found.scores.values()), *console.merge_notes(report.notes, compared.systems)]
    hint = ["--moved 3 shows the queries that rose and fell most"] if is_hidden else []
    write_result(
        [keep_changed_queries(compared, count)],
        out or [],
        as_json=as_json,
        as_csv=as_csv,
        format_name=format_name,
        report=replace(report, notes=[*notes, *hint]),
    )
