"""A store in words, so that any process can open it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ragauge import plugins
from ragauge.errors import BadInput


@dataclass(frozen=True)
class Opening:
    """Which store, with which options, for which metric, and where it lives."""

    store: str
    """A name that is known, or `module:Class` of the user's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "l2"
    path: str | None = None
    """The folder of a store that is kept; what is there already is opened."""
    threads: int = 1
    """For stores that can be told."""

    def open(self) -> Any:
        """The store itself."""
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
        """The same in another place."""
        return replace(self, path=path)


def found(store: str) -> Any:
    """The class of a store: of a name that is known, or of the user's own module."""
    return plugins.own(store) if ":" in store else plugins.find("stores", store)


def search_options(store: str) -> frozenset[str]:
    """The options that can be changed without building again: the keyword parameters of the store's `tune`."""
    tune = getattr(found(store), "tune", None)
    if tune is None:
        return frozenset()
    return frozenset(name for name, one in inspect.signature(tune).parameters.items() if one.kind is one.KEYWORD_ONLY)
