"""More nouns: what comes of letting systems answer. How fast they were, and all of it together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragauge.comparisons import Comparison
from ragauge.errors import RagaugeError, UnknownName
from ragauge.records import Dataset, Run, Scores


class Mean(NamedTuple):
    """A mean over `n` queries, and how far it may be off; NaN where that is not known.

    Some files tell a mean without saying over how many queries: then `n` is 0.
    """

    value: float
    n: int
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one stage over `n` queries; percentiles by linear interpolation, as NumPy has them."""

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    std: float
    min: float
    max: float


@dataclass(frozen=True)
class Speed:
    """How fast a system answered."""

    stages: Mapping[str, Latency]
    """By stage, and `total`; a stage that a system does not have is not here."""
    qps: float
    """Answers per second of wall-clock time, over all workers."""
    asked: int
    failed: int
    """Queries that ended in an error. Their times are in no percentile: an error that comes at once is not fast."""
    timed_out: int
    """Queries that were given up. Their times are in the percentiles of `total`, as long as somebody waited."""


@dataclass(frozen=True)
class Advice:
    """Which k is enough, and what the others would give and cost."""

    k: int
    measure: str
    tolerance: float
    confidence: float
    table: Sequence[Mapping[str, float]]
    """For each k: `k`, `value`, `loss` against the best, `loss_at_most`; where texts are known, `tokens` of the context
    and `tokens_more` than at the k before."""

    def __str__(self) -> str:
        chosen = next(row for row in self.table if row["k"] == self.k)
        best = max(self.table, key=lambda row: row["value"])
        loss = "the best"
        if chosen is not best:
            loss = (
                f"at most {max(0.0, chosen['loss_at_most']):.4f} below the best ({best['value']:.4f} at "
                f"k={best['k']:g}) with {self.confidence:.0%} confidence"
            )
        text = f"k={self.k}: {self.measure} {chosen['value']:.4f}, {loss}"
        most = self.table[-1]
        if "tokens" not in most or math.isnan(most["tokens"]) or round(chosen["tokens"]) >= round(most["tokens"]):
            return text  # nothing is saved
        return f"{text}; about {chosen['tokens']:.0f} tokens instead of {most['tokens']:.0f} at k={most['k']:g}"


@dataclass(frozen=True, eq=False)
class Experiment:
    """What came of it: a run, scores and speed for each system, and how each differs from the baseline."""

    dataset: Dataset
    runs: Mapping[str, Run]
    scores: Mapping[str, Scores]
    speeds: Mapping[str, Speed]
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """Each other system against the baseline, by the first measure."""
    baseline: str | None = None
    folder: Path | None = None
    notes: Sequence[str] = ()
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Systems that could not be built or kept, and why."""

    @property
    def measures(self) -> list[str]:
        """The canonical names; the first is the one that systems are compared by."""
        return next(iter(self.scores.values())).measures

    def strata(self, tag: str) -> dict[str, tuple[int, dict[str, float]]]:
        """For each value of a tag of the queries, how many there are, and each system's mean of the first measure."""
        measure = self.measures[0]
        places: dict[str, list[int]] = {}
        for place, query in enumerate(next(iter(self.scores.values())).queries):
            if tag in self.dataset.tags.get(query, {}):
                places.setdefault(self.dataset.tags[query][tag], []).append(place)
        if not places:
            known = sorted({name for tags in self.dataset.tags.values() for name in tags})
            raise UnknownName("tag", tag, known, hint=f"there are {', '.join(known) or 'none'}")
        found = {}
        for value, mine in sorted(places.items(), key=lambda pair: -len(pair[1])):
            columns = {name: scores.values[measure][mine] for name, scores in self.scores.items()}
            means = {
                n: float(v[~np.isnan(v)].mean()) if not np.isnan(v).all() else math.nan for n, v in columns.items()
            }
            found[value] = (len(mine), means)
        return found

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.scores.values()))


@dataclass(frozen=True, eq=False)
class Study:
    """The same systems over several datasets."""

    experiments: Mapping[str, Experiment]
    """By dataset."""
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Datasets that could not be run, and why."""
    folder: Path | None = None

    def means(self, measure: str | None = None) -> dict[str, dict[str, float]]:
        """`{system: {dataset: mean}}` of a measure, that of the first time it was asked; the first unless one is named.

        Where a system or a measure is missing on a dataset, so is its mean.
        """
        found: dict[str, dict[str, float]] = {}
        for dataset, one in self.experiments.items():
            for system, scores in one.scores.items():
                mine = found.setdefault(system, {})
                if (wanted := measure or one.measures[0]) in scores.means:
                    mine[dataset] = scores.means[wanted]
        return found

    def __repr__(self) -> str:
        return "\n".join(f"{name}:\n{one!r}" for name, one in self.experiments.items())


class Estimate(NamedTuple):
    """A figure, and how far it may be off."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Reliability:
    """How a system does when every task is tried several times."""

    system: str
    counts: Mapping[str, tuple[int, int]]
    """`{task: (trials, successes)}`."""
    success_rate: Estimate
    """The mean over tasks of the share of trials that succeed."""
    pass_at: Mapping[int, Estimate]
    """For each k the chance that of k trials of a task at least one succeeds (pass@k)."""
    pass_all: Mapping[int, Estimate]
    """For each k the chance that all k trials of a task succeed (pass^k)."""
    agreement: float
    """The chance that two trials of a task have the same outcome; NaN where no task was tried twice."""
    over: str = "tasks"
    """What the intervals speak of: other such `tasks`, or other `trials` of these very tasks."""
    confidence: float = 0.95
    success: str = ""
    """What counted as a success."""
    notes: Sequence[str] = ()

    @property
    def n(self) -> int:
        """How many tasks."""
        return len(self.counts)

    @property
    def trials(self) -> tuple[int, int]:
        """The fewest and the most trials of a task."""
        tried = [n for n, _ in self.counts.values()]
        return min(tried), max(tried)

    @property
    def always(self) -> list[str]:
        """The tasks of which every trial succeeded."""
        return [task for task, (n, c) in self.counts.items() if c == n]

    @property
    def never(self) -> list[str]:
        """The tasks of which no trial succeeded."""
        return [task for task, (_, c) in self.counts.items() if c == 0]

    @property
    def flaky(self) -> list[str]:
        """The tasks of which some trials succeeded and some did not, the most even ones first."""
        some = [task for task, (n, c) in self.counts.items() if 0 < c < n]
        return sorted(some, key=lambda task: abs(self.counts[task][1] / self.counts[task][0] - 0.5))

    def __repr__(self) -> str:
        most = max(self.pass_at)
        return (
            f"Reliability({self.system!r}, {self.n} tasks: success rate {self.success_rate.value:.4f}, "
            f"pass@{most} {self.pass_at[most].value:.4f}, pass^{most} {self.pass_all[most].value:.4f})"
        )
