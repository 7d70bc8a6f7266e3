"""A gate as a TOML file that maps one to one onto the arguments of `gate`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ragauge.errors import BadInput, UnknownName
from ragauge.rules.grammar import texts_of

KINDS: dict[str, tuple[type, ...]] = {
    "rules": (list,),
    "measures": (dict,),
    "baseline": (str,),
    "alpha": (int, float),
    "correction": (str,),
    "least": (int,),
    "convention": (str,),
    "set": (dict,),
    "tags": (str,),
    "targets": (str,),
}
PATHS = ("baseline", "tags", "targets")


def read_gate(path: str) -> dict[str, Any]:
    """The arguments of `gate` that a file holds; `measures` is a table for each figure, and becomes rules.

    A path may be one beside the file.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("no such file", file=path) from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the TOML cannot be read: {error}", file=path) from None
    for key, value in data.items():
        if key not in KINDS:
            raise UnknownName(f"setting in {path}", key, KINDS, hint=f"there are {', '.join(KINDS)}")
        if not isinstance(value, KINDS[key]) or isinstance(value, bool):
            wanted = " or ".join(kind.__name__ for kind in KINDS[key])
            raise BadInput(f"`{key}` is {value!r}, not {wanted}", file=path)
    try:
        rules = [*texts_of(data.get("rules", [])), *texts_of(data.pop("measures", {}))]
    except BadInput as error:
        raise BadInput(error.message, file=path, hint=error.hint) from None
    for key in PATHS:
        if key in data and (Path(path).parent / data[key]).exists():
            data[key] = str(Path(path).parent / data[key])
    return {**data, "rules": rules}
