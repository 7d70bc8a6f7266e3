"""Output folder of an experiment: its lock, its checks, and the files that its runs share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ragauge.core.errors import BadInput
from ragauge.core.hashes import hash_judgments
from ragauge.core.records import Dataset
from ragauge.files.readers import read_judgments
from ragauge.files.workspace import folder_name, hold_folder
from ragauge.runs import folder as runs_folder
from ragauge.runs.experiment_folders import QUERIES_FILE, TARGETS_FILE, write_experiment_files
from ragauge.runs.folder import DATASET_HASHES, JUDGMENTS_FILE
from ragauge.runs.results import Experiment

P = ParamSpec("P")
T = TypeVar("T")

RESERVED_NAMES = (
    *("report.html", "report.md", "summary.csv", "scores.csv", "charts"),
    *(JUDGMENTS_FILE, QUERIES_FILE, TARGETS_FILE, runs_folder.EXPERIMENT_FILE),
)
"""File names that cannot be used for the folder of a run."""


def lock_out_folder(function: Callable[P, T]) -> Callable[P, T]:
    """Hold a shared lock on the folder `out` during a call.

    Other systems can run in the folder at the same time.
    """

    @wraps(function)
    def call_with_lock(*args: P.args, **kwargs: P.kwargs) -> T:
        out = kwargs.get("out")
        with contextlib.nullcontext() if out is None else hold_folder(str(out), shared=True):
            return function(*args, **kwargs)

    return call_with_lock


def write_experiment(experiment: Experiment, folder: Path) -> None:
    """Write the judgments, queries and scoring settings that runs share."""
    runs, first = experiment.runs, next(iter(experiment.scores.values()))
    about = {
        "systems": list(dict.fromkeys([*runs, *experiment.failures])),
        "baseline": experiment.baseline,
        "convention": first.convention,
        "measures": first.measures,
        "failures": {name: error.message for name, error in experiment.failures.items() if name not in runs},
    }
    write_experiment_files(folder, experiment.dataset, about)


def check_folder_matches(
    folder: Path, data: Dataset, fingerprint: Mapping[str, Any], own_folders: set[str], *, fresh: bool
) -> None:
    """Raise BadInput if runs in the folder have other queries or judgments.

    Runs that `fresh` replaces are not checked.
    """
    hint = "give another --out"
    known_hash = hash_judgments(data.judgments)
    for run in runs_folder.find_run_folders(folder):
        if run.name in own_folders and fresh:
            continue
        recorded = runs_folder.manifest_value(run, "dataset")
        for key, noun in DATASET_HASHES.items():
            if isinstance(recorded, Mapping) and recorded.get(key) not in (None, fingerprint[key]):
                raise BadInput(
                    f"holds a finished run of other {noun}; expected {fingerprint[noun]} {noun} of `{data.name}`, "
                    f"got {recorded.get(noun)} of `{recorded.get('name')}`",
                    file=str(run),
                    hint=hint + (", or --fresh to replace the run" if run.name in own_folders else ""),
                )
        judgments_hash = runs_folder.manifest_value(run, "judgments_hash")
        if run.name not in own_folders and judgments_hash not in (None, known_hash):
            raise BadInput(
                f"holds a finished run with other judgments than those of `{data.name}`",
                file=str(run),
                hint=f"{hint}, or run `{runs_folder.manifest_value(run, 'system')['name']}` again in the same command",
            )
    saved = folder / JUDGMENTS_FILE
    if fresh or not saved.exists() or not runs_folder.find_run_folders(folder):
        return
    before, now = read_judgments(folder).nested, data.judgments.nested
    missing = [query for query in before if query not in now]
    if missing:
        raise BadInput(
            f"has judgments of {len(before)} queries, {len(missing)} of which `{data.name}` lacks (such as "
            f"`{missing[0]}`)",
            file=str(saved),
            hint=f"{hint}, or --fresh to replace the runs",
        )


def check_folder_names(names: Iterable[str], noun: str) -> None:
    """Raise BadInput if two names map to one folder, or a name to a reserved file."""
    names_by_folder: dict[str, str] = {}
    for name in names:
        other = names_by_folder.setdefault(folder_name(name), name)
        if other != name:
            raise BadInput(f"`{name}` and `{other}` would share a folder", hint="rename one of them")
        if folder_name(name) in RESERVED_NAMES:
            raise BadInput(
                f"a {noun} cannot be named `{name}`, because a file next to the runs has this name", hint="rename it"
            )
