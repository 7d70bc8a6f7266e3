"""Metadata as the columns of an engine: a name that needs no quoting and one type for each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.errors import BadInput
from ragauge.systems.stores.conditions import ONE_OF, RANGES, Condition, conditions_of, whole_bound

TRUTH, WHOLE, REAL, TEXT = "truth", "whole", "real", "text"
WORDS = {TRUTH: "true or false", WHOLE: "whole numbers", REAL: "numbers", TEXT: "texts"}


class Column(NamedTuple):
    """Where the values of a key are kept, and of which kind they are."""

    name: str
    kind: str


class Columns:
    """The columns of a store: a key gets one when it first comes, of the kind of its first value."""

    def __init__(self) -> None:
        self._known: dict[str, Column] = {}

    def __iter__(self) -> Iterator[Column]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def new(self, ids: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None) -> dict[str, Column]:
        """The columns that metadata need and that are not there yet; values of another kind are refused."""
        added: dict[str, Column] = {}
        for name, about in zip(ids, metadata or (), strict=False):
            for key, value in about.items():
                column = self._known.get(key) or added.get(key)
                if column is None:
                    added[key] = Column(f"c{len(self._known) + len(added)}", kind_of(value))
                elif kind_of(value) != column.kind and not (column.kind == REAL and kind_of(value) == WHOLE):
                    raise BadInput(
                        f"the metadata of {name!r}: {key!r} is {value!r}, and before it were {WORDS[column.kind]}",
                        hint="this engine keeps one kind of value for each name",
                    )
        return added

    def learn(self, added: Mapping[str, Column]) -> None:
        """Take up columns that the engine has now."""
        self._known.update(added)

    def row(self, about: Mapping[str, Any]) -> list[Any]:
        """The values of one vector, in the order of the columns; None where there is none."""
        return [plain(about[key], column.kind) if key in about else None for key, column in self._known.items()]

    def named(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """The same by the names of the columns, without what is missing."""
        return {self._known[key].name: plain(value, self._known[key].kind) for key, value in about.items()}

    def wanted(self, where: Mapping[str, Any]) -> list[Condition] | None:
        """Return the conditions on columns; None if nothing can match: no such key, or no value of that kind."""
        found = []
        for key, operator, value in conditions_of(where):
            column = self._known.get(key)
            if column is None:
                return None
            if operator in RANGES:
                if column.kind not in (WHOLE, REAL):
                    return None
                bound = whole_bound(operator, value) if column.kind == WHOLE else float(value)
                found.append(Condition(column.name, operator, bound))
                continue
            fitting = [
                plain(one, column.kind) for one in (value if operator == ONE_OF else [value]) if _fits(one, column)
            ]
            if not fitting:
                return None
            one_of = operator == ONE_OF
            found.append(Condition(column.name, operator, tuple(fitting) if one_of else fitting[0]))
        return found

    def kept(self) -> dict[str, list[str]]:
        """The columns as they are written to a folder."""
        return {key: list(column) for key, column in self._known.items()}

    def read(self, kept: Mapping[str, Sequence[str]]) -> None:
        """Take up what `kept` gave."""
        self._known = {key: Column(*column) for key, column in kept.items()}


def _fits(value: Any, column: Column) -> bool:
    """Return whether a column can hold a value."""
    kind = kind_of(value)
    if kind == REAL and float(value).is_integer():
        kind = WHOLE  # 3.0 is 3, in whichever way it was written
    return kind == column.kind or (column.kind, kind) == (REAL, WHOLE)


def kind_of(value: Any) -> str:
    """The kind of a value."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return TRUTH
    if isinstance(value, str):
        return TEXT
    return REAL if isinstance(value, float) or getattr(getattr(value, "dtype", None), "kind", "") == "f" else WHOLE


def plain(value: Any, kind: str) -> Any:
    """A value as Python's own of its column's kind; NumPy's are not known to every engine."""
    return {TRUTH: bool, WHOLE: int, REAL: float, TEXT: str}[kind](value)
