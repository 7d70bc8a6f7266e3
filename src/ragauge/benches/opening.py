"""Settings of a benchmark, and the stores, configurations and builds to measure."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ragauge import plugins
from ragauge.errors import BadInput


@dataclass(frozen=True)
class Opening:
    """Store name, options, metric and location, from which a store can be opened."""

    store: str
    """Name of a registered store, or `module:Class` of a user's store."""
    options: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "l2"
    path: str | None = None
    """Folder of a store that is saved; existing contents are opened. None for a store that is not saved."""
    threads: int = 1
    """Number of threads, passed to stores that accept it."""

    def open(self) -> Any:
        """Open the store."""
        factory = found(self.store)
        taken = inspect.signature(factory).parameters
        given = {"metric": self.metric, "path": self.path, "threads": self.threads, **self.options}
        loose = any(one.kind is one.VAR_KEYWORD for one in taken.values())
        own = {name: value for name, value in given.items() if loose or name in taken or name in self.options}
        try:
            return factory(**own)
        except TypeError as error:
            if unknown := self.options.keys() - taken.keys():
                raise BadInput(
                    f"the store {self.store} has no option {sorted(unknown)[0]!r}", hint=f"it has {', '.join(taken)}"
                ) from error
            raise

    def at(self, path: str) -> Opening:
        """Return a copy with another location."""
        return replace(self, path=path)


def found(store: str) -> Any:
    """Return the class of a registered store, or of a user's `module:Class`."""
    return plugins.own(store) if ":" in store else plugins.find("stores", store)


def search_options(store: str) -> frozenset[str]:
    """Return the options that can change without a rebuild.

    These are the keyword-only parameters of the store's `tune`.
    """
    tune = getattr(found(store), "tune", None)
    if tune is None:
        return frozenset()
    return frozenset(name for name, one in inspect.signature(tune).parameters.items() if one.kind is one.KEYWORD_ONLY)
