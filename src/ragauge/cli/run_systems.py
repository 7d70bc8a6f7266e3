"""Systems and baseline of `ragauge run`, as given on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ragauge.cli import console
from ragauge.core import plugins
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.settings import unique_by
from ragauge.core.specs import Spec, parse_spec, redact_spec, split_name
from ragauge.systems.adapters import adapt_retriever
from ragauge.systems.builder import retriever_parts


def resolve_baseline(settings: dict[str, Any], known: Mapping[str, Any], *, given: bool) -> None:
    """Check the baseline against the systems to run.

    One given on the command line must be among them. One from a file is dropped if it is not.
    """
    name, systems = settings.get("baseline"), settings["systems"]
    if name is None or name in systems:
        return
    if given:
        if name in known:
            hint = f"add `-s {shlex.quote(name)}`"
            raise BadInput(f"the baseline `{name}` is in the file, but not among the systems to run", hint=hint)
        raise UnknownName("system", name, [*systems, *known], hint="use a system as the baseline")
    if name in known:  # a name that the file lacks is reported when it is run
        del settings["baseline"]
        console.print_notes(
            [f"there is no baseline: the file's, {name}, is not among the systems (-s {shlex.quote(name)})"]
        )


def parse_systems(descriptions: list[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the systems of the command line by name.

    The name of a system in the file refers to that system.
    """
    named: dict[str, Any] = {}
    for text in descriptions:
        name, description = split_name(text)
        is_own = plugins.is_user_object(description.partition("(")[0].strip())
        if not name and not is_own and text not in known:
            spec = parse_spec(text)
            usual = plugins.plugin_names("retrievers")
            if known and spec.name not in usual:
                hint = f"the file has {', '.join(known)}"
                raise UnknownName("system", spec.name, [*known, *usual], hint=hint)
            name = str(redact_spec(spec))  # the name is printed, and used for folders
        name = name or text
        unique_by([*named, name], str, "system", hint=f"give one another name: `--system other={description}`")
        named[name] = known[text] if text in known else _load_user_system(description) if is_own else description
    other_systems = {name: system for name, system in known.items() if name not in named}
    return {name: _inline_subsystems(system, other_systems) for name, system in named.items()}


def _load_user_system(description: str) -> Any:
    """Import a user's system: `module:function`, or `module:Class` with the options of its constructor.

    The option `id` of a function is the field of its hits that has the document id.
    """
    spec = parse_spec(description)
    user_object = plugins.import_user_object(spec.name)
    if isinstance(user_object, type):
        return replace(spec, factory=user_object)
    if unknown := next((name for name in spec.options if name != "id"), None):
        raise BadInput(f"`{spec.name}` has no option `{unknown}`", hint="use only the option `id` of a function")
    return adapt_retriever(user_object, id=str(spec.options["id"])) if "id" in spec.options else user_object


def _inline_subsystems(system: Any, systems: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    """Replace the names of `systems` in a system by their specifications.

    The others are systems of the file that are not run themselves.
    """

    def resolve_name(name: Any) -> Any:
        if not isinstance(name, str) or name not in systems:
            return name
        if name in above:
            raise BadInput(f"the system `{name}` contains itself")
        return _inline_subsystems(systems[name], systems, (*above, name))

    if not isinstance(system, Spec):
        return system
    names = {name for part in retriever_parts(system) for name in (part.option, part.parameter)}
    inner = {key: system.options[key] for key in system.options if key in names}
    inlined = {
        key: [resolve_name(item) for item in value] if isinstance(value, list) else resolve_name(value)
        for key, value in inner.items()
    }
    return replace(system, options={**system.options, **inlined})
