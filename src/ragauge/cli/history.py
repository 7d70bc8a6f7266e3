"""`ragauge history FOLDER…`: show measures over time, from the folders that `run` wrote."""

from __future__ import annotations

import json
import sys
from importlib.resources import files as packaged
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import allow_only_options, check_output_libraries
from ragauge.cli.progress import show_status
from ragauge.core.errors import BadInput
from ragauge.experiments.history import history as look_back
from ragauge.experiments.history import report, report_text
from ragauge.files.workspace import atomic_write
from ragauge.output.terminal import sparkline_characters
from ragauge.runs.folder import utc_now


def history(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FOLDER]...", help="Where the results are, at any depth.  [dim]default runs[/dim]"),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            help="A measure, or a time: p50_ms, p95_ms, embed_p95_ms, throughput, …; can be repeated.  "
            "[dim]default what each was scored by[/dim]",
        ),
    ] = None,
    system: Annotated[list[str] | None, typer.Option("-s", "--system", help="Only this one; again for more.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("-d", "--dataset", help="Only results on this one; again for more.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option("-C", "--convention", help="Score every run again under this one, as in evaluate.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals; the tests' level is the rest.")] = 0.95,
    out: Annotated[str | None, typer.Option("-o", "--out", metavar="FILE.html", help="Write a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each point.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on standard output.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON's schema, and do nothing else.")] = False,
) -> None:
    """Show measures of saved runs over time.

    [dim]ragauge history runs -m ndcg@10 -m p95_ms[/dim]
    """
    if schema:
        allow_only_options(context, ["schema"], "--schema")
        console.write_data(
            (packaged("ragauge.experiments.history") / "history.schema.json").read_text(encoding="utf-8"), nl=False
        )
        return
    console.check_exclusive({"--json": as_json, "--csv": as_csv, "--markdown": as_markdown})
    if out is not None and not out.endswith((".html", ".htm")):
        raise BadInput("the page is an .html file", file=out, hint="-o history.html")
    check_output_libraries([out or ""], None)
    given = folders or ["runs"]
    try:
        with show_status(after=1.0) as tell:
            found = look_back(
                given, measures=measure, systems=system, datasets=dataset, convention=convention,
                confidence=confidence,
                watch=lambda what, done, total: tell(f"{what} {done:,} of {total:,}"),
            )  # fmt: skip
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        raise typer.Exit(130) from None
    if as_json:
        console.write_data(json.dumps(report.history_to_data(found), indent=2, ensure_ascii=False, allow_nan=False))
    elif as_csv:
        console.write_data(report.history_to_csv(found), nl=False)
        console.print_notes(report_text.describe_skipped(found))
    elif as_markdown:
        console.write_data(report.render_history_markdown(found), nl=False)
    else:
        tables, left = report.render_history_tables(
            found, console.stdout_console().width, sparkline_characters(sys.stdout.encoding)
        )
        console.print_tables(*tables)
        if left:
            console.print_notes([f"not shown, for want of room: {', '.join(left)}; --markdown has them"])
        once = report_text.is_first_always_previous(found) or report_text.COLUMN_TITLES["first"] in left
        console.print_notes(report_text.describe_history(found, ["before"] if once else ["before", "first"]))
    if out is not None:
        from ragauge.experiments.history.page import render_history_page
        from ragauge.output.page import load_vega_script

        with atomic_write(out) as file:
            file.write(render_history_page(found, utc_now(), load_vega_script()).encode("utf-8", "replace"))
        console.print_notes([f"wrote {out}"])
