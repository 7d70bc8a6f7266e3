"""`ragauge gate QRELS RUN --rule …`: check a run against rules; exit with 0 if all pass, 1 if not."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.options import (
    HigherIsBetter,
    LowerIsBetter,
    MinRelevantGrade,
    OptionalConventionName,
    resolve_convention,
)
from ragauge.core.errors import BadInput, RagaugeError
from ragauge.files.workspace import atomic_write
from ragauge.gates import gate as hold
from ragauge.gates import report
from ragauge.gates.results import Gate
from ragauge.gates.rule_grammar import read_gate_file


def gate(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[QRELS] RUN",
            help="As in evaluate; without QRELS a folder that `run` wrote, which also knows times and tags, one that "
            "`judge` wrote, or a table of scores.",
        ),
    ],
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            "--rule",
            help="What must hold; again for more: 'ndcg@10 >= 0.4', 'recall@100 drop <= 1%', 'mrr not worse', "
            "'map non-inferior by 0.01', 'p95_ms <= 50', 'failed <= 0', 'unscored(faithfulness) <= 5%', "
            "'stale_rate@10 <= 0.05'; "
            "'in TAG=VALUE' or 'by TAG' at the end.",
        ),
    ] = None,
    rules: Annotated[str | None, typer.Option(metavar="FILE.toml", help="Rules and settings from a file.")] = None,
    baseline: Annotated[
        str | None, typer.Option("-b", "--baseline", help="The run to compare with: a file, or a folder as above.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="The level of the tests.  [dim]default 0.05[/dim]")] = None,
    correction: Annotated[
        str | None, typer.Option(help="Correct `not worse` for their number: holm, bonferroni, bh.")
    ] = None,
    min_queries: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="5", help="Minimum number of queries for a significance test."),
    ] = None,
    convention: OptionalConventionName = None,
    rel: MinRelevantGrade = None,
    tags: Annotated[str | None, typer.Option(help="A table with a query column: its other columns are tags.")] = None,
    targets: Annotated[str | None, typer.Option(help="A target map (document target) for dr@k.")] = None,
    versions: Annotated[
        str | None, typer.Option(metavar="FILE", help="Versions of the corpus, as in freshness, for stale_rate@k.")
    ] = None,
    allow_changed_corpus: Annotated[
        bool,
        typer.Option(
            "--allow-changed-corpus",
            help="Accept a baseline of another corpus: compare on the common queries.",
        ),
    ] = False,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    markdown: Annotated[str | None, typer.Option(metavar="FILE", help="Also write a summary as Markdown.")] = None,
) -> None:
    """Check a run against rules; exit with 1 if a rule fails or cannot be evaluated.

    [dim]ragauge gate qrels.txt new.run -b old.run -r 'ndcg@10 >= 0.4' -r 'mrr not worse'[/dim]

    Exit codes: 0 every rule holds, 1 one does not, 2 a mistake, 4 run and baseline are not of the same data.
    """
    try:
        if len(files) > 2:
            raise BadInput(f"{len(files)} files are given", hint="ragauge gate QRELS RUN --baseline RUN")
        if "-" in (junit, markdown):
            raise BadInput("standard output is for the table", hint="--junit and --markdown name files")
        settings: dict[str, Any] = {"rules": []} if rules is None else read_gate_file(rules)
        given: dict[str, Any] = {
            "baseline": baseline,
            "alpha": alpha,
            "correction": correction,
            "min_queries": min_queries,
            "tags": tags,
        }
        given |= {"targets": targets, "versions": versions}
        given |= {"lower_is_better": lower_is_better, "higher_is_better": higher_is_better}
        given |= {"allow_changed_corpus": True if allow_changed_corpus else None}
        settings.update({name: value for name, value in given.items() if value is not None})
        settings["rules"] = [*settings["rules"], *(rule or [])]
        settings["convention"] = resolve_convention(convention or settings.get("convention", "default"), rel=rel)
        found = hold(files[-1], qrels=files[0] if len(files) > 1 else None, **settings)
    except RagaugeError as error:
        # Overwrite the files of an earlier run, so that a reader who ignores the exit code is not misled.
        _write_gate_file(junit, report.render_undecided_junit(files[-1], error))
        _write_gate_file(markdown, report.render_undecided_markdown(files[-1], error).encode("utf-8", "replace"))
        raise
    _write_gate_report(found, as_json=as_json, junit=junit, markdown=markdown)
    if not found.passed:
        raise typer.Exit(1)


def _write_gate_report(found: Gate, *, as_json: bool, junit: str | None, markdown: str | None) -> None:
    _write_gate_file(junit, report.render_gate_junit(found))
    _write_gate_file(markdown, report.render_gate_markdown(found).encode("utf-8", "replace"))
    if as_json:
        console.write_data(json.dumps(report.gate_to_dict(found), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        console.print_tables(report.build_checks_table(found, console.stdout_console().width))
    console.print_notes([report.summarise_gate(found), *report.gate_report_notes(found)])


def _write_gate_file(path: str | None, text: bytes) -> None:
    if path is not None and path != "-":
        with atomic_write(path) as file:
            file.write(text)
