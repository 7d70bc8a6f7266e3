"""The index of a history: one file that saves reading, and nothing else; of a changed folder it is not believed."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.structured_text import parse_json
from ragauge.experiments.history.run_folders import (
    ExperimentSummary,
    FolderStamp,
    MeanWithSpread,
    RunSummary,
    parse_utc_time,
)
from ragauge.files.workspace import atomic_write

NAME = ".ragauge-history.jsonl"
VERSION = 3
"""Of its layout; an index of another, or by another version of ragauge, is made anew."""
SETTLED = 2.0
"""Seconds. What was changed so lately may be changed again without its time showing it: it is not put in the index."""


def load(folder: Path) -> dict[str, ExperimentSummary]:
    """What the index in a folder holds, by path; nothing where it is missing, damaged or of another version."""
    path = folder / NAME
    try:
        if not path.is_file():
            return {}
        first, _, rest = path.read_bytes().partition(b"\n")
        if parse_json(first) != _header(rest):
            return {}
        rows = [parse_json(line) for line in rest.splitlines()]
        return {_from_here(folder, row["folder"]): _kept(row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def save(folder: Path, known: Mapping[str, ExperimentSummary]) -> bool:
    """Write the index; False where the folder cannot be written to, and one does without."""
    latest = (time.time() - SETTLED) * 1e9
    settled = {
        one: kept
        for one, kept in known.items()
        # A file that could not be read may be readable the next time, and its stamp the same.
        if not kept.problems and max(changed for _, _, changed in kept.stamp) < latest
    }
    lines = [json.dumps({"folder": _relative(folder, one), **_plain(kept)}) for one, kept in settled.items()]
    rest = "".join(f"{line}\n" for line in lines).encode()
    try:
        with atomic_write(str(folder / NAME)) as out:
            out.write(json.dumps(_header(rest)).encode() + b"\n" + rest)
    except (OSError, BadInput):
        return False
    return True


def _header(rest: bytes) -> dict[str, Any]:
    """With a hash: of two processes that write at once, neither can leave half a file that is believed."""
    whole = hashlib.blake2b(rest, digest_size=16).hexdigest()
    return {"ragauge history": VERSION, "version": version("ragauge"), "hash": whole}


def _relative(folder: Path, one: str) -> str:
    return os.path.relpath(os.path.abspath(one), os.path.abspath(folder))


def _from_here(folder: Path, one: str) -> str:
    return os.path.normpath(os.path.join(os.path.abspath(folder), one))


def key(folder: str) -> str:
    """A folder as the index knows it, whatever it was called when it was given."""
    return os.path.abspath(folder)


def fresh(known: Mapping[str, ExperimentSummary], folder: str, stamp: FolderStamp) -> ExperimentSummary | None:
    """What is known of a folder, if nothing in it was changed."""
    found = known.get(key(folder))
    return found if found is not None and found.stamp == stamp else None


def _plain(kept: ExperimentSummary) -> dict[str, Any]:
    systems = []
    for told in kept.systems:
        tallies = {
            part: {name: [_number(value) for value in tally] for name, tally in getattr(told, part).items()}
            for part in ("tallies", "more")
        }
        systems.append({**vars(told), **tallies})
    return {**vars(kept), "systems": systems}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _kept(row: Mapping[str, Any]) -> ExperimentSummary:
    stamp = [(str(name), int(size), int(changed)) for name, size, changed in row["stamp"]]
    systems = []
    for one in row["systems"]:
        parts = {part: {str(name): _tally(cells) for name, cells in one[part].items()} for part in ("tallies", "more")}
        systems.append(RunSummary(**{**one, **parts}))
        parse_utc_time(one["when"])
    return ExperimentSummary(stamp, str(row["judgments"]), str(row["convention"]), systems, dict(row["problems"]))


def _tally(cells: Any) -> MeanWithSpread:
    value, n, *rest = cells
    return MeanWithSpread(_float(value), int(n), *map(_float, rest))


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)
