"""`ragauge compare QRELS RUN… --baseline NAME`: test differences between systems for significance."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    CommonQueries,
    ConventionName,
    Correction,
    CountMissing,
    Family,
    FormatName,
    HigherIsBetter,
    LowerIsBetter,
    MaxDepth,
    MinRelevantGrade,
    OutputFiles,
    PrintJson,
    QueryTags,
    SignificanceTest,
    Split,
    TargetMap,
    TestConfidence,
    baseline_option,
    check_not_negative,
    csv_option,
    measures_option,
    resolve_convention,
)
from ragauge.cli.output import check_outputs, write_result
from ragauge.comparison.compare import compare as compare_scores
from ragauge.comparison.report import build_report, keep_changed_queries
from ragauge.comparison.scored_files import COMPARISON_MEASURES, score_runs
from ragauge.core.errors import BadInput
from ragauge.evaluation.tie_notes import describe_ties
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
            "(run, query, measure, value). NAME=FILE names a run; several with one name are seeds of that system.",
        ),
    ],
    baseline: Annotated[
        str | None, baseline_option("every pair is compared", "Baseline: name or file of a run.", "RUN")
    ] = None,
    measure: Annotated[
        list[str] | None, measures_option(f"those of the run folder, or {', '.join(COMPARISON_MEASURES)}")
    ] = None,
    test: SignificanceTest = "t",
    correction: Correction = "holm",
    family: Family = "measure",
    confidence: TestConfidence = 0.95,
    interval: Annotated[
        str, typer.Option(metavar="NAME", help="Method of the bootstrap interval: bca or percentile.")
    ] = "bca",
    rounds: Annotated[int, typer.Option(metavar="N", help="Number of bootstrap resamples.")] = 10_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the resampling.")] = 0,
    margin: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Margin of the tests for non-inferiority and equivalence."),
    ] = None,
    detect: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Difference for which the required number of queries is computed."),
    ] = None,
    power: Annotated[
        float, typer.Option(metavar="SHARE", help="Power of the tests: probability of detecting a difference.")
    ] = 0.8,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="TAG", help="Tag of the queries, or complexity: each of its values is also compared separately."
        ),
    ] = None,
    tags: QueryTags = None,
    common_queries: CommonQueries = False,
    count_missing: CountMissing = False,
    moved: Annotated[
        int | None,
        typer.Option(
            callback=check_not_negative,
            metavar="N",
            show_default="3, or 0 for more than two systems",
            help="Number of queries listed with the largest gains, and with the largest losses.",
        ),
    ] = None,
    convention: ConventionName = "default",
    rel: MinRelevantGrade = None,
    depth: MaxDepth = None,
    split: Split = None,
    targets: TargetMap = None,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("comparison and group of queries")] = False,
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
    rules = resolve_convention(convention, rel=rel, depth=depth)
    runs = score_runs(files, baseline, measure, rules, split=split, targets=targets)
    tagged = {query: dict(values) for query, values in runs.tags.items()}
    if tags is not None:
        if by is None:
            raise BadInput("--tags has no effect without --by", hint="add `--by COLUMN`")
        for query, values in read_tags(tags).items():
            tagged.setdefault(query, {}).update(values)
    compared = compare_scores(
        runs, baseline=runs.baseline, by=by, tags=tagged, common_queries=common_queries, count_missing=count_missing,
        test=test, correction=correction, family=family, confidence=confidence,
        interval=interval, rounds=rounds, seed=seed, margin=margin, detect=detect, power=power,
        lower_is_better=lower_is_better, higher_is_better=higher_is_better,
    )  # fmt: skip
    is_hidden = moved is None and len(compared.systems) > 2  # These tables would outnumber the others.
    count = DEFAULT_CHANGED_QUERIES if moved is None else moved
    report = build_report(compared, changed_queries=0 if is_hidden else count)
    notes = [*describe_ties(runs.scores.values()), *report.notes]
    hint = ["--moved 3 shows the queries that rose and fell most"] if is_hidden else []
    write_result(
        [keep_changed_queries(compared, count)],
        out or [],
        as_json=as_json,
        as_csv=as_csv,
        format_name=format_name,
        report=replace(report, notes=[*notes, *hint]),
    )
