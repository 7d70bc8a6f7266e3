"""Token counts of a corpus, and tokenization of probe texts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.protocols import Tokenizer
from ragauge.core.records import Ints
from ragauge.core.text import replace_lone_surrogates, show_invisible
from ragauge.embedder_study.results import LongWord, Probe, TokenizerStats
from ragauge.models.optional_attributes import TokenizerAttributes

PROBE_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "plain text": "The ferry leaves the quay at noon.",
        "numbers": "3.14159 and 1,234,567 and -2e-10",
        "mixed case": "iPhone eBay McDonald NASA",
        "punctuation": 'Wait—what?! "Yes," (she said)…',
        "accents": "naïve café, Ærøskøbing, Łódź",
        "combining marks": "e\u0301le\u0300ve n\u0303",
        "Chinese and Japanese": "東京は晴れです。你好",
        "right to left": "שלום עולם مرحبا",
        "emoji": "👍🏽 👩‍🚀 🇳🇴",
        "code": "def f(x): return x**2 if x != 0 else None",
        "identifier": "assertRaisesRegexMatchingContextManager_v2",
        "URL": "https://docs.python.org/3/library/re.html#re.sub",
        "e-mail": "jane.doe+lists@mail.example.co.uk",
        "white space": "a  b\tc\n\n    d",
        "typos": "teh qiuck brwon foxx recieved",
    }
)
"""Probe texts by kind, in display order."""


def probe_tokenizer(tokenizer: Tokenizer, texts: Mapping[str, str] = PROBE_TEXTS) -> list[Probe]:
    """Tokenize each probe text.

    >>> from ragauge.models.tokenizers.basic import CharacterTokenizer as Characters
    >>> probe_tokenizer(Characters(), {"mine": "a b"})
    [Probe(kind='mine', text='a b', pieces=['a', '␣', 'b'], unknown=0)]
    """
    numbers = tokenizer.encode(list(texts.values()))
    return [
        Probe(
            kind, text, tokenizer.pieces(text), 0 if tokenizer.unknown is None else token_ids.count(tokenizer.unknown)
        )
        for (kind, text), token_ids in zip(texts.items(), numbers, strict=True)
    ]


BATCH_TEXTS = 512
"""Texts per batch; the tokens of a large corpus would not fit in memory."""
LENGTH_PERCENTILES = (5, 25, 50, 75, 95, 99)
MAX_LONG_WORDS = 10
"""Number of longest words listed."""
EXCERPT_CHARS = 24
"""Characters of the excerpt around the first difference after decoding."""


@dataclass(frozen=True)
class CorpusTextCounts:
    """Texts with their word, character and byte counts, shared by all tokenizers.

    Words are separated by white space.
    """

    texts: Sequence[str]
    words: Mapping[str, int]
    """Number of occurrences of each distinct word."""
    characters: int
    bytes: int
    """Size of the texts in UTF-8 bytes."""


def count_corpus_text(documents: Sequence[Document] | Sequence[str]) -> CorpusTextCounts:
    """Count the words, characters and bytes of texts or documents.

    Unpaired surrogates, which UTF-8 cannot encode, are replaced by U+FFFD.

    >>> found = count_corpus_text(["to be", "to bé"])
    >>> found.words, found.characters, found.bytes
    (Counter({'to': 2, 'be': 1, 'bé': 1}), 10, 11)
    """
    texts = [
        replace_lone_surrogates(document if isinstance(document, str) else document.whole) for document in documents
    ]
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split())
    sizes = (len(text) if text.isascii() else len(text.encode()) for text in texts)
    return CorpusTextCounts(texts, words, sum(map(len, texts)), sum(sizes))


def count_tokens(
    tokenizer: Tokenizer,
    documents: CorpusTextCounts | Sequence[Document] | Sequence[str],
    *,
    token_limit: int | None = None,
    marks: int | None = None,
    probes: bool | Mapping[str, str] = True,
    name: str = "",
    trained_on: str = "",
    progress: ProgressCallback = no_progress,
) -> TokenizerStats:
    """Tokenize all texts and count the tokens.

    `token_limit` is the maximum number of tokens per text, and `marks` the number of special tokens added to a text.
    Both default to the tokenizer's own values. A tokenizer with `tokens(texts)` counts the tokens checked against
    the limit itself. `probes` are texts by kind, or whether the default probes are used.

    >>> from ragauge.models.tokenizers.basic import ByteTokenizer as Bytes
    >>> found = count_tokens(Bytes(), ["to be", "to bé"], token_limit=6, probes=False)
    >>> found.tokens, found.used, found.per_word, found.truncated, found.truncated_tokens
    (11, 7, 2.75, 1, 1)
    """
    counts = documents if isinstance(documents, CorpusTextCounts) else count_corpus_text(documents)
    limit = TokenizerAttributes(tokenizer).limit if token_limit is None else token_limit
    if limit is not None and limit < 1:
        raise BadInput(f"token_limit must be at least 1, got {limit}")
    tally = _TokenTally(tokenizer, limit, marks)
    for start in range(0, len(counts.texts), BATCH_TEXTS):
        tally.take(counts.texts[start : start + BATCH_TEXTS])
        progress(Progress("tokenizing", min(start + BATCH_TEXTS, len(counts.texts)), len(counts.texts)))
    lengths: Ints = np.concatenate([*tally.lengths, np.zeros(0, np.int64)])
    texts = PROBE_TEXTS if probes is True else probes or {}
    return TokenizerStats(
        tokenizer=name or tokenizer.name,
        vocabulary=tokenizer.vocabulary,
        used=int(np.count_nonzero(tally.times)),
        documents=len(counts.texts),
        tokens=int(lengths.sum()),
        words=sum(counts.words.values()),
        characters=counts.characters,
        bytes=counts.bytes,
        per_document=_length_percentiles(lengths),
        unknown=tally.unknown,
        unknown_documents=tally.unknown_documents,
        lossless=tally.lossless if len(lengths) else None,
        limit=limit,
        truncated=tally.truncated,
        truncated_tokens=tally.truncated_tokens,
        longest=_longest_words(tokenizer, counts.words),
        probes=probe_tokenizer(tokenizer, texts),
        texts_per_second=len(lengths) / tally.seconds if tally.seconds > 0 else float("nan"),
        trained_on=trained_on,
        special_tokens=tally.special_tokens,
        first_change=tally.first_change,
    )


def model_token_counts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return the tokens per text as counted by `tokenizer.tokens`.

    Empty if it has no such method.
    """
    count_tokens = TokenizerAttributes(tokenizer).tokens
    return [] if count_tokens is None else [int(count) for count in count_tokens(list(texts))]


class _TokenTally:
    """Running token counts of a corpus."""

    def __init__(self, tokenizer: Tokenizer, limit: int | None, marks: int | None) -> None:
        self._tokenizer = tokenizer
        self._limit = limit
        self._counts_itself = marks is None
        self.special_tokens = TokenizerAttributes(tokenizer).marks if marks is None else marks
        self.truncated = self.truncated_tokens = 0
        self.lengths: list[Ints] = []
        self.times: Ints = np.zeros(max(1, tokenizer.vocabulary), np.int64)
        """Number of occurrences of each token id."""
        self.unknown = self.unknown_documents = 0
        self.lossless = True
        self.first_change = ""
        self.seconds = 0.0
        """Time spent in `encode`, in seconds."""

    def take(self, texts: Sequence[str]) -> None:
        began = time.perf_counter()
        numbers = self._tokenizer.encode(texts)
        self.seconds += time.perf_counter() - began
        lengths = np.fromiter(map(len, numbers), np.int64, len(numbers))
        flat = np.fromiter(chain.from_iterable(numbers), np.int64, int(lengths.sum()))
        if len(flat) and not 0 <= flat.min() <= flat.max() < len(self.times):
            strange = int(flat.max() if flat.max() >= len(self.times) else flat.min())
            raise BackendFailed(
                f"the tokenizer {self._tokenizer.name} returned the token {strange}, but its vocabulary has "
                f"{self._tokenizer.vocabulary:,} tokens"
            )
        self.lengths.append(lengths)
        self.times += np.bincount(flat, minlength=len(self.times))
        self._count_truncated(texts, lengths)
        if self._tokenizer.unknown is not None:
            places = np.repeat(np.arange(len(lengths)), lengths)[flat == self._tokenizer.unknown]
            self.unknown += len(places)
            self.unknown_documents += len(np.unique(places))
        if self.lossless:  # one text that is not restored decides it
            self._compare_round_trip(texts, numbers)

    def _count_truncated(self, texts: Sequence[str], lengths: Ints) -> None:
        if self._limit is None:
            return
        counted = model_token_counts(self._tokenizer, texts) if self._counts_itself else []
        beyond = np.maximum(
            (np.asarray(counted, np.int64) if counted else lengths + self.special_tokens) - self._limit, 0
        )
        self.truncated += int(np.count_nonzero(beyond))
        self.truncated_tokens += int(beyond.sum())

    def _compare_round_trip(self, texts: Sequence[str], numbers: Sequence[Sequence[int]]) -> None:
        for text, token_ids in zip(texts, numbers, strict=True):
            if (decoded := self._tokenizer.decode(token_ids)) != text:
                self.lossless = False
                self.first_change = _first_difference(text, decoded)
                return


def _first_difference(text: str, decoded: str) -> str:
    """Describe the first difference between a text and its decoded tokens.

    >>> _first_difference("To be, or not to be, that is the question", "to be, or not to be, that is the question")
    'To␣be,␣or␣not␣to␣be,␣tha… is restored as to␣be,␣or␣not␣to␣be,␣tha…'
    """
    at = next((i for i, (a, b) in enumerate(zip(text, decoded, strict=False)) if a != b), min(len(text), len(decoded)))
    start = max(0, at - EXCERPT_CHARS // 4)
    excerpts = [
        show_invisible(text[start : start + EXCERPT_CHARS]) + ("…" if len(text) > start + EXCERPT_CHARS else "")
        for text in (text, decoded)
    ]
    lead = "…" if start else ""
    return (
        f"{lead}{excerpts[0]} is restored as {lead}{excerpts[1]}"
        if decoded
        else f"{excerpts[0]} is restored as an empty text"
    )


def _length_percentiles(lengths: Ints) -> dict[str, float]:
    if not len(lengths):
        return {}
    parts = np.percentile(lengths, LENGTH_PERCENTILES).tolist()
    named = dict(zip((f"p{percentile}" for percentile in LENGTH_PERCENTILES), parts, strict=True))
    return {"mean": float(lengths.mean()), "min": float(lengths.min()), **named, "max": float(lengths.max())}


def _longest_words(tokenizer: Tokenizer, words: Mapping[str, int]) -> list[LongWord]:
    """Return the words with the most tokens; ties are broken by frequency."""
    distinct_words = list(words)
    n_pieces = np.zeros(len(distinct_words), np.int64)
    for start in range(0, len(distinct_words), BATCH_TEXTS * 16):
        batch = distinct_words[start : start + BATCH_TEXTS * 16]
        n_pieces[start : start + len(batch)] = [len(words) for words in tokenizer.encode(batch)]
    order = sorted(
        range(len(distinct_words)), key=lambda i: (-int(n_pieces[i]), -words[distinct_words[i]], distinct_words[i])
    )[:MAX_LONG_WORDS]
    return [LongWord(distinct_words[i], int(n_pieces[i]), words[distinct_words[i]]) for i in order]
