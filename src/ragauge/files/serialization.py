"""Serialization: result types as JSON data and back, by the fields and annotations of the classes, and settings."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from ragauge.core.errors import BadInput, UnknownName, excerpt
from ragauge.core.structured_text import parse_toml

T = TypeVar("T")


def to_json_data(thing: Any) -> Any:
    """Convert dataclasses, named tuples and sequences to JSON data.

    NaN and infinity become None.

    >>> from ragauge.core.summaries import Mean
    >>> to_json_data([Mean(0.25, 3)])
    [{'value': 0.25, 'n': 3, 'low': None, 'high': None}]
    """
    if is_dataclass(thing) and not isinstance(thing, type):
        return {one.name: to_json_data(getattr(thing, one.name)) for one in fields(thing)}
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return {name: to_json_data(value) for name, value in thing._asdict().items()}
    if isinstance(thing, Mapping):
        return {str(name): to_json_data(value) for name, value in thing.items()}
    if isinstance(thing, str | bool | int | None):
        return thing
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else None
    if isinstance(thing, Sequence | frozenset | set):
        return [to_json_data(one) for one in thing]
    if hasattr(thing, "tolist"):  # NumPy scalars and arrays
        return to_json_data(thing.tolist())
    return str(thing)


def from_json_data(kind: type[T], data: Any, *, file: str) -> T:
    """Build a result type from JSON data.

    Unknown fields are ignored, missing ones get their default. Raise BadInput if the data does not fit the type.

    >>> from ragauge.core.summaries import Mean
    >>> from_json_data(Mean, {"value": None, "n": 3, "low": 0.25}, file="x.json")
    Mean(value=nan, n=3, low=0.25, high=nan)
    """
    try:
        return typing.cast(T, _build_value(kind, data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"this {kind.__name__} cannot be read: {type(error).__name__}: {error}",
            file=file,
            hint="run the command that wrote the file again",
        ) from error


def _build_union_member(kind: Any, data: Any) -> Any:
    """Build the first member of a union that fits the data."""
    *others, last = (one for one in get_args(kind) if one is not type(None))
    for one in others:
        with suppress(TypeError, ValueError):
            return _build_value(one, data)
    return _build_value(last, data)


def _build_value(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        return None if data is None else _build_union_member(kind, data)
    if kind is float:
        if data is not None and (isinstance(data, bool) or not isinstance(data, int | float)):
            raise TypeError(f"{excerpt(repr(data))} is not a number")
        return math.nan if data is None else float(data)
    if kind in (str, int, bool):
        if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
            raise TypeError(f"{excerpt(repr(data))} is not {kind.__name__}")
        return data
    if origin is not None and not isinstance(data, dict if issubclass(origin, Mapping) else list):
        raise TypeError(f"{excerpt(repr(data))} is not {'an object' if issubclass(origin, Mapping) else 'a list'}")
    if origin is tuple and get_args(kind)[-1] is not Ellipsis:
        return tuple(_build_value(one, value) for one, value in zip(get_args(kind), data, strict=True))
    if origin is tuple:
        return tuple(_build_value(get_args(kind)[0], one) for one in data)
    if origin is not None and issubclass(origin, Mapping):
        return {name: _build_value(get_args(kind)[1], value) for name, value in data.items()}
    if origin is not None and issubclass(origin, Sequence):
        return [_build_value(get_args(kind)[0], one) for one in data]
    if not isinstance(data, dict):
        raise TypeError(f"{excerpt(repr(data))} is not an object")
    known = typing.get_type_hints(kind)
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    return kind(**{name: _build_value(known[name], data[name]) for name in names if name in data})


def settings_from(kind: type[T], how: Mapping[str, Any]) -> T:
    """Build settings from keyword arguments; None selects the default.

    Raise UnknownName for an unknown name.
    """
    known = list(getattr(kind, "__dataclass_fields__", ()))
    for name in how:
        if name not in known:
            raise UnknownName("setting", name, known, hint=f"there are {', '.join(known)}")
    return kind(**{name: value for name, value in how.items() if value is not None})


def read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"), file=path)
    except FileNotFoundError:
        raise BadInput("no such file", file=path) from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"the TOML cannot be read ({error})", file=path) from None


def read_settings(path: str, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """Read a TOML file of settings.

    Raise an error for unknown keys and for values of other types.
    """
    data = read_toml(path)
    for key, value in data.items():
        if key not in kinds:
            raise UnknownName(f"setting in {path}", key, kinds, hint=f"there are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and bool not in kinds[key]):
            wanted = " or ".join(kind.__name__ for kind in kinds[key])
            raise BadInput(f"`{key}` is {value!r}, not {wanted}", file=path)
    return data


def replace_nan(value: Any) -> Any:
    """Replace NaN and infinity by None, since JSON lacks them."""
    if isinstance(value, dict):
        return {key: replace_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [replace_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_plain_data(value: Any) -> Any:
    """Convert a value to JSON types. A manifest from a file can contain any type.

    >>> import numpy as np
    >>> to_plain_data({1: (np.float64(0.5), {"a"}), "when": None})
    {'1': [0.5, ['a']], 'when': None}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain_data(one) for key, one in value.items()}
    if isinstance(value, str | int | float | None):
        return float(value) if isinstance(value, float) else value  # NumPy floats have another repr.
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [to_plain_data(one) for one in value]
    return to_plain_data(value.tolist()) if hasattr(value, "tolist") else str(value)
