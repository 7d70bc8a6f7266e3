"""Ids that match nothing, and the small differences in writing that may be why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Key = Callable[[str], str]


def _without_zeros(text: str) -> str:
    """Every number in an id without the zeros before it.

    >>> _without_zeros("CACM-0756"), _without_zeros("doc000")
    ('CACM-756', 'doc0')
    """
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def _without_ending(text: str) -> str:
    """An id without what looks like the ending of a file.

    >>> _without_ending("report.v2.html"), _without_ending("3.14")
    ('report.v2', '3.14')
    """
    return re.sub(r"(?<=.)\.(?=[^\W\d])\w{1,5}(\.gz)?$", "", text)


def _without_prefix(text: str) -> str:
    """An id without a path, a name space, or letters before its number.

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
"""What two writings of one id may differ in, and a key that is the same for both."""


def _all(text: str) -> str:
    return _without_zeros(_without_prefix(_without_ending(_without_blanks(text).casefold())))


class Repair(NamedTuple):
    """One way to read ids that match nothing."""

    name: str
    matches: dict[str, str]
    """For each id that now matches, the known id; one that could be two is not among them."""


def repairs(orphans: Iterable[str], known: Iterable[str]) -> list[Repair]:
    """What each repair would match, most matches first; all of them together only where that matches more.

    A known id that another orphan of the same repair also matches is nobody's: two ids cannot be one document.

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
