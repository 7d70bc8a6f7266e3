"""`ragauge run EXPERIMENT.toml` or `ragauge run DATASET --system …`: run, time and score systems.

If a file has several datasets, each is a separate experiment, and one table combines them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ragauge.cli import console
from ragauge.cli.options import DocumentsPerQuery, Reuse, SaveBaseline, Threads
from ragauge.cli.progress import Bar
from ragauge.comparison.results import Overview
from ragauge.core import plugins
from ragauge.core.errors import BadInput, MissingExtra, RagaugeError, UnknownName
from ragauge.core.specs import Spec, parse, without_secrets
from ragauge.core.text import one_line
from ragauge.datasets import load
from ragauge.datasets.folders import name_of
from ragauge.experiments import failed_everywhere, named_datasets, read_experiment
from ragauge.experiments import run as run_systems
from ragauge.experiments.baselines import check_baseline_folder, save_baseline
from ragauge.files.workspace import slug, whole_file
from ragauge.output.numbers import count_noun
from ragauge.output.page import page, vega
from ragauge.output.terminal import cell
from ragauge.reports import KINDS, overview
from ragauge.reports import experiment_set as joint
from ragauge.reports.data_export import as_data, queries_csv, summary_csv
from ragauge.reports.markdown import markdown
from ragauge.reports.survey import check_tag, list_tags
from ragauge.reports.systems_tables import (
    lacking,
    legend,
    strata_table,
    tables,
    tested_by,
    timed_by,
    wavered_by,
    wavers,
)
from ragauge.runs.folder import circumstance, is_complete
from ragauge.runs.interruption import command_scope
from ragauge.runs.results import Experiment, canonical_tag
from ragauge.systems.adapters import adapt_retriever


def save(experiment: Experiment, folder: Path) -> None:
    """Save the runs of an experiment as a baseline and print the option that uses it."""
    save_baseline(experiment, folder)
    first = shlex.quote(str(folder / slug(next(iter(experiment.runs)))))
    names = ", ".join(experiment.runs)
    console.talk(
        [f"saved the baseline {folder}{os.sep} ({names}); use it with `ragauge gate RUN --baseline {first} …`"]
    )


def run(  # noqa: PLR0913 - each is an option of the command
    what: Annotated[
        str,
        typer.Argument(metavar="DATASET|FILE.toml", help="Dataset (name, folder or rig JSONL), or experiment file."),
    ],
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
    k: DocumentsPerQuery = None,
    baseline: Annotated[str | None, typer.Option("-b", "--baseline", help="Compare the others with this one.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Ask every query so often.  [dim]default 1[/dim]")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Other queries before the clock counts.  [dim]default 5[/dim]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Ask so many queries at a time.  [dim]default 1[/dim]")] = None,
    threads: Threads = None,
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
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every system again, also built-in ones.")] = False,
    reuse: Reuse = False,
    save_to: SaveBaseline = None,
    output: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Let systems answer the queries of a dataset; time, score and compare them.

    [dim]ragauge run pydocs -s bm25 -s dense -s 'hybrid(weights=0.7+0.3)' -b bm25[/dim]

    Every answer is on disk at once: after Ctrl-C or a crash the same command goes on where it stopped.
    """
    if fresh and reuse:
        raise BadInput("--fresh and --reuse are mutually exclusive", hint="leave out one of them")
    settings: dict[str, Any] = {"convention": "default", "fresh": fresh, "reuse": reuse}
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
        "dataset": dataset or None, "threads": threads,
    }  # fmt: skip
    settings.update({name: value for name, value in given.items() if value is not None})
    if not settings["systems"]:
        raise BadInput("there is no system to run", hint="--system bm25 --system dense; `ragauge systems` lists them")
    _settle_baseline(settings, known, given=baseline is not None)
    if "out" not in settings:
        named = Path(what).stem if what.endswith((".toml", ".jsonl")) else name_of(Path(what))
        settings["out"] = Path("runs") / slug(named)
    again = "the same command"
    if "{now}" in str(settings["out"]):
        settings["out"] = str(settings["out"]).replace("{now}", datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S"))
        again += f" with --out {shlex.quote(settings['out'])}"
    if by is not None and isinstance(settings["dataset"], str):
        check_tag(by, load(settings["dataset"], split=settings.get("split")))
    several = isinstance(settings["dataset"], list | dict)
    if save_to is not None:
        folders = [slug(name) for name in named_datasets(settings["dataset"])] if several else [""]
        for folder in folders:
            check_baseline_folder(Path(save_to) / folder)
    with command_scope():  # until the report is written
        if several:
            _each(settings, again=again, as_json=output, by=by, save_to=save_to)
        else:
            found = perform(settings, again=again)
            finish(found, as_json=output, by=by, save_to=save_to)


def _each(settings: dict[str, Any], *, again: str, as_json: bool, by: str | None, save_to: str | None) -> None:
    """Run an experiment per dataset, and combine the results.

    A dataset that fails does not stop the others.
    """
    folder = Path(settings["out"])
    named = named_datasets(settings["dataset"])
    places = {name: slug(name) for name in named}
    seen: dict[str, Overview] = {}
    failures: list[RagaugeError] = []
    absent: dict[str, str] = {}
    tags: set[str] = set()
    for name, dataset in named.items():
        sys.stderr.write(f"{one_line(name)}\n")
        try:
            found = perform({**settings, "dataset": dataset, "out": folder / places[name]}, again=again)
            if not as_json:
                console.show(*([""] if seen else []), cell(name, "bold"))
            own = list_tags(found)
            tags |= own
            if by is not None and canonical_tag(by, own) not in own:
                note = f"not split by {by}: the queries have no such tag (there are {', '.join(sorted(own)) or 'none'})"
                found = replace(found, notes=[*found.notes, note])
            seen[name] = _told(
                found, as_json=as_json, by=by if by and canonical_tag(by, own) in own else None, explained=False
            )
            if save_to is not None and not _broken(found):
                save(found, Path(save_to) / places[name])
        except RagaugeError as error:
            absent[name] = error.message
            failures.append(_of(name, error))
            continue
        failures += [_of(name, error) for error in _broken(found)]
    if not seen:
        raise failures[0]
    if by is not None and canonical_tag(by, tags) not in tags:
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
    _end(failures)


def _of(dataset: str, error: RagaugeError) -> RagaugeError:
    """Add the name of the dataset to an error message."""
    error.message = f"{dataset}: {error.message}"
    return error


def perform(settings: dict[str, Any], *, again: str = "the same command") -> Experiment:
    """Run systems with a progress display; after Ctrl-C, say how to resume."""
    with Bar() as watch:
        try:
            return run_systems(**settings, allow_failures=True, watch=watch)
        except KeyboardInterrupt:
            again += " without --fresh" if settings["fresh"] else ""
            sys.stderr.write(
                f"\nstopped at {watch.now or 'the beginning'}; what was answered is kept in {settings['out']}, "
                f"and {again} goes on from there\n"
            )
            raise typer.Exit(130) from None


def finish(
    experiment: Experiment,
    *,
    as_json: bool,
    by: str | None = None,
    audited: bool = False,
    save_to: str | None = None,
) -> None:
    """Write the report next to the runs, print it, and save a baseline if requested."""
    seen = _told(experiment, as_json=as_json, by=by, audited=audited)
    if save_to is not None and not _broken(experiment):
        save(experiment, Path(save_to))
    if as_json:
        _echo(as_data(seen))
    _end(_broken(experiment))


def _told(
    experiment: Experiment, *, as_json: bool, by: str | None, audited: bool = False, explained: bool = True
) -> Overview:
    """Write the report of an experiment to the folder of its runs, and print it.

    With `as_json`, only notes are printed. Without `explained`, the caller explains the columns of the table of
    trials.
    """
    folder = experiment.folder or Path()
    by = None if by is None else canonical_tag(by, list_tags(experiment))
    seen = overview(experiment, by=by or (), audited=audited)
    files = {"report.md": markdown(seen), "summary.csv": summary_csv(seen), "scores.csv": queries_csv(seen)}
    notes = console.merge_notes(experiment.notes, experiment.runs) + _write(
        files, folder, lambda: KINDS["html"].write(seen)
    )
    left: list[str] = []
    if not as_json:
        width = console.data().width
        shown, left = tables(seen, width)
        shown += [] if by is None else [strata_table(seen, by, width)]
        _show(shown)
    data = experiment.dataset
    size = count_noun(len(data.documents), "document") if data.documents else "no corpus"
    console.talk(
        [
            f"{size}, {count_noun(len(data.queries), 'query', 'queries')}, convention {seen.convention}",
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


def _beside(experiment: Experiment) -> list[str]:
    """Name similar runs in the folder that the report omits.

    They have the same dataset and settings.
    """
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
    """Write files and the HTML report; return a note if that cannot be made."""
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
    console.write_data(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def _broken(experiment: Experiment) -> list[RagaugeError]:
    """Return the errors of systems that were not built or failed on every query."""
    runs = experiment.runs
    return [error for name, error in experiment.failures.items() if name not in runs or failed_everywhere(runs[name])]


def _end(failures: Sequence[RagaugeError]) -> None:
    """Print errors, and exit with the highest of their exit codes."""
    for error in failures:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"error: {one_line(error.message + hint)}\n")
    if failures:
        raise typer.Exit(max(error.exit_code for error in failures))


def _settle_baseline(settings: dict[str, Any], known: Mapping[str, Any], *, given: bool) -> None:
    """Check the baseline against the systems to run.

    One given on the command line must be among them. One from a file is dropped if it is not.
    """
    name, systems = settings.get("baseline"), settings["systems"]
    if name is None or name in systems:
        return
    if given:
        if name in known:
            hint = f"-s {shlex.quote(name)} beside the others"
            raise BadInput(f"the baseline `{name}` is in the file, but not among the systems to run", hint=hint)
        raise UnknownName("system", name, [*systems, *known], hint="the baseline is one of the systems")
    if name in known:  # a name that the file lacks is reported when it is run
        del settings["baseline"]
        console.talk([f"there is no baseline: the file's, {name}, is not among the systems (-s {shlex.quote(name)})"])


def _systems(given: list[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the systems of the command line by name.

    The name of a system in the file refers to that system.
    """
    named: dict[str, Any] = {}
    for text in given:
        found = re.fullmatch(r"([\w.+-](?:[\w .+-]|\([^()=]*\))*?)\s*=(?!=)\s*(.+)", text, re.S)
        name, description = (found[1], found[2]) if found else (text, text)
        own = re.fullmatch(r"([\w.]+:[\w.]+)(?:\(\s*id\s*=\s*([\w.-]+)\s*\))?", description)
        if found is None and not own and text not in known:
            spec = parse(text)
            usual = plugins.names("retrievers")
            if known and spec.name not in usual:
                hint = f"the file has {', '.join(known)}"
                raise UnknownName("system", spec.name, [*known, *usual], hint=hint)
            name = str(without_secrets(spec))  # the name is printed, and used for folders
        if name in named:
            raise BadInput(f"two systems are called `{name}`", hint=f"--system other={description}")
        named[name] = known[text] if text in known else _load_own(own[1], own[2]) if own else description
    others = {name: one for name, one in known.items() if name not in named}
    return {name: _written_out(one, others) for name, one in named.items()}


def _load_own(path: str, id: str | None) -> Any:
    """Import a user's system, `module:name`.

    `id` is the field of its hits that has the document id.
    """
    thing = plugins.own(path)
    return adapt_retriever(thing, id=id) if id else thing


def _written_out(system: Any, others: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    """Replace the names of `others` in a system by their specifications.

    The others are systems of the file that are not run themselves.
    """

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
