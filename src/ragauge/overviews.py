"""More nouns: all that is known of some systems, be it much or little, put together so that it can be shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ragauge.ages import Freshness
from ragauge.answer_dates import AnswerDate
from ragauge.comparisons import Comparison, Comparisons
from ragauge.findings import Audit, Lint
from ragauge.lineups import Lineup, Tokenizers
from ragauge.ordeals import Ordeal
from ragauge.outcomes import Advice, Mean, Speed
from ragauge.records import Document, Floats, Judgments, Run, Scores
from ragauge.webs import Web
from ragauge.worths import Gain, Novelty

Told = Lint | Novelty | Gain | Freshness | Ordeal | Lineup | Tokenizers | Web
"""What can be told beside runs: of a knowledge base, of embedders and tokenizers, of a graph."""


class Parts(NamedTuple):
    """Something in three parts: between queries, between trials, and the rest, which is of one query in one trial."""

    queries: float
    trials: float
    rest: float


@dataclass(frozen=True)
class Variation:
    """How the values of a system vary by one measure: from query to query, and from trial to trial.

    Every query is asked in every trial, and each value is the mean plus what its query, its trial and the two together
    add to it: random effects, whose variances the mean squares tell (their expectations solved for them).
    """

    trials: int
    n: int
    """Queries that have a value in every trial."""
    squares: Parts
    """The mean squares."""
    unstable: int
    """Queries that do not have the same value in every trial."""
    left_out: int = 0
    """Queries that have none in some trial."""

    @property
    def estimates(self) -> Parts:
        """The variances without bias: what is 0 comes out below 0 about as often as above."""
        queries, trials, rest = self.squares
        return Parts((queries - rest) / self.trials, (trials - rest) / self.n, rest)

    @property
    def variances(self) -> Parts:
        """The same with 0 for what is below 0."""
        return Parts(*(max(0.0, one) for one in self.estimates))

    @property
    def below(self) -> list[str]:
        """Which estimates are below 0, and taken for 0."""
        return [name for name, one in self.estimates._asdict().items() if one < 0]

    @property
    def shares(self) -> Parts:
        """What part of the variance of a value each is; NaN where nothing varies."""
        whole = sum(self.variances)
        return Parts(*(one / whole if whole else math.nan for one in self.variances))

    @property
    def of_mean(self) -> Parts:
        """The variance of the mean, were other queries and other trials taken: what each of them adds to it.

        More queries make the first and the last smaller, more trials the second and the last.
        """
        queries, trials, rest = self.variances
        return Parts(queries / self.n, trials / self.trials, rest / (self.n * self.trials))

    @property
    def error(self) -> float:
        """The standard error of the mean over queries and trials."""
        return math.sqrt(sum(self.of_mean))

    @property
    def by_queries(self) -> float:
        """The part of the variance of the mean that endlessly many queries would take away; NaN where there is none."""
        return self._part(self.of_mean.queries + self.of_mean.rest)

    @property
    def by_trials(self) -> float:
        """The part that endlessly many trials would take away, likewise."""
        return self._part(self.of_mean.trials + self.of_mean.rest)

    def _part(self, some: float) -> float:
        whole = sum(self.of_mean)
        return some / whole if whole else math.nan

    def enough(self, share: float = 0.1) -> int | None:
        """How many trials make that part no more than a share; None where queries add nothing, and no number does."""
        queries, trials, rest = self.variances
        chance = trials + rest / self.n
        if not chance:
            return 1
        return math.ceil(round(chance * (1 - share) / share / (queries / self.n), 9)) or 1 if queries else None


@dataclass(frozen=True, eq=False)
class Entry:
    """One system."""

    name: str
    means: Mapping[str, Mean]
    """By measure, canonical names."""
    scores: Sequence[Scores] = ()
    """For each time the queries were asked; none where only means are known."""
    run: Run | None = None
    """What it returned, with timings and circumstances where they are known; of the first time."""
    speed: Speed | None = None
    times: Mapping[str, Floats] = field(default_factory=dict)
    """Milliseconds of every answered query by stage, and `total`; in no order."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Other figures, the unit in the name: `build_seconds`, `cold_ms`, `index_size_bytes`."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """`{query: what went wrong}`: each counts as an empty ranking."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """Circumstances that a file of figures tells, where there is no run to hold them."""
    variation: Mapping[str, Variation] = field(default_factory=dict)
    """By measure, where it was asked several times and did not always answer alike."""

    def table(self, measure: str) -> Floats:
        """A row for each time it was asked, a column for each query of the first scores; NaN where there is none."""
        rows = []
        for one in self.scores:
            known = dict(zip(one.queries, one.values[measure].tolist(), strict=True)) if measure in one.values else {}
            rows.append([known.get(query, math.nan) for query in self.scores[0].queries])
        return np.array(rows)

    def values(self, measure: str) -> Floats:
        """A value for each query of the first scores: its mean over all times that it was asked and scored."""
        table = self.table(measure)
        scored = ~np.isnan(table)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(scored, table, 0.0).sum(axis=0) / scored.sum(axis=0))

    @property
    def is_build_cached(self) -> bool:
        """Whether vectors of documents came from the cache, so that there is no build time."""
        return self.manifest.get("build_cached") is True

    @property
    def doubts(self) -> list[str]:
        """Reasons why the times are unreliable; empty if they are reliable, or nothing is known."""
        clock = self.manifest.get("clock")
        found = clock.get("doubts") if isinstance(clock, Mapping) else None
        return [str(one) for one in found] if isinstance(found, list | tuple) else []

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Under which circumstances it was run; nothing where that is not known."""
        return self.told if self.run is None else self.run.manifest

    @property
    def answered(self) -> AnswerDate | None:
        """When its answers were made; None if that is unknown."""
        return AnswerDate.find(self.manifest)


@dataclass(frozen=True, eq=False)
class Curve:
    """A measure over k, for each system, and which k is enough."""

    measure: str
    """Without its cutoff: `hit_rate`."""
    ks: Sequence[int]
    values: Mapping[str, Sequence[float]]
    """By system, a mean for each k."""
    enough: Mapping[str, Advice] = field(default_factory=dict)


def ranked(entries: Mapping[str, Entry], measure: str, lower_is_better: frozenset[str]) -> list[str]:
    """Systems by a measure, the best first; of equal ones the earlier, and those without a value not at all."""
    known = {name: entry.means[measure].value for name, entry in entries.items() if measure in entry.means}
    known = {name: value for name, value in known.items() if not math.isnan(value)}
    return sorted(known, key=known.__getitem__, reverse=measure not in lower_is_better)


class Stratum(NamedTuple):
    """Some of the queries, and each system's mean of the first measure over them."""

    value: str
    n: int
    means: Mapping[str, Mean]


@dataclass(frozen=True, eq=False)
class Overview:
    """Systems side by side: how good, how sure, how fast, where they fail, and under which circumstances."""

    title: str
    entries: Mapping[str, Entry]
    """By name of the system, in the order in which they are shown."""
    measures: Sequence[str]
    """Canonical names; the first is the one that systems are compared by."""
    convention: str = ""
    lower_is_better: frozenset[str] = frozenset()
    confidence: float = 0.95
    """Of every interval."""
    baseline: str | None = None
    compared: Comparisons | None = None
    """Each system against the baseline, else every pair; None of a single system, or of means alone."""
    rival: Comparison | None = None
    """The best system by the first measure against the next best."""
    curves: Sequence[Curve] = ()
    strata: Mapping[str, Sequence[Stratum]] = field(default_factory=dict)
    """By tag of the queries."""
    dataset: str = ""
    documents_known: int | None = None
    """How many documents the dataset has."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """`{query: text}`, where texts are known."""
    judgments: Judgments | None = None
    judgments_hash: str = ""
    """What the judgments are that the scores are by."""
    documents: Mapping[str, Document] = field(default_factory=dict)
    """The documents that are returned or judged, where their texts are known."""
    audit: Audit | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{system: why}` of systems that could not be built."""
    notes: Sequence[str] = ()
    made: str = ""
    """When it was put together, as ISO 8601."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`{query: {tag: value}}`, where there are tags."""
    rounds: int = 10_000
    """How many resamples the interval of a mean is of."""
    beside: Sequence[Told] = ()
    """What else is known, to be told with the systems."""

    @property
    def systems(self) -> list[str]:
        """The names."""
        return list(self.entries)

    @property
    def answers(self) -> dict[str, AnswerDate]:
        """By system, when its answers were made, as far as that is known."""
        dates = {name: entry.answered for name, entry in self.entries.items()}
        return {name: date for name, date in dates.items() if date is not None}

    @property
    def judge(self) -> str:
        """Who judged the answers; empty where no answers were judged."""
        return next((one.judge for entry in self.entries.values() for one in entry.scores), "")

    @property
    def asked(self) -> tuple[str, str]:
        """What the scores are of, one and many: samples where answers were judged, else queries."""
        return ("sample", "samples") if self.judge else ("query", "queries")

    @property
    def first(self) -> str:
        """The measure that systems are compared by."""
        return self.measures[0]

    def ranked(self, measure: str | None = None) -> list[str]:
        """The systems by a measure, the best first; those without a value are left out."""
        return ranked(self.entries, measure or self.first, self.lower_is_better)

    def difference(self, system: str, measure: str | None = None) -> Comparison | None:
        """A system against the baseline; None where there is no such comparison."""
        for row in () if self.compared is None or self.baseline is None else self.compared.rows:
            if row.system == system and row.measure == (measure or self.first):
                return row
        return None

    def __repr__(self) -> str:
        lines = [
            f"{one}: " + ", ".join(f"{name} {mean.value:.4f} (n={mean.n})" for name, mean in entry.means.items())
            for one, entry in self.entries.items()
        ]
        return "\n".join([f"Overview of {self.title}", *lines])


Overviews = Mapping[str, Overview]
"""By dataset."""


def systems(overviews: Overviews) -> list[str]:
    """Every system that answered on some dataset."""
    return list(dict.fromkeys(name for one in overviews.values() for name in one.systems))


def ranks(values: Sequence[float], *, lower: bool) -> list[float]:
    """The place of each among all, the best 1; equal ones share the mean of theirs.

    >>> ranks([0.5, 0.9, 0.5], lower=False), ranks([0.1 + 0.2, 0.3], lower=True)
    ([2.5, 1.0, 2.5], [1.5, 1.5])
    """
    # Means of the same values in another order may differ in their last digits.
    signed = [round(value if lower else -value, 12) for value in values]
    return [sum(one < mine for one in signed) + (signed.count(mine) + 1) / 2 for mine in signed]


def mean_ranks(overviews: Overviews, measure: str) -> dict[str, float]:
    """Each system's mean rank over the datasets on which all of them have a value; nothing where that is but one.

    A system's ranks among fewer others, or on fewer datasets, would not compare (Demšar 2006 has them so).
    """
    names = systems(overviews)
    found = []
    for one in overviews.values():
        means = [one.entries[name].means.get(measure) if name in one.entries else None for name in names]
        values = [math.nan if mean is None else mean.value for mean in means]
        if not any(map(math.isnan, values)):
            found.append(ranks(values, lower=measure in one.lower_is_better))
    if len(names) < 2 or len(found) < 2 or measure.startswith("num_"):
        return {}
    return {name: sum(mine) / len(mine) for name, mine in zip(names, zip(*found, strict=True), strict=True)}
