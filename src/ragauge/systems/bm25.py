"""BM25 retrieval with bm25s, which computes scores at indexing time."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput
from ragauge.core.stages import stage

if TYPE_CHECKING:
    from numpy.typing import NDArray


WORD_PATTERN = re.compile(r"\w+")
"""Pattern of a word. Single letters and digits are included, because they have meaning in code."""


class BM25:
    """Okapi BM25 as in Lucene, over title and text, with English stop words and Porter stemmer.

    The defaults k1 = 0.9 and b = 0.4 are those of Anserini's published BEIR baselines.
    """

    nested_rankings = True

    def __init__(
        self,
        documents: Sequence[Document],
        *,
        k1: float = 0.9,
        b: float = 0.4,
        method: str = "lucene",
        language: str = "english",
    ) -> None:
        import bm25s
        import Stemmer
        from bm25s.tokenization import STOPWORDS_EN

        if method not in ("lucene", "robertson", "atire", "bm25l", "bm25+"):
            raise BadInput(
                f"unknown method of bm25 `{method}`", hint="choose one of lucene, robertson, atire, bm25l, bm25+"
            )
        if not (k1 >= 0 and 0 <= b <= 1):
            raise BadInput(
                f"bm25: k1 must be at least 0 and b between 0 and 1, got k1 = {k1:g} and b = {b:g}",
                hint="use k1=0.9, b=0.4",
            )
        try:
            stemmer = Stemmer.Stemmer("porter" if language == "english" else language)
        except KeyError:
            raise BadInput(
                f"unknown language of the stemmer `{language}`", hint="choose one of " + ", ".join(Stemmer.algorithms())
            ) from None
        lock = threading.Lock()

        def stem(word: str) -> str:
            with lock:  # Stemmers have state and are not thread-safe.
                return str(stemmer.stemWord(word))

        self._stem = lru_cache(maxsize=1 << 16)(stem)
        self._stop = frozenset(STOPWORDS_EN) if language == "english" else frozenset()
        self._documents = documents
        self._ids = frozenset(document.id for document in documents)
        self._index: Any = bm25s.BM25(k1=k1, b=b, method=method)
        words_by_document = [self._words(document.whole) for document in documents]
        # The library divides by the mean length, which must not be 0. Such an index is never searched.
        self._index.index(words_by_document if any(words_by_document) else [["nothing"]], show_progress=False)
        # The library always has an entry for the empty word, the stem of `s`, even if no document contains it.
        self._columns = len(self._index.scores["indptr"]) - 1
        self._empty = not any(words_by_document)
        self.description = {"k1": k1, "b": b, "method": method, "language": language}

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def _words(self, text: str) -> list[str]:
        return [self._stem(word) for word in WORD_PATTERN.findall(text.lower()) if word not in self._stop]

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k` documents that contain a word of the query."""
        with stage("retrieve"):
            words = self._words(query)
            indexed_words = [word for word in words if self._index.vocab_dict.get(word, self._columns) < self._columns]
            if not indexed_words or self._empty:
                return []
            scores = self._index.get_scores(indexed_words)
            no_match = self._no_match_score(indexed_words)
            return [
                Hit(self._documents[i].id, float(scores[i]), self._documents[i].text, self._documents[i].metadata)
                for i in find_top_k(scores, k).tolist()
                if scores[i] > no_match
            ]

    def _no_match_score(self, words: list[str]) -> float:
        """Return the score of a document with none of the words.

        It is 0, but more for bm25l and bm25+.
        """
        absent = self._index.nonoccurrence_array
        # Summed like in the library, so that the values are equal to the last bit.
        return 0.0 if absent is None else float(absent[np.asarray(self._index.get_tokens_ids(words))].sum())


def find_top_k(scores: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the positions of the `k` highest scores, best first; ties by position.

    >>> find_top_k(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 2).tolist()
    [1, 2]
    """
    k = min(k, len(scores))
    if k < 1:
        return np.empty(0, np.int64)
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k].astype(np.int64)
