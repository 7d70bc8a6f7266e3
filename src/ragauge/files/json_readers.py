"""Readers of JSON data, compiled per type from its annotations."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from ragauge.core.errors import RagaugeError, excerpt
from ragauge.core.record_types import json_form_of
from ragauge.core.records import MeasureDict

Reader = Callable[[Any], Any]
"""Function that builds a value from JSON data; it raises `JsonMismatch`."""


class RecordField(NamedTuple):
    """Field of a dataclass or of a named tuple, with its resolved annotation."""

    name: str
    kind: Any
    required: bool
    default: Any = None
    """Default value; None also if a factory creates it for each object."""


def is_record_class(kind: Any) -> bool:
    """Return whether a type is a dataclass or a named tuple, which are written as objects."""
    return isinstance(kind, type) and (is_dataclass(kind) or (issubclass(kind, tuple) and "_fields" in vars(kind)))


def field_names(kind: type[Any]) -> list[str]:
    """Return the names of the fields of a dataclass or of a named tuple."""
    return [item.name for item in fields(kind) if item.init] if is_dataclass(kind) else list(kind._fields)


@cache
def list_fields(kind: type[Any]) -> tuple[RecordField, ...]:
    """List the fields of a dataclass or of a named tuple."""
    hints = typing.get_type_hints(kind)
    if not is_dataclass(kind):
        defaults = kind._field_defaults
        return tuple(RecordField(name, hints[name], name not in defaults, defaults.get(name)) for name in kind._fields)
    return tuple(
        RecordField(
            item.name,
            hints[item.name],
            item.default is MISSING and item.default_factory is MISSING,
            None if item.default is MISSING else item.default,
        )
        for item in fields(kind)
        if item.init
    )


class JsonMismatch(Exception):
    """Data that does not fit its type, with the path to it from the inside out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str] = []

    def within(self, step: str) -> JsonMismatch:
        """Prepend a step of the path: `.name` or `[0]`."""
        self.path.append(step)
        return self


@cache
def compile_reader(kind: Any, strict: bool) -> Reader:
    """Build the function that reads values of an annotation; `strict` refuses unknown keys."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return _read_unchanged
    if origin in (Union, types.UnionType):
        return _compile_union_reader(arguments, strict)
    if origin is Literal:
        return _compile_choice_reader(arguments)
    if kind in _SCALAR_READERS:
        return _SCALAR_READERS[kind]
    if is_record_class(kind):
        parse = json_form_of(kind).parse
        return _compile_object_reader(kind, strict) if parse is None else _compile_text_reader(parse)
    container = origin or kind
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        return _compile_tuple_reader([compile_reader(item, strict) for item in arguments])
    if container is MeasureDict:
        return _compile_measures_reader(arguments[0], strict=strict)
    if isinstance(container, type) and issubclass(container, Mapping):
        return _compile_mapping_reader(*(arguments or (str, Any)), strict=strict)
    if isinstance(container, type) and issubclass(container, Sequence | Set):
        build = tuple if container is tuple else frozenset if issubclass(container, Set) else list
        return _compile_list_reader(build, compile_reader(arguments[0] if arguments else Any, strict))
    if hasattr(container, "tolist"):  # NumPy arrays
        return _compile_list_reader(_build_float_array, compile_reader(float, strict))
    raise TypeError(f"no reader for {kind}")


def _read_unchanged(data: Any) -> Any:
    return data


def _build_float_array(values: list[float]) -> Any:
    import numpy as np

    return np.array(values, dtype=np.float64)


def quote_json(value: Any) -> str:
    """Return a value as JSON, shortened for a message."""
    return excerpt(json.dumps(value, ensure_ascii=False, default=str))


def _scalar_reader(expected: str, accepted: tuple[type[Any], ...], build: Callable[[Any], Any] | None = None) -> Reader:
    """Build the reader of a type of which JSON has a counterpart."""

    def read(data: Any) -> Any:
        if not isinstance(data, accepted) or (isinstance(data, bool) and bool not in accepted):
            raise JsonMismatch(f"expected {expected}, got {quote_json(data)}")
        return data if build is None else build(data)

    return read


def _read_datetime(data: Any) -> datetime:
    try:
        return datetime.fromisoformat(data)
    except (TypeError, ValueError):
        raise JsonMismatch(f"expected a date and time, got {quote_json(data)}") from None


_SCALAR_READERS: dict[Any, Reader] = {
    str: _scalar_reader("a text", (str,)),
    int: _scalar_reader("an integer", (int,)),
    bool: _scalar_reader("true or false", (bool,)),
    float: _scalar_reader("a number", (int, float, type(None)), lambda data: math.nan if data is None else float(data)),
    type(None): _scalar_reader("null", (type(None),)),
    Path: _scalar_reader("a path", (str,), Path),
    datetime: _read_datetime,
}


def _compile_union_reader(members: Sequence[Any], strict: bool) -> Reader:
    """Build a reader that returns the first member that fits; None only if it is a member."""
    readers = [compile_reader(member, strict) for member in members if member is not type(None)]
    optional = type(None) in members

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        for reader in readers[:-1]:
            try:
                return reader(data)
            except JsonMismatch:
                continue
        return readers[-1](data)

    return read


def _compile_choice_reader(choices: Sequence[Any]) -> Reader:
    def read(data: Any) -> Any:
        if data not in choices:
            raise JsonMismatch(f"expected one of {', '.join(map(quote_json, choices))}, got {quote_json(data)}")
        return data

    return read


def _compile_text_reader(parse: Callable[[str], Any]) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, str):
            raise JsonMismatch(f"expected a text, got {quote_json(data)}")
        try:
            return parse(data)
        except RagaugeError as error:
            raise JsonMismatch(error.message) from None

    return read


def _read_items(readers: Sequence[Reader], data: Sequence[Any]) -> list[Any]:
    values = []
    for position, (reader, item) in enumerate(zip(readers, data, strict=True)):
        try:
            values.append(reader(item))
        except JsonMismatch as error:
            raise error.within(f"[{position}]") from None
    return values


def _compile_list_reader(build: Callable[[list[Any]], Any], reader: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise JsonMismatch(f"expected a list, got {quote_json(data)}")
        items = _read_items([reader] * len(data), data)
        return items if build is list else build(items)

    return read


def _compile_tuple_reader(readers: Sequence[Reader]) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(readers):
            raise JsonMismatch(f"expected a list of {len(readers)} items, got {quote_json(data)}")
        return tuple(_read_items(readers, data))

    return read


def _compile_mapping_reader(key_type: Any, item_type: Any, *, strict: bool) -> Reader:
    reader, read_key = compile_reader(item_type, strict), int if key_type is int else str

    def read(data: Any) -> dict[Any, Any]:
        if not isinstance(data, dict):
            raise JsonMismatch(f"expected an object, got {quote_json(data)}")
        result = {}
        for key, item in data.items():
            try:
                result[read_key(key)] = reader(item)
            except JsonMismatch as error:
                raise error.within(f".{key}") from None
            except ValueError:
                raise JsonMismatch(f"expected an integer as key, got {quote_json(key)}") from None
        return result

    return read


def _compile_measures_reader(item_type: Any, *, strict: bool) -> Reader:
    """Build a reader of values by measure; names in a file are canonical."""
    reader = _compile_mapping_reader(str, item_type, strict=strict)
    return lambda data: MeasureDict(reader(data), str)


def _compile_object_reader(kind: Any, strict: bool) -> Reader:
    form = json_form_of(kind)
    entries: list[tuple[RecordField, Sequence[str], Reader]] = []
    for field in list_fields(kind):
        if field.name in form.omitted:
            continue
        keys = form.flattened.get(field.name, [form.key(field.name)])
        entries.append((field, keys, compile_reader(field.kind, strict)))
    known_keys = {
        "schema",
        *(key for _, keys, _ in entries for key in keys),
        *(form.key(name) for name in form.derived),
    }

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise JsonMismatch(f"expected an object, got {quote_json(data)}")
        unknown = next((key for key in data if key not in known_keys), None) if strict else None
        if unknown is not None:
            raise JsonMismatch(f"unknown key {quote_json(unknown)}; expected {', '.join(sorted(known_keys))}")
        values = {}
        for field, keys, reader in entries:
            if keys[0] in data:
                try:
                    values[field.name] = reader(data[keys[0]] if len(keys) == 1 else _unflatten(field, keys, data))
                except JsonMismatch as error:
                    raise error.within(f".{keys[0]}") from None
            elif field.required:
                raise JsonMismatch(f"missing key {quote_json(keys[0])}")
        try:
            return kind(**values)
        except (TypeError, ValueError, RagaugeError) as error:
            raise JsonMismatch(str(error)) from None

    return read


def _unflatten(field: RecordField, keys: Sequence[str], data: Mapping[str, Any]) -> Any:
    """Return the data of a flattened field, as it would be on its own."""
    items = [data.get(key) for key in keys]
    return dict(zip(field_names(field.kind), items, strict=True)) if is_record_class(field.kind) else items
