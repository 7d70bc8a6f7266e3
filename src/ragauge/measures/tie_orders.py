"""Alternative orders of judged documents: best and worst order of ties, the ideal order, and random orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ragauge.core.records import Floats, Ints, Judgments, Scores
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import Measure
from ragauge.measures.scoring import score_judged_ranks

if TYPE_CHECKING:
    import polars as pl


SET_MEASURES = frozenset(
    {"precision", "recall", "relative_precision", "hit_rate", "hits", "num_rel_ret", "f1", "r_precision", "rprec_mult"}
)
"""Measures that depend only on which documents are within the cutoff, not on their order."""
RANK_MEASURES = frozenset(
    {"map", "gm_map", "bpref", "gm_bpref", "mrr", "iprec_at_recall", "11pt_avg", "bing", "ndcg", "rndcg", "dcg", "rbp"}
    | {"err", "yaap"}
)
"""Measures that depend on the order of the documents."""


def has_exact_bounds(measure: Measure) -> bool:
    """Return whether the best and worst order of a tie are known without trying all.

    Not the case for average precision over found documents with a cutoff: one more relevant document at its end can
    lower it. Nor for custom gain tables, in which a better grade may have a lower gain, nor if documents of grade 0
    are relevant.
    """
    options = dict(measure.options)
    if ":" in str(options.get("gain", "")) or options.get("of") == "eps" or float(options.get("rel", 1)) <= 0:
        return False
    is_monotone = (
        measure.spec.name in SET_MEASURES | RANK_MEASURES
    )  # None of these decreases when a better document moves up.
    return is_monotone and not (options.get("of") == "found" and measure.cutoff is not None)


def with_undecided_ties(convention: Convention) -> Convention:
    """Return the convention with undecided ties.

    Its options that need a decided order are switched off; `rows_kept` and `truncate_ranks` apply them.
    """
    return convention.but(ties="expected", unjudged="nonrelevant", own="kept", depth=None)


def rows_kept(table: pl.DataFrame, judgments: Judgments, convention: Convention) -> tuple[pl.DataFrame, bool]:
    """Return the rows that a convention keeps, and whether a tie crosses its depth.

    Scores are rounded to the width of the convention. If a tie crosses the depth, the whole tie and the unjudged
    documents are kept: `truncate_ranks` removes them once the order is known.
    """
    import polars as pl

    score = pl.col("score")
    if convention.width == "float32":
        table = table.with_columns(score.cast(pl.Float32).cast(pl.Float64))
    if convention.own == "dropped":
        table = table.filter(pl.col("query") != pl.col("doc"))
    across = False
    if convention.depth is not None:
        table = table.filter(score.rank("min", descending=True).over("query") <= convention.depth)
        across = bool((table.group_by("query").len()["len"] > convention.depth).any())
    if convention.unjudged == "condensed" and not across:
        judged = judgments.frame.filter(pl.col("grade") >= 0)
        table = table.join(judged, on=["query", "doc"], how="semi", maintain_order="left")
    return table, across


def truncate_ranks(judged: JudgedRanks, convention: Convention) -> JudgedRanks:
    """Truncate a ranking to the depth of a convention.

    If it is condensed, only judged documents are kept.
    """
    depth = convention.depth or int(judged.retrieved.max(initial=0))
    inside = judged.rank <= depth
    retrieved = np.minimum(judged.retrieved, depth)
    if convention.unjudged == "condensed":
        inside &= judged.grade >= 0
        retrieved = np.bincount(judged.query[inside], minlength=judged.n)
    query, rank = judged.query[inside], judged.rank[inside]
    if convention.unjudged == "condensed":
        rank = np.arange(1, len(query) + 1) - (np.cumsum(retrieved) - retrieved)[query]
    return _build_settled_ranks(replace(judged, retrieved=retrieved), query, rank, judged.row[inside], judged.ties)


def order_ties(judged: JudgedRanks, *, best: bool) -> JudgedRanks:
    """Return the best or the worst order that the ties of a ranking allow.

    The ties in `judged` must be undecided. In the best order, the relevant documents of each group of equal scores
    come first, by descending grade, and the judged non-relevant ones last, below pooled but unjudged ones. The worst
    order is the reverse.
    """
    if judged.tie_first is None or judged.tie_last is None:
        return judged
    query, first, last = judged.query, judged.tie_first, judged.tie_last
    good = judged.grade > 0
    positions = judged.pool_position[judged.row]
    rank = np.zeros(len(query), np.int64)
    for chosen, at_top in ((good, best), (~good, not best)):
        rows = np.flatnonzero(chosen)
        keys = (positions[rows], -judged.grade[rows]) if at_top else (-positions[rows], judged.grade[rows])
        rows = rows[np.lexsort((*keys, first[rows], query[rows]))]
        nth, size = _group_positions(query[rows], first[rows])
        rank[rows] = first[rows] + nth if at_top else last[rows] - size + 1 + nth
    return _build_settled_ranks(judged, query, rank, judged.row, "best" if best else "worst")


def _group_positions(query: Ints, first: Ints) -> tuple[Ints, Ints]:
    """Return the position of each row in its group, from 0, and the size of the group.

    Rows must be sorted by (query, first).
    """
    if not len(query):
        return query, query
    starts = np.flatnonzero(np.concatenate([[True], (query[1:] != query[:-1]) | (first[1:] != first[:-1])]))
    sizes = np.diff(np.concatenate([starts, [len(query)]]))
    return np.arange(len(query)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)


def _build_settled_ranks(judged: JudgedRanks, query: Ints, rank: Ints, row: Ints, ties: str) -> JudgedRanks:
    order = np.lexsort((rank, query))
    return replace(
        judged,
        query=query[order],
        rank=rank[order],
        row=row[order],
        tie_first=None,
        tie_last=None,
        ties=ties,
        _relevant={},  # Cached values belong to the other order.
    )


def shuffle_ties(judged: JudgedRanks, rng: np.random.Generator) -> JudgedRanks:
    """Draw one random order of the ties.

    Documents below the end of the list are removed.
    """
    if judged.tie_first is None or judged.tie_last is None:
        return judged
    order = np.lexsort((judged.tie_first, judged.query))
    query, first, last = judged.query[order], judged.tie_first[order], judged.tie_last[order]
    nth, size = _group_positions(query, first)
    rank = first.copy()
    for start in np.flatnonzero((nth == 0) & (last > first)).tolist():
        group = slice(start, start + int(size[start]))
        offsets = rng.choice(int(last[start] - first[start] + 1), int(size[start]), replace=False)
        rank[group] = first[start] + offsets
    inside = rank <= judged.retrieved[query]
    return _build_settled_ranks(judged, query[inside], rank[inside], judged.row[order][inside], "shuffled")


def ideal_ranks(judgments: Judgments) -> JudgedRanks:
    """Return the ranking of all documents with a grade above 0, best first."""
    pool = judgments.pool
    none = np.zeros(0, np.int64)
    n = len(pool.queries)
    empty = JudgedRanks(judgments, none, none, none, np.zeros(n, np.int64), np.ones(n, np.bool_), name="oracle")
    row = np.flatnonzero(pool.grades > 0)
    query = pool.owner[row]
    ranks = replace(empty, retrieved=np.bincount(query, minlength=n), _relevant={})
    return _build_settled_ranks(ranks, query, empty.pool_position[row] + 1, row, "trec")


def tie_whole_corpus(judgments: Judgments, documents: int, depth: Ints) -> JudgedRanks:
    """Return the corpus as one tie per query, truncated to `depth` documents."""
    pool = judgments.pool
    row = np.arange(len(pool.grades))
    size = np.maximum(documents, np.diff(pool.starts))[pool.owner]
    return JudgedRanks(
        judgments,
        pool.owner,
        np.ones(len(row), np.int64),
        row,
        depth.astype(np.int64),
        np.ones(len(pool.queries), np.bool_),
        tie_first=np.ones(len(row), np.int64),
        tie_last=size,
        ties="expected",
        name="chance",
    )


def tie_all_documents(judged: JudgedRanks) -> JudgedRanks:
    """Return a run with the documents of each query as one tie."""
    return replace(
        judged,
        tie_first=np.ones(len(judged.query), np.int64),
        tie_last=judged.retrieved[judged.query],
        ties="expected",
        _relevant={},
    )


def limit_measure_depth(measure: Measure, depth: int) -> Measure:
    """Return a measure of the whole list with `depth` as its cutoff.

    `ndcg` and `dcg` are unchanged.
    """
    if measure.cutoff is not None or measure.spec.cutoff != "rank?" or measure.spec.name in ("ndcg", "dcg"):
        return measure
    options = dict(measure.options)
    if options.get("of") == "capped":  # Without a cutoff there is no cap.
        options["of"] = "relevant"
    return Measure(measure.spec, max(1, depth), tuple(options.items()))


@dataclass(frozen=True, eq=False)
class RandomOrderMean:
    """Mean of a measure over random orders, per query and overall."""

    values: Floats
    mean: float
    exact: bool
    """Whether computed by a closed form rather than from random orders."""


RANDOM_ORDERS = 199
"""Number of random orders drawn if there is no closed form."""


OrderPostprocessor = Callable[[JudgedRanks], JudgedRanks]
"""Function applied to a ranking once the order of its ties is known."""


def compute_expected_means(
    judged: JudgedRanks, measures: Sequence[Measure], convention: Convention, finish: OrderPostprocessor | None = None
) -> list[RandomOrderMean]:
    """Compute the mean of each measure over all orders of ties.

    Random orders are drawn if a measure has no closed form, or if `finish` must be applied to each order.
    """
    closed = [measure for measure in measures if measure.spec.averages_ties and finish is None]
    sampled = [measure for measure in measures if measure not in closed]
    means = dict(zip(closed, _closed_form_means(judged, closed, convention), strict=True))
    if sampled:
        means |= dict(
            zip(sampled, (mean for mean, _ in sample_random_orders(judged, sampled, convention, finish)), strict=True)
        )
    return [means[measure] for measure in measures]


def _closed_form_means(
    judged: JudgedRanks, measures: Sequence[Measure], convention: Convention
) -> Iterator[RandomOrderMean]:
    scores = score_judged_ranks(judged, measures, convention)
    for values, mean in zip(scores.values.values(), scores.means.values(), strict=True):
        yield RandomOrderMean(values, mean, True)


def sample_random_orders(
    judged: JudgedRanks, measures: Sequence[Measure], convention: Convention, finish: OrderPostprocessor | None = None
) -> list[tuple[RandomOrderMean, Floats]]:
    """Compute the mean of each measure over random orders, and of each order.

    The seed is fixed, so that all calls use the same orders.
    """
    rng = np.random.default_rng(0)
    shuffled = (shuffle_ties(judged, rng) for _ in range(RANDOM_ORDERS))
    order_scores = [
        score_judged_ranks(ranks if finish is None else finish(ranks), measures, convention) for ranks in shuffled
    ]
    out = []
    for name in map(str, measures):
        means = np.array([scores.means[name] for scores in order_scores])
        values: Floats = np.mean([scores.values[name] for scores in order_scores], axis=0)
        out.append((RandomOrderMean(values, float(means.mean()), False), means))
    return out


def list_means(scores: Scores) -> list[float]:
    """Return the means, in the order of the measures."""
    return list(scores.means.values())
