"""One-word replies: which of the words it is, and how likely each of them was."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.records import NOTHING

MARGINS = " \t\r\n\"'`*_.,:;!?()[]{}#-▁ĠĊ"
"""What models put around a word, and the marks that some servers leave before a token."""
MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})
DOUBT = 0.01
"""The share of tokens that could be the beginning of several words, above which nothing is said."""
LEAST = 0.5
"""The share that the words must have of everything that could have been said; what is made of less is noise."""


def bare(text: str) -> str:
    """A word without what stands around it, in small letters."""
    return text.strip(MARGINS).casefold()


def chosen(text: str, words: Sequence[str], chances: Mapping[str, float] = NOTHING) -> str:
    """The word that a text is, as it was asked for; a text that is none of them as it is.

    One that goes on after the word and a mark is taken for the word where the probabilities of its first token say the
    same: models like to explain, and are cut off.

    >>> chosen("**Supported**.", ["supported", "unsupported"]), chosen("It is supported", ["supported"])
    ('supported', 'It is supported')
    >>> chosen("No, for Paris", ["yes", "no"], {"yes": 0.2, "no": 0.8}), chosen("No doubt", ["no"], {"no": 1.0})
    ('no', 'No doubt')
    """
    exact = next((word for word in words if bare(word) == bare(text)), None)
    if exact is None and chances:
        likely = max(chances, key=chances.__getitem__)
        if re.match(rf"{re.escape(bare(likely))}\s*([,.;:!\n]|\*\*)", text.lstrip(MARGINS).casefold()):
            exact = likely
    return text if exact is None else exact


def goes_on(text: str, word: str) -> bool:
    """Whether something comes after the word that a text is, so that it is whole even where the text is cut off.

    >>> goes_on("**No**", "no"), goes_on("No", "no")
    (True, False)
    """
    return len(text.lstrip(MARGINS).casefold()) > len(bare(word))


def probabilities(tokens: Any, words: Sequence[str], text: str) -> dict[str, float]:
    """How likely each word was where the text begins; nothing where that cannot be told.

    A token stands for the word that it is or begins; those that begin none are left out and the rest sums to 1. Before
    that it must be most of what could have been said.

    >>> top = [{"token": " yes", "logprob": -0.5}, {"token": "No", "logprob": -1.5}, {"token": "Y", "logprob": -9}]
    >>> found = probabilities([{"token": " yes", "logprob": -0.5, "top_logprobs": top}], ["yes", "no"], "yes")
    >>> round(found["yes"], 3)
    0.731
    """
    place = _place(tokens, words, text)
    if place is None:
        return {}
    mass = dict.fromkeys(words, 0.0)
    unclear = 0.0
    for token, chance in _alternatives(place).items():
        begun = _begun(token, words)
        if len(begun) == 1:
            mass[begun[0]] += chance
        elif begun:
            unclear += chance
    total = sum(mass.values())
    if total < LEAST or unclear > DOUBT * (total + unclear):
        return {}
    return {word: value / total for word, value in mass.items()}


def _place(tokens: Any, words: Sequence[str], text: str) -> Mapping[str, Any] | None:
    """Where the text begins among all tokens, which may have thoughts before it.

    That is the last place from which on they say the text, or else the first word of all.
    """
    all_of_them = [one for one in tokens if isinstance(one, Mapping)] if isinstance(tokens, list) else []
    said = [str(one.get("token", "")) for one in all_of_them]
    wanted = _plain(text)
    for at in reversed(range(len(said))):
        rest = _plain("".join(said[at:])) if wanted and _begun(said[at], words) else ""
        # What ends a reply is a token too, but no letter.
        if rest.startswith(wanted) and rest and not rest[len(wanted) :][:1].isalnum():
            return all_of_them[at]
    first = next((at for at, token in enumerate(said) if bare(token)), None)
    if first is not None and _begun(said[first], words) and wanted.startswith(bare(said[first])):
        return all_of_them[first]
    return None


def _alternatives(place: Mapping[str, Any]) -> dict[str, float]:
    """What could have been said at one place, the token that was said among them."""
    top = place.get("top_logprobs")
    found: dict[str, float] = {}
    for one in [place, *(top if isinstance(top, list) else ())]:
        chance = one.get("logprob") if isinstance(one, Mapping) else None
        if isinstance(chance, int | float) and not math.isnan(chance):
            found[str(one.get("token", ""))] = math.exp(min(0.0, chance))
    return found


def _begun(token: str, words: Sequence[str]) -> list[str]:
    """The words that a token is, or else begins."""
    start = bare(token)
    if not start:
        return []
    return [word for word in words if bare(word) == start] or [word for word in words if bare(word).startswith(start)]


def _plain(text: str) -> str:
    return " ".join(text.translate(MARKS).split()).strip(MARGINS).casefold()
