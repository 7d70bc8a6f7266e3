"""Checks of search results and of documents read back, without judgments."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ragauge.ordeals import Harm, ReadBack
from ragauge.records import NOTHING, Document

SHOWN = 20
"""Maximum number of corrupt documents listed per read-back."""
FIELDS = ("text", "title", "metadata")
"""Fields of a document that a store can keep."""


def compared(
    listed: Sequence[str],
    got: Iterable[tuple[str, Document | None]],
    documents: Sequence[Document],
    *,
    promised: int,
    possible: int,
    keeps: Collection[str] = FIELDS,
    when: str = "at once",
    before: Mapping[str, str] = NOTHING,
) -> ReadBack:
    """Compare the documents read back with those put in.

    `listed` are the ids that the store lists, `got` the documents returned per id, possibly several times. The first
    `promised` documents must be present; those up to `possible` may be, and must then be complete. `before` maps ids
    to texts that were replaced.

    >>> went_in = [Document("a", "one"), Document("b", "two")]
    >>> found = compared(["a", "b"], [("a", went_in[0]), ("b", Document("b", "twO"))], went_in, promised=2, possible=2)
    >>> found.whole, found.harms[0]
    (1, Harm(id='b', what='changed', where='text: byte 3 of 3 is 0x4f, not 0x6f', place=2))
    """
    places = {one.id: place for place, one in enumerate(documents[:possible])}
    owners = {one.text: one.id for one in documents[:possible] if one.text}
    harms: list[Harm] = []
    for name, times in Counter(listed).items():
        if name not in places:
            harms.append(Harm(name, "unknown"))
        elif times > 1:
            harms.append(Harm(name, "twice", f"it is listed {times} times", places[name] + 1))
    known, harmed_ones = set(listed), {one.id for one in harms}
    sound: set[str] = set()
    for name, found in got:
        place = places[name]
        harm = _harm(documents[place], found, owners, keeps, listed=name in known)
        if harm is not None and found is not None and name in before and before[name] == found.text:
            harm = "stale", "it still has the text that was replaced"
        if harm is None:
            sound.add(name)
        elif name not in harmed_ones and (harm[0] != "lost" or place < promised):
            harmed_ones.add(name)
            harms.append(Harm(name, *harm, place + 1))
    whole = sum(places[name] < promised for name in sound - harmed_ones)
    beyond = len(sound - harmed_ones) - whole
    harms.sort(key=lambda one: (one.place is None, one.place or 0))
    harmed = dict(Counter(one.what for one in harms))
    return ReadBack(when, promised, whole, harms[:SHOWN], harmed, beyond, sorted(keeps))


def _harm(
    document: Document, found: Document | None, owners: Mapping[str, str], keeps: Collection[str], *, listed: bool
) -> tuple[str, str] | None:
    """Return the kind and location of a corruption; None if the document is intact."""
    if found is None:
        return "lost", "it is listed, and not given" if listed else ""
    if not listed:
        return "unlisted", "it is given, and not listed"
    if found.id != document.id:
        return "swapped", f"it came back under the id {found.id}"
    if "text" in keeps and found.text != document.text:
        owner = owners.get(found.text) if isinstance(found.text, str) else None
        if owner is not None:
            return "swapped", f"it has the text of {owner}"
    for field in FIELDS:
        if field in keeps and (difference := differing(getattr(document, field), getattr(found, field))):
            return "changed", f"{field}: {difference}"
    return None


def differing(wanted: Any, found: Any) -> str:
    """Describe the first byte in which two values differ; empty if they are equal.

    >>> differing("café", "cafe")
    'byte 4 of 5 is 0x65, not 0xc3'
    >>> differing({"a": 1}, {"a": 1}), differing("ab", "a")
    ('', 'it ends after byte 1 of 2')
    >>> differing("42", 42)
    'it is of type int, not str'
    """
    for kind in (str, Mapping):
        if isinstance(wanted, kind) and not isinstance(found, kind):
            return f"it is of type {type(found).__name__}, not {type(wanted).__name__}"
    ours, theirs = _bytes(wanted), _bytes(found)
    if ours == theirs:
        return ""
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    if same == len(theirs):
        return f"it ends after byte {same:,} of {len(ours):,}"
    if same == len(ours):
        return f"it goes on after byte {same:,}, where it should end"
    return f"byte {same + 1:,} of {len(ours):,} is {theirs[same]:#04x}, not {ours[same]:#04x}"


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(_as_json(value), sort_keys=True)
    return text.encode("utf-8", "surrogatepass")


def _as_json(value: Any) -> Any:
    """Convert a value to JSON types.

    Other types become text with their type name, so that they equal nothing else.
    """
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else _foreign(key): _as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    return value if value is None or isinstance(value, str | int | float) else _foreign(value)


def _foreign(value: Any) -> str:
    return f"({type(value).__name__}) {value!r}"


def told(reading: ReadBack) -> str:
    """Summarise what is wrong with a read-back in one sentence; empty if nothing is.

    >>> told(ReadBack("at once", 3, 2, [Harm("b", "lost", "", 2)], {"lost": 1}))
    '1 lost of 3 documents: `b` (document 2) is lost'
    """
    if reading.sound:
        return ""
    counts = ", ".join(f"{n:,} {what}" for what, n in reading.harmed.items())
    first = reading.harms[0]
    which = f"`{first.id}`" + ("" if first.place is None else f" (document {first.place:,})")
    words = {"unknown": "was never put in", "twice": "is there twice", "unlisted": "is not listed"}
    what = words.get(first.what, f"is {first.what}")
    return f"{counts} of {reading.expected:,} documents: {which} {what}" + (f": {first.where}" if first.where else "")
