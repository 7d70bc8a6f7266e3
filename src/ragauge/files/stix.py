"""STIX 2.0 and 2.1 bundles as MITRE publishes ATT&CK: objects with texts, and the relations between them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ragauge.core.documents import NOTHING
from ragauge.core.errors import BadInput
from ragauge.core.structured_text import parse_json
from ragauge.core.unicode_text import clean_json, may_have_surrogates, warn_replaced
from ragauge.files.json_files import kind_of
from ragauge.files.source import Source

NAMED = (
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

HEAD = 1000
"""Number of bytes at the start of a file in which the mark of a bundle is searched."""


class Relation(NamedTuple):
    """A directed relation between two objects."""

    source: str
    kind: str
    target: str
    retired: bool = False


@dataclass(frozen=True)
class Node:
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
class Bundle:
    """Contents of a bundle."""

    nodes: Mapping[str, Node]
    relations: Sequence[Relation]
    others: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Number of objects by type, for types that are not read."""
    older: int = 0
    """Number of objects that were skipped because the bundle has another version of them."""


def is_bundle(source: Source) -> bool:
    """Return whether a file starts like a bundle; False if it cannot be read."""
    try:
        with source.open() as file:
            head = file.read(HEAD)
    except BadInput:
        return False
    return re.search(rb'"type"\s*:\s*"bundle"|"id"\s*:\s*"bundle--', head) is not None


def read_bundle(source: Source) -> Bundle:
    """Read the objects and relations of a bundle; errors name the line of the object."""
    text = _text(source)
    thing = parse_json(text, file=source.label, hint=HINT)
    if may_have_surrogates(data := text.encode()):
        thing, replaced = clean_json(thing, file=source.label, data=data)
        warn_replaced(replaced, source.label)
    if not isinstance(thing, dict) or thing.get("type") != "bundle":
        found = f"an object of type {thing.get('type')!r}" if isinstance(thing, dict) else kind_of(thing)
        raise BadInput(f"expected a STIX bundle, found {found}", file=source.label, hint=HINT)
    objects = thing.get("objects")
    if not isinstance(objects, list):
        raise BadInput(f"expected a list of objects, found {kind_of(objects)}", file=source.label, hint=HINT)
    nodes: dict[str, Node] = {}
    relations: dict[str, tuple[str, Relation]] = {}
    others: Counter[str] = Counter()
    older = 0
    for place, one in enumerate(objects):
        try:
            kind, name = _header(one)
            if kind in NAMED:
                node = _node(one, kind, name)
                older += name in nodes
                if name not in nodes or _newer(node.modified, nodes[name].modified):
                    nodes[name] = node
            elif kind == "relationship":
                modified, relation = _text_of(one, "modified"), _relation(one)
                older += name in relations
                if name not in relations or _newer(modified, relations[name][0]):
                    relations[name] = modified, relation
            else:
                others[kind] += 1
        except _Wrong as error:
            where = f"object {place}" + (f" (`{one['id']}`)" if isinstance(one, dict) and one.get("id") else "")
            raise BadInput(
                f"{where}: {error}", file=source.label, line=_line(text, place), hint=error.hint or HINT
            ) from None
    return Bundle(nodes, [relation for _, relation in relations.values()], dict(others), older)


class _Wrong(Exception):
    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def _text(source: Source) -> str:
    data = source.read()
    try:
        return data.decode("utf-8").rstrip()
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise BadInput(f"the text is not UTF-8 ({error})", file=source.label, line=line) from None


def _header(one: Any) -> tuple[str, str]:
    if not isinstance(one, dict):
        raise _Wrong(f"expected an object, found {kind_of(one)}")
    return _needed(one, "type"), _needed(one, "id")


def _needed(one: Mapping[str, Any], key: str, hint: str = "") -> str:
    value = one.get(key)
    if not isinstance(value, str) or not value:
        wrong = "is missing" if key not in one else "is empty" if value == "" else f"is {kind_of(value)}"
        raise _Wrong(f"`{key}` {wrong}; expected a text", hint)
    return value


def _text_of(one: Mapping[str, Any], key: str) -> str:
    value = one.get(key)
    if value is not None and not isinstance(value, str):
        raise _Wrong(f"`{key}` is {kind_of(value)}; expected a text")
    return value or ""


def _list_of(one: Mapping[str, Any], key: str) -> list[Any]:
    value = one.get(key)
    if value is not None and not isinstance(value, list):
        raise _Wrong(f"`{key}` is {kind_of(value)}; expected a list")
    return value or []


def _node(one: Mapping[str, Any], kind: str, name: str) -> Node:
    number = url = ""
    for reference in _list_of(one, "external_references"):
        if not isinstance(reference, dict):
            raise _Wrong(f"`external_references` has {kind_of(reference)}; expected objects")
        # The first edition of mobile ATT&CK names its source `mitre-mobile-attack`.
        if not number and "attack" in _text_of(reference, "source_name") and reference.get("external_id"):
            number, url = _text_of(reference, "external_id"), _text_of(reference, "url")
    logs = (one for one in _list_of(one, "x_mitre_log_source_references") if isinstance(one, dict))
    return Node(
        id=name,
        type=kind,
        name=_needed(one, "name"),
        description=_text_of(one, "description"),
        external_id=number,
        url=url,
        retired="revoked" if _flag(one, "revoked") else "deprecated" if _flag(one, "x_mitre_deprecated") else "",
        modified=_text_of(one, "modified"),
        shortname=_text_of(one, "x_mitre_shortname"),
        phases=tuple(_text_of(phase, "phase_name") for phase in _list_of(one, "kill_chain_phases")),
        analytics=tuple(map(str, _list_of(one, "x_mitre_analytic_refs"))),
        components=tuple(dict.fromkeys(_text_of(log, "x_mitre_data_component_ref") for log in logs)),
        data_source=_text_of(one, "x_mitre_data_source_ref"),
        platforms=tuple(map(str, _list_of(one, "x_mitre_platforms"))),
    )


def _relation(one: Mapping[str, Any]) -> Relation:
    hint = "a relationship has source_ref, relationship_type and target_ref"
    return Relation(
        _needed(one, "source_ref", hint),
        _needed(one, "relationship_type", hint),
        _needed(one, "target_ref", hint),
        _flag(one, "revoked") or _flag(one, "x_mitre_deprecated"),
    )


def _flag(one: Mapping[str, Any], key: str) -> bool:
    """Read a flag, which may be absent, true or false."""
    value = one.get(key, False)
    if not isinstance(value, bool):
        raise _Wrong(f"`{key}` is {kind_of(value)}; expected true or false")
    return value


def _newer(left: str, right: str) -> bool:
    """Return whether a time is not before another; True if one of them is invalid."""
    try:
        return datetime.fromisoformat(left) >= datetime.fromisoformat(right)
    except (TypeError, ValueError):
        return True


def _line(text: str, place: int) -> int | None:
    """Find the line on which an object of the bundle starts; None if not found."""
    decoder, at = json.JSONDecoder(), text.index("{") + 1

    def skipped(start: int, marks: str = "") -> int:
        while start < len(text) and (text[start].isspace() or text[start] in marks):
            start += 1
        return start

    try:
        while True:
            key, at = decoder.raw_decode(text, skipped(at, ","))
            at = skipped(at, ":")
            if key == "objects":
                break
            _, at = decoder.raw_decode(text, at)
        at = skipped(at + 1)
        for _ in range(place):
            _, at = decoder.raw_decode(text, at)
            at = skipped(at, ",")
    except (ValueError, IndexError):
        return None
    return 1 + text.count("\n", 0, at)
