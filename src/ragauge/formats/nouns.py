"""Serialization: result types as JSON data and back, by the fields and annotations of the classes, and settings."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin

from ragauge.errors import BadInput, excerpt

T = TypeVar("T")


def to_data(thing: Any) -> Any:
    """Convert dataclasses, named tuples and sequences to JSON data.

    NaN and infinity become None.

    >>> from ragauge.outcomes import Mean
    >>> to_data([Mean(0.25, 3)])
    [{'value': 0.25, 'n': 3, 'low': None, 'high': None}]
    """
    if is_dataclass(thing) and not isinstance(thing, type):
        return {one.name: to_data(getattr(thing, one.name)) for one in fields(thing)}
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return {name: to_data(value) for name, value in thing._asdict().items()}
    if isinstance(thing, Mapping):
        return {str(name): to_data(value) for name, value in thing.items()}
    if isinstance(thing, str | bool | int | None):
        return thing
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else None
    if isinstance(thing, Sequence | frozenset | set):
        return [to_data(one) for one in thing]
    if hasattr(thing, "tolist"):  # NumPy scalars and arrays
        return to_data(thing.tolist())
    return str(thing)


def from_data(kind: type[T], data: Any, *, file: str) -> T:
    """Build a result type from JSON data.

    Unknown fields are ignored, missing ones get their default. Raise BadInput if the data does not fit the type.

    >>> from ragauge.outcomes import Mean
    >>> from_data(Mean, {"value": None, "n": 3, "low": 0.25}, file="x.json")
    Mean(value=nan, n=3, low=0.25, high=nan)
    """
    try:
        return typing.cast(T, _made(kind, data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"this {kind.__name__} cannot be read: {type(error).__name__}: {error}",
            file=file,
            hint="run the command that wrote the file again",
        ) from error


def _first(kind: Any, data: Any) -> Any:
    """Build the first member of a union that fits the data."""
    *others, last = (one for one in get_args(kind) if one is not type(None))
    for one in others:
        with suppress(TypeError, ValueError):
            return _made(one, data)
    return _made(last, data)


def _made(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        return None if data is None else _first(kind, data)
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
        return tuple(_made(one, value) for one, value in zip(get_args(kind), data, strict=True))
    if origin is tuple:
        return tuple(_made(get_args(kind)[0], one) for one in data)
    if origin is not None and issubclass(origin, Mapping):
        return {name: _made(get_args(kind)[1], value) for name, value in data.items()}
    if origin is not None and issubclass(origin, Sequence):
        return [_made(get_args(kind)[0], one) for one in data]
    if not isinstance(data, dict):
        raise TypeError(f"{excerpt(repr(data))} is not an object")
    known = typing.get_type_hints(kind)
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    return kind(**{name: _made(known[name], data[name]) for name in names if name in data})
