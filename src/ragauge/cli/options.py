"""Command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ragauge.core.errors import BadInput
from ragauge.measures.conventions import Convention, find_convention

CORPUS_HELP = (
    "file (JSONL, TSV, CSV, JSON, Parquet; plain, .gz, .zst), text file (.txt, .md, .rst) or folder of them, BEIR "
    "folder, STIX bundle, or dataset by name"
)
"""Inputs that every command with a corpus reads."""
QRELS_HELP = "Judgments (TREC, BEIR folder or TSV, rig JSONL, CSV, JSON, Parquet)"
"""Judgments that every command with runs reads."""
RUN_FILES_HELP = "Runs (TREC, CSV, TSV, JSONL, JSON, Parquet; plain, .gz, .zst; - is stdin); NAME=FILE names a run"
RUNS_HELP = f"{RUN_FILES_HELP}. Folders of `run` need no judgments"
"""Runs that every command with runs reads."""


def check_positive(parameter: typer.CallbackParam, value: int | None) -> int | None:
    """Raise BadInput if the value of an option is below 1."""
    if value is not None and value < 1:
        option = max(parameter.opts, key=len)
        raise BadInput(f"{option} must be at least 1, got {value}", hint=f"use `{option} 1` or a larger number")
    return value


def check_not_negative(parameter: typer.CallbackParam, value: int | None) -> int | None:
    """Raise BadInput if the value of an option is below 0."""
    if value is not None and value < 0:
        option = max(parameter.opts, key=len)
        raise BadInput(f"{option} must be at least 0, got {value}", hint=f"use `{option} 0` or a larger number")
    return value


def resolve_convention(name: str, *, rel: float | None = None, depth: int | None = None) -> Convention:
    """Return the convention of `-C`, with the values of `--rel` and `--depth` if given."""
    overrides = {"rel": rel, "depth": depth}
    return find_convention(name).but(**{option: value for option, value in overrides.items() if value is not None})


def measures_option(default: str, text: str = "Measures, e.g. ndcg@10,map; `ragauge measures` lists all.") -> Any:
    """Return the option `-m`, with the default that the help shows."""
    return typer.Option("-m", "--measure", metavar="NAME", show_default=default, help=f"{text} Can be repeated.")


def csv_option(row: str = "") -> Any:
    """Return the option `--csv`; `row` says what a row has."""
    return typer.Option("--csv", help=f"Print CSV: one row per {row}." if row else "Print the table as CSV.")


def baseline_option(default: str, text: str = "System to compare the others with.", metavar: str = "NAME") -> Any:
    """Return the option `-b`, with the default that the help shows; an empty default is not shown."""
    return typer.Option("-b", "--baseline", metavar=metavar, show_default=default or False, help=text)


def format_option(*further: str) -> Any:
    """Return the option `--format` of a command with these formats besides the usual ones."""
    names = ["html", "json", "csv", "markdown", "latex", *further]
    text = f"Print this format, or write it to the file of -o: {', '.join(names[:-1])} or {names[-1]}."
    return typer.Option("--format", metavar="NAME", help=text)


_CONVENTION_HELP = (
    "Scoring convention: default, trec9, beir, ranx, rig, ann, …; options follow after commas, e.g. trec9,ties=ranked."
)
ConventionName = Annotated[str, typer.Option("-C", "--convention", metavar="NAME", help=_CONVENTION_HELP)]
OptionalConventionName = Annotated[
    str | None,
    typer.Option(
        "-C", "--convention", metavar="NAME", show_default="that of the input, or default", help=_CONVENTION_HELP
    ),
]
MinRelevantGrade = Annotated[
    float | None,
    typer.Option("-l", "--rel", metavar="GRADE", show_default="1", help="Minimum grade that counts as relevant."),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        "-M",
        "--depth",
        metavar="N",
        show_default="all",
        callback=check_positive,
        help="Maximum number of documents used per query.",
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", show_default="test, or the only one", help="Judgments of a BEIR folder: test, train, dev, …"
    ),
]
QrelsFormat = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default="detected", help="Format of the judgments, e.g. trec or subtopics."),
]
RunFormat = Annotated[
    str | None, typer.Option(metavar="NAME", show_default="detected", help="Format of the runs, e.g. trec or csv.")
]
TargetMap = Annotated[
    str | None,
    typer.Option(
        "--targets",
        metavar="FILE",
        show_default="targets.json or targets.tsv of the dataset",
        help="Target map for dr@k: documents and their targets, as JSON, JSONL, TSV or CSV.",
    ),
]
DocumentPart = Annotated[
    str, typer.Option("--part", metavar="NAME", help="Part of a document that is used: whole, text or title.")
]
QueryTags = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Table of query tags: a column with query ids, and a column per tag."),
]
Confidence = Annotated[float, typer.Option(metavar="LEVEL", help="Confidence level of the intervals.")]
TestConfidence = Annotated[
    float,
    typer.Option(
        "--confidence",
        metavar="LEVEL",
        help="Confidence level of the intervals; the significance level of the tests is 1 minus it.",
    ),
]
SignificanceTest = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Test whose p-value is corrected: t, wilcoxon, sign or randomisation (all are shown)."
    ),
]
Correction = Annotated[
    str, typer.Option(metavar="NAME", help="Multiple-comparison correction: holm, bonferroni, bh or none.")
]
Family = Annotated[
    str, typer.Option(metavar="NAME", help="Tests corrected together: those of each measure, or all (measure, all).")
]
CountMissing = Annotated[
    bool, typer.Option("--count-missing", help="Score a query that a run lacks as 0 instead of refusing it.")
]
LowerIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        "--lower-is-better",
        metavar="MEASURE",
        help="A measure of unknown direction for which lower values are better. Can be repeated.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default="1",
        help="Number of threads per worker of BLAS, OpenMP, torch and ONNX Runtime while queries are timed.",
    ),
]
HigherIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        "--higher-is-better",
        metavar="MEASURE",
        help="A measure of unknown direction for which higher values are better. Can be repeated.",
    ),
]
DocumentsPerQuery = Annotated[
    int | None,
    typer.Option(
        "-k",
        metavar="N",
        show_default="the largest cutoff of the measures, at least 10",
        help="Number of documents requested per query.",
    ),
]
MaxQueries = Annotated[
    int | None,
    typer.Option(
        "--max-queries",
        metavar="N",
        show_default="all",
        callback=check_positive,
        help="Maximum number of queries; the first ones are used.",
    ),
]
ChatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-option", metavar="NAME=VALUE", help="Option of the chat model, e.g. temperature=0. Can be repeated."
    ),
]
TokenPrice = Annotated[
    str | None,
    typer.Option("--token-price", metavar="IN,OUT", help="US dollars per million input and output tokens."),
]
PriceFile = Annotated[
    str | None, typer.Option("--prices", metavar="FILE.toml", help="US dollars per million tokens, by model.")
]
MaxCalls = Annotated[
    int | None,
    typer.Option(
        "--max-calls",
        metavar="N",
        show_default="no limit",
        help="Maximum number of requests to the chat model; probes and retries count.",
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        metavar="USD",
        show_default="no limit",
        help="Maximum cost in US dollars; probes and retries count.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print an estimate of calls, tokens and cost; send no request.")
]
JudgeWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", callback=check_positive, show_default="16", help="Maximum number of concurrent calls."
    ),
]
VerdictFormat = Annotated[
    str | None,
    typer.Option(
        "--verdict-format",
        metavar="NAME",
        show_default="json",
        help="Format of the verdicts: json, or tokens (one word per claim or chunk, with its probability).",
    ),
]
CommonQueries = Annotated[
    bool, typer.Option("--common-queries", help="Compare only the queries that all systems have.")
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse",
        help="Reuse finished results of your own functions, plug-ins and services instead of running them again.",
    ),
]
SaveBaseline = Annotated[
    str | None,
    typer.Option(
        "--save-baseline",
        metavar="FOLDER",
        help="Also save the runs with their judgments as a small baseline folder for `ragauge gate`.",
    ),
]
_OUT_HELP = "Output file; its ending is the format: .html, .json, .csv, .md or .tex. Can be repeated."
OutputFiles = Annotated[list[str] | None, typer.Option("-o", "--out", metavar="FILE", help=_OUT_HELP)]

TableFiles = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--out", metavar="FILE", help="Output file; its ending is the format: .json or .csv. Can be repeated."
    ),
]


def output_option(folder: str, default: str | None = None) -> Any:
    """Return the option `-o` of a command with a working folder, which `folder` describes."""
    return typer.Option(
        "-o",
        "--out",
        metavar="PATH",
        show_default=default or False,
        help=f"{folder}, or output file (.html, .json, .csv, .md or .tex). Can be repeated, with at most one folder.",
    )


OutputFilesAndReplies = Annotated[
    list[str] | None, output_option("Folder of the replies of the chat model; saved replies are reused")
]
PrintJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrintCsv = Annotated[bool, csv_option()]
FormatName = Annotated[str | None, format_option()]
ChartsFolder = Annotated[
    str | None, typer.Option("--charts", metavar="FOLDER", help="Write every chart to this folder, as SVG and PNG.")
]
