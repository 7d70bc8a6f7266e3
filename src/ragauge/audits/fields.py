"""What is known of a document beside its text, as numbers or as categories: candidates for a leak."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragauge.audits.texts import Corpus
from ragauge.records import Document, Floats

MOST_KINDS = 50
"""A field of more values than these is no category."""
LEAST_EACH = 5
"""Nor one whose values have fewer documents than these on average: a name or an id has one for each."""
FEW_NUMBERS = 10
"""Numbers of so few values may be codes, of which neither the largest nor the smallest need stand out."""
DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([ T].*)?)?")


class Field(NamedTuple):
    """One value for each document of the corpus."""

    name: str
    values: Floats
    """Numbers of which only the order matters, or the numbers of categories; no value at all is the lowest."""
    kinds: int = 0
    """How many categories there are, no value being one of them; 0 for numbers."""


def fields(documents: Sequence[Document], corpus: Corpus) -> Iterator[Field]:
    """Every field that can be ordered or has few values: length, place, id, and the metadata."""
    yield Field("length", corpus.lengths.astype(np.float64))
    place = np.arange(len(documents), dtype=np.float64)
    yield Field("place in the corpus", place)
    order = _ranked([natural(document.id) for document in documents])
    if not (np.array_equal(order, place) or np.array_equal(order, place[::-1])):
        yield Field("order of the id", order)
    names = dict.fromkeys(name for document in documents for name in document.metadata)
    for name in names:
        found = metadata_field(f"metadata `{name}`", [document.metadata.get(name) for document in documents])
        if found is not None:
            yield found


def metadata_field(name: str, values: Sequence[Any]) -> Field | None:
    """A field of metadata; None where it is neither ordered nor of few values, or the same everywhere.

    >>> metadata_field("year", ["1999", None, 2005]).values.tolist()
    [1.0, 0.0, 2.0]
    >>> metadata_field("title", ["one", "two", "three"]) is None
    True
    >>> metadata_field("kind", ["a", "b"] * 5).kinds
    3
    """
    known = [value for value in values if not _missing(value)]
    if any(not isinstance(value, str | int | float) for value in known) or not known:
        return None
    numbers = _numbers(known)
    distinct = set(numbers if numbers is not None else known)
    if len(distinct) + (len(known) < len(values)) < 2:
        return None
    often = len(known) / len(distinct) >= LEAST_EACH
    if often and len(distinct) <= (MOST_KINDS if numbers is None else FEW_NUMBERS):
        codes = {value: code for code, value in enumerate(dict.fromkeys(map(str, known)), 1)}
        coded = np.array([0 if _missing(value) else codes[str(value)] for value in values], np.float64)
        return Field(name, coded, len(codes) + 1)
    if numbers is None:
        if not all(isinstance(value, str) and DATE.fullmatch(value) for value in known):
            return None
        numbers = _ranked(known).tolist()
    ordered = iter(_ranked(numbers) + 1)
    return Field(name, np.array([0.0 if _missing(value) else next(ordered) for value in values]))


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which ids are ordered as people do: numbers by their size.

    >>> sorted(["d10", "d9", "c1"], key=natural)
    ['c1', 'd9', 'd10']
    """
    return tuple((text, int(number or -1)) for text, number in re.findall(r"([^0-9]*)([0-9]*)", name) if text or number)


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _numbers(values: Sequence[Any]) -> list[float] | None:
    try:
        found = [float(value) for value in values]
    except (ValueError, OverflowError):
        return None
    return None if any(map(math.isnan, found)) else found


def _ranked(keys: Sequence[Any]) -> Floats:
    """The place of each key among the distinct ones."""
    places: Mapping[Any, int] = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([places[key] for key in keys], np.float64)
