"""Read an experiment from a TOML file whose keys are the arguments of `run`.

The file names datasets, systems and settings that ragauge provides; it cannot refer to user code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragauge.errors import BadInput
from ragauge.formats.settings import read_settings
from ragauge.runs.execute import Plan
from ragauge.systems.specs import Spec, from_table, parse

KINDS: dict[str, tuple[type, ...]] = {
    "dataset": (str, list, dict),
    "split": (str,),
    "measures": (list,),
    "baseline": (str,),
    "convention": (str,),
    "out": (str,),
    "systems": (dict, list),
    "limit": (int,),
    "k": (int,),
    "repeats": (int,),
    "warmup": (int,),
    "workers": (int,),
    "timeout": (int, float),
    "retries": (int,),
    "threads": (int,),
    "pause": (int, float),
}


def read_experiment(path: str) -> dict[str, Any]:
    """Read the arguments of `run` from a TOML file.

    If `dataset` is a list or a table of names, they are arguments of `run_each`. A dataset can be a folder relative
    to the file. Raises BadInput for unknown keys or invalid values.
    """
    data = read_settings(path, KINDS)
    for key in ("measures", "dataset"):
        given = data.get(key)
        several = list(given.values()) if isinstance(given, dict) else given
        if isinstance(several, list) and not all(isinstance(name, str) for name in several):
            raise BadInput(f"`{key}` is {given!r}, not a list of names", file=path)
    for key in ("dataset", "systems"):
        if key not in data:
            raise BadInput(f"there is no `{key}`", file=path, hint='dataset = "pydocs", and a table [systems.bm25]')
    Plan(**{key: value for key, value in data.items() if key in Plan.__dataclass_fields__})  # raises if out of range
    data["dataset"] = _places(data["dataset"], path)
    data["systems"] = _systems(data["systems"], path)
    return data


def _places(dataset: Any, path: str) -> Any:
    """Replace each dataset by the folder of that name next to the file, if it exists."""
    if isinstance(dataset, dict):
        return {name: _places(one, path) for name, one in dataset.items()}
    if isinstance(dataset, list):
        return [_places(one, path) for one in dataset]
    beside = Path(path).parent / dataset
    return str(beside) if beside.is_dir() else dataset


def _systems(systems: Any, path: str) -> dict[str, Spec]:
    if isinstance(systems, list):
        named = {str(one): parse(str(one)) for one in systems}
        if len(named) < len(systems):
            raise BadInput("a system is listed twice", file=path, hint='[systems.other] kind = "bm25"')
        return named
    found: dict[str, Spec] = {}
    for name, table in systems.items():
        if not isinstance(table, dict | str):
            raise BadInput(
                f"the system `{name}` is {table!r}, not a table", file=path, hint=f'[systems.{name}] kind = "bm25"'
            )
        found[name] = parse(table) if isinstance(table, str) else from_table(name, table)
    return found
