"""One-word replies: which of the words it is, and how likely each of them was."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.records import NOTHING

MARGINS = " \t\r\n\"'`*_.,:;!?()[]{}#-▁Ġ"
"""What models put around a word, and the marks that some servers leave before a token."""
DOUBT = 0.01
"""The share of tokens that could be the beginning of several words, above which nothing is said."""


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


def probabilities(tokens: Any, words: Sequence[str]) -> dict[str, float]:
    """How likely each word was, from the first token that holds letters; nothing where that cannot be told.

    A token stands for the word that it is or begins; those that begin none are left out and the rest sums to 1.

    >>> top = [{"token": " yes", "logprob": -0.5}, {"token": "No", "logprob": -1.5}, {"token": "Y", "logprob": -9}]
    >>> found = probabilities([{"token": " yes", "logprob": -0.5, "top_logprobs": top}], ["yes", "no"])
    >>> round(found["yes"], 3)
    0.731
    """
    place = next((one for one in tokens or () if isinstance(one, Mapping) and bare(str(one.get("token", "")))), None)
    if place is None:
        return {}
    mass = dict.fromkeys(words, 0.0)
    unclear = 0.0
    for one in place.get("top_logprobs") or [place]:
        token, chance = bare(str(one.get("token", ""))), one.get("logprob")
        if not token or not isinstance(chance, int | float):
            continue
        exact = [word for word in words if bare(word) == token]
        begun = exact or [word for word in words if bare(word).startswith(token)]
        if len(begun) == 1:
            mass[begun[0]] += math.exp(chance)
        elif begun:
            unclear += math.exp(chance)
    total = sum(mass.values())
    if total <= 0 or unclear > DOUBT * (total + unclear):
        return {}
    return {word: value / total for word, value in mass.items()}
