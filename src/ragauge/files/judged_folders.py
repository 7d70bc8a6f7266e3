"""Folders that `judge` wrote: completeness, scores with the reasons of missing ones, samples and tags."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.records import MeasureDict, Scores
from ragauge.core.samples import Sample
from ragauge.files.json_files import read_json
from ragauge.files.samples import read_samples
from ragauge.files.serialization import read_schema_name
from ragauge.files.source import InputFile

MANIFEST_FILE, SCORES_FILE, SAMPLES_FILE, VERDICTS_FILE = "judge.json", "scores.csv", "samples.jsonl", "verdicts.jsonl"
"""File names in a judged folder. The manifest is written last."""
MANIFEST_SCHEMA = "ragauge-judged/1"
SCORES_FILE_COLUMNS = (
    "system",
    "query",
    "measure",
    "value",
    "judge",
    "convention",
    "reason",
    "fingerprint",
    "lower_is_better",
)
HINT = "run the same `ragauge judge` command again: it rewrites the folder and reuses saved replies"


def is_judged_folder(folder: str | Path) -> bool:
    """Return whether a folder has complete judge results.

    The manifest is written last.
    """
    return read_schema_name(Path(folder) / MANIFEST_FILE) == MANIFEST_SCHEMA.partition("/")[0]


def list_judged_folders(folder: str | Path) -> list[str]:
    """Return the folder if `judge` wrote it, else the judged folders in it, sorted by name."""
    path = Path(folder)
    if is_judged_folder(path):
        return [str(folder)]
    return [str(entry) for entry in sorted(path.iterdir()) if is_judged_folder(entry)] if path.is_dir() else []


def read_judged_manifest(folder: str | Path) -> dict[str, Any]:
    path = str(Path(folder) / MANIFEST_FILE)
    if not Path(path).is_file():
        raise BadInput("no judge results found", file=str(folder), hint="pass a folder that `ragauge judge` wrote")
    data = read_json(InputFile(path))
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if not isinstance(data, dict) or schema != MANIFEST_SCHEMA:
        raise BadInput(f"expected the schema {MANIFEST_SCHEMA}, got {schema!r}", file=path, hint=HINT)
    if not isinstance(data.get("measures"), Mapping):
        raise BadInput("the measures are missing", file=path, hint=HINT)
    return data


def read_judged_scores(folder: str | Path, canonical: Callable[[str], str] = str) -> Scores:
    """Read the scores of a judged folder, with the reason of each missing value.

    Raise BadInput if the files of the folder contradict each other.
    """
    manifest = read_judged_manifest(folder)
    path = str(Path(folder) / SCORES_FILE)
    columns: dict[str, dict[str, float]] = {name: {} for name in manifest["measures"]}
    unscored: dict[str, dict[str, str]] = {name: {} for name in columns}
    fingerprints: dict[str, str] = {}
    for line, row in _read_score_rows(path):
        name, query = row["measure"], row["query"]
        if name not in columns or query in columns[name]:
            problem = "appears more than once" if name in columns else f"is not in {MANIFEST_FILE}"
            raise BadInput(f"{name} of `{query}` {problem}", file=path, line=line, hint=HINT)
        if (row["judge"], row["convention"]) != (manifest.get("judge"), manifest.get("convention")):
            raise BadInput(f"another judge or convention than in {MANIFEST_FILE}", file=path, line=line, hint=HINT)
        lower_is_better = str(bool(manifest["measures"][name].get("lower_is_better"))).lower()
        if row["lower_is_better"] != lower_is_better:
            value = row["lower_is_better"]
            raise BadInput(
                f"lower_is_better of {name}: expected {lower_is_better} as in {MANIFEST_FILE}, got `{value}`",
                file=path,
                line=line,
                hint=HINT,
            )
        if fingerprints.setdefault(query, row["fingerprint"]) != row["fingerprint"]:
            raise BadInput(f"`{query}` has another fingerprint above", file=path, line=line, hint=HINT)
        columns[name][query] = _parse_score(row["value"], path, line)
        if not row["value"]:
            unscored[name][query] = row["reason"] or "no reason recorded"
    queries = list(next(iter(columns.values()), {}))
    for name, column in columns.items():
        if list(column) != queries:
            raise BadInput(f"{name} has other samples than the first measure", file=path, hint=HINT)
    scores = _build_scores(
        manifest,
        columns,
        unscored,
        canonical,
        {name: fingerprint for name, fingerprint in fingerprints.items() if fingerprint},
    )
    _check_against_manifest(scores, manifest["measures"], path)
    return scores


def _read_score_rows(path: str) -> list[tuple[int, dict[str, str]]]:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != SCORES_FILE_COLUMNS:
                raise BadInput(f"the columns are not {', '.join(SCORES_FILE_COLUMNS)}", file=path, line=1, hint=HINT)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"cannot be read ({error})", file=path, hint=HINT) from None
    for line, row in rows:
        if None in row or None in row.values():
            raise BadInput("the number of cells differs from the number of columns", file=path, line=line, hint=HINT)
    return rows


def _parse_score(text: str, path: str, line: int) -> float:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value) or (text and math.isnan(value)):
        raise BadInput(f"the value must be a number, got `{text[:40]}`", file=path, line=line)
    return value


def _build_scores(
    manifest: Mapping[str, Any],
    columns: Mapping[str, Mapping[str, float]],
    unscored: Mapping[str, Mapping[str, str]],
    canonical: Callable[[str], str],
    fingerprints: Mapping[str, str],
) -> Scores:
    values = {name: np.array(list(column.values()), dtype=np.float64) for name, column in columns.items()}
    known_values = {name: column[~np.isnan(column)] for name, column in values.items()}
    means = {name: float(column.mean()) if len(column) else math.nan for name, column in known_values.items()}
    lower_names = (name for name, entry in manifest["measures"].items() if entry.get("lower_is_better"))
    return Scores(
        run=str(manifest.get("name") or "answers"),
        convention=str(manifest.get("convention") or ""),
        queries=list(next(iter(columns.values()), {})),
        values=MeasureDict(values, canonical),
        means=MeasureDict(means, canonical),
        unscored=MeasureDict(unscored, canonical),
        lower_is_better=frozenset(lower_names),
        judge=str(manifest.get("judge") or ""),
        fingerprints=fingerprints,
    )


def _check_against_manifest(scores: Scores, measures: Mapping[str, Any], path: str) -> None:
    """Raise BadInput if count or mean of a measure differ from those in the manifest."""
    for name, stored in measures.items():
        n, mean = stored.get("n"), stored.get("mean")
        computed_mean = None if math.isnan(scores.means[name]) else scores.means[name]
        is_same_mean = (
            computed_mean is None
            if mean is None
            else computed_mean is not None and math.isclose(computed_mean, mean, abs_tol=1e-9)
        )
        if n != scores.n[name] or not is_same_mean:
            raise BadInput(
                f"{name} is {json.dumps(computed_mean)} over {scores.n[name]} here, and {json.dumps(mean)} over {n} in "
                f"{MANIFEST_FILE}",
                file=path,
                hint=HINT,
            )


def read_judged_samples(folder: str | Path) -> list[Sample]:
    """Read the samples of a judged folder; empty if their file is missing.

    Scores can be used without samples.
    """
    path = Path(folder) / SAMPLES_FILE
    return read_samples(str(path)) if path.is_file() else []


def read_sample_tags(folder: str | Path) -> dict[str, dict[str, str]]:
    """Read the tags by which samples of a folder can be grouped.

    They are the texts and integers of the metadata.
    """
    return sample_tags(read_judged_samples(folder))


def sample_tags(samples: Iterable[Sample]) -> dict[str, dict[str, str]]:
    """Return the metadata of samples by id, limited to texts and integers.

    >>> sample_tags([Sample("q1", metadata={"topic": "files", "scores": [1, 2]})])
    {'q1': {'topic': 'files'}}
    """
    return {
        sample.id: {str(key): str(value) for key, value in sample.metadata.items() if isinstance(value, str | int)}
        for sample in samples
    }
