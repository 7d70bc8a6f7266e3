"""The same queries written in another way, and how much is lost by it."""

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
"""What is tried unless something else is named."""
Answer = Callable[[Mapping[str, str]], Scores]
"""From texts by query to the scores of what they find."""


class _Tried(NamedTuple):
    """One perturbation of all queries: a row for each seed."""

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
    """The quality of each perturbation of the queries, and the loss against the queries as they were.

    `answer` is whatever is tested: an embedder, BM25. `context` is how many characters of a query anybody sees, also
    where a perturbation makes it longer. Where chance has a part in a perturbation it is done `seeds`
    times, and a query has the mean of its values. The paired test and the interval are over queries: each draws for
    itself, so that no seed is better or worse than another for all of them, and what the draws add is in the queries'
    own variation. P-values are corrected for all perturbations that changed something; where no query changed, nothing
    is known of a loss, and it is NaN. A query that did not change keeps its value.
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
    """In how many texts each word is.

    >>> rarity_of(["The box", "the BOX, the lid"])
    {'box': 2, 'lid': 1, 'the': 2}
    """
    found = Counter(word for text in texts for word in set(words(text)))
    return dict(sorted(found.items()))


def _values(found: Scores, clean: Scores, column: Floats, moved: set[str], measure: str | None) -> Floats:
    """The values of the queries that changed, and those of before for the others."""
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
