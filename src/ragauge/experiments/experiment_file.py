"""Experiment files: the arguments of `run` and `run_each` in TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput
from ragauge.core.specs import Spec, parse_spec, spec_from_toml
from ragauge.files.serialization import read_settings
from ragauge.runs.execution import RunSettings

SETTING_TYPES: dict[str, tuple[type, ...]] = {
    "dataset": (str, list, dict),
    "split": (str,),
    "measures": (list,),
    "baseline": (str,),
    "convention": (str,),
    "out": (str,),
    "systems": (dict, list),
    "max_queries": (int,),
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
    data = read_settings(path, SETTING_TYPES)
    for key in ("measures", "dataset"):
        value = data.get(key)
        names = list(value.values()) if isinstance(value, dict) else value
        if isinstance(names, list) and not all(isinstance(name, str) for name in names):
            raise BadInput(f"`{key}` must be a list of names, got {value!r}", file=path)
    for key in ("dataset", "systems"):
        if key not in data:
            raise BadInput(f"missing `{key}`", file=path, hint='dataset = "pydocs", and a table [systems.bm25]')
    RunSettings(
        **{key: value for key, value in data.items() if key in RunSettings.__dataclass_fields__}
    )  # raises if out of range
    data["dataset"] = _resolve_dataset_folders(data["dataset"], path)
    data["systems"] = _parse_systems(data["systems"], path)
    return data


def _resolve_dataset_folders(dataset: Any, path: str) -> Any:
    """Replace each dataset by the folder of that name next to the file, if it exists."""
    if isinstance(dataset, dict):
        return {name: _resolve_dataset_folders(value, path) for name, value in dataset.items()}
    if isinstance(dataset, list):
        return [_resolve_dataset_folders(value, path) for value in dataset]
    folder = Path(path).parent / dataset
    return str(folder) if folder.is_dir() else dataset


def _parse_systems(systems: Any, path: str) -> dict[str, Spec]:
    if isinstance(systems, list):
        named = {str(text): parse_spec(str(text)) for text in systems}
        if len(named) < len(systems):
            raise BadInput("duplicate system", file=path, hint='[systems.other] kind = "bm25"')
        return named
    specs: dict[str, Spec] = {}
    for name, table in systems.items():
        if not isinstance(table, dict | str):
            raise BadInput(
                f"the system `{name}` must be a table, got {table!r}", file=path, hint=f'[systems.{name}] kind = "bm25"'
            )
        specs[name] = parse_spec(table) if isinstance(table, str) else spec_from_toml(name, table)
    return specs
