"""`ragauge run EXPERIMENT.toml` or `ragauge run DATASET --system …`: let systems answer, time and score them.

Where a file has several datasets, each is an experiment of its own, and one table puts them together.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ragauge import plugins
from ragauge.cli import console
from ragauge.cli.progress import Bar
from ragauge.datasets.folders import name_of
from ragauge.errors import BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.experiment_files import read_experiment
from ragauge.experiments import named_datasets, slug
from ragauge.experiments import run as run_systems
from ragauge.formats.writing import whole_file
from ragauge.outcomes import Experiment
from ragauge.overviews import Overview
from ragauge.reporting import KINDS, overview
from ragauge.reports import experiments as joint
from ragauge.reports.overviews import strata_table, tables, tested_by, timed_by
from ragauge.reports.overviews_csv import queries_csv, summary_csv
from ragauge.reports.overviews_data import as_data
from ragauge.reports.overviews_markdown import markdown
from ragauge.reports.overviews_trials import lacking, legend, wavered_by, wavers
from ragauge.reports.page.account import page
from ragauge.reports.tables import cell, counted, one_line
from ragauge.runs.archive import circumstance, is_complete
from ragauge.surveying import tagged
from ragauge.systems.specs import Spec, parse, without_secrets
from ragauge.vega import vega


def run(  # noqa: PLR0913 - each is an option of the command
    what: Annotated[str, typer.Argument(metavar="DATASET|FILE.toml", help="A dataset, or an experiment file.")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "-s", "--system", help="bm25, dense, 'dense(embedder=minilm)', NAME=…, or module:function; again for more."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("-d", "--dataset", help="In the place of the file's datasets; again for more."),
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
    elif dataset:
        raise BadInput("--dataset goes with an experiment file", hint='or write one: dataset = ["pydocs", "…"]')
    else:
        settings.update(dataset=what, systems={})
    known = settings["systems"]
    if system:
        settings["systems"] = _systems(system, known)
    given = {
        "measures": measure, "k": k, "baseline": baseline, "repeats": repeats, "warmup": warmup, "workers": workers,
        "timeout": timeout, "retries": retries, "convention": convention, "out": out, "split": split, "limit": limit,
        "dataset": dataset or None,
    }  # fmt: skip
    settings.update({name: value for name, value in given.items() if value is not None})
    if not settings["systems"]:
        raise BadInput("there is no system to run", hint="--system bm25 --system dense; `ragauge systems` lists them")
    _settle_baseline(settings, known, given=baseline is not None)
    if "out" not in settings:
        settings["out"] = Path("runs") / slug(Path(what).stem if what.endswith(".toml") else name_of(Path(what)))
    again = "the same command"
    if "{now}" in str(settings["out"]):
        settings["out"] = str(settings["out"]).replace("{now}", datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S"))
        again += f" with --out {shlex.quote(settings['out'])}"
    if isinstance(settings["dataset"], list | dict):
        _each(settings, fresh=fresh, again=again, as_json=output, by=by)
    else:
        finish(perform(settings, fresh=fresh, again=again), as_json=output, by=by)


def _each(settings: dict[str, Any], *, fresh: bool, again: str, as_json: bool, by: str | None) -> None:
    """An experiment for each dataset, and what they say together; one that cannot be run stops no other."""
    folder = Path(settings["out"])
    named = named_datasets(settings["dataset"])
    places = {name: slug(name) for name in named}
    seen: dict[str, Overview] = {}
    experiments: list[Experiment] = []
    failures: list[RagaugeError] = []
    absent: dict[str, str] = {}
    tags: set[str] = set()
    for name, dataset in named.items():
        sys.stderr.write(f"{one_line(name)}\n")
        try:
            found = perform({**settings, "dataset": dataset, "out": folder / places[name]}, fresh=fresh, again=again)
            if not as_json:
                console.show(*([""] if seen else []), cell(name, "bold"))
            own = _tags(found)
            tags |= own
            if by is not None and by not in own:
                note = f"not split by {by}: the queries have no such tag (there are {', '.join(sorted(own)) or 'none'})"
                found = replace(found, notes=[*found.notes, note])
            seen[name] = _told(found, as_json=as_json, by=by if by in own else None, explained=False)
        except RagaugeError as error:
            absent[name] = error.message
            failures.append(_of(name, error))
            continue
        experiments.append(found)
        failures += [_of(name, error) for error in found.failures.values()]
    if not seen:
        raise failures[0]
    if by is not None and by not in tags:
        failures.append(UnknownName("tag", by, tags, hint=f"there are {', '.join(sorted(tags)) or 'none'}"))
    title = folder.resolve().name
    files = {"report.md": joint.markdown(title, seen, absent, places), "summary.csv": joint.csv(seen)}
    wavering = next((one for one in seen.values() if wavers(one)), None)
    notes = [*joint.about(seen), *([] if wavering is None else legend(wavering))]
    notes += _write(files, folder, lambda: page([joint.account(title, seen, absent, places)], vega()))
    if as_json:
        _echo({"datasets": {name: as_data(one) for name, one in seen.items()}, "failures": absent})
    else:
        shown, left = joint.tables(seen, console.data().width)
        console.show("", cell(joint.headline(seen), "bold"))
        _show(shown)
        notes += _unseen(left)
        more = joint.measures(seen)[joint.MOST :]
        notes += [f"summary.csv and report.md also have {', '.join(more)}"] if more else []
    console.talk([*notes, f"wrote {folder}{os.sep}: {', '.join(files)}, and a folder for each dataset"])
    _end(failures, experiments)


def _tags(experiment: Experiment) -> set[str]:
    """What the queries can be split by."""
    tags = tagged(experiment.dataset.tags, next(iter(experiment.scores.values())))
    return {tag for mine in tags.values() for tag in mine}


def _of(dataset: str, error: RagaugeError) -> RagaugeError:
    """An error that says of which dataset it is."""
    error.message = f"{dataset}: {error.message}"
    return error


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
    seen = _told(experiment, as_json=as_json, by=by, audited=audited)
    if as_json:
        _echo(as_data(seen))
    _end(list(experiment.failures.values()), [experiment])


def _told(
    experiment: Experiment, *, as_json: bool, by: str | None, audited: bool = False, explained: bool = True
) -> Overview:
    """What is to be known of an experiment, written beside its runs, and shown unless data is wanted.

    Where it is not `explained`, whoever asks says what the columns of the table over trials are.
    """
    folder = experiment.folder or Path()
    seen = overview(experiment, by=by or (), audited=audited)
    files = {"report.md": markdown(seen), "summary.csv": summary_csv(seen), "scores.csv": queries_csv(seen)}
    notes = _merged(experiment) + _write(files, folder, lambda: KINDS["html"].write(seen))
    left: list[str] = []
    if not as_json:
        width = console.data().width
        shown, left = tables(seen, width)
        shown += [] if by is None else [strata_table(seen, by, width)]
        _show(shown)
    data = experiment.dataset
    console.talk(
        [
            f"{counted(len(data.documents), 'document')}, {counted(len(data.queries), 'query', 'queries')}, "
            f"convention {seen.convention}",
            *(
                f"{line}; `ragauge compare {shlex.quote(str(folder))} -b {shlex.quote(seen.baseline)}` says more"
                for line in tested_by(seen)
                if seen.baseline is not None
            ),
            *timed_by(seen),
            *(wavered_by(seen) if explained else lacking(seen)),
            *_unseen(left),
            *notes,
            f"wrote {folder}{os.sep}: {', '.join(files)}, judgments.parquet, "
            f"queries.parquet, and a folder for each run ({', '.join(map(slug, experiment.runs))})",
            *_beside(experiment),
        ]
    )
    return seen


def _merged(experiment: Experiment) -> list[str]:
    """The notes of an experiment; what is to be said of several systems is said once."""
    found: dict[str, list[str]] = {}
    for note in experiment.notes:
        name = next((one for one in experiment.runs if note.startswith(f"{one}: ")), None)
        text = note if name is None else note.removeprefix(f"{name}: ")
        found.setdefault(text, []).extend([] if name is None else [name])
    return [f"{', '.join(names)}: {text}" if names else text for text, names in found.items()]


def _beside(experiment: Experiment) -> list[str]:
    """Which runs of the same work are in the folder that the report says nothing of, if there are any."""
    if experiment.folder is None:
        return []
    mine = [slug(name) for name in experiment.runs]
    about = next(iter(experiment.runs.values())).manifest
    others = []
    for place in sorted(one for one in experiment.folder.iterdir() if one.name not in mine and is_complete(one)):
        if all(circumstance(place, key) == about.get(key) for key in ("dataset", "plan")):
            others.append(str(circumstance(place, "system")["name"]))
    if not others:
        return []
    folder = experiment.folder
    return [
        f"the report is of {', '.join(experiment.runs)} alone; {folder} also has {', '.join(others)}: "
        f"`ragauge report {shlex.quote(str(folder))}` shows all"
    ]


def _write(files: dict[str, str], folder: Path, page: Callable[[], str]) -> list[str]:
    """Write files, and the page to them; or say why there is none."""
    notes = []
    try:
        files["report.html"] = page()
    except MissingExtra as missing:
        notes.append(f"no report.html: {missing.message} ({missing.hint})")
    for name, text in files.items():
        with whole_file(str(folder / name)) as file:
            file.write(text.encode("utf-8", "replace"))
    return notes


def _show(shown: Sequence[Table]) -> None:
    console.show(*[part for table in shown for part in (table, "")][:-1])


def _unseen(left: Sequence[str]) -> list[str]:
    return [f"not shown, for want of room: {', '.join(left)}; report.md has them"] if left else []


def _echo(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def _end(failures: Sequence[RagaugeError], experiments: Iterable[Experiment]) -> None:
    """Tell what could not be run, and end with the code that goes with it."""
    for error in failures:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"error: {one_line(error.message + hint)}\n")
    codes = [error.exit_code for error in failures]
    for one in experiments:
        if all(speed.failed + speed.timed_out == speed.asked for speed in one.speeds.values()):
            codes.append(3)
    if codes:
        raise typer.Exit(max(codes))


def _settle_baseline(settings: dict[str, Any], known: Mapping[str, Any], *, given: bool) -> None:
    """A baseline that is `given` must be among the systems; that of a file goes where the chosen ones lack it."""
    name, systems = settings.get("baseline"), settings["systems"]
    if name is None or name in systems:
        return
    if given:
        if name in known:
            hint = f"-s {shlex.quote(name)} beside the others"
            raise BadInput(f"the baseline `{name}` is in the file, but not among the systems to run", hint=hint)
        raise UnknownName("system", name, [*systems, *known], hint="the baseline is one of the systems")
    if name in known:  # a name that the file itself does not have is told where it is run
        del settings["baseline"]
        console.talk([f"there is no baseline: the file's, {name}, is not among the systems (-s {shlex.quote(name)})"])


def _systems(given: list[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Systems by name, as the command line gives them; of a file, those that are named."""
    named: dict[str, Any] = {}
    for text in given:
        found = re.match(r"([\w.+-]+)=(?!=)(.+)", text, re.S)
        name, description = (found[1], found[2]) if found else (text, text)
        own = re.fullmatch(r"[\w.]+:[\w.]+", description)
        if found is None and not own and text not in known:
            spec = parse(text)
            usual = plugins.names("retrievers")
            if known and spec.name not in usual:
                hint = f"the file has {', '.join(known)}"
                raise UnknownName("system", spec.name, [*known, *usual], hint=hint)
            name = str(without_secrets(spec))  # a name stands on the screen and on folders
        if name in named:
            raise BadInput(f"two systems are called `{name}`", hint=f"--system other={description}")
        named[name] = known[text] if text in known else plugins.own(description) if own else description
    others = {name: one for name, one in known.items() if name not in named}
    return {name: _written_out(one, others) for name, one in named.items()}


def _written_out(system: Any, others: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    """A system made of `others` of the file, which do not run themselves, with these in the place of their names."""

    def meant(name: Any) -> Any:
        if not isinstance(name, str) or name not in others:
            return name
        if name in above:
            raise BadInput(f"the system `{name}` is made of itself")
        return _written_out(others[name], others, (*above, name))

    if not isinstance(system, Spec):
        return system
    inner = {key: system.options[key] for key in ("of", "retriever") if key in system.options}
    found = {key: [meant(one) for one in it] if isinstance(it, list) else meant(it) for key, it in inner.items()}
    return Spec(system.name, {**system.options, **found})
