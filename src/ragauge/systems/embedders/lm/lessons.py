"""What a network is shown, step by step: the same texts in the same order, however they are cut into tokens.

A pass shows every text once. Its order is drawn from the seed and the pass alone, and so is where spans are cut, in
characters: two models that differ in nothing but their tokenizer see the same text in each of as many steps.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from ragauge.systems.embedders.lm.numbering import MARK, Numbering, Numbers
from ragauge.systems.embedders.lm.recipes import Recipe
from ragauge.systems.tokenizers.trained import text_hash

HELD_OUT = 20
"""One text in so many is never learned from."""
WORD = re.compile(r"\S+")
LETTER = re.compile(r"\S")
SPAN = 200
"""Characters of a span at most."""


def is_held_out(text: str) -> bool:
    """Whether a text is kept back. Its own hash decides, so that all models are asked about the same ones."""
    return text_hash(text)[0] % HELD_OUT == 0


def taught(texts: Sequence[str]) -> list[str]:
    """The texts that are learned from: each once, in an order that is theirs and not the corpus's."""
    return sorted({text for text in texts if text.strip() and not is_held_out(text)}, key=text_hash)


def corpus_hash(texts: Sequence[str]) -> str:
    """What tells one set of texts from another."""
    whole = hashlib.blake2b(digest_size=16)
    for text in texts:
        whole.update(text_hash(text))
    return whole.hexdigest()


class Lessons:
    """All steps of a training."""

    def __init__(self, recipe: Recipe, numbering: Numbering, texts: Sequence[str]) -> None:
        self._recipe = recipe
        self._numbering = numbering
        most = recipe.batch
        # A text that is longer than a step is taken in parts.
        parts = texts
        if recipe.objective == "next":
            parts = [text[at : at + most] for text in texts for at in range(0, len(text), most)]
        self._parts = parts
        self._encoded = numbering.encode(parts) if recipe.objective == "next" else []
        sizes = [len(part.encode("utf-8", "surrogatepass")) if recipe.objective == "next" else 1 for part in parts]
        self._steps = [
            (number, group) for number in range(recipe.passes) for group in self._groups(number, np.asarray(sizes))
        ]

    def __len__(self) -> int:
        return len(self._steps)

    def _groups(self, number: int, sizes: Numbers) -> list[Numbers]:
        order = np.random.default_rng([self._recipe.seed, number]).permutation(len(sizes))
        groups: list[list[int]] = [[]]
        room = self._recipe.batch
        for part in order.tolist():
            if groups[-1] and room < sizes[part]:
                groups.append([])
                room = self._recipe.batch
            groups[-1].append(part)
            room -= int(sizes[part])
        if len(groups) > 1 and self._recipe.objective == "pairs" and len(groups[-1]) < self._recipe.batch // 2:
            groups[-2] += groups.pop()  # among few others a pair is found too easily
        return [np.asarray(group, np.int64) for group in groups]

    def rows(self, step: int) -> tuple[Numbers, Numbers]:
        """The texts of a step one after another, with marks between them, in rows; and what comes next at each place.

        Where a row is longer than what is left, -100 comes next, which is not counted.
        """
        _, group = self._steps[step]
        mark = np.asarray([MARK])
        line = np.concatenate([one for part in group for one in (mark, self._encoded[part])] + [mark])
        count = -(-(len(line) - 1) // self._recipe.context)
        width = -(-(len(line) - 1) // count)
        before, after = np.full(count * width, MARK), np.full(count * width, -100)
        before[: len(line) - 1], after[: len(line) - 1] = line[:-1], line[1:]
        return before.reshape(count, width), after.reshape(count, width)

    def pairs(self, step: int) -> tuple[list[Numbers], list[Numbers]]:
        """Of each text of a step a span, as short as a question, and the text: in every second case without the span.

        Without it, what a text says elsewhere must be recognised; with it, words that are the same must.
        """
        _, group = self._steps[step]
        chance = np.random.default_rng([self._recipe.seed, step, 1])
        cut = []
        for part in group:
            span, rest = parted(self._parts[part], chance.uniform(0.1, 0.5), chance.random())
            cut.append((span, rest if chance.random() < 0.5 else around(self._parts[part], span)))
        most = self._recipe.context
        spans, rests = (self._numbering.encode(side) for side in zip(*cut, strict=True))
        return [one[:most] for one in spans], [one[:most] for one in rests]


def parted(text: str, share: float, place: float) -> tuple[str, str]:
    """A span of a text and the rest of it: so large a share of its words, and so far from its beginning.

    >>> parted("to be or not to be", 0.5, 0.0), parted("to be or not to be", 0.34, 0.5)
    (('to be or', 'not to be'), ('or not', 'to be to be'))
    """
    words = [found.span() for found in WORD.finditer(text)]
    if len(words) < 4:  # also in languages that do not part their words
        words = [found.span() for found in LETTER.finditer(text)]
    count = max(1, round(share * len(words)))
    first = round(place * (len(words) - count))
    start, stop = words[first][0], words[first + count - 1][1]
    rest = f"{text[:start].rstrip()} {text[stop:].lstrip()}".strip()
    return text[start:stop][:SPAN], rest[:SPAN] or text


def around(text: str, span: str) -> str:
    """As much of a text as is read at once, with a span of it in the middle."""
    spare = (SPAN - len(span)) // 2
    start = max(0, min(text.index(span) - spare, len(text) - SPAN))
    return text[start : start + SPAN]
