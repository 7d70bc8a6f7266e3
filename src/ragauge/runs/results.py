"""Results of `run`: results of queries; runs, scores and latency of each system, compared with a baseline."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import RagaugeError, UnknownName
from ragauge.core.findings import append_notes
from ragauge.core.record_types import TabularResult
from ragauge.core.records import Dataset, Floats, Run, Scores
from ragauge.core.summaries import Speed
from ragauge.stats.comparisons import Comparison


@dataclass(slots=True)
class QueryResult:
    """Result of one query in one trial: hits or an error, and the time of all attempts."""

    query: str
    repeat: int
    docs: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    status: str = "ok"
    """`ok`, `error` or `timeout`."""
    error: str = ""
    attempts: int = 1
    began: int = 0
    """Start of the first attempt, in ns of this process's clock."""
    total: int = 0
    stages: dict[str, int] = field(default_factory=dict)
    session: int = 1
    """Number of the process that ran the query, from 1; times of different processes are not comparable."""
    complete: bool = False
    """Whether the system returned fewer documents than requested, so that a larger k would add none."""


@dataclass(frozen=True, eq=False)
class Experiment(TabularResult, report="ragauge.reports.views:EXPERIMENT_REPORTER"):
    """Result of `run`: run, scores and latency per system, and differences from the baseline.

    If there were several trials with different rankings, `scores` are means over the trials, and `trials` has the
    scores of each. Everything else covers all trials, too.
    """

    dataset: Dataset
    runs: Mapping[str, Run]
    scores: Mapping[str, Scores]
    """Scores by system; means over the trials if their rankings differ."""
    speeds: Mapping[str, Speed]
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """Difference of each other system from the baseline, in the first measure."""
    baseline: str | None = None
    folder: Path | None = None
    notes: Sequence[str] = ()
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Systems that could not be built (they are not in `runs`) or that failed on queries, each with its error.

    The errors of single queries are in `scores[name].failures`.
    """
    trials: Mapping[str, Sequence[Scores]] = field(default_factory=dict)
    """Scores of each trial, for systems whose rankings differ between trials."""

    @property
    def measures(self) -> list[str]:
        """Canonical names of the measures; systems are compared by the first one."""
        return next(iter(self.scores.values())).measures

    def scores_by_trial(self, system: str) -> Sequence[Scores]:
        """Return the scores of each trial; only one element if all rankings are the same."""
        return self.trials.get(system) or [self.scores[system]]

    def strata(self, tag: str) -> dict[str, tuple[int, dict[str, float]]]:
        """Return query count and each system's mean, by value of a tag.

        The mean is that of the first measure.
        """
        measure = self.measures[0]
        tag = canonical_tag(tag, {name for tags in self.dataset.tags.values() for name in tags})
        positions: dict[str, list[int]] = {}
        for position, query in enumerate(next(iter(self.scores.values())).queries):
            if tag in self.dataset.tags.get(query, {}):
                positions.setdefault(self.dataset.tags[query][tag], []).append(position)
        if not positions:
            tag_names = sorted({name for tags in self.dataset.tags.values() for name in tags})
            raise UnknownName("tag", tag, tag_names)
        strata = {}
        for value, rows in sorted(positions.items(), key=lambda pair: -len(pair[1])):
            columns = {n: [scores.values[measure][rows] for scores in self.scores_by_trial(n)] for n in self.scores}
            strata[value] = (
                len(rows),
                {n: float(np.mean([_nan_mean(values) for values in v])) for n, v in columns.items()},
            )
        return strata

    def __repr__(self) -> str:
        absent = [f"{name}: not run: {error.message}" for name, error in self.failures.items() if name not in self.runs]
        scores = [scores._describe() for scores in self.scores.values()]
        return append_notes("\n".join([*scores, *map(repr, self.differences.values()), *absent]), self.notes)


def canonical_tag(tag: str, known_tags: Collection[str]) -> str:
    """Return the name under which a tag is known.

    The swarm study calls `complexity` `query_complexity`.

    >>> canonical_tag("query_complexity", ["complexity"]), canonical_tag("topic", ["complexity"])
    ('complexity', 'topic')
    """
    alias = {"query_complexity": "complexity"}.get(tag, tag)
    return tag if tag in known_tags or alias not in known_tags else alias


def iterate_parts(evidence: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Iterate over the facts of a system in a manifest and those of all its parts.

    >>> [one.get("steps") for one in iterate_parts({"parts": [{"steps": 8}, {"parts": [{"steps": 9}]}]})]
    [None, 8, None, 9]
    """
    yield evidence
    for part in evidence.get("parts") or ():
        if isinstance(part, Mapping):
            yield from iterate_parts(part)


def _nan_mean(values: Floats) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else math.nan


@dataclass(frozen=True, eq=False)
class ExperimentSet(TabularResult, report="ragauge.reports.views:EXPERIMENT_SET_REPORTER"):
    """Result of `run_each`: the same systems on several datasets."""

    experiments: Mapping[str, Experiment]
    """Experiments by dataset."""
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Errors of datasets that could not be run."""
    folder: Path | None = None

    def __repr__(self) -> str:
        absent = [f"{name}: not run: {error.message}" for name, error in self.failures.items()]
        return "\n".join([*(f"{name}:\n{experiment!r}" for name, experiment in self.experiments.items()), *absent])
