"""Experiment files: the arguments of `run` and `run_each` in TOML.

A file can come from another person. So its systems read no environment variable and send no key to a host that the
user has not allowed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ragauge.core.errors import BadInput
from ragauge.core.specs import Spec, parse_spec, parse_specs, spec_from_toml
from ragauge.files.serialization import read_settings
from ragauge.models.http_client import is_loopback
from ragauge.models.openai_client import OPENAI_KEY_VARIABLE, OPENAI_URL, OPENAI_URL_VARIABLE
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


KEYLESS_PLUGINS = ("http", "qdrant")
"""Plug-ins with an option `url` that send no key unless their options give one."""


class Permissions(NamedTuple):
    """What the systems of an experiment file may use, in addition to the key of a service at its own address."""

    variables: tuple[str, ...] = ()
    """Environment variables whose values they may send."""
    hosts: tuple[str, ...] = ()
    """Hosts to which they may send keys and passwords."""


def read_experiment(path: str, permissions: Permissions | None = None) -> dict[str, Any]:
    """Read the arguments of `run` from a TOML file.

    If `dataset` is a list or a table of names, they are arguments of `run_each`. A dataset can be a folder relative
    to the file. Raises BadInput for unknown keys or invalid values, and for systems that need more permissions.
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
    for name, system in data["systems"].items():
        for spec in _iterate_parts(system):
            _check_permissions(spec, f"the system `{name}`", path, permissions or Permissions())
    return data


def _iterate_parts(value: Any) -> Iterator[Spec]:
    """Yield a spec and all specs in its options, also those that are still text."""
    if isinstance(value, Spec):
        yield value
        value = list(value.options.values())
    if isinstance(value, str) and "(" in value:
        with suppress(BadInput):  # a text that is not a spec
            value = parse_specs(value)
    if isinstance(value, list | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _iterate_parts(item)


def _check_permissions(spec: Spec, system: str, path: str, permissions: Permissions) -> None:
    """Raise BadInput if a part of a system reads another variable, or sends a secret to a host that is not allowed."""
    named = spec.options.get("bearer") or spec.options.get("key")
    variable = str(named or OPENAI_KEY_VARIABLE)
    is_set = variable in os.environ  # otherwise there is nothing to send, and the plug-in reports it
    if is_set and named not in (None, OPENAI_KEY_VARIABLE, *permissions.variables):
        raise BadInput(
            f"{system} sends the environment variable {variable}",
            file=path,
            hint=f"if you trust the file, add `--allow-env {shlex.quote(variable)}`",
        )
    hosts: list[str] = []
    if "url" in spec.options and is_set and (named or spec.name not in KEYLESS_PLUGINS):
        hosts = _find_other_hosts(str(spec.options["url"]))
    elif "dsn" in spec.options:
        from ragauge.stores.postgres import find_remote_hosts

        variable, hosts = "the password of PostgreSQL", find_remote_hosts(str(spec.options["dsn"]))
    if forbidden := next((host for host in hosts if host not in permissions.hosts), None):
        raise BadInput(
            f"{system} sends {variable} to {forbidden}",
            file=path,
            hint=f"if you trust this host, add `--allow-host {shlex.quote(forbidden)}`",
        )


def _find_other_hosts(url: str) -> list[str]:
    """Return the host of a URL, unless it is this machine or the endpoint that the user has chosen."""
    usual = urlsplit(os.environ.get(OPENAI_URL_VARIABLE) or OPENAI_URL)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(f"the `url` of a system is not valid: {error}") from None
    is_usual = (parts.scheme, parts.netloc) == (usual.scheme, usual.netloc)
    return [] if is_usual or is_loopback(parts.hostname) else [str(parts.hostname)]


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
