"""How much of a claim a source has, and whether it says the opposite."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ragauge.judges.lexical.words import Word, words
from ragauge.judges.sentences import sentences

KNOWN = 0.5
"""What a word counts, of its weight, that the question or the conversation had already: it is hardly new."""
ALONE = 0.85
"""What a word counts, of its weight, that the source has, but never in one sentence with a neighbour from the claim."""
GOODWILL = 1.0
"""The weight of one plain word, granted to every claim, so that a short one does not fall with a single synonym."""
DENIED = 0.8
"""The share of a claim that one sentence must have before a negation in it counts against the claim."""
MERELY = frozenset({"only", "just", "necessari", "mer"})
"""What follows a `not` that denies nothing."""
CONDITIONS = frozenset({"if", "unless"})


@dataclass(frozen=True)
class Source:
    """A text that is made ready to be looked into."""

    where: Mapping[str, int]
    """By word, the sentences that have it: bits of a number."""
    sentences: Sequence[Sequence[Word]]


def prepared(text: str) -> Source:
    """A text, taken apart."""
    found = [words(one) for one in sentences(text)]
    where: dict[str, int] = {}
    for place, sentence in enumerate(found):
        for word in sentence:
            where[word.key] = where.get(word.key, 0) | 1 << place
    return Source(where, found)


def joined(sources: Sequence[Source]) -> Source:
    """Several texts as one."""
    if len(sources) == 1:
        return sources[0]
    where: dict[str, int] = {}
    found: list[Sequence[Word]] = []
    for source in sources:
        for key, places in source.where.items():
            where[key] = where.get(key, 0) | places << len(found)
        found.extend(source.sentences)
    return Source(where, found)


def degree(claim: Sequence[Word], where: Mapping[str, int], known: frozenset[str]) -> float:
    """How much of a claim a source has, between 0 and 1: the share of its words, weighed.

    A word counts by its kind (`words.WEIGHTS`); half where the conversation had it already; a little less where the
    source has it only apart from the claim's neighbouring words. One plain word is granted. These numbers were chosen
    on labelled collections, by what orders answers best on all of them; the degree is no probability.

    >>> source = prepared("The museum opened in Paris.")
    >>> round(degree(words("It opened in Paris in 1987."), source.where, frozenset()), 3)
    0.561
    """
    telling = [where.get(word.key, 0) for word in claim if word.tells]
    whole = found = 0.0
    place = -1
    for word in claim:
        weight = word.weight * (KNOWN if word.key in known else 1.0)
        whole += weight
        here = where.get(word.key, 0)
        if not word.tells:
            found += weight if here else 0.0
            continue
        place += 1
        if here:
            beside = telling[max(place - 1, 0) : place] + telling[place + 1 : place + 2]
            near = sum(1 for one in beside if one & here) / len(beside) if beside else 1.0
            found += weight * (ALONE + (1 - ALONE) * near)
    return (found + GOODWILL) / (whole + GOODWILL)


def denies(claim: Sequence[Word], source: Source) -> bool:
    """Whether a source says the opposite of a claim, as far as negations tell.

    It does if each of its sentences that has the words of the claim has a negation in their midst or right before them
    where the claim has none, or has none at all where the claim has one. Conditions say nothing of what is, and a
    phrase of one or two words is too little to be denied by what surrounds it.

    >>> denies(words("The museum opened in Paris."), prepared("The museum has not opened in Paris."))
    True
    """
    telling = {word.key: word.weight for word in claim if word.tells}
    negative = _negations(claim) % 2 == 1
    if len(telling) < (2 if negative else 3) or any(word.key in CONDITIONS for word in claim):
        return False
    enough, seen = DENIED * sum(telling.values()), False
    for sentence in source.sentences:
        places = [place for place, word in enumerate(sentence) if word.key in telling]
        if sum(telling[key] for key in {sentence[place].key for place in places}) < enough:
            continue
        close = sentence[max(places[0] - 1, 0) : places[-1] + 1]
        if negative and _negations(sentence) > 0:
            return False
        if not negative and (_negations(close) % 2 == 0 or len(close) > 2 * len(claim)):
            return False
        seen = seen or all(word.key not in CONDITIONS for word in sentence)
    return seen


def _negations(found: Sequence[Word]) -> int:
    """How many words turn it round; `not only`, `No. 5` and a `No` at the beginning do not."""
    return sum(
        word.negates and not (after and (after.key in MERELY or after.kind == "number"))
        for place, (word, after) in enumerate(zip_longest(found, found[1:]))
        if word and (place or word.key != "no")
    )


def needed(claim: Sequence[Word], sources: Mapping[str, Source], known: frozenset[str], enough: float) -> list[str]:
    """The sources that together have enough of a claim, where none has alone: whatever adds most comes first.

    Where its words are all there and still too far apart, every source is needed; there may be no such sources.
    """
    chosen: list[str] = []
    where: dict[str, int] = {}
    while degree(claim, where, known) < enough:
        left = [name for name in sources if name not in chosen]
        gains = {
            name: sum(word.weight for word in claim if word.key not in where and word.key in sources[name].where)
            for name in left
        }
        best = max(left, key=lambda name: gains[name], default=None)
        if best is None or not gains[best]:
            every = joined(list(sources.values())).where if sources else {}
            return list(sources) if degree(claim, every, known) >= enough else []
        chosen.append(best)
        where = dict(joined([sources[name] for name in chosen]).where)
    return chosen


class Library:
    """Texts that were made ready, kept for when they come again."""

    def __init__(self, size: int = 4096) -> None:
        self.words = functools.lru_cache(maxsize=size)(words)
        self.source = functools.lru_cache(maxsize=size)(prepared)
        self.together = functools.lru_cache(maxsize=size // 8)(self._together)
        self.known = functools.lru_cache(maxsize=size // 8)(self._known)

    def _together(self, texts: tuple[str, ...]) -> Source:
        return joined([self.source(text) for text in texts])

    def _known(self, texts: tuple[str, ...]) -> frozenset[str]:
        return frozenset(word.key for text in texts for word in self.words(text))
