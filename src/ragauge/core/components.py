"""Components from specs: their plug-ins, whether they are reproducible, checks, and building."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragauge.core import plugins
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import PluginPart, as_list, qualified_name, read_parameters
from ragauge.core.specs import Spec, parse_spec, redact_spec


def as_spec(family: str, described: Any) -> Any:
    """Return the spec of a text or of a user's class; anything else unchanged."""
    if isinstance(described, str):
        return parse_spec(described, plugins.family_noun(family))
    return Spec(qualified_name(described), {}, described) if isinstance(described, type) else described


def load_factory(family: str, spec: Spec) -> Callable[..., Any]:
    """Load the class or function that a spec builds."""
    factory: Callable[..., Any] = spec.factory or plugins.load_plugin(
        family, spec.name, accepts_class=family == "retrievers"
    )
    return factory


def iterate_specs(family: str, described: Any) -> Iterator[tuple[str, Spec]]:
    """Yield family and spec of a component and of all its parts."""
    spec = as_spec(family, described)
    if isinstance(spec, Spec):
        yield family, spec
        for part in read_parameters(load_factory(family, spec)).plugin_parts:
            for part_spec in part.select_specs(spec.options):
                yield from iterate_specs(part.family, part_spec)


def iterate_plugins(family: str, described: Any) -> Iterator[tuple[str, str]]:
    """Yield family and name of every plug-in that a spec is built from, for a check of their libraries."""
    for spec_family, spec in iterate_specs(family, described):
        # Servers need other libraries.
        if spec.factory is None and not (spec_family == "stores" and "url" in spec.options):
            yield spec_family, spec.name


def is_reproducible(family: str, described: Any, *, files_hashed: bool = False) -> bool:
    """Return whether a spec identifies a system and thus its results.

    Every part must be built in. A user's object, a plug-in of another package and a service (`http`, `url=`) can change
    while their specs stay the same, and so can a local file or folder, unless the caller hashes files.

    >>> is_reproducible("retrievers", "hybrid(of=dense+bm25)"), is_reproducible("retrievers", "http(url=http://a.b)")
    (True, False)
    """
    spec = as_spec(family, described)
    if not isinstance(spec, Spec) or spec.factory is not None:
        return False
    if spec.name not in plugins.BUILTIN_PLUGINS.get(family, ()) or "url" in spec.options:
        return False
    parameters = read_parameters(load_factory(family, spec))
    if parameters.is_remote:
        return False
    families = {name: part.family for part in parameters.plugin_parts for name in (part.option, part.parameter)}
    return all(
        is_reproducible(families[option], item, files_hashed=files_hashed)
        if option in families
        else _is_reproducible_value(item, files_hashed=files_hashed)
        for option, value in spec.options.items()
        for item in as_list(value)
    )


def _is_reproducible_value(value: Any, *, files_hashed: bool) -> bool:
    if isinstance(value, str):
        return files_hashed or not _path_exists(value)
    return isinstance(value, int | float | Mapping)


def _path_exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # Not a valid file name.
        return False


def check_spec(family: str, described: Any) -> None:
    """Refuse a spec with unknown names or options, also in its parts.

    Nothing is built, and no library is imported.
    """
    spec = as_spec(family, described)
    if not isinstance(spec, Spec):
        return
    parameters = read_parameters(load_factory(family, spec))
    parameters.check(spec.options, spec.name, safe_spec=str(redact_spec(spec)))
    for part in parameters.plugin_parts:
        for part_spec in part.select_specs(spec.options):
            check_spec(part.family, part_spec)


PROTOCOL_METHODS = {
    "embedders": "embed",
    "tokenizers": "encode",
    "stores": "add",
    "document_stores": "put",
    "rerankers": "rerank",
    "graphs": "link",
    "chats": "complete",
}
"""Method that an object of a family must have."""


def check_component(family: str, candidate: Any) -> Any:
    """Return an object that a user passed as a component; raise BadInput if it is not one."""
    method = PROTOCOL_METHODS[family]
    if not callable(getattr(candidate, method, None)) and not (family == "rerankers" and callable(candidate)):
        raise BadInput(f"{candidate!r} cannot be used as {plugins.family_noun(family)}: it has no `{method}`")
    return candidate


PartBuilder = Callable[[PluginPart, Any], Any]
"""Builds one part from a spec or an object."""


def build_parts(parts: Iterator[PluginPart], options: Mapping[str, Any], build: PartBuilder) -> dict[str, Any]:
    """Build the parts that options or defaults describe, by parameter."""
    supplied: dict[str, Any] = {}
    for part in parts:
        described = part.select_specs(options)
        built = [build(part, part_spec) if part.declaration.is_built else part_spec for part_spec in described]
        if part.accepts_several and described:
            supplied[part.parameter] = built
        elif built:
            supplied[part.parameter] = built[0]
    return supplied


def build_component(family: str, described: Any) -> Any:
    """Build an embedder, store, tokenizer or graph from its spec, with its parts.

    An object is returned unchanged.
    """
    spec = as_spec(family, described)
    if not isinstance(spec, Spec):
        return check_component(family, spec)
    check_spec(family, spec)
    parameters = read_parameters(load_factory(family, spec))
    parts = (part for part in parameters.parts if part.family)
    return parameters.call(
        spec.options, build_parts(parts, spec.options, lambda part, part_spec: build_component(part.family, part_spec))
    )
