"""Options of a store: a frozen dataclass per engine, whose fields are the options of its specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

from ragauge.core.errors import BadInput
from ragauge.core.settings import check_settings

Value = TypeVar("Value")

GRAPH_SEARCH_WIDTHS = [10, 20, 40, 80, 160, 320]
"""Search widths of graph indexes in a sweep."""
CELL_PROBES = [1, 2, 4, 8, 16, 32]
"""Number of cells that are searched in a sweep."""


def search_option(default: Value) -> Value:
    """Declare a field that `tune` can change without a rebuild; all other fields are build options."""
    return field(default=default, metadata={"search": True})


def search_width(default: Value) -> Value:
    """Declare a search option that sets how much of an index is searched; a filter needs larger values."""
    return field(default=default, metadata={"search": True, "width": True})


@dataclass(frozen=True)
class StoreSettings:
    """Build and search options of an engine.

    >>> @dataclass(frozen=True)
    ... class Graph(StoreSettings):
    ...     m: int = 16
    ...     ef_search: int = search_option(64)
    >>> settings = Graph(m=8).tuned({"ef_search": 10})
    >>> settings, settings.build_options, settings.search_values
    (Graph(m=8, ef_search=10), {'m': 8}, {'ef_search': 10})
    """

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def search_options(cls) -> list[str]:
        return [field.name for field in fields(cls) if "search" in field.metadata]

    @classmethod
    def search_widths(cls) -> list[str]:
        return [field.name for field in fields(cls) if "width" in field.metadata]

    @property
    def build_options(self) -> dict[str, Any]:
        """Build options that are in use; a saved store cannot change them."""
        searching = self.search_options()
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in searching}

    @property
    def search_values(self) -> dict[str, Any]:
        """Search options that are in use, with their values."""
        return self.select(*self.search_options())

    def select(self, *names: str) -> dict[str, Any]:
        """Return some options with their values."""
        return {name: getattr(self, name) for name in names}

    def tuned(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with other values of search options; raise BadInput for any other option."""
        search_options = self.search_options()
        for name in options:
            if name not in search_options:
                hint = f"search options: {', '.join(search_options) or 'none'}"
                raise BadInput(f"{name!r} is not a search option of this store", hint=hint)
        return replace(self, **options)
