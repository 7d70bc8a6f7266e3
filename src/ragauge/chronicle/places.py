"""Find the folders that `run` wrote, and stamp their files to detect changes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragauge.errors import BadInput
from ragauge.runs.archive import EXPERIMENT

BESIDE = ("scores.csv", "judgments.parquet", EXPERIMENT, "report.md")
OF_RUN = ("manifest.json", "run.parquet", "repeats.parquet", "timings.parquet")
"""Files read from the folder of an experiment (above) and from the folder of each run."""
DEPTH = 8
"""Maximum number of folder levels searched below a given folder."""
MOST = 100_000
"""Maximum number of folders searched. Stops at a link to a very large tree."""

Stamp = list[tuple[str, int, int]]
"""Path within the folder, size in bytes and modification time in nanoseconds of each file that is read."""


def find(folders: Sequence[str | Path]) -> tuple[dict[str, Stamp], dict[str, str]]:
    """Find experiment folders at and below the given folders.

    Returns the stamp by folder, and the reason by folder that was skipped.
    """
    found: dict[str, Stamp] = {}
    skipped: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()
    for one in folders:
        folder = Path(one)
        if not folder.is_dir():
            what = "is a file, not a folder" if folder.exists() else "no such folder"
            raise BadInput(what, file=str(folder), hint="a folder that holds what `ragauge run` wrote, such as runs")
        if _look(folder, 0, seen, found, skipped) is not None:
            raise BadInput("is a single run", file=str(folder), hint=f"give the folder above it: {folder.parent}")
    return found, skipped


def _look(
    folder: Path, depth: int, seen: set[tuple[int, int]], found: dict[str, Stamp], skipped: dict[str, str]
) -> Stamp | None:
    """Search a folder and its subfolders.

    Return the stamp if the folder itself is a run, else None.
    """
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        files = {one.name: one for one in inside if one.is_file()}
        below = [one for one in inside if one.is_dir() and not one.name.startswith(".")]
        if "manifest.json" in files and "run.parquet" in files:
            return _stamp(files, OF_RUN)
        if any(name in files for name in ("manifest.json", "run.parquet", "journal.jsonl")):
            skipped[str(folder)] = "holds a run that is not finished, or not whole"
            return None
        here = os.stat(folder)
        mine = _stamp(files, BESIDE)
    except OSError as error:
        skipped[str(folder)] = f"cannot be looked into ({error.strerror})"
        return None
    if (here.st_dev, here.st_ino) in seen:  # A duplicate argument, or a link to a parent folder.
        return None
    seen.add((here.st_dev, here.st_ino))
    if len(seen) > MOST:
        raise BadInput(f"more than {MOST:,} folders are below", file=str(folder), hint="give the folders of results")
    if depth >= DEPTH and below:
        skipped[str(folder)] = f"what is below it is more than {DEPTH} folders down"
        return None
    runs = 0
    for one in below:
        if not one.name.isascii() and one.name.encode("utf-8", "replace").decode() != one.name:
            skipped[str(folder / one.name)] = "its name is not UTF-8"
            continue
        stamp = _look(folder / one.name, depth + 1, seen, found, skipped)
        if stamp is not None:
            runs += 1
            mine += [(f"{one.name}/{name}", size, changed) for name, size, changed in stamp]
    if runs and "judgments.parquet" in files:
        found[str(folder)] = mine
    elif runs:
        skipped[str(folder)] = "holds runs, but no judgments.parquet: `ragauge run` writes it when it comes to its end"
    elif "judgments.parquet" in files and "queries.parquet" in files:
        skipped[str(folder)] = "holds no finished run"
    return None


def _stamp(files: Mapping[str, os.DirEntry[str]], names: Sequence[str]) -> Stamp:
    known = [(name, files[name].stat()) for name in names if name in files]
    return [(name, one.st_size, one.st_mtime_ns) for name, one in known]
