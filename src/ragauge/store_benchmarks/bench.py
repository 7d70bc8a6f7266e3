"""Benchmarks of vector stores: exact neighbours, one process per store, and the analysis of the results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, Unpack

from ragauge.compute.progress import OVERALL, Progress, ProgressCallback, no_progress, scoped
from ragauge.core.components import iterate_plugins
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.plugins import check_installed
from ragauge.core.records import Dataset, Ints
from ragauge.core.settings import check_choice
from ragauge.core.specs import Spec
from ragauge.evaluation.evaluate import evaluate
from ragauge.files.workspace import cache_folder, hold_folder, temporary_folder
from ragauge.output.numbers import pluralise
from ragauge.runs.folder import provenance, utc_now
from ragauge.store_benchmarks.analysis import (
    BenchmarkAnalysis,
    RelevanceScorer,
    compute_cost_per_million,
    is_exact_search,
)
from ragauge.store_benchmarks.exact_neighbours import NEIGHBOUR_BACKENDS
from ragauge.store_benchmarks.frontiers import select_representative
from ragauge.store_benchmarks.jobs import BenchmarkRunner, FilterRawResult
from ragauge.store_benchmarks.metadata_filters import (
    keep_used_fields,
    metadata_hash,
    resolve_filters,
    with_metadata,
)
from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
from ragauge.store_benchmarks.options import BenchmarkOptions, BenchmarkRunOptions, parse_options
from ragauge.store_benchmarks.plan import BenchmarkSettings, StoreBuild, describe_stores, plan_builds
from ragauge.store_benchmarks.results import (
    FilteredSearch,
    LoadResult,
    MeasuredConfiguration,
    MixedWorkload,
    OperationLatency,
    StoreBenchmark,
    VectorSet,
)
from ragauge.store_benchmarks.vector_sets import load_vector_set

DEFAULT_STORES = ("exact", "faiss:kind=hnsw", "faiss:kind=ivf", "usearch")
"""Stores that are measured if none is given."""
MIN_NEIGHBOUR_DEPTH = 100
"""Minimum number of exact neighbours per query, as in the published vector sets."""
StageResultT = TypeVar("StageResultT", LoadResult, OperationLatency, MixedWorkload)


def bench(
    data: str | Path | Dataset | VectorSet = "clustered",
    stores: str | type | Sequence[str | type] | Mapping[str, str | type] = DEFAULT_STORES,
    *,
    folder: str | Path | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[BenchmarkOptions],
) -> StoreBenchmark:
    """Measure recall, latency, load and size of vector stores on the same vectors.

    Each store is measured over a sweep of its options.

    `data` is a file or folder of vectors, a dataset (embedded by `embedder`), or `clustered`; `metric`, `embedder`,
    `max_vectors`, `max_queries` and `seed` configure it. `stores` are written `faiss:kind=hnsw,ef_search=10+40`; your
    own are classes of a module, `module:Class`, or a mapping from names to these. The other options are described in
    `BenchmarkRunOptions` (`ragauge.store_benchmarks.options`) and `BenchmarkSettings` (in `plan` next to it).
    Several values of `k` ([1, 10, 100]) are scored from one search at the largest.

    `where` are your own filters on the metadata of the vectors, each with one or more conditions: as typed (`lang=de
    and year>=2019 and kind in a|b`) or as a mapping (`{"lang": "de", "year": {"$gte": 2019}}`). `metadata` is a file or
    mappings, matched by `id` or in the order of the vectors. Without it, the metadata of the documents are used.

    Results are saved in `folder`, and the same call resumes an interrupted benchmark. Finished results of built-in
    stores are reused. Those of your own classes, plug-ins and servers are measured again, since ragauge cannot see
    whether they changed. `reuse` reuses these too; `fresh` measures everything again. Each `MeasuredConfiguration` has
    the time of its measurement (`made`) and whether it was `reused`. `remeasure="doubtful"` reuses all results except
    those with unreliable times (`MeasuredConfiguration.clock.doubts`), which are measured again. The stores themselves
    are deleted unless `keep` is true.

    `score_judgments` also scores the searches against relevance judgments, by nDCG and hit rate or by the measures that
    it names. `price_per_hour` is the price of one thread per hour. `truth` selects how the exact neighbours are found:
    `numpy`, `faiss`, `torch` (on a GPU), or `auto`; with an `executor` its workers find them. The stores are always
    measured on this machine, because times of several machines cannot be compared.
    """
    run_options, settings = parse_options(options)
    builds = plan_builds(describe_stores(stores), settings)
    if not builds:
        raise BadInput("no store given", hint="--store hnswlib")
    _check_libraries(builds, run_options.truth)
    vectors, settings = _load_vectors(data, run_options, settings)
    scorer = _build_relevance_scorer(vectors, _relevance_measures(vectors, run_options.score_judgments, settings.k))
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(temporary_folder("bench"))
        stack.enter_context(hold_folder(folder))
        neighbours = find_exact_neighbours(
            vectors,
            min(max(MIN_NEIGHBOUR_DEPTH, settings.k), len(vectors.base)),
            by=run_options.truth,
            cache=cache_folder(),
            executor=executor,
            progress=scoped(progress, action="exact neighbours"),
        )
        runner = BenchmarkRunner(
            vectors, settings, Path(folder), progress, remeasures_doubtful=run_options.remeasures_doubtful
        )
        analysis = BenchmarkAnalysis(vectors, neighbours, settings, scorer)
        _discard_results(builds, runner, analysis, run_options)
        points = _measure_all(builds, runner, analysis, progress)
        runner.finish(builds)
        if not run_options.keep:
            runner.clear(builds)
    if run_options.price_per_hour is not None:
        points = [
            replace(point, cost_per_million=compute_cost_per_million(point.qps, run_options.price_per_hour))
            for point in points
        ]
    return StoreBenchmark(
        data=vectors.name,
        vectors=len(vectors.base),
        dimension=int(vectors.base.shape[1]),
        queries=len(vectors.queries),
        metric=vectors.metric,
        k=settings.k,
        points=points,
        recall=analysis.recall,
        failures=runner.failures,
        truth=neighbours.by,
        threads=settings.threads,
        repeats=settings.repeats,
        cutoffs=settings.cutoffs,
        true_neighbours=neighbours.neighbours.shape[1],
        provenance={
            "made": utc_now(),
            **provenance(),
            "vectors_hash": vectors.hash,
            "seed": settings.seed,
            **({"embedder": run_options.embedder} if isinstance(run_options.embedder, str) else {}),
        },
        notes=[*vectors.notes, *neighbours.notes],
    )


def _check_libraries(builds: Sequence[StoreBuild], truth: str) -> None:
    """Raise MissingExtra if a library is not installed, and UnknownName for an unknown search of neighbours."""
    check_choice("backend", truth, NEIGHBOUR_BACKENDS)
    configurations = [build.configuration for build in builds]
    plugins = {
        plugin
        for configuration in configurations
        if ":" not in configuration.store
        for plugin in iterate_plugins("stores", Spec(configuration.store, configuration.build))
    }
    check_installed([*sorted(plugins), ("neighbour searches", truth), ("measurements", "memory")])


def _load_vectors(
    data: str | Path | Dataset | VectorSet, run_options: BenchmarkRunOptions, settings: BenchmarkSettings
) -> tuple[VectorSet, BenchmarkSettings]:
    """Load the vectors with the metadata that the filters use; also return the settings with resolved filters."""
    vectors = load_vector_set(
        data,
        metric=run_options.metric,
        embedder=run_options.embedder,
        max_vectors=run_options.max_vectors,
        max_queries=run_options.max_queries,
        seed=settings.seed,
    )
    if run_options.metadata is not None:
        vectors = with_metadata(vectors, run_options.metadata)
    filters = resolve_filters(vectors, run_options.where) if run_options.where else []
    vectors = keep_used_fields(vectors, filters)
    texts = tuple(json.dumps(filter_mapping) for filter_mapping in filters)
    if run_options.truth != "auto":
        vectors = replace(vectors, neighbours=None)  # an explicit backend overrides published neighbours
    if settings.k > len(vectors.base):
        raise BadInput(f"k is {settings.k}, but {vectors.name} has only {pluralise(len(vectors.base), 'vector')}")
    return vectors, replace(settings, where=texts, metadata=metadata_hash(vectors.metadata))


def _relevance_measures(vectors: VectorSet, judgments: bool | Sequence[str], k: int) -> list[str]:
    """Return the measures to score searches by against relevance judgments."""
    measures = [f"ndcg@{k}", f"hit_rate@{k}"] if judgments is True else list(judgments or ())
    if measures and vectors.judgments is None:
        hint = "use a dataset, e.g. `ragauge bench pydocs --score-judgments`"
        raise MissingEvidence(f"{vectors.name} has no relevance judgments", hint=hint)
    return measures


def _discard_results(
    builds: Sequence[StoreBuild], runner: BenchmarkRunner, analysis: BenchmarkAnalysis, run_options: BenchmarkRunOptions
) -> None:
    """Remove saved results that are to be measured again."""
    if run_options.remeasures_doubtful:
        for build, point in list(analysis.points(builds, runner)):
            if point.clock.doubts:
                runner.remove(build, point.configuration.search)
    elif not run_options.reuse:
        runner.discard(builds, all_results=run_options.fresh)


def _measure_all(
    builds: Sequence[StoreBuild], runner: BenchmarkRunner, analysis: BenchmarkAnalysis, progress: ProgressCallback
) -> list[MeasuredConfiguration]:
    """Measure all configurations; load, filters and updates at those that represent their stores."""
    for number, build in enumerate(builds):
        progress(Progress("stores", number, len(builds), stage=OVERALL))
        runner.ensure_built(build)
    measured = list(analysis.points(builds, runner))
    points = [point for _, point in measured]
    representatives = _representative_indices(points, analysis.recall) if runner.settings.has_further_tests else []
    for number, index in enumerate(representatives):
        progress(Progress("load, filters, changes", number, len(representatives)))
        points[index] = _measure_extra_stages(points[index], measured[index][0], runner, analysis)
        if runner.settings.requested_filters and "filter" not in points[index].unsupported:
            indices = _indices_of_build(points, [build for build, _ in measured], index)
            filtered = _measure_filters([points[i] for i in indices], measured[index][0], runner, analysis)
            for i, point in zip(indices, filtered, strict=True):
                points[i] = point
    return points


def _representative_indices(points: Sequence[MeasuredConfiguration], recall: str) -> list[int]:
    """Return the indices of the points that represent their stores."""
    series: dict[str, list[MeasuredConfiguration]] = {}
    for point in points:
        # The null store takes part only with search options, which make it misbehave on purpose.
        if not point.is_floor or point.configuration.search:
            series.setdefault(point.series, []).append(point)
    representatives = [select_representative(series_points, recall) for series_points in series.values()]
    return [
        index
        for index, configuration in enumerate(points)
        if any(configuration is representative for representative in representatives)
    ]


def _measure_extra_stages(
    point: MeasuredConfiguration, build: StoreBuild, runner: BenchmarkRunner, analysis: BenchmarkAnalysis
) -> MeasuredConfiguration:
    """Measure load and updates of a configuration.

    Operations that its store does not support are added to its notes.
    """
    settings, search = runner.settings, point.configuration.search
    notes, unsupported = list(point.notes), list[str]()
    abilities = set(runner.build_costs(build).get("abilities", ()))

    def with_dates(stage: str, results: list[StageResultT]) -> list[StageResultT]:
        provenance = runner.provenance(build, search, stage) if results else {}
        return [replace(load, **provenance) for load in results]

    if settings.clients or settings.rates or settings.shares:
        if runner.can_reopen(build):
            loads = with_dates("load", analysis.loads(runner.measure(build, search, "load")))
            if runner.remeasures_doubtful and any(load.doubts and load.reused for load in loads):
                runner.remove(build, search, "load")
                loads = with_dates("load", analysis.loads(runner.measure(build, search, "load")))
            point = replace(point, loads=loads)
        else:
            unsupported.append("load")
            notes.append("cannot be opened again: not put under load")
    if settings.requested_filters and "filter" not in abilities:
        unsupported.append("filter")
    if settings.changes or settings.mixed:
        if abilities & {"insert", "update", "delete"}:
            raw_result = runner.measure(build, search, "changes")
            mixed = analysis.mixed(raw_result)
            point = replace(
                point,
                changes=with_dates("changes", analysis.changes(raw_result)),
                mixed=None if mixed is None else with_dates("changes", [mixed])[0],
            )
        changing = ("insert", "update", "delete") if settings.changes else ("insert",)
        unsupported += [operation for operation in changing if operation not in abilities]
    notes += [f"cannot {operation}" for operation in unsupported if operation != "load"]
    return replace(point, notes=notes, unsupported=unsupported)


def _indices_of_build(points: Sequence[MeasuredConfiguration], builds: Sequence[StoreBuild], index: int) -> list[int]:
    """Return the indices of the configurations that share a build and a series.

    That of `index` comes first, then the later ones, then the earlier ones. The order matters if the time limit of a
    filter is reached: a filter usually needs a wider search.
    """
    series = points[index].series
    same = [i for i, build in enumerate(builds) if build is builds[index] and points[i].series == series]
    return [i for i in same if i >= index] + [i for i in same if i < index]


def _measure_filters(
    points: Sequence[MeasuredConfiguration], build: StoreBuild, runner: BenchmarkRunner, analysis: BenchmarkAnalysis
) -> list[MeasuredConfiguration]:
    """Return the configurations of one build with their results under each filter."""
    searches = [point.configuration.search for point in points]
    in_process = "server" not in points[0].build.about
    raw_results = runner.measure_filtered(build, searches)
    results = analysis.filters(raw_results, in_process=in_process)
    if runner.remeasures_doubtful:
        for search, row in zip(searches, results, strict=True):
            for filtered_search, requested in zip(row, runner.settings.requested_filters, strict=True):
                if filtered_search is not None and filtered_search.doubts and filtered_search.reused:
                    runner.remove_filtered(build, search, requested)
        raw_results = runner.measure_filtered(build, searches)
        results = analysis.filters(raw_results, in_process=in_process)
    filters = []
    for point, raw_result, row in zip(points, raw_results, results, strict=True):
        skipped = sum(entry is not None and not entry[0][1] for entry in raw_result)
        note = (
            f"not measured with {skipped} of {len(raw_result)} filters: the limit of "
            f"{runner.settings.filter_seconds:g} s per filter was reached (raise it with --timeout)"
        )
        measured = [search for search in row if search is not None]
        notes = [*([note] if skipped else []), *_note_unused_index(point, raw_result, row)]
        filters.append(replace(point, filters=measured, notes=[*point.notes, *notes]))
    return filters


def _note_unused_index(
    point: MeasuredConfiguration, raw_result: Sequence[FilterRawResult], row: Sequence[FilteredSearch | None]
) -> list[str]:
    """Return a note on the filters with which the engine did not use its index.

    The list is empty if there are no such filters or the store has no index.
    """
    unused = [
        search.name or f"{100 * search.selectivity:.3g}%"
        for saved, search in zip(raw_result, row, strict=True)
        if saved is not None and search is not None and saved[0][0].get("index_used") is False
    ]
    if not unused or is_exact_search(point.build.about):
        return []
    return [f"with the filter {', '.join(unused)} the engine did not use its index and compared every matching vector"]


def _build_relevance_scorer(data: VectorSet, measures: Sequence[str]) -> RelevanceScorer | None:
    """Build a function that scores found rows against the relevance judgments; None without measures."""
    if not measures:
        return None
    grades = {} if data.judgments is None else data.judgments.nested
    judged = {query: grades[query] for query in data.query_ids if query in grades}

    def score_rows(positions: Ints) -> dict[str, float]:
        run = {
            query: {data.ids[position]: float(-rank) for rank, position in enumerate(row) if position >= 0}
            for query, row in zip(data.query_ids, positions.tolist(), strict=True)
        }
        return dict(evaluate(judged, run, list(measures)).means)

    return score_rows
