"""Folders of experiments: files that the runs share, and checks that runs belong to the same judgments and dataset."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, Incomparable, InputWarning, error_summary
from ragauge.core.hashes import hash_judgments
from ragauge.core.records import Dataset, Judgments
from ragauge.core.structured_text import InvalidText, parse_json
from ragauge.files import readers
from ragauge.files.parquet import read_parquet
from ragauge.files.serialization import write_record
from ragauge.files.writers import write_judgments, write_queries
from ragauge.output.numbers import join_names
from ragauge.runs import folder as runs_folder
from ragauge.runs.folder import DATASET_HASHES
from ragauge.runs.input_kinds import is_experiment_folder, is_run_folder

EXPERIMENT_FIELDS: Mapping[str, type] = {"measures": list, "failures": dict, "baseline": str, "systems": list}
"""Fields of `experiment.json`, and their types."""
QUERIES_FILE, TARGETS_FILE = "queries.parquet", "targets.json"
MISSING_JUDGMENTS_HINT = (
    "save a folder that has both with `ragauge run … --save-baseline FOLDER`, or pass the judgments first: QRELS, then "
    "the runs"
)


@dataclass(frozen=True)
class ExperimentMetadata:
    """Metadata of the runs in the folder of an experiment; empty if not stored."""

    query_texts: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dataset_name: str = ""
    measures: Sequence[str] = ()
    baseline: str | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    systems: Sequence[str] = ()
    """Names of the systems in the order in which they were run."""


def write_experiment_files(folder: Path, dataset: Dataset, about: Mapping[str, Any]) -> None:
    """Write the judgments, targets and queries that runs share, then the metadata `about` of the experiment."""
    judgments, targets = dataset.judgments, folder / TARGETS_FILE
    write_judgments(judgments, str(folder / runs_folder.JUDGMENTS_FILE))
    if judgments.targets is None:
        targets.unlink(missing_ok=True)
    else:
        write_record({doc: list(doc_targets) for doc, doc_targets in judgments.targets.items()}, targets)
    write_queries(dataset.queries, dataset.tags, str(folder / QUERIES_FILE))
    write_record(about, folder / runs_folder.EXPERIMENT_FILE)


def read_experiment_metadata(folder: Path) -> ExperimentMetadata:
    """Read the metadata of an experiment folder: query texts, tags and settings."""
    texts, tags = _read_queries(folder / QUERIES_FILE)
    fields = {
        name: runs_folder.manifest_value(folder, name, file_name=runs_folder.EXPERIMENT_FILE)
        for name in EXPERIMENT_FIELDS
    }
    about = folder / runs_folder.EXPERIMENT_FILE
    is_valid = all(isinstance(fields[name], kind | None) for name, kind in EXPERIMENT_FIELDS.items())
    if not is_valid or (about.exists() and all(value is None for value in fields.values())):
        raise BadInput("corrupt or incomplete", file=str(about), hint="run `ragauge run` again to rewrite it")
    return ExperimentMetadata(
        texts,
        tags,
        _read_dataset_name(folder),
        [str(measure) for measure in fields["measures"] or ()],
        fields["baseline"] and str(fields["baseline"]),
        {str(name): str(why) for name, why in (fields["failures"] or {}).items()},
        # A corrupt experiment.json may contain any type.
        [name for name in fields["systems"] or () if isinstance(name, str)],
    )


def read_query_texts(folder: Path) -> dict[str, str]:
    """Read the query texts of an experiment folder; empty if they are not stored."""
    return _read_queries(folder / QUERIES_FILE)[0]


def _read_queries(path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    texts: dict[str, str] = {}
    tags: dict[str, dict[str, str]] = {}
    if not path.exists():
        return texts, tags
    columns = ("query", "text", "tags")
    try:
        for query, text, tagged in read_parquet(path, columns=dict.fromkeys(columns, "text")).select(columns).rows():
            texts[query] = text
            tags[query] = {str(name): str(value) for name, value in parse_json(tagged).items()}
    except (AttributeError, InvalidText) as error:
        raise BadInput(
            f"the tags are corrupt ({error_summary(error)})",
            file=str(path),
            hint="run `ragauge run` again to rewrite the file",
        ) from None
    return texts, tags


def _read_dataset_name(folder: Path) -> str:
    """Return the name of the dataset of an experiment folder; empty if unknown."""
    first = next(iter(runs_folder.find_run_folders(folder)), folder)
    dataset = runs_folder.manifest_value(first, "dataset")
    return str(dataset.get("name", "")) if isinstance(dataset, Mapping) else ""


def read_shared_judgments(runs: Sequence[str], homes: Sequence[Path]) -> Judgments:
    """Read the judgments of the folders that the runs are in; raise Incomparable if they differ."""
    lone_folder = next((home for home in homes if not is_experiment_folder(home)), None)
    if lone_folder is not None:
        raise BadInput(
            f"no judgments.parquet in {lone_folder}; a run folder needs the one next to it", hint=MISSING_JUDGMENTS_HINT
        )
    run_paths = [Path(path) for path in runs]
    first = readers.read_judgments(homes[0])
    for home in homes:
        judgments = first if home == homes[0] else readers.read_judgments(home)
        check_run_judgments([run for run in run_paths if run.resolve().parent == home], judgments)
        if not has_same_judgments(first, judgments):
            names = [_read_dataset_name(folder) for folder in (homes[0], home)]
            raise Incomparable(
                f"the judgments in {home} (`{names[1]}`) are not those in {homes[0]} (`{names[0]}`)",
                hint="pass one file of judgments first, which scores both" if names[0] == names[1] else None,
            )
    return first


def check_run_judgments(runs: Sequence[Path], judgments: Judgments) -> None:
    """Refuse run folders that were made with other judgments than the given ones."""
    known_hash = hash_judgments(judgments) if runs else ""
    for run in runs:
        expected = runs_folder.manifest_value(run, "judgments_hash") if is_run_folder(run) else None
        if expected not in (None, known_hash):
            raise BadInput(
                f"the run was made with other judgments than those in {run.resolve().parent}; "
                f"expected hash {expected}, got {known_hash}",
                file=str(run),
                hint="run all systems of the folder again, or pass the judgments first: QRELS, then the runs",
            )


def has_same_judgments(first: Judgments, second: Judgments) -> bool:
    """Return whether two sets of judgments are equal, regardless of their order."""
    return first is second or {q: dict(docs) for q, docs in first.nested.items()} == {
        q: dict(docs) for q, docs in second.nested.items()
    }


def check_same_dataset(
    first: tuple[str, Mapping[str, Any]],
    second: tuple[str, Mapping[str, Any]],
    *,
    hint: str = "run both on the same data",
) -> None:
    """Refuse two runs that were made on different datasets.

    Each run is given as a name and the `dataset` entry of its manifest.
    """
    (name, first_data), (label, second_data) = first, second
    for key, noun in DATASET_HASHES.items():
        if key in first_data and key in second_data and first_data[key] != second_data[key]:
            raise Incomparable(
                f"{name} was run on `{first_data.get('name')}` with {first_data.get(noun)} {noun}, {label} on "
                f"`{second_data.get('name')}` with {second_data.get(noun)}: they are not the same {noun}",
                hint=hint,
            )


def warn_unfinished_runs(experiment: Path) -> None:
    """Warn about interrupted runs of an experiment, which are not scored."""
    journals = sorted(experiment.glob(f"*/{runs_folder.JOURNAL_FILE}"))
    names = [journal.parent.name for journal in journals if not runs_folder.is_complete(journal.parent)]
    if names:
        subject = f"{len(names)} runs are" if len(names) > 1 else "1 run is"
        warnings.warn(
            f"{experiment}: {subject} not finished and not included: {join_names(names)}; "
            f"repeat the command that started {'them' if len(names) > 1 else 'it'} to finish",
            InputWarning,
            stacklevel=3,
        )
