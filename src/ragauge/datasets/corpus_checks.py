"""Find exact and near-duplicate texts in nearly linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import MissingExtra
from ragauge.core.text import SHINGLE, normalised, shingles, words

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


NEAR = 0.8
"""Minimum Jaccard similarity of the shingles of near-duplicates."""
BANDS, ROWS = 21, 6
"""LSH bands and rows per band. A pair with Jaccard similarity 0.8 becomes a candidate with probability 1 - (1 -
0.8^6)^21 = 0.998.
"""
LENIENT = 0.15
"""Tolerance for the similarity estimated from signatures: 3.5 standard errors at 126 values."""
SEED = 42
BLOCK = 4096
"""Number of texts whose words are in memory at a time."""
CROWD = 256
"""Maximum number of group leaders per LSH bucket. Without it, a template shared by thousands of texts would cost
quadratic time. A pair can still meet in 21 buckets.
"""


class Alike(NamedTuple):
    """Group of near-duplicates, as positions in the input."""

    group: Sequence[int]
    part: float
    """Lowest Jaccard similarity between the first text and another one of the group."""


def same(texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Find groups of equal texts, and empty texts.

    Texts are normalised first. The results are positions.

    >>> same(["One  text", "another", "one text", " "])
    ([[0, 2]], [3])
    """
    groups: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        groups.setdefault(normalised(text), []).append(place)
    empty = groups.pop("", [])
    return [group for group in groups.values() if len(group) > 1], empty


def alike(texts: Sequence[str], near: float = NEAR, progress: Callable[[int, int], None] | None = None) -> list[Alike]:
    """Find groups of near-duplicate texts.

    Texts of a group have a Jaccard similarity of at least `near` to the first one. Candidates come from MinHash
    signatures and are confirmed on their shingles. Texts are compared only with the first of a group, so that a
    chain of small changes does not join unrelated texts.
    """
    known, signatures = _signatures(texts, progress)
    found: dict[int, dict[int, float]] = {}
    exact: dict[int, frozenset[tuple[str, ...]]] = {}
    leaders: dict[tuple[int, int], list[int]] = {}
    for row, meets in _meetings(signatures):
        place = int(known[row])
        others = sorted({one for key in meets for one in leaders.get(key, ())})
        candidates = np.array(others, np.int64)
        close = (signatures[candidates] == signatures[row]).mean(axis=1) >= near - LENIENT
        best, leader = 0.0, -1
        for other in known[candidates[close]].tolist():
            for one in (place, other):
                if one not in exact:
                    exact[one] = shingles(texts[one])
            part = len(exact[place] & exact[other]) / len(exact[place] | exact[other])
            if part > best:
                best, leader = part, other
        if best >= near:
            found.setdefault(leader, {})[place] = best
            exact.pop(place)
            continue
        for key in meets:
            mine = leaders.setdefault(key, [])
            if len(mine) < CROWD:
                mine.append(row)
    return [Alike([leader, *others], min(others.values())) for leader, others in sorted(found.items())]


def _meetings(signatures: NDArray[np.uint32]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield the rows that share a band with another row, and their buckets.

    A bucket is a pair of band and code.
    """
    codes = np.full((len(signatures), BANDS), -1, np.int64)
    for band in range(BANDS):
        rows = np.ascontiguousarray(signatures[:, band * ROWS : (band + 1) * ROWS])
        _, code, times = np.unique(
            rows.view(f"V{rows.itemsize * ROWS}").ravel(), return_inverse=True, return_counts=True
        )
        codes[:, band] = np.where(times[code] > 1, code, -1)
    for row in np.flatnonzero((codes >= 0).any(axis=1)).tolist():
        yield row, [(band, code) for band, code in enumerate(codes[row].tolist()) if code >= 0]


def _signatures(
    texts: Sequence[str], progress: Callable[[int, int], None] | None
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Compute MinHash signatures.

    Returns the positions of texts with words, and their signatures.
    """
    try:
        from rensa import RMinHash
    except ImportError:
        raise MissingExtra("looking for near-duplicates", "audit") from None
    numbers: dict[str, int] = {}
    places: list[int] = []
    parts = [np.zeros((0, BANDS * ROWS), np.uint32)]
    for start in range(0, len(texts), BLOCK):
        cut = [
            [numbers.setdefault(word, len(numbers) + 1) for word in words(text)]
            for text in texts[start : start + BLOCK]
        ]
        places += [start + i for i, one in enumerate(cut) if one]
        flat, starts = _hashed([one for one in cut if one])
        if len(starts) > 1:
            matrix: Any = RMinHash.digest_matrix_from_flat_token_hashes(flat, starts, BANDS * ROWS, SEED)
            parts.append(np.array(matrix.to_rows(), np.uint32))
        if progress is not None:
            progress(min(start + BLOCK, len(texts)), len(texts))
    return np.array(places, np.int64), np.concatenate(parts)


def _hashed(cut: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Hash the shingles of each text to 64 bits.

    Returns the hashes and the offset of each text. Unlike Python's `hash`, the result is equal in every process. A
    text shorter than a shingle has one hash.
    """
    padded = [list(one) + [0] * (SHINGLE - len(one)) for one in cut]
    sizes = np.array([len(one) for one in padded], np.int64)
    flat = np.fromiter((word for one in padded for word in one), np.uint64, int(sizes.sum()))
    mixed = np.zeros(max(0, len(flat) - SHINGLE + 1), np.uint64)
    for start in range(SHINGLE):
        mixed = (mixed ^ flat[start : start + len(mixed)]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    ends = np.cumsum(sizes)
    kept = np.ones(len(mixed), bool)  # excludes shingles that cross the end of a text
    for back in range(1, SHINGLE):
        kept[ends[:-1] - back] = False
    return mixed[kept], np.concatenate([[0], np.cumsum(sizes - SHINGLE + 1)]).astype(np.uint64)
