"""Describe how systems are composed: which options name plug-ins, of which family, and the defaults."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragauge.core import plugins
from ragauge.core.errors import BadInput
from ragauge.core.specs import Spec, parse_spec, redact_spec

DEFAULT_GRAPH = ("links", "knn")
"""Graph used if none is named."""
GRAPH_WALKERS = ("pagerank", "graphflow", "swarm")
"""Systems that walk along the links of a graph."""
DEFAULT_PARTS = {"hybrid": ("dense", "bm25"), "pipeline": ("bm25",), "filtered": ("bm25",)}
"""Systems that a composed system is made of by default."""
PART_OPTIONS = {
    "dense": ("embedder", "store"),
    "pgvector": ("embedder",),
    "hybrid": ("of",),
    "pipeline": ("of", "reranker"),
    "filtered": ("of",),
    **dict.fromkeys(GRAPH_WALKERS, ("embedder", "graph")),
    "mmr": ("embedder",),
    "embedding": ("embedder",),
}
"""Options that are built before the system itself."""
PART_ALIASES = ("retriever", "rerankers")
"""Alternative names of `of` and `reranker`."""
OPTION_FAMILIES = {
    "of": "retrievers",
    "retriever": "retrievers",
    "embedder": "embedders",
    "store": "stores",
    "graph": "graphs",
    "reranker": "rerankers",
    "rerankers": "rerankers",
}
"""Plug-in family of the names in an option."""
REMOTE_PLUGINS = frozenset({("retrievers", "http"), ("embedders", "openai"), ("rerankers", "llm")})
"""Built-in plug-ins, as (family, name), whose results come from a service."""


def iterate_plugins(family: str, described: str | Spec) -> Iterator[tuple[str, str]]:
    """Yield family and name of every plug-in that a spec is built from."""
    spec = parse_spec(described, family.removesuffix("s")) if isinstance(described, str) else described
    if not (family == "stores" and "url" in spec.options):  # Servers need other libraries.
        yield family, spec.name
    usual = {
        "embedder": "wordllama",
        "graph": DEFAULT_GRAPH,
        "of": [Spec(name) for name in DEFAULT_PARTS.get(spec.name, ())],
    }
    taken = {*PART_OPTIONS.get(spec.name, ()), *(PART_ALIASES if spec.name in DEFAULT_PARTS else ())}
    for option in taken:
        same = [name for name in ("of", "retriever") if name in spec.options]
        default = None if option in ("of", "retriever") and same else usual.get(option)
        for one in as_list(spec.options.get(option, default)):
            if isinstance(one, str | Spec):
                yield from iterate_plugins(OPTION_FAMILIES[option], one)


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
    spec = parse_spec(described, family.removesuffix("s")) if isinstance(described, str) else described
    if not isinstance(spec, Spec) or spec.name not in plugins.BUILTIN_PLUGINS.get(family, ()):
        return False
    if (family, spec.name) in REMOTE_PLUGINS or "url" in spec.options:
        return False
    return all(
        _is_reproducible_option(option, one, files_hashed=files_hashed)
        for option, value in spec.options.items()
        for one in as_list(value)
    )


def _is_reproducible_option(option: str, value: Any, *, files_hashed: bool) -> bool:
    family = OPTION_FAMILIES.get(option, f"{option}s")
    if isinstance(value, Spec) or (isinstance(value, str) and option in OPTION_FAMILIES):
        return is_reproducible(family, value, files_hashed=files_hashed)
    if isinstance(value, str):
        return files_hashed or not _path_exists(value)
    return isinstance(value, int | float | Mapping)


def _path_exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # Not a valid file name.
        return False


_POSITIONAL_COUNTS = {
    "retrievers": {"bm25": 1, "dense": 3, "hybrid": 1, "pipeline": 2, "pgvector": 2, **dict.fromkeys(GRAPH_WALKERS, 1)},
    "rerankers": {"mmr": 2, "embedding": 2, "swarm": 1},
}
"""Number of positional arguments of a factory before its options; 0 if not listed."""
_OPTION_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a word"),
)


def _call_factory(factory: Callable[..., Any], spec: Spec, first: list[Any], options: dict[str, Any]) -> Any:
    """Call a factory after checking names and types of its options."""
    _check_options(inspect.signature(factory), spec, first, options)
    return factory(*first, **options)


def _check_options(signature: inspect.Signature, spec: Spec, first: list[Any], options: dict[str, Any]) -> None:
    parameters = signature.parameters
    _check_option_names(signature, spec, first, options)
    for name, value in options.items():
        default = parameters[name].default if name in parameters else None
        for kind, word in _OPTION_TYPES:
            if isinstance(default, kind):
                if not isinstance(value, kind) or isinstance(value, bool) is not isinstance(default, bool):
                    raise BadInput(f"`{redact_spec(spec)}`: {name} is {_replace_objects(value)!s}, not {word}")
                break


def _check_option_names(signature: inspect.Signature, spec: Spec, first: list[Any], options: dict[str, Any]) -> None:
    try:
        signature.bind(*first, **options)
    except TypeError as error:
        parameters = signature.parameters
        taken = [name for name, one in parameters.items() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
        known = [
            *PART_OPTIONS.get(spec.name, ()),
            *(name for name in taken[len(first) :] if name != "document_embedder"),
        ]
        hint = f"options: {', '.join(known) or 'none'}"
        strange = next((name for name in options if name not in taken[len(first) :]), None)
        if strange is None:
            raise BadInput(f"`{redact_spec(spec)}`: {error}", hint=hint) from None
        near = difflib.get_close_matches(strange, known, n=1, cutoff=0.5)
        guess = f"did you mean `{near[0]}`? " if near else ""
        raise BadInput(f"`{spec.name}` has no option `{strange}`", hint=guess + hint) from None


def _check_spec_names(family: str, spec: Spec) -> None:
    factory = plugins.load_plugin(family, spec.name)
    if spec.name in plugins.BUILTIN_PLUGINS[family] and spec.name != "filtered":
        options = {name: value for name, value in spec.options.items() if name not in PART_OPTIONS.get(spec.name, ())}
        first = [None] * _POSITIONAL_COUNTS.get(family, {}).get(spec.name, 0)
        given = {name: value for name, value in options.items() if name not in PART_ALIASES}
        _check_options(inspect.signature(factory), spec, first, given)
    if spec.name == "filtered" and not spec.options.keys() - {"of", "retriever", "most"}:
        raise BadInput("`filtered` filters by nothing", hint="filtered(of=bm25, module=json)")
    for option, inner in OPTION_FAMILIES.items():
        for one in as_list(spec.options.get(option)):
            described = parse_spec(one) if isinstance(one, str) else one
            if isinstance(described, Spec):
                _check_spec_names(inner, described)


def check_spec(family: str, described: str | Spec) -> None:
    """Refuse a spec with unknown names or options.

    Nothing is built, and no library is imported.
    """
    _check_spec_names(
        family, parse_spec(described, family.removesuffix("s")) if isinstance(described, str) else described
    )


def build_component(family: str, described: str | Spec) -> Any:
    """Build an embedder, store or tokenizer from its spec."""
    spec = parse_spec(described, family.removesuffix("s")) if isinstance(described, str) else described
    return _call_factory(plugins.load_plugin(family, spec.name), spec, [], dict(spec.options))


def _qualified_name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def _replace_objects(value: Any) -> Any:
    """Return a spec with objects replaced by their names.

    Memory addresses would change each time.
    """
    if isinstance(value, Spec):
        return Spec(value.name, {name: _replace_objects(one) for name, one in value.options.items()})
    if isinstance(value, list | tuple):
        return [_replace_objects(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | Mapping) else _qualified_name(value)
