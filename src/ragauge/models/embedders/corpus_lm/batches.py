"""Training batches: equal texts in equal order, regardless of the tokenizer.

A pass contains every text once. Its order, and the positions of spans (in characters), depend only on seed and pass or
step. Two models that differ only in their tokenizer see the same text in each of the same number of steps.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ragauge.core.protocols import Tokenizer
from ragauge.models.embedders.corpus_lm.networks import Hyperparameters
from ragauge.models.tokenizers.trained import text_hash

BOUNDARY_TOKEN = 0
"""Row of the boundary token, before the first token of a text and after the last."""
UNSEEN_TOKEN = 1
"""Row of all tokens without a row of their own, if not every token id has one."""
MAX_FULL_VOCABULARY = 65_536
"""Maximum vocabulary in which every id has a row; of larger ones (characters: a million) only ids seen in training."""

TokenIds = NDArray[np.int64]


class TokenRowMap:
    """Tokenizer with the table row of each of its token ids."""

    def __init__(self, tokenizer: Tokenizer, seen: Sequence[int] | None = None) -> None:
        self.tokenizer = tokenizer
        self.seen = None if seen is None else np.asarray(sorted(seen), np.int64)
        """Token ids with a row; None if all have one."""
        self.rows = tokenizer.vocabulary + 1 if self.seen is None else len(self.seen) + 2
        """Number of rows."""

    @classmethod
    def learned(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> TokenRowMap:
        """Create the map for a tokenizer from the training texts."""
        if tokenizer.vocabulary <= MAX_FULL_VOCABULARY:
            return cls(tokenizer)
        return cls(tokenizer, sorted(set(chain.from_iterable(tokenizer.encode(texts)))))

    def encode(self, texts: Sequence[str]) -> list[TokenIds]:
        """Return the rows of each text, without boundary tokens."""
        return [self._to_rows(ids) for ids in self.tokenizer.encode(texts)]

    def lost(self, texts: Sequence[str], encoded: Iterable[TokenIds]) -> list[bool]:
        """Return which texts cannot be restored from their rows."""
        is_lost = []
        for text, rows, numbers in zip(texts, encoded, self.tokenizer.encode(texts), strict=True):
            has_unseen = self.seen is not None and bool((rows == UNSEEN_TOKEN).any())
            is_lost.append(has_unseen or self.tokenizer.decode(numbers) != text)
        return is_lost

    def _to_rows(self, numbers: Sequence[int]) -> TokenIds:
        ids = np.asarray(numbers, np.int64)
        if self.seen is None:
            return ids + 1
        positions = np.minimum(np.searchsorted(self.seen, ids), max(0, len(self.seen) - 1))
        is_known = self.seen[positions] == ids if len(self.seen) else np.zeros(len(ids), np.bool_)
        return np.where(is_known, positions + 2, UNSEEN_TOKEN)


HELD_OUT_INTERVAL = 20
"""Interval of held-out texts: on average, one of this number of texts is not used for training."""
WORD_PATTERN = re.compile(r"\S+")
LETTER_PATTERN = re.compile(r"\S")
MAX_SPAN_CHARS = 200
"""Maximum number of characters of a span."""


def is_held_out(text: str) -> bool:
    """Return whether a text is held out.

    Its hash decides, so that it is the same for all models.
    """
    return text_hash(text)[0] % HELD_OUT_INTERVAL == 0


def select_training_texts(texts: Sequence[str]) -> list[str]:
    """Return the distinct texts to train on, in an order independent of the corpus."""
    return sorted({text for text in texts if text.strip() and not is_held_out(text)}, key=text_hash)


def corpus_hash(texts: Sequence[str]) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for text in texts:
        hasher.update(text_hash(text))
    return hasher.hexdigest()


class TrainingBatches:
    def __init__(self, recipe: Hyperparameters, numbering: TokenRowMap, texts: Sequence[str]) -> None:
        self._recipe = recipe
        self._numbering = numbering
        step_size = recipe.batch
        # A text that is longer than a step is split.
        parts = texts
        if recipe.objective == "next":
            parts = [text[at : at + step_size] for text in texts for at in range(0, len(text), step_size)]
        self._parts = parts
        self._encoded = numbering.encode(parts) if recipe.objective == "next" else []
        sizes = [len(part.encode("utf-8", "surrogatepass")) if recipe.objective == "next" else 1 for part in parts]
        self._steps = [
            (number, group) for number in range(recipe.passes) for group in self._step_groups(number, np.asarray(sizes))
        ]

    def __len__(self) -> int:
        return len(self._steps)

    def _step_groups(self, number: int, sizes: TokenIds) -> list[TokenIds]:
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
            groups[-2] += groups.pop()  # With few other documents a pair is too easy to find.
        return [np.asarray(group, np.int64) for group in groups]

    def rows(self, step: int) -> tuple[TokenIds, TokenIds]:
        """Return input rows and next tokens of a step.

        The texts are separated by boundary tokens. After the last token the target is -100, which the loss ignores.
        """
        _, group = self._steps[step]
        mark = np.asarray([BOUNDARY_TOKEN])
        line = np.concatenate([ids for part in group for ids in (mark, self._encoded[part])] + [mark])
        count = -(-(len(line) - 1) // self._recipe.context)
        width = -(-(len(line) - 1) // count)
        before, after = np.full(count * width, BOUNDARY_TOKEN), np.full(count * width, -100)
        before[: len(line) - 1], after[: len(line) - 1] = line[:-1], line[1:]
        return before.reshape(count, width), after.reshape(count, width)

    def pairs(self, step: int) -> tuple[list[TokenIds], list[TokenIds]]:
        """Return a short span of each text of a step, and the text around it.

        The span is removed in half of the cases, so that the model learns to recognise both the topic and equal words.
        """
        _, group = self._steps[step]
        chance = np.random.default_rng([self._recipe.seed, step, 1])
        cut = []
        for part in group:
            span, rest = split_span(self._parts[part], chance.uniform(0.1, 0.5), chance.random())
            cut.append((span, rest if chance.random() < 0.5 else span_context(self._parts[part], span)))
        max_tokens = self._recipe.context
        spans, rests = (self._numbering.encode(texts) for texts in zip(*cut, strict=True))
        return [ids[:max_tokens] for ids in spans], [ids[:max_tokens] for ids in rests]


def split_span(text: str, share: float, relative_position: float) -> tuple[str, str]:
    """Split a text into a span and the rest.

    The span has a share of the words and starts at a relative position.

    >>> split_span("to be or not to be", 0.5, 0.0), split_span("to be or not to be", 0.34, 0.5)
    (('to be or', 'not to be'), ('or not', 'to be to be'))
    """
    word_spans = [match.span() for match in WORD_PATTERN.finditer(text)]
    if len(word_spans) < 4:  # Also for languages without spaces between words.
        word_spans = [match.span() for match in LETTER_PATTERN.finditer(text)]
    count = max(1, round(share * len(word_spans)))
    first = round(relative_position * (len(word_spans) - count))
    start, stop = word_spans[first][0], word_spans[first + count - 1][1]
    rest = f"{text[:start].rstrip()} {text[stop:].lstrip()}".strip()
    return text[start:stop][:MAX_SPAN_CHARS], rest[:MAX_SPAN_CHARS] or text


def span_context(text: str, span: str) -> str:
    """Return an excerpt of a text with a span in the middle.

    It has at most `MAX_SPAN_CHARS` characters.
    """
    spare = (MAX_SPAN_CHARS - len(span)) // 2
    start = max(0, min(text.index(span) - spare, len(text) - MAX_SPAN_CHARS))
    return text[start : start + MAX_SPAN_CHARS]
