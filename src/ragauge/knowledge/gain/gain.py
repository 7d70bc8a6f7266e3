"""Gain of a corpus from added documents, overall and per query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ragauge.compute.progress import Progress
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.records import Dataset, Floats, Ints
from ragauge.core.samples import LEXICAL_JUDGE, Sample
from ragauge.files.serialization import settings_from
from ragauge.files.workspace import cache_folder, temporary_folder
from ragauge.judging.judge import judge_unsaved
from ragauge.judging.results import JudgedSamples
from ragauge.knowledge.gain.changes import (
    SnapshotChanges,
    added_in_top_k,
    count_judged,
    gain_notes,
    relevant_pushed_out,
)
from ragauge.knowledge.gain.results import AddedDocument, Gain, GainTerm
from ragauge.knowledge.gain.snapshot_systems import SnapshotResults, SnapshotRunner
from ragauge.knowledge.gain.snapshots import GainOptions, GainSettings, Snapshot, SnapshotPair, open_snapshots
from ragauge.knowledge.gain.terms import CONTEXT_RECALL, NOVELTY, ContextRecallJudge, RankingScorer, read_weights
from ragauge.knowledge.novelty.chunks import chunk_novelties, document_means, document_minimums, shingle_overlap
from ragauge.knowledge.novelty.novelty import NoveltySettings, prepare_novelty_data
from ragauge.measures.conventions import Convention, find_convention
from ragauge.runs.folder import dataset_fingerprint, provenance, utc_now

MIN_SAMPLES_FOR_PROGRESS = 100
"""Number of samples from which the lexical judge takes long enough to report progress."""


def gain(
    before: Any = None,
    after: Any = None,
    *,
    add: Any = None,
    dataset: Any = None,
    system: Any = "bm25",
    **options: Unpack[GainOptions],
) -> Gain:
    """Measure the gain from one corpus to another, or from documents added to it.

    A corpus is a file, a folder, a dataset's name, a Dataset or Documents. `before` and `after` can also both be
    objects that search. The queries are those of `dataset`, otherwise of `after`, otherwise of `before`. They are run
    on `system`, built on both corpora. `system` is a description, or a function from documents to an object that
    searches. Neither corpus is changed. Further settings are the fields of `GainSettings`: weights, k, chat, embedder
    and others.
    """
    settings = settings_from(GainSettings, options)
    convention = find_convention(settings.convention)
    weights = read_weights(settings.weights, settings.k, convention)
    snapshots = open_snapshots(
        before,
        after,
        add,
        dataset,
        split=settings.split,
        before_run=settings.before_run,
        after_run=settings.after_run,
    )
    if settings.chat == LEXICAL_JUDGE or settings.folder is not None:
        return GainComputation(snapshots, system, settings, weights, convention).gain()
    # Claims of a reference are extracted once. Otherwise before and after would be judged by different claims.
    with temporary_folder("gain") as folder:
        settings = replace(settings, folder=folder)
        return GainComputation(snapshots, system, settings, weights, convention).gain()


class GainComputation:
    """Computation of one gain, with its intermediate results."""

    def __init__(
        self,
        snapshots: SnapshotPair,
        system: Any,
        settings: GainSettings,
        weights: dict[str, float],
        convention: Convention,
    ) -> None:
        self.snapshots, self.settings, self.weights, self.convention = snapshots, settings, weights, convention
        self.progress = settings.progress
        self.judgments = snapshots.data.judgments
        judged_queries = [
            (query, text) for query, text in snapshots.data.queries.items() if query in self.judgments.nested
        ]
        self.queries = dict(judged_queries[: settings.max_queries])
        if not self.queries:
            raise BadInput(f"the dataset {snapshots.data.name} has no query with judgments")
        self.runner = SnapshotRunner(
            system, self.queries, self.judgments, settings.workers, settings.timeout, self.progress
        )
        if self.is_built_here:
            self.runner.check()
        self.added = [document.id for document in snapshots.added]
        self.embedder = ""
        self.unscored_reasons: dict[str, str] = {}
        self.judge_notes: list[str] = []
        self.recall_judge = self._build_recall_judge()
        self.scorer = RankingScorer(self.judgments, weights, convention, k=settings.k, judge=self.recall_judge)

    @property
    def is_built_here(self) -> bool:
        """Whether ragauge builds the system on both snapshots."""
        return all(
            snapshot.searcher is None and snapshot.rankings is None
            for snapshot in (self.snapshots.before, self.snapshots.after)
        )

    def gain(self) -> Gain:
        """Compute all parts of the gain."""
        before = self._run_queries(self.snapshots.before, "before")
        after = self._run_queries(self.snapshots.after, "after")
        failed = {**before.failed, **after.failed}
        queries = [query for query in self.queries if query not in failed]
        if not queries:
            raise BadInput("every query failed before or after", hint=next(iter(failed.values())))
        changes = self._score_changes(queries, before, after)
        novelty = self._measure_novelty()
        result = self._gather_result(changes, novelty, before, after)
        notes = gain_notes(result, count_judged(self.added, self.judgments.nested), failed)
        return replace(result, notes=[*notes, *self.judge_notes])

    def _gather_result(
        self, changes: SnapshotChanges, novelty: Mapping[str, float], before: SnapshotResults, after: SnapshotResults
    ) -> Gain:
        settings, snapshots = self.settings, self.snapshots
        terms = self._gain_terms(changes, novelty)
        # Novelty shifts the gain and its interval, because it does not depend on queries.
        novelty_gains = [
            term.weight * term.value for term in terms if term.name == NOVELTY and not math.isnan(term.value)
        ]
        shift = math.fsum(novelty_gains)
        low, high = changes.interval(settings.confidence)
        relevant = {
            query: frozenset(doc for doc, grade in self.judgments.nested[query].items() if grade >= self.convention.rel)
            for query in changes.queries
        }
        entered = added_in_top_k(after.rankings, frozenset(self.added), settings.k)
        pushed_out = relevant_pushed_out(before.rankings, after.rankings, relevant, settings.k)
        return Gain(
            total=shift if math.isnan(changes.total) and novelty_gains else changes.total + shift,
            low=low + shift,
            high=high + shift,
            confidence=settings.confidence,
            terms=terms,
            k=settings.k,
            added=len(self.added),
            removed=snapshots.removed,
            changed=snapshots.changed,
            documents_known=snapshots.knows_added,
            terms_without_cutoff=self.scorer.without_cutoff,
            queries=len(changes.queries),
            changed_queries=changes.changed_queries(self.queries, entered, pushed_out),
            documents=self._describe_added(novelty, relevant, [entered[query] for query in changes.queries]),
            query_gain=changes.total,
            query_gain_low=low,
            query_gain_high=high,
            p=changes.p(),
            novelty_definition=settings.novelty,
            system=self._system_name(),
            dataset=snapshots.data.name,
            judge=self.recall_judge.judge if self.recall_judge else "",
            embedder=self.embedder,
            before=snapshots.before.name,
            after=snapshots.after.name,
            provenance=self._provenance(before, after),
        )

    def _run_queries(self, snapshot: Snapshot, name: str) -> SnapshotResults:
        documents, depth = snapshot.documents or (), self.scorer.depth
        if snapshot.rankings is not None:
            absent = {
                query: f"the run {name} does not have it" for query in self.queries if query not in snapshot.rankings
            }
            return SnapshotResults({query: snapshot.rankings.get(query, ())[:depth] for query in self.queries}, absent)
        if snapshot.searcher is not None:
            return self.runner.run_retriever(snapshot.searcher, documents, depth, name)
        if snapshot.documents is None:
            raise BadInput(f"no corpus {name} given", hint=f"--{name} CORPUS")
        return self.runner.run_on_snapshot(documents, depth, name)

    def _build_recall_judge(self) -> ContextRecallJudge | None:
        """Return the judge of context recall, or None with the reason in `unscored_reasons`."""
        answers = self.snapshots.data.answers
        if CONTEXT_RECALL not in self.weights:
            return None
        if not any(query in answers for query in self.queries):
            self.unscored_reasons[CONTEXT_RECALL] = "no query has a reference answer"
            return None
        if any(snapshot.documents is None for snapshot in (self.snapshots.before, self.snapshots.after)):
            self.unscored_reasons[CONTEXT_RECALL] = "the texts of the documents are unknown"
            return None

        def judge_recall(samples: Sequence[Sample]) -> JudgedSamples:
            settings = self.settings
            judging = settings.judging
            if settings.chat != LEXICAL_JUDGE or len(samples) > MIN_SAMPLES_FOR_PROGRESS:
                judging = replace(judging, progress=self.progress)
            return judge_unsaved(samples, [CONTEXT_RECALL], chat=settings.chat, folder=settings.folder, **vars(judging))

        return ContextRecallJudge(judge_recall, self.queries, answers)

    def _add_judge_notes(self, changes: SnapshotChanges) -> None:
        """Add the judge's notes, and the reason if it scored no query."""
        if self.recall_judge is None:
            return
        improvements = changes.improvements[:, self.scorer.names.index(CONTEXT_RECALL)]
        chat = self.settings.chat != LEXICAL_JUDGE
        notes, reason = self.recall_judge.summarise_unscored(changes.queries, improvements, chat=chat)
        self.judge_notes = notes
        if reason:
            self.unscored_reasons[CONTEXT_RECALL] = reason

    def _score_changes(
        self, queries: Sequence[str], before: SnapshotResults, after: SnapshotResults
    ) -> SnapshotChanges:
        self.progress(Progress("scoring"))
        scores = [
            self.scorer.score({query: results.rankings[query] for query in queries}, snapshot.texts)
            for results, snapshot in ((before, self.snapshots.before), (after, self.snapshots.after))
        ]
        changes = SnapshotChanges(queries, self.scorer.names, self.scorer.weights, self.scorer.signs, *scores)
        self._add_judge_notes(changes)
        return changes

    def _measure_novelty(self) -> dict[str, float]:
        """Measure the novelty of each added document, or keep the reason why it is undefined."""
        if NOVELTY not in self.weights:
            return {}
        known = self.snapshots.before.documents
        if known is None:
            self.unscored_reasons[NOVELTY] = "the documents before are unknown"
            return {}
        if not self.added:
            self.unscored_reasons[NOVELTY] = "no documents were added"
            return {}
        try:
            novelties = (
                self._lexical_novelties(known) if self.settings.novelty == "lexical" else self._vector_novelties(known)
            )
        except MissingExtra as error:
            if self.settings.weights is not None:
                raise
            self.unscored_reasons[NOVELTY] = f"{error.message}: {error.hint}"
            return {}
        return dict(zip(self.added, novelties.tolist(), strict=True))

    def _lexical_novelties(self, known: Sequence[Document]) -> Floats:
        no_sample: Ints = np.zeros(0, np.int64)
        overlap, _ = shingle_overlap(self.snapshots.added, known, no_sample, np.arange(len(known)), self.progress)
        return overlap.new_share

    def _vector_novelties(self, known: Sequence[Document]) -> Floats:
        settings = NoveltySettings(embedder=self.settings.embedder, cache=cache_folder())
        data = prepare_novelty_data(list(self.snapshots.added), list(known), settings, self.progress)
        self.embedder = data.embedder.name
        summarise = document_minimums if self.settings.novelty == "least" else document_means
        return summarise(chunk_novelties(data.highest_similarity), data.chunks.owner, len(self.added))

    def _gain_terms(self, changes: SnapshotChanges, novelty: Mapping[str, float]) -> list[GainTerm]:
        by_name = {term.name: term for term in changes.terms(self.settings.confidence, self.unscored_reasons)}
        novelties = [value for value in novelty.values() if not math.isnan(value)]
        for name, weight in self.weights.items():
            if name == NOVELTY and novelties:
                by_name[name] = GainTerm(name, weight, math.fsum(novelties) / len(novelties), n=len(novelties))
            elif name == NOVELTY:
                by_name[name] = GainTerm(
                    name, weight, math.nan, reason=self.unscored_reasons.get(name, "no added document has any words")
                )
        return [by_name[name] for name in self.weights]

    def _describe_added(
        self, novelty: Mapping[str, float], relevant: Mapping[str, frozenset[str]], entered: Sequence[Sequence[str]]
    ) -> list[AddedDocument]:
        n_relevant = Counter(doc for docs in relevant.values() for doc in docs)
        n_entered = Counter(doc for docs in entered for doc in docs)
        documents = [
            AddedDocument(doc, novelty.get(doc, math.nan), n_relevant[doc], n_entered[doc]) for doc in self.added
        ]
        return sorted(documents, key=lambda document: (-document.entered, -document.relevant, document.id))

    def _system_name(self) -> str:
        if not self.is_built_here:
            return "runs" if self.snapshots.after.rankings is not None else self.snapshots.after.name
        system = self.runner.system
        return system if isinstance(system, str) else getattr(system, "__name__", type(system).__name__)

    def _provenance(self, before: SnapshotResults, after: SnapshotResults) -> dict[str, Any]:
        def describe_snapshot(snapshot: Snapshot) -> dict[str, Any] | None:
            if snapshot.documents is None:
                return None
            fingerprint = dataset_fingerprint(
                Dataset(snapshot.name, snapshot.documents, self.queries, self.snapshots.data.judgments)
            )
            return {name: fingerprint[name] for name in ("name", "documents", "documents_hash")}

        return {
            "made": utc_now(),
            "before": describe_snapshot(self.snapshots.before),
            "after": describe_snapshot(self.snapshots.after),
            "convention": self.convention.name,
            "seconds": {"before": round(before.seconds, 3), "after": round(after.seconds, 3)},
            **provenance(),
        }
