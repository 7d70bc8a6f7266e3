"""Terms of a gain: their weights, and their values for rankings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.records import Floats, Judgments
from ragauge.core.samples import Sample
from ragauge.evaluation.evaluate import compute_judged_ranks
from ragauge.judging.results import JudgedSamples
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure, parse_measure
from ragauge.measures.registry import mean
from ragauge.measures.scoring import score_judged_ranks

CONTEXT_RECALL, NOVELTY = "context_recall", "novelty"
NOVELTY_DEFINITIONS = ("mean", "least", "lexical")
"""Definitions of the novelty of a document; see DocumentNovelty."""
MAX_WEIGHT = 1e9
"""Largest absolute weight; larger ones would make sums lose precision."""


def read_weights(term_weights: Mapping[str, float] | None, k: int, convention: Convention) -> dict[str, float]:
    """Return weights by canonical term name.

    By default a third for each of three terms. A measure with an optional cutoff and none given is cut at k. BadInput
    is raised for invalid weights.

    >>> from ragauge.measures.conventions import PRESETS
    >>> read_weights({"Recall@5": 0.5, "MRR": 0.5}, 10, PRESETS["default"])
    {'recall@5': 0.5, 'mrr@10': 0.5}
    """
    if term_weights is None:
        return dict.fromkeys((f"recall@{k}", CONTEXT_RECALL, NOVELTY), 1 / 3)
    weights: dict[str, float] = {}
    for text, weight in term_weights.items():
        name = _canonical_term(text, k, convention)
        if name in weights:
            raise BadInput(f"`{name}` has two weights", hint="give each term one weight")
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or (isinstance(weight, float) and math.isnan(weight)):
            raise BadInput(f"the weight of {name} must be a number, got {weight!r}", hint="--weight recall@10=0.5")
        if abs(weight) > MAX_WEIGHT:
            raise BadInput(f"the weight of {name} must be at most {MAX_WEIGHT:,.0f}", hint="--weight recall@10=0.5")
        weights[name] = float(weight)
    if not any(weights.values()):
        raise BadInput("no term has a weight", hint="--weight recall@10=0.5 --weight novelty=0.5")
    return weights


def _canonical_term(text: str, k: int, convention: Convention) -> str:
    plain = text.strip().lower().replace("-", "_")
    if plain in (CONTEXT_RECALL, NOVELTY):
        return plain
    if plain.startswith(f"{CONTEXT_RECALL}@"):
        raise BadInput("context_recall has no cutoff: it uses the first k documents", hint="-k 5 -w context_recall=1")
    measure = _check_averaged(parse_measure(text, convention))
    return str(replace(measure, cutoff=k) if measure.cutoff is None and measure.spec.cutoff == "rank?" else measure)


def _check_averaged(measure: Measure) -> Measure:
    """Return the measure; raise BadInput unless it is averaged over queries."""
    if measure.spec.aggregate is not mean or dict(measure.options).get("of") == "means":
        raise BadInput(f"{measure} is not a mean over queries", hint="use a measure such as recall@10")
    return measure


class ContextRecallJudge:
    """Context recall of queries with the texts they retrieved; NaN if unscored."""

    def __init__(
        self,
        judge_samples: Callable[[Sequence[Sample]], JudgedSamples],
        queries: Mapping[str, str],
        answers: Mapping[str, str],
    ) -> None:
        self.judge = ""
        """Name of the judge; empty before the first call."""
        self._judge_samples, self._queries, self._answers = judge_samples, queries, answers
        self._reasons: dict[str, str] = {}
        self._notes: dict[str, None] = {}
        self._recalls: dict[tuple[str, tuple[str, ...]], float] = {}

    def __call__(self, query_texts: Sequence[tuple[str, tuple[str, ...]]]) -> Floats:
        """Return the context recall of each query with its texts; equal ones are judged once."""
        unjudged = [pair for pair in dict.fromkeys(query_texts) if pair not in self._recalls]
        self._recalls.update(zip(unjudged, self._judge_recalls(unjudged).tolist(), strict=True))
        return np.array([self._recalls[pair] for pair in query_texts])

    def _judge_recalls(self, query_texts: Sequence[tuple[str, tuple[str, ...]]]) -> Floats:
        """Judge the samples and collect the notes."""
        samples = [
            Sample(str(index), self._queries[query], contexts=texts, reference=self._answers[query])
            for index, (query, texts) in enumerate(query_texts)
            if query in self._answers
        ]
        recalls = np.full(len(query_texts), math.nan)
        if not samples:
            return recalls
        judged_samples = self._judge_samples(samples)
        self.judge = judged_samples.judge
        self._notes.update(
            dict.fromkeys([*judged_samples.notes, *([judged_samples.stopped] if judged_samples.stopped else [])])
        )
        for index, reason in judged_samples.scores.unscored[CONTEXT_RECALL].items():
            self._reasons.setdefault(query_texts[int(index)][0], reason)
        recalls[[int(sample.id) for sample in samples]] = judged_samples.scores.values[CONTEXT_RECALL]
        return recalls

    def summarise_unscored(self, queries: Sequence[str], improvements: Floats, *, chat: bool) -> tuple[list[str], str]:
        """Return the notes on both snapshots, and the reason if no query was scored.

        BackendFailed is raised if a `chat` model was requested and scored no query.
        """
        answered = [query for query in queries if query in self._answers]
        scored_queries = {
            query for query, value in zip(queries, improvements.tolist(), strict=True) if not math.isnan(value)
        }
        unscored = [query for query in answered if query not in scored_queries]
        if not unscored:
            return list(self._notes), ""
        first_reason = next((self._reasons[query] for query in unscored if query in self._reasons), "no score returned")
        if len(unscored) < len(answered):
            note = f"{len(unscored):,} of {len(answered):,} queries are unscored by the judge: {first_reason}"
            return [note, *self._notes], ""
        if chat:
            raise BackendFailed(f"the judge scored none of {len(answered):,} queries on both sides: {first_reason}")
        return list(self._notes), f"the judge scored no query on both sides: {first_reason}"


DocumentRanking = tuple[str, ...]
"""Document ids, best first."""
RankingsByQuery = Mapping[str, DocumentRanking]
"""Rankings by query."""


class RankingScorer:
    """Scorer of rankings by the terms of a gain, except novelty."""

    def __init__(
        self,
        judgments: Judgments,
        weights: Mapping[str, float],
        convention: Convention,
        *,
        k: int,
        judge: ContextRecallJudge | None = None,
    ) -> None:
        self.names = [name for name in weights if name != NOVELTY]
        """Names of the terms that have a value per query."""
        self.weights = np.array([weights[name] for name in self.names])
        measures = [parse_measure(name, convention) for name in self.names if name != CONTEXT_RECALL]
        lower_is_better = {str(measure) for measure in measures if measure.spec.lower_is_better}
        self.signs = np.array([-1.0 if name in lower_is_better else 1.0 for name in self.names])
        """-1 for terms with lower-is-better measures, 1 for the others."""
        cut = [measure for measure in measures if measure.cutoff is not None and measure.spec.cutoff != "level"]
        uncut = [measure for measure in measures if measure not in cut]
        self.without_cutoff = [str(measure) for measure in uncut]
        """Names of the measures that cannot have a cutoff in ranks."""
        self.depth = max([k, *(int(measure.cutoff or 0) for measure in cut)])
        """Number of documents used of a ranking."""
        self._groups = [(depth, group) for depth, group in ((self.depth, cut), (k, uncut)) if group]
        """Depths and their measures; measures that cannot have a cutoff are computed at depth k."""
        self._judgments, self._judge, self._k = judgments, judge, k
        # Every query was run on both sides, regardless of how the convention treats missing queries.
        self._convention = replace(convention, missing="zero")

    def score(self, rankings: RankingsByQuery, texts: Mapping[str, str]) -> Floats:
        """Score the rankings of one snapshot: one row per query, one column per term.

        `texts` are the document texts of that snapshot.
        """
        columns: dict[str, Floats] = {}
        for depth, measures in self._groups:
            columns |= self._score_measures(rankings, depth, measures)
        if self._judge is not None:
            columns[CONTEXT_RECALL] = self._judge(
                [
                    (query, tuple(texts.get(doc, "") for doc in ranking[: self._k]))
                    for query, ranking in rankings.items()
                ]
            )
        unscored = np.full(len(rankings), math.nan)
        return np.array([columns.get(name, unscored) for name in self.names]).reshape(-1, len(rankings)).T

    def _score_measures(self, rankings: RankingsByQuery, depth: int, measures: Sequence[Measure]) -> dict[str, Floats]:
        run = {
            query: {doc: float(depth - rank) for rank, doc in enumerate(ranking[:depth])}
            for query, ranking in rankings.items()
        }
        ranks = compute_judged_ranks(self._judgments, run, measures, self._convention)
        scores = score_judged_ranks(ranks, measures, self._convention)
        positions = {query: i for i, query in enumerate(scores.queries)}
        rows = [positions[query] for query in rankings]
        return {str(measure): scores.values[str(measure)][rows] for measure in measures}
