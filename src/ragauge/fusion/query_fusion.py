"""Fusion of the rankings of one query, as in a live retriever, and of all queries of several runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import ScoresByQuery
from ragauge.fusion.methods import FusionMethod, ParameterValue, default_norm, find_method
from ragauge.fusion.normalisation import (
    Ranking,
    Rankings,
    avoid_overflow,
    check_scores,
    find_normalisation,
    sort_ranking,
    to_ranking,
)
from ragauge.fusion.trained_methods import RelevantRanks, TrainedFusion


def fuse_query(
    rankings: Sequence[Mapping[str, float]],
    method: str = "rrf",
    norm: str | None = None,
    *,
    trained: TrainedFusion | None = None,
    **params: ParameterValue,
) -> dict[str, float]:
    """Fuse the rankings of one query; returns scores, best first.

    Equal scores are ordered by document id, descending, as in trec_eval. An empty ranking is a retriever without
    hits. Without `norm`, `default_norm` chooses the normalisation.

    >>> fuse_query([{"a": 12.1, "b": 9.4}, {"b": 0.83, "c": 0.79}], "wsum", weights=[0.4, 0.6])
    {'b': 0.6, 'a': 0.4, 'c': 0.0}
    """
    fusion_method, norm, values = _resolve_fusion(method, norm, trained, params, len(rankings))
    return fuse_prepared(fusion_method, prepare_rankings(rankings, fusion_method, norm), values)


def fuse_runs(
    runs: Sequence[ScoresByQuery],
    method: str = "rrf",
    norm: str | None = None,
    *,
    trained: TrainedFusion | None = None,
    depth: int | None = None,
    **params: ParameterValue,
) -> dict[str, dict[str, float]]:
    """Fuse every query of any run.

    A query missing from a run is an empty ranking there. `missing_queries` counts those. `depth` is the maximum
    number of documents per query.

    >>> fuse_runs([{"q1": {"a": 2.0}}, {"q1": {"a": 0.5}, "q2": {"b": 0.7}}], "isr")
    {'q1': {'a': 4.0}, 'q2': {'b': 1.0}}
    """
    fusion_method, norm, values = _resolve_fusion(method, norm, trained, params, len(runs))
    return {
        query: truncate(
            fuse_prepared(fusion_method, prepare_rankings(rankings, fusion_method, norm, query), values), depth
        )
        for query, rankings in rankings_by_query(runs).items()
    }


def train(
    method: str,
    qrels: ScoresByQuery,
    runs: Sequence[ScoresByQuery],
    norm: str | None = None,
    *,
    rel: float = 1,
    **params: ParameterValue,
) -> TrainedFusion:
    """Train a method on judged queries; grades of at least `rel` are relevant.

    Scores of the same queries fused with the result are too optimistic; `cross_validate` avoids that. Raises
    `MissingEvidence` without judged queries.

    >>> train("mapfuse", {"q": {"a": 1}}, [{"q": {"b": 2.0, "a": 1.0}}, {"q": {"a": 1.0}}]).rows
    ((0.5,), (1.0,))
    """
    fusion_method = find_method(method)
    if fusion_method.train is None:
        raise BadInput(
            f"{fusion_method.name} has no values to learn", hint="remove the training, or tune its parameters"
        )
    if not qrels:
        raise MissingEvidence(f"{fusion_method.name} needs judged queries to learn from, got none")
    norm = find_normalisation(norm or default_norm(method)).name
    values = fusion_method.resolve_parameters(params, len(runs), for_training=True)
    prepared = {
        query: prepare_rankings([run.get(query, {}) for run in runs], fusion_method, norm, query) for query in qrels
    }
    return TrainedFusion(
        fusion_method.name,
        norm,
        learn_values(fusion_method, qrels, prepared, len(runs), values, rel),
        values,
        len(qrels),
    )


def learn_values(
    fusion_method: FusionMethod,
    qrels: ScoresByQuery,
    prepared: Mapping[str, Rankings],
    n_runs: int,
    values: Mapping[str, Any],
    rel: float,
) -> tuple[Sequence[float], ...]:
    """Compute the learned values of each run from prepared rankings."""
    if fusion_method.train is None:
        return ()
    relevant = {query: {doc for doc, grade in docs.items() if grade >= rel} for query, docs in qrels.items()}
    rows = []
    for i in range(n_runs):
        lists = [
            np.array([doc in relevant_docs for doc in prepared[query][i]], np.float64)
            for query, relevant_docs in relevant.items()
        ]
        rows.append(fusion_method.train(RelevantRanks(lists, list(map(len, relevant.values()))), **values))
    return tuple(rows)


def missing_queries(runs: Sequence[ScoresByQuery]) -> list[int]:
    """Count the queries that each run lacks and another run has.

    >>> missing_queries([{"q1": {"a": 2.0}}, {"q1": {"a": 0.5}, "q2": {"b": 0.7}}])
    [1, 0]
    """
    all_queries = {query for run in runs for query in run}
    return [len(all_queries - run.keys()) for run in runs]


def rankings_by_query(runs: Sequence[ScoresByQuery]) -> dict[str, list[Mapping[str, float]]]:
    """Collect the rankings of each query, in order of first appearance."""
    all_queries = dict.fromkeys(query for run in runs for query in run)
    return {query: [run.get(query, {}) for run in runs] for query in all_queries}


def prepare_rankings(
    rankings: Sequence[Mapping[str, float]], fusion_method: FusionMethod, norm: str, query: str | None = None
) -> Rankings:
    """Normalise the rankings of a query, sorted best first if ranks are needed."""
    normalisation = find_normalisation(norm)
    try:
        check = to_ranking if fusion_method.input_kind != "scores" or normalisation.uses_ranks else check_scores
        checked = [check(ranking) for ranking in rankings]
        # The other normalisations give the same for all multiples of the scores.
        return checked if norm == "none" else normalisation.function([avoid_overflow(ranking) for ranking in checked])
    except BadInput as error:
        if query is None:
            raise
        raise BadInput(f"query `{query}`: {error.message}", hint=error.hint) from None


def fuse_prepared(fusion_method: FusionMethod, rankings: Rankings, values: Mapping[str, Any]) -> Ranking:
    """Fuse normalised rankings, best first; raise BadInput if a fused score exceeds the largest number."""
    fused = fusion_method.function(rankings, **values)
    if not math.isfinite(sum(fused.values())):
        for doc, score in fused.items():
            if not math.isfinite(score):
                raise BadInput(
                    f"the fused score of document `{doc}` exceeds the largest number",
                    hint="use the normalisation min-max, or smaller scores and weights",
                )
    return sort_ranking(fused)


def truncate(ranking: Ranking, depth: int | None) -> Ranking:
    """Keep the first `depth` documents; None keeps all."""
    if depth is None:
        return ranking
    if depth < 1:
        raise BadInput(f"depth must be at least 1, got {depth}")
    return dict(list(ranking.items())[:depth])


def _resolve_fusion(
    method: str, norm: str | None, trained: TrainedFusion | None, params: Mapping[str, Any], n_runs: int
) -> tuple[FusionMethod, str, dict[str, Any]]:
    """Resolve method, normalisation and parameters.

    Raises if they do not fit together.
    """
    fusion_method = find_method(method)
    if n_runs == 0:
        raise BadInput("no rankings to fuse", hint="pass at least one ranking")
    values = fusion_method.resolve_parameters(params, n_runs)
    if fusion_method.train is None:
        if trained is not None:
            raise BadInput(f"{fusion_method.name} does not use learned values, got those of {trained.method}")
        return fusion_method, norm or default_norm(method), values
    if trained is None:
        raise MissingEvidence(
            f"{fusion_method.name} must first learn from judged queries",
            hint=f'pass trained=train("{fusion_method.name}", qrels, runs), or tune it (--tune --qrels FILE)',
        )
    if trained.method != fusion_method.name or len(trained.rows) != n_runs:
        raise BadInput(
            f"expected values that {fusion_method.name} learned from {n_runs} runs, got those of {trained.method} "
            f"from {len(trained.rows)} runs"
        )
    return fusion_method, norm or trained.norm, values | {"rows": trained.rows}
