"""Metadata columns of a database: each key gets a column name that needs no quoting, and one type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.core.errors import BadInput
from ragauge.stores.filter_conditions import ONE_OF, RANGE_OPERATORS, FilterCondition, parse_filter, to_integer_bound

BOOL_KIND, INT_KIND, FLOAT_KIND, TEXT_KIND = "truth", "whole", "real", "text"
KIND_LABELS = {BOOL_KIND: "true or false", INT_KIND: "whole numbers", FLOAT_KIND: "numbers", TEXT_KIND: "texts"}


class MetadataColumn(NamedTuple):
    """Column of a metadata key: its name in the engine and the kind of its values."""

    name: str
    kind: str


class MetadataColumns:
    """Metadata columns of a store.

    The first value of a key decides the kind of its column.
    """

    def __init__(self) -> None:
        self._known: dict[str, MetadataColumn] = {}

    def __iter__(self) -> Iterator[MetadataColumn]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def new(self, ids: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None) -> dict[str, MetadataColumn]:
        """Return the columns that metadata need and that do not exist yet.

        Raises BadInput for a value of another kind than its column.
        """
        added: dict[str, MetadataColumn] = {}
        for name, fields in zip(ids, metadata or (), strict=False):
            for key, value in fields.items():
                column = self._known.get(key) or added.get(key)
                if column is None:
                    added[key] = MetadataColumn(f"c{len(self._known) + len(added)}", value_kind(value))
                elif value_kind(value) != column.kind and not (
                    column.kind == FLOAT_KIND and value_kind(value) == INT_KIND
                ):
                    raise BadInput(
                        f"the metadata of {name!r}: {key!r} must be {KIND_LABELS[column.kind]} as before, "
                        f"got {value!r}",
                        hint="use one kind of value per name",
                    )
        return added

    def learn(self, added: Mapping[str, MetadataColumn]) -> None:
        """Register columns that were added to the engine."""
        self._known.update(added)

    def row(self, metadata: Mapping[str, Any]) -> list[Any]:
        """Return the metadata of one vector in column order; None for a missing key."""
        return [
            to_column_value(metadata[key], column.kind) if key in metadata else None
            for key, column in self._known.items()
        ]

    def row_by_name(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of one vector by column name, without missing keys."""
        return {self._known[key].name: to_column_value(value, self._known[key].kind) for key, value in metadata.items()}

    def to_conditions(self, where: Mapping[str, Any]) -> list[FilterCondition] | None:
        """Convert a filter to conditions on columns.

        None if nothing can match: no such key, or no value of the column's kind.
        """
        converted = []
        for key, operator, value in parse_filter(where):
            column = self._known.get(key)
            if column is None:
                return None
            if operator in RANGE_OPERATORS:
                if column.kind not in (INT_KIND, FLOAT_KIND):
                    return None
                bound = to_integer_bound(operator, value) if column.kind == INT_KIND else float(value)
                converted.append(FilterCondition(column.name, operator, bound))
                continue
            fitting = [
                to_column_value(item, column.kind)
                for item in (value if operator == ONE_OF else [value])
                if _fits_column(item, column)
            ]
            if not fitting:
                return None
            one_of = operator == ONE_OF
            converted.append(FilterCondition(column.name, operator, tuple(fitting) if one_of else fitting[0]))
        return converted

    def to_json(self) -> dict[str, list[str]]:
        """Return the columns as JSON data for the bookkeeping file."""
        return {key: list(column) for key, column in self._known.items()}

    def read(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Restore the columns from the data of `kept`."""
        self._known = {key: MetadataColumn(*column) for key, column in columns.items()}


def _fits_column(value: Any, column: MetadataColumn) -> bool:
    """Return whether a column can hold a value."""
    kind = value_kind(value)
    if kind == FLOAT_KIND and float(value).is_integer():
        kind = INT_KIND  # 3.0 matches an integer column as 3
    return kind == column.kind or (column.kind, kind) == (FLOAT_KIND, INT_KIND)


def value_kind(value: Any) -> str:
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return BOOL_KIND
    if isinstance(value, str):
        return TEXT_KIND
    return (
        FLOAT_KIND
        if isinstance(value, float) or getattr(getattr(value, "dtype", None), "kind", "") == "f"
        else INT_KIND
    )


def to_column_value(value: Any, kind: str) -> Any:
    """Convert a value to the Python type of its column.

    Some engines reject NumPy types.
    """
    return {BOOL_KIND: bool, INT_KIND: int, FLOAT_KIND: float, TEXT_KIND: str}[kind](value)
