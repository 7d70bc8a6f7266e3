"""Settings, from a TOML file or from a call: known keys of known kinds, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ragauge.errors import BadInput, UnknownName
from ragauge.structured_text import parse_toml

T = TypeVar("T")


def as_record(kind: type[T], how: Mapping[str, Any]) -> T:
    """A record of settings; a name that it does not have is refused, and None is its default."""
    known = list(getattr(kind, "__dataclass_fields__", ()))
    for name in how:
        if name not in known:
            raise UnknownName("setting", name, known, hint=f"there are {', '.join(known)}")
    return kind(**{name: value for name, value in how.items() if value is not None})


def read_toml(path: str) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"), file=path)
    except FileNotFoundError:
        raise BadInput("no such file", file=path) from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"the TOML cannot be read ({error})", file=path) from None


def read_settings(path: str, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """What a file says; a key that is not one of `kinds`, or a value of another kind, is refused."""
    data = read_toml(path)
    for key, value in data.items():
        if key not in kinds:
            raise UnknownName(f"setting in {path}", key, kinds, hint=f"there are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and bool not in kinds[key]):
            wanted = " or ".join(kind.__name__ for kind in kinds[key])
            raise BadInput(f"`{key}` is {value!r}, not {wanted}", file=path)
    return data
