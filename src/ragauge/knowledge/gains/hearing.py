"""Judge of context recall, with its notes and the reasons for unscored queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ragauge.errors import BackendFailed
from ragauge.knowledge.gains.weights import CONTEXT_RECALL
from ragauge.records import Floats
from ragauge.verdicts import Judged, Sample


class Hearing:
    """Context recall of queries with the texts they retrieved; NaN if unscored."""

    def __init__(
        self, ask: Callable[[Sequence[Sample]], Judged], queries: Mapping[str, str], answers: Mapping[str, str]
    ) -> None:
        self.judge = ""
        """Name of the judge; empty before the first call."""
        self._ask, self._queries, self._answers = ask, queries, answers
        self._why: dict[str, str] = {}
        self._said: dict[str, None] = {}

    def __call__(self, asked: Sequence[tuple[str, tuple[str, ...]]]) -> Floats:
        """Judge the samples and collect the notes."""
        samples = [
            Sample(str(place), self._queries[query], contexts=texts, reference=self._answers[query])
            for place, (query, texts) in enumerate(asked)
            if query in self._answers
        ]
        found = np.full(len(asked), math.nan)
        if not samples:
            return found
        told = self._ask(samples)
        self.judge = told.judge
        self._said.update(dict.fromkeys([*told.notes, *([told.stopped] if told.stopped else [])]))
        for place, why in told.scores.unscored[CONTEXT_RECALL].items():
            self._why.setdefault(asked[int(place)][0], why)
        found[[int(one.id) for one in samples]] = told.scores.values[CONTEXT_RECALL]
        return found

    def verdict(self, queries: Sequence[str], gaps: Floats, *, chat: bool) -> tuple[list[str], str]:
        """Return the notes on both snapshots, and the reason if no query was scored.

        BackendFailed is raised if a `chat` model was requested and scored no query.
        """
        able = [query for query in queries if query in self._answers]
        told = {query for query, gap in zip(queries, gaps.tolist(), strict=True) if not math.isnan(gap)}
        lacking = [query for query in able if query not in told]
        if not lacking:
            return list(self._said), ""
        first = next((self._why[query] for query in lacking if query in self._why), "it gave no number")
        if len(lacking) < len(able):
            note = f"{len(lacking):,} of {len(able):,} queries are unscored by the judge: {first}"
            return [note, *self._said], ""
        if chat:
            raise BackendFailed(f"the judge scored none of {len(able):,} queries on both sides: {first}")
        return list(self._said), f"the judge scored no query on both sides: {first}"
