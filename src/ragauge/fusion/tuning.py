"""Cross-validated tuning: no query is fused with parameters chosen on its own judgments.

Parameters chosen and scored on the same queries look better than they are. Here the queries are split into folds.
For each fold the parameters are chosen, or the method is trained, on all other folds. Both scores are reported, so
that the difference is visible.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import ScoresByQuery
from ragauge.core.settings import check_keywords
from ragauge.fusion.methods import FusionMethod, MethodParameter, default_norm, find_method, simplex_weights
from ragauge.fusion.normalisation import Ranking, Rankings, find_normalisation
from ragauge.fusion.query_fusion import fuse_prepared, learn_values, prepare_rankings, rankings_by_query, truncate
from ragauge.fusion.trained_methods import TrainedFusion

QueryScorer = Callable[[ScoresByQuery], Mapping[str, float]]
"""Function that scores each query of a fused run, higher is better; queries may be left out."""
ParameterGrid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""Values to try for each parameter, in all combinations; or a list of combinations."""
ParameterValues = Mapping[str, Any]


@dataclass(frozen=True)
class Fold:
    """Queries of one fold, and the parameters chosen on the other folds."""

    queries: tuple[str, ...]
    params: ParameterValues


@dataclass(frozen=True, eq=False)
class TunedFusion:
    """Run fused under cross-validation, with its scores and parameters."""

    method: str
    norm: str
    run: dict[str, dict[str, float]] = field(repr=False)
    """Fused run; each judged query uses parameters chosen on other queries, and an unjudged query uses `params`."""
    folds: tuple[Fold, ...]
    scores: Mapping[str, float] = field(repr=False)
    """Out-of-fold score of each judged query in `run`; the estimate for new queries."""
    in_sample: Mapping[str, float] = field(repr=False)
    """Scores with parameters chosen on all judged queries; too optimistic, for comparison only."""
    params: ParameterValues
    """Parameters chosen on all judged queries; use these for new queries."""
    trained: TrainedFusion | None = field(repr=False, default=None)
    """Values learned from all judged queries; None if the method does not learn."""
    tried: tuple[tuple[ParameterValues, float], ...] = field(repr=False, default=())
    """Every combination with its in-sample mean."""

    @property
    def mean(self) -> float:
        """Out-of-fold mean."""
        return _mean_or_nan(self.scores.values())

    @property
    def in_sample_mean(self) -> float:
        return _mean_or_nan(self.in_sample.values())

    @property
    def optimism(self) -> float:
        """In-sample mean minus out-of-fold mean."""
        return self.in_sample_mean - self.mean


class TuningOptions(TypedDict, total=False):
    """How parameters are chosen."""

    folds: int
    """Number of folds; 5 by default."""
    seed: int
    grid: ParameterGrid | None
    """Values to try by parameter, or combinations; None: those of the method."""
    depth: int | None
    """Maximum number of documents per query of the fused run."""


def cross_validate(
    runs: Sequence[ScoresByQuery],
    qrels: ScoresByQuery,
    method: str = "wsum",
    norm: str | None = None,
    *,
    score: QueryScorer,
    rel: float = 1,
    **options: Unpack[TuningOptions],
) -> TunedFusion:
    """Fuse runs with parameters chosen, or learned, on other queries.

    Among combinations with equal scores the first one of the grid is chosen. Default grids start with the default
    value, or with equal weights.
    """
    check_keywords("cross_validate", options, TuningOptions)
    fusion_method = find_method(method)
    norm = find_normalisation(norm or default_norm(method)).name
    if not runs:
        raise BadInput("no runs to fuse", hint="pass at least one run")
    split = split_folds(qrels, options.get("folds", 5), options.get("seed", 0))
    rankings = rankings_by_query(runs) | {query: [run.get(query, {}) for run in runs] for query in qrels}
    session = _TuningSession(
        method=fusion_method,
        grid=parameter_combinations(fusion_method, len(runs), options.get("grid")),
        rankings={query: prepare_rankings(lists, fusion_method, norm, query) for query, lists in rankings.items()},
        qrels=qrels,
        score=score,
        n_runs=len(runs),
        depth=options.get("depth"),
        rel=rel,
    )
    fused: dict[str, Ranking] = {}
    chosen = []
    for fold_queries in split:
        held_out = set(fold_queries)
        params, rows, _ = session.choose([query for query in qrels if query not in held_out])
        chosen.append(Fold(fold_queries, params))
        fused |= session.fuse(params, rows, fold_queries)
    params, rows, tried_values = session.choose(list(qrels))
    in_sample = session.fuse(params, rows, qrels)
    fused |= session.fuse(params, rows, [query for query in rankings if query not in qrels])
    return TunedFusion(
        method=fusion_method.name,
        norm=norm,
        run={query: fused[query] for query in rankings},
        folds=tuple(chosen),
        scores=session.values({query: fused[query] for query in qrels}),
        in_sample=session.values(in_sample),
        params=params,
        trained=None
        if fusion_method.train is None
        else TrainedFusion(fusion_method.name, norm, rows, session.training_values(params), len(qrels)),
        tried=tried_values,
    )


def split_folds(queries: Collection[str], folds: int, seed: int) -> list[tuple[str, ...]]:
    """Split the queries into folds of nearly equal size.

    The split is a seeded shuffle of the sorted ids.
    """
    if folds < 2:
        raise BadInput(f"folds must be at least 2, got {folds}", hint="use folds=5")
    if len(queries) < folds:
        raise BadInput(f"{len(queries)} judged queries cannot be split into {folds} folds", hint="use fewer folds")
    names = sorted(queries)
    shuffled = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    return [tuple(sorted(shuffled[at::folds])) for at in range(folds)]


def parameter_combinations(
    fusion_method: FusionMethod, n_runs: int, grid: ParameterGrid | None
) -> list[dict[str, Any]]:
    """List the parameter combinations to try; raises `BadInput` if one is invalid."""
    if grid is None:
        values = {
            name: _values_to_try(parameter, n_runs)
            for name, parameter in fusion_method.parameters.items()
            if parameter.grid or parameter.is_weights
        }
        if not values and fusion_method.train is None:
            raise BadInput(f"{fusion_method.name} has no parameters to tune", hint="fuse without tuning")
        grid = values
    if isinstance(grid, Mapping):
        combinations = itertools.product(*grid.values())
        candidates = [dict(zip(grid, values, strict=True)) for values in combinations]
    else:
        candidates = [dict(candidate) for candidate in grid]
    if not candidates:
        raise BadInput("the grid is empty", hint="pass at least one value per parameter")
    for candidate in candidates:
        training = {
            name: value
            for name, value in candidate.items()
            if name in fusion_method.parameters and fusion_method.parameters[name].is_training_only
        }
        fusion_method.resolve_parameters(training, n_runs, for_training=True)
        fusion_method.resolve_parameters(
            {name: value for name, value in candidate.items() if name not in training}, n_runs
        )
    return candidates


def _values_to_try(parameter: MethodParameter, n_runs: int) -> Sequence[Any]:
    return simplex_weights(n_runs) if parameter.is_weights else (parameter.default, *parameter.grid)


@dataclass(eq=False)
class _TuningSession:
    """State shared by all folds: the prepared rankings, and cached scores of each combination."""

    method: FusionMethod
    grid: list[dict[str, Any]]
    rankings: Mapping[str, Rankings]
    qrels: ScoresByQuery
    score: QueryScorer
    n_runs: int
    depth: int | None
    rel: float
    cached_scores: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def training_values(self, params: ParameterValues) -> dict[str, Any]:
        """Return the training parameters, given or default."""
        training_params = {
            name: value for name, value in params.items() if self.method.parameters[name].is_training_only
        }
        return self.method.resolve_parameters(training_params, self.n_runs, for_training=True)

    def choose(self, queries: Sequence[str]) -> tuple[ParameterValues, tuple[Sequence[float], ...], Any]:
        """Choose the best combination on these queries.

        Returns its parameters, its learned values, and the score of every combination.
        """
        chosen_from = set(queries)
        tried_values = []
        best: tuple[float, ParameterValues, tuple[Sequence[float], ...]] | None = None
        for i, params in enumerate(self.grid):
            rows = self._learn_rows(params, queries)
            value = _mean_or_nan(
                [v for q, v in self._score_combination(i, params, rows, queries).items() if q in chosen_from]
            )
            tried_values.append((params, value))
            if math.isnan(value):
                raise MissingEvidence("the measure scores none of the queries that parameters are chosen on")
            if best is None or value > best[0]:
                best = value, params, rows
        if best is None:
            raise BadInput("the grid is empty")
        return best[1], best[2], tuple(tried_values)

    def _learn_rows(self, params: ParameterValues, queries: Sequence[str]) -> tuple[Sequence[float], ...]:
        judged = {query: self.qrels[query] for query in queries}
        return learn_values(self.method, judged, self.rankings, self.n_runs, self.training_values(params), self.rel)

    def _score_combination(
        self, at: int, params: ParameterValues, rows: tuple[Sequence[float], ...], queries: Sequence[str]
    ) -> Mapping[str, float]:
        """Score one combination per query.

        Cached for all folds if the method does not learn.
        """
        if self.method.train is not None:
            return self.values(self.fuse(params, rows, queries))
        if at not in self.cached_scores:
            self.cached_scores[at] = self.values(self.fuse(params, rows, self.qrels))
        return self.cached_scores[at]

    def values(self, fused: ScoresByQuery) -> dict[str, float]:
        """Score each query of a fused run, without undefined scores."""
        return {query: value for query, value in self.score(fused).items() if not math.isnan(value)}

    def fuse(
        self, params: ParameterValues, rows: tuple[Sequence[float], ...], queries: Collection[str]
    ) -> dict[str, Ranking]:
        """Fuse the rankings of the given queries."""
        fusing = {name: value for name, value in params.items() if not self.method.parameters[name].is_training_only}
        values = self.method.resolve_parameters(fusing, self.n_runs) | ({"rows": rows} if rows else {})
        return {
            query: truncate(fuse_prepared(self.method, self.rankings[query], values), self.depth) for query in queries
        }


def _mean_or_nan(values: Collection[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
