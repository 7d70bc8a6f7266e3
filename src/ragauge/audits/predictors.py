"""How well something tells relevant documents from others, query by query, and whether chance or text would do as well.

The area under the curve (AUC) of a query is the chance that a relevant document stands above another one: 0.5 is no
better than a coin, 1 is perfect. Everything is asked of the same pairs of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ragauge.audits.fields import Field, Naming
from ragauge.audits.texts import Corpus
from ragauge.records import Floats, Ints
from ragauge.stats.correction import corrected
from ragauge.stats.paired import ROUNDS as SIGNS
from ragauge.stats.paired import randomisation_test

QUERIES, GOOD, JUDGED, DRAWN, PAIRS = 500, 50, 100, 50, 300
"""At most so many queries, and of each so many relevant documents, judged others, drawn others, and pairs of these."""
ROUNDS = 999
"""And more where there are many fields, so that Holm's correction leaves a p-value that can be small."""
ENOUGH = 20
"""A permutation test stops after so many rounds as good as what was seen (Besag and Clifford 1991)."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Relevant documents, each with another document of the same query."""

    queries: Sequence[str]
    query: Ints
    """The query of each pair, as an index."""
    good: Ints
    """The relevant document, as a place in the corpus."""
    other: Ints
    """And the other one."""

    def auc(self, good: Floats, other: Floats) -> Floats:
        """For each query the share of its pairs whose relevant document has the higher value; ties count half."""
        wins = (good > other) + 0.5 * (good == other)
        n = len(self.queries)
        return np.asarray(np.bincount(self.query, wins, n) / np.bincount(self.query, minlength=n))

    def of(self, values: Callable[[str, Ints], Floats]) -> Floats:
        """For each query the AUC of values that depend on it: a function of the query and of documents."""
        good, other = np.zeros(len(self.query)), np.zeros(len(self.query))
        bounds = np.searchsorted(self.query, np.arange(len(self.queries) + 1))
        for i, query in enumerate(self.queries):
            mine = slice(bounds[i], bounds[i + 1])
            documents, where = np.unique(np.concatenate([self.good[mine], self.other[mine]]), return_inverse=True)
            found = values(query, documents)[where]
            good[mine], other[mine] = np.split(found, 2)
        return self.auc(good, other)


def draw(
    grades: Mapping[str, Mapping[str, float]], place: Mapping[str, int], rel: float, *, seed: int = 0
) -> Pairs | None:
    """Pairs of every query: its relevant documents against those judged otherwise and some that nobody judged.

    A query's own document is neither. None where no query has both kinds.
    """
    rng = np.random.default_rng(seed)
    names = [query for query, docs in grades.items() if any(grade >= rel for grade in docs.values())]
    if len(names) > QUERIES:
        names = [names[i] for i in sorted(rng.choice(len(names), QUERIES, replace=False).tolist())]
    queries: list[str] = []
    numbers, goods, others = [], [], []
    for query in names:
        known = {place[doc]: grade for doc, grade in grades[query].items() if doc in place and doc != query}
        good = _some(rng, [doc for doc, grade in known.items() if grade >= rel], GOOD)
        if not len(good):
            continue
        judged = _some(rng, [doc for doc, grade in known.items() if grade < rel], JUDGED)
        drawn = rng.choice(len(place), min(DRAWN, len(place)), replace=False)
        unknown = [doc for doc in drawn.tolist() if doc not in known and doc != place.get(query)]
        other = np.concatenate([judged, np.array(unknown, np.int64)])
        if not len(other):
            continue
        pairs = np.arange(len(good) * len(other))
        if len(pairs) > PAIRS:
            pairs = rng.choice(len(pairs), PAIRS, replace=False)
        numbers.append(np.full(len(pairs), len(queries)))
        goods.append(good[pairs // len(other)])
        others.append(other[pairs % len(other)])
        queries.append(query)
    if not queries:
        return None
    return Pairs(queries, np.concatenate(numbers), np.concatenate(goods), np.concatenate(others))


def _some(rng: np.random.Generator, documents: list[int], most: int) -> Ints:
    every = np.array(documents, np.int64)
    return every if len(every) <= most else rng.choice(every, most, replace=False)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a field or a run's scores tell about relevance."""

    name: str
    each: Floats
    """The AUC of each query, in the direction that predicts."""
    falling: bool | None
    """Whether lower values are the relevant ones; None for categories."""
    p: float
    """Whether chance would do as well, corrected for the number of candidates."""
    p_text: float
    """Whether the words of the query would do as well, likewise."""

    @property
    def auc(self) -> float:
        """The mean over queries."""
        return float(self.each.mean())


def text_auc(pairs: Pairs, corpus: Corpus, queries: Mapping[str, str]) -> Floats:
    """The AUC of BM25 over the words of the query."""
    return pairs.of(lambda query, documents: corpus.scores(queries.get(query, ""), documents))


def mark_auc(pairs: Pairs, grades: Mapping[str, Mapping[str, float]], place: Mapping[str, int], rel: float) -> float:
    """The mean AUC of a mark on every document that is relevant to any query: about the most without knowing it.

    It is not 1 where queries have different answers, since those of one are others for the next.
    """
    marked = np.zeros(len(place))
    marked[[place[doc] for docs in grades.values() for doc, grade in docs.items() if grade >= rel and doc in place]] = 1
    return float(pairs.auc(marked[pairs.good], marked[pairs.other]).mean())


def predictions(
    pairs: Pairs, found: Sequence[Field], text: Floats, named: Sequence[Naming] = (), *, seed: int = 0
) -> list[Prediction]:
    """Each field with its tests, then those that name queries; p-values are Holm's over all of them.

    Two things must hold before a field predicts: its values permuted over the documents would hardly do as well, and
    its AUC lies on one side of 0.5 for more queries than chance allows. The first alone would call the place in a
    corpus a leak where documents of one topic stand together; the second alone, anything where all queries have the
    same answers. A name is only asked the second: it is another one for each query.
    """
    rounds = max(ROUNDS, 200 * (len(found) + len(named)) - 1)

    def signs(gaps: Floats) -> float:
        return float(randomisation_test(gaps[:, None], rounds=max(SIGNS, rounds), seed=seed)[0]) if len(gaps) > 1 else 1

    every = []
    for field in found:
        each, falling = _each(pairs, field, field.values)
        chance = permutation_test(pairs, field, rounds=rounds, seed=seed)
        p = max(chance, signs(each - 0.5))
        every.append(Prediction(field.name, each, falling, p, signs(each - text)))
    for naming in named:
        each = pairs.of(partial(_names, naming))
        every.append(Prediction(naming.name, each, False, signs(each - 0.5), signs(each - text)))
    both = (corrected(np.array([getattr(one, name) for one in every]), "holm") for name in ("p", "p_text"))
    return [replace(one, p=float(p), p_text=float(against)) for one, p, against in zip(every, *both, strict=True)]


def _names(naming: Naming, query: str, documents: Ints) -> Floats:
    return np.isin(documents, list(naming.documents.get(query, ()))).astype(np.float64)


def by_run(pairs: Pairs, name: str, scores: Mapping[str, Mapping[int, float]], text: Floats) -> Prediction:
    """What a run's scores tell, compared with text; a document that was not returned stands below all others."""

    def values(query: str, documents: Ints) -> Floats:
        mine = scores.get(query, {})
        return np.array([mine.get(doc, -np.inf) for doc in documents.tolist()])

    each = pairs.of(values)
    return Prediction(name, each, False, float("nan"), _beats(each, text, 0))


def _beats(each: Floats, text: Floats, seed: int) -> float:
    return float(randomisation_test((each - text)[:, None], seed=seed)[0]) if len(each) > 1 else 1.0


def _each(pairs: Pairs, field: Field, values: Floats) -> tuple[Floats, bool | None]:
    """The AUC of each query, and whether lower values are the relevant ones.

    A category is worth how often it was relevant in the other queries: a query must not see its own answers.
    """
    if not field.kinds:
        each = pairs.auc(values[pairs.good], values[pairs.other])
        falling = float(each.mean()) < 0.5
        return (1 - each if falling else each), falling
    n, kinds = len(pairs.queries), field.kinds
    good, other = (pairs.query * kinds + values[docs].astype(np.int64) for docs in (pairs.good, pairs.other))
    right, wrong = (np.bincount(cells, minlength=n * kinds).reshape(n, kinds) for cells in (good, other))
    worth = ((right.sum(axis=0) - right + 0.5) / ((right + wrong).sum(axis=0) - right - wrong + 1)).ravel()
    return pairs.auc(worth[good], worth[other]), None


def permutation_test(pairs: Pairs, field: Field, *, rounds: int = ROUNDS, seed: int = 0) -> float:
    """How often values permuted over the documents predict as well as those that are there; never 0.

    Formula: (1 + as good) / (1 + rounds), or as good / rounds so far once ENOUGH were as good.
    """
    rng = np.random.default_rng(seed)
    seen = float(_each(pairs, field, field.values)[0].mean()) - 1e-12
    as_good = 0
    for done in range(1, rounds + 1):
        as_good += float(_each(pairs, field, rng.permutation(field.values))[0].mean()) >= seen
        if as_good == ENOUGH:
            return as_good / done
    return (1 + as_good) / (1 + rounds)
