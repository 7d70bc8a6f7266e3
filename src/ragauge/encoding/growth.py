"""Quality over samples of the corpus: more documents make a query harder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ragauge.encoding.ranking import Field, all_means
from ragauge.errors import BadInput
from ragauge.lineups import Grown
from ragauge.records import Ints

SIZES = (750, 1500, 3000, 6000, 12_000, 25_000, 50_000, 100_000)


def parts(field: Field, sizes: Sequence[int] | None = None, seed: int = 0) -> dict[int, Ints]:
    """Draw nested samples of the corpus.

    Return ascending document rows by sample size. The full corpus is always the last. Every sample has all relevant
    documents, so each query can still find them. The others are drawn with the seed, and a smaller sample is a subset
    of a larger one. `sizes` defaults to the CORPUS_SIZES between the number of relevant documents and the corpus size.
    If none fits, the relevant documents alone and a size halfway are used. BadInput is raised if a given size cannot
    hold the relevant documents.
    """
    whole, needed = len(field.documents), len(field.relevant)
    if sizes is None:
        wanted = [size for size in SIZES if needed <= size < whole] or [max(needed, 1), (needed + whole) // 2]
    else:
        wanted = [size for size in sizes if size < whole]
        if wanted and min(wanted) < max(needed, 1):
            raise BadInput(
                f"a corpus of {min(wanted)} documents cannot hold the {needed} that are relevant to the queries",
                hint=f"at least {max(needed, 1)} documents, or fewer queries",
            )
    others = np.setdiff1d(np.arange(whole), field.relevant)
    drawn = np.random.default_rng(seed).permutation(others)
    return {
        size: np.sort(np.concatenate([field.relevant, drawn[: size - needed]]))
        for size in sorted({one for one in (*wanted, whole) if one <= whole})
    }


def grown(
    field: Field,
    query_vectors: Any,
    document_vectors: Any,
    sizes: Sequence[int] | None = None,
    seed: int = 0,
    *,
    confidence: float = 0.95,
    progress: Callable[[float], None] | None = None,
) -> list[Grown]:
    """Score the queries over each sample of the corpus, smallest first."""
    found = parts(field, sizes, seed)
    scores = []
    for done, (size, rows) in enumerate(found.items()):
        scores.append(field.scores(query_vectors, document_vectors, name=f"{size} documents", among=rows))
        if progress is not None:
            progress((done + 1) / len(found))
    means = all_means(scores, confidence, seed)
    return [Grown(size, mean) for size, mean in zip(found, means, strict=True)]
