"""Diversity measures: de-duplicated recall over targets, and coverage of the subtopics of a query.

`dr` and `diversity_count` use a target map (document -> its targets). The subtopic measures need subtopic judgments
(topic, subtopic, document, grade). They follow TREC's ndeval, which breaks ties by document id *ascending*, if the
convention breaks ties by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragauge.core.errors import MissingEvidence
from ragauge.core.records import Floats
from ragauge.measures.judged_ranks import JudgedRanks, TopDocuments


def _top_documents(judged: JudgedRanks) -> TopDocuments:
    if judged.top is None:
        raise MissingEvidence("the first documents of each query were not saved", hint="ask `evaluate` for the measure")
    return judged.top


def _find_targets(judged: JudgedRanks, target_source: str, measure: str) -> Mapping[str, Sequence[str]]:
    if target_source == "identity":
        return {}
    if judged.judgments.targets is None:
        raise MissingEvidence(
            f"{measure} needs a target map from documents to the answers that they contain",
            hint="add `--targets FILE` (targets=), or put targets.json into the folder of the dataset; "
            f"{measure}(targets=identity) takes each document as its own target",
        )
    return judged.judgments.targets


def _top_and_relevant(judged: JudgedRanks, rel: float) -> Iterator[tuple[Sequence[str], set[str]]]:
    """Yield the first documents and the relevant documents of each query."""
    nested = judged.judgments.nested
    for query, ids in zip(judged.pool.queries, _top_documents(judged).ids, strict=True):
        yield ids, {doc for doc, grade in nested[query].items() if grade >= rel}


def deduplicated_recall(
    judged: JudgedRanks, k: int, *, rel: float = 1, targets: str = "map", dedupe: str = "after"
) -> Floats:
    """Share of the distinct targets that the first k documents cover.

    Formula: |targets of relevant documents in the first k| / |targets of all relevant documents|.
    Rule: `dedupe=before` first drops documents whose targets are all covered at higher ranks, so that a repetition
    uses no rank; `after` (as GraphFlow's D-R@k) keeps it. A document outside the map is its own target.
    Paper: the swarm study's de-duplicate recall; Zhai, Cohen and Lafferty (2003), Beyond Independent Relevance.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> qrels, run = {"q": {"a": 1, "a2": 1, "b": 1}}, {"q": {"a": 3.0, "a2": 2.0, "b": 1.0}}
    >>> evaluate(qrels, run, ["dr@2", "dr(dedupe=before)@2"], targets={"a": ["A"], "a2": ["A"], "b": ["B"]}).means
    {'dr@2': 0.5, 'dr(dedupe=before)@2': 1.0}
    """
    targets_by_document = _find_targets(judged, targets, "dr")
    values = np.zeros(judged.n)
    for i, (ids, relevant) in enumerate(_top_and_relevant(judged, rel)):
        relevant_targets = {target for doc in relevant for target in targets_by_document.get(doc, (doc,))}
        ranking: list[str] = []
        seen_targets: set[str] = set()
        for doc in ids:
            new_targets = set(targets_by_document.get(doc, (doc,))) - seen_targets
            if new_targets or dedupe == "after":
                ranking.append(doc)
            seen_targets |= new_targets
        found_targets = {
            target for doc in ranking[:k] if doc in relevant for target in targets_by_document.get(doc, (doc,))
        }
        values[i] = len(found_targets) / len(relevant_targets) if relevant_targets else 0.0
    return values


def diversity_count(judged: JudgedRanks, k: int, *, rel: float = 1, targets: str = "map") -> Floats:
    """Number of distinct targets of the relevant documents in the first k.

    Formula: |targets of relevant documents in the first k|.
    Rule: averaged over queries, as in the swarm study. Without a target map each document is its own target.
    Paper: the swarm study's diversity count.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> evaluate({"q": {"a": 1, "b": 1}}, {"q": {"a": 3.0, "b": 1.0}}, ["diversity_count@2"]).means
    {'diversity_count@2': 2.0}
    """
    targets_by_document = {} if targets == "identity" else judged.judgments.targets or {}
    target_counts = (
        len({target for doc in ids[:k] if doc in relevant for target in targets_by_document.get(doc, (doc,))})
        for ids, relevant in _top_and_relevant(judged, rel)
    )
    return np.fromiter(target_counts, np.float64, judged.n)


def unique_ratio(judged: JudgedRanks, k: int) -> Floats:
    """Share of the first k ranks that hold a document not returned at a higher rank.

    Formula: |distinct ids in the first k| / k, as GraphFlow's Diversity@k.
    Rule: empty ranks count as repetitions. The minimum relevant grade is not used: every document counts.
    Paper: the GraphFlow study's diversity.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> run = {"q": ["a", "a", "b"]}
    >>> evaluate({"q": {"a": 1}}, run, ["unique_ratio@4"], convention="graphflow").means
    {'unique_ratio@4': 0.5}
    """
    return np.fromiter((len(set(ids[:k])) / k for ids in _top_documents(judged).ids), np.float64, judged.n)


@dataclass(frozen=True)
class _SubtopicCoverage:
    """Number of subtopics of a query, and the subtopics that each document is relevant to."""

    n_subtopics: int
    subtopics_by_document: Mapping[str, frozenset[int]]


def _subtopic_coverage(judged: JudgedRanks, rel: float) -> Iterator[tuple[Sequence[str], _SubtopicCoverage]]:
    """Yield the first documents and the covered subtopics of each query."""
    judgments = judged.judgments
    if judgments.subtopics is None:
        raise MissingEvidence(
            "this measure needs subtopic judgments (topic subtopic document grade)",
            hint="TREC diversity judgments have the subtopic in their second column; "
            "read them with --qrels-format subtopics",
        )
    top = _top_documents(judged)
    for query, ids, scores in zip(judged.pool.queries, top.ids, top.scores, strict=True):
        if judged.ties == "trec":
            pairs = sorted(zip((-scores).tolist(), ids, strict=True))
            ids = [doc for _, doc in pairs]  # noqa: PLW2901 - the same documents in ndeval's order
        numbers: dict[str, int] = {}
        covers: dict[str, set[int]] = {}
        for key, grade in judgments.subtopics.get(query, {}).items():
            subtopic, _, doc = key.partition("\t")
            if grade >= rel:
                covers.setdefault(doc, set()).add(numbers.setdefault(subtopic, len(numbers)))
        yield ids, _SubtopicCoverage(len(numbers), {doc: frozenset(subtopics) for doc, subtopics in covers.items()})


def subtopic_recall(judged: JudgedRanks, k: int, *, rel: float = 1) -> Floats:
    """Share of the subtopics that the first k documents cover.

    Formula: |subtopics covered by the first k| / |subtopics that any document covers|.
    Rule: 0 if no document covers a subtopic.
    Paper: Zhai, Cohen and Lafferty (2003), Beyond Independent Relevance.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> from ragauge.files.in_memory import judgments_from_subtopics as subtopic_judgments
    >>> qrels = subtopic_judgments([("q", "1", "a", 1), ("q", "2", "b", 1)])
    >>> evaluate(qrels, {"q": {"a": 2.0, "x": 1.0}}, ["subtopic_recall@2"]).means
    {'subtopic_recall@2': 0.5}
    """
    values = np.zeros(judged.n)
    for i, (ids, topic) in enumerate(_subtopic_coverage(judged, rel)):
        covered_subtopics: frozenset[int] = frozenset().union(
            *(topic.subtopics_by_document.get(doc, frozenset()) for doc in ids[:k])
        )
        values[i] = len(covered_subtopics) / topic.n_subtopics if topic.n_subtopics else 0.0
    return values


def _novelty_gains(order: Sequence[str], topic: _SubtopicCoverage, alpha: float) -> Floats:
    """Compute the gain of each document.

    A subtopic counts (1 - alpha)^(times covered above). A repeated document has no gain.
    """
    times_seen = np.zeros(topic.n_subtopics)
    gains = np.zeros(len(order))
    seen_docs: set[str] = set()
    for position, doc in enumerate(order):
        subtopics = [] if doc in seen_docs else list(topic.subtopics_by_document.get(doc, ()))
        seen_docs.add(doc)
        gains[position] = ((1 - alpha) ** times_seen[subtopics]).sum()
        times_seen[subtopics] += 1
    return gains


def _greedy_ideal_ranking(topic: _SubtopicCoverage, k: int, alpha: float) -> list[str]:
    """Return the ideal ranking by greedy choice.

    Equal gains go to the later id, as in ndeval.
    """
    remaining = sorted(topic.subtopics_by_document, reverse=True)
    times_seen = np.zeros(topic.n_subtopics)
    order: list[str] = []
    while remaining and len(order) < k:
        gains = [((1 - alpha) ** times_seen[list(topic.subtopics_by_document[doc])]).sum() for doc in remaining]
        best = remaining.pop(int(np.argmax(gains)))
        times_seen[list(topic.subtopics_by_document[best])] += 1
        order.append(best)
    return order


def alpha_ndcg(judged: JudgedRanks, k: int, *, alpha: float = 0.5, rel: float = 1) -> Floats:
    """Discounted gain that decreases for repeated subtopics, relative to the ideal.

    Formula: sum over ranks r <= k of (sum over its subtopics of (1 - alpha)^(times covered above)) / log2(r + 1),
    divided by that of the greedy ideal ranking.
    Rule: 0 if no document covers a subtopic; all relevant grades count the same.
    Paper: Clarke et al. (2008), Novelty and Diversity in Information Retrieval Evaluation.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> from ragauge.files.in_memory import judgments_from_subtopics as subtopic_judgments
    >>> qrels = subtopic_judgments([("q", "1", "a", 1), ("q", "1", "a2", 1), ("q", "2", "b", 1)])
    >>> run = {"q": {"a": 3.0, "a2": 2.0, "b": 1.0}}
    >>> round(evaluate(qrels, run, ["alpha_ndcg@3"]).means["alpha_ndcg@3"], 6)
    0.965195
    """
    values = np.zeros(judged.n)
    discount = 1 / np.log2(np.arange(k) + 2)
    for i, (ids, topic) in enumerate(_subtopic_coverage(judged, rel)):
        if topic.n_subtopics:
            gains = _novelty_gains(ids[:k], topic, alpha)
            ideal_gains = _novelty_gains(_greedy_ideal_ranking(topic, k, alpha), topic, alpha)
            values[i] = (gains * discount[: len(gains)]).sum() / (ideal_gains * discount[: len(ideal_gains)]).sum()
    return values


def err_ia(judged: JudgedRanks, k: int, *, alpha: float = 0.5, rel: float = 1) -> Floats:
    """Intent-aware expected reciprocal rank, as in ndeval.

    Formula: sum over ranks r <= k of (sum over its subtopics of (1 - alpha)^(times covered above)) / r, divided by
    the number of subtopics times the value of a ranking that covers one subtopic at every rank.
    Rule: normalised as in ndeval; 0 if no document covers a subtopic.
    Paper: Chapelle et al. (2011), Intent-Based Diversification of Web Search Results.

    >>> from ragauge.evaluation.evaluate import evaluate
    >>> from ragauge.files.in_memory import judgments_from_subtopics as subtopic_judgments
    >>> evaluate(subtopic_judgments([("q", "1", "a", 1)]), {"q": {"a": 1.0}}, ["err_ia@1"]).means
    {'err_ia@1': 1.0}
    """
    values = np.zeros(judged.n)
    for i, (ids, topic) in enumerate(_subtopic_coverage(judged, rel)):
        if topic.n_subtopics:
            discounted_gains = _novelty_gains(ids[:k], topic, alpha) / np.arange(1, len(ids[:k]) + 1)
            max_gain = ((1 - alpha) ** np.arange(k) / np.arange(1, k + 1)).sum()
            values[i] = discounted_gains.sum() / (topic.n_subtopics * max_gain)
    return values
