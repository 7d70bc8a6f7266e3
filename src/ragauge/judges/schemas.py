"""Check replies against the subset of JSON Schema that judges use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
CHECKED = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"}
KNOWN = CHECKED | {"title", "description", "$schema"}
"""Keywords that are checked or have no effect. Others are refused, so that no constraint is silently ignored."""


def words_of(schema: Mapping[str, Any] | None) -> list[str]:
    """Return the words of a schema that is only an enum of words; else an empty list.

    >>> words_of({"enum": ["yes", "no"]}), words_of({"type": "object"})
    (['yes', 'no'], [])
    """
    if schema is None or "enum" not in schema or schema.get("type", "string") != "string":
        return []
    words = list(schema["enum"])
    return words if all(isinstance(word, str) for word in words) else []


def obeys(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Describe the first violation of a schema; None if the value is valid.

    >>> schema = {"type": "array", "items": {"enum": ["k1", "k2"]}, "minItems": 1}
    >>> obeys(["k1"], schema), obeys([], schema), obeys(["k9"], schema)
    (None, 'the reply has 0 items, not at least 1', "the reply[0] is 'k9', not one of 'k1', 'k2'")
    """
    return _violation(value, schema, "the reply")


def _violation(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if unknown := [word for word in schema if word not in KNOWN]:
        raise ValueError(f"`{unknown[0]}` is no keyword of the schemas that are checked here")
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} is {_shown(value)}, not {_shown(schema['const'])}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where} is {_shown(value)}, not one of {', '.join(map(_shown, schema['enum']))}"
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
        if not any(_is(value, kind) for kind in kinds):
            return f"{where} is {_shown(value)}, not of type {' or '.join(kinds)}"
    if isinstance(value, dict):
        return _of_object(value, schema, where)
    return _of_array(value, schema, where) if isinstance(value, list) else None


def _of_object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no `{name}`"
    others = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in properties:
            found = _violation(inner, properties[name], f"{where}.{name}")
        elif others is False:
            return f"{where} has a `{name}`, which nobody asked for"
        else:
            found = None if others is True else _violation(inner, others, f"{where}.{name}")
        if found:
            return found
    return None


def _of_array(value: list[Any], schema: Mapping[str, Any], where: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{where} has {len(value)} items, not at least {schema['minItems']}"
    if len(value) > schema.get("maxItems", len(value)):
        return f"{where} has {len(value)} items, not at most {schema['maxItems']}"
    items = schema.get("items")
    if isinstance(items, Mapping):
        for place, inner in enumerate(value):
            if found := _violation(inner, items, f"{where}[{place}]"):
                return found
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # In Python a bool is an int; in JSON it is not.
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
