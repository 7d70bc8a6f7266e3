"""`ragauge gate QRELS RUN --rule …`: check a run against rules; exit with 0 if all pass, 1 if not."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import (
    FormatName,
    HigherIsBetter,
    LowerIsBetter,
    MinRelevantGrade,
    OptionalConventionName,
    OutputFiles,
    PrintJson,
    QueryTags,
    TargetMap,
    baseline_option,
    csv_option,
    resolve_convention,
)
from ragauge.cli.output import check_outputs, write_result
from ragauge.core.errors import BadInput, RagaugeError
from ragauge.files.workspace import atomic_write, check_writable
from ragauge.gates.gate import evaluate_gate
from ragauge.gates.report import render_gate_junit
from ragauge.gates.results import Gate, GateError
from ragauge.gates.rule_grammar import read_gate_file
from ragauge.gates.settings import GateSettings
from ragauge.reports.registry import write_results


def gate(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[QRELS] RUN",
            help="Judgments and a run; or, without QRELS, a folder written by `run` or `judge`, or a table of scores. "
            "NAME=FILE names the run.",
        ),
    ],
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            "--rule",
            metavar="RULE",
            help="Rule: 'ndcg@10 >= 0.4', 'recall@100 drop <= 1%', 'mrr not worse', 'map non-inferior by 0.01', "
            "'p95_ms <= 50', 'failed <= 0', 'unscored(faithfulness) <= 5%'; it can end with 'in TAG=VALUE' or "
            "'by TAG'. Can be repeated.",
        ),
    ] = None,
    rules: Annotated[str | None, typer.Option(metavar="FILE.toml", help="File with rules and settings.")] = None,
    baseline: Annotated[
        str | None, baseline_option("", "Earlier run to compare with: a file or a folder.", "RUN")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(metavar="LEVEL", show_default="0.05", help="Significance level of the tests.")
    ] = None,
    correction: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default="none",
            help="Correction for the number of `not worse` rules: holm, bonferroni, bh or none.",
        ),
    ] = None,
    min_queries: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="5", help="Minimum number of queries for a significance test."),
    ] = None,
    convention: OptionalConventionName = None,
    rel: MinRelevantGrade = None,
    tags: QueryTags = None,
    targets: TargetMap = None,
    allow_changed_corpus: Annotated[
        bool,
        typer.Option(
            "--allow-changed-corpus",
            help="Accept a baseline of another corpus, and compare on the common queries.",
        ),
    ] = False,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("rule")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    junit: Annotated[
        str | None, typer.Option(metavar="FILE", help="JUnit XML file, written in addition to the other output.")
    ] = None,
) -> None:
    """Check a run against rules; exit with 1 if a rule fails or cannot be evaluated.

    [dim]ragauge gate qrels.txt new.run -b old.run -r 'ndcg@10 >= 0.4' -r 'mrr not worse'[/dim]
    """
    if len(files) > 2:
        raise BadInput(
            f"expected QRELS and one RUN, got {len(files)} files",
            hint=f"use `ragauge gate {files[0]} {files[1]} --baseline {files[2]}`",
        )
    check_outputs(Gate, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name)
    if junit == "-":
        raise BadInput("--junit cannot write to standard output", hint="name a file: `--junit gate.xml`")
    if junit is not None:
        check_writable(junit)
    optional_settings = {
        "baseline": baseline,
        "alpha": alpha,
        "correction": correction,
        "min_queries": min_queries,
        "tags": tags,
        "targets": targets,
        "lower_is_better": lower_is_better,
        "higher_is_better": higher_is_better,
        "allow_changed_corpus": allow_changed_corpus or None,
    }
    try:
        settings: dict[str, Any] = {"rules": []} if rules is None else read_gate_file(rules)
        settings.update({name: value for name, value in optional_settings.items() if value is not None})
        settings["rules"] = [*settings["rules"], *(rule or [])]
        settings["convention"] = resolve_convention(convention or settings.get("convention", "default"), rel=rel)
        qrels = files[0] if len(files) > 1 else None
        result = evaluate_gate(files[-1], GateSettings(**settings), qrels=qrels)
    except RagaugeError as error:
        # Overwrite the files of an earlier run, so that a reader who ignores the exit code is not misled.
        failed = Gate(files[-1], [], error=GateError.describe(error))
        write_results([failed], out or [], format_name)
        _write_junit(failed, junit)
        raise
    _write_junit(result, junit)
    write_result([result], out or [], as_json=as_json, as_csv=as_csv, format_name=format_name)
    if junit is not None:
        console.print_notes([f"wrote {junit}"])
    if not result.passed:
        raise typer.Exit(1)


def _write_junit(gate: Gate, path: str | None) -> None:
    if path is not None:
        with atomic_write(path) as file:
            file.write(render_gate_junit(gate))
