"""BM25 weights of the words of a corpus, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragauge.records import Document, Floats, Ints
from ragauge.texts import words

K1, B = 0.9, 0.4
"""BM25 parameters, as in Anserini."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Words of all documents as flat arrays.

    Document `i` is at `starts[i]:starts[i + 1]`.
    """

    vocabulary: dict[str, int]
    starts: Ints
    word: Ints
    """Indices of the distinct words of each document."""
    weight: Floats
    """BM25 weight of each word in its document: IDF times saturated term frequency."""
    lengths: Ints
    """Number of words per document, repetitions included."""

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Corpus:
        """Build the arrays from the titles and texts of documents."""
        vocabulary: dict[str, int] = {}
        columns: list[Ints] = []
        counts: list[Ints] = []
        lengths = np.zeros(len(documents), np.int64)
        for i, document in enumerate(documents):
            mine = [vocabulary.setdefault(word, len(vocabulary)) for word in words(document.whole)]
            distinct, times = np.unique(np.array(mine, np.int64), return_counts=True)
            columns.append(distinct)
            counts.append(times)
            lengths[i] = len(mine)
        sizes = np.array([len(one) for one in columns], np.int64)
        word = np.concatenate(columns) if columns else np.zeros(0, np.int64)
        often = np.concatenate(counts).astype(np.float64) if counts else np.zeros(0)
        n, has = len(documents), np.bincount(word, minlength=len(vocabulary))
        rarity = np.log1p((n - has + 0.5) / (has + 0.5))
        relative = np.repeat(lengths / max(float(lengths.mean()), 1.0) if n else lengths, sizes)
        weight = rarity[word] * often / (often + K1 * (1 - B + B * relative))
        return cls(vocabulary, np.concatenate([[0], np.cumsum(sizes)]), word, weight, lengths)

    def scores(self, query: str, documents: Ints) -> Floats:
        """Compute the BM25 scores of documents, given by position, for a query.

        >>> one = Corpus.of([Document("a", "red fox"), Document("b", "red dog"), Document("c", "a cat")])
        >>> one.scores("the fox is red", np.array([0, 1, 2])).argsort().tolist()
        [2, 1, 0]
        """
        asked = np.zeros(len(self.vocabulary))
        for word in words(query):
            if word in self.vocabulary:
                asked[self.vocabulary[word]] += 1
        sizes = self.starts[documents + 1] - self.starts[documents]
        owner = np.repeat(np.arange(len(documents)), sizes)
        rows = np.arange(int(sizes.sum())) + np.repeat(self.starts[documents] - (np.cumsum(sizes) - sizes), sizes)
        found = asked[self.word[rows]] * self.weight[rows]
        return np.bincount(owner, found, len(documents)).astype(np.float64, copy=False)
