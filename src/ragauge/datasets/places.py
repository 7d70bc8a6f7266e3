"""Find datasets by name in the folder given by RAGAUGE_DATA."""

from __future__ import annotations

import os
from pathlib import Path

from ragauge.errors import BadInput


def data_folder() -> Path | None:
    """Return the folder given by RAGAUGE_DATA.

    None if unset. Raises `BadInput` if it does not exist.
    """
    named = os.environ.get("RAGAUGE_DATA")
    if not named:
        return None
    if not Path(named).is_dir():
        raise BadInput("no such folder", file=named, hint="RAGAUGE_DATA is a folder of BEIR folders")
    return Path(named)


def collection(name: str) -> Path | None:
    """Find a dataset folder in RAGAUGE_DATA by its name; None if there is none."""
    folder = data_folder()
    if folder is None or name in ("", ".", "..") or Path(name).name != name:
        return None
    return folder / name if (folder / name).is_dir() else None


def json_files(folder: Path) -> list[Path]:
    """List the JSON files of a folder, which may be STIX bundles."""
    return sorted(one for one in folder.iterdir() if one.name.endswith((".json", ".json.gz")))


def bundle_at(name: str) -> str:
    """Find the path of a STIX bundle by path or name.

    The name is a file, a folder, or the name of a folder in RAGAUGE_DATA. A name that is not a folder is returned
    unchanged. Raises `BadInput` unless the folder has exactly one JSON file.
    """
    folder = Path(name) if Path(name).exists() else collection(name)
    if folder is None or not folder.is_dir():
        return name
    found = json_files(folder)
    if len(found) == 1:
        return str(found[0])
    several = f"{len(found)} JSON files, and a bundle is one" if found else "no JSON file"
    raise BadInput(f"the folder has {several}", file=str(folder), hint="stix:FILE names a bundle by its path")
