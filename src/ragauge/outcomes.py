"""More nouns: what comes of letting systems answer. How fast they were, and all of it together."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.comparisons import Comparison
from ragauge.errors import RagaugeError, UnknownName
from ragauge.records import Dataset, Floats, Run, Scores


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
    throughput: float
    """Throughput: answers per second of wall-clock time, over all workers; 1000 / mean ms in files of other systems."""
    asked: int
    failed: int
    """Queries that ended in an error. Their times are in no percentile: an error that comes at once is not fast."""
    timed_out: int
    """Queries that were given up. Their times are in the percentiles of `total`, as long as somebody waited."""


@dataclass(frozen=True)
class Advice:
    """Which k is enough, and what the others would give and cost."""

    k: int | None
    """Smallest k that is enough; None if the measure still rises at the largest k that was tried."""
    measure: str
    tolerance: float
    confidence: float
    table: Sequence[Mapping[str, float]]
    """For each k: `k`, `value`, `loss` against the best, `loss_at_most`; where texts are known, `tokens` of the context
    and `tokens_more` than at the k before."""
    n: int = 0
    """Number of scored queries."""
    notes: Sequence[str] = ()
    """What limits the advice: failed queries, relevant ids that the database does not contain."""

    def __str__(self) -> str:
        return "; ".join([self._summary(), *self.notes])

    def _summary(self) -> str:
        if self.k is None:
            last = self.table[-1]
            before = f" from {self.table[-2]['value']:.4f} at k={self.table[-2]['k']:g}" if len(self.table) > 1 else ""
            rises = f"{self.measure} still rises{before} to" if before else f"{self.measure} is"
            return f"no tried k is enough: {rises} {last['value']:.4f} at k={last['k']:g}"
        chosen = next(row for row in self.table if row["k"] == self.k)
        best = max(self.table, key=lambda row: (row["value"], row["k"]))
        loss = "the best"
        if chosen is not best:
            loss = (
                f"at most {max(0.0, chosen['loss_at_most']):.4f} below the best ({best['value']:.4f} at "
                f"k={best['k']:g}) with {self.confidence:.0%} confidence"
            )
        text = f"k={self.k}: {self.measure} {chosen['value']:.4f}, {loss}"
        same = next((row for row in self.table if row["k"] < self.k and row["value"] == chosen["value"]), None)
        if same is not None:
            text += (
                f"; k={same['k']:g} scores the same, but {self.n} queries cannot exclude a loss of up to "
                f"{same['loss_at_most']:.4f}"
            )
        most = self.table[-1]
        if "tokens" not in most or math.isnan(most["tokens"]) or round(chosen["tokens"]) >= round(most["tokens"]):
            return text  # nothing is saved
        return f"{text}; about {chosen['tokens']:.0f} tokens instead of {most['tokens']:.0f} at k={most['k']:g}"


@dataclass(frozen=True, eq=False)
class Experiment:
    """What came of it: a run, scores and speed for each system, and how each differs from the baseline.

    Where queries were asked several times and the rankings differ, `scores` are those of the first time, and `trials`
    has every time. All else is over all trials, as it is in the folder: `differences`, `strata`, what is printed,
    `ragauge.compare(experiment)` and `ragauge.overview(experiment)`.
    """

    dataset: Dataset
    runs: Mapping[str, Run]
    scores: Mapping[str, Scores]
    """Of the first time that the queries were asked."""
    speeds: Mapping[str, Speed]
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """Each other system against the baseline, by the first measure."""
    baseline: str | None = None
    folder: Path | None = None
    notes: Sequence[str] = ()
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Systems that could not be built (they are not in `runs`) or that failed on queries, each with its error.

    The errors of single queries are in `scores[name].failures`.
    """
    trials: Mapping[str, Sequence[Scores]] = field(default_factory=dict)
    """The scores of each time, of systems whose rankings are not always the same."""

    @property
    def measures(self) -> list[str]:
        """The canonical names; the first is the one that systems are compared by."""
        return next(iter(self.scores.values())).measures

    def every_time(self, system: str) -> Sequence[Scores]:
        """The scores of each time that a system was asked; one only where its rankings are always the same."""
        return self.trials.get(system) or [self.scores[system]]

    def strata(self, tag: str) -> dict[str, tuple[int, dict[str, float]]]:
        """For each value of a tag of the queries, how many there are, and each system's mean of the first measure."""
        measure = self.measures[0]
        tag = canonical_tag(tag, {name for tags in self.dataset.tags.values() for name in tags})
        places: dict[str, list[int]] = {}
        for place, query in enumerate(next(iter(self.scores.values())).queries):
            if tag in self.dataset.tags.get(query, {}):
                places.setdefault(self.dataset.tags[query][tag], []).append(place)
        if not places:
            known = sorted({name for tags in self.dataset.tags.values() for name in tags})
            raise UnknownName("tag", tag, known, hint=f"there are {', '.join(known) or 'none'}")
        found = {}
        for value, mine in sorted(places.items(), key=lambda pair: -len(pair[1])):
            columns = {n: [one.values[measure][mine] for one in self.every_time(n)] for n in self.scores}
            found[value] = (len(mine), {n: float(np.mean([_mean(one) for one in v])) for n, v in columns.items()})
        return found

    def __repr__(self) -> str:
        absent = [f"{name}: not run: {error.message}" for name, error in self.failures.items() if name not in self.runs]
        return "\n".join([*(_printed(self.every_time(name)) for name in self.scores), *absent])


def canonical_tag(tag: str, known: Collection[str]) -> str:
    """Return the name under which a tag is known; the swarm study calls `complexity` `query_complexity`.

    >>> canonical_tag("query_complexity", ["complexity"]), canonical_tag("topic", ["complexity"])
    ('complexity', 'topic')
    """
    meant = {"query_complexity": "complexity"}.get(tag, tag)
    return tag if tag in known or meant not in known else meant


def every_part(evidence: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a system says of itself in a manifest, and what each of its parts says, however deep.

    >>> [one.get("steps") for one in every_part({"parts": [{"steps": 8}, {"parts": [{"steps": 9}]}]})]
    [None, 8, None, 9]
    """
    yield evidence
    for part in evidence.get("parts") or ():
        if isinstance(part, Mapping):
            yield from every_part(part)


def _mean(values: Floats) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else math.nan


def _printed(trials: Sequence[Scores]) -> str:
    """Scores, or their means over trials."""
    first, often = trials[0], len(trials)
    if often == 1:
        return repr(first)
    means = {name: float(np.mean([one.means[name] for one in trials])) for name in first.measures}
    failures = {query: error for one in reversed(trials) for query, error in one.failures.items()}
    return f"{replace(first, means=first._by_measure(means), failures=failures)!r} over {often} trials"


@dataclass(frozen=True, eq=False)
class Study:
    """The same systems over several datasets."""

    experiments: Mapping[str, Experiment]
    """By dataset."""
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Datasets that could not be run, and why."""
    folder: Path | None = None

    def __repr__(self) -> str:
        absent = [f"{name}: not run: {error.message}" for name, error in self.failures.items()]
        return "\n".join([*(f"{name}:\n{one!r}" for name, one in self.experiments.items()), *absent])


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
