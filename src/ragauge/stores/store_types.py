"""Stores as ragauge uses them: registered ones, and users' own, which get the attributes that they lack."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ragauge.core import plugins
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import STORE_CAPABILITIES, FullStore, Neighbours, Store
from ragauge.stores.bookkeeping import unsupported_error
from ragauge.stores.store_settings import StoreSettings
from ragauge.stores.vector_store import VectorStore


def complete_store(store: Store) -> FullStore:
    """Return a store with every attribute that ragauge uses.

    >>> class Mine:
    ...     def add(self, ids, vectors): ...
    ...     def search(self, vectors, k): ...
    >>> store = complete_store(Mine())
    >>> store.build(), store.describe(), store.pids(), sorted(store.abilities)
    (None, {}, [], [])
    """
    return store if isinstance(store, VectorStore) else CompletedStore(store)


class CompletedStore:
    """A user's store; what it lacks has a default.

    Its methods are used as they are, so that a call takes no longer than without the adapter.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.add: Callable[..., None] = store.add
        self.search: Callable[..., Neighbours] = store.search
        self.build: Callable[[], None] = _own_method(store, "build", _do_nothing)
        self.update: Callable[..., None] = _own_method(store, "update", partial(_refuse, "update"))
        self.delete: Callable[..., None] = _own_method(store, "delete", partial(_refuse, "delete"))
        self.save: Callable[[], None] = _own_method(store, "save", partial(_refuse, "save"))
        self.describe: Callable[[], dict[str, Any]] = _own_method(store, "describe", dict)
        self.pids: Callable[[], Sequence[int]] = _own_method(store, "pids", list)
        self.disk_bytes: Callable[[], int | None] = _own_method(store, "disk_bytes", _do_nothing)
        self.remove: Callable[[], None] = _own_method(store, "remove", _do_nothing)
        self.close: Callable[[], None] = _own_method(store, "close", _do_nothing)
        self._index_used: Callable[..., Any] | None = _own_method(store, "index_used", None)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities that the store declares; raises UnknownName for an unknown one."""
        declared = getattr(self._store, "abilities", ())
        for name in declared:
            if name not in STORE_CAPABILITIES:
                choices = ", ".join(STORE_CAPABILITIES)
                raise UnknownName(
                    "capability", str(name), STORE_CAPABILITIES, of="a store", hint=f"choose from {choices}"
                )
        return frozenset(declared)

    def tune(self, options: Mapping[str, Any]) -> None:
        """Set search options."""
        if options:
            self._store.tune(**options)

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool | None:
        """Return whether a search uses the index; None if the store cannot report it."""
        if self._index_used is None:
            return None
        if where is None:
            return bool(self._index_used(vector, k))
        if "where" not in inspect.signature(self._index_used).parameters:
            return None
        return bool(self._index_used(vector, k, where=where))


@dataclass(frozen=True)
class StoreType:
    """Class of a store, and what is known about it before it is opened."""

    name: str
    """Name of a registered store, or `module:Class` of a user's store."""
    factory: Callable[..., Any]
    options: Sequence[str] | None
    """Options of the constructor; None if it takes any."""
    search_options: frozenset[str]
    """Options that `tune` can change without a rebuild."""
    search_widths: frozenset[str]
    """Search options that set how much of an index is searched."""
    option_grids: Sequence[Mapping[str, Any]]
    """Grids of options that `bench` sweeps; empty if unknown."""
    can_filter: bool
    """Whether searches are known to support filters."""
    has_server: bool
    """Whether it runs in a process of its own."""
    has_outside_data: bool
    """Whether `remove` must delete what it stores outside its folder."""

    def open(self, options: Mapping[str, Any], context: Mapping[str, Any]) -> FullStore:
        """Open a store with its options.

        Of the context (metric, path, threads), it gets what its constructor takes.
        """
        if self.options is not None:
            if unknown := sorted(options.keys() - set(self.options)):
                hint = f"it has {', '.join(self.options)}"
                raise BadInput(f"the store {self.name} has no option {unknown[0]!r}", hint=hint)
            context = {name: value for name, value in context.items() if name in self.options}
        return complete_store(read_parameters(self.factory).call({**context, **options}))


def load_store_type(store: str) -> StoreType:
    """Load the class of a registered store, or of a user's `module:Class`.

    Raises BadInput if the class is not a store.
    """
    factory = (
        plugins.import_user_object(store) if ":" in store else plugins.load_plugin("stores", store, accepts_class=True)
    )
    for name in ("add", "search"):
        if _own_method(factory, name, None) is None:
            hint = "use a class with add(ids, vectors) and search(vectors, k)"
            raise BadInput(f"{store} has no {name}", hint=hint)
    parameters = read_parameters(factory)
    is_ours = isinstance(factory, type) and issubclass(factory, VectorStore)
    settings_types = [
        group.settings_type for group in parameters.settings.values() if issubclass(group.settings_type, StoreSettings)
    ]
    tune = inspect.signature(_own_method(factory, "tune", _do_nothing)).parameters.values()
    return StoreType(
        store,
        factory,
        None if parameters.accepts_any else list(parameters.options),
        frozenset(name for settings_type in settings_types for name in settings_type.search_options())
        if is_ours
        else frozenset(parameter.name for parameter in tune if parameter.kind is parameter.KEYWORD_ONLY),
        frozenset(name for settings_type in settings_types for name in settings_type.search_widths()),
        option_grids=factory.option_grids if is_ours else (),
        can_filter=is_ours and "filter" not in factory.unsupported,
        has_server=factory.has_server if is_ours else hasattr(factory, "pids"),
        has_outside_data=factory.has_outside_data if is_ours else hasattr(factory, "remove"),
    )


def _own_method(store: Any, name: str, default: Any) -> Any:
    """Return a method of a user's store, or a default. Only here are attributes looked up by name."""
    method = getattr(store, name, None)
    return method if callable(method) else default


def _do_nothing() -> None:
    return None


def _refuse(operation: str, *_: Any) -> NoReturn:
    raise unsupported_error("this store", operation, f"its class has no `{operation}`")
