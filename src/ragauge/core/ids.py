"""Ids of queries and documents: texts without blanks around them, one form per id.

Every reader and every function that takes objects of Python uses this rule, so that an input has the same ids in each
format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ragauge.core.errors import BadInput

V = TypeVar("V")
ID_BLANKS = " \t\n\r\v\f"
"""Characters that are removed around ids: those that separate the fields of a TREC file."""
_SEPARATOR = "\0"
ONE_FORM_HINT = 'use one form per id: ids are texts without blanks around them, and 1 is the same id as "1"'


def format_id(value: Any) -> str:
    """Return the id that a value stands for; empty if it is missing or blank.

    >>> format_id(" q1 "), format_id(7), format_id(7.0), format_id(None)
    ('q1', '7', '7', '')
    """
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else str(int(value)) if float(value).is_integer() else str(value)
    return "" if value is None else str(value).strip(ID_BLANKS)


def to_id(value: Any, noun: str = "an id", file: str | None = None, line: int | None = None) -> str:
    """Convert a value to an id; raise BadInput if it is missing or blank."""
    text = format_id(value)
    if not text:
        raise BadInput(f"{noun} is missing", file=file, line=line)
    return text


class MixedIds(BadInput):
    """One id in two forms, such as 1 and "1"."""

    def __init__(
        self,
        noun: str,
        forms: tuple[Any, Any],
        lines: tuple[int | None, int | None] = (None, None),
        *,
        file: str | None = None,
        unit: str = "line",
    ) -> None:
        self.noun = noun
        self.forms = forms
        """The two values, as they are written."""
        written = (
            (repr(str(form)) if isinstance(form, str) else f"the number {form}")
            + ("" if line is None else f" in {unit} {line}")
            for form, line in zip(forms, lines, strict=True)
        )
        super().__init__(
            f"the {noun} id `{to_id(forms[0])}` has two forms: {' and '.join(written)}",
            file=file,
            line=lines[1] if unit == "line" else None,
            hint=ONE_FORM_HINT,
        )


class IdForms:
    """Converter of the ids of one input; an id in two forms is refused.

    >>> IdForms("query").convert(1)
    '1'
    """

    def __init__(self, noun: str, *, file: str | None = None) -> None:
        self._noun, self._file = noun, file
        self._form_by_id: dict[str, tuple[Any, int | None]] = {}

    def convert(self, value: Any, line: int | None = None) -> str:
        """Convert a value to an id; raise BadInput for another form of an earlier id."""
        text = to_id(value, f"a {self._noun} id", file=self._file, line=line)
        earlier, earlier_line = self._form_by_id.setdefault(text, (value, line))
        is_text = isinstance(value, str)
        if isinstance(earlier, str) != is_text or (is_text and earlier != value):
            raise MixedIds(self._noun, (earlier, value), (earlier_line, line), file=self._file)
        return text


def has_plain_ids(groups: Iterable[Iterable[Any]]) -> bool:
    """Return whether all ids are texts without blanks around them; an empty id also counts as plain.

    Joining is the fastest check of many texts: it fails for other types.
    """
    listed = list(groups)
    try:
        if not _has_blank("".join(chain.from_iterable(listed))):
            return True
    except TypeError:
        return False
    text = _SEPARATOR.join(["", *map(_SEPARATOR.join, listed), ""])  # blanks inside ids are allowed
    return not any(f"{_SEPARATOR}{blank}" in text or f"{blank}{_SEPARATOR}" in text for blank in ID_BLANKS)


def _has_blank(text: str) -> bool:
    return any(blank in text for blank in ID_BLANKS)


def with_text_keys(mapping: Mapping[Any, V], noun: str) -> Mapping[str, V]:
    """Return a mapping with its keys as ids; the mapping itself if they already are."""
    if has_plain_ids([mapping]) and "" not in mapping:
        return mapping
    ids = IdForms(noun)
    return {ids.convert(key): value for key, value in mapping.items()}


def with_text_ids(mapping: Mapping[Any, Mapping[Any, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Return `{query: {document: value}}` with ids as texts; the mapping itself if they already are.

    >>> with_text_ids({1: {" a": 2}})
    {'1': {'a': 2}}
    """
    documents = mapping.values()
    if has_plain_ids(chain([mapping], documents)) and "" not in mapping and not any("" in docs for docs in documents):
        return mapping
    queries, docs = IdForms("query"), IdForms("document")
    return {
        queries.convert(query): {docs.convert(doc): value for doc, value in values.items()}
        for query, values in mapping.items()
    }
