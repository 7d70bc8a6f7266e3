"""Words for comparison: case-folded, lightly stemmed, with normalised numbers and weights."""

from __future__ import annotations

import functools
import re
import unicodedata
from html import unescape
from typing import NamedTuple

from ragauge.judges.lexical.vocabulary import GENERAL, NEGATIONS, NUMBERS, ORDINALS, PERSONAL, STOP

WEIGHTS = {"number": 3.0, "name": 2.0, "word": 1.0, "personal": 1.0, "general": 0.5, "stop": 0.25}
"""Weight of a word by its kind. A missing number or name counts most against a claim."""

WORD = re.compile(
    r"""\d+(?:,\d{3})+(?:\.\d+)?(?!\d) | \d+\.\d+(?![.\d]) | \d+(?:st|nd|rd|th)\b  # 1,000 and 3.5 and 2nd
      | [\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]                                    # no spaces between words: signs
      | [^\W_]+(?:['\u2019][^\W\d_]+)*
    """,
    re.VERBOSE,
)
NUMBER = re.compile(r"(\d[\d,]*)(\.\d+)?(?:st|nd|rd|th)?")


class Word(NamedTuple):
    """A word of a text, normalised for comparison."""

    key: str
    """Normalised form used for comparison."""
    text: str
    """Original spelling."""
    kind: str
    """Kind of the word, a key of `KIND_WEIGHTS`."""
    negates: bool = False

    @property
    def weight(self) -> float:
        """Weight of the word by its kind."""
        return WEIGHTS[self.kind]

    @property
    def tells(self) -> bool:
        """Whether the word has content, i.e. is not a stop word."""
        return self.kind != "stop"


@functools.lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Remove the most common endings of a word.

    Words with equal stems are treated as equal.

    >>> [stem(word) for word in ("companies", "company", "stopped", "stops", "boxes", "glass", "quickly", "used")]
    ['company', 'company', 'stop', 'stop', 'box', 'glass', 'quick', 'us']
    """
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ingly", "edly", "ing", "ed", "ly"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 2 and any(vowel in rest for vowel in "aeiouy"):
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            word = rest[:-1] if doubled else rest
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def number(text: str) -> str | None:
    """Normalise a number; None if the text is not a number.

    >>> [number(text) for text in ("1,000", "1000.0", "2nd", "007", "3.50", "B52")]
    ['1000', '1000', '2', '7', '3.5', None]
    """
    found = NUMBER.fullmatch(text)
    if found is None:
        return None
    part = (found[2] or "").rstrip("0").rstrip(".")
    return (found[1].replace(",", "").lstrip("0") or "0") + part


def words(text: str) -> list[Word]:
    """Split a text into words; a capital letter at its start does not mark a name.

    >>> [(word.key, word.kind) for word in words("Three firms in Paris paid 1,000 dollars.")]
    [('3', 'number'), ('firm', 'word'), ('in', 'stop'), ('paris', 'name'), ('paid', 'word'), ('1000', 'number'), \
('dollar', 'word')]
    """
    found = [_word(one) for one in WORD.findall(unescape(text) if "&" in text else text)]
    if found and found[0].kind == "name" and not any(sign.isdigit() for sign in found[0].text):
        found[0] = found[0]._replace(kind="word")
    return found


def keys(found: list[Word]) -> frozenset[str]:
    """Return the set of normalised forms of words."""
    return frozenset(word.key for word in found)


@functools.lru_cache(maxsize=1 << 16)
def _word(text: str) -> Word:
    plain = _folded(text).replace("\u2019", "'")
    figure = number(plain)
    if figure is not None:
        return Word(figure, text, "number")
    base, _, tail = plain.partition("'")
    if tail == "t" and base.endswith("n"):
        return Word(base, text, "stop", negates=True)
    plain = base if tail and len(tail) <= 2 else plain.replace("'", "")  # it's, they'll, Anna's
    for kind, listed in (("stop", NEGATIONS), ("stop", STOP), ("personal", PERSONAL)):
        if plain in listed:
            return Word(plain, text, kind, negates=plain in NEGATIONS)
    if plain in NUMBERS:
        return Word(str(NUMBERS[plain]), text, "number")
    if plain in ORDINALS:
        return Word(str(ORDINALS[plain]), text, "word")
    key = stem(plain)
    if key in STOP or key in NEGATIONS or key in PERSONAL:
        key = plain  # "noted" is not "not"
    if key in _GENERAL:
        return Word(key, text, "general")
    return Word(key, text, "name" if text[:1].isupper() or any(sign.isdigit() for sign in text) else "word")


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign for sign in apart if not unicodedata.combining(sign))


_GENERAL = frozenset(stem(word) for word in GENERAL)
