"""Score stored runs by other measures or under another convention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.hashes import hash_bytes
from ragauge.core.records import Judgments, Run, Scores
from ragauge.evaluation import (
    average_trials,
    compute_judged_ranks,
    judgments_for_measures,
    parse_measures,
    score_trials,
)
from ragauge.files import readers, table_files
from ragauge.files.parquet import read_parquet
from ragauge.measures.conventions import parse_convention
from ragauge.measures.judged_ranks import defined_depth
from ragauge.measures.scoring import score_judged_ranks
from ragauge.runs import folder as runs_folder

MAX_WHOLE_READ_BYTES = 64 << 20
"""Largest ranking file that is read at once, which takes half the time. Larger files are read in blocks."""
MAX_CACHED_SCORES = 64
"""Maximum number of cached scores. An unchanged system returns the same ranking in many folders."""


def rescore_run(folder: Path, run_name: str, measures: Sequence[str], convention: str, grades: str) -> Scores:
    """Score a stored run with the judgments of its folder under a convention.

    `grades` is a hash of the judgments. An empty `convention` means the default one. Raises MissingEvidence if the
    convention cannot be reconstructed from its name.
    """
    parsed_convention = parse_convention(convention)
    run = folder / run_name
    if parsed_convention is None:
        raise MissingEvidence(
            f"{run} was scored under the convention `{convention}`, which cannot be reconstructed from its name"
        )
    parsed_measures = parse_measures(measures, parsed_convention)
    judgments = judgments_for_measures(parsed_measures, _load_judgments(str(folder), grades))
    if (run / "repeats.parquet").exists() and (trials := runs_folder.read_run_folder(run).differing()):
        return average_trials(score_trials(judgments, trials, parsed_measures, parsed_convention, name=run_name))
    data, queries, depth = _read_ranking_bytes(run), readers.executed_queries(run), _run_depth(run)
    if data is None:
        return score_judged_ranks(
            compute_judged_ranks(judgments, str(run), parsed_measures, parsed_convention, name=run_name),
            parsed_measures,
            parsed_convention,
        )
    data_hash = hash_bytes(data)
    key = (data_hash, None if queries is None else frozenset(queries), depth, grades, convention, tuple(measures))
    if key not in _SCORE_CACHE:
        judged_ranks = compute_judged_ranks(
            judgments, _run_from_bytes(data, queries, run), parsed_measures, parsed_convention, name=run_name
        )
        _SCORE_CACHE[key] = score_judged_ranks(replace(judged_ranks, depth=depth), parsed_measures, parsed_convention)
        if len(_SCORE_CACHE) > MAX_CACHED_SCORES:
            del _SCORE_CACHE[next(iter(_SCORE_CACHE))]
    return _SCORE_CACHE[key]


_SCORE_CACHE: dict[tuple[Any, ...], Scores] = {}


def _run_depth(run: Path) -> float | None:
    metadata = readers.read_run_metadata(run)
    return None if metadata is None else defined_depth(metadata)


def _read_ranking_bytes(run: Path) -> bytes | None:
    """Return the content of the ranking file, or None if it is too large."""
    path = run / "run.parquet"
    try:
        return path.read_bytes() if path.stat().st_size <= MAX_WHOLE_READ_BYTES else None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(path)) from None


def _run_from_bytes(data: bytes, queries: set[str] | None, run: Path) -> Run:
    import polars as pl

    label = str(run / "run.parquet")
    table = read_parquet(data, label, columns=runs_folder.RUN_COLUMNS)
    table = table_files.select_run_columns(table, label).lazy().collect()
    timings = None if queries is None else pl.DataFrame({"query": sorted(queries)}, schema={"query": pl.String})
    return Run(table_files.check_no_nulls(table, label, "score", None), run.name, timings)


def _load_judgments(folder: str, grades: str) -> Judgments:
    """Return the judgments of a folder, cached by their hash `grades`."""
    if grades not in _JUDGMENT_CACHE:
        if len(_JUDGMENT_CACHE) >= 4:
            _JUDGMENT_CACHE.clear()
        _JUDGMENT_CACHE[grades] = readers.read_judgments(folder)
    return _JUDGMENT_CACHE[grades]


_JUDGMENT_CACHE: dict[str, Judgments] = {}
