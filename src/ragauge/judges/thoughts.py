"""Thoughts that stand in a reply: what a model considers before it speaks is no part of what it says."""

from __future__ import annotations

import re

from ragauge.structured_text import parse_json

CLOSED = re.compile(r"</think(?:ing)?>", re.I)
OPENED = re.compile(r"<think(?:ing)?>", re.I)


def spoken(text: str) -> str:
    """What stands after the last thought; some servers leave out where it began. What is JSON as a whole has none.

    >>> spoken("Is it? Yes, or no.</think> no"), spoken("no"), spoken('{"reason": "it says </think>"}')
    (' no', 'no', '{"reason": "it says </think>"}')
    """
    ends = [found.end() for found in CLOSED.finditer(text)]
    return text if not ends or _is_json(text) else text[ends[-1] :]


def unfinished(text: str) -> bool:
    """Whether a thought begins in a text.

    >>> unfinished(spoken("<think>It is")), unfinished(spoken("<think>It is</think> yes"))
    (True, False)
    """
    return OPENED.search(text) is not None


def _is_json(text: str) -> bool:
    try:
        return isinstance(parse_json(text, unique_keys=False), dict)
    except ValueError:
        return False
