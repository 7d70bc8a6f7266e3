"""User-defined stores: missing attributes get defaults, and existing methods are called directly."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from ragauge.core import plugins
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.protocols import FullStore
from ragauge.stores.reference import ExactStore, NullStore
from ragauge.stores.store_types import complete_store, load_store_type


class MinimalStore:
    """Store with the required methods only."""

    def add(self, ids, vectors):
        self.added = ids

    def search(self, vectors, k):
        return [["a"]], [[0.0]]


class ExtendedStore(MinimalStore):
    abilities = ("update", "save")
    describe = "not a method"

    def __init__(self, **options):
        self.options = options

    def build(self):
        return "built"

    def tune(self, *, width=1):
        self.width = width

    def update(self, ids, vectors):
        self.updated = ids

    def index_used(self, vector, k, where=None):
        return 1 if where is None else 0

    def pids(self):
        return [7]

    def remove(self):
        self.removed = True


def test_complete_store_returns_builtin_store_unchanged():
    store = ExactStore()
    assert complete_store(store) is store


def test_complete_store_minimal_store_gets_defaults():
    store = complete_store(MinimalStore())
    assert isinstance(store, FullStore)
    assert (store.build(), store.describe(), store.disk_bytes(), store.pids()) == (None, {}, None, [])
    assert (store.abilities, store.index_used([1.0], 3), store.index_used([1.0], 3, {"a": 1})) == (set(), None, None)
    store.tune({})
    store.remove()
    store.close()
    for change in (store.save, lambda: store.update(["a"], [[1.0]]), lambda: store.delete(["a"])):
        with pytest.raises(BadInput, match=r"this store cannot \w+: its class has no"):
            change()


def test_complete_store_calls_user_methods_directly():
    user_store = ExtendedStore()
    store = complete_store(user_store)
    for name in ("add", "search", "build", "update"):
        assert inspect.ismethod(getattr(store, name))
        assert getattr(store, name).__self__ is user_store
    store.tune({"width": 3})
    store.update(["b"], [[1.0]])
    assert (user_store.width, user_store.updated, store.pids(), store.describe()) == (3, ["b"], [7], {})
    assert (store.index_used([1.0], 3), store.index_used([1.0], 3, {"a": 1})) == (True, False)
    assert store.abilities == {"update", "save"}


def test_complete_store_index_used_without_filter_support_is_none():
    class StoreWithoutFilter(MinimalStore):
        def index_used(self, vector, k):
            return True

    store = complete_store(StoreWithoutFilter())
    assert (store.index_used([1.0], 3), store.index_used([1.0], 3, {"a": 1})) == (True, None)


def test_complete_store_unknown_ability_raises():
    user_store = MinimalStore()
    user_store.abilities = {"deletes"}
    with pytest.raises(UnknownName, match="unknown capability `deletes` of a store"):
        _ = complete_store(user_store).abilities


def test_load_store_type_reports_options_and_outside_data(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "stores_here", sys.modules[__name__])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    large, small, null = (
        load_store_type("stores_here:ExtendedStore"),
        load_store_type("stores_here:MinimalStore"),
        load_store_type("null"),
    )
    assert (large.options, large.search_options) == (None, {"width"})
    assert (large.has_server, large.has_outside_data) == (True, True)
    assert (small.options, small.search_options) == ([], set())
    assert (small.search_widths, small.option_grids, small.can_filter) == (set(), (), False)
    assert (small.has_server, small.has_outside_data) == (False, False)
    assert (null.factory, null.has_server, null.has_outside_data) == (NullStore, False, False)
    assert large.open({"m": 3}, {"metric": "l2"})._store.options == {"metric": "l2", "m": 3}
    small.open({}, {"metric": "l2", "path": "x"})
    with pytest.raises(BadInput, match="the store null has no option 'm'") as caught:
        null.open({"m": 3}, {})
    assert "it has metric, path, work_ms, stall_ms, every" in str(caught.value)
    with pytest.raises(BadInput, match="stores_here:sys has no add"):
        load_store_type("stores_here:sys")


@pytest.mark.parametrize("name", plugins.BUILTIN_PLUGINS["stores"])
def test_store_class_states_grids_of_its_own_options(name):
    store_type = load_store_type(name)
    options = set(store_type.options)
    assert {"metric", "path"} | store_type.search_options <= options
    assert store_type.search_widths <= store_type.search_options
    assert store_type.option_grids
    for grid in store_type.option_grids:
        assert grid.keys() <= options
    parameters = inspect.signature(store_type.factory).parameters.values()
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)


def test_store_class_refuses_filters_that_it_is_not_capable_of():
    for name in plugins.BUILTIN_PLUGINS["stores"]:
        store_type = load_store_type(name)
        capabilities = getattr(store_type.factory, "capabilities", ())
        if capabilities:  # a database has those of its engine
            assert store_type.can_filter == ("filter" in capabilities), name


def test_store_adapters_import_no_library():
    script = """
import sys
from ragauge.core import plugins
classes = [plugins.load_plugin("stores", name) for name in plugins.BUILTIN_PLUGINS["stores"]]
print([name for store in classes for name in store.library_modules if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
