"""Language of each document of a corpus."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ragauge.core.errors import MissingExtra

FIRST_PASS_CHARS = 160
"""Number of characters used first; enough for most texts."""
SECOND_PASS_CHARS = 1500
"""Number of characters used if the first pass is uncertain or finds a minority language."""
MIN_CONFIDENCE_MAIN, MIN_CONFIDENCE_OTHER = 0.5, 0.9
"""Minimum probability of a guess: for the most frequent language of the corpus, and for others."""
MIN_LETTERS = 60
"""Minimum number of letters; a name or a formula has no identifiable language."""
MIXED_SHARE, MAIN_LANGUAGE_SHARE = 1 / 3, 2 / 3
"""Shares of a text in the corpus's main language from which it is mixed, or in that language."""
MAX_SENTENCES = 12
"""Maximum number of sentences identified one by one, evenly spaced over the text."""
MIN_SENTENCE_LETTERS = 12
"""Minimum number of letters of a sentence."""
SENTENCE_END_PATTERN = re.compile(r"[.!?;:\n\u3002\uff01\uff1f]+\s*")

UNKNOWN_LANGUAGE = "?"


def identify_languages(texts: Sequence[str]) -> list[str]:
    """Identify the language of each text as an ISO 639 code.

    `?` if too short, mixed or uncertain.
    """
    model = _load_language_model()
    guesses = [_guess_language(model, text, FIRST_PASS_CHARS) for text in texts]
    confident = Counter(language for language, confidence in guesses if confidence >= MIN_CONFIDENCE_MAIN)
    usual = max(confident, key=confident.__getitem__, default=UNKNOWN_LANGUAGE)
    return [
        language if language == usual and confidence >= MIN_CONFIDENCE_MAIN else _confirm_language(model, text, usual)
        for text, (language, confidence) in zip(texts, guesses, strict=True)
    ]


def _confirm_language(model: Any, text: str, usual: str) -> str:
    language, confidence = _guess_language(model, text, SECOND_PASS_CHARS)
    if confidence < (MIN_CONFIDENCE_MAIN if language == usual else MIN_CONFIDENCE_OTHER):
        return UNKNOWN_LANGUAGE
    return language if usual in (language, UNKNOWN_LANGUAGE) else _main_language(model, text, usual, language)


def _main_language(model: Any, text: str, usual: str, other: str) -> str:
    """Return the language of most sentences; `?` if the text is mixed."""
    sentences = [
        sentence
        for sentence in SENTENCE_END_PATTERN.split(text)
        if sum(map(str.isalpha, sentence)) >= MIN_SENTENCE_LETTERS
    ]
    step = -(-len(sentences) // MAX_SENTENCES) or 1
    sizes = {usual: 0, other: 0}
    for sentence in sentences[::step]:
        ranks = dict(model.rank(sentence[:FIRST_PASS_CHARS]))
        sizes[usual if ranks[usual] > ranks[other] else other] += len(sentence)
    share = sizes[usual] / (sum(sizes.values()) or 1)
    return usual if share >= MAIN_LANGUAGE_SHARE else UNKNOWN_LANGUAGE if share >= MIXED_SHARE else other


def _guess_language(model: Any, text: str, max_chars: int) -> tuple[str, float]:
    part = text[:max_chars]
    if sum(map(str.isalpha, part)) < _min_letters(part):
        return UNKNOWN_LANGUAGE, 0.0
    language, confidence = model.classify(part)
    return str(language), float(confidence)


def _min_letters(text: str) -> int:
    """Return the minimum number of letters; a third for Chinese, Japanese and Korean."""
    return MIN_LETTERS // 3 if any("\u3040" <= c <= "\ud7a3" for c in text[:MIN_LETTERS]) else MIN_LETTERS


@functools.cache
def _load_language_model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise MissingExtra("language identification", "audit") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
