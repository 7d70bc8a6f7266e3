"""A sweep as plain data for JSON, and back; `sweep.schema.json` beside it says what everything means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from ragauge.errors import BadInput
from ragauge.outcomes import Latency
from ragauge.reports.overviews_data import plain
from ragauge.reports.sweeps_words import enough, verdict
from ragauge.reports.tables import without_nan
from ragauge.sweeps import (
    Build,
    Change,
    Clock,
    Configuration,
    Failure,
    Filtered,
    Load,
    Mixed,
    Point,
    Reached,
    Sweep,
)

SCHEMA = "ragauge-sweep/1"
"""The shape of the data. Another number would mean that what was there is gone or means something else."""
R = TypeVar("R")
PARTS: Mapping[str, Any] = {
    "Latency": Latency,
    "Build": Build,
    "Clock": Clock,
    "Configuration": Configuration,
    "Mixed | None": Mixed,
    "Sequence[Load]": Load,
    "Sequence[Change]": Change,
    "Sequence[Filtered]": Filtered,
    "Sequence[Point]": Point,
    "Sequence[Failure]": Failure,
    "Sequence[Reached]": Reached,
}
"""What the types of fields are, as they are written."""


def as_data(sweep: Sweep) -> dict[str, Any]:
    """Everything; what is not a number is None."""
    data = {
        "schema": SCHEMA,
        "verdict": verdict(sweep),
        **_told(sweep),
        "points": [point_data(one) for one in sweep.points],
        "enough": [one._asdict() for one in enough(sweep)],
    }
    return dict(without_nan(plain(data)))


def point_data(point: Point) -> dict[str, Any]:
    """One configuration with its figures, and what follows from them."""
    return {
        **_told(point),
        "series": point.configuration.series,
        "qps": point.qps,
        "loads": [{**_told(one), "kept_up": one.kept_up} for one in point.loads],
    }


def _told(record: Any) -> Any:
    """The fields of a record, and of the records in them."""
    if is_dataclass(record):
        return {one.name: _told(getattr(record, one.name)) for one in fields(record)}
    if isinstance(record, Mapping):
        return {str(name): _told(one) for name, one in record.items()}
    return [_told(one) for one in record] if isinstance(record, list | tuple) else record


def from_data(data: Any, file: str | None = None) -> Sweep:
    """The sweep that was written; what follows from other figures is not read but follows again."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        told = data.get("schema") if isinstance(data, Mapping) else None
        raise BadInput(
            f"this is no sweep: its schema is {told!r}, not {SCHEMA!r}", file=file, hint="sweep.json of `ragauge bench`"
        )
    try:
        return _record(Sweep, data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"this sweep cannot be read: {type(error).__name__}: {error}", file=file) from error


def _record(kind: type[R], data: Mapping[str, Any]) -> R:
    """A record from a mapping: fields that it lacks have their defaults, and a number that is null is not one."""
    found = {one.name: _value(str(one.type), data[one.name]) for one in fields(kind) if one.name in data}  # type: ignore[arg-type]
    return kind(**found)


def _value(kind: str, value: Any) -> Any:
    if kind == "float":
        return math.nan if value is None else float(value)
    if kind == "Mapping[str, float]":
        return {name: _value("float", one) for name, one in value.items()}
    if kind in PARTS:
        if isinstance(value, list):
            return [_record(PARTS[kind], one) for one in value]
        return None if value is None else _record(PARTS[kind], value)
    return value
