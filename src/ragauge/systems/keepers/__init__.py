"""Document stores: how they are opened, and what their engine adapters share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragauge import plugins
from ragauge.errors import BadInput
from ragauge.seams import Keeper
from ragauge.systems.specs import Spec, parse


def open_keeper(described: str | Callable[..., Any], path: str | Path | None, dimension: int) -> Keeper:
    """Open a document store in a folder.

    It is given by name (`pgvector(index=hnsw)`), as `module:Class`, or as a class.

    >>> from ragauge.records import Document
    >>> keeper = open_keeper("memory", None, 2)
    >>> keeper.put([Document("a", "text")], [[1.0, 0.0]])
    >>> keeper.get(["a", "b"])[0].text
    'text'
    """
    factory, options, taken = check_keeper_options(described)
    given = {"path": None if path is None else str(path), "dimension": dimension}
    accepted = {key: value for key, value in given.items() if taken is None or key in taken}
    keeper: Keeper = factory(**accepted, **options)
    return keeper


def check_keeper_options(
    described: str | Callable[..., Any],
) -> tuple[Callable[..., Any], dict[str, Any], frozenset[str] | None]:
    """Return the class of a document store, its options and its parameters.

    The parameters are None if the class takes any.

    Raises BadInput for an option that it does not have. The store is not opened.
    """
    factory, options, name = _found(described)
    taken = inspect.signature(factory).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return factory, options, None
    unknown = sorted(options.keys() - taken.keys())
    if unknown:
        known = ", ".join(one for one in taken if one not in ("path", "dimension")) or "none"
        raise BadInput(f"the document store {name} has no option {unknown[0]!r}", hint=f"its options: {known}")
    return factory, options, frozenset(taken)


def _found(described: str | Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any], str]:
    if callable(described):
        return described, {}, getattr(described, "__name__", type(described).__name__)
    spec = parse(described)
    if ":" in spec.name:
        return plugins.own(spec.name), _plain(spec), spec.name
    return plugins.find("keepers", spec.name), _plain(spec), spec.name


def _plain(spec: Spec) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Spec) else value for key, value in spec.options.items()}
