"""Parameters of a plug-in, read from the annotations of its constructor.

- A parameter with the type of a protocol is a part: `embedder: Annotated[Embedder, Part("wordllama")]`. The builder
  makes it from the spec of the option `embedder`, by default `wordllama`.
- `Sequence[Document]` is the corpus.
- A parameter with the type of a dataclass is a group of settings: `search: SearchSettings = SearchSettings()`. Its
  fields are options, as are those of `**options: Unpack[Options]`. So a spec is flat, `swarm(agents=20, seeds=5)`, and
  the constructor is short.
- Every other parameter is an option.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, Union, Unpack, cast, get_args, get_origin, get_type_hints

from ragauge.core.documents import EMPTY_MAPPING, Document
from ragauge.core.errors import BadInput, add_suggestion, suggest_name
from ragauge.core.plugins import family_noun
from ragauge.core.protocols import (
    Chat,
    DocumentStore,
    Embedder,
    GraphBuilder,
    Reranker,
    Retriever,
    Store,
    Tokenizer,
)
from ragauge.core.specs import Spec, parse_specs

PART_FAMILIES: Mapping[Any, str] = {
    Retriever: "retrievers",
    Embedder: "embedders",
    Tokenizer: "tokenizers",
    Store: "stores",
    DocumentStore: "document_stores",
    Reranker: "rerankers",
    GraphBuilder: "graphs",
    Chat: "chats",
}
"""Plug-in family of each protocol."""
NO_DEFAULT = inspect.Parameter.empty
"""Default of a required option."""
OPTION_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a word"),
)
"""Types of defaults, and what an option with such a default must be."""
ANNOTATION_HINT = "annotate the parameter if it is a part, e.g. `documents: Sequence[Document]`, `embedder: Embedder`"


@dataclasses.dataclass(frozen=True)
class Part:
    """Declaration of a part that the builder supplies, in the annotation of a parameter.

    A parameter whose type is a class with parts of its own, not a protocol, is built from that class; its parts and
    options are then options of the plug-in.
    """

    default: str = ""
    """Default spec; several are joined by `+`. Empty if the part must be given, or the parameter has a default."""
    option: str = ""
    """Name of the option, in addition to that of the parameter."""
    example: str = ""
    """Spec for the hint if the part is missing."""
    is_built: bool = True
    """Whether the builder builds the part. Otherwise the constructor gets its spec."""


@dataclasses.dataclass(frozen=True)
class DocumentEmbedder:
    """Marks a parameter that receives the embedder named by `embedder`, wrapped to cache document vectors.

    Queries use the plain embedder, because they are timed.
    """

    embedder: str = "embedder"
    """Name of the other parameter."""


@dataclasses.dataclass(frozen=True)
class OtherOptions:
    """Declaration of a mapping that takes all options that are not declared."""

    description: str
    """The options as `ragauge systems` shows them."""
    example: str = ""
    """Spec for the hint if there are none."""
    is_required: bool = True
    """Whether at least one must be given."""


class PluginPart(NamedTuple):
    """Part of a plug-in, made from specs."""

    parameter: str
    option: str
    family: str
    """Family of the plug-ins; empty if the part is built from the class `part_type`."""
    part_type: Any
    default: Sequence[Spec]
    accepts_several: bool
    is_required: bool
    declaration: Part

    def select_specs(self, options: Mapping[str, Any]) -> list[Any]:
        """Return the specs or objects that options name for this part, or its default."""
        value = options.get(self.option, options.get(self.parameter))
        return list(self.default) if value is None else as_list(value)


class PluginOption(NamedTuple):
    """Option of a plug-in: a parameter of its constructor, or a field of one of its settings parameters."""

    name: str
    default: Any = NO_DEFAULT
    settings: str = ""
    """Parameter that has this option as a field; empty for a parameter of the constructor."""
    is_sequence: bool = False
    """Whether the option is a sequence; a single value is then a sequence of one."""
    is_annotated: bool = True


class SettingsParameter(NamedTuple):
    """Parameter whose type is a dataclass; its fields are options."""

    settings_type: Any
    default: Any = NO_DEFAULT
    """Instance with the defaults of this plug-in; `NO_DEFAULT` if the defaults are those of the dataclass."""

    def build(self, values: Mapping[str, Any]) -> Any:
        """Build the settings from some of their fields."""
        return (
            self.settings_type(**values)
            if self.default in (None, NO_DEFAULT)
            else dataclasses.replace(self.default, **values)
        )


@dataclasses.dataclass(frozen=True, eq=False)
class PluginParameters:
    factory: Callable[..., Any]
    signature: inspect.Signature
    parts: Sequence[PluginPart]
    options: Mapping[str, PluginOption]
    """Options by name, without those of parts, in the order of the constructor."""
    settings: Mapping[str, SettingsParameter]
    """Settings parameters by name."""
    corpus: Sequence[str]
    """Parameters that take the documents of the corpus."""
    document_embedders: Mapping[str, str]
    """Parameters that take the embedder of another one for documents, with the name of the other one."""
    other_options: tuple[str, OtherOptions] | None
    """Parameter that takes all options that are not declared."""
    accepts_any: bool
    """Whether the constructor takes any keyword, so that not all of its options are known."""

    @property
    def is_remote(self) -> bool:
        """Whether results come from a service, which a class declares by `is_remote = True`."""
        return bool(getattr(self.factory, "is_remote", False))

    @property
    def needs_corpus(self) -> bool:
        """Whether the plug-in, or a composite part, is built over the documents."""
        return bool(self.corpus) or any(parameters.needs_corpus for _, parameters in self.composites)

    @property
    def composites(self) -> list[tuple[PluginPart, PluginParameters]]:
        """Parts that are built from a class with parts of its own, with the parameters of that class."""
        return [(part, read_parameters(part.part_type)) for part in self.parts if not part.family]

    @property
    def plugin_parts(self) -> list[PluginPart]:
        """Parts that are plug-ins, those of composite parts included.

        Parts with the same option are one; its default is that of this plug-in.
        """
        direct_parts = [part for part in self.parts if part.family]
        names = {part.option for part in direct_parts}
        nested_parts = [part for _, parameters in self.composites for part in parameters.plugin_parts]
        return [*(part for part in nested_parts if part.option not in names), *direct_parts]

    @property
    def defaults(self) -> dict[str, Any]:
        """Defaults of the options that have one."""
        return {name: option.default for name, option in self.options.items() if option.default is not NO_DEFAULT}

    @property
    def options_with_defaults(self) -> list[tuple[str, Any]]:
        """Options and their defaults, parts first, for lists of options."""
        parts = [
            (part.option, "+".join(map(str, part.default)) if part.default else NO_DEFAULT)
            for part in self.plugin_parts
        ]
        undeclared = [] if self.other_options is None else [(self.other_options[1].description, NO_DEFAULT)]
        nested_options = [option for _, parameters in self.composites for option in parameters.options.values()]
        return [
            *parts,
            *undeclared,
            *((option.name, option.default) for option in (*nested_options, *self.options.values())),
        ]

    def knows(self, name: str) -> bool:
        """Return whether an option has this name."""
        return (
            name in self.options
            or name in self.settings
            or any(name in (part.option, part.parameter) for part in self.parts if part.family)
            or any(parameters.knows(name) for _, parameters in self.composites)
        )

    def check(self, options: Mapping[str, Any], name: str, *, safe_spec: str = "") -> None:
        """Raise BadInput for an option that is unknown, missing or of the wrong type.

        Messages quote `name`, the name of the plug-in, or `safe_spec`, its spec without secrets.
        """
        for option, value in options.items():
            if option in self.options:
                _check_option_type(self.options[option], value, safe_spec or name)
            elif not self.knows(option) and not self._takes_other(option, options):
                raise self._unknown_option_error(option, name)
        for known in self.options.values():
            if known.default is NO_DEFAULT and known.name not in options and known.settings not in options:
                hint = self._describe_options() if known.is_annotated else ANNOTATION_HINT
                raise BadInput(f"`{name}` needs the option `{known.name}`", hint=hint)
        if (
            self.other_options is not None
            and self.other_options[1].is_required
            and not self._undeclared_options(options)
        ):
            raise BadInput(
                f"`{name}` needs at least one option {self.other_options[1].description}",
                hint=self.other_options[1].example,
            )
        for part in self.plugin_parts:
            if part.option != part.parameter and part.option in options and part.parameter in options:
                raise BadInput(f"`{safe_spec or name}`: {part.option} and {part.parameter} are the same option")
            specs = part.select_specs(options)
            if not specs and part.is_required:
                example = f"{part.option}={part.declaration.example}" if part.declaration.example else None
                raise BadInput(f"`{name}` needs the option `{part.option}`", hint=example or self._describe_options())
            if len(specs) > 1 and not part.accepts_several:
                raise BadInput(
                    f"`{safe_spec or name}`: {part.option} must be one {family_noun(part.family)}, got {len(specs)}"
                )

    def call(self, options: Mapping[str, Any], supplied: Mapping[str, Any] = EMPTY_MAPPING) -> Any:
        """Call the constructor with options that `check` has accepted, and with supplied parts by parameter."""
        arguments = dict(supplied)
        fields: dict[str, dict[str, Any]] = {name: {} for name in self.settings if name not in options}
        keywords: dict[str, Any] = {}
        for name, value in options.items():
            option = self.options.get(name)
            if option is None:
                if name in self.settings:
                    arguments[name] = value
                elif not self.knows(name) and self.other_options is None:
                    keywords[name] = value
                continue
            is_single = isinstance(value, str) or not isinstance(value, Sequence | NoneType)
            item = [value] if option.is_sequence and is_single else value
            if option.settings:
                fields[option.settings][name] = item
            elif name in self.signature.parameters:
                arguments[name] = item
            else:
                keywords[name] = item
        for name, group_values in fields.items():
            if group_values or self.settings[name].default is NO_DEFAULT:
                arguments[name] = self.settings[name].build(group_values)
        if self.other_options is not None:
            arguments[self.other_options[0]] = self._undeclared_options(options)
        for name in (*self.corpus, *(part.parameter for part in self.parts)):
            if name not in arguments and self.signature.parameters[name].default is NO_DEFAULT:
                raise BadInput(f"{qualified_name(self.factory)} needs `{name}`, which is not available here")
        bound = inspect.BoundArguments(self.signature, cast(Any, arguments))
        return self.factory(*bound.args, **bound.kwargs, **keywords)

    def _takes_other(self, name: str, options: Mapping[str, Any]) -> bool:
        if self.other_options is None:
            return self.accepts_any
        return name == self.other_options[0] or not isinstance(options.get(self.other_options[0]), Mapping)

    def _undeclared_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the mapping passed for the parameter, or all undeclared options."""
        mapping = options.get(self.other_options[0]) if self.other_options is not None else None
        if isinstance(mapping, Mapping):
            return mapping
        return {name: value for name, value in options.items() if not self.knows(name)}

    def _unknown_option_error(self, option: str, name: str) -> BadInput:
        suggestion = suggest_name(option, [known_name for known_name, _ in self.options_with_defaults])
        return BadInput(f"`{name}` has no option `{option}`", hint=add_suggestion(suggestion, self._describe_options()))

    def _describe_options(self) -> str:
        return f"options: {', '.join(name for name, _ in self.options_with_defaults) or 'none'}"


def as_list(value: Any) -> list[Any]:
    """Return a value or several values as a list; empty for None."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


@cache
def read_parameters(factory: Any) -> PluginParameters:
    """Read the parameters of a class or function.

    >>> class Example:
    ...     def __init__(self, corpus: Sequence[Document], embedder: Annotated[Embedder, Part("words")], *, k: int = 3):
    ...         pass
    >>> read_parameters(Example).options_with_defaults
    [('embedder', 'words'), ('k', 3)]
    """
    signature = inspect.signature(factory)
    hints = _read_hints(factory)
    parts: list[PluginPart] = []
    options: dict[str, PluginOption] = {}
    settings: dict[str, SettingsParameter] = {}
    corpus: list[str] = []
    document_embedders: dict[str, str] = {}
    other_options: tuple[str, OtherOptions] | None = None
    accepts_any = False
    for name, parameter in signature.parameters.items():
        hint = _Hint.of(hints.get(name, Any))
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            typed = dict(_typed_keywords(hints.get(name)))
            options |= typed
            accepts_any = not typed
        elif marker := hint.marker(DocumentEmbedder):
            document_embedders[name] = marker.embedder
        elif marker := hint.marker(OtherOptions):
            other_options = name, marker
        elif hint.is_corpus:
            corpus.append(name)
        elif (part := _read_part(name, hint, parameter.default)) is not None:
            parts.append(part)
        elif (settings_type := hint.settings_class) is not None:
            settings[name] = SettingsParameter(settings_type, parameter.default)
            options |= {
                setting_option.name: setting_option for setting_option in _settings_options(name, settings[name])
            }
        else:
            options[name] = PluginOption(name, parameter.default, "", hint.is_sequence, name in hints)
    return PluginParameters(
        factory, signature, parts, options, settings, corpus, document_embedders, other_options, accepts_any
    )


class _Hint(NamedTuple):
    """Annotation of a parameter: the possible types without None, and the markers."""

    types: Sequence[Any]
    markers: Sequence[Any]

    @classmethod
    def of(cls, hint: Any) -> _Hint:
        markers: list[Any] = []
        if get_origin(hint) is Annotated:
            hint, *markers = get_args(hint)
        if get_origin(hint) in (Union, UnionType):
            members = [cls.of(member_hint) for member_hint in get_args(hint) if member_hint is not NoneType]
            return cls(
                [item_type for member in members for item_type in member.types],
                [*markers, *(marker for member in members for marker in member.markers)],
            )
        return cls([hint], markers)

    def marker(self, marker_type: Any) -> Any:
        """Return the marker of a type; None if there is none."""
        return next((candidate for candidate in self.markers if isinstance(candidate, marker_type)), None)

    @property
    def item_types(self) -> list[Any]:
        """Types of the items, if the parameter is a sequence."""
        sequences = [hint for hint in self.types if _is_sequence_type(hint) and get_args(hint)]
        return [item_type for sequence in sequences for item_type in _Hint.of(get_args(sequence)[0]).types]

    @property
    def is_sequence(self) -> bool:
        return len(self.types) == 1 and _is_sequence_type(self.types[0])

    @property
    def is_corpus(self) -> bool:
        return Document in self.item_types

    @property
    def settings_class(self) -> Any:
        """The dataclass of the parameter; None if it has another type."""
        hint = self.types[0] if len(self.types) == 1 else None
        return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _is_sequence_type(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Sequence)


def _read_part(name: str, hint: _Hint, default: Any) -> PluginPart | None:
    """Read a parameter that is a part; None if it is not one."""
    declaration = hint.marker(Part)
    families = [(family, False) for part_type in hint.types if (family := _find_family(part_type))]
    families += [(family, True) for part_type in hint.item_types if (family := _find_family(part_type))]
    if not families and declaration is None:
        return None
    family, accepts_several = families[0] if families else ("", False)
    part = declaration or Part()
    default_specs = parse_specs(part.default, family_noun(family)) if part.default else []
    is_required = not default_specs and default is NO_DEFAULT
    return PluginPart(
        name, part.option or name, family, hint.types[0], default_specs, accepts_several, is_required, part
    )


def _find_family(part_type: Any) -> str:
    bases: Iterable[type] = part_type.__mro__ if isinstance(part_type, type) else ()
    return next((PART_FAMILIES[base] for base in bases if base in PART_FAMILIES), "")


def _settings_options(parameter: str, settings: SettingsParameter) -> Iterator[PluginOption]:
    """Yield the fields of a settings parameter as options."""
    hints = _read_hints(settings.settings_type)
    for field in dataclasses.fields(settings.settings_type):
        if not field.init:
            continue
        if settings.default in (None, NO_DEFAULT):
            factory_default = field.default_factory() if callable(field.default_factory) else NO_DEFAULT
            default = factory_default if field.default is dataclasses.MISSING else field.default
        else:
            default = getattr(settings.default, field.name)
        yield PluginOption(field.name, default, parameter, _Hint.of(hints.get(field.name, Any)).is_sequence)


def _typed_keywords(hint: Any) -> Iterator[tuple[str, PluginOption]]:
    """Yield the keys of `**options: Unpack[Options]` as options without a default."""
    if get_origin(hint) is Unpack:
        for name, option_hint in get_type_hints(get_args(hint)[0]).items():
            yield name, PluginOption(name, None, "", _Hint.of(option_hint).is_sequence)


def _read_hints(factory: Any) -> dict[str, Any]:
    """Return the annotations of a constructor, or of the fields of a dataclass.

    An annotation that only a type checker can read is left out.
    """
    while isinstance(factory, partial):
        factory = factory.func
    function = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError):
        pass
    hints: dict[str, Any] = {}
    module = inspect.getmodule(function)
    for name, annotation in getattr(function, "__annotations__", {}).items():
        try:
            holder = SimpleNamespace(__annotations__={name: annotation})
            hints |= get_type_hints(holder, vars(module) if module else {}, include_extras=True)
        except (NameError, AttributeError, TypeError):
            continue
    return hints


def _check_option_type(option: PluginOption, value: Any, plugin_label: str) -> None:
    for option_type, word in OPTION_TYPES:
        if isinstance(option.default, option_type):
            if not isinstance(value, option_type) or isinstance(value, bool) is not isinstance(option.default, bool):
                raise BadInput(f"`{plugin_label}`: {option.name} must be {word}, got {describe_value(value)}")
            return


def describe_value(value: Any) -> str:
    """Return a value of an option as text, objects by name, because memory addresses differ each time."""
    return str(replace_objects(value))


def replace_objects(value: Any) -> Any:
    """Return a spec with objects replaced by their names.

    Memory addresses would change each time.
    """
    if isinstance(value, Spec):
        return Spec(value.name, {name: replace_objects(item) for name, item in value.options.items()})
    if isinstance(value, list | tuple):
        return [replace_objects(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | Mapping) else qualified_name(value)


def qualified_name(value: Any) -> str:
    """Return module and name of a class or function, or of the class of an object."""
    member = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
    return f"{member.__module__}.{member.__qualname__}"
