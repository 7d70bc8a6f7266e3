"""Checks of settings: bounds and choices that annotations declare, and the same checks for single values."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ragauge.core.errors import BadInput, UnknownName

T = TypeVar("T")


@dataclass(frozen=True)
class AtLeast:
    """Smallest allowed value of a number: `Annotated[int, AtLeast(1)]`."""

    limit: float
    words: ClassVar[str] = "at least"

    def allows(self, value: float) -> bool:
        return value >= self.limit


@dataclass(frozen=True)
class AtMost:
    """Largest allowed value of a number."""

    limit: float
    words: ClassVar[str] = "at most"

    def allows(self, value: float) -> bool:
        return value <= self.limit


@dataclass(frozen=True)
class Above:
    """Limit that a number must exceed."""

    limit: float
    words: ClassVar[str] = "above"

    def allows(self, value: float) -> bool:
        return value > self.limit


@dataclass(frozen=True)
class Below:
    """Limit that a number must stay below."""

    limit: float
    words: ClassVar[str] = "below"

    def allows(self, value: float) -> bool:
        return value < self.limit


@dataclass(frozen=True)
class OneOf:
    """Allowed names, if a table has them; a short list is a `Literal`."""

    names: Collection[str]


Bound = AtLeast | AtMost | Above | Below
Check = Callable[[str, Any], None]
"""Check of one value: its name for messages, and the value."""


def check_settings(settings: Any, prefix: str = "") -> None:
    """Check the fields of a dataclass against their annotations.

    Whole numbers, numbers with bounds, `Literal` and `OneOf` are checked, also inside sequences and if None is
    allowed. Raises BadInput; `prefix` precedes the name of the field.

    >>> @dataclass
    ... class Example:
    ...     k: Annotated[int, AtLeast(1)] = 10
    ...     shares: Sequence[Annotated[float, Above(0), AtMost(1)]] = ()
    >>> check_settings(Example(shares=[0.5, 2]))
    Traceback (most recent call last):
    ragauge.core.errors.BadInput: shares must be above 0 and at most 1, got 2
    """
    for name, check in _field_checks(cast(Hashable, type(settings))):
        check(f"{prefix}{name}", getattr(settings, name))


def check_keywords(function: str, options: Mapping[str, Any], kind: type) -> None:
    """Raise TypeError, as Python does, for a keyword that `**options: Unpack[kind]` does not declare.

    >>> from typing import TypedDict
    >>> class Options(TypedDict, total=False):
    ...     k: int
    >>> check_keywords("example", {"j": 3}, Options)
    Traceback (most recent call last):
    TypeError: example() got an unexpected keyword argument 'j'
    """
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def check_choice(kind: str, name: str, known: Collection[str]) -> str:
    """Return the name if it is known; raise UnknownName otherwise."""
    if name not in known:
        raise UnknownName(kind, str(name), known)
    return name


def unique_by(
    items: Iterable[T], key: Callable[[T], Hashable], noun: str, *, hint: str | None = None, file: str | None = None
) -> list[T]:
    """Return the items as a list; raise BadInput if two have the same key.

    >>> unique_by(["bm25", "dense", "bm25"], str, "run")
    Traceback (most recent call last):
    ragauge.core.errors.BadInput: run `bm25` appears more than once
    """
    listed, names = list(items), set()
    for item in listed:
        name = key(item)
        if name in names:
            raise BadInput(f"{noun} `{name}` appears more than once", file=file, hint=hint)
        names.add(name)
    return listed


def check_int(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return an integer within its bounds; raise BadInput otherwise.

    Libraries crash on other values, or silently use a different one.

    >>> check_int("repeats", 10**20, 1, 100_000)
    Traceback (most recent call last):
    ragauge.core.errors.BadInput: repeats must be between 1 and 100,000, got 100,000,000,000,000,000,000
    """
    _check_number(name, value, (AtLeast(low),) if high is None else (AtLeast(low), AtMost(high)), is_integer=True)
    return int(value)


def check_number(name: str, value: Any, *bounds: Bound) -> float:
    """Return a finite number within its bounds; raise BadInput otherwise.

    >>> check_number("timeout", 0, Above(0))
    Traceback (most recent call last):
    ragauge.core.errors.BadInput: timeout must be above 0, got 0
    """
    _check_number(name, value, bounds, is_integer=False)
    return float(value)


def literal_choices(kind: type) -> dict[str, tuple[Any, ...]]:
    """Return the allowed values of each field of a dataclass that is a `Literal`."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _check_number(name: str, value: Any, bounds: Sequence[Bound], *, is_integer: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral if is_integer else Real):
        limits = _describe_bounds(bounds)
        limits = f" of {limits}" if limits.startswith("at ") else f" {limits}" if limits else ""
        raise BadInput(f"must be a {'whole ' * is_integer}number{limits}, got {value!r}", setting=name)
    number: Any = value  # mypy takes Real for another type than float
    if not all(bound.allows(number) for bound in bounds) or (not is_integer and not math.isfinite(value)):
        number_text = f"{int(value):,}" if isinstance(value, Integral) else f"{value:g}"
        raise BadInput(f"must be {_describe_bounds(bounds) or 'a finite number'}, got {number_text}", setting=name)


def _describe_bounds(bounds: Sequence[Bound]) -> str:
    """Describe bounds: `at least 1`, `between 1 and 10`, `above 0 and below 1`."""
    limits = [f"{bound.limit:,}" if isinstance(bound.limit, int) else f"{bound.limit:g}" for bound in bounds]
    if [type(bound) for bound in bounds] == [AtLeast, AtMost]:
        return f"between {limits[0]} and {limits[1]}"
    return " and ".join(f"{bound.words} {limit}" for bound, limit in zip(bounds, limits, strict=True))


@cache
def _field_checks(kind: Any) -> list[tuple[str, Check]]:
    """Return the checks of a dataclass, by field."""
    hints = get_type_hints(kind, include_extras=True)
    checks = [(attribute.name, _build_check(hints[attribute.name])) for attribute in fields(kind)]
    return [(name, check) for name, check in checks if check is not None]


def _build_check(hint: Any, extras: Sequence[Any] = ()) -> Check | None:
    """Build the check of an annotation; None if it declares nothing that can be checked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _build_check(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _build_optional_check(arguments)
    if origin is Literal:
        return _build_choice_check(arguments)
    if isinstance(origin, type) and issubclass(origin, Sequence) and not issubclass(origin, str):
        return _build_sequence_check(_build_check(arguments[0])) if arguments else None
    if hint in (int, float):
        bounds = tuple(extra for extra in extras if isinstance(extra, Bound))
        return lambda name, value: _check_number(name, value, bounds, is_integer=hint is int)
    names = next((extra.names for extra in extras if isinstance(extra, OneOf)), None)
    return None if names is None else _build_choice_check(names)


def _build_optional_check(arguments: Sequence[Any]) -> Check | None:
    kinds = [argument for argument in arguments if argument is not types.NoneType]
    check = _build_check(kinds[0]) if len(kinds) == 1 else None
    if check is None:
        return None

    def check_unless_none(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return check_unless_none


def _build_choice_check(choices: Collection[Any]) -> Check:
    def check_value(name: str, value: Any) -> None:
        if value not in choices:
            raise BadInput(f"must be one of {', '.join(map(str, choices))}, got `{value}`", setting=name)

    return check_value


def _build_sequence_check(check_item: Check | None) -> Check:
    def check_items(name: str, value: Any) -> None:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise BadInput(f"{name} must be a list, got {value!r}", hint=f"write {name}=[{value!r}]")
        if check_item is not None:
            for item in value:
                check_item(name, item)

    return check_items
