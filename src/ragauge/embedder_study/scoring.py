"""Rankings by exact cosine similarity, their scores and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core import plugins
from ragauge.core.errors import BadInput, RagaugeError
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.records import Floats, Ints, Judgments, Scores
from ragauge.core.settings import check_int
from ragauge.core.specs import Spec, parse_spec
from ragauge.core.summaries import Mean
from ragauge.embedder_study.results import EmbedderPair, MeanDifference
from ragauge.measures import judged_ranks_from_dicts
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import MeasureFunction, score_judged_ranks
from ragauge.stats import system_pairs
from ragauge.stats.comparisons import Comparison, ComparisonSettings
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.system_pairs import SystemPair, compare_pairs
from ragauge.stores.nearest_neighbours import find_nearest

IDENTITY_OPTIONS = frozenset({"model", "path", "of"})
"""Options that name another model altogether; two models differ in everything."""


def find_single_option_pairs(specs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Find pairs of embedders whose descriptions differ in one option; name it.

    An option that is not given has its default value.

    >>> find_single_option_pairs({"a": "lm(kind=lstm)", "b": "lm(kind=lstm, tokenizer=bytes)",
    ...     "c": "lm(tokenizer=bytes)", "d": "minilm"})
    [('a', 'b', 'tokenizer'), ('b', 'c', 'kind')]
    >>> find_single_option_pairs({"a": "lm", "b": "lm(kind=transformer)"})
    []
    """
    read: dict[str, Spec] = {}
    for name, text in specs.items():
        try:
            read[name] = _with_defaults(parse_spec(text), "embedders")
        except RagaugeError:  # a user's object, which has no description
            continue
    pairs = ((one, other, _differing_option(read[one], read[other])) for one, other in combinations(read, 2))
    return [(one, other, option) for one, other, option in pairs if option]


def _with_defaults(spec: Spec, family: str) -> Spec:
    """Return the description with the default value of every option that is not given."""
    try:
        parameters = read_parameters(plugins.load_plugin(family, spec.name))
    except (RagaugeError, ImportError, TypeError, ValueError):  # its default values are unknown then
        return spec
    options = {**parameters.defaults, **spec.options}
    cut = options.get("tokenizer")
    if isinstance(cut, str | Spec):
        options["tokenizer"] = _with_defaults(parse_spec(cut) if isinstance(cut, str) else cut, "tokenizers")
    return Spec(spec.name, options)


def _differing_option(first: Any, second: Any) -> str:
    """Return the single option in which two descriptions differ.

    Empty if there is no such option, if several differ, or if the models differ.

    >>> _differing_option(parse_spec("lm(tokenizer=bpe(vocabulary=500))"),
    ...     parse_spec("lm(tokenizer=bpe(vocabulary=8000))"))
    'tokenizer vocabulary'
    """
    if first.name != second.name:
        return ""
    names = dict.fromkeys([*first.options, *second.options])
    differing = [name for name in names if first.options.get(name) != second.options.get(name)]
    if len(differing) != 1 or differing[0] in IDENTITY_OPTIONS:
        return ""
    sides = [side.options.get(differing[0]) for side in (first, second)]
    deeper = _differing_option(*sides) if all(isinstance(side, Spec) for side in sides) else ""
    return f"{differing[0]} {deeper}".strip()


def compare_embedder_pairs(
    specs: Mapping[str, str],
    values: Mapping[str, Sequence[float] | Floats],
    measure: str,
    *,
    models: Mapping[str, str] | None = None,
    lower: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[EmbedderPair]:
    """Compare the best two embedders, and all pairs that differ in one option.

    `values` has the scores of each embedder, one per query, in the same order. It includes embedders without a
    description. The better embedder comes first in a pair. P-values are corrected over all pairs; a pair with two
    reasons is tested once. `models` has the embedders' own names. Two descriptions of one model with equal scores are
    not compared.
    """
    columns = {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}
    means = {
        name: float(np.nanmean(values)) if np.isfinite(values).any() else math.nan for name, values in columns.items()
    }
    sign = 1 if lower else -1
    order = sorted((name for name in means if math.isfinite(means[name])), key=lambda name: sign * means[name])
    pairs = [(order[0], order[1], "")] if len(order) > 1 else []
    model_names = models or {}
    for one, other, option in find_single_option_pairs({name: text for name, text in specs.items() if name in order}):
        better, worse = sorted((one, other), key=order.index)
        one_model = one in model_names and model_names[one] == model_names.get(other)
        if not (one_model and np.array_equal(columns[one], columns[other], equal_nan=True)):
            pairs.append((better, worse, option))
    several = {}
    for better, worse, _ in pairs:
        worse_values, better_values = columns[worse][None, :], columns[better][None, :]
        several[better, worse] = system_pairs.SystemPair(
            measure, worse, better, list(map(str, range(better_values.size))), worse_values, better_values
        )
    rows = system_pairs.compare_pairs(list(several.values()), ComparisonSettings(confidence=confidence, seed=seed))
    gaps = {
        pair_names: MeanDifference(row.difference, *row.ci, row.p_t, row.p_corrected, row.n)
        for pair_names, row in zip(several, rows, strict=True)
    }
    return [EmbedderPair(better, worse, option, gaps[better, worse]) for better, worse, option in pairs]


RowMask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RankingTask:
    """Documents, queries, judgments and measures on which embedders are ranked.

    Cosines are exact, by the same search as the store `exact`. Ties are broken by document order. A row of zeros or
    with a non-finite value is not a vector: such a query finds nothing, and such a document is not found.

    >>> from ragauge.measures.names import parse_measure_names as parse_all
    >>> rules = Convention()
    >>> task = RankingTask(["a", "b"], ["q"], Judgments({"q": {"b": 1}}), parse_all(["mrr@2"], rules), rules, 2)
    >>> task.scores(np.array([[0.0, 2.0]]), np.array([[3.0, 0.0], [1.0, 1.0]]), name="mine").means
    {'mrr@2': 1.0}
    """

    documents: Sequence[str]
    """Document ids, in row order."""
    queries: Sequence[str]
    judgments: Judgments
    measures: Sequence[Measure | MeasureFunction]
    convention: Convention
    k: int = 10
    queries_in_corpus: frozenset[str] = frozenset()
    """Queries that are documents themselves; each is left out of its own ranking."""

    def __post_init__(self) -> None:
        check_int("k", self.k)
        deep = [measure for measure in self.measures if isinstance(measure, Measure) and (measure.cutoff or 0) > self.k]
        if deep:
            raise BadInput(
                f"{deep[0]} needs {deep[0].cutoff:g} documents per query, but k is {self.k}",
                hint=f"set k to {deep[0].cutoff:g}, or use a cutoff of at most {self.k}",
            )

    @property
    def names(self) -> list[str]:
        """Canonical names of the measures."""
        return [
            str(measure) if isinstance(measure, Measure) else getattr(measure, "__name__", "own")
            for measure in self.measures
        ]

    def rankings(self, query_vectors: Any, document_vectors: Any, *, among: Any = None) -> tuple[Ints, Floats]:
        """Return the rows and cosines of the nearest `k` documents per query, best first.

        Missing positions have row -1 and cosine NaN. `among` restricts the search to these document rows.
        """
        query_matrix = _to_matrix(query_vectors, self.queries, "queries")
        document_matrix = _to_matrix(document_vectors, self.documents, "documents")
        if query_matrix.shape[1] != document_matrix.shape[1]:
            raise BadInput(
                f"query vectors have {query_matrix.shape[1]} dimensions, document vectors {document_matrix.shape[1]}"
            )
        positions, cosines = (
            np.full((len(query_matrix), self.k), -1, np.int64),
            np.full((len(query_matrix), self.k), math.nan),
        )
        is_usable_query, is_usable_document = usable_rows(query_matrix), usable_rows(document_matrix)
        if among is not None:
            exists = np.zeros(len(document_matrix), np.bool_)
            exists[np.asarray(among)] = True
            is_usable_document &= exists
        if not is_usable_query.any() or not is_usable_document.any():
            return positions, cosines
        allowed = None if is_usable_document.all() else np.flatnonzero(is_usable_document)
        more = bool(self.queries_in_corpus)
        found_rows, distances = find_nearest(
            document_matrix, query_matrix[is_usable_query], self.k + more, "cosine", allowed=allowed
        )
        found_cosines = 1.0 - distances
        if more:
            is_self = found_rows == self._self_document_rows[is_usable_query][:, None]
            found_cosines[is_self], found_rows[is_self] = math.nan, -1
            order = np.argsort(is_self, axis=1, kind="stable")[:, : self.k]
            found_rows, found_cosines = (
                np.take_along_axis(found_rows, order, 1),
                np.take_along_axis(found_cosines, order, 1),
            )
        width = found_rows.shape[1]
        positions[is_usable_query, :width], cosines[is_usable_query, :width] = found_rows, found_cosines
        return positions, cosines

    def scores(self, query_vectors: Any, document_vectors: Any, *, name: str, among: Any = None) -> Scores:
        """Rank the documents exactly by these vectors and score the rankings."""
        positions, _ = self.rankings(query_vectors, document_vectors, among=among)
        lists = (self._document_ids[row[row >= 0]].tolist() for row in positions)
        return self.scored(dict(zip(self.queries, lists, strict=True)), name=name)

    def scored(self, rankings: Mapping[str, Iterable[str]], *, name: str) -> Scores:
        """Score given rankings, such as those of a store or BM25: ids, best first.

        A query without a ranking is a miss.
        """
        run = {
            query: _to_descending_scores(rankings.get(query, ()))
            for query in self.queries
            if query in self.judgments.nested
        }
        judged = judged_ranks_from_dicts.compute_ranks_from_dicts(
            self.judgments, run, self.convention, top=self._top_depth, name=name
        )
        return score_judged_ranks(judged, self.measures, self.convention)

    @cached_property
    def relevant(self) -> Ints:
        """Ascending rows of the documents that are relevant to at least one query."""
        grades = self.judgments.nested
        good = {doc for query in self.queries for doc, grade in grades.get(query, {}).items() if grade > 0}
        return np.flatnonzero(
            np.fromiter((document in good for document in self.documents), np.bool_, len(self.documents))
        )

    @cached_property
    def _document_ids(self) -> NDArray[np.object_]:
        names = np.empty(len(self.documents), np.object_)
        names[:] = self.documents
        return names

    @cached_property
    def _self_document_rows(self) -> Ints:
        rows = {doc: row for row, doc in enumerate(self.documents)}
        self_rows = (rows.get(query, -2) if query in self.queries_in_corpus else -2 for query in self.queries)
        return np.fromiter(self_rows, np.int64, len(self.queries))

    @property
    def _top_depth(self) -> int:
        looks = (
            m.spec.needs_top or dict(m.options).get("of") == "eps" for m in self.measures if isinstance(m, Measure)
        )
        return self.k if any(looks) else 0


def usable_rows(vectors: NDArray[Any]) -> RowMask:
    """Return which rows are vectors: all values finite, not all of them 0.

    >>> usable_rows(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, math.nan]])).tolist()
    [True, False, False]
    """
    return np.asarray(np.isfinite(vectors).all(axis=1) & vectors.any(axis=1))


def all_means_with_intervals(
    several: Sequence[Scores], confidence: float = 0.95, seed: int = 0
) -> list[dict[str, Mean]]:
    """Compute the means and BCa intervals of several scores of the same queries.

    They are resampled together, which costs little more than one of them.
    """
    cells = [(index, measure) for index, scores in enumerate(several) for measure in scores.measures]
    intervals: list[dict[str, Mean]] = [{} for _ in several]
    if not cells:
        return intervals
    columns = np.column_stack([several[index].values[measure] for index, measure in cells])
    ends = mean_intervals(columns, confidence, seed=seed)
    for (index, measure), column, low, high in zip(cells, columns.T, *ends.tolist(), strict=True):
        values = column[~np.isnan(column)]
        mean = several[index].means[measure]
        plain = float(values.mean()) if len(values) else math.nan
        averages = math.isclose(mean, plain, rel_tol=1e-9, abs_tol=1e-12)  # false for a sum or a geometric mean
        # Rounding must not put a mean outside its interval if all values are equal.
        bounds = (min(low, mean), max(high, mean)) if averages and len(values) > 1 else (math.nan, math.nan)
        intervals[index][measure] = Mean(mean, len(values), *bounds)
    return intervals


def differences_from_baseline(
    scores_by_system: Mapping[str, Scores | Sequence[Scores]],
    base: Scores,
    *,
    measures: Sequence[str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, MeanDifference]]:
    """Compute the differences of systems from the baseline, by system and measure.

    Several scores of one system are its scores with different seeds. The interval and the test are then over queries
    and seeds. P-values are Holm-corrected over all systems, separately for each measure.
    """
    chosen = list(base.measures if measures is None else measures)
    pairs = [
        build_score_pair(
            measure,
            name,
            [scores.values[measure] for scores in _as_score_list(scores)],
            base.values[measure],
            base.queries,
        )
        for measure in chosen
        for name, scores in scores_by_system.items()
    ]
    rows = compare_pairs(pairs, ComparisonSettings(confidence=confidence, seed=seed))
    differences: dict[str, dict[str, MeanDifference]] = {name: {} for name in scores_by_system}
    for row in rows:
        differences[row.system][row.measure] = to_mean_difference(row)
    return differences


def build_score_pair(
    measure: str, name: str, values: Sequence[Floats], base: Floats, queries: Sequence[str]
) -> SystemPair:
    """Pair the values of a system, with one or more seeds, with those of the baseline."""
    labels = [str(seed) for seed in range(len(values))] if len(values) > 1 else []
    return SystemPair(measure, "", name, queries, np.asarray(base)[None, :], np.stack(list(values)), seeds=labels)


def to_mean_difference(row: Comparison) -> MeanDifference:
    """Convert a comparison to a mean difference."""
    return MeanDifference(row.difference, *row.ci, row.p_t, row.p_corrected, row.n)


def _as_score_list(scores: Scores | Sequence[Scores]) -> Sequence[Scores]:
    return [scores] if isinstance(scores, Scores) else scores


def _to_descending_scores(ids: Iterable[str]) -> dict[str, float]:
    """Assign descending scores by position; a duplicate id keeps its first position."""
    return {doc: -float(position) for position, doc in enumerate(dict.fromkeys(ids))}


def _to_matrix(vectors: Any, names: Sequence[str], noun: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # values that overflow become infinite, so the row is not a vector
        matrix = np.ascontiguousarray(vectors, np.float32)
    if matrix.ndim != 2 or len(matrix) != len(names):
        raise BadInput(f"vectors of shape {matrix.shape} are not one row for each of {len(names)} {noun}")
    return matrix
