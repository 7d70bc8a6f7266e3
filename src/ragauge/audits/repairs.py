"""Find ids that match no known document, and spelling differences that may explain the mismatch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Key = Callable[[str], str]


def _without_zeros(text: str) -> str:
    """Remove leading zeros from every number in an id.

    >>> _without_zeros("CACM-0756"), _without_zeros("doc000")
    ('CACM-756', 'doc0')
    """
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def _without_ending(text: str) -> str:
    """Remove a file extension from an id.

    >>> _without_ending("report.v2.html"), _without_ending("3.14")
    ('report.v2', '3.14')
    """
    return re.sub(r"(?<=.)\.(?=[^\W\d])\w{1,5}(\.gz)?$", "", text)


def _without_prefix(text: str) -> str:
    """Remove a path, a namespace, or letters before a final number from an id.

    >>> _without_prefix("corpus/en:12"), _without_prefix("doc-12"), _without_prefix("12")
    ('12', '12', '12')
    """
    return re.sub(r"^(?:.*[/\\:#|])?(?:[^\W\d]+[-_ .]?(?=\d+$))?", "", text)


def _without_blanks(text: str) -> str:
    return "".join(text.split())


REPAIRS: Mapping[str, Key] = {
    "zero padding": _without_zeros,
    "case": str.casefold,
    "white space": _without_blanks,
    "a file ending": _without_ending,
    "a prefix": _without_prefix,
}
"""Function per kind of spelling difference that maps both spellings of an id to one key."""


def _all(text: str) -> str:
    return _without_zeros(_without_prefix(_without_ending(_without_blanks(text).casefold())))


class Repair(NamedTuple):
    """Ids that match a known id after one kind of normalisation."""

    name: str
    matches: dict[str, str]
    """Known id for each id that now matches; ambiguous ids are left out."""


def repairs(orphans: Iterable[str], known: Iterable[str]) -> list[Repair]:
    """Find normalisations under which unknown ids match known ids.

    Results are sorted by the number of matches, most first. All normalisations combined come first, but only if they
    match more ids than any single one. A known id that several unknown ids match is left out, because two ids cannot
    be the same document.

    >>> repairs(["CACM-756", "x"], ["CACM-0756", "CACM-0001"])
    [Repair(name='zero padding', matches={'CACM-756': 'CACM-0756'})]
    """
    lost, ids = list(dict.fromkeys(orphans)), list(dict.fromkeys(known))
    found = [Repair(name, _matches(lost, ids, key)) for name, key in REPAIRS.items()]
    found = sorted((one for one in found if one.matches), key=lambda one: -len(one.matches))
    together = Repair("all of these", _matches(lost, ids, _all))
    if len(together.matches) > max((len(one.matches) for one in found), default=0):
        found.insert(0, together)
    return found


def _matches(lost: list[str], known: list[str], key: Key) -> dict[str, str]:
    homes: dict[str, list[str]] = {}
    for name in known:
        homes.setdefault(key(name), []).append(name)
    claims: dict[str, list[str]] = {}
    for name in lost:
        claims.setdefault(key(name), []).append(name)
    return {
        names[0]: homes[one][0] for one, names in claims.items() if len(names) == 1 and len(homes.get(one, ())) == 1
    }
