"""Gain of a corpus from added documents, overall, per query and per document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ragauge.compute.progress import Progress
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.records import Dataset, Floats, Judgments, ScoresByQuery
from ragauge.core.samples import LEXICAL_JUDGE, Sample
from ragauge.evaluation import compute_judged_ranks
from ragauge.files.serialization import settings_from
from ragauge.files.workspace import cache_folder, temporary_folder
from ragauge.judging import judge_unsaved
from ragauge.judging.results import JudgedSamples
from ragauge.knowledge.gain.attribution import (
    CandidatePool,
    ChunkNovelty,
    FixedNovelty,
    RemainingNovelty,
    ShingleNovelty,
    choose_batch,
    document_contributions,
    drop_each_document,
    find_short_rankings,
    trim_to_contenders,
)
from ragauge.knowledge.gain.changes import (
    SnapshotChanges,
    added_in_top_k,
    count_judged,
    failed_batch_note,
    failed_rebuilds_note,
    gain_notes,
    relevant_pushed_out,
    short_run_note,
)
from ragauge.knowledge.gain.results import BatchStep, DocumentContribution, Gain, GainTerm
from ragauge.knowledge.gain.snapshot_systems import SnapshotResults, SnapshotRunner, leave_one_out
from ragauge.knowledge.gain.snapshots import GainOptions, GainSettings, Snapshot, SnapshotPair, open_snapshots
from ragauge.knowledge.gain.terms import (
    CONTEXT_RECALL,
    NOVELTY,
    ContextRecallJudge,
    DocumentRanking,
    RankingScorer,
    ranking_measures,
    read_weights,
)
from ragauge.knowledge.novelty import NoveltySettings, prepare_novelty_data
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks
from ragauge.output.numbers import pluralise
from ragauge.runs.folder import dataset_fingerprint, provenance, utc_now

MIN_SAMPLES_FOR_PROGRESS = 100
"""Number of samples from which the lexical judge takes long enough to report progress."""
MAX_REBUILT_DOCUMENTS = {"bm25": 1_000_000}
DEFAULT_MAX_REBUILT_DOCUMENTS = 200_000
"""Maximum number of documents indexed in total if rebuilding per document was not requested."""


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
    searches. Neither corpus is changed. Further settings are the fields of `GainSettings`: weights, k, chat, embedder,
    attribution, batch and others.
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
        self.grades = snapshots.data.judgments.nested
        judged_queries = [(query, text) for query, text in snapshots.data.queries.items() if query in self.grades]
        self.queries = dict(judged_queries[: settings.max_queries])
        if not self.queries:
            raise BadInput(f"the dataset {snapshots.data.name} has no query with judgments")
        self.is_built_here = all(
            snapshot.searcher is None and snapshot.rankings is None for snapshot in (snapshots.before, snapshots.after)
        )
        self.runner = SnapshotRunner(
            system, self.queries, snapshots.data.judgments, settings.workers, settings.timeout, self.progress
        )
        if self.is_built_here:
            self.runner.check()
        self.added = [document.id for document in snapshots.added]
        self.embedder = ""
        self.unscored_reasons: dict[str, str] = {}
        self.notes: list[str] = []
        self.recall_judge = self._build_recall_judge()
        self.scorer = RankingScorer(
            snapshots.data.judgments,
            weights,
            ranking_measures(weights, convention),
            self._measure_values,
            k=settings.k,
            judge=self.recall_judge,
        )

    @property
    def is_removal_exact(self) -> bool:
        """Whether removing documents from a ranking is exact for this system."""
        return self.is_built_here and self.runner.is_removal_exact

    def gain(self) -> Gain:
        """Compute all parts of the gain."""
        settings, snapshots = self.settings, self.snapshots
        depth = self.scorer.depth
        before = self._snapshot_results(snapshots.before, depth, "before")
        # Deep enough to fill the top after any of the added documents are left out.
        after = self._snapshot_results(snapshots.after, depth + len(self.added), "after")
        failed = {**before.failed, **after.failed}
        queries = [query for query in self.queries if query not in failed]
        if not queries:
            raise BadInput("every query failed before or after", hint=next(iter(failed.values())))
        self.progress(Progress("scoring"))
        changes = self._compute_changes(queries, before, after)
        self._add_judge_notes(changes)
        remaining_novelty, novelty = self._measure_novelty()
        terms = self._gain_terms(changes, novelty)
        query_gain = changes.total(changes.mean(changes.improvements))
        low, high = changes.interval(settings.confidence)
        new = next((term for term in terms if term.name == NOVELTY and not math.isnan(term.value)), None)
        shift = 0.0 if new is None else new.weight * new.value
        added = frozenset(self.added)
        relevant = {
            query: frozenset(doc for doc, grade in self.grades[query].items() if grade >= self.convention.rel)
            for query in queries
        }
        attribution = self._choose_attribution()
        result = Gain(
            total=shift if math.isnan(query_gain) and new is not None else query_gain + shift,
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
            queries=len(queries),
            changed_queries=changes.changed_queries(
                self.queries,
                added_in_top_k({query: after.rankings[query] for query in queries}, added, settings.k),
                relevant_pushed_out(
                    {query: before.rankings[query] for query in queries}, after.rankings, relevant, settings.k
                ),
            ),
            query_gain=query_gain,
            query_gain_low=low,
            query_gain_high=high,
            p=changes.p(),
            attribution=attribution,
            exact=self.is_removal_exact,
            novelty_definition=settings.novelty,
            system=self._system_name(),
            dataset=snapshots.data.name,
            judge=self.recall_judge.judge if self.recall_judge else "",
            embedder=self.embedder,
            before=snapshots.before.name,
            after=snapshots.after.name,
            provenance=self._provenance(before, after),
        )
        if self.added:
            pool = self._build_pool(changes, after, novelty)
            result = replace(
                result,
                documents=self._document_contributions(pool, after, attribution),
                **self._best_batch(pool, remaining_novelty, before),
            )
        notes = gain_notes(result, count_judged(self.added, self.grades), failed, built=self.is_built_here)
        return replace(result, notes=[*notes, *self.notes])

    def _snapshot_results(self, snapshot: Snapshot, k: int, name: str) -> SnapshotResults:
        documents = snapshot.documents or ()
        if snapshot.rankings is not None:
            absent = {
                query: f"the run {name} does not have it" for query in self.queries if query not in snapshot.rankings
            }
            return SnapshotResults({query: snapshot.rankings.get(query, ())[:k] for query in self.queries}, absent)
        if snapshot.searcher is not None:
            return self.runner.run_retriever(snapshot.searcher, documents, k, name)
        if snapshot.documents is None:
            raise BadInput(f"no corpus {name} given", hint=f"--{name} CORPUS")
        return self.runner.run_on_snapshot(documents, k, name)

    def _measure_values(self, judgments: Judgments, run: ScoresByQuery, measures: Sequence[Measure]) -> Floats:
        # Every query was run on both sides, regardless of how the convention treats missing queries.
        zero_filled = replace(self.convention, missing="zero")
        scores = score_judged_ranks(compute_judged_ranks(judgments, run, measures, zero_filled), measures, zero_filled)
        return np.column_stack([scores.values[str(measure)] for measure in measures])

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
        self.notes += notes
        if reason:
            self.unscored_reasons[CONTEXT_RECALL] = reason
        if chat and self.recall_judge.judge and self.added:
            self.notes.append(
                "the judge was called for before and after only, so contributions of documents exclude context_recall"
            )

    def _compute_changes(
        self, queries: Sequence[str], before: SnapshotResults, after: SnapshotResults
    ) -> SnapshotChanges:
        scores = [
            self.scorer.score([(query, results.rankings[query]) for query in queries], snapshot.texts)
            for results, snapshot in ((before, self.snapshots.before), (after, self.snapshots.after))
        ]
        return SnapshotChanges(queries, self.scorer.names, self.scorer.weights, self.scorer.signs, *scores)

    def _measure_novelty(self) -> tuple[RemainingNovelty, dict[str, float]]:
        """Measure the novelty of each added document.

        Return also the object that lowers it as other documents are taken.
        """
        settings = self.settings
        if NOVELTY not in self.weights:
            return FixedNovelty({}), {}
        if self.snapshots.before.documents is None:
            self.unscored_reasons[NOVELTY] = "the documents before are unknown"
        elif not self.added:
            self.unscored_reasons[NOVELTY] = "no documents were added"
        else:
            remaining_novelty: RemainingNovelty
            try:
                if settings.novelty == "lexical":
                    remaining_novelty = ShingleNovelty(self.snapshots.added, self.snapshots.before.documents)
                else:
                    data = prepare_novelty_data(
                        list(self.snapshots.added),
                        list(self.snapshots.before.documents),
                        NoveltySettings(embedder=settings.embedder, cache=cache_folder()),
                        self.progress,
                    )
                    self.embedder = data.embedder.name
                    remaining_novelty = ChunkNovelty(
                        data.chunks, data.vectors, data.highest_similarity, settings.novelty
                    )
            except MissingExtra as error:
                if settings.weights is not None:
                    raise
                self.unscored_reasons[NOVELTY] = f"{error.message}: {error.hint}"
                return FixedNovelty({}), {}
            return remaining_novelty, dict(remaining_novelty.current())
        return FixedNovelty({}), {}

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

    def _choose_attribution(self) -> str:
        """Choose how the contribution of each document is found."""
        attribution = self.settings.attribution
        if attribution == "rebuilt" and not self.is_built_here:
            raise BadInput("--attribution rebuilt requires a system that ragauge builds", hint="--attribution dropped")
        if attribution != "auto":
            return attribution
        spec = self.runner.spec
        max_documents = MAX_REBUILT_DOCUMENTS.get(spec.name if spec else "", DEFAULT_MAX_REBUILT_DOCUMENTS)
        is_costly = len(self.snapshots.after.documents or ()) * len(self.added) > max_documents
        return "dropped" if self.is_removal_exact or not self.is_built_here or is_costly else "rebuilt"

    def _build_pool(
        self, changes: SnapshotChanges, after: SnapshotResults, novelty: Mapping[str, float]
    ) -> CandidatePool:
        is_free = self.settings.chat == LEXICAL_JUDGE
        added = frozenset(self.added)
        rankings = {
            query: trim_to_contenders(after.rankings[query], added, self.scorer.depth) for query in changes.queries
        }
        run_rankings = self.snapshots.after.rankings  # searches run here return all there is
        ends = run_rankings is not None and max(map(len, run_rankings.values()), default=0) < self._needed_depth
        return CandidatePool(
            self.added,
            rankings,
            self.scorer if is_free else self.scorer.without_judge(),
            self.snapshots.after.texts,
            changes,
            novelty,
            self.weights.get(NOVELTY, 0.0),
            find_short_rankings(rankings, added, self.scorer.depth) if ends and self.scorer.names else frozenset(),
        )

    @property
    def _needed_depth(self) -> int:
        """Ranking depth that suffices after any of the added documents are left out."""
        deep = self.scorer.depth + len(self.added)
        return deep if self.snapshots.after.documents is None else min(deep, len(self.snapshots.after.documents))

    def _document_contributions(
        self, pool: CandidatePool, after: SnapshotResults, attribution: str
    ) -> list[DocumentContribution]:
        without = (
            drop_each_document(pool)
            if attribution == "dropped"
            else self._rebuilt_rankings(pool, after)
            if attribution == "rebuilt"
            else None
        )
        if pool.short_queries:
            lacking = 0 if without is None else len(pool.added) - len(without)
            self.notes.append(short_run_note(len(pool.short_queries), lacking, self._needed_depth))
        return document_contributions(pool, without, self.grades, self.convention.rel, self.settings.k)

    def _rebuilt_rankings(self, pool: CandidatePool, after: SnapshotResults) -> dict[str, dict[str, DocumentRanking]]:
        """Return, by document, the rankings that change if the system is built without it.

        A document is left out if a query failed without it, because its effect on that query is unknown.
        """
        depth = self.scorer.depth
        rankings: dict[str, dict[str, DocumentRanking]] = {}
        lost: dict[str, str] = {}
        for doc, answers in leave_one_out(self.runner, self.snapshots.after.documents or (), pool.added, depth):
            failed = [answers.failed[query] for query in pool.rankings if query in answers.failed]
            if failed:
                lost[doc] = failed[0]
                continue
            rankings[doc] = {
                query: answers.rankings[query]
                for query in pool.rankings
                if answers.rankings[query] != after.rankings[query][:depth]
            }
        if lost:
            self.notes.append(failed_rebuilds_note(lost, len(pool.added)))
        return rankings

    def _best_batch(
        self, pool: CandidatePool, remaining_novelty: RemainingNovelty, before: SnapshotResults
    ) -> dict[str, Any]:
        """Choose the best batch and measure its gain by retrieval."""
        if not self.settings.best_batch or pool.short_queries:
            return {}
        self.progress(Progress("choosing the best batch"))
        batch = choose_batch(pool, self.settings.best_batch, remaining_novelty)
        return {"batch": batch, "batch_measured": self._measure_batch(pool, batch, before) if batch else math.nan}

    def _measure_batch(self, pool: CandidatePool, batch: Sequence[BatchStep], before: SnapshotResults) -> float:
        """Return the gain if only the batch is added; NaN if it cannot be measured."""
        if not self.is_built_here or self.snapshots.removed or self.snapshots.changed:
            return math.nan
        if self.is_removal_exact:
            return batch[-1].total
        excluded = pool.all_added - {step.id for step in batch}
        documents = [document for document in self.snapshots.after.documents or () if document.id not in excluded]
        queries = pool.changes.queries
        try:
            batch_results = self.runner.run_on_snapshot(documents, self.scorer.depth, "the best batch")
        except BackendFailed as error:
            self.notes.append(failed_batch_note(error.message))
            return math.nan
        if failed := [batch_results.failed[query] for query in queries if query in batch_results.failed]:
            self.notes.append(
                failed_batch_note(f"{pluralise(len(failed), 'query')} failed, the first with: {failed[0]}")
            )
            return math.nan
        rows = [
            pool.scorer.score([(query, results.rankings[query]) for query in queries], pool.texts)
            for results in (batch_results, before)
        ]
        means = pool.changes.mean(pool.improvements(rows[0], rows[1]))
        return float(
            sum(means[i] * pool.changes.weights[i] for i in pool.scored_terms)
            + sum(step.changes.get(NOVELTY, 0.0) for step in batch)
        )

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
