"""Settings from a TOML file or from keyword arguments, with checked names and types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ragauge.errors import BadInput, UnknownName
from ragauge.structured_text import parse_toml

T = TypeVar("T")


def as_record(kind: type[T], how: Mapping[str, Any]) -> T:
    """Build settings from keyword arguments; None selects the default.

    Raise UnknownName for an unknown name.
    """
    known = list(getattr(kind, "__dataclass_fields__", ()))
    for name in how:
        if name not in known:
            raise UnknownName("setting", name, known, hint=f"there are {', '.join(known)}")
    return kind(**{name: value for name, value in how.items() if value is not None})


def read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"), file=path)
    except FileNotFoundError:
        raise BadInput("no such file", file=path) from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"the TOML cannot be read ({error})", file=path) from None


def read_settings(path: str, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """Read a TOML file of settings.

    Raise an error for unknown keys and for values of other types.
    """
    data = read_toml(path)
    for key, value in data.items():
        if key not in kinds:
            raise UnknownName(f"setting in {path}", key, kinds, hint=f"there are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and bool not in kinds[key]):
            wanted = " or ".join(kind.__name__ for kind in kinds[key])
            raise BadInput(f"`{key}` is {value!r}, not {wanted}", file=path)
    return data
