"""Metadata of vectors, and user filters on them: equality, sets, ranges, and several conditions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.core.hashes import content_key
from ragauge.files.source import InputFile
from ragauge.files.table_rows import read_rows
from ragauge.files.vectors import ID_COLUMNS
from ragauge.store_benchmarks.results import VectorSet
from ragauge.store_benchmarks.search_loops import Mask
from ragauge.stores.filter_conditions import (
    EQUAL,
    FILTER_OPERATORS,
    ONE_OF,
    RANGE_OPERATORS,
    matches_conditions,
    parse_filter,
)

Metadata = Sequence[Mapping[str, Any]]
Filter = Mapping[str, Any]
CONDITION_PATTERN = re.compile(r"\s*(?P<field>[^\s<>=]+)\s*(?P<operator>>=|<=|=|>|<|\bin\b)\s*(?P<value>.+?)\s*", re.S)
OPERATOR_NAMES = {operator: name for name, operator in FILTER_OPERATORS.items()}
METADATA_FORMATS = ("csv", "tsv", "jsonl", "parquet")
FILTER_EXAMPLE = "lang=de and year>=2019 and kind in a|b"


def read_metadata(path: str | Path) -> list[dict[str, Any]]:
    """Read one mapping per row of a CSV, TSV, JSONL or Parquet file.

    CSV and TSV columns of numbers or truth values are converted.
    """
    source = InputFile(str(path))
    form = source.ending.removeprefix(".")
    if form not in METADATA_FORMATS:
        raise BadInput(
            f"unknown format of metadata; expected {', '.join(f'.{ending}' for ending in METADATA_FORMATS)}, got "
            f"`{source.ending}`",
            file=source.label,
            hint="one row per vector, with a column `id` or in the order of the vectors",
        )
    rows = read_rows(source, form)
    columns = {
        name: _convert_csv_column(values) if form in ("csv", "tsv") and name not in ID_COLUMNS else list(values)
        for name, values in rows.columns.items()
    }
    return [{name: cells[at] for name, cells in columns.items() if cells[at] is not None} for at in range(len(rows))]


def with_metadata(data: VectorSet, metadata: str | Path | Metadata) -> VectorSet:
    """Return vectors with their metadata, matched by id.

    Without ids, the metadata must be in the order of the vectors.
    """
    rows = read_metadata(metadata) if isinstance(metadata, str | Path) else list(metadata)
    label = str(metadata) if isinstance(metadata, str | Path) else None
    id_column = next((name for name in ID_COLUMNS if any(name in row for row in rows)), None)
    n = len(data.base)
    if id_column is None:
        if len(rows) < n:
            raise BadInput(
                f"metadata without ids must have a row per vector; expected {n:,} rows, got {len(rows):,}",
                file=label,
                hint="add a column `id`, or give all rows",
            )
        return replace(data, metadata=[dict(row) for row in rows[:n]])
    by_id = {
        str(row[id_column]): {key: value for key, value in row.items() if key != id_column}
        for row in rows
        if id_column in row
    }
    ids = list(data.ids) or [str(row) for row in range(n)]
    matched = [by_id.get(name, {}) for name in ids]
    if not any(name in by_id for name in ids):
        raise BadInput(
            f"no id of the metadata is an id of the vectors; expected ids such as {', '.join(ids[:3])}, got "
            f"{', '.join(list(by_id)[:3]) or 'none'}",
            file=label,
        )
    lacking = sum(name not in by_id for name in ids)
    notes = [f"{lacking:,} of {n:,} vectors have no metadata and match no filter"] if lacking else []
    return replace(data, metadata=matched, notes=[*data.notes, *notes])


def resolve_filters(data: VectorSet, requested_filters: Sequence[str | Filter]) -> list[Filter]:
    """Return filters as mappings whose values have the types of the metadata.

    Raises an error for an unknown field and for a filter that matches nothing.
    """
    if not data.metadata:
        raise MissingEvidence(
            f"{data.name} has no metadata to filter by; expected a metadata file, got none",
            hint="--metadata FILE.jsonl",
        )
    known = dict.fromkeys(field for about in data.metadata for field in about)
    filters: list[Filter] = []
    for requested_filter in requested_filters:
        where = (
            _convert_conditions(_parse_conditions(requested_filter), data)
            if isinstance(requested_filter, str)
            else dict(requested_filter)
        )
        for condition in parse_filter(where):
            if condition.field not in known:
                raise UnknownName("field", condition.field, known, of="the metadata", hint=f"it has {', '.join(known)}")
        if not matching_mask(data.metadata, where).any():
            raise BadInput(
                f"the filter `{describe_filter(where)}` matches no vector; expected at least 1 of {len(data.base):,}",
                hint="loosen the condition, or check the types in the metadata file",
            )
        filters.append(where)
    return filters


def keep_used_fields(data: VectorSet, filters: Sequence[Filter]) -> VectorSet:
    """Return vectors with only the metadata that filters use.

    Raises BadInput for values that stores cannot hold.
    """
    fields = list(dict.fromkeys(condition.field for where in filters for condition in parse_filter(where)))
    for field in fields:
        values = [about[field] for about in data.metadata if field in about]
        kinds = {_metadata_type(value) for value in values}
        if len(kinds) > 1:
            raise BadInput(
                f"the field `{field}` of the metadata has values of several types ({', '.join(sorted(kinds))}); "
                "expected one type per field",
                hint="convert the field to one type",
            )
    metadata = [{field: about[field] for field in fields if field in about} for about in data.metadata]
    return replace(data, metadata=metadata)


def matching_mask(metadata: Metadata, where: Filter) -> Mask:
    """Return which rows a filter matches."""
    conditions = parse_filter(where)
    return np.fromiter((matches_conditions(about, conditions) for about in metadata), np.bool_, len(metadata))


def metadata_hash(metadata: Metadata) -> str:
    """Return a hash of metadata; empty if there are none."""
    return content_key(*metadata, compact=False)[:16] if metadata else ""


def describe_filter(where: Filter) -> str:
    """Format a filter as it is typed.

    >>> describe_filter({"lang": "de", "kind": {"$in": ["a", "b"]}, "year": {"$gte": 2019}})
    'lang=de and kind in a|b and year>=2019'
    """
    parts = []
    for field, operator, value in parse_filter(where):
        if operator == ONE_OF:
            parts.append(f"{field} in {'|'.join(map(_format_filter_value, value))}")
        else:
            parts.append(f"{field}{operator}{_format_filter_value(value)}")
    return " and ".join(parts)


def _format_filter_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_conditions(text: str) -> list[tuple[str, str, list[str]]]:
    """Parse a typed filter into conditions of field, operator and values.

    >>> _parse_conditions("lang = de and year>=2019 and kind in a|b")
    [('lang', '=', ['de']), ('year', '>=', ['2019']), ('kind', 'in', ['a', 'b'])]
    """
    conditions = []
    for part in re.split(r"\s+and\s+", text.strip()):
        condition = CONDITION_PATTERN.fullmatch(part)
        if condition is None:
            raise BadInput(
                f"the filter `{text[:80]}` cannot be read at `{part[:40]}`; expected FIELD=VALUE, FIELD in A|B, "
                "FIELD>=NUMBER or FIELD<NUMBER",
                hint=f"--where '{FILTER_EXAMPLE}'",
            )
        field, operator, value = condition["field"], condition["operator"], condition["value"]
        conditions.append(
            (field, operator, [part.strip() for part in value.split("|")] if operator == ONE_OF else [value])
        )
    return conditions


def _convert_conditions(conditions: Sequence[tuple[str, str, list[str]]], data: VectorSet) -> dict[str, Any]:
    """Convert parsed conditions to a mapping with the value types of the metadata."""
    converted: dict[str, Any] = {}
    for field, operator, texts in conditions:
        example = next((about[field] for about in data.metadata if field in about), "")
        values = [
            _convert_value(text, example, field)
            if operator not in RANGE_OPERATORS
            else _parse_finite_number(text, field)
            for text in texts
        ]
        field_conditions = converted.setdefault(field, {})
        name = OPERATOR_NAMES[operator]
        if name in field_conditions:
            raise BadInput(f"the filter has two conditions `{field}{operator}`", hint=f"--where '{FILTER_EXAMPLE}'")
        field_conditions[name] = values if operator == ONE_OF else values[0]
    return {
        field: value["$eq"] if list(value) == [OPERATOR_NAMES[EQUAL]] else value for field, value in converted.items()
    }


def _convert_value(text: str, example: Any, field: str) -> Any:
    if isinstance(example, str):
        return text
    if isinstance(example, bool):
        if text.lower() not in ("true", "false"):
            raise BadInput(
                f"the field `{field}` must be true or false, got `{text[:80]}`", hint=f"--where '{field}=true'"
            )
        return text.lower() == "true"
    return _parse_finite_number(text, field)


def _parse_finite_number(text: str, field: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(
            f"a condition on `{field}` needs a number, got `{text[:80]}`", hint=f"--where '{FILTER_EXAMPLE}'"
        )
    return int(value) if re.fullmatch(r"[+-]?\d+", text) else value


def _convert_csv_column(cells: Sequence[Any]) -> list[Any]:
    """Convert the cells of a CSV column to numbers or truth values if all of them are."""
    filled_cells = [cell for cell in cells if cell is not None]
    if filled_cells and all(str(cell).lower() in ("true", "false") for cell in filled_cells):
        return [None if cell is None else str(cell).lower() == "true" for cell in cells]
    for kind in (int, float):
        try:
            numbers = [None if cell is None else kind(cell) for cell in cells]
        except (TypeError, ValueError):
            continue
        if all(number is None or math.isfinite(number) for number in numbers):
            return numbers
    return list(cells)


def _metadata_type(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float) and math.isfinite(value):
        return "number"
    raise BadInput(
        f"metadata values must be text, numbers, true or false, got {value!r:.80}",
        hint="remove such fields from --where",
    )
