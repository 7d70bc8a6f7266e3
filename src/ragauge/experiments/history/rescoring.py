"""Score stored runs by other measures or under another convention."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError
from ragauge.core.records import Judgments, Run, Scores
from ragauge.evaluation import count, judgments_for, read_measures
from ragauge.evaluation.indicators import averaged
from ragauge.files import readers, table_files
from ragauge.files.parquet import read_parquet
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.measures.judged_ranks import defined_depth
from ragauge.measures.scoring import score
from ragauge.runs import folder as runs_folder

SMALL = 64 << 20
"""Largest ranking file that is read at once, which takes half the time. Larger files are read in blocks."""
REMEMBERED = 64
"""Maximum number of cached scores. An unchanged system returns the same ranking in many folders."""
KINDS: Mapping[str, type] = MappingProxyType(
    {one.name: float if one.name == "rel" else int for one in fields(Convention) if "str" not in str(one.type)}
)
"""Types of the numeric options of a convention, by option name."""


@lru_cache(maxsize=100)
def rules_of(name: str) -> Convention | None:
    """Return the convention with a recorded name.

    Returns None if the name does not define it.

    >>> rules_of("rig, ties=trec, depth=5").depth, rules_of("my own")
    (5, None)
    """
    first, *options = (name or "default").split(", ")
    chosen: dict[str, Any] = {}
    try:
        for text in options:
            option, _, value = text.partition("=")
            chosen[option] = KINDS.get(option, str)(value)
        found = PRESETS[first].but(**chosen)
    except (KeyError, ValueError, RagaugeError):
        return None
    return found if found.name == (name or "default") else None


def score_again(folder: Path, place: str, measures: Sequence[str], convention: str, grades: str) -> Scores:
    """Score a stored run with the judgments of its folder under a convention.

    `grades` is a hash of the judgments. An empty `convention` means the default one. Raises MissingEvidence if the
    convention cannot be reconstructed from its name.
    """
    rules = rules_of(convention)
    run = folder / place
    if rules is None:
        raise MissingEvidence(
            f"{run} was scored under the convention `{convention}`, which cannot be had again by name"
        )
    wanted = read_measures(measures, rules)
    judgments = judgments_for(wanted, _judgments(str(folder), grades))
    if (run / "repeats.parquet").exists() and (trials := runs_folder.read(run).differing()):
        found = [score(count(judgments, one, wanted, rules, name=place), wanted, rules) for one in trials]
        return averaged(found)
    data, asked, depth = _bytes(run), readers.asked(run), _depth(run)
    if data is None:
        return score(count(judgments, str(run), wanted, rules, name=place), wanted, rules)
    mark = hashlib.blake2b(data, digest_size=16).hexdigest()
    key = (mark, None if asked is None else frozenset(asked), depth, grades, convention, tuple(measures))
    if key not in _SCORED:
        counted = count(judgments, _returned(data, asked, run), wanted, rules, name=place)
        _SCORED[key] = score(replace(counted, depth=depth), wanted, rules)
        if len(_SCORED) > REMEMBERED:
            del _SCORED[next(iter(_SCORED))]
    return _SCORED[key]


_SCORED: dict[tuple[Any, ...], Scores] = {}


def _depth(run: Path) -> float | None:
    made = readers.run_without_rankings(run)
    return None if made is None else defined_depth(made)


def _bytes(run: Path) -> bytes | None:
    """Return the content of the ranking file, or None if it is too large."""
    path = run / "run.parquet"
    try:
        return path.read_bytes() if path.stat().st_size <= SMALL else None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(path)) from None


def _returned(data: bytes, asked: set[str] | None, run: Path) -> Run:
    import polars as pl

    label = str(run / "run.parquet")
    table = read_parquet(data, label, columns=runs_folder.RUN_COLUMNS)
    table = table_files.run_columns(table, label).lazy().collect()
    timings = None if asked is None else pl.DataFrame({"query": sorted(asked)}, schema={"query": pl.String})
    return Run(table_files.checked(table, label, "score", None), run.name, timings)


def _judgments(folder: str, grades: str) -> Judgments:
    """Return the judgments of a folder, cached by their hash `grades`."""
    if grades not in _JUDGMENTS:
        if len(_JUDGMENTS) >= 4:
            _JUDGMENTS.clear()
        _JUDGMENTS[grades] = readers.read_judgments(folder)
    return _JUDGMENTS[grades]


_JUDGMENTS: dict[str, Judgments] = {}
