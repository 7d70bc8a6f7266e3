"""Parse one-word replies: the chosen word and the probability of each word."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.records import NOTHING

MARGINS = " \t\r\n\"'`*_.,:;!?()[]{}#-▁ĠĊ"
"""Characters that models put around a word, and marks that some servers leave before a token."""
MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})
DOUBT = 0.01
"""Maximum probability of tokens that start several words, relative to all words; above it there is no result."""
LEAST = 0.5
"""Minimum total probability of the words; below it there is no result, because the rest is noise."""


def bare(text: str) -> str:
    """Remove surrounding punctuation from a word and fold its case."""
    return text.strip(MARGINS).casefold()


def chosen(text: str, words: Sequence[str], chances: Mapping[str, float] = NOTHING) -> str:
    """Return the word that a text consists of; the text itself if it is none of them.

    A text that continues after the word and a punctuation mark counts as the word if that word also has the highest
    probability: models tend to explain their choice, and the reply is cut off.

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
    """Return whether text follows the word, which is then complete.

    >>> goes_on("**No**", "no"), goes_on("No", "no")
    (True, False)
    """
    return len(text.lstrip(MARGINS).casefold()) > len(bare(word))


def probabilities(tokens: Any, words: Sequence[str], text: str) -> dict[str, float]:
    """Compute the probability of each word at the start of a reply; empty if unclear.

    A token counts for the word that it equals or starts. Tokens that start no word are ignored, and the rest is scaled
    to a sum of 1. The result is empty if the words have less than half of the probability.

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
    """Find the token at which the reply begins, after any reasoning; None if missing.

    This is the last token from which the tokens spell the reply, or else the first one with a word.
    """
    all_of_them = [one for one in tokens if isinstance(one, Mapping)] if isinstance(tokens, list) else []
    said = [str(one.get("token", "")) for one in all_of_them]
    wanted = _plain(text)
    for at in reversed(range(len(said))):
        rest = _plain("".join(said[at:])) if wanted and _begun(said[at], words) else ""
        # The end-of-reply token may follow, but no letter or digit.
        if rest.startswith(wanted) and rest and not rest[len(wanted) :][:1].isalnum():
            return all_of_them[at]
    first = next((at for at, token in enumerate(said) if bare(token)), None)
    if first is not None and _begun(said[first], words) and wanted.startswith(bare(said[first])):
        return all_of_them[first]
    return None


def _alternatives(place: Mapping[str, Any]) -> dict[str, float]:
    """Return the probabilities of all tokens at one position, with the chosen one."""
    top = place.get("top_logprobs")
    found: dict[str, float] = {}
    for one in [place, *(top if isinstance(top, list) else ())]:
        chance = one.get("logprob") if isinstance(one, Mapping) else None
        if isinstance(chance, int | float) and not math.isnan(chance):
            found[str(one.get("token", ""))] = math.exp(min(0.0, chance))
    return found


def _begun(token: str, words: Sequence[str]) -> list[str]:
    """Return the words that equal a token, or else those that start with it."""
    start = bare(token)
    if not start:
        return []
    return [word for word in words if bare(word) == start] or [word for word in words if bare(word).startswith(start)]


def _plain(text: str) -> str:
    return " ".join(text.translate(MARKS).split()).strip(MARGINS).casefold()
