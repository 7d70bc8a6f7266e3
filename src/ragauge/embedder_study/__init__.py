"""Comparison of embedders on the same dataset, retriever and context length."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ragauge.compute.progress import OVERALL, Progress, ProgressCallback, no_progress
from ragauge.core import plugins, protocols
from ragauge.core.components import check_spec, iterate_plugins
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError, UnknownName
from ragauge.core.records import Dataset, Scores
from ragauge.core.settings import unique_by
from ragauge.core.specs import parse_spec, redact_spec, split_name
from ragauge.datasets import load
from ragauge.datasets.perturbations import find_perturbation
from ragauge.embedder_study.measure_embedder import measure_embedder
from ragauge.embedder_study.plan import (
    STUDY_BASELINES,
    STUDY_EMBEDDERS,
    STUDY_MEASURES,
    DatasetView,
    EmbedderMeasurement,
    StudyContext,
    StudyOptions,
    StudySettings,
    build_view,
    parse_options,
)
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy
from ragauge.embedder_study.results_folder import StudyFolder
from ragauge.embedder_study.scoring import RankingTask, compare_embedder_pairs, differences_from_baseline
from ragauge.evaluation import parse_measures
from ragauge.files.workspace import cache_folder, check_writable, folder_name, hold_folder
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.names import Measure
from ragauge.measures.scoring import MeasureFunction
from ragauge.models.embedders import ensure_name, open_embedder
from ragauge.models.embedders.embedding import summarise_error
from ragauge.runs.folder import dataset_fingerprint, provenance, utc_now

LEXICAL_SYSTEMS = ("bm25",)
"""Systems without vectors that can be compared with embedders."""


def compare_embedders(
    dataset: str | Path | Dataset | None = None,
    embedders: Any = None,
    *,
    baseline: str | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    reuse: bool = False,
    progress: ProgressCallback = no_progress,
    **options: Unpack[StudyOptions],
) -> EmbedderStudy:
    """Compare embedders by quality, latency, size and robustness.

    `dataset` defaults to `pydocs`. `embedders` maps names to descriptions (`"minilm"`, `"lm(tokenizer=bytes)"`) or to
    objects with an `embed` method. It can also be a list of descriptions, each with an optional `NAME=` prefix. Without
    it, `ragauge.embedder_study.plan.STUDY_EMBEDDERS` are compared. BM25 and chance are added unless `baselines` is
    false. `options` are the fields of `StudyScope` (`split`, `max_queries`, `measures`, `convention`, `baselines`) and
    of `StudySettings` (`context`, `part`, `stores`, `dimensions`, `sizes`, `perturbations`, `rate`, `seeds`, `timed`,
    `memory`, `seed` and others) in `ragauge.embedder_study.plan`.

    Document vectors are cached. With the folder `out`, each embedder is saved there as soon as it is measured, and the
    same call resumes an interrupted study. The folder also has the rankings as runs and the whole result as
    `study.json`. Finished built-in embedders are reused; models in local folders are identified by a hash of their
    files. Plug-ins and services (`openai`) are measured again unless `reuse` is set. Objects are always measured again.
    An embedder that fails is left out, and `failures` has the reason. If all fail, the first error is raised.
    """
    if fresh and reuse:
        raise BadInput("fresh and reuse are mutually exclusive", hint="leave out one of them")
    scope, settings = parse_options(options)
    convention = find_convention(scope.convention)
    measures = parse_measures(STUDY_MEASURES if scope.measures is None else scope.measures, convention)
    requested = _embedders_by_name(STUDY_EMBEDDERS if embedders is None else embedders)
    taken_names = _taken_names(requested)
    added = {name: name for name in STUDY_BASELINES if scope.baselines and name not in taken_names}
    systems = {**requested, **added}
    baseline = _baseline_name(baseline, systems)
    _check_arguments(systems, settings, baseline)
    if out is not None:
        check_writable(str(out), folder=True)
    began = time.perf_counter()
    progress(Progress("reading the dataset"))
    data = load("pydocs" if dataset is None else dataset, split=scope.split)
    view = build_view(data, part=settings.part, context=settings.characters, max_queries=scope.max_queries)
    task = _build_ranking_task(view, settings, measures, convention)
    context = StudyContext(view, task, settings, cache_folder(), progress)
    with contextlib.nullcontext() if out is None else hold_folder(out):
        folder = None if out is None else StudyFolder(Path(out), context, folder_name, fresh=fresh, reuse=reuse)
        measured, failures, notes = _measure_all(systems, requested, context, folder)
        progress(Progress("comparing"))
        chosen, baseline_notes = _choose_baseline(baseline, list(measured))
        study = replace(
            _build_study(measured, context, chosen),
            failures=failures,
            seconds={**_seconds_by_step(measured.values()), "in all": time.perf_counter() - began},
            notes=[
                *view.notes,
                *_size_notes(context),
                *_dimension_notes(settings, measured.values()),
                *baseline_notes,
                *notes,
            ],
        )
        if folder is not None:
            folder.finish(study)
        return study


def _build_ranking_task(
    view: DatasetView, settings: StudySettings, measures: Sequence[Measure | MeasureFunction], rules: Convention
) -> RankingTask:
    """Build the ranking task; its depth is at least the largest cutoff."""
    depth = max([settings.k, *(int(measure.cutoff or 0) for measure in measures if isinstance(measure, Measure))])
    ids = [document.id for document in view.documents]
    return RankingTask(ids, list(view.queries), view.dataset.judgments, measures, rules, depth, view.queries_in_corpus)


def _build_study(measurements: Mapping[str, EmbedderMeasurement], context: StudyContext, base: str) -> EmbedderStudy:
    """Build the study: differences from the baseline, and comparisons of pairs."""
    view, task, settings = context.view, context.task, context.settings
    scores = {name: _score_embedder(task, measurement) for name, measurement in measurements.items()}
    results = _with_differences(measurements, scores, base, settings)
    first = task.names[0]
    return EmbedderStudy(
        dataset=view.dataset.name,
        documents=len(view.documents),
        queries=len(view.queries),
        embedders=results,
        measures=task.names,
        baseline=base,
        convention=task.convention.name,
        part=settings.part,
        context=settings.characters,
        truncated=view.truncated,
        confidence=settings.confidence,
        seed=settings.seed,
        pairs=compare_embedder_pairs(
            {embedder.name: embedder.description for embedder in results},
            {name: scores.values[first] for name, scores in scores.items()},
            first,
            models={embedder.name: embedder.model for embedder in results},
            lower=first in next(iter(scores.values())).lower_is_better,
            confidence=settings.confidence,
            seed=settings.seed,
        ),
        compressors=next(
            (measurement.compressors for measurement in measurements.values() if measurement.compressors), {}
        ),
        provenance={
            "made": utc_now(),
            **provenance(),
            "dataset": dataset_fingerprint(view.dataset),
            "plan": settings.redacted,
        },
    )


def _embedders_by_name(embedders: Any) -> dict[str, Any]:
    if isinstance(embedders, Mapping):
        named = {str(name): embedder for name, embedder in embedders.items()}
    elif isinstance(embedders, str) or hasattr(embedders, "embed"):
        named = _name_embedders([embedders])
    elif isinstance(embedders, Iterable):
        named = _name_embedders(embedders)
    else:
        raise BadInput(
            f"embedders cannot be read from {type(embedders).__name__}", hint='{"mine": model, "minilm": "minilm"}'
        )
    if not named:
        raise BadInput("no embedder given", hint=f"choose one of {', '.join(plugins.plugin_names('embedders'))}")
    folders: dict[str, str] = {}
    for name in named:
        existing = folders.setdefault(folder_name(name), name)
        if existing != name:
            raise BadInput(f"`{name}` and `{existing}` would share a folder", hint="give them other names")
    return named


def _name_embedders(embedders: Iterable[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for embedder in embedders:
        if isinstance(embedder, str):
            name, spec = split_name(embedder)
            name = name or _redact_description(embedder)
            hint = f"other={_redact_description(spec)}"
        else:
            name, spec = str(getattr(embedder, "name", type(embedder).__name__)), embedder
            hint = f'{{"{name}": …, "other": …}} gives them names'
        unique_by([*named, name], str, "embedder", hint=hint)
        named[name] = spec
    return named


def _redact_description(description: str) -> str:
    """Return the description without secrets, for messages and folder names."""
    return str(redact_spec(parse_spec(description, "embedder")))


def _baseline_name(baseline: str | None, named: Mapping[str, Any]) -> str | None:
    """Return the baseline's name.

    A description is normalised like the names of unnamed embedders.
    """
    if baseline is None or baseline in named or "(" not in baseline:
        return baseline
    return _redact_description(baseline)


def _taken_names(named: Mapping[str, Any]) -> set[str]:
    """Return the names of the embedders and the plug-in names in their descriptions."""
    return {
        *named,
        *(parse_spec(embedder, "embedder").name for embedder in named.values() if isinstance(embedder, str)),
    }


def _check_arguments(named: Mapping[str, Any], settings: StudySettings, baseline: str | None) -> None:
    """Raise before any work is done if an argument is invalid."""
    for embedder in named.values():
        if not isinstance(embedder, str):
            _check_embedder_object(embedder)
            continue
        name = parse_spec(embedder).name
        known = [*plugins.plugin_names("embedders"), *LEXICAL_SYSTEMS]
        if name not in known:
            raise UnknownName("embedder", name, known)
        check_spec("retrievers" if name in LEXICAL_SYSTEMS else "embedders", embedder)
    for store in settings.stores:
        check_spec("stores", store)
    plugins.check_installed(part for store in settings.stores for part in iterate_plugins("stores", store))
    if baseline is not None and baseline not in named:
        raise UnknownName("embedder", baseline, named, hint="the baseline must be one of the compared embedders")
    for name in settings.perturbations or ():
        find_perturbation(name)


def _check_embedder_object(embedder: Any) -> None:
    if isinstance(embedder, type):
        raise BadInput(
            f"the class {embedder.__name__} is not an embedder", hint=f"pass an instance: {embedder.__name__}(…)"
        )
    if callable(getattr(embedder, "embed", None)):
        return
    requirement = "`embed(texts)` returns one vector per text"
    hint = (
        f"{requirement}; if `encode` does that: model.embed = model.encode"
        if hasattr(embedder, "encode")
        else requirement
    )
    raise BadInput(f"{type(embedder).__name__} is not an embedder: it has no `embed`", hint=hint)


def _measure_all(
    systems: Mapping[str, Any], requested: Mapping[str, Any], context: StudyContext, study_folder: StudyFolder | None
) -> tuple[dict[str, EmbedderMeasurement], dict[str, str], list[str]]:
    """Measure all systems, baselines first because they are fast.

    Return results, failures and notes.
    """
    order = sorted(systems, key=lambda name: name in requested)
    saved = {name: study_folder.find(name, systems[name]) for name in order} if study_folder is not None else {}
    measurements: dict[str, EmbedderMeasurement] = {
        name: measurement for name, measurement in saved.items() if measurement is not None
    }
    notes = []
    if study_folder is not None:
        notes += [
            f"{name}: reused; made {study_folder.dates[name]} (--fresh measures it again)" for name in measurements
        ]
        notes += study_folder.note_unused_results([spec for name, spec in systems.items() if name not in measurements])
    failed = _find_unopenable({name: systems[name] for name in order if name not in measurements}, context)
    for number, name in enumerate(order):
        context.progress(Progress("embedders", number, len(order), stage=OVERALL))
        if name in measurements or name in failed:
            continue
        try:
            embedder = systems[name]
            measurements[name] = measure_embedder(
                name, embedder if isinstance(embedder, str) else ensure_name(embedder, name), context
            )
        except Exception as error:  # one failure must not stop the other embedders
            failed[name] = error
            continue
        if study_folder is not None:
            study_folder.save(measurements[name], systems[name])
    context.progress(Progress("embedders", len(order), len(order), stage=OVERALL))
    if not any(name in measurements for name in requested):
        first = next(failed[name] for name in requested)
        raise first if isinstance(first, RagaugeError) else BackendFailed(summarise_error(first)) from first
    failures = {name: _failure_text(failed[name]) for name in systems if name in failed}
    return {name: measurements[name] for name in systems if name in measurements}, failures, notes


def _find_unopenable(several: Mapping[str, Any], context: StudyContext) -> dict[str, Exception]:
    """Open each embedder once and return the errors of those that fail.

    A mistake in a description is raised. Each embedder is closed again, because all of them together might not fit into
    memory.
    """
    closed: dict[str, Exception] = {}
    for name, spec in several.items():
        if not isinstance(spec, str) or parse_spec(spec).name in LEXICAL_SYSTEMS:
            continue
        context.progress(Progress("trying to open", subject=name))
        try:
            protocols.close_if_possible(open_embedder(spec))
        except (BadInput, UnknownName):
            raise
        except Exception as error:  # not installed or not reachable: the other embedders can still be measured
            closed[name] = error
    return closed


def _failure_text(error: Exception) -> str:
    hint = getattr(error, "hint", None)
    return f"{summarise_error(error)} ({hint})" if hint else summarise_error(error)


def _score_embedder(task: RankingTask, measurement: EmbedderMeasurement) -> Scores:
    ids = {query: [doc for doc, _ in hits] for query, hits in measurement.ranking.items()}
    return task.scored(ids, name=measurement.result.name)


def _choose_baseline(requested: str | None, names: Sequence[str]) -> tuple[str, list[str]]:
    if requested in names:
        return str(requested), []
    fallback = "bm25" if "bm25" in names else names[0]
    return fallback, [f"{requested} could not be measured: the baseline is {fallback}"] if requested else []


def _with_differences(
    measurements: Mapping[str, EmbedderMeasurement], scores: Mapping[str, Scores], base: str, settings: StudySettings
) -> list[EmbedderResult]:
    other_scores = {name: scores for name, scores in scores.items() if name != base}
    differences = (
        differences_from_baseline(other_scores, scores[base], confidence=settings.confidence, seed=settings.seed)
        if other_scores
        else {}
    )
    return [
        replace(measurement.result, differences=differences.get(name, {})) for name, measurement in measurements.items()
    ]


def _seconds_by_step(measurements: Iterable[EmbedderMeasurement]) -> dict[str, float]:
    """Return the measuring time in seconds by step, summed over all embedders."""
    seconds: dict[str, float] = {}
    for measurement in measurements:
        for step, took in measurement.seconds.items():
            seconds[step] = seconds.get(step, 0.0) + took
    return seconds


def _size_notes(context: StudyContext) -> list[str]:
    relevant, n_documents = len(context.task.relevant), len(context.view.documents)
    impossible = [size for size in context.settings.sizes or () if not relevant <= size < n_documents]
    if not impossible:
        return []
    sizes = ", ".join(f"{size:,}" for size in impossible)
    return [
        f"corpus sizes {sizes} not possible: {relevant:,} of {n_documents:,} documents are relevant and always included"
    ]


def _dimension_notes(settings: StudySettings, measurements: Iterable[EmbedderMeasurement]) -> list[str]:
    dimensions = {
        measurement.result.name: measurement.result.dimension
        for measurement in measurements
        if measurement.result.kind == "embedder"
    }
    notes = []
    for requested in settings.dimensions or ():
        short = [
            f"{name} ({dimension:,})" for name, dimension in dimensions.items() if dimension and dimension < requested
        ]
        if short:
            notes.append(f"vectors have fewer than {requested:,} dimensions: {', '.join(short)}")
    return notes
