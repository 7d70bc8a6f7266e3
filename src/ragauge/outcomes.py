"""Results of `run`: runs, scores and latency of each system, compared with a baseline."""

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
    """Mean over `n` queries with its confidence interval; `low` and `high` are NaN if unknown.

    `n` is 0 if a file does not say over how many queries the mean was computed.
    """

    value: float
    n: int
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Latency:
    """Latency of one stage over `n` queries, in ms; percentiles by linear interpolation."""

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
    """Latency by stage, throughput, and failures of a system."""

    stages: Mapping[str, Latency]
    """Latency by stage, and `total`; stages that a system does not have are missing."""
    throughput: float
    """Queries per second of wall-clock time, over all workers; 1000 / mean ms in files of other systems."""
    asked: int
    failed: int
    """Number of queries that ended in an error. They are not in the percentiles, because a quick error is not fast."""
    timed_out: int
    """Number of queries that timed out. The time until the timeout is in the percentiles of `total`."""


@dataclass(frozen=True)
class Advice:
    """Smallest sufficient k, with the score and the context size of each k that was tried."""

    k: int | None
    """Smallest k that is enough; None if the measure still rises at the largest k that was tried."""
    measure: str
    tolerance: float
    confidence: float
    table: Sequence[Mapping[str, float]]
    """One row per k: `k`, `value`, `loss` to the best value, `loss_at_most`; if texts are available, `tokens` of the
    context
    and `tokens_more` than at the k before.
    """
    n: int = 0
    """Number of scored queries."""
    notes: Sequence[str] = ()
    """Limitations of the result: failed queries, relevant ids that the database does not contain."""

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
            return text  # No tokens are saved.
        return f"{text}; about {chosen['tokens']:.0f} tokens instead of {most['tokens']:.0f} at k={most['k']:g}"


@dataclass(frozen=True, eq=False)
class Experiment:
    """Result of `run`: run, scores and latency per system, and differences from the baseline.

    If there were several trials with different rankings, `scores` are those of the first trial and `trials` has all of
    them. Everything else covers all trials: `differences`, `strata`, the printed form, `ragauge.compare(experiment)`
    and `ragauge.overview(experiment)`.
    """

    dataset: Dataset
    runs: Mapping[str, Run]
    scores: Mapping[str, Scores]
    """Scores of the first trial, by system."""
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

    def every_time(self, system: str) -> Sequence[Scores]:
        """Return the scores of each trial; only one if all rankings are the same."""
        return self.trials.get(system) or [self.scores[system]]

    def strata(self, tag: str) -> dict[str, tuple[int, dict[str, float]]]:
        """Return query count and each system's mean, by value of a tag.

        The mean is that of the first measure.
        """
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
    """Return the name under which a tag is known.

    The swarm study calls `complexity` `query_complexity`.

    >>> canonical_tag("query_complexity", ["complexity"]), canonical_tag("topic", ["complexity"])
    ('complexity', 'topic')
    """
    meant = {"query_complexity": "complexity"}.get(tag, tag)
    return tag if tag in known or meant not in known else meant


def every_part(evidence: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Iterate over the facts of a system in a manifest and those of all its parts.

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
    """Format scores, or their means over several trials."""
    first, often = trials[0], len(trials)
    if often == 1:
        return repr(first)
    means = {name: float(np.mean([one.means[name] for one in trials])) for name in first.measures}
    failures = {query: error for one in reversed(trials) for query, error in one.failures.items()}
    return f"{replace(first, means=first._by_measure(means), failures=failures)!r} over {often} trials"


@dataclass(frozen=True, eq=False)
class Study:
    """Result of `run_each`: the same systems on several datasets."""

    experiments: Mapping[str, Experiment]
    """Experiments by dataset."""
    failures: Mapping[str, RagaugeError] = field(default_factory=dict)
    """Errors of datasets that could not be run."""
    folder: Path | None = None

    def __repr__(self) -> str:
        absent = [f"{name}: not run: {error.message}" for name, error in self.failures.items()]
        return "\n".join([*(f"{name}:\n{one!r}" for name, one in self.experiments.items()), *absent])


class Estimate(NamedTuple):
    """Value with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Reliability:
    """Success rates of a system whose tasks were each tried several times."""

    system: str
    counts: Mapping[str, tuple[int, int]]
    """Trials and successes by task: `{task: (trials, successes)}`."""
    success_rate: Estimate
    """Mean over tasks of the share of successful trials."""
    pass_at: Mapping[int, Estimate]
    """Probability that at least one of k trials of a task succeeds (pass@k), by k."""
    pass_all: Mapping[int, Estimate]
    """Probability that all k trials of a task succeed (pass^k), by k."""
    agreement: float
    """Probability that two trials of a task have the same outcome; NaN if no task has two trials."""
    over: str = "tasks"
    """Population of the intervals: other `tasks` of this kind, or other `trials` of these tasks."""
    confidence: float = 0.95
    success: str = ""
    """Definition of a success."""
    notes: Sequence[str] = ()

    @property
    def n(self) -> int:
        """Number of tasks."""
        return len(self.counts)

    @property
    def trials(self) -> tuple[int, int]:
        """Smallest and largest number of trials of a task."""
        tried = [n for n, _ in self.counts.values()]
        return min(tried), max(tried)

    @property
    def always(self) -> list[str]:
        """Tasks in which every trial succeeded."""
        return [task for task, (n, c) in self.counts.items() if c == n]

    @property
    def never(self) -> list[str]:
        """Tasks in which no trial succeeded."""
        return [task for task, (_, c) in self.counts.items() if c == 0]

    @property
    def flaky(self) -> list[str]:
        """Tasks with successes and failures; success rates closest to 0.5 come first."""
        some = [task for task, (n, c) in self.counts.items() if 0 < c < n]
        return sorted(some, key=lambda task: abs(self.counts[task][1] / self.counts[task][0] - 0.5))

    def __repr__(self) -> str:
        most = max(self.pass_at)
        return (
            f"Reliability({self.system!r}, {self.n} tasks: success rate {self.success_rate.value:.4f}, "
            f"pass@{most} {self.pass_at[most].value:.4f}, pass^{most} {self.pass_all[most].value:.4f})"
        )
