"""Tables of judged samples for CSV: means, scores, and claims."""

from __future__ import annotations

import math

from ragauge.core.samples import ANSWER, REFERENCE
from ragauge.judging.claim_states import ClaimState, find_claim_states
from ragauge.judging.results import JudgedSamples
from ragauge.output.tables import Column, Row, Table, Value


def build_summary_table(judged: JudgedSamples) -> Table:
    """Build the table with one row per measure: mean, interval and numbers of samples."""
    titles = ("measure", "mean", "low", "high", "n", "unscored", "judge", "convention")
    rows: list[Row] = []
    for measure, summary in judged.measures.items():
        low, high = summary.interval or (None, None)
        counts = [summary.n, summary.unscored]
        rows.append([measure, summary.mean, low, high, *counts, judged.judge, judged.convention])
    return Table("measures", [Column(title) for title in titles], rows)


def build_scores_table(judged: JudgedSamples) -> Table:
    """Build the table with one row per sample and measure, with the reason for a missing score.

    `compare` and `gate` read it.
    """
    titles = ("system", "query", "measure", "value", "judge", "convention", "reason", "fingerprint", "lower_is_better")
    scores = judged.scores
    rows: list[Row] = []
    for measure in scores.measures:
        lower = scores.is_lower_better(measure)
        for query, value in zip(scores.queries, scores.values[measure].tolist(), strict=True):
            reason = scores.unscored[measure].get(query, "") if math.isnan(value) else ""
            identity = [judged.judge, scores.convention, reason, scores.fingerprints.get(query, ""), lower]
            rows.append([judged.name, query, measure, value, *identity])
    return Table("scores", [Column(title) for title in titles], rows)


def build_claims_table(judged: JudgedSamples) -> Table:
    """Build the table with one row per claim: its state, its sources, and the reason of the judge."""
    titles = ("query", "of", "claim", "text", "state", "by", "together", "against", "probability", "words", "reason")
    rows: list[Row] = [
        [sample.id, text, claim.id, claim.text, claim.state, *_support_values(claim), claim.reason]
        for sample in judged.samples
        for text in (ANSWER, REFERENCE)
        for claim in find_claim_states(sample, judged.verdicts.get(sample.id), text)
    ]
    return Table("claims", [Column(title) for title in titles], rows)


def _support_values(claim: ClaimState) -> list[Value]:
    """Return the sources, the probability and the explanation of a verdict."""
    support = claim.support
    if support is None:
        return ["", "", "", None, ""]
    sources = [" ".join(source_ids) for source_ids in (support.by, support.together, support.against)]
    return [*sources, support.probability, support.words]
