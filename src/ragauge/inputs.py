"""What the verbs are given: judgments and runs as files, or folders that `run` wrote, which know their judgments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge import formats
from ragauge.datasets.loading import judgments_of
from ragauge.errors import BadInput, Incomparable
from ragauge.formats.files import Source
from ragauge.records import Judgments, Run
from ragauge.runs import archive

NAMED = re.compile(r"([\w.+-][\w .+-]*)=(.+)", re.S)
"""`NAME=FILE`; the same name again is the same system again: another seed, another trial."""


@dataclass(frozen=True, eq=False)
class Given:
    """Judgments, and the runs by name: several files of one name are repetitions of one system."""

    qrels: Any
    """The judgments, as `evaluate` takes them."""
    runs: Mapping[str, Sequence[str]]
    texts: Mapping[str, str] = field(default_factory=dict)
    """`{query: text}`, where a run folder knows it."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`{query: {tag: value}}`, likewise."""
    dataset: str = ""
    """The name of the dataset that the runs were made on, where a run folder knows it."""

    @property
    def singles(self) -> dict[str, str]:
        """The runs, one of each name."""
        for name, files in self.runs.items():
            if len(files) > 1:
                raise BadInput(f"`{name}` is given {len(files)} times", hint="give each run a name of its own")
        return {name: files[0] for name, files in self.runs.items()}


def gather(arguments: Sequence[str]) -> Given:
    """Sort out what stands on a command line: `QRELS RUN…`, `RUN-FOLDER…`, or `EXPERIMENT-FOLDER…`.

    A run may be `NAME=FILE`. Where all arguments are folders that `run` wrote, the judgments are those beside them, and
    an experiment's folder stands for all its runs.
    """
    if arguments.count("-") > 1:
        raise BadInput("standard input can be read once", hint="give - for one file only")
    if not arguments:
        raise BadInput("nothing is given", hint="judgments and runs, or a folder that `ragauge run` wrote")
    split = [_named(one) for one in arguments]
    paths = [path for _, path in split]
    whole = [_is_experiment(path) for path in paths]
    if all(whole):
        inside = [(None, str(run)) for path in paths for run in _runs_in(Path(path))]
        return _from_folders(inside, [Path(path) for path in paths])
    if all(archive.is_complete(Path(path)) for path in paths):
        homes = list(dict.fromkeys(Path(path).resolve().parent for path in paths))
        if all(_is_experiment(str(home)) for home in homes):
            return _from_folders(split, homes)
        raise BadInput(
            f"no judgments.parquet is beside {paths[0]}", hint="give the judgments first: QRELS, then the runs"
        )
    if len(arguments) < 2:
        raise BadInput("a run is missing", file=paths[0], hint="judgments first, then runs")
    known = _known(Path(paths[0])) if whole[0] else Given(judgments_of(arguments[0]), {})
    return Given(known.qrels, _by_name(split[1:]), known.texts, known.tags, known.dataset)


def open_run(path: str) -> Run:
    """A run, whole; of a run folder with its timings and circumstances."""
    return archive.read(Path(path)) if Path(path).is_dir() else formats.read_run(path, name=Source(path).stem)


def _named(argument: str) -> tuple[str | None, str]:
    found = None if Path(argument).exists() else NAMED.fullmatch(argument)
    return (found[1], found[2]) if found else (None, argument)


def _is_experiment(path: str) -> bool:
    return (Path(path) / "judgments.parquet").exists() and bool(_runs_in(Path(path)))


def _runs_in(folder: Path) -> list[Path]:
    return sorted(one.parent for one in folder.glob("*/manifest.json") if archive.is_complete(one.parent))


def _known(folder: Path) -> Given:
    """What the folder of an experiment knows beside its runs."""
    texts: dict[str, str] = {}
    tags: dict[str, dict[str, str]] = {}
    asked = folder / "queries.parquet"
    if asked.exists():
        import polars as pl

        try:
            for query, text, tagged in pl.read_parquet(asked).select("query", "text", "tags").iter_rows():
                texts[query] = text
                tags[query] = {str(name): str(value) for name, value in json.loads(tagged).items()}
        except (ValueError, AttributeError, OSError, pl.exceptions.PolarsError) as error:
            raise BadInput(f"is damaged ({error})", file=str(asked), hint="`ragauge run` writes it again") from None
    first = next(iter(_runs_in(folder)), folder)
    dataset = (archive.circumstance(first, "dataset") or {}).get("name", "")
    return Given(str(folder), {}, texts, tags, str(dataset))


def _from_folders(runs: Sequence[tuple[str | None, str]], homes: Sequence[Path]) -> Given:
    known = _known(homes[0])
    first = formats.read_judgments(homes[0])
    for home in homes[1:]:
        if not same_judgments(first, formats.read_judgments(home)):
            raise Incomparable(
                f"the judgments in {home} are not those in {homes[0]}",
                hint="give one file of judgments first, and both are scored by it",
            )
    return Given(first, _by_name(runs), known.texts, known.tags, known.dataset)


def same_judgments(one: Judgments, other: Judgments) -> bool:
    """Whether two judgments say the same, in whatever order."""
    return one is other or {q: dict(docs) for q, docs in one.nested.items()} == {
        q: dict(docs) for q, docs in other.nested.items()
    }


def _by_name(runs: Sequence[tuple[str | None, str]]) -> dict[str, list[str]]:
    named = _names([path for name, path in runs if name is None])
    found: dict[str, list[str]] = {}
    for name, path in runs:
        found.setdefault(name or named[path], []).append(path)
    return found


def _names(runs: Sequence[str]) -> dict[str, str]:
    """The stem of each file; where two are alike, with the folder before it."""
    if len(set(runs)) < len(runs):
        raise BadInput("the same run is given twice", hint="give each file once")
    stems = [Source(run).stem for run in runs]
    if len(set(stems)) < len(stems):
        stems = [f"{Path(run).resolve().parent.name}/{stem}" for run, stem in zip(runs, stems, strict=True)]
    if len(set(stems)) < len(stems):
        stems = list(runs)
    return dict(zip(runs, stems, strict=True))
