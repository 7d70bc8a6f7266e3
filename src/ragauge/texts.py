"""Normalisation of texts for comparison: words, shingles, case folding and white space."""

from __future__ import annotations

import re
import unicodedata

WORD = re.compile(r"\w+")
SHINGLE = 3
"""Number of words per shingle."""


def normalised(text: str) -> str:
    r"""Normalise a text: NFKC, case folding, and single blanks as white space.

    >>> normalised(" The  \ufb01rst\nLINE ")
    'the first line'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text: str) -> list[str]:
    """Split a text into normalised words, without punctuation.

    >>> words("It's 3.5 kg, the BOX")
    ['it', 's', '3', '5', 'kg', 'the', 'box']
    """
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Find the distinct 3-word shingles of a text; a shorter text is one shingle.

    An empty text has none.

    >>> sorted(shingles("to be or not")), sorted(shingles("To be"))
    ([('be', 'or', 'not'), ('to', 'be', 'or')], [('to', 'be')])
    """
    found = words(text)
    if len(found) < SHINGLE:
        return frozenset([tuple(found)] if found else [])
    return frozenset(zip(*(found[start:] for start in range(SHINGLE)), strict=False))
