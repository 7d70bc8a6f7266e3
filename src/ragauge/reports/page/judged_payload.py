"""Data embedded in the page of judged samples: scores of every sample, then all details."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ragauge.reports.judged_words import Standing, standings
from ragauge.verdicts import ANSWER, REFERENCE, Judged, Sample, Verdicts

MOST_CHARACTERS = 12_000_000
"""Maximum total size of chunks in characters; beyond it, better samples come without chunks."""
LONGEST = 4_000
"""Maximum length of one text in characters."""


def values(judged: Judged) -> dict[str, Any]:
    """Build the columns of questions, answers, scores and reasons by sample."""
    scores = judged.scores
    known = {one.id: one for one in judged.samples}
    ids = list(scores.queries)
    samples = [known.get(query, Sample(query)) for query in ids]
    said = [judged.verdicts.get(query) for query in ids]
    states = [
        [one.state for one in standings(verdicts, ANSWER, nothing=sample.contexts == ())]
        for sample, verdicts in zip(samples, said, strict=True)
    ]
    return {
        "ids": ids,
        "questions": [clipped(one.question) for one in samples],
        "answers": [clipped(one.answer or "") for one in samples],
        "values": [_column(scores.values[name].tolist()) for name in scores.measures],
        "why": [
            {str(i): scores.unscored[name][query] for i, query in enumerate(ids) if query in scores.unscored[name]}
            for name in scores.measures
        ],
        "contradicted": [some.count("contradicted") for some in states],
        "absent": [some.count("absent") for some in states],
        "unread": [0 if one is None else len(one.unscored) for one in said],
    }


def _column(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 6) for value in values]


def details(judged: Judged) -> dict[str, Any]:
    """Build the details of each sample.

    A chunk shared by several samples is stored once.
    """
    known = {one.id: one for one in judged.samples}
    texts: dict[str, int] = {}
    found: list[Any] = [None] * len(judged.scores.queries)
    left = MOST_CHARACTERS
    for i in _worst_first(judged):
        query = judged.scores.queries[i]
        sample = known.get(query, Sample(query))
        chunks = []
        for place, text in enumerate(sample.contexts or ()):
            name = sample.context_ids[place] if place < len(sample.context_ids) else ""
            short = clipped(text)
            if short not in texts and len(short) <= left:
                left -= len(short)
                texts[short] = len(texts)
            chunks.append([f"k{place + 1}", name, texts.get(short, -1)])
        found[i] = _detail(sample, judged.verdicts.get(query), chunks)
    return {"texts": list(texts), "samples": found}


def _worst_first(judged: Judged) -> list[int]:
    """Return sample positions, unscored first, then worst to best.

    Sorted by the first measure.
    """
    scores = judged.scores
    if not scores.measures:
        return list(range(len(scores.queries)))
    column = scores.values[scores.measures[0]]
    worse = -column if scores.measures[0] in scores.lower_is_better else column
    return [int(i) for i in np.argsort(np.where(np.isnan(worse), -np.inf, worse), kind="stable")]


def _detail(sample: Sample, said: Verdicts | None, chunks: list[Any]) -> dict[str, Any]:
    detail: dict[str, Any] = {"chunks": chunks, "given": sample.contexts is not None}
    more: dict[str, Any] = {
        "reference": None if sample.reference is None else clipped(sample.reference),
        "history": [clipped(one) for one in sample.history],
        "labels": dict(sample.labels),
        "metadata": {str(name): clipped(_told(value)) for name, value in sample.metadata.items()},
    }
    if said is not None:
        more |= {
            "asked": list(said.asked),
            "answer_claims": [_claim(one) for one in standings(said, ANSWER, nothing=sample.contexts == ())],
            "reference_claims": [_claim(one) for one in standings(said, REFERENCE, nothing=sample.contexts == ())],
            "useful": {chunk: [one.useful, clipped(one.words), one.probability] for chunk, one in said.useful.items()},
            "questions": [[clipped(one.text), _number(one.similarity)] for one in said.questions],
            "refusal": said.refusal,
            "left_out": {text: [clipped(one) for one in listed] for text, listed in said.left_out.items()},
            "unscored": [[what, clipped(one.why), clipped(one.reply)] for what, one in said.unscored.items()],
        }
    return detail | {name: one for name, one in more.items() if one is not None and one not in ([], {})}


def _claim(one: Standing) -> list[Any]:
    said = one.support
    told: list[Any] = [[], [], [], "", None]
    if said is not None:
        sources = [list(some) for some in (said.by, said.together, said.against)]
        told = [*sources, clipped(said.words), _number(said.probability)]
    return [one.id, clipped(one.text), one.sentence, one.state, *told, clipped(one.why)]


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_told(one)}" for name, one in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list | tuple) else str(value)


def clipped(text: str) -> str:
    """Truncate a text to the maximum length.

    >>> clipped("short"), len(clipped("long" * 2000))
    ('short', 4000)
    """
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
