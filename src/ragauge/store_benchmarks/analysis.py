"""Analysis of benchmark results: raw measurements to scores, latencies and configurations."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ragauge.compute import observation
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.records import Ints
from ragauge.store_benchmarks import measures
from ragauge.store_benchmarks.jobs import BenchmarkRunner, FilterRawResult
from ragauge.store_benchmarks.metadata_filters import describe_filter, matching_mask
from ragauge.store_benchmarks.plan import BenchmarkSettings, StoreBuild
from ragauge.store_benchmarks.results import (
    RECALL_MEASURE,
    BuildCost,
    Configuration,
    ExactNeighbours,
    FilteredSearch,
    LoadResult,
    MeasuredConfiguration,
    MixedWorkload,
    OperationLatency,
    VectorSet,
)
from ragauge.store_benchmarks.results_folder import RawResult
from ragauge.store_benchmarks.search_loops import Mask, RawArrays, nested_filters
from ragauge.store_benchmarks.updates import UPDATE_OPERATIONS
from ragauge.stores.nearest_neighbours import find_nearest


def compute_cost_per_million(qps: float, price_per_hour: float) -> float:
    """Return the cost of a million queries, given the price of one thread per hour.

    >>> compute_cost_per_million(1000, 3.6)
    1.0
    """
    return price_per_hour * 1e6 / (qps * 3600) if qps > 0 else math.nan


RelevanceScorer = Callable[[Ints], Mapping[str, float]]
"""Function that scores found rows against relevance judgments, by measure."""


@dataclass(frozen=True)
class BenchmarkAnalysis:
    """Vectors, exact neighbours and settings that raw measurements are scored with."""

    data: VectorSet
    truth: ExactNeighbours
    settings: BenchmarkSettings
    relevance: RelevanceScorer | None = None

    @property
    def recall(self) -> str:
        """Name of the recall measure that stores are compared by; ties count as found."""
        return f"{RECALL_MEASURE}@{self.settings.k}"

    def points(
        self, builds: Sequence[StoreBuild], runner: BenchmarkRunner
    ) -> Iterator[tuple[StoreBuild, MeasuredConfiguration]]:
        """Yield the measured configurations with their builds."""
        raw_results = [
            (build, configuration, runner.saved_result(build, configuration.search))
            for build in builds
            for configuration in build.points
            if runner.build_costs(build)
        ]
        # The median, not the minimum: a moment of higher CPU speed must not make other results unreliable.
        floors = [np.median(raw_result[1]["floor_ns"]) for _, _, raw_result in raw_results if raw_result is not None]
        usual = float(np.median(floors)) if floors else math.inf
        for build, configuration, raw_result in raw_results:
            if raw_result is not None:
                cold, _ = runner.saved_result(build, build.searches[0], "cold") or (EMPTY_MAPPING, EMPTY_MAPPING)
                build_cost = _parse_build_cost(runner.build_costs(build), cold, raw_result[0]["about"])
                point = self._build_measured_configuration(configuration, build_cost, raw_result[1], usual)
                yield build, replace(point, **runner.provenance(build, configuration.search))

    def loads(self, raw_result: RawResult | None) -> list[LoadResult]:
        loads, arrays = raw_result or ({"notes": []}, {})
        return [
            measures.summarise_load(_arrays_with_prefix(arrays, f"{number}_"), note)
            for number, note in enumerate(loads["notes"])
        ]

    def filters(
        self, raw_results: Sequence[Sequence[FilterRawResult]], *, in_process: bool
    ) -> list[list[FilteredSearch | None]]:
        """Return the results of each configuration with each filter.

        A result is None if the time limit was reached before it could be measured.
        """
        floors = [
            np.median(raw_result[0][1]["floor_ns"])
            for row in raw_results
            for raw_result in row
            if raw_result and raw_result[0][1]
        ]
        usual_floor_ns = float(np.median(floors)) if floors else math.inf
        filters: list[list[FilteredSearch | None]] = [[] for _ in raw_results]
        for configuration_results, row in zip(filters, raw_results, strict=True):
            for entry, (name, mask, true) in zip(row, self._exact_filtered_neighbours, strict=True):
                if entry is None or not entry[0][1]:
                    configuration_results.append(None)
                    continue
                (_, raw), dates = entry
                result = measures.summarise_filtered_search(raw, mask, self.data, self.settings.k, true)
                doubts = observation.assess_clock(raw, in_process=in_process, usual_floor_ns=usual_floor_ns).doubts
                configuration_results.append(replace(result, name=name, doubts=doubts, **dates))
        return filters

    @cached_property
    def _exact_filtered_neighbours(self) -> list[tuple[str, Mask, Ints]]:
        """Name, matching rows and exact neighbours of each filter, computed once."""
        masks = [
            ("", mask)
            for mask in nested_filters(len(self.data.base), self.settings.filters, seed=self.settings.seed).values()
        ]
        user_filters = [json.loads(text) for text in self.settings.where]
        masks += [(describe_filter(where), matching_mask(self.data.metadata, where)) for where in user_filters]
        base, queries, metric = self.data.base, self.data.queries, self.data.metric
        return [
            (name, mask, find_nearest(base, queries, self.settings.k, metric, allowed=mask)[0]) for name, mask in masks
        ]

    def changes(self, raw_result: RawResult | None) -> list[OperationLatency]:
        """Return the results of inserts, updates and deletes."""
        _, arrays = raw_result or ({}, {})
        return [
            measures.summarise_updates(operation, _arrays_with_prefix(arrays, f"{operation}_"))
            for operation in UPDATE_OPERATIONS
            if f"{operation}_ns" in arrays
        ]

    def mixed(self, raw_result: RawResult | None) -> MixedWorkload | None:
        """Return the result of searching during inserts; None if it was not measured."""
        _, arrays = raw_result or ({}, {})
        raw = _arrays_with_prefix(arrays, "mixed_")
        return measures.summarise_mixed_workload(raw, self.truth, self.data, self.settings.k) if raw else None

    def _compute_quality(self, positions: Ints) -> dict[str, float]:
        """Compute the quality of the same searches at each requested k."""
        return {
            name: value
            for k in self.settings.cutoffs or (self.settings.k,)
            for name, value in measures.compute_quality(self.truth, positions, self.data, k).items()
        }

    def _build_measured_configuration(
        self, configuration: Configuration, build_cost: BuildCost, raw: RawArrays, usual_floor_ns: float
    ) -> MeasuredConfiguration:
        positions = raw["positions"]
        notes = measures.distance_errors(positions, raw["distances"], self.data)
        if (changed := int(raw["changed"].max(initial=0))) and configuration.store != "null":
            notes.append(f"{changed} of {len(positions)} queries returned other results when repeated")
        if build_cost.about.get("index_used") is False and not is_exact_search(build_cost.about):
            notes.append("the engine did not use its index, and compared every vector")
        return MeasuredConfiguration(
            configuration=configuration.shown,
            build=build_cost,
            quality=self._compute_quality(positions),
            latency=measures.summarise_search_latency(raw["nanoseconds"]),
            clock=observation.assess_clock(
                raw, in_process="server" not in build_cost.about, usual_floor_ns=usual_floor_ns
            ),
            qps_spread=measures.qps_spread(raw["nanoseconds"]),
            relevance=EMPTY_MAPPING if self.relevance is None else self.relevance(positions),
            notes=notes,
        )


def is_exact_search(about: Mapping[str, Any]) -> bool:
    """Return whether a store compares every vector, by its own description."""
    return about.get("index") == "none" or about.get("exact") is True


def _parse_build_cost(costs: Mapping[str, Any], cold: Mapping[str, Any], about: Mapping[str, Any]) -> BuildCost:
    return BuildCost(
        vectors=costs["vectors"],
        insert_seconds=costs["insert_seconds"],
        index_seconds=costs["index_seconds"],
        disk_bytes=costs["disk_bytes"],
        memory_bytes=costs["memory_bytes"],
        cold_open_ms=cold.get("open_ms", math.nan),
        cold_first_ms=cold.get("first_ms", math.nan),
        about=about,
    )


def _arrays_with_prefix(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names have a prefix, without the prefix."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
