"""STIX 2.0 and 2.1 bundles as MITRE publishes ATT&CK: objects with texts, and the relations between them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput
from ragauge.core.structured_text import parse_json
from ragauge.core.text import clean_json, may_have_surrogates, warn_replaced
from ragauge.files.json_files import describe_json_type
from ragauge.files.source import InputFile

STIX_OBJECT_TYPES = (
    "attack-pattern",
    "campaign",
    "course-of-action",
    "intrusion-set",
    "malware",
    "tool",
    "x-mitre-analytic",
    "x-mitre-data-component",
    "x-mitre-data-source",
    "x-mitre-detection-strategy",
    "x-mitre-tactic",
)
"""Object types that are read; each of their objects must have a name."""
HINT = 'a bundle is {"type": "bundle", "id": …, "objects": [{"type": …, "id": …, "name": …}, …]}'

BUNDLE_SEARCH_BYTES = 1000
"""Number of bytes at the start of a file in which the mark of a bundle is searched."""


class StixRelation(NamedTuple):
    """A directed relation between two objects."""

    source: str
    kind: str
    target: str
    retired: bool = False


@dataclass(frozen=True)
class StixNode:
    """One named object of a bundle."""

    id: str
    type: str
    name: str
    description: str = ""
    external_id: str = ""
    """Number that ATT&CK uses, such as `T1059.001`. Not unique: retired mitigations have numbers of techniques."""
    url: str = ""
    retired: str = ""
    """`revoked`, `deprecated`, or empty if the object is active."""
    modified: str = ""
    shortname: str = ""
    """Name of a tactic in the kill chain."""
    phases: Sequence[str] = ()
    """Tactics of a technique, by their short names."""
    analytics: Sequence[str] = ()
    """Ids of the analytics of a detection strategy."""
    components: Sequence[str] = ()
    """Ids of the data components that an analytic reads."""
    data_source: str = ""
    """Id of the data source to which a data component belongs."""
    platforms: Sequence[str] = ()


@dataclass(frozen=True)
class StixBundle:
    nodes: Mapping[str, StixNode]
    relations: Sequence[StixRelation]
    others: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Number of objects by type, for types that are not read."""
    older: int = 0
    """Number of objects that were skipped because the bundle has another version of them."""


def is_stix_bundle(source: InputFile) -> bool:
    """Return whether a file starts like a bundle; False if it cannot be read."""
    try:
        with source.open() as file:
            head = file.read(BUNDLE_SEARCH_BYTES)
    except BadInput:
        return False
    return re.search(rb'"type"\s*:\s*"bundle"|"id"\s*:\s*"bundle--', head) is not None


def read_stix_bundle(source: InputFile) -> StixBundle:
    """Read the objects and relations of a bundle; errors name the line of the object."""
    text = _read_bundle_text(source)
    bundle = parse_json(text, file=source.label, hint=HINT)
    if may_have_surrogates(data := text.encode()):
        bundle, replaced = clean_json(bundle, file=source.label, data=data)
        warn_replaced(replaced, source.label)
    if not isinstance(bundle, dict) or bundle.get("type") != "bundle":
        description = (
            f"an object of type {bundle.get('type')!r}" if isinstance(bundle, dict) else describe_json_type(bundle)
        )
        raise BadInput(f"expected a STIX bundle, found {description}", file=source.label, hint=HINT)
    objects = bundle.get("objects")
    if not isinstance(objects, list):
        raise BadInput(f"expected a list of objects, found {describe_json_type(objects)}", file=source.label, hint=HINT)
    nodes: dict[str, StixNode] = {}
    relations: dict[str, tuple[str, StixRelation]] = {}
    other_counts: Counter[str] = Counter()
    older = 0
    for position, item in enumerate(objects):
        try:
            kind, name = _parse_type_and_id(item)
            if kind in STIX_OBJECT_TYPES:
                node = _parse_node(item, kind, name)
                older += name in nodes
                if name not in nodes or _is_not_older(node.modified, nodes[name].modified):
                    nodes[name] = node
            elif kind == "relationship":
                modified, relation = _optional_text(item, "modified"), _parse_relation(item)
                older += name in relations
                if name not in relations or _is_not_older(modified, relations[name][0]):
                    relations[name] = modified, relation
            else:
                other_counts[kind] += 1
        except _InvalidStixObject as error:
            location = f"object {position}" + (
                f" (`{item['id']}`)" if isinstance(item, dict) and item.get("id") else ""
            )
            raise BadInput(
                f"{location}: {error}",
                file=source.label,
                line=_find_object_line(text, position),
                hint=error.hint or HINT,
            ) from None
    return StixBundle(nodes, [relation for _, relation in relations.values()], dict(other_counts), older)


class _InvalidStixObject(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _read_bundle_text(source: InputFile) -> str:
    data = source.read()
    try:
        return data.decode("utf-8").rstrip()
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise BadInput(f"the text is not UTF-8 ({error})", file=source.label, line=line) from None


def _parse_type_and_id(item: Any) -> tuple[str, str]:
    if not isinstance(item, dict):
        raise _InvalidStixObject(f"expected an object, found {describe_json_type(item)}")
    return _required_text(item, "type"), _required_text(item, "id")


def _required_text(item: Mapping[str, Any], key: str, hint: str = "") -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        problem = "is missing" if key not in item else "is empty" if value == "" else f"is {describe_json_type(value)}"
        raise _InvalidStixObject(f"`{key}` {problem}; expected a text", hint)
    return value


def _optional_text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise _InvalidStixObject(f"`{key}` is {describe_json_type(value)}; expected a text")
    return value or ""


def _optional_list(item: Mapping[str, Any], key: str) -> list[Any]:
    value = item.get(key)
    if value is not None and not isinstance(value, list):
        raise _InvalidStixObject(f"`{key}` is {describe_json_type(value)}; expected a list")
    return value or []


def _parse_node(item: Mapping[str, Any], kind: str, name: str) -> StixNode:
    number = url = ""
    for reference in _optional_list(item, "external_references"):
        if not isinstance(reference, dict):
            raise _InvalidStixObject(f"`external_references` has {describe_json_type(reference)}; expected objects")
        # The first edition of mobile ATT&CK names its source `mitre-mobile-attack`.
        if not number and "attack" in _optional_text(reference, "source_name") and reference.get("external_id"):
            number, url = _optional_text(reference, "external_id"), _optional_text(reference, "url")
    logs = (entry for entry in _optional_list(item, "x_mitre_log_source_references") if isinstance(entry, dict))
    return StixNode(
        id=name,
        type=kind,
        name=_required_text(item, "name"),
        description=_optional_text(item, "description"),
        external_id=number,
        url=url,
        retired="revoked"
        if _parse_flag(item, "revoked")
        else "deprecated"
        if _parse_flag(item, "x_mitre_deprecated")
        else "",
        modified=_optional_text(item, "modified"),
        shortname=_optional_text(item, "x_mitre_shortname"),
        phases=tuple(_optional_text(phase, "phase_name") for phase in _optional_list(item, "kill_chain_phases")),
        analytics=tuple(map(str, _optional_list(item, "x_mitre_analytic_refs"))),
        components=tuple(dict.fromkeys(_optional_text(log, "x_mitre_data_component_ref") for log in logs)),
        data_source=_optional_text(item, "x_mitre_data_source_ref"),
        platforms=tuple(map(str, _optional_list(item, "x_mitre_platforms"))),
    )


def _parse_relation(item: Mapping[str, Any]) -> StixRelation:
    hint = "a relationship has source_ref, relationship_type and target_ref"
    return StixRelation(
        _required_text(item, "source_ref", hint),
        _required_text(item, "relationship_type", hint),
        _required_text(item, "target_ref", hint),
        _parse_flag(item, "revoked") or _parse_flag(item, "x_mitre_deprecated"),
    )


def _parse_flag(item: Mapping[str, Any], key: str) -> bool:
    """Read a flag, which may be absent, true or false."""
    value = item.get(key, False)
    if not isinstance(value, bool):
        raise _InvalidStixObject(f"`{key}` is {describe_json_type(value)}; expected true or false")
    return value


def _is_not_older(left: str, right: str) -> bool:
    """Return whether a time is not before another; True if one of them is invalid."""
    try:
        return datetime.fromisoformat(left) >= datetime.fromisoformat(right)
    except (TypeError, ValueError):
        return True


def _find_object_line(text: str, position: int) -> int | None:
    """Find the line on which an object of the bundle starts; None if not found."""
    decoder, offset = json.JSONDecoder(), text.index("{") + 1

    def skipped(start: int, marks: str = "") -> int:
        while start < len(text) and (text[start].isspace() or text[start] in marks):
            start += 1
        return start

    try:
        while True:
            key, offset = decoder.raw_decode(text, skipped(offset, ","))
            offset = skipped(offset, ":")
            if key == "objects":
                break
            _, offset = decoder.raw_decode(text, offset)
        offset = skipped(offset + 1)
        for _ in range(position):
            _, offset = decoder.raw_decode(text, offset)
            offset = skipped(offset, ",")
    except (ValueError, IndexError):
        return None
    return 1 + text.count("\n", 0, offset)
