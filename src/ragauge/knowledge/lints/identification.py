"""Language identification of texts."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ragauge.errors import MissingExtra

FIRST = 160
"""Number of characters used first; enough for most texts."""
MORE = 1500
"""Number of characters used if the first pass is uncertain or finds a minority language."""
LIKELY, SURE = 0.5, 0.9
"""Minimum probability of a guess: for the most frequent language of the corpus, and for others."""
LETTERS = 60
"""Minimum number of letters; a name or a formula has no identifiable language."""
MIXED, MOST = 1 / 3, 2 / 3
"""Shares of a text in the corpus's main language from which it is mixed, or in that language."""
ASKED = 12
"""Maximum number of sentences identified one by one, evenly spaced over the text."""
WORDS = 12
"""Minimum number of letters of a sentence."""
SENTENCES = re.compile(r"[.!?;:\n\u3002\uff01\uff1f]+\s*")
STEP = 1024
"""Number of texts between two progress reports."""

UNKNOWN = "?"


def identify(texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Identify the language of each text as an ISO 639 code.

    `?` if too short, mixed or uncertain.
    """
    model = _model()
    first: list[tuple[str, float]] = []
    for place, text in enumerate(texts):
        if progress is not None and place % STEP == 0:
            progress(place, len(texts))
        first.append(_guess(model, text, FIRST))
    usual = next((one for one, _ in Counter(one for one, sure in first if sure >= LIKELY).most_common(1)), UNKNOWN)
    return [
        one if one == usual and sure >= LIKELY else _second(model, texts[place], usual)
        for place, (one, sure) in enumerate(first)
    ]


def _second(model: Any, text: str, usual: str) -> str:
    language, sure = _guess(model, text, MORE)
    if sure < (LIKELY if language == usual else SURE):
        return UNKNOWN
    return language if usual in (language, UNKNOWN) else _whole(model, text, usual, language)


def _whole(model: Any, text: str, usual: str, other: str) -> str:
    """Return the language of most sentences; `?` if the text is mixed."""
    sentences = [one for one in SENTENCES.split(text) if sum(map(str.isalpha, one)) >= WORDS]
    step = -(-len(sentences) // ASKED) or 1
    sizes = {usual: 0, other: 0}
    for one in sentences[::step]:
        ranks = dict(model.rank(one[:FIRST]))
        sizes[usual if ranks[usual] > ranks[other] else other] += len(one)
    share = sizes[usual] / (sum(sizes.values()) or 1)
    return usual if share >= MOST else UNKNOWN if share >= MIXED else other


def _guess(model: Any, text: str, most: int) -> tuple[str, float]:
    part = text[:most]
    if sum(map(str.isalpha, part)) < _least(part):
        return UNKNOWN, 0.0
    language, sure = model.classify(part)
    return str(language), float(sure)


def _least(text: str) -> int:
    """Return the minimum number of letters; a third for Chinese, Japanese and Korean."""
    return LETTERS // 3 if any("\u3040" <= c <= "\ud7a3" for c in text[:LETTERS]) else LETTERS


@functools.cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise MissingExtra("telling languages", "knowledge") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def known_languages() -> list[str]:
    """Return the codes of all languages that can be identified."""
    return sorted(_model().labels)
