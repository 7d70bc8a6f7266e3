"""Remove the reasoning that some models write before their reply (`<think>` blocks)."""

from __future__ import annotations

import re

from ragauge.structured_text import parse_json

CLOSED = re.compile(r"</think(?:ing)?>", re.I)
OPENED = re.compile(r"<think(?:ing)?>", re.I)


def spoken(text: str) -> str:
    """Return the text after the last `</think>`; JSON objects are returned unchanged.

    The opening tag may be missing, because some servers omit it.

    >>> spoken("Is it? Yes, or no.</think> no"), spoken("no"), spoken('{"reason": "it says </think>"}')
    (' no', 'no', '{"reason": "it says </think>"}')
    """
    ends = [found.end() for found in CLOSED.finditer(text)]
    return text if not ends or _is_json(text) else text[ends[-1] :]


def unfinished(text: str) -> bool:
    """Return whether a text contains the start of a thought.

    >>> unfinished(spoken("<think>It is")), unfinished(spoken("<think>It is</think> yes"))
    (True, False)
    """
    return OPENED.search(text) is not None


def _is_json(text: str) -> bool:
    try:
        return isinstance(parse_json(text, unique_keys=False), dict)
    except ValueError:
        return False
