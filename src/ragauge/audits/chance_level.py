"""Check for scores at chance level: expected scores of random rankings, and the score of an oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ragauge.audits.audit_input import AuditInput, none_if_nan
from ragauge.core.findings import Finding, FindingTable
from ragauge.core.records import Floats, Ints
from ragauge.measures.conventions import Convention
from ragauge.measures.judged_ranks import JudgedRanks
from ragauge.measures.names import Measure, make_measure
from ragauge.measures.registry import MEASURE_REGISTRY
from ragauge.measures.scoring import score_judged_ranks
from ragauge.measures.tie_orders import (
    RANDOM_ORDERS,
    RandomOrderMean,
    compute_expected_means,
    has_exact_bounds,
    ideal_ranks,
    limit_measure_depth,
    list_means,
    sample_random_orders,
    tie_all_documents,
    tie_whole_corpus,
)
from ragauge.output.numbers import format_number

SIGNIFICANCE_LEVEL = 0.05
MIN_QUERIES_TESTED = 5
"""Minimum number of queries for a test against chance."""
UNINFORMATIVE_CHANCE_SHARE = 0.9
"""Minimum share of the oracle's score at which a chance score makes a measure uninformative."""


def expected_reciprocal_rank(inside: Ints, size: Ints, k: int) -> Floats:
    """Return the expected reciprocal rank of the first relevant document.

    The documents are in random order. `inside` of `size` documents are relevant; only the first k ranks count.

    Formula: sum over positions i < k of P(first at i) / (i + 1), P = inside / (size - i) prod over j < i of (size -
    inside - j) / (size - j).

    >>> expected_reciprocal_rank(np.array([1]), np.array([2]), 2).tolist()
    [0.75]
    """
    values, going = np.zeros(len(inside)), np.ones(len(inside))
    for i in range(min(k, int(size.max(initial=0)))):
        n_left = np.maximum(size - i, 1)
        hit_probability = np.where(size > i, np.minimum(inside / n_left, 1.0), 0.0)
        values += going * hit_probability / (i + 1)
        going *= 1 - hit_probability
    return values


def expected_precision_sum(inside: Ints, size: Ints, k: int) -> Floats:
    """Return the expected sum of precisions at the relevant ranks of a random order.

    `inside` of `size` documents are relevant; only the first k ranks count.

    Formula: R/N (H + (k - H) (R - 1)/(N - 1)) with H = 1 + 1/2 + … 1/k.

    >>> expected_precision_sum(np.array([1]), np.array([2]), 2).tolist()
    [0.75]
    """
    harmonic_sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, k + 1))])
    cut = np.minimum(size, k)
    other_hits = (cut - harmonic_sums[cut]) * np.maximum(inside - 1, 0) / np.maximum(size - 1, 1)
    precision_sums: Floats = inside / np.maximum(size, 1) * (harmonic_sums[cut] + other_hits)
    return precision_sums


def compute_random_order_mean(
    judged: JudgedRanks, measure: Measure, convention: Convention, depth: int
) -> RandomOrderMean:
    """Compute the mean of a measure over random orders of `depth` documents per query.

    In `judged`, each query must be one tie that starts at the first rank.
    """
    limited_measure = limit_measure_depth(measure, depth)
    of_option = dict(limited_measure.options).get("of")
    if limited_measure.spec.name == "mrr" or (
        limited_measure.spec.name == "map" and of_option in ("relevant", "capped")
    ):
        return _closed_form_mean(judged, limited_measure, convention, depth)
    if (
        limited_measure.spec.averages_ties
        and (limited_measure.cutoff is None or limited_measure.cutoff <= depth)
        and of_option != "found"
    ):
        return compute_expected_means(judged, [limited_measure], convention)[0]
    return sample_random_orders(judged, [limited_measure], convention)[0][0]


def _closed_form_mean(judged: JudgedRanks, measure: Measure, convention: Convention, depth: int) -> RandomOrderMean:
    """Compute the mean for all queries at once by a closed formula.

    The general algorithm would visit every rank of the whole corpus.
    """
    options, cutoff = dict(measure.options), int(measure.cutoff or depth)
    relevant = judged.relevant(float(options["rel"]))
    inside, size = relevant.n_returned, judged.retrieved.copy()
    if judged.tie_last is not None:
        size[judged.query] = judged.tie_last
    values = (expected_reciprocal_rank if measure.spec.name == "mrr" else expected_precision_sum)(
        inside, size, min(cutoff, depth)
    )
    if measure.spec.name == "map":
        denominator = relevant.total if options["of"] == "relevant" else np.minimum(relevant.total, cutoff)
        values = values / np.maximum(denominator, 1)
    outlier = next(
        iter(score_judged_ranks(judged, [_hit_rate_measure(measure)], convention).values.values())
    )  # NaN or 1 if the convention says so
    values = np.where(np.isnan(outlier), math.nan, np.where((inside == 0) & (outlier == 1), 1.0, values))
    return RandomOrderMean(values, math.nan if np.isnan(values).all() else float(np.nanmean(values)), True)


def _hit_rate_measure(measure: Measure) -> Measure:
    return make_measure(MEASURE_REGISTRY["hit_rate"], None, {"rel": dict(measure.options)["rel"]}, Convention())


def check_chance_level(audit_input: AuditInput) -> Iterator[Finding]:
    """Compare each measure of a run with its value by chance and with the oracle's.

    Chance has two variants: random documents from the corpus, and the documents of the run shuffled. If the
    corpus is unknown, all documents named by runs and judgments are used. A problem if a run is not better than
    either variant, by a paired one-sided t-test over queries at the 0.05 level. If the t-test is not significant,
    199 random orders decide, since scores that are mostly 0 are not normally distributed. Fewer than 5 queries are
    not tested.
    """
    measures = [measure for measure in audit_input.measures if has_exact_bounds(measure)]
    if not measures:
        return
    documents = _corpus_size(audit_input)
    zero_filled = audit_input.convention.but(missing="zero")
    oracle = list_means(score_judged_ranks(ideal_ranks(audit_input.judgments), measures, zero_filled))
    at_random: dict[int, list[RandomOrderMean]] = {}
    for run in audit_input.runs:
        trials = [audit_input.judged(run, trial=trial) for trial in range(len(audit_input.trials(run)))]
        depth = max(int(judged.retrieved.max(initial=0)) for judged in trials)
        if not depth:
            continue
        if depth not in at_random:
            base = tie_whole_corpus(audit_input.judgments, documents, np.full(trials[0].n, depth))
            at_random[depth] = [compute_random_order_mean(base, measure, zero_filled, depth) for measure in measures]
        own_documents = [tie_all_documents(judged) for judged in trials]
        shuffled = [
            _average_over_trials(
                [compute_random_order_mean(judged, measure, zero_filled, depth) for judged in own_documents]
            )
            for measure in measures
        ]
        chance_values = documents, depth, at_random[depth], shuffled, oracle
        yield _chance_finding(audit_input, run, measures, chance_values, own_documents)


def _average_over_trials(means: Sequence[RandomOrderMean]) -> RandomOrderMean:
    values: Floats = np.mean([mean.values for mean in means], axis=0)
    return RandomOrderMean(values, float(np.mean([mean.mean for mean in means])), all(mean.exact for mean in means))


def _corpus_size(audit_input: AuditInput) -> int:
    """Return the number of documents to draw from."""
    import polars as pl

    if audit_input.documents is not None:
        return len(audit_input.documents)
    named = [audit_input.judgments.frame["doc"], *(run.table["doc"] for run in audit_input.runs.values())]
    return pl.concat([node.unique() for node in named]).n_unique()


def _chance_finding(
    audit_input: AuditInput,
    run: str,
    measures: Sequence[Measure],
    chance_values: tuple[int, int, Sequence[RandomOrderMean], Sequence[RandomOrderMean], Sequence[float]],
    own_documents: Sequence[JudgedRanks],
) -> Finding:
    documents, depth, at_random, shuffled, oracle = chance_values
    scores = audit_input.scores(run, measures=measures)
    rows: list[list[str | float | None]] = []
    shares: list[float] = []
    bad: list[str] = []
    blunt: list[str] = []
    for i, measure in enumerate(measures):
        name = str(measure)
        mean, values = scores.means[name], scores.values[name]
        share = (
            (mean - at_random[i].mean) / (oracle[i] - at_random[i].mean) if oracle[i] > at_random[i].mean else math.nan
        )
        shares.append(share)
        mark = "" if at_random[i].exact and shuffled[i].exact else "~"
        if at_random[i].mean >= UNINFORMATIVE_CHANCE_SHARE * oracle[i]:
            blunt.append(name)
        rows.append(
            [
                name + mark,
                at_random[i].mean,
                shuffled[i].mean,
                mean,
                oracle[i],
                none_if_nan(share),
            ]
        )
        base = tie_whole_corpus(audit_input.judgments, documents, np.full(len(values), depth))
        for label, random_order_mean, ranked in (
            ("random documents", at_random[i], [base]),
            ("its own documents in random order", shuffled[i], own_documents),
        ):
            if name in blunt:
                continue
            p = _chance_p_value(
                audit_input, values, mean, random_order_mean, ranked, limit_measure_depth(measure, depth)
            )
            if p >= SIGNIFICANCE_LEVEL:
                bad.append(f"{name} {mean:.4f} is not better than {label}, {random_order_mean.mean:.4f} (p={p:.2f})")
    corpus_text = "the collection" if audit_input.documents is not None else "all documents in runs and judgments"
    exact = all(a.exact and b.exact for a, b in zip(at_random, shuffled, strict=True))
    drawing = "" if exact else f"; ~ from {RANDOM_ORDERS} random orders"
    first = str(measures[0])
    share_text = f"{format_number(shares[0], 'share')} of the distance from chance to the oracle"
    reached = f"{first} {format_number(scores.means[first])} is {share_text}"
    result_text = "; ".join(bad) or reached
    nothing = f"; {', '.join(blunt)} cannot distinguish a run from chance here" if blunt else ""
    return Finding(
        run,
        "chance",
        bool(bad),
        len(bad),
        f"{result_text} (drawing {depth} of {documents:,} documents, {corpus_text}{drawing}){nothing}",
        table=FindingTable(
            ["measure", "chance", "shuffled", "run", "oracle", "share of the distance"],
            rows,
            ["name", *["score"] * 4, "share"],
        ),
    )


def _chance_p_value(
    audit_input: AuditInput,
    values: Floats,
    mean: float,
    random_order_mean: RandomOrderMean,
    ranked: Sequence[JudgedRanks],
    measure: Measure,
) -> float:
    """Return the p-value of a run against chance; `ranked` are the documents to shuffle, of each trial.

    0 if shuffling changes nothing or there are too few queries for a test.
    """
    from scipy.special import stdtr

    gap = (values - random_order_mean.values)[~(np.isnan(values) | np.isnan(random_order_mean.values))]
    if len(gap) < MIN_QUERIES_TESTED or (np.abs(gap) < 1e-12).all():
        return 0.0
    spread = float(gap.std(ddof=1))
    if gap.mean() > 0 and spread == 0:
        return 0.0
    p = float(stdtr(len(gap) - 1, -gap.mean() / (spread / math.sqrt(len(gap))))) if spread else 1.0
    if p < SIGNIFICANCE_LEVEL or gap.mean() <= 0:
        return p
    zero_filled = audit_input.convention.but(missing="zero")
    query_scores = np.mean([sample_random_orders(ranks, [measure], zero_filled)[0][1] for ranks in ranked], axis=0)
    return min(p, (1 + int((query_scores >= mean - 1e-12).sum())) / (1 + len(query_scores)))
