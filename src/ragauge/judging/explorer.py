"""List of judged samples on a page: scores, claims with their evidence, contexts, and what has no verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ragauge.core.samples import ANSWER, REFERENCE, Sample, Verdicts
from ragauge.judging.claim_states import ClaimState, find_claim_states
from ragauge.judging.results import JudgedSamples
from ragauge.output.report import Explorer

MAX_CHUNK_CHARS_TOTAL = 12_000_000
"""Maximum total size of chunks in characters; beyond it, better samples come without chunks."""
MAX_TEXT_CHARS = 4_000
"""Maximum length of one text in characters."""


def build_explorer(judged: JudgedSamples) -> Explorer:
    """Build the list of samples."""
    measures = judged.scores.measures
    return Explorer(
        "verdicts",
        {
            "noun": "sample",
            "plural": "samples",
            "measures": measures,
            "lower_is_better": [measure in judged.scores.lower_is_better for measure in measures],
        },
        lambda: {"values": build_values_payload(judged), "details": build_details_payload(judged)},
        "Open a sample to see each claim with its verdict, the evidence and the judge's explanation.",
    )


def build_values_payload(judged: JudgedSamples) -> dict[str, Any]:
    """Build the columns of questions, answers, scores and reasons by sample."""
    scores = judged.scores
    samples_by_id = {sample.id: sample for sample in judged.samples}
    ids = list(scores.queries)
    samples = [samples_by_id.get(query, Sample(query)) for query in ids]
    verdicts = [judged.verdicts.get(query) for query in ids]
    states = [
        [claim.state for claim in find_claim_states(sample, of_sample, ANSWER)]
        for sample, of_sample in zip(samples, verdicts, strict=True)
    ]
    return {
        "ids": ids,
        "questions": [clip_text(sample.question) for sample in samples],
        "answers": [clip_text(sample.answer or "") for sample in samples],
        "values": [_rounded_values(scores.values[name].tolist()) for name in scores.measures],
        "reasons": [
            {str(i): scores.unscored[name][query] for i, query in enumerate(ids) if query in scores.unscored[name]}
            for name in scores.measures
        ],
        "contradicted": [of_sample.count("contradicted") for of_sample in states],
        "absent": [of_sample.count("absent") for of_sample in states],
        "unread": [0 if of_sample is None else len(of_sample.unscored) for of_sample in verdicts],
    }


def _rounded_values(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 6) for value in values]


def build_details_payload(judged: JudgedSamples) -> dict[str, Any]:
    """Build the details of each sample.

    A chunk shared by several samples is stored once.
    """
    samples_by_id = {sample.id: sample for sample in judged.samples}
    place_by_text: dict[str, int] = {}
    details: list[Any] = [None] * len(judged.scores.queries)
    chars_left = MAX_CHUNK_CHARS_TOTAL
    for i in _order_worst_first(judged):
        query = judged.scores.queries[i]
        sample = samples_by_id.get(query, Sample(query))
        chunks = []
        for rank, (chunk, text) in enumerate(sample.chunks.items()):
            name = sample.context_ids[rank] if rank < len(sample.context_ids) else ""
            clipped = clip_text(text)
            if clipped not in place_by_text and len(clipped) <= chars_left:
                chars_left -= len(clipped)
                place_by_text[clipped] = len(place_by_text)
            chunks.append([chunk, name, place_by_text.get(clipped, -1)])
        details[i] = _sample_details(sample, judged.verdicts.get(query), chunks)
    return {"texts": list(place_by_text), "samples": details}


def _order_worst_first(judged: JudgedSamples) -> list[int]:
    """Return sample positions by the first measure: unscored, then worst to best."""
    scores = judged.scores
    if not scores.measures:
        return list(range(len(scores.queries)))
    column = scores.values[scores.measures[0]]
    worse = -column if scores.measures[0] in scores.lower_is_better else column
    return [int(i) for i in np.argsort(np.where(np.isnan(worse), -np.inf, worse), kind="stable")]


def _sample_details(sample: Sample, verdicts: Verdicts | None, chunks: list[Any]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "reference": None if sample.reference is None else clip_text(sample.reference),
        "history": [clip_text(turn) for turn in sample.history],
        "labels": dict(sample.labels),
        "metadata": {str(name): clip_text(_metadata_text(value)) for name, value in sample.metadata.items()},
    }
    if verdicts is not None:
        details |= {
            "tasks": list(verdicts.asked),
            "answer_claims": [_claim_row(claim) for claim in find_claim_states(sample, verdicts, ANSWER)],
            "reference_claims": [_claim_row(claim) for claim in find_claim_states(sample, verdicts, REFERENCE)],
            "useful": {
                chunk: [verdict.useful, clip_text(verdict.words), verdict.probability]
                for chunk, verdict in verdicts.useful.items()
            },
            "questions": [
                [clip_text(question.text), _rounded_number(question.similarity)] for question in verdicts.questions
            ],
            "refusal": verdicts.refusal,
            "left_out": {
                text: [clip_text(sentence) for sentence in sentences] for text, sentences in verdicts.left_out.items()
            },
            "unscored": [
                [item, clip_text(missing.reason), clip_text(missing.reply)]
                for item, missing in verdicts.unscored.items()
            ],
        }
    context_details = {"chunks": chunks, "given": sample.contexts is not None}
    return context_details | {
        name: value for name, value in details.items() if value is not None and value not in ([], {})
    }


def _claim_row(claim: ClaimState) -> list[Any]:
    verdict: list[Any] = [[], [], [], "", None]
    if claim.support is not None:
        sources = [list(source_ids) for source_ids in (claim.support.by, claim.support.together, claim.support.against)]
        verdict = [*sources, clip_text(claim.support.words), _rounded_number(claim.support.probability)]
    return [claim.id, clip_text(claim.text), claim.sentence, claim.state, *verdict, clip_text(claim.reason)]


def _rounded_number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _metadata_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_metadata_text(item)}" for name, item in value.items())
    return ", ".join(map(_metadata_text, value)) if isinstance(value, list | tuple) else str(value)


def clip_text(text: str) -> str:
    """Truncate a text to the maximum length.

    >>> clip_text("short"), len(clip_text("long" * 2000))
    ('short', 4000)
    """
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
