"""`ragauge evaluate QRELS RUN…`: score runs against judgments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import typer

from ragauge import __version__
from ragauge.cli import console
from ragauge.cli.console import ClusterAddress
from ragauge.cli.options import (
    QRELS_HELP,
    RUNS_HELP,
    ChartsFolder,
    ConventionName,
    MaxDepth,
    MinRelevantGrade,
    OutputFiles,
    PrintJson,
    QrelsFormat,
    RunFormat,
    Split,
    TargetMap,
    csv_option,
    measures_option,
    resolve_convention,
)
from ragauge.cli.output import print_table
from ragauge.cli.progress import show_progress
from ragauge.compute import dask_cluster
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.findings import has_code
from ragauge.evaluation.evaluate import (
    DIFFERING_TRIALS,
    default_measures,
    judgments_for_measures,
    parse_measures,
    score_runs_by_name,
    with_target_map,
)
from ragauge.evaluation.report import (
    build_csv_table,
    build_long_query_table,
    build_query_table,
    build_score_table,
    describe_convention,
    transpose_scores,
)
from ragauge.evaluation.results import EvaluatedRuns, collect_scores
from ragauge.evaluation.tie_notes import describe_ties
from ragauge.evaluation.trec_eval_text import render_trec_eval, select_measure_names
from ragauge.files.neighbour_arrays import check_row_counts
from ragauge.files.serialization import to_json
from ragauge.output.csv import render_csv
from ragauge.runs.folder import utc_now
from ragauge.runs.inputs import Inputs

TREC_EVAL_FORMAT = "trec_eval"


def evaluate(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help=f"{QRELS_HELP}. {RUNS_HELP}. Or exact and found neighbours (.ivecs, .ibin, .npy).",
        ),
    ],
    measure: Annotated[list[str] | None, measures_option("ndcg@10, recall@100, map, mrr, precision@10")] = None,
    convention: ConventionName = "default",
    rel: MinRelevantGrade = None,
    depth: MaxDepth = None,
    per_query: Annotated[
        bool, typer.Option("-q", "--per-query", help="Also print the scores of single queries.")
    ] = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("run and measure, or per score with -q")] = False,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Print this format, or write it to the file of -o: html, json, csv, markdown, latex; or print "
            "trec_eval, its three columns.",
        ),
    ] = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
    targets: TargetMap = None,
    split: Split = None,
    qrels_format: QrelsFormat = None,
    run_format: RunFormat = None,
    cluster: ClusterAddress = None,
) -> None:
    """Score runs against judgments.

    [dim]ragauge evaluate qrels.txt bm25.run dense.run -m ndcg@10 -m recall@100[/dim]
    """
    outputs = _Outputs(out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    outputs.check()
    rules = resolve_convention(convention, rel=rel, depth=depth)
    inputs = Inputs.resolve(*files)
    rules = with_target_map(rules, inputs.qrels, targets)
    check_row_counts(inputs.qrels, inputs.single_runs.values())
    usual = default_measures(inputs.qrels, inputs.single_runs.values())
    is_trec = format_name == TREC_EVAL_FORMAT
    requested = measure or (["official"] if is_trec else usual)
    measures = parse_measures(select_measure_names(requested) if is_trec else requested, rules, trec=is_trec)
    judgments = judgments_for_measures(measures, inputs.qrels, qrels_format=qrels_format, targets=targets, split=split)
    with dask_cluster.dask_cluster(cluster) as executor, show_progress() as progress:
        scores = score_runs_by_name(
            judgments,
            inputs.single_runs,
            measures,
            rules,
            run_format=run_format,
            executor=executor,
            progress=progress,
        )
    if is_trec:
        for run_scores in scores.values():
            console.write_data(render_trec_eval(run_scores, measures, requested, rules, per_query=per_query), nl=False)
            console.print_notes([note for note in run_scores.notes if has_code(note, DIFFERING_TRIALS)])
        return
    result = collect_scores(scores, per_query=per_query, provenance={"made": utc_now(), "ragauge": __version__})
    outputs.write(result)
    if outputs.prints_tables:
        notes = [describe_convention(result), *result.notes, *describe_ties(scores.values())]
        console.print_notes(console.limit_notes(notes))
    console.print_notes(outputs.written)


@dataclass(frozen=True)
class _Outputs:
    """Output options. Modules for pages and other formats are imported only if such a format is requested."""

    files: Sequence[str]
    _: KW_ONLY
    as_json: bool
    as_csv: bool
    format_name: str | None
    charts: str | None

    @property
    def printed_format(self) -> str | None:
        """Format that is printed; None for tables."""
        is_written = any(file != "-" for file in self.files)
        return "json" if self.as_json else "csv" if self.as_csv else None if is_written else self.format_name

    @property
    def prints_tables(self) -> bool:
        """Whether tables and notes are printed."""
        return self.printed_format is None

    @property
    def written(self) -> list[str]:
        """Notes on the files that were written."""
        chart_notes = [f"wrote the charts to {self.charts}"] if self.charts is not None else []
        return [*(f"wrote {file}" for file in self.files if file != "-"), *chart_notes]

    def check(self) -> None:
        """Check that the result can be written as requested, before any work."""
        is_printed = self.format_name is not None and all(file == "-" for file in self.files)
        console.check_exclusive({"--json": self.as_json, "--csv": self.as_csv, "--format": is_printed})
        if self.format_name == TREC_EVAL_FORMAT:
            if any(file != "-" for file in self.files) or self.charts is not None:
                raise BadInput("--format trec_eval is printed and has no file", hint="remove -o, or use `> scores.txt`")
        elif self.files or self.charts is not None or self.format_name is not None:
            from ragauge.cli.output import check_outputs
            from ragauge.reports.registry import find_formats

            formats = [*find_formats(EvaluatedRuns), TREC_EVAL_FORMAT]
            if self.format_name not in (None, *formats):
                raise UnknownName("output format", str(self.format_name), formats)
            check_outputs(
                EvaluatedRuns,
                self.files,
                as_json=self.as_json,
                as_csv=self.as_csv,
                format_name=self.format_name,
                charts=self.charts,
            )

    def write(self, result: EvaluatedRuns) -> None:
        """Print tables or data, and write files."""
        if self.printed_format == "json":
            console.write_data(to_json(result), nl=False)
        elif self.printed_format == "csv":
            console.write_data(render_csv(build_csv_table(result)), nl=False)
        elif self.printed_format is not None:
            from ragauge.reports.registry import find_formats

            console.write_data(find_formats(EvaluatedRuns)[self.printed_format].write([result]), nl=False)
        else:
            _print_tables(result)
        if self.files or self.charts is not None:
            from ragauge.reports.registry import write_results

            write_results([result], [file for file in self.files if file != "-"], self.format_name, self.charts)


def _print_tables(result: EvaluatedRuns) -> None:
    """Print the means, after the scores of single queries; the shape of the tables depends on the width."""
    width = console.stdout_console().width
    if result.queries:
        queries = build_query_table(result)
        print_table(queries if queries.width <= width else build_long_query_table(result))
        console.print_tables("")
    table = build_score_table(result)
    is_too_wide = len(result.runs) > 1 and table.width > width
    print_table(transpose_scores(table, result) if is_too_wide else table)
