"""`ragauge run EXPERIMENT.toml` or `ragauge run DATASET --system …`: let systems answer, time and score them."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge import plugins
from ragauge.cli import console
from ragauge.cli.progress import Bar
from ragauge.datasets.folders import name_of
from ragauge.errors import BadInput, MissingExtra
from ragauge.experiment_files import read_experiment
from ragauge.experiments import run as run_systems
from ragauge.experiments import slug
from ragauge.formats.writing import whole_file
from ragauge.outcomes import Experiment
from ragauge.reporting import KINDS, overview
from ragauge.reports.overviews import strata_table, tables, tested_by, timed_by
from ragauge.reports.overviews_csv import queries_csv, summary_csv
from ragauge.reports.overviews_data import as_data
from ragauge.reports.overviews_markdown import markdown
from ragauge.reports.tables import counted, one_line
from ragauge.systems.specs import parse, without_secrets


def run(  # noqa: PLR0913 - each is an option of the command
    what: Annotated[str, typer.Argument(metavar="DATASET|FILE.toml", help="A dataset, or an experiment file.")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "-s", "--system", help="bm25, dense, 'dense(embedder=minilm)', NAME=…, or module:function; again for more."
        ),
    ] = None,
    measure: Annotated[list[str] | None, typer.Option("-m", "--measure", help="A measure; again for more.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="Documents a query.  [dim]default 10[/dim]")] = None,
    baseline: Annotated[str | None, typer.Option("-b", "--baseline", help="Compare the others with this one.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Ask every query so often.  [dim]default 1[/dim]")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Other queries before the clock counts.  [dim]default 5[/dim]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Ask so many queries at a time.  [dim]default 1[/dim]")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for one attempt.")] = None,
    retries: Annotated[int | None, typer.Option(help="Attempts after a failed one.  [dim]default 0[/dim]")] = None,
    convention: Annotated[str | None, typer.Option("-C", "--convention", help="As in evaluate.")] = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder: test, train, dev.")] = None,
    limit: Annotated[int | None, typer.Option(help="Ask the first so many queries only.")] = None,
    by: Annotated[str | None, typer.Option(help="Also split the first measure by this tag of the queries.")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            help="The folder to write; {now} is the time (UTC).  [dim]default runs/ and the dataset or the file[/dim]",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what is there already.")] = False,
    output: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Let systems answer the queries of a dataset; time, score and compare them.

    [dim]ragauge run pydocs -s bm25 -s dense -s 'hybrid(weights=0.7+0.3)' -b bm25[/dim]

    Every answer is on disk at once: after Ctrl-C or a crash the same command goes on where it stopped.
    """
    settings: dict[str, Any] = {"convention": "default"}
    if what.endswith(".toml"):
        settings.update(read_experiment(what))
    else:
        settings.update(dataset=what, systems={})
    if system:
        settings["systems"] = _systems(system, settings["systems"])
    given = {
        "measures": measure, "k": k, "baseline": baseline, "repeats": repeats, "warmup": warmup, "workers": workers,
        "timeout": timeout, "retries": retries, "convention": convention, "out": out, "split": split, "limit": limit,
    }  # fmt: skip
    settings.update({name: value for name, value in given.items() if value is not None})
    if not settings["systems"]:
        raise BadInput("there is no system to run", hint="--system bm25 --system dense; `ragauge systems` lists them")
    if "out" not in settings:
        settings["out"] = Path("runs") / slug(Path(what).stem if what.endswith(".toml") else name_of(Path(what)))
    again = "the same command"
    if "{now}" in str(settings["out"]):
        settings["out"] = str(settings["out"]).replace("{now}", datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S"))
        again += f" with --out {shlex.quote(settings['out'])}"
    finish(perform(settings, fresh=fresh, again=again), as_json=output, by=by)


def perform(settings: dict[str, Any], *, fresh: bool, again: str = "the same command") -> Experiment:
    """Run, with somebody looking on; Ctrl-C says how to go on."""
    with Bar() as watch:
        try:
            return run_systems(**settings, fresh=fresh, watch=watch)
        except KeyboardInterrupt:
            again += " without --fresh" if fresh else ""
            sys.stderr.write(
                f"\nstopped at {watch.now or 'the beginning'}; what was answered is kept in {settings['out']}, "
                f"and {again} goes on from there\n"
            )
            raise typer.Exit(130) from None


def finish(experiment: Experiment, *, as_json: bool, by: str | None = None, audited: bool = False) -> None:
    """Write the report beside the runs, show the tables, name the files."""
    folder = experiment.folder or Path()
    seen = overview(experiment, by=by or (), audited=audited)
    files = {"report.md": markdown(seen), "summary.csv": summary_csv(seen), "scores.csv": queries_csv(seen)}
    notes = list(experiment.notes)
    try:
        files["report.html"] = KINDS["html"].write(seen)
    except MissingExtra as missing:
        notes.append(f"no report.html: {missing.message} ({missing.hint})")
    for name, text in files.items():
        with whole_file(str(folder / name)) as file:
            file.write(text.encode("utf-8", "replace"))
    left: list[str] = []
    if as_json:
        typer.echo(json.dumps(as_data(seen), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        width = console.data().width
        shown, left = tables(seen, width)
        shown += [] if by is None else [strata_table(seen, by, width)]
        console.show(*[part for table in shown for part in (table, "")][:-1])
    data = experiment.dataset
    console.talk(
        [
            f"{counted(len(data.documents), 'document')}, {counted(len(data.queries), 'query', 'queries')}, "
            f"convention {seen.convention}",
            *(
                f"{line}; `ragauge compare {folder} -b {seen.baseline}` says more"
                for line in tested_by(seen)
                if seen.baseline is not None
            ),
            *timed_by(seen),
            *([f"not shown, for want of room: {', '.join(left)}; report.md has them"] if left else []),
            *notes,
            f"wrote {folder}{os.sep}: {', '.join(files)}, judgments.parquet, "
            f"queries.parquet, and a folder for each run ({', '.join(map(slug, experiment.runs))})",
        ]
    )
    for error in experiment.failures.values():
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"error: {one_line(error.message + hint)}\n")
    if experiment.failures:
        raise typer.Exit(max(error.exit_code for error in experiment.failures.values()))
    if all(one.failed + one.timed_out == one.asked for one in experiment.speeds.values()):
        raise typer.Exit(3)


def _systems(given: list[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Systems by name, as the command line gives them; of a file, those that are named."""
    named: dict[str, Any] = {}
    for text in given:
        found = re.match(r"([\w.+-]+)=(?!=)(.+)", text, re.S)
        name, description = (found[1], found[2]) if found else (text, text)
        own = re.fullmatch(r"[\w.]+:[\w.]+", description)
        if found is None and not own and text not in known:
            name = str(without_secrets(parse(text)))  # a name stands on the screen and on folders
        if name in named:
            raise BadInput(f"two systems are called `{name}`", hint=f"--system other={description}")
        named[name] = known[text] if text in known else plugins.own(description) if own else description
    return named
