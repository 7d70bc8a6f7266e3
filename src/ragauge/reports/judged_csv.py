"""Judged samples as CSV: one row per measure, per sample and measure, or per claim."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ragauge.reports.judged_words import figures, standings
from ragauge.reports.tables import csv_text, direction, number
from ragauge.verdicts import ANSWER, REFERENCE, Judged


def summary_csv(judged: Judged) -> str:
    """Render `measure,mean,low,high,n,unscored` with the judge and the convention."""
    header = ["measure", "mean", "low", "high", "n", "unscored", "judge", "convention"]
    rows = (
        [
            *(one.measure, number(one.mean), number(one.low), number(one.high), str(one.n), str(one.unscored)),
            *(judged.judge, judged.scores.convention),
        ]
        for one in figures(judged)
    )
    return csv_text(header, rows)


def scores_csv(judged: Judged) -> str:
    """Render one row for each sample and measure, with the reason for a missing value.

    `compare` and `gate` read this table.
    """
    header = ["system", "query", "measure", "value", "judge", "convention", "reason", "fingerprint", "lower_is_better"]
    return csv_text(header, _scores(judged))


def _scores(judged: Judged) -> Iterator[list[str]]:
    scores = judged.scores
    for name in scores.measures:
        for query, value in zip(scores.queries, scores.values[name].tolist(), strict=True):
            why = scores.unscored[name].get(query, "") if math.isnan(value) else ""
            told = [judged.name, query, name, number(value), judged.judge, scores.convention, why]
            yield [*told, scores.fingerprints.get(query, ""), direction(scores, name)]


def claims_csv(judged: Judged) -> str:
    """Render one row per claim: its state, its sources, and the reason of the judge."""
    header = ["query", "of", "claim", "text", "standing", "by", "together", "against", "probability", "words", "reason"]
    return csv_text(header, _claims(judged))


def _claims(judged: Judged) -> Iterator[list[str]]:
    for sample in judged.samples:
        for text in (ANSWER, REFERENCE):
            for one in standings(judged.verdicts.get(sample.id), text, nothing=sample.contexts == ()):
                said = one.support
                told = [""] * 5
                if said is not None:
                    sources = [" ".join(some) for some in (said.by, said.together, said.against)]
                    told = [*sources, number(said.probability), said.words]
                yield [sample.id, text, one.id, one.text, one.state, *told, one.why]
