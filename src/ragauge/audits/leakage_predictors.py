"""Tests of how well a field separates relevant from other documents, compared with chance and with text.

The AUC of a query is the probability that a relevant document has a higher value than another one: 0.5 is chance
level, 1 is perfect. All predictors are tested on the same pairs of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ragauge.audits.leakage_fields import CandidateField, QueryNamingField, WeightedCorpus
from ragauge.core.records import Floats, Ints
from ragauge.stats.paired_tests import RANDOMISATION_ROUNDS, correct_p_values, randomisation_test

MAX_QUERIES, MAX_RELEVANT, MAX_JUDGED_OTHERS, MAX_RANDOM_OTHERS, MAX_PAIRS_PER_QUERY = 500, 50, 100, 50, 300
"""Maximum numbers of queries, and per query of relevant, judged other, random other documents, and of pairs."""
MIN_PERMUTATIONS = 999
"""Minimum number of permutations; more with many fields, so that corrected p-values can be small."""
MAX_EXCEEDANCES = 20
"""Permutations at least as good as the observed value after which the test stops (Besag and Clifford 1991)."""


@dataclass(frozen=True, eq=False)
class DocumentPairs:
    """Pairs of a relevant and another document of the same query."""

    queries: Sequence[str]
    query: Ints
    """Index of the query of each pair."""
    relevant: Ints
    """Position of the relevant document in the corpus."""
    other: Ints
    """Position of the other document in the corpus."""

    def auc(self, relevant: Floats, other: Floats) -> Floats:
        """Return the AUC per query: the share of pairs in which `relevant` exceeds `other`.

        Ties count half.
        """
        wins = (relevant > other) + 0.5 * (relevant == other)
        n = len(self.queries)
        return np.asarray(np.bincount(self.query, wins, n) / np.bincount(self.query, minlength=n))

    def query_auc(self, values: Callable[[str, Ints], Floats]) -> Floats:
        """Return the AUC per query of values that depend on the query.

        `values` is a function of a query and of document positions.
        """
        good, other = np.zeros(len(self.query)), np.zeros(len(self.query))
        bounds = np.searchsorted(self.query, np.arange(len(self.queries) + 1))
        for i, query in enumerate(self.queries):
            rows = slice(bounds[i], bounds[i + 1])
            documents, where = np.unique(np.concatenate([self.relevant[rows], self.other[rows]]), return_inverse=True)
            pair_values = values(query, documents)[where]
            good[rows], other[rows] = np.split(pair_values, 2)
        return self.auc(good, other)


def draw_pairs(
    grades: Mapping[str, Mapping[str, float]], positions: Mapping[str, int], rel: float, *, seed: int = 0
) -> DocumentPairs | None:
    """Draw pairs of a relevant document and a judged non-relevant or unjudged one.

    The document with the id of the query is left out. None if no query has both kinds of documents.
    """
    rng = np.random.default_rng(seed)
    names = [query for query, docs in grades.items() if any(grade >= rel for grade in docs.values())]
    if len(names) > MAX_QUERIES:
        names = [names[i] for i in sorted(rng.choice(len(names), MAX_QUERIES, replace=False).tolist())]
    queries: list[str] = []
    numbers, goods, others = [], [], []
    for query in names:
        grades_by_position = {
            positions[doc]: grade for doc, grade in grades[query].items() if doc in positions and doc != query
        }
        good = _sample_documents(rng, [doc for doc, grade in grades_by_position.items() if grade >= rel], MAX_RELEVANT)
        if not len(good):
            continue
        judged = _sample_documents(
            rng, [doc for doc, grade in grades_by_position.items() if grade < rel], MAX_JUDGED_OTHERS
        )
        random_documents = rng.choice(len(positions), min(MAX_RANDOM_OTHERS, len(positions)), replace=False)
        unjudged = [
            doc for doc in random_documents.tolist() if doc not in grades_by_position and doc != positions.get(query)
        ]
        other = np.concatenate([judged, np.array(unjudged, np.int64)])
        if not len(other):
            continue
        pairs = np.arange(len(good) * len(other))
        if len(pairs) > MAX_PAIRS_PER_QUERY:
            pairs = rng.choice(len(pairs), MAX_PAIRS_PER_QUERY, replace=False)
        numbers.append(np.full(len(pairs), len(queries)))
        goods.append(good[pairs // len(other)])
        others.append(other[pairs % len(other)])
        queries.append(query)
    if not queries:
        return None
    return DocumentPairs(queries, np.concatenate(numbers), np.concatenate(goods), np.concatenate(others))


def _sample_documents(rng: np.random.Generator, documents: list[int], max_count: int) -> Ints:
    positions = np.array(documents, np.int64)
    return positions if len(positions) <= max_count else rng.choice(positions, max_count, replace=False)


@dataclass(frozen=True, eq=False)
class RelevancePrediction:
    """Relevance prediction by a field or by the scores of a run: AUC and p-values."""

    name: str
    query_auc: Floats
    """AUC per query, in the direction that predicts."""
    lower_is_relevant: bool | None
    """Whether lower values are the relevant ones; None for categories."""
    p: float
    """p-value against chance, Holm-corrected over all candidates; NaN for the scores of a run."""
    p_text: float
    """p-value of the difference to text; Holm-corrected for fields."""

    @property
    def auc(self) -> float:
        """Mean AUC over queries."""
        return float(self.query_auc.mean())


def text_auc(pairs: DocumentPairs, corpus: WeightedCorpus, queries: Mapping[str, str]) -> Floats:
    """Compute the AUC per query of BM25 scores."""
    return pairs.query_auc(lambda query, documents: corpus.scores(queries.get(query, ""), documents))


def relevance_mark_auc(
    pairs: DocumentPairs, grades: Mapping[str, Mapping[str, float]], positions: Mapping[str, int], rel: float
) -> float:
    """Compute the mean AUC of a mark on every document that is relevant to any query.

    About the maximum without knowing the query. It is below 1 if the relevant documents of queries differ.
    """
    marked = np.zeros(len(positions))
    marked[
        [positions[doc] for docs in grades.values() for doc, grade in docs.items() if grade >= rel and doc in positions]
    ] = 1
    return float(pairs.auc(marked[pairs.relevant], marked[pairs.other]).mean())


def evaluate_predictors(
    pairs: DocumentPairs,
    fields: Sequence[CandidateField],
    text: Floats,
    named: Sequence[QueryNamingField] = (),
    *,
    seed: int = 0,
) -> list[RelevancePrediction]:
    """Test all fields, then the fields that name queries.

    P-values are Holm-corrected together. The p-value of a field is the larger one of two tests: a permutation of its
    values over the documents, and a randomisation test of whether its AUC per query lies on one side of 0.5. The
    first alone would flag the position in a corpus that is sorted by topic. The second alone would flag any field if
    all queries have the same relevant documents. Fields that name queries are only tested by the second, since their
    values differ by query.
    """
    rounds = max(MIN_PERMUTATIONS, 200 * (len(fields) + len(named)) - 1)

    def randomisation_p_value(differences: Floats) -> float:
        return (
            float(randomisation_test(differences[:, None], rounds=max(RANDOMISATION_ROUNDS, rounds), seed=seed)[0])
            if len(differences) > 1
            else 1
        )

    results = []
    for field in fields:
        aucs, lower_is_relevant = _auc_by_query(pairs, field, field.values)
        chance = permutation_test(pairs, field, rounds=rounds, seed=seed)
        p = max(chance, randomisation_p_value(aucs - 0.5))
        results.append(RelevancePrediction(field.name, aucs, lower_is_relevant, p, randomisation_p_value(aucs - text)))
    for naming in named:
        aucs = pairs.query_auc(partial(_naming_values, naming))
        results.append(
            RelevancePrediction(
                naming.name, aucs, False, randomisation_p_value(aucs - 0.5), randomisation_p_value(aucs - text)
            )
        )
    corrected = (
        correct_p_values(np.array(p_values), "holm")
        for p_values in ([prediction.p for prediction in results], [prediction.p_text for prediction in results])
    )
    return [
        replace(predictor, p=float(p), p_text=float(against))
        for predictor, p, against in zip(results, *corrected, strict=True)
    ]


def _naming_values(naming: QueryNamingField, query: str, documents: Ints) -> Floats:
    return np.isin(documents, list(naming.documents.get(query, ()))).astype(np.float64)


def evaluate_run_scores(
    pairs: DocumentPairs, name: str, scores: Mapping[str, Mapping[int, float]], text: Floats
) -> RelevancePrediction:
    """Compute the AUC of a run's scores and its p-value against text.

    Documents that were not returned rank below all others.
    """

    def values(query: str, documents: Ints) -> Floats:
        query_scores = scores.get(query, {})
        return np.array([query_scores.get(doc, -np.inf) for doc in documents.tolist()])

    aucs = pairs.query_auc(values)
    return RelevancePrediction(name, aucs, False, float("nan"), _text_p_value(aucs, text, 0))


def _text_p_value(aucs: Floats, text: Floats, seed: int) -> float:
    return float(randomisation_test((aucs - text)[:, None], seed=seed)[0]) if len(aucs) > 1 else 1.0


def _auc_by_query(pairs: DocumentPairs, field: CandidateField, values: Floats) -> tuple[Floats, bool | None]:
    """Return the AUC per query, and whether lower values are the relevant ones.

    The value of a category is its share of relevant documents in all other queries, so that a query does not see its
    own judgments.
    """
    if not field.kinds:
        aucs = pairs.auc(values[pairs.relevant], values[pairs.other])
        lower_is_relevant = float(aucs.mean()) < 0.5
        return (1 - aucs if lower_is_relevant else aucs), lower_is_relevant
    n, kinds = len(pairs.queries), field.kinds
    good, other = (pairs.query * kinds + values[docs].astype(np.int64) for docs in (pairs.relevant, pairs.other))
    right, wrong = (np.bincount(cells, minlength=n * kinds).reshape(n, kinds) for cells in (good, other))
    relevant_share = ((right.sum(axis=0) - right + 0.5) / ((right + wrong).sum(axis=0) - right - wrong + 1)).ravel()
    return pairs.auc(relevant_share[good], relevant_share[other]), None


def permutation_test(
    pairs: DocumentPairs, field: CandidateField, *, rounds: int = MIN_PERMUTATIONS, seed: int = 0
) -> float:
    """Return the p-value of a field by permuting its values over the documents.

    Never 0.

    Formula: (1 + as good) / (1 + rounds), or as good / rounds so far once `MAX_EXCEEDANCES` were as good.
    """
    rng = np.random.default_rng(seed)
    observed = float(_auc_by_query(pairs, field, field.values)[0].mean()) - 1e-12
    as_good = 0
    for done in range(1, rounds + 1):
        as_good += float(_auc_by_query(pairs, field, rng.permutation(field.values))[0].mean()) >= observed
        if as_good == MAX_EXCEEDANCES:
            return as_good / done
    return (1 + as_good) / (1 + rounds)
