"""Where datasets lie that are called by name: in the folder that RAGAUGE_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

from ragauge.errors import BadInput


def data_folder() -> Path | None:
    """The folder of collections, if there is one."""
    named = os.environ.get("RAGAUGE_DATA")
    if not named:
        return None
    if not Path(named).is_dir():
        raise BadInput("no such folder", file=named, hint="RAGAUGE_DATA is a folder of BEIR folders")
    return Path(named)


def collection(name: str) -> Path | None:
    """The folder of one collection, by its name alone."""
    folder = data_folder()
    if folder is None or name in ("", ".", "..") or Path(name).name != name:
        return None
    return folder / name if (folder / name).is_dir() else None


def json_files(folder: Path) -> list[Path]:
    """The files of a folder that can be a STIX bundle."""
    return sorted(one for one in folder.iterdir() if one.name.endswith((".json", ".json.gz")))


def bundle_at(name: str) -> str:
    """A STIX bundle by its path, or the only one in a folder: one that is there, or a collection."""
    folder = Path(name) if Path(name).exists() else collection(name)
    if folder is None or not folder.is_dir():
        return name
    found = json_files(folder)
    if len(found) == 1:
        return str(found[0])
    several = f"{len(found)} JSON files, and a bundle is one" if found else "no JSON file"
    raise BadInput(f"the folder has {several}", file=str(folder), hint="stix:FILE names a bundle by its path")
