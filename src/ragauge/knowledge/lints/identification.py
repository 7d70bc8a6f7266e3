"""Which language a text is in."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ragauge.errors import MissingExtra

FIRST = 160
"""Characters that are looked at first: enough for most texts."""
MORE = 1500
"""Characters that are looked at where these did not tell, or told another language than that of most."""
LIKELY, SURE = 0.5, 0.9
"""How sure a guess must be: of the language that most texts are in, and of any other."""
LETTERS = 60
"""Below so many letters nobody can tell; a name or a formula is in any language."""
MIXED, MOST = 1 / 3, 2 / 3
"""The parts of a text in the language of most texts that make it nobody's, and one of theirs."""
ASKED = 12
"""Sentences of a text that are asked one by one, spread over all of it."""
WORDS = 12
"""Letters of a sentence, at least."""
SENTENCES = re.compile(r"[.!?;:\n\u3002\uff01\uff1f]+\s*")
STEP = 1024
"""Texts between two reports of progress."""

UNKNOWN = "?"


def identify(texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> list[str]:
    """The language of each text as an ISO 639 code; `?` where it is too short, or has too little of any."""
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
    """The language of most sentences; `?` where a third of the text is in the language that most texts are in."""
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
    """A third of the letters where a letter is a syllable or a word: Chinese, Japanese, Korean."""
    return LETTERS // 3 if any("\u3040" <= c <= "\ud7a3" for c in text[:LETTERS]) else LETTERS


@functools.cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise MissingExtra("telling languages", "knowledge") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def known_languages() -> list[str]:
    """The codes of all languages that can be told."""
    return sorted(_model().labels)
