"""Kinds of inputs, detected from a path, a name or an object by one table of rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ragauge.core.documents import EMPTY_MAPPING, Document
from ragauge.core.errors import BadInput, error_summary, excerpt
from ragauge.core.record_types import record_type_of
from ragauge.core.records import Dataset, Judgments, Run, Scores
from ragauge.core.samples import Sample
from ragauge.core.specs import split_name
from ragauge.core.structured_text import parse_json
from ragauge.datasets import folders
from ragauge.files import judged_folders
from ragauge.files.document_rows import ROW_FORMATS
from ragauge.files.documents import PACKED_ENDINGS, TEXT_ENDINGS, find_rows_files
from ragauge.files.in_memory import frame_columns, is_dataframe, is_single_run
from ragauge.files.json_files import TEXT_FIELDS
from ragauge.files.judged_folders import is_judged_folder
from ragauge.files.parquet_runs import is_multi_file_run
from ragauge.files.readers import detect_format
from ragauge.files.samples import is_samples_file
from ragauge.files.scores import is_scores_file
from ragauge.files.serialization import read_schema_name
from ragauge.files.source import InputFile
from ragauge.files.stix import is_stix_bundle
from ragauge.files.table_files import (
    DISTANCE_COLUMNS,
    DOC_COLUMNS,
    GRADE_COLUMNS,
    QUERY_COLUMNS,
    RANK_COLUMNS,
    SCORE_COLUMNS,
    TABLE_FORMATS,
    find_column,
    read_header,
)
from ragauge.files.vectors import has_vectors
from ragauge.runs import folder as runs_folder
from ragauge.runs.results import Experiment

BENCHMARK_FILE = "benchmark.json"
"""Result file in a folder that `bench` wrote."""
RESULT_FILES = (
    *(runs_folder.EXPERIMENT_FILE, runs_folder.MANIFEST_FILE, runs_folder.JOURNAL_FILE),
    *(judged_folders.MANIFEST_FILE, BENCHMARK_FILE),
)
"""Files of folders with results, whose text files are not documents."""
DATASET_PREFIXES = ("synthetic:", "stix:")
"""Beginnings of names of datasets that may contain the ending or the separators of a path."""
CORPUS_SUFFIXES = tuple(f"{ending}{packed}" for ending in (*ROW_FORMATS, *TEXT_ENDINGS) for packed in PACKED_ENDINGS)
"""Ends of the names of corpora."""


class InputKind(StrEnum):
    EXPERIMENT = "experiment"
    """Runs with their judgments: a folder that `run` wrote, or its result."""
    RUN = "run"
    JUDGED = "judged samples"
    """Folder that `judge` wrote."""
    RESULT = "result"
    """Result of another command, as JSON or as an object."""
    SCORES = "scores"
    SAMPLES = "samples"
    VECTORS = "vectors"
    DATASET = "dataset"
    JUDGMENTS = "judgments"
    QUERIES = "queries"
    CORPUS = "corpus"


ALL_KINDS = frozenset(InputKind)


@dataclass(frozen=True, eq=False)
class ResolvedInput:
    """An input whose kind is known; the reader of that kind opens `value`."""

    kind: InputKind
    name: str
    """Name given by the user, or that of the system, dataset or file."""
    value: Any
    """Path as text, name of a dataset, or object."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts found by detection: `schema` of a result, `path` of the file."""


class Candidate:
    """An input to be recognised; its first bytes are read on first use."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.form = _find_form(value)
        self.path = Path(value) if isinstance(value, str | Path) else Path()
        self.source = InputFile(str(self.path))

    @cached_property
    def columns(self) -> list[str]:
        """Columns of a table, or keys of its first JSON row; empty for another file."""
        if is_dataframe(self.value):
            return frame_columns(self.value)
        form = TABLE_FORMATS.get(self.source.ending)
        return [] if form is None or not self.path.is_file() else read_header(self.source, form)

    @cached_property
    def schema(self) -> str:
        """Schema name of a JSON file of ragauge; empty for another file."""
        return read_schema_name(self.path / BENCHMARK_FILE if self.form == "folder" else self.path)

    def has_column(self, *names: Sequence[str]) -> bool:
        """Return whether the table has a column of each of these sets of names."""
        return all(find_column(self.columns, spellings) is not None for spellings in names)

    def has_ranking_columns(self, trec_fields: int) -> bool:
        """Return whether a file has queries and documents: as columns, or in TREC format with this number of fields."""
        if self.has_column(QUERY_COLUMNS, DOC_COLUMNS):
            return True
        first = (self.source.head() or [""])[0]
        return detect_format(self.source) == "trec" and len(first.split()) == trec_fields


Form = Literal["object", "frame", "mapping", "folder", "file", "name"]
Detector = Callable[[Candidate], Mapping[str, Any] | bool | None]
"""Returns facts or whether an input is of a kind."""


class DetectionRule(NamedTuple):
    """How an input of one kind is recognised."""

    kind: InputKind
    form: Form
    detect: Detector

    def apply(self, candidate: Candidate) -> Mapping[str, Any] | None:
        """Return facts if an input is of this kind, else None. Standard input is not read."""
        facts = None if candidate.source.path == "-" else self.detect(candidate)
        return facts if isinstance(facts, Mapping) else EMPTY_MAPPING if facts else None


def _is(*types: type) -> Detector:
    return lambda candidate: isinstance(candidate.value, types)


def _items_are(*types: type) -> Detector:
    def detect(candidate: Candidate) -> bool:
        value = candidate.value
        return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, types) for item in value)

    return detect


def _detect_result(candidate: Candidate) -> Mapping[str, Any] | None:
    if candidate.form == "object":
        record_type = record_type_of(type(candidate.value))
        return None if record_type is None else {"schema": record_type.schema}
    path = candidate.path / BENCHMARK_FILE if candidate.form == "folder" else candidate.path
    return {"schema": candidate.schema, "path": str(path)} if candidate.schema else None


def _is_bundle(candidate: Candidate) -> bool:
    source = candidate.source
    return source.ending == ".json" and candidate.path.exists() and is_stix_bundle(source)


RUN_VALUE_COLUMNS = (*SCORE_COLUMNS, *DISTANCE_COLUMNS, *RANK_COLUMNS)

DETECTION_RULES = (
    DetectionRule(InputKind.EXPERIMENT, "object", _is(Experiment)),
    DetectionRule(InputKind.RUN, "object", _is(Run)),
    DetectionRule(InputKind.DATASET, "object", _is(Dataset)),
    DetectionRule(InputKind.JUDGMENTS, "object", _is(Judgments)),
    DetectionRule(InputKind.SCORES, "object", _is(Scores)),
    DetectionRule(InputKind.RESULT, "object", _detect_result),
    DetectionRule(InputKind.SAMPLES, "object", _items_are(Sample)),
    DetectionRule(InputKind.CORPUS, "object", _items_are(Document)),
    DetectionRule(InputKind.VECTORS, "object", _is(np.ndarray)),
    DetectionRule(InputKind.JUDGMENTS, "frame", lambda it: it.has_column(QUERY_COLUMNS, DOC_COLUMNS, GRADE_COLUMNS)),
    DetectionRule(InputKind.RUN, "frame", lambda it: it.has_column(QUERY_COLUMNS, DOC_COLUMNS, RUN_VALUE_COLUMNS)),
    DetectionRule(InputKind.RUN, "mapping", lambda it: is_single_run(it.value)),
    DetectionRule(InputKind.JUDGMENTS, "mapping", lambda it: is_single_run(it.value)),
    DetectionRule(InputKind.EXPERIMENT, "folder", lambda it: is_experiment_folder(it.path)),
    DetectionRule(InputKind.RUN, "folder", lambda it: runs_folder.has_run(it.path) or is_multi_file_run(it.path)),
    DetectionRule(InputKind.JUDGED, "folder", lambda it: is_judged_folder(it.path)),
    DetectionRule(InputKind.RESULT, "folder", _detect_result),
    DetectionRule(InputKind.DATASET, "folder", lambda it: is_dataset_folder(it.path)),
    DetectionRule(InputKind.CORPUS, "folder", lambda it: bool(_find_corpus(it.path))),
    DetectionRule(InputKind.RESULT, "file", _detect_result),
    DetectionRule(InputKind.SCORES, "file", lambda it: is_scores_file(str(it.path))),
    DetectionRule(InputKind.SAMPLES, "file", lambda it: is_samples_file(str(it.path))),
    DetectionRule(InputKind.VECTORS, "file", lambda it: has_vectors(it.path)),
    DetectionRule(InputKind.DATASET, "file", _is_bundle),
    DetectionRule(InputKind.JUDGMENTS, "file", lambda it: it.has_ranking_columns(4)),
    DetectionRule(InputKind.RUN, "file", lambda it: it.has_ranking_columns(6)),
    DetectionRule(InputKind.QUERIES, "file", lambda it: it.source.stem.startswith("queries")),
    DetectionRule(InputKind.CORPUS, "file", lambda it: it.path.name.endswith(CORPUS_SUFFIXES)),
    DetectionRule(InputKind.DATASET, "name", lambda _: True),
)
"""How inputs are recognised. The first rule of an expected kind that matches decides."""


def resolve_input(value: Any, *, name: str = "", expected: Collection[InputKind] = ALL_KINDS) -> ResolvedInput:
    """Find the kind of a path, a name or an object among the expected kinds.

    A file or folder that no rule recognises is of the last expected kind of files or folders, whose reader reports
    what is wrong with it. Raises BadInput for any other input that is of no expected kind.
    """
    candidate = Candidate(value)
    if candidate.form == "name" and InputKind.DATASET not in expected:
        candidate.form = "file"
    rules = [rule for rule in DETECTION_RULES if rule.kind in expected and rule.form == candidate.form]
    for rule in rules:
        facts = rule.apply(candidate)
        if facts is not None:
            return ResolvedInput(rule.kind, name or _find_name(candidate), value, facts)
    if candidate.form in ("file", "folder") and rules:
        return ResolvedInput(rules[-1].kind, name or _find_name(candidate), value)
    described = str(value) if isinstance(value, str | Path) else f"an object of type {type(value).__name__}"
    expected_kinds = ", ".join(kind.value for kind in InputKind if kind in expected)
    raise BadInput(f"expected one of {expected_kinds}, got {described}")


def is_kind(value: Any, *kinds: InputKind) -> bool:
    """Return whether a path or an object is recognised as one of some kinds."""
    candidate = Candidate(value)
    rules = (rule for rule in DETECTION_RULES if rule.kind in kinds and rule.form == candidate.form)
    return any(rule.apply(candidate) is not None for rule in rules)


def is_corpus_alone(value: Any) -> bool:
    """Return whether an input is documents and nothing else: a list, a folder, or a table with a column of texts.

    Judgments may have the ending of a corpus, and folders of results may have text files: neither is a corpus.
    """
    candidate = Candidate(value)
    rules = (rule for rule in DETECTION_RULES if rule.form == candidate.form)
    if next((rule.kind for rule in rules if rule.apply(candidate) is not None), None) is not InputKind.CORPUS:
        return False
    if candidate.form == "file":
        return candidate.has_column(TEXT_FIELDS)
    return candidate.form != "folder" or not any(path.name in RESULT_FILES for path in candidate.path.rglob("*"))


def _find_form(value: Any) -> Form:
    if isinstance(value, str | Path):
        text = str(value)
        if text != "-" and path_exists(text):
            return "folder" if Path(text).is_dir() else "file"
        return "file" if is_path(text) else "name"
    if is_dataframe(value):
        return "frame"
    return "mapping" if isinstance(value, Mapping) else "object"


def _find_name(candidate: Candidate) -> str:
    value = candidate.value
    if isinstance(value, Scores):
        return value.run
    if isinstance(value, Run | Dataset):
        return value.name
    if isinstance(value, Experiment):
        return value.dataset.name
    if not isinstance(value, str | Path):
        return candidate.form
    if candidate.form == "folder":
        return read_system_name(str(value)) or candidate.source.stem
    return str(value) if candidate.form == "name" else candidate.source.stem


def is_path(text: str) -> bool:
    """Return whether a text is a path and not the name of a dataset. The file may be absent."""
    if text == "-" or path_exists(text):
        return True
    return not text.startswith(DATASET_PREFIXES) and (os.sep in text or text.endswith(CORPUS_SUFFIXES))


def path_exists(path: str) -> bool:
    """Return whether a path exists; raise BadInput if that cannot be determined."""
    try:
        return Path(path).exists()
    except (OSError, ValueError) as error:  # The name is too long for a file, or the folder is not accessible.
        reason = (isinstance(error, OSError) and error.strerror) or error_summary(error)
        raise BadInput(f"cannot be read ({reason})", file=excerpt(path)) from None


def split_path_name(argument: str) -> tuple[str, str]:
    """Split `NAME=PATH` into name and path; the name is empty for a plain path.

    An existing path takes precedence, because names of files and of systems may contain equal signs.
    """
    if path_exists(argument):
        return "", argument
    for sign in re.finditer("=", argument):
        name, path = argument[: sign.start()].strip(), argument[sign.end() :]
        if name and path and "/" not in name and path_exists(path):
            return name, path
    return split_name(argument)


def is_run_folder(path: str | Path) -> bool:
    """Return whether a folder contains a finished run."""
    return path_exists(str(path)) and runs_folder.has_run(Path(path))


def is_experiment_folder(path: str | Path) -> bool:
    """Return whether a folder has finished runs and their judgments."""
    return (
        path_exists(str(path))
        and (Path(path) / runs_folder.JUDGMENTS_FILE).exists()
        and bool(runs_folder.find_run_folders(Path(path)))
    )


def is_dataset_folder(folder: Path) -> bool:
    """Return whether a folder is a dataset: queries and judgments, with or without a corpus."""
    for home in (folder, folder / "beir"):
        if folders.find_queries_file(home) and ((home / "qrels.txt").exists() or (home / "qrels").exists()):
            return True
    return False


def _find_corpus(folder: Path) -> bool:
    """Return whether a folder has a corpus file or text files."""
    if any(find_rows_files(home, "corpus") for home in (folder, folder / "beir")):
        return True
    return any(InputFile(str(file)).ending in TEXT_ENDINGS for file in folder.rglob("*"))


def read_system_name(run: str) -> str | None:
    """Return the full system name from a run folder; None if it is not stored."""
    about = runs_folder.manifest_value(run, "system") if run != "-" else None
    return str(about["name"]) if isinstance(about, dict) and about.get("name") else None


def describe_invalid_result(path: str) -> str:
    """Return why a JSON file is not a result of ragauge, as the end of a sentence."""
    try:
        data = parse_json(InputFile(path).read())
    except ValueError as error:
        return f", or it is a corrupt result: {error}"
    schema = data.get("schema") if isinstance(data, dict) else None
    return f", or `{str(schema)[:60]}` is not a known result" if schema else ""
