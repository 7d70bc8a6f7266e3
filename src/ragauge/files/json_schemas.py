"""JSON Schemas, generated from the annotations, defaults and docstrings of the classes that are written as JSON."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from ragauge.core.record_types import find_record_type, json_form_of, record_type_of
from ragauge.files.json_readers import is_record_class, list_fields

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALAR_SCHEMAS: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": ["number", "null"]},
    type(None): {"type": "null"},
    Path: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
}


def json_schema(kind: type[Any]) -> Schema:
    """Return the JSON Schema of what is written for a class; null is unknown or undefined.

    >>> from ragauge.core.summaries import Mean
    >>> json_schema(Mean)["properties"]["n"]
    {'type': 'integer'}
    """
    definitions: dict[str, Schema] = {}
    body = _object_schema(kind, definitions)
    definitions.pop(kind.__name__, None)
    record_type = record_type_of(kind)
    schema: Schema = {"$schema": DIALECT}
    if record_type is not None:
        name = record_type.schema.removeprefix("ragauge-")
        schema |= {"$id": f"urn:ragauge:{name}:{record_type.version}", "title": record_type.schema_field}
        lead: Schema = {
            "schema": {"description": "Name and version of this schema.", "const": record_type.schema_field}
        }
        texts: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        lead |= {key: {"description": description, **texts} for key, description in record_type.supplied.items()}
        body["properties"] = lead | body["properties"]
        body["required"] = ["schema", *body["required"]]
    return schema | body | ({"$defs": dict(sorted(definitions.items()))} if definitions else {})


def json_schema_of(schema: str) -> Schema:
    """Return the JSON Schema of a record type by its schema name."""
    return json_schema(find_record_type(schema).result_type)


def _object_schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a dataclass or named tuple."""
    form, documented = json_form_of(kind), _attribute_docs(kind)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in list_fields(kind):
        if field.name in form.omitted:
            continue
        if field.name in form.flattened:
            properties |= _flattened_schemas(field.kind, form.flattened[field.name], definitions)
            required += form.flattened[field.name]
            continue
        described = {"description": documented[field.name]} if field.name in documented else {}
        properties[form.key(field.name)] = described | _value_schema(field.kind, definitions)
        required += [] if field.name in form.optional else [form.key(field.name)]
    for name in form.derived:
        function = _property_function(kind, name)
        returned = typing.get_type_hints(function)["return"]
        described = {"description": inspect.cleandoc(function.__doc__ or "").replace("\n", " ").replace("  ", " ")}
        properties[form.key(name)] = described | _value_schema(returned, definitions)
        required += [] if name in form.optional else [form.key(name)]
    description = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    required = list(dict.fromkeys(required))  # A derived property may have the key of a field.
    return {"description": description, "type": "object", "properties": properties, "required": required}


def _flattened_schemas(kind: Any, keys: Sequence[str], definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return the schemas of the items of a flattened field."""
    if is_record_class(kind):
        documented = _attribute_docs(kind)
        return {
            key: ({"description": documented[field.name]} if field.name in documented else {})
            | _value_schema(field.kind, definitions)
            for key, field in zip(keys, list_fields(kind), strict=True)
        }
    return {key: _value_schema(item, definitions) for key, item in zip(keys, get_args(kind), strict=True)}


def _value_schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of an annotation; classes are put into `definitions`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return {}
    if origin in (Union, types.UnionType):
        return _union_schema([_value_schema(member, definitions) for member in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if kind in _SCALAR_SCHEMAS:
        return dict(_SCALAR_SCHEMAS[kind])
    if is_record_class(kind):
        if json_form_of(kind).parse is not None:
            return {"type": "string"}
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # A class may contain itself.
            definitions[kind.__name__] = _object_schema(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    container = origin or kind
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        items = [_value_schema(item, definitions) for item in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if issubclass(container, Mapping):
        return {
            "type": "object",
            "additionalProperties": _value_schema(arguments[-1], definitions) if arguments else {},
        }
    if issubclass(container, Sequence | Set):
        return {"type": "array", "items": _value_schema(arguments[0], definitions) if arguments else {}}
    return {"type": "array", "items": dict(_SCALAR_SCHEMAS[float])}


def _union_schema(members: Sequence[Schema]) -> Schema:
    """Return the schema of a union; simple types are joined in one list."""
    simple = all(set(member) == {"type"} for member in members)
    if not simple:
        return {"anyOf": list(members)}
    names = [
        name for member in members for name in ([member["type"]] if isinstance(member["type"], str) else member["type"])
    ]
    return {"type": list(dict.fromkeys(names))}


def _property_function(kind: type[Any], name: str) -> Any:
    attribute = inspect.getattr_static(kind, name)
    return attribute.func if isinstance(attribute, cached_property) else attribute.fget


@cache
def _attribute_docs(kind: Any) -> dict[str, str]:
    """Return the docstrings of the fields of a class, which follow the fields in its source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    docs: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):  # type: ignore[attr-defined]
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs[field.target.id] = " ".join(value.value.split())
    return docs
