"""Resolve the inputs of a command: judgments and runs as files, or as folders that `run` wrote."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragauge.core.documents import Document, to_documents
from ragauge.core.errors import BadInput, Incomparable, InputWarning, RagaugeError, error_summary, excerpt
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.core.structured_text import InvalidText, parse_json
from ragauge.datasets import folders, judgments_by_name, load
from ragauge.files import readers
from ragauge.files.parquet import read_parquet
from ragauge.files.source import InputFile
from ragauge.runs import folder as runs_folder
from ragauge.runs.folder import DATASET_HASHES, documents_hash, judgments_hash


@dataclass(frozen=True)
class DocumentTexts:
    """Documents, query texts and reference answers, as far as they are available."""

    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    """Reference answers by query id; empty if the dataset has none."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Reason why a field (`documents`, `queries`) is None, by field name; empty if unknown."""


def load_texts(qrels: Any, documents: Any, queries: Any, split: str | None = None) -> DocumentTexts:
    """Load documents and queries, by default those of the dataset with the judgments."""
    known = _resolve_dataset(qrels, split) if documents is None or queries is None else None
    if isinstance(documents, str | Path):
        documents = _resolve_dataset(documents, split) or folders.read_documents(Path(documents))
    if isinstance(documents, Dataset):
        queries = documents.queries if queries is None else queries
        documents = documents.documents
    if isinstance(queries, str | Path):
        queries = folders.read_queries(Path(queries))
    if known is not None:
        documents = known.documents if documents is None else documents
        queries = known.queries if queries is None else queries
    return DocumentTexts(None if documents is None else list(documents), queries)


def _resolve_dataset(thing: Any, split: str | None) -> Dataset | None:
    """Return a dataset from an object, folder or name; None if it is not one."""
    if isinstance(thing, Dataset):
        return thing
    if not isinstance(thing, str | Path) or str(thing) == "-":
        return None
    path = Path(thing)
    if path.is_dir() and folders.find_dataset_folder(path) is None:
        return None
    if path.is_file() or (not path.exists() and path.suffix):
        return None
    try:
        return load(thing, split=split)
    except RagaugeError:
        return None


def find_run_texts(manifests: Sequence[Mapping[str, Any]], texts: DocumentTexts, name: str = "") -> DocumentTexts:
    """Load the texts of the dataset that run folders were made on.

    The dataset is searched at the path stored in the manifests, then by name. Its documents are used only if their hash
    matches the stored one; otherwise `absent` says why there are none.
    """
    made_on = [one.get("dataset") or {} for one in manifests]
    if made_on and all(one.get("documents") == 0 for one in made_on):
        return _load_texts_without_corpus([one.get("origin") for one in manifests], texts)
    wanted = {one.get("documents_hash") for one in made_on} - {None}
    places = [str(one.get("origin") or "") for one in manifests]
    names = [name, *(str(one.get("name") or "") for one in made_on)]
    why = ""
    for place in dict.fromkeys(filter(None, [*places, *names])):
        try:
            found = _load_dataset_texts(place)
        except RagaugeError as error:
            why = why or (
                f"{place} is no longer there: --dataset says where it is"
                if Path(place).is_absolute() and not Path(place).exists()
                else f"the dataset {place} cannot be loaded ({error.message}): --dataset says where it is"
            )
            continue
        if found.documents is not None and not wanted - {documents_hash(found.documents)}:
            return replace(found, queries=texts.queries or found.queries)
        why = f"the documents of {place} are not those that the runs were made on"
    return DocumentTexts(None, texts.queries, absent={"documents": why, "queries": why} if why else {})


def _load_texts_without_corpus(origins: Sequence[Any], texts: DocumentTexts) -> DocumentTexts:
    """Load queries and reference answers of a dataset without a corpus, if it exists."""
    for origin in origins:
        if isinstance(origin, str) and Path(origin).is_absolute() and Path(origin).exists():
            with contextlib.suppress(RagaugeError):
                found = load(origin)
                return DocumentTexts(None, texts.queries or found.queries, found.answers)
    return DocumentTexts(None, texts.queries)


def _load_dataset_texts(place: str) -> DocumentTexts:
    """Load the texts of a dataset by its absolute path or its name."""
    if Path(place).is_absolute():
        folder = Path(place)
        return DocumentTexts(folders.read_documents(folder), folders.read_queries(folder), folders.read_answers(folder))
    found = load(place)
    return DocumentTexts(found.documents, found.queries, found.answers)


TEXT_FILE_SUFFIXES = (".txt", ".md")
"""Suffixes of files that are one document each."""


def load_documents(what: Any) -> list[Document]:
    """Load documents from a list, dataset, name, folder, corpus file or text files.

    A `.txt` or `.md` file is one document. A folder of such files has one document per file, with the relative path of
    the file as its id.
    """
    if isinstance(what, Dataset):
        return list(what.documents)
    if not isinstance(what, str | Path):
        return list(to_documents(what))
    path = Path(what)
    if path.is_file() and path.suffix in TEXT_FILE_SUFFIXES:
        return [_read_text_file(path, path.name)]
    if path.is_file() or (not path.exists() and path.suffix and ":" not in str(what)):
        return folders.read_documents(path)
    if path.is_dir() and folders.find_dataset_folder(path) is None:
        pages = _find_text_files(path)
        if pages:
            return [_read_text_file(one, one.relative_to(path).as_posix()) for one in pages]
        return folders.read_documents(path)
    return list(load(what).documents)


def _find_text_files(folder: Path) -> list[Path]:
    """List the text files of a folder; none if it has a corpus file."""
    if any(folder.glob("corpus.*")):
        return []
    return sorted(one for one in folder.rglob("*") if one.suffix in TEXT_FILE_SUFFIXES and one.is_file())


def describe_unread_files(what: Any) -> list[str]:
    """Return a note that names the files of a folder that are not documents."""
    path = Path(what) if isinstance(what, str | Path) else None
    if (
        path is None
        or not path.is_dir()
        or folders.find_dataset_folder(path) is not None
        or not (pages := _find_text_files(path))
    ):
        return []
    every = (one for one in sorted(path.rglob("*")) if one.is_file() and one not in set(pages))
    names = [one.relative_to(path).as_posix() for one in every]
    names = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    if not names:
        return []
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    files = "1 file was" if len(names) == 1 else f"{len(names):,} files were"
    return [f"{what}: {files} not read ({shown}); only {' and '.join(TEXT_FILE_SUFFIXES)} files are documents"]


def _read_text_file(path: Path, name: str) -> Document:
    try:
        return Document(name, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"this is no UTF-8 text: {error.reason} at byte {error.start}", file=str(path)) from error
    except OSError as error:
        raise BadInput(f"it cannot be read: {error.strerror}", file=str(path)) from error


NAME_AND_PATH = re.compile(r"\s*([\w.+(-][^=/\\]*?)\s*=(.+)", re.S)
"""`NAME=FILE`. A repeated name means the same system with another seed or trial."""
EXPERIMENT_FIELDS = ("measures", "baseline", "failures", "systems")


@dataclass(frozen=True, eq=False)
class Inputs:
    """Judgments and runs by name; several files under one name are repetitions of one system."""

    qrels: Any
    """Judgments, in any form that `evaluate` accepts."""
    runs: Mapping[str, Sequence[str]]
    texts: Mapping[str, str] = field(default_factory=dict)
    """Query texts by query id, if stored in a run folder."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Tags by query id and tag name, if stored in a run folder."""
    dataset: str = ""
    """Name of the dataset, if stored in a run folder."""
    measures: Sequence[str] = ()
    """Measures that `run` computed, if stored in a run folder."""
    baseline: str | None = None
    """Baseline that `run` compared with, if stored in a run folder."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Error messages of systems that could not be run, by system."""

    @property
    def singles(self) -> dict[str, str]:
        """One path per name; raises BadInput if a name has several."""
        for name, files in self.runs.items():
            if len(files) > 1:
                raise BadInput(f"`{name}` is given {len(files)} times", hint="give each run a name of its own")
        return {name: files[0] for name, files in self.runs.items()}


def resolve_inputs(arguments: Sequence[str]) -> Inputs:
    """Resolve arguments: `QRELS RUN…`, `RUN-FOLDER…` or `EXPERIMENT-FOLDER…`.

    A run may be written `NAME=FILE`. If all arguments are folders that `run` wrote, the judgments are read from the
    folder next to the runs. An experiment folder stands for all its runs.
    """
    if arguments.count("-") > 1:
        raise BadInput("standard input can be read once", hint="give - for one file only")
    if not arguments:
        raise BadInput("nothing is given", hint="judgments and runs, or a folder that `ragauge run` wrote")
    split = [split_name(one) for one in arguments]
    paths = [path for _, path in split]
    whole = [_is_experiment(path) for path in paths]
    finished = [is_run_folder(path) for path in paths]
    inside = whole[0] and all(Path(path).resolve().parent == Path(paths[0]).resolve() for path in paths[1:])
    if all(one or other for one, other in zip(whole, finished, strict=True)) and not (inside and len(paths) > 1):
        runs: list[tuple[str | None, str]] = []
        for (name, path), experiment in zip(split, whole, strict=True):
            runs += [(None, str(run)) for run in _find_runs(Path(path))] if experiment else [(name, path)]
            if experiment:
                _warn_unfinished_runs(Path(path))
        homes = list(dict.fromkeys(Path(path).resolve().parent for _, path in runs))
        alone = next((home for home in homes if not _is_experiment(str(home))), None)
        if alone is not None:
            raise BadInput(
                f"no judgments.parquet in {alone}; a run folder needs the one next to it",
                hint="save a folder that has both with `ragauge run … --save-baseline FOLDER`, "
                "or give the judgments first: QRELS, then the runs",
            )
        return _inputs_from_folders(runs, homes)
    if len(arguments) < 2:
        raise _single_argument_error(paths[0])
    known = _read_experiment_metadata(Path(paths[0])) if whole[0] else Inputs(judgments_by_name(arguments[0]), {})
    if whole[0]:
        _check_judgments(_find_runs(Path(paths[0])), readers.read_judgments(paths[0]))
    return replace(known, runs=_runs_by_name(split[1:]))


def _warn_unfinished_runs(experiment: Path) -> None:
    """Warn about interrupted runs of an experiment, which are not scored."""
    journals = sorted(experiment.glob(f"*/{runs_folder.JOURNAL_FILE}"))
    names = [one.parent.name for one in journals if not runs_folder.is_complete(one.parent)]
    if names:
        what = f"{len(names)} runs are" if len(names) > 1 else "1 run is"
        warnings.warn(
            f"{experiment}: {what} not finished and not included: {', '.join(names)}; repeat the command that started "
            f"{'them' if len(names) > 1 else 'it'} to finish",
            InputWarning,
            stacklevel=3,
        )


def _single_argument_error(path: str) -> BadInput:
    """Return the error for a single argument that contains no finished run."""
    if path != "-" and not _exists(path):
        return BadInput("no such file or folder", file=path, hint="`ragauge run` writes its folders below runs")
    if path == "-" or not Path(path).is_dir():
        told, hint = (
            (_describe_invalid_result(path), "; a result is written anew with -o")
            if path.endswith(".json")
            else ("", "")
        )
        return BadInput(f"a run is missing{told}", file=path, hint=f"judgments first, then runs{hint if told else ''}")
    inside = [str(one) for one in sorted(Path(path).glob("*")) if _is_experiment(str(one))]
    if inside:
        return BadInput("a run is missing", file=path, hint=f"there are experiments in {', '.join(inside)}")
    if any(Path(path).glob("*/journal.jsonl")):
        hint = "it was interrupted: the command that began it finishes it"
        return BadInput("no finished run is here", file=path, hint=hint)
    if _find_runs(Path(path)):
        return BadInput(
            "no judgments.parquet is here", file=path, hint="give the judgments first: QRELS, then the runs"
        )
    return BadInput(
        "no finished run is here", file=path, hint="judgments first, then runs; or a folder of `ragauge run`"
    )


def _describe_invalid_result(path: str) -> str:
    """Return why a JSON file is not a result of ragauge, as the end of a sentence."""
    try:
        found = parse_json(InputFile(path).read())
    except ValueError as error:
        return f", or it is a damaged result: {error}"
    schema = found.get("schema") if isinstance(found, dict) else None
    return f", or `{str(schema)[:60]}` is no result that is known here" if schema else ""


def find_trials(path: str) -> Sequence[str | Run]:
    """Return the trials of a run folder if their rankings differ, else the path."""
    if not (_exists(path) and (Path(path) / "repeats.parquet").exists()):
        return [path]
    return runs_folder.read_run_folder(Path(path)).differing() or [path]


def open_run(path: str) -> Run:
    """Read a run; a run folder includes its timings and provenance."""
    return (
        runs_folder.read_run_folder(Path(path))
        if Path(path).is_dir()
        else readers.read_run(path, name=InputFile(path).stem)
    )


def split_name(argument: str) -> tuple[str | None, str]:
    """Split `NAME=PATH` into name and path; the name is None for a plain path."""
    if _exists(argument):
        return None, argument
    for sign in re.finditer("=", argument):  # A name may contain `=`, as in `dense(embedder=minilm)=dense.run`.
        name, path = argument[: sign.start()].strip(), argument[sign.end() :]
        if name and path and "/" not in name and _exists(path):
            return name, path
    found = NAME_AND_PATH.fullmatch(argument)
    return (found[1], found[2]) if found else (None, argument)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError) as error:  # The name is too long for a file, or the folder is not accessible.
        reason = getattr(error, "strerror", None) or error_summary(error)
        raise BadInput(f"cannot be read ({reason})", file=excerpt(path)) from None


def is_run_folder(path: str) -> bool:
    """Return whether a folder contains a finished run."""
    return _exists(path) and runs_folder.has_run(Path(path))


def _is_experiment(path: str) -> bool:
    return _exists(path) and (Path(path) / "judgments.parquet").exists() and bool(_find_runs(Path(path)))


def _find_runs(folder: Path) -> list[Path]:
    return runs_folder.find_run_folders(folder)


def _read_experiment_metadata(folder: Path) -> Inputs:
    """Read the metadata of an experiment folder: query texts, tags and settings."""
    texts: dict[str, str] = {}
    tags: dict[str, dict[str, str]] = {}
    asked = folder / "queries.parquet"
    if asked.exists():
        columns = ("query", "text", "tags")
        try:
            for query, text, tagged in (
                read_parquet(asked, columns=dict.fromkeys(columns, "text")).select(columns).rows()
            ):
                texts[query] = text
                tags[query] = {str(name): str(value) for name, value in parse_json(tagged).items()}
        except (AttributeError, InvalidText) as error:
            raise BadInput(
                f"the tags are corrupt ({error_summary(error)})",
                file=str(asked),
                hint="`ragauge run` writes the file again",
            ) from None
    said = {
        name: runs_folder.manifest_value(folder, name, of=runs_folder.EXPERIMENT_FILE) for name in EXPERIMENT_FIELDS
    }
    about = folder / runs_folder.EXPERIMENT_FILE
    kinds = {"measures": list, "failures": dict, "baseline": str, "systems": list}
    wrong = any(said.get(name) is not None and not isinstance(said[name], kind) for name, kind in kinds.items())
    if wrong or (about.exists() and all(value is None for value in said.values())):
        raise BadInput("is damaged", file=str(about), hint="`ragauge run` writes it again")
    return Inputs(
        str(folder),
        {},
        texts,
        tags,
        _read_dataset_name(folder),
        [str(one) for one in said["measures"] or ()],
        said["baseline"] and str(said["baseline"]),
        {str(name): str(why) for name, why in (said["failures"] or {}).items()},
    )


def _read_dataset_name(folder: Path) -> str:
    """Return the name of the dataset of an experiment folder; empty if unknown."""
    first = next(iter(_find_runs(folder)), folder)
    dataset = runs_folder.manifest_value(first, "dataset")
    return str(dataset.get("name", "")) if isinstance(dataset, Mapping) else ""


def _inputs_from_folders(runs: Sequence[tuple[str | None, str]], homes: Sequence[Path]) -> Inputs:
    known = _read_experiment_metadata(homes[0])
    places = [Path(path) for _, path in runs]
    first = readers.read_judgments(homes[0])
    _check_judgments([one for one in places if one.resolve().parent == homes[0]], first)
    for home in homes[1:]:
        theirs = readers.read_judgments(home)
        _check_judgments([one for one in places if one.resolve().parent == home], theirs)
        if not has_same_judgments(first, theirs):
            names = [_read_dataset_name(one) for one in (homes[0], home)]
            raise Incomparable(
                f"the judgments in {home} (`{names[1]}`) are not those in {homes[0]} (`{names[0]}`)",
                hint="give one file of judgments first, and both are scored by it" if names[0] == names[1] else None,
            )
    listed = [runs_folder.manifest_value(home, "systems", of=runs_folder.EXPERIMENT_FILE) for home in homes]
    given = _runs_by_name(runs)
    # A corrupt experiment.json may contain any type.
    order = [name for one in listed if isinstance(one, list) for name in one if isinstance(name, str)]
    return replace(known, qrels=first, runs={name: given[name] for name in [*order, *given] if name in given})


def _check_judgments(runs: Sequence[Path], judgments: Judgments) -> None:
    """Refuse run folders that were made with other judgments than the given ones."""
    found = judgments_hash(judgments) if runs else ""
    for run in runs:
        expected = runs_folder.manifest_value(run, "judgments_hash") if is_run_folder(str(run)) else None
        if expected not in (None, found):
            raise BadInput(
                f"the run was made with other judgments than those in {run.resolve().parent}; "
                f"expected hash {expected}, got {found}",
                file=str(run),
                hint="run all systems of the folder again, or give the judgments first: QRELS, then the runs",
            )


def check_runs_share_dataset(given: Inputs) -> None:
    """Refuse run folders that were not made on the same queries and documents."""
    folders = [path for runs in given.runs.values() for path in runs if is_run_folder(path)]
    known = [(path, runs_folder.manifest_value(path, "dataset") or {}) for path in folders]
    for path, data in known[1:]:
        check_same_dataset((known[0][0], known[0][1]), (path, data))


def check_same_dataset(
    one: tuple[str, Mapping[str, Any]], other: tuple[str, Mapping[str, Any]], *, hint: str = "run both on the same data"
) -> None:
    """Refuse two runs that were made on different datasets.

    Each run is given as a name and the `dataset` entry of its manifest.
    """
    (name, mine), (label, theirs) = one, other
    for key, what in DATASET_HASHES.items():
        if key in mine and key in theirs and mine[key] != theirs[key]:
            raise Incomparable(
                f"{name} was run on `{mine.get('name')}` with {mine.get(what)} {what}, {label} on "
                f"`{theirs.get('name')}` with {theirs.get(what)}: they are not the same {what}",
                hint=hint,
            )


def has_same_judgments(one: Judgments, other: Judgments) -> bool:
    """Return whether two sets of judgments are equal, regardless of their order."""
    return one is other or {q: dict(docs) for q, docs in one.nested.items()} == {
        q: dict(docs) for q, docs in other.nested.items()
    }


def _runs_by_name(runs: Sequence[tuple[str | None, str]]) -> dict[str, list[str]]:
    stems = _unique_run_names([path for name, path in runs if name is None])
    found: dict[str, list[str]] = {}
    for name, path in runs:
        mine = found.setdefault(name or stems[path], [])
        if any(Path(path).resolve() == Path(one).resolve() for one in mine):
            raise BadInput("the same run is given twice", file=path, hint="give each file once")
        mine.append(path)
    return found


def _read_system_name(run: str) -> str | None:
    """Return the full system name from a run folder; None if it is not stored."""
    about = runs_folder.manifest_value(run, "system") if run != "-" else None
    return str(about["name"]) if isinstance(about, dict) and about.get("name") else None


def _unique_run_names(runs: Sequence[str]) -> dict[str, str]:
    """Return a unique name per path.

    It is the system name or file stem, prefixed by the folder if needed.
    """
    if len(set(runs)) < len(runs):
        raise BadInput("the same run is given twice", hint="give each file once")
    stems = [_read_system_name(run) or InputFile(run).stem for run in runs]
    if len(set(stems)) < len(stems):
        stems = [f"{Path(run).resolve().parent.name}/{stem}" for run, stem in zip(runs, stems, strict=True)]
    if len(set(stems)) < len(stems):
        stems = list(runs)
    return dict(zip(runs, stems, strict=True))
