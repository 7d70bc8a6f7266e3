"""Result types of a comparison: summaries, curves, strata and overviews."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.findings import Audit, append_notes
from ragauge.core.protocols import Result
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.records import Floats, Judgments, Run, Scores
from ragauge.core.run_dates import RunDate
from ragauge.core.summaries import Mean, Speed
from ragauge.evaluation.indicators import find_measure
from ragauge.stats.comparisons import Comparison, Comparisons
from ragauge.stats.repeated_trials import Variation
from ragauge.stats.smallest_k import SmallestK


# A run has the manifest that is written; it is read back as `stated_manifest`.
@json_form(
    omitted=("run",), renamed={"stated_manifest": "manifest"}, derived=("manifest",), optional=("scores", "times")
)
@dataclass(frozen=True, eq=False)
class SystemSummary:
    """Summary of one system: scores, latencies, costs and failures."""

    name: str
    means: Mapping[str, Mean]
    """Means by canonical measure name."""
    scores: Sequence[Scores] = ()
    """Scores of each trial; empty if only means are known."""
    run: Run | None = None
    """Run of the first trial, with timings and provenance if known."""
    speed: Speed | None = None
    times: Mapping[str, Floats] = field(default_factory=dict)
    """Latencies in ms of the successful queries by stage, with `total`; unordered."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Other values by name, which includes the unit: `build_seconds`, `cold_ms`, `index_size_bytes`."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """`{query: error}` of the failed queries. Each counts as an empty ranking."""
    stated_manifest: Mapping[str, Any] = field(default_factory=dict)
    """Provenance stated by a result file, for systems without a run."""
    variation: Mapping[str, Variation] = field(default_factory=dict)
    """Variance components by measure, if there are several trials with different results."""

    def table(self, measure: str) -> Floats:
        """Return values by trial (rows) and query of the first scores (columns).

        Missing values are NaN.
        """
        rows = []
        for scores in self.scores:
            value_by_query = (
                dict(zip(scores.queries, scores.values[measure].tolist(), strict=True))
                if measure in scores.values
                else {}
            )
            rows.append([value_by_query.get(query, math.nan) for query in self.scores[0].queries])
        return np.array(rows)

    def values(self, measure: str) -> Floats:
        """Return the mean over trials of each query of the first scores.

        Unscored queries are NaN.
        """
        table = self.table(measure)
        scored = ~np.isnan(table)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(scored, table, 0.0).sum(axis=0) / scored.sum(axis=0))

    @property
    def is_build_cached(self) -> bool:
        """Whether document vectors came from the cache, so that there is no build time."""
        return self.manifest.get("build_cached") is True

    @property
    def doubts(self) -> list[str]:
        """Reasons why the timings are unreliable; empty if none are known."""
        clock = self.manifest.get("clock")
        recorded = clock.get("doubts") if isinstance(clock, Mapping) else None
        return [str(doubt) for doubt in recorded] if isinstance(recorded, list | tuple) else []

    @property
    def embedding(self) -> Mapping[str, Any]:
        """Size of the vectors and of the model of a dense system; empty for others."""
        evidence = self.manifest.get("evidence")
        about = evidence.get("embedding") if isinstance(evidence, Mapping) else None
        return about if isinstance(about, Mapping) else {}

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Provenance of the run; empty if unknown."""
        return self.stated_manifest if self.run is None else self.run.manifest

    @property
    def run_date(self) -> RunDate | None:
        """Date at which the results were produced; None if unknown."""
        return RunDate.find(self.manifest)


@dataclass(frozen=True, eq=False)
class MeasureCurve:
    """Means of a measure over k by system, with the smallest sufficient k."""

    measure: str
    """Name of the measure without its cutoff, e.g. `hit_rate`."""
    ks: Sequence[int]
    values: Mapping[str, Sequence[float]]
    """By system, one mean per k; NaN if unknown."""
    enough: Mapping[str, SmallestK] = field(default_factory=dict)


def rank_systems(entries: Mapping[str, SystemSummary], measure: str, lower_is_better: frozenset[str]) -> list[str]:
    """Return the systems ordered by a measure, best first.

    Ties keep their order. Systems without a value are omitted.
    """
    means = {name: entry.means[measure].value for name, entry in entries.items() if measure in entry.means}
    means = {name: value for name, value in means.items() if not math.isnan(value)}
    return sorted(means, key=means.__getitem__, reverse=measure not in lower_is_better)


class StratumMeans(NamedTuple):
    """Means of the first measure over the queries of one stratum, by system."""

    value: str
    n: int
    means: Mapping[str, Mean]


@record(
    "ragauge-report", 1, supplied={"summary": "Best system, its difference, significance and cost in one sentence."}
)
@json_form(
    omitted=("judgments", "documents", "joined"),
    renamed={"entries": "systems", "compared": "comparisons", "documents_known": "documents"},
    optional=("queries", "tags"),
)
@dataclass(frozen=True, eq=False)
class Overview(TabularResult, report="ragauge.reports.overview_report"):
    """Comparison of systems: quality, significance, latency, failures and provenance."""

    title: str
    entries: Mapping[str, SystemSummary]
    """Summaries by system name, in display order."""
    measures: Sequence[str]
    """Canonical measure names. The systems are compared by the first one."""
    convention: str = ""
    lower_is_better: frozenset[str] = frozenset()
    confidence: float = 0.95
    """Confidence level of all intervals."""
    baseline: str | None = None
    compared: Comparisons | None = None
    """Comparisons with the baseline, or of every pair; None for a single system or if only means are known."""
    rival: Comparison | None = None
    """Comparison of the best system by the first measure with the second best."""
    curves: Sequence[MeasureCurve] = ()
    strata: Mapping[str, Sequence[StratumMeans]] = field(default_factory=dict)
    """Means by stratum for each tag of the queries."""
    dataset: str = ""
    documents_known: int | None = None
    """Number of documents in the dataset; None if unknown."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """`{query: text}`, if texts are known."""
    judgments: Judgments | None = None
    judgments_hash: str = ""
    """Hash of the judgments that the scores are based on."""
    documents: Mapping[str, Document] = field(default_factory=dict)
    """Returned or judged documents by id, if their texts are known."""
    audit: Audit | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{system: error}` of the systems without a run."""
    notes: Sequence[str] = ()
    made: str = ""
    """Creation time in ISO 8601."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`{query: {tag: value}}`, if there are tags."""
    rounds: int = 10_000
    """Number of bootstrap resamples for the interval of a mean."""
    joined: Sequence[Result] = ()
    """Results of other commands that are reported together with the systems."""

    @property
    def systems(self) -> list[str]:
        """Names of the systems in display order."""
        return list(self.entries)

    @property
    def run_dates(self) -> dict[str, RunDate]:
        """Date of the results by system, if known."""
        dates = {name: entry.run_date for name, entry in self.entries.items()}
        return {name: date for name, date in dates.items() if date is not None}

    @property
    def judge(self) -> str:
        """Name of the judge; empty if no answers were judged."""
        return next((score.judge for entry in self.entries.values() for score in entry.scores), "")

    @property
    def first_manifest(self) -> Mapping[str, Any]:
        """Manifest of the first system that has one; empty if none has."""
        return next((entry.manifest for entry in self.entries.values() if entry.manifest), {})

    @property
    def nouns(self) -> tuple[str, str]:
        """Unit of the scores in singular and plural: samples if answers were judged, otherwise queries."""
        return ("sample", "samples") if self.judge else ("query", "queries")

    @property
    def first(self) -> str:
        """Measure by which the systems are compared."""
        return self.measures[0]

    def ranked(self, measure: str | None = None) -> list[str]:
        """Return the systems ordered by a measure, best first.

        Systems without a value are omitted.
        """
        return rank_systems(self.entries, measure or self.first, self.lower_is_better)

    def without_queries(self) -> Overview:
        """Return the overview without scores, latencies and texts of single queries."""
        entries = {
            name: replace(entry, scores=(), times={}, stated_manifest=entry.manifest)
            for name, entry in self.entries.items()
        }
        return replace(self, entries=entries, queries={}, tags={})

    def difference(self, system: str, measure: str | None = None) -> Comparison | None:
        """Return the comparison of a system with the baseline, or None if there is none."""
        for row in () if self.compared is None or self.baseline is None else self.compared.rows:
            if row.system == system and row.measure == (measure or self.first):
                return row
        return None

    def __repr__(self) -> str:
        lines = [
            f"{system}: " + ", ".join(f"{name} {mean.value:.4f} (n={mean.n})" for name, mean in entry.means.items())
            for system, entry in self.entries.items()
        ]
        return append_notes("\n".join([f"Overview of {self.title}", *lines]), self.notes)


OverviewsByDataset = Mapping[str, Overview]
"""Overviews by dataset."""


@record("ragauge-experiments", 1)
@dataclass(frozen=True, eq=False)
class DatasetOverviews(TabularResult, report="ragauge.reports.experiment_set"):
    """Overviews of the same systems on several datasets."""

    title: str
    datasets: OverviewsByDataset
    """Overviews by name of the dataset."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{dataset: error}` of the datasets that could not be run."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Folder of each dataset, relative to that of the experiment."""


def list_systems(overviews: OverviewsByDataset) -> list[str]:
    """Return every system that has results on at least one dataset."""
    return list(dict.fromkeys(name for overview in overviews.values() for name in overview.systems))


def compute_ranks(values: Sequence[float], *, lower: bool) -> list[float]:
    """Return the rank of each value, 1 for the best. Ties share their mean rank.

    >>> compute_ranks([0.5, 0.9, 0.5], lower=False), compute_ranks([0.1 + 0.2, 0.3], lower=True)
    ([2.5, 1.0, 2.5], [1.5, 1.5])
    """
    # Rounded because means of the same values in another order may differ in their last digits.
    signed = [round(value if lower else -value, 12) for value in values]
    return [sum(value < own_value for value in signed) + (signed.count(own_value) + 1) / 2 for own_value in signed]


def compute_mean_ranks(overviews: OverviewsByDataset, measure: str) -> dict[str, float]:
    """Return each system's mean rank over datasets.

    Only datasets on which all systems have a value count. Empty with fewer than two such datasets. Ranks among fewer
    systems or on fewer datasets are not comparable (Demšar 2006).
    """
    names = list_systems(overviews)
    ranks = []
    for overview in overviews.values():
        means = [overview.entries[name].means.get(measure) if name in overview.entries else None for name in names]
        values = [math.nan if mean is None else mean.value for mean in means]
        if not any(map(math.isnan, values)):
            ranks.append(compute_ranks(values, lower=measure in overview.lower_is_better))
    known_measure = find_measure(measure)
    if len(names) < 2 or len(ranks) < 2 or (known_measure is not None and known_measure.is_count):
        return {}
    return {
        name: sum(system_ranks) / len(system_ranks)
        for name, system_ranks in zip(names, zip(*ranks, strict=True), strict=True)
    }
