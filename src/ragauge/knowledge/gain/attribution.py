"""Contribution of each added document to a gain, and the best batch of documents.

A document's contribution is measured by removing it, by adding it alone, and by its judgments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.protocols import Vectors
from ragauge.core.records import Floats, ScoresByQuery
from ragauge.core.text import shingles
from ragauge.knowledge.gain.changes import ROUNDING_TOLERANCE, SnapshotChanges
from ragauge.knowledge.gain.results import BatchStep, DocumentContribution
from ragauge.knowledge.gain.terms import NOVELTY, DocumentRanking, RankingsByQuery, RankingScorer
from ragauge.knowledge.novelty.chunks import (
    DocumentChunks,
    chunk_novelties,
    document_means,
    document_minimums,
    update_similarity,
)


def trim_to_contenders(ranking: DocumentRanking, added: frozenset[str], depth: int) -> DocumentRanking:
    """Trim a ranking to what matters if any of the added documents are left out.

    It ends with the document number `depth` that was not added.

    >>> trim_to_contenders(("new1", "a", "new2", "b", "new3", "c"), frozenset({"new1", "new2", "new3"}), 2)
    ('new1', 'a', 'new2', 'b')
    """
    contenders: list[str] = []
    n_known = 0
    for doc in ranking:
        if n_known == depth:
            break
        contenders.append(doc)
        n_known += doc not in added
    return tuple(contenders)


def keep_some_added(
    ranking: DocumentRanking, added: frozenset[str], included: frozenset[str], depth: int
) -> DocumentRanking:
    """Return the top `depth` of a ranking with only some of the added documents.

    >>> keep_some_added(("new1", "a", "new2", "b"), frozenset({"new1", "new2"}), frozenset({"new2"}), 2)
    ('a', 'new2')
    """
    return tuple(doc for doc in ranking if doc not in added or doc in included)[:depth]


def find_short_rankings(rankings: RankingsByQuery, added: frozenset[str], depth: int) -> frozenset[str]:
    """Return the queries with fewer than `depth` documents that were not added.

    >>> sorted(find_short_rankings({"p": ("new1", "a"), "q": ("a", "b")}, frozenset({"new1"}), 2))
    ['p']
    """
    return frozenset(query for query, ranking in rankings.items() if sum(doc not in added for doc in ranking) < depth)


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """Added documents and the rankings in which they compete."""

    added: Sequence[str]
    rankings: RankingsByQuery
    """Trimmed ranking of each query."""
    scorer: RankingScorer
    texts: Mapping[str, str]
    changes: SnapshotChanges
    novelty: Mapping[str, float]
    """Novelty by document, if known."""
    novelty_weight: float
    """Weight of novelty."""
    short_queries: frozenset[str] = frozenset()
    """Queries whose rankings are too short to know what would move up."""

    @property
    def all_added(self) -> frozenset[str]:
        return frozenset(self.added)

    @property
    def scored_terms(self) -> list[int]:
        """Indices of the terms that can be computed per document."""
        return [i for i in self.changes.scored_terms if i in self.scorer.computable_terms]

    def top_documents(self, query: str, included: frozenset[str]) -> DocumentRanking:
        """Return the top of a query's ranking with only some of the added documents."""
        return keep_some_added(self.rankings[query], self.all_added, included, self.scorer.depth)

    def queries_by_document(self) -> dict[str, list[str]]:
        """Return, by document, the queries in whose trimmed rankings it is."""
        queries_by_doc: dict[str, list[str]] = {doc: [] for doc in self.added}
        for query, ranking in self.rankings.items():
            for doc in ranking:
                if doc in queries_by_doc:
                    queries_by_doc[doc].append(query)
        return queries_by_doc

    def improvements(self, better: Floats, worse: Floats) -> Floats:
        """Return the improvement from one row of values to another, by term."""
        return np.asarray(self.scorer.signs * (better - worse))


def drop_each_document(pool: CandidatePool) -> dict[str, dict[str, DocumentRanking]]:
    """Return, by document, the rankings that change without it.

    Lower documents move up. A document is left out if it is unknown what would move up.
    """
    rankings_by_doc: dict[str, dict[str, DocumentRanking]] = {doc: {} for doc in pool.added}
    depth = pool.scorer.depth
    for query, ranking in pool.rankings.items():
        for doc in ranking[:depth]:
            if doc in rankings_by_doc:
                rankings_by_doc[doc][query] = tuple(ranked for ranked in ranking if ranked != doc)[:depth]
    unknown = {
        doc for query in pool.short_queries if len(pool.rankings[query]) <= depth for doc in pool.rankings[query]
    }
    return {doc: rankings for doc, rankings in rankings_by_doc.items() if doc not in unknown}


def document_contributions(
    pool: CandidatePool,
    rankings_without: Mapping[str, Mapping[str, DocumentRanking]] | None,
    judged: ScoresByQuery,
    rel: float,
    k: int,
) -> list[DocumentContribution]:
    """Return the contributions of the added documents, largest first.

    `rankings_without` has, by document, the rankings that change without it. The causal contribution of a document
    that is not in `rankings_without` is NaN.
    """
    labels = _label_contributions(pool.changes, judged, rel, pool.all_added)
    solo_gains = _solo_gains(pool)
    effects = {} if rankings_without is None else _causal_effects(pool, rankings_without)
    entered: dict[str, int] = {}
    for ranking in pool.rankings.values():
        for doc in ranking[:k]:
            entered[doc] = entered.get(doc, 0) + 1
    contributions = []
    for doc in pool.added:
        causal, changes, helped, harmed = effects.get(doc, (math.nan, {}, (), ()))
        labelled, relevant = labels.get(doc, (0.0, 0))
        contributions.append(
            DocumentContribution(
                doc,
                causal,
                labelled,
                pool.novelty.get(doc, math.nan),
                solo_gains[doc],
                changes,
                helped,
                harmed,
                relevant,
                entered.get(doc, 0),
            )
        )
    return sorted(contributions, key=_contribution_sort_key)


def _contribution_sort_key(contribution: DocumentContribution) -> tuple[bool, float, float, str]:
    unknown = math.isnan(contribution.causal)
    first = contribution.alone if unknown else contribution.causal
    return (
        unknown,
        math.inf if math.isnan(first) else -round(first, 12),
        -round(contribution.labelled, 12),
        contribution.id,
    )


CausalEffect = tuple[float, dict[str, float], list[str], list[str]]


def _causal_effects(
    pool: CandidatePool, rankings_without: Mapping[str, Mapping[str, DocumentRanking]]
) -> dict[str, CausalEffect]:
    """Compute the gain of each document, by term, and the queries affected.

    The queries are those that the document helped and those that it harmed.
    """
    variants = [(query, ranking) for changed in rankings_without.values() for query, ranking in changed.items()]
    rows = pool.scorer.score(variants, pool.texts)
    positions = {query: i for i, query in enumerate(pool.changes.queries)}
    effects: dict[str, CausalEffect] = {}
    start = 0
    for doc, new_rankings in rankings_without.items():
        queries = list(new_rankings)
        changed = rows[start : start + len(queries)]
        start += len(queries)
        improvements = pool.improvements(pool.changes.after[[positions[query] for query in queries]], changed)
        means = pool.changes.mean(improvements)
        gains = pool.changes.weigh(improvements)  # terms that the judge did not score are NaN and add nothing
        changes = {name: float(means[i]) for i, name in enumerate(pool.changes.names) if i in pool.scored_terms}
        causal = sum(float(means[i] * pool.changes.weights[i]) for i in pool.scored_terms)
        share = novelty_share(pool, doc)
        if share is not None:
            changes[NOVELTY] = share
            causal += pool.novelty_weight * share
        helped = [query for query, gain in zip(queries, gains.tolist(), strict=True) if gain > ROUNDING_TOLERANCE]
        harmed = [query for query, gain in zip(queries, gains.tolist(), strict=True) if gain < -ROUNDING_TOLERANCE]
        effects[doc] = (causal if changes else math.nan, changes, helped, harmed)
    return effects


def novelty_share(pool: CandidatePool, doc: str) -> float | None:
    """Return a document's share of the mean novelty of all added documents.

    None if unknown.
    """
    known_novelties = [value for value in pool.novelty.values() if not math.isnan(value)]
    novelty = pool.novelty.get(doc, math.nan)
    return None if math.isnan(novelty) else novelty / len(known_novelties)


def _label_contributions(
    changes: SnapshotChanges, judged: ScoresByQuery, rel: float, added: frozenset[str]
) -> dict[str, tuple[float, int]]:
    """Sum, by document, grade times weighted mean change of the query.

    Also count the queries. The mean is over absolute weights, so that a negative weight counts against without
    inverting the sign of the others.
    """
    contributions: dict[str, tuple[float, int]] = {}
    for row, query in enumerate(changes.queries):
        has_value = ~np.isnan(changes.improvements[row])
        weight = float(np.abs(changes.weights[has_value]).sum())
        gain = float(changes.improvements[row, has_value] @ changes.weights[has_value]) / weight if weight else 0.0
        for doc, grade in judged.get(query, {}).items():
            if doc in added and grade >= rel:
                total, n = contributions.get(doc, (0.0, 0))
                contributions[doc] = (total + grade * gain, n + 1)
    return contributions


def _solo_gains(pool: CandidatePool) -> dict[str, float]:
    """Compute, by document, its gain if no other is added.

    NaN if a ranking is too short. Its novelty counts in full.
    """
    if pool.short_queries:
        return dict.fromkeys(pool.added, math.nan)
    no_documents: frozenset[str] = frozenset()
    pairs = [(doc, query) for doc, queries in pool.queries_by_document().items() for query in queries]
    with_it = pool.scorer.score(
        [(query, pool.top_documents(query, frozenset({doc}))) for doc, query in pairs], pool.texts
    )
    base = pool.scorer.score([(query, pool.top_documents(query, no_documents)) for _, query in pairs], pool.texts)
    rows_by_document: dict[str, list[int]] = {}
    for i, (doc, _) in enumerate(pairs):
        rows_by_document.setdefault(doc, []).append(i)
    rows = pool.improvements(with_it, base)
    gains = {}
    for doc in pool.added:
        means = pool.changes.mean(rows[rows_by_document.get(doc, [])])
        parts = [float(means[i] * pool.changes.weights[i]) for i in pool.scored_terms]
        novelty = pool.novelty.get(doc, math.nan)
        parts += [] if math.isnan(novelty) else [pool.novelty_weight * novelty]
        gains[doc] = sum(parts) if parts else math.nan
    return gains


class RemainingNovelty(Protocol):
    """Novelty of documents, which decreases as similar documents are taken."""

    def current(self) -> Mapping[str, float]:
        """Return each document's novelty against the corpus and the documents taken.

        NaN if undefined.
        """
        ...

    def mark_known(self, doc: str) -> None:
        """Add a document to those that are known."""
        ...


class FixedNovelty:
    """Novelty that stays constant."""

    def __init__(self, novelty: Mapping[str, float]) -> None:
        self._novelty = novelty

    def current(self) -> Mapping[str, float]:
        """Return the novelty of each document."""
        return self._novelty

    def mark_known(self, doc: str) -> None:
        """Do nothing; the novelty stays constant."""


def choose_batch(pool: CandidatePool, size: int, remaining_novelty: RemainingNovelty) -> list[BatchStep]:
    """Choose the best batch of up to `size` documents greedily.

    Stop if none adds anything. Ties are broken by id, so that the order of the added documents does not matter.
    """
    candidates = sorted(pool.added)
    queries_by_doc = pool.queries_by_document()
    queries = list(pool.rankings)
    positions = {query: i for i, query in enumerate(queries)}
    batch: frozenset[str] = frozenset()
    current_scores = pool.scorer.score([(query, pool.top_documents(query, batch)) for query in queries], pool.texts)
    improvements: dict[str, dict[str, Floats]] = {doc: {} for doc in candidates}
    outdated_queries = {doc: list(queries_by_doc[doc]) for doc in candidates}
    n_novelties = sum(not math.isnan(value) for value in pool.novelty.values())
    chosen: list[BatchStep] = []
    total = 0.0
    while candidates and len(chosen) < size:
        pairs = [(doc, query) for doc in candidates for query in outdated_queries[doc]]
        rows = pool.scorer.score(
            [(query, pool.top_documents(query, batch | {doc})) for doc, query in pairs], pool.texts
        )
        for (doc, query), row in zip(pairs, rows, strict=True):
            improvements[doc][query] = pool.improvements(row, current_scores[positions[query]])
        outdated_queries = {doc: [] for doc in candidates}
        novelty = remaining_novelty.current()
        options = [
            _marginal_gain(pool, improvements[doc], novelty.get(doc, math.nan), n_novelties) for doc in candidates
        ]
        best = max(range(len(candidates)), key=lambda i: (round(sum(options[i].values()), 12), -i))
        marginal = sum(options[best].values())
        if marginal <= ROUNDING_TOLERANCE:
            break
        doc = candidates.pop(best)
        total += marginal
        chosen.append(BatchStep(doc, marginal, total, options[best]))
        batch |= {doc}
        remaining_novelty.mark_known(doc)
        touched = set(queries_by_doc[doc])
        changed_queries = sorted(touched)
        current_scores[[positions[query] for query in changed_queries]] = pool.scorer.score(
            [(query, pool.top_documents(query, batch)) for query in changed_queries], pool.texts
        )
        outdated_queries = {
            document: [query for query in queries_by_doc[document] if query in touched] for document in candidates
        }
    return chosen


def _marginal_gain(
    pool: CandidatePool, improvements: Mapping[str, Floats], novelty: float, n_novelties: int
) -> dict[str, float]:
    """Return the weighted gain by term that a document adds to those taken.

    Its novelty is divided by the number of documents with a known novelty.
    """
    changes = pool.changes
    rows = np.array(list(improvements.values())) if improvements else np.zeros((0, len(changes.names)))
    means = changes.mean(rows)
    gains = {changes.names[i]: float(means[i] * changes.weights[i]) for i in pool.scored_terms}
    if not math.isnan(novelty):
        gains[NOVELTY] = pool.novelty_weight * novelty / n_novelties
    return gains


class ChunkNovelty:
    """Novelty by the similarity of chunks to the nearest known or taken chunk."""

    def __init__(self, chunks: DocumentChunks, vectors: Vectors, highest: Floats, definition: str) -> None:
        self._ids = [document.id for document in chunks.documents]
        self._owner = chunks.owner
        self._vectors = vectors
        self._highest = highest
        self._definition = document_minimums if definition == "least" else document_means

    def current(self) -> Mapping[str, float]:
        """Return the current novelty of each document."""
        novelties = self._definition(chunk_novelties(self._highest), self._owner, len(self._ids))
        return dict(zip(self._ids, novelties.tolist(), strict=True))

    def mark_known(self, doc: str) -> None:
        """Add a document to those that are known."""
        vectors = self._vectors[self._owner == self._ids.index(doc)]
        if len(vectors):
            self._highest = update_similarity(self._highest, self._vectors, vectors)


class ShingleNovelty:
    """Novelty by the share of 3-word shingles that are not yet known.

    >>> remaining_novelty = ShingleNovelty([Document("a", "to be or not"), Document("b", "be or not")], [])
    >>> remaining_novelty.mark_known("a")
    >>> dict(remaining_novelty.current())["b"]
    0.0
    """

    def __init__(self, added: Sequence[Document], known: Sequence[Document]) -> None:
        self._all = {document.id: shingles(document.whole) for document in added}
        added_shingles = frozenset().union(*self._all.values()) if self._all else frozenset()
        self._known = {
            shingle for document in known for shingle in shingles(document.whole) if shingle in added_shingles
        }

    def current(self) -> Mapping[str, float]:
        """Return the share of each document that is new; NaN if it has no words."""
        return {
            name: len(shingle_set - self._known) / len(shingle_set) if shingle_set else math.nan
            for name, shingle_set in self._all.items()
        }

    def mark_known(self, doc: str) -> None:
        """Add a document to those that are known."""
        self._known |= self._all[doc]
