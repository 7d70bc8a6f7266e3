"""Matching of words between claims and sources, for the lexical judge."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ragauge.core.text import split_sentences
from ragauge.judging.lexical_text import Word, parse_words

KNOWN_WORD_FACTOR = 0.5
"""Weight factor of words that already occur in the question or the conversation."""
ISOLATED_WORD_FACTOR = 0.85
"""Weight factor of words that the source never has in one sentence with a neighbour from the claim."""
FREE_WEIGHT = 1.0
"""Weight granted to every claim, so that one synonym does not decide a short claim."""
MIN_DENIED_SHARE = 0.8
"""Share of a claim that a sentence must contain before a negation in it contradicts the claim."""
NON_NEGATING_FOLLOWERS = frozenset({"only", "just", "necessari", "mer"})
"""Word stems after `not` that make it no negation."""
CONDITION_WORDS = frozenset({"if", "unless"})


@dataclass(frozen=True)
class SourceWords:
    """Words of a source text, indexed for matching."""

    sentences_by_word: Mapping[str, int]
    """Sentences that contain each word, as bits of an integer."""
    sentences: Sequence[Sequence[Word]]


def prepare_source(text: str) -> SourceWords:
    """Split a text into sentences and words, and index them."""
    sentences = [parse_words(sentence) for sentence in split_sentences(text)]
    where: dict[str, int] = {}
    for index, sentence in enumerate(sentences):
        for word in sentence:
            where[word.key] = where.get(word.key, 0) | 1 << index
    return SourceWords(where, sentences)


def join_sources(sources: Sequence[SourceWords]) -> SourceWords:
    if len(sources) == 1:
        return sources[0]
    where: dict[str, int] = {}
    sentences: list[Sequence[Word]] = []
    for source in sources:
        for key, bits in source.sentences_by_word.items():
            where[key] = where.get(key, 0) | bits << len(sentences)
        sentences.extend(source.sentences)
    return SourceWords(where, sentences)


def support_degree(claim: Sequence[Word], where: Mapping[str, int], known_keys: frozenset[str]) -> float:
    """Return the weighted share of a claim's words in a source, from 0 to 1.

    Words are weighted by kind (`KIND_WEIGHTS`): half if the conversation already has them, and a little less if the
    source has them only apart from their neighbours in the claim. `FREE_WEIGHT` is granted. These constants were
    chosen on labelled datasets, to order answers best on all of them. The degree is not a probability.

    >>> source = prepare_source("The museum opened in Paris.")
    >>> round(support_degree(parse_words("It opened in Paris in 1987."), source.sentences_by_word, frozenset()), 3)
    0.561
    """
    word_bits = [where.get(word.key, 0) for word in claim if word.is_content]
    total = matched = 0.0
    index = -1
    for word in claim:
        weight = word.weight * (KNOWN_WORD_FACTOR if word.key in known_keys else 1.0)
        total += weight
        sentence_bits = where.get(word.key, 0)
        if not word.is_content:
            matched += weight if sentence_bits else 0.0
            continue
        index += 1
        if sentence_bits:
            neighbours = word_bits[max(index - 1, 0) : index] + word_bits[index + 1 : index + 2]
            near_share = sum(1 for bits in neighbours if bits & sentence_bits) / len(neighbours) if neighbours else 1.0
            matched += weight * (ISOLATED_WORD_FACTOR + (1 - ISOLATED_WORD_FACTOR) * near_share)
    return (matched + FREE_WEIGHT) / (total + FREE_WEIGHT)


def is_contradicted(claim: Sequence[Word], source: SourceWords) -> bool:
    """Return whether a source contradicts a claim, judging by negations only.

    It does if every sentence with the words of an affirmative claim has a negation among or right before them, or if
    no such sentence has a negation and the claim is negated. Conditional claims are never contradicted, and at least
    one of the sentences must not be conditional. Claims of one or two words are too short to be contradicted.

    >>> is_contradicted(parse_words("The museum opened in Paris."),
    ...     prepare_source("The museum has not opened in Paris."))
    True
    """
    weights = {word.key: word.weight for word in claim if word.is_content}
    negative = _count_negations(claim) % 2 == 1
    if len(weights) < (2 if negative else 3) or any(word.key in CONDITION_WORDS for word in claim):
        return False
    min_weight, is_unconditional = MIN_DENIED_SHARE * sum(weights.values()), False
    for sentence in source.sentences:
        positions = [position for position, word in enumerate(sentence) if word.key in weights]
        if sum(weights[key] for key in {sentence[position].key for position in positions}) < min_weight:
            continue
        excerpt = sentence[max(positions[0] - 1, 0) : positions[-1] + 1]
        if negative and _count_negations(sentence) > 0:
            return False
        if not negative and (_count_negations(excerpt) % 2 == 0 or len(excerpt) > 2 * len(claim)):
            return False
        is_unconditional = is_unconditional or all(word.key not in CONDITION_WORDS for word in sentence)
    return is_unconditional


def _count_negations(words: Sequence[Word]) -> int:
    """Count the words that negate; `not only`, `No. 5` and an initial `No` do not."""
    return sum(
        word.is_negation and not (after and (after.key in NON_NEGATING_FOLLOWERS or after.kind == "number"))
        for position, (word, after) in enumerate(zip_longest(words, words[1:]))
        if word and (position or word.key != "no")
    )


def find_needed_sources(
    claim: Sequence[Word], sources: Mapping[str, SourceWords], known_keys: frozenset[str], min_degree: float
) -> list[str]:
    """Return the sources that support a claim only together.

    Chosen greedily, by the weight of the words that each adds. If the words are all present but too far apart, all
    sources are returned. Empty if even all sources are not enough.
    """
    chosen: list[str] = []
    where: dict[str, int] = {}
    while support_degree(claim, where, known_keys) < min_degree:
        remaining = [name for name in sources if name not in chosen]
        gains = {
            name: sum(
                word.weight for word in claim if word.key not in where and word.key in sources[name].sentences_by_word
            )
            for name in remaining
        }
        best = max(remaining, key=lambda name: gains[name], default=None)
        if best is None or not gains[best]:
            all_words = join_sources(list(sources.values())).sentences_by_word if sources else {}
            return list(sources) if support_degree(claim, all_words, known_keys) >= min_degree else []
        chosen.append(best)
        where = dict(join_sources([sources[name] for name in chosen]).sentences_by_word)
    return chosen


class PreparedTexts:
    def __init__(self, size: int = 4096) -> None:
        self.words = functools.lru_cache(maxsize=size)(parse_words)
        self.source = functools.lru_cache(maxsize=size)(prepare_source)
        self.together = functools.lru_cache(maxsize=size // 8)(self._join_texts)
        self.known = functools.lru_cache(maxsize=size // 8)(self._known_word_keys)

    def _join_texts(self, texts: tuple[str, ...]) -> SourceWords:
        return join_sources([self.source(text) for text in texts])

    def _known_word_keys(self, texts: tuple[str, ...]) -> frozenset[str]:
        return frozenset(word.key for text in texts for word in self.words(text))


MAX_MISSING_WORDS_SHOWN = 6
"""Maximum number of missing words listed in a verdict."""


def list_missing_words(label: str, words: Sequence[Word], present: Mapping[str, int]) -> str:
    """List the words that were not found, by descending weight."""
    missing = sorted(
        (word for word in words if word.is_content and word.key not in present), key=lambda word: -word.weight
    )
    quoted = list(dict.fromkeys(f'"{word.text}"' for word in missing))
    return (
        f"{label}: {', '.join(quoted[:MAX_MISSING_WORDS_SHOWN])}{' …' if len(quoted) > MAX_MISSING_WORDS_SHOWN else ''}"
        if quoted
        else ""
    )
