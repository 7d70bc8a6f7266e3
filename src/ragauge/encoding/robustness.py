"""Robustness against perturbed queries: the quality that remains and the loss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ragauge.comparisons import Method
from ragauge.datasets.perturbed import RATE, Perturbation, Rarity, find, perturbed
from ragauge.encoding.ranking import as_gap, pair_of
from ragauge.errors import BadInput
from ragauge.lineups import Gap, Shaken
from ragauge.outcomes import Mean
from ragauge.records import Floats, Scores
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.pairs import compared
from ragauge.texts import words

STANDARD = (
    *("keyboard", "swap", "drop", "rare word", "common word"),
    *("upper case", "random case", "accents added", "look alikes", "zero width"),
    *("joined words", "split words", "double spaces", "no punctuation"),
)
"""Perturbations evaluated by default."""
Answer = Callable[[Mapping[str, str]], Scores]
"""Function from query texts by id to the scores of their rankings."""


class _Tried(NamedTuple):
    """Scores of all queries after one perturbation, one row per seed."""

    name: str
    kind: Perturbation
    values: Floats
    changed: float


def shaken(  # noqa: PLR0913 - each has a use of its own, and a default
    texts: Mapping[str, str],
    clean: Scores,
    answer: Answer,
    *,
    kinds: Sequence[str] | None = None,
    rate: float = RATE,
    seeds: int = 3,
    rarity: Rarity | None = None,
    context: int | None = None,
    measure: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[Shaken]:
    """Score each perturbation of the queries and its loss.

    `answer` scores the system under test. `context` is the number of characters kept of a query, also if a perturbation
    makes it longer. A random perturbation is repeated with `seeds` seeds, and a query has the mean of its values. The
    paired test and the interval are over queries only. Each query draws independently, so that the variance of the
    draws is part of the variance between queries. P-values are corrected over all perturbations that changed a query.
    The loss is NaN if no query changed. An unchanged query keeps its score.
    """
    if seeds < 1:
        raise BadInput(f"{seeds} seeds are not at least 1")
    chosen = dict(find(one) for one in kinds or STANDARD)
    column = clean.values[measure or clean.measures[0]]
    tried = []
    for done, (name, kind) in enumerate(chosen.items()):
        rows, parts = [], []
        for one in range(seed, seed + (seeds if kind.draws else 1)):
            longer = perturbed(texts, name, rate=rate, seed=one, rarity=rarity)
            other = {query: text[:context] for query, text in longer.items()}
            moved = {query for query, text in texts.items() if other[query] != text}
            parts.append(len(moved) / len(texts) if texts else 0.0)
            rows.append(_values(answer(other), clean, column, moved, measure) if moved else column)
        tried.append(_Tried(name, kind, np.stack(rows), float(np.mean(parts))))
        if progress is not None:
            progress((done + 1) / len(chosen))
    return _told(tried, column, clean.queries, rate, Method(confidence=confidence, seed=seed))


def rarity_of(texts: Iterable[str]) -> dict[str, int]:
    """Count the texts that contain each word.

    >>> rarity_of(["The box", "the BOX, the lid"])
    {'box': 2, 'lid': 1, 'the': 2}
    """
    found = Counter(word for text in texts for word in set(words(text)))
    return dict(sorted(found.items()))


def _values(found: Scores, clean: Scores, column: Floats, moved: set[str], measure: str | None) -> Floats:
    """Return the new values of changed queries and the original values of the others."""
    if found.queries != clean.queries:
        raise BadInput("the perturbed queries were scored over other queries than the clean ones")
    there = np.fromiter((query in moved for query in clean.queries), np.bool_, len(column))
    return np.where(there, found.values[measure or found.measures[0]], column)


def _told(tried: Sequence[_Tried], clean: Floats, queries: Sequence[str], rate: float, method: Method) -> list[Shaken]:
    changed = [one for one in tried if one.changed]
    pairs = [pair_of("", one.name, [one.values.mean(axis=0)], clean, queries) for one in changed]
    gaps = {row.system: as_gap(row) for row in compared(pairs, method)} if pairs else {}
    columns = np.column_stack([one.values.mean(axis=0) for one in tried]) if tried else np.empty((len(clean), 0))
    ends = mean_intervals(columns, method.confidence, rounds=method.rounds, seed=method.seed)
    found = []
    for one, values, low, high in zip(tried, columns.T, *ends.tolist(), strict=True):
        known = values[~np.isnan(values)]
        mean = Mean(float(known.mean()) if len(known) else math.nan, len(known), low, high)
        touched = {"words": rate, "text": 1.0}.get(one.kind.reach, math.nan)
        unknown = Gap(math.nan, math.nan, math.nan, math.nan, math.nan, len(known))
        found.append(Shaken(one.name, touched, one.changed, mean, gaps.get(one.name, unknown), len(one.values)))
    return found
