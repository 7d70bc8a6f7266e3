"""Unpaired surrogates, which UTF-8 cannot encode: replaced and counted in texts, refused in ids."""

from __future__ import annotations

import re
import warnings
from typing import Any

from ragauge.core.errors import BadInput, InputWarning

REPLACEMENT_CHARACTER = "\ufffd"
ID_FIELDS = frozenset({
    "_id", "id", "doc_id", "docid", "docno", "document_id", "chunk_id", "passage_id", "pid", "did", "corpus_id",
    "corpus-id", "query_id", "query-id", "queryid", "qid", "q_id", "topic_id", "sample_id", "relevant_docs", "target",
    "targets",
})  # fmt: skip
"""JSON fields that contain ids."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_HINT = "correct the id: a character beyond U+FFFF is written as two \\u escapes, and one of them is missing"


class TextWarning(InputWarning):
    """Characters of a text were replaced."""


def may_have_surrogates(data: bytes) -> bool:
    """Return whether a JSON text has an escape that may be an unpaired surrogate."""
    return (b"\\ud" in data or b"\\uD" in data) and _SURROGATE_ESCAPE.search(data) is not None


def has_surrogate(text: Any) -> bool:
    """Return whether a value is a text with an unpaired surrogate."""
    return isinstance(text, str) and not text.isascii() and _SURROGATE.search(text) is not None


def replace_surrogates(text: str) -> str:
    r"""Replace unpaired surrogates by U+FFFD.

    >>> replace_surrogates("a\ud800b")
    'a�b'
    """
    return text if text.isascii() else _SURROGATE.sub(REPLACEMENT_CHARACTER, text)


def check_id(text: str, what: str, *, file: str | None = None, line: int | None = None) -> None:
    """Raise BadInput for an id with an unpaired surrogate.

    Replacing it could make two ids equal.
    """
    if has_surrogate(text):
        shown = text.encode("ascii", "backslashreplace").decode()
        raise BadInput(f"{what} `{shown}` contains an unpaired surrogate", file=file, line=line, hint=_HINT)


def clean_json(
    value: Any, *, file: str | None = None, line: int | None = None, data: bytes = b"", ids: bool = False
) -> tuple[Any, int]:
    """Replace unpaired surrogates in a parsed JSON value.

    Return the value and the number of changed texts. With `ids`, every text is an id. `data` is the JSON text, used
    to find the line of a refused id.
    """
    if isinstance(value, str):
        clean = replace_surrogates(value)
        if clean != value and ids:
            check_id(value, "the id", file=file, line=_find_surrogate_line(value, data) if line is None else line)
        return clean, int(clean != value)
    if isinstance(value, list):
        pairs = [clean_json(one, file=file, line=line, data=data, ids=ids) for one in value]
        return [one for one, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        found, total = {}, 0
        for name, one in value.items():
            check_id(name, "the key", file=file, line=_find_surrogate_line(name, data) if line is None else line)
            found[name], count = clean_json(one, file=file, line=line, data=data, ids=ids or name.lower() in ID_FIELDS)
            total += count
        return found, total
    return value, 0


def warn_replaced(count: int, label: str) -> None:
    """Warn that characters of texts were replaced.

    The command line prints the warning as a note.
    """
    if count:
        texts = "1 text contains" if count == 1 else f"{count:,} texts contain"
        warnings.warn(f"{label}: {texts} unpaired surrogates, replaced by U+FFFD", TextWarning, stacklevel=2)


def _find_surrogate_line(text: str, data: bytes) -> int | None:
    wrong = _SURROGATE.search(text)
    if wrong is None or not data:
        return None
    at = re.search(rb"(?i)\\u%04x" % ord(wrong[0]), data)
    return None if at is None else data.count(b"\n", 0, at.start()) + 1
