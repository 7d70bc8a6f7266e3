"""Find exact and near-duplicate texts, and ids that match after a small repair."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import MissingExtra
from ragauge.core.text import SHINGLE_WORDS, normalise, shingles, split_words

IdKey = Callable[[str], str]


def _strip_leading_zeros(text: str) -> str:
    """Remove leading zeros from every number in an id.

    >>> _strip_leading_zeros("CACM-0756"), _strip_leading_zeros("doc000")
    ('CACM-756', 'doc0')
    """
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def _strip_file_extension(text: str) -> str:
    """Remove a file extension from an id.

    >>> _strip_file_extension("report.v2.html"), _strip_file_extension("3.14")
    ('report.v2', '3.14')
    """
    return re.sub(r"(?<=.)\.(?=[^\W\d])\w{1,5}(\.gz)?$", "", text)


def _strip_id_prefix(text: str) -> str:
    """Remove a path, a namespace, or letters before a final number from an id.

    >>> _strip_id_prefix("corpus/en:12"), _strip_id_prefix("doc-12"), _strip_id_prefix("12")
    ('12', '12', '12')
    """
    return re.sub(r"^(?:.*[/\\:#|])?(?:[^\W\d]+[-_ .]?(?=\d+$))?", "", text)


def _strip_white_space(text: str) -> str:
    return "".join(text.split())


ID_NORMALISERS: Mapping[str, IdKey] = {
    "zero padding": _strip_leading_zeros,
    "case": str.casefold,
    "white space": _strip_white_space,
    "a file ending": _strip_file_extension,
    "a prefix": _strip_id_prefix,
}
"""Function per kind of spelling difference that maps both spellings of an id to one key."""


def _apply_all_normalisers(text: str) -> str:
    return _strip_leading_zeros(_strip_id_prefix(_strip_file_extension(_strip_white_space(text).casefold())))


class Repair(NamedTuple):
    """Ids that match a known id after one kind of normalisation."""

    name: str
    matches: dict[str, str]
    """Known id for each id that now matches; ambiguous ids are left out."""


def find_id_repairs(orphans: Iterable[str], known_ids: Iterable[str]) -> list[Repair]:
    """Find normalisations under which unknown ids match known ids.

    Results are sorted by the number of matches, most first. All normalisations combined come first, but only if they
    match more ids than any single one. A known id that several unknown ids match is left out, because two ids cannot
    be the same document.

    >>> find_id_repairs(["CACM-756", "x"], ["CACM-0756", "CACM-0001"])
    [Repair(name='zero padding', matches={'CACM-756': 'CACM-0756'})]
    """
    unknown_ids, ids = list(dict.fromkeys(orphans)), list(dict.fromkeys(known_ids))
    repairs = [Repair(name, _match_ids(unknown_ids, ids, key)) for name, key in ID_NORMALISERS.items()]
    repairs = sorted((repair for repair in repairs if repair.matches), key=lambda repair: -len(repair.matches))
    combined = Repair("all of these", _match_ids(unknown_ids, ids, _apply_all_normalisers))
    if len(combined.matches) > max((len(repair.matches) for repair in repairs), default=0):
        repairs.insert(0, combined)
    return repairs


def _match_ids(unknown_ids: list[str], known_ids: list[str], key: IdKey) -> dict[str, str]:
    known_by_key: dict[str, list[str]] = {}
    for name in known_ids:
        known_by_key.setdefault(key(name), []).append(name)
    unknown_by_key: dict[str, list[str]] = {}
    for name in unknown_ids:
        unknown_by_key.setdefault(key(name), []).append(name)
    return {
        names[0]: known_by_key[key_value][0]
        for key_value, names in unknown_by_key.items()
        if len(names) == 1 and len(known_by_key.get(key_value, ())) == 1
    }


NEAR_DUPLICATE_JACCARD = 0.8
"""Minimum Jaccard similarity of the shingles of near-duplicates."""
LSH_BANDS, LSH_ROWS_PER_BAND = 21, 6
"""LSH bands and rows per band. A pair with Jaccard similarity 0.8 becomes a candidate with probability 1 - (1 -
0.8^6)^21 = 0.998.
"""
SIGNATURE_TOLERANCE = 0.15
"""Tolerance for the similarity estimated from signatures: 3.5 standard errors at 126 values."""
MINHASH_SEED = 42
TEXTS_PER_BLOCK = 4096
"""Number of texts whose words are in memory at a time."""
MAX_LEADERS_PER_BUCKET = 256
"""Maximum number of group leaders per LSH bucket. Without it, a template shared by thousands of texts would cost
quadratic time. A pair can still meet in 21 buckets.
"""


class DuplicateGroup(NamedTuple):
    """Group of near-duplicates, as positions in the input."""

    positions: Sequence[int]
    similarity: float
    """Lowest Jaccard similarity between the first text and another one of the group."""


def find_exact_duplicates(texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Find groups of equal texts, and empty texts.

    Texts are normalised first. The results are positions.

    >>> find_exact_duplicates(["One  text", "another", "one text", " "])
    ([[0, 2]], [3])
    """
    groups: dict[str, list[int]] = {}
    for position, text in enumerate(texts):
        groups.setdefault(normalise(text), []).append(position)
    empty = groups.pop("", [])
    return [group for group in groups.values() if len(group) > 1], empty


def find_near_duplicates(
    texts: Sequence[str],
    min_jaccard: float = NEAR_DUPLICATE_JACCARD,
    progress: ProgressCallback = no_progress,
) -> list[DuplicateGroup]:
    """Find groups of near-duplicate texts.

    Texts of a group have a Jaccard similarity of at least `min_jaccard` to the first one. Candidates come from MinHash
    signatures and are confirmed on their shingles. Texts are compared only with the first of a group, so that a
    chain of small changes does not join unrelated texts.
    """
    text_positions, signatures = _minhash_signatures(texts, progress)
    groups: dict[int, dict[int, float]] = {}
    exact: dict[int, frozenset[tuple[str, ...]]] = {}
    leaders: dict[tuple[int, int], list[int]] = {}
    for row, shared_bands in _shared_bands(signatures):
        position = int(text_positions[row])
        leader_rows = sorted({leader_row for key in shared_bands for leader_row in leaders.get(key, ())})
        candidates = np.array(leader_rows, np.int64)
        is_close = (signatures[candidates] == signatures[row]).mean(axis=1) >= min_jaccard - SIGNATURE_TOLERANCE
        best, leader = 0.0, -1
        for leader_position in text_positions[candidates[is_close]].tolist():
            for text_position in (position, leader_position):
                if text_position not in exact:
                    exact[text_position] = shingles(texts[text_position])
            jaccard = len(exact[position] & exact[leader_position]) / len(exact[position] | exact[leader_position])
            if jaccard > best:
                best, leader = jaccard, leader_position
        if best >= min_jaccard:
            groups.setdefault(leader, {})[position] = best
            exact.pop(position)
            continue
        for key in shared_bands:
            bucket = leaders.setdefault(key, [])
            if len(bucket) < MAX_LEADERS_PER_BUCKET:
                bucket.append(row)
    return [DuplicateGroup([leader, *members], min(members.values())) for leader, members in sorted(groups.items())]


def _shared_bands(signatures: NDArray[np.uint32]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield the rows that share a band with another row, and their buckets.

    A bucket is a pair of band and code.
    """
    codes = np.full((len(signatures), LSH_BANDS), -1, np.int64)
    for band in range(LSH_BANDS):
        rows = np.ascontiguousarray(signatures[:, band * LSH_ROWS_PER_BAND : (band + 1) * LSH_ROWS_PER_BAND])
        _, code, times = np.unique(
            rows.view(f"V{rows.itemsize * LSH_ROWS_PER_BAND}").ravel(), return_inverse=True, return_counts=True
        )
        codes[:, band] = np.where(times[code] > 1, code, -1)
    for row in np.flatnonzero((codes >= 0).any(axis=1)).tolist():
        yield row, [(band, code) for band, code in enumerate(codes[row].tolist()) if code >= 0]


def _minhash_signatures(
    texts: Sequence[str], progress: ProgressCallback
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Compute MinHash signatures.

    Returns the positions of texts with words, and their signatures.
    """
    try:
        from rensa import RMinHash
    except ImportError:
        raise MissingExtra("looking for near-duplicates", "audit") from None
    numbers: dict[str, int] = {}
    positions: list[int] = []
    signature_blocks = [np.zeros((0, LSH_BANDS * LSH_ROWS_PER_BAND), np.uint32)]
    for start in range(0, len(texts), TEXTS_PER_BLOCK):
        numbered_texts = [
            [numbers.setdefault(word, len(numbers) + 1) for word in split_words(text)]
            for text in texts[start : start + TEXTS_PER_BLOCK]
        ]
        positions += [start + i for i, word_numbers in enumerate(numbered_texts) if word_numbers]
        flat, starts = _hash_shingles([word_numbers for word_numbers in numbered_texts if word_numbers])
        if len(starts) > 1:
            matrix: Any = RMinHash.digest_matrix_from_flat_token_hashes(
                flat, starts, LSH_BANDS * LSH_ROWS_PER_BAND, MINHASH_SEED
            )
            signature_blocks.append(np.array(matrix.to_rows(), np.uint32))
        progress(Progress("comparing texts", min(start + TEXTS_PER_BLOCK, len(texts)), len(texts)))
    return np.array(positions, np.int64), np.concatenate(signature_blocks)


def _hash_shingles(numbered_texts: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Hash the shingles of each text to 64 bits.

    Returns the hashes and the offset of each text. Unlike Python's `hash`, the result is equal in every process. A
    text shorter than a shingle has one hash.
    """
    padded = [list(numbers) + [0] * (SHINGLE_WORDS - len(numbers)) for numbers in numbered_texts]
    sizes = np.array([len(numbers) for numbers in padded], np.int64)
    flat = np.fromiter((word for numbers in padded for word in numbers), np.uint64, int(sizes.sum()))
    mixed = np.zeros(max(0, len(flat) - SHINGLE_WORDS + 1), np.uint64)
    for start in range(SHINGLE_WORDS):
        mixed = (mixed ^ flat[start : start + len(mixed)]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    text_ends = np.cumsum(sizes)
    is_within_text = np.ones(len(mixed), bool)  # excludes shingles that cross the end of a text
    for offset in range(1, SHINGLE_WORDS):
        is_within_text[text_ends[:-1] - offset] = False
    return mixed[is_within_text], np.concatenate([[0], np.cumsum(sizes - SHINGLE_WORDS + 1)]).astype(np.uint64)
