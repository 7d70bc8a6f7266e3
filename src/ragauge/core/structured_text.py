"""Parsers of JSON and TOML with limits, so that invalid input always raises InvalidText."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from ragauge.core.errors import BadInput, error_summary

MAX_DEPTH = 100
"""Maximum number of nested lists and objects."""
MAX_DIGITS = 300
"""Maximum number of digits of an integer: more do not fit into a floating-point number."""


class InvalidText(BadInput):
    """A text that is not JSON or TOML, or exceeds a limit."""

    def __init__(
        self,
        kind: str,
        error: Exception,
        *,
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.reason = f"more than {MAX_DEPTH} nested lists and objects"
        """Description of the error, without its position."""
        self.column: int | None = None
        """Column in the line, if known."""
        reason = self.reason
        if isinstance(error, json.JSONDecodeError):
            self.reason, self.column, reason = error.msg, error.colno, str(error)
            line = error.lineno if line is None else line
        elif not isinstance(error, RecursionError):
            self.reason = reason = error_summary(error)
        super().__init__(f"the {kind} cannot be read ({reason})", file=file, line=line, hint=hint)


def parse_json(
    text: str | bytes,
    *,
    file: str | None = None,
    line: int | None = None,
    hint: str | None = None,
    unique_keys: bool = True,
) -> Any:
    """Parse a JSON text; `file`, `line` and `hint` are for the message of InvalidText.

    Raise InvalidText for a duplicate key of an object unless `unique_keys` is false: which value counts is
    undefined.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json("[" * 1000, file="deep.json")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ragauge.core.structured_text.InvalidText: deep.json: the JSON cannot be read (more than 100 nested ...)
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        parsed = (_UNIQUE_KEY_DECODER if unique_keys else _PERMISSIVE_DECODER).decode(text.removeprefix("\ufeff"))
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(parsed)
    except DuplicateKey as error:
        failure = json.JSONDecodeError(str(error), str(text), _find_duplicate(str(text)))
        raise InvalidText("JSON", failure, file=file, line=line, hint=hint) from None
    except (ValueError, RecursionError) as error:
        raise InvalidText("JSON", error, file=file, line=line, hint=hint) from None
    return parsed


def parse_toml(text: str, *, file: str | None = None) -> dict[str, Any]:
    """Parse a TOML text; `file` is for the message of InvalidText."""
    import tomllib

    try:
        parsed = tomllib.loads(text)
        _check_depth(parsed)
        _check_integers(parsed)
    except (ValueError, RecursionError) as error:
        raise InvalidText("TOML", error, file=file) from None
    return parsed


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer has {len(digits):,} digits; expected at most {MAX_DIGITS}")
    return int(digits)


class DuplicateKey(ValueError):
    """An object with a duplicate key."""


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise DuplicateKey(f"duplicate key `{next(name for name in counts if counts[name] > 1)[:80]}`")
    return parsed


def _find_duplicate(text: str) -> int:
    """Find the position of the first duplicate key of an object.

    The text before it must be valid JSON.
    """
    open_objects: list[set[str] | None] = []  # None is a list
    last_string, string_start = "", 0
    for token in _JSON_TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            open_objects.append(set())
        elif mark == "[":
            open_objects.append(None)
        elif mark in "]}":
            open_objects.pop()
        elif mark == ":" and open_objects[-1] is not None:
            if last_string in open_objects[-1]:
                return string_start
            open_objects[-1].add(last_string)
        elif mark[0] == '"':
            last_string, string_start = json.loads(mark), token.start()
    return 0


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]', re.S)


def _check_depth(parsed: Any) -> None:
    level = [parsed]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for container in level
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def _check_integers(value: Any) -> None:
    """Raise ValueError for integers that do not fit into 64 bits.

    The TOML standard requires it.
    """
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_integers(inner)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"an integer has {len(str(value))} digits; expected one of 64 bits")


_PERMISSIVE_DECODER = json.JSONDecoder(parse_int=_parse_int)
_UNIQUE_KEY_DECODER = json.JSONDecoder(parse_int=_parse_int, object_pairs_hook=_parse_object)
