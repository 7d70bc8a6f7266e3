"""Serialization: results as JSON and back, by the fields and annotations of their classes, and settings files.

Writers follow the types of the values, readers the annotations; both are compiled once per class. What departs from the
fields of a class is declared with `record` and `json_form` (`ragauge.core.record_types`).
"""

from __future__ import annotations

import json
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.record_types import RESULT_MODULES, find_record_type, json_form_of, record_type_of
from ragauge.core.structured_text import parse_toml
from ragauge.core.text import replace_lone_surrogates
from ragauge.files.json_files import read_json
from ragauge.files.json_readers import JsonMismatch, compile_reader, field_names, is_record_class, quote_json
from ragauge.files.source import InputFile
from ragauge.files.workspace import atomic_write

T = TypeVar("T")
Writer = Callable[[Any], Any]
REWRITE_HINT = "run the command that wrote the file again"
SCHEMA_PROBE_BYTES = 400
"""Number of bytes at the start of a file in which its schema is searched."""
_SCHEMA_PATTERN = re.compile(rb'\s*\[?\s*\{\s*"schema"\s*:\s*"([a-z-]+/[0-9]+)"')
_PLAIN_TYPES = frozenset({str, int, bool, type(None)})
_NO_VALUE: tuple[Any, ...] = (None, "", [], {})


def to_json_data(value: Any, supplied: Mapping[str, Any] = EMPTY_MAPPING) -> Any:
    """Convert a value to JSON data: objects for dataclasses and named tuples, None for NaN and infinity.

    A record begins with its schema and the `supplied` texts, such as its summary.

    >>> from ragauge.core.summaries import Mean
    >>> to_json_data([Mean(0.25, 3)])
    [{'value': 0.25, 'n': 3, 'low': None, 'high': None}]
    """
    record_type = record_type_of(type(value))
    data = _write_value(value)
    return data if record_type is None else {"schema": record_type.schema_field, **supplied, **data}


def to_json(value: Any, supplied: Mapping[str, Any] = EMPTY_MAPPING, *, indent: int | None = 1) -> str:
    """Convert a value to JSON text. In a list, every record has its schema."""
    data = [to_json_data(item) for item in value] if type(value) is list else to_json_data(value, supplied)
    return json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def write_record(
    value: Any, path: str | Path, supplied: Mapping[str, Any] = EMPTY_MAPPING, *, indent: int | None = 1
) -> None:
    """Write a value as JSON to a file that appears only when it is complete.

    Unpaired surrogates, which cannot be encoded, become U+FFFD.
    """
    with atomic_write(path) as out:
        out.write(replace_lone_surrogates(to_json(value, supplied, indent=indent)).encode())


def _write_value(value: Any) -> Any:
    kind: Any = type(value)
    return value if kind in _PLAIN_TYPES else _compile_writer(kind)(value)


@cache
def _compile_writer(kind: type[Any]) -> Writer:
    """Build the function that converts values of a type."""
    if json_form_of(kind).parse is not None:
        return str
    if is_record_class(kind):
        return _compile_object_writer(kind)
    if issubclass(kind, Mapping):
        return lambda value: {str(key): _write_value(item) for key, item in value.items()}
    if issubclass(kind, float):
        return lambda value: float(value) if math.isfinite(value) else None
    if issubclass(kind, str | int):
        return str if issubclass(kind, str) else int
    if issubclass(kind, Set):
        return lambda value: sorted(map(_write_value, value), key=lambda item: (isinstance(item, str), item))
    if issubclass(kind, Sequence) and not issubclass(kind, bytes):
        return lambda value: [_write_value(item) for item in value]
    if issubclass(kind, datetime):
        return datetime.isoformat
    if hasattr(kind, "tolist"):  # NumPy scalars and arrays
        return lambda value: _write_value(value.tolist())
    return str


def _compile_object_writer(kind: type[Any]) -> Writer:
    form = json_form_of(kind)
    names = [*(name for name in field_names(kind) if name not in form.omitted), *form.derived]
    keys = [form.key(name) for name in names]
    read_attributes = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]
    plain, is_finite = _PLAIN_TYPES, math.isfinite
    writer_of: Callable[[Any], Writer] = _compile_writer

    def write(value: Any) -> dict[str, Any]:
        # Most values of a result are numbers, so they skip the lookup.
        return {
            key: item if (kind := type(item)) in plain or (kind is float and is_finite(item)) else writer_of(kind)(item)
            for key, item in zip(keys, read_attributes(value), strict=True)
        }

    if not form.optional and not form.flattened:
        return write
    optional = {form.key(name) for name in form.optional}
    flattened = {form.key(name): names for name, names in form.flattened.items()}

    def write_departures(value: Any) -> dict[str, Any]:
        departures: dict[str, Any] = {}
        for key, item in write(value).items():
            if key in flattened:
                items = item.values() if isinstance(item, dict) else item
                departures |= zip(flattened[key], items, strict=True)
            elif key not in optional or item not in _NO_VALUE:
                departures[key] = item
        return departures

    return write_departures


def from_json_data(kind: type[T], data: Any, *, source: str, strict: bool = False) -> T:
    """Build a value from JSON data.

    Unknown keys are ignored, or refused if `strict`; missing ones get their default. Raise BadInput with the path of
    the first value that does not fit.

    >>> from ragauge.core.summaries import Mean
    >>> from_json_data(Mean, {"value": None, "n": 3, "low": 0.25}, source="x.json")
    Mean(value=nan, n=3, low=0.25, high=nan)
    >>> from ragauge.core.errors import BadInput
    >>> try:
    ...     from_json_data(list[Mean], [{"value": 1, "n": "3"}], source="x.json")
    ... except BadInput as error:
    ...     print(error.message)
    x.json: [0].n: expected an integer, got "3"
    """
    try:
        return typing.cast(T, compile_reader(typing.cast(Any, kind), strict)(data))
    except JsonMismatch as error:
        path = "".join(reversed(error.path)).removeprefix(".")
        raise BadInput(f"{path}: {error}" if path else str(error), file=source, hint=REWRITE_HINT) from error


def from_record_data(kind: type[T], data: Any, *, source: str) -> T:
    """Build a record from JSON data with a schema, of the present version or of an earlier one that can be read.

    Raises BadInput if the schema is another one.
    """
    record_type = record_type_of(kind)
    if record_type is None:
        raise TypeError(f"{kind.__name__} is not a record type")
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == record_type.schema_field:
        return from_json_data(kind, data, source=source)
    name, _, version = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    earlier = name == record_type.schema and version.isdecimal() and int(version) < record_type.version
    if earlier and record_type.upgrade is not None:
        return from_json_data(kind, record_type.upgrade(int(version), data), source=source)
    raise BadInput(f"expected the schema {record_type.schema_field}, got {quote_json(schema)}", file=source)


def read_records(path: str | Path) -> list[Any]:
    """Read the records of a JSON file: one object, or a list of them."""
    data = read_json(InputFile(str(path)))
    return [_from_any_record_data(item, str(path)) for item in (data if isinstance(data, list) else [data])]


def read_record(path: str | Path) -> Any:
    """Read the record of a JSON file; its schema says which type it is."""
    records = read_records(path)
    if len(records) != 1:
        raise BadInput(f"expected one result, got {len(records)}", file=str(path))
    return records[0]


def _from_any_record_data(data: Any, source: str) -> Any:
    schema = data.get("schema") if isinstance(data, dict) else None
    name = schema.partition("/")[0] if isinstance(schema, str) else ""
    if name not in RESULT_MODULES:
        raise BadInput(f"not a result of ragauge; its schema is {quote_json(schema)}", file=source)
    return from_record_data(find_record_type(name).result_type, data, source=source)


def read_schema_name(path: str | Path) -> str:
    """Return the schema name at the start of a JSON file of ragauge, without its version; empty for another file."""
    location = Path(path)
    if not location.is_file():
        return ""
    with location.open("rb") as file:
        match = _SCHEMA_PATTERN.match(file.read(SCHEMA_PROBE_BYTES))
    return "" if match is None else match[1].decode().partition("/")[0]


def detect_schema(path: str | Path) -> str | None:
    """Return the schema name of a JSON file of results without its version, or None if it is another file."""
    name = read_schema_name(path)
    return name if name in RESULT_MODULES else None


def settings_from(kind: type[T], settings: Mapping[str, Any]) -> T:
    """Build settings from keyword arguments; None selects the default.

    Raise UnknownName for an unknown name.
    """
    known_names = list(getattr(kind, "__dataclass_fields__", ()))
    for name in settings:
        if name not in known_names:
            raise UnknownName("setting", name, known_names)
    return kind(**{name: value for name, value in settings.items() if value is not None})


def read_toml(path: str) -> dict[str, Any]:
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
            raise UnknownName("setting", key, kinds, of=str(path))
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and bool not in kinds[key]):
            expected = " or ".join(kind.__name__ for kind in kinds[key])
            raise BadInput(f"`{key}` must be {expected}, got {value!r}", file=path)
    return data


def replace_nan(value: Any) -> Any:
    """Replace NaN and infinity by None, since JSON lacks them."""
    if isinstance(value, dict):
        return {key: replace_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_plain_data(value: Any) -> Any:
    """Convert a value to JSON types. A manifest from a file can contain any type.

    >>> import numpy as np
    >>> to_plain_data({1: (np.float64(0.5), {"a"}), "when": None})
    {'1': [0.5, ['a']], 'when': None}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain_data(item) for key, item in value.items()}
    if isinstance(value, str | int | float | None):
        return float(value) if isinstance(value, float) else value  # NumPy floats have another repr.
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [to_plain_data(item) for item in value]
    return to_plain_data(value.tolist()) if hasattr(value, "tolist") else str(value)
