"""Input of the corpus checks: documents, judgments and thresholds."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.records import Ints
from ragauge.core.settings import Above, AtLeast, AtMost, check_settings
from ragauge.core.text import one_line
from ragauge.datasets.corpus_checks import NEAR_DUPLICATE_JACCARD, find_exact_duplicates
from ragauge.files.documents import LoadedCorpus

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
PROGRESS_INTERVAL_TEXTS = 1024
"""Number of texts between two progress reports."""

UNKNOWN_LANGUAGE = "?"


def identify_languages(texts: Sequence[str], progress: ProgressCallback = no_progress) -> list[str]:
    """Identify the language of each text as an ISO 639 code.

    `?` if too short, mixed or uncertain.
    """
    model = _load_language_model()
    guesses: list[tuple[str, float]] = []
    for index, text in enumerate(texts):
        if index % PROGRESS_INTERVAL_TEXTS == 0:
            progress(Progress("identifying languages", index, len(texts)))
        guesses.append(_guess_language(model, text, FIRST_PASS_CHARS))
    usual = next(
        (
            language
            for language, _ in Counter(
                language for language, confidence in guesses if confidence >= MIN_CONFIDENCE_MAIN
            ).most_common(1)
        ),
        UNKNOWN_LANGUAGE,
    )
    return [
        language
        if language == usual and confidence >= MIN_CONFIDENCE_MAIN
        else _confirm_language(model, texts[index], usual)
        for index, (language, confidence) in enumerate(guesses)
    ]


def _confirm_language(model: Any, text: str, usual: str) -> str:
    language, sure = _guess_language(model, text, SECOND_PASS_CHARS)
    if sure < (MIN_CONFIDENCE_MAIN if language == usual else MIN_CONFIDENCE_OTHER):
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
        raise MissingExtra("language identification", "knowledge") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def known_languages() -> list[str]:
    """Return the codes of all languages that can be identified."""
    return sorted(_load_language_model().labels)


MAX_EXAMPLES = 5
"""Maximum number of examples per finding."""
TOKEN_BATCH_TEXTS = 1024
"""Number of texts whose tokens are counted at a time."""
MAX_EXCERPT_CHARS = 60
"""Maximum number of characters of a text shown."""


@dataclass(frozen=True)
class LintThresholds:
    """Thresholds of the corpus checks."""

    min_chars: Annotated[int, AtLeast(0)] = 32
    """Texts with fewer characters are tiny."""
    max_chars: Annotated[int, AtLeast(0)] = 4096
    """Texts with more characters are giant."""
    near_duplicate: Annotated[float, Above(0), AtMost(1)] = NEAR_DUPLICATE_JACCARD
    """Minimum share of 3-word shingles that near-duplicates have in common."""
    problem_share: Annotated[float, Above(0), AtMost(1)] = 0.01
    """Share of the documents from which an otherwise tolerated finding is a problem."""
    languages: tuple[str, ...] = ()
    """Allowed languages; if empty, the most frequent language of the corpus."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.max_chars < self.min_chars:
            raise BadInput(f"max_chars must be at least min_chars ({self.min_chars:,}), got {self.max_chars:,}")


class JudgmentRows(NamedTuple):
    """Rows of a judgments file: query, document, grade."""

    source: str
    rows: Sequence[tuple[str, str, float]]


class TokenCounter(NamedTuple):
    """Token counter with the limit of its model."""

    name: str
    limit: int | None
    """Maximum number of tokens that the model reads; None for no limit."""
    counts: Callable[[Sequence[str]], Sequence[int]]


@dataclass(frozen=True, eq=False)
class LintInput:
    """All data for the corpus checks; expensive values are computed on first use."""

    corpus: LoadedCorpus
    thresholds: LintThresholds = field(default_factory=LintThresholds)
    judgments: Sequence[JudgmentRows] = ()
    tokens: TokenCounter | None = None
    progress: ProgressCallback = field(default=no_progress, repr=False)

    @cached_property
    def lengths(self) -> Ints:
        """Length of each stripped text, in characters."""
        return np.fromiter((len(text.strip()) for text in self.corpus.texts), np.int64, len(self.corpus))

    @cached_property
    def exact_duplicates(self) -> tuple[list[list[int]], list[int]]:
        """Groups of documents with the same text, and the documents without text."""
        return find_exact_duplicates(self.corpus.texts)

    @cached_property
    def languages(self) -> list[str]:
        """Language of each document; `?` if unknown."""
        return identify_languages(self.corpus.texts, self.progress)

    @cached_property
    def by_language(self) -> dict[str, int]:
        """Number of documents by language, most frequent first."""
        return dict(Counter(self.languages).most_common())

    @cached_property
    def token_counts(self) -> Ints:
        """Number of tokens of each text, regardless of the limit; empty without a counter."""
        if self.tokens is None:
            return np.zeros(0, np.int64)
        counts: list[int] = []
        total = len(self.corpus)
        for start in range(0, total, TOKEN_BATCH_TEXTS):
            part = self.corpus.texts[start : start + TOKEN_BATCH_TEXTS]
            # Lone surrogates cannot be encoded as UTF-8, and libraries fail on them.
            counts += self.tokens.counts([t if t.isascii() else t.encode("utf-8", "replace").decode() for t in part])
            self.progress(Progress("counting tokens", min(start + TOKEN_BATCH_TEXTS, total), total))
        return np.array(counts, np.int64)

    def reaches_problem_share(self, count: int) -> bool:
        """Return whether a number of documents reaches the share that makes a problem."""
        return count > 0 and count >= self.thresholds.problem_share * len(self.corpus)

    def name_examples(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Return the first few documents as text, for messages."""
        return tuple(one_line(self.corpus.called(index)) for index in indices[:MAX_EXAMPLES])


def format_share(count: int, total: int) -> str:
    """Format a share as percent; a positive share is never 0%.

    >>> format_share(1, 3), format_share(1, 20_000), format_share(12, 1000)
    ('33%', 'under 0.1%', '1.2%')
    """
    share = count / total
    return "under 0.1%" if 0 < share < 0.0005 else f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"
