"""Describe how systems are composed: which options name plug-ins, of which family, and the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragauge import plugins
from ragauge.systems.specs import Spec, parse

GRAPH = ("links", "knn")
"""Graph used if none is named."""
WALKERS = ("pagerank", "graphflow", "swarm")
"""Systems that walk along the links of a graph."""
MADE_OF = {"hybrid": ("dense", "bm25"), "pipeline": ("bm25",), "filtered": ("bm25",)}
"""Systems that a composed system is made of by default."""
PARTS = {
    "dense": ("embedder", "store"),
    "pgvector": ("embedder",),
    "hybrid": ("of",),
    "pipeline": ("of", "reranker"),
    "filtered": ("of",),
    **dict.fromkeys(WALKERS, ("embedder", "graph")),
    "mmr": ("embedder",),
    "embedding": ("embedder",),
}
"""Options that are built before the system itself."""
ALIASES = ("retriever", "rerankers")
"""Alternative names of `of` and `reranker`."""
FAMILIES = {
    "of": "retrievers",
    "retriever": "retrievers",
    "embedder": "embedders",
    "store": "stores",
    "graph": "graphs",
    "reranker": "rerankers",
    "rerankers": "rerankers",
}
"""Plug-in family of the names in an option."""
REMOTE = frozenset({("retrievers", "http"), ("embedders", "openai"), ("rerankers", "llm")})
"""Built-in plug-ins, as (family, name), whose results come from a service."""


def parts_of(family: str, described: str | Spec) -> Iterator[tuple[str, str]]:
    """Yield family and name of every plug-in that a spec is built from."""
    spec = parse(described, family.removesuffix("s")) if isinstance(described, str) else described
    if not (family == "stores" and "url" in spec.options):  # Servers need other libraries.
        yield family, spec.name
    usual = {"embedder": "wordllama", "graph": GRAPH, "of": [Spec(name) for name in MADE_OF.get(spec.name, ())]}
    taken = {*PARTS.get(spec.name, ()), *(ALIASES if spec.name in MADE_OF else ())}
    for option in taken:
        same = [name for name in ("of", "retriever") if name in spec.options]
        default = None if option in ("of", "retriever") and same else usual.get(option)
        for one in as_list(spec.options.get(option, default)):
            if isinstance(one, str | Spec):
                yield from parts_of(FAMILIES[option], one)


def as_list(value: Any) -> list[Any]:
    """Return a value or several values as a list; empty for None."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def is_reproducible(family: str, described: Any, *, files_hashed: bool = False) -> bool:
    """Return whether a spec identifies a system and thus its results.

    Every part must be built in. A user's object, a plug-in of another package and a service (`http`, `url=`) can change
    while their specs stay the same, and so can a local file or folder, unless the caller hashes files.

    >>> is_reproducible("retrievers", "hybrid(of=dense+bm25)"), is_reproducible("retrievers", "http(url=http://a.b)")
    (True, False)
    """
    spec = parse(described, family.removesuffix("s")) if isinstance(described, str) else described
    if not isinstance(spec, Spec) or spec.name not in plugins.TABLE.get(family, ()):
        return False
    if (family, spec.name) in REMOTE or "url" in spec.options:
        return False
    return all(
        _is_reproducible_option(option, one, files_hashed=files_hashed)
        for option, value in spec.options.items()
        for one in as_list(value)
    )


def _is_reproducible_option(option: str, value: Any, *, files_hashed: bool) -> bool:
    family = FAMILIES.get(option, f"{option}s")
    if isinstance(value, Spec) or (isinstance(value, str) and option in FAMILIES):
        return is_reproducible(family, value, files_hashed=files_hashed)
    if isinstance(value, str):
        return files_hashed or not _is_path(value)
    return isinstance(value, int | float | Mapping)


def _is_path(text: str) -> bool:
    try:
        return bool(text) and Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # Not a valid file name.
        return False
