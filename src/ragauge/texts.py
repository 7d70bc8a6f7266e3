"""Texts made comparable: the one place where words are cut, case is folded and white space is closed up."""

from __future__ import annotations

import re
import unicodedata

WORD = re.compile(r"\w+")
SHINGLE = 3
"""Words of a shingle."""


def normalised(text: str) -> str:
    r"""A text with its case folded, its compatibility forms undone, and every stretch of white space one blank.

    >>> normalised(" The  \ufb01rst\nLINE ")
    'the first line'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text: str) -> list[str]:
    """The words of a text, in order: what is between punctuation and white space, normalised.

    >>> words("It's 3.5 kg, the BOX")
    ['it', 's', '3', '5', 'kg', 'the', 'box']
    """
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The stretches of three words that a text has; a shorter text is one stretch, an empty one has none.

    >>> sorted(shingles("to be or not")), sorted(shingles("To be"))
    ([('be', 'or', 'not'), ('to', 'be', 'or')], [('to', 'be')])
    """
    found = words(text)
    if len(found) < SHINGLE:
        return frozenset([tuple(found)] if found else [])
    return frozenset(zip(*(found[start:] for start in range(SHINGLE)), strict=False))
